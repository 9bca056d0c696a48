"""`python -m tests.swarm [SEED | FIRST-LAST …]`: the swarm, by hand."""

from __future__ import annotations

import sys

from .many import main

sys.exit(main(sys.argv[1:]))

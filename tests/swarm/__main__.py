"""`python -m tests.swarm [SEED | FIRST-LAST …]`: the swarm, by hand."""

from __future__ import annotations

import sys

from .many import main

if __name__ == "__main__":  # the processes of the pool import this file too
    sys.exit(main(sys.argv[1:]))

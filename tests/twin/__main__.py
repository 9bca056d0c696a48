"""`python -m tests.twin [COUNT] [--first SEED]`: compare the simulated database with SQLite on random histories."""

from __future__ import annotations

import sys

from .run import main

if __name__ == "__main__":  # the processes of the pool import this file too
    sys.exit(main(sys.argv[1:]))

"""The simulated database against SQLite: both play the same random histories, with equal results.

- histories.py: histories, and their play on a store
- sides.py: real processes on SQLite, which SIGKILL ends, and the twin on virtual time
- run.py: many histories on all cores (`python -m tests.twin 10000`)
"""

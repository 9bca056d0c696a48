"""The simulated database against SQLite: both go through the same random histories, and must tell the same.

histories.py    what a history is, and how it is played on a store
sides.py        the two sides: real processes on SQLite, killed with SIGKILL, and the twin on virtual time
run.py          many histories on all cores (`python -m tests.twin 10000`)
"""

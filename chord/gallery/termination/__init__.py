"""Termination: how the process that began a computation learns that all processes are passive."""

"""Checks of correctness: invariants of a ring, and histories of operations."""

"""Joining a ring, leaving it, and coming back to it."""

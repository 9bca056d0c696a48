"""Mutual exclusion: at most one process is inside the critical section."""

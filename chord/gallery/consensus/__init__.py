"""Consensus: all processes choose the same value, although some crash."""

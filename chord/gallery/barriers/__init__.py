"""Barriers: all processes reach a point before any process passes it."""

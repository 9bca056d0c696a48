"""Benchmarks: one file per question; `others` compares with what else one can install."""

"""Benchmarks: one file per question; `others` compares with what else one can install."""

import os

# What is measured is installed software, whose modules pip has compiled. Where this is set, as in many containers,
# every process of ours would compile them anew: half of what a command takes, and 3.6 MB of what a node weighs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

"""Benchmarks of this project, one file per question.

`others` compares chord with other systems.
"""

import os

# The benchmarks measure installed software, and pip has compiled its modules. If this variable is set, as in many
# containers, every process compiles them again. That is half of the time of a command, and 3.6 MB of a node's memory.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

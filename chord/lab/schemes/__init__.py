"""The schemes, one a file, and the table of them all.

`SCHEMES` maps the name of every row to what builds it from nodes and options: `SCHEMES["ring-100"](nodes, weights=…)`.
A scheme of one's own is one more entry (`examples/custom_scheme.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from chord.lab.placement import Placement
from chord.lab.schemes.mod import Mod
from chord.lab.schemes.ring import Ring

SCHEMES: dict[str, Callable[..., Placement]] = {
    "mod": Mod,
    "ring": Ring,
    "ring-100": partial(Ring, vnodes=100),
    "ring-1000": partial(Ring, vnodes=1000),
}
"""Every row of the table, in the table's order."""

"""Published figures that several experiments share, and the allowed differences."""

from __future__ import annotations

from typing import Final, NamedTuple


class Failures(NamedTuple):
    """A column of ToN 2003, Table II: mean path length and mean timeouts."""

    path: float
    timeouts: float


FAILURES_NODES, FAILURES_LIST = 1000, 20
"""Number of nodes in Table II, and the length of their successor lists."""

FAILURES: Final[dict[float, Failures]] = {
    0.0: Failures(3.84, 0.0),
    0.1: Failures(4.03, 0.60),
    0.2: Failures(4.22, 1.17),
    0.3: Failures(4.44, 2.02),
    0.4: Failures(4.69, 3.23),
    0.5: Failures(5.09, 5.10),
}
"""By the share of nodes that died at once."""

PATH_WITHIN, TIMEOUTS_WITHIN = 0.05, 0.20
"""Allowed relative differences from the published path lengths and timeouts.

The paper counts timeouts differently (docs/explanation/papers.md).
"""

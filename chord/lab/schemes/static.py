"""The static map: a table of ranges of keys, made once and known to all, such as first letters of surnames.

There is no hash: a range has as many keys as life puts there, and a table that spreads thirteen pairs of letters over
thirteen servers loads one of them ten times as much as another (fifth text). In return keys that are close lie
together, and a range can be scanned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import numpy as np

from chord.lab.hashing import PREFIX, Hashes
from chord.lab.placement import Numbers, Placement

LETTERS = 26
DEPTH = 3  # letters of a boundary: 17,576 ranges


class StaticMap(Placement):
    """Node number i has the keys from the i-th start up to the next one, letters compared in lower case.

    Args:
        starts: where the ranges of all nodes but the first begin, ascending; default: the alphabet in equal parts.
    Source: folklore; the first scheme of the second text, the first letters of the fifth.
    """

    scheme = "static"
    title = "static map"
    source = "folklore"
    lookup_cost = "O(log n)"
    memory_cost = "O(n)"
    growth = "never"
    has_names = can_remove = False

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        starts: Sequence[bytes] | None = None,
    ) -> None:
        super().__init__(nodes, weights=weights, hasher=PREFIX)
        given = equal_starts(len(nodes)) if starts is None else list(starts)
        self._starts = [0, *(PREFIX.one(start) for start in given)]
        if len(given) != len(nodes) - 1 or sorted(set(self._starts)) != self._starts:
            raise ValueError("every node but the first needs a start of its own, in ascending order")

    @property
    def state_bytes(self) -> int:
        """Eight bytes for the start of a range."""
        return 8 * len(self._starts)

    def locate(self, point: int) -> int:
        """Return the number of the last range that starts at or before a key."""
        return bisect_right(self._starts, point) - 1

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the numbers of the last ranges that start at or before the keys."""
        return np.searchsorted(np.array(self._starts, dtype=np.uint64), hashes, side="right") - 1

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the nodes of the range and of those behind it."""
        first, nodes = self.locate(point), len(self._nodes)
        return [(first + step) % nodes for step in range(min(count, nodes))]


def equal_starts(count: int) -> list[bytes]:
    """Return where the second and later of `count` equal parts of the alphabet begin: for 13, c, e, g, …"""
    if count > LETTERS**DEPTH:
        raise ValueError(f"three letters make {LETTERS**DEPTH} ranges, not {count}")
    starts = []
    for part in range(1, count):
        rest, letters = -(-part * LETTERS**DEPTH // count), ""
        for _ in range(DEPTH):
            rest, letter = divmod(rest, LETTERS)
            letters = chr(ord("a") + letter) + letters
        starts.append(letters.rstrip("a").encode() or b"a")
    return starts

"""The static map: a fixed table of key ranges, such as first letters of surnames.

All clients know the table. There is no hash, so the number of keys in a range depends on the data. A table that spreads
thirteen pairs of letters over thirteen servers loads one of them ten times as much as another (course notes
"分片 (Sharding)"). In return, close keys are stored together, and a range can be scanned.
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
    """A fixed table of key ranges: node number i has the i-th range.

    A range begins at its start and ends before the next start. Letters are compared in lower case.

    Args:
        starts: starts of the ranges of all nodes but the first, ascending. None: equal parts of the alphabet.

    Raises:
        ValueError: `starts` do not ascend, or are not one less than the nodes; see also `Placement`.

    Source: folklore; the exam notes "Распределенные системы", ticket 19; first letters: the course notes "分片
    (Sharding)".
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
        """Bytes that a lookup needs: 8 per range, for its start."""
        return 8 * len(self._starts)

    def locate(self, point: int) -> int:
        """Return the number of the node that has a key's range.

        Args:
            point: the first eight bytes of the key, not a hash.
        """
        return bisect_right(self._starts, point) - 1

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each key the number of the node that has its range.

        Args:
            hashes: the first eight bytes of each key as a number, not a hash; shape (k,).

        Returns:
            indices into `nodes`, shape (k,).
        """
        return np.searchsorted(np.array(self._starts, dtype=np.uint64), hashes, side="right") - 1

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the node numbers of a key's range and the next ones, `count` in all.

        The ranges are taken cyclically. If there are fewer nodes, all of them are returned.
        """
        first, nodes = self.locate(point), len(self._nodes)
        return [(first + step) % nodes for step in range(min(count, nodes))]


def equal_starts(count: int) -> list[bytes]:
    """Return the starts of ranges that cut the alphabet into equal parts.

    A start has one to three letters. The first part has no entry. For 13 parts the result is c, e, g and so on.

    Args:
        count: number of parts.

    Raises:
        ValueError: more than 17,576 parts.
    """
    if count > LETTERS**DEPTH:
        raise ValueError(f"three letters make at most {LETTERS**DEPTH} ranges, not {count}")
    starts = []
    for part in range(1, count):
        rest, letters = -(-part * LETTERS**DEPTH // count), ""
        for _ in range(DEPTH):
            rest, letter = divmod(rest, LETTERS)
            letters = chr(ord("a") + letter) + letters
        starts.append(letters.rstrip("a").encode() or b"a")
    return starts

"""The remainder: hash(key) % n.

Even, stateless and quick, and nothing stays where it was when n changes: of n -> n + 1 a key keeps its node only where
h % n == h % (n + 1), one in n + 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import Hashes
from chord.lab.placement import Numbers, Placement, only_the_last


class Mod(Placement):
    """Node number hash % n.

    Source: folklore; the naive approach of all five source texts.
    """

    scheme = "mod"
    title = "mod-n"
    source = "folklore"
    lookup_cost = memory_cost = "O(1)"
    has_names = is_consistent = has_distinct_replicas = can_remove = False

    @property
    def state_bytes(self) -> int:
        """The number of nodes."""
        return 8

    def shares(self) -> NDArray[np.float64]:
        """Return 1 / n for every node; what 2**64 % n adds to some is below what a float can say."""
        return np.full(len(self._nodes), 1 / len(self._nodes))

    def locate(self, point: int) -> int:
        """Return the remainder."""
        return point % len(self._nodes)

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the remainders."""
        return (hashes % np.uint64(len(self._nodes))).astype(np.intp)

    def _add(self, node: str, weight: float) -> None:
        """The next number is all that a node needs."""

    def _remove(self, number: int) -> None:
        only_the_last(self.scheme, number, len(self._nodes), self._nodes[number])

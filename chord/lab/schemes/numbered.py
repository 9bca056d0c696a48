"""The base of schemes that know nodes only by their numbers, 0 to n - 1.

Such a scheme keeps only n, and only the last node can go.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chord.lab.placement import Placement, only_the_last


class Numbered(Placement):
    """A placement computed from the hash and the number of nodes; equal shares."""

    has_names = has_distinct_replicas = can_remove = False

    @property
    def state_bytes(self) -> int:
        """Eight bytes for the number of nodes."""
        return 8

    def shares(self) -> NDArray[np.float64]:
        """Return 1 / n for each node; the true shares differ by less than 2**-31."""
        return np.full(len(self._nodes), 1 / len(self._nodes))

    def _add(self, node: str, weight: float) -> None:
        """Do nothing: a new node needs only the next number."""

    def _remove(self, number: int) -> None:
        only_the_last(self.scheme, number, len(self._nodes), self._nodes[number])

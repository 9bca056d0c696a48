"""What schemes have in common that know nodes by number only, 0 to n - 1: nothing but n to keep, the last one to go."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from chord.lab.placement import Placement, only_the_last


class Numbered(Placement):
    """A placement by arithmetic on the hash and the number of nodes; every number has the same part."""

    has_names = has_distinct_replicas = can_remove = False

    @property
    def state_bytes(self) -> int:
        """The number of nodes."""
        return 8

    def shares(self) -> NDArray[np.float64]:
        """Return 1 / n for every node: what a few of them have more or less is below 2**-31."""
        return np.full(len(self._nodes), 1 / len(self._nodes))

    def _add(self, node: str, weight: float) -> None:
        """The next number is all that a node needs."""

    def _remove(self, number: int) -> None:
        only_the_last(self.scheme, number, len(self._nodes), self._nodes[number])

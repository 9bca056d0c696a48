"""The ring with bounded loads: no node has more than c times the mean.

The capacity of a node is ceil(c * m / n) for m keys on n nodes, scaled by weight. Keys come in order, and each goes to
the first node clockwise that has room. The place of a key depends on the keys before it, so this is a placement of a
*set* of keys. `place_many` gets all of them, and `place` returns the node in an empty system.

A change of the nodes changes every capacity and moves keys along the ring, also between nodes that stay. For c = 1 + ε,
O(1 / ε²) times the necessary keys move in expectation, independent of the number of nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import Hashes
from chord.lab.placement import Common, Numbers
from chord.lab.schemes.ring import RingScheme

CAPACITY = 1.25


class BoundedRing(RingScheme):
    """A ring with bounded loads: no node gets more than `capacity` times its due keys.

    The bound holds for keys that are placed together. `replicas` and `arcs` are those of the ring without bounds.

    Args:
        capacity: c, at least 1; the paper uses 1.25.
        vnodes: as for a ring; the paper uses one point per node.

    Raises:
        ValueError: `capacity` is less than 1; see also `RingScheme`.

    Source: Mirrokni, Thorup, Zadimoghaddam 2018 (SODA), Consistent hashing with bounded loads.
    """

    scheme = "ring-bounded"
    title = "ring, bounded loads"
    source = "Mirrokni et al. 2018"
    is_consistent = False

    def __init__(
        self, nodes: Sequence[str], *, vnodes: int = 1, capacity: float = CAPACITY, **common: Unpack[Common]
    ) -> None:
        if not capacity >= 1:
            raise ValueError("with a capacity below 1 there is no room for all keys; use 1 or more")
        self.capacity = capacity
        super().__init__(nodes, vnodes=vnodes, **common)

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: those of a ring, and 8 per node to count its keys."""
        return super().state_bytes + 8 * len(self._nodes)

    def room(self, keys: int) -> list[int]:
        """Return the largest number of keys of each node, if `keys` keys are placed.

        It is ceil(c * keys * w / W) for weight w, with W the sum of the weights.
        """
        total = sum(self._weights)
        return [math.ceil(self.capacity * keys * weight / total) for weight in self._weights]

    def shares(self) -> NDArray[np.float64] | None:
        """Return None: there is no share of all hashes, because the set of keys decides."""
        return None

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the number of the node of each key, if the keys arrive in this order."""
        return self._owners[self._settle(hashes)].astype(np.intp)

    def walks(self, hashes: Hashes) -> Numbers:
        """Return the number of points that each key passes because their nodes are full.

        The keys arrive in this order. A later lookup of the key passes as many points.
        """
        return (self._settle(hashes) - self._following(hashes)) % len(self._points)

    def _settle(self, hashes: Hashes) -> Numbers:
        """Return the index of the point at which each key ends, if the keys arrive in this order."""
        room, owners = self.room(len(hashes)), self._owners.tolist()
        onward = list(range(len(owners)))  # union-find: from a point to the next one with a node that may have room
        points_of: list[list[int]] = [[] for _ in room]
        for at, owner in enumerate(owners):
            points_of[owner].append(at)
        found: list[int] = []
        for at in self._following(hashes).tolist():
            while onward[at] != at:
                onward[at] = at = onward[onward[at]]
            owner = owners[at]
            found.append(at)
            room[owner] -= 1
            if not room[owner]:
                for point in points_of[owner]:
                    onward[point] = (point + 1) % len(owners)
        return np.array(found, dtype=np.intp)

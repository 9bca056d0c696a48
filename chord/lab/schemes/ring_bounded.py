"""The ring with bounded loads: a node that is full is passed by, so that none has more than c times the mean.

The capacity is ceil(c * m / n) for m keys on n nodes, by weight. Keys come in order; each goes to the first node
clockwise that has room. Where a key ends depends on those that came before it, so this is a placement of a *set* of
keys: `place_many` is given all of them, and `place` says where a key goes in an empty system.

A change of the nodes changes everybody's capacity and passes keys on along the ring, also between nodes that stay: for
c = 1 + ε in expectation O(1 / ε²) times as many as must move, however many nodes there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import XXH3, Hasher, Hashes
from chord.lab.placement import Numbers
from chord.lab.schemes.ring import Ring

CAPACITY = 1.25


class BoundedRing(Ring):
    """The ring, where nobody takes more than `capacity` times its due of the keys that are placed together.

    `replicas` and `arcs` are those of the ring without bounds.

    Args:
        capacity: c, at least 1; 1.25 as published.
        vnodes: as of a ring; one point a node, as published.
    Source: Mirrokni, Thorup, Zadimoghaddam 2018 (SODA), Consistent hashing with bounded loads.
    """

    scheme = "ring-bounded"
    title = "ring, bounded loads"
    source = "Mirrokni et al. 2018"
    is_consistent = False

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        hasher: Hasher = XXH3,
        vnodes: int = 1,
        capacity: float = CAPACITY,
    ) -> None:
        if not capacity >= 1:
            raise ValueError("with a capacity below 1 there is no room for all keys")
        self.capacity = capacity
        super().__init__(nodes, weights=weights, hasher=hasher, vnodes=vnodes)

    @property
    def state_bytes(self) -> int:
        """The ring, and eight bytes for how many keys a node has."""
        return super().state_bytes + 8 * len(self._nodes)

    def room(self, keys: int) -> list[int]:
        """Return how many of so many keys each node takes: ceil(c * keys * w / W)."""
        total = sum(self._weights)
        return [math.ceil(self.capacity * keys * weight / total) for weight in self._weights]

    def shares(self) -> NDArray[np.float64] | None:
        """The keys decide, so there is nothing to say of hashes."""
        return None

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the node where each key goes, the keys coming in this order."""
        room, owners = self.room(len(hashes)), self._owners.tolist()
        onward = list(range(len(owners)))  # from a point to the next one whose owner may have room, as in union-find
        points_of: list[list[int]] = [[] for _ in room]
        for at, owner in enumerate(owners):
            points_of[owner].append(at)
        found: list[int] = []
        for at in self._following(hashes).tolist():
            while onward[at] != at:
                onward[at] = at = onward[onward[at]]
            owner = owners[at]
            found.append(owner)
            room[owner] -= 1
            if not room[owner]:
                for point in points_of[owner]:
                    onward[point] = (point + 1) % len(owners)
        return np.array(found, dtype=np.intp)

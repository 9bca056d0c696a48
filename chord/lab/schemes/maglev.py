"""Maglev: a table of M slots that the nodes fill in turns.

Each node takes free slots in the order of its own permutation. A lookup is one remainder and one read. Because the
nodes take turns, the slot counts of two nodes of the same weight differ by at most one.

A change builds a new table that is nearly the old one. Some slots move between nodes that stay: with a hundred slots
per node a few of them, with more slots fewer. Maglev was made for connections, not for data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import Hashes, mix_one
from chord.lab.placement import Common, Numbers, Placement, UnsupportedChange, first_distinct, require_ratio

SLOTS = 65_537


class Maglev(Placement):
    """Maglev hashing with a table of M slots, M a prime.

    Nodes take turns in the order of their names, so that all clients build the same table.

    Args:
        slots: M, a prime. A hundred slots per node or more keep the shares even and the changes small.

    Raises:
        ValueError: `slots` is not a prime, or less than 3 or than the number of nodes; see also `Placement`.

    Source: Eisenbud et al. 2016 (NSDI), section 3.4. Weights, by fewer turns for light nodes, as in Envoy.
    """

    scheme = "maglev"
    title = "Maglev"
    source = "Eisenbud et al. 2016"
    lookup_cost = "O(1)"
    memory_cost = "O(M)"
    has_weights = True
    is_consistent = False

    def __init__(self, nodes: Sequence[str], *, slots: int = SLOTS, **common: Unpack[Common]) -> None:
        if slots < max(3, len(nodes)) or any(slots % part == 0 for part in range(2, int(slots**0.5) + 1)):
            raise ValueError(f"the number of slots must be a prime, at least 3 and one per node, not {slots}")
        self.slots = slots
        super().__init__(nodes, **common)

    def permutation(self, node: str) -> Iterator[int]:
        """Yield all M slots, each once, in the order in which a node wants them."""
        seed = self.hasher.one(node.encode())
        at, skip = mix_one(seed, 1) % self.slots, mix_one(seed, 2) % (self.slots - 1) + 1
        for _ in range(self.slots):
            yield at
            at = (at + skip) % self.slots

    def _build(self) -> None:
        self._table = self._fill(self._nodes, self._weights)

    def _fill(self, nodes: Sequence[str], weights: Sequence[float]) -> NDArray[np.int32]:
        table, left = [-1] * self.slots, self.slots
        wishes = [self.permutation(node) for node in nodes]
        heaviest, credit = max(weights), [0.0] * len(nodes)
        order = sorted(range(len(nodes)), key=lambda number: nodes[number])
        while left:
            for number in order:
                credit[number] += weights[number] / heaviest
                if credit[number] < 1:
                    continue
                credit[number] -= 1
                slot = next(slot for slot in wishes[number] if table[slot] < 0)
                table[slot] = number
                left -= 1
                if not left:
                    break
        return np.array(table, dtype=np.int32)

    # -- placing --------------------------------------------------------------------------------

    @property
    def table(self) -> tuple[str, ...]:
        """The name of the node that has each slot."""
        return tuple(self._nodes[number] for number in self._table.tolist())

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 4 per slot, for its node's number."""
        return int(self._table.nbytes)

    def shares(self) -> NDArray[np.float64]:
        """Return for each node its share of the slots, and therefore of the hashes."""
        return np.bincount(self._table, minlength=len(self._nodes)) / self.slots

    def locate(self, point: int) -> int:
        """Return the number of the node that has a hash's slot."""
        return int(self._table[point % self.slots])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node that has its slot."""
        return self._table[(hashes % np.uint64(self.slots)).astype(np.intp)].astype(np.intp)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first `count` distinct node numbers, starting at the hash's slot."""
        return first_distinct((int(self._table[(point + step) % self.slots]) for step in range(self.slots)), count)

    # -- changes --------------------------------------------------------------------------------

    def grow(self, nodes: Sequence[str]) -> None:
        """Add several nodes, or none if an error is raised; fill the table only once.

        Raises:
            ValueError: as for `add`.
            UnsupportedChange: there are fewer slots than nodes.
        """
        self._check_newcomers(nodes)
        require_ratio([*self._weights, 1.0])
        self._require_slots(len(self._nodes) + len(nodes))
        self._table = self._fill([*self._nodes, *nodes], [*self._weights, *[1.0] * len(nodes)])
        self._admit(nodes)

    def _require_slots(self, nodes: int) -> None:
        if nodes > self.slots:
            raise UnsupportedChange(f"{self.scheme}: all {self.slots} slots have a node of their own; use more slots")

    def _add(self, node: str, weight: float) -> None:
        self._require_slots(len(self._nodes) + 1)
        self._table = self._fill([*self._nodes, node], [*self._weights, weight])

    def _remove(self, number: int) -> None:
        stay = [at for at in range(len(self._nodes)) if at != number]
        self._table = self._fill([self._nodes[at] for at in stay], [self._weights[at] for at in stay])

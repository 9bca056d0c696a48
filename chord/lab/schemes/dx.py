"""DxHash: each key has a random sequence of slots; the first slot in use wins.

A slot is a place for a node. The number of slots is a power of two and at least the number of nodes. One bit per slot
says whether it is in use. When a node leaves its slot, the slot's keys move on along their sequences. When a node takes
a slot, it gets the keys that used to pass that slot. The scheme is therefore consistent in any order of changes. A
lookup tries slots / n of them on average.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Unpack

import numpy as np

from chord.lab.hashing import Hashes
from chord.lab.placement import (
    Common,
    Numbers,
    Placement,
    UnsupportedChange,
    compact,
    first_distinct,
    in_chunks,
    replica_hash,
    replica_hashes,
)


class DxHash(Placement):
    """DxHash: the first slot in use, in a key's own sequence of slots.

    The sequence is mix(hash, 0), mix(hash, 1), …, modulo the number of slots. It runs through all 64-bit numbers before
    it repeats, so it always meets a slot in use. A new node takes the lowest free slot.

    The paper's doubling of the slots is left out. Half of all tries would then meet new, free slots and move on, and
    keys would move between old nodes.

    Args:
        capacity: largest number of nodes, rounded up to a power of two. None: twice the number of `nodes`.

    Raises:
        ValueError: `capacity` is less than the number of nodes; see also `Placement`.

    Source: Dong, Wang 2021 (arXiv:2107.07930), DxHash.
    """

    scheme = "dx"
    title = "DxHash"
    source = "Dong, Wang 2021"
    lookup_cost = "O(s/n)"
    memory_cost = "O(s)"
    has_names = False
    has_even_shares = True  # a try meets all slots equally often

    def __init__(self, nodes: Sequence[str], *, capacity: int | None = None, **common: Unpack[Common]) -> None:
        capacity = 2 * len(nodes) if capacity is None else capacity
        if capacity < len(nodes):
            raise ValueError(f"{len(nodes)} nodes need at least that capacity, not {capacity}")
        self.slots = 1 << max(0, capacity - 1).bit_length()
        super().__init__(nodes, **common)

    def _build(self) -> None:
        self._numbers = np.full(self.slots, -1, dtype=np.int32)
        self._numbers[: len(self._nodes)] = np.arange(len(self._nodes), dtype=np.int32)

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: per slot, a bit for its use, and 4 bytes for its node's number."""
        return (self.slots + 7) // 8 + 4 * self.slots

    def locate(self, point: int) -> int:
        """Return the node number of the first slot in use, along a hash's sequence."""
        return next(self._along(point))

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the node number of the first slot in use."""
        mask, tried = np.uint64(self.slots - 1), 0
        found: Numbers = self._numbers[hashes & mask].astype(np.intp)
        while len(lost := np.flatnonzero(found < 0)):
            tried += 1
            found[lost] = self._numbers[replica_hashes(hashes[lost], tried) & mask]
        return found

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first `count` distinct node numbers along a hash's slots."""
        return first_distinct(self._along(point), min(count, len(self._nodes)))

    def _along(self, point: int) -> Iterator[int]:
        """Yield the node numbers of the slots in use along a hash's endless sequence."""
        for tried in itertools.count():
            number = self._numbers[replica_hash(point, tried) & (self.slots - 1)]
            if number >= 0:
                yield int(number)

    def _add(self, node: str, weight: float) -> None:
        free = np.flatnonzero(self._numbers < 0)
        if not len(free):
            raise UnsupportedChange(
                f"{self.scheme}: all {self.slots} slots are taken; with more slots keys would move between old nodes"
            )
        self._numbers[free[0]] = len(self._nodes)

    def _remove(self, number: int) -> None:
        self._numbers[self._numbers == number] = -1
        compact(self._numbers, number)

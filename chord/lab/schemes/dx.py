"""DxHash: each key has an endless random sequence of slots, and lives in the first one that is taken.

The slots are a power of two, more than there are nodes; a bit for each says whether it is taken. A slot that becomes
free sends its keys on along their sequences, one that is taken stops those that used to pass: consistent in any order
of changes. A look-up tries slots / n of them on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import XXH3, Hasher, Hashes
from chord.lab.placement import CHUNK, Numbers, Placement, UnsupportedChange, compact, replica_hash, replica_hashes


class DxHash(Placement):
    """The first taken slot of the sequence mix(hash, 0), mix(hash, 1), …, modulo the number of slots.

    The sequence runs through all 64-bit numbers before it repeats, so it always meets a slot that is taken. A newcomer
    takes the lowest free slot. The paper's doubling of the slots is left out: half of all tries would then meet new
    and free slots and go on, and keys would move between old nodes.

    Args:
        capacity: how many nodes there can be, rounded up to a power of two; default: twice as many as there are.
    Source: Dong, Wang 2021 (arXiv:2107.07930), DxHash.
    """

    scheme = "dx"
    title = "DxHash"
    source = "Dong, Wang 2021"
    lookup_cost = "O(s/n)"
    memory_cost = "O(s)"
    has_names = False

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        hasher: Hasher = XXH3,
        capacity: int | None = None,
    ) -> None:
        capacity = 2 * len(nodes) if capacity is None else capacity
        if capacity < len(nodes):
            raise ValueError(f"{len(nodes)} nodes need a capacity of as many, not {capacity}")
        self.slots = 1 << max(0, capacity - 1).bit_length()
        super().__init__(nodes, weights=weights, hasher=hasher)

    def _build(self) -> None:
        self._numbers = np.full(self.slots, -1, dtype=np.int32)
        self._numbers[: len(self._nodes)] = np.arange(len(self._nodes), dtype=np.int32)

    @property
    def state_bytes(self) -> int:
        """A bit and four bytes for a slot: whether it is taken, and by whom."""
        return (self.slots + 7) // 8 + 4 * self.slots

    def shares(self) -> NDArray[np.float64]:
        """Return 1 / n for every node: each try meets all slots alike."""
        return np.full(len(self._nodes), 1 / len(self._nodes))

    def locate(self, point: int) -> int:
        """Return the node of the first taken slot."""
        tried, mask = 0, self.slots - 1
        while True:
            number = self._numbers[replica_hash(point, tried) & mask]
            if number >= 0:
                return int(number)
            tried += 1

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the first taken slots: those that have met one drop out."""
        found = np.empty(len(hashes), dtype=np.intp)
        mask = np.uint64(self.slots - 1)
        for start in range(0, len(hashes), CHUNK):
            chunk, numbers, tried = hashes[start : start + CHUNK], found[start : start + CHUNK], 0
            numbers[:] = self._numbers[chunk & mask]
            while len(lost := np.flatnonzero(numbers < 0)):
                tried += 1
                numbers[lost] = self._numbers[replica_hashes(chunk[lost], tried) & mask]
        return found

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the nodes of the taken slots along the sequence, each once."""
        found: dict[int, None] = {}
        count, tried = min(count, len(self._nodes)), 0
        while len(found) < count:
            number = int(self._numbers[replica_hash(point, tried) & (self.slots - 1)])
            if number >= 0:
                found[number] = None
            tried += 1
        return list(found)

    def _add(self, node: str, weight: float) -> None:
        free = np.flatnonzero(self._numbers < 0)
        if not len(free):
            raise UnsupportedChange(
                f"{self.scheme}: all {self.slots} slots are taken; with more of them keys would move between old nodes"
            )
        self._numbers[free[0]] = len(self._nodes)

    def _remove(self, number: int) -> None:
        self._numbers[self._numbers == number] = -1
        compact(self._numbers, number)

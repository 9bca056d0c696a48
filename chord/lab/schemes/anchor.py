"""AnchorHash: hash among all buckets there may ever be; from one that is gone, hash on among those that it left behind.

Four arrays of the size of the anchor set. A removed bucket remembers how many stayed when it went, and which one took
its place in the list of those that work, so a look-up can act out the removals it runs into, and no others. Even,
consistent under any removal, and in O(1) as long as the anchor set is not many times larger than the working one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from chord.lab.hashing import XXH3, Hasher, Hashes, mix, mix_one
from chord.lab.placement import CHUNK, Numbers, Placement, UnsupportedChange, compact


class AnchorHash(Placement):
    """Buckets 0 to capacity - 1, of which as many work as there are nodes.

    A newcomer is given the bucket that was removed last. The history decides, so all clients must see the same one.

    Args:
        capacity: how many nodes there can ever be; default: twice as many as there are.
    Source: Mendelson et al. 2021 (ToN), AnchorHash, algorithm 3: A, K, W, L as there, R the stack of the removed.
    """

    scheme = "anchor"
    title = "AnchorHash"
    source = "Mendelson et al. 2021"
    lookup_cost = "O((1 + ln(a/n))²)"
    memory_cost = "O(a)"
    has_names = has_distinct_replicas = False

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        hasher: Hasher = XXH3,
        capacity: int | None = None,
    ) -> None:
        self.capacity = 2 * len(nodes) if capacity is None else capacity
        if self.capacity < len(nodes):
            raise ValueError(f"{len(nodes)} nodes need a capacity of as many, not {self.capacity}")
        super().__init__(nodes, weights=weights, hasher=hasher)

    def _build(self) -> None:
        self._left = np.zeros(self.capacity, dtype=np.int64)  # A: how many stayed when a bucket went; 0: it works
        self._heir = np.arange(self.capacity)  # K: who took its place in the list
        self._working = np.arange(self.capacity)  # W: the list of those that work, then leftovers
        self._place = np.arange(self.capacity)  # L: where in that list a bucket is
        self._removed: list[int] = []  # R
        self._works = self.capacity  # N
        for bucket in range(self.capacity - 1, len(self._nodes) - 1, -1):
            self._retire(bucket)
        self._bucket_of = list(range(len(self._nodes)))
        self._number_of = np.full(self.capacity, -1, dtype=np.int32)
        self._number_of[: len(self._nodes)] = np.arange(len(self._nodes), dtype=np.int32)

    # -- placing --------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """Of a bucket: how many stayed when it went, its heir, its node, four bytes each; W and L serve changes."""
        return 12 * self.capacity

    def locate(self, point: int) -> int:
        """Return the node of the bucket where the hashing ends."""
        left, heir = self._left, self._heir
        bucket = point % self.capacity
        while stayed := int(left[bucket]):
            at = mix_one(point, bucket + 1) % stayed
            while left[at] >= stayed:  # it was gone as well by then: who had its place
                at = int(heir[at])
            bucket = at
        return int(self._number_of[bucket])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the buckets where the hashing ends: those that have met a working one drop out."""
        found = np.empty(len(hashes), dtype=np.intp)
        for start in range(0, len(hashes), CHUNK):
            found[start : start + CHUNK] = self._place_chunk(hashes[start : start + CHUNK])
        return found

    def _place_chunk(self, hashes: Hashes) -> Numbers:
        buckets = (hashes % np.uint64(self.capacity)).astype(np.intp)
        lost = np.flatnonzero(self._left[buckets])
        while len(lost):
            bucket = buckets[lost]
            stayed = self._left[bucket]
            mixed = mix(hashes[lost], (bucket + 1).astype(np.uint64))
            at = (mixed % stayed.astype(np.uint64)).astype(np.intp)
            while len(gone := np.flatnonzero(self._left[at] >= stayed)):
                at[gone] = self._heir[at[gone]]
            buckets[lost] = at
            lost = lost[self._left[at] > 0]
        return self._number_of[buckets].astype(np.intp)

    # -- changes --------------------------------------------------------------------------------

    def _add(self, node: str, weight: float) -> None:
        if not self._removed:
            raise UnsupportedChange(
                f"{self.scheme}: all {self.capacity} buckets of the anchor set have a node; "
                "a larger set means another hash for every key"
            )
        bucket = self._removed.pop()
        self._left[bucket] = 0
        self._place[self._working[self._works]] = self._works
        self._working[self._place[bucket]] = self._heir[bucket] = bucket
        self._works += 1
        self._bucket_of.append(bucket)
        self._number_of[bucket] = len(self._nodes)

    def _remove(self, number: int) -> None:
        bucket = self._bucket_of.pop(number)
        self._retire(bucket)
        self._number_of[bucket] = -1
        compact(self._number_of, number)

    def _retire(self, bucket: int) -> None:
        self._removed.append(bucket)
        self._works -= 1
        self._left[bucket] = self._works
        last = self._working[self._works]
        self._working[self._place[bucket]] = self._heir[bucket] = last
        self._place[last] = self._place[bucket]

"""AnchorHash: hash among all buckets of a fixed set, and rehash if one is removed.

A bucket is a place for a node. A hash first selects one of all buckets that can ever exist (the anchor set). If that
bucket is removed, the hash is hashed again among the buckets that were left when it was removed.

The state is four arrays of the size of the anchor set. A removed bucket stores how many buckets were left at its
removal, and which bucket took its place in the list of working ones. A lookup replays exactly the removals that it
meets. The scheme is even, and consistent under any removal. It takes O(1) if the anchor set is not many times larger
than the working set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from chord.lab.hashing import Hashes, mix, mix_one
from chord.lab.placement import Common, Numbers, Placement, UnsupportedChange, compact, in_chunks


class AnchorHash(Placement):
    """AnchorHash: buckets 0 to capacity - 1; as many are in use as there are nodes.

    A new node gets the bucket that was removed last. The history decides, so all clients must see the same history.

    Args:
        capacity: largest number of nodes there can ever be. None: twice the number of `nodes`.

    Raises:
        ValueError: `capacity` is less than the number of nodes; see also `Placement`.

    Source: Mendelson et al. 2021 (ToN), AnchorHash, algorithm 3. A, K, W and L are as there; R is the stack of removed
    buckets.
    """

    scheme = "anchor"
    title = "AnchorHash"
    source = "Mendelson et al. 2021"
    lookup_cost = "O((1 + ln(a/n))²)"
    memory_cost = "O(a)"
    has_names = has_distinct_replicas = False

    def __init__(self, nodes: Sequence[str], *, capacity: int | None = None, **common: Unpack[Common]) -> None:
        self.capacity = 2 * len(nodes) if capacity is None else capacity
        if self.capacity < len(nodes):
            raise ValueError(f"{len(nodes)} nodes need at least that capacity, not {self.capacity}")
        super().__init__(nodes, **common)

    def _build(self) -> None:
        self._left = np.zeros(self.capacity, dtype=np.int64)  # A: buckets left at a bucket's removal; 0: it works
        self._heir = np.arange(self.capacity)  # K: the bucket that took its place in the list
        self._working = np.arange(self.capacity)  # W: the list of working buckets, then unused entries
        self._place = np.arange(self.capacity)  # L: the position of a bucket in that list
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
        """Bytes that a lookup needs: 12 per bucket.

        They are for the number of buckets left at its removal, for the bucket in its place, and for its node.
        """
        return 12 * self.capacity

    def locate(self, point: int) -> int:
        """Return the node number of the bucket in use at which the rehashing ends."""
        left, heir = self._left, self._heir
        bucket = point % self.capacity
        while stayed := int(left[bucket]):
            at = mix_one(point, bucket + 1) % stayed
            while left[at] >= stayed:  # this bucket was removed even earlier: take the one in its place
                at = int(heir[at])
            bucket = at
        return int(self._number_of[bucket])

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the node number of the bucket where rehashing ends."""
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
                "a larger set would place every key anew"
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

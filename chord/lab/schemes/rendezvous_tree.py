"""Hierarchical rendezvous: branches of a tree bid, so a lookup makes few bids.

A tree with `fanout`**`levels` clusters of nodes as its leaves is fixed once. It is the skeleton. A lookup walks down
from the root. At each fork it takes the branch with the highest bid among those that contain a node. In the last
cluster it takes the node with the highest bid. A lookup makes fanout * levels + (nodes per cluster) bids instead of n.

Forks share keys evenly among branches, not among nodes, so each node of a larger cluster gets less. Clusters should
therefore hold several nodes. If they hold far too many, rebuild the skeleton, which moves all keys. A lookup is O(log
n) in the number of nodes the skeleton was built for.

The cluster of a node depends on the order in which nodes came, so all clients must see the same history. The place in
the skeleton decides where keys live, so a new node can take over the place of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import GOLDEN, MASK, Hashes, mix, mix_one
from chord.lab.placement import Common, Numbers, Placement, compact, in_chunks

FANOUT = 4
CLUSTER = 4


class RendezvousTree(Placement):
    """Hierarchical rendezvous: a fixed tree with clusters of nodes as its leaves.

    A new node joins the smallest cluster, the first one of several.

    Args:
        fanout: branches of a fork, at least 2.
        levels: forks above a cluster. None: the most that leave four nodes or more per cluster, or 0.

    Raises:
        ValueError: `fanout` is less than 2, or `levels` is negative; see also `Placement`.

    Source: Yao, Ravishankar, Tripathi 2001 (UC Riverside), Hash-based virtual hierarchies.
    """

    scheme = "rendezvous-tree"
    title = "rendezvous, hierarchical"
    source = "Yao et al. 2001"
    lookup_cost = "O(log n)"
    memory_cost = "O(n)"
    has_names = False

    def __init__(
        self, nodes: Sequence[str], *, fanout: int = FANOUT, levels: int | None = None, **common: Unpack[Common]
    ) -> None:
        if fanout < 2 or (levels is not None and levels < 0):
            raise ValueError("a fork needs at least two branches, and the number of levels must not be negative")
        self.fanout = fanout
        if levels is None:
            levels = 0
            while len(nodes) >= CLUSTER * fanout ** (levels + 1):
                levels += 1
        self.levels = levels
        super().__init__(nodes, **common)

    def _build(self) -> None:
        clusters = self.fanout**self.levels
        self._clusters = [list(range(first, len(self._nodes), clusters)) for first in range(clusters)]
        self._seeds = [self.hasher.one(node.encode()) * GOLDEN & MASK for node in self._nodes]
        self._branch_seeds = [
            [mix_one(branch, level + 1) for branch in range(self.fanout ** (level + 1))] for level in range(self.levels)
        ]
        self._index()

    def _index(self) -> None:
        """Build the lookup tables: branches that contain a node, nodes by cluster."""
        alive = np.array([bool(cluster) for cluster in self._clusters])
        levels = []
        for _ in range(self.levels):
            levels.append(alive)
            alive = np.logical_or.reduce(alive.reshape(-1, self.fanout), axis=1)
        self._alive = levels[::-1]
        self._is_alive: list[list[bool]] = [level.tolist() for level in self._alive]
        table = np.full((len(self._clusters), max(map(len, self._clusters))), -1, dtype=np.int32)
        for at, cluster in enumerate(self._clusters):
            table[at, : len(cluster)] = cluster
        self._table = table

    # -- placing --------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: a bit and 8 bytes per branch, 12 bytes per node."""
        branches = sum(len(level) for level in self._alive)
        return 8 * branches + (branches + 7) // 8 + 12 * len(self._nodes)

    @property
    def bids(self) -> int:
        """Largest number of bids that one lookup makes."""
        return self.fanout * self.levels + self._table.shape[1]

    def shares(self) -> NDArray[np.float64]:
        """Return for each node its share of all hashes.

        Each fork divides its share evenly among the branches that contain a node, and a cluster among its nodes.
        """
        parts = np.ones(1)
        for alive in self._alive:
            branches = alive.reshape(-1, self.fanout)
            living = np.maximum(branches.sum(axis=1, keepdims=True), 1)
            parts = (parts[:, None] * branches / living).reshape(-1)
        shares = np.zeros(len(self._nodes))
        for part, cluster in zip(parts.tolist(), self._clusters, strict=True):
            for number in cluster:
                shares[number] = part / len(cluster)
        return shares

    def locate(self, point: int) -> int:
        """Return the number of the node at the end of a hash's walk down the tree."""
        at = 0
        for seeds, alive in zip(self._branch_seeds, self._is_alive, strict=True):
            branches = range(at * self.fanout, (at + 1) * self.fanout)
            at = max((b for b in branches if alive[b]), key=lambda branch: mix_one(point + seeds[branch]))
        return max(self._clusters[at], key=lambda number: mix_one(point + self._seeds[number]))

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node at the end of its walk."""
        at = np.zeros(len(hashes), dtype=np.intp)
        for numbers, alive in zip(self._branch_seeds, self._alive, strict=True):
            seeds, first = np.array(numbers, dtype=np.uint64), at * self.fanout
            best, highest = first.copy(), np.zeros(len(hashes), dtype=np.uint64)
            for branch in range(self.fanout):
                bids = np.where(alive[first + branch], mix(hashes + seeds[first + branch]), np.uint64(0))
                np.copyto(best, first + branch, where=bids > highest)
                np.maximum(highest, bids, out=highest)
            at = best
        seeds = np.array([*self._seeds, 0], dtype=np.uint64)  # the last seed is for empty places, number -1
        winner, highest = np.full(len(hashes), -1, dtype=np.intp), np.zeros(len(hashes), dtype=np.uint64)
        for place in range(self._table.shape[1]):
            numbers_there = self._table[at, place]
            bids = np.where(numbers_there >= 0, mix(hashes + seeds[numbers_there]), np.uint64(0))
            np.copyto(winner, numbers_there, where=bids > highest)
            np.maximum(highest, bids, out=highest)
        return winner

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the node numbers that repeated lookups of a hash find, in order.

        Each node found is left out of the next lookup. If there are fewer nodes, all of them are returned.
        """
        return list(islice(self._walk(point, 0, 0), count))

    def _walk(self, point: int, level: int, at: int) -> Iterator[int]:
        """Yield the node numbers under a branch, the best for a hash first.

        All nodes of a sub-branch with a higher bid precede those of one with a lower bid.

        Args:
            point: the hash.
            level: depth of the branch; 0 is the root.
            at: index of the branch at this depth.
        """
        if level == self.levels:
            yield from sorted(self._clusters[at], key=lambda number: -mix_one(point + self._seeds[number]))
            return
        branches, seeds = range(at * self.fanout, (at + 1) * self.fanout), self._branch_seeds[level]
        for branch in sorted(branches, key=lambda b: -mix_one(point + seeds[b])):
            yield from self._walk(point, level + 1, branch)

    # -- changes --------------------------------------------------------------------------------

    def _add(self, node: str, weight: float) -> None:
        self._seat(node)
        self._index()

    def _add_all(self, nodes: Sequence[str]) -> None:
        for node in nodes:
            self._seat(node)
            self._admit([node])
        self._index()

    def _seat(self, node: str) -> None:
        smallest = min(self._clusters, key=len)
        smallest.append(len(self._nodes))
        self._seeds.append(self.hasher.one(node.encode()) * GOLDEN & MASK)

    def _remove(self, number: int) -> None:
        for cluster in self._clusters:
            if number in cluster:
                cluster.remove(number)
            numbers = np.array(cluster, dtype=np.intp)
            compact(numbers, number)
            cluster[:] = numbers.tolist()
        del self._seeds[number]
        self._index()

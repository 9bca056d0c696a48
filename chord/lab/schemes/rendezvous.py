"""Rendezvous, or highest random weight: every node bids, and the highest bid wins.

A node's bid is a hash of the key and the node's name. Only the names are kept, and there is nothing to build. The
scheme is even, and consistent, because a new node only ever outbids others. The price is one bid per node in every
lookup.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import GOLDEN, MASK, Hashes, mix, mix_one, units
from chord.lab.placement import CHUNK, Numbers, Placement, in_chunks


class Rendezvous(Placement):
    """Rendezvous hashing: the node with the highest hash of key and node name wins.

    The published form hashes the concatenation of key and name. Mixing their hashes instead is as random, and works on
    a million keys at once.

    Source: Thaler, Ravishankar 1996 (UM TR), 1998 (ToN), A name-based mapping scheme for rendezvous.
    """

    scheme = "rendezvous"
    title = "rendezvous"
    source = "Thaler, Ravishankar 1996"
    lookup_cost = memory_cost = "O(n)"
    has_even_shares = True  # all bids follow the same law

    def _build(self) -> None:
        self._seeds = [self._seed(node) for node in self._nodes]
        self._array: Hashes | None = None

    def _seed(self, node: str) -> int:
        return (self.hasher.one(node.encode()) * GOLDEN) & MASK  # as `mix` scales a salt

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 8 per node, for the hash of its name."""
        return 8 * len(self._seeds)

    def locate(self, point: int) -> int:
        """Return the number of the node with the highest bid for a hash."""
        bids = [mix_one(point + seed) for seed in self._seeds]
        return bids.index(max(bids))

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node with the highest bid."""
        found = np.zeros(len(hashes), dtype=np.intp)
        least = self._costs(hashes, 0)
        for number in range(1, len(self._seeds)):
            costs = self._costs(hashes, number)
            np.copyto(found, number, where=costs < least)
            np.minimum(least, costs, out=least)
        return found

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the numbers of the `count` highest bidders, the highest first.

        If there are fewer nodes, all of them are returned.
        """
        return heapq.nlargest(count, range(len(self._seeds)), key=lambda number: mix_one(point + self._seeds[number]))

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return for each hash the numbers of the `count` highest bidders, in order.

        The shape is (k, count), or (k, number of nodes) if there are fewer nodes.
        """
        self._check_copies(count)
        nodes, each = len(self._seeds), max(1, CHUNK // len(self._seeds))
        count = min(count, nodes)
        found = np.empty((len(hashes), count), dtype=np.intp)
        for start in range(0, len(hashes), each):
            chunk = hashes[start : start + each]
            costs = self._costs(chunk[:, None], slice(None))
            first = np.argpartition(costs, count - 1, axis=1)[:, :count]
            order = np.argsort(np.take_along_axis(costs, first, axis=1), axis=1)
            found[start : start + each] = np.take_along_axis(first, order, axis=1)
        return found

    def _costs(self, hashes: Hashes, numbers: int | slice) -> NDArray[Any]:
        """Return a cost for each hash and node; the node with the lowest cost wins.

        Here a cost is an inverted bid.

        Args:
            hashes: shape (k,) for one node, (k, 1) for several.
            numbers: the node, or a slice of nodes.

        Returns:
            shape (k,), or (k, number of nodes).
        """
        bids = self._bids(hashes, numbers)
        return np.invert(bids, out=bids)

    def _bids(self, hashes: Hashes, numbers: int | slice) -> Hashes:
        if self._array is None:
            self._array = np.array(self._seeds, dtype=np.uint64)
        return mix(hashes + self._array[numbers])

    def _add(self, node: str, weight: float) -> None:
        self._seeds.append(self._seed(node))
        self._array = None

    def _remove(self, number: int) -> None:
        del self._seeds[number]
        self._array = None


class WeightedRendezvous(Rendezvous):
    """Rendezvous hashing with weights: nodes win in proportion to their weights.

    The lowest time wins. A node's time is -ln(u) / w for its bid u between 0 and 1, which is exponential with its
    weight w as the rate. Node i is first with probability w_i / W, with W the sum of the weights, so the shares are
    exact. A change of one weight moves keys only to or from that node.

    Source: Schindelhauer, Schomaker 2005 (SPAA), Weighted distributed hash tables: the logarithmic method.
    """

    scheme = "rendezvous-weighted"
    title = "rendezvous, weighted"
    source = "Schindelhauer, Schomaker 2005"
    has_weights = True

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 16 per node, for its name's hash and its weight."""
        return 16 * len(self._seeds)

    def shares(self) -> NDArray[np.float64]:
        """Return for each node its exact share of all hashes: its weight over the sum."""
        weights = np.array(self._weights)
        return np.asarray(weights / weights.sum())

    def locate(self, point: int) -> int:
        """Return the number of the node with the lowest time for a hash.

        The time of a node is -ln(u) / w for its bid u, between 0 and 1, and its weight w.
        """
        return int(np.argmin(self._times_of(point)))

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the numbers of the `count` nodes with the lowest times, the lowest first.

        The times are those of `locate`. If there are fewer nodes, all of them are returned.
        """
        first: list[int] = np.argsort(self._times_of(point), kind="stable")[:count].tolist()
        return first

    def _costs(self, hashes: Hashes, numbers: int | slice) -> NDArray[np.float64]:
        times = units(self._bids(hashes, numbers))
        np.log(times, out=times)
        times /= -np.array(self._weights[numbers])
        return times

    def _times_of(self, point: int) -> NDArray[np.float64]:
        """Return the time of each node for one hash; the node with the lowest time wins.

        NumPy computes it here too, because its logarithm differs from libm's in the last bit.
        """
        bids = mix(np.array(self._seeds, dtype=np.uint64) + np.uint64(point))
        return np.asarray(np.log(units(bids)) / -np.array(self._weights))

"""Multi-probe: one point a node, several probes of the key, and the probe that has the shortest way to a node wins.

Long gaps between points lose against short ones, so loads even out without vnodes: O(n) memory, k times the look-up.
With k probes the fullest node has k / (k - 1) times the mean: 21 probes for 1.05. (The third text has 0.5 % for
some twenty probes, a slip for 5 %, and calls it the standard deviation; it is the peak.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import MASK, SPAN, XXH3, Hasher, Hashes
from chord.lab.placement import CHUNK, Numbers, replica_hash, replica_hashes
from chord.lab.schemes.ring import Ring

PROBES = 21


class MultiProbe(Ring):
    """The owner of the point that follows one of the key's probes most closely.

    A weight is a number of points, as on a ring: a point wins as many keys as any other.

    Args:
        probes: hashes of a key; the first is the hash itself.
        vnodes: points of a node of weight 1: one, as published; more only make fractions of weights finer.
    Source: Appleton, O'Reilly 2015 (arXiv:1505.00062), Multi-probe consistent hashing.
    """

    scheme = "multi-probe"
    title = "multi-probe"
    source = "Appleton, O'Reilly 2015"
    lookup_cost = "O(k log n)"
    memory_cost = "O(n)"

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        hasher: Hasher = XXH3,
        vnodes: int = 1,
        probes: int = PROBES,
    ) -> None:
        if probes < 1:
            raise ValueError("a key is probed at least once")
        self.probes = probes
        super().__init__(nodes, weights=weights, hasher=hasher, vnodes=vnodes)

    def shares(self) -> NDArray[np.float64] | None:
        """Return the expected share of each node over independent probes.

        A probe is at distance x or more from its point with probability S(x); the winner of k lands in a gap of length
        g with density k S(x)^(k - 1) for x < g. S is linear between the lengths of gaps, so the integral is a sum.
        """
        count, each = len(self._points), np.asarray((self._points - np.roll(self._points, 1)) / SPAN)
        if count == 1:
            return np.ones(1)
        order = np.argsort(each)
        widths = np.diff(each[order], prepend=0.0)
        wider = np.arange(count, 0, -1)  # gaps at least so long
        survival = np.concatenate([[1.0], np.maximum(1.0 - np.cumsum(widths * wider), 0.0)])
        won = np.cumsum((survival[:-1] ** self.probes - survival[1:] ** self.probes) / wider)
        shares = np.zeros(len(self._nodes))
        np.add.at(shares, self._owners[order], won)
        return shares

    def locate(self, point: int) -> int:
        """Return the owner of the point closest behind a probe."""
        points, owners = self._lists()
        closest, found = MASK + 1, 0
        for probe in range(self.probes):
            start = replica_hash(point, probe)
            at = bisect_left(points, start) % len(points)
            distance = (points[at] - start) & MASK
            if distance < closest:
                closest, found = distance, owners[at]
        return found

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the owners of the points closest behind the probes."""
        found = np.empty(len(hashes), dtype=np.intp)
        for start in range(0, len(hashes), CHUNK):
            chunk = hashes[start : start + CHUNK]
            at = self._following(chunk)
            closest = self._points[at] - chunk  # modulo 2**64
            for probe in range(1, self.probes):
                probed = replica_hashes(chunk, probe)
                there = self._following(probed)
                distance = self._points[there] - probed
                np.copyto(at, there, where=distance < closest)
                np.minimum(closest, distance, out=closest)
            found[start : start + CHUNK] = self._owners[at]
        return found

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the owners of the closest points behind any of the probes, each once."""
        points, owners = self._lists()
        met: list[tuple[int, int]] = []
        for probe in range(self.probes):
            start = replica_hash(point, probe)
            at, seen = bisect_left(points, start), set[int]()
            for step in range(len(points)):
                if len(seen) == count:
                    break
                there = (at + step) % len(points)
                if owners[there] not in seen:
                    seen.add(owners[there])
                    met.append(((points[there] - start) & MASK, owners[there]))
        return list(dict.fromkeys(owner for _, owner in sorted(met)))[:count]

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return the owners of the closest points behind the probes of each hash; shape (k, count)."""
        self._check_copies(count)
        count = min(count, len(self._nodes))
        found = [self.locate_replicas(point, count) for point in hashes.tolist()]
        return np.array(found, dtype=np.intp).reshape(len(hashes), count)

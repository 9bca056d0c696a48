"""Multi-probe: one point per node, several probes per key, the closest probe wins.

A probe is a hash of the key; its distance is the way to the next point clockwise. Long gaps between points lose against
short ones, so loads even out without vnodes. Memory is O(n), and a lookup with k probes takes k times as long.

With k probes the fullest node has k / (k - 1) times the mean: 1.05 with 21 probes. The anonymous article on consistent
hashing says 0.5 % for about twenty probes, a slip for 5 %. It calls that the standard deviation, but it is the peak.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import MASK, SPAN, Hashes
from chord.lab.placement import Common, Numbers, Placement, in_chunks, replica_hash, replica_hashes
from chord.lab.schemes.ring import RingScheme

PROBES = 21


class MultiProbe(RingScheme):
    """Multi-probe: the node with a point closest after one of the key's probes.

    A weight is a number of points, as on a ring, because a point wins as many keys as any other.

    Args:
        probes: hashes per key, at least 1; the first is the hash itself.
        vnodes: points of a node of weight 1. The paper uses one; more only make fractions of weights finer.

    Raises:
        ValueError: `probes` is less than 1; see also `RingScheme`.

    Source: Appleton, O'Reilly 2015 (arXiv:1505.00062), Multi-probe consistent hashing.
    """

    scheme = "multi-probe"
    title = "multi-probe"
    source = "Appleton, O'Reilly 2015"
    lookup_cost = "O(k log n)"
    memory_cost = "O(n)"

    def __init__(
        self, nodes: Sequence[str], *, vnodes: int = 1, probes: int = PROBES, **common: Unpack[Common]
    ) -> None:
        if probes < 1:
            raise ValueError("a key is probed at least once")
        self.probes = probes
        super().__init__(nodes, vnodes=vnodes, **common)

    def shares(self) -> NDArray[np.float64] | None:
        """Return for each node its expected share of all hashes; never None.

        The probes are taken as independent. A probe is at distance x or more from its point with probability S(x). The
        winner of k probes lands in a gap of length g with density k S(x)^(k - 1) for x < g. S is linear between the
        lengths of gaps, so the integral is a sum.
        """
        count, each = len(self._points), np.asarray((self._points - np.roll(self._points, 1)) / SPAN)
        if count == 1:
            return np.ones(1)
        order = np.argsort(each)
        widths = np.diff(each[order], prepend=0.0)
        wider = np.arange(count, 0, -1)  # number of gaps at least as long
        survival = np.concatenate([[1.0], np.maximum(1.0 - np.cumsum(widths * wider), 0.0)])
        won = np.cumsum((survival[:-1] ** self.probes - survival[1:] ** self.probes) / wider)
        shares = np.zeros(len(self._nodes))
        np.add.at(shares, self._owners[order], won)
        return shares

    def locate(self, point: int) -> int:
        """Return the number of the node with the point closest after a probe of a hash."""
        points, owners = self._lists()
        closest, found = MASK + 1, 0
        for probe in range(self.probes):
            start = replica_hash(point, probe)
            at = bisect_left(points, start) % len(points)
            distance = (points[at] - start) & MASK
            if distance < closest:
                closest, found = distance, owners[at]
        return found

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node closest after one of its probes."""
        at = self._following(hashes)
        closest = self._points[at] - hashes  # modulo 2**64
        for probe in range(1, self.probes):
            probed = replica_hashes(hashes, probe)
            there = self._following(probed)
            distance = self._points[there] - probed
            np.copyto(at, there, where=distance < closest)
            np.minimum(closest, distance, out=closest)
        return self._owners[at].astype(np.intp)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the numbers of the `count` nodes closest after any probe, in this order."""
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
        """Return for each hash the `count` distinct node numbers closest after a probe.

        The shape is (k, count), or (k, number of nodes) if there are fewer nodes.
        """
        return Placement.replicas_many(self, hashes, count)

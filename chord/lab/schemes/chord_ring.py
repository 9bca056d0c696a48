"""The Chord ring of this project, with ids, arcs and replica sets of a real node.

The other schemes are built from descriptions; this one is built from the code of a node. `vnode_id` gives the points of
a node. The `PreferenceList` of the vnode with the key in its `Ownership` gives the replica set. A single owner is
looked up among the sorted ids. `locate_replicas` asserts that the `Ownership` agrees, and the tests check it for every
key. The scheme must equal the ring with vnodes under SHA-1, key for key.

The circle has 64 bits here (`chord node --bits 64`), so that ids fit an array. A ring of 160 bits agrees with it unless
two of its ids have the same first 64 bits.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from chord.config import RingConstants
from chord.ids import Circle, Point, vnode_id
from chord.lab.hashing import HASH_BITS, SHA1, Hashes
from chord.lab.placement import Numbers, Placement
from chord.lab.schemes.ring import Points, RingScheme, points_of_weight
from chord.ring.ownership import Ownership
from chord.ring.pointers import RingState
from chord.ring.preference_list import PreferenceList
from chord.wire.messages import Contact

CIRCLE = Circle(HASH_BITS)


class ChordRing(RingScheme):
    """An Ideal ring (all pointers exact) of this project's nodes.

    Args:
        nodes: addresses, `host:port`.
        vnodes: vnodes of a node of weight 1, at least 1. A node of weight w has max(1, round(vnodes * w)), as its
            operator would configure.

    Source: Stoica et al. 2001, section 4.2; DeCandia et al. 2007, section 4.3 (preference lists).
    """

    scheme = "chord"
    title = "Chord, this project"
    source = "Stoica et al. 2001"
    lookup_cost = "O(log N) hops"
    memory_cost = "O(log N) a vnode"

    def __init__(self, nodes: Sequence[str], *, weights: Mapping[str, float] | None = None, vnodes: int = 1) -> None:
        super().__init__(nodes, weights=weights, vnodes=vnodes, hasher=SHA1)

    def points_of(self, node: str, weight: float = 1.0) -> Points:
        """Return the ids of a node's vnodes, the first vnode first; shape (vnodes,)."""
        count = points_of_weight(self.vnodes, weight)
        return np.array([vnode_id(CIRCLE, node, index) for index in range(count)], dtype=np.uint64)

    @property
    def state_bytes(self) -> int:
        """Bytes of one node's routing state: 16 per entry, for each of its vnodes.

        The entries are a predecessor, a successor list and log2 N fingers. A lookup then takes ½ log2 N hops. A node
        that knew all vnodes would hold 12 bytes per vnode, as on a ring.
        """
        fingers = max(1, (len(self._points) - 1).bit_length())
        return 16 * self.vnodes * (1 + min(len(self._nodes), RingConstants().successors) + fingers)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the node numbers of a hash's replica set.

        `PreferenceList` computes the set, as it does at the owner. `count` is N.
        """
        points, _ = self._lists()
        at = bisect_left(points, point) % len(points)
        me, before = self._contact(at), self._contact(at - 1)
        ring = RingState(me, CIRCLE, successors=len(points), reach=count + 1)
        ring.resume(before, self._behind(at, count))
        own = Ownership(me)
        own.resume(before.id, (before,))
        key = CIRCLE.point(point)
        assert own.is_owner(key)
        members = PreferenceList(me, CIRCLE).replica_set(key, ring, own, count, 0).members
        return [self._nodes.index(place.contact.address) for place in members]

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return the node numbers of each hash's replica set.

        The shape is (k, count), or (k, number of nodes) if there are fewer nodes.
        """
        return Placement.replicas_many(self, hashes, count)

    def _contact(self, at: int) -> Contact:
        points, owners = self._lists()
        return Contact(Point(points[at]), self._nodes[owners[at]])

    def _behind(self, at: int, count: int) -> list[Contact]:
        """Return the successor list of a vnode, cut as soon as it names `count` nodes.

        It has at least one entry. A vnode that is alone is its own successor.

        Args:
            at: index of the vnode in the sorted points.
            count: number of different nodes in the list, with the vnode's own node.
        """
        points, owners = self._lists()
        found, met = list[Contact](), {owners[at]}
        for step in range(1, len(points)):
            if len(met) >= count and found:
                break
            there = (at + step) % len(points)
            found.append(self._contact(there))
            met.add(owners[there])
        return found or [self._contact(at)]

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
from numpy.typing import NDArray

from chord.config import RingConstants
from chord.ids import Circle, vnode_id
from chord.lab.hashing import HASH_BITS, SHA1, SPAN, Hashes
from chord.lab.placement import Numbers, Placement
from chord.lab.schemes.ring import points_of_weight
from chord.ring.ownership import Ownership
from chord.ring.pointers import RingState
from chord.ring.preference_list import PreferenceList
from chord.wire.messages import Contact

CIRCLE = Circle(HASH_BITS)


class ChordRing(Placement):
    """An Ideal ring of this project with `vnodes` vnodes per unit of weight.

    Args:
        nodes: addresses, `host:port`.
        vnodes: vnodes of a node of weight 1, at least 1. A node of weight w has max(1, round(vnodes * w)), as its
            operator would configure.

    Raises:
        ValueError: as for every placement, or two vnodes have the same id.

    Source: Stoica et al. 2001, section 4.2; DeCandia et al. 2007, section 4.3 (preference lists).
    """

    scheme = "chord"
    title = "Chord, this project"
    source = "Stoica et al. 2001"
    lookup_cost = "O(log N) hops"
    memory_cost = "O(log N) a vnode"
    has_weights = _adds_at_once = True

    def __init__(self, nodes: Sequence[str], *, weights: Mapping[str, float] | None = None, vnodes: int = 1) -> None:
        if vnodes < 1:
            raise ValueError("a node has at least one vnode")
        self.vnodes = vnodes
        super().__init__(nodes, weights=weights, hasher=SHA1)

    def _build(self) -> None:
        self._contacts: list[Contact] = []
        for node, weight in zip(self._nodes, self._weights, strict=True):
            self._contacts += self._vnodes(node, weight)
        self._settle()

    def _vnodes(self, node: str, weight: float) -> list[Contact]:
        return [Contact(vnode_id(CIRCLE, node, index), node) for index in range(points_of_weight(self.vnodes, weight))]

    def _settle(self) -> None:
        self._contacts.sort(key=lambda contact: contact.id)
        self._ids = [contact.id for contact in self._contacts]
        if len(set(self._ids)) < len(self._ids):
            raise ValueError("two vnodes have the same id")
        self._number_of = {node: number for number, node in enumerate(self._nodes)}
        self._points = np.array(self._ids, dtype=np.uint64)
        self._owners = np.array([self._number_of[contact.address] for contact in self._contacts], dtype=np.int32)

    # -- placing --------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """State of one node: per vnode, 16 bytes for each entry of its routing state.

        The entries are a predecessor, a successor list and log2 N fingers. A look-up then takes ½ log2 N hops. A node
        that knew all vnodes would hold 12 bytes per vnode, as on a ring.
        """
        fingers = max(1, (len(self._ids) - 1).bit_length())
        return 16 * self.vnodes * (1 + min(len(self._nodes), RingConstants().successors) + fingers)

    def shares(self) -> NDArray[np.float64]:
        """Return the share of the circle of each node: the lengths of its vnodes' arcs."""
        shares = np.zeros(len(self._nodes))
        for at, contact in enumerate(self._contacts):
            length = CIRCLE.distance(self._contacts[at - 1].id, contact.id) or SPAN
            shares[self._number_of[contact.address]] += CIRCLE.fraction(length)
        return shares

    def locate(self, point: int) -> int:
        """Return the node of the vnode that owns a hash."""
        at = bisect_left(self._ids, point) % len(self._ids)
        return self._number_of[self._contacts[at].address]

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the vnodes that own the hashes."""
        at = np.searchsorted(self._points, hashes)
        at[at == len(self._points)] = 0
        return self._owners[at].astype(np.intp)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the nodes of a hash's replica set, as the owner's `PreferenceList` names them.

        The owner's successor list is made long enough to name all of them.
        """
        at = bisect_left(self._ids, point) % len(self._ids)
        me, others = self._contacts[at], self._following(at, count)
        ring = RingState(me, CIRCLE, successors=len(self._ids), reach=count + 1)
        ring.resume(self._contacts[at - 1], others)
        own = Ownership(me)
        own.resume(self._contacts[at - 1].id, (self._contacts[at - 1],))
        key = CIRCLE.point(point)
        assert own.is_owner(key)
        members = PreferenceList(me, CIRCLE).replica_set(key, ring, own, count, 0).members
        return [self._number_of[place.contact.address] for place in members]

    def _following(self, at: int, count: int) -> list[Contact]:
        """Return the vnodes after a position until `count` nodes are among them.

        A vnode that is alone follows itself.
        """
        found, met = list[Contact](), {self._contacts[at].address}
        for step in range(1, len(self._contacts)):
            if len(met) >= count and found:
                break
            found.append(self._contacts[(at + step) % len(self._contacts)])
            met.add(found[-1].address)
        return found or [self._contacts[at]]

    # -- changes --------------------------------------------------------------------------------

    def add(self, node: str, weight: float = 1.0) -> None:
        """Add a node with all its vnodes."""
        super().add(node, weight)
        self._settle()

    def remove(self, node: str) -> None:
        """Remove a node with all its vnodes."""
        super().remove(node)
        self._settle()

    def _add(self, node: str, weight: float) -> None:
        self._join(self._vnodes(node, weight))

    def _add_all(self, nodes: Sequence[str]) -> None:
        self._join([contact for node in nodes for contact in self._vnodes(node, 1.0)])
        self._nodes += nodes
        self._weights += [1.0] * len(nodes)
        self._settle()

    def _join(self, new: list[Contact]) -> None:
        ids = {contact.id for contact in new}
        if len(ids) < len(new) or not ids.isdisjoint(self._ids):
            raise ValueError("two vnodes have the same id")
        self._contacts += new

    def _remove(self, number: int) -> None:
        self._contacts = [contact for contact in self._contacts if contact.address != self._nodes[number]]

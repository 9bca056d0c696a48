"""An Ideal ring at once: every node is put in its place instead of joining.

Ten thousand joins, one after another through the same few owners, would cost more than the measurement after them. A
placed node differs from an ordinary node only in its first step. Instead of asking to join, it takes the pointers, the
fingers and the arc that it would have in the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from chord.config import NodeConfig, RingConstants
from chord.ids import Arc, Point
from chord.node import Node
from chord.node.services import VnodeServices
from chord.node.world import World
from chord.ring.context import NodeContext
from chord.ring.members import Members
from chord.ring.pointers import ENTRIES_PER_SUCCESSOR_MAX
from chord.ring.vnode import Vnode
from chord.store.identity import Kept
from chord.wire.messages import Contact, MemberEntry

SETTLED_ROUNDS_PER_SUCCESSOR = 3  # `invariants.sufficient_principals` counts a member after them


class PrebuiltPlacement:
    """The Ideal ring of a set of vnodes.

    Args:
        contacts: all vnodes of the ring, in any order.
        constants: the constants of the ring.
        ring_id: the id of the ring, sixteen bytes. Placed nodes do not learn it by joining.
    """

    def __init__(self, contacts: Iterable[Contact], constants: RingConstants, ring_id: bytes) -> None:
        self.ring_id = ring_id
        self._constants = constants
        self._members: Members | None = None
        self._contacts = sorted(contacts, key=lambda contact: contact.id)
        self._ids = [contact.id for contact in self._contacts]

    def successor(self, point: int) -> Contact:
        """Return the first vnode at a point or clockwise behind it."""
        return self._contacts[bisect_left(self._ids, point) % len(self._ids)]

    def settle(self, vnode: Vnode) -> None:
        """Give a new vnode its pointers, fingers and arc, and make it a member."""
        at = bisect_left(self._ids, vnode.id)
        predecessor = self._contacts[at - 1]
        vnode.host.tell(vnode.ring.resume(predecessor, self._following(at)))
        vnode.host.tell(vnode.ownership.resume(predecessor.id, (predecessor,)))
        nothing_yet = Arc(vnode.id, vnode.id)  # like a founder, it knows all writes there ever were
        vnode.preference_list.note_in_sync(vnode.id, nothing_yet)
        vnode.ownership.sure(nothing_yet)
        self._fill_fingers(vnode)
        vnode.rounds = SETTLED_ROUNDS_PER_SUCCESSOR * (self._constants.successors + 1)
        vnode.state = "member"

    def members(self, host: NodeContext) -> Members:
        """Return a membership list with all nodes; equal parts of the lists of several nodes are one object."""
        if self._members is None:
            now = host.peers.now()
            vnodes: dict[str, list[Point]] = {}
            for contact in self._contacts:
                vnodes.setdefault(contact.address, []).append(contact.id)
            self._members = Members(host.circle, host.limits.members_max)
            for address, points in vnodes.items():
                self._members.learn(MemberEntry(address, 0, 0, "alive", tuple(points)), now)
        return self._members.copy()

    def _following(self, at: int) -> list[Contact]:
        """Return the vnodes behind index `at`, as many as a successor list can hold."""
        most = min(len(self._contacts) - 1, ENTRIES_PER_SUCCESSOR_MAX * self._constants.successors)
        return [self._contacts[(at + 1 + step) % len(self._contacts)] for step in range(most)]

    def _fill_fingers(self, vnode: Vnode) -> None:
        fingers, circle = vnode.fingers, vnode.host.circle
        index = 0
        while index < circle.bits:
            contact = self.successor(fingers.start(index))
            changed = fingers.adopt(index, contact)
            if changed is None:  # no vnode lies between this start and the vnode itself
                return
            index = changed[1] + 1


class PlacedNode(Node):
    """A node that is put in its place instead of joining."""

    def __init__(self, config: NodeConfig, world: World, placement: PrebuiltPlacement) -> None:
        super().__init__(config, world)
        self._placement = placement

    async def _enter(self, parts: VnodeServices, kept: Kept | None, index: int) -> None:
        self._hello_policy.ring_id = self._placement.ring_id
        self._placement.settle(parts.vnode)
        if self._host.members is not None:
            self._host.members = self._placement.members(self._host)

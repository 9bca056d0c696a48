"""Ring merge: heal split rings and loopy rings with self-lookups.

Two separate rings are stable under stabilization. So is a loop that runs round the circle more than once. A self-lookup
detects both. The vnode asks a contact to look up the vnode's own id. The lookup may end between two other vnodes: q
before the id and t behind it. Then this vnode considers t as its successor and offers itself to q. Every repair is an
ordinary step of the protocol.
"""

from __future__ import annotations

from contextlib import suppress

import trio

from chord import events
from chord.errors import NO_REPLY, ChordError, OtherRing, UnknownVnode
from chord.ids import Point
from chord.net.goodbyes import AGE_MS_MAX
from chord.ring.vnode import Vnode
from chord.stabilize import Stabilizer
from chord.wire.messages import Contact, FindNeighbours, FindNeighboursReply, GetRing, GetRingReply, Ping, PingReply


class RingMerge:
    """Makes the self-lookups of one vnode, and heals the split or loopy ring that they reveal.

    Args:
        vnode: the vnode.
        stabilizer: carries out the repairs.
    """

    __slots__ = ("_has_probed", "_host", "_hurried", "_peers", "_ring", "_stabilizer", "_vnode")

    def __init__(self, vnode: Vnode, stabilizer: Stabilizer) -> None:
        self._vnode = vnode
        self._ring = vnode.ring
        self._host = vnode.host
        self._peers = vnode.host.peers
        self._stabilizer = stabilizer
        self._has_probed = False  # whether the last self-lookup went to a down vnode
        self._hurried = frozenset[Point]()  # down vnodes that a list names again, and that are probed for this reason

    async def ask(self, contact: Contact | str) -> None:
        """Ask a contact to look up this vnode's own id, and heal what that reveals.

        If the lookup finds another vnode in this vnode's place, the ring is split or loopy. Then this vnode offers
        itself there and adopts nearer neighbours.

        Args:
            contact: a vnode, or the address of a node.

        Raises:
            ChordError: the contact refused or did not reply. A vnode on the passive list may not
                be at its address any more. This node then asks the ring about the vnode, before the error is raised.
            trio.TooSlowError: the contact did not reply within twice `timeout_cap_s`.
        """
        me = self._vnode.me
        try:
            with trio.fail_after(2 * self._host.timing.timeout_cap_s):
                answer = await self._peers.call(contact, FindNeighbours(me.id), FindNeighboursReply)
        except (OtherRing, UnknownVnode, *NO_REPLY):  # another node may live at a down vnode's address
            if isinstance(contact, Contact) and contact.id in self._peers.passive:
                self._peers.passive.asked_in_vain(contact.id)
                await self._seek(contact)
            raise
        except ChordError:
            self._ask_again(contact)  # the contact is up, but not ready to reply
            raise
        self._host.tell([events.StepDone(me.id, "self_lookup")])
        await self._adopt(contact, answer)
        if isinstance(contact, Contact) and contact.id in self._peers.passive:
            await self._welcome(contact)

    async def _adopt(self, contact: Contact | str, answer: FindNeighboursReply) -> None:
        """Adopt the neighbours that a self-lookup found, if they are nearer than before.

        If the lookup found this vnode in its own place, the pointers stay, and one of the `eager_looks` is used up.
        """
        me, q, t = self._vnode.me, answer.predecessor, answer.successor
        if t.id == me.id or q.id == me.id:
            self._vnode.eager_looks -= self._vnode.eager_looks > 0
            return
        asked = contact if isinstance(contact, Contact) else q
        self._host.tell([events.SplitFound(me.id, asked, q, t)])
        await self._stabilizer.consider_successor(t)
        if await self._stabilizer.offer_to(q, me):  # q replied, so it is not hearsay
            await self._stabilizer.rectify(q)

    async def _seek(self, unreachable: Contact) -> None:
        """Ask the ring about a down vnode, which may have moved or left meanwhile.

        This node may have been away when the vnode did so. If the vnode has moved, make the self-lookup at its new
        address. If it has left, stop waiting for it.
        """
        around = await self._peers.call(self._host.address, FindNeighbours(unreachable.id), FindNeighboursReply)
        if around.successor.id == unreachable.id:
            if around.successor.address != unreachable.address:
                await self.ask(around.successor)
            return
        with trio.move_on_after(2 * self._host.timing.timeout_cap_s):
            for other in await self._witnesses(around):
                left_at = await self._left_at(other, unreachable)
                if left_at is None:
                    continue
                self._peers.learn_left(unreachable.id, left_at)
                if self._peers.is_known_to_have_left(unreachable):  # otherwise the goodbye was older than a return
                    for vnode in self._host.vnodes.values():
                        vnode.preference_list.gone((unreachable.id,))
                    return

    async def _left_at(self, other: Contact, unreachable: Contact) -> float | None:
        """Ask another vnode whether a down vnode has left for good; return by when, or None."""
        with suppress(ChordError):
            reply = await self._peers.call(other, FindNeighbours(unreachable.id), FindNeighboursReply)
            left_ms = AGE_MS_MAX if reply.left_ms is None else reply.left_ms
            return trio.current_time() - left_ms / 1000 if reply.has_left else None
        return None

    async def _witnesses(self, around: FindNeighboursReply) -> list[Contact]:
        """Return vnodes of other nodes that may have heard the goodbye of a vnode, the likeliest first.

        A leaving node says goodbye to its neighbours on both sides. A split may keep it from some of them, and nodes
        that join later hear nothing. So the list has the neighbours of both nearest vnodes, and then all other vnodes
        that this vnode knows.

        Args:
            around: the two vnodes next to the point of the vnode that may have left.
        """
        nearest = (around.successor, around.predecessor)
        lists = [contact for vnode in nearest for contact in await self._listed_by(vnode)]
        found = dict.fromkeys((*nearest, *lists, *self._vnode.listed(), *self._vnode.fingers.contacts()))
        return [contact for contact in found if contact.address != self._host.address]

    async def _listed_by(self, vnode: Contact) -> tuple[Contact, ...]:
        with suppress(ChordError):
            ring = await self._peers.call(vnode, GetRing(adopt=False), GetRingReply)
            return (*ring.successors, *ring.predecessors)
        return ()

    async def _welcome(self, contact: Contact) -> None:
        """Handle a down contact that replies again.

        If the ring and this node's lists have the contact, stop waiting for it. Otherwise probe it again soon. If the
        ring lacks it, offer it to the vnode before its place. The contact may belong to another part of a split ring,
        which offers this vnode in the same way. Or it has just come back, and the lists lack it for a moment.
        """
        around = await self._peers.call(self._host.address, FindNeighbours(contact.id), FindNeighboursReply)
        is_listed = around.successor == contact
        if is_listed and self._has_its_place(contact):
            self._peers.passive.forget(contact.id)
            return
        self._ask_again(contact)
        if not is_listed:
            await self._stabilizer.offer_to(around.predecessor, contact)

    def _has_its_place(self, contact: Contact) -> bool:
        """Return whether all lists of this node that must name a contact do so.

        Until then the contact still counts as down. Otherwise its place would count as empty for a moment, and a write
        would need one node less.
        """
        for vnode in self._host.vnodes.values():
            ring = vnode.ring
            if ring.is_member and contact.id not in {vnode.id, *(one.id for one in ring.successors)}:
                distance = ring.circle.distance
                if not ring.is_cut or distance(vnode.id, contact.id) < distance(vnode.id, ring.successors[-1].id):
                    return False
        return True

    def _ask_again(self, contact: Contact | str) -> None:
        address = contact if isinstance(contact, str) else contact.address
        self._peers.passive.hurry(address, trio.current_time() + self._host.timing.stabilize_s)

    async def look_for_others(self, joins: tuple[str, ...]) -> None:
        """Make a self-lookup if one is due in this round.

        A self-lookup is made every few rounds on average, and in every round while this vnode is isolated or just
        restarted. A vnode that stays isolated for `down_out_s` counts as alone.

        Args:
            joins: addresses of nodes that the self-lookup may go to, besides known vnodes.

        Raises:
            ChordError: the contact refused or did not reply.
            trio.TooSlowError: the contact did not reply within twice `timeout_cap_s`.
        """
        await self._ask_whether_back()
        vnode, now = self._vnode, trio.current_time()
        if not self._ring.is_isolated:
            vnode.isolated_since = None
        elif vnode.isolated_since is None:
            vnode.isolated_since = now
        elif now - vnode.isolated_since >= self._host.timing.down_out_s:
            self._ring.settle_alone()
        is_due = self._host.rng.randrange(self._host.timing.self_lookup_rounds) == 0
        is_any_back = self._hurry_listed()
        if self._ring.is_isolated or vnode.eager_looks > 0 or is_any_back or is_due:
            contact = self.pick((*joins, *vnode.answered))
            if contact is not None:
                await self.ask(contact)

    def _hurry_listed(self) -> bool:
        """Probe the down vnodes soon that a list of this vnode names again; return whether there are any.

        Such a vnode came back to its place before this node noticed an answer of it. Until its probe it counts as down.
        Each is hurried once while it stays listed.
        """
        passive = self._peers.passive
        listed = self._vnode.listed() if passive else ()
        back = {c.id: c for c in listed if c.id in passive and not self._peers.is_doubtful(c)}
        for contact in [contact for point, contact in back.items() if point not in self._hurried]:
            passive.hurry(contact.address, trio.current_time())
        self._hurried = frozenset(back)
        return bool(back)

    async def _ask_whether_back(self) -> None:
        """Ask each vnode that said goodbye, or was forgotten, but is still listed whether it is back.

        Only the vnode itself can tell, because the list may be older than the goodbye. If N = 1, a vnode that is back
        does not announce it.
        """
        preferences = self._vnode.preference_list
        is_any_gone = self._peers.goodbyes or preferences.forgotten()
        for contact in dict.fromkeys(self._vnode.listed() if is_any_gone else ()):
            if self._peers.is_known_to_have_left(contact) or preferences.is_forgotten(contact):
                with suppress(ChordError):
                    asked_at = trio.current_time()
                    pong = await self._peers.call(contact, Ping(), PingReply)
                    self._peers.took_its_place(contact, asked_at, is_owner=pong.is_owner)
                    if pong.is_owner and preferences.is_forgotten(contact):
                        preferences.is_back(contact.address)

    def pick(self, joins: tuple[str, ...]) -> Contact | str | None:
        """Choose the contact for the next self-lookup; None if no contact is known.

        A down vnode with a due probe comes first, but not twice in a row: if many vnodes are down, a probe is always
        due. This call then schedules its next probe. Otherwise the choice is random. It covers fingers, join addresses,
        and the successor list behind its head, as far as they are of other nodes. The lists of this node's other vnodes
        count, too. This vnode may know no living contact, and they may.
        """
        pool = self._pool(joins)
        may_probe = not (self._has_probed and pool)
        due = self._peers.passive.due(trio.current_time(), self._host.rng) if may_probe else None
        self._has_probed = due is not None
        if due is not None:
            return due
        return self._host.rng.choice(pool) if pool else None

    def _pool(self, joins: tuple[str, ...]) -> list[Contact | str]:
        own = self._host.address
        pool: list[Contact | str] = [c for c in self._vnode.fingers.contacts() if c.address != own]
        pool += [c for c in self._ring.successors[1:] if c.address != own]
        for vnode in self._host.vnodes.values():
            if vnode is not self._vnode and vnode.ring.is_member:
                pool += [c for c in (*vnode.fingers.contacts(), *vnode.ring.successors) if c.address != own]
        return pool + [address for address in joins if address != own]

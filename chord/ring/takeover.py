"""Takeover: keep the low end of a vnode's arc in line with its predecessor.

The arc follows the predecessor in two ways. It shrinks when the predecessor owns a part of it. It grows when this vnode
takes over the arc of dead owners. The pointer and the arc are separate (`ring/ownership.py`): adopting a predecessor
does not move records yet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from contextlib import suppress

import trio

from chord.errors import NO_REPLY, ChordError, UnknownVnode
from chord.ids import Arc, Point, between
from chord.ring import ages
from chord.ring.ownership import Mark, marks_within
from chord.ring.vnode import Vnode
from chord.stabilize import PeerGone, Stabilizer
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    Confirm,
    ConfirmReply,
    Contact,
    Done,
    GetRing,
    GetRingReply,
    GiveMarks,
)

NAMED_ROUNDS = 10
"""For how many stabilize rounds a vnode before the arc is remembered.

They count from the last time that a predecessor named the vnode.
"""


class Takeover:
    """Keeps the arc of one vnode in line with its predecessor.

    Args:
        vnode: the vnode.
        stabilizer: handles vnodes that turn out to be alive or down.

    Attributes:
        confirmed_at: when the vnode at the start of the arc was last asked, and replied with this vnode as the head of
            its successor list. Between the two there may be leaving vnodes without an arc. On Trio's clock; minus
            infinity before the first such reply.
    """

    __slots__ = ("_host", "_past_leavers", "_peers", "_ring", "_stabilizer", "_vnode", "confirmed_at")

    def __init__(self, vnode: Vnode, stabilizer: Stabilizer) -> None:
        self._vnode = vnode
        self._ring = vnode.ring
        self._host = vnode.host
        self._peers = vnode.host.peers
        self._stabilizer = stabilizer
        self.confirmed_at = -math.inf
        self._past_leavers: tuple[Point, Point] | None = None  # predecessor, and start of the arc before it

    @property
    def is_bounded(self) -> bool:
        """Whether the arc begins at the predecessor, or at the vnode with an arc before leaving predecessors."""
        predecessor, start = self._ring.predecessor, self._vnode.ownership.start
        if predecessor is None or start is None:
            return False
        return predecessor.id == start or (predecessor.id, start) == self._past_leavers

    async def refresh_predecessor(self) -> None:
        """Ask the predecessor for its pointers, copy its list, and adjust the arc.

        - The predecessor is at the start of this vnode's arc, and owns an arc: the arc stays.
        - The predecessor is inside the arc and answers for its own arc: the arc shrinks.
        - The predecessor is before the arc, this vnode is the head of its successor list, and the vnodes between are
          dead: this vnode takes their arcs over.
        - The predecessor owns no arc, so it is leaving: ask the vnode before it, which bounds the arc instead.
        """
        ring, own = self._ring, self._vnode.ownership
        predecessor = ring.predecessor
        if predecessor is None:
            return
        self._wait_no_longer()
        self._vnode.note_neighbours()
        self._vnode.preference_list.keep_in_sync(self._vnode.replicated())  # first: the list of a newcomer may be short
        seen, asked_at = own.epoch, trio.current_time()
        try:
            reply = await self._probe(predecessor)
        except PeerGone:
            # The next NOTIFY replaces the predecessor. If this vnode is alone, only this vnode can notify itself.
            if ring.is_alone and predecessor.id != self._vnode.id:
                self._stabilizer.notified(self._vnode.me)
            return
        if reply is None:
            self._host.news()  # no confirmation
        if reply is None or ring.predecessor != predecessor:
            return
        self._host.note_clock(predecessor.address, reply.now_ms)
        ring.learn_predecessors(predecessor, reply.predecessors)
        self._remember_before(predecessor, reply)
        self._vnode.preference_list.keep_in_sync(self._vnode.replicated())
        if own.start is None or own.giving is not None or own.epoch != seen:  # the reply may be older than the arc
            return
        if reply.owned_from is not None:
            self._past_leavers = None
        if predecessor.id == own.start and reply.owned_from is not None:
            self._learn_boundary(predecessor, reply)
            if _names_as_head(reply, self._vnode.me):
                self.confirmed_at = asked_at
        elif reply.owned_from is None:
            await self._look_past(predecessor, reply, asked_at)
        elif between(own.start, predecessor.id, self._vnode.id):
            await self._shrink(predecessor, predecessor)
        elif _names_as_head(reply, self._vnode.me):
            await self._take_over(predecessor)
            self._learn_boundary(predecessor, reply)  # the predecessor, or a vnode before it, may die next

    def _remember_before(self, predecessor: Contact, reply: GetRingReply) -> None:
        """Put the down vnodes between the predecessor and this vnode on the passive list.

        They owned parts of this arc. The node that took those over, and knew them, may have lost its disk since.
        """
        for contact in (one.contact for one in reply.unreachable):
            is_forgotten = self._vnode.preference_list.is_forgotten(contact)
            if between(predecessor.id, contact.id, self._vnode.id) and not is_forgotten:
                self._stabilizer.remember_unreachable(contact)

    def _learn_boundary(self, predecessor: Contact, reply: GetRingReply) -> None:
        timing = self._host.timing
        # If N = 1, a vnode that takes over without knowing a dead node denies the keys which that node holds.
        is_only_copy = self._host.constants.replicas == 1
        keep_s = timing.down_out_s if is_only_copy else timing.rounds_s(NAMED_ROUNDS)
        now, own = trio.current_time(), self._vnode.ownership
        own.learn_boundary(predecessor, reply.predecessors, now, keep_s, keeps_all=is_only_copy)

    async def _look_past(self, predecessor: Contact, reply: GetRingReply, asked_at: float) -> None:
        """Take over the arc before a leaving predecessor, if that arc has lost its owner.

        The predecessor owns nothing: it has handed its arc over, and takes over no other arc. If the vnode before it
        dies, that vnode's arc would otherwise stay without an owner until the leave ends. So would the arc of the
        predecessor, if this vnode restarted and had not saved that it got the arc. The leave cannot end earlier,
        because the leaver's remaining records need an owner to go to. If all other vnodes are leaving, this vnode owns
        the whole circle.

        Args:
            predecessor: the leaving predecessor.
            reply: its pointers.
            asked_at: when it was asked, in seconds on Trio's clock.
        """
        own, epoch = self._vnode.ownership, self._vnode.ownership.epoch
        at, after, passed = predecessor, self._vnode.me, [predecessor]
        for _ in range(LIST_ENTRIES_MAX):  # more vnodes in a row may leave than a list names
            before = reply.predecessor
            if before is None or not _names_as_head(reply, after):
                return
            if before.id != self._vnode.id and not between(self._vnode.id, before.id, at.id):
                return
            try:
                answer = await self._probe(before)
            except PeerGone:
                return
            if answer is None or own.epoch != epoch or self._ring.predecessor != predecessor:
                return
            at, after, reply = before, at, answer
            if reply.owned_from is not None:
                break
            passed.append(at)
        if own.start is not None and reply.owned_from is not None and between(own.start, at.id, self._vnode.id):
            await self._shrink(at, predecessor)  # while this vnode was away, others owned a part of its arc
            return
        is_gap = own.start is not None and at.id != own.start and not between(own.start, at.id, self._vnode.id)
        if is_gap and reply.owned_from is not None and _names_as_head(reply, after):
            await self._take_over(at, passed)
        if at.id == own.start:
            self._past_leavers = (predecessor.id, at.id)
            self._learn_boundary(at, reply)
            if _names_as_head(reply, after):
                self.confirmed_at = asked_at

    def _wait_no_longer(self) -> None:
        """Stop waiting for owners that left or were down too long, and for dead leavers.

        The marks of such owners are dropped; if N = 1, only those of owners that left. A leaving node that is dead no
        longer counts as leaving. Down vnodes inside a marked part get marks of their own.
        """
        own, preference_list, now = self._vnode.ownership, self._vnode.preference_list, trio.current_time()
        if self._host.constants.replicas > 1:  # with N = 1 marks stay until `AntiEntropy.fetch_marked` is done
            own.expire(now, self._host.timing.down_out_s)
        is_waiting = len(self._peers.passive) > 0
        preference_list.expire(now, self._host.timing.down_out_s, self._host.timing.leave_s, is_waiting=is_waiting)
        for address in preference_list.retiring:
            if self._peers.failure_detector.is_dead(address):  # it crashed during the leave, or has left by now
                preference_list.stays(address)
        own.learn_unreachable(preference_list.unreachable())
        own.owner_left({mark.dead.id for mark in own.marks if self._peers.is_known_to_have_left(mark.dead)})

    async def _shrink(self, owner: Contact, predecessor: Contact) -> None:
        """Give up the part of the arc that a vnode inside the arc owns.

        The owner is the predecessor, or the first vnode before it that owns an arc. The owner must confirm its arc
        first. It does not while it hands its arc to this vnode. If the predecessor changes meanwhile, nothing happens.
        """
        own = self._vnode.ownership
        seen = own.epoch
        try:
            await self._confirm_owners(owner)
        except (ChordError, PeerGone):
            return
        if own.epoch == seen and self._ring.predecessor == predecessor and self._host.tell(own.shrink(owner)):
            self._host.arc_lost()

    async def _confirm_owners(self, owner: Contact) -> None:
        """Ask a vnode inside the arc to confirm its own arc, and give it the marks there.

        There are marks to give only if N = 1. Each vnode before the owner inside the arc gets them, too, up to r vnodes
        in all. A dead node may have taken their arcs over while they were cut off, and hold the only copies of writes.
        So may this vnode, which took writes there until now. It marks itself, and the others fetch its records.

        Raises:
            ChordError, PeerGone: a vnode does not confirm, or cannot adopt marks now.
        """
        own = self._vnode.ownership
        given: list[Mark] = []
        if self._host.constants.replicas == 1 and own.start is not None:
            lost = Arc(own.start, owner.id)
            given = [Mark(lost, self._vnode.me, self._peers.now()), *marks_within(own.marks, lost)]
        for _ in range(self._ring.r):
            confirmed = await self._peers.call(owner, Confirm(owner.id), ConfirmReply)
            if not given:
                return
            marks = ages.marks_to_others(given, self._peers)  # anew for each vnode, because ages grow
            await self._peers.call(owner, GiveMarks(marks[:LIST_ENTRIES_MAX]), Done)
            if own.start is None or not between(own.start, confirmed.arc_start, owner.id):
                return
            pointers = await self._probe(owner)
            if pointers is None or pointers.predecessor is None or pointers.predecessor.id != confirmed.arc_start:
                return
            owner = pointers.predecessor

    async def _take_over(self, owner: Contact, passed: Collection[Contact] = ()) -> None:
        """Take over the gap before the arc if every vnode known to stand in it is gone.

        If any of them lives, the nearest living vnode is announced as predecessor instead. Otherwise, if any of them is
        paused, nothing happens.

        All known vnodes in the gap are asked, not only the nearest. Behind the nearest may stand a joiner that only the
        dead vnodes knew. That joiner owns the arc it was given, is in no list yet, and may go on looking for its place
        for a while.

        Args:
            owner: the vnode before the gap. That is the predecessor, or a vnode separated from this one only by vnodes
                without an arc.
            passed: these vnodes without an arc. They are not asked, because they gave their arcs away, to the dead
                vnodes or to this one.
        """
        own = self._vnode.ownership
        start, boundary, predecessor = own.start, own.boundary, self._ring.predecessor
        if start is None:
            return
        gap = Arc(owner.id, start)
        # In a small ring, unreachable vnodes behind this one also stand before it.
        unreachable = [contact for contact, _ in self._vnode.preference_list.unreachable()]
        known = {c.id: c for c in (*unreachable, *([boundary] if boundary else []), *own.before) if c.id in gap}
        known = {point: contact for point, contact in known.items() if contact not in passed}
        is_gone = await self._are_gone([c for c in known.values() if c.id != self._vnode.id])
        living = [known[point] for point, gone in is_gone.items() if gone is False]
        if living:
            self._stabilizer.notified(min(living, key=lambda c: self._ring.circle.distance(c.id, start)))
        elif None not in is_gone.values() and own.start == start and self._ring.predecessor == predecessor:
            # A vnode that left handed its arc to the next one. If that one died, it owned the arc.
            dead = [known[p] for p in is_gone if not self._peers.is_known_to_have_left(known[p])]
            missed = [contact for contact in dead if not self._vnode.preference_list.is_forgotten(contact)]
            self._vnode.preference_list.keep_in_sync([self._replicated_with(known.values())])
            self._vnode.preference_list.keep_in_sync_by_owner(gap, known)
            is_single = self._host.constants.replicas == 1
            gained = own.take_over(owner, missed, trio.current_time(), had_only_copies=is_single)
            if self._host.tell(gained) and is_single and (passed or len(dead) < len(is_gone)):
                self._mark_only_copies_of_leavers(gap, passed)
            for contact in dead:
                if self._peers.is_dead(contact):
                    self._stabilizer.remember_unreachable(contact)

    def _replicated_with(self, gone: Iterable[Contact]) -> Arc:
        """Return the arc that this vnode replicated before the given vnodes were gone.

        If the gone vnodes are on too few nodes to tell, the result is the whole circle: this vnode may have held any
        record.
        """
        me, nodes = self._vnode.me, dict[str, None]()
        for contact in sorted(gone, key=lambda c: self._ring.circle.distance(c.id, me.id)):
            if contact.address != me.address:
                nodes[contact.address] = None
            if len(nodes) == self._host.constants.replicas:
                return Arc(contact.id, me.id)
        return Arc(me.id, me.id)

    def _mark_only_copies_of_leavers(self, gap: Arc, leavers: Iterable[Contact]) -> None:
        """Mark a gap, so that this node fetches its records from leavers, and from the next node behind it.

        This method does not check N: the caller calls it only if N = 1. A leaver may have taken this vnode for dead,
        and handed its records to that next node. Or it still has them, and this vnode has lost its disk.

        Args:
            gap: the part of the arc that was taken over.
            leavers: vnodes that are leaving and have given their arcs away.
        """
        behind = [c for c in self._ring.successors if c.address != self._host.address][:1]
        others = dict.fromkeys(c for c in (*behind, *leavers) if c.address != self._host.address)
        self._vnode.ownership.mark(gap, others, self._peers.now())

    async def _are_gone(self, contacts: list[Contact]) -> dict[Point, bool | None]:
        """Ask all contacts at once whether they are dead or no longer members.

        The answers are by vnode id. None means that this is uncertain, because the node is paused.
        """
        found: dict[Point, bool | None] = {contact.id: None for contact in contacts}

        async def ask(contact: Contact) -> None:
            with suppress(ChordError):
                found[contact.id] = await self._peers.is_gone(contact)

        async with trio.open_nursery() as nursery:
            for contact in contacts:
                nursery.start_soon(ask, contact)
        return found

    async def _probe(self, contact: Contact) -> GetRingReply | None:
        """Ask for pointers without adopting them, until a reply or certain death.

        Returns:
            The pointers. None if the vnode is paused, or if it is alive and refuses.

        Raises:
            PeerGone: the vnode is dead, or no longer at that address.
        """
        while True:
            try:
                asked_at = trio.current_time()
                reply = await self._peers.call(contact, GetRing(adopt=False), GetRingReply)
                self._peers.took_its_place(contact, asked_at, is_owner=reply.owned_from is not None)
                return reply
            except UnknownVnode as error:
                raise PeerGone from error
            except NO_REPLY as error:
                if self._peers.is_dead(contact):
                    raise PeerGone from error
                if self._peers.failure_detector.state(contact.address) == "paused":
                    return None
            except ChordError:
                return None


def _names_as_head(reply: GetRingReply, contact: Contact) -> bool:
    return bool(reply.successors) and reply.successors[0].id == contact.id

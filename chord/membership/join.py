"""Join and leave: how a vnode becomes a member of a ring and stops being one.

A join finds the owner of the vnode's id and receives the part of its arc up to that id (`replication/transfer.py`).
Only then does the vnode take the predecessor's successor list and notify its neighbours. A leave hands the arc to the
successor, under a deadline that the caller opened. A vnode that restarts uses `membership/rejoin.py`.

Source: Zave 2017, section III (JOIN); the hand-over of keys, Stoica et al. 2001, section 4.4.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import trio

from chord import events
from chord.errors import (
    NO_REPLY,
    Busy,
    ChordError,
    DuplicateId,
    Leaving,
    LookupFailed,
    NotOwner,
    NotReady,
    OtherRing,
    UnknownVnode,
)
from chord.ids import Arc, Point, between
from chord.replication.transfer import Transfers
from chord.replication.transfer_source import TransferFailed
from chord.ring import ages
from chord.ring.ownership import Mark
from chord.ring.vnode import RETRY_MS, Vnode
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    Confirm,
    ConfirmReply,
    Contact,
    Done,
    FindNeighbours,
    FindNeighboursReply,
    GetRing,
    GetRingReply,
    HandOver,
    JoinArc,
    Notify,
    Offer,
    Ping,
    PingReply,
)

LOOK_AGAIN_MS = 250  # the wait while the ring heals
LEARNT_MAX = 16
STEPS_MAX = 16  # how often one attempt follows a redirect to another vnode

FATAL = (OtherRing, DuplicateId)


class LastTime(NamedTuple):
    """The place that a vnode had in the ring before a restart, as its node stored it.

    Attributes:
        predecessor, successors: its pointers; None and () if they were not known.
        start: the point at which its arc began; None if it owned no arc.
        epoch: the epoch of the arc.
        marks: its marks: the parts of the arc that had belonged to vnodes that were down.
        before: the vnodes at `start` and before it, the nearest first, as far as known.
    """

    predecessor: Contact | None = None
    successors: tuple[Contact, ...] = ()
    start: Point | None = None
    epoch: int = 0
    marks: tuple[Mark, ...] = ()
    before: tuple[Contact, ...] = ()


class Membership:
    """Joins one vnode to a ring, and lets it leave.

    Args:
        vnode: the vnode.
        transfers: receives the vnode's arc in a join, and hands it over in a leave.

    Attributes:
        last: the place of the vnode before a restart; an empty `LastTime` if it did not restart.
    """

    _is_receiving = False  # whether another vnode may be giving an arc to this joiner

    def __init__(self, vnode: Vnode, transfers: Transfers) -> None:
        self._vnode = vnode
        self._ring = vnode.ring
        self._host = vnode.host
        self._peers = vnode.host.peers
        self._transfers = transfers
        self.last = LastTime()
        self._learnt: dict[str, None] = {}

    @property
    def is_entering(self) -> bool:
        """Whether this vnode joins, and owns an arc or may be given one.

        If it ended now, the ring would wait for it as for a member that died.
        """
        owns = self._vnode.state == "joining" and self._vnode.ownership.start is not None
        return self._is_receiving or owns

    # -- join -----------------------------------------------------------------------------------

    async def join(self, contacts: list[Contact | str]) -> None:
        """Join the ring through the contacts, one after another, until the join succeeds.

        When this returns, the vnode is a member and has informed its neighbours.

        Args:
            contacts: vnodes, or addresses of nodes; at least one.

        Raises:
            OtherRing, DuplicateId: definite; the ring does not accept the node.

        Concurrency: checkpoints; waits as long as no contact answers. If cancelled before the arc was switched, the
        ring is unchanged. If cancelled afterwards, this vnode owns the arc, and a later `join` completes the pointers.
        If the node leaves meanwhile, a vnode with an arc still becomes a member, and one without an arc waits for ever.
        """
        turn = silences = 0
        self._vnode.state = "joining"
        self._learnt.clear()
        while not self._ring.is_member:
            if self._host.is_leaving and self._vnode.ownership.start is None:
                await trio.sleep_forever()
            every = [*contacts, *self._learnt]
            if silences or turn >= len(every):  # a member that no contact knows may list this vnode and call it
                every += [a for a in self._peers.failure_detector.alive()[-LEARNT_MAX:] if a != self._host.address]
            via = every[turn % len(every)]
            patience_s = self._patience_s(silences)
            turn += 1
            try:
                with trio.fail_after(patience_s):
                    around = await self._around(via)
                self._learn(around.predecessor, around.successor)
                if self._is_own_place(around):
                    await self._reclaim_place(around)
                elif self._vnode.ownership.start is None:
                    await self._receive_arc(around.successor)
                if self._vnode.ownership.start is not None and not self._ring.is_member:
                    await self._take_pointers(via, patience_s)
            except FATAL:
                raise
            except (Busy, Leaving, NotReady) as error:
                await trio.sleep(self._host.jitter((error.after_ms or RETRY_MS) / 1000))
                turn -= isinstance(error, Busy)
            except (ChordError, TransferFailed, trio.TooSlowError) as error:
                silences += isinstance(error, trio.TooSlowError)
                await trio.sleep(self._host.jitter(RETRY_MS / 1000 * min(turn, 10)))
        await self.announce()

    def _learn(self, *contacts: Contact) -> None:
        """Remember the contacts that a reply named, to join through them.

        All contacts that the caller of `join` gave may be gone before this vnode is a member. The latest `LEARNT_MAX`
        are kept.
        """
        for contact in contacts:
            if contact.address != self._host.address:
                self._learnt[contact.address] = None
        while len(self._learnt) > LEARNT_MAX:
            del self._learnt[next(iter(self._learnt))]

    def _patience_s(self, silences: int) -> float:
        """Return how long to wait for a contact to look up this vnode's place, in seconds.

        A slow contact looks like a down one, so the wait doubles with each timeout. It starts short. Meanwhile other
        nodes may take over an arc that this vnode already owns, because they only know that its giver died. A down
        contact must not delay this vnode for long if another contact would reply.

        Args:
            silences: how many contacts have timed out so far.
        """
        timing = self._host.timing
        return min(2 * timing.timeout_cap_s, 2 * timing.timeout_stranger_s * (1 << min(silences, 8)))

    async def _around(self, via: Contact | str) -> FindNeighboursReply:
        around = await self._peers.call(via, FindNeighbours(self._vnode.id), FindNeighboursReply)
        self._host.hello_policy.learn(around.ring)
        return around

    def _is_own_place(self, around: FindNeighboursReply) -> bool:
        return around.successor.id == self._vnode.id

    async def _receive_arc(self, owner: Contact) -> None:
        """Ask the owner of this vnode's id for the arc up to the id, and receive the arc.

        Args:
            owner: the supposed owner. If it names another vnode, that vnode is asked.

        Raises:
            ChordError: no vnode gives the arc; see `Transfers.on_join_arc`.
            TransferFailed: the transfer did not end with a `Switch`, or another vnode owns the arc after all.
        """
        self._is_receiving = True
        try:
            await self._receive_arc_of(owner)
        finally:
            self._is_receiving = False

    async def _receive_arc_of(self, owner: Contact) -> None:
        session = self._host.rng.randbytes(16)
        inbound = self._transfers.expect(session, owner.address)
        for _ in range(STEPS_MAX):
            try:
                await self._peers.call(owner, JoinArc(self._vnode.me, session), Done)
                break
            except NotOwner as error:
                if error.peer is None or error.peer.id == self._vnode.id:
                    raise
                owner = error.peer
                self._learn(owner)
                inbound = self._transfers.expect(session, owner.address)
        else:
            raise LookupFailed("no vnode answers for this id")
        while not inbound.ended.is_set():
            # Reading the property frees a slot with an expired lease: the giver may have died.
            with trio.move_on_after(self._host.timing.lease_s / 4):
                await inbound.ended.wait()
            _ = self._transfers.inbound
        if not inbound.is_switched:
            raise TransferFailed(f"{owner.address} did not complete the transfer")
        await self._renounce_if_taken_back(owner)
        self._vnode.mark_only_copies(self.last.successors)  # the giver may not know which of these took the arc

    async def _renounce_if_taken_back(self, owner: Contact) -> None:
        """Give up the arc just received if another vnode owns it after all.

        The records of the arc then move to the owner in the background.

        Args:
            owner: the vnode that gave the arc, or the vnode behind this one.

        Raises:
            TransferFailed: another vnode owns the arc.
        """
        if await self._is_taken_back(owner):
            self._host.tell(self._vnode.ownership.renounce())
            raise TransferFailed(f"{owner.address} or a vnode before it owns the arc again")

    async def _is_taken_back(self, giver: Contact) -> bool:
        """Return whether another vnode owns this vnode's id after all.

        The check runs before the ring learns of this vnode.

        Another vnode owns the id in two cases:

        - The Switch arrived so late that the giver had taken this vnode for dead. The giver owns the arc again, or has
          given it to the next vnode.
        - The giver died, and the ring does not know this vnode yet. The next vnode has taken over the giver's whole
          arc.

        In both cases this vnode holds an old copy, and would deny keys that were written since. If no vnode confirms
        that it owns the id, the result is False.

        Args:
            giver: the vnode to ask first; see `owner` of `_renounce_if_taken_back`.
        """
        asked = giver
        for _ in range(STEPS_MAX):
            if self._peers.is_dead(asked):
                return False
            try:
                await self._peers.call(asked, Confirm(self._vnode.id), ConfirmReply)
                return True
            except NotOwner as error:
                if error.peer is None or error.peer.id == self._vnode.id:
                    return False
                asked = error.peer
            except Busy:  # this vnode's acknowledgement is still on its way
                await trio.sleep(self._host.jitter(RETRY_MS / 1000))
            except NO_REPLY:
                continue
            except ChordError:
                return False
        return False

    async def _take_pointers(self, via: Contact | str, patience_s: float) -> None:
        """Take the predecessor's whole successor list, as Zave's JOIN does.

        If this vnode does not fit behind the predecessor any more, look up the predecessor again.

        Args:
            via: the contact that makes the lookups.
            patience_s: the longest time for one attempt, in seconds.

        Raises:
            LookupFailed: this vnode fitted behind no predecessor in `STEPS_MAX` attempts.
            TooSlowError: an attempt took longer than `patience_s`.
            TransferFailed: see `_renounce_if_taken_back`.
        """
        for _ in range(STEPS_MAX):
            with trio.fail_after(patience_s):
                around = await self._around(via)
                if self._is_own_place(around):
                    await self._reclaim_place(around)
                    return
                await self._renounce_if_taken_back(around.successor)
                p = around.predecessor
                reply = await self._peers.call(p, GetRing(joins=True), GetRingReply)
            if self._host.tell(self._ring.join(p, reply.successors)):
                self._learn_unreachable(reply)
                return
            await trio.sleep(self._host.jitter(RETRY_MS / 1000))
        raise LookupFailed("no predecessor to join behind")

    async def announce(self) -> None:
        """Make the vnode a member, and inform its successor and its predecessor at once.

        Without these messages, they would notice in their next stabilize round. If a call fails, only an event
        `StepFailed` reports it.

        Concurrency: checkpoints.
        """
        self._vnode.state = "member"
        predecessor = self._ring.predecessor
        for contact, request in ((self._ring.successor, Notify(self._vnode.me)), (predecessor, Offer(self._vnode.me))):
            if contact is None or contact.id == self._vnode.id:
                continue
            try:
                await self._peers.call(contact, request, Done)
            except ChordError as error:
                self._host.tell([events.StepFailed(self._vnode.id, "announce", error.word)])

    # -- my own place is still listed -----------------------------------------------------------

    async def _reclaim_place(self, around: FindNeighboursReply) -> None:
        """Take back a place at which the ring still lists this vnode's id.

        The listed vnode is this one from before a restart, or another node's.

        Args:
            around: the vnode listed at this id (`successor`) and its predecessor.

        Raises:
            DuplicateId: another node answers for that id.
            Busy: the ring does not let this vnode take its place yet; look again.
            TransferFailed: see `_receive_arc` and `_renounce_if_taken_back`.
        """
        me, holder, p = self._vnode.me, around.successor, around.predecessor
        if holder.address != me.address:
            await self._refuse_if_alive(holder)
            raise Busy("the former holder of this id is being forgotten", after_ms=LOOK_AGAIN_MS)
        if self._vnode.ownership.start is None:
            others, reply = await self._others_behind(p)
            taker = await self._taker_of_my_arc(others, p)
            if self._vnode.ownership.start is not None:  # the Switch of an earlier attempt has arrived after all
                await self._renounce_if_taken_back(others[0])
            elif taker is None and reply.owned_from is not None:
                self._own_again(p, others)
            elif taker is None:  # the predecessor is leaving, and the arc of the vnode before it bounds this one
                self._own_again(reply.predecessor or p, [*others, p])
            else:
                await self._receive_arc(taker)  # the same way as any joiner
        if not self._ring.is_member:
            # Asked last: the adopted list must be as fresh as in JOIN. The list fetched above may be old by now.
            others, reply = await self._others_behind(p)
            self._host.tell(self._ring.resume(p, others))
            self._learn_unreachable(reply)

    def _own_again(self, boundary: Contact, others: Iterable[Contact]) -> None:
        """Own the arc from before the restart, or the part of it after another vnode.

        If that vnode stands before the start of the arc, the vnodes between them are dead or leaving. A takeover then
        extends the arc, and marks the parts of the dead vnodes as theirs. Without a memory of an arc, this vnode owns
        everything after the other one.

        Args:
            boundary: the vnode directly before this one; if that one has no arc, the vnode before it.
            others: vnodes that may have owned the arc meanwhile, or have records of it.
        """
        last = self.last
        start, before = last.start, last.before
        if start is None or start == boundary.id or between(start, boundary.id, self._vnode.id):
            start, before = boundary.id, (boundary,)
        self._host.tell(self._vnode.ownership.resume(start, before, last.epoch))
        self._vnode.mark_only_copies(dict.fromkeys((*last.successors, *others)))

    def _learn_unreachable(self, reply: GetRingReply) -> None:
        """Adopt the down vnodes that the predecessor reports in its reply, so that they are probed.

        Without them the ring would look smaller than it is, and a write would need fewer nodes.
        """
        now, preference_list = trio.current_time(), self._vnode.preference_list
        preference_list.adopt(
            self._ring.successors,
            ages.down_from_others(reply.unreachable, self._peers, self._peers.sent_before()),
            is_full=self._ring.is_full,
        )
        for contact, _ in preference_list.unreachable():
            if contact.address != self._host.address:
                self._peers.passive.add(contact, now)
        self._vnode.learn_passive(reply.passive)

    async def _others_behind(self, p: Contact) -> tuple[list[Contact], GetRingReply]:
        """Return the live vnodes behind this one, as its predecessor says, and the predecessor's reply.

        The predecessor still lists this vnode first. If it lists no other vnode, the first result names the
        predecessor.

        Args:
            p: the predecessor.

        Raises:
            Busy: no other vnode is left, or the predecessor has learnt of a nearer one. Look again.
        """
        me = self._vnode.me
        reply = await self._peers.call(p, GetRing(adopt=p.id != me.id, joins=True), GetRingReply)
        if between(p.id, reply.successors[0].id, me.id):
            raise Busy("another vnode stands right before this one now", after_ms=RETRY_MS)
        others = [c for c in reply.successors if c.id != me.id]
        if not others and p.id != me.id:
            others = [p]
        if not others:
            raise Busy("no other vnode is left to ask", after_ms=LOOK_AGAIN_MS)
        return others, reply

    async def _taker_of_my_arc(self, others: list[Contact], predecessor: Contact) -> Contact | None:
        """Return the vnode that took this vnode's arc over while it was down, or None.

        Of the vnodes behind this one, the first with an arc decides. If its arc contains this vnode's id, the result is
        that vnode. Otherwise the result is None, and this vnode may own its old arc again. A vnode without an
        arc is leaving. It names the vnodes behind it, which may be more than the predecessor's list has. If all vnodes
        are leaving, they wait for this vnode, and the result is None, too.

        This vnode must not wait for the vnodes in between. A dead vnode never replies. A vnode that restarted at the
        same time may be waiting for this vnode. And no vnode replaces them until this vnode is back in its place.

        Args:
            others: the vnodes that the predecessor lists behind this one, in ring order.
            predecessor: the vnode before this one, which is asked last.

        Raises:
            Busy: no vnode behind this one answers for an arc.
        """
        known = {self._vnode.id, predecessor.id}
        waiting = [contact for contact in others if contact.id not in known]
        known.update(contact.id for contact in waiting)
        has_leaver, is_sure, is_last = False, True, False
        while not is_last:
            is_last = not waiting
            contact = predecessor if is_last else waiting.pop(0)
            while not self._peers.is_dead(contact):
                try:
                    reply = await self._peers.call(contact, GetRing(adopt=False), GetRingReply)
                except NO_REPLY:
                    if self._peers.failure_detector.state(contact.address) != "paused":
                        continue
                    is_sure = False
                except (UnknownVnode, NotReady):
                    is_sure = False
                else:
                    if reply.owned_from is not None:
                        return contact if self._vnode.id in Arc(reply.owned_from, contact.id) else None
                    has_leaver = True
                    further = [] if is_last else [c for c in reply.successors if c.id not in known]
                    known.update(c.id for c in further)
                    waiting += further
                break
        if has_leaver and is_sure:
            return None
        raise Busy("no vnode behind this one answers for an arc", after_ms=LOOK_AGAIN_MS)

    async def _refuse_if_alive(self, holder: Contact) -> None:
        try:
            await self._peers.call(holder, Ping(), PingReply)
        except (*NO_REPLY, UnknownVnode):
            return
        raise DuplicateId(f"{holder.address} already stands at id {int(holder.id)}", peer=holder)

    # -- leave ----------------------------------------------------------------------------------

    async def leave(self) -> None:
        """Hand the vnode's arc to the next vnode of another node, and try again until that succeeds.

        At the end this vnode still owns the arc only if no other node is left to take it. Stabilize rounds must
        continue meanwhile, because the successor may change. If several adjacent vnodes of this node leave, the last
        one goes first.

        Concurrency: checkpoints; if cancelled, the arc belongs wholly to this vnode or wholly to the receiver.
        """
        self._vnode.state = "leaving"
        while self._vnode.ownership.start is not None:
            others = [c for c in self._ring.successors if c.address != self._host.address]
            if not others and not self._ring.is_isolated:
                return
            if not others:  # the neighbours may be back before the time for leaving is over
                await trio.sleep(self._host.jitter(RETRY_MS / 1000))
                continue
            to = next(c for c in self._ring.successors if c in others or self._still_owns(c))
            if to in others:
                session = self._host.rng.randbytes(16)
                try:
                    await self._transfers.hand_over(await self._receiver(to, session), session)
                    continue
                except (ChordError, TransferFailed) as error:
                    after_ms = error.after_ms if isinstance(error, ChordError) else None
                    await trio.sleep(self._host.jitter((after_ms or RETRY_MS) / 1000))
            else:
                await trio.sleep(self._host.jitter(RETRY_MS / 1000))

    async def _receiver(self, successor: Contact, session: bytes) -> Contact:
        """Offer this leaving vnode's arc to its successor; return the vnode that accepts.

        If the successor is leaving too and has given its arc away, offer the arc to the vnode that has it now. Neither
        leaver may wait until the other is gone, because each brings its remaining records home. Some of those belong to
        the other's arc.

        Args:
            successor: the successor.
            session: the id of the transfer.

        Raises:
            Leaving: every vnode asked is leaving.
            ChordError: a vnode refused for another reason, or did not answer.
        """
        to, asked = successor, dict[Point, None]()
        while to.id not in asked and len(asked) < LIST_ENTRIES_MAX:  # more vnodes in a row may leave than a list names
            asked[to.id] = None
            try:
                await self._peers.call(to, HandOver(self._vnode.me, session), Done)
                return to
            except Leaving as error:
                if error.peer is None or error.peer.address == self._host.address:
                    raise
                to = error.peer
        raise Leaving("every vnode behind this one is leaving", after_ms=RETRY_MS)

    def _still_owns(self, contact: Contact) -> bool:
        vnode = self._host.vnodes.get(contact.id)
        return vnode is not None and vnode.ownership.start is not None

"""How a vnode becomes a member and stops being one: join, resume after a restart, leave.

Join: find the owner of my id, receive the part of its arc up to me (`data/transfer.py`), and only
then take the predecessor's list and notify. Resume: a running ring decides what became of my
place; only where nobody runs one do the stored pointers count. Leave: hand the arc to the
successor, under a deadline the caller opened.

Source: Zave 2017, section III (JOIN); the hand-over of keys, Stoica et al. 2001, section 4.4.
"""

from __future__ import annotations

import trio

from chord import events
from chord.data.transfer import Mover, TransferFailed
from chord.errors import (
    SILENCE,
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
from chord.messages import (
    Contact,
    Done,
    FindNeighbours,
    GetRing,
    Granted,
    HandOver,
    JoinArc,
    NeighboursOf,
    Notify,
    Offer,
    Ping,
    Pong,
    RingPointers,
)
from chord.vnode import Vnode

RETRY_S = 0.05
LEARNT_MAX = 16
STEPS_MAX = 16  # how often one attempt follows a "not mine, ask that one"

FATAL = (OtherRing, DuplicateId)


class Membership:
    """Takes one vnode into a ring and out of it."""

    def __init__(self, vnode: Vnode, mover: Mover) -> None:
        self._vnode = vnode
        self._ring = vnode.ring
        self._host = vnode.host
        self._peers = vnode.host.peers
        self._mover = mover

    # -- join -----------------------------------------------------------------------------------

    async def join(self, contacts: list[Contact | str]) -> None:
        """Join by any of the contacts; they are tried in turn until one leads into the ring.

        Raises:
            OtherRing, DuplicateId: definite; this ring does not take the node.

        Concurrency: checkpoints; waits as long as nobody answers. Cancelled before the arc was switched, the ring
        is as before; afterwards the arc is ours, and a later `join` completes the pointers.
        """
        turn = 0
        self._vnode.state = "joining"
        learnt: dict[str, None] = {}  # whom the answers named: all given contacts may be gone before we are in
        while not self._ring.is_member:
            every = [*contacts, *learnt]
            via = every[turn % len(every)]
            turn += 1
            try:
                with trio.fail_after(2 * self._host.timing.timeout_cap_s):
                    around = await self._around(via)
                for contact in (around.predecessor, around.successor):
                    if contact.address != self._host.address:
                        learnt[contact.address] = None
                while len(learnt) > LEARNT_MAX:
                    del learnt[next(iter(learnt))]
                if self._is_own_place(around):
                    await self._reclaim_place(around)
                elif self._vnode.ownership.start is None:
                    await self._receive_arc(around.successor)
                if self._vnode.ownership.start is not None and not self._ring.is_member:
                    await self._take_pointers(via)
            except FATAL:
                raise
            except (Busy, Leaving, NotReady) as error:
                await trio.sleep(self._host.jitter((error.after_ms or 50) / 1000))
                turn -= isinstance(error, Busy)
            except (ChordError, TransferFailed, trio.TooSlowError):
                await trio.sleep(self._host.jitter(RETRY_S * min(turn, 10)))
        await self._announce()

    async def _around(self, via: Contact | str) -> NeighboursOf:
        return await self._peers.call(via, FindNeighbours(self._vnode.id), NeighboursOf)

    def _is_own_place(self, around: NeighboursOf) -> bool:
        return around.successor.id == self._vnode.id

    async def _receive_arc(self, owner: Contact) -> None:
        """Ask the owner of my id for my arc, and wait until it has switched it to me."""
        session = self._host.rng.randbytes(16)
        inbound = self._mover.expect(session, owner.address)
        for _ in range(STEPS_MAX):
            try:
                await self._peers.call(owner, JoinArc(self._vnode.me, session), Granted)
                break
            except NotOwner as error:
                if error.peer is None or error.peer.id == self._vnode.id:
                    raise
                owner = error.peer
                inbound = self._mover.expect(session, owner.address)
        while not inbound.ended.is_set():
            # Reading the property frees a slot whose lease ran out; the giver may have died.
            with trio.move_on_after(self._host.timing.lease_s / 4):
                await inbound.ended.wait()
            _ = self._mover.inbound
        if not inbound.is_switched:
            raise TransferFailed(f"{owner.address} did not complete the transfer")

    async def _take_pointers(self, via: Contact | str) -> None:
        """JOIN: the predecessor's whole list at once, if I still fit right behind it; else look again."""
        for _ in range(STEPS_MAX):
            with trio.fail_after(2 * self._host.timing.timeout_cap_s):
                around = await self._around(via)
                if self._is_own_place(around):
                    await self._reclaim_place(around)
                    return
                p = around.predecessor
                reply = await self._peers.call(p, GetRing(), RingPointers)
            if self._host.tell(self._ring.join(p, reply.successors)):
                return
            await trio.sleep(self._host.jitter(RETRY_S))
        raise LookupFailed("no predecessor to join behind")

    async def _announce(self) -> None:
        """Notify the successor, and hint to the vnode before: it need not wait for its next round."""
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

    async def _reclaim_place(self, around: NeighboursOf) -> None:
        """The ring still lists my id: it is me from before a restart, or somebody else.

        Raises:
            DuplicateId: another node answers for that id.
        """
        me, holder, p = self._vnode.me, around.successor, around.predecessor
        if holder.address != me.address:
            await self._refuse_if_alive(holder)
            raise Busy("the former holder of this id is being forgotten", after_ms=250)
        reply = await self._peers.call(p, GetRing(adopt=p.id != me.id), RingPointers)
        others = [c for c in reply.successors if c.id != me.id]
        if not others:
            others = [p] if p.id != me.id else []
        if not others:
            raise Busy("nobody else is left to ask", after_ms=250)
        if self._vnode.ownership.start is None:
            after = await self._peers.call(others[0], GetRing(adopt=False), RingPointers)
            if after.owned_from != me.id:
                # Somebody has noticed and taken my arc over: receive it back like any joiner.
                await self._receive_arc(others[0])
            else:
                self._host.tell(self._vnode.ownership.resume(p, 0))
        if not self._ring.is_member:
            self._host.tell(self._ring.resume(p, others))

    async def _refuse_if_alive(self, holder: Contact) -> None:
        try:
            await self._peers.call(holder, Ping(), Pong)
        except (*SILENCE, UnknownVnode):
            return
        raise DuplicateId(f"{holder.address} already stands at id {int(holder.id)}", peer=holder)

    # -- resume ---------------------------------------------------------------------------------

    async def resume(
        self,
        predecessor: Contact | None,
        successors: list[Contact],
        owned_from: Contact | None,
        known: list[Contact | str],
    ) -> None:
        """Come back after a restart, with the pointers of last time.

        A known node that answers as a member decides: we rejoin by it. If for `resume_s` none does (all are restarting
        too, or nobody answers), the stored lists count, live entries first. A new ring is never started.

        Raises:
            OtherRing, DuplicateId: definite; the ring does not take the node back.
        """
        self._vnode.state = "resuming"
        asked: list[Contact | str] = [*successors, *([predecessor] if predecessor else []), *known]
        asked = [c for c in asked if (c if isinstance(c, str) else c.address) != self._host.address]
        member: Contact | str | None = None
        alive: dict[str, None] = {}
        with trio.move_on_after(self._host.timing.resume_s):
            while asked:
                for contact in asked:
                    state = await self._state_of(contact)
                    if state is not None:
                        alive[contact if isinstance(contact, str) else contact.address] = None
                    if state in ("member", "leaving"):
                        member = contact
                        break
                if member is not None:
                    break
                await trio.sleep(self._host.jitter(self._host.timing.resume_s / 8))
        if member is not None:
            await self.join([member, *asked])
            return
        living = [c for c in successors if c.address in alive or c.address == self._host.address]
        silent = [c for c in successors if c not in living]
        self._host.tell(self._ring.resume(predecessor, living or [self._vnode.me]))
        for contact in silent:
            self._peers.passive.add(contact, trio.current_time())
        if owned_from is not None:
            self._host.tell(self._vnode.ownership.resume(owned_from, 0))
        await self._announce()

    async def _state_of(self, contact: Contact | str) -> str | None:
        """Return the state a contact answers with, None for silence and for anything but an answer."""
        try:
            with trio.fail_after(self._host.timing.timeout_stranger_s):
                return (await self._peers.call(contact, Ping(), Pong)).state
        except FATAL:
            raise
        except (ChordError, trio.TooSlowError):
            return None

    # -- leave ----------------------------------------------------------------------------------

    async def leave(self) -> bool:
        """Hand the arc to the successor, however often it takes. Returns whether somebody took it.

        False means that no other node is left to take it. Stabilization must go on meanwhile: the successor may change.

        Concurrency: checkpoints; cancelled, the arc is still ours, or wholly the successor's.
        """
        self._vnode.state = "leaving"
        while self._vnode.ownership.start is not None:
            others = [c for c in self._ring.successors if c.address != self._host.address]
            if not others:
                return False
            to = self._ring.successor
            session = self._host.rng.randbytes(16)
            start = self._vnode.ownership.start
            try:
                await self._peers.call(to, HandOver(self._vnode.me, session, start), Granted)
                await self._mover.hand_over(to, session)
            except (ChordError, TransferFailed) as error:
                after_ms = error.after_ms if isinstance(error, ChordError) else None
                await trio.sleep(self._host.jitter((after_ms or 50) / 1000))
        return True

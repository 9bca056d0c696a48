"""Stabilize, rectify and fix fingers: the steps that maintain a vnode's pointers.

The self-lookup is in `ring/merge.py`, and the maintenance of the arc in `ring/takeover.py`.

Each step of the corrected protocol asks a peer one question and then makes one transition of `RingState`. The
transition decides against the state of that moment. *Abort-if-observed* makes a step atomic without locks. If this
vnode served its own pointers for adoption between question and reply, it discards the reply and asks again. This
replaces the "response pending" of Zave's 2018 model.

Source: Zave 2017 (TSE), section III; Stoica et al. 2003, Fig. 6.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal

import trio

from chord import events
from chord.errors import NO_REPLY, Busy, ChordError, NotReady, UnknownVnode
from chord.ids import between
from chord.net.handlers import handles
from chord.net.tasks import Tasks
from chord.ring import ages
from chord.ring.lookup import Lookups
from chord.ring.vnode import Vnode
from chord.wire.messages import (
    Confirm,
    ConfirmReply,
    Contact,
    Done,
    GetRing,
    GetRingReply,
    Notify,
    Offer,
    PointersChanged,
)

DISCARDS_MAX = 3  # after this many discarded replies, a step makes other vnodes wait until it is done
BUSY_RETRIES_MAX = 8


class PeerGone(Exception):
    """The vnode that was asked is dead, or is no longer at that address."""


class Latest:
    """Handles announced vnodes one after another, in a task. While it handles one, only the best of the others waits.

    Args:
        is_better: returns whether its first argument, a new vnode, replaces its second, the waiting vnode.
        handle: coroutine function that handles a vnode.
        tasks: runs the task.
    """

    __slots__ = ("_handle", "_is_better", "_is_working", "_tasks", "_waiting")

    def __init__(
        self,
        is_better: Callable[[Contact, Contact], bool],
        handle: Callable[[Contact], Awaitable[object]],
        tasks: Tasks,
    ) -> None:
        self._is_better = is_better
        self._handle = handle
        self._tasks = tasks
        self._waiting: Contact | None = None
        self._is_working = False

    def announce(self, contact: Contact) -> None:
        """Handle a vnode soon, unless a better one waits or is announced before its turn."""
        if self._waiting is None or self._is_better(contact, self._waiting):
            self._waiting = contact
        if not self._is_working:
            self._is_working = True
            self._tasks.start(self._work)

    async def _work(self) -> None:
        try:
            while self._waiting is not None:
                contact, self._waiting = self._waiting, None
                await self._handle(contact)
        finally:
            self._is_working = False


class Stabilizer:
    """The periodic steps of one vnode: stabilize, rectify and fix fingers.

    Args:
        vnode: the vnode with the pointers and fingers to maintain.
        lookups: finds the owners of finger starts.
    """

    __slots__ = ("_host", "_lookups", "_notices", "_offers", "_peers", "_ring", "_vnode")

    def __init__(self, vnode: Vnode, lookups: Lookups) -> None:
        self._vnode = vnode
        self._ring = vnode.ring
        self._host = vnode.host
        self._peers = vnode.host.peers
        self._lookups = lookups
        self._notices = Latest(self._is_nearer_before, self.rectify, vnode.host.tasks)
        self._offers = Latest(self._is_nearer_behind, self.consider_successor, vnode.host.tasks)

    def _is_nearer_before(self, new: Contact, old: Contact) -> bool:
        return between(old.id, new.id, self._vnode.id)

    def _is_nearer_behind(self, new: Contact, old: Contact) -> bool:
        return between(self._vnode.id, new.id, old.id)

    # -- stabilize ------------------------------------------------------------------------------

    async def stabilize(self) -> None:
        """Run one round: copy the successor's list, adopt a closer vnode, notify the head.

        These are STAB_SUCC, STAB_PRED and NOTIFY of Zave 2017. The head of the successor list is asked even if it
        counts as dead, because it may be back.

        Concurrency: checkpoints; cancellation between steps leaves a consistent state, as each step is one transition.
        """
        while True:
            head = self._ring.successor
            try:
                reply = await self._ask_pointers(head, "stabilize")
            except PeerGone:
                self._forget_head(head)
                continue
            break
        if reply is None:
            self._host.news()  # no confirmation
        else:
            closer = reply.predecessor
            if closer is not None and between(self._vnode.id, closer.id, head.id) and not self._peers.is_dead(closer):
                await self.consider_successor(closer)
        await self._notify_successor()
        self._vnode.fingers.adopt(0, self._ring.successor)
        self._vnode.rounds += 1
        self._done("stabilize")

    async def consider_successor(self, contact: Contact) -> bool:
        """Query a vnode, and adopt it as the successor if it lies before the current one.

        This step of stabilize also handles an `Offer`. Return whether the vnode was adopted. If it does not lie there,
        or this vnode is not a member, send no query and return False.

        Source: Zave 2017 (TSE), section III, STAB_PRED.
        """
        if not self._ring.is_member or not between(self._vnode.id, contact.id, self._ring.successor.id):
            return False
        before = self._ring.successor
        try:
            await self._ask_pointers(contact, "adopt")
        except PeerGone:
            self.remember_unreachable(contact)
        return self._ring.successor.id == contact.id != before.id

    @handles(Notify)
    def on_notify(self, request: Notify) -> Done:
        """Reply at once, and later run `rectify` for the sender, which may be the predecessor.

        Before this vnode is a member, it only replies.
        """
        if self._ring.is_member:
            self.notified(request.peer)
        return Done()

    @handles(Offer)
    def on_offer(self, request: Offer) -> Done:
        """Reply at once, and later run `consider_successor` for the offered vnode.

        Before this vnode is a member, it only replies.
        """
        if self._ring.is_member:
            self.offered(request.peer)
        return Done()

    @handles(PointersChanged)
    def on_pointers_changed(self, request: PointersChanged) -> Done:
        """Reply at once, and ask both neighbours soon, because the pointers of one of them have changed."""
        self._host.news(self._vnode.id)
        return Done()

    def offered(self, contact: Contact) -> None:
        """Run `consider_successor` for the vnode of an `Offer`, in a separate task.

        Of several waiting offers only the one closest behind this vnode is considered.
        """
        self._offers.announce(contact)

    async def announce(self, to: Contact) -> bool:
        """Tell a neighbour that the pointers of this vnode have changed.

        Return whether the message was delivered.
        """
        try:
            await self._peers.call(to, PointersChanged(), Done)
        except ChordError as error:
            self._host.tell([events.StepFailed(self._vnode.id, "announce", error.word)])
            return False
        return True

    async def _notify_successor(self) -> None:
        head = self._ring.successor
        if head.id == self._vnode.id:
            self.notified(self._vnode.me)
            return
        try:
            await self._peers.call(head, Notify(self._vnode.me), Done)
        except ChordError as error:
            self._host.tell([events.StepFailed(self._vnode.id, "notify", error.word)])

    def _learn_unreachable(self, contact: Contact, reply: GetRingReply, asked_at: float) -> None:
        """Note the clock in a reply, and the down vnodes if the head sent the reply.

        The head is the first entry of the successor list. It knows the down vnodes behind it. If N = 1, parts of this
        vnode's arc are marked for down vnodes inside the arc.
        """
        self._host.note_clock(contact.address, reply.now_ms)
        if self._ring.successor.id == contact.id != self._vnode.id:
            unreachable = ages.down_from_others(reply.unreachable, self._peers, asked_at)
            self._vnode.preference_list.adopt(self._ring.successors, unreachable, is_full=self._ring.is_full)
            # The ring waits for the unreachable vnodes, so the passive list has them.
            for contact, _ in self._vnode.preference_list.unreachable():
                self.remember_unreachable(contact)
            if self._host.constants.replicas == 1:
                self._vnode.ownership.learn_only_copies(unreachable)

    def _forget_head(self, head: Contact) -> None:
        has_left = self._peers.is_known_to_have_left(head)
        if has_left:
            self._vnode.preference_list.gone((head.id,))
        else:
            self._vnode.preference_list.became_unreachable(head, trio.current_time())
        self._host.tell(self._ring.forget_head(head, has_left=has_left))
        self._vnode.fingers.forget(head)
        self.remember_unreachable(head)

    # -- rectify --------------------------------------------------------------------------------

    def notified(self, contact: Contact) -> None:
        """Run `rectify` for a vnode that sent a `Notify`, in a separate task.

        Of several waiting vnodes only the one closest before this vnode is handled.
        """
        self._notices.announce(contact)

    async def rectify(self, contact: Contact) -> None:
        """Adopt a vnode as the predecessor, if it is closer than the current one or the current one is dead.

        Then offer the new predecessor to the old one as a successor. If a node has moved, its vnode is the current
        predecessor and notifies from another address. The new contact then replaces the old one in the same way. If
        this vnode is not a member, nothing happens.

        Source: Zave 2017 (TSE), section III, RECTIFY.
        """
        ring = self._ring
        if not ring.is_member:
            return
        old = ring.predecessor
        happened = ring.learn_predecessor(contact)
        if not happened and old is not None and old != contact and old.id != self._vnode.id:
            for discard in range(DISCARDS_MAX + 1):
                is_last = discard == DISCARDS_MAX
                ring.busy_steps += is_last
                seen = ring.observed
                try:
                    gone = await self._peers.is_gone(old)
                except ChordError:
                    gone = False
                finally:
                    ring.busy_steps -= is_last
                if not gone:
                    return
                if ring.observed == seen:
                    break
                self._host.tell([events.StepAborted(self._vnode.id, "rectify")])
            if contact.id == self._vnode.id and not ring.is_alone:
                return
            if old.id != contact.id:
                self.remember_unreachable(old)
            happened = ring.replace_predecessor(contact, old)
        self._done("rectify")
        if self._host.tell(happened) and old is not None and old.id != contact.id and not self._peers.is_dead(old):
            await self.offer_to(old, contact)

    async def offer_to(self, to: Contact, contact: Contact) -> bool:
        """Offer `contact` to another vnode as its possible successor.

        Return whether the offer was delivered. The other vnode queries the contact itself.
        """
        if to.id == self._vnode.id:
            await self.consider_successor(contact)
            return True
        try:
            await self._peers.call(to, Offer(contact), Done)
        except ChordError as error:
            self._host.tell([events.StepFailed(self._vnode.id, "offer", error.word)])
            return False
        return True

    # -- asking ---------------------------------------------------------------------------------

    async def _ask_pointers(self, contact: Contact, step: Literal["stabilize", "adopt"]) -> GetRingReply | None:
        """Ask a vnode for pointers and adopt them in one transition.

        If this vnode's own pointers were observed meanwhile, discard the reply and ask again. For the step `stabilize`
        the contact is the head, and its list is copied. For `adopt` the contact becomes the new head.

        Returns:
            The reply. None if the vnode's node has announced a pause (see `PeerState`), if it is alive but gave no
            pointers, or if all attempts failed.

        Raises:
            PeerGone: the vnode is dead, no longer at that address, or has not rejoined in time.
        """
        ring = self._ring
        transition = ring.adopt_list if step == "stabilize" else ring.adopt_successor
        discards = 0
        is_busy = False
        try:
            for _ in range(BUSY_RETRIES_MAX + DISCARDS_MAX):
                seen = ring.observed
                asked_at = trio.current_time()
                try:
                    reply = await self._peers.call(contact, GetRing(adopt=contact.id != self._vnode.id), GetRingReply)
                except UnknownVnode as error:
                    raise PeerGone from error
                except NO_REPLY as error:
                    if self._peers.is_dead(contact):
                        raise PeerGone from error
                    if self._peers.failure_detector.state(contact.address) == "paused":
                        return None
                    continue
                except Busy:
                    await trio.sleep(self._host.rng.uniform(0, 4 * self._peers.srtt(contact)))
                    continue
                except NotReady as error:
                    if self._peers.has_lost_its_place(contact):
                        raise PeerGone from error
                    return None
                except ChordError:
                    return None
                self._peers.took_its_place(contact, asked_at, is_owner=reply.owned_from is not None)
                if ring.observed == seen:
                    self._host.tell(transition(contact, reply.successors))
                    self._learn_unreachable(contact, reply, asked_at)
                    return reply
                discards += 1
                self._host.tell([events.StepAborted(self._vnode.id, step)])
                if discards == DISCARDS_MAX:
                    is_busy = True
                    ring.busy_steps += 1
                elif discards < DISCARDS_MAX:
                    await trio.sleep(self._host.rng.uniform(0, 4 * self._peers.srtt(contact)))
            return None
        finally:
            ring.busy_steps -= is_busy

    # -- fingers --------------------------------------------------------------------------------

    async def fix_finger(self) -> None:
        """Refresh the next run of the finger table.

        A run is a number of consecutive entries that point to one vnode. If that vnode still owns the start of the run,
        one call confirms it. Otherwise a lookup finds the owner.

        Raises:
            ChordError: the lookup failed.
            trio.TooSlowError: the lookup did not end within `timeout_cap_s`.

        Source: Stoica et al. 2003, Fig. 6, fix_fingers; one verified reply covers every start in its arc.
        """
        fingers = self._vnode.fingers
        if not self._ring.is_member:
            return
        index = fingers.next_to_refresh()
        if index is None:
            return
        start = fingers.start(index)
        entry = fingers.entry(index)
        found: Contact | None = None
        arc_start = start
        if entry is not None and not self._peers.is_dead(entry):
            try:
                arc_start = (await self._peers.call(entry, Confirm(start), ConfirmReply)).arc_start
                found = entry
            except UnknownVnode:
                self._forget_finger(entry)
            except NO_REPLY:
                if self._peers.is_dead(entry):
                    self._forget_finger(entry)
            except ChordError:
                pass  # the vnode is alive, but another vnode owns the start now: look it up
        if found is None:
            with trio.fail_after(self._host.timing.timeout_cap_s):
                trace = await self._lookups.find(start, self._vnode.me)
                found, arc_start = trace.owner, trace.arc_start
        changed = fingers.adopt_arc(arc_start, found)
        if changed is not None:
            self._host.tell([events.FingerChanged(self._vnode.id, changed[0], changed[1], found)])
        self._done("fix_finger")

    def _forget_finger(self, contact: Contact) -> None:
        self._vnode.fingers.forget(contact)
        self.remember_unreachable(contact)

    # -- small things ---------------------------------------------------------------------------

    def remember_unreachable(self, contact: Contact) -> None:
        """Put a down vnode on the passive list, so that self-lookups probe it.

        A vnode of this node is not added, and neither is a vnode that has left: it will not be back. While the list has
        entries, this node must also keep its reap logs whole (`chord/store/reap_log.py`).
        """
        if contact.id not in self._host.vnodes and not self._peers.is_known_to_have_left(contact):
            if contact.id not in self._peers.passive:
                self._host.news()
            self._peers.passive.add(contact, trio.current_time())

    def _done(self, step: str) -> None:
        self._host.tell([events.StepDone(self._vnode.id, step)])

"""Transfer of an arc and its records to another vnode, for joins and leaves.

The giver still serves the arc while it copies a snapshot, page by page, and then the keys written meanwhile (deltas).
Then it answers *retry* for the arc, and sends `Switch`. When the receiver accepts the `Switch`, it owns the arc in the
next epoch. The giver drops records only after the acknowledgement. If the receiver is found dead before it
acknowledges, the giver owns the arc again. Copies merge by version, so any part may be repeated.

A vnode gives to one vnode and receives from one vnode at a time. A transfer that makes no progress for `lease_s` ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import trio

from chord import events
from chord.errors import Busy, ChordError, DuplicateId, InvalidRequest, Leaving, RemoteFailure
from chord.ids import Arc, Point
from chord.net.calls import Answer
from chord.net.goodbyes import AGE_MS_MAX
from chord.net.handlers import handles
from chord.replication.records import Records
from chord.replication.sync import ReplicaSync
from chord.replication.transfer_source import Outbound, TransferFailed, TransferSender
from chord.ring import ages
from chord.ring.ownership import Giving
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store.identity import StateSaver
from chord.wire.messages import Abandon, Contact, Done, HandOver, JoinArc, StorePage, Switch, TransferInfo

SESSIONS_REMEMBERED = 16


class Inbound:
    """A transfer of an arc that this vnode receives.

    Attributes:
        session: the id of the transfer.
        giver: the address of the giver.
        progress: when the last page arrived, on Trio's clock; before the first page, when the transfer was expected.
        ended: set when the transfer is over, also if it failed.
        is_switched: whether this vnode has accepted the `Switch`, and so owns the arc.
    """

    def __init__(self, session: bytes, giver: str, now: float) -> None:
        self.session = session
        self.giver = giver
        self.progress = now
        self.ended = trio.Event()
        self.is_switched = False


class Transfers:
    """Gives and receives arcs for one vnode.

    Args:
        vnode: the vnode.
        records: merges the records that arrive.
        replica_sync: compares records with the receiver, so that equal records are not sent.
        saver: persists the node's state in `node.json`.

    Attributes:
        outbound: the transfer of an arc from this vnode that runs now; None if this vnode gives no arc.
    """

    def __init__(self, vnode: Vnode, records: Records, replica_sync: ReplicaSync, saver: StateSaver) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._own = vnode.ownership
        self._records = records
        self._saver = saver
        self._sender = TransferSender(vnode, records, replica_sync, saver)
        self.outbound: Outbound | None = None
        self._inbound: Inbound | None = None
        self._switched: list[bytes] = []
        vnode.host.on_write.append(self._note_write)

    @property
    def inbound(self) -> Inbound | None:
        """The transfer of an arc to this vnode that runs now, or None.

        Reading this property ends a transfer that has made no progress for `lease_s` seconds.
        """
        inbound = self._inbound
        if inbound is not None and trio.current_time() - inbound.progress > self._host.timing.lease_s:
            self._inbound = None
            inbound.ended.set()
        return self._inbound

    def transfers(self) -> list[TransferInfo]:
        """Return the transfer of an arc from this vnode that runs now, if any, for status reports."""
        out = self.outbound
        if out is None:
            return []
        past_ms = int(1000 * (trio.current_time() - out.began))
        return [TransferInfo(out.reason, *out.arc, out.to, out.done, out.total, out.bytes, past_ms)]

    def expect(self, session: bytes, giver: str) -> Inbound:
        """Prepare to receive an arc, and return the transfer.

        From now on, this vnode refuses the messages of an earlier transfer.

        Args:
            session: the id of the transfer.
            giver: the address of the node that gives the arc.
        """
        self._inbound = Inbound(session, giver, trio.current_time())
        return self._inbound

    # -- giver: requests ------------------------------------------------------------------------

    @handles(JoinArc)
    def on_join_arc(self, request: JoinArc) -> Done:
        """Begin to give a joiner the part of this vnode's arc up to the joiner's id.

        If the transfer with this session is already under way, do nothing.

        Raises:
            Busy: another transfer is under way, or this vnode is no member.
            Leaving: this node is leaving; `peer` is its successor.
            NotOwner: the joiner's id is not in the arc; `peer` is closer to its owner.
            DuplicateId: the id is this vnode's own.
        """
        joiner = request.joiner
        if joiner.id == self._vnode.id:
            raise DuplicateId(f"{self._vnode.me.address} already stands at this id", peer=self._vnode.me)
        self._refuse_if_leaving()  # first, because a joiner cannot adopt the pointers of a leaver
        self._vnode.require_owner(joiner.id)
        if self.outbound is not None and self.outbound.session != request.session:
            raise Busy("another transfer is under way", after_ms=RETRY_MS)
        if self.inbound is not None or not self._vnode.ring.is_member:
            raise Busy("an arc is being received", after_ms=RETRY_MS)
        start = self._own.start
        assert start is not None
        if self.outbound is None:
            peers = self._host.peers
            peers.took_its_place(joiner, peers.now(), is_owner=True)  # an earlier goodbye no longer counts
            if self._vnode.preference_list.is_forgotten(joiner):
                self._vnode.preference_list.is_back(joiner.address)
            self.outbound = Outbound(request.session, joiner, Arc(start, joiner.id), "join", trio.current_time())
            self._host.tasks.start(self._give_to_joiner, self.outbound)
        return Done()

    async def _give_to_joiner(self, outbound: Outbound) -> None:
        try:
            await self._give(outbound)
        except TransferFailed:
            await self._abandon(outbound)

    async def hand_over(self, to: Contact, session: bytes) -> None:
        """Give the whole arc to the successor, because this node leaves.

        When this returns, the receiver owns the arc.

        Args:
            to: the vnode that accepted a `HandOver`: the successor, or a vnode behind it if the successor also leaves.
            session: the id of that `HandOver`.

        Raises:
            TransferFailed: this vnode still owns the arc, or owned none.
        """
        start = self._own.start
        if self.outbound is not None or start is None:
            raise TransferFailed("another transfer is under way")
        self.outbound = outbound = Outbound(session, to, Arc(start, self._vnode.id), "leave", trio.current_time())
        try:
            await self._give(outbound)
        except TransferFailed:
            await self._abandon(outbound)
            raise

    async def _abandon(self, outbound: Outbound) -> None:
        """Tell the receiver that the transfer has ended.

        If the message gets lost, the receiver's lease runs out.
        """
        try:
            await self._host.peers.call(outbound.to, Abandon(outbound.session), Done)
        except ChordError:
            self._host.counters["abandon_unheard"] += 1

    # -- giver: the work ------------------------------------------------------------------------

    async def _give(self, outbound: Outbound) -> None:
        """Run a transfer: send a snapshot, then later writes (deltas), then the `Switch`.

        After a failure, this vnode still owns the arc, or owns it again.
        """
        arc = outbound.arc
        self._host.tell([events.TransferStarted(self._vnode.id, arc, outbound.to, outbound.reason)])
        outcome = "aborted"
        try:
            if outbound.reason == "join":
                await self._require_reachable(outbound.to)
            if outbound.to.address != self._host.address:
                await self._sender.snapshot(outbound, arc)
            await self._sender.require_saved(outbound)
            if self._own.start != arc.start or self._own.giving is not None:
                raise TransferFailed("the arc changed during the transfer")
            giving = self._own.begin_switch(arc.end, outbound.to)
            await self._complete(outbound, giving)
            outcome = "moved"
        finally:
            self.outbound = None
            self._host.tell([events.TransferEnded(self._vnode.id, arc, outbound.to, outbound.records, outcome)])
        self._host.arc_lost()  # the node drops the records when all their replicas hold them

    async def _require_reachable(self, joiner: Contact) -> None:
        """Open a connection to the address that a joiner advertises.

        If no node can open one, the joiner's arc would have no owner. Until now this vnode may have used the
        connection that the joiner opened.

        Raises:
            TransferFailed: the joiner does not answer at that address.
        """
        if joiner.address == self._host.address:
            return
        try:
            hello = await self._host.peers.reach(joiner.address)
        except ChordError as error:
            raise TransferFailed(f"no answer at the address that the joiner advertises: {error.message}") from error
        if hello is not None and hello.address != joiner.address:
            raise TransferFailed(f"{hello.address or 'a client'} answers at {joiner.address}, not the joiner")

    async def _complete(self, outbound: Outbound, giving: Giving) -> None:
        """Send the last deltas and the `Switch`; after a failure own the arc again.

        Deltas are records that were written since the snapshot began.
        """
        is_acknowledged = False
        try:
            if outbound.to.address != self._host.address:
                await self._sender.sync_logs(outbound, giving.arc)  # includes log entries made since the snapshot
            while outbound.dirty:
                await self._sender.deltas(outbound)
            await self._sender.switch(outbound, giving)
            is_acknowledged = True
        finally:
            if is_acknowledged:
                self._host.tell(self._own.finish_switch())
            elif outbound.reason == "leave" or not self._host.is_ending:  # at the end, node.json must name the joiner
                self._host.tell(self._own.reclaim())
                if outbound.is_unsure and self._host.constants.replicas == 1:
                    self._wait_for_receiver(giving)

    def _wait_for_receiver(self, giving: Giving) -> None:
        """Deny no key of an arc until the receiver is back, which may own it and have the only copies of writes."""
        if giving.to.id not in self._host.vnodes:
            now = self._host.peers.now()
            self._host.peers.passive.add(giving.to, now)
            self._own.mark(giving.arc, [giving.to], now)

    def _note_write(self, point: Point, key: bytes) -> None:
        outbound = self.outbound
        if outbound is not None and point in outbound.arc:
            outbound.dirty[key] = None

    # -- receiver -------------------------------------------------------------------------------

    @handles(HandOver)
    def on_hand_over(self, request: HandOver) -> Done:
        """Agree to receive the arc of the vnode before this one, which leaves.

        The arc itself arrives with the `Switch`.

        Raises:
            Busy: another transfer is under way, this vnode is no member, or its arc does not begin at the leaver (yet).
            Leaving: this node is also leaving, and gives its own arc first; `peer` is this vnode's successor.
        """
        own = self._own
        # A leaver takes the arc of another leaver only across point 0. If none did, and all vnodes left, each would
        # wait for its successor.
        takes_it = self._vnode.id < request.leaver.id and self.outbound is None and own.start is not None
        if not takes_it:
            self._refuse_if_leaving()
        if self.outbound is not None or own.giving is not None or not self._vnode.ring.is_member:
            raise Busy("another transfer is under way", after_ms=RETRY_MS)
        inbound = self.inbound
        if inbound is not None and inbound.giver != request.leaver.address:
            raise Busy("another transfer is under way", after_ms=RETRY_MS)
        if own.start != request.leaver.id:
            raise Busy("this vnode's arc does not begin at the leaver yet", after_ms=RETRY_MS)
        self.expect(request.session, request.leaver.address)
        return Done()

    @handles(StorePage)
    async def on_store_page(self, request: StorePage) -> Done:
        """Merge a page of records of the arc that this vnode receives.

        Raises:
            InvalidRequest: definite; the session is unknown or its lease ran out.
            Behind: definite; the reap logs of giver and receiver differ.
            WritesRefused, Overloaded, RemoteFailure: see `Records.merge`.
        """
        self._session(request.session).progress = trio.current_time()
        await self._records.merge(request.records, request.seen)
        self._host.counters["keys_received"] += len(request.records)
        self._host.tell([events.RecordsReceived(self._vnode.id, len(request.records))])
        return Done()

    @handles(Switch)
    def on_switch(self, request: Switch) -> Answer:
        """Own the arc from now on, because the giver has sent all its records.

        A repeated `Switch` changes nothing.

        If N = 1, the answer waits until this node has persisted its state with the arc. The giver then drops its copy,
        and no other node would know that this node has the records. If N > 1, the answer does not wait.

        Raises:
            InvalidRequest: definite; the session is unknown, the arc does not end where this vnode's arc begins, or
                this node is leaving and owns no arc. The giver keeps the arc.
            RemoteFailure: indefinite; N = 1, and node.json cannot be written. This node owns the arc, and the giver
                repeats the `Switch`.
        """
        if request.session in self._switched:
            return self._acknowledged()
        inbound = self._session(request.session)
        peers = self._host.peers
        marks = ages.marks_from_others(request.marks, peers, peers.sent_before())
        arc = Arc(request.arc_start, request.arc_end)
        happened = self._own.receive(arc, request.epoch, request.boundary, marks, request.before)
        if not happened:
            raise InvalidRequest("the arc does not fit the receiver's arc")
        self._host.tell(happened)
        if request.is_in_sync:
            self._vnode.preference_list.note_in_sync(arc.end, arc)
        else:
            self._own.doubt(arc)
        for contact, since in ages.down_from_others(request.unreachable, peers, peers.sent_before()):
            self._vnode.preference_list.became_unreachable(contact, since)
        self._learn_left(zip(request.left, itertools.chain(request.left_ms, itertools.repeat(None)), strict=False))
        self._vnode.learn_passive(request.passive)
        self._switched = [*self._switched[1 - SESSIONS_REMEMBERED :], request.session]
        inbound.is_switched = True
        self._inbound = None
        inbound.ended.set()
        return self._acknowledged()

    @handles(Abandon)
    def on_abandon(self, request: Abandon) -> Done:
        """End a transfer that the giver has given up; ignore an unknown session."""
        inbound = self._inbound
        if inbound is not None and inbound.session == request.session:
            self._inbound = None
            inbound.ended.set()
        return Done()

    def _acknowledged(self) -> Answer:
        return self._acknowledge_durably() if self._host.constants.replicas == 1 else Done()

    async def _acknowledge_durably(self) -> Done:
        if not await self._saver.save():
            raise RemoteFailure("node.json cannot be written")
        return Done()

    # -- inside ---------------------------------------------------------------------------------

    def _learn_left(self, vnodes: Iterable[tuple[Point, int | None]]) -> None:
        """Remember vnodes that have left, and how long ago, in ms: a node that was away may ask about them."""
        ring, peers = self._vnode.ring, self._host.peers
        listed = {contact.id for contact in (*ring.successors, *ring.predecessors)} | self._host.vnodes.keys()
        for vnode, left_ms in vnodes:
            if vnode not in listed:
                peers.learn_left(vnode, peers.now() - (AGE_MS_MAX if left_ms is None else left_ms) / 1000)

    def _session(self, session: bytes) -> Inbound:
        if self._host.is_leaving and self._own.start is None:  # the giver keeps the arc, and abandons the transfer
            raise InvalidRequest("this node is leaving")
        inbound = self.inbound
        if inbound is None or inbound.session != session:
            raise InvalidRequest("no such transfer session")
        return inbound

    def _refuse_if_leaving(self) -> None:
        if self._host.is_leaving:
            successor = self._vnode.ring.successor if self._vnode.ring.is_member else None
            raise Leaving("this node is leaving", peer=successor, after_ms=RETRY_MS)

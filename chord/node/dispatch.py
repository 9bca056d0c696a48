"""Which request is answered by what: the one table between the wire and the protocol.

A request to a vnode goes to that vnode; one to the node is answered for the node, or forwarded
once to the vnode that owns the key. Answers that need nobody else are given at once, in the
reader's own task; the others need no task either (steps), or are coroutines.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from chord.errors import (
    Busy,
    InvalidRequest,
    Leaving,
    NotReady,
    Overloaded,
    PeerUnreachable,
    UnknownRequest,
    UnknownVnode,
    WritesRefused,
)
from chord.ids import Arc, Point
from chord.net.calls import Answer, Caller
from chord.node.services import Parts
from chord.replication.batch import Batches
from chord.replication.catch_up import CatchUp
from chord.replication.gc import on_are_expired
from chord.replication.handoff import Misplaced
from chord.replication.records import Records, cut_as, is_cut
from chord.replication.replica import Replica
from chord.ring.context import Host
from chord.ring.lookup import Lookups
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store.storage import Batch
from chord.wire.batch import Item
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    Abandon,
    AreExpired,
    Confirm,
    DecideQuarantine,
    Departing,
    Describe,
    Description,
    Done,
    FindNeighbours,
    FindNext,
    Forget,
    Forward,
    Get,
    GetCopies,
    GetHeads,
    GetLogs,
    GetMany,
    GetQuarantine,
    GetRing,
    GetSeen,
    GetSums,
    HandOver,
    JoinArc,
    Leave,
    Level,
    Lookup,
    Merge,
    NeighboursOf,
    Notify,
    Offer,
    Pausing,
    Ping,
    Pong,
    Put,
    PutMany,
    Quarantine,
    ReadCopies,
    ReadCopy,
    Reply,
    Request,
    Retiring,
    Returned,
    Scan,
    ScanPage,
    Settled,
    StoreCopies,
    StoreLogs,
    StorePage,
    Switch,
    Trace,
    Values,
    Vouch,
    Written,
)

# What is answered with *moved* for a while: as a member, a vnode that left is dead.
AFTER_LEAVING = (Confirm, DecideQuarantine, Get, GetMany, GetQuarantine, Merge, Put, PutMany, Scan)


class Dispatcher:
    """Answers every request a node receives.

    Args:
        parts: the node's vnodes by id.
        records, replica, catch_up: what the node holds, and what it says of it to other replicas.
        describe, leave: the node's own answers.
        departed: told that a node left, so that stabilization need not wait for its next round.
        misplaced: knows how many records are kept for others.
    """

    def __init__(
        self,
        host: Host,
        lookups: Lookups,
        parts: dict[Point, Parts],
        records: Records,
        replica: Replica,
        catch_up: CatchUp,
        describe: Callable[[], Description],
        leave: Callable[[], None],
        departed: Callable[[], None],
        misplaced: Misplaced,
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._parts = parts
        self._records = records
        self._replica = replica
        self._catch_up = catch_up
        self._describe = describe
        self._leave = leave
        self._departed = departed
        self._misplaced = misplaced
        self._batches = Batches(host, lookups, self._coordinate, lambda: self._ready().vnode.me)

    def handle(self, vnode: Point | None, request: Request, caller: Caller) -> Answer:
        """Answer a request, at once or in time. The `Handler` of `chord/net/calls.py`.

        Raises:
            UnknownVnode: no such vnode lives here.
            UnknownRequest: a request that is not addressed like that.
        """
        self._host.note_running()
        if caller.address and caller.address != self._host.address:
            self._host.peers.heard_from(caller.address)
        if self._host.is_stalled and not isinstance(request, Describe):
            raise PeerUnreachable("the disk of this node does not answer; ask another node", is_own=True)
        if vnode is None:
            if isinstance(request, (Departing, Pausing, Retiring, Returned)):
                return self._on_goodbye(request, caller)
            for_node = self._FOR_NODE.get(type(request))
            if for_node is not None:
                return for_node(self, request)
        else:
            parts = self._parts.get(vnode)
            if not self._parts:
                raise NotReady("the node is starting", after_ms=RETRY_MS)
            if parts is None:
                raise UnknownVnode(f"no vnode {self._host.circle.hex(vnode)} at {self._host.address}")
            if parts.vnode.state == "left" and type(request) not in AFTER_LEAVING:
                raise UnknownVnode(f"vnode {self._host.circle.hex(vnode)} has left the ring")
            if isinstance(request, GetRing):
                return parts.vnode.on_get_ring(request, caller.address)
            if isinstance(request, Settled):
                return self._on_settled(parts, request, caller)
            if isinstance(request, GetSums):
                parts.vnode.view.compares(caller.address)
            for_vnode = self._FOR_VNODE.get(type(request))
            if for_vnode is not None:
                return for_vnode(self, parts, request)
        raise UnknownRequest(f"{type(request).__name__} is not for {'a node' if vnode is None else 'a vnode'}")

    # -- for a vnode ----------------------------------------------------------------------------

    def _on_notify(self, parts: Parts, request: Notify) -> Done:
        if parts.vnode.ring.is_member:
            parts.stabilizer.notified(request.peer)
        return Done()

    def _on_offer(self, parts: Parts, request: Offer) -> Done:
        if parts.vnode.ring.is_member:
            parts.stabilizer.offered(request.peer)
        return Done()

    async def _on_lookup(self, parts: Parts, request: Lookup) -> Trace:
        return await self._lookups.find(request.key, parts.vnode.me, request.mode, request.route)

    async def _on_find_neighbours(self, parts: Parts, request: FindNeighbours) -> NeighboursOf:
        predecessor, successor = await self._lookups.neighbours(request.point, parts.vnode.me)
        has_left = request.point in self._host.peers.left
        return NeighboursOf(predecessor, successor, self._host.greeter.ring_id, has_left)

    def _on_settled(self, parts: Parts, request: Settled, caller: Caller) -> Done:
        if not parts.vnode.view.was_compared(caller.address):
            raise Busy("this vnode stood still after it was compared: compare again", after_ms=RETRY_MS)
        parts.vnode.view.settled(request.arc_end, Arc(request.arc_start, request.arc_end))  # from an owner come several
        return Done()

    def _on_store_copies(self, request: StoreCopies) -> Answer:
        """Keep copies, also while this node hands over: another leaver may need one more holder. Not after that."""
        if self._host.is_leaving and self._host.is_ending:
            raise Leaving("this node is leaving", after_ms=RETRY_MS)
        if request.is_hint and self._misplaced.hints >= self._host.limits.hints_max:
            raise Overloaded("this node keeps as many records for others as it may", after_ms=RETRY_MS)
        return self._replica.on_store_copies(request)

    async def _on_scan(self, parts: Parts, request: Scan) -> ScanPage:
        """Return the next page of a vnode's records clockwise after a point: as it holds them, whoever else does."""
        circle = self._host.circle
        parts.vnode.require_owner(circle.point(request.after + 1))
        silent = parts.repair.silent()
        if not silent and not parts.repair.is_complete():  # with so many silent it may stay so: the page says who
            raise Busy("the records of this arc are being brought level", after_ms=RETRY_MS)
        records, has_more = self._records.page(
            Arc(request.after, parts.vnode.id), request.after_key, request.limit, request.what
        )
        page = tuple(cut_as(record, request.what, self._host.limits.record_bytes_max) for record in records)
        try:
            await self._host.storage.commit(Batch())
        except WritesRefused:
            raise Busy("what was read has been taken back: the disk is full", after_ms=RETRY_MS) from None
        damaged = () if has_more else tuple(self._host.storage.damaged(Arc(request.after, parts.vnode.id)))
        last = page[-1].key if has_more else None
        cut = tuple(whole.key for whole, shown in zip(records, page, strict=True) if is_cut(whole, shown, request.what))
        now_ms = self._host.wall_now_ms()
        return ScanPage(page, parts.vnode.id, last, now_ms, silent, damaged[:LIST_ENTRIES_MAX], cut)

    def _coordinate(self, vnode: Vnode, item: Item) -> Answer:
        """Read or write one key of a batch."""
        coordinator = self._parts[vnode.id].coordinator
        if isinstance(item, Get):
            return coordinator.get(item)
        return coordinator.put(item) if isinstance(item, Put) else coordinator.merge(item)

    # -- for the node ---------------------------------------------------------------------------

    def _first(self) -> Parts:
        for parts in self._parts.values():
            return parts
        raise NotReady("the node is starting", after_ms=RETRY_MS)

    def _ready(self) -> Parts:
        for parts in self._parts.values():
            if parts.vnode.ring.is_member and parts.vnode.state != "left":
                return parts
        raise NotReady("the node is not in the ring", after_ms=RETRY_MS)

    def _foremost(self) -> Parts:
        """Return a vnode that is in the ring, if there is one; else any."""
        every = self._parts.values()
        return next((parts for parts in every if parts.vnode.ring.is_member), None) or self._first()

    def _owned(self, request: Request, point: Point, expect: type[Reply]) -> Answer:
        """Answer from a local arc where the point is in one, else bring the request to its owner."""
        owner = self._host.owner_of(point)
        if owner is not None:
            return self._FOR_VNODE[type(request)](self, self._parts[owner.id], request)
        return self._forward(request, point, expect)

    async def _forward(self, request: Request, point: Point, expect: type[Reply]) -> Reply:
        reply, path, _, _ = await self._lookups.deliver(request, expect, point, self._ready().vnode.me)
        self._host.counters["forwarded"] += 1
        self._host.counters["forward_calls"] += path.calls
        return reply

    def _on_goodbye(self, request: Departing | Pausing | Retiring | Returned, caller: Caller) -> Done:
        """A node says of itself that it comes or goes, and nobody of anybody else."""
        if not caller.address or caller.address != request.address:
            raise InvalidRequest("a goodbye is said by the node that goes")
        if isinstance(request, Departing):
            self._inherit(request)
            left = {parting.vnode.id for parting in request.partings}
            self._host.peers.has_left(request.address, left)
            for vnode in self._host.vnodes.values():
                vnode.view.gone(left)
                vnode.view.stays(request.address)
            self._departed()
        elif isinstance(request, Returned):
            self._host.peers.passive.hurry(request.address, self._host.peers.now())
            for parts in self._parts.values():
                parts.vnode.view.is_back(request.address)
                parts.repair.fell_behind(request.address)
        elif isinstance(request, Retiring):
            for vnode in self._host.vnodes.values():
                vnode.view.retires(request.address, self._host.peers.now())
        else:  # that it was about to leave no longer holds: it gave up, and keeps what it has
            for vnode in self._host.vnodes.values():
                vnode.view.stays(request.address)
            self._host.peers.has_paused(request.address, is_only_copy=self._host.constants.replicas == 1)
            self._departed()
        return Done()

    def _inherit(self, request: Departing) -> None:
        """Take the lists of heads that go: again and again, for several of them may stand in a row."""
        for parting in request.partings * len(request.partings):
            if parting.vnode.address == request.address:
                for parts in self._parts.values():
                    self._host.tell(parts.vnode.ring.inherit(parting.vnode, parting.successors))
                    parts.vnode.fingers.forget(parting.vnode)

    def _on_forget(self, request: Forget) -> Done:
        """Wait no longer for what a node holds: an operator says that it will not be back."""
        now = self._host.peers.now()
        living = frozenset(request.living)
        for vnode in self._host.vnodes.values():
            own = vnode.ownership
            gone = (mark.dead for mark in own.taken if mark.dead.address == request.address)
            own.owner_left({dead.id for dead in gone if dead.id not in living})
            vnode.view.forget(request.address, now, living, forgotten_max=self._host.limits.forgotten_max)
        self._host.peers.passive.forget_at(request.address, living)
        return Done()

    def _on_leave(self, request: Leave) -> Done:
        self._leave()
        return Done()

    # -- the table ------------------------------------------------------------------------------

    _FOR_VNODE: ClassVar[dict[type[Request], Callable[[Dispatcher, Parts, Any], Answer]]] = {
        Ping: lambda d, p, q: _pong(p.vnode),
        FindNext: lambda d, p, q: p.vnode.on_find_next(q),
        Confirm: lambda d, p, q: p.vnode.on_confirm(q),
        Notify: _on_notify,
        Offer: _on_offer,
        Forward: lambda d, p, q: d._lookups.forward(q, p.vnode.me),
        Lookup: _on_lookup,
        FindNeighbours: _on_find_neighbours,
        Get: lambda d, p, q: p.coordinator.get(q),
        Put: lambda d, p, q: p.coordinator.put(q),
        Merge: lambda d, p, q: p.coordinator.merge(q),
        GetQuarantine: lambda d, p, q: p.coordinator.get_quarantine(q),
        DecideQuarantine: lambda d, p, q: p.coordinator.decide(q),
        GetMany: lambda d, p, q: d._batches.for_vnode(p.vnode, q),
        PutMany: lambda d, p, q: d._batches.for_vnode(p.vnode, q),
        Scan: _on_scan,
        ReadCopies: lambda d, p, q: d._replica.on_read_copies(q),
        ReadCopy: lambda d, p, q: d._replica.on_read_copy(q),
        StoreCopies: lambda d, p, q: d._on_store_copies(q),
        GetSums: lambda d, p, q: d._replica.on_get_sums(q),
        GetHeads: lambda d, p, q: d._replica.on_get_heads(q),
        GetCopies: lambda d, p, q: d._replica.on_get_copies(q),
        AreExpired: lambda d, p, q: on_are_expired(d._host, q),
        GetSeen: lambda d, p, q: d._catch_up.on_get_seen(q),
        GetLogs: lambda d, p, q: d._catch_up.on_get_logs(q),
        StoreLogs: lambda d, p, q: d._catch_up.on_store_logs(q),
        Level: lambda d, p, q: d._catch_up.on_level(q),
        Vouch: lambda d, p, q: d._catch_up.on_vouch(q),
        JoinArc: lambda d, p, q: p.mover.on_join_arc(q),
        HandOver: lambda d, p, q: p.mover.on_hand_over(q),
        StorePage: lambda d, p, q: p.mover.on_store_page(q),
        Switch: lambda d, p, q: p.mover.on_switch(q),
        Abandon: lambda d, p, q: p.mover.on_abandon(q),
    }
    _FOR_NODE: ClassVar[dict[type[Request], Callable[[Dispatcher, Any], Answer]]] = {
        Ping: lambda d, q: _pong(d._foremost().vnode),
        Lookup: lambda d, q: d._on_lookup(d._ready(), q),
        FindNeighbours: lambda d, q: d._on_find_neighbours(d._ready(), q),
        Get: lambda d, q: d._owned(q, d._host.circle.hash(q.key), Values),
        Put: lambda d, q: d._owned(q, d._host.circle.hash(q.key), Written),
        Merge: lambda d, q: d._owned(q, d._host.circle.hash(q.record.key), Written),
        GetQuarantine: lambda d, q: d._owned(q, d._host.circle.hash(q.key), Quarantine),
        DecideQuarantine: lambda d, q: d._owned(q, d._host.circle.hash(q.key), Written),
        GetMany: lambda d, q: d._batches.for_node(q),
        PutMany: lambda d, q: d._batches.for_node(q),
        Scan: lambda d, q: d._owned(q, d._host.circle.point(q.after + 1), ScanPage),
        Describe: lambda d, q: d._describe(),
        Leave: _on_leave,
        Forget: _on_forget,
    }


def _pong(vnode: Vnode) -> Pong:
    vnode.note_quorum()
    state = "leaving" if vnode.state == "left" else vnode.state
    return Pong(state, vnode.ownership.start is not None, vnode.has_met_quorum)


"""Which request is answered by what: the one table between the wire and the protocol.

A request to a vnode goes to that vnode; one to the node is answered for the node, or forwarded
once to the vnode that owns the key. Answers that need nobody else are given at once, in the
reader's own task; the others are coroutines.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeAlias

from chord.calls import Caller
from chord.data.records import Records
from chord.data.transfer import Mover
from chord.errors import InvalidRequest, NotReady, UnknownRequest, UnknownVnode
from chord.host import Host
from chord.ids import Point
from chord.lookup import Lookups
from chord.membership import Membership
from chord.messages import (
    Abandon,
    Confirm,
    Departing,
    Describe,
    Description,
    Done,
    FindNeighbours,
    FindNext,
    Forward,
    Get,
    GetRing,
    HandOver,
    JoinArc,
    Leave,
    Lookup,
    NeighboursOf,
    Notify,
    Offer,
    Pausing,
    Ping,
    Pong,
    Put,
    Reply,
    Request,
    Scan,
    ScanPage,
    StorePage,
    Switch,
    Trace,
    Values,
    Written,
)
from chord.self_lookup import SelfLookup
from chord.stabilize import Stabilizer
from chord.vnode import RETRY_MS, Vnode

Answer: TypeAlias = Reply | Coroutine[Any, Any, Reply]

AFTER_LEAVING = (Confirm, Get, Put, Scan)  # answered with *moved* for a while; as a member, a vnode that left is dead


class Parts:
    """A vnode with everything that works for it."""

    def __init__(self, vnode: Vnode, lookups: Lookups) -> None:
        self.vnode = vnode
        self.records = Records(vnode)
        self.mover = Mover(vnode, self.records)
        self.stabilizer = Stabilizer(vnode, lookups)
        self.self_lookup = SelfLookup(vnode, self.stabilizer)
        self.membership = Membership(vnode, self.mover)


class Dispatcher:
    """Answers every request a node receives.

    Args:
        parts: the node's vnodes by id.
        describe, leave: the node's own answers.
        departed: told the address of a node that left, so that stabilization need not wait for its next round.
    """

    def __init__(
        self,
        host: Host,
        lookups: Lookups,
        parts: dict[Point, Parts],
        describe: Callable[[], Description],
        leave: Callable[[], None],
        departed: Callable[[], None],
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._parts = parts
        self._describe = describe
        self._leave = leave
        self._departed = departed

    def handle(self, vnode: Point | None, request: Request, caller: Caller) -> Answer:
        """Answer a request: at once, or with a coroutine where it must wait. The `Handler` of `chord/calls.py`.

        Raises:
            UnknownVnode: no such vnode lives here.
            UnknownRequest: a request that is not addressed like that.
        """
        if caller.address and caller.address != self._host.address:
            self._host.peers.heard_from(caller.address)
        if vnode is None:
            if isinstance(request, (Departing, Pausing)):
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
        return NeighboursOf(predecessor, successor, self._host.greeter.ring_id)

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

    def _on_goodbye(self, request: Departing | Pausing, caller: Caller) -> Done:
        """A node says so of itself, and nobody of anybody else."""
        if not caller.address or caller.address != request.address:
            raise InvalidRequest("a goodbye is said by the node that goes")
        if isinstance(request, Departing):
            self._inherit(request)
            self._host.peers.has_left(request.address)
            self._departed()
        else:
            self._host.peers.has_paused(request.address)
        return Done()

    def _inherit(self, request: Departing) -> None:
        """Take the lists of heads that go: again and again, for several of them may stand in a row."""
        for parting in request.partings * len(request.partings):
            if parting.vnode.address == request.address:
                for parts in self._parts.values():
                    self._host.tell(parts.vnode.ring.inherit(parting.vnode, parting.successors))
                    parts.vnode.fingers.forget(parting.vnode)

    def _on_leave(self, request: Leave) -> Done:
        self._leave()
        return Done()

    # -- the table ------------------------------------------------------------------------------

    _FOR_VNODE: ClassVar[dict[type[Request], Callable[[Dispatcher, Parts, Any], Answer]]] = {
        Ping: lambda d, p, q: _pong(p.vnode),
        GetRing: lambda d, p, q: p.vnode.on_get_ring(q),
        FindNext: lambda d, p, q: p.vnode.on_find_next(q),
        Confirm: lambda d, p, q: p.vnode.on_confirm(q),
        Notify: _on_notify,
        Offer: _on_offer,
        Forward: lambda d, p, q: d._lookups.forward(q, p.vnode.me),
        Lookup: _on_lookup,
        FindNeighbours: _on_find_neighbours,
        Get: lambda d, p, q: p.records.get(q),
        Put: lambda d, p, q: p.records.put(q),
        Scan: lambda d, p, q: p.records.scan(q),
        JoinArc: lambda d, p, q: p.mover.on_join_arc(q),
        HandOver: lambda d, p, q: p.mover.on_hand_over(q),
        StorePage: lambda d, p, q: p.mover.on_store_page(q),
        Switch: lambda d, p, q: p.mover.on_switch(q),
        Abandon: lambda d, p, q: p.mover.on_abandon(q),
    }
    _FOR_NODE: ClassVar[dict[type[Request], Callable[[Dispatcher, Any], Answer]]] = {
        Ping: lambda d, q: _pong(d._first().vnode),
        Lookup: lambda d, q: d._on_lookup(d._ready(), q),
        FindNeighbours: lambda d, q: d._on_find_neighbours(d._ready(), q),
        Get: lambda d, q: d._owned(q, d._host.circle.hash(q.key), Values),
        Put: lambda d, q: d._owned(q, d._host.circle.hash(q.key), Written),
        Scan: lambda d, q: d._owned(q, d._host.circle.point(q.after + 1), ScanPage),
        Describe: lambda d, q: d._describe(),
        Leave: _on_leave,
    }


def _pong(vnode: Vnode) -> Pong:
    return Pong("leaving" if vnode.state == "left" else vnode.state, vnode.ownership.start is not None)


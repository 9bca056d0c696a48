"""Dispatch of requests to their handlers.

A request to a vnode goes to a service of that vnode. The dispatcher itself handles a request to the node. It passes a
request for a key to the local vnode that owns the key, or forwards it to the owner. Services declare their handlers
with `@handles` (`chord/net/handlers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from chord.errors import NotReady, PeerUnreachable, UnknownRequest, UnknownVnode
from chord.ids import Point
from chord.membership.gossip import MemberGossip
from chord.membership.leave import Departures
from chord.net.calls import Answer, Caller
from chord.net.handlers import HandlerTable, handler_table, handles
from chord.node.services import VnodeServices
from chord.node.watchers import Watchers
from chord.replication.batch import Batches
from chord.replication.cuts import Cuts
from chord.ring.context import NodeContext
from chord.ring.lookup import Lookups
from chord.ring.vnode import RETRY_MS, member_of
from chord.wire.batch import BatchRequest
from chord.wire.messages import (
    Confirm,
    DecideQuarantine,
    Describe,
    Done,
    FindNeighbours,
    Get,
    GetEvents,
    GetMany,
    GetMetrics,
    GetQuarantine,
    GetStatus,
    Leave,
    Lookup,
    Merge,
    Ping,
    Put,
    PutMany,
    Reply,
    Request,
    Returned,
    Scan,
    Status,
)

AFTER_LEAVING: Final = (Confirm, DecideQuarantine, Get, GetMany, GetQuarantine, Merge, Put, PutMany, Scan)
"""Requests that a vnode still answers for a while after it left, with `NotOwner` and the new owner."""

WHILE_STALLED: Final = (Describe, GetEvents, GetMetrics, GetStatus, Returned)
"""Requests that a node answers while its disk hangs. None of them needs the disk."""


class Dispatcher:
    """Answers every request that a node receives.

    Args:
        host: the node context.
        lookups: finds the owners of keys, and delivers forwarded requests.
        vnodes: the services of the node's vnodes, by id.
        batches: answers batches of clients.
        departures: handles the goodbyes of other nodes.
        watchers: answers the requests of watchers.
        cuts: reads the cut of this node.
        gossip: exchanges the membership list.
        note_running: called before each request, to notice whether the process was suspended.
        status: returns the status of the node.
        leave: lets the node begin to leave.
    """

    __slots__ = (
        "_batches", "_host", "_leave", "_lookups", "_note_running", "_status", "_vnodes", "cuts", "departures",
        "gossip", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        host: NodeContext,
        lookups: Lookups,
        vnodes: Mapping[Point, VnodeServices],
        batches: Batches,
        departures: Departures,
        watchers: Watchers,
        cuts: Cuts,
        gossip: MemberGossip,
        note_running: Callable[[], None],
        status: Callable[[], Status],
        leave: Callable[[], None],
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._vnodes = vnodes
        self._batches = batches
        self.departures = departures
        self.watchers = watchers
        self.cuts = cuts
        self.gossip = gossip
        self._note_running = note_running
        self._status = status
        self._leave = leave

    def handle(self, vnode: Point | None, request: Request, caller: Caller) -> Answer:
        """Answer a request to this node, or to one of its vnodes.

        This is the `RequestHandler` of `chord/net/calls.py`.

        Args:
            vnode: the id of the called vnode; None for a request to the node.
            request: the request.
            caller: the calling node or client.

        Raises:
            NotReady: definite; the node is starting.
            PeerUnreachable: definite; the disk of this node does not answer.
            UnknownVnode: definite; this node does not have the vnode, or the vnode has left.
            UnknownRequest: definite; the request is not for a node, or not for a vnode.
        """
        self._note_running()
        if caller.address and caller.address != self._host.address:
            self._host.peers.heard_from(caller.address)
        if self._host.is_stalled and not isinstance(request, WHILE_STALLED):
            raise PeerUnreachable("the disk of this node does not answer; ask another node", is_own=True)
        owner: object = self
        if vnode is None:
            handler = self.HANDLERS.get(type(request))
        else:
            owner = services = self._vnodes.get(vnode)
            if services is None or services.vnode.state == "left":
                owner = self._services_of(vnode, request)
            handler = VnodeServices.HANDLERS.get(type(request))
        if handler is None:
            raise UnknownRequest(f"{type(request).__name__} is not for {'a node' if vnode is None else 'a vnode'}")
        method = handler.of(owner)
        answer: Answer = method(request, caller) if handler.takes_caller else method(request)
        return answer

    def _services_of(self, vnode: Point, request: Request) -> VnodeServices:
        services = self._vnodes.get(vnode)
        if not self._vnodes:
            raise NotReady("the node is starting", after_ms=RETRY_MS)
        if services is None:
            raise UnknownVnode(f"no vnode {self._host.circle.hex(vnode)} at {self._host.address}")
        if services.vnode.state == "left" and type(request) not in AFTER_LEAVING:
            raise UnknownVnode(f"vnode {self._host.circle.hex(vnode)} has left the ring")
        return services

    # -- requests to the node -------------------------------------------------------------------------

    @handles(Get, Put, Merge, GetQuarantine, DecideQuarantine, Scan)
    def on_keyed(self, request: Get | Put | Merge | GetQuarantine | DecideQuarantine | Scan) -> Answer:
        """Answer at the local vnode that owns the key, or forward the request.

        For a scan, the point behind `after` counts in place of the key. If any replica may answer a get, a vnode with
        a copy in sync does.
        """
        if isinstance(request, Get) and request.any:
            for services in self._vnodes.values():
                if services.vnode.ring.is_member and (reply := services.reads.get_local(request)) is not None:
                    return reply
        circle = self._host.circle
        if isinstance(request, Scan):
            point = circle.point(request.after + 1)
        else:
            point = circle.hash(request.record.key if isinstance(request, Merge) else request.key)
        owner = self._host.owner_of(point)
        if owner is None:
            return self._forward(request, point)
        answer: Answer = VnodeServices.HANDLERS[type(request)].of(self._vnodes[owner.id])(request)
        return answer

    async def _forward(self, request: Request, point: Point) -> Reply:
        start = member_of(self._host).me
        reply, path, _, _ = await self._lookups.deliver(request, request.reply, point, start)
        self._host.counters["forwarded"] += 1
        self._host.counters["forward_calls"] += path.calls
        return reply

    @handles(GetMany, PutMany)
    def on_batch(self, request: BatchRequest) -> Answer:
        """Coordinate the reads or writes of a batch for local keys; forward the others."""
        return self._batches.for_node(request)

    @handles(Lookup, FindNeighbours)
    def on_lookup(self, request: Lookup | FindNeighbours) -> Answer:
        """Make a lookup that starts at the first of this node's vnodes that has joined the ring."""
        answer: Answer = VnodeServices.HANDLERS[type(request)].of(self._vnodes[member_of(self._host).id])(request)
        return answer

    @handles(Ping)
    def on_ping(self, request: Ping) -> Answer:
        """Return the state of the first member vnode, or of the first vnode if none is."""
        every = self._vnodes.values()
        services = next((services for services in every if services.vnode.ring.is_member), None)
        return (services or self._first()).on_ping(request)

    @handles(GetStatus)
    def on_get_status(self, request: GetStatus) -> Status:
        """Return the status of this node."""
        return self._status()

    @handles(Leave)
    def on_leave(self, request: Leave) -> Done:
        """Begin to leave the ring, and reply at once."""
        self._leave()
        return Done()

    def _first(self) -> VnodeServices:
        for services in self._vnodes.values():
            return services
        raise NotReady("the node is starting", after_ms=RETRY_MS)

    HANDLERS: ClassVar[HandlerTable]


Dispatcher.HANDLERS = handler_table(
    Dispatcher, departures=Departures, watchers=Watchers, cuts=Cuts, gossip=MemberGossip
)

"""The services of one vnode, and the requests that they answer."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

from chord.errors import Busy
from chord.ids import Arc
from chord.membership.gossip import MemberGossip
from chord.membership.join import Membership
from chord.membership.rejoin import Rejoin
from chord.net.calls import Answer, Caller
from chord.net.goodbyes import age_ms
from chord.net.handlers import HandlerTable, handler_table, handles
from chord.net.steps import Steps
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.batch import Batches
from chord.replication.coordinator import Coordinator
from chord.replication.gc import GarbageCollector
from chord.replication.read import QuorumReads
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.records import Records
from chord.replication.replica import Replica
from chord.replication.scan import Scanner
from chord.replication.sync import ReplicaSync
from chord.replication.transfer import Transfers
from chord.ring.lookup import Lookups
from chord.ring.merge import RingMerge
from chord.ring.routing import Router
from chord.ring.takeover import Takeover
from chord.ring.vnode import RETRY_MS, Vnode
from chord.stabilize import Stabilizer
from chord.store.identity import StateSaver
from chord.wire.batch import BatchRequest, Item
from chord.wire.messages import (
    Done,
    FindNeighbours,
    FindNeighboursReply,
    Forward,
    Get,
    GetMany,
    GetSums,
    InSync,
    Lookup,
    Ping,
    PingReply,
    Put,
    PutMany,
    Reply,
    Trace,
)


class NodeServices(NamedTuple):
    """The services that all vnodes of a node share."""

    router: Router
    lookups: Lookups
    records: Records
    replica_sync: ReplicaSync
    log_sync: ReapLogSync
    replica: Replica
    batches: Batches
    gossip: MemberGossip
    saver: StateSaver


class VnodeServices:
    """A vnode with its services: protocol, transfers, reads, writes, anti-entropy."""

    __slots__ = (
        "coordinator", "gossip", "log_sync", "membership", "reads", "reaper", "records", "rejoin", "repair", "replica",
        "ring_merge", "scanner", "shared", "stabilizer", "takeover", "transfers", "vnode",
    )  # fmt: skip

    def __init__(self, vnode: Vnode, shared: NodeServices) -> None:
        self.vnode = vnode
        self.shared = shared
        self.records = shared.records
        self.log_sync = shared.log_sync
        self.replica = shared.replica
        self.gossip = shared.gossip
        self.repair = AntiEntropy(vnode, shared.replica_sync)
        self.reaper = GarbageCollector(vnode, self.repair, shared.log_sync)
        self.coordinator = Coordinator(vnode, shared.records, self.repair, shared.log_sync)
        self.reads = self.coordinator.reads
        self.scanner = Scanner(vnode, shared.records, self.repair)
        self.transfers = Transfers(vnode, shared.records, shared.replica_sync, shared.saver)
        self.stabilizer = Stabilizer(vnode, shared.lookups)
        self.takeover = Takeover(vnode, self.stabilizer)
        self.ring_merge = RingMerge(vnode, self.stabilizer)
        self.membership = Membership(vnode, self.transfers)
        self.rejoin = Rejoin(vnode, self.membership)

    @handles(Ping)
    def on_ping(self, request: Ping) -> PingReply:
        """Return the state of the vnode, for example "member"."""
        vnode = self.vnode
        vnode.note_quorum()
        state = "leaving" if vnode.state == "left" else vnode.state
        return PingReply(state, vnode.ownership.start is not None, vnode.has_met_quorum)

    @handles(Forward)
    def on_forward(self, request: Forward) -> Answer:
        """Carry on a recursive lookup, and return its hops from here on."""
        return self.shared.router.forward(request, self.vnode.me)

    @handles(Lookup)
    async def on_lookup(self, request: Lookup) -> Trace:
        """Look up a point, starting at this vnode."""
        return await self.shared.lookups.find(request.key, self.vnode.me, request.mode, request.route)

    @handles(FindNeighbours)
    async def on_find_neighbours(self, request: FindNeighbours) -> FindNeighboursReply:
        """Find the neighbours of a point, starting at this vnode."""
        host = self.vnode.host
        predecessor, successor = await self.shared.lookups.neighbours(request.point, self.vnode.me)
        left_at = host.peers.goodbyes.said_at(request.point)
        left_ms = None if left_at is None else age_ms(host.peers.now(), left_at)
        return FindNeighboursReply(predecessor, successor, host.hello_policy.ring_id, left_at is not None, left_ms)

    @handles(GetMany, PutMany)
    def on_batch(self, request: BatchRequest) -> Answer:
        """Coordinate the reads or writes of a batch; keys of other owners are refused."""
        return self.shared.batches.for_vnode(self.vnode, request)

    @handles(GetSums, takes_caller=True)
    def on_get_sums(self, request: GetSums, caller: Caller) -> Answer:
        """Return digest sums of an arc, to begin a comparison; see `Replica.on_get_sums`.

        From now on the caller may report this vnode in sync; see `on_in_sync`.
        """
        self.vnode.preference_list.compares(caller.address)
        return self.replica.on_get_sums(request)

    @handles(InSync, takes_caller=True)
    def on_in_sync(self, request: InSync, caller: Caller) -> Done:
        """Note that this vnode holds every acknowledged write of an arc (it is in sync).

        The owner of the arc says so after a comparison.

        Raises:
            Busy: definite; the owner has not compared since this process was last suspended.
        """
        preference_list = self.vnode.preference_list
        if not preference_list.was_compared(caller.address):
            raise Busy("this vnode stood still after it was compared: compare again", after_ms=RETRY_MS)
        arc = Arc(request.arc_start, request.arc_end)
        preference_list.note_in_sync(arc.end, arc)  # an owner may send several
        return Done()

    HANDLERS: ClassVar[HandlerTable]


VnodeServices.HANDLERS = handler_table(
    VnodeServices,
    vnode=Vnode,
    stabilizer=Stabilizer,
    coordinator=Coordinator,
    reads=QuorumReads,
    scanner=Scanner,
    replica=Replica,
    reaper=GarbageCollector,
    log_sync=ReapLogSync,
    transfers=Transfers,
    gossip=MemberGossip,
)


def coordinate(services: VnodeServices, item: Item) -> Reply | Steps[Any]:
    """Read or write one key of a batch at a vnode.

    Return the reply if it is known at once, and otherwise the steps that end in the reply.
    """
    if isinstance(item, Get):
        return services.reads.begin_get(item, is_in_batch=True)
    coordinator = services.coordinator
    return coordinator.put_in_batch(item) if isinstance(item, Put) else coordinator.merge(item)

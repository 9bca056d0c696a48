"""A node of a ring: its services, its nurseries, its start and its end.

    connections nursery     outer: RPC; a peer's failure ends there, as an event
    └─ maintenance nursery  inner: joining, stabilize, fix fingers, self-lookup, handoff

`stop` says goodbye, cancels the inner nursery, lets calls in progress finish, and cancels the outer nursery. `leave`
first hands everything over, with maintenance still running.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from functools import cached_property, partial
from typing import Any, Literal

import trio

from chord.client.operations import Operations
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import TIMEOUT_S, ClientCall, ClientSession, Outcome
from chord.client.trio_driver import TrioApi, require_trio
from chord.config import NodeConfig, Preset, RingConstants
from chord.errors import (
    ChordError,
    ConfigError,
    DeadlineExceeded,
    DuplicateId,
    NotReady,
    OtherRing,
    PeerUnreachable,
    WritesRefused,
    unwrapped,
)  # fmt: skip
from chord.events import Emitted, NodeStateChanged, Observer, PeerChanged, ignore, is_news
from chord.ids import Arc, Point, vnode_id
from chord.membership.gossip import MemberGossip
from chord.membership.join import LastTime
from chord.membership.leave import Departures
from chord.net.peers import Peers
from chord.net.steps import Steps
from chord.node import restart
from chord.node.disk_watch import DiskWatch
from chord.node.dispatch import Dispatcher
from chord.node.maintenance import Maintenance
from chord.node.persisted import last_time, recall
from chord.node.saving import OpenFiles, Saver
from chord.node.services import NodeServices, VnodeServices, coordinate
from chord.node.shutdown import Shutdown
from chord.node.status import NodeFacts, node_status
from chord.node.watchers import Watchers
from chord.node.world import World, stream_of
from chord.observe.event_log import EventLog
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.batch import Batches
from chord.replication.cuts import Cuts
from chord.replication.handoff import Handoff
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.records import Records
from chord.replication.replica import Replica
from chord.replication.sync import ReplicaSync
from chord.ring.context import NodeContext
from chord.ring.lookup import Lookups
from chord.ring.routing import Router
from chord.ring.vnode import Vnode
from chord.store.identity import Kept
from chord.wire.batch import Item
from chord.wire.cuts import CutNumber
from chord.wire.hello import HelloPolicy
from chord.wire.messages import FEATURE_MEMBERS, STATUS_PARTS, Contact, NodeState, Reply, Status, StatusPart


class Node(TrioApi):
    """A node of a ring, created by `open_node`.

    It reads and writes like a client (`AsyncApi`). The caller's cancel scopes limit the time of every operation. If no
    scope has a deadline, `timeout_s` is the limit: 5 seconds by default.

    Args:
        config: the node's configuration, see `NodeConfig`.
        world: the network, store, clock and randomness that the node uses, see `chord/node/world.py`; default: those of
            a real process.

    Attributes:
        config: the configuration that was given.
        state: starting, joining or resuming, ready, leaving, then left or stopped.
        started_at: time at which the node began to take calls, on Trio's clock; 0 before that.
        closed: set when `run` has ended.
        timeout_s: the limit in seconds if no cancel scope has a deadline. It may be changed between operations.

    Operations may begin as soon as `run` has reported the address. Until the node is ready the ring may not know it,
    and operations are retried. `leave` and `stop` end this node.
    """

    def __init__(self, config: NodeConfig, world: World | None = None) -> None:
        world = world or World.real(config)

        # The life of the node: `run`, `stop` and `leave` change it.
        self.config = config
        self._limits = config.limits  # for the operations of `AsyncApi`
        self.state: NodeState = "starting"
        self.started_at = 0.0
        self.closed = trio.Event()
        self._ready = trio.Event()
        self._ending = trio.Event()
        self._how: Literal["stop", "leave"] = "stop"
        self._fatal: ChordError | None = None
        self._goodbye: tuple[str, ...] = ()
        self._others = config.join  # addresses to ask about other rings, besides the ring pointers

        # The calls to other nodes, and the context that the vnodes share. `run` adds the vnodes.
        keeps_members = config.members == "on"
        self._hello_policy = HelloPolicy(config.ring, FEATURE_MEMBERS if keeps_members else 0)
        self._observer = world.observe
        events = EventLog(config.limits.events_max, trio.current_time, world.wall_now_ms, self._observe)
        self._cut_number = CutNumber(self._take_cut)
        self._calls = world.connect(config, self._hello_policy, events.emit, self._cut_number)
        peers = Peers(self._calls, config.timing, events.emit, config.limits)
        self._host = host = NodeContext(
            config, peers, world.storage, world.rng, world.wall_now_ms, events, self._hello_policy
        )
        host.health.watch("descriptors", self._calls.shortage)
        self._parts: dict[Point, VnodeServices] = {}

        # The services that the vnodes share.
        self._saver = Saver(host, world.identity, self._end_without_directory)
        router = Router(host)
        self._lookups = Lookups(host, router)
        records = Records(host)
        log_sync = ReapLogSync(host, host.reap_log)
        replica_sync = ReplicaSync(host, records.merge, log_sync)
        self._handoff = Handoff(host, self._lookups, replica_sync, self._saver, self._is_receiving)
        replica = Replica(host, records.stage, records.stage_if_covering, self._handoff.compared, self._hints)
        batches = Batches(host, self._lookups, self._coordinate)
        # A source of its own, so that a node without a list draws the same numbers as before.
        self._gossip = MemberGossip(host, self._lookups, stream_of(world.rng) if keeps_members else world.rng)
        self._shared = NodeServices(
            router, self._lookups, records, replica_sync, log_sync, replica, batches, self._gossip, self._saver
        )

        # The end, the periodic steps, and the dispatcher of all requests.
        self._shutdown = Shutdown(host, self._parts, self._handoff)
        self._maintenance = Maintenance(host, self._parts, self._handoff, self._saver, self._shutdown)
        departures = Departures(host, self._repairs, self._maintenance.stabilize_soon)
        status = self._local_status
        self._watchers = Watchers(host, self._calls, status)
        self._cuts = Cuts(host)
        dispatcher = Dispatcher(
            host,
            self._lookups,
            self._parts,
            batches,
            departures,
            self._watchers,
            self._cuts,
            self._gossip,
            self._maintenance.timetable.note_running,
            status,
            self._begin_leave,
        )
        peers.serve(dispatcher.handle)

    def __repr__(self) -> str:
        return f"<chord.Node {self.name or self.config.listen}: {self.state}>"

    # -- lifecycle -----------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """HOST:PORT under which other nodes reach this node; "" before it runs."""
        return self._host.address

    @property
    def ring_id(self) -> bytes | None:
        """The ring's id, sixteen bytes; None before the node has founded or joined a ring."""
        return self._hello_policy.ring_id

    @property
    def name(self) -> str:
        """The configured name; the address if none was given."""
        return self.config.name or self.address

    @property
    def origin(self) -> Literal["created", "joined", "resumed"]:
        """How the node got into its ring, once it is ready.

        "created": it founded the ring. "joined": it joined another node's ring. "resumed": it came back with its
        persisted state.
        """
        if self._saver.last is not None and self._saver.last.ring is not None:
            return "resumed"
        return "joined" if any(address != self.address for address in self._others) else "created"

    @property
    def contact(self) -> Contact:
        """The id and the address of the node's first vnode.

        Raises:
            NotReady: the node does not run yet.
        """
        for parts in self._parts.values():
            return parts.vnode.me
        raise NotReady("the node does not run yet, so its id is not known: start `run` first")

    @property
    def contacts(self) -> tuple[Contact, ...]:
        """The ids and the address of all vnodes of the node; empty before it runs."""
        return tuple(parts.vnode.me for parts in self._parts.values())

    @property
    def troubles(self) -> tuple[str, ...]:
        """The reasons why the node does not serve all requests; empty if it serves them."""
        return self._host.health.reasons()

    async def run(self, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen, join or found a ring, and serve it until `stop` or `leave` is called.

        `task_status.started` receives the bound address as soon as the node accepts calls.

        Raises:
            ConfigError: the data directory belongs to another configuration, or cannot be used.
            OSError: the node cannot listen on the address.
            OtherRing, DuplicateId: the ring refuses this node.
            WritesRefused: the disk failed, or the data directory is gone.

        Concurrency: cancelling it is a crash. The node sends no goodbye and hands nothing over.
        """
        try:
            kept = await self._saver.find()
            self._cut_number.number = self._cuts.resume(self._host.storage.cut_number)
            if kept is not None:
                self._others = tuple(dict.fromkeys((*self.config.join, *kept.known)))
            with unwrapped():
                async with trio.open_nursery() as connections:
                    if (failed := self._host.storage.failed) is not None:
                        connections.start_soon(self._end_with_disk, failed, connections.cancel_scope)
                    bound = await connections.start(self._calls.run, self.config.listen, name="calls")
                    self.started_at = trio.current_time()
                    self._settle_address(bound, kept)
                    task_status.started(bound)
                    del task_status  # it would keep objects of `Nursery.start` alive, two kilobytes a node
                    async with trio.open_nursery() as maintenance:
                        await self._live(maintenance, kept)
                    await self._part()
                    connections.cancel_scope.cancel()
            if self._fatal is not None:
                raise self._fatal
        finally:
            await self._host.storage.close()
            self._saver.close()
            self.closed.set()
            self._ready.set()

    async def _live(self, maintenance: trio.Nursery, kept: Kept | None) -> None:
        self._host.tasks.open(maintenance)
        try:
            maintenance.start_soon(self._maintenance.timetable.run, maintenance.start_soon, name="maintenance")
            maintenance.start_soon(self._take_part, kept, name="take part")
            await self._ending.wait()
            if self._how == "leave" and self._fatal is None:
                self._change("leaving")
                await self._shutdown.hand_over()
        finally:
            self._host.end()
        self._goodbye = self._shutdown.neighbours()
        maintenance.cancel_scope.cancel()

    async def _end_with_disk(self, failed: trio.Event, scope: trio.CancelScope) -> None:
        """End the node as in a crash when its disk has failed or hangs.

        There is no handover, because it could send wrong records.
        """
        self._fatal = await DiskWatch(self._host, self._shutdown, self._maintenance.woke).run(failed)
        self.state = "stopped"  # without an event, as in a crash
        scope.cancel()

    async def ready(self) -> None:
        """Wait until every vnode is a member of the ring.

        Raises:
            OtherRing, DuplicateId, ConfigError: the ring refuses the node. `run` ends with the same error.
            WritesRefused: the disk failed, or the data directory is gone.
        """
        await self._ready.wait()
        if self._fatal is not None:
            raise self._fatal

    async def stop(self) -> None:
        """Stop and keep the data.

        The node tells its neighbours to route around it, and finishes calls in progress within `drain_s`. The method
        returns when the node has ended. Cancelling it does not stop the node from ending. If the node leaves already,
        this only waits for the end.
        """
        self._end("stop")
        await self.closed.wait()

    async def leave(self) -> None:
        """Hand everything over within `leave_s`, leave the ring and end.

        Afterwards `state` is "left". If the handover was not complete in time, the other nodes see a crash, and `state`
        is "stopped". The method returns when the node has ended. Cancelling it does not stop the node from ending. If
        the node stops already, this only waits for the end.
        """
        self._begin_leave()
        await self.closed.wait()

    def _begin_leave(self) -> None:
        """Begin to leave, without waiting for the end; no effect if the node is ending."""
        self._end("leave")

    def _end(self, how: Literal["stop", "leave"]) -> None:
        if not self._ending.is_set():
            self._how = how
            self._host.is_leaving = how == "leave"
            self._ending.set()

    def _observe(self, emitted: Emitted) -> None:
        self._observer(emitted)
        if isinstance(emitted.event, PeerChanged):
            self._gossip.note(emitted.event)
        if is_news(emitted.event):
            self._host.news()

    def _change(self, state: NodeState) -> None:
        if state != self.state:
            self.state = state
            self._host.tell([NodeStateChanged(state, self.address)])

    # -- start ------------------------------------------------------------------------------

    def _settle_address(self, bound: str, kept: Kept | None) -> None:
        """Fix the address that the node advertises, and create its vnodes.

        The ids of the vnodes are the persisted ones, otherwise the configured one, otherwise SHA-1 hashes of the
        address.
        """
        address = self.config.advertise or bound
        self._host.settle_address(address)
        if kept is not None:
            ids = [v.id for v in kept.vnodes]
        elif self.config.id is not None:
            ids = [Point(self.config.id)]
        else:
            ids = list(dict.fromkeys(vnode_id(self._host.circle, address, i) for i in range(self.config.vnodes)))
        self._hello_policy.introduce(address, self._host.storage.incarnation, ids, self.config.name or "")
        for point in ids:
            vnode = Vnode(Contact(point, address), self._host)
            self._host.vnodes[point] = vnode
            self._parts[point] = VnodeServices(vnode, self._shared)
        if kept is not None:
            recall(kept, self._host)

    async def _take_part(self, kept: Kept | None) -> None:
        """Join or rejoin the ring with every vnode, then start maintenance."""
        try:
            await restart.refuse_address_of_another(self.config.advertise, self._host)
            if kept is None:
                await self._saver.save()  # before the first record: a store without an identity is refused
            joins = [address for address in self.config.join if address != self.address]
            remembered = restart.nodes_to_ask(kept, self._host, has_join=bool(joins))
            if kept is not None and (joins or remembered):
                await self._resume(kept, list(dict.fromkeys((*joins, *remembered))))
            else:
                for index, parts in enumerate(self._parts.values()):
                    await self._enter(parts, kept, index)
                    self._maintenance.keep(parts, self._others)
                    if self.state == "joining":
                        self._host.news(parts.vnode.id)
        except (OtherRing, DuplicateId, ConfigError) as error:
            self._fatal = error
        if self._fatal is not None:
            self._end("stop")
            return
        if self._host.is_leaving:  # it became a member only to hand its arc over
            return
        self._maintenance.keep_at_home(self.contact)
        self._maintenance.keep_members(self.contact, self._gossip)
        if self.config.data_dir is not None:
            look = partial(self._look_for_files, OpenFiles(self.config.data_dir))
            self._maintenance.keep_watch(self.contact, look)
        await self._saver.save()
        if kept is None:
            self._host.tasks.start(self._shutdown.say_back, self._others)
        else:
            await self._shutdown.say_back(self._others)  # before "ready": then no other node takes it for down
        self._change("ready")
        self._ready.set()

    async def _resume(self, kept: Kept, known: list[Contact | str]) -> None:
        """Rejoin the ring with all vnodes at the same time, after a restart.

        A vnode of another node may wait for any of them. If the ring refuses a vnode, the other attempts end, and the
        node stops with that error.
        """
        self._change("resuming")

        async def resume(parts: VnodeServices, last: LastTime, scope: trio.CancelScope) -> None:
            try:
                await parts.rejoin.resume(last, known, self.config.join, kept.address)
            except (OtherRing, DuplicateId, ConfigError) as error:
                self._fatal = self._fatal or error
                scope.cancel()
            else:
                self._maintenance.keep(parts, self._others)
                self._host.news(parts.vnode.id)

        async with trio.open_nursery() as nursery:
            for parts, vnode in zip(self._parts.values(), kept.vnodes, strict=True):
                nursery.start_soon(resume, parts, last_time(vnode, self._host), nursery.cancel_scope)

    async def _enter(self, parts: VnodeServices, kept: Kept | None, index: int) -> None:
        """Make one vnode a member: rejoin, join, or found a ring.

        A vnode with persisted state rejoins, and a new vnode joins. If there is neither a member vnode of this node nor
        a configured other node to join, the vnode founds a ring.

        Args:
            parts: the vnode, with its services.
            kept: the persisted state; None if the node is new.
            index: the index of the vnode in the persisted state.
        """
        mine: list[Contact | str] = [p.vnode.me for p in self._parts.values() if p.vnode.ring.is_member]
        joins: list[Contact | str] = [*mine, *(a for a in self.config.join if a != self.address)]
        if kept is not None and joins:
            await parts.rejoin.resume(last_time(kept.vnodes[index], self._host), joins)
        elif joins:
            self._change("joining")
            await parts.membership.join(joins)
        else:
            if kept is not None:
                parts.vnode.ownership.epoch = kept.vnodes[index].epoch
            self._hello_policy.ring_id = self.ring_id or self._host.rng.randbytes(16)
            self._host.tell(parts.vnode.ring.create())
            self._host.tell(parts.vnode.ownership.create())
            parts.vnode.preference_list.note_in_sync(parts.vnode.id, Arc(parts.vnode.id, parts.vnode.id))
            parts.vnode.state = "member"

    def _end_without_directory(self) -> None:
        self._fatal = self._fatal or WritesRefused(f"the data directory of {self.name} is gone; the node stopped")
        self._end("stop")

    async def _look_for_files(self, files: OpenFiles) -> None:
        path = await files.missing()
        if path is not None and not await trio.Path(path.parent).exists():
            self._end_without_directory()
        elif path is not None:
            self._fatal = self._fatal or WritesRefused(f"{path} of {self.name} was removed or replaced; it stopped")
            self._end("stop")

    # -- end ---------------------------------------------------------------------------------

    async def _part(self) -> None:
        """Say goodbye and finish calls in progress, at the end of a stop or a leave.

        After a leave the node redirects callers for a while. If a leave did not hand everything over, the node
        withdraws it and ends as in a crash. The other nodes then wait for it, instead of denying keys that only it
        holds.
        """
        has_left = self._how == "leave" and self._shutdown.has_handed_over(self._goodbye)
        unheard: list[str] = []
        if has_left or self._how == "stop":
            unheard = await self._shutdown.say(self._goodbye, has_left=has_left)
        elif self._how == "leave":
            await self._shutdown.say_back(self._goodbye)
        with trio.move_on_after(self._host.timing.leave_s):  # a disk that hangs must not keep the node from ending
            await self._saver.save(has_left=has_left)
        if has_left and self._goodbye:
            await self._shutdown.linger(self._goodbye, unheard)
        self._calls.stop_accepting()
        self._watchers.close()
        with trio.move_on_after(self._host.timing.drain_s):
            await self._calls.drain()
        self._change("left" if has_left else "stopped")

    # -- status and calls ------------------------------------------------------------------------

    @cached_property
    def _core(self) -> Operations:  # type: ignore[override]  # made when first used, and never assigned
        if not self.address:
            raise NotReady("the node does not run yet: start `run` in a task, and wait for `ready`")
        return Operations(ClientSession(
            (self.address,), rng=self._host.rng, circle=self._host.circle, arcs_max=CLIENT_ARCS_MAX,
            member=self.address, cuts=self._cut_number,
        ))  # fmt: skip

    async def _call(self, call: ClientCall, deadline: float) -> Outcome:
        """Send one request of a client operation, without the network if this node is to answer it."""
        try:
            with trio.fail_at(deadline):
                return await self._host.peers.call(call.to, call.request, call.request.reply)
        except ChordError as error:
            return error
        except trio.TooSlowError:
            return DeadlineExceeded(f"{call.address} did not answer in time")

    def _begin(self, call: ClientCall, deadline: float, callback: Callable[[Outcome], None]) -> bool:
        if isinstance(call.to, str) or call.address == self.address:
            return False
        if self._host.peers.is_doubtful(call.to):
            callback(PeerUnreachable(f"{call.address} does not count as alive"))
        else:
            self._host.peers.begin(call.to, call.request, call.request.reply, callback, deadline=deadline)
        return True

    # Methods, and not closures, because a closure takes three times as much of each node's memory.

    def _take_cut(self, number: int) -> int:
        return self._cuts.take(number)

    def _coordinate(self, vnode: Vnode, item: Item) -> Reply | Steps[Any]:
        return coordinate(self._parts[vnode.id], item)

    def _hints(self) -> int:
        return self._handoff.hints

    def _repairs(self) -> list[AntiEntropy]:
        return [parts.repair for parts in self._parts.values()]

    def _is_receiving(self) -> bool:
        return any(parts.transfers.inbound for parts in self._parts.values())

    def _local_status(self, wanted: Collection[StatusPart] = STATUS_PARTS) -> Status:
        """Return the wanted parts of the node's status, as the node sees it."""
        me = NodeFacts(
            self.name,
            self.state,
            self.ring_id,
            self.started_at,
            self.config.data_dir is not None,
            self._calls.stats.bytes_sent,
            self._calls.stats.bytes_received,
        )
        return node_status(me, self._host, self._parts, self._handoff, wanted)


@asynccontextmanager
async def open_node(
    *,
    listen: str = "127.0.0.1:0",
    join: Sequence[str] = (),
    name: str | None = None,
    advertise: str | None = None,
    data_dir: str | None = None,
    vnodes: int = 1,
    preset: Preset = "lan",
    ring: RingConstants | None = None,
    observe: Observer = ignore,
    timeout_s: float = TIMEOUT_S,
) -> AsyncIterator[Node]:
    """Run a node inside a Trio program, for the length of an `async with` block.

    The block receives the `Node` once it is a member of the ring. Joining has no time limit; bound it with a cancel
    scope. At the end of the block a node with a data directory stops and keeps its data. A node without one hands its
    keys over and leaves, within the preset's `leave_s`. Exceptions raised in the block propagate once the node has
    ended.

    Args:
        listen, join, name, advertise, data_dir, vnodes: see `NodeConfig`.
        preset: local, lan or wan; selects periods and timeouts.
        ring: the ring's constants, `chord.RingConstants`. All members must have the same.
        observe: callback that gets every event, `chord.Emitted`. It must not raise, and must return quickly.
        timeout_s: limit in seconds of an operation if no cancel scope has a deadline; default: 5. See `Node.timeout_s`.

    Raises:
        ConfigError: the arguments contradict each other, or the data directory belongs to another node.
        OSError: the node cannot listen on the address; the message names it.
        OtherRing, DuplicateId: the ring refuses this node.
        WritesRefused: the disk failed, or the data directory is gone; the block is cancelled.

    Concurrency: checkpoints. Cancelling the block is a crash: the node sends no goodbye and hands nothing over.
    """
    require_trio("chord.open_node", "start the process `chord node`, and connect with chord.open_asyncio_client")
    config = NodeConfig(
        listen=listen,
        join=tuple(join),
        name=name,
        advertise=advertise,
        data_dir=data_dir,
        vnodes=vnodes,
        ring=ring or RingConstants(),
        preset=preset,
    )
    node = Node(config, World.real(config, observe))
    node.timeout_s = timeout_s
    with unwrapped():
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            try:
                await node.ready()
            except ChordError:
                await trio.sleep_forever()  # `run` raises the same error
            part = node.stop if data_dir else node.leave
            try:
                yield node
            except BaseException as error:
                if isinstance(error, Exception):  # the program failed, not the node; a cancellation is a crash
                    await part()
                raise
            await part()

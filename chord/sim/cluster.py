"""Machines on virtual time, each with a disk, a wall clock and a real node.

A machine is a host of the network, known by its name. Its disk outlives its node, as far as the disk was synced. Its
wall clock may be wrong. `TestRing` starts nodes, kills them and waits for them. A cluster adds the parts that belong
to a machine and not to a process.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain, count
from typing import Any, Literal, NamedTuple

import trio

from chord.config import PRESETS, Limits, NodeConfig, RingConstants, Timing
from chord.errors import WritesRefused, unwrapped
from chord.events import Emitted, Observer, PeerChanged, ignore
from chord.ids import Point, vnode_id
from chord.node import Node
from chord.node.world import World
from chord.sim.disk import Disk, SyncDelay
from chord.sim.prebuilt import PlacedNode, PrebuiltPlacement
from chord.sim.stores import DiskIdentity, SimulatedStorage, kept_on
from chord.sim.watched import WatchedStorage
from chord.store.identity import IdentityStore, Kept
from chord.store.storage import Storage
from chord.testing.faults import FaultyNetwork, ignore_fault
from chord.testing.network import MemoryNetwork
from chord.testing.rings import PORT, TestRing, network_host
from chord.testing.runner import stop_tasks, wake_tasks
from chord.wire.messages import Contact, Record

EPOCH_S = 1_800_000_000
"""Unix time that correct wall clocks show when a simulation begins, in seconds."""


class Reports(NamedTuple):
    """Callbacks for what happens on the machines of a cluster.

    Attributes:
        stopped: for a node that ended by itself and may not have handed over all its records.
        left: for a node that ended by itself after it handed over all its records.
        refused: for a node that the ring refused, or that had its disk fail.
        put: for a record that a store took: its host, the record, and whether this store minted its newest version.
        dropped: for a record that a store removes: its host, and the record as it was.
        lent: for the record of an early put, which a coordinator is about to send.
        fault: for the end, the stop or the wake-up of a process: the name of the fault, and its host as a group.
    """

    stopped: Callable[[Node], object] = lambda node: None
    left: Callable[[Node], object] = lambda node: None
    refused: Callable[[Node], object] = lambda node: None
    put: Callable[[str, Record, bool], object] = lambda host, record, is_own: None
    dropped: Callable[[str, Record], object] = lambda host, record: None
    lent: Callable[[Record], object] = lambda record: None
    fault: Callable[[str, tuple[tuple[str, ...], ...]], object] = ignore_fault


class _Machine:
    """The callbacks of one machine's node.

    One small object replaces a closure per callback, because there may be ten thousand machines.
    """

    __slots__ = ("_cluster", "_host", "node")

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self.node: Node | None = None

    def put(self, record: Record, is_own: bool) -> None:
        self._cluster.reports.put(self._host, record, is_own)

    def drop(self, record: Record) -> None:
        self._cluster.reports.dropped(self._host, record)

    def lend(self, record: Record) -> None:
        self._cluster.reports.lent(record)

    def now_ms(self) -> int:
        return self._cluster.wall_now_ms(self._host)

    def observe(self, emitted: Emitted) -> None:
        """Pass a node's event to the cluster, but no `PeerChanged` after the node's end.

        Clients may still use the ended node. It then gets no answers, and would report living peers as dead.
        """
        has_ended = self.node is not None and self.node.closed.is_set()
        if not (has_ended and isinstance(emitted.event, PeerChanged)):
            self._cluster._on_event(emitted)


class Cluster(TestRing):
    """A ring of nodes on machines with disks and wall clocks.

    `cluster` makes it.

    Attributes:
        disks: by host, the disks that `disk` or `clone` has made. `wipe` removes a disk.
        reports: the callbacks for what happens on the machines.
        skews_s: by host, seconds that its wall clock is ahead, or (negative) behind.
        drifts: by host, seconds that its wall clock gains, or (negative) loses, per second.
        clones: the machines with a copy of another machine's disk.
        stopped: by machine with a stopped process (SIGSTOP), the network host at which its node listens.
        expected: errors that may end a node; here also the failure of its disk, which counts as a crash.
    """

    expected = (*TestRing.expected, WritesRefused)

    def __init__(
        self,
        nursery: trio.Nursery,
        network: FaultyNetwork,
        seed: int | str,
        template: NodeConfig,
        observe: Observer,
        sync_delay: SyncDelay | None,
        without_disk: float,
        reports: Reports,
    ) -> None:
        super().__init__(nursery, network, seed, template, observe)
        self._sync_delay = sync_delay
        self._without_disk = without_disk
        self.reports = reports
        self.skews_s: dict[str, float] = {}
        self.drifts: dict[str, float] = {}
        self.clones: dict[str, None] = {}
        self.stopped: dict[str, str] = {}
        self._placement: PrebuiltPlacement | None = None
        self.disks: dict[str, Disk] = {}

    async def place(self, n: int, *, ids: Sequence[int] | None = None) -> list[Node]:
        """Start n nodes, each already in its place in an Ideal ring.

        An assertion fails if the cluster has nodes. The call returns when all nodes are ready.

        Args:
            n: number of nodes.
            ids: the points of the nodes; default: the hashes of their addresses, as for nodes that join.

        Returns:
            The nodes, in the order of `ids`; by default in the order of their names, n0 first.
        """
        assert not self.nodes, "a ring is placed before any node joins"
        circle = self._template.ring.circle
        addresses = [f"n{index}:{PORT}" for index in range(n)]
        points = [vnode_id(circle, a, 0) for a in addresses] if ids is None else [Point(point) for point in ids]
        contacts = [Contact(point, address) for point, address in zip(points, addresses, strict=True)]
        ring_id = random.Random(f"{self._seed}/ring").randbytes(16)
        self._placement = PrebuiltPlacement(contacts, self._template.ring, ring_id)
        for index in range(n):
            await self.start(join=(), id=None if ids is None else ids[index])
        for node in self.nodes:
            await node.ready()
        self._placement = None
        return list(self.nodes)

    async def start(
        self, *, join: Sequence[Node] | None = None, name: str | None = None, listen: str | None = None, **changes: Any
    ) -> Node:
        """Start one more node, and return it as soon as it listens.

        Args:
            join: nodes to join by; default: up to three nodes at random. Empty: the node returns to its ring, or founds
                one if it has no persisted state.
            name: the node's machine; default: a new machine. A machine that was used before has its disk and persisted
                state.
            listen: the node's address. By default a node with persisted state listens at its last address, or at a new
                one if another node listens there. A new node listens at port 1 of its machine.
            changes: fields of `NodeConfig` that differ from those of the ring.
        """
        if listen is None and name is not None and (kept := self.kept(name)) is not None:
            taken = {node.config.listen for node in self.nodes}
            elsewhere = (f"{name}-at-{number}:{PORT}" for number in count())
            listen = next(address for address in chain([kept.address], elsewhere) if address not in taken)
        return await super().start(join=join, name=name, listen=listen, **changes)

    def _make_node(self, host: str, config: NodeConfig, rng: random.Random) -> Node:
        """Build a node on a machine, with its disk if it has one, and with its clock."""
        at = (config.listen or "").partition(":")[0]
        connect = self.network._connector(at)
        circle, incarnation = config.ring.circle, rng.randbytes(8)
        identity: IdentityStore = self._identity(host)
        machine = _Machine(self, host)
        if self.has_disk(host):
            disk, limits = self.disk(host), config.limits
            storage: Storage = SimulatedStorage(
                circle, disk, incarnation, limits.staged_bytes_max, limits.free_bytes_min,
                on_put=machine.put, on_drop=machine.drop, on_lend=machine.lend,
            )  # fmt: skip
            identity = DiskIdentity(disk)
        else:
            storage = WatchedStorage(circle, incarnation, machine.put, machine.drop, machine.lend)
        world = World(connect, storage, identity, machine.now_ms, rng, machine.observe)
        placement = self._placement
        node = Node(config, world) if placement is None else PlacedNode(config, world, placement)
        machine.node = node
        return node

    async def kill(self, node: Node, *, silently: bool = False, power_loss: bool = False) -> None:
        """End a node as kill -9 does.

        Args:
            node: the node.
            silently: the machine vanishes: its peers get no reset and no answer. This cuts the power, too.
            power_loss: cut the power of the machine: any part of the data that is not durable may be gone.
        """
        host = node.config.name or ""
        self.wake(host)
        self.reports.fault("vanish" if silently else "cut_power" if power_loss else "kill", ((host,),))
        if host in self.disks:
            (self.disks[host].crash if power_loss or silently else self.disks[host].kill)()
        await super().kill(node, silently=silently)

    def _on_ended(self, node: Node) -> None:
        """Handle the end of a node; report it if it ended by itself."""
        if node.name in self.disks:
            self.disks[node.name].kill()  # a hanging transaction does not outlive its process
        if node.state in ("stopped", "left"):
            (self.reports.stopped if node.state == "stopped" else self.reports.left)(node)

    def _on_refused(self, node: Node) -> None:
        """Report a node that the ring refused, or that had its disk fail.

        A node that was killed or had stopped before is not reported.
        """
        if node in self.nodes:
            self.reports.refused(node)

    # -- machines -------------------------------------------------------------------------------

    def has_disk(self, host: str) -> bool:
        """Return whether a machine has a disk: a fixed draw from the seed and its name.

        In a cluster without `sync_delay` no machine has a disk.
        """
        if self._sync_delay is None:
            return False
        return random.Random(f"{self._seed}/machine/{host}").random() >= self._without_disk

    def disk(self, host: str) -> Disk:
        """Return a machine's disk; the first call, also after `wipe`, makes an empty one.

        The caller checks `has_disk` first.
        """
        assert self._sync_delay is not None, "these machines have no disks"
        if host not in self.disks:
            self.disks[host] = Disk(random.Random(f"{self._seed}/disk/{host}"), sync_delay=self._sync_delay)
        return self.disks[host]

    def kept(self, host: str) -> Kept | None:
        """Return the persisted state that a machine's node will load at its next start.

        None: the machine will start a new node.
        """
        if host not in self.disks:
            return self._identity(host).load()
        return kept_on(self.disks[host])

    def wipe(self, host: str) -> None:
        """Give a machine with a dead node an empty disk, and forget the node's identity."""
        self.disks.pop(host, None)
        self._forget_identity(host)

    def clone(self, host: str, to: str) -> None:
        """Give machine `to` a copy of the disk of machine `host`, as it is now."""
        self.clones[to] = None
        self.disks[to] = self.disk(host).clone(random.Random(f"{self._seed}/disk/{to}"))

    def skew(self, host: str, seconds: float) -> None:
        """Set a machine's wall clock ahead of the true time, or (negative) behind it."""
        self.skews_s[host] = seconds

    def wall_now_ms(self, host: str) -> int:
        """Return the time of a machine's wall clock, in milliseconds since 1970."""
        true_s = trio.current_time()
        return int(1000 * (EPOCH_S + true_s * (1 + self.drifts.get(host, 0.0)) + self.skews_s.get(host, 0.0)))

    def stop(self, node: Node) -> None:
        """Stop a node's tasks, timers and arrivals until `wake`, as SIGSTOP does."""
        self.stopped[node.name] = network_host(node)
        self.reports.fault("stop", ((node.name,),))
        stop_tasks(node.name)
        self.network.stop(network_host(node))

    def wake(self, host: str) -> None:
        """Let the process of a machine go on, if it was stopped."""
        at = self.stopped.pop(host, None)
        if at is not None:
            self.reports.fault("wake", ((host,),))
            wake_tasks(host)
            self.network.wake(at)


@asynccontextmanager
async def cluster(
    *,
    seed: int | str = 0,
    ring: RingConstants | None = None,
    timing: Timing = PRESETS["local"],
    network: FaultyNetwork | None = None,
    observe: Observer = ignore,
    sync_delay: SyncDelay | None = None,
    without_disk: float = 0.0,
    vnodes: int = 1,
    members: Literal["off", "on"] = "off",
    limits: Limits | None = None,
    reports: Reports | None = None,
) -> AsyncIterator[Cluster]:
    """Provide machines for the length of the block, then end all their processes.

    The machines have no nodes at first.

    Args:
        seed: decides all random choices.
        ring: the constants; default: 160 bits, 8 successors.
        timing: the timing of every node.
        network: frames over streams (`MemoryNetwork`, the default) or whole messages (`MessageNetwork`).
        observe: callback that gets every event of every node.
        sync_delay: draws the sync times of the disks. None: no disks; nodes restart empty.
        without_disk: fraction of machines without a disk, 0.0 to 1.0.
        vnodes, members, limits: of every node.
        reports: the callbacks for what happens on the machines; default: none.

    Yields:
        The cluster.

    Concurrency: checkpoints. Run it under `chord.testing.run`.
    """
    constants, limits = ring or RingConstants(), limits or Limits()
    template = NodeConfig(
        ring=constants, timing=timing, preset="local", members=members, vnodes=vnodes, limits=limits
    )
    with unwrapped():
        async with trio.open_nursery() as nursery:
            net = network or MemoryNetwork(seed)
            made = Cluster(nursery, net, seed, template, observe, sync_delay, without_disk, reports or Reports())
            try:
                yield made
            finally:
                for host in list(made.stopped):
                    made.wake(host)  # a stopped process cannot end
            nursery.cancel_scope.cancel()

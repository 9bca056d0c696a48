"""Machines on virtual time: a network, and per machine a disk and a wall clock, with real nodes on them.

A machine is a host of the network by name. Its disk outlives its node, as far as it was synced; its
wall clock may be wrong. `MemoryRing` starts nodes, kills them and waits for them; a cluster adds what
a machine has and a process has not.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import chain, count
from typing import Any

import trio

from chord.config import PRESETS, Limits, NodeConfig, RingConstants, Timing
from chord.errors import WritesRefused, unwrapped
from chord.events import Event, Observer, PeerChanged, ignore
from chord.ids import Point, vnode_id
from chord.node import Node
from chord.sim.disk import Disk, SyncDelay
from chord.sim.placing import PlacedNode, Placement
from chord.sim.stores import DiskIdentity, SimulatedStorage, kept_on
from chord.sim.watched import WatchedStorage
from chord.store.identity import Kept
from chord.testing.faults import FaultyNetwork
from chord.testing.network import MemoryNetwork
from chord.testing.rings import PORT, MemoryRing, network_host
from chord.testing.runner import stop_tasks, wake_tasks
from chord.wire.messages import Contact, Record

EPOCH_S = 1_800_000_000
"""What wall clocks show when a simulation begins, in Unix time."""


class _Machine:
    """What the node of one machine is given by the cluster; one object, for there may be ten thousand of them."""

    __slots__ = ("_cluster", "_host", "node")

    def __init__(self, cluster: Cluster, host: str) -> None:
        self._cluster = cluster
        self._host = host
        self.node: Node | None = None

    def put(self, record: Record, is_own: bool) -> None:
        self._cluster.on_put(self._host, record, is_own)

    def drop(self, record: Record) -> None:
        self._cluster.on_drop(self._host, record)

    def now_ms(self) -> int:
        return self._cluster.wall_now_ms(self._host)

    def observe(self, event: Event) -> None:
        """Pass events on; but a client of a node that has ended goes on asking in vain, and blames the others."""
        if not (isinstance(event, PeerChanged) and self.node is not None and self.node.closed.is_set()):
            self._cluster.on_event(event)


class Cluster(MemoryRing):
    """Nodes on machines. Made by `cluster`.

    Attributes:
        disks: of every machine that has or had one, by host.
        on_stopped, on_left: told of a node that has ended by itself, and what it says of that: the one may not have
            handed over all it held, the other has.
        on_refused: told of a node that the ring has refused, or whose disk has failed.
        on_put, on_drop: told what stores take and remove, with the host (see `WatchedStorage`).
        skews_s: by how much each host's wall clock is ahead, or (negative) behind.
        drifts: how many seconds each host's wall clock gains, or (negative) loses, in one.
        clones: the machines that have a copy of another's disk.
        stopped: the machines whose process is stopped (SIGSTOP), and the host of the network of each.
        expected: a node whose disk has failed ends as if it had crashed.
    """

    expected = (*MemoryRing.expected, WritesRefused)

    def __init__(
        self,
        nursery: trio.Nursery,
        network: FaultyNetwork,
        seed: int | str,
        template: NodeConfig,
        observe: Observer,
        sync_delay: SyncDelay | None,
        without_disk: float,
    ) -> None:
        super().__init__(nursery, network, seed, template, observe)
        self._sync_delay = sync_delay
        self._without_disk = without_disk
        self.on_stopped: Callable[[Node], object] = lambda node: None
        self.on_refused: Callable[[Node], object] = lambda node: None
        self.on_left: Callable[[Node], object] = lambda node: None
        self.on_put: Callable[[str, Record, bool], object] = lambda host, record, is_own: None
        self.on_drop: Callable[[str, Record], object] = lambda host, record: None
        self.skews_s: dict[str, float] = {}
        self.drifts: dict[str, float] = {}
        self.clones: dict[str, None] = {}
        self.stopped: dict[str, str] = {}
        self._placement: Placement | None = None
        self.disks: dict[str, Disk] = {}

    async def place(self, n: int, *, ids: Sequence[int] | None = None) -> list[Node]:
        """Start n nodes, each already in its place in an Ideal ring (see `placing`); they are all there is.

        Args:
            ids: their points; default: the hashes of their addresses, as always.
        """
        assert not self.nodes, "a ring is placed before anybody joins"
        circle = self._template.ring.circle
        addresses = [f"n{index}:{PORT}" for index in range(n)]
        points = [vnode_id(circle, a, 0) for a in addresses] if ids is None else [Point(point) for point in ids]
        contacts = [Contact(point, address) for point, address in zip(points, addresses, strict=True)]
        ring_id = random.Random(f"{self._seed}/ring").randbytes(16)
        self._placement = Placement(contacts, self._template.ring, ring_id)
        for index in range(n):
            await self.start(join=(), id=None if ids is None else ids[index])
        for node in self.nodes:
            await node.ready()
        self._placement = None
        return list(self.nodes)

    async def start(
        self, *, join: Sequence[Node] | None = None, name: str | None = None, listen: str | None = None, **changes: Any
    ) -> Node:
        """Start a node, by default where it listened last, or at a new address if another node listens there now."""
        if listen is None and name is not None and (kept := self.kept(name)) is not None:
            taken = {node.config.listen for node in self.nodes}
            elsewhere = (f"{name}-at-{number}:{PORT}" for number in count())
            listen = next(address for address in chain([kept.address], elsewhere) if address not in taken)
        return await super().start(join=join, name=name, listen=listen, **changes)

    def make_node(self, host: str, config: NodeConfig, rng: random.Random) -> Node:
        """Build a node on a machine: on its disk, where it has one, and by its clock."""
        at = (config.listen or "").partition(":")[0]
        world: dict[str, Any] = {**self.network.seams(at), "identity": self.identity(host)}
        circle, incarnation = config.ring.circle, rng.randbytes(8)
        if self.has_disk(host):
            disk, staged_bytes_max = self.disk(host), config.limits.staged_bytes_max
            storage: SimulatedStorage | WatchedStorage = SimulatedStorage(circle, disk, incarnation, staged_bytes_max)
            world["identity"] = DiskIdentity(disk)
        else:
            storage = WatchedStorage(circle, incarnation)
        machine = _Machine(self, host)
        storage.watch(machine.put, machine.drop)
        world["storage"], world["wall_now_ms"] = storage, machine.now_ms
        if self._placement is None:
            node = Node(config, **world, rng=rng, observe=machine.observe)
        else:
            node = PlacedNode(config, **world, rng=rng, observe=machine.observe, placement=self._placement)
        machine.node = node
        return node

    async def kill(self, node: Node, *, is_silent: bool = False, is_power_lost: bool = False) -> None:
        """End a node as kill -9 does.

        Args:
            is_power_lost: as a power failure does: of what was not durable on its disk any part may be gone.
        """
        host = node.config.name or ""
        self.wake(host)
        if host in self.disks:
            (self.disks[host].crash if is_power_lost or is_silent else self.disks[host].kill)()
        await super().kill(node, is_silent=is_silent)

    def ended(self, node: Node) -> None:
        """End the process, and tell who stopped and who left in good order."""
        if node.name in self.disks:
            self.disks[node.name].kill()  # a transaction that hangs does not outlive its process
        if node.state in ("stopped", "left"):
            (self.on_stopped if node.state == "stopped" else self.on_left)(node)

    def refused(self, node: Node) -> None:
        """Tell that a node has ended by an error, unless it has been killed or has stopped before."""
        if node in self.nodes:
            self.on_refused(node)

    # -- machines -------------------------------------------------------------------------------

    def has_disk(self, host: str) -> bool:
        """Whether a machine has a disk; that is drawn once."""
        if self._sync_delay is None:
            return False
        return random.Random(f"{self._seed}/machine/{host}").random() >= self._without_disk

    def disk(self, host: str) -> Disk:
        """Return a machine's disk."""
        assert self._sync_delay is not None, "these machines have no disks"
        if host not in self.disks:
            self.disks[host] = Disk(random.Random(f"{self._seed}/disk/{host}"), sync_delay=self._sync_delay)
        return self.disks[host]

    def kept(self, host: str) -> Kept | None:
        """Return what the node of a machine has kept of itself so far, as it will find it when it starts again."""
        if host not in self.disks:
            return self.identity(host).load()
        return kept_on(self.disks[host])

    def wipe(self, host: str) -> None:
        """Give a machine whose node is dead an empty disk, and nothing to remember."""
        self.disks.pop(host, None)
        self.forget_identity(host)

    def clone(self, host: str, to: str) -> None:
        """Give a machine a copy of another's disk, as it is at this moment."""
        self.clones[to] = None
        self.disks[to] = self.disk(host).clone(random.Random(f"{self._seed}/disk/{to}"))

    def skew(self, host: str, seconds: float) -> None:
        """Set a machine's wall clock ahead of the true time, or (negative) behind it."""
        self.skews_s[host] = seconds

    def wall_now_ms(self, host: str) -> int:
        """Return what a machine's wall clock shows, in milliseconds since 1970."""
        true_s = trio.current_time()
        return int(1000 * (EPOCH_S + true_s * (1 + self.drifts.get(host, 0.0)) + self.skews_s.get(host, 0.0)))

    def stop(self, node: Node) -> None:
        """Stop a node's process: none of its tasks and timers runs, and what arrives waits."""
        self.stopped[node.name] = network_host(node)
        stop_tasks(node.name)
        self.network.stop(network_host(node))

    def wake(self, host: str) -> None:
        """Let the process of a machine go on, if it was stopped."""
        at = self.stopped.pop(host, None)
        if at is not None:
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
    limits: Limits | None = None,
) -> AsyncIterator[Cluster]:
    """Have machines without nodes for the length of the block; then whatever runs on them is gone at once.

    Args:
        seed: draws everything.
        ring: the constants; default: 160 bits, 8 successors.
        network: frames over streams (`MemoryNetwork`, the default) or whole messages (`MessageNetwork`).
        observe: called with every event of every node.
        sync_delay: of the machines' disks; None: nodes keep everything in memory, and restart empty.
        without_disk: so many of the machines have none.
        vnodes, limits: of each node.

    Concurrency: checkpoints. Run it under `chord.testing.run`.
    """
    constants, limits = ring or RingConstants(), limits or Limits()
    template = NodeConfig(ring=constants, timing=timing, preset="local", vnodes=vnodes, limits=limits)
    with unwrapped():
        async with trio.open_nursery() as nursery:
            made = Cluster(nursery, network or MemoryNetwork(seed), seed, template, observe, sync_delay, without_disk)
            try:
                yield made
            finally:
                for host in list(made.stopped):
                    made.wake(host)  # what is stopped cannot end
            nursery.cancel_scope.cancel()

"""The small ring of a scenario: an Ideal ring of real nodes, checks, clients, and random numbers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TypeVar

import msgspec
import trio

from chord import testing
from chord.config import PRESETS, RingConstants, Timing
from chord.events import Emitted, Event, Observer
from chord.ids import Point
from chord.node import Node
from chord.ring.vnode import Vnode
from chord.sim.cluster import Cluster, Reports, cluster
from chord.sim.copies import astray, unequal
from chord.sim.disk import SyncDelay
from chord.sim.messages import MessageNetwork
from chord.sim.nemesis import CALM
from chord.sim.observer import Watch
from chord.sim.plan import draw
from chord.sim.run import HOME_WITHIN_S, Run, RunFailure
from chord.sim.workload import Workload
from chord.testing.faults import FaultyNetwork
from chord.testing.rings import NotConverged
from chord.verify import invariants

E = TypeVar("E", bound=Event)

VIRTUAL_S_MAX = 120.0
CONVERGED_WITHIN_S = 20.0
LEVEL_WITHIN_S = 40.0

# Nodes probe an unreachable contact soon.
FORGIVING = msgspec.structs.replace(PRESETS["local"], reprobe_first_s=2.0)


class World:
    """The ring, the clients and the random numbers of a scenario.

    Attributes:
        ring: the nodes, which form an Ideal ring at the beginning.
        workload: the clients and the results of their operations.
        rng: the random generator of the scenario.
        on_event: the receiver of every event after the checks; by default it counts disturbances for the oracle.
    """

    def __init__(self, ring: Cluster, watch: Watch, seed: int) -> None:
        self.ring = ring
        self.watch = watch
        self.rng = random.Random(f"scenario/{seed}")
        self.workload = self.hire()
        self.on_event: Observer = self._disturb

    def hire(self, *habits: str) -> Workload:
        """Return clients with habits (see `chord.sim.habits`), with an oracle that judges the ring from now on."""
        self.workload = Workload(self.ring, self.rng, self.watch.complain, habits=habits)
        self.workload.oracle.disturb()  # from now on it gets every event
        return self.workload

    def _disturb(self, emitted: Emitted) -> None:
        if not isinstance(emitted.event, CALM):
            self.workload.oracle.disturb()

    @property
    def nodes(self) -> list[Node]:
        """Return the members in ring order."""
        return sorted((n for n in self.ring.nodes if n.state == "ready"), key=lambda node: vnode_of(node).id)

    def row(self, count: int) -> list[Node]:
        """Draw adjacent members."""
        nodes = self.nodes
        at = self.rng.randrange(len(nodes))
        return [nodes[(at + step) % len(nodes)] for step in range(count)]

    def at(self, address: str) -> Node:
        """Return the living node at an address."""
        return next(node for node in self.ring.nodes if node.address == address)

    def node_of(self, vnode: Point) -> Node:
        """Return the living node that holds a vnode."""
        return next(node for node in self.ring.nodes if vnode in node._host.vnodes)

    async def kill(self, node: Node, *, silently: bool = False) -> None:
        """Let a node die. Its memory is lost, and its disk stays."""
        self.workload.accounting.bury(node)
        self.watch.note_death()
        await self.ring.kill(node, silently=silently)
        self.workload.accounting.autopsy(node)
        self.watch.check()

    def mourn(self, node: Node) -> None:
        """Record that a node ended by itself, and check its disk."""
        self.workload.accounting.bury(node)
        self.workload.accounting.autopsy(node)

    async def restart(self, node: Node) -> Node:
        """Restart a dead node on the disk of its machine."""
        self.watch.excused.update(node._host.vnodes)
        back = await self.ring.start(join=(), name=node.config.name)
        self.workload.accounting.bring_back(back)
        return back

    async def converged(self) -> None:
        """Wait until the ring is Ideal."""
        await self.ring.converged(CONVERGED_WITHIN_S)

    async def at_home(self) -> None:
        """Wait until no node has misplaced records."""
        with trio.fail_after(CONVERGED_WITHIN_S):
            while any(node._handoff.count() for node in self.ring.nodes):
                await trio.sleep(0.1)

    async def merged(self) -> None:
        """Wait as a run does after a split: until each write is on a replica of its key. Then forget the split.

        Raises:
            NotConverged: it took too long.
        """
        until = trio.current_time() + HOME_WITHIN_S
        while (wrong := next(astray(self.ring), None)) is not None:
            if trio.current_time() > until:
                raise NotConverged(wrong)
            await trio.sleep(0.1)
        self.workload.oracle.merged()

    async def level(self, replicas: int) -> None:
        """Wait until all replicas of each record are equal, and no other node keeps a copy.

        Raises:
            NotConverged: it took too long.
        """
        until = trio.current_time() + LEVEL_WITHIN_S
        while (wrong := next(unequal(self.ring, replicas), None)) is not None:
            if trio.current_time() > until:
                raise NotConverged(wrong)
            await trio.sleep(0.1)

    def owner_of(self, key: bytes) -> Node:
        """Return the owner of a key."""
        point = self.ring[0]._host.circle.hash(key)
        return next(node for node in self.ring.nodes if node._host.owner_of(point) is not None)

    async def settle(self) -> None:
        """Wait until the ring is Ideal, and read every key again."""
        await self.converged()
        await self.workload.settle()

    async def happens(self, kind: type[E], where: Callable[[E], object] = lambda event: True) -> E:
        """Wait for an event of a kind, and return it. Only one task may wait."""
        found: list[E] = []
        happened = trio.Event()

        def on_event(emitted: Emitted) -> None:
            event = emitted.event
            if isinstance(event, kind) and where(event) and not found:
                found.append(event)
                happened.set()

        before, self.on_event = self.on_event, on_event
        await happened.wait()
        self.on_event = before
        return found[0]


Scene = Callable[[World], Awaitable[None]]


def play(
    seed: int,
    scene: Scene,
    *,
    nodes: int,
    successors: int = 4,
    replicas: int = 1,
    timing: Timing = PRESETS["local"],
    network: FaultyNetwork | None = None,
    sync_delay: SyncDelay | None = None,
    without_disk: float = 0.0,
    is_watched: bool = True,
) -> None:
    """Run a scene on a ring that is Ideal, checked after every step (`is_watched`).

    Until the first death no two vnodes may own a point, at any moment. Afterwards the rule holds only at the end.

    Args:
        network: default: whole messages.
        sync_delay: the delay of the disks; None: nodes keep everything in memory.
        without_disk: the number of machines without a disk.

    Raises:
        Violated: a check failed.
        NotConverged, TooSlowError: the ring did not become Ideal, or something never ended.
    """
    world: World
    scope = trio.CancelScope()
    watch = Watch(f"seed {seed}", successors, on_event=lambda emitted: world.on_event(emitted), on_broken=scope.cancel)

    async def main() -> None:
        nonlocal world
        async with cluster(
            seed=seed,
            ring=RingConstants(successors=successors, replicas=replicas),
            timing=timing,
            network=network or MessageNetwork(seed),
            observe=watch,
            sync_delay=sync_delay,
            without_disk=without_disk,
            reports=Reports(
                stopped=lambda node: world.mourn(node),
                left=lambda node: world.workload.oracle.left(node),
                put=lambda host, record, is_own: world.workload.accounting.saw(host, record, is_own),
                dropped=lambda host, record: world.workload.accounting.dropped(host, record),
                lent=lambda record: world.workload.accounting.lent(record),
            ),
        ) as ring:
            await ring.place(nodes)
            watching = watch.over(ring) if is_watched else nullcontext()
            with watching, trio.fail_after(VIRTUAL_S_MAX), scope:
                world = World(ring, watch, seed)
                await scene(world)

    try:
        testing.run(main, seed=seed)
    except Exception:
        watch.raise_if_broken()
        raise
    watch.raise_if_broken()


def live(
    seed: int,
    *faults: str,
    nodes: int = 8,
    successors: int = 2,
    replicas: int = 1,
    membership: int = 20,
    steps: int = 500,
    shared: float = 0.0,
) -> None:
    """Run one seed with these faults and whole messages in a small ring (see `chord.sim.run`).

    Raises:
        RunFailure: the run failed.
    """
    plan = draw(
        seed,
        nodes=nodes,
        successors=successors,
        replicas=replicas,
        fidelity="messages",
        faults=faults,
        membership=membership,
        steps=steps,
        shared=shared,
    )
    Run(plan).run()


def themed(seed: int, theme: str, replicas: int, *, reap_log: int | None = None) -> None:
    """Run one seed with a theme. A swarm draws all but the number of replicas and the reap log's length.

    Raises:
        RunFailure: the run went wrong.
    """
    Run(msgspec.structs.replace(draw(seed, theme=theme, replicas=replicas), reap_log=reap_log)).run()


def slow(seed: int) -> MessageNetwork:
    """A network on which a hand-over of a few hundred records takes long enough to be disturbed."""
    return MessageNetwork(seed, delay=testing.uniform(0.005, 0.009))


def vnode_of(node: Node) -> Vnode:
    """Return a node's only vnode."""
    return next(iter(node._host.vnodes.values()))


def keys_of(world: World, owner: Node, count: int) -> list[bytes]:
    """Return keys that a node owns now, the first `count` of a fixed order."""
    found: list[bytes] = []
    for number in range(10000):
        key = b"new-%d" % number
        if len(found) < count and world.owner_of(key) is owner:
            found.append(key)
    return found


def may_go(ring: Cluster, node: Node, r: int) -> bool:
    """The failure assumption of the proof, to which a leave is a failure; and joiners keep one of those they know."""
    going = {node.address, *(n.address for n in ring.nodes if n._host.is_leaving)}
    rest = {p: m for p, m in ring.snapshot().items() if m.address not in going}
    return (
        all(invariants.best(rest, p) is not None for p in rest)
        and len(invariants.principals(rest)) > r + 1
        and all(n.state == "ready" or going.isdisjoint(n.config.join) for n in ring.nodes)
    )


def right_before(node: Node) -> Point:
    """Return the point before a node's own."""
    circle = node._host.circle
    return circle.point(vnode_of(node).id - 1)


__all__ = [
    "FORGIVING", "RunFailure", "Scene", "World", "keys_of", "live", "may_go", "play", "right_before", "slow", "themed",
    "vnode_of",
]  # fmt: skip

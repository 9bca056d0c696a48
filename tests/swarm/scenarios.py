"""Small worlds in which one kind of bug must show soon. Each is a function of a seed that raises when it saw something.

Unplanted, all of them are silent on every seed the tests use: that is tested too.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import msgspec
import trio

from chord import events, invariants, testing
from chord.config import PRESETS, Timing
from chord.events import Event
from chord.ids import Point
from chord.messages import Contact
from chord.node import Node
from chord.testing import MemoryNetwork
from chord.testing.rings import MemoryRing
from chord.vnode import Vnode

from .ledger import Ledger
from .watch import Watch

# A silent contact is asked for news soon.
FORGIVING = msgspec.structs.replace(PRESETS["local"], reprobe_first_s=2.0)

VIRTUAL_S_MAX = 120.0

Play = Callable[[MemoryRing, Watch, random.Random], Awaitable[None]]

# Rounds follow each other as fast as messages do, and nobody is ever taken for dead.
HECTIC = msgspec.structs.replace(
    PRESETS["local"], stabilize_s=0.1, finger_s=1.0, timeout_floor_s=1.0, timeout_stranger_s=1.0
)


def play(
    seed: int,
    what: Play,
    *,
    nodes: int,
    successors: int = 4,
    timing: Timing = PRESETS["local"],
    network: MemoryNetwork | None = None,
    is_exclusive: bool = False,
    is_watched: bool = True,
) -> None:
    """Run a scenario on a ring that is Ideal, checked after every step (`is_watched`).

    Raises:
        Violated: the checks saw something.
        NotConverged, TooSlowError: the ring did not become Ideal, or something never ended.
    """
    watch = Watch(f"seed {seed}", successors)
    watch.is_exclusive = is_exclusive

    async def main() -> None:
        async with testing.ring(
            nodes, seed=seed, successors=successors, timing=timing, network=network, observe=watch, is_converged=False
        ) as ring:
            watching = watch.over(ring) if is_watched else nullcontext()
            with watching, trio.fail_after(VIRTUAL_S_MAX), trio.CancelScope() as scope:
                watch.on_broken = scope.cancel
                await ring.converged(within_s=20)
                await what(ring, watch, random.Random(f"scenario/{seed}"))

    try:
        testing.run(main, seed=seed)
    except Exception:
        watch.raise_if_broken()
        raise
    watch.raise_if_broken()


def in_order(ring: MemoryRing) -> list[Node]:
    """Return the members in ring order."""
    return sorted((n for n in ring.nodes if n.state == "ready"), key=lambda node: next(iter(node.host.vnodes)))


def vnode_of(node: Node) -> Vnode:
    """Return a node's only vnode."""
    return next(iter(node.host.vnodes.values()))


# -- pointers -----------------------------------------------------------------------------------


def few(seed: int) -> None:
    """A ring of fewer than r + 1: lists hold everybody once. One joins, one leaves."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        await (await ring.start()).ready()
        await ring.converged(within_s=20)
        await ring[rng.randrange(len(ring))].leave()
        await ring.converged(within_s=20)

    play(seed, what, nodes=2 + seed % 3)


def one_failure(seed: int) -> None:
    """A newcomer's successor dies the moment it has joined: one failure in a ring that stands r - 1 at once."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        joined: list[events.RingJoined] = []
        watch.on_event = lambda event: joined.append(event) if isinstance(event, events.RingJoined) else None
        await ring.start()
        while not joined:
            await trio.sleep(0.0005)
        for node in list(ring.nodes):
            if node.address == joined[0].successor.address:
                await ring.kill(node)
        watch.check()
        await ring.converged(within_s=20)

    play(seed, what, nodes=8)


def hurry(seed: int) -> None:
    """Joins side by side and crashes, in rounds as short as a round trip: every step meets another.

    No message takes twice as long as another, so that an answer is never older than a round trip: then
    abort-if-observed makes every step atomic.
    """

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        for _ in range(14):
            await trio.sleep(rng.uniform(0, 0.3))
            if watch.broken is not None:
                return
            if rng.random() < 0.75:
                points = list(ring.vnodes())
                at = rng.randrange(len(points))
                gap = (points[at] - points[at - 1]) % (1 << 160)
                first = points[at - 1] + 1 + rng.randrange(max(1, gap - 9))
                for number in range(rng.choice([1, 2, 3])):
                    await ring.start(id=Point((first + number) % (1 << 160)))
            else:
                node = rng.choice(in_order(ring))
                if may_die(ring, node, 2):
                    await ring.kill(node)
                    watch.check()
        await ring.converged()

    network = MemoryNetwork(seed, delay=testing.uniform(0.04, 0.079))
    play(seed, what, nodes=6, successors=2, timing=HECTIC, network=network)


def may_die(ring: MemoryRing, node: Node, r: int) -> bool:
    """The failure assumption of the proof."""
    rest = {p: m for p, m in ring.snapshot().items() if m.address != node.address}
    return (
        all(invariants.best(rest, p) is not None for p in rest)
        and len(invariants.principals(rest)) > r + 1
        and all(n.state == "ready" or node.address not in n.config.join for n in ring.nodes)
    )


def split(seed: int) -> None:
    """Two halves that took each other for dead, each an Ideal ring, meet again. Only a self-lookup sees it."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        ring.network.partition([node.name for node in ring.nodes[:3]], is_cut=True)
        await trio.sleep(5)
        assert any(v.invariant == "AtMostOneRing" for v in ring.violations())
        ring.network.heal()
        await ring.converged(within_s=30)

    play(seed, what, nodes=6, timing=FORGIVING, is_watched=False)


def late(seed: int) -> None:
    """Members that missed everything for a while ask to be a predecessor again. They are not; progress only."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        nodes = in_order(ring)
        at = rng.randrange(len(nodes))
        for behind in range(1, 4):  # three in a row still take the same old vnode for their successor
            state = vnode_of(nodes[(at - behind) % len(nodes)]).ring
            old = vnode_of(nodes[at]).ring
            state.successors = (vnode_of(nodes[at]).me, *old.successors)[:4]
        watch.start_over()
        watch.calm_down()
        await ring.converged(within_s=20)

    play(seed, what, nodes=8)


# -- arcs and records -----------------------------------------------------------------------------


def slow(seed: int) -> MemoryNetwork:
    """A network on which a hand-over of a few hundred records takes long enough to be disturbed."""
    return MemoryNetwork(seed, delay=testing.uniform(0.005, 0.009))


def busy(seed: int) -> None:
    """Clients write and read without pause while two join and one leaves. Nobody dies: nothing may be lost."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        ledger = Ledger(ring, rng, watch.complain)
        await ledger.fill(300)
        async with trio.open_nursery() as nursery:
            clients: trio.CancelScope = await nursery.start(ledger.clients, 12, 0.005)
            for _ in range(2):
                await (await ring.start()).ready()
                await trio.sleep(0.2)
            await in_order(ring)[rng.randrange(3)].leave()
            await trio.sleep(0.2)
            clients.cancel()
        await ring.converged(within_s=20)
        await ledger.settle()

    play(seed, what, nodes=3, network=slow(seed), is_exclusive=True)


def mourning(seed: int) -> None:
    """A member dies with the only copy of its keys, then somebody joins in its place: nobody may deny them."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        ledger = Ledger(ring, rng, watch.complain)
        await ledger.fill(60)
        victim = in_order(ring)[rng.randrange(6)]
        async with trio.open_nursery() as nursery:
            clients: trio.CancelScope = await nursery.start(ledger.clients, 4, 0.05)
            ledger.bury(victim)
            await ring.kill(victim)
            await ring.converged(within_s=20)
            await ring.start(id=Point(next(iter(victim.host.vnodes)) - 1))
            await trio.sleep(0.5)
            clients.cancel()
        await ring.converged(within_s=20)
        await ledger.settle()

    play(seed, what, nodes=6)


def lost_acknowledgement(seed: int) -> None:
    """The connection breaks right after the joiner has taken the arc: the giver asks again, and is told the same."""

    async def what(ring: MemoryRing, watch: Watch, rng: random.Random) -> None:
        def on_event(event: Event) -> None:
            if isinstance(event, events.ArcGained) and event.how == "received" and watch.counts["cut"] == 0:
                watch.counts["cut"] += 1
                for node in ring.nodes[:-1]:
                    ring.network.cut(node.name, joiner.name)
                ring.network.heal()

        watch.on_event = on_event
        joiner = await ring.start()
        await joiner.ready()
        assert watch.counts["cut"], "nothing was cut"
        await ring.converged(within_s=20)

    play(seed, what, nodes=3, is_exclusive=True)


async def _disturbed(ring: MemoryRing, watch: Watch, rng: random.Random, how: str, who: str) -> None:
    """Somebody joins or leaves, and the giver or the receiver dies at some moment of the hand-over."""
    ledger = Ledger(ring, rng, watch.complain)
    await ledger.fill(300)
    under_way = trio.Event()
    sides: tuple[Point, Contact] | None = None

    def on_event(event: Event) -> None:
        nonlocal sides
        if isinstance(event, events.TransferStarted) and sides is None:
            sides = event.vnode, event.to
            under_way.set()

    watch.on_event = on_event
    if how == "join":
        await ring.start()
    else:
        ring[rng.randrange(len(ring))]._end("leave")
    await under_way.wait()
    assert sides is not None
    giver = next(node for node in ring.nodes if sides[0] in node.host.vnodes)
    if who == "giver":  # before it has sent the Switch
        await trio.sleep(rng.uniform(0, 0.015))
    elif rng.random() < 0.5:  # at any moment; else between the Switch and its acknowledgement
        await trio.sleep(rng.uniform(0, 0.08))
    else:
        while vnode_of(giver).ownership.giving is None:
            await trio.sleep(0.001)
        await trio.sleep(rng.uniform(0, 0.012))
    receiver = next(node for node in ring.nodes if node.address == sides[1].address)
    victim = receiver if who == "receiver" else giver
    ledger.bury(victim)
    await ring.kill(victim)
    await ring.converged(within_s=20)
    await ledger.settle()


def joiner_dies(seed: int) -> None:
    """The joiner dies in the middle: the giver has everything the joiner had not yet taken over, and owns it again."""
    play(seed, lambda ring, watch, rng: _disturbed(ring, watch, rng, "join", "receiver"), nodes=3, network=slow(seed))


def giver_dies(seed: int) -> None:
    """The giver dies in the middle: the joiner does not wait for it for ever."""
    play(seed, lambda ring, watch, rng: _disturbed(ring, watch, rng, "join", "giver"), nodes=5, network=slow(seed))


def heir_dies(seed: int) -> None:
    """The one a leaver hands its keys to dies in the middle: the leaver stays until another has them."""
    play(seed, lambda ring, watch, rng: _disturbed(ring, watch, rng, "leave", "receiver"), nodes=4, network=slow(seed))

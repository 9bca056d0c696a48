"""Scenarios in which arcs move and faults happen meanwhile. Each is a function of a seed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import msgspec
import trio

from chord import events
from chord.config import PRESETS
from chord.events import Emitted
from chord.ids import Point
from chord.node import Node
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork
from chord.wire.messages import Contact

from .play import FORGIVING, World, keys_of, live, play, right_before, slow, vnode_of

HASTY = msgspec.structs.replace(PRESETS["local"], leave_s=0.005)
N = 3
PATIENT = msgspec.structs.replace(FORGIVING, down_out_s=2.0, grace_s=4.0)
UNHURRIED = msgspec.structs.replace(FORGIVING, stabilize_s=4.0)
YOUNG_RINGS = 32
"""Number of rings that `parts_of_a_young_ring_merge` founds at most, until one part denies what the other one wrote."""


def busy(seed: int) -> None:
    """Clients write and read without pause while two nodes join and one leaves. No node dies: nothing may be lost."""

    async def scene(world: World) -> None:
        await world.workload.fill(300)
        async with trio.open_nursery() as nursery:
            clients: trio.CancelScope = await nursery.start(world.workload.clients, 12, 0.005)
            for _ in range(2):
                await (await world.ring.start()).ready()
                await trio.sleep(0.2)
            await world.rng.choice(world.nodes).leave()
            await trio.sleep(0.2)
            clients.cancel()
        await world.settle()

    play(seed, scene, nodes=3, network=slow(seed))


def written_while_switching(seed: int) -> None:
    """Clients write to the giver between the Switch and its acknowledgement, and read once the joiner owns the arc."""

    async def scene(world: World) -> None:
        await world.workload.fill(100)
        giver, _ = await _transfer(world)
        source = world.at(giver.address)
        while vnode_of(source).ownership.giving is None:
            await trio.sleep(0.0001)
        keys = [b"new-%d" % number for number in range(60)]
        async with trio.open_nursery() as nursery:
            for key in keys:
                nursery.start_soon(world.workload.write, source, key, "writer", "no context")
            await world.happens(events.ArcGained, lambda event: event.how == "received")
            for key in keys:
                nursery.start_soon(_read_often, world, key)
        await world.settle()

    play(seed, scene, nodes=3, network=slow(seed))


async def _read_often(world: World, key: bytes) -> None:
    for _ in range(5):
        await world.workload.read(world.rng.choice(world.nodes), key)
        await trio.sleep(0.005)


def only_copy_dies_before_a_join(seed: int) -> None:
    """A member dies with the only copy of its keys, then a node joins in its place. No node may deny the keys."""

    async def scene(world: World) -> None:
        await world.workload.fill(60)
        victim = world.rng.choice(world.nodes)
        async with trio.open_nursery() as nursery:
            clients: trio.CancelScope = await nursery.start(world.workload.clients, 4, 0.05)
            await world.kill(victim)
            await world.converged()
            await world.ring.start(id=right_before(victim))
            await trio.sleep(0.5)
            clients.cancel()
        await world.settle()

    play(seed, scene, nodes=6)


def lost_acknowledgement(seed: int) -> None:
    """The connection breaks right after the joiner took the arc. The giver repeats the Switch, with the same reply."""

    async def scene(world: World) -> None:
        ring, watch = world.ring, world.watch

        def on_event(emitted: Emitted) -> None:
            event = emitted.event
            if isinstance(event, events.ArcGained) and event.how == "received" and watch.counts["cut"] == 0:
                watch.counts["cut"] += 1
                for node in ring.nodes[:-1]:
                    ring.network.cut(node.name, joiner.name)
                ring.network.heal()

        world.on_event = on_event
        joiner = await ring.start()
        await joiner.ready()
        assert watch.counts["cut"], "nothing was cut"
        await world.converged()

    play(seed, scene, nodes=3, network=MemoryNetwork(seed))


def joiner_dies(seed: int) -> None:
    """The joiner dies during the transfer. The giver still has the records, and owns the arc again."""
    play(seed, lambda world: _disturbed(world, "receiver"), nodes=3, network=slow(seed))


def giver_dies(seed: int) -> None:
    """The giver dies during the transfer. The joiner does not wait for it without end."""
    play(seed, lambda world: _disturbed(world, "giver"), nodes=5, network=slow(seed))


def joins_and_leaves(seed: int) -> None:
    """A run without deaths: single joins, adjacent joins, and leaves."""
    live(seed, "adjacent")


def leave_exceeds_its_time(seed: int) -> None:
    """The time of a leaver is up before it has handed everything over. To other nodes that is a crash."""

    async def scene(world: World) -> None:
        await world.workload.fill(100)
        leaver = world.rng.choice(world.nodes)
        world.workload.accounting.bury(leaver)
        world.watch.note_death()
        await leaver.leave()
        await world.settle()

    play(seed, scene, nodes=4, timing=HASTY, network=slow(seed))


def late_switch(seed: int) -> None:
    """The joiner is silent when the Switch comes; the giver gives it up, owns the arc again and goes on.

    When the joiner hears of it at last, it holds an old copy.
    """

    async def scene(world: World) -> None:
        await world.workload.fill(100)
        giver, receiver = await _transfer(world)
        source, target = world.at(giver.address), world.at(receiver.address)
        while vnode_of(source).ownership.giving is None:
            await trio.sleep(0.0001)
        async with _stopped(world, target):
            await world.happens(events.ArcGained, lambda event: event.how == "reclaimed")
            await trio.sleep(0.5)

    play(seed, scene, nodes=4, network=MemoryNetwork(seed))


def giver_dies_after_the_switch(seed: int) -> None:
    """A joiner with its arc becomes unreachable while it is unknown. The giver dies, and the next vnode takes over."""

    async def scene(world: World) -> None:
        await world.workload.fill(100)
        await world.ring.start()
        received = await world.happens(events.ArcGained, lambda event: event.how == "received")
        joiner = world.node_of(received.vnode)
        nodes = [node for node in world.nodes if node is not joiner]
        giver = next((n for n in nodes if vnode_of(n).id > received.vnode), nodes[0])
        async with _stopped(world, joiner):
            await world.kill(giver)
            await world.happens(events.ArcGained, lambda event: event.how == "taken_over")
            await trio.sleep(0.5)

    play(seed, scene, nodes=6, network=MemoryNetwork(seed))


@asynccontextmanager
async def _stopped(world: World, node: Node) -> AsyncIterator[None]:
    """Stop a node during the block. Clients continue until the node is back and the ring is Ideal."""
    world.watch.note_death()
    async with trio.open_nursery() as nursery:
        clients: trio.CancelScope = await nursery.start(world.workload.clients, 8, 0.02)
        world.ring.network.freeze(node.name)
        yield
        world.ring.network.unfreeze(node.name)
        await world.converged()
        clients.cancel()
    await world.workload.settle()


def halves_merge(seed: int) -> None:
    """Two halves, each a ring, get writes and merge. Every record moves to its owner."""

    async def scene(world: World) -> None:
        ring = world.ring
        ring.network.partition([node.name for node in ring.nodes[:3]], reset=True)
        await trio.sleep(5)
        await world.workload.fill(120)
        ring.network.heal()
        await world.converged()
        await world.at_home()
        await world.workload.settle()

    play(seed, scene, nodes=6, timing=FORGIVING, is_watched=False)


def parts_of_a_long_split_merge(seed: int) -> None:
    """One part of a long split writes keys of the other part. The parts merge, and clients read the keys meanwhile.

    The ring is Ideal before the keys have moved. The owner may deny a key until then.
    """
    _long_split(seed, with_joiner=False)


def node_joins_as_a_long_split_ends(seed: int) -> None:
    """As `parts_of_a_long_split_merge`. A node joins the writers' part between the keys, right as the split ends.

    The node owns an arc with some of the keys before it has pointers. The other part may still deny these keys then.
    """
    _long_split(seed, with_joiner=True)


def _long_split(seed: int, *, with_joiner: bool) -> None:
    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(20)
        await trio.sleep(3)
        *part, owner = world.row(4)
        keys = keys_of(world, owner, 4)
        workload.oracle.is_lenient = True
        world.watch.go_outside()
        network.partition([node.name for node in part], reset=True)
        workload.oracle.split()
        await trio.sleep(3 * PATIENT.down_out_s)
        for key in keys:
            await workload.write(part[0], key, "writer", "no context")
        if with_joiner:
            _, middle, *_ = sorted(workload.oracle.models[key].point for key in keys)
            await world.ring.start(id=middle, join=part[:1])
        network.heal()
        await _merge(world, keys)

    play(seed, scene, nodes=8, replicas=N, timing=PATIENT, network=MemoryNetwork(seed))


def two_leave_a_part(seed: int) -> None:
    """Two of three nodes in a part of a split leave. Two new nodes join the other part, an old node; W is 3.

    The first leaver must keep its copies while it is the only one: the old node counts, too. As the second one leaves,
    two holders are enough, because the part knows no new node.
    """

    async def scene(world: World) -> None:
        network, workload = world.ring.network, world.workload
        await workload.fill(20)
        await trio.sleep(3)
        *part, old = world.row(4)
        workload.oracle.is_lenient = True
        world.watch.go_outside()
        network.partition([node.name for node in part], reset=True)
        workload.oracle.split()
        await trio.sleep(3 * PATIENT.down_out_s)
        for _ in range(2):
            await (await world.ring.start(join=[old])).ready()
        for number in range(8):
            await workload.write(part[0], b"late-%d" % number, "writer", "no context")
        for leaver in part[:2]:
            leaver._begin_leave()
            await trio.sleep(PATIENT.down_out_s)
        network.heal()
        await world.converged()
        await world.merged()
        workload.oracle.is_lenient = False
        await world.level(4)
        await workload.settle()

    play(seed, scene, nodes=4, replicas=4, timing=PATIENT, network=MemoryNetwork(seed))


def parts_of_a_young_ring_merge(seed: int) -> None:
    """A ring splits before it was ever Ideal. One part denies the writes of the other part at once. The parts merge.

    Three nodes join between the parts right before the split. They are the replicas of the keys, and the writers do not
    know all of them. Whether the writers acknowledge, and the replicas answer, depends on the draws. A ring without a
    denial ends before its parts merge, and the next one takes its place.
    """
    denied: list[int] = []

    async def scene(world: World) -> None:
        ring, network, workload = world.ring, world.ring.network, world.workload
        first = vnode_of(ring[0]).id

        async def start(eighths: int) -> Node:
            return await ring.start(id=Point((first + (eighths << 157)) % (1 << 160)))

        part, rest = [ring[0], await start(1), await start(2)], [await start(6), await start(7)]
        for node in ring.nodes:
            await node.ready()
        while len(vnode_of(part[0]).ring.successors) < 4:
            await trio.sleep(0.01)
        was_ideal = not ring.waiting()
        new = [await start(3), await start(4), await start(5)]
        for node in new:
            await node.ready()
        await trio.sleep(0.2)
        keys = keys_of(world, new[0], 4)
        if was_ideal or not ring.waiting():
            return
        workload.oracle.is_lenient = True
        world.watch.go_outside()
        network.partition([node.name for node in part], reset=True)
        workload.oracle.split()
        for key in keys:
            await workload.write(part[0], key, "writer", "no context")
        for key in keys:
            await workload.read(world.rng.choice(new + rest), key)
        if not workload.counts["denied in a long split"]:
            return
        denied.append(seed)
        network.heal()
        await _merge(world, keys)

    for number in range(seed * YOUNG_RINGS, (seed + 1) * YOUNG_RINGS):
        play(number, scene, nodes=1, replicas=N, timing=UNHURRIED, network=MessageNetwork(number))
        if denied:
            return
    raise AssertionError(f"the oracle excused no denial in {YOUNG_RINGS} rings")


async def _merge(world: World, keys: list[bytes]) -> None:
    """Read keys until the parts of a split have merged and all records have moved. Then read every key again."""
    async with trio.open_nursery() as nursery:
        for key in keys:
            nursery.start_soon(_read_on, world, key)
        await world.converged()
        await world.merged()
        nursery.cancel_scope.cancel()
    world.workload.oracle.is_lenient = False
    await world.level(N)
    await world.workload.settle()


async def _read_on(world: World, key: bytes) -> None:
    while True:
        await world.workload.read(world.rng.choice(world.nodes), key)
        await trio.sleep(world.rng.uniform(0, 0.5))


async def _disturbed(world: World, who: Literal["giver", "receiver"]) -> None:
    """A node joins, and the giver or the receiver dies at a random moment of the transfer."""
    await world.workload.fill(300)
    giver, receiver = await _transfer(world)
    rng = world.rng
    if who == "giver":  # before it has sent the Switch
        await trio.sleep(rng.uniform(0, 0.015))
    elif rng.random() < 0.5:  # otherwise: between the Switch and its acknowledgement
        await trio.sleep(rng.uniform(0, 0.08))
    else:
        while vnode_of(world.at(giver.address)).ownership.giving is None:
            await trio.sleep(0.001)
        await trio.sleep(rng.uniform(0, 0.012))
    await world.kill(world.at((receiver if who == "receiver" else giver).address))
    await world.settle()


async def _transfer(world: World) -> tuple[Contact, Contact]:
    """Let a node join. Return the giver and the receiver when records begin to move."""
    await world.ring.start()
    started = await world.happens(events.TransferStarted)
    return world.ring._vnodes()[started.vnode].me, started.to

"""Scenarios of machines with disks: nodes die and return, and durable records must survive.

Each is a function of a seed.
"""

from __future__ import annotations

import trio

from chord import events
from chord.errors import NotFound, OwnerDown
from chord.ids import Point
from chord.node import Node
from chord.sim.disk import flash
from chord.testing import MemoryNetwork

from .play import FORGIVING, World, keys_of, live, play, right_before, slow, vnode_of


def taker_restarts(seed: int) -> None:
    """A member dies with the only copy of its keys, and the new owner restarts. It still knows the mark of the arc."""

    async def scene(world: World) -> None:
        await world.workload.fill(60)
        victim, taker = world.row(2)
        await world.kill(victim)
        await world.converged()
        await trio.sleep(1)  # by now it has persisted the takeover
        await world.kill(taker)
        await world.restart(taker)
        await world.settle()

    play(seed, scene, nodes=6, sync_delay=flash)


def predecessor_dies_meanwhile(seed: int) -> None:
    """Two neighbours die, and the second returns unnoticed. Keys of the first are missing, and may not be denied."""

    async def scene(world: World) -> None:
        await world.workload.fill(60)
        first, second = world.row(2)
        await world.kill(second)
        await world.kill(first)
        await world.restart(second)
        await world.settle()

    play(seed, scene, nodes=6, sync_delay=flash)


def heir_dies_before_the_owner_is_back(seed: int) -> None:
    """A node dies, and its heir takes writes of its arc. Then all nodes lose power, and only the heir stays down.

    No other node knows what the heir took over. The owner may not deny the keys that only the heir has.
    """

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        owner, heir, *others = world.row(6)
        keys = keys_of(world, owner, 8)
        await world.kill(owner)
        await world.converged()
        for key in keys:
            await world.workload.write(world.rng.choice(others), key, "writer", "no context")
        for node in (heir, *others):
            await world.kill(node)
        back = [await world.restart(node) for node in (owner, *others)]
        for node in back:
            await node.ready()
        for key in keys:
            await world.workload.read(world.rng.choice(back), key)
        await world.restart(heir)
        await world.settle()

    play(seed, scene, nodes=6, sync_delay=flash, is_watched=False)


def one_of_two_comes_back(seed: int) -> None:
    """Two neighbours die, and a newcomer that knows only the second takes both arcs over; the second returns."""

    async def scene(world: World) -> None:
        await world.workload.fill(60)
        first, second, third = world.row(3)
        await world.ring.start(id=right_before(third))
        await world.happens(events.RingJoined)
        await world.kill(first)
        await world.kill(second)
        await world.happens(events.ArcGained, lambda event: event.how == "taken_over")
        await world.restart(second)
        await world.settle()

    play(seed, scene, nodes=8, sync_delay=flash)


def neighbour_is_forgotten(seed: int) -> None:
    """With one copy of each record two neighbours die. An operator forgets the first, and the second returns.

    The second waits for no owner then.
    """

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        await trio.sleep(3)  # by now every node knows the nodes before it
        first, second, third = world.row(3)
        await world.kill(first)
        await world.kill(second)
        await world.converged()
        world.workload.accounting.wipe(first.name)
        world.ring.wipe(first.name)
        await third.remove_node(first.address)
        back = await world.restart(second)
        await world.converged()
        with trio.fail_after(10):
            while vnode_of(back).ownership.marks:
                await trio.sleep(0.1)
        await world.settle()

    play(seed, scene, nodes=6, sync_delay=flash)


def forgotten_node_is_back(seed: int) -> None:
    """With one copy of each record a node dies, is forgotten, returns, takes writes, and dies again."""

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        await trio.sleep(3)  # by now every node knows the nodes before it
        first, second = world.row(2)
        await world.kill(first)
        await world.converged()
        await second.remove_node(first.address)
        back = await world.restart(first)
        await world.converged()
        await trio.sleep(3)
        keys = keys_of(world, back, 4)
        for key in keys:
            await world.workload.write(back, key, "writer", "put")
        await world.kill(back)
        await world.converged()
        for key in keys:
            await world.workload.read(second, key)

    play(seed, scene, nodes=6, sync_delay=flash)


def taker_of_a_cut_off_arc_dies(seed: int) -> None:
    """With one copy of each record a node is cut off, the next one takes writes of its arc and dies, and it is back.

    The oracle excuses a denial after two nodes answered for a key. This scene does not.
    """

    async def scene(world: World) -> None:
        await world.workload.fill(10)
        await trio.sleep(3)  # by now every node knows the nodes before it
        cut_off, taker, third = world.row(3)
        keys = keys_of(world, cut_off, 4)
        world.ring.network.partition([cut_off.name], reset=True)
        await _owns(taker, vnode_of(cut_off).id)
        for key in keys:
            await world.workload.write(taker, key, "writer", "put")
        await world.kill(taker)
        await _owns(third, vnode_of(cut_off).id)
        await trio.sleep(2)
        world.ring.network.heal()
        await world.converged()
        for key in keys:
            for node in (cut_off, third):
                try:
                    await node.get(key)
                except OwnerDown:
                    pass
                except NotFound:
                    world.watch.complain(f"{node.name} denies {key!r}, which a dead node has acknowledged")

    play(seed, scene, nodes=6, timing=FORGIVING, sync_delay=flash, is_watched=False)


async def _owns(node: Node, point: Point) -> None:
    while not vnode_of(node).ownership.is_owner(point):
        await trio.sleep(0.05)


def neighbours_restart(seed: int) -> None:
    """Two adjacent nodes restart in a running ring. Neither is a member that the other could ask."""

    async def scene(world: World) -> None:
        both = world.row(2)
        for node in both:
            await world.kill(node)
        for node in both:
            await world.restart(node)
        await world.converged()

    play(seed, scene, nodes=6, sync_delay=flash)


def power_fails(seed: int) -> None:
    """All machines lose power while clients write, and restart. Acknowledged writes survive."""

    async def scene(world: World) -> None:
        await world.workload.fill(30)
        nodes = world.nodes
        async with trio.open_nursery() as nursery:
            await nursery.start(world.workload.clients, 20, 0.002)
            await trio.sleep(world.rng.uniform(0.1, 0.2))
            nursery.cancel_scope.cancel()
            for node in nodes:
                world.ring.disk(node.name).crash()
        for node in nodes:
            await world.kill(node)
        for node in nodes:
            await world.restart(node)
        await world.settle()

    play(seed, scene, nodes=4, sync_delay=lambda rng: rng.uniform(0.01, 0.03), is_watched=False)


def blackouts(seed: int) -> None:
    """A run in which sometimes all machines lose power at once, some right after their join."""
    live(seed, "blackout")


def back_while_it_is_forgotten(seed: int) -> None:
    """An arc is given away and handed back at once, while the giver still hands off its records."""

    async def scene(world: World) -> None:
        await world.workload.fill(600)
        joiner = await world.ring.start()
        await joiner.ready()
        async with trio.open_nursery() as nursery:
            clients: trio.CancelScope = await nursery.start(world.workload.clients, 24, 0.002)
            await joiner.leave()
            await trio.sleep(0.3)
            clients.cancel()
        await world.settle()

    play(seed, scene, nodes=3, sync_delay=flash, network=slow(seed))


def given_away_and_back(seed: int) -> None:
    """A key moves to a joiner, which dies. The former owner stores the key again, and the joiner returns.

    The two values must not share a dot.
    """
    play(seed, lambda world: _given_away_and_back(world, is_wiped=False), nodes=4, sync_delay=flash)


def given_away_and_wiped(seed: int) -> None:
    """As `given_away_and_back`, but the disk of the former owner is wiped meanwhile."""
    play(seed, lambda world: _given_away_and_back(world, is_wiped=True), nodes=4, sync_delay=flash)


async def _given_away_and_back(world: World, *, is_wiped: bool) -> None:
    await _fill_in_order(world)
    joiner = await world.ring.start()
    await joiner.ready()
    await world.converged()
    await world.at_home()
    nodes = world.nodes
    giver = nodes[(nodes.index(joiner) + 1) % len(nodes)]
    await world.kill(joiner)
    await world.converged()
    if is_wiped:
        await world.kill(giver)
        world.workload.accounting.wipe(giver.name)
        world.ring.wipe(giver.name)
        await (await world.ring.start(name=giver.name)).ready()
        await world.converged()
    await _fill_in_order(world)
    await world.restart(joiner)
    await world.settle()


async def _fill_in_order(world: World) -> None:
    """Write the same keys in order, so that a new store mints the same dots as the old one."""
    for number in range(24):
        await world.workload.write(world.rng.choice(world.nodes), b"old-%d" % number, "filler", "no context")


def acknowledgements_are_lost(seed: int) -> None:
    """Every connection breaks while writes wait for their disks. The writes succeed, and the clients get no reply."""

    async def scene(world: World) -> None:
        await world.workload.fill(8)
        network = world.ring.network
        async with trio.open_nursery() as nursery:
            clients: trio.CancelScope = await nursery.start(world.workload.clients, 16, 0.05)
            await trio.sleep(2)
            network.partition(*[[node.name] for node in world.ring.nodes], reset=True)
            network.heal()
            await trio.sleep(0.01)
            clients.cancel()
        await world.settle()

    play(seed, scene, nodes=3, sync_delay=lambda rng: 0.05, network=MemoryNetwork(seed))

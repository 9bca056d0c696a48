"""Runs and scenarios in which transactions are cut, refused late, and rolled back."""

from __future__ import annotations

import trio

from chord.node import Node
from chord.sim.disk import flash
from chord.testing import MemoryNetwork

from .play import Scene, World, live, play
from .scenes_data import HASTY, N

KEYS = 20
SYNC_S = 0.5


def power_is_cut(seed: int) -> None:
    """A run in which nodes are killed, and half of them lose writes without a sync."""
    live(seed, "restart", "return", "blackout", membership=60)


def disk_is_full(seed: int) -> None:
    """One disk refuses writes for a while, after they were visible."""

    async def scene(world: World) -> None:
        await _filled(world)
        full = world.ring.disk(world.rng.choice(world.nodes).name)
        full.fill()
        async with trio.open_nursery() as nursery:
            _write_all(world, world.nodes, nursery)
        full.free()
        await trio.sleep(1)
        await _level(world)

    _play(seed, scene)


def power_is_cut_before_the_sync(seed: int) -> None:
    """All nodes lose their power during the syncs of their writes."""

    async def scene(world: World) -> None:
        await _filled(world)
        nodes = world.nodes
        for node in nodes:
            world.ring.disk(node.name).slow_s = SYNC_S
        async with trio.open_nursery() as nursery:
            _write_all(world, nodes, nursery)
            await trio.sleep(SYNC_S / 2)
            for node in nodes:
                world.workload.accounting.bury(node)
                await world.ring.kill(node, power_loss=True)
                world.workload.accounting.autopsy(node)
        for node in nodes:
            world.ring.disk(node.name).slow_s = 0.0
            await world.restart(node)
        for node in world.ring.nodes:
            await node.ready()
        await _level(world)

    _play(seed, scene)


def _play(seed: int, scene: Scene) -> None:
    network = MemoryNetwork(seed)
    play(seed, scene, nodes=5, successors=3, replicas=N, timing=HASTY, sync_delay=flash, network=network)


async def _filled(world: World) -> None:
    await world.workload.fill(KEYS)
    await world.level(N)
    world.watch.go_outside()
    world.workload.oracle.is_lenient = True


def _write_all(world: World, nodes: list[Node], nursery: trio.Nursery) -> None:
    for number in range(KEYS):
        node = world.rng.choice(nodes)
        nursery.start_soon(world.workload.write, node, b"old-%d" % number, "filler", "no context")


async def _level(world: World) -> None:
    await world.converged()
    world.workload.oracle.is_lenient = False
    await world.level(N)
    await world.workload.settle()

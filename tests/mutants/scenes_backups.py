"""Consistent backups of a small ring under load."""

from __future__ import annotations

import random
from collections.abc import Collection

import msgspec
import trio

from chord.config import PRESETS
from chord.sim.backups import KEEPER, READY, Backups
from chord.sim.disk import flash
from chord.sim.messages import MessageNetwork

from .play import World, play

SILENT = msgspec.structs.replace(
    PRESETS["local"], stabilize_s=30.0, finger_s=30.0, anti_entropy_s=60.0
)
"""Nodes call one another only for clients. Otherwise these calls would bring the number of a cut everywhere at once."""
LASTS_S = 2.0
COMPLETE_MIN = 3


def consistent_backups(seed: int) -> None:
    """Fast clients work, while the host that makes the backups is far away."""
    network = MessageNetwork(seed, delay=_delay)

    async def scene(world: World) -> None:
        counts, made = world.watch.counts, _backups(world, network, clients=1, pause_s=0.001)
        async with trio.open_nursery() as nursery:
            scope: trio.CancelScope = await nursery.start(made.run)
            await trio.sleep(LASTS_S)
            scope.cancel()
        assert counts["backup complete"] >= COMPLETE_MIN, f"{counts['backup complete']} backups were complete"

    play(seed, scene, nodes=10, successors=3, replicas=1, network=network, timing=SILENT)


def backups_beside_a_dead_node(seed: int) -> None:
    """With one copy of each record, a member is dead for a third of the time, and its peers know it."""
    network = MessageNetwork(seed, delay=_delay)

    async def scene(world: World) -> None:
        counts, made = world.watch.counts, _backups(world, network, clients=2, pause_s=0.01)
        async with trio.open_nursery() as nursery:
            scope: trio.CancelScope = await nursery.start(made.run)
            await trio.sleep(LASTS_S)
            whole = counts["backup complete"]
            (node,) = world.row(1)
            await world.ring.kill(node)
            await trio.sleep(LASTS_S)
            incomplete, after = counts["backup incomplete"], counts["backup complete"]
            await world.ring.start(join=[], name=node.name)
            await trio.sleep(LASTS_S)
            scope.cancel()
        assert whole, "no backup was complete before the death"
        assert incomplete, "no backup was incomplete after the death"
        assert after <= whole + 1, f"{after - whole} backups were complete without a member"

    play(seed, scene, nodes=4, successors=3, replicas=1, network=network)


def backups_while_the_ring_restarts(seed: int) -> None:
    """With one copy of each record, all nodes die at one moment. Backups enter through nodes that restart."""
    network = MessageNetwork(seed, delay=_delay)

    async def scene(world: World) -> None:
        entries = ("resuming", "ready")
        counts, made = world.watch.counts, _backups(world, network, clients=2, pause_s=0.01, entries=entries)
        async with trio.open_nursery() as nursery:
            scope: trio.CancelScope = await nursery.start(made.run)
            await trio.sleep(LASTS_S)
            assert counts["backup complete"], "no backup was complete before the restart"
            world.watch.go_outside()
            nodes = list(world.ring.nodes)
            for node in nodes:
                await world.ring.kill(node)
            before = counts["backup incomplete"]
            for node in nodes:
                await world.ring.start(join=[], name=node.name)
            await trio.sleep(LASTS_S)
            scope.cancel()
        assert counts["backup incomplete"] > before, "no backup was incomplete during the restart"

    play(seed, scene, nodes=4, successors=3, replicas=1, network=network, sync_delay=flash)


def _backups(
    world: World, network: MessageNetwork, *, clients: int, pause_s: float, entries: Collection[str] = READY
) -> Backups:
    watch, between_s = world.watch, (0.02, 0.05)
    return Backups(world.ring, network, world.rng, watch.complain, watch.counts, clients, pause_s, between_s, entries)


def _delay(rng: random.Random, source: str, target: str) -> float:
    """Draw the delay of a message: the number of a new cut reaches some nodes long before others."""
    return rng.uniform(0.0005, 0.04) if KEEPER in (source, target) else rng.uniform(0.0002, 0.0004)

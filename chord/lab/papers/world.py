"""Rings for experiments: as they are in the papers' simulators, with the real node in them."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from chord.config import RingConstants, Timing
from chord.ids import BITS_MAX, Point
from chord.lab.harness.experiment import Scale
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork
from chord.testing.rings import MemoryRing

NEVER_S = 1e6
NEVER_TIMES = 1_000_000_000

STILL = Timing(
    stabilize_s=NEVER_S,
    finger_s=NEVER_S,
    timeout_floor_s=0.5,
    timeout_stranger_s=0.5,
    timeout_cap_s=0.5,
    suspect_misses=NEVER_TIMES,
    dead_misses=NEVER_TIMES,
    dead_refusals=NEVER_TIMES,
)
"""Nothing is repaired, and what one lookup finds out about the dead no other lookup knows."""


def again(name: str) -> Callable[[Scale, int], str]:
    """Return how an experiment says by which command it is measured again."""
    return lambda scale, seed: f"chord sim paper {name} --scale {scale} --seed {seed}"


def draw_point(rng: random.Random) -> Point:
    """Return a point drawn evenly from the circle, as the hash of a key is."""
    return Point(rng.getrandbits(BITS_MAX))


def draw_points(rng: random.Random, count: int) -> list[Point]:
    """Return the points of so many nodes."""
    return [draw_point(rng) for _ in range(count)]


@asynccontextmanager
async def still_ring(nodes: int, successors: int, seed: str) -> AsyncIterator[Cluster]:
    """Have an Ideal ring of so many nodes at drawn points, in which nothing happens by itself."""
    constants = RingConstants(successors=successors, replicas=1)
    async with cluster(seed=seed, ring=constants, timing=STILL, network=MessageNetwork(seed)) as ring:
        await ring.place(nodes, ids=draw_points(random.Random(f"{seed}/points"), nodes))
        yield ring


def successor(ordered: Sequence[Point], key: Point) -> Point:
    """Return the first of the points, which are in ascending order, at or after a key."""
    return ordered[bisect_left(ordered, key) % len(ordered)]


def rightful_owner(ring: MemoryRing, key: Point) -> Point | None:
    """Return the key's current successor: the first vnode at or after it that lives and has been given an arc.

    Says what ought to be, and asks nobody's opinion on whose the key is. A joiner counts from the moment its
    successor's arc was switched to it, a leaver until its own is.
    """
    holders = (v.id for node in ring.nodes for v in node.host.vnodes.values() if v.ownership.start is not None)
    return min(holders, key=lambda point: (point - key) % (1 << BITS_MAX), default=None)


def members(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are in the ring and neither joining nor leaving."""
    return [node for node in nodes if node.state == "ready"]

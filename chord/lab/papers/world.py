"""The parts that the papers' figures share: rings of real nodes, and the model.

A figure is measured with the real node on virtual time. If NumPy is installed, the same figure is also computed by the
model: `chord.lab.bigring`, or the hash alone. Both stand side by side in one table.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from chord.config import PRESETS, RingConstants, Timing
from chord.ids import BITS_MAX, Point
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork
from chord.testing.rings import TestRing

MAKERS = ("real node", "model")
"""The two columns of a figure; index with `is_model`."""

NEVER_S = 1e6
NEVER_TIMES = 1_000_000_000

STILL = Timing(
    stabilize_s=NEVER_S,
    finger_s=NEVER_S,
    period_growth_max=1.0,
    timeout_floor_s=0.5,
    timeout_stranger_s=0.5,
    timeout_cap_s=0.5,
    suspect_misses=NEVER_TIMES,
    dead_misses=NEVER_TIMES,
    dead_refusals=NEVER_TIMES,
)
"""Timing without repair, under which lookups share no knowledge of the dead."""


class _Cell(Protocol):
    """The result of one measurement, with the setting that it was made under."""

    @property
    def setting(self) -> Any:
        """The parameters of the measurement, including `is_model`."""


C = TypeVar("C", bound=_Cell)
K = TypeVar("K")


def fixed_periods(preset: str) -> Timing:
    """Return the timing of a preset (`local`, `lan` or `wan`) with periods that do not grow, as in the papers."""
    return msgspec.structs.replace(PRESETS[preset], period_growth_max=1.0)


def has_model() -> bool:
    """Whether the model can be computed: it needs NumPy."""
    return find_spec("numpy") is not None


def pairs(cells: Iterable[C], key: Callable[[Any], K]) -> dict[K, tuple[C | None, C | None]]:
    """Pair each measurement of the real node with the model's one.

    Args:
        cells: the measurements; their settings have `is_model`.
        key: returns the key by which two settings belong together. If several measurements of the model, or of the real
            node, have the same key, the last one counts.

    Returns:
        the real node's measurement and the model's, by key; None for a missing one.
    """
    found: dict[K, tuple[C | None, C | None]] = {}
    for cell in cells:
        real, model = found.get(key(cell.setting), (None, None))
        found[key(cell.setting)] = (real, cell) if cell.setting.is_model else (cell, model)
    return found


def draw_point(rng: random.Random) -> Point:
    """Return a uniformly random point of the circle, like the hash of a key."""
    return Point(rng.getrandbits(BITS_MAX))


def draw_points(rng: random.Random, count: int) -> list[Point]:
    """Return a random point of the circle for each of `count` nodes."""
    return [draw_point(rng) for _ in range(count)]


@asynccontextmanager
async def placed_ring(
    nodes: int,
    successors: int,
    timing: Timing,
    seed: str,
    network: MessageNetwork | None = None,
    members: Literal["off", "on"] = "off",
) -> AsyncIterator[Cluster]:
    """Run an Ideal ring (all pointers exact) of nodes at random points.

    Each record has a single copy.

    Args:
        nodes: number of nodes.
        successors: length of the successor lists.
        timing: the timing of the nodes.
        seed: decides the points and all other random choices.
        network: the simulated network; None: one with default delays.
        members: whether the nodes keep membership lists; at first they know all nodes.
    """
    constants = RingConstants(successors=successors, replicas=1)
    network = network or MessageNetwork(seed)
    async with cluster(seed=seed, ring=constants, timing=timing, network=network, members=members) as ring:
        await ring.place(nodes, ids=draw_points(random.Random(f"{seed}/points"), nodes))
        yield ring


def still_ring(nodes: int, successors: int, seed: str) -> AbstractAsyncContextManager[Cluster]:
    """Run an Ideal ring of nodes that never do maintenance, at random points.

    Args:
        nodes: number of nodes.
        successors: length of the successor lists.
        seed: decides the points and all other random choices.
    """
    return placed_ring(nodes, successors, STILL, seed)


def successor(ordered: Sequence[Point], key: Point) -> Point:
    """Return the first point at or after a key on the circle; `ordered` ascends."""
    return ordered[bisect_left(ordered, key) % len(ordered)]


def rightful_owner(ring: TestRing, key: Point) -> Point | None:
    """Return the key's true successor at this moment; None if no node owns an arc.

    The result is the first live vnode at or after the key that has an arc. The function inspects the nodes' state and
    asks no node. A joining vnode counts from the moment its successor's arc is switched to it. A leaving vnode counts
    until its own arc is switched away.
    """
    holders = (v.id for node in ring.nodes for v in node._host.vnodes.values() if v.ownership.start is not None)
    return min(holders, key=lambda point: (point - key) % (1 << BITS_MAX), default=None)


def members(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that are in the ring and neither joining nor leaving."""
    return [node for node in nodes if node.state == "ready"]

"""Measure how the costs of lookups and maintenance grow with the ring.

    python -m benchmarks.growth [--only lookups,warm,upkeep,churn,coming] [--nodes-max 4096] [--json]

Real nodes run on virtual time, so the figures are repeatable. Hops, calls and messages are exact. Bytes are an
estimate, because only one message in eight, drawn at random, is encoded. The parts are:

- lookups: hops of a classic lookup by fingers alone, and calls of a fast lookup without the owner cache.
- warm: calls of a fast lookup with a filled owner cache. It holds all arcs, or 256 arcs, or all arcs before 10 % churn.
- upkeep: bytes and calls that a node sends per second in an idle ring. Every period is 30 s. Two rows show 16
  nodes with the periods of the presets `lan` and `local`.
- churn: the same while nodes crash, each after a mean of one hour, and as many nodes join.
- coming: calls and bytes that a join and a leave cost the ring.

Bars (required figures):

- A classic lookup takes at most half of log2 N hops.
- At N = 1000, a warm lookup takes at most 1.2 calls; 2 with 256 arcs, and 2 after the churn.
- At N = 1000, maintenance takes at most 750 B/s per node.
- From 16 nodes to the largest ring, maintenance grows no faster than log2 N.

Source: Stoica et al. 2001, Theorem 2 and Fig. 10. MIT's Chord spent 750 B/s per node on 1,000 nodes (Dabek 2005).
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import trio

from benchmarks.bars import Row, Rows, bar, positive, run_parts
from chord import testing
from chord.config import PRESETS, RingConstants, Timing
from chord.lab.papers.sessions import Weigher
from chord.lab.papers.world import draw_point, draw_points, still_ring
from chord.node import Node
from chord.ring.owner_cache import OwnerCache
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork

SIZES = (16, 64, 256, 1000, 4096)
SUCCESSORS = 16
LOOKUPS = 1000
WARM_NODES = 1000
WARM_LOOKUPS = 8  # lookups per node of the ring before a node counts as warm
FEW_ARCS, MANY_ARCS = 256, 4096
WARM_MAX, FEW_MAX, CHURNED_MAX = 1.2, 2.0, 2.0
CHURNED_SHARE = 0.1
PERIOD_S, UPKEEP_S = 30.0, 120.0
PRESET_UPKEEP_S = 20.0  # a preset has shorter periods, so less time shows as much
UPKEEP_MAX_B_S = 750.0
SESSION_S, CHURN_S = 3600.0, 600.0
COMING = 10  # nodes that join and leave, one after the other
COMING_NODES_MAX = 1000  # a larger ring would take longer than all other parts

IDLE = msgspec.structs.replace(PRESETS["wan"], stabilize_s=PERIOD_S, finger_s=PERIOD_S, period_growth_max=1.0)


async def mean_calls(node: Node, rng: random.Random, *, is_remembered: bool = True) -> float:
    """Return the mean number of calls for a lookup of a random key from one node.

    The lookups use fingers, successor lists and, if allowed, the owner cache.

    Args:
        is_remembered: whether the lookups may use the owner cache.
    """
    calls = [
        (await node._lookups.find(draw_point(rng), node.contact, route="fast", is_remembered=is_remembered)).calls
        for _ in range(LOOKUPS)
    ]
    return statistics.mean(calls)


# -- lookups ----------------------------------------------------------------------------------------


def lookups(args: argparse.Namespace) -> Rows:
    """Measure path lengths, and calls per lookup, without the owner cache."""
    rows: Rows = []
    for nodes in sizes(args):
        paths, calls = testing.run(cold, nodes, seed=nodes)
        rows.append({"op": "lookup", "nodes": nodes, "hops_mean": paths, "half_log2": math.log2(nodes) / 2,
                     "calls_fast_cold": calls})  # fmt: skip
    return [
        *rows,
        *(bar(f"mean classic path by fingers alone, {row['nodes']:,} nodes", row["hops_mean"],
              at_most=row["half_log2"]) for row in rows),
    ]  # fmt: skip


async def cold(nodes: int) -> tuple[float, float]:
    """Return the mean path and the mean calls of lookups without the owner cache.

    The path is that of classic lookups by fingers alone. The calls are those of fast lookups, which also use successor
    lists.

    Args:
        nodes: the size of the ring.
    """
    rng = random.Random(f"growth/{nodes}")
    async with still_ring(nodes, 1, f"fingers/{nodes}") as ring:
        paths = [
            (await node._lookups.find(draw_point(rng), node.contact)).path_length
            for node in rng.choices(ring.nodes, k=LOOKUPS)
        ]
    async with still_ring(nodes, min(SUCCESSORS, nodes // 2), f"lists/{nodes}") as ring:
        calls = [
            (await node._lookups.find(draw_point(rng), node.contact, route="fast", is_remembered=False)).calls
            for node in rng.choices(ring.nodes, k=LOOKUPS)
        ]
    return statistics.mean(paths), statistics.mean(calls)


def warm(args: argparse.Namespace) -> Rows:
    """Measure calls per lookup with a filled owner cache."""
    nodes = min(WARM_NODES, sizes(args)[-1])
    found = {
        "all arcs": testing.run(warmed, nodes, MANY_ARCS, 0.0, seed=1),
        f"{FEW_ARCS} arcs": testing.run(warmed, nodes, FEW_ARCS, 0.0, seed=1),
        "right after the churn": testing.run(warmed, nodes, MANY_ARCS, CHURNED_SHARE, seed=1),
    }
    bars = dict(zip(found, (WARM_MAX, FEW_MAX, CHURNED_MAX), strict=True))
    return [
        *({"op": "warm lookup", "nodes": nodes, "remembers": name, "calls": calls} for name, calls in found.items()),
        *(bar(f"calls of a warm lookup, {nodes:,} nodes, {name}", calls, at_most=bars[name])
          for name, calls in found.items()),
    ]  # fmt: skip


async def warmed(nodes: int, arcs_max: int, churned: float) -> float:
    """Return the mean calls of a lookup from a node with a filled owner cache.

    Args:
        nodes: the size of the ring.
        arcs_max: the capacity of the owner cache, in arcs.
        churned: the share of nodes that crash before the measurement. As many nodes join.
    """
    rng = random.Random(f"warm/{nodes}")
    async with ring_of(nodes, PRESETS["local"]) as (ring, _):
        node = ring.nodes[0]
        node._lookups.arcs = OwnerCache(node._host.circle, arcs_max)
        for _ in range(WARM_LOOKUPS * nodes):
            await node._lookups.find(draw_point(rng), node.contact, route="fast")
        for victim in rng.sample(ring.nodes[1:], int(churned * nodes)):
            await ring.kill(victim)
            await ring.start()
        return await mean_calls(node, rng)


# -- upkeep -----------------------------------------------------------------------------------------


def upkeep(args: argparse.Namespace) -> Rows:
    """Measure the maintenance traffic of a node in an idle ring, by ring size."""
    rows = [testing.run(idle, nodes, IDLE, UPKEEP_S, seed=nodes) for nodes in sizes(args)]
    small, large = rows[0], rows[-1]
    found: Rows = []
    if len(rows) > 1:
        grown = large["bytes_per_s"] / small["bytes_per_s"]
        logs = math.log2(large["nodes"]) / math.log2(small["nodes"])
        found.append(bar("growth of upkeep / growth of log2 N", grown / logs, at_most=1.0))
    found += [
        bar(f"bytes a node sends a second, {row['nodes']:,} nodes", row["bytes_per_s"], at_most=UPKEEP_MAX_B_S)
        for row in rows
        if row["nodes"] == WARM_NODES
    ]
    presets = [testing.run(idle, SIZES[0], PRESETS[name], PRESET_UPKEEP_S, seed=SIZES[0]) for name in ("lan", "local")]
    return [*rows, *presets, *found]


async def idle(nodes: int, timing: Timing, seconds: float) -> Row:
    """Return bytes and messages that a node of an idle ring sends per second.

    The measurement begins one period of 30 s after the start. By then the periods of every preset have their length for
    an idle ring.
    """
    async with ring_of(nodes, timing) as (_, weigher):
        await trio.sleep(PERIOD_S)
        messages, size = await sent(weigher, trio.sleep, seconds)
        share = nodes * seconds
        return {"op": "upkeep", "nodes": nodes, "period_s": timing.stabilize_s, "bytes_per_s": size / share,
                "messages_per_s": messages / share}  # fmt: skip


def churn(args: argparse.Namespace) -> Rows:
    """Measure the traffic of a node while other nodes crash and join, by ring size."""
    few = [nodes for nodes in sizes(args) if nodes <= COMING_NODES_MAX]
    return [testing.run(changing, nodes, seed=nodes) for nodes in few]


async def changing(nodes: int) -> Row:
    """Return bytes and messages per node and second while nodes crash and join.

    The times between crashes are drawn from an exponential distribution.
    """
    rng = random.Random(f"churn/{nodes}")
    async with ring_of(nodes, IDLE) as (ring, weigher):
        await trio.sleep(PERIOD_S)
        deaths = 0

        async def die_and_join() -> None:
            nonlocal deaths
            with trio.move_on_after(CHURN_S):
                while True:
                    await trio.sleep(rng.expovariate(nodes / SESSION_S))
                    await ring.kill(rng.choice([node for node in ring.nodes[1:] if node.state == "ready"]))
                    await ring.start(join=[ring.nodes[0]])
                    deaths += 1

        messages, size = await sent(weigher, die_and_join)
        share = nodes * CHURN_S
        return {"op": "churn", "nodes": nodes, "period_s": PERIOD_S, "session_s": SESSION_S, "deaths": deaths,
                "bytes_per_s": size / share, "messages_per_s": messages / share}  # fmt: skip


def coming(args: argparse.Namespace) -> Rows:
    """Measure the messages and bytes of a join and of a leave, by ring size."""
    few = [nodes for nodes in sizes(args) if nodes <= COMING_NODES_MAX]
    return [row for nodes in few for row in testing.run(come_and_go, nodes, seed=nodes)]


async def come_and_go(nodes: int) -> Rows:
    """Return the mean messages and bytes of a join, and of a leave.

    The count covers all nodes, until the ring is Ideal (all pointers exact). The traffic of an idle ring in the same
    time is subtracted.
    """
    rows: Rows = []
    async with ring_of(nodes, IDLE) as (ring, weigher):
        await trio.sleep(PERIOD_S)
        anyway = await sent(weigher, trio.sleep, UPKEEP_S)
        for what in ("join", "leave"):
            began = trio.current_time()
            messages, size = await sent(weigher, happen, ring, what)
            share = (trio.current_time() - began) / UPKEEP_S
            rows.append({"op": what, "nodes": nodes, "messages": (messages - share * anyway[0]) / COMING,
                         "bytes": (size - share * anyway[1]) / COMING,
                         "log2_squared": math.log2(nodes) ** 2})  # fmt: skip
    return rows


async def happen(ring: Cluster, what: str) -> None:
    """Let nodes join, or leave, one after the other; wait until the ring is Ideal.

    Args:
        what: "join" or "leave".
    """
    for _ in range(COMING):
        await ((await ring.start()).ready() if what == "join" else ring.nodes[-1].leave())
    await ring.converged(within_s=100 * PERIOD_S)


# -- rings ------------------------------------------------------------------------------------------


@asynccontextmanager
async def ring_of(nodes: int, timing: Timing) -> AsyncIterator[tuple[Cluster, Weigher]]:
    """Run an Ideal ring (all pointers exact), with an estimate of its traffic.

    Yields:
        the ring, and the counter of its messages and their estimated bytes.
    """
    constants = RingConstants(successors=min(SUCCESSORS, nodes // 2))
    weigher = Weigher(constants.circle)
    seed = f"growth/{nodes}"
    async with cluster(seed=seed, ring=constants, timing=timing, network=MessageNetwork(seed, weigh=weigher)) as ring:
        await ring.place(nodes, ids=draw_points(random.Random(seed), nodes))
        yield ring, weigher


async def sent(weigher: Weigher, work: Callable[..., Awaitable[object]], *args: object) -> tuple[int, int]:
    """Run some work; return the messages and bytes that the ring sent meanwhile."""
    weigher.messages = weigher.bytes = 0
    await work(*args)
    return weigher.messages, weigher.bytes


def sizes(args: argparse.Namespace) -> list[int]:
    """Return the ring sizes to measure: all up to `--nodes-max`, at least one."""
    return [nodes for nodes in SIZES if nodes <= max(args.nodes_max, SIZES[0])]


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"lookups": lookups, "warm": warm, "upkeep": upkeep, "churn": churn, "coming": coming},
            {"flag": "--nodes-max", "type": positive, "default": SIZES[-1], "help": "the largest ring (default 4,096)"},
        )
    )

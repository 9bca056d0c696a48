"""Measure the processor time of one operation, over the client and all nodes.

    python -m benchmarks.cost [--seconds 8] [--in-flight 32] [--json]

Three nodes, one process each, keep their records in memory (N = 3). One client makes the operations, many at a time, to
keys that it has used before. The operations take turns. Processor time varies less with other load on the machine than
rates do.

Bars (required figures) with 32 operations in flight, in µs of processor time for each:

- get with R = 1: 45
- get with R = 2: 85
- put: 220
- put with a context: 200
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio

import chord as library
from benchmarks.bars import Row, Rows, bar, positive, run_parts
from benchmarks.replicas import cpu_s
from benchmarks.rings import VALUE, ring_of
from tests.support.processes import Peer

KEYS = 500
ROUNDS = 8
CPU_US_MAX = {"get R=1": 45, "get R=2": 85, "put": 220, "put with context": 200}


async def keep_in_flight(in_flight: int, seconds: float, call: Callable[[int], Awaitable[object]]) -> int:
    """Call a function for a time, always with the same number of calls under way. Return the number of calls."""
    made = 0
    end = time.perf_counter() + seconds

    async def one_by_one() -> None:
        nonlocal made
        while time.perf_counter() < end:
            made += 1
            await call(made)

    async with trio.open_nursery() as nursery:
        for _ in range(in_flight):
            nursery.start_soon(one_by_one)
    return made


Operations: TypeAlias = dict[str, Callable[[int], Awaitable[object]]]
"""Functions that make one operation, by its name. The argument is the number of the operation, from 1."""


async def operations_of(client: library.AsyncClient, in_flight: int) -> Operations:
    """Put the keys that the operations use, and return the operations.

    Args:
        in_flight: the number of operations under way.
    """
    keys = [f"key-{i}" for i in range(KEYS)]
    contexts: dict[str, bytes] = {}

    async def put_with_context(i: int) -> None:
        key = f"key-{i % KEYS}-of-one-writer-{i % in_flight}"  # no two puts of a key at the same time
        contexts[key] = (await client.put(key, VALUE, context=contexts.get(key))).context

    for key in keys:
        await client.put(key, VALUE)
    return {
        "get R=1": lambda i: client.get(keys[i % KEYS], r=1),
        "get R=2": lambda i: client.get(keys[i % KEYS]),
        "put": lambda i: client.put(keys[i % KEYS], VALUE),
        "put with context": put_with_context,
    }


async def cost_of(ring: list[Peer], in_flight: int, seconds: float) -> dict[str, list[float]]:
    """Return the processor time of each operation in µs, one figure for each round."""
    async with library.open_client(ring[0].address) as client:
        operations = await operations_of(client, in_flight)
        found: dict[str, list[float]] = {name: [] for name in operations}
        for number in range(ROUNDS + 1):
            for name, call in operations.items():
                spent = cpu_s(ring)
                made = await keep_in_flight(in_flight, seconds / ROUNDS / len(operations), call)
                if number:  # the first round warms up
                    found[name].append(1e6 * (cpu_s(ring) - spent) / made)
    return found


def cost(args: argparse.Namespace) -> Rows:
    """Measure the processor time per operation on a ring of three."""
    with ring_of(3, None) as ring:
        found = trio.run(cost_of, ring, args.in_flight, args.seconds)
    medians = {name: round(statistics.median(figures), 1) for name, figures in found.items()}
    return [
        *({"op": name, "nodes": 3, "in_flight": args.in_flight, "cpu_us_per_op": us} for name, us in medians.items()),
        *(bar(f"µs of processor time of a {name}", us, at_most=CPU_US_MAX[name]) for name, us in medians.items()),
    ]


OPTIONS: tuple[Row, ...] = (
    {"flag": "--seconds", "type": float, "default": 8.0, "help": "seconds in all (default 8)"},
    {"flag": "--in-flight", "type": positive, "default": 32, "help": "operations under way (default 32)"},
)

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, {"cost": cost}, *OPTIONS))

"""Measure how fast a joining node receives its records, without other load.

    python -m benchmarks.handoff [--keys 100000] [--rounds 3] [--directory DIR] [--only memory,sqlite] [--json]

One node holds all records, with N = 1. A second node joins, and gets about half of them. The rate is the number of sent
records, divided by the time that the join takes longer than a join of an empty ring. The nodes are real processes.

Bars (required figures): 50,000 records of 100 bytes per second in memory, and 20,000 with databases.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

from benchmarks.bars import Rows, bar, positive, run_parts
from benchmarks.rings import fill, ring_of, scratch, statuses
from tests.support.processes import Peers

MEMORY_MIN, SQLITE_MIN = 50_000, 20_000


def memory(args: argparse.Namespace) -> Rows:
    """Measure joins in a ring that keeps its records in memory."""
    return measure(args, None, MEMORY_MIN)


def sqlite(args: argparse.Namespace) -> Rows:
    """Measure joins in a ring that keeps its records in databases."""
    with scratch(args.directory) as base:
        return measure(args, base, SQLITE_MIN)


def measure(args: argparse.Namespace, base: Path | None, least: int) -> Rows:
    """Measure some joins, each in a new ring; return the figures and the bar.

    Args:
        base: the directory of the databases; None: in memory.
        least: the bar: records per second that the joining node must receive.
    """
    storage = "memory" if base is None else "sqlite"
    rates: list[float] = []
    rows: Rows = []
    for number in range(args.rounds):
        empty, _ = join(0, base, f"{number}-empty")
        took, sent = join(args.keys, base, f"{number}-full")
        rates.append(sent / max(0.001, took - empty))
        rows.append({"op": "hand-off", "storage": storage, "records": sent, "join_s": took, "empty_join_s": empty,
                     "records_per_s": rates[-1]})  # fmt: skip
    return [*rows, bar(f"records per second that a joiner receives, {storage}", statistics.median(rates),
                       at_least=least)]  # fmt: skip


def join(keys: int, base: Path | None, name: str) -> tuple[float, int]:
    """Measure the join of a second node.

    Args:
        keys: number of keys that the first node has.
        base: the directory of the databases; None: in memory.
        name: base name of this ring's directories.

    Returns:
        the time of the join in seconds, and the number of records that were sent for it.
    """
    with ring_of(1, None if base is None else base / name, "--replicas", "1") as ring, Peers() as late:
        address = ring[0].address
        if keys:
            fill([address], keys)
        data = () if base is None else ("--data", str(base / f"{name}-late"))
        began = time.perf_counter()
        late.start("--join", address, "--replicas", "1", *data).ready()
        took = time.perf_counter() - began
        sent = sum(dict(node.counters).get("keys_sent", 0) for node in statuses([address]))
        return took, sent


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"memory": memory, "sqlite": sqlite},
            {"flag": "--keys", "type": positive, "default": 100_000, "help": "keys in the ring (default 100,000)"},
            {"flag": "--rounds", "type": positive, "default": 3, "help": "rounds; the median counts (default 3)"},
            {"flag": "--directory", "default": ".", "help": "directory on the disk to measure (default: this one)"},
        )
    )

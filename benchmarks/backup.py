"""Measure the latency of clients while a consistent backup is made.

    python -m benchmarks.backup [--keys 20000] [--rounds 5] [--directory DIR] [--json]

A ring of four nodes with databases, N = 3, holds the keys. Four clients get and put in a process of their own, and rest
between two operations. Each round measures a quiet period, and then an equal period in which consistent backups follow
each other. The nodes, the clients and the reader of the backups are real processes, and share the cores of the machine.

Bar (required figure): with a backup the 99th percentile is at most 1.2 times that of the quiet periods. The median of
the rounds counts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import chord
from benchmarks.bars import Rows, bar, percentile, positive, run_parts
from benchmarks.foreground import Foreground
from benchmarks.rings import fill, ring_of, scratch

NODES = 4
CONNECT_S = 4.0  # until all clients work, also on a busy machine
QUIET_S = 4.0
FACTOR_MAX = 1.2


def backup(args: argparse.Namespace) -> Rows:
    """Measure quiet periods and periods with a backup, in turns."""
    rows: Rows = []
    factors: list[float] = []
    with scratch(args.directory) as base, ring_of(NODES, base / "ring") as ring:
        addresses = [peer.address for peer in ring]
        fill(addresses, args.keys)
        for _ in range(args.rounds):
            with Foreground(addresses, args.keys) as clients:
                time.sleep(CONNECT_S)
                began = time.perf_counter()
                time.sleep(QUIET_S)
                middle = time.perf_counter()
                backups = _back_up(addresses[0], middle + QUIET_S)
                ended = time.perf_counter()
            quiet, busy = clients.between(began, middle), clients.between(middle, ended)
            factors.append(percentile(busy, 0.99) / percentile(quiet, 0.99))
            rows.append({"op": "backup", "keys": args.keys, "backup_s": (ended - middle) / backups,
                         "quiet_p50_ms": percentile(quiet, 0.5), "p50_ms": percentile(busy, 0.5),
                         "quiet_p99_ms": percentile(quiet, 0.99), "p99_ms": percentile(busy, 0.99),
                         "errors": len(clients.errors)})  # fmt: skip
    return [*rows, bar("p99 of clients during a consistent backup, as a multiple of a quiet ring",
                       statistics.median(factors), at_most=FACTOR_MAX)]  # fmt: skip


def _back_up(address: str, until: float) -> int:
    """Make backups until a time on `time.perf_counter`; return their number, at least 1."""
    count = 0
    with chord.connect(address, timeout_s=30.0) as client:
        while not count or time.perf_counter() < until:
            for _ in client.export(consistent=True):
                pass
            count += 1
    return count


if __name__ == "__main__":
    sys.exit(
        run_parts(
            __doc__,
            {"backup": backup},
            {"flag": "--keys", "type": positive, "default": 20_000, "help": "keys in the ring (default 20,000)"},
            {"flag": "--rounds", "type": positive, "default": 5, "help": "rounds; the median counts (default 5)"},
            {"flag": "--directory", "default": ".", "help": "directory on the disk to measure (default: this one)"},
        )
    )

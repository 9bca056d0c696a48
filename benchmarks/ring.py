"""Measure rings of real processes, by size, quorums, storage and value size.

    python -m benchmarks.ring [--only nodes,quorums,values,storage] [--ops N] [--seconds S] [--rounds N] [--json]

The first row is a ring of 8 nodes in memory, with W = 2, R = 2 and values of 100 bytes. N is 3. Every other row differs
from it in one point. The rings take turns, and each is paused during the turns of the others. The client loop is that
of `benchmarks.others`, with 1 and with 32 operations in flight. One client puts, and another gets. Linux only.

This benchmark has no bars. The bars of round trips and group commit are in benchmarks/replicas.py, and the comparison
with other systems is in benchmarks/others.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.others import chord_ring
from benchmarks.others.system import System
from benchmarks.others.table import json_lines, measurements
from benchmarks.side_by_side import measured, parsed

BASE = "W=2 R=2"
PARTS = ("nodes", "quorums", "values", "storage")
BASE_NODES, OTHER_NODES = 8, (3, 16, 32)


def ring(name: str, *, w: int = 2, r: int = 2, value_bytes: int = 100, is_on_disk: bool = False) -> System:
    """Describe a ring of this project, with its clients' quorums, to be measured.

    Args:
        name: the name in the results.
        w: replicas that must have a write.
        r: replicas that a read asks.
        value_bytes: the length of the values.
        is_on_disk: whether records are in databases, not in memory.
    """
    return System(
        name,
        acknowledged_by=f"{w} of {chord_ring.COPIES} replicas have it " + ("on disk" if is_on_disk else "in memory"),
        settings=f"preset {chord_ring.PRESET}",
        start=chord_ring.start_on_disk if is_on_disk else chord_ring.start_in_memory,
        client="chord_ring",
        client_arguments=(str(w), str(r)),
        value_bytes=value_bytes,
        hops=chord_ring.hops,
    )


def plan_of(parts: list[str]) -> list[tuple[System, int]]:
    """Return the rings to measure, each with its number of nodes.

    The first is the base, and every other ring differs from the base in one point.

    Args:
        parts: the points that differ: "nodes", "quorums", "values" or "storage".
    """
    base = ring(BASE)
    plan = [(base, BASE_NODES)]
    if "nodes" in parts:
        plan += [(base, nodes) for nodes in OTHER_NODES]
    if "quorums" in parts:
        plan += [(ring(f"W={w} R={r}", w=w, r=r), BASE_NODES) for w, r in ((1, 1), (3, 1), (3, 3))]
    if "values" in parts:
        plan += [(ring(f"{size // 1000} kB", value_bytes=size), BASE_NODES) for size in (1000, 10_000)]
    if "storage" in parts:
        plan.append((ring("sqlite", is_on_disk=True), BASE_NODES))
    return plan


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help="names of parts (default: all)")
    parser.add_argument("--directory", default=".", help="directory on the disk to measure (default: here)")
    asked = parsed(parser, rounds=3)
    parts = asked.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}: expected {', '.join(PARTS)}")
    rows, outcome = measured(plan_of(parts), asked, asked.directory)
    sys.stdout.write(json_lines(rows) if asked.json else measurements(rows, BASE))
    return 1 if outcome.left_out else 0


if __name__ == "__main__":
    sys.exit(main())

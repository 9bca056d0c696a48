"""What a ring of real processes does, by its size, quorums, storage and the length of values.

    python -m benchmarks.ring [--only nodes,quorums,values,storage] [--ops N] [--seconds S] [--rounds N] [--json]

Every row differs from the first, which is 8 nodes with N = 3, W = 2, R = 2 in memory and values of 100 bytes, in one
thing. The rings take turns, each paused while another has its own; the client loop is the one of `benchmarks.others`,
with 1 and with 32 operations in flight, puts by one client and gets by another. No bars: those on round trips and on
group commit are in benchmarks/replicas.py, those beside other systems in benchmarks/others. Linux only.
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
    """A ring of our own, with clients that ask for such quorums."""
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
    """The base and what differs from it in one thing."""
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
    parser.add_argument("--only", default=",".join(PARTS), help="which parts (default: all)")
    parser.add_argument("--directory", default=".", help="on the disk to measure (default: here)")
    asked = parsed(parser, rounds=3)
    parts = asked.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown part {min(unknown)!r}; there are {', '.join(PARTS)}")
    rows, outcome = measured(plan_of(parts), asked, asked.directory)
    sys.stdout.write(json_lines(rows) if asked.json else measurements(rows, BASE))
    return 1 if outcome.left_out else 0


if __name__ == "__main__":
    sys.exit(main())

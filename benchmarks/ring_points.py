"""Compare a sorted array with a search tree for the points of a ring.

    python -m benchmarks.ring_points [--points 1000000] [--json]

Rings have 100, 1,000, … points. Two costs are measured:

- a lookup of one hash, by bisection of a list and by a walk down `PointTree`,
- the insertion and removal of a point, in copies of two NumPy arrays as `Ring` makes them, in a list, and in the tree.

The figures are medians of five rounds. There are no bars. The benchmark needs the extra `lab`.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from bisect import bisect_left
from collections.abc import Callable

import numpy as np

from benchmarks.bars import Row, Rows, positive, run_parts
from chord.lab.hashing import random_hashes
from chord.lab.schemes.ring_tree import PointTree

ROUNDS = 5
LOOKUPS = 20_000


def microseconds(work: Callable[[list[int]], None], hashes: list[int]) -> float:
    """Return the time of one step of some work in µs, the median of several rounds.

    Args:
        work: makes a step for each hash.
        hashes: the hashes.
    """
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work(hashes)
        found.append((time.perf_counter() - started) / len(hashes) * 1e6)
    return statistics.median(found)


def measure(count: int, seed: int = 1) -> Row:
    """Measure lookups and changes of a ring of `count` points, in µs per step."""
    rng = np.random.Generator(np.random.PCG64(seed))
    points = np.unique(random_hashes(rng, count))
    owners = rng.integers(0, 1000, len(points), dtype=np.int32)
    listed, tree = points.tolist(), PointTree()
    for point in listed:
        tree.insert(point, "n")
    asked, newcomers = random_hashes(rng, LOOKUPS).tolist(), random_hashes(rng, 200).tolist()

    def look_up_array(hashes: list[int]) -> None:
        for point in hashes:
            bisect_left(listed, point)

    def look_up_tree(hashes: list[int]) -> None:
        for point in hashes:
            tree.ceiling(point)

    def change_arrays(hashes: list[int]) -> None:
        for point in hashes:
            at = np.searchsorted(points, np.uint64(point))
            grown = np.insert(points, at, np.uint64(point)), np.insert(owners, at, np.int32(0))
            stays = grown[0] != np.uint64(point)
            _ = grown[0][stays], grown[1][stays]

    def change_list(hashes: list[int]) -> None:
        for point in hashes:
            at = bisect_left(listed, point)
            listed.insert(at, point)
            del listed[at]

    def change_tree(hashes: list[int]) -> None:
        for point in hashes:
            tree.insert(point, "n")
            tree.delete(point)

    return {
        "points": len(points),
        "look_up_array_us": microseconds(look_up_array, asked),
        "look_up_tree_us": microseconds(look_up_tree, asked),
        "change_arrays_us": microseconds(change_arrays, newcomers[: 20 if count > 100_000 else 200]),
        "change_list_us": microseconds(change_list, newcomers),
        "change_tree_us": microseconds(change_tree, newcomers),
        "tree_depth": tree.depth(),
    }


def sizes(args: argparse.Namespace) -> Rows:
    """Measure rings of 100, 1,000, … points, up to the largest."""
    counts = [10**power for power in range(2, 10) if 10**power <= args.points]
    return [measure(count) for count in counts]


if __name__ == "__main__":
    most = {"flag": "--points", "type": positive, "default": 1_000_000, "help": "largest ring (default 1 million)"}
    sys.exit(run_parts(__doc__, {"sizes": sizes}, most))

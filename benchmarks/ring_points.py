"""The points of a ring, in a sorted array or in a search tree: what does a look-up cost, and what a change?

    python -m benchmarks.ring_points [--points 1000000] [--json]

For K = 100, 1,000, … points: a look-up of one hash (bisecting a list; walking down `PointTree`), and a point let in and
taken out again (copying two NumPy arrays, as `Ring` does; inserting in a list; in the tree). Medians of five rounds;
nothing here passes or fails. Needs the extra `lab`.
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
    """Return what one step of a piece of work costs, the median of the rounds."""
    found = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work(hashes)
        found.append((time.perf_counter() - started) / len(hashes) * 1e6)
    return statistics.median(found)


def measure(count: int, seed: int = 1) -> Row:
    """Measure a ring of so many points; microseconds."""
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
    """Rings of 100 points and of ten times as many, up to the most."""
    counts = [10**power for power in range(2, 10) if 10**power <= args.points]
    return [measure(count) for count in counts]


if __name__ == "__main__":
    most = {"flag": "--points", "type": positive, "default": 1_000_000, "help": "on the largest (default 1,000,000)"}
    sys.exit(run_parts(__doc__, {"sizes": sizes}, most))

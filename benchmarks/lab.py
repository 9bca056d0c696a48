"""Measure time and memory of the lab with a million keys and a million nodes.

One case draws a ring of a million nodes and looks up 100,000 keys on it. Each other case hashes a million keys, and
places them on 20 nodes by a common scheme. Each case runs in its own process, so that its peak memory is its own.

Bars (required figures): 30 s and 2 GiB for the ring, and 1 s for a million keys. The exit code is 1 if a bar is missed.
With --json the output is one JSON object per line, bars included.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections.abc import Callable
from multiprocessing import get_context

from benchmarks.bars import Rows, bar, run_parts

NODES, LOOKUPS, KEYS = 1_000_000, 100_000, 1_000_000
SCHEMES = ("mod", "jump", "ring", "ring-100")
RING_S, RING_MIB, PLACE_S = 30.0, 2048, 1.0


def look_up(_: str) -> tuple[float, int]:
    """Measure a model ring of a million nodes: draw it, and look keys up on it.

    Returns:
        The time in seconds, and the peak memory in bytes, imports included.
    """
    import numpy as np

    from chord.lab.bigring import BigRing

    began = time.perf_counter()
    rng = np.random.default_rng(1)
    ring = BigRing.draw(NODES, rng)
    hops = ring.look_up(*ring.draw_lookups(LOOKUPS, rng)).hops
    assert 9.7 < hops.mean() < 10.0
    return time.perf_counter() - began, _peak()


def place(scheme: str) -> tuple[float, int]:
    """Measure a scheme: hash a million keys and place them on 20 nodes.

    Args:
        scheme: its name in `SCHEMES`.

    Returns:
        The time in seconds, and the peak memory in bytes, keys included.
    """
    from chord.lab.hashing import number_keys
    from chord.lab.schemes import SCHEMES

    keys = number_keys(KEYS)
    placement = SCHEMES[scheme]([f"n{number}" for number in range(20)])
    began = time.perf_counter()
    placement.place_many(placement.hash_keys(keys))
    return time.perf_counter() - began, _peak()


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def cases(_: argparse.Namespace) -> Rows:
    """Run all measurements, each in its own process."""
    todo: list[tuple[str, Callable[[str], tuple[float, int]], str, float]]
    todo = [(f"{LOOKUPS:,} lookups, {NODES:,} nodes", look_up, "", RING_S)]
    todo += [(f"{KEYS:,} keys, {scheme}", place, scheme, PLACE_S) for scheme in SCHEMES]
    rows: Rows = []
    bars: Rows = []
    for name, work, what, most_s in todo:
        with get_context("spawn").Pool(1) as pool:
            took_s, peak = pool.apply(work, (what,))
        rows.append({"op": name, "seconds": took_s, "peak_mib": peak / 2**20})
        bars.append(bar(f"seconds: {name}", took_s, at_most=most_s))
    return [*rows, *bars, bar(f"MiB: {todo[0][0]}", rows[0]["peak_mib"], at_most=RING_MIB)]


if __name__ == "__main__":
    sys.exit(run_parts(__doc__, {"cases": cases}))

"""Does the lab stay as quick and small as it is meant to be, on a million keys and a million nodes?

A ring of a million nodes is drawn and 100,000 keys are looked up on it; a million keys are hashed and placed on 20
nodes by schemes that users are likely to take. Each case runs in a process of its own, whose peak memory is its own.

Bars: the ring within 30 s and 2 GiB, a million keys within 1 s. Exit code 1 when one is missed. With --json, one JSON
object per line, the bars included.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

NODES, LOOKUPS, KEYS = 1_000_000, 100_000, 1_000_000
SCHEMES = ("mod", "jump", "ring", "ring-100")
RING_S, RING_BYTES, PLACE_S = 30.0, 2 << 30, 1.0


def look_up(_: str) -> tuple[float, int]:
    """Draw the ring and look the keys up. Returns seconds and peak bytes, those of imports included."""
    import numpy as np

    from chord.lab.bigring import BigRing

    began = time.perf_counter()
    rng = np.random.default_rng(1)
    ring = BigRing.draw(NODES, rng)
    hops = ring.look_up(*ring.draw_lookups(LOOKUPS, rng)).hops
    assert 9.7 < hops.mean() < 10.0
    return time.perf_counter() - began, _peak()


def place(scheme: str) -> tuple[float, int]:
    """Hash and place the keys. Returns seconds and peak bytes, those of the keys included."""
    from chord.lab.hashing import number_keys
    from chord.lab.schemes import SCHEMES

    keys = number_keys(KEYS)
    placement = SCHEMES[scheme]([f"n{number}" for number in range(20)])
    began = time.perf_counter()
    placement.place_many(placement.hash_keys(keys))
    return time.perf_counter() - began, _peak()


def _peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> int:
    """Run all cases. Returns 1 where a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    is_json = parser.parse_args().json
    cases = [(f"{LOOKUPS:,} look-ups, {NODES:,} nodes", look_up, "", RING_S, RING_BYTES)]
    cases += [(f"{KEYS:,} keys, {scheme}", place, scheme, PLACE_S, 0) for scheme in SCHEMES]
    missed = 0
    for name, work, what, most_s, most_bytes in cases:
        with get_context("spawn").Pool(1) as pool:
            took_s, peak = pool.apply(work, (what,))
        missed += took_s > most_s or bool(most_bytes and peak > most_bytes)
        if is_json:
            bars = {"bar_s": most_s, "bar_bytes": most_bytes or None}
            print(json.dumps({"case": name, "s": round(took_s, 3), "peak_bytes": peak, **bars}))
        else:
            room = f" (at most {most_bytes / 2**20:,.0f})" * bool(most_bytes)
            print(f"{name:36} {took_s:8.3f} s (at most {most_s:g})  {peak / 2**20:8,.0f} MiB{room}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

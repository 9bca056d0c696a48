"""Compare a real ring with a perfect one: constant members, and a plain RPC.

    python -m benchmarks.static [--nodes N] [--ops N] [--seconds S] [--rounds N] [--json]

The perfect ring (`benchmarks/others/static_ring.py`) has a plain RPC of its own, the fastest that can be written on
Trio. Its members never change, every client knows all of them, and values are in a dictionary. Both rings run with one
copy of each record, and with three. With three copies, two nodes acknowledge a put, and a get asks two. The rings take
turns, and each is paused during the turns of the others.

Bars (required figures): a real ring puts and gets at least half as fast, with 1 and with 32 operations in flight. Linux
only.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from tempfile import TemporaryDirectory

from benchmarks.bars import Rows, bar, positive, report
from benchmarks.others import chord_ring, static_ring
from benchmarks.others.system import System
from benchmarks.others.table import Row, json_lines, measurements
from benchmarks.others.turns import CONCURRENCIES
from benchmarks.side_by_side import measured, parsed

COPIES = (1, 3)
SHARE_MIN = 0.5


def real(copies: int) -> System:
    """Describe a ring of `chord node` processes, to be measured.

    Args:
        copies: N, the number of copies of a record.
    """
    quorum = copies // 2 + 1
    return System(
        f"chord, N = {copies}",
        acknowledged_by=f"{quorum} of {copies} replicas have it in memory",
        settings=f"preset {chord_ring.PRESET}",
        start=partial(chord_ring.start_in_memory, copies=copies),
        client="chord_ring",
        client_arguments=(str(quorum), str(quorum)),
    )


def perfect(copies: int) -> System:
    """Describe a ring with constant members, to be measured.

    Args:
        copies: the number of copies of a value.
    """
    return System(
        f"static, N = {copies}",
        acknowledged_by=f"{copies // 2 + 1} of {copies} have it in memory",
        settings=static_ring.SETTINGS,
        start=partial(static_ring.start, copies=copies),
        client="static_ring",
        client_arguments=(str(copies),),
    )


def bars_of(rows: list[Row]) -> Rows:
    """Return the bars: the rate of a real ring over that of the perfect one.

    Rings with the same number of copies are compared.
    """
    rate = {(row.system, row.op, row.concurrency): row.ops_per_s for row in rows}
    found = []
    for copies in COPIES:
        ours, theirs = real(copies).name, perfect(copies).name
        for op in ("put", "get"):
            for many in CONCURRENCIES:
                share = rate.get((ours, op, many), 0.0) / rate.get((theirs, op, many), float("inf"))
                text = f"rate of a {op} of {copies} cop{'y' if copies == 1 else 'ies'}, {many} in flight / perfect ring"
                found.append(bar(text, share, at_least=SHARE_MIN))
    return found


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--nodes", type=positive, default=8, help="nodes of each ring (default %(default)s)")
    asked = parsed(parser, rounds=5)
    if asked.nodes < max(COPIES):
        parser.error(f"a ring that keeps {max(COPIES)} copies has at least {max(COPIES)} nodes")
    systems = [make(copies) for copies in COPIES for make in (real, perfect)]
    with TemporaryDirectory() as directory:
        rows, outcome = measured([(system, asked.nodes) for system in systems], asked, directory)
    sys.stdout.write(json_lines(rows) if asked.json else measurements(rows, systems[0].name))
    sys.stdout.flush()
    bars = bars_of(rows)
    report(bars, as_json=asked.json)
    return 1 if outcome.left_out or any(row["verdict"] == "FAIL" for row in bars) else 0


if __name__ == "__main__":
    sys.exit(main())

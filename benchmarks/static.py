"""How far behind a perfect ring is a real one?

    python -m benchmarks.static [--nodes N] [--ops N] [--seconds S] [--rounds N] [--json]

The perfect ring (`benchmarks/others/static_ring.py`) has our transport, RPC and messages, and nothing else: its members
never change, every client knows all of them, values lie in a dictionary. With one copy of each record and with three,
of which two acknowledge a put and two are asked by a get. The rings take turns, each paused while another has its own.

The bars: with 1 and with 32 operations in flight, a real ring puts and gets at least half as fast. Linux only.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import mkdtemp

import chord
from benchmarks.bars import Rows, bar, positive, report
from benchmarks.others import chord_ring, static_ring
from benchmarks.others.system import System, here
from benchmarks.others.table import Row, json_lines, left_out, measurements, rows_of
from benchmarks.others.turns import CONCURRENCIES, Effort, Outcome, measure_side_by_side, printer

COPIES = (1, 3)
SHARE_MIN = 0.5


def real(copies: int) -> System:
    """A ring of `chord node` processes."""
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
    """A ring that is never anything else than whole."""
    return System(
        f"static, N = {copies}",
        acknowledged_by=f"{copies // 2 + 1} of {copies} have it in memory",
        settings=static_ring.SETTINGS,
        start=partial(static_ring.start, copies=copies),
        client="static_ring",
        client_arguments=(str(copies),),
    )


def bars_of(rows: list[Row]) -> Rows:
    """Hold each real ring against the perfect one with as many copies."""
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
    parser.add_argument("--nodes", type=positive, default=8, help="of each ring (default %(default)s)")
    parser.add_argument("--ops", type=positive, default=2000, help="operations of a batch, at most (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a batch, at most (default %(default)s)")
    parser.add_argument("--rounds", type=positive, default=5, help="turns of each ring (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as with Ctrl-C, everything is killed
    began, outcome, home = time.monotonic(), Outcome(), here(chord.__version__)
    systems = [make(copies) for copies in COPIES for make in (real, perfect)]
    effort = Effort(asked.ops, asked.seconds, asked.rounds, deadline_s=10.0, until=began + 3600)
    base = Path(mkdtemp(prefix="chord-static-")).resolve()
    try:
        plan = [(system, asked.nodes) for system in systems]
        measure_side_by_side(plan, {s.name: home for s in systems}, base, effort, outcome, printer(began))
    finally:
        shutil.rmtree(base, ignore_errors=True)
    rows = rows_of(outcome.measured, systems, dict.fromkeys((system.name for system in systems), home.version))
    sys.stdout.write(json_lines(rows) if asked.json else measurements(rows, systems[0].name))
    sys.stdout.flush()
    bars = bars_of(rows)
    report(bars, as_json=asked.json)
    for line in left_out(outcome):
        sys.stderr.write(f"left out: {line}\n")
    return 1 if outcome.left_out or any(row["verdict"] == "FAIL" for row in bars) else 0


if __name__ == "__main__":
    sys.exit(main())

"""What benchmarks of our own rings share: their options, and the run in which the rings take turns."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

import chord
from benchmarks.others.system import System, here
from benchmarks.others.table import Row, left_out, rows_of
from benchmarks.others.turns import Effort, Outcome, measure_side_by_side, printer

SECONDS_MAX = 3600
DEADLINE_S = 10.0
INTERRUPTED = 130


def parsed(parser: argparse.ArgumentParser, *, rounds: int) -> argparse.Namespace:
    """Add the options they share, and read what was asked for."""
    parser.add_argument("--ops", type=int, default=2000, help="operations of a batch, at most (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a batch, at most (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each ring (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="JSON lines instead of a table")
    asked = parser.parse_args()
    if min(asked.ops, asked.seconds, asked.rounds) <= 0:
        parser.error("--ops, --seconds and --rounds must be above 0")
    return asked


def measured(
    plan: Sequence[tuple[System, int]], asked: argparse.Namespace, directory: str
) -> tuple[list[Row], Outcome]:
    """Let systems of so many nodes take turns; everything they start is killed, however this ends.

    Args:
        asked: see `parsed`.
        directory: rings on disk write there, and leave nothing.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as with Ctrl-C, everything is killed
    began, outcome, home = time.monotonic(), Outcome(), here(chord.__version__)
    systems = list({system.name: system for system, _ in plan}.values())
    effort = Effort(asked.ops, asked.seconds, asked.rounds, deadline_s=DEADLINE_S, until=began + SECONDS_MAX)
    base = Path(mkdtemp(prefix="chord-rings-", dir=directory)).resolve()
    try:
        homes = dict.fromkeys((system.name for system in systems), home)
        measure_side_by_side(plan, homes, base, effort, outcome, printer(began))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    for line in left_out(outcome):
        sys.stderr.write(f"left out: {line}\n")
    return rows_of(outcome.measured, systems, dict.fromkeys(homes, home.version)), outcome

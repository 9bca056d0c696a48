"""Shared parts of the benchmarks that compare our own rings.

The rings take turns, so that other work on the machine affects all of them.
"""

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
    """Add the shared options to a benchmark's parser, and parse the command line.

    Args:
        parser: the parser, with the options of the benchmark.
        rounds: the default number of rounds.
    """
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
    """Measure rings in turns, and kill all their processes at the end.

    Args:
        plan: each ring with its number of nodes.
        asked: the options; see `parsed`.
        directory: the directory for rings on disk, which is empty again afterwards.

    Returns:
        the rows, and the outcome with the rings that failed.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # kills all processes, as Ctrl-C does
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

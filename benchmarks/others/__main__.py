"""Compare chord with kademlia, py-libp2p and OpenDHT, and with Redis and etcd.

Redis and etcd are no DHTs; they are references. Each node is a process, and all are on loopback. For each ring size all
systems start, then take turns (A B A B …) while the others are stopped. In a turn one client puts keys of 100 bytes
each, and another client reads them, with 1 and with 32 operations in flight. The runner writes the table, the bars
(pass criteria) and a picture to out/others as Markdown, JSON lines, SVG and PNG. The exit code is 1 if a bar is missed.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from benchmarks.others.install import install
from benchmarks.others.plot import draw
from benchmarks.others.processes import ROOT
from benchmarks.others.system import System
from benchmarks.others.systems import NAMES, OURS, SYSTEMS
from benchmarks.others.table import (
    Bar,
    Row,
    bars_of,
    json_lines,
    left_out,
    measurements,
    rounds_lines,
    rows_of,
    verdicts,
)
from benchmarks.others.turns import Effort, Outcome, install_all, measure_side_by_side, printer
from chord.lab.harness.plot import NoMatplotlib, save

OUT = ROOT / "out" / "others"


def arguments() -> argparse.Namespace:
    """Parse and check the command line; exit with a message if it is invalid."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.others", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", default=",".join(NAMES), help="which, with commas (default: all of %(default)s)")
    parser.add_argument("--nodes", default="8,16,64", help="ring sizes (default %(default)s)")
    parser.add_argument("--ops", type=int, default=2000, help="operations of a batch, at most (default %(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a batch, at most (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each ring (default %(default)s)")
    parser.add_argument("--deadline", type=float, default=10.0, help="seconds for one operation (default %(default)s)")
    parser.add_argument("--minutes", type=float, default=15.0, help="begin nothing later (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="the rows as JSON lines, not the table, on standard output")
    asked = parser.parse_args()
    asked.systems = asked.systems.split(",")
    unknown = [name for name in asked.systems if name not in NAMES]
    if unknown:
        parser.error(f"unknown system {unknown[0]!r}; there are {', '.join(NAMES)}")
    try:
        asked.nodes = sorted({int(size) for size in asked.nodes.split(",")})
    except ValueError:
        parser.error(f"--nodes takes numbers with commas, not {asked.nodes!r}")
    if asked.nodes[0] < 3:
        parser.error("a ring that keeps 3 copies has at least 3 nodes")
    for name in ("ops", "seconds", "rounds", "deadline", "minutes"):
        if getattr(asked, name) <= 0:
            parser.error(f"--{name} must be above 0")
    return asked


def plan_of(systems: Sequence[System], sizes: Sequence[int]) -> list[list[tuple[System, int]]]:
    """Return for each ring size the systems to measure side by side.

    Each system has its number of nodes. Systems of a fixed size join the smallest rings.
    """
    plan = []
    for place, nodes in enumerate(sizes):
        fixed = [(system, size) for system in systems for size in system.sizes] if place == 0 else []
        plan.append([(system, nodes) for system in systems if not system.sizes] + fixed)
    return plan


def write(outcome: Outcome, systems: Sequence[System], rows: Sequence[Row], bars: Sequence[Bar], asked: str) -> str:
    """Write the results to out/others as Markdown, JSON lines and a picture.

    Args:
        outcome: the measurements, and the systems that were left out.
        systems: all systems of the run.
        rows: the combined figures of the systems.
        bars: the verdicts on these figures.
        asked: the command line of the run.

    Returns:
        the report, in Markdown.
    """
    missed = sum(bar.verdict == "FAIL" for bar in bars)
    unmeasured = sum(bar.verdict == "NOT MEASURED" for bar in bars)
    said = [f"# chord beside others\n\n`{asked}`\n\n", measurements(rows, OURS)]
    said.append(f"\n## Bars: {len(bars) - missed - unmeasured} met, {missed} missed, {unmeasured} not measured\n\n")
    said.append("How many times better chord is; for success, how much larger a share of the other's failed.\n\n")
    said.append(verdicts(bars))
    said.append("\n## What was compared\n\n")
    for system in (system for system in systems if system.name in outcome.versions):
        said.append(f"- **{system.name}** {outcome.versions[system.name]}. Acknowledged: {system.acknowledged_by}. ")
        said.append(f"Settings: {system.settings}.\n")
    said += [f"- Left out: {line}\n" for line in left_out(outcome)]
    (OUT / "rows.jsonl").write_text(json_lines(rows))
    (OUT / "rounds.jsonl").write_text(rounds_lines(outcome.measured))
    (OUT / "bars.jsonl").write_text(json_lines(bars))
    peers = [system.name for system in systems if system.is_bar]
    try:
        files, _ = save(partial(draw, rows=rows, ours=OURS, peers=peers), OUT / "others")
        said.append(f"\n![rates and percentiles]({files[0].name})\n")
    except NoMatplotlib as error:
        said.append(f"\n{error}\n")
    (OUT / "report.md").write_text("".join(said))
    return "".join(said)


def main() -> int:
    """Run the comparison; return the exit code.

    It is 1 if a bar was missed, 2 if this is not Linux, and 130 after Ctrl-C.
    """
    asked = arguments()
    if not sys.platform.startswith("linux"):
        sys.stderr.write("benchmarks.others: needs Linux: it reads CPU time and memory from /proc\n")
        return 2
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as after Ctrl-C, everything is killed
    systems = [system for system in SYSTEMS if system.name in asked.systems]
    began = time.monotonic()
    progress = printer(began)
    OUT.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    effort = Effort(asked.ops, asked.seconds, asked.rounds, asked.deadline, began + 60 * asked.minutes)
    rings = OUT / "rings"
    shutil.rmtree(rings, ignore_errors=True)
    is_stopped = False
    try:
        homes = install_all(systems, install, OUT, outcome, progress)
        there = [system for system in systems if system.name in homes]
        for side_by_side in plan_of(there, asked.nodes):
            measure_side_by_side(side_by_side, homes, rings, effort, outcome, progress)
    except KeyboardInterrupt:
        is_stopped = True
        progress("stopped; what was measured until now:")
    rows = rows_of(outcome.measured, systems, outcome.versions)
    bars = bars_of(outcome, rows, systems, asked.nodes, OURS)
    report = write(outcome, systems, rows, bars, " ".join(["python -m benchmarks.others", *sys.argv[1:]]))
    sys.stdout.write(json_lines(rows) if asked.json else report)
    progress(f"report.md, rows.jsonl, rounds.jsonl, bars.jsonl and others.svg are in {OUT}")
    if is_stopped:
        return 130
    return 1 if any(bar.verdict == "FAIL" for bar in bars) else 0


if __name__ == "__main__":
    sys.exit(main())

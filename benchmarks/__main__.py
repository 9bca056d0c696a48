"""Run all benchmarks one after the other; report all figures and pass criteria.

    python -m benchmarks [--only NAME,…] [--quick] [--out DIR]

Each benchmark runs in its own process (`python -m benchmarks.NAME --json`). A bar is a figure that a measurement must
reach, or not exceed. The results are in DIR/figures.jsonl and DIR/report.md. Two pictures (.svg and .png) show them:
DIR/bars and DIR/growth. The exit code is 1 if a bar is missed.

Do not use the machine meanwhile, because other work disturbs the figures. For the same reason ratios are taken within
one run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bars import Row, Rows, bar, missed, verdict_line
from chord.lab.harness.plot import BLUE, GREY, MEASURED, ORANGE, NoMatplotlib, dress, headline, make_room, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ON_DISK = ("storage", "replicas", "ring", "batches", "handoff", "backup", "process")
QUICK: dict[str, tuple[str, ...]] = {
    "codec": ("--rounds", "1"),
    "rpc": ("--seconds", "0.2", "--rounds", "3"),
    "growth": ("--nodes-max", "256"),
    "simulation": ("--nodes", "500"),
    "put_path": ("--puts", "10"),
    "storage": ("--keys", "50000", "--seconds", "1"),
    "exchange": ("--records", "50000"),
    "replicas": ("--keys", "5000", "--seconds", "1"),
    "cost": ("--seconds", "1"),
    "cost_parts": ("--seconds", "2"),
    "batches": ("--keys", "400", "--rounds", "1"),
    "static": ("--nodes", "3", "--ops", "100", "--rounds", "1"),
    "ring": ("--only", "storage", "--ops", "100", "--rounds", "1"),
    "handoff": ("--keys", "10000", "--rounds", "1"),
    "backup": ("--keys", "1000", "--rounds", "1"),
    "process": ("--keys", "10000", "--seconds", "1"),
    "idle": ("--only", "local", "--seconds", "1"),
    "dashboard": ("--only", "recording,memory"),
    "page": ("--only", "load"),
    "lab": (),
    "ring_points": ("--points", "10000"),
}
"""Every benchmark, and the options that make it shorter. Bars of small rings and stores mean little."""

LABEL_CHARS = 70
ENDED = "finished runs"  # the bar of a benchmark that did not finish
ROOM_MIN, ROOM_MAX = 0.01, 1000.0  # the ends of the picture's axis


def run(name: str, out: Path, *, is_quick: bool) -> Rows:
    """Run one benchmark in a process of its own; print and return its rows.

    The rows are printed as they arrive. A run that fails adds the row of a missed bar.

    Args:
        out: directory of the databases.
        is_quick: whether the run is shortened, to see that it works.
    """
    options = [*(QUICK[name] if is_quick else ()), *(("--directory", str(out)) if name in ON_DISK else ())]
    command = [sys.executable, "-m", f"benchmarks.{name}", "--json", *options]
    began = time.monotonic()
    rows: Rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            row = {"benchmark": name, **json.loads(line)}
            rows.append(row)
            print("  " + (verdict_line(row) if "bar" in row else _figures(row)), flush=True)
    if process.returncode not in (0, 1) or not rows:
        rows.append({"benchmark": name, **bar(ENDED, 0, at_least=1)})
    print(f"  {time.monotonic() - began:.0f} s", flush=True)
    return rows


def _figures(row: Row) -> str:
    return "  ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in row.items()
        if name != "benchmark"
    )


def report(rows: Rows, machine: str) -> str:
    """Return the report of all benchmarks as Markdown, pass criteria first.

    Args:
        rows: the rows of all benchmarks.
        machine: description of the machine.
    """
    lines = ["# Benchmarks", "", machine, "", "| | value | bar | what |", "|---|---|---|---|"]
    for row in rows:
        if "bar" in row:
            bound = f"≤ {row['at_most']:,g}" if "at_most" in row else f"≥ {row['at_least']:,g}"
            lines.append(f"| {row['verdict']} | {row['value']:,.6g} | {bound} | {row['benchmark']}: {row['bar']} |")
    for name in dict.fromkeys(row["benchmark"] for row in rows):
        lines += ["", f"## {name}", ""]
        lines += ["    " + _figures(row) for row in rows if row["benchmark"] == name and "bar" not in row]
    return "\n".join(lines) + "\n"


def room(row: Row) -> float:
    """Return how many times better a measured value is than its bound.

    A value below 1 misses the bound. The result is limited to the ends of the picture's axis.
    """
    value = float(row["value"])
    if row.get("at_most") == 0:  # no failure is allowed, so there is no ratio
        return ROOM_MIN if value else ROOM_MAX
    better = row["at_most"] / max(value, 1e-9) if "at_most" in row else value / row["at_least"]
    return float(min(ROOM_MAX, max(ROOM_MIN, better)))


def draw(bars: Rows, figure: Figure) -> None:
    """Plot how many times better each measured value is than its bound.

    The value closest to its bound is at the bottom.
    """
    bars = sorted(bars, key=room)
    met = sum(row["verdict"] == "PASS" for row in bars)
    headline(figure, f"{met} of {len(bars)} bars are met; how many times better each figure is than its bar")
    make_room(figure, len(bars))
    axes = figure.subplots()
    labels = [f"{row['benchmark']}: {row['bar']}"[:LABEL_CHARS] for row in bars]
    places = range(len(bars))
    for verdict, colour in (("PASS", BLUE), ("FAIL", ORANGE)):
        chosen = [at for at in places if bars[at]["verdict"] == verdict]
        axes.scatter([room(bars[at]) for at in chosen], chosen, color=colour, marker="o" if verdict == "PASS" else "X",
                     label=f"{'met' if verdict == 'PASS' else 'missed'}")  # fmt: skip
    axes.set_yticks(list(places), labels, fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1.0, color="#444444", linewidth=1)
    dress(axes, "times better than the bar", "", is_from_zero=False)


def draw_growth(rows: Rows, figure: Figure) -> None:
    """Plot how lookup paths and maintenance traffic grow with the ring, beside log2 N."""
    paths = [row for row in rows if row.get("op") == "lookup"]
    upkeep = [row for row in rows if row.get("op") == "upkeep"]
    headline(figure, f"from {upkeep[0]['nodes']} to {upkeep[-1]['nodes']:,} nodes: paths below ½ log2 N, and upkeep "
             f"{upkeep[-1]['bytes_per_s'] / upkeep[0]['bytes_per_s']:.1f} times as much")  # fmt: skip
    left, right = figure.subplots(1, 2)
    sizes = [row["nodes"] for row in paths]
    left.plot(sizes, [row["hops_mean"] for row in paths], **MEASURED)
    left.plot(sizes, [row["half_log2"] for row in paths], color=GREY, linestyle="--", label="½ log2 N")
    dress(left, "nodes", "hops of a classic lookup")
    sizes = [row["nodes"] for row in upkeep]
    right.plot(sizes, [row["bytes_per_s"] for row in upkeep], **MEASURED)
    first = upkeep[0]["bytes_per_s"] / math.log2(sizes[0])
    right.plot(sizes, [first * math.log2(nodes) for nodes in sizes], color=GREY, linestyle="--", label="as log2 N")
    dress(right, "nodes", "bytes a node sends a second, idle")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [f"{nodes:,}" for nodes in sizes])


def main() -> int:
    """Run the benchmarks chosen on the command line; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser("python -m benchmarks", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default=",".join(QUICK), help="names of benchmarks (default: all)")
    parser.add_argument("--quick", action="store_true", help="run each for a short time, to see that it works")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="directory of results (default: out/bench)")
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := [name for name in names if name not in QUICK]:
        parser.error(f"unknown benchmark {unknown[0]}: expected {', '.join(QUICK)}")
    args.out.mkdir(parents=True, exist_ok=True)
    machine = (
        f"{platform.machine()}, {os.cpu_count()} processors, Python {platform.python_version()}, {platform.system()}"
    )
    print(f"{machine}; load before: {os.getloadavg()[0]:.1f}")
    rows: Rows = []
    for name in names:
        print(name, flush=True)
        rows += run(name, args.out, is_quick=args.quick)
    bars = [row for row in rows if "bar" in row]
    (args.out / "figures.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (args.out / "report.md").write_text(report(rows, machine))
    try:
        save(lambda figure: draw(bars, figure), args.out / "bars")
        if sum(row.get("op") == "upkeep" for row in rows) > 1:
            save(lambda figure: draw_growth(rows, figure), args.out / "growth")
    except NoMatplotlib as error:
        print(error)
    failed = [row for row in bars if row["verdict"] == "FAIL"]
    print(f"\n{len(bars) - len(failed)} of {len(bars)} bars are met; {args.out}/report.md has every figure")
    for row in failed:
        print(f"{row['benchmark']}: {verdict_line(row)}")
    return missed(rows)


if __name__ == "__main__":
    sys.exit(main())

"""Compare the compiled wheel with pure Python: the processor time of one operation.

    python -m benchmarks.compiled [--only install,gains] [--wheel FILE] [--rounds N] [--seconds S] [--json]

`make wheels` builds the wheel into dist/. This program installs it into out/compiled, and runs `benchmarks.cost` with
either build in turns. Nodes and clients are of the same build. A gain is the time of the pure build over that of the
compiled one, as the median of the rounds. It has no bars.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.bars import Row, Rows, positive, run_parts

ROOT = Path(__file__).parents[1]
HOME = ROOT / "out" / "compiled"
PYTHON = HOME / "bin" / "python"
COST = f"""
import runpy, sys
sys.path.append({str(ROOT)!r})  # behind the installed chord
runpy.run_module("benchmarks.cost", run_name="__main__", alter_sys=True)
"""


def install(args: argparse.Namespace) -> Rows:
    """Install the wheel into out/compiled."""
    wheels = sorted((ROOT / "dist").glob("chord-*-cp*.whl"))
    if not wheels and args.wheel is None:
        raise SystemExit("there is no compiled wheel in dist/: make wheels")
    wheel = str(wheels[-1] if args.wheel is None else args.wheel)
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(HOME)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "-q"]
    subprocess.run([*pip, f"{wheel}[lab,web]"], check=True)
    subprocess.run([*pip, "--force-reinstall", "--no-deps", wheel], check=True)  # a new build has the same version
    return [{"op": "install", "wheel": Path(wheel).name}]


def costs(python: str, seconds: float, *, is_compiled: bool) -> dict[str, float]:
    """Return the processor time of each operation in µs."""
    environment = {name: value for name, value in os.environ.items() if name != "TESTED_PYTHON"}
    if is_compiled:
        environment |= {"TESTED_PYTHON": python, "PYTHONSAFEPATH": "1"}
    command = [python, "-c", COST, "--json", "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if not rows:
        raise SystemExit(done.stderr)
    return {row["op"]: row["cpu_us_per_op"] for row in rows if "op" in row}


def gains(args: argparse.Namespace) -> Rows:
    """Measure both builds in turns."""
    rounds = [
        (costs(sys.executable, args.seconds, is_compiled=False), costs(str(PYTHON), args.seconds, is_compiled=True))
        for _ in range(args.rounds)
    ]
    return [
        {
            "op": op,
            "pure_us": round(statistics.median(pure[op] for pure, _ in rounds), 1),
            "compiled_us": round(statistics.median(fast[op] for _, fast in rounds), 1),
            "gain": round(statistics.median(pure[op] / fast[op] for pure, fast in rounds), 2),
        }
        for op in rounds[0][0]
    ]


OPTIONS: tuple[Row, ...] = (
    {"flag": "--wheel", "help": "the compiled wheel (default: the one in dist/)"},
    {"flag": "--rounds", "type": positive, "default": 5, "help": "turns of each build (default 5)"},
    {"flag": "--seconds", "type": float, "default": 4.0, "help": "seconds of a turn (default 4)"},
)

if __name__ == "__main__":
    sys.exit(run_parts(__doc__, {"install": install, "gains": gains}, *OPTIONS))

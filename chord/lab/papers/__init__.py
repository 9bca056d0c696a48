"""The published experiments, with the real node on virtual time: measured beside published.

Each module is one experiment, and `world` has the papers' rings and workloads. `run_all` runs several and writes what
came of them (chord/lab/harness/).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from chord.lab.harness.experiment import SCALES, Experiment, Progress, Scale, Table, quiet
from chord.lab.harness.experiment import Result as Result
from chord.lab.harness.report import Report
from chord.lab.harness.report import run_all as run_experiments
from chord.lab.papers import churn, failures, healing, load_balance, path_length, sessions
from chord.sim.pool import processes

__all__ = ["EXPERIMENTS", "SCALES", "Progress", "Report", "Scale", "Table", "processes", "run_all"]

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    experiment.name: experiment
    for experiment in (
        path_length.EXPERIMENT,
        load_balance.EXPERIMENT,
        failures.EXPERIMENT,
        churn.EXPERIMENT,
        sessions.EXPERIMENT,
        healing.EXPERIMENT,
    )
}


def run_all(
    names: Sequence[str],
    scale: Scale,
    seed: int,
    out_dir: Path,
    executor: Executor | None = None,
    progress: Progress = quiet,
) -> list[Report]:
    """Run experiments, none named means all, and write their reports (chord/lab/harness/report.py)."""
    chosen = [EXPERIMENTS[name] for name in names or EXPERIMENTS]
    return run_experiments(chosen, scale, seed, out_dir, executor, progress)

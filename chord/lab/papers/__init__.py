"""The published experiments, run with the real node on virtual time.

Each module is one experiment, and its tables put measured values beside published ones. `world` has the rings and
workloads of the papers. `run_all` runs several experiments and writes their reports (`chord.lab.harness.report`).
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
    """Run experiments and write their reports.

    Args:
        names: names of the experiments; empty: all.
        scale: how much is measured.
        seed: the source of all random choices.
        out_dir: directory of the files; created if necessary.
        executor: measures the cells; None measures them in this process, one after the other.
        progress: called for each measured cell, and regularly in between.
    """
    chosen = [EXPERIMENTS[name] for name in names or EXPERIMENTS]
    return run_experiments(chosen, scale, seed, out_dir, executor, progress)

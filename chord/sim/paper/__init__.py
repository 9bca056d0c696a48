"""The published experiments, with the real node on virtual time: measured beside published.

    experiment    settings, cells, tables; how cells are run
    world         the papers' rings and workloads
    report, plot  CSV, Markdown, SVG and PNG

Each of the others is one experiment. `run_all` runs several and writes what came of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from chord.sim.paper import churn, failures, healing, load_balance, path_length, sessions
from chord.sim.paper.experiment import SCALES, Experiment, Progress, Scale, Table, quiet, run_cells
from chord.sim.paper.experiment import Result as Result
from chord.sim.paper.report import Report, write_report
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
        names: of `EXPERIMENTS`; none means all.
        scale: how much is measured.
        seed: draws everything; the same seed measures the same.
        out_dir: where the files go; made if need be.
        executor: where cells are measured; None: here, one after the other.
        progress: told of every cell that is measured.
    """
    chosen = [EXPERIMENTS[name] for name in names or EXPERIMENTS]
    plans = [(experiment, experiment.plan(scale, seed)) for experiment in chosen]
    jobs = [(experiment, setting) for experiment, settings in plans for setting in settings]
    cells = iter(run_cells(jobs, progress, executor))
    reports = []
    for experiment, settings in plans:
        result = Result(scale, seed, tuple(next(cells) for _ in settings))
        reports.append(write_report(experiment, result, out_dir))
    return reports

"""Reports of the experiments in `sim` and `lab`: measured and published figures."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chord.cli.failures import CHECK_FAILED, OK, orderly_end
from chord.cli.inputs import file_failure
from chord.cli.output import Failure, Out
from chord.views.experiments import experiments_json

if TYPE_CHECKING:
    from chord.lab.harness.experiment import Experiment, Scale
    from chord.lab.harness.report import ExperimentReport

LINES_EVERY_S = 30.0
"""The time between two progress lines of a run without a terminal, in seconds."""

VERDICTS = {True: "yes", False: "NO", None: "-"}

jobs_option = click.option("--jobs", type=click.IntRange(min=1), metavar="J",
                           help="Number of processes; default: one per core.")


def require_folder(path: Path) -> None:
    """Create a folder if it does not exist, and check that it can be written.

    Raises:
        Failure: exit 2: it cannot be created or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        raise cannot_write(path, error) from None


def cannot_write(path: Path, error: OSError) -> Failure:
    """Return the failure, with exit 2, for a file or folder that cannot be written; `error` is the reason."""
    return file_failure(str(path), error, "write", "Name a place that can be written")


def run_experiments(
    out: Out,
    experiments: Sequence[Experiment[Any, Any]],
    scale: Scale,
    seed: int,
    out_dir: Path,
    jobs: int | None,
    write_page: Callable[[Sequence[ExperimentReport]], Path] | None = None,
) -> int:
    """Run experiments, write their files, print their tables; return the exit code.

    Args:
        out: the output of the command.
        experiments: the experiments, in the order of the output.
        scale: the size of the measurements: quick, standard or full.
        seed: the seed of all random draws.
        out_dir: the folder of the files; created if necessary.
        jobs: the number of processes that measure in parallel; None: one per core.
        write_page: writes one page on all reports, and returns its path; None: write no such page.

    Returns:
        8 if an experiment misses its bar, otherwise 0.

    Raises:
        Failure: exit 2: the folder or a file in it cannot be written.
    """
    from chord.lab.harness.report import report_json, run_all
    from chord.sim.pool import processes

    require_folder(out_dir)  # fail now, not in ten minutes
    cells = sum(len(experiment.plan(scale, seed)) for experiment in experiments)
    try:
        with (
            orderly_end(),
            out.progress("measured", cells, lines_every_s=LINES_EVERY_S) as show,
            processes(jobs) as pool,
        ):
            reports = run_all(experiments, scale, seed, out_dir, pool, lambda label, done, of: show(done, label))
        page = write_page(reports) if write_page else None
    except (IsADirectoryError, PermissionError) as error:  # a file in the folder is not writable
        raise cannot_write(Path(str(error.filename)), error) from None
    if out.as_json:
        found = [(report_json(report), [str(path) for path in report.files]) for report in reports]
        out.json(experiments_json(scale, seed, found))
    else:
        for report in reports:
            print_report(out, report)
        if page:
            out.note(f"page: {page}")
        for report in reports:
            if report.advice:
                out.sentence(report.advice)
    return CHECK_FAILED if any(report.passed is False for report in reports) else OK


def print_report(out: Out, report: ExperimentReport) -> None:
    """Print the tables and notes of an experiment: measured figures beside published ones."""
    for table in report.tables:
        has_bar = table.passed is not None
        first, *others = table.headings
        columns = [first, *(f">{heading}" for heading in others), *["met"] * has_bar]
        rows = [[*table.texts(row), *[VERDICTS[row.passed]] * has_bar] for row in table.rows]
        out.line(table.title)
        out.table(columns, rows)
        for note in (*([f"bar: {table.bar}"] if table.bar else []), *table.notes):
            out.sentence(note)
        out.line()
    out.flush()
    for note in report.notes:
        out.note(note)
    out.note(f"{report.name}: {', '.join(str(path) for path in report.files)}")

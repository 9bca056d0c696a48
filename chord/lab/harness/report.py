"""Write the files of an experiment: CSV and JSON tables, plots, and a page."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chord.lab.harness.experiment import (
    Experiment,
    Progress,
    Result,
    Row,
    Scale,
    Table,
    all_passed,
    quiet,
    run_cells,
)
from chord.lab.harness.files import whole, write_whole
from chord.lab.harness.plot import NoMatplotlib, save
from chord.views.common import Json
from chord.views.experiments import table_json, tables_json

VERDICTS = {True: "yes", False: "no", None: "–"}


class Picture(NamedTuple):
    """A written plot: its SVG file and its headline."""

    svg: Path
    finding: str


@dataclass(frozen=True)
class ExperimentReport:
    """The tables and files of one experiment.

    Attributes:
        name: its name on the command line.
        title: heading of its page.
        tables: its tables, the most important one first.
        files: all files that were written.
        notes: remarks for the reader of the command's output, besides the tables' own notes.
        pictures: the plots, the most important one first.
        advice: a sentence for the end of the output, or "".
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]
    pictures: tuple[Picture, ...] = ()
    advice: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether all tables meet their pass criteria; None if none has one."""
        return all_passed(table.passed for table in self.tables)


def run_all(
    experiments: Sequence[Experiment[Any, Any]],
    scale: Scale,
    seed: int,
    out_dir: Path,
    executor: Executor | None = None,
    progress: Progress = quiet,
) -> list[ExperimentReport]:
    """Run experiments and write their reports, which are returned in the same order.

    Nothing is written before all measurements are made.

    Args:
        experiments: the experiments, in the order of their reports.
        scale: the extent of the measurements.
        seed: the source of all random choices; the same seed gives the same measurements.
        out_dir: directory of the files; created if necessary.
        executor: makes the measurements; None: this process makes them, one after the other.
        progress: called with the label of the present cell, the number of measured cells, and that of all cells.
    """
    plans = [(experiment, experiment.plan(scale, seed)) for experiment in experiments]
    jobs = [(experiment, setting) for experiment, settings in plans for setting in settings]
    cells = iter(run_cells(jobs, progress, executor))
    reports = []
    for experiment, settings in plans:
        result = Result(scale, seed, tuple(next(cells) for _ in settings))
        reports.append(write_report(experiment, result, out_dir))
    return reports


def write_report(experiment: Experiment[Any, Any], result: Result[Any], out_dir: Path) -> ExperimentReport:
    """Write the tables, plots and page of a measured experiment.

    Without Matplotlib, a note in the report replaces the plots.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    tables = tuple(experiment.tables(result))
    files = [_write_csv(table, out_dir) for table in tables]
    notes: list[str] = []
    pictures: list[Picture] = []
    try:
        for name, draw in experiment.pictures.items():
            drawn, finding = save(partial(draw, result), out_dir / name)
            files += drawn
            pictures.append(Picture(drawn[0], finding))
    except NoMatplotlib as error:
        notes.append(str(error))
    advice = experiment.advice(result) if experiment.advice else ""
    report = ExperimentReport(
        experiment.name, experiment.title, tables, tuple(files), tuple(notes), tuple(pictures), advice
    )  # fmt: skip
    page, data = out_dir / f"{experiment.name}.md", out_dir / f"{experiment.name}.json"
    write_whole(page, _page(experiment, result, report))
    measured = {"scale": result.scale, "seed": result.seed, **report_json(report)}
    write_whole(data, json.dumps(measured, ensure_ascii=False, indent=1) + "\n")
    return replace(report, files=(*files, data, page))


def report_json(report: ExperimentReport) -> Json:
    """Return an experiment's tables as plain data, for JSON on the command line and in its file."""
    tables = (
        table_json(t.name, t.title, t.headings, ((row.values, row.passed) for row in t.rows), t.bar, t.notes)
        for t in report.tables
    )
    return tables_json(report.name, report.title, report.passed, tables, _remarks(report))


def _remarks(report: ExperimentReport) -> tuple[str, ...]:
    return (*report.notes, report.advice) if report.advice else report.notes


def _write_csv(table: Table, out_dir: Path) -> Path:
    path = out_dir / f"{table.name}.csv"
    with whole(path) as part, part.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*table.headings, "passed"])
        for row in table.rows:
            writer.writerow([*("" if value is None else value for value in row.values), VERDICTS[row.passed]])
    return path


def _page(experiment: Experiment[Any, Any], result: Result[Any], report: ExperimentReport) -> str:
    lines = [
        f"# {experiment.title}",
        "",
        f"Published: {experiment.source}.",
        "",
        f"Measured: scale {result.scale}, seed {result.seed}. Again:",
        "",
        f"    chord {experiment.command} --seed {result.seed} --scale {result.scale}",
        "",
    ]
    for table in report.tables:
        lines += [f"## {table.title}", "", *markdown(table), ""]
        if table.bar:
            lines += [f"Bar: {table.bar}.", ""]
        lines += [line for note in table.notes for line in (note, "")]
    for picture in report.pictures:
        lines += [f"![{picture.finding}]({picture.svg.name})", ""]
    lines += [line for note in _remarks(report) for line in (note, "")]
    return "\n".join(lines)


def markdown(table: Table) -> list[str]:
    """Return a table of results as lines of Markdown.

    If a row has a verdict, a column `met` has the verdicts: yes, no or a dash.
    """
    has_bar = table.passed is not None
    headings = table.headings + ["met"] * has_bar
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]

    def line(row: Row) -> str:
        return "| " + " | ".join(table.texts(row) + [VERDICTS[row.passed]] * has_bar) + " |"

    return lines + [line(row) for row in table.rows]

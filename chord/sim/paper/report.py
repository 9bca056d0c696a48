"""What remains of an experiment: its tables as CSV, its plot as SVG and PNG, and one Markdown page with all of it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chord.sim.paper.experiment import Experiment, Result, Row, Table, all_passed
from chord.sim.paper.plot import NoMatplotlib, save

VERDICTS = {True: "yes", False: "no", None: "–"}


@dataclass(frozen=True)
class Report:
    """One experiment's outcome.

    Attributes:
        files: everything that was written.
        notes: what the reader of the command's output should know, besides the tables' own notes.
    """

    name: str
    title: str
    tables: tuple[Table, ...]
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool | None:
        """Whether all rows that have a bar meet it."""
        return all_passed(table.passed for table in self.tables)


def write_report(experiment: Experiment[Any, Any], result: Result[Any], out_dir: Path) -> Report:
    """Write the files of an experiment. Without matplotlib the plot is left out, and a note says so."""
    out_dir.mkdir(parents=True, exist_ok=True)
    tables = tuple(experiment.tables(result))
    files = [_write_csv(table, out_dir) for table in tables]
    notes: list[str] = []
    try:
        files += save(lambda figure: experiment.draw(result, figure), out_dir / experiment.name)
    except NoMatplotlib as error:
        notes.append(str(error))
    report = Report(experiment.name, experiment.title, tables, tuple(files), tuple(notes))
    page = out_dir / f"{experiment.name}.md"
    page.write_text(_page(experiment, result, report), encoding="utf-8")
    return Report(report.name, report.title, tables, (*files, page), report.notes)


def _write_csv(table: Table, out_dir: Path) -> Path:
    path = out_dir / f"{table.name}.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*_unique([column.heading for column in table.columns]), "passed"])
        for row in table.rows:
            writer.writerow([*("" if value is None else value for value in row.values), VERDICTS[row.passed]])
    return path


def _unique(headings: list[str]) -> list[str]:
    """Return headings of which each says what it stands beside, as a file has no eyes: `mean path: published`."""
    found: list[str] = []
    subject = ""
    for heading in headings:
        is_about = headings.count(heading) > 1
        subject = subject if is_about else heading
        found.append(f"{subject}: {heading}" if is_about else heading)
    return found


def _page(experiment: Experiment[Any, Any], result: Result[Any], report: Report) -> str:
    lines = [
        f"# {experiment.title}",
        "",
        f"Published: {experiment.source}.",
        "",
        f"Measured: scale {result.scale}, seed {result.seed}. Again:",
        "",
        f"    chord sim paper {experiment.name} --scale {result.scale} --seed {result.seed}",
        "",
    ]
    for table in report.tables:
        lines += [f"## {table.title}", "", *_markdown(table), ""]
        if table.bar:
            lines += [f"Bar: {table.bar}.", ""]
        lines += [line for note in table.notes for line in (note, "")]
    if any(path.suffix == ".png" for path in report.files):
        lines += [f"![{experiment.title}]({experiment.name}.svg)", ""]
    lines += [line for note in report.notes for line in (note, "")]
    return "\n".join(lines)


def _markdown(table: Table) -> list[str]:
    has_bar = table.passed is not None
    headings = [column.heading for column in table.columns] + ["met"] * has_bar
    lines = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]

    def line(row: Row) -> str:
        return "| " + " | ".join(table.texts(row) + [VERDICTS[row.passed]] * has_bar) + " |"

    return lines + [line(row) for row in table.rows]

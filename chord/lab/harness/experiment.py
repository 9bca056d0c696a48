"""The common part of all experiments: settings, cells and tables.

A setting is the parameters of one measurement, and a cell is its result. A plan gives the settings. One cell is
measured per setting, and the tables are made of the cells.

Cells are independent, so any executor may measure them in any order. The result depends only on the scale and the seed.
This module does not print, write or draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale: TypeAlias = Literal["quick", "standard", "full"]
"""How much is measured.

`quick` is for CI, `standard` takes about ten minutes on two cores, and `full` measures as much as the published tables
rest on.
"""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Callback for the progress of a run.

Its arguments are the label of the cell being measured, the number of measured cells, and the number of all cells. With
an executor, it is also called every `TICK_S` while no cell ends.
"""

TICK_S = 1.0
"""Interval between progress calls while no cell ends, in seconds."""

Value: TypeAlias = str | int | float | None

T = TypeVar("T")  # what a row of a table is about
S = TypeVar("S")  # a setting
C = TypeVar("C")  # a cell: the measurements under one setting


def quiet(label: str, done: int, of: int) -> None:
    """Show nothing: the progress callback of a run without output."""


# -- tables -------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """The heading of a table column, and the format specification of its values, such as ".2f"."""

    heading: str
    spec: str = ""


class Field(NamedTuple, Generic[T]):
    """A table column that computes its values from the items that the rows show.

    Attributes:
        heading: the text above the column.
        spec: the format specification of the values, such as ".2f".
        value: returns the value of an item in this column.
    """

    heading: str
    spec: str
    value: Callable[[T], Value]


class Row(NamedTuple):
    """A row of a table, with its verdict.

    Attributes:
        values: one value per column.
        passed: whether the row meets the table's pass criterion (its bar); None if the criterion does not apply to the
            row.
    """

    values: tuple[Value, ...]
    passed: bool | None = None


@dataclass(frozen=True)
class Table:
    """Measured values beside published ones.

    Attributes:
        name: base name of its file; unique among all tables.
        title: its heading on a page.
        columns: the columns, from left to right.
        rows: the rows; each has one value per column.
        bar: the pass criterion of the rows, in words; empty if there is no criterion.
        notes: explanations of the numbers for the reader.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bar: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        title: str,
        fields: Sequence[Field[T]],
        items: Iterable[T],
        is_met: Callable[[T], bool | None],
        bar: str = "",
        notes: tuple[str, ...] = (),
    ) -> Table:
        """Return a table with one row per item.

        Args:
            name: base name of its file; unique among all tables.
            title: its heading on a page.
            fields: the columns, which compute the row of an item.
            items: what the rows are about, from top to bottom.
            is_met: returns whether an item meets the pass criterion; None if the criterion does not apply.
            bar: the pass criterion, in words; "": there is no criterion.
            notes: explanations of the numbers for the reader.
        """
        rows = tuple(Row(tuple(field.value(item) for field in fields), is_met(item)) for item in items)
        return cls(name, title, tuple(Column(field.heading, field.spec) for field in fields), rows, bar, notes)

    @property
    def passed(self) -> bool | None:
        """Whether every row meets the pass criterion; None if it applies to no row."""
        return all_passed(row.passed for row in self.rows)

    @property
    def headings(self) -> list[str]:
        """The headings of the columns, made unique.

        A heading that occurs more than once is prefixed with the last unique heading before it.
        `mean path`, `published`, `timeouts`, `published` become `mean path`, `mean path: published`, `timeouts`,
        `timeouts: published`.
        """
        bare = [column.heading for column in self.columns]
        found: list[str] = []
        subject = ""
        for heading in bare:
            is_about = bare.count(heading) > 1
            subject = subject if is_about else heading
            found.append(f"{subject}: {heading}" if is_about else heading)
        return found

    def without_empty_columns(self) -> Table:
        """Return the table without the columns that have no value in any row."""
        filled = [at for at in range(len(self.columns)) if any(row.values[at] is not None for row in self.rows)]
        rows = tuple(Row(tuple(row.values[at] for at in filled), row.passed) for row in self.rows)
        return replace(self, columns=tuple(self.columns[at] for at in filled), rows=rows)

    def texts(self, row: Row) -> list[str]:
        """Return the values of a row as text, each formatted for its column."""
        return [as_text(value, column.spec) for value, column in zip(row.values, self.columns, strict=True)]


def as_text(value: Value, spec: str) -> str:
    """Return a number formatted by `spec`, a string as it is, and a dash for None."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else format(value, spec)


def all_passed(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all verdicts but None are true; None if all are None."""
    given = [verdict for verdict in verdicts if verdict is not None]
    return all(given) if given else None


# -- experiments --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result(Generic[C]):
    """The cells (measurements) of an experiment, for its tables and plots, with the scale and the seed of the run."""

    scale: Scale
    seed: int
    cells: tuple[C, ...]


@dataclass(frozen=True)
class Experiment(Generic[S, C]):
    """One experiment: its settings, its measurement, its tables and its plots.

    Attributes:
        name: its name on the command line.
        title: heading of its page.
        source: the publication of the numbers that ours are compared with.
        plan: returns the settings for a scale and a seed, the most costly ones last.
        measure: makes the measurement of one setting. It runs in any process, so it is a module-level function and its
            setting is plain values.
        tables: makes the tables from a result, the most important one first.
        pictures: functions that draw a result on a figure, by file name; the most important one first.
        command: the command that repeats the measurement, without `chord`, the scale and the seed.
        is_timed: whether the measurements are of time. Executors do not run them: this process does, one by one, at the
            end.
        advice: returns a sentence that follows from a result, for the end of the output. None: it has no advice.
    """

    name: str
    title: str
    source: str
    plan: Callable[[Scale, int], list[S]]
    measure: Callable[[S], C]
    tables: Callable[[Result[C]], list[Table]]
    pictures: Mapping[str, Callable[[Result[C], Figure], None]]
    command: str
    is_timed: bool = False
    advice: Callable[[Result[C]], str] | None = None

    def run(self, scale: Scale, seed: int, progress: Progress = quiet, executor: Executor | None = None) -> Result[C]:
        """Measure every setting of the plan; the cells are in the order of the plan.

        Args:
            scale: the extent of the measurements.
            seed: the source of all random choices.
            progress: called with the label of the present cell, the number of measured cells, and that of all cells.
            executor: makes the measurements; None: this process does. Measurements of time always run in this process.
        """
        settings = self.plan(scale, seed)
        cells = run_cells([(self, setting) for setting in settings], progress, executor)
        return Result(scale, seed, tuple(cells))


def run_cells(
    jobs: Sequence[tuple[Experiment[Any, Any], Any]], progress: Progress, executor: Executor | None
) -> list[Any]:
    """Make the measurements of several experiments; return them in the given order.

    With an executor, measurements are submitted in reverse order, because the last ones are the most costly.
    Measurements of time run last, in this process. The exception of the first measurement that fails leaves this
    function, and measurements that have not started are cancelled.

    Args:
        jobs: pairs of an experiment and one of its settings.
        executor: runs the measurements; None: this process does.
    """
    order = list(range(len(jobs)))
    timed = [number for number in order if executor is None or jobs[number][0].is_timed]
    found: dict[int, Any] = {}
    if executor is not None:
        elsewhere = [number for number in reversed(order) if not jobs[number][0].is_timed]
        futures = {executor.submit(jobs[number][0].measure, jobs[number][1]): number for number in elsewhere}
        waiting = set(futures)
        try:
            while waiting:
                ended, waiting = wait(waiting, TICK_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    found[futures[future]] = future.result()  # the first failure ends the run
                busy = next((futures[future] for future in futures if future in waiting), elsewhere[-1])
                progress(_label(jobs[busy]), len(found), len(jobs))
        finally:
            for future in futures:
                future.cancel()
    for number in timed:
        progress(_label(jobs[number]), len(found), len(jobs))
        found[number] = jobs[number][0].measure(jobs[number][1])
    if jobs:
        progress(_label(jobs[-1]), len(jobs), len(jobs))
    return [found[number] for number in order]


def _label(job: tuple[Experiment[Any, Any], Any]) -> str:
    experiment, setting = job
    return f"{experiment.name}: {setting}"

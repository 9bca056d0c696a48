"""The common part of all experiments: settings, cells and tables.

A plan gives the settings. One cell is measured per setting, and the tables are made of the cells.

Cells are independent, so any executor may measure them in any order. The result depends only on the scale and the
seed. This module does not print, write or draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale: TypeAlias = Literal["quick", "standard", "full"]
"""How much is measured.

`quick` is for CI, `standard` takes about ten minutes on two cores, and `full` measures as much as the published tables
rest on.
"""

SCALES: tuple[Scale, ...] = ("quick", "standard", "full")

Progress: TypeAlias = Callable[[str, int, int], None]
"""Callback for the progress of a run.

Its arguments are the label of the cell being measured, the number of measured cells, and the number of all cells. It
is also called every `TICK_S` while no cell ends.
"""

TICK_S = 1.0
"""Interval between progress calls while no cell ends, in seconds."""

Value: TypeAlias = str | int | float | None

S = TypeVar("S")  # a setting
C = TypeVar("C")  # a cell: the measurements under one setting


def quiet(label: str, done: int, of: int) -> None:
    """Ignore the progress."""


# -- statistics ---------------------------------------------------------------------------------------


GROUPS_MIN = 4
"""Smallest number of groups (rings) that give a usable standard error."""


class Summary(NamedTuple):
    """A sample in four numbers.

    Attributes:
        mean: the mean.
        error: standard error of the mean.
        low: 1st percentile.
        high: 99th percentile.
    """

    mean: float
    error: float
    low: float
    high: float


def summarize(samples: Sequence[Sequence[float]]) -> Summary:
    """Return the summary of samples that were drawn in groups (one group per ring).

    Lookups on one ring are correlated. If there are at least `GROUPS_MIN` groups, the error therefore comes from the
    differences between the means of the groups.
    """
    groups = [group for group in samples if group]
    values = sorted(value for group in groups for value in group)
    if len(groups) >= GROUPS_MIN:
        error = stdev(fmean(group) for group in groups) / math.sqrt(len(groups))
    else:
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Summary(fmean(values), error, percentile(values, 0.01), percentile(values, 0.99))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which `share` of an ordered sample lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def is_near(measured: Summary, published: float, within: float, scale: Scale) -> bool:
    """Whether a mean is within a fraction of the published one.

    At scales below `full`, two standard errors are allowed in addition.

    Args:
        measured: the measured sample.
        published: the published mean.
        within: allowed difference, as a fraction of `published`.
        scale: the scale of the run.
    """
    slack = 0.0 if scale == "full" else 2 * measured.error
    return abs(measured.mean - published) <= within * published + slack


def per_10_000(count: float, of: int) -> float:
    """Return a count per 10,000, as the papers print rates; 0 if `of` is 0."""
    return 10_000 * count / of if of else 0.0


def poisson_upper(count: int, confidence: float = 0.95) -> float:
    """Return the exact one-sided upper confidence bound of a Poisson mean.

    With no event at 95 % it is 2.996, the rule of three.

    Args:
        count: number of events that were seen.
        confidence: confidence of the bound, 0 to 1.
    """
    low, high = float(count), 4.0 * count + 10.0
    for _ in range(60):
        middle = (low + high) / 2
        term = total = math.exp(-middle)
        for k in range(1, count + 1):
            term *= middle / k
            total += term
        low, high = (middle, high) if total > 1 - confidence else (low, middle)
    return high


# -- tables -------------------------------------------------------------------------------------------


class Column(NamedTuple):
    """A column's heading, and the format specification of its values."""

    heading: str
    spec: str = ""


class Row(NamedTuple):
    """A row of a table; `passed` says whether it meets its bar, None if it has no bar."""

    values: tuple[Value, ...]
    passed: bool | None = None


@dataclass(frozen=True)
class Table:
    """Measured values beside published ones.

    Attributes:
        name: base name of its file; unique among all tables.
        title: heading above the table.
        columns: the columns.
        rows: the rows; each has one value per column.
        bar: the condition behind `passed` of the rows, in words.
        notes: explanations of the numbers for the reader.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bar: str = ""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool | None:
        """Whether every row that has a bar meets it; None if no row has one."""
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

    def texts(self, row: Row) -> list[str]:
        """Return a row's values as formatted text."""
        return [as_text(value, column.spec) for value, column in zip(row.values, self.columns, strict=True)]


def as_text(value: Value, spec: str) -> str:
    """Return a value as formatted text; a dash for None."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else format(value, spec)


def all_passed(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all verdicts that are not None are true; None if all are None."""
    given = [verdict for verdict in verdicts if verdict is not None]
    return all(given) if given else None


# -- experiments --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result(Generic[C]):
    """The measured cells of an experiment, from which its tables and plots are made."""

    scale: Scale
    seed: int
    cells: tuple[C, ...]


@dataclass(frozen=True)
class Experiment(Generic[S, C]):
    """One experiment.

    Attributes:
        name: its name on the command line.
        title: heading of its page.
        source: the publication of the numbers that ours are compared with.
        plan: returns the settings for a scale and a seed, the most costly ones last.
        measure: measures one cell. It runs in any process, so it is a module-level function and its setting is plain
            values.
        tables: makes the tables from a result, the most important one first.
        pictures: draws a result on a figure, by file name; the most important one first.
        again: returns the command that repeats the measurement, for a scale and a seed.
        is_timed: whether cells measure time. Executors do not run such cells: this process does, one by one, at the
            end.
    """

    name: str
    title: str
    source: str
    plan: Callable[[Scale, int], list[S]]
    measure: Callable[[S], C]
    tables: Callable[[Result[C]], list[Table]]
    pictures: Mapping[str, Callable[[Result[C], Figure], None]]
    again: Callable[[Scale, int], str]
    is_timed: bool = False

    def run(self, scale: Scale, seed: int, progress: Progress = quiet, executor: Executor | None = None) -> Result[C]:
        """Measure every cell of the plan, in this process or in an executor."""
        settings = self.plan(scale, seed)
        cells = run_cells([(self, setting) for setting in settings], progress, executor)
        return Result(scale, seed, tuple(cells))


def run_cells(
    jobs: Sequence[tuple[Experiment[Any, Any], Any]], progress: Progress, executor: Executor | None
) -> list[Any]:
    """Measure the cells of several experiments; return them in the order of jobs.

    With an executor, cells are submitted in reverse order, because the last ones are the most costly. Timed cells run
    last, in this process. The first failure ends the run and cancels all cells that have not started.
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

"""What all experiments have in common: a plan of settings, one cell measured for each, tables made of the cells.

Cells know nothing of each other, so any executor may measure them, in any order; the result depends
on scale and seed alone. Nothing here prints, writes or draws.
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
"""How much is measured: for CI, for ten minutes of two cores, or as much as the published tables rest on."""

SCALES: tuple[Scale, ...] = ("quick", "standard", "full")

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told which cell is being measured, how many have been, and how many there are in all; also while nothing ends."""

TICK_S = 1.0
"""How often the progress is told while nothing ends."""

Value: TypeAlias = str | int | float | None

S = TypeVar("S")  # a setting
C = TypeVar("C")  # a cell: what was measured under one setting


def quiet(label: str, done: int, of: int) -> None:
    """Tell nobody of the progress."""


# -- statistics ---------------------------------------------------------------------------------------


GROUPS_MIN = 4
"""So many groups (rings) tell by themselves how far their means are from the truth; fewer do not."""


class Summary(NamedTuple):
    """A sample in four numbers: its mean, the standard error of the mean, its 1st and 99th percentile."""

    mean: float
    error: float
    low: float
    high: float


def summarize(samples: Sequence[Sequence[float]]) -> Summary:
    """Return the summary of samples that were drawn in groups (one ring each).

    The error comes from how far the groups' means differ, where there are enough groups to tell: lookups on one ring
    share its luck.
    """
    groups = [group for group in samples if group]
    values = sorted(value for group in groups for value in group)
    if len(groups) >= GROUPS_MIN:
        error = stdev(fmean(group) for group in groups) / math.sqrt(len(groups))
    else:
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Summary(fmean(values), error, percentile(values, 0.01), percentile(values, 0.99))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of an ordered sample lies."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def is_near(measured: Summary, published: float, within: float, scale: Scale) -> bool:
    """Whether a mean is within a share of the published one; at reduced scale give or take two standard errors."""
    slack = 0.0 if scale == "full" else 2 * measured.error
    return abs(measured.mean - published) <= within * published + slack


def per_10_000(count: float, of: int) -> float:
    """Return a share as the papers print it."""
    return 10_000 * count / of if of else 0.0


def poisson_upper(count: int, confidence: float = 0.95) -> float:
    """Return the largest mean that would still show so few events with more than 1 - `confidence` probability.

    The exact one-sided bound: the rule of three (2.996) where nothing happened.
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
    """A column's heading and how its values are written (a format specification)."""

    heading: str
    spec: str = ""


class Row(NamedTuple):
    """A line of a table; `passed` says whether it meets its bar, None where there is none."""

    values: tuple[Value, ...]
    passed: bool | None = None


@dataclass(frozen=True)
class Table:
    """What was measured, beside what was published.

    Attributes:
        name: of the file it is written to; unique among all tables.
        bar: what `passed` of the rows means, in words.
        notes: what a reader should know about the numbers.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    bar: str = ""
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool | None:
        """Whether every row that has a bar meets it; None where none has."""
        return all_passed(row.passed for row in self.rows)

    @property
    def headings(self) -> list[str]:
        """What the columns are called, each by a name of its own: those that repeat say what they stand beside.

        `mean path`, `published`, `timeouts`, `published` are `mean path`, `mean path: published`, and so on.
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
        """Return a row's values as they are to be read."""
        return [as_text(value, column.spec) for value, column in zip(row.values, self.columns, strict=True)]


def as_text(value: Value, spec: str) -> str:
    """Return a value as it is to be read; what does not exist is a dash."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else format(value, spec)


def all_passed(verdicts: Iterable[bool | None]) -> bool | None:
    """Return whether all verdicts there are are good; None where there are none."""
    given = [verdict for verdict in verdicts if verdict is not None]
    return all(given) if given else None


# -- experiments --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Result(Generic[C]):
    """What an experiment measured, from which its tables and its plot are made."""

    scale: Scale
    seed: int
    cells: tuple[C, ...]


@dataclass(frozen=True)
class Experiment(Generic[S, C]):
    """One experiment.

    Attributes:
        name: as the command line knows it.
        title: what is asked.
        source: who published the numbers beside which ours are put.
        plan: the settings to measure at a scale, under a seed; the most costly ones last.
        measure: one cell; runs in any process, so it is a function of a module and its setting is plain values.
        tables: of a result, the most important one first.
        pictures: by the name of its file, what fills a figure from a result; the most important first.
        again: of a scale and a seed, the command that measures the same again.
        is_timed: the cells take times, so they are measured here, one after the other, when all else is done.
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
        """Measure every cell of the plan: here, or in an executor."""
        settings = self.plan(scale, seed)
        cells = run_cells([(self, setting) for setting in settings], progress, executor)
        return Result(scale, seed, tuple(cells))


def run_cells(
    jobs: Sequence[tuple[Experiment[Any, Any], Any]], progress: Progress, executor: Executor | None
) -> list[Any]:
    """Measure the cells of several experiments, and return them in the order of the jobs.

    An executor begins with the last ones, which are the most costly.
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

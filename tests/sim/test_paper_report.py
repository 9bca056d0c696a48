"""Experiments as such: how cells are run, what is written, and what the statistics mean."""

from __future__ import annotations

import csv
import json
import math
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from chord.lab.harness.experiment import (
    Column,
    Result,
    Row,
    Summary,
    Table,
    is_near,
    per_10_000,
    percentile,
    poisson_upper,
    run_cells,
    summarize,
)
from chord.lab.papers import EXPERIMENTS, SCALES, path_length, processes, run_all
from tests.support.real_rings import HANG_S

pytestmark = pytest.mark.slow

TINY = [path_length.Setting(nodes, r, 1, 20, seed=1) for nodes in (8, 16, 32) for r in path_length.LISTS]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of an experiment that takes a moment."""
    monkeypatch.setitem(EXPERIMENTS, "path_length", replace(path_length.EXPERIMENT, plan=lambda scale, seed: TINY))
    return "path_length"


# -- cells --------------------------------------------------------------------------------------------


def test_cells_are_the_same_wherever_they_are_measured() -> None:
    jobs = [(path_length.EXPERIMENT, setting) for setting in TINY]
    seen: list[tuple[int, int]] = []
    here = run_cells(jobs, lambda label, done, of: seen.append((done, of)), None)
    assert [cell.setting for cell in here] == TINY
    assert seen == [(done, 9) for done in range(10)]
    seen.clear()
    with processes(2) as pool:
        there = run_cells(jobs, lambda label, done, of: seen.append((done, of)), pool)
    assert there == here
    assert seen == sorted(seen)
    assert seen[-1] == (9, 9)


def test_progress_is_told_while_nothing_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that waits until it has been said twice that it is the one that is measured."""
    monkeypatch.setattr("chord.lab.harness.experiment.TICK_S", 0.001)
    told, heard = threading.Event(), list[tuple[str, int]]()

    def measure(setting: path_length.Setting) -> path_length.Cell:
        assert setting != TINY[0] or told.wait(HANG_S)
        return path_length.Cell(setting, ())

    def listen(label: str, done: int, of: int) -> None:
        heard.append((label, done))
        if heard.count((f"path_length: {TINY[0]}", len(TINY) - 1)) == 2:
            told.set()

    jobs = [(replace(path_length.EXPERIMENT, measure=measure), setting) for setting in TINY]
    with ThreadPoolExecutor(2) as pool:
        run_cells(jobs, listen, pool)
    assert told.is_set()
    assert heard[-1][1] == len(TINY)


def fail(setting: path_length.Setting) -> path_length.Cell:
    """Measure nothing."""
    raise ZeroDivisionError(setting)


def test_a_cell_that_fails_ends_the_run() -> None:
    jobs = [(replace(path_length.EXPERIMENT, measure=fail), setting) for setting in TINY]
    with pytest.raises(ZeroDivisionError):
        run_cells(jobs, lambda label, done, of: None, None)
    with processes(1) as pool, pytest.raises(ZeroDivisionError):
        run_cells(jobs, lambda label, done, of: None, pool)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_plan_for_every_scale(name: str) -> None:
    sizes = [len(EXPERIMENTS[name].plan(scale, 1)) for scale in SCALES]
    assert sizes[0] > 0
    assert sizes == sorted(sizes), "more time, no fewer cells"
    assert EXPERIMENTS[name].name == name


# -- what is written ----------------------------------------------------------------------------------


def test_a_report_is_tables_plots_and_a_page(tiny: str, tmp_path: Path) -> None:
    first = run_all([tiny], "quick", 1, tmp_path / "first")
    again = run_all([tiny], "quick", 1, tmp_path / "again")
    (report,) = first
    assert sorted(path.name for path in report.files) == [
        "path_distribution.csv",
        "path_length.csv",
        "path_length.json",
        "path_length.md",
        "path_length.png",
        "path_length.svg",
    ]
    for one, other in zip(report.files, again[0].files, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name
    with (tmp_path / "first" / "path_length.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0][:3] == ["nodes", "list r", "mean path"]
    assert len(rows) == 1 + len(TINY)
    measured = json.loads((tmp_path / "first" / "path_length.json").read_text())
    assert (measured["scale"], measured["seed"], measured["tables"][0]["name"]) == ("quick", 1, "path_length")
    page = (tmp_path / "first" / "path_length.md").read_text()
    assert "chord sim paper path_length --scale quick --seed 1" in page
    assert f"![{report.pictures[0].finding}](path_length.svg)" in page
    assert report.pictures[0].finding.startswith("A lookup among 32 nodes takes ")


def test_without_matplotlib_the_numbers_are_written_all_the_same(
    tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    (report,) = run_all([tiny], "quick", 1, tmp_path)
    assert [path.suffix for path in report.files] == [".csv", ".csv", ".json", ".md"]
    assert "pip install '.[lab]'" in report.notes[0]
    assert report.notes[0] in (tmp_path / "path_length.md").read_text()
    assert "svg" not in (tmp_path / "path_length.md").read_text()


def test_a_table_reads_well_and_knows_whether_it_passed() -> None:
    table = Table("t", "T", (Column("a", ".1f"), Column("b"), Column("c", ".0%")), (Row((1.26, None, 0.5), True),))
    assert table.texts(table.rows[0]) == ["1.3", "–", "50%"]
    assert table.passed is True
    assert replace(table, rows=(*table.rows, Row((1.0, "x", 0.1), False))).passed is False
    assert replace(table, rows=(Row((1.0, "x", 0.1)),)).passed is None


# -- statistics ---------------------------------------------------------------------------------------


def test_a_summary_tells_how_sure_its_mean_is() -> None:
    rng = random.Random(1)
    alone = summarize([[rng.gauss(5, 2) for _ in range(400)]])
    assert alone.mean == pytest.approx(5, abs=3 * alone.error)
    assert alone.error == pytest.approx(2 / math.sqrt(400), rel=0.15)
    shifts = [rng.gauss(0, 1) for _ in range(40)]
    groups = summarize([[5 + shift] * 10 for shift in shifts])
    assert groups.error == pytest.approx(1 / math.sqrt(40), rel=0.3), "the groups' luck, not that of the 400 values"
    assert (groups.low, groups.high) == (5 + min(shifts), 5 + max(shifts))


def test_percentiles_are_values_of_the_sample() -> None:
    values = list(range(100))
    assert (percentile(values, 0.01), percentile(values, 0.5), percentile(values, 0.99)) == (1, 50, 99)
    assert percentile([7], 0.99) == 7


def test_near_is_strict_at_full_scale_only() -> None:
    measured = Summary(1.09, error=0.03, low=0, high=2)
    assert is_near(measured, 1.0, 0.10, "full")
    assert not is_near(measured, 1.0, 0.05, "full")
    assert is_near(measured, 1.0, 0.05, "quick")
    assert not is_near(measured, 1.0, 0.02, "quick")


@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_the_bound_on_a_rare_count_is_exact(count: int) -> None:
    bound = poisson_upper(count)
    seen = sum(math.exp(-bound) * bound**k / math.factorial(k) for k in range(count + 1))
    assert seen == pytest.approx(0.05)
    assert per_10_000(3, 20_000) == 1.5


def test_names_of_tables_are_unique() -> None:
    cells = tuple(path_length.Cell(setting, (1, 2, 3)) for setting in TINY)
    names = [table.name for table in path_length.tables(Result("quick", 1, cells))]
    assert len(set(names)) == len(names)

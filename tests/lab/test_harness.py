"""The harness of experiments: the run of cells, the files of a report, and the statistics."""

from __future__ import annotations

import csv
import json
import math
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias, get_args

import pytest

from chord.lab.harness.experiment import (
    Column,
    Experiment,
    Result,
    Row,
    Scale,
    Table,
    run_cells,
)
from chord.lab.harness.report import run_all
from chord.lab.harness.statistics import (
    counted,
    per_10_000,
    percentile,
    poisson_upper,
    spread_of,
    summarize,
    summarize_counts,
)
from chord.lab.papers import EXPERIMENTS, failures, load_balance, path_length
from chord.sim.pool import processes
from tests.support.real_rings import HANG_S

pytestmark = pytest.mark.slow

TINY = [
    path_length.PathSetting(nodes, r, 1, 20, seed=1, is_model=is_model)
    for is_model in (True, False)
    for nodes in (8, 16, 32)
    for r in path_length.LISTS
]
Paths: TypeAlias = Experiment[path_length.PathSetting, path_length.PathCell]


PATHS = path_length.experiment()


@pytest.fixture
def tiny() -> Paths:
    """An experiment that takes a moment."""
    return replace(PATHS, plan=lambda scale, seed: TINY)


# -- cells --------------------------------------------------------------------------------------------


def test_cells_are_the_same_in_any_process() -> None:
    jobs = [(PATHS, setting) for setting in TINY]
    seen: list[tuple[int, int]] = []
    here = run_cells(jobs, lambda label, done, of: seen.append((done, of)), None)
    assert [cell.setting for cell in here] == TINY
    assert seen == [(done, 18) for done in range(19)]
    seen.clear()
    with processes(2) as pool:
        there = run_cells(jobs, lambda label, done, of: seen.append((done, of)), pool)
    assert there == here
    assert seen == sorted(seen)
    assert seen[-1] == (18, 18)


def test_progress_is_reported_while_a_cell_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cell waits until the progress has named it twice."""
    monkeypatch.setattr("chord.lab.harness.experiment.TICK_S", 0.001)
    reported, heard = threading.Event(), list[tuple[str, int]]()

    def measure(setting: path_length.PathSetting) -> path_length.PathCell:
        assert setting != TINY[0] or reported.wait(HANG_S)
        return path_length.PathCell(setting, ())

    def listen(label: str, done: int, of: int) -> None:
        heard.append((label, done))
        if heard.count((f"path_length: {TINY[0]}", len(TINY) - 1)) == 2:
            reported.set()

    jobs = [(replace(PATHS, measure=measure), setting) for setting in TINY]
    with ThreadPoolExecutor(2) as pool:
        run_cells(jobs, listen, pool)
    assert reported.is_set()
    assert heard[-1][1] == len(TINY)


def fail(setting: path_length.PathSetting) -> path_length.PathCell:
    """Measure nothing."""
    raise ZeroDivisionError(setting)


def test_failing_cell_ends_the_run() -> None:
    jobs = [(replace(PATHS, measure=fail), setting) for setting in TINY]
    with pytest.raises(ZeroDivisionError):
        run_cells(jobs, lambda label, done, of: None, None)
    with processes(1) as pool, pytest.raises(ZeroDivisionError):
        run_cells(jobs, lambda label, done, of: None, pool)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_has_a_plan_for_every_scale(name: str) -> None:
    sizes = [len(EXPERIMENTS[name].plan(scale, 1)) for scale in get_args(Scale)]
    assert sizes[0] > 0
    assert sizes == sorted(sizes), "a larger scale has no fewer cells"
    assert EXPERIMENTS[name].name == name


# -- files --------------------------------------------------------------------------------------------


def test_report_has_tables_plots_and_a_page(tiny: Paths, tmp_path: Path) -> None:
    first = run_all([tiny], "quick", 1, tmp_path / "first")
    again = run_all([tiny], "quick", 1, tmp_path / "again")
    (report,) = first
    assert sorted(path.name for path in report.files) == [
        "finger_use.csv",
        "finger_use.png",
        "finger_use.svg",
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
    assert rows[0][:3] == ["nodes", "list r", "real node: mean"]
    assert len(rows) == 1 + len(TINY) // 2
    measured = json.loads((tmp_path / "first" / "path_length.json").read_text())
    assert (measured["scale"], measured["seed"], measured["tables"][0]["name"]) == ("quick", 1, "path_length")
    page = (tmp_path / "first" / "path_length.md").read_text()
    assert "chord sim paper path_length --seed 1 --scale quick" in page
    assert f"![{report.pictures[0].finding}](path_length.svg)" in page
    assert report.pictures[0].finding.startswith("A lookup among 32 nodes takes ")


def test_report_without_matplotlib_has_the_numbers(
    tiny: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    (report,) = run_all([tiny], "quick", 1, tmp_path)
    assert [path.suffix for path in report.files] == [".csv", ".csv", ".csv", ".json", ".md"]
    assert "pip install '.[lab]'" in report.notes[0]
    assert report.notes[0] in (tmp_path / "path_length.md").read_text()
    assert "svg" not in (tmp_path / "path_length.md").read_text()


def test_table_formats_its_values_and_knows_its_verdict() -> None:
    table = Table("t", "T", (Column("a", ".1f"), Column("b"), Column("c", ".0%")), (Row((1.26, None, 0.5), True),))
    assert table.texts(table.rows[0]) == ["1.3", "–", "50%"]
    assert table.passed is True
    assert replace(table, rows=(*table.rows, Row((1.0, "x", 0.1), False))).passed is False
    assert replace(table, rows=(Row((1.0, "x", 0.1)),)).passed is None


def test_columns_without_values_are_omitted() -> None:
    table = Table("t", "T", (Column("a"), Column("b"), Column("c")), (Row((1, None, 0)), Row((2, None, None), True)))
    assert table.without_empty_columns().headings == ["a", "c"]
    assert table.without_empty_columns().rows == (Row((1, 0)), Row((2, None), True))


# -- the real node and the model ----------------------------------------------------------------------


@pytest.mark.parametrize("module", [path_length, load_balance, failures])
@pytest.mark.parametrize("scale", get_args(Scale))
def test_model_stands_beside_each_published_ring(module: Any, scale: Scale) -> None:
    plan = module.experiment().plan(scale, 1)
    real = {setting[:2] if module is not failures else setting.share for setting in plan if not setting.is_model}
    models = {setting[:2] if module is not failures else setting.share for setting in plan if setting.is_model}
    assert models == real - {(1, 200)}, "the ring that checks the count needs no model"
    assert all(setting.is_model for setting in module.experiment(64).plan("quick", 1))


def test_real_node_and_model_are_columns_of_one_table(tiny: Paths) -> None:
    means, *_ = tiny.tables(tiny.run("quick", 1))
    assert len(means.rows) == len(TINY) // 2
    assert {"real node: mean", "model: mean"} <= set(means.headings)
    assert all(None not in (row.values[3], row.values[10]) for row in means.rows)


def test_experiments_without_numpy_measure_the_real_node() -> None:
    """Another process cannot import NumPy."""
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from chord.lab.papers import path_length as p, load_balance, failures\n"
        "plans = [m.experiment().plan('quick', 1) for m in (p, load_balance, failures)]\n"
        "assert not any(setting.is_model for plan in plans for setting in plan)\n"
        "from chord.lab.harness.experiment import Result\n"
        "path = p.measure(p.PathSetting(8, 1, 1, 20, 1))\n"
        "load = load_balance.measure(load_balance.LoadSetting(1, 8, 90, False, 1))\n"
        "tables = p.tables(Result('quick', 1, (path,))) + load_balance.tables(Result('quick', 1, (load,)))\n"
        "print([table.name for table in tables], list(p.experiment().pictures))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert said.stdout.split("\n")[0] == "['path_length', 'path_distribution', 'load_balance'] ['path_length']"


# -- statistics ---------------------------------------------------------------------------------------


def test_summary_has_the_standard_error_of_its_mean() -> None:
    rng = random.Random(1)
    alone = summarize([[rng.gauss(5, 2) for _ in range(400)]])
    assert alone.mean == pytest.approx(5, abs=3 * alone.error)
    assert alone.error == pytest.approx(2 / math.sqrt(400), rel=0.15)
    shifts = [rng.gauss(0, 1) for _ in range(40)]
    groups = summarize([[5 + shift] * 10 for shift in shifts])
    assert groups.error == pytest.approx(1 / math.sqrt(40), rel=0.3), "the error is that of the groups"
    assert (groups.low, groups.high) == (5 + min(shifts), 5 + max(shifts))


def test_percentiles_are_values_of_the_sample() -> None:
    values = list(range(100))
    assert (percentile(values, 0.01), percentile(values, 0.5), percentile(values, 0.99)) == (1, 50, 99)
    assert percentile([7], 0.99) == 7


def test_counts_and_values_have_the_same_summary() -> None:
    rng = random.Random(2)
    for groups in (1, 5):
        values = [[rng.randrange(12) for _ in range(50)] for _ in range(groups)]
        found, due = summarize_counts([counted(group) for group in values]), summarize(values)
        assert found == pytest.approx(due)
    assert counted([2, 0, 2]) == (1, 0, 2)


def test_spread_of_loads_is_over_the_mean() -> None:
    found = spread_of([2, 4, 6, 8])
    assert (found.mean, found.low, found.high, found.most) == (5, 0.4, 1.6, 1.6)
    assert found.deviation == pytest.approx(math.sqrt(5) / 5)


@pytest.mark.parametrize("count", [0, 1, 5, 16])
def test_bound_on_a_rare_count_is_exact(count: int) -> None:
    bound = poisson_upper(count)
    seen = sum(math.exp(-bound) * bound**k / math.factorial(k) for k in range(count + 1))
    assert seen == pytest.approx(0.05)
    assert per_10_000(3, 20_000) == 1.5


def test_names_of_tables_are_unique() -> None:
    cells = tuple(path_length.PathCell(setting, ((1, 2, 3),)) for setting in TINY)
    names = [table.name for table in path_length.tables(Result("quick", 1, cells))]
    assert len(set(names)) == len(names)

"""The verdicts of the benchmarks, and a short run of each that needs no disk and no quiet machine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import static
from benchmarks.__main__ import ENDED, QUICK, ROOM_MAX, ROOM_MIN, report, room, run
from benchmarks.bars import bar, missed, percentile, verdict_line
from benchmarks.cost_parts import Period, part_of, parts_of
from benchmarks.others.table import Row
from tests.support.real_rings import HANG_S

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (bar("x", 2.0, at_most=2.0), "PASS"),
        (bar("x", 2.001, at_most=2.0), "FAIL"),
        (bar("x", 0.7, at_least=0.7), "PASS"),
        (bar("x", 0.699, at_least=0.7), "FAIL"),
        (bar("x", 0, at_most=0), "PASS"),
        (bar("x", 1, at_most=0), "FAIL"),
    ],
)
def test_bar_is_met_up_to_its_edge(row: dict[str, object], verdict: str) -> None:
    assert row["verdict"] == verdict
    assert missed([{"op": "x"}, row]) == (verdict == "FAIL")
    assert verdict_line(row).startswith(verdict)


def test_room_is_the_factor_to_the_bar() -> None:
    assert room(bar("x", 1.0, at_most=4.0)) == 4.0
    assert room(bar("x", 8.0, at_least=4.0)) == 2.0
    assert room(bar("x", 0, at_most=0)) == ROOM_MAX
    assert room(bar("x", 1, at_most=0)) == ROOM_MIN
    assert room(bar("x", 0.0, at_most=3.0)) == ROOM_MAX


def test_percentile_is_in_milliseconds_and_in_the_sample() -> None:
    assert percentile([0.001 * n for n in range(1, 101)], 0.5) == 51.0
    assert percentile([0.002], 0.999) == 2.0
    assert percentile([0.002, 0.004], 1.0) == 4.0


def test_report_has_every_bar_and_every_figure() -> None:
    rows = [{"benchmark": "rpc", "op": "ping", "p50_ms": 0.1}, {"benchmark": "rpc", **bar("fast", 3.0, at_most=2.0)}]
    text = report(rows, "a machine")
    assert "| FAIL | 3 | ≤ 2 | rpc: fast |" in text
    assert "op ping  p50_ms 0.1" in text


def test_sample_belongs_to_the_innermost_frame_of_a_part() -> None:
    found: list[str] = []

    def sample() -> None:
        found.append(part_of(sys._getframe()))  # this module belongs to no part, so a caller decides

    def module(name: str, call: Callable[[], object]) -> Callable[[], object]:
        scope: dict[str, Any] = {"__name__": name, "call": call}
        exec("def run(): call()", scope)
        return cast(Callable[[], object], scope["run"])

    module("chord.client.routing", module("trio._core._run", module("msgspec", sample)))()
    module("trio._core._run", module("chord.store.memory", sample))()
    module("trio._core._io_epoll", sample)()
    sample()
    assert found == ["Trio", "store and versions", "sockets", "other"]


def test_cost_of_a_part_is_its_share_of_the_samples_of_a_period() -> None:
    samples = [(0.5, "Trio"), (1.0, "Trio"), (1.5, "client"), (1.6, "client"), (1.7, "client"), (2.0, "client")]
    assert parts_of(samples, Period(1.0, 2.0, 100.0)) == {"Trio": 25.0, "client": 75.0}


def test_every_benchmark_is_run_by_make_bench() -> None:
    helpers = {"__init__", "__main__", "bars", "compiled", "rings", "foreground", "plain_rpc", "side_by_side"}
    assert {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - helpers == set(QUICK)


def test_benchmark_that_fails_misses_a_bar(tmp_path: Path) -> None:
    (row,) = run("of_nothing", tmp_path, is_quick=False)
    assert (row["benchmark"], row["bar"], row["verdict"]) == ("of_nothing", ENDED, "FAIL")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["exchange", "rpc", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("growth", "process"))]
)
def test_short_run_of_a_benchmark_completes(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--only", name, "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode in (0, 1), done.stderr
    rows = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    assert any("bar" in row for row in rows)
    assert not any(row.get("bar") == ENDED for row in rows), done.stdout
    assert (tmp_path / "report.md").exists()
    assert (tmp_path / "growth.svg").exists() == (name == "growth")


def test_real_ring_is_compared_with_a_static_one_of_equal_copies() -> None:
    def row(system: str, op: str, many: int, rate: float) -> Row:
        return Row(system, 8, op, many, rate, 1.0, 1.0, 1.0, 0, None, 1.0, 1.0, "", "")

    points = [(op, many) for op in ("put", "get") for many in (1, 32)]
    rows = [row(static.perfect(copies).name, *point, 1000.0 * copies) for copies in (1, 3) for point in points]
    rows += [row(static.real(1).name, *point, 500.0) for point in points]
    rows += [row(static.real(3).name, *point, 1401.0) for point in points[:3]]
    verdicts = [(bar["value"], bar["verdict"]) for bar in static.bars_of(rows)]
    assert verdicts[:4] == [(0.5, "PASS")] * 4
    assert verdicts[4:] == [(0.467, "FAIL")] * 3 + [(0.0, "FAIL")], "a bar without a measurement is missed"
    assert all(bar["verdict"] == "FAIL" for bar in static.bars_of(rows[8:])), "a bar without a counterpart is missed"


@pytest.mark.parametrize("words", [("--nodes", "2"), ("--seconds", "-1"), ("--rounds", "0"), ("--nodes", "0")])
def test_invalid_sizes_of_rings_are_refused(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch,
                                                           capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    monkeypatch.setattr("sys.argv", ["static", *words])
    with pytest.raises(SystemExit, match="2"):
        static.main()
    assert "error:" in capsys.readouterr().err

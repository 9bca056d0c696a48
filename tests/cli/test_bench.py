"""`chord bench`: measurements, verdicts, errors, and the removal of its keys."""

from __future__ import annotations

import math
import signal
import subprocess
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import trio

import chord
from chord.cli.bench import _row
from chord.cli.bench_run import IN_VAIN_MAX, TURNS, Bench, BenchOperation, BenchPlan, Measured, operations
from chord.errors import ChordError, OwnerDown, QuorumFailed
from chord.wire.messages import Get, Lookup, Ping, Put, PutMany, Written
from tests.support.cli import CannedRing, Run
from tests.support.fake_node import Answer, Heard
from tests.support.real_rings import CHORD, HANG_S, environment, interruptible

pytestmark = pytest.mark.slow

LINES = 12
FAST_S, SLOW_S = 0.001, 1.0


@pytest.fixture(autouse=True)
def _three_copies(canned: CannedRing) -> None:
    canned.change = lambda point, node: msgspec.structs.replace(node, replicas=3)


class Clock:
    """The clock of the measurement: each request to the canned ring takes a fixed time.

    So a ratio does not depend on the machine.
    """

    def __init__(self, canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.slow: type | None = None
        canned.override = self._take
        monkeypatch.setattr("chord.cli.bench_run.time", SimpleNamespace(perf_counter=lambda: self.now))

    def _take(self, point: int, heard: Heard) -> None:
        is_slow = self.slow is not None and isinstance(heard.request, self.slow)
        self.now += SLOW_S if is_slow else FAST_S


@pytest.fixture
def clock(canned: CannedRing, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(canned, monkeypatch)


def test_bench_measures_everything_and_leaves_nothing(run: Run, canned: CannedRing) -> None:
    ended = run("bench", "--ops", "40", "--json")
    shape = ended.json("bench")
    assert (ended.code, canned.values) == (0, {})
    assert [(row["op"], row["quorum"], row["at_once"], row["ops"], row["errors"]) for row in shape["rows"]] == [
        (op, quorum, at_once, 40, 0)
        for op, quorum in (
            ("ping", None), ("get", 1), ("get", 2), ("put, context", 2), ("put", 2), ("lookup", None),
        )
        for at_once in (1, 32)
    ]  # fmt: skip
    assert (shape["ops"], shape["seconds"], shape["left_behind"], shape["interrupted"]) == (40, None, 0, False)
    assert shape["rows"][0]["round_trips"] == 1.0
    bounds = {(row["op"], row["quorum"]): row["round_trips_max"] for row in shape["rows"] if row["at_once"] == 1}
    assert bounds == {
        ("ping", None): None, ("get", 1): 8.0, ("get", 2): 12.0, ("put, context", 2): 20.0, ("put", 2): 25.0,
        ("lookup", None): 12.0,
    }  # fmt: skip
    assert all(row["round_trips"] is None for row in shape["rows"] if row["at_once"] == 32)


def test_bench_prints_a_table_and_reads_with_the_given_quorum(run: Run, canned: CannedRing) -> None:
    asked: set[tuple[type, int]] = set()

    def override(point: int, heard: Heard) -> None:
        if heard.stream == "control" and isinstance(heard.request, Get | Put):
            quorum = heard.request.r if isinstance(heard.request, Get) else heard.request.w
            asked.add((type(heard.request), quorum))

    canned.override = override
    ended = run("bench", "--seconds", "0.05", "--r", "3", "--w", "1", "--bytes", "0")
    assert ended.code == 0
    head, *lines = ended.out.splitlines()
    assert head.split("\t")[:3] == ["what", "at once", "ops/s"]
    assert [line.split("\t")[0] for line in lines[::2]] == [
        "ping", "get, R=1", "get, R=3", "put, context, W=1", "put, W=1", "lookup",
    ]  # fmt: skip
    assert "7 nodes, N=3, values of 0 bytes" in ended.err
    assert asked == {(Get, 1), (Get, 3), (Put, 1)}


def test_bounds_are_met_or_missed(run: Run, canned: CannedRing, clock: Clock) -> None:
    clock.slow = Ping
    ended = run("bench", "--ops", "5", "--json", "--strict")
    assert (ended.code, ended.json("bench")["verdict"]) == (0, "PASS")
    clock.slow = Get
    ended = run("bench", "--ops", "5", "--json")
    assert (ended.code, ended.json("bench")["verdict"]) == (0, "FAIL"), "missed bounds only fail with --strict"
    missed = [row["verdict"] for row in ended.json("bench")["rows"] if row["op"] == "get" and row["at_once"] == 1]
    assert missed == ["FAIL", "FAIL"]
    assert run("bench", "--ops", "5", "--strict").code == 8
    assert canned.values == {}


@pytest.mark.parametrize(
    ("gets_ms", "verdict"),
    [([8.0, 8.0, 8.0, 8.0], "PASS"), ([9.0, 9.0, 9.0, 9.0], "FAIL"), ([1.0, 99.0, 99.0, 99.0], "PASS")],
)
def test_bound_is_missed_if_three_of_four_operations_are_slow(gets_ms: list[float], verdict: str) -> None:
    ping, get = Measured(BenchOperation("ping", 0, 1)), Measured(BenchOperation("get", 1, 1))
    ping.took_s, get.took_s = [0.0001, 0.0005, 0.001, 0.02], [took / 1000 for took in gets_ms]
    assert _row(get, ping, has_disks=False).verdict == verdict


def test_node_that_does_not_answer_makes_the_verdict_fail(run: Run, canned: CannedRing) -> None:
    canned.nodes[200].close()
    ended = run("bench", "--ops", "2", "--json")
    shape = ended.json("bench")
    assert (shape["verdict"], shape["unreachable"]) == ("FAIL", [canned.addresses[200]])
    assert "does not answer" in run("bench", "--ops", "2").err


def test_puts_on_disks_have_no_bound(run: Run, canned: CannedRing, clock: Clock) -> None:
    canned.change = lambda point, node: msgspec.structs.replace(node, has_data_dir=point == 80, replicas=3)
    clock.slow = Put
    shape = run("bench", "--ops", "2", "--json").json("bench")
    assert shape["on_disk"] is True
    assert {row["verdict"] for row in shape["rows"] if row["op"].startswith("put")} == {None}


def test_errors_are_counted_and_the_verdict_is_fail(run: Run, canned: CannedRing) -> None:
    failures = [OwnerDown("down")] * 3

    def override(point: int, heard: Heard) -> Answer | ChordError | None:
        return failures.pop() if isinstance(heard.request, Lookup) and failures else None

    canned.override = override
    ended = run("bench", "--ops", "10", "--json", "--strict")
    shape = ended.json("bench")
    assert (ended.code, shape["verdict"]) == (8, "FAIL")
    rows = [row for row in shape["rows"] if row["op"] == "lookup"]
    assert (sum(row["ops"] for row in rows), sum(row["errors"] for row in rows)) == (17, 3)
    assert sum(row["error_codes"].get("owner_down", 0) for row in rows) == 3


def test_operation_that_always_fails_is_given_up(run: Run, canned: CannedRing) -> None:
    canned.override = lambda point, heard: OwnerDown("down") if isinstance(heard.request, Lookup) else None
    ended = run("bench", "--ops", "1000", "--keys", "32")
    assert ended.code == 0
    assert f"lookup, 1 at once: {IN_VAIN_MAX} times owner_down" in ended.err
    assert "FAIL" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seconds", "1", "--ops", "1"], "--seconds or --ops"),
        (["--seconds", "0"], "0.05"),
        (["--ops", "0"], "1<=x<=1000000"),
        (["--keys", "31"], "32<=x<=100000"),
        (["--bytes", str((1 << 20) + 1)], "0<=x<=1048576"),
        (["--preset", "xl"], "'s', 'm', 'l'"),
        (["--r", "4"], "--r 4 is more than can answer"),
        (["--w", "17"], "1<=x<=16"),
    ],
)
def test_invalid_argument_is_refused_before_anything_is_stored(
    run: Run, canned: CannedRing, arguments: list[str], words: str
) -> None:
    ended = run("bench", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert words in ended.err
    assert not any(isinstance(heard.request, Put | PutMany) for node in canned.nodes.values() for heard in node.heard)


def test_ring_that_refuses_every_put_is_an_error(run: Run, canned: CannedRing) -> None:
    canned.override = lambda point, heard: OwnerDown("down") if isinstance(heard.request, Put) else None
    ended = run("bench", "--json")
    assert ended.code == 6
    assert ended.failure("owner_down")["message"] == "down"


@pytest.mark.usefixtures("impatient")
def test_keys_that_cannot_be_deleted_are_named(run: Run, canned: CannedRing) -> None:
    def override(point: int, heard: Heard) -> Answer | ChordError | None:
        is_delete = isinstance(heard.request, Put) and heard.request.value is None
        return QuorumFailed("1 of 2") if is_delete and heard.request.key.endswith(b"/7") else None  # type: ignore[union-attr]

    canned.override = override
    ended = run("bench", "--ops", "1", "--keys", "32")
    assert ended.code == 6
    assert "1 key could not be deleted again (chord-bench/" in ended.err
    assert [key.endswith(b"/7") for key in canned.values] == [True]


def test_write_that_lands_after_its_delete_is_deleted_again(run: Run, canned: CannedRing) -> None:
    late: list[bytes] = []

    def override(point: int, heard: Heard) -> Answer | ChordError | None:
        request = heard.request
        if isinstance(request, Put) and request.value is None and not late:
            late.append(request.key)
            return Written(b"context", chord.wire.messages.Contact(chord.ids.Point(80), canned.addresses[80]))
        return None

    canned.override = override
    assert run("bench", "--ops", "1", "--keys", "32").code == 0
    assert (len(late), canned.values) == (1, {})


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_bench_deletes_its_keys_and_reports_it(canned: CannedRing, sent: signal.Signals) -> None:
    with interruptible():
        command = [*CHORD, "bench", "--preset", "m", "--keys", "64", "--json"]
        process = subprocess.Popen(
            command, env=environment(canned.entry), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    while not any(isinstance(heard.request, Ping) for heard in canned.nodes[80].heard):
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    assert canned.values
    process.send_signal(sent)
    out, err = process.communicate(timeout=HANG_S)
    assert (process.returncode, canned.values) == (130, {})
    assert '"interrupted": true' in out
    assert "interrupted; deleting the test keys" in err


def test_bench_on_real_nodes_leaves_nothing_and_has_no_conflicts() -> None:
    async def main() -> list[Any]:
        async with (
            chord.open_node(preset="local") as first,
            chord.open_node(join=[first.address], preset="local") as second,
        ):
            bench = Bench(BenchPlan(32, 0.2, None, 10, 2, 2), turns.append)
            await bench.run([second.address], 5.0)
            assert (bench.left_behind, bench.is_interrupted) == ([], False)
            assert all(measured.took_s and not measured.failed for measured in bench.measured)
            assert all(node._host.storage.sibling_keys == 0 for node in (first, second))
            return [pair async for pair in first.scan()]

    turns: list[int] = []
    assert trio.run(main) == []
    assert turns == list(range(1, TURNS * LINES + 1))


def test_percentiles_are_of_the_measured_operations() -> None:
    measured = Measured(BenchOperation("get", 1, 1))
    assert measured.percentile_ms(0.5) is None
    assert measured.per_s == 0
    measured.took_s, measured.busy_s = [number / 1000 for number in range(1000, 0, -1)], 10.0
    assert [measured.percentile_ms(share) for share in (0.0, 0.5, 0.99, 0.999, 1.0)] == [1, 500, 990, 999, 1000]
    assert measured.per_s == 100
    measured.took_s = [0.003, 0.001, 0.002]
    assert [measured.percentile_ms(share) for share in (0.33, 0.34, 0.5, 0.67)] == [1, 2, 2, 3]


def test_operation_in_two_plans_is_measured_once() -> None:
    names = [(op.name, op.quorum) for op in operations(BenchPlan(32, 1, None, 1, 1, 1))]
    assert names.count(("get", 1)) == 2, "once with one and once with many in flight"
    assert len(operations(BenchPlan(32, 1, None, 1, 2, 2))) == LINES


async def leave_it(self: Bench, client: object, timeout_s: float) -> None:
    return


PLANTED: dict[str, tuple[str, object, Callable[[Run, CannedRing], None]]] = {
    "it does not clean up": (
        "chord.cli.bench_run.Bench._clean_up", leave_it, test_bench_measures_everything_and_leaves_nothing,
    ),
    "it does not check that its keys are gone": (
        "chord.cli.bench_run.SWEEPS_MAX", 1, test_write_that_lands_after_its_delete_is_deleted_again,
    ),
    "bounds are forgotten": (
        "chord.cli.bench_run.ROUND_TRIPS_MAX", {},
        lambda run, canned: test_bench_measures_everything_and_leaves_nothing(run, canned),
    ),
    "a percentile too low": (
        "chord.cli.bench_run.math.ceil", math.floor,
        lambda run, canned: test_percentiles_are_of_the_measured_operations(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_in_bench_is_caught(
    name: str, run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, bug, test = PLANTED[name]
    monkeypatch.setattr(place, bug)
    with pytest.raises((AssertionError, SystemExit)):
        test(run, canned)

"""Histories: the format, the recorder, and each checker on histories with a known verdict."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from chord.verify.history import graph
from chord.verify.history.acknowledged import check_acknowledged
from chord.verify.history.check import check, check_search
from chord.verify.history.format import LINE_BYTES_MAX, BadHistory, Operation, decode, encode, read
from chord.verify.history.graph import anomalies, check_graph
from chord.verify.history.recorder import Recorder
from chord.verify.history.search import search
from chord.verify.history.shrink import shrink
from tests.support.histories import history, is_explained, op, registers

INVENTED = {"c": 1, "k": "k", "f": "put", "a": "v", "st": "ok", "t0": 0, "t1": 1}


# -- the format ---------------------------------------------------------------------------------------


def test_history_line_is_an_operation() -> None:
    line = b'{"c":"c1","k":"k","f":"cas","a":[null,7],"v":null,"st":"ok","t0":1,"t1":2.5,"note":"mine"}'
    assert decode(line, 3) == Operation(3, "c1", "k", "cas", "ok", 1.0, 2.5, None, 7)


@pytest.mark.parametrize(
    "operation",
    [
        op("put", 0, 1, "ü\n"), op("put", 0, None, -3, "unknown"), op("del", 0, 1, None, "fail"), op("get", 0, 1),
        op("get", 0.1, 0.30000000000000004, "a"), op("get", 0, 1, ("a", 2)), op("get", 0, None, None, "unknown"),
        op("cas", 0, 1, (None, "b")), op("cas", 0, 1, ("a", "b"), "fail"), op("put", 0, 1, 1 << 70, key=7, client=8),
    ],
)
def test_operation_survives_encoding_as_a_line(operation: Operation) -> None:
    assert decode(encode(operation), operation.line) == operation


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"t0": None}, "$.t0"), ({"t0": "0"}, "$.t0"), ({"c": 1.5}, "$.c"), ({"f": "append"}, "append"),
        ({"st": "okay"}, "okay"),
        ({"t1": -1}, '"t1" is before "t0"'), ({"t1": None}, '"t1" must be a number'), ({"t1": "2"}, "$.t1"),
        ({"a": None}, "the value"), ({"a": ["x", "y"]}, "the value"), ({"a": True}, "$.a"), ({"a": 1.5}, "$.a"),
        ({"v": "x"}, "only a get"), ({"f": "cas"}, "[old, new]"), ({"f": "cas", "a": ["x", None]}, "$.a"),
        ({"f": "del"}, "no arguments"), ({"f": "get", "v": "x"}, "no arguments"),
        ({"f": "get", "a": None}, "has a"), ({"f": "get", "a": None, "v": 1, "vs": [1, 2]}, "not both"),
        ({"f": "get", "a": None, "vs": [1]}, "two or more"), ({"f": "get", "a": None, "vs": [1, 1]}, "two or more"),
        ({"f": "get", "a": None, "v": "x", "st": "unknown"}, "only a get"), ({"k": None}, "$.k"),
    ],
)
def test_invalid_operation_is_refused_with_its_line_and_reason(change: dict[str, Any], why: str) -> None:
    lines = [json.dumps(INVENTED), "", json.dumps({**INVENTED, **change})]
    with pytest.raises(BadHistory) as caught:
        list(read(line.encode() for line in lines))
    assert caught.value.line == 3
    assert why in caught.value.why


RUBBISH = [b"{", b"[]", b"null", b"\xff", b"[" * 10000, b'{"t0":1e999}', b"x" * (LINE_BYTES_MAX + 1)]


@pytest.mark.parametrize("line", RUBBISH, ids=lambda line: repr(line[:8]))
def test_line_without_valid_json_is_refused(line: bytes) -> None:
    with pytest.raises(BadHistory):
        list(read([line]))


def test_history_beyond_its_size_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chord.verify.history.format.OPERATIONS_MAX", 2)
    line = json.dumps(INVENTED).encode()
    assert len(list(read([line, b" ", line]))) == 2
    with pytest.raises(BadHistory, match="line 3: a history has at most 2"):
        list(read([line] * 3))


def test_recorder_writes_each_operation_when_it_ends() -> None:
    now = [100.0]
    lines: list[bytes] = []
    recorder = Recorder(clock=lambda: now[0], write=lines.append)
    put = recorder.put("c", "k", "v")
    cas = recorder.cas("c", "k", "v", "w")
    now[0] += 0.1
    get = recorder.get("d", "k")
    get.ok("v", "w")
    assert len(lines) == 1
    now[0] += 0.2
    put.ok()
    cas.fail()
    recorder.delete("e", "k").unknown()
    recorder.get("e", "k").ok()
    lost = recorder.put("e", "k", "x")
    recorder.finish()
    recorder.finish()
    assert list(read(lines)) == history(
        op("get", 0.1, 0.1, ("v", "w"), client="d"),
        op("put", 0, 0.3, "v"),
        op("cas", 0, 0.3, ("v", "w"), "fail"),
        op("del", 0.3, 0.3, None, "unknown", client="e"),
        op("get", 0.3, 0.3, client="e"),
        op("put", 0.3, None, "x", "unknown", client="e"),
    )
    with pytest.raises(RuntimeError):
        lost.ok()
    with pytest.raises(ValueError):
        recorder.put("c", "k", "v").ok("v")


# -- the register model: known histories -----------------------------------------------------------------

GOOD: dict[str, list[Operation]] = {
    "one after another": history(
        op("put", 0, 1, "a"), op("get", 2, 3, "a"), op("put", 4, 5, "b"), op("get", 6, 7, "b")
    ),
    "nothing was there": history(op("get", 0, 1), op("put", 2, 3, "a"), op("get", 4, 5, "a")),
    "concurrent, either order": history(
        op("put", 0, 9, "a"), op("put", 0, 9, "b"), op("get", 1, 2, "b"), op("get", 3, 4, "a")
    ),
    "a read that overlaps the write sees it or not": history(
        op("put", 0, 9, "a"), op("get", 1, 2), op("get", 3, 4, "a")
    ),
    "ends as the other begins": history(op("put", 0, 1, "a"), op("get", 1, 2)),
    "unknown, and appears later": history(
        op("put", 0, 1, "a", "unknown"), op("put", 2, 3, "b"), op("get", 4, 5, "b"), op("get", 6, 7, "a")
    ),
    "unknown, and never appears": history(op("put", 0, 1, "a", "unknown"), op("get", 2, 3), op("get", 8, 9)),
    "two unknown, one through the other": history(
        op("cas", 0, None, ("a", "b"), "unknown"), op("put", 0, None, "a", "unknown"), op("get", 2, 3, "b")
    ),
    "of two unknown, the one that will still be needed comes later": history(
        op("put", 0, 1, "x"), op("put", 0, 1, "b", "unknown"), op("cas", 0.5, 1, ("x", "b"), "unknown"),
        op("cas", 2, 3, ("b", "y")), op("put", 4, 5, "z"), op("get", 6, 7, "b"),
    ),
    "an unknown read tells nothing": history(op("put", 0, 1, "a"), op("get", 2, 3, None, "unknown")),
    "a failed write is not there": history(op("put", 0, 1, "a", "fail"), op("get", 2, 3)),
    "cas on cas": history(
        op("cas", 0, 9, (None, "a")), op("cas", 0, 9, ("a", "b")), op("get", 1, 2, "a"), op("get", 3, 4, "b")
    ),
    "deleted": history(op("put", 0, 1, "a"), op("get", 2, 3, "a"), op("del", 4, 5), op("get", 6, 7)),
    "the same value again": history(
        op("put", 0, 1, "a"), op("put", 2, 3, "b"), op("put", 4, 5, "a"), op("get", 6, 7, "a")
    ),
    "an unknown delete": history(
        op("put", 0, 1, "a"), op("del", 2, 3, None, "unknown"), op("get", 4, 5, "a"), op("get", 6, 7)
    ),
}

BAD: dict[str, list[Operation]] = {
    "stale read": history(op("put", 0, 1, "a"), op("put", 2, 3, "b"), op("get", 4, 5, "a")),
    "acknowledged write denied": history(op("put", 0, 1, "a"), op("get", 2, 3)),
    "reads go back": history(
        op("put", 0, 9, "a"), op("put", 0, 9, "b"), op("get", 1, 2, "a"), op("get", 3, 4, "b"), op("get", 5, 6, "a")
    ),
    "seen, then not yet there": history(op("put", 0, 9, "a"), op("get", 1, 2, "a"), op("get", 3, 4)),
    "read from the future": history(op("get", 0, 1, "a"), op("put", 2, 3, "a")),
    "never written": history(op("put", 0, 1, "a"), op("get", 2, 3, "b")),
    "failed, and was read": history(op("put", 0, 1, "a", "fail"), op("get", 2, 3, "a")),
    "lost update": history(
        op("put", 0, 1, "a"), op("cas", 2, 9, ("a", "b")), op("cas", 2, 9, ("a", "c")), op("get", 10, 11, "c")
    ),
    "cas saw the future": history(op("cas", 0, 1, ("a", "b")), op("put", 2, 3, "a")),
    "cas saw a value that was never written": history(op("cas", 0, 1, ("a", "b"))),
    "cas saw itself": history(op("cas", 0, 1, ("a", "a"))),
    "cas in a circle": history(op("cas", 0, 9, ("a", "b")), op("cas", 0, 9, ("b", "a"))),
    "cas on a value that is gone": history(op("put", 0, 1, "a"), op("put", 2, 3, "b"), op("cas", 4, 5, ("a", "c"))),
    "something between the two halves of a cas": history(
        op("put", 0, 1, "a"), op("put", 2, 9, "b"), op("get", 4, 5, "b"), op("get", 6, 7, "a"),
        op("cas", 6, 9, ("a", "c")),
    ),
    "cas seen in the other order": history(
        op("put", 0, 9, "a"), op("cas", 0, 9, ("a", "b")), op("get", 1, 2, "b"), op("get", 3, 4, "a")
    ),
    "two cas, the second seen first": history(
        op("put", 0, 1, "a"), op("cas", 0, 9, ("a", "b")), op("cas", 0, 9, ("b", "c")), op("get", 4, 5, "c"),
        op("get", 6, 7, "b"),
    ),
    "unknown cas seen in the other order": history(
        op("put", 0, 1, "a"), op("cas", 0, None, ("a", "b"), "unknown"), op("get", 2, 3, "b"), op("get", 4, 5, "a")
    ),
    "several at once": history(op("put", 0, 1, "a"), op("put", 0, 1, "b"), op("get", 2, 3, ("a", "b"))),
    "unknown, seen and gone again": history(
        op("put", 0, 1, "a"), op("put", 0, None, "b", "unknown"), op("get", 2, 3, "b"), op("get", 4, 5, "a")
    ),
    "read after its delete": history(op("put", 0, 1, "a"), op("del", 2, 3), op("get", 4, 5, "a")),
    "deleted before there was a delete": history(op("put", 0, 1, "a"), op("get", 2, 3), op("del", 4, 5)),
}


@pytest.mark.parametrize("name", GOOD)
def test_linearizable_history_passes(name: str) -> None:
    assert is_explained(GOOD[name])
    assert check_graph("k", GOOD[name]).verdict in ("ok", "partial")
    assert check_search("k", GOOD[name]).verdict == "ok"
    assert check(GOOD[name]).verdict == "ok"


@pytest.mark.parametrize("name", BAD)
def test_history_that_is_not_linearizable_is_a_violation(name: str) -> None:
    assert not is_explained(BAD[name])
    for result in (check_graph("k", BAD[name]), check_search("k", BAD[name])):
        assert result.verdict == "violation"
        assert result.findings
        assert all(finding.steps for finding in result.findings)


def test_search_decides_a_partial_graph_of_repeated_values() -> None:
    stale = history(op("put", 0, 1, "a"), op("put", 2, 3, "a"), op("put", 4, 5, "b"), op("get", 6, 7, "a"))
    report = check(stale)
    assert [result.verdict for result in report.results] == ["partial", "violation"]
    assert report.verdict == "violation"


def test_graph_names_the_cycle_with_the_reason_of_each_edge() -> None:
    rows = [*BAD["reads go back"], op("put", 20, 21, "z"), op("get", 22, 23, "z"), op("get", 0, 0)]
    [finding] = check_graph("k", history(*rows)).findings
    assert [(step.operation.line, step.why) for step in finding.steps] == [
        (3, "ended before line 4 began"),
        (4, "ended before line 5 began"),
        (5, "saw what line 3 saw, written in line 1"),
    ]


def test_graph_names_one_write_of_a_stale_read() -> None:
    """A stale read is in a cycle with each later write. The finding needs only one of them."""
    puts = [op("put", i, i + 0.5, i) for i in range(20)]
    [finding] = check_graph("k", history(*puts, op("get", 30, 31, 3))).findings
    assert len(finding.steps) == 3


def test_search_names_few_operations_of_many() -> None:
    """A thousand valid operations with one stale read in the middle."""
    calm = registers(random.Random(3), 1000, clients=5, dels=False, cas=False)
    t, line = calm[500].start_s, 10_000
    stale = [op("put", t, t + 0.1, "x", line=line), op("get", t + 400, t + 401, "x", line=line + 1)]
    result = check_search("k", [*calm, *stale])
    [finding] = result.findings
    named = [step.operation for step in finding.steps]
    assert len(named) <= 4
    assert {line, line + 1} <= {o.line for o in named}
    assert not is_explained(named)


@pytest.mark.parametrize("name", BAD)
def test_operations_named_by_the_search_are_a_minimal_violation(name: str) -> None:
    [finding] = check_search("k", BAD[name]).findings
    named = [step.operation for step in finding.steps]
    assert not is_explained(named)
    assert all(is_explained([o for o in named if o is not left_out]) for left_out in named if not left_out.is_write)


def test_check_keeps_keys_apart() -> None:
    puts = [op("put", 0, 1, "a", key=1), op("put", 2, 3, "b", key=2)]
    report = check(history(*puts, op("get", 4, 5, "a", key=1), op("get", 4, 5, "a", key="1")))
    assert {(f.key, f.checker) for f in report.findings} == {("1", "graph"), ("1", "search")}
    assert report.keys == 3


def test_search_beyond_its_steps_is_undecided_unlike_the_graph() -> None:
    puts = [op("put", 3 * i, 3 * i + 1, i) for i in range(9)]
    distinct = history(*puts, *(op("get", 3 * i + 1, 3 * i + 2, i) for i in range(9)))
    assert search(distinct, 2).verdict == "undecided"
    assert check(distinct, steps_max=2).verdict == "ok", "the graph is exact here"
    repeated = [*distinct, op("put", 50, 51, 3, line=90), op("get", 52, 53, 3, line=91)]
    report = check(repeated, steps_max=2)
    assert (report.verdict, report.undecided) == ("undecided", ["k"])
    assert check(repeated).verdict == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(("operations", "clients", "keys", "steps_max"), [(10_000, 20, 100, 200), (1000, 5, 1, 2000)])
def test_search_of_large_histories_takes_few_steps(operations: int, clients: int, keys: int, steps_max: int) -> None:
    for seed in range(3):
        report = check(registers(random.Random(seed), operations, clients, keys, unknown=0.05))
        assert report.verdict == "ok"
        assert max(result.steps for result in report.results) <= steps_max


def test_check_reports_its_progress() -> None:
    progress: list[int] = []
    check(registers(random.Random(1), 50, keys=5), on_progress=progress.append)
    assert len(progress) == 5
    assert progress[-1] == 50


def test_shrink_keeps_the_property_and_stops_at_trials_max() -> None:
    rows = history(*(op("get", i, i, None) for i in range(100)))

    def holds_30_and_60(some: Any) -> bool:
        return {30, 60} <= {o.line for o in some}

    assert [o.line for o in shrink(rows, holds_30_and_60)] == [30, 60]
    assert len(shrink(rows, holds_30_and_60, trials_max=1)) in range(50, 101)


# -- anomalies: the reads that a linearizable store would have answered differently ------------------------

A_B = (op("put", 0, 1, "a"), op("put", 2, 5, "b"))
ANOMALIES: dict[str, tuple[list[Operation], list[int]]] = {
    "fresh": (history(*A_B, op("get", 6, 7, "b")), []),
    "a newer write has ended": (history(*A_B, op("get", 6, 7, "a")), [3]),
    "a newer write ends as the read begins": (history(*A_B, op("get", 5, 6, "a")), []),
    "a newer write is in progress": (history(*A_B, op("get", 3, 9, "a")), []),
    "a newer value was read before": (history(*A_B, op("get", 3, 3.5, "b"), op("get", 4, 4.5, "a")), [4]),
    "a newer value is read at the same time": (history(*A_B, op("get", 3, 4, "b"), op("get", 4, 4.5, "a")), []),
    "nothing is found": (history(*A_B, op("get", 1.5, 1.7), op("get", -1, 0)), [3]),
    "a write without an answer was read": (
        history(op("put", 0, 1, "a"), op("put", 2, None, "b", "unknown"), op("get", 3, 4, "b"), op("get", 5, 6, "a")),
        [4],
    ),
    "a write without an answer was not read": (
        history(op("put", 0, 1, "a"), op("put", 2, None, "b", "unknown"), op("get", 5, 6, "a")), []
    ),
    "a read that failed": (history(*A_B, op("get", 6, 7, None, "fail")), []),
    "the writes overlap": (history(op("put", 0, 5, "b"), op("put", 0, 6, "a"), op("get", 5.5, 7, "a")), [3]),
}  # fmt: skip


def lines_of(operations: list[Operation]) -> list[int]:
    return [operation.line for operation in operations]


@pytest.mark.parametrize("name", ANOMALIES)
def test_anomalies_are_the_reads_that_came_too_late(name: str) -> None:
    operations, lines = ANOMALIES[name]
    assert lines_of(anomalies(operations, "ab")) == lines


def test_planted_graph_without_merged_reads_misses_an_anomaly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "heappush", lambda heap, item: None)
    missed = [name for name, (operations, lines) in ANOMALIES.items() if lines_of(anomalies(operations, "ab")) != lines]
    assert missed == ["a newer value was read before", "a write without an answer was read"]


def test_anomalies_of_an_unknown_value_are_refused() -> None:
    with pytest.raises(KeyError):
        anomalies(history(op("get", 0, 1, "c")), "ab")
    with pytest.raises(ValueError):
        anomalies(history(op("get", 0, 1, ("a", "b"))), "ab")


@pytest.mark.parametrize("seed", range(20))
def test_history_without_its_anomalies_is_linearizable(seed: int) -> None:
    """Reads lag behind the writes at random. Each anomaly alone makes the rest a violation."""
    rng = random.Random(seed)
    puts = [op("put", n - rng.random() / 2, n + rng.random() / 2, n) for n in range(1, 40)]
    gets = []
    for _ in range(60):
        at, lag = rng.uniform(1, 40), rng.expovariate(1)
        gets.append(op("get", at - rng.random(), at + rng.random(), max(0, int(at - lag)) or None))
    operations = history(*puts, *gets)
    odd = anomalies(operations, range(1, 40))
    kept = [operation for operation in operations if operation not in odd]
    assert odd
    assert check_graph("k", kept).verdict == "ok"
    assert all(check_graph("k", [*kept, read]).verdict == "violation" for read in odd)


# -- acknowledged: the promises of an eventually consistent store ----------------------------------------


@pytest.mark.parametrize(
    ("rows", "is_good"),
    [
        (BAD["stale read"], True),
        (BAD["several at once"], True),
        (BAD["reads go back"], True),
        (BAD["acknowledged write denied"], False),
        (BAD["never written"], False),
        (BAD["failed, and was read"], False),
        (BAD["read from the future"], False),
        (BAD["deleted before there was a delete"], False),
        (GOOD["deleted"], True),
        (GOOD["an unknown delete"], True),
        (GOOD["ends as the other begins"], True),
        (GOOD["unknown, and never appears"], True),
        (history(op("put", 0, 1, "a"), op("del", 1, 2, None, "fail"), op("get", 3, 4)), False),
        (history(op("cas", 0, 1, (None, "a")), op("get", 3, 4)), False),
        (history(op("put", 0, 1, "a", "fail"), op("put", 0, 1, "a", "unknown"), op("get", 3, 4, "a")), True),
        (history(op("put", 6, 7, "a"), op("put", 0, 1, "a"), op("get", 2, 3, "a")), True),
        (history(op("put", 0, 1, "a"), op("get", 2, 5), op("del", 3, 4)), True),
        (history(op("put", 0, 1, "a"), op("get", 2, 3, ("a", "b"))), False),
        (history(op("del", 0, 1), op("put", 2, 3, "a"), op("get", 4, 5)), True),
        (history(op("put", 0, 1, "a"), op("get", 2, 3, None, "unknown")), True),
    ],
)
def test_check_acknowledged_finds_only_its_violations(rows: list[Operation], is_good: bool) -> None:
    assert check_acknowledged("k", rows).verdict == ("ok" if is_good else "violation")
    assert check(rows, "acknowledged").verdict == ("ok" if is_good else "violation")


# -- planted faults in a store ----------------------------------------------------------------------------


def stale_replica(held: list[Any], rng: random.Random) -> Any:
    """Read a copy that may be one write behind."""
    return held[-2] if rng.random() < 0.1 else held[-1]


def forgetful_replica(held: list[Any], rng: random.Random) -> Any:
    """Read a copy that may have lost the value."""
    return None if rng.random() < 0.1 else held[-1]


def inventive_replica(held: list[Any], rng: random.Random) -> Any:
    """Read a copy that may return bytes that were never written."""
    return "rubbish" if rng.random() < 0.1 else held[-1]


def sound_replica(held: list[Any], rng: random.Random) -> Any:
    """Read the last written value."""
    return held[-1]


def history_of(replica: Callable[[list[Any], random.Random], Any], seed: int) -> list[Operation]:
    """Return a history of sequential clients of a store that reads from a replica."""
    rng = random.Random(seed)
    held: list[Any] = [None, 0]
    rows = [op("put", 0, 0.5, 0)]
    for t in range(1, 100):
        if rng.random() < 0.3:
            held.append(t)
            rows.append(op("put", t, t + 0.5, t))
        else:
            rows.append(op("get", t, t + 0.5, replica(held, rng)))
    return history(*rows)


@pytest.mark.parametrize(
    ("replica", "is_linearizable", "is_as_acknowledged"),
    [
        (sound_replica, True, True),
        (stale_replica, False, True),
        (forgetful_replica, False, False),
        (inventive_replica, False, False),
    ],
)
def test_planted_faults_of_a_store_are_caught(
    replica: Callable[[list[Any], random.Random], Any], is_linearizable: bool, is_as_acknowledged: bool
) -> None:
    for seed in range(5):
        recorded = history_of(replica, seed)
        assert {r.verdict for r in check(recorded).results} == {"ok" if is_linearizable else "violation"}
        assert (check(recorded, "acknowledged").verdict == "ok") is is_as_acknowledged

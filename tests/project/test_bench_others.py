"""The comparison with other systems: its loop, its rows, and its verdicts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from benchmarks.others import __main__ as command
from benchmarks.others import table
from benchmarks.others.loop import (
    ERROR_CHARS_MAX,
    ERRORS_KEPT_MAX,
    VALUE_BYTES,
    Batch,
    OnAsyncio,
    OnTrio,
    percentile,
    run_batch,
    value_of,
)
from benchmarks.others.systems import NAMES, OURS, SYSTEMS
from benchmarks.others.turns import Measured, Outcome

ROOT = Path(__file__).parents[2]
KEYS = [f"key-{i}" for i in range(30)]


class Memory:
    """A system in a dictionary, into which subclasses plant faults."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}
        self.in_flight = self.most_in_flight = 0

    async def put(self, key: str, value: bytes) -> None:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await self.pause()
        self.in_flight -= 1
        self.keep(key, value)

    async def get(self, key: str) -> bytes | None:
        await self.pause()
        return self.stored.get(key)

    async def pause(self) -> None:
        await trio.lowlevel.checkpoint()

    def keep(self, key: str, value: bytes) -> None:
        self.stored[key] = value


async def batch(client: Any, op: str, keys: list[str] = KEYS, **how: Any) -> Batch:
    settings: dict[str, Any] = {"concurrency": 4, "seconds": 60.0, "deadline_s": 60.0, **how}
    return await run_batch(OnTrio(), client, op, keys, **settings)


# -- the loop -----------------------------------------------------------------------------------------


async def test_correct_system_has_no_errors() -> None:
    client = Memory()
    for op in ("put", "get"):
        found = await batch(client, op)
        assert (found.op, found.errors, found.wrong, found.why) == (op, 0, 0, [])
        assert sorted(found.done) == sorted(KEYS)
        assert len(found.latencies_s) == len(KEYS)
        assert 0 < max(found.latencies_s) <= found.took_s


def test_correct_asyncio_system_has_no_errors() -> None:
    class OnFiles(Memory):
        async def pause(self) -> None:
            await asyncio.sleep(0)

    async def main() -> None:
        client = OnFiles()
        for op in ("put", "get"):
            found = await run_batch(OnAsyncio(), client, op, KEYS, concurrency=4, seconds=60, deadline_s=60)
            assert (sorted(found.done), found.errors) == (sorted(KEYS), 0)
        assert client.most_in_flight == 4

    asyncio.run(main())


async def test_concurrency_is_the_number_in_flight() -> None:
    for concurrency in (1, 7, 30):
        client = Memory()
        await batch(client, "put", concurrency=concurrency)
        assert client.most_in_flight == concurrency


async def test_planted_lost_write_is_an_error() -> None:
    class Loses(Memory):
        def keep(self, key: str, value: bytes) -> None:
            if int(key.rpartition("-")[2]) % 3:
                super().keep(key, value)

    client = Loses()
    assert (await batch(client, "put")).errors == 0
    found = await batch(client, "get")
    assert (found.errors, found.wrong, len(found.done)) == (10, 10, 20)
    assert found.why == ["LookupError: nothing is there"] * ERRORS_KEPT_MAX


async def test_planted_value_of_another_key_is_an_error() -> None:
    class Confuses(Memory):
        def keep(self, key: str, value: bytes) -> None:
            super().keep(key, value_of("key-0"))

    client = Confuses()
    await batch(client, "put")
    found = await batch(client, "get")
    assert (found.errors, found.done, found.why[0]) == (29, ["key-0"], "LookupError: another value is there")


async def test_exception_of_a_system_is_counted_and_timed() -> None:
    class Refuses(Memory):
        def keep(self, key: str, value: bytes) -> None:
            raise RuntimeError("no " * 1000)

    found = await batch(Refuses(), "put")
    assert (found.errors, found.done, found.wrong) == (30, [], 0)
    assert len(found.latencies_s) == 30
    assert [len(why) for why in found.why] == [ERROR_CHARS_MAX] * ERRORS_KEPT_MAX


@pytest.mark.parametrize("engine", ["trio", "asyncio"])
def test_hanging_system_does_not_hang_the_run(engine: str) -> None:
    class Hangs:
        async def put(self, key: str, value: bytes) -> None:
            if engine == "trio":
                await trio.sleep_forever()
            await asyncio.Event().wait()

        async def get(self, key: str) -> bytes | None:
            return None

    async def main() -> Batch:
        on = OnTrio() if engine == "trio" else OnAsyncio()
        return await run_batch(on, Hangs(), "put", KEYS[:4], concurrency=2, seconds=60, deadline_s=0.01)

    async def on_trio() -> Batch:
        with trio.fail_after(60):
            return await main()

    found = trio.run(on_trio) if engine == "trio" else asyncio.run(asyncio.wait_for(main(), 60))
    assert found.errors == 4
    assert found.why[0].startswith("TimeoutError")


async def test_operations_do_not_begin_after_the_deadline() -> None:
    assert len((await batch(Memory(), "put", seconds=0.0)).latencies_s) == 4, "one for each operation in flight"


def test_each_key_has_its_own_value() -> None:
    values = {value_of(f"key-{i}") for i in range(1000)}
    assert len(values) == 1000
    assert {len(value) for value in values} == {VALUE_BYTES}


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [(1, 0.5, 1), (1, 0.999, 1), (2, 0.5, 1), (3, 0.5, 2), (100, 0.99, 99), (101, 0.99, 100), (1000, 0.999, 999),
     (1001, 0.999, 1000), (10, 0.999, 10), (10, 1.0, 10), (10, 0.0001, 1), (10, 0.3, 3)],
)  # fmt: skip
def test_percentile_at_the_edges_is_in_the_sample(count: int, share: float, rank: int) -> None:
    assert percentile([float(i) for i in range(1, count + 1)], share) == rank


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0.0), ([1.0], 1.01)])
def test_percentile_of_no_values_is_an_error(values: list[float], share: float) -> None:
    with pytest.raises(ValueError):
        percentile(values, share)


# -- rows and verdicts --------------------------------------------------------------------------------

COLUMNS = [
    "system", "nodes", "op", "concurrency", "ops_per_s", "p50_ms", "p99_ms", "p999_ms", "errors", "hops_mean",
    "cpu_us_per_op", "rss_mb_per_node", "acknowledged_by", "version",
]  # fmt: skip


def one(system: str = OURS, nodes: int = 8, op: str = "put", many: int = 1, **values: Any) -> Measured:
    defaults: dict[str, Any] = {
        "ops_per_s": 100.0, "latencies_s": (0.001, 0.002, 0.003), "errors": 0, "cpu_us_per_op": 50.0, "hops": None,
        "rss_mb_per_node": 30.0, "why": (),
    }  # fmt: skip
    return Measured(key=(system, nodes, op, many), **{**defaults, **values})


def rows(*measured: Measured) -> list[table.Row]:
    return table.rows_of(measured, SYSTEMS, dict.fromkeys(NAMES, "1.2.3"))


def test_row_has_the_median_of_rounds_and_pooled_percentiles() -> None:
    rounds = [
        one(
            ops_per_s=rate, cpu_us_per_op=rate / 2, rss_mb_per_node=rate / 10, errors=1, hops=rate / 100,
            latencies_s=slow,
        )
        for rate, slow in ((100.0, (0.001,)), (900.0, (0.003,)), (200.0, (0.002, 0.5)))
    ]
    [row] = rows(*rounds)
    assert row == table.Row(
        OURS, 8, "put", 1, ops_per_s=200.0, p50_ms=2.0, p99_ms=500.0, p999_ms=500.0, errors=3, hops_mean=4.0,
        cpu_us_per_op=100.0, rss_mb_per_node=20.0, acknowledged_by=SYSTEMS[0].acknowledged_by, version="1.2.3",
    )  # fmt: skip
    assert list(json.loads(table.json_lines([row]))) == COLUMNS


def test_unknown_hops_are_null() -> None:
    assert json.loads(table.json_lines(rows(one("kademlia"))))["hops_mean"] is None


def all_points(system: str, **values: Any) -> list[Measured]:
    return [one(system, nodes, op, many, **values) for nodes in (8, 16) for op in ("put", "get") for many in (1, 32)]


def verdicts_of(ours: dict[str, Any], theirs: dict[str, Any], peer: str = "kademlia") -> dict[str, set[str]]:
    """Return the verdicts for each quantity, with one measured peer."""
    measured = [*all_points(OURS, **ours), *all_points(peer, **theirs)]
    bars = table.bars_of(Outcome(measured), rows(*measured), SYSTEMS, (8, 16), OURS)
    found: dict[str, set[str]] = {}
    for bar in bars:
        if bar.peer == peer:
            found.setdefault(f"{bar.quantity} at {bar.concurrency}", set()).add(bar.verdict)
        else:
            assert (bar.verdict, bar.value) == ("NOT MEASURED", None)
    return found


FAST = {"ops_per_s": 500.0, "latencies_s": (0.0005,) * 3, "cpu_us_per_op": 10.0}


def test_fast_system_meets_every_bar() -> None:
    assert set().union(*verdicts_of(FAST, {}).values()) == {"PASS"}
    assert set().union(*verdicts_of({**FAST, "ops_per_s": 300.0}, {}, "opendht").values()) == {"PASS"}
    assert set().union(*verdicts_of({**FAST, "ops_per_s": 100.1}, {}, "libp2p").values()) == {"PASS"}


@pytest.mark.parametrize(
    ("ours", "peer", "missed"),
    [
        ({"ops_per_s": 499.0}, "kademlia", {"rate at 32"}),
        ({"ops_per_s": 299.0}, "opendht", {"rate at 32"}),
        ({"ops_per_s": 100.0}, "libp2p", {"rate at 1", "rate at 32"}),
        ({"latencies_s": (0.0005, 0.002, 0.0025)}, "kademlia", {"p50 at 1", "p50 at 32"}),
        ({"latencies_s": (0.0005, 0.0005, 0.003)}, "kademlia",
         {"p99 at 1", "p99 at 32", "p99.9 at 1", "p99.9 at 32"}),
        ({"cpu_us_per_op": 50.0}, "kademlia", {"CPU at 1", "CPU at 32"}),
        ({"rss_mb_per_node": 30.1}, "kademlia", {"memory at 32"}),
        ({"errors": 1}, "kademlia", {"success at 1", "success at 32"}),
    ],
)  # fmt: skip
def test_each_bar_can_be_missed(ours: dict[str, Any], peer: str, missed: set[str]) -> None:
    found = verdicts_of({**FAST, **ours}, {}, peer)
    assert {name for name, verdicts in found.items() if verdicts == {"FAIL"}} == missed
    assert {verdict for name, verdicts in found.items() if name not in missed for verdict in verdicts} == {"PASS"}


def test_success_is_compared_as_a_share() -> None:
    three, six = (0.0001,) * 3, (0.0001,) * 6
    assert verdicts_of({**FAST, "errors": 2, "latencies_s": six}, {"errors": 1})["success at 1"] == {"PASS"}
    assert verdicts_of({**FAST, "errors": 1, "latencies_s": three}, {"errors": 1, "latencies_s": six})[
        "success at 1"
    ] == {"FAIL"}


def test_memory_is_compared_only_with_python_systems() -> None:
    measured = [*all_points(OURS), *all_points("opendht"), *all_points("redis"), *all_points("etcd")]
    bars = table.bars_of(Outcome(measured), rows(*measured), SYSTEMS, (8, 16), OURS)
    assert {bar.peer for bar in bars} == {"kademlia", "libp2p", "opendht"}
    assert {bar.peer for bar in bars if bar.quantity == "memory"} == {"kademlia", "libp2p"}
    assert len(bars) == 3 * 2 * 2 * 2 * 6 + 2 * 2


@pytest.mark.slow
def test_report_names_missed_bars_and_omitted_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OUT", tmp_path)
    measured = [*all_points(OURS, ops_per_s=50.0), *all_points("kademlia")]
    outcome = Outcome(measured, {("libp2p", 0): "cannot be installed here: no"}, dict.fromkeys(NAMES, "1"))
    found = rows(*measured)
    bars = table.bars_of(outcome, found, SYSTEMS, (8, 16), OURS)
    text = command.write(outcome, SYSTEMS, found, bars, "command")
    assert "×0.5 (bar: ×1)" in text
    assert "×0.5 (bar: ×5)" in text
    assert "NOT MEASURED" in text
    assert "Left out: libp2p: cannot be installed here: no" in text
    assert (tmp_path / "report.md").read_text() == text
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == len(found) == 16
    assert len((tmp_path / "bars.jsonl").read_text().splitlines()) == len(bars)
    assert (tmp_path / "others.svg").exists()
    first = json.loads((tmp_path / "rounds.jsonl").read_text().splitlines()[0])
    assert first == {
        "system": OURS, "nodes": 8, "op": "put", "concurrency": 1, "ops": 3, "errors": 0, "ops_per_s": 50.0,
        "cpu_us_per_op": 50.0, "why": [],
    }  # fmt: skip


@pytest.mark.slow
def test_report_without_measurements_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "OUT", tmp_path)
    bars = table.bars_of(Outcome(), [], SYSTEMS, (8,), OURS)
    assert {bar.verdict for bar in bars} == {"NOT MEASURED"}
    assert "0 met, 0 missed" in command.write(Outcome(), SYSTEMS, [], bars, "command")


def test_picture_states_its_finding() -> None:
    from benchmarks.others.plot import finding, span

    assert [span(ratios) for ratios in ([1.234], [0.5, 3.0, 2.0], [9.96, 270.4])] == ["1.2", "0.5–3", "10–270"]
    measured = [*all_points(OURS, ops_per_s=600.0), *all_points("kademlia"), one("kademlia", 8, "put", 32)]
    text = finding(rows(*measured), OURS, ("kademlia", "libp2p"))
    assert text == "With 32 operations in flight, chord does 6 × the puts and 6 × the gets of kademlia"
    assert finding([], OURS, ("kademlia",)) == "Nothing to compare with was measured"


# -- the references' protocols ------------------------------------------------------------------------


def test_etcd_client_speaks_its_protocol() -> None:
    from benchmarks.others.etcd import Channels, bytes_field, fields, varint

    assert varint(300) == b"\xac\x02"
    assert bytes_field(1, b"k") == b"\x0a\x01k"
    pair = bytes_field(1, b"k") + b"\x10\x96\x01" + bytes_field(5, b"v" * 200)
    reply = bytes_field(1, b"\x08\x01") + bytes_field(2, pair) + b"\x20\x01"
    assert [number for number, _ in fields(reply)] == [1, 2]

    class Channel:
        def unary_unary(self, method: str) -> Callable[[bytes], Any]:
            async def call(request: bytes) -> bytes:
                return reply if request.endswith(b"k") else b"\x20\x00"

            return call

    client = Channels([Channel()])
    assert trio.run(client.get, "k") == b"v" * 200
    assert trio.run(client.get, "other") is None


def test_redis_client_speaks_its_protocol() -> None:
    from benchmarks.others.redis import Connections

    async def main() -> None:
        answers = [b"+OK\r\n", b"$3\r\na\r\n\r\n", b"$-1\r\n", b"-ERR no\r\n"]
        asked = []
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(4096):
                asked.append(data)
                writer.write(answers[len(asked) - 1])
            writer.close()
            await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        client = Connections("127.0.0.1", server.sockets[0].getsockname()[1])
        await client.put("k", b"value")
        assert asked == [b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n"]
        assert await client.get("k") == b"a\r\n"
        assert await client.get("k") is None
        with pytest.raises(RuntimeError, match="ERR no"):
            await client.get("k")
        await ended.wait()  # the client closes a connection after an error reply
        server.close()

    asyncio.run(main())

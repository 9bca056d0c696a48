"""The clients against a node that misbehaves on purpose: retries, failover, bounds, streams, deadlines."""

from __future__ import annotations

import gc
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import chord
from chord.client import asyncio_client, session
from chord.client import batch as client_batch
from chord.client.batch import pair_bytes, pair_key
from chord.client.blocking import HELLO_S
from chord.client.results import to_key, to_value
from chord.client.sockets import Link
from chord.errors import (
    Busy,
    ChordError,
    ConfigError,
    DeadlineExceeded,
    InvalidRequest,
    MalformedMessage,
    NotFound,
    NotReady,
    OtherRing,
    OwnerDown,
    PeerLost,
    PeerUnreachable,
    QuorumFailed,
    RemoteFailure,
    TooFewReplicas,
    UseBulk,
    VersionConflict,
)
from chord.ids import Circle, Point
from chord.net.transport import TcpTransport
from chord.wire.batch import cut
from chord.wire.messages import (
    ActorClock,
    Contact,
    Done,
    Forget,
    Get,
    GetMany,
    GetReply,
    GetStatus,
    Leave,
    Lookup,
    Merge,
    Put,
    PutMany,
    Record,
    ReplicaLine,
    Scan,
    ScanReply,
    Trace,
    Version,
    Written,
)
from tests.support.clients import OWNER, Open, Store
from tests.support.clocks import PATIENCE_S, Skipping
from tests.support.fake_node import GO_AWAY, HANG_UP, REFUSED, SILENCE, Answer, FakeNode, Heard, ScannedRing, fake_node
from tests.support.ports import Ports
from tests.support.real_rings import HANG_S
from tests.support.statuses import RING_ID, WORKED_IDS, statuses


@pytest.fixture
def dials(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that clients of each kind have dialled."""
    dialled: list[str] = []
    dial, open_stream, dial_on_asyncio = Link.dial, TcpTransport.open_stream, asyncio_client._Connections._dial

    def blocking(link: Link) -> None:
        dialled.append(link.address)
        dial(link)

    async def on_trio(transport: TcpTransport, address: str) -> Any:
        dialled.append(address)
        return await open_stream(transport, address)

    async def on_asyncio(connections: Any, way: Any) -> Any:
        dialled.append(way[0])
        return await dial_on_asyncio(connections, way)

    monkeypatch.setattr(Link, "dial", blocking)
    monkeypatch.setattr(asyncio_client._Connections, "_dial", on_asyncio)
    monkeypatch.setattr(TcpTransport, "open_stream", on_trio)
    return dialled


async def test_put_get_and_delete_one_key(open_client: Open) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            stored = await client.put("user:42", "Ada")
            assert (stored.key, stored.context, stored.owner) == (b"user:42", b"after", OWNER)
            found = await client.get(b"user:42")
            assert (found.value, found.values, found.siblings, found.context) == (b"Ada", (b"Ada",), (), b"seen")
            await client.delete("user:42", context=found.context)
            with pytest.raises(NotFound):
                await client.get("user:42")
    puts = node.requests(Put)
    assert [(p.value, p.context) for p in puts] == [(b"Ada", None), (None, b"seen")]
    assert all(heard.vnode is None for heard in node.heard), "requests go to the node, which finds the owner"


async def test_deleted_key_is_not_found(open_client: Open) -> None:
    with fake_node(Store(GetReply((), b"context", OWNER))) as node:
        async with open_client(node.address) as client:
            with pytest.raises(NotFound, match="gone"):
                await client.get("gone")


async def test_concurrent_values_are_all_returned(open_client: Open) -> None:
    with fake_node(Store(GetReply((b"a", b"b"), b"context", OWNER))) as node:
        async with open_client(node.address) as client:
            found = await client.get("k")
            assert found.siblings == found.values == (b"a", b"b")
            with pytest.raises(VersionConflict):
                _ = found.value


async def test_put_without_a_context_replaces_nothing(open_client: Open) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            await client.put("k", b"v", no_context=True)
            with pytest.raises(InvalidRequest, match="both no_context and context"):
                await client.put("k", b"v", no_context=True, context=b"c")
    assert [p.context for p in node.requests(Put)] == [b""]


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("", b"v", "the key is empty"),
        ("k" * 1025, b"v", "the key has 1025 bytes"),
        ("k", b"v" * ((1 << 20) + 1), "at most 1048576"),
    ],
)
async def test_bounds_are_checked_before_sending(open_client: Open, key: str, value: bytes, words: str) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            with pytest.raises(InvalidRequest, match=words):
                await client.put(key, value)
    assert not node.requests(Put)


def test_key_and_value_of_maximum_size_are_allowed() -> None:
    assert len(to_key("k" * 1024)) == 1024
    assert len(to_value(b"v" * (1 << 20))) == 1 << 20


async def test_large_value_takes_the_bulk_stream(open_client: Open) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            await client.put("small", b"v" * 1000)
            await client.put("large", b"v" * (1 << 20))
    assert [h.stream for h in node.heard if isinstance(h.request, Put)] == ["control", "bulk"]


async def test_use_bulk_repeats_the_call_on_the_bulk_stream(open_client: Open) -> None:
    with fake_node(Store(UseBulk(), GetReply((b"v" * 50_000,), b"", OWNER))) as node:
        async with open_client(node.address) as client:
            assert len((await client.get("k")).value) == 50_000
    assert [h.stream for h in node.heard if isinstance(h.request, Get)] == ["control", "bulk"]


# -- retries and failover ---------------------------------------------------------------------------


async def test_busy_is_retried(open_client: Open) -> None:
    with fake_node(Store(Busy(after_ms=1), Busy(after_ms=1))) as node:
        async with open_client(node.address) as client:
            await client.put("k", b"v")
    assert len(node.requests(Put)) == 3


async def test_put_keeps_its_operation_id_after_a_lost_reply(open_client: Open) -> None:
    with fake_node(Store(HANG_UP)) as node:
        async with open_client(node.address) as client:
            await client.put("k", b"v")
            await client.put("k", b"v")
    ids = [p.op_id for p in node.requests(Put)]
    assert ids[0] == ids[1] != ids[2]


@pytest.fixture
def long_pause_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return a pause in milliseconds that a client accepts and that ends after every deadline.

    The deadline then passes between two attempts. In an attempt it would make the error indefinite.
    """
    monkeypatch.setattr(session, "BACKOFF_MAX_S", 3600.0)
    return 3_600_000


async def test_busy_until_the_deadline_is_raised(open_client: Open, long_pause_ms: int) -> None:
    with fake_node(Store(*[Busy(after_ms=1)] * 4, Busy(after_ms=long_pause_ms))) as node:
        async with open_client(node.address) as client:
            with pytest.raises(Busy):
                await client.put("k", b"v")
    assert len(node.requests(Put)) == 5


async def test_silent_node_is_an_indefinite_error_at_the_deadline(open_client: Open, clock: Skipping) -> None:
    with fake_node(Store(*[SILENCE] * 9)) as node:
        async with open_client(node.address, timeout_s=PATIENCE_S) as client:
            began = clock.monotonic()
            with pytest.raises(DeadlineExceeded):
                await client.put("k", b"v")
            assert clock.monotonic() - began >= PATIENCE_S
    assert len(node.requests(Put)) == 1


async def test_reply_after_half_the_deadline_is_accepted(open_client: Open, clock: Skipping) -> None:
    """The deadline ends a call, not the jump of the clock that a fake node makes in these tests."""
    def answer(heard: Heard) -> Answer:
        clock.skip(PATIENCE_S / 2)
        return Store()(heard)

    with fake_node(answer) as node:
        async with open_client(node.address, timeout_s=PATIENCE_S) as client:
            await client.put("k", b"v")


async def test_indefinite_error_outlives_later_definite_ones(open_client: Open, long_pause_ms: int) -> None:
    """Once an attempt may have had its effect, "busy" afterwards must not say that nothing happened."""
    with fake_node(Store(HANG_UP, *[Busy(after_ms=1)] * 4, Busy(after_ms=long_pause_ms))) as node:
        async with open_client(node.address) as client:
            with pytest.raises(PeerLost):
                await client.put("k", b"v")


@pytest.mark.parametrize("error", [OwnerDown("gone"), VersionConflict("many"), NotFound("none")])
async def test_permanent_error_is_raised_at_once(open_client: Open, error: ChordError) -> None:
    with fake_node(Store(error)) as node:
        async with open_client(node.address) as client:
            with pytest.raises(type(error), match=error.message):
                await client.get("k")
    assert len(node.requests(Get)) == 1


async def test_remote_failure_is_retried_a_limited_number_of_times(open_client: Open) -> None:
    with fake_node(Store(*[RemoteFailure("bug")] * 9)) as node:
        async with open_client(node.address) as client:
            with pytest.raises(RemoteFailure, match="bug"):
                await client.get("k")
    assert len(node.requests(Get)) == 3


async def test_second_entry_node_is_used_if_the_first_refuses(open_client: Open, ports: Ports) -> None:
    with fake_node(Store()) as node:
        async with open_client(ports.address(), node.address) as client:
            assert client.entry == node.address
            await client.put("k", b"v")


async def test_second_entry_node_is_used_if_the_first_dies(open_client: Open) -> None:
    with fake_node(Store()) as first, fake_node(Store()) as second:
        async with open_client(first.address, second.address) as client:
            await client.put("k", b"1")
            first.die()
            await client.put("k", b"2")
            assert (await client.get("k")).value == b"2"
            assert client.entry == second.address


async def test_unreachable_entry_nodes_are_all_named(open_client: Open, ports: Ports, dials: list[str]) -> None:
    both = [ports.address(), ports.address()]
    with pytest.raises(PeerUnreachable, match=r"refused.*; .*refused"):
        async with open_client(*both):
            pass
    assert dials == both, "a refused connection is not retried"


async def test_invalid_entry_address_is_refused(open_client: Open) -> None:
    for addresses in ((), ("nonsense",)):
        with pytest.raises(ChordError):
            async with open_client(*addresses):
                pass


async def test_entry_nodes_of_two_rings_are_refused(open_client: Open) -> None:
    with fake_node(Store()) as one, fake_node(Store(), ring=b"S" * 16) as other:
        async with open_client(one.address, other.address) as client:
            with pytest.raises(OtherRing):
                await client.status(other.address)


async def test_handshake_refusal_reaches_the_caller(open_client: Open) -> None:
    with fake_node(Store(), refusal=OtherRing("not for you")) as node:
        opening = open_client(node.address)
        with pytest.raises(OtherRing, match="not for you"):
            await opening.__aenter__()


async def test_other_protocol_version_is_refused(open_client: Open) -> None:
    with fake_node(Store(), versions=(7, 9)) as node, pytest.raises(OtherRing):
        async with open_client(node.address):
            pass


async def test_reply_of_the_wrong_type_is_malformed(open_client: Open) -> None:
    with fake_node(Store(Done())) as node:
        async with open_client(node.address) as client:
            with pytest.raises(MalformedMessage):
                await client.get("k")


@pytest.mark.slow
async def test_malformed_bytes_close_the_connection_and_not_the_client(open_client: Open) -> None:
    with fake_node(Store(b"\xff" * 64)) as node:
        async with open_client(node.address) as client:
            with pytest.raises(NotFound):
                await client.get("missing")  # asked again, on a new connection
            await client.put("k", b"v")
            assert (await client.get("k")).value == b"v"


async def test_goodbye_ends_the_use_of_its_connection(open_client: Open, clock: Skipping) -> None:
    with fake_node(Store(GO_AWAY)) as node:
        async with open_client(node.address, timeout_s=PATIENCE_S) as client:
            with pytest.raises((DeadlineExceeded, PeerLost)):
                await client.put("k", b"v")
            await client.put("k", b"v")
    assert len({h.connection for h in node.heard if isinstance(h.request, Put)}) == 2


async def test_late_reply_is_dropped(open_client: Open, clock: Skipping) -> None:
    """An answer that comes after its call was given up must not be taken for the next call's."""
    late: list[bytes] = []

    def answer(heard: Heard) -> Answer:
        if isinstance(heard.request, GetStatus):
            return statuses()[0]
        assert isinstance(heard.request, Get)
        if heard.request.key == b"slow":
            return SILENCE
        frames = node._codec
        first = frames.encode_reply(len(late) + 1, GetReply((b"slow answer",), b"", OWNER))
        late.append(first)
        return GetReply((heard.request.key,), b"", OWNER)

    with fake_node(answer) as node:
        async with open_client(node.address, timeout_s=PATIENCE_S) as client:
            with pytest.raises(DeadlineExceeded):
                await client.get("slow")
            assert (await client.get("fast")).value == b"fast"


# -- many keys ----------------------------------------------------------------------------------------


async def test_put_many_stores_all_and_retries_busy_items(open_client: Open) -> None:
    store = Store(*[Busy(after_ms=1)] * 7)
    reported: list[int] = []
    with fake_node(store) as node:
        async with open_client(node.address) as client:
            pairs = [(f"k{i}", f"v{i}") for i in range(150)]
            assert not (await client.put_many(pairs, in_flight=64, on_progress=reported.append)).errors
    assert store.values == {k.encode(): v.encode() for k, v in pairs}
    assert reported == [64, 128, 150]


async def test_put_many_names_failed_keys(open_client: Open) -> None:
    def answer(heard: Heard) -> Answer:
        if isinstance(heard.request, GetStatus):
            return statuses()[0]
        assert isinstance(heard.request, Put)
        return OwnerDown("down") if heard.request.key == b"k3" else Written(b"", OWNER)

    with fake_node(answer) as node:
        async with open_client(node.address) as client:
            result = await client.put_many([(f"k{i}", b"v") for i in range(5)])
    assert [(key, type(error)) for key, error in result.errors.items()] == [("k3", OwnerDown)]
    assert list(result.ok) == ["k0", "k1", "k2", "k4"]
    assert (list(result), result["k3"]) == ([f"k{i}" for i in range(5)], result.errors["k3"])
    assert (result.ok["k0"].key, result["k0"]) == (b"k0", result.ok["k0"])
    assert repr(result) == "<BatchResult: 4 ok, 1 failed>"


async def test_get_many_finds_all_and_names_absent_keys(open_client: Open) -> None:
    store = Store(*[Busy(after_ms=1)] * 7)
    store.values = {b"k%d" % i: b"v%d" % i for i in range(150)}
    keys: list[str | bytes] = [f"k{i}" for i in range(150)] + [b"none", "k3"]
    reported: list[int] = []
    with fake_node(store) as node:
        async with open_client(node.address) as client:
            found = await client.get_many(iter(keys), in_flight=64, r=2, on_progress=reported.append)
    assert list(found) == keys[:-1]
    assert reported == [64, 128, 151]
    assert [type(error) for error in found.errors.values()] == [NotFound]
    assert isinstance(found[b"none"], NotFound)
    assert [one.value for one in found.ok.values()] == [b"v%d" % i for i in range(150)]
    assert {request.r for request in node.requests(Get) if isinstance(request, Get)} == {2}
    assert len(node.requests(GetMany)) == 4, "64 keys, the busy ones again, 64, 23"


async def test_batch_item_is_retried_with_its_operation_id(open_client: Open) -> None:
    script: dict[bytes, list[Answer]] = {
        b"a": [QuorumFailed("1 of 2")], b"b": [Busy(after_ms=1)], b"d": [QuorumFailed("1 of 2"), OwnerDown("gone")],
    }  # fmt: skip

    def answer(heard: Heard) -> Answer:
        if isinstance(heard.request, GetStatus):
            return statuses()[0]
        assert isinstance(heard.request, Put)
        left = script.get(heard.request.key)
        return left.pop(0) if left else Written(b"", OWNER)

    with fake_node(answer) as node:
        async with open_client(node.address) as client:
            errors = (await client.put_many((key, b"v") for key in "abcd")).errors
    assert [(key, type(e)) for key, e in errors.items()] == [("d", QuorumFailed)], "the later owner_down is ignored"
    puts = [request for request in node.requests(Put) if isinstance(request, Put)]
    assert [(put.key, put.is_retry) for put in puts] == [
        (b"a", False), (b"b", False), (b"c", False), (b"d", False), (b"a", True), (b"b", False), (b"d", True),
    ]  # fmt: skip
    assert len({put.op_id for put in puts}) == 4


async def test_batch_refused_for_one_item_is_split(open_client: Open) -> None:
    """The next batch is one frame again."""

    def answer(heard: Heard) -> Answer:
        if isinstance(heard.request, GetStatus):
            return statuses()[0]
        assert isinstance(heard.request, Put)
        if heard.request.key != b"bad":
            return Written(b"", OWNER)
        return InvalidRequest("bad") if heard.stream == "control" else REFUSED

    with fake_node(answer) as node:
        async with open_client(node.address) as client:
            errors = (await client.put_many([("a", b"v"), ("bad", b"v"), ("c", b"v")])).errors
            assert [(key, type(error)) for key, error in errors.items()] == [("bad", InvalidRequest)]
            assert not (await client.put_many([("a", b"v"), ("c", b"v")])).errors
    assert len(node.requests(PutMany)) == 2
    with fake_node(answer) as node:
        async with open_client(node.address) as client:
            errors = (await client.put_many((key, b"v") for key in ["bad", *(f"k{i}" for i in range(127))])).errors
    assert [(key, type(error)) for key, error in errors.items()] == [("bad", InvalidRequest)]
    assert len(node.requests(PutMany)) < 20, "each time half of them are left: not one frame for each item"


@pytest.mark.slow
async def test_replies_beyond_one_frame_are_fetched_in_parts(open_client: Open) -> None:
    store = Store()
    store.values = {b"k%d" % i: bytes([i]) * 100_000 for i in range(40)}
    with fake_node(store) as node:
        async with open_client(node.address) as client:
            found = await client.get_many(store.values)
    assert {key: one.value for key, one in found.items()} == store.values
    asked = [len(request.gets) for request in node.requests(GetMany) if isinstance(request, GetMany)]
    assert asked[0] == 40
    assert max(asked[1:]) == 2, "later requests have only as many keys as fit"


async def test_batch_to_a_silent_node_moves_to_the_next_entry(open_client: Open) -> None:
    store = Store()
    with fake_node(Store(*[HANG_UP] * 9)) as silent, fake_node(store) as node:
        async with open_client(silent.address, node.address) as client:
            assert not (await client.put_many([(f"k{i}", b"v") for i in range(9)])).errors
            assert client.entry == node.address
    assert len(store.values) == 9
    assert all(put.is_retry for put in node.requests(Put) if isinstance(put, Put))


@pytest.mark.slow
async def test_batch_shrinks_if_the_ring_is_too_slow(open_client: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the client repeated the whole batch, no attempt would end in time."""
    store = Store()

    def slow(heard: Heard) -> Answer:
        if isinstance(heard.request, Put):
            time.sleep(0.002)
        return store(heard)

    monkeypatch.setattr(session, "ATTEMPT_S", 0.1)
    monkeypatch.setattr(client_batch, "ITEM_S", 0.0)
    with fake_node(slow) as node, fake_node(slow) as other:
        async with open_client(node.address, other.address, timeout_s=HANG_S) as client:
            assert not (await client.put_many((f"k{i}", b"v") for i in range(300))).errors
    assert len(store.values) == 300
    frames = [*node.requests(PutMany), *other.requests(PutMany)]
    assert min(len(frame.writes) for frame in frames if isinstance(frame, PutMany)) < 50


async def test_put_many_to_a_silent_node_fails_in_time(open_client: Open, clock: Skipping) -> None:
    with fake_node(Store(*[SILENCE] * 99)) as node:
        async with open_client(node.address, timeout_s=PATIENCE_S) as client:
            errors = (await client.put_many([("a", b"1"), ("b", b"2")])).errors
    assert list(errors) == ["a", "b"]
    assert all(isinstance(error, DeadlineExceeded) for error in errors.values())


@given(st.lists(st.tuples(st.binary(max_size=5), st.binary(max_size=40)), max_size=40), st.integers(1, 9))
def test_batches_keep_order_and_limits(pairs: list[tuple[bytes, bytes]], length: int) -> None:
    batches = list(cut(pairs, pair_bytes, length, 60, pair_key))
    assert [pair for batch in batches for pair in batch] == pairs
    assert all(1 <= len(batch) <= length for batch in batches)
    assert all(len(batch) == 1 or sum(len(k) + len(v) for k, v in batch) <= 60 for batch in batches)
    assert all(len({k for k, _ in batch}) == len(batch) for batch in batches), "no batch has a key twice"


@pytest.mark.parametrize("owners", [[10, 42, 80, 120, 160, 200, 230], [0, 255], [255], [0], [128], [254, 255, 0, 1]])
async def test_scan_finds_every_key_once_and_in_order(open_client: Open, owners: list[int]) -> None:
    keys = [f"key{i}".encode() for i in range(60)]
    ring_ = ScannedRing(owners, keys)
    with fake_node(ring_) as node:
        async with open_client(node.address) as client:
            found = [pair async for pair in client.scan()]
    assert sorted(pair.key for pair in found) == sorted(keys)
    assert all(pair.values == (b"v:" + pair.key,) for pair in found)
    points = [ring_.circle.hash(pair.key) for pair in found]
    assert points == sorted(points)


async def test_scan_survives_joins_and_leaves(open_client: Open) -> None:
    keys = [f"key{i}".encode() for i in range(60)]
    ring_ = ScannedRing([10, 120, 230], keys)
    seen = []
    with fake_node(ring_) as node:
        async with open_client(node.address) as client:
            async for pair in client.scan():
                seen.append(pair.key)
                if len(seen) == 10:
                    ring_.owners = [5, 60, 90, 180]
    assert sorted(seen) == sorted(keys)


async def test_scan_omits_deleted_keys(open_client: Open) -> None:
    tombstone = Record(b"gone", (ActorClock(b"A" * 16, 1, (Version(None, b"O" * 16, 0),)),))
    answers = Store(ScanReply((tombstone,), Point(255), None))
    with fake_node(answers) as node:
        async with open_client(node.address) as client:
            assert [pair async for pair in client.scan()] == []


# -- the ring -----------------------------------------------------------------------------------------


def _trace(heard: Heard) -> Answer:
    if isinstance(heard.request, GetStatus):
        return statuses()[0]
    assert isinstance(heard.request, Lookup)
    from tests.support.statuses import worked_trace

    return worked_trace()


async def test_lookup_hashes_the_key_on_the_rings_own_circle(open_client: Open) -> None:
    with fake_node(_trace) as node:
        async with open_client(node.address) as client:
            assert isinstance(await client.lookup("user:42"), Trace)
            await client.lookup(key_id=190, mode="recursive", route="fast", from_=Contact(Point(80), node.address))
            await client.lookup(key_id=190, from_=node.address)
    lookups = [h for h in node.heard if isinstance(h.request, Lookup)]
    assert lookups[0].request.key == Circle(8).hash(b"user:42")
    assert (lookups[1].vnode, lookups[1].request.key) == (80, 190)
    assert (lookups[1].request.mode, lookups[1].request.route) == ("recursive", "fast")
    assert lookups[2].vnode is None


async def test_lookup_arguments_are_checked(open_client: Open) -> None:
    with fake_node(_trace) as node:
        async with open_client(node.address) as client:
            for arguments in ({}, {"key": "k", "key_id": 3}, {"key_id": 256}, {"key_id": -1}):
                with pytest.raises(InvalidRequest):
                    await client.lookup(**arguments)


async def test_unreachable_node_named_is_dialled_once(open_client: Open, ports: Ports, dials: list[str]) -> None:
    with fake_node(_trace) as node:
        async with open_client(node.address) as client:
            dead = ports.address()
            with pytest.raises(PeerUnreachable):
                await client.status(dead)
            assert dials.count(dead) == 1


async def test_members_follows_every_name_and_reports_the_dead(open_client: Open, ports: Ports) -> None:
    nodes: dict[int, FakeNode] = {}
    dead = ports.address()
    ids = (10, 80, 160, 230)

    def status_as(point: int) -> Callable[[Heard], Answer]:
        def answer(heard: Heard) -> Answer:
            addresses = {p: nodes[p].address if p in nodes else dead for p in ids}
            return statuses(ids, addresses=addresses, successors=1)[ids.index(point)]

        return answer

    for point in ids[:3]:
        nodes[point] = FakeNode(status_as(point))
    try:
        async with open_client(nodes[10].address) as client:
            found = await client.members()
            assert set(found.ok) == {node.address for node in nodes.values()}
            assert isinstance(found[dead], PeerUnreachable)
            assert list(await client.members(only=[dead])) == [dead]
    finally:
        for node in nodes.values():
            node.close()


async def test_members_omits_nodes_of_other_rings(open_client: Open, ports: Ports) -> None:
    nodes = statuses(addresses={point: ports.address() for point in WORKED_IDS})
    with fake_node(lambda heard: nodes[0]) as node:
        async with open_client(node.address) as client:
            with fake_node(lambda heard: nodes[1], ring=b"S" * 16) as stranger:
                found = await client.members(also=[stranger.address])
    assert isinstance(found[stranger.address], OtherRing)
    assert statuses()[0].ring == RING_ID


async def test_leave_is_sent_to_the_leaving_node(open_client: Open) -> None:
    with fake_node(_trace) as entry, fake_node(lambda heard: Done()) as leaver:
        async with open_client(entry.address) as client:
            await client.decommission(leaver.address)
    assert len(leaver.requests(Leave)) == 1
    assert not entry.requests(Leave)


def test_blocking_client_does_not_load_trio() -> None:
    import subprocess
    import sys

    code = "import sys, chord; chord.connect; assert 'trio' not in sys.modules, 'trio was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_keys_and_values_must_be_text_or_bytes() -> None:
    """bytes(5) is five zeros, and a put of None would be a deletion."""
    for wrong in (5, True, None, [65, 66], 1.5):
        with pytest.raises(InvalidRequest, match="text or bytes"):
            to_value(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidRequest, match="text or bytes"):
            to_key(wrong)  # type: ignore[arg-type]
    assert to_value(bytearray(b"ab")) == to_value(memoryview(b"ab")) == b"ab"


# -- replicas, versions, quorums ------------------------------------------------------------------------


LINE = ReplicaLine(OWNER, "stale", False, 0.4, b"digest")


async def test_result_shows_how_its_quorum_was_met(open_client: Open) -> None:
    answers = Store(Written(b"c", OWNER, 3, 2, True, (LINE,)), GetReply((b"v",), b"c", OWNER, 2, 2, (LINE,), (7,)))
    with fake_node(answers) as node:
        async with open_client(node.address) as client:
            stored = await client.put("k", b"v", w=2, sloppy=False, ttl_s=1.0005)
            assert (stored.w, stored.w_needed, stored.is_sloppy, stored.replicas) == (3, 2, True, (LINE,))
            found = await client.get("k", r=3)
            assert (found.r, found.r_needed, found.replicas, found.written_ms) == (2, 2, (LINE,), (7,))
            await client.delete("k", w=1, sloppy=False)
    put, delete = node.requests(Put)
    assert (put.w, put.strict, put.ttl_ms) == (2, True, 1001), "the time to live is rounded up"
    assert (delete.w, delete.strict, delete.ttl_ms) == (1, True, 0)
    assert [get.r for get in node.requests(Get)] == [3]


@pytest.mark.parametrize(
    ("options", "words"),
    [({"w": 0}, "w is a number"), ({"w": 17}, "w is a number"), ({"w": True}, "w is a number"), ({"ttl_s": 0}, "live"),
     ({"ttl_s": float("nan")}, "live"), ({"ttl_s": float("inf")}, "live")],
)
async def test_quorums_and_ttl_have_bounds(open_client: Open, options: dict[str, Any], words: str) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            with pytest.raises(InvalidRequest, match=words):
                await client.put("k", b"v", **options)
            with pytest.raises(InvalidRequest, match="r is a number"):
                await client.get("k", r=0)
    assert not node.requests(Put)


async def test_resolver_makes_one_value_and_keeps_the_context(open_client: Open) -> None:
    siblings = GetReply((b"b", b"a", b"c"), b"context", OWNER, written_ms=(5, 9, 9))
    with fake_node(Store(siblings, siblings, GetReply((b"only",), b"c", OWNER))) as node:
        async with open_client(node.address) as client:
            found = await client.get("k", resolve=chord.last_writer_wins)
            assert (found.value, found.siblings, found.context) == (b"c", (), b"context"), "the largest of equal times"
            union = await client.get("k", resolve=lambda found: b"+".join(sorted(found.values)))
            assert union.value == b"a+b+c"
            assert (await client.get("k", resolve=chord.last_writer_wins)).value == b"only"


async def test_last_writer_wins_needs_write_times(open_client: Open) -> None:
    with fake_node(Store(GetReply((b"a", b"b"), b"context", OWNER))) as node:
        async with open_client(node.address) as client:
            with pytest.raises(InvalidRequest, match="does not report when"):
                await client.get("k", resolve=chord.last_writer_wins)


async def test_failed_quorum_is_retried_until_it_is_met(open_client: Open) -> None:
    with fake_node(Store(QuorumFailed("1 of 2"), QuorumFailed("1 of 2"))) as node:
        async with open_client(node.address) as client:
            await client.put("k", b"v")
    assert len({put.op_id for put in node.requests(Put)}) == 1
    assert len(node.requests(Put)) == 3


async def test_failed_quorum_is_raised_despite_later_silence(open_client: Open, clock: Skipping) -> None:
    with fake_node(Store(QuorumFailed("1 of 2"), *[SILENCE] * 9)) as node:
        async with open_client(node.address, timeout_s=PATIENCE_S) as client:
            with pytest.raises(QuorumFailed, match="1 of 2"):
                await client.put("k", b"v")


async def test_refused_read_is_raised_despite_later_silence(open_client: Open, clock: Skipping) -> None:
    """A write may raise the earlier refusal only if no later attempt can have had an effect."""
    for is_write, reported in ((False, TooFewReplicas), (True, DeadlineExceeded)):
        with fake_node(Store(TooFewReplicas("there are 2 nodes, not 3"), *[SILENCE] * 9)) as node:
            async with open_client(node.address, timeout_s=PATIENCE_S) as client:
                with pytest.raises(reported):
                    await (client.put("k", b"v") if is_write else client.get("k", r=3))


async def test_indefinite_write_outlives_a_later_refusal(open_client: Open) -> None:
    """The first attempt reached one replica. The next coordinator does not know of it, and refuses."""
    with fake_node(Store(QuorumFailed("1 of 2"), OwnerDown("gone"))) as node:
        async with open_client(node.address) as client:
            with pytest.raises(QuorumFailed):
                await client.put("k", b"v")
    with fake_node(Store(QuorumFailed("1 of 2"), OwnerDown("gone"))) as node:
        async with open_client(node.address) as client:
            assert isinstance((await client.put_many([("k", b"v")]))["k"], QuorumFailed)
    with fake_node(Store(QuorumFailed("1 of 2"), NotFound())) as node:
        async with open_client(node.address) as client:
            with pytest.raises(NotFound):
                await client.get("k")


async def test_delete_many_deletes_each_key_once(open_client: Open) -> None:
    store, reported = Store(), []  # type: ignore[var-annotated]
    with fake_node(store) as node:
        async with open_client(node.address) as client:
            assert not (await client.put_many([(f"k{i}", b"v") for i in range(10)])).errors
            keys = (f"k{i % 9}" for i in range(20))
            result = await client.delete_many(keys, in_flight=4, on_progress=reported.append)
    assert list(result.ok) == [f"k{i}" for i in range(9)]
    assert reported == [4, 8, 9]
    assert store.values == {b"k9": b"v"}
    deletes = [put.key for put in node.requests(Put) if put.value is None]  # type: ignore[attr-defined]
    assert sorted(deletes) == [f"k{i}".encode() for i in range(9)]


async def test_put_many_with_a_key_twice_keeps_the_later_value(open_client: Open) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            assert list((await client.put_many([("a", b"1"), ("b", b"1"), ("a", b"2")])).ok) == ["a", "b"]
            assert (await client.get("a")).value == b"2"
    assert len({(heard.stream, heard.connection) for heard in node.heard}) == 2, "one connection for each stream"


def record(key: bytes, *versions: Version) -> Record:
    """Return a record with versions of one actor."""
    return Record(key, (ActorClock(b"A" * 16, max(1, len(versions)), versions),))


async def test_scan_omits_values_expired_by_the_clock_of_the_node(open_client: Open) -> None:
    def version(value: bytes, until: int, op: bytes) -> Version:
        return Version(value, op * 16, 0, until)

    page = (
        record(b"dead", version(b"v", 1000, b"1")),
        record(b"live", version(b"v", 1001, b"1")),
        record(b"half", version(b"new", 0, b"1"), version(b"old", 999, b"2")),
        record(b"twice", version(b"same", 0, b"1"), version(b"same", 0, b"1")),
    )
    with fake_node(Store(ScanReply(page, Point(255), None, 1000))) as node:
        async with open_client(node.address) as client:
            found = {pair.key: pair.values async for pair in client.scan()}
    assert found == {b"live": (b"v",), b"half": (b"new",), b"twice": (b"same",)}


async def test_records_include_tombstones(open_client: Open) -> None:
    tombstone = record(b"gone", Version(None, b"O" * 16, 3))
    with fake_node(Store(ScanReply((tombstone,), Point(255), None))) as node:
        async with open_client(node.address) as client:
            assert [found async for found in client.export()] == [tombstone]


async def test_records_of_one_node_are_read_from_its_vnodes(open_client: Open) -> None:
    keys = [f"key{i}".encode() for i in range(60)]
    circle, ring_ = Circle(8), ScannedRing([10, 42, 80, 120, 160, 200, 230], keys)

    def answer(heard: Heard) -> Answer:
        addresses = dict.fromkeys(WORKED_IDS, node.address)
        return statuses(addresses=addresses)[2] if isinstance(heard.request, GetStatus) else ring_(heard)

    with fake_node(answer) as node:
        async with open_client(node.address) as client:
            found = [one.key async for one in client.export(of=node.address)]
    assert sorted(found) == sorted(key for key in keys if 42 < circle.hash(key) <= 80)
    assert {heard.vnode for heard in node.heard if isinstance(heard.request, Scan)} == {80}


async def test_merge_sends_large_records_on_the_bulk_stream(open_client: Open) -> None:
    small = record(b"k", Version(b"v", b"O" * 16, 1))
    large = record(b"large", *(Version(b"v" * 20_000, bytes([i]) * 16, 1) for i in range(20)))
    with fake_node(Store(*[Written(b"", OWNER)] * 3)) as node:
        async with open_client(node.address) as client:
            assert (await client.import_(small, w=2)).key == b"k"
            assert not (await client.import_many([small, large])).errors
    merges = [(h.request, h.stream) for h in node.heard if isinstance(h.request, Merge)]
    assert merges[0] == (Merge(small, 2), "control")
    assert sorted(stream for request, stream in merges[1:]) == ["bulk", "control"]


async def test_forget_reaches_every_node_and_refuses_a_living_one(open_client: Open, ports: Ports) -> None:
    nodes: dict[int, FakeNode] = {}
    dead, ids = ports.address(), (10, 80, 160)

    def status_as(point: int) -> Callable[[Heard], Answer]:
        def answer(heard: Heard) -> Answer:
            if isinstance(heard.request, Forget):
                return RemoteFailure("no") if point == 160 else Done()
            addresses = {p: nodes[p].address for p in ids}
            return statuses(ids, addresses=addresses)[ids.index(point)]

        return answer

    for point in ids:
        nodes[point] = FakeNode(status_as(point))
    try:
        async with open_client(nodes[10].address) as client:
            result = await client.remove_node(dead)
            assert set(result.ok) == {nodes[10].address, nodes[80].address}
            assert {at: type(error) for at, error in result.errors.items()} == {nodes[160].address: RemoteFailure}
            with pytest.raises(InvalidRequest, match="a node answers there"):
                await client.remove_node(nodes[80].address)
        assert nodes[80].requests(Forget) == [Forget(dead)]
    finally:
        for node in nodes.values():
            node.close()


# -- invalid arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("put_many", [None], "expected several pairs of key and value, not None; put them in a list"),
        ("put_many", [7], "expected several pairs of key and value, not 7"),
        ("get_many", [None], "expected several keys, not None; put them in a list"),
        ("get_many", [[[]]], "a key is text or bytes"),
        ("import_many", [None], "expected several records, not None; put them in a list"),
        ("import_many", [[1]], "expected a record, as `export` yields them, not 1"),
        ("import_", [1], "expected a record, as `export` yields them, not 1"),
        ("put_many", [{"a": "b"}], r"put_many takes pairs \(key, value\), not 'a'; of a dict: put_many\(d.items\(\)\)"),
        ("put_many", [["ab"]], "put_many takes pairs .* not 'ab'"),
        ("put_many", [[("a", "b", "c")]], "put_many takes pairs"),
        ("put_many", [[("a", 1)]], "a value is text or bytes, not int"),
        ("put_many", [[("\ud800", "v")]], r"cannot encode the key: U\+D800 is a surrogate"),
        ("get_many", ["abc"], "get_many takes several keys, not the one key 'abc'"),
        ("get_many", [b"abc"], "get_many takes several keys"),
        ("delete_many", ["abc"], "delete_many takes several keys, not the one key 'abc'"),
        ("delete_many", [["\ud800"]], "cannot encode the key"),
        ("put", ["\ud800", "v"], r"cannot encode the key: U\+D800"),
        ("put", ["k", "a\udfff"], r"cannot encode the value: U\+DFFF"),
        ("get", ["\ud800"], r"cannot encode the key"),
    ],
)
async def test_invalid_argument_is_named(open_client: Open, name: str, arguments: list[Any], said: str) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            with pytest.raises(InvalidRequest, match=said):
                await getattr(client, name)(*arguments)
        assert not node.requests(Put)
        assert not node.requests(Get)


@pytest.mark.parametrize("context", ["junk", 7, b"x" * 8193])
async def test_invalid_context_is_refused(open_client: Open, context: Any) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            with pytest.raises(InvalidRequest, match="context"):
                await client.put("k", "v", context=context)
            with pytest.raises(InvalidRequest, match="context"):
                await client.delete("k", context=context)
            await client.put("k", "v", context=bytearray(b"seen"))
        assert [put.context for put in node.requests(Put)] == [b"seen"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["decommission", "status", "remove_node"])
async def test_node_name_is_not_an_address(open_client: Open, name: str) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            with pytest.raises(ConfigError, match="'n2': expected HOST:PORT"):
                await getattr(client, name)("n2")


def test_blocking_client_is_closed_after_its_block() -> None:
    with fake_node(Store()) as node:
        with chord.connect(node.address) as client:
            client.put("k", "v")
        heard = len(node.heard)
        for use in (lambda: client.get("k"), lambda: client.put_many([("a", "b")]), lambda: list(client.scan())):
            with pytest.raises(InvalidRequest, match="this client is closed: its block has ended; connect again"):
                use()
        client.close()
        assert len(node.heard) == heard


async def test_client_is_closed_after_its_block() -> None:
    with fake_node(Store()) as node:
        async with chord.open_client(node.address) as client:
            await client.put("k", "v")
        with pytest.raises(InvalidRequest, match="this client is closed: its block has ended; open another"):
            await client.get("k")


def test_deadline_shorter_than_the_handshake_is_not_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DeadlineExceeded, match=r"within 0\.01 s"):
            chord.connect(address, timeout_s=0.01)
        with pytest.raises(PeerUnreachable, match="received no hello"):
            chord.connect(address, timeout_s=HELLO_S)


def test_short_deadline_does_not_mark_a_new_node_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, fake_node(Store()) as node:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with chord.connect(node.address) as client:
            client.timeout_s = 0.01
            with pytest.raises(DeadlineExceeded):
                client.status(address)
            client.timeout_s = HELLO_S
            with pytest.raises(PeerUnreachable, match="received no hello"):
                client.status(address)


def test_each_silent_entry_node_gets_its_share_of_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, fake_node(Store()) as node:
        addresses = [f"127.0.0.1:{silent.getsockname()[1]}", node.address]
        with chord.connect(*addresses, timeout_s=2 * HELLO_S) as client:
            assert client.entry == node.address


def test_several_entry_nodes_that_are_late_are_not_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in (one, other)]
        with pytest.raises(DeadlineExceeded, match=r"within 0\.02 s"):
            chord.connect(*addresses, timeout_s=0.02)


def test_failed_connect_closes_its_connections() -> None:
    with fake_node(lambda heard: NotReady("no status yet")) as node:
        with pytest.raises(NotReady):
            chord.connect(node.address)
        gc.collect()  # a socket that is still open is a ResourceWarning, and that is an error

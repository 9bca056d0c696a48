"""Hostile bytes and limits: each case has a clear error, and the node continues."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import cbor2
import pytest
import trio

from chord.config import Limits
from chord.errors import (
    ConfigError,
    DuplicateId,
    MalformedMessage,
    OtherRing,
    Overloaded,
    PeerLost,
    PeerUnreachable,
    UnknownRequest,
)
from chord.events import ConnectionClosed, ConnectionOpened, ConnectionRefused, HandlerFailed
from chord.ids import Circle
from chord.net.handshake import HUNG_UP
from chord.testing import MemoryNetwork, run
from chord.wire.codec import GOODBYE, FrameKind, decode_refusal, encode_hello, open_envelope
from chord.wire.messages import Contact, Get, GetReply, Hello, Ping, Put
from tests.support.rpc import CODEC, MIB, OWNER, Peer, Raw, limits, outcome, pair, running, virtual

HELLO = encode_hello(Hello(1, 1, "client", "control"))


def frame(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "big") + body


def call(*content: object, call_id: int = 1) -> bytes:
    return frame(FrameKind.CALL, cbor2.dumps([call_id, None, 1000, list(content), 0]))


def ask(key: str, call_id: int = 1) -> bytes:
    return CODEC.encode_call(call_id, None, 60_000, Get(key.encode()), 0)


@asynccontextmanager
async def node_and_stranger(**changes: float) -> AsyncIterator[tuple[Peer, Raw, MemoryNetwork]]:
    """Run a node and a raw stream to it; check at the end that the node is unharmed."""
    network = MemoryNetwork()
    node = Peer(network.transport("n"), "n:1", limits=limits(**changes))
    friend = Peer(network.transport("f"), "f:1")
    async with running(node, friend):
        raw = Raw(await network.transport("s").open_stream("n:1"))
        yield node, raw, network
        assert await friend.get(node, "echo") == b"echo"
        assert await node.get(friend, "echo") == b"echo"
        assert not node.seen(HandlerFailed)


# -- before the end of the handshake -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "sentence"),
    {
        "an HTTP client": (b"GET / HTTP/1.1\r\n\r\n", "unknown kind of frame"),
        "a call": (call(1), "the first frame is not a hello"),
        "a goodbye": (GOODBYE, "the first frame is not a hello"),
        "a frame over the limit": (frame(FrameKind.HELLO, bytes(64 * 1024 + 1)), "the limit here is 16384"),
        "an announced frame over the limit": (b"\x01\xff\xff\xff", "the limit here is 16384"),
        "no CBOR": (frame(FrameKind.HELLO, b"\xff"), "not strict CBOR"),
        "deep CBOR": (frame(FrameKind.HELLO, b"\x81" * 5000), "depth"),
        "a tag": (frame(FrameKind.HELLO, b"\xc1\x00"), "not strict CBOR"),
        "another struct": (frame(FrameKind.HELLO, cbor2.dumps({"version": 1})), "Hello"),
        "an unknown role": (frame(FrameKind.HELLO, cbor2.dumps([1, 1, "king", "control"])), "Hello"),
        "an older version": (encode_hello(Hello(1, 2, "client", "control")), "no common version"),
        "a newer version": (encode_hello(Hello(5, 9, "client", "control")), "3 to 4 here, 5 to 9 there"),
        "other bits": (encode_hello(Hello(3, 3, "node", "control", bits=8, address="x:1")), "ids have 160 bits here"),
    }.values(),
)
def test_bad_first_frame_is_refused_with_a_reason(first: bytes, sentence: str) -> None:
    async def main() -> None:
        async with node_and_stranger() as (node, raw, _):
            node.versions = (3, 4)
            await raw.send(first)
            error = await raw.refusal()
            assert isinstance(error, MalformedMessage | OtherRing)
            assert sentence in error.message
            assert node.seen(ConnectionRefused) == [ConnectionRefused("s", error.message)]
            node.versions = (1, 1)

    run(main)


@virtual
async def test_connection_without_a_hello_is_closed_in_time() -> None:
    async with node_and_stranger(handshake_s=5.0) as (node, raw, _):
        start = trio.current_time()
        await raw.send(HELLO[:7])
        await raw.ended()
        assert trio.current_time() - start == pytest.approx(5.0, abs=0.02)
        assert node.seen(ConnectionRefused)[0].reason == "no hello within 5 s"


@virtual
async def test_connection_that_ends_before_a_hello_is_forgotten() -> None:
    async with node_and_stranger() as (node, raw, _):
        await raw.stream.aclose()
        await trio.sleep(0.1)
        assert node.seen(ConnectionRefused)[0].reason == HUNG_UP
        assert node.rpc._accepted == 0


@virtual
async def test_refusal_of_a_handshake_reaches_all_callers() -> None:
    network = MemoryNetwork()

    def refuse(hello: Hello) -> None:
        raise DuplicateId(f"{hello.address} stands where I stand", after_ms=7)

    a = Peer(network.transport("a"), "a:1")
    b = Peer(network.transport("b"), "b:1", check=refuse)
    outcomes: list[Any] = []
    async with running(a, b):
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(outcome, a.ping(b), outcomes)
        assert [(type(e), e.message, e.after_ms) for e in outcomes] == [
            (DuplicateId, "a:1 stands where I stand", 7)
        ] * 3
        # In the other direction the dialler refuses, and the acceptor gets the refusal.
        with pytest.raises(DuplicateId, match="a:1 stands"):
            await b.ping(a)
        await trio.sleep(0.1)
        assert (a.rpc.open_connections, b.rpc.open_connections) == (0, 0)
        assert "a:1 stands" in a.seen(ConnectionClosed)[0].reason


@virtual
async def test_disjoint_versions_are_another_ring_for_the_dialler() -> None:
    network = MemoryNetwork()
    a = Peer(network.transport("a"), "a:1", versions=(1, 2))
    b = Peer(network.transport("b"), "b:1", versions=(3, 4))
    c = Peer(network.transport("c"), "c:1", versions=(2, 3))
    async with running(a, b, c):
        with pytest.raises(OtherRing, match="3 to 4 here, 1 to 2 there"):
            await a.ping(b)
        await a.ping(c)
        await c.ping(b)


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", MalformedMessage),
        (encode_hello(Hello(1, 1, "node", "bulk", bits=160, address="s:1")), MalformedMessage),
        (frame(FrameKind.ERROR, b"\x00"), MalformedMessage),
        (b"", PeerUnreachable),
    ],
)
def test_dial_of_a_host_with_another_protocol_fails(said: bytes, error: type[Exception]) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        a = Peer(network.transport("a"), "a:1")
        listener = await network.transport("s").open_listener("s:1")

        async def answer() -> None:
            stream = await listener.accept()
            await stream.send_all(said)
            await stream.aclose()

        async with running(a) as nursery:
            nursery.start_soon(answer)
            with pytest.raises(error):
                await a.ping("s:1")

    run(main)


@virtual
async def test_dial_without_an_answer_to_the_hello_is_unreachable() -> None:
    network = MemoryNetwork()
    a = Peer(network.transport("a"), "a:1", limits=limits(handshake_s=2.0))
    await network.transport("s").open_listener("s:1")
    async with running(a):
        with pytest.raises(PeerUnreachable, match="s:1: connected, but received no hello within 2 s"):
            await a.ping("s:1", 60)
        assert trio.current_time() == pytest.approx(2.0, abs=0.01)


# -- after the handshake ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "sentence"),
    {
        "an unknown kind": (b"\x09\x00\x00\x00", "unknown kind of frame: 9"),
        "a frame over the limit": (frame(FrameKind.CALL, bytes(65537)), "frame of 65537 bytes"),
        "a second hello": (HELLO, "a second hello"),
        "no CBOR": (frame(FrameKind.CALL, b"\xff"), "not strict CBOR"),
        "deep CBOR": (frame(FrameKind.CALL, b"\x81" * 17 + b"\x00"), "depth"),
        "a tag": (frame(FrameKind.CALL, b"\xd9\xd9\xf7\x85\x01\xf6\x01\x81\x01\x00"), "not strict CBOR"),
        "a map with numbers for keys": (frame(FrameKind.CALL, b"\xa1\x01\x02"), "not strict CBOR"),
        "no envelope": (frame(FrameKind.CALL, cbor2.dumps([1, None])), "the envelope is not an array of 5 fields"),
        "two messages in a frame": (
            frame(FrameKind.CALL, cbor2.dumps([1, None, 1, [1], 0]) * 2),
            "trailing bytes after",
        ),
        "a reply without envelope": (frame(FrameKind.REPLY, cbor2.dumps("hi")), "the envelope"),
        "an error without error": (frame(FrameKind.ERROR, cbor2.dumps([1, []])), "ErrorReply"),
        "a cast without tag": (frame(FrameKind.CAST, cbor2.dumps([])), "the cast"),
    }.values(),
)
def test_malformed_frame_ends_the_connection_with_a_reason(sent: bytes, sentence: str) -> None:
    async def main() -> None:
        async with node_and_stranger() as (node, raw, _):
            await raw.send(HELLO)
            assert (await raw.receive())[0] is FrameKind.HELLO
            await raw.send(ask("echo") + sent + ask("echo"))
            kind, body = await raw.receive()
            if (
                kind is FrameKind.REPLY
            ):  # one read is cut into frames at once, so a bad length leaves no answer
                kind, body = await raw.receive()
            assert kind is FrameKind.ERROR
            assert sentence in decode_refusal(body).message
            await raw.ended()
            await trio.sleep(0.01)
            assert sentence in node.seen(ConnectionClosed)[0].reason

    run(main)


@virtual
async def test_replies_after_a_malformed_frame_are_still_sent() -> None:
    async with node_and_stranger() as (node, raw, _):
        await raw.send(HELLO)
        await raw.receive()
        await raw.send(b"".join(ask(f"slow {i / 20} x", i) for i in range(1, 30)))
        await trio.sleep(0.2)
        await raw.send(b"\xff" * 4)
        kinds = [kind for kind, _ in raw.frames.feed(await raw.rest())]
        assert kinds.count(FrameKind.ERROR) == 1
        assert kinds.count(FrameKind.REPLY) > 10
        assert "unknown kind" in node.seen(ConnectionClosed)[0].reason
        assert node.rpc._shared.calls_in_work == 0


@virtual
async def test_malformed_call_gets_an_error_and_keeps_the_connection() -> None:
    async with node_and_stranger() as (_, raw, _):
        await raw.send(HELLO)
        assert (await raw.receive())[0] is FrameKind.HELLO
        for content, error in (
            ([999, "from the future"], UnknownRequest),
            ([32, 5], MalformedMessage),
            ([], MalformedMessage),
        ):
            await raw.send(call(*content, call_id=17))
            kind, body = await raw.receive()
            assert kind is FrameKind.ERROR
            call_id, answer = CODEC.decode_error(body)
            assert (call_id, type(answer)) == (17, error)
        await raw.send(ask("echo", 18))
        kind, body = await raw.receive()
        assert (kind, open_envelope(body, 2)[0]) == (FrameKind.REPLY, 18)


@virtual
async def test_replies_without_a_waiting_call_are_ignored() -> None:
    async with node_and_stranger() as (_, raw, _):
        await raw.send(HELLO + frame(FrameKind.REPLY, cbor2.dumps([5, [129]])) + CODEC.encode_error(6, Overloaded()))
        await raw.send(frame(FrameKind.CAST, cbor2.dumps([77])) + ask("echo", 3))
        assert [(await raw.receive())[0] for _ in range(2)] == [FrameKind.HELLO, FrameKind.REPLY]


@virtual
async def test_incomplete_frame_beyond_frame_s_ends_the_connection() -> None:
    async with node_and_stranger(frame_s=10.0) as (node, raw, _):
        await raw.send(HELLO)
        await raw.receive()
        question = ask("echo")
        await raw.send(question[:5])
        for _ in range(5):  # each frame is in time, though the stream always ends inside a frame
            await trio.sleep(9)
            await raw.send(question[5:] + question[:5])
            assert (await raw.receive())[0] is FrameKind.REPLY
        start = trio.current_time()
        for byte in question[5:12]:  # single bytes do not extend the time
            await raw.send(bytes([byte]))
            await trio.sleep(1.3)
        await raw.ended()
        assert trio.current_time() - start == pytest.approx(10.0, abs=0.1)
        assert node.seen(ConnectionClosed)[0].reason == "a frame was not complete within 10 s"


@pytest.mark.parametrize("seed", range(40))
def test_random_bytes_do_not_harm_the_node(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        async with node_and_stranger() as (_, raw, _):
            data = bytearray(HELLO + b"".join(ask(f"echo {i}", i) for i in range(1, 6)) + GOODBYE)
            for _ in range(rng.randrange(1, 5)):
                data[rng.randrange(len(HELLO) if rng.random() < 0.3 else len(data))] = rng.randrange(256)
            with suppress(trio.BrokenResourceError):
                for start in range(0, len(data), 40):
                    await raw.send(bytes(data[start : start + 40]))
                    await trio.sleep(rng.choice((0, 0.01)))
                await raw.stream.send_eof()
            with trio.fail_after(30):
                await raw.rest()

    run(main, seed=seed)


# -- limits: at the edge and beyond it -------------------------------------------------------------


async def overload(asker: Peer, asked: Peer, calls: int) -> list[Any]:
    """Make calls that wait; return the errors of the calls that are refused at once."""
    refused: list[Any] = []
    async with trio.open_nursery() as nursery:
        for _ in range(calls):
            nursery.start_soon(outcome, asker.get(asked, "never", 60), refused)
        await trio.sleep(1)
        await asker.ping(asked)  # the limit does not apply to calls that are answered at once
        nursery.cancel_scope.cancel()
    return refused


@virtual
async def test_calls_beyond_calls_per_connection_max_are_refused() -> None:
    a, b = pair(MemoryNetwork(), limits=limits(calls_per_connection_max=8))
    async with running(a, b):
        assert await overload(a, b, 8) == []
    a, b = pair(MemoryNetwork(), limits=limits(calls_per_connection_max=8))
    async with running(a, b):
        (refused,) = await overload(a, b, 9)
        assert isinstance(refused, Overloaded)
        assert refused.message == "8 calls of this connection are in work"


@virtual
async def test_calls_beyond_calls_max_are_refused() -> None:
    network = MemoryNetwork()
    node = Peer(network.transport("n"), "n:1", limits=limits(calls_max=10, clients_share=1.0))
    askers = [Peer(network.transport(f"c{i}")) for i in range(4)]
    refused: list[Any] = []

    async def ask(asker: Peer) -> None:
        refused.extend(await overload(asker, node, 3))

    async with running(node, *askers), trio.open_nursery() as nursery:
        for asker in askers:
            nursery.start_soon(ask, asker)
    assert [error.message for error in refused] == ["10 calls are in work"] * 2


@virtual
async def test_calls_beyond_inflight_bytes_max_are_refused() -> None:
    a, b = pair(MemoryNetwork(), limits=limits(inflight_bytes_max=100_000, clients_share=1.0))
    outcomes: list[Any] = []
    async with running(a, b), trio.open_nursery() as nursery:
        for _ in range(10):
            put = Put(b"k", bytes(9_900), bytes(16))
            nursery.start_soon(outcome, a.rpc.call("b:1", put, deadline=trio.current_time() + 60), outcomes)
        await trio.sleep(1)
        assert outcomes == []
        await outcome(a.rpc.call("b:1", put, deadline=trio.current_time() + 60), outcomes)
        assert isinstance(outcomes[0], Overloaded)
        b.gate.set()
        await trio.sleep(1)
        assert len(outcomes) == 11
        await a.rpc.call("b:1", put, deadline=trio.current_time() + 60)  # the calls have ended, so there is room


@virtual
async def test_connections_beyond_connections_max_are_refused() -> None:
    network = MemoryNetwork()
    node = Peer(network.transport("n"), "n:1", limits=limits(connections_max=3, clients_share=1.0))
    clients = [Peer(network.transport(f"c{i}")) for i in range(4)]
    async with running(node, *clients):
        for client in clients[:3]:
            await client.ping(node)
        with pytest.raises(Overloaded, match="3 connections are open here"):
            await clients[3].ping(node)
        assert node.seen(ConnectionRefused)[0].address == "c3"
        clients[0].scope.cancel()
        await trio.sleep(0.1)
        await clients[3].ping(node)


@virtual
async def test_connections_beyond_connections_per_host_max_are_refused() -> None:
    network = MemoryNetwork()
    node = Peer(network.transport("n"), "n:1", limits=limits(connections_per_host_max=2))
    clients = [Peer(network.transport("c")) for _ in range(3)]
    other = Peer(network.transport("d"))
    async with running(node, *clients, other):
        for client in clients[:2]:
            await client.ping(node)
        with pytest.raises(Overloaded, match="2 connections from c are open here"):
            await clients[2].ping(node)
        await other.ping(node)
        clients[0].scope.cancel()
        await trio.sleep(0.1)
        await clients[2].ping(node)


@virtual
async def test_peer_that_does_not_read_is_cut_with_bounded_memory() -> None:
    async with node_and_stranger(buffer_bytes_max=100_000, stuck_s=10.0) as (node, raw, _):
        await raw.send(HELLO)
        await raw.receive()
        start = trio.current_time()
        for i in range(40):
            await raw.send(ask("big 10000", i + 1))
        await trio.sleep(1)
        (link,) = node.rpc._shared.running
        assert 65_536 < link._send_buffer.buffered < 120_000
        await trio.sleep(10)
        assert trio.current_time() - start > 10
        assert node.seen(ConnectionClosed)[0].reason == "a write did not finish within 10 s"
        answers = raw.frames.feed(await raw.rest())
        assert {kind for kind, _ in answers} == {FrameKind.REPLY}


@virtual
async def test_refusals_to_a_peer_that_does_not_read_are_bounded() -> None:
    changes: dict[str, float] = {"buffer_bytes_max": 20_000, "frame_bulk_bytes_max": 66_000, "record_bytes_max": 1000}
    async with node_and_stranger(**changes) as (node, raw, _):
        await raw.send(HELLO)
        await raw.receive()
        with suppress(trio.BrokenResourceError):
            while trio.current_time() < 9:
                await raw.send(b"".join(ask("big 2000", i) for i in range(1, 1000)))
        assert node.seen(ConnectionClosed)[0].reason == "the peer sends requests and does not read the answers"


@virtual
async def test_slow_reader_is_not_cut() -> None:
    network = MemoryNetwork(window_bytes=4096)
    node = Peer(network.transport("n"), "n:1", limits=limits(stuck_s=10.0))
    async with running(node):
        raw = await Raw.dial(network.transport("s"), node, stream="bulk")
        await raw.send(ask(f"big {MIB}"))
        received = 0
        while received < MIB:  # 64 KiB in 8 s
            received += len(await raw.stream.receive_some(4096))
            await trio.sleep(0.5)
        assert not node.seen(ConnectionClosed)


@virtual
async def test_late_replies_wait_for_room_and_none_is_lost() -> None:
    a, b = pair(MemoryNetwork(window_bytes=4096), limits=limits(buffer_bytes_max=50_000))

    async def late() -> GetReply:
        await trio.sleep(0.1)
        return GetReply((bytes(15_000),), b"", OWNER)

    b.rpc.serve(lambda vnode, request, caller: late())
    buffered: list[int] = []
    outcomes: list[Any] = []
    async with running(a, b), trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(outcome, a.get(b, "x", 60), outcomes)
        while len(outcomes) < 60:
            await trio.sleep(0.01)
            buffered += [link._send_buffer.buffered for link in b.rpc._shared.running]
    assert [len(value) for value in outcomes] == [15_000] * 60
    assert max(buffered) < 70_000


@virtual
async def test_calls_without_room_wait_or_end_with_a_definite_error() -> None:
    network = MemoryNetwork(window_bytes=4096)
    a, b = pair(network, limits=limits(buffer_bytes_max=50_000, stuck_s=60.0))
    b.gate.set()
    outcomes: list[Any] = []

    def put(within: float) -> Any:
        return a.rpc.call("b:1", Put(b"k", bytes(15_000), bytes(16)), deadline=trio.current_time() + within)

    async with running(a, b), trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(outcome, put(30), outcomes)
        await trio.sleep(10)
        assert len(outcomes) == 20
        assert not any(isinstance(one, Exception) for one in outcomes)
        network.freeze("b")
        outcomes.clear()
        for _ in range(10):
            nursery.start_soon(outcome, put(5), outcomes)
        await trio.sleep(6)
        assert {type(one).__name__ for one in outcomes} == {"DeadlineExceeded", "PeerUnreachable"}
        assert any("does not read the bytes sent to it" in one.message for one in outcomes)


@virtual
async def test_vanished_peer_is_lost_when_a_write_gets_stuck() -> None:
    network = MemoryNetwork(window_bytes=4096)
    a, b = pair(network, limits=limits(stuck_s=10.0))
    outcomes: list[Any] = []
    async with running(a, b):
        await a.ping(b)
        b.scope.cancel()
        network.crash("b", silently=True)
        put = Put(b"k", bytes(15_000), bytes(16))
        await outcome(a.rpc.call("b:1", put, deadline=trio.current_time() + 60), outcomes)
        assert isinstance(outcomes[0], PeerLost)
        assert "a write did not finish within 10 s" in outcomes[0].message


@virtual
async def test_frame_at_the_control_limit_uses_the_control_stream() -> None:
    a, b = pair(MemoryNetwork(), limits=limits(bulk_from_bytes=1000, frame_control_bytes_max=1001))
    b.gate.set()
    async with running(a, b):
        overhead = len(CODEC.encode_call(1, None, 1, Put(b"k", b"", bytes(16)), 0)) - 4 + 2
        for size, streams in ((1000 - overhead, ["control"]), (1001 - overhead, ["control", "bulk"])):
            await a.rpc.call("b:1", Put(b"k", bytes(size), bytes(16)), deadline=trio.current_time() + 5)
            assert [event.stream for event in a.seen(ConnectionOpened)] == streams


@pytest.mark.parametrize("bits", [3, 8, 13, 160])
def test_calls_work_on_circles_of_any_width(bits: int) -> None:
    async def main() -> None:
        network = MemoryNetwork()
        circle = Circle(bits)
        a, b = (Peer(network.transport(host), f"{host}:1", circle=circle) for host in "ab")
        async with running(a, b):
            for number in (0, 1, circle.size - 1):
                await a.rpc.call(Contact(circle.point(number), "b:1"), Ping(), deadline=trio.current_time() + 5)
            assert [vnode for vnode, _, _ in b.asked] == [0, 1, circle.size - 1]

    run(main)


def test_limits_reject_zero_and_negative_values() -> None:
    check: Callable[..., Any] = Limits
    for name in Limits.__struct_fields__:
        with pytest.raises(ConfigError):
            check(**{name: -1 if name.startswith("reap_log") else 0})

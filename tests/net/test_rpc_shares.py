"""Limits across connections: unfinished frames, and the shares of clients in calls and connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from chord.config import Limits
from chord.errors import ConfigError, MalformedMessage, Overloaded
from chord.events import ConnectionClosed
from chord.ids import Point
from chord.net.calls import Caller
from chord.net.handshake import HELLO_BYTES_MAX
from chord.testing import MemoryNetwork
from chord.wire import messages
from chord.wire.codec import FrameKind, encode_hello
from chord.wire.messages import Get, GetSums, Hello, Put, Request
from tests.support.rpc import CODEC, MIB, Peer, Raw, limits, outcome, running, virtual

BODY = MIB + 64 * 1024
SHARED = {"partial_bytes_max": 4 * MIB}


def half(size: int = BODY, *, missing: int = 1) -> bytes:
    """Return a frame without its last bytes."""
    return (FrameKind.CALL << 24 | size).to_bytes(4, "big") + bytes(size - missing)


class Node:
    """A node and raw streams to it."""

    def __init__(self, **changes: float) -> None:
        self.network = MemoryNetwork()
        self.peer = Peer(self.network.transport("n"), "n:1", limits=limits(**changes))

    @property
    def shared(self) -> Any:
        return self.peer.rpc._shared

    async def dial(self, host: str, **hello: Any) -> Raw:
        return await Raw.dial(self.network.transport(host), "n:1", **{"stream": "bulk", **hello})

    async def dial_as_node(self, host: str, stream: str = "bulk") -> Raw:
        said = {"role": "node", "address": f"{host}:1", "bits": 160, "successors": 8, "replicas": 1}
        return await self.dial(host, stream=stream, cluster="test", incarnation=b"incarnat", **said)


@asynccontextmanager
async def node(**changes: float) -> AsyncIterator[Node]:
    made = Node(**changes)
    async with running(made.peer):
        yield made


# -- unfinished frames -----------------------------------------------------------------------------------


@virtual
async def test_unfinished_frames_stay_below_partial_bytes_max() -> None:
    async with node(**SHARED) as one:
        streams = []
        for number in range(40):
            streams.append(raw := await one.dial(f"s{number}"))
            await raw.send(half())
            await trio.sleep(0.1)
            assert one.shared.partial_bytes == sum(link._frames.partial_bytes for link in one.shared.running)
            assert one.shared.partial_bytes <= SHARED["partial_bytes_max"]
        closed = one.peer.seen(ConnectionClosed)
        assert len(closed) == 40 - SHARED["partial_bytes_max"] // (BODY + 3)
        assert {event.reason for event in closed} == {
            "more than 4194304 bytes of unfinished frames are held here, and yours is the oldest"
        }
        kind, _ = await streams[0].receive()
        assert kind is FrameKind.ERROR, "the peer gets the reason"
        await trio.sleep(20)
        assert one.shared.partial_bytes == 0, "frames that timed out do not count"


@virtual
async def test_unfinished_frames_up_to_the_limit_are_kept() -> None:
    size = BODY + 4 - 1
    async with node(partial_bytes_max=3 * size) as one:
        for number in range(3):
            await (await one.dial(f"s{number}")).send(half())
            await trio.sleep(0.1)
        assert one.shared.partial_bytes == 3 * size
        assert not one.peer.seen(ConnectionClosed)
        late = await one.dial("late")
        await late.send(half()[:5])
        await trio.sleep(0.1)
        assert len(one.peer.seen(ConnectionClosed)) == 1
        assert one.shared.partial_bytes == 2 * size + 5


@virtual
async def test_unfinished_frames_of_clients_go_before_those_of_nodes() -> None:
    async with node(**SHARED) as one:
        peer = await one.dial_as_node("p")
        await peer.send(half())
        for number in range(8):
            await (await one.dial(f"s{number}")).send(half())
            await trio.sleep(0.1)
        assert "p:1" in [link.address for link in one.shared.running], "its frame is the oldest, but nodes come last"
        key = CODEC.encode_call(1, None, 60_000, Put(b"k", bytes(MIB), bytes(16)), 0)
        other = await one.dial_as_node("q")
        one.peer.gate.set()
        for start in range(0, len(key), 100_000):
            await other.send(key[start : start + 100_000])
            await trio.sleep(0.2)
        kind, _ = await other.receive()
        assert kind is FrameKind.REPLY, "a frame that arrives completely is answered"


@virtual
async def test_frame_in_pieces_counts_once_until_it_is_complete() -> None:
    async with node() as one:
        raw = await one.dial("s")
        frame = CODEC.encode_call(1, None, 60_000, Get(b"echo " + bytes(800)), 0)
        for number in range(3):
            for size, piece in ((len(frame) - 10, frame[:-10]), (0, frame[-10:])):
                await raw.send(piece)
                await trio.sleep(0.1)
                assert one.shared.partial_bytes == size, number
        await raw.send(frame[:100])
        await trio.sleep(0.1)
        await raw.stream.aclose()
        await trio.sleep(0.1)
        assert one.shared.partial_bytes == 0


@virtual
async def test_first_frame_has_a_smaller_limit() -> None:
    hello = encode_hello(Hello(1, 1, "client", "bulk", cuts=True))
    body = hello[4:]
    assert HELLO_BYTES_MAX == 16 * 1024
    async with node() as one:
        for size, is_refused in ((HELLO_BYTES_MAX, False), (HELLO_BYTES_MAX + 1, True)):
            filler = size - len(body) - 3  # a field of a later version
            head = bytes((body[0] + 1,))
            padded = head + body[1:] + b"\x59" + filler.to_bytes(2, "big") + bytes(filler)
            raw = Raw(await one.network.transport("s").open_stream("n:1"))
            await raw.send((FrameKind.HELLO << 24 | len(padded)).to_bytes(4, "big") + padded)
            if is_refused:
                assert "the limit here is 16384" in (await raw.refusal()).message
            else:
                assert (await raw.receive())[0] is FrameKind.HELLO


# -- items -----------------------------------------------------------------------------------------------


@virtual
async def test_frame_of_too_many_items_ends_the_connection() -> None:
    async with node() as one:
        raw = await one.dial("s")
        inner = Limits().frame_items_max
        content = b"\x82\x18\x21\x9a" + inner.to_bytes(4, "big") + b"\x80" * inner
        body = b"\x85\x01\xf6\x1a\x00\x00\xff\xff" + content + b"\x00"
        await raw.send((FrameKind.CALL << 24 | len(body)).to_bytes(4, "big") + body)
        error = await raw.refusal()
        assert isinstance(error, MalformedMessage)
        assert error.message == "a frame of more than 65536 items; that is the limit"
        assert not one.peer.asked


@virtual
async def test_body_with_invalid_cbor_ends_the_connection() -> None:
    async with node() as one:
        for body in (b"\xff", b"\x85\x01", b"\x85\x01\xf6\x1a\x00\x00\xff\xff\x9f\xff"):
            raw = await one.dial("s")
            await raw.send((FrameKind.CALL << 24 | len(body)).to_bytes(4, "big") + body)
            assert isinstance(await raw.refusal(), MalformedMessage)


# -- the share of nodes ----------------------------------------------------------------------------------


async def wait_for_ever(vnode: Point | None, request: Request, caller: Caller) -> Any:
    await trio.sleep_forever()


@virtual
async def test_calls_for_clients_leave_their_share_to_nodes() -> None:
    """A node that forwards a client's call counts as a client, too."""
    for asker_address in ("", "a:1"):
        one = Node(calls_max=8, clients_share=0.75)
        asker = Peer(one.network.transport("a"), asker_address)
        node_ = Peer(one.network.transport("b"), "b:1")
        one.peer.rpc.serve(wait_for_ever)
        async with running(one.peer, asker, node_), trio.open_nursery() as nursery:
            refused: list[Any] = []
            for _ in range(6):
                nursery.start_soon(outcome, asker.get("n:1", "k", 60), refused)
            await trio.sleep(1)
            assert refused == [], "the limit is not exceeded"
            await outcome(asker.get("n:1", "k", 60), refused)
            assert isinstance(refused[0], Overloaded)
            assert refused[0].message == "6 calls of clients are in work"
            sums = GetSums(Point(1), Point(2), 0, (0,))
            of_nodes: list[Any] = []
            for _ in range(2):
                deadline = trio.current_time() + 60
                nursery.start_soon(outcome, node_.rpc.call("n:1", sums, deadline=deadline), of_nodes)
            await trio.sleep(1)
            assert of_nodes == [], "nodes have their own share"
            await outcome(node_.rpc.call("n:1", sums, deadline=trio.current_time() + 60), of_nodes)
            assert of_nodes[0].message == "8 calls are in work"
            nursery.cancel_scope.cancel()
        assert (one.shared.client_calls_in_work, one.shared.client_bytes_in_work) == (0, 0)


@virtual
async def test_bytes_for_clients_leave_their_share_to_nodes() -> None:
    one = Node(inflight_bytes_max=100_000, clients_share=0.5)
    client = Peer(one.network.transport("c"))
    async with running(one.peer, client), trio.open_nursery() as nursery:
        refused: list[Any] = []
        for _ in range(6):
            put = Put(b"k", bytes(9_900), bytes(16))
            nursery.start_soon(outcome, client.rpc.call("n:1", put, deadline=trio.current_time() + 60), refused)
        await trio.sleep(1)
        (error,) = refused
        assert isinstance(error, Overloaded)
        assert "bytes of calls of clients are in work" in error.message
        nursery.cancel_scope.cancel()


@virtual
async def test_connections_of_clients_leave_their_share_to_nodes() -> None:
    async with node(connections_max=8, clients_share=0.75) as one:
        clients = [await one.dial(f"c{number}") for number in range(6)]
        raw = Raw(await one.network.transport("c").open_stream("n:1"))
        await raw.send(encode_hello(Hello(1, 1, "client", "bulk")))
        assert (await raw.refusal()).message == "6 connections of clients are open here; that is the limit"
        for name in "pq":
            await one.dial_as_node(name)
        raw = Raw(await one.network.transport("r").open_stream("n:1"))
        assert (await raw.refusal()).message == "8 connections are open here; that is the limit"
        await clients[0].stream.aclose()
        await trio.sleep(0.1)
        await one.dial("again")


# -- nodes behind one address ----------------------------------------------------------------------------


@virtual
async def test_nodes_do_not_count_towards_connections_per_host_max() -> None:
    """40 nodes with two streams each share an address, as behind a NAT."""
    one = Node(connections_per_host_max=4)
    peers = [Peer(one.network.transport("gateway"), f"gateway:{number}") for number in range(1, 41)]
    async with running(one.peer, *peers):
        for peer in peers:
            await peer.ping("n:1")
            deadline = trio.current_time() + 60
            one.peer.gate.set()
            await peer.rpc.call("n:1", Put(b"k", bytes(20_000), bytes(16)), deadline=deadline)
        assert one.peer.rpc.open_connections == 80
        for _ in range(4):
            await one.dial("gateway")
        raw = Raw(await one.network.transport("gateway").open_stream("n:1"))
        assert (await raw.refusal()).message == "4 connections from gateway are open here; that is the limit"
        await peers[0].ping("n:1")
    assert not one.peer.rpc._accepted_from
    assert (one.peer.rpc._accepted, one.peer.rpc._clients) == (0, 0)


@virtual
async def test_connections_without_a_hello_count_per_host() -> None:
    async with node(connections_per_host_max=4, handshake_s=5.0) as one:
        transport = one.network.transport("s")
        streams = [await transport.open_stream("n:1") for _ in range(4)]
        await trio.sleep(0.1)
        assert "4 connections from s" in (await Raw(await transport.open_stream("n:1")).refusal()).message
        await trio.sleep(7)
        await one.dial("s")
        for stream in streams:
            await stream.aclose()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"partial_bytes_max": BODY - 1}, "partial_bytes_max"),
        ({"frame_items_max": 64 * 1024 - 1}, "frame_items_max"),
        ({"clients_share": 1.01}, "clients_share"),
        ({"clients_share": 0.0}, "clients_share"),
    ],
)
def test_limits_that_contradict_each_other_are_refused(changes: dict[str, float], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Limits(**changes)  # type: ignore[arg-type]
    Limits(partial_bytes_max=BODY, frame_items_max=64 * 1024, clients_share=1.0)


def test_requests_of_clients_are_marked() -> None:
    """The list of requests that clients send and nodes forward. A new request must be added here if it is marked."""
    marked = {request.__name__ for request in messages.REQUESTS if request.for_clients}
    assert marked == {
        "Get", "Put", "Merge", "Scan", "GetMany", "PutMany", "GetQuarantine", "DecideQuarantine", "ReadDigest",
        "ScanCut", "GetCutNotes", "Describe", "GetEvents", "GetMetrics", "Sample", "Density",
    }  # fmt: skip

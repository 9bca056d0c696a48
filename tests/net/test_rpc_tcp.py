"""Calls over real sockets, with their direct writes and their ways to fail."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import pytest
import trio

from chord.errors import Overloaded, PeerLost, PeerUnreachable
from chord.events import ConnectionClosed, ConnectionOpened, HandlerFailed
from chord.net.transport import TcpTransport
from chord.wire.codec import encode_hello
from chord.wire.messages import Get, Hello, Put
from tests.support.clocks import on_loopback
from tests.support.ports import Ports
from tests.support.rpc import CODEC, MIB, Peer, Raw, limits, outcome, running, until

TCP = TcpTransport()


def node(**options: Any) -> Peer:
    return Peer(TCP, "127.0.0.1:0", **options)


@on_loopback
async def test_calls_in_both_directions_share_a_connection() -> None:
    a, b = node(), node()
    async with running(a, b):
        await a.ping(b)

        async def ask(one: Peer, other: Peer, i: int) -> None:
            for j in range(5):
                assert await one.get(other, f"echo {i} {j}") == f"echo {i} {j}".encode()

        async with trio.open_nursery() as nursery:
            for i in range(100):
                nursery.start_soon(ask, a, b, i)
                nursery.start_soon(ask, b, a, i)
        assert (a.rpc.open_connections, b.rpc.open_connections) == (1, 1)
        assert a.rpc.stats.bytes_sent == b.rpc.stats.bytes_received


@on_loopback
async def test_large_values_in_both_directions_arrive() -> None:
    a, b = node(), node()
    b.gate.set()
    outcomes: list[Any] = []
    async with running(a, b):
        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(outcome, a.get(b, f"big {MIB}", 30), outcomes)
                nursery.start_soon(outcome, b.get(a, f"big {MIB}", 30), outcomes)
        assert [len(value) for value in outcomes] == [MIB] * 8
        put = Put(b"k", bytes(MIB), bytes(16))
        await a.rpc.call(b.address, put, deadline=trio.current_time() + 30)
        assert not a.seen(HandlerFailed)


@on_loopback
async def test_crossing_dials_leave_one_connection() -> None:
    a, b = node(), node()
    async with running(a, b):
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(a.get, b, "echo")
                nursery.start_soon(b.get, a, "echo")
        await until(lambda: (a.rpc.open_connections, b.rpc.open_connections) == (1, 1))
        assert {event.reason for event in a.seen(ConnectionClosed)} <= {"drained", "closed by the peer"}


@on_loopback
async def test_stopped_peer_loses_calls_refuses_them_and_returns(ports: Ports) -> None:
    a, b = node(), Peer(TCP, ports.address())
    outcomes: list[Any] = []
    async with running(a) as nursery:
        await nursery.start(b.run)
        address = b.address
        async with trio.open_nursery() as asking:
            asking.start_soon(outcome, a.get(address, "never"), outcomes)
            await until(lambda: b.asked)
            b.scope.cancel()
        assert isinstance(outcomes[0], PeerLost)
        with pytest.raises(PeerUnreachable, match="refused"):
            await a.ping(address)
        again = Peer(TCP, address)
        await nursery.start(again.run)
        await a.ping(address)


@on_loopback
async def test_refusal_of_an_excess_connection_always_arrives() -> None:
    full = node(limits=limits(connections_max=1))
    first = Peer(TCP)
    async with running(full, first) as nursery:
        await first.ping(full)
        for _ in range(30):
            other = Peer(TCP)
            await nursery.start(other.run)
            with pytest.raises(Overloaded, match="1 connections are open here"):
                await other.ping(full)
            other.scope.cancel()
        await first.ping(full)


@pytest.mark.slow
@on_loopback
async def test_hostile_bytes_are_refused_and_harm_no_other_client() -> None:
    victim, friend = node(), Peer(TCP)
    hello = encode_hello(Hello(1, 1, "client", "control"))
    async with running(victim, friend):
        for first in (
            b"GET / HTTP/1.1\r\n\r\n" + bytes(100_000),
            b"\x01\xff\xff\xff",
            hello[:4] + b"\xff" * (len(hello) - 4),
        ):
            raw = Raw(await TCP.open_stream(victim.address))
            await raw.send(first)
            await raw.refusal()
        for later in (b"\x02\x00\x00\x03\x81\x81\x81", b"\x07\x00\x00\x00", b"\x02\xff\xff\xff" + bytes(200_000)):
            raw = await Raw.dial(TCP, victim)
            await raw.send(later)
            await raw.refusal()
        await friend.ping(victim)
        assert not victim.seen(HandlerFailed)


@on_loopback
async def test_reset_during_a_call_ends_its_handler() -> None:
    victim, friend = node(), Peer(TCP)
    async with running(victim, friend):
        stream = await TCP.open_stream(victim.address)
        await stream.send_all(encode_hello(Hello(1, 1, "client", "control")))
        await stream.receive_some()

        await stream.send_all(CODEC.encode_call(1, None, 60_000, Get(b"never"), 0))
        await until(lambda: victim.asked)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        await stream.aclose()
        await until(lambda: victim.cancelled_at)
        await friend.ping(victim)
        assert victim.rpc._shared.calls_in_work == 0


@on_loopback
async def test_flood_without_reading_is_bounded_and_cut() -> None:
    victim = node(limits=limits(buffer_bytes_max=1 << 20, stuck_s=0.3))
    friend = Peer(TCP)
    async with running(victim, friend), trio.open_nursery() as nursery:
        raw = await Raw.dial(TCP, victim, stream="bulk")

        async def flood() -> None:
            question = b"".join(CODEC.encode_call(i, None, 60_000, Get(b"big 200000"), 0) for i in range(1, 50))
            with suppress(trio.BrokenResourceError):
                while True:
                    await raw.send(question)

        def handle(*call: Any) -> Any:
            high[0] = max(high[0], *(link._send_buffer.buffered for link in victim.rpc._shared.running))
            return victim.handle(*call)

        high = [0]
        victim.rpc.serve(handle)
        nursery.start_soon(flood)
        with trio.fail_after(10):
            while not victim.seen(ConnectionClosed):
                await friend.ping(victim)
                await trio.sleep(0.05)
        assert 1 << 20 < high[0] < 8 << 20
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(raw.stream)


@on_loopback
async def test_idle_connections_close() -> None:
    a, b = node(limits=limits(idle_s=0.1)), node(limits=limits(idle_s=0.1))
    async with running(a, b):
        for _ in range(3):
            await a.ping(b)
            await trio.sleep(0.25)
        assert len(a.seen(ConnectionOpened)) >= 2
        assert {event.reason for event in a.seen(ConnectionClosed)} <= {"drained", "closed by the peer"}

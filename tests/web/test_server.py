"""The server on real sockets: stalled readers, and the end."""

from __future__ import annotations

import socket
from contextlib import AsyncExitStack, suppress

import pytest
import trio
import trio.lowlevel
import trio.testing

from chord.web import listening
from chord.web.hub import QUEUE_MAX, EventHub
from chord.web.listening import listening_socket, serve_app
from tests.support.real_rings import HANG_S
from tests.support.statuses import statuses
from tests.support.web import Ring, WebClient, app_of

READERS = 10
TIMEOUT_S = 0.5
LARGE = b"event: test\ndata: " + b"x" * 300_000 + b"\n\n"


def stalled_reader(address: tuple[str, int]) -> socket.socket:
    """Open the event stream, and read nothing."""
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    reader.connect(address)
    reader.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return reader


def tasks() -> int:
    return trio.lowlevel.current_statistics().tasks_living


async def joined(hub: EventHub, count: int) -> None:
    while len(hub.readers) < count:
        await trio.sleep(0.01)


async def test_page_is_served_until_the_end() -> None:
    ring = Ring(statuses())
    listener = listening_socket("127.0.0.1:0")
    address = listener.getsockname()
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_app, app_of(ring.origin), listener)
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(CHECK)
                answer = b"".join([part async for part in stream])
            nursery.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"settled":true' in answer
    with pytest.raises(OSError, match="failed"):
        await trio.open_tcp_stream(*address)


CHECK = b"GET /api/v1/check HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
BROKEN = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\n"
    b"Upgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"
    + b"".join(b"\0\0\x05\x02\0" + (2 * n + 1).to_bytes(4, "big") + b"\0\0\0\0\x10" for n in range(1100)),
)
"""Bytes that end Hypercorn's server: a bad upgrade to HTTP/2, and priorities of too many streams."""


@pytest.mark.parametrize("content", BROKEN, ids=("upgrade", "priorities"))
async def test_bytes_that_end_hypercorn_do_not_end_the_server(content: bytes) -> None:
    listener = listening_socket("127.0.0.1:0")
    address = listener.getsockname()
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_app, app_of(Ring(statuses()).origin), listener)
            for sent in (content, content, CHECK):
                async with await trio.open_tcp_stream(*address) as stream:
                    answer = b""
                    with suppress(trio.BrokenResourceError):
                        await stream.send_all(sent)
                        answer = b"".join([part async for part in stream])
            nursery.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 200")


async def test_new_connection_ends_the_oldest_beyond_the_limit() -> None:
    listener = listening_socket("127.0.0.1:0")
    address = listener.getsockname()
    with trio.fail_after(HANG_S):
        async with AsyncExitStack() as stack, trio.open_nursery() as nursery:
            await nursery.start(serve_app, app_of(Ring(statuses()).origin), listener, 3)
            idle = [await stack.enter_async_context(await trio.open_tcp_stream(*address)) for _ in range(3)]
            async with await trio.open_tcp_stream(*address) as stream:
                await stream.send_all(CHECK)
                answer = b"".join([part async for part in stream])
            assert await idle[0].receive_some() == b""
            await idle[1].send_all(CHECK)
            assert (await idle[1].receive_some()).startswith(b"HTTP/1.1 200")
            nursery.cancel_scope.cancel()
    assert answer.startswith(b"HTTP/1.1 200")


@pytest.mark.skipif(not listening.has_user_timeout(), reason="this system cannot give up stalled readers")
async def test_stalled_readers_leave_no_task_behind() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    listener = listening_socket("127.0.0.1:0", TIMEOUT_S)
    address = listener.getsockname()
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_app, app_of(ring.origin, hub), listener)
            await trio.testing.wait_all_tasks_blocked()
            before = tasks()
            readers = [stalled_reader(address) for _ in range(READERS)]
            await joined(hub, READERS)
            while hub.readers:
                hub.send(LARGE)
                await trio.lowlevel.checkpoint()
            assert hub.dropped == READERS
            while tasks() > before:
                await trio.sleep(0.05)
            for reader in readers:
                reader.close()
            nursery.cancel_scope.cancel()


async def test_server_ends_with_stalled_readers() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin)
    listener = listening_socket("127.0.0.1:0", 2 * HANG_S)
    address = listener.getsockname()
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            await nursery.start(serve_app, app_of(ring.origin, hub), listener)
            readers = [stalled_reader(address) for _ in range(READERS)]
            await joined(hub, READERS)
            for _ in range(QUEUE_MAX // 2):
                hub.send(LARGE)
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    for reader in readers:
        reader.close()


async def test_readers_are_limited_without_a_timeout() -> None:
    ring = Ring(statuses())
    hub = EventHub(ring.origin, readers_max=2)
    readers = [hub.join() for _ in range(2)]
    answer = await WebClient(app_of(ring.origin, hub)).get("/api/v1/events")
    assert (answer.status, answer.json["error"]["code"]) == (503, "too_many_readers")
    hub.leave(readers[0])
    assert hub.join()

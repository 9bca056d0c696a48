"""The asyncio client: cancellation, deadlines, tasks, connections. `test_client.py` has the operations."""

from __future__ import annotations

import asyncio
import functools
import socket
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

import chord
from chord.client import asyncio_client
from chord.config import Limits
from chord.errors import ChordError, DeadlineExceeded, InvalidRequest, PeerUnreachable
from chord.wire.messages import Get, GetStatus, Put
from tests.support.clients import Store
from tests.support.fake_node import GO_AWAY, HANG_UP, SILENCE, Answer, Heard, fake_node
from tests.support.ports import UNUSED, Ports
from tests.support.real_rings import HANG_S

SOON_S = 0.05
"""Long enough for a request to be sent, and short enough for a test."""


def on_asyncio(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test in its own event loop. A task that the test leaves behind is a failure."""

    @functools.wraps(test)
    def wrapper(**fixtures: object) -> None:
        async def main() -> None:
            async with asyncio.timeout(HANG_S):
                await test(**fixtures)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())

    return wrapper


class Slow(Store):
    """A store that does not answer a request for the key `never`. The request sets `is_asked`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_asked = threading.Event()

    def __call__(self, heard: Heard) -> Answer:
        if getattr(heard.request, "key", None) == b"never":
            self.is_asked.set()
            return SILENCE
        return super().__call__(heard)

    async def wait(self) -> None:
        """Wait until the request has come."""
        while not self.is_asked.is_set():
            await asyncio.sleep(0.001)


async def open_and_close(opening: AbstractAsyncContextManager[object]) -> None:
    async with opening:
        pass


@pytest.mark.parametrize(
    ("opens", "hint"),
    [
        (lambda: chord.open_client(UNUSED), "chord.open_client needs Trio, .*use chord.open_asyncio_client"),
        (chord.open_node, "chord.open_node needs Trio, .*connect with chord.open_asyncio_client"),
    ],
)
def test_trio_entry_on_asyncio_names_the_asyncio_client(
    opens: Callable[[], AbstractAsyncContextManager[object]], hint: str
) -> None:
    with pytest.raises(InvalidRequest, match=hint):
        asyncio.run(open_and_close(opens()))


def test_asyncio_client_on_trio_names_the_trio_client() -> None:
    with pytest.raises(InvalidRequest, match=r"needs asyncio, .*use chord\.open_client"):
        trio.run(open_and_close, chord.open_asyncio_client(UNUSED))


@on_asyncio
async def test_cancelled_operation_leaves_the_client_usable() -> None:
    store = Slow()
    with fake_node(store) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            task = asyncio.create_task(client.get("never"))
            await store.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.put("k", "v")
            assert (await client.get("k")).text == "v"
            (link,) = client._connections._links.values()
            assert not link.stream.is_waiting()
        assert node.connections == 1


@on_asyncio
async def test_cancelled_group_of_calls_ends_all_of_them() -> None:
    store = Slow()
    with fake_node(store) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            task = asyncio.create_task(client.members(only=[node.address, "127.0.0.1:1"]))
            waiting = asyncio.create_task(client.get("never"))
            await store.wait()
            for one in (task, waiting):
                one.cancel()
            outcomes = await asyncio.gather(task, waiting, return_exceptions=True)
            assert isinstance(outcomes[1], asyncio.CancelledError)
            assert (await client.status()).ring == b"R" * 16


@on_asyncio
async def test_timeout_of_the_caller_ends_an_operation_early() -> None:
    with fake_node(Slow()) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(SOON_S):
                    await client.put("never", "v")
            await client.put("k", "v")


@on_asyncio
async def test_timeout_of_the_client_is_an_indefinite_error() -> None:
    with fake_node(Slow()) as node:
        async with chord.open_asyncio_client(node.address) as client:
            assert client.timeout_s == 5.0
            client.timeout_s = SOON_S
            with pytest.raises(DeadlineExceeded, match=r"no answer from|not done within"):
                await client.put("never", "v")
            client.timeout_s = HANG_S
            await client.put("k", "v")


@on_asyncio
async def test_cancelled_opening_closes_its_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SOON_S), chord.open_asyncio_client(address, timeout_s=HANG_S):
                raise AssertionError("a node that says nothing was entered")
        accepted, _ = silent.accept()
        with accepted:
            accepted.settimeout(HANG_S)
            while accepted.recv(1 << 16):  # the hello, then the end
                pass


@on_asyncio
async def test_tasks_share_one_connection() -> None:
    with fake_node(Store()) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:

            async def write_and_read(number: int) -> bytes:
                await client.put(f"k{number}", f"v{number}")
                return (await client.get(f"k{number}")).value

            found = await asyncio.gather(*(write_and_read(number) for number in range(100)))
        assert found == [b"v%d" % number for number in range(100)]
        assert node.connections == 1


@on_asyncio
async def test_dial_of_several_tasks_survives_one_cancellation() -> None:
    with fake_node(Store()) as node, fake_node(Store()) as other:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            tasks = [asyncio.create_task(client.status(other.address)) for _ in range(5)]
            await asyncio.sleep(0)
            tasks[0].cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes] == [True] + [False] * 4
        assert not any(isinstance(outcome, Exception) for outcome in outcomes)
        assert other.connections == 1


@on_asyncio
async def test_failed_dial_gives_each_task_its_own_error(ports: Ports) -> None:
    dead = ports.address()
    with fake_node(Store()) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            errors = await asyncio.gather(*(client.status(dead) for _ in range(3)), return_exceptions=True)
    assert [type(error) for error in errors] == [PeerUnreachable] * 3
    assert len(set(map(id, errors))) == 3
    assert all(isinstance(error, PeerUnreachable) and error.is_refused for error in errors)


@on_asyncio
async def test_unknown_host_is_unreachable() -> None:
    with pytest.raises(PeerUnreachable, match=r"no-such-host\.invalid:9000: the host is unknown"):
        async with chord.open_asyncio_client("no-such-host.invalid:9000", timeout_s=HANG_S):
            pass


@on_asyncio
async def test_entry_that_is_no_node_is_named() -> None:
    with fake_node(Store(b"\xff" * 64)) as node, socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            client._connections._limits = Limits(handshake_s=SOON_S)  # not before: the hello of the entry may be late
            with pytest.raises(PeerUnreachable, match="connected, but received no hello") as caught:
                await client.status(address)
    assert caught.value.is_taken


@on_asyncio
async def test_lost_connection_is_replaced() -> None:
    with fake_node(Store(HANG_UP)) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            await client.put("k", "v")
            assert len(client._connections._open) == 1
    assert [put.is_retry for put in node.requests(Put) if isinstance(put, Put)] == [False, True]
    assert node.connections == 2


@on_asyncio
async def test_goodbye_moves_new_calls_to_a_new_connection() -> None:
    with fake_node(Store(GO_AWAY)) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            (old,) = client._connections._open
            task = asyncio.create_task(client.get("k"))
            while not old.stream.is_draining:
                await asyncio.sleep(0.001)
            await client.put("k", "v")
            assert not old.ended.done(), "one call still waits on the old connection"
            task.cancel()
            await asyncio.wait([old.ended])
            assert old not in client._connections._open
    assert {heard.connection for heard in node.heard if isinstance(heard.request, Put)} == {2}


@on_asyncio
async def test_idle_connections_are_closed_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio_client, "LINKS_MAX", 2)
    with fake_node(Store()) as a, fake_node(Store()) as b, fake_node(Store()) as c:
        async with chord.open_asyncio_client(a.address, timeout_s=HANG_S) as client:
            for node in (b, c):
                await client.status(node.address)
            assert [address for address, _ in client._connections._links] == [b.address, c.address]
            await client.put("k", "v")


@on_asyncio
async def test_node_that_reads_nothing_holds_calls_to_their_deadline() -> None:
    release = threading.Event()

    def answer(heard: Heard) -> Answer:
        if isinstance(heard.request, Get):
            release.wait(HANG_S)  # this thread reads nothing meanwhile
        return Store()(heard)

    limits = Limits(buffer_bytes_max=64 * 1024)
    with fake_node(answer) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S, limits=limits) as client:
            stuck = asyncio.create_task(client.get("k"))
            puts = [asyncio.create_task(client.put(f"k{i}", b"v" * 15_000)) for i in range(2_000)]
            link = next(iter(client._connections._links.values()))
            while link._has_room.is_set():
                await asyncio.sleep(0.001)
            client.timeout_s = SOON_S
            with pytest.raises(PeerUnreachable, match="does not take more bytes"):
                await client.put("late", "v")
            client.timeout_s = HANG_S
            release.set()
            assert isinstance((await asyncio.gather(stuck, return_exceptions=True))[0], ChordError)
            await asyncio.gather(*puts)


@on_asyncio
async def test_client_in_another_event_loop_is_an_error_with_advice() -> None:
    with fake_node(Store()) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            with pytest.raises(InvalidRequest, match=r"another event loop; open one in each loop"):
                await asyncio.to_thread(lambda: asyncio.run(client.get("k")))


@on_asyncio
async def test_client_after_its_block_is_closed() -> None:
    with fake_node(Store()) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            await client.put("k", "v")
        heard = len(node.heard)
        for use in (client.get("k"), client.put_many([("k", "v")]), client.members()):
            with pytest.raises(InvalidRequest, match="this client is closed: its block has ended"):
                await use
        assert len(node.heard) == heard


@on_asyncio
async def test_operation_in_flight_at_the_end_of_the_block_fails() -> None:
    store = Slow()
    with fake_node(store) as node:
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S) as client:
            task = asyncio.create_task(client.put("never", "v"))
            await store.wait()
        with pytest.raises(ChordError) as caught:
            await task
        assert not isinstance(caught.value, InvalidRequest), "the put may have happened"
        assert node.connections == 1


@on_asyncio
async def test_exception_of_the_block_is_raised_unchanged() -> None:
    with fake_node(Store()) as node, pytest.raises(ZeroDivisionError):
        async with chord.open_asyncio_client(node.address, timeout_s=HANG_S):
            raise ZeroDivisionError
    assert len(node.requests(GetStatus)) == 1

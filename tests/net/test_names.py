"""Lookups of host names are shared and bounded, and block no other work."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest
import trio

from chord.errors import PeerUnreachable
from chord.net.names import Names
from chord.net.transport import TcpTransport
from chord.store.identity import FileIdentity
from tests.support.identities import KEPT
from tests.support.real_rings import HANG_S


class Resolver:
    """A resolver that answers for `good…` at once, and for `hung…` only when it is released."""

    def __init__(self) -> None:
        self.is_free = threading.Event()
        self.asked: list[str] = []

    def __call__(self, host: str, *_: object, **__: object) -> list[Any]:
        self.asked.append(host)
        if host.startswith("hung"):
            assert self.is_free.wait(HANG_S)
            raise socket.gaierror(socket.EAI_AGAIN, "temporary failure")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0)) for ip in ("127.0.0.1", "127.0.0.1", "::1")]


@pytest.fixture
def resolver() -> Any:
    made = Resolver()
    yield made
    made.is_free.set()


async def give_up(names: Names, *hosts: str) -> None:
    """Ask for some names, and give up while their lookups run."""
    async with trio.open_nursery() as nursery:
        for host in hosts:
            nursery.start_soon(names.look_up, host)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_name_is_looked_up_once_for_all_callers(resolver: Resolver) -> None:
    names = Names(4, resolver)
    assert await names.look_up("good") == ["127.0.0.1", "::1"]
    errors: list[OSError] = []

    async def ask() -> None:
        try:
            await names.look_up("hung")
        except OSError as error:
            errors.append(error)

    for _ in range(50):  # each attempt joins the running lookup
        await give_up(names, "hung")
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        resolver.is_free.set()
    assert len(errors) == 50
    assert resolver.asked == ["good", "hung"]


async def test_names_beyond_lookups_max_are_refused_at_once(resolver: Resolver) -> None:
    names = Names(4, resolver)
    await give_up(names, *(f"hung{n}" for n in range(3)))
    assert await names.look_up("good") == ["127.0.0.1", "::1"], "the last place is free"
    await give_up(names, "hung3")
    with pytest.raises(PeerUnreachable, match="4 host names are being looked up; that is the limit"):
        await names.look_up("good")
    resolver.is_free.set()
    while names._under_way:
        await trio.sleep(0.001)
    assert await names.look_up("good") == ["127.0.0.1", "::1"]


async def test_abandoned_names_leave_half_of_the_lookups_to_others(resolver: Resolver) -> None:
    names = Names(4, resolver)
    hung = [f"hung{n}" for n in range(4)]
    for host in hung:
        names._give_up(host)
    await give_up(names, *hung[:2])
    with pytest.raises(PeerUnreachable, match="abandoned lookups of host names are still running"):
        await names.look_up(hung[2])
    assert await names.look_up("good") == ["127.0.0.1", "::1"]
    resolver.is_free.set()
    with pytest.raises(OSError, match="temporary failure"):
        await names.look_up(hung[0])
    assert hung[0] not in names._given_up, "its lookup has ended"


def test_names_of_an_ended_run_do_not_affect_the_next(resolver: Resolver) -> None:
    names = Names(4, resolver)
    for _ in range(2):
        trio.run(give_up, names, "hung")
    resolver.is_free.set()
    while names._under_way:  # until its thread ends
        time.sleep(0.001)
    assert resolver.asked == ["hung", "hung"]


async def test_hung_resolver_does_not_block_a_save_or_a_dial(
    resolver: Resolver, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trio's default limiter allows only 40 threads in the whole process."""
    ask = socket.getaddrinfo

    def getaddrinfo(host: Any, *args: Any, **options: Any) -> Any:
        is_ours = isinstance(host, str) and host.startswith("hung")
        return resolver(host) if is_ours else ask(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    tcp = TcpTransport()
    async with trio.open_nursery() as nursery:
        for number in range(60):
            nursery.start_soon(tcp.open_stream, f"hung{number}:1")
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    store = FileIdentity(str(tmp_path))
    await store.save(KEPT)
    assert store.load() == KEPT
    store.close()
    listener = await tcp.open_listener("127.0.0.1:0")
    async with await tcp.open_stream(f"localhost:{listener.address.rpartition(':')[2]}"):
        assert len(tcp._names._under_way) == 60
    await listener.aclose()


async def test_host_is_reached_at_the_address_that_answers(
    resolver: Resolver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """127.0.0.2 has no listener and refuses the connection."""
    tcp = TcpTransport()

    def two(*_: object, **__: object) -> list[Any]:
        return [(0, 0, 0, "", (host, 0)) for host in ("127.0.0.2", "127.0.0.1")]

    tcp._names = Names(4, two)
    listener = await tcp.open_listener("127.0.0.1:0")
    port = listener.address.rpartition(":")[2]
    async with await tcp.open_stream(f"two:{port}") as stream:
        assert stream.socket.getpeername()[0] == "127.0.0.1"
    await listener.aclose()

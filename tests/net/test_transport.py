"""TCP: its errors, and its direct reads and writes. Its conformance suite is in `test_network.py`."""

from __future__ import annotations

import errno
import os
import resource
import socket
from typing import Any

import pytest
import trio
import trio.testing

from chord import testing
from chord.errors import ConfigError, PeerUnreachable
from chord.net.transport import FILES_MIN, Spare, Stream, TcpListener, TcpTransport, pipe_of, remote_host
from chord.rpc import Rpc
from chord.testing import MemoryNetwork
from chord.wire.codec import FrameKind, Frames, decode_refusal
from tests.support.ports import Ports
from tests.support.quorum import until
from tests.support.rings import get, put, virtual

TCP = TcpTransport()


async def pair(address: str = "127.0.0.1:0") -> tuple[trio.SocketStream, trio.SocketStream]:
    listener = await TCP.open_listener(address)
    dialled = await TCP.open_stream(listener.address)
    accepted = await listener.accept()
    await listener.aclose()
    return dialled, accepted


# -- errors --------------------------------------------------------------------------------------------


async def test_dial_of_a_port_without_a_listener_is_refused(ports: Ports) -> None:
    address = ports.address()
    with pytest.raises(PeerUnreachable, match=f"{address}: connection refused"):
        await TCP.open_stream(address)


async def test_dial_of_an_unknown_name_is_unreachable() -> None:
    with pytest.raises(PeerUnreachable, match=r"unknown\.invalid:1: "):
        await TCP.open_stream("unknown.invalid:1")


NO_ADDRESSES = ("", "here", "localhost:", ":80", "localhost:http", "localhost:70000", "a..b:1", "[a..b]:1", "\0b:1")


@pytest.mark.parametrize("address", NO_ADDRESSES)
async def test_dial_of_a_malformed_address_is_unreachable(address: str) -> None:
    """Peers may send any address. A `UnicodeError` would end the node, a `ConfigError` would count as an answer."""
    for transport in (TCP, MemoryNetwork(1).transport("here")):
        with pytest.raises(PeerUnreachable, match="expected HOST:PORT") as caught:
            await transport.open_stream(address)
        assert caught.value.is_refused


async def test_listener_at_a_used_or_foreign_address_is_an_os_error() -> None:
    listener = await TCP.open_listener("127.0.0.1:0")
    with pytest.raises(OSError) as caught:
        await TCP.open_listener(listener.address)
    assert caught.value.errno == errno.EADDRINUSE
    await listener.aclose()
    with pytest.raises(OSError):
        await TCP.open_listener("192.0.2.1:0")


@pytest.mark.parametrize("address", NO_ADDRESSES)
async def test_listener_at_a_malformed_address_is_a_config_error(address: str) -> None:
    with pytest.raises(ConfigError):
        await TCP.open_listener(address)


async def test_listener_without_descriptors_refuses_and_continues(autojump_clock: Any) -> None:
    turned_away, refused = trio.testing.memory_stream_pair()
    accepted, _ = trio.testing.memory_stream_pair()
    calls = iter([errno.EMFILE, errno.ENFILE, errno.ENOMEM, refused, accepted, errno.EBADF])

    class Scarce:
        class socket:
            @staticmethod
            def getsockname() -> tuple[str, int]:
                return "127.0.0.1", 9000

        async def accept(self) -> trio.StapledStream[Any, Any]:
            await trio.lowlevel.checkpoint()
            found = next(calls)
            if isinstance(found, int):
                raise OSError(found, "no")
            return found

    reported: list[int | None] = []

    def exhausted(error: OSError) -> str:
        reported.append(error.errno)
        return "no descriptors"

    listener = TcpListener(Scarce(), exhausted, Spare())  # type: ignore[arg-type]
    assert await listener.accept() is accepted  # type: ignore[comparison-overlap]
    assert reported == [errno.EMFILE, errno.ENOMEM]
    assert trio.current_time() == pytest.approx(0.1 + 0.2), "one pause, and the time of a refusal"
    ((kind, body),) = Frames(1 << 16).feed(bytes(await turned_away.receive_some(1 << 16)))
    assert kind is FrameKind.ERROR
    refusal = decode_refusal(body)
    assert isinstance(refusal, PeerUnreachable), "the caller counts the node as unreachable"
    assert refusal.message == "127.0.0.1:9000: no descriptors"
    with pytest.raises(OSError):
        await listener.accept()


async def test_shortage_of_descriptors_is_reported_for_a_while(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none_left(host: str, port: int) -> Any:
        raise OSError("all attempts failed") from ExceptionGroup("", [OSError(errno.EMFILE, "Too many open files")])

    transport = TcpTransport()
    assert transport.shortage() == ""
    monkeypatch.setattr(trio, "open_tcp_stream", none_left)
    with pytest.raises(PeerUnreachable, match=r":1: the node has run out of file descriptors; its limit is"):
        await transport.open_stream("127.0.0.1:1")
    assert "ulimit -n" in transport.shortage()
    await trio.sleep(11)
    assert transport.shortage() == ""


async def test_lost_spare_descriptor_is_replaced_before_a_dial(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the node's own dials would take each free descriptor, and no caller would get an answer."""
    transport, spare = TcpTransport(), Spare()
    monkeypatch.setattr(transport, "_spare", spare)
    listener = await transport.open_listener("127.0.0.1:0")
    with monkeypatch.context() as scarce:
        scarce.setattr(os, "open", no_descriptor)
        with spare.lent() as is_there:
            assert is_there
        with spare.lent() as is_there:
            assert not is_there, "another file has the descriptor"
        with pytest.raises(PeerUnreachable, match="the node has run out of file descriptors"):
            await transport.open_stream(listener.address)
    stream = await transport.open_stream(listener.address)
    with spare.lent() as is_there:
        assert is_there
    await stream.aclose()
    await listener.aclose()
    assert not spare.is_missing(), "no spare descriptor without a listener"
    with spare.lent() as is_there:
        assert not is_there


def no_descriptor(*args: Any) -> int:
    """Fail to open a file."""
    raise OSError(errno.EMFILE, "Too many open files")


async def test_process_that_may_open_few_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (FILES_MIN - 1, FILES_MIN - 1))
    with pytest.raises(ConfigError, match="may open 63 files, and a node needs 64: ulimit -n 1024"):
        await TCP.open_listener("127.0.0.1:0")
    monkeypatch.setattr(resource, "getrlimit", lambda what: (FILES_MIN, FILES_MIN))
    await (await TCP.open_listener("127.0.0.1:0")).aclose()


# -- addresses -------------------------------------------------------------------------------------------


async def test_listener_at_a_name_prefers_ipv4() -> None:
    listener = await TCP.open_listener("localhost:0")
    assert listener.address.startswith("127.0.0.1:")
    await listener.aclose()


async def test_ipv6_addresses_have_brackets() -> None:
    try:
        listener = await TCP.open_listener("[::1]:0")
    except OSError:
        pytest.skip("no IPv6 here")
    assert listener.address.startswith("[::1]:")
    stream = await TCP.open_stream(listener.address)
    accepted = await listener.accept()
    assert remote_host(accepted) is None
    for thing in (listener, stream, accepted):
        await thing.aclose()


async def test_remote_host_distinguishes_hosts_except_on_loopback() -> None:
    dialled, accepted = await pair()
    assert remote_host(accepted) is None
    await dialled.aclose()
    await accepted.aclose()
    memory = await memory_pair()
    assert remote_host(memory[1]) == "a"

    class Far:
        def getpeername(self) -> tuple[str, int]:
            return "192.0.2.7", 5

    accepted.socket = Far()  # type: ignore[assignment]
    assert remote_host(accepted) == "192.0.2.7"


# -- direct reads and writes -----------------------------------------------------------------------------


async def memory_pair() -> tuple[Stream, Stream]:
    network = MemoryNetwork()
    listener = await network.transport("b").open_listener("b:1")
    dialled = await network.transport("a").open_stream("b:1")
    return dialled, await listener.accept()


async def test_send_nowait_takes_the_bytes_that_fit() -> None:
    dialled, accepted = await pair()
    sender, receiver = pipe_of(dialled), pipe_of(accepted)
    data, sent = bytes(1 << 16), 0
    while taken := sender.send_nowait(data):
        sent += taken
    assert sender.send_nowait(b"more") == 0
    received = 0
    while received < sent:
        received += len(await receiver.receive_some(1 << 16))
    await dialled.send_eof()
    assert await receiver.receive_some(10) == b""
    await dialled.aclose()
    await accepted.aclose()


async def test_pipe_after_a_reset_raises_and_takes_no_bytes() -> None:
    dialled, accepted = await pair()
    dialled.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    pipe = pipe_of(accepted)
    await dialled.aclose()  # with this option, a close resets the connection
    with pytest.raises(trio.BrokenResourceError):
        await pipe.receive_some(10)
    assert pipe.send_nowait(b"x") == 0
    with pytest.raises(trio.BrokenResourceError):
        await pipe.send_all(b"x")
    await accepted.aclose()


async def test_stream_in_memory_takes_the_bytes_of_its_window(autojump_clock: Any) -> None:
    dialled, accepted = await memory_pair()
    sender, receiver = pipe_of(dialled), pipe_of(accepted)
    assert sender.send_nowait(bytes(100_000)) == 1 << 16
    assert sender.send_nowait(b"more") == 0
    await trio.sleep(1)
    assert len(await receiver.receive_some(100)) == 100
    assert sender.send_nowait(bytes(1000)) == 100
    await accepted.aclose()
    await trio.sleep(1)
    assert sender.send_nowait(b"x") == 0
    with pytest.raises(trio.BrokenResourceError):
        await sender.send_all(b"x")
    await dialled.aclose()
    assert sender.send_nowait(b"x") == 0


async def test_pipe_of_another_stream_uses_its_methods(autojump_clock: Any) -> None:
    dialled, accepted = (trio.StapledStream(stream, stream) for stream in await memory_pair())
    sender, receiver = pipe_of(dialled), pipe_of(accepted)
    assert sender.send_nowait(b"x") == 0
    await sender.send_all(b"hello")
    assert await receiver.receive_some(100) == b"hello"


@virtual
async def test_make_room_ends_the_quietest_connection() -> None:
    async with testing.open_ring(6, seed=1) as ring:
        node = ring[0]
        rpc = node._calls
        assert isinstance(rpc, Rpc)
        quietest = min(link.quiet_rank for link in rpc._shared.running if link.quiet_rank)
        (chosen, *_) = [link for link in rpc._shared.running if link.quiet_rank == quietest]
        rpc.make_room()
        await until(lambda: chosen.has_ended)
        assert chosen.reason == "drained"
        await put(node, b"key", b"value")
        assert await get(ring[3], b"key") == (b"value",)

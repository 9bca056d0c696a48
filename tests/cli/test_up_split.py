"""The network of a demonstration: which peers are apart, and connections over TCP that a split breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from chord.cli import up_web
from chord.cli.output import Out
from chord.cli.up_split import PORTS, Sides, SplitStream, SplitTransport
from chord.cli.up_web import PORT_MAX, SHOWN_MAX, DashboardChild, change_network, next_peer
from chord.config import NodeConfig
from chord.errors import PeerUnreachable
from chord.net.transport import Stream, TcpTransport, pipe_of

A, B, C = (f"127.0.0.1:{port}" for port in (9000, 9001, PORTS - 1))


def test_peers_are_apart_only_across_a_split() -> None:
    sides = Sides()
    assert not sides.is_split
    assert not sides.are_apart(A, C)
    sides.split([A, B], [C])
    assert sides.is_split
    assert sides.are_apart(A, C)
    assert sides.are_apart(C, B)
    assert not sides.are_apart(A, B)
    for stranger in ("127.0.0.1:7000", "10.0.0.5:9000", f"[::1]:{PORTS - 1}"):
        assert not sides.are_apart(A, stranger)
        assert not sides.are_apart(C, stranger)
    sides.split([A], [B])
    assert not sides.are_apart(A, C), "a new split replaces the one before"
    sides.heal()
    assert not sides.is_split
    assert not sides.are_apart(A, B)


def test_new_peer_is_on_the_second_side_of_a_split() -> None:
    sides = Sides()
    sides.place(C)
    assert not sides.is_split, "without a split, there are no sides"
    sides.split([A], [B])
    sides.place(C)
    assert sides.are_apart(A, C)
    assert sides.near(C, [A, B]) == (B,)
    assert sides.near(C, [A]) == (A,), "it tries those that it cannot reach rather than none"


def peers(count: int) -> list[NodeConfig]:
    return [NodeConfig(name=f"n{i}", listen=f"127.0.0.1:{9000 + i}") for i in range(count)]


ALL = [f"127.0.0.1:{9000 + i}" for i in range(4)]


def test_split_names_the_peers_of_both_sides() -> None:
    sides = Sides()
    for chosen in (["n2", "n0"], ["n2", A]):
        groups = change_network(sides, chosen, peers(4), running=ALL, ring=ALL)
        assert groups == [["n0", "n2"], ["n1", "n3"]]
        assert sides.are_apart(A, B)
        assert change_network(sides, [], peers(4), running=ALL, ring=ALL) == []
        assert not sides.is_split


NO_ONE = "one side has no running peer; a split needs one on each"


@pytest.mark.parametrize(("names", "count", "running", "ring", "why"), [
    ([], 2, ALL, ALL[:2], "the network is not split"),
    (["n0", "x" * 99], 2, ALL, ALL[:2], f"no peer is called '{'x' * SHOWN_MAX}'"),
    (["n0", "n1"], 2, ALL, ALL[:2], NO_ONE),
    (["n0"], 1, ALL, ALL[:1], NO_ONE),
    (["n0"], 2, ALL[:1], ALL[:1], NO_ONE),
    (["n0"], 2, ALL[1:], ALL[:1], NO_ONE),
    (["n0"], 2, ALL, ["10.0.0.5:9000", *ALL[:2]],
     "10.0.0.5:9000 is a node of another command, which this one cannot cut off"),
])  # fmt: skip
def test_split_that_is_not_possible_says_why(
    names: list[str], count: int, running: list[str], ring: list[str], why: str
) -> None:
    sides = Sides()
    with pytest.raises(ValueError, match=f"^{why}$"):
        change_network(sides, names, peers(count), running=running, ring=ring)
    assert not sides.is_split


def test_end_of_the_dashboard_ends_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(up_web, "require_extra", lambda: None)
    dashboard = DashboardChild(Out(), "127.0.0.1:0", is_demo=True)
    assert dashboard.sides is not None
    try:
        dashboard.pid = 1
        dashboard.sides.split([A], [B])
        assert dashboard.ended() == "the dashboard has ended, and the network is whole again"
        assert dashboard.pid is None
        assert not dashboard.sides.is_split
        assert dashboard.ended() == "the dashboard has ended"
    finally:
        dashboard.close()


def test_further_peer_takes_the_last_port_and_no_higher() -> None:
    def after(port: int) -> NodeConfig:
        return next_peer([NodeConfig(name="n0", listen=f"127.0.0.1:{port}")], lambda port: True)

    assert after(PORT_MAX - 1).listen == f"127.0.0.1:{PORT_MAX}"
    with pytest.raises(ValueError, match="no port above those of the peers is free"):
        after(PORT_MAX)


def test_further_peer_has_a_free_name_and_port() -> None:
    asked = []

    def is_free(port: int) -> bool:
        asked.append(port)
        return port == 9004

    peer = next_peer(peers(3), is_free)
    assert (peer.name, peer.listen, asked) == ("n3", "127.0.0.1:9004", [9003, 9004])


@asynccontextmanager
async def joined(sides: Sides) -> AsyncIterator[tuple[SplitStream, Stream, SplitTransport, str]]:
    """Connect two peers; yield the dialled stream, the accepted one, the network of the first, and its peer."""
    tcp = TcpTransport()
    listener = await SplitTransport(tcp, A, sides).open_listener("127.0.0.1:0")
    network = SplitTransport(tcp, A, sides)
    try:
        stream = await network.open_stream(listener.address)
        accepted = await listener.accept()
        async with stream, accepted:
            yield stream, accepted, network, listener.address
    finally:
        await listener.aclose()


async def test_bytes_pass_until_the_network_is_split() -> None:
    sides = Sides()
    async with joined(sides) as (stream, accepted, network, peer):
        pipe = pipe_of(stream)
        assert pipe.send_nowait(b"one") == 3
        await stream.send_all(b" two")
        assert await accepted.receive_some(7) in (b"one two", b"one")
        await accepted.send_all(b"three")
        assert await pipe.receive_some(5) == b"three"
        assert network.shortage() == ""
        sides.split([A], [peer])
        with pytest.raises(PeerUnreachable, match="the demonstration has split the network") as refused:
            await network.open_stream(peer)
        assert not refused.value.is_refused, "a split is not the death of the peer"
        assert pipe.send_nowait(b"four") == 0
        with pytest.raises(trio.BrokenResourceError, match="split the network"):
            await stream.send_all(b"four")
        sides.heal()
        async with await network.open_stream(peer) as again:
            await again.send_all(b"five")


async def frame_of_the_other_side() -> bytes | bytearray:
    """Split the network of a connection, and return the next frame that a peer takes from the other side."""
    sides = Sides()
    async with joined(sides) as (stream, accepted, _network, peer):
        sides.split([A], [peer])
        await accepted.send_all(b"late")
        return await pipe_of(stream).receive_some(4)


async def test_frame_of_the_other_side_breaks_the_connection() -> None:
    with pytest.raises(trio.BrokenResourceError, match="split the network"):
        await frame_of_the_other_side()


async def test_planted_peer_that_still_answers_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SplitStream, "_require_whole", lambda self: None)
    assert await frame_of_the_other_side() == b"late", "without its guard, a peer takes frames of the other side"


async def test_ended_stream_is_empty_on_either_side() -> None:
    sides = Sides()
    async with joined(sides) as (stream, accepted, _network, _peer):
        await stream.wait_send_all_might_not_block()
        await stream.send_eof()
        assert await accepted.receive_some() == b""
        await accepted.aclose()
        assert await stream.receive_some() == b""

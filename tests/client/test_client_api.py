"""Conveniences of clients, nodes and results: a default, membership, text, short reprs."""

from __future__ import annotations

import pytest
import trio

import chord
from chord.errors import NotFound, OwnerDown, VersionConflict
from chord.wire.messages import Get, GetReply
from tests.support.clients import OWNER, Open, Store
from tests.support.fake_node import fake_node
from tests.support.rings import virtual


async def test_get_with_a_default_returns_it_for_an_absent_key(open_client: Open) -> None:
    with fake_node(Store(GetReply((), b"", OWNER))) as node:
        async with open_client(node.address) as client:
            assert await client.get("deleted", None) is None
            assert await client.get("absent", default=b"nothing") == b"nothing"
            with pytest.raises(NotFound):
                await client.get("absent")
            await client.put("k", "v")
            assert (await client.get("k", None)).value == b"v"


async def test_get_with_a_default_raises_other_errors(open_client: Open) -> None:
    with fake_node(Store(OwnerDown("gone"))) as node:
        async with open_client(node.address) as client:
            with pytest.raises(OwnerDown):
                await client.get("k", None)


async def test_get_with_a_default_resolves_values_and_not_the_default(open_client: Open) -> None:
    siblings = GetReply((b"a", b"b"), b"context", OWNER, written_ms=(1, 2))
    unresolved = chord.Found(b"other", (b"x", b"y"), b"", OWNER)
    with fake_node(Store(siblings)) as node:
        async with open_client(node.address) as client:
            assert (await client.get("k", None, resolve=chord.last_writer_wins)).value == b"b"
            assert await client.get("absent", unresolved, resolve=chord.last_writer_wins) is unresolved


@pytest.mark.parametrize("open_client", ["trio", "asyncio"], indirect=True)
async def test_contains_is_true_for_stored_keys_only(open_client: Open) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            await client.put("k", "v")
            assert await client.contains("k", r=2)
            assert not await client.contains(b"absent")
    assert [get.r for get in node.requests(Get) if isinstance(get, Get)] == [2, 0]


def test_in_operator_is_true_for_stored_keys_only() -> None:
    store = Store(GetReply((b"a", b"b"), b"", OWNER), OwnerDown("gone"))
    with fake_node(store) as node, chord.connect(node.address) as client:
        assert "concurrent" in client
        with pytest.raises(OwnerDown):
            _ = "uncertain" in client
        client.put("k", "v")
        assert "k" in client
        assert b"k" in client
        assert "absent" not in client


@virtual
async def test_node_get_takes_a_default_and_contains_works() -> None:
    async with chord.testing.open_ring(3, seed=1) as ring:
        node = ring[0]
        await node.put("k", "v")
        assert (await node.get("k", None)).text == "v"
        assert await node.get("absent", "nothing") == "nothing"
        assert await node.contains("k")
        assert not await node.contains("absent")
        assert repr(node) == f"<chord.Node {node.name}: ready>"


def found(*values: bytes, left: int = 0) -> chord.Found:
    """A result of a read with these values."""
    return chord.Found(b"k", values, b"context", OWNER, 2, 2, left=left)


def test_text_is_the_value_as_utf8() -> None:
    assert found("Zoë".encode()).text == "Zoë"
    with pytest.raises(UnicodeDecodeError):
        _ = found(b"\xff").text
    with pytest.raises(VersionConflict):
        _ = found(b"a", b"b").text


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (found(b"v"), "<Found b'k': b'v', r=2/2>"),
        (found(b"a", b"b"), "<Found b'k': 2 concurrent values, r=2/2>"),
        (found(b"a", left=3), "<Found b'k': 4 concurrent values, 1 of them shown, r=2/2>"),
        (found(), "<Found b'k': no value, r=2/2>"),
        (found(b"v" * 1_000_000), f"<Found b'k': {b'v' * 40!r}... (1000000 bytes), r=2/2>"),
        (chord.Stored(b"k", b"c", OWNER, 2, 2), "<Stored b'k': w=2/2>"),
        (
            chord.Stored(b"k", b"c", OWNER, 1, 2, True, beside=3, is_under_replicated=True),
            "<Stored b'k': w=1/2, sloppy, under-replicated, beside=3>",
        ),
    ],
)
def test_repr_of_a_result_is_short(result: object, shown: str) -> None:
    assert repr(result) == shown
    assert len(repr(result)) < 120


async def test_repr_of_a_client_names_its_entry_until_it_is_closed() -> None:
    with fake_node(Store()) as node:
        with chord.connect(node.address) as client:
            assert repr(client) == f"<chord.Client {node.address}>"
        assert repr(client) == "<chord.Client closed>"
        async with chord.open_client(node.address) as on_trio:
            assert repr(on_trio) == f"<chord.AsyncClient {node.address}>"
        assert repr(on_trio) == "<chord.AsyncClient closed>"
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("open_client", ["asyncio"], indirect=True)
async def test_repr_of_an_asyncio_client_names_its_entry(open_client: Open) -> None:
    with fake_node(Store()) as node:
        async with open_client(node.address) as client:
            assert repr(client._client) == f"<chord.AsyncioClient {node.address}>"
        assert repr(client._client) == "<chord.AsyncioClient closed>"

"""A local read: a replica that a client asks answers from its own copy, which may be old."""

from __future__ import annotations

import pytest
import trio

from chord.client.routing import OwnerRouting
from chord.errors import InvalidRequest
from chord.ids import Circle
from chord.node import Node
from chord.wire.messages import Get, GetReply
from tests.support.clients import OWNER, Open, Store
from tests.support.fake_node import fake_node
from tests.support.quorum import clockwise, compare_nothing, key_at, read, ring_in_sync, until, write
from tests.support.rings import only, virtual


async def read_local(node: Node, key: bytes) -> GetReply:
    """Read from the copy of a node; it forwards the request if it has none."""
    return await node._host.peers.call(node.address, Get(key, any=True), GetReply)


@virtual
async def test_each_replica_answers_a_local_read_itself() -> None:
    async with ring_in_sync(5, "local") as ring:
        key = key_at(ring, "n1")
        await write(ring[0], key, b"v", w=3)
        for place, node in enumerate(clockwise(ring, key)):
            found = await read_local(node, key)
            assert found.values == (b"v",)
            assert found.is_local == (place < 3)
            assert found.owner == only(node if found.is_local else clockwise(ring, key)[0]).me
            absent = await read_local(node, key_at(ring, "n1", 1))
            assert (absent.values, absent.is_local) == ((), False), "only the coordinator denies a key"


@virtual
async def test_local_read_is_old_until_anti_entropy_repairs_the_copy() -> None:
    async with ring_in_sync(5, "old") as ring:
        key = key_at(ring, "n1")
        owner, _, third, *_ = clockwise(ring, key)
        await write(owner, key, b"old", w=3)
        ring.network.block(owner.name, third.name)
        await write(owner, key, b"new", w=2)
        found = await read_local(third, key)
        assert (found.values, found.is_local) == ((b"old",), True)
        ring.network.heal()
        assert (await read(owner, key)).values == (b"new",)
        while (await read_local(third, key)).values != (b"new",):
            await trio.sleep(0.05)


@virtual
async def test_replica_that_is_not_in_sync_forwards_a_local_read() -> None:
    async with ring_in_sync(5, "away") as ring:
        key = key_at(ring, "n1")
        second = clockwise(ring, key)[1]
        await write(ring[0], key, b"v", w=3)
        compare_nothing(*ring.nodes)
        only(second).preference_list.was_away()
        found = await read_local(second, key)
        assert (found.values, found.is_local) == ((b"v",), False)


@virtual
async def test_node_get_takes_local() -> None:
    async with ring_in_sync(4, "node") as ring:
        key = key_at(ring, "n1")
        await ring[0].put(key, "v", w=3)
        await until(lambda: all(node._host.storage.get(key) for node in clockwise(ring, key)[:3]))
        assert [(await node.get(key, local=True)).is_local for node in clockwise(ring, key)] == [True] * 3 + [False]


async def test_client_asks_its_entry_for_a_local_read(open_client: Open) -> None:
    local = GetReply((b"v",), b"context", OWNER, is_local=True)
    with fake_node(Store(local, local)) as node:
        async with open_client(node.address) as client:
            assert (await client.get("k", local=True)).is_local
            assert (await client.get("k", local=True)).value == b"v"
            for options in ({"r": 1}, {"replicas": True}):
                with pytest.raises(InvalidRequest):
                    await client.get("k", local=True, **options)
        assert [get.any for get in node.requests(Get) if isinstance(get, Get)] == [True, True]


def test_owner_cache_learns_no_owner_from_a_local_read() -> None:
    circle, routing, request = Circle(160), OwnerRouting(4), Get(b"k", any=True)
    routing.learn(circle, request, None, GetReply((b"v",), b"", OWNER, is_local=True))
    assert routing.to(circle, Get(b"k")) is None
    routing.learn(circle, request, None, GetReply((b"v",), b"", OWNER))
    assert routing.to(circle, Get(b"k")) == OWNER
    assert routing.to(circle, request) is None, "the entry node may have a copy"

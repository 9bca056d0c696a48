"""The owner cache of a node: fast lookups, gets and puts, and stale entries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio

from chord import testing
from chord.ids import Point
from chord.node import Node
from chord.ring.lookup import Lookups
from chord.store import versions
from chord.testing.rings import TestRing
from chord.wire.messages import Candidate, Contact
from tests.support.quorum import KEY, clockwise, key_at, read, ring_in_sync, write
from tests.support.rings import only, virtual


async def calls_of(node: Node, key: bytes) -> int:
    """Return the number of calls of a fast lookup."""
    return (await node._lookups.find(node._host.circle.hash(key), only(node).me, route="fast")).calls


@virtual
async def test_second_fast_lookup_asks_only_the_owner() -> None:
    async with ring_in_sync(12, 5) as ring:
        asking = clockwise(ring, KEY)[6]
        await calls_of(asking, KEY)
        assert await calls_of(asking, KEY) == 1
        trace = await asking._lookups.find(asking._host.circle.hash(KEY), only(asking).me, route="fast")
        assert (trace.owner_via.kind, trace.path_length) == ("cache", 0)
        assert [hop.via.kind for hop in trace.hops] == ["start"]


@virtual
async def test_classic_and_measuring_lookups_bypass_the_owner_cache() -> None:
    async with ring_in_sync(12, 5) as ring:
        asking = clockwise(ring, KEY)[6]
        point = asking._host.circle.hash(KEY)
        for _ in range(2):
            classic = await asking._lookups.find(point, only(asking).me)
            anew = await asking._lookups.find(point, only(asking).me, route="fast", is_remembered=False)
            assert {classic.owner_via.kind, anew.owner_via.kind} <= {"finger", "successor"}


@virtual
async def test_joiner_before_a_cached_owner_is_found_in_three_calls() -> None:
    async with ring_in_sync(5, 3) as ring:
        asking = ring[0]
        keys = [b"k-%d" % number for number in range(300)]
        for key in keys:
            await calls_of(asking, key)
        joined = await ring.start()
        await ring.converged()
        moved = [key for key in keys if clockwise(ring, key)[0] is joined]
        assert moved
        assert await calls_of(asking, moved[0]) <= 3
        assert await calls_of(asking, moved[0]) == 1


async def cache_only_the_owner_before(ring: TestRing, asking: Node, key: bytes) -> Node:
    """Leave only the owner before a key's owner in a node's cache; return that owner."""
    around = clockwise(ring, key)
    before = around[-1]
    asking._lookups.arcs.forget(around[0].address)
    asking._lookups.arcs.learn(only(before).me.id, only(before).me)
    return before


@pytest.mark.slow
@virtual
async def test_lookup_starts_at_the_cached_owner_before_the_key() -> None:
    async with ring_in_sync(24, 5) as ring:
        asking = clockwise(ring, KEY)[3]  # right behind the key, so far from it clockwise
        point = asking._host.circle.hash(KEY)
        anew = await asking._lookups.find(point, only(asking).me, route="fast", is_remembered=False)
        assert anew.calls > 2
        before = await cache_only_the_owner_before(ring, asking, KEY)
        trace = await asking._lookups.find(point, only(asking).me, route="fast")
        assert trace.calls == 2
        assert [(hop.contact.address, hop.via.kind) for hop in trace.hops] == [
            (asking.address, "start"),
            (before.address, "cache"),
        ]
        assert trace.owner == anew.owner


@pytest.mark.slow
@pytest.mark.parametrize("silently", [False, True])
def test_lookup_skips_a_dead_cached_owner_before_the_key(silently: bool) -> None:
    async def main() -> None:
        async with ring_in_sync(24, 5) as ring:
            asking = clockwise(ring, KEY)[3]
            before = await cache_only_the_owner_before(ring, asking, KEY)
            await ring.kill(before, silently=silently)
            with trio.fail_after(4):
                trace = await asking._lookups.find(asking._host.circle.hash(KEY), only(asking).me, route="fast")
            assert trace.owner == only(clockwise(ring, KEY)[0]).me

    testing.run(main)


@virtual
async def test_lookup_at_the_owner_itself_makes_no_call() -> None:
    async with ring_in_sync(1, 5) as ring:
        assert (await ring[0]._lookups.find(Point(1), only(ring[0]).me)).calls == 0


@pytest.mark.parametrize("how", ["left", "killed", "vanished", "other vnode"])
def test_reads_and_writes_work_if_the_cached_owner_is_gone(how: str) -> None:
    async def main() -> None:
        async with ring_in_sync(7, how) as ring:
            key = key_at(ring, "n3")
            owner, asking = clockwise(ring, key)[0], ring[0]
            await write(asking, key, b"before")
            if how == "left":
                await owner.leave()
            elif how == "other vnode":
                stranger = Contact(Point(only(owner).me.id ^ 1), owner.address)
                asking._lookups.arcs.forget(owner.address)
                asking._lookups.arcs.learn(asking._host.circle.hash(key), stranger)
            else:
                await ring.kill(owner, silently=how == "vanished")
            with trio.fail_after(4):
                assert (await read(asking, key)).values == (b"before",)
                await write(asking, key, b"after")
            assert (await read(asking, key)).values == (b"after",)

    testing.run(main, seed=how)


@pytest.mark.slow
@virtual
async def test_write_to_a_frozen_cached_owner_is_stored_once() -> None:
    async with ring_in_sync(7, 4, keeps_disks=True) as ring:
        key = key_at(ring, "n3")
        owner, asking = clockwise(ring, key)[0], ring[0]
        await write(asking, key, b"before")
        ring.network.freeze("n3")
        with trio.fail_after(4):
            await write(asking, key, b"after")
        ring.network.unfreeze("n3")
        await ring.converged()
        await trio.sleep(5)
        assert (await read(asking, key)).values == (b"after",)
        record = owner._host.storage.get(key)
        assert record is not None
        assert versions.values(record) == [b"after"]


def find_none(lookups: Lookups, path: object, is_remembered: bool) -> Iterator[tuple[Candidate, ...]]:
    """Planted: the cache finds no owner."""
    return iter(())


def test_planted_lookup_without_owner_cache_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lookups, "_guesses", find_none)

    async def main() -> None:
        async with ring_in_sync(12, 5) as ring:
            asking = clockwise(ring, KEY)[6]
            await calls_of(asking, KEY)
            assert await calls_of(asking, KEY) > 1

    testing.run(main, seed=5)


@virtual
async def test_forwarded_put_reaches_the_cached_owner_in_one_call() -> None:
    async with ring_in_sync(12, 5) as ring:
        asking = clockwise(ring, KEY)[6]
        await write(asking, KEY, b"1")
        before = asking._host.counters["forward_calls"]
        reply = await asking.put(KEY, b"2")
        assert reply.owner == only(clockwise(ring, KEY)[0]).me
        assert asking._host.counters["forward_calls"] - before == 1

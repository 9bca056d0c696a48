"""Hinted handoff: a stand-in brings each hint home, and drops it only afterwards."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chord import testing
from chord.ids import Arc, Circle, Point
from chord.replication.handoff import Handoff, lies_in
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import Contact
from tests.support.quorum import (
    KEY,
    back,
    clockwise,
    compare_nothing,
    holding,
    keep_disks,
    key_at,
    read,
    record_at,
    ring_in_sync,
    timing,
    until,
    until_in_sync,
    until_none_misplaced,
    write,
)
from tests.support.rings import in_order, keys_of, only, virtual


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_hint_is_kept_until_its_home_has_it(position: int) -> None:
    async def main() -> None:
        async with ring_in_sync(8, position, keeps_disks=True) as ring:
            places = clockwise(ring, KEY)
            home, stand_in = places[position], places[3]
            await home.stop()
            await trio.sleep(3)
            await write(places[5], KEY, b"v")
            await trio.sleep(5)
            assert stand_in.name in holding(ring, KEY), "only the stand-in keeps a hint for the stopped node"
            assert len(holding(ring, KEY)) >= 3
            home = await ring.start(name=home.name)
            dropped_at = None
            for _ in range(400):
                if home._host.storage.get(KEY) is None:
                    assert stand_in.name in holding(ring, KEY), "dropped before its home had it"
                if stand_in.name not in holding(ring, KEY):
                    dropped_at = trio.current_time()
                    break
                await trio.sleep(0.025)
            assert dropped_at is not None, "brought home, and dropped"
            assert versions.values(record_at(home, KEY)) == [b"v"]
            await until_none_misplaced(ring)

    testing.run(main, seed=position)


@virtual
async def test_hint_comes_home_without_anti_entropy() -> None:
    async with ring_in_sync(8, 30, keeps_disks=True) as ring:
        places = clockwise(ring, KEY)
        home, stand_in = places[1], places[3]
        await ring.kill(home)
        with trio.fail_after(3):
            await write(places[5], KEY, b"v")
        await until(lambda: stand_in.name in holding(ring, KEY))
        compare_nothing(*ring.nodes)
        home = await ring.start(name=home.name)
        compare_nothing(home)
        await until(lambda: stand_in.name not in holding(ring, KEY))
        assert versions.values(record_at(home, KEY)) == [b"v"]


@pytest.mark.slow
@virtual
async def test_hints_for_two_nodes_that_are_down_come_home() -> None:
    async with ring_in_sync(9, 3, keeps_disks=True) as ring:
        keys = [key_at(ring, "n4", number) for number in range(10)]
        places = clockwise(ring, keys[0])
        for node in places[1:3]:
            await ring.kill(node)
        for key in keys:
            with trio.fail_after(3):
                written = await write(places[0], key, b"v", is_retry=True)  # its client has tried it once
            assert written.w >= 2
        await trio.sleep(3)
        for key in keys:
            assert holding(ring, key)[:3] == [places[0].name, places[3].name, places[4].name]
        for node in places[1:3]:
            await back(ring, node.name)
        await ring.converged()
        await until_none_misplaced(ring)


@pytest.mark.slow
@virtual
async def test_home_that_stays_down_is_replaced() -> None:
    async with ring_in_sync(8, 4, down_out_s=15.0) as ring:
        places = clockwise(ring, KEY)
        await ring.kill(places[1])
        await write(places[0], KEY, b"v")
        await trio.sleep(10)
        assert only(places[0]).replica_set(only(places[0]).host.circle.hash(KEY)).members[1].is_waited_for
        await trio.sleep(20)
        await until_none_misplaced(ring)


@pytest.mark.slow
@virtual
async def test_death_of_a_stand_in_loses_no_write() -> None:
    async with ring_in_sync(9, 5, keeps_disks=True) as ring:
        places = clockwise(ring, KEY)
        home, stand_in = places[1], places[3]
        await ring.kill(home)
        await write(places[0], KEY, b"v")
        await trio.sleep(1)
        await ring.kill(stand_in)
        await trio.sleep(1)
        with trio.fail_after(5):
            assert (await read(places[5], KEY)).values == (b"v",)
        await back(ring, home.name)
        await ring.converged()
        await until_none_misplaced(ring)


@virtual
async def test_hint_older_than_the_value_at_home_changes_nothing() -> None:
    async with ring_in_sync(8, 6, keeps_disks=True) as ring:
        places = clockwise(ring, KEY)
        await write(places[0], KEY, b"1")
        home, stand_in = places[1], places[3]
        await ring.kill(home)
        await write(places[0], KEY, b"2")
        await trio.sleep(1)
        ring.network.freeze(stand_in.name)
        await back(ring, home.name)
        await until(lambda: versions.values(record_at(clockwise(ring, KEY)[1], KEY)) == [b"2"])
        with trio.fail_after(5):
            await write(places[5], KEY, b"3")
        ring.network.unfreeze(stand_in.name)
        await ring.converged()
        await until_none_misplaced(ring)
        with trio.fail_after(5):
            assert (await read(places[5], KEY)).values == (b"3",)


# -- hints and own copies ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_hints_are_counted_while_their_home_is_away(position: int) -> None:
    """The stand-in knows of no unreachable node before it. So it must ask the owners of its records."""

    async def main() -> None:
        async with testing.open_ring(8, seed=40 + position, timing=timing(anti_entropy_s=3.0)) as ring:
            keep_disks(ring)
            await until_in_sync(ring)
            places = clockwise(ring, KEY)
            home, stand_in = places[position], places[3]
            await ring.kill(home)
            await trio.sleep(3)
            await write(places[5], KEY, b"v")
            await until(lambda: stand_in.name in holding(ring, KEY))
            await trio.sleep(5)
            counts = {node.name: node._local_status().hints for node in ring.nodes}
            assert {name for name, count in counts.items() if count} == {stand_in.name}, counts
            assert counts[stand_in.name] == 1
            assert [node._local_status().misplaced for node in ring.nodes] == [0] * 7
            home = await back(ring, home.name)
            await until(lambda: stand_in.name not in holding(ring, KEY))
            await trio.sleep(3)
            assert [node._local_status().hints for node in ring.nodes] == [0] * 8

    testing.run(main, seed=position)


async def stored_at_a_stand_in_only() -> None:
    """Store a write on its owner and on the stand-in of a dead member. Then the owner dies for good."""
    async with testing.open_ring(4, seed=50, timing=timing(anti_entropy_s=3.0)) as ring:
        await until_in_sync(ring)
        owner, dead, third, stand_in = clockwise(ring, KEY)
        await ring.kill(dead)
        await trio.sleep(3)
        ring.network.block(owner.name, third.name)
        with trio.fail_after(3):
            await write(owner, KEY, b"v", w=2, is_retry=True)
        assert holding(ring, KEY) == [owner.name, stand_in.name]
        await ring.kill(owner)
        ring.network.unblock(owner.name, third.name)
        compare_nothing(*ring.nodes)
        await until(lambda: third.name in holding(ring, KEY), within_s=20.0)


def test_only_copy_at_a_stand_in_comes_to_reachable_members() -> None:
    testing.run(stored_at_a_stand_in_only, seed=50)


def test_planted_hint_taken_for_an_own_copy_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a node judges by its predecessors alone, and takes the hint for a copy of its own."""

    async def nothing(self: Handoff, start: Contact) -> list[Arc]:
        return []

    monkeypatch.setattr(Handoff, "_not_mine", nothing)
    with pytest.raises(trio.TooSlowError):
        testing.run(stored_at_a_stand_in_only, seed=50)


@pytest.mark.slow
@virtual
async def test_hints_in_a_taken_over_arc_follow_its_former_owners() -> None:
    """A taken-over arc has two sets of members. A node may be a member in only one part."""
    async with testing.open_ring(8, seed=60, timing=timing(anti_entropy_s=3.0)) as ring:
        keep_disks(ring)
        await until_in_sync(ring)
        order = in_order(ring)
        dead, taker, _, member_of_the_second = order[1:5]
        first, second = keys_of(ring, dead, 3), keys_of(ring, taker, 3)
        await ring.kill(dead)
        await trio.sleep(3)
        for key in (*first, *second):
            await write(taker, key, b"v")
        await trio.sleep(5)
        assert member_of_the_second._local_status().hints == len(first)
        assert [node._local_status().hints for node in ring.nodes if node is not member_of_the_second] == [0] * 6


points = st.integers(0, 255).map(Point)
arcs = st.builds(Arc, points, points)


@given(arcs, arcs)
def test_lies_in_is_true_if_the_arc_has_all_points_of_the_part(part: Arc, arc: Arc) -> None:
    everywhere = [Point(point) for point in range(256)]
    assert lies_in(Circle(8), part, arc) == all(point in arc for point in everywhere if point in part)


@virtual
async def test_hint_reaches_the_owner_if_all_members_are_unreachable() -> None:
    """The owner stands behind the unreachable members, and answers the reads."""
    async with ring_in_sync(10, seed=5) as ring:
        await write(ring[0], KEY, b"1", w=3)
        first, second, third, owner, fifth, sixth, keeper, *_ = clockwise(ring, KEY)
        record = record_at(first, KEY)
        for node in (first, second, third, fifth, sixth):  # the possible stand-ins are unreachable, too
            await ring.kill(node, silently=True)
        await until(lambda: only(owner).ownership.is_owner(owner._host.circle.hash(KEY)))
        assert owner._host.storage.get(KEY) is None
        keeper._host.storage.apply(Batch(puts=(record,)))
        await until(lambda: owner._host.storage.get(KEY) == record)


@virtual
async def test_surplus_transfer_names_the_owner_as_its_peer() -> None:
    async with ring_in_sync(6, 31) as ring:
        await write(ring[0], KEY, b"v")
        await trio.sleep(1)
        stray = next(node for node in ring.nodes if node.name not in holding(ring, KEY))
        stray._host.storage.stage(Batch(puts=(record_at(clockwise(ring, KEY)[0], KEY),)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(until_none_misplaced, ring)
            while (transfer := stray._handoff.transfer) is None:
                await trio.sleep(0.0001)
        assert (transfer.kind, transfer.peer) == ("surplus", clockwise(ring, KEY)[0].contact)

"""What is kept for a replica that does not answer comes home, and is not dropped before."""

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
    settled,
    settled_ring,
    timing,
    until,
    until_level,
    write,
)
from tests.support.rings import in_order, keys_of, only, virtual


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_hint_is_kept_until_its_home_has_it(position: int) -> None:
    async def main() -> None:
        async with settled_ring(8, position, keeps_disks=True) as ring:
            places = clockwise(ring, KEY)
            home, fallback = places[position], places[3]
            await home.stop()
            await trio.sleep(3)
            await write(places[5], KEY, b"v")
            await trio.sleep(5)
            assert fallback.name in holding(ring, KEY), "nobody else keeps it for the one that is away"
            assert len(holding(ring, KEY)) >= 3
            home = await ring.start(name=home.name)
            dropped_at = None
            for _ in range(400):
                if home.host.storage.get(KEY) is None:
                    assert fallback.name in holding(ring, KEY), "dropped before its home had it"
                if fallback.name not in holding(ring, KEY):
                    dropped_at = trio.current_time()
                    break
                await trio.sleep(0.025)
            assert dropped_at is not None, "brought home, and dropped"
            assert versions.values(record_at(home, KEY)) == [b"v"]
            await until_level(ring)

    testing.run(main, seed=position)


@virtual
async def test_a_hint_comes_home_though_nobody_compares() -> None:
    async with settled_ring(8, 30, keeps_disks=True) as ring:
        places = clockwise(ring, KEY)
        home, fallback = places[1], places[3]
        await ring.kill(home)
        with trio.fail_after(3):
            await write(places[5], KEY, b"v")
        await until(lambda: fallback.name in holding(ring, KEY))
        compare_nothing(*ring.nodes)
        home = await ring.start(name=home.name)
        compare_nothing(home)
        await until(lambda: fallback.name not in holding(ring, KEY))
        assert versions.values(record_at(home, KEY)) == [b"v"]


@pytest.mark.slow
@virtual
async def test_two_homes_are_down_and_both_get_their_hints() -> None:
    async with settled_ring(9, 3, keeps_disks=True) as ring:
        keys = [key_at(ring, "n4", number) for number in range(10)]
        places = clockwise(ring, keys[0])
        for node in places[1:3]:
            await ring.kill(node)
        for key in keys:
            with trio.fail_after(3):
                written = await write(places[0], key, b"v")
            assert written.w >= 2
        await trio.sleep(3)
        for key in keys:
            assert holding(ring, key)[:3] == [places[0].name, places[3].name, places[4].name]
        for node in places[1:3]:
            await back(ring, node.name)
        await ring.converged()
        await until_level(ring)


@pytest.mark.slow
@virtual
async def test_a_home_that_is_gone_for_good_is_replaced() -> None:
    async with settled_ring(8, 4, down_out_s=15.0) as ring:
        places = clockwise(ring, KEY)
        await ring.kill(places[1])
        await write(places[0], KEY, b"v")
        await trio.sleep(10)
        assert only(places[0]).replica_set(only(places[0]).host.circle.hash(KEY)).members[1].is_waited_for
        await trio.sleep(20)
        await until_level(ring)


@pytest.mark.slow
@virtual
async def test_the_fallback_itself_dies() -> None:
    async with settled_ring(9, 5, keeps_disks=True) as ring:
        places = clockwise(ring, KEY)
        home, fallback = places[1], places[3]
        await ring.kill(home)
        await write(places[0], KEY, b"v")
        await trio.sleep(1)
        await ring.kill(fallback)
        await trio.sleep(1)
        with trio.fail_after(5):
            assert (await read(places[5], KEY)).values == (b"v",)
        await back(ring, home.name)
        await ring.converged()
        await until_level(ring)


@virtual
async def test_hints_from_before_and_a_newer_value_at_home_merge_to_the_newer() -> None:
    async with settled_ring(8, 6, keeps_disks=True) as ring:
        places = clockwise(ring, KEY)
        await write(places[0], KEY, b"1")
        home, fallback = places[1], places[3]
        await ring.kill(home)
        await write(places[0], KEY, b"2")
        await trio.sleep(1)
        ring.network.freeze(fallback.name)
        await back(ring, home.name)
        await until(lambda: versions.values(record_at(clockwise(ring, KEY)[1], KEY)) == [b"2"])
        with trio.fail_after(5):
            await write(places[5], KEY, b"3")
        ring.network.unfreeze(fallback.name)
        await ring.converged()
        await until_level(ring)
        with trio.fail_after(5):
            assert (await read(places[5], KEY)).values == (b"3",)


# -- who knows that it is a hint --------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_hints_are_counted_while_their_home_is_away(position: int) -> None:
    """The fallback sees nobody before it who is silent: it must be told that what it holds is another's."""

    async def main() -> None:
        async with testing.ring(8, seed=40 + position, timing=timing(anti_entropy_s=3.0)) as ring:
            keep_disks(ring)
            await settled(ring)
            places = clockwise(ring, KEY)
            home, fallback = places[position], places[3]
            await ring.kill(home)
            await trio.sleep(3)
            await write(places[5], KEY, b"v")
            await until(lambda: fallback.name in holding(ring, KEY))
            await trio.sleep(5)
            counts = {node.name: node.description().hints for node in ring.nodes}
            assert {name for name, count in counts.items() if count} == {fallback.name}, counts
            assert counts[fallback.name] == 1
            assert [node.description().misplaced for node in ring.nodes] == [0] * 7
            home = await back(ring, home.name)
            await until(lambda: fallback.name not in holding(ring, KEY))
            await trio.sleep(3)
            assert [node.description().hints for node in ring.nodes] == [0] * 8

    testing.run(main, seed=position)


async def told_to_a_fallback_only() -> None:
    """A write reaches its owner and the fallback of a silent member; the owner dies, and is never seen again."""
    async with testing.ring(4, seed=50, timing=timing(anti_entropy_s=3.0)) as ring:
        await settled(ring)
        owner, silent, third, fallback = clockwise(ring, KEY)
        await ring.kill(silent)
        await trio.sleep(3)
        ring.network.block(owner.name, third.name)
        with trio.fail_after(3):
            await write(owner, KEY, b"v", w=2)
        assert holding(ring, KEY) == [owner.name, fallback.name]
        await ring.kill(owner)
        ring.network.unblock(owner.name, third.name)
        compare_nothing(*ring.nodes)
        await until(lambda: third.name in holding(ring, KEY), within_s=20.0)


def test_what_only_a_stand_in_holds_comes_to_the_members_that_answer() -> None:
    testing.run(told_to_a_fallback_only, seed=50)


def test_planted_owners_are_not_asked_whose_hints_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if a node judged by its predecessors alone: it takes the hint for a copy of its own."""

    async def nothing(self: Handoff, start: Contact) -> list[Arc]:
        return []

    monkeypatch.setattr(Handoff, "_not_mine", nothing)
    with pytest.raises(trio.TooSlowError):
        testing.run(told_to_a_fallback_only, seed=50)


@pytest.mark.slow
@virtual
async def test_a_stretch_is_cut_where_another_was_the_owner() -> None:
    """A taken-over arc has two sets of members: who is none in the first part may be one in the second."""
    async with testing.ring(8, seed=60, timing=timing(anti_entropy_s=3.0)) as ring:
        keep_disks(ring)
        await settled(ring)
        order = in_order(ring)
        dead, taker, _, member_of_the_second = order[1:5]
        first, second = keys_of(ring, dead, 3), keys_of(ring, taker, 3)
        await ring.kill(dead)
        await trio.sleep(3)
        for key in (*first, *second):
            await write(taker, key, b"v")
        await trio.sleep(5)
        assert member_of_the_second.description().hints == len(first)
        assert [node.description().hints for node in ring.nodes if node is not member_of_the_second] == [0] * 6


points = st.integers(0, 255).map(Point)
arcs = st.builds(Arc, points, points)


@given(arcs, arcs)
def test_a_part_lies_in_an_arc_when_all_of_its_points_do(part: Arc, arc: Arc) -> None:
    everywhere = [Point(point) for point in range(256)]
    assert lies_in(Circle(8), part, arc) == all(point in arc for point in everywhere if point in part)


@virtual
async def test_where_all_members_are_silent_a_hint_reaches_the_owner() -> None:
    """It stands behind them, and is the one who is asked."""
    async with settled_ring(10, seed=5) as ring:
        await write(ring[0], KEY, b"1", w=3)
        first, second, third, owner, fifth, sixth, keeper, *_ = clockwise(ring, KEY)
        record = record_at(first, KEY)
        for node in (first, second, third, fifth, sixth):  # nor does anybody answer who might stand in
            await ring.kill(node, is_silent=True)
        await until(lambda: only(owner).ownership.is_owner(owner.host.circle.hash(KEY)))
        assert owner.host.storage.get(KEY) is None
        keeper.host.storage.apply(Batch(puts=(record,)))
        await until(lambda: owner.host.storage.get(KEY) == record)

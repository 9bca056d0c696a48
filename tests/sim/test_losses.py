"""What the ledger excuses: copies that nodes drop as they leave, and no others."""

from __future__ import annotations

from collections import Counter

import pytest
from worlds import only

from chord import testing
from chord.data import versions
from chord.data.storage import Batch
from chord.messages import ActorClock, Record, Version
from chord.sim.copies import unreadable
from chord.sim.losses import Losses
from chord.sim.story import Story

KEY = b"k"


@pytest.mark.parametrize("is_leaving", [False, True])
def test_only_who_leaves_may_have_dropped_what_a_client_is_told_of(is_leaving: bool) -> None:
    async def main() -> None:
        async with testing.ring(3, seed=1) as ring:
            host = ring[0].host
            complaints: list[str] = []
            stories = {KEY: Story(KEY, host.circle.hash(KEY))}
            losses = Losses(ring, host.constants, stories, Counter(), complaints.append, 600.0)
            host.is_leaving = is_leaving
            losses.dropped(ring[0].name, Record(KEY, ()))
            assert losses.dropped_since(0.0, KEY) == is_leaving
            assert losses.dropped_since(0.0, b"another") == 0
            host.is_leaving = False

    testing.run(main)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_delete_nobody_answered_may_be_reaped_with_what_it_replaced(is_elsewhere: bool) -> None:
    """Its client never heard of it: what it has deleted counts as deleted, or where a copy lives, goes on living."""

    async def main() -> None:
        async with testing.ring(3, seed=1) as ring:
            host = ring[0].host
            actor = host.storage.incarnation + bytes(8)
            complaints: list[str] = []
            story = Story(KEY, host.circle.hash(KEY))
            losses = Losses(ring, host.constants, {KEY: story}, Counter(), complaints.append, 600.0)
            put = story.begin("put")
            put.op_id = b"1" * 16
            value = Record(KEY, (ActorClock(actor, 1, (Version(put.value, put.op_id, 1),)),))
            story.saw(value)
            story.acknowledged(put, versions.encode_context({actor: 1}), 0.0)
            delete = story.begin("put", is_delete=True)
            delete.op_id = b"2" * 16
            tombstone = Record(KEY, (ActorClock(actor, 2, (Version(None, delete.op_id, 2),)),))
            story.saw(tombstone)
            story.unknown(delete, 1.0)
            host.storage.apply(Batch(puts=(tombstone,)))
            if is_elsewhere:
                ring[1].host.storage.apply(Batch(puts=(value,)))
            losses.dropped(ring[0].name, tombstone)
            host.storage.apply(Batch(removals=(KEY,)))
            assert complaints == []
            assert story.required() == [put] * is_elsewhere
            assert story.wrong(losses.truth.merged(KEY), 200.0) == []
            assert story.wrong(value, 200.0) == ([] if is_elsewhere else ["put 1 was replaced, and is back"])

    testing.run(main)


@pytest.mark.parametrize("leaves", [(), (1,)])
@pytest.mark.parametrize("dies", [(), (0,), (0, 1)])
def test_a_put_must_replace_what_a_node_in_its_place_has_and_no_other(
    dies: tuple[int, ...], leaves: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with testing.ring(4, seed=1) as ring:
            circle = ring[0].host.circle
            actor = ring[0].host.storage.incarnation + bytes(8)
            story = Story(KEY, circle.hash(KEY))
            losses = Losses(ring, ring[0].host.constants, {KEY: story}, Counter(), pytest.fail, 600.0)
            put = story.begin("put")
            put.op_id = b"1" * 16
            value = Record(KEY, (ActorClock(actor, 1, (Version(put.value, put.op_id, 1),)),))
            for at in (0, 1):
                ring[at].host.storage.apply(Batch(puts=(value,)))
            story.saw(value)
            story.acknowledged(put, versions.encode_context({actor: 1}), 0.0)
            for at in dies:
                losses.truth.dies(ring[at], lambda _: False)
            for at in leaves:
                ring[at].state = "leaving"
            living = {ring[at] for at in (0, 1) if at not in (*dies, *leaves)}
            assert losses.in_reach(story) == ({put: living} if living else {})

    testing.run(main)


def test_a_life_does_not_end_while_an_owner_waits_for_all_who_could_answer() -> None:
    async def main() -> None:
        async with testing.ring(6, seed=2) as ring:
            ring[0].host.storage.apply(Batch(puts=(Record(KEY, ()),)))
            assert list(unreadable(ring, 2)) == []
            (owner,) = [n for n in ring.nodes if only(n).ownership.is_owner(n.host.circle.hash(KEY))]
            only(owner).is_up = lambda place: place.contact == owner.contact  # type: ignore[method-assign]
            (text,) = unreadable(ring, 2)
            assert text == f"{owner.address} owns b'k', and of those who are to hold it only 1 answer"
            assert list(unreadable(ring, 1)) == []

    testing.run(main)

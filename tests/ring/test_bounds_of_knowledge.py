"""Bounds of claims by others: contexts, unmergeable records, forgotten nodes, lines of a trace."""

from __future__ import annotations

import msgspec
import pytest
import trio

from chord.config import Limits, RingConstants
from chord.errors import ConfigError, InvalidRequest
from chord.ids import Circle, Point
from chord.node import Node
from chord.ring.ownership import Ownership
from chord.ring.pointers import RingState
from chord.ring.preference_list import PreferenceList
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.codec import PREFIX_BYTES, codec_for
from chord.wire.messages import (
    ACTORS_HELD_MAX,
    ACTORS_MAX,
    REPLICAS_MAX,
    ActorClock,
    Contact,
    Done,
    Forget,
    GetReply,
    Record,
    ReplicaLine,
    StoreCopies,
    Version,
)
from chord.wire.messages.records import REPLICA_LINES_MAX
from tests.support.quorum import KEY, clockwise, holding, only, read, ring_in_sync, until_none_misplaced, write
from tests.support.rings import virtual

CIRCLE = Circle(160)
AHEAD_MAX = Limits().context_ahead_max


def coordinated_by(key: bytes, first: int, count: int) -> Record:
    """Return a record of `count` actors. The first actor has a value."""
    clock = [ActorClock(b"%016d" % number, 1, ()) for number in range(first, first + count)]
    clock[0] = ActorClock(clock[0].actor, 1, (Version(b"of %d" % first, b"%016d" % first, 1),))
    return Record(key, tuple(clock))


# -- unmergeable records ---------------------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_arc_with_an_unmergeable_record_is_synced() -> None:
    """Each replica has a record near the bound of actors, and their merge exceeds it."""
    async with ring_in_sync(3, 3) as ring:
        nodes = clockwise(ring, KEY)
        keys = [b"key-%03d" % number for number in range(150)]
        for number, node in enumerate(nodes):
            node._host.storage.stage(Batch([coordinated_by(KEY, 1000 * number, ACTORS_MAX + 20)]))
            node._host.storage.stage(Batch([coordinated_by(key, number, 1) for key in keys[number::3]]))
        with trio.fail_after(300):
            while any(node._host.storage.get(key) is None for node in nodes for key in keys):
                await trio.sleep(5)
        for node in nodes:
            mine = node._host.storage.get(KEY)
            assert mine is not None
            assert len(mine.clock) <= ACTORS_HELD_MAX
            assert node._host.counters["records_unmerged"], "the node counts and reports the record"
        assert ring.counts["RecordUnmerged"]


@virtual
async def test_store_copies_with_an_unmergeable_record_is_refused() -> None:
    """A sender drops acknowledged records, so the node must not acknowledge the page."""
    async with ring_in_sync(2, 2) as ring:
        one, other = ring.nodes
        one._host.storage.stage(Batch([coordinated_by(KEY, 0, ACTORS_MAX + 20)]))
        page = (
            coordinated_by(b"before", 0, 1),
            coordinated_by(KEY, 1000, ACTORS_MAX + 20),
            coordinated_by(b"later", 0, 1),
        )
        with pytest.raises(InvalidRequest, match="360 nodes have coordinated writes of"):
            await other._host.peers.call(only(one).me, StoreCopies(page), Done)
        assert [one._host.storage.get(record.key) == record for record in page] == [False, False, False]
        assert one._host.counters["records_unmerged"] == 1
        await other._host.peers.call(only(one).me, StoreCopies((page[0], page[2])), Done)
        assert [one._host.storage.get(record.key) == record for record in page] == [True, False, True]


@virtual
async def test_records_of_actors_held_max_actors_are_merged() -> None:
    async with ring_in_sync(1, 1) as ring:
        (node,) = ring.nodes
        records = node._shared.records
        half = ACTORS_HELD_MAX // 2
        assert await records.merge([coordinated_by(KEY, 0, half), coordinated_by(KEY, 1000, half)], ()) == 1
        assert await records.merge([coordinated_by(KEY, 5000, 1)], ()) == 0
        merged = node._host.storage.get(KEY)
        assert merged is not None
        assert len(merged.clock) == ACTORS_HELD_MAX


# -- contexts --------------------------------------------------------------------------------------------


def context_of(node: Node, claimed: int) -> bytes:
    """Return a context that claims `claimed` writes of the actor that a node mints under."""
    actor = node._host.storage.minted(KEY)
    assert actor is not None
    return versions.encode_context({actor: claimed})


@virtual
async def test_context_beyond_context_ahead_max_is_refused() -> None:
    async with ring_in_sync(3, 3) as ring:
        owner, second, *_ = clockwise(ring, KEY)
        await write(owner, KEY, b"first")
        forged = {b"x" * 16: AHEAD_MAX}
        await write(owner, KEY, b"at the edge", context=versions.encode_context(forged))
        forged[b"x" * 16] += AHEAD_MAX + 1
        with pytest.raises(InvalidRequest, match="the context claims more than 4294967296 writes"):
            await write(owner, KEY, b"beyond", context=versions.encode_context(forged))
        with pytest.raises(InvalidRequest, match="claims more"):
            await write(owner, KEY, b"beyond", context=versions.encode_context({b"y" * 16: versions.COUNT_MAX - 1}))
        assert b"at the edge" in (await read(second, KEY)).values


@virtual
async def test_put_over_the_largest_count_stays_encodable() -> None:
    """A restored backup may have the largest possible count."""
    async with ring_in_sync(3, 3) as ring:
        owner, *_ = clockwise(ring, KEY)
        await write(owner, KEY, b"first")
        actor = owner._host.storage.minted(KEY)
        assert actor is not None
        claimed = Record(KEY, (ActorClock(actor, versions.COUNT_MAX - 1, ()),))
        for node in ring.nodes:
            await node._shared.records.merge([claimed], ())
        for number in range(3):
            await write(owner, KEY, b"v%d" % number)
        found = await read(ring[0], KEY)
        assert found.values == (b"v2",)
        await write(owner, KEY, b"last", context=found.context)
        assert (await read(ring[1], KEY)).values == (b"last",)
        await until_none_misplaced(ring)
        assert len(holding(ring, KEY)) == 3
        record = owner._host.storage.get(KEY)
        assert record is not None
        assert max(entry.count for entry in record.clock) == versions.COUNT_MAX - 1


def test_record_with_a_count_beyond_count_max_is_not_sound() -> None:
    for count, is_sound in ((versions.COUNT_MAX - 1, True), (versions.COUNT_MAX, False)):
        assert versions.is_sound(Record(KEY, (ActorClock(b"a" * 16, count, ()),))) == is_sound
    with pytest.raises(ConfigError, match="context_ahead_max"):
        Limits(context_ahead_max=(1 << 32) + 1)


# -- forgotten nodes -------------------------------------------------------------------------------------


@virtual
async def test_forgotten_addresses_are_bounded_and_evict_the_oldest() -> None:
    async with ring_in_sync(2, 2) as ring:
        one, other = ring.nodes
        limit = one._host.limits.forgotten_max
        view = only(one).preference_list
        for number in range(limit + 3):
            await other._host.peers.call(one.address, Forget(f"gone{number}:1"), Done)
            await other._host.peers.call(one.address, Forget("gone2:1"), Done)
            assert len(view._forgotten) <= limit
        assert not view.is_forgotten(Contact(Point(1), "gone0:1"))
        assert view.is_forgotten(Contact(Point(1), "gone2:1")), "a repeated forget renews the entry"
        assert view.is_forgotten(Contact(Point(1), f"gone{limit + 2}:1"))


# -- lines of a trace ------------------------------------------------------------------------------------


def test_trace_of_the_largest_replica_set_fits_its_message() -> None:
    """16 members, 3 stand-ins, and 19 leaving nodes."""
    me, *others = (Contact(Point(1000 * number), f"n{number}:1") for number in range(1, 61))
    ring, own, view = RingState(me, CIRCLE, 64, REPLICAS_MAX + 1), Ownership(me), PreferenceList(me, CIRCLE)
    ring.successors = tuple(others)
    ring.predecessor, own.start = others[-1], others[-1].id
    for contact in others[:30]:
        view.retires(contact.address, 0.0)
    stand_ins = RingConstants(successors=64, replicas=REPLICAS_MAX).stand_ins
    replica_set = view.replica_set(Point(900), ring, own, REPLICAS_MAX, stand_ins)
    assert len(replica_set.everyone) == REPLICA_LINES_MAX == 38
    lines = tuple(ReplicaLine(place.contact, "ok", True) for place in replica_set.everyone)
    values = GetReply((b"v",), b"", me, replicas=lines)
    codec = codec_for(CIRCLE)
    assert codec.decode_reply(codec.encode_reply(1, values)[PREFIX_BYTES:], GetReply) == (1, values)
    more = msgspec.structs.replace(values, replicas=(*values.replicas, values.replicas[0]))
    with pytest.raises(Exception, match="length <= 38"):
        codec.decode_reply(codec.encode_reply(1, more)[PREFIX_BYTES:], GetReply)

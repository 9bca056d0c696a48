"""Restores: values deleted or replaced since the backup are counted, or brought back on request."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chord import testing
from chord.client.results import Stored
from chord.config import Limits
from chord.errors import NotFound
from chord.node import Node
from chord.replication import restore
from chord.replication.records import Remarks
from chord.store import quarantine, versions
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Merge, Record, Version, Written
from tests.models.absence import Store
from tests.support.quarantined import ACTORS, entry, op_id
from tests.support.quorum import KEY, clockwise, timing, until
from tests.support.rings import put, virtual

MINTING = versions.actor(b"minting ", 9)
OP_ID = b"bring back again"
NOW_MS = 1000


@st.composite
def histories(draw: st.DrawFn) -> Record:
    """Draw a record of one history, in which each dot has a value of its own."""
    clock = []
    for actor in ACTORS:
        count = draw(st.integers(0, 3))
        held = draw(st.integers(0, count))
        found = tuple(
            Version(b"%d of %s" % (count - place, actor[:8]), op_id(actor, count - place), 1) for place in range(held)
        )
        clock += [ActorClock(actor, count, found)] if count else []
    return Record(KEY, tuple(clock))


def values(record: Record) -> set[bytes]:
    return set(versions.values(record))


@given(histories(), histories())
def test_missing_returns_the_saved_values_that_the_ring_lacks(saved: Record, held: Record) -> None:
    merged = versions.sync(saved, held)
    assert {version.value for version in restore.missing(saved, merged, NOW_MS)} == values(saved) - values(merged)


@given(histories(), histories())
def test_bring_back_adds_all_saved_values_to_the_record(saved: Record, held: Record) -> None:
    merged = versions.sync(saved, held)
    lost = restore.missing(saved, merged, NOW_MS)
    after, written = restore.bring_back(merged, lost, MINTING, OP_ID, fits=lambda record: True)
    assert values(after) == values(saved) | values(merged)
    assert (written, versions.check(after)) == (len(lost), [])
    assert restore.missing(saved, after, NOW_MS) == [], "a second call changes nothing"
    for copy in (saved, held, merged):
        assert values(versions.sync(after, copy)) == values(after), "replicas without the change converge"


@given(histories(), histories(), st.integers(0, 3))
def test_bring_back_writes_the_values_that_have_room(saved: Record, held: Record, room: int) -> None:
    merged = versions.sync(saved, held)
    lost = restore.missing(saved, merged, NOW_MS)
    size = len(values(merged)) + room
    after, written = restore.bring_back(merged, lost, MINTING, OP_ID, fits=lambda record: len(values(record)) <= size)
    assert written == min(len(lost), room)
    assert len(values(after)) == len(values(merged)) + written


def test_missing_omits_tombstones_and_expired_values() -> None:
    over, living = Version(b"over", b"2" * 16, 1, NOW_MS), Version(b"v", b"3" * 16, 1, NOW_MS + 1)
    saved = Record(KEY, (ActorClock(ACTORS[0], 3, (Version(None, b"1" * 16, 1), over, living)),))
    gone = Record(KEY, (ActorClock(ACTORS[0], 3, ()),))
    assert [version.value for version in restore.missing(saved, gone, NOW_MS)] == [b"v"]


def test_missing_omits_a_value_that_was_written_again() -> None:
    saved = Record(KEY, (entry(ACTORS[0], 1, 1),))
    anew = ActorClock(ACTORS[1], 1, (Version(b"v", b"n" * 16, 1),))
    again = Record(KEY, (ActorClock(ACTORS[0], 1, ()), anew))
    assert restore.missing(saved, again, NOW_MS) == []


def test_missing_includes_quarantined_values_that_the_ring_lacks() -> None:
    saved = Record(KEY, (), b"", (entry(ACTORS[0], 2, 2),))
    assert restore.missing(saved, saved, NOW_MS) == []
    left = Record(KEY, (), b"", (entry(ACTORS[0], 2, 1),))
    assert [one.op_id for one in restore.missing(saved, left, NOW_MS)] == [op_id(ACTORS[0], 1)]
    assert len(restore.missing(saved, Record(KEY, ()), NOW_MS)) == 2


# -- at one node -------------------------------------------------------------------------------------------------


def test_planted_restore_that_counts_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restore, "missing", lambda saved, merged, now_ms: [])
    with pytest.raises(AssertionError):
        test_restored_value_that_was_replaced_counts_or_returns(b"")


@pytest.mark.parametrize("op_id", [b"", OP_ID])
def test_restored_value_that_was_replaced_counts_or_returns(op_id: bytes) -> None:
    store = Store(b"store  1", Limits())
    saved = Record(KEY, (entry(ACTORS[0], 1, 1),))
    now = versions.put(saved, KEY, None, ACTORS[1], Version(b"new", b"n" * 16, 2))
    store.apply(Batch(puts=[now]))
    after, batch, remarks = store.records.to_restore(Merge(saved, 0, op_id), None)
    store.apply(batch)
    assert remarks == (Remarks(decided=1) if op_id else Remarks(dead=1))
    assert values(after) == ({b"v", b"new"} if op_id else {b"new"})
    assert store.storage.get(KEY) == after
    again, batch, remarks = store.records.to_restore(Merge(saved, 0, op_id), None)
    assert (again, batch.is_empty, remarks.decided) == (after, True, 0)


def test_restored_value_without_room_is_counted_as_dead() -> None:
    store = Store(b"store  1", Limits(siblings_max=1))
    saved = Record(KEY, (entry(ACTORS[0], 1, 1),))
    now = versions.put(saved, KEY, None, ACTORS[1], Version(b"new", b"n" * 16, 2))
    store.apply(Batch(puts=[now]))
    after, _, remarks = store.records.to_restore(Merge(saved, 0, OP_ID), None)
    assert (values(after), remarks) == ({b"new"}, Remarks(dead=1))


def test_restored_dots_are_minted_by_the_store() -> None:
    """Otherwise the next put of this store would use the number again."""
    store = Store(b"store  1", Limits())
    saved = Record(KEY, (entry(ACTORS[0], 1, 1),))
    store.apply(Batch(puts=[versions.discard(saved, {ACTORS[0]: 1})]))
    after, batch, _ = store.records.to_restore(Merge(saved, 0, OP_ID), None)
    store.apply(batch)
    minted = store.storage.minted(KEY)
    assert [each.count for each in after.clock if each.actor == minted] == [1]
    quarantined = Record(KEY, (), b"", (entry(ACTORS[2], 1, 1),))
    assert quarantine.count(store.records.to_restore(Merge(quarantined), None)[0]) == 1


# -- in a ring ---------------------------------------------------------------------------------------------------

REAPING = timing(grace_s=5.0, anti_entropy_s=1.0)


async def saved_of(node: Node) -> list[Record]:
    return [record async for record in node.export()]


async def restored(node: Node, saved: list[Record], *, bring_back: bool = False) -> list[Stored]:
    result = await node.import_many(saved, bring_back=bring_back)
    assert not result.errors
    return list(result.ok.values())


@pytest.mark.slow
@pytest.mark.parametrize("until_reaped", [False, True])
def test_restore_keeps_deletes_unless_asked_to_bring_back(until_reaped: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(5, seed=1, timing=REAPING) as ring:
            await put(ring[0], KEY, b"v")
            await put(ring[0], b"other", b"1")
            saved = await saved_of(ring[1])
            await put(ring[2], KEY, None)
            await put(ring[2], b"other", b"2")
            if until_reaped:
                await until(lambda: not any(node._host.storage.get(KEY) for node in ring.nodes), 60)
            stored = await restored(ring[3], saved)
            assert sorted((one.key, one.dead, one.brought_back) for one in stored) == [(KEY, 1, 0), (b"other", 1, 0)]
            with pytest.raises(NotFound):
                await ring[4].get(KEY)
            stored = await restored(ring[3], saved, bring_back=True)
            assert sorted((one.key, one.dead, one.brought_back) for one in stored) == [(KEY, 0, 1), (b"other", 0, 1)]
            await trio.sleep(10)
            for node in ring.nodes:
                assert (await node.get(KEY)).values == (b"v",)
                assert sorted((await node.get(b"other")).values) == [b"1", b"2"]
            stored = await restored(ring[0], saved, bring_back=True)
            assert [(one.dead, one.brought_back) for one in stored] == [(0, 0)] * 2
            siblings = sum(node._local_status().sibling_keys for node in ring.nodes)
            assert siblings == 3, "the replaced key has siblings on each replica, the deleted key has none"

    testing.run(main, seed=1)


@virtual
async def test_restore_puts_the_quarantine_of_a_backup_back() -> None:
    hidden = (entry(ACTORS[0], 1, 1),)
    async with testing.open_ring(4, seed=1) as ring:
        for node in clockwise(ring, KEY)[:3]:
            await next(iter(node._parts.values())).records.merge([Record(KEY, (), b"", hidden)], ())
        saved = await saved_of(ring[0])
    assert saved == [Record(KEY, (), b"", hidden)]
    async with testing.open_ring(4, seed=2) as ring:
        (stored,) = await restored(ring[0], saved)
        assert (stored.dead, stored.quarantined) == (0, 1)
        assert len((await ring[1].get_quarantine(KEY)).values) == 1
        with pytest.raises(NotFound):
            await ring[2].get(KEY)
        await ring[3].drop_quarantine(KEY)
        (stored,) = await restored(ring[0], saved)
        assert (stored.dead, stored.quarantined) == (1, 0), "an older backup does not undo a decision"


@virtual
async def test_bring_back_asks_a_quorum_for_deletes() -> None:
    """A coordinator that missed the delete would count the value as living."""
    async with testing.open_ring(5, seed=1) as ring:
        await put(ring[0], KEY, b"v")
        saved = await saved_of(ring[1])
        owner, second, third = clockwise(ring, KEY)[:3]
        record = owner._host.storage.get(KEY)
        assert record is not None
        deleted = versions.put(record, KEY, None, versions.actor(b"elsewher", 1), Version(None, b"d" * 16, 2))
        for node in (second, third):
            await next(iter(node._parts.values())).records.merge([deleted], ())
        request = Merge(saved[0], 0, OP_ID)
        stored = await owner._host.peers.call(owner.address, request, Written)
        assert (stored.dead, stored.decided) == (0, 1)
        assert (await ring[0].get(KEY)).values == (b"v",)


@virtual
async def test_bring_back_with_a_lost_answer_is_repeated_once() -> None:
    async with testing.open_ring(5, seed=1) as ring:
        await put(ring[0], KEY, b"v")
        (saved,) = await saved_of(ring[1])
        await put(ring[0], KEY, b"new")
        owner, second = clockwise(ring, KEY)[:2]
        request = Merge(saved, 0, OP_ID)
        await owner._host.peers.call(owner.address, request, Written)
        ring.network.freeze(owner.name)
        await trio.sleep(3)
        await second._host.peers.call(second.address, request, Written)
        ring.network.unfreeze(owner.name)
        await trio.sleep(10)
        for node in ring.nodes:
            assert sorted((await node.get(KEY)).values) == [b"new", b"v"]


def test_bring_back_without_room_changes_nothing() -> None:
    record = Record(KEY, (entry(ACTORS[0], 1, 1),))
    lost = [Version(b"x", b"x" * 16, 1)]
    assert restore.bring_back(record, lost, MINTING, OP_ID, fits=lambda record: False) == (record, 0)

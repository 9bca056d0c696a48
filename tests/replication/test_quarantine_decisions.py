"""Decisions about quarantine: all replicas drop or merge the same values, also those that were away."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chord import testing
from chord.client.results import Quarantined
from chord.config import Limits
from chord.errors import InvalidRequest, NotFound, OwnerDown, QuorumFailed, TooFewReplicas, VersionConflict
from chord.node import Node
from chord.replication.records import Remarks
from chord.store import quarantine, versions
from chord.store.quarantine import Decision
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import (
    ACTORS_HELD_MAX,
    ActorClock,
    DecideQuarantine,
    GetQuarantine,
    GetQuarantineReply,
    Record,
    Version,
    Written,
)
from tests.models.absence import Store
from tests.support.quarantined import ACTORS, converged, entry, hidden, op_id, records, shown
from tests.support.quorum import KEY, LOCAL, clockwise, read, record_at, timing, until, write
from tests.support.rings import put, virtual

MINTING = tuple(versions.actor(b"minting%d" % number, 9) for number in range(2))
OP_ID = b"decision about it"[:16]
CONTEXTS = st.dictionaries(st.sampled_from(ACTORS), st.integers(1, 5))


def dots(record: Record) -> set[tuple[bytes, int]]:
    """Return the dots of the versions in quarantine."""
    return {(one.actor, one.number) for one in quarantine.hidden(record)}


def covered(record: Record, context: Mapping[bytes, int]) -> set[tuple[bytes, int]]:
    return {(actor, number) for actor, number in dots(record) if number <= context.get(actor, 0)}


def merged(record: Record, context: Mapping[bytes, int], minting: bytes = MINTING[0]) -> Decision:
    return quarantine.merge(record, context, minting, OP_ID, fits=lambda record: True)


def anew(record: Record) -> dict[bytes, Version]:
    """Return the versions that a decision wrote anew, by their operation ids."""
    return {version.op_id: version for each in record.clock if each.actor in MINTING for version in each.versions}


# -- laws of the decisions -------------------------------------------------------------------------------------


@given(records(), CONTEXTS)
def test_drop_takes_the_named_versions_and_shows_the_same(record: Record, context: dict[bytes, int]) -> None:
    after, count = quarantine.drop(record, context)
    assert (shown(after), versions.check(after)) == (shown(record), [])
    assert dots(after) == dots(record) - covered(record, context)
    assert count == len(covered(record, context))


@given(records(), records(), CONTEXTS)
def test_drop_wins_over_every_copy_of_the_quarantine(record: Record, late: Record, context: dict[bytes, int]) -> None:
    """A replica that was away has the same versions, or some of them, and maybe later ones."""
    after, _ = quarantine.drop(record, context)
    for copy in (record, late):
        both = versions.sync(after, copy)
        assert both == versions.sync(copy, after)
        assert not dots(both) & covered(record, context)
        assert shown(both) <= shown(versions.sync(record, copy)), "a decision shows nothing that was not shown"


@given(records(), CONTEXTS)
def test_merge_shows_each_named_value_once_and_hides_no_other(record: Record, context: dict[bytes, int]) -> None:
    after, count = merged(record, context)
    named = [one for one in quarantine.hidden(record) if one.number <= context.get(one.actor, 0)]
    values = {one.version.op_id for one in named if not versions.is_done(record, one.version.op_id)}
    assert (count, versions.check(after)) == (len(named), [])
    assert len(anew(after)) == len(values)
    assert shown(after) == shown(record) | set(anew(after))
    assert dots(after) == dots(record) - covered(record, context)


@given(records(), records(), CONTEXTS)
def test_merge_wins_over_every_copy_of_the_quarantine(record: Record, late: Record, context: dict[bytes, int]) -> None:
    after, _ = merged(record, context)
    for copy in (record, late):
        both = versions.sync(after, copy)
        assert both == versions.sync(copy, after)
        assert not dots(both) & covered(record, context)
        assert set(anew(both)) == set(anew(after)), "a late replica does not undo the decision"


@given(records(), CONTEXTS)
def test_merge_made_twice_by_two_nodes_shows_each_value_once(record: Record, context: dict[bytes, int]) -> None:
    """If an answer is lost, another coordinator executes the decision again."""
    one, other = merged(record, context, MINTING[0]).record, merged(record, context, MINTING[1]).record
    ends = [converged(order) for order in permutations([one, other, record])]
    assert len({frozenset(shown(end)) for end in ends}) == 1
    assert shown(ends[0]) == shown(one)
    assert merged(one, context, MINTING[1]).decided == 0, "there is nothing left to decide about"


@given(records(), CONTEXTS)
def test_merged_values_replaced_by_a_put_do_not_come_back(record: Record, context: dict[bytes, int]) -> None:
    after, _ = merged(record, context)
    settled = versions.put(after, record.key, None, MINTING[0], Version(b"settled", bytes(16), 9))
    assert versions.values(versions.sync(settled, record)) == [b"settled"]


@given(records(), records(), CONTEXTS)
def test_decision_loses_nothing_that_it_does_not_name(record: Record, late: Record, context: dict[bytes, int]) -> None:
    """A decision names events. It leaves later writes of a returned store alone."""
    named = {actor: max((n for a, n in covered(record, context) if a == actor), default=0) for actor in ACTORS}
    without = versions.sync(record, late)
    both = versions.sync(quarantine.drop(record, context).record, late)
    kept = {actor: {op_id(actor, n) for n in range(last + 1)} for actor, last in named.items()}
    undecided = (shown(without) | hidden(without)) - set().union(*kept.values())
    assert shown(both) | hidden(both) >= undecided


def test_tombstone_in_quarantine_is_decided_and_not_written_anew() -> None:
    gone = ActorClock(ACTORS[0], 1, (Version(None, b"t" * 16, 1),))
    after, count = merged(Record(KEY, (), b"", (gone,)), {ACTORS[0]: 1})
    assert (after.clock, after.quarantine, count) == ((ActorClock(ACTORS[0], 1, ()),), (), 1)


def test_write_anew_keeps_the_time_and_the_time_to_live() -> None:
    old = Version(b"v", b"o" * 16, 7, 99)
    after, _ = merged(Record(KEY, (), b"", (ActorClock(ACTORS[0], 1, (old,)),)), {ACTORS[0]: 1})
    (new,) = anew(after).values()
    assert (new.value, new.written_ms, new.expires_ms, new.op_id != old.op_id) == (b"v", 7, 99, True)


def test_write_anew_replaces_deletes_and_no_values() -> None:
    """Otherwise a tombstone would stay beside the value, and the key would have siblings for ever."""
    gone, value = Version(None, b"t" * 16, 3), Version(b"live", b"l" * 16, 3)
    held = [(2, (gone,)), (2, (gone, value)), (1, (value,))]
    clock = tuple(ActorClock(actor, *what) for actor, what in zip(ACTORS, held, strict=True))
    record = Record(KEY, clock, b"", (entry(versions.actor(b"gone  01", 3), 1, 1),))
    after, _ = merged(record, quarantine.context_of(record))
    assert sorted(versions.values(after)) == [b"live", b"v"]
    left = {each.actor: each for each in after.clock}
    assert [len(left[actor].versions) for actor in ACTORS] == [0, 2, 1]
    assert left[ACTORS[0]].count == 2, "what the delete has replaced stays replaced"


def test_merge_stops_at_the_first_version_without_room() -> None:
    """Of an actor the earlier events are decided; a clock cannot name a later one without them."""
    record = Record(KEY, (), b"", (entry(ACTORS[0], 3, 3), entry(ACTORS[1], 2, 2)))
    after, count = quarantine.merge(
        record, quarantine.context_of(record), MINTING[0], OP_ID, fits=lambda one: len(anew(one)) <= 2
    )
    assert (count, len(anew(after))) == (2, 2)
    assert dots(after) == {(ACTORS[0], 3), (ACTORS[1], 1), (ACTORS[1], 2)}


@pytest.mark.parametrize("held", [ACTORS_HELD_MAX - 1, ACTORS_HELD_MAX])
def test_drop_refuses_a_clock_of_too_many_actors(held: int) -> None:
    clock = tuple(ActorClock(versions.actor(b"a store ", number), 1, ()) for number in range(held))
    record = Record(KEY, clock, b"", (entry(versions.actor(b"b store ", 1), 1, 1),))
    if held == ACTORS_HELD_MAX:
        with pytest.raises(InvalidRequest, match=r"321 stores .* delete the key first"):
            quarantine.drop(record, quarantine.context_of(record))
    else:
        assert quarantine.drop(record, quarantine.context_of(record)).decided == 1


@given(records(), st.integers(0, 400))
def test_cut_quarantine_holds_whole_actors_and_one_at_least(record: Record, bytes_max: int) -> None:
    cut = quarantine.cut(record, bytes_max)
    assert cut.quarantine == record.quarantine[: len(cut.quarantine)]
    assert (cut.clock, bool(cut.quarantine)) == ((), bool(record.quarantine))


# -- planted bugs in the laws ------------------------------------------------------------------------------------


def test_planted_drop_without_a_clock_entry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(record: Record, context: Mapping[bytes, int]) -> Decision:
        left = tuple(each for each in record.quarantine if each.actor not in context)
        return Decision(Record(record.key, record.clock, record.replaced, left), len(record.quarantine) - len(left))

    monkeypatch.setattr(quarantine, "drop", forgets)
    hides = Record(KEY, (), b"", (entry(ACTORS[0], 1, 1),))
    with pytest.raises(AssertionError):
        test_drop_wins_over_every_copy_of_the_quarantine.hypothesis.inner_test(  # type: ignore[attr-defined]
            hides, hides, {ACTORS[0]: 1}
        )


def test_planted_merge_under_the_old_operation_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice remembers the tags of replaced operations: under its old one a value could vanish again."""

    def as_it_was(record: Record, version: Version, minting: bytes, op_id: bytes, *, is_retry: bool) -> Record:
        return versions.put(record, record.key, {}, minting, version)

    monkeypatch.setattr(quarantine, "write_anew", as_it_was)
    with pytest.raises(AssertionError):
        test_write_anew_keeps_the_time_and_the_time_to_live()


# -- at one node -------------------------------------------------------------------------------------------------


def store_of(limits: Limits = Limits()) -> Store:  # noqa: B008
    return Store(b"store  1", limits)


def decide(store: Store, record: Record, *, merge: bool, seen: Record | None = None) -> tuple[Record, Remarks]:
    if record.clock or record.quarantine:
        store.apply(Batch(puts=[record]))
    context = versions.encode_context(quarantine.context_of(record))
    after, batch, remarks = store.records.to_decide(DecideQuarantine(KEY, context, OP_ID, merge), seen)
    store.apply(batch)
    return after, remarks


@pytest.mark.parametrize(("room", "decided"), [(2, 2), (1, 1), (0, None)])
def test_merge_beside_siblings_is_refused_only_without_any_room(room: int, decided: int | None) -> None:
    store = store_of(Limits(siblings_max=3 + room))
    live = tuple(
        ActorClock(versions.actor(b"a store ", number), 1, (Version(b"v", b"%016d" % number, 1),))
        for number in range(3)
    )
    record = Record(KEY, live, b"", (entry(ACTORS[0], 2, 2),))
    if decided is None:
        with pytest.raises(VersionConflict, match="the key holds 3 versions, and has no room"):
            decide(store, record, merge=True)
        assert store.storage.get(KEY) == record
        return
    after, remarks = decide(store, record, merge=True)
    assert remarks.decided == decided
    assert quarantine.count(after) == 2 - decided
    assert store.storage.get(KEY) == after


@pytest.mark.parametrize("extra", [0, 1])
def test_merge_keeps_a_record_within_its_bytes(extra: int) -> None:
    store = store_of(Limits(record_bytes_max=3000))
    live = (ActorClock(versions.actor(b"a store ", 1), 1, (Version(b"v" * 2000, b"1" * 16, 1),)),)
    hides = (ActorClock(ACTORS[0], 1, (Version(b"h" * (1000 + extra), b"2" * 16, 1),)),)
    if extra:
        with pytest.raises(VersionConflict):
            decide(store, Record(KEY, live, b"", hides), merge=True)
    else:
        assert decide(store, Record(KEY, live, b"", hides), merge=True)[1].decided == 1


def test_decision_takes_what_other_replicas_hold_in_quarantine() -> None:
    store, seen = store_of(), Record(KEY, (), b"", (entry(ACTORS[0], 1, 1),))
    context = versions.encode_context({ACTORS[0]: 1})
    after, batch, remarks = store.records.to_decide(DecideQuarantine(KEY, context, OP_ID, True), seen)
    store.apply(batch)
    assert (versions.values(after), remarks.decided) == ([b"v"], 1)


def test_decision_about_a_key_without_quarantine_changes_nothing() -> None:
    store = store_of()
    live = Record(KEY, (entry(ACTORS[0], 1, 1),))
    store.apply(Batch(puts=[live]))
    context = versions.encode_context({ACTORS[0]: 1})
    for merge in (False, True):
        after, batch, remarks = store.records.to_decide(DecideQuarantine(KEY, context, OP_ID, merge), None)
        assert (after, batch.is_empty, remarks.decided) == (live, True, 0), "a context of readers covers nothing here"


# -- in a ring ---------------------------------------------------------------------------------------------------

HIDDEN = tuple(
    ActorClock(versions.actor(b"gone  %02d" % number, 3), 1, (Version(b"old %d" % number, b"%016d" % number, 5),))
    for number in range(2)
)
SHORT = timing(grace_s=5.0, anti_entropy_s=1.0)


async def hide(ring: TestRing, key: bytes = KEY, what: tuple[ActorClock, ...] = HIDDEN) -> None:
    """Bring all replicas of a key to hold values in quarantine."""
    for node in clockwise(ring, key)[:3]:
        await next(iter(node._parts.values())).records.merge([Record(key, (), b"", what)], ())


def hidden_at(node: Node, key: bytes = KEY) -> int:
    record = node._host.storage.get(key)
    return 0 if record is None else quarantine.count(record)


async def quarantined(node: Node) -> list[Quarantined]:
    return [found async for found in node.scan_quarantine()]


@virtual
async def test_scan_lists_quarantined_keys_of_the_whole_ring_once() -> None:
    async with testing.open_ring(5, seed=1) as ring:
        keys = [b"key-%d" % number for number in range(12)]
        for number, key in enumerate(keys):
            await put(ring[0], key, b"v")
            if number % 3 == 0:
                await hide(ring, key)
        found = await quarantined(ring[2])
        assert sorted(one.key for one in found) == sorted(keys[::3])
        circle = ring[0]._host.circle
        assert [one.key for one in found] == sorted(keys[::3], key=circle.hash), "in ring order"
        for one in found:
            assert [value.value for value in one.values] == [b"old 0", b"old 1"]
            assert [(value.store, value.key_epoch, value.number) for value in one.values] == [
                (b"gone  00", 3, 1),
                (b"gone  01", 3, 1),
            ]
        assert sum(node._local_status().quarantined for node in ring.nodes) == 8, "each counted once, at its owner"
        assert [pair.key async for pair in ring[1].scan()] == sorted(keys, key=circle.hash)


@virtual
async def test_scan_of_quarantine_comes_in_pages() -> None:
    async with testing.open_ring(3, seed=1, limits=Limits(page_bytes=4096)) as ring:
        big = ActorClock(versions.actor(b"gone  00", 3), 1, (Version(b"x" * 3000, b"o" * 16, 5),))
        for number in range(20):
            await hide(ring, b"key-%d" % number, (big,))
        assert sum(node._local_status().quarantined for node in ring.nodes) == 20
        assert len({one.key for one in await quarantined(ring[0])}) == 20


@virtual
async def test_read_counts_the_values_in_quarantine() -> None:
    async with testing.open_ring(4, seed=1) as ring:
        await hide(ring)
        with pytest.raises(NotFound) as caught:
            await ring[1].get(KEY)
        assert caught.value.quarantined == 2
        assert (await ring[1].put(KEY, b"v")).quarantined == 2
        found = await ring[1].get(KEY)
        assert (found.values, found.quarantined) == ((b"v",), 2)


@virtual
async def test_dropped_quarantine_is_gone_everywhere_and_reaped() -> None:
    async with testing.open_ring(4, seed=1, timing=SHORT) as ring:
        await hide(ring)
        decided = await ring[3].drop_quarantine(KEY)
        assert (decided.values, decided.left, decided.w >= 2, decided.w_needed) == (2, 0, True, 2)
        await until(lambda: not any(hidden_at(node) for node in ring.nodes))
        assert await quarantined(ring[0]) == []
        with pytest.raises(NotFound, match="in quarantine"):
            await ring[2].drop_quarantine(KEY)
        await until(lambda: not any(node._host.storage.get(KEY) for node in ring.nodes), 60)
        with pytest.raises(NotFound):
            await ring[0].get(KEY)


@virtual
async def test_merged_quarantine_stands_beside_the_live_value() -> None:
    async with testing.open_ring(4, seed=1) as ring:
        await hide(ring)
        await put(ring[0], KEY, b"new")
        decided = await ring[3].merge_quarantine(KEY)
        assert (decided.values, decided.left) == (2, 0)
        for node in ring.nodes:
            assert sorted((await node.get(KEY)).values) == [b"new", b"old 0", b"old 1"]
        await until(lambda: not any(hidden_at(node) for node in ring.nodes))
        await ring[1].put(KEY, b"settled", context=(await ring[1].get(KEY)).context)
        await trio.sleep(5)
        for node in ring.nodes:
            assert (await node.get(KEY)).values == (b"settled",)


@virtual
async def test_decision_under_a_context_leaves_later_values_alone() -> None:
    async with testing.open_ring(4, seed=1) as ring:
        await hide(ring, what=HIDDEN[:1])
        listed = await ring[0].get_quarantine(KEY)
        await hide(ring, what=HIDDEN)
        decided = await ring[0].drop_quarantine(KEY, context=listed.context)
        assert (decided.values, decided.left) == (1, 1)
        assert [one.value for one in (await ring[1].get_quarantine(KEY)).values] == [b"old 1"]
        decided = await ring[0].drop_quarantine(KEY, context=listed.context)
        assert (decided.values, decided.left) == (0, 1), "made again, it does nothing"


@virtual
async def test_decision_without_a_quorum_is_refused() -> None:
    async with testing.open_ring(4, seed=1) as ring:
        await hide(ring)
        owner, *others = clockwise(ring, KEY)
        for node in others:
            ring.network.freeze(node.name)
        await trio.sleep(2)
        with pytest.raises((TooFewReplicas, QuorumFailed)):
            await owner.drop_quarantine(KEY)


@virtual
async def test_quarantine_is_denied_only_if_none_was_missed() -> None:
    """Too many unreachable replicas may hold a quarantine that the others lack."""
    async with testing.open_ring(5, seed=1) as ring:
        await put(ring[0], KEY, b"v")
        owner, *others = clockwise(ring, KEY)
        assert (await owner.get_quarantine(KEY)).values == ()
        for node in others[:2]:
            ring.network.freeze(node.name)
        await trio.sleep(3)
        with pytest.raises(OwnerDown):
            await owner.get_quarantine(KEY)
        with pytest.raises(OwnerDown):
            await owner.drop_quarantine(KEY)


async def decided_while_one_is_away(ring: TestRing, *, merge: bool, until_reaped: bool) -> Node:
    """Decide while a replica that holds the quarantine is frozen; return it when it has been back for long."""
    await hide(ring)
    away = clockwise(ring, KEY)[2]
    ring.network.freeze(away.name)
    await trio.sleep(2)
    node = next(node for node in ring.nodes if node is not away)
    await (node.merge_quarantine if merge else node.drop_quarantine)(KEY)
    if until_reaped:
        await until(lambda: not any(one._host.storage.get(KEY) for one in ring.nodes if one is not away), 60)
    assert hidden_at(away) == 2
    ring.network.unfreeze(away.name)
    await trio.sleep(20)
    return away


@pytest.mark.slow
@pytest.mark.parametrize(("merge", "until_reaped"), [(False, False), (False, True), (True, False)])
def test_late_replica_does_not_bring_a_decided_quarantine_back(merge: bool, until_reaped: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(5, seed=3, timing=SHORT) as ring:
            away = await decided_while_one_is_away(ring, merge=merge, until_reaped=until_reaped)
            assert [hidden_at(node) for node in ring.nodes] == [0] * 5
            assert await quarantined(away) == []
            if merge:
                assert sorted((await away.get(KEY)).values) == [b"old 0", b"old 1"]
            else:
                with pytest.raises(NotFound):
                    await away.get(KEY)

    testing.run(main, seed=3)


@pytest.mark.slow
def test_planted_drop_at_one_store_only_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(record: Record, context: Mapping[bytes, int]) -> Decision:
        return Decision(Record(record.key, record.clock, record.replaced, ()), quarantine.count(record))

    monkeypatch.setattr(quarantine, "drop", forgets)

    async def main() -> None:
        async with testing.open_ring(5, seed=3, timing=SHORT) as ring:
            await decided_while_one_is_away(ring, merge=False, until_reaped=False)
            assert [hidden_at(node) for node in ring.nodes] != [0] * 5

    testing.run(main, seed=3)


@virtual
async def test_merge_whose_answer_is_lost_is_made_again_once() -> None:
    """The same request at another coordinator brings each value back once."""
    async with testing.open_ring(5, seed=2) as ring:
        await hide(ring)
        context = (await ring[0].get_quarantine(KEY)).context
        request = DecideQuarantine(KEY, context, OP_ID, merge=True)
        owner, second = clockwise(ring, KEY)[:2]
        await owner._host.peers.call(owner.address, request, Written)
        ring.network.freeze(owner.name)
        await trio.sleep(3)
        await second._host.peers.call(second.address, request, Written)
        ring.network.unfreeze(owner.name)
        await trio.sleep(10)
        for node in ring.nodes:
            assert sorted((await node.get(KEY)).values) == [b"old 0", b"old 1"]


@virtual
async def test_quarantine_beyond_one_answer_is_decided_in_several() -> None:
    async with testing.open_ring(4, seed=1, limits=Limits(record_bytes_max=6000, page_bytes=4096)) as ring:
        many = tuple(
            ActorClock(versions.actor(b"gone %03d" % number, 3), 1, (Version(b"x" * 2000, b"%016d" % number, 5),))
            for number in range(7)
        )
        await hide(ring, what=many)
        found = await ring[0].get_quarantine(KEY)
        assert 0 < len(found.values) < 7
        assert len(found.values) + found.left == 7
        decided = await ring[0].merge_quarantine(KEY)
        assert (decided.values, decided.left) == (3, 4), "as many as have room beside one another"
        with pytest.raises(VersionConflict):
            await ring[0].merge_quarantine(KEY)
        decided = await ring[0].drop_quarantine(KEY)
        assert (decided.values, decided.left) == (4, 0)
        assert len((await ring[0].get(KEY)).values) == 3


@virtual
async def test_quarantine_is_read_from_a_quorum() -> None:
    async with testing.open_ring(4, seed=1, timing=timing(anti_entropy_s=LOCAL.anti_entropy_s)) as ring:
        owner, second = clockwise(ring, KEY)[:2]
        await write(owner, KEY, b"v")
        await next(iter(second._parts.values())).records.merge([Record(KEY, (), b"", HIDDEN)], ())
        answer = await owner._host.peers.call(owner.address, GetQuarantine(KEY, 3), GetQuarantineReply)
        assert ([each.actor for each in answer.entries], answer.r) == ([each.actor for each in HIDDEN], 3)
        await until(lambda: record_at(owner, KEY).quarantine == HIDDEN)
        assert (await read(owner, KEY)).quarantined == 2


def test_node_named_by_its_store() -> None:
    """What the command line shows as the origin: a node tells the incarnation of its store."""

    async def main() -> Any:
        async with testing.open_ring(3, seed=1) as ring:
            return {node._local_status().incarnation: node.name for node in ring.nodes}

    assert sorted(testing.run(main, seed=1).values()) == ["n0", "n1", "n2"]

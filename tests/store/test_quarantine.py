"""Records with actors in quarantine: merges agree in any order, and dead values stay dead."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import permutations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chord.store import versions
from chord.wire.messages import ActorClock, Record, Version
from tests.support.quarantined import (
    ACTORS,
    COUNT_MAX,
    KEY,
    NOTHING,
    converged,
    entry,
    hidden,
    op_id,
    records,
    shown,
)


def core(record: Record | None) -> tuple[tuple[ActorClock, ...], tuple[ActorClock, ...]]:
    """Return the entries of a record without its list of replaced operations."""
    return ((), ()) if record is None else (record.clock, record.quarantine)


# -- merging ------------------------------------------------------------------------------------------------


@given(records(), records())
def test_sync_with_quarantine_commutes(a: Record, b: Record) -> None:
    assert versions.sync(a, b) == versions.sync(b, a)


@pytest.mark.slow
@given(records(), records())
def test_sync_with_quarantine_is_idempotent(a: Record, b: Record) -> None:
    merged = versions.sync(a, b)
    assert versions.sync(merged, merged) == merged
    assert versions.sync(versions.sync(merged, a), b) == versions.sync(merged, versions.sync(a, b)) == merged


@pytest.mark.slow
@given(st.lists(records(), min_size=3, max_size=3))
def test_stores_with_quarantine_become_equal_in_any_order(held: list[Record]) -> None:
    """The order may decide if a value is hidden, but not if it exists."""
    ends = [converged(order) for order in permutations(held)]
    assert all(versions.check(end) == [] for end in ends)
    assert len({frozenset(shown(end) | hidden(end)) for end in ends}) == 1


def replaced(record: Record) -> set[bytes]:
    """Return the operations in a record's list of replaced operations."""
    return {
        op_id(one.actor, number)
        for part in core(record)
        for one in part
        for number in range(1, one.count - len(one.versions) + 1)
    }


@pytest.mark.slow
@given(records(), records())
def test_sync_shows_the_values_of_both_except_replaced_ones(a: Record, b: Record) -> None:
    merged = versions.sync(a, b)
    assert shown(merged) >= (shown(a) | shown(b)) - replaced(a) - replaced(b)
    assert not shown(merged) & (replaced(a) | replaced(b))


@given(records(), records())
def test_sync_keeps_every_hidden_value_or_decides_about_it(a: Record, b: Record) -> None:
    merged = versions.sync(a, b)
    counts = versions.context_of(merged)
    for record in (a, b):
        for one in record.quarantine:
            kept = next((other for other in merged.quarantine if other.actor == one.actor), None)
            if kept is None:
                assert counts.get(one.actor, 0) >= one.count, "a clock knows all events of the actor"
            else:
                assert kept.count >= one.count


# -- deciding ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clock", "quarantine", "shows", "hides"),
    [
        ((2, 0), (2, 1), [], []),  # all events are known, and were replaced
        ((3, 0), (2, 2), [], []),
        ((1, 0), (2, 1), [], [2]),  # only an earlier event is known
        ((1, 0), (3, 3), [], [3, 2]),  # the first was replaced
        ((1, 1), (2, 1), [2], []),  # a live value: the actor was not reaped; its first value was replaced since
        ((1, 1), (2, 2), [2, 1], []),
        ((2, 2), (2, 1), [2], []),  # all are held, and the first was replaced elsewhere
        ((4, 1), (2, 2), [4], []),
    ],
)
def test_clock_decides_about_the_quarantine_of_its_actor(
    clock: tuple[int, int], quarantine: tuple[int, int], shows: list[int], hides: list[int]
) -> None:
    merged = versions.sync(
        Record(KEY, (entry(ACTORS[0], *clock),)), Record(KEY, (), b"", (entry(ACTORS[0], *quarantine),))
    )
    assert shown(merged) == {op_id(ACTORS[0], number) for number in shows}
    assert hidden(merged) == {op_id(ACTORS[0], number) for number in hides}


def test_quarantined_copy_of_a_known_operation_is_dropped() -> None:
    """A write executed twice needs no second copy, because the first is shown or was replaced."""
    twice = Version(b"v", op_id(ACTORS[0], 1), 1)
    live = Record(KEY, (ActorClock(ACTORS[1], 1, (twice,)),))
    assert versions.sync(live, Record(KEY, (), b"", (ActorClock(ACTORS[0], 1, (twice,)),))) == live


def test_put_over_a_quarantined_value_leaves_it_hidden() -> None:
    held = Record(KEY, (), b"", (entry(ACTORS[0], 1, 1),))
    after = versions.put(held, KEY, None, ACTORS[1], Version(b"new", bytes(16), 2))
    assert versions.values(after) == [b"new"]
    assert after.quarantine == held.quarantine
    assert versions.context_of(after) == {ACTORS[1]: 1}, "a context covers only what its reader saw"


@given(records())
def test_cut_shows_no_quarantine(record: Record) -> None:
    assert versions.cut(record, 1 << 20).quarantine == ()
    assert shown(versions.cut(record, 1 << 20)) == shown(record)


@given(records(), st.integers(1, 8))
def test_split_records_merge_to_the_whole_with_quarantine(record: Record, bytes_max: int) -> None:
    parts = versions.split(record, bytes_max)
    assert core(converged([reduce(versions.sync, parts)])) == core(record)


def test_split_record_without_a_clock_keeps_its_replaced_operations() -> None:
    """Otherwise a replica without this list never gets it."""
    first = versions.put(Record(KEY, ()), KEY, None, ACTORS[0], Version(b"old", b"1" * 16, 1))
    second = versions.put(first, KEY, None, ACTORS[0], Version(b"new", b"2" * 16, 2))
    isolated = versions.isolate(second, [ACTORS[0]])
    assert not isolated.clock
    assert isolated.replaced
    assert reduce(versions.sync, versions.split(isolated, 1)) == isolated


# -- isolating -----------------------------------------------------------------------------------------------


@given(records(hides=False), st.sets(st.sampled_from(ACTORS)))
def test_isolate_hides_actors_and_loses_no_value(record: Record, actors: set[bytes]) -> None:
    live = {one.actor for one in record.clock if one.versions} & actors
    isolated = versions.isolate(record, live)
    assert {one.actor for one in isolated.clock} == {one.actor for one in record.clock} - live
    assert {one.actor for one in isolated.quarantine} == live
    assert shown(isolated) | hidden(isolated) == shown(record)
    assert versions.check(isolated) == []
    assert versions.sync(isolated, record) == record, "a clock with these events shows the values again"
    assert versions.isolate(isolated, live) == isolated


@given(records(hides=False), records(hides=False), st.sets(st.sampled_from(ACTORS)))
def test_isolate_at_both_stores_and_sync_hides_them_all(a: Record, b: Record, actors: set[bytes]) -> None:
    def isolated(record: Record) -> Record:
        return versions.isolate(record, [one.actor for one in record.clock if one.versions and one.actor in actors])

    merged = versions.sync(isolated(a), isolated(b))
    for one in merged.clock:
        assert one.actor not in actors or not one.versions


# -- burying -------------------------------------------------------------------------------------------------

DEAD = st.dictionaries(st.sampled_from(ACTORS), st.integers(1, COUNT_MAX + 1))


@pytest.mark.slow
@given(records(), DEAD)
def test_bury_removes_only_dead_dots(record: Record, dead: dict[bytes, int]) -> None:
    left = versions.bury(record, dead)
    gone = {op_id(actor, number) for actor, last in dead.items() for number in range(1, last + 1)}
    held = {one.op_id for part in core(record) for each in part for one in each.versions}
    assert {one.op_id for part in core(left) for each in part for one in each.versions} == held - gone
    assert left is None or versions.bury(left, dead) == left
    assert left is None or versions.check(left) in ([], ["an actor in quarantine has no value"])


@given(records(hides=False), records(hides=False), DEAD)
@example(Record(KEY, (entry(ACTORS[0], 2, 2),)), Record(KEY, (entry(ACTORS[0], 3, 1),)), {ACTORS[0]: 2})
def test_bury_commutes_with_sync(a: Record, b: Record, dead: dict[bytes, int]) -> None:
    """A store may apply a log entry before or after a record."""
    merged = versions.bury(versions.sync(a, b), dead)
    one, other = versions.bury(a, dead), versions.bury(b, dead)
    apart = one if other is None else other if one is None else versions.sync(one, other)
    assert core(merged) == core(apart)


@given(records(), records(), DEAD)
def test_bury_commutes_with_sync_of_quarantine(a: Record, b: Record, dead: dict[bytes, int]) -> None:
    """The order may decide if a value is hidden, but not if it exists."""
    merged = versions.bury(versions.sync(a, b), dead) or NOTHING
    apart = versions.sync(versions.bury(a, dead) or NOTHING, versions.bury(b, dead) or NOTHING)
    assert shown(merged) | hidden(merged) == shown(apart) | hidden(apart)


@given(records(), DEAD, DEAD)
def test_bury_of_two_entries_equals_both_at_once(
    record: Record, first: dict[bytes, int], second: dict[bytes, int]
) -> None:
    def after(record: Record | None, each: Iterable[dict[bytes, int]]) -> Record | None:
        for dead in each:
            record = None if record is None else versions.bury(record, dead)
        return record

    joined = {actor: max(first.get(actor, 0), second.get(actor, 0)) for actor in first.keys() | second.keys()}
    assert after(record, [first, second]) == after(record, [second, first]) == after(record, [joined])


@given(records(hides=False))
def test_bury_with_the_context_of_a_record_leaves_nothing(record: Record) -> None:
    assert versions.bury(record, versions.context_of(record)) is None


def test_bury_keeps_the_value_of_an_event_after_the_dead_ones() -> None:
    record = Record(KEY, (entry(ACTORS[0], 4, 3),))
    assert versions.bury(record, {ACTORS[0]: 2}) == Record(KEY, (entry(ACTORS[0], 4, 2),))
    assert versions.bury(record, {ACTORS[0]: 1}) == record
    assert versions.bury(record, {ACTORS[0]: 4}) is None


@pytest.mark.parametrize(
    ("count", "held", "said", "left"), [(3, 3, (0, 0), 3), (3, 3, (1, 0), 2), (3, 3, (3, 1), 1), (3, 1, (9, 0), 0)]
)
def test_narrow_removes_values_that_another_clock_replaced(
    count: int, held: int, said: tuple[int, int], left: int
) -> None:
    assert versions.narrow(entry(ACTORS[0], count, held), *said) == entry(ACTORS[0], count, left)


# -- planted bugs ----------------------------------------------------------------------------------------------


def leaves_empty_entries(record: Record, actors: Iterable[bytes]) -> Record:
    gone = set(actors)
    moved = tuple(one for one in record.clock if one.actor in gone)
    clock = tuple(ActorClock(one.actor, one.count, ()) if one.actor in gone else one for one in record.clock)
    return Record(record.key, clock, record.replaced, moved)


def test_planted_isolate_that_leaves_an_empty_entry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "isolate", leaves_empty_entries)
    with pytest.raises(AssertionError):
        test_isolate_hides_actors_and_loses_no_value.hypothesis.inner_test(  # type: ignore[attr-defined]
            Record(KEY, (entry(ACTORS[0], 1, 1),)), {ACTORS[0]}
        )


def test_planted_bury_of_whole_records_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "bury", lambda record, dead, tags=b"": None if dead else record)
    with pytest.raises(AssertionError):
        test_bury_keeps_the_value_of_an_event_after_the_dead_ones()


def test_planted_quarantine_that_is_not_merged_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    hides = Record(KEY, (), b"", (entry(ACTORS[0], 1, 1),))
    joined = versions._joined
    monkeypatch.setattr(versions, "_joined", lambda a, b: a if hides.quarantine in (a, b) else joined(a, b))
    with pytest.raises(AssertionError):
        test_sync_with_quarantine_commutes.hypothesis.inner_test(  # type: ignore[attr-defined]
            hides, Record(KEY, (entry(ACTORS[1], 1, 1),))
        )

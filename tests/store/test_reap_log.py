"""The reap log of one store: numbered entries in segments, seen and trimmed entries, decisions about old values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

import pytest
from msgspec import convert, to_builtins

from chord.config import Limits
from chord.errors import Behind, InvalidRequest
from chord.ids import Arc, Point
from chord.replication.records import Remarks
from chord.store import quarantine, reap_log, versions
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import MAKER, SEGMENT_ENTRIES, TAGS_KEPT, Grave, SliceState
from chord.store.storage import Batch
from chord.wire.messages import (
    MAKERS_MAX,
    ActorClock,
    Claim,
    DeadActor,
    EntryRun,
    Holding,
    LogEntry,
    Merge,
    Record,
    SliceLog,
    UpTo,
    Version,
)
from tests.models.absence import CIRCLE, Store, keys_in_slices
from tests.mutants.mutant import Edit

WHOLE = Arc(Point(0), Point(0))
SLICE_KEYS = keys_in_slices(1, 4)
KEY, OTHER = SLICE_KEYS[:2]
ELSEWHERE = next(key for key in keys_in_slices(2, 2) if key not in SLICE_KEYS)
STRANGER = b"stranger"
PLENTY = 1 << 30
NEVER = Limits(reap_log_entries=100_000, reap_log_entries_max=100_000)


def store(limits: Limits = NEVER, incarnation: bytes = b"store  1") -> Store:
    return Store(incarnation, limits)


def version(number: int, value: bytes | None = b"v") -> Version:
    return Version(value, b"operation%07d" % number, 1)


def clock(epoch: int, count: int = 1, held: int = 1, actor: bytes = STRANGER) -> ActorClock:
    """Return the entry of an actor with `count` events and the values of the latest `held` ones."""
    numbers = [100 * epoch + count - place for place in range(held)]
    values = tuple(version(number, b"v%d" % number) for number in numbers)
    return ActorClock(versions.actor(actor, epoch), count, values)


def record(*entries: ActorClock, key: bytes = KEY) -> Record:
    return Record(key, tuple(sorted(entries, key=lambda entry: entry.actor)))


def reap(at: Store, epochs: Iterable[int], key: bytes = KEY) -> None:
    """Let a store reap a record of each of these epochs, one after the other."""
    for epoch in epochs:
        one = record(clock(epoch), key=key)
        at.apply(Batch(puts=[one]))
        at.apply(at.log.bury([Grave(one, versions.context_of(one))]))


def part_of(at: Store, key: bytes = KEY) -> int:
    return at.log.slice_of(key)


def maker_of(at: Store) -> bytes:
    (maker,) = at.log.state(part_of(at)).seen
    return maker


def log_of(at: Store, seen: dict[bytes, int] | None = None, key: bytes = KEY) -> SliceLog:
    return at.log.log_after(part_of(at, key), seen or {}, PLENTY)[0]


def epochs_of(runs: Sequence[EntryRun]) -> list[int]:
    """Return the epochs of the actors that the entries of a log name."""
    return [int.from_bytes(dead.actor[8:], "big") for run in runs for entry in run.entries for dead in entry.dead]


def segments(at: Store) -> list[bytes]:
    return [name for name in at.storage.notes() if name[:1] == b"l"]


def level(at: Store, source: Store, key: bytes = KEY) -> None:
    """Let a store absorb the unseen entries of another store's log, and catch up if they were trimmed."""
    log = log_of(source, at.log.state(part_of(at, key)).seen, key)
    if at.log.is_in_reach(log):
        at.apply(at.log.absorb(log))
        return
    known: dict[Claim, Holding] = {}
    while claims := at.log.claims(log, known):
        known.update(zip(claims, source.log.vouch(claims), strict=True))
    at.apply(at.log.catch_up(log, known))


# -- entries ---------------------------------------------------------------------------------------------


def test_bury_many_entries_fill_segments_of_64() -> None:
    one = store()
    reap(one, range(1, 151))
    state = one.log.state(part_of(one))
    assert list(state.seen.values()) == [150]
    assert (state.entries, state.trimmed, state.floors) == (150, {}, {})
    assert len(segments(one)) == 3
    (run,) = log_of(one).runs
    assert (run.maker, run.first, len(run.entries)) == (maker_of(one), 1, 150)
    assert epochs_of([run]) == list(range(1, 151))
    assert one.storage.get(KEY) is None


@pytest.mark.parametrize("seen", [0, 1, 63, 64, 65, 127, 128, 129, 149, 150, 151])
def test_log_after_seen_begins_with_the_next_entry(seen: int) -> None:
    one = store()
    reap(one, range(1, 151))
    log = log_of(one, {maker_of(one): seen})
    assert epochs_of(log.runs) == list(range(seen + 1, 151))
    assert [run.first for run in log.runs] == ([seen + 1] if seen < 150 else [])


def test_log_after_within_bytes_comes_in_pages_without_gaps() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, range(1, 151))
    pages = 0
    while other.log.seen(part_of(one)) != one.log.seen(part_of(one)):
        log, size = one.log.log_after(part_of(one), other.log.state(part_of(one)).seen, 2_000)
        assert size < 2_300
        other.apply(other.log.absorb(log))
        pages += 1
    assert 3 < pages < 12
    assert log_of(other).runs == log_of(one).runs


def store_of_makers(makers: int) -> Store:
    """Return a store with one entry of each of many makers in its log."""
    one = store()
    for number in range(makers):
        one.apply(Batch(notes={MAKER: b"maker%03d" % number}))
        reap(one, [number + 1])
    return one


def pages_until_seen(at: Store, source: Store, page_bytes: int) -> list[int]:
    """Let a store absorb another store's log page by page; return the number of entries on each page."""
    part, pages = part_of(source), list[int]()
    while not at.log.state(part).reaches(source.log.state(part).seen):
        log, _ = source.log.log_after(part, at.log.state(part).seen, page_bytes)
        pages.append(len(epochs_of(log.runs)))
        assert pages[-1], "a page without entries brings the stores no further"
        at.apply(at.log.absorb(log))
    return pages


@pytest.mark.parametrize(("makers", "page_bytes"), [(5, 400), (6, 400), (7, 400), (2, 0), (2, 1), (40, 400)])
def test_log_after_page_full_of_makers_still_has_entries(makers: int, page_bytes: int) -> None:
    """Six makers take 448 bytes. That was the state of a schedule in which two stores never agreed."""
    one = store_of_makers(makers)
    pages = pages_until_seen(store(incarnation=b"store  2"), one, page_bytes)
    assert sum(pages) == makers
    assert pages[0] == (1 if page_bytes < 2 else 4)  # an entry takes 58 bytes, and 200 are for entries


def test_log_after_two_stores_with_many_makers_agree() -> None:
    """Each store has an entry that the other lacks."""
    one = store_of_makers(6)
    other = store(incarnation=b"store  2")
    level(other, one)
    reap(one, [101])
    reap(other, [102])
    assert pages_until_seen(one, other, 400) + pages_until_seen(other, one, 400) == [1, 1]
    assert log_of(one).runs == log_of(other).runs


def test_planted_page_without_room_for_entries_is_caught() -> None:
    plant = Edit(ReapLog.log_after, "max(bytes_max - head, bytes_max / 2)", "bytes_max - head")
    with ExitStack() as stack:
        plant.plant(stack)
        with pytest.raises(AssertionError, match="no further"):
            test_log_after_page_full_of_makers_still_has_entries(6, 400)
        with pytest.raises(AssertionError, match="no further"):
            test_log_after_two_stores_with_many_makers_agree()


def test_run_of_own_entries_omits_entries_of_others() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [1, 2])
    level(other, one)
    first = other.log.next_number(part_of(one))
    reap(other, [3, 4])
    run = other.log.run_of(part_of(one), first)
    assert (first, epochs_of(run.runs)) == (1, [3, 4])
    assert epochs_of(other.log.run_of(part_of(one), 2).runs) == [4]
    level(one, other)
    assert other.log.seen(part_of(one)) == one.log.seen(part_of(one))


# -- trimming --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", [0, 1, 63, 64, 65, 127, 128, 129, 149, 150])
def test_trim_removes_the_oldest_entries_and_raises_the_floor(gone: int) -> None:
    one = store()
    reap(one, range(1, 151))
    one.apply(one.log.trim(part_of(one), 150 - gone))
    state = one.log.state(part_of(one))
    maker = maker_of(one)
    assert state.entries == 150 - gone
    assert state.trimmed.get(maker, 0) == gone
    assert state.floors == ({STRANGER: gone} if gone else {})
    assert epochs_of(log_of(one).runs) == list(range(gone + 1, 151))
    assert len(segments(one)) == 3 - gone // SEGMENT_ENTRIES - (gone == 150)
    reap(one, [200])
    assert epochs_of(log_of(one, {maker: 150}).runs) == [200], "the numbers continue"
    assert one.log.state(part_of(one)).seen == {maker: 151}


def test_trim_in_steps_equals_trim_at_once() -> None:
    one, other = store(), store()
    for each in (one, other):
        reap(each, range(1, 151))
    for keep in (140, 90, 86, 20, 3):
        one.apply(one.log.trim(part_of(one), keep))
    other.apply(other.log.trim(part_of(one), 3))
    assert dict(one.storage.notes()) == dict(other.storage.notes())


def test_trim_shortens_the_longest_run_first() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(other, range(1, 4))
    level(one, other)
    reap(one, range(11, 21))
    one.apply(one.log.trim(part_of(one), 7))
    lengths = {run.maker: len(run.entries) for run in log_of(one).runs}
    assert lengths == {maker_of(other): 3, one.log._storage.note(b"m"): 4}


@pytest.mark.parametrize(("most", "keep"), [(4, 2), (4, 4), (1, 1), (1, 0), (0, 0)])
def test_log_beyond_its_hard_limit_is_trimmed_and_counted(most: int, keep: int) -> None:
    one = store(Limits(reap_log_entries=keep, reap_log_entries_max=most))
    reap(one, range(1, most + 1))
    assert (one.log.state(part_of(one)).entries, one.log.forced_trims) == (most, 0)
    reap(one, [most + 1])
    state = one.log.state(part_of(one))
    assert (state.entries, one.log.forced_trims) == (keep, 1)
    assert state.floors == {STRANGER: most + 1 - keep}
    assert list(state.seen.values()) == [most + 1]
    assert len(segments(one)) == (1 if keep else 0)


def test_trim_keeps_the_latest_tags_of_replaced_operations() -> None:
    one = store()
    for number in range(TAGS_KEPT + 5):
        first = versions.put(None, KEY, None, versions.actor(STRANGER, number), version(2 * number))
        second = versions.put(first, KEY, None, versions.actor(STRANGER, number), version(2 * number + 1, None))
        one.apply(Batch(puts=[second]))
        one.apply(one.log.bury([Grave(second, versions.context_of(second))]))
    one.apply(one.log.trim(part_of(one), 0))
    tags = one.log.state(part_of(one)).tags
    assert len(tags) == 8 * TAGS_KEPT
    late = record(ActorClock(versions.actor(b"elsewher", 1), 1, (version(2 * (TAGS_KEPT + 4)),)))
    forgotten = record(ActorClock(versions.actor(b"elsewher", 1), 1, (version(0),)))
    assert one.log.restored(late) == record(ActorClock(versions.actor(b"elsewher", 1), 1, ()))
    assert one.log.restored(forgotten) == forgotten, "a 65th tag has pushed it out"


# -- applying entries of others ------------------------------------------------------------------------------


def test_absorb_buries_dead_dots_and_nothing_else() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [5])
    survivor = record(clock(6))
    other.apply(Batch(puts=[record(clock(5), clock(6)), record(clock(5), key=OTHER)]))
    level(other, one)
    assert other.storage.get(KEY) == survivor
    assert other.storage.get(OTHER) == record(clock(5), key=OTHER), "an actor belongs to one key"


def test_absorb_of_entry_with_later_event_keeps_the_value() -> None:
    """The log names events up to a number. A later event was concurrent with the delete."""
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [5])
    other.apply(Batch(puts=[record(clock(5, count=2, held=2))]))
    level(other, one)
    assert other.storage.get(KEY) == record(clock(5, count=2, held=1))


def test_absorb_twice_changes_nothing() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, range(1, 100))
    log = log_of(one)
    other.apply(other.log.absorb(log))
    before = dict(other.storage.notes())
    other.apply(other.log.absorb(log))
    assert dict(other.storage.notes()) == before


def test_absorb_out_of_order_waits_for_the_gap() -> None:
    one, other = store(), store(incarnation=b"store  2")
    other.apply(Batch(puts=[record(clock(1), clock(2), clock(3))]))
    reap(one, [1, 2, 3])
    maker = maker_of(one)
    last = log_of(one, {maker: 2})
    other.apply(other.log.absorb(last))
    assert other.log.state(part_of(one)).seen == {}
    assert other.storage.get(KEY) == record(clock(1), clock(2), clock(3)), "an entry without the one before it"
    middle = log_of(one, {maker: 1})
    first = SliceLog(last.slice, last.seen, (), (), b"", (EntryRun(maker, 1, log_of(one).runs[0].entries[:1]),))
    other.apply(other.log.absorb(first))
    assert other.log.state(part_of(one)).seen == {maker: 1}
    other.apply(other.log.absorb(middle))
    assert other.log.state(part_of(one)).seen == {maker: 3}
    assert other.storage.get(KEY) is None


def test_absorb_in_reach_trims_what_the_other_has_trimmed() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, range(1, 101))
    level(other, one)
    one.apply(one.log.trim(part_of(one), 10))
    log = log_of(one, one.log.state(part_of(one)).seen)
    assert log.runs == ()
    assert other.log.is_in_reach(log)
    other.apply(other.log.absorb(log))
    assert other.log.state(part_of(one)) == one.log.state(part_of(one))
    assert segments(other) == segments(one)


def test_absorb_out_of_reach_adopts_nothing() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, range(1, 11))
    one.apply(one.log.trim(part_of(one), 4))
    log = log_of(one)
    assert not other.log.is_in_reach(log)
    other.apply(other.log.absorb(log))
    assert other.log.state(part_of(one)) == SliceState()


def test_planted_entries_taken_over_a_gap_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def absorb(self: Any, log: SliceLog) -> None:
        state = self.slice(log.slice)
        for run in log.runs:
            state.seen[run.maker] = run.first - 1
            for entry in run.entries:
                self.append(log.slice, run.maker, entry)

    monkeypatch.setattr(reap_log._Work, "absorb", absorb)
    with pytest.raises(AssertionError):
        test_absorb_out_of_order_waits_for_the_gap()


# -- seen entries ---------------------------------------------------------------------------------------------


def test_seen_is_equal_for_any_order_of_entries() -> None:
    one, two, three, four = (store(incarnation=b"store  %d" % number) for number in range(4))
    reap(one, [1, 2])
    reap(two, [3])
    level(three, one)
    level(three, two)
    level(four, two)
    level(four, one)
    part = part_of(one)
    assert three.log.seen(part) == four.log.seen(part) != b""
    assert len({each.log.seen(part) for each in (one, two, three)}) == 3


def test_seen_of_as_many_entries_of_another_maker_differs() -> None:
    one, two = store(), store(incarnation=b"store  2")
    reap(one, [1, 2])
    reap(two, [1, 2])
    assert one.log.seen(part_of(one)) != two.log.seen(part_of(one))


def test_seen_of_an_empty_log_is_empty() -> None:
    one = store()
    assert one.log.seen_of(KEY) == one.log.durably_seen_of(KEY) == one.log.digest_in(WHOLE) == b""
    assert one.log.seen_of_each([record(clock(1))]) == ()
    assert one.log.seen_in(WHOLE) == ()
    reap(one, [1], ELSEWHERE)
    assert one.log.seen_of_each([record(clock(1))]) == (), "the logs of all asked slices are empty"
    mixed = one.log.seen_of_each([record(clock(1)), record(clock(1), key=ELSEWHERE)])
    assert mixed == (b"", one.log.seen_of(ELSEWHERE))
    assert one.log.seen_of(ELSEWHERE) == one.log.durably_seen_of(ELSEWHERE) != b""


def test_digest_in_covers_the_slices_of_its_arc() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [1])
    reap(one, [2], ELSEWHERE)
    level(other, one)
    parts = sorted([part_of(one), part_of(one, ELSEWHERE)])
    assert one.log.slices_in(WHOLE) == parts
    assert [seen.slice for seen in one.log.seen_in(WHOLE)] == parts
    here = one.storage.digests.arc_of(part_of(one))
    assert one.log.digest_in(here) == other.log.digest_in(here) != b""
    assert one.log.digest_in(WHOLE) != other.log.digest_in(WHOLE)
    level(other, one, ELSEWHERE)
    assert one.log.digest_in(WHOLE) == other.log.digest_in(WHOLE)


def test_record_from_a_store_at_another_log_is_refused() -> None:
    one, other = store(), store(incarnation=b"store  2")
    sent = record(clock(9))
    other.records.stage([sent], ())
    reap(one, [1])
    with pytest.raises(Behind, match=f"slice {part_of(one)} differs; catch up"):
        one.records.stage([sent], other.log.seen_of_each([sent]))
    elsewhere = record(clock(9), key=ELSEWHERE)
    with pytest.raises(Behind):
        one.records.stage([elsewhere, sent], (b"",))
    assert one.storage.get(ELSEWHERE) is None, "all or none"
    one.records.stage([elsewhere], ())
    level(other, one)
    one.records.stage([sent], other.log.seen_of_each([sent]))
    assert one.storage.get(KEY) == sent
    with pytest.raises(Behind):
        other.records.stage([sent], (b"12345678",))


# -- makers and damage -----------------------------------------------------------------------------------------


def damaged(at: Store, *names: bytes) -> None:
    """Open a store with these notes damaged and thus missing."""
    at.apply(Batch(notes=dict.fromkeys(names)))
    at.storage.damaged_notes = names
    at.log = ReapLog(CIRCLE, at.storage, NEVER)
    at.apply(at.log.mended())
    at.storage.damaged_notes = ()


@pytest.mark.parametrize("kind", [b"s", b"l", b"m"])
def test_mended_slice_has_another_maker_and_counts_as_unseen(kind: bytes) -> None:
    one = store()
    reap(one, range(1, 100))
    reap(one, [7], ELSEWHERE)
    maker, part, kept = maker_of(one), part_of(one), one.log.state(part_of(one, ELSEWHERE))
    name = kind if kind == b"m" else next(name for name in one.storage.notes() if name[:1] == kind)
    assert kind == b"m" or int.from_bytes(name[1:3], "big") == part
    damaged(one, name)
    assert one.log.state(part_of(one, ELSEWHERE)) == kept, "other slices are as they were"
    if kind == b"m":
        assert one.log.state(part).seen == {maker: 99}
    else:
        assert one.log.state(part) == SliceState()
        assert all(name[1:3] != part.to_bytes(2, "big") for name in segments(one))
    reap(one, [200])
    seen = one.log.state(part).seen
    fresh = one.storage.note(b"m")
    assert fresh is not None
    assert fresh != maker, "no number is used twice"
    assert seen == ({maker: 99, fresh: 1} if kind == b"m" else {fresh: 1})


def test_mended_store_absorbs_the_log_of_another_again() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, range(1, 100))
    level(other, one)
    damaged(one, segments(one)[0])
    level(one, other)
    assert one.log.state(part_of(one)) == other.log.state(part_of(one))
    assert epochs_of(log_of(one).runs) == list(range(1, 100))


def test_planted_mended_store_that_keeps_its_maker_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    mended = ReapLog.mended

    def keeping(self: ReapLog) -> Batch:
        notes = dict(mended(self).notes)
        notes.pop(b"m", None)
        return Batch(notes=notes)

    monkeypatch.setattr(ReapLog, "mended", keeping)
    with pytest.raises(AssertionError, match="no number is used twice"):
        test_mended_slice_has_another_maker_and_counts_as_unseen(b"s")


def test_maker_has_a_new_name_in_each_incarnation() -> None:
    makers = []
    for number in range(3):
        one = store(incarnation=b"store  %d" % number)
        reap(one, [1])
        makers.append(maker_of(one))
    assert len(set(makers)) == 3


# -- minting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_own", [True, False])
def test_bury_of_an_own_actor_mints_under_a_new_one(is_own: bool) -> None:
    one = store()
    mine = versions.actor(one.storage.incarnation, one.storage.next_key_epoch())
    other = versions.actor(STRANGER, 1)
    held = record(ActorClock(mine, 3, (version(1),)), ActorClock(other, 1, ()), ActorClock(STRANGER + bytes(8), 1, ()))
    one.apply(Batch(puts=[held], minted={KEY: mine}))
    one.apply(one.log.bury([Grave(held, {mine: 3} if is_own else {other: 1})]))
    minted = one.storage.minted(KEY)
    assert minted is not None
    assert (minted == mine) is not is_own
    assert minted[:8] == one.storage.incarnation


# -- catching up ------------------------------------------------------------------------------------------------

# Each case: events and values that this store holds of an actor, those that the other store holds, and the result.
# The result is the numbers of the values in the clock, or None if the entry is in quarantine.
Case = tuple[tuple[int, int], tuple[int, int], list[int] | None]
CASES: list[Case] = [
    ((1, 1), (0, 0), None),  # unknown there: maybe reaped
    ((1, 1), (1, 1), [1]),  # held there, too
    ((1, 1), (1, 0), []),  # replaced there
    ((2, 2), (1, 0), None),  # only an earlier event is known there
    ((2, 2), (1, 1), [2, 1]),  # a live value: the actor was not reaped
    ((2, 1), (3, 1), []),  # replaced by a later one of the same actor
    ((3, 3), (3, 2), [3, 2]),  # the first was replaced there
    ((3, 2), (5, 4), [3, 2]),  # all of them are held there
    ((4, 4), (5, 2), [4]),
    ((2, 1), (5, 0), []),  # all events are known there, and all were replaced
]


def caught_up(mine: tuple[int, int], theirs: tuple[int, int]) -> Store:
    """Let a store with an entry catch up with a store that has trimmed its log and holds `theirs` of the actor."""
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [9])
    one.apply(one.log.trim(part_of(one), 0))
    beside = clock(20, actor=b"newcomer")
    if theirs[0]:
        one.apply(Batch(puts=[record(clock(5, *theirs), beside)]))
    other.apply(Batch(puts=[record(clock(5, *mine), beside)]))
    level(other, one)
    assert other.log.state(part_of(one)) == one.log.state(part_of(one))
    return other


@pytest.mark.parametrize(("mine", "theirs", "left"), CASES)
def test_catch_up_decides_about_each_actor(
    mine: tuple[int, int], theirs: tuple[int, int], left: list[int] | None
) -> None:
    held = caught_up(mine, theirs).storage.get(KEY)
    assert held is not None
    found = {entry.actor: entry for entry in held.clock}
    assert found.pop(clock(20, actor=b"newcomer").actor).versions, "no claim names an actor above every floor"
    if left is None:
        assert held.quarantine == (clock(5, *mine),)
        assert found == {}, "an empty entry would mean that the value was replaced"
    else:
        assert held.quarantine == ()
        assert [one.op_id for one in found[clock(5).actor].versions] == [version(500 + n).op_id for n in left]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_catch_up_hides_no_delete_alone(is_mixed: bool) -> None:
    """A delete that no store vouches for hides no value, so an operator need not decide about it."""
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [9])
    one.apply(one.log.trim(part_of(one), 0))
    gone = ActorClock(versions.actor(STRANGER, 5), 2, (version(502, None), version(501, b"v" if is_mixed else None)))
    old = record(clock(4, 3, 1))
    other.apply(Batch(puts=[record(gone, ActorClock(versions.actor(STRANGER, 3), 1, ()))], minted={KEY: gone.actor}))
    level(other, one)
    held = other.storage.get(KEY)
    assert held is not None
    assert held.quarantine == ((gone,) if is_mixed else ())
    emptied = (ActorClock(versions.actor(STRANGER, 3), 1, ()), ActorClock(gone.actor, 2, ()))
    assert held.clock == emptied[: 1 if is_mixed else 2]
    assert other.storage.minted(KEY) != gone.actor, "the store mints no more dots under this actor"
    late = Record(KEY, (), b"", (ActorClock(gone.actor, 1, (version(501),)),))
    assert quarantine.count(versions.sync(held, late)) == (2 if is_mixed else 0), "the deleted value stays away"
    assert versions.values(versions.sync(held, old)) == versions.values(old)


def test_planted_partial_cover_that_vouches_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    vouch = ReapLog.vouch

    def generous(self: ReapLog, claims: Iterable[Claim]) -> tuple[Holding, ...]:
        return tuple(Holding(9, 9) if one.count else one for one in vouch(self, claims))

    monkeypatch.setattr(ReapLog, "vouch", generous)
    failed = 0
    for case in CASES:
        try:
            test_catch_up_decides_about_each_actor(*case)
        except AssertionError:
            failed += 1
    assert failed >= 4


def test_claims_name_undecided_live_values_below_the_floor() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [9])
    one.apply(one.log.trim(part_of(one), 0))
    held = record(clock(9), clock(10), clock(8, held=0), clock(7), clock(1, actor=b"newcomer"))
    other.apply(Batch(puts=[held, record(clock(3), key=OTHER), record(clock(4), key=ELSEWHERE)]))
    log = log_of(one)
    claims = other.log.claims(log, {})
    nine, seven, three = (versions.actor(STRANGER, epoch) for epoch in (9, 7, 3))
    assert set(claims) == {Claim(KEY, nine), Claim(KEY, seven), Claim(OTHER, three)}
    assert len(claims) == 3
    assert other.log.claims(log, {claim: Holding(0, 0) for claim in claims}) == []
    assert len(other.log.claims(log, {claims[0]: Holding(0, 0)})) == 2


def test_vouch_returns_the_held_events_and_values() -> None:
    one = store()
    one.apply(Batch(puts=[record(clock(1, 5, 2), clock(2, 3, 0))]))
    asked = [Claim(KEY, versions.actor(STRANGER, epoch)) for epoch in (1, 2, 3)]
    assert one.log.vouch([*asked, Claim(OTHER, asked[0].actor)]) == (
        Holding(5, 2), Holding(3, 0), Holding(0, 0), Holding(0, 0)
    )  # fmt: skip


def test_vouch_returns_nothing_of_the_quarantine() -> None:
    """Two stores with the same old value in quarantine do not vouch for each other."""
    one = store()
    one.apply(Batch(puts=[Record(KEY, (), b"", (clock(1),))]))
    assert one.log.vouch([Claim(KEY, clock(1).actor)]) == (Holding(0, 0),)


def test_catch_up_applies_the_remaining_entries() -> None:
    one, other = store(), store(incarnation=b"store  2")
    reap(one, [1, 2, 3, 4])
    one.apply(one.log.trim(part_of(one), 2))
    other.apply(Batch(puts=[record(clock(1), clock(3), clock(6))]))
    level(other, one)
    held = other.storage.get(KEY)
    assert held is not None
    assert held.clock == (clock(6),), "3 is named by an entry, 6 is above the floor"
    assert held.quarantine == (clock(1),)
    assert log_of(other).runs == log_of(one).runs


def test_catch_up_mints_no_more_under_an_undecided_actor() -> None:
    one, other = store(), store(incarnation=b"store  2")
    mine = versions.actor(other.storage.incarnation, other.storage.next_key_epoch())
    grave = record(ActorClock(mine, 1, (version(1, None),)))
    one.apply(Batch(puts=[grave]))
    one.apply(one.log.bury([Grave(grave, {mine: 1})]))
    one.apply(one.log.trim(part_of(one), 0))
    other.apply(Batch(puts=[record(ActorClock(mine, 2, (version(2),)))], minted={KEY: mine}))
    level(other, one)
    held = other.storage.get(KEY)
    assert held is not None
    assert [entry.actor for entry in held.quarantine] == [mine]
    assert other.storage.minted(KEY) not in (None, mine)


def test_quarantine_is_emptied_by_an_entry_that_covers_it() -> None:
    one, other, third = store(), store(incarnation=b"store  2"), store(incarnation=b"store  3")
    reap(one, [9])
    one.apply(one.log.trim(part_of(one), 0))
    other.apply(Batch(puts=[record(clock(5))]))
    level(other, one)
    assert other.storage.get(KEY) == Record(KEY, (), b"", (clock(5),))
    reap(third, [5])
    level(other, third)
    assert other.storage.get(KEY) is None


# -- restoring ------------------------------------------------------------------------------------------------


def test_restored_of_a_slice_without_a_log_is_the_record_itself() -> None:
    one = store()
    reap(one, [1], ELSEWHERE)
    saved = record(clock(1))
    assert one.log.restored(saved) == saved


Restored = Callable[[Store], Record]


@pytest.mark.parametrize(
    ("saved", "is_trimmed", "left", "dead"),
    [
        (record(clock(1)), False, None, 1),  # an entry names it
        (record(clock(1)), True, None, 1),  # not above the floor, and no store vouches for it
        (record(clock(2)), False, record(clock(2)), 0),  # no entry names it
        (record(clock(2)), True, record(clock(2)), 0),  # it is above the floor
        (record(clock(1), clock(2)), False, record(clock(2)), 1),
        (record(clock(1), clock(2)), True, record(clock(2)), 1),
        (record(clock(1, 2, 2)), False, record(clock(1, 2, 1)), 1),  # the second event is not dead
    ],
)
def test_restored_omits_dead_values(saved: Record, is_trimmed: bool, left: Record | None, dead: int) -> None:
    one = store()
    reap(one, [1])
    if is_trimmed:
        one.apply(one.log.trim(part_of(one), 0))
    assert one.log.restored(saved) == left
    _, batch, remarks = one.records.to_restore(Merge(saved), None)
    assert ([found for found in batch.puts if found != left], remarks) == ([], Remarks(dead=dead))


def test_record_without_versions_is_not_stored() -> None:
    """A merge leaves such a record if all its versions were reaped on the way. It would never be reaped."""
    one = store()
    assert one.records.stage([Record(KEY, ())], ()) == (0, True)
    assert one.storage.get(KEY) is None
    one.apply(Batch(puts=[record(clock(1))]))
    one.records.stage([Record(KEY, ())], ())
    assert one.storage.get(KEY) == record(clock(1))


def test_restored_value_that_the_store_holds_is_vouched_for() -> None:
    one = store()
    reap(one, [9])
    one.apply(one.log.trim(part_of(one), 0))
    one.apply(Batch(puts=[record(clock(5))]))
    assert one.log.restored(record(clock(5))) == record(clock(5))
    assert one.log.restored(record(clock(4), clock(5))) == record(clock(5))


@pytest.mark.parametrize("is_trimmed", [False, True])
def test_restored_keeps_the_quarantine_of_a_backup_in_quarantine(is_trimmed: bool) -> None:
    """Values that an entry names are dead in the backup, too. The others stay in quarantine."""
    one = store()
    reap(one, [1])
    if is_trimmed:
        one.apply(one.log.trim(part_of(one), 0))
    saved = Record(KEY, (clock(2),), b"", (clock(1, actor=b"another."), clock(1)))
    left = (clock(1, actor=b"another."),) + ((clock(1),) if is_trimmed else ())
    assert one.log.restored(saved) == Record(KEY, (clock(2),), b"", left)
    assert one.log.restored(Record(KEY, (), b"", saved.quarantine)) == Record(KEY, (), b"", left)


# -- false logs ------------------------------------------------------------------------------------------------


def invented(first: int, count: int) -> list[bytes]:
    return [b"x%07d" % number for number in range(first, first + count)]


def log_with(field: str, stores: list[bytes]) -> SliceLog:
    """Return a log of the slice of `KEY` that names many stores in one field."""
    entry = LogEntry(b"\x00" * 8, (DeadActor(bytes(16), 1),))
    runs = tuple(EntryRun(one, 1, (entry,)) for one in stores) if field == "seen" else ()
    up_tos = tuple(UpTo(one, 1) for one in stores)
    given = {"trimmed": (), "floors": ()} | ({} if field == "seen" else {field: up_tos})
    return SliceLog(part_of(store()), (), given["trimmed"], given["floors"], b"", runs)


@pytest.mark.parametrize(
    ("field", "take"),
    [("floors", "absorb"), ("seen", "absorb"), ("trimmed", "catch_up"), ("floors", "catch_up")],
)
def test_log_that_names_more_stores_than_a_message_is_refused(field: str, take: str) -> None:
    """The logs of two false members are each within the limits of a message. Together they are not."""
    one = store()

    def apply(stores: list[bytes]) -> None:
        log = log_with(field, stores)
        one.apply(one.log.absorb(log) if take == "absorb" else one.log.catch_up(log, {}))

    apply(invented(0, MAKERS_MAX - 1))
    apply(invented(MAKERS_MAX - 1, 1))
    before = dict(one.storage.notes())
    assert len(getattr(one.log.state(part_of(one)), field)) == MAKERS_MAX
    for stores in (invented(MAKERS_MAX, 1), invented(MAKERS_MAX, MAKERS_MAX)):
        with pytest.raises(InvalidRequest, match="the limit is 4096"):
            apply(stores)
    assert dict(one.storage.notes()) == before
    apply(invented(0, 5))
    log = log_of(one)
    assert convert(to_builtins(log), SliceLog) == log, "other nodes take every message about the slice"


def test_absorb_of_false_logs_changes_nothing_and_ends() -> None:
    """A store cannot verify the log of another member. A false log must not make it fail or loop."""
    one = store()
    reap(one, [1, 2])
    before = dict(one.storage.notes())
    part, maker = part_of(one), b"unheard."
    entry = LogEntry(b"\x00", (DeadActor(bytes(16), 1),), b"odd")
    strange = [
        SliceLog(part, (), (), (), b"", (EntryRun(maker, 0, (entry,)),)),
        SliceLog(
            part, (), (UpTo(maker, 1 << 62),), (UpTo(maker, 1 << 62),), b"", (EntryRun(maker, 1 << 62, (entry,)),)
        ),
        SliceLog(part, (UpTo(maker, 1 << 62),), (), (), b"", ()),
    ]
    for log in strange:
        one.apply(one.log.absorb(log))
        assert dict(one.storage.notes()) == before
    far = SliceLog(part, (), (UpTo(maker, 1 << 62),), (UpTo(maker, 1 << 62),), b"", ())
    assert one.log.claims(far, {}) == []
    one.apply(one.log.catch_up(far, {}))
    assert one.log.state(part).trimmed == {maker: 1 << 62}
    assert one.log.state(part).entries == 2
    reap(one, [3])
    one.apply(one.log.trim(part, 0))
    assert one.log.state(part).entries == 0

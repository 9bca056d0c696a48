"""Absence without clocks: random schedules lose and revive nothing, and planted bugs do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec
import pytest

from chord.store import reap_log, versions
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import Grave, SliceState
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Claim, Holding, Record, SliceLog

from .absence import Model

LENGTHS = (0, 1, 2, 4, 8, 1000)
"""Entries that a log keeps. With the last one nothing is trimmed."""


def play(seed: int) -> Model:
    """Play one schedule. Raises AssertionError if the judge finds a fault."""
    entries = LENGTHS[seed % len(LENGTHS)]
    model = Model(seed, entries, may_trim=entries < 1000)
    model.run(60 + seed % 3 * 60)
    return model


def total(seeds: Iterable[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        for name, number in play(seed).counts.items():
            counts[name] = counts.get(name, 0) + number
    return counts


def test_absence_in_random_schedules_loses_and_revives_nothing() -> None:
    counts = total(range(120))
    assert counts["quarantined"]
    happened = ("acknowledged", "deletes", "reaped", "pruned", "trimmed", "caught up", "behind", "lost disks")
    assert [name for name in happened if not counts[name]] == []


@pytest.mark.slow
def test_absence_in_two_thousand_schedules_holds() -> None:
    total(range(1000, 3000))


@pytest.mark.thorough
def test_absence_in_a_hundred_thousand_schedules_holds() -> None:
    total(range(10_000, 110_000))


# -- planted bugs ---------------------------------------------------------------------------------------------

Plant = Callable[[pytest.MonkeyPatch], None]
work = reap_log._Work


def applies_nothing(patch: pytest.MonkeyPatch) -> None:
    """The entries of others count as seen, and are not applied."""
    patch.setattr(ReapLog, "_keys_at", lambda self, prefix: [])


def takes_gaps(patch: pytest.MonkeyPatch) -> None:
    """An entry is taken without the one before it."""

    def absorb(self: Any, log: SliceLog) -> None:
        state = self.slice(log.slice)
        for run in log.runs:
            for number, entry in enumerate(run.entries, run.first):
                if number > state.seen.get(run.maker, 0):
                    state.seen[run.maker] = number - 1
                    self.append(log.slice, run.maker, entry)
                    for key in self._log._keys_at(entry.point):
                        self.bury(key, entry)
        self.adopt(log)

    patch.setattr(work, "absorb", absorb)
    patch.setattr(ReapLog, "is_in_reach", lambda self, log: True)


def counts_all_as_in_reach(patch: pytest.MonkeyPatch) -> None:
    """A store that lacks trimmed entries counts them as seen."""
    patch.setattr(SliceState, "reaches", lambda self, trimmed: True)
    absorb = work.absorb

    def absorb_and_adopt(self: Any, log: SliceLog) -> None:
        self.adopt(log)
        absorb(self, log)

    patch.setattr(work, "absorb", absorb_and_adopt)


def raises_no_floor(patch: pytest.MonkeyPatch) -> None:
    """A trim forgets which actors its entries named."""
    trim_to = work.trim_to

    def trim(self: Any, part: int, keep: int) -> None:
        floors = dict(self.slice(part).floors)
        trim_to(self, part, keep)
        self.slice(part).floors = floors

    patch.setattr(work, "trim_to", trim)


def takes_over_no_floor(patch: pytest.MonkeyPatch) -> None:
    """A store that takes over trimmed entries does not take over their floors."""
    adopt = work.adopt

    def without(self: Any, log: SliceLog) -> None:
        floors = dict(self.slice(log.slice).floors)
        adopt(self, log)
        self.slice(log.slice).floors = floors

    patch.setattr(work, "adopt", without)


def drops_the_whole_record(patch: pytest.MonkeyPatch) -> None:
    """An entry removes the whole record of its key, not only the dots that it names."""
    patch.setattr(versions, "bury", lambda record, dead, tags=b"": None if dead else record)


def counts_once_for_all_makers(patch: pytest.MonkeyPatch) -> None:
    """The seen entries are one number for all makers, instead of one for each."""
    patch.setattr(reap_log, "digest_of_seen", lambda state: sum(state.seen.values()).to_bytes(8, "big"))


def merges_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """A store merges a record without a check of the entries that the sender has seen."""
    patch.setattr(ReapLog, "require_same_entries", lambda self, records, seen: None)


def lets_a_partial_cover_vouch(patch: pytest.MonkeyPatch) -> None:
    """A clock that knows some event of an actor vouches for all of them."""
    vouch = ReapLog.vouch

    def generous(self: ReapLog, claims: Iterable[Claim]) -> tuple[Holding, ...]:
        return tuple(Holding(one.count, 1) if one.count else one for one in vouch(self, claims))

    patch.setattr(ReapLog, "vouch", generous)


def leaves_an_empty_entry(patch: pytest.MonkeyPatch) -> None:
    """The clock still knows the actor of quarantined values, as if they had been replaced."""
    isolate = versions.isolate

    def leaving(record: Record, actors: Iterable[bytes]) -> Record:
        undecided = list(actors)
        clock = tuple(ActorClock(e.actor, e.count, ()) if e.actor in undecided else e for e in record.clock)
        return Record(record.key, clock, record.replaced, isolate(record, undecided).quarantine)

    patch.setattr(versions, "isolate", leaving)


def keeps_quarantine_at_one_store(patch: pytest.MonkeyPatch) -> None:
    """A store sends its quarantine to no other store."""
    require = ReapLog.require_same_entries
    sync = versions.sync

    def alone(a: Record, b: Record) -> Record:
        merged = sync(Record(a.key, a.clock, a.replaced), Record(b.key, b.clock, b.replaced))
        return Record(a.key, merged.clock, merged.replaced, a.quarantine)

    del require
    patch.setattr(versions, "sync", alone)


def drops_what_is_undecided(patch: pytest.MonkeyPatch) -> None:
    """A value that no store vouches for is dropped."""

    def dropped(record: Record, actors: Iterable[bytes]) -> Record:
        undecided = frozenset(actors)
        clock = tuple(entry for entry in record.clock if entry.actor not in undecided)
        return Record(record.key, clock, record.replaced)

    patch.setattr(versions, "isolate", dropped)


def shows_quarantine(patch: pytest.MonkeyPatch) -> None:
    """A reader sees quarantined values."""
    siblings = versions.siblings

    def all_of_them(record: Record) -> list[Any]:
        return siblings(record) + [version for entry in record.quarantine for version in entry.versions]

    patch.setattr(versions, "siblings", all_of_them)


def mints_again(patch: pytest.MonkeyPatch) -> None:
    """A store goes on minting under an actor that it has forgotten."""

    def replace(self: Any, old: Record, new: Record | None, gone: Iterable[bytes]) -> None:
        self._records[old.key] = new

    patch.setattr(work, "replace", replace)


def asks_about_one_key(patch: pytest.MonkeyPatch) -> None:
    """A store that catches up asks about the first key of the slice only."""
    claims = ReapLog.claims

    def first(self: ReapLog, log: SliceLog, known: Mapping[Claim, Holding]) -> list[Claim]:
        found = claims(self, log, {})
        return [claim for claim in found if claim.key == found[0].key and claim not in known]

    patch.setattr(ReapLog, "claims", first)

    judge = reap_log._judge

    def believing(record: Record, floors: Any, known: Mapping[Claim, Holding], tags: bytes) -> Any:
        if any(claim.key == record.key for claim in known):
            return judge(record, floors, known, tags)
        return record, []

    patch.setattr(reap_log, "_judge", believing)


def reaps_without_an_entry(patch: pytest.MonkeyPatch) -> None:
    """A tombstone is reaped without an entry in the log."""
    bury = ReapLog.bury

    def silent(self: ReapLog, graves: Iterable[Grave]) -> Batch:
        batch = bury(self, graves)
        return Batch(batch.puts, batch.removals, batch.minted)

    patch.setattr(ReapLog, "bury", silent)


def prunes_without_an_entry(patch: pytest.MonkeyPatch) -> None:
    """Actors are pruned without an entry in the log."""
    bury = ReapLog.bury

    def silent(self: ReapLog, graves: Iterable[Grave]) -> Batch:
        some = list(graves)
        batch = bury(self, some)
        is_prune = any(len(grave.dead) < len(grave.record.clock) for grave in some)
        return Batch(batch.puts, batch.removals, batch.minted) if is_prune else batch

    patch.setattr(ReapLog, "bury", silent)


def fills_pages_with_makers(patch: pytest.MonkeyPatch) -> None:
    """A page of a log has no entry if the numbers of its makers fill it."""
    log_after = ReapLog.log_after

    def full(self: ReapLog, part: int, seen: Mapping[bytes, int], bytes_max: float = math.inf) -> tuple[SliceLog, int]:
        log, size = log_after(self, part, seen, bytes_max)
        is_full = 64 * (1 + len(log.seen)) > bytes_max
        return (msgspec.structs.replace(log, runs=()) if is_full else log), size

    patch.setattr(ReapLog, "log_after", full)


def acknowledges_what_is_refused(patch: pytest.MonkeyPatch) -> None:
    """A copy in quarantine at the receiver counts for the quorum."""
    replicate = Model.replicate

    def counted(self: Model, place: int, to: int, record: Record, seen: Any, write: Any) -> Any:
        write.is_acknowledged = True
        yield from replicate(self, place, to, record, seen, write)

    patch.setattr(Model, "replicate", counted)


PLANTS: dict[Plant, int] = {
    applies_nothing: 130,
    takes_gaps: 370,
    counts_all_as_in_reach: 370,
    raises_no_floor: 1640,
    takes_over_no_floor: 3150,
    drops_the_whole_record: 10,
    counts_once_for_all_makers: 40,
    merges_from_anywhere: 340,
    lets_a_partial_cover_vouch: 820,
    leaves_an_empty_entry: 170,
    keeps_quarantine_at_one_store: 40,
    drops_what_is_undecided: 170,
    shows_quarantine: 100,
    mints_again: 40,
    asks_about_one_key: 3150,
    reaps_without_an_entry: 40,
    prunes_without_an_entry: 140,
    fills_pages_with_makers: 10,
    acknowledges_what_is_refused: 10,
}
"""Planted bugs, each with the seed at which the search begins, which saves time."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_planted_bug_in_the_reap_log_is_caught(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(PLANTS[plant], PLANTS[plant] + 6000):
            play(seed)

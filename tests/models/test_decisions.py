"""Decisions about quarantine in the model of absence: none is undone, and no other value is lost."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b

import pytest

from chord.store import quarantine, versions
from chord.store.quarantine import Decision
from chord.wire.messages import DecideQuarantine, Record

from .absence import STORES, Model, Write

LENGTHS = (0, 1, 2, 4)
"""Entries that a log keeps: few, so that many values are in quarantine."""

HEALS = 5


class Deciding(Model):
    """The model, with operators that drop or merge one quarantined version after the other."""

    def __init__(self, seed: int, entries: int) -> None:
        super().__init__(seed, entries)
        self.steps.append(self.decide)
        self.weights.append(12)

    def decide(self) -> None:
        """Drop or merge the oldest quarantined version of an actor at any store. It may be acknowledged."""
        place, key = self.rng.randrange(STORES), self.rng.choice(self.keys)
        store = self.stores[place]
        held = store.storage.get(key)
        if held is None or not held.quarantine:
            return
        one = quarantine.hidden(held)[0]
        decision, merge = self.rng.randbytes(16), self.rng.random() < 0.5
        context = versions.encode_context({one.actor: one.number})
        record, batch, remarks = store.records.to_decide(DecideQuarantine(key, context, decision, merge), None)
        assert remarks.decided >= 1
        made = blake2b(decision + one.version.op_id, digest_size=16).digest()
        is_anew = any(made == version.op_id for entry in record.clock for version in entry.versions)
        assert is_anew or not merge or one.version.value is None or versions.is_done(held, one.version.op_id)
        op_id = made if is_anew else decision
        self.note_dots(record, op_id)
        seen = store.log.seen_of_each([record])
        store.apply(batch)
        write = self.writes[op_id] = Write(key, op_id, not is_anew, {one.version.op_id})
        self.count("merged" if is_anew else "dropped from quarantine")
        same_side = [other for other in range(STORES) if other != place and (other in self.cut) == (place in self.cut)]
        if same_side:
            self.under_way.append(self.replicate(place, self.rng.choice(same_side), record, seen, write))


def play(seed: int) -> dict[str, int]:
    model = Deciding(seed, LENGTHS[seed % len(LENGTHS)])
    for _ in range(HEALS):  # after each heal all stores have the same quarantine
        model.run(60)
    return model.counts


def total(seeds: range) -> dict[str, int]:
    counts: dict[str, int] = {}
    for seed in seeds:
        for name, number in play(seed).items():
            counts[name] = counts.get(name, 0) + number
    return counts


@pytest.mark.slow
def test_decisions_in_random_schedules_hold() -> None:
    counts = total(range(80))
    assert [name for name in ("merged", "dropped from quarantine", "quarantined") if not counts.get(name)] == []


def test_decisions_in_stores_with_six_makers_hold() -> None:
    """In this schedule the names of six makers filled a page of a log, and the stores never agreed."""
    play(4427)


@pytest.mark.slow
def test_decisions_in_five_hundred_schedules_hold() -> None:
    total(range(1000, 1500))


@pytest.mark.thorough
def test_decisions_in_five_thousand_schedules_hold() -> None:
    total(range(1500, 6500))


@pytest.mark.slow
def test_planted_bug_decision_without_the_clock_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(record: Record, context: Mapping[bytes, int]) -> Decision:
        left = tuple(each for each in record.quarantine if each.actor not in context)
        return Decision(Record(record.key, record.clock, record.replaced, left), len(record.quarantine) - len(left))

    monkeypatch.setattr(quarantine, "drop", forgets)
    with pytest.raises(AssertionError):
        total(range(1000))


@pytest.mark.slow
def test_planted_bug_decision_on_the_whole_actor_loses_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted decision covers events that no store has seen."""
    drop = quarantine.drop

    def covers_more(record: Record, context: Mapping[bytes, int]) -> Decision:
        decided = drop(record, context)
        more = {actor: count + 9 for actor, count in context.items()}
        return Decision(versions.discard(decided.record, more), decided.decided)

    monkeypatch.setattr(quarantine, "drop", covers_more)
    with pytest.raises(AssertionError):
        total(range(1000))

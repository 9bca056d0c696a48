"""The law of consistent backups: the checker against a slow one, and examples."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from chord.sim.consistent import CutOperation, violations

KEYS = (b"x", b"y", b"z")


def slow(
    operations: Sequence[CutOperation], backup: Mapping[bytes, Collection[bytes | None]], began: float
) -> set[CutOperation]:
    """Return the missing writes: a graph with an edge for each thing that a client knew, and its closure."""
    acked = [o for o in operations if o.ended < inf]
    before: dict[CutOperation, set[CutOperation]] = {o: set() for o in operations}
    seen: dict[CutOperation, set[CutOperation]] = {o: set() for o in operations}  # begun, and perhaps not acknowledged
    for o in operations:
        for other in operations:
            if other.client == o.client and other.ended <= o.began and other is not o:
                before[o].add(other)
        for read in operations:
            if read.client != o.client or read.found is None or read.ended > o.began or read is o:
                continue
            for source in operations:
                if source.value is not None and source.value in read.found:
                    (before if source.ended <= read.ended else seen)[o].add(source)
    changed = True
    while changed:
        changed = False
        for o in operations:
            more = set().union(*(before[other] for other in before[o] | seen[o]))
            deeper = set().union(*(seen[other] for other in before[o] | seen[o]))
            if not (more <= before[o] and deeper <= seen[o]):
                before[o] |= more
                seen[o] |= deeper
                changed = True
    there = [o for o in operations if o.value is not None and o.value in backup.get(o.key, ())]
    demanded = set().union(*(before[o] for o in there)) | {o for o in acked if o.ended < began}
    return {o for o in demanded if o.found is None and o.ended < inf and not covered(o, operations, backup)}


def covered(
    write: CutOperation, operations: Sequence[CutOperation], backup: Mapping[bytes, Collection[bytes | None]]
) -> bool:
    later = [o for o in operations if o.key == write.key and o.found is None and not o.ended < write.began]
    values = set(backup.get(write.key, ()))
    if not values or None in values:
        return any(o.value is None for o in later) or any(o.value in values - {None} for o in later)
    if any(o.value is None and values <= set(o.spared) for o in later):
        return True
    return any(o.value in values for o in later)


def histories(dice: random.Random) -> tuple[list[CutOperation], dict[bytes, set[bytes | None]], float]:
    """Return operations of a store that answers at random, and a backup of a random part of it."""
    operations: list[CutOperation] = []
    now = dict.fromkeys(("a", "b", "c"), 0.0)
    for number in range(dice.randint(1, 14)):
        client = dice.choice(list(now))
        now[client] += dice.uniform(0.001, 1)  # no operation takes no time
        made = CutOperation(client, dice.choice(KEYS), None, now[client])
        now[client] += dice.uniform(0.001, 1)  # no operation takes no time
        kind = dice.choice(["get", "get", "put", "put", "del"])
        if kind == "put":
            made.value = b"%d" % number
        if kind == "get":
            begun = [o.value for o in operations if o.key == made.key and o.value and o.began < now[client]]
            made.found = tuple(dice.sample(begun, min(len(begun), dice.randint(0, 2))))
        made.ended = now[client] if dice.random() < 0.9 else inf
        operations.append(made)
    values: list[bytes | None] = [o.value for o in operations if o.value is not None]
    backup: dict[bytes, set[bytes | None]] = {}
    for o in operations:
        if o.found is None and o.value in [*values, None] and dice.random() < 0.5:
            backup.setdefault(o.key, set()).add(o.value)
    for o in operations:
        if o.found is None and o.value is None:
            o.spared = {value for value in backup.get(o.key, ()) if value is not None and dice.random() < 0.7}
    return operations, backup, dice.choice([-1.0, dice.uniform(0, 4)])


@given(dice=st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_checker_agrees_with_a_slow_one(dice: random.Random) -> None:
    operations, backup, began = histories(dice)
    assert {found.missing for found in violations(operations, backup, began)} == slow(operations, backup, began)


A = CutOperation("a", b"x", b"1", 0.0, 1.0)
B = CutOperation("a", b"y", b"2", 2.0, 3.0)


def test_earlier_write_of_the_client_must_be_there() -> None:
    (found,) = violations([A, B], {b"y": [b"2"]}, -1.0)
    assert (found.missing, found.because) == (A, B)
    assert "lacks b'1' of b'x', which a had acknowledged before b'2' of b'y', which it contains" in str(found)
    assert violations([A, B], {b"x": [b"1"]}, -1.0) == []
    assert violations([A, B], {b"x": [b"1"], b"y": [b"2"]}, -1.0) == []


def test_replaced_write_may_be_missing() -> None:
    again = CutOperation("b", b"x", b"3", 0.5)
    assert violations([A, B, again], {b"x": [b"3"], b"y": [b"2"]}, -1.0) == []
    gone = CutOperation("b", b"x", None, 4.0, 5.0)
    assert violations([A, B, gone], {b"y": [b"2"]}, -1.0) == []


def test_write_of_another_client_counts_after_a_read() -> None:
    read = CutOperation("b", b"x", None, 1.5, 1.7, (b"1",))
    after = CutOperation("b", b"y", b"4", 2.0, 3.0)
    (found,) = violations([A, read, after], {b"y": [b"4"]}, -1.0)
    assert found.missing is A
    assert violations([A, after], {b"y": [b"4"]}, -1.0) == []


def test_write_before_the_backup_must_be_there() -> None:
    (found,) = violations([A, B], {}, 2.5)
    assert (found.missing, found.because) == (A, None)
    assert violations([A, B], {}, 0.5) == []


def test_old_value_after_a_delete_is_a_violation() -> None:
    delete = CutOperation("a", b"x", None, 1.2, 1.4)
    assert [found.missing for found in violations([A, delete, B], {b"x": [b"1"], b"y": [b"2"]}, -1.0)] == [delete]
    assert violations([A, delete, B], {b"x": [None], b"y": [b"2"]}, -1.0) == []


def test_value_that_a_delete_spared_is_no_violation_without_its_tombstone() -> None:
    other = CutOperation("b", b"x", b"old", 0.0, 1.0)
    delete = CutOperation("a", b"x", None, 1.2, 1.4, spared={b"old"})
    assert violations([A, other, delete, B], {b"x": [b"old"], b"y": [b"2"]}, -1.0) == []
    (found,) = violations([A, other, delete, B], {b"x": [b"old", b"1"], b"y": [b"2"]}, -1.0)
    assert found.missing is delete

"""Dotted version vector sets: the algebra, a causal-history oracle, contexts as bytes."""

from __future__ import annotations

import functools
import random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chord.errors import InvalidRequest
from chord.store import dedup, versions
from chord.store.dedup import CLAIMS_MAX, ENTRY_BYTES, OTHERS_MAX, OTHERS_MS, RETRIED_MAX
from chord.wire.messages import ACTORS_HELD_MAX, ACTORS_MAX, CONTEXT_BYTES_MAX, ActorClock, Record, Version

KEY = b"user:42"
ME = versions.actor(b"server-1", 1)
OTHER = versions.actor(b"server-2", 1)


def version(number: int, value: bytes | None = b"") -> Version:
    op_id = b"an operation" + number.to_bytes(4, "big")
    return Version(b"v%d" % number if value == b"" else value, op_id, 10 * number)


def written(record: Record | None, context: dict[bytes, int] | None, number: int, actor: bytes = ME) -> Record:
    new = versions.put(record, KEY, context, actor, version(number))
    assert versions.check(new) == []
    return new


def live(record: Record | None) -> set[bytes]:
    return set() if record is None else set(versions.values(record))


# -- puts -----------------------------------------------------------------------------------------


def test_put_without_a_context_covers_all_values() -> None:
    record = written(written(None, None, 1), None, 2)
    assert live(record) == {b"v2"}
    assert versions.context_of(record) == {ME: 2}


def test_put_without_a_context_leaves_siblings() -> None:
    record = written(written(None, {}, 1), {}, 2)
    assert versions.values(record) == [b"v2", b"v1"]


def test_put_with_a_context_covers_only_what_its_reader_saw() -> None:
    first = written(None, None, 1)
    seen = versions.context_of(first)
    both = written(first, {}, 2)
    assert live(written(both, seen, 3)) == {b"v2", b"v3"}
    assert live(written(both, versions.context_of(both), 3)) == {b"v3"}


def test_concurrent_writes_of_two_servers_are_siblings() -> None:
    base = written(None, None, 1)
    merged = versions.sync(written(base, None, 2, ME), written(base, None, 3, OTHER))
    assert live(merged) == {b"v2", b"v3"}
    assert live(written(merged, versions.context_of(merged), 4)) == {b"v4"}


def test_tombstone_of_a_delete_hides_only_covered_values() -> None:
    record = written(None, None, 1)
    deleted = versions.put(record, KEY, None, ME, version(2, None))
    assert not versions.values(deleted)
    assert len(versions.siblings(deleted)) == 1
    revived = versions.sync(deleted, written(record, {}, 3, OTHER))
    assert versions.values(revived)
    assert live(revived) == {b"v3"}
    assert len(versions.siblings(revived)) == 2, "a tombstone counts as a sibling until it is covered"


def test_copies_of_one_operation_are_one_sibling() -> None:
    base = written(None, None, 1)
    merged = versions.sync(written(base, None, 7, ME), written(base, None, 7, OTHER))
    assert versions.values(merged) == [b"v7"]
    assert len(versions.siblings(merged)) == 1
    assert versions.is_done(merged, version(7).op_id)
    assert versions.is_done(merged, version(1).op_id), "covered, and remembered"
    assert not versions.is_done(merged, version(9).op_id)


# -- operations that were executed twice ----------------------------------------------------------


def retried(number: int) -> Version:
    return msgspec.structs.replace(version(number), written_ms=10 * number + 5, is_retry=True)


def twice(number: int = 7) -> tuple[Record, Record]:
    """Return the records of two coordinators that executed one put."""
    base = written(None, None, 1)
    return written(base, None, number, ME), versions.put(base, KEY, None, OTHER, retried(number))


def test_put_over_one_copy_of_an_operation_replaces_the_other() -> None:
    first, seen = twice()
    newer = written(seen, None, 8, OTHER)
    for merged in (versions.sync(first, newer), versions.sync(newer, first)):
        assert versions.values(merged) == [b"v8"]
        assert versions.is_done(merged, version(7).op_id)
        assert versions.check(merged) == []
    deleted = versions.put(seen, KEY, None, OTHER, version(8, None))
    assert not versions.values(versions.sync(deleted, first))


def test_copy_replaced_by_a_bare_context_is_not_shown() -> None:
    """A context covers a dot that the coordinator does not have. A store with the dot must drop its version."""
    first = written(None, {}, 7, ME)
    second = versions.put(None, KEY, {}, OTHER, retried(7))
    newer = written(None, versions.context_of(second), 8, versions.actor(b"server-3", 1))
    everything = versions.sync(versions.sync(first, newer), second)
    assert versions.values(everything) == versions.values(versions.sync(first, versions.sync(newer, second))) == [b"v8"]


def replaced_unseen() -> tuple[Record, Record]:
    """Execute a delete twice, and replace it at a coordinator that has only its first copy.

    The delete has replaced a value itself. Returns the coordinator's record, and the record with the second copy.
    """
    base = written(None, None, 1)
    first = versions.put(base, KEY, None, ME, version(7, None))
    seen = versions.put(base, KEY, None, OTHER, msgspec.structs.replace(retried(7), value=None))
    return written(first, versions.context_of(seen), 8, ME), seen


def test_put_replaces_the_unseen_copy_of_a_delete() -> None:
    newer, seen = replaced_unseen()
    assert {one.value for one in versions.siblings(newer)} == {None, b"v8"}, "no record shows that both deletes are one"
    for merged in (versions.sync(newer, seen), versions.sync(seen, newer)):
        assert [one.value for one in versions.siblings(merged)] == [b"v8"]
        assert versions.check(merged) == []


def test_planted_no_claims_bring_the_delete_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_unseen", lambda *_: [])
    newer, seen = replaced_unseen()
    assert {one.value for one in versions.siblings(versions.sync(newer, seen))} == {None, b"v8"}, "planted"


def test_puts_that_replaced_each_other_unseen_are_both_shown() -> None:
    """A second put has replaced the first copy unseen. Then the second copy of the first put replaces it."""
    first = written(None, {}, 7, ME)
    other = written(None, versions.context_of(first), 8, OTHER)
    again = versions.put(other, KEY, None, OTHER, retried(7))
    third = versions.put(None, KEY, {}, versions.actor(b"server-3", 1), version(9))
    assert live(versions.sync(versions.sync(again, first), third)) == {b"v7", b"v9"}


def test_claims_of_unseen_values_are_bounded_to_the_latest() -> None:
    for count in (CLAIMS_MAX, CLAIMS_MAX + 1):
        record = written(None, {OTHER: count}, 1)
        assert len(record.replaced) == CLAIMS_MAX * ENTRY_BYTES
        lost = versions.put(None, KEY, None, OTHER, version(2))
        for number in range(3, 2 + count):
            lost = versions.put(lost, KEY, {}, OTHER, version(number))
        merged = versions.sync(record, lost)
        assert live(merged) == {b"v1"}
        assert versions.check(merged) == []


def test_put_over_the_first_copy_replaces_the_second() -> None:
    first, second = twice()
    assert versions.values(versions.sync(written(first, None, 8), second)) == [b"v8"]
    assert versions.is_done(written(first, None, 8), version(7).op_id), "a later retry writes nothing"


def test_planted_no_deduplication_brings_the_other_copy_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_replaced", lambda *_, **__: b"")
    first, seen = twice()
    assert live(versions.sync(first, written(seen, None, 8, OTHER))) == {b"v7", b"v8"}, "planted"


def both_twice(*times: int) -> set[bytes]:
    """Execute two puts at two coordinators in opposite orders, at these times; return the visible values."""
    numbers = (1, 2, 2, 1)
    made = [msgspec.structs.replace(version(n), written_ms=ms) for n, ms in zip(numbers, times, strict=True)]
    here = versions.put(versions.put(None, KEY, None, ME, made[0]), KEY, None, ME, made[1])
    there = versions.put(versions.put(None, KEY, None, OTHER, made[2]), KEY, None, OTHER, made[3])
    return live(versions.sync(here, there))


def test_two_writes_executed_twice_do_not_hide_each_other() -> None:
    for times in ((1, 2, 3, 4), (3, 4, 1, 2), (1, 1, 1, 1), (9, 2, 3, 1)):
        assert both_twice(*times) == {b"v1", b"v2"}


def test_planted_hiding_all_replaced_values_loses_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "is_hidden", dedup.names)
    third = versions.put(None, KEY, {}, versions.actor(b"server-3", 1), version(3))
    here = versions.put(versions.put(None, KEY, None, ME, version(1)), KEY, None, ME, version(2))
    there = versions.put(versions.put(None, KEY, None, OTHER, version(2)), KEY, None, OTHER, version(1))
    assert live(versions.sync(versions.sync(here, there), third)) == {b"v3"}


def test_wrong_wall_clock_does_not_undo_a_delete() -> None:
    """The first coordinator's clock is an hour ahead."""
    first, seen = twice()
    (entry,) = first.clock
    ahead = msgspec.structs.replace(entry.versions[0], written_ms=3_600_000)
    first = Record(KEY, (msgspec.structs.replace(entry, versions=(ahead,)),), first.replaced)
    deleted = versions.put(seen, KEY, None, OTHER, version(8, None))
    assert not versions.values(versions.sync(deleted, first))


@given(
    st.lists(st.tuples(*map(st.integers, (0, 0, 0, -1), (3, 2, 3, 2))), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8),
)
def test_every_hidden_value_was_replaced_by_a_shown_one(
    puts: list[tuple[int, int, int, int]], pulls: list[tuple[int, int]]
) -> None:
    """Execute four operations any number of times at three replicas with their own clocks.

    A put has no context, or the context of any replica. The coordinator need not have that replica's record.
    """
    records: list[Record | None] = [None] * 3
    dots: dict[tuple[bytes, int], bytes] = {}
    replaced_by: dict[bytes, set[bytes]] = {}
    for number, (op, place, ms, read) in enumerate(puts):
        one = msgspec.structs.replace(version(op), written_ms=ms, is_retry=bool(number % 2))
        old, actor, seen = records[place], versions.actor(b"server-%d" % place, 1), records[max(read, 0)]
        context = None if read < 0 or seen is None else versions.context_of(seen)
        covered = versions.context_of(old) if old is not None and context is None else context or {}
        held = {} if old is None else versions.context_of(old)
        is_done = old is not None and versions.is_done(old, one.op_id)
        if not is_done and covered.get(actor, 0) <= held.get(actor, 0):
            for (writer, count), value in dots.items():
                if count <= covered.get(writer, 0):
                    replaced_by.setdefault(value, set()).add(one.value or b"")
            records[place] = versions.put(old, KEY, context, actor, one)
            dots[actor, held.get(actor, 0) + 1] = one.value or b""
        if number < len(pulls):
            a, b = (records[i] for i in pulls[number])
            records[pulls[number][0]] = versions.sync(a, b) if a and b else a or b
    kept = [record for record in records if record is not None]
    if kept:
        shown = live(functools.reduce(versions.sync, kept))
        for value in dots.values():
            later, following = {value}, [value]
            while following:
                for other in replaced_by.get(following.pop(), set()) - later:
                    later.add(other)
                    following.append(other)
            assert later & shown, f"{value!r} is not shown, nor is anything that has replaced it"


def overwritten(count: int, every_ms: int, *, is_retry: bool) -> list[int]:
    """Write a key `count` times; return the earlier writes that the record remembers."""
    record = None
    for number in range(1, count + 1):
        one = msgspec.structs.replace(version(number), written_ms=number * every_ms, is_retry=is_retry)
        record = versions.put(record, KEY, None, ME, one)
    assert record is not None
    assert versions.check(record) == []
    return [number for number in range(1, count) if versions.is_done(record, version(number).op_id)]


def test_deduplication_keeps_the_latest_and_the_recent_entries() -> None:
    assert overwritten(100, 1, is_retry=True) == list(range(100 - RETRIED_MAX, 100))
    assert overwritten(100, OTHERS_MS, is_retry=True) == list(range(100 - RETRIED_MAX, 100)), "however old"
    assert overwritten(100, 1, is_retry=False) == list(range(100 - OTHERS_MAX, 100))
    assert overwritten(100, OTHERS_MS // 3, is_retry=False) == [98, 99]
    assert overwritten(100, OTHERS_MS, is_retry=False) == []


def some_list(rng: random.Random) -> bytes:
    replaced = []
    for _ in range(rng.randrange(1, 13)):
        one = version(rng.randrange(30))
        one = msgspec.structs.replace(one, written_ms=rng.randrange(60), is_retry=rng.random() < 0.8)
        by = dedup.Dot(ME, rng.randrange(9)) if rng.random() < 0.4 else version(rng.randrange(40)).op_id
        replaced.append(dedup.Replaced(one, by))
    return dedup.join([], replaced, 0)


def joins_that_depend_on_the_order(triples: int) -> int:
    def joined(*lists: bytes) -> bytes:
        return dedup.join(lists, (), 0)

    rng, found = random.Random(5), 0
    for _ in range(triples):
        a, b, c = (some_list(rng) for _ in range(3))
        found += not joined(joined(a, b), c) == joined(a, joined(b, c)) == joined(c, b, a)
        found += joined(a, a) != a
    return found


@pytest.mark.slow
def test_join_of_full_lists_is_independent_of_the_order() -> None:
    assert joins_that_depend_on_the_order(2000) == 0


@pytest.mark.slow
def test_planted_join_that_drops_dots_by_operation_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_operation(entries: list[bytes]) -> list[bytes]:
        known = {dedup._replaced(entry) for entry in entries if not dedup._is_dot(dedup._by(entry))}
        return [e for e in entries if not dedup._is_dot(dedup._by(e)) or dedup._replaced(e) not in known]

    monkeypatch.setattr(dedup, "_telling", by_operation)
    assert joins_that_depend_on_the_order(2000) > 0, "planted"


def one_more_write(rng: random.Random) -> tuple[list[bytes], list[dedup.Replaced], int]:
    """Return arguments of `join` as a put passes them, or a merge of a record with a possibly later one."""
    retried, every_ms = rng.choice([0.0, 0.0, 0.3]), rng.choice([1, OTHERS_MS // 6])
    replaced = []
    for _ in range(rng.randrange(12)):
        one = msgspec.structs.replace(version(rng.randrange(30)), written_ms=rng.randrange(20) * every_ms)
        one = msgspec.structs.replace(one, is_retry=rng.random() < retried)
        by = dedup.Dot(ME, rng.randrange(9)) if rng.random() < 0.2 else version(rng.randrange(40)).op_id
        replaced.append(dedup.Replaced(one, by))
    before = dedup.join([], replaced, 0)
    gone = msgspec.structs.replace(version(rng.randrange(30)), written_ms=rng.randrange(15, 25) * every_ms)
    gone = msgspec.structs.replace(gone, is_retry=rng.random() < retried / 3)
    newest_ms = gone.written_ms + rng.choice([0, 1, OTHERS_MS // 2, OTHERS_MS, 2 * OTHERS_MS])
    put = dedup.Replaced(gone, version(50).op_id)
    if rng.random() < 0.5:
        return [before], [put], newest_ms
    later = dedup._join([before] if rng.random() < 0.9 else [], [put], newest_ms, ())
    lists = sorted({before, later}, reverse=rng.random() < 0.5)
    return lists, [dedup.Replaced(gone, dedup.Dot(ME, 3))], newest_ms


def shortcuts(tries: int) -> tuple[int, int]:
    """Return how often `join` took its shortcut, and how often its result was wrong."""
    rng, taken, wrong = random.Random(7), 0, 0
    for _ in range(tries):
        lists, replaced, newest_ms = one_more_write(rng)
        short = dedup._after(lists, *replaced[0], newest_ms) if lists else None
        taken += short is not None
        wrong += short not in (None, dedup._join(lists, replaced, newest_ms, ()))
    return taken, wrong


def test_shortcut_of_join_equals_the_full_join() -> None:
    taken, wrong = shortcuts(2000)
    assert wrong == 0
    assert 200 < taken < 1800


@pytest.mark.parametrize("careless", ["order", "age", "retry"])
def test_planted_careless_shortcut_of_join_is_caught(careless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = dedup._following

    def following(remembered: bytes, gone: Version, by: bytes, newest_ms: int) -> bytes | None:
        if careless == "retry":
            return right(remembered, msgspec.structs.replace(gone, is_retry=False), by, newest_ms)
        if careless == "age":
            newest_ms = min(newest_ms, gone.written_ms)
        found = right(remembered, gone, by, newest_ms)
        if found is None and careless == "order" and not gone.is_retry:
            return (right(b"", gone, by, newest_ms) or b"") + remembered[: (OTHERS_MAX - 1) * ENTRY_BYTES]
        return found

    monkeypatch.setattr(dedup, "_following", following)
    assert shortcuts(2000)[1] > 0, "planted"


def test_check_rejects_a_malformed_replaced_list() -> None:
    record = written(written(written(None, None, 1), None, 2), None, 3)
    assert len(record.replaced) == 2 * ENTRY_BYTES
    for wrong in (record.replaced[1:], record.replaced[ENTRY_BYTES:] + record.replaced[:ENTRY_BYTES]):
        assert versions.check(Record(KEY, record.clock, wrong)) == ["the list of replaced operations is malformed"]



def test_alternating_writes_of_two_clients_leave_two_siblings() -> None:
    record: Record | None = None
    contexts: list[dict[bytes, int]] = [{}, {}]
    most = 0
    for number in range(1000):
        record = written(record, contexts[number % 2], number)
        contexts[number % 2] = versions.context_of(record)
        most = max(most, len(versions.siblings(record)))
    assert most == 2


def test_plain_version_vectors_would_keep_all_siblings() -> None:
    """With plain version vectors, only a vector that includes a value's whole vector covers the value."""
    values: list[tuple[int, int]] = []  # (value, counter of the one server)
    contexts = [0, 0]
    for number in range(1000):
        context = contexts[number % 2]
        values = [(value, counter) for value, counter in values if counter > context]
        values.append((number, max([context, *(counter for _, counter in values)]) + 1))
        contexts[number % 2] = context + 1 if number else 1  # the vector of the written value, without a dot
    assert len(values) > 400


def test_put_with_an_invented_context_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        written(None, {ME: 5}, 1)
    with pytest.raises(InvalidRequest):
        written(written(None, None, 1), {ME: versions.COUNT_MAX - 1}, 2)


def test_put_with_a_context_of_too_many_actors_is_refused() -> None:
    strangers = {versions.actor(b"stranger", number): 1 for number in range(ACTORS_MAX)}
    with pytest.raises(InvalidRequest):
        written(None, strangers, 1)
    strangers.popitem()
    assert len(written(None, strangers, 1).clock) == ACTORS_MAX


def test_record_of_too_many_actors_can_be_deleted() -> None:
    actors = [versions.actor(b"stranger", number) for number in range(ACTORS_HELD_MAX)]
    full = written(None, dict.fromkeys(actors[: ACTORS_MAX - 1], 1), 1)
    merged = versions.sync(full, written(None, dict.fromkeys(actors[ACTORS_MAX : ACTORS_MAX + 50], 1), 2))
    assert len(merged.clock) == ACTORS_MAX + 50
    other = versions.actor(b"another!", 1)
    with pytest.raises(InvalidRequest, match="delete it"):
        versions.put(merged, KEY, None, other, Version(b"v", bytes(16), 3))
    known = versions.put(merged, KEY, None, ME, Version(b"v", bytes(16), 3))
    assert len(known.clock) == len(merged.clock), "one of these actors may write again"
    gone = versions.put(merged, KEY, None, other, Version(None, bytes(16), 3))
    assert not versions.values(gone)
    with pytest.raises(InvalidRequest, match="delete it"):
        versions.put(None, KEY, dict.fromkeys(actors, 1), other, Version(None, bytes(16), 3))


def test_merge_of_large_records_stays_readable() -> None:
    records = [
        written(None, {versions.actor(b"holder-%d" % holder, number): 1 for number in range(ACTORS_MAX - 1)}, 1)
        for holder in range(2)
    ]
    merged = versions.sync(*records)
    assert len(merged.clock) == ACTORS_HELD_MAX - 1
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(merged), type=Record) == merged
    context = versions.encode_context(versions.context_of(merged))
    assert versions.decode_context(context) == versions.context_of(merged)


def test_records_of_two_keys_never_merge() -> None:
    record = written(None, None, 1)
    with pytest.raises(AssertionError):
        versions.sync(record, Record(b"another", record.clock))
    with pytest.raises(AssertionError):
        versions.put(record, b"another", None, ME, version(2))


def test_actors_differ_by_incarnation_and_epoch() -> None:
    made = {versions.actor(name, epoch) for name in (b"server-1", b"server-2") for epoch in (0, 1, 1 << 63)}
    assert len(made) == 6
    assert all(len(actor) == versions.ACTOR_BYTES for actor in made)
    with pytest.raises(ValueError):
        versions.actor(b"short", 1)


def test_check_finds_planted_faults() -> None:
    good = ActorClock(ME, 1, (version(1),))
    assert versions.check(Record(KEY, (good,))) == []
    assert versions.check(Record(KEY, (ActorClock(OTHER, 1, ()), good))) != []
    assert versions.check(Record(KEY, (ActorClock(ME, 1, (version(1), version(2))),))) != []
    assert versions.check(Record(KEY, (ActorClock(ME, 0, ()),))) != []


# -- random histories against an oracle -------------------------------------------------------------


class Known(NamedTuple):
    """The knowledge of a replica: all earlier writes, and those not overwritten."""

    seen: frozenset[int]
    live: frozenset[int]


class Replica:
    """One server's record of the key, with the oracle's."""

    def __init__(self, name: int) -> None:
        self.incarnation = b"server-%d" % name
        self.epoch = 0
        self.minting: bytes | None = None
        self.record: Record | None = None
        self.known = Known(frozenset(), frozenset())

    def actor(self) -> bytes:
        """The epoch in which this store has minted for the key ever since it holds it, or a new one.

        That the record names an epoch of ours is not enough: see the test of an arc given away and back.
        """
        if self.minting is None:
            self.epoch += 1
            self.minting = versions.actor(self.incarnation, self.epoch)
        return self.minting

    def drop(self) -> None:
        """Hand the arc over."""
        self.record, self.known, self.minting = None, Known(frozenset(), frozenset()), None

    def put(self, number: int, context: dict[bytes, int] | None, seen: frozenset[int]) -> None:
        one = msgspec.structs.replace(version(number), written_ms=number * OTHERS_MS // 4, is_retry=number % 3 == 0)
        self.record = versions.put(self.record, KEY, context, self.actor(), one)
        assert versions.check(self.record) == []
        if context is None:
            seen = self.known.seen
        self.known = Known(self.known.seen | seen | {number}, (self.known.live - seen) | {number})

    def pull(self, other: Replica) -> None:
        if other.record is None:
            return
        self.record = other.record if self.record is None else versions.sync(self.record, other.record)
        a, b = self.known, other.known
        self.known = Known(a.seen | b.seen, (a.live & b.live) | (a.live - b.seen) | (b.live - a.seen))


ACTIONS = ("get", "put", "no context", "cover", "pull", "drop", "wipe")
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(0, 2)),
    max_size=40,
)


def play(steps: list[tuple[str, int, int]]) -> list[Replica]:
    """Run three clients and three replicas; check every read against the oracle."""
    replicas = [Replica(number) for number in range(3)]
    contexts: list[tuple[dict[bytes, int], frozenset[int]]] = [({}, frozenset())] * 3
    for number, (action, one, other) in enumerate(steps, start=1):
        replica = replicas[one]
        if action == "get" and replica.record is not None:
            contexts[other] = (versions.context_of(replica.record), replica.known.seen)
        elif action == "put":
            replica.put(number, *contexts[other])
        elif action == "no context":
            replica.put(number, {}, frozenset())
        elif action == "cover":
            replica.put(number, None, frozenset())
        elif action == "pull":
            replica.pull(replicas[other])
        elif action == "drop":
            replica.drop()
        elif action == "wipe":
            fresh = Replica(10 + number)
            fresh.incarnation = b"wiped%03d" % number
            replicas[one] = fresh
        for each in replicas:
            assert live(each.record) == {b"v%d" % write for write in each.known.live}
    return replicas


@given(STEPS)
@example([("cover", 0, 0), ("pull", 1, 0), ("no context", 1, 0), ("get", 1, 0), ("pull", 0, 1), ("put", 0, 0)])
def test_reads_agree_with_the_causal_history(steps: list[tuple[str, int, int]]) -> None:
    play(steps)


@pytest.mark.slow
def test_ten_thousand_random_histories_agree_with_the_oracle() -> None:
    rng = random.Random(0)
    for _ in range(10_000):
        play([(rng.choice(ACTIONS), rng.randrange(3), rng.randrange(3)) for _ in range(rng.randrange(8, 40))])


def test_actor_reused_after_an_arc_came_back_would_lose_a_write() -> None:
    """`Replica.actor` prevents this: with one dot for two writes, `sync` would discard one of them."""
    old = written(None, None, 1)  # an old copy, at another node
    kept = written(old, None, 2)  # the arc was handed over with this record; then the old copy returned
    reused = written(old, None, 3, ME)
    assert live(versions.sync(kept, reused)) != {b"v2", b"v3"}, "an acknowledged write is lost"
    fresh = written(old, None, 3, versions.actor(b"server-1", 2))
    assert live(versions.sync(kept, fresh)) == {b"v2", b"v3"}


@given(STEPS)
def test_sync_is_commutative_associative_and_idempotent(steps: list[tuple[str, int, int]]) -> None:
    records = [replica.record or Record(KEY, ()) for replica in play(steps)]
    a, b, c = records
    assert versions.sync(a, b) == versions.sync(b, a)
    assert versions.sync(a, versions.sync(b, c)) == versions.sync(versions.sync(a, b), c)
    assert versions.sync(a, a) == a
    assert versions.sync(a, versions.sync(a, b)) == versions.sync(a, b), "a merge of known events changes nothing"


@pytest.mark.slow
@given(STEPS)
def test_discard_forgets_values_and_never_events(steps: list[tuple[str, int, int]]) -> None:
    a, b, _ = (replica.record or Record(KEY, ()) for replica in play(steps))
    discarded = versions.discard(a, versions.context_of(b))
    assert versions.check(discarded) == []
    assert live(discarded) <= live(a)
    union = {
        actor: max(versions.context_of(a).get(actor, 0), versions.context_of(b).get(actor, 0))
        for actor in {**versions.context_of(a), **versions.context_of(b)}
    }
    assert versions.context_of(discarded) == union
    assert versions.values(versions.discard(a, versions.context_of(a))) == []


# -- contexts as bytes ------------------------------------------------------------------------------

CONTEXTS = st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(1, versions.COUNT_MAX - 1), max_size=20)


@given(CONTEXTS)
def test_context_survives_encoding_and_decoding(context: dict[bytes, int]) -> None:
    encoded = versions.encode_context(context)
    assert versions.decode_context(encoded) == context
    assert versions.encode_context(versions.decode_context(encoded)) == encoded


def test_encoded_context_is_compact() -> None:
    assert versions.encode_context({}) == b""
    assert versions.decode_context(b"") == {}
    assert versions.encode_context({ME: 100}) == ME + bytes([100])
    largest = {versions.actor(b"server-%d" % (n % 8), n): versions.COUNT_MAX - 1 for n in range(ACTORS_HELD_MAX)}
    assert len(versions.encode_context(largest)) <= CONTEXT_BYTES_MAX


@given(st.binary(max_size=60))
@example(ME)
@example(ME[:-1])
@example(ME + b"\x00")
@example(ME + b"\x81\x00")
@example(ME + b"\x80")
@example(ME + b"\xff" * 8 + b"\x7f")
@example(ME + b"\xff" * 12 + b"\x01")
@example(ME + b"\x01" + ME + b"\x01")
@example(OTHER + b"\x01" + ME + b"\x01")
@example(bytes(CONTEXT_BYTES_MAX + 1))
def test_decode_context_accepts_only_canonical_bytes(data: bytes) -> None:
    try:
        context = versions.decode_context(data)
    except InvalidRequest:
        return
    assert versions.encode_context(context) == data

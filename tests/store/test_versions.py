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


# -- what a put means -----------------------------------------------------------------------------


def test_a_put_without_a_context_covers_whatever_is_there() -> None:
    record = written(written(None, None, 1), None, 2)
    assert live(record) == {b"v2"}
    assert versions.context_of(record) == {ME: 2}


def test_a_blind_put_covers_nothing_and_leaves_siblings() -> None:
    record = written(written(None, {}, 1), {}, 2)
    assert versions.values(record) == [b"v2", b"v1"]


def test_a_put_with_a_context_covers_what_its_reader_saw_and_no_more() -> None:
    first = written(None, None, 1)
    seen = versions.context_of(first)
    both = written(first, {}, 2)
    assert live(written(both, seen, 3)) == {b"v2", b"v3"}
    assert live(written(both, versions.context_of(both), 3)) == {b"v3"}


def test_two_servers_keep_concurrent_writes_side_by_side() -> None:
    base = written(None, None, 1)
    merged = versions.sync(written(base, None, 2, ME), written(base, None, 3, OTHER))
    assert live(merged) == {b"v2", b"v3"}
    assert live(written(merged, versions.context_of(merged), 4)) == {b"v4"}


def test_a_delete_leaves_a_tombstone_which_hides_only_what_it_covers() -> None:
    record = written(None, None, 1)
    deleted = versions.put(record, KEY, None, ME, version(2, None))
    assert not versions.values(deleted)
    assert len(versions.siblings(deleted)) == 1
    revived = versions.sync(deleted, written(record, {}, 3, OTHER))
    assert versions.values(revived)
    assert live(revived) == {b"v3"}
    assert len(versions.siblings(revived)) == 2, "a tombstone counts as a sibling until it is covered"


def test_siblings_of_one_operation_are_one() -> None:
    base = written(None, None, 1)
    merged = versions.sync(written(base, None, 7, ME), written(base, None, 7, OTHER))
    assert versions.values(merged) == [b"v7"]
    assert len(versions.siblings(merged)) == 1
    assert versions.is_done(merged, version(7).op_id)
    assert versions.is_done(merged, version(1).op_id), "covered, and remembered"
    assert not versions.is_done(merged, version(9).op_id)


# -- an operation that was done twice -------------------------------------------------------------


def retried(number: int) -> Version:
    return msgspec.structs.replace(version(number), written_ms=10 * number + 5, is_retry=True)


def twice(number: int = 7) -> tuple[Record, Record]:
    """One put, stored by a coordinator that then fell silent, and by the one that was asked next."""
    base = written(None, None, 1)
    return written(base, None, number, ME), versions.put(base, KEY, None, OTHER, retried(number))


def test_what_replaces_one_copy_of_an_operation_replaces_the_other() -> None:
    silent, seen = twice()
    newer = written(seen, None, 8, OTHER)
    for merged in (versions.sync(silent, newer), versions.sync(newer, silent)):
        assert versions.values(merged) == [b"v8"]
        assert versions.is_done(merged, version(7).op_id)
        assert versions.check(merged) == []
    deleted = versions.put(seen, KEY, None, OTHER, version(8, None))
    assert not versions.values(versions.sync(deleted, silent))


def test_it_does_though_nobody_says_what_has_replaced_it() -> None:
    """A context covers a dot of which the coordinator has no version; whoever has it notes that it is gone."""
    first = written(None, {}, 7, ME)
    second = versions.put(None, KEY, {}, OTHER, retried(7))
    newer = written(None, versions.context_of(second), 8, versions.actor(b"server-3", 1))
    everything = versions.sync(versions.sync(first, newer), second)
    assert versions.values(everything) == versions.values(versions.sync(first, versions.sync(newer, second))) == [b"v8"]


def replaced_unseen() -> tuple[Record, Record]:
    """A delete that was done twice, and a put that replaces it where only its first copy is held.

    The delete has replaced something itself. Returns what the put's coordinator holds, and who has the second copy.
    """
    base = written(None, None, 1)
    silent = versions.put(base, KEY, None, ME, version(7, None))
    seen = versions.put(base, KEY, None, OTHER, msgspec.structs.replace(retried(7), value=None))
    return written(silent, versions.context_of(seen), 8, ME), seen


def test_what_a_put_replaces_unseen_is_replaced_by_it() -> None:
    newer, seen = replaced_unseen()
    assert {one.value for one in versions.siblings(newer)} == {None, b"v8"}, "nobody here knows that it is one delete"
    for merged in (versions.sync(newer, seen), versions.sync(seen, newer)):
        assert [one.value for one in versions.siblings(merged)] == [b"v8"]
        assert versions.check(merged) == []


def test_planted_if_nobody_claimed_it_the_delete_would_be_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_unseen", lambda *_: [])
    newer, seen = replaced_unseen()
    assert {one.value for one in versions.siblings(versions.sync(newer, seen))} == {None, b"v8"}, "planted"


def test_two_that_have_replaced_each_other_unseen_are_both_shown() -> None:
    """The second copy of a put replaces the one that has replaced the first without having it."""
    first = written(None, {}, 7, ME)
    other = written(None, versions.context_of(first), 8, OTHER)
    again = versions.put(other, KEY, None, OTHER, retried(7))
    third = versions.put(None, KEY, {}, versions.actor(b"server-3", 1), version(9))
    assert live(versions.sync(versions.sync(again, first), third)) == {b"v7", b"v9"}


def test_of_what_is_replaced_unseen_the_latest_few_are_remembered() -> None:
    for count in (CLAIMS_MAX, CLAIMS_MAX + 1):
        record = written(None, {OTHER: count}, 1)
        assert len(record.superseded) == CLAIMS_MAX * ENTRY_BYTES
        lost = versions.put(None, KEY, None, OTHER, version(2))
        for number in range(3, 2 + count):
            lost = versions.put(lost, KEY, {}, OTHER, version(number))
        merged = versions.sync(record, lost)
        assert live(merged) == {b"v1"}
        assert versions.check(merged) == []


def test_it_does_not_matter_which_of_the_two_is_replaced() -> None:
    first, second = twice()
    assert versions.values(versions.sync(written(first, None, 8), second)) == [b"v8"]
    assert versions.is_done(written(first, None, 8), version(7).op_id), "an attempt that comes after it writes nothing"


def test_without_that_memory_the_other_copy_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_superseded", lambda *_, **__: b"")
    silent, seen = twice()
    assert live(versions.sync(silent, written(seen, None, 8, OTHER))) == {b"v7", b"v8"}, "planted"


def both_twice(*times: int) -> set[bytes]:
    """Two puts, each done at two places, in either order, at these times; what is shown in the end."""
    numbers = (1, 2, 2, 1)
    made = [msgspec.structs.replace(version(n), written_ms=ms) for n, ms in zip(numbers, times, strict=True)]
    here = versions.put(versions.put(None, KEY, None, ME, made[0]), KEY, None, ME, made[1])
    there = versions.put(versions.put(None, KEY, None, OTHER, made[2]), KEY, None, OTHER, made[3])
    return live(versions.sync(here, there))


def test_two_writes_that_were_done_twice_in_either_order_do_not_hide_each_other() -> None:
    for times in ((1, 2, 3, 4), (3, 4, 1, 2), (1, 1, 1, 1), (9, 2, 3, 1)):
        assert both_twice(*times) == {b"v1", b"v2"}


def test_planted_if_whatever_was_replaced_were_hidden_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dedup, "is_hidden", dedup.names)
    third = versions.put(None, KEY, {}, versions.actor(b"server-3", 1), version(3))
    here = versions.put(versions.put(None, KEY, None, ME, version(1)), KEY, None, ME, version(2))
    there = versions.put(versions.put(None, KEY, None, OTHER, version(2)), KEY, None, OTHER, version(1))
    assert live(versions.sync(versions.sync(here, there), third)) == {b"v3"}


def test_wrong_clocks_decide_nothing() -> None:
    """The first coordinator's clock is an hour ahead."""
    silent, seen = twice()
    (entry,) = silent.clock
    ahead = msgspec.structs.replace(entry.versions[0], written_ms=3_600_000)
    silent = Record(KEY, (msgspec.structs.replace(entry, versions=(ahead,)),), silent.superseded)
    deleted = versions.put(seen, KEY, None, OTHER, version(8, None))
    assert not versions.values(versions.sync(deleted, silent))


@given(
    st.lists(st.tuples(*map(st.integers, (0, 0, 0, -1), (3, 2, 3, 2))), max_size=8),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=8),
)
def test_what_is_not_shown_was_replaced_by_what_is(
    puts: list[tuple[int, int, int, int]], pulls: list[tuple[int, int]]
) -> None:
    """Four operations, each done any number of times, at three replicas with clocks of their own.

    Each without a context, or with that of a replica whose record the coordinator need not have.
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
            for (who, count), value in dots.items():
                if count <= covered.get(who, 0):
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
    """Write a key so often; return which of the writes before the last are remembered."""
    record = None
    for number in range(1, count + 1):
        one = msgspec.structs.replace(version(number), written_ms=number * every_ms, is_retry=is_retry)
        record = versions.put(record, KEY, None, ME, one)
    assert record is not None
    assert versions.check(record) == []
    return [number for number in range(1, count) if versions.is_done(record, version(number).op_id)]


def test_of_what_was_replaced_the_latest_and_the_young_are_remembered() -> None:
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
def test_lists_that_are_full_are_joined_in_any_order() -> None:
    assert joins_that_depend_on_the_order(2000) == 0


@pytest.mark.slow
def test_planted_if_a_name_made_every_dot_of_its_operation_superfluous_they_would_not_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_operation(entries: list[bytes]) -> list[bytes]:
        known = {dedup._replaced(entry) for entry in entries if not dedup._is_dot(dedup._by(entry))}
        return [e for e in entries if not dedup._is_dot(dedup._by(e)) or dedup._replaced(e) not in known]

    monkeypatch.setattr(dedup, "_telling", by_operation)
    assert joins_that_depend_on_the_order(2000) > 0, "planted"


def one_more_write(rng: random.Random) -> tuple[list[bytes], list[dedup.Replaced], int]:
    """What `join` is given by a put, or by a merge of one's own record with another that may be after that put."""
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
    told = dedup._join([before] if rng.random() < 0.9 else [], [put], newest_ms, ())
    lists = sorted({before, told}, reverse=rng.random() < 0.5)
    return lists, [dedup.Replaced(gone, dedup.Dot(ME, 3))], newest_ms


def shortcuts(tries: int) -> tuple[int, int]:
    """Return how often `join` took the short way, and how often that led elsewhere."""
    rng, taken, wrong = random.Random(7), 0, 0
    for _ in range(tries):
        lists, replaced, newest_ms = one_more_write(rng)
        short = dedup._after(lists, *replaced[0], newest_ms) if lists else None
        taken += short is not None
        wrong += short not in (None, dedup._join(lists, replaced, newest_ms, ()))
    return taken, wrong


def test_what_one_more_write_leaves_is_what_a_join_would() -> None:
    taken, wrong = shortcuts(2000)
    assert wrong == 0
    assert 200 < taken < 1800


@pytest.mark.parametrize("careless", ["order", "age", "retry"])
def test_planted_a_careless_short_way_leads_elsewhere(careless: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_list_that_join_did_not_make_is_noticed() -> None:
    record = written(written(written(None, None, 1), None, 2), None, 3)
    assert len(record.superseded) == 2 * ENTRY_BYTES
    for wrong in (record.superseded[1:], record.superseded[ENTRY_BYTES:] + record.superseded[:ENTRY_BYTES]):
        assert versions.check(Record(KEY, record.clock, wrong)) == ["the list of superseded operations is malformed"]



def test_a_thousand_alternating_writes_by_two_clients_leave_two_siblings() -> None:
    record: Record | None = None
    contexts: list[dict[bytes, int]] = [{}, {}]
    most = 0
    for number in range(1000):
        record = written(record, contexts[number % 2], number)
        contexts[number % 2] = versions.context_of(record)
        most = max(most, len(versions.siblings(record)))
    assert most == 2


def test_plain_version_vectors_would_keep_them_all() -> None:
    """The contrast: there a value is covered only by a vector that is at least its own, whole one."""
    values: list[tuple[int, int]] = []  # (value, counter of the one server)
    contexts = [0, 0]
    for number in range(1000):
        context = contexts[number % 2]
        values = [(value, counter) for value, counter in values if counter > context]
        values.append((number, max([context, *(counter for _, counter in values)]) + 1))
        contexts[number % 2] = context + 1 if number else 1  # the vector of the value it wrote, no dot beside it
    assert len(values) > 400


def test_dots_are_minted_once_even_where_a_client_invents_a_context() -> None:
    with pytest.raises(InvalidRequest):
        written(None, {ME: 5}, 1)
    with pytest.raises(InvalidRequest):
        written(written(None, None, 1), {ME: versions.COUNT_MAX - 1}, 2)


def test_a_context_cannot_make_a_record_that_no_message_holds() -> None:
    strangers = {versions.actor(b"stranger", number): 1 for number in range(ACTORS_MAX)}
    with pytest.raises(InvalidRequest):
        written(None, strangers, 1)
    strangers.popitem()
    assert len(written(None, strangers, 1).clock) == ACTORS_MAX


def test_a_record_that_too_many_have_coordinated_can_be_deleted() -> None:
    actors = [versions.actor(b"stranger", number) for number in range(ACTORS_HELD_MAX)]
    full = written(None, dict.fromkeys(actors[: ACTORS_MAX - 1], 1), 1)
    merged = versions.sync(full, written(None, dict.fromkeys(actors[ACTORS_MAX : ACTORS_MAX + 50], 1), 2))
    assert len(merged.clock) == ACTORS_MAX + 50
    other = versions.actor(b"another!", 1)
    with pytest.raises(InvalidRequest, match="delete it"):
        versions.put(merged, KEY, None, other, Version(b"v", bytes(16), 3))
    known = versions.put(merged, KEY, None, ME, Version(b"v", bytes(16), 3))
    assert len(known.clock) == len(merged.clock), "one more write by one of them is none too many"
    gone = versions.put(merged, KEY, None, other, Version(None, bytes(16), 3))
    assert not versions.values(gone)
    with pytest.raises(InvalidRequest, match="delete it"):
        versions.put(None, KEY, dict.fromkeys(actors, 1), other, Version(None, bytes(16), 3))


def test_what_several_have_let_grow_merges_to_what_every_node_can_read() -> None:
    records = [
        written(None, {versions.actor(b"holder-%d" % who, number): 1 for number in range(ACTORS_MAX - 1)}, 1)
        for who in range(2)
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


def test_actors_tell_incarnations_and_epochs_apart() -> None:
    made = {versions.actor(who, epoch) for who in (b"server-1", b"server-2") for epoch in (0, 1, 1 << 63)}
    assert len(made) == 6
    assert all(len(actor) == versions.ACTOR_BYTES for actor in made)
    with pytest.raises(ValueError):
        versions.actor(b"short", 1)


def test_check_sees_planted_faults() -> None:
    good = ActorClock(ME, 1, (version(1),))
    assert versions.check(Record(KEY, (good,))) == []
    assert versions.check(Record(KEY, (ActorClock(OTHER, 1, ()), good))) != []
    assert versions.check(Record(KEY, (ActorClock(ME, 1, (version(1), version(2))),))) != []
    assert versions.check(Record(KEY, (ActorClock(ME, 0, ()),))) != []


# -- random histories, with an oracle that remembers every cause ------------------------------------


class Known(NamedTuple):
    """What a replica knows, spelt out: every write that happened before, and those not overwritten."""

    seen: frozenset[int]
    live: frozenset[int]


class Replica:
    """One server's record of the key, beside the oracle's."""

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
        """Give the arc away."""
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


ACTIONS = ("get", "put", "blind", "cover", "pull", "drop", "wipe")
STEPS = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 2), st.integers(0, 2)),
    max_size=40,
)


def play(steps: list[tuple[str, int, int]]) -> list[Replica]:
    """Three clients and three replicas; checks every read against the oracle."""
    replicas = [Replica(number) for number in range(3)]
    contexts: list[tuple[dict[bytes, int], frozenset[int]]] = [({}, frozenset())] * 3
    for number, (action, one, other) in enumerate(steps, start=1):
        replica = replicas[one]
        if action == "get" and replica.record is not None:
            contexts[other] = (versions.context_of(replica.record), replica.known.seen)
        elif action == "put":
            replica.put(number, *contexts[other])
        elif action == "blind":
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
@example([("cover", 0, 0), ("pull", 1, 0), ("blind", 1, 0), ("get", 1, 0), ("pull", 0, 1), ("put", 0, 0)])
def test_every_read_agrees_with_the_causal_history(steps: list[tuple[str, int, int]]) -> None:
    play(steps)


@pytest.mark.slow
def test_ten_thousand_random_histories_agree_with_the_oracle() -> None:
    rng = random.Random(0)
    for _ in range(10_000):
        play([(rng.choice(ACTIONS), rng.randrange(3), rng.randrange(3)) for _ in range(rng.randrange(8, 40))])


def test_an_arc_given_away_and_back_must_not_go_on_in_its_old_epoch() -> None:
    """What `Replica.actor` guards against: the same dot for two writes, one of which `sync` then discards."""
    old = written(None, None, 1)  # an old copy, at another node
    kept = written(old, None, 2)  # the arc was given away with this; then the old copy came back here
    reused = written(old, None, 3, ME)
    assert live(versions.sync(kept, reused)) != {b"v2", b"v3"}, "an acknowledged write is gone"
    fresh = written(old, None, 3, versions.actor(b"server-1", 2))
    assert live(versions.sync(kept, fresh)) == {b"v2", b"v3"}


@given(STEPS)
def test_sync_is_commutative_associative_and_idempotent(steps: list[tuple[str, int, int]]) -> None:
    records = [replica.record or Record(KEY, ()) for replica in play(steps)]
    a, b, c = records
    assert versions.sync(a, b) == versions.sync(b, a)
    assert versions.sync(a, versions.sync(b, c)) == versions.sync(versions.sync(a, b), c)
    assert versions.sync(a, a) == a
    assert versions.sync(a, versions.sync(a, b)) == versions.sync(a, b), "what is merged is known"


@pytest.mark.slow
@given(STEPS)
def test_discard_forgets_values_and_never_events(steps: list[tuple[str, int, int]]) -> None:
    a, b, _ = (replica.record or Record(KEY, ()) for replica in play(steps))
    discarded = versions.discard(a, versions.context_of(b))
    assert versions.check(discarded) == []
    assert live(discarded) <= live(a)
    union = {
        who: max(versions.context_of(a).get(who, 0), versions.context_of(b).get(who, 0))
        for who in {**versions.context_of(a), **versions.context_of(b)}
    }
    assert versions.context_of(discarded) == union
    assert versions.values(versions.discard(a, versions.context_of(a))) == []


# -- contexts as bytes ------------------------------------------------------------------------------

CONTEXTS = st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(1, versions.COUNT_MAX - 1), max_size=20)


@given(CONTEXTS)
def test_a_context_survives_the_trip(context: dict[bytes, int]) -> None:
    encoded = versions.encode_context(context)
    assert versions.decode_context(encoded) == context
    assert versions.encode_context(versions.decode_context(encoded)) == encoded


def test_a_context_is_compact_and_the_empty_one_is_empty() -> None:
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
def test_of_any_bytes_only_what_was_encoded_is_taken(data: bytes) -> None:
    try:
        context = versions.decode_context(data)
    except InvalidRequest:
        return
    assert versions.encode_context(context) == data

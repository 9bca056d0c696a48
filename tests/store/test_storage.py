"""One suite for every storage: in memory, on a simulated disk, in a database."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Arc, Circle, Point
from chord.sim.disk import Disk
from chord.sim.stores import SimulatedStorage
from chord.store import storage as module
from chord.store.merkle import digest_of
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch, MemoryStorage, Storage
from chord.testing import run
from chord.wire.messages import ActorClock, Record, Version

TOY = Circle(3)  # eight points, so that several keys share one
WIDE = Circle(160)
KEYS = [b"key-%d" % number for number in range(40)]
WHOLE = Arc(Point(0), Point(0))

Make = Callable[[Circle], Storage]


def in_memory(circle: Circle) -> Storage:
    return MemoryStorage(circle, b"12345678")


def on_disk(circle: Circle) -> Storage:
    store = SimulatedStorage(circle, Disk(random.Random(1)), b"12345678")
    run(store.open)
    return store


def in_database(circle: Circle) -> Storage:
    """Make a database, in shared memory if possible, because no test here cuts the power."""
    directory = tempfile.TemporaryDirectory(prefix="chord", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    store = SqliteStorage(circle, directory.name, b"12345678")
    OPEN.append((store, directory))
    trio.run(store.open)
    return store


SHARED_MEMORY = Path("/dev/shm")
OPEN: list[tuple[SqliteStorage, tempfile.TemporaryDirectory[str]]] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPEN:
        store, directory = OPEN.pop()
        trio.run(store.close)
        directory.cleanup()


def wait_for(store: Storage, fn: Callable[..., Awaitable[Any]], *args: object) -> None:
    """Run without virtual time, which does not wait for the thread of a database."""
    is_real = isinstance(store, SqliteStorage) and not isinstance(store, SimulatedStorage)
    runner: Callable[..., Any] = trio.run if is_real else run
    runner(fn, *args)


every_form = pytest.mark.parametrize("make", [in_memory, on_disk, in_database], ids=["memory", "disk", "database"])


def record(key: bytes, *values: bytes | None) -> Record:
    versions = tuple(Version(value, n.to_bytes(16, "big"), n) for n, value in enumerate(values or (b"v" + key,)))
    return Record(key, (ActorClock(bytes(16), max(1, len(versions)), versions),))


def commit(store: Storage, *puts: Record, removals: tuple[bytes, ...] = ()) -> None:
    wait_for(store, store.commit, Batch(puts, removals))


def filled(make: Make, circle: Circle, keys: list[bytes] = KEYS) -> Storage:
    store = make(circle)
    commit(store, *(record(key) for key in keys))
    return store


def clockwise(circle: Circle, keys: list[bytes], arc: Arc) -> list[bytes]:
    """Return the keys of an arc, sorted by distance from its start, then by key."""
    inside = [key for key in keys if circle.hash(key) in arc]
    return sorted(inside, key=lambda key: (circle.distance(arc.start, circle.hash(key)) or circle.size, key))


def scanned(store: Storage, arc: Arc, after: bytes | None = None) -> list[bytes]:
    return [found.key for found in store.scan(arc, after=after)]


@every_form
def test_get_returns_the_record_or_none(make: Make) -> None:
    store = make(WIDE)
    assert store.get(b"a") is None
    assert len(store) == 0
    commit(store, record(b"a"))
    assert store.get(b"a") == record(b"a")
    assert store.get(b"b") is None
    assert len(store) == 1


@every_form
def test_notes_are_stored_replaced_and_removed_with_records(make: Make) -> None:
    store = make(WIDE)
    assert (store.note(b"n"), dict(store.notes())) == (None, {})
    wait_for(store, store.commit, Batch([record(b"a")], notes={b"n": b"1", b"m": b"2"}))
    wait_for(store, store.commit, Batch(removals=[b"a"], notes={b"n": None, b"m": b"3", b"absent": None}))
    assert dict(store.notes()) == {b"m": b"3"}
    assert (store.note(b"m"), store.durable_note(b"m"), store.durable_note(b"n")) == (b"3", b"3", None)
    assert (store.get(b"a"), len(store)) == (None, 0)


@every_form
def test_put_replaces_and_removal_removes_a_record(make: Make) -> None:
    store = make(WIDE)
    commit(store, record(b"a", b"old"))
    commit(store, record(b"a", b"newer"), record(b"b"))
    assert store.get(b"a") == record(b"a", b"newer")
    commit(store, removals=(b"a", b"never there"))
    assert store.get(b"a") is None
    assert len(store) == 1


@every_form
def test_one_batch_puts_and_removes(make: Make) -> None:
    store = filled(make, WIDE, [b"a", b"b"])
    commit(store, record(b"c"), removals=(b"a",))
    assert [store.get(key) is None for key in (b"a", b"b", b"c")] == [True, False, False]


@every_form
def test_keys_with_one_id_are_separate(make: Make) -> None:
    store = filled(make, TOY)
    assert len(store) == len(KEYS)
    one, other = next((a, b) for a in KEYS for b in KEYS if a < b and TOY.hash(a) == TOY.hash(b))
    commit(store, removals=(one,))
    assert store.get(one) is None
    assert store.get(other) == record(other)


@every_form
def test_value_bytes_count_all_siblings_but_no_tombstone(make: Make) -> None:
    store = make(WIDE)
    commit(store, record(b"a", b"12345", None, b"123"), record(b"b", b""))
    assert store.value_bytes == 8
    assert module.bytes_of_values(record(b"a", b"12345", None, b"123")) == 8
    commit(store, record(b"a", b"1"))
    assert store.value_bytes == 1
    commit(store, removals=(b"a", b"b"))
    assert store.value_bytes == 0


@pytest.mark.slow
@every_form
def test_store_keeps_its_incarnation_and_repeats_no_key_epoch(make: Make) -> None:
    store = make(WIDE)
    name = store.incarnation
    assert len(name) == 8
    epochs = []
    for number in range(100):
        epochs.append(store.next_key_epoch())
        commit(store, record(b"%d" % number))
    assert epochs == sorted(set(epochs))
    assert 0 <= epochs[0] < epochs[-1] < 1 << 64
    assert store.incarnation == name


@every_form
def test_minted_actor_is_known_while_the_record_is_held(make: Make) -> None:
    store = make(WIDE)
    assert store.minted(b"a") is None
    wait_for(store, store.commit, Batch([record(b"a")], minted={b"a": b"actor"}))
    commit(store, record(b"a", b"merged"), record(b"b"))
    assert (store.minted(b"a"), store.minted(b"b")) == (b"actor", None)
    commit(store, removals=(b"a",))
    commit(store, record(b"a", b"back, and perhaps older than what was minted here"))
    assert store.minted(b"a") is None


@every_form
def test_change_is_visible_before_its_commit_first_waits(make: Make) -> None:
    """So tasks that read, merge and commit without a checkpoint lose no change of each other."""
    store = make(WIDE)

    async def add_one() -> None:
        await trio.lowlevel.checkpoint()
        old = store.get(b"a")
        count = 0 if old is None else old.clock[0].count
        await store.commit(Batch([Record(b"a", (ActorClock(bytes(16), count + 1, ()),))]))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(50):
                nursery.start_soon(add_one)
        await store.commit(Batch())  # changes nothing, and waits until all changes are durable
        assert store.is_durable(b"a")

    wait_for(store, main)
    found = store.get(b"a")
    assert found is not None
    assert found.clock[0].count == 50
    assert len(store) == 1


@every_form
@pytest.mark.parametrize("circle", [TOY, WIDE], ids=["toy", "wide"])
def test_scan_of_the_whole_circle_works_from_any_start(make: Make, circle: Circle) -> None:
    store = filled(make, circle)
    for start in (0, 1, 5, circle.size // 2, circle.size - 1):
        whole = Arc(Point(start), Point(start))
        assert scanned(store, whole) == clockwise(circle, KEYS, whole)
        assert store.count(whole) == len(KEYS)


@pytest.mark.slow
@every_form
@pytest.mark.parametrize("start", range(TOY.size))
@pytest.mark.parametrize("end", range(TOY.size))
def test_scan_of_every_arc_resumes_behind_every_key(make: Make, start: int, end: int) -> None:
    store = filled(make, TOY)
    arc = Arc(Point(start), Point(end))
    expected = clockwise(TOY, KEYS, arc)
    assert scanned(store, arc) == expected
    assert store.count(arc) == len(expected)
    for position, key in enumerate(expected):
        assert scanned(store, arc, after=key) == expected[position + 1 :]


@pytest.mark.slow
@every_form
@given(st.sets(st.sampled_from(KEYS)), st.integers(0, WIDE.size - 1), st.integers(0, WIDE.size - 1), st.data())
def test_scan_of_arcs_of_a_wide_circle_matches_the_model(
    make: Make, keys: set[bytes], start: int, end: int, data: st.DataObject
) -> None:
    store = filled(make, WIDE, sorted(keys))
    arc = Arc(Point(start), Point(end))
    expected = clockwise(WIDE, sorted(keys), arc)
    assert scanned(store, arc) == expected
    assert store.count(arc) == len(expected)
    after = data.draw(st.sampled_from(KEYS))
    if WIDE.hash(after) in arc:  # the key itself may have been removed since the last page
        order = clockwise(WIDE, sorted({*keys, after}), arc)
        assert scanned(store, arc, after=after) == [key for key in order[order.index(after) + 1 :] if key in keys]


@every_form
def test_scan_includes_the_end_of_an_arc_and_not_its_start(make: Make) -> None:
    store = filled(make, WIDE)
    for key in KEYS[:5]:
        point = WIDE.hash(key)
        assert scanned(store, Arc(WIDE.point(point - 1), point)) == [key], "the end belongs to the arc"
        assert key not in scanned(store, Arc(point, WIDE.point(point + 1))), "the start does not"


@every_form
def test_empty_store_has_no_records_in_any_arc(make: Make) -> None:
    store = make(WIDE)
    whole = Arc(Point(7), Point(7))
    assert scanned(store, whole) == []
    assert scanned(store, whole, after=b"x") == []
    assert store.count(whole) == 0


@pytest.mark.slow
@every_form
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from(KEYS[:8]), st.binary(max_size=9)), max_size=40
    )
)
def test_commits_in_any_order_match_a_dictionary(make: Make, steps: list[tuple[str, bytes, bytes]]) -> None:
    store = make(TOY)
    model: dict[bytes, bytes] = {}
    for action, key, value in steps:
        if action == "put":
            commit(store, record(key, value))
            model[key] = value
        else:
            commit(store, removals=(key,))
            model.pop(key, None)
    assert len(store) == len(model)
    assert store.value_bytes == sum(map(len, model.values()))
    for key in KEYS[:8]:
        assert store.get(key) == (record(key, model[key]) if key in model else None)
    whole = Arc(Point(0), Point(0))
    assert scanned(store, whole) == clockwise(TOY, list(model), whole)


# -- sums ------------------------------------------------------------------------------------------------


def summed(store: Storage, arc: Arc = WHOLE) -> bytes:
    return store.digests.sum(arc, 0, 0, store.heads)


@every_form
def test_heads_are_keys_and_digests_in_scan_order(make: Make) -> None:
    store = filled(make, TOY)
    for start in range(TOY.size):
        for end in range(TOY.size):
            arc = Arc(Point(start), Point(end))
            assert list(store.heads(arc)) == [(found.key, digest_of(found)) for found in store.scan(arc)]
    rest = clockwise(TOY, KEYS, WHOLE)[7:]
    assert [key for key, _ in store.heads(WHOLE, after=clockwise(TOY, KEYS, WHOLE)[6])] == rest


@every_form
@pytest.mark.parametrize("circle", [TOY, WIDE], ids=["toy", "wide"])
def test_sums_depend_only_on_the_present_records(make: Make, circle: Circle) -> None:
    store, other = make(circle), make(circle)
    empty = summed(store)
    commit(store, *(record(key, b"old") for key in KEYS))
    commit(store, *(record(key, b"a", b"b") for key in KEYS[:30]), removals=tuple(KEYS[30:]))
    commit(other, *(record(key, b"a", b"b") for key in KEYS[:30]))
    assert summed(store) == summed(other) != empty
    for key in KEYS[:5]:
        arc = Arc(circle.hash(key), circle.hash(KEYS[7]))
        assert summed(store, arc) == summed(other, arc)
    commit(other, record(KEYS[3], b"a"))
    assert summed(store) != summed(other)
    commit(store, removals=tuple(KEYS))
    assert summed(store) == empty


@every_form
def test_keys_with_siblings_are_counted(make: Make) -> None:
    store = make(WIDE)
    commit(store, record(b"a", b"1", b"2"), record(b"b", b"1"), record(b"c", None, b"1"))
    assert store.sibling_keys == 2
    commit(store, record(b"a", b"1"), record(b"b", b"1", b"2", b"3"))
    assert store.sibling_keys == 2
    commit(store, removals=(b"b", b"c"))
    assert store.sibling_keys == 0


def hiding(key: bytes, *counts: int, size: int = 1) -> Record:
    """Return a record with one value, and for each actor this number of versions in quarantine."""
    hidden = tuple(
        ActorClock(
            n.to_bytes(16, "big"), count, tuple(Version(b"h" * size, bytes([n, k]) * 8, 1) for k in range(count))
        )
        for n, count in enumerate(counts, 1)
    )
    return Record(key, record(key).clock, b"", hidden)


@pytest.mark.slow
@every_form
@given(st.lists(st.tuples(st.sampled_from(KEYS[:8]), st.sampled_from(["hide", "show", "remove"])), max_size=30),
       st.integers(0, TOY.size - 1), st.integers(0, TOY.size - 1))
def test_quarantined_matches_a_scan(
    make: Make, steps: list[tuple[bytes, str]], start: int, end: int
) -> None:
    store, arc = make(TOY), Arc(Point(start), Point(end))
    for number, (key, action) in enumerate(steps):
        if action == "remove":
            commit(store, removals=(key,))
        else:
            commit(store, hiding(key, 1 + number % 3) if action == "hide" else record(key))
    expected = [found for found in store.scan(arc) if found.quarantine]
    assert list(store.quarantined(arc)) == expected
    assert store.count_quarantined(arc) == sum(len(found.quarantine[0].versions) for found in expected)
    for place, found in enumerate(expected):
        assert list(store.quarantined(arc, after=found.key)) == expected[place + 1 :]


@every_form
def test_committed_and_absent_keys_are_durable(make: Make) -> None:
    store = make(WIDE)
    assert store.is_durable(b"a")
    commit(store, record(b"a"))
    assert store.is_durable(b"a")
    assert store.is_durable(b"b")
    commit(store, removals=(b"a",))
    assert store.is_durable(b"a")
    assert store.failed is None or not store.failed.is_set()
    assert store.bad_records == 0


Steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from(KEYS[:6]), st.integers(1, 3), st.booleans()),
        st.tuples(st.just("remove"), st.sampled_from(KEYS[:6]), st.just(0), st.just(False)),
        st.tuples(st.just("wait"), st.just(b""), st.integers(0, 3), st.just(False)),
    ),
    max_size=30,
)


@pytest.mark.slow
@pytest.mark.parametrize("make", [on_disk, in_database], ids=["disk", "database"])
@given(Steps)
def test_store_with_pending_commits_matches_a_store_in_memory(
    make: Make, steps: list[tuple[str, bytes, int, bool]]
) -> None:
    """The test does not wait for commits, so a key has durable, pending and queued changes at once."""
    store, model = make(TOY), MemoryStorage(TOY, b"12345678")

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for number, (action, key, count, is_minted) in enumerate(steps):
                if action == "wait":
                    for _ in range(count):
                        await trio.lowlevel.checkpoint()
                    continue
                put = record(key, *(b"%d" % (number + n) for n in range(count)))
                minted = {key: b"actor %d" % number} if is_minted else {}
                batch = Batch([put], minted=minted) if action == "put" else Batch(removals=[key])
                nursery.start_soon(store.commit, batch)
                await trio.testing.wait_all_tasks_blocked()
                model.apply(batch)
                assert_alike(store, model)
        assert_alike(store, model)
        assert all(store.is_durable(key) for key in KEYS)

    wait_for(store, main)
    assert_alike(store, model)


def assert_alike(store: Storage, model: MemoryStorage) -> None:
    assert (len(store), store.value_bytes, store.sibling_keys) == (len(model), model.value_bytes, model.sibling_keys)
    arcs = [WHOLE, Arc(Point(3), Point(3)), Arc(Point(6), Point(2)), Arc(Point(1), Point(4))]
    for arc in arcs:
        assert list(store.scan(arc)) == list(model.scan(arc))
        assert list(store.heads(arc)) == list(model.heads(arc))
        assert store.count(arc) == model.count(arc)
        assert summed(store, arc) == summed(model, arc)
    for key in KEYS[:6]:
        assert store.get(key) == model.get(key)
        assert store.minted(key) == model.minted(key)
        rest = Arc(Point(5), Point(5))
        assert list(store.scan(rest, after=key)) == list(model.scan(rest, after=key))

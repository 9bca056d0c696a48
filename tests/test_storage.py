"""What every storage promises, as one suite over each form of it: in memory, and on a simulated disk."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chord.data import storage as module
from chord.data.storage import Batch, MemoryStorage, Storage
from chord.ids import Arc, Circle, Point
from chord.messages import ActorClock, Record, Version
from chord.sim.disk import Disk
from chord.sim.durable import DiskStorage
from chord.testing import run

TOY = Circle(3)  # eight points, so that several keys share one
WIDE = Circle(160)
KEYS = [b"key-%d" % number for number in range(40)]

Make = Callable[[Circle], Storage]


def in_memory(circle: Circle) -> Storage:
    return MemoryStorage(circle, b"12345678")


def on_disk(circle: Circle) -> Storage:
    return DiskStorage(circle, Disk(random.Random(1)), random.Random(1))


every_form = pytest.mark.parametrize("make", [in_memory, on_disk], ids=["memory", "disk"])


def record(key: bytes, *values: bytes | None) -> Record:
    versions = tuple(Version(value, n.to_bytes(16, "big"), n) for n, value in enumerate(values or (b"v" + key,)))
    return Record(key, (ActorClock(bytes(16), max(1, len(versions)), versions),))


def commit(store: Storage, *puts: Record, removals: tuple[bytes, ...] = ()) -> None:
    run(store.commit, Batch(puts, removals))


def filled(make: Make, circle: Circle, keys: list[bytes] = KEYS) -> Storage:
    store = make(circle)
    commit(store, *(record(key) for key in keys))
    return store


def clockwise(circle: Circle, keys: list[bytes], arc: Arc) -> list[bytes]:
    """The keys of an arc, by definition: by distance from its start, then by key."""
    inside = [key for key in keys if circle.hash(key) in arc]
    return sorted(inside, key=lambda key: (circle.distance(arc.start, circle.hash(key)) or circle.size, key))


def scanned(store: Storage, arc: Arc, after: bytes | None = None) -> list[bytes]:
    return [found.key for found in store.scan(arc, after=after)]


@every_form
def test_what_was_put_is_got_and_what_was_not_is_none(make: Make) -> None:
    store = make(WIDE)
    assert store.get(b"a") is None
    assert len(store) == 0
    commit(store, record(b"a"))
    assert store.get(b"a") == record(b"a")
    assert store.get(b"b") is None
    assert len(store) == 1


@every_form
def test_a_put_replaces_and_a_removal_removes(make: Make) -> None:
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
def test_two_keys_with_one_id_do_not_disturb_each_other(make: Make) -> None:
    store = filled(make, TOY)
    assert len(store) == len(KEYS)
    one, other = next((a, b) for a in KEYS for b in KEYS if a < b and TOY.hash(a) == TOY.hash(b))
    commit(store, removals=(one,))
    assert store.get(one) is None
    assert store.get(other) == record(other)


@every_form
def test_value_bytes_are_those_of_all_siblings_and_no_tombstone(make: Make) -> None:
    store = make(WIDE)
    commit(store, record(b"a", b"12345", None, b"123"), record(b"b", b""))
    assert store.value_bytes == 8
    assert module.record_bytes(record(b"a", b"12345", None, b"123")) == 8
    commit(store, record(b"a", b"1"))
    assert store.value_bytes == 1
    commit(store, removals=(b"a", b"b"))
    assert store.value_bytes == 0


@every_form
def test_a_store_is_named_by_its_incarnation_and_never_repeats_a_key_epoch(make: Make) -> None:
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
def test_who_minted_is_known_as_long_as_the_record_was_held(make: Make) -> None:
    store = make(WIDE)
    assert store.minted(b"a") is None
    run(store.commit, Batch([record(b"a")], minted={b"a": b"actor"}))
    commit(store, record(b"a", b"merged"), record(b"b"))
    assert (store.minted(b"a"), store.minted(b"b")) == (b"actor", None)
    commit(store, removals=(b"a",))
    commit(store, record(b"a", b"back, and perhaps older than what was minted here"))
    assert store.minted(b"a") is None


@every_form
def test_a_change_is_visible_before_its_commit_first_waits(make: Make) -> None:
    """So whoever reads, merges and commits without a pause loses nothing to others who do the same."""
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
        await store.commit(Batch())  # changes nothing, and waits until all the others last

    run(main)
    found = store.get(b"a")
    assert found is not None
    assert found.clock[0].count == 50
    assert len(store) == 1


@every_form
@pytest.mark.parametrize("circle", [TOY, WIDE], ids=["toy", "wide"])
def test_the_whole_circle_is_scanned_from_any_start(make: Make, circle: Circle) -> None:
    store = filled(make, circle)
    for start in (0, 1, 5, circle.size // 2, circle.size - 1):
        whole = Arc(Point(start), Point(start))
        assert scanned(store, whole) == clockwise(circle, KEYS, whole)
        assert store.count(whole) == len(KEYS)


@every_form
@pytest.mark.parametrize("start", range(TOY.size))
@pytest.mark.parametrize("end", range(TOY.size))
def test_every_arc_of_a_toy_circle_with_every_resumption(make: Make, start: int, end: int) -> None:
    store = filled(make, TOY)
    arc = Arc(Point(start), Point(end))
    expected = clockwise(TOY, KEYS, arc)
    assert scanned(store, arc) == expected
    assert store.count(arc) == len(expected)
    for position, key in enumerate(expected):
        assert scanned(store, arc, after=key) == expected[position + 1 :]


@every_form
@given(st.sets(st.sampled_from(KEYS)), st.integers(0, WIDE.size - 1), st.integers(0, WIDE.size - 1), st.data())
def test_arcs_of_the_wide_circle(make: Make, keys: set[bytes], start: int, end: int, data: st.DataObject) -> None:
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
def test_arcs_that_end_or_begin_at_a_keys_own_point(make: Make) -> None:
    store = filled(make, WIDE)
    for key in KEYS[:5]:
        point = WIDE.hash(key)
        assert scanned(store, Arc(WIDE.point(point - 1), point)) == [key], "the end belongs to the arc"
        assert key not in scanned(store, Arc(point, WIDE.point(point + 1))), "the start does not"


@every_form
def test_an_empty_store_has_nothing_anywhere(make: Make) -> None:
    store = make(WIDE)
    whole = Arc(Point(7), Point(7))
    assert scanned(store, whole) == []
    assert scanned(store, whole, after=b"x") == []
    assert store.count(whole) == 0


@every_form
@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from(KEYS[:8]), st.binary(max_size=9)), max_size=40
    )
)
def test_any_history_of_commits_agrees_with_a_dictionary(make: Make, steps: list[tuple[str, bytes, bytes]]) -> None:
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

"""The finger table against the definition: finger[i] = successor(n + 2**i)."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from chord.finger import FingerTable
from chord.ids import Circle, Point, between
from chord.wire.messages import Contact, FingerRun

CIRCLE = Circle(8)
NODES = (10, 42, 80, 120, 160, 200, 230)


def at(point: int) -> Contact:
    return Contact(Point(point), f"n{point}:1")


def successor(point: int, nodes: tuple[int, ...] = NODES) -> Contact:
    return at(min(nodes, key=lambda n: CIRCLE.distance(point, n)))


def refresh(table: FingerTable, nodes: tuple[int, ...], own: int) -> int:
    """Fix fingers as stabilize does until a round changes nothing; return the number of lookups."""
    lookups = 0
    while True:
        changed = table.adopt(0, successor(own + 1, nodes)) is not None
        for _ in range(len(table.runs()) + 1):
            index = table.next_to_refresh()
            if index is None:
                break
            lookups += 1
            changed |= table.adopt(index, successor(table.start(index), nodes)) is not None
            assert table.check() == []
        if not changed:
            return lookups


def full(own: int, nodes: tuple[int, ...] = NODES) -> FingerTable:
    table = FingerTable(CIRCLE, Point(own))
    refresh(table, nodes, own)
    return table


def test_finger_table_of_the_worked_example_is_exact() -> None:
    table = FingerTable(CIRCLE, Point(80))
    assert [table.start(i) for i in range(8)] == [81, 82, 84, 88, 96, 112, 144, 208]
    assert table.adopt(0, at(120)) == (0, 5), "one verified answer covers every start in its arc"
    assert table.next_to_refresh() == 6
    assert table.adopt(6, at(160)) == (6, 6)
    assert table.next_to_refresh() == 7
    assert table.adopt(7, at(230)) == (7, 7)
    assert table.runs() == [FingerRun(0, 5, at(120)), FingerRun(6, 6, at(160)), FingerRun(7, 7, at(230))]
    assert [c.id for c in table.contacts()] == [120, 160, 230]
    assert list(table.closest_preceding(190)) == [(at(160), 6), (at(120), 5)]


@pytest.mark.parametrize("own", NODES)
def test_each_finger_is_the_successor_of_its_start(own: int) -> None:
    table = full(own)
    assert [table.entry(i) for i in range(8)] == [successor(table.start(i)) for i in range(8)]


@given(st.sets(st.integers(0, 255), min_size=1, max_size=12), st.data())
def test_stale_finger_table_becomes_exact(now: set[int], data: st.DataObject) -> None:
    own = data.draw(st.sampled_from(sorted(now)))
    before = data.draw(st.sets(st.integers(0, 255), max_size=12)) | {own}
    table = full(own, tuple(sorted(before)))
    lookups = refresh(table, tuple(sorted(now)), own)
    assert [table.entry(i) for i in range(8)] == [successor(table.start(i), tuple(now)) for i in range(8)]
    assert lookups <= 5 * 8, "one lookup for each run, not for each entry"


@given(
    st.integers(0, 255),
    st.lists(
        st.tuples(st.sampled_from(["adopt", "arc", "forget"]), st.integers(0, 7), st.integers(0, 255)), max_size=30
    ),
)
@example(0, [("adopt", 0, 2), ("adopt", 1, 0), ("adopt", 0, 2)])
def test_wrong_answers_keep_the_finger_table_valid(own: int, steps: list[tuple[str, int, int]]) -> None:
    table = FingerTable(CIRCLE, Point(own))
    for step, index, point in steps:
        before = [table.entry(i) for i in range(8)]
        if step == "adopt":
            changed = table.adopt(index, at(point))
        elif step == "arc":
            changed = table.adopt_arc(Point((point - (1 << index)) % 256), at(point))
        else:
            changed = table.forget(at(point))
        after = [table.entry(i) for i in range(8)]
        differing = [i for i in range(8) if before[i] != after[i]]
        assert (changed is not None) == bool(differing)
        if changed is not None:
            assert changed == (differing[0], differing[-1])
        assert table.check() == []
        refreshed = table.next_to_refresh()
        assert refreshed is None or 1 <= refreshed < 8


@given(st.sets(st.integers(0, 255), min_size=1, max_size=12), st.integers(0, 255), st.data())
def test_closest_preceding_is_the_nearest_vnode_before_the_key(
    nodes: set[int], key: int, data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(sorted(nodes)))
    table = full(own, tuple(sorted(nodes)))
    found = [contact.id for contact, _ in table.closest_preceding(key)]
    known = {entry.id for i in range(8) if (entry := table.entry(i)) is not None}
    expected = {p for p in known if between(own, p, key)}
    assert found == sorted(expected, key=lambda p: CIRCLE.distance(p, key))
    assert own not in found
    for contact, index in table.closest_preceding(key):
        assert table.entry(index) == contact


def test_adopt_arc_fills_every_start_in_the_arc() -> None:
    table = FingerTable(CIRCLE, Point(80))
    assert table.adopt_arc(Point(80), at(120)) == (0, 5)
    assert table.adopt_arc(Point(120), at(160)) == (6, 6)
    assert table.adopt_arc(Point(160), at(200)) is None, "no start lies in (160, 200]"
    assert table.adopt_arc(Point(200), at(230)) == (7, 7)
    assert table.adopt_arc(Point(200), at(230)) is None


def test_adopt_arc_across_the_own_id_counts_only_behind_it() -> None:
    table = FingerTable(CIRCLE, Point(80))
    assert table.adopt_arc(Point(42), at(120)) == (0, 5), "120 does not know of 80 yet"
    assert table.adopt_arc(Point(120), at(120)) is None


def test_adopt_of_an_answer_past_the_own_id_changes_nothing() -> None:
    table = FingerTable(CIRCLE, Point(80))
    assert table.adopt(7, at(120)) is None, "208 to 120 leads past 80, so 80 itself follows 208"
    assert table.runs() == []


def test_adopt_of_a_nearer_answer_replaces_farther_entries() -> None:
    table = FingerTable(CIRCLE, Point(80))
    table.adopt(0, at(230))
    assert table.adopt(6, at(160)) == (0, 6)
    assert table.runs() == [FingerRun(0, 6, at(160)), FingerRun(7, 7, at(230))]


def test_adopt_of_a_farther_successor_drops_nearer_vnodes() -> None:
    table = full(80)
    assert table.adopt(0, at(160)) == (0, 5)
    assert table.runs() == [FingerRun(0, 6, at(160)), FingerRun(7, 7, at(230))]


def test_lone_vnode_has_only_itself_as_fingers() -> None:
    table = full(80, (80,))
    assert table.runs() == [FingerRun(0, 7, at(80))]
    assert table.contacts() == []
    assert table.next_to_refresh() is None
    assert list(table.closest_preceding(80)) == []


def test_forget_of_a_vnode_refreshes_its_entries_next() -> None:
    table = full(80)
    assert table.forget(at(160)) == (6, 6)
    assert table.entry(6) is None
    assert table.forget(at(160)) is None
    assert {table.next_to_refresh() for _ in range(4)} == {6, 7}


def test_moved_vnode_is_found_at_its_new_address() -> None:
    table = full(80)
    moved = Contact(Point(160), "elsewhere:1")
    assert table.adopt(6, moved) == (6, 6)
    assert table.entry(6) == moved
    assert len(table.contacts()) == 3


def test_closest_preceding_of_the_own_id_is_the_last_vnode() -> None:
    assert [c.id for c, _ in full(80).closest_preceding(80)] == [230, 160, 120]


def test_finger_table_stores_each_distinct_vnode_once() -> None:
    circle = Circle(160)
    table = FingerTable(circle, Point(0))
    assert table.adopt(0, Contact(Point(1 << 156), "a:1")) == (0, 156)
    assert table.adopt(157, Contact(Point(0), "self:1")) == (157, 159)
    assert len(table.runs()) == 2


def test_check_finds_planted_faults() -> None:
    table = full(80)
    table._runs[1] = table._runs[1]._replace(first=3)
    assert table.check() != []
    table = full(80)
    table._runs[1] = table._runs[1]._replace(contact=at(90))
    assert table.check() != []
    table = full(80)
    table._runs.reverse()
    assert table.check() != []

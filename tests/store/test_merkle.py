"""The Merkle tree: against brute force on small and large circles; its reads and its memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Arc, Circle, Point
from chord.store import merkle as digest
from chord.store.merkle import FAN_OUT, LEVELS, SLICE_LEVEL, Digests, Piece, Total, digest_of, joined
from chord.wire.messages import DIGEST_BYTES, ActorClock, Record, Version

PARTS = [FAN_OUT**level for level in range(LEVELS)]


class Model:
    """Records with their tree; each check compares the tree with a scan of all records."""

    def __init__(self, circle: Circle, digests: Digests | None = None) -> None:
        self.circle = circle
        self.digests = digests or Digests(circle)
        self.records: dict[bytes, tuple[int, bytes]] = {}
        self.reads: list[Arc] = []

    def heads(self, arc: Arc) -> Iterator[tuple[bytes, bytes]]:
        self.reads.append(arc)
        return iter([(key, digest) for key, (point, digest) in self.records.items() if point in arc])

    def change(self, point: int, name: int, version: int | None) -> None:
        key = f"{point}/{name}".encode()
        old = self.records.pop(key, None)
        new = None if version is None else blake2b(key + b"%d" % version, digest_size=DIGEST_BYTES).digest()
        if new is not None:
            self.records[key] = (point, new)
        if old is not None or new is not None:
            self.digests.change(point, old and old[1], new)

    def check(self, arc: Arc, level: int, part: int) -> None:
        inside = [
            int.from_bytes(digest, "big")
            for point, digest in self.records.values()
            if point in arc and point * PARTS[level] // self.circle.size == part
        ]
        expected = sum(inside) % (1 << 8 * DIGEST_BYTES)
        assert self.digests.sum(arc, level, part, self.heads) == expected.to_bytes(DIGEST_BYTES, "big")

    def check_all(self, arc: Arc) -> None:
        held = sum(point in arc for point, _ in self.records.values())
        assert self.digests.count(arc, self.heads) == held
        self.check(arc, 0, 0)
        for level in range(LEVELS):
            for part in sorted({0, *(self.digests.part_of(p, level) for p in (arc.start, arc.end))}):
                self.check(arc, level, part)
        pieces = list(self.digests.pieces(arc, 1, self.heads))
        assert sum(piece.records for piece in pieces) == held


def points(circle: Circle) -> st.SearchStrategy[Point]:
    """Draw points that share slices, or lie on the edges of slices or of the circle."""
    if circle.bits <= 8:
        return st.integers(0, circle.size - 1).map(Point)
    width = circle.size // PARTS[SLICE_LEVEL]
    slices = st.sampled_from([0, 1, 63, 64, 4095])
    offsets = st.sampled_from([0, 1, 2, width // 2, width - 1])
    return st.builds(lambda part, offset: Point(part * width + min(offset, width - 1)), slices, offsets)


def circles() -> st.SearchStrategy[Circle]:
    return st.sampled_from([3, 4, 5, 6, 7, 8, 13, 160]).map(Circle)


Step = tuple[Point, int, int | None, Arc]


@st.composite
def histories(draw: st.DrawFn) -> tuple[Circle, list[Step]]:
    """Draw changes, each with an arc to check after it."""
    circle = draw(circles())
    point = points(circle)
    step = st.tuples(point, st.integers(0, 1), st.none() | st.integers(0, 2), st.builds(Arc, point, point))
    return circle, draw(st.lists(step, max_size=25))


def play(circle: Circle, steps: list[Step], digests: Digests | None = None) -> None:
    model = Model(circle, digests)
    for point, name, version, arc in steps:
        model.change(point, name, version)
        model.check_all(arc)


@pytest.mark.slow
@given(histories())
def test_sums_and_counts_of_any_arc_match_a_scan(history: tuple[Circle, list[Step]]) -> None:
    play(*history)


@pytest.mark.parametrize("bits", [3, 8])
def test_sums_of_every_arc_of_a_small_circle_match_a_scan(bits: int) -> None:
    circle = Circle(bits)
    model = Model(circle)
    for number in range(0, circle.size, 1 if bits == 3 else 5):
        model.change(number, 0, 1)
        model.change(number, 1, number)
    step = 1 if bits == 3 else 37
    for start in range(0, circle.size, step):
        for end in range(0, circle.size, step):
            arc = Arc(Point(start), Point(end))
            for level in range(LEVELS):
                for part in range(0, PARTS[level], 1 if level < SLICE_LEVEL else 73):
                    model.check(arc, level, part)


@given(circles().flatmap(lambda c: st.tuples(st.just(c), points(c), points(c), st.integers(0, SLICE_LEVEL))))
def test_pieces_cut_the_arc_at_the_edges_of_the_parts(case: tuple[Circle, Point, Point, int]) -> None:
    circle, start, end, level = case
    if level == SLICE_LEVEL and circle.bits > 13:  # not 4096 pieces each time
        end = circle.point(start + circle.size // 40)
    arc, model = Arc(start, end), Model(circle)
    pieces = list(model.digests.pieces(arc, level, model.heads))
    assert pieces[0].arc.start == arc.start
    assert pieces[-1].arc.end == arc.end
    assert all(a.arc.end == b.arc.start for a, b in pairwise(pieces)), "without gaps"
    length = sum(circle.distance(p.arc.start, p.arc.end) or circle.size for p in pieces)
    assert length == (circle.distance(start, end) or circle.size), "once round at most"
    for piece in pieces:
        first = circle.point(piece.arc.start + 1)
        assert model.digests.part_of(first, level) == model.digests.part_of(piece.arc.end, level) == piece.part


def test_arc_that_ends_in_its_first_slice_has_it_twice() -> None:
    circle = Circle(160)
    model = Model(circle)
    for point in range(8):
        model.change(point, 0, 1)
    arc = Arc(Point(5), Point(3))  # all but 4 and 5
    pieces = [p for p in model.digests.pieces(arc, SLICE_LEVEL, model.heads) if p.records]
    assert [(p.part, p.records) for p in pieces] == [(0, 2), (0, 4)]
    assert model.digests.count(arc, model.heads) == 6
    model.check(arc, SLICE_LEVEL, 0)


@given(histories())
def test_held_returns_the_pieces_with_records(history: tuple[Circle, list[Step]]) -> None:
    circle, steps = history
    model = Model(circle)
    for point, name, version, arc in steps:
        model.change(point, name, version)
        start, end = arc
        if circle.bits > 13:  # not 4096 pieces each time
            arc = Arc(start, circle.point(start + min(circle.distance(start, end), circle.size // 40)))
        pieces = model.digests.pieces(arc, SLICE_LEVEL, model.heads)
        assert list(model.digests.held(arc, model.heads)) == [piece for piece in pieces if piece.records]


@given(histories(), st.integers(1, 6))
def test_stretches_cover_all_records_in_order_with_few_each(
    history: tuple[Circle, list[Step]], records_max: int
) -> None:
    circle, steps = history
    model = Model(circle)
    for point, name, version, _ in steps:
        model.change(point, name, version)
    for *_, arc in steps[:3]:
        stretches = list(model.digests.stretches(arc, records_max, model.heads))
        for stretch in stretches:
            held = {point for point, _ in model.records.values() if point in stretch}
            is_one_slice = len({model.digests.part_of(point, SLICE_LEVEL) for point in held}) == 1
            assert model.digests.count(stretch, model.heads) >= 1
            assert model.digests.count(stretch, model.heads) <= records_max or is_one_slice
        found = [key for stretch in stretches for key, _ in model.heads(stretch)]
        assert sorted(found) == sorted(key for key, _ in model.heads(arc)), "each once, and none outside"
        starts = [circle.distance(arc.start, stretch.start) for stretch in stretches]
        assert starts == sorted(starts)


def test_pieces_are_joined_while_they_hold_few_records() -> None:
    records = [2, 2, 2, 0, 9, 1, 3, 0]
    pieces = [Piece(n, Arc(Point(n), Point(n + 1)), held) for n, held in enumerate(records)]
    assert [(tuple(arc), held) for arc, held in joined(pieces, 4)] == [
        ((0, 2), 4),
        ((2, 4), 2),
        ((4, 5), 9),
        ((5, 8), 4),
    ]
    some = list(joined(pieces, 6, lambda piece: piece.part in (0, 2, 3, 6)))
    assert some == [(Arc(Point(0), Point(4)), 6), (Arc(Point(6), Point(7)), 3)], "a stretch may contain unwanted pieces"
    assert list(joined(pieces, 5, lambda piece: piece.part in (0, 2))) == [
        (Arc(Point(0), Point(1)), 2),
        (Arc(Point(2), Point(3)), 2),
    ]
    assert list(joined([], 4)) == []


@pytest.mark.slow
@given(histories())
def test_tree_built_from_the_totals_of_slices_is_equal(history: tuple[Circle, list[Step]]) -> None:
    circle, steps = history
    model = Model(circle)
    for point, name, version, _ in steps:
        model.change(point, name, version)
    copy = Digests(circle)
    for part, total in model.digests._parts[SLICE_LEVEL].items():
        copy.add(part, *total)
    assert copy._parts == model.digests._parts


# -- costs ----------------------------------------------------------------------------------------


def test_sum_reads_only_changed_slices_that_the_arc_cuts() -> None:
    circle = Circle(160)
    width = circle.size // PARTS[SLICE_LEVEL]
    model = Model(circle)
    for part in range(0, 4096, 16):
        model.change(part * width + 5, 0, 1)
    arc = Arc(Point(3), Point(2048 * width + 7))  # cuts slices 0 and 2048
    model.check_all(arc)
    for read in model.reads:
        assert circle.distance(read.start, read.end) < width, "less than a slice each"
    model.reads.clear()
    model.digests.sum(arc, 0, 0, model.heads)
    model.digests.count(arc, model.heads)
    model.change(1024 * width, 0, 1)  # not a cut slice
    model.digests.sum(arc, 0, 0, model.heads)
    assert model.reads == [], "the sum of a cut slice is remembered"
    model.change(2048 * width + 6, 0, 1)
    model.digests.sum(arc, 0, 0, model.heads)
    assert len(model.reads) == 1
    model.check_all(arc)


def test_remembered_sums_are_bounded_and_evict_the_oldest() -> None:
    circle = Circle(160)
    model = Model(circle)
    for point in range(0, 4000, 2):
        model.change(point, 0, 1)
    often = Arc(Point(0), Point(9))
    for end in range(10, 20 + 2 * digest.REMEMBERED_MAX):
        model.digests.sum(Arc(Point(0), Point(end)), 0, 0, model.heads)
        model.reads.clear()
        model.digests.sum(often, 0, 0, model.heads)
        assert end == 10 or model.reads == []
    assert len(model.digests._remembered) == digest.REMEMBERED_MAX


def test_empty_tree_takes_less_than_a_kilobyte() -> None:
    model = Model(Circle(160))
    for is_to_be in (1, None):
        for point in range(0, 1 << 160, 1 << 152):
            model.change(point, 0, is_to_be)
    for digests in (Digests(Circle(160)), model.digests):
        held = [len(totals) for totals in digests._parts]
        assert held == [0, 0, 0]
    fresh = Digests(Circle(160))
    weight = sys.getsizeof(fresh) + sys.getsizeof(fresh._parts) + sys.getsizeof(fresh._remembered)
    assert weight + sum(sys.getsizeof(totals) for totals in fresh._parts) < 1000


# -- digests of clocks ------------------------------------------------------------------------------


def test_digest_depends_on_key_and_clock_but_not_on_values() -> None:
    def record(key: bytes, *clock: tuple[bytes, int, int], value: bytes = b"x") -> Record:
        versions = [tuple(Version(value, bytes(16), 1) for _ in range(kept)) for _, _, kept in clock]
        entries = zip(clock, versions, strict=True)
        return Record(key, tuple(ActorClock(actor * 16, count, kept) for (actor, count, _), kept in entries))

    different = [
        record(b"k", (b"a", 1, 1)),
        record(b"k", (b"a", 2, 1)),
        record(b"k", (b"a", 2, 2)),
        record(b"k", (b"b", 2, 2)),
        record(b"k", (b"a", 2, 2), (b"b", 1, 0)),
        record(b"ka", (b"a", 1, 1)),
        record(b"k"),
    ]
    assert len({digest_of(r) for r in different}) == len(different)
    assert digest_of(record(b"k", (b"a", 1, 1), value=b"y")) == digest_of(different[0])
    assert all(len(digest_of(r)) == DIGEST_BYTES for r in different)


# -- planted bugs ----------------------------------------------------------------------------------


class ForgetsToSubtract(Digests):
    """The bug: a removed record stays in the sums."""

    def change(self, point: int, old: bytes | None, new: bytes | None) -> None:
        if new is not None:
            super().change(point, old, new)


class RemembersForEver(Digests):
    """The bug: a remembered sum of a cut slice never expires."""

    def _cut(self, span: tuple[int, int], whole: Total, heads: digest.ReadHeads) -> Total:
        known = self._remembered.get(span)
        return known[1] if known else super()._cut(span, whole, heads)


class RemembersByCount(Digests):
    """The bug: a remembered sum is valid while the slice's number of records is equal."""

    def _cut(self, span: tuple[int, int], whole: Total, heads: digest.ReadHeads) -> Total:
        return super()._cut(span, Total(whole.records, 0), heads)


@pytest.mark.parametrize("bug", [ForgetsToSubtract, RemembersForEver, RemembersByCount])
def test_planted_stale_sum_is_caught(bug: type[Digests]) -> None:
    arc = Arc(Point(2), Point(9))  # inside slice 0
    steps: list[Step] = [(Point(5), 0, 1, arc), (Point(5), 0, 2, arc), (Point(5), 1, 1, arc), (Point(5), 1, None, arc)]
    play(Circle(160), steps)
    with pytest.raises(AssertionError):
        play(Circle(160), steps, bug(Circle(160)))

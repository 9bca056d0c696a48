"""ids: arcs and `between` against brute force on small circles; ids keep their leading zeros."""

from __future__ import annotations

import hashlib

import pytest

from chord.ids import BITS_MAX, Arc, Circle, Point, between, vnode_id

SMALL = Circle(3)
POINTS = range(SMALL.size)


def walk(start: int, end: int) -> list[int]:
    """Return the points clockwise from start (exclusive) to end (inclusive), or all points if both are equal."""
    met = []
    at = start
    while True:
        at = (at + 1) % SMALL.size
        met.append(at)
        if at == end:
            return met


@pytest.mark.parametrize("low", POINTS)
@pytest.mark.parametrize("high", POINTS)
def test_between_is_the_open_arc_and_from_x_to_x_all_but_x(low: int, high: int) -> None:
    inside = set(walk(low, high)) - {high}
    assert {p for p in POINTS if between(low, p, high)} == inside


@pytest.mark.parametrize("start", POINTS)
@pytest.mark.parametrize("end", POINTS)
def test_arc_includes_its_end_and_from_x_to_x_is_everything(start: int, end: int) -> None:
    arc = Arc(Point(start), Point(end))
    assert {p for p in POINTS if p in arc} == set(walk(start, end))
    assert arc.is_whole == (len(walk(start, end)) == SMALL.size)


@pytest.mark.parametrize("start", POINTS)
@pytest.mark.parametrize("end", POINTS)
def test_spans_are_the_arc_in_clockwise_order(start: int, end: int) -> None:
    spans = Arc(Point(start), Point(end)).spans()
    points = [p for low, high in spans for p in range(low, (SMALL.size - 1 if high is None else high) + 1)]
    assert points == walk(start, end)


def test_other_object_than_a_point_is_in_no_arc() -> None:
    assert "3" not in Arc(Point(1), Point(5))


@pytest.mark.parametrize("start", POINTS)
@pytest.mark.parametrize("end", POINTS)
def test_distance_is_the_number_of_steps_clockwise(start: int, end: int) -> None:
    assert SMALL.distance(start, end) == len(walk(start, end)) % SMALL.size
    assert SMALL.point(start + SMALL.distance(start, end)) == end


@pytest.mark.parametrize("bits", [3, 7, 8, 9, 64, 160])
def test_id_is_the_first_bits_of_sha1(bits: int) -> None:
    circle = Circle(bits)
    binary = "".join(f"{byte:08b}" for byte in hashlib.sha1(b"user:42").digest())
    assert circle.hash(b"user:42") == int(binary[:bits], 2)
    assert circle.width * 8 - 8 < bits <= circle.width * 8


def test_ids_keep_their_leading_zeros() -> None:
    circle = Circle(BITS_MAX)
    assert circle.hex(0x2A) == "0" * 38 + "2a"
    assert Circle(8).hex(5) == "05"
    assert Circle(9).hex(5) == "005"
    key = next(k for k in (b"%d" % n for n in range(10_000)) if hashlib.sha1(k).digest()[0] == 0)
    assert circle.hex(circle.hash(key)) == hashlib.sha1(key).hexdigest()


def test_vnode_ids_are_hashes_of_the_address_with_a_number() -> None:
    circle = Circle(BITS_MAX)
    assert vnode_id(circle, "127.0.0.1:9000", 0) == int(hashlib.sha1(b"127.0.0.1:9000").hexdigest(), 16)
    assert vnode_id(circle, "127.0.0.1:9000", 2) == int(hashlib.sha1(b"127.0.0.1:9000#2").hexdigest(), 16)


def test_points_wrap_and_fractions_are_shares_of_the_circle() -> None:
    assert Circle(8).point(256 + 7) == 7
    assert isinstance(Circle(8).point(-1), Point)
    assert Circle(8).point(-1) == 255
    assert Circle(8).fraction(64) == 0.25

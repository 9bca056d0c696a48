"""The owner cache against a model with an owner for each point of a small circle."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Circle, Point
from chord.ring.owner_cache import OwnerCache
from chord.wire.messages import Contact

CIRCLE = Circle(5)
POINTS = st.integers(0, CIRCLE.size - 1).map(Point)


def owner(point: int, address: str = "a:1") -> Contact:
    return Contact(Point(point), address)


class Model:
    """The known owner of each point. Each owner has one arc of points, which ends at its id."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}

    def learn(self, point: int, end: int, start: int | None) -> None:
        if start is not None:
            self.of = {p: o for p, o in self.of.items() if o != end}
            point = CIRCLE.point(start + 1)
        row = [CIRCLE.point(point + i) for i in range(CIRCLE.distance(point, end) + 1)]
        gone = set(row) - {end}
        before = {p for p, o in self.of.items() if o == end}
        if not before <= set(row) and set(row) < before:
            row, gone = sorted(before), before - {end}
        self.of = {p: o for p, o in self.of.items() if o not in gone and p not in row} | dict.fromkeys(row, end)
        for other in set(self.of.values()):
            self._keep_unbroken(other)

    def _keep_unbroken(self, end: int) -> None:
        row, point = set(), end
        while self.of.get(point) == end and point not in row:
            row.add(point)
            point = CIRCLE.point(point - 1)
        self.of = {p: o for p, o in self.of.items() if o != end or p in row}


class KeepsInnerVnodes(OwnerCache):
    """Planted: the cache keeps vnodes inside another owner's arc."""

    def _between(self, end: Point, length: int) -> list[Point]:
        return []


class ReachesBack(OwnerCache):
    """Planted: an arc keeps points that another owner has answered for."""

    def _shorten_next(self, end: Point) -> None:
        pass


def compare(kind: type[OwnerCache], answers: list[tuple[Point, Point, Point | None]]) -> bool:
    """Return whether cache and model agree on every point after each answer."""
    cache, model = kind(CIRCLE), Model()
    for point, end, start in answers:
        if start is not None:  # an arc contains the requested point
            start = Point(CIRCLE.point(point - 1 - start % (CIRCLE.size - CIRCLE.distance(point, end) - 1 or 1)))
        cache.learn(point, owner(end), start)
        model.learn(point, end, start)
        for asked in range(CIRCLE.size):
            found = cache.find(asked)
            if (None if found is None else found.id) != model.of.get(asked):
                return False
    return True


ANSWERS = st.lists(st.tuples(POINTS, POINTS, st.none() | POINTS), max_size=12)


@given(ANSWERS)
def test_cache_returns_the_last_known_owner_of_every_point(answers: list[tuple[Point, Point, Point | None]]) -> None:
    assert compare(OwnerCache, answers)


def test_planted_cache_with_a_vnode_inside_an_arc_is_caught() -> None:
    stands_between = [(Point(3), Point(10), None), (Point(2), Point(20), None)]
    assert compare(OwnerCache, stands_between)
    assert not compare(KeepsInnerVnodes, stands_between)


@pytest.mark.parametrize("kind", [OwnerCache, ReachesBack])
def test_forget_does_not_extend_the_arc_of_the_next_owner(
    kind: type[OwnerCache],
) -> None:
    cache = kind(CIRCLE)
    cache.learn(2, owner(20, "a:1"))
    cache.learn(15, owner(16, "b:1"))
    cache.forget("b:1")
    assert cache.find(18) == owner(20, "a:1")
    assert (cache.find(10) is None) is (kind is OwnerCache)


def test_full_cache_evicts_the_least_recently_used_owner() -> None:
    cache = OwnerCache(CIRCLE, size_max=2)
    cache.learn(1, owner(2))
    cache.learn(11, owner(12))
    assert cache.find(1) == owner(2)
    cache.learn(21, owner(22))
    assert [cache.find(point) for point in (1, 11, 21)] == [owner(2), None, owner(22)]
    assert len(cache) == 2


def test_forget_drops_all_arcs_of_a_node() -> None:
    cache = OwnerCache(CIRCLE)
    cache.learn(1, owner(2, "a:1"))
    cache.learn(5, owner(6, "b:1"))
    cache.learn(9, owner(12, "a:1"))
    cache.forget("a:1")
    assert [cache.find(point) for point in (1, 5, 9)] == [None, owner(6, "b:1"), None]


def test_vnode_at_a_new_address_replaces_its_old_entry() -> None:
    cache = OwnerCache(CIRCLE)
    cache.learn(1, owner(6, "a:1"))
    cache.learn(5, owner(6, "b:1"))
    assert cache.find(5) == owner(6, "b:1")
    assert cache.find(1) is None


def test_cache_of_size_zero_stores_nothing() -> None:
    cache = OwnerCache(CIRCLE, size_max=0)
    cache.learn(1, owner(2))
    assert cache.find(1) is None


def test_cache_keeps_its_ends_sorted() -> None:
    cache = OwnerCache(CIRCLE)
    for point in (9, 3, 27, 14):
        cache.learn(point, owner(point))
    assert [cache.find(point) is not None for point in (3, 9, 14, 27)] == [True] * 4
    assert bisect_left(cache._ends, 14) == 2


@given(st.lists(POINTS, max_size=8), POINTS)
def test_before_returns_the_nearest_known_owner_before_a_point(ends: list[Point], point: Point) -> None:
    arcs = OwnerCache(CIRCLE)
    for end in ends:
        arcs.learn(end, owner(end))
    others = [end for end in ends if end != point]
    nearest = min(others, key=lambda end: CIRCLE.distance(end, point), default=None)
    assert arcs.before(point) == (None if nearest is None else owner(nearest))

from __future__ import annotations

import pytest

from chord.ids import Point
from chord.net.goodbyes import AGE_MS_MAX, Goodbyes, age_ms

ONE, OTHER = Point(1), Point(2)


@pytest.mark.parametrize(("said", "owned", "has_left"), [(1.0, 2.0, False), (2.0, 1.0, True), (2.0, 2.0, True)])
def test_goodbye_counts_unless_the_vnode_owned_an_arc_since(said: float, owned: float, has_left: bool) -> None:
    first, second = Goodbyes(9, 9), Goodbyes(9, 9)
    first.said(ONE, said)
    first.owned(ONE, owned)
    second.owned(ONE, owned)
    second.said(ONE, said)
    for known in (first, second):
        assert (ONE in known) == has_left
        assert known.said_at(ONE) == (said if has_left else None)
        assert known.latest() == ({ONE: said} if has_left else {})


def test_older_news_changes_nothing() -> None:
    known = Goodbyes(9, 9)
    known.owned(ONE, 5.0)
    known.owned(ONE, 1.0)
    known.said(ONE, 3.0)
    assert ONE not in known
    known.said(ONE, 6.0)
    known.said(ONE, 2.0)
    assert known.said_at(ONE) == 6.0
    assert known.owned_at(ONE) == 5.0


def test_goodbyes_beyond_the_limit_drop_the_oldest() -> None:
    known = Goodbyes(2, 3)
    for number in range(3):
        known.said(Point(number), number)
        known.owned(Point(number + 10), number)
    assert list(known.latest()) == [Point(1), Point(2)]
    assert [known.owned_at(Point(number)) for number in (10, 11, 12)] == [0, 1, 2]
    known.owned(Point(13), 3)
    assert [known.owned_at(Point(number)) for number in (10, 11, 12, 13)] == [None, 1, 2, 3]
    known.said(Point(1), 9.0)
    known.said(Point(3), 9.0)
    assert list(known.latest()) == [Point(1), Point(3)]


@pytest.mark.parametrize(("now", "at", "age"), [(5.0, 3.0, 2000), (3.0, 5.0, 0), (1e300, 0.0, AGE_MS_MAX)])
def test_age_on_the_wire_is_bounded(now: float, at: float, age: int) -> None:
    assert age_ms(now, at) == age


@pytest.mark.parametrize("wall_ms", [2_000_000, 500_000])
def test_kept_goodbyes_keep_their_order_though_the_wall_clock_went_back(wall_ms: int) -> None:
    known, again = Goodbyes(9, 9), Goodbyes(9, 9)
    known.said(ONE, 10.0)
    known.owned(ONE, 20.0)
    known.said(OTHER, 30.0)
    known.owned(OTHER, 25.0)
    known.said(Point(3), 40.0)
    assert known.to_keep([ONE, OTHER, Point(9)], 1_000_000, 50.0) == known.to_keep([ONE, OTHER], 3_000_000, 60.0)
    said, owned = known.to_keep([ONE, OTHER], 1_000_000, 50.0)
    assert said == ((OTHER, 980_000), (Point(3), 990_000))
    assert owned == ((ONE, 970_000), (OTHER, 975_000))
    again.recall(said, owned, wall_ms, 5.0)
    assert OTHER in again
    assert ONE not in again
    again.said(ONE, again.owned_at(ONE) - 1)  # type: ignore[operator]
    assert ONE not in again, "an older goodbye does not count"
    assert again.said_at(Point(3)) == (5.0 if wall_ms == 500_000 else 5.0 - 1010)

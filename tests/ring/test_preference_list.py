"""The replica view: who is walked past clockwise from a key, who is waited for, and in what one was brought level."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Arc, Circle, Point
from chord.ring.ownership import Ownership, Taken
from chord.ring.pointers import RingState
from chord.ring.preference_list import Place, PreferenceList, ReplicaSet
from chord.wire.messages import Contact

BITS = 8
CIRCLE = Circle(BITS)
N, F, R = 3, 3, 5


class World:
    """A ring as everybody should see it: vnodes of nodes, some of them silent, from the place of one that answers.

    `points`: vnode to node. The node `me` stands at is the first that answers clockwise from the key.
    """

    def __init__(self, points: dict[int, int], silent: set[int], key: int) -> None:
        self.contacts = {Point(p): Contact(Point(p), f"node{node}:1") for p, node in points.items()}
        self.silent = {f"node{node}:1" for node in silent}
        self.key = Point(key)
        self.walk = sorted(self.contacts.values(), key=lambda c: CIRCLE.distance(key, c.id))
        living = [c for c in self.walk if c.address not in self.silent]
        self.me = living[0]
        self.ring = RingState(self.me, CIRCLE, R, N + 1)
        self.own = Ownership(self.me)
        self.view = PreferenceList(self.me, CIRCLE)
        self._stand(living)

    def _stand(self, living: list[Contact]) -> None:
        me = self.me
        others = sorted((c for c in living if c != me), key=lambda c: CIRCLE.distance(me.id, c.id))
        self.ring.successors = tuple(others) or (me,)
        self.ring.predecessor = others[-1] if others else me
        self.ring.predecessors = tuple(reversed(others))
        start = others[-1].id if others else me.id
        self.own.start = start
        arc = Arc(start, me.id)
        low, marks = start, []
        dead = [c for c in self.contacts.values() if c.address in self.silent]
        for contact in sorted(dead, key=lambda c: CIRCLE.distance(start, c.id) or CIRCLE.size):
            if contact.id in arc:
                marks.append(Taken(Arc(low, contact.id), contact, 0.0))
                low = contact.id
            self.view.fell_silent(contact, 0.0)  # in a small ring the marked ones stand behind this one as well
        self.own.taken = tuple(marks)

    def expected(self) -> list[Place]:
        """Return the first vnode of each node clockwise from the key."""
        seen: dict[str, Place] = {}
        for contact in self.walk:
            seen.setdefault(contact.address, Place(contact, contact.address in self.silent))
        return list(seen.values())

    def set(self) -> ReplicaSet:
        return self.view.replica_set(self.key, self.ring, self.own, N, F)


@st.composite
def worlds(draw: st.DrawFn, max_nodes: int = 12) -> World:
    nodes = draw(st.integers(1, max_nodes))
    points = draw(
        st.dictionaries(st.integers(0, CIRCLE.size - 1), st.integers(0, nodes - 1), min_size=1, max_size=3 * nodes)
    )
    there = sorted(set(points.values()))
    silent = draw(st.sets(st.sampled_from(there), max_size=len(there) - 1))
    return World(points, silent, draw(st.integers(0, CIRCLE.size - 1)))


@given(worlds())
def test_the_walk_passes_every_node_once_in_order_whoever_is_silent(world: World) -> None:
    assert list(world.view.walk(world.key, world.ring, world.own)) == world.expected()


@given(worlds())
def test_a_replica_set_is_the_beginning_of_the_walk(world: World) -> None:
    who, expected = world.set(), world.expected()
    assert list(who.members) == expected[: len(who.members)]
    assert len(who.members) == min(N, len(expected))
    addresses = [place.contact.address for place in who.everyone]
    assert len(addresses) == len(set(addresses)), "no node counts twice"
    assert [p for p in expected if p in who.everyone] == [p for p in who.everyone if p in expected], "in order"
    if Place(world.me, False) in expected[: N + F]:  # it may stand behind more that are silent
        assert any(place.contact == world.me for place in who.everyone), "whoever answers for the key is one of them"
    assert len(who.everyone) >= min(N + F, len(expected)), "all that may hold the key are named"


@given(worlds(), st.data())
def test_who_retires_is_no_member_and_is_asked_all_the_same(world: World, data: st.DataObject) -> None:
    addresses = sorted({place.contact.address for place in world.expected()} - {world.me.address})
    retiring = data.draw(st.lists(st.sampled_from(addresses), unique=True)) if addresses else []
    before = world.set()
    for address in retiring:
        world.view.retires(address, 1.0)
    who = world.set()
    assert not [p for p in who.members if p.contact.address in retiring]
    assert {p.contact.address for p in before.members} <= {p.contact.address for p in who.everyone}, "asked"
    for address in retiring:
        world.view.stays(address)
    assert world.set() == before


@pytest.mark.slow
@given(worlds(), st.lists(st.integers(0, CIRCLE.size - 1), min_size=1, max_size=4), st.integers(0, CIRCLE.size - 1))
def test_what_was_asked_before_changes_no_answer(world: World, keys: list[int], start: int) -> None:
    """Not in an arc that others stand in either, as after a take-over from many at once; and not when it has shrunk."""
    world.own.taken = ()
    for first in (Point(start), world.own.start):
        world.own.start = first
        for key in (*keys, world.key):
            fresh = PreferenceList(world.me, CIRCLE)
            for down, since in world.view.downs():
                fresh.fell_silent(down, since)
            expected = fresh.replica_set(key, world.ring, world.own, N, F)
            assert world.view.replica_set(key, world.ring, world.own, N, F) == expected


def contact(point: int, node: int | None = None) -> Contact:
    return Contact(Point(point), f"node{point if node is None else node}:1")


def view_at(point: int) -> PreferenceList:
    return PreferenceList(contact(point), CIRCLE)


def downs_of(view: PreferenceList) -> list[int]:
    return [int(down.id) for down, _ in view.downs()]


# -- learning ---------------------------------------------------------------------------------------


def test_the_view_of_the_head_counts_behind_it_and_ones_own_before_it() -> None:
    view = view_at(0)
    view.fell_silent(contact(10), 1.0)  # between this one and the head
    view.fell_silent(contact(50), 1.0)  # behind the head, which knows nothing of it
    view.adopt([contact(20), contact(40)], [(contact(30), 2.0)])
    assert view.downs() == ((contact(10), 1.0), (contact(30), 2.0))


def test_the_later_time_counts() -> None:
    view = view_at(0)
    view.adopt([contact(20)], [(contact(30), 2.0)])
    view.adopt([contact(20)], [(contact(30), 1.0)])
    assert view.downs() == ((contact(30), 2.0),)
    view.adopt([contact(20)], [(contact(30), 3.0)])
    assert view.downs() == ((contact(30), 3.0),)


def test_who_stands_in_the_list_again_is_back() -> None:
    view = view_at(0)
    view.fell_silent(contact(10), 1.0)
    view.adopt([contact(10), contact(20)], [(contact(20), 1.0)])
    assert view.downs() == ()


def test_behind_the_end_of_a_full_list_are_others_affairs() -> None:
    view = view_at(0)
    view.adopt([contact(20), contact(40)], [(contact(30), 1.0), (contact(50), 1.0)], is_full=True)
    assert downs_of(view) == [30]


def test_a_vnode_does_not_wait_for_itself() -> None:
    view = view_at(0)
    view.fell_silent(contact(0), 1.0)
    view.adopt([contact(20)], [(contact(0), 1.0)])
    assert view.downs() == ()


def test_who_fell_silent_twice_did_so_the_first_time() -> None:
    view = view_at(0)
    view.fell_silent(contact(10), 1.0)
    view.fell_silent(contact(10), 5.0)
    assert view.downs() == ((contact(10), 1.0),)


@pytest.mark.parametrize(("now", "is_leaving"), [(1.0, True), (4.9, True), (5.0, False)])
def test_no_leave_lasts_longer_than_leaves_may(now: float, is_leaving: bool) -> None:
    view = PreferenceList(Circle(8), contact(0))
    view.retires("n1", 0.0)
    view.retires("n2", 0.5)
    view.retires("n1", 2.0)  # it says so again
    view.expire(now, 100.0, 3.0)
    assert ("n1" in view.retiring) is is_leaving
    assert ("n2" in view.retiring) is (now < 3.5)


@pytest.mark.parametrize(("now", "is_waited_for"), [(1.0, True), (10.9, True), (11.0, False)])
def test_waiting_ends(now: float, is_waited_for: bool) -> None:
    view = view_at(0)
    view.fell_silent(contact(10), 1.0)
    view.expire(now, 10.0, 10.0)
    assert bool(view.downs()) == is_waited_for


def test_who_left_is_not_waited_for() -> None:
    view = view_at(0)
    view.fell_silent(contact(10, 1), 1.0)
    view.fell_silent(contact(30, 1), 1.0)
    view.fell_silent(contact(20, 2), 1.0)
    view.gone({Point(10), Point(30)})
    assert downs_of(view) == [20]


def test_what_others_say_of_the_forgotten_does_not_count_for_a_while() -> None:
    view = view_at(0)
    view.fell_silent(contact(10), 1.0)
    view.forget("node10:1", 2.0)
    assert view.downs() == ()
    view.adopt([contact(5)], [(contact(10), 1.0)])
    view.fell_silent(contact(10), 3.0)
    assert view.downs() == ()
    assert view.is_forgotten(contact(10))
    view.expire(12.0, 10.0, 10.0)
    view.fell_silent(contact(10), 13.0)
    assert downs_of(view) == [10]


# -- brought level ----------------------------------------------------------------------------------

points = st.integers(0, CIRCLE.size - 1).map(Point)
arcs = st.builds(Arc, points, points)


@given(st.lists(arcs, max_size=6), arcs)
def test_settled_is_what_every_point_says(settled: list[Arc], asked: Arc) -> None:
    view = view_at(0)
    for index, arc in enumerate(settled):
        view.settled(Point(index), arc)
    covered = {p for p in range(CIRCLE.size) if any(Point(p) in arc for arc in settled)}
    assert {p for p in range(CIRCLE.size) if view.is_settled(p)} == covered
    assert view.is_settled_in(asked) == all(p in covered for p in range(CIRCLE.size) if Point(p) in asked)


@given(st.lists(arcs, max_size=4), st.lists(arcs, max_size=3))
def test_of_what_is_kept_elsewhere_one_is_settled_no_more(settled: list[Arc], kept: list[Arc]) -> None:
    view = view_at(0)
    for index, arc in enumerate(settled):
        view.settled(Point(index), arc)
    before = {p for p in range(CIRCLE.size) if view.is_settled(p)}
    view.keep_settled(kept)
    after = {p for p in range(CIRCLE.size) if view.is_settled(p)}
    assert after <= before
    assert all(any(Point(p) in arc for arc in kept) for p in after)


def test_a_kept_part_stays_settled() -> None:
    view = view_at(0)
    view.settled(Point(100), Arc(Point(50), Point(100)))
    view.settled(Point(40), Arc(Point(20), Point(40)))
    view.keep_settled([Arc(Point(70), Point(0))])
    assert view.settled_arcs() == {100: Arc(Point(70), Point(100))}


def test_settled_in_a_taken_over_gap_counts_only_for_its_dead_owner() -> None:
    view = view_at(0)
    view.settled(Point(100), Arc(Point(50), Point(100)))  # 80 joined later, and owned (50, 80] when it died
    view.settled(Point(80), Arc(Point(60), Point(80)))
    view.settled(Point(200), Arc(Point(90), Point(200)))  # begins in the gap, where it is older than 120's arc
    view.keep_settled_by_owner(Arc(Point(50), Point(120)), [Point(80), Point(100), Point(120)])
    assert view.settled_arcs() == {
        80: Arc(Point(60), Point(80)),
        100: Arc(Point(80), Point(100)),
        200: Arc(Point(120), Point(200)),
    }

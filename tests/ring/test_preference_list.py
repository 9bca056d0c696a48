"""The preference list: the walk clockwise from a key, down vnodes, and arcs in sync."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Arc, Circle, Point
from chord.ring.ownership import Mark, Ownership
from chord.ring.pointers import RingState
from chord.ring.preference_list import Place, PreferenceList, ReplicaSet
from chord.wire.messages import Contact

BITS = 8
CIRCLE = Circle(BITS)
N, F, R = 3, 3, 5


class World:
    """A ring with some nodes down, and the state of one living vnode in it.

    `points` maps vnodes to nodes. `me` is the first living vnode clockwise from the key.
    """

    def __init__(self, points: dict[int, int], down: set[int], key: int) -> None:
        self.contacts = {Point(p): Contact(Point(p), f"node{node}:1") for p, node in points.items()}
        self.down = {f"node{node}:1" for node in down}
        self.key = Point(key)
        self.walk = sorted(self.contacts.values(), key=lambda c: CIRCLE.distance(key, c.id))
        living = [c for c in self.walk if c.address not in self.down]
        self.me = living[0]
        self.ring = RingState(self.me, CIRCLE, R, N + 1)
        self.own = Ownership(self.me)
        self.preference_list = PreferenceList(self.me, CIRCLE)
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
        dead = [c for c in self.contacts.values() if c.address in self.down]
        for contact in sorted(dead, key=lambda c: CIRCLE.distance(start, c.id) or CIRCLE.size):
            if contact.id in arc:
                marks.append(Mark(Arc(low, contact.id), contact, 0.0))
                low = contact.id
            # In a small ring the marked vnodes lie behind this vnode, too.
            self.preference_list.became_unreachable(contact, 0.0)
        self.own.marks = tuple(marks)

    def expected(self) -> list[Place]:
        """Return the first vnode of each node clockwise from the key."""
        seen: dict[str, Place] = {}
        for contact in self.walk:
            seen.setdefault(contact.address, Place(contact, contact.address in self.down))
        return list(seen.values())

    def set(self) -> ReplicaSet:
        return self.preference_list.replica_set(self.key, self.ring, self.own, N, F)


@st.composite
def worlds(draw: st.DrawFn, max_nodes: int = 12) -> World:
    nodes = draw(st.integers(1, max_nodes))
    points = draw(
        st.dictionaries(st.integers(0, CIRCLE.size - 1), st.integers(0, nodes - 1), min_size=1, max_size=3 * nodes)
    )
    there = sorted(set(points.values()))
    down = draw(st.sets(st.sampled_from(there), max_size=len(there) - 1))
    return World(points, down, draw(st.integers(0, CIRCLE.size - 1)))


@given(worlds())
def test_walk_passes_every_node_once_in_order(world: World) -> None:
    assert list(world.preference_list.walk(world.key, world.ring, world.own)) == world.expected()


@given(worlds())
def test_replica_set_is_the_beginning_of_the_walk(world: World) -> None:
    replica_set, expected = world.set(), world.expected()
    assert list(replica_set.members) == expected[: len(replica_set.members)]
    assert len(replica_set.members) == min(N, len(expected))
    addresses = [place.contact.address for place in replica_set.everyone]
    assert len(addresses) == len(set(addresses)), "each node counts once"
    in_walk = [place for place in replica_set.everyone if place in expected]
    assert [place for place in expected if place in replica_set.everyone] == in_walk, "in order"
    if Place(world.me, False) in expected[: N + F]:  # more unreachable vnodes may lie before it
        assert any(place.contact == world.me for place in replica_set.everyone), "the owner is in its set"
    assert len(replica_set.everyone) >= min(N + F, len(expected)), "the set has all nodes that may hold the key"


@pytest.mark.slow
def test_planted_walk_that_counts_every_vnode_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def every_vnode(self: PreferenceList, key: int, ring: RingState, own: Ownership) -> Iterator[Place]:
        for contact, is_waited_for in self._clockwise(key, ring, own):
            yield Place(contact, is_waited_for)

    monkeypatch.setattr(PreferenceList, "walk", every_vnode)
    with pytest.raises(AssertionError):
        test_replica_set_is_the_beginning_of_the_walk()


@given(worlds(), st.data())
def test_retiring_node_is_not_a_member_but_is_asked(world: World, data: st.DataObject) -> None:
    addresses = sorted({place.contact.address for place in world.expected()} - {world.me.address})
    retiring = data.draw(st.lists(st.sampled_from(addresses), unique=True)) if addresses else []
    before = world.set()
    for address in retiring:
        world.preference_list.retires(address, 1.0)
    replica_set = world.set()
    assert not [p for p in replica_set.members if p.contact.address in retiring]
    assert {p.contact.address for p in before.members} <= {p.contact.address for p in replica_set.everyone}, "asked"
    for address in retiring:
        world.preference_list.stays(address)
    assert world.set() == before


@pytest.mark.slow
@given(worlds(), st.lists(st.integers(0, CIRCLE.size - 1), min_size=1, max_size=4), st.integers(0, CIRCLE.size - 1))
def test_replica_set_does_not_depend_on_earlier_questions(world: World, keys: list[int], start: int) -> None:
    """The same holds in an arc that contains other vnodes, as after a takeover from many, and after it shrinks."""
    world.own.marks = ()
    for first in (Point(start), world.own.start):
        world.own.start = first
        for key in (*keys, world.key):
            fresh = PreferenceList(world.me, CIRCLE)
            for down, since in world.preference_list.unreachable():
                fresh.became_unreachable(down, since)
            expected = fresh.replica_set(key, world.ring, world.own, N, F)
            assert world.preference_list.replica_set(key, world.ring, world.own, N, F) == expected


def contact(point: int, node: int | None = None) -> Contact:
    return Contact(Point(point), f"node{point if node is None else node}:1")


def list_at(point: int) -> PreferenceList:
    return PreferenceList(contact(point), CIRCLE)


def unreachable_in(view: PreferenceList) -> list[int]:
    return [int(down.id) for down, _ in view.unreachable()]


# -- learning ---------------------------------------------------------------------------------------


def test_adopt_takes_the_downs_of_the_head_only_behind_it() -> None:
    view = list_at(0)
    view.became_unreachable(contact(10), 1.0)  # between this vnode and the head
    view.became_unreachable(contact(50), 1.0)  # behind the head, which does not list it
    view.adopt([contact(20), contact(40)], [(contact(30), 2.0)])
    assert view.unreachable() == ((contact(10), 1.0), (contact(30), 2.0))


def test_adopt_keeps_the_later_time_of_a_down_vnode() -> None:
    view = list_at(0)
    view.adopt([contact(20)], [(contact(30), 2.0)])
    view.adopt([contact(20)], [(contact(30), 1.0)])
    assert view.unreachable() == ((contact(30), 2.0),)
    view.adopt([contact(20)], [(contact(30), 3.0)])
    assert view.unreachable() == ((contact(30), 3.0),)


def test_listed_vnode_is_no_longer_down() -> None:
    view = list_at(0)
    view.became_unreachable(contact(10), 1.0)
    view.adopt([contact(10), contact(20)], [(contact(20), 1.0)])
    assert view.unreachable() == ()


def test_adopt_ignores_down_vnodes_behind_a_full_list() -> None:
    view = list_at(0)
    view.adopt([contact(20), contact(40)], [(contact(30), 1.0), (contact(50), 1.0)], is_full=True)
    assert unreachable_in(view) == [30]


def test_vnode_is_never_in_its_own_list_of_down_vnodes() -> None:
    view = list_at(0)
    view.became_unreachable(contact(0), 1.0)
    view.adopt([contact(20)], [(contact(0), 1.0)])
    assert view.unreachable() == ()


def test_down_vnode_keeps_its_first_time() -> None:
    view = list_at(0)
    view.became_unreachable(contact(10), 1.0)
    view.became_unreachable(contact(10), 5.0)
    assert view.unreachable() == ((contact(10), 1.0),)


@pytest.mark.parametrize(("now", "is_leaving"), [(1.0, True), (4.9, True), (5.0, False)])
def test_retiring_node_expires_after_the_time_of_a_leave(now: float, is_leaving: bool) -> None:
    view = PreferenceList(Circle(8), contact(0))
    view.retires("n1", 0.0)
    view.retires("n2", 0.5)
    view.retires("n1", 2.0)  # the node repeats its message
    view.expire(now, 100.0, 3.0)
    assert ("n1" in view.retiring) is is_leaving
    assert ("n2" in view.retiring) is (now < 3.5)


@pytest.mark.parametrize(("now", "is_waited_for"), [(1.0, True), (10.9, True), (11.0, False)])
def test_down_vnode_expires_after_down_out_s(now: float, is_waited_for: bool) -> None:
    view = list_at(0)
    view.became_unreachable(contact(10), 1.0)
    view.expire(now, 10.0, 10.0)
    assert bool(view.unreachable()) == is_waited_for


def test_gone_drops_vnodes_that_left() -> None:
    view = list_at(0)
    view.became_unreachable(contact(10, 1), 1.0)
    view.became_unreachable(contact(30, 1), 1.0)
    view.became_unreachable(contact(20, 2), 1.0)
    view.gone({Point(10), Point(30)})
    assert unreachable_in(view) == [20]


def test_forgotten_node_is_not_reported_down_for_a_while() -> None:
    view = list_at(0)
    view.became_unreachable(contact(10), 1.0)
    view.forget("node10:1", 2.0)
    assert view.unreachable() == ()
    view.adopt([contact(5)], [(contact(10), 1.0)])
    view.became_unreachable(contact(10), 3.0)
    assert view.unreachable() == ()
    assert view.is_forgotten(contact(10))
    view.expire(12.0, 10.0, 10.0)
    view.became_unreachable(contact(10), 13.0)
    assert unreachable_in(view) == [10]


# -- in sync ----------------------------------------------------------------------------------------

points = st.integers(0, CIRCLE.size - 1).map(Point)
arcs = st.builds(Arc, points, points)


@given(st.lists(arcs, max_size=6), arcs)
def test_is_arc_in_sync_matches_every_point_of_an_arc(in_sync: list[Arc], asked: Arc) -> None:
    view = list_at(0)
    for index, arc in enumerate(in_sync):
        view.note_in_sync(Point(index), arc)
    covered = {p for p in range(CIRCLE.size) if any(Point(p) in arc for arc in in_sync)}
    assert {p for p in range(CIRCLE.size) if view.is_in_sync(p)} == covered
    assert view.is_arc_in_sync(asked) == all(p in covered for p in range(CIRCLE.size) if Point(p) in asked)


@given(st.lists(arcs, max_size=4), st.lists(arcs, max_size=3))
def test_keep_in_sync_drops_arcs_kept_elsewhere(in_sync: list[Arc], kept: list[Arc]) -> None:
    view = list_at(0)
    for index, arc in enumerate(in_sync):
        view.note_in_sync(Point(index), arc)
    before = {p for p in range(CIRCLE.size) if view.is_in_sync(p)}
    view.keep_in_sync(kept)
    after = {p for p in range(CIRCLE.size) if view.is_in_sync(p)}
    assert after <= before
    assert all(any(Point(p) in arc for arc in kept) for p in after)


def test_keep_in_sync_keeps_the_part_inside_the_kept_arcs() -> None:
    view = list_at(0)
    view.note_in_sync(Point(100), Arc(Point(50), Point(100)))
    view.note_in_sync(Point(40), Arc(Point(20), Point(40)))
    view.keep_in_sync([Arc(Point(70), Point(0))])
    assert dict(view.ever_in_sync()) == {100: Arc(Point(70), Point(100))}


def test_keep_in_sync_by_owner_cuts_arcs_at_dead_owners() -> None:
    view = list_at(0)
    view.note_in_sync(Point(100), Arc(Point(50), Point(100)))  # 80 joined later, and owned (50, 80] when it died
    view.note_in_sync(Point(80), Arc(Point(60), Point(80)))
    view.note_in_sync(Point(200), Arc(Point(90), Point(200)))  # its part in the gap is older than 120's arc
    view.keep_in_sync_by_owner(Arc(Point(50), Point(120)), [Point(80), Point(100), Point(120)])
    assert dict(view.ever_in_sync()) == {
        80: Arc(Point(60), Point(80)),
        100: Arc(Point(80), Point(100)),
        200: Arc(Point(120), Point(200)),
    }

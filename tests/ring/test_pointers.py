"""RingState: one test per sentence of the corrected protocol, on the worked example's circle of 8 bits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chord.events import VnodeIsolated
from chord.ids import Circle, Point
from chord.ring.pointers import ENTRIES_PER_SUCCESSOR_MAX, RingState
from chord.wire.messages import Contact

CIRCLE = Circle(8)


def at(point: int, node: str | None = None) -> Contact:
    return Contact(Point(point), f"{node or point}:1")


def state(point: int, r: int = 3) -> RingState:
    return RingState(at(point), CIRCLE, r, 2)


def member(point: int, *successors: int, predecessor: int | None = None, r: int = 3) -> RingState:
    ring = state(point, r)
    ring.resume(None if predecessor is None else at(predecessor), [at(s) for s in successors])
    return ring


def ids(ring: RingState) -> list[int]:
    return [int(c.id) for c in ring.successors]


def test_lone_vnode_is_its_own_successor_and_predecessor() -> None:
    ring = state(10)
    ring.create()
    assert ids(ring) == [10]
    assert ring.predecessor == at(10)
    assert ring.is_alone
    assert not ring.is_isolated


def test_join_copies_the_whole_list_of_the_predecessor() -> None:
    ring = state(100)
    assert ring.join(at(80), [at(120), at(160), at(200)])
    assert ids(ring) == [120, 160, 200]
    assert ring.predecessor == at(80)


def test_join_behind_a_lone_vnode_does_not_copy_its_self_entry() -> None:
    ring = state(100)
    assert ring.join(at(80), [at(80)])
    assert ids(ring) == [80]


def test_join_behind_a_changed_predecessor_list_is_refused() -> None:
    """JOIN re-checks between(p, j, p.succ[0]) on the reply."""
    ring = state(100)
    assert not ring.join(at(80), [at(90), at(120)])
    assert not ring.is_member


def test_successor_list_never_passes_its_own_vnode() -> None:
    ring = member(10, 42, 80)
    ring.adopt_list(at(42), [at(80), at(10), at(42)])
    assert ids(ring) == [42, 80]


def test_successor_list_has_no_repeated_entry() -> None:
    ring = member(10, 42, 80)
    ring.adopt_list(at(42), [at(42), at(42)])
    assert ids(ring) == [42]


def test_list_of_a_former_head_is_not_adopted() -> None:
    ring = member(10, 42, 80)
    ring.adopt_list(at(80), [at(120)])
    assert ids(ring) == [42, 80]


def test_closer_successor_is_adopted_with_its_list() -> None:
    ring = member(10, 80, 120)
    assert ring.adopt_successor(at(42), [at(80), at(120)])
    assert ids(ring) == [42, 80, 120]


def test_successor_that_is_no_longer_closer_is_not_adopted() -> None:
    ring = member(10, 42, 80)
    assert not ring.adopt_successor(at(60), [at(80)])
    assert ids(ring) == [42, 80]


def test_dead_head_is_dropped_and_the_list_stays_shorter() -> None:
    ring = member(10, 42, 80, 120)
    assert ring.forget_head(at(42))
    assert ids(ring) == [80, 120]
    assert not ring.forget_head(at(42))


def test_death_of_all_neighbours_isolates_a_vnode_unlike_leaves() -> None:
    ring = member(10, 42)
    ring.forget_head(at(42))
    assert ids(ring) == [10]
    assert ring.is_isolated
    polite = member(10, 42)
    polite.forget_head(at(42), has_left=True)
    assert polite.is_alone
    assert not polite.is_isolated


def test_vnode_with_a_dead_neighbour_is_isolated_by_a_leave() -> None:
    ring = member(10, 42, 80)
    ring.forget_head(at(42))
    assert not ring.is_isolated
    assert VnodeIsolated(Point(10)) in ring.forget_head(at(80), has_left=True)
    assert ring.is_isolated
    heir = member(10, 42, 80)
    heir.forget_head(at(42))
    heir.inherit(at(80), [])
    assert heir.is_isolated, "the dead vnode may have known vnodes that the leaver did not know"
    informed = member(10, 42, 80)
    informed.forget_head(at(42))
    informed.adopt_list(at(80), [])
    informed.forget_head(at(80), has_left=True)
    assert not informed.is_isolated, "the living head knew no other vnode"


def test_rectify_adopts_only_a_closer_predecessor() -> None:
    ring = member(100, 120, predecessor=80)
    assert not ring.learn_predecessor(at(42))
    assert ring.learn_predecessor(at(90))
    assert ring.predecessor == at(90)


def test_rectify_replaces_only_the_pinged_predecessor() -> None:
    ring = member(100, 120, predecessor=80)
    ring.learn_predecessor(at(90))
    assert not ring.replace_predecessor(at(42), at(80))
    assert ring.predecessor == at(90)
    assert ring.replace_predecessor(at(42), at(90))
    assert ring.predecessor == at(42)


def test_rectify_learns_the_new_address_of_a_predecessor() -> None:
    ring = member(100, 120, predecessor=80)
    assert ring.replace_predecessor(at(80, "moved"), at(80))
    assert ring.predecessor == at(80, "moved")


def test_rectify_does_not_adopt_the_own_id_as_predecessor() -> None:
    ring = member(100, 120, predecessor=80)
    assert not ring.learn_predecessor(at(100))


def test_successor_list_counts_nodes_and_has_at_most_4_r_entries() -> None:
    ring = member(0, 250, r=2)
    ring.adopt_successor(at(1, "a"), [at(2, "a"), at(3, "a"), at(4, "b"), at(5, "c")])
    assert ids(ring) == [1, 2, 3, 4]
    many = member(0, 250, r=2)
    many.adopt_successor(at(1, "a"), [at(i, "a") for i in range(2, 30)])
    assert len(many.successors) == ENTRIES_PER_SUCCESSOR_MAX * 2


def test_predecessor_list_goes_backwards_and_never_wraps() -> None:
    ring = member(100, 120, predecessor=80)
    ring.learn_predecessors(at(80), [at(42), at(10)])
    assert [int(c.id) for c in ring.predecessors] == [80, 42]
    ring.learn_predecessors(at(80), [at(120), at(90), at(80)])
    assert [int(c.id) for c in ring.predecessors] == [80, 120]
    ring.learn_predecessors(at(42), [at(10)])
    assert [int(c.id) for c in ring.predecessors] == [80, 120], "only the present predecessor's list counts"


points = st.integers(0, 255)


lists = st.lists(points, max_size=12)


@given(me=points, entries=lists, steps=st.lists(st.tuples(points, lists), max_size=8))
def test_successor_list_stays_ordered_for_any_answers(
    me: int, entries: list[int], steps: list[tuple[int, list[int]]]
) -> None:
    """NoDuplicates, OrderedSuccessorList and no wrapping hold after any transition, for any answer of a peer."""
    ring = member(me, *entries)
    for head, rest in steps:
        ring.adopt_successor(at(head), [at(x) for x in rest])
        assert ring.check() == []
        ring.adopt_list(ring.successor, [at(x) for x in rest])
        assert ring.check() == []
        ring.learn_predecessor(at(head))
        ring.forget_head(at(head))
        assert ring.check() == []


def test_check_finds_planted_violations() -> None:
    ring = member(10, 42)
    for planted, name in (
        ((at(42), at(42)), "NoDuplicates"),
        ((at(80), at(42)), "OrderedSuccessorList"),
        ((at(10), at(42)), "ListWraps"),
    ):
        ring.successors = planted
        assert name in ring.check()


def test_inherit_takes_the_list_of_a_leaving_head() -> None:
    ring = member(10, 20, 30)
    ring.inherit(at(20), [at(30), at(40)])
    assert ids(ring) == [30, 40]


def test_inherit_from_a_leaver_without_list_drops_only_it() -> None:
    for its_list in ([at(20)], [at(10)], []):
        ring = member(10, 20, 30)
        ring.inherit(at(20), its_list)
        assert ids(ring) == [30]


def test_inherit_from_a_vnode_that_is_not_the_head_is_ignored() -> None:
    ring = member(10, 20, 30)
    assert ring.inherit(at(20, "elsewhere"), [at(40)]) == []
    assert ring.inherit(at(30), [at(40)]) == []
    assert ids(ring) == [20, 30]


def test_leave_of_the_last_neighbour_leaves_a_vnode_alone() -> None:
    ring = member(10, 20)
    ring.inherit(at(20), [at(10)])
    assert ring.is_alone
    assert not ring.is_isolated

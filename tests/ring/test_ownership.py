"""Ownership: the arcs that a vnode answers for, and their handover."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Arc, Point
from chord.ring.ownership import Mark, Ownership, Remembered, marks_within
from chord.wire.messages import LIST_ENTRIES_MAX, Contact


def at(point: int) -> Contact:
    return Contact(Point(point), f"{point}:1")


def arc(start: int, end: int) -> Arc:
    return Arc(Point(start), Point(end))


def owner(me: int, start: int) -> Ownership:
    own = Ownership(at(me))
    own.resume(Point(start), (at(start),))
    return own


def answers(own: Ownership, points: range) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for point in points:
        found.setdefault(own.verdict(point).answer, []).append(point)
    return found


def test_founder_owns_the_whole_circle() -> None:
    own = Ownership(at(10))
    own.create()
    assert all(own.is_owner(point) for point in range(256))


def test_joiner_owns_nothing_before_it_received_an_arc() -> None:
    own = Ownership(at(100))
    assert own.verdict(100).answer == "foreign"
    assert own.receive(arc(80, 100), 7, at(80), ())
    assert own.epoch == 7
    assert [p for p in range(256) if own.is_owner(p)] == list(range(81, 101))


def test_receive_records_all_neighbours_before_the_arc() -> None:
    """If all neighbours die at once, the receiver marks the part of each, also of vnodes that it never met."""
    own = Ownership(at(100))
    own.receive(arc(80, 100), 7, at(80), (), (at(60), at(40)))
    assert own.before == (at(80), at(60), at(40))
    own.take_over(at(20), own.before, 5.0)
    assert {mark.dead for mark in own.marks} == {at(80), at(60), at(40)}


def test_boundary_keeps_vnodes_missing_in_the_list_of_a_joiner() -> None:
    own = owner(100, 50)
    own.learn_boundary(at(50), (at(30), at(10)), now=1.0, keep_s=5.0)
    own.learn_boundary(at(50), (at(40),), now=4.0, keep_s=5.0)
    assert own.before == (at(50), at(40), at(30), at(10))
    own.learn_boundary(at(50), (at(40),), now=7.0, keep_s=5.0)
    assert own.before == (at(50), at(40))
    own.learn_boundary(at(50), (at(20), at(120), at(60)), now=7.0, keep_s=5.0)
    assert own.before == (at(50), at(20), at(120)), "no vnode from behind this vnode"


def test_boundary_with_one_replica_keeps_skipped_vnodes() -> None:
    own = owner(100, 50)
    own.learn_boundary(at(50), (at(30), at(10)), now=1.0, keep_s=5.0, keeps_all=True)
    own.learn_boundary(at(50), (at(10),), now=4.0, keep_s=5.0, keeps_all=True)
    assert own.before == (at(50), at(30), at(10)), "30 may return to an arc that 50 took over"
    own.learn_boundary(at(50), (at(10),), now=7.0, keep_s=5.0, keeps_all=True)
    assert own.before == (at(50), at(10))


def test_verdict_is_giving_before_the_ack_and_moved_after_it() -> None:
    own = owner(100, 50)
    own.begin_switch(Point(80), at(80))
    assert answers(own, range(51, 101)) == {"giving": list(range(51, 81)), "owned": list(range(81, 101))}
    own.finish_switch()
    assert own.verdict(60).answer == "moved"
    assert own.verdict(60).peer == at(80)
    assert own.start == 80
    own.learn_boundary(at(80))
    assert own.verdict(60).answer == "foreign", "the new owner is the predecessor, so pointers lead to it"


def test_reclaim_from_a_dead_receiver_raises_the_epoch() -> None:
    own = owner(100, 50)
    giving = own.begin_switch(Point(80), at(80))
    own.reclaim()
    assert own.epoch == giving.epoch + 1
    assert own.is_owner(60)


def test_leaver_that_gave_its_arc_answers_moved() -> None:
    own = owner(100, 50)
    own.begin_switch(Point(100), at(120))
    own.finish_switch()
    assert own.start is None
    assert own.verdict(70).peer == at(120)


def test_receive_extends_the_arc_only_by_the_adjacent_one() -> None:
    own = owner(100, 50)
    assert not own.receive(arc(20, 40), 9, at(20), ())
    assert own.receive(arc(20, 50), 9, at(20), ())
    assert own.start == 20
    assert own.epoch == 9


def test_receive_of_the_rest_makes_the_arc_the_whole_circle() -> None:
    own = owner(100, 50)
    assert own.receive(arc(100, 50), 9, at(100), ())
    assert all(own.is_owner(point) for point in range(256))


def test_take_over_marks_the_arc_of_the_dead_vnode() -> None:
    own = owner(100, 50)
    assert own.take_over(at(20), [at(50)], 7.0)
    assert own.verdict(30).mark == Mark(arc(20, 50), at(50), 7.0)
    assert own.verdict(60).mark is None
    own.expire(606.0, 600.0)
    assert own.verdict(30).mark is not None
    own.expire(607.0, 600.0)
    assert own.verdict(30).mark is None


def test_take_over_needs_a_predecessor_before_the_arc() -> None:
    own = owner(100, 50)
    assert not own.take_over(at(70), [at(50)], 0.0)
    assert not own.take_over(at(50), [at(50)], 0.0)
    own.begin_switch(Point(80), at(80))
    assert not own.take_over(at(20), [at(50)], 0.0), "not while a switch is under way"


def test_shrink_gives_up_the_part_before_a_member_in_the_arc() -> None:
    own = owner(100, 50)
    own.take_over(at(20), [at(50)], 0.0)
    assert own.shrink(at(30))
    assert own.start == 30
    assert own.verdict(25).peer == at(30)
    mark = own.verdict(40).mark
    assert mark is not None
    assert mark.arc == arc(30, 50), "the mark is cut with the arc"
    assert not own.shrink(at(20))


def test_marks_move_with_the_arc() -> None:
    own = owner(100, 50)
    own.take_over(at(20), [at(50)], 3.0)
    assert marks_within(own.marks, arc(20, 40)) == [Mark(arc(20, 40), at(50), 3.0)]
    assert marks_within(own.marks, arc(20, 70)) == [Mark(arc(20, 50), at(50), 3.0)]
    joiner = Ownership(at(40))
    joiner.receive(arc(20, 40), 5, at(20), marks_within(own.marks, arc(20, 40)))
    assert joiner.verdict(30).mark is not None


def test_mark_ends_when_its_owner_returns() -> None:
    own = owner(100, 50)
    own.take_over(at(20), [at(50)], 3.0)
    own.owner_left({Point(50)})
    assert own.verdict(30).mark is None


def test_two_switches_at_once_fail_an_assertion() -> None:
    own = owner(100, 50)
    own.begin_switch(Point(80), at(80))
    with pytest.raises(AssertionError):
        own.begin_switch(Point(70), at(70))


def test_check_finds_planted_violations() -> None:
    own = owner(100, 50)
    own.marks = (Mark(arc(10, 20), at(20), 0.0),)
    assert own.check()
    own.start = None
    assert own.check()


def test_arc_across_zero_contains_points_on_both_sides() -> None:
    own = owner(5, 250)
    assert [p for p in range(256) if own.is_owner(p)] == [0, 1, 2, 3, 4, 5, 251, 252, 253, 254, 255]


def test_take_over_from_several_dead_marks_each_part() -> None:
    own = owner(100, 50)
    own.take_over(at(10), [at(50), at(30)], 1.0)
    assert [(int(t.arc.start), int(t.arc.end), int(t.dead.id)) for t in own.marks] == [(10, 30, 30), (30, 50, 50)]
    over_zero = owner(20, 5)
    over_zero.take_over(at(200), [at(5), at(240)], 1.0)
    assert [(int(t.arc.start), int(t.arc.end)) for t in over_zero.marks] == [(200, 240), (240, 5)]


def test_marks_inside_the_arc_survive_a_restart() -> None:
    own = Ownership(at(100))
    own.last = Remembered(marks=(Mark(arc(50, 70), at(70), 0.0), Mark(arc(20, 40), at(40), 0.0)))
    own.resume(Point(50), (at(50),), 4)
    assert own.epoch == 5
    assert own.verdict(60).mark is not None
    assert len(own.marks) == 1


def test_mark_that_ends_at_the_own_id_survives_a_restart() -> None:
    """Both marks end at the own id. The mark of the vnode's own death ends with its return."""
    own = Ownership(at(100))
    own.last = Remembered(marks=(Mark(arc(50, 100), at(120), 0.0), Mark(arc(60, 100), at(100), 0.0)))
    own.resume(Point(50), (at(50),))
    assert [mark.dead for mark in own.marks] == [at(120)]


def test_marks_from_before_a_restart_return_with_the_arc() -> None:
    """The new owner marked the whole arc for this vnode. It did not know that a part belonged to another."""
    own = Ownership(at(100))
    own.last = Remembered(marks=(Mark(arc(50, 70), at(70), 0.0),))
    own.receive(arc(50, 100), 3, at(50), [Mark(arc(50, 100), at(100), 1.0)])
    assert [mark.dead for mark in own.marks] == [at(70)]
    assert own.last.marks == ()


def test_marks_of_a_returned_vnode_and_its_heir_do_not_add_up() -> None:
    """Both have marks for the same owner. Of two marks for one part the later one stays."""
    own = Ownership(at(100))
    own.last = Remembered(Point(60), at(60), (Mark(arc(30, 60), at(60), 2.0),))
    own.receive(arc(30, 100), 3, at(30), [Mark(arc(30, 60), at(60), 1.0), Mark(arc(30, 100), at(100), 1.0)])
    assert own.marks == (Mark(arc(30, 60), at(60), 2.0),)
    again = Ownership(at(100))
    again.last = Remembered(marks=(*own.marks, *own.marks))
    again.resume(Point(30), (at(30),))
    assert again.marks == own.marks


def test_marks_of_another_vnode_are_adopted_up_to_a_limit() -> None:
    own = owner(100, 50)
    own.learn_marks(arc(50, 100), [Mark(arc(50, 60), at(900 + number), 1.0) for number in range(LIST_ENTRIES_MAX - 1)])
    own.learn_marks(arc(50, 100), [Mark(arc(40, 60), at(200), 1.0), Mark(arc(50, 70), at(201), 1.0)])
    assert len(own.marks) == LIST_ENTRIES_MAX
    assert own.marks[-1] == Mark(arc(50, 60), at(200), 1.0)


def test_returned_arc_stays_marked_if_another_owned_it_before() -> None:
    own = Ownership(at(100))
    own.last = Remembered(Point(60), at(60), ())
    own.receive(arc(30, 100), 3, at(30), [Mark(arc(30, 100), at(100), 1.0)])
    assert [(mark.arc, mark.dead) for mark in own.marks] == [(arc(30, 60), at(60))]


def test_own_mark_that_begins_before_the_arc_ends_in_it() -> None:
    own = Ownership(at(100))
    own.last = Remembered(Point(40), at(40), ())
    own.receive(arc(50, 100), 3, at(50), [Mark(arc(30, 100), at(100), 1.0)])
    assert own.marks == ()


# -- doubt ------------------------------------------------------------------------------------------


def test_vnode_known_as_down_later_gets_its_part_of_a_mark() -> None:
    own = owner(100, 80)
    own.take_over(at(10), [at(80)], 1.0)
    own.learn_unreachable([(at(40), 2.0), (at(80), 2.0), (at(90), 2.0), (at(5), 2.0), (at(60), 3.0)])
    assert own.marks == (
        Mark(arc(10, 40), at(40), 2.0),
        Mark(arc(10, 60), at(60), 3.0),
        Mark(arc(10, 80), at(80), 1.0),
    ), "a later owner may have taken the part of an earlier one over"
    own.learn_unreachable([(at(40), 9.0)])
    assert len(own.marks) == 3, "once"


def doubted(own: Ownership) -> list[int]:
    return [p for p in range(256) if own.is_doubtful(arc(p - 1, p))] if own.doubtful else []


def test_taken_over_arc_is_in_doubt_until_synced_or_given() -> None:
    own = owner(100, 50)
    own.sure(arc(50, 100))
    own.take_over(at(10), [at(50)], 1.0)
    assert doubted(own) == list(range(11, 51))
    assert own.is_doubtful(arc(10, 100))
    assert not own.is_doubtful(arc(50, 100))
    own.sure(arc(20, 30))
    assert doubted(own) == [*range(11, 21), *range(31, 51)]
    own.begin_switch(Point(40), at(40))
    own.finish_switch()
    assert doubted(own) == list(range(41, 51))
    own.renounce()
    assert own.doubtful == ()


def test_only_a_resumed_arc_starts_in_doubt() -> None:
    founder, joiner = Ownership(at(10)), Ownership(at(100))
    founder.create()
    joiner.receive(arc(80, 100), 7, at(80), ())
    assert founder.doubtful == joiner.doubtful == ()
    assert doubted(owner(100, 50)) == list(range(51, 101))


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 255), st.integers(1, 255)), max_size=8))
def test_doubtful_arcs_match_a_set_of_points(steps: list[tuple[bool, int, int]]) -> None:
    own = Ownership(at(0))
    own.create()
    expected: set[int] = set()
    for is_doubt, start, end in steps:
        part = {p for p in range(256) if Point(p) in arc(start, end)}
        (own.doubt if is_doubt else own.sure)(arc(start, end))
        expected = expected | part if is_doubt else expected - part
    assert {p for p in range(256) if any(Point(p) in doubtful for doubtful in own.doubtful)} == expected

"""The invariants: no violation on Ideal rings, and a violation for each planted fault."""

from __future__ import annotations

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.ids import Arc, Circle, Point
from chord.verify import invariants
from chord.verify.invariants import Member, Snapshot, Violation

R = 3
EXAMPLE = (10, 42, 80, 120, 160, 200, 230)


def ideal(ids: tuple[int, ...], r: int = R, addresses: dict[int, str] | None = None) -> dict[int, Member]:
    order = sorted(ids)
    bare = {n: Member((addresses or {}).get(n, f"n{n}:1"), order[position - 1], ()) for position, n in enumerate(order)}
    return {
        n: bare[n]._replace(successors=invariants.exact_successors(bare, order, position, r))
        for position, n in enumerate(order)
    }


def broken(ring: Snapshot, r: int = R) -> set[str]:
    return {violation.invariant for violation in invariants.violations(ring, r)}


def with_list(ring: dict[int, Member], n: int, *successors: int) -> dict[int, Member]:
    return {**ring, n: ring[n]._replace(successors=successors)}


# -- no violation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", range(1, 9))
@pytest.mark.parametrize("r", [1, 2, 3, 8])
def test_every_ideal_ring_of_eight_points_has_no_violation(size: int, r: int) -> None:
    for ids in combinations(range(8), size):
        ring = ideal(ids, r)
        assert invariants.violations(ring, r) == []
        assert invariants.waiting(ring, r) == []
        assert invariants.rank_error(ring) == 0
        assert invariants.principals(ring) == set(ids)


@given(st.dictionaries(st.integers(0, 255), st.integers(0, 3), min_size=1, max_size=14), st.integers(1, 4))
def test_ideal_ring_of_several_vnodes_a_node_has_no_violation(nodes: dict[int, int], r: int) -> None:
    ring = ideal(tuple(nodes), r, {n: f"node{node}:1" for n, node in nodes.items()})
    assert invariants.violations(ring, r) == []
    assert invariants.waiting(ring, r) == []
    for n, member in ring.items():
        others = {ring[entry].address for entry in member.successors} - {member.address}
        assert len(others) == min(r, len(set(nodes.values())) - 1) or len(member.successors) == 4 * r
        assert len(member.successors) <= 4 * r
        assert n not in member.successors or member.successors == (n,)


def test_empty_snapshot_has_no_violation() -> None:
    assert invariants.waiting({}, R) == []
    assert broken({}) == set()


def test_ideal_list_has_at_most_4_r_entries_without_a_gap() -> None:
    ring = ideal(tuple(range(0, 40, 2)), 2, {n: "one:1" if 2 <= n < 30 else f"n{n}:1" for n in range(0, 40, 2)})
    assert ring[0].successors == (2, 4, 6, 8, 10, 12, 14, 16)
    assert ring[26].successors == (28, 30, 32), "28 is a vnode of the same node and does not count"


# -- OneLiveSuccessor and SufficientPrincipals ----------------------------------------------------------


def test_member_without_a_live_successor_is_a_violation() -> None:
    ring = with_list(ideal(EXAMPLE), 80, 99, 101)
    assert invariants.one_live_successor(ring)[0].nodes == (80,)
    assert "OneLiveSuccessor" in broken(ring)


def test_dead_entries_before_a_live_one_are_no_violation() -> None:
    ring = ideal(EXAMPLE)
    ring = {n: member for n, member in ring.items() if n not in (120, 160)}
    assert broken(ring) == set()
    assert invariants.best(ring, 80) == 200


def test_members_that_lists_skip_are_not_principals() -> None:
    ring = with_list(ideal(EXAMPLE), 10, 80, 120, 160)
    assert invariants.principals(ring) == set(EXAMPLE) - {42}
    assert broken(ring) == set(), "one appendage is normal after a join"
    for n in (42, 80, 120, 160):
        ring = with_list(ring, n, 230, 10)
    assert invariants.principals(ring) == {10, 230}
    (violation,) = invariants.sufficient_principals(ring, R)
    assert violation.nodes == (42, 80, 120, 160, 200)
    assert "2 principals of 7 members, 4 needed" in violation.text


def test_member_that_just_joined_is_not_required_as_principal() -> None:
    alone = Member("a:1", 10, (10,))
    joined = Member("b:1", 10, (10,), rounds=1)
    assert broken({10: alone, 20: joined}) == set(), "10 does not list 20 yet"
    assert broken({10: alone, 20: joined._replace(rounds=6)}) == {"SufficientPrincipals"}


@pytest.mark.slow
@pytest.mark.parametrize("r", [1, 2])
def test_principals_match_the_definition_of_zave(r: int) -> None:
    """Compare every ring of three vnodes on four points, with every list of r entries, with Zave's definition."""
    for ids in combinations(range(4), 3):
        for lists in product(*(product(range(4), repeat=r) for _ in ids)):
            ring = {n: Member(f"n{n}:1", None, entries) for n, entries in zip(ids, lists, strict=True)}
            expected = set()
            for p in ids:
                pairs = [pair for n in ids for pair in zip((n, *ring[n].successors), ring[n].successors, strict=False)]
                if not any(x < p < y or (x >= y and (p > x or p < y)) for x, y in pairs):
                    expected.add(p)
            assert invariants.principals(ring) == expected


# -- local --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [(120, 120, 160), (120, 160, 120), (120, 160, 80), (80, 120, 160)])
def test_repeat_or_own_id_in_a_list_is_a_duplicate(entries: tuple[int, ...]) -> None:
    assert "NoDuplicates" in broken(with_list(ideal(EXAMPLE), 80, *entries))


@pytest.mark.parametrize("entries", [(160, 120, 200), (120, 160, 42, 10), (120, 10, 230), (120, 80, 160)])
def test_list_that_goes_back_or_wraps_is_out_of_order(entries: tuple[int, ...]) -> None:
    assert "OrderedSuccessorList" in broken(with_list(ideal(EXAMPLE), 80, *entries))


def test_list_is_ordered_by_distance_from_the_member() -> None:
    circle = Circle(3)
    for entries in product(range(1, 8), repeat=3):
        if len(set(entries)) == 3:
            for turn in range(8):
                n = turn
                turned = tuple((entry + turn) % 8 for entry in entries)
                ring = {n: Member("n:1", None, turned)}
                distances = [circle.distance(n, entry) for entry in turned]
                assert (invariants.ordered_successor_list(ring) == []) == (distances == sorted(distances))


# -- global ---------------------------------------------------------------------------------------------


def test_two_rings_violate_at_most_one_ring() -> None:
    ring = {**ideal((10, 80, 160, 230)), **ideal((42, 120, 200))}
    (violation,) = invariants.at_most_one_ring(ring)
    assert violation.nodes == (42, 120, 200)
    assert invariants.at_least_one_ring(ring) == []
    assert {"AtMostOneRing", "SufficientPrincipals"} == broken(ring)


def test_chain_without_a_cycle_violates_at_least_one_ring() -> None:
    ring = {10: Member("a:1", None, (42,)), 42: Member("b:1", None, (80,)), 80: Member("c:1", None, (99,))}
    assert invariants.at_least_one_ring(ring) != []
    assert {v.nodes for v in invariants.connected_appendages(ring)} == {(10,), (42,), (80,)}


def test_disconnected_appendage_is_a_violation() -> None:
    ring = {**ideal((10, 80, 160)), 42: Member("n42:1", None, (80,), rounds=0)}
    assert broken(ring) == set()
    lost = {**ring, 42: Member("n42:1", None, (99,), rounds=0)}
    assert {"ConnectedAppendages", "OneLiveSuccessor", "SufficientPrincipals"} == broken(lost)


def test_loopy_cycle_violates_ordered_ring() -> None:
    loop = [10, 80, 160, 230, 42, 120, 200]
    ring = {n: Member(f"n{n}:1", None, (loop[(at + 1) % 7],)) for at, n in enumerate(loop)}
    assert invariants.at_most_one_ring(ring) == []
    assert {v.nodes for v in invariants.ordered_ring(ring)} == {
        (10, 42, 80), (80, 120, 160), (160, 200, 230), (230, 10, 42), (42, 80, 120), (120, 160, 200), (200, 230, 10)
    }  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ring_invariants_match_the_definitions_of_zave(size: int) -> None:
    """Compare with Zave's definitions over the transitive closure of `best`, for every choice of successors."""
    ids = (1, 3, 4, 6)[:size]
    for choice in product((*ids, 7), repeat=size):  # 7 is dead
        ring = {n: Member(f"n{n}:1", None, (successor,)) for n, successor in zip(ids, choice, strict=True)}
        reach = {n: _closure(ring, n) for n in ids}
        members = [n for n in ids if n in reach[n]]
        assert (invariants.at_least_one_ring(ring) == []) == bool(members)
        assert (invariants.at_most_one_ring(ring) == []) == all(b in reach[a] for a in members for b in members)
        in_order = all(
            not _inside(a, c, b) for a in members for b in members for c in members if ring[a].successors == (b,)
        )
        if len({frozenset(reach[n]) for n in members}) <= 1:
            assert (invariants.ordered_ring(ring) == []) == in_order
        connected = all(n in members or any(m in reach[n] for m in members) for n in ids)
        assert (invariants.connected_appendages(ring) == []) == connected


def _closure(ring: Snapshot, n: int) -> set[int]:
    reached: set[int] = set()
    at = invariants.best(ring, n)
    while at is not None and at not in reached:
        reached.add(at)
        at = invariants.best(ring, at)
    return reached


def _inside(a: int, c: int, b: int) -> bool:
    return c not in (a, b) and (c - a) % 8 < ((b - a) % 8 or 8)


# -- progress ---------------------------------------------------------------------------------------------


def test_waiting_lists_the_members_with_stale_pointers() -> None:
    ring = ideal(EXAMPLE)
    ring[80] = ring[80]._replace(predecessor=10, successors=(120, 130))
    ring[200] = ring[200]._replace(predecessor=None)
    found = invariants.waiting(ring, R)
    assert [(v.invariant, v.nodes) for v in found] == [
        ("ExactPredecessor", (80, 42)),
        ("ExactSuccessors", (80, 160, 200, 130)),
        ("ExactPredecessor", (200, 160)),
    ]
    assert "n80:1 (80) has n10:1 (10) as its predecessor, not n42:1 (42)" in found[0].text
    assert "misses n160:1 (160), n200:1 (200)" in found[1].text
    assert "dead vnode 130 besides" in found[1].text
    assert "has none as its predecessor" in found[2].text
    assert broken(ring) == set(), "a ring that is not Ideal yet has no violation"


def test_rank_error_sums_the_distances_of_stale_pointers() -> None:
    ring = ideal(EXAMPLE)
    ring[80] = ring[80]._replace(successors=(160, 200), predecessor=10)
    assert invariants.rank_error(ring) == 2
    ring[80] = ring[80]._replace(successors=(99,), predecessor=None)
    assert invariants.rank_error(ring) == 14


def test_violation_text_shortens_long_ids() -> None:
    ring = {1 << 159: Member("a:1", None, (5,))}
    assert invariants.one_live_successor(ring)[0].text == "a:1 (0x80000000…) has no live successor"


# -- ownership ----------------------------------------------------------------------------------------------


def owned(**arcs: list[tuple[int, int]]) -> list[Violation]:
    named = {Point(int(name[1:])): [Arc(Point(a), Point(b)) for a, b in pairs] for name, pairs in arcs.items()}
    return invariants.ownership(named, Circle(8))


def test_arcs_that_own_every_point_once_are_no_violation() -> None:
    assert owned(n10=[(230, 10)], n80=[(10, 80)], n230=[(80, 230)]) == []
    assert owned(n10=[(10, 10)]) == []
    assert owned(n255=[(100, 255)], n100=[(255, 100)]) == []
    assert owned(n0=[(100, 0)], n100=[(0, 100)]) == []
    assert owned(n80=[(10, 40), (40, 80)], n10=[(80, 10)]) == []


def test_gap_in_ownership_is_named_with_its_bounds() -> None:
    (violation,) = owned(n10=[(230, 10)], n80=[(20, 80)], n230=[(80, 230)])
    assert violation == Violation("OwnedOnce", "no vnode answers for 0b to 14")
    assert len(owned()) == 1
    assert len(owned(n10=[(200, 10)])) == 1
    assert len(owned(n250=[(10, 250)])) == 2, "the gap across zero has two pieces"


def test_overlap_in_ownership_names_both_owners() -> None:
    (violation,) = owned(n10=[(230, 10)], n80=[(10, 80)], n230=[(60, 230)])
    assert violation == Violation("OwnedOnce", "two vnodes answer for 3d to 50", (80, 230))
    assert owned(n10=[(10, 10)], n80=[(10, 80)])[0].nodes == (10, 80)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(0, 7)), max_size=4))
def test_ownership_matches_a_count_of_owners_by_point(arcs: list[tuple[int, int, int]]) -> None:
    circle = Circle(3)
    by_vnode: dict[Point, list[Arc]] = {}
    for vnode, start, end in arcs:
        by_vnode.setdefault(Point(vnode), []).append(Arc(Point(start), Point(end)))
    counts = [sum(p in arc for own in by_vnode.values() for arc in own) for p in range(8)]
    found = invariants.ownership(by_vnode, circle)
    assert (found == []) == (counts == [1] * 8)
    assert any("no vnode" in v.text for v in found) == (0 in counts)
    assert any("two" in v.text for v in found) == (max(counts) > 1)

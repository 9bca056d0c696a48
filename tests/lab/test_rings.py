"""Rings and related schemes: published examples, arcs, heirs, bounded loads, probes, the search tree."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chord.ids import Arc, Point
from chord.lab import hashing
from chord.lab.hashing import SPAN
from chord.lab.schemes.multi_probe import MultiProbe
from chord.lab.schemes.rendezvous import WeightedRendezvous
from chord.lab.schemes.rendezvous_tree import RendezvousTree
from chord.lab.schemes.ring import RingScheme
from chord.lab.schemes.ring_bounded import BoundedRing
from chord.lab.schemes.ring_tree import PointTree, TreeRing
from tests.lab.references import bounded, clockwise, points, ring_replicas
from tests.lab.statistics_of import off

MANY = hashing.random_hashes(np.random.Generator(np.random.PCG64(9)), 100_000)
SIGMAS = 4.5


def named(count: int) -> list[str]:
    return [f"n{number}" for number in range(count)]


# -- the anonymous article's ring of twelve slots ---------------------------------------------------------------


def slot(number: int) -> int:
    """Return a slot of twelve as a hash: slot s is at s twelfths of the circle."""
    return number * SPAN // 12 % SPAN


def shares_of(ring: RingScheme) -> list[float]:
    shares = ring.shares()
    assert shares is not None
    return [round(100 * share, 1) for share in shares.tolist()]


def test_ring_of_twelve_slots_equals_the_article() -> None:
    """The anonymous article: keys at 1, 5 and 7. N3 joins at 2 and takes the first key. Shares are uneven."""
    at = {"N0": [slot(0)], "N1": [slot(4)], "N2": [slot(8)], "N3": [slot(2)]}
    keys = {"a": 1, "b": 5, "c": 7}
    ring = RingScheme(["N0", "N1", "N2"], points=at)
    assert {key: ring.nodes[ring.locate(slot(s))] for key, s in keys.items()} == {"a": "N1", "b": "N2", "c": "N2"}
    assert shares_of(ring) == [33.3, 33.3, 33.3]
    ring.add("N3")
    assert {key: ring.nodes[ring.locate(slot(s))] for key, s in keys.items()} == {"a": "N3", "b": "N2", "c": "N2"}
    assert shares_of(ring) == [33.3, 16.7, 33.3, 16.7]  # the article truncates: 16.6
    assert ring.arcs("N0") == [(slot(8), slot(0))]


def test_ring_with_three_points_a_node_equals_the_article() -> None:
    """The anonymous article: 33.3, 25 and 41.6 %, or 4, 3 and 5 slots. Its picture shows the slots."""
    at = {"N0": [slot(0), slot(3), slot(7)], "N1": [slot(1), slot(4), slot(8)], "N2": [slot(2), slot(6), slot(10)]}
    ring = RingScheme(["N0", "N1", "N2"], points=at)
    assert shares_of(ring) == [33.3, 25.0, 41.7]
    counts = np.bincount(ring.place_many(np.array([slot(s) for s in range(12)], dtype=np.uint64)))
    assert counts.tolist() == [4, 3, 5]


def test_ring_of_seven_nodes_equals_the_course_notes() -> None:
    """The course notes: the successor of 190 is 200; the fingers of 80 are 120, 160 and 230."""
    members = (10, 42, 80, 120, 160, 200, 230)
    ring = RingScheme([str(m) for m in members], points={str(m): [m << 56] for m in members})
    successors = {start: int(ring.nodes[ring.locate(start << 56)]) for start in (190, 231, 10, 11)}
    assert successors == {190: 200, 231: 10, 10: 10, 11: 42}
    starts = np.array([(80 + 2**i) % 256 for i in range(8)], dtype=np.uint64) << np.uint64(56)
    assert [int(ring.nodes[n]) for n in ring.place_many(starts)] == [120] * 6 + [160, 230]


def test_node_with_a_taken_point_is_refused() -> None:
    with pytest.raises(ValueError, match="the same"):
        RingScheme(["a", "b"], points={"a": [5], "b": [5]})
    ring = RingScheme(["a"], points={"a": [5], "b": [5]})
    with pytest.raises(ValueError, match="the same"):
        ring.add("b")
    assert ring.nodes == ("a",)
    assert ring.arcs("a") == [(5, 5)]
    assert ring.shares().tolist() == [1.0]  # type: ignore[union-attr]
    tree = PointTree()
    tree.insert(5, "a")
    with pytest.raises(ValueError, match="the same"):
        tree.insert(5, "b")
    assert 5 in tree
    assert 6 not in tree
    shared = TreeRing(["a"], vnodes=2)
    with pytest.raises(ValueError, match="the same"):
        shared.add("a#1")  # its first point equals the other's second one
    assert shared.nodes == ("a",)
    assert len(shared.tree) == 2
    for build in (RingScheme, TreeRing, BoundedRing, MultiProbe):
        with pytest.raises(ValueError, match="at least one"):
            build(["a"], vnodes=0)


# -- what moves -----------------------------------------------------------------------------------------------


@given(nodes=st.integers(1, 12), vnodes=st.integers(1, 4))
def test_newcomer_takes_one_arc_for_each_of_its_points(nodes: int, vnodes: int) -> None:
    ring = RingScheme(named(nodes), vnodes=vnodes)
    before = np.array(ring.nodes, dtype=object)[ring.place_many(MANY[:2000])]
    ring.add("new")
    after = np.array(ring.nodes, dtype=object)[ring.place_many(MANY[:2000])]
    arcs = [Arc(Point(start), Point(end)) for start, end in ring.arcs("new")]
    assert len(arcs) == vnodes
    for point, old, new in zip(MANY[:2000].tolist(), before, after, strict=True):
        assert (old != new) == any(point in arc for arc in arcs)


def heirs(vnodes: int, nodes: int = 50) -> int:
    """Return the number of nodes that get the keys of a dead one."""
    ring = RingScheme(named(nodes), vnodes=vnodes)
    mine = MANY[ring.place_many(MANY) == 7]
    ring.remove("n7")
    return len(set(ring.place_many(mine).tolist()))


def test_keys_of_a_dead_node_spread_with_vnodes() -> None:
    assert heirs(1) == 1
    assert 5 <= heirs(10) <= 10
    assert heirs(200) > 40


@pytest.mark.slow
@pytest.mark.parametrize("vnodes", [100, 1000])
def test_spread_of_loads_falls_with_the_root_of_the_vnodes(vnodes: int) -> None:
    """The anonymous article: about 10 % at 100 and 3.2 % at 1000. The exact value is that of a sum of gaps."""
    found = []
    for draw in range(60):
        shares = RingScheme([f"{draw}/{number}" for number in range(20)], vnodes=vnodes).shares()
        assert shares is not None
        found.append(float((shares.std(ddof=1) * 20) ** 2))
    expected = (1 - 1 / 20) / vnodes * 20 / 19  # the gaps add up to the circle, so they are correlated
    assert math.sqrt(np.mean(found)) == pytest.approx(math.sqrt(expected), rel=4.5 / math.sqrt(2 * 19 * 60))


@settings(max_examples=40)
@given(
    nodes=st.integers(1, 7), vnodes=st.integers(1, 4), count=st.integers(1, 8), heavy=st.sampled_from([0.5, 1.0, 3.0])
)
def test_copies_are_on_the_first_distinct_nodes_clockwise(nodes: int, vnodes: int, count: int, heavy: float) -> None:
    weights = {"n0": heavy, **dict.fromkeys(named(nodes)[1:], 1.0)}
    array = RingScheme(named(nodes), weights=weights, vnodes=vnodes)
    tree = TreeRing(named(nodes), weights=weights, vnodes=vnodes)
    hashes = np.concatenate([MANY[:20], array.points_of("n0", heavy)])
    for point, row in zip(hashes.tolist(), array.replicas_many(hashes, count).tolist(), strict=True):
        expected = ring_replicas(named(nodes), weights, vnodes, point, count)
        assert [array.nodes[number] for number in array.locate_replicas(point, count)] == expected
        assert [tree.nodes[number] for number in tree.locate_replicas(point, count)] == expected
        assert [array.nodes[number] for number in row] == expected


# -- the search tree ------------------------------------------------------------------------------------------


@given(steps=st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=60))
def test_point_tree_equals_a_sorted_list(steps: list[tuple[bool, int]]) -> None:
    tree, there = PointTree(), dict[int, str]()
    for number, (is_insert, point) in enumerate(steps):
        if is_insert and point not in there:
            tree.insert(point, str(number))
            there[point] = str(number)
        elif not is_insert and point in there:
            tree.delete(point)
            del there[point]
        elif not is_insert:
            with pytest.raises(KeyError):
                tree.delete(point)
        assert [(at.point, at.owner) for at in tree] == sorted(there.items())
        assert len(tree) == len(there)
        for asked in (0, point, 31):
            found = tree.ceiling(asked)
            assert (found and found.point) == min((p for p in there if p >= asked), default=None)


def test_point_tree_stays_shallow_in_any_order() -> None:
    ascending, descending = PointTree(), PointTree()
    for point in range(4096):
        ascending.insert(point, "n")
        descending.insert(4095 - point, "n")
    assert ascending.depth() == descending.depth() <= 3 * math.log2(4096)  # the shape depends on the points only
    for point in range(0, 4096, 2):
        ascending.delete(point)
    assert len(ascending) == 2048
    assert ascending.depth() <= 3 * math.log2(2048)


def test_array_and_tree_ring_agree_through_changes() -> None:
    array, tree = RingScheme(named(9), vnodes=5), TreeRing(named(9), vnodes=5)
    for change in ("n3", "n0", "n8"):
        array.remove(change)
        tree.remove(change)
        array.add(change + "x", 2.0)
        tree.add(change + "x", 2.0)
        assert array.nodes == tree.nodes
        assert np.array_equal(array.place_many(MANY[:3000]), tree.place_many(MANY[:3000]))
        assert np.allclose(array.shares(), tree.shares())  # type: ignore[arg-type]


# -- bounded loads ----------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    nodes=st.integers(1, 8),
    vnodes=st.integers(1, 3),
    capacity=st.sampled_from([1.0, 1.1, 1.25, 2.0]),
    heavy=st.sampled_from([0.5, 1.0, 4.0]),
    keys=st.integers(0, 60),
    start=st.integers(0, 900),
)
def test_bounded_loads_equal_a_walk_key_by_key(
    nodes: int, vnodes: int, capacity: float, heavy: float, keys: int, start: int
) -> None:
    weights = {"n0": heavy, **dict.fromkeys(named(nodes)[1:], 1.0)}
    placement = BoundedRing(named(nodes), weights=weights, vnodes=vnodes, capacity=capacity)
    hashes = MANY[start : start + keys]
    found = [placement.nodes[number] for number in placement.place_many(hashes)]
    assert found == bounded(named(nodes), weights, vnodes, capacity, hashes.tolist())
    loads = Counter(found)
    assert all(loads[node] <= room for node, room in zip(placement.nodes, placement.room(keys), strict=True))


@pytest.mark.parametrize("capacity", [1.05, 1.25, 2.0])
def test_bounded_loads_never_exceed_c_times_the_mean(capacity: float) -> None:
    bounded_ring = BoundedRing(named(50), capacity=capacity)
    cap = math.ceil(capacity * len(MANY) / 50)
    loads = np.bincount(bounded_ring.place_many(MANY), minlength=50)
    assert loads.max() == cap  # with one point a node, some node is full
    assert loads.sum() == len(MANY)
    assert (
        np.bincount(RingScheme(named(50)).place_many(MANY), minlength=50).max() > cap
    )  # the plain ring fails the check


def test_capacity_below_the_mean_is_refused() -> None:
    for capacity in (0.99, float("nan")):
        with pytest.raises(ValueError, match="no room"):
            BoundedRing(["a"], capacity=capacity)


def test_bounded_loads_move_few_keys_at_any_size() -> None:
    """Mirrokni et al.: for c = 1 + ε, O(1 / ε²) times the minimum, which is the keys of one node."""
    moved = []
    for nodes in (50, 400):
        placement = BoundedRing(named(nodes), capacity=1.5)
        before = np.array(placement.nodes)[placement.place_many(MANY)]
        placement.remove("n5")
        after = np.array(placement.nodes)[placement.place_many(MANY)]
        moved.append(float((before != after).mean()) * nodes)  # in nodes' worth
    assert all(worth < 4 / 0.5**2 for worth in moved), moved


# -- multi-probe --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("probes", [2, 5, 21])
def test_peak_of_k_probes_is_k_over_k_minus_one(probes: int) -> None:
    """Appleton and O'Reilly: at most k / (k - 1) times the mean. A long gap reaches it. 21 probes give 1.05."""
    for draw in range(5):
        shares = MultiProbe([f"{draw}/{number}" for number in range(10_000)], probes=probes).shares()
        assert shares is not None
        peak = float(shares.max()) * 10_000
        assert peak == pytest.approx(probes / (probes - 1), rel=0.04)
    one = MultiProbe(named(10_000), probes=1).shares()  # planted: one probe is the plain ring
    assert one is not None
    assert float(one.max()) * 10_000 > 5
    assert np.allclose(one, RingScheme(named(10_000)).shares())  # type: ignore[arg-type]


def test_shares_of_multi_probe_equal_those_of_a_sample() -> None:
    placement = MultiProbe(named(8), probes=4, weights={"n2": 3.0})
    shares = placement.shares()
    assert shares is not None
    counts = np.bincount(placement.place_many(MANY), minlength=8)
    assert all(off(count / len(MANY), share, len(MANY)) < SIGMAS for count, share in zip(counts, shares, strict=True))
    weighted = MultiProbe(named(20), vnodes=20, weights={"n1": 2.0, "n2": 0.5}).shares()
    assert weighted is not None
    assert weighted[1] / weighted[3:].mean() == pytest.approx(2, rel=0.15)
    assert weighted[2] / weighted[3:].mean() == pytest.approx(0.5, rel=0.15)
    with pytest.raises(ValueError, match="at least once"):
        MultiProbe(["a"], probes=0)


@settings(max_examples=30)
@given(nodes=st.integers(1, 6), count=st.integers(1, 6))
def test_multi_probe_copies_are_on_the_closest_nodes(nodes: int, count: int) -> None:
    placement = MultiProbe(named(nodes), probes=3)
    of = points(named(nodes), dict.fromkeys(named(nodes), 1.0), 1)
    for point in MANY[:15].tolist():
        probes = [point, hashing.mix_one(point, 1), hashing.mix_one(point, 2)]
        met = sorted(found for probe in probes for found in clockwise(probe, of))
        expected = list(dict.fromkeys(node for _, node in met))[:count]
        assert [placement.nodes[number] for number in placement.locate_replicas(point, count)] == expected


# -- rendezvous -------------------------------------------------------------------------------------------------


def test_weight_change_moves_keys_of_that_node_only() -> None:
    before = WeightedRendezvous(named(8)).place_many(MANY)
    heavier = WeightedRendezvous(named(8), weights={named(8)[2]: 2.0}).place_many(MANY)
    assert set(heavier[heavier != before].tolist()) == {2}
    assert off((heavier == 2).mean(), 2 / 9, len(MANY)) < SIGMAS


@pytest.mark.parametrize(("nodes", "levels", "bids"), [(3, 0, 3), (20, 1, 9), (1024, 4, 20)])
def test_skeleton_has_few_bids_at_each_level(nodes: int, levels: int, bids: int) -> None:
    placement = RendezvousTree(named(nodes))
    assert (placement.levels, placement.bids) == (levels, bids)
    shares = placement.shares()
    assert shares is not None
    assert np.allclose(shares, 1 / nodes)


def test_skeleton_with_empty_branches_places_every_key() -> None:
    placement = RendezvousTree(named(5), fanout=3, levels=2)
    for node in named(4):
        placement.remove(node)
    assert set(placement.place_many(MANY[:100]).tolist()) == {0}
    assert placement.locate(5) == 0
    with pytest.raises(ValueError, match="two branches"):
        RendezvousTree(["a"], fanout=1)

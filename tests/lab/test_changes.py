"""Changes of several nodes at once, and refused arguments: no copies, extreme weights, too many points."""

from __future__ import annotations

import numpy as np
import pytest

from chord.lab import hashing
from chord.lab.experiments.common import room
from chord.lab.placement import UnsupportedChange
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.jump import Jump
from chord.lab.schemes.maglev import Maglev
from chord.lab.schemes.ring import RingScheme
from chord.lab.schemes.sections import Directory
from chord.lab.schemes.trie import BitTrie
from tests.lab.kinds import schemes_with
from tests.lab.movement import snapshot

NAMES = [f"10.0.0.{number}:9000" for number in range(16)]
WEIGHTED = schemes_with(lambda scheme: scheme.has_weights)
MANY = hashing.random_hashes(np.random.Generator(np.random.PCG64(11)), 2000)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCHEMES)
def test_change_of_several_nodes_is_atomic(name: str) -> None:
    """The planted mistake is a list with an impossible last name."""
    placement = SCHEMES[name](NAMES)
    before, alone = snapshot(placement, MANY[:500]), [placement.locate(point) for point in MANY[:20].tolist()]
    for change, names in (
        (placement.grow, ["x", "y", "x"]),
        (placement.grow, ["x", "y", NAMES[2]]),
        (placement.shrink, [NAMES[15], NAMES[14], "nobody"]),
        (placement.shrink, [NAMES[15], NAMES[15]]),
        (placement.shrink, list(reversed(NAMES))),
    ):
        with pytest.raises((ValueError, KeyError, UnsupportedChange)):
            change(names)
        assert placement.nodes == tuple(NAMES)
        assert snapshot(placement, MANY[:500]) == before
        assert [placement.locate(point) for point in MANY[:20].tolist()] == alone


@pytest.mark.slow
@pytest.mark.parametrize("name", schemes_with(lambda scheme: scheme.growth == "one"))
def test_growth_at_once_equals_growth_one_by_one(name: str) -> None:
    newcomers = [f"new-{number}" for number in range(21)]
    weights = {NAMES[3]: 2.0} if name in WEIGHTED else None
    at_once, slowly = (SCHEMES[name](NAMES, weights=weights, **room(name, 40)) for _ in range(2))
    at_once.grow(newcomers)
    for node in newcomers:
        slowly.add(node)
    assert snapshot(at_once, MANY) == snapshot(slowly, MANY)
    assert (at_once.nodes, at_once.weights) == (slowly.nodes, slowly.weights)
    alone = [at_once.locate(point) for point in MANY[:50].tolist()]
    assert alone == [slowly.locate(point) for point in MANY[:50].tolist()]
    for changed in (at_once, slowly):
        changed.remove(newcomers[-1])
    assert snapshot(at_once, MANY) == snapshot(slowly, MANY), "later changes still agree"
    at_once.grow([])
    assert snapshot(at_once, MANY) == snapshot(slowly, MANY)


def test_newcomer_with_a_taken_point_is_refused() -> None:
    taken = int(RingScheme(["a"]).points_of("a")[0])
    placement = RingScheme(["a", "b"], points={"x": [taken]})
    before = snapshot(placement, MANY)
    with pytest.raises(ValueError, match="two points"):
        placement.grow(["y", "x", "z"])
    assert placement.nodes == ("a", "b")
    assert snapshot(placement, MANY) == before
    placement.grow(["y", "z"])
    assert len(set(snapshot(placement, MANY).owners)) == 4


def test_directory_has_one_configuration_for_one_growth() -> None:
    placement = Directory(["a", "b"])
    placement.grow(["c", "d"])
    assert placement.version == 1
    assert set(placement.query(0)) == {"a", "b"}
    assert set(placement.query()) == {"a", "b", "c", "d"}


def test_refused_change_is_rolled_back() -> None:
    jump, full = Jump(["a", "b", "c", "d"]), SCHEMES["anchor"](["a", "b"], capacity=3)
    with pytest.raises(UnsupportedChange, match="the last can go"):
        jump.shrink(["d", "a"])
    with pytest.raises(UnsupportedChange):
        full.grow(["c", "d"])
    assert (jump.nodes, full.nodes) == (("a", "b", "c", "d"), ("a", "b"))


def test_trie_removes_an_evicted_node_by_name() -> None:
    placement = BitTrie(["a", "b", "c", "d"])
    placement.add("e")
    gone = next(node for node in placement.nodes if placement.evicted_by(node))
    evicted = placement.evicted_by(gone)
    placement.shrink([gone, *evicted])
    assert set(placement.nodes) == {*"abcde"} - {gone, *evicted}
    assert set(snapshot(placement, MANY).owners) == set(placement.nodes)


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("count", [0, -1])
def test_replica_count_below_one_is_refused(name: str, count: int) -> None:
    placement = SCHEMES[name](NAMES)
    with pytest.raises(ValueError, match="one copy"):
        placement.replicas(b"key", count)
    with pytest.raises(ValueError, match="one copy"):
        placement.replicas_many(MANY[:10], count)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_too_far_apart_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"1,000 times the least"):
        SCHEMES[name](["a", "b"], weights={"a": 1e308})
    placement = SCHEMES[name](["a", "b"])
    with pytest.raises(ValueError, match=r"1,000 times the least"):
        placement.add("c", 0.0001)
    assert placement.nodes == ("a", "b")


@pytest.mark.parametrize("name", ["ring-100", "chord", "ring-tree"])
def test_weights_that_need_too_many_points_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="divide them by their mean"):
        SCHEMES[name](["a", "b"], weights={"a": 5e7, "b": 1e8})


def test_maglev_growth_at_once_equals_growth_one_by_one() -> None:
    at_once, slowly = Maglev(NAMES, slots=1009), Maglev(NAMES, slots=1009)
    at_once.grow(["x", "y", "z"])
    for node in ("x", "y", "z"):
        slowly.add(node)
    assert at_once.table == slowly.table
    assert at_once.weights == slowly.weights
    with pytest.raises(UnsupportedChange, match="slots"):
        Maglev(["a"], slots=3).grow(["b", "c", "d"])

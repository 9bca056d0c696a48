"""The NumPy model of large rings: it agrees hop by hop with real nodes, and with the published laws."""

from __future__ import annotations

import math
from collections.abc import Callable
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord import testing
from chord.config import RingConstants
from chord.ids import Point
from chord.lab import bigring
from chord.lab.bigring import NO_OWNER, BigRing, PointArray, Ranks, highest_bit, look_up_past_the_dead
from chord.lab.papers.world import STILL
from chord.lab.theory import finger_use, mean_path, path_constant
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork
from chord.wire.messages import Ping, PingReply

SIZE = 1 << 64
WIDER = 96  # bits more that a real node's circle has


# -- beside real nodes --------------------------------------------------------------------------------


def on_real_nodes(ids: PointArray, successors: int, ask: Callable[[Cluster, dict[int, object]], object]) -> None:
    """Look keys up in a static ring of real nodes at these points."""

    async def main() -> None:
        constants = RingConstants(successors=successors, replicas=1)
        async with cluster(seed="lab", ring=constants, timing=STILL, network=MessageNetwork("lab")) as ring:
            await ring.place(len(ids), ids=[widened(point) for point in ids.tolist()])
            await ask(ring, {node.contact.id: node for node in ring.nodes})  # type: ignore[misc]

    testing.run(main, seed="lab")


def widened(point: int) -> Point:
    """The same place on the real circle."""
    return Point(point << WIDER)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "successors"), [(1, 1), (2, 1), (3, 4), (50, 1), (200, 8), (1000, 1), (1000, 20)])
def test_paths_equal_those_of_real_nodes(nodes: int, successors: int) -> None:
    rng = np.random.default_rng([nodes, successors])
    ring = BigRing.draw(nodes, rng)
    starts, keys = ring.draw_lookups(300, rng)
    found: list[int] = []

    async def ask(_: Cluster, by_id: dict[int, object]) -> None:
        for start, key in zip(starts.tolist(), keys.tolist(), strict=True):
            node = by_id[widened(int(ring.ids[start]))]
            path = await node._lookups.find(widened(key), node.contact)  # type: ignore[attr-defined]
            found.append(path.path_length)

    on_real_nodes(ring.ids, successors, ask)
    assert ring.look_up(starts, keys, successors=successors).hops.tolist() == found


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "share"), [(60, 0.2), (300, 0.5)])
def test_detours_around_dead_nodes_equal_those_of_real_nodes(nodes: int, share: float) -> None:
    rng = np.random.default_rng(nodes)
    ring = BigRing.draw(nodes, rng)
    is_dead = rng.random(nodes) < share
    starts, keys = ring.draw_lookups(200, rng)
    is_live = ~is_dead[starts]
    starts, keys = starts[is_live], keys[is_live]
    found: list[tuple[int, int, int, int]] = []

    async def ask(cluster: Cluster, by_id: dict[int, object]) -> None:
        for rank in np.flatnonzero(is_dead).tolist():
            await cluster.kill(by_id[widened(int(ring.ids[rank]))], silently=True)  # type: ignore[arg-type]
        for start, key in zip(starts.tolist(), keys.tolist(), strict=True):
            node = by_id[widened(int(ring.ids[start]))]
            lookups = node._lookups  # type: ignore[attr-defined]
            route = lookups.deliver(Ping(), PingReply, widened(key), node.contact, "iterative", "classic")  # type: ignore[attr-defined]
            _, path, via, _ = await route
            last = [candidate.via for candidate in path.candidates].index(via)
            found.append((path.path_length, path.timeouts, last, path.candidates[last].contact.id))

    on_real_nodes(ring.ids, 20, ask)
    ours = look_up_past_the_dead(ring, is_dead, starts, keys, successors=20)
    owners = [widened(int(ring.ids[rank])) for rank in ours.owners.tolist()]
    columns = (ours.hops.tolist(), ours.timeouts.tolist(), ours.last_timeouts.tolist(), owners)
    assert list(zip(*columns, strict=True)) == found
    assert max(ours.timeouts) > 3


# -- beside a naive ring ------------------------------------------------------------------------------


def naive_path(ids: list[int], start: int, key: int, base: int, successors: int) -> int:
    """Follow the papers' pseudocode, node by node and finger by finger."""
    nodes = sorted(ids)

    def successor(point: int) -> int:
        return min(nodes, key=lambda node: (node - point) % SIZE)

    def known(node: int) -> set[int]:
        at = nodes.index(node)
        listed = {nodes[(at + step) % len(nodes)] for step in range(1, successors + 1)}
        places = [base**i for i in range(64) if base**i < SIZE]
        return listed | {successor((node + j * place) % SIZE) for place in places for j in range(1, base)}

    if successor(key) == start:
        return 0
    hops = 0
    while True:
        ahead = (key - start - 1) % SIZE  # candidates lie strictly between this node and the key
        between = [node for node in known(start) if node != start and (node - start - 1) % SIZE < ahead]
        if not between:
            return hops
        start = max(between, key=lambda node: (node - start) % SIZE)
        hops += 1


points = st.integers(0, SIZE - 1) | st.integers(0, 127).map(lambda n: n << 57)


@pytest.mark.slow
@given(
    ids=st.sets(points, min_size=1, max_size=9),
    keys=st.lists(points, min_size=1, max_size=4),
    digit_bits=st.sampled_from([1, 2, 4]),
    successors=st.integers(1, 4),
)
def test_paths_equal_those_of_the_pseudocode(ids: set[int], keys: list[int], digit_bits: int, successors: int) -> None:
    ring = BigRing(np.array(sorted(ids), np.uint64))
    for rank, node in enumerate(sorted(ids)):
        starts = np.full(len(keys), rank)
        found = ring.look_up(starts, np.array(keys, np.uint64), digit_bits=digit_bits, successors=successors).hops
        assert found.tolist() == [naive_path(sorted(ids), node, key, 1 << digit_bits, successors) for key in keys]


def test_worked_example_has_the_published_path() -> None:
    """Nodes 10 42 80 120 160 200 230 on a circle of 256: lookup(190) from 80 goes to 160 and ends at 200."""
    scaled = [node << 56 for node in (10, 42, 80, 120, 160, 200, 230)]
    ring = BigRing(np.array(scaled, np.uint64))
    key, start = np.array([190 << 56], np.uint64), np.array([2])
    assert ring.look_up(start, key).hops.tolist() == [1]
    assert ring.successor(key).tolist() == [5]
    starts = np.array([(80 << 56) + (1 << i) for i in range(56, 64)], np.uint64)
    fingers = {scaled[rank] >> 56 for rank in ring.successor(starts)}
    assert fingers == {120, 160, 230}
    assert ring.entries(start).tolist() == [3]
    assert ring.walk(start, key).tolist() == [2]


def test_walks_and_finger_counts_have_expected_means() -> None:
    rng = np.random.default_rng(1)
    ring = BigRing.draw(500, rng)
    starts, keys = ring.draw_lookups(2000, rng)
    assert ring.walk(starts, keys).mean() == pytest.approx(250, rel=0.05)
    assert ring.entries(np.arange(500)).mean() == pytest.approx(math.log2(500) + 0.3, abs=0.3)
    assert (ring.entries(np.arange(500), successors=499) == 499).all()
    assert ring.shares().sum() == pytest.approx(1)


def test_ring_without_distinct_points_is_refused() -> None:
    for ids in ([], [7, 7]):
        with pytest.raises(ValueError, match="at a point of its own"):
            BigRing(np.array(ids, np.uint64))


@given(points | st.integers(0, 64).map(lambda i: (1 << i) - 1) | st.integers(0, 63).map(lambda i: 1 << i))
def test_highest_bit_is_exact_beyond_float_precision(value: int) -> None:
    assert highest_bit(np.array([value], np.uint64)).tolist() == [max(value.bit_length() - 1, 0)]


# -- laws ---------------------------------------------------------------------------------------------


def measured(nodes: int, digit_bits: int = 1) -> tuple[float, float]:
    """The mean path length and its standard error, over many rings."""
    means = []
    for number in range(16):
        rng = np.random.default_rng([nodes, number])
        ring = BigRing.draw(nodes, rng)
        means.append(float(ring.look_up(*ring.draw_lookups(4000, rng), digit_bits=digit_bits).hops.mean()))
    return float(np.mean(means)), float(np.std(means, ddof=1)) / 4


def is_as_derived(nodes: int, digit_bits: int = 1) -> bool:
    mean, error = measured(nodes, digit_bits)
    return abs(mean - mean_path(nodes, digit_bits)) <= 4 * error


@pytest.mark.parametrize(("nodes", "digit_bits"), [(1 << 12, 1), (1 << 14, 1), (1 << 12, 2), (1 << 12, 4)])
def test_mean_path_equals_the_derived_one(nodes: int, digit_bits: int) -> None:
    assert is_as_derived(nodes, digit_bits)


def test_planted_bug_in_the_mean_path_is_caught() -> None:
    def the_next_finger_is_forgotten(ring: BigRing, here: Ranks, goal: Ranks, digit_bits: int) -> tuple[Ranks, Ranks]:
        level = highest_bit(ring.ids[goal] - ring.ids[here])
        level = np.where(level == 61, 60, level)
        return ring.successor(ring.ids[here] + (np.uint64(1) << level.astype(np.uint64))), level

    with mock.patch.object(BigRing, "closest_finger", the_next_finger_is_forgotten):
        assert not is_as_derived(1 << 12)


def test_path_constant_has_the_computed_value() -> None:
    assert path_constant() == pytest.approx(-0.138, abs=0.0005)
    use = finger_use()
    assert use[10] == pytest.approx(0.5, abs=0.001)
    assert all(use[unit] < use[unit + 1] for unit in range(-20, 12))


def test_lookups_with_half_of_the_nodes_dead_find_the_owner() -> None:
    rng = np.random.default_rng(4)
    ring = BigRing.draw(5000, rng)
    is_dead = rng.random(5000) < 0.5
    living = np.flatnonzero(~is_dead)
    keys = bigring.draw_points(3000, rng)
    starts = rng.choice(living, 3000)
    found = look_up_past_the_dead(ring, is_dead, starts, keys, successors=20)
    owners = living[np.searchsorted(living, ring.successor(keys)) % len(living)]
    assert (found.owners == owners).all()
    nobody_dies = look_up_past_the_dead(ring, np.zeros(5000, bool), starts, keys, successors=20)
    assert not nobody_dies.timeouts.any()
    assert (nobody_dies.hops == ring.look_up(starts, keys, successors=20).hops).all()
    short = look_up_past_the_dead(ring, is_dead, starts, keys, successors=2)
    assert (short.owners == NO_OWNER).mean() > 0.1, "with a list of two, both are often dead"

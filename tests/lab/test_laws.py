"""Dynamo's partitions, the laws to which measurements are compared, and the statistics of the comparison."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chord.lab.bigring import BigRing
from chord.lab.experiments.common import moved
from chord.lab.experiments.jump import bucket_shares
from chord.lab.experiments.strategies import (
    BUDGETS,
    NODES,
    Partitions,
    by_equal_parts,
    by_shared_parts,
    by_token,
    efficiency,
    laid_out,
    metadata_bytes,
    shares,
)
from chord.lab.numbers import central, chi_square, fit_power, mean_error, spread
from chord.lab.theory import expected_heirs, harmonic, key_deviation, probed_peak, share_deviation


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


# -- partitions ---------------------------------------------------------------------------------------


def naive_shares(found: Partitions, nodes: int, copies: int) -> list[float]:
    """Walk clockwise from each partition's end until enough distinct nodes are met."""
    stored = [0.0] * nodes
    for size, first in zip(found.sizes.tolist(), found.first.tolist(), strict=True):
        met: list[int] = []
        for step in range(len(found.walk)):
            owner = int(found.walk[(first + step) % len(found.walk)])
            if owner not in met and len(met) < copies:
                met.append(owner)
        for owner in met:
            stored[owner] += size
    return stored


@given(nodes=st.integers(1, 6), tokens=st.integers(1, 5), copies=st.integers(1, 7), seed=st.integers(0, 99))
def test_stored_shares_equal_those_of_a_walk(nodes: int, tokens: int, copies: int, seed: int) -> None:
    dice = np.random.default_rng(seed)
    for found in (
        by_token(nodes, tokens, dice),
        by_equal_parts(nodes, tokens, 4 * nodes * tokens, dice),
        by_shared_parts(nodes, nodes * tokens, dice),
    ):
        assert found.sizes.sum() == pytest.approx(1)
        assert (found.sizes >= 0).all()
        stored = shares(found, nodes, copies)
        assert stored.tolist() == pytest.approx(naive_shares(found, nodes, copies))
        assert stored.sum() == pytest.approx(min(copies, nodes))


def test_shared_partitions_differ_by_at_most_one() -> None:
    found = by_shared_parts(7, 30, rng())
    assert sorted(np.bincount(found.walk).tolist()) == [4, 4, 4, 4, 4, 5, 5]
    assert efficiency(shares(by_shared_parts(5, 40, rng()), 5, 1)) == pytest.approx(1)
    with pytest.raises(ValueError, match="too few"):
        by_shared_parts(5, 4, rng())


def test_equal_partition_belongs_to_the_next_token_clockwise() -> None:
    found = by_equal_parts(4, 3, 50, rng())
    tokens = np.sort(rng().random(12))
    for part, first in enumerate(found.first.tolist()):
        after = tokens[tokens >= (part + 1) / 50]
        assert tokens[first] == (after[0] if len(after) else tokens[0])


@pytest.mark.parametrize("budget", BUDGETS)
def test_strategies_are_compared_at_equal_metadata(budget: int) -> None:
    for strategy in (1, 2, 3):
        size = metadata_bytes(strategy, NODES, *laid_out(strategy, NODES, budget))  # type: ignore[arg-type]
        assert 0.8 * budget <= size <= budget


def test_efficiency_is_the_mean_over_the_maximum() -> None:
    assert efficiency(np.array([1.0, 1.0, 4.0])) == 0.5


# -- laws ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "vnodes"), [(5, 1), (10, 4), (100, 20)])
def test_share_deviation_equals_that_of_random_points(nodes: int, vnodes: int) -> None:
    dice = rng()
    squares = []
    for _ in range(400):
        gaps = BigRing.draw(nodes * vnodes, dice).shares()
        dice.shuffle(gaps)
        squares.append(float(gaps.reshape(nodes, vnodes).sum(axis=1).var() * nodes**2))
    mean, error = mean_error(squares)
    assert mean == pytest.approx(share_deviation(nodes, vnodes) ** 2, abs=4 * error)
    assert abs(mean - 1 / vnodes) > 4 * error or nodes == 100, "for few nodes it is not 1 / v"


def test_laws_have_their_published_values() -> None:
    assert share_deviation(1000, 100) == pytest.approx(0.1, rel=0.01)
    assert share_deviation(1000, 1000) == pytest.approx(0.0316, rel=0.01)
    assert key_deviation(21, 1_000_000) * 1_000_000 / 21 == pytest.approx(213, abs=0.5)
    assert expected_heirs(100, 1) == pytest.approx(1)
    assert expected_heirs(100, 10_000) == pytest.approx(99)
    assert expected_heirs(2, 5) == 1
    assert harmonic(4) == pytest.approx(25 / 12)
    assert probed_peak(21) == pytest.approx(1.05)
    assert probed_peak(1) == math.inf


@pytest.mark.parametrize(("buckets", "dice"), [(1, 4), (3, 4), (5, 8), (6, 5)])
def test_shares_of_jump_equal_those_of_its_random_steps(buckets: int, dice: int) -> None:
    """With few possible random numbers, the test can try all of them."""
    ends = [0.0] * buckets

    def jump(bucket: int, probability: float) -> None:
        for side in range(1, dice + 1):
            there = (bucket + 1) * dice // side
            if there < buckets:
                jump(there, probability / dice)
            else:
                ends[bucket] += probability / dice

    jump(0, 1.0)
    assert bucket_shares(buckets, dice).tolist() == pytest.approx(ends)
    assert np.abs(bucket_shares(buckets) * buckets - 1).max() < 2 * buckets / 2**31


# -- statistics ---------------------------------------------------------------------------------------


def test_power_law_fit_has_the_right_error() -> None:
    dice = rng()
    x = [1, 2, 5, 10, 20, 50, 100]
    exact = fit_power(x, [3 * v**-0.5 for v in x])
    assert (exact.slope, exact.error) == pytest.approx((-0.5, 0), abs=1e-9)
    assert math.exp(exact.height) == pytest.approx(3)
    far = 0
    for _ in range(200):
        line = fit_power(x, [v**-0.5 * math.exp(dice.normal(0, 0.05)) for v in x])
        far += abs(line.slope + 0.5) > 2 * line.error
    assert 0.02 < far / 200 < 0.2, "two standard errors of five degrees of freedom"


@pytest.mark.parametrize("buckets", [10, 100, 1000])
def test_chi_square_finds_a_planted_skew(buckets: int) -> None:
    dice = rng()
    expected = np.full(buckets, 1000.0)
    fair = [chi_square(dice.multinomial(1000 * buckets, np.full(buckets, 1 / buckets)), expected).p for _ in range(200)]
    assert np.mean(np.array(fair) < 0.1) == pytest.approx(0.1, abs=0.07)
    assert np.mean(fair) == pytest.approx(0.5, abs=0.07)
    skewed = np.full(buckets, 1.0)
    skewed[: buckets // 2] = 1.1
    counts = dice.multinomial(10_000 * buckets, skewed / skewed.sum())
    assert chi_square(counts, 10 * expected).p < 1e-6


def test_spread_and_central_range_have_known_values() -> None:
    found = spread(np.array([10, 20, 30]))
    assert (found.mean, found.most) == (20, 1.5)
    assert found.std == pytest.approx(math.sqrt(200 / 3))
    assert found.deviation == pytest.approx(found.std / 20)
    weighted = spread(np.array([10, 20, 40]), np.array([1.0, 2.0, 4.0]))
    assert (weighted.std, weighted.most) == pytest.approx((0, 1))
    assert central(list(range(1001)), 0.99) == pytest.approx((5, 995))


def test_moved_keys_are_counted_with_those_of_old_nodes() -> None:
    before = np.array([0, 0, 1, 1, 2, 2])
    grown = np.array([0, 3, 1, 0, 2, 3])  # two to the newcomer, one from 1 to 0
    assert moved(before, grown, np.arange(3)) == (0.5, 1)
    gone = np.array([0, 0, 0, 1, 1, 0])  # 1 went; 2 is 1 now; its keys go anywhere; one of 2's keys should have stayed
    assert moved(before, gone, np.array([0, -1, 1])) == (0.5, 1)

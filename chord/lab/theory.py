"""Formulas that the lab's measurements are compared with."""

from __future__ import annotations

import math
from functools import cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

CELLS = 1 << 14
GAPS_LOG2_MAX = 16
GAPS_LOG2_MIN = -24


# -- path lengths -------------------------------------------------------------------------------------


@cache
def finger_use(digit_bits: int = 1) -> dict[int, float]:
    """Return the probability that a lookup uses a finger, for each digit of the distance to its goal.

    A finger of base b skips a multiple of a power of b. The digit is that power's place in the remaining distance to
    the key's predecessor, which is uniform at first. A lookup takes a finger of a digit exactly if that digit of the
    distance is not zero.

    The lookup reaches the finger's start exactly, but the finger's node lies a gap behind the start. That gap is
    exponential with mean 1, and at most the remaining distance. The function therefore carries the density of the
    remaining distance from digit to digit. The part below the digit stays. Each part above it moves down by j b**i and
    then loses an exponential.

    If the digits are much wider than a gap, the density stays uniform, and (b - 1) / b of the lookups take a finger.
    If they are narrower, the lookup has more and more often reached the predecessor already.

    Args:
        digit_bits: the base of the fingers is b = 2**digit_bits.

    Returns:
        probabilities by the log2 of the digit's unit in mean gaps between nodes. The keys are the multiples of
        `digit_bits` above -24 and below 16.
    """
    base = 1 << digit_bits
    top = GAPS_LOG2_MAX - GAPS_LOG2_MAX % digit_bits
    density = np.full(CELLS, 2.0**-top)  # of the remaining distance, over 0 to `base` units
    part, found = CELLS // base, {}
    for unit in range(top - digit_bits, GAPS_LOG2_MIN, -digit_bits):
        cell = 2.0**unit / part
        parts = density.reshape(base, part)
        found[unit] = float(parts[1:].sum() * cell)
        left = parts[0] + sum(_minus_exponential(moved, cell) for moved in parts[1:])
        density = np.repeat(left, base)
    return found


def _minus_exponential(density: NDArray[np.float64], cell: float) -> NDArray[np.float64]:
    """Return the density of max(0, X - G) with G exponential of mean 1.

    X is the remaining distance of a lookup, and G the gap behind a finger's start. Mass that falls to 0 is left out,
    because that lookup has arrived. The density is constant within each cell, so the integral is exact. The result is
    the mean over each cell.

    Args:
        density: the density of X in each cell.
        cell: the width of a cell, in mean gaps.
    """
    kept = math.exp(-cell)
    right = np.fromiter(accumulate(density[::-1], lambda c, d: c * kept + d * (1 - kept), initial=0.0), np.float64)[:-1]
    means: NDArray[np.float64] = density[::-1] + (right - density[::-1]) * (-math.expm1(-cell) / cell)
    return means[::-1]


@cache
def path_constant(digit_bits: int = 1) -> float:
    """Return the mean path length minus (1 - 1/b) log_b N, on rings with fingers only.

    N is the number of nodes, and b = 2**digit_bits the base of the fingers. The value holds for large rings. Digits
    wider than a gap are used slightly less often than the share (b - 1) / b. Narrower digits are used sometimes. For b
    = 2 the two effects add up to -0.138.
    """
    full = 1 - 0.5**digit_bits
    return sum(used - (full if unit >= 0 else 0.0) for unit, used in finger_use(digit_bits).items())


def mean_path(nodes: int, digit_bits: int = 1) -> float:
    """Return the mean path length of lookups in hops, on a large ring of `nodes` nodes with fingers only.

    The fingers are of base 2**digit_bits.
    """
    return (1 - 0.5**digit_bits) * math.log2(nodes) / digit_bits + path_constant(digit_bits)


# -- shares of a ring ---------------------------------------------------------------------------------


def share_deviation(nodes: int, vnodes: int) -> float:
    """Return the standard deviation of the nodes' shares of the circle, over the mean share.

    The n v points of n nodes with v vnodes each cut the circle into n v arcs, uniformly at random. A node has v of the
    arcs, so its share follows Beta(v, (n - 1) v). For many nodes the result is about 1 / sqrt(v): 10 % at 100 vnodes,
    3.2 % at 1000.

    Args:
        nodes: n, the number of nodes.
        vnodes: v, the number of vnodes per node.
    """
    return math.sqrt((nodes - 1) / (nodes * vnodes + 1))


def probed_peak(probes: int) -> float:
    """Return the largest share of a node over the mean share, under multi-probe hashing with `probes` probes per key.

    The value holds for large rings. For one probe per key it is infinite.

    Source: Appleton and O'Reilly 2015: 1.05 with 21 probes.
    """
    return probes / (probes - 1) if probes > 1 else math.inf


def probed_deviation(probes: int) -> float:
    """Return the standard deviation of the nodes' shares over the mean share, under multi-probe hashing.

    The value holds for large rings. Let k be `probes`, the probes per key. A node behind a gap of g mean gaps has (1 -
    e^(-(k - 1) g)) k / (k - 1) of the mean. The gap g is exponential.
    """
    if probes == 1:
        return 1.0
    return math.sqrt(probed_peak(probes) ** 2 * (1 - 2 / probes + 1 / (2 * probes - 1)) - 1)


def collision_chance(points: int, drawn: int) -> float:
    """Return the probability that two of `drawn` random points are the same.

    Args:
        points: number of points on the circle, all equally likely.
        drawn: number of draws, up to some millions.
    """
    return 1.0 if drawn > points else -math.expm1(float(np.log1p(-np.arange(drawn) / float(points)).sum()))


def key_deviation(nodes: int, keys: int) -> float:
    """Return the standard deviation of keys per node over the mean, if each key picks a random node."""
    return math.sqrt((nodes - 1) / keys)


def expected_heirs(nodes: int, vnodes: int) -> float:
    """Return the expected number of different nodes that take over arcs of a failed node.

    Each of the failed node's arcs goes to any of the other nodes with the same probability.

    Args:
        nodes: number of nodes before the failure.
        vnodes: number of arcs per node.
    """
    others = nodes - 1
    return others * -math.expm1(vnodes * math.log1p(-1 / others)) if others > 1 else float(others)


def harmonic(number: int) -> float:
    """Return the harmonic number H(n) = 1 + 1/2 + … + 1/n."""
    return math.fsum(1 / k for k in range(1, number + 1))

"""What ought to come out: laws that the lab's measurements are held against."""

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
    """Return how likely a look-up takes a finger of each digit, by the digit's unit: 2**key mean gaps between nodes.

    A look-up has a distance left to the key's predecessor, which is uniform at first. It takes a finger of a digit
    exactly if that digit of the distance is not zero. The finger's start is hit exactly, but the node it points to
    lies some gap behind it: an exponential, of mean 1, and no more than what is left. So the density of what is left is
    carried from digit to digit: the part below the digit stays, each part above moves down by j b**i and then loses an
    exponential. Where the digits are much wider than a gap this leaves it uniform, and (b - 1) / b of the look-ups take
    a finger. Where they are narrower, the predecessor has already been reached, ever more surely.

    Args:
        digit_bits: fingers of base b = 2**digit_bits.
    Returns: probabilities, for all units that are multiples of the digit from 2**-24 to less than 2**16 gaps.
    """
    base = 1 << digit_bits
    top = GAPS_LOG2_MAX - GAPS_LOG2_MAX % digit_bits
    density = np.full(CELLS, 2.0**-top)  # of the distance left, over 0 to `base` units
    part, found = CELLS // base, {}
    for unit in range(top - digit_bits, GAPS_LOG2_MIN, -digit_bits):
        cell = 2.0**unit / part
        parts = density.reshape(base, part)
        found[unit] = float(parts[1:].sum() * cell)
        left = parts[0] + sum(_minus_exponential(moved, cell) for moved in parts[1:])
        density = np.repeat(left, base)
    return found


def _minus_exponential(density: NDArray[np.float64], cell: float) -> NDArray[np.float64]:
    """Return the density of max(0, X - G), G exponential of mean 1; what falls to 0 is left out: it has arrived.

    The density is constant within each cell, and so it is integrated exactly; the result is its mean over each cell.
    """
    kept = math.exp(-cell)
    right = np.fromiter(accumulate(density[::-1], lambda c, d: c * kept + d * (1 - kept), initial=0.0), np.float64)[:-1]
    means: NDArray[np.float64] = density[::-1] + (right - density[::-1]) * (-math.expm1(-cell) / cell)
    return means[::-1]


@cache
def path_constant(digit_bits: int = 1) -> float:
    """Return by how much the mean path length differs from (1 - 1/b) log_b N, on large rings of fingers alone.

    Of the digits that are wider than a gap, a little fewer are used than the share (b - 1) / b; of the narrower ones, a
    few are. What is missing above and what is added below comes to -0.138 for b = 2.
    """
    full = 1 - 0.5**digit_bits
    return sum(used - (full if unit >= 0 else 0.0) for unit, used in finger_use(digit_bits).items())


def mean_path(nodes: int, digit_bits: int = 1) -> float:
    """Return the mean path length on a large ring by fingers of base 2**digit_bits."""
    return (1 - 0.5**digit_bits) * math.log2(nodes) / digit_bits + path_constant(digit_bits)


# -- shares of a ring ---------------------------------------------------------------------------------


def share_deviation(nodes: int, vnodes: int) -> float:
    """Return the standard deviation of a node's share of a ring, over the mean share.

    The n v points cut the circle into n v arcs, uniformly at random; a node has v of them, so its share follows
    Beta(v, (n - 1) v). For many nodes this is 1 / sqrt(v): 10 % at 100, 3.2 % at 1000.
    """
    return math.sqrt((nodes - 1) / (nodes * vnodes + 1))


def probed_peak(probes: int) -> float:
    """Return the largest share over the mean with so many probes, on a large ring; infinite with one.

    Source: Appleton and O'Reilly 2015: with 21 probes, 1.05.
    """
    return probes / (probes - 1) if probes > 1 else math.inf


def probed_deviation(probes: int) -> float:
    """Return the standard deviation of the shares over the mean on a large ring with so many probes.

    A node behind g mean gaps has (1 - e^(-(k - 1) g)) k / (k - 1) of the mean, and g is exponential.
    """
    if probes == 1:
        return 1.0
    return math.sqrt(probed_peak(probes) ** 2 * (1 - 2 / probes + 1 / (2 * probes - 1)) - 1)


def key_deviation(nodes: int, keys: int) -> float:
    """Return the standard deviation of a node's number of keys, over the mean, that chance gives to equal shares."""
    return math.sqrt((nodes - 1) / keys)


def expected_heirs(nodes: int, vnodes: int) -> float:
    """Return how many of the others inherit from a node that fails, if each of its v arcs goes to any of them."""
    others = nodes - 1
    return others * -math.expm1(vnodes * math.log1p(-1 / others)) if others > 1 else float(others)


def harmonic(number: int) -> float:
    """Return H(n) = 1 + 1/2 + … + 1/n."""
    return math.fsum(1 / k for k in range(1, number + 1))

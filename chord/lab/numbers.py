"""What is said of many numbers: how they spread, on which line they lie, whether chance explains them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Spread(NamedTuple):
    """How loads differ from node to node; all but the first two over the mean.

    Attributes:
        mean: keys of a node.
        std: their standard deviation over the nodes there are; a population, not a sample.
        most: the largest load.
        low, high: 1st and 99th percentile.
    """

    mean: float
    std: float
    most: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        """The standard deviation over the mean."""
        return self.std / self.mean


def spread(loads: NDArray[Any], weights: NDArray[np.float64] | None = None) -> Spread:
    """Return how loads spread; with weights, of what each is over what its weight asks for, times the mean."""
    mean = float(loads.mean())
    fair = loads.astype(np.float64) if weights is None else loads / (weights / weights.mean())
    low, high = np.quantile(fair, [0.01, 0.99])
    return Spread(mean, float(fair.std()), float(fair.max()) / mean, float(low) / mean, float(high) / mean)


class Line(NamedTuple):
    """A straight line through points: its slope with its standard error, and its height at 0."""

    slope: float
    error: float
    height: float


def fit_power(x: Sequence[float], y: Sequence[float]) -> Line:
    """Return the line through log y against log x, by least squares: y = e**height * x**slope.

    Args:
        x, y: positive; three points or more.
    """
    u, v = np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64))
    du = u - u.mean()
    slope = float(du @ v / (du @ du))
    height = float(v.mean() - slope * u.mean())
    left = v - (height + slope * u)
    error = math.sqrt(float(left @ left) / (len(u) - 2) / float(du @ du))
    return Line(slope, error, height)


class Chance(NamedTuple):
    """How far counts are from what was expected, and how likely chance alone takes them as far or farther."""

    statistic: float
    p: float


def chi_square(counts: NDArray[Any], expected: NDArray[np.float64]) -> Chance:
    """Return Pearson's test of counts against what was expected; of both the sum is the same.

    The p-value is good to 0.001 from ten degrees of freedom on.
    """
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return Chance(statistic, 0.5 * math.erfc(sigmas_of_chi_square(statistic, len(counts) - 1) / math.sqrt(2)))


def sigmas_of_chi_square(statistic: float, freedom: int) -> float:
    """Return how many sigmas of a normal law are as unlikely as this chi-square.

    After Wilson and Hilferty (1931): the cube root of chi-square over its degrees of freedom is nearly normal.
    """
    spread_of_root = 2 / (9 * freedom)
    root = math.pow(statistic / freedom, 1 / 3)
    return (root - (1 - spread_of_root)) / math.sqrt(spread_of_root)


def central(values: Sequence[float], share: float) -> tuple[float, float]:
    """Return the range in which the central share of the values lies."""
    low, high = np.quantile(np.asarray(values, np.float64), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def mean_error(values: Sequence[float] | NDArray[Any]) -> tuple[float, float]:
    """Return the mean of two values or more, and its standard error."""
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.std(ddof=1)) / math.sqrt(len(array))


def errors_allowed(groups: int, sigmas: float) -> float:
    """Return how many standard errors, taken between so many groups, are as unlikely as so many sigmas of a normal law.

    Few groups tell their own error badly, so that it is Student's law with groups - 1 degrees of freedom: of 4 sigmas
    it makes 4.5 for 40 groups, 5.5 for 16. By the expansion of Cornish and Fisher (Abramowitz, Stegun 1964, 26.7.5);
    for the sigmas used here, and from 8 groups on, it is good to 2 %.
    """
    z, freedom = sigmas, groups - 1
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / math.pow(freedom, power) for power, term in enumerate(terms))

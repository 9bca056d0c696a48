"""Statistics with NumPy: evenness of loads, fitted lines, tests against chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chord.lab.harness.statistics import Spread


def spread(loads: NDArray[Any], weights: NDArray[np.float64] | None = None) -> Spread:
    """Return how evenly loads are spread over the nodes.

    Args:
        loads: the load of each node, shape (n,).
        weights: the weight of each node, shape (n,). Each load is first divided by its weight over the mean weight.
            Only the mean is still that of the loads as given. None: the loads are taken as they are.
    """
    mean = float(loads.mean())
    fair = loads.astype(np.float64) if weights is None else loads / (weights / weights.mean())
    low, high = np.quantile(fair, [0.01, 0.99])
    return Spread(mean, float(fair.std()), float(fair.max()) / mean, float(low) / mean, float(high) / mean)


class Line(NamedTuple):
    """A straight line fitted to points.

    Attributes:
        slope: the slope.
        error: the standard error of the slope.
        height: the value of the line at 0.
    """

    slope: float
    error: float
    height: float


def fit_power(x: Sequence[float], y: Sequence[float]) -> Line:
    """Fit a power law to points: the least-squares line in a log-log plot.

    The power law is y = e**height * x**slope.

    Args:
        x: positive numbers, three or more.
        y: positive numbers, as many as in `x`.
    """
    u, v = np.log(np.asarray(x, np.float64)), np.log(np.asarray(y, np.float64))
    du = u - u.mean()
    slope = float(du @ v / (du @ du))
    height = float(v.mean() - slope * u.mean())
    left = v - (height + slope * u)
    error = math.sqrt(float(left @ left) / (len(u) - 2) / float(du @ du))
    return Line(slope, error, height)


class Chance(NamedTuple):
    """The result of a test of counts against expected counts.

    Attributes:
        statistic: the value of chi-square.
        p: the p-value: the probability that chance alone gives at least this statistic.
    """

    statistic: float
    p: float


def chi_square(counts: NDArray[Any], expected: NDArray[np.float64]) -> Chance:
    """Return Pearson's chi-square test of counts against expected counts.

    The p-value is accurate to 0.001 from ten degrees of freedom on.

    Args:
        counts: observed counts, shape (n,).
        expected: expected counts, shape (n,), with the same sum.
    """
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return Chance(statistic, 0.5 * math.erfc(sigmas_of_chi_square(statistic, len(counts) - 1) / math.sqrt(2)))


def sigmas_of_chi_square(statistic: float, freedom: int) -> float:
    """Convert a chi-square value to the sigmas of a normal law with the same p-value.

    Args:
        statistic: the value of chi-square.
        freedom: its degrees of freedom.

    Source: Wilson and Hilferty 1931: the cube root of chi-square over its degrees of freedom is nearly normal.
    """
    spread_of_root = 2 / (9 * freedom)
    root = math.pow(statistic / freedom, 1 / 3)
    return (root - (1 - spread_of_root)) / math.sqrt(spread_of_root)


def central(values: Sequence[float], share: float) -> tuple[float, float]:
    """Return the lowest and the highest value of the central `share` of a sample.

    Args:
        values: any sample, not necessarily ordered.
        share: fraction of the values inside the range, 0 to 1.
    """
    low, high = np.quantile(np.asarray(values, np.float64), [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def mean_error(values: Sequence[float] | NDArray[Any]) -> tuple[float, float]:
    """Return the mean of a sample of two or more values, and the standard error of the mean."""
    array = np.asarray(values, np.float64)
    return float(array.mean()), float(array.std(ddof=1)) / math.sqrt(len(array))

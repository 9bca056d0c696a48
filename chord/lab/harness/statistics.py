"""The statistics of the experiments: means with errors, percentiles, evenness.

This module needs no library. `chord.lab.numbers` has the statistics that need NumPy.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, zip_longest
from statistics import fmean, pstdev, stdev
from typing import NamedTuple, TypeAlias

Counts: TypeAlias = tuple[int, ...]
"""How often each value occurred: the entry at index v is for the value v."""

GROUPS_MIN = 4
"""Smallest number of groups (rings) that give a usable standard error."""


CONFIDENCE = 0.95


class Summary(NamedTuple):
    """The mean of a sample, its standard error, and two percentiles.

    Attributes:
        mean: mean of all values.
        error: standard error of the mean.
        low: 1st percentile of the values.
        high: 99th percentile of the values.
    """

    mean: float
    error: float
    low: float
    high: float


def summarize(samples: Sequence[Sequence[float]]) -> Summary:
    """Return the summary of samples that were drawn in groups (one group per ring).

    Lookups on one ring are correlated. With at least `GROUPS_MIN` groups, the standard error therefore comes from the
    differences between the means of the groups. With fewer groups, all values count as independent. The error of a
    single value is infinite. Empty groups are ignored, and there must be at least one value.
    """
    groups = [group for group in samples if group]
    values = sorted(value for group in groups for value in group)
    if len(groups) >= GROUPS_MIN:
        error = stdev(fmean(group) for group in groups) / math.sqrt(len(groups))
    else:
        error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    return Summary(fmean(values), error, percentile(values, 0.01), percentile(values, 0.99))


def summarize_counts(groups: Sequence[Counts]) -> Summary:
    """Return the summary of whole numbers, as `summarize` does.

    Args:
        groups: a histogram per group: entry i counts the number i.
    """
    pooled = [sum(each) for each in zip_longest(*groups, fillvalue=0)]
    total = sum(pooled)
    mean = _mean(pooled)
    if len(groups) >= GROUPS_MIN:
        error = stdev(_mean(group) for group in groups) / math.sqrt(len(groups))
    else:
        square = sum(count * (value - mean) ** 2 for value, count in enumerate(pooled))
        error = math.sqrt(square / (total - 1) / total) if total > 1 else math.inf
    low, high = (bisect_right(list(accumulate(pooled)), min(total - 1, int(share * total))) for share in (0.01, 0.99))
    return Summary(mean, error, low, high)


def _mean(counts: Sequence[int]) -> float:
    return sum(value * count for value, count in enumerate(counts)) / sum(counts)


def counted(values: Iterable[int]) -> Counts:
    """Return the histogram of whole numbers: entry i counts the value i."""
    found = Counter(values)
    return tuple(found[value] for value in range(max(found, default=-1) + 1))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of an ascending sample: one of its elements.

    A fraction `share` (0 to 1) of the sample lies below the element. Values are not interpolated.
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def per_10_000(count: float, of: int) -> float:
    """Return `count` out of `of` as a rate per 10,000; 0 if `of` is 0.

    The papers print failure rates in this unit.
    """
    return 10_000 * count / of if of else 0.0


def poisson_upper(count: int) -> float:
    """Return an upper bound of the expected number of events, if `count` were seen.

    The bound is the exact one-sided one of a Poisson mean, with 95 % confidence. With no event it is 2.996, the rule of
    three.
    """
    low, high = float(count), 4.0 * count + 10.0
    for _ in range(60):
        middle = (low + high) / 2
        term = total = math.exp(-middle)
        for k in range(1, count + 1):
            term *= middle / k
            total += term
        low, high = (middle, high) if total > 1 - CONFIDENCE else (low, middle)
    return high


class Spread(NamedTuple):
    """How evenly loads are spread over nodes.

    Attributes:
        mean: mean load of a node, in keys or as a share.
        std: standard deviation, in the unit of `mean`, over the whole population of nodes (not a sample).
        most: the largest load, over the mean.
        low: 1st percentile of the loads, over the mean.
        high: 99th percentile of the loads, over the mean.
    """

    mean: float
    std: float
    most: float
    low: float
    high: float

    @property
    def deviation(self) -> float:
        """The standard deviation of the loads over their mean."""
        return self.std / self.mean


def spread_of(loads: Sequence[float]) -> Spread:
    """Return how evenly loads are spread over nodes. `loads` has the load of each node, in any unit."""
    mean, ordered = fmean(loads), sorted(loads)
    low, high = percentile(ordered, 0.01), percentile(ordered, 0.99)
    return Spread(mean, pstdev(loads), ordered[-1] / mean, low / mean, high / mean)


def errors_allowed(groups: int, sigmas: float) -> float:
    """Return how many estimated standard errors are as unlikely as `sigmas` standard deviations.

    A standard error that is estimated from few groups is itself uncertain, so Student's law with groups - 1 degrees of
    freedom applies. Four sigmas become 4.5 standard errors for 40 groups, and 5.5 for 16. For the sigmas used here, and
    from 8 groups on, the result is accurate to 2 %.

    Args:
        groups: number of groups from which the standard error was estimated, at least 2.
        sigmas: allowed deviation under a normal law, in standard deviations.

    Source: the Cornish-Fisher expansion; Abramowitz and Stegun 1964, 26.7.5.
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

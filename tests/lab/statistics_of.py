"""The statistics the lab's tests judge samples by."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def chi_square(counts: ArrayLike, shares: ArrayLike) -> float:
    """Return how many standard deviations a chi-square statistic is above its mean (Wilson and Hilferty 1931)."""
    seen, expected = np.asarray(counts, dtype=float), np.asarray(shares, dtype=float) * np.sum(counts)
    freedom = len(seen) - 1
    statistic = float(((seen - expected) ** 2 / expected).sum())
    spread = 2 / (9 * freedom)
    return float(((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def off(share: float, expected: float, draws: int) -> float:
    """Return the distance of a sampled share from the expected one, in standard errors."""
    return abs(share - expected) / math.sqrt(max(expected * (1 - expected), 1e-12) / draws)

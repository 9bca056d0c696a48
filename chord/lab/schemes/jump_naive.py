"""Naive jump: simulate the growth from one bucket to n, with a coin for each step.

This is the definition, and `jump` is its fast form. The two draw different random numbers, so single keys have
different places. Their law is the same: uniform, P(same bucket at m and n) = m / n, H(n) jumps on average.
"""

from __future__ import annotations

import numpy as np

from chord.lab.hashing import Hashes, mix, mix_one, unit, units
from chord.lab.placement import Numbers, in_chunks
from chord.lab.schemes.numbered import Numbered


class NaiveJump(Numbered):
    """A key moves to bucket i with probability 1 / (i + 1), when that bucket opens.

    A look-up takes O(n) coins.

    Source: Lamping, Veach 2014 (arXiv:1406.2294), section 2; Kokorin, "Шардирование"; the exam notes "Распределенные
    системы", ticket 21.
    """

    scheme = "jump-naive"
    title = "jump, naive"
    source = "Lamping, Veach 2014"
    lookup_cost = "O(n)"
    memory_cost = "O(1)"

    def locate(self, point: int) -> int:
        """Return the last bucket that a hash moved to."""
        bucket = 0
        for opened in range(1, len(self._nodes)):
            if unit(mix_one(point, opened)) < 1 / (opened + 1):
                bucket = opened
        return bucket

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the last buckets that the hashes moved to."""
        found = np.zeros(len(hashes), dtype=np.intp)
        for opened in range(1, len(self._nodes)):
            np.copyto(found, opened, where=units(mix(hashes, opened)) < 1 / (opened + 1))
        return found

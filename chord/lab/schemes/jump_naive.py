"""Jump, the slow way: live through the growth from one bucket to n, with a coin for every step.

The definition of which `jump` is the fast form. The two draw different random numbers, so they place single keys
differently and are the same in law: uniform, P(same bucket at m and n) = m / n, H(n) jumps on average.
"""

from __future__ import annotations

import numpy as np

from chord.lab.hashing import Hashes, mix, mix_one, unit, units
from chord.lab.placement import CHUNK, Numbers
from chord.lab.schemes.numbered import Numbered


class NaiveJump(Numbered):
    """A key moves to bucket i, when that is opened, with probability 1 / (i + 1); O(n) coins a look-up.

    Source: Lamping, Veach 2014 (arXiv:1406.2294), section 2; the first two source texts.
    """

    scheme = "jump-naive"
    title = "jump, naive"
    source = "Lamping, Veach 2014"
    lookup_cost = "O(n)"
    memory_cost = "O(1)"

    def locate(self, point: int) -> int:
        """Return the last bucket a hash moved to."""
        bucket = 0
        for opened in range(1, len(self._nodes)):
            if unit(mix_one(point, opened)) < 1 / (opened + 1):
                bucket = opened
        return bucket

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the last buckets the hashes moved to."""
        found = np.zeros(len(hashes), dtype=np.intp)
        for start in range(0, len(hashes), CHUNK):
            chunk, bucket = hashes[start : start + CHUNK], found[start : start + CHUNK]
            for opened in range(1, len(self._nodes)):
                np.copyto(bucket, opened, where=units(mix(chunk, opened)) < 1 / (opened + 1))
        return found

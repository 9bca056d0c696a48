"""Jump: seed random numbers with the key, and jump from bucket to bucket.

When j buckets become j + 1, a key should move with probability 1 / (j + 1), and only to the new bucket. A key that
moved to bucket b is still there at j buckets with probability (b + 1) / j. One random number r therefore gives the next
bucket at once: floor((b + 1) / r). The last bucket before the end wins. A lookup takes about ln n steps and no memory.
Buckets are numbers, and only the last can go.

The listing in Golubtsov 2024, "Алгоритмы шардинга (разделения) данных", starts with `b = 1`, the published one with
`b = -1`. Both overwrite `b` before its first use, so they agree for one bucket or more.
"""

from __future__ import annotations

import numpy as np

from chord.lab.hashing import MASK, Hashes, mix, mix_one, unit, units
from chord.lab.placement import Numbers, in_chunks
from chord.lab.schemes.numbered import Numbered

MULTIPLIER = 2862933555777941757
TOP = float(1 << 31)


class Jump(Numbered):
    """Jump consistent hash, as published; buckets are node numbers.

    The random numbers are the top 31 bits of a 64-bit linear congruential generator.

    Source: Lamping, Veach 2014 (arXiv:1406.2294), figure 1.
    """

    scheme = "jump"
    title = "jump"
    source = "Lamping, Veach 2014"
    lookup_cost = "O(log n)"
    memory_cost = "O(1)"

    def locate(self, point: int) -> int:
        """Return the last bucket that the hash jumps to, which is the node's number."""
        bucket, onward, buckets = 0, 0, len(self._nodes)
        while onward < buckets:
            bucket = onward
            point = (point * MULTIPLIER + 1) & MASK
            onward = int((bucket + 1) * (TOP / ((point >> 33) + 1)))
        return bucket

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the last bucket that it jumps to: the node's number."""
        found = np.zeros(len(hashes), dtype=np.intp)
        jumping, state, onward = np.arange(len(hashes)), hashes, found
        while len(jumping):
            found[jumping] = onward
            state = state * np.uint64(MULTIPLIER) + np.uint64(1)
            ratio = TOP / ((state >> np.uint64(33)) + np.uint64(1)).astype(np.float64)
            onward = ((onward + 1) * ratio).astype(np.intp)
            inside = onward < len(self._nodes)
            jumping, state, onward = jumping[inside], state[inside], onward[inside]
        return found


class NaiveJump(Numbered):
    """The definition of jump, computed bucket by bucket in O(n).

    When bucket i opens, a key moves there with probability 1 / (i + 1). `Jump` draws other random numbers, so single
    keys have other places. The law is the same: uniform, P(same bucket at m and n) = m / n, H(n) jumps on average.

    Source: Lamping, Veach 2014 (arXiv:1406.2294), section 2; Kokorin, "Шардирование"; the exam notes "Распределенные
    системы", ticket 21.
    """

    scheme = "jump-naive"
    title = "jump, naive"
    source = "Lamping, Veach 2014"
    lookup_cost = "O(n)"
    memory_cost = "O(1)"

    def locate(self, point: int) -> int:
        """Return the last bucket that a hash moved to, which is the node's number."""
        bucket = 0
        for opened in range(1, len(self._nodes)):
            if unit(mix_one(point, opened)) < 1 / (opened + 1):
                bucket = opened
        return bucket

    @in_chunks
    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the last bucket that it moved to: the node's number."""
        found = np.zeros(len(hashes), dtype=np.intp)
        for opened in range(1, len(self._nodes)):
            np.copyto(found, opened, where=units(mix(hashes, opened)) < 1 / (opened + 1))
        return found

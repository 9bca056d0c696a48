"""Weighted rendezvous: a race that each node wins as often as its weight says.

A node's time is exponential with its weight as the rate, -ln(u) / w for the uniform u that is its bid. The earliest of
such times is the i-th with probability w_i / W: the shares are exact, and a change of one weight moves keys to or from
that node only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import Hashes, mix, units
from chord.lab.placement import CHUNK, Numbers
from chord.lab.schemes.rendezvous import Rendezvous


class WeightedRendezvous(Rendezvous):
    """The node with the least -ln(u) / weight, u its bid as a number between 0 and 1.

    Source: Schindelhauer, Schomaker 2005 (SPAA), Weighted distributed hash tables: the logarithmic method.
    """

    scheme = "rendezvous-weighted"
    title = "rendezvous, weighted"
    source = "Schindelhauer, Schomaker 2005"
    has_weights = True

    @property
    def state_bytes(self) -> int:
        """Eight bytes for the hash of a name and eight for a weight."""
        return 16 * len(self._seeds)

    def shares(self) -> NDArray[np.float64]:
        """Return every node's part of the sum of weights."""
        weights = np.array(self._weights)
        return np.asarray(weights / weights.sum())

    def locate(self, point: int) -> int:
        """Return the first of the race."""
        return int(np.argmin(self._times_of(point)))

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the firsts of the races."""
        found = np.zeros(len(hashes), dtype=np.intp)
        for start in range(0, len(hashes), CHUNK):
            chunk = hashes[start : start + CHUNK]
            winner = found[start : start + CHUNK]
            least = self._times(chunk, 0)
            for number in range(1, len(self._seeds)):
                times = self._times(chunk, number)
                np.copyto(winner, number, where=times < least)
                np.minimum(least, times, out=least)
        return found

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first so many of the race."""
        first: list[int] = np.argsort(self._times_of(point), kind="stable")[:count].tolist()
        return first

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return the first so many of each race; shape (k, count)."""
        nodes, each = len(self._seeds), max(1, 16 * CHUNK // len(self._seeds))
        found = np.empty((len(hashes), min(count, nodes)), dtype=np.intp)
        for start in range(0, len(hashes), each):
            chunk = hashes[start : start + each]
            times = np.stack([self._times(chunk, number) for number in range(nodes)], axis=1)
            found[start : start + each] = np.argsort(times, axis=1, kind="stable")[:, : found.shape[1]]
        return found

    def reweigh(self, weights: Sequence[float]) -> None:
        """Give all nodes new weights, in the order of `nodes`: keys move to those that gain against those that lose.

        Raises: ValueError: a weight is not positive, or there is not one for each node.
        """
        if len(weights) != len(self._nodes):
            raise ValueError(f"{len(self._nodes)} nodes need as many weights, not {len(weights)}")
        self._weights = [self._checked(weight) for weight in weights]

    def _times(self, hashes: Hashes, number: int) -> NDArray[np.float64]:
        return np.log(units(self._bids(hashes, number))) / -self._weights[number]

    def _times_of(self, point: int) -> NDArray[np.float64]:
        """Return everybody's time for one hash: by NumPy too, whose logarithm is not in every last bit libm's."""
        bids = mix(np.array(self._seeds, dtype=np.uint64) + np.uint64(point))
        return np.asarray(np.log(units(bids)) / -np.array(self._weights))

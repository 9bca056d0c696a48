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

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first so many of the race."""
        first: list[int] = np.argsort(self._times_of(point), kind="stable")[:count].tolist()
        return first

    def reweigh(self, weights: Sequence[float]) -> None:
        """Give all nodes new weights, in the order of `nodes`: keys move to those that gain against those that lose.

        Raises: ValueError: a weight is not positive, or there is not one for each node.
        """
        if len(weights) != len(self._nodes):
            raise ValueError(f"{len(self._nodes)} nodes need as many weights, not {len(weights)}")
        self._weights = [self._checked(weight) for weight in weights]

    def _costs(self, hashes: Hashes, numbers: int | slice) -> NDArray[np.float64]:
        times = units(self._bids(hashes, numbers))
        np.log(times, out=times)
        times /= -np.array(self._weights[numbers])
        return times

    def _times_of(self, point: int) -> NDArray[np.float64]:
        """Return everybody's time for one hash: by NumPy too, whose logarithm is not in every last bit libm's."""
        bids = mix(np.array(self._seeds, dtype=np.uint64) + np.uint64(point))
        return np.asarray(np.log(units(bids)) / -np.array(self._weights))

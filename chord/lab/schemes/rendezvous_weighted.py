"""Weighted rendezvous: a race that each node wins in proportion to its weight.

A node's time is -ln(u) / w for its uniform bid u, which is exponential with its weight as the rate. Node i is first
with probability w_i / W, so the shares are exact. A change of one weight moves keys only to or from that node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import Hashes, mix, units
from chord.lab.schemes.rendezvous import Rendezvous


class WeightedRendezvous(Rendezvous):
    """The node with the least -ln(u) / weight, with its bid u between 0 and 1.

    Source: Schindelhauer, Schomaker 2005 (SPAA), Weighted distributed hash tables: the logarithmic method.
    """

    scheme = "rendezvous-weighted"
    title = "rendezvous, weighted"
    source = "Schindelhauer, Schomaker 2005"
    has_weights = True

    @property
    def state_bytes(self) -> int:
        """Eight bytes per node for the hash of its name, and eight for its weight."""
        return 16 * len(self._seeds)

    def shares(self) -> NDArray[np.float64]:
        """Return each node's weight over the sum of all weights."""
        weights = np.array(self._weights)
        return np.asarray(weights / weights.sum())

    def locate(self, point: int) -> int:
        """Return the first node of the race."""
        return int(np.argmin(self._times_of(point)))

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first `count` nodes of the race."""
        first: list[int] = np.argsort(self._times_of(point), kind="stable")[:count].tolist()
        return first

    def reweigh(self, weights: Sequence[float]) -> None:
        """Set the weights of all nodes, in the order of `nodes`.

        A key moves from one node to another only if the other's weight grows relative to the first's.

        Raises:
            ValueError: a weight is not positive, or the number of weights differs from that of nodes.
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
        """Return the time of each node for one hash.

        NumPy computes it here too, because its logarithm differs from libm's in the last bit.
        """
        bids = mix(np.array(self._seeds, dtype=np.uint64) + np.uint64(point))
        return np.asarray(np.log(units(bids)) / -np.array(self._weights))

"""Look-ups on a big ring after a share of the nodes died at once.

Source: Stoica et al. 2003 (ToN), Table II.

Nothing is repaired. A look-up detects a dead node by asking it, which costs a timeout. It remembers the nodes that it
has asked, and continues with the next best candidate of the last node that answered. Look-ups share no knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chord.lab.bigring import BigRing, Points, Ranks

NOBODY = -1


@dataclass(frozen=True)
class Detours:
    """The cost of look-ups; every field has shape (look-ups,).

    Attributes:
        hops: path length: live nodes that forwarded the look-up, from the start to the key's last living predecessor.
        timeouts: dead nodes asked, including those at the last step, from predecessor to owner.
        last_timeouts: dead nodes asked at the last step.
        owners: rank of the living node that was reached; -1 if the last node's whole list was dead.
    """

    hops: Ranks
    timeouts: Ranks
    last_timeouts: Ranks
    owners: Ranks


class _Asked:
    """The dead nodes that each look-up has asked."""

    def __init__(self, lookups: int) -> None:
        self.count = np.zeros(lookups, np.intp)
        self._ranks = np.full((lookups, 8), NOBODY, np.intp)

    def note(self, which: Ranks, ranks: Ranks) -> None:
        """Count a timeout for each of these look-ups that has not asked its node before."""
        new = (self._ranks[which] != ranks[:, None]).all(axis=1)
        which, ranks = which[new], ranks[new]
        if which.size and int(self.count[which].max()) == self._ranks.shape[1]:
            self._ranks = np.pad(self._ranks, ((0, 0), (0, 8)), constant_values=NOBODY)
        self._ranks[which, self.count[which]] = ranks
        self.count[which] += 1


def look_up_past_the_dead(
    ring: BigRing, is_dead: NDArray[np.bool_], starts: Ranks, keys: Points, *, successors: int
) -> Detours:
    """Look keys up with the fingers and successor lists from before the failures.

    Args:
        ring: the ring before the failures.
        is_dead: whether each node is dead, by rank, shape (N,).
        starts: ranks of living nodes, shape (L,).
        keys: points, shape (L,).
        successors: entries of each successor list.
    """
    nodes = len(ring)
    successors = min(successors, nodes - 1)
    owners = ring.successor(keys)
    at, hops, asked = starts.copy(), np.zeros(len(keys), np.intp), _Asked(len(keys))
    goals = (owners - 1) % nodes
    reach = (goals - at) % nodes  # candidates are the nodes up to `reach` steps ahead
    reach[owners == starts] = 0
    busy = np.flatnonzero(reach)
    while busy.size:
        here, ahead = at[busy], reach[busy]
        finger, _ = ring.closest_finger(here, (here + ahead) % nodes)
        step = np.maximum((finger - here) % nodes, np.minimum(ahead, successors))
        there = (here + step) % nodes
        dead = is_dead[there]
        asked.note(busy[dead], there[dead])
        live = busy[~dead]
        at[live] = there[~dead]
        hops[live] += 1
        # After a dead candidate, try the same node's next best one. After a live one, all nodes ahead are candidates.
        reach[busy] = np.where(dead, step - 1, (goals[busy] - there) % nodes)
        busy = busy[reach[busy] > 0]
    on_route = asked.count.copy()
    found = np.where(owners == starts, starts, NOBODY)
    for step in range(1, successors + 1):
        busy = np.flatnonzero((found == NOBODY) & ((goals - at) % nodes < step))
        there = (at[busy] + step) % nodes
        dead = is_dead[there]
        asked.note(busy[dead], there[dead])
        found[busy[~dead]] = there[~dead]
    return Detours(hops, asked.count, asked.count - on_route, found)

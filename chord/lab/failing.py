"""Look-ups on a big ring of which a share has died at once, with nothing repaired (ToN 2003, Table II).

A look-up finds out who is dead by asking: that is a timeout. It remembers whom it has asked, and goes on with the next
best candidate of the last node that answered. Other look-ups learn nothing of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chord.lab.bigring import BigRing, Points, Ranks

NOBODY = -1


@dataclass(frozen=True)
class Detours:
    """What look-ups took; all of shape (look-ups,).

    Attributes:
        hops: path length: live nodes that forwarded it, from the start to the key's last living predecessor.
        timeouts: dead nodes asked, those at the last step, from predecessor to owner, included.
        last_timeouts: of these, the ones at the last step.
        owners: rank of the living node that was reached, -1 where the last node's whole list was dead.
    """

    hops: Ranks
    timeouts: Ranks
    last_timeouts: Ranks
    owners: Ranks


class _Asked:
    """Whom each look-up has found dead."""

    def __init__(self, lookups: int) -> None:
        self.count = np.zeros(lookups, np.intp)
        self._ranks = np.full((lookups, 8), NOBODY, np.intp)

    def note(self, which: Ranks, ranks: Ranks) -> None:
        """Count a timeout of each of these look-ups, unless it has asked that node before."""
        new = (self._ranks[which] != ranks[:, None]).all(axis=1)
        which, ranks = which[new], ranks[new]
        if which.size and int(self.count[which].max()) == self._ranks.shape[1]:
            self._ranks = np.pad(self._ranks, ((0, 0), (0, 8)), constant_values=NOBODY)
        self._ranks[which, self.count[which]] = ranks
        self.count[which] += 1


def look_up_past_the_dead(
    ring: BigRing, is_dead: NDArray[np.bool_], starts: Ranks, keys: Points, *, successors: int
) -> Detours:
    """Look keys up by the fingers and lists of before the failures.

    Args:
        is_dead: by rank, shape (N,).
        starts: ranks of living nodes, shape (L,).
        keys: points, shape (L,).
        successors: entries of each list.
    """
    nodes = len(ring)
    successors = min(successors, nodes - 1)
    owners = ring.successor(keys)
    at, hops, asked = starts.copy(), np.zeros(len(keys), np.intp), _Asked(len(keys))
    goals = (owners - 1) % nodes
    reach = (goals - at) % nodes  # candidates are the nodes up to so many steps ahead
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
        # Past a dead candidate the next best of the same node is tried; from a living one on, all that lies ahead.
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

"""Models of rings too large for real nodes; NumPy computes all lookups at once.

The sorted ids are one array, and fingers are computed on demand. A point is a uint64, and the circle has 2**64 points.
With a million nodes the smallest gap is still about 10**7 points wide, so 160 bits would change nothing. A node is
identified by its rank, its index in the sorted ids.

The speed comes from one observation. A node forwards a lookup to the finger that most closely precedes the key. That
is the finger with the largest start at or before the key's predecessor p. Finger `start` points to the first node at or
after `start`, and that node lies at or before p exactly if `start` does. The highest digit of the distance to p
therefore selects the finger, and one binary search finds its node.

`look_up_past_the_dead` looks keys up after a share of the nodes died at once (ToN 2003, Table II). Nothing is repaired.
A lookup detects a dead node by asking it, which costs a timeout. It remembers the nodes that it has asked, and
continues with the next best candidate of the last node that answered. Lookups share no knowledge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

PointArray: TypeAlias = NDArray[np.uint64]
Ranks: TypeAlias = NDArray[np.intp]

BITS = 64
NO_OWNER = -1


@dataclass(frozen=True)
class Paths:
    """The hops of some lookups, and the fingers that these hops took.

    Attributes:
        hops: path length of each lookup: hops from the start to the key's predecessor. It is 0 if the start is that
            predecessor, or the owner.
        used: shape (64,). Entry i counts the hops over fingers that start 2**i to 2**(i + 1) - 1 points away. Hops
            along a successor list are not counted.
    """

    hops: Ranks
    used: NDArray[np.int64]


class BigRing:
    """A model of a ring in which every pointer is correct (an Ideal ring).

    A node is identified by its rank, its index in the sorted ids.

    Attributes:
        ids: the points of the nodes, ascending, shape (N,).
    """

    def __init__(self, ids: PointArray) -> None:
        """Make a ring of nodes at these points.

        Args:
            ids: shape (N,), in any order, no point twice.

        Raises:
            ValueError: there is no node, or two nodes share a point.
        """
        self.ids: PointArray = ids if bool((ids[1:] > ids[:-1]).all()) else np.sort(ids)
        if not len(ids) or bool((self.ids[1:] == self.ids[:-1]).any()):
            raise ValueError("a ring needs at least one node, and each node at a point of its own")

    @classmethod
    def draw(cls, nodes: int, rng: np.random.Generator) -> BigRing:
        """Return a ring of `nodes` nodes at uniformly random points."""
        ids = np.sort(draw_points(nodes, rng))
        while bool((ids[1:] == ids[:-1]).any()):
            ids = np.unique(ids)
            ids = np.sort(np.concatenate([ids, draw_points(nodes - len(ids), rng)]))
        return cls(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def successor(self, points: PointArray) -> Ranks:
        """Return the owner of each point, as a rank, in an array of the same shape.

        The owner is the first node at or after the point.
        """
        found = np.searchsorted(self.ids, points)
        found[found == len(self.ids)] = 0
        return found

    def shares(self) -> NDArray[np.float64]:
        """Return the share of the circle that each node owns, by rank; the sum is 1."""
        gaps = self.ids - np.roll(self.ids, 1)  # modulo 2**64, as the type wraps
        return np.ones(1) if len(self.ids) == 1 else gaps.astype(np.float64) / 2.0**BITS

    def draw_lookups(self, count: int, rng: np.random.Generator) -> tuple[Ranks, PointArray]:
        """Return `count` random start nodes (ranks) and `count` random keys."""
        return rng.integers(0, len(self.ids), count, dtype=np.intp), draw_points(count, rng)

    def look_up(self, starts: Ranks, keys: PointArray, *, digit_bits: int = 1, successors: int = 1) -> Paths:
        """Compute the paths of many lookups over fingers and successor lists.

        A node that owns the key answers at once, with a path of 0 hops.

        Args:
            starts: rank of the node that begins each lookup, shape (L,).
            keys: point that each lookup searches, shape (L,).
            digit_bits: fingers start j * b**i points away for 0 < j < b, with b = 2**digit_bits; 1 gives Chord's
                fingers.
            successors: length of the successor list, in nodes. A list of one equals finger 0 and adds nothing.

        Source: Stoica et al. 2001, Fig. 4 (b = 2). For other bases, section 4.2 of the 2003 paper (ToN) asks for b - 1
        fingers per digit, like Pastry's rows.
        """
        nodes = len(self.ids)
        owners = self.successor(keys)
        goals = (owners - 1) % nodes
        at, hops, used = starts.copy(), np.zeros(len(keys), np.intp), np.zeros(BITS, np.int64)
        busy = np.flatnonzero((owners != starts) & (goals != starts))
        while busy.size:
            here, goal = at[busy], goals[busy]
            there, level = self.closest_finger(here, goal, digit_bits)
            if successors > 1:
                by_finger = (there - here) % nodes
                by_list = np.minimum((goal - here) % nodes, successors)
                level = level[by_finger >= by_list]
                there = (here + np.maximum(by_finger, by_list)) % nodes
            used += np.bincount(level, minlength=BITS)
            at[busy] = there
            hops[busy] += 1
            busy = busy[there != goal]
        return Paths(hops, used)

    def closest_finger(self, here: Ranks, goal: Ranks, digit_bits: int = 1) -> tuple[Ranks, Ranks]:
        """Return the node of the last finger at or before each goal, and its level.

        Level i means that bit i is the highest bit of the distance from `here` to the goal.

        Args:
            here: ranks of the nodes that own the fingers, shape (L,).
            goal: ranks of the nodes to approach, shape (L,); each differs from its `here`.
            digit_bits: as in `look_up`.

        Returns:
            ranks and levels, each of shape (L,).
        """
        left = self.ids[goal] - self.ids[here]
        level = highest_bit(left)
        unit = (level - level % digit_bits).astype(np.uint64)
        return self.successor(self.ids[here] + (left >> unit << unit)), level

    def walk(self, starts: Ranks, keys: PointArray) -> Ranks:
        """Return the path length of each lookup, in hops, if nodes know only their successors.

        A path ends at the key's predecessor. A node that owns the key answers at once, with a path of 0 hops.

        Args:
            starts: rank of the node that begins each lookup, shape (L,).
            keys: point that each lookup searches, shape (L,).
        """
        owners = self.successor(keys)
        steps: Ranks = (owners - 1 - starts) % len(self.ids)
        return np.where(owners == starts, 0, steps)

    def entries(self, ranks: Ranks, *, digit_bits: int = 1, successors: int = 1) -> Ranks:
        """Return the size of each node's routing table, in distinct other nodes.

        The table consists of the fingers and the successor list.

        Args:
            ranks: the nodes, shape (n,).
            digit_bits: as in `look_up`.
            successors: length of the successor list, in nodes.

        Returns:
            shape (n,).
        """
        nodes = len(self.ids)
        seen = [(ranks + step) % nodes for step in range(1, min(successors, nodes - 1) + 1)]
        for shift in range(0, BITS, digit_bits):
            for digit in range(1, 1 << min(digit_bits, BITS - shift)):
                seen.append(self.successor(self.ids[ranks] + (np.uint64(digit) << np.uint64(shift))))
        table = np.sort(np.stack(seen), axis=0)
        is_new = np.ones(table.shape, bool)
        is_new[1:] = table[1:] != table[:-1]
        return np.asarray((is_new & (table != ranks)).sum(axis=0), np.intp)


def draw_points(count: int, rng: np.random.Generator) -> PointArray:
    """Return `count` uniformly random points of the circle; shape (count,)."""
    return rng.integers(0, 1 << BITS, count, dtype=np.uint64)


def highest_bit(values: PointArray) -> Ranks:
    """Return the index of the highest set bit of each value, 0 to 63.

    The result for the value 0 is 0. The shape stays the same.
    """
    # A float has 53 bits, so a number just below a power of two may round up to it. The guess is then one too high.
    guess = np.clip(np.frexp(values.astype(np.float64))[1].astype(np.intp) - 1, 0, BITS - 1)
    too_high = (values >> guess.astype(np.uint64)) == 0
    return np.asarray(np.maximum(guess - too_high, 0), np.intp)


# -- lookups among dead nodes -----------------------------------------------------------------------


@dataclass(frozen=True)
class Detours:
    """The paths and timeouts of lookups among dead nodes: arrays with one entry per lookup.

    Attributes:
        hops: path length: hops between live nodes, from the start to the last live node before the key.
        timeouts: number of different dead nodes that the lookup asked.
        last_timeouts: those of `timeouts` that it first asked at the last step. This step goes from the last live node
            before the key, along its successor list, to the owner.
        owners: rank of the live node that the lookup named as the owner. The rank is the node's index in the sorted
            ids of the ring before the failures, which include dead nodes. It is -1 if the whole successor list was
            dead at the last step.
    """

    hops: Ranks
    timeouts: Ranks
    last_timeouts: Ranks
    owners: Ranks


class _Asked:
    """For each lookup, the dead nodes that it has asked so far.

    Attributes:
        count: number of different dead nodes that each lookup has asked.
    """

    def __init__(self, lookups: int) -> None:
        self.count = np.zeros(lookups, np.intp)
        self._ranks = np.full((lookups, 8), NO_OWNER, np.intp)

    def note(self, which: Ranks, ranks: Ranks) -> None:
        """Add a dead node to each of these lookups, unless it has asked that node before.

        Args:
            which: indices of the lookups, none twice.
            ranks: the dead node that each of them asked.
        """
        new = (self._ranks[which] != ranks[:, None]).all(axis=1)
        which, ranks = which[new], ranks[new]
        if which.size and int(self.count[which].max()) == self._ranks.shape[1]:
            self._ranks = np.pad(self._ranks, ((0, 0), (0, 8)), constant_values=NO_OWNER)
        self._ranks[which, self.count[which]] = ranks
        self.count[which] += 1


def look_up_past_the_dead(
    ring: BigRing, is_dead: NDArray[np.bool_], starts: Ranks, keys: PointArray, *, successors: int
) -> Detours:
    """Compute the paths of lookups after some nodes died and nothing was repaired.

    Nodes still use the fingers and successor lists from before the failures.

    Args:
        ring: the ring before the failures.
        is_dead: whether each node is dead, by rank, shape (N,).
        starts: rank of the live node that begins each lookup, shape (L,).
        keys: point that each lookup searches, shape (L,).
        successors: length of each successor list, in nodes.
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
    found = np.where(owners == starts, starts, NO_OWNER)
    for step in range(1, successors + 1):
        busy = np.flatnonzero((found == NO_OWNER) & ((goals - at) % nodes < step))
        there = (at[busy] + step) % nodes
        dead = is_dead[there]
        asked.note(busy[dead], there[dead])
        found[busy[~dead]] = there[~dead]
    return Detours(hops, asked.count, asked.count - on_route, found)

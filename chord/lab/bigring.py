"""Rings too large to run: sorted ids in one array, fingers looked up when they are needed, all look-ups at once.

A point is a uint64, a circle has 2**64 of them: with a million nodes the smallest gap is still some 10**7
points wide, so 160 bits would change nothing. A node is known by its rank, its index in the sorted ids.

What makes it quick: towards a key, a node forwards to its finger that most closely precedes the key, and that
is the finger of the largest start at or before the key's predecessor p. Finger `start` points to the first node
at or after `start`, which lies at or before p exactly if `start` does. So the highest digit of the distance to p
names the finger, and one binary search finds where it points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Points: TypeAlias = NDArray[np.uint64]
Ranks: TypeAlias = NDArray[np.intp]

BITS = 64


@dataclass(frozen=True)
class Paths:
    """What look-ups took.

    Attributes:
        hops: path length of each look-up: live nodes that forwarded it, from the start to the key's predecessor.
        used: how often a finger was taken that starts 2**i points away, by i; hops along a list are not in it.
    """

    hops: Ranks
    used: NDArray[np.int64]


class BigRing:
    """An Ideal ring: every pointer is what it ought to be."""

    def __init__(self, ids: Points) -> None:
        """Have a ring of nodes at these points.

        Args:
            ids: shape (N,), in any order, no point twice.
        Raises:
            ValueError: there is no node, or two stand at one point.
        """
        self.ids: Points = ids if bool((ids[1:] > ids[:-1]).all()) else np.sort(ids)
        if not len(ids) or bool((self.ids[1:] == self.ids[:-1]).any()):
            raise ValueError("a ring needs one node or more, each at a point of its own")

    @classmethod
    def draw(cls, nodes: int, rng: np.random.Generator) -> BigRing:
        """Return a ring of so many nodes at evenly drawn points."""
        ids = np.sort(draw_points(nodes, rng))
        while bool((ids[1:] == ids[:-1]).any()):
            ids = np.unique(ids)
            ids = np.sort(np.concatenate([ids, draw_points(nodes - len(ids), rng)]))
        return cls(ids)

    def __len__(self) -> int:
        return len(self.ids)

    def successor(self, points: Points) -> Ranks:
        """Return the rank of the first node at or after each point; shape as given."""
        found = np.searchsorted(self.ids, points)
        found[found == len(self.ids)] = 0
        return found

    def shares(self) -> NDArray[np.float64]:
        """Return the share of the circle each node answers for, by rank; their sum is 1."""
        gaps = self.ids - np.roll(self.ids, 1)  # modulo 2**64, as the type wraps
        return np.ones(1) if len(self.ids) == 1 else gaps.astype(np.float64) / 2.0**BITS

    def draw_lookups(self, count: int, rng: np.random.Generator) -> tuple[Ranks, Points]:
        """Return start nodes (ranks) and keys, so many, each evenly drawn."""
        return rng.integers(0, len(self.ids), count, dtype=np.intp), draw_points(count, rng)

    def look_up(self, starts: Ranks, keys: Points, *, digit_bits: int = 1, successors: int = 1) -> Paths:
        """Look keys up by fingers and successor lists, each from its own node.

        A node that owns the key itself answers at once, with a path of 0 hops.

        Args:
            starts: ranks, shape (L,).
            keys: points, shape (L,).
            digit_bits: fingers start at j * b**i for 0 < j < b, with b = 2**digit_bits; 1: those of Chord.
            successors: entries of the successor list. One is finger 0, and adds nothing.
        Source: Stoica et al. 2001, Fig. 4 (b = 2); with other bases, section 4.2 of the 2003 paper (ToN) asks for
            b - 1 fingers for each digit, as Pastry's rows have.
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
        """Return where the finger points that comes closest to the goal, and how far it starts: 2**level points."""
        left = self.ids[goal] - self.ids[here]
        level = highest_bit(left)
        unit = (level - level % digit_bits).astype(np.uint64)
        return self.successor(self.ids[here] + (left >> unit << unit)), level

    def walk(self, starts: Ranks, keys: Points) -> Ranks:
        """Return the path lengths of look-ups that know of nothing but successors; shape (L,)."""
        owners = self.successor(keys)
        steps: Ranks = (owners - 1 - starts) % len(self.ids)
        return np.where(owners == starts, 0, steps)

    def entries(self, ranks: Ranks, *, digit_bits: int = 1, successors: int = 1) -> Ranks:
        """Return how many other nodes each of these has to know: distinct fingers and the list; shape (n,)."""
        nodes = len(self.ids)
        seen = [(ranks + step) % nodes for step in range(1, min(successors, nodes - 1) + 1)]
        for shift in range(0, BITS, digit_bits):
            for digit in range(1, 1 << min(digit_bits, BITS - shift)):
                seen.append(self.successor(self.ids[ranks] + (np.uint64(digit) << np.uint64(shift))))
        table = np.sort(np.stack(seen), axis=0)
        is_new = np.ones(table.shape, bool)
        is_new[1:] = table[1:] != table[:-1]
        return np.asarray((is_new & (table != ranks)).sum(axis=0), np.intp)


def draw_points(count: int, rng: np.random.Generator) -> Points:
    """Return so many points, evenly drawn from the circle; shape (count,)."""
    return rng.integers(0, 1 << BITS, count, dtype=np.uint64)


def highest_bit(values: Points) -> Ranks:
    """Return the index of the highest bit that is set, 0 to 63; for 0 it is 0. Shape as given."""
    # A float has 53 bits, so a number just below a power of two may be rounded up to it: one too many then.
    guess = np.clip(np.frexp(values.astype(np.float64))[1].astype(np.intp) - 1, 0, BITS - 1)
    too_high = (values >> guess.astype(np.uint64)) == 0
    return np.asarray(np.maximum(guess - too_high, 0), np.intp)

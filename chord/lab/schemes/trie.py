"""The bit trie: walk down the bits of the hash to a leaf; the leaf is the server.

A newcomer splits one leaf on its next bit and gets the half with the 1: of one full server there are two half full.
When a server goes and its sibling is a leaf, the sibling takes over. When the sibling is a subtree, the parent's whole
subtree becomes one leaf, and the other servers in it are evicted with the one that went.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from heapq import heapify, heappush, heapreplace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import HASH_BITS, Hashes
from chord.lab.placement import Numbers, Placement, UnsupportedChange


class Leaf(NamedTuple):
    """The hashes whose first `depth` bits are those of `start`, and the number of their server."""

    start: int
    depth: int
    number: int


class BitTrie(Placement):
    """Leaves of a binary trie over the bits of the hash, first bit first.

    `add` splits the leaf with the most hashes (the shallowest, the leftmost of those); `split` a leaf of one's choice:
    the one that is full. The shape depends on the history, so all clients must see the same one.

    Source: the first two source texts; Fagin et al. 1979, where a leaf is a page.
    """

    scheme = "trie"
    title = "bit trie"
    source = "Fagin et al. 1979"
    lookup_cost = "O(log n)"
    memory_cost = "O(n)"
    has_names = False
    _adds_at_once = True

    def _build(self) -> None:
        count, depth, numbers = len(self._nodes), 0, [0]
        while 2 * len(numbers) <= count:  # a newcomer each for all leaves of this depth, from left to right
            numbers = [number for at, old in enumerate(numbers) for number in (old, len(numbers) + at)]
            depth += 1
        self._leaves = [Leaf(at << (HASH_BITS - depth), depth, number) for at, number in enumerate(numbers)]
        for at in range(count - len(numbers)):
            self._split(2 * at, len(numbers) + at)
        self._index()

    # -- placing --------------------------------------------------------------------------------

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves from left to right."""
        return tuple(self._leaves)

    @property
    def state_bytes(self) -> int:
        """Eight bytes for where a leaf starts, four for its server."""
        return 12 * len(self._leaves)

    def shares(self) -> NDArray[np.float64]:
        """Return 2**-depth of each server's leaf."""
        shares = np.zeros(len(self._nodes))
        for leaf in self._leaves:
            shares[leaf.number] = 0.5**leaf.depth
        return shares

    def locate(self, point: int) -> int:
        """Return the server of the leaf a hash lies in: leaves do not overlap, so it is the last that starts before."""
        return self._numbers[bisect_right(self._starts, point) - 1]

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the servers of the leaves the hashes lie in."""
        at = np.searchsorted(np.array(self._starts, dtype=np.uint64), hashes, side="right") - 1
        return np.array(self._numbers, dtype=np.intp)[at]

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the servers of the leaf and of those to its right, round the end."""
        at, leaves = bisect_right(self._starts, point) - 1, len(self._leaves)
        return [self._numbers[(at + step) % leaves] for step in range(min(count, leaves))]

    # -- changes --------------------------------------------------------------------------------

    def split(self, full: str, newcomer: str) -> None:
        """Give a newcomer half of what a server has.

        Raises:
            KeyError: there is no such server.
            UnsupportedChange: all bits of the hash are read.
        """
        number = self._number(full)
        self._check_newcomer(newcomer)
        self._split(next(at for at, leaf in enumerate(self._leaves) if leaf.number == number), len(self._nodes))
        self._index()
        self._nodes.append(newcomer)
        self._weights.append(1.0)

    def evicted_by(self, node: str) -> tuple[str, ...]:
        """Return the servers that must go as well when this one does: none where its sibling is a leaf."""
        return tuple(self._nodes[leaf.number] for leaf in self._beside(self._number(node))[1:])

    def remove(self, node: str) -> None:
        """Let a server go, and those in `evicted_by` with it.

        Raises: KeyError, UnsupportedChange: as of every placement.
        """
        number = self._number(node)
        if len(self._nodes) == 1:
            raise UnsupportedChange(f"{node} is the only node, and keys must live somewhere")
        heir, *evicted = self._beside(number)
        gone = {number, *(leaf.number for leaf in evicted)}
        mine = next(leaf for leaf in self._leaves if leaf.number == number)
        parent = mine.start & ~(1 << (HASH_BITS - mine.depth))
        kept = [leaf for leaf in self._leaves if leaf.number not in gone | {heir.number}]
        new_number = {old: new for new, old in enumerate(n for n in range(len(self._nodes)) if n not in gone)}
        leaves = sorted([*kept, Leaf(parent, mine.depth - 1, heir.number)])
        self._leaves = [leaf._replace(number=new_number[leaf.number]) for leaf in leaves]
        self._nodes = [name for old, name in enumerate(self._nodes) if old not in gone]
        self._weights = [1.0] * len(self._nodes)
        self._index()

    def _add(self, node: str, weight: float) -> None:
        self._split(self._largest(), len(self._nodes))
        self._index()

    def _add_all(self, nodes: Sequence[str]) -> None:
        heap = [(leaf.depth, leaf.start, leaf.number) for leaf in self._leaves]  # the next to be split in front
        heapify(heap)
        for newcomer in range(len(self._nodes), len(self._nodes) + len(nodes)):
            lower, upper = self._halves(Leaf(heap[0][1], heap[0][0], heap[0][2]), newcomer)
            heapreplace(heap, (lower.depth, lower.start, lower.number))
            heappush(heap, (upper.depth, upper.start, upper.number))
        self._leaves = sorted(Leaf(start, depth, number) for depth, start, number in heap)
        self._index()
        self._nodes += nodes
        self._weights += [1.0] * len(nodes)

    # -- inside ---------------------------------------------------------------------------------

    def _beside(self, number: int) -> list[Leaf]:
        """Return the leaves under the sibling of a server's leaf, left to right: the first takes the parent's place."""
        mine = next(leaf for leaf in self._leaves if leaf.number == number)
        width = 1 << (HASH_BITS - mine.depth)
        sibling = mine.start ^ width
        return [leaf for leaf in self._leaves if sibling <= leaf.start < sibling + width and leaf.number != number]

    def _largest(self) -> int:
        return min(range(len(self._leaves)), key=lambda at: self._leaves[at].depth)

    def _split(self, at: int, newcomer: int) -> None:
        self._leaves[at : at + 1] = self._halves(self._leaves[at], newcomer)

    def _halves(self, leaf: Leaf, newcomer: int) -> tuple[Leaf, Leaf]:
        start, depth, number = leaf
        if depth == HASH_BITS:
            raise UnsupportedChange(f"a leaf of {HASH_BITS} bits is one hash and cannot be split")
        upper = start | 1 << (HASH_BITS - 1 - depth)
        return Leaf(start, depth + 1, number), Leaf(upper, depth + 1, newcomer)

    def _index(self) -> None:
        self._starts = [leaf.start for leaf in self._leaves]
        self._numbers = [leaf.number for leaf in self._leaves]

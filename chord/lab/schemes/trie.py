"""The bit trie: walk down the bits of the hash to a leaf; the leaf is the server.

A new server splits one leaf on its next bit and gets the half with bit 1. One full server becomes two half-full ones.
When a server leaves and its sibling is a leaf, the sibling takes its keys over. When the sibling is a subtree, the
parent's whole subtree becomes one leaf. The other servers of that subtree are then evicted together with the leaving
one.
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
    """A leaf of the trie: a range of hashes with the same leading bits.

    Attributes:
        start: the first hash of the range.
        depth: number of leading bits that all its hashes share.
        number: number of the server that has the range.
    """

    start: int
    depth: int
    number: int


class BitTrie(Placement):
    """Bit trie: servers are the leaves of a binary trie over the bits of a hash.

    The most significant bit decides first. `add` splits the leaf with the largest range of hashes: the shallowest, and
    of several the leftmost. `split` splits the leaf of a given server, for example a full one. The shape depends on the
    history, so all clients must see the same history.

    Source: Kokorin, "Шардирование"; the exam notes "Распределенные системы", ticket 19; Fagin et al. 1979, with a page
    for each leaf.
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
        while 2 * len(numbers) <= count:  # split every leaf of this depth, from left to right
            numbers = [number for at, old in enumerate(numbers) for number in (old, len(numbers) + at)]
            depth += 1
        self._leaves = [Leaf(at << (HASH_BITS - depth), depth, number) for at, number in enumerate(numbers)]
        for at in range(count - len(numbers)):
            self._split(2 * at, len(numbers) + at)
        self._index()

    # -- placing --------------------------------------------------------------------------------

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves of the trie from left to right: by ascending first hash."""
        return tuple(self._leaves)

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 8 per leaf for its start, and 4 for its server."""
        return 12 * len(self._leaves)

    def shares(self) -> NDArray[np.float64]:
        """Return for each server its share of all hashes: 2**-depth of its leaf."""
        shares = np.zeros(len(self._nodes))
        for leaf in self._leaves:
            shares[leaf.number] = 0.5**leaf.depth
        return shares

    def locate(self, point: int) -> int:
        """Return the number of the server that has the leaf with a hash."""
        return self._numbers[bisect_right(self._starts, point) - 1]

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the server that has its leaf."""
        at = np.searchsorted(np.array(self._starts, dtype=np.uint64), hashes, side="right") - 1
        return np.array(self._numbers, dtype=np.intp)[at]

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the server numbers of a hash's leaf and the next ones, `count` in all.

        The leaves are taken cyclically. If there are fewer leaves, all servers are returned.
        """
        at, leaves = bisect_right(self._starts, point) - 1, len(self._leaves)
        return [self._numbers[(at + step) % leaves] for step in range(min(count, leaves))]

    # -- changes --------------------------------------------------------------------------------

    def split(self, full: str, newcomer: str) -> None:
        """Split the leaf of a server on its next bit, and give one half to a new server.

        The new server gets the hashes with bit 1.

        Args:
            full: the server that gives half of its hashes away.
            newcomer: the new server.

        Raises:
            KeyError: there is no such server.
            ValueError: the new name is taken.
            UnsupportedChange: the leaf is a single hash, with no bit left to split on.
        """
        number = self._number(full)
        self._check_newcomers([newcomer])
        self._split(next(at for at, leaf in enumerate(self._leaves) if leaf.number == number), len(self._nodes))
        self._index()
        self._admit([newcomer])

    def evicted_by(self, node: str) -> tuple[str, ...]:
        """Return the other servers that have to leave if this server leaves.

        The call removes no server. The result is empty if the sibling of the server's leaf is a leaf, too.

        Raises:
            KeyError: there is no such server.
        """
        return tuple(self._nodes[leaf.number] for leaf in self._beside(self._number(node))[1:])

    def remove(self, node: str) -> None:
        """Remove a server, and with it the servers that `evicted_by` returns.

        Raises:
            KeyError: there is no such server.
            UnsupportedChange: it is the only server.
        """
        number = self._number(node)
        if len(self._nodes) == 1:
            raise UnsupportedChange(f"{node} is the only node, and a placement needs at least one")
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
        largest = min(range(len(self._leaves)), key=lambda at: self._leaves[at].depth)
        self._split(largest, len(self._nodes))
        self._index()

    def _add_all(self, nodes: Sequence[str]) -> None:
        heap = [(leaf.depth, leaf.start, leaf.number) for leaf in self._leaves]  # the next leaf to split is in front
        heapify(heap)
        for newcomer in range(len(self._nodes), len(self._nodes) + len(nodes)):
            lower, upper = self._halves(Leaf(heap[0][1], heap[0][0], heap[0][2]), newcomer)
            heapreplace(heap, (lower.depth, lower.start, lower.number))
            heappush(heap, (upper.depth, upper.start, upper.number))
        self._leaves = sorted(Leaf(start, depth, number) for depth, start, number in heap)
        self._index()
        self._admit(nodes)

    # -- inside ---------------------------------------------------------------------------------

    def _beside(self, number: int) -> list[Leaf]:
        """Return the leaves under the sibling of a server's leaf, from left to right.

        When the server leaves, the server of the first of these leaves takes over the whole range of their parent.
        """
        mine = next(leaf for leaf in self._leaves if leaf.number == number)
        width = 1 << (HASH_BITS - mine.depth)
        sibling = mine.start ^ width
        return [leaf for leaf in self._leaves if sibling <= leaf.start < sibling + width and leaf.number != number]

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

"""Extendible bitwise hashing: the first d bits of the hash select the node.

There are 2**d nodes. Doubling reads one bit more. The node of prefix p keeps p0, its new partner gets p1, and no other
key moves. This is growth by the factor two with the bits read from the other end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chord.lab.hashing import HASH_BITS, Hashes
from chord.lab.placement import Numbers, Placement, UnsupportedChange


class Extendible(Placement):
    """Extendible hashing with a directory of 2**d prefixes, one node each.

    In Fagin's scheme, several directory entries share a bucket until it overflows. Here every prefix has its own node,
    as in the exam notes "Распределенные системы", ticket 19. `trie` splits one leaf at a time.

    Raises:
        ValueError: the number of nodes is not a power of two; see also `Placement`.

    Source: Fagin et al. 1979 (ACM TODS), Extendible hashing.
    """

    scheme = "extendible"
    title = "extendible bitwise"
    source = "Fagin et al. 1979"
    lookup_cost = "O(1)"
    memory_cost = "O(n)"
    growth = "double"
    has_names = can_remove = False
    has_even_shares = True

    def _build(self) -> None:
        count = len(self._nodes)
        if count & (count - 1):
            raise ValueError(f"extendible hashing needs 1, 2, 4, 8, … nodes, not {count}")
        self._depth, self._table = 0, np.zeros(1, dtype=np.int32)
        while len(self._table) < count:  # as if nodes had come by doubling, so that halving removes the last ones
            self._double()

    @property
    def depth(self) -> int:
        """Length of the prefixes: the number of leading bits of a hash that are read."""
        return self._depth

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 4 per prefix, for its node's number."""
        return int(self._table.nbytes)

    def locate(self, point: int) -> int:
        """Return the number of the node that has a hash's prefix."""
        return int(self._table[point >> (HASH_BITS - self._depth)])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node that has its prefix."""
        prefixes = (hashes >> np.uint64(1)) >> np.uint64(HASH_BITS - 1 - self._depth)  # NumPy cannot shift by 64
        return self._table[prefixes.astype(np.intp)].astype(np.intp)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the node numbers of a hash's prefix and the next ones, `count` in all.

        The prefixes are taken cyclically. If there are fewer nodes, all of them are returned.
        """
        first, nodes = point >> (HASH_BITS - self._depth), len(self._nodes)
        return [int(self._table[(first + step) % nodes]) for step in range(min(count, nodes))]

    def grow(self, nodes: Sequence[str]) -> None:
        """Double the number of nodes: node k gives half of its keys to the k-th new node.

        Raises:
            ValueError: a name occurs twice or is taken.
            UnsupportedChange: the number of new nodes differs from the number of nodes.
        """
        count = len(self._nodes)
        if len(nodes) != count:
            raise UnsupportedChange(f"{self.scheme} doubles: {count} newcomers are needed, not {len(nodes)}")
        self._check_newcomers(nodes)
        self._double()
        self._admit(nodes)

    def shrink(self, nodes: Sequence[str]) -> None:
        """Halve the number of nodes: remove those that the last doubling added.

        Their keys return to the nodes from which they came.

        Raises:
            UnsupportedChange: `nodes` are not exactly the nodes of the last doubling.
        """
        half = len(self._nodes) // 2
        if half == 0 or set(nodes) != set(self._nodes[half:]):
            raise UnsupportedChange(f"{self.scheme} halves: the {half} nodes of the last doubling can only go together")
        self._table = self._table[::2].copy()
        self._depth -= 1
        del self._nodes[half:], self._weights[half:]

    def _add(self, node: str, weight: float) -> None:
        if len(self._nodes) > 1:
            raise UnsupportedChange(f"{self.scheme} doubles: {len(self._nodes)} newcomers at a time")
        self._double()

    def _remove(self, number: int) -> None:
        if len(self._nodes) > 2 or number == 0:
            raise UnsupportedChange(f"{self.scheme} halves: the nodes of the last doubling can only go together")
        self._table, self._depth = np.zeros(1, dtype=np.int32), 0

    def _double(self) -> None:
        newcomers = self._table + np.int32(len(self._table))
        self._table = np.stack([self._table, newcomers], axis=1).reshape(-1)
        self._depth += 1

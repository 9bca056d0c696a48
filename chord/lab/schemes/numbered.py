"""Schemes that compute a node's number, 0 to n - 1, from the hash and n.

Such a scheme keeps only n, and only the last node can go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from chord.lab.hashing import GOLDEN, MASK, Hashes, scale, scale_one
from chord.lab.placement import Common, Numbers, Placement, UnsupportedChange


class Numbered(Placement):
    """A scheme that computes the node from the hash and the number of nodes.

    All nodes have equal shares.
    """

    has_names = has_distinct_replicas = can_remove = False
    has_even_shares = True  # the true shares differ by less than 2**-31

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 8, for the number of nodes."""
        return 8

    def _add(self, node: str, weight: float) -> None:
        """Do nothing: a new node needs only the next number."""

    def _remove(self, number: int) -> None:
        if number != (last := len(self._nodes) - 1):
            raise UnsupportedChange(
                f"{self.scheme} numbers its nodes 0 to {last}: only the last can go, not {self._nodes[number]}, number "
                f"{number}; replace it with a new node"
            )


class Mod(Numbered):
    """Placement by remainder: a key lives on node number hash % n, of n nodes.

    The scheme is even, fast and stateless, but nearly all keys move when n changes. From n to n + 1 a key stays only if
    h % n == h % (n + 1) for its hash h. One key in n + 1 does.

    Source: folklore; the naive approach in all texts of `chord.lab.report.TEXTS`.
    """

    scheme = "mod"
    title = "mod-n"
    source = "folklore"
    lookup_cost = memory_cost = "O(1)"
    is_consistent = False

    def locate(self, point: int) -> int:
        """Return the remainder hash % n, which is the node's number."""
        return point % len(self._nodes)

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the remainder hash % n: the node's number."""
        return (hashes % np.uint64(len(self._nodes))).astype(np.intp)


class ModFactor(Mod):
    """Placement by hash % n, with an n that grows or shrinks by whole factors.

    If h % n == k for a hash h, then h % (f * n) is k or k + i * n. A key therefore stays, or goes to one of the f - 1
    new nodes that are paired with its node. Nothing moves between old nodes, but growth takes at least n new nodes at a
    time.

    Source: Kokorin, "Шардирование". Linear hashing (Litwin 1980) does the same one bucket at a time.
    """

    scheme = "mod-factor"
    title = "mod-n, by a factor"
    source = "folklore"
    growth = "factor"
    is_consistent = True

    def grow(self, nodes: Sequence[str]) -> None:
        """Multiply the number of nodes n by a whole factor f, with (f - 1) * n new nodes.

        Old node k gives keys to the nodes k + n, k + 2n and so on.

        Raises:
            ValueError: a name occurs twice or is taken.
            UnsupportedChange: the new number of nodes is not a multiple of n.
        """
        count = len(self._nodes)
        if len(nodes) % count:
            raise UnsupportedChange(
                f"{self.scheme}: {count} nodes can only grow by a whole factor, to {2 * count} or {3 * count}, "
                f"not to {count + len(nodes)}"
            )
        self._check_newcomers(nodes)
        self._admit(nodes)

    def shrink(self, nodes: Sequence[str]) -> None:
        """Divide the number of nodes n by a whole factor: remove the last nodes.

        Their keys return to the nodes from which they came.

        Raises:
            UnsupportedChange: `nodes` are not the last ones, or the number that stays does not divide n.
        """
        stay = len(self._nodes) - len(nodes)
        if stay < 1 or len(self._nodes) % stay or set(nodes) != set(self._nodes[stay:]):
            raise UnsupportedChange(
                f"{self.scheme}: {len(self._nodes)} nodes can only shrink by a whole factor; remove the last ones, for "
                f"example all from number {max(1, len(self._nodes) // 2)}"
            )
        del self._nodes[stay:], self._weights[stay:]

    def _add(self, node: str, weight: float) -> None:
        if len(self._nodes) > 1:
            raise UnsupportedChange(f"{self.scheme} grows by a whole factor: {len(self._nodes)} nodes at a time")

    def _remove(self, number: int) -> None:
        super()._remove(number)
        if len(self._nodes) > 2:
            raise UnsupportedChange(f"{self.scheme} shrinks by a whole factor: half of the nodes at a time")


class Fibonacci(Numbered):
    """Fibonacci hashing: ((hash * 2**64 / φ) mod 2**64), reduced to n nodes.

    The upper 32 bits of the product are reduced to a node's number. The multiplication spreads regular keys that are
    not hashes, such as counters and addresses. After a good hash it adds nothing. It was made for tables of 2**d slots,
    for which the shift alone gives the slot. For other n there are two reductions:

    - The remainder of the upper half. From n to n + 1 nodes one key in n + 1 stays, as with mod-n. It matches the
      figures of Golubtsov 2024.
    - The part of the range (multiply, shift). A key stays with probability one half, for any n, because the i-th part
      moves along by i / (n (n + 1)). Half of the keys move, nearly all of them between old nodes.

    Args:
        reduce: "remainder", or "range" for the upper bits as a fraction, times n.

    Source: Knuth, The Art of Computer Programming, volume 3, section 6.4; Golubtsov 2024, "Алгоритмы шардинга
    (разделения) данных".
    """

    scheme = "fibonacci"
    title = "Fibonacci"
    source = "Knuth 1973"
    lookup_cost = memory_cost = "O(1)"
    is_consistent = False

    def __init__(
        self, nodes: Sequence[str], *, reduce: Literal["remainder", "range"] = "remainder", **common: Unpack[Common]
    ) -> None:
        self.reduce = reduce
        super().__init__(nodes, **common)

    def locate(self, point: int) -> int:
        """Return the node's number: the hash times 2**64 / φ, modulo 2**64, then reduced."""
        spread = (point * GOLDEN) & MASK
        return scale_one(spread, len(self._nodes)) if self.reduce == "range" else (spread >> 32) % len(self._nodes)

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the node's number, as `locate` does for one."""
        spread, count = hashes * np.uint64(GOLDEN), len(self._nodes)
        found = scale(spread, count) if self.reduce == "range" else (spread >> np.uint64(32)) % np.uint64(count)
        return found.astype(np.intp)

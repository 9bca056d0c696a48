"""Fibonacci hashing: multiply by 2**64 / φ, keep the upper bits, reduce them to n.

The multiplication spreads regular keys that are not hashes, such as counters and addresses. After a good hash it adds
nothing. It was made for tables of 2**d slots, for which the shift alone gives the slot. For other n there are two
reductions:

- The remainder of the upper half. From n to n + 1 nodes one key in n + 1 stays, as with mod-n. It matches the figures
  of Golubtsov 2024.
- The part of the range (multiply, shift). A key stays with probability one half, for any n, because the i-th part
  moves along by i / (n (n + 1)). Half of the keys move, nearly all of them between old nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Unpack

import numpy as np

from chord.lab.hashing import GOLDEN, MASK, Hashes, scale, scale_one
from chord.lab.placement import Common, Numbers
from chord.lab.schemes.numbered import Numbered


class Fibonacci(Numbered):
    """Node number ((hash * 2**64 / φ) mod 2**64), the upper 32 bits reduced to n.

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
        """Return the node of a hash's multiple."""
        spread = (point * GOLDEN) & MASK
        return scale_one(spread, len(self._nodes)) if self.reduce == "range" else (spread >> 32) % len(self._nodes)

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the hashes' multiples."""
        spread, count = hashes * np.uint64(GOLDEN), len(self._nodes)
        found = scale(spread, count) if self.reduce == "range" else (spread >> np.uint64(32)) % np.uint64(count)
        return found.astype(np.intp)

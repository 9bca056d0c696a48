"""Fibonacci hashing: multiply by 2**64 over the golden ratio, keep the upper bits, bring them down to n.

The multiplication spreads what is regular in keys that are no hashes (counters, addresses); after a good hash it adds
nothing. It was made for tables of 2**d slots, where the shift alone says which. For other n there are two ways:

- the remainder of the upper half, as in the fourth text's figures: of n -> n + 1 one key in n + 1 stays, as with mod-n;
- the part of the range (multiply, shift): a key stays with probability one half, whatever n is, because the i-th part
  moves along by i / (n (n + 1)). Half of the keys go, nearly all of them between old nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from chord.lab.hashing import GOLDEN, MASK, XXH3, Hasher, Hashes, scale, scale_one
from chord.lab.placement import Numbers
from chord.lab.schemes.numbered import Numbered


class Fibonacci(Numbered):
    """Node number ((hash * 2**64 / φ) mod 2**64), its upper 32 bits brought down to n.

    Args:
        reduce: "remainder", or "range": the upper bits as a fraction, times n.
    Source: Knuth, The Art of Computer Programming, volume 3, section 6.4; the fourth source text.
    """

    scheme = "fibonacci"
    title = "Fibonacci"
    source = "Knuth 1973"
    lookup_cost = memory_cost = "O(1)"
    is_consistent = False

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        hasher: Hasher = XXH3,
        reduce: Literal["remainder", "range"] = "remainder",
    ) -> None:
        self.reduce = reduce
        super().__init__(nodes, weights=weights, hasher=hasher)

    def locate(self, point: int) -> int:
        """Return the node of a hash's multiple."""
        spread = (point * GOLDEN) & MASK
        return scale_one(spread, len(self._nodes)) if self.reduce == "range" else (spread >> 32) % len(self._nodes)

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the hashes' multiples."""
        spread, count = hashes * np.uint64(GOLDEN), len(self._nodes)
        found = scale(spread, count) if self.reduce == "range" else (spread >> np.uint64(32)) % np.uint64(count)
        return found.astype(np.intp)

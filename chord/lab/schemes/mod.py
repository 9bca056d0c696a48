"""The remainder: hash(key) % n.

The scheme is even, fast and stateless, but nearly all keys move when n changes. From n to n + 1 a key stays only if
h % n == h % (n + 1). One key in n + 1 does.
"""

from __future__ import annotations

import numpy as np

from chord.lab.hashing import Hashes
from chord.lab.placement import Numbers
from chord.lab.schemes.numbered import Numbered


class Mod(Numbered):
    """Node number hash % n.

    Source: folklore; the naive approach in all texts of `chord.lab.report.TEXTS`.
    """

    scheme = "mod"
    title = "mod-n"
    source = "folklore"
    lookup_cost = memory_cost = "O(1)"
    is_consistent = False

    def locate(self, point: int) -> int:
        """Return the remainder."""
        return point % len(self._nodes)

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the remainders."""
        return (hashes % np.uint64(len(self._nodes))).astype(np.intp)

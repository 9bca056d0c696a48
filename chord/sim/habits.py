"""How the clients of a life use the ring: beside single keys also batches, large values, values that expire, scans.

A plan names the habits that its clients have.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

SHARE = 0.3
"""Which share of the operations of a client that has a habit follows it."""
BATCH = 6
"""A batch holds at most this many keys beside the first one."""
PADDING = (20_000, 70_000)
"""A large value has this many bytes more: enough for a bulk stream, and together for a record in parts."""
TTL_S = (0.2, 3.0)

HABITS: dict[str, str] = {
    "batch": "keys are read and written in batches",
    "large": "values take bulk streams, and records are sent in parts",
    "ttl": "values live for a moment",
    "scan": "all keys are read at a time",
}


class Habits:
    """The habits of the clients of one life.

    Args:
        names: out of `HABITS`.
        counts: how often each was followed.
    """

    def __init__(self, names: tuple[str, ...], rng: random.Random, counts: Counter[str]) -> None:
        self._names = names
        self._rng = rng
        self._dice = random.Random(rng.random() if "batch" in names else 0)  # of batches
        self._counts = counts

    def follows(self, habit: str) -> bool:
        """Draw whether the next operation follows a habit."""
        is_drawn = habit in self._names and self._rng.random() < SHARE
        self._counts[f"habit {habit}"] += is_drawn
        return is_drawn

    def padding(self) -> int:
        """Draw by how many bytes a value is larger than it needs to be."""
        return self._rng.randint(*PADDING) if self.follows("large") else 0

    def ttl_s(self) -> float | None:
        """Draw how long a value lives."""
        return self._rng.uniform(*TTL_S) if self.follows("ttl") else None

    def companions(self, key: bytes, names: Sequence[str]) -> list[str]:
        """Draw which of a client's other keys its next operation reads or writes in the same batch; often none."""
        if not self.follows("batch"):
            return []
        others = [name for name in names if name.encode() != key]
        return self._dice.sample(others, min(len(others), self._dice.randint(1, BATCH)))

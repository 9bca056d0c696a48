"""Habits of clients: batches, large values, expiring values, scans.

A plan names the habits of its clients.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

SHARE = 0.3
"""Fraction of the operations that follow a habit, for clients that have it."""
BATCH = 6
"""Largest number of keys in a batch beside the first one."""
PADDING = (20_000, 70_000)
"""Extra bytes of a large value, least and most.

That is enough for a bulk stream, and several such values are enough for a record in parts.
"""
TTL_S = (0.2, 3.0)

HABITS: dict[str, str] = {
    "batch": "keys are read and written in batches",
    "large": "values take bulk streams, and records are sent in parts",
    "ttl": "values have a short time to live",
    "scan": "all keys are read in one scan",
}


class Habits:
    """The habits of the clients of one run.

    Args:
        names: the habits that the clients have: "batch", "large", "ttl" or "scan".
        rng: draws which operations follow a habit, and how.
        counts: receives how often the clients followed each habit, under "habit NAME".
    """

    def __init__(self, names: tuple[str, ...], rng: random.Random, counts: Counter[str]) -> None:
        self._names = names
        self._rng = rng
        self._dice = random.Random(rng.random() if "batch" in names else 0)  # dice for batches
        self._counts = counts

    def follows(self, habit: str) -> bool:
        """Draw whether the next operation follows a habit, and count it if it does.

        The answer is False for a habit that the clients lack.
        """
        is_drawn = habit in self._names and self._rng.random() < SHARE
        self._counts[f"habit {habit}"] += is_drawn
        return is_drawn

    def padding(self) -> int:
        """Draw the number of extra bytes of a value; 0 unless it follows habit "large"."""
        return self._rng.randint(*PADDING) if self.follows("large") else 0

    def ttl_s(self) -> float | None:
        """Draw the time to live of a value in seconds; None: unlimited, because it does not follow habit "ttl"."""
        return self._rng.uniform(*TTL_S) if self.follows("ttl") else None

    def companions(self, first: str, names: Sequence[str]) -> list[str]:
        """Draw names of up to six further keys for a batch; none unless the operation follows habit "batch".

        Args:
            first: the name of the first key of the batch.
            names: the names of all keys of the client.
        """
        if not self.follows("batch"):
            return []
        others = [name for name in names if name != first]
        return self._dice.sample(others, min(len(others), self._dice.randint(1, BATCH)))

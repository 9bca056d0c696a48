"""Requests that arrive late, or twice: a stalled connection delivers them when nobody waits for the answer any more.

A node does not begin a call that it reads after the caller's time (`chord.net.one_way_delay`), as far as it can tell.
"""

from __future__ import annotations

import random
from collections import Counter

LATE_S = (0.02, 10.0)
"""What comes late takes this long, on a logarithmic scale."""


class Lateness:
    """Draws when a request arrives.

    Attributes:
        late, twice: the shares of requests that come late, and that come in time and late once more.
        counts: how many did.
    """

    def __init__(self, rng: random.Random, *, late: float = 0.0, twice: float = 0.0) -> None:
        self._rng = rng
        self.late = late
        self.twice = twice
        self.counts: Counter[str] = Counter()

    def stop(self) -> float:
        """From now on everything arrives once, and in time. Returns after how long nothing late is under way."""
        waits_s = LATE_S[1] if self.late or self.twice else 0.0
        self.late = self.twice = 0.0
        return waits_s

    def draw(self) -> tuple[float, float | None]:
        """Return after how many seconds a request is sent, and after how many once more; None for never."""
        if not self.late and not self.twice:
            return 0.0, None
        if self._rng.random() < self.late:
            self.counts["late"] += 1
            return self._much_later(), None
        if self._rng.random() < self.twice:
            self.counts["twice"] += 1
            return 0.0, self._much_later()
        return 0.0, None

    def _much_later(self) -> float:
        least, most = LATE_S
        return float(least * (most / least) ** self._rng.random())

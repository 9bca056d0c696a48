"""Requests that arrive late, or twice, or get no answer.

A stalled connection delivers such requests when the caller no longer waits for the reply. A node does not begin a call
that it reads after the caller's deadline, as far as it can tell (`chord.net.one_way_delay`).
"""

from __future__ import annotations

import random
from collections import Counter

from chord.errors import ChordError
from chord.wire.messages import Reply, StoreCoveringReply

LATE_S = (0.02, 10.0)
"""Least and most extra seconds of a late request, drawn on a logarithmic scale."""


class Lateness:
    """Draws which requests arrive late or twice, how late, and which answers are lost.

    Attributes:
        late: fraction of requests that arrive late, 0.0 to 1.0.
        twice: fraction of the other requests that arrive in time and again late, 0.0 to 1.0.
        unanswered: fraction of the conditional copies (`StoreCovering`) with an answer that never arrives, 0.0 to 1.0.
        counts: under "late", "twice" and "unanswered", the numbers of such requests. The network counts those that it
            delivers twice, because it delivers no request again that was refused.
    """

    def __init__(self, rng: random.Random, *, late: float = 0.0, twice: float = 0.0) -> None:
        self._rng = rng
        self.late = late
        self.twice = twice
        self.unanswered = 0.0
        self.counts: Counter[str] = Counter()

    def stop(self) -> float:
        """Let everything arrive once and in time from now on.

        Returns:
            The most extra seconds that a request in transit may still take.
        """
        waits_s = LATE_S[1] if self.late or self.twice else 0.0
        self.late = self.twice = self.unanswered = 0.0
        return waits_s

    def draw(self) -> tuple[float, float | None]:
        """Draw the extra delays of a request and its second copy, in seconds.

        The network adds its usual delay to each. The second is None if the request is sent only once.
        """
        if not self.late and not self.twice:
            return 0.0, None
        if self._rng.random() < self.late:
            self.counts["late"] += 1
            return self._much_later(), None
        if self._rng.random() < self.twice:
            return 0.0, self._much_later()
        return 0.0, None

    def loses(self, answer: Reply | ChordError) -> bool:
        """Draw whether an answer is lost, and count it if so."""
        is_lost = self.unanswered > 0 and isinstance(answer, StoreCoveringReply)
        is_lost = is_lost and self._rng.random() < self.unanswered
        self.counts["unanswered"] += is_lost
        return is_lost

    def _much_later(self) -> float:
        least, most = LATE_S
        return float(least * (most / least) ** self._rng.random())

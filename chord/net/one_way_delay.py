"""How long has a call been on its way? A budget is relative: read late, an old call looks fresh.

In the buffers of a connection that stalled, or of a process that was stopped, lie calls whose callers gave up long ago,
and perhaps had them done elsewhere. Each call says when it was sent, on the sender's clock since the stream was opened.
The two clocks of a stream begin at the same moment but for the handshake, and drift apart slowly; so the least
difference seen lately is what a call takes when nothing is in its way, and what lies above it is delay.

A suspended machine, whose clock stands still meanwhile, is not seen by this.
"""

from __future__ import annotations

import math
from typing import Final

WINDOW_S: Final = 10.0
"""For so long, and as long again, the least difference counts: drift is nothing by then."""

JITTER_S: Final = 0.1
"""Less than this is no delay: a caller's own deadline is to come before what we say of it."""


class Transit:
    """The calls of one direction of a stream. Opened at a time on the receiver's clock."""

    __slots__ = ("_before_s", "_least_s", "_opened_at", "_until")

    def __init__(self, opened_at: float) -> None:
        self._opened_at = opened_at
        self._before_s = 0.0  # the least of the window before; at first what an instant handshake would make it
        self._least_s = math.inf
        self._until = opened_at + WINDOW_S

    def late_s(self, sent_ms: int, now: float) -> float:
        """Return by how much a call that is read now was delayed, in seconds."""
        took_s = now - self._opened_at - sent_ms / 1000
        if now >= self._until:
            if self._least_s < math.inf:
                self._before_s = self._least_s
            self._least_s, self._until = math.inf, now + WINDOW_S
        self._least_s = min(self._least_s, took_s)
        late_s = took_s - min(self._before_s, self._least_s)
        return late_s if late_s > JITTER_S else 0.0

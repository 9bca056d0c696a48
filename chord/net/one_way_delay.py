"""One-way delay: how long a call was on its way before it was read.

The budget of a call is a relative time, so an old call that is read late would look fresh. Old calls lie in the buffers
of a connection that stalled, or of a process that was stopped. Their callers gave up long ago, and may have retried
elsewhere.

So each call says when it was sent, on the sender's clock since the stream was opened. Both clocks of a stream start at
the same moment, except for the handshake, and drift apart slowly. The least difference of recent calls is the normal
travel time. The rest of a call's difference is its delay.

This does not detect the delay of a suspended machine, because the clock of that machine stands still.
"""

from __future__ import annotations

import math
from typing import Final

WINDOW_S: Final = 10.0
"""Length of a window in seconds.

The least travel times of the current window and of the one before count, because clocks hardly drift in that time.
"""

JITTER_S: Final = 0.1
"""A delay of at most this many seconds counts as 0, so that the caller's own deadline passes before ours."""


class OneWayDelay:
    """The delays of the calls in one direction of a stream.

    Args:
        opened_at: when the handshake of the stream ended, on the receiver's clock in seconds.
    """

    __slots__ = ("_before_s", "_least_s", "_opened_at", "_until")

    def __init__(self, opened_at: float) -> None:
        self._opened_at = opened_at
        self._before_s = 0.0  # the least of the last window; at first 0, as after an instant handshake
        self._least_s = math.inf
        self._until = opened_at + WINDOW_S

    def late_s(self, sent_ms: int, now: float) -> float:
        """Return how much longer than usual a call was on its way, in seconds.

        The usual time is the shortest of recent calls, this one included. A delay of at most `JITTER_S` is returned as
        0.

        Args:
            sent_ms: when the call was sent, in ms on the sender's clock since the stream was opened.
            now: when the call is read, on the receiver's clock in seconds.
        """
        took_s = now - self._opened_at - sent_ms / 1000
        if now >= self._until:
            if self._least_s < math.inf:
                self._before_s = self._least_s
            self._least_s, self._until = math.inf, now + WINDOW_S
        self._least_s = min(self._least_s, took_s)
        late_s = took_s - min(self._before_s, self._least_s)
        return late_s if late_s > JITTER_S else 0.0

"""Has this process been stopped for a while? A call's budget is relative: read late, an old call looks fresh.

A stopped process (SIGSTOP, a suspended machine, a stalled loop) finds calls in its socket buffers that their senders
gave up long ago, and perhaps had done elsewhere under the same operation id. Doing them now would bring back what was
overwritten since. A pulse tells: when it is late, so is everything that is read in the moments after.
"""

from __future__ import annotations

import trio

PULSE_S = 0.5
PAUSE_MIN_S = 1.0
AFTERMATH_S = 0.5  # it takes so long at most to read what had piled up


class Pulse:
    """Beats while the process runs."""

    def __init__(self) -> None:
        self._at = 0.0
        self._woke = -AFTERMATH_S
        self._pause = 0.0

    async def run(self) -> None:
        """Beat until cancelled."""
        self._at = trio.current_time()
        while True:
            await trio.sleep(PULSE_S)
            self.late_s()
            self._at = trio.current_time()

    def late_s(self) -> float:
        """Return how long what is read now may have waited for this process, in seconds; 0.0 while it runs on."""
        now = trio.current_time()
        if self._at and now - self._at > PAUSE_MIN_S + PULSE_S:
            self._pause, self._woke = now - self._at, now
            self._at = now
        return self._pause if now - self._woke < AFTERMATH_S else 0.0

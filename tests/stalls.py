"""When the machine stood still: on a shared one every process may be left without a core for a second and more.

A test that gives real sockets a deadline of a second then fails, and says nothing about the code. `Watch` tells such a
failure from all others by what it measured, not by which test it was: a thread that asks to be woken every few
milliseconds, and notes how late it is, and that the process did not work meanwhile: what keeps its own interpreter busy
is no stall.
"""

from __future__ import annotations

import threading
from time import monotonic, process_time, sleep  # by name: some tests put others in their place

TICK_S = 0.02
LATE_S = 0.02  # a wake-up later than this is a stall; below it is the scheduler's ordinary work
STALLED_S = 0.1  # the shortest deadline a test on real sockets has: less than this in all lets none of them fail


class Watch:
    """Counts the seconds this process was not run since `start`, as long as it lives."""

    def __init__(self) -> None:
        self._lost_s = 0.0
        self._since = monotonic()
        self._lock = threading.Lock()
        threading.Thread(target=self._tick, name="stalls", daemon=True).start()

    def start(self) -> None:
        """Count from here."""
        with self._lock:
            self._lost_s = 0.0
            self._since = monotonic()

    def lost_s(self) -> float:
        """Return how long this process was not run since `start`, in seconds."""
        sleep(2 * TICK_S)  # the tick that is late at this very moment counts
        with self._lock:
            return self._lost_s

    def explains(self, error: BaseException | None) -> bool:
        """Return whether a test that failed stood still for long enough; whoever passed needs no explanation."""
        return error is not None and self.lost_s() >= STALLED_S

    def _tick(self) -> None:
        while True:
            slept_at, worked_s = monotonic(), process_time()
            sleep(TICK_S)
            with self._lock:
                idle_s = monotonic() - max(slept_at, self._since) - (process_time() - worked_s)
                if idle_s >= TICK_S + LATE_S:
                    self._lost_s += idle_s - TICK_S

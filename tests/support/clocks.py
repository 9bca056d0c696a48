"""Deadlines on a real clock that no stall of the machine can reach: a test gives hours and skips them.

Clients over real sockets need a clock that runs by itself. Given a second, a test fails when the machine stands still
for one. Here it gives more than any stall lasts; what is to be silence, and no answer late, moves the clock ahead.
"""

from __future__ import annotations

import functools
import select
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.fake_node import FakeNode

PATIENCE_S = 100.0
"""What an operation is given that is to run into its deadline."""
SKIP_S = 110.0
"""So much a silent node skips: more than that, and less than after which an idle connection is closed."""
LOOK_S = 0.01
"""How soon one who waits sees that the clock was moved."""


class Skipping(trio.abc.Clock):
    """The monotonic clock, which may be moved ahead from any thread; for Trio and, patched in, for blocking clients."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + self._ahead_s

    def skip(self, seconds: float = SKIP_S) -> None:
        """Let so much time have passed."""
        self._ahead_s += seconds

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """Return the time, for Trio."""
        return self.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Look soon whether the clock was moved meanwhile."""
        return min(max(0.0, deadline - self.monotonic()), LOOK_S)


class _Poll:
    """`select.poll` on that clock."""

    def __init__(self, clock: Skipping) -> None:
        self._clock = clock
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        until = self._clock.monotonic() + timeout_ms / 1000
        while True:
            left_s = until - self._clock.monotonic()
            found = self._poll.poll(1000 * min(max(0.0, left_s), LOOK_S))
            if found or left_s <= 0:
                return found


def skipping(monkeypatch: pytest.MonkeyPatch) -> Skipping:
    """Return a clock that blocking clients live by, and that each silence of a `FakeNode` moves past the deadline."""
    clock = Skipping()
    clock_and_sleep = SimpleNamespace(monotonic=clock.monotonic, sleep=time.sleep)
    for module in ("client.blocking", "client.pool", "cli.control"):
        monkeypatch.setattr(f"chord.{module}.time", clock_and_sleep)
    poll = SimpleNamespace(poll=lambda: _Poll(clock), POLLIN=select.POLLIN, POLLOUT=select.POLLOUT)
    monkeypatch.setattr("chord.client.sockets.monotonic", clock.monotonic)
    monkeypatch.setattr("chord.client.sockets.select", poll)
    monkeypatch.setattr(FakeNode, "on_silence", staticmethod(clock.skip))
    return clock


IDLE_S = 0.1
"""When a test's own sockets have brought nothing for so long, nothing is on its way: loopback takes microseconds."""


def on_loopback(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test over sockets that all are its own: time stands still, but for when everybody waits for it to pass."""

    @functools.wraps(test)
    def wrapper(*args: Any, **fixtures: Any) -> None:
        clock = trio.testing.MockClock(autojump_threshold=IDLE_S)
        trio.run(functools.partial(test, *args, **fixtures), clock=clock)

    return wrapper

"""Deadlines on a real clock that no stall of the machine can reach, because tests move the clock.

Clients over real sockets need a running clock. With a timeout of a second, a test would fail if the machine stalls
for one. So timeouts are longer than any stall, and a fake node that does not answer moves the clock ahead.
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
"""The timeout of an operation that must reach its deadline."""
SKIP_S = 110.0
"""The skip of an unanswered call: longer than `PATIENCE_S`, shorter than the time to close an idle connection."""
LOOK_S = 0.01
"""The time until a waiting thread notices that the clock was moved."""


class Skipping(trio.abc.Clock):
    """The monotonic clock, which any thread may move ahead; for Trio, and by patches for blocking clients."""

    def __init__(self) -> None:
        self._ahead_s = 0.0

    def monotonic(self) -> float:
        """Return the time in seconds."""
        return time.monotonic() + self._ahead_s

    def skip(self, seconds: float = SKIP_S) -> None:
        """Move the clock ahead."""
        self._ahead_s += seconds

    def start_clock(self) -> None:
        """Do nothing, as the clock always runs."""

    def current_time(self) -> float:
        """Return the time, for Trio."""
        return self.monotonic()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Return a short time, so that Trio soon notices a moved clock."""
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
    """Return a clock for blocking clients. Each call that a `FakeNode` does not answer moves it past the deadline."""
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
"""After this time without a read, no bytes are on their way, as loopback takes microseconds."""


def on_loopback(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run a test over its own sockets, on a clock that runs only while all tasks wait for it."""

    @functools.wraps(test)
    def wrapper(*args: Any, **fixtures: Any) -> None:
        clock = trio.testing.MockClock(autojump_threshold=IDLE_S)
        trio.run(functools.partial(test, *args, **fixtures), clock=clock)

    return wrapper

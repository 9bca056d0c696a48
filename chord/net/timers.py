"""Timers: one sleeping task for many deadlines, which wakes at the earliest."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

import trio

K = TypeVar("K", bound=Hashable)

STALE_MAX: Final = 64
"""Largest number of stale heap entries, beyond one for each deadline."""


class TimerTask:
    """Wakes one task at the earliest of the times that it was given.

    Attributes:
        at: the next time at which the task wakes, on Trio's clock; infinity if no time is set.
    """

    __slots__ = ("_nap", "_task", "at")

    def __init__(self) -> None:
        self.at = math.inf
        self._nap: trio.CancelScope | None = None
        self._task: trio.lowlevel.Task | None = None

    def by(self, when: float) -> None:
        """Wake at this time on Trio's clock, or at the earlier time that is already set."""
        if when < self.at:
            self.at = when
            if self._nap is not None:
                self._nap.deadline = when

    async def run(self, sweep: Callable[[float], float]) -> None:
        """Call `sweep` whenever the time `at` has come, until cancelled.

        Args:
            sweep: gets the current time, and returns the time at which to call it next, both on Trio's clock; infinity
                for no next time.
        """
        self._task = trio.lowlevel.current_task()
        while True:
            with trio.CancelScope(deadline=self.at) as self._nap:
                await trio.lowlevel.wait_task_rescheduled(self._wake)
            self._nap = None
            now = trio.current_time()
            if now < self.at:  # woken early, because this task is cancelled
                await trio.lowlevel.checkpoint()
            self.at = math.inf
            due = sweep(now)
            self.at = min(self.at, due)  # `sweep` may have set `at`

    def _wake(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Resume the task without an exception, which would cost more than the sweep."""
        assert self._task is not None
        trio.lowlevel.reschedule(self._task)
        return trio.lowlevel.Abort.FAILED


class Deadlines(Generic[K]):
    """Deadlines of many items, nearly all of them cancelled before they are due.

    Deadlines are times on one clock that the user chooses. Items are any hashable objects, each with one deadline.

    A heap has an entry for each deadline that was set. Only the last entry of an item counts. Stale entries are dropped
    when they reach the top, or when there are too many of them. So the next deadline is found at once.
    """

    __slots__ = ("_due", "_last_number", "_lines")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}  # the number of the entry that counts
        self._lines: list[tuple[float, int, K]] = []
        self._last_number = 0  # of the entries; of two entries with the same time, the older comes first

    def set(self, what: K, when: float) -> None:
        """Set the deadline of an item, in place of any deadline that it has."""
        self._last_number = number = self._last_number + 1
        due, lines = self._due, self._lines
        due[what] = number
        heappush(lines, (when, number, what))
        if len(lines) > 2 * len(due) + STALE_MAX:
            self._lines = [line for line in lines if due.get(line[2]) == line[1]]
            heapify(self._lines)

    def clear(self, what: K) -> None:
        """Cancel the deadline of an item, if it has one."""
        self._due.pop(what, None)

    def expired(self, now: float) -> Iterator[K]:
        """Remove and yield the items with deadlines up to `now`, the earliest deadline first.

        `now` is on the clock of the deadlines. The caller may set and clear deadlines meanwhile.
        """
        while self.next() <= now:
            _, _, what = heappop(self._lines)
            del self._due[what]
            yield what

    def next(self) -> float:
        """Return the earliest deadline of any item; infinity if no deadline is set."""
        lines = self._lines
        while lines:
            when, number, what = lines[0]
            if self._due.get(what) == number:
                return when
            heappop(lines)
        return math.inf


class Timers:
    """Callbacks that run at a given time, unless they are cancelled first.

    Attributes:
        alarm: wakes the task that calls `sweep` at the earliest of these times.
    """

    __slots__ = ("_due", "alarm")

    def __init__(self) -> None:
        self.alarm = TimerTask()
        self._due: Deadlines[Callable[[], None]] = Deadlines()

    def set(self, do: Callable[[], None], when: float) -> None:
        """Run a callback once at this time on Trio's clock, in place of any time that was set for it before."""
        self._due.set(do, when)
        if when < self.alarm.at:
            self.alarm.by(when)

    def clear(self, do: Callable[[], None]) -> None:
        """Cancel a callback, if it has not run yet."""
        self._due.clear(do)

    def sweep(self, now: float) -> float:
        """Run the callbacks with times up to `now`; return the time of the next callback, or infinity for none.

        Both times are on Trio's clock.
        """
        for do in self._due.expired(now):  # a callback may cancel another one
            do()
        return self._due.next()

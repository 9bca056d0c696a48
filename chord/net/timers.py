"""One sleeping task for many deadlines: it wakes at the earliest, and whoever set them sees what is overdue."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

import trio

K = TypeVar("K", bound=Hashable)

STALE_MAX: Final = 64
"""So many lines of what was called off are kept, and as many more as there are deadlines."""


class Alarm:
    """Wakes one task when the earliest of the times it was given has come.

    Attributes:
        at: when it wakes.
    """

    __slots__ = ("_nap", "_task", "at")

    def __init__(self) -> None:
        self.at = math.inf
        self._nap: trio.CancelScope | None = None
        self._task: trio.lowlevel.Task | None = None

    def by(self, when: float) -> None:
        """Wake at this time at the latest."""
        if when < self.at:
            self.at = when
            if self._nap is not None:
                self._nap.deadline = when

    async def run(self, sweep: Callable[[float], float]) -> None:
        """Call `sweep(now)` whenever something is due; it returns when to look again."""
        self._task = trio.lowlevel.current_task()
        while True:
            with trio.CancelScope(deadline=self.at) as self._nap:
                await trio.lowlevel.wait_task_rescheduled(self._wake)
            self._nap = None
            now = trio.current_time()
            if now < self.at:  # woken for another reason than the time: this task is to end
                await trio.lowlevel.checkpoint()
            self.at = math.inf
            due = sweep(now)
            self.at = min(self.at, due)  # sweeping may have set it

    def _wake(self, _: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
        """Go on without an exception: they would cost more than what is done on waking."""
        assert self._task is not None
        trio.lowlevel.reschedule(self._task)
        return trio.lowlevel.Abort.FAILED


class Deadlines(Generic[K]):
    """When each of many things is due. Nearly all of them are called off before, and the next is found at once.

    A heap has a line for each deadline that was ever set. A line counts if it is the last one of its thing; the others
    are dropped when they come up, or when there are too many of them.
    """

    __slots__ = ("_due", "_last_number", "_lines")

    def __init__(self) -> None:
        self._due: dict[K, int] = {}  # the line that counts
        self._lines: list[tuple[float, int, K]] = []
        self._last_number = 0  # of the lines; of two that are due at the same time, the older comes first

    def set(self, what: K, when: float) -> None:
        """Let it be due at this time, and at no other."""
        self._last_number = number = self._last_number + 1
        due, lines = self._due, self._lines
        due[what] = number
        heappush(lines, (when, number, what))
        if len(lines) > 2 * len(due) + STALE_MAX:
            self._lines = [line for line in lines if due.get(line[2]) == line[1]]
            heapify(self._lines)

    def clear(self, what: K) -> None:
        """Call it off, if it is not due yet."""
        self._due.pop(what, None)

    def expired(self, now: float) -> Iterator[K]:
        """Take out one after the other what is due by now; meanwhile others may be set and called off."""
        while self.next() <= now:
            _, _, what = heappop(self._lines)
            del self._due[what]
            yield what

    def next(self) -> float:
        """Return when the next one is due; infinity, if there is none."""
        lines = self._lines
        while lines:
            when, number, what = lines[0]
            if self._due.get(what) == number:
                return when
            heappop(lines)
        return math.inf


class Timers:
    """What is to be done at a time, unless it is called off before: nearly all of it is.

    Attributes:
        alarm: wakes the task that is to `sweep`.
    """

    __slots__ = ("_due", "alarm")

    def __init__(self) -> None:
        self.alarm = Alarm()
        self._due: Deadlines[Callable[[], None]] = Deadlines()

    def set(self, do: Callable[[], None], when: float) -> None:
        """Let it be done at this time, and not at another that was set before."""
        self._due.set(do, when)
        if when < self.alarm.at:
            self.alarm.by(when)

    def clear(self, do: Callable[[], None]) -> None:
        """Call it off, if it was not done yet."""
        self._due.clear(do)

    def sweep(self, now: float) -> float:
        """Do what is due, and return when something is to be done next."""
        for do in self._due.expired(now):  # one of them may call off another
            do()
        return self._due.next()

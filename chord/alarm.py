"""One sleeping task for many deadlines: it wakes at the earliest, and whoever set them sees what is overdue."""

from __future__ import annotations

import math
from collections.abc import Callable

import trio


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


class Timers:
    """What is to be done at a time, unless it is called off before: nearly all of it is.

    Attributes:
        alarm: wakes the task that is to `sweep`.
    """

    __slots__ = ("_due", "alarm")

    def __init__(self) -> None:
        self.alarm = Alarm()
        self._due: dict[Callable[[], None], float] = {}

    def set(self, do: Callable[[], None], when: float) -> None:
        """Let it be done at this time, and not at another that was set before."""
        self._due[do] = when
        if when < self.alarm.at:
            self.alarm.by(when)

    def clear(self, do: Callable[[], None]) -> None:
        """Call it off, if it was not done yet."""
        self._due.pop(do, None)

    def sweep(self, now: float) -> float:
        """Do what is due, and return when something is to be done next."""
        for do in [do for do, when in self._due.items() if when <= now]:
            if self._due.pop(do, math.inf) <= now:  # the one before may have called it off
                do()
        return min(self._due.values(), default=math.inf)

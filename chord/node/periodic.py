"""The steps a node repeats for ever: staggered start, jittered interval, under a deadline, none overlapping itself.

All steps of a node share one sleeping task, for an idle task costs kilobytes; a step that is due gets
one of its own, so that a slow step keeps no other waiting. An expected failure (a `ChordError`, a
deadline) is an event, and the step runs again. Anything else is a bug and ends the node.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import trio

from chord.errors import ChordError
from chord.ids import Point
from chord.net.timers import Timers

if TYPE_CHECKING:
    import random

_RUNNING: Final = 0
"""The number of a step that stands on no line of the timetable."""


class Periodic:
    """One step, and where it stands in the timetable. Made by `Timetable.add`."""

    __slots__ = ("deadline_s", "is_kicked", "name", "number", "period_s", "step", "timetable", "vnode")

    def __init__(
        self,
        timetable: Timetable,
        vnode: Point,
        name: str,
        step: Callable[[], Awaitable[object]],
        period_s: float,
        deadline_s: float,
    ) -> None:
        self.timetable = timetable
        self.vnode = vnode
        self.name = name
        self.step = step
        self.period_s = period_s
        self.deadline_s = deadline_s
        self.number = _RUNNING
        self.is_kicked = False

    def kick(self) -> None:
        """Run the step soon instead of waiting for the interval to pass. One that is running runs once more."""
        if self.number == _RUNNING:
            self.is_kicked = True
        else:
            self.timetable.put(self, trio.current_time())


class Timetable:
    """When each step of a node is due.

    Args:
        timers: of the node, which are swept by the same task.
        failed: told the vnode, the name of its step and the word of the error when a run fails as expected.
        is_paused: asked before each run; if so, the run is left out.
        standstill_s: if `note_running` is not called for longer than this, the process stood still.
        woke: called after a standstill, before another step is begun.
    """

    def __init__(
        self,
        rng: random.Random,
        failed: Callable[[Point, str, str], None],
        timers: Timers,
        is_paused: Callable[[], bool] = lambda: False,
        *,
        standstill_s: float = math.inf,
        woke: Callable[[], None] = lambda: None,
    ) -> None:
        self._rng = rng
        self._failed = failed
        self._is_paused = is_paused
        self._standstill_s = standstill_s
        self._woke = woke
        self._ran_at = math.inf  # when this process is known to have run last
        self._timers = timers
        self._lines: list[tuple[float, int, Periodic]] = []  # a heap: when, the number of the line, what
        self._last_number = _RUNNING
        self._start_task: Callable[..., None] | None = None

    def add(
        self,
        vnode: Point,
        name: str,
        step: Callable[[], Awaitable[object]],
        *,
        period_s: float,
        deadline_s: float,
    ) -> Periodic:
        """Run a step every `period_s` on average, each interval drawn from 0.5 to 1.5 of it.

        Args:
            vnode, name: whose step it is and what it is called, for `failed`.
            step: the coroutine function to run. Cancelled, it leaves what its own docstring says.
            period_s: the mean interval in seconds; the first run comes within one, so that nodes started together do
                not step together.
            deadline_s: a run is cancelled after so long.
        """
        periodic = Periodic(self, vnode, name, step, period_s, deadline_s)
        self.put(periodic, trio.current_time() + self._rng.uniform(0, period_s))
        return periodic

    def note_running(self) -> None:
        """Note that the process runs, and find out whether it stood still since the last note.

        Call this before a request is answered, too: after a standstill, a request may come before any step.
        """
        now = trio.current_time()
        stood_still_s, self._ran_at = now - self._ran_at, now
        if stood_still_s > self._standstill_s and self._lines:  # without a step there was nothing to run
            self._woke()

    def put(self, periodic: Periodic, due: float) -> None:
        """Let a step begin at a time, whatever was planned before."""
        self.note_running()
        self._last_number = periodic.number = self._last_number + 1
        heappush(self._lines, (due, periodic.number, periodic))
        self._timers.alarm.by(due)

    async def run(self, start_task: Callable[..., None]) -> None:
        """Begin what is due, until cancelled.

        Args:
            start_task: runs an async function in a task; it is cancelled together with this one.
        """
        self._start_task = start_task
        await self._timers.alarm.run(self._begin_due)

    def _begin_due(self, now: float) -> float:
        assert self._start_task is not None
        self.note_running()
        lines = self._lines
        while lines and lines[0][0] <= now:
            _, number, periodic = heappop(lines)
            if number == periodic.number:  # else it was kicked, and has another line
                periodic.number = _RUNNING
                self._start_task(self._perform, periodic, name=periodic.name)
        due = self._timers.sweep(now)
        return min(lines[0][0], due) if lines else due

    async def _perform(self, periodic: Periodic) -> None:
        periodic.is_kicked = False
        try:
            with trio.fail_after(periodic.deadline_s):
                if not self._is_paused():
                    await periodic.step()
        except ChordError as error:
            self._failed(periodic.vnode, periodic.name, error.word)
        except trio.TooSlowError:
            self._failed(periodic.vnode, periodic.name, "timeout")
        pause_s = 0.0 if periodic.is_kicked else periodic.period_s * self._rng.uniform(0.5, 1.5)
        self.put(periodic, trio.current_time() + pause_s)

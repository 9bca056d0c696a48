"""The schedule of a node's steps: staggered start, jitter, deadline, no overlap.

All steps of a node share one sleeping task, because an idle task costs kilobytes. A step that is due gets a task of its
own, so that a slow step delays no other. An expected failure (a `ChordError`, a deadline) is an event, and the step
runs again. Any other exception is a bug and ends the node.

While nothing changes, the periods grow. Any news (`Timetable.fall_back`) returns them to their own lengths at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import trio

from chord.errors import ChordError
from chord.ids import Point
from chord.net.timers import Timers

if TYPE_CHECKING:
    import random

_RUNNING: Final = 0
"""The `number` of a step that is not scheduled, because it is running."""

QUIET_ROUNDS: Final = 4
"""A period is at most the time since the last news, divided by this number.

So periods of 8 times their length need 32 periods without news.
"""

RUNS_PER_PERIOD_MAX: Final = 8
"""How often a step may run in one period if there is always a reason for another run; see `Periodic.hurry`."""


@cache
def _label(name: str, outcome: str) -> tuple[str, str]:
    """Return a key of `Timetable.runs`, the same object for all nodes."""
    return name, outcome


class Periodic:
    """One periodic step of a node, and its entry in the schedule.

    `Timetable.add` creates it.
    """

    __slots__ = (
        "began", "deadline_s", "due", "growth_max", "longest_s", "name", "number", "period_s", "step", "timetable",
        "vnode",
    )  # fmt: skip

    def __init__(
        self,
        timetable: Timetable,
        vnode: Point,
        name: str,
        step: Callable[[], Awaitable[object]],
        period_s: float,
        deadline_s: float,
        longest_s: Callable[[], float],
        growth_max: float,
    ) -> None:
        self.timetable = timetable
        self.vnode = vnode
        self.name = name
        self.step = step
        self.period_s = period_s
        self.longest_s = longest_s
        self.growth_max = growth_max
        self.deadline_s = deadline_s
        self.number = _RUNNING
        self.began = -math.inf
        self.due = -math.inf

    def kick(self) -> None:
        """Run the step now. If it is running, run it once more."""
        self.run_by(trio.current_time())

    def hurry(self) -> None:
        """Run the step soon, but at most `RUNS_PER_PERIOD_MAX` times a period.

        If it is running, run it once more.
        """
        self.run_by(max(trio.current_time(), self.began + self.period_s / RUNS_PER_PERIOD_MAX))

    def soon(self) -> None:
        """Run the step within one period of its own length, at random."""
        self.run_by(trio.current_time() + self.timetable.draw_wait(self.period_s))

    def run_by(self, when: float) -> None:
        """Run the step, once more if it is running, at a given time, unless it runs earlier anyway."""
        if when < self.due:
            self.due = when
            if self.number != _RUNNING:
                self.timetable.put(self, when)


class Timetable:
    """Runs the periodic steps of a node when they are due.

    Args:
        rng: the source of the jitter.
        failed: callback for an expected failure. It gets the vnode, the name of the step and the error's `word`.
        timers: timers of the node. The task of the steps also calls back the timers that are due.
        is_paused: asked before each run; if it returns True, the run is skipped.
        growth_max: how many times its length a period may grow to while there is no news.
        quiet_s: the period that the time without news is measured by; see `QUIET_ROUNDS`.
        beat_s: the timetable calls `note_running` at least this often, in seconds.
        standstill_s: if `note_running` is not called for longer than this many seconds, the process was suspended.
        woke: callback after such a suspension, before the next step begins. It gets the length of the suspension in
            seconds.
        on_lag: callback when steps are due, with the number of seconds by which the first of them is late.

    Attributes:
        runs: the number of runs that ended, by the name of the step and "ok", "error" or "timeout".
    """

    def __init__(
        self,
        rng: random.Random,
        failed: Callable[[Point, str, str], None],
        timers: Timers,
        is_paused: Callable[[], bool] = lambda: False,
        *,
        growth_max: float = 1.0,
        quiet_s: float = 1.0,
        beat_s: float = math.inf,
        standstill_s: float = math.inf,
        woke: Callable[[float], None] = lambda stood_still_s: None,
        on_lag: Callable[[float], None] = lambda lag_s: None,
    ) -> None:
        self.runs: Counter[tuple[str, str]] = Counter()
        self._rng = rng
        self._failed = failed
        self._is_paused = is_paused
        self._growth_max = growth_max
        self._quiet_s = quiet_s
        self._news_at = math.inf  # before the first step
        self._grown: dict[Periodic, None] = {}
        self._together_at = -math.inf  # when the steps with grown periods run next
        self._beat_s = beat_s
        self._standstill_s = standstill_s
        self._woke = woke
        self._on_lag = on_lag
        self._ran_at = math.inf  # time at which the process was last known to run
        self._timers = timers
        self._lines: list[tuple[float, int, Periodic]] = []  # a heap: due time, number of the line, step
        self._last_number = _RUNNING

    def add(
        self,
        vnode: Point,
        name: str,
        step: Callable[[], Awaitable[object]],
        *,
        period_s: float,
        deadline_s: float,
        longest_s: Callable[[], float] = lambda: math.inf,
        growth_max: float | None = None,
    ) -> Periodic:
        """Run a step every `period_s` on average, with jitter from 0.5 to 1.5 of it.

        While there is no news, the period grows, to `growth_max` times its length.

        Args:
            vnode, name: the step's vnode and name, for `failed`.
            step: the coroutine function to run. A cancelled run leaves the state that its own docstring describes.
            period_s: mean interval in seconds. The first run comes within one interval, at random, so that nodes
                started together do not run in step.
            deadline_s: a run is cancelled after this many seconds.
            longest_s: asked after each run; returns how long the period may grow now, in seconds.
            growth_max: as for the timetable, for this step alone; default: that of the timetable.
        """
        growth_max = self._growth_max if growth_max is None else growth_max
        periodic = Periodic(self, vnode, name, step, period_s, deadline_s, longest_s, growth_max)
        self._news_at = trio.current_time()
        self.put(periodic, self._news_at + self.draw_wait(period_s))
        return periodic

    def fall_back(self) -> None:
        """Return all periods to their own lengths, because something has changed.

        Steps with a grown period run within one period of their own length, at random.
        """
        self._news_at = trio.current_time()
        grown, self._grown = self._grown, {}
        for periodic in grown:
            if periodic.number != _RUNNING:  # otherwise its next period has its own length anyway
                periodic.soon()

    def draw_wait(self, period_s: float) -> float:
        """Return a random time within one period, in seconds."""
        return self._rng.uniform(0, period_s)

    @property
    def growth(self) -> float:
        """How many times its own length a period may have now."""
        return self._growth_up_to(self._growth_max)

    def _growth_up_to(self, growth_max: float) -> float:
        quiet_s = trio.current_time() - self._news_at
        return min(growth_max, max(1.0, quiet_s / (QUIET_ROUNDS * self._quiet_s)))

    def note_running(self) -> None:
        """Note that the process runs; call `woke` if it was suspended since the last call.

        Also call it before a request is answered: after a suspension, a request may come before any step.
        """
        now = trio.current_time()
        stood_still_s, self._ran_at = now - self._ran_at, now
        if stood_still_s > self._standstill_s and self._lines:  # without steps nothing had to run
            self._woke(stood_still_s)

    def put(self, periodic: Periodic, due: float) -> None:
        """Schedule a periodic step at `due`, in seconds on Trio's clock, in place of its former schedule."""
        self.note_running()
        self._last_number = periodic.number = self._last_number + 1
        periodic.due = due
        heappush(self._lines, (due, periodic.number, periodic))
        self._timers.alarm.by(due)

    async def run(self, start_task: Callable[..., None]) -> None:
        """Start the steps that are due, until cancelled.

        Args:
            start_task: runs an async function in a task. That task is cancelled together with this one.
        """
        self._start_task = start_task
        await self._timers.alarm.run(self._begin_due)

    def _begin_due(self, now: float) -> float:
        self.note_running()
        lines = self._lines
        if lines and lines[0][0] <= now:
            self._on_lag(now - lines[0][0])
        while lines and lines[0][0] <= now:
            _, number, periodic = heappop(lines)
            if number == periodic.number:  # otherwise it was kicked, and has a newer line
                periodic.number = _RUNNING
                self._start_task(self._perform, periodic, name=periodic.name)
        due = self._timers.sweep(now)
        return min(lines[0][0], due, now + self._beat_s) if lines else due

    async def _perform(self, periodic: Periodic) -> None:
        periodic.began, periodic.due = trio.current_time(), math.inf
        outcome = "ok"
        try:
            with trio.fail_after(periodic.deadline_s):
                if not self._is_paused():
                    await periodic.step()
        except ChordError as error:
            outcome = "error"
            self._failed(periodic.vnode, periodic.name, error.word)
        except trio.TooSlowError:
            outcome = "timeout"
            self._failed(periodic.vnode, periodic.name, "timeout")
        self.runs[_label(periodic.name, outcome)] += 1
        now = trio.current_time()
        is_kicked = periodic.due <= now
        self.put(periodic, now if is_kicked else min(periodic.due, self._next(periodic, now)))

    def _next(self, periodic: Periodic, now: float) -> float:
        """Return when a step that has just run is due again.

        Steps with equal grown periods run together, because waking an idle process costs more than most steps.
        """
        jitter, growth = self._rng.uniform(0.5, 1.5), self._growth_up_to(periodic.growth_max)
        period_s = min(growth * periodic.period_s, max(periodic.longest_s(), periodic.period_s))
        if period_s == periodic.period_s:
            return now + jitter * period_s
        self._grown[periodic] = None
        if period_s != growth * self._quiet_s:
            return now + jitter * period_s
        if self._together_at <= now:
            self._together_at = now + jitter * period_s
        return self._together_at

"""Run an async function on virtual time, deterministically.

Trio's scheduler is random by design: it shuffles the tasks that are ready. Three private switches, all needed, make the
shuffle reproducible. One sorts the tasks before the shuffle, one seeds its random numbers, and one disables wake-ups by
signals. They are restored afterwards. This is the only file that uses private parts of Trio.
"""

from __future__ import annotations

import gc
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar, TypeVarTuple

import trio
from trio._core import _run as scheduler
from trio._core._wakeup_socketpair import WakeupSocketpair

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_A_LONG_TIME_S = 1e9

GARBAGE_OBJECTS = 50_000
"""Number of new objects that start a garbage collection. Thousands of nodes are millions of objects that stay."""


class Stuck(Exception):
    """Every task waits, and no timer or delivery can ever wake one of them."""


class TimedSource(Protocol):
    """A source of events at points of virtual time, such as a network, without a task."""

    def next_due(self) -> float:
        """Return the time of the next event in seconds, or infinity."""

    def advance(self, now: float) -> None:
        """Handle the events that are due at `now`; this may wake tasks."""


class VirtualClock(trio.abc.Clock):
    """A clock that stands still while a task runs, and jumps if all tasks wait.

    The clock jumps to the next event. Trio asks the clock how long to sleep exactly when no task is ready. That is the
    moment to jump. Unlike `trio.testing.MockClock` the jump needs no idle system call, and network deliveries need no
    task.

    Args:
        when_failed: callback for the first error outside of all tasks: a delivery failed, or nothing can happen any
            more. Raised there, the error would end Trio itself and leave every task as it is. None: a failed delivery
            raises, and if nothing can happen any more, the clock waits in real time.
    """

    def __init__(self, when_failed: Callable[[Exception], None] | None = None) -> None:
        self._now = 0.0
        self._sources: list[TimedSource] = []
        self._when_failed = when_failed

    def _attach(self, source: TimedSource) -> None:
        """Add a source of events."""
        self._sources.append(source)

    def start_clock(self) -> None:
        """Do nothing: the clock needs no start."""

    def current_time(self) -> float:
        """Return the virtual time, in seconds since the run began."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the next event if every task waits for one.

        Trio calls this when no task is ready.

        Args:
            deadline: the virtual time of the next timer of a task, in seconds.

        Returns:
            The real seconds to sleep; 0 after a jump.
        """
        runner = scheduler.GLOBAL_RUN_CONTEXT.runner
        if runner.waiting_for_idle:
            return _A_LONG_TIME_S  # a task in wait_all_tasks_blocked has precedence over time
        while not runner.runq:  # many deliveries wake no task, and need no pass of the scheduler
            due = math.inf
            for source in self._sources:
                due = min(due, source.next_due())
            target = min(due, deadline)
            if target == math.inf:
                return self._stuck()
            self._now = max(self._now, target)
            if due > deadline:
                break
            for source in self._sources:
                if source.next_due() <= self._now:
                    try:
                        source.advance(self._now)
                    except Exception as error:
                        when_failed, self._when_failed = self._when_failed, None
                        if when_failed is None:
                            raise
                        self._sources.clear()  # no more deliveries: all tasks must end
                        when_failed(error)
                        break
            deadline = runner.deadlines.next_deadline()
        return 0.0

    def _stuck(self) -> float:
        if self._when_failed is None:
            return _A_LONG_TIME_S
        when_failed, self._when_failed = self._when_failed, None
        when_failed(Stuck(f"after {self._now:.3f} virtual seconds every task waits for another"))
        return 0.0


class _Queue(deque[trio.lowlevel.Task]):
    """Trio's queue of ready tasks, without the tasks of stopped processes."""

    def __init__(self, tasks: Iterable[trio.lowlevel.Task]) -> None:
        super().__init__()
        self.held: dict[str, list[trio.lowlevel.Task]] = {}
        self.extend(tasks)

    def append(self, task: trio.lowlevel.Task) -> None:
        """Queue a task, or hold it until its process runs again."""
        name = self._process_of(task)
        if name is None:
            super().append(task)
        else:
            self.held[name].append(task)

    def _process_of(self, task: trio.lowlevel.Task) -> str | None:
        """Return the stopped process to which a task belongs, or None."""
        nursery = task.parent_nursery
        while nursery is not None:
            if task.name in self.held:
                return task.name
            task = nursery.parent_task
            nursery = task.parent_nursery
        return None


def stop_tasks(name: str) -> None:
    """Stop all tasks of a simulated process until `wake_tasks`, as SIGSTOP does.

    Timers and arrivals queue up meanwhile.

    Args:
        name: name of the process's first task; all tasks below it are stopped.
    """
    runner = scheduler.GLOBAL_RUN_CONTEXT.runner
    if not isinstance(runner.runq, _Queue):
        runner.runq = _Queue(runner.runq)
    queue = runner.runq
    queue.held.setdefault(name, [])
    ready = list(queue)
    queue.clear()
    for task in ready:
        queue.append(task)


def wake_tasks(name: str) -> None:
    """Let the tasks of a simulated process run again, if `stop_tasks` stopped it."""
    runner = scheduler.GLOBAL_RUN_CONTEXT.runner
    queue = runner.runq
    if isinstance(queue, _Queue):
        for task in queue.held.pop(name, ()):
            queue.append(task)
        if not queue.held:
            runner.runq = deque(queue)


def run(fn: Callable[[*Ts], Awaitable[T]], *args: *Ts, seed: int | str = 0) -> T:
    """Run an async function on virtual time.

    The same seed gives the same run, step by step. The function must not wait for the real world: no sockets, no
    threads.

    Args:
        fn, args: the function and its arguments.
        seed: seed of the scheduler.

    Returns:
        The result of the function.

    Raises:
        Stuck: every task waits, and nothing can happen any more.
    """
    failed: list[Exception] = []
    scope = trio.CancelScope()

    def end(error: Exception) -> None:
        failed.append(error)
        scope.cancel()

    async def main() -> T:
        with scope:
            result = await fn(*args)
        if failed:
            raise failed[0]
        return result

    with _deterministic(seed), _undisturbed():
        return trio.run(main, clock=VirtualClock(end))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Disable wake-ups of Trio by signals.

    A wake-up would be one more task to run, and one more random choice of the scheduler. Disabling it after Trio has
    started is too late. Blocking signals is not enough, because they belong to the process and another thread may take
    them. Ctrl-C works without it.
    """
    before = WakeupSocketpair.wakeup_on_signals
    WakeupSocketpair.wakeup_on_signals = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        WakeupSocketpair.wakeup_on_signals = before  # type: ignore[method-assign]


@contextmanager
def _deterministic(seed: int | str) -> Iterator[None]:
    before = scheduler._ALLOW_DETERMINISTIC_SCHEDULING
    dice = scheduler._r.getstate()
    is_freezing = gc.get_freeze_count() == 0
    thresholds = gc.get_threshold()
    if is_freezing:
        gc.freeze()  # existing objects need no repeated scans: this doubles the speed
    gc.set_threshold(GARBAGE_OBJECTS, *thresholds[1:])
    scheduler._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    scheduler._r.seed(f"chord/{seed}")
    try:
        yield
    finally:
        scheduler._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        scheduler._r.setstate(dice)
        gc.set_threshold(*thresholds)
        if is_freezing:
            gc.unfreeze()

"""Run an async function on virtual time, the same way every time. The one file with Trio's private switches.

Trio's scheduler is random by design: it shuffles the tasks that are ready. Three switches, all
needed, make the shuffle repeat itself: the one that sorts the tasks before shuffling them, the seed
of its dice, and the one by which signals wake it. They are put back afterwards.
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
"""So many new objects make the collector look for rubbish. Thousands of nodes are millions of objects that stay."""


class Stuck(Exception):
    """Every task waits, and there is no timer, no delivery, nothing that could ever wake one of them."""


class TimedSource(Protocol):
    """Something that happens at points of virtual time without a task of its own."""

    def next_due(self) -> float:
        """When the next thing happens, in seconds; infinity for never."""

    def advance(self, now: float) -> None:
        """It is `now`: do what is due. May reschedule tasks."""


class VirtualClock(trio.abc.Clock):
    """A clock that stands still while any task runs and jumps to the next event when all wait.

    Trio asks the clock how long to sleep exactly when no task is ready. That is the moment to jump: no detour
    through an idle system call as in `trio.testing.MockClock`, and network deliveries need no task.

    Attributes:
        when_failed: told what went wrong while no task ran: a delivery failed, or nothing can happen any more. Raised
            there, it would bring Trio itself down and leave every task where it stands.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._sources: list[TimedSource] = []
        self.when_failed: Callable[[Exception], None] | None = None

    def attach(self, source: TimedSource) -> None:
        """Let a source of events take part."""
        self._sources.append(source)

    def start_clock(self) -> None:
        """Nothing to start."""

    def current_time(self) -> float:
        """The virtual time, in seconds since the run began."""
        return self._now

    def deadline_to_sleep_time(self, deadline: float) -> float:
        """Jump to the next event, if that is what everybody waits for. Returns the real time to sleep: none."""
        runner = scheduler.GLOBAL_RUN_CONTEXT.runner
        if runner.waiting_for_idle:
            return _A_LONG_TIME_S  # somebody is in wait_all_tasks_blocked, and all are: that comes before time
        while not runner.runq:  # many a delivery wakes nobody, and needs no pass of the scheduler
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
                        when_failed, self.when_failed = self.when_failed, None
                        if when_failed is None:
                            raise
                        self._sources.clear()  # nothing more will happen: all tasks are to end
                        when_failed(error)
                        break
            deadline = runner.deadlines.next_deadline()
        return 0.0

    def _stuck(self) -> float:
        if self.when_failed is None:
            return _A_LONG_TIME_S
        when_failed, self.when_failed = self.when_failed, None
        when_failed(Stuck(f"after {self._now:.3f} virtual seconds every task waits for another"))
        return 0.0


class _Queue(deque[trio.lowlevel.Task]):
    """Trio's queue of the tasks that can run, without those of processes that are stopped."""

    def __init__(self, tasks: Iterable[trio.lowlevel.Task]) -> None:
        super().__init__()
        self.held: dict[str, list[trio.lowlevel.Task]] = {}
        self.extend(tasks)

    def append(self, task: trio.lowlevel.Task) -> None:
        """Let a task run, or hold it until its process goes on."""
        name = self._process_of(task)
        if name is None:
            super().append(task)
        else:
            self.held[name].append(task)

    def _process_of(self, task: trio.lowlevel.Task) -> str | None:
        """Return the stopped process to which a task belongs: the name of one of its ancestors."""
        nursery = task.parent_nursery
        while nursery is not None:
            if task.name in self.held:
                return task.name
            task = nursery.parent_task
            nursery = task.parent_nursery
        return None


def stop_tasks(name: str) -> None:
    """Let no task of a process run until `wake_tasks`, as SIGSTOP does: timers and arrivals only queue up.

    Args:
        name: of the task that the process began with; all tasks below it are stopped.
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
    """Let the tasks of a stopped process go on; it is none, if it was not stopped."""
    runner = scheduler.GLOBAL_RUN_CONTEXT.runner
    queue = runner.runq
    if isinstance(queue, _Queue):
        for task in queue.held.pop(name, ()):
            queue.append(task)
        if not queue.held:
            runner.runq = deque(queue)


def run(fn: Callable[[*Ts], Awaitable[T]], *args: *Ts, seed: int | str = 0) -> T:
    """Run an async function to its end on virtual time; the same seed gives the same run, step for step.

    Nothing inside may wait for the real world: no sockets, no threads.

    Returns:
        What the function returned.
    Raises:
        Stuck: everything waits, and nothing can happen any more.
    """
    clock = VirtualClock()

    async def main() -> T:
        failed: list[Exception] = []

        def end(error: Exception) -> None:
            failed.append(error)
            scope.cancel()

        with trio.CancelScope() as scope:
            clock.when_failed = end
            result = await fn(*args)
        if failed:
            raise failed[0]
        return result

    with _deterministic(seed), _undisturbed():
        return trio.run(main, clock=clock)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no signal wake Trio: that would be one more task to run, and another throw of the scheduler's dice.

    To silence it once it runs is too late, and to hold signals back meanwhile is not enough: they are the process's,
    and another thread may take them. Ctrl-C finds its way without.
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
        gc.freeze()  # what exists already need not be looked at again and again: twice the speed
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

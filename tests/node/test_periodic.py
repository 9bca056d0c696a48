"""The timetable of a node's periodic steps, and its timer task."""

from __future__ import annotations

import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from chord.errors import Busy
from chord.ids import Point
from chord.net.timers import Timers, TimerTask
from chord.node.periodic import Timetable
from tests.support.rings import virtual

VNODE = Point(7)


class Journal:
    """A step that records when it began and ended."""

    def __init__(self, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.began: list[float] = []
        self.ended: list[float] = []

    async def step(self) -> None:
        self.began.append(trio.current_time())
        await trio.sleep(self.takes_s)
        self.ended.append(trio.current_time())

    @property
    def pauses(self) -> list[float]:
        return [begins - ended for ended, begins in zip(self.ended, self.began[1:], strict=False)]


class Running:
    """A running timetable."""

    def __init__(self, seed: int = 1) -> None:
        self.failures: list[tuple[Point, str, str]] = []
        self.timers = Timers()
        self.table = Timetable(random.Random(seed), lambda *failure: self.failures.append(failure), self.timers)


@asynccontextmanager
async def running(seed: int = 1) -> AsyncIterator[Running]:
    made = Running(seed)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.table.run, nursery.start_soon)
        yield made
        nursery.cancel_scope.cancel()


@virtual
async def test_intervals_are_random_around_the_period() -> None:
    journal = Journal(takes_s=3)
    async with running() as made:
        made.table.add(VNODE, "step", journal.step, period_s=10, deadline_s=100)
        await trio.sleep(10_000)
    assert 600 < len(journal.began) < 900
    assert 5 <= min(journal.pauses) < 5.5
    assert 14.5 < max(journal.pauses) <= 15
    assert 9.7 < sum(journal.pauses) / len(journal.pauses) < 10.3


def test_first_steps_of_nodes_are_spread_over_the_period() -> None:
    first: list[float] = []

    @virtual
    async def one_node_after_the_other() -> None:
        for seed in range(40):
            began, journal = trio.current_time(), Journal()
            async with running(seed) as made:
                made.table.add(VNODE, "step", journal.step, period_s=10, deadline_s=100)
                await trio.sleep(10)
            first.append(journal.began[0] - began)

    one_node_after_the_other()
    assert min(first) < 1
    assert max(first) > 9


@virtual
async def test_slow_step_delays_no_other_and_never_overlaps_itself() -> None:
    slow, quick = Journal(takes_s=70), Journal()
    async with running() as made:
        made.table.add(VNODE, "slow", slow.step, period_s=1, deadline_s=100)
        made.table.add(VNODE, "quick", quick.step, period_s=1, deadline_s=100)
        await trio.sleep(1000)
    assert max(quick.pauses) <= 1.5
    assert min(slow.pauses) >= 0.5


@virtual
async def test_failed_step_is_reported_and_runs_again() -> None:
    runs: list[float] = []

    async def step() -> None:
        runs.append(trio.current_time())
        if len(runs) == 1:
            raise Busy("not now")
        if len(runs) == 2:
            await trio.sleep_forever()
        if len(runs) == 3:
            with trio.fail_after(1):
                await trio.sleep_forever()

    async with running() as made:
        made.table.add(VNODE, "step", step, period_s=10, deadline_s=20)
        while len(runs) < 4:
            await trio.sleep(1)
    assert made.failures == [(VNODE, "step", word) for word in (Busy.word, "timeout", "timeout")]
    assert runs[2] - runs[1] >= 20 + 5


@virtual
async def test_bug_in_a_step_ends_the_timetable() -> None:
    async def step() -> None:
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with running() as made:
            made.table.add(VNODE, "step", step, period_s=10, deadline_s=20)
            await trio.sleep_forever()


@virtual
async def test_kick_runs_a_step_once_at_once() -> None:
    journal = Journal()
    async with running() as made:
        await trio.sleep(50)
        step = made.table.add(VNODE, "step", journal.step, period_s=100, deadline_s=20)
        other = made.table.add(VNODE, "other", Journal().step, period_s=1000, deadline_s=20)
        for _ in range(3):
            step.kick()
        await trio.sleep(1)
        assert journal.began == [50]
        other.kick()
        await trio.sleep(49)
        assert journal.began == [50], "the kick replaces the planned time"
        await trio.sleep(101)
        assert len(journal.began) >= 2


@virtual
async def test_step_kicked_while_it_runs_runs_once_more_at_once() -> None:
    journal = Journal(takes_s=5)
    async with running() as made:
        step = made.table.add(VNODE, "step", journal.step, period_s=100, deadline_s=20)
        step.kick()
        await trio.sleep(1)
        for _ in range(3):
            step.kick()
        await trio.sleep(30)
    assert journal.began == [0, 5]


@virtual
async def test_cancel_ends_the_timetable_and_its_steps() -> None:
    journal = Journal(takes_s=5)
    async with running() as made:
        made.table.add(VNODE, "step", journal.step, period_s=1, deadline_s=20).kick()
        await trio.sleep(1)
    await trio.sleep(100)
    assert (journal.began, journal.ended) == ([0], [])


# -- the timer task --------------------------------------------------------------------------------


@virtual
async def test_timer_task_wakes_at_the_earliest_of_its_times() -> None:
    timer, woken, due = TimerTask(), list[float](), [math.inf]

    def sweep(now: float) -> float:
        woken.append(now)
        return due[0]

    timer.by(30)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timer.run, sweep)
        await trio.sleep(10)
        timer.by(20)  # an earlier time counts
        timer.by(25)  # a later time does not count, as the sweep at 20 returns the next time
        await trio.sleep(5)
        due[0] = 23
        await trio.sleep(6)
        due[0] = math.inf
        await trio.sleep(1000)
        timer.by(1040)
        await trio.sleep(1000)
        nursery.cancel_scope.cancel()
    assert woken == [20, 23, 1040]


@virtual
async def test_timer_task_keeps_a_time_set_during_its_sweep() -> None:
    timer, woken = TimerTask(), list[float]()

    def sweep(now: float) -> float:
        woken.append(now)
        if now == 10:
            timer.by(12)
            return 50
        return math.inf

    timer.by(10)
    with trio.move_on_after(100):
        await timer.run(sweep)
    assert woken == [10, 12]


@virtual
async def test_cancelled_timer_task_does_not_sweep() -> None:
    timer, woken = TimerTask(), list[float]()

    def sweep(now: float) -> float:
        woken.append(now)
        return math.inf

    timer.by(100)
    with trio.move_on_after(5) as scope:
        await timer.run(sweep)
    assert scope.cancelled_caught
    assert (trio.current_time(), woken) == (5, [])


@pytest.mark.parametrize(
    ("pause_s", "has_steps", "is_noticed"), [(2.0, True, False), (2.01, True, True), (9.0, False, False)]
)
def test_standstill_is_noticed_beyond_its_limit(pause_s: float, has_steps: bool, is_noticed: bool) -> None:
    woken: list[float] = []

    @virtual
    async def main() -> None:
        table = Timetable(
            random.Random(1),
            lambda *failure: None,
            Timers(),
            standstill_s=2.0,
            woke=lambda stood_still_s: woken.append(trio.current_time()),
        )
        table.note_running()
        if has_steps:
            table.add(VNODE, "step", trio.lowlevel.checkpoint, period_s=100.0, deadline_s=1.0)
        await trio.sleep(pause_s)
        table.note_running()
        table.note_running()
        assert len(woken) == is_noticed

    main()


@virtual
async def test_standstill_is_noticed_before_a_step_begins() -> None:
    order: list[str] = []

    async def step() -> None:
        order.append("step")

    async with trio.open_nursery() as nursery:
        timers = Timers()
        table = Timetable(
            random.Random(1), lambda *failure: None, timers, standstill_s=2.0, woke=lambda still_s: order.append("woke")
        )
        table.put(table.add(VNODE, "step", step, period_s=1000.0, deadline_s=1.0), trio.current_time() + 5)
        nursery.start_soon(table.run, nursery.start_soon)
        await trio.sleep(6)
        nursery.cancel_scope.cancel()
    assert order == ["woke", "step"]

"""Deadlines that are mostly cancelled: the next one is found without a look at all others."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from chord.errors import DeadlineExceeded, PeerLost
from chord.net import timers as alarm
from chord.net.timers import STALE_MAX, Deadlines, Timers
from chord.testing import MemoryNetwork
from chord.wire.messages import Get
from tests.support.rpc import Peer, limits, running, virtual

steps = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 9), st.integers(0, 50)),
        st.tuples(st.just("clear"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("expire"), st.just(0), st.integers(0, 50)),
    ),
    max_size=400,
)


@given(steps)
def test_deadlines_equal_a_plain_dict(done: list[tuple[str, int, int]]) -> None:
    deadlines, plain = Deadlines[int](), dict[int, int]()
    for step, what, when in done:
        if step == "set":
            deadlines.set(what, when)
            plain[what] = when
        elif step == "clear":
            deadlines.clear(what)
            plain.pop(what, None)
        else:
            due = list(deadlines.expired(when))
            assert [plain[one] for one in due] == sorted(plain[one] for one in due)
            assert set(due) == {one for one, at in plain.items() if at <= when}
            plain = {one: at for one, at in plain.items() if at > when}
        assert deadlines.next() == min(plain.values(), default=math.inf)
        assert len(deadlines._lines) <= 2 * len(plain) + STALE_MAX + 11


def test_cancelled_deadlines_leave_no_entries() -> None:
    deadlines = Deadlines[int]()
    deadlines.set(-1, 1.0)
    for number in range(10_000):
        deadlines.set(number, 5.0 + number)
        deadlines.clear(number)
        assert len(deadlines._lines) <= STALE_MAX + 4
    assert deadlines.next() == 1.0


class Counting(float):
    """A time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other: float) -> bool:
        Counting.compared += 1
        return float(self) < float(other)

    def __le__(self, other: float) -> bool:
        Counting.compared += 1
        return float(self) <= float(other)


def test_timers_at_1024_are_not_quadratic() -> None:
    """Each timer is due alone. A search among all others each time would take half a million comparisons."""
    timers, done = Timers(), list[int]()
    Counting.compared = 0
    for number in random.Random(1).sample(range(1024), 1024):
        timers.set(lambda number=number: done.append(number), Counting(number))  # type: ignore[misc]
    for now in range(1024):
        timers.sweep(now)
    assert done == list(range(1024))
    assert Counting.compared < 40 * 1024


@pytest.mark.slow
def test_planted_quadratic_timers_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    class Plain(Deadlines[Any]):
        def __init__(self) -> None:
            self.plain: dict[Any, float] = {}
            self.set = self.plain.__setitem__  # type: ignore[method-assign]

        def expired(self, now: float) -> Any:
            due = [do for do, when in self.plain.items() if when <= now]
            self.plain.update(dict.fromkeys(due, math.inf))
            return due

        def next(self) -> float:
            return min(self.plain.values(), default=math.inf)

    monkeypatch.setattr(alarm, "Deadlines", Plain)
    with pytest.raises(AssertionError):
        test_timers_at_1024_are_not_quadratic()


@pytest.mark.slow
@virtual
async def test_each_of_4096_calls_times_out_at_its_time() -> None:
    many = limits(calls_per_connection_max=5000, calls_max=5000, clients_share=1.0, idle_s=1e6)
    network = MemoryNetwork()
    a, b = (Peer(network.transport(host), f"{host}:1", limits=many) for host in "ab")
    late: list[float] = []
    async with running(a, b):
        await a.ping(b)
        began = trio.current_time()

        def record_lateness(deadline: float) -> Any:
            return lambda answer: late.append(trio.current_time() - deadline)

        for number in random.Random(1).sample(range(4096), 4096):
            deadline = began + 10 + number / 1000
            a.rpc.begin("b:1", Get(b"never"), record_lateness(deadline), deadline=deadline)
        await trio.sleep(20)
        assert len(late) == 4096
        assert max(late) < 0.001
        assert min(late) >= 0
        (link,) = a.rpc._shared.running
        assert not link._calls.waiting
        (link,) = b.rpc._shared.running
        assert not link._answers.in_work


@virtual
async def test_connection_lost_during_timeouts_ends_each_call_once() -> None:
    network = MemoryNetwork()
    a, b = (Peer(network.transport(host), f"{host}:1") for host in "ab")
    reported: list[Any] = []
    async with running(a, b):
        await a.ping(b)
        (link,) = a.rpc._shared.running

        def cut(answer: Any) -> None:
            reported.append(answer)
            link.cut("by the first")

        for _ in range(5):
            a.rpc.begin("b:1", Get(b"never"), cut, deadline=trio.current_time() + 1)
        await trio.sleep(2)
    assert [type(answer) for answer in reported] == [DeadlineExceeded, *[PeerLost] * 4]

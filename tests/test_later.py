"""Answers without a task: begun, told, given up, and what becomes of those that nobody waits for any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from rpc_peers import OWNER, Peer, outcome, pair, running, virtual

from chord.alarm import Timers
from chord.calls import Answer, Conclusion, Later, reply_of
from chord.errors import DeadlineExceeded, NotFound, Overloaded, PeerLost, RemoteFailure
from chord.events import HandlerFailed
from chord.messages import Pong, Reply, Values
from chord.rpc_answers import Answers
from chord.testing import MemoryNetwork


class Desk:
    """Hands out answers without a task, and remembers them."""

    def __init__(self, peer: Peer, limit: Callable[[Later], None] = lambda later: None) -> None:
        self.open: list[Later] = []
        self._then = limit
        peer.rpc.serve(self.handle)
        self.shared = peer.rpc._shared

    def handle(self, *_: Any) -> Answer:
        return Later(self._begin)

    def _begin(self, later: Later) -> None:
        self.open.append(later)
        self._then(later)

    @property
    def is_clear(self) -> bool:
        """Whether nothing counts as being in work."""
        return self.shared.calls_in_work == self.shared.bytes_in_work == 0


async def values(*read: bytes) -> Reply:
    await trio.sleep(0.1)
    return Values(read, b"", OWNER)


@virtual
async def test_who_asked_is_told_whenever_it_ends() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    async with running(a, b), trio.open_nursery() as nursery:
        told: list[Any] = []
        for _ in range(3):
            nursery.start_soon(outcome, a.ping(b), told)
        await trio.sleep(0.1)
        assert not told
        assert desk.shared.calls_in_work == 3
        desk.open[1].end(Pong())
        await trio.sleep(0.1)
        assert told == [Pong()]
        desk.open[0].end(NotFound("no such key"))
        desk.open[0].end(Pong())  # the first time counts
        desk.open[2].end(Pong())
        await trio.sleep(0.1)
        assert [type(one) for one in told] == [Pong, NotFound, Pong]
        assert desk.is_clear


@virtual
async def test_what_it_comes_to_may_need_a_task_after_all() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b, lambda later: later.end(values(b"at last")))
    async with running(a, b):
        assert await a.get(b, "echo") == b"at last"
        assert desk.is_clear


@virtual
async def test_a_bug_in_a_step_is_reported_and_the_node_goes_on() -> None:
    def slip(*_: object) -> None:
        raise KeyError("late")

    for is_late in (False, True):
        a, b = pair(MemoryNetwork())
        desk = Desk(b, (lambda later: None) if is_late else slip)
        async with running(a, b), trio.open_nursery() as nursery:
            told: list[Any] = []
            nursery.start_soon(outcome, a.ping(b), told)
            await trio.sleep(0.1)
            desk.open[0].go_on(slip)
            await trio.sleep(0.1)
            assert isinstance(told[0], RemoteFailure)
            assert "KeyError" in b.seen(HandlerFailed)[0].traceback
            assert desk.is_clear


def never_looks(answers: Answers, now: float) -> float:
    return float("inf")


@pytest.mark.parametrize("is_planted", [False, True])
def test_when_the_budget_is_used_up_the_caller_is_told_and_it_is_wanted_no_more(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        monkeypatch.setattr(Answers, "sweep", never_looks)

    @virtual
    async def check() -> None:
        a, b = pair(MemoryNetwork())
        desk = Desk(b)
        async with running(a, b):
            with pytest.raises(DeadlineExceeded):
                await a.ping(b, within=0.5)
            assert desk.open[0].is_pending
            await trio.sleep(0.5)
            assert desk.open[0].is_pending is is_planted
            assert not desk.open[0].is_wanted, "it can tell by the clock"
            assert desk.is_clear is not is_planted
            desk.open[0].end(Pong())  # nobody hears it

    check()


@virtual
async def test_when_the_connection_ends_nobody_is_told() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    async with running(a, b), trio.open_nursery() as nursery:
        told: list[Any] = []
        nursery.start_soon(outcome, a.ping(b), told)
        await trio.sleep(0.1)
        for link in list(b.rpc._shared.running):
            link.cut("test")
        await trio.sleep(0.1)
        assert isinstance(told[0], PeerLost)
        assert not desk.open[0].is_pending
        assert desk.is_clear
        desk.open[0].end(values(b"closed, and never run"))


@virtual
async def test_they_count_against_the_limits_and_nothing_is_begun_beyond() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    most = b.rpc._shared.limits.calls_per_connection_max
    async with running(a, b), trio.open_nursery() as nursery:
        told: list[Any] = []
        for _ in range(most + 1):
            nursery.start_soon(outcome, a.ping(b), told)
        await trio.sleep(0.1)
        assert [type(one) for one in told] == [Overloaded]
        assert len(desk.open) == most
        for later in desk.open:
            later.end(Pong())


@virtual
async def test_a_node_is_not_drained_before_they_have_ended() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    async with running(a, b), trio.open_nursery() as nursery:
        told: list[Any] = []
        nursery.start_soon(outcome, a.ping(b), told)
        await trio.sleep(0.1)
        nursery.start_soon(b.rpc.drain)
        await trio.sleep(0.1)
        assert len(nursery.child_tasks) == 2
        desk.open[0].end(Pong())
        await trio.sleep(0.1)
        assert not nursery.child_tasks
        assert told == [Pong()]


@virtual
async def test_one_that_is_waited_for_ends_gives_way_or_fails() -> None:
    assert await reply_of(Later(lambda later: later.end(Pong()))) == Pong()
    assert await reply_of(Later(lambda later: later.end(values(b"v")))) == Values((b"v",), b"", OWNER)
    with pytest.raises(NotFound):
        await reply_of(Later(lambda later: later.end(NotFound("no"))))
    never = Later(lambda later: None)
    with trio.move_on_after(1):
        await reply_of(never)
    assert never.deadline == trio.current_time()
    assert not never.is_pending


def test_nobody_waits_for_what_is_thrown_away() -> None:
    heard: list[Conclusion] = []
    later = Later(lambda later: None)
    later.begin(heard.append, float("inf"))
    later.give_up()
    work = values(b"v")
    later.end(work)
    assert not heard
    with pytest.raises(RuntimeError, match="cannot reuse"):
        work.send(None)


def test_timers_do_what_is_due_and_not_called_off() -> None:
    timers, done = Timers(), list[str]()

    def second() -> None:
        done.append("second")

    def first() -> None:
        done.append("first")
        timers.clear(second)

    def third() -> None:
        done.append("third")
        timers.set(third, 9.0)

    for number, do in enumerate((first, second, third), 1):
        timers.set(do, number / 10)
    assert timers.alarm.at == 0.1
    assert timers.sweep(0.05) == 0.1
    assert timers.sweep(1.0) == 9.0
    assert done == ["first", "third"]
    timers.clear(third)
    assert timers.sweep(10.0) == float("inf")

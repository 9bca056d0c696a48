"""Answers without a task: begun, told, given up, and what becomes of those that nobody waits for any more."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trio
from rpc_peers import OWNER, Peer, limits, outcome, pair, running, virtual

from chord.errors import ChordError, DeadlineExceeded, NotFound, Overloaded, PeerLost, RemoteFailure
from chord.events import HandlerFailed
from chord.net.calls import Answer, Conclusion, Later, reply_of
from chord.net.connection import FLUSH_FRAMES
from chord.net.inbound import Answers
from chord.net.send_buffer import Outbox
from chord.net.timers import Timers
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork, run
from chord.wire.messages import Ping, Pong, Reply, Values


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

    def refuse(*_: object) -> None:
        raise NotFound("and nobody asks")

    for is_late in (False, True):
        a, b = pair(MemoryNetwork())
        desk = Desk(b, (lambda later: None) if is_late else slip)
        async with running(a, b), trio.open_nursery() as nursery:
            told: list[Any] = []
            nursery.start_soon(outcome, a.ping(b), told)
            await trio.sleep(0.1)
            if is_late:
                desk.open[0].go_on(slip)
            await trio.sleep(0.1)
            assert isinstance(told[0], RemoteFailure)
            assert "KeyError" in b.seen(HandlerFailed)[0].traceback
            assert desk.is_clear
            with pytest.raises(KeyError):
                desk.open[0].go_on(slip)  # there is nobody left to be told
            desk.open[0].go_on(refuse)


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
async def test_call_whose_time_is_over_at_the_other_end_says_so_in_plain_words() -> None:
    a, b = pair(MemoryNetwork())
    Desk(b)
    said: list[str] = []
    post = Answers._post_error

    def note(self: Answers, call: Any, error: ChordError) -> None:
        said.append(error.message)
        post(self, call, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Answers, "_post_error", note)
        async with running(a, b):
            with pytest.raises(DeadlineExceeded):
                await a.ping(b, within=0.5)
            await trio.sleep(0.5)
    assert said == ["the time that the caller gave ran out before the answer was ready"]


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


@pytest.mark.parametrize("is_planted", [False, True])
def test_those_that_end_while_they_begin_leave_together(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    flush = Outbox.flush

    def counted(box: Outbox) -> None:
        if box._frames:
            writes.append(len(box._frames))
        flush(box)

    async def main() -> None:
        a, b = pair(MemoryNetwork())
        Desk(b, lambda later: later.end(Pong()))
        async with running(a, b), trio.open_nursery() as nursery:
            await a.ping(b)
            monkeypatch.setattr(Outbox, "flush", counted)
            if is_planted:
                monkeypatch.setattr(Answers, "_is_beginning", property(lambda self: False, lambda self, value: None))
            for _ in range(FLUSH_FRAMES):
                nursery.start_soon(a.ping, b)

    run(main)
    assert (len(writes) <= 4) is not is_planted, writes


@virtual
async def test_what_has_no_room_waits_for_it_and_none_is_lost() -> None:
    a, b = pair(MemoryNetwork(window_bytes=4096), limits=limits(buffer_bytes_max=50_000))
    desk = Desk(b)
    buffered: list[int] = []
    told: list[Any] = []
    async with running(a, b), trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(outcome, a.get(b, "x", 60), told)
        await trio.sleep(0.1)
        for later in desk.open:
            later.end(Values((bytes(15_000),), b"", OWNER))
        while len(told) < 60:
            buffered += [link._outbox.buffered for link in b.rpc._shared.running]
            await trio.sleep(0.01)
    assert [len(value) for value in told] == [15_000] * 60
    assert max(buffered) < 70_000
    assert desk.is_clear


def test_a_bug_in_a_step_ends_a_simulated_run() -> None:
    """Also where one step goes on at once into the next, and the first could catch what the second raises."""

    async def main() -> None:
        network = MessageNetwork("bugs")
        a, b = network.calls("a"), network.calls("b")

        def slip(later: Later) -> None:
            def worse() -> None:
                raise KeyError("late")

            later.go_on(worse)

        b.serve(lambda *_: Later(slip))
        async with trio.open_nursery() as nursery:
            await nursery.start(a.run, "a:1")
            await nursery.start(b.run, "b:1")
            await a.call("b:1", Ping(), deadline=trio.current_time() + 1)

    with pytest.raises(BaseException) as caught:  # Trio wraps it
        run(main)
    assert "KeyError" in "".join(traceback.format_exception(caught.value))


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
    unheard = values(b"v")
    with trio.CancelScope() as scope:
        scope.cancel()
        await reply_of(Later(lambda later: later.end(unheard)))
    with pytest.raises(RuntimeError, match="cannot reuse"):
        unheard.send(None)
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

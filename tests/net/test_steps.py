"""Answers in steps: a driver resumes them, reports their result, or gives them up."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import trio

from chord.errors import ChordError, DeadlineExceeded, NotFound, Overloaded, PeerLost, RemoteFailure
from chord.events import HandlerFailed
from chord.net.calls import Answer, discard, reply_of
from chord.net.connection import FLUSH_FRAMES
from chord.net.inbound import InboundCalls
from chord.net.send_buffer import SendBuffer
from chord.net.steps import IF_WANTED, Driver, Effect, Steps
from chord.net.timers import Timers
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork, run
from chord.wire.messages import GetReply, Ping, PingReply
from tests.support.rpc import OWNER, Peer, limits, outcome, pair, running, virtual


class Wait:
    """An effect that ends when the test resumes its driver."""

    def __init__(self, on_begin: Callable[[Driver[Any]], object] = lambda driver: None) -> None:
        self.drivers: list[Driver[Any]] = []
        self._on_begin = on_begin

    def begin(self, driver: Driver[Any], /) -> None:
        """Remember the driver."""
        self.drivers.append(driver)
        self._on_begin(driver)


def steps_of(effect: Effect) -> Steps[Any]:
    """Wait once, and return the result; call it if it is a function."""
    result = yield effect
    return result() if callable(result) else result


class Desk:
    """A server that answers every call in steps, which wait for the test."""

    def __init__(self, peer: Peer, on_begin: Callable[[Driver[Any]], object] = lambda driver: None) -> None:
        self._wait = Wait(on_begin)
        self.open = self._wait.drivers
        peer.rpc.serve(self.handle)
        self.shared = peer.rpc._shared

    def handle(self, *_: Any) -> Answer:
        return steps_of(self._wait)

    @property
    def is_clear(self) -> bool:
        """Whether no call and no byte counts as in work."""
        return self.shared.calls_in_work == self.shared.bytes_in_work == 0


@virtual
async def test_steps_that_end_in_any_order_answer_their_own_caller() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    async with running(a, b), trio.open_nursery() as nursery:
        results: list[Any] = []
        for _ in range(3):
            nursery.start_soon(outcome, a.ping(b), results)
        await trio.sleep(0.1)
        assert not results
        assert desk.shared.calls_in_work == 3
        desk.open[1].resume(PingReply())
        await trio.sleep(0.1)
        assert results == [PingReply()]
        desk.open[0].resume(NotFound("no such key"))
        desk.open[0].resume(PingReply())  # only the first result counts
        desk.open[2].resume(PingReply())
        await trio.sleep(0.1)
        assert [type(one) for one in results] == [PingReply, NotFound, PingReply]
        assert desk.is_clear


@virtual
async def test_bug_in_steps_is_reported_and_the_node_continues() -> None:
    def slip(*_: object) -> None:
        raise KeyError("late")

    for is_late in (False, True):
        a, b = pair(MemoryNetwork())
        desk = Desk(b, (lambda driver: None) if is_late else slip)
        async with running(a, b), trio.open_nursery() as nursery:
            results: list[Any] = []
            nursery.start_soon(outcome, a.ping(b), results)
            await trio.sleep(0.1)
            if is_late:
                desk.open[0].resume(slip)
            await trio.sleep(0.1)
            assert isinstance(results[0], RemoteFailure)
            assert "KeyError" in b.seen(HandlerFailed)[0].traceback
            assert desk.is_clear


def never_looks(answers: InboundCalls, now: float) -> float:
    return float("inf")


@pytest.mark.parametrize("is_planted", [False, True])
def test_steps_beyond_their_budget_are_given_up(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if is_planted:
        monkeypatch.setattr(InboundCalls, "sweep", never_looks)

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
            assert not desk.open[0].is_wanted, "the deadline has passed"
            assert desk.is_clear is not is_planted
            desk.open[0].resume(PingReply())

    check()


@virtual
async def test_steps_beyond_their_budget_answer_with_an_error() -> None:
    a, b = pair(MemoryNetwork())
    Desk(b)
    said: list[str] = []
    post = InboundCalls._post_error

    def note(self: InboundCalls, call: Any, error: ChordError) -> None:
        said.append(error.message)
        post(self, call, error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InboundCalls, "_post_error", note)
        async with running(a, b):
            with pytest.raises(DeadlineExceeded):
                await a.ping(b, within=0.5)
            await trio.sleep(0.5)
    assert said == ["the caller's deadline passed before the answer was ready"]


@virtual
async def test_steps_of_a_broken_connection_are_given_up() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    async with running(a, b), trio.open_nursery() as nursery:
        results: list[Any] = []
        nursery.start_soon(outcome, a.ping(b), results)
        await trio.sleep(0.1)
        for link in list(b.rpc._shared.running):
            link.cut("test")
        await trio.sleep(0.1)
        assert isinstance(results[0], PeerLost)
        assert not desk.open[0].is_pending
        assert desk.is_clear
        desk.open[0].resume(PingReply())


@pytest.mark.parametrize("is_planted", [False, True])
def test_steps_that_end_at_once_answer_in_one_write(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    writes: list[int] = []
    flush = SendBuffer.flush

    def counted(box: SendBuffer) -> None:
        if box._frames:
            writes.append(len(box._frames))
        flush(box)

    async def main() -> None:
        a, b = pair(MemoryNetwork())
        Desk(b, lambda driver: driver.resume(PingReply()))
        async with running(a, b), trio.open_nursery() as nursery:
            await a.ping(b)
            monkeypatch.setattr(SendBuffer, "flush", counted)
            if is_planted:
                monkeypatch.setattr(
                    InboundCalls, "_is_beginning", property(lambda self: False, lambda self, value: None)
                )
            for _ in range(FLUSH_FRAMES):
                nursery.start_soon(a.ping, b)

    run(main)
    assert (len(writes) <= 4) is not is_planted, writes


@virtual
async def test_replies_beyond_the_buffer_wait_and_none_is_lost() -> None:
    a, b = pair(MemoryNetwork(window_bytes=4096), limits=limits(buffer_bytes_max=50_000))
    desk = Desk(b)
    buffered: list[int] = []
    results: list[Any] = []
    async with running(a, b), trio.open_nursery() as nursery:
        for _ in range(60):
            nursery.start_soon(outcome, a.get(b, "x", 60), results)
        await trio.sleep(0.1)
        for driver in desk.open:
            driver.resume(GetReply((bytes(15_000),), b"", OWNER))
        while len(results) < 60:
            buffered += [link._send_buffer.buffered for link in b.rpc._shared.running]
            await trio.sleep(0.01)
    assert [len(value) for value in results] == [15_000] * 60
    assert max(buffered) < 70_000
    assert desk.is_clear


def test_bug_in_steps_ends_a_simulated_run() -> None:
    """The run ends even if the effect resumes the steps at once and could catch the error."""

    async def main() -> None:
        network = MessageNetwork("bugs")
        a, b = network.calls("a"), network.calls("b")

        def slip() -> None:
            raise KeyError("late")

        b.serve(lambda *_: steps_of(Wait(lambda driver: driver.resume(slip))))
        async with trio.open_nursery() as nursery:
            await nursery.start(a.run, "a:1")
            await nursery.start(b.run, "b:1")
            await a.call("b:1", Ping(), deadline=trio.current_time() + 1)

    with pytest.raises(BaseException) as caught:  # Trio wraps it
        run(main)
    assert "KeyError" in "".join(traceback.format_exception(caught.value))


@virtual
async def test_steps_beyond_the_limit_do_not_begin() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    most = b.rpc._shared.limits.calls_per_connection_max
    async with running(a, b), trio.open_nursery() as nursery:
        results: list[Any] = []
        for _ in range(most + 1):
            nursery.start_soon(outcome, a.ping(b), results)
        await trio.sleep(0.1)
        assert [type(one) for one in results] == [Overloaded]
        assert len(desk.open) == most
        for driver in desk.open:
            driver.resume(PingReply())


@virtual
async def test_drain_waits_for_steps() -> None:
    a, b = pair(MemoryNetwork())
    desk = Desk(b)
    async with running(a, b), trio.open_nursery() as nursery:
        results: list[Any] = []
        nursery.start_soon(outcome, a.ping(b), results)
        await trio.sleep(0.1)
        nursery.start_soon(b.rpc.drain)
        await trio.sleep(0.1)
        assert len(nursery.child_tasks) == 2
        desk.open[0].resume(PingReply())
        await trio.sleep(0.1)
        assert not nursery.child_tasks
        assert results == [PingReply()]


@virtual
async def test_reply_of_steps_returns_or_raises_their_result() -> None:
    assert await reply_of(PingReply()) == PingReply()
    assert await reply_of(steps_of(Wait(lambda driver: driver.resume(PingReply())))) == PingReply()
    with pytest.raises(NotFound):
        await reply_of(steps_of(Wait(lambda driver: driver.resume(NotFound("no")))))
    wait = Wait()
    with trio.move_on_after(1):
        await reply_of(steps_of(wait))
    assert wait.drivers[0].deadline == trio.current_time()
    assert not wait.drivers[0].is_pending


def test_steps_after_give_up_run_to_their_end() -> None:
    done, results, wait = list[bool](), list[Any](), Wait()

    def fail() -> None:
        raise KeyError("late")

    for result in (lambda: done.append(True), fail, NotFound("no caller")):
        driver = Driver(steps_of(wait))
        driver.begin(results.append)
        driver.give_up()
        if result is fail:
            with pytest.raises(KeyError):
                driver.resume(result)
        else:
            driver.resume(result)
    assert done == [True]
    assert not results


@virtual
async def test_steps_end_at_if_wanted_without_a_waiting_caller() -> None:
    reached: list[str] = []

    def steps(wait: Wait, name: str) -> Steps[None]:
        yield wait
        yield IF_WANTED
        reached.append(name)

    for name, deadline, is_given_up in (("wanted", 1.0, False), ("given up", 1.0, True), ("late", -1.0, False)):
        wait = Wait()
        driver = Driver(steps(wait, name))
        driver.begin(lambda result: None, trio.current_time() + deadline)
        if is_given_up:
            driver.give_up()
        driver.resume()
    assert reached == ["wanted"]


def test_discarded_answer_never_begins() -> None:
    wait = Wait()
    answer = steps_of(wait)
    discard(answer)
    assert list(answer) == []
    assert not wait.drivers


def test_timers_call_due_functions_that_are_not_cleared() -> None:
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

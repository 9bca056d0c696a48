"""One suite for every implementation of `chord.net.calls.Calls`: TCP, streams in memory, messages.

(A bug in a handler is not part of it: over streams it is answered with `RemoteFailure`, by message it ends the run.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from chord.config import Limits
from chord.errors import (
    ChordError,
    DeadlineExceeded,
    DefiniteError,
    IndefiniteError,
    LookupFailed,
    MalformedMessage,
    NotFound,
    PeerLost,
    PeerUnreachable,
    RemoteFailure,
    WritesRefused,
)
from chord.events import ignore
from chord.ids import Circle, Point
from chord.net.calls import Caller, CallsService, RequestHandler
from chord.net.transport import TcpTransport
from chord.rpc import Rpc
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork, run
from chord.wire.messages import Confirm, Contact, Get, GetReply, Hello, Lookup, Ping, PingReply, Put, Reply, Written
from tests.support.clocks import on_loopback
from tests.support.ports import Ports

CIRCLE = Circle(160)
OWNER = Contact(Point(7), "o:1")
TICK_S = 0.05
"""The unit of time in these tests."""


class Machine:
    """A host with nothing but calls. A client has no address."""

    def __init__(self, place: Place, host: str, *, is_client: bool = False) -> None:
        self.place = place
        self.host = host
        self.address = "" if is_client else place.address(host)
        self.calls = place.calls(self)
        self.scope = trio.CancelScope()
        self.asked: list[tuple[Point | None, Any, Caller]] = []
        self.calls.serve(self._handle)
        self.handler: RequestHandler = lambda vnode, request, caller: PingReply()

    def _handle(self, vnode: Point | None, request: Any, caller: Caller) -> Any:
        self.asked.append((vnode, request, caller))
        return self.handler(vnode, request, caller)

    def hello(self, stream: Any) -> Hello:
        """Return the first frame of a stream."""
        role: Any = "node" if self.address else "client"
        return Hello(1, 1, role, stream, "test", CIRCLE.bits, 8, 1, None, self.address, b"incarnat")

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run until it crashes."""
        with self.scope:
            async with trio.open_nursery() as nursery:
                self.address = await nursery.start(self.calls.run, self.address or None)
                task_status.started()

    async def crash(self) -> None:
        """End as kill -9 ends a process."""
        if self.place.network is not None:
            self.place.network.crash(self.host)
        await self.stop()

    async def stop(self) -> None:
        """End in an orderly way."""
        self.scope.cancel()
        await trio.sleep(TICK_S)

    async def ask(self, to: Machine | Contact | str, request: Any, within_s: float = math.inf) -> Any:
        """Make a call."""
        address = to.address if isinstance(to, Machine) else to
        deadline = trio.current_time() + within_s
        if self.place.way == "call":
            return await self.calls.call(address, request, deadline=deadline)
        has_answer, answers = trio.Event(), list[Any]()

        def callback(answer: Reply | ChordError) -> None:
            answers.append(answer)
            has_answer.set()

        self.calls.begin(address, request, callback, deadline=deadline)
        await has_answer.wait()
        (answer,) = answers
        if isinstance(answer, ChordError):
            raise answer
        return answer


class Place:
    """The environment of a test in this suite.

    Attributes:
        way: "call" (machines call and wait) or "begin" (they pass a callback).
        network: the simulated network, or None for TCP.
        ports: holds the port of each host, and an unused one.
    """

    def __init__(self, form: str, way: str, ports: Ports) -> None:
        self.form = form
        self.ports = ports
        self.way = way
        self.network = {"tcp": lambda: None, "memory": MemoryNetwork, "messages": MessageNetwork}[form]()

    @property
    def is_virtual(self) -> bool:
        """Whether the clock is virtual, so that times are exact."""
        return self.network is not None

    def address(self, host: str) -> str:
        """Return the address for a host's listener."""
        return f"{host}:1" if self.is_virtual else self.ports.address()

    def calls(self, machine: Machine) -> CallsService:
        """Return a host's calls."""
        if isinstance(self.network, MessageNetwork):
            return self.network.calls(machine.host)
        transport = TcpTransport() if self.network is None else self.network.transport(machine.host)
        return Rpc(
            transport,
            circle=CIRCLE,
            limits=Limits(),
            hello=machine.hello,
            on_hello=lambda _: None,
            observe=ignore,
        )

    @asynccontextmanager
    async def machines(self, hosts: str = "ab") -> AsyncIterator[list[Machine]]:
        """Run some hosts for the length of the block; a capital letter is a client."""
        made = [Machine(self, host, is_client=host.isupper()) for host in hosts]
        async with trio.open_nursery() as nursery:
            for machine in made:
                await nursery.start(functools.partial(machine.run))
            yield made
            nursery.cancel_scope.cancel()

    def unused_address(self) -> str:
        """Return an address without a listener."""
        return "unused:1" if self.is_virtual else self.ports.address()


def everywhere(test: Callable[[Place], Awaitable[None]]) -> Callable[[str, str, Ports], None]:
    """Run a test on every form; simulated forms run on virtual time."""

    @pytest.mark.parametrize("form", ["tcp", "memory", "messages"])
    @pytest.mark.parametrize("way", ["call", "begin"])
    def on(form: str, way: str, ports: Ports) -> None:
        place = Place(form, way, ports)
        if form == "tcp":
            on_loopback(test)(place)
        else:
            run(test, place)

    on.__doc__ = test.__doc__
    return on


def later(answer: Callable[[], Any], ticks: float = 1) -> RequestHandler:
    """Return a handler that answers after some ticks."""

    async def wait() -> Any:
        await trio.sleep(ticks * TICK_S)
        return answer()

    return lambda vnode, request, caller: wait()


def never(vnode: Point | None, request: Any, caller: Caller) -> Any:
    async def wait() -> Reply:
        await trio.sleep_forever()
        raise AssertionError

    return wait()


def echo(vnode: Point | None, request: Any, caller: Caller) -> Any:
    return GetReply((request.key,), b"", OWNER)


def failing(error: ChordError) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


# -- answers ---------------------------------------------------------------------------------------------


@everywhere
async def test_call_is_answered_at_once_or_later(place: Place) -> None:
    async with place.machines() as (a, b):
        b.handler = echo
        assert await a.ask(b, Get(b"k")) == GetReply((b"k",), b"", OWNER)
        b.handler = later(lambda: Written(b"", OWNER))
        assert await a.ask(b, Put(b"k", b"v", bytes(16))) == Written(b"", OWNER)
        assert await b.ask(a, Ping()) == PingReply()


@everywhere
async def test_handler_gets_the_vnode_and_the_caller(place: Place) -> None:
    async with place.machines("abC") as (a, b, client):
        await a.ask(Contact(Point(5), b.address), Ping())
        await a.ask(b, Ping())
        await client.ask(b, Ping())
        asked = [(Point(5), Ping(), Caller(a.address)), (None, Ping(), Caller(a.address)), (None, Ping(), Caller(""))]
        assert b.asked == asked


@everywhere
async def test_handler_may_call_its_caller_back(place: Place) -> None:
    async with place.machines() as (a, b):

        def back(vnode: Point | None, request: Any, caller: Caller) -> Any:
            return b.calls.call(caller.address, Ping(), deadline=math.inf)

        b.handler = back
        assert await a.ask(b, Ping()) == PingReply()
        assert a.asked == [(None, Ping(), Caller(b.address))]


@everywhere
async def test_concurrent_calls_get_their_own_answers(place: Place) -> None:
    order: list[int] = []

    async def ask(a: Machine, b: Machine, number: int) -> None:
        key = b"%d" % number
        reply = await a.ask(b, Get(key))
        assert reply.values == (key,)
        order.append(number)

    def handle(vnode: Point | None, request: Any, caller: Caller) -> Any:
        number = int(request.key)
        reply = GetReply((request.key,), b"", OWNER)
        return reply if number % 2 else later(lambda: reply, 2 - number // 20 / 3)(vnode, request, caller)

    async with place.machines() as (a, b):
        a.handler = b.handler = handle
        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, a, b, number)
                nursery.start_soon(ask, b, a, number)
        assert len(order) == 200
        assert order != sorted(order), "no call waits for earlier calls"
        for machine in (a, b):
            assert (machine.calls.stats.calls_sent, machine.calls.stats.calls_received) == (100, 100)


@everywhere
async def test_error_reply_arrives_with_all_its_fields(place: Place) -> None:
    async with place.machines() as (a, b):
        for kind in (NotFound, WritesRefused, RemoteFailure):
            for is_late in (False, True):
                fail = failing(kind("in words", peer=OWNER, after_ms=12))
                b.handler = later(fail) if is_late else lambda *_, fail=fail: fail()
                with pytest.raises(kind, match="in words") as caught:
                    await a.ask(b, Ping())
                assert (caught.value.peer, caught.value.after_ms) == (OWNER, 12)


@everywhere
async def test_failure_of_a_third_node_is_not_that_of_the_peer(place: Place) -> None:
    """An error about a third node is still an answer, so its sender is alive."""
    async with place.machines() as (a, b):
        for raised, received in (
            (PeerUnreachable, LookupFailed),
            (PeerLost, RemoteFailure),
            (DeadlineExceeded, RemoteFailure),
        ):
            for is_late in (False, True):
                fail = failing(raised("c:1 is unreachable"))
                b.handler = later(fail) if is_late else lambda *_, fail=fail: fail()
                with pytest.raises(received, match="c:1 is unreachable"):
                    await a.ask(b, Ping())


@everywhere
async def test_reply_of_another_type_is_malformed(place: Place) -> None:
    async with place.machines() as (a, b):
        with pytest.raises(MalformedMessage):
            await a.ask(b, Get(b"k"))
        assert await a.ask(b, Ping()) == PingReply()


# -- deadlines -------------------------------------------------------------------------------------------


@everywhere
async def test_call_ends_at_its_deadline_and_ignores_a_late_answer(place: Place) -> None:
    async with place.machines() as (a, b):
        await a.ask(b, Ping())
        b.handler = later(PingReply, 3)
        began = trio.current_time()
        with pytest.raises(DeadlineExceeded) as caught:
            await a.ask(b, Ping(), TICK_S)
        assert isinstance(caught.value, IndefiniteError)
        took = trio.current_time() - began
        assert took >= TICK_S * 0.99
        assert took < TICK_S + 0.001
        b.handler = echo
        assert (await a.ask(b, Get(b"k"))).values == (b"k",)
        await trio.sleep(3 * TICK_S)
        assert (await a.ask(b, Get(b"l"))).values == (b"l",)


@everywhere
async def test_call_past_its_deadline_is_not_sent(place: Place) -> None:
    async with place.machines() as (a, b):
        await a.ask(b, Ping())
        with pytest.raises(DeadlineExceeded):
            await a.ask(b, Ping(), -1.0)
        await trio.sleep(TICK_S)
        assert len(b.asked) == 1


@everywhere
async def test_budget_of_a_call_ends_its_handler(place: Place) -> None:
    ended = trio.Event()
    left: list[float] = []

    async def work() -> Reply:
        left.append(trio.current_effective_deadline() - trio.current_time())
        try:
            await trio.sleep_forever()
        finally:
            ended.set()
        raise AssertionError

    async with place.machines() as (a, b):
        await a.ask(b, Ping())
        b.handler = lambda *_: work()
        with pytest.raises(DeadlineExceeded):
            await a.ask(b, Get(b"k"), 2 * TICK_S)
        with trio.fail_after(5):
            await ended.wait()
        assert 0 < left[0] <= 2 * TICK_S + 0.001


@everywhere
async def test_budget_of_a_patient_call_is_the_enclosing_deadline(place: Place) -> None:
    left: list[float] = []

    async def work() -> Reply:
        left.append(trio.current_effective_deadline() - trio.current_time())
        await trio.sleep_forever()
        raise AssertionError

    async with place.machines() as (a, b):
        await a.ask(b, Ping())
        b.handler = lambda *_: work()
        for request, within_s in ((Confirm(Point(1)), math.inf), (Lookup(Point(1)), 60.0)):
            with trio.move_on_after(9), trio.move_on_after(2 * TICK_S) as scope:
                await a.ask(b, request, within_s)
            assert scope.cancelled_caught, "the caller's own scope ends the call, not an error"
        with trio.move_on_after(TICK_S):
            await a.ask(b, Confirm(Point(1)), 60.0)  # `Confirm` is not patient, so its budget ignores the scope
        is_within = [0 < seconds < 2 * TICK_S + 0.002 for seconds in left]
        assert is_within == [place.way == "call"] * 2 + [False], "a call with a callback has no enclosing scope"
        assert 50 < left[2] <= 60


@everywhere
async def test_cancelled_call_leaves_no_state(place: Place) -> None:
    async with place.machines() as (a, b):
        await a.ask(b, Ping())
        b.handler = later(PingReply, 2)
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(a.ask, b, Ping())
            await trio.sleep(TICK_S)
            nursery.cancel_scope.cancel()
        b.handler = echo
        assert (await a.ask(b, Get(b"k"))).values == (b"k",)
        await trio.sleep(2 * TICK_S)  # the late answers arrive
        assert (await a.ask(b, Get(b"l"))).values == (b"l",)


# -- ends ------------------------------------------------------------------------------------------------


@everywhere
async def test_call_to_an_unused_address_is_a_definite_error(place: Place) -> None:
    async with place.machines("a") as (a,):
        with pytest.raises(PeerUnreachable) as caught:
            await a.ask(place.unused_address(), Ping(), 5)
        assert isinstance(caught.value, DefiniteError)


@everywhere
async def test_crash_loses_pending_calls_and_refuses_later_ones(place: Place) -> None:
    errors: list[ChordError] = []

    async def ask(a: Machine, b: Machine) -> None:
        with pytest.raises(PeerLost) as caught:
            await a.ask(b, Get(b"k"))
        errors.append(caught.value)

    async with place.machines() as (a, b):
        b.handler = never
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, a, b)
            while len(b.asked) < 5:
                await trio.sleep(TICK_S / 10)
            await b.crash()
        assert len({id(error) for error in errors}) == 5
        assert all(isinstance(error, IndefiniteError) for error in errors)
        with pytest.raises(PeerUnreachable, match="refused"):
            await a.ask(b, Ping(), 5)


@everywhere
async def test_restarted_host_is_reached_again(place: Place) -> None:
    async with place.machines() as (a, b):
        await a.ask(b, Ping())
        address = b.address
        await b.crash()
        again = Machine(place, "b")
        again.address = address
        async with trio.open_nursery() as nursery:
            await nursery.start(functools.partial(again.run))
            assert await a.ask(address, Ping(), 5) == PingReply()
            assert again.asked == [(None, Ping(), Caller(a.address))]
            nursery.cancel_scope.cancel()


@everywhere
async def test_drain_waits_for_every_request_in_work(place: Place) -> None:
    replies: list[Reply] = []

    async def ask(a: Machine, b: Machine) -> None:
        replies.append(await a.ask(b, Ping()))

    async with place.machines() as (a, b):
        await b.calls.drain()  # no request is in work
        await a.ask(b, Ping())
        b.handler = later(PingReply, 2)
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(ask, a, b)
            while len(b.asked) < 6:
                await trio.sleep(TICK_S / 10)
            b.calls.stop_accepting()
            assert replies == []
            await b.calls.drain()
            await b.stop()  # every answer is sent
        assert replies == [PingReply()] * 5

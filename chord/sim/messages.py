"""The network at message level: calls between nodes without streams or codec, for scale.

A call is two deliveries on the virtual clock. A handler that answers at once runs inside the
delivery itself; one that must wait gets a task of its node, as on a real connection. Frozen
messages are shared, not copied. What is lost stays lost: a call finds out by its deadline.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Coroutine
from heapq import heappop, heappush
from typing import Any

import outcome
import trio

from chord.calls import Caller, Handler, Stats
from chord.errors import ChordError, DeadlineExceeded, PeerLost, PeerUnreachable
from chord.messages import Contact, Reply, Request
from chord.testing.faults import FaultyNetwork, Seams
from chord.testing.network import LAN_DELAY, Delay
from chord.testing.runner import VirtualClock


class MessageNetwork(FaultyNetwork):
    """Hosts that call each other on virtual time, and what can go wrong between them.

    Args:
        seed: of the delays and losses.
        delay: draws each message's delay, one way.
        quantum_s: arrivals happen at multiples of this, so that ties occur.
        loss: share of messages that are lost.

    Attributes:
        deliveries: messages that arrived.
        faults: cuts, partitions, frozen hosts; a cut refuses, everything else loses.
    """

    def __init__(
        self, seed: int | str = 0, *, delay: Delay = LAN_DELAY, quantum_s: float = 0.0001, loss: float = 0.0
    ) -> None:
        self.rng = random.Random(f"messages/{seed}")
        super().__init__()
        self.loss = loss
        self.deliveries = 0
        self._delay = delay
        self._quantum_s = quantum_s
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._hosts: dict[str, MessageCalls] = {}
        self._is_attached = False

    def calls(self, host: str) -> MessageCalls:
        """Return a way onto the network for a host; after a crash, this is its restart."""
        self.faults.down.pop(host, None)
        return MessageCalls(self, host)

    def seams(self, host: str) -> Seams:
        """Return what a node on a host is built with."""
        return {"calls": self.calls(host)}

    def crash(self, host: str, *, is_silent: bool = False) -> None:
        """End a host's process. Unless silent, callers that wait for it hear that the connection broke."""
        calls = self._hosts.pop(host, None)
        if is_silent:
            self.faults.down[host] = True
        if calls is not None:
            calls.die(is_silent=is_silent)

    # -- for MessageCalls -----------------------------------------------------------------------

    def enter(self, host: str, calls: MessageCalls) -> None:
        """A host begins to answer."""
        self._hosts[host] = calls

    def at_host(self, host: str) -> MessageCalls | None:
        """Return who answers at a host, or None."""
        return self._hosts.get(host)

    def send(self, source: str, target: str, arrive: Callable[[], None]) -> None:
        """Let something happen at the target after a drawn delay, unless it is lost on the way."""
        due = trio.current_time() + self._delay(self.rng, source, target)
        if self.loss and self.rng.random() < self.loss:
            return
        if self.passage(source, target) == "stalled":
            return
        self.at(math.ceil(due / self._quantum_s) * self._quantum_s, arrive)

    def at(self, due: float, happen: Callable[[], None]) -> None:
        """Let something happen at a time."""
        if not self._is_attached:
            clock = trio.lowlevel.current_clock()
            assert isinstance(clock, VirtualClock), "a message network needs chord.testing.run"
            clock.attach(self)
            self._is_attached = True
        self._sequence += 1
        heappush(self._heap, (due, self._sequence, happen))

    def next_due(self) -> float:
        """When the next thing happens; infinity for never."""
        return self._heap[0][0] if self._heap else math.inf

    def advance(self, now: float) -> None:
        """Let happen what is due."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            self.deliveries += 1
            heappop(heap)[2]()


class _Ticket:
    """A call under way: the task that waits for it, until it is told the outcome once."""

    __slots__ = ("target", "task")

    def __init__(self, task: trio.lowlevel.Task, target: str) -> None:
        self.task: trio.lowlevel.Task | None = task
        self.target = target

    def settle(self, result: outcome.Outcome[Reply]) -> None:
        task, self.task = self.task, None
        if task is not None:
            trio.lowlevel.reschedule(task, result)


class MessageCalls:
    """One host's calls. Satisfies `chord.calls.CallsService`."""

    def __init__(self, network: MessageNetwork, host: str) -> None:
        self._network = network
        self._host = host
        self._handler: Handler | None = None
        self._nursery: trio.Nursery | None = None
        self._waiting: dict[_Ticket, None] = {}
        self._working = 0
        self._address = ""
        self._idle = trio.lowlevel.ParkingLot()
        self.stats = Stats()

    def serve(self, handler: Handler) -> None:
        """Answer incoming calls with this handler from now on."""
        self._handler = handler

    async def run(self, listen: str | None, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer calls until cancelled."""
        self._address = listen or ""
        async with trio.open_nursery() as self._nursery:
            if listen is not None:
                self._network.enter(self._host, self)
            task_status.started(self._address)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery_closed()

    def _nursery_closed(self) -> None:
        self._nursery = None
        if self._network.at_host(self._host) is self:
            self._network.crash(self._host)

    def stop_accepting(self) -> None:
        """Nothing to close: a host answers until it ends."""

    async def drain(self) -> None:
        """Wait until no request is in work."""
        while self._working:
            await self._idle.park()
        await trio.lowlevel.checkpoint()

    def die(self, *, is_silent: bool) -> None:
        """The host is gone: whoever waits for it hears so, or nothing."""
        self._nursery = None
        for ticket in list(self._waiting):
            if not is_silent:
                ticket.settle(outcome.Error(PeerLost(f"{ticket.target}: the connection broke")))
        self._waiting.clear()

    # -- calling --------------------------------------------------------------------------------

    async def call(self, to: Contact | str, request: Request, *, deadline: float) -> Reply:
        """Send a request and return its reply; see `Calls.call`."""
        address = to if isinstance(to, str) else to.address
        target = address.partition(":")[0]
        network = self._network
        self.stats.calls_sent += 1
        if network.passage(self._host, target) == "cut":
            await trio.lowlevel.checkpoint()
            raise PeerUnreachable(f"{address}: no route")
        ticket = _Ticket(trio.lowlevel.current_task(), address)
        budget = min(deadline, trio.current_effective_deadline())
        network.send(self._host, target, lambda: self._arrive(ticket, to, request, target, budget))
        if deadline < math.inf:
            network.at(deadline, lambda: ticket.settle(outcome.Error(DeadlineExceeded(f"{address}: no answer"))))

        def abort(_: object) -> trio.lowlevel.Abort:
            ticket.task = None
            return trio.lowlevel.Abort.SUCCEEDED

        reply: Reply = await trio.lowlevel.wait_task_rescheduled(abort)
        return reply

    def _arrive(self, ticket: _Ticket, to: Contact | str, request: Request, target: str, budget: float) -> None:
        peer = self._network.at_host(target)
        if peer is None or peer._handler is None or peer._nursery is None:
            if target not in self._network.faults.down:
                refused = PeerUnreachable(f"{ticket.target}: connection refused")
                self._network.send(target, self._host, lambda: ticket.settle(outcome.Error(refused)))
            return
        peer.answer(self, ticket, to, request, budget)

    # -- answering ------------------------------------------------------------------------------

    def answer(self, caller: MessageCalls, ticket: _Ticket, to: Contact | str, request: Request, budget: float) -> None:
        """Answer one call: at once, or by a task of this host."""
        assert self._handler is not None
        assert self._nursery is not None
        self.stats.calls_received += 1
        try:
            answer = self._handler(None if isinstance(to, str) else to.id, request, Caller(caller._address))
        except ChordError as error:
            self._reply(caller, ticket, outcome.Error(error))
            return
        if isinstance(answer, Reply):
            self._reply(caller, ticket, outcome.Value(answer))
        else:
            self._working += 1
            self._waiting[ticket] = None
            self._nursery.start_soon(self._work, caller, ticket, answer, budget)

    async def _work(
        self, caller: MessageCalls, ticket: _Ticket, answer: Coroutine[Any, Any, Reply], budget: float
    ) -> None:
        result: outcome.Outcome[Reply] = outcome.Error(DeadlineExceeded("the caller's time is up"))
        try:
            with trio.CancelScope(deadline=budget):
                try:
                    result = outcome.Value(await answer)
                except ChordError as error:
                    result = outcome.Error(error)
        finally:
            self._working -= 1
            if not self._working:
                self._idle.unpark_all()
            if self._waiting.pop(ticket, ticket) is None:
                self._reply(caller, ticket, result)

    def _reply(self, caller: MessageCalls, ticket: _Ticket, result: outcome.Outcome[Reply]) -> None:
        self._network.send(self._host, caller._host, lambda: ticket.settle(result))



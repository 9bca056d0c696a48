"""The network at message level: calls without streams or codec, for scale.

A call is two deliveries on the virtual clock. A handler that answers at once runs inside the delivery itself. A handler
that must wait is begun, or gets a task of its node, as on a real connection. Frozen messages are shared, not copied.
The network does not send lost messages again, so the caller learns of a loss by its deadline.
"""

from __future__ import annotations

import errno
import hashlib
import math
import random
from collections.abc import Callable, Generator
from functools import partial
from heapq import heappop, heappush
from typing import Any, TypeAlias, TypeVar

import outcome
import trio

from chord.config import NodeConfig
from chord.errors import ChordError, DeadlineExceeded, MalformedMessage, PeerLost, PeerUnreachable, retold
from chord.events import Emit
from chord.net.calls import Callback, Caller, RequestHandler, Stats, Work
from chord.net.one_way_delay import JITTER_S
from chord.net.steps import Driver
from chord.node.world import Connect
from chord.observe.metrics import Meters
from chord.sim.lateness import Lateness
from chord.sim.ticket import Ticket
from chord.testing.faults import FaultyNetwork, ignore_fault
from chord.testing.network import LAN_DELAY, Delay
from chord.testing.runner import VirtualClock
from chord.wire.cuts import CutNumber
from chord.wire.hello import HelloPolicy
from chord.wire.messages import Contact, Hello, Reply, Request

T = TypeVar("T")

Weigh: TypeAlias = Callable[[Request | Reply | ChordError], int]
"""Returns the bytes that a request or its result would take as a frame."""


class MessageNetwork(FaultyNetwork):
    """Hosts that call each other on virtual time, and the faults between them.

    While two hosts are cut, requests between them are refused, and callers get broken connections in place of replies.
    All other faults lose the messages sent while they last.

    Args:
        seed: seed of the delays and losses.
        delay: draws the delay of each message; default: 0.5 to 1 ms.
        quantum_s: messages arrive at multiples of this number of seconds, so that ties occur.
        trace: keep a digest of all messages, for `digest`.
        weigh: returns the size in bytes of each message for the hosts' `stats.bytes_sent`; None: do not count bytes.
        in_order: no message arrives before an earlier one from the same source to the same target.
        on_fault: as for `FaultyNetwork`; default: none.

    Attributes:
        loss: fraction of messages that are lost, 0.0 to 1.0.
        deliveries: number of messages that arrived.
        lateness: draws the requests that arrive late, twice, or get no answer; none at first.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        delay: Delay = LAN_DELAY,
        quantum_s: float = 0.0001,
        trace: bool = False,
        weigh: Weigh | None = None,
        in_order: bool = False,
        on_fault: Callable[[str, tuple[tuple[str, ...], ...]], object] = ignore_fault,
    ) -> None:
        self.rng = random.Random(f"messages/{seed}")
        super().__init__(on_fault)
        self.loss = 0.0
        self.deliveries = 0
        self.weigh = weigh
        self._delay = delay
        self._quantum_s = quantum_s
        self._last_due: dict[tuple[str, str], float] | None = {} if in_order else None
        self._trace = hashlib.blake2b(digest_size=16) if trace else None
        self.lateness = Lateness(random.Random(f"lateness/{seed}"))
        self._heap: list[tuple[float, int, str, Callable[[Any], None], Any]] = []
        self._stopped: dict[str, list[tuple[Callable[[Any], None], Any]]] = {}  # with the events that wait for each
        self._sequence = 0
        self._hosts: dict[str, MessageCalls] = {}
        self._is_attached = False

    def calls(self, host: str) -> MessageCalls:
        """Return the calls of a new node or client on a host. If the host has vanished, it is back."""
        self._faults.down.pop(host, None)
        return MessageCalls(self, host)

    def _connector(self, host: str) -> Connect:
        """Return the `World.connect` of a new node; see `FaultyNetwork._connector`."""
        calls = self.calls(host)

        def connect(config: NodeConfig, hello_policy: HelloPolicy, observe: Emit, cuts: CutNumber) -> MessageCalls:
            calls.cuts = cuts
            return calls

        return connect

    def crash(self, host: str, *, silently: bool = False) -> None:
        """End a host's process.

        Args:
            host: the name of the host.
            silently: the machine vanishes with the process. Callers then wait until their deadlines; otherwise they see
                a broken connection.
        """
        calls = self._hosts.pop(host, None)
        if silently:
            self._faults.down[host] = True
        if calls is not None:
            calls.die(silently=silently)

    def _after_change(self) -> None:
        """Do nothing: the fate of a message is decided when it is sent."""

    def set_delay(self, delay: Delay) -> None:
        """Draw the delays of messages from this distribution from now on."""
        self._delay = delay

    def digest(self) -> str:
        """Return a digest of every message so far: due time, source, target.

        An assertion fails if the network was made without `trace`.
        """
        assert self._trace is not None, "MessageNetwork(trace=True)"
        return self._trace.hexdigest()

    # -- for MessageCalls -----------------------------------------------------------------------

    def enter(self, host: str, calls: MessageCalls) -> None:
        """Let a process receive the messages for a host from now on, in place of an earlier process."""
        self._hosts[host] = calls

    def at_host(self, host: str) -> MessageCalls | None:
        """Return the calls that answer at a host; None if no process answers there."""
        return self._hosts.get(host)

    def send(self, source: str, target: str, arrive: Callable[[T], None], what: T, after_s: float = 0.0) -> bool:
        """Let a message arrive after a drawn delay plus `after_s`, unless it is lost.

        Its arrival is the call `arrive(what)`, in the process of the target.

        Returns:
            Whether it will arrive.
        """
        due = trio.current_time() + after_s + self._delay(self.rng, source, target)
        if self.loss and self.rng.random() < self.loss:
            return False
        if self._passage(source, target) == "stalled":
            return False
        if self._last_due is not None:
            due = self._last_due[source, target] = max(due, self._last_due.get((source, target), 0.0))
        if self._trace is not None:
            self._trace.update(f"{due:.9f} {source} {target}\n".encode())
        self.at(math.ceil(due / self._quantum_s) * self._quantum_s, target, arrive, what)
        return True

    def stop(self, host: str) -> None:
        """Stop a host's process: arriving messages and its timers wait until `wake`."""
        self._stopped.setdefault(host, [])

    def wake(self, host: str) -> None:
        """Let a stopped process go on: everything that waited for it happens now."""
        for happen, what in self._stopped.pop(host, ()):
            self.at(trio.current_time(), host, happen, what)

    def at(self, due: float, host: str, happen: Callable[[T], None], what: T) -> None:
        """Schedule the call `happen(what)` at virtual time `due`, in a host's process.

        If the process is stopped then, the call waits until `wake`.
        """
        if not self._is_attached:
            clock = trio.lowlevel.current_clock()
            assert isinstance(clock, VirtualClock), "a message network needs chord.testing.run"
            clock._attach(self)
            self._is_attached = True
        self._sequence += 1
        heappush(self._heap, (due, self._sequence, host, happen, what))

    def next_due(self) -> float:
        """Return the virtual second at which the next event is due; infinity: never."""
        return self._heap[0][0] if self._heap else math.inf

    def advance(self, now: float) -> None:
        """Let all events happen that are due at virtual second `now`."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, host, happen, what = heappop(heap)
            if self._stopped and host in self._stopped:
                self._stopped[host].append((happen, what))
            else:
                happen(what)


class MessageCalls:
    """One host's calls. Satisfies `chord.net.calls.CallsService`.

    Attributes:
        as_caller: the caller that other hosts see. Its address is "" before `run`, and if the host only sends calls.
        stats: totals since the start.
        cuts: the number of the newest cut that this host knows.
    """

    def __init__(self, network: MessageNetwork, host: str) -> None:
        self._network = network
        self.host = host
        self._handler: RequestHandler | None = None
        self._nursery: trio.Nursery | None = None
        self._waiting: dict[Ticket, None] = {}
        self.as_caller = Caller("")
        self._idle: trio.lowlevel.ParkingLot | None = None  # made when `drain` waits
        self.stats = Stats()
        self.cuts = CutNumber()

    @property
    def meters(self) -> Meters:
        """No traffic, because messages have no frames."""
        return Meters()

    def serve(self, handler: RequestHandler) -> None:
        """Answer incoming calls with this handler from now on."""
        self._handler = handler

    async def run(self, listen: str | None, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Answer calls until cancelled; report the address when that begins.

        Args:
            listen: the address to answer at; None: only send calls.

        Raises:
            OSError: another process of the host answers already.
        """
        if listen is not None and self._network.at_host(self.host) is not None:
            raise OSError(errno.EADDRINUSE, f"{listen} is in use")
        self.as_caller = Caller(listen or "")
        async with trio.open_nursery() as self._nursery:
            if listen is not None:
                self._network.enter(self.host, self)
            task_status.started(self.as_caller.address)
            del task_status  # see `Node.run`
            try:
                await trio.lowlevel.wait_task_rescheduled(_abort)  # until cancelled
            finally:
                self._nursery = None
                if self._network.at_host(self.host) is self:
                    self._network.crash(self.host)

    def stop_accepting(self) -> None:
        """Do nothing: a host answers until it ends."""

    def shortage(self) -> str:
        """Return "" for no shortage: this network has no limit on connections."""
        return ""

    async def drain(self) -> None:
        """Wait until this host works on no request."""
        while self._waiting:
            self._idle = self._idle or trio.lowlevel.ParkingLot()
            await self._idle.park()
        await trio.lowlevel.checkpoint()

    def die(self, *, silently: bool) -> None:
        """End the host. Waiting callers see a broken connection; with `silently`, they see nothing."""
        self._nursery = None
        for ticket in list(self._waiting):
            if not silently:
                ticket.settle(PeerLost(f"{ticket.address}: the connection broke"))
        self._waiting.clear()

    # -- calling --------------------------------------------------------------------------------

    async def call(self, to: Contact | str, request: Request, *, deadline: float) -> Reply:
        """Send a request to a vnode or to a node's address, and return its reply.

        Args:
            to: the vnode, or the address HOST:PORT of a node.
            request: the request.
            deadline: the virtual second until which to wait; infinity: no limit.

        Raises:
            ChordError: the error in the reply, or no reply came in time, or the host could not be reached.
        """
        address = to if isinstance(to, str) else to.address
        if (refusal := self._refusal(address, deadline)) is not None:
            await trio.lowlevel.checkpoint()
            raise refusal
        budget = deadline
        if request.patient or deadline == math.inf:
            budget = min(deadline, trio.current_effective_deadline())
        task = trio.lowlevel.current_task()

        def wake(answer: Reply | ChordError) -> None:
            trio.lowlevel.reschedule(task, outcome.Value(answer))

        ticket = self._send(Ticket(self, to, address, request, budget, wake), deadline)
        answer: Reply | ChordError = await trio.lowlevel.wait_task_rescheduled(ticket.abandon)
        if isinstance(answer, Reply):
            return answer
        raise answer

    async def reach(self, address: str, *, deadline: float) -> Hello | None:
        """Return None in place of a hello: this network has no connections.

        Each host has only one address. `deadline` has no effect.
        """
        await trio.lowlevel.checkpoint()
        return None

    def begin(self, to: Contact | str, request: Request, callback: Callback, *, deadline: float) -> None:
        """Send a request without a task that waits for the reply.

        Args:
            to: the vnode, or the address HOST:PORT of a node.
            request: the request.
            callback: called once with the reply or the error, unless this host crashes before.
            deadline: the virtual second until which a reply counts; infinity: no limit.
        """
        address = to if isinstance(to, str) else to.address
        if (refusal := self._refusal(address, deadline)) is not None:
            callback(refusal)
        else:
            self._send(Ticket(self, to, address, request, deadline, self._unless_dead(callback)), deadline)

    def _unless_dead(self, callback: Callback) -> Callback:
        """Return a callback that does nothing once this host has crashed."""
        return lambda answer: None if self._nursery is None else callback(answer)

    def _refusal(self, address: str, deadline: float) -> ChordError | None:
        """Count a call; return its error if it cannot be sent, otherwise None."""
        self.stats.calls_sent += 1
        if self._network._passage(self.host, host_of(address)) == "cut":
            return PeerUnreachable(f"{address}: no route")
        return DeadlineExceeded("the deadline had passed before the call") if deadline <= trio.current_time() else None

    def _send(self, ticket: Ticket, deadline: float) -> Ticket:
        network = self._network
        ticket.cut = self.cuts.number
        first_s, again_s = network.lateness.draw()
        network.send(self.host, host_of(ticket.address), self._arrive, ticket, first_s)
        if again_s is not None:
            network.send(self.host, host_of(ticket.address), self._arrive, ticket.again(), again_s)
        if network.weigh is not None:
            self.stats.bytes_sent += network.weigh(ticket.request)
        if deadline < math.inf:
            network.at(deadline, self.host, self._expire, ticket)
        return ticket

    def _expire(self, ticket: Ticket) -> None:
        if ticket.callback is not None:
            ticket.settle(DeadlineExceeded(f"{ticket.address}: no answer"))

    def _arrive(self, ticket: Ticket) -> None:
        network, target = self._network, host_of(ticket.address)
        if ticket.first is not None:
            if not ticket.first.may_be_sent_again():
                return
            network.lateness.counts["twice"] += 1
        network.deliveries += 1
        peer = network.at_host(target)
        if peer is not None and peer.is_answering:
            peer.answer(ticket)
        elif target not in network._faults.down:
            ticket.result = PeerUnreachable(f"{ticket.address}: connection refused", is_refused=True)
            network.send(target, self.host, self._hear, ticket)

    def _hear(self, ticket: Ticket) -> None:
        self._network.deliveries += 1
        assert ticket.result is not None
        self.cuts.see(ticket.cut)
        ticket.settle(ticket.result)

    # -- answering ------------------------------------------------------------------------------

    @property
    def is_answering(self) -> bool:
        """Whether the host is up and has a handler."""
        return self._handler is not None and self._nursery is not None

    def answer(self, ticket: Ticket) -> None:
        """Answer one call, at once or later. The caller checks `is_answering` first."""
        assert self._handler is not None
        assert self._nursery is not None
        self.stats.calls_received += 1
        self.cuts.see(ticket.cut)
        if trio.current_time() > ticket.budget + JITTER_S:  # do not begin late calls, as in `chord.net.one_way_delay`
            self._reply(ticket, DeadlineExceeded("the caller's time was up before the call was read"))
            return
        to = ticket.to
        try:
            answer = self._handler(None if isinstance(to, str) else to.id, ticket.request, ticket.caller.as_caller)
        except ChordError as error:
            self._reply(ticket, retold(error))
            return
        if isinstance(answer, Reply):
            self._reply(ticket, answer)
            return
        self._waiting[ticket] = None
        if isinstance(answer, Generator):
            driver: Driver[Reply] = Driver(answer)
            if ticket.budget < math.inf:
                self._network.at(ticket.budget, self.host, self._time_is_up, (ticket, driver))
            driver.begin(partial(self._on_result, ticket), ticket.budget)
        else:
            self._nursery.start_soon(self._work, ticket, answer, name="answer")

    def _on_result(self, ticket: Ticket, result: Reply | Exception) -> None:
        if isinstance(result, Reply):
            self._ended(ticket, result)
        elif isinstance(result, ChordError):
            self._ended(ticket, retold(result))
        else:  # a bug; raised here it would stop other callbacks
            self._network.at(trio.current_time(), self.host, _raise, result)

    def _time_is_up(self, late: tuple[Ticket, Driver[Reply]]) -> None:
        ticket, driver = late
        if driver.is_pending:
            driver.give_up()
            self._ended(ticket, DeadlineExceeded("the caller's time is up"))

    async def _work(self, ticket: Ticket, work: Work) -> None:
        result: Reply | ChordError = DeadlineExceeded("the caller's time is up")
        try:
            with trio.CancelScope(deadline=ticket.budget):
                try:
                    result = await work
                except ChordError as error:
                    result = retold(error)
        finally:
            self._ended(ticket, result)

    def _ended(self, ticket: Ticket, result: Reply | ChordError) -> None:
        if self._waiting.pop(ticket, ticket) is None:
            self._reply(ticket, result)
        if not self._waiting and self._idle is not None:
            self._idle.unpark_all()

    def _reply(self, ticket: Ticket, result: Reply | ChordError) -> None:
        if isinstance(result, Reply) and not isinstance(result, ticket.request.reply):
            result = MalformedMessage(f"{ticket.address}: {type(result).__name__} is no answer")
        caller = ticket.caller
        if self._network._passage(self.host, caller.host) == "cut":
            result = PeerLost(f"{ticket.address}: the connection broke")
        ticket.result, ticket.cut = result, self.cuts.number
        if self._network.lateness.loses(result):
            return
        self._network.send(self.host, caller.host, caller._hear, ticket)
        if self._network.weigh is not None:
            self.stats.bytes_sent += self._network.weigh(result)


def host_of(address: str) -> str:
    """Return the host of an address HOST:PORT."""
    return address.partition(":")[0]


def _abort(_: trio.lowlevel.RaiseCancelT) -> trio.lowlevel.Abort:
    return trio.lowlevel.Abort.SUCCEEDED


def _raise(bug: Exception) -> None:
    raise bug

"""A network in memory: the counterpart of `TcpTransport`, with faults on request.

Hosts have names (`n7`), addresses are `n7:1`. Items sent on a stream in one direction arrive in order. Each arrives
after a random delay on Trio's clock, rounded up to a quantum, so that ties occur. Windows are bounded: a sender waits
if its peer does not read. Under `chord.testing.run` deliveries need no task. Under any other clock a system task makes
them. The seed determines the order of all events.
"""

from __future__ import annotations

import errno
import hashlib
import math
import random
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import TypeAlias

import trio

from chord.config import split_address, to_dial
from chord.errors import PeerUnreachable
from chord.net.transport import Listener, Stream
from chord.node.world import Connect, connect_over
from chord.testing.faults import FaultyNetwork, ignore_fault
from chord.testing.runner import VirtualClock
from chord.testing.streams import MemoryConnection, MemoryPipe, MemoryStream, Signal

Delay: TypeAlias = Callable[[random.Random, str, str], float]
"""Returns the delay in seconds of one message between two hosts."""

BACKLOG_MAX = 128


def uniform(low_s: float, high_s: float) -> Delay:
    """Return a delay with a uniform distribution between two bounds, in seconds."""
    return lambda rng, source, target: rng.uniform(low_s, high_s)


def exponential(mean_s: float) -> Delay:
    """Return a delay with an exponential distribution around a mean, in seconds.

    The papers' churn experiments use such delays.
    """
    return lambda rng, source, target: rng.expovariate(1 / mean_s)


def lossy(delay: Delay, share: float, retransmit_s: float = 0.2) -> Delay:
    """Return the delay on a network that also loses some messages.

    On a stream, a loss shows as a stall until the message is sent again.

    Args:
        delay: the delays of messages that are not lost.
        share: probability that a message is lost, 0.0 to 1.0.
        retransmit_s: seconds until a lost message is sent again. The wait doubles with each further loss of the
            message; ten losses are the most.
    """

    def draw(rng: random.Random, source: str, target: str) -> float:
        lost = 0
        while rng.random() < share and lost < 10:
            lost += 1
        return delay(rng, source, target) + retransmit_s * ((1 << lost) - 1)

    return draw


LAN_DELAY = uniform(0.0005, 0.001)


class MemoryNetwork(FaultyNetwork):
    """A network in memory: hosts, streams between them, and faults of both.

    Args:
        seed: seed of the delays.
        delay: draws the delay of each message; default: 0.5 to 1 ms.
        quantum_s: arrivals happen at multiples of this many seconds.
        window_bytes: most bytes sent and not yet read, for each direction of a stream.
        trace: keep a digest of all deliveries, for `digest`.
        on_fault: as for `FaultyNetwork`; default: none.

    Attributes:
        deliveries: number of messages that arrived, closing signals included.
        bytes_delivered: number of bytes that arrived.
    """

    def __init__(
        self,
        seed: int | str = 0,
        *,
        delay: Delay = LAN_DELAY,
        quantum_s: float = 0.0001,
        window_bytes: int = 1 << 16,
        trace: bool = False,
        on_fault: Callable[[str, tuple[tuple[str, ...], ...]], object] = ignore_fault,
    ) -> None:
        super().__init__(on_fault)
        self._rng = random.Random(f"network/{seed}")
        self._delay = delay
        self._quantum_s = quantum_s
        self._window = window_bytes
        self._trace = hashlib.blake2b(digest_size=16) if trace else None
        self.deliveries = 0
        self.bytes_delivered = 0
        self._hosts: dict[str, list[MemoryTransport]] = {}
        self._listeners: dict[tuple[str, int], MemoryListener] = {}
        self._connections: dict[int, MemoryConnection] = {}
        self._last_id = 0
        self._heap: list[tuple[float, int, MemoryPipe]] = []
        self._driver: trio.CancelScope | VirtualClock | None = None
        self._changed = trio.lowlevel.ParkingLot()

    # -- hosts and faults -----------------------------------------------------------------------

    def transport(self, host: str) -> MemoryTransport:
        """Return a transport for a new node on a host.

        If the host has crashed, this restarts it.
        """
        if self._faults.down.pop(host, False):
            for connection in self._of(host):
                connection.reset()
            self._after_change()
        made = MemoryTransport(self, host)
        self._hosts.setdefault(host, []).append(made)
        return made

    def _connector(self, host: str) -> Connect:
        """Return the `World.connect` of a new node on a host.

        See `FaultyNetwork._connector`.
        """
        return partial(connect_over, self.transport(host))

    def crash(self, host: str, *, silently: bool = False) -> None:
        """End the process of a host, as kill -9 does.

        Data that the process had sent still arrives, then its streams are reset. Its listeners are gone, so that dials
        are refused. All further calls of its tasks fail.

        Args:
            host: the name of the host.
            silently: the machine vanishes with the process. Peers see no reset, and dials stall.
        """
        for transport in self._hosts.get(host, ()):
            transport.is_dead = True
        self._hosts[host] = []
        for address in [one for one in self._listeners if one[0] == host]:
            self._listeners.pop(address).close()
        if silently:
            self._faults.down[host] = True
        for connection in self._of(host):
            for end in connection.ends:
                if end.host == host:
                    end.die(silently=silently)

    def set_delay(self, delay: Delay) -> None:
        """Draw the delays of later messages from another distribution.

        Earlier messages still arrive first.
        """
        self._delay = delay

    # -- counting -------------------------------------------------------------------------------

    @property
    def connections(self) -> int:
        """Number of connections that are open at one end or both."""
        return len(self._connections)

    def digest(self) -> str:
        """Return a digest of every delivery so far: time, source, target, content.

        An assertion fails if the network was made without `trace`.
        """
        assert self._trace is not None, "MemoryNetwork(trace=True)"
        return self._trace.hexdigest()

    def check(self) -> list[str]:
        """Return the violated invariants of all streams, a sentence for each; empty if none."""
        return [line for connection in self._connections.values() for line in connection.check()]

    # -- for streams, listeners and transports ----------------------------------------------------

    def _send(self, pipe: MemoryPipe, item: bytes | Signal) -> None:
        """Send an item on a pipe; it arrives after a random delay."""
        due = max(self._due(pipe.source, pipe.target), pipe.last_due)
        pipe.last_due = due
        pipe.flying.append((due, item))
        self._schedule(due, pipe)

    def _on_arrived(self, pipe: MemoryPipe, item: bytes | Signal, now: float) -> None:
        """Count and trace a delivery."""
        self.deliveries += 1
        content = item if isinstance(item, bytes) else item.value
        self.bytes_delivered += len(content) if isinstance(item, bytes) else 0
        if self._trace is not None:
            self._trace.update(f"{now:.9f} {pipe.source} {pipe.target} {len(content)} ".encode() + content)

    def _on_closed(self, connection: MemoryConnection) -> None:
        """Remove a connection that is closed at both ends."""
        self._connections.pop(connection.id, None)

    async def _travel(self, source: str, target: str) -> None:
        """Wait for the time that one message takes between two hosts.

        While the path is stalled, this waits longer.

        Raises:
            PeerUnreachable: the path is cut.
        """
        while True:
            passage = self._passage(source, target)
            if passage == "cut":
                await trio.lowlevel.checkpoint()
                raise PeerUnreachable(f"no route from {source} to {target}")
            if passage == "stalled":
                await self._changed.park()
                continue
            await trio.sleep_until(self._due(source, target))
            if self._passage(source, target) == "open":
                return

    def _listen(self, host: str, port: int) -> MemoryListener:
        """Open a listener; see `MemoryTransport.open_listener`."""
        while port == 0:
            self._last_id += 1
            if (host, 1000 + self._last_id) not in self._listeners:
                port = 1000 + self._last_id
        if (host, port) in self._listeners:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        listener = self._listeners[host, port] = MemoryListener(self, host, port)
        return listener

    def _listener_at(self, host: str, port: int) -> MemoryListener | None:
        """Return the listener at an address if it has room for a dial, otherwise None."""
        listener = self._listeners.get((host, port))
        return listener if listener is not None and listener.has_room else None

    def _is_known(self, host: str) -> bool:
        """Return whether a host of this name was ever on the network."""
        return host in self._hosts

    def _forget_listener(self, listener: MemoryListener) -> None:
        """Remove a listener that was closed."""
        if self._listeners.get((listener.host, listener.port)) is listener:
            del self._listeners[listener.host, listener.port]

    def _connect(self, dialler: str, acceptor: str) -> MemoryConnection:
        """Make a connection from a dialling host to an accepting one."""
        self._last_id += 1
        connection = MemoryConnection(self, self._last_id, dialler, acceptor, self._window)
        self._connections[connection.id] = connection
        return connection

    # -- deliveries -----------------------------------------------------------------------------

    def next_due(self) -> float:
        """Return the time of the next arrival, in seconds on Trio's clock; infinity: nothing is in transit."""
        return self._heap[0][0] if self._heap else math.inf

    def advance(self, now: float) -> None:
        """Deliver all messages that are due at the time `now`, in seconds on Trio's clock."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            _, _, pipe = heappop(heap)
            if not pipe.flying or pipe.flying[0][0] > now:
                continue
            if self._passage(pipe.source, pipe.target) == "open":
                pipe.arrive(now)

    # -- inside ---------------------------------------------------------------------------------

    def _due(self, source: str, target: str) -> float:
        at = trio.current_time() + self._delay(self._rng, source, target)
        return math.ceil(at / self._quantum_s) * self._quantum_s

    def _schedule(self, due: float, pipe: MemoryPipe) -> None:
        self._last_id += 1
        heappush(self._heap, (due, self._last_id, pipe))
        driver = self._driver
        if driver is None:
            driver = self._start_driver()
        if isinstance(driver, trio.CancelScope) and due < driver.deadline:
            driver.deadline = due

    def _start_driver(self) -> trio.CancelScope | VirtualClock:
        clock = trio.lowlevel.current_clock()
        if isinstance(clock, VirtualClock):
            clock._attach(self)
            self._driver = clock
            return clock
        self._driver = scope = trio.CancelScope(deadline=self.next_due())
        trio.lowlevel.spawn_system_task(self._pump, name="in-memory network")
        return scope

    async def _pump(self) -> None:
        while True:
            with self._driver:  # type: ignore[union-attr]  # a scope: see _start_driver
                await trio.sleep_forever()
            self.advance(trio.current_time())
            self._driver = trio.CancelScope(deadline=self.next_due())

    def _of(self, host: str) -> list[MemoryConnection]:
        return [one for one in self._connections.values() if host in (one.dialler.host, one.acceptor.host)]

    def _after_change(self) -> None:
        """Reset streams that are cut now; resume streams and dials that no longer stall."""
        for connection in list(self._connections.values()):
            for pipe in connection.pipes:
                passage = self._passage(pipe.source, pipe.target)
                if passage == "cut":
                    connection.reset()
                elif passage == "open" and pipe.flying and pipe.flying[0][0] <= trio.current_time():
                    due = self._due(pipe.source, pipe.target)  # it was stalled: sent again now
                    pipe.flying = [(max(at, due), item) for at, item in pipe.flying]
                    pipe.last_due = max(pipe.last_due, due)
                    for at, _ in pipe.flying:
                        self._schedule(at, pipe)
        self._changed.unpark_all()


class MemoryTransport:
    """The transport of one host. Implements `chord.net.transport.Transport`.

    Attributes:
        is_dead: the host crashed; calls on this transport fail.
    """

    def __init__(self, network: MemoryNetwork, host: str) -> None:
        self._network = network
        self._host = host
        self.is_dead = False

    def shortage(self) -> str:
        """Return "", which means that a stream can be opened."""
        return ""

    async def open_stream(self, address: str) -> Stream:
        """Connect to HOST:PORT.

        The connection takes one round trip, and longer while the path is stalled.

        Raises:
            PeerUnreachable: the connection was refused, the path is cut, no such host exists, or this host has crashed.
        """
        host, port = to_dial(address)
        network = self._network
        if self.is_dead or not network._is_known(host):
            await trio.lowlevel.checkpoint()
            raise PeerUnreachable(f"{address}: {'this host has crashed' if self.is_dead else 'no such host'}")
        await network._travel(self._host, host)
        listener = network._listener_at(host, port)
        if listener is None:
            await network._travel(host, self._host)
            raise PeerUnreachable(f"{address}: connection refused", is_refused=True)
        connection = network._connect(self._host, host)
        listener.offer(connection.acceptor)
        try:
            await network._travel(host, self._host)
        except BaseException:
            connection.reset()
            raise
        return connection.dialler

    async def open_listener(self, address: str) -> Listener:
        """Listen at HOST:PORT of this host; port 0 takes a free one.

        Raises:
            OSError: the address is in use or belongs to another host, or this host has crashed.
        """
        await trio.lowlevel.checkpoint()
        host, port = split_address(address)
        if host != self._host or self.is_dead:
            raise OSError(errno.EADDRNOTAVAIL, f"{address} is not an address of {self._host}")
        return self._network._listen(host, port)


class MemoryListener:
    """Accepts streams at one address of a host.

    Implements `chord.net.transport.Listener`.
    """

    def __init__(self, network: MemoryNetwork, host: str, port: int) -> None:
        self._network = network
        self.host = host
        self.port = port
        self._backlog: list[MemoryStream] = []
        self._lot = trio.lowlevel.ParkingLot()
        self._is_closed = False

    @property
    def address(self) -> str:
        """The address HOST:PORT at which this listener accepts streams."""
        return f"{self.host}:{self.port}"

    @property
    def has_room(self) -> bool:
        """Whether one more stream may wait to be accepted."""
        return not self._is_closed and len(self._backlog) < BACKLOG_MAX

    def offer(self, stream: MemoryStream) -> None:
        """Queue a stream from a dialling host until `accept` returns it."""
        self._backlog.append(stream)
        self._lot.unpark()

    async def accept(self) -> MemoryStream:
        """Wait for the next stream.

        Raises:
            trio.ClosedResourceError: the listener is closed, or was closed during the wait.
        """
        await trio.lowlevel.checkpoint()
        while not self._is_closed:
            if self._backlog:
                return self._backlog.pop(0)
            await self._lot.park()
            await trio.lowlevel.checkpoint()  # if a crash cancels and closes at once, the cancellation has precedence
        raise trio.ClosedResourceError("this listener is closed")

    def close(self) -> None:
        """Stop accepting, and reset dialled streams that were not accepted yet.

        The address stays in use until `aclose`.
        """
        self._is_closed = True
        while self._backlog:
            self._backlog.pop(0).connection.reset()
        self._lot.unpark_all()

    async def aclose(self) -> None:
        """Free the address, and stop accepting as `close` does."""
        self._network._forget_listener(self)
        self.close()
        await trio.lowlevel.checkpoint()

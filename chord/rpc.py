"""Calls between nodes: which connections exist, and which connection a call takes.

Two streams connect a pair of nodes. `Rpc` opens each stream when it is first needed:

- *control* carries small frames.
- *bulk* carries large values and transfers, so that a value of a megabyte never delays a ping.

Both nodes make calls on a stream, whichever node dialled it. If two nodes dial each other at the same time, the
connection that the lower address dialled stays and the other one drains. A draining connection takes no new calls, and
closes after its last answer. A client dials nodes; nodes never call it.

The parts of a connection:

- `net/handshake`: the first frame in each direction
- `net/connection`: one connection, with its calls, its deadlines and its end
- `net/inbound`: the calls that the peer makes
- `net/one_way_delay`: how long such a call was on its way
- `net/send_buffer`: the frames that wait to be sent
- `net/context`: the counters, limits and tasks that all connections share
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from typing import Final

import trio

from chord.config import PROTOCOL_VERSION, Limits
from chord.errors import ChordError, DeadlineExceeded, OtherRing, Overloaded, PeerLost, PeerUnreachable, UseBulk
from chord.events import ConnectionRefused, Emit
from chord.ids import BITS_MAX, BITS_MIN, Circle
from chord.net.calls import Callback, RequestHandler, Stats
from chord.net.connection import Connection
from chord.net.context import RpcContext
from chord.net.handshake import HUNG_UP, Met, answer_handshake, open_handshake, refuse
from chord.net.transport import Listener, Stream, Transport, remote_host
from chord.observe.metrics import Meters
from chord.wire.codec import codec_for
from chord.wire.cuts import CutNumber
from chord.wire.messages import Contact, Hello, Reply, Request, StreamName

REFUSALS_MAX: Final = 32
"""Largest number of refusals in progress. Beyond it, excess connections are closed without a reason."""


class _Dial:
    """A connection attempt, shared by all callers that wait for it.

    Attributes:
        done: set when the attempt has ended.
        error: the reason of the failure; None if the attempt succeeded. Its first value says that this node is
            stopping, for an attempt that is cancelled.
    """

    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: ChordError | None = PeerUnreachable("this node is stopping", is_ended=True)


class Rpc:
    """The `Calls` of a node or a client over byte streams.

    Args:
        transport: opens streams and listeners.
        circle: the identifier circle; None for a client, which learns it from the first node that it connects to.
        limits: see `Limits`.
        hello: returns this node's hello for a stream of the given kind, control or bulk.
        on_hello: checks the hello of a peer. A `ChordError` that it raises refuses the connection, and is sent to the
            peer.
        observe: receives the events of the connections.
        cuts: the number of the newest cut that this side knows. None: a new one, for a client without records.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        circle: Circle | None,
        limits: Limits,
        hello: Callable[[StreamName], Hello],
        on_hello: Callable[[Hello], None],
        observe: Emit,
        cuts: CutNumber | None = None,
    ) -> None:
        self._transport = transport
        self._codec = None if circle is None else codec_for(circle)
        self._limits = limits
        self._hello = hello
        self._on_hello = on_hello
        self._observe = observe
        meters = None if circle is None else Meters()
        self._shared = RpcContext(limits, observe, meters, cuts or CutNumber())
        self._nursery: trio.Nursery | None = None
        self._accepting = trio.CancelScope()
        self._accepted = 0
        self._turned_away = 0
        self._accepted_from: dict[str, int] = {}  # without nodes: several of them may share one host
        self._clients = 0
        self._dials: dict[tuple[str, StreamName], _Dial] = {}
        self._links: dict[tuple[str, StreamName], Connection] = {}  # connections for our own calls

    # -- Calls ----------------------------------------------------------------------------------

    def serve(self, handler: RequestHandler) -> None:
        """Answer incoming calls with this handler from now on, in place of any earlier handler."""
        self._shared.handler = handler

    async def call(self, to: Contact | str, request: Request, *, deadline: float) -> Reply:
        """Send a request to a vnode, or to the node at an address, and return its reply; see `Calls.call`.

        Args:
            to: the vnode, or the address of the node.
            request: the request.
            deadline: the latest time for the reply, on Trio's clock.

        Raises:
            ChordError: the error that the peer answered, or the reason why no reply came.
        """
        address, vnode = (to, None) if isinstance(to, str) else (to.address, to.id)
        if not request.bulk:
            link = self._links.get((address, "control"))
            if link is None:
                link = await self._connected(address, "control", deadline)
            try:
                return await link.call(vnode, request, deadline)
            except UseBulk:
                pass  # the request, or its reply, does not fit the control stream
        link = self._links.get((address, "bulk")) or await self._connected(address, "bulk", deadline)
        return await link.call(vnode, request, deadline)

    def begin(self, to: Contact | str, request: Request, callback: Callback, *, deadline: float) -> None:
        """Send a request; the callback gets the reply or the error, perhaps before this method returns.

        See `Calls.begin`. No task waits for the reply, unless no control connection is open, its send buffer is full,
        or the bulk stream is needed.
        """
        address, vnode = (to, None) if isinstance(to, str) else (to.address, to.id)

        def on_reply(answer: Reply | ChordError) -> None:
            if isinstance(answer, UseBulk):  # the reply does not fit the control stream
                self._shared.tasks.start(self._call_and_tell, to, request, callback, deadline)
            else:
                callback(answer)

        link = None if request.bulk else self._links.get((address, "control"))
        with suppress(UseBulk):
            if link is not None and link.begin(vnode, request, on_reply, deadline):
                return
        if self._nursery is None:
            callback(PeerUnreachable(f"{address}: this node is not running", is_ended=True))
        else:
            self._shared.tasks.start(self._call_and_tell, to, request, callback, deadline)

    async def _call_and_tell(self, to: Contact | str, request: Request, callback: Callback, deadline: float) -> None:
        answer: Reply | ChordError = DeadlineExceeded(f"no answer from {to} in time")
        try:
            with trio.CancelScope(
                deadline=deadline
            ):  # `Connection.call` takes the budget of a patient call from this scope
                answer = await self.call(to, request, deadline=deadline)
        except ChordError as error:
            answer = error
        except trio.Cancelled:
            callback(PeerLost(f"{to}: this node ended"))
            raise
        callback(answer)

    async def reach(self, address: str, *, deadline: float) -> Hello | None:
        """Open a new connection and return the hello of the node there; see `Calls.reach`.

        This node introduces itself as a client. After the hello of a node, the peer would drain the connection that
        both nodes use for calls.
        """
        mine = Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "client", "control")
        with trio.move_on_at(deadline), trio.move_on_after(self._limits.handshake_s):
            stream = await self._transport.open_stream(address)
            try:
                return (await open_handshake(stream, mine, lambda _: None, self._limits)).peer
            except PeerUnreachable as error:
                raise PeerUnreachable(f"{address}: {error.message}", is_refused=error.is_refused) from None
            finally:
                await trio.aclose_forcefully(stream)
        raise PeerUnreachable(f"{address}: no hello within the deadline")

    # -- run and stop ---------------------------------------------------------------------------

    async def run(self, listen: str | None, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and make calls until cancelled.

        Args:
            listen: HOST:PORT to accept connections at; None to accept none.
            task_status: `started` gets the bound address, or "" if `listen` is None.

        Raises:
            OSError: the address is in use, or it is not an address of this machine.
        """
        listener = None if listen is None else await self._transport.open_listener(listen)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._shared.tasks.open(nursery)
            nursery.start_soon(self._shared.run)
            nursery.start_soon(self._shared.alarm.run, self._sweep)
            if listener is not None:
                nursery.start_soon(self._accept, listener, nursery)
            task_status.started("" if listener is None else listener.address)
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # before it closes, so that new calls fail with "this node is not running"

    def stop_accepting(self) -> None:
        """Close the listener; open connections stay open."""
        self._accepting.cancel()

    async def drain(self) -> None:
        """Wait until all incoming calls are answered and the operating system has taken all bytes."""
        while self._shared.calls_in_work or any(link.has_unsent for link in self._shared.running):
            await self._shared.idle.park()

    def shortage(self) -> str:
        """Return which resource for connections ran out in the last ten seconds, as a sentence; "" for none.

        The resource is file descriptors, or memory of the system.
        """
        return self._transport.shortage()

    @property
    def circle(self) -> Circle | None:
        """The identifier circle; None for a client that has not connected to a node yet."""
        return None if self._codec is None else self._codec.circle

    @property
    def meters(self) -> Meters:
        """The calls, bytes and durations of each type of request since the start; empty for a client."""
        return self._shared.meters or Meters()

    @property
    def stats(self) -> Stats:
        """The numbers of calls and bytes since the start."""
        return self._shared.stats

    @property
    def open_connections(self) -> int:
        """Number of connections that finished their handshake.

        It counts control and bulk streams, to nodes and from clients.
        """
        return len(self._shared.running)

    def make_room(self) -> None:
        """Drain the idle connection that was not used for longest.

        If no connection is idle, do nothing. The transport calls this when the process has no file descriptor left. So
        a node with few descriptors stays reachable for every other node, in turn.
        """
        ranked = [(rank, at, link) for at, link in enumerate(self._shared.running) if (rank := link.quiet_rank)]
        if ranked:
            min(ranked)[2].drain()

    def _sweep(self, now: float) -> float:
        return min((link.sweep(now) for link in list(self._shared.running)), default=math.inf)

    # -- which connection -----------------------------------------------------------------------

    async def _connected(self, address: str, name: StreamName, deadline: float) -> Connection:
        """Return a new connection, or the connection that the peer has just opened.

        Raises:
            PeerUnreachable: no connection was made within the deadline, or the new one was closed at once.
            ChordError: the handshake failed with this error.
        """
        key = (address, name)
        with trio.CancelScope(deadline=deadline):
            for _ in range(2):  # a new connection may give way at once to the peer's connection
                await self._connect(key)
                if key in self._links:
                    return self._links[key]
            raise PeerUnreachable(f"{address}: the connection was closed at once")
        raise PeerUnreachable(f"{address}: no connection within the deadline")

    async def _connect(self, key: tuple[str, StreamName]) -> None:
        """Open a connection, or wait for an attempt that is under way.

        The attempt is shared by all callers with the same key: an address and the kind of stream.

        Raises:
            PeerUnreachable: definite; no connection was made within `handshake_s`, or this node is not running.
            ChordError: the handshake failed with this error.
        """
        dial = self._dials.get(key)
        if dial is None:
            if self._nursery is None:
                raise PeerUnreachable(f"{key[0]}: this node is not running", is_ended=True)
            dial = self._dials[key] = _Dial()
            self._nursery.start_soon(self._dial, key, dial, name="dial")
        await dial.done.wait()
        if dial.error is not None:  # a copy for each waiter: one shared error would collect all their tracebacks
            raise copy(dial.error)

    def _register(self, link: Connection, dialled: str | None) -> None:
        """Use a new connection for our own calls.

        It is registered under the address in the peer's hello, and under the dialled address if this node opened it. If
        there is an older connection to that peer, either of them drains; see `_gives_way`.
        """
        if link.address and link.address != self._hello("control").address:
            key = (link.address, link.stream_name)
            old = self._links.get(key)
            if old is not None and self._gives_way(link, old):
                link.drain()
                link = old
            elif old is not None:
                old.drain()
            self._links[key] = link
        if dialled is not None:
            self._links[dialled, link.stream_name] = link

    def _gives_way(self, new: Connection, old: Connection) -> bool:
        """Return whether a new connection drains in favour of an older connection.

        It does if both nodes dialled each other at once, and the lower address dialled the older connection. Otherwise
        the older connection drains: the peer would not have dialled if that connection still worked.
        """
        is_crossing = new.is_dialled != old.is_dialled and new.opened_at - old.opened_at < self._limits.handshake_s
        return is_crossing and old.dialler < new.dialler

    def forget(self, link: Connection) -> None:
        """Make no new calls on a connection."""
        for key in [key for key, known in self._links.items() if known is link]:
            del self._links[key]

    # -- dialling -------------------------------------------------------------------------------

    async def _dial(self, key: tuple[str, StreamName], dial: _Dial) -> None:
        try:
            link = await self._reach(*key)
            self._register(link, key[0])
            self._shared.tasks.start(link.run, name="connection")
            dial.error = None
        except ChordError as error:
            dial.error = error
        finally:
            del self._dials[key]
            dial.done.set()

    async def _reach(self, address: str, name: StreamName) -> Connection:
        missing = "no connection"
        with trio.move_on_after(self._limits.handshake_s):
            stream = await self._transport.open_stream(address)
            missing = "connected, but received no hello"
            try:
                met = await open_handshake(stream, self._hello(name), self._check, self._limits)
            except BaseException as error:
                await trio.aclose_forcefully(stream)
                if isinstance(error, PeerUnreachable):
                    raise PeerUnreachable(f"{address}: {error.message}", is_refused=error.is_refused) from None
                if isinstance(error, ChordError):
                    self._observe(ConnectionRefused(address, error.message))
                raise
            return self._link(stream, met, is_dialled=True)
        raise PeerUnreachable(f"{address}: {missing} within {self._limits.handshake_s:g} s")

    # -- accepting ------------------------------------------------------------------------------

    async def _accept(self, listener: Listener, nursery: trio.Nursery) -> None:
        try:
            with self._accepting:
                while True:
                    stream = await listener.accept()
                    host = remote_host(stream)
                    excess = self._excess(host)
                    if excess is None:
                        self._count(host, 1)
                        nursery.start_soon(self._welcome, stream, host, name="connection")
                    else:
                        self._observe(ConnectionRefused(host or "", excess.message))
                        nursery.start_soon(self._turn_away, stream, excess)
        finally:
            with trio.CancelScope(shield=True):
                await listener.aclose()

    def _excess(self, host: str | None) -> Overloaded | None:
        """Return an error if one more connection from a host exceeds a limit, or None."""
        if self._accepted >= self._limits.connections_max:
            return Overloaded(f"{self._accepted} connections are open here; that is the limit")
        count = 0 if host is None else self._accepted_from.get(host, 0)
        if count >= self._limits.connections_per_host_max:
            return Overloaded(f"{count} connections from {host} are open here; that is the limit")
        return None

    async def _turn_away(self, stream: Stream, excess: Overloaded) -> None:
        self._turned_away += 1
        try:
            if self._turned_away <= REFUSALS_MAX:
                await refuse(stream, excess)
        finally:
            self._turned_away -= 1
            await trio.aclose_forcefully(stream)

    async def _welcome(self, stream: Stream, host: str | None) -> None:
        is_client = False
        try:
            link = await self._met(stream, host)
            if link is not None:
                if link.address:
                    self._count_from(host, -1)
                    host = None
                else:
                    self._clients += 1
                    is_client = True
                self._register(link, None)
                await link.run()
        finally:
            self._clients -= is_client
            self._count(host, -1)
            await trio.aclose_forcefully(stream)

    async def _met(self, stream: Stream, host: str | None) -> Connection | None:
        """Shake hands on an accepted stream; return None if the handshake fails."""
        reason = f"no hello within {self._limits.handshake_s:g} s"
        try:
            with trio.move_on_after(self._limits.handshake_s):
                met = await answer_handshake(stream, self._hello, self._check_guest, self._limits)
                return self._link(stream, met, is_dialled=False)
        except ChordError as error:
            reason = error.message
        except trio.BrokenResourceError:
            reason = HUNG_UP
        self._observe(ConnectionRefused(host or "", reason))
        return None

    def _count(self, host: str | None, change: int) -> None:
        self._accepted += change
        self._count_from(host, change)

    def _count_from(self, host: str | None, change: int) -> None:
        if host is not None:
            self._accepted_from[host] = self._accepted_from.get(host, 0) + change
            if not self._accepted_from[host]:
                del self._accepted_from[host]

    def _check_guest(self, peer: Hello) -> None:
        """Check the hello of a node or client that dialled this node.

        Raises:
            OtherRing: the peer is of another ring.
            Overloaded: the peer is a client, and clients already use their share of the connections.
        """
        self._check(peer)
        if peer.role == "client" and self._clients >= self._limits.clients_share * self._limits.connections_max:
            raise Overloaded(f"{self._clients} connections of clients are open here; that is the limit")

    # -- both -----------------------------------------------------------------------------------

    def _check(self, peer: Hello) -> None:
        """Check a peer's hello; a client learns the circle from the first node's hello.

        Raises:
            OtherRing: the width of the peer's circle is invalid, or differs from that of this side.
            ChordError: `on_hello` refused the peer.
        """
        self._on_hello(peer)
        if peer.role == "client":
            return
        if self._codec is None:
            if not BITS_MIN <= peer.bits <= BITS_MAX:
                raise OtherRing(f"the hello of the node has an invalid circle width: {peer.bits} bits")
            self._codec = codec_for(Circle(peer.bits))
        elif peer.bits != self._codec.circle.bits:
            raise OtherRing(f"ids have {self._codec.circle.bits} bits here and {peer.bits} there")

    def _link(self, stream: Stream, met: Met, *, is_dialled: bool) -> Connection:
        assert self._codec is not None, "a client that accepts connections"
        return Connection(stream, met, self._codec, self._shared, is_dialled=is_dialled, registry=self)

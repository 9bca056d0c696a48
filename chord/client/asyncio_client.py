"""The asyncio client: use a ring from an asyncio program. It does not load Trio.

    async with chord.open_asyncio_client("127.0.0.1:9000") as client:
        await client.put("user:42", b"Ada")

`AsyncioClient` drives the operations of `chord.client.operations` over asyncio's transports. This is the only module
that knows asyncio.
"""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, Final, TypeAlias, TypeVar, cast

from chord.client.api import AsyncClientApi
from chord.client.operations import Operations
from chord.client.routing import CLIENT_ARCS_MAX, LINKS_MAX
from chord.client.session import (
    TIMEOUT_S,
    ClientCall,
    ClientOperation,
    ClientSession,
    Learn,
    MakeCalls,
    Outcome,
    Timed,
    out_of_files,
)
from chord.config import Limits, to_dial
from chord.errors import ChordError, DeadlineExceeded, InvalidRequest, PeerUnreachable, UseBulk
from chord.ids import Point
from chord.wire.cuts import CutNumber
from chord.wire.messages import Contact, Request, StreamName
from chord.wire.session import ClientStream

CLOSED: Final = "this client is closed: its block has ended; open another: chord.open_asyncio_client(...)"
OTHER_LOOP: Final = "this client belongs to another event loop; open one in each loop: chord.open_asyncio_client(...)"

T = TypeVar("T")

Way: TypeAlias = tuple[str, StreamName]
"""An address, and the kind of stream to it."""


@asynccontextmanager
async def open_asyncio_client(
    *addresses: str, timeout_s: float = TIMEOUT_S, limits: Limits | None = None
) -> AsyncIterator[AsyncioClient]:
    """Connect to a ring through the first node that answers.

    The `async with` block receives an `AsyncioClient`, and closes its connections at the end.

    Args:
        addresses: HOST:PORT of one or more nodes. If the node in use stops answering, the client turns to the next.
        timeout_s: time limit in seconds for connecting, and for every operation; default: 5.
        limits: size limits, if the ring uses other than the defaults.

    Raises:
        ConfigError, InvalidRequest: an address is not HOST:PORT, no address was given, or asyncio does not run here.
        PeerUnreachable: none of the nodes answers.
        OtherRing: a node speaks another version of the protocol, or belongs to another ring than an earlier node.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        what = "chord.open_asyncio_client needs asyncio, and another event loop runs here"
        raise InvalidRequest(f"{what}; on Trio, use chord.open_client") from None
    client = AsyncioClient(addresses, timeout_s=timeout_s, limits=limits or Limits())
    try:
        await client._drive(client._core.session.enter())
        yield client
    finally:
        await client.close()


class AsyncioClient(AsyncClientApi):
    """A client of a ring for asyncio programs. Created by `open_asyncio_client`.

    `timeout_s` limits the time of every operation: 5 seconds by default. It limits each operation, each batch of an
    operation on many keys, and each page of `scan` and `export`. If it passes, the operation raises the ring's last
    error, or `DeadlineExceeded` if there was none. An `asyncio.timeout` of the caller may end an operation earlier: it
    cancels the operation, and raises `TimeoutError`.

    The operations are those of `AsyncApi`.

    Concurrency: any number of tasks of one event loop may share one client. In another event loop, and so in another
    thread, every operation raises `InvalidRequest`.

    Attributes:
        timeout_s: time limit of every operation in seconds. It may be changed between operations.
        is_closed: whether the block of `open_asyncio_client` has ended. Then every operation raises `InvalidRequest`.
    """

    def __init__(self, addresses: Sequence[str], *, timeout_s: float, limits: Limits) -> None:
        self.timeout_s = timeout_s
        self.is_closed = False
        self._loop = asyncio.get_running_loop()
        session = ClientSession(
            addresses, rng=random.SystemRandom(), arcs_max=CLIENT_ARCS_MAX, members_max=limits.members_max
        )
        self._core = Operations(session)
        self._limits = limits
        self._connections = _Connections(limits, session.learn, session.cuts)

    async def close(self) -> None:
        """Close all connections. `open_asyncio_client` calls this at the end of its block."""
        self.is_closed = True
        await self._connections.close()

    async def _drive(self, operation: ClientOperation[T]) -> T:
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidRequest(OTHER_LOOP)
        if self.is_closed:
            raise InvalidRequest(CLOSED)
        now = self._loop.time()
        timed = Timed(operation, now, now + self.timeout_s)
        effect = timed.next(now)
        while effect is not None:
            outcomes: tuple[Outcome, ...] | None = None
            if isinstance(effect, MakeCalls):
                outcomes = await self._ask(effect.calls, timed.limit(effect, self._loop.time()))
            else:
                await asyncio.sleep(effect.seconds)
            effect = timed.next(self._loop.time(), outcomes)
        return timed.result

    async def _ask(self, calls: Sequence[ClientCall], deadline: float) -> tuple[Outcome, ...]:
        if self.is_closed:  # meanwhile
            return tuple(InvalidRequest(CLOSED) for _ in calls)
        if len(calls) == 1:
            return (await self._connections.call(calls[0], deadline),)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._connections.call(call, deadline)) for call in calls]
        return tuple(task.result() for task in tasks)


class _Connections:
    """The connections of a client: one or two to each node, which all its tasks share.

    Args:
        limits: sizes of frames, and the time for a handshake.
        learn: see `Learn`.
        cuts: the number of the newest cut that the client knows.
    """

    def __init__(self, limits: Limits, learn: Learn, cuts: CutNumber) -> None:
        self._limits = limits
        self._cuts = cuts
        self._learn = learn
        self._links: dict[Way, _Link] = {}  # take new calls
        self._dials: dict[Way, asyncio.Task[_Link | ChordError]] = {}
        self._open: set[_Link] = set()  # those that drain, too

    async def call(self, call: ClientCall, deadline: float) -> Outcome:
        """Make a call and return its outcome: a reply or an error.

        If there is no connection to the node, this opens one. A request that is too large for the control stream takes
        the bulk stream.
        """
        vnode = call.to.id if isinstance(call.to, Contact) else None
        if call.within_s is not None:
            deadline = min(deadline, asyncio.get_running_loop().time() + call.within_s)
        if not call.request.bulk:
            outcome = await self._call((call.address, "control"), vnode, call.request, deadline)
            if not isinstance(outcome, UseBulk):
                return outcome
        return await self._call((call.address, "bulk"), vnode, call.request, deadline)

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        dials = list(self._dials.values())
        for dial in dials:
            dial.cancel()
        links = list(self._open)
        for link in links:
            link.close("the client was closed")
        endings: list[asyncio.Future[Any]] = [*dials, *(link.ended for link in links)]
        if endings:
            await asyncio.wait(endings)

    async def _call(self, way: Way, vnode: Point | None, request: Request, deadline: float) -> Outcome:
        link: _Link | ChordError = self._links.get(way) or await self._connected(way, deadline)
        if isinstance(link, ChordError):
            return link
        return await link.call(vnode, request, deadline)

    async def _connected(self, way: Way, deadline: float) -> _Link | ChordError:
        """Return a new connection, or the error of the attempt to connect.

        All tasks that need the connection wait for the same attempt. If a task gives up at its deadline, the attempt
        continues.
        """
        dial = self._dials.get(way)
        if dial is None:
            dial = self._dials[way] = asyncio.create_task(self._dial(way), name=f"dial {way[0]}")
        await asyncio.wait([dial], timeout=max(0.0, deadline - asyncio.get_running_loop().time()))
        if not dial.done():
            return PeerUnreachable(f"no answer from {way[0]} (no connection in time)", is_late=True)
        if dial.cancelled():
            return PeerUnreachable(f"no answer from {way[0]} (the client was closed)", is_ended=True)
        result = dial.result()
        return copy(result) if isinstance(result, ChordError) else result

    async def _dial(self, way: Way) -> _Link | ChordError:
        link = _Link(way, self._limits, self._cuts, self._forget)
        try:
            host, port = to_dial(way[0])
            self._make_room()
            async with asyncio.timeout(self._limits.handshake_s):
                await asyncio.get_running_loop().create_connection(lambda: link, host, port)
                self._open.add(link)
                await link.met
            assert link.stream.hello is not None
            hello = link.stream.hello
            self._learn(way[0], hello.bits, hello.ring, hello.features)
        except ChordError as error:
            link.close(error.message)
            return error
        except (OSError, UnicodeError) as error:
            link.close("no hello in time")
            if link.is_connected:
                return link.stream.unreachable(is_late=True)
            return _unreachable(way[0], error)
        except asyncio.CancelledError:
            link.close("the client was closed")
            raise
        finally:
            del self._dials[way]
        if not link.is_ending:
            self._links[way] = link
        return link

    def _make_room(self) -> None:
        """Close the oldest connections that wait for no reply, if there are too many."""
        for link in list(self._links.values()):
            if len(self._links) < LINKS_MAX:
                return
            if not link.stream.is_waiting():
                link.close("other connections need its place")

    def _forget(self, link: _Link) -> None:
        """Make no new calls on a connection."""
        if self._links.get(link.way) is link:
            del self._links[link.way]
        if link.ended.done():
            self._open.discard(link)


class _Link(asyncio.Protocol):
    """A connection to a node: it carries a `ClientStream` over an asyncio transport.

    Args:
        way: the node's address, and the kind of stream.
        limits: sizes of frames and of the send buffer.
        cuts: the number of the newest cut that the client knows.
        forget: callback that gets this connection when it takes no new calls, and when it has ended.

    Attributes:
        met: done when the node's hello has arrived; ends in an error if the hello does not arrive.
        ended: done when the connection is closed.
        is_ending: whether the connection takes no new calls any more.
        is_connected: whether the program at the address took the connection.
    """

    def __init__(self, way: Way, limits: Limits, cuts: CutNumber, forget: Callable[[_Link], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.way = way
        self.stream = ClientStream(*way, limits, cuts)
        self.met: asyncio.Future[None] = self._loop.create_future()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.is_ending = False
        self.is_connected = False
        self._why = "it was closed"
        self._limits = limits
        self._forget = forget
        self._transport: asyncio.Transport | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def call(self, vnode: Point | None, request: Request, deadline: float) -> Outcome:
        """Make a call and return its outcome: a reply or an error."""
        if not self._has_room.is_set():
            try:
                async with asyncio.timeout_at(deadline):
                    await self._has_room.wait()
            except TimeoutError:
                return PeerUnreachable(f"{self.way[0]} does not take more bytes", is_late=True)
        if self.is_ending or self._transport is None:
            return PeerUnreachable(f"no answer from {self.way[0]} ({self._why})")
        now = self._loop.time()
        future: asyncio.Future[Outcome] = self._loop.create_future()

        def settle(outcome: Outcome) -> None:
            if not future.done():  # a cancelled call may get its reply before its task runs
                future.set_result(outcome)

        try:
            call_id, frame = self.stream.call(vnode, request, deadline - now, now, settle)
        except (UseBulk, InvalidRequest) as error:
            return error
        self._transport.write(frame)
        timer = self._loop.call_at(deadline, self._expire, call_id)
        try:
            return await future
        finally:
            timer.cancel()
            self.stream.give_up(call_id)
            self._close_if_drained()

    def close(self, why: str) -> None:
        """Close the connection. Repeated calls do nothing.

        Args:
            why: the reason, for the errors of open calls.
        """
        if self._transport is None or self.ended.done():
            return
        self._take_no_calls(why)
        if self._transport.get_write_buffer_size():  # the node may never take these bytes
            self._transport.abort()
        else:
            self._transport.close()

    # -- called by the event loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the hello."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.buffer_bytes_max)
        self.is_connected = True
        self._transport.write(self.stream.hello_bytes)

    def data_received(self, data: bytes) -> None:
        """Give bytes to the stream, which calls back for each reply."""
        try:
            self.stream.receive(data, self._loop.time())
        except ChordError as error:
            if not self.met.done():
                self.met.set_exception(error)
            self.close(error.message)
            return
        if self.stream.hello is not None and not self.met.done():
            self.met.set_result(None)
        if self.stream.is_draining and not self.is_ending:
            self._take_no_calls("it said goodbye")
        self._close_if_drained()

    def connection_lost(self, error: Exception | None) -> None:
        """End all open calls."""
        reason = getattr(error, "strerror", None) or (str(error) if error else "")
        self._take_no_calls(reason.lower() or self._why)
        if not self.met.done():
            self.met.set_exception(self.stream.unreachable(self._why))
        if not self.met.cancelled():
            self.met.exception()  # a dial that has ended does not look at it
        self.stream.end(self._why)
        self.ended.set_result(None)
        self._has_room.set()
        self._forget(self)

    def pause_writing(self) -> None:
        """Let new calls wait: the send buffer is full."""
        self._has_room.clear()

    def resume_writing(self) -> None:
        """Let new calls go on."""
        self._has_room.set()

    # -- inside -----------------------------------------------------------------------------------

    def _take_no_calls(self, why: str) -> None:
        if not self.is_ending:
            self.is_ending, self._why = True, why
            self._forget(self)

    def _close_if_drained(self) -> None:
        if self.stream.is_draining and not self.stream.is_waiting():
            self.close("it said goodbye")

    def _expire(self, call_id: int) -> None:
        self.stream.give_up(call_id, DeadlineExceeded(f"no answer from {self.way[0]} in time"))


def _unreachable(address: str, error: OSError | UnicodeError) -> PeerUnreachable:
    """Return the error for a connection that could not be made."""
    if isinstance(error, socket.gaierror | UnicodeError):
        reason = getattr(error, "strerror", None) or str(error)
        return PeerUnreachable(f"{address}: the host is unknown ({reason})", is_unknown=True)
    if isinstance(error, TimeoutError):
        return PeerUnreachable(f"no answer from {address} (no connection in time)", is_late=True)
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return out_of_files(address)
    is_refused = isinstance(error, ConnectionRefusedError)
    reason = "connection refused" if is_refused else str(error.strerror or error).lower()
    return PeerUnreachable(f"no answer from {address} ({reason})", is_refused=is_refused)

"""Helpers for tests of calls: peers with answers by the key, and raw streams that can violate the protocol."""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from chord.config import Limits
from chord.errors import ChordError, NotFound
from chord.events import Event
from chord.ids import Circle, Point
from chord.net.calls import Caller
from chord.net.transport import Transport
from chord.rpc import Rpc
from chord.testing import MemoryNetwork, run
from chord.wire.codec import Codec, FrameKind, Frames, decode_hello, decode_refusal, encode_hello
from chord.wire.messages import Contact, Get, GetReply, Hello, Ping, PingReply, Put, Reply, Request, Written

CIRCLE = Circle(160)
CODEC = Codec(CIRCLE)
OWNER = Contact(Point(7), "o:1")
MIB = 1 << 20
DEFAULTS = Limits()


def limits(**changes: float) -> Limits:
    """Return the limits with changes."""
    return Limits(**changes)  # type: ignore[arg-type]


def value_of(reply: Reply) -> bytes:
    """Return the only value of a reply to `Get`."""
    assert isinstance(reply, GetReply)
    return reply.values[0]


class Peer:
    """A node or a client that is only an `Rpc`.

    The key of a `Get` chooses the answer: `echo…` at once, `big N` with N bytes, `slow S…` after S seconds, `never`.
    The answer to `no` is `NotFound`. `bug` and `late bug` fail. A `Put` is answered when `gate` is opened.
    """

    def __init__(
        self,
        transport: Transport,
        address: str = "",
        *,
        circle: Circle | None = CIRCLE,
        limits: Limits = DEFAULTS,
        versions: tuple[int, int] = (1, 1),
        check: Callable[[Hello], None] = lambda _: None,
    ) -> None:
        self.address = address
        self.versions = versions
        self.bits = circle.bits if circle else 0
        self.events: list[Event] = []
        self.asked: list[tuple[Point | None, Request, Caller]] = []
        self.gate = trio.Event()
        self.cancelled_at: list[float] = []
        self.rpc = Rpc(
            transport, circle=circle, limits=limits, hello=self.hello, on_hello=check, observe=self.events.append
        )
        self.rpc.serve(self.handle)
        self.scope = trio.CancelScope()

    def hello(self, stream: Any) -> Hello:
        role: Any = "node" if self.address else "client"
        return Hello(*self.versions, role, stream, "test", self.bits, 8, 1, None, self.address, b"incarnat")

    async def run(self, *, task_status: trio.TaskStatus[str]) -> None:
        """Run until `scope` is cancelled. A node listens at its address; the real port is put there."""

        class Status:
            def started(status, bound: str = "") -> None:
                self.address = bound
                task_status.started(bound)

        with self.scope:
            await self.rpc.run(self.address or None, task_status=Status())  # type: ignore[arg-type]

    def handle(self, vnode: Point | None, request: Request, caller: Caller) -> Any:
        self.asked.append((vnode, request, caller))
        if isinstance(request, Ping):
            return PingReply()
        if isinstance(request, Put):
            return self._store(request)
        assert isinstance(request, Get)
        word, _, rest = request.key.decode(errors="replace").partition(" ")
        match word:
            case "big":
                return GetReply((bytes(int(rest)),), b"", OWNER)
            case "slow":
                return self._later(request.key, float(rest.split()[0]))
            case "never":
                return self._later(request.key, math.inf)
            case "no":
                raise NotFound("no such key", peer=OWNER, after_ms=12)
            case "bug":
                raise ZeroDivisionError
            case "late":
                return self._bug()
        return GetReply((request.key,), b"", OWNER)

    async def _later(self, key: bytes, seconds: float) -> GetReply:
        try:
            await trio.sleep(seconds)
        except trio.Cancelled:
            self.cancelled_at.append(trio.current_time())
            raise
        return GetReply((key,), b"", OWNER)

    async def _store(self, request: Put) -> Written:
        await self.gate.wait()
        return Written(b"", OWNER)

    async def _bug(self) -> GetReply:
        await trio.lowlevel.checkpoint()
        raise KeyError("late")

    async def get(self, to: Contact | str | Peer, key: str, within: float = 5.0) -> bytes:
        """Call the other peer with a `Get`."""
        to = to.address if isinstance(to, Peer) else to
        return value_of(await self.rpc.call(to, Get(key.encode()), deadline=trio.current_time() + within))

    async def ping(self, to: Contact | str | Peer, within: float = 5.0) -> Reply:
        """Ping the other peer."""
        to = to.address if isinstance(to, Peer) else to
        return await self.rpc.call(to, Ping(), deadline=trio.current_time() + within)

    def seen(self, type_: type[Event]) -> list[Any]:
        """Return the events of a type so far."""
        return [event for event in self.events if isinstance(event, type_)]


@asynccontextmanager
async def running(*peers: Peer) -> AsyncIterator[trio.Nursery]:
    """Run peers for the length of a block."""
    async with trio.open_nursery() as nursery:
        for peer in peers:
            await nursery.start(functools.partial(peer.run))
        yield nursery
        nursery.cancel_scope.cancel()


def virtual(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on virtual time."""

    def on_virtual_time() -> None:
        run(test)

    on_virtual_time.__name__, on_virtual_time.__doc__ = test.__name__, test.__doc__
    return on_virtual_time


def pair(network: MemoryNetwork, **options: Any) -> tuple[Peer, Peer]:
    """Return two nodes, a:1 and b:1."""
    a, b = (Peer(network.transport(host), f"{host}:1", **options) for host in "ab")
    return a, b


async def outcome(call: Awaitable[Any], into: list[Any]) -> None:
    """Await a call and keep its reply or error."""
    try:
        into.append(await call)
    except ChordError as error:
        into.append(error)


async def until(holds: Callable[[], object], within: float = 5.0) -> None:
    """Wait until a condition holds, by polling, as the operating system may cause the change."""
    with trio.fail_after(within):
        while not holds():
            await trio.sleep(0.002)


class Raw:
    """A stream that sends what the test writes, valid or not."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self.frames = Frames(2 * MIB)
        self.arrived: list[tuple[FrameKind, bytes]] = []

    @classmethod
    async def dial(cls, transport: Transport, to: Peer | str, **hello: Any) -> Raw:
        """Connect, send a hello and read the answer."""
        raw = cls(await transport.open_stream(to.address if isinstance(to, Peer) else to))
        said = {"version_min": 1, "version_max": 1, "role": "client", "stream": "control", **hello}
        await raw.send(encode_hello(Hello(**said)))
        kind, body = await raw.receive()
        assert kind is FrameKind.HELLO
        decode_hello(body)
        return raw

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive(self) -> tuple[FrameKind, bytes]:
        """Return the next frame."""
        while not self.arrived:
            data = await self.stream.receive_some()
            assert data, "the stream ended"
            self.arrived += self.frames.feed(data)
        return self.arrived.pop(0)

    async def refusal(self) -> ChordError:
        """Return the error that refuses the connection; check that it is closed afterwards."""
        kind, body = await self.receive()
        assert kind is FrameKind.ERROR
        error = decode_refusal(body)
        await self.ended()
        return error

    async def ended(self) -> None:
        """Check that the stream ends without further bytes. Then close it, and wait until the peer notices."""
        assert await self.rest() == b""
        await self.stream.aclose()
        await trio.sleep(0.01)

    async def rest(self) -> bytes:
        """Return all bytes until the end of the stream."""
        received = b""
        with suppress(trio.BrokenResourceError):
            while data := await self.stream.receive_some():
                received += data
        return received

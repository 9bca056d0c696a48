"""An async client: talk to a ring from a Trio program without being a member of it.

    async with chord.open_client("127.0.0.1:9000") as ring:
        await ring.put("user:42", b"Ada")

Drives the operations of `chord.client.operations` over `chord.rpc`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from chord.client.api import AsyncRing
from chord.client.operations import Core
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import Call, Outcome
from chord.config import PROTOCOL_VERSION, Limits
from chord.errors import ChordError, InvalidRequest, unwrapped
from chord.events import ignore
from chord.ids import Circle
from chord.net.transport import TcpTransport, Transport
from chord.rpc import Rpc
from chord.wire.messages import Hello, StreamName


@asynccontextmanager
async def open_client(
    *addresses: str, transport: Transport | None = None, limits: Limits | None = None, rng: random.Random | None = None
) -> AsyncIterator[Client]:
    """Connect to a ring through the first of these nodes that answers.

    The block gets a `Client`, which hangs up at its end.

    Args:
        addresses: HOST:PORT of one or more nodes. The others stand in when the one in use falls silent.
        limits: sizes, where the ring was given others than the default.
        transport, rng: the seams; the defaults are the real world.

    Raises:
        ConfigError, InvalidRequest: an address is not HOST:PORT, or there is none.
        PeerUnreachable: none of the nodes answers.
        OtherRing: a node speaks another version of the protocol, or belongs to another ring than the others.

    Concurrency: checkpoints. Connecting takes at most five seconds, or as long as the caller's cancel scope lets it.
    """
    limits = limits or Limits()
    core = Core(addresses, rng=rng or random.Random(secrets.randbits(128)), arcs_max=CLIENT_ARCS_MAX)
    rpc = Rpc(
        transport or TcpTransport(limits.lookups_max),
        circle=None,
        limits=limits,
        hello=_hello,
        on_hello=lambda hello: core.learn(hello.address, hello.bits, hello.ring),
        observe=ignore,
    )
    with unwrapped():  # what the caller's own block raises should reach the caller as it was raised
        async with trio.open_nursery() as nursery:
            await nursery.start(rpc.run, None)
            client = Client(core, rpc, limits)
            await client.enter()
            try:
                yield client
            finally:
                client.is_closed = True
            nursery.cancel_scope.cancel()


class Client(AsyncRing):
    """A ring of nodes, seen from outside. Made by `open_client`; see `AsyncRing` for what it does.

    Attributes:
        is_closed: its block has ended; every operation is refused (`InvalidRequest`).
    """

    def __init__(self, core: Core, rpc: Rpc, limits: Limits) -> None:
        self._core = core
        self._rpc = rpc
        self._limits = limits
        self.is_closed = False

    async def enter(self) -> None:
        """Find an entry node that answers. Done by `open_client`."""
        await self.drive(self.core.enter())

    @property
    def entry(self) -> str:
        """The node operations go through at the moment."""
        return self.core.entry

    @property
    def circle(self) -> Circle:
        """The ring's identifier circle."""
        assert self.core.circle is not None  # learnt on entering
        return self.core.circle

    async def leave(self, address: str) -> None:
        """Tell a node to hand everything over and leave. Returns at once; the node ends when it has.

        It is not asked whether it is the last one: then what it holds is gone with it.

        Args:
            address: HOST:PORT of the node.

        Raises:
            ConfigError: that is no address; a name is none.
            PeerUnreachable, PeerLost: it does not answer.
        """
        await self.drive(self.core.leave(address))

    async def _call(self, call: Call, deadline: float) -> Outcome:
        """Make a call; the error it ends in is its outcome."""
        if self.is_closed:
            return InvalidRequest("this client is closed, its block has ended; open another: chord.open_client(...)")
        try:
            return await self._rpc.call(call.to, call.request, deadline=deadline)
        except ChordError as error:
            return error


def _hello(stream: StreamName) -> Hello:
    return Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "client", stream)



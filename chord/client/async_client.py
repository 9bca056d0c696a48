"""The Trio client: use a ring from a Trio program without being a member of it.

    async with chord.open_client("127.0.0.1:9000") as client:
        await client.put("user:42", b"Ada")

`AsyncClient` drives the operations of `chord.client.operations` over `chord.rpc`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from chord.client.api import AsyncClientApi
from chord.client.operations import Operations
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import ClientCall, ClientSession, Outcome
from chord.client.trio_driver import TrioApi
from chord.config import PROTOCOL_VERSION, Limits
from chord.errors import ChordError, InvalidRequest, unwrapped
from chord.events import ignore
from chord.net.transport import TcpTransport, Transport
from chord.rpc import Rpc
from chord.wire.messages import Hello, StreamName


@asynccontextmanager
async def open_client(
    *addresses: str, transport: Transport | None = None, limits: Limits | None = None, rng: random.Random | None = None
) -> AsyncIterator[AsyncClient]:
    """Connect to a ring through the first node that answers.

    The `async with` block receives a `AsyncClient`, and closes its connections at the end.

    Args:
        addresses: HOST:PORT of one or more nodes. If the node in use stops answering, the client turns to the next.
        limits: size limits, if the ring uses other than the defaults.
        transport, rng: network and random numbers, to be replaced in tests; the defaults are TCP and the system's
            randomness.

    Raises:
        ConfigError, InvalidRequest: an address is not HOST:PORT, or no address was given.
        PeerUnreachable: none of the nodes answers.
        OtherRing: a node speaks another version of the protocol, or belongs to another ring than an earlier node.

    Concurrency: checkpoints. The caller's cancel scope bounds the time for connecting; without one the limit is five
    seconds.
    """
    limits = limits or Limits()
    rng = rng or random.Random(secrets.randbits(128))
    session = ClientSession(addresses, rng=rng, arcs_max=CLIENT_ARCS_MAX)
    rpc = Rpc(
        transport or TcpTransport(limits.lookups_max),
        circle=None,
        limits=limits,
        hello=_hello,
        on_hello=lambda hello: session.learn(hello.address, hello.bits, hello.ring),
        observe=ignore,
    )
    with unwrapped():  # an exception of the caller's block must reach the caller unwrapped
        async with trio.open_nursery() as nursery:
            await nursery.start(rpc.run, None)
            client = AsyncClient(Operations(session), rpc, limits)
            await client.enter()
            try:
                yield client
            finally:
                client.is_closed = True
            nursery.cancel_scope.cancel()


class AsyncClient(AsyncClientApi, TrioApi):
    """A client of a ring for Trio programs. Created by `open_client`.

    Its operations are those of `AsyncApi`.

    Attributes:
        is_closed: whether the block of `open_client` has ended. Then every operation raises `InvalidRequest`.
    """

    def __init__(self, core: Operations, rpc: Rpc, limits: Limits) -> None:
        self._core = core
        self._rpc = rpc
        self._limits = limits
        self.is_closed = False

    async def _call(self, call: ClientCall, deadline: float) -> Outcome:
        """Make a call and return its outcome: a reply or an error."""
        if self.is_closed:
            return InvalidRequest("this client is closed: its block has ended; open another: chord.open_client(...)")
        try:
            return await self._rpc.call(call.to, call.request, deadline=deadline)
        except ChordError as error:
            return error


def _hello(stream: StreamName) -> Hello:
    return Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "client", stream)



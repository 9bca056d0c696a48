"""The Trio client: use a ring from a Trio program without being a member of it.

    async with chord.open_client("127.0.0.1:9000") as client:
        await client.put("user:42", b"Ada")

`AsyncClient` drives the operations of `chord.client.operations` over `chord.rpc`.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import trio

from chord.client.api import AsyncClientApi
from chord.client.operations import Operations
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import TIMEOUT_S, ClientCall, ClientSession, Outcome
from chord.client.trio_driver import TrioApi, require_trio
from chord.config import PROTOCOL_VERSION, Limits
from chord.errors import ChordError, InvalidRequest, unwrapped
from chord.events import ignore
from chord.net.calls import Calls
from chord.net.transport import TcpTransport, Transport
from chord.rpc import Rpc
from chord.wire.messages import Hello, StreamName

CLOSED: Final = "this client is closed: its block has ended; open another: chord.open_client(...)"


@asynccontextmanager
async def open_client(
    *addresses: str,
    timeout_s: float = TIMEOUT_S,
    limits: Limits | None = None,
    transport: Transport | None = None,
    rng: random.Random | None = None,
) -> AsyncIterator[AsyncClient]:
    """Connect to a ring through the first node that answers.

    The `async with` block receives an `AsyncClient`, and closes its connections at the end.

    Args:
        addresses: HOST:PORT of one or more nodes. If the node in use stops answering, the client turns to the next.
        timeout_s: time limit in seconds for connecting, and for every operation; default: 5. If a cancel scope of the
            caller has a deadline, only that deadline counts.
        limits: size limits, if the ring uses other than the defaults.
        transport, rng: network and random numbers, to be replaced in tests; the defaults are TCP and the system's
            randomness.

    Raises:
        ConfigError, InvalidRequest: an address is not HOST:PORT, no address was given, or Trio does not run here.
        PeerUnreachable: none of the nodes answers.
        OtherRing: a node speaks another version of the protocol, or belongs to another ring than an earlier node.

    Concurrency: checkpoints.
    """
    require_trio("chord.open_client", "on asyncio, use chord.open_asyncio_client")
    limits = limits or Limits()
    rng = rng or random.Random(secrets.randbits(128))
    session = ClientSession(addresses, rng=rng, arcs_max=CLIENT_ARCS_MAX, members_max=limits.members_max)
    rpc = Rpc(
        transport or TcpTransport(limits.lookups_max),
        circle=None,
        limits=limits,
        hello=_hello,
        on_hello=lambda hello: session.learn(hello.address, hello.bits, hello.ring, hello.features),
        observe=ignore,
        cuts=session.cuts,
    )
    with unwrapped():  # an exception of the caller's block must reach the caller unwrapped
        async with trio.open_nursery() as nursery:
            await nursery.start(rpc.run, None)
            client = AsyncClient(Operations(session), rpc, limits, timeout_s)
            await client._drive(session.enter())
            try:
                yield client
            finally:
                client.is_closed = True
            nursery.cancel_scope.cancel()


class AsyncClient(AsyncClientApi, TrioApi):
    """A client of a ring for Trio programs. Created by `open_client`.

    The caller's cancel scopes limit the time of every operation. If no scope has a deadline, `timeout_s` is the limit:
    5 seconds by default. If it passes, the operation raises the ring's last error, or `DeadlineExceeded`.

    The operations are those of `AsyncApi`.

    Attributes:
        timeout_s: the limit in seconds if no cancel scope has a deadline. It may be changed between operations.
        is_closed: whether the block of `open_client` has ended. Then every operation raises `InvalidRequest`.
    """

    def __init__(self, core: Operations, rpc: Calls, limits: Limits, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._core = core
        self._rpc = rpc
        self._limits = limits
        self.is_closed = False

    async def _call(self, call: ClientCall, deadline: float) -> Outcome:
        """Make a call and return its outcome: a reply or an error."""
        if self.is_closed:
            return InvalidRequest(CLOSED)
        try:
            return await self._rpc.call(call.to, call.request, deadline=deadline)
        except ChordError as error:
            return error

    def _begin(self, call: ClientCall, deadline: float, callback: Callable[[Outcome], None]) -> bool:
        if self.is_closed:
            callback(InvalidRequest(CLOSED))
        else:
            self._rpc.begin(call.to, call.request, callback, deadline=deadline)
        return True


def _hello(stream: StreamName) -> Hello:
    return Hello(PROTOCOL_VERSION, PROTOCOL_VERSION, "client", stream, cuts=True)



"""The seam to other nodes: make a call, answer calls.

This is all the protocol knows of the network. `chord.rpc` implements it over byte streams; a
simulation may implement it directly.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import trio

from chord.errors import ChordError
from chord.ids import Point
from chord.net.steps import Driver, Steps
from chord.wire.messages import Contact, Hello, Reply, Request


class Caller(NamedTuple):
    """Who is calling: the advertised address of a node, or "" for a client."""

    address: str


class Stats(msgspec.Struct):
    """Totals of a calls layer since its start."""

    calls_sent: int = 0
    calls_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0


R = TypeVar("R", bound=Reply)

Work: TypeAlias = Coroutine[Any, Any, Reply]

Answer: TypeAlias = Reply | Steps[Any] | Work

Handler: TypeAlias = Callable[[Point | None, Request, Caller], Answer]
"""Answers one request to a vnode, or to the node if the point is None.

A handler that need not wait returns the reply. A handler that waits returns steps (`chord/net/steps.py`), or a
coroutine, which gets a task of its own and is cancelled when the caller's budget is used up. Each may raise a
`ChordError`, which travels to the caller. Any other exception is a bug and travels as `RemoteFailure`.
"""


def discard(answer: Answer) -> None:
    """Close an answer that has not begun: its caller does not wait for it."""
    if not isinstance(answer, Reply):
        answer.close()


async def reply_of(answer: Answer) -> Reply:
    """Wait for an answer.

    Raises:
        ChordError: the answer is an error.

    Concurrency: checkpoints unless the reply is there already. If cancelled, steps go on without a caller.
    """
    if isinstance(answer, Reply):
        return answer
    if not isinstance(answer, Generator):
        return await answer
    driver: Driver[Reply] = Driver(answer)
    ended, results = trio.Event(), list[Reply | Exception]()

    def end(result: Reply | Exception) -> None:
        results.append(result)
        ended.set()

    driver.begin(end, trio.current_effective_deadline())
    try:
        await ended.wait()
    except trio.Cancelled:
        driver.give_up()
        raise
    (result,) = results
    if isinstance(result, Exception):
        raise result
    return result


Callback: TypeAlias = Callable[[Reply | ChordError], None]
"""Called once with the reply to a call, or with its error."""


class Sender(Protocol):
    """Sends requests to vnodes of other nodes; `Peers` does, and a batch that coalesces requests."""

    def begin(
        self,
        to: Contact,
        request: Request,
        expect: type[R],
        callback: Callable[[R | ChordError], None],
        *,
        deadline: float,
    ) -> None:
        """Send a request, and call back with the reply or the error; see `Peers.begin`."""


class Calls(Protocol):
    """What nodes know of the network."""

    def serve(self, handler: Handler) -> None:
        """Answer incoming calls with this handler from now on."""

    async def call(self, to: Contact | str, request: Request, *, deadline: float) -> Reply:
        """Send a request to a vnode, or to the node at an address, and return its reply.

        Args:
            to: a contact (the request is for that vnode) or an address (for the node).
            request: the reply's type is `request.reply`; anything else from the peer is `MalformedMessage`.
            deadline: on Trio's clock; it travels along as the budget. For a patient request, and where it is infinite,
                that is the earlier of it and the enclosing cancel scopes' deadline.

        Raises:
            PeerUnreachable: definite; no stream could be opened, nothing was sent.
            PeerLost: indefinite; the stream broke before the answer came.
            DeadlineExceeded: indefinite; `deadline` passed.
            ChordError: what the peer answered, definite or indefinite by its class.

        Concurrency: checkpoints; a cancelled call's late answer is thrown away.
        """

    def begin(self, to: Contact | str, request: Request, callback: Callback, *, deadline: float) -> None:
        """Send a request as `call` does, without a task that waits for the reply.

        Args:
            callback: called once with the reply, or with the error that `call` would raise; maybe before this returns.
                If the node ends before, it is never called. It must not wait.
            deadline: on Trio's clock; it travels along as the budget.

        Concurrency: synchronous.
        """

    async def reach(self, address: str, *, deadline: float) -> Hello | None:
        """Open a new connection to an address, and return the hello of the node that listens there.

        A connection that the peer opened does not show that others can open one to the peer.

        Returns:
            None if this network has no connections; then every address leads to its node.

        Raises:
            ChordError: no node answers there within the deadline.

        Concurrency: checkpoints.
        """


class CallsService(Calls, Protocol):
    """A `Calls` with a life: what a node starts and ends."""

    @property
    def stats(self) -> Stats:
        """Totals since the start."""

    async def run(self, listen: str | None, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and make calls until cancelled; `started` gets the bound address, or "" where nothing listens."""

    def stop_accepting(self) -> None:
        """Accept no new streams."""

    async def drain(self) -> None:
        """Wait until no request is in work and every answer is on its way."""

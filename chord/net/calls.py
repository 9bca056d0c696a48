"""The seam between the protocol and the network: make calls, and answer them.

The protocol knows nothing else of the network. `chord.rpc` implements the seam over byte streams. The simulator also
implements it with messages (`chord/sim/messages.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec
import trio

from chord.errors import ChordError, NotReady
from chord.ids import Point
from chord.net.steps import Driver, Steps
from chord.observe.metrics import Meters
from chord.wire.messages import Contact, Hello, Reply, Request


class Caller(NamedTuple):
    """The caller of a request.

    Attributes:
        address: the advertised address of the calling node; "" if the caller is a client.
    """

    address: str


class Stats(msgspec.Struct):
    """Totals of the calls of one node or client since its start.

    Attributes:
        calls_sent: requests that it sent.
        calls_received: requests that it received.
        bytes_sent, bytes_received: bytes of all its connections after their handshakes.
        handler_failures: received requests for which the handler raised an exception other than a `ChordError`.
    """

    calls_sent: int = 0
    calls_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    handler_failures: int = 0


R = TypeVar("R", bound=Reply)

Work: TypeAlias = Coroutine[Any, Any, Reply]

Answer: TypeAlias = Reply | Steps[Any] | Work

RequestHandler: TypeAlias = Callable[[Point | None, Request, Caller], Answer]
"""Answers one request. Its arguments are the id of the called vnode (None: the node itself), the request, the caller.

A handler that does not wait returns the reply. A handler that waits returns steps (`chord/net/steps.py`) or a
coroutine. A coroutine gets its own task, which is cancelled when the caller's budget is used up. The caller receives a
`ChordError` that a handler raises. Any other exception is a bug, and the caller receives `RemoteFailure`.
"""


def no_handler(vnode: Point | None, request: Request, caller: Caller) -> Answer:
    """Refuse every request: the handler of a client, and of a node before it serves.

    Raises:
        NotReady: definite; always.
    """
    raise NotReady("no handler is registered yet")


def discard(answer: Answer) -> None:
    """Close the steps or the coroutine of an answer that has not begun, because its call is refused.

    For a reply, do nothing.
    """
    if not isinstance(answer, Reply):
        answer.close()


async def reply_of(answer: Answer) -> Reply:
    """Run the answer of a request handler to its end, and return the reply.

    Args:
        answer: a reply, steps or a coroutine.

    Raises:
        ChordError: the steps or the coroutine ended with this error.

    Concurrency: checkpoints, unless the answer is already a reply. If this is cancelled, steps go on without a caller,
    and a coroutine is cancelled.
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
    """Sends requests to vnodes of other nodes.

    `Peers` sends each request alone. `Coalescer` combines the requests of a batch that go to one node.
    """

    def begin(
        self,
        to: Contact,
        request: Request,
        expect: type[R],
        callback: Callable[[R | ChordError], None],
        *,
        deadline: float,
    ) -> None:
        """Send a request; the callback gets the reply or the error.

        Args:
            to: the vnode that the request is for.
            request: the request.
            expect: the type of the reply. For a reply of another type, the callback gets `MalformedMessage`.
            callback: called once, perhaps before this method returns. It must not wait.
            deadline: the latest time for the reply, on Trio's clock.
        """


class Calls(Protocol):
    """The network, as a node or a client sees it: it makes calls to nodes, and answers their calls."""

    def serve(self, handler: RequestHandler) -> None:
        """Answer incoming calls with this handler from now on, in place of any earlier handler."""

    async def call(self, to: Contact | str, request: Request, *, deadline: float) -> Reply:
        """Send a request to a vnode, or to the node at an address, and return its reply.

        Args:
            to: the vnode that the request is for, or the address of the node.
            request: the request. Its reply has the type `request.reply`; any other type is a `MalformedMessage`.
            deadline: the latest time for the reply, on Trio's clock. The remaining time travels with the call as its
                budget. If the request is patient, or the deadline is infinite, an earlier deadline of the enclosing
                cancel scopes limits the budget.

        Raises:
            PeerUnreachable: definite; no stream could be opened, and nothing was sent.
            PeerLost: indefinite; the stream broke before the answer came.
            DeadlineExceeded: indefinite; `deadline` passed.
            ChordError: the error that the peer answered; its class says whether it is definite.

        Concurrency: checkpoints. The late answer to a cancelled call is dropped.
        """

    def begin(self, to: Contact | str, request: Request, callback: Callback, *, deadline: float) -> None:
        """Send a request as `call` does, without a task that waits for the reply.

        Args:
            to: the vnode that the request is for, or the address of the node.
            request: the request.
            callback: called once with the reply, or with the error that `call` would raise, perhaps before this method
                returns. It must not wait. If this node ends first, the callback gets an error, or is never called.
            deadline: the latest time for the reply, on Trio's clock. The remaining time travels with the call as its
                budget.

        Concurrency: synchronous.
        """

    async def reach(self, address: str, *, deadline: float) -> Hello | None:
        """Open a new connection to an address, and return the hello of the node there.

        The connection is closed afterwards. A connection that the peer opened does not show that other nodes can open
        one to the peer.

        Args:
            address: the address of the node, HOST:PORT.
            deadline: the latest time for the hello, on Trio's clock.

        Returns:
            The hello. None if the network has no connections, as in the simulator; then no call is made.

        Raises:
            ChordError: no node answered there before the deadline, or the node refused the connection.

        Concurrency: checkpoints.
        """


class CallsService(Calls, Protocol):
    """A `Calls` that a node starts and ends."""

    @property
    def stats(self) -> Stats:
        """The numbers of calls and bytes since the start."""

    @property
    def meters(self) -> Meters:
        """The calls, bytes and durations of each type of request since the start."""

    async def run(self, listen: str | None, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept and make calls until cancelled.

        Args:
            listen: HOST:PORT to accept connections at; None to accept none.
            task_status: `started` gets the bound address, or "" if `listen` is None.

        Raises:
            OSError: the address is in use, or it is not an address of this machine.
        """

    def stop_accepting(self) -> None:
        """Accept no new connections; open ones stay open."""

    async def drain(self) -> None:
        """Wait until all incoming calls are answered and the operating system has taken the answers."""

    def shortage(self) -> str:
        """Return which resource for connections ran out in the last ten seconds, as a sentence; "" for none."""

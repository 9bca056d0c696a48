"""The seam to other nodes: make a call, answer calls.

This is all the protocol knows of the network. `chord.rpc` implements it over byte streams; a
simulation may implement it directly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeAlias

import msgspec
import trio

from chord.errors import ChordError
from chord.ids import Point
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


Work: TypeAlias = Coroutine[Any, Any, Reply]

Conclusion: TypeAlias = Reply | Exception | Work
"""What a `Later` comes to. Work gets a task, like an answer that is work from the beginning; what is no `ChordError`
is a bug."""


class Later:
    """An answer that takes a while and no task: whoever begins it is told, once, what it has come to.

    For what waits for nothing but the answers of others, which are told as well (`Calls.begin`).

    Args:
        start: begins the work, and sees to it that `end` is called; what it raises ends it.

    Attributes:
        deadline: on Trio's clock; then nobody wants it any more.
    """

    __slots__ = ("_start", "_told", "deadline")

    def __init__(self, start: Callable[[Later], None]) -> None:
        self._start = start
        self._told: Callable[[Conclusion], None] | None = None
        self.deadline = math.inf

    def begin(self, told: Callable[[Conclusion], None], deadline: float) -> None:
        """Begin; `told` may be told before this returns. It must not wait."""
        self._told, self.deadline = told, deadline
        self.go_on(self._start, self)

    def give_up(self) -> None:
        """Nobody wants it any more: what must be seen through is, and nobody is told."""
        self._told = None

    @property
    def is_pending(self) -> bool:
        """Whether it has begun, and neither ended nor been given up."""
        return self._told is not None

    @property
    def is_wanted(self) -> bool:
        """Whether it is pending and in time. A process that was stopped has not noticed yet what is late."""
        return self.is_pending and trio.current_time() < self.deadline

    def go_on(self, step: Callable[..., None], *args: object) -> None:
        """Do a step of the work; what it raises is what the work comes to.

        A bug of which nobody is told any more goes on to whoever does this step, and ends the node: work that is seen
        through for nobody must not come to nothing in silence.
        """
        try:
            step(*args)
        except ChordError as error:
            self.end(error)
        except Exception as error:
            if not self.is_pending:
                raise
            self.end(error)

    def end(self, conclusion: Conclusion) -> None:
        """It has come to this. The first time counts."""
        told, self._told = self._told, None
        if told is not None:
            told(conclusion)
        else:
            throw_away(conclusion)


Answer: TypeAlias = Reply | Later | Work

Handler: TypeAlias = Callable[[Point | None, Request, Caller], Answer]
"""Answers one request addressed to a vnode, or to the node where the point is None.

A handler that need not wait returns the reply. One that must wait returns a `Later`, or a coroutine, which then
gets a task of its own and is cancelled when the caller's budget is used up. Each may raise a `ChordError`, which
travels to the caller; anything else is a bug and travels as `RemoteFailure`.
"""


def throw_away(unwanted: Answer | Conclusion) -> None:
    """Nobody waits for this: work of which nothing has begun never will be."""
    if not isinstance(unwanted, (Reply, Later, Exception)):
        unwanted.close()


async def reply_of(answer: Answer) -> Reply:
    """Wait for an answer.

    Raises:
        ChordError: that is what it came to.

    Concurrency: checkpoints unless it is there already; cancelled, it is given up.
    """
    if isinstance(answer, Later):
        ended, conclusions = trio.Event(), list[Conclusion]()

        def told(conclusion: Conclusion) -> None:
            conclusions.append(conclusion)
            ended.set()

        answer.begin(told, trio.current_effective_deadline())
        try:
            await ended.wait()
        except trio.Cancelled:
            answer.give_up()
            for unheard in conclusions:
                throw_away(unheard)
            raise
        (conclusion,) = conclusions
        if isinstance(conclusion, Exception):
            raise conclusion
        answer = conclusion
    return answer if isinstance(answer, Reply) else await answer


Told: TypeAlias = Callable[[Reply | ChordError], None]
"""Is told, once, what came of a call."""


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

    def begin(self, to: Contact | str, request: Request, told: Told, *, deadline: float) -> None:
        """Send a request as `call` does, without a task that waits for the reply: for who asks several at once.

        Args:
            told: is told the reply, or what `call` would raise; maybe before this returns. It must not wait. Where the
                node ends before, it is never told.
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

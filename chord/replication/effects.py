"""Effects that an operation waits for: a reply, a commit, a coroutine in a task.

An operation is a generator of effects, in short *steps*. `chord/net/steps.py` explains them, and has their driver. The
fan-out is in `chord/replication/fanout.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from chord.errors import ChordError, NotReady
from chord.net.calls import Sender
from chord.net.steps import Driver, Steps
from chord.ring.context import NodeContext
from chord.ring.vnode import RETRY_MS
from chord.store.storage import Batch, Storage
from chord.wire.messages import Contact, Reply, Request


class Ask(NamedTuple):
    """Effect: send a request to a vnode of another node, and wait for its reply.

    The steps that yield this effect get the reply as the value of the `yield`. An error is raised there.

    Attributes:
        sender: sends the request, unless the driver of the steps has its own sender.
        to: the vnode.
        request: the request.
        deadline: the latest time for the reply, on Trio's clock.
    """

    sender: Sender
    to: Contact
    request: Request
    deadline: float

    def begin(self, driver: Driver[Any], /) -> None:
        """Send the request; the reply resumes the driver."""
        sender = driver.sender or self.sender
        sender.begin(self.to, self.request, self.request.reply, driver.resume, deadline=self.deadline)


class Durable(NamedTuple):
    """Effect: wait until all changes to the store so far are durable.

    The errors of `Storage.commit` are raised in the steps, at the `yield` of this effect.
    """

    storage: Storage

    def begin(self, driver: Driver[Any], /) -> None:
        """Let the store resume the driver when all changes so far are durable."""
        self.storage.when_durable(driver.resume)


class Commit(NamedTuple):
    """Effect: make the changes of a batch, and wait until they are durable.

    The errors of `Storage.commit` are raised in the steps, at the `yield` of this effect.
    """

    storage: Storage
    batch: Batch

    def begin(self, driver: Driver[Any], /) -> None:
        """Stage the batch, and let the store resume the driver when the batch is durable."""
        self.storage.stage(self.batch)
        self.storage.when_durable(driver.resume)


class InTask:
    """Effect: run an async function in a task of the node, and wait for its result.

    The result becomes the value of the `yield` in the steps. A `ChordError` of the function is raised there, or
    `NotReady` if the node ends first.

    Args:
        host: the node context.
        function: the function.
        *args: its arguments.
    """

    def __init__(self, host: NodeContext, function: Callable[..., Awaitable[object]], *args: object) -> None:
        self._host = host
        self._function = function
        self._args = args

    def begin(self, driver: Driver[Any], /) -> None:
        """Start the task; its result resumes the driver."""
        if self._host.is_ending:
            raise ending()
        self._host.tasks.start(self._run, driver)

    async def _run(self, driver: Driver[Any]) -> None:
        result: object
        try:
            result = await self._function(*self._args)
        except ChordError as error:
            result = error
        except trio.Cancelled:
            driver.resume(ending())
            raise
        driver.resume(result)


def when_durable(storage: Storage, reply: Reply) -> Steps[Reply]:
    """Return the steps that wait until all visible changes of the store are durable, and then return the reply.

    Raises:
        ChordError: see `Storage.commit`.
    """
    yield Durable(storage)
    return reply


def ending() -> NotReady:
    """Return the error for work that a node does not begin, because it is ending."""
    return NotReady("the node is ending", after_ms=RETRY_MS)

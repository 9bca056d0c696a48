"""Drives the operations of `chord.client.operations` on Trio, for the Trio client and the node."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import trio

from chord.client.api import AsyncApi
from chord.client.session import ClientCall, ClientOperation, MakeCalls, Outcome, Timed
from chord.errors import InvalidRequest

T = TypeVar("T")


def require_trio(name: str, instead: str) -> None:
    """Raise an error if Trio does not run the caller.

    Otherwise Trio itself would fail, with an `AttributeError` about its internals.

    Args:
        name: the function that needs Trio.
        instead: the next step for the caller.

    Raises:
        InvalidRequest: the caller runs on another event loop.
    """
    if not trio.lowlevel.in_trio_run():
        raise InvalidRequest(f"{name} needs Trio, and another event loop runs here; {instead}")


class TrioApi(AsyncApi):
    """The operations on a ring for a Trio program. Subclasses make the single calls.

    The caller's cancel scopes limit the time of every operation. If no scope has a deadline, `timeout_s` is the limit:
    5 seconds by default. It limits each operation, each batch of an operation on many keys, and each page of `scan` and
    `export`.

    If a scope expires, Trio reports it (`trio.fail_after` raises `TooSlowError`). If `timeout_s` passes, the operation
    raises the ring's last error, or `DeadlineExceeded` if there was none.

    Attributes:
        timeout_s: the limit in seconds if no cancel scope has a deadline. It may be changed between operations.
    """

    async def _drive(self, operation: ClientOperation[T]) -> T:
        now = trio.current_time()
        deadline = trio.current_effective_deadline()
        timed = Timed(operation, now, now + self.timeout_s if math.isinf(deadline) else deadline)
        effect = timed.next(now)
        while effect is not None:
            outcomes: tuple[Outcome, ...] | None = None
            if isinstance(effect, MakeCalls):
                outcomes = await self._ask(effect.calls, timed.limit(effect, trio.current_time()))
            else:
                await trio.sleep(effect.seconds)
            effect = timed.next(trio.current_time(), outcomes)
        return timed.result

    async def _ask(self, calls: Sequence[ClientCall], deadline: float) -> tuple[Outcome, ...]:
        if len(calls) == 1:
            return (await self._call(calls[0], deadline),)
        outcomes: list[Outcome | None] = [None] * len(calls)
        have_ended, now = trio.Event(), trio.current_time()

        def on_outcome(i: int, outcome: Outcome) -> None:
            outcomes[i] = outcome
            if None not in outcomes:
                have_ended.set()

        async def make(i: int, by: float) -> None:
            on_outcome(i, await self._call(calls[i], by))

        in_tasks = []
        for i, call in enumerate(calls):
            by = deadline if call.within_s is None else min(deadline, now + call.within_s)
            if not self._begin(call, by, partial(on_outcome, i)):
                in_tasks.append((i, by))
        if in_tasks:
            async with trio.open_nursery() as nursery:
                for task in in_tasks:
                    nursery.start_soon(make, *task)
        await have_ended.wait()
        return tuple(outcome for outcome in outcomes if outcome is not None)

    @abstractmethod
    async def _call(self, call: ClientCall, deadline: float) -> Outcome:
        """Make a call and return its outcome: a reply or an error."""

    @abstractmethod
    def _begin(self, call: ClientCall, deadline: float, callback: Callable[[Outcome], None]) -> bool:
        """Begin a call without a task. `callback` gets its outcome by the deadline.

        Returns:
            True if the call has begun. False if it needs a task; then nothing was done.
        """

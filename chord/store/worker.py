"""Where a store does what blocks: a seam, so that a simulation runs the same store without threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio
from outcome import Outcome

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Worker(Protocol):
    """Runs blocking functions of one store, and reports their ends to the event loop."""

    async def run(self, fn: Callable[[*Ts], T], *args: *Ts, abandon: bool = False) -> T:
        """Run a function to its end, and return what it returns.

        Args:
            abandon: if cancelled, return at once and leave the function to itself.

        Concurrency: checkpoints.
        """

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the next pass of the event loop."""

    def start(self, fn: Callable[[], T], report: Callable[[Outcome[T]], object], alone: Callable[[], object]) -> None:
        """Begin to run a function. The event loop calls `report` with its outcome.

        Args:
            alone: called in place of `report` if the event loop has ended.
        """


class ThreadWorker:
    """Runs functions in threads. Satisfies `Worker`."""

    async def run(self, fn: Callable[[*Ts], T], *args: *Ts, abandon: bool = False) -> T:
        """Run a function in a thread to its end."""
        return await trio.to_thread.run_sync(fn, *args, abandon_on_cancel=abandon)

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the next pass of the event loop: every task that is ready now runs before it."""
        trio.lowlevel.current_trio_token().run_sync_soon(fn)

    def start(self, fn: Callable[[], T], report: Callable[[Outcome[T]], object], alone: Callable[[], object]) -> None:
        """Begin to run a function in a thread."""
        loop = trio.lowlevel.current_trio_token()

        def deliver(result: Outcome[T]) -> None:
            try:
                loop.run_sync_soon(report, result)
            except trio.RunFinishedError:
                alone()

        trio.lowlevel.start_thread_soon(fn, deliver, "chord records")

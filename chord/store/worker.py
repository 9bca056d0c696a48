"""Workers that do a store's blocking work.

`Worker` is a seam: a simulation runs the same store without threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple

import trio
from outcome import Outcome

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Worker(Protocol):
    """Runs blocking functions of one store, and reports the results to the event loop."""

    async def run(self, fn: Callable[[*Ts], T], *args: *Ts, abandon: bool = False) -> T:
        """Run a function to its end, and return its result or raise its error.

        Args:
            fn: the function.
            *args: its arguments.
            abandon: whether a cancelled call returns at once, and leaves the function to itself. If not, it returns
                after the function.

        Concurrency: checkpoints.
        """

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the next pass of the event loop."""

    def start(self, fn: Callable[[], T], report: Callable[[Outcome[T]], object], alone: Callable[[], object]) -> None:
        """Run a function in the background, and report its outcome to the event loop.

        Args:
            fn: the function.
            report: called by the event loop with the outcome of `fn`.
            alone: called in place of `report` if the event loop has ended.
        """


class ThreadWorker:
    """Runs functions in threads. Satisfies `Worker`."""

    async def run(self, fn: Callable[[*Ts], T], *args: *Ts, abandon: bool = False) -> T:
        """Run a function in a thread to its end; see `Worker.run`."""
        return await trio.to_thread.run_sync(fn, *args, abandon_on_cancel=abandon)

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the next pass of the event loop.

        Every task that is ready now runs before it.
        """
        trio.lowlevel.current_trio_token().run_sync_soon(fn)

    def start(self, fn: Callable[[], T], report: Callable[[Outcome[T]], object], alone: Callable[[], object]) -> None:
        """Run a function in a thread, and report its outcome; see `Worker.start`."""
        loop = trio.lowlevel.current_trio_token()

        def deliver(result: Outcome[T]) -> None:
            try:
                loop.run_sync_soon(report, result)
            except trio.RunFinishedError:
                alone()

        trio.lowlevel.start_thread_soon(fn, deliver, "chord records")

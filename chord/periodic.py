"""Run a step for ever: staggered start, jittered interval, under a deadline, never overlapping itself.

An expected failure (a `ChordError`, a deadline) is an event, and the step runs again. Anything else
is a bug and ends the node.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import trio

from chord.errors import ChordError

if TYPE_CHECKING:
    import random


class Periodic:
    """One step that runs every `period_s` on average, each interval drawn from 0.5 to 1.5 of it.

    Args:
        step: the coroutine function to run.
        period_s: the mean interval in seconds.
        deadline_s: a run is cancelled after so long.
        failed: told the word of the error when a run fails as expected.
    """

    def __init__(
        self,
        step: Callable[[], Awaitable[object]],
        *,
        period_s: float,
        deadline_s: float,
        rng: random.Random,
        failed: Callable[[str], None],
    ) -> None:
        self._step = step
        self.period_s = period_s
        self._deadline_s = deadline_s
        self._rng = rng
        self._failed = failed
        self._kicked = trio.Event()

    def kick(self) -> None:
        """Run the step soon instead of waiting for the interval to pass."""
        self._kicked.set()

    async def run(self) -> None:
        """Run until cancelled; a cancelled step leaves what its own docstring says."""
        await self._pause(self._rng.uniform(0, self.period_s))  # nodes started together do not step together
        while True:
            self._kicked = trio.Event()
            try:
                with trio.fail_after(self._deadline_s):
                    await self._step()
            except ChordError as error:
                self._failed(error.word)
            except trio.TooSlowError:
                self._failed("timeout")
            await self._pause(self.period_s * self._rng.uniform(0.5, 1.5))

    async def _pause(self, seconds: float) -> None:
        with trio.move_on_after(seconds):
            await self._kicked.wait()
        await trio.lowlevel.checkpoint()

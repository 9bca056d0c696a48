"""Operations in steps: a generator that yields effects, and the driver that resumes it from callbacks.

An operation that waits only for replies or for the disk needs no task, no event and no cancel scope. It is a
generator. It yields an `Effect` for each wait, receives the result, and so reads from top to bottom. A task for each
put would cost as much as all the rest of the put.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import trio

from chord.errors import ChordError

if TYPE_CHECKING:
    from chord.net.calls import Sender

T = TypeVar("T")


class Effect(Protocol):
    """Something that steps wait for."""

    def begin(self, driver: Driver[Any], /) -> None:
        """Begin, and resume the driver once: with the result, or with the error to raise in the steps.

        An effect may resume the driver before this returns. An error that this raises is raised in the steps.
        """


Steps: TypeAlias = Generator[Effect, Any, T]
"""An operation: yields effects, receives their results, and returns its own."""


class Driver(Generic[T]):
    """Takes steps to their end, and calls back once with the result.

    Args:
        steps: the operation.
        sender: sends the requests of the steps; None: each effect sends its own.

    Attributes:
        deadline: on Trio's clock; the result is of no use to the caller afterwards.

    Concurrency: synchronous.
    """

    __slots__ = ("_callback", "_steps", "deadline", "sender")

    def __init__(self, steps: Steps[T], sender: Sender | None = None) -> None:
        self._steps = steps
        self._callback: Callable[[T | Exception], None] | None = None
        self.sender = sender
        self.deadline = math.inf

    def begin(self, callback: Callable[[T | Exception], None], deadline: float = math.inf) -> None:
        """Take the first step.

        Args:
            callback: receives the result, or the error that ended the steps; maybe before this returns. An error that
                is no `ChordError` is a bug.
        """
        self._callback, self.deadline = callback, deadline
        self._advance(self._steps.send, None)

    def resume(self, result: object = None) -> None:
        """Take the next step with the result of an effect, or with the `ChordError` that it failed with."""
        if isinstance(result, ChordError):
            self._advance(self._steps.throw, result)
        else:
            self._advance(self._steps.send, result)

    def give_up(self) -> None:
        """Call back no more. The steps go on: a write that is stored must also be replicated."""
        self._callback = None

    def close(self) -> None:
        """End the steps where they stand."""
        self._steps.close()

    @property
    def is_pending(self) -> bool:
        """Whether the callback still waits for the result."""
        return self._callback is not None

    @property
    def is_wanted(self) -> bool:
        """Whether the callback waits and the deadline has not passed.

        The caller of a process that was stopped for a while gives up only when that process looks at its clock.
        """
        return self._callback is not None and trio.current_time() < self.deadline

    def _advance(self, step: Callable[[Any], Effect], argument: object) -> None:
        try:
            effect = step(argument)
        except StopIteration as end:
            self._end(end.value)
        except ChordError as error:
            self._end(error)
        except Exception as error:
            if self._callback is None:
                raise  # a bug that nothing would report otherwise: it ends the node
            self._end(error)
        else:
            try:
                effect.begin(self)
            except Exception as error:
                self._advance(self._steps.throw, error)

    def _end(self, result: T | Exception) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback(result)


class _IfWanted:
    """Effect: go on only if the caller still waits for the result; otherwise end the steps."""

    def begin(self, driver: Driver[Any], /) -> None:
        """Resume the driver, or close it."""
        if driver.is_wanted:
            driver.resume()
        else:
            driver.close()


IF_WANTED: Final[Effect] = _IfWanted()
"""Effect: the point before which a caller that gives up ends the steps, and after which they run to their end."""

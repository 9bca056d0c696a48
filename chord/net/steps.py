"""Operations in steps: generators that yield effects, and their driver.

An operation that waits only for replies or for the disk needs no task, no event and no cancel scope. It is a
generator. It yields an `Effect` for each wait and receives the result, so it reads from top to bottom. A task for each
put would cost as much as all the rest of the put.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec
import trio

from chord.errors import ChordError

if TYPE_CHECKING:
    from chord.net.calls import Sender

T = TypeVar("T")


class Effect(Protocol):
    """An action that steps wait for, such as a call or a commit."""

    def begin(self, driver: Driver[Any], /) -> None:
        """Begin the action, and call `driver.resume` once, with the result or the error.

        The result becomes the value of the `yield` in the steps, and an error is raised there. An effect may resume the
        driver before this method returns. An error that this method raises is also raised at the `yield`.
        """


Steps: TypeAlias = Generator[Effect, Any, T]
"""An operation as a generator: it yields effects and receives their results."""


class Driver(msgspec.Struct, Generic[T], eq=False):
    """Runs an operation (steps) to its end, and calls back once with the result.

    Attributes:
        steps: the operation.
        sender: sends the requests of the steps; None if each effect uses its own sender.
        callback: receives the result of the steps, or the exception that ended them; None before `begin`, and after the
            end.
        deadline: the latest time at which the caller can use the result, on Trio's clock. The driver does not end the
            steps at that time.

    Concurrency: synchronous.
    """

    steps: Steps[T]
    sender: Sender | None = None
    callback: Callable[[T | Exception], None] | None = None
    deadline: float = math.inf

    def begin(self, callback: Callable[[T | Exception], None], deadline: float = math.inf) -> None:
        """Take the first step.

        Args:
            callback: receives the result, or the error that ended the steps. The call may happen before this method
                returns. An error that is not a `ChordError` is a bug.
            deadline: the latest time at which the caller can use the result, on Trio's clock. The driver does not end
                the steps at that time.
        """
        self.callback, self.deadline = callback, deadline
        self.resume()

    def resume(self, result: object = None) -> None:
        """Continue the steps at their `yield`, until their next effect or their end.

        Args:
            result: the value of the `yield`: the result of the effect. A `ChordError` is raised there instead.
        """
        step: Callable[[Any], Effect] = self.steps.throw if isinstance(result, ChordError) else self.steps.send
        while True:
            try:
                effect = step(result)
            except StopIteration as end:
                outcome = end.value
                break
            except ChordError as error:
                outcome = error
                break
            except Exception as error:
                if self.callback is None:
                    raise  # a bug that no caller would report: it ends the node
                outcome = error
                break
            try:
                effect.begin(self)
            except Exception as error:
                step, result = self.steps.throw, error
            else:
                return
        callback, self.callback = self.callback, None
        if callback is not None:
            callback(outcome)

    def give_up(self) -> None:
        """Drop the callback without a call, and let the steps go on.

        The caller must treat the outcome as indefinite: a write that is stored here must also be replicated, so the
        steps go on. Only the effect `IF_WANTED` ends them early.
        """
        self.callback = None

    def close(self) -> None:
        """End the steps at the effect that they wait for, without a call of the callback."""
        self.steps.close()

    @property
    def is_pending(self) -> bool:
        """Whether the callback still waits for the result of the steps."""
        return self.callback is not None

    @property
    def is_wanted(self) -> bool:
        """Whether the callback still waits and the deadline has not passed.

        The deadline is also checked, because a process that was stopped for a while sweeps its deadlines late.
        """
        return self.callback is not None and trio.current_time() < self.deadline


class _IfWanted:
    """Effect: end the steps if the caller no longer waits for the result."""

    def begin(self, driver: Driver[Any], /) -> None:
        """Resume the steps if a caller waits for the result; otherwise end them at this `yield`."""
        if driver.is_wanted:
            driver.resume()
        else:
            driver.close()


IF_WANTED: Final[Effect] = _IfWanted()
"""Effect: end the steps here if the caller has given up. After this point they run to their end."""

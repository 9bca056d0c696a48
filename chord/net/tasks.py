"""Tasks: begin async functions from synchronous code, in the nursery of their owner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import trio


class Tasks:
    """The background tasks of one owner, which end with its nursery.

    Args:
        owner: the name of the owner in the text of errors, such as "the calls layer".
    """

    __slots__ = ("_is_closed", "_nursery", "_owner")

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._nursery: trio.Nursery | None = None
        self._is_closed = False

    def open(self, nursery: trio.Nursery) -> None:
        """Begin tasks in this nursery from now on."""
        self._nursery = nursery

    def close(self) -> None:
        """Begin no more tasks; from now on, `start` does nothing. The nursery ends the tasks that run."""
        self._nursery = None
        self._is_closed = True

    def start(self, function: Callable[..., Awaitable[Any]], *args: Any, name: str | None = None) -> None:
        """Run an async function in a task, unless `close` was called.

        Raises:
            RuntimeError: `open` was not called yet.
        """
        if self._nursery is not None:
            self._nursery.start_soon(function, *args, name=name)
        elif not self._is_closed:
            raise RuntimeError(f"{self._owner} is not running")

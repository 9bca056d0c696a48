"""An event loop of asyncio in a thread, so that tests on Trio can use the asyncio client."""

from __future__ import annotations

import asyncio
import selectors
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

from tests.support.clocks import LOOK_S, Skipping

T = TypeVar("T")


class _Looking(selectors.DefaultSelector):
    """A selector that returns soon, so that the loop notices a moved clock."""

    def select(self, timeout: float | None = None) -> Any:
        return super().select(LOOK_S if timeout is None else min(timeout, LOOK_S))


class _Loop(asyncio.SelectorEventLoop):
    """An event loop with a clock that tests can move."""

    def __init__(self, clock: Skipping) -> None:
        super().__init__(_Looking())
        self._clock = clock

    def time(self) -> float:
        return self._clock.monotonic()


class AsyncioBridge:
    """A thread that runs coroutines of asyncio for the length of a `with` block.

    Args:
        clock: the clock of the loop; None for the system's.
    """

    def __init__(self, clock: Skipping | None = None) -> None:
        self._loop = asyncio.new_event_loop() if clock is None else _Loop(clock)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> AsyncioBridge:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def run(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """Call a function in the loop, and return its result."""

        async def call() -> T:
            return await function(*args, **kwargs)

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()

    def wrap(self, client: Any) -> Bridged:
        """Return a client with methods that can be awaited outside of asyncio."""
        return Bridged(self, client)


class Bridged:
    """A client in another event loop, with methods that block the caller and asynchronous iterators."""

    def __init__(self, bridge: AsyncioBridge, client: Any) -> None:
        self._bridge = bridge
        self._client = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        async def call(*args: Any, **kwargs: Any) -> Any:
            return self._bridge.run(found, *args, **kwargs)

        async def iterate(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            following = aiter(found(*args, **kwargs))
            while True:
                try:
                    item = self._bridge.run(following.__anext__)
                except StopAsyncIteration:
                    return
                yield item

        return iterate if name in ("scan", "export", "scan_quarantine") else call


class BridgedBlock:
    """Enter and leave an `async with` block of asyncio from Trio."""

    def __init__(self, bridge: AsyncioBridge, block: AbstractAsyncContextManager[Any]) -> None:
        self._bridge = bridge
        self._block = block

    async def __aenter__(self) -> Bridged:
        return self._bridge.wrap(self._bridge.run(self._block.__aenter__))

    async def __aexit__(self, *error: Any) -> None:
        self._bridge.run(self._block.__aexit__, None, None, None)

"""The client loop that measures every system. It needs the standard library only.

A batch has operations of one kind, with a number of them in flight, until all are done or the time is up. Each
operation has a deadline, so a system that hangs cannot hang the run. The loop times failed operations too, because
their callers wait as well. A put counts when it is acknowledged. A get counts only if it returns the value of the put.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

VALUE_BYTES = 100
ERRORS_KEPT_MAX = 3
ERROR_CHARS_MAX = 200


class Client(Protocol):
    """A client of a measured system; an exception is a failed operation."""

    async def put(self, key: str, value: bytes) -> None:
        """Return when the system has acknowledged the write."""

    async def get(self, key: str) -> bytes | None:
        """Return the value, or None if the system has no value."""


class Engine(Protocol):
    """The functions of an asynchronous framework that the client loop needs."""

    async def together(self, workers: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run several functions at the same time; return when all have ended."""

    async def within(self, seconds: float, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call and return its result; raise TimeoutError if it takes too long."""


class OnAsyncio:
    """The functions of asyncio that the client loop needs."""

    async def together(self, workers: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run several functions at the same time; return when all have ended."""
        await asyncio.gather(*(worker() for worker in workers))

    async def within(self, seconds: float, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call and return its result; raise TimeoutError if it takes too long."""
        async with asyncio.timeout(seconds):
            return await call()


class OnTrio:
    """The functions of Trio that the client loop needs."""

    async def together(self, workers: Sequence[Callable[[], Awaitable[None]]]) -> None:
        """Run several functions at the same time; return when all have ended."""
        import trio

        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker)

    async def within(self, seconds: float, call: Callable[[], Awaitable[Any]]) -> Any:
        """Await a call and return its result; raise TimeoutError if it takes too long."""
        import trio

        with trio.move_on_after(seconds) as scope:
            return await call()
        assert scope.cancelled_caught
        raise TimeoutError


@dataclass
class Batch:
    """The result of a batch: operations of one kind, by one client.

    Attributes:
        op: "put" or "get".
        took_s: the time from the first start to the last end.
        latencies_s: the latency of every operation, also of failed ones, in the order of their ends.
        done: the keys of the successful operations.
        errors: the number of failed operations.
        why: the reasons of the first few failures.
        wrong: the number of failed gets that returned no value or another one, although the put was acknowledged.
    """

    op: str
    took_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    errors: int = 0
    why: list[str] = field(default_factory=list)
    wrong: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the fields as an object for JSON."""
        return asdict(self)


def value_of(key: str, value_bytes: int = VALUE_BYTES) -> bytes:
    """Return the value that the loop puts under a key, and that a get must return."""
    return hashlib.shake_128(key.encode()).digest(value_bytes)


async def run_batch(
    engine: Engine,
    client: Client,
    op: str,
    keys: Sequence[str],
    *,
    concurrency: int,
    seconds: float,
    deadline_s: float,
    value_bytes: int = VALUE_BYTES,
) -> Batch:
    """Put or get each of these keys once, in this order.

    Args:
        op: "put" or "get".
        concurrency: the number of operations in flight.
        seconds: the time after which no operation begins. The loop awaits operations in flight.
        deadline_s: the time limit of one operation.
        value_bytes: the length of the values.
    """
    batch = Batch(op)
    todo = iter([(key, value_of(key, value_bytes)) for key in keys])
    began = time.perf_counter()

    async def put(key: str, value: bytes) -> None:
        await engine.within(deadline_s, lambda: client.put(key, value))

    async def get(key: str, value: bytes) -> None:
        found = await engine.within(deadline_s, lambda: client.get(key))
        if found != value:
            batch.wrong += 1
            raise LookupError("nothing is there" if found is None else "another value is there")

    operation = {"put": put, "get": get}[op]

    async def worker() -> None:
        for key, value in todo:
            before = time.perf_counter()
            try:
                await operation(key, value)
            except Exception as error:  # every exception of a library is a failed operation
                batch.errors += 1
                if len(batch.why) < ERRORS_KEPT_MAX:
                    batch.why.append(f"{type(error).__name__}: {error}"[:ERROR_CHARS_MAX])
            else:
                batch.done.append(key)
            now = time.perf_counter()
            batch.latencies_s.append(now - before)
            if now - began > seconds:
                return

    await engine.together([worker] * concurrency)
    batch.took_s = time.perf_counter() - began
    return batch


def percentile(ranked: Sequence[float], share: float) -> float:
    """Return a percentile by the nearest rank.

    Args:
        ranked: the values in ascending order.
        share: the share of values up to the result, above 0, at most 1; 0.5 is the median.

    Raises:
        ValueError: there are no values, or the share is out of range.
    """
    if not ranked:
        raise ValueError("no percentile of nothing")
    if not 0 < share <= 1:
        raise ValueError(f"a share is above 0 and at most 1, not {share}")
    return ranked[max(1, math.ceil(round(share * len(ranked), 9))) - 1]

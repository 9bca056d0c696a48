"""The measuring half of `chord bench`: operations on keys of its own, in turns.

Every operation is measured in several turns, and the operations alternate. So other load on the machines affects all
operations alike. Round trips are relative to a `Ping`, in the same run, to the node that owns the key.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

import trio

from chord.client.async_client import AsyncClient, open_client
from chord.client.requests import ping
from chord.client.results import BatchResult, Stored
from chord.errors import ChordError, DeadlineExceeded, NotFound, QuorumFailed

TURNS: Final = 5
AT_ONCE: Final = 32
IN_VAIN_MAX: Final = 64  # give up a measurement after this many failures without a success
PREFIX: Final = "chord-bench/"
BATCH: Final = 256  # keys stored or deleted between two checks for an interrupt
SWEEPS_MAX: Final = 3

ROUND_TRIPS_MAX: Final[dict[tuple[str, int], float]] = {
    ("get", 1): 8.0, ("get", 2): 12.0, ("put, context", 2): 20.0, ("put", 2): 25.0, ("lookup", 0): 12.0,
}  # fmt: skip
"""The bound of an operation, one at a time, by name and quorum: its median time in round trips.

A bound is three to five times the figure of a healthy ring on a busy machine. `make bench` says how fast a ring should
be, and these bounds say that a ring is sick.
"""

Do: TypeAlias = Callable[[int], Awaitable[object]]
"""Does an operation on the key with this number."""


class BenchPlan(NamedTuple):
    """The parameters of a measurement.

    Attributes:
        keys: the number of keys, at least the largest number of concurrent operations.
        seconds: the duration of each line of the report, in seconds.
        ops: the number of operations of each line; None: as many as fit into `seconds`.
        value_bytes: the size of each value.
        r: the read quorum of the gets. Gets are also measured with R = 1.
        w: the write quorum of the puts.
    """

    keys: int
    seconds: float
    ops: int | None
    value_bytes: int
    r: int
    w: int


class BenchOperation(NamedTuple):
    """An operation to measure: one line of the report.

    Attributes:
        name: ping, get, put, "put, context" or lookup.
        quorum: its R or W; 0 if it has none.
        at_once: the number of concurrent operations.
    """

    name: str
    quorum: int
    at_once: int

    @property
    def round_trips_max(self) -> float | None:
        """The largest number of round trips that passes; None if no bound applies."""
        return ROUND_TRIPS_MAX.get((self.name, self.quorum)) if self.at_once == 1 else None


class Measured:
    """The measurements of one operation.

    Attributes:
        operation: the operation.
        took_s: the duration of each success, in seconds.
        busy_s: the time spent on the measurement, in seconds.
        errors: the number of failures, by the word of the error.
    """

    def __init__(self, operation: BenchOperation) -> None:
        self.operation = operation
        self.took_s: list[float] = []
        self.busy_s = 0.0
        self.errors: dict[str, int] = {}

    @property
    def failed(self) -> int:
        """The number of operations that failed."""
        return sum(self.errors.values())

    @property
    def is_in_vain(self) -> bool:
        """Whether to give up: `IN_VAIN_MAX` operations failed, and none succeeded."""
        return not self.took_s and self.failed >= IN_VAIN_MAX

    @property
    def per_s(self) -> float:
        """The number of successful operations per second; 0 before any."""
        return len(self.took_s) / self.busy_s if self.busy_s else 0.0

    def percentile_ms(self, share: float) -> float | None:
        """Return a percentile of the durations of successes, in ms; None if no operation succeeded.

        Args:
            share: the fraction of operations, 0 to 1, that took at most the returned time.
        """
        if not self.took_s:
            return None
        return 1000 * sorted(self.took_s)[max(0, math.ceil(share * len(self.took_s)) - 1)]


def operations(plan: BenchPlan) -> list[BenchOperation]:
    """Return the operations to measure, in the order of the report."""
    names = [("ping", 0), ("get", 1), ("get", plan.r), ("put, context", plan.w), ("put", plan.w), ("lookup", 0)]
    return [BenchOperation(name, quorum, count) for name, quorum in dict.fromkeys(names) for count in (1, AT_ONCE)]


class Bench:
    """A measurement of a living ring, under keys that no other client uses.

    Args:
        plan: the parameters.
        show: called after each turn with the number of turns done. Every operation is measured in several turns.

    Attributes:
        plan: the parameters.
        measured: the measurements of each operation, in the order of the report.
        left_behind: the keys that could not be deleted again, each with the error.
        is_interrupted: whether `interrupt` was called.
        names: the keys.
    """

    def __init__(self, plan: BenchPlan, show: Callable[[int], object]) -> None:
        self.plan = plan
        self.measured = [Measured(operation) for operation in operations(plan)]
        self.left_behind: list[tuple[bytes, ChordError]] = []
        self.is_interrupted = False
        prefix = PREFIX + secrets.token_hex(8)
        self.names = [f"{prefix}/{number}".encode() for number in range(plan.keys)]
        self._show = show
        self._value = b"v" * plan.value_bytes
        self._owners: list[str] = []
        self._contexts: list[bytes] = []

    def interrupt(self) -> None:
        """End the measurement early: start no further operation.

        The operations under way end first, and then the stored keys are deleted. Cancelling a write here would not stop
        it: the ring may complete it later, even after the delete.
        """
        self.is_interrupted = True

    async def run(self, nodes: Sequence[str], timeout_s: float) -> None:
        """Store the keys, measure all operations, and delete the keys again.

        The results are in the attributes.

        Args:
            nodes: the addresses of the entry nodes.
            timeout_s: the time limit of each operation and of each batch of keys, in seconds.

        Raises:
            ChordError: no node answers, or a key cannot be stored.
            trio.TooSlowError: a batch of keys was not stored and read in time.

        Concurrency: checkpoints.
        """
        async with open_client(*nodes) as client:
            try:
                await self._fill(client, timeout_s)
                await self._measure(client, timeout_s)
            finally:
                await self._clean_up(client, timeout_s)

    async def _fill(self, client: AsyncClient, timeout_s: float) -> None:
        for some in self._batches():
            if self.is_interrupted:
                return
            with trio.fail_after(timeout_s):
                stored = await client.put_many((name, self._value) for name in some)
                read = await client.get_many(some)
                for error in (*stored.errors.values(), *read.errors.values()):
                    raise error
                for found in read.ok.values():
                    self._owners.append(found.owner.address)
                    self._contexts.append(found.context)

    async def _measure(self, client: AsyncClient, timeout_s: float) -> None:
        turns = TURNS if self.plan.ops is None else min(TURNS, self.plan.ops)
        done = 0
        for turn in range(turns):
            for measured in self.measured:
                if not measured.is_in_vain and not self.is_interrupted:
                    ops = None if self.plan.ops is None else self.plan.ops * (turn + 1) // turns
                    do = self._doing(client, measured.operation)
                    await self._take_turn(measured, do, self.plan.seconds / turns, ops, timeout_s)
                done += 1
                self._show(done)

    async def _take_turn(
        self, measured: Measured, do: Do, seconds: float, ops: int | None, timeout_s: float
    ) -> None:
        """Run one turn of an operation.

        No two operations use the same key at the same time.

        Args:
            measured: the operation, and the results of its earlier turns. The new results are added.
            do: makes the operation on one key.
            seconds: the duration of the turn, if `ops` is None.
            ops: start operations until this many were started in all turns so far.
            timeout_s: the timeout of each operation, in seconds.
        """
        began = time.perf_counter()
        end = began + seconds
        at_once = measured.operation.at_once
        started = len(measured.took_s) + measured.failed

        async def work(first: int) -> None:
            nonlocal started
            number = first
            while not (measured.is_in_vain or self.is_interrupted) and (
                time.perf_counter() < end if ops is None else started < ops
            ):
                started += 1
                await self._time(measured, do, number, timeout_s)
                number += at_once
                if number >= len(self.names):
                    number = first

        async with trio.open_nursery() as nursery:
            for first in range(at_once):
                nursery.start_soon(work, first)
        measured.busy_s += time.perf_counter() - began

    @staticmethod
    async def _time(measured: Measured, do: Do, number: int, timeout_s: float) -> None:
        before = time.perf_counter()
        try:
            with trio.fail_after(timeout_s):
                await do(number)
        except ChordError as error:
            measured.errors[error.word] = measured.errors.get(error.word, 0) + 1
        except trio.TooSlowError:
            measured.errors[DeadlineExceeded.word] = measured.errors.get(DeadlineExceeded.word, 0) + 1
        else:
            measured.took_s.append(time.perf_counter() - before)

    def _doing(self, client: AsyncClient, operation: BenchOperation) -> Do:
        quorum = operation.quorum

        async def put(number: int, *, context: bytes | None = None) -> None:
            stored = await client.put(self.names[number], self._value, context=context, w=quorum)
            self._contexts[number] = stored.context

        table: dict[str, Do] = {
            "ping": lambda number: ping(client, self._owners[number]),
            "get": lambda number: client.get(self.names[number], r=quorum),
            "put, context": lambda number: put(number, context=self._contexts[number]),
            "put": put,
            "lookup": lambda number: client.lookup(self.names[number], route="fast"),
        }
        return table[operation.name]

    async def _clean_up(self, client: AsyncClient, timeout_s: float) -> None:
        """Delete the keys, and verify that they are gone.

        A write that timed out may take effect after the delete, so up to `SWEEPS_MAX` attempts are made. Keys that are
        not known to be deleted are added to `left_behind`.
        """
        for some in self._batches():
            left: Sequence[bytes] = some
            deleted = BatchResult[str | bytes, Stored]({})
            for _ in range(SWEEPS_MAX):
                with trio.move_on_after(timeout_s):
                    deleted = await client.delete_many(left)
                    found = await client.get_many(left)
                    left = [name for name in left if not isinstance(found[name], NotFound)]
                if not left:
                    break
            for name in left:
                error = deleted.errors.get(name, QuorumFailed("it may be there still"))
                self.left_behind.append((name, error))

    def _batches(self) -> list[list[bytes]]:
        return [self.names[first : first + BATCH] for first in range(0, len(self.names), BATCH)]

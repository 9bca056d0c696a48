"""The one interface of node and client: put, get, delete, scan, lookup, describe.

Drives the operations of `chord.operations` on Trio; how a single call is made is left to the class
that has the means: `chord.client` over its own connections, `chord.node` as a member of the ring.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TypeVar

import trio

from chord.config import Limits
from chord.errors import ChordError, DeadlineExceeded
from chord.messages import Contact, Description, Mode, Route, Trace
from chord.operations import Ask, Call, Core, Operation, Outcome, Pause
from chord.values import Found, Pair, Stored, batches, to_value

PATIENCE_S = 5.0  # where the caller set no deadline
IN_FLIGHT = 64

T = TypeVar("T")


class AsyncRing:
    """A ring of nodes, as a Trio program uses it.

    The caller's cancel scopes bound every operation (`trio.fail_after`); where there is none, five seconds do, and
    `DeadlineExceeded` is raised. All operations raise, besides what they document: `PeerUnreachable` (no node could be
    reached), `PeerLost` (it may have happened), `OwnerDown` (the only copy is on a node that is down) and
    `InvalidRequest`. What may be asked again is asked again; a put keeps its operation id, so that it is done once.

    Concurrency: every coroutine checkpoints; any number of tasks may share it.
    """

    _core: Core
    _limits: Limits

    # -- records ----------------------------------------------------------------------------------

    async def get(self, key: str | bytes) -> Found:
        """Read a key.

        Raises:
            NotFound: nothing is stored there, for sure.
        """
        return await self._run(self._core.get(key))

    async def put(
        self, key: str | bytes, value: str | bytes, *, context: bytes | None = None, blind: bool = False
    ) -> Stored:
        """Write a key.

        Args:
            key: 1 to 1024 bytes; text is encoded as UTF-8.
            value: up to 1 MiB.
            context: from an earlier `get`: replace exactly what was seen then, keep what was written since beside
                it. Without one, replace whatever is there.
            blind: replace nothing; what is there stays beside the new value.

        Raises:
            VersionConflict: too many concurrent values; read, and put with the context.
        """
        return await self._run(self._core.put(key, to_value(value), context, blind))

    async def delete(self, key: str | bytes, *, context: bytes | None = None) -> Stored:
        """Delete a key; no error where nothing is there."""
        return await self._run(self._core.put(key, None, context, False))

    async def put_many(
        self,
        pairs: Iterable[tuple[str | bytes, str | bytes]],
        *,
        in_flight: int = IN_FLIGHT,
        on_progress: Callable[[int], None] = lambda done: None,
    ) -> list[tuple[str | bytes, ChordError]]:
        """Write many keys, so many at a time.

        Returns:
            The keys that could not be written and why; empty when all went well.
        """
        failures: list[tuple[str | bytes, ChordError]] = []
        done = 0
        for batch in batches(pairs, in_flight, self._limits.buffer_bytes_max):
            outcomes = await self._run(self._core.put_batch(batch))
            failures += [(key, error) for (key, _), error in zip(batch, outcomes, strict=True) if error is not None]
            done += len(batch)
            on_progress(done)
        return failures

    async def scan(self) -> AsyncIterator[Pair]:
        """Yield every key and its values, clockwise from point 0. Not a snapshot: what changes meanwhile may show."""
        cursor = await self._run(self._core.scan_start())
        while True:
            pairs, following = await self._run(self._core.scan_page(cursor))
            for pair in pairs:
                yield pair
            if following is None:
                return
            cursor = following

    # -- the ring ---------------------------------------------------------------------------------

    async def lookup(
        self,
        key: str | bytes | None = None,
        *,
        key_id: int | None = None,
        mode: Mode = "iterative",
        route: Route = "classic",
        from_: Contact | str | None = None,
    ) -> Trace:
        """Find the owner of a key, or of a point of the circle, and how one gets there.

        Args:
            key, key_id: what to look up; one of the two.
            mode: who asks the next hop: the first node (iterative), each node in turn (recursive); or go from
                successor to successor only.
            route: classic, with fingers and successor lists; or fast, as `get` and `put` do.
            from_: who performs the lookup: a node's address or a vnode; default: the entry node.

        Raises:
            LookupFailed: definite; no way was found.
        """
        return await self._run(self._core.lookup(key, key_id, mode, route, from_))

    async def describe(self, address: str | None = None) -> Description:
        """Return what a node says of itself; default: the entry node."""
        return await self._run(self._core.describe(address))

    async def members(self, *, also: Iterable[str] = (), only: Sequence[str] = ()) -> dict[str, Outcome]:
        """Ask every node that can be named to describe itself; for each address the description or the error.

        Args:
            also: addresses to visit besides the entry nodes.
            only: if given, visit exactly these and follow nothing.
        """
        return await self._run(self._core.members(also, only))

    # -- driving operations -------------------------------------------------------------------------

    async def _run(self, operation: Operation[T]) -> T:
        now = trio.current_time()
        deadline = trio.current_effective_deadline()
        if math.isinf(deadline):
            deadline = now + PATIENCE_S
        patience = deadline - now
        try:
            effect = next(operation)
            while True:
                now = trio.current_time()
                wait = effect.seconds if isinstance(effect, Pause) else 0.0
                if now + wait >= deadline:
                    effect = operation.throw(DeadlineExceeded(f"not done within {patience:g} s"))
                elif isinstance(effect, Ask):
                    limit = deadline if effect.within_s is None else min(deadline, now + effect.within_s)
                    effect = operation.send(await self._ask(effect.calls, limit))
                else:
                    await trio.sleep(wait)
                    effect = operation.send(None)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _ask(self, calls: Sequence[Call], deadline: float) -> tuple[Outcome, ...]:
        if len(calls) == 1:
            return (await self._call(calls[0], deadline),)
        outcomes: dict[int, Outcome] = {}

        async def one(i: int) -> None:
            outcomes[i] = await self._call(calls[i], deadline)

        async with trio.open_nursery() as nursery:
            for i in range(len(calls)):
                nursery.start_soon(one, i)
        return tuple(outcomes[i] for i in range(len(calls)))

    async def _call(self, call: Call, deadline: float) -> Outcome:
        """Make a call; the error it ends in is its outcome."""
        raise NotImplementedError("a subclass makes the calls")

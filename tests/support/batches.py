"""Helpers for tests of batches: a batch through a node, counts of frames, and a ring with full owner caches."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from chord import testing
from chord.node import Node
from chord.testing.network import MemoryNetwork
from chord.testing.rings import TestRing
from chord.wire.batch import unpack
from chord.wire.messages import Get, GetMany, Merge, Put, PutMany, Reply, Request
from tests.support.quorum import timing, until_in_sync

KEYS = [b"key-%d" % number for number in range(60)]


def put(node: Node, key: bytes, value: bytes | None = b"v", **fields: Any) -> Put:
    """Return a put with a new operation id."""
    fields.setdefault("op_id", node._host.rng.randbytes(16))
    return Put(key, value, **fields)


async def write_many(node: Node, *items: Put | Merge) -> list[Any]:
    """Write through a node once; return an outcome for each item."""
    batch = PutMany(items)
    return unpack(batch, await node._host.peers.call(node.address, batch, batch.reply))


async def read_many(node: Node, *keys: bytes, r: int = 0) -> list[Any]:
    """Read through a node once; return an outcome for each key."""
    batch = GetMany(tuple(Get(key, r) for key in keys))
    return unpack(batch, await node._host.peers.call(node.address, batch, batch.reply))


class Frames:
    """Numbers of frames that left the nodes, by sender, receiver and type."""

    def __init__(self) -> None:
        self.sent: Counter[tuple[str, str, str]] = Counter()
        self.begun: list[tuple[Request, str]] = []

    def most(self, *kinds: type[Request]) -> int:
        """Return the largest number of frames of these types from one node to another."""
        names = [kind.__name__ for kind in kinds]
        return max((count for (_, _, kind), count in self.sent.items() if kind in names), default=0)

    def of(self, *kinds: type[Request]) -> int:
        """Return the number of frames of these types."""
        names = [kind.__name__ for kind in kinds]
        return sum(count for (_, _, kind), count in self.sent.items() if kind in names)


@contextmanager
def counted(nodes: Sequence[Node]) -> Iterator[Frames]:
    """Count the frames that leave these nodes."""
    frames = Frames()
    undo: list[Callable[[], None]] = []
    for node in nodes:
        calls: Any = node._host.peers._calls
        call, begin = calls.call, calls.begin

        def note(to: Any, request: Request, of: str = node.address) -> None:
            address = to if isinstance(to, str) else to.address
            if not any(request is one and address == at for one, at in frames.begun):  # `begin` may `call` in a task
                frames.sent[of, address, type(request).__name__] += 1

        async def counted_call(
            to: Any, request: Request, *, deadline: float, call: Any = call, note: Any = note
        ) -> Reply:
            note(to, request)
            reply: Reply = await call(to, request, deadline=deadline)
            return reply

        def counted_begin(
            to: Any, request: Request, callback: Any, *, deadline: float, begin: Any = begin, note: Any = note
        ) -> None:
            note(to, request)
            frames.begun.append((request, to if isinstance(to, str) else to.address))
            begin(to, request, callback, deadline=deadline)

        calls.call, calls.begin = counted_call, counted_begin

        def put_back(calls: Any = calls, call: Any = call, begin: Any = begin) -> None:
            calls.call, calls.begin = call, begin

        undo.append(put_back)
    try:
        yield frames
    finally:
        for put_back in undo:
            put_back()


@asynccontextmanager
async def warm_ring(n: int, seed: int | str, **changes: Any) -> AsyncIterator[TestRing]:
    """Run a ring in sync, with every arc in its first node's owner cache."""
    network = changes.pop("network", None) or MemoryNetwork(seed)
    replicas = changes.pop("replicas", 3)
    async with testing.open_ring(n, seed=seed, timing=timing(**changes), network=network, replicas=replicas) as ring:
        await until_in_sync(ring)
        await ring[0].get_many(b"warm-%d" % number for number in range(40 * n))
        yield ring

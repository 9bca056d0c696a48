"""Helpers for tests of replicas, quorums and repair: orders of nodes, holders of keys, disks that survive a node."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

from chord import testing
from chord.config import PRESETS, NodeConfig, Timing
from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.node import Node
from chord.node.services import VnodeServices
from chord.store.merkle import digest_of
from chord.store.storage import Batch, MemoryStorage
from chord.testing.rings import TestRing
from chord.wire.messages import Get, GetReply, Put, Record, Written
from tests.support.rings import misplaced, only

LOCAL = PRESETS["local"]
WHOLE = Arc(Point(0), Point(0))
KEY = b"key"


def timing(**changes: float) -> Timing:
    """Return the local preset with changes."""
    return msgspec.structs.replace(LOCAL, **changes)


async def write(node: Node, key: bytes, value: bytes | None, **fields: Any) -> Written:
    """Write through a node once."""
    fields = {"op_id": node._host.rng.randbytes(16), "with_replicas": True, **fields}
    return await node._host.peers.call(node.address, Put(key, value, **fields), Written)


async def read(node: Node, key: bytes, r: int = 0) -> GetReply:
    """Read through a node once; the node itself retries until the deadline."""
    return await node._host.peers.call(node.address, Get(key, r, with_replicas=True), GetReply)


def clockwise(ring: TestRing, key: bytes) -> list[Node]:
    """Return the living nodes clockwise from a key (one vnode each)."""
    circle = ring[0]._host.circle
    point = circle.hash(key)
    return sorted(ring.nodes, key=lambda node: circle.distance(point, only(node).id))


def holding(ring: TestRing, key: bytes) -> list[str]:
    """Return the names of the living nodes that hold a key, clockwise from it."""
    return [node.name for node in clockwise(ring, key) if node._host.storage.get(key) is not None]


def record_at(node: Node, key: bytes) -> Record:
    """Return a node's record of a key."""
    found = node._host.storage.get(key)
    assert found is not None, f"{node.name} holds nothing of {key!r}"
    return found


async def until(is_so: Callable[[], object], within_s: float = 30.0) -> None:
    """Wait until a condition holds."""
    with trio.fail_after(within_s):
        while not is_so():
            await trio.sleep(0.05)


async def until_none_misplaced(ring: TestRing, within_s: float = 30.0) -> None:
    """Wait until exactly the replicas of each record hold it."""
    with trio.move_on_after(within_s):
        while misplaced(ring):
            await trio.sleep(0.25)
    assert misplaced(ring) == []


async def until_in_sync(ring: TestRing) -> None:
    """Wait until every owner's arc is in sync with all its replicas."""
    every = [parts for node in ring.nodes for parts in node._parts.values()]
    await until(lambda: all(parts.repair.is_complete() and are_all_in_sync(parts) for parts in every))


def are_all_in_sync(parts: VnodeServices) -> bool:
    """Return whether a vnode knows that all living replicas of its arc are in sync."""
    living = [(arc.end, parts.vnode.reachable(replica_set.members)) for arc, replica_set in parts.repair.parts()]
    return all(parts.repair.in_sync_among(contacts, end) == contacts for end, contacts in living)


def keep_disks(ring: TestRing) -> dict[str, MemoryStorage]:
    """Keep the stores of all hosts when their nodes end; return the stores by host."""
    disks: dict[str, MemoryStorage] = {}
    for node in ring.nodes:
        assert isinstance(node._host.storage, MemoryStorage)
        disks[node.name] = node._host.storage

    def make_node(host: str, config: NodeConfig, rng: random.Random) -> Node:
        world = ring._world(host, config, rng)
        assert isinstance(world.storage, MemoryStorage)
        return Node(config, world._replace(storage=disks.setdefault(host, world.storage)))

    ring._make_node = make_node  # type: ignore[method-assign]
    return disks


@asynccontextmanager
async def ring_in_sync(
    n: int, seed: int | str, *, keeps_disks: bool = False, **changes: float
) -> AsyncIterator[TestRing]:
    """Run a ring in sync, on the local preset with changes; see `keep_disks`."""
    async with testing.open_ring(n, seed=seed, timing=timing(**changes)) as ring:
        if keeps_disks:
            keep_disks(ring)
        await until_in_sync(ring)
        yield ring


async def back(ring: TestRing, name: str) -> Node:
    """Start a host's node again."""
    node = await ring.start(name=name)
    await node.ready()
    return node


def compare_nothing(*nodes: Node) -> None:
    """Switch off the anti-entropy and the read repair of these nodes."""

    async def nothing(*args: object) -> None:
        """Replace a round."""

    for node in nodes:
        for parts in node._parts.values():
            parts.repair._sync_part = nothing  # type: ignore[method-assign]
            parts.reads._repair_soon = lambda reading, replicas: None  # type: ignore[method-assign]


def stop_repair(*nodes: Node) -> None:
    """Switch off all repair and handoff of these nodes, so that missing records stay missing."""

    async def nothing(start: object) -> int:
        return 0

    compare_nothing(*nodes)
    for node in nodes:
        node._handoff.bring_home = nothing  # type: ignore[method-assign, assignment]


def key_at(ring: TestRing, name: str, number: int = 0) -> bytes:
    """Return a key with the node of this name as its owner."""
    seen = 0
    for i in range(1 << 16):
        key = b"key-%d" % i
        if clockwise(ring, key)[0].name == name:
            if seen == number:
                return key
            seen += 1
    raise AssertionError("no such key")


def durable_by_commit(storage: MemoryStorage) -> None:
    """Let changes of a store in memory be durable when its `commit`, replaced by the test, returns."""

    async def wait(callback: Callable[[ChordError | None], None]) -> None:
        try:
            await storage.commit(Batch())
        except ChordError as error:
            callback(error)
        else:
            callback(None)

    def when_durable(callback: Callable[[ChordError | None], None]) -> None:
        trio.lowlevel.spawn_system_task(wait, callback)

    storage.is_instant = False
    storage.when_durable = when_durable  # type: ignore[method-assign]


class SlowDisk(MemoryStorage):
    """A store with commits that are visible at once and durable after 50 ms."""

    def __init__(self, circle: Circle, incarnation: bytes) -> None:
        super().__init__(circle, incarnation)
        durable_by_commit(self)
        self.synced: dict[bytes, Record] = {}

    def is_durable(self, key: bytes) -> bool:
        return self.durable(key) == self.get(key)

    def durable(self, key: bytes) -> Record | None:
        return self.synced.get(key)

    def durable_digest(self, key: bytes) -> bytes:
        record = self.durable(key)
        return b"" if record is None else digest_of(record)

    def stage(self, batch: Batch) -> bool:
        self.apply(batch)
        return self.synced == self._visible()

    async def commit(self, batch: Batch) -> None:
        self.apply(batch)
        visible = self._visible()
        await trio.sleep(0.05)
        self.synced = visible

    def _visible(self) -> dict[bytes, Record]:
        return {record.key: record for record in self.scan(WHOLE)}

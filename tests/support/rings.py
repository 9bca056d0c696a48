"""Helpers for tests on virtual time."""

from __future__ import annotations

import functools
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from chord import testing
from chord.config import NodeConfig
from chord.errors import ChordError
from chord.events import Observer, ignore
from chord.ids import Arc, Point
from chord.node import Node
from chord.node.world import World, wall_now_ms
from chord.ring.vnode import Vnode
from chord.store.identity import IdentityStore
from chord.store.storage import MemoryStorage
from chord.testing.network import MemoryNetwork
from chord.testing.rings import TestRing
from chord.wire.messages import Get, GetReply, Put, Record, Written


def virtual(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run an async test on virtual time. Its name is the seed, so each run is the same."""

    @functools.wraps(test)
    def wrapper() -> None:
        testing.run(test, seed=test.__name__)

    return wrapper


def seeds(count: int) -> list[Any]:
    """Return the values of a parameter `seed`: one for every test run, one for the slow tests, the others thorough."""
    slow = pytest.mark.slow
    marks = {0: (), 1: (slow,)}
    return [pytest.param(seed, marks=marks.get(seed, (slow, pytest.mark.thorough))) for seed in range(count)]


def lone_world(config: NodeConfig, identity: IdentityStore, observe: Observer = ignore) -> World:
    """Return the world of the only node of a network, `n0`, with an empty store in memory."""
    rng = random.Random(1)
    storage = MemoryStorage(config.ring.circle, rng.randbytes(8))
    return World(MemoryNetwork(1)._connector("n0"), storage, identity, wall_now_ms, rng, observe)


async def put(node: Node, key: bytes, value: bytes | None, *, context: bytes | None = None) -> bytes:
    """Write through a node; return the context."""
    op_id = node._host.rng.randbytes(16)
    return (await node._host.peers.call(node.address, Put(key, value, op_id, context), Written)).context


async def get(node: Node, key: bytes) -> tuple[bytes, ...]:
    """Read through a node; return the live values."""
    return (await node._host.peers.call(node.address, Get(key), GetReply)).values


async def patiently(operation: Callable[[], Awaitable[Any]], within_s: float = 2.0) -> Any:
    """Retry as a client does, until its deadline."""
    with trio.fail_after(within_s):
        while True:
            try:
                return await operation()
            except ChordError as error:
                if not error.is_retryable:
                    raise
                await trio.sleep(0.02)


async def grown(ring: TestRing, count: int, **changes: Any) -> Node:
    """Start nodes one after the other, with these fields of `NodeConfig`, until the ring is Ideal; return the first."""
    first = await ring.start(join=(), **changes)
    await first.ready()
    for _ in range(count - 1):
        await (await ring.start(join=[first], **changes)).ready()
    await ring.converged()
    return first


def only(node: Node) -> Vnode:
    """Return a node's only vnode."""
    (vnode,) = node._host.vnodes.values()
    return vnode


def in_order(ring: TestRing) -> list[Node]:
    """Return the living nodes in ring order (one vnode each)."""
    return sorted(ring.nodes, key=lambda node: only(node).id)


def owner(ring: TestRing, key: bytes) -> Node:
    """Return the node with the successor of a key, computed from the ids alone."""
    vnodes = ring._vnodes()
    point = next(iter(vnodes.values())).host.circle.hash(key)
    found = next((p for p in vnodes if p >= point), next(iter(vnodes)))
    return next(node for node in ring.nodes if Point(found) in node._host.vnodes)


def keys_of(ring: TestRing, node: Node, count: int = 5) -> list[bytes]:
    """Return keys that belong to a node."""
    found: list[bytes] = []
    number = 0
    while len(found) < count:
        key = f"key-{number}".encode()
        if owner(ring, key) is node:
            found.append(key)
        number += 1
    return found


def replicas(ring: TestRing, key: bytes) -> list[str]:
    """Return the names of the first N nodes clockwise from a key."""
    host = ring[0]._host
    point = host.circle.hash(key)
    places = [(vnode, node.name) for node in ring.nodes for vnode in node._host.vnodes]
    places.sort(key=lambda place: host.circle.distance(point, place[0]))
    return list(dict.fromkeys(name for _, name in places))[: host.constants.replicas]


def misplaced(ring: TestRing) -> list[tuple[str, bytes]]:
    """Return every record that is at a wrong node, missing at a replica, or unequal at two replicas."""
    held = {node.name: {record.key: record for record in everything(node)} for node in ring.nodes}
    keys = {key: None for records in held.values() for key in records}
    found = []
    for key in keys:
        right = replicas(ring, key)
        found += [(name, key) for name, records in held.items() if (key in records) != (name in right)]
        copies = [held[name][key] for name in right if key in held[name]]
        found += [("unequal", key) for copy in copies[1:] if copy != copies[0]]
    return found


def everything(node: Node) -> list[Record]:
    """Return all records of a node."""
    top = next(iter(node._host.vnodes))
    return list(node._host.storage.scan(Arc(top, top)))

"""A lone node with a database in a directory, on the real clock and a loopback port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from chord.config import NodeConfig, RingConstants
from chord.ids import Circle
from chord.node import Node
from chord.node.world import World
from chord.store.sqlite import SqliteStorage


@asynccontextmanager
async def node_on(path: Path, disk: Callable[[], None] = lambda: None, seen: Any = None) -> AsyncIterator[Node]:
    """Run a lone node on a data directory.

    Args:
        disk: called before every write of the store.
        seen: a list for the events; None: drop them.
    """
    ring = RingConstants(bits=32)
    config = NodeConfig(listen="127.0.0.1:0", data_dir=str(path), preset="local", name="n1", ring=ring)
    storage = SqliteStorage(Circle(32), str(path), b"incarnat", disk)
    world = World.real(config, lambda emitted: None if seen is None else seen.append(emitted.event))
    node = Node(config, world._replace(storage=storage))
    async with trio.open_nursery() as nursery:
        await nursery.start(node.run)
        await node.ready()
        yield node
        await node.stop()

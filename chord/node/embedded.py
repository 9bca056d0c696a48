"""A node inside a Trio program, for the length of a block."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from chord.config import NodeConfig, Preset, RingConstants
from chord.errors import ChordError, unwrapped
from chord.events import Observer, ignore
from chord.node import Node


@asynccontextmanager
async def open_node(
    *,
    listen: str = "127.0.0.1:0",
    join: Sequence[str] = (),
    name: str | None = None,
    advertise: str | None = None,
    data_dir: str | None = None,
    vnodes: int = 1,
    preset: Preset = "lan",
    ring: RingConstants | None = None,
    observe: Observer = ignore,
) -> AsyncIterator[Node]:
    """Run a node inside a Trio program, for the length of an `async with` block.

    The block receives the `Node` once it is a member of the ring. Joining has no time limit; bound it with a cancel
    scope. At the end of the block a node with a data directory stops and keeps its data. A node without one hands its
    keys over and leaves, within the preset's `leave_s`. Exceptions raised in the block propagate once the node has
    ended.

    Args:
        listen, join, name, advertise, data_dir, vnodes: see `NodeConfig`.
        preset: local, lan or wan; selects periods and timeouts.
        ring: the ring's constants, `chord.RingConstants`. All members must have the same.
        observe: callback that gets every event, one of `chord.events`. It must not raise, and must return quickly.

    Raises:
        ConfigError: the arguments contradict each other, or the data directory belongs to another node.
        OSError: the node cannot listen on the address; the message names it.
        OtherRing, DuplicateId: the ring refuses this node.
        WritesRefused: the disk failed, or the data directory is gone; the block is cancelled.

    Concurrency: checkpoints. Cancelling the block is a crash: the node sends no goodbye and hands nothing over.
    """
    config = NodeConfig(
        listen=listen,
        join=tuple(join),
        name=name,
        advertise=advertise,
        data_dir=data_dir,
        vnodes=vnodes,
        ring=ring or RingConstants(),
        preset=preset,
    )
    node = Node(config, observe=observe)
    with unwrapped():
        async with trio.open_nursery() as nursery:
            await nursery.start(node.run)
            try:
                await node.ready()
            except ChordError:
                await trio.sleep_forever()  # `run` raises the same error
            part = node.stop if data_dir else node.leave
            try:
                yield node
            except BaseException as error:
                if isinstance(error, Exception):  # the program failed, not the node; a cancellation is a crash
                    await part()
                raise
            await part()

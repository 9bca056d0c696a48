"""A peer inside a Trio program, for the length of a block."""

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
    """Run a peer inside a Trio program for the length of the block.

    It is a member when the block begins, which waits for that as long as it takes: bound it with a cancel scope. The
    block gets the `Node`. At the block's end it stops and keeps its data where it has a data
    directory; without one it first hands its keys over and leaves, within the preset's `leave_s`. An exception that
    leaves the block goes on after that.

    Args:
        listen, join, name, advertise, data_dir, vnodes: see `NodeConfig`.
        preset: local, lan or wan; periods and timeouts.
        ring: the ring's constants, `chord.RingConstants`; all members must agree on them.
        observe: called with every event, one of `chord.events`; it must not raise, and must not take long.

    Raises:
        ConfigError: the arguments contradict each other, or the data directory is another node's.
        OSError: the address cannot be listened on; the message names it.
        OtherRing, DuplicateId: the ring does not take this node.
        WritesRefused: the disk failed, or the data directory is gone; the block is cancelled.

    Concurrency: checkpoints. Cancelling the block is a crash: nobody is told, nothing is handed over.
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
                await trio.sleep_forever()  # `run` raises the very same error, once
            part = node.stop if data_dir else node.leave
            try:
                yield node
            except BaseException as error:
                if isinstance(error, Exception):  # of the program, and no crash of the node; being cancelled is one
                    await part()
                raise
            await part()

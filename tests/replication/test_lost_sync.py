"""Members that are no longer in sync, although the owner of the arc counts them so."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio

from chord import testing
from chord.config import PRESETS, RingConstants
from chord.errors import Busy
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.sim.cluster import cluster
from chord.sim.disk import flash

TIMING = PRESETS["lan"]
KEYS = [b"absent-%d" % number for number in range(60)]
SEED = 10


async def is_denied(reader: Node, key: bytes) -> bool:
    try:
        return await reader.get(key, default=None) is None
    except Busy:
        return False


async def denied_after_s() -> float:
    """Let three of six nodes leave, a fraction of a second apart. Return the seconds until all keys can be denied."""
    async with cluster(seed=SEED, sync_delay=flash, timing=TIMING, ring=RingConstants()) as machines:
        first = await machines.start(join=())
        await first.ready()
        for _ in range(5):
            await (await machines.start(join=[first])).ready()
        await machines.converged()
        await trio.sleep(10)
        *leavers, reader, _, _ = machines.nodes
        began, rng = trio.current_time(), random.Random(SEED)
        async with trio.open_nursery() as nursery:
            for node in leavers:
                nursery.start_soon(node.leave)
                await trio.sleep(rng.uniform(0, 0.3))
        for key in KEYS:
            while not await is_denied(reader, key):
                await trio.sleep(0.2)
        return trio.current_time() - began


def test_members_that_lost_sync_are_compared_soon() -> None:
    assert testing.run(denied_after_s, seed=SEED) < 10


def test_planted_owner_that_ignores_lost_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def ignore(self: AntiEntropy, replica: Any, point: int) -> None: ...

    monkeypatch.setattr(AntiEntropy, "lost_sync", ignore)
    assert testing.run(denied_after_s, seed=SEED) > 20

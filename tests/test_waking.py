"""A process that was stopped for longer than its ring waits for it wakes up believing what it believed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import trio
from quorums import clockwise, only, read, settled_ring, write
from worlds import virtual

from chord.errors import ChordError
from chord.maintenance import Maintenance
from chord.messages import Get, Values
from chord.node import Node
from chord.testing.rings import MemoryRing
from chord.vnode_parts import Parts

KEY = b"written while it was stopped"
DOWN_OUT_S = 15.0


@contextmanager
def stopped(ring: MemoryRing, node: Node, late: float) -> Iterator[None]:
    """SIGSTOP for the length of the block: nothing in or out, and no step of its own begins.

    Afterwards each step begins within a period that `late` is a share of.
    """
    timetable = node._maintenance._timetable
    start_task, due = timetable._start_task, list[Any]()
    timetable._start_task = lambda perform, periodic, name: due.append(periodic)
    ring.network.freeze(node.name)
    yield
    ring.network.unfreeze(node.name)
    timetable._start_task = start_task
    for periodic in due:
        timetable.put(periodic, trio.current_time() + late * periodic.period_s)


async def denials_of_a_woken_owner(late: float) -> list[str]:
    """Stop the owner of a key until six others stand before it; ask it as soon as it wakes for what they hold."""
    said: list[str] = []
    async with settled_ring(8, 5, down_out_s=DOWN_OUT_S) as ring:
        owner = clockwise(ring, KEY)[0]
        vnode, circle = only(owner), owner.host.circle
        point = circle.hash(KEY)
        gap = circle.distance(point, vnode.id)
        with stopped(ring, owner, late):
            await trio.sleep(2 * DOWN_OUT_S)
            for number in range(1, 7):
                join = [node for node in ring.nodes if node is not owner][:3]
                node = await ring.start(join=join, id=int(circle.point(point + gap * number // 8)))
                await node.ready()
            await trio.sleep(DOWN_OUT_S)
            asker = next(node for node in ring.nodes if node is not owner)
            await write(asker, KEY, b"v")
            assert owner.host.storage.get(KEY) is None
            assert vnode.ownership.is_owner(point), "it still believes that"
        for _ in range(100):
            try:
                deadline = trio.current_time() + 0.2
                found = await asker.host.peers._calls.call(vnode.me, Get(KEY), deadline=deadline)
                assert isinstance(found, Values)
                said.append(found.values[0].decode() if found.values else "denied")
            except ChordError as error:
                said.append(error.word)
            await trio.sleep(0.02)
        await trio.sleep(10)
        assert (await read(owner, KEY)).values == (b"v",)
        assert only(owner).is_settled(only(owner).id), "its own arc it answers for as before"
    return said


@pytest.mark.slow
@virtual
async def test_owner_that_wakes_up_denies_nothing_that_others_hold() -> None:
    for late in (0.0, 0.5, 1.0):
        assert "denied" not in await denials_of_a_woken_owner(late), late


@pytest.mark.slow
@virtual
async def test_planted_owner_that_repairs_before_it_is_confirmed_is_caught() -> None:
    async def repair(self: Maintenance, parts: Parts) -> None:
        await parts.repair.repair()

    with mock.patch.object(Maintenance, "_repair", repair):
        assert "denied" in await denials_of_a_woken_owner(0.0)

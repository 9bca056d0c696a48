"""Power cuts in the first second of a ring, when no replica is in sync yet."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

import pytest
import trio

from chord import testing
from chord.errors import ChordError
from chord.ids import Arc
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.wire.messages import Contact
from tests.support.quorum import clockwise, ring_in_sync
from tests.support.rings import get, only, patiently, put, virtual

KEY = b"asked for by the owner"
COMPLETE_WITHIN_S = 6.0
CUTS_S = (0.02, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45)


async def found(machines: Cluster, names: list[str]) -> None:
    """Start nodes at once, as `chord up` does: the first without an address to join, the others with the first."""
    first = await machines.start(join=(), name=names[0])
    for name in names[1:]:
        await machines.start(join=[first], name=name)


async def keep_writing(node: Node, acknowledged: list[bytes]) -> None:
    """Write keys through a node, one after the other, until it ends."""
    for number in count():
        key = f"{node.name}/{number}".encode()
        try:
            await put(node, key, key)
            acknowledged.append(key)
        except ChordError:
            await trio.sleep(0.01)


async def seconds_until_complete(machines: Cluster) -> float:
    """Return how long it takes until no owner lacks acknowledged writes; infinity if it takes too long."""
    began = trio.current_time()
    with trio.move_on_after(COMPLETE_WITHIN_S):
        while not all(node._parts[only(node).id].repair.is_complete() for node in machines.nodes):
            await trio.sleep(0.1)
        return trio.current_time() - began
    return float("inf")


async def cut(seed: int, nodes: int, cut_s: float) -> float:
    """Cut the power of a new ring after `cut_s`, and start it again; return the seconds until it is complete.

    An assertion fails if an acknowledged write is lost.
    """
    names = [f"n{number}" for number in range(nodes)]
    acknowledged: list[bytes] = []
    async with cluster(seed=seed, sync_delay=flash) as machines:
        await found(machines, names)
        async with trio.open_nursery() as writers:
            for node in machines.nodes:
                writers.start_soon(keep_writing, node, acknowledged)
            await trio.sleep(cut_s)
            for node in list(machines.nodes):
                await machines.kill(node, power_loss=True)
            writers.cancel_scope.cancel()
        await found(machines, names)
        for node in machines.nodes:
            await node.ready()
        await machines.converged()
        took_s = await seconds_until_complete(machines)
        if took_s < float("inf"):
            for key in acknowledged:
                assert await patiently(lambda k=key: get(machines.nodes[0], k)) == (key,)  # type: ignore[misc]
            await put(machines.nodes[0], b"new", b"new")
    return took_s


def took_s(seed: int, nodes: int, cut_s: float) -> float:
    return testing.run(cut, seed, nodes, cut_s, seed=f"{seed}/{cut_s}")


@pytest.mark.parametrize("cut_s", CUTS_S)
def test_new_ring_after_a_power_cut_is_complete(cut_s: float) -> None:
    assert took_s(0, 5, cut_s) < COMPLETE_WITHIN_S


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(1, 5))
def test_new_rings_after_power_cuts_are_complete(seed: int, nodes: int) -> None:
    assert [cut_s for cut_s in CUTS_S if took_s(seed, nodes, cut_s) == float("inf")] == []


def test_planted_ring_that_asks_only_former_replicas_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AntiEntropy, "_are_all_up", lambda self, arc: False)
    assert any(took_s(0, 5, cut_s) == float("inf") for cut_s in CUTS_S)


@asynccontextmanager
async def ring_at_rest() -> AsyncIterator[tuple[AntiEntropy, Arc, list[Node]]]:
    """Run five nodes without periodic steps; yield the anti-entropy of the key's owner, its arc, and all nodes."""
    async with ring_in_sync(5, 9) as ring:
        owner, *others = clockwise(ring, KEY)
        arc = only(owner).ownership.arc
        assert arc is not None
        for node in ring.nodes:  # no step may repair meanwhile what the test breaks
            node._maintenance.timetable._is_paused = lambda: True
        yield owner._parts[only(owner).id].repair, arc, [owner, *others]


@virtual
async def test_owner_without_sync_accepts_no_gap_behind_it() -> None:
    """No node owns the start of the arc of a node behind. A vnode there may be down, and hold writes."""
    async with ring_at_rest() as (repair, arc, (owner, _, third, fourth, _)):
        assert await repair._pull_from_behind(arc, is_gap_allowed=False)
        only(fourth).ownership.start = owner._host.circle.point(only(third).id + 1)
        assert not await repair._pull_from_behind(arc, is_gap_allowed=False)
        assert await repair._pull_from_behind(arc)


@virtual
async def test_owner_without_sync_waits_for_nodes_that_others_miss() -> None:
    async with ring_at_rest() as (repair, arc, (owner, _, _, fourth, _)):
        missed = Contact(owner._host.circle.point(only(fourth).id + 1), "elsewhere:1")
        fourth._host.peers.passive.add(missed, trio.current_time())
        assert not await repair._pull_from_behind(arc, is_gap_allowed=False)
        assert await repair._pull_from_behind(arc)

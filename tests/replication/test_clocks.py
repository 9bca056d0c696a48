"""Clock skew: nodes refuse values with a time to live only while wall clocks differ."""

from __future__ import annotations

import pytest
import trio

from chord.config import SKEW_REFUSED_MS
from chord.errors import ClocksDiffer
from chord.node import Node
from chord.ring.context import SKEW_ROUNDS
from tests.support.quorum import KEY, key_at, ring_in_sync, write
from tests.support.rings import virtual

AHEAD_MS = 120_000


def ahead(node: Node, by_ms: int) -> None:
    """Set a node's wall clock."""
    node._host.wall_now_ms = lambda: int(1000 * trio.current_time()) + by_ms


@virtual
async def test_clock_skew_ends_when_a_node_leaves_or_is_corrected() -> None:
    async with ring_in_sync(5, seed=3) as ring:
        ahead(ring[3], AHEAD_MS)
        ahead(ring[4], -AHEAD_MS)
        await trio.sleep(3)
        for node in ring.nodes:
            if node._host.skew_ms > SKEW_REFUSED_MS:
                with pytest.raises(ClocksDiffer, match=f"the clocks of the coordinator, {node.address}, and "):
                    await write(node, key_at(ring, node.name), b"v", ttl_ms=1000)
        assert sum(node._host.skew_ms >= AHEAD_MS for node in ring.nodes) >= 2, "two nodes or more see the skew"
        ahead(ring[4], 0)
        await ring[3].leave()
        await ring.converged()
        await trio.sleep(1.5 * SKEW_ROUNDS * ring[0]._host.timing.stabilize_s)
        assert all(node._host.skew_ms < 1000 for node in ring.nodes)
        for node in ring.nodes:
            await write(node, KEY, b"v", ttl_ms=1000)

"""A lookup on a small ring of the real node, for a drawing."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio

from chord.config import PRESETS
from chord.testing import open_ring, run
from chord.wire.messages import Status, Trace

SUCCESSORS = 4
"""The number of other nodes that a successor list of the ring names."""
SEED = 1


def look_up(bits: int, points: Sequence[int], key_id: int, start: int) -> tuple[Trace, list[Status]]:
    """Run a ring in memory, and one lookup after every node has refreshed all fingers.

    Args:
        bits: the width of an id.
        points: the ids of the nodes, in ascending order.
        key_id: the point to look up.
        start: the id of the node that makes the lookup.

    Returns:
        The lookup, and the nodes in the order of their ids, with names such as N8.
    """

    async def main() -> tuple[Trace, list[Status]]:
        async with open_ring(len(points), ids=points, bits=bits, successors=SUCCESSORS) as ring:
            await trio.sleep(2 * bits * PRESETS["local"].finger_s)
            trace = await ring[points.index(start)].lookup(key_id=key_id)
            return trace, [await node.status() for node in (ring[i] for i in range(len(points)))]

    trace, nodes = run(main, seed=SEED)
    return trace, [msgspec.structs.replace(node, name=f"N{node.vnodes[0].contact.id}") for node in nodes]

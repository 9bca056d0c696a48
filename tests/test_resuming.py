"""A ring whose nodes all lost their power comes back, in whatever order the machines start."""

from __future__ import annotations

import trio
from worlds import virtual

from chord.config import PRESETS
from chord.ids import Point
from chord.messages import Contact
from chord.peers import RESUMES_MAX, Peers
from chord.testing.rings import MemoryRing, ring

LOCAL = PRESETS["local"]


async def cut_power(nodes: MemoryRing) -> list[str]:
    """Kill every node at one moment; return their names."""
    names = [node.name for node in nodes.nodes]
    for node in list(nodes.nodes):
        await nodes.kill(node)
    return names


@virtual
async def test_vnodes_of_one_node_resume_at_the_same_time() -> None:
    async with ring(4, seed=2, successors=5, replicas=4, vnodes=3) as nodes:
        for name in await cut_power(nodes):
            await nodes.start(join=(), name=name)
            await trio.sleep(0.05)
        with trio.fail_after(RESUMES_MAX * LOCAL.resume_s):  # no vnode gave up the place of another one
            for node in list(nodes.nodes):
                await node.ready()
            await nodes.converged()


@virtual
async def test_lost_place_of_one_vnode_is_not_excused_by_another() -> None:
    peers = Peers(None, LOCAL, lambda event: None, 16)  # type: ignore[arg-type]
    back, lost = Contact(Point(1), "n1:1"), Contact(Point(2), "n1:1")
    began = trio.current_time()
    while trio.current_time() - began <= RESUMES_MAX * LOCAL.resume_s:
        assert not peers.has_lost_its_place(lost)
        peers.took_its_place(back)
        await trio.sleep(LOCAL.stabilize_s)
    assert peers.has_lost_its_place(lost)

from __future__ import annotations

from unittest import mock

from chord import testing
from chord.ids import Point
from chord.net.peers import PassiveList
from chord.node import Node
from chord.wire.messages import Contact
from tests.support.rings import virtual


def isolate_one_vnode(node: Node) -> None:
    """Drop all that the first vnode of a node knows about other vnodes."""
    vnode = next(iter(node._host.vnodes.values()))
    while vnode.ring.successor != vnode.me:
        vnode.ring.forget_head(vnode.ring.successor)
    for contact in vnode.fingers.contacts():
        vnode.fingers.forget(contact)
    assert not [c for c in vnode.fingers.contacts() if c.address != node.address]


@virtual
async def test_isolated_vnode_looks_around_from_the_others_of_its_node() -> None:
    async with testing.open_ring(3, seed=1, vnodes=2) as ring:
        node, *others = ring.nodes
        isolate_one_vnode(node)
        merge = next(iter(node._parts.values())).ring_merge
        picked = {merge.pick(()) for _ in range(20)}
        assert picked <= {vnode.me for other in others for vnode in other._host.vnodes.values()}
        assert picked


@virtual
async def test_isolated_vnode_of_a_node_with_one_knows_no_contact() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        isolate_one_vnode(ring.nodes[0])
        assert next(iter(ring.nodes[0]._parts.values())).ring_merge.pick(()) is None


@virtual
async def test_down_vnodes_do_not_keep_a_vnode_from_looking_around() -> None:
    down = Contact(Point(1), "down:1")
    async with testing.open_ring(3, seed=1) as ring:
        node = ring.nodes[0]
        merge = next(iter(node._parts.values())).ring_merge
        with mock.patch.object(PassiveList, "due", return_value=down):
            picked = [merge.pick(()) for _ in range(10)]
            assert {down} in ({*picked[0::2]}, {*picked[1::2]})
            assert picked.count(down) == 5
            isolate_one_vnode(node)
            assert {merge.pick(()) for _ in range(3)} == {down}, "it knows no other contact"

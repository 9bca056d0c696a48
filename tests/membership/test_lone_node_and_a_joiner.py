"""A node alone in its ring, and another node that joins it or returns to it.

After a restart, the lone node must find the other one again. Otherwise it would found a ring of its own, and no search
for members would find the other ring.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import trio

from chord.config import PRESETS, RingConstants
from chord.errors import OwnerDown
from chord.node import Node
from chord.replication.transfer import Transfers
from chord.replication.transfer_source import TransferSender
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.testing.network import MemoryNetwork, uniform
from tests.mutants.mutant import Edit
from tests.support.rings import get, only, patiently, put, virtual

SINGLE = RingConstants(replicas=1)


async def alone(ring: Cluster) -> Node:
    """Start a node in a ring of its own."""
    node = await ring.start(join=())
    await node.ready()
    return node


async def until_giving(node: Node) -> None:
    """Wait until a node has an arc between its last deltas and the acknowledgement of its `Switch`."""
    with trio.fail_after(60):
        while only(node).ownership.giving is None:
            await trio.sleep(0.0001)


async def two_and_a_refusal(ring: Cluster) -> tuple[Node, Node]:
    """Start two nodes, and refuse writes of the `node.json` of the first one, which names the second."""
    lone = await alone(ring)
    other = await ring.start(join=(lone,))
    await ring.converged()
    await trio.sleep(3)
    ring.disk(lone.name).refuse_identity()
    return lone, other


def key_of(node: Node) -> bytes:
    """Return a key that a node owns."""
    own, circle = only(node).ownership, only(node).host.circle
    return next(key for key in (b"%d" % n for n in range(1000)) if own.is_owner(circle.hash(key)))


@virtual
async def test_lone_node_admits_no_other_until_it_is_saved() -> None:
    async with cluster(sync_delay=flash) as ring:
        lone = await alone(ring)
        ring.disk(lone.name).refuse_identity()
        joiner = await ring.start(join=(lone,))
        await trio.sleep(2)
        assert joiner.state == "joining"
        assert only(lone).ownership.start == only(lone).id
        ring.disk(lone.name).accept_identity()
        with trio.fail_after(60):
            await joiner.ready()
        ring.disk(lone.name).refuse_identity()
        await ring.kill(lone)
        lone = await ring.start(join=(), name=lone.name, listen="elsewhere:1")
        await lone.ready()
        assert only(lone).ring.successor == only(joiner).me


@virtual
async def test_third_node_joins_although_node_json_is_refused() -> None:
    """The file already names the first joiner, and the node finds the others through it."""
    async with cluster(sync_delay=flash) as ring:
        lone, _ = await two_and_a_refusal(ring)
        third = await ring.start(join=(lone,))
        with trio.fail_after(60):
            await third.ready()


@virtual
async def test_node_after_a_dead_one_joins_only_when_it_is_saved() -> None:
    """The file names only the dead node."""
    async with cluster(sync_delay=flash) as ring:
        lone, other = await two_and_a_refusal(ring)
        await ring.kill(other)
        await trio.sleep(5)
        joiner = await ring.start(join=(lone,))
        await trio.sleep(10)
        assert joiner.state == "joining"
        ring.disk(lone.name).accept_identity()
        with trio.fail_after(60):
            await joiner.ready()


@virtual
async def test_only_other_node_returns_although_node_json_is_refused() -> None:
    """The file already names this node, so it need not be written again."""
    async with cluster(sync_delay=flash) as ring:
        _, other = await two_and_a_refusal(ring)
        await ring.kill(other)
        await trio.sleep(5)  # meanwhile the lone node takes the arc over
        other = await ring.start(join=(), name=other.name)
        with trio.fail_after(60):
            await other.ready()


@virtual
async def test_lone_node_with_two_vnodes_starts_although_node_json_is_refused() -> None:
    async with cluster(sync_delay=flash) as ring:
        ring.disk("n0").refuse_identity()
        lone = await ring.start(join=(), vnodes=2)
        with trio.fail_after(60):
            await lone.ready()


@virtual
async def test_joiner_after_a_leaver_joins_only_when_the_node_is_saved() -> None:
    """The file names only the node that left."""
    async with cluster(sync_delay=flash) as ring:
        lone, other = await two_and_a_refusal(ring)
        await other.leave()
        await trio.sleep(60)  # the address of the leaver no longer counts as left
        joiner = await ring.start(join=(lone,))
        await trio.sleep(10)
        assert joiner.state == "joining"


@virtual
async def test_arc_takes_calls_while_node_json_of_a_lone_node_hangs() -> None:
    """The first attempt finds the disk hung. The joiner tries again, and no further attempt stops the arc."""
    async with cluster(sync_delay=flash) as ring:
        lone = await alone(ring)
        ring.disk(lone.name).hang_identity()
        joiner = await ring.start(join=(lone,))
        await until_giving(lone)
        await trio.sleep(lone.config.timing.lease_s / 2 + 0.01)
        for _ in range(300):
            await trio.sleep(0.1)
            assert only(lone).ownership.giving is None
        assert joiner.state == "joining"


@virtual
async def test_third_node_joins_although_node_json_hangs() -> None:
    async with cluster(sync_delay=flash, timing=PRESETS["lan"]) as ring:
        lone = await alone(ring)
        await (await ring.start(join=(lone,))).ready()
        await ring.converged()
        ring.disk(lone.name).hang_identity()
        ring.disk("n1").hang_identity()
        third = await ring.start(join=(lone,))
        with trio.fail_after(60):
            await third.ready()


@virtual
async def test_lone_node_stopped_in_a_switch_keeps_the_joiner() -> None:
    """The receiver may own the arc, so node.json must go on naming it."""
    network = MemoryNetwork(1, delay=uniform(0.02, 0.03))
    async with cluster(sync_delay=flash, ring=SINGLE, network=network) as ring:
        lone = await alone(ring)
        joiner = await ring.start(join=(lone,))
        await until_giving(lone)
        await trio.sleep(0.01)
        await lone.stop()
        await trio.sleep(3)
        key = key_of(joiner)
        await patiently(lambda: put(joiner, key, b"acknowledged"))
        kept = ring.kept(lone.name)
        assert kept is not None
        assert kept.known == (joiner.address,)
        lone = await ring.start(join=(), name=lone.name, listen="elsewhere:1")
        await lone.ready()
        assert await patiently(lambda: get(lone, key), 60.0) == (b"acknowledged",)


@virtual
async def test_lone_node_killed_before_its_switch_arrives_is_back() -> None:
    """Its file names the joiner, which owns nothing and waits for it."""
    network = MemoryNetwork(1, delay=uniform(0.02, 0.03))
    async with cluster(sync_delay=flash, network=network) as ring:
        lone = await alone(ring)
        joiner = await ring.start(join=(lone,))
        await until_giving(lone)
        await trio.sleep(0.001)
        await ring.kill(lone)
        lone = await ring.start(join=(), name=lone.name)
        with trio.fail_after(120):
            await lone.ready()
            await joiner.ready()


@virtual
async def test_receiver_lost_with_the_only_copies_is_waited_for() -> None:
    """It accepted the Switch, and may have acknowledged writes before it died."""
    network = MemoryNetwork(1, delay=uniform(0.02, 0.03))
    async with cluster(sync_delay=flash, ring=SINGLE, network=network) as ring:
        lone = await alone(ring)
        joiner = await ring.start(join=(lone,))
        with trio.fail_after(60):
            while only(joiner).ownership.start is None:
                await trio.sleep(0.0001)
        key = key_of(joiner)
        await ring.kill(joiner)
        with trio.fail_after(60):
            while only(lone).ownership.giving is not None:
                await trio.sleep(0.1)
        with pytest.raises(OwnerDown):
            await get(lone, key)
        await (await ring.start(join=(lone,), name=joiner.name)).ready()
        assert await patiently(lambda: get(lone, key), 60.0) == ()
        assert only(lone).ownership.marks == ()


@virtual
async def test_receiver_lost_before_its_switch_is_not_waited_for() -> None:
    """Nothing was sent to it, so it owns nothing, and may never be back."""
    network = MemoryNetwork(1, delay=uniform(0.02, 0.03))
    async with cluster(sync_delay=flash, ring=SINGLE, network=network) as ring:
        lone = await alone(ring)
        joiner = await ring.start(join=(lone,))
        await until_giving(lone)
        ring.disk(lone.name).hang_identity()
        await ring.kill(joiner)
        await trio.sleep(0.5)
        ring.disk(lone.name).accept_identity()
        with trio.fail_after(60):
            while only(lone).ownership.giving is not None:
                await trio.sleep(0.1)
        assert only(lone).ownership.marks == ()
        assert not lone._host.peers.passive


PLANTED = {
    "a node that cannot save admits the first joiner": (
        Edit(TransferSender._must_save, "return outbound.to.address not in named and", "return False and"),
        test_lone_node_admits_no_other_until_it_is_saved,
    ),
    "a dead node that node.json names counts as alive": (
        Edit(TransferSender._must_save, "all(peers.failure_detector.is_dead(one) for one in listed)", "not named"),
        test_node_after_a_dead_one_joins_only_when_it_is_saved,
    ),
    "a node that has left counts as alive": (
        Edit(TransferSender._must_save, "named.intersection(contact.address for contact in self._host.contacts())",
             "set(named)"),
        test_joiner_after_a_leaver_joins_only_when_the_node_is_saved,
    ),
    "the arc waits for node.json": (
        Edit(Transfers._give, "await self._sender.require_saved(outbound)", "pass"),
        test_arc_takes_calls_while_node_json_of_a_lone_node_hangs,
    ),
    "a switch waits for node.json as long as the lease": (
        Edit(TransferSender._is_saved, "lease_s / 2", "lease_s"),
        test_third_node_joins_although_node_json_hangs,
    ),
    "a stopped giver forgets the receiver": (
        Edit(Transfers._complete, 'outbound.reason == "leave" or not self._host.is_ending', "True"),
        test_lone_node_stopped_in_a_switch_keeps_the_joiner,
    ),
    "a lost receiver of the only copies is not waited for": (
        Edit(Transfers._complete, "if outbound.is_unsure and", "if False and"),
        test_receiver_lost_with_the_only_copies_is_waited_for,
    ),
    "a receiver to which nothing was sent is waited for": (
        Edit(TransferSender.switch, "outbound.is_unsure or not is_definite", "True"),
        test_receiver_lost_before_its_switch_is_not_waited_for,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bug_of_a_first_join_is_caught(name: str) -> None:
    edit, check = PLANTED[name]
    with ExitStack() as stack:
        edit.plant(stack)
        with pytest.raises((AssertionError, trio.TooSlowError, pytest.fail.Exception, BaseExceptionGroup)):
            check()

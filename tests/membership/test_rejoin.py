"""Rings with nodes that lost power or were suspended become whole again, in any order of returns."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, Limits, RingConstants
from chord.errors import DuplicateId, PeerUnreachable, TooFewReplicas
from chord.events import Emitted, RingResumed
from chord.ids import Point
from chord.membership.join import Membership
from chord.membership.rejoin import Rejoin
from chord.net.peers import RESUMES_MAX, Peers
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.sim.messages import MessageNetwork
from chord.sim.stores import DiskIdentity
from chord.store.storage import Batch
from chord.testing.rings import TestRing, open_ring
from chord.wire.messages import ConfirmReply, Contact, Ping, PingReply
from tests.support.quorum import clockwise
from tests.support.rings import only, put, virtual

LOCAL = PRESETS["local"]
TIMING = msgspec.structs.replace(LOCAL, down_out_s=4.0, reprobe_first_s=1.0, reprobe_max_s=4.0)
FOUR = RingConstants(successors=5, replicas=4)


def known(node: Node) -> set[str]:
    """Return the addresses that a node knows."""
    return {contact.address for contact in node._host.contacts()}


async def started(nodes: Cluster, count: int) -> list[Node]:
    """Start `count` nodes, one after the other, through the first ready node."""
    found = []
    for _ in range(count):
        join = [node for node in nodes.nodes if node.state == "ready" and node.name not in nodes.stopped][:1]
        found.append(await nodes.start(join=join))
        await found[-1].ready()
    return found


async def cut_power(nodes: TestRing) -> list[str]:
    """Kill every node at one moment; return their names."""
    names = [node.name for node in nodes.nodes]
    for node in list(nodes.nodes):
        await nodes.kill(node)
    return names


@virtual
async def test_vnodes_of_one_node_resume_together() -> None:
    async with open_ring(4, seed=2, successors=5, replicas=4, vnodes=3) as nodes:
        for name in await cut_power(nodes):
            await nodes.start(join=(), name=name)
            await trio.sleep(0.05)
        with trio.fail_after(RESUMES_MAX * LOCAL.resume_s):  # no vnode gave up the place of another
            for node in list(nodes.nodes):
                await node.ready()
            await nodes.converged()


@virtual
async def test_restarted_founder_does_not_own_the_arc_it_gave_away() -> None:
    """The receiver is not listed yet. Only the bounds of the founder's arc name it."""
    async with cluster(seed=3, ring=RingConstants(successors=2, replicas=1), timing=TIMING, sync_delay=flash) as nodes:
        (founder,) = await started(nodes, 1)
        await nodes.start(join=[founder])
        while only(founder).ownership.start == only(founder).id:
            await trio.sleep(0.001)
        given = only(founder).ownership.start
        await nodes.kill(founder)
        back = await nodes.start(join=(), name=founder.name)
        await back.ready()
        assert only(back).ownership.start == given
        await nodes.converged()


@virtual
async def test_resume_while_the_only_other_node_leaves_succeeds() -> None:
    async with cluster(seed=3, ring=RingConstants(successors=2, replicas=1), timing=TIMING) as nodes:
        leaver, other = await started(nodes, 2)
        await nodes.converged()
        await trio.sleep(1)  # the other node has saved the ring's identity
        await nodes.kill(other)
        leaver._host.is_leaving = True
        for vnode in leaver._host.vnodes.values():
            vnode.state = "leaving"  # it answers as a leaver, and ends before the other node has joined
        back = await nodes.start(join=(), name=other.name)
        await trio.sleep(0.01)
        await nodes.kill(leaver)
        with trio.fail_after(20):
            await back.ready()


@pytest.mark.slow
@virtual
async def test_resume_after_a_stalled_join_rejoins_by_the_members() -> None:
    """Members answer, the node's network stalls until its join ends, and then members answer again."""
    resumed: list[RingResumed] = []

    def observe(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, RingResumed):
            resumed.append(event)

    async with open_ring(6, seed=1, observe=observe) as nodes:
        gone = nodes[3]
        await nodes.kill(gone)
        await trio.sleep(5)
        looks: list[dict[str, str]] = []
        look = Rejoin._states_of

        async def stalled(self: Rejoin, *args: Any) -> dict[str, str]:
            states = await look(self, *args)
            if self._host.address == gone.address:
                looks.append(states)
                if len(looks) == 1:
                    nodes.network.freeze(gone.name)
                elif not states:
                    nodes.network.unfreeze(gone.name)
            return states

        with mock.patch.object(Rejoin, "_states_of", stalled):
            again = await nodes.start(join=(), name=gone.name)
            await again.ready()
        assert looks[0], "members answered first"
        assert {} in looks, "then no member answered"
        assert only(again).ring.predecessor is not None
        assert not nodes.violations()
        assert resumed == [], "the node joined the members instead of resuming alone"


@virtual
async def test_place_of_one_vnode_is_lost_though_another_is_back() -> None:
    peers = Peers(None, LOCAL, lambda event: None, Limits())  # type: ignore[arg-type]
    back, lost = Contact(Point(1), "n1:1"), Contact(Point(2), "n1:1")
    began = trio.current_time()
    while trio.current_time() - began <= RESUMES_MAX * LOCAL.resume_s:
        assert not peers.has_lost_its_place(lost)
        peers.took_its_place(back, trio.current_time(), is_owner=True)
        await trio.sleep(LOCAL.stabilize_s)
    assert peers.has_lost_its_place(lost)


@virtual
async def test_goodbye_from_before_a_return_is_ignored() -> None:
    peers, back = Peers(None, LOCAL, lambda event: None, Limits()), Contact(Point(1), "n1:1")  # type: ignore[arg-type]
    peers.has_left(back.address, [back.id])
    said = trio.current_time()
    peers.learn_left(back.id, said)
    assert peers.is_known_to_have_left(back)
    await trio.sleep(1)
    peers.took_its_place(back, trio.current_time(), is_owner=True)
    peers.passive.add(back, trio.current_time())
    peers.learn_left(back.id, said)
    assert not peers.is_known_to_have_left(back)
    assert back.id in peers.passive
    await trio.sleep(1)
    peers.has_left(back.address, [back.id])
    assert peers.is_known_to_have_left(back)


@pytest.mark.parametrize("end", ["leaves", "dies"])
def test_joiners_merge_with_stopped_members_they_never_met(end: str) -> None:
    """The only node that knows both halves passes its knowledge on with its arc."""

    async def main() -> None:
        async with cluster(network=MessageNetwork(1), timing=TIMING, sync_delay=lambda rng: 0.001) as nodes:
            await started(nodes, 3)
            last, *suspended = nodes.nodes
            for node in suspended:
                nodes.stop(node)
            await trio.sleep(2 * TIMING.down_out_s)
            awake = await started(nodes, 2)
            await (last.leave() if end == "leaves" else nodes.kill(last))
            await trio.sleep(TIMING.down_out_s)
            assert all(node.address not in known(other) for node in awake for other in suspended)
            for node in suspended:
                nodes.wake(node.name)
            await nodes.converged(within_s=30)

    testing.run(main)


@virtual
async def test_calls_of_an_ended_node_count_no_miss_against_its_peers() -> None:
    async with open_ring(2, seed=1) as nodes:
        ended, other = nodes[0], nodes[1].address
        await nodes.kill(ended)
        for _ in range(3):
            with pytest.raises(PeerUnreachable, match="not running"):
                await ended._host.peers.call(other, Ping(), PingReply)
        assert ended._host.peers.failure_detector.state(other) == "alive"


@virtual
async def test_moved_nodes_find_each_other_at_a_former_address() -> None:
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as nodes:
        await started(nodes, 2)
        first, second = await cut_power(nodes)
        await nodes.start(join=(), name=first, listen=f"{second}:1")
        await nodes.start(join=(), name=second, listen="elsewhere:1")
        await nodes.converged()


@pytest.mark.parametrize("vnodes", [1, 3])
def test_moved_lone_node_is_not_isolated(vnodes: int) -> None:
    async def main() -> None:
        async with cluster(network=MessageNetwork(1), vnodes=vnodes, sync_delay=lambda rng: 0.001) as nodes:
            await started(nodes, 1)
            (name,) = await cut_power(nodes)
            node = await nodes.start(join=(), name=name, listen="elsewhere:1")
            await node.ready()
            await nodes.converged()
            assert not any(vnode.ring.is_isolated for vnode in node._host.vnodes.values())

    testing.run(main)


@virtual
async def test_nodes_keep_probing_a_down_node_until_it_returns() -> None:
    async with cluster(network=MessageNetwork(1), timing=TIMING, sync_delay=lambda rng: 0.001) as nodes:
        await started(nodes, 4)
        down, *others = nodes.nodes
        nodes.stop(down)
        await trio.sleep(2 * TIMING.down_out_s)
        for node in others:
            assert [contact.address for contact in node._host.peers.passive.contacts()] == [down.address]
        nodes.wake(down.name)
        await nodes.converged()
        await trio.sleep(TIMING.reprobe_max_s)
        assert not any(node._host.peers.passive.contacts() for node in nodes.nodes)


async def back_with_old_pointers(nodes: Cluster, other: Node, end: str) -> Node:
    """`other` leaves or dies for long. Restart its predecessor at once, with the node.json from before that."""
    back = next(node for node in nodes.nodes if only(node).ring.successor == only(other).me)
    kept = nodes.kept(back.name)
    assert kept is not None
    assert only(other).me in kept.vnodes[0].successors
    await (other.leave() if end == "leaves" else nodes.kill(other))
    await trio.sleep(2 * TIMING.down_out_s)
    if end == "joins":
        other = await nodes.start(join=(), name=other.name)
        while only(other).state != "joining":
            await trio.sleep(0.001)
    await nodes.kill(back)
    store = DiskIdentity(nodes.disk(back.name))
    await store.save(kept)
    store.close()
    again = await nodes.start(join=[other] if end == "joins" else (), name=back.name)  # it waits for that node's answer
    await again.ready()
    return again


@pytest.mark.parametrize("end", ["dies", "joins"])
def test_resumed_node_counts_a_missing_node_of_its_old_list(end: str) -> None:
    """Its node.json is older than the other node's death, and the place of that node has expired."""

    async def wait(self: Membership, owner: Contact) -> None:
        await trio.sleep_forever()

    async def main() -> None:
        async with cluster(seed=1, timing=TIMING, sync_delay=flash, ring=FOUR) as nodes:
            await started(nodes, 3)
            await trio.sleep(TIMING.down_out_s)
            with mock.patch.object(Membership, "_receive_arc", wait):
                back = await back_with_old_pointers(nodes, nodes[1], end)
                keys = (b"key-%d" % number for number in range(100))
                owned = next(key for key in keys if back._host.owner_of(back._host.circle.hash(key)))
                with pytest.raises(TooFewReplicas, match="a write needs 3 nodes, and 2 are available"):
                    await put(back, owned, b"value")

    testing.run(main)


@virtual
async def test_resumed_node_gives_up_a_leaver_of_its_old_list() -> None:
    async with cluster(seed=1, timing=TIMING, sync_delay=flash, ring=FOUR) as nodes:
        await started(nodes, 3)
        await trio.sleep(TIMING.down_out_s)
        back = await back_with_old_pointers(nodes, nodes[1], "leaves")
        await trio.sleep(TIMING.reprobe_max_s)
        assert not back._host.peers.passive.remembered()
        await put(back, b"key", b"value")


@pytest.mark.slow
@virtual
async def test_leaver_keeps_its_records_if_too_few_others_have_them() -> None:
    """Two of three nodes are up. If one could leave, a write on two disks would be on one."""
    async with cluster(network=MessageNetwork(1), timing=TIMING, sync_delay=lambda rng: 0.001) as nodes:
        await started(nodes, 3)
        down, leaver, _ = nodes.nodes
        await put(leaver, b"key", b"value")
        nodes.stop(down)
        await trio.sleep(2 * TIMING.down_out_s)
        await leaver.leave()
        assert leaver.state == "stopped"
        assert leaver._host.storage.get(b"key") is not None


@virtual
async def test_holder_keeps_a_copy_if_the_owner_knows_too_few_nodes() -> None:
    """A woken owner counts itself as the only replica. The holder of the record knows of more nodes."""
    async with open_ring(6, seed=1, replicas=3) as nodes:
        await put(nodes[0], b"key", b"value")
        owner, *_, far = clockwise(nodes, b"key")
        record = owner._host.storage.get(b"key")
        assert record is not None
        far._host.storage.apply(Batch(puts=(record,)))
        me = only(owner).me
        alone = ConfirmReply(me, only(far).id, 1, (me,), (), (me,))

        async def ask(*_: object) -> ConfirmReply:
            return alone

        with mock.patch.object(far._handoff, "_ask_owner", ask):
            await far._handoff.bring_home(far.contact)
        assert far._host.storage.get(b"key") is not None
        await far._handoff.bring_home(far.contact)
        assert far._host.storage.get(b"key") is None, "all three replicas have it"


@virtual
async def test_resumed_node_knows_the_nodes_that_are_still_down() -> None:
    """Two of five nodes are still down. The others must not acknowledge writes as in a ring of three."""
    constants = RingConstants(successors=4, replicas=5)
    async with cluster(network=MessageNetwork(1), ring=constants, timing=TIMING, sync_delay=lambda rng: 0.001) as nodes:
        await started(nodes, 5)
        await nodes.converged()
        await trio.sleep(4 * TIMING.stabilize_s)  # node.json is saved
        names = await cut_power(nodes)
        for name in names[:3]:
            await nodes.start(join=(), name=name)
            await trio.sleep(0.2)
        for node in list(nodes.nodes):
            await node.ready()
            vnode = only(node)
            assert vnode.write_quorum(vnode.replica_set(vnode.id)) == constants.quorum


@virtual
async def test_refused_vnode_whose_attempt_ends_raises_no_group() -> None:
    async with open_ring(2, seed=1) as nodes:
        rejoin = next(iter(nodes[0]._parts.values())).rejoin
        with trio.CancelScope() as scope:

            async def join(others: object) -> None:
                scope.cancel()  # another vnode was refused at the same time
                raise DuplicateId("the id is taken")

            with mock.patch.object(rejoin._membership, "join", join):
                await rejoin._has_joined([], [nodes[1].contact])
        assert scope.cancelled_caught

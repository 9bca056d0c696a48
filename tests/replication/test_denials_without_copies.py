"""Denials if few copies are left: one on a lost disk or a dead node, or writes that the owner missed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, RingConstants
from chord.errors import ChordError, LookupFailed, NotFound, OwnerDown
from chord.membership.join import Membership
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.handoff import Handoff
from chord.ring.ownership import Ownership
from chord.ring.vnode import Vnode
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.store.storage import Batch, MemoryStorage
from chord.testing.rings import TestRing
from chord.wire.messages import Contact
from tests.replication.test_denials import never_denied
from tests.support.quorum import clockwise, holding, keep_disks, key_at, timing, until, until_in_sync, write
from tests.support.rings import grown, in_order, keys_of, only, virtual

VALUE = b"acknowledged"

Scene = Callable[[TestRing, dict[str, MemoryStorage], bytes], Awaitable[None]]


async def start(ring: TestRing, *names: str) -> None:
    """Start nodes again, and wait until all are members."""
    for name in names:
        await ring.start(name=name)
    for node in list(ring.nodes):
        await node.ready()


async def missed(ring: TestRing, key: bytes, owner: Node) -> None:
    """Kill the owner and store a write on the two nodes behind it."""
    await ring.kill(owner)
    await trio.sleep(3)
    with trio.fail_after(8):
        await write(clockwise(ring, key)[0], key, VALUE, w=2, strict=True)


async def hint_and_lost_owner(ring: TestRing, disks: dict[str, MemoryStorage], key: bytes) -> None:
    """Only the owner's copy and a hint of a write exist. The owner's disk is lost, and the stand-in is killed."""
    owner, second, third, *_ = clockwise(ring, key)
    await ring.kill(second)
    await ring.kill(third)
    await trio.sleep(3)
    with trio.fail_after(8):
        await write(owner, key, VALUE)
    keeper, *others = [node for node in ring.nodes if node.name in holding(ring, key) and node is not owner]
    for node in others:
        node._host.storage.apply(Batch(removals=(key,)))
    await ring.kill(keeper)
    await ring.kill(owner)
    del disks[owner.name]
    await start(ring, owner.name, second.name, third.name)


async def replica_and_lost_replica(ring: TestRing, disks: dict[str, MemoryStorage], key: bytes) -> None:
    """Two replicas have a write that the owner missed. One loses its disk, the other is killed."""
    owner, second, *_ = clockwise(ring, key)
    await missed(ring, key, owner)
    for node in [node for node in ring.nodes if node.name in holding(ring, key)]:
        await ring.kill(node)
    del disks[second.name]
    await start(ring, owner.name, second.name)


async def damaged_record(ring: TestRing, disks: dict[str, MemoryStorage], key: bytes) -> None:
    """Two replicas have a write. One is killed, the other finds its record damaged."""
    owner, second, third, *_ = clockwise(ring, key)
    await ring.kill(third)
    await trio.sleep(3)
    with trio.fail_after(8):
        await write(owner, key, VALUE, w=2, strict=True)
    for node in [node for node in ring.nodes if node not in (owner, second)]:
        node._host.storage.apply(Batch(removals=(key,)))
    await ring.kill(owner)
    await ring.kill(second)
    disks[second.name].apply(Batch(removals=(key,)))
    disks[second.name].damaged_keys[key] = None
    await start(ring, second.name, third.name)


async def joiners_in_front(ring: TestRing, disks: dict[str, MemoryStorage], key: bytes) -> None:
    """Two replicas have a write that the owner missed and are killed. Nodes join between the key and the owner."""
    owner = clockwise(ring, key)[0]
    await missed(ring, key, owner)
    for node in [node for node in ring.nodes if node.name in holding(ring, key)]:
        await ring.kill(node)
    await start(ring, owner.name)
    back = clockwise(ring, key)[0]
    circle, low = back._host.circle, back._host.circle.hash(key)
    gap = circle.distance(low, only(back).id)
    for number in range(1, 4):
        await ring.start(id=circle.point(low + gap * number // 4), join=[back])
    await start(ring)


def denied(scene: Scene, seed: int) -> bool:
    """Return whether a node denies the acknowledged key after a scene."""

    async def main() -> None:
        async with testing.open_ring(10, seed=seed) as ring:
            disks = keep_disks(ring)
            await until_in_sync(ring)
            await trio.sleep(3)
            key = key_at(ring, "n3")
            await scene(ring, disks, key)
            await never_denied(ring, key, VALUE, for_s=6)

    try:
        testing.run(main, seed=seed)
    except AssertionError as error:
        if "GetReply(values=()" not in str(error):
            raise
        return True
    return False


SCENES = [hint_and_lost_owner, replica_and_lost_replica, damaged_record, joiners_in_front]


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_acknowledged_write_is_not_denied(scene: Scene) -> None:
    assert not denied(scene, 1)


@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_planted_denials_are_caught(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bugs: any comparison lets a vnode vouch; no arc is in doubt; a damaged record counts as absent."""
    monkeypatch.setattr(Vnode, "may_hold", lambda self, key, replicas: replicas.everyone)  # the second check
    monkeypatch.setattr(AntiEntropy, "_may_vouch", lambda self, arc, others: True)
    monkeypatch.setattr(Ownership, "doubt", lambda self, arc: None)
    monkeypatch.setattr(MemoryStorage, "is_damaged", lambda self, key: False)
    assert denied(scene, 1)


@pytest.mark.slow
@virtual
async def test_scan_fails_if_unreachable_nodes_may_hold_more() -> None:
    """With one of three replicas down a scan is complete. Two may hold a write that no other node has."""
    async with testing.open_ring(6, seed=4) as ring:
        await until_in_sync(ring)
        stored = {b"key-%d" % number for number in range(20)}
        for key in sorted(stored):
            await write(ring[0], key, VALUE, w=3)
        first, second, *_, asked = clockwise(ring, b"key-0")
        for node, is_whole in ((first, True), (second, False)):
            await ring.kill(node)
            await trio.sleep(5)
            found: set[bytes] = set()
            with suppress(OwnerDown):
                async for pair in asked.scan():
                    found.add(pair.key)
                assert is_whole
                continue
            assert not is_whole
            assert found == stored


@pytest.mark.slow
@virtual
async def test_key_of_a_dead_lone_replica_is_denied_once_forgotten() -> None:
    timing = msgspec.structs.replace(PRESETS["local"], down_out_s=5.0)
    async with testing.open_ring(5, seed=1, replicas=1, timing=timing) as ring:
        await trio.sleep(2)  # all nodes know their predecessor lists
        gone, *others = ring.nodes
        key = key_at(ring, gone.name)
        await others[0].put(key, b"v")
        await ring.kill(gone)
        await ring.converged()
        for wait_s in (0, 4 * timing.down_out_s):
            await trio.sleep(wait_s)
            with pytest.raises(OwnerDown):
                await others[0].get(key)
            with pytest.raises(OwnerDown):
                _ = [pair async for pair in others[0].scan()]
        await others[0].remove_node(gone.address)
        with pytest.raises(NotFound):
            await others[0].get(key)
        assert [pair async for pair in others[0].scan()] == []


async def forgotten_and_back(machines: Cluster, *forgotten: Node) -> None:
    """Kill adjacent nodes, forget each, and bring them all back."""
    for node in forgotten:
        await machines.kill(node)
    await machines.converged()
    other = machines.nodes[0]
    for node in forgotten:
        await other.remove_node(node.address)
    for node in forgotten:
        await machines.start(join=(), name=node.name)
        await machines.converged()
    await trio.sleep(3)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_key_of_a_forgotten_replica_that_returned_is_refused(count: int) -> None:
    """The lone replica returns, takes a write, and dies again, perhaps with the node behind it."""

    async def main() -> None:
        ring = RingConstants(replicas=1)
        async with cluster(seed=1, sync_delay=flash, ring=ring, timing=PRESETS["local"]) as machines:
            await grown(machines, 6)
            await trio.sleep(2)  # all nodes know their predecessor lists
            await forgotten_and_back(machines, *in_order(machines)[:count])
            *gone, third = in_order(machines)[: count + 1]
            key = key_at(machines, gone[0].name)
            await third.put(key, VALUE)
            for node in gone:
                await machines.kill(node)
            await machines.converged()
            for node in gone[1:]:
                await third.remove_node(node.address)
            with pytest.raises(OwnerDown) as caught:
                await third.get(key)
            assert caught.value.peer is not None
            assert caught.value.peer.address == gone[0].address

    testing.run(main, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "count"), [(1, 1), (2, 1), (3, 1), (1, 2), (2, 2)])
def test_key_of_a_dead_node_that_took_over_is_refused(seed: int, count: int) -> None:
    """Nodes are cut off, the next one takes writes of their arcs and dies, and the network heals."""

    async def main() -> None:
        ring = RingConstants(replicas=1)
        async with cluster(seed=seed, sync_delay=flash, ring=ring, timing=PRESETS["local"]) as machines:
            await grown(machines, 6)
            await trio.sleep(2)  # all nodes know their predecessor lists
            nodes = in_order(machines)
            cut_off, taker, *others = nodes[0], *nodes[count:]
            key, absent = keys_of(machines, cut_off, 2)
            machines.network.partition([node.name for node in nodes[:count]], reset=True)
            await until(lambda: only(taker).ownership.is_owner(only(cut_off).id))
            await taker.put(key, VALUE)
            await machines.kill(taker)
            await until(lambda: only(others[0]).ownership.is_owner(only(cut_off).id))
            await trio.sleep(2)
            machines.network.heal()
            await machines.converged(30)
            await trio.sleep(3)
            for node in (cut_off, others[-1]):
                for one in (key, absent):
                    with pytest.raises(OwnerDown) as caught:
                        await node.get(one)
                    assert caught.value.peer is not None
                    assert caught.value.peer.address == taker.address
            await machines.start(join=(), name=taker.name)
            await machines.converged()
            await until(lambda: not only(cut_off).ownership.marks)
            assert (await cut_off.get(key)).value == VALUE
            with pytest.raises(NotFound):
                await cut_off.get(absent)

    testing.run(main, seed=seed)


@pytest.mark.slow
@virtual
async def test_marks_of_a_node_that_often_crashes_are_bounded() -> None:
    """The marks of its heir come back with each return, besides its own.

    A returned node may also mark its whole arc for each of the four other nodes, until it has heard from that node.
    """
    async with cluster(seed=1, sync_delay=flash, ring=RingConstants(replicas=1), timing=PRESETS["local"]) as machines:
        await grown(machines, 6)
        await trio.sleep(2)  # all nodes know their predecessor lists
        gone, crashing = in_order(machines)[:2]
        await machines.kill(gone)
        await machines.converged()
        for _ in range(10):
            await machines.kill(crashing)
            await machines.converged()
            crashing = await machines.start(join=(), name=crashing.name)
            await machines.converged()
            await trio.sleep(2)
        marks = only(crashing).ownership.marks
        assert gone.address in {mark.dead.address for mark in marks}
        assert len({(mark.arc, mark.dead.id) for mark in marks}) == len(marks) <= 2 + 4


@virtual
async def test_scan_continues_behind_a_paused_owner_of_only_copies() -> None:
    async with testing.open_ring(5, seed=1, replicas=1) as ring:
        keep_disks(ring)
        await trio.sleep(2)
        paused, *others = in_order(ring)  # the scan begins in the arc of the first
        circle, keys = paused._host.circle, [b"key-%d" % number for number in range(20)]
        for key in keys:
            await others[0].put(key, b"v")
        there = {key for key in keys if paused._host.storage.get(key) is not None}
        await paused.stop()
        await trio.sleep(0.05)
        for node in others:  # an answer that was under way has made the node alive again
            node._host.peers.has_paused(paused.address, is_only_copy=True)
        found = []

        async def scan() -> None:
            async for pair in others[0].scan():
                found.append(pair.key)

        with pytest.raises(OwnerDown, match=paused.address):
            await scan()
        assert found == sorted(set(keys) - there, key=circle.hash)
        assert there


@pytest.mark.slow
@virtual
async def test_returned_owner_of_only_copies_is_asked_before_a_denial() -> None:
    """A node joined between a dead owner and its record. The owner is back, and has not brought the record home."""

    async def nothing(self: Handoff, start: Contact) -> int:
        return 0

    timing = msgspec.structs.replace(PRESETS["local"], down_out_s=5.0)
    async with testing.open_ring(5, seed=1, replicas=1, timing=timing) as ring:
        keep_disks(ring)
        await trio.sleep(2)
        gone, asked, *_ = ring.nodes
        key, circle = key_at(ring, gone.name), gone._host.circle
        await asked.put(key, b"v")
        low = circle.hash(key)
        await ring.kill(gone)
        await ring.converged()
        joined = await ring.start(id=circle.point(low + circle.distance(low, only(gone).id) // 2), join=[asked])
        await ring.converged()
        await trio.sleep(2 * timing.down_out_s)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Handoff, "bring_home", nothing)
            await ring.start(name=gone.name)
            with trio.fail_after(20):
                while True:
                    with suppress(OwnerDown):
                        assert (await asked.get(key)).values == (b"v",)
                        break
                    await trio.sleep(0.05)
        assert joined._host.storage.get(key) is not None
        assert only(joined).ownership.marks == ()


@pytest.mark.slow
@virtual
async def test_only_copy_at_a_dead_heir_is_not_denied() -> None:
    """The owner dies first. Its heir takes a write and dies with the ring. All nodes but the heir return."""
    async with testing.open_ring(4, seed=2, replicas=1, timing=timing(down_out_s=5.0, reprobe_max_s=2.0)) as ring:
        keep_disks(ring)
        key = key_at(ring, "n2")
        owner, heir, *others = clockwise(ring, key)
        await ring.kill(owner)
        with trio.fail_after(20):
            while heir._host.storage.get(key) is None:
                with suppress(ChordError):
                    await write(heir, key, VALUE, context=b"")
                await trio.sleep(0.2)
        for node in (heir, *others):
            await ring.kill(node)
        await start(ring, owner.name, *(node.name for node in others))
        assert await never_denied(ring, key, VALUE, for_s=10) == 0
        await start(ring, heir.name)
        assert await never_denied(ring, key, VALUE, for_s=20) > 0


async def bring_nothing_home(self: Handoff, start: Contact) -> int:
    return 0


@pytest.mark.parametrize("count", [1, 2])
def test_owner_back_from_a_split_fetches_the_only_copies_first(count: int) -> None:
    """Owners are cut off until the next node has taken their arcs over, written there, and yielded the arcs again.

    The yielding node does not send its records home, so the owner of the key must ask for them.
    """

    @virtual
    async def check() -> None:
        async with testing.open_ring(6, seed=2, replicas=1, timing=timing(down_out_s=600.0)) as ring:
            await trio.sleep(2)
            key = key_at(ring, "n2")
            point, row = ring[0]._host.circle.hash(key), clockwise(ring, key)
            cut_off, heir = row[:count], row[count]
            ring.network.partition([node.name for node in cut_off], reset=True)
            await until(lambda: only(heir).ownership.is_owner(point))
            await write(heir, key, VALUE, context=b"")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Handoff, "bring_home", bring_nothing_home)
                ring.network.heal()
                await until(lambda: not only(heir).ownership.is_owner(point))
                assert await never_denied(ring, key, VALUE, for_s=5) > 0
            assert only(cut_off[0]).ownership.marks == ()

    check()


@pytest.mark.slow
@virtual
async def test_only_copies_that_moved_to_a_joiner_are_not_denied() -> None:
    """An owner is cut off with its joiner, and gives it an arc. In the other part a node joins between the two.

    That node does not know the joiner. It learns from the returned owner that the arc has moved.
    """
    async with testing.open_ring(6, seed=2, replicas=1, timing=timing(down_out_s=600.0)) as ring:
        await trio.sleep(2)
        key = key_at(ring, "n2")
        owner, heir = clockwise(ring, key)[:2]
        await write(owner, key, VALUE, context=b"")
        circle, low = owner._host.circle, owner._host.circle.hash(key)
        length = circle.distance(low, only(owner).id)
        place, take_pointers = circle.point(low + length // 3), Membership._take_pointers

        async def wait_in_vain(self: Membership, via: Contact | str, patience_s: float) -> None:
            if self._vnode.id == place:
                raise LookupFailed("no predecessor to join behind")
            await take_pointers(self, via, patience_s)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Membership, "_take_pointers", wait_in_vain)
            joiner = await ring.start(id=place, join=[owner])
            await until(lambda: only(joiner).ownership.is_owner(low))
            ring.network.partition([owner.name, joiner.name], reset=True)
            await until(lambda: holding(ring, key) == [joiner.name])
            await until(lambda: only(heir).ownership.is_owner(low))
            between = await ring.start(id=circle.point(low + 2 * length // 3), join=[heir])
            await until(lambda: only(between).ownership.is_owner(low))
            await between.ready()
            ring.network.heal()
            await never_denied(ring, key, VALUE, for_s=10)
            assert [mark.dead.address for mark in only(between).ownership.marks] == [joiner.address]
        await joiner.ready()
        await until(lambda: not only(joiner).ownership.marks and only(joiner).ownership.is_owner(low))
        assert await never_denied(ring, key, VALUE, for_s=5) > 0

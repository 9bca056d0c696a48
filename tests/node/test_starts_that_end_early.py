"""A restarted node that ends before it is a member keeps its state, and creates no ring."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
import trio

from chord.config import RingConstants
from chord.errors import ChordError, ConfigError, NotFound
from chord.node import Node, persisted
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.sim.stores import DiskIdentity
from chord.store.identity import Kept, KeptVnode
from tests.support.rings import get, patiently, put, virtual

pytestmark = pytest.mark.slow

KEYS = [b"key-%d" % number for number in range(40)]
DAY_S = 86_400.0


async def found(machines: Cluster, n: int = 4) -> None:
    """Start n nodes, with records, that are at rest."""
    first = await machines.start(join=())
    await first.ready()
    for _ in range(n - 1):
        await (await machines.start(join=[first])).ready()
    await machines.converged()
    for key in KEYS:
        await put(first, key, key)
    await trio.sleep(5)


async def keep(machines: Cluster, host: str, kept: Kept) -> None:
    """Replace the identity file of a machine that is off."""
    store = DiskIdentity(machines.disk(host))
    await store.save(kept)
    store.close()


def stored(machines: Cluster, host: str) -> Kept:
    kept = machines.kept(host)
    assert kept is not None
    return kept


async def every_key(node: Node) -> None:
    """No key may be denied, not even for a moment."""
    for key in KEYS:

        async def read(key: bytes = key) -> Any:
            try:
                return await get(node, key)
            except NotFound:
                return ()

        assert await patiently(read) == (key,)


async def after(machines: Cluster, end: Callable[[Node], Awaitable[object]], **changes: Any) -> None:
    """Stop n1, let one start of it fail, and start it normally. Check its persisted state after each step."""
    before = next(node for node in machines.nodes if node.name == "n1")
    ring_id = before.ring_id
    await before.stop()
    # With the constants of the start that fails: the ring, not the directory, must refuse them.
    whole = stored(machines, "n1")
    kept = msgspec.structs.replace(whole, replicas=changes["ring"].replicas if changes else whole.replicas)
    await keep(machines, "n1", kept)
    assert len(kept.known) == 3
    node = await machines.start(join=(), name="n1", **changes)
    await end(node)
    await node.closed.wait()
    assert stored(machines, "n1") == kept
    await keep(machines, "n1", whole)
    node = await machines.start(join=(), name="n1")
    await node.ready()
    assert node.ring_id == ring_id
    await every_key(node)
    await machines.converged()
    assert len(node._parts[node.contact.id].vnode.ring.successors) == 3


async def stops_at_once() -> None:
    for delay_s in (0.0, 0.0005, 0.002):

        async def end(node: Node, delay_s: float = delay_s) -> None:
            await trio.sleep(delay_s)
            assert node.state in ("starting", "resuming")
            await node.stop()

        async with cluster(seed=1, sync_delay=flash) as machines:
            await found(machines)
            await after(machines, end)


async def is_refused() -> None:
    async def end(node: Node) -> None:
        with pytest.raises(ChordError, match="replicas"):
            await node.ready()

    async with cluster(seed=2, sync_delay=flash) as machines:
        await found(machines)
        await after(machines, end, ring=RingConstants(replicas=2))


async def leaves_before_it_is_back() -> None:
    async def end(node: Node) -> None:
        await node.leave()
        assert node.state == "stopped"

    async with cluster(seed=3, sync_delay=flash) as machines:
        await found(machines)
        await after(machines, end)


async def stops_without_an_answer() -> None:
    async with cluster(seed=4, sync_delay=flash) as machines:
        await found(machines)
        names = [node.name for node in machines.nodes]
        for node in list(machines.nodes):
            await machines.kill(node)
        kept = stored(machines, "n1")
        node = await machines.start(join=(), name="n1")
        await trio.sleep(node._host.timing.resume_s / 2)
        assert node.state == "resuming"
        await node.stop()
        assert stored(machines, "n1") == kept
        ring_ids = set()
        for name in names:
            ring_ids.add((await machines.start(join=(), name=name)).ring_id)
        await machines.converged()
        assert len(ring_ids) == 1
        await every_key(machines[1])


SCENES = [stops_at_once, is_refused, leaves_before_it_is_back, stops_without_an_answer]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_persisted_state_outlives_a_start_that_ends_early(scene: Callable[[], Awaitable[None]]) -> None:
    virtual(scene)()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_planted_bug_node_forgets_its_persisted_state(
    scene: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persisted, "_still_kept", lambda last, now, vnodes: now)
    with pytest.raises(AssertionError):
        virtual(scene)()


def pointers(vnode: KeptVnode) -> tuple[object, ...]:
    return vnode.id, vnode.predecessor, vnode.successors


@virtual
async def test_vnodes_that_are_not_back_keep_their_ids() -> None:
    async with cluster(seed=5, sync_delay=flash) as machines:
        first = await machines.start(join=(), vnodes=3)
        await first.ready()
        for _ in range(3):
            await (await machines.start(join=[first], vnodes=3)).ready()
        await machines.converged()
        for key in KEYS:
            await put(first, key, key)
        await trio.sleep(5)
        await machines[1].stop()
        kept = stored(machines, "n1")
        node = await machines.start(join=(), name="n1", vnodes=3)
        vnodes = list(node._host.vnodes.values())
        while not any(vnode.ring.is_member for vnode in vnodes):
            await trio.sleep(0.0001)
        await node._saver.save()
        now = stored(machines, "n1")
        away = [not vnode.ring.is_member for vnode in vnodes]
        assert any(away)
        for is_away, was, is_now in zip(away, kept.vnodes, now.vnodes, strict=True):
            assert is_now.owned_from is not None
            assert not is_away or pointers(is_now) == pointers(was)
        assert set(kept.known) <= set(now.known)
        await node.stop()
        for vnode, was, is_now in zip(vnodes, kept.vnodes, stored(machines, "n1").vnodes, strict=True):
            assert vnode.ring.is_member or pointers(is_now) == pointers(was)
        node = await machines.start(join=(), name="n1", vnodes=3)
        await node.ready()
        await every_key(node)
        await machines.converged()


@virtual
async def test_start_that_ends_early_after_days_keeps_the_store() -> None:
    async with cluster(seed=6, sync_delay=flash) as machines:
        await found(machines)
        old = machines[1]
        incarnation = old._host.storage.incarnation
        held = len(old._host.storage)
        await old.stop()
        machines.skew("n1", 2 * DAY_S)
        await (await machines.start(join=(), name="n1")).stop()
        node = await machines.start(join=(), name="n1")
        await node.ready()
        assert node._host.storage.incarnation == incarnation
        assert len(node._host.storage) >= held > 0
        await every_key(node)


@virtual
async def test_lone_node_restarts_with_its_ring() -> None:
    async with cluster(seed=7, sync_delay=flash) as machines:
        node = await machines.start(join=(), vnodes=2)
        await node.ready()
        await put(node, b"k", b"v")
        ring_id, epochs = node.ring_id, [vnode.epoch for vnode in stored(machines, "n0").vnodes]
        for _ in range(3):
            await node.stop()
            await (await machines.start(join=(), name="n0", vnodes=2)).stop()
            node = await machines.start(join=(), name="n0", vnodes=2)
            await node.ready()
            assert node.ring_id == ring_id
            assert node.origin == "resumed"
            assert await get(node, b"k") == (b"v",)
            later = [vnode.epoch for vnode in stored(machines, "n0").vnodes]
            assert all(b > a for a, b in zip(epochs, later, strict=True))
            epochs = later


@virtual
async def test_lone_node_killed_between_its_vnodes_restarts() -> None:
    async with cluster(seed=8, sync_delay=flash) as machines:
        node = await machines.start(join=(), vnodes=2)
        await node.ready()
        await node.stop()
        kept = stored(machines, "n0")
        second = msgspec.structs.replace(kept.vnodes[1], owned_from=None, epoch=0, successors=(), predecessor=None)
        await keep(machines, "n0", msgspec.structs.replace(kept, vnodes=(kept.vnodes[0], second)))
        node = await machines.start(join=(), name="n0", vnodes=2)
        await node.ready()
        assert node.ring_id is not None
        assert node.ring_id.hex() == kept.ring


@virtual
async def test_owner_without_pointers_waits_for_a_member() -> None:
    """A power cut during a join may leave an arc on the disk, and no pointers. Alone it would answer no lookup."""
    async with cluster(seed=3, ring=RingConstants(successors=2, replicas=1), sync_delay=flash) as machines:
        await found(machines)
        names = [node.name for node in machines.nodes]
        for node in list(machines.nodes):
            await machines.kill(node)
        kept = stored(machines, "n1")
        vnodes = [msgspec.structs.replace(vnode, predecessor=None, successors=()) for vnode in kept.vnodes]
        await keep(machines, "n1", msgspec.structs.replace(kept, vnodes=tuple(vnodes)))
        first = await machines.start(join=(), name="n1")
        await trio.sleep(10)
        assert first.state == "resuming"
        assert not any(vnode.ring.is_member for vnode in first._host.vnodes.values())
        for name in names:
            if name != "n1":
                await machines.start(join=(), name=name)
        await machines.converged()
        await every_key(first)


@virtual
async def test_node_with_a_contact_never_creates_a_ring() -> None:
    async with cluster(seed=9, sync_delay=flash) as machines:
        await found(machines)
        for is_killed, delay_s in ((True, 0.002), (False, 0.0), (True, 0.02), (False, 0.02)):
            node = await machines.start(join=[machines[0]], name="late")
            await trio.sleep(delay_s)
            assert node.state != "ready"
            await (machines.kill(node) if is_killed else node.stop())
            assert stored(machines, "late").known
        node = await machines.start(join=(), name="late")
        await node.ready()
        assert node.ring_id == machines[0].ring_id
        assert node.origin == "joined"
        await every_key(node)


def test_persisted_ring_without_nodes_needs_a_contact() -> None:
    """An earlier version left such a state behind. With a contact, the node can rejoin."""

    async def main(*, is_told: bool) -> None:
        async with cluster(seed=10, sync_delay=flash) as machines:
            await found(machines)
            await machines[1].stop()
            kept = stored(machines, "n1")
            forgotten = msgspec.structs.replace(
                kept.vnodes[0], owned_from=None, epoch=0, successors=(), predecessor=None, before=()
            )
            await keep(machines, "n1", msgspec.structs.replace(kept, vnodes=(forgotten,), known=(), passive=()))
            node = await machines.start(join=machines[:1] if is_told else (), name="n1")
            if is_told:
                await node.ready()
            await trio.sleep(1)
            await every_key(node)

    virtual(lambda: main(is_told=True))()
    with pytest.raises(ConfigError, match=r"belongs to ring .* names no other node of it; .*--join HOST:PORT"):
        virtual(lambda: main(is_told=False))()

"""Hung disks: the node goes out of service, stand-ins replace it, and it returns or ends."""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec
import pytest
import trio

from chord.config import PRESETS, Limits, NodeConfig, RingConstants, Timing
from chord.errors import Busy, ChordError, ConfigError, PeerUnreachable, WritesRefused
from chord.events import Emitted, HealthChanged
from chord.node import Node
from chord.node.world import World
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch
from chord.wire.messages import Ping, PingReply
from tests.support.quorum import are_all_in_sync
from tests.support.real_rings import HANG_S
from tests.support.rings import get, only, owner, patiently, put, virtual

RING = RingConstants(replicas=3, successors=4)
KEYS = [b"key-%d" % number for number in range(60)]
STALL_S = PRESETS["local"].disk_stall_s
LEAST_STAGED = 2 * Limits().frame_bulk_bytes_max
NEVER = 10_000.0


@asynccontextmanager
async def five(timing: Timing = PRESETS["local"]) -> AsyncIterator[tuple[Cluster, Node, list[bytes], list[Emitted]]]:
    """Run five nodes on disks; yield them, one of them, its keys, and the events."""
    happened: list[Emitted] = []
    async with cluster(seed=3, ring=RING, timing=timing, sync_delay=flash, observe=happened.append) as machines:
        first = await machines.start(join=())
        await first.ready()
        for _ in range(4):
            await (await machines.start(join=[first])).ready()
        await machines.converged()
        for key in KEYS:
            await put(first, key, b"old")
        node = machines[2]
        yield machines, node, [key for key in KEYS if owner(machines, key) is node], happened


async def write(node: Node, keys: list[bytes], value: bytes, within_s: float) -> list[bytes]:
    """Write keys through a node with retries; return the keys that were acknowledged in time."""
    done = []
    with trio.move_on_after(within_s):
        for key in keys:
            while key not in done:
                with suppress(ChordError):
                    await put(node, key, value)
                    done.append(key)
                await trio.sleep(0.05)
    return done


@pytest.mark.slow
@virtual
async def test_node_with_a_hung_disk_is_replaced_and_returns() -> None:
    async with five() as (machines, node, keys, happened):
        assert len(keys) > 3
        disk, other = machines.disk(node.name), machines[0]
        disk.hang()
        began = trio.current_time()
        assert await write(other, keys, b"new", 30) == keys
        assert trio.current_time() - began < 3 * STALL_S
        (stalled,) = (e.event for e in happened if isinstance(e.event, HealthChanged))
        assert (stalled.subject, "has not answered for" in stalled.why) == ("disk", True)
        assert node._host.is_stalled
        seen = node._local_status()  # the node still answers `status`
        assert (seen.state, len(seen.troubles)) == ("degraded", 1)
        assert "the disk has not answered for" in seen.troubles[0]
        with pytest.raises(PeerUnreachable, match="disk"):
            await other._host.peers.call(node.address, Ping(), PingReply)
        with pytest.raises(Busy, match="disk"):  # a call to itself fails at once, so that steps do not retry for ever
            await node._host.peers.call(only(node).me, Ping(), PingReply)
        assert node._host.storage.staged_bytes < 100_000  # type: ignore[attr-defined]
        assert "alive" not in await states_at_others(machines, node)
        disk.resume()
        await trio.sleep(2 * STALL_S)
        assert not node._host.is_stalled
        assert node._local_status().state == "ready"
        await machines.converged()
        for key in keys:
            assert await patiently(lambda k=key: get(node, k)) == (b"new",)  # type: ignore[misc]
        assert node.state == "ready"


async def states_at_others(machines: Cluster, node: Node) -> set[str]:
    """Return the states of a node at the others during ten seconds."""
    found: set[str] = set()
    for _ in range(100):
        await trio.sleep(0.1)
        found |= {peer._host.peers.failure_detector.state(node.address) for peer in machines.nodes if peer is not node}
    return found


@pytest.mark.slow
@virtual
async def test_planted_calls_of_a_node_with_a_hung_disk_are_caught() -> None:
    async with five() as (machines, node, keys, _):
        node._maintenance.timetable._is_paused = lambda: False
        machines.disk(node.name).hang()
        await write(machines[0], keys, b"new", 30)
        assert "alive" in await states_at_others(machines, node)


@pytest.mark.slow
@virtual
async def test_planted_no_watchdog_of_the_disk_blocks_writes() -> None:
    timing = msgspec.structs.replace(PRESETS["local"], disk_stall_s=NEVER, disk_stop_s=NEVER)
    async with five(timing) as (machines, node, keys, _):
        machines.disk(node.name).hang()
        assert await write(machines[0], keys, b"new", 60) == []


@pytest.mark.slow
@virtual
async def test_node_with_a_disk_hung_for_disk_stop_s_ends() -> None:
    timing = msgspec.structs.replace(PRESETS["local"], disk_stop_s=3 * STALL_S)
    async with five(timing) as (machines, node, keys, _):
        machines.disk(node.name).hang()
        began = trio.current_time()
        node._host.storage.stage(Batch(notes={b"touched": b""}))
        with trio.fail_after(60):
            await node.closed.wait()
        assert 3 * STALL_S <= trio.current_time() - began <= 3 * STALL_S + STALL_S + 6
        assert node.state == "stopped"
        with pytest.raises(WritesRefused, match=r"the disk of n2 has not answered for \d+ s, and the node"):
            await node.ready()
        assert await write(machines[0], keys, b"new", 60) == keys
        machines.disk(node.name).resume()
        back = await machines.start(join=(), name=node.name)
        await back.ready()
        for key in keys:
            assert await patiently(lambda k=key: get(back, k)) == (b"new",)  # type: ignore[misc]


async def staged_while_it_hangs(staged_bytes_max: int) -> int:
    """Let a disk hang without the watchdog, so that copies still arrive; return the staged bytes."""
    timing = msgspec.structs.replace(PRESETS["local"], disk_stall_s=NEVER, disk_stop_s=NEVER)
    limits = Limits(staged_bytes_max=staged_bytes_max)
    async with cluster(seed=3, ring=RING, timing=timing, sync_delay=flash) as machines:
        first = await machines.start(join=(), limits=limits)
        await first.ready()
        for _ in range(4):
            await (await machines.start(join=[first], limits=limits)).ready()
        await machines.converged()
        node = machines[2]
        machines.disk(node.name).hang()
        others = [b"large-%d" % n for n in range(400) if owner(machines, b"large-%d" % n) is not node]
        assert await write(first, others, bytes(200_000), 600) == others
        staged: int = node._host.storage.staged_bytes  # type: ignore[attr-defined]
        machines.disk(node.name).resume()
        await trio.sleep(1)
        assert node._host.storage.staged_bytes == 0  # type: ignore[attr-defined]
        return staged


@pytest.mark.slow
@virtual
async def test_bytes_staged_for_a_hung_disk_are_bounded() -> None:
    assert LEAST_STAGED - 300_000 < await staged_while_it_hangs(LEAST_STAGED) <= LEAST_STAGED


@pytest.mark.slow
@virtual
async def test_planted_no_bound_stages_more_bytes() -> None:
    assert await staged_while_it_hangs(64 << 20) > 2 * LEAST_STAGED


@pytest.mark.slow
@virtual
async def test_node_with_a_slow_disk_below_the_limit_stays_in_service() -> None:
    async with five() as (machines, node, keys, happened):
        machines.disk(node.name).slow(0.8 * STALL_S)
        assert await write(machines[0], keys[:2], b"new", 60) == keys[:2]
        await trio.sleep(5 * STALL_S)
        assert not [e for e in happened if isinstance(e.event, HealthChanged)]


@virtual
async def test_lone_replica_with_a_hung_disk_is_not_replaced() -> None:
    """No other node has the records of its arc."""
    async with cluster(seed=4, ring=RingConstants(replicas=1), sync_delay=flash) as machines:
        first = await machines.start(join=())
        await first.ready()
        for _ in range(3):
            await (await machines.start(join=[first])).ready()
        await machines.converged()
        for key in KEYS:
            await put(first, key, b"old")
        node = machines[2]
        keys = [key for key in KEYS if owner(machines, key) is node]
        machines.disk(node.name).hang()
        assert await write(first, keys[:1], b"new", 3 * STALL_S) == []
        assert node._host.is_stalled
        machines.disk(node.name).resume()
        assert await write(first, keys, b"new", 60) == keys


@pytest.mark.slow
@virtual
async def test_scan_shows_every_key_while_a_disk_is_full() -> None:
    """One replica that takes no records leaves a write quorum of others."""
    async with five() as (machines, node, keys, _):
        disk = machines.disk(node.name)
        disk.capacity_bytes = disk.used_bytes
        others = [key for key in KEYS if key not in keys]
        written = await write(machines[0], others, b"new", 60)
        assert written
        await trio.sleep(30)  # comparisons with the node fail
        assert node._host.health.reasons()
        for asked in machines.nodes:
            found = {pair.key: pair.values async for pair in asked.scan()}
            assert found == {key: (b"new",) if key in written else (b"old",) for key in KEYS}


def test_disk_stop_s_is_at_least_disk_stall_s() -> None:
    assert Timing(disk_stall_s=5, disk_stop_s=5).disk_stop_s == 5
    with pytest.raises(ConfigError, match=r"disk_stop_s must be at least disk_stall_s, 5, not 4\.9"):
        Timing(disk_stall_s=5, disk_stop_s=4.9)


# -- real disks, threads and sockets -----------------------------------------------------------------------


def is_synced(nodes: list[Node]) -> bool:
    """Return whether every replica of every arc is in sync, so that it may stand in for the owner."""
    vnodes = {node.address: only(node) for node in nodes}
    for node in nodes:
        vnode = only(node)
        arc = vnode.ownership.arc
        if arc is None or not are_all_in_sync(node._parts[vnode.id]):
            return False
        members = [vnodes[place.contact.address] for place in vnode.replica_set(arc.end).members]
        if len(members) < RING.replicas or not all(member.preference_list.is_arc_in_sync(arc) for member in members):
            return False
    return True


@pytest.mark.slow
async def test_real_node_with_a_hung_commit_is_replaced_and_returns(tmp_path: Path) -> None:
    """One COMMIT blocks, as on a stalled volume. The other nodes and the event loop continue."""
    timing = msgspec.structs.replace(PRESETS["local"], disk_stall_s=1.0)
    gate = threading.Event()
    gate.set()
    with trio.fail_after(HANG_S):
        async with trio.open_nursery() as nursery:
            nodes: list[Node] = []
            for number in range(4):
                directory = str(tmp_path / str(number))
                join = (nodes[0].address,) if nodes else ()
                config = NodeConfig(
                    listen="127.0.0.1:0", join=join, data_dir=directory, preset="local", timing=timing, ring=RING
                )
                world = World.real(config)
                if number == 1:
                    world = world._replace(storage=SqliteStorage(RING.circle, directory, os.urandom(8), gate.wait))
                node = Node(config, world)
                await nursery.start(node.run)
                await node.ready()
                nodes.append(node)
            bad, circle = nodes[1], RING.circle
            while not is_synced(nodes):
                await trio.sleep(0.05)
            gate.clear()
            keys = [b"key-%d" % n for n in range(400) if bad._host.owner_of(circle.hash(b"key-%d" % n)) is not None][:5]
            try:
                assert await write(nodes[0], keys, b"new", HANG_S) == keys
                while not bad._host.is_stalled:  # the writes may be done before a second has passed
                    await trio.sleep(0.05)
            finally:
                gate.set()
            while bad._host.is_stalled:
                await trio.sleep(0.05)
            for key in keys:
                assert await patiently(lambda k=key: get(bad, k)) == (b"new",)  # type: ignore[misc]
            nursery.cancel_scope.cancel()

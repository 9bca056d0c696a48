"""Real nodes on simulated disks, on which a commit takes time and can fail."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import pytest
import trio

from chord.errors import ChordError, WritesRefused
from chord.events import Emitted, HealthChanged
from chord.ids import Arc, Point
from chord.node import Node
from chord.replication.records import Records
from chord.sim.cluster import cluster
from chord.sim.disk import FULL, flash
from chord.store.storage import Batch
from chord.wire.messages import Put, Record
from tests.support.rings import get, only, owner, patiently, put, virtual

WHOLE = Arc(Point(0), Point(0))


def records(node: Node) -> Records:
    return node._parts[only(node).id].records


async def put_durably(node: Node, request: Put) -> None:
    _, batch, _ = records(node).to_put(request, None)
    await node._host.storage.commit(batch)


@virtual
async def test_retried_put_waits_for_the_first_try_to_be_durable() -> None:
    async with cluster(sync_delay=lambda rng: 1.0) as machines:
        node = await machines.start(join=())
        await node.ready()
        request = Put(b"k", b"v", bytes(16))
        began = trio.current_time()
        answered: list[float] = []

        async def ask() -> None:
            await put_durably(node, request)
            answered.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0.2)
            nursery.start_soon(ask)
        assert min(answered) >= 1.0
        record = node._host.storage.get(b"k")
        assert record is not None
        assert len(record.clock) == record.clock[0].count == 1


@virtual
async def test_resent_page_is_acknowledged_only_once_durable() -> None:
    async with cluster(sync_delay=lambda rng: 1.0) as machines:
        node = await machines.start(join=())
        await node.ready()
        await put_durably(node, Put(b"k", b"v", bytes(16)))
        record = node._host.storage.get(b"k")
        assert record is not None
        await node._host.storage.commit(Batch(removals=[b"k"]))
        began = trio.current_time()
        answered: list[float] = []

        async def merge(record: Record = record) -> None:
            await records(node).merge([record], ())
            answered.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(merge)
            await trio.sleep(0.2)
            nursery.start_soon(merge)
        assert min(answered) >= 1.0


@pytest.mark.slow
@virtual
async def test_write_that_waits_for_a_disk_survives_an_arc_move() -> None:
    async with cluster(seed=3, sync_delay=lambda rng: 0.2) as machines:
        nodes = [await machines.start(join=())]
        await nodes[0].ready()
        acknowledged: list[bytes] = []

        async def write(number: int) -> None:
            key = b"key-%d" % number
            with suppress(ChordError), trio.move_on_after(5):
                await put(nodes[0], key, b"v")
                acknowledged.append(key)

        async with trio.open_nursery() as nursery:
            for number in range(600):
                nursery.start_soon(write, number)
                await trio.sleep(0.01)
                if number in (100, 300):
                    nodes.append(await machines.start(join=nodes[:1]))
        await machines.converged()
        assert len(acknowledged) > 400
        moved = [key for key in acknowledged if owner(machines, key) is not nodes[0]]
        assert len(moved) > 50
        lost = [key for key in acknowledged if owner(machines, key)._host.storage.get(key) is None]
        assert lost == []


@virtual
async def test_full_disk_refuses_puts_and_serves_reads() -> None:
    async with cluster(sync_delay=lambda rng: 0.001) as machines:
        node = await machines.start(join=())
        await node.ready()
        await put(node, b"k", b"v")
        disk = machines.disks["n0"]
        disk.capacity_bytes = disk.used_bytes
        with pytest.raises(WritesRefused, match="database or disk is full"):
            await put(node, b"k", b"w")
        assert await get(node, b"k") == (b"v",)
        disk.capacity_bytes = 1 << 20
        await put(node, b"k", b"w")
        assert await get(node, b"k") == (b"w",)


@virtual
async def test_node_on_a_nearly_full_disk_does_not_flap() -> None:
    """A small note fits; the next put does not. So the node has not recovered."""
    happened: list[Emitted] = []
    async with cluster(sync_delay=flash, observe=happened.append) as machines:
        node = await machines.start(join=())
        await node.ready()
        disk = machines.disk(node.name)
        disk.fill(2000)
        for _ in range(10):
            with pytest.raises(WritesRefused, match="database or disk is full"):
                await put(node, b"large", bytes(10_000))
            await put(node, b"small", b"v")
            await trio.sleep(10)
        assert reports(happened) == [f"its store takes no writes: {FULL}"]
        assert node._local_status().state == "degraded"
        disk.fill(node._host.limits.free_bytes_min)
        await trio.sleep(10)
        assert reports(happened)[1:] == [""]
        assert node._local_status().state == "ready"


def reports(happened: list[Emitted]) -> list[str]:
    return [emitted.event.why for emitted in happened if isinstance(emitted.event, HealthChanged)]


@virtual
async def test_node_with_a_full_disk_hands_an_arc_over_and_runs() -> None:
    async with cluster(seed=1, sync_delay=lambda rng: 0.001) as machines:
        first = await machines.start(join=())
        await first.ready()
        for number in range(50):
            await put(first, b"key-%d" % number, b"v")
        await (await machines.start(join=[first])).ready()
        await machines.converged()
        machines.disks["n0"].capacity_bytes = machines.disks["n0"].used_bytes
        before = only(first).ownership.start
        assert before is not None
        third = await machines.start(join=[first], id=Point(before + 1))
        with trio.fail_after(60):
            await third.ready()
        await machines.converged()
        assert only(first).ownership.start == only(third).id
        assert len(third._host.storage) > 0
        assert first.state == "ready"
        for number in range(50):
            found = await patiently(lambda n=number: get(first, b"key-%d" % n))  # type: ignore[misc]
            assert found == (b"v",)


@virtual
async def test_node_ends_as_in_a_crash_if_a_sync_fails() -> None:
    async with cluster(seed=1, sync_delay=lambda rng: 0.001) as machines:
        first = await machines.start(join=())
        await first.ready()
        machines.disks["n0"].fail_next_sync()
        with pytest.raises(ChordError):
            await put(first, b"k", b"v")
        with trio.fail_after(5):
            await first.closed.wait()


@pytest.mark.slow
@virtual
async def test_acknowledged_writes_survive_a_power_cut_of_all_nodes() -> None:
    async with cluster(seed=2, sync_delay=flash) as machines:
        first = await machines.start(join=())
        await first.ready()
        for _ in range(4):
            await (await machines.start(join=[first])).ready()
        await machines.converged()
        acknowledged: dict[bytes, bytes] = {}

        async def write(number: int) -> None:
            key, value = b"key-%d" % (number % 50), b"value-%d" % number
            with suppress(ChordError):
                await put(machines[number % 5], key, value)
                acknowledged[key] = value

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(write, number)
                await trio.sleep(0.0005)
            nodes = list(machines.nodes)
            for node in nodes:
                machines.disks[node.name].crash()
            nursery.cancel_scope.cancel()
        assert len(acknowledged) == 50
        for node in nodes:
            await machines.kill(node, silently=True)
        for node in nodes:
            await machines.start(join=(), name=node.name)
        await machines.converged()
        for key, value in acknowledged.items():
            found = await patiently(lambda k=key: get(machines[0], k))  # type: ignore[misc]
            assert int(found[0].split(b"-")[1]) >= int(value.split(b"-")[1]), "that value, or a later one"
        assert all(disk.check() == [] for disk in machines.disks.values())


@virtual
async def test_hung_transaction_ends_with_its_process() -> None:
    """If it were written later, the next process would already have counted the records."""
    async with cluster(sync_delay=flash) as machines:
        node = await machines.start(join=())
        await node.ready()
        disk = machines.disk(node.name)
        await put(node, b"before", b"v")
        disk.hang()
        for key in (b"hung", b"behind it"):
            node._host.storage.stage(records(node).to_put(Put(key, b"v", key.zfill(16)), None)[1])
            await trio.sleep(1)
        node._begin_leave()
        await node.closed.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(machines.start, join=(), name=node.name))
            await trio.sleep(1)
            disk.resume()
        storage = machines[0]._host.storage
        await trio.sleep(1)
        assert len(storage) == len(list(storage.heads(WHOLE)))

"""The scrub of a node: it finds damage in records that no client reads, and replicas repair it."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
import trio

from chord.config import PRESETS, RingConstants, Timing
from chord.errors import RecordDamaged
from chord.events import Emitted, RecordsDamaged
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.sim.stores import left_on
from chord.store.storage import SCRUB_NOTE
from tests.support.rings import grown, put, virtual

KEYS = [b"key-%d" % number for number in range(30)]
LARGE = bytes(3000)
SCRUB_S = 20.0
TIMING = msgspec.structs.replace(PRESETS["local"], anti_entropy_s=2.0)


async def whole_again(scrub_s: float, within_s: float) -> tuple[int, list[Emitted], Node]:
    """Damage records of a running node; return the number of whole ones after `within_s`, events and the node."""
    seen: list[Emitted] = []
    timing = msgspec.structs.replace(TIMING, scrub_s=scrub_s)
    ring = RingConstants(replicas=3)
    async with cluster(seed=5, ring=ring, timing=timing, sync_delay=flash, observe=seen.append) as machines:
        first = await grown(machines, 3)
        for key in KEYS:
            await put(first, key, LARGE)
        await trio.sleep(5)
        node = machines[1]
        for key in KEYS[:10]:
            machines.disk(node.name).damage(key)
        node._host.storage._rows._recent.clear()  # type: ignore[attr-defined]
        await trio.sleep(within_s)
        return whole_on(machines, node), seen, node


def whole_on(machines: Cluster, node: Node) -> int:
    left = left_on(machines.disk(node.name), node._host.circle)
    assert left is not None
    return sum(left.get(key) is not None for key in KEYS)


@pytest.mark.slow
@virtual
async def test_scrub_finds_and_repairs_damage_in_unread_records() -> None:
    whole, seen, node = await whole_again(SCRUB_S, SCRUB_S + 3 * TIMING.anti_entropy_s)
    assert whole == len(KEYS)
    damaged = [e.event for e in seen if isinstance(e.event, RecordsDamaged)]
    assert 0 < sum(event.records for event in damaged) <= 10, "the owner reads the others when it looks for tombstones"
    assert {event.address for event in damaged} == {node.address}
    assert node._host.storage.counters["store_bad_records"] == 10


@pytest.mark.slow
@virtual
async def test_get_with_all_copies_damaged_raises_record_damaged() -> None:
    ring = RingConstants(replicas=3)
    async with cluster(seed=5, ring=ring, timing=TIMING, sync_delay=flash) as machines:
        first = await grown(machines, 4)
        await put(first, KEYS[0], LARGE)
        await trio.sleep(20)
        for machine in machines:
            with suppress(KeyError):
                machines.disk(machine.name).damage(KEYS[0])
            machine._host.storage._rows._recent.clear()  # type: ignore[attr-defined]
        named = r"a damaged record at \S+, \S+, \S+ may be of this key, and no other node has a copy"
        for machine in machines:
            for _ in range(10):
                with pytest.raises(RecordDamaged, match=named):
                    await machine.get(KEYS[0])
                await trio.sleep(1)
        await first.put(KEYS[0], "written again", no_context=True)
        assert (await first.get(KEYS[0])).value == b"written again"


@pytest.mark.slow
@virtual
async def test_planted_no_scrub_leaves_damage() -> None:
    whole, _, _ = await whole_again(Timing().scrub_s, SCRUB_S + 3 * TIMING.anti_entropy_s)
    assert whole < len(KEYS), "only the reaper's reads of its own arc find damage"


@pytest.mark.slow
@virtual
async def test_scrub_takes_the_configured_time_and_keeps_its_position() -> None:
    timing = msgspec.structs.replace(TIMING, scrub_s=100.0)
    async with cluster(seed=6, ring=RingConstants(replicas=1), timing=timing, sync_delay=flash) as machines:
        node = await machines.start(join=())
        await node.ready()
        for number in range(2000):
            await put(node, b"%d" % number, b"v")
        storage = node._host.storage
        rounds = storage.counters["scrub_rounds"]
        while storage.counters["scrub_rounds"] == rounds:
            await trio.sleep(0.1)
        began, rows = trio.current_time(), storage.counters["scrub_rows"]
        await trio.sleep(50)
        assert storage.note(SCRUB_NOTE) is not None
        assert storage.counters["scrub_rounds"] == rounds + 1, "a round takes its whole period"
        while storage.counters["scrub_rounds"] == rounds + 1:
            await trio.sleep(0.1)
        assert 50 < trio.current_time() - began <= 100
        assert storage.counters["scrub_rows"] - rows >= 2000


@pytest.mark.parametrize("name", ["scrub_s"])
def test_scrub_period_must_be_positive(name: str) -> None:
    with pytest.raises(Exception, match=f"{name} must be a positive number of seconds, not 0"):
        Timing(**{name: 0})

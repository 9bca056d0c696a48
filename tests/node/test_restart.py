"""The restart recovery of a node: records and identity that belong together, or do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from chord.cli.serve import WHY_EMPTY
from chord.config import PRESETS, Limits, RingConstants
from chord.errors import ChordError, ConfigError, NotFound, OtherRing
from chord.events import Emitted, Observer, StoreBegun
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.store.storage import Batch
from tests.support.rings import get, grown, only, patiently, put, virtual

DAY_S = 86_400.0
KEYS = [b"key-%d" % number for number in range(40)]


class World:
    """Three nodes on disks, with records, and the reasons of nodes that began with an empty store."""

    def __init__(self, machines: Cluster, begun: list[str]) -> None:
        self.machines = machines
        self.begun = begun

    async def found(self, **changes: Any) -> list[Node]:
        """Start them, with these fields of `NodeConfig`."""
        first = await grown(self.machines, 3, **changes)
        for key in KEYS:
            await put(first, key, key)
        return list(self.machines.nodes)

    async def again(self, *nodes: Node, after_s: float = 0.0, apart_s: float = 0.0) -> list[Node]:
        """Kill nodes, advance their clocks by `after_s`, and start them at intervals of `apart_s`."""
        for node in nodes:
            await self.machines.kill(node, power_loss=True)
        for node in nodes:
            self.machines.skew(node.config.name or "", after_s)
        started = []
        for node in nodes:
            started.append(await self.machines.start(join=(), name=node.config.name))
            await trio.sleep(apart_s)
        for node in started:
            await node.ready()
        await self.machines.converged()
        return started


def recording(begun: list[str]) -> Observer:
    def observe(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, StoreBegun):
            begun.append(event.why)

    return observe


async def away(after_s: float, *, all_of_them: bool, apart_s: float = 0.0) -> None:
    """Restart nodes after a time. Their stores and ids are the old ones, and no record is lost."""
    begun: list[str] = []
    async with cluster(seed=3, sync_delay=flash, observe=recording(begun)) as machines:
        world = World(machines, begun)
        nodes = await world.found()
        chosen = nodes if all_of_them else nodes[-1:]
        before = [(node._host.storage.incarnation, only(node).id) for node in chosen]
        started = await world.again(*chosen, after_s=after_s, apart_s=apart_s)
        assert [(node._host.storage.incarnation, only(node).id) for node in started] == before
        assert begun == []
        for key in KEYS:
            for node in machines.nodes:
                assert await patiently(lambda k=key, n=node: get(n, k)) == (key,)  # type: ignore[misc]


@virtual
async def test_node_away_for_days_keeps_its_store() -> None:
    await away(100 * DAY_S, all_of_them=False)


@virtual
async def test_node_away_for_hours_keeps_its_store() -> None:
    await away(0.9 * DAY_S, all_of_them=False)


@virtual
async def test_ring_away_for_days_keeps_its_stores() -> None:
    await away(100 * DAY_S, all_of_them=True)


@virtual
async def test_ring_that_returns_one_by_one_keeps_its_stores() -> None:
    """The first node resumes alone before the next one starts. Its ring did not run on without the others."""
    assert PRESETS["local"].resume_s < 5.0
    await away(100 * DAY_S, all_of_them=True, apart_s=5.0)


class Fate(NamedTuple):
    """The changes of a value while the node that holds it is away."""

    key: bytes
    is_deleted: bool
    seen: tuple[bytes, ...]


async def back_after_days(limits: Limits, is_planted: bool = False) -> list[Fate]:
    """A node misses deletes and writes that are reaped long before it is back; return what all read in the end.

    Args:
        is_planted: its store forgets which log entries it lacks.
    """
    timing = msgspec.structs.replace(PRESETS["local"], anti_entropy_s=1.0, grace_s=5.0)
    async with cluster(seed=3, sync_delay=flash, timing=timing) as machines:
        world = World(machines, [])
        nodes = await world.found(limits=limits)
        away = nodes[-1]
        await trio.sleep(5)
        await machines.kill(away, power_loss=True)
        await machines.converged()
        for key in KEYS[:20]:
            await patiently(lambda k=key: put(nodes[0], k, None))  # type: ignore[misc]
        for key in KEYS[20:30]:
            await patiently(lambda k=key: put(nodes[0], k, b"new"))  # type: ignore[misc]
        await trio.sleep(60)
        machines.skew(away.name, 30 * DAY_S)
        await machines.start(join=(), name=away.name, limits=limits)
        if is_planted:
            for node in machines.nodes:
                await node._host.storage.commit(Batch(notes=dict.fromkeys(node._host.storage.notes())))
                node._host.reap_log._slices = None
        for node in machines.nodes:
            await node.ready()
        await machines.converged()
        await trio.sleep(20)
        fates = []
        for number, key in enumerate(KEYS):
            seen = {await found(node, key) for node in machines.nodes}
            assert len(seen) == 1
            fates.append(Fate(key, number < 20, seen.pop()))
        assert machines.totals()["keys_reaped"] >= 10
        return fates


async def found(node: Node, key: bytes) -> tuple[bytes, ...]:
    try:
        return tuple(await patiently(lambda: get(node, key)))
    except NotFound:
        return ()


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(), Limits(reap_log_entries=0, reap_log_entries_max=0)])
def test_node_back_after_days_revives_and_loses_nothing(limits: Limits) -> None:
    @virtual
    async def main() -> None:
        for number, fate in enumerate(await back_after_days(limits)):
            assert fate.seen == (() if fate.is_deleted else (b"new",) if number < 30 else (fate.key,))

    main()


@pytest.mark.slow
def test_planted_bug_lost_reap_logs_revive_deleted_values() -> None:
    @virtual
    async def main() -> None:
        fates = await back_after_days(Limits(), is_planted=True)
        assert any(fate.is_deleted and fate.seen == (fate.key,) for fate in fates)

    main()


@virtual
async def test_lone_node_without_its_records_reports_no_other_copy() -> None:
    begun: list[str] = []
    async with cluster(seed=5, sync_delay=flash, observe=recording(begun)) as machines:
        node = await machines.start(join=())
        await node.ready()
        await put(node, KEYS[0], b"v")
        await machines.kill(node)
        machines.disk("n0").lose_records()
        await (await machines.start(join=(), name="n0")).ready()
    assert begun == ["lost for good"]
    assert "no other node has copies" in WHY_EMPTY[begun[0]]


@virtual
async def test_node_without_its_records_keeps_its_id_and_reports_it() -> None:
    begun: list[str] = []
    async with cluster(seed=5, sync_delay=flash, observe=recording(begun)) as machines:
        world = World(machines, begun)
        node = (await world.found())[-1]
        name, point = node._host.storage.incarnation, only(node).id
        await machines.kill(node)
        machines.disk("n2").lose_records()
        started = await machines.start(join=(), name="n2")
        await started.ready()
        assert begun == ["lost"]
        assert only(started).id == point
        assert started._host.storage.incarnation != name
        await trio.sleep(5)
        kept = machines.kept("n2")
        assert kept is not None
        assert kept.incarnation == started._host.storage.incarnation.hex()


@virtual
async def test_node_that_left_joins_again_with_its_store() -> None:
    """The node handed all records over. Its reap logs are still valid."""
    begun: list[str] = []
    async with cluster(seed=6, sync_delay=flash, observe=recording(begun)) as machines:
        world = World(machines, begun)
        nodes = await world.found()
        name = nodes[-1]._host.storage.incarnation
        await nodes[-1].leave()
        assert len(nodes[-1]._host.storage) == 0
        started = await machines.start(join=[nodes[0]], name="n2")
        await started.ready()
        assert begun == []
        assert started._host.storage.incarnation == name
        await machines.converged()
        for key in KEYS:
            found = await patiently(lambda k=key: get(started, k))  # type: ignore[misc]
            assert found == (key,)


# -- the constants of the last start --------------------------------------------------------------------------


async def started_with(machines: Cluster, join: Sequence[Node] = (), **changes: Any) -> Node:
    """Stop n1 and start it with other settings. Return it when it is ready."""
    node = next(node for node in machines.nodes if node.name == "n1")
    await node.stop()
    kept = machines.kept("n1")
    node = await machines.start(join=join, name="n1", **changes)
    try:
        await node.ready()
    except ChordError:
        await node.closed.wait()
        assert machines.kept("n1") == kept, "a start that is refused writes nothing"
        raise
    return node


@pytest.mark.parametrize(("before", "now", "is_refused"), [(1, 3, True), (3, 2, True), (3, 3, False), (3, 1, False)])
def test_other_number_of_vnodes_than_stored_is_refused(before: int, now: int, is_refused: bool) -> None:
    """One vnode is the default. If a start has the default, the stored number counts."""

    @virtual
    async def main() -> None:
        async with cluster(seed=7, sync_delay=flash) as machines:
            first = await machines.start(join=())
            await (await machines.start(join=[first], vnodes=before)).ready()
            node = await started_with(machines, vnodes=now)
            assert len(node._host.vnodes) == before

    if is_refused:
        with pytest.raises(ConfigError, match=f"a node with {before} vnodes, not {now}"):
            main()
    else:
        main()


def test_colliding_vnodes_of_a_toy_ring_restart_in_equal_number() -> None:
    @virtual
    async def main() -> None:
        async with cluster(seed=7, sync_delay=flash, ring=RingConstants(bits=3)) as machines:
            first = await machines.start(join=(), vnodes=20)
            await first.ready()
            assert len(first._host.vnodes) < 20
            await first.stop()
            await (await machines.start(join=(), name="n0", vnodes=20)).ready()

    main()


@pytest.mark.parametrize(
    ("now", "words"),
    [
        ({"successors": 4}, "a ring with successors = 8, not 4"),
        ({"replicas": 2}, "a ring with replicas = 3, not 2"),
        ({"cluster": "other"}, "a ring with cluster = chord, not other"),
    ],
)
def test_other_ring_constants_than_stored_are_refused(now: dict[str, Any], words: str) -> None:
    """If all nodes started with the new constants, no node of the ring could object."""

    @virtual
    async def main() -> None:
        async with cluster(seed=7, sync_delay=flash) as machines:
            first = await machines.start(join=())
            await (await machines.start(join=[first])).ready()
            await started_with(machines, ring=RingConstants(**now))

    with pytest.raises(ConfigError, match=words):
        main()


@virtual
async def test_node_refused_by_its_first_ring_may_join_later() -> None:
    """The node wrote its identity before it sent its request."""
    async with cluster(seed=7, sync_delay=flash) as machines:
        first = await machines.start(join=())
        await first.ready()
        node = await machines.start(join=[first], ring=RingConstants(replicas=2))
        with pytest.raises(OtherRing):
            await node.ready()
        await node.closed.wait()
        assert machines.kept("n1") is not None
        await (await machines.start(join=[first], name="n1")).ready()


@pytest.mark.parametrize("slow", ["n0", "n3"])
def test_node_that_joins_another_ring_than_its_own_is_refused(slow: str) -> None:
    """The order of the answers of both rings does not matter."""

    @virtual
    async def main() -> None:
        async with cluster(seed=8, sync_delay=flash) as machines:
            await World(machines, []).found()
            other = await machines.start(join=())
            await other.ready()
            mine = machines[0]
            await trio.sleep(5)
            machines.network.set_delay(lambda rng, source, target: 0.004 if slow in (source, target) else 0.0001)
            with pytest.raises(OtherRing, match=r"belongs? to .*another data directory"):
                await started_with(machines, join=[mine, other])
            back = await machines.start(join=(), name="n1")
            await back.ready()
            assert back.ring_id == mine.ring_id != other.ring_id

    main()


@virtual
async def test_rejoin_with_a_contact_ends_before_resume_s() -> None:
    async with cluster(seed=9, sync_delay=flash) as machines:
        await World(machines, []).found()
        gone = machines[2]
        began = trio.current_time()
        back = await started_with(machines, join=[machines[0]])
        assert trio.current_time() - began < back._host.timing.resume_s
        await machines.kill(gone, silently=True)
        back = await started_with(machines, join=[gone])
        assert back.ring_id == machines[0].ring_id

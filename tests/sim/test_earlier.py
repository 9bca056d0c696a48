"""What a node makes of what it finds of its life before: records and identity that belong together, or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from worlds import get, only, patiently, put, virtual

from chord import earlier
from chord.config import RingConstants
from chord.earlier import Keep, give_up_if_outdated
from chord.errors import ChordError, ConfigError, OtherRing
from chord.events import Event, Observer, StoreBegun
from chord.host import Host
from chord.identity import Kept
from chord.node import Node
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash

DAY_S = 86_400.0
KEYS = [b"key-%d" % number for number in range(40)]


class World:
    """Three nodes on disks, with records; and why any of them began with an empty store."""

    def __init__(self, machines: Cluster, begun: list[str]) -> None:
        self.machines = machines
        self.begun = begun

    async def found(self) -> list[Node]:
        """Start them."""
        first = await self.machines.start(join=())
        await first.ready()
        for _ in range(2):
            await (await self.machines.start(join=[first])).ready()
        await self.machines.converged()
        for key in KEYS:
            await put(first, key, key)
        return list(self.machines.nodes)

    async def again(self, *nodes: Node, after_s: float = 0.0, apart_s: float = 0.0) -> list[Node]:
        """Kill nodes, let so much time pass on their clocks, and start them, one so long after the other."""
        for node in nodes:
            await self.machines.kill(node, is_power_lost=True)
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


def told(begun: list[str]) -> Observer:
    def observe(event: Event) -> None:
        if isinstance(event, StoreBegun):
            begun.append(event.why)

    return observe


async def away(after_s: float, *, all_of_them: bool, apart_s: float = 0.0) -> tuple[list[str], bool, bool]:
    """Restart nodes after a time; return why stores were begun anew, whether the name is the old one, and the id."""
    begun: list[str] = []
    async with cluster(seed=3, sync_delay=flash, observe=told(begun)) as machines:
        world = World(machines, begun)
        nodes = await world.found()
        chosen = nodes if all_of_them else nodes[-1:]
        before = [(node.host.storage.incarnation, only(node).id) for node in chosen]
        started = await world.again(*chosen, after_s=after_s, apart_s=apart_s)
        after = [(node.host.storage.incarnation, only(node).id) for node in started]
        names = [a[0] == b[0] for a, b in zip(before, after, strict=True)]
        ids = [a[1] == b[1] for a, b in zip(before, after, strict=True)]
        assert len(set(names)) == 1
        return begun, names[0], all(ids)


@virtual
async def test_a_node_that_was_away_for_too_long_begins_anew_under_its_id_where_the_ring_has_gone_on() -> None:
    assert await away(2 * DAY_S, all_of_them=False) == (["away"], False, True)


@virtual
async def test_a_short_absence_is_none() -> None:
    assert await away(0.9 * DAY_S, all_of_them=False) == ([], True, True)


@virtual
async def test_where_all_were_away_all_records_count() -> None:
    assert await away(2 * DAY_S, all_of_them=True) == ([], True, True)


@virtual
async def test_they_need_not_come_back_at_the_very_same_moment() -> None:
    """The first is a member again while the others still look around: it was as long away as they were."""
    assert await away(2 * DAY_S, all_of_them=True, apart_s=0.3) == ([], True, True)


async def settled_in(kept: Kept, host: Host, keep: Keep, *, is_first: bool) -> int:
    """Give up what is outdated, and say in how many arcs the vnodes still hold everything, or so they believe."""
    assert await give_up_if_outdated(kept, host, keep, is_first=is_first)
    assert len(host.storage) == 0
    return sum(len(vnode.view.settled_arcs()) for vnode in host.vnodes.values())


@pytest.mark.slow
def test_who_begins_anew_holds_nothing_for_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    virtual(lambda: begun_anew(monkeypatch))()


async def begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(seed=3, sync_delay=flash) as machines:
        world = World(machines, [])
        node = (await world.found())[-1]
        await trio.sleep(20)
        assert only(node).view.settled_arcs()
        found: list[int] = []

        async def give_up(kept: Kept, host: Host, keep: Keep, *, is_first: bool) -> bool:
            found.append(await settled_in(kept, host, keep, is_first=is_first))
            return True

        monkeypatch.setattr(earlier, "give_up_if_outdated", give_up)
        started = (await world.again(node, after_s=2 * DAY_S))[0]
        assert found == [0]
        for key in KEYS:
            assert await patiently(lambda k=key: get(started, k)) == (key,)  # type: ignore[misc]


async def not_given_up(*_: object, **__: object) -> bool:
    return False


def test_planted_a_node_that_never_gives_up_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier, "give_up_if_outdated", not_given_up)

    @virtual
    async def main() -> None:
        assert (await away(2 * DAY_S, all_of_them=False))[:2] == ([], True)

    main()


@pytest.mark.slow
@virtual
async def test_what_a_node_says_of_a_time_before_it_was_kept_is_nothing() -> None:
    """The stamp is there from the first minute on, and goes on."""
    async with cluster(seed=4, sync_delay=flash) as machines:
        node = await machines.start(join=())
        await node.ready()
        first = machines.kept("n0")
        await trio.sleep(200)
        later = machines.kept("n0")
        assert first is not None
        assert later is not None
        assert first.incarnation == later.incarnation == node.host.storage.incarnation.hex()
        assert 0 < first.alive_ms < later.alive_ms
        assert node.host.wall_now_ms() - later.alive_ms < 62_000


@virtual
async def test_a_node_whose_records_are_gone_keeps_its_id_and_says_so() -> None:
    begun: list[str] = []
    async with cluster(seed=5, sync_delay=flash, observe=told(begun)) as machines:
        world = World(machines, begun)
        node = (await world.found())[-1]
        name, point = node.host.storage.incarnation, only(node).id
        await machines.kill(node)
        machines.disk("n2").lose_records()
        started = await machines.start(join=(), name="n2")
        await started.ready()
        assert begun == ["lost"]
        assert only(started).id == point
        assert started.host.storage.incarnation != name
        await trio.sleep(5)
        kept = machines.kept("n2")
        assert kept is not None
        assert kept.incarnation == started.host.storage.incarnation.hex()


@virtual
async def test_a_node_that_left_begins_anew() -> None:
    begun: list[str] = []
    async with cluster(seed=6, sync_delay=flash, observe=told(begun)) as machines:
        world = World(machines, begun)
        nodes = await world.found()
        name = nodes[-1].host.storage.incarnation
        await nodes[-1].leave()
        started = await machines.start(join=[nodes[0]], name="n2")
        await started.ready()
        assert begun == ["left"]
        assert started.host.storage.incarnation != name
        await machines.converged()
        for key in KEYS:
            found = await patiently(lambda k=key: get(started, k))  # type: ignore[misc]
            assert found == (key,)


# -- what it was started with before --------------------------------------------------------------------------


async def started_with(machines: Cluster, join: Sequence[Node] = (), **changes: Any) -> Node:
    """Stop n1 and start it otherwise; return it when it is ready."""
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
def test_another_number_of_vnodes_than_the_stored_ones_is_refused(before: int, now: int, is_refused: bool) -> None:
    """One is what a node has that was not told; then the stored ones count."""

    @virtual
    async def main() -> None:
        async with cluster(seed=7, sync_delay=flash) as machines:
            first = await machines.start(join=())
            await (await machines.start(join=[first], vnodes=before)).ready()
            node = await started_with(machines, vnodes=now)
            assert len(node.host.vnodes) == before

    if is_refused:
        with pytest.raises(ConfigError, match=f"a node with {before} vnodes, not {now}"):
            main()
    else:
        main()


def test_vnodes_of_a_toy_ring_that_meet_are_as_many_as_they_were() -> None:
    @virtual
    async def main() -> None:
        async with cluster(seed=7, sync_delay=flash, ring=RingConstants(bits=3)) as machines:
            first = await machines.start(join=(), vnodes=20)
            await first.ready()
            assert len(first.host.vnodes) < 20
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
def test_other_constants_of_the_ring_than_the_stored_ones_are_refused(now: dict[str, Any], words: str) -> None:
    """Where all nodes are started with them, nobody in the ring could object."""

    @virtual
    async def main() -> None:
        async with cluster(seed=7, sync_delay=flash) as machines:
            first = await machines.start(join=())
            await (await machines.start(join=[first])).ready()
            await started_with(machines, ring=RingConstants(**now))

    with pytest.raises(ConfigError, match=words):
        main()


@virtual
async def test_who_was_refused_by_its_first_ring_may_come_again() -> None:
    """It has written down who it is before it asked."""
    async with cluster(seed=7, sync_delay=flash) as machines:
        first = await machines.start(join=())
        await first.ready()
        node = await machines.start(join=[first], ring=RingConstants(replicas=2))
        with pytest.raises(OtherRing):
            await node.ready()
        await node.closed.wait()
        assert machines.kept("n1") is not None
        await (await machines.start(join=[first], name="n1")).ready()


async def test_a_file_that_does_not_name_the_constants_is_one_of_an_earlier_version() -> None:
    kept = Kept(version=1, bits=160, ring="00" * 16, address="n:1", vnodes=(), known=())
    earlier._check_ring(kept, RingConstants(replicas=2, cluster="any"))


@pytest.mark.parametrize("slow", ["n0", "n3"])
def test_whoever_is_told_to_join_another_ring_than_its_own_is_refused(slow: str) -> None:
    """Whichever answers first."""

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
async def test_who_is_told_to_join_is_back_as_soon_as_those_it_was_told_of_have_answered_or_are_silent() -> None:
    async with cluster(seed=9, sync_delay=flash) as machines:
        await World(machines, []).found()
        gone = machines[2]
        began = trio.current_time()
        back = await started_with(machines, join=[machines[0]])
        assert trio.current_time() - began < back.host.timing.resume_s
        await machines.kill(gone, is_silent=True)
        back = await started_with(machines, join=[gone])
        assert back.ring_id == machines[0].ring_id

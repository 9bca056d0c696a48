"""The nemesis keeps to the failure assumption and to its schedule: regressions."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeAlias
from unittest.mock import AsyncMock

import pytest
import trio

from chord.config import RingConstants
from chord.events import NodeStateChanged, PeerChanged
from chord.sim.cluster import Cluster, Reports, cluster
from chord.sim.hardships import Hardships
from chord.sim.key_model import KeyModel
from chord.sim.messages import MessageNetwork
from chord.sim.nemesis import Nemesis
from chord.sim.observer import Watch
from chord.sim.oracle import Oracle
from chord.sim.plan import Plan, draw
from chord.sim.situations import LEAVER_BACK, SITUATION
from chord.sim.workload import Workload
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Record, Version
from tests.support.rings import in_order, only, virtual

NODES = 10
PLAN = draw(1, nodes=NODES, successors=3, fidelity="messages", faults=("silent", "blackout"))
RETURNING = draw(1, nodes=NODES, successors=3, fidelity="messages", faults=("crash", "blackout", "return"))


def flash(rng: random.Random) -> float:
    return 0.001


async def healed() -> None:
    """Wait for nothing."""


NemesisTest: TypeAlias = Callable[[Nemesis, Cluster, Watch], Awaitable[None]]


def with_plan(plan: Plan) -> Callable[[NemesisTest], Callable[[], None]]:
    def decorate(test: NemesisTest) -> Callable[[], None]:
        async def wrapper() -> None:
            nemesis: Nemesis
            watch = Watch("here", plan.successors, on_event=lambda emitted: nemesis.on_event(emitted.event))
            reports = Reports(
                stopped=lambda node: nemesis._oracle.accounting.autopsy(node),
                left=lambda node: nemesis._oracle.left(node),
            )
            ring, network = RingConstants(successors=plan.successors), MessageNetwork(1)
            async with cluster(
                seed=1, ring=ring, timing=plan.timing, network=network, observe=watch, sync_delay=flash, reports=reports
            ) as machines:
                workload = Workload(machines, random.Random(1), watch.complain, constants=ring)
                async with trio.open_nursery() as nursery:
                    nemesis = Nemesis(plan, machines, workload.oracle, watch, nursery, healed)
                    await test(nemesis, machines, watch)
                    watch.raise_if_broken()

        wrapper.__name__ = test.__name__
        return virtual(wrapper)

    return decorate


nemesis_test = with_plan(PLAN)


async def names(machines: Cluster, within_s: float = 5.0) -> set[str]:
    """Return the names of the ready nodes, after all returning nodes are back."""
    await trio.sleep(within_s)
    return {node.name for node in machines.nodes if node.state == "ready"}


@nemesis_test
async def test_list_of_a_vnode_that_dies_counts_as_copied(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """The vnode that asks has a longer list. The answer replaces it, and must name a vnode that survives."""
    await machines.place(NODES)
    asker, head, new, dead, *_ = in_order(machines)
    await nemesis.schedule.kill(dead, silently=True)
    await trio.sleep(PLAN.timing.timeout_cap_s)
    ring = only(asker).ring
    ring.successors = (only(head).me, only(dead).me, *ring.successors[-1:])  # it does not know the new vnode yet
    only(head).ring.successors = (only(new).me, only(dead).me, *ring.successors[-1:])
    assert nemesis.schedule.may_go(new)
    assert nemesis.schedule.may_go(head)
    await nemesis.schedule.kill(head)
    assert not nemesis.schedule.may_go(new), "the answer of the head may be in flight"
    await trio.sleep(PLAN.timing.timeout_cap_s + 0.1)
    assert nemesis.schedule.may_go(new)


@nemesis_test
async def test_verdict_about_a_dead_node_does_not_count(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """A client that still asks a dead node gets no answer. That is no verdict of a node."""
    await machines.place(NODES)
    dead, living, *_ = in_order(machines)
    reported = watch.counts.total()
    living._host.peers.has_left(dead.address, ())
    assert watch.counts.total() == reported + 1
    await machines.kill(dead)
    reported = watch.counts.total()
    dead._host.peers.has_left(living.address, ())
    assert watch.counts.total() == reported


@pytest.mark.parametrize(("episode", "is_partition"), [("_partition", True), ("_freeze", False), ("_one_way", False)])
def test_partition_counts_as_a_split_and_a_freeze_does_not(
    episode: str, is_partition: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key behind a frozen node or a blocked link may not be denied, however long the fault lasts."""
    split: list[bool] = []

    @nemesis_test
    async def run(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
        await machines.place(NODES)
        monkeypatch.setattr(Oracle, "split", lambda oracle: split.append(bool(machines.network._faults.islands)))
        monkeypatch.setattr("chord.sim.nemesis.EPISODE_S", (0.1, 0.1))
        with watch.over(machines):
            await getattr(nemesis, episode)()

    run()
    assert split == ([True] if is_partition else [])


@nemesis_test
async def test_blackout_needs_a_ring_that_has_joined(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """A node that has not joined does not return, so the founder would stay alone."""
    founder = await machines.start(join=())
    await founder.ready()
    joiners = [await machines.start(join=[founder]) for _ in range(NODES - 1)]
    await nemesis._blackout()
    assert machines.nodes == [founder, *joiners]
    assert watch.counts["action blackout"] == 0


@nemesis_test
async def test_founder_that_counts_as_dead_is_a_false_alarm(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """A founder has no former self, so every verdict that it is dead is wrong."""
    founder = await machines.start(join=())
    nemesis.on_event(PeerChanged(founder.address, "dead", f"{founder.address}: no answer"))
    assert watch.counts["action false alarm"] == 1
    watch.broken = None


@nemesis_test
async def test_adjacent_joiners_take_no_id_of_a_member(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """A joiner between two adjacent members could take the id of a frozen member, which returns later."""
    ids = [*range(0, 8), 1 << 100, 1 << 159]
    await machines.place(NODES, ids=ids)
    for _ in range(8):
        await nemesis._join_adjacent()
    points = [point for node in machines.nodes for point in node._host.vnodes]
    assert NODES < len(points) == len(set(points))


# -- returns ----------------------------------------------------------------------------------------


@nemesis_test
async def test_crashed_node_is_removed(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    await machines.place(NODES)
    await nemesis.schedule.end(machines[3], "crash")
    assert "n3" not in await names(machines)


@with_plan(RETURNING)
async def test_crashed_node_returns_with_its_disk(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    await machines.place(NODES)
    node = machines[3]
    await node.put("k", "v", w=1)
    disk, held = machines.disk("n3"), len(node._host.storage)
    await nemesis.schedule.end(node, "crash")
    assert "n3" in await names(machines)
    again = next(node for node in machines.nodes if node.name == "n3")
    assert again is not node
    assert machines.disk("n3") is disk
    assert len(again._host.storage) >= held


@with_plan(RETURNING)
async def test_blackout_ends_with_the_return_of_all_members(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    await machines.place(NODES)
    machines[1]._begin_leave()
    joiner = await machines.start(join=[machines[5]])
    nemesis._heal = healed  # type: ignore[method-assign]
    await nemesis._blackout()
    assert await names(machines) == {f"n{number}" for number in range(NODES)}
    assert not nemesis.schedule.is_returning(joiner)


@pytest.mark.slow
@with_plan(RETURNING)
async def test_leave_that_fails_is_followed_by_a_return(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    await machines.place(NODES)
    leaver = machines[2]
    leaver._handoff.count = lambda: 1  # type: ignore[method-assign]
    with watch.over(machines):
        await leaver.leave()
        assert leaver.state == "stopped"
        assert watch.counts["action leave in vain"] == 1
        assert leaver.name in await names(machines, 10.0)


@with_plan(RETURNING)
async def test_node_that_stops_in_the_second_phase_stays_down(
    nemesis: Nemesis, machines: Cluster, watch: Watch
) -> None:
    """In the second phase of a run, the nemesis starts no node."""
    await machines.place(NODES)
    nemesis.stop()
    nemesis.on_event(NodeStateChanged("stopped", machines[0].address))
    assert len(machines.nodes) == NODES


@pytest.mark.slow
@with_plan(RETURNING)
async def test_node_that_waits_for_its_disk_is_started_once(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    await machines.place(NODES)
    node, schedule = machines.nodes[3], nemesis.schedule
    machines.disk(node.name).hang()
    await schedule.kill(node)
    schedule.return_soon(node)
    await trio.sleep(5)
    workload = Workload(machines, random.Random(1), watch.complain)
    workload.oracle, workload.inventory = nemesis._oracle, nemesis._oracle.inventory
    hardships = Hardships(RETURNING, machines, workload, watch, schedule, healed)
    await hardships._back(node.name)
    assert schedule.is_coming_back(node.name)
    machines.disk(node.name).resume()
    assert len(await names(machines)) == NODES
    assert not schedule.is_coming_back(node.name)


@with_plan(RETURNING)
async def test_last_entry_node_of_a_joiner_does_not_leave(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """A joiner that is cut off may not have reached any entry node yet. It knows no other address."""
    await machines.place(NODES)
    schedule, (first, second, other) = nemesis.schedule, machines.nodes[:3]
    machines.network.partition(["n10"])
    joiner = await machines.start(join=[first, second])
    assert joiner.state == "starting"
    assert schedule.keeps_entry_nodes(first)
    await first.leave()
    assert not schedule.keeps_entry_nodes(second)
    assert schedule.keeps_entry_nodes(other)
    machines.network.heal()
    await joiner.ready()
    assert schedule.keeps_entry_nodes(second)


@pytest.mark.parametrize("is_last", [True, False])
def test_leave_during_an_episode_spares_the_last_entry_node(is_last: bool) -> None:
    async def run(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
        await machines.place(NODES)
        workload = Workload(machines, random.Random(1), watch.complain)
        hardships = Hardships(RETURNING, machines, workload, watch, nemesis.schedule, healed)
        nemesis.schedule.keeps_entry_nodes = lambda node: not is_last  # type: ignore[method-assign]
        nemesis.schedule.join = AsyncMock()  # type: ignore[method-assign]
        await hardships._last(60.0)
        assert ("action leave" in watch.counts) is not is_last

    with_plan(RETURNING)(run)()


@with_plan(RETURNING)
async def test_node_that_ends_at_its_start_stays_dead(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    await machines.place(NODES)
    node = machines.nodes[3]
    await nemesis.schedule.kill(node)
    nemesis.schedule.is_back(node)
    assert nemesis._oracle.inventory.dead() == [node.name]


@with_plan(RETURNING)
async def test_write_in_flight_when_its_node_stops_counts_as_made(
    nemesis: Nemesis, machines: Cluster, watch: Watch
) -> None:
    """The oracle reads the disk after the end of the node, which may write until then."""
    await machines.place(NODES)
    node, oracle = machines.nodes[3], nemesis._oracle
    model = oracle.models[b"k"] = KeyModel(b"k", node._host.circle.hash(b"k"))
    put = model.begin("put")
    model.sent(put, b"1" * 16)
    actor = node._host.storage.incarnation + bytes(8)
    record = Record(b"k", (ActorClock(actor, 1, (Version(put.value, put.op_id, 1),)),))
    model.saw(record, node.name, is_own=True)
    nemesis.stop()
    nemesis.on_event(NodeStateChanged("stopped", node.address))
    await node._host.storage.commit(Batch(puts=(record,)))
    await node.stop()
    assert [copy.record for copy in oracle.inventory.copies(b"k") if copy.host == node.name] == [record]
    assert list(put.dots) == [(actor, 1)]


@pytest.mark.parametrize("does_return", [False, True])
def test_machine_that_left_may_join_again_at_its_address(does_return: bool) -> None:
    @with_plan(PLAN)
    async def main(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
        await machines.place(NODES)
        nemesis.schedule._do_leavers_return = does_return
        leaver, before = machines.nodes[3], set(machines._vnodes())
        await leaver.leave()
        await nemesis.schedule.join()
        again = machines.nodes[-1]
        assert (again.name == leaver.name, again.address == leaver.address) == (does_return, does_return)
        await again.ready()
        assert (set(machines._vnodes()) == before) is does_return
        assert watch.counts[SITUATION + LEAVER_BACK] == does_return
        await nemesis.schedule.join()
        assert machines.nodes[-1].name not in (leaver.name, again.name)

    main()

"""The nemesis keeps to the failure assumption, and to what a schedule may contain: each time it once did not."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable

import trio
from worlds import in_order, only, virtual

from chord.config import RingConstants
from chord.events import Event, PeerChanged
from chord.sim.cluster import Cluster, cluster
from chord.sim.ledger import Ledger
from chord.sim.messages import MessageNetwork
from chord.sim.nemesis import Nemesis
from chord.sim.plan import draw
from chord.sim.watch import Watch

NODES = 10
PLAN = draw(1, nodes=NODES, successors=3, fidelity="messages", faults=("silent", "blackout"))


async def healed() -> None:
    """Nothing to wait for."""


def nemesis_test(test: Callable[[Nemesis, Cluster, Watch], Awaitable[None]]) -> Callable[[], None]:
    async def wrapper() -> None:
        watch = Watch("here", PLAN.successors)
        ring = RingConstants(successors=PLAN.successors)
        async with cluster(seed=1, ring=ring, timing=PLAN.timing, network=MessageNetwork(1), observe=watch) as machines:
            ledger = Ledger(machines, random.Random(1), watch.complain, constants=ring)
            async with trio.open_nursery() as nursery:
                nemesis = Nemesis(PLAN, machines, ledger, watch, nursery, healed)
                await test(nemesis, machines, watch)
                watch.raise_if_broken()

    wrapper.__name__ = test.__name__
    return virtual(wrapper)


@nemesis_test
async def test_what_the_dead_said_last_counts_as_copied(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """Its asker has a longer list of its own; the answer replaces it, and must not name only those that die now."""
    await machines.place(NODES)
    asker, head, new, dead, *_ = in_order(machines)
    await nemesis.deaths.kill(dead, is_silent=True)
    await trio.sleep(PLAN.timing.timeout_cap_s)
    ring = only(asker).ring
    ring.successors = (only(head).me, only(dead).me, *ring.successors[-1:])  # it has not heard of the new one yet
    only(head).ring.successors = (only(new).me, only(dead).me, *ring.successors[-1:])
    assert nemesis.deaths.may_go(new)
    assert nemesis.deaths.may_go(head)
    await nemesis.deaths.kill(head)
    assert not nemesis.deaths.may_go(new), "the answer of the head may be under way"
    await trio.sleep(PLAN.timing.timeout_cap_s + 0.1)
    assert nemesis.deaths.may_go(new)


@nemesis_test
async def test_verdicts_of_the_dead_do_not_count(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """A client that goes on asking a dead node gets no answer: that is nobody's judgment."""
    await machines.place(NODES)
    dead, living, *_ = in_order(machines)
    verdicts: list[Event] = []
    watch.on_event = verdicts.append
    with watch.over(machines):
        living.host.peers.has_left(dead.address)
        assert len(verdicts) == 1
        await machines.kill(dead)
        verdicts.clear()
        dead.host.peers.has_left(living.address)
        assert verdicts == []


@nemesis_test
async def test_no_blackout_before_there_is_a_ring(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """Who has not joined does not come back: the founder would be alone for good."""
    founder = await machines.start(join=())
    await founder.ready()
    joiners = [await machines.start(join=[founder]) for _ in range(NODES - 1)]
    await nemesis._blackout()
    assert machines.nodes == [founder, *joiners]
    assert watch.counts["action blackout"] == 0


@nemesis_test
async def test_a_founder_is_never_taken_for_its_former_self(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """It has none: whoever takes it for dead is wrong, however young it is."""
    founder = await machines.start(join=())
    nemesis.on_event(PeerChanged(founder.address, "dead", f"{founder.address}: no answer"))
    assert watch.counts["action false alarm"] == 1
    watch.broken = None


@nemesis_test
async def test_two_who_join_side_by_side_take_nobodys_id(nemesis: Nemesis, machines: Cluster, watch: Watch) -> None:
    """They may be drawn between two who have: with a frozen one of these, its id would be another's when it goes on."""
    ids = [*range(0, 8), 1 << 100, 1 << 159]
    await machines.place(NODES, ids=ids)
    for _ in range(8):
        await nemesis._join_adjacent()
    points = [point for node in machines.nodes for point in node.host.vnodes]
    assert NODES < len(points) == len(set(points))

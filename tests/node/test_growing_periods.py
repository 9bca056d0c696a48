"""Periods that grow while nothing changes, and fall back on news."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import msgspec
import pytest
import trio

from chord import events, testing
from chord.config import PRESETS, Timing
from chord.errors import ConfigError
from chord.ids import Arc, Contact, Point
from chord.net.timers import Timers
from chord.node import Node
from chord.node.periodic import QUIET_ROUNDS, Timetable
from chord.testing.rings import TestRing
from chord.wire.messages import PointersChanged
from tests.support.rings import in_order, only, virtual

TIMING = msgspec.structs.replace(PRESETS["local"], period_growth_max=8.0)
PERIOD_S = TIMING.stabilize_s
GROWN_S = TIMING.period_growth_max * PERIOD_S
CALM_S = 2 * QUIET_ROUNDS * GROWN_S  # then every period has grown as far as it can
VNODE = Point(7)
PEER = Contact(Point(9), "n9:1")


def growth(node: Node) -> float:
    return node._maintenance.timetable.growth


async def calm(ring: TestRing) -> None:
    """Wait until the periods of all nodes have grown."""
    await trio.sleep(CALM_S)
    assert {growth(node) for node in ring.nodes} == {TIMING.period_growth_max}


@virtual
async def test_period_without_news_grows_and_news_returns_it() -> None:
    began: list[float] = []

    async def step() -> None:
        began.append(trio.current_time())

    table = Timetable(random.Random(1), lambda *failure: None, Timers(), growth_max=8.0, quiet_s=1.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, nursery.start_soon)
        table.add(VNODE, "step", step, period_s=1.0, deadline_s=20)
        await trio.sleep(400)
        pauses = [later - earlier for earlier, later in pairwise(began)]
        assert max(pauses[:3]) <= 1.5
        assert max(pauses) <= 12
        assert 6 < sum(pauses[-20:]) / 20 < 10
        table.fall_back()
        news_at = trio.current_time()
        await trio.sleep(4)
        after = [at for at in began if at > news_at]
        assert after[0] - news_at <= 1
        assert len(after) >= 3
        nursery.cancel_scope.cancel()


@virtual
async def test_step_hurried_again_and_again_runs_eight_times_a_period() -> None:
    began: list[float] = []

    async def step() -> None:
        began.append(trio.current_time())

    table = Timetable(random.Random(1), lambda *failure: None, Timers())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, nursery.start_soon)
        periodic = table.add(VNODE, "step", step, period_s=8.0, deadline_s=20)
        for _ in range(160):
            periodic.hurry()
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    assert 15 <= len(began) <= 17


ARC = Arc(Point(1), Point(2))
NEWS = (
    events.PeerChanged("n1:1", "suspect", "no answer"),
    events.ConnectionClosed("n1:1", "connection reset"),
    events.SuccessorAdopted(VNODE, PEER, None),
    events.ListCopied(VNODE, PEER),
    events.PredecessorAdopted(VNODE, PEER, None),
    events.HeadForgotten(VNODE, PEER),
    events.ArcGained(VNODE, ARC, 1, "taken_over"),
    events.ArcLost(VNODE, ARC, 1, "shrunk"),
    events.StepFailed(VNODE, "stabilize", "timeout"),
    events.SplitFound(VNODE, PEER, PEER, PEER),
    events.FingerChanged(VNODE, 1, 2, PEER),
    events.RecordsDamaged("n0:1", 1),
)
ROUTINE = (
    events.StepDone(VNODE, "stabilize"),
    events.StepAborted(VNODE, "stabilize"),
    events.ConnectionClosed("n1:1", events.DRAINED),
    events.ConnectionClosed("", "closed by the peer"),
    events.ConnectionOpened("", "control", False),
)


@virtual
async def test_every_kind_of_news_returns_the_periods() -> None:
    async with testing.open_ring(5, seed=1, timing=TIMING) as ring:
        await calm(ring)
        node = ring[0]
        for routine in ROUTINE:
            node._host.events.emit(routine)
            assert growth(node) == TIMING.period_growth_max, routine
        messages: list[Callable[[], object]] = [
            lambda: node._parts[only(node).id].stabilizer.on_pointers_changed(PointersChanged()),
            lambda: only(node).host.news(),
            lambda: node._parts[only(node).id].repair.fell_behind("n1:1"),
            lambda: node._parts[only(node).id].stabilizer.remember_unreachable(PEER),
        ]
        for event in NEWS:
            await _grow(node)
            node._host.events.emit(event)
            assert growth(node) == 1, event
        for send in messages:
            await _grow(node)
            send()
            assert growth(node) == 1


async def _grow(node: Node) -> None:
    node._maintenance.timetable._news_at = trio.current_time() - CALM_S
    assert growth(node) == TIMING.period_growth_max


async def healed_s(ring: TestRing, victim: Node, *, silently: bool) -> float:
    await ring.kill(victim, silently=silently)
    return await ring.converged()


@pytest.mark.slow
@virtual
async def test_kill_in_a_calm_ring_heals_as_fast_as_with_fixed_periods() -> None:
    """The end of a stream is news at both neighbours, and they tell theirs."""
    took = {}
    for name, timing in (("grown", TIMING), ("fixed", msgspec.structs.replace(TIMING, period_growth_max=1.0))):
        async with testing.open_ring(8, seed=3, timing=timing) as ring:
            await trio.sleep(CALM_S)
            took[name] = await healed_s(ring, ring[4], silently=False)
    assert took["grown"] <= took["fixed"] + PERIOD_S


@virtual
async def test_silent_death_in_a_calm_ring_heals_within_a_grown_period_more() -> None:
    async with testing.open_ring(8, seed=3, timing=TIMING) as ring:
        await calm(ring)
        took = await healed_s(ring, ring[4], silently=True)
    dead_s = TIMING.dead_misses * TIMING.timeout_stranger_s
    assert took <= 1.5 * GROWN_S + dead_s + 8 * PERIOD_S


@virtual
async def test_change_reaches_neighbours_with_grown_periods_at_once() -> None:
    """A join changes the lists of the nodes before it, one after the other."""
    async with testing.open_ring(8, seed=5, timing=TIMING) as ring:
        await calm(ring)
        node = await ring.start()
        await node.ready()
        assert await ring.converged() <= 2 * PERIOD_S


@virtual
async def test_node_that_waits_for_an_unreachable_one_keeps_its_periods() -> None:
    """Its marks, its hints and its self-lookups depend on rounds."""
    async with testing.open_ring(5, seed=6, timing=TIMING) as ring:
        await calm(ring)
        victim = in_order(ring)[2]
        await ring.kill(victim)
        await ring.converged()
        await trio.sleep(CALM_S)
        vnodes = {node: only(node) for node in ring.nodes}
        waiting = [n for n, v in vnodes.items() if v.preference_list.unreachable() or v.ownership.marks]
        assert waiting
        assert {growth(node) for node in waiting} == {1.0}


@pytest.mark.parametrize("wrong", [0.5, 0.0, -1.0, float("inf"), float("nan")])
def test_growth_below_one_or_without_bound_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="period_growth_max"):
        Timing(period_growth_max=wrong)


@virtual
async def test_periods_stay_short_enough_to_keep_streams_open() -> None:
    """With the preset wan, a stream must not be closed as unused between two rounds."""
    timing = msgspec.structs.replace(PRESETS["wan"], period_growth_max=8.0)
    async with testing.open_ring(1, timing=timing) as ring:
        largest = ring[0]._maintenance.growth_max
        assert 1 < 3 * largest * PRESETS["wan"].stabilize_s <= ring[0]._host.limits.idle_s


@pytest.mark.slow
@pytest.mark.parametrize("preset", PRESETS)
def test_removed_files_are_noticed_within_a_minute(preset: str) -> None:
    """`docs/explanation/guarantees.md` promises it, also of a calm ring."""
    looked: list[float] = []

    async def look() -> None:
        looked.append(trio.current_time())

    async def main() -> None:
        async with testing.open_ring(3, seed=1, timing=PRESETS[preset]) as ring:
            ring[0]._maintenance.keep_watch(ring[0].contact, look)
            await trio.sleep(3600)
            assert growth(ring[0]) > 2

    testing.run(main, seed=1)
    assert max(later - earlier for earlier, later in pairwise(looked)) <= 60

"""Stopped processes, late requests, wrong clocks, refused files and copied disks in the simulator."""

from __future__ import annotations

import random
from unittest import mock
from unittest.mock import AsyncMock

import pytest
import trio

from chord.errors import DuplicateId
from chord.membership.join import Membership
from chord.sim.cluster import Cluster, cluster
from chord.sim.lateness import LATE_S, Lateness
from chord.sim.messages import MessageNetwork
from chord.sim.plan import THEMES, draw
from chord.sim.run import Run
from chord.testing.runner import stop_tasks, wake_tasks
from chord.wire.messages import Get, GetReply, Ping, PingReply
from tests.support.rings import virtual


async def three(ring: Cluster) -> None:
    for _ in range(3):
        await (await ring.start(join=ring.nodes[:1])).ready()
    await ring.converged()


# -- stopped processes ----------------------------------------------------------------------------


@virtual
async def test_stopped_tasks_run_nothing_until_they_wake() -> None:
    steps: list[float] = []

    async def child() -> None:
        while True:
            await trio.sleep(1)
            steps.append(trio.current_time())

    async def process() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(process, name="p")
        await trio.sleep(2.5)
        stop_tasks("p")
        await trio.sleep(10)
        assert len(steps) == 2
        wake_tasks("p")
        await trio.sleep(2)
        assert steps[2:] == [12.5, 13.5, 14.5]
        nursery.cancel_scope.cancel()


@virtual
async def test_stopped_node_does_not_answer_and_keeps_its_state() -> None:
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        first, other, _ = ring.nodes
        ring.stop(other)
        rounds = [vnode.rounds for vnode in other._host.vnodes.values()]
        with trio.move_on_after(1) as patience:
            await first._host.peers.call(other.address, Ping(), PingReply)
        assert patience.cancelled_caught
        await trio.sleep(20)
        assert [vnode.rounds for vnode in other._host.vnodes.values()] == rounds
        assert other.state == "ready"
        ring.wake(other.name)
        await ring.converged()
        assert isinstance(await first._host.peers.call(other.address, Ping(), PingReply), PingReply)


@virtual
async def test_stopped_node_ends_when_it_is_killed() -> None:
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        node = ring.nodes[1]
        ring.stop(node)
        await ring.kill(node)
        assert node.closed.is_set()
        assert ring.stopped == {}


# -- requests -------------------------------------------------------------------------------------


def test_lateness_draws_the_given_shares() -> None:
    lateness = Lateness(random.Random(1), late=0.2, twice=0.1)
    drawn = [lateness.draw() for _ in range(2000)]
    assert 300 < sum(first > 0 for first, _ in drawn) < 500
    assert 100 < sum(again is not None for _, again in drawn) < 220
    assert all(LATE_S[0] <= first <= LATE_S[1] for first, _ in drawn if first)
    assert lateness.stop() == LATE_S[1]
    assert lateness.draw() == (0.0, None)
    assert lateness.stop() == 0.0


@virtual
async def test_request_read_after_its_deadline_is_not_begun() -> None:
    network = MessageNetwork(1)
    async with cluster(network=network, sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        first, other, _ = ring.nodes
        ring.stop(other)
        begun: list[object] = []
        calls = network.at_host(other.name)
        assert calls is not None
        calls.serve(lambda to, request, caller: begun.append(request) or PingReply())
        asked = Get(b"late")
        with trio.move_on_after(0.2):
            await first._host.peers.call(other.address, asked, GetReply)
        await trio.sleep(1)
        ring.wake(other.name)
        await trio.sleep(0.5)
        assert begun
        assert asked not in begun


# -- clocks, files, disks -------------------------------------------------------------------------


@virtual
async def test_clock_drifts_and_can_be_set() -> None:
    async with cluster(network=MessageNetwork(1)) as ring:
        began = ring.wall_now_ms("n0")
        ring.drifts["n0"] = 0.1
        await trio.sleep(10)
        assert ring.wall_now_ms("n0") == began + 11_000
        ring.skew("n0", -5)
        assert ring.wall_now_ms("n0") == began + 6_000


@virtual
async def test_node_runs_while_its_identity_file_is_refused() -> None:
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        node = ring.nodes[0]
        ring.disk(node.name).refuse_identity()
        await ring.kill(ring.nodes[2])
        await trio.sleep(20)
        assert node._host.counters["identity_unsaved"] > 0
        assert node.state == "ready"


@virtual
async def test_ring_refuses_a_copied_directory() -> None:
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        ring.clone(ring.nodes[0].name, "copy")
        twin = await ring.start(join=ring.nodes[1:], name="copy")
        with pytest.raises(DuplicateId):
            await twin.ready()


@virtual
async def test_copied_directory_is_refused_at_the_former_address() -> None:
    """While a whole ring restarts, its members may not know yet at which address the id stands."""
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        ring.clone(ring.nodes[0].name, "copy")
        with mock.patch.object(Membership, "_refuse_if_alive", AsyncMock()):
            twin = await ring.start(join=ring.nodes[1:], name="copy")
            with trio.fail_after(20), pytest.raises(DuplicateId):
                await twin.ready()


@virtual
async def test_node_returns_at_another_address_with_its_records() -> None:
    async with cluster(network=MessageNetwork(1), sync_delay=lambda rng: 0.001) as ring:
        await three(ring)
        await ring.nodes[0].put(b"k", b"v")
        node = ring.nodes[2]
        points, name = list(node._host.vnodes), node.name
        await ring.kill(node)
        back = await ring.start(join=ring.nodes[:1], name=name, listen="elsewhere:1")
        await back.ready()
        assert (back.address, list(back._host.vnodes)) == ("elsewhere:1", points)
        await ring.converged()
        assert (await back.get(b"k")).value == b"v"


# -- runs -----------------------------------------------------------------------------------------

DRAWN = [theme for theme in THEMES if theme != "mixed"]


@pytest.mark.thorough  # the swarm draws every theme in each run of CI
@pytest.mark.parametrize("theme", DRAWN)
def test_run_with_a_theme_holds(theme: str) -> None:
    report = Run(draw(4, theme=theme)).run()
    assert report.counts[f"situation theme {theme}"] == 1
    assert report.counts["client put ok"] > 100

"""The ring protocol on real nodes in memory: cases that the papers omit, and bugs of the original."""

from __future__ import annotations

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, RingConstants
from chord.errors import DuplicateId, OtherRing
from chord.ids import Circle, Point
from chord.testing.rings import TestRing
from chord.wire.messages import Contact, Ping, PingReply
from tests.support.rings import get, in_order, only, put, virtual

WORKED_EXAMPLE = (10, 42, 80, 120, 160, 200, 230)


def successors(ring: TestRing) -> dict[int, list[int]]:
    return {int(p): [int(c.id) for c in v.ring.successors] for p, v in ring._vnodes().items()}


@virtual
async def test_ring_of_the_worked_example_has_its_fingers_and_path() -> None:
    """m = 8: node 80's fingers are 120 six times, 160, 230, and lookup(190) from 80 goes 80, 160, 200."""
    async with testing.open_ring(7, bits=8, ids=WORKED_EXAMPLE, seed=1) as ring:
        await trio.sleep(10)
        node = next(n for n in ring.nodes if only(n).id == 80)
        entries = [only(node).fingers.entry(i) for i in range(8)]
        assert [int(e.id) for e in entries if e] == [120] * 6 + [160, 230]
        trace = await node._lookups.find(Point(190), only(node).me)
        assert [int(h.contact.id) for h in trace.hops] == [80, 160]
        assert int(trace.owner.id) == 200
        assert trace.path_length == 1
        assert [h.via.kind for h in trace.hops] == ["start", "finger"]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6])
def test_small_ring_becomes_ideal_and_answers(n: int) -> None:
    """Rings of 1, 2, r and r + 1 nodes (r = 4): each list has every other node once."""

    async def main() -> None:
        async with testing.open_ring(n, seed=n) as ring:
            for vnode in ring._vnodes().values():
                assert len(vnode.ring.successors) == max(1, min(4, n - 1))
            for number, node in enumerate(ring.nodes):
                await put(node, b"key-%d" % number, b"x")
            for number in range(n):
                assert await get(ring[0], b"key-%d" % number) == (b"x",)
            assert await get(ring[0], b"absent") == ()

    testing.run(main, seed=n)


@pytest.mark.slow
@pytest.mark.parametrize("n", [40, pytest.param(120, marks=pytest.mark.thorough)])
def test_nodes_that_start_at_once_form_an_ideal_ring(n: int) -> None:
    async def main() -> None:
        async with testing.open_ring(n, seed=3, wait=False) as ring:
            assert len(ring) == n
            await ring.converged(within_s=30)
            assert not ring.violations()

    testing.run(main, seed=n)


@virtual
async def test_killed_node_is_dropped_and_its_arc_taken_over() -> None:
    async with testing.open_ring(16, seed=4) as ring:
        await ring.kill(ring[5])
        took = await ring.converged()
        assert took < 1.5 + 10 * 0.25, "10 rounds after the suspicion time"
        assert ring.counts["HeadForgotten"]


@pytest.mark.slow
@virtual
async def test_ring_survives_the_death_of_r_minus_1_adjacent_nodes() -> None:
    """If r - 1 adjacent successors die, the last entry of the list keeps the ring."""
    async with testing.open_ring(16, seed=5) as ring:
        for node in in_order(ring)[4:7]:
            await ring.kill(node)
        await ring.converged()
        assert not ring.violations()


@pytest.mark.slow
@virtual
async def test_unreachable_machine_is_suspect_and_then_dead() -> None:
    async with testing.open_ring(8, seed=6) as ring:
        await ring.kill(ring[3], silently=True)
        await ring.converged()
        assert ring.counts["PeerChanged"]


@virtual
async def test_last_node_without_reachable_neighbours_denies_nothing() -> None:
    """A node without reachable neighbours is isolated, not alone. It serves its records and denies no key."""
    async with testing.open_ring(2, seed=7) as ring:
        survivor, other = ring[0], ring[1]
        await put(survivor, b"a", b"1")
        await ring.kill(other)
        await ring.converged()
        assert only(survivor).ring.is_isolated
        joiner = await ring.start(join=[survivor])
        await joiner.ready()
        await ring.converged()
        assert not only(survivor).ring.is_isolated


@virtual
async def test_last_node_after_all_leaves_is_alone_and_not_isolated() -> None:
    async with testing.open_ring(3, seed=8) as ring:
        await put(ring[0], b"a", b"1")
        for node in ring.nodes[1:]:
            await node.leave()
        await ring.converged()
        assert not only(ring[0]).ring.is_isolated
        assert await get(ring[0], b"a") == (b"1",)
        assert await get(ring[0], b"absent") == ()


@virtual
async def test_node_restarted_before_its_detection_rejoins() -> None:
    async with testing.open_ring(8, seed=9) as ring:
        before = successors(ring)
        again = await ring.restart(ring[4])
        await again.ready()
        await ring.converged()
        assert successors(ring) == before


@virtual
async def test_node_restarted_after_it_was_dropped_rejoins() -> None:
    async with testing.open_ring(8, seed=10) as ring:
        old = ring[4]
        await ring.kill(old)
        await ring.converged()
        again = await ring.start(join=(), name=old.config.name)
        await again.ready()
        await ring.converged()
        assert len(ring) == 8


@pytest.mark.slow
@virtual
async def test_nodes_that_all_restart_at_once_form_the_ring_again() -> None:
    async with testing.open_ring(8, seed=11) as ring:
        before = successors(ring)
        nodes = list(ring.nodes)
        for node in nodes:
            await ring.kill(node)
        for node in nodes:
            await ring.start(join=(), name=node.config.name)
        for node in ring.nodes:
            await node.ready()
        assert await ring.converged() < 5
        assert successors(ring) == before
        assert len({node.ring_id for node in ring.nodes}) == 1


@virtual
async def test_restarted_node_without_others_starts_no_new_ring() -> None:
    async with testing.open_ring(3, seed=12) as ring:
        nodes = list(ring.nodes)
        ring_id = nodes[0].ring_id
        for node in nodes:
            await ring.kill(node)
        again = await ring.start(join=(), name=nodes[1].config.name)
        await again.ready()
        assert again.ring_id == ring_id
        assert only(again).ring.is_isolated
        for node in (nodes[0], nodes[2]):
            await (await ring.start(join=(), name=node.config.name)).ready()
        await ring.converged()
        assert len(ring) == 3


@pytest.mark.slow
@virtual
async def test_split_ring_is_merged_by_self_lookups() -> None:
    """Both halves of a split are Ideal rings. Stabilization alone would never merge them."""
    async with testing.open_ring(10, seed=13) as ring:
        half = [f"n{i}" for i in range(5)]
        ring.network.partition(half, reset=True)
        await trio.sleep(20)
        assert ring.counts["HeadForgotten"]
        ring.network.heal()
        await ring.converged(within_s=120)
        assert ring.counts["SplitFound"]


@pytest.mark.slow
@virtual
async def test_loopy_ring_is_repaired_by_self_lookups() -> None:
    """The successors run around the circle twice. Plain stabilization would keep such a ring."""
    async with testing.open_ring(9, seed=14) as ring:
        nodes = in_order(ring)
        for index, node in enumerate(nodes):  # step 2 on an odd number of vnodes
            vnode = only(node)
            entries = [only(nodes[(index + 2 * k) % 9]).me for k in range(1, 5)]
            vnode.ring.successors = vnode.ring._copied(tuple(entries))
            vnode.ring.predecessor = only(nodes[(index - 2) % 9]).me
        assert any(v.invariant == "OrderedRing" for v in ring.violations())
        took = await ring.converged(within_s=60)
        assert took < 60


@pytest.mark.slow
@virtual
async def test_vnodes_of_a_few_nodes_form_one_ring() -> None:
    async with testing.open_ring(5, seed=15, vnodes=4) as ring:
        assert len(ring._vnodes()) == 20
        for number in range(50):
            await put(ring[number % 5], b"key-%d" % number, b"v")
        await ring[2].leave()
        await ring.converged()
        assert len(ring._vnodes()) == 16
        for number in range(50):
            assert await get(ring[0], b"key-%d" % number) == (b"v",)


@virtual
async def test_node_with_the_id_of_another_is_refused() -> None:
    async with testing.open_ring(3, bits=8, ids=(10, 80, 160), seed=16) as ring:
        twin = await ring.start(id=80)
        with pytest.raises(DuplicateId):
            await twin.ready()
        assert not ring.violations()


@pytest.mark.parametrize(
    "constants",
    [RingConstants(successors=5), RingConstants(bits=64, successors=4), RingConstants(successors=4, cluster="other")],
    ids=["r", "bits", "cluster"],
)
def test_node_with_other_ring_constants_is_refused(constants: RingConstants) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=17) as ring:
            stranger = await ring.start(ring=constants)
            with pytest.raises(OtherRing):
                await stranger.ready()
            await ring.converged()

    testing.run(main)


@virtual
async def test_rings_with_other_ring_ids_never_merge() -> None:
    """A new ring has a new id, so another ring at a known address does no harm."""
    async with testing.open_ring(3, seed=18) as ring:
        await (await ring.start(join=(), name="founder")).ready()
        founder = ring[3]
        assert founder.ring_id != ring[0].ring_id
        with pytest.raises(OtherRing):
            await ring[0]._host.peers.call(only(founder).me, Ping(), PingReply)


@pytest.mark.slow
@virtual
async def test_two_nodes_with_equal_periods_do_not_livelock() -> None:
    """With equal delays and periods, abort-if-observed must not livelock."""
    network = testing.MemoryNetwork(19, delay=lambda rng, a, b: 0.01)
    timing = msgspec.structs.replace(PRESETS["local"], period_growth_max=1.0)
    async with testing.open_ring(2, seed=19, network=network, timing=timing) as ring:
        await trio.sleep(30)
        rounds = [v.rounds for v in ring._vnodes().values()]
        assert min(rounds) > 30 / 0.25 / 3


@pytest.mark.slow
@virtual
async def test_ring_heals_under_a_load_of_lookups() -> None:
    """Vnodes verify the hints of a lookup before they adopt them, so lookups do not count as observed."""
    async with testing.open_ring(12, seed=20) as ring:
        stop = trio.Event()

        async def ask(number: int) -> None:
            while not stop.is_set():
                node = ring.nodes[number % len(ring.nodes)]
                with trio.move_on_after(2):
                    await node._lookups.find(Circle(160).hash(b"%d" % number), only(node).me)
                await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            for number in range(25):
                nursery.start_soon(ask, number)
            await trio.sleep(1)
            await ring.kill(ring[4])
            took = await ring.converged()
            stop.set()
        assert took < 1.5 + 10 * 0.25


def test_circle_hex_keeps_leading_zeros() -> None:
    circle = Circle(160)
    assert circle.hex(5) == "0" * 39 + "5"
    assert Contact(Point(5), "x:1").id == 5


@pytest.mark.slow
@virtual
async def test_vnode_isolated_for_down_out_s_is_alone() -> None:
    async with testing.open_ring(2, seed=21) as ring:
        await ring.kill(ring[1])
        await ring.converged()
        assert only(ring[0]).ring.is_isolated
        await trio.sleep(ring[0].config.timing.down_out_s + 5)
        assert not only(ring[0]).ring.is_isolated
        assert await get(ring[0], b"absent") == ()

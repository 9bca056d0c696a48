"""Regressions: known faults of Chord from the literature, and faults that our simulator found.

Cases of one subject (small rings, restarts, adjacent joiners and leavers, a lost acknowledgement, …) are among the
tests of that subject.
"""

from __future__ import annotations

import math
from itertools import islice
from unittest import mock

import msgspec
import pytest
import trio

from chord import events, testing
from chord.config import PRESETS
from chord.errors import DuplicateId, OwnerDown
from chord.events import Emitted
from chord.ids import Arc, Circle, Point, between
from chord.node import Node
from chord.sim.observer import Watch
from chord.testing.rings import TestRing
from chord.verify import invariants
from chord.wire.messages import Contact, FindNeighboursReply, FindNext, FindNextReply, Notify
from tests.models import original
from tests.models.original import HISTORIES, Entry
from tests.support.rings import get, in_order, only, owner, patiently, put, virtual

# -- Zave 2012: seven properties were claimed as invariants, and the protocol breaks each of them -------


@pytest.mark.parametrize("name", HISTORIES)
def test_published_protocol_violates_its_claimed_invariants(name: str) -> None:
    """Zave 2012: the published protocol breaks each of the seven properties of PODC 2002."""
    holds = original.PROPERTIES[name]
    state: dict[int, Entry] = original.ideal((0, 20, 40), 2)
    for step in HISTORIES[name]:
        assert holds(state), f"broken before {step}"
        after = original.published(state, step)
        assert after != state, f"{step} does nothing"
        state = after
    assert not holds(state)


@pytest.mark.parametrize("name", HISTORIES)
def test_corrected_protocol_keeps_the_invariant(name: str) -> None:
    """Our protocol goes through the same joins, failures and rounds. Every invariant holds, and the ring heals."""

    def broken(state: dict[int, Entry]) -> set[str]:
        found = {v.invariant for v in invariants.violations(original.snapshot(state), 2)}
        return found - {"SufficientPrincipals"}  # not all members know a new one yet

    state: dict[int, Entry] = original.ideal((0, 20, 40), 2)
    for step in HISTORIES[name]:
        state = original.corrected(state, step)
        assert broken(state) == set(), step
    for _ in range(8):
        for n in sorted(state):
            for what in ("reconcile", "stabilize", "notify"):
                state = original.corrected(state, (what, n))
                assert broken(state) == set()
    assert invariants.waiting(original.snapshot(state), 2) == []


# -- Zave 2017, Fig. 3 --------------------------------------------------------------------------------


def test_ring_without_enough_principals_can_split() -> None:
    """Zave 2017, figure 3: without enough principals, one step splits a ring in which other invariants hold."""
    state = {
        0: Entry(30, (10, 20)),
        10: Entry(0, (40, 0)),  # passes over 20 and 30; 40 is dead
        20: Entry(0, (0, 10)),  # passes over 30
        30: Entry(20, (40, 20)),  # passes over 0 and 10
    }
    broken = {v.invariant for v in invariants.violations(original.snapshot(state), 2)}
    assert broken == {"SufficientPrincipals"}, "every other invariant holds"
    ring = original.ring_state(20, state[20], 2)
    assert ring.adopt_successor(original.at(30), [original.at(40), original.at(20)]), "a closer successor"
    state[20] = original.entry_of(ring)
    assert "AtMostOneRing" in {v.invariant for v in invariants.violations(original.snapshot(state), 2)}


# -- Scatter's two anomalies (SOSP 2011, section 2) -----------------------------------------------------

A, B, C, D = 10_000, 30_000, 50_000, 60_000


def by_id(ring: TestRing, point: int) -> Node:
    return next(node for node in ring.nodes if Point(point) in node._host.vnodes)


def keys_between(ring: TestRing, low: int, high: int, count: int) -> list[bytes]:
    circle = Circle(16)
    every = (f"key-{number}".encode() for number in range(100_000))
    return list(islice((key for key in every if circle.hash(key) in Arc(Point(low), Point(high))), count))


@virtual
async def test_two_owners_of_one_arc_become_one_without_losses() -> None:
    """D joins between A and B. B dies before C knows D, and C takes over. Both own (A, D] until D has joined."""
    frozen: list[Node] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, events.ArcGained) and event.vnode == 20_000 and not frozen:
            frozen.append(by_id(ring, 20_000))
            ring.network.freeze(frozen[0].name)  # its acknowledgement is lost, too

    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=1, observe=on_event, replicas=1) as ring:
        early, late = keys_between(ring, A, 20_000, 2)
        await put(ring[0], early, b"1")
        joiner = await ring.start(id=20_000, join=[by_id(ring, C)])
        with trio.fail_after(5):
            while not frozen:
                await trio.sleep(0.001)
        await ring.kill(by_id(ring, B))
        taker = by_id(ring, C)
        with trio.fail_after(20):
            while only(taker).ownership.start != A:
                await trio.sleep(0.1)
        assert only(joiner).ownership.arc == Arc(Point(A), Point(20_000))
        assert only(taker).ownership.arc == Arc(Point(A), Point(C)), "two owners: the anomaly"
        with pytest.raises(OwnerDown):
            await get(taker, early)
        await put(taker, late, b"2")
        ring.network.unfreeze(joiner.name)
        await joiner.ready()
        await ring.converged()
        assert only(taker).ownership.arc == Arc(Point(20_000), Point(C))
        await trio.sleep(3)
        assert await get(taker, early) == (b"1",)
        assert await get(taker, late) == (b"2",), "handed off by the other owner"
        assert owner(ring, late) is joiner


@virtual
async def test_newcomer_known_only_to_a_dead_vnode_is_not_skipped() -> None:
    """D joins between B and C, and B dies. A adopts C and does not know D, but C does. D is never denied."""
    joined = trio.Event()
    watch = Watch("anomaly", 4, on_event=lambda e: joined.set() if isinstance(e.event, events.RingJoined) else None)
    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=2, observe=watch) as ring:
        with watch.over(ring):
            key = keys_between(ring, B, 40_000, 1)[0]
            await put(ring[0], key, b"1")
            await ring.start(id=40_000, join=[by_id(ring, C)])
            await joined.wait()
            assert only(by_id(ring, A)).ring.successors[1].id == C, "A does not know of D yet"
            watch.note_death()
            await ring.kill(by_id(ring, B))
            for _ in range(40):
                assert await patiently(lambda: get(by_id(ring, A), key)) == (b"1",)
                await trio.sleep(0.05)
            await ring.converged()
            watch.raise_if_broken()
        assert owner(ring, key) is by_id(ring, 40_000)


# -- arithmetic of the circle ---------------------------------------------------------------------------


@virtual
async def test_arc_from_a_vnode_to_itself_is_the_whole_circle() -> None:
    """The arc from n to n is everything: a lone vnode owns every point, its own included."""
    assert all(between(x, y, x) == (x != y) for x in range(8) for y in range(8))
    async with testing.open_ring(1, bits=3, ids=[5], seed=3) as ring:
        vnode = only(ring[0])
        assert all(Point(p) in Arc(Point(5), Point(5)) for p in range(8))
        for point in range(8):
            assert vnode.ownership.is_owner(point)
            assert (await ring[0]._lookups.find(Point(point), vnode.me)).owner == vnode.me


@virtual
async def test_full_circle_has_arcs_of_one_point() -> None:
    """With adjacent ids, every arc is a single point."""
    async with testing.open_ring(8, bits=3, ids=list(range(8)), successors=3, seed=4) as ring:
        for node in ring.nodes:
            assert only(node).ownership.arc == Arc(Point((only(node).id - 1) % 8), only(node).id)
            for point in range(8):
                assert (await node._lookups.find(Point(point), only(node).me)).owner.id == point


@pytest.mark.slow
@virtual
async def test_closest_preceding_vnode_is_never_the_vnode_itself() -> None:
    """A hop offers only vnodes strictly between itself and the key, so no lookup can loop."""
    async with testing.open_ring(7, bits=8, ids=[10, 42, 80, 120, 160, 200, 230], successors=3, seed=5) as ring:
        await trio.sleep(10)
        for node in ring.nodes:
            me = only(node)
            for key in range(256):
                for tried in ((), (me.ring.successor.id,)):
                    step: FindNextReply = me.on_find_next(FindNext(Point(key), "classic", tried))
                    offered = [c.contact.id for c in step.candidates]
                    assert me.id not in offered or (step.final and key == me.id)
                    assert step.final or all(between(me.id, x, key) for x in offered)


# -- ids ------------------------------------------------------------------------------------------------


@virtual
async def test_two_joiners_with_one_id_become_one_member() -> None:
    """Two nodes join with one id at once. One becomes a member, and the other gets `DuplicateId`."""
    async with testing.open_ring(3, bits=8, ids=(10, 120, 200), seed=6) as ring:
        twins = [await ring.start(id=80) for _ in range(2)]
        outcomes: list[str] = []

        async def wait(node: Node) -> None:
            try:
                await node.ready()
                outcomes.append("in")
            except DuplicateId:
                outcomes.append("refused")

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for twin in twins:
                    nursery.start_soon(wait, twin)
        assert sorted(outcomes) == ["in", "refused"]
        await ring.converged()
        assert len(ring) == 4


@virtual
async def test_id_of_a_dead_node_is_free_again() -> None:
    """A node may join with the id of a dead node."""
    async with testing.open_ring(4, bits=8, ids=(10, 80, 120, 200), seed=7) as ring:
        await ring.kill(by_id(ring, 80))
        heir = await ring.start(id=80)
        with trio.fail_after(20):
            await heir.ready()
        await ring.converged()
        assert len(ring) == 4


# -- load -----------------------------------------------------------------------------------------------


async def killed_under_lookups(per_s: int) -> None:
    """Lookup replies are hints that no vnode adopts without a question. So they abort no step."""
    async with testing.open_ring(16, seed=8) as ring:
        stop = trio.Event()
        done = 0

        async def ask(number: int) -> None:
            nonlocal done
            due = trio.current_time() + number / per_s
            while not stop.is_set():
                await trio.sleep_until(due)
                due += 100 / per_s
                node = ring.nodes[number % len(ring)]
                with trio.move_on_after(2):
                    await node._lookups.find(Circle(160).hash(b"%d/%d" % (number, done)), only(node).me)
                    done += 1

        async with trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(ask, number)
            await trio.sleep(0.5)
            began, before = trio.current_time(), done
            for node in in_order(ring)[4:7]:
                await ring.kill(node)
            took = await ring.converged()
            await trio.sleep_until(began + 4)  # lookups that wait for the dead owner come later
            rate = (done - before) / (trio.current_time() - began)
            stop.set()
        assert took < 1.5 + 10 * 0.25
        assert rate > 0.75 * per_s
        assert not ring.violations()


@pytest.mark.slow
@pytest.mark.parametrize("per_s", [1000, pytest.param(5000, marks=pytest.mark.thorough)])
def test_ring_heals_under_thousands_of_lookups_a_second(per_s: int) -> None:
    testing.run(killed_under_lookups, per_s, seed=8)


# -- found by the simulator -------------------------------------------------------------------------------


@virtual
async def test_late_switch_makes_no_second_owner() -> None:
    """The giver counts an unreachable joiner as dead, and goes on. The late Switch must not count."""
    frozen: list[Node] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, events.TransferStarted) and event.to.id == 40_000 and not frozen:
            frozen.append(by_id(ring, 40_000))

    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=9, observe=on_event) as ring:
        giver = by_id(ring, C)
        keys = keys_between(ring, B, 40_000, 3)
        joiner = await ring.start(id=40_000, join=[ring[0]])
        while not frozen or only(giver).ownership.giving is None:
            await trio.sleep(0.0001)
        ring.network.freeze(joiner.name)  # the Switch is on its way
        with trio.fail_after(10):
            while only(giver).ownership.giving is not None:
                await trio.sleep(0.1)
        for key in keys:
            await put(giver, key, b"written meanwhile")
        ring.network.unfreeze(joiner.name)
        with trio.fail_after(20):
            while joiner.state != "ready":
                for key in keys:
                    found = await patiently(lambda k=key: get(giver, k))  # type: ignore[misc]
                    assert found == (b"written meanwhile",)
                await trio.sleep(0.005)
        await ring.converged()
        assert only(joiner).ownership.arc == Arc(Point(B), Point(40_000))
        for key in keys:
            assert await get(joiner, key) == (b"written meanwhile",)


@virtual
async def test_restarted_node_does_not_wait_for_a_dead_successor() -> None:
    """The successor of a node dies while the node is down. No vnode takes over before the node is back."""
    async with testing.open_ring(8, seed=10) as ring:
        node, behind = in_order(ring)[2:4]
        again = await ring.restart(node)
        await ring.kill(behind)
        with trio.fail_after(20):
            await again.ready()
        await ring.converged()
        assert len(ring) == 7


@pytest.mark.parametrize("n", [3, 8])
def test_adjacent_restarted_nodes_do_not_wait_for_each_other(n: int) -> None:
    """Two adjacent nodes restart in a running ring. Neither is a member that the other could ask."""

    async def main() -> None:
        async with testing.open_ring(n, seed=11) as ring:
            for node in in_order(ring)[:2]:
                await ring.kill(node)
                await ring.start(join=(), name=node.config.name)
            with trio.fail_after(20):
                for node in list(ring.nodes):
                    await node.ready()
            await ring.converged()
            assert len(ring) == n

    testing.run(main, seed=n)


@virtual
async def test_head_that_counts_as_dead_is_asked_before_it_is_dropped() -> None:
    """A head that counts as dead may have returned. A question decides before the list drops it."""
    forgotten: list[int] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, events.HeadForgotten) and event.vnode == A:
            forgotten.append(event.old.id)

    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], successors=2, seed=12, observe=on_event) as ring:
        first, second = by_id(ring, A), by_id(ring, C)
        await ring.kill(by_id(ring, B))
        while not forgotten:
            for _ in range(PRESETS["local"].dead_misses):
                first._host.peers.failure_detector.missed(second.address, trio.current_time(), False, "no answer")
            await trio.sleep(0.01)
        assert only(first).ring.successors[0].id == C
        await ring.converged()
    assert forgotten == [B]


@virtual
async def test_leaver_gives_its_list_to_a_predecessor_without_others() -> None:
    """With r = 2 a list has one entry after its head has died. If that entry leaves, its list is the rest."""
    lonely: list[float] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if trio.current_time() > began and only(first).ring.is_alone:
            lonely.append(trio.current_time())
        if isinstance(event, events.ArcLost) and event.vnode == B:
            only(first).ring.successors = (only(leaver).me,)  # it has just dropped a dead head

    began = math.inf
    timing = msgspec.structs.replace(PRESETS["local"], stabilize_s=5.0)  # its own rounds come too late
    async with testing.open_ring(
        4, bits=16, ids=[A, B, C, D], successors=2, timing=timing, seed=13, observe=on_event
    ) as ring:
        first, leaver = by_id(ring, A), by_id(ring, B)
        began = trio.current_time()
        await leaver.leave()
        assert [c.id for c in only(first).ring.successors][:1] == [C]
        await ring.converged()
    assert lonely == []


@virtual
async def test_arc_of_a_dead_neighbour_is_marked_after_a_joint_absence() -> None:
    """B and C die, and C returns unnoticed. C owns its arc again, and takes over the arc of B with a mark."""
    gained: list[tuple[str, Arc]] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, events.ArcGained) and event.vnode == C:
            gained.append((event.how, event.arc))

    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=14, observe=on_event, replicas=1) as ring:
        (key,) = keys_between(ring, A, B, 1)
        await put(ring[0], key, b"1")
        dead, down = by_id(ring, B), by_id(ring, C)
        gained.clear()
        await ring.kill(down)
        await ring.kill(dead)
        back = await ring.start(join=(), name=down.name)
        with trio.fail_after(20):
            await back.ready()
        await ring.converged()
        assert gained == [("resumed", Arc(Point(B), Point(C))), ("taken_over", Arc(Point(A), Point(B)))]
        with pytest.raises(OwnerDown) as caught:
            await get(ring[0], key)
        assert caught.value.peer == Contact(Point(B), dead.address)


@virtual
async def test_unknown_joiner_gives_up_an_arc_that_was_taken_over() -> None:
    """The giver dies right after the Switch to an unreachable joiner. The next vnode takes over and gets a write."""
    happened: list[str] = []
    frozen: list[Node] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, (events.ArcGained, events.ArcLost)) and event.vnode == 40_000:
            happened.append(event.how)
            if not frozen:
                frozen.append(by_id(ring, 40_000))
                ring.network.freeze(frozen[0].name)

    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=15, observe=on_event) as ring:
        (key,) = keys_between(ring, B, 40_000, 1)
        joiner = await ring.start(id=40_000, join=[by_id(ring, A)])
        with trio.fail_after(5):
            while not frozen:
                await trio.sleep(0.001)
        await ring.kill(by_id(ring, C))
        taker = by_id(ring, D)
        with trio.fail_after(20):
            while only(taker).ownership.start != B:
                await trio.sleep(0.1)
        await put(taker, key, b"written meanwhile")
        ring.network.unfreeze(joiner.name)
        while joiner.state != "ready":
            assert await patiently(lambda: get(by_id(ring, A), key)) == (b"written meanwhile",)
            await trio.sleep(0.005)
        await ring.converged()
        assert happened == ["received", "renounced", "received"]
        assert await get(joiner, key) == (b"written meanwhile",)


@virtual
async def test_joiner_known_to_a_dead_vnode_is_asked_before_takeover() -> None:
    """J has its arc from C, but no place in the ring yet. C dies. D knows J from C, and J is alive."""
    happened: list[tuple[int, str, Arc]] = []

    def on_event(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, (events.ArcGained, events.ArcLost)):
            happened.append((event.vnode, event.how, event.arc))
            if event.vnode == J and event.how == "received":
                for name in (by_id(ring, A).name, by_id(ring, B).name):
                    ring.network.block(by_id(ring, J).name, name)

    J = 40_000
    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=16, observe=on_event) as ring:
        (key,) = keys_between(ring, B, J, 1)
        await put(ring[0], key, b"1")
        joiner = await ring.start(id=J, join=[by_id(ring, A)])
        giver, taker = by_id(ring, C), by_id(ring, D)
        with trio.fail_after(10):
            while J not in [c.id for c in only(taker).ownership.before]:
                await trio.sleep(0.05)
        happened.clear()
        await ring.kill(giver)
        with trio.fail_after(10):
            while only(taker).ring.predecessor != only(joiner).me:
                await trio.sleep(0.05)
        assert happened == [], "the arc behind J is not D's; the one before waits until J is in its place"
        assert joiner.state == "joining"
        for name in (by_id(ring, A).name, by_id(ring, B).name):
            ring.network.unblock(joiner.name, name)
        await joiner.ready()
        await ring.converged()
        assert happened == [(D, "taken_over", Arc(Point(J), Point(C)))]
        assert await get(taker, key) == (b"1",)


@pytest.mark.slow
@virtual
async def test_unreachable_contacts_do_not_delay_a_joiner() -> None:
    """The joiner may already own its arc, and another vnode may be about to take it over."""
    async with testing.open_ring(8, seed=17) as ring:
        silent, living = list(ring.nodes)[:2], ring[2]
        for node in silent:
            await ring.kill(node, silently=True)
        await ring.converged()
        began = trio.current_time()
        joiner = await ring.start(join=[*silent, living])
        await joiner.ready()
        assert trio.current_time() - began < 2 * PRESETS["local"].timeout_cap_s


@virtual
async def test_late_switch_counts_while_a_restarted_node_looks_up() -> None:
    """The node asked for its arc, got no reply in time, and looks up again. Meanwhile the arc has arrived."""
    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=18) as ring:
        node, before = by_id(ring, C), only(by_id(ring, B)).me
        own, membership = only(node).ownership, node._parts[Point(C)].membership

        async def no_taker(others: list[Contact], predecessor: Contact) -> None:
            own.receive(Arc(Point(B), Point(C)), own.epoch + 1, before, [])

        own.renounce()
        with mock.patch.object(membership, "_taker_of_my_arc", no_taker):
            await membership._reclaim_place(FindNeighboursReply(before, only(node).me, node.ring_id))
        assert own.arc == Arc(Point(B), Point(C))
        await ring.converged()


@virtual
async def test_predecessor_without_an_address_is_given_up() -> None:
    """A predecessor without an address once stayed: the error of a call to it counted as a sign of life."""
    async with testing.open_ring(4, bits=16, ids=[A, B, C, D], seed=19) as ring:
        node, before = by_id(ring, C), only(by_id(ring, B)).me
        absent = Contact(Point(C - 1), "nonsense")
        await by_id(ring, A)._host.peers.call(only(node).me, Notify(absent), Notify.reply)
        await trio.sleep(0.01)
        assert only(node).ring.predecessor == absent, "the notification came from an unreachable vnode"
        await ring.converged()
        assert only(node).ring.predecessor == before
        assert node.state == "ready"

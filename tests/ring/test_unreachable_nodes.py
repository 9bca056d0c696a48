"""Unreachable nodes count until they return or leave, or until an operator forgets them."""

from __future__ import annotations

import random
from collections.abc import Iterable

import msgspec
import pytest
import trio

from chord import testing
from chord.client.operations import addresses_in
from chord.config import PRESETS, Limits, RingConstants
from chord.errors import ChordError, InvalidRequest, OwnerDown, TooFewReplicas
from chord.ids import Point
from chord.net.goodbyes import Goodbyes
from chord.net.peers import PassiveList, Peers
from chord.node import Node
from chord.replication.transfer import Transfers
from chord.ring.merge import RingMerge
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Contact, FindNeighboursReply, OwnedArc, Record, Version, Written
from tests.support.quorum import read, until, write
from tests.support.rings import grown, in_order, only, virtual

TIMING = msgspec.structs.replace(PRESETS["local"], down_out_s=5.0)
KEY, VALUE = b"key", b"acknowledged"


async def alone_without_the_value(machines: Cluster) -> tuple[Node, Node, Node]:
    """Return the only living node of three, and the two dead nodes that acknowledged a value without it."""
    lone = await grown(machines, 3)
    await trio.sleep(5)
    await machines.kill(lone)
    await trio.sleep(2)
    first, second = machines.nodes
    stored = await patiently_write(first, KEY, VALUE)
    assert (stored.w, stored.is_sloppy) == (2, False)
    await machines.kill(first)
    await machines.kill(second)
    lone = await machines.start(join=(), name=lone.name)
    await lone.ready()
    return lone, first, second


async def patiently_write(node: Node, key: bytes, value: bytes | None) -> Written:
    with trio.fail_after(20):
        while True:
            try:
                return await write(node, key, value)
            except ChordError:
                await trio.sleep(0.2)


async def never_denied(node: Node, for_s: float) -> None:
    until = trio.current_time() + for_s
    while trio.current_time() < until:
        with pytest.raises(OwnerDown):
            await read(node, KEY)
        await trio.sleep(0.5)


async def give_addresses_away(machines: Cluster, lone: Node, dead: list[Node]) -> list[Node]:
    fresh = []
    for number, old in enumerate(dead):
        id = Point(12345 + (number << 150))
        fresh.append(await machines.start(name=f"new-{old.name}", join=[lone], listen=old.address, id=id))
        await fresh[-1].ready()
    return fresh


@virtual
async def test_node_counts_down_vnodes_that_only_its_successor_knew() -> None:
    """A new vnode dies before a node lists it. The node's successor took over its arc and knows the vnode."""
    async with testing.open_ring(6, seed=4, replicas=2, timing=TIMING) as ring:
        node, old, new, heir, *_ = in_order(ring)
        vnode, absent = only(node), only(new).me
        await ring.kill(old)
        await ring.kill(new)
        vnode.ring.successors = tuple(contact for contact in vnode.ring.successors if contact != absent)
        await until(lambda: only(heir).ownership.marks)
        await trio.sleep(3 * TIMING.stabilize_s)
        waited_for = [place.contact for place in vnode.replica_set(vnode.id).everyone if place.is_waited_for]
        assert waited_for == [only(old).me, absent]


@pytest.mark.slow
@virtual
async def test_denial_with_new_nodes_at_dead_addresses_is_refused() -> None:
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone, *dead = await alone_without_the_value(machines)
        await give_addresses_away(machines, lone, dead)
        await never_denied(lone, 12 * TIMING.down_out_s)
        for old in dead:
            await (await machines.start(name=old.name, join=[lone], listen=f"{old.name}-moved:1")).ready()
        await trio.sleep(15)
        assert (await read(lone, KEY)).values == (VALUE,)


@pytest.mark.slow
@virtual
async def test_write_after_nodes_at_dead_addresses_left_is_refused() -> None:
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone, *dead = await alone_without_the_value(machines)
        for fresh in await give_addresses_away(machines, lone, dead):
            await trio.sleep(10)
            await fresh.leave()
        await trio.sleep(3)
        with pytest.raises(TooFewReplicas):
            await write(lone, b"other", b"value")


@pytest.mark.slow
@virtual
async def test_denial_after_one_of_two_nodes_was_forgotten_is_refused() -> None:
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone, first, second = await alone_without_the_value(machines)
        await never_denied(lone, 30.0)
        await lone.remove_node(second.address)
        machines.wipe(second.name)
        await never_denied(lone, 30.0)
        await (await machines.start(name=first.name)).ready()
        await trio.sleep(10)
        assert (await read(lone, KEY)).values == (VALUE,)


@pytest.mark.slow
@virtual
async def test_denial_after_a_forget_and_a_restart_is_refused() -> None:
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone, first, second = await alone_without_the_value(machines)
        await lone.remove_node(second.address)
        machines.wipe(second.name)
        await trio.sleep(5)
        await machines.kill(lone)
        lone = await machines.start(join=(), name=lone.name)
        await lone.ready()
        await trio.sleep(2 * TIMING.down_out_s)
        await never_denied(lone, 30.0)
        await (await machines.start(name=first.name)).ready()
        await trio.sleep(10)
        assert (await read(lone, KEY)).values == (VALUE,)


async def ask_no_node(self: RingMerge, *args: object) -> None:
    """Replace a step that asks other nodes."""


async def alone_after_others_left_and_joined_again() -> None:
    """A vnode that joins again at its address has its former id, so its goodbye no longer counts."""
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone = await grown(machines, 3)
        for node in [node for node in machines.nodes if node is not lone]:
            await node.leave()
            await trio.sleep(5)
            again = await machines.start(join=[lone], name=node.name, listen=node.address)
            await again.ready()
            await trio.sleep(15)
        await machines.kill(lone)
        await trio.sleep(2)
        first, second = machines.nodes
        assert (await patiently_write(first, KEY, VALUE)).w == 2
        await machines.kill(first)
        await machines.kill(second)
        lone = await machines.start(join=(), name=lone.name)
        await lone.ready()
        await never_denied(lone, 30.0)


@pytest.mark.slow
def test_denial_after_holders_joined_again_and_died_is_refused() -> None:
    testing.run(alone_after_others_left_and_joined_again, seed=1)


@pytest.mark.slow
def test_planted_goodbye_that_outlives_a_return_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingMerge, "_ask_whether_back", ask_no_node)
    monkeypatch.setattr(Peers, "took_its_place", lambda self, contact, asked_at, *, is_owner: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        testing.run(alone_after_others_left_and_joined_again, seed=1)


@pytest.mark.slow
@virtual
async def test_receiver_of_a_former_arc_is_no_member() -> None:
    """A node remembers it, to redirect callers. An operator may have forgotten it since."""
    structs = msgspec.structs
    async with testing.open_ring(2, seed=1) as ring:
        status = ring[0]._local_status()
        (vnode,), gone = status.vnodes, Contact(Point(5), "gone:1")
        for state, is_named in (("moved", False), ("giving", True), ("taken_over", True)):
            arc = OwnedArc(Point(1), Point(5), 1, state, gone)  # type: ignore[arg-type]
            named = addresses_in(structs.replace(status, vnodes=(structs.replace(vnode, arcs=(arc,)),)))
            assert (gone.address in named) is is_named


@virtual
async def test_forget_of_a_reused_address_gives_up_the_former_node() -> None:
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone, *dead = await alone_without_the_value(machines)
        await give_addresses_away(machines, lone, dead)
        for old in dead:
            await lone.remove_node(old.address)
        await trio.sleep(12 * TIMING.down_out_s)
        assert (await read(lone, KEY)).values == ()
        with pytest.raises(InvalidRequest):
            await lone.remove_node(dead[0].address)


@pytest.mark.slow
@virtual
async def test_ring_restarted_with_one_store_lost_serves_at_once() -> None:
    """One lost copy is fewer than W, so another node holds each acknowledged write."""
    async with cluster(seed=2, sync_delay=flash, timing=PRESETS["local"]) as machines:
        first = await grown(machines, 3)
        await patiently_write(first, KEY, VALUE)
        await trio.sleep(5)
        nodes = list(machines.nodes)
        async with trio.open_nursery() as nursery:
            for node in nodes:
                nursery.start_soon(node.stop)
        machines.disk(nodes[2].name).image = None
        back = [await machines.start(join=(), name=node.name) for node in nodes]
        for node in back:
            await node.ready()
        await trio.sleep(30)
        for node in back:
            assert (await read(node, KEY)).values == (VALUE,)
            assert (await read(node, b"absent")).values == ()
            await write(node, b"new", b"value")


async def waited_for_after_an_absence(*, is_moved: bool) -> tuple[Contact, ...]:
    """Two dead nodes return and leave, or move, while a third is down. Return the third node's passive list."""
    ring = RingConstants(successors=3, replicas=3)
    async with cluster(seed=3, ring=ring, sync_delay=flash, timing=TIMING) as machines:
        first = await grown(machines, 12)
        await trio.sleep(5)
        away, *others = sorted(machines.nodes, key=lambda node: only(node).id)[1::4]
        for node in others:
            await machines.kill(node)
        await trio.sleep(2 * TIMING.down_out_s)
        for parts in away._parts.values():  # as a giver does for the receiver of an arc
            parts.vnode.learn_passive([only(node).me for node in others])
        await trio.sleep(5)
        await machines.kill(away)
        await trio.sleep(2 * TIMING.down_out_s)
        assert {contact.address for contact in away._host.peers.passive.contacts()} == {node.address for node in others}
        for other in others:
            address = f"{other.name}-moved:1" if is_moved else other.address
            back = await machines.start(name=other.name, join=[first], listen=address)
            await back.ready()
            await trio.sleep(10)
            if not is_moved:
                await back.leave()
        await trio.sleep(10)
        back = await machines.start(name=away.name, join=[first])
        await back.ready()
        await trio.sleep(60)
        return back._host.peers.passive.contacts()


@pytest.mark.thorough
@pytest.mark.parametrize("is_moved", [False, True])
def test_returned_node_does_not_wait_for_nodes_that_left(is_moved: bool) -> None:
    assert testing.run(lambda: waited_for_after_an_absence(is_moved=is_moved), seed=1) == ()


@pytest.mark.thorough
def test_planted_returned_node_that_asks_for_none_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingMerge, "_seek", ask_no_node)
    monkeypatch.setattr(Transfers, "_learn_left", lambda self, vnodes: None)
    assert testing.run(lambda: waited_for_after_an_absence(is_moved=False), seed=1) != ()


async def waited_for_after_a_list_older_than_a_goodbye() -> tuple[Contact, ...]:
    """A node leaves, and an older list names it again. Return the passive list of the last node."""
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        lone = await grown(machines, 2)
        other = machines[1]
        ring, left = only(lone).ring, only(other).me
        await other.leave()
        await trio.sleep(10)
        ring.successors = (left, *ring.successors)
        ring.predecessors = (left,)
        await trio.sleep(60)
        assert ring.is_alone
        return lone._host.peers.passive.contacts()


def test_list_older_than_a_goodbye_does_not_revoke_it() -> None:
    assert testing.run(waited_for_after_a_list_older_than_a_goodbye, seed=1) == ()


def test_planted_goodbye_that_any_list_revokes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def believe(self: RingMerge) -> None:
        for contact in self._vnode.listed():
            self._peers.took_its_place(contact, trio.current_time(), is_owner=True)

    monkeypatch.setattr(RingMerge, "_ask_whether_back", believe)
    assert testing.run(waited_for_after_a_list_older_than_a_goodbye, seed=1) != ()


async def waited_for_between_own_vnodes() -> tuple[Contact, ...]:
    """A vnode between two vnodes of a dead node leaves. Return the node's passive list after its return."""
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        away = await machines.start(join=(), vnodes=16)
        await away.ready()
        for _ in range(3):
            await (await machines.start(join=[away])).ready()
        await machines.converged()
        own = set(away._host.vnodes)
        others = {only(node).id: node for node in machines.nodes if node is not away}
        ring = sorted([*own, *others])
        sides = zip(ring[-1:] + ring[:-1], ring, ring[1:] + ring[:1], strict=True)
        leaver = next(others.pop(point) for before, point, after in sides if point in others and {before, after} <= own)
        down = only(leaver).me
        await machines.kill(away)
        await trio.sleep(2 * TIMING.down_out_s)
        await leaver.leave()
        await trio.sleep(10)
        back = await machines.start(name=away.name, join=list(others.values()), vnodes=16)
        await back.ready()
        await machines.converged()  # before, vnodes of other nodes may be next to the point, and tell of the goodbye
        limits = back.config.limits
        back._host.peers.goodbyes = Goodbyes(limits.goodbyes_max, limits.owners_max)
        back._host.peers.passive.add(down, trio.current_time())
        await trio.sleep(30)
        return back._host.peers.passive.contacts()


@pytest.mark.slow
def test_node_with_vnodes_around_a_down_one_asks_other_nodes() -> None:
    assert testing.run(waited_for_between_own_vnodes, seed=1) == ()


@pytest.mark.slow
def test_planted_node_that_asks_only_itself_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transfers, "_learn_left", lambda self, vnodes: None)
    ask_nearest_alone(monkeypatch)
    assert testing.run(waited_for_between_own_vnodes, seed=1) != ()


def ask_nearest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plant a bug: only the two vnodes next to the point are asked."""

    async def nearest(self: RingMerge, around: FindNeighboursReply) -> list[Contact]:
        return [around.successor, around.predecessor]

    monkeypatch.setattr(RingMerge, "_witnesses", nearest)


async def waited_for_by_neighbours_that_were_away() -> set[str]:
    """A node leaves while the two nodes on each side of it are dead. Return the addresses in all passive lists."""
    async with cluster(seed=1, sync_delay=flash, timing=TIMING) as machines:
        first = await machines.start(join=())
        await first.ready()
        for _ in range(7):
            await (await machines.start(join=[first])).ready()
        await machines.converged()
        *before, leaver, third, fourth = sorted(machines.nodes, key=lambda node: only(node).id)[:5]
        near = [*before, third, fourth]
        others = [node for node in machines.nodes if node not in (leaver, *near)]
        for node in near:
            await machines.kill(node)
        await leaver.leave()
        for node in near:
            back = await machines.start(name=node.name, join=others)
            await back.ready()
            back._host.peers.passive.add(only(leaver).me, trio.current_time())
        await trio.sleep(40)  # ten seconds are enough
        return {address for node in machines.nodes for address in node._host.peers.passive.addresses()}


@pytest.mark.slow
def test_returned_neighbours_learn_from_others_of_a_leave() -> None:
    assert testing.run(waited_for_by_neighbours_that_were_away, seed=1) == set()


@pytest.mark.slow
def test_planted_node_that_asks_only_the_nearest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Transfers, "_learn_left", lambda self, vnodes: None)
    ask_nearest_alone(monkeypatch)
    assert testing.run(waited_for_by_neighbours_that_were_away, seed=1) != set()


@virtual
async def test_nodes_that_swapped_addresses_wait_for_each_other() -> None:
    """Each node has the former address of the other. That must not make a node a ring of its own."""
    ring = RingConstants(replicas=2)
    async with cluster(seed=1, ring=ring, sync_delay=flash, timing=TIMING) as machines:
        first = await grown(machines, 2)
        second = machines[1]
        await trio.sleep(5)
        for node in (first, second):
            await machines.kill(node)
        back = await machines.start(join=(), name=second.name, listen=first.address)
        with trio.fail_after(20):
            await back.ready()
        with pytest.raises(TooFewReplicas):
            await write(back, KEY, VALUE)
        await (await machines.start(join=[back], name=first.name, listen=second.address)).ready()
        assert (await patiently_write(back, KEY, VALUE)).w == 2


@virtual
async def test_node_at_the_address_of_a_dead_owner_is_no_replica() -> None:
    """Only its id makes a node a replica, not its address. So the node brings the copy home."""
    ring_of_one_copy = RingConstants(replicas=1)
    async with cluster(seed=1, sync_delay=flash, timing=TIMING, ring=ring_of_one_copy) as machines:
        lone = await machines.start(join=(), id=Point(1 << 100))
        await lone.ready()
        dead = await machines.start(join=[lone], id=Point(1 << 159))
        await dead.ready()
        await machines.converged()
        await trio.sleep(5)
        await machines.kill(dead)
        await machines.converged()
        fresh = await machines.start(name="new", join=[lone], listen=dead.address, id=Point(1 << 101))
        await machines.converged()
        key = next(key for number in range(99) if lone._host.circle.hash(key := b"key-%d" % number) < 1 << 159)
        actor = fresh._host.storage.incarnation + bytes(8)
        record = Record(key, (ActorClock(actor, 1, (Version(VALUE, bytes(16), 1),)),))
        await fresh._host.storage.commit(Batch(puts=(record,)))
        await trio.sleep(5)
        assert fresh._host.storage.get(key) is None
        assert (await read(fresh, key)).values == (VALUE,)
async def denial_with_more_down_nodes_than_probed() -> None:
    """Two dead nodes hold the value. Two others die after them, and an operator forgets these two."""
    limits = msgspec.structs.replace(Limits(), passive_max=2)
    async with cluster(seed=1, sync_delay=flash, timing=TIMING, limits=limits) as machines:
        lone, first, second = await alone_without_the_value(machines)
        others = []
        for _ in range(4):
            others.append(await machines.start(join=[lone]))
            await others[-1].ready()
        await trio.sleep(3)
        for node in others[:2]:
            await machines.kill(node)
        await trio.sleep(15)
        await machines.kill(lone)
        lone = await machines.start(join=(), name=lone.name)
        await lone.ready()
        await trio.sleep(15)
        for node in others[:2]:
            await lone.remove_node(node.address)
        await never_denied(lone, 12 * TIMING.down_out_s)
        for node in (first, second):
            await (await machines.start(join=(), name=node.name)).ready()
        await trio.sleep(15)
        assert (await read(lone, KEY)).values == (VALUE,)


@pytest.mark.slow
def test_denial_with_more_down_nodes_than_probed_is_refused() -> None:
    testing.run(denial_with_more_down_nodes_than_probed, seed=1)


def drop_the_oldest(self: PassiveList, contact: Contact, now: float) -> None:
    """The planted bug: a full list drops its oldest vnodes."""
    self._due[contact.id] = (contact, now, self._timing.reprobe_first_s)
    while len(self.addresses()) > self._max:
        self.forget(next(iter(self._due)))


@pytest.mark.slow
def test_planted_passive_list_that_drops_the_oldest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PassiveList, "_probe", drop_the_oldest)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        testing.run(denial_with_more_down_nodes_than_probed, seed=1)


def vnodes(count: int, at: str = "n") -> list[Contact]:
    return [Contact(Point(1000 + number), f"{at}{number}:1") for number in range(count)]


def listed(contacts: Iterable[Contact], size_max: int, waiting_max: int = 4096) -> PassiveList:
    passive = PassiveList(TIMING, size_max, waiting_max)
    for contact in contacts:
        passive.add(contact, 0.0)
    return passive


def test_passive_list_beyond_its_size_queues_the_oldest() -> None:
    five = vnodes(5)
    passive = listed(five, 3)
    assert (passive.contacts(), passive.remembered(), len(passive)) == (tuple(five[2:]), tuple(five), 5)
    assert passive.nodes() == (*five[2:], *five[:2])
    assert all(contact.id in passive for contact in five)
    passive.add(five[0], 1.0)
    assert passive.remembered() == tuple(five), "the vnode is queued again"
    passive.forget(five[3].id)
    assert passive.contacts() == (five[2], five[4], five[0]), "the oldest queued vnode takes the free place"
    assert {passive.due(0.0, random.Random(1)) for _ in range(3)} == {five[2], five[4], five[0]}, "probed at once"
    for contact in (five[2], five[4], five[0]):
        passive.forget(contact.id)
    assert (passive.contacts(), len(passive)) == ((five[1],), 1)
    passive.forget(five[1].id)
    assert len(passive) == 0


def test_passive_list_forgets_and_moves_queued_vnodes() -> None:
    five = vnodes(5)
    passive = listed(five, 2)
    passive.forget(five[0].id)
    passive.forget_at(five[1].address, frozenset())
    assert passive.remembered() == tuple(five[2:])
    passive.forget_at(five[2].address, {five[2].id})
    passive.moved(five[2])
    assert five[2].id in passive
    passive.moved(Contact(five[2].id, "elsewhere:1"))
    assert passive.remembered() == tuple(five[3:])


def test_passive_list_probes_a_queued_vnode_that_answers() -> None:
    five = vnodes(5)
    passive = listed(five, 2)
    passive.asked_in_vain(five[4].id)
    passive.hurry(five[0].address, 7.0)
    assert passive.contacts() == (five[4], five[0])
    assert passive.remembered() == (five[1], five[2], five[3], five[4], five[0])
    for contact in five[3:0:-1]:
        passive.hurry(contact.address, 8.0)
    assert five[4] not in passive.contacts()
    assert passive.was_asked_in_vain(five[4].id), "a queued vnode without an answer"


@pytest.mark.parametrize(("waiting_max", "lost"), [(4, 0), (3, 0), (2, 1), (1, 2)])
def test_passive_list_beyond_unreachable_max_drops_the_oldest(waiting_max: int, lost: int) -> None:
    five = vnodes(5)
    passive = listed(five, 2, waiting_max)
    assert passive.remembered() == tuple(five[lost:])
    assert len(passive) == 5 - lost


def test_passive_list_counts_the_vnodes_of_one_address_once() -> None:
    same = [Contact(contact.id, "n0:1") for contact in vnodes(5)]
    assert listed(same, 1).contacts() == tuple(same)
    assert listed(same, 1).nodes() == (same[-1],)

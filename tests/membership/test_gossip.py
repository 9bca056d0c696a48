"""Gossip on real nodes: the list is only a hint, news saturates, silence is contradicted, and nothing mixes."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, Limits, RingConstants
from chord.errors import InvalidRequest, UnknownRequest
from chord.ids import Circle, Point
from chord.membership import gossip
from chord.membership.gossip import MemberGossip
from chord.net.calls import Caller
from chord.node import Node
from chord.ring.members import Members
from chord.ring.vnode import Vnode
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork
from chord.testing.rings import TestRing
from chord.wire.codec import PREFIX_BYTES, Codec
from chord.wire.messages import CompareMembers, GetMembers, GetMembersReply, Gossip, GossipReply, MemberEntry, Trace
from chord.wire.messages.members import COUNT_MAX, START_MAX
from tests.support.rings import get, only, put, virtual

CODEC = Codec(Circle(160))
LAN = PRESETS["lan"]
N = 8
ROUNDS = 2 * int(math.log2(N)) + 8
"""The number of periods in which a change reaches every list."""
COMPARE_S = 10.0


@asynccontextmanager
async def placed(
    count: int = N, seed: str = "gossip", *, replicas: int = 2, limits: Limits | None = None, **timing: Any
) -> AsyncIterator[Cluster]:
    """Run an Ideal ring of nodes that know all members."""
    network = MessageNetwork(seed)
    ring = RingConstants(successors=4, replicas=replicas)
    changed = msgspec.structs.replace(LAN, **timing)
    async with cluster(seed=seed, ring=ring, timing=changed, network=network, members="on", limits=limits) as made:
        await made.place(count)
        yield made


def members_of(node: Node) -> Members:
    members = node._host.members
    assert members is not None
    return members


def versions(nodes: Iterable[Node]) -> set[bytes]:
    return {members_of(node).version for node in nodes}


async def seconds_until_equal(ring: TestRing, within_s: float) -> float:
    """Wait until all lists are equal and have exactly the running nodes; return the time that it took."""
    began = trio.current_time()
    while trio.current_time() - began < within_s:
        living = {node.address for node in ring.nodes}
        if len(versions(ring.nodes)) == 1 and {e.address for e in members_of(ring[0]) if e.vnodes} == living:
            return trio.current_time() - began
        await trio.sleep(0.25)
    raise AssertionError(f"not equal after {within_s} s: {[members_of(node).alive for node in ring.nodes]}")


async def seconds_until_noticed(ring: TestRing, victim: str, within_s: float = 30) -> float:
    """Wait until some list does not count a node as alive; return the time that it took."""
    began = trio.current_time()
    while all((entry := members_of(node).get(victim)) and entry.state == "alive" for node in ring.nodes):
        assert trio.current_time() - began < within_s, f"no neighbour announced {victim}"
        await trio.sleep(0.25)
    return trio.current_time() - began


async def full(node: Node, point: int) -> Trace:
    return await node._lookups.find(Point(point), only(node).me, route="full")


# -- 1: the list is a hint ----------------------------------------------------------------------------


def fill_with_garbage(ring: TestRing) -> None:
    """Fill the lists: some lack every other member, and some have living and dead members at wrong places."""
    size = 1 << 160
    halves = [members_of(node).get(node.address) for node in ring.nodes[::2]]
    for number, node in enumerate(ring.nodes):
        list_ = members_of(node)
        list_.clear()
        for entry in halves if number % 2 == 0 else ():
            assert entry is not None
            list_.learn(entry, 0.0)
        for other in range(12 * (number % 2)):
            points = tuple(sorted(Point((other * 7 + k * 11 + number) * size // 331 % size) for k in range(3)))
            list_.learn(MemberEntry(f"n{other}:1", 1 << 39, other, "alive", points), 0.0)


async def owners_with_garbage() -> list[tuple[str, str, str]]:
    """Return the true owner, the owner by route full and that by route fast, of some keys after the lists went bad."""
    found = []
    async with placed(8, gossip_s=1e6, gossip_compare_s=1e6) as ring:
        keys = [b"key-%d" % number for number in range(10)]
        for key in keys:
            await put(ring[0], key, key)
        fill_with_garbage(ring)
        order = sorted(ring.nodes, key=lambda node: only(node).id)
        for number, key in enumerate(keys):
            point = ring[0]._host.circle.hash(key)
            asking = ring[number % 8]
            owner = next((node for node in order if only(node).id >= point), order[0])
            fast = await asking._lookups.find(point, only(asking).me, route="fast")
            found.append((owner.address, (await full(asking, point)).owner.address, fast.owner.address))
            assert await get(asking, key) == (key,)
        assert not ring.violations()
        assert not ring.waiting()
    return found


@virtual
async def test_garbage_in_every_list_changes_no_owner() -> None:
    for owner, by_full, by_fast in await owners_with_garbage():
        assert owner == by_full == by_fast


@virtual
async def test_list_that_decides_owners_is_caught() -> None:
    """A planted bug: a node confirms that it owns what its membership list gives it."""
    require = Vnode.require_owner

    def decides(self: Vnode, point: int) -> None:
        members = self.host.members
        if members is None or next(members.successors(point)).address != self.host.address:
            require(self, point)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Vnode, "require_owner", decides)
        assert any(len(set(line)) > 1 for line in await owners_with_garbage())


# -- 2: only the subject raises its count -------------------------------------------------------------


async def counts_after_a_death() -> set[int]:
    async with placed() as ring:
        victim = ring[5]
        await ring.kill(victim, silently=True)
        await seconds_until_noticed(ring, victim.address)
        await seconds_until_equal(ring, ROUNDS * LAN.gossip_s)
        return {entry.count for node in ring.nodes if (entry := members_of(node).get(victim.address))}


@virtual
async def test_announced_silence_keeps_the_count_of_the_subject() -> None:
    assert await counts_after_a_death() == {0}


@virtual
async def test_reporter_that_raises_the_count_is_caught() -> None:
    """A planted bug: a report beats every contradiction, so the node is dead and alive for ever."""

    def raising(self: MemberGossip, members: Members, entry: MemberEntry, state: Any) -> None:
        self._learn(members, MemberEntry(entry.address, entry.start, entry.count + 1, state))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemberGossip, "_announce", raising)
        assert await counts_after_a_death() != {0}


# -- 3: lists become equal ----------------------------------------------------------------------------


@virtual
async def test_death_leave_and_join_reach_every_list() -> None:
    async with placed() as ring:
        await ring.kill(ring[3], silently=True)
        await seconds_until_noticed(ring, "n3:1")
        assert await seconds_until_equal(ring, ROUNDS * LAN.gossip_s) <= ROUNDS
        await ring[1].leave()
        await seconds_until_equal(ring, ROUNDS * LAN.gossip_s)
        left = members_of(ring[0]).get("n1:1")
        assert left is not None
        assert left.state == "left"
        joiner = await ring.start()
        await joiner.ready()
        await seconds_until_equal(ring, ROUNDS * LAN.gossip_s)
        again = await ring.restart(ring[4])
        await again.ready()
        await seconds_until_equal(ring, ROUNDS * LAN.gossip_s + 1.5 * LAN.gossip_compare_s)


async def repair_of_a_missed_entry() -> float:
    async with placed(gossip_compare_s=COMPARE_S) as ring:
        await trio.sleep(10)
        members_of(ring[2])._remove("n6:1")
        return await seconds_until_equal(ring, ROUNDS + 1.5 * COMPARE_S)


@virtual
async def test_comparison_repairs_a_missed_entry() -> None:
    assert await repair_of_a_missed_entry() <= 1.5 * COMPARE_S


@virtual
async def test_gossip_without_comparison_is_caught() -> None:
    """A planted bug: a node never compares whole lists."""

    async def never(self: MemberGossip) -> None:
        self._comparisons = 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemberGossip, "compare", never)
        with pytest.raises(AssertionError, match="not equal"):
            await repair_of_a_missed_entry()


@pytest.mark.slow
@virtual
async def test_lists_become_equal_after_a_split_and_losses() -> None:
    async with placed(down_out_s=3600.0, reprobe_first_s=5.0, reprobe_max_s=10.0) as ring:
        names = [node.name for node in ring.nodes]
        ring.network.partition(names[: N // 2], names[N // 2 :])
        await trio.sleep(30)
        assert {members_of(node).alive for node in ring.nodes} == {N // 2}
        ring.network.heal()
        assert isinstance(ring.network, MessageNetwork)
        ring.network.loss = 0.1
        await trio.sleep(30)
        ring.network.loss = 0.0
        await ring.converged()
        await seconds_until_equal(ring, ROUNDS + 1.5 * LAN.gossip_compare_s)


# -- 4: a living node is left out only while it cannot be reached -------------------------------------


async def events_after_hearsay() -> int:
    """Return how many events of the ring follow the report that a living node is silent."""
    async with placed() as ring:
        order = sorted(ring.nodes, key=lambda node: only(node).id)
        reporter, victim = order[0], order[1]
        entry = members_of(reporter).get(victim.address)
        assert entry is not None
        reporter._gossip._announce(members_of(reporter), entry, "silent")
        await trio.sleep(0.1)
        assert victim.address not in {c.address for c in members_of(reporter).successors(0)}
        await trio.sleep(2 * ROUNDS)
        entry = members_of(order[4]).get(victim.address)
        assert entry is not None
        assert (entry.state, entry.count) == ("alive", 1)
        await seconds_until_equal(ring, 1)
        return ring.counts["PeerChanged"] + ring.counts["HeadForgotten"]


@virtual
async def test_report_of_silence_is_contradicted_and_changes_no_ring_list() -> None:
    assert await events_after_hearsay() == 0


@virtual
async def test_silence_from_hearsay_is_caught() -> None:
    """A planted bug: a node takes a reported node out of its lists of the ring."""
    learn = MemberGossip._learn

    def believing(self: MemberGossip, members: Members, entry: MemberEntry, *, is_news: bool = True) -> bool:
        is_new = learn(self, members, entry, is_news=is_news)
        if is_new and entry.state == "silent":
            self._peers.has_paused(entry.address, is_only_copy=False)
        return is_new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemberGossip, "_learn", believing)
        assert await events_after_hearsay() > 0


@virtual
async def test_largest_count_is_contradicted_with_the_next_start() -> None:
    """A planted peer reports silence under the largest numbers that fit a message."""
    async with placed(3) as ring:
        subject = ring[1].address
        for report, contradicted in (
            (MemberEntry(subject, 1 << 39, COUNT_MAX - 1, "silent"), (1 << 39, COUNT_MAX)),
            (MemberEntry(subject, 1 << 39, COUNT_MAX, "left"), ((1 << 39) + 1, 0)),
            (MemberEntry(subject, START_MAX, COUNT_MAX, "left"), ((1 << 39) + 1, 0)),
        ):
            ring[1]._gossip.on_gossip(Gossip((report,)), Caller(ring[0].address))
            own = members_of(ring[1]).get(subject)
            assert own is not None
            assert (own.start, own.count, own.state) == (*contradicted, "alive")
            frame = CODEC.encode_call(1, None, 5, Gossip((own,)), 7)
            assert CODEC.decode_call(frame[PREFIX_BYTES:]).request == Gossip((own,)), "peers can read the answer"


@pytest.mark.slow
@virtual
async def test_ghost_is_announced_after_a_lookup_of_its_id() -> None:
    async with placed(timeout_stranger_s=0.2, timeout_cap_s=0.2) as ring:
        ghost = MemberEntry("ghost:1", 5, 0, "alive", (Point(12345),))
        ring[0]._gossip._learn(members_of(ring[0]), ghost)
        await trio.sleep(ROUNDS)
        assert all(members_of(node).get("ghost:1") for node in ring.nodes)
        await trio.sleep(20 * N)
        assert {e.state for node in ring.nodes if (e := members_of(node).get("ghost:1"))} == {"silent"}


# -- 5: bounds, other rings and hostile messages ------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_two_rings_do_not_mix_through_their_lists() -> None:
    network = MemoryNetwork(1)
    async with (
        testing.open_ring(3, seed="one", members="on", network=network) as one,
        trio.open_nursery() as nursery,
    ):
        other = TestRing(nursery, network, "two", one._template, lambda emitted: None)
        for number in range(3):
            join = other.nodes[:1]
            await (await other.start(join=join, name=f"m{number}")).ready()
        await trio.sleep(10)
        for entry in list(members_of(other[0])):
            one[0]._gossip._learn(members_of(one[0]), entry)
        assert members_of(one[0]).alive == 6
        await trio.sleep(60)
        assert {e.address for e in members_of(one[1]) if e.vnodes} == {node.address for node in one.nodes}
        assert {e.address for e in members_of(other[0]) if e.vnodes} == {node.address for node in other.nodes}
        nursery.cancel_scope.cancel()


@virtual
async def test_ring_beyond_members_max_keeps_no_list_until_it_shrinks() -> None:
    async with placed(6, limits=Limits(members_max=6)) as ring:
        await (await ring.start()).ready()
        await ring.converged()
        await trio.sleep(30)
        assert all(members_of(node).is_given_up and not len(members_of(node)) for node in ring.nodes)
        with pytest.raises(UnknownRequest):
            ring[0]._gossip.on_gossip(Gossip(), Caller("n1:1"))
        for node in list(ring.nodes)[:4]:
            await node.leave()
        await ring.converged()
        await trio.sleep(60)
        assert {members_of(node).alive for node in ring.nodes} == {3}


@virtual
async def test_requests_of_clients_and_wrong_sums_are_refused() -> None:
    async with placed(2) as ring:
        service = ring[0]._gossip
        with pytest.raises(InvalidRequest, match="a client sent gossip"):
            service.on_gossip(Gossip(), Caller(""))
        for size in (0, 9, 24):
            with pytest.raises(InvalidRequest, match="power of two"):
                service.on_compare(CompareMembers(b"s" * size), Caller("n1:1"))
        await trio.sleep(5)
        before = versions(ring.nodes)
        bad = MemberEntry("h:1", 1, 0, "alive", (Point(5), Point(4)))
        assert service.on_gossip(Gossip((bad,), b"odd"), Caller("n1:1")).known == b"\x01"
        assert versions(ring.nodes) == before


@virtual
async def test_client_gets_the_list_in_pages_and_once() -> None:
    async with placed() as ring:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(gossip, "CLIENT_PAGE_BYTES", 300)
            found: list[MemberEntry] = []
            page: GetMembersReply | None = None
            while page is None or page.after is not None:
                page = ring[0]._gossip.on_get_members(GetMembers(after=(page and page.after) or Point(0)))
                found += page.entries
            assert {entry.address for entry in found} == {node.address for node in ring.nodes}
            assert len(found) == N
            assert ring[0]._gossip.on_get_members(GetMembers(page.version)).entries == ()


@virtual
async def test_node_without_a_list_refuses_gossip_and_sends_none() -> None:
    async with testing.open_ring(2, seed=1) as ring:
        assert ring[0]._host.members is None
        with pytest.raises(UnknownRequest, match="keeps no membership list"):
            ring[0]._gossip.on_gossip(Gossip(), Caller("n1:1"))


@virtual
async def test_older_nodes_are_no_partners() -> None:
    """Nodes without the feature bit in their hello get no gossip."""
    async with testing.open_ring(3, seed=1) as ring:
        new = await ring.start(members="on")
        await new.ready()
        await ring.converged()
        await trio.sleep(20)
        assert new._host.hello_policy.without_members.keys() == {"n0:1", "n1:1", "n2:1"}
        assert {entry.address for entry in members_of(new)} == {new.address}
        owner = only(ring[0])
        assert (await full(new, owner.id)).owner == owner.me


# -- 6: route full ------------------------------------------------------------------------------------


@virtual
async def test_full_lookup_in_a_calm_ring_needs_one_call() -> None:
    async with placed() as ring:
        for number in range(40):
            node = ring[number % N]
            trace = await full(node, node._host.circle.hash(b"key-%d" % number))
            assert trace.calls == (trace.owner.address != node.address)
            assert trace.owner_via.kind == ("member" if trace.calls else "start")


@virtual
async def test_full_lookup_costs_at_most_one_call_more_than_fast() -> None:
    """Just after a death the first guess does not answer."""
    async with placed() as ring:
        order = sorted(ring.nodes, key=lambda node: only(node).id)
        victim, asking, other = order[1], order[5], order[6]
        point = only(victim).id
        await ring.kill(victim, silently=True)
        fast = await other._lookups.find(point, only(other).me, route="fast", is_remembered=False)
        trace = await full(asking, point)
        assert trace.owner == fast.owner
        assert trace.calls <= fast.calls + 1


# -- idle ---------------------------------------------------------------------------------------------


@virtual
async def test_calm_ring_gossips_at_grown_periods() -> None:
    async with placed(8):
        await trio.sleep(50)
        sent: list[float] = []
        handle = MemberGossip.on_gossip

        def counted(self: MemberGossip, request: Gossip, caller: Caller) -> GossipReply:
            sent.append(trio.current_time())
            return handle(self, request, caller)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemberGossip, "on_gossip", counted)
            await trio.sleep(60)
        assert 0.6 < len(sent) / (8 * 60 / LAN.gossip_growth_max) < 1.4

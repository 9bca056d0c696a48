"""The membership list of a client: when it reads the list, what a guess costs, and bounds. Some rings are scripted."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import chord
from chord.client.operations import Operations, addresses_in
from chord.client.routing import FIRST_MISSES, MISSES
from chord.client.session import ClientCall, ClientSession, Outcome
from chord.config import PRESETS
from chord.errors import OtherRing, PeerUnreachable, UnknownRequest
from chord.ids import Point
from chord.sim.cluster import Cluster, cluster
from chord.sim.messages import MessageCalls, MessageNetwork
from chord.wire.messages import (
    FEATURE_MEMBERS,
    MEMBERS_MAX,
    Contact,
    Get,
    GetMembers,
    GetMembersReply,
    GetReply,
    GetStatus,
    MemberEntry,
    Status,
)
from tests.client.test_routing import CIRCLE, ENTRY, World, failing, owner
from tests.support.clients import Open
from tests.support.fake_node import Answer, Heard, fake_node
from tests.support.rings import only, virtual
from tests.support.statuses import statuses

VERSION = b"version1"


def entry_of(address: str, *points: int) -> MemberEntry:
    return MemberEntry(address, 1, 0, "alive", tuple(Point(point) for point in sorted(points)))


class Listing(World):
    """A scripted ring. Its entry node gives its list away, in one page or in several.

    Attributes:
        pages: the pages by the point with which they begin.
    """

    def __init__(self, *entries: MemberEntry, members_max: int = MEMBERS_MAX) -> None:
        super().__init__()
        rng = self.core.session.rng
        self.core.session = ClientSession((ENTRY,), rng=rng, arcs_max=256, members_max=members_max)
        self.core.session.learn(ENTRY, CIRCLE.bits, b"ring" * 4, FEATURE_MEMBERS)
        self.pages = {0: GetMembersReply(VERSION, entries)}
        self.answers[ENTRY] = self._give

    def _give(self, call: ClientCall) -> Outcome:
        if not isinstance(call.request, GetMembers):
            return self._well(call)
        if call.request.since == VERSION:
            return GetMembersReply(VERSION, ())
        return self.pages[call.request.after]

    def lists(self) -> list[GetMembers]:
        """Return the requests for the list."""
        return [request for request in self.requests if isinstance(request, GetMembers)]


def key(number: int) -> bytes:
    return b"key-%d" % number


def whole(*addresses: str) -> list[MemberEntry]:
    """Return members: the first owns the whole circle."""
    first, *others = addresses
    return [entry_of(first, *(CIRCLE.hash(key(number)) + 1 for number in range(60))), *map(entry_of, others)]


def test_list_is_read_at_the_second_miss_and_guesses_owners() -> None:
    world = Listing(*whole("guess:1"))
    world.answers["guess:1"] = lambda call: GetReply((b"v",), b"", None)
    for number in range(10):
        assert world.get(key(number)).value == b"v"
    assert world.asked == [ENTRY, ENTRY, *["guess:1"] * 9]
    assert [type(request) for request in world.requests[:3]] == [Get, GetMembers, Get]


def test_list_that_no_node_offers_is_not_read() -> None:
    world = World()
    for number in range(10):
        world.of[key(number)] = owner(key=key(number))
        world.get(key(number))
    assert set(world.asked) == {ENTRY}


def test_wrong_guess_costs_one_call_and_is_corrected() -> None:
    world = Listing(*whole("wrong:1"))
    world.get(key(0))
    for number in (1, 2):
        world.of[key(number)] = owner("right:1", key(number))
        assert world.get(key(number)).owner.address == "right:1"
        world.get(key(number))
    assert world.asked == [ENTRY, ENTRY, "wrong:1", "right:1", "wrong:1", "right:1"]


@pytest.mark.parametrize("error", [PeerUnreachable("no"), OtherRing("no")])
def test_guess_that_does_not_answer_is_avoided(error: Any) -> None:
    world = Listing(*whole("dead:1"))
    world.answers["dead:1"] = failing(error)
    for number in range(5):
        assert world.get(key(number)).value == b"v"
    assert world.asked == [ENTRY, ENTRY, "dead:1", ENTRY, ENTRY, ENTRY, ENTRY]


def test_list_is_read_again_after_many_misses_and_only_if_it_changed() -> None:
    world = Listing(*whole("wrong:1"))
    for number in range(FIRST_MISSES + MISSES + 1):
        world.of[key(number)] = owner("right:1", key(number))
        world.get(key(number))
    assert [request.since for request in world.lists()] == [b"", VERSION]


def test_node_without_its_list_is_asked_once() -> None:
    world = Listing()
    world.answers[ENTRY] = lambda call: (
        UnknownRequest("no list") if isinstance(call.request, GetMembers) else world._well(call)
    )
    for number in range(60):
        world.get(key(number))
    assert len(world.lists()) == 1


@pytest.mark.parametrize(("members_max", "guesses"), [(3, True), (2, False)])
def test_list_of_a_ring_beyond_members_max_is_not_kept(members_max: int, guesses: bool) -> None:
    world = Listing(members_max=members_max)
    world.pages = {
        0: GetMembersReply(VERSION, tuple(whole("guess:1")), Point(7)),
        7: GetMembersReply(VERSION, (entry_of("b:1", 5), entry_of("c:1", 6))),
    }
    for number in range(20):
        world.get(key(number))
    assert ("guess:1" in world.asked, len(world.lists())) == (guesses, 2)


@pytest.mark.parametrize("size", [0, 1000])
def test_pages_without_an_end_are_bounded(size: int) -> None:
    world = Listing()
    asked: list[int] = []

    def endless(call: ClientCall) -> Outcome:
        if not isinstance(call.request, GetMembers):
            return world._well(call)
        asked.append(call.request.after)
        entries = tuple(entry_of(f"h{len(asked)}-{number}:1", number) for number in range(size))
        return GetMembersReply(VERSION, entries, Point(call.request.after + 1))

    world.answers[ENTRY] = endless
    for number in range(3):
        world.get(key(number))
    assert len(asked) == (1 if size == 0 else 5)
    assert not world.core.session.owner_routing.members.addresses


def test_member_that_only_the_list_names_must_answer_to_be_shown() -> None:
    world = Listing(entry_of("new:1", 5), entry_of("ghost:1", 6))
    first, second, *_ = statuses()
    world.answers[ENTRY] = lambda call: first if isinstance(call.request, GetStatus) else world._give(call)
    world.answers["new:1"] = lambda call: second
    for address in (*addresses_in(first), "ghost:1"):
        world.answers[address] = failing(PeerUnreachable("gone"))
    found = world.run(world.core.members())
    assert isinstance(found[second.address], Status)
    assert "ghost:1" not in found


async def test_each_kind_of_client_reads_the_list_and_asks_the_owner(open_client: Open) -> None:
    def answer(heard: Heard) -> Answer:
        if isinstance(heard.request, GetStatus):
            return statuses()[0]
        if isinstance(heard.request, GetMembers):
            return GetMembersReply(VERSION, (entry_of(direct.address, 200),))
        assert isinstance(heard.request, Get)
        return GetReply((b"v",), b"", Contact(Point(0), direct.address))

    with fake_node(answer, features=FEATURE_MEMBERS) as entry, fake_node(answer) as direct:
        async with open_client(entry.address) as client:
            await client.get("a")  # its arc up to 0 is known from now on
            for name in ("b", "c", "d", "e"):
                await client.get(name)
    assert len(entry.requests(Get)) <= FIRST_MISSES
    assert len(entry.requests(GetMembers)) == 1
    assert len(entry.requests(Get)) + len(direct.requests(Get)) == 5


@asynccontextmanager
async def client_of_sixteen() -> AsyncIterator[tuple[Cluster, chord.AsyncClient, MessageCalls]]:
    """Run a ring of sixteen nodes that know all members, and a client of the first one."""
    network = MessageNetwork(1)
    constants = chord.RingConstants(successors=4, replicas=1)
    async with cluster(seed=1, ring=constants, timing=PRESETS["lan"], network=network, members="on") as ring:
        await ring.place(16)
        async with trio.open_nursery() as nursery:
            calls = network.calls("c")
            await nursery.start(calls.run, None)
            session = ClientSession((ring[0].address,), rng=random.Random(1), arcs_max=256)
            session.learn(ring[0].address, 160, None, FEATURE_MEMBERS)
            yield ring, chord.AsyncClient(Operations(session), calls, chord.Limits(), 5.0), calls
            nursery.cancel_scope.cancel()


@virtual
async def test_cold_client_needs_one_call_in_a_ring_of_sixteen() -> None:
    async with client_of_sixteen() as (ring, client, calls):
        keys = [key(number) for number in range(40)]
        await ring[0].put_many([(name, "v") for name in keys])
        for name in keys[:FIRST_MISSES]:
            await client.get(name)
        before = calls.stats.calls_sent
        owners = [(await client.get(name)).owner.address for name in keys[FIRST_MISSES:]]
        assert calls.stats.calls_sent - before == len(keys) - FIRST_MISSES
        ids = sorted((only(node).id, node.address) for node in ring.nodes)
        points = [CIRCLE.hash(name) for name in keys[FIRST_MISSES:]]
        assert owners == [next((at for id_, at in ids if id_ >= point), ids[0][1]) for point in points]
        assert len(set(owners)) > 8


@virtual
async def test_garbage_in_the_list_of_a_ring_gives_right_values() -> None:
    async with client_of_sixteen() as (ring, client, calls):
        keys = [key(number) for number in range(40)]
        await ring[0].put_many([(name, name) for name in keys])
        garbage, size = ring[0]._host.members, 1 << 160
        assert garbage is not None
        garbage.clear()
        for number in range(24):  # the last eight are no nodes
            garbage.learn(entry_of(f"n{number}:1", *(size * (7 * number + step) // 331 for step in range(4))), 0.0)
        before = calls.stats.calls_sent
        assert [(await client.get(name)).value for name in keys] == keys
        assert len(client._core.session.owner_routing.members.addresses) == 24
        assert calls.stats.calls_sent - before <= 2 * len(keys) + 1, "a wrong guess costs one call"
        await client.put_many([(name, b"new") for name in keys])
        assert {(await ring[3].get(name)).value for name in keys} == {b"new"}

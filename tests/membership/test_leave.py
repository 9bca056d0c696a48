"""Leaves during deaths, restarts and other leaves: no node waits for a leaver, and each arc has an owner."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from unittest import mock

import pytest
import trio

from chord import testing
from chord.errors import Busy, ChordError, NotOwner
from chord.membership.join import Membership
from chord.net.peers import Peers
from chord.node import Node
from chord.node.shutdown import Shutdown
from chord.ring.merge import RingMerge
from chord.ring.ownership import OwnerVerdict
from chord.ring.preference_list import PreferenceList
from chord.ring.takeover import Takeover
from chord.ring.vnode import Vnode
from chord.sim.messages import MessageNetwork
from chord.stabilize import Stabilizer
from chord.wire.messages import Contact, Done, GetRingReply, HandOver, Reply, Request
from tests.support.quorum import (
    back,
    clockwise,
    holding,
    key_at,
    read,
    ring_in_sync,
    timing,
    until,
    until_in_sync,
    write,
)
from tests.support.rings import in_order, only, virtual

SOON_S = 4.0  # shorter than the time of any leave


async def begin_leave_without_end(*leavers: Node) -> None:
    """Let nodes leave that cannot bring their records home; wait until none of them owns an arc."""
    for leaver in leavers:
        leaver._handoff.count = lambda: 1  # type: ignore[method-assign]
        leaver._begin_leave()
    await until(lambda: all(only(leaver).ownership.start is None for leaver in leavers), within_s=SOON_S)


# -- the arc before a leaver ------------------------------------------------------------------------


def dies_before_leavers(count: int) -> None:
    """Let `count` adjacent nodes leave slowly, and kill the node before them. Its keys must soon have an owner."""

    async def main() -> None:
        async with ring_in_sync(8, count) as ring:
            key = key_at(ring, "n3")
            dead, *others = clockwise(ring, key)
            leavers, heir = others[:count], others[count]
            await write(ring[0], key, b"v", w=3)
            await begin_leave_without_end(*leavers)
            await ring.kill(dead)
            await until(lambda: only(heir).ownership.is_owner(heir._host.circle.hash(key)), within_s=SOON_S)
            for node in (others[-1], heir, *leavers):
                with trio.fail_after(SOON_S):
                    assert (await read(node, key)).values == (b"v",)
            assert {leaver.state for leaver in leavers} == {"leaving"}

    testing.run(main, seed=count)


@pytest.mark.parametrize("count", [1, 2])
def test_arc_before_leavers_is_taken_over_by_their_heir(count: int) -> None:
    dies_before_leavers(count)


@pytest.mark.slow
def test_planted_takeover_that_stops_at_a_leaver_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_no_further(takeover: Takeover, *args: object) -> None:
        """Plant the bug: do nothing."""

    monkeypatch.setattr(Takeover, "_look_past", look_no_further)
    with pytest.raises(trio.TooSlowError):
        dies_before_leavers(1)


def heir_of_leavers_dies(count: int) -> None:
    """Let `count` adjacent nodes leave slowly, and kill the heir of their arcs."""

    async def main() -> None:
        async with ring_in_sync(8, count) as ring:
            key = key_at(ring, "n3")
            *leavers, dead, heir = clockwise(ring, key)[: count + 2]
            await write(ring[0], key, b"v", w=3)
            await begin_leave_without_end(*leavers)
            await until(lambda: only(dead).ownership.is_owner(dead._host.circle.hash(key)), within_s=SOON_S)
            await ring.kill(dead)
            await until(lambda: only(heir).ownership.is_owner(heir._host.circle.hash(key)), within_s=SOON_S)
            for node in (heir, *leavers):
                with trio.fail_after(SOON_S):
                    assert (await read(node, key)).values == (b"v",)

    testing.run(main, seed=count)


@pytest.mark.parametrize("count", [1, 2])
def test_arcs_of_leavers_are_taken_over_when_their_heir_dies(count: int) -> None:
    heir_of_leavers_dies(count)


TAKE_OVER = Takeover._take_over


@pytest.mark.slow
def test_planted_leaver_that_counts_as_an_owner_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pass_no_leaver(takeover: Takeover, owner: Contact, passed: object = ()) -> None:
        await TAKE_OVER(takeover, owner)

    monkeypatch.setattr(Takeover, "_take_over", pass_no_leaver)
    with pytest.raises(trio.TooSlowError):
        heir_of_leavers_dies(1)


REQUIRE_OWNER = Vnode.require_owner


@pytest.mark.slow
def test_planted_leaver_that_hides_its_heir_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def require_owner(vnode: Vnode, key: int) -> OwnerVerdict:
        try:
            return REQUIRE_OWNER(vnode, key)
        except NotOwner as error:
            if "left to another" in error.message:
                raise Busy("planted") from None
            raise

    monkeypatch.setattr(Vnode, "require_owner", require_owner)
    with pytest.raises((trio.TooSlowError, ChordError)):
        dies_before_leavers(1)


# -- two leavers ------------------------------------------------------------------------------------


def the_one_before_leaves_too() -> None:
    """Let a node leave while its successor has no arc, and waits to bring a record home to this node."""

    async def main() -> None:
        async with ring_in_sync(8, 3) as ring:
            first, second, third, *_ = in_order(ring)
            await begin_leave_without_end(second)
            with trio.fail_after(SOON_S):
                await first.leave()
            assert first.state == "left"
            assert only(third).ownership.is_owner(only(first).id)
            assert second.state == "leaving"

    testing.run(main, seed=3)


def test_leaver_hands_its_arc_past_another_leaver_to_the_heir() -> None:
    the_one_before_leaves_too()


@pytest.mark.slow
def test_planted_handover_only_to_the_successor_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def only_the_successor(membership: Membership, to: Contact, session: bytes) -> Contact:
        await membership._peers.call(to, HandOver(membership._vnode.me, session), Done)
        return to

    monkeypatch.setattr(Membership, "_receiver", only_the_successor)
    with pytest.raises(trio.TooSlowError):
        the_one_before_leaves_too()


# -- nodes that missed a message --------------------------------------------------------------------


def starts_while_another_leaves() -> None:
    """Kill a node before another announces its leave, and restart it. It must not choose the leaver as a replica."""

    async def main() -> None:
        async with ring_in_sync(8, 4, keeps_disks=True) as ring:
            owner, _, leaver, *_ = in_order(ring)
            await ring.kill(owner)
            await begin_leave_without_end(leaver)
            again = await back(ring, owner.name)
            await until(lambda: leaver.address in only(again).preference_list.retiring, within_s=SOON_S)

    testing.run(main, seed=4)


def test_node_that_starts_during_a_leave_learns_of_it() -> None:
    starts_while_another_leaves()


@pytest.mark.slow
def test_planted_leave_announced_only_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[int, None] = {}
    say: Callable[[Shutdown], Awaitable[None]] = Shutdown._say_leaving

    async def say_once(shutdown: Shutdown) -> None:
        if id(shutdown) not in said:
            said[id(shutdown)] = None
            await say(shutdown)

    monkeypatch.setattr(Shutdown, "_say_leaving", say_once)
    with pytest.raises(trio.TooSlowError):
        starts_while_another_leaves()


@virtual
async def test_adjacent_nodes_can_leave_at_once() -> None:
    async with ring_in_sync(9, 5) as ring:
        key = key_at(ring, "n4")
        await write(ring[0], key, b"v", w=3)
        leavers = clockwise(ring, key)[:4]
        async with trio.open_nursery() as nursery:
            for node in leavers:
                nursery.start_soon(node.leave)
        assert {node.state for node in leavers} == {"left"}
        await ring.converged()
        assert (await read(ring[0], key)).values == (b"v",)


@virtual
async def test_leavers_take_turns_to_keep_a_write_quorum_of_copies() -> None:
    """While listed nodes leave, the owner does not see the nodes behind the end of its list."""
    async with testing.open_ring(7, seed=5, replicas=4, successors=3) as ring:
        await trio.sleep(5)
        key = key_at(ring, "n4")
        await write(ring[0], key, b"v", w=4)
        leavers = clockwise(ring, key)[1:4:2]
        for leaver in leavers:
            leaver._begin_leave()
        fewest = 4
        with trio.fail_after(60):
            while not all(leaver.closed.is_set() for leaver in leavers):
                fewest = min(fewest, len(holding(ring, key)))
                await trio.sleep(0.001)
        assert fewest >= 3
        assert {leaver.state for leaver in leavers} == {"left"}


def leaver_returns_unnoticed() -> None:
    """Kill a leaver, and restart it before another node notices its death."""

    async def main() -> None:
        async with ring_in_sync(6, 9, keeps_disks=True, leave_s=2.0) as ring:
            key = key_at(ring, "n2")
            owner, leaver, *_ = clockwise(ring, key)
            leaver._begin_leave()
            with trio.fail_after(SOON_S):
                while leaver.address not in only(owner).preference_list.retiring:
                    await trio.sleep(0.0002)
            await ring.kill(leaver)
            again = await back(ring, leaver.name)
            assert again.address in only(owner).preference_list.retiring
            await until(lambda: again.address in members_of(owner, key), within_s=SOON_S)

    testing.run(main, seed=9)


@pytest.mark.parametrize("why", ["unreachable", "hung disk"])
def test_node_that_missed_a_return_hears_of_it_later(why: str) -> None:
    """A leave was withdrawn, or its node was killed. The other node of the ring is silent meanwhile."""

    @virtual
    async def check() -> None:
        async with testing.open_ring(2, seed=9, timing=timing(leave_s=600.0)) as ring:
            await ring.converged()
            other, node = ring.nodes
            only(other).preference_list.retires(node.address, trio.current_time())
            if why == "hung disk":
                other._host.is_stalled = True
                await node._shutdown.say_back(())
                other._host.is_stalled = False
            else:
                ring.network.partition([other.name], reset=True)
                await node._shutdown.say_back(())
                ring.network.heal()
                assert only(other).preference_list.retiring == (node.address,)
            await until(lambda: only(other).preference_list.retiring == (), within_s=SOON_S)

    check()


def test_planted_single_notice_of_a_return_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def give_up(shutdown: Shutdown, unheard: list[str]) -> None:
        """Do nothing."""

    monkeypatch.setattr(Shutdown, "_say_back_again", give_up)
    with pytest.raises(trio.TooSlowError):
        test_node_that_missed_a_return_hears_of_it_later("unreachable")


def members_of(owner: Node, key: bytes) -> list[str]:
    return [place.contact.address for place in only(owner).replica_set(owner._host.circle.hash(key)).members]


@pytest.mark.parametrize("is_planted", [False, True])
def test_leaver_that_was_killed_and_restarted_is_a_replica_again(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(shutdown: Shutdown, known: object) -> None:
        """Lose the message."""

    monkeypatch.setattr(Shutdown, "say_back", lose)
    if is_planted:
        expire = PreferenceList.expire

        def expire_no_leave(
            view: PreferenceList, now: float, down_out_s: float, leave_s: float, *, is_waiting: bool
        ) -> None:
            expire(view, now, down_out_s, math.inf, is_waiting=is_waiting)

        monkeypatch.setattr(PreferenceList, "expire", expire_no_leave)
        with pytest.raises(trio.TooSlowError):
            leaver_returns_unnoticed()
    else:
        leaver_returns_unnoticed()


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_lone_leaver_keeps_its_data_if_down_nodes_may_return(is_forgotten: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=4, timing=timing(down_out_s=2.0)) as ring:
            last, *others = ring.nodes
            for node in others:
                await ring.kill(node)
            await until(lambda: only(last).ring.is_alone and not only(last).ring.is_isolated)
            for node in others if is_forgotten else ():
                await last.remove_node(node.address)
            await last.leave()
            assert last.state == ("left" if is_forgotten else "stopped")

    testing.run(main, seed=4)


# -- after a leave ----------------------------------------------------------------------------------


def no_node_waits_for_leavers() -> None:
    """Otherwise tombstones would stay until this node returns."""

    async def main() -> None:
        async with ring_in_sync(8, 1) as ring:
            for node in ring.nodes[:0:-2]:
                await node.leave()
                await trio.sleep(5)
            await trio.sleep(100)
            waited_for = {contact.address for node in ring.nodes for contact in node._host.peers.passive.contacts()}
            assert waited_for == set()

    testing.run(main, seed=3)


@pytest.mark.slow
def test_no_node_keeps_a_node_that_left_in_its_passive_list() -> None:
    no_node_waits_for_leavers()


async def ask_no_node(self: RingMerge, contact: Contact) -> None:
    """Do not ask the ring, which remembers the goodbye."""


async def remembered_after_a_late_answer() -> list[Contact]:
    """Let a predecessor get an earlier answer of a leaver after its goodbye; return its passive list.
    """
    async with ring_in_sync(4, 1) as ring:
        leaver, *_, predecessor = clockwise(ring, b"key")
        peers, contact = predecessor._host.peers, only(leaver).me
        call, say, answered = peers.call, leaver._shutdown.say, trio.Event()

        async def call_late(to: Contact | str, request: Request, expect: type[Reply]) -> Reply:
            reply = await call(to, request, expect)
            if to == contact and isinstance(reply, GetRingReply) and reply.owned_from is None:
                answered.set()
                await until(lambda: peers.is_known_to_have_left(contact))
            return reply

        async def say_when_answered(neighbours: tuple[str, ...], *, has_left: bool) -> list[str]:
            await answered.wait()
            return await say(neighbours, has_left=has_left)

        peers.call = call_late  # type: ignore[method-assign, assignment]
        leaver._shutdown.say = say_when_answered  # type: ignore[method-assign]
        await leaver.leave()
        await trio.sleep(5)
        assert leaver.state == "left"
        return list(peers.passive.contacts())


@virtual
async def test_late_answer_of_a_leaver_does_not_revoke_its_goodbye() -> None:
    assert await remembered_after_a_late_answer() == []


@virtual
async def test_planted_late_answer_that_revokes_a_goodbye_is_caught() -> None:
    took_its_place = Peers.took_its_place

    def revoke(peers: Peers, contact: Contact, asked_at: float, *, is_owner: bool) -> None:
        took_its_place(peers, contact, peers.now(), is_owner=True)

    with mock.patch.object(Peers, "took_its_place", revoke), mock.patch.object(RingMerge, "_seek", ask_no_node):
        assert await remembered_after_a_late_answer()


@pytest.mark.slow
def test_planted_passive_list_with_nodes_that_left_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def remember_unreachable(self: Stabilizer, contact: Contact) -> None:
        self._peers.passive.add(contact, trio.current_time())

    monkeypatch.setattr(Stabilizer, "remember_unreachable", remember_unreachable)
    monkeypatch.setattr(RingMerge, "_seek", ask_no_node)
    with pytest.raises(AssertionError):
        no_node_waits_for_leavers()


async def waited_for_after_a_leave(*, is_heard_late: bool) -> set[str]:
    """Let a node say goodbye while it is cut off for three seconds; return the nodes that the others wait for."""
    async with testing.open_ring(5, seed=3, network=MessageNetwork(3)) as ring:  # loses what a partition stops
        await until_in_sync(ring)
        leaver, *others = clockwise(ring, b"key")
        say, linger = leaver._shutdown.say, leaver._shutdown.linger

        async def say_cut_off(neighbours: tuple[str, ...], *, has_left: bool) -> list[str]:
            ring.network.partition([leaver.name])
            return await say(neighbours, has_left=has_left)

        async def linger_only(neighbours: tuple[str, ...], unheard: list[str]) -> None:
            await linger(neighbours, [])

        leaver._shutdown.say = say_cut_off  # type: ignore[method-assign]
        if not is_heard_late:
            leaver._shutdown.linger = linger_only  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leaver.leave)
            await until(lambda: only(leaver).state == "left")
            await trio.sleep(3)
            ring.network.heal()
        assert leaver.state == "left"
        await trio.sleep(60)
        return {contact.address for node in others for contact in node._host.peers.passive.contacts()}


@virtual
async def test_leaver_in_a_partition_repeats_its_goodbye() -> None:
    assert await waited_for_after_a_leave(is_heard_late=True) == set()


async def waited_for_after_two_leaves() -> set[str]:
    """Let two neighbours say goodbye while both are cut off together; return the nodes that the others wait for."""
    async with testing.open_ring(6, seed=3, network=MessageNetwork(3)) as ring:
        await until_in_sync(ring)
        *leavers, others = *clockwise(ring, b"key")[:2], clockwise(ring, b"key")[2:]
        await begin_leave_without_end(*leavers)
        ring.network.partition([leaver.name for leaver in leavers])
        for leaver in leavers:
            leaver._handoff.count = lambda: 0
        await until(lambda: {only(leaver).state for leaver in leavers} == {"left"})
        await trio.sleep(2)
        ring.network.heal()
        for leaver in leavers:
            await leaver.closed.wait()
        assert {leaver.state for leaver in leavers} == {"left"}
        await trio.sleep(60)
        return {contact.address for node in others for contact in node._host.peers.passive.contacts()}


@virtual
async def test_leavers_in_a_partition_do_not_count_for_each_other() -> None:
    assert await waited_for_after_two_leaves() == set()


@virtual
async def test_planted_goodbye_that_only_leavers_heard_is_caught() -> None:
    def is_heard(shutdown: Shutdown, neighbours: tuple[str, ...], unheard: list[str]) -> bool:
        return any(address not in unheard for address in neighbours)

    with mock.patch.object(Shutdown, "_is_heard", is_heard):
        assert await waited_for_after_two_leaves()


@virtual
async def test_planted_leaver_that_says_goodbye_once_is_caught() -> None:
    assert await waited_for_after_a_leave(is_heard_late=False)

"""Restarts of a leaver's heir, the vnode that got the leaver's arc, while the leaver brings its records home."""

from __future__ import annotations

from collections.abc import Iterable
from unittest import mock

import pytest
import trio
from msgspec.structs import replace

from chord import testing
from chord.errors import Busy, ChordError
from chord.ids import Arc, Point
from chord.membership.join import Membership
from chord.net.calls import Caller
from chord.node import Node
from chord.ring.ownership import Ownership
from chord.ring.takeover import Takeover
from chord.ring.vnode import Vnode
from chord.testing.rings import TestRing
from chord.wire.messages import Contact, GetRing, GetRingReply
from tests.support.quorum import keep_disks, timing, until
from tests.support.rings import get, only, patiently, put

SOON_S = 4.0  # shorter than the time of any leave
DOWN_OUT_S = 2.0


def at(ring: TestRing, point: int) -> Node:
    return next(node for node in ring.nodes if only(node).id == point)


async def begin_leave(leaver: Node) -> trio.Event:
    """Let a node leave, and wait until it has given its arc away; it brings records home once the event is set."""
    bring_home, goes_on = leaver._handoff.bring_home, trio.Event()

    async def bring_home_late(start: Contact) -> int:
        await goes_on.wait()
        return await bring_home(start)

    leaver._handoff.bring_home = bring_home_late  # type: ignore[method-assign]
    leaver._begin_leave()
    await until(lambda: only(leaver).ownership.start is None)
    return goes_on


def keys_in(node: Node, start: int, end: int, count: int) -> list[bytes]:
    """Return some keys in the arc from `start` to `end`."""
    circle, arc = node._host.circle, Arc(Point(start), Point(end))
    return [key for key in (b"%d" % number for number in range(100 * count)) if circle.hash(key) in arc][:count]


async def denied_by(node: Node, keys: list[bytes]) -> list[bytes]:
    """Return the keys that a node reports as not found; errors and late answers claim nothing."""
    denied = []
    for key in keys:
        with trio.move_on_after(0.2):
            try:
                denied += [key] if await get(node, key) == () else []
            except ChordError:
                continue
    return denied


# -- the leave goes on ------------------------------------------------------------------------------------


async def heir_restarts(ids: tuple[int, ...], replicas: int) -> None:
    """Let the vnode at 100 leave, restart its heir at 200, and require that the leave ends and all keys are there."""
    async with testing.open_ring(len(ids), seed=1, bits=8, ids=ids, replicas=replicas) as ring:
        keep_disks(ring)
        leaver, heir = at(ring, 100), at(ring, 200)
        keys = [b"%d" % number for number in range(40)]
        for key in keys:
            await put(leaver, key, key)
        goes_on = await begin_leave(leaver)
        heir = await ring.restart(heir)
        goes_on.set()
        with trio.fail_after(SOON_S):
            await heir.ready()
            await leaver.closed.wait()
        assert leaver.state == "left"
        with trio.fail_after(SOON_S):
            for key in keys:
                assert await patiently(lambda k=key: get(heir, k)) == (key,)  # type: ignore[misc]
                await patiently(lambda k=key: put(heir, k, b"new"))  # type: ignore[misc]
        assert ring.violations() == []


@pytest.mark.parametrize("ids", [(100, 200), (10, 100, 200), (10, 50, 100, 200, 230)])
@pytest.mark.parametrize("replicas", [1, 3])
def test_leave_ends_soon_if_the_heir_restarts(ids: tuple[int, ...], replicas: int) -> None:
    testing.run(heir_restarts, ids, replicas)


async def look_no_further(takeover: Takeover, *args: object) -> None:
    """Plant the bug: do not look past a predecessor without an arc."""


def is_at_predecessor(takeover: Takeover) -> bool:
    """Plant the bug: an arc behind a leaver has no bound, so N = 1 fetches no records."""
    predecessor = takeover._ring.predecessor
    return predecessor is not None and predecessor.id == takeover._vnode.ownership.start


async def wait_for_an_owner(membership: Membership, others: list[Contact], predecessor: Contact) -> None:
    """Plant the bug: wait although all others are leaving."""
    raise Busy("no vnode answers for an arc", after_ms=250)


@pytest.mark.parametrize(
    ("owner", "name", "bug", "ids", "replicas"),
    [
        (Takeover, "_look_past", look_no_further, (10, 100, 200), 3),
        (Takeover, "is_bounded", property(is_at_predecessor), (10, 100, 200), 1),
        (Membership, "_taker_of_my_arc", wait_for_an_owner, (100, 200), 3),
    ],
)
def test_planted_heir_that_blocks_a_leave_is_caught(
    owner: type, name: str, bug: object, ids: tuple[int, ...], replicas: int
) -> None:
    with mock.patch.object(owner, name, bug), pytest.raises(trio.TooSlowError):
        testing.run(heir_restarts, ids, replicas)


async def leaves_before_the_heir() -> None:
    """Let four vnodes before the heir leave at once, with lists of two, and restart the heir."""
    ids = (20, 40, 60, 80, 100)
    async with testing.open_ring(5, seed=1, bits=8, ids=ids, replicas=3, successors=2) as ring:
        keep_disks(ring)
        *leavers, heir = (at(ring, point) for point in ids)
        go_on = [await begin_leave(leaver) for leaver in leavers]
        heir = await ring.restart(heir)
        for event in go_on:
            event.set()
        with trio.fail_after(2 * SOON_S):
            for leaver in leavers:
                await leaver.closed.wait()
        assert {leaver.state for leaver in leavers} == {"left"}


def test_leaves_of_more_nodes_than_a_list_names_end_soon() -> None:
    testing.run(leaves_before_the_heir)


# -- no key is denied -------------------------------------------------------------------------------------


async def most_owners_beside_a_far_owner() -> int:
    """Let two vnodes behind a returning vnode leave, as many as a list names. The owner stands behind them.

    Return the largest number of vnodes that owned one point at the same time.
    """
    ids = (10, 100, 150, 160, 170, 250)
    async with testing.open_ring(6, seed=1, bits=8, ids=ids, successors=2) as ring:
        keep_disks(ring)
        await trio.sleep(1)  # until every node has saved its place
        for point in (150, 160, 170, 100):
            at(ring, point)._handoff.count = lambda: 1  # type: ignore[method-assign]
            await begin_leave(at(ring, point))
        await ring.restart(at(ring, 150))
        most, ended = 0, trio.current_time() + 1
        while trio.current_time() < ended:
            most = max(most, sum(only(node).ownership.is_owner(Point(50)) for node in ring.nodes))
            await trio.sleep(0.01)
        return most


def test_returning_vnode_asks_beyond_the_leavers_behind_it() -> None:
    assert testing.run(most_owners_beside_a_far_owner) == 1


def test_planted_search_that_ends_with_the_list_is_caught() -> None:
    answer = Vnode.on_get_ring

    def without_a_list(vnode: Vnode, request: GetRing, caller: Caller) -> GetRingReply:
        reply = answer(vnode, request, caller)
        return reply if request.adopt or reply.owned_from is not None else replace(reply, successors=())

    with mock.patch.object(Vnode, "on_get_ring", without_a_list):
        assert testing.run(most_owners_beside_a_far_owner) == 2


async def denied_keys_of_a_dead_node(within_s: float) -> list[bytes]:
    """Let the heir of a leaver restart, which had a mark for a dead node with the only copies of some keys."""
    late = timing(down_out_s=DOWN_OUT_S)
    async with testing.open_ring(4, seed=1, bits=8, ids=(10, 60, 100, 200), replicas=1, timing=late) as ring:
        keep_disks(ring)
        dead, leaver, heir = at(ring, 60), at(ring, 100), at(ring, 200)
        keys = keys_in(dead, 10, 60, 10)
        for key in keys:
            await put(dead, key, b"v")
        await ring.kill(dead)
        await until(lambda: only(leaver).ownership.start == 10)
        await until(lambda: not only(leaver).preference_list.unreachable())
        (await begin_leave(leaver)).set()
        heir = await ring.restart(heir)
        denied, ended = [], trio.current_time() + within_s
        while trio.current_time() < ended:
            denied += await denied_by(heir, keys)
            await trio.sleep(0.1)
        return denied


def test_returning_heir_keeps_the_mark_of_a_dead_node() -> None:
    assert testing.run(denied_keys_of_a_dead_node, 3.0) == []


def test_planted_heir_that_forgets_its_marks_is_caught() -> None:
    with mock.patch.object(Ownership, "_recalled", return_value=()):
        assert testing.run(denied_keys_of_a_dead_node, 3.0)


async def denied_keys_of_a_living_leaver() -> list[bytes]:
    """Let the heir of a leaver come back with an empty disk, while the leaver has the keys of its former arc."""
    async with testing.open_ring(4, seed=1, bits=8, ids=(10, 100, 200, 230), replicas=1) as ring:
        leaver, heir = at(ring, 100), at(ring, 200)
        keys = keys_in(leaver, 10, 100, 10)
        for key in keys:
            await put(leaver, key, b"v")
        goes_on = await begin_leave(leaver)
        heir = await ring.restart(heir)
        denied, ended = [], trio.current_time() + 2
        while trio.current_time() < ended:
            denied += await denied_by(heir, keys)
            await trio.sleep(0.05)
        goes_on.set()
        await leaver.closed.wait()
        assert [await patiently(lambda k=key: get(heir, k)) for key in keys] == [(b"v",)] * len(keys)  # type: ignore[misc]
        return denied


def test_heir_with_an_empty_disk_asks_the_leaver() -> None:
    assert testing.run(denied_keys_of_a_living_leaver) == []


def test_planted_heir_that_marks_nothing_for_a_leaver_is_caught() -> None:
    mark = Ownership.mark

    def mark_no_leaver(own: Ownership, arc: Arc, others: Iterable[Contact], now: float) -> None:
        mark(own, arc, [contact for contact in others if contact.id != 100], now)

    with mock.patch.object(Ownership, "mark", mark_no_leaver):
        assert testing.run(denied_keys_of_a_living_leaver)

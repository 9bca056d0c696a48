"""Joins while the vnode before the joiner leaves, or while that vnode dies."""

from __future__ import annotations

from typing import TypeVar
from unittest import mock

import pytest
import trio

from chord import testing
from chord.errors import Busy, Leaving
from chord.membership.join import Membership
from chord.net.calls import Caller
from chord.net.peers import Peers
from chord.node import Node
from chord.ring.takeover import Takeover
from chord.ring.vnode import Vnode
from chord.wire.messages import Contact, GetRing, GetRingReply, Reply, Request
from tests.support.quorum import keep_disks, timing, until
from tests.support.rings import get, only, patiently, put, virtual

Answer = TypeVar("Answer", bound=Reply)

SOON_S = 4.0  # shorter than the time of any leave
DOWN_OUT_S = 2.0


async def begin_leave_without_end(leaver: Node) -> None:
    """Let a node leave that cannot bring its records home; wait until it owns no arc."""
    leaver._handoff.count = lambda: 1  # type: ignore[method-assign]
    leaver._begin_leave()
    await until(lambda: only(leaver).ownership.start is None)


# -- the vnode before the joiner leaves ---------------------------------------------------------------


async def join_behind_a_leaver(restarts: bool) -> None:
    """Let the vnode at 100 leave without an end, and start the vnode at 150 or 200, which is right behind it."""
    async with testing.open_ring(3, seed=1, bits=8, ids=(10, 100, 200)) as ring:
        first, leaver, last = ring.nodes
        if restarts:
            await ring.kill(last)
        await begin_leave_without_end(leaver)
        joiner = await ring.restart(last) if restarts else await ring.start(join=[first], id=150)
        with trio.fail_after(SOON_S):
            await joiner.ready()
        assert leaver.state == "leaving"
        assert only(joiner).ownership.start is not None


@pytest.mark.parametrize("restarts", [False, True])
def test_node_joins_behind_a_leaver_without_an_arc(restarts: bool) -> None:
    testing.run(join_behind_a_leaver, restarts)


@pytest.mark.parametrize("restarts", [False, True])
def test_planted_leaver_that_refuses_a_joiner_is_caught(restarts: bool) -> None:
    answer = Vnode.on_get_ring

    def refuse(vnode: Vnode, request: GetRing, caller: Caller) -> GetRingReply:
        return answer(vnode, GetRing(request.adopt), caller)

    with mock.patch.object(Vnode, "on_get_ring", refuse), pytest.raises(trio.TooSlowError):
        testing.run(join_behind_a_leaver, restarts)


@virtual
async def test_leaver_at_its_goodbye_refuses_a_joiner() -> None:
    """Its neighbours have their last list of it, and the joiner would not hear the goodbye."""
    async with testing.open_ring(3, seed=1) as ring:
        leaver = ring[1]
        await begin_leave_without_end(leaver)
        assert only(leaver).on_get_ring(GetRing(joins=True), Caller("")).owned_from is None
        leaver._host.is_ending = True
        with pytest.raises(Leaving):
            only(leaver).on_get_ring(GetRing(joins=True), Caller(""))
        leaver._host.is_ending = False


# -- the node that got the leaver's arc restarts ---------------------------------------------------------


async def heir_restarts(ids: tuple[int, ...], replicas: int) -> None:
    """Let the vnode at 100 leave, restart its heir at 200, and require that the leave ends and all keys are there."""
    async with testing.open_ring(len(ids), seed=1, bits=8, ids=ids, replicas=replicas) as ring:
        keep_disks(ring)
        leaver, heir = ring[ids.index(100)], ring[ids.index(200)]
        keys = [b"%d" % number for number in range(40)]
        for key in keys:
            await put(leaver, key, key)
        bring_home, is_back = leaver._handoff.bring_home, trio.Event()

        async def bring_home_late(start: Contact) -> int:
            await is_back.wait()
            return await bring_home(start)

        leaver._handoff.bring_home = bring_home_late  # type: ignore[method-assign]
        leaver._begin_leave()
        await until(lambda: only(leaver).ownership.start is None)
        heir = await ring.restart(heir)
        is_back.set()
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


async def wait_for_an_owner(membership: Membership, after: list[Contact]) -> None:
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


# -- the leaver dies during a long join ---------------------------------------------------------------


async def write_quorum_of_a_late_joiner() -> int:
    """Let a node join behind a leaver, which dies between the joiner's arc and its pointers; return the joiner's W.

    When the joiner gets its pointers, the place of the dead leaver has expired. The only other node waits for it.
    """
    call, goes_on = Peers.call, trio.Event()

    async def call_late(peers: Peers, to: Contact | str, request: Request, expect: type[Answer]) -> Answer:
        if isinstance(request, GetRing) and request.joins:
            await goes_on.wait()
        return await call(peers, to, request, expect)

    late = timing(down_out_s=DOWN_OUT_S)
    async with testing.open_ring(2, seed=1, bits=8, ids=(10, 100), replicas=5, timing=late) as ring:
        first, leaver = ring.nodes
        await begin_leave_without_end(leaver)
        with mock.patch.object(Peers, "call", call_late):
            joiner = await ring.start(join=[first], id=200)
            await until(lambda: only(joiner).ownership.start is not None)
            await ring.kill(leaver)
            await until(lambda: only(first).preference_list.unreachable())
            await until(lambda: not only(first).preference_list.unreachable())
            goes_on.set()
            await joiner.ready()
        return only(joiner).write_quorum(only(joiner).replica_set(200))


@virtual
async def test_late_joiner_counts_a_node_that_died_meanwhile() -> None:
    assert await write_quorum_of_a_late_joiner() == 3


@virtual
async def test_planted_late_joiner_without_the_passive_list_is_caught() -> None:
    with mock.patch.object(Vnode, "learn_passive", return_value=None):
        assert await write_quorum_of_a_late_joiner() == 2

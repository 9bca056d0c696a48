"""Joins while the vnode before the joiner leaves, or while that vnode dies."""

from __future__ import annotations

from typing import TypeVar
from unittest import mock

import pytest
import trio

from chord import testing
from chord.errors import Leaving
from chord.net.calls import Caller
from chord.net.peers import Peers
from chord.node import Node
from chord.ring.vnode import Vnode
from chord.wire.messages import Contact, GetRing, GetRingReply, Reply, Request
from tests.support.quorum import timing, until
from tests.support.rings import only, virtual

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

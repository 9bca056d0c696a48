"""A node that leaves while it joins: the ring does not wait for it."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import NamedTuple

import pytest
import trio

from chord import testing
from chord.errors import InvalidRequest
from chord.membership.join import Membership
from chord.node import Node
from chord.replication.transfer import Inbound, Transfers
from chord.sim.cluster import cluster
from tests.support.rings import get, patiently, put

DELAYS_S = (0.009, 0.011, 0.015, 0.03)
"""The first of three nodes that join at the same time gets its arc after 10 virtual ms, the last after 200."""


class Traces(NamedTuple):
    """The traces that nodes left behind, by address."""

    awaited: list[str]  # nodes that may come back, in the view of the ring
    giving: list[str]  # members that still tried to give a leaver an arc
    late: list[str]  # leavers that got an arc after they had begun to leave


async def leave_early(delay_s: float, vnodes: int) -> Traces:
    """Let three nodes leave, a while after they began to join."""
    async with cluster(vnodes=vnodes) as machines:
        stay = [await machines.start(join=())]
        for _ in range(2):
            stay.append(await machines.start(join=stay[:1]))
        await machines.converged()
        keys = [b"key-%d" % number for number in range(20)]
        for key in keys:
            await put(stay[0], key, key)
        joiners = [await machines.start(join=stay[:1]) for _ in range(3)]
        await trio.sleep(delay_s)
        without = [joiner for joiner in joiners if not _owns(joiner)]
        async with trio.open_nursery() as nursery:
            for joiner in joiners:
                nursery.start_soon(joiner.leave)
        giving = [node.address for node in stay for parts in node._parts.values() if parts.transfers.outbound]
        late = [joiner.address for joiner in without if any(v.ring.is_member for v in joiner._host.vnodes.values())]
        await trio.sleep(5)
        for key in keys:
            assert await patiently(partial(get, stay[0], key)) == (key,)
        return Traces(_awaited(stay), giving, late)


def _owns(node: Node) -> bool:
    return any(vnode.ownership.start is not None for vnode in node._host.vnodes.values())


def _awaited(stay: list[Node]) -> list[str]:
    vnodes = [vnode for node in stay for vnode in node._host.vnodes.values()]
    found = {contact.address for vnode in vnodes for contact, _ in vnode.preference_list.unreachable()}
    return sorted(found | {mark.dead.address for vnode in vnodes for mark in vnode.ownership.marks})


def all_traces(vnodes: int = 1) -> Traces:
    each = [testing.run(leave_early, delay_s, vnodes) for delay_s in DELAYS_S]
    return Traces(*(list(chain.from_iterable(lists)) for lists in zip(*each, strict=True)))


@pytest.mark.parametrize("vnodes", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_node_that_leaves_while_it_joins_leaves_no_trace(vnodes: int) -> None:
    assert all_traces(vnodes) == Traces([], [], [])


def test_planted_leave_of_an_owner_before_it_joined_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a leave does not wait until the owner of a new arc knows an heir."""
    monkeypatch.setattr(Membership, "is_entering", False)
    assert all_traces().awaited


def test_planted_leave_in_the_middle_of_a_transfer_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a leave does not wait until the giver of an arc has given up."""
    monkeypatch.setattr(Membership, "_is_receiving", property(lambda self: False, lambda self, value: None))
    assert all_traces().giving


def test_planted_leaver_that_takes_an_arc_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: a leave waits for the whole transfer of an arc, and then gives it back."""

    def session(self: Transfers, session: bytes) -> Inbound:
        inbound = self.inbound
        if inbound is None or inbound.session != session:
            raise InvalidRequest("no such transfer session")
        return inbound

    monkeypatch.setattr(Transfers, "_session", session)
    assert all_traces().late

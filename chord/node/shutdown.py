"""Shutdown: handover, goodbye, redirection of callers; also the announced return.

A stop keeps the data and only says goodbye. A leave is announced first, so that other nodes take this node's place in
the replica sets. Then every arc goes to its successor, and every record to its new replicas.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import trio

from chord.errors import ChordError, PeerUnreachable
from chord.ids import Point
from chord.node.services import VnodeServices
from chord.replication.handoff import Handoff
from chord.ring.context import NodeContext
from chord.ring.vnode import RETRY_MS
from chord.wire.messages import Departing, Done, Parting, Pausing, Request, Retiring, Returned

GOODBYE_S = 1.0


class Shutdown:
    """Takes a node out of its ring, and announces its return."""

    def __init__(self, host: NodeContext, parts: dict[Point, VnodeServices], handoff: Handoff) -> None:
        self._host = host
        self._parts = parts
        self._handoff = handoff
        self._leave_by = -math.inf  # when the time for the leave is over
        self._refusing: set[str] = set()  # addresses that refused the latest connection

    def neighbours(self) -> tuple[str, ...]:
        """Return the addresses of the other nodes in the vnodes' ring pointers."""
        found: dict[str, None] = {}
        for parts in self._parts.values():
            ring = parts.vnode.ring
            for contact in (*ring.predecessors, *ring.successors, *([ring.predecessor] if ring.predecessor else [])):
                if contact.address != self._host.address:
                    found[contact.address] = None
        return tuple(found)

    async def say_back(self, known: Iterable[str]) -> None:
        """Announce that this node is back with its records, so that others compare theirs.

        If N = 1, there is nothing to compare, and nothing is announced. A task tells the nodes that did not hear at
        first. They may still count this node as leaving, and take writes for fewer replicas meanwhile.

        Args:
            known: further addresses to tell. All predecessors must hear, and this node learns its predecessors one by
                one.
        """
        if self._host.constants.replicas > 1:
            others = dict.fromkeys(a for a in (*self.neighbours(), *known) if a != self._host.address)
            unheard = await self._tell(others, Returned(self._host.address))
            if unheard and not self._host.is_leaving:
                self._host.tasks.start(self._say_back_again, unheard)

    async def _say_back_again(self, unheard: list[str]) -> None:
        """Tell nodes of the return until all have heard, or none of them can still count this node as leaving."""
        with trio.move_on_after(self._host.timing.leave_s):
            while unheard and not self._host.is_leaving:
                await trio.sleep(self._host.jitter(self._host.timing.stabilize_s))
                unheard = await self._tell(unheard, Returned(self._host.address))

    async def hand_over(self) -> None:
        """Hand over every arc, and bring all records to their replicas, within `leave_s`.

        A vnode that owns an arc already, but is not a member yet, first becomes one. It knows no heir before.
        After that time this returns, and `has_handed_over` says whether the handover is complete.

        Concurrency: checkpoints. If it is cancelled, this node still has all that was not acknowledged.
        """
        self._leave_by = trio.current_time() + self._host.timing.leave_s
        with trio.move_on_at(self._leave_by):
            await self._let_joins_end()
            await self._say_leaving()
            async with trio.open_nursery() as nursery:
                for parts in self._parts.values():
                    if parts.vnode.ring.is_member:
                        nursery.start_soon(parts.membership.leave)
            first = next(iter(self._parts.values()))
            while not self._handoff.is_done():
                others = [c for c in first.vnode.ring.successors if c.address != self._host.address]
                if not others:
                    return
                if not await self._handoff.bring_home(others[0]) and not self._handoff.is_done():
                    await self._say_leaving()  # nodes that missed it still choose this node
                    await trio.sleep(self._host.jitter(RETRY_MS / 1000))

    async def _let_joins_end(self) -> None:
        """Wait until every vnode is a member, or owns no arc and is given none."""
        while True:
            if not any(parts.membership.is_entering for parts in self._parts.values()):
                return
            await trio.sleep(self._host.jitter(RETRY_MS / 1000))

    async def _say_leaving(self) -> None:
        if self._host.constants.replicas > 1:
            await self._tell(self.neighbours(), Retiring(self._host.address))

    def has_handed_over(self, neighbours: tuple[str, ...]) -> bool:
        """Return whether this node holds nothing that other nodes may need.

        That is so if it owns no arc and has handed off all misplaced records, or if it is the last node of its ring. A
        node that lost every neighbour, or has not found one yet, is not the last. Nor is a node that knows unreachable
        nodes: they may return, and only this node holds the writes that they missed.
        """
        vnodes = [parts.vnode for parts in self._parts.values()]
        is_alone = not neighbours and not any(self._host.peers.passive.contacts())
        is_last = is_alone and all(v.ring.is_member and not v.ring.is_isolated for v in vnodes)
        owns = any(vnode.ownership.start is not None for vnode in vnodes)
        return is_last or (not owns and self._handoff.is_done())

    async def say(self, neighbours: tuple[str, ...], *, has_left: bool) -> list[str]:
        """Say goodbye to the neighbours, to the predecessors first.

        Until the predecessors know, their successor lists may need this node. On a leave, every vnode becomes "left"
        after the calls to the predecessors.

        Args:
            neighbours: the addresses of all nodes to tell.
            has_left: announce a leave; otherwise a stop.

        Returns:
            The addresses of the nodes that did not confirm the goodbye.
        """
        vnodes = [parts.vnode for parts in self._parts.values()]
        request = self._departing() if has_left else Pausing(self._host.address)
        before = [vnode.ring.predecessor for vnode in vnodes if vnode.ring.predecessor is not None]
        first = [contact.address for contact in before if contact.address != self._host.address]
        unheard = await self._tell(first, request)
        for vnode in vnodes if has_left else ():
            vnode.state = "left"
        return unheard + await self._tell([address for address in neighbours if address not in first], request)

    def _departing(self) -> Request:
        vnodes = [parts.vnode for parts in self._parts.values() if parts.vnode.ring.is_member]
        return Departing(self._host.address, tuple(Parting(vnode.me, vnode.ring.successors) for vnode in vnodes))

    async def linger(self, neighbours: tuple[str, ...], unheard: list[str]) -> None:
        """After a leave, keep redirecting callers until every neighbour must have heard.

        If no neighbour that stays has heard the goodbye, such as in a partition, repeat it until `leave_s` is over.
        Otherwise the ring would wait for this node until an operator forgets it. One neighbour suffices, because nodes
        that wait for this node ask all others (`ring/merge.py`). A neighbour that refused the connection may restart,
        so it gets the goodbye once more in the end.

        Args:
            neighbours: the addresses of all nodes to which the goodbye went; at least one.
            unheard: those that did not confirm the goodbye.
        """
        with trio.move_on_at(self._leave_by):
            while not self._is_heard(neighbours, unheard):
                silent = [address for address in unheard if not self._has_ended(address)]
                if not silent:
                    break
                await trio.sleep(self._host.jitter(self._host.timing.stabilize_s))
                still = await self._tell(silent, self._departing())
                unheard = [a for a in unheard if a not in silent or a in still]
        slowest = max(self._host.peers.failure_detector.timeout(address) for address in neighbours)
        await trio.sleep(2 * slowest + self._host.timing.stabilize_s)
        if not self._is_heard(neighbours, unheard):
            await self._tell(unheard, self._departing())

    def _is_heard(self, neighbours: Iterable[str], unheard: list[str]) -> bool:
        """Return whether a neighbour that does not leave itself has confirmed the goodbye."""
        leaving = {address for parts in self._parts.values() for address in parts.vnode.preference_list.retiring}
        return any(a not in unheard and a not in leaving and not self._has_ended(a) for a in neighbours)

    async def _tell(self, addresses: Iterable[str], request: Request) -> list[str]:
        """Send a request to other nodes at the same time, once. Return the addresses that did not confirm it."""
        unheard: list[str] = []
        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(self._tell_one, address, request, unheard)
        return unheard

    async def _tell_one(self, address: str, request: Request, unheard: list[str]) -> None:
        self._refusing.discard(address)
        try:
            with trio.fail_after(min(GOODBYE_S, 2 * self._host.peers.failure_detector.timeout(address))):
                await self._host.peers.call(address, request, Done)
        except (ChordError, trio.TooSlowError) as error:
            if isinstance(error, PeerUnreachable) and error.is_refused:
                self._refusing.add(address)
            self._host.counters["goodbyes_unheard"] += 1
            unheard.append(address)

    def _has_ended(self, address: str) -> bool:
        return address in self._refusing or self._host.peers.failure_detector.state(address) == "left"

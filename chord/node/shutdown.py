"""How a node parts from its ring: hand everything over, say goodbye, answer *moved* for a while; and that it is back.

A stop keeps the data and only says so. A leave says first that it is going to be, so that others take its place in the
replica sets; then every arc goes to its successor, and every record to those who are to hold it from now on.
"""

from __future__ import annotations

from collections.abc import Iterable

import trio

from chord.errors import ChordError
from chord.ids import Point
from chord.node.services import Parts
from chord.replication.handoff import Misplaced
from chord.ring.context import Host
from chord.ring.vnode import RETRY_MS
from chord.wire.messages import Departing, Done, Parting, Pausing, Request, Retiring, Returned

GOODBYE_S = 1.0


class Farewell:
    """The end of a node's membership."""

    def __init__(self, host: Host, parts: dict[Point, Parts], misplaced: Misplaced) -> None:
        self._host = host
        self._parts = parts
        self._misplaced = misplaced

    def neighbours(self) -> tuple[str, ...]:
        """Return whom to tell: every other node in a list of one of the vnodes."""
        found: dict[str, None] = {}
        for parts in self._parts.values():
            ring = parts.vnode.ring
            for contact in (*ring.predecessors, *ring.successors, *([ring.predecessor] if ring.predecessor else [])):
                if contact.address != self._host.address:
                    found[contact.address] = None
        return tuple(found)

    async def say_back(self, known: Iterable[str]) -> None:
        """Tell the neighbours that this node is there, with what it has: they compare it with what they have.

        Args:
            known: of last time. The list of predecessors grows one by one, and all of them are to hear of it.
        """
        if self._host.constants.replicas > 1:
            others = dict.fromkeys(a for a in (*self.neighbours(), *known) if a != self._host.address)
            await self._tell(others, Returned(self._host.address))

    async def hand_over(self) -> None:
        """Leave: hand over every arc, and bring all records home, within `leave_s`.

        Concurrency: checkpoints; cancelled, what was not acknowledged is still here.
        """
        with trio.move_on_after(self._host.timing.leave_s):
            await self._say_leaving()
            async with trio.open_nursery() as nursery:
                for parts in self._parts.values():
                    if parts.vnode.ring.is_member:
                        nursery.start_soon(parts.membership.leave)
            first = next(iter(self._parts.values()))
            while not self._misplaced.is_done():
                others = [c for c in first.vnode.ring.successors if c.address != self._host.address]
                if not others:
                    return
                if not await self._misplaced.bring_home(others[0]) and not self._misplaced.is_done():
                    await self._say_leaving()  # who began meanwhile, or did not hear it, goes on choosing this node
                    await trio.sleep(self._host.jitter(RETRY_MS / 1000))

    async def _say_leaving(self) -> None:
        if self._host.constants.replicas > 1:
            await self._tell(self.neighbours(), Retiring(self._host.address))

    def has_handed_over(self, neighbours: tuple[str, ...]) -> bool:
        """Whether nothing is left here that others would have to know of.

        Who lost every neighbour, or has not found one yet, is not alone. Neither is who knows silent nodes: these may
        come back, and what was written without them is here alone.
        """
        vnodes = [parts.vnode for parts in self._parts.values()]
        is_alone = not neighbours and not any(self._host.peers.passive.contacts())
        is_last = is_alone and all(v.ring.is_member and not v.ring.is_isolated for v in vnodes)
        owns = any(vnode.ownership.start is not None for vnode in vnodes)
        return is_last or (not owns and self._misplaced.is_done())

    async def say(self, neighbours: tuple[str, ...], *, has_left: bool) -> None:
        """Say goodbye, the predecessors first: until they know, their lists may need this node."""
        vnodes = [parts.vnode for parts in self._parts.values()]
        request: Request = Pausing(self._host.address)
        if has_left:
            partings = tuple(Parting(v.me, v.ring.successors) for v in vnodes if v.ring.is_member)
            request = Departing(self._host.address, partings)
        before = [vnode.ring.predecessor for vnode in vnodes if vnode.ring.predecessor is not None]
        first = [contact.address for contact in before if contact.address != self._host.address]
        await self._tell(first, request)
        for vnode in vnodes if has_left else ():
            vnode.state = "left"
        await self._tell([address for address in neighbours if address not in first], request)

    async def linger(self, neighbours: tuple[str, ...]) -> None:
        """Answer *moved*, until all who may still ask here have heard."""
        slowest = max(self._host.peers.suspicion.timeout(address) for address in neighbours)
        await trio.sleep(2 * slowest + self._host.timing.stabilize_s)

    async def _tell(self, addresses: Iterable[str], request: Request) -> None:
        """Say something to other nodes, all at once and once; who does not answer in time has not heard it."""
        async with trio.open_nursery() as nursery:
            for address in addresses:
                nursery.start_soon(self._tell_one, address, request)

    async def _tell_one(self, address: str, request: Request) -> None:
        try:
            with trio.fail_after(min(GOODBYE_S, 2 * self._host.peers.suspicion.timeout(address))):
                await self._host.peers.call(address, request, Done)
        except (ChordError, trio.TooSlowError):
            self._host.counters["goodbyes_unheard"] += 1

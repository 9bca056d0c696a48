"""Many reads or writes at a time: cut by who owns what, one frame for each owner, one for each replica.

A node that is asked for a batch coordinates what is its own, all items at the same time, and passes the rest on: to
each owner one frame. What an owner refuses because the item is not its own (any more), or answers with silence, is
brought to whoever owns it now, item by item. Nothing is decided here: each item is read or written as if it had come
alone (`replication/coordinator.py`, `ring/lookup.py`), and has its own outcome; only what replicas are asked is
gathered (`replication/coalesce.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Final, TypeAlias

import trio

from chord.errors import SILENCE, ChordError, IndefiniteError, NotOwner, Overloaded, QuorumFailed, UnknownVnode, retold
from chord.ids import Point
from chord.net.calls import Answer, Work
from chord.net.steps import Driver
from chord.replication.coalesce import Gather
from chord.ring.context import Host
from chord.ring.lookup import TELL_BEFORE_S, Lookups
from chord.ring.vnode import RETRY_MS, Vnode
from chord.wire.batch import (
    Answers,
    Batch,
    Item,
    bundle,
    expected,
    frames,
    is_refused_whole,
    items_of,
    key_of,
    pack,
    unpack,
)
from chord.wire.messages import Contact, Get, Reply, as_retry

LOOKUPS_AT_ONCE: Final = 16
"""So many owners are searched for at a time; what one lookup finds out spares others theirs."""

TELL_BEFORE_SHARE: Final = 0.2
"""A batch is answered so long before its time is up, or before so much of it is left: what is done by then counts."""

Coordinate: TypeAlias = Callable[[Vnode, Item], Answer]
"""Reads or writes one key, as a vnode's coordinator does."""


class Batches:
    """Answers batches for a node and its vnodes.

    Args:
        start: the vnode lookups start from.
    """

    def __init__(
        self, host: Host, lookups: Lookups, coordinate: Coordinate, start: Callable[[], Contact]
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._coordinate = coordinate
        self._start = start
        self._in_work = 0  # items of all batches

    async def for_vnode(self, vnode: Vnode, batch: Batch) -> Answers:
        """Coordinate the items at one vnode; those that are not its own are refused, each for itself.

        Raises:
            Overloaded: definite; as many items are in work as may be.
        """
        part = _Part(items_of(batch))
        here = dict.fromkeys(part.waiting, vnode)
        gather = Gather(self._host)
        await self._see_through(part, lambda nursery: self._begin_here(part, here, gather, nursery))
        return pack(batch, part.outcomes())

    async def for_node(self, batch: Batch) -> Answers:
        """Answer all items, whoever owns them.

        Raises:
            NotReady: definite; this node is not in the ring.
            Overloaded: definite; as many items are in work as may be.
        """
        part = _Part(items_of(batch))
        points = [self._host.circle.hash(key_of(item)) for item in part.items]
        owners = [self._host.owner_of(point) for point in points]
        here = {place: vnode for place, vnode in enumerate(owners) if vnode is not None}
        away = [place for place in part.waiting if place not in here]
        start = self._start() if away else None

        def begin(nursery: trio.Nursery) -> None:
            self._begin_here(part, here, Gather(self._host), nursery)
            if start is not None:
                _Away(self._host, self._lookups, part, points, start, nursery).begin(away)

        await self._see_through(part, begin)
        return pack(batch, part.outcomes())

    def _begin_here(self, part: _Part, here: dict[int, Vnode], gather: Gather, nursery: trio.Nursery) -> None:
        for place, vnode in here.items():
            try:
                answer = self._coordinate(vnode, part.items[place])
            except ChordError as error:
                part.end(place, retold(error))
                continue
            part.wait_for(place, answer, gather, nursery)

    async def _see_through(self, part: _Part, begin: Callable[[trio.Nursery], None]) -> None:
        """Let everything run until all items are answered, or so late that the answer still arrives."""
        count, items_max = len(part.items), self._host.limits.calls_max
        if self._in_work and self._in_work + count > items_max:
            raise Overloaded(f"{self._in_work} items of batches are in work", after_ms=RETRY_MS)
        now, deadline = trio.current_time(), trio.current_effective_deadline()
        if deadline < math.inf:
            deadline -= min(TELL_BEFORE_S, TELL_BEFORE_SHARE * max(0.0, deadline - now))
        self._in_work += count
        try:
            with trio.CancelScope(deadline=deadline):
                async with trio.open_nursery() as nursery:
                    part.deadline = deadline
                    begin(nursery)
                    await part.ended.wait()
        finally:
            part.give_up()
            self._in_work -= count


class _Part:
    """Items and their outcomes, as far as there are any.

    Attributes:
        waiting: the places of the others.
        ended: set when there are none.
        deadline: of all of them.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items: tuple[Item, ...] = tuple(items)
        self.waiting: dict[int, None] = dict.fromkeys(range(len(self.items)))
        self.ended = trio.Event()
        self.deadline = math.inf
        self._outcomes: dict[int, Reply | ChordError] = {}
        self._drivers: dict[int, Driver[Reply]] = {}
        if not self.items:
            self.ended.set()

    def end(self, place: int, outcome: Reply | ChordError) -> None:
        """An item has its outcome."""
        self._outcomes[place] = outcome
        self.waiting.pop(place, None)
        self._drivers.pop(place, None)
        if not self.waiting:
            self.ended.set()

    def wait_for(self, place: int, answer: Answer, gather: Gather, nursery: trio.Nursery) -> None:
        """Take an answer, now or when it is there, as the outcome of an item."""
        if isinstance(answer, Reply):
            self.end(place, answer)
        elif isinstance(answer, Generator):
            driver = self._drivers[place] = Driver(answer, gather)
            driver.begin(partial(self._on_result, place, nursery), self.deadline)
        else:
            nursery.start_soon(self._wait_for, place, answer)

    def _on_result(self, place: int, nursery: trio.Nursery, result: Reply | Exception) -> None:
        if isinstance(result, ChordError):
            self.end(place, retold(result))
        elif isinstance(result, Exception):
            nursery.start_soon(_raise, result)
        else:
            self.end(place, result)

    async def _wait_for(self, place: int, work: Work) -> None:
        try:
            self.end(place, await work)
        except ChordError as error:
            self.end(place, retold(error))

    def give_up(self) -> None:
        """Nobody waits for the others any more."""
        for driver in self._drivers.values():
            driver.give_up()

    def outcomes(self) -> list[Reply | ChordError]:
        """Return all outcomes; that of an item that took too long is that it may have happened."""
        late = QuorumFailed("not done in the time there was for all of them")
        return [self._outcomes.get(place, late) for place in range(len(self.items))]


class _Away:
    """The items of a batch that other nodes own, on their way.

    Args:
        points: of all items, by place.
    """

    def __init__(
        self, host: Host, lookups: Lookups, part: _Part, points: list[Point], start: Contact, nursery: trio.Nursery
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._part = part
        self._points = points
        self._start = start
        self._nursery = nursery
        self._homeless: dict[int, None] = {}  # whose owner is not known
        self._sought: dict[int, None] = {}  # of these, those whose owner is being searched for
        self._misled: dict[int, None] = {}  # whose supposed owner was not the one

    def begin(self, places: list[int]) -> None:
        """Send what can be sent, and search for the other owners."""
        self._homeless.update(dict.fromkeys(places))
        for place in places:
            if place in self._homeless:
                self._send_if_known(place)
        for _ in range(min(LOOKUPS_AT_ONCE - len(self._sought), len(self._homeless))):
            self._nursery.start_soon(self._search)

    async def _search(self) -> None:
        """Find one owner after the other, until none is missing or all that are left are being searched for."""
        while left := [place for place in self._homeless if place not in self._sought]:
            place = left[self._host.rng.randrange(len(left))]  # those who search meanwhile search elsewhere
            self._sought[place] = None
            try:
                with trio.move_on_after(self._host.timing.timeout_stranger_s):
                    await self._lookups.find(self._points[place], self._start, route="fast")
            except ChordError:
                pass  # who brings the item there will say what is wrong
            finally:
                del self._sought[place]
            if place in self._homeless and not self._send_if_known(place):  # else it left with others of one owner
                del self._homeless[place]
                self._nursery.start_soon(self._bring, place, None)

    def _send_if_known(self, place: int) -> bool:
        """Send an item, and all others without a home that have the same one, to their owner."""
        owner = self._known(place)
        if owner is None:
            return False
        some = [place, *(other for other in self._homeless if other != place and self._known(other) == owner)]
        for one in some:
            self._homeless.pop(one, None)
        for places in frames(self._part.items, some):
            self._nursery.start_soon(self._send, owner, places)
        return True

    def _known(self, place: int) -> Contact | None:
        owner = self._lookups.arcs.find(self._points[place])
        return None if owner is None or self._host.peers.is_doubtful(owner) else owner

    async def _send(self, owner: Contact, places: list[int]) -> None:
        """Ask the owner, and bring to whoever is it now what this one does not take."""
        request = bundle([self._part.items[place] for place in places])
        answer: Reply | ChordError
        self._host.counters["forwarded"] += len(places)
        self._host.counters["forward_calls"] += 1
        try:
            answer = await self._lookups.call_watched(owner, request, request.reply)
        except ChordError as error:
            answer = error
        is_apart = is_refused_whole(request, answer)
        outcomes = list(zip(places, unpack(request, answer), strict=True))
        if any(isinstance(outcome, (*SILENCE, UnknownVnode, NotOwner)) for _, outcome in outcomes):
            self._lookups.arcs.forget(owner.address)  # what it does own is learnt anew below
        elsewhere: list[int] = []
        for place, outcome in outcomes:
            if isinstance(outcome, Reply):
                self._lookups.arcs.learn(self._points[place], owner)
                self._part.end(place, outcome)
            elif isinstance(outcome, NotOwner) and place not in self._misled:
                self._misled[place] = None
                elsewhere.append(place)
            elif is_apart or _is_for_another(outcome):
                self._nursery.start_soon(self._bring, place, outcome)
            else:
                self._part.end(place, retold(outcome))
        self.begin(elsewhere)

    async def _bring(self, place: int, before: ChordError | None) -> None:
        """Bring one item to whoever owns it, alone.

        Args:
            before: what came of an earlier attempt. Where that may have had its effect, no later one says that it had
                none.
        """
        item = self._part.items[place]
        is_in_doubt = isinstance(before, IndefiniteError)
        asked = as_retry(item) if is_in_doubt else item
        deliver = partial(self._lookups.deliver, asked, expected(item), self._points[place], self._start)
        outcome: Reply | ChordError
        try:
            outcome, path, _, _ = await deliver()
            self._host.counters["forward_calls"] += path.calls
        except ChordError as error:
            is_known = isinstance(item, Get) or not is_in_doubt or isinstance(error, IndefiniteError)
            outcome = error if is_known or before is None else before
        self._part.end(place, retold(outcome) if isinstance(outcome, ChordError) else outcome)


async def _raise(bug: Exception) -> None:
    raise bug


def _is_for_another(error: ChordError) -> bool:
    """Whether somebody else may answer otherwise. Who has no room for an answer has it when asked for less."""
    if isinstance(error, Overloaded):
        return False
    return error.is_retryable or isinstance(error, (*SILENCE, UnknownVnode))

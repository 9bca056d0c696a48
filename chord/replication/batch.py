"""Batches: many reads or writes at the same time, divided by owner.

A node that receives a batch coordinates the items of its own keys, all at the same time. It forwards the other items,
in one frame for each owner. If an owner refuses an item, because another node owns the key now, or does not answer, the
item goes to the current owner.

Batches decide nothing. Each item is read or written as if it were alone (`replication/coordinator.py`,
`ring/lookup.py`), and has its own outcome. Only the requests to replicas are combined (`replication/coalesce.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import trio

from chord.errors import NO_REPLY, ChordError, IndefiniteError, NotOwner, Overloaded, QuorumFailed, UnknownVnode, retold
from chord.ids import Point
from chord.net.steps import Driver, Steps
from chord.replication.coalesce import Coalescer
from chord.ring.context import NodeContext
from chord.ring.lookup import TELL_BEFORE_S, Lookups
from chord.ring.vnode import RETRY_MS, Vnode, member_of
from chord.wire.batch import BatchReplies, BatchRequest, Frame, Item, frames, items_of, key_of, pack
from chord.wire.messages import BATCH_ITEMS_MAX, Contact, Get, Reply, as_retry

LOOKUPS_AT_ONCE: Final = 16
"""Largest number of lookups in progress for one batch. The result of one may make others unnecessary."""

TELL_BEFORE_SHARE: Final = 0.2
"""A batch is answered before its deadline, by this share of the remaining time, at most `TELL_BEFORE_S`.

So the outcomes of its finished items reach the caller.
"""

Coordinate: TypeAlias = Callable[[Vnode, Item], Reply | Steps[Any]]
"""Reads or writes one key at a vnode: returns the reply, or the steps that return it."""


class Batches:
    """Answers batches for a node and its vnodes.

    Args:
        host: the node context.
        lookups: finds owners, and delivers items to them.
        coordinate: reads or writes one key at a vnode of this node.
    """

    __slots__ = ("_coordinate", "_host", "_in_work", "_lookups")

    def __init__(self, host: NodeContext, lookups: Lookups, coordinate: Coordinate) -> None:
        self._host = host
        self._lookups = lookups
        self._coordinate = coordinate
        self._in_work = 0  # items of all batches

    async def for_vnode(self, vnode: Vnode, batch: BatchRequest) -> BatchReplies:
        """Carry out a batch at one vnode, which coordinates each read or write; return the outcomes.

        The outcome of an item with a key of another owner is an error, `NotOwner` or `Busy`.

        Raises:
            Overloaded: definite; other batches are in work, and with this one their items would exceed `calls_max`.
        """
        part = _Part(items_of(batch))
        await self._see_through(part, dict.fromkeys(part.waiting, vnode))
        return pack(batch, part.outcomes())

    async def for_node(self, batch: BatchRequest) -> BatchReplies:
        """Carry out a client's batch: coordinate the keys of this node's vnodes, forward the other items.

        Return the outcome of each item, in the order of the items.

        Raises:
            NotReady: definite; this node is not in the ring, and other nodes own some of the keys.
            Overloaded: definite; see `for_vnode`.
        """
        part = _Part(items_of(batch))
        points = [self._host.circle.hash(key_of(item)) for item in part.items]
        owners = [self._host.owner_of(point) for point in points]
        here = {place: vnode for place, vnode in enumerate(owners) if vnode is not None}
        away = [place for place in part.waiting if place not in here]
        start = member_of(self._host).me if away else None
        forwarder = None if start is None else _Away(self._host, self._lookups, part, points, start)
        await self._see_through(part, here, forwarder, away)
        return pack(batch, part.outcomes())

    async def _see_through(
        self, part: _Part, here: dict[int, Vnode], forwarder: _Away | None = None, away: Sequence[int] = ()
    ) -> None:
        """Carry out a batch until all items are answered, or shortly before the deadline.

        A *place* is the index of an item in the batch.

        Args:
            part: the items, and their outcomes.
            here: the places of the items to coordinate, each with its vnode.
            forwarder: sends the other items to their owners; None if there are no other items.
            away: the places of the other items.

        Raises:
            Overloaded: definite; see `for_vnode`.
        """
        count, items_max = len(part.items), self._host.limits.calls_max
        if self._in_work and self._in_work + count > items_max:
            raise Overloaded(f"{self._in_work} items of batches are in work", after_ms=RETRY_MS)
        now, deadline = trio.current_time(), trio.current_effective_deadline()
        if deadline < math.inf:
            deadline -= min(TELL_BEFORE_S, TELL_BEFORE_SHARE * max(0.0, deadline - now))
        self._in_work += count
        try:
            with trio.CancelScope(deadline=deadline):
                self._begin_here(part, here, deadline)
                if forwarder is not None:
                    await forwarder.run(away)
                await part.ended.wait()
        finally:
            part.give_up()
            self._in_work -= count

    def _begin_here(self, part: _Part, here: dict[int, Vnode], deadline: float) -> None:
        sender = Coalescer(self._host)
        for place, vnode in here.items():
            try:
                answer = self._coordinate(vnode, part.items[place])
            except ChordError as error:
                part.end(place, error)
            else:
                part.begin(place, answer, sender, deadline)


class _Part:
    """The items of a batch, and their outcomes so far.

    A *place* is the index of an item in the batch.

    Attributes:
        items: the items.
        waiting: the places of the items without an outcome.
        ended: set when every item has an outcome, or a bug has ended the batch.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.items: tuple[Item, ...] = tuple(items)
        self.waiting: dict[int, None] = dict.fromkeys(range(len(self.items)))
        self.ended = trio.Event()
        self._outcomes: dict[int, Reply | ChordError] = {}
        self._drivers: dict[int, Driver[Reply]] = {}
        self._bug: Exception | None = None
        if not self.items:
            self.ended.set()

    def begin(self, place: int, answer: Reply | Steps[Reply], sender: Coalescer, deadline: float) -> None:
        """Take a reply as the outcome of an item, or run the steps that return the reply.

        Args:
            place: the index of the item in the batch.
            answer: the reply, or the steps of a read or write (see `chord/net/steps.py`).
            sender: sends the requests of the steps.
            deadline: the latest time at which the caller can use the outcome, on Trio's clock.
        """
        if isinstance(answer, Reply):
            self.end(place, answer)
        else:
            driver = self._drivers[place] = Driver(answer, sender)
            driver.begin(partial(self._on_result, place), deadline)

    def _on_result(self, place: int, result: Reply | Exception) -> None:
        if isinstance(result, (Reply, ChordError)):
            self.end(place, result)
        else:
            self._bug = result
            self.ended.set()

    def end(self, place: int, outcome: Reply | ChordError) -> None:
        """Set the outcome of the item with this index in the batch."""
        self._outcomes[place] = retold(outcome) if isinstance(outcome, ChordError) else outcome
        self.waiting.pop(place, None)
        self._drivers.pop(place, None)
        if not self.waiting:
            self.ended.set()

    def give_up(self) -> None:
        """Stop waiting for the items without an outcome; their outcome is indefinite.

        `outcomes` returns `QuorumFailed` for them, because they may still be carried out. A write that is already
        stored on this node still goes to its replicas.
        """
        for driver in self._drivers.values():
            driver.give_up()

    def outcomes(self) -> list[Reply | ChordError]:
        """Return the reply or the error of each item, in the order of the batch.

        An unfinished item has an indefinite error (`QuorumFailed`), because it may still be carried out.

        Raises:
            Exception: the bug that has ended the batch.
        """
        if self._bug is not None:
            raise self._bug
        late = QuorumFailed("not finished within the deadline of its batch")
        return [self._outcomes.get(place, late) for place in range(len(self.items))]


class _Away:
    """Forwards the items of a batch that other nodes own.

    A *place* is the index of an item in the batch.

    Args:
        host: the node context.
        lookups: finds owners, and delivers items to them.
        part: all items of the batch.
        points: the point of each item's key, by place.
        start: the vnode at which lookups start.
    """

    def __init__(
        self, host: NodeContext, lookups: Lookups, part: _Part, points: list[Point], start: Contact
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._part = part
        self._points = points
        self._start = start
        self._homeless: dict[int, None] = {}  # places of items with an unknown owner
        self._sought: dict[int, None] = {}  # places among them with a lookup under way
        self._misled: dict[int, None] = {}  # places of items that a supposed owner has refused

    async def run(self, places: Sequence[int]) -> None:
        """Forward the items at these places until each has an outcome."""
        async with trio.open_nursery() as self._nursery:
            self._begin(places)

    def _begin(self, places: Sequence[int]) -> None:
        """Send the items with an owner in the owner cache, and look up the other owners."""
        self._homeless.update(dict.fromkeys(places))
        self._send_known()
        for _ in range(min(LOOKUPS_AT_ONCE - len(self._sought), len(self._homeless))):
            self._nursery.start_soon(self._search)

    async def _search(self) -> None:
        """Look up the owner of one item after another, until each item has a lookup.

        After each lookup, all items of the found owner are sent.
        """
        while left := [place for place in self._homeless if place not in self._sought]:
            place = left[self._host.rng.randrange(len(left))]  # at random, so that parallel lookups spread
            self._sought[place] = None
            try:
                with trio.move_on_after(self._host.timing.timeout_stranger_s):
                    await self._lookups.find(self._points[place], self._start, route="fast")
            except ChordError:
                pass  # `_bring` reports the error
            finally:
                del self._sought[place]
            self._send_known()
            if place in self._homeless:
                del self._homeless[place]
                self._nursery.start_soon(self._bring, place, None)

    def _send_known(self) -> None:
        """Send all items with an owner that is in the owner cache and reachable."""
        groups: dict[Contact, list[int]] = {}
        for place in self._homeless:
            owner = self._lookups.arcs.find(self._points[place])
            if owner is not None and not self._host.peers.is_doubtful(owner):
                groups.setdefault(owner, []).append(place)
        for owner, places in groups.items():
            for place in places:
                del self._homeless[place]
            self._send(owner, places)

    def _send(self, owner: Contact, places: list[int], count_max: int = BATCH_ITEMS_MAX) -> None:
        for frame in frames(self._part.items, places, count_max):
            self._nursery.start_soon(self._send_frame, owner, frame)

    async def _send_frame(self, owner: Contact, frame: Frame) -> None:
        """Send items to their supposed owner, and handle the outcome of each.

        If the supposed owner refuses the whole frame, its items are sent again, in frames of half as many. An item goes
        to the current owner if the supposed owner does not answer, or refuses it because another node owns the key.
        """
        request, count = frame.request, len(frame.places)
        answer: Reply | ChordError
        self._host.counters["forwarded"] += count
        self._host.counters["forward_calls"] += 1
        try:
            answer = await self._host.peers.call_watched(owner, request, request.reply)
        except ChordError as error:
            answer = error
        if frame.is_refused_whole(answer):
            self._send(owner, frame.places, count // 2)
            return
        outcomes = list(frame.outcomes(answer))
        if any(isinstance(outcome, (*NO_REPLY, UnknownVnode, NotOwner)) for _, outcome in outcomes):
            self._lookups.arcs.forget(owner.address)  # its other keys are learnt again below
        elsewhere: list[int] = []
        for place, outcome in outcomes:
            if isinstance(outcome, Reply):
                self._lookups.arcs.learn(self._points[place], owner)
                self._part.end(place, outcome)
            elif isinstance(outcome, NotOwner) and place not in self._misled:
                self._misled[place] = None
                elsewhere.append(place)
            elif _is_for_another(outcome):
                self._nursery.start_soon(self._bring, place, outcome)
            else:
                self._part.end(place, outcome)
        self._begin(elsewhere)

    async def _bring(self, place: int, before: ChordError | None) -> None:
        """Look up the owner of one item, and deliver the item alone.

        Args:
            place: the index of the item in the batch.
            before: the error of an earlier attempt; None if there was none. If that attempt of a write may have taken
                effect, `before` stays the outcome when this attempt fails with a definite error.
        """
        item = self._part.items[place]
        is_in_doubt = isinstance(before, IndefiniteError)
        asked = as_retry(item) if is_in_doubt else item
        outcome: Reply | ChordError
        try:
            outcome, path, _, _ = await self._lookups.deliver(asked, item.reply, self._points[place], self._start)
            self._host.counters["forward_calls"] += path.calls
        except ChordError as error:
            is_known = isinstance(item, Get) or not is_in_doubt or isinstance(error, IndefiniteError)
            outcome = error if is_known or before is None else before
        self._part.end(place, outcome)


def _is_for_another(error: ChordError) -> bool:
    """Return whether a failed item should be tried at another node.

    An overloaded owner is no reason: it may accept the item later, or in a smaller batch.
    """
    if isinstance(error, Overloaded):
        return False
    return error.is_retryable or isinstance(error, (*NO_REPLY, UnknownVnode))

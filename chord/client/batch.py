"""Client batches without I/O: a frame for each node, retries of single items.

Items with a remembered owner go to that node. The others go to the entry node, which splits them by owner. If a node
does not know batches, or rejects one as a whole, its items are sent one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome, Pause, telling
from chord.errors import (
    SILENCE,
    ChordError,
    DeadlineExceeded,
    IndefiniteError,
    InvalidRequest,
    OtherRing,
    UnknownRequest,
)
from chord.wire.batch import Item, bundle, frames, has_no_room, is_refused_whole, unpack
from chord.wire.messages import BATCH_ITEMS_MAX, Get, Reply, Request, as_retry

if TYPE_CHECKING:
    import random

IN_FLIGHT: Final = 512
"""Default number of items under way at a time. With eight owners it fills a frame for each."""

IN_FLIGHT_MAX: Final = 4096

ALONE_AT_ONCE: Final = 64
"""Largest number of requests sent one by one at a time. A node limits the requests in progress of a connection."""

ITEM_S: Final = 0.002
"""Seconds added to the time limit of an attempt for each item under way, because the items share the nodes."""

WINDOW_MIN, WINDOW_PART, WINDOW_TIMES = 8, 4, 2
"""After an attempt that ran out of time, the next one has a quarter of its items, but at least eight. Then the number
doubles with each attempt that ends in time. Otherwise a ring that is too slow for all items at once would repeat all of
them and never finish."""

WITHOUT_BATCHES_MAX: Final = 64
"""Number of nodes that are remembered not to know batches. A forgotten one gets a batch once more."""


def require_in_flight(number: int) -> int:
    """Return the number of items to have under way at a time.

    Raises:
        InvalidRequest: the number is not between 1 and 4096.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= IN_FLIGHT_MAX:
        raise InvalidRequest(f"in_flight is a number of keys, 1 to {IN_FLIGHT_MAX}, not {number!r}")
    return number


class _Parcel(NamedTuple):
    """The items that go to one node in one frame.

    Attributes:
        way: address of the remembered owner; None: the entry node.
        places: indices of the items.
        request: the frame's request.
    """

    way: str | None
    places: list[int]
    request: Request


class _Round:
    """The state of a batch between attempts.

    Attributes:
        asked: the items, in the form in which they are sent next.
        known: the latest outcome of each item; None: none yet.
        tries: the number of failed attempts of each item.
        alone: indices of the items that are sent in frames of their own.
        room: largest number of items in a frame; it shrinks if the replies did not fit one frame.
        window: largest number of items under way at a time.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.asked: list[Item] = list(items)
        self.known: list[Outcome | None] = [None] * len(items)
        self.tries = [0] * len(items)
        self.alone: dict[int, None] = {}
        self.room = BATCH_ITEMS_MAX
        self.window = len(items)

    def fail(self, place: int, error: ChordError) -> None:
        """Record the error of a failed attempt at one item."""
        before, item = self.known[place], self.asked[place]
        before = before if isinstance(before, ChordError) else None
        self.known[place] = telling(before, error, is_write=not isinstance(item, Get))
        self.tries[place] += 1
        if isinstance(error, IndefiniteError):
            retried = as_retry(item)
            assert isinstance(retried, type(item))
            self.asked[place] = retried

    def ended(self, late: ChordError | None = None) -> list[Outcome]:
        """Return the outcomes of all items.

        Args:
            late: the outcome of items without any; they were not tried in time.
        """
        outcomes = [late if outcome is None else outcome for outcome in self.known]
        return [outcome for outcome in outcomes if outcome is not None]


class Many(ClientSession):
    """Client state for requests in batches. See `ClientSession`."""

    def __init__(self, entries: Sequence[str], *, rng: random.Random, arcs_max: int = 0) -> None:
        super().__init__(entries, rng=rng, arcs_max=arcs_max)
        self._without_batches: dict[str, None] = {}

    def request_all(self, items: Sequence[Item]) -> ClientOperation[list[Outcome]]:
        """Make requests at the same time, and retry each until its outcome is final.

        Args:
            items: the requests, all reads or all writes.

        Returns:
            An outcome for each item, in order: its reply, or the error that `request` would raise.
        """
        state = _Round(items)
        waiting = list(range(len(items)))
        while waiting:
            entry = self.entry
            parcels, later = self._parcels(state, waiting, entry)
            calls = tuple(ClientCall(parcel.way or entry, parcel.request) for parcel in parcels)
            sent = sum(len(parcel.places) for parcel in parcels)
            within_s = self.attempt_s(next((parcel.way for parcel in parcels if parcel.way), None))
            within_s = None if within_s is None else within_s + ITEM_S * sent
            try:
                answers = yield MakeCalls(calls, within_s)
            except DeadlineExceeded as error:
                return state.ended(error)
            failed: list[int] = []
            for parcel, answer in zip(parcels, answers, strict=True):
                refused, postponed = self._heard(state, parcel, entry, answer)
                failed += refused
                later += postponed
                if refused and parcel.way is None and isinstance(answer, SILENCE):
                    self.turn_from(entry)
            if any(isinstance(answer, DeadlineExceeded) for answer in answers):
                state.window = max(WINDOW_MIN, sent // WINDOW_PART)
            else:
                state.window *= WINDOW_TIMES
            waiting = sorted((*failed, *later))
            if failed:
                try:
                    yield Pause(self._pause_s(state, failed[0]))
                except DeadlineExceeded as error:
                    return state.ended(error)
        return state.ended()

    def _parcels(self, state: _Round, waiting: Sequence[int], entry: str) -> tuple[list[_Parcel], list[int]]:
        """Return the frames to send now, and the indices of the items to send later."""
        groups: dict[str | None, list[int]] = {}
        alone: list[_Parcel] = []
        later: list[int] = list(waiting[state.window :])
        for place in waiting[: state.window]:
            item = state.asked[place]
            way = None if state.tries[place] else self.short_cuts.to(self.circle, item)
            if place not in state.alone and (way or entry) not in self._without_batches:
                groups.setdefault(way, []).append(place)
            elif len(alone) < ALONE_AT_ONCE:
                alone.append(_Parcel(way, [place], item))
            else:
                later.append(place)
        parcels = [
            _Parcel(way, places, bundle([state.asked[place] for place in places]))
            for way, group in groups.items()
            for places in frames(state.asked, group, state.room)
        ]
        return [*parcels, *alone], later

    def _heard(
        self, state: _Round, parcel: _Parcel, entry: str, answer: Outcome
    ) -> tuple[list[int], list[int]]:
        """Take note of the answer to a frame.

        Returns:
            The indices of items to retry after a pause, and of items to send again at once.
        """
        if is_refused_whole(parcel.request, answer):
            if isinstance(answer, UnknownRequest):
                self._put_off_batches(parcel.way or entry)
            state.alone.update(dict.fromkeys(parcel.places))
            return [], parcel.places
        outcomes = unpack(parcel.request, answer)
        if isinstance(answer, ChordError):  # a single failure, however many items it leaves without a reply
            self.short_cuts.learn(self.circle, state.asked[parcel.places[0]], parcel.way, answer)
        answered = sum(isinstance(outcome, Reply) for outcome in outcomes)
        failed: list[int] = []
        later: list[int] = []
        for place, outcome in zip(parcel.places, outcomes, strict=True):
            if isinstance(outcome, Reply):
                self.short_cuts.learn(self.circle, state.asked[place], parcel.way, outcome)
                state.known[place] = outcome
            elif has_no_room(outcome) and answered:
                state.room = max(1, min(state.room, answered))
                later.append(place)
            elif self._is_failed(state, place, parcel.way, outcome):
                failed.append(place)
        return failed, later

    def _is_failed(self, state: _Round, place: int, way: str | None, error: ChordError) -> bool:
        """Record an error. Returns whether to retry; if not, the error is the outcome."""
        tries = state.tries[place]
        state.fail(place, error)
        if self.is_worth_retrying(error, tries) or (way is not None and isinstance(error, OtherRing)):
            return True
        if isinstance(state.asked[place], Get):
            state.known[place] = error  # a definite error settles a read; an earlier write may have taken effect
        return False

    def _pause_s(self, state: _Round, place: int) -> float:
        known = state.known[place]
        return self.backoff_s(state.tries[place] - 1, known if isinstance(known, ChordError) else None)

    def _put_off_batches(self, address: str) -> None:
        """Send no batches to a node that does not know them, until it is forgotten."""
        self._without_batches[address] = None
        while len(self._without_batches) > WITHOUT_BATCHES_MAX:
            del self._without_batches[next(iter(self._without_batches))]

"""How many requests are made at a time, without I/O: one frame for each node, and each item until it has its answer.

Items whose owner is remembered go to it, the others to the entry node, which cuts them by owner. A node that does not
know batches, or refuses one as a whole, gets its items one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from chord.client.session import Ask, Call, Entries, Operation, Outcome, Pause, telling
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
"""So many items are under way by default: with eight owners, a good frame for each."""

IN_FLIGHT_MAX: Final = 4096

ALONE_AT_ONCE: Final = 64
"""So many requests of their own, where there are no batches; a node takes only so many of a connection."""

ITEM_S: Final = 0.002
"""An attempt may take so much longer for each item that is under way: they share the nodes."""

WINDOW_MIN, WINDOW_PART, WINDOW_TIMES = 8, 4, 2
"""Where an attempt took too long, the next is made with a quarter of its items, and then with twice as many each time:
a ring that is too slow for all at once would else do all of it again and again, and never in time."""

WITHOUT_BATCHES_MAX: Final = 64
"""Of so many nodes it is remembered that they do not know batches; one that is forgotten is asked once more."""


def require_in_flight(number: int) -> int:
    """Return how many items are to be under way at a time.

    Raises:
        InvalidRequest: it is not between 1 and 4096.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= IN_FLIGHT_MAX:
        raise InvalidRequest(f"in_flight is a number of keys, 1 to {IN_FLIGHT_MAX}, not {number!r}")
    return number


class _Parcel(NamedTuple):
    """Items that go to one node in one frame. `way`: the short cut it takes, None: to the entry node."""

    way: str | None
    places: list[int]
    request: Request


class _Round:
    """What has become of many items so far.

    Attributes:
        asked: the items, as they are sent the next time.
        known: what is known of each.
        tries: how many attempts each has behind it.
        alone: those that go in frames of their own.
        room: so many items a frame holds; fewer where their answers were too many bytes for one.
        window: so many items are under way at a time.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.asked: list[Item] = list(items)
        self.known: list[Outcome | None] = [None] * len(items)
        self.tries = [0] * len(items)
        self.alone: dict[int, None] = {}
        self.room = BATCH_ITEMS_MAX
        self.window = len(items)

    def fail(self, place: int, error: ChordError) -> None:
        """An attempt came to this."""
        before, item = self.known[place], self.asked[place]
        before = before if isinstance(before, ChordError) else None
        self.known[place] = telling(before, error, is_write=not isinstance(item, Get))
        self.tries[place] += 1
        if isinstance(error, IndefiniteError):
            retried = as_retry(item)
            assert isinstance(retried, type(item))
            self.asked[place] = retried

    def ended(self, late: ChordError | None = None) -> list[Outcome]:
        """Return the outcomes; `late` is that of the items nothing is known of."""
        outcomes = [late if outcome is None else outcome for outcome in self.known]
        return [outcome for outcome in outcomes if outcome is not None]


class Many(Entries):
    """Makes many requests at a time. See `Entries`."""

    def __init__(self, entries: Sequence[str], *, rng: random.Random, arcs_max: int = 0) -> None:
        super().__init__(entries, rng=rng, arcs_max=arcs_max)
        self._without_batches: dict[str, None] = {}

    def request_all(self, items: Sequence[Item]) -> Operation[list[Outcome]]:
        """Make requests, all reads or all writes, at the same time, each until it is answered for good.

        Returns:
            An outcome for each, in order: its reply, or the error that `request` would raise.
        """
        state = _Round(items)
        waiting = list(range(len(items)))
        while waiting:
            entry = self.entry
            parcels, later = self._parcels(state, waiting, entry)
            calls = tuple(Call(parcel.way or entry, parcel.request) for parcel in parcels)
            sent = sum(len(parcel.places) for parcel in parcels)
            within_s = self.attempt_s(next((parcel.way for parcel in parcels if parcel.way), None))
            within_s = None if within_s is None else within_s + ITEM_S * sent
            try:
                answers = yield Ask(calls, within_s)
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
        """Return the frames of this round, and the places whose turn is later."""
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
        """Take note of what a frame came to. Returns the places that failed, and those to be asked again at once."""
        if is_refused_whole(parcel.request, answer):
            if isinstance(answer, UnknownRequest):
                self._put_off_batches(parcel.way or entry)
            state.alone.update(dict.fromkeys(parcel.places))
            return [], parcel.places
        outcomes = unpack(parcel.request, answer)
        if isinstance(answer, ChordError):  # one silence, however many it leaves without an answer
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
        """Take note of an error. Returns whether to ask again; if not, it is the outcome."""
        tries = state.tries[place]
        state.fail(place, error)
        if self.is_worth_retrying(error, tries) or (way is not None and isinstance(error, OtherRing)):
            return True
        if isinstance(state.asked[place], Get):
            state.known[place] = error  # to a read, a definite answer is the answer; a write may have happened before
        return False

    def _pause_s(self, state: _Round, place: int) -> float:
        known = state.known[place]
        return self.backoff_s(state.tries[place] - 1, known if isinstance(known, ChordError) else None)

    def _put_off_batches(self, address: str) -> None:
        """A node does not know batches: for a while it is not asked for any."""
        self._without_batches[address] = None
        while len(self._without_batches) > WITHOUT_BATCHES_MAX:
            del self._without_batches[next(iter(self._without_batches))]

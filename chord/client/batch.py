"""Client batches without I/O: a frame for each node, retries of single items.

Items with a remembered owner go to that node. The others go to the entry node, which splits them by owner. If a node
refuses a whole frame, its items are sent again in smaller frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome, Pause, telling
from chord.errors import NO_REPLY, ChordError, DeadlineExceeded, IndefiniteError, InvalidRequest, OtherRing
from chord.wire.batch import Frame, Item, frames, has_no_room
from chord.wire.messages import BATCH_ITEMS_MAX, Get, Reply, as_retry

IN_FLIGHT: Final = 512
"""Default number of items under way at a time. With eight owners it fills a frame for each."""

IN_FLIGHT_MAX: Final = 4096

FRAMES_AT_ONCE: Final = 64
"""Largest number of frames to a node at a time. A node limits the requests in progress of a connection."""

ITEM_S: Final = 0.002
"""Seconds added to the time limit of an attempt for each item under way, because the items share the nodes."""

WINDOW_MIN, WINDOW_PART, WINDOW_TIMES = 8, 4, 2
"""After an attempt that ran out of time, the next one has a quarter of its items, but at least eight. Then the number
doubles with each attempt that ends in time. Otherwise a ring that is too slow for all items at once would repeat all of
them and never finish."""


def require_in_flight(number: int) -> int:
    """Return the number of items to have under way at a time.

    Raises:
        InvalidRequest: the number is not between 1 and 4096.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= IN_FLIGHT_MAX:
        raise InvalidRequest(f"in_flight is a number of keys, 1 to {IN_FLIGHT_MAX}, not {number!r}")
    return number


class _State:
    """The state of a batch between attempts.

    The place of an item is its index in the batch.

    Attributes:
        asked: the items, in the form in which they are sent next.
        known: the latest outcome of each item; None: none yet.
        tries: the number of failed attempts of each item.
        left: the places of the items without a final outcome.
        room: largest number of items in a frame. It shrinks if a frame is refused, or if the replies did not fit one.
        window: largest number of items under way at a time.
    """

    def __init__(self, items: Sequence[Item]) -> None:
        self.asked: list[Item] = list(items)
        self.known: list[Outcome | None] = [None] * len(items)
        self.tries = [0] * len(items)
        self.left = dict.fromkeys(range(len(items)))
        self.room = BATCH_ITEMS_MAX
        self.window = len(items)

    def end(self, place: int, outcome: Outcome) -> None:
        """Set the final outcome of the item at index `place`."""
        self.known[place] = outcome
        del self.left[place]

    def fail(self, place: int, error: ChordError) -> ChordError:
        """Record a failed attempt at the item at index `place`.

        Returns:
            The error to report if no later attempt succeeds.
        """
        before, item = self.known[place], self.asked[place]
        known = telling(before if isinstance(before, ChordError) else None, error, is_write=not isinstance(item, Get))
        self.known[place] = known
        self.tries[place] += 1
        if isinstance(error, IndefiniteError):
            retried = as_retry(item)
            assert isinstance(retried, type(item))
            self.asked[place] = retried
        return known

    def ended(self, late: ChordError | None = None) -> list[Outcome]:
        """Return the outcomes of all items.

        Args:
            late: the outcome of the items that have none, because they were not tried in time.
        """
        outcomes = [late if outcome is None else outcome for outcome in self.known]
        return [outcome for outcome in outcomes if outcome is not None]


class ClientBatches:
    """Makes the requests of a client session in batches."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def request_all(self, items: Sequence[Item]) -> ClientOperation[list[Outcome]]:
        """Make requests at the same time, and retry each until its outcome is final.

        Args:
            items: the requests, all reads or all writes.

        Returns:
            An outcome for each item, in order: its reply, or the error that `request` would raise.
        """
        state = _State(items)
        while state.left:
            entry = self._session.entry
            sent = self._frames(state)
            calls = tuple(ClientCall(way or entry, frame.request) for way, frame in sent)
            count = sum(len(frame.places) for _, frame in sent)
            within_s = self._session.attempt_s(next((way for way, _ in sent if way), None))
            within_s = None if within_s is None else within_s + ITEM_S * count
            try:
                answers = yield MakeCalls(calls, within_s)
            except DeadlineExceeded as error:
                return state.ended(error)
            failed: list[int] = []
            for (way, frame), answer in zip(sent, answers, strict=True):
                again = self._take(state, way, frame, answer)
                failed += again
                if again and way is None and isinstance(answer, NO_REPLY):
                    self._session.turn_from(entry)
            if any(isinstance(answer, DeadlineExceeded) for answer in answers):
                state.window = max(WINDOW_MIN, count // WINDOW_PART)
            else:
                state.window *= WINDOW_TIMES
            if failed:
                try:
                    yield Pause(self._pause_s(state, failed[0]))
                except DeadlineExceeded as error:
                    return state.ended(error)
        return state.ended()

    def _frames(self, state: _State) -> list[tuple[str | None, Frame]]:
        """Return the frames to send now, each with the address that gets it.

        The address is that of a remembered owner; None: the entry node.
        """
        groups: dict[str | None, list[int]] = {}
        for place in islice(state.left, state.window):
            circle, request = self._session.circle, state.asked[place]
            way = None if state.tries[place] else self._session.owner_routing.to(circle, request)
            groups.setdefault(way, []).append(place)
        return [
            (way, frame)
            for way, group in groups.items()
            for frame in islice(frames(state.asked, group, state.room), FRAMES_AT_ONCE)
        ]

    def _take(self, state: _State, way: str | None, frame: Frame, answer: Outcome) -> list[int]:
        """Record the outcomes that the answer to a frame contains.

        Args:
            way: the address that got the frame, as a remembered owner; None: the entry node.

        Returns:
            The places of the items to retry after a pause.
        """
        if frame.is_refused_whole(answer):
            state.room = min(state.room, len(frame.places) // 2)
            return []
        if isinstance(answer, ChordError):  # a single failure, however many items it leaves without a reply
            self._session.owner_routing.learn(self._session.circle, state.asked[frame.places[0]], way, answer)
        outcomes = list(frame.outcomes(answer))
        answered = sum(isinstance(outcome, Reply) for _, outcome in outcomes)
        failed: list[int] = []
        for place, outcome in outcomes:
            if isinstance(outcome, Reply):
                self._session.owner_routing.learn(self._session.circle, state.asked[place], way, outcome)
                state.end(place, outcome)
            elif has_no_room(outcome) and answered:
                state.room = min(state.room, answered)
            elif self._is_failed(state, place, way, outcome):
                failed.append(place)
        return failed

    def _is_failed(self, state: _State, place: int, way: str | None, error: ChordError) -> bool:
        """Record an error of the item at index `place`; return whether to retry the item.

        If not, the item has its final outcome.
        """
        tries = state.tries[place]
        known = state.fail(place, error)
        if self._session.is_worth_retrying(error, tries) or (way is not None and isinstance(error, OtherRing)):
            return True
        # A definite error settles a read. An earlier attempt at a write may have taken effect.
        state.end(place, error if isinstance(state.asked[place], Get) else known)
        return False

    def _pause_s(self, state: _State, place: int) -> float:
        known = state.known[place]
        return self._session.backoff_s(state.tries[place] - 1, known if isinstance(known, ChordError) else None)

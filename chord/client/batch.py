"""Client batches without I/O: many writes cut into batches, a frame for each node, retries of single items.

Items with a remembered owner go to that node. The others go to the entry node, which splits them by owner. If a node
refuses a whole frame, its items are sent again in smaller frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

from chord.client.results import Stored, require_several, to_bytes, to_keys, to_pair, to_record
from chord.client.session import ClientCall, ClientOperation, ClientSession, MakeCalls, Outcome, Pause, telling
from chord.errors import NO_REPLY, ChordError, DeadlineExceeded, IndefiniteError, InvalidRequest, OtherRing
from chord.wire.batch import Frame, Item, cut, frames, has_no_room
from chord.wire.messages import BATCH_ITEMS_MAX, Get, Merge, Put, Record, Reply, as_retry, wire_bytes

K = TypeVar("K")
T = TypeVar("T")

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
    """Return `number`, the number of items in a batch, if it is valid.

    Raises:
        InvalidRequest: it is no whole number from 1 to 4096.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= IN_FLIGHT_MAX:
        raise InvalidRequest(f"in_flight is a number of keys, 1 to {IN_FLIGHT_MAX}, not {number!r}")
    return number


def key_batches(
    keys: Iterable[str | bytes], method: str, in_flight: int, on_progress: Callable[[int], None]
) -> Iterator[list[str | bytes]]:
    """Yield keys in batches, each key once, in their order.

    Args:
        keys: the keys.
        method: the name of the calling method, for error messages.
        in_flight: the number of keys in a batch.
        on_progress: called when the caller is done with a batch, with the number of keys so far.

    Raises:
        InvalidRequest: an argument is out of bounds, or an item is neither text nor bytes.
    """
    several, length = to_keys(keys, method), require_in_flight(in_flight)
    for begin in range(0, len(several), length):
        some = several[begin : begin + length]
        yield some
        on_progress(begin + len(some))


# -- writes, cut into batches -------------------------------------------------------------------------


class Bulk(Generic[T, K]):
    """The writes of many items in batches, one batch after another, and their outcomes.

    Iterate over it for the requests of each batch, and call `ended` with their outcomes.

    Args:
        todo: the items of each batch, such as pairs or records.
        key_of: returns the key of an item, as the caller named it.
        to_request: returns the request for an item.
        on_progress: called after each batch with the number of items tried so far.

    Attributes:
        outcomes: by key, the result or the error of each item so far. If a key occurs several times, that of the last
            write.
    """

    def __init__(
        self,
        todo: Iterable[list[T]],
        key_of: Callable[[T], K],
        to_request: Callable[[T], Put | Merge],
        on_progress: Callable[[int], None],
    ) -> None:
        self.outcomes: dict[K, Stored | ChordError] = {}
        self._todo = todo
        self._key_of = key_of
        self._to_request = to_request
        self._on_progress = on_progress
        self._batch: list[T] = []
        self._done = 0

    def __iter__(self) -> Iterator[list[Put | Merge]]:
        """Yield the requests of each batch. Call `ended` before taking the next batch."""
        for batch in self._todo:
            self._batch = batch
            yield [self._to_request(item) for item in batch]

    def ended(self, outcomes: list[Stored | ChordError]) -> None:
        """Record the outcomes of the latest batch, in the order of its requests, and report the progress."""
        self.outcomes.update(zip(map(self._key_of, self._batch), outcomes, strict=True))
        self._done += len(outcomes)
        self._on_progress(self._done)


def many_pairs(
    pairs: Iterable[tuple[str | bytes, str | bytes]],
    to_put: Callable[[tuple[str | bytes, str | bytes]], Put],
    in_flight: int,
    bytes_max: int,
    on_progress: Callable[[int], None],
) -> Bulk[tuple[str | bytes, str | bytes], str | bytes]:
    """Return the writes of many keys with their values, cut into batches. No batch has a key twice.

    Args:
        pairs: pairs of a key and a value; consumed batch by batch.
        to_put: returns the request for a pair.
        in_flight: the largest number of pairs in a batch.
        bytes_max: the largest size of a batch, in bytes; a larger pair is alone in its batch.
        on_progress: called after each batch with the number of pairs tried so far.
    """
    source = require_several(pairs, "pairs of key and value")
    todo = cut(map(to_pair, source), pair_bytes, in_flight, bytes_max, pair_key)
    return Bulk(todo, lambda pair: pair[0], to_put, on_progress)


def many_records(
    records: Iterable[Record],
    to_merge: Callable[[Record], Merge],
    in_flight: int,
    bytes_max: int,
    on_progress: Callable[[int], None],
) -> Bulk[Record, bytes]:
    """Return the merges of many records into the ring, cut into batches. No batch has a key twice.

    Args:
        records: the records; consumed batch by batch.
        to_merge: returns the request for a record.
        in_flight: the largest number of records in a batch.
        bytes_max: the largest size of a batch, in bytes; a larger record is alone in its batch.
        on_progress: called after each batch with the number of records tried so far.
    """
    source = require_several(records, "records")
    todo = cut(map(to_record, source), wire_bytes, in_flight, bytes_max, record_key)
    return Bulk(todo, record_key, to_merge, on_progress)


def pair_key(pair: tuple[str | bytes, str | bytes]) -> bytes:
    """Return the key of a (key, value) pair as bytes, as the ring stores it."""
    return to_bytes(pair[0], "key")


def record_key(record: Record) -> bytes:
    """Return the key of a record."""
    return record.key


def pair_bytes(pair: tuple[str | bytes, str | bytes]) -> int:
    """Return the approximate size of a (key, value) pair in a message, in bytes."""
    return len(to_bytes(pair[0], "key")) + len(to_bytes(pair[1], "value"))


# -- the requests of a batch ----------------------------------------------------------------------------


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
            late: the outcome of the items that have none, because no attempt at them ended in time. None only if every
                item has an outcome.
        """
        outcomes = [late if outcome is None else outcome for outcome in self.known]
        return [outcome for outcome in outcomes if outcome is not None]


class ClientBatches:
    """Makes many requests of a client session at once, in frames of several requests.

    Args:
        session: has the entry nodes and the owner cache.
    """

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def request_all(self, items: Sequence[Item]) -> ClientOperation[list[Outcome]]:
        """Make requests at the same time, and retry each until its outcome is final.

        At the deadline, an unfinished request gets its latest error, or `DeadlineExceeded` if it has none.

        Args:
            items: the requests, all reads or all writes.

        Returns:
            An outcome for each request, in order: its reply, or the error that `ClientSession.request` would raise.
        """
        state = _State(items)
        if self._session.owner_routing.members.is_due:
            yield from self._session.read_members()
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
                state.window = min(state.window * WINDOW_TIMES, len(items))
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
            circle, item = self._session.circle, state.asked[place]
            is_direct = not state.tries[place] and not self._session.member
            owner = self._session.owner_routing.to(circle, item) if is_direct else None
            groups.setdefault(None if owner is None else owner.address, []).append(place)
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

"""Many writes, cut into batches, and their collected outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from chord.client.results import Stored, require_several, to_bytes, to_pair, to_record
from chord.errors import ChordError
from chord.wire.batch import cut
from chord.wire.messages import Merge, Put, Record, wire_bytes

K = TypeVar("K")
T = TypeVar("T")


class Bulk(Generic[T, K]):
    """The writes of many items, one batch after another.

    Attributes:
        outcomes: the result or the error of each key so far, by key as the caller named it. If a key occurs several
            times, that of the last write.
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
        """Record the outcome of each request of the batch."""
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
    """Return the writes of many pairs, in batches.

    Args:
        to_put: function that makes the request for a pair.
        in_flight: largest number of pairs in a batch.
        bytes_max: largest size of a batch in bytes.
        on_progress: callback that gets the number of pairs tried so far, after each batch.
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
    """Return the merges of many records, in batches.

    Args:
        to_merge: function that makes the request for a record.
        in_flight: largest number of records in a batch.
        bytes_max: largest size of a batch in bytes.
        on_progress: callback that gets the number of records tried so far, after each batch.
    """
    source = require_several(records, "records")
    todo = cut(map(to_record, source), wire_bytes, in_flight, bytes_max, record_key)
    return Bulk(todo, record_key, to_merge, on_progress)


def pair_key(pair: tuple[str | bytes, str | bytes]) -> bytes:
    """Return the key of a pair, as it is stored."""
    return to_bytes(pair[0], "key")


def record_key(record: Record) -> bytes:
    """Return the key of a record."""
    return record.key


def pair_bytes(pair: tuple[str | bytes, str | bytes]) -> int:
    """Return the approximate size of a pair on the wire, in bytes."""
    return len(to_bytes(pair[0], "key")) + len(to_bytes(pair[1], "value"))

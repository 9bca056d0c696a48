"""Cuts: the durable content of a store at one moment, while the store goes on."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Protocol, TypeAlias

from chord.ids import Circle, Point
from chord.wire.messages import Record

Place: TypeAlias = tuple[Point, bytes]
"""The point and the key of a record."""


class StoreCut(Protocol):
    """The durable content of a store at one moment, while the store goes on."""

    @property
    def damaged(self) -> int:
        """Number of damaged records that `scan` has left out so far."""

    def scan(self, after: bytes | None) -> Iterator[Record]:
        """Yield all records in the order of the points of their keys.

        The caller may close the iterator early.

        Args:
            after: a key; yield only the records after it. None: all records.

        Raises:
            ChordError: the disk cannot be read.
        """

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all notes by name."""

    def close(self) -> None:
        """Free the memory, or the transaction, that holds the cut. A second call does nothing."""


class MemoryCut:
    """The records of a `MemoryStorage` at one moment. Satisfies `StoreCut`."""

    damaged = 0

    def __init__(self, circle: Circle, places: list[Place], records: list[Record], notes: dict[bytes, bytes]) -> None:
        self._circle = circle
        self._places = places
        self._records = records
        self._notes = notes

    def scan(self, after: bytes | None) -> Iterator[Record]:
        """Yield all records, or those after a key, in the order of the points of their keys."""
        start = 0 if after is None else bisect_right(self._places, (self._circle.hash(after), after))
        yield from islice(self._records, start, None)

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all notes by name."""
        return self._notes

    def close(self) -> None:
        """Free the memory of the cut."""
        self._places, self._records, self._notes = [], [], {}

"""What a database of records is made of, wherever it lies: its rows, what is added up over them, and its errors.

Every row carries a checksum over all of it; a row that fails it is treated as if it were not there.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Generator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
from sortedcontainers import SortedDict

from chord.ids import HASHES_KEPT, Circle
from chord.store import quarantine
from chord.store.merkle import Digests, digest_of
from chord.store.storage import bytes_of_values
from chord.wire.messages import DIGEST_BYTES, ActorClock, Record

CHECKED_AT_OPENING_BYTES = 1024
"""Clocks of up to so many bytes lie in the pages that the opening reads anyway. Larger ones are checked when read."""

WHOLE_ROW: Final = "*"
HEAD_OF_ROW: Final = "point, key, digest"

QUARANTINE_MARK: Final = b"\x93"
"""With this byte begins the column `clock` of a record that has a quarantine: an array of three, not of two."""

_WIDTHS = struct.Struct(">BHBQQ").pack

_encode = msgspec.msgpack.Encoder().encode


class _Clock(msgspec.Struct, array_like=True, gc=False):
    """What the column `clock` holds; a record with nothing in quarantine leaves the last part out."""

    clock: tuple[ActorClock, ...]
    superseded: bytes
    quarantine: tuple[ActorClock, ...] = ()


_decode = msgspec.msgpack.Decoder(_Clock).decode

Place: TypeAlias = tuple[bytes, bytes]
"""Where a record stands: its point, big-endian, and its key. Sorts as the circle does."""


@functools.lru_cache(HASHES_KEPT)
def place_of(circle: Circle, key: bytes) -> Place:
    """Return where the record of a key stands."""
    return circle.hash(key).to_bytes(circle.width, "big"), key


class Row(NamedTuple):
    """A row of the table: a record, and what of it is looked at without decoding it."""

    point: bytes
    key: bytes
    digest: bytes
    minted: bytes | None
    versions: int
    value_bytes: int
    checksum: bytes
    clock: bytes

    @property
    def record(self) -> Record:
        """The record."""
        found = _decode(self.clock)
        return Record(self.key, found.clock, found.superseded, found.quarantine)

    @property
    def quarantined(self) -> int:
        """How many versions are in quarantine; of most rows one byte tells that there are none. 0 if it is damaged."""
        if self.clock[:1] != QUARANTINE_MARK:
            return 0
        try:
            return quarantine.count(self.record)
        except msgspec.DecodeError:
            return 0

    @property
    def is_whole(self) -> bool:
        """Whether the row is what was once written."""
        try:
            return checksum(*self[:6], self.clock) == self.checksum
        except (TypeError, struct.error):  # a column is not even of its type
            return False


def row_of(point: bytes, record: Record, minted: bytes | None) -> Row:
    """Return the row of a record."""
    digest, size = digest_of(record), bytes_of_values(record)
    versions = sum(len(entry.versions) for entry in record.clock)
    parts = (record.clock, record.superseded)
    clock = _encode((*parts, record.quarantine) if record.quarantine else parts)
    total = checksum(point, record.key, digest, minted, versions, size, clock)
    return Row(point, record.key, digest, minted, versions, size, total, clock)


def checksum(
    point: bytes, key: bytes, digest: bytes, minted: bytes | None, versions: int, size: int, clock: bytes
) -> bytes:
    """Return what a row is checked by.

    Raises:
        TypeError, struct.error: a column is not of its type.
    """
    widths = _WIDTHS(len(point), len(key), 255 if minted is None else len(minted), versions, size)
    return blake2b(b"".join((widths, point, key, digest, minted or b"", clock)), digest_size=8).digest()


def require_countable(
    circle: Circle, point: object, key: object, digest: object, versions: object, value_bytes: object, clock_bytes: int
) -> None:
    """Refuse a row with a column that is not of its type or larger than it can be, as far as it is added up.

    A row that stands elsewhere than its key belongs is refused, too: a search for the key would miss it.

    Args:
        clock_bytes: the length of the clock, which need not have been read.

    Raises:
        ValueError, TypeError: it is damaged.
    """
    is_placed = isinstance(key, bytes) and place_of(circle, key) == (point, key) and is_digest(digest)
    is_counted = isinstance(versions, int) and versions >= 0 and isinstance(value_bytes, int)
    if not is_placed or not is_counted or not 0 <= value_bytes <= clock_bytes:  # type: ignore[operator]
        raise ValueError("a column is damaged")


def is_digest(value: object) -> bool:
    """Return whether a column holds a digest, right or wrong."""
    return isinstance(value, bytes) and len(value) == DIGEST_BYTES


class Summary:
    """What of a store is kept in memory."""

    def __init__(self, circle: Circle) -> None:
        self.digests = Digests(circle)
        self.keys = self.value_bytes = self.sibling_keys = 0
        self.bad: set[Place] = set()  # rows that are there and count as missing
        self.is_ordered = True  # the rows stand as a search expects them; it may miss any of them otherwise
        self.hidden: SortedDict[Place, int] = SortedDict()  # rows with a quarantine, and how many versions are in it

    def change(self, point: bytes, old: Row | None, new: Row | None) -> None:
        """A row was stored, replaced or removed."""
        if new is not None:
            self.keys += 1
            self.value_bytes += new.value_bytes
            self.sibling_keys += new.versions > 1
        if old is not None:
            self.keys -= 1
            self.value_bytes -= old.value_bytes
            self.sibling_keys -= old.versions > 1
        if old is not None or new is not None:
            at = int.from_bytes(point, "big")
            self.digests.change(at, old and old.digest, new and new.digest)
        if new is not None and (hidden := new.quarantined):
            self.hidden[new.point, new.key] = hidden
        elif self.hidden and old is not None:
            self.hidden.pop((old.point, old.key), None)

    def lose(self, row: Row) -> None:
        """A row turned out to be damaged: nothing of it that is plausible counts any more. See also `recount`."""
        if isinstance(row.value_bytes, int) and isinstance(row.clock, bytes) and 0 <= row.value_bytes <= len(row.clock):
            self.value_bytes = max(0, self.value_bytes - row.value_bytes)
        if isinstance(row.versions, int) and row.versions > 1:
            self.sibling_keys = max(0, self.sibling_keys - 1)

    def recount(self, part: int, records: int, sum_: int) -> None:
        """The records of a slice were counted anew, and the digests that they have were added up."""
        self.keys += self.digests.correct(part, records, sum_)


class Refused(Exception):
    """A transaction was not written, and the store is as before: it may work later. The text says why."""


class InDoubt(Exception):
    """A transaction may be on the disk or not, and the next opening decides. The text says why."""


class Database(Protocol):
    """One store's database. Everything but `row` and `rows` blocks: it is for a worker, one call at a time.

    Attributes:
        incarnation: of the store.
        key_epoch: the last that is durable.
        summary: what the opening found, added up; the caller keeps it up.
        notes, damaged_notes: the notes that the opening found whole, and the names of the damaged ones.
    """

    incarnation: bytes
    key_epoch: int
    summary: Summary
    notes: dict[bytes, bytes]
    damaged_notes: frozenset[bytes]

    def open(self, incarnation: bytes) -> None:
        """Open the database, or make it with this incarnation; then everything that can be read is durable.

        Raises:
            ConfigError: it is no store, is damaged, belongs to another circle, or there is no room for it.
        """

    def close(self) -> None:
        """Let go of it; twice is once."""

    def row(self, place: Place) -> Row | None:
        """Return the row at a place, whole or not.

        Raises:
            sqlite3.Error: it cannot be read.
        """

    def rows(self, columns: str, start: Place, last: bytes) -> Generator[tuple[Any, ...], None, None]:
        """Yield `WHOLE_ROW` or `HEAD_OF_ROW` of the rows behind a place, up to and including a point, in order.

        Raises:
            sqlite3.Error: they cannot be read.
        """

    def rows_behind(self, place: Place | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a place, in the order in which the file has them; None: from the first.

        Raises:
            sqlite3.Error: they cannot be read.
        """

    def write(self, rows: Mapping[Place, Row | None], notes: Mapping[bytes, bytes | None], key_epoch: int) -> None:
        """Store and remove rows and notes in one transaction; durable when this returns.

        Raises:
            Refused: nothing was written.
            InDoubt: it may have been written.
        """

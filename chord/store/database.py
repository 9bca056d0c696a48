"""Rows, totals and errors of a record database: SQLite's or the simulator's.

Every row carries a checksum over all of its columns. A row that fails its checksum counts as missing.
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
from chord.wire.conversion import first_use
from chord.wire.messages import DIGEST_BYTES, ActorClock, Record

CHECKED_AT_OPENING_BYTES = 1024
"""Largest encoded clock, in bytes, that the opening of a store verifies.

The opening reads the pages of these clocks anyway. Larger clocks are verified when they are read.
"""

WHOLE_ROW: Final = "*"
HEAD_OF_ROW: Final = "point, key, digest"

QUARANTINE_MARK: Final = b"\x93"
"""The first byte of the column `clock` if the record has a quarantine.

It announces an array of three fields; without a quarantine there are two.
"""

_WIDTHS = struct.Struct(">BHBQQ").pack

_encode = msgspec.msgpack.Encoder().encode


class _Clock(msgspec.Struct, array_like=True, gc=False):
    """The content of the column `clock`, encoded as a MessagePack array.

    A record without a quarantine omits the last field.
    """

    clock: tuple[ActorClock, ...]
    replaced: bytes
    quarantine: tuple[ActorClock, ...] = ()


with first_use:
    _decode = msgspec.msgpack.Decoder(_Clock).decode

RowPlace: TypeAlias = tuple[bytes, bytes]
"""The primary key of a row: the point of the record's key (big-endian), the key.

Places sort in the order of the circle.
"""


@functools.lru_cache(HASHES_KEPT)
def place_of(circle: Circle, key: bytes) -> RowPlace:
    """Return the primary key of a key's row: the key's hash (its point), and the key."""
    return circle.hash(key).to_bytes(circle.width, "big"), key


class StoredRow(NamedTuple):
    """A row of the table: a record, and facts about it that need no decoding.

    Attributes:
        point: the hash of the key, big-endian.
        key: the key of the record.
        digest: the digest of the record; see `digest_of`.
        minted: the actor under which this store writes the key, or None; see `Storage.minted`.
        versions: the number of versions outside the quarantine.
        value_bytes: the number of bytes of their values, which `clock` contains.
        checksum: a hash over all other columns.
        clock: the encoded clock, replaced operations and quarantine of the record.
    """

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
        """The record, decoded.

        Raises:
            msgspec.DecodeError: the column `clock` cannot be decoded.
        """
        found = _decode(self.clock)
        return Record(self.key, found.clock, found.replaced, found.quarantine)

    @property
    def quarantined(self) -> int:
        """Number of quarantined (hidden) versions; 0 if the clock cannot be decoded.

        In most rows the first byte of the clock shows that the quarantine is empty.
        """
        if self.clock[:1] != QUARANTINE_MARK:
            return 0
        try:
            return quarantine.count(self.record)
        except msgspec.DecodeError:
            return 0

    @property
    def is_whole(self) -> bool:
        """Whether the checksum matches the row."""
        try:
            return checksum(*self[:6], self.clock) == self.checksum
        except (TypeError, struct.error):  # a column has the wrong type
            return False


def row_of(point: bytes, record: Record, minted: bytes | None) -> StoredRow:
    """Return the row that stores a record.

    Args:
        point: the point of the record's key, big-endian.
        record: the record.
        minted: the actor under which this store writes the key, or None; see `Storage.minted`.
    """
    digest, versions, size = digest_of(record), 0, 0
    for entry in record.clock:
        versions += len(entry.versions)
        for version in entry.versions:
            size += len(version.value or b"")
    parts = (record.clock, record.replaced)
    clock = _encode((*parts, record.quarantine) if record.quarantine else parts)
    total = checksum(point, record.key, digest, minted, versions, size, clock)
    return StoredRow(point, record.key, digest, minted, versions, size, total, clock)


def checksum(
    point: bytes, key: bytes, digest: bytes, minted: bytes | None, versions: int, size: int, clock: bytes
) -> bytes:
    """Return the checksum of a row: a hash over its other columns, which are the parameters.

    `StoredRow` explains the columns; `size` is its `value_bytes`.

    Raises:
        TypeError, struct.error: a column has the wrong type.
    """
    widths = _WIDTHS(len(point), len(key), 255 if minted is None else len(minted), versions, size)
    return blake2b(b"".join((widths, point, key, digest, minted or b"", clock)), digest_size=8).digest()


def require_countable(
    circle: Circle, point: object, key: object, digest: object, versions: object, value_bytes: object, clock_bytes: int
) -> None:
    """Check the columns of a row that enter the totals of its store, without its column `clock`.

    The point must be the hash of the key, because a search for the key would miss any other row. The values of a row
    cannot be larger than its column `clock`, which has `clock_bytes` bytes. `StoredRow` explains the other parameters.

    Raises:
        ValueError, TypeError: a column has a wrong type or an impossible value.
    """
    is_placed = isinstance(key, bytes) and place_of(circle, key) == (point, key) and is_digest(digest)
    is_counted = isinstance(versions, int) and versions >= 0 and isinstance(value_bytes, int)
    if not is_placed or not is_counted or not 0 <= value_bytes <= clock_bytes:  # type: ignore[operator]
        raise ValueError("a column is damaged")


def is_digest(value: object) -> bool:
    """Return whether a value has the type and the length of a digest."""
    return isinstance(value, bytes) and len(value) == DIGEST_BYTES


class StoreSummary:
    """Totals over all rows of a store, kept in memory.

    Attributes:
        digests: the summed Merkle tree of the undamaged rows.
        keys: the number of undamaged rows.
        value_bytes: the bytes of their values, without quarantined values.
        sibling_keys: the number of rows with several versions outside the quarantine.
        bad: the primary keys of the damaged rows in the file, which count as missing.
        is_ordered: whether the rows of the file are in order. If not, a search may miss any of them.
        hidden: the number of quarantined versions of each row that has any, by primary key.
    """

    def __init__(self, circle: Circle) -> None:
        self.digests = Digests(circle)
        self.keys = self.value_bytes = self.sibling_keys = 0
        self.bad: set[RowPlace] = set()
        self.is_ordered = True
        self.hidden: SortedDict[RowPlace, int] = SortedDict()

    def change(self, point: bytes, old: StoredRow | None, new: StoredRow | None) -> None:
        """Update the totals after a row was stored, replaced or removed.

        Args:
            point: the point of the row, big-endian.
            old: the row before; None if there was no row.
            new: the row now; None if it was removed.
        """
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
        if new is not None and new.clock[:1] == QUARANTINE_MARK and (hidden := new.quarantined):
            self.hidden[new.point, new.key] = hidden
        elif self.hidden and old is not None:
            self.hidden.pop((old.point, old.key), None)

    def lose(self, row: StoredRow) -> None:
        """Subtract a row that was found damaged from `value_bytes` and `sibling_keys`.

        Columns with impossible values are ignored. `recount` corrects `keys` and `digests`.
        """
        if isinstance(row.value_bytes, int) and isinstance(row.clock, bytes) and 0 <= row.value_bytes <= len(row.clock):
            self.value_bytes = max(0, self.value_bytes - row.value_bytes)
        if isinstance(row.versions, int) and row.versions > 1:
            self.sibling_keys = max(0, self.sibling_keys - 1)

    def recount(self, part: int, records: int, sum_: int) -> None:
        """Correct `keys` and `digests` after the rows of one slice were counted again.

        Args:
            part: the number of the slice, 0 to 4,095.
            records: the number of its undamaged rows.
            sum_: the sum of their digests.
        """
        self.keys += self.digests.correct(part, records, sum_)


class Refused(Exception):
    """The database did not write a transaction, and is unchanged.

    A later transaction may work. The message gives the reason.
    """


class InDoubt(Exception):
    """A transaction may or may not be on the disk; the next opening of the database shows which.

    The message gives the reason.
    """


class DatabaseCut(Protocol):
    """The committed rows and notes of a database at one moment; later writes do not change them."""

    def rows_behind(self, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a primary key, in file order; None: all rows.

        Each row is a tuple of its columns, in the order of `StoredRow`. The file may have damaged rows out of order.

        Raises:
            sqlite3.Error: the rows cannot be read.
        """

    def notes(self) -> Mapping[bytes, bytes]:
        """Return the undamaged notes by name.

        Raises:
            sqlite3.Error: the notes cannot be read.
        """

    def close(self) -> None:
        """Forget the cut. A second call does nothing."""


class Database(Protocol):
    """The database of one store.

    Attributes:
        incarnation: the incarnation of the store.
        key_epoch: the last durable key epoch.
        summary: the totals at the opening. The user of the database keeps them current.
        notes: the notes that the opening found undamaged, by name.
        damaged_notes: the names of the notes that the opening found damaged.

    Concurrency: `open`, `close`, `write` and `has_room` block. A worker (`chord/store/worker.py`) calls them, one at a
    time; only `has_room` may run beside another. The event loop calls the other methods.
    """

    incarnation: bytes
    key_epoch: int
    summary: StoreSummary
    notes: dict[bytes, bytes]
    damaged_notes: frozenset[bytes]

    def open(self, incarnation: bytes) -> None:
        """Open the database. If it does not exist, create it with this incarnation.

        The incarnation is the random name of a new store, 8 bytes. After the opening, the content of an existing file
        is durable. If the disk is full, this cannot be ensured, and the store opens nevertheless. A new store cannot be
        created on a full disk.

        Raises:
            ConfigError: the file is not a store, is damaged, belongs to a ring with other `bits`, or cannot be created.
        """

    def close(self) -> None:
        """Close the database. A second call does nothing."""

    def row(self, place: RowPlace) -> StoredRow | None:
        """Return the row with this primary key, whole or damaged; None if it is missing.

        Raises:
            sqlite3.Error: the row cannot be read.
        """

    def rows(self, columns: str, start: RowPlace, last: bytes) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows of a range, in ascending order of their primary keys, each as a tuple of its columns.

        Args:
            columns: `WHOLE_ROW` for all columns, in the order of `StoredRow`; or `HEAD_OF_ROW` for point, key, digest.
            start: the range begins behind this primary key.
            last: the range ends with the rows at this point.

        Raises:
            sqlite3.Error: the rows cannot be read.
        """

    def rows_behind(self, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a primary key, in file order; None: all rows.

        Each row is a tuple of its columns, in the order of `StoredRow`. The file may have damaged rows out of order.

        Raises:
            sqlite3.Error: the rows cannot be read.
        """

    def cut(self) -> DatabaseCut:
        """Return a view of the rows and notes that are committed now. An earlier cut is closed.

        Raises:
            sqlite3.Error: the database cannot be read.
        """

    def write(
        self, rows: Mapping[RowPlace, StoredRow | None], notes: Mapping[bytes, bytes | None], key_epoch: int
    ) -> None:
        """Write rows, notes and the key epoch in one transaction, durable on return.

        Args:
            rows: the rows to store, by primary key; None removes the row.
            notes: the notes (see `Storage.note`) to store, by name; None removes the note.
            key_epoch: the last key epoch that the store has used; see `Storage.next_key_epoch`.

        Raises:
            Refused: nothing was written.
            InDoubt: the transaction may or may not be on the disk.
        """

    def has_room(self, size: int) -> bool:
        """Return whether the disk has room for this many more bytes; True if unknown. Blocks, and may take long.

        The call may take the room for a moment. So only `Storage.try_again` calls it.
        """

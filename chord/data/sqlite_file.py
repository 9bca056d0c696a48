"""The database file of a store: its schema, its rows, how it is opened, and one transaction.

Two connections: one reads, in the event loop; one writes and checkpoints, in a thread, one transaction at a time.
The file is in WAL mode with `synchronous=FULL`: a transaction is durable when it is committed, and readers never wait.
Every row carries a checksum over all of it; a row that fails it is treated as if it were not there.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import msgspec

from chord.data.digest import Digests, digest_of
from chord.data.storage import bytes_of_values
from chord.errors import ConfigError
from chord.ids import Circle
from chord.messages import ActorClock, Record

FILE_NAME = "records.sqlite"
ASIDE = ".aside"  # appended to the name of a store that was set aside; there is at most one
FORMAT = 1
APPLICATION_ID = int.from_bytes(b"chor", "big")
CACHE_BYTES = 4 << 20  # of each connection
LOG_BYTES = 64 << 20  # the write-ahead log may have been longer for a while; its file is cut back to this
CHECKED_AT_OPENING_BYTES = 1024
"""Clocks of up to so many bytes lie in the pages that the opening reads anyway. Larger ones are checked when read."""

_SCHEMA = """
CREATE TABLE records (
    point BLOB, key BLOB, digest BLOB, minted BLOB, versions INTEGER, value_bytes INTEGER, checksum BLOB, clock BLOB,
    PRIMARY KEY (point, key)
) WITHOUT ROWID;
CREATE TABLE store (bits INTEGER, incarnation BLOB, key_epoch INTEGER, checksum BLOB);
"""
_WIDTHS = struct.Struct(">BHBQQ").pack
_DEFINITE = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY}
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}

PARTS = ("", "-wal", "-shm")  # the file itself first: what is left without it means nothing

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[tuple[ActorClock, ...], bytes]).decode

Place: TypeAlias = tuple[bytes, bytes]
"""Where a record stands: its point, big-endian, and its key. Sorts as the circle does."""


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
        return Record(self.key, *_decode(self.clock))

    @property
    def is_whole(self) -> bool:
        """Whether the row is what was once written."""
        try:
            return _checksum(*self[:6], self.clock) == self.checksum
        except (TypeError, struct.error):  # a column is not even of its type
            return False


def row_of(point: bytes, record: Record, minted: bytes | None) -> Row:
    """Return the row of a record."""
    digest, size = digest_of(record), bytes_of_values(record)
    versions = sum(len(entry.versions) for entry in record.clock)
    clock = _encode((record.clock, record.superseded))
    checksum = _checksum(point, record.key, digest, minted, versions, size, clock)
    return Row(point, record.key, digest, minted, versions, size, checksum, clock)


def _checksum(
    point: bytes, key: bytes, digest: bytes, minted: bytes | None, versions: int, size: int, clock: bytes
) -> bytes:
    widths = _WIDTHS(len(point), len(key), 255 if minted is None else len(minted), versions, size)
    return blake2b(b"".join((widths, point, key, digest, minted or b"", clock)), digest_size=8).digest()


def _header_checksum(bits: int, incarnation: bytes, key_epoch: int) -> bytes:
    return blake2b(struct.pack(">H8sQ", bits, incarnation, key_epoch), digest_size=8).digest()


class Summary:
    """What of a store is kept in memory."""

    def __init__(self, circle: Circle) -> None:
        self.digests = Digests(circle)
        self.keys = self.value_bytes = self.sibling_keys = 0
        self.bad: set[Place] = set()  # rows that are there and count as missing

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


class StoreFile:
    """One store's file. `open`, `write`, `close` and `set_aside` block: they are for a thread, one at a time.

    Args:
        directory: where it is.
        before_commit: called in the thread before each transaction is committed; tests let it fail or wait.

    Attributes:
        path: the file.
        incarnation: of the store.
        key_epoch: the last that is durable.
        summary: what was found when it was opened; kept up by the caller.
    """

    def __init__(self, circle: Circle, directory: str, before_commit: Callable[[], None]) -> None:
        self.path = Path(directory) / FILE_NAME
        self._circle = circle
        self._before_commit = before_commit
        self.incarnation = b""
        self.key_epoch = 0
        self.summary = Summary(circle)

    # -- opening and closing --------------------------------------------------------------------

    def open(self, incarnation: bytes) -> None:
        """Open the file, or make it with this incarnation; then everything that can be read is durable.

        Raises:
            ConfigError: it is no store, is damaged, belongs to another circle, or there is no room for it.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._open(incarnation)
        except (sqlite3.Error, OSError, ConfigError) as error:
            self.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"cannot open {self.path}: {self._explain(error)}") from error

    def _open(self, incarnation: bytes) -> None:
        self._writer = self._connect()
        self._check_kind()
        self._tune(self._writer)
        # What a process before wrote and could not sync may be readable all the same: now it is written again.
        with suppress(sqlite3.OperationalError):  # of a full disk; a failed one will fail again
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        if not self._has_tables():
            self._create(incarnation)
        self._require_writable()
        self._load_header()
        self._reader = self._connect()
        self._tune(self._reader)
        self._reader.execute("PRAGMA query_only = ON")
        self._load_summary()

    def _require_writable(self) -> None:
        """Refuse a file that can only be read: SQLite opens it, and says so at the first write."""
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.execute("UPDATE store SET bits = bits")
            self._writer.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_READONLY:
                raise
            raise ConfigError(
                f"{self.path} is read-only; a node must write it: change its owner or mode, or how the disk is mounted"
            ) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.text_factory = bytes  # there is no text; what turns up as such is damage, not an error
        return connection

    @staticmethod
    def _tune(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_BYTES >> 10}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")

    def _one(self, statement: str) -> Any:
        return self._writer.execute(statement).fetchone()[0]

    def _has_tables(self) -> bool:
        return bool(self._one("SELECT count(*) FROM sqlite_master"))

    def _check_kind(self) -> None:
        """Refuse what another program or version wrote, before anything is changed."""
        if self._has_tables() and self._one("PRAGMA application_id") != APPLICATION_ID:
            raise ConfigError(f"{self.path} is not a store of records; move it away to start with an empty store")
        version = self._one("PRAGMA user_version")
        if version not in (0, FORMAT):
            raise ConfigError(
                f"{self.path} has format {version}, this version reads {FORMAT}; "
                "use the version that wrote it, or move it away to start with an empty store"
            )

    def _create(self, incarnation: bytes) -> None:
        """Make the tables, all or none of them, and the file's name durable."""
        self._writer.executescript(
            f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
        )
        header = (self._circle.bits, incarnation, 0)
        self._writer.execute("INSERT INTO store VALUES (?, ?, ?, ?)", (*header, _header_checksum(*header)))
        self._writer.execute("COMMIT")
        self._sync_directory()

    def _sync_directory(self) -> None:
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _load_header(self) -> None:
        *header, checksum = self._writer.execute("SELECT * FROM store").fetchone()
        try:
            is_whole = checksum == _header_checksum(*header)
        except (TypeError, struct.error):
            is_whole = False
        if not is_whole:  # a key epoch might be used twice
            raise ConfigError(f"{self.path} is damaged; move it away to start with an empty store")
        bits, self.incarnation, self.key_epoch = header
        if bits != self._circle.bits:
            raise ConfigError(
                f"{self.path} belongs to a ring of {bits} bits, not {self._circle.bits}; "
                "use that ring's --bits, or move it away to start with an empty store"
            )

    def _load_summary(self) -> None:
        """Add up the whole store in one scan, slice by slice.

        A node with a million keys starts as fast as this loop turns, so that its rows are not even made a `Row`.
        """
        self.summary = summary = Summary(self._circle)
        digests, number_of, width = summary.digests, int.from_bytes, self._circle.width
        columns = "point, key, digest, minted, versions, value_bytes, checksum"
        small = f"CASE WHEN length(clock) <= {CHECKED_AT_OPENING_BYTES} THEN clock END"
        found = self._writer.execute(f"SELECT {columns}, {small} FROM records ORDER BY point, key")
        part = records = sum_ = value_bytes = sibling_keys = 0
        first, last = b"\0", b""  # points of the slice, which compare as bytes as they do as numbers; none yet
        for point, key, digest, minted, versions, size, checksum, clock in found:
            try:
                if clock is not None and _checksum(point, key, digest, minted, versions, size, clock) != checksum:
                    raise ValueError("not what was written")
                if not first <= point <= last:
                    digests.add(part, records, sum_)
                    records = sum_ = 0
                    part, *ends = digests.slice_of(number_of(point, "big"))
                    first, last = (end.to_bytes(width, "big") for end in ends)
                number, bytes_then, siblings_then = number_of(digest, "big"), value_bytes + size, versions > 1
            except (TypeError, ValueError, LookupError, struct.error):  # or a column is not even of its type
                summary.bad.add((point, key))
                continue
            records += 1
            summary.keys += 1
            sum_ += number
            value_bytes, sibling_keys = bytes_then, sibling_keys + siblings_then
        digests.add(part, records, sum_)
        summary.value_bytes, summary.sibling_keys = value_bytes, sibling_keys

    def close(self) -> None:
        """Close both connections: the one that writes last, for the last one checkpoints."""
        for name in ("_reader", "_writer"):
            connection = self.__dict__.pop(name, None)
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()

    def set_aside(self) -> None:
        """Give the closed file another name, and everything beside it that is part of it.

        Raises:
            ConfigError: it could not be done.
        """
        try:
            for part in PARTS:
                aside = Path(f"{self.path}{ASIDE}{part}")
                aside.unlink(missing_ok=True)
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{part}", aside)
            self._sync_directory()
        except OSError as error:
            raise ConfigError(f"cannot set {self.path} aside: {error.strerror}") from error

    def remove(self) -> None:
        """Delete the closed file, and everything beside it that is part of it.

        Raises:
            ConfigError: it could not be done.
        """
        try:
            for part in PARTS:
                Path(f"{self.path}{part}").unlink(missing_ok=True)
            self._sync_directory()
        except OSError as error:
            raise ConfigError(f"cannot remove {self.path}: {error.strerror}") from error

    @staticmethod
    def _explain(error: sqlite3.Error | OSError) -> str:
        if isinstance(error, OSError):
            return error.strerror or str(error)
        is_gone = str(error).startswith(("no such column", "no such table"))  # the schema itself is damaged
        if is_gone or _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return f"it is damaged, or no store ({error}); move it away to start with an empty store"
        return str(error)

    # -- reading, in the event loop -------------------------------------------------------------

    def row(self, place: Place) -> Row | None:
        """Return the row at a place, whole or not."""
        found = self._reader.execute("SELECT * FROM records WHERE point = ? AND key = ?", place).fetchone()
        return None if found is None else Row._make(found)

    def rows(self, columns: str, start: Place, last: bytes) -> Generator[tuple[Any, ...], None, None]:
        """Yield columns of the rows behind a place, up to and including a point, in order."""
        query = f"SELECT {columns} FROM records WHERE (point, key) > (?, ?) AND point <= ? ORDER BY point, key"
        with closing(self._reader.execute(query, (*start, last))) as found:
            yield from found

    # -- writing, in the thread -----------------------------------------------------------------

    def write(self, rows: Mapping[Place, Row | None], key_epoch: int) -> None:
        """Store and remove rows in one transaction; durable when this returns.

        Raises:
            sqlite3.Error, OSError: see `is_definite`.
        """
        writer = self._writer
        writer.execute("BEGIN IMMEDIATE")
        try:
            writer.executemany("REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", _present(rows.values()))
            gone = [place for place, row in rows.items() if row is None]
            writer.executemany("DELETE FROM records WHERE point = ? AND key = ?", gone)
            if key_epoch > self.key_epoch:
                checksum = _header_checksum(self._circle.bits, self.incarnation, key_epoch)
                writer.execute("UPDATE store SET key_epoch = ?, checksum = ?", (key_epoch, checksum))
            self._before_commit()
            writer.execute("COMMIT")
            self.key_epoch = max(key_epoch, self.key_epoch)
        except BaseException:
            if writer.in_transaction:
                writer.execute("ROLLBACK")
            raise


def _present(rows: Iterable[Row | None]) -> Iterator[Row]:
    return (row for row in rows if row is not None)


def is_definite(error: sqlite3.Error | OSError) -> bool:
    """Return whether nothing was written for want of room (or because another program holds the file): it may
    work later. After any other error it is not known what is on the disk."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    return _code(error) in _DEFINITE


def _code(error: sqlite3.Error) -> int:
    """Return SQLite's primary result code."""
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF

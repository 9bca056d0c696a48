"""The database file of a store: its schema, rows, opening and transactions.

There are two connections. One reads in the event loop. The other writes and checkpoints in a thread, one transaction at
a time. The file is in WAL mode with `synchronous=FULL`: a transaction is durable when it is committed, and readers
never wait.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import struct
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from chord.errors import ConfigError
from chord.ids import Circle
from chord.store import database, sqlite_notes
from chord.store.database import (
    CHECKED_AT_OPENING_BYTES,
    QUARANTINE_MARK,
    InDoubt,
    Refused,
    RowPlace,
    StoredRow,
    StoreSummary,
    require_countable,
)
from chord.store.fsync import make_directory, sync_directory

FILE_NAME = "records.sqlite"
FORMAT = 2
APPLICATION_ID = int.from_bytes(b"chor", "big")
CACHE_BYTES = 4 << 20  # of each connection
ROOM_CHUNK_BYTES = 64 << 10  # one write of the test whether the disk has room
LOG_BYTES = 64 << 20  # the file of the write-ahead log is cut back to this size after it was longer

_SCHEMA = """
CREATE TABLE records (
    point BLOB, key BLOB, digest BLOB, minted BLOB, versions INTEGER, value_bytes INTEGER, checksum BLOB, clock BLOB,
    PRIMARY KEY (point, key)
) WITHOUT ROWID;
CREATE TABLE store (bits INTEGER, incarnation BLOB, key_epoch INTEGER, checksum BLOB);
"""

_DEFINITE_AT_COMMIT = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY}
_DEFINITE = {*_DEFINITE_AT_COMMIT, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY}
"""SQLite errors after which nothing was written.

At COMMIT the last two may arrive when the transaction is already on the disk.
"""
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_DOES_NOT_FIT = {*_NO_ROOM, errno.EFBIG}


def _header_checksum(bits: int, incarnation: bytes, key_epoch: int) -> bytes:
    return blake2b(struct.pack(">H8sQ", bits, incarnation, key_epoch), digest_size=8).digest()


def _read_only(path: Path) -> ConfigError:
    mode = stat.S_IMODE(path.stat().st_mode)
    return ConfigError(
        f"{path} is read-only (mode {mode:04o}); a node must write it: change its owner or mode, or how the disk is "
        "mounted"
    )


def _require_writable_if_there(path: Path) -> None:
    """Refuse a read-only file or directory.

    This check comes before SQLite creates a log and an index with the mode of that file.

    Raises:
        ConfigError: the file or directory is read-only.
    """
    if path.exists() and not os.access(path, os.W_OK):
        raise _read_only(path)


class _Text(NamedTuple):
    """A value with SQLite's type TEXT: damage, because no column holds text.

    A search for the same bytes does not find such a value.
    """

    content: bytes


class FileCut:
    """The committed rows and notes of a file at one moment: an open read transaction.

    Satisfies `chord.store.database.DatabaseCut`. SQLite keeps the older pages in the log until the transaction ends.

    Args:
        connection: a connection of its own.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("PRAGMA query_only = ON")
        connection.execute("BEGIN")
        connection.execute("SELECT bits FROM store").fetchall()  # the first read fixes the moment

    def rows_behind(self, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a primary key, in file order; None: all rows. See `DatabaseCut.rows_behind`."""
        return _rows_behind(self._connection, place)

    def notes(self) -> Mapping[bytes, bytes]:
        """Return the undamaged notes by name."""
        return sqlite_notes.load(self._connection)[0]

    def close(self) -> None:
        """End the read transaction."""
        with suppress(sqlite3.Error):
            self._connection.close()


class StoreFile:
    """The file of one store. Satisfies `chord.store.database.Database`.

    Concurrency: `open`, `write`, `has_room` and `close` block. A thread calls them, one at a time; only `has_room` may
    run beside another.

    Args:
        circle: of the ring; the file of another circle is refused.
        directory: the directory of the file.
        before_commit: called in the thread before each commit. Tests use it to fail or to wait.
    """

    def __init__(self, circle: Circle, directory: str, before_commit: Callable[[], None]) -> None:
        self.path = Path(directory) / FILE_NAME
        self._circle = circle
        self._before_commit = before_commit
        self._cut: FileCut | None = None
        self.incarnation = b""
        self.key_epoch = 0  # the last durable key epoch
        self.summary = StoreSummary(circle)  # the totals at the opening. The caller keeps them current.
        self.notes: dict[bytes, bytes] = {}  # the notes that the opening found whole; see `sqlite_notes.load`
        self.damaged_notes: frozenset[bytes] = frozenset()  # the names of the notes that the opening found damaged

    # -- opening and closing --------------------------------------------------------------------

    def open(self, incarnation: bytes) -> None:
        """Open the file, or create it with this incarnation; see `Database.open`."""
        try:
            make_directory(self.path.parent)
            self._open(incarnation)
        except (sqlite3.Error, OSError, ConfigError) as error:
            self.close()
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"cannot open {self.path}: {self._explain(error)}") from error

    def _open(self, incarnation: bytes) -> None:
        _require_writable_if_there(self.path.parent)
        for suffix in ("", "-wal", "-shm"):
            _require_writable_if_there(self.path.with_name(FILE_NAME + suffix))
        self._writer = self._connect()
        self._check_kind()
        self._tune(self._writer)
        # An earlier process may have written a readable transaction that it could not sync. Write it again.
        try:
            self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_FULL:  # a full disk can still serve reads
                raise
        if not self._has_tables():
            self._create(incarnation)
        self._require_writable()
        self._load_header()
        self.notes, self.damaged_notes = sqlite_notes.load(self._writer)
        self._reader = self._connect()
        self._tune(self._reader)
        self._reader.execute("PRAGMA query_only = ON")
        self._load_summary()

    def _require_writable(self) -> None:
        """Refuse a read-only file.

        SQLite opens such a file without an error, and fails at the first write.
        """
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            self._writer.execute("UPDATE store SET bits = bits")
            self._writer.execute("ROLLBACK")
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_READONLY:
                raise
            raise _read_only(self.path) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        connection.text_factory = _Text
        return connection

    @staticmethod
    def _tune(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA fullfsync = ON")  # macOS only; no effect elsewhere
        connection.execute("PRAGMA checkpoint_fullfsync = ON")
        connection.execute(f"PRAGMA cache_size = -{CACHE_BYTES >> 10}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")

    def _one(self, statement: str) -> Any:
        return self._writer.execute(statement).fetchone()[0]

    def _has_tables(self) -> bool:
        return bool(self._one("SELECT count(*) FROM sqlite_master"))

    def _check_kind(self) -> None:
        """Refuse a file of another program or version, before anything is changed."""
        has_tables = self._has_tables()
        if has_tables and self._one("PRAGMA application_id") != APPLICATION_ID:
            raise ConfigError(f"{self.path} is not a store of records; move it away to start with an empty store")
        version = self._one("PRAGMA user_version")
        if version != (FORMAT if has_tables else 0):
            raise ConfigError(
                f"{self.path} has format {version}; expected {FORMAT}; "
                "use the version that wrote it, or move it away to start with an empty store"
            )

    def _create(self, incarnation: bytes) -> None:
        """Create all tables in one transaction, and make the file's name durable."""
        self._writer.executescript(
            f"BEGIN IMMEDIATE; {_SCHEMA} {sqlite_notes.SCHEMA}"
            f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT};"
        )
        header = (self._circle.bits, incarnation, 0)
        self._writer.execute("INSERT INTO store VALUES (?, ?, ?, ?)", (*header, _header_checksum(*header)))
        self._writer.execute("COMMIT")
        sync_directory(self.path.parent)

    def _load_header(self) -> None:
        *header, checksum = self._writer.execute("SELECT * FROM store").fetchone()
        try:
            is_whole = checksum == _header_checksum(*header)
        except (TypeError, struct.error):
            is_whole = False
        if not is_whole:  # with a wrong key epoch, the store could return one twice
            raise ConfigError(f"{self.path} is damaged; move it away to start with an empty store")
        bits, self.incarnation, self.key_epoch = header
        if bits != self._circle.bits:
            raise ConfigError(
                f"{self.path} belongs to a ring of {bits} bits, not {self._circle.bits}; "
                "use that ring's --bits, or move it away to start with an empty store"
            )

    def _load_summary(self) -> None:
        """Compute the totals of the store in one scan of all rows, slice by slice.

        The scan dominates the start of a large store. So it makes no `StoredRow` of each row.
        """
        self.summary = summary = StoreSummary(self._circle)
        digests, number_of, width = summary.digests, int.from_bytes, self._circle.width
        checksum_of = database.checksum
        columns = "point, key, digest, minted, versions, value_bytes, checksum, length(clock), substr(clock, 1, 1)"
        small = f"CASE WHEN length(clock) <= {CHECKED_AT_OPENING_BYTES} THEN clock END"
        found = self._writer.execute(f"SELECT {columns}, {small} FROM records ORDER BY point, key")
        part = records = sum_ = value_bytes = sibling_keys = 0
        first, last = b"\0", b""  # points of the slice as bytes, in the order of the numbers; empty at first
        hides: list[RowPlace] = []
        for point, key, digest, minted, versions, size, checksum, length, mark, clock in found:
            try:
                if clock is None:
                    require_countable(self._circle, point, key, digest, versions, size, length)
                elif checksum_of(point, key, digest, minted, versions, size, clock) != checksum:
                    raise ValueError("checksum mismatch")
                if not first <= point <= last:
                    digests.add(part, records, sum_)
                    records = sum_ = 0
                    part, *ends = digests.slice_of(number_of(point, "big"))
                    first, last = (end.to_bytes(width, "big") for end in ends)
                number, bytes_then, siblings_then = number_of(digest, "big"), value_bytes + size, versions > 1
            except (TypeError, ValueError, LookupError, struct.error):  # or a column has the wrong type
                summary.bad.add((point, key))
                continue
            if mark == QUARANTINE_MARK:
                hides.append((point, key))
            records += 1
            summary.keys += 1
            sum_ += number
            value_bytes, sibling_keys = bytes_then, sibling_keys + siblings_then
        digests.add(part, records, sum_)
        summary.value_bytes, summary.sibling_keys = value_bytes, sibling_keys
        summary.is_ordered = not summary.bad or self._is_ordered()
        for place in hides:
            if (row := self.row(place)) is not None and (quarantined := row.quarantined):
                summary.hidden[place] = quarantined

    def _is_ordered(self) -> bool:
        found = self._writer.execute("SELECT point, key FROM records ORDER BY point, key")  # in file order
        places = [place for place in found if all(isinstance(column, bytes) for column in place)]
        return all(before < after for before, after in pairwise(places))

    def close(self) -> None:
        """Close all connections, the writer last, because the last one checkpoints."""
        if self._cut is not None:
            self._cut.close()
        for name in ("_reader", "_writer"):
            connection = self.__dict__.pop(name, None)
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()

    @staticmethod
    def _explain(error: sqlite3.Error | OSError) -> str:
        if _is_full(error):
            return "the disk is full; make room there, then start the node again"
        if isinstance(error, OSError):
            return error.strerror or str(error)
        is_gone = str(error).startswith(("no such column", "no such table"))  # the schema is damaged
        if is_gone or _code(error) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return f"it is damaged, or no store ({error}); move it away to start with an empty store"
        return str(error)

    # -- reading, in the event loop -------------------------------------------------------------

    def row(self, place: RowPlace) -> StoredRow | None:
        """Return the row with this primary key, whole or damaged; None if it is missing."""
        found = self._reader.execute("SELECT * FROM records WHERE point = ? AND key = ?", place).fetchone()
        return None if found is None else StoredRow._make(found)

    def rows(self, columns: str, start: RowPlace, last: bytes) -> Generator[tuple[Any, ...], None, None]:
        """Yield columns of a range of rows, in ascending order; see `Database.rows`."""
        query = f"SELECT {columns} FROM records WHERE (point, key) > (?, ?) AND point <= ? ORDER BY point, key"
        with closing(self._reader.execute(query, (*start, last))) as found:
            yield from found

    def rows_behind(self, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a primary key, in file order; None: all rows.

        Damage may have changed the type of a point. In the file such a row sorts before all others.
        """
        return _rows_behind(self._reader, place)

    def cut(self) -> FileCut:
        """Return the committed rows and notes of this moment; see `Database.cut`."""
        if (earlier := self._cut) is not None:
            earlier.close()
        self._cut = cut = FileCut(self._connect())
        return cut

    # -- writing, in the thread -----------------------------------------------------------------

    def write(
        self, rows: Mapping[RowPlace, StoredRow | None], notes: Mapping[bytes, bytes | None], key_epoch: int
    ) -> None:
        """Write rows, notes and the key epoch in one transaction; see `Database.write`."""
        definite, writer = _DEFINITE, self._writer
        try:
            writer.execute("BEGIN IMMEDIATE")
            self._change(rows, notes, key_epoch)
            self._before_commit()
            definite = _DEFINITE_AT_COMMIT
            writer.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            self._roll_back()
            kind = Refused if _is_one_of(error, definite) else InDoubt
            raise kind(error.strerror or str(error) if isinstance(error, OSError) else str(error)) from error
        self.key_epoch = max(key_epoch, self.key_epoch)

    def has_room(self, size: int) -> bool:
        """Return whether the disk has room for this many more bytes.

        If the file system reports less free space, nothing is written. Otherwise another peer on a nearly full disk
        could lack the room meanwhile. If not, the call writes the bytes to a file without a name, because quotas may
        leave less. They are random, so that no file system compresses them. They are not synced, and the room is free
        again at the end.

        The answer is also True if the call cannot find out: the directory may be read-only, or the process may have no
        descriptor left. Neither stops SQLite, with its files already open.
        """
        try:
            if _free_bytes(self.path.parent) < size:
                return False
            made = tempfile.TemporaryFile(dir=self.path.parent)  # noqa: SIM115 (only an error after this is an answer)
        except OSError:  # ENOSPC, too: the disk has no inode for the file, and free bytes
            return True
        try:
            with made as file:
                for at in range(0, size, ROOM_CHUNK_BYTES):
                    file.write(os.urandom(min(ROOM_CHUNK_BYTES, size - at)))
        except OSError as error:
            return error.errno not in _DOES_NOT_FIT
        return True

    def _change(
        self, rows: Mapping[RowPlace, StoredRow | None], notes: Mapping[bytes, bytes | None], key_epoch: int
    ) -> None:
        writer = self._writer
        present: list[StoredRow] = []
        gone: list[RowPlace] = []
        for place, row in rows.items():
            if row is None:
                gone.append(place)
            else:
                present.append(row)
        writer.executemany("REPLACE INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?)", present)
        if gone:
            writer.executemany("DELETE FROM records WHERE point = ? AND key = ?", gone)
        if notes:
            sqlite_notes.write(writer, notes)
        if key_epoch > self.key_epoch:
            checksum = _header_checksum(self._circle.bits, self.incarnation, key_epoch)
            writer.execute("UPDATE store SET key_epoch = ?, checksum = ?", (key_epoch, checksum))

    def _roll_back(self) -> None:
        """Roll back the transaction if SQLite has not done so itself.

        If the rollback fails, the next opening decides about the transaction.
        """
        with suppress(sqlite3.Error):
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")


def _rows_behind(connection: sqlite3.Connection, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
    where, values = ("", ()) if place is None else ("WHERE (point, key) > (?, ?)", place)
    with closing(connection.execute(f"SELECT * FROM records {where} ORDER BY point, key", values)) as found:
        yield from found


def _is_one_of(error: sqlite3.Error | OSError, codes: set[int]) -> bool:
    return error.errno in _NO_ROOM if isinstance(error, OSError) else _code(error) in codes


def _free_bytes(directory: Path) -> int:
    """Return how many bytes the file system of a directory still has for users other than root."""
    system = os.statvfs(directory)
    return system.f_bavail * system.f_frsize


def _is_full(error: sqlite3.Error | OSError) -> bool:
    """Return whether an error means that the disk is full.

    If the index of SQLite's log has no room, SQLite reports an I/O error.
    """
    is_index = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_SHMSIZE
    return is_index or _is_one_of(error, {sqlite3.SQLITE_FULL})


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)) & 0xFF

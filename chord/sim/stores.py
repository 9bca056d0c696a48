"""The store and the identity of a node on a simulated disk.

The store is the same that users run, on a twin of its database file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar, TypeVarTuple

import trio
from outcome import Error, Outcome, capture
from sortedcontainers import SortedDict

from chord.config import Limits
from chord.errors import ConfigError
from chord.ids import Circle
from chord.sim.disk import Disk, Mount
from chord.sim.image import ImageChange
from chord.store.database import (
    CHECKED_AT_OPENING_BYTES,
    HEAD_OF_ROW,
    InDoubt,
    RowPlace,
    StoredRow,
    StoreSummary,
    require_countable,
)
from chord.store.identity import FILE_NAME, Kept, decode_kept, encode_kept
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch, MemoryStorage
from chord.wire.messages import Record

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class ImageCut:
    """The rows and notes of an image of a disk at one moment. Satisfies `DatabaseCut`."""

    def __init__(self, rows: SortedDict[RowPlace, StoredRow], notes: dict[bytes, bytes]) -> None:
        self._rows = rows
        self._notes = notes

    def rows_behind(self, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a place, in order; None: from the first."""
        for found in self._rows.irange(place, inclusive=(False, False)):
            yield self._rows[found]

    def notes(self) -> Mapping[bytes, bytes]:
        """Return the notes by name."""
        return self._notes

    def close(self) -> None:
        """Do nothing: the twin holds no resources."""


class SimulatedFile:
    """The `Database` of a store on a simulated disk: the counterpart of `StoreFile`."""

    def __init__(self, circle: Circle, disk: Disk, mount: Mount) -> None:
        self._circle = circle
        self._disk = disk
        self._mount = mount
        self.incarnation = b""
        self.key_epoch = 0
        self.summary = StoreSummary(circle)
        self.notes: dict[bytes, bytes] = {}
        self.damaged_notes: frozenset[bytes] = frozenset()

    def open(self, incarnation: bytes) -> None:
        """Open the database, or create it with this incarnation.

        Raises:
            ConfigError: the process has ended, or `Disk.open` refuses the database.
        """
        if not self._mount.is_alive:
            raise ConfigError("the process that used this disk has ended")
        image = self._disk.open(self._circle.bits, incarnation)
        self.incarnation, self.key_epoch, self.notes = image.incarnation, image.key_epoch, dict(image.notes)
        self.summary = summary = StoreSummary(self._circle)
        for place, row in image.rows.items():
            if is_sound(self._circle, row):
                summary.change(row.point, None, row)
            else:
                summary.bad.add(place)

    def close(self) -> None:
        """Do nothing: the twin holds no resources."""

    def row(self, place: RowPlace) -> StoredRow | None:
        """Return the row at a place (a point and a key), damaged or not; None if absent.

        Raises:
            sqlite3.OperationalError: reads of the disk fail (`Disk.fail`).
        """
        self._require_readable()
        image = self._disk.image
        return None if image is None else image.rows.get(place)

    def rows(self, columns: str, start: RowPlace, last: bytes) -> Generator[tuple[Any, ...], None, None]:
        """Yield the rows behind a place, up to and including a point, in order.

        Args:
            columns: the SQL text of the columns: `WHOLE_ROW`, or `HEAD_OF_ROW` for point, key and digest only.
            start: the place before the first row.
            last: the point of the last rows.

        Raises:
            sqlite3.OperationalError: reads of the disk fail (`Disk.fail`).
        """
        self._require_readable()
        image = self._disk.image
        if image is None:
            return
        is_head = columns == HEAD_OF_ROW
        for place in list(image.rows.irange(start, (last + b"\0", b""), inclusive=(False, False))):
            row = image.rows[place]
            yield row[:3] if is_head else row

    def rows_behind(self, place: RowPlace | None) -> Generator[tuple[Any, ...], None, None]:
        """Yield all rows behind a place, in order; None: from the first.

        Raises:
            sqlite3.OperationalError: reads of the disk fail (`Disk.fail`).
        """
        self._require_readable()
        image = self._disk.image
        for found in [] if image is None else list(image.rows.irange(place, inclusive=(False, False))):
            yield image.rows[found]  # type: ignore[union-attr]

    def cut(self) -> ImageCut:
        """Return the rows and notes of this moment.

        Raises:
            sqlite3.OperationalError: reads of the disk fail (`Disk.fail`).
        """
        self._require_readable()
        image = self._disk.image
        return ImageCut(SortedDict(), {}) if image is None else ImageCut(image.rows.copy(), dict(image.notes))

    def _require_readable(self) -> None:
        if self._disk.is_unreadable:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error

    def write(
        self, rows: Mapping[RowPlace, StoredRow | None], notes: Mapping[bytes, bytes | None], key_epoch: int
    ) -> None:
        """Store and remove (None) rows and notes in one transaction.

        Args:
            rows: the rows by place.
            notes: the notes by name: small values that the store keeps beside its records.
            key_epoch: the new key epoch; a smaller one than the present is ignored.

        Raises:
            Refused: there is no room; nothing has changed.
            InDoubt: the sync failed; the changes may be readable, and are not durable.
        """
        self._disk.write(ImageChange(rows, notes, max(key_epoch, self.key_epoch)))
        self.key_epoch = max(key_epoch, self.key_epoch)

    def has_room(self, size: int) -> bool:
        """Return whether the disk has room for this many more bytes."""
        return self._disk.has_room(size)


def is_sound(circle: Circle, row: StoredRow) -> bool:
    """Return whether a row is whole enough that the store counts it when it opens.

    The columns that the opening reads anyway must be whole, and the others must have their type.
    """
    if not isinstance(row.clock, bytes):
        return False
    if len(row.clock) <= CHECKED_AT_OPENING_BYTES:
        return row.is_whole
    try:
        require_countable(circle, row.point, row.key, row.digest, row.versions, row.value_bytes, len(row.clock))
    except (ValueError, TypeError):
        return False
    return True


class DiskWorker:
    """A `Worker` that runs each function of a store after the virtual time of a sync."""

    def __init__(self, disk: Disk, mount: Mount) -> None:
        self._disk = disk
        self._mount = mount

    async def run(self, fn: Callable[[*Ts], T], *args: *Ts, abandon: bool = False) -> T:
        """Run a function at the end of a sync, or as soon as the process has ended.

        `abandon` has no effect.
        """
        try:
            if self._mount.is_alive:
                await self._disk.sync(self._mount)
        except OSError:
            if self._mount.is_alive:
                raise
        return fn(*args)

    def soon(self, fn: Callable[[], object]) -> None:
        """Call a function in the next pass of the event loop."""
        trio.lowlevel.spawn_system_task(_call, fn)

    def start(self, fn: Callable[[], T], report: Callable[[Outcome[T]], object], alone: Callable[[], object]) -> None:
        """Run a function at the end of a sync, and report its outcome.

        If a crash comes first, the disk draws whether the function still runs, and the outcome is `InDoubt`. `alone` is
        never called.
        """
        if self._mount.is_alive:
            self._disk.begin(fn)
        trio.lowlevel.spawn_system_task(self._work, fn, report)

    async def _work(self, fn: Callable[[], T], report: Callable[[Outcome[T]], object]) -> None:
        try:
            await self._disk.sync(self._mount)
        except OSError as error:
            report(Error(InDoubt(error.strerror)))
        else:
            self._disk.end(fn)
            report(capture(fn))


async def _call(fn: Callable[[], object]) -> None:
    fn()


class SimulatedStorage(SqliteStorage):
    """The store that users run, on a simulated disk.

    Args:
        circle: of the ring; records of another circle are refused.
        disk: the disk; the store keeps the records on it.
        incarnation: of the store, if it is new.
        staged_bytes_max, free_bytes_min: limits; see `Limits`.
        on_put, on_drop, on_lend: callbacks as for `WatchedStorage`. The first two are called when a change is visible,
            even if it is not durable.
    """

    def __init__(
        self,
        circle: Circle,
        disk: Disk,
        incarnation: bytes,
        staged_bytes_max: int = Limits().staged_bytes_max,
        free_bytes_min: int = Limits().free_bytes_min,
        *,
        on_put: Callable[[Record, bool], object] = lambda record, is_own: None,
        on_drop: Callable[[Record], object] = lambda record: None,
        on_lend: Callable[[Record], object] = lambda record: None,
    ) -> None:
        mount = disk.mount()
        super().__init__(
            circle,
            "",
            incarnation,
            staged_bytes_max=staged_bytes_max,
            free_bytes_min=free_bytes_min,
            file=SimulatedFile(circle, disk, mount),
            worker=DiskWorker(disk, mount),
        )
        self._on_put, self._on_drop, self._on_lend = on_put, on_drop, on_lend

    def lend_actor(self, key: bytes, record: Record) -> None:
        """Report the record of an early put, and lend the key's actor."""
        self._on_lend(record)
        super().lend_actor(key, record)

    def stage(self, batch: Batch) -> bool:
        """Make a batch visible, report its changes, and return whether all changes so far are durable."""
        dropped = [record for key in batch.removals if (record := self.get(key)) is not None]
        is_durable = super().stage(batch)
        for record in dropped:
            self._on_drop(record)
        for record in batch.puts:
            self._on_put(record, record.key in batch.minted)
        return is_durable


def left_on(disk: Disk, circle: Circle) -> MemoryStorage | None:
    """Return the undamaged records on a disk; None: there is no database.

    They need not be durable. `damaged_keys` of the result names the damaged records.
    """
    image = disk.image
    if image is None:
        return None
    left = MemoryStorage(circle, image.incarnation)
    whole = [row for row in image.rows.values() if row.is_whole]
    minted = {row.key: row.minted for row in whole if row.minted is not None}
    left.apply(Batch([row.record for row in whole], minted=minted, notes=image.notes))
    left.damaged_keys.update({place[1]: None for place, row in image.rows.items() if not row.is_whole})
    return left


class DiskIdentity:
    """A node's persisted state on a simulated disk.

    Satisfies `chord.store.identity.IdentityStore`.

    One node at a time may use the disk.

    Raises:
        ConfigError: another node is running on that disk.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._mount = disk.mount()
        self._last: bytes | None = None
        self._saving = trio.Lock()
        if not disk.lock(FILE_NAME, self._mount):
            raise ConfigError("another node is running on that disk")

    def load(self) -> Kept | None:
        """Return the saved state; None at the first start.

        Raises:
            ConfigError: the identity file exists and cannot be read.
        """
        return kept_on(self._disk)

    async def save(self, kept: Kept) -> None:
        """Write the identity file, unless the last call wrote the same state.

        Raises:
            OSError: the file could not be written, or may not be durable. The next call writes it in any case.

        Concurrency: checkpoints. If cancelled, either the old or the new file is there.
        """
        content = encode_kept(kept)
        async with self._saving:
            if content == self._last:
                return
            self._last = None
            await self._disk.replace_identity(self._mount, content)
            self._last = content

    def close(self) -> None:
        """Let another node use the disk."""
        self._disk.unlock(self._mount)


def kept_on(disk: Disk) -> Kept | None:
    """Return the persisted state on a disk; None if the disk has no identity file.

    Raises:
        ConfigError: the identity file cannot be read.
    """
    return None if disk.identity is None else decode_kept(disk.identity, FILE_NAME)

"""A machine's disk on virtual time, with every fault of a disk.

The disk holds the database of a node's records and the node's identity. A transaction takes the time of a sync and is
then durable. If a crash comes first, either the whole transaction is there or nothing (SQLite drops a torn one). A
transaction may be readable without being durable if its sync failed or its process was killed. The next opening makes
such a transaction durable. A power cut before that may remove it.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeAlias

import trio

from chord.errors import ConfigError
from chord.sim.image import Image, ImageChange
from chord.store.database import InDoubt, Refused, RowPlace, StoredRow

SyncDelay: TypeAlias = Callable[[random.Random], float]
"""Draws the seconds of a sync, which makes written data durable."""

FULL: Final = "database or disk is full"


def flash(rng: random.Random) -> float:
    """Draw the sync time of a drive with flash memory: 0.5 to 2 ms."""
    return rng.uniform(0.0005, 0.002)


class Disk:
    """The disk of one machine. Processes use it through `mount`, and tests break it.

    Args:
        rng: draws delays, and the data left after a crash.
        sync_delay: draws the duration of a sync, in seconds; default: those of a drive with flash memory.

    Attributes:
        capacity_bytes: size of the disk; writes beyond it are refused. It may change at any time.
        image: the database; None: not created yet, or lost.
        identity: content of the identity file; None: not written yet, or lost.
        is_hung: whether syncs wait. Reads go on, because they come from memory.
        is_unreadable: whether every read of the database fails.
        is_identity_hung: whether writes of the identity wait.
        identity_error: error number with which writes of the identity fail; None: they succeed.
        slow_s: extra seconds that a sync takes.
        syncs, failed_syncs: number of syncs that succeeded, and number of those that failed.
        unwritten_identities: number of identity writes that failed or did not end.
    """

    def __init__(self, rng: random.Random, *, sync_delay: SyncDelay = flash) -> None:
        self.rng = rng
        self.capacity_bytes = math.inf
        self.image: Image | None = None
        self.identity: bytes | None = None
        self.is_hung = self.is_identity_hung = self.is_unreadable = False
        self.identity_error: int | None = None
        self.slow_s = 0.0
        self.syncs = self.failed_syncs = 0
        self.unwritten_identities = 0
        self._sync_delay = sync_delay
        self._generation = 0  # generation of the processes that may use the disk
        self._locks: dict[str, Mount] = {}
        self._error: int | None = None
        self._next_error: int | None = None
        self._unsynced: ImageChange | None = None  # removes changes that are readable and not durable
        self._unsynced_identity: list[bytes | None] = []  # the durable content, if another is readable
        self._under_way: dict[Callable[[], object], None] = {}
        self._resumed = trio.lowlevel.ParkingLot()

    def mount(self) -> Mount:
        """Return the disk as a process that starts now sees it."""
        return Mount(self, self._generation)

    @property
    def used_bytes(self) -> int:
        """Bytes used on the disk."""
        return (self.image.bytes if self.image else 0) + len(self.identity or b"")

    # -- process ends -----------------------------------------------------------------------------

    def kill(self) -> None:
        """End the processes, but not the machine.

        For each write in progress, the disk draws whether it is readable afterwards.
        """
        for write in list(self._under_way):
            if self.rng.random() < 0.5:
                self._write_unsynced(write)
        self._under_way.clear()
        self._generation += 1
        self._locks.clear()
        self._resumed.unpark_all()

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power: the processes end, and data that was not durable may be gone.

        Args:
            rng: draws the data that is left; default: the disk's own generator.
        """
        self.kill()
        rng = rng or self.rng
        if self._unsynced is not None and self.image is not None and rng.random() < 0.5:
            self.image.apply(self._unsynced)
        if self._unsynced_identity and rng.random() < 0.5:
            self.identity = self._unsynced_identity[0]
        self._settle()

    def _write_unsynced(self, write: Callable[[], object]) -> None:
        error, self._error = self._error, _CUT
        with suppress(Refused, InDoubt):
            write()
        self._error = error

    def _settle(self) -> None:
        """Record that all readable data is durable."""
        self._unsynced = None
        self._unsynced_identity.clear()

    # -- faults ---------------------------------------------------------------------------------

    def fill(self, room_bytes: int = 0) -> None:
        """Leave room for this many more bytes.

        A write that does not fit is refused at its sync, not before.
        """
        self.capacity_bytes = self.used_bytes + room_bytes

    def free(self) -> None:
        """Remove the limit on the disk's size."""
        self.capacity_bytes = math.inf

    def fail_next_sync(self, code: int = errno.EIO) -> None:
        """Let the next sync fail with this error number."""
        self._next_error = code

    def fail(self, code: int = errno.EIO, *, reads: bool = False) -> None:
        """Let every sync fail with the error number `code` until `mend`. With `reads`, every read fails, too."""
        self._error, self.is_unreadable = code, reads

    def mend(self) -> None:
        """Let syncs and reads succeed again; also undo `fail_next_sync`."""
        self._error = self._next_error = None
        self.is_unreadable = False

    def hang(self) -> None:
        """Let no sync end until `resume`."""
        self.is_hung = True

    def resume(self) -> None:
        """Undo `hang` and `hang_identity`: waiting syncs go on."""
        self.is_hung = self.is_identity_hung = False
        self._resumed.unpark_all()

    def slow(self, seconds: float) -> None:
        """Add this many seconds to each sync that begins from now on; 0: no longer slow."""
        self.slow_s = seconds

    def refuse_identity(self) -> None:
        """Let writes of the identity fail, as on a full disk, until `accept_identity`."""
        self.identity_error = errno.ENOSPC

    def hang_identity(self) -> None:
        """Let writes of the identity wait until `accept_identity` or `resume`."""
        self.is_identity_hung = True

    def accept_identity(self) -> None:
        """Let writes of the identity succeed again."""
        self.identity_error, self.is_identity_hung = None, False
        self._resumed.unpark_all()

    def flip(self, key: bytes, rng: random.Random | None = None, column: str | None = None) -> str:
        """Change one bit of a record's row, or the type of a column.

        Magnetism and cosmic rays do that to real disks.

        Args:
            key: the key of the record.
            rng: draws the change; default: the disk's own generator.
            column: column of `StoredRow` to change; default: drawn.

        Returns:
            The name of the changed column.

        Raises:
            KeyError: there is no such record.
        """
        rng = rng or self.rng
        image, place, row = self._find(key)
        column = column or rng.choice(StoredRow._fields)
        value = getattr(row, column)
        is_place = column in ("point", "key")
        if isinstance(value, bytes) and value and (is_place or rng.random() < 0.7):
            bit = rng.randrange(8 * len(value))
            changed: Any = (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")
        else:
            changed = rng.choice([other for other in (None, b"", b"x", 3, 1.5, 1 << 62) if other != value])
        image.replace(place, row._replace(**{column: changed}))
        return column

    def damage(self, key: bytes) -> None:
        """Change a record's clock, so that the store finds its row damaged.

        Raises:
            KeyError: there is no such record.
        """
        image, place, row = self._find(key)
        image.replace(place, row._replace(clock=bytes([row.clock[0] ^ 1]) + row.clock[1:]))

    def _find(self, key: bytes) -> tuple[Image, RowPlace, StoredRow]:
        for place, row in () if self.image is None else self.image.rows.items():
            if place[1] == key:
                assert self.image is not None
                return self.image, place, row
        raise KeyError(key)

    def wipe(self) -> None:
        """Lose all content. The caller makes sure that no process uses the disk."""
        self.lose_records()
        self.identity = None
        self._settle()

    def lose_records(self) -> None:
        """Lose the database. The caller makes sure that no process uses it."""
        self.image = self._unsynced = None

    def clone(self, rng: random.Random) -> Disk:
        """Return another disk with the same content and no faults. `rng` is its random generator."""
        other = Disk(rng, sync_delay=self._sync_delay)
        other.image = None if self.image is None else self.image.copy()
        other.identity = self.identity
        return other

    def check(self) -> list[str]:
        """Return the errors in the disk's own accounting, in words; empty if none."""
        image = self.image
        if image is not None and image.bytes != ImageChange(image.rows, image.notes, 0).bytes:
            return [f"records: {image.bytes} bytes are not the sum of all rows and notes"]
        return []

    # -- for mounts -----------------------------------------------------------------------------

    def is_current(self, generation: int) -> bool:
        """Return whether the processes of a generation still run.

        A generation is all processes that mounted the disk between two calls of `kill`.
        """
        return generation == self._generation

    def lock(self, name: str, mount: Mount) -> bool:
        """Give a named lock to a mount if it is free; return whether the mount holds it."""
        return self._locks.setdefault(name, mount) is mount

    def unlock(self, mount: Mount) -> None:
        """Release all locks of a mount."""
        self._locks = {name: holder for name, holder in self._locks.items() if holder is not mount}

    def open(self, bits: int, incarnation: bytes) -> Image:
        """Return the database, created if necessary.

        All its content is durable afterwards, unless the disk is full.

        Args:
            bits: the width of the ring's circle; a database of another width is refused.
            incarnation: the name of the store, for a new database.

        Raises:
            ConfigError: the database cannot be opened; the message says why.
        """
        if self._under_way:
            raise ConfigError("cannot open the records: database is locked")
        if (error := self._sync_error()) is not None:
            raise ConfigError(f"cannot open the records: {os.strerror(error)}")
        is_full = self.used_bytes >= self.capacity_bytes
        if self.image is None:
            if is_full:
                raise ConfigError(f"cannot open the records: {FULL}")
            self.image = Image(bits, incarnation)
        if self.image.is_damaged:
            raise ConfigError("the records are damaged; move them away to start with an empty store")
        if self.image.bits != bits:
            raise ConfigError(f"the records belong to a ring of {self.image.bits} bits, not {bits}")
        if not is_full:
            self._unsynced = None
        return self.image

    def write(self, change: ImageChange) -> None:
        """Apply a change, all or nothing, as the end of its sync. This takes no time.

        Raises:
            Refused: there is no room; nothing has changed.
            InDoubt: the sync failed, or there is no database. The change may be readable, and is not durable.
        """
        image = self.image
        if image is None:
            raise InDoubt("no such file")
        if self.used_bytes + change.log_bytes > self.capacity_bytes:
            raise Refused(FULL)
        error = self._sync_error()
        if error is None:
            image.apply(change)
        elif error == errno.ENOSPC:
            raise Refused(FULL)
        else:
            if error == _CUT or self.rng.random() < 0.5:
                self._keep_undo(image.apply(change))
            raise InDoubt("disk I/O error")

    def has_room(self, size: int) -> bool:
        """Return whether the disk has room for this many more bytes."""
        return self.used_bytes + size <= self.capacity_bytes

    def _keep_undo(self, undo: ImageChange) -> None:
        earlier = self._unsynced
        if earlier is not None:
            undo = ImageChange({**undo.rows, **earlier.rows}, {**undo.notes, **earlier.notes}, earlier.key_epoch)
        self._unsynced = undo

    def _sync_error(self) -> int | None:
        """Count a sync that ends now, and return its error number; None: it succeeds.

        This uses up `fail_next_sync`.
        """
        error = self._next_error if self._error is None else self._error
        if error != _CUT:
            self._next_error = None
            self.syncs += error is None
            self.failed_syncs += error is not None
        return error

    async def sync(self, mount: Mount, *, of_identity: bool = False) -> None:
        """Wait for the virtual time that one fsync takes, and while the disk hangs.

        The call only takes time. The caller then changes the content, and an injected failure shows only there.

        Args:
            mount: the use of the disk by one process.
            of_identity: whether `node.json` is synced. The disk can hang for `node.json` alone.

        Raises:
            OSError: the process ended meanwhile.
        """
        await trio.sleep(self._sync_delay(self.rng) + self.slow_s)
        while (self.is_hung or (of_identity and self.is_identity_hung)) and mount.is_alive:
            await self._resumed.park()
        mount.require_alive()

    async def replace_identity(self, mount: Mount, content: bytes) -> None:
        """Write the identity: sync a temporary file, rename it, and sync the directory.

        Raises:
            OSError: the process ended, there is no room, or the sync failed. The old or the new identity is there, and
                the new one may not be durable.
        """
        mount.require_alive()
        self.unwritten_identities += 1
        if self.identity_error is not None:
            raise OSError(self.identity_error, os.strerror(self.identity_error))
        if self.used_bytes + len(content) > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        await self.sync(mount, of_identity=True)
        self._raise_sync_error()
        if not self._unsynced_identity:
            self._unsynced_identity.append(self.identity)
        self.identity = content
        await self.sync(mount, of_identity=True)
        self._raise_sync_error()
        self._unsynced_identity.clear()
        self.unwritten_identities -= 1

    def _raise_sync_error(self) -> None:
        if (error := self._sync_error()) is not None:
            raise OSError(error, os.strerror(error))

    def begin(self, write: Callable[[], object]) -> None:
        """Register a transaction in progress by its function `write`, which applies it.

        If `kill` is called before `end`, it draws whether to call the function.
        """
        self._under_way[write] = None

    def end(self, write: Callable[[], object]) -> None:
        """Remove a finished transaction from those that `kill` may still write."""
        self._under_way.pop(write, None)


_CUT: Final = -1
"""In place of an error number: the process ends before its sync does."""


class Mount:
    """The disk as one process sees it.

    Once the process has ended, every access raises OSError.
    """

    __slots__ = ("_disk", "_generation")

    def __init__(self, disk: Disk, generation: int) -> None:
        self._disk = disk
        self._generation = generation

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._disk.is_current(self._generation)

    def require_alive(self) -> None:
        """Refuse calls by tasks of a dead process.

        Raises:
            OSError: the process has ended.
        """
        if not self.is_alive:
            raise OSError(errno.ESHUTDOWN, "the process that used this disk has ended")

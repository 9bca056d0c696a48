"""A disk in memory that keeps apart what is written and what is durable, and loses the difference in a crash.

It promises what POSIX promises, and nothing more. What is written is seen by every reader at once and is durable
after `sync`; a new name, a rename or a removal is durable after `sync_directory`. In a crash any part of the rest
may be there: whole sectors or the beginning of one, later ones without earlier ones (then zeros stand in the gap),
a rename with or without what was written before it.

A sync that fails decides the same way, there and then: the system has marked its pages clean and will not write
them again. They can still be read, and a later sync that succeeds says nothing about them.
"""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Callable
from typing import TypeAlias

import trio

from chord.sim.files import Directory, File, lot, whole

SyncDelay: TypeAlias = Callable[[random.Random], float]
"""Draws the seconds a disk takes to make durable what was written."""


def flash(rng: random.Random) -> float:
    """A drive with flash memory: half a millisecond to two."""
    return rng.uniform(0.0005, 0.002)


class Disk:
    """The disk of one machine. Processes use it by `mount`; tests break it.

    Args:
        rng: draws delays, and what is left after a crash.
        sync_delay: see `SyncDelay`.
        capacity_bytes: of all files together; more is refused. It may be changed at any time.

    Attributes:
        is_frozen: syncs wait; everything else goes on in memory.
        directory: the files by name.
        syncs, failed_syncs, bytes_written: totals.
    """

    def __init__(self, rng: random.Random, *, sync_delay: SyncDelay = flash, capacity_bytes: float = math.inf) -> None:
        self.rng = rng
        self.capacity_bytes = capacity_bytes
        self.is_frozen = False
        self.syncs = self.failed_syncs = self.bytes_written = 0
        self.directory = Directory()
        self._sync_delay = sync_delay
        self._number = 0  # of the last change
        self._generation = 0  # of the processes that may use it
        self._locks: dict[str, Mount] = {}
        self._next_error: int | None = None
        self._thawed = trio.lowlevel.ParkingLot()

    def mount(self) -> Mount:
        """Return the disk as a process sees it that starts now."""
        return Mount(self, self._generation)

    @property
    def used_bytes(self) -> int:
        """Bytes of all files."""
        return sum(len(file.written) for file in self.directory.written.values())

    # -- faults ---------------------------------------------------------------------------------

    def kill(self) -> None:
        """End the processes, and leave the machine running: what they wrote is still there, durable or not."""
        self._generation += 1
        self._locks.clear()
        self._thawed.unpark_all()

    def crash(self, rng: random.Random | None = None) -> None:
        """Cut the power: the processes end, and of what was not durable any part may be gone.

        Args:
            rng: draws what is left; default: the disk's own.
        """
        self.kill()
        fate = lot(rng or self.rng)
        self.directory.settle(self._number, fate)
        self.directory.forget()
        for file in self.directory.written.values():
            file.settle(self._number, fate)
            file.forget()

    def fail_next_sync(self, code: int = errno.EIO) -> None:
        """Let the next sync of anything fail with this error number."""
        self._next_error = code

    def freeze(self) -> None:
        """Let no sync end until `unfreeze`."""
        self.is_frozen = True

    def unfreeze(self) -> None:
        """Let the syncs that wait go on."""
        self.is_frozen = False
        self._thawed.unpark_all()

    def damage(self, name: str, rng: random.Random | None = None) -> None:
        """Turn one bit of what is durable in a file, as magnetism and cosmic rays do."""
        rng = rng or self.rng
        file = self.directory.written[name]
        at, bit = rng.randrange(len(file.durable)), 1 << rng.randrange(8)
        file.durable[at] ^= bit
        file.written[at] ^= bit

    def check(self) -> list[str]:
        """Return what is wrong with the disk's own books, in words; nothing, if all is well."""
        wrong = self.directory.check()
        for name, file in self.directory.written.items():
            wrong += [f"{name}: {line}" for line in file.check()]
        return wrong

    # -- for mounts -----------------------------------------------------------------------------

    def is_current(self, generation: int) -> bool:
        """Return whether the processes of this generation still run."""
        return generation == self._generation

    def lock(self, name: str, mount: Mount) -> bool:
        """Give a lock to a mount; returns whether it holds it now."""
        return self._locks.setdefault(name, mount) is mount

    def unlock(self, mount: Mount) -> None:
        """Take back a mount's locks."""
        self._locks = {name: holder for name, holder in self._locks.items() if holder is not mount}

    def take(self, size: int, instead_of: int = 0) -> None:
        """Let so many bytes be written, in place of so many others.

        Raises:
            OSError: there is no room for them (ENOSPC).
        """
        if self.used_bytes - instead_of + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.bytes_written += size

    def next_number(self) -> int:
        """Return the number of a change that is made now."""
        self._number += 1
        return self._number

    async def settle_later(self, thing: Directory | File, generation: int) -> None:
        """Take the time of a sync, then make durable what was written before it began; see `Mount.sync`."""
        upto = self._number
        await trio.sleep(self._sync_delay(self.rng))
        while self.is_frozen and self.is_current(generation):
            await self._thawed.park()
        _require(self.is_current(generation))
        self.settle_now(thing, upto)

    def settle_now(self, thing: Directory | File, upto: int | None = None) -> None:
        """Make durable what was written up to a change, all of it or, when the sync fails, some."""
        code, self._next_error = self._next_error, None
        upto = self._number if upto is None else upto
        if code is None:
            thing.settle(upto, whole)
            self.syncs += 1
        else:
            thing.settle(upto, lot(self.rng))
            thing.is_suspect = True
            self.failed_syncs += 1
            raise OSError(code, os.strerror(code))


class Mount:
    """The disk as one process sees it. When the process has ended, everything raises OSError."""

    def __init__(self, disk: Disk, generation: int) -> None:
        self._disk = disk
        self._generation = generation

    def read(self, name: str) -> bytes:
        """Return what was written to a file.

        Raises:
            FileNotFoundError: there is none of that name.
        """
        return bytes(self._file(name).written)

    def size(self, name: str) -> int:
        """Return the bytes of a file."""
        return len(self._file(name).written)

    def write(self, name: str, data: bytes) -> None:
        """Write a file anew, over what was there.

        Raises:
            OSError: the disk is full; nothing was changed.
        """
        disk, names = self._alive(), self._disk.directory
        file = names.written.get(name)
        disk.take(len(data), 0 if file is None else len(file.written))
        if file is None:
            file = File()
            names.change(disk.next_number(), {name: file})
        file.replace(disk.next_number(), data)

    def append(self, name: str, data: bytes) -> None:
        """Write behind the end of a file.

        Raises:
            FileNotFoundError: there is none of that name.
            OSError: the disk is full; nothing was changed.
        """
        file = self._file(name)
        self._disk.take(len(data))
        file.append(self._disk.next_number(), data)

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of whatever had it; its own is no change."""
        file = self._file(old)
        if old == new:
            return
        self._disk.directory.change(self._disk.next_number(), {old: None, new: file})

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._file(name)
        self._disk.directory.change(self._disk.next_number(), {name: None})

    async def sync(self, name: str) -> None:
        """Make durable what was written to a file before this call.

        Raises:
            OSError: it failed. What was to become durable is durable in part or not at all, and never will be.

        Concurrency: checkpoints; cancelled, nothing is durable that was not.
        """
        await self._disk.settle_later(self._file(name), self._generation)

    async def sync_directory(self) -> None:
        """Make the names durable as they are now; otherwise like `sync`."""
        await self._alive().settle_later(self._disk.directory, self._generation)

    def sync_now(self, name: str) -> None:
        """The same as `sync` for a process that is only starting and has no loop to run meanwhile: it takes no time."""
        self._disk.settle_now(self._file(name))

    def sync_directory_now(self) -> None:
        """The same as `sync_directory`, in no time."""
        self._alive().settle_now(self._disk.directory)

    def lock(self, name: str) -> bool:
        """Lock a name until this process ends or `unlock`; returns whether nobody else holds it."""
        return self._alive().lock(name, self)

    def unlock(self) -> None:
        """Let go of all locks."""
        self._disk.unlock(self)

    def _alive(self) -> Disk:
        _require(self._disk.is_current(self._generation))
        return self._disk

    def _file(self, name: str) -> File:
        file = self._alive().directory.written.get(name)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return file


def _require(is_alive: bool) -> None:
    """Refuse whatever tasks of a dead process still try."""
    if not is_alive:
        raise OSError(errno.ESHUTDOWN, "the process that used this disk has ended")

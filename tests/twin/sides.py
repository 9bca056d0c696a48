"""The two sides of the comparison: SQLite in processes that are killed, and the twin on virtual time."""

from __future__ import annotations

import errno
import os
import queue
import random
import shutil
import signal
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

import trio

from chord.sim.disk import Disk
from chord.sim.stores import SimulatedStorage
from chord.store.database import RowPlace, StoredRow
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import StoreFile
from chord.testing import run

from .histories import CIRCLE, INCARNATION, End, Life, history, play

SHARED_MEMORY = Path("/dev/shm")


# -- SQLite -----------------------------------------------------------------------------------------------


class HeldFile(StoreFile):
    """A real database with transactions that wait for `end_next`."""

    def __init__(self, directory: str) -> None:
        super().__init__(CIRCLE, directory, self._before)
        self._ends: queue.SimpleQueue[End] = queue.SimpleQueue()
        self._end: End = "ok"

    def end_next(self, end: End) -> None:
        """Let the transaction under way end like this."""
        self._ends.put(end)

    def _before(self) -> None:
        """Wait for `end_next` right before COMMIT, in the thread."""
        self._end = self._ends.get()
        if self._end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self._end == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        elif self._end == "failed":
            raise OSError(errno.EIO, "Input/output error")
        elif self._end == "failed, and written":  # the log was written, and its sync failed
            self._writer.execute("COMMIT")
            raise sqlite3.OperationalError("disk I/O error")

    def write(
        self, rows: Mapping[RowPlace, StoredRow | None], notes: Mapping[bytes, bytes | None], key_epoch: int
    ) -> None:
        """Write, and end the process before the callers get a result, if the history says so."""
        super().write(rows, notes, key_epoch)
        if self._end == "killed, and written":
            os.kill(os.getpid(), signal.SIGKILL)


def on_sqlite(seed: int) -> list[str]:
    """Play a history on SQLite, each life in its own process. Return the reports."""
    reported: list[str] = []
    directory = tempfile.mkdtemp(prefix="chord-twin-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None)
    try:
        for life in history(seed):
            reported += _lived(directory, life)
    finally:
        shutil.rmtree(directory)
    return reported


def _lived(directory: str, life: Life) -> list[str]:
    """Live one life in a child, which ends by itself: killed, or without closing its store."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(out)
            _live(directory, life, lambda line: os.write(into, line.encode() + b"\n"))
        except BaseException:
            os.write(into, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, encoding="utf-8") as lines:
        reported = lines.read().splitlines()
    os.waitpid(child, 0)
    return reported


def _live(directory: str, life: Life, tell: Callable[[str], object]) -> None:
    file = HeldFile(directory)
    store = SqliteStorage(CIRCLE, directory, INCARNATION, file=file)
    trio.run(play, store, life, file, tell)


# -- the twin ---------------------------------------------------------------------------------------------


class Loaded(random.Random):
    """A random generator with a known next result."""

    is_written = False

    def random(self) -> float:
        return 0.0 if self.is_written else 1.0


class HeldDisk:
    """A simulated disk with transactions that wait for `end_next`."""

    def __init__(self) -> None:
        self._dice = Loaded(1)
        self._told: list[str] | None = None
        self.disk = Disk(self._dice, sync_delay=lambda rng: 0.001)

    def begin(self, reported: list[str]) -> None:
        """Begin a life that opens its store at once, and add its reports to a list."""
        self._told = reported
        self.disk.resume()
        self.disk.free()

    def tell(self, line: str) -> None:
        """Add a report unless the process is dead. After the first report, of an opening, transactions wait."""
        if self._told is not None:
            self._told.append(line)
        self.disk.hang()

    def end_next(self, end: End) -> None:
        """Let the transaction under way end like this."""
        self._dice.is_written = end.endswith("and written")
        self.disk.free()
        if end.startswith("killed"):
            self._told = None
            self.disk.kill()
            return
        if end == "full":
            self.disk.fill()
        elif end.startswith("failed"):
            self.disk.fail_next_sync()
        self.disk.resume()


def on_the_twin(seed: int, kind: type[SimulatedStorage] = SimulatedStorage) -> list[str]:
    """Play a history on the simulated database. Return the reports."""
    reported: list[str] = []

    async def main() -> None:
        held = HeldDisk()
        for life in history(seed):
            held.begin(reported)
            await play(kind(CIRCLE, held.disk, INCARNATION), life, held, held.tell)
            held.disk.kill()

    run(main)
    return reported

"""Group commit: changes that arrive during a transaction share the next one.

At most one transaction is under way, in a worker. The event loop learns of its end before it starts the next one. If a
transaction is refused, every change that is not durable is rolled back. A change that builds on a refused change must
not last.

Source: group commit, DeWitt et al. 1984, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import msgspec
import trio
from outcome import Outcome

from chord.errors import ChordError, Overloaded, RemoteFailure, WritesRefused
from chord.observe.metrics import Histogram
from chord.store.database import Database, InDoubt, Refused, RowPlace, StoredRow
from chord.store.worker import Worker

CHANGE_BYTES = 64
"""Approximate overhead of a change in memory, in bytes, beside its record or note."""
RETRY_MS = 100
"""The wait before a retry that `Overloaded` proposes, in milliseconds.

On a healthy disk, a transaction takes some milliseconds.
"""


RowChanges: TypeAlias = dict[RowPlace, StoredRow | None]
"""Changed rows by primary key; None removes the row."""

NoteChanges: TypeAlias = dict[bytes, bytes | None]
"""Changed notes (see `Storage.note`) by name; None removes the note."""


class Group(msgspec.Struct, eq=False):
    """The changes of one transaction, and its outcome.

    Attributes:
        rows, notes: the changes.
        size: about how many bytes the changes take in memory; 0: there is nothing to write.
        done: set when the transaction is over.
        callbacks: called when the transaction is over, with the error or None.
        error: why the transaction failed; None if it is durable or not over.
    """

    rows: RowChanges = {}
    notes: NoteChanges = {}
    size: int = 0
    done: trio.Event = msgspec.field(default_factory=trio.Event)
    callbacks: list[Callable[[ChordError | None], None]] = []
    error: ChordError | None = None

    def end(self, error: ChordError | None = None) -> None:
        """End the transaction: wake the waiting tasks, and call the callbacks.

        `error` says why it failed; None if its changes are durable.
        """
        self.error = error
        self.done.set()
        for callback in self.callbacks:
            callback(None if error is None else type(error)(error.message))


def bytes_of(rows: RowChanges, notes: NoteChanges) -> int:
    """Return the approximate size of changes in memory, in bytes."""
    total = 0
    for place, row in rows.items():
        total += CHANGE_BYTES + len(place[1]) + (0 if row is None else len(row.clock))
    for name, value in notes.items():
        total += CHANGE_BYTES + len(name) + len(value or b"")
    return total


class GroupCommit:
    """Collects the changes of one store, and writes them in transactions.

    Args:
        file: the database.
        worker: runs the transactions.
        settle: called with each group of changes that has become durable.
        take_back: called to roll back all changes that are not durable, after a transaction was refused. Waiting
            callers wake afterwards.
        bytes_max: limit for the changes that are not durable, in bytes; see `add`.

    Attributes:
        key_epoch: the last key epoch given out; durable with the next transaction.
        cut_note: the note with the number of the newest cut, by name. It is written with each transaction until one
            succeeds.
        under_way: the group that the worker writes; None if idle.
        following: the group that collects changes for the next transaction.
        began_s: when the transaction under way began, in seconds on Trio's clock; None if idle.
        failed: set when the disk has failed. From then on nothing is written.
        failure: why the disk failed; "" as long as it has not.
        refusal: why the store may refuse writes, or ""; see `Storage.refusal`. The store clears it.
        refused: the number of transactions that failed.
        transactions, rows_written: the numbers of transactions and of rows in them since the opening.
        commit_times: how long the transactions took, in seconds.
    """

    def __init__(
        self,
        file: Database,
        worker: Worker,
        settle: Callable[[Group], object],
        take_back: Callable[[], object],
        bytes_max: int,
    ) -> None:
        self._file = file
        self._worker = worker
        self._settle = settle
        self._take_back = take_back
        self._bytes_max = bytes_max
        self._is_called = False
        self.key_epoch = 0
        self.cut_note: dict[bytes, bytes] = {}
        self.under_way: Group | None = None
        self.following = Group()
        self.began_s: float | None = None
        self.failed = trio.Event()
        self.failure = self.refusal = ""
        self.refused = self.transactions = self.rows_written = 0
        self.commit_times = Histogram()

    def require_sound(self) -> None:
        """Refuse further changes if the disk has failed.

        Raises:
            WritesRefused: definite; the disk has failed.
        """
        if self.failure:
            raise WritesRefused(f"no writes are taken since the disk failed: {self.failure}")

    @property
    def staged_bytes(self) -> int:
        """Approximate size of the changes that are not durable yet, in bytes."""
        return self.following.size + (0 if self.under_way is None else self.under_way.size)

    def add(self, rows: RowChanges, notes: NoteChanges) -> None:
        """Add changes to the next transaction. They replace earlier changes of the same rows and notes.

        If no transaction is under way, the next one begins in the next pass of the event loop. The caller calls
        `require_sound` first.

        Raises:
            Overloaded: definite; too many bytes already wait for the disk. If no byte waits, changes of any size are
                accepted.
        """
        group, size, staged = self.following, bytes_of(rows, notes), self.staged_bytes
        if staged and staged + size > self._bytes_max:
            text = f"{staged} bytes of writes wait for the disk; the limit is {self._bytes_max}; try again later"
            raise Overloaded(text, after_ms=RETRY_MS)
        if not (group.rows.keys().isdisjoint(rows) and group.notes.keys().isdisjoint(notes)):
            earlier_rows = {place: group.rows[place] for place in rows if place in group.rows}
            earlier_notes = {name: group.notes[name] for name in notes if name in group.notes}
            group.size -= bytes_of(earlier_rows, earlier_notes)
        group.size += size
        group.rows.update(rows)
        group.notes.update(notes)
        if self.under_way is None:
            self._write_soon()

    def last(self) -> Group | None:
        """Return the group with the latest changes that are not durable yet.

        When it is durable, all earlier changes are also durable. None means that there is nothing to wait for: all
        changes are durable, or the disk has failed.
        """
        return self.following if self.following.size else self.under_way

    def fail(self, why: str) -> None:
        """Declare the disk failed, so that nothing more is written; `failure` keeps the first reason."""
        self.failure = self.failure or why
        self.failed.set()

    def in_doubt(self) -> RemoteFailure:
        """Return the error for changes that may or may not be durable after a disk failure."""
        return RemoteFailure(f"not known to be durable: {self.failure}")

    # -- one after the other --------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Start a transaction in the next pass of the event loop.

        Tasks that run before it can still add changes.
        """
        if not self._is_called:
            self._is_called = True
            self._worker.soon(self._write_next)

    def _write_next(self) -> None:
        """Hand the collected changes to the worker, unless a transaction is under way."""
        self._is_called = False
        if self.under_way is not None or not self.following.size or self.failure:
            return
        group, self.following = self.following, Group()
        self.under_way, self.began_s = group, trio.current_time()
        write = partial(self._file.write, group.rows, {**group.notes, **self.cut_note}, self.key_epoch)
        self._worker.start(write, partial(self._written, group, self.cut_note), self._file.close)

    def _written(self, group: Group, cut_note: dict[bytes, bytes], result: Outcome[None]) -> None:
        """Handle the end of a transaction: wake its callers, and start the next one."""
        if self.began_s is not None:
            self.commit_times.note(trio.current_time() - self.began_s)
        self.under_way = self.began_s = None
        try:
            result.unwrap()
        except Refused as error:
            self._note_refusal(error)
            self._take_back()
            self._end(group, WritesRefused(f"no writes are taken: {error}"))
        except InDoubt as error:
            self._note_refusal(error)
            self.fail(str(error))
            self._end(group, self.in_doubt())
        else:
            self.transactions += 1
            if self.cut_note is cut_note:  # otherwise a newer cut was made meanwhile
                self.cut_note = {}
            self.rows_written += len(group.rows)
            self._settle(group)
            if self.following.size:
                self._write_soon()
            group.end()

    def _note_refusal(self, error: Exception) -> None:
        self.refusal = str(error)
        self.refused += 1

    def _end(self, group: Group, error: ChordError) -> None:
        """Fail a transaction, and the changes collected for the next one, with an error."""
        following, self.following = self.following, Group()
        for one in (group, following):
            one.end(error)

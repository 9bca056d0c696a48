"""One transaction after the other: changes that arrive while one is under way go into the next together.

At most one transaction is under way, in a worker; the event loop learns of its end before it hands over the next one.
So when one is refused, everything that is not durable is taken back: what builds on a refused change must not last.

Source: group commit, DeWitt et al. 1984, section 5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import trio
from outcome import Outcome

from chord.errors import ChordError, Overloaded, RemoteFailure, WritesRefused
from chord.store.database import Database, InDoubt, Place, Refused, Row
from chord.store.worker import Worker

CHANGE_BYTES = 64
"""What a change takes in memory beside the bytes of its record or note, about."""
RETRY_MS = 100
"""When to try again after `Overloaded`: a transaction takes some milliseconds on a disk that is well."""


Rows: TypeAlias = dict[Place, Row | None]
"""What is to stand at each place; None: nothing."""

Notes: TypeAlias = dict[bytes, bytes | None]
"""The value of each note; None removes it."""


class Group:
    """Changes of one transaction, those who wait for it, and how it ended.

    Attributes:
        rows, notes: the changes.
        size: what they take in memory, about.
        done: set when the transaction is over.
        callbacks: called then, with the error or None.
        error: why it came to nothing; None: it is durable.
    """

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.notes: Notes = {}
        self.size = 0
        self.done = trio.Event()
        self.callbacks: list[Callable[[ChordError | None], None]] = []
        self.error: ChordError | None = None

    def end(self, error: ChordError | None = None) -> None:
        """Tell everything that waits for the transaction that it is over."""
        self.error = error
        self.done.set()
        for callback in self.callbacks:
            callback(None if error is None else type(error)(error.message))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not (self.rows or self.notes)

    def add(self, rows: Rows, notes: Notes, size: int) -> None:
        """Take changes in, in place of earlier ones at the same places. `size`: what they take in memory, about."""
        self.size += size
        if not (self.rows.keys().isdisjoint(rows) and self.notes.keys().isdisjoint(notes)):
            earlier_rows = {place: self.rows[place] for place in rows if place in self.rows}
            earlier_notes = {name: self.notes[name] for name in notes if name in self.notes}
            self.size -= bytes_of(earlier_rows, earlier_notes)
        self.rows.update(rows)
        self.notes.update(notes)


def bytes_of(rows: Rows, notes: Notes) -> int:
    """Return what changes take in memory, about."""
    total = 0
    for place, row in rows.items():
        total += CHANGE_BYTES + len(place[1]) + (0 if row is None else len(row.clock))
    for name, value in notes.items():
        total += CHANGE_BYTES + len(name) + len(value or b"")
    return total


class GroupCommit:
    """The transactions of one store.

    Args:
        settle: called with each group that is durable.
        take_back: called when a transaction was refused, before its callers are told.
        bytes_max: changes that are not durable may take so many bytes; see `require_room`.

    Attributes:
        key_epoch: the last number that was given out; it is durable with the next transaction.
        under_way, following: the group that is being written, and the one that gathers.
        began_s: since when the transaction under way runs, by the clock of the event loop; None: there is none.
        failed: set when the disk failed. From then on nothing is written.
        failure: why it failed; "" before.
        refusal: why the last transaction came to nothing; "" if it did not.
        transactions, rows_written: totals since the opening.
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
        self.under_way: Group | None = None
        self.following = Group()
        self.began_s: float | None = None
        self.failed = trio.Event()
        self.failure = self.refusal = ""
        self.transactions = self.rows_written = 0

    @property
    def staged_bytes(self) -> int:
        """What the changes that are not durable take in memory, about."""
        return self.following.size + (0 if self.under_way is None else self.under_way.size)

    def require_sound(self) -> None:
        """Refuse to write after a failure of the disk.

        Raises:
            WritesRefused: definite.
        """
        if self.failure:
            raise WritesRefused(f"no writes are taken since the disk failed: {self.failure}")

    def require_room(self, size: int) -> None:
        """Refuse changes beyond the limit. Changes that find nothing before them always have room.

        Raises:
            Overloaded: definite; to be tried again.
        """
        staged = self.staged_bytes
        if staged and staged + size > self._bytes_max:
            text = f"{staged} bytes of writes wait for the disk; the limit is {self._bytes_max}; try again later"
            raise Overloaded(text, after_ms=RETRY_MS)

    def add(self, rows: Rows, notes: Notes, size: int) -> None:
        """Take changes into the next transaction. `size`: what they take in memory, about."""
        self.following.add(rows, notes, size)
        if self.under_way is None:
            self._write_soon()

    def last(self) -> Group | None:
        """Return the group after which everything visible is durable; None: it is, or never will be."""
        return self.under_way if self.following.is_empty else self.following

    def fail(self, why: str) -> None:
        """Nothing can be promised any more."""
        self.failure = self.failure or why
        self.failed.set()

    def in_doubt(self) -> RemoteFailure:
        """Return what to tell callers after a failure."""
        return RemoteFailure(f"not known to be durable: {self.failure}")

    # -- one after the other --------------------------------------------------------------------

    def _write_soon(self) -> None:
        """Begin a transaction in the next pass of the loop: who is woken in this one, or has a message, takes part."""
        if not self._is_called:
            self._is_called = True
            self._worker.soon(self._write_next)

    def _write_next(self) -> None:
        """Hand what has gathered to the worker, unless that is busy."""
        self._is_called = False
        if self.under_way is not None or self.following.is_empty or self.failure:
            return
        group, self.following = self.following, Group()
        self.under_way, self.began_s = group, trio.current_time()
        key_epoch = self.key_epoch

        def write() -> None:
            self._file.write(group.rows, group.notes, key_epoch)

        self._worker.start(write, lambda result: self._written(group, result), self._file.close)

    def _written(self, group: Group, result: Outcome[None]) -> None:
        """The transaction is over: settle what was in it, wake its callers, begin the next."""
        self.under_way = self.began_s = None
        try:
            result.unwrap()
        except Refused as error:
            self.refusal = str(error)
            self._take_back()
            self._end(group, WritesRefused(f"no writes are taken: {error}"))
        except InDoubt as error:
            self.refusal = str(error)
            self.fail(str(error))
            self._end(group, self.in_doubt())
        else:
            self.refusal = ""
            self.transactions += 1
            self.rows_written += len(group.rows)
            self._settle(group)
            if not self.following.is_empty:
                self._write_soon()
            group.end()

    def _end(self, group: Group, error: ChordError) -> None:
        """This group has come to nothing, and so has what was to follow it."""
        following, self.following = self.following, Group()
        for one in (group, following):
            one.end(error)

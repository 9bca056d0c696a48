"""Records in an SQLite database: the storage of a node with a data directory.

A change is visible at once, from memory. It is durable when its transaction is committed (`group_commit`). The database
does blocking work in a worker (`worker`). A simulation uses another database and another worker.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from typing import Final

import msgspec
import trio

from chord.config import Limits
from chord.errors import ChordError, Overloaded, RemoteFailure, WritesRefused
from chord.ids import Arc, Circle, Point
from chord.observe.metrics import Histogram
from chord.store.database import (
    HEAD_OF_ROW,
    WHOLE_ROW,
    Database,
    DatabaseCut,
    RowPlace,
    StoredRow,
    place_of,
    row_of,
)
from chord.store.early import EARLY_NOTE, MARK, LentActors
from chord.store.group_commit import Group, GroupCommit
from chord.store.merkle import Digests
from chord.store.sqlite_file import StoreFile
from chord.store.sqlite_notes import Notes
from chord.store.sqlite_rows import Rows
from chord.store.storage import CUT_NOTE, SCRUB_NOTE, Batch
from chord.store.versions import is_lendable
from chord.store.worker import ThreadWorker, Worker
from chord.wire.messages import Record

CLOSE_S = 5.0
NO_KEY: Final = b""
"""A key that no record has, because keys are not empty."""


class SqliteCut:
    """The records of an `SqliteStorage` at one moment. Satisfies `StoreCut`."""

    def __init__(self, circle: Circle, file: DatabaseCut) -> None:
        self._circle = circle
        self._file = file
        self._bad: set[tuple[object, object]] = set()

    @property
    def damaged(self) -> int:
        """Number of damaged records that `scan` has left out so far."""
        return len(self._bad)

    def scan(self, after: bytes | None) -> Iterator[Record]:
        """Yield all records, or those after a key, in the order of the points of their keys.

        Raises:
            RemoteFailure: the disk cannot be read.
        """
        place = None if after is None else place_of(self._circle, after)
        try:
            with closing(self._file.rows_behind(place)) as found:
                for columns in found:
                    row = StoredRow._make(columns)
                    try:
                        record = row.record if row.is_whole else None
                    except msgspec.DecodeError:
                        record = None
                    if record is None:
                        self._bad.add((row.point, row.key))
                    else:
                        yield record
        except sqlite3.Error as error:
            raise RemoteFailure(f"the store cannot be read: {error}") from None

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all notes by name.

        Raises:
            RemoteFailure: the disk cannot be read.
        """
        try:
            return self._file.notes()
        except sqlite3.Error as error:
            raise RemoteFailure(f"the store cannot be read: {error}") from None

    def close(self) -> None:
        """End the read transaction."""
        self._file.close()


class SqliteStorage:
    """Records in a file of a directory. Satisfies `chord.store.storage.Storage`.

    Args:
        circle: of the ring; the file of another circle is refused.
        directory: the directory of the file; created if missing.
        incarnation: the incarnation of a new store; an existing store keeps its own.
        before_commit: called in the writing thread before each commit; ignored if `file` is given. Tests use it to
            fail.
        staged_bytes_max: limit for changes that are not durable, in bytes; see `Limits`.
        free_bytes_min: bytes that must fit on the disk before `refusal` is cleared; see `Limits`.
        file: the database; by default the file in that directory.
        worker: runs blocking calls; by default in threads.

    Attributes:
        is_instant: always False.
    """

    is_instant = False

    def __init__(
        self,
        circle: Circle,
        directory: str,
        incarnation: bytes,
        before_commit: Callable[[], None] = lambda: None,
        *,
        staged_bytes_max: int = Limits().staged_bytes_max,
        free_bytes_min: int = Limits().free_bytes_min,
        file: Database | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._circle = circle
        self._fresh = incarnation
        self._file = file or StoreFile(circle, directory, before_commit)
        self._worker = worker or ThreadWorker()
        self._rows = Rows(circle, self._file, self._unreadable)
        self._notes = Notes({})
        self._lent = LentActors(None, False, 0)
        self._free_bytes_min = free_bytes_min
        self._commits = GroupCommit(self._file, self._worker, self._settle, self._take_back, staged_bytes_max)

    # -- opening and closing --------------------------------------------------------------------

    async def open(self) -> None:
        """Open the file. Call no other method before.

        Raises:
            ConfigError: the file is damaged, of another circle, not a store, or cannot be opened or created.

        Concurrency: checkpoints; the file is opened even if this is cancelled.
        """
        await self._worker.run(self._file.open, self._fresh)
        self._commits.key_epoch = self._file.key_epoch
        self._rows.opened()
        self._notes = Notes(self._file.notes)
        mark, is_damaged = self._notes.visible.get(EARLY_NOTE), bool(self._file.damaged_notes)
        self._lent = LentActors(mark, is_damaged, self._file.key_epoch)
        scrubbed = self._notes.visible.get(SCRUB_NOTE)
        width = self._circle.width
        self._rows.scrubbed = None if scrubbed is None else (scrubbed[:width], scrubbed[width:])

    async def close(self) -> None:
        """Wait until pending changes are durable, and close the file.

        A second call does nothing. If the disk does not answer within `CLOSE_S` seconds, the method returns
        without an error: the file stays open, and pending changes may be lost. No other transaction is started then,
        because the next process may have opened the file.

        Concurrency: checkpoints; shielded for at most `CLOSE_S` seconds.
        """
        with trio.move_on_after(CLOSE_S, shield=True) as patience:
            await self._wait_for_all()
            self._remove_mark()
            await self._wait_for_all()
            await self._worker.run(self._file.close, abandon=True)
        if patience.cancelled_caught:
            self._commits.fail("the store was closed before the disk answered")

    async def _wait_for_all(self) -> None:
        while (group := self._commits.last()) is not None and not self._commits.failure:
            await group.done.wait()

    def _remove_mark(self) -> None:
        """Note that no early put is undecided, so that the next opening keeps all actors.

        If one is undecided, or the disk takes no writes, the mark stays.
        """
        if self._lent.is_marked and not self._lent.keys:
            with suppress(WritesRefused, Overloaded):
                self.stage(Batch(notes={EARLY_NOTE: self._lent.at_the_end}))
            self._lent.is_marked = False

    # -- reading --------------------------------------------------------------------------------

    @property
    def failed(self) -> trio.Event:
        """Set when the disk has failed. From then on every commit is refused."""
        return self._commits.failed

    @property
    def busy_since(self) -> float | None:
        """When the running transaction began, in seconds on Trio's clock; None if idle."""
        return self._commits.began_s

    @property
    def staged_bytes(self) -> int:
        """Approximate size of the changes that are not durable yet, in bytes."""
        return self._commits.staged_bytes

    @property
    def bad_records(self) -> int:
        """How many records were found damaged since the opening; they count as missing."""
        return self._rows.bad_records

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes that name this store, drawn when the store was created."""
        return self._file.incarnation

    @property
    def digests(self) -> Digests:
        """The summed Merkle tree over all visible records."""
        return self._rows.summary.digests

    @property
    def value_bytes(self) -> int:
        """The bytes of all stored values, without quarantined values."""
        return self._rows.summary.value_bytes

    @property
    def sibling_keys(self) -> int:
        """How many records hold more than one version outside the quarantine."""
        return self._rows.summary.sibling_keys

    @property
    def commit_times(self) -> Histogram:
        """How long the transactions took since the opening, in seconds."""
        return self._commits.commit_times

    @property
    def counters(self) -> dict[str, int]:
        """Totals since the opening, for monitoring.

        They show how many rows a transaction holds on average, and whether the disk damages records.
        """
        return {
            "scrub_rounds": self._rows.scrubs,
            "scrub_rows": self._rows.scrubbed_rows,
            "store_bad_records": self.bad_records,
            "store_rows_written": self._commits.rows_written,
            "store_transactions": self._commits.transactions,
        }

    def __len__(self) -> int:
        return self._rows.summary.keys

    def get(self, key: bytes) -> Record | None:
        """Return the visible record of a key, or None; it may not be durable yet."""
        row = self._rows.row(self._rows.place(key))
        return None if row is None else self._record_of(row)

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store writes a key; None: the next write needs a new one.

        See `Storage.minted`.
        """
        row = self._rows.row(self._rows.place(key))
        return None if row is None else self._lent.usable(key, row.minted)

    def can_lend(self, key: bytes) -> bool:
        """Return whether an early put of a key may be sent now.

        The actor must be on the disk with the record, so that a crash cannot make its key epoch new again. The mark
        must be durable. If the store has no mark yet, the next transaction brings it.
        """
        place = self._rows.place(key)
        if place in self._rows.changes or self._commits.refusal or self._commits.failure:
            return False
        row = self._rows.row(place)
        actor = None if row is None else self._lent.usable(key, row.minted)
        return actor is not None and is_lendable(actor) and (self._lent.is_marked or self._mark())

    def _mark(self) -> bool:
        """Stage the mark if the store has none, and return whether the mark is durable."""
        if self._notes.visible.get(EARLY_NOTE) != MARK:
            with suppress(WritesRefused, Overloaded):
                self.stage(Batch(notes={EARLY_NOTE: MARK}))
        self._lent.is_marked = self._notes.durable(EARLY_NOTE) == MARK
        return self._lent.is_marked

    def lend_actor(self, key: bytes, record: Record) -> None:
        """Lend the actor of a key to an early put; see `Storage.lend_actor`."""
        self._lent.keys.add(key)

    def give_up_actor(self, key: bytes) -> None:
        """Mint no more under the lent actor of a key.

        If the disk takes no change, all actors that may have been lent are given up.
        """
        self._lent.keys.discard(key)
        place = self._rows.place(key)
        row = self._rows.row(place)
        if row is None or row.minted is None or (record := self._record_of(row)) is None:
            return
        without = row_of(place[0], record, None)
        try:
            self._commits.require_sound()
            self._commits.add({place: without}, {})
        except (WritesRefused, Overloaded):
            self._lent.give_up_all(self._commits.key_epoch)
        else:
            self._rows.change(place, row, without)

    def note(self, name: bytes) -> bytes | None:
        """Return the visible value of a note, or None; it may not be durable yet.

        See `Storage.note`.
        """
        return self._notes.visible.get(name)

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all visible notes by name."""
        return self._notes.visible

    def durable_note(self, name: bytes) -> bytes | None:
        """Return the durable value of a note, which no crash can undo, or None."""
        return self._notes.durable(name)

    @property
    def damaged_notes(self) -> Collection[bytes]:
        """The names, as stored, of the notes that the opening found damaged."""
        return self._file.damaged_notes

    def is_durable(self, key: bytes) -> bool:
        """Return whether the record that `get` returns for a key is durable."""
        return self._rows.place(key) not in self._rows.changes

    def durable(self, key: bytes) -> Record | None:
        """Return the durable record of a key, which no crash can undo, or None."""
        row = self._rows.durable(self._rows.place(key))
        return None if row is None else self._record_of(row)

    def durable_digest(self, key: bytes) -> bytes:
        """Return the digest of a key's durable record; empty without a record."""
        row = self._rows.durable(self._rows.place(key))
        return b"" if row is None else row.digest

    def is_damaged(self, key: bytes) -> bool:
        """Return whether the record of a key may have been lost to damage on the disk.

        It may if the key has no record, and a damaged row may have held it.
        """
        return bool(self._rows.summary.bad) and self._rows.is_damaged(key)

    def damaged(self, arc: Arc) -> list[Point]:
        """Return a point in the arc for each damaged record that may lie in it."""
        found: list[Point] = []
        for bad in self._rows.lost:
            points = self._rows.points_of(bad) or (arc.end,)
            found += [point for point in points if point in arc][:1]
        return found

    def scrub(self, bytes_max: int) -> tuple[int, bool]:
        """Read and check the next records; see `Storage.scrub`."""
        return self._rows.scrub(bytes_max)

    @property
    def scrub_bytes(self) -> int:
        """How many bytes `scrub` reads to check every record."""
        return self._rows.scrub_bytes

    @property
    def scrubbed(self) -> bytes | None:
        """The position of the scrub, to store in `SCRUB_NOTE` for the next start.

        None: the scrub continues with the first record.
        """
        place = self._rows.scrubbed
        return None if place is None else b"".join(place)

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise, after the key `after` or from its start.

        See `Storage.scan`. A record that this finds damaged is left out and counted.
        """
        for found in self._rows.rows(WHOLE_ROW, arc, after):
            row = StoredRow._make(found)
            if not row.is_whole:
                self._rows.count_bad(row)
            elif (record := self._record_of(row)) is not None:
                yield record

    def _record_of(self, row: StoredRow) -> Record | None:
        """Return the record of a row with a matching checksum.

        If the row cannot be decoded nevertheless, it counts as damaged, and the result is None.
        """
        try:
            return row.record
        except msgspec.DecodeError:
            self._rows.count_bad(row)
            return None

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest of each record in an arc, in the order of `scan`.

        The records themselves are not read, so no new damage is found in them.
        """
        for row in self._rows.rows(HEAD_OF_ROW, arc, after):
            yield row[1], row[2]

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""
        return self.digests.count(arc, self.heads)

    def quarantined(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc with quarantined (hidden) versions.

        The order is that of `scan`.
        """
        for place, _ in list(self._rows.quarantined(arc, after)):
            record = self.get(place[1])
            if record is not None and record.quarantine:
                yield record

    def count_quarantined(self, arc: Arc) -> int:
        """Return the number of quarantined versions in an arc."""
        return sum(count for _, count in self._rows.quarantined(arc, None))

    def next_key_epoch(self) -> int:
        """Return a number that this store has never returned before, for a new actor.

        The number becomes durable with the next batch.

        Raises:
            WritesRefused: definite; the disk has failed.
        """
        self._commits.require_sound()
        self._commits.key_epoch += 1
        return self._commits.key_epoch

    @property
    def cut_number(self) -> int:
        """The number of the newest cut that this store knew durably when it was opened; 0: none."""
        return int.from_bytes(self._notes.visible.get(CUT_NOTE, b""), "big")

    def note_cut_number(self, number: int) -> None:
        """Make the number of the newest cut durable with the first transaction that begins afterwards."""
        self._commits.cut_note = {CUT_NOTE: number.to_bytes(8, "big")}

    def cut(self, number: int) -> SqliteCut:
        """Return the durable records and notes of this moment, and note the number of the cut.

        The result is an open read transaction. A transaction under way may be in it or not, because no change of that
        transaction was acknowledged yet. An earlier cut is closed.

        Raises:
            RemoteFailure: the disk cannot be read.
        """
        self.note_cut_number(number)
        try:
            return SqliteCut(self._circle, self._file.cut())
        except sqlite3.Error as error:
            raise RemoteFailure(f"the store cannot be read: {error}") from None

    # -- writing --------------------------------------------------------------------------------

    def stage(self, batch: Batch) -> bool:
        """Apply a batch in memory, and leave the writing to the worker.

        Returns:
            Whether everything visible is already durable; see `Storage.stage`.

        Raises:
            WritesRefused: definite; the disk has failed.
            Overloaded: definite; too many bytes wait for the disk.
        """
        if not batch.is_empty:
            self._commits.require_sound()
            before, after = self._rows_of(batch)
            self._commits.add(after, batch.notes)
            for place, row in after.items():
                self._rows.change(place, before[place], row)
            for name, value in batch.notes.items():
                self._notes.change(name, value)
            if self._lent.keys:
                self._lent.keys.difference_update(batch.minted)
        return not (self._rows.changes or self._notes.changes)

    async def commit(self, batch: Batch) -> None:
        """Apply a batch, and wait until it is durable.

        The changes are visible before the first wait.

        Raises:
            WritesRefused: definite; the disk is full or has failed, and nothing was changed. For an empty batch: the
                changes that were not durable were rolled back.
            Overloaded: definite; too many bytes wait for the disk.
            RemoteFailure: indefinite; the disk failed on the way. The changes stay visible until the node stops.

        Concurrency: checkpoints unless there is nothing to wait for; the changes are made even if this is cancelled.
        """
        self.stage(batch)
        group = self._commits.last()
        if group is not None:
            await group.done.wait()
            if group.error is not None:
                raise type(group.error)(group.error.message)
        elif self._rows.changes or self._notes.changes:
            raise self._commits.in_doubt()

    def when_durable(self, callback: Callable[[ChordError | None], None]) -> None:
        """Call back once when all changes so far are durable, or have failed.

        See `Storage.when_durable`.
        """
        group = self._commits.last()
        if group is not None:
            group.callbacks.append(callback)
        else:
            has_changes = self._rows.changes or self._notes.changes
            callback(self._commits.in_doubt() if has_changes else None)

    @property
    def refusal(self) -> str:
        """Why the store may refuse writes, or ""; see `Storage.refusal`."""
        return self._commits.refusal

    async def try_again(self) -> None:
        """Clear `refusal` if the disk takes a write and has room again; see `Storage.try_again`.

        Concurrency: checkpoints. Other writes do not wait for the test of the room.
        """
        commits, refused = self._commits, self._commits.refused
        with suppress(WritesRefused):
            self.next_key_epoch()  # this alone causes a transaction
            await self.commit(Batch(removals=(NO_KEY,)))
            has_room = await self._worker.run(self._file.has_room, self._free_bytes_min, abandon=True)
            if has_room and commits.refused == refused:
                commits.refusal = ""

    def _rows_of(self, batch: Batch) -> tuple[dict[RowPlace, StoredRow | None], dict[RowPlace, StoredRow | None]]:
        before: dict[RowPlace, StoredRow | None] = {}
        after: dict[RowPlace, StoredRow | None] = {}
        for record in batch.puts:
            place = self._rows.place(record.key)
            old = before[place] = self._rows.row(place)
            row = after[place] = row_of(place[0], record, batch.minted.get(record.key, old and old.minted))
            if self._rows.summary.bad:
                before.update(replaced := dict.fromkeys(self._rows.replaced_by(row)))
                after.update(replaced)
        for key in batch.removals:
            place = self._rows.place(key)
            before[place], after[place] = self._rows.row(place), None
        return before, after

    def _settle(self, group: Group) -> None:
        following = self._commits.following
        for place, row in group.rows.items():
            self._rows.settle(place, row, is_changed_again=place in following.rows)
        for name, value in group.notes.items():
            self._notes.settle(name, value, is_changed_again=name in following.notes)

    def _take_back(self) -> None:
        self._rows.take_back()
        self._notes.take_back()
        self._lent.give_up_all(self._commits.key_epoch)

    def _unreadable(self, error: sqlite3.Error) -> RemoteFailure:
        self._commits.fail(str(error))
        return RemoteFailure(f"the store cannot be read: {self._commits.failure}")

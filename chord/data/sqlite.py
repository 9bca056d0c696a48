"""Records in an SQLite database: the storage of a node with a data directory.

A change is visible at once, from memory, and durable when the transaction it is in was committed. All changes made
while one transaction is under way go into the next, so that many callers share one sync (group commit). At most one
is under way, in a thread; the event loop learns of its end before it hands over the next one. So when one is refused,
everything that is not durable goes back to what it was: what is built on a refused change must not last either.

Source: group commit, DeWitt et al. 1984, section 5.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator

import msgspec
import trio
from outcome import Outcome

from chord.data.digest import Digests
from chord.data.sqlite_file import Place, Row, StoreFile, is_definite, row_of
from chord.data.sqlite_rows import Rows
from chord.data.storage import Batch
from chord.errors import ChordError, RemoteFailure, WritesRefused
from chord.ids import Arc, Circle, Point
from chord.messages import Record

CLOSE_S = 5.0


class Group:
    """Changes of one transaction, those who wait for it, and how it ended."""

    def __init__(self) -> None:
        self.rows: dict[Place, Row | None] = {}
        self.done = trio.Event()
        self.error: ChordError | None = None


class SqliteStorage:
    """Records in a file of a directory. Satisfies `chord.data.storage.Storage`.

    Args:
        circle: of the ring; the file of another circle is refused.
        directory: where the file is; made if need be.
        incarnation: of the store, if it is new.
        before_commit: called in the writing thread before each transaction is committed; tests let it fail.

    Attributes:
        failed: set when the disk failed. From then on every commit is refused.
        transactions: how many were committed since the opening.
        rows_written: in these.
        refusal: why the last transaction was refused; "" if it was not.
        is_instant: it is not.
    """

    is_instant = False

    def __init__(
        self, circle: Circle, directory: str, incarnation: bytes, before_commit: Callable[[], None] = lambda: None
    ) -> None:
        self._circle = circle
        self._fresh = incarnation
        self._file = StoreFile(circle, directory, before_commit)
        self._rows = Rows(circle, self._file, self._unreadable)
        self._next = Group()
        self._under_way: Group | None = None
        self._key_epoch = 0
        self._failure = ""
        self.failed = trio.Event()
        self.transactions = self.rows_written = 0
        self.refusal = ""

    # -- opening and closing --------------------------------------------------------------------

    async def open(self) -> None:
        """Open the file; nothing else may be asked before.

        Raises:
            ConfigError: it is damaged, or another circle's, or no such file.

        Concurrency: checkpoints; cancelled, it is opened nevertheless.
        """
        await trio.to_thread.run_sync(self._file.open, self._fresh)
        self._key_epoch = self._file.key_epoch
        self._rows.opened()

    async def close(self) -> None:
        """Let what is under way become durable, and close the file. Twice is once.

        Concurrency: checkpoints; shielded, and given up where the disk does not answer.
        """
        with trio.move_on_after(CLOSE_S, shield=True):
            while (group := self._last_group()) is not None and not self._failure:
                await group.done.wait()
            await trio.to_thread.run_sync(self._file.close, abandon_on_cancel=True)

    async def set_aside(self, incarnation: bytes) -> None:
        """Begin anew, empty; the file gets another name, if it holds anything. Nothing may be under way.

        Raises:
            ConfigError: it could not be done.
        """
        is_empty = not len(self)
        await self.close()
        await trio.to_thread.run_sync(self._file.remove if is_empty else self._file.set_aside)
        self._fresh, self._rows.bad_records = incarnation, 0
        await self.open()

    # -- reading --------------------------------------------------------------------------------

    @property
    def bad_records(self) -> int:
        """How many records were found damaged since the opening; they count as missing."""
        return self._rows.bad_records

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes, made with the empty store."""
        return self._file.incarnation

    @property
    def digests(self) -> Digests:
        """The tree of sums over all visible records."""
        return self._rows.summary.digests

    @property
    def value_bytes(self) -> int:
        """Bytes of all stored values."""
        return self._rows.summary.value_bytes

    @property
    def sibling_keys(self) -> int:
        """How many records hold more than one version."""
        return self._rows.summary.sibling_keys

    @property
    def counters(self) -> dict[str, int]:
        """How many records a transaction holds on average, and whether the disk damages any, can be told from these."""
        return {
            "store_bad_records": self.bad_records,
            "store_rows_written": self.rows_written,
            "store_transactions": self.transactions,
        }

    def __len__(self) -> int:
        return self._rows.summary.keys

    def get(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None; it may not be durable yet."""
        row = self._rows.row(self._rows.place(key))
        return None if row is None else self._record_of(row)

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store minted a dot of a key it has held ever since, or None."""
        row = self._rows.row(self._rows.place(key))
        return None if row is None else row.minted

    def is_durable(self, key: bytes) -> bool:
        """Whether what `get` returns for a key is durable."""
        return self._rows.place(key) not in self._rows.changes

    def durable(self, key: bytes) -> Record | None:
        """Return the record of a key as no crash can take it back."""
        row = self._rows.durable(self._rows.place(key))
        return None if row is None else self._record_of(row)

    def is_damaged(self, key: bytes) -> bool:
        """Whether what was held of a key was found damaged, and nothing has taken its place since."""
        return self._rows.place(key) in self._rows.summary.bad

    def damaged(self, arc: Arc) -> list[Point]:
        """Return the points of the records of an arc that are damaged, and nothing has taken their place since."""
        bad = (point for point, _ in self._rows.summary.bad if _is_point(point))
        points = [Point(int.from_bytes(point, "big")) for point in bad]
        return [point for point in points if point in arc]

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise from its start; with `after`, those behind that key."""
        for found in self._rows.rows("*", arc, after):
            row = Row._make(found)
            if not row.is_whole:
                self._rows.count_bad(row)
            elif (record := self._record_of(row)) is not None:
                yield record

    def _record_of(self, row: Row) -> Record | None:
        """Return the record of a row that is whole; what is no record nevertheless counts as damaged."""
        try:
            return row.record
        except msgspec.DecodeError:
            self._rows.count_bad(row)
            return None

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest of each record, as `scan` would yield the records.

        Damage that nobody has come across yet is not found here: the records themselves are not read.
        """
        for row in self._rows.rows("point, key, digest", arc, after):
            yield row[1], row[2]

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""
        return self.digests.count(arc, self.heads)

    def next_key_epoch(self) -> int:
        """Return a number this store has never returned before. It is durable with the next batch.

        Raises:
            WritesRefused: definite; the disk has failed.
        """
        self._require_sound()
        self._key_epoch += 1
        return self._key_epoch

    # -- writing --------------------------------------------------------------------------------

    def stage(self, batch: Batch) -> bool:
        """Make all changes of the batch visible, and leave them to the thread that writes; see `Storage.stage`.

        Raises:
            WritesRefused: definite; the disk has failed.
        """
        if batch.puts or batch.removals:
            self._require_sound()
            self._apply(batch)
            if self._under_way is None:
                self._write_soon()
        return not self._rows.changes

    async def commit(self, batch: Batch) -> None:
        """Make all changes of the batch: visible before this first waits, durable when it returns.

        Raises:
            WritesRefused: definite; the disk is full or has failed. Nothing was changed; of an empty batch: what was
                visible and not durable is gone.
            RemoteFailure: indefinite; the disk failed on the way. The changes stay visible until the node stops.

        Concurrency: checkpoints unless there is nothing to wait for; cancelled, the changes are made nevertheless.
        """
        self.stage(batch)
        group = self._last_group()
        if group is not None:
            await group.done.wait()
            if group.error is not None:
                raise type(group.error)(group.error.message)
        elif self._rows.changes:
            raise self._in_doubt()

    def _require_sound(self) -> None:
        if self._failure:
            raise WritesRefused(f"no writes are taken since the disk failed: {self._failure}")

    def _last_group(self) -> Group | None:
        """Return the group after which all that is visible is durable."""
        return self._next if self._next.rows else self._under_way

    def _apply(self, batch: Batch) -> None:
        for record in batch.puts:
            place = self._rows.place(record.key)
            old = self._rows.row(place)
            minted = batch.minted.get(record.key, old and old.minted)
            self._change(place, old, row_of(place[0], record, minted))
        for key in batch.removals:
            place = self._rows.place(key)
            self._change(place, self._rows.row(place), None)

    def _change(self, place: Place, old: Row | None, new: Row | None) -> None:
        self._rows.change(place, old, new)
        self._next.rows[place] = new

    # -- one transaction after the other --------------------------------------------------------

    def _write_soon(self) -> None:
        """Begin a transaction in the next pass of the loop: who is woken in this one, or has a message, takes part."""
        trio.lowlevel.current_trio_token().run_sync_soon(self._write_next, idempotent=True)

    def _write_next(self) -> None:
        """Hand what has gathered to a thread, unless that is busy."""
        if self._under_way is not None or not self._next.rows or self._failure:
            return
        group, self._next = self._next, Group()
        self._under_way = group
        key_epoch, loop = self._key_epoch, trio.lowlevel.current_trio_token()

        def write() -> sqlite3.Error | OSError | None:
            try:
                self._file.write(group.rows, key_epoch)
            except (sqlite3.Error, OSError) as error:
                return error
            return None

        def deliver(result: Outcome[sqlite3.Error | OSError | None]) -> None:
            try:
                loop.run_sync_soon(self._written, group, result)
            except trio.RunFinishedError:
                self._file.close()  # nobody is left to do it

        trio.lowlevel.start_thread_soon(write, deliver, "chord records")

    def _written(self, group: Group, result: Outcome[sqlite3.Error | OSError | None]) -> None:
        """The transaction is over: settle what was in it, wake who waits for it, begin the next."""
        self._under_way = None
        error = result.unwrap()
        self.refusal = _words(error) if error is not None else ""
        if error is None:
            self.transactions += 1
            self.rows_written += len(group.rows)
            self._settle(group)
            group.done.set()
            if self._next.rows:
                self._write_soon()
        elif is_definite(error):
            self._take_back()
            self._end(group, WritesRefused(f"no writes are taken: {_words(error)}"))
        else:
            self._fail(error)
            self._end(group, self._in_doubt())

    def _settle(self, group: Group) -> None:
        for place, row in group.rows.items():
            self._rows.settle(place, row, is_changed_again=place in self._next.rows)

    def _take_back(self) -> None:
        self._rows.take_back()

    def _end(self, group: Group, error: ChordError) -> None:
        """This group has come to nothing, and so has what was to follow it."""
        following, self._next = self._next, Group()
        for one in (group, following):
            one.error = error
            one.done.set()

    def _fail(self, error: sqlite3.Error | OSError) -> None:
        self._failure = self._failure or _words(error)
        self.failed.set()

    def _in_doubt(self) -> RemoteFailure:
        return RemoteFailure(f"not known to be durable: {self._failure}")

    def _unreadable(self, error: sqlite3.Error) -> RemoteFailure:
        self._fail(error)
        return RemoteFailure(f"the store cannot be read: {self._failure}")


def _is_point(point: object) -> bool:
    """Whether a column of a damaged row is still what it was meant to be."""
    return isinstance(point, bytes)


def _words(error: sqlite3.Error | OSError) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)

"""The storage interface: records in the order of the points of their keys.

`MemoryStorage` serves nodes without a data directory. `store/sqlite.py` has the durable implementation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

from sortedcontainers import SortedDict, SortedList

from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.observe.metrics import Histogram
from chord.store import quarantine
from chord.store.cuts import MemoryCut, Place, StoreCut
from chord.store.merkle import Digests, digest_of
from chord.wire.messages import Record

if TYPE_CHECKING:
    import trio  # the blocking client must not load it

SCRUB_NOTE: Final = b"\0scrub"
"""The name of the note with the position of the scrub. A restart continues there.

"""

CUT_NOTE: Final = b"\0cut"
"""The name of the note with the number of the newest cut, 8 bytes.

Besides this note, `SCRUB_NOTE` and `EARLY_NOTE` (`early.py`), no note has a name that begins with a zero byte.
"""

class Batch:
    """Changes that are applied together, all or none.

    Args:
        puts: records to store.
        removals: keys of records to remove. If a key is also in `puts`, the removal wins.
        minted: by key of a record in `puts`, the actor under which this node mints from now on; see `Storage.minted`.
            Keys that are not in `minted` keep their actor. A lent actor is back.
        notes: by name, the value of each note to store (see `Storage.note`); None removes the note.

    Attributes:
        is_empty: whether the batch has no puts, removals or notes; `minted` alone does not count.
    """

    def __init__(
        self,
        puts: Iterable[Record] = (),
        removals: Iterable[bytes] = (),
        minted: Mapping[bytes, bytes] | None = None,
        notes: Mapping[bytes, bytes | None] | None = None,
    ) -> None:
        self.puts = tuple(puts)
        self.removals = tuple(removals)
        self.minted = dict(minted or {})
        self.notes = dict(notes or {})
        self.is_empty = not (self.puts or self.removals or self.notes)


class Storage(Protocol):
    """The records of one node, ordered by the point of their key, then by key.

    A change is visible to this node at once, but may not be durable yet. The node must not show it to other nodes
    before it is durable. Otherwise a crash could undo a dot, the name of a write, that other nodes remember. The node
    would then use the dot again for another write. `durable` and `is_durable` tell the difference, and an empty
    `commit` waits.

    If the disk cannot be read, the methods that read records raise `RemoteFailure`, and the storage has failed.
    """

    is_instant: bool  # whether every visible change is durable at once. Then `stage` is as good as `commit`.

    @property
    def failed(self) -> trio.Event | None:
        """The event that is set when the disk has failed; None if the storage cannot fail.

        After a failure the storage promises nothing, and the node has to stop.
        """

    @property
    def busy_since(self) -> float | None:
        """When the disk began its current work, in seconds on Trio's clock; None if idle."""

    async def open(self) -> None:
        """Prepare the storage. Call no other method before.

        Raises:
            ConfigError: the stored data cannot be used; the message says why.
        """

    async def close(self) -> None:
        """Finish pending changes and release everything. Call no method afterwards.

        Concurrency: checkpoints; not to be cancelled.
        """

    def is_damaged(self, key: bytes) -> bool:
        """Return whether the record of a key may have been lost to damage on the disk.

        That is so if `get` finds no record, and some damaged record may have had this key. The damage may have changed
        the key of a record. After a new record of the same key is stored, the answer is False.
        """

    def scrub(self, bytes_max: int) -> tuple[int, bool]:
        """Read and check the next records; after the last, the next call starts over.

        Args:
            bytes_max: about how many bytes to read; at least one record is read.

        Returns:
            The bytes read, and whether the last record was among them.
        """

    @property
    def scrub_bytes(self) -> int:
        """How many bytes `scrub` reads to check every record."""

    @property
    def scrubbed(self) -> bytes | None:
        """The position of the scrub, to store in `SCRUB_NOTE` for the next start.

        None: the scrub continues with the first record.
        """

    @property
    def bad_records(self) -> int:
        """How many records were found damaged since the opening.

        A damaged record counts as missing. Records that were replaced afterwards are included.
        """

    def damaged(self, arc: Arc) -> list[Point]:
        """Return a point in the arc for each damaged record that may lie in it.

        A damaged record that was replaced is left out.
        """

    @property
    def refusal(self) -> str:
        """Why the store may refuse writes: the reason of the last transaction that failed, or "".

        The disk may be full or read-only, for example. The reason stays until `try_again` clears it. Until then small
        writes may succeed. `Overloaded` is not reported here.
        """

    async def try_again(self) -> None:
        """Write nothing in a transaction, and clear `refusal` if `free_bytes_min` bytes (see `Limits`) fit afterwards.

        The reason stays if another transaction fails meanwhile.

        Raises:
            Overloaded: definite; too many bytes wait for the disk.
            RemoteFailure: the disk failed.
        """

    @property
    def commit_times(self) -> Histogram:
        """How long the transactions took since the opening, in seconds."""

    @property
    def counters(self) -> dict[str, int]:
        """Totals by name since the opening, for monitoring."""

    @property
    def digests(self) -> Digests:
        """The summed Merkle tree over all visible records, for anti-entropy."""

    @property
    def sibling_keys(self) -> int:
        """How many records hold more than one version outside the quarantine."""

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest (`digest_of`) of each record in an arc.

        The order is that of `scan`, and `after` has the same meaning.
        """

    def is_durable(self, key: bytes) -> bool:
        """Return whether the result of `get` for a key is durable, be it a record or None."""

    def durable(self, key: bytes) -> Record | None:
        """Return the durable record of a key, which no crash can undo, or None.

        Changes that are visible but not durable are left out.
        """

    def durable_digest(self, key: bytes) -> bytes:
        """Return the digest (`digest_of`) of a key's durable record; empty without a record."""

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes that name this store.

        An empty store gets them when it is created, so a wiped store has other bytes.
        """

    def get(self, key: bytes) -> Record | None:
        """Return the visible record of a key; None if it is missing or damaged."""

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store writes a key, or None.

        An actor names a writer in the record's clock; see `chord/store/versions.py`. None means that the next write
        here needs a new actor. The actor is forgotten when the record is removed. A record that comes back by a merge
        may be older than the writes made here. Under the same actor, a new write could then get the name of an earlier
        one. While the actor is lent, the result is None.
        """

    def can_lend(self, key: bytes) -> bool:
        """Return whether an early put of a key may be sent now; see `early.py`.

        The actor of its version must be lendable (`versions.is_lendable`). The record of the key must be durable and
        not damaged. A store on disk lends only the actor of `minted`.
        """

    def lend_actor(self, key: bytes, record: Record) -> None:
        """Lend the actor of a key to an early put, until the actor is in `Batch.minted` or given up.

        `record` has the version that is about to be sent. The store does not store it.
        """

    def give_up_actor(self, key: bytes) -> None:
        """Mint no more under the lent actor of a key."""

    def note(self, name: bytes) -> bytes | None:
        """Return the visible value of a note, or None; it may not be durable yet.

        Notes are small values in memory. They change, and are rolled back, with the records of their batch.
        """

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all visible notes by name, for reading only."""

    def durable_note(self, name: bytes) -> bytes | None:
        """Return the durable value of a note, which no crash can undo, or None."""

    @property
    def damaged_notes(self) -> Collection[bytes]:
        """The names, as stored, of the notes that the opening found damaged.

        A damaged note counts as missing.
        """

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise.

        Exhaust the iterator without an `await` in between, because a change of the store invalidates it.

        Args:
            arc: the arc.
            after: a key in the arc; yield only the records after it. None: from the start of the arc.
        """

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""

    def quarantined(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc with quarantined (hidden) versions.

        The order is that of `scan`, and `after` has the same meaning.
        """

    def count_quarantined(self, arc: Arc) -> int:
        """Return the number of quarantined versions in an arc."""

    def stage(self, batch: Batch) -> bool:
        """Apply a batch, all of it or nothing: visible at once, durable some time later.

        Returns:
            Whether everything visible is already durable. If not, an empty `commit` waits for it.

        Raises:
            WritesRefused: definite; the disk has failed, and nothing was changed.
            Overloaded: definite; too many bytes wait for the disk, and nothing was changed.
        """

    def when_durable(self, callback: Callable[[ChordError | None], None]) -> None:
        """Call back once when all changes so far are durable, or have failed.

        The callback gets None, or the error that `commit` would raise. It may be called before this returns. It is
        never called if the store is closed first.
        """

    async def commit(self, batch: Batch) -> None:
        """Apply a batch, all of it or nothing, and wait until it is durable.

        The changes are visible before the first wait. An empty batch waits until everything visible is durable.

        Raises:
            WritesRefused: definite; the disk takes no writes, and nothing stays changed.
            Overloaded: definite; too many bytes wait for the disk, and nothing was changed.
            RemoteFailure: indefinite; the changes may or may not be durable.
        """

    @property
    def cut_number(self) -> int:
        """The number of the newest cut that this store knew durably when it was opened; 0: none."""

    def note_cut_number(self, number: int) -> None:
        """Make the number of the newest cut durable with the first transaction that begins afterwards.

        So the store keeps no later change without the number.
        """

    def cut(self, number: int) -> StoreCut:
        """Return the durable records and notes of this moment, and note the number of the cut.

        An earlier cut is closed.

        Raises:
            ChordError: the disk cannot be read. The number becomes durable nevertheless.
        """

    def next_key_epoch(self) -> int:
        """Return a number that this store has never returned before, for a new actor.

        An actor consists of the store's incarnation and this number; see `chord/store/versions.py`.

        Raises:
            WritesRefused: definite; the disk has failed.
        """

    def __len__(self) -> int: ...

    @property
    def value_bytes(self) -> int:
        """The bytes of all stored values, without quarantined values."""


def bytes_of_values(record: Record) -> int:
    """Return the bytes of a record's values, without its clock and its quarantine."""
    total = 0
    for entry in record.clock:
        for version in entry.versions:
            total += len(version.value or b"")
    return total


class MemoryStorage:
    """Records in memory, for a node without a data directory. Satisfies `Storage`.

    A change counts as durable at once. All records are lost when the process ends.
    """

    failed = None
    busy_since = None
    refusal = ""
    scrub_bytes = 0
    scrubbed = None
    is_instant = True
    damaged_notes: Collection[bytes] = ()
    cut_number = 0

    def __init__(self, circle: Circle, incarnation: bytes) -> None:
        self._circle = circle
        self.damaged_keys: dict[bytes, None] = {}
        self.incarnation = incarnation
        self._records: dict[bytes, Record] = {}
        self._places: SortedList[Place] = SortedList()
        self._digests: dict[bytes, bytes] = {}  # by key; kept, because replicas ask for them again and again
        self._key_epoch = 0
        self._minted: dict[bytes, bytes] = {}
        self._notes: dict[bytes, bytes] = {}
        # Quarantined versions, for records that have any; None before the first, because it takes two kilobytes.
        self._hidden: SortedDict[Place, int] | None = None
        self.digests = Digests(self._circle)
        self.value_bytes = self.sibling_keys = 0
        self.counters: dict[str, int] = {}
        self.commit_times = Histogram()

    async def open(self) -> None:
        """Do nothing. Does not checkpoint."""

    async def close(self) -> None:
        """Do nothing. Does not checkpoint."""

    def is_durable(self, key: bytes) -> bool:
        """Return True: every visible record is durable."""
        return True

    def durable(self, key: bytes) -> Record | None:
        """Return the record of a key, or None."""
        return self.get(key)

    def durable_digest(self, key: bytes) -> bytes:
        """Return the digest of a key's record; empty without a record."""
        return self._digests.get(key, b"")

    def is_damaged(self, key: bytes) -> bool:
        """Return whether a key's record was found damaged and has not been replaced."""
        return key in self.damaged_keys and self.get(key) is None

    @property
    def bad_records(self) -> int:
        """How many records were found damaged."""
        return len(self.damaged_keys)

    def damaged(self, arc: Arc) -> list[Point]:
        """Return the points of damaged records in an arc that have not been replaced."""
        points = [self._circle.hash(key) for key in self.damaged_keys if self.is_damaged(key)]
        return [point for point in points if point in arc]

    def scrub(self, bytes_max: int) -> tuple[int, bool]:
        """Check nothing, because records in memory do not decay."""
        return 0, True

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest of each record in an arc, in the order of `scan`."""
        for _, key in self._places_in(arc, after, self._places):
            yield key, self._digests[key]

    def get(self, key: bytes) -> Record | None:
        """Return the record of a key, or None."""
        return self._records.get(key)

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store writes a key, or None.

        See `Storage.minted`.
        """
        return self._minted.get(key)

    def can_lend(self, key: bytes) -> bool:
        """Return whether the record of a key is not damaged: no crash can make this store forget its actors alone."""
        return key not in self.damaged_keys

    def lend_actor(self, key: bytes, record: Record) -> None:
        """Forget the actor of a key. So it is given up unless a batch names it again."""
        self._minted.pop(key, None)

    def give_up_actor(self, key: bytes) -> None:
        """Do nothing: the store has forgotten the actor."""

    def note(self, name: bytes) -> bytes | None:
        """Return the value of a note, or None; see `Storage.note`."""
        return self._notes.get(name)

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all notes by name."""
        return self._notes

    durable_note = note

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise, after the key `after` or from its start."""
        for _, key in self._places_in(arc, after, self._places):
            yield self._records[key]

    def quarantined(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc with quarantined (hidden) versions.

        The order is that of `scan`.
        """
        for _, key in self._places_in(arc, after, self._hidden):
            yield self._records[key]

    def count_quarantined(self, arc: Arc) -> int:
        """Return the number of quarantined versions in an arc."""
        hidden = self._hidden
        return sum(hidden[place] for place in self._places_in(arc, None, hidden)) if hidden else 0

    def _places_in(
        self, arc: Arc, after: bytes | None, of: SortedList[Place] | SortedDict[Place, int] | None
    ) -> Iterator[Place]:
        """Yield the places (point and key) in `of` that lie in an arc, clockwise.

        They begin after the key `after`; None: at the start of the arc.
        """
        if not of:
            return
        first = None if after is None else (self._circle.hash(after), after)
        for low, high in arc.spans():
            start: tuple[int, bytes] = (low, b"")
            if first is not None:
                if not low <= first[0] <= (self._circle.size if high is None else high):
                    continue
                start, inclusive, first = first, False, None
            else:
                inclusive = True
            stop = (self._circle.size if high is None else high + 1, b"")
            yield from of.irange(start, stop, inclusive=(inclusive, False))

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""
        total = 0
        for low, high in arc.spans():
            stop = (self._circle.size if high is None else high + 1, b"")
            total += self._places.bisect_left(stop) - self._places.bisect_left((low, b""))
        return total

    def stage(self, batch: Batch) -> bool:
        """Apply the batch, and return True: it is durable."""
        self.apply(batch)
        return True

    def when_durable(self, callback: Callable[[ChordError | None], None]) -> None:
        """Call back at once, without an error."""
        callback(None)

    async def try_again(self) -> None:
        """Do nothing, because memory refuses no write. Does not checkpoint."""

    async def commit(self, batch: Batch) -> None:
        """Apply the batch. Does not checkpoint."""
        self.apply(batch)

    def apply(self, batch: Batch) -> None:
        """Make all changes of the batch: puts, then removals, then notes."""
        for record in batch.puts:
            self._put(record)
        self._minted.update(batch.minted)
        for key in batch.removals:
            self._remove(key)
            self._minted.pop(key, None)
        for name, value in batch.notes.items():
            if value is None:
                self._notes.pop(name, None)
            else:
                self._notes[name] = value

    def note_cut_number(self, number: int) -> None:
        """Do nothing: no record outlives the process either."""

    def cut(self, number: int) -> MemoryCut:
        """Return the records of this moment: a copy of the list of records, which never change."""
        places = list(self._places)
        return MemoryCut(self._circle, places, [self._records[key] for _, key in places], dict(self._notes))

    def next_key_epoch(self) -> int:
        """Return a number that this store has never returned before, for a new actor."""
        self._key_epoch += 1
        return self._key_epoch

    def __len__(self) -> int:
        return len(self._records)

    def _put(self, record: Record) -> None:
        point = self._circle.hash(record.key)
        old = self._records.get(record.key)
        self._records[record.key] = record
        if old is None:
            self._places.add((point, record.key))
        digest = digest_of(record)
        self.digests.change(point, self._digests.get(record.key), digest)
        self._digests[record.key] = digest
        self._count(record, 1)
        if old is not None:
            self._count(old, -1)
        self._note_hidden((point, record.key), record)

    def _remove(self, key: bytes) -> None:
        old = self._records.pop(key, None)
        if old is not None:
            point = self._circle.hash(key)
            self._places.remove((point, key))
            self.digests.change(point, self._digests.pop(key), None)
            self._count(old, -1)
            self._note_hidden((point, key), None)

    def _note_hidden(self, place: Place, record: Record | None) -> None:
        if record is not None and record.quarantine:
            self._hidden = SortedDict() if self._hidden is None else self._hidden
            self._hidden[place] = quarantine.count(record)
        elif self._hidden:
            self._hidden.pop(place, None)

    def _count(self, record: Record, sign: int) -> None:
        self.value_bytes += sign * bytes_of_values(record)
        self.sibling_keys += sign * (sum(len(entry.versions) for entry in record.clock) > 1)

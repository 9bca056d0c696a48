"""The seam to durability: records ordered by (ring id, key).

`MemoryStorage` is the form for nodes without a data directory and for simulations; `store/sqlite.py` has the other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import trio
from sortedcontainers import SortedDict, SortedList

from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.store import quarantine
from chord.store.merkle import Digests, digest_of
from chord.wire.messages import Record

SCRUB_NOTE: Final = b"\0scrub"
"""The note that says how far the scrub has come: a restart goes on there. No other name begins with a zero."""


class Batch:
    """Changes that are made together: records to store and keys to remove.

    `minted` names, for records this node coordinated the write of, the actor it used.
    `notes` holds the notes to store by name (see `Storage.note`); a value of None removes the note.
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

    @property
    def is_empty(self) -> bool:
        """Whether the batch changes nothing."""
        return not (self.puts or self.removals or self.notes)


class Storage(Protocol):
    """Records of one node, ordered by ring id, then key.

    What is visible here may not be durable yet: nobody else is to see it before it is (`durable`, `is_durable`, and a
    commit of nothing, which waits). Otherwise a crash could take back a dot that others remember, and it would be
    minted twice.

    Attributes:
        is_instant: whether whatever is visible is durable, always: then `stage` is as good as `commit`.
    """

    is_instant: bool

    @property
    def failed(self) -> trio.Event | None:
        """Set when the disk failed: nothing can be promised any more, and the node has to stop. None: it cannot."""

    @property
    def busy_since(self) -> float | None:
        """Since when the disk works at what it was given last, by the clock of the event loop; None: it does not."""

    async def open(self) -> None:
        """Make ready for use; nothing else may be asked before.

        Raises:
            ConfigError: what is there cannot be used, and why.
        """

    async def close(self) -> None:
        """Finish what is under way and let go of everything; nothing may be asked afterwards.

        Concurrency: checkpoints; not to be cancelled.
        """

    def is_damaged(self, key: bytes) -> bool:
        """Whether nothing is held of a key, and a record that was found damaged is or may be the key's.

        The damage may have changed the key. A record counts as replaced when a record of its key is stored again.
        """

    def scrub(self, bytes_max: int) -> tuple[int, bool]:
        """Read and check the next records, one at least and about so many bytes, and begin anew behind the last.

        Returns:
            The bytes read, and whether the last record was among them.
        """

    @property
    def scrub_bytes(self) -> int:
        """The bytes that `scrub` reads to check every record."""

    @property
    def scrubbed(self) -> bytes | None:
        """How far `scrub` has come, for its note; None: nowhere."""

    @property
    def bad_records(self) -> int:
        """How many records were found damaged; they count as missing."""

    def damaged(self, arc: Arc) -> list[Point]:
        """Return a point in the arc for each record that was found damaged, is not replaced, and may be of the arc."""

    @property
    def refusal(self) -> str:
        """Why the last change was refused (the disk is full, or can only be read); "" if it was not."""

    @property
    def counters(self) -> dict[str, int]:
        """Named totals since the opening, for those who watch the node."""

    @property
    def digests(self) -> Digests:
        """The tree of sums over all visible records, for anti-entropy."""

    @property
    def sibling_keys(self) -> int:
        """How many records hold more than one version."""

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest (`digest_of`) of each record, as `scan` would yield the records."""

    def is_durable(self, key: bytes) -> bool:
        """Whether what `get` returns for a key is durable."""

    def durable(self, key: bytes) -> Record | None:
        """Return the record of a key as no crash can take it back: what was acknowledged, if not what is visible."""

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes, made with the empty store; a wiped store has others."""

    def get(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None."""

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store minted a dot of a key it has held ever since, or None.

        It goes with the record: one that comes back by a merge may be older than what was minted here.
        """

    def note(self, name: bytes) -> bytes | None:
        """Return the note of a name, or None; it may not be durable yet.

        Notes are small values in memory. They change, and are taken back, with the records of their batch.
        """

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all notes by name, durable or not, to read."""

    def durable_note(self, name: bytes) -> bytes | None:
        """Return the note of a name as no crash can take it back."""

    @property
    def damaged_notes(self) -> Collection[bytes]:
        """The names of the notes that the opening found damaged, as they stand in the file; such a note is missing."""

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise from its start; with `after`, those behind that key.

        The iterator must be used up without an `await` in between: a change of the store invalidates it.
        """

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""

    def quarantined(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc that have a quarantine, as `scan` would yield them."""

    def count_quarantined(self, arc: Arc) -> int:
        """Return the number of versions in quarantine in an arc."""

    def stage(self, batch: Batch) -> bool:
        """Make all changes of the batch, or none of them: visible at once, and durable some time later.

        Returns:
            Whether everything visible is durable already. If not, an empty `commit` waits for it.
        Raises:
            WritesRefused: definite; nothing was changed.
            Overloaded: definite; too many bytes wait for the disk, and nothing was changed.
        """

    def when_durable(self, callback: Callable[[ChordError | None], None]) -> None:
        """Call back once when everything visible now is durable, or with the error that `commit` would raise.

        The callback may be called before this returns. It is never called if the store is closed first.
        """

    async def commit(self, batch: Batch) -> None:
        """Make all changes of the batch, or none of them: visible before it first waits, durable when it returns.

        An empty batch waits until everything visible is durable.

        Raises:
            WritesRefused: definite; nothing was changed.
            Overloaded: definite; too many bytes wait for the disk, and nothing was changed.
            RemoteFailure: indefinite; it is not known whether the changes are durable.
        """

    def next_key_epoch(self) -> int:
        """Return a number this store has never returned before (see `store/versions.py`, actors).

        Raises:
            WritesRefused: definite.
        """

    def __len__(self) -> int: ...

    @property
    def value_bytes(self) -> int:
        """Bytes of all stored values."""


def bytes_of_values(record: Record) -> int:
    """Return the bytes of a record's values, without its clock."""
    total = 0
    for entry in record.clock:
        for version in entry.versions:
            total += len(version.value or b"")
    return total


def has_siblings(record: Record) -> bool:
    """Return whether a record holds more than one version."""
    versions = 0
    for entry in record.clock:
        versions += len(entry.versions)
    return versions > 1


class MemoryStorage:
    """Records in memory; they are gone when the process is. Durable means applied."""

    failed = None
    busy_since = None
    refusal = ""
    scrub_bytes = 0
    scrubbed = None
    is_instant = True
    damaged_notes: Collection[bytes] = ()

    def __init__(self, circle: Circle, incarnation: bytes) -> None:
        self._circle = circle
        self.damaged_keys: dict[bytes, None] = {}
        self._incarnation = incarnation
        self._records: dict[bytes, Record] = {}
        self._places: SortedList[tuple[Point, bytes]] = SortedList()  # where each key lies on the circle, and the key
        self._digests: dict[bytes, bytes] = {}  # of every record, by key: replicas ask for them again and again
        self._value_bytes = 0
        self._key_epoch = 0
        self._minted: dict[bytes, bytes] = {}
        self._notes: dict[bytes, bytes] = {}
        self._hidden: SortedDict[tuple[Point, bytes], int] | None = None  # by place: how many versions in quarantine
        self.digests = Digests(self._circle)
        self.sibling_keys = 0

    async def open(self) -> None:
        """Nothing to make ready. Does not checkpoint."""

    async def close(self) -> None:
        """Nothing to let go of. Does not checkpoint."""

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes that name this store."""
        return self._incarnation

    def is_durable(self, key: bytes) -> bool:
        """Whether what `get` returns for a key is durable: it always is."""
        return True

    def durable(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None."""
        return self.get(key)

    def is_damaged(self, key: bytes) -> bool:
        """Whether what was held of a key was found damaged, and nothing has taken its place since."""
        return key in self.damaged_keys and self.get(key) is None

    @property
    def bad_records(self) -> int:
        """How many records were found damaged."""
        return len(self.damaged_keys)

    def damaged(self, arc: Arc) -> list[Point]:
        """Return the points of the records of an arc that are damaged, and nothing has taken their place since."""
        points = [self._circle.hash(key) for key in self.damaged_keys if self.is_damaged(key)]
        return [point for point in points if point in arc]

    def scrub(self, bytes_max: int) -> tuple[int, bool]:
        """Nothing rots in memory."""
        return 0, True

    def heads(self, arc: Arc, *, after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Yield key and digest of each record in an arc, as `scan` would yield the records."""
        for _, key in self._places_in(arc, after):
            yield key, self._digests[key]

    @property
    def value_bytes(self) -> int:
        """Bytes of all stored values."""
        return self._value_bytes

    def get(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None."""
        return self._records.get(key)

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store minted a dot of a key it has held ever since, or None."""
        return self._minted.get(key)

    def note(self, name: bytes) -> bytes | None:
        """Return the note of a name, or None."""
        return self._notes.get(name)

    def notes(self) -> Mapping[bytes, bytes]:
        """Return all notes by name."""
        return self._notes

    def durable_note(self, name: bytes) -> bytes | None:
        """Return the note of a name, or None."""
        return self._notes.get(name)

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise from its start; with `after`, those behind that key."""
        for _, key in self._places_in(arc, after):
            yield self._records[key]

    def quarantined(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc that have a quarantine, as `scan` would yield them."""
        for _, key in self._places_in(arc, after, self._hidden or ()):
            yield self._records[key]

    def count_quarantined(self, arc: Arc) -> int:
        """Return the number of versions in quarantine in an arc."""
        hidden = self._hidden or {}
        return sum(hidden[place] for place in self._places_in(arc, None, hidden))

    def _places_in(
        self, arc: Arc, after: bytes | None, of: Any = None
    ) -> Iterator[tuple[Point, bytes]]:
        """Yield the places in an arc, in order, of all records or of those in a sorted collection."""
        if of is not None and not of:
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
            yield from (self._places if of is None else of).irange(start, stop, inclusive=(inclusive, False))

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""
        total = 0
        for low, high in arc.spans():
            stop = (self._circle.size if high is None else high + 1, b"")
            total += self._places.bisect_left(stop) - self._places.bisect_left((low, b""))
        return total

    @property
    def counters(self) -> dict[str, int]:
        """Nothing that happens in memory is worth counting."""
        return {}

    def stage(self, batch: Batch) -> bool:
        """Apply the batch; that is all there is to it."""
        self.apply(batch)
        return True

    def when_durable(self, callback: Callable[[ChordError | None], None]) -> None:
        """Call back at once."""
        callback(None)

    async def commit(self, batch: Batch) -> None:
        """Apply the batch. Does not checkpoint."""
        self.apply(batch)

    def apply(self, batch: Batch) -> None:
        """Make all changes of the batch."""
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

    def next_key_epoch(self) -> int:
        """Return a number this store has never returned before."""
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

    def _note_hidden(self, place: tuple[Point, bytes], record: Record | None) -> None:
        """Keep the places of the records that have a quarantine: nearly always there is none."""
        if record is not None and record.quarantine:
            if self._hidden is None:
                self._hidden = SortedDict()
            self._hidden[place] = quarantine.count(record)
        elif self._hidden:
            self._hidden.pop(place, None)

    def _count(self, record: Record, sign: int) -> None:
        """Keep the totals of bytes and of keys with siblings."""
        self._value_bytes += sign * bytes_of_values(record)
        self.sibling_keys += sign * has_siblings(record)

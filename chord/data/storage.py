"""The seam to durability: records ordered by (ring id, key).

`MemoryStorage` is the form for nodes without a data directory and for simulations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from sortedcontainers import SortedDict

from chord.ids import Arc, Circle, Point
from chord.messages import Record


class Batch:
    """Changes that are made together: records to store and keys to remove.

    `minted` names, for records this node coordinated the write of, the actor it used.
    """

    def __init__(
        self, puts: Iterable[Record] = (), removals: Iterable[bytes] = (), minted: Mapping[bytes, bytes] | None = None
    ) -> None:
        self.puts = tuple(puts)
        self.removals = tuple(removals)
        self.minted = dict(minted or {})


class Storage(Protocol):
    """Records of one node, ordered by ring id, then key."""

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes, made with the empty store; a wiped store has others."""

    def get(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None."""

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store minted a dot of a key it has held ever since, or None.

        It goes with the record: one that comes back by a merge may be older than what was minted here.
        """

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise from its start; with `after`, those behind that key.

        The iterator must be used up without an `await` in between: a change of the store invalidates it.
        """

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""

    async def commit(self, batch: Batch) -> None:
        """Make all changes of the batch, or none of them: visible before it first waits, durable when it returns.

        An empty batch waits until everything visible is durable.

        Raises:
            WritesRefused: definite; nothing was changed.
            RemoteFailure: indefinite; it is not known whether the changes are durable.
        """

    def next_key_epoch(self) -> int:
        """Return a number this store has never returned before (see `data/versions.py`, actors).

        Raises:
            WritesRefused: definite.
        """

    def __len__(self) -> int: ...

    @property
    def value_bytes(self) -> int:
        """Bytes of all stored values."""


def record_bytes(record: Record) -> int:
    """Return the bytes of a record's values, without its clock."""
    return sum(len(v.value) for a in record.clock for v in a.versions if v.value is not None)


class MemoryStorage:
    """Records in memory; they are gone when the process is. Durable means applied."""

    def __init__(self, circle: Circle, incarnation: bytes) -> None:
        self._circle = circle
        self._incarnation = incarnation
        self._records: SortedDict[tuple[Point, bytes], Record] = SortedDict()
        self._value_bytes = 0
        self._key_epoch = 0
        self._minted: dict[bytes, bytes] = {}

    @property
    def incarnation(self) -> bytes:
        """Eight random bytes that name this store."""
        return self._incarnation

    @property
    def value_bytes(self) -> int:
        """Bytes of all stored values."""
        return self._value_bytes

    def get(self, key: bytes) -> Record | None:
        """Return the record stored under a key, or None."""
        record: Record | None = self._records.get((self._circle.hash(key), key))
        return record

    def minted(self, key: bytes) -> bytes | None:
        """Return the actor under which this store minted a dot of a key it has held ever since, or None."""
        return self._minted.get(key)

    def scan(self, arc: Arc, *, after: bytes | None = None) -> Iterator[Record]:
        """Yield the records of an arc clockwise from its start; with `after`, those behind that key."""
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
            for key in self._records.irange(start, stop, inclusive=(inclusive, False)):
                yield self._records[key]

    def count(self, arc: Arc) -> int:
        """Return the number of records in an arc."""
        total = 0
        for low, high in arc.spans():
            stop = (self._circle.size if high is None else high + 1, b"")
            total += self._records.bisect_left(stop) - self._records.bisect_left((low, b""))
        return total

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

    def next_key_epoch(self) -> int:
        """Return a number this store has never returned before."""
        self._key_epoch += 1
        return self._key_epoch

    def __len__(self) -> int:
        return len(self._records)

    def _put(self, record: Record) -> None:
        self._remove(record.key)
        self._records[self._circle.hash(record.key), record.key] = record
        self._value_bytes += record_bytes(record)

    def _remove(self, key: bytes) -> None:
        old = self._records.pop((self._circle.hash(key), key), None)
        if old is not None:
            self._value_bytes -= record_bytes(old)

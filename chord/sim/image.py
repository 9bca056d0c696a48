"""The database on a simulated disk: rows, named notes, changes of a transaction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sortedcontainers import SortedDict

from chord.store.database import RowPlace, StoredRow

ROW_BYTES: Final = 64
"""Approximate size of a row or a note on disk, besides its point, key and clock."""


class Image:
    """The readable content of one store's database.

    Attributes:
        bytes: approximate size on disk.
        key_epoch: the last key epoch that the store gave out; 0 before the first.
        rows: the stored rows by point and key, in this order.
        notes: by name, the small values that the store keeps beside its records, such as its reap logs.
        is_damaged: whether the opening finds the header damaged.
    """

    __slots__ = ("bits", "bytes", "incarnation", "is_damaged", "key_epoch", "notes", "rows")

    def __init__(self, bits: int, incarnation: bytes) -> None:
        self.bits = bits
        self.incarnation = incarnation
        self.key_epoch = 0
        self.rows: SortedDict[RowPlace, StoredRow] = SortedDict()
        self.notes: dict[bytes, bytes] = {}
        self.bytes = 0
        self.is_damaged = False

    def apply(self, change: ImageChange) -> ImageChange:
        """Make a change, and return the change that undoes it."""
        undo = ImageChange(
            {place: self.rows.get(place) for place in change.rows},
            {name: self.notes.get(name) for name in change.notes},
            self.key_epoch,
        )
        self.bytes += change.bytes - undo.bytes
        for place, row in change.rows.items():
            if row is None:
                self.rows.pop(place, None)
            else:
                self.rows[place] = row
        for name, value in change.notes.items():
            if value is None:
                self.notes.pop(name, None)
            else:
                self.notes[name] = value
        self.key_epoch = change.key_epoch
        return undo

    def replace(self, place: RowPlace, row: StoredRow) -> None:
        """Replace the row at a place (point and key) with a damaged version.

        The damage may be in the point or the key. Then the row moves to another place.
        """
        old = self.rows.pop(place)
        self.rows[row.point, row.key] = row
        self.bytes += size_of(row) - size_of(old)

    def copy(self) -> Image:
        """Return a copy; later changes of either image do not affect the other."""
        other = Image(self.bits, self.incarnation)
        other.rows, other.notes = self.rows.copy(), dict(self.notes)
        other.key_epoch, other.bytes, other.is_damaged = self.key_epoch, self.bytes, self.is_damaged
        return other


class ImageChange:
    """The changes that one transaction makes to the database.

    Attributes:
        rows: by point and key, the new row; None: remove the row.
        notes: by name, the new content of a note, a small value beside the records; None: remove the note.
        key_epoch: the key epoch after the transaction, even if it is the same as before.
    """

    __slots__ = ("key_epoch", "notes", "rows")

    def __init__(
        self, rows: Mapping[RowPlace, StoredRow | None], notes: Mapping[bytes, bytes | None], key_epoch: int
    ) -> None:
        self.rows = dict(rows)
        self.notes = dict(notes)
        self.key_epoch = key_epoch

    @property
    def bytes(self) -> int:
        """Approximate size of the new rows and notes on disk; removals count nothing."""
        notes = [len(name) + len(value) for name, value in self.notes.items() if value is not None]
        return sum(size_of(row) for row in self.rows.values() if row is not None) + sum(notes) + ROW_BYTES * len(notes)

    @property
    def log_bytes(self) -> int:
        """Size of the change in the write-ahead log, in bytes."""
        return self.bytes + ROW_BYTES * (len(self.rows) + len(self.notes))


def size_of(row: StoredRow) -> int:
    """Return the approximate size of a row on disk, in bytes.

    A damaged column may have any type.
    """
    return ROW_BYTES + sum(len(part) for part in (row.point, row.key, row.clock) if isinstance(part, bytes))

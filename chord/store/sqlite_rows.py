"""The visible rows of a database: the rows of its file, with later changes on top.

A change is kept in memory until it is durable or rolled back.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import msgspec
from sortedcontainers import SortedDict

from chord.errors import ChordError
from chord.ids import Arc, Circle, Point
from chord.store.database import (
    HEAD_OF_ROW,
    WHOLE_ROW,
    Database,
    RowPlace,
    StoredRow,
    StoreSummary,
    is_digest,
    place_of,
)

RECENT_ROWS = 256
LARGE_BITS = 64  # with this many bits or more, no two keys share a point
SCRUB_ROW_BYTES = 128
"""Approximate number of bytes that the scrub reads for a row, beside its values."""


class RowChange(msgspec.Struct, eq=False):
    """A change of one row that is not durable yet.

    Attributes:
        before: the durable row; None if there is no durable row, or only a damaged one.
        was_bad: whether the durable row counted as damaged.
        row: the visible row; None: the row was removed.
    """

    before: StoredRow | None
    was_bad: bool
    row: StoredRow | None


class Rows:
    """The visible rows of one store: the rows of its file, and later changes.

    Args:
        circle: of the ring.
        file: the database.
        unreadable: called with the error of a failed read; returns the error to raise.

    Attributes:
        place: a function that returns the place (primary key) of a key's record; see `RowPlace`.
        changes: the changes that are not durable, by place.
        scrubbed: the place of the last row that the scrub has read; None: the scrub begins with the first row.
        scrubs: how often the scrub has read all rows.
        scrubbed_rows: how many rows the scrub has read in all.
        bad_records: how many records were found damaged since the opening. They count as missing.
        summary: the totals of all visible rows.
    """

    def __init__(self, circle: Circle, file: Database, unreadable: Callable[[sqlite3.Error], ChordError]) -> None:
        self._circle = circle
        self.place = functools.partial(place_of, circle)
        self._file = file
        self._unreadable = unreadable
        self._recent: dict[RowPlace, StoredRow | None] = {}
        self._replaced: set[RowPlace] = set()  # damaged rows with records that other rows hold
        self.changes: SortedDict[RowPlace, RowChange] = SortedDict()
        self.scrubbed: RowPlace | None = None
        self.scrubs = self.scrubbed_rows = 0
        self.bad_records = 0
        self.summary: StoreSummary = file.summary

    def opened(self) -> None:
        """Take over the totals and the damaged rows of the file, which was just opened, and clear the cache."""
        self.summary = self._file.summary
        self._recent.clear()
        self.bad_records += len(self.summary.bad)
        for bad in self.summary.bad:
            self._note_if_replaced(bad)

    # -- reading --------------------------------------------------------------------------------

    def row(self, place: RowPlace) -> StoredRow | None:
        """Return the visible row with this primary key; None if missing or damaged.

        The row may not be durable yet. A row that this call finds damaged is counted in `bad_records`.
        """
        change: RowChange | None = self.changes.get(place)
        if change is not None:
            return change.row
        if place in self._recent:
            return self._recent[place]
        row = self._in_file(place)
        if row is None or place in self.summary.bad:
            self._remember(place, None)
            return None
        if not row.is_whole:
            self.count_bad(row)
            return None
        self._remember(place, row)
        return row

    def _in_file(self, place: RowPlace) -> StoredRow | None:
        try:
            return self._file.row(place)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _all_at(self, point: bytes) -> list[StoredRow]:
        try:
            return [StoredRow._make(found) for found in self._file.rows(WHOLE_ROW, (point, b""), point)]
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def durable(self, place: RowPlace) -> StoredRow | None:
        """Return the durable row with this primary key; None if missing or damaged.

        Later changes, which a crash may undo, are ignored.
        """
        change: RowChange | None = self.changes.get(place)
        return self.row(place) if change is None else change.before

    def _remember(self, place: RowPlace, row: StoredRow | None) -> None:
        """Cache the row of a place; None: the file has no whole row there.

        A caller that reads a record often changes it next, and may change it again soon.
        """
        self._recent[place] = row
        while len(self._recent) > RECENT_ROWS:
            del self._recent[next(iter(self._recent))]

    def rows(self, columns: str, arc: Arc, after: bytes | None) -> Iterator[tuple[Any, ...]]:
        """Yield columns of an arc's visible rows, after the key `after` or from its start.

        `columns` is `WHOLE_ROW` or `HEAD_OF_ROW`. The first three columns are always point, key and digest.
        """
        for start, last in self._ranges(arc, after):
            yield from self._merged(columns, start, last)

    def quarantined(self, arc: Arc, after: bytes | None) -> Iterator[tuple[RowPlace, int]]:
        """Yield the place of each row of an arc with quarantined versions.

        Each place comes with the number of these versions. `after` is the key after which to begin; None: at the start
        of the arc.
        """
        hidden = self.summary.hidden
        for start, last in self._ranges(arc, after) if hidden else ():
            for place in hidden.irange(start, (last + b"\0", b""), inclusive=(False, False)):
                yield place, hidden[place]

    def _ranges(self, arc: Arc, after: bytes | None) -> Iterator[tuple[RowPlace, bytes]]:
        """Yield an arc as ranges of rows: the place before the first row, the last point.

        If `after` is a key, the ranges begin behind its place. None: they begin with the arc.
        """
        behind, width = None if after is None else self.place(after), self._circle.width
        for low, high in arc.spans():
            if low == self._circle.size:  # the arc starts at the largest point
                continue
            start = (low.to_bytes(width, "big"), b"")
            last = (self._circle.size - 1 if high is None else high).to_bytes(width, "big")
            if behind is not None:
                if not start[0] <= behind[0] <= last:
                    continue
                start, behind = behind, None
            yield start, last

    def _merged(self, columns: str, start: RowPlace, last: bytes) -> Iterator[tuple[Any, ...]]:
        changed: list[RowPlace] = list(self.changes.irange(start, (last + b"\0", b""), inclusive=(False, False)))
        changed.reverse()  # so that `pop` takes the next one
        try:
            with closing(self._file.rows(columns, start, last)) as found:
                for row in found:
                    place = (row[0], row[1])
                    if type(row[0]) is not bytes or type(row[1]) is not bytes:
                        self._lose(place)
                        continue
                    while changed and changed[-1] < place:
                        yield from self._changed(changed.pop())
                    if changed and changed[-1] == place:
                        yield from self._changed(changed.pop())
                    elif place not in self.summary.bad:
                        yield row
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        while changed:
            yield from self._changed(changed.pop())

    def _changed(self, place: RowPlace) -> Iterator[StoredRow]:
        row = self.changes[place].row
        if row is not None:
            yield row

    def count_bad(self, row: StoredRow) -> None:
        """Count a row as damaged. From now on, its record counts as missing."""
        place = (row.point, row.key)
        if place not in self.summary.bad:
            self.summary.lose(row)
            self._lose(place)

    # -- damaged rows ---------------------------------------------------------------------------

    @property
    def lost(self) -> set[RowPlace]:
        """The places of damaged rows with records that no other row holds."""
        return self.summary.bad - self._replaced

    def is_damaged(self, key: bytes) -> bool:
        """Return whether the record of a key may have been lost to damage on the disk.

        It may if the key has no row, and a damaged row may have been its row.
        """
        place = self.place(key)
        if self.row(place) is not None:
            return False
        point = int.from_bytes(place[0], "big")
        return any(point in (self.points_of(bad) or (point,)) for bad in self.lost)

    def points_of(self, bad: tuple[Any, Any]) -> tuple[Point, ...]:
        """Return the points at which the record of a damaged row may lie; empty: anywhere.

        If the row's point is on the circle, either this point or the row's key is taken to be right. If the rows are
        out of order, a search may miss any row. Then the result is empty, unless point and key agree.

        Args:
            bad: the point and the key of the damaged row, with any type.
        """
        point, key = bad
        number = int.from_bytes(point, "big") if isinstance(point, bytes) else -1
        if not 0 <= number < self._circle.size or len(point) != self._circle.width:
            return ()
        points = (Point(number), self._circle.hash(key) if isinstance(key, bytes) else Point(number))
        is_sure = isinstance(key, bytes) and points[0] == points[1]
        return points if is_sure or self.summary.is_ordered else ()

    def replaced_by(self, new: StoredRow) -> set[RowPlace]:
        """Return the damaged rows that can be removed when the row `new` is stored.

        They are the damaged rows of the same key at other places, and all damaged rows with records that other rows
        already hold.
        """
        return {bad for bad in self.summary.bad if bad in self._replaced or self._is_of_key(bad, new)}

    def _is_of_key(self, bad: tuple[Any, Any], row: StoredRow) -> bool:
        """Return whether a damaged row was of the same key as a row at another place.

        On a large circle a point stands for one key. On a small circle the checksum decides: it matches with the right
        key and point. If rows are out of order, the result is False, because a damaged row may hide any other row.
        """
        is_alike = bad[0] == row.point or bad[1] == row.key
        if not is_alike or bad == (row.point, row.key) or not all(isinstance(column, bytes) for column in bad):
            return False
        if not self.summary.is_ordered:
            return False
        if bad[0] == row.point and self._circle.bits >= LARGE_BITS:
            return True
        old = self._in_file(bad)
        return old is not None and old._replace(point=row.point, key=row.key).is_whole

    def _note_if_replaced(self, bad: tuple[Any, Any]) -> None:
        """Note whether another row holds the record of a newly found damaged row."""
        if all(isinstance(column, bytes) for column in bad):
            rows = (*self._all_at(bad[0]), self._in_file(self.place(bad[1])))
            if any(row is not None and row.is_whole and self._is_of_key(bad, row) for row in rows):
                self._replaced.add(bad)

    # -- the scrub ------------------------------------------------------------------------------

    def scrub(self, bytes_max: int) -> tuple[int, bool]:
        """Read and check the next rows of the file; see `Storage.scrub`."""
        total = 0
        try:
            with closing(self._file.rows_behind(self.scrubbed)) as found:
                for columns in found:
                    row = StoredRow._make(columns)
                    place, is_whole = (row.point, row.key), row.is_whole
                    if not is_whole and place not in self.changes:
                        self.count_bad(row)
                    total += SCRUB_ROW_BYTES + (row.value_bytes if is_whole else 0)
                    self.scrubbed_rows += 1
                    if isinstance(row.point, bytes) and isinstance(row.key, bytes):
                        self.scrubbed = place
                        if total >= bytes_max:
                            return total, False
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        self.scrubbed = None
        self.scrubs += 1
        return total, True

    @property
    def scrub_bytes(self) -> int:
        """How many bytes `scrub` reads to check every row."""
        return self.summary.value_bytes + SCRUB_ROW_BYTES * (self.summary.keys + len(self.summary.bad))

    def _lose(self, place: tuple[Any, Any]) -> None:
        """Count a row as damaged, once, and recount the slices that it may have been in.

        A slice is a leaf of the Merkle tree. The damage may have changed the row's point, key or digest, or the type of
        any of them.
        """
        if not self._mark_bad(place):
            return
        point, key = place
        points = [point, self.place(key)[0] if isinstance(key, bytes) else None]
        for one in dict.fromkeys(points):
            if isinstance(one, bytes) and len(one) == self._circle.width:
                number = int.from_bytes(one, "big")
                if number < self._circle.size:
                    self._recount(number)

    def _mark_bad(self, place: tuple[Any, Any]) -> bool:
        """Count a row as damaged, and return whether it was not counted before."""
        if place in self.summary.bad:
            return False
        self._recent.pop(place, None)
        self.bad_records += 1
        self.summary.bad.add(place)
        self._note_if_replaced(place)
        with suppress(TypeError):  # a column has the wrong type
            self.summary.hidden.pop(place, None)
        return True

    def _recount(self, point: int) -> None:
        part, first, last = self.summary.digests.slice_of(point)
        arc = Arc(self._circle.point(first - 1), self._circle.point(last))
        records = sum_ = 0
        for at, key, digest, *_ in self.rows(HEAD_OF_ROW, arc, None):
            if is_digest(digest):
                records, sum_ = records + 1, sum_ + int.from_bytes(digest, "big")
            else:
                self._mark_bad((at, key))
        self.summary.recount(part, records, sum_)

    # -- changing -------------------------------------------------------------------------------

    def change(self, place: RowPlace, old: StoredRow | None, new: StoredRow | None) -> None:
        """Make another row visible at a place (primary key), before it is durable.

        `old` is the row that was visible there. None means no row.
        """
        change = self.changes.get(place)
        if change is None:
            self.changes[place] = RowChange(old, place in self.summary.bad, new)
            self.summary.bad.discard(place)
        else:
            change.row = new
        self._recent.pop(place, None)
        self.summary.change(place[0], old, new)

    def settle(self, place: RowPlace, row: StoredRow | None, *, is_changed_again: bool) -> None:
        """Count a changed row as durable, because its transaction is committed.

        Args:
            place: the primary key of the row.
            row: the row; None: the row was removed.
            is_changed_again: whether a later change of the same row waits for the disk.
        """
        if is_changed_again:
            change = self.changes[place]
            change.before, change.was_bad = row, False
        else:
            del self.changes[place]
            self._remember(place, row)  # the next write of the key needs no look into the file

    def take_back(self) -> None:
        """Roll back every change that is not durable."""
        for place, change in self.changes.items():
            self.summary.change(place[0], change.row, change.before)
            if change.was_bad:
                self.summary.bad.add(place)
        self.changes.clear()

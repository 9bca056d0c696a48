"""A summed Merkle tree over the circle, to find where two replicas differ.

A write costs O(1). The circle is cut into 64 groups of 64 slices, always at the same points: slice = floor(point * 4096
/ 2^m). Each part keeps the number of its records, and the sum, modulo 2^128, of the digests of their clocks. A write
subtracts the old digest and adds the new one along one path. A change of membership affects only *which* parts two
nodes compare. If an arc's boundary cuts a slice, the records in the arc are added up once, and the sum is remembered
until the slice changes.

Source: Merkle trees as in Dynamo (SOSP 2007, section 4.7). Sums in place of hashes of hashes follow Bellare and
Micciancio 1997 (AdHash).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from chord.ids import Arc, Circle, Point
from chord.wire.messages import DIGEST_BYTES, Record

VERSION_BYTES = 4  # of a record's digest, shown in traces and inspections

FAN_OUT = 64
LEVELS = 3  # of 1, 64 and 4096 parts
SLICE_LEVEL = LEVELS - 1
SLICES = FAN_OUT**SLICE_LEVEL
REMEMBERED_MAX = 256

_MODULUS = 1 << 8 * DIGEST_BYTES

Span: TypeAlias = tuple[int, int]
"""The first and last point of a range that does not wrap around at 0.

The range is empty if the last point is smaller.
"""

ReadHeads: TypeAlias = Callable[[Arc], Iterable[tuple[bytes, bytes]]]
"""Reads a store: returns the key and digest of each record in an arc, as `Storage.heads` does."""


class Total(NamedTuple):
    """The number of some records, and the sum of their digests modulo 2^128."""

    records: int
    sum: int

    def plus(self, records: int, sum_: int) -> Total:
        """Return the total with further records: their number, and the sum of their digests."""
        return Total(self.records + records, (self.sum + sum_) % _MODULUS)


class Piece(NamedTuple):
    """The intersection of an arc with one part of a level of the Merkle tree.

    Attributes:
        part: the number of the part. Level 0 is the whole circle, level 1 has 64 parts, level 2 the 4,096 slices.
        arc: the intersection.
        records: the number of the store's records in it.
    """

    part: int
    arc: Arc
    records: int


NOTHING = Total(0, 0)


@functools.cache
def _starts(circle: Circle, level: int) -> tuple[int, ...]:
    """Return the first point of each part of a level, then the size of the circle.

    The levels 0, 1 and 2 cut the circle into 1, 64 and 4,096 equal parts.
    """
    cuts = FAN_OUT**level
    return tuple(-(-(part << circle.bits) // cuts) for part in range(cuts + 1))


def digest_of(record: Record) -> bytes:
    """Return the digest by which replicas compare their copies of a record: 16 bytes.

    It covers the key, the clock without values, the replaced operations and the quarantine. Copies with equal digests
    are equal.
    """
    state = blake2b(digest_size=DIGEST_BYTES, key=b"chord clock")
    state.update(len(record.key).to_bytes(2, "big") + record.key)
    for entry in record.clock:
        state.update(entry.actor + entry.count.to_bytes(8, "big") + len(entry.versions).to_bytes(2, "big"))
    state.update(record.replaced)
    for entry in record.quarantine:
        state.update(b"?" + entry.actor + entry.count.to_bytes(8, "big") + len(entry.versions).to_bytes(2, "big"))
    return state.digest()


def _empty_levels() -> tuple[dict[int, Total], ...]:
    return tuple({} for _ in range(LEVELS))


_EMPTY: Final = _empty_levels()
"""The levels of the tree of an empty store, as one object for all stores that never had a record."""


class Digests:
    """The summed Merkle tree over the records of one store, which reports every change to it.

    Several methods have a parameter `heads`. It returns the key and digest of each record in an arc, as `Storage.heads`
    does. The tree calls it only for a slice that an arc cuts, and only if the slice has changed.

    Concurrency: synchronous.
    """

    __slots__ = ("_circle", "_parts", "_remembered")

    def __init__(self, circle: Circle) -> None:
        self._circle = circle
        self._parts = _EMPTY  # only parts with records
        self._remembered: dict[Span, tuple[Total, Total]] = {}  # by span: the slice's total then, the span's own

    def change(self, point: int, old: bytes | None, new: bytes | None) -> None:
        """Update the tree after a record was stored, replaced or removed.

        Args:
            point: the point of the record's key.
            old: the digest of the record before; None if there was no record.
            new: the digest of the record now; None if it was removed.
        """
        records = (new is not None) - (old is not None)
        sum_ = int.from_bytes(new or b"", "big") - int.from_bytes(old or b"", "big")
        self.add(point * SLICES >> self._circle.bits, records, sum_)

    def add(self, part: int, records: int, sum_: int) -> None:
        """Change the totals of a slice (a leaf of the tree) and its ancestors.

        Args:
            part: the number of the slice.
            records: added to the number of records; negative if records were removed.
            sum_: added to the sum of their digests, modulo 2^128; may be negative.
        """
        if self._parts is _EMPTY:
            self._parts = _empty_levels()
        for totals in reversed(self._parts):
            held, known = totals.get(part, NOTHING)
            if held + records:
                totals[part] = Total(held + records, (known + sum_) % _MODULUS)
            else:
                totals.pop(part, None)
            part //= FAN_OUT

    def correct(self, part: int, records: int, sum_: int) -> int:
        """Set the number of records and the digest sum of a slice; return the increase of the number.

        Args:
            part: the number of the slice, a leaf of the tree.
            records: the number of its records.
            sum_: the sum of their digests.
        """
        held, known = self._parts[SLICE_LEVEL].get(part, NOTHING)
        if (held, known) != (records, sum_ % _MODULUS):
            self.add(part, records - held, sum_ - known)
        return records - held

    # -- questions ------------------------------------------------------------------------------

    def sum(self, arc: Arc, level: int, part: int, heads: ReadHeads) -> bytes:
        """Return the digest sum of the records in the intersection of an arc and a part.

        The sum is encoded as in messages: 16 bytes, big-endian.

        Args:
            arc: the arc.
            level: the level of the part in the tree, 0 to 2.
            part: the number of the part within the level.
            heads: returns the key and digest of each record in an arc; called for a slice that the arc cuts.
        """
        return self._total(self._spans(arc), level, part, heads).sum.to_bytes(DIGEST_BYTES, "big")

    def count(self, arc: Arc, heads: ReadHeads) -> int:
        """Return the number of records in an arc.

        `heads` returns the key and digest of each record in an arc. It is called only for slices that the arc cuts, and
        only if they have changed since their last call.
        """
        return self._total(self._spans(arc), 0, 0, heads).records

    def part_of(self, point: int, level: int) -> int:
        """Return the number, from 0, of the part that contains a point on a level of the tree, 0 to 2."""
        part: int = point * FAN_OUT**level >> self._circle.bits
        return part

    def arc_of(self, part: int) -> Arc:
        """Return the arc that the slice with the number `part` covers: one of 4,096 equal parts of the circle."""
        starts = _starts(self._circle, SLICE_LEVEL)
        return Arc(self._circle.point(starts[part] - 1), self._circle.point(starts[part + 1] - 1))

    def slices_of(self, arc: Arc, among: Collection[int]) -> list[int]:
        """Return the numbers in `among` of slices that overlap an arc, wholly or in part, in ascending order."""
        spans = [(low, high) for low, high in self._spans(arc) if low <= high]
        bounds = [(self.part_of(low, SLICE_LEVEL), self.part_of(high, SLICE_LEVEL)) for low, high in spans]
        return sorted({part for first, last in bounds for part in among if first <= part <= last})

    def first_in(self, arc: Arc, slices: Iterable[int]) -> Point | None:
        """Return the first point of an arc, clockwise, that lies in one of these slices, given by their numbers.

        None means that the arc overlaps none of them.
        """
        first, starts = self._circle.point(arc.start + 1), _starts(self._circle, SLICE_LEVEL)
        points = [max(first, starts[part]) if first < starts[part + 1] else starts[part] for part in slices]
        inside = [self._circle.point(point) for point in points if self._circle.point(point) in arc]
        return min(inside, key=lambda point: self._circle.distance(first, point), default=None)

    def slice_of(self, point: int) -> tuple[int, int, int]:
        """Return the slice that contains a point: its number, first and last point."""
        part, starts = self.part_of(point, SLICE_LEVEL), _starts(self._circle, SLICE_LEVEL)
        return part, starts[part], starts[part + 1] - 1

    def pieces(self, arc: Arc, level: int, heads: ReadHeads) -> Iterator[Piece]:
        """Yield the intersection of an arc with each part of a level, clockwise.

        Parts outside the arc are skipped. An arc that goes around the circle and ends in the part that it began in
        yields that part twice.

        Args:
            arc: the arc.
            level: the level of the tree, 0 to 2.
            heads: returns the key and digest of each record in an arc; called for a slice that the arc cuts.
        """
        starts = _starts(self._circle, level)
        start, left = arc.start, self._circle.length(arc.start, arc.end)
        while left:
            first = self._circle.point(start + 1)
            part = self.part_of(first, level)
            length = min(left, starts[part + 1] - first)
            piece = self._piece(level, part, first, length, heads)
            yield piece
            start, left = piece.arc.end, left - length

    def held(self, arc: Arc, heads: ReadHeads) -> Iterator[Piece]:
        """Yield the intersections of an arc with slices that hold records of the store, clockwise.

        They are the `pieces` of level 2 that have records. They are found without a look at the slices without records,
        which are most of the 4,096. `heads` returns the key and digest of each record in an arc.
        """
        starts, slices = _starts(self._circle, SLICE_LEVEL), self._parts[SLICE_LEVEL]
        for piece in self.pieces(arc, 1, heads):
            low, high = self._circle.point(piece.arc.start + 1), piece.arc.end
            for part in range(self.part_of(low, SLICE_LEVEL), self.part_of(high, SLICE_LEVEL) + 1):
                if part in slices:
                    first, last = max(low, starts[part]), min(high, starts[part + 1] - 1)
                    found = self._piece(SLICE_LEVEL, part, first, last - first + 1, heads)
                    if found.records:
                        yield found

    def stretches(self, arc: Arc, records_max: int, heads: ReadHeads, level: int = 1) -> Iterator[Arc]:
        """Cut an arc into smaller arcs of at most `records_max` records, clockwise.

        Together they cover every record in the arc. A smaller arc with more records lies within one slice. The store
        must not change during the iteration.

        Args:
            arc: the arc.
            records_max: the largest number of records in a smaller arc.
            heads: returns the key and digest of each record in an arc; called for a slice that the arc cuts.
            level: the level of the tree at which the cutting begins, 1 or 2.
        """
        if not self._parts[0]:
            return  # the store is empty: no need to look at each part
        for piece, records in joined(self.pieces(arc, level, heads), records_max):
            if records > records_max and level < SLICE_LEVEL:
                yield from self.stretches(piece, records_max, heads, level + 1)
            elif records:
                yield piece

    # -- inside ---------------------------------------------------------------------------------

    def _spans(self, arc: Arc) -> list[Span]:
        top = self._circle.size - 1
        return [(low, top if high is None else high) for low, high in arc.spans()]

    def _piece(self, level: int, part: int, first: int, length: int, heads: ReadHeads) -> Piece:
        """Return the piece of `length` points from `first` on, all in one part."""
        starts = _starts(self._circle, level)
        arc = Arc(self._circle.point(first - 1), self._circle.point(first + length - 1))
        total = self._parts[level].get(part, NOTHING)
        if total.records and length < starts[part + 1] - starts[part]:
            total = self._total(self._spans(arc), level, part, heads)
        return Piece(part, arc, total.records)

    def _total(self, spans: list[Span], level: int, part: int, heads: ReadHeads) -> Total:
        """Return the number and digest sum of a part's records that lie in some spans."""
        whole = self._parts[level].get(part, NOTHING)
        if not whole.records:
            return NOTHING
        starts = _starts(self._circle, level)
        first, last = starts[part], starts[part + 1] - 1
        inside = [(max(low, first), min(high, last)) for low, high in spans if low <= last and high >= first]
        if inside == [(first, last)]:
            return whole
        total = NOTHING
        if level == SLICE_LEVEL:
            for span in inside:
                total = total.plus(*self._cut(span, whole, heads))
            return total
        within = self._parts[level + 1]
        for span in inside:
            first_child, last_child = self.part_of(span[0], level + 1), self.part_of(span[1], level + 1)
            for child in range(first_child, last_child + 1):
                if child not in within:
                    continue
                is_cut = child in (first_child, last_child)
                total = total.plus(*(self._total([span], level + 1, child, heads) if is_cut else within[child]))
        return total

    def _cut(self, span: Span, whole: Total, heads: ReadHeads) -> Total:
        """Return the number and digest sum of a slice's records that lie in a span.

        The result is cached by span. It is valid while the total of the slice, `whole`, is the same.
        """
        of_slice, total = self._remembered.pop(span, (None, NOTHING))
        if of_slice != whole:
            total = NOTHING
            for _, digest in heads(Arc(self._circle.point(span[0] - 1), self._circle.point(span[1]))):
                total = total.plus(1, int.from_bytes(digest, "big"))
        self._remembered[span] = whole, total  # now the most recently used
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return total


def joined(
    pieces: Iterable[Piece], records_max: int, is_wanted: Callable[[Piece], bool] = lambda piece: True
) -> Iterator[tuple[Arc, int]]:
    """Join wanted pieces to larger arcs; yield each with its number of records.

    The arc and the number include the unwanted pieces between wanted pieces.

    Args:
        pieces: the pieces of one arc, clockwise.
        records_max: the largest number of records in a joined arc. A single piece may have more.
        is_wanted: returns whether a piece is wanted; default: every piece is.
    """
    open_: Arc | None = None
    total = between = 0
    for piece in pieces:
        if not is_wanted(piece):
            between += piece.records
            continue
        if open_ is not None and total + between + piece.records <= records_max:
            open_, total = Arc(open_.start, piece.arc.end), total + between + piece.records
        else:
            if open_ is not None:
                yield open_, total
            open_, total = piece.arc, piece.records
        between = 0
    if open_ is not None:
        yield open_, total

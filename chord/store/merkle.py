"""Where do two replicas differ? A summed hash tree over the circle, in O(1) a write.

The circle is cut in 64 groups of 64 slices, always at the same points: slice = floor(point * 4096 / 2^m). Each part
keeps the number of its records and the sum, modulo 2^128, of the digests of their clocks, so that a write subtracts the
old digest and adds the new one along one path, and a change of membership changes nothing but *which* parts two nodes
compare. A slice that the boundary of an arc cuts is added up from its records, once, and remembered until it changes.

Source: Merkle trees as in Dynamo (SOSP 2007, section 4.7); sums in place of hashes of hashes, after Bellare and
Micciancio 1997 (AdHash).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from chord.ids import Arc, Circle, Point
from chord.wire.messages import DIGEST_BYTES, Record

FAN_OUT = 64
LEVELS = 3  # of 1, 64 and 4096 parts
SLICE_LEVEL = LEVELS - 1
REMEMBERED_MAX = 256

_MODULUS = 1 << 8 * DIGEST_BYTES

Span: TypeAlias = tuple[int, int]
"""The first and the last of a row of points that does not pass 0; empty where the last is the smaller."""

Heads: TypeAlias = Callable[[Arc], Iterable[tuple[bytes, bytes]]]
"""Gives the key and digest of each record in an arc (`Storage.heads`)."""


class Total(NamedTuple):
    """How many records, and the sum of their digests."""

    records: int
    sum: int

    def plus(self, records: int, sum_: int) -> Total:
        """Return the total with so many more records, and what their digests add to the sum."""
        return Total(self.records + records, (self.sum + sum_) % _MODULUS)


class Piece(NamedTuple):
    """What an arc and a part of the circle have in common, and how many records lie in it."""

    part: int
    arc: Arc
    records: int


NOTHING = Total(0, 0)


@functools.cache
def _starts(circle: Circle, level: int) -> tuple[int, ...]:
    """Return the first point of every part of a level, and the circle's size behind them."""
    cuts = FAN_OUT**level
    return tuple(-(-(part << circle.bits) // cuts) for part in range(cuts + 1))


def digest_of(record: Record) -> bytes:
    """Return what stands for a record's clock: equal where two replicas hold the same of a key."""
    state = blake2b(digest_size=DIGEST_BYTES, key=b"chord clock")
    state.update(len(record.key).to_bytes(2, "big") + record.key)
    for entry in record.clock:
        state.update(entry.actor + entry.count.to_bytes(8, "big") + len(entry.versions).to_bytes(2, "big"))
    state.update(record.superseded)
    for entry in record.quarantine:
        state.update(b"?" + entry.actor + entry.count.to_bytes(8, "big") + len(entry.versions).to_bytes(2, "big"))
    return state.digest()


class Digests:
    """The tree over one store. Synchronous; the store tells it of every change."""

    __slots__ = ("_circle", "_parts", "_remembered")

    def __init__(self, circle: Circle) -> None:
        self._circle = circle
        self._parts: tuple[dict[int, Total], ...] = tuple({} for _ in range(LEVELS))  # only parts with records
        self._remembered: dict[Span, tuple[Total, Total]] = {}  # span cut off a slice: the slice's total then, its own

    def change(self, point: int, old: bytes | None, new: bytes | None) -> None:
        """A record at a point was stored (`old` None), replaced, or removed (`new` None)."""
        records, sum_ = (new is not None) - (old is not None), _number(new) - _number(old)
        self.add(self.part_of(point, SLICE_LEVEL), records, sum_)

    def add(self, part: int, records: int, sum_: int) -> None:
        """So many records more are in a slice, and so much more is the sum of their digests, as numbers."""
        for totals in reversed(self._parts):
            held, known = totals.get(part, NOTHING)
            if held + records:
                totals[part] = Total(held + records, (known + sum_) % _MODULUS)
            else:
                totals.pop(part, None)
            part //= FAN_OUT

    def correct(self, part: int, records: int, sum_: int) -> int:
        """A slice was counted anew. Returns how many records more it holds than it was believed to."""
        held, known = self._parts[SLICE_LEVEL].get(part, NOTHING)
        if (held, known) != (records, sum_ % _MODULUS):
            self.add(part, records - held, sum_ - known)
        return records - held

    # -- questions ------------------------------------------------------------------------------

    def sum(self, arc: Arc, level: int, part: int, heads: Heads) -> bytes:
        """Return the sum over the records in arc ∩ part, as it travels.

        Args:
            level: 0, 1, 2: the circle is cut in 1, 64, 4096 parts.
            heads: reads the records of a slice that the arc cuts.
        """
        return self._total(self._spans(arc), level, part, heads).sum.to_bytes(DIGEST_BYTES, "big")

    def count(self, arc: Arc, heads: Heads) -> int:
        """Return the number of records in an arc; only slices that it cuts are read, where they have changed."""
        return self._total(self._spans(arc), 0, 0, heads).records

    def part_of(self, point: int, level: int) -> int:
        """Return the part in which a point lies."""
        part: int = point * FAN_OUT**level >> self._circle.bits
        return part

    def arc_of(self, part: int) -> Arc:
        """Return the arc that is a slice."""
        starts = _starts(self._circle, SLICE_LEVEL)
        return Arc(self._circle.point(starts[part] - 1), self._circle.point(starts[part + 1] - 1))

    def slices_of(self, arc: Arc) -> Iterator[int]:
        """Yield the slices that have a point in an arc, in ascending order."""
        first_and_last = sorted((self.part_of(low, SLICE_LEVEL), self.part_of(high, SLICE_LEVEL))
                                for low, high in self._spans(arc) if low <= high)
        after = 0
        for first, last in first_and_last:
            yield from range(max(first, after), last + 1)
            after = max(after, last + 1)

    def first_in(self, arc: Arc, slices: Iterable[int]) -> Point | None:
        """Return the first point of an arc in one of these slices; None if no slice meets the arc."""
        first, starts = self._circle.point(arc.start + 1), _starts(self._circle, SLICE_LEVEL)
        points = [max(first, starts[part]) if first < starts[part + 1] else starts[part] for part in slices]
        inside = [self._circle.point(point) for point in points if self._circle.point(point) in arc]
        return min(inside, key=lambda point: self._circle.distance(first, point), default=None)

    def slice_of(self, point: int) -> tuple[int, int, int]:
        """Return the slice in which a point lies, and the slice's first and last point."""
        part, starts = self.part_of(point, SLICE_LEVEL), _starts(self._circle, SLICE_LEVEL)
        return part, starts[part], starts[part + 1] - 1

    def pieces(self, arc: Arc, level: int, heads: Heads) -> Iterator[Piece]:
        """Yield what an arc has in common with each part it touches, clockwise.

        An arc that ends in the part it starts in, once round, touches that part twice.
        """
        starts = _starts(self._circle, level)
        start, left = arc.start, self._circle.distance(arc.start, arc.end) or self._circle.size
        while left:
            first = self._circle.point(start + 1)
            part = self.part_of(first, level)
            length = min(left, starts[part + 1] - first)
            piece = self._piece(level, part, first, length, heads)
            yield piece
            start, left = piece.arc.end, left - length

    def held(self, arc: Arc, heads: Heads) -> Iterator[Piece]:
        """Yield what an arc has in common with each slice in which it holds a record, clockwise.

        The same as the `pieces` that are not empty, without a look at the others: of a ring's 4096 slices few are held.
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

    def stretches(self, arc: Arc, records_max: int, heads: Heads, level: int = 1) -> Iterator[Arc]:
        """Yield arcs to work through one by one: clockwise, and together all that is not empty of this one.

        Each holds at most so many records, or is (a piece of) one slice. The store must not change meanwhile.
        """
        if not self._parts[0]:
            return  # nothing is held anywhere: no need to look at each part
        for piece, records in joined(self.pieces(arc, level, heads), records_max):
            if records > records_max and level < SLICE_LEVEL:
                yield from self.stretches(piece, records_max, heads, level + 1)
            elif records:
                yield piece

    # -- inside ---------------------------------------------------------------------------------

    def _spans(self, arc: Arc) -> list[Span]:
        top = self._circle.size - 1
        return [(low, top if high is None else high) for low, high in arc.spans()]

    def _piece(self, level: int, part: int, first: int, length: int, heads: Heads) -> Piece:
        """Return so many points from the first on, all in one part."""
        starts = _starts(self._circle, level)
        arc = Arc(self._circle.point(first - 1), self._circle.point(first + length - 1))
        total = self._parts[level].get(part, NOTHING)
        if total.records and length < starts[part + 1] - starts[part]:
            total = self._total(self._spans(arc), level, part, heads)
        return Piece(part, arc, total.records)

    def _total(self, spans: list[Span], level: int, part: int, heads: Heads) -> Total:
        """Return the total of a part's records that lie in the spans."""
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

    def _cut(self, span: Span, whole: Total, heads: Heads) -> Total:
        """Return the total of a span within a slice; what was remembered holds while the slice's total is the same."""
        of_slice, total = self._remembered.pop(span, (None, NOTHING))
        if of_slice != whole:
            total = NOTHING
            for _, digest in heads(Arc(self._circle.point(span[0] - 1), self._circle.point(span[1]))):
                total = total.plus(1, _number(digest))
        self._remembered[span] = whole, total  # now the latest in use
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return total


def joined(
    pieces: Iterable[Piece], records_max: int, is_wanted: Callable[[Piece], bool] = lambda piece: True
) -> Iterator[tuple[Arc, int]]:
    """Yield arcs that cover the wanted pieces of an arc, and how many records each holds.

    Several pieces make one arc, together with what lies between them, while it holds at most so many records.
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


def _number(digest: bytes | None) -> int:
    return 0 if digest is None else int.from_bytes(digest, "big")

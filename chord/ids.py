"""The m-bit circle: points, hashing and arcs.

This module holds the arithmetic of the identifier circle and nothing else. A point is an integer with 0 <= p < 2**m.
Clockwise is upwards, modulo 2**m.

`between` is strict on both sides. `between(x, y, x)` holds for every y != x, because a lone node's arc is the whole
circle (Zave 2017, section III). `Arc` is half-open, `(start, end]`, and `(x, x]` is the whole circle.
"""

from __future__ import annotations

import functools
import hashlib
from typing import Annotated, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

BITS_MIN = 3
BITS_MAX = 160  # the length of a SHA-1 hash
HASHES_KEPT = 4096
ADDRESS_CHARS_MAX = 255

Address: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ADDRESS_CHARS_MAX)]
StreamName: TypeAlias = Literal["control", "bulk"]
NodeState: TypeAlias = Literal["starting", "joining", "resuming", "ready", "leaving", "left", "stopped"]
"""The state of a node, from its start to its end.

A node that resumes returns to its place after a restart. A node that has left handed its arcs over, and a node that
stopped did not.
"""

PeerState: TypeAlias = Literal["alive", "suspect", "dead", "left", "paused"]
"""The state of another node, as the failure detector of one node sees it.

The peer itself announces "left" and "paused". A paused peer stopped for a while and keeps the only copy of its records,
so no other node replaces it.
"""


class Point(int):
    """A point of the circle.

    The codec recognises this type and gives it a fixed width on the wire.
    """

    __slots__ = ()


class Contact(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vnode of any node: its point on the circle and its node's address."""

    id: Point
    address: Address


class Circle(NamedTuple):
    """The circle of 2**bits points.

    Source: Stoica et al. 2001, section 4.2.
    """

    bits: int

    @property
    def size(self) -> int:
        """Number of points, 2**bits."""
        return 1 << self.bits

    @property
    def width(self) -> int:
        """Bytes a point takes on the wire: bits rounded up to whole bytes."""
        return (self.bits + 7) // 8

    @functools.lru_cache(HASHES_KEPT)  # noqa: B019  # one operation asks for the point of its key again and again
    def hash(self, data: bytes) -> Point:
        """Return the point of a key or an address: its SHA-1 hash, cut to `bits` bits.

        The first `bits` bits of the hash of the data count, read big-endian.
        """
        digest = int.from_bytes(hashlib.sha1(data, usedforsecurity=False).digest(), "big")
        return Point(digest >> (BITS_MAX - self.bits))

    def point(self, number: int) -> Point:
        """Return the number as a point, modulo 2**bits."""
        return Point(number & ((1 << self.bits) - 1))

    def distance(self, start: int, end: int) -> int:
        """Return the clockwise distance from start to end, 0 <= d < 2**bits."""
        return (end - start) & ((1 << self.bits) - 1)

    def length(self, start: int, end: int) -> int:
        """Return the number of points in the arc (start, end]. The arc (x, x] is the whole circle."""
        return ((end - start) & ((1 << self.bits) - 1)) or 1 << self.bits

    def hex(self, point: int) -> str:
        """Return the point as hexadecimal digits, with leading zeros."""
        return f"{point:0{(self.bits + 3) // 4}x}"

    def fraction(self, distance: int) -> float:
        """Return a distance in points as a share of the whole circle, 0.0 to 1.0."""
        return distance / self.size


def vnode_id(circle: Circle, address: str, index: int) -> Point:
    """Return the id of a node's index-th vnode.

    The id is the SHA-1 of `host:port` for index 0, then of `host:port#1`, ….

    Source: Stoica et al. 2001, section 4.2 (a node's id is the hash of its address) and 6.1 (virtual nodes).
    """
    return circle.hash((address if index == 0 else f"{address}#{index}").encode())


def between(low: int, point: int, high: int) -> bool:
    """Return whether a point lies strictly inside the clockwise arc (low, high).

    `between(x, y, x)` is true for every y != x: the arc goes from a node once round to itself.

    Source: Zave 2017 (TSE), section III.
    """
    if low < high:
        return low < point < high
    return low < point or point < high


class Arc(NamedTuple):
    """The points after `start` up to and including `end`.

    If both are equal, the arc is the whole circle.
    """

    start: Point
    end: Point

    def __contains__(self, point: object) -> bool:
        start, end = self.start, self.end
        if not isinstance(point, int):
            return False
        if start < end:
            return start < point <= end
        return point > start or point <= end

    @property
    def is_whole(self) -> bool:
        """Whether the arc is the whole circle."""
        return self.start == self.end

    def spans(self) -> tuple[tuple[int, int | None], ...]:
        """Return the arc as one or two inclusive number ranges, in clockwise order.

        The upper bound None stands for the largest point of the circle.
        """
        if self.start < self.end:
            return ((self.start + 1, self.end),)
        return ((self.start + 1, None), (0, self.end))

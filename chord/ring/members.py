"""The membership list: every node of the ring that this node has heard of, with its vnodes.

The list is only a hint, like the owner cache. The ring's pointers decide which node owns an arc.

A later entry replaces an earlier one of the same node, so lists merge in any order to the same result. The circle is
cut into slices of about sixteen entries. A slice is immutable, and equal slices of one process are one object.
Therefore many simulated nodes share nearly all of their lists.
"""

from __future__ import annotations

import functools
import hashlib
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import ClassVar, TypeAlias
from weakref import WeakValueDictionary

from chord.ids import Circle, Point
from chord.wire.messages import FINGERPRINT_BYTES, MEMBERS_MAX, SLICE_BITS_MAX, SUM_BYTES, Contact, MemberEntry
from chord.wire.messages.members import COUNT_MAX, START_MAX

Place: TypeAlias = tuple[Point, MemberEntry]
"""A point of the circle with the entry that is stored there.

An entry is stored at the hash of its address, and at each of its vnodes.
"""

SLICE_ENTRIES = 16
STATES = ("alive", "silent", "left")
DIGESTS_KEPT = 2 * MEMBERS_MAX
DRAWS_MAX = 256
SUMS = 1 << 8 * SUM_BYTES


def order(entry: MemberEntry) -> tuple[int, int, int, tuple[Point, ...]]:
    """Return a key to compare entries of one node by. The entry with the largest key is the latest."""
    return entry.start, entry.count, STATES.index(entry.state), entry.vnodes


def contradiction(entry: MemberEntry) -> tuple[int, int] | None:
    """Return the start and the count with which a node must announce itself to replace a wrong entry about itself.

    None means that no larger numbers fit into a message. Only a hostile peer sends such an entry.
    """
    if entry.count < COUNT_MAX:
        return entry.start, entry.count + 1
    return (entry.start + 1, 0) if entry.start < START_MAX else None


def is_valid(entry: MemberEntry) -> bool:
    """Return whether an entry is well-formed.

    Its vnodes must be in ascending order. There are vnodes if and only if the state is "alive".
    """
    vnodes = entry.vnodes
    return bool(vnodes) == (entry.state == "alive") and all(a < b for a, b in pairwise(vnodes))


@functools.lru_cache(DIGESTS_KEPT)
def digest(entry: MemberEntry) -> bytes:
    """Return a digest of an entry, of eight bytes. Equal entries have equal digests."""
    vnodes = " ".join(f"{int(point):x}" for point in entry.vnodes)
    text = f"{entry.address} {entry.start} {entry.count} {entry.state} {vnodes}"
    return hashlib.blake2b(text.encode(), digest_size=SUM_BYTES).digest()


def fingerprint(entry: MemberEntry) -> bytes:
    """Return the fingerprint of an entry: the first four bytes of its digest, by which comparisons of lists name it."""
    return digest(entry)[:FINGERPRINT_BYTES]


def pages_of(entries: Iterable[MemberEntry], bytes_max: int) -> Iterator[tuple[MemberEntry, ...]]:
    """Divide entries into pages, each of about `bytes_max` bytes or less in a message, and yield the pages."""
    page: list[MemberEntry] = []
    size = 0
    for entry in entries:
        weight = 24 + len(entry.address) + 21 * len(entry.vnodes)
        if page and size + weight > bytes_max:
            yield tuple(page)
            page, size = [], 0
        page.append(entry)
        size += weight
    if page:
        yield tuple(page)


class Slice:
    """A slice of a membership list: the entries at the points of one part of the circle. It is immutable.

    Args:
        places: pairs of a point and the entry at it, in ascending order. An entry is at each of its vnodes, and at the
            hash of its address.
        total: the sum of the digests of these entries, modulo 2^64.

    Attributes:
        places: as above.
        sum: as `total`. Equal slices have equal sums.
    """

    __slots__ = ("__weakref__", "places", "sum")

    _shared: ClassVar[WeakValueDictionary[tuple[int, int], Slice]] = WeakValueDictionary()

    def __init__(self, places: tuple[Place, ...], total: int) -> None:
        self.places = places
        self.sum = total

    @classmethod
    def of(cls, places: Iterable[Place], total: int | None = None) -> Slice:
        """Return the slice with these places: an existing object if an equal slice exists, otherwise a new one.

        Args:
            places: pairs of a point and the entry at it, in ascending order.
            total: the sum of their digests, modulo 2^64; None: computed here.
        """
        content = tuple(places)
        if total is None:
            total = sum(_number(entry) for _, entry in content) % SUMS
        name = total, len(content)
        known = cls._shared.get(name)
        if known is not None and known.places == content:
            return known
        cls._shared[name] = made = cls(content, total)
        return made


class Members:
    """The membership list of one node. It iterates over the entries, each once.

    Args:
        circle: the circle of the ring.
        size_max: the largest number of entries. If the list is full, an unknown node replaces a node that is not alive.
            Otherwise it is refused.

    Attributes:
        is_given_up: whether the node keeps no list at present, because the ring is too large.
    """

    def __init__(self, circle: Circle, size_max: int = MEMBERS_MAX) -> None:
        self._circle = circle
        self._max = size_max
        self.is_given_up = False
        self.clear()

    def clear(self) -> None:
        """Remove all entries."""
        self._slices = [Slice.of(())]
        self._bits = 0  # the number of slices is 2^bits
        self._size = 0
        self._gone: dict[str, float] = {}  # when this node learned that a member is silent or has left
        self._fading: dict[str, tuple[MemberEntry, float]] = {}  # such entries that leave the list soon

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[MemberEntry]:
        """Yield each entry once, in the order of the hashes of the addresses."""
        for piece in self._slices:
            for point, entry in piece.places:
                if point == self._home(entry.address):
                    yield entry

    @property
    def alive(self) -> int:
        """The number of entries with the state "alive"."""
        return self._size - len(self._gone)

    @property
    def is_full(self) -> bool:
        """Whether `size_max` living members are listed, so that there is no room for another one."""
        return self.alive >= self._max

    def get(self, address: str) -> MemberEntry | None:
        """Return the entry of the node at an address; None if the list has none."""
        home = self._home(address)
        for point, entry in self._slices[self._index(home)].places:
            if point == home and entry.address == address:
                return entry
        fading = self._fading.get(address)
        return None if fading is None else fading[0]

    def learn(self, entry: MemberEntry, now: float) -> bool:
        """Add an entry, or replace an earlier entry of the same node; return whether the list changed.

        Args:
            entry: the entry. It changes nothing if it is invalid, or not later than the known entry.
            now: the time, in seconds on any clock that `expire` uses, too.
        """
        known = self.get(entry.address)
        if not is_valid(entry) or (known is not None and order(known) >= order(entry)):
            return False
        if entry.address in self._fading:
            del self._fading[entry.address]
            known = None
        if known is None and self._size >= self._max:
            if not self._gone:
                return False
            self._remove(next(iter(self._gone)))
        if known is not None:
            self._remove(entry.address)
        if entry.state != "alive":
            self._gone[entry.address] = now
        self._put_all(entry)
        self._cut()
        return True

    def expire(self, now: float, after_s: float) -> None:
        """Drop the entries of nodes that have been silent or gone for `after_s` seconds.

        After half of that time an entry takes no part in comparisons any more. Otherwise nodes that dropped it would
        get it again from nodes that did not.

        Args:
            now: the time, in seconds on the clock of `learn`.
            after_s: the time for which such entries are kept, in seconds.
        """
        for address in [address for address, since in self._gone.items() if now - since > after_s / 2]:
            since = self._gone[address]
            entry = self.get(address)
            self._remove(address)
            if entry is not None:
                self._fading[address] = entry, since
        for address in [address for address, (_, since) in self._fading.items() if now - since > after_s]:
            del self._fading[address]
        while len(self._fading) > self._max:
            del self._fading[next(iter(self._fading))]
        self._cut()

    def from_point(self, point: int) -> Iterator[MemberEntry]:
        """Yield the entries in the order of the hashes of their addresses, from `point` to the end of the circle."""
        for piece in self._slices[self._index(point) :]:
            for at, entry in piece.places:
                if at >= point and at == self._home(entry.address):
                    yield entry

    def copy(self) -> Members:
        """Return a new list with the same entries, which changes independently."""
        made = Members(self._circle, self._max)
        made._slices, made._bits, made._size = list(self._slices), self._bits, self._size
        made._gone, made._fading = dict(self._gone), dict(self._fading)
        return made

    def successors(self, point: int) -> Iterator[Contact]:
        """Yield the vnodes of living members clockwise from a point, each once. A vnode at the point comes first."""
        first = self._index(point)
        for step in range(len(self._slices) + 1):
            for at, entry in self._slices[(first + step) % len(self._slices)].places:
                is_before = at < point
                if entry.vnodes and (step not in (0, len(self._slices)) or is_before == bool(step)):
                    i = bisect_left(entry.vnodes, at)
                    if i < len(entry.vnodes) and entry.vnodes[i] == at:
                        yield Contact(at, entry.address)

    def draw(self, pick: Callable[[int], int]) -> MemberEntry | None:
        """Return a living member at random, each with the same probability; None if many draws found none.

        Args:
            pick: returns a random number from 0 to its argument, exclusive.
        """
        total = sum(len(piece.places) for piece in self._slices)
        for _ in range(DRAWS_MAX if total else 0):
            number = pick(total)
            for piece in self._slices:
                if number < len(piece.places):
                    point, entry = piece.places[number]
                    if entry.vnodes and point == self._home(entry.address):
                        return entry
                    break
                number -= len(piece.places)
        return None

    # -- comparison -----------------------------------------------------------------------------

    @property
    def bits(self) -> int:
        """The logarithm to base 2 of the number of slices."""
        return self._bits

    @property
    def version(self) -> bytes:
        """The sum of the digests of all entries, as eight bytes. Equal lists have equal versions."""
        return self.sums(0)

    def sums(self, bits: int) -> bytes:
        """Return the sum of digests in each of 2^bits equal parts of the circle, eight bytes each, clockwise from 0."""
        totals = [0] * (1 << bits)
        if bits <= self._bits:
            for number, piece in enumerate(self._slices):
                totals[number >> (self._bits - bits)] += piece.sum
        else:
            for piece in self._slices:
                for point, entry in piece.places:
                    totals[self._index(point, bits)] += _number(entry)
        return b"".join((total % SUMS).to_bytes(SUM_BYTES, "big") for total in totals)

    def in_slice(self, bits: int, index: int) -> dict[bytes, MemberEntry]:
        """Return the entries in one of 2^bits equal parts of the circle, by their fingerprints.

        `index` is the number of the part, from 0.
        """
        span = max(0, self._circle.bits - bits)
        ends = index << span, ((index + 1) << span) - 1
        first, last = (self._index(min(end, self._circle.size - 1)) for end in ends)
        places = (place for piece in self._slices[first : last + 1] for place in piece.places)
        return {fingerprint(entry): entry for point, entry in places if self._index(point, bits) == index}

    # -- inside ---------------------------------------------------------------------------------

    def _home(self, address: str) -> Point:
        return self._circle.hash(address.encode())

    def _index(self, point: int, bits: int | None = None) -> int:
        """Return the number of the slice with a point, if there are 2^bits slices; default: as in this list."""
        return point >> max(0, self._circle.bits - (self._bits if bits is None else bits))

    def _points_by_slice(self, entry: MemberEntry) -> dict[int, list[Point]]:
        """Return the points of an entry by the numbers of their slices, so that each slice is made once."""
        found: dict[int, list[Point]] = {}
        for point in {self._home(entry.address), *entry.vnodes}:
            found.setdefault(self._index(point), []).append(point)
        return found

    def _put_all(self, entry: MemberEntry) -> None:
        """Put an entry at all of its points."""
        self._size += 1
        for number, points in self._points_by_slice(entry).items():
            piece = self._slices[number]
            places = list(piece.places)
            for point in points:
                insort(places, (point, entry), key=_order_of_place)
            self._slices[number] = Slice.of(places, (piece.sum + len(points) * _number(entry)) % SUMS)

    def _remove(self, address: str) -> None:
        """Remove an entry of the slices."""
        entry = self.get(address)
        self._gone.pop(address, None)
        if entry is None:
            return
        self._size -= 1
        for number, points in self._points_by_slice(entry).items():
            piece = self._slices[number]
            places = list(piece.places)
            for point in points:
                place = (point, entry)
                del places[bisect_left(places, _order_of_place(place), key=_order_of_place)]
            self._slices[number] = Slice.of(places, (piece.sum - len(points) * _number(entry)) % SUMS)

    def _cut(self) -> None:
        """Cut the circle into more or fewer slices, if their mean size is not about `SLICE_ENTRIES`."""
        bits = min(SLICE_BITS_MAX, self._circle.bits, max(0, (self._size - 1) // SLICE_ENTRIES).bit_length())
        if self._bits - 1 <= bits <= self._bits:
            return
        places = [place for piece in self._slices for place in piece.places]
        pieces: list[list[Place]] = [[] for _ in range(1 << bits)]
        for place in places:
            pieces[self._index(place[0], bits)].append(place)
        self._bits, self._slices = bits, [Slice.of(piece) for piece in pieces]


def _number(entry: MemberEntry) -> int:
    return int.from_bytes(digest(entry), "big")


def _order_of_place(place: Place) -> tuple[Point, str]:
    return place[0], place[1].address

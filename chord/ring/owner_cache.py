"""The owner cache: which vnode owns which arc, as learnt from replies.

An owner of a point also owns all points from there up to its own id. The cache stores only that, and it is only a hint.
A node that does not own a point says so or passes the request on, and the reply then names the owner. When the cache is
full, the least recently used arcs are dropped.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from chord.ids import Circle, Point
from chord.wire.messages import Contact

ARCS_MAX = 4096


class OwnerCache:
    """Arcs and their owners, as last learnt.

    Args:
        circle: the identifier circle.
        size_max: how many arcs to remember; 0 disables the cache.
    """

    __slots__ = ("_circle", "_ends", "_known", "_max")

    def __init__(self, circle: Circle, size_max: int = ARCS_MAX) -> None:
        self._circle = circle
        self._max = size_max
        self._ends: list[Point] = []  # the owners' ids, sorted
        self._known: dict[Point, tuple[Contact, int]] = {}  # by id: owner, length; latest used last

    def __len__(self) -> int:
        return len(self._ends)

    def learn(self, point: int, owner: Contact, start: int | None = None) -> None:
        """Record that a vnode answered for a point.

        Args:
            point: a point of the circle.
            owner: the vnode that answered.
            start: the start of its arc, which is not in the arc. None if the vnode did not report it. Then the cache
                learns only the part from `point` to the owner's id, and keeps a longer known part.
        """
        if not self._max:
            return
        length = self._circle.distance(point, owner.id)
        if start is not None:
            length = self._circle.length(start, owner.id) - 1
        before = self._known.get(owner.id)
        if before is not None and before[0] == owner and start is None and length <= before[1]:
            self._put(*before)  # nothing new, the usual case
            return
        for other in self._between(owner.id, length):
            self._forget(other)
        if owner.id not in self._known:
            insort(self._ends, owner.id)
        self._put(owner, length)
        self._shorten_next(owner.id)
        while len(self._ends) > self._max:
            self._forget(next(iter(self._known)))

    def find(self, point: int) -> Contact | None:
        """Return the vnode that probably owns a point, or None if the cache knows none.

        The vnode's arc becomes the most recently used.
        """
        if not self._ends:
            return None
        end = self._ends[bisect_left(self._ends, point) % len(self._ends)]
        owner, length = self._known[end]
        if self._circle.distance(point, end) > length:
            return None
        self._put(owner, length)
        return owner

    def before(self, point: int) -> Contact | None:
        """Return the cached owner closest before a point, counter-clockwise.

        An owner with the point as its id does not count. Return None if no other owner is cached.
        """
        if not self._ends or self._ends == [point]:
            return None
        owner, _ = self._known[self._ends[bisect_left(self._ends, point) - 1]]
        return owner

    def addresses(self) -> Iterator[str]:
        """Yield the addresses of the owners, the most recently used first.

        An address may occur more than once.
        """
        for owner, _ in reversed(self._known.values()):
            yield owner.address

    def forget(self, address: str) -> None:
        """Drop all arcs of the node at an address."""
        for end in [end for end, (owner, _) in self._known.items() if owner.address == address]:
            self._forget(end)

    # -- inside ---------------------------------------------------------------------------------

    def _put(self, owner: Contact, length: int) -> None:
        """Record an arc as the most recently used; `length` points lie before its end."""
        self._known.pop(owner.id, None)
        self._known[owner.id] = owner, length

    def _forget(self, end: Point) -> None:
        del self._known[end]
        del self._ends[bisect_left(self._ends, end)]

    def _between(self, end: Point, length: int) -> list[Point]:
        """Return the other owners cached inside an arc, which are out of date.

        The arc ends at `end`, and the point `length` before `end` is its first.
        """
        found: list[Point] = []
        at = bisect_left(self._ends, end)
        for i in range(1, len(self._ends) + 1):
            other = self._ends[at - i]
            if other == end or self._circle.distance(other, end) > length:
                break
            found.append(other)
        return found

    def _shorten_next(self, end: Point) -> None:
        """Shorten the cached arc behind the arc up to `end`, so that they do not overlap."""
        following = self._ends[(bisect_left(self._ends, end) + 1) % len(self._ends)]
        owner, length = self._known[following]
        gap = self._circle.distance(end, following)
        if following != end and length >= gap:
            self._known[following] = owner, gap - 1

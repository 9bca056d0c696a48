"""The finger table: shortcuts around the circle to successor(n + 2**i).

Only O(log N) of the m entries are distinct, so the table keeps *runs*: consecutive entries that point to one vnode. All
positions are clockwise distances from n, the own point of the vnode. start(i) lies at distance 2**i, and the distances
of the runs strictly grow. One verified reply covers every start in the replying vnode's arc.

Entries are hints. An entry that points to n itself says that no vnode stands between its start and n.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import NamedTuple

from chord.ids import Circle, Point
from chord.wire.messages import Contact, FingerRun


class _Run(NamedTuple):
    """Consecutive finger entries, `first` to `last`, that point to one vnode.

    `distance` is the clockwise distance from n, the table's own vnode, to that vnode (`contact`). For n itself the
    distance is the size of the circle.
    """

    first: int
    last: int
    contact: Contact
    distance: int


_distance_of = attrgetter("distance")


class FingerTable:
    """The finger table of one vnode with the point n, given as `own`.

    The table changes only through `adopt`, `adopt_arc` and `forget`.
    """

    __slots__ = ("_bits", "_cursor", "_own", "_runs", "_size")

    def __init__(self, circle: Circle, own: Point) -> None:
        self._bits = circle.bits
        self._size = circle.size
        self._own = own
        self._runs: list[_Run] = []
        self._cursor = 0

    def start(self, index: int) -> Point:
        """Return the start of an entry: the point n + 2**index. The entry points to the successor of this point.

        Source: Stoica et al. 2001, Table 1.
        """
        return Point((self._own + (1 << index)) & (self._size - 1))

    def entry(self, index: int) -> Contact | None:
        """Return the contact of one entry, or None if the entry is unknown."""
        for run in self._runs:
            if run.last >= index:
                return run.contact if run.first <= index else None
        return None

    def runs(self) -> list[FingerRun]:
        """Return the known entries in ascending order, with consecutive equal ones merged."""
        return [FingerRun(run.first, run.last, run.contact) for run in self._runs]

    def contacts(self) -> list[Contact]:
        """Return the distinct vnodes in the table, nearest first, without the vnode that has the table."""
        return [run.contact for run in self._runs if run.distance != self._size]

    # -- transitions ----------------------------------------------------------------------------

    def adopt(self, index: int, contact: Contact) -> tuple[int, int] | None:
        """Record `contact` as the successor of start(index).

        The caller has verified this. The contact is then also the successor of every later start up to its own point.
        Earlier entries that point beyond the contact were wrong, and change, too. If n lies between the start and the
        contact, nothing changes, because n is closer.

        Args:
            index: the entry, 0 to m - 1.
            contact: the successor of its start.

        Returns:
            The first and last entry that changed; None if none did.

        Source: Stoica et al. 2001, section 4.4 (a finger often serves as its neighbour too).
        """
        distance = self._distance(contact.id)
        if not 0 <= index < self._bits or distance < 1 << index:
            return None
        return self._assign(index, contact, distance)

    def adopt_arc(self, arc_start: Point, contact: Contact) -> tuple[int, int] | None:
        """Point all entries that start in an arc to the confirmed owner of the arc.

        If n lies in the arc, only the part after n counts, because the owner does not know n yet.

        Args:
            arc_start: the start of the arc, which is not in it.
            contact: the owner; the arc ends at its id.

        Returns:
            The first and last entry that changed; None if none did.
        """
        distance = self._distance(contact.id)
        behind = (arc_start - self._own) & (self._size - 1)
        first = behind.bit_length() if behind < distance else 0  # the lowest i with 2**i > behind
        if first >= self._bits or 1 << first > distance:
            return None
        return self._assign(first, contact, distance)

    def forget(self, contact: Contact) -> tuple[int, int] | None:
        """Clear the entries of a dead vnode, and return the first and the last index; None if it has no entry."""
        for position, run in enumerate(self._runs):
            if run.contact.id == contact.id:
                del self._runs[position]
                return run.first, run.last
        return None

    # -- questions ------------------------------------------------------------------------------

    def closest_preceding(self, key: int) -> Iterator[tuple[Contact, int]]:
        """Yield the known vnodes in the open arc (n, key), closest to the key first.

        Each vnode comes with the index of the last entry that points to it. The paper's loop from m down to 1 meets
        that entry first. The iterator never falls back to n itself. If the key equals n, the arc is the whole circle
        except n.

        Source: Stoica et al. 2003 (ToN), Fig. 5, closest_preceding_node.
        """
        runs = self._runs
        for position in range(bisect_left(runs, self._distance(key), key=_distance_of) - 1, -1, -1):
            yield runs[position].contact, runs[position].last

    def next_to_refresh(self) -> int | None:
        """Choose the next entry to verify, and advance the round robin.

        The round robin goes over the first entries of runs and of gaps between them. Entries that share the successor
        with entry 0 need no refresh of their own, because stabilize maintains entry 0.

        Returns:
            The entry's index, or None if the successor covers the whole table.
        """
        boundaries: list[int] = []
        covered = 0
        for run in self._runs:
            if run.first > covered:
                boundaries.append(max(covered, 1))
            if run.first:
                boundaries.append(run.first)
            covered = run.last + 1
        if covered < self._bits:
            boundaries.append(max(covered, 1))
        if not boundaries:
            return None
        position = bisect_right(boundaries, self._cursor)
        self._cursor = boundaries[position if position < len(boundaries) else 0]
        return self._cursor

    def check(self) -> list[str]:
        """Return the broken invariants of the table, a sentence for each; empty if all hold."""
        wrong = []
        covered, beyond = 0, 0
        for run in self._runs:
            if not covered <= run.first <= run.last < self._bits:
                wrong.append(f"entries {run.first} to {run.last} overlap others or the end of the table")
            if run.distance != self._distance(run.contact.id) or run.distance < 1 << run.last:
                wrong.append(f"entry {run.last} points before its start")
            if run.distance <= beyond:
                wrong.append(f"entry {run.first} points no farther than the one before")
            covered, beyond = run.last + 1, run.distance
        return wrong

    # -- inside ---------------------------------------------------------------------------------

    def _distance(self, point: int) -> int:
        return ((point - self._own) & (self._size - 1)) or self._size

    def _assign(self, first: int, contact: Contact, distance: int) -> tuple[int, int] | None:
        last = min(distance.bit_length(), self._bits) - 1
        at = bisect_left(self._runs, distance, key=_distance_of)
        if at < len(self._runs):  # most replies confirm known entries
            there = self._runs[at]
            if there.contact == contact and there.first <= first and there.last == last:
                return None
        before: list[_Run] = []
        after: list[_Run] = []
        known: _Run | None = None
        for run in self._runs:
            if run.distance < distance:
                before.append(run)
                continue
            first = min(first, run.first)  # the run points at or beyond the contact: both starts lie before it
            if run.contact == contact:
                known = run
            elif run.last > last:
                after.append(run._replace(first=max(run.first, last + 1)))
        kept = [run._replace(last=min(run.last, first - 1)) for run in before if run.first < first]
        self._runs = [*kept, _Run(first, last, contact, distance), *after]
        if known is None or (known.first != first and known.last != last):
            return first, last
        return (first, known.first - 1) if known.last == last else (known.last + 1, last)

"""Ownership of arcs: which keys one vnode answers for, and in which epoch.

No other module decides which vnode owns a key. `ring/pointers.py` holds the neighbours, and a pointer change alone
never moves ownership.

A vnode answers for one contiguous arc, (start, me]. Four more fields describe parts of the circle:

- `marks` name parts inside the arc that belonged to a down owner. The ring still waits for that owner.
- `giving` is the part at the low end of the arc that a Switch is handing to another vnode.
- `moved` lists arcs before `start` that this vnode gave up, until their new owner becomes the predecessor.
- `doubtful` lists parts of the arc in which this vnode may lack acknowledged writes.

The epoch grows with every change, so that a receiver recognises a repeated Switch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Literal, NamedTuple

from chord import events
from chord.events import Event
from chord.ids import Arc, Point, between
from chord.wire.messages import LIST_ENTRIES_MAX, Contact, OwnedArc

_NONE_NAMED: dict[Point, float] = {}  # shared by all vnodes, so it must never be changed
MOVED_MAX = 16  # bounds `moved`; a lookup that needs an older move follows the pointers instead


class Mark(NamedTuple):
    """A mark: a part of the arc that belonged to an owner that is down."""

    arc: Arc  # the marked part. The down owner may hold the only copies of its records.
    dead: Contact  # the down owner
    since: float  # when the owner was found down, in seconds on the event loop's clock


class Giving(NamedTuple):
    """A part of the arc that this vnode hands over, or has given up, to another vnode.

    It is `Ownership.giving` until the receiver acknowledges the `Switch` message, and then joins `Ownership.moved`.
    `epoch` is the epoch that began with the handover.
    """

    arc: Arc
    to: Contact
    epoch: int


class OwnerVerdict(NamedTuple):
    """The answer to the question whether a vnode answers for a point.

    Attributes:
        answer: "owned", "giving" (a Switch is under way, so the client retries), "moved" (this vnode gave it up
            lately), or "foreign" (any other point).
        peer: the receiver of a "giving" or "moved" arc; otherwise None.
        mark: the mark on an "owned" point, or None. In a marked part an absent key does not prove that no value
            exists.
    """

    answer: Literal["owned", "giving", "moved", "foreign"]
    peer: Contact | None = None
    mark: Mark | None = None


_OWNED = OwnerVerdict("owned")


class Remembered(NamedTuple):
    """The arc that a vnode owned before a restart, or before it renounced the arc, with its marks."""

    start: Point | None = None  # the low end of the arc; None if there was no arc
    boundary: Contact | None = None  # the vnode that stood at `start`, if known
    marks: tuple[Mark, ...] = ()  # the marks in the arc


class Ownership:
    """The arc of one vnode.

    `start` is None while the vnode answers for nothing. If `start` equals the vnode's id, the arc is the whole circle.
    A method that returns events returns those of its change. An empty list means that nothing changed.

    Concurrency: every method is synchronous and atomic.
    """

    __slots__ = (
        "_listed_at",
        "_named",
        "before",
        "boundary",
        "doubtful",
        "epoch",
        "giving",
        "last",
        "marks",
        "me",
        "moved",
        "start",
    )

    def __init__(self, me: Contact) -> None:
        self.me = me
        self.start: Point | None = None
        self.boundary: Contact | None = None  # the vnode at `start`, if known
        self.before: tuple[Contact, ...] = ()  # the vnodes last seen at and before `start`, nearest first
        self._listed_at: float | None = None  # when a predecessor last sent its list
        self._named = _NONE_NAMED  # for vnodes kept in `before` that the latest list omits: when a list last named them
        self.epoch = 0
        self.giving: Giving | None = None
        self.doubtful: tuple[Arc, ...] = ()  # parts where this vnode may lack acknowledged writes
        self.marks: tuple[Mark, ...] = ()
        self.moved: tuple[Giving, ...] = ()
        self.last = Remembered()

    @property
    def arc(self) -> Arc | None:
        """This vnode's arc, with the part that it is handing over; None if it has no arc."""
        return None if self.start is None else Arc(self.start, self.me.id)

    def verdict(self, point: int) -> OwnerVerdict:
        """Return whether this vnode answers for a point, and otherwise which vnode does, if known."""
        if self.start is not None and point in Arc(self.start, self.me.id):
            if self.giving is not None and point in self.giving.arc:
                return OwnerVerdict("giving", self.giving.to)
            for mark in self.marks:
                if point in mark.arc:
                    return OwnerVerdict("owned", None, mark)
            return _OWNED
        for moved in reversed(self.moved):
            if point in moved.arc:
                return OwnerVerdict("moved", moved.to)
        return OwnerVerdict("foreign")

    def former_owner(self, point: int) -> Contact | None:
        """Return the vnode that was last known to own a point before this arc, if any.

        This is the nearest of the known vnodes between the point and the arc.
        """
        found = None
        for contact in self.before:
            if contact.id != point and not between(point, contact.id, self.me.id):
                break
            found = contact
        return found

    def is_owner(self, point: int) -> bool:
        """Return whether this vnode answers for a point now.

        It does not answer in a part that it is handing over.
        """
        return self.verdict(point).answer == "owned"

    # -- transitions ----------------------------------------------------------------------------

    def create(self) -> list[Event]:
        """Own the whole circle, as the founder of a ring."""
        assert self.start is None
        return self._gain(self.me.id, self.me, "created", self.epoch + 1)

    def resume(self, start: Point, before: tuple[Contact, ...], epoch: int = 0) -> list[Event]:
        """Own (start, me] again after a restart that no other node noticed.

        The marks from before the restart that lie in the arc apply again. The whole arc becomes doubtful: this vnode
        may lack acknowledged writes there.

        Args:
            start: the start of the arc.
            before: the vnodes last seen at and before `start`, nearest first, as far as known.
            epoch: the epoch before the restart. The new epoch is greater.
        """
        assert self.start is None
        boundary = before[0] if before and before[0].id == start else None
        gained = self._gain(start, boundary, "resumed", max(self.epoch, epoch) + 1)
        self.before = before
        self.marks = _distinct(self._recalled(Arc(start, self.me.id)))
        self.doubt(Arc(start, self.me.id))
        assert not self.check(), self.check()
        return gained

    def receive(
        self, arc: Arc, epoch: int, boundary: Contact | None, marks: Iterable[Mark], before: Iterable[Contact] = ()
    ) -> list[Event]:
        """Own an arc that another vnode, the giver, hands over with a `Switch` message.

        A join hands over the vnode's first arc. A leave hands over the arc directly before its own.

        Args:
            arc: the arc that the giver hands over.
            epoch: the giver's epoch. The new epoch is at least this.
            boundary: the vnode at the start of the arc, if known.
            marks: the giver's marks in the arc.
            before: the vnodes before `boundary`, nearest first, as far as known. If all of them die at once, this vnode
                still marks the part of each.

        Returns:
            No events if the arc does not fit, or if this vnode itself hands a part over. Then nothing changed, and the
                giver keeps the arc.
        """
        fits = arc.end == self.me.id if self.start is None else arc.end == self.start and self.me.id not in arc
        if not fits or self.giving is not None:
            return []
        kept = (*self._without_mine(marks, arc), *self._recalled(arc), *self.marks)
        gained = self._gain(arc.start, boundary, "received", max(self.epoch + 1, epoch), arc)
        if boundary is not None:
            self.before = self._backwards(boundary, before)
        self.marks = _distinct(kept)
        assert not self.check(), self.check()
        return gained

    def _without_mine(self, marks: Iterable[Mark], arc: Arc) -> Iterator[Mark]:
        """Yield the giver's marks, except for the parts that this vnode owned before.

        A mark that names this vnode as down is out of date. But it may begin before this vnode's old arc, if its maker
        did not know an owner that had died earlier. That rest stays. It names the vnode at the start of the old arc,
        if known.
        """
        old = self.last.start
        for mark in marks:
            if mark.dead.id != self.me.id:
                yield mark
            elif old is not None and old in mark.arc and old in arc and old != self.me.id:
                yield mark._replace(arc=Arc(mark.arc.start, old), dead=self.last.boundary or mark.dead)

    def _recalled(self, arc: Arc) -> tuple[Mark, ...]:
        """Remove and return the marks in an arc that this vnode had before its restart.

        A mark says that a part of an arc belonged to a vnode that is unreachable. A vnode that took this vnode's arc
        over meanwhile knew nothing of the older marks.
        """
        found = tuple(t for t in self.last.marks if t.arc.end in arc and t.dead.id != self.me.id)
        self.last = self.last._replace(marks=tuple(t for t in self.last.marks if t not in found))
        return tuple(t._replace(arc=Arc(arc.start, t.arc.end)) if arc.start in t.arc else t for t in found)

    def begin_switch(self, end: Point, to: Contact) -> Giving:
        """Begin to hand the low end of the arc, from its start up to `end`, over to the vnode `to`.

        Until `finish_switch` or `reclaim`, the verdict on a point there is "giving".
        """
        assert self.start is not None, "nothing to give"
        assert self.giving is None, "one switch at a time"
        assert end in Arc(self.start, self.me.id), "not mine to give"
        self.epoch += 1
        self.giving = Giving(Arc(self.start, end), to, self.epoch)
        return self.giving

    def finish_switch(self) -> list[Event]:
        """Give up the part that `begin_switch` named, because the receiver has it now.

        The receiver has acknowledged the `Switch`. Until the receiver is the predecessor, the verdict on a point there
        is "moved".
        """
        giving = self.giving
        assert giving is not None
        self.giving = None
        self._let_go(giving)
        return [events.ArcLost(self.me.id, giving.arc, giving.epoch, "moved")]

    def reclaim(self) -> list[Event]:
        """Own the part again that a `Switch` failed to hand over, because no reply came.

        The epoch is then two higher than before the `Switch`.
        """
        giving = self.giving
        assert giving is not None
        self.giving = None
        self.epoch = giving.epoch + 1
        return [events.ArcGained(self.me.id, giving.arc, self.epoch, "reclaimed")]

    def take_over(
        self, predecessor: Contact, dead: Iterable[Contact], now: float, *, had_only_copies: bool = False
    ) -> list[Event]:
        """Extend the arc back to the predecessor, because the owners in the gap are dead.

        The gap lies between the predecessor and the arc. The caller has checked that the predecessor names this vnode
        as the head of its successor list. Each dead vnode owned the part of the gap that ends at its id, so that part
        is marked with the dead vnode. The marks there from before a restart apply again.

        The vnodes may have died one after another. Then each of them had taken over the parts before its own. If N = 1,
        it may hold the only copies of writes there, so its mark begins at the predecessor.

        Args:
            predecessor: the vnode at which the arc begins afterwards.
            dead: the dead owners. Those outside the gap are ignored.
            now: the time since which they count as down, in seconds on the event loop's clock.
            had_only_copies: whether N = 1.

        Returns:
            No events if this vnode has no arc, the predecessor is in the arc or at its start, or a Switch is under way.

        Source: protocol of this project; compare Scatter (SOSP 2011), section 2, on the two-owner anomaly.
        """
        if self.start is None or self.giving is not None or between(self.start, predecessor.id, self.me.id):
            return []
        if predecessor.id == self.start:
            return []
        gap = Arc(predecessor.id, self.start)
        marks: list[Mark] = []
        low = predecessor.id
        for contact in sorted(dead, key=lambda c: (c.id < predecessor.id, c.id)):  # clockwise from the predecessor
            if contact.id in gap:
                marks.append(Mark(Arc(low, contact.id), contact, now))
                low = low if had_only_copies else contact.id
        marks += self._recalled(gap)
        gained = self._gain(predecessor.id, predecessor, "taken_over", self.epoch + 1, gap)
        self.marks = _distinct((*marks, *self.marks))
        self.doubt(gap)
        assert not self.check(), self.check()
        return gained

    def learn_unreachable(self, unreachable: Iterable[tuple[Contact, float]]) -> None:
        """Add marks for down vnodes with ids inside a marked part.

        A takeover marked only vnodes that this vnode knew, and its list of predecessors may have been too short. Each
        such vnode gets a mark from the start of the part to its id. The older mark stays whole, because its owner may
        have taken that part over before it died.

        Args:
            unreachable: down vnodes, each with the time when it went down, in seconds on the event loop's clock.
        """
        known = {mark.dead.id for mark in self.marks} | {self.me.id}
        for contact, since in unreachable:
            for at, mark in enumerate(self.marks):
                if contact.id in mark.arc and contact.id != mark.arc.end and contact.id not in known:
                    part = Mark(Arc(mark.arc.start, contact.id), contact, since)
                    self.marks = (*self.marks[:at], part, *self.marks[at:])
                    break

    def shrink(self, predecessor: Contact) -> list[Event]:
        """Give up the part of the arc up to a member inside it, which owns that part.

        Such a member joined elsewhere and appears when a split ring heals or a loopy ring is untangled.

        Args:
            predecessor: the member.

        Returns:
            No events if this vnode has no arc, the member is outside it, or a Switch is under way.
        """
        if self.start is None or self.giving is not None or not between(self.start, predecessor.id, self.me.id):
            return []
        self.epoch += 1
        lost = Giving(Arc(self.start, predecessor.id), predecessor, self.epoch)
        self._let_go(lost)
        return [events.ArcLost(self.me.id, lost.arc, self.epoch, "shrunk")]

    def renounce(self) -> list[Event]:
        """Give up the whole arc, because another vnode owns it.

        This happens after a transfer to this vnode, if the giver took this vnode for dead before the acknowledgement
        arrived, and kept the arc. `last` keeps the start and the marks.
        """
        assert self.giving is None
        arc = self.arc
        assert arc is not None, "nothing to renounce"
        self.last = Remembered(self.start, self.boundary, self.marks)
        self.start, self.boundary, self.before, self.marks, self.doubtful = None, None, (), (), ()
        return [events.ArcLost(self.me.id, arc, self.epoch, "renounced")]

    def learn_boundary(
        self,
        predecessor: Contact,
        further: Iterable[Contact] = (),
        now: float = 0.0,
        keep_s: float = 0.0,
        *,
        keeps_all: bool = False,
    ) -> None:
        """Record the vnodes before the arc, as the predecessor at its start names them.

        Arcs that moved to this predecessor are no longer remembered, because lookups find it through the pointers from
        now on. If the predecessor is not at the start of the arc, nothing happens.

        The list of a newcomer, or of a vnode behind one, is short at first. So vnodes beyond its end stay for a while.

        Args:
            predecessor: the current predecessor.
            further: the predecessor's own predecessor list, nearest first. With the predecessor it spans up to N + 2
                nodes. That bound keeps two successive takeovers from both claiming a place in one preference list of at
                most N + 3 nodes.
            now: the current time, in seconds on the event loop's clock.
            keep_s: how long an unlisted vnode stays after a list last named it, in seconds.
            keeps_all: also keep vnodes that the list skips. Such a vnode may be on its way back to an arc that the
                predecessor took over, and hold the only copies there.
        """
        if predecessor.id == self.start:
            self.boundary = predecessor
            listed = self._backwards(predecessor, further)
            unlisted = {c.id: c for c in self.before if keeps_all or between(self.me.id, c.id, listed[-1].id)}
            for contact in listed:
                unlisted.pop(contact.id, None)
            heard_at = now if self._listed_at is None else self._listed_at
            named = {point: self._named.get(point, heard_at) for point in unlisted}
            kept = [c for c in unlisted.values() if now - named[c.id] <= keep_s]
            self.before, self._listed_at = self._sorted_backwards((*listed, *kept)), now
            self._named = {c.id: named[c.id] for c in kept} or _NONE_NAMED
            self.moved = tuple(m for m in self.moved if m.to.id != predecessor.id)

    def _backwards(self, nearest: Contact, further: Iterable[Contact]) -> tuple[Contact, ...]:
        """Return `nearest` and the vnodes behind it, up to the first that is out of order.

        Each vnode must lie farther before this vnode than the one in front of it.
        """
        found = [nearest]
        for contact in further:
            if not between(self.me.id, contact.id, found[-1].id):
                break
            found.append(contact)
        return tuple(found)

    def _sorted_backwards(self, contacts: Iterable[Contact]) -> tuple[Contact, ...]:
        """Return the vnodes sorted by their distance before this vnode, nearest first."""
        end = self.me.id
        return tuple(sorted(contacts, key=lambda c: (c.id < end, c.id), reverse=True))

    def doubt(self, arc: Arc) -> None:
        """Note that this vnode may lack acknowledged writes in an arc."""
        self.sure(arc)
        self.doubtful = (arc, *self.doubtful)

    def sure(self, arc: Arc) -> None:
        """Note that this vnode knows all writes in an arc, or has given the arc up."""
        self.doubtful = tuple(left for doubtful in self.doubtful for left in _without(doubtful, arc))

    def is_doubtful(self, arc: Arc) -> bool:
        """Return whether this vnode may lack acknowledged writes in some part of an arc."""
        return any(overlap(doubtful, arc) for doubtful in self.doubtful)

    def expire(self, now: float, down_out_s: float) -> None:
        """Drop the marks of owners that have been down too long.

        The limit is `down_out_s` seconds before `now`, on the event loop's clock. By then other nodes have copies of
        the records of such an owner. If N = 1, no other node has copies, and the caller must not call this.
        """
        if self.marks:
            self.marks = tuple(t for t in self.marks if now - t.since < down_out_s)

    def mark(self, arc: Arc, others: Iterable[Contact], now: float) -> None:
        """Mark an arc for each of the vnodes `others`, which may hold the only copies of records there.

        `now` is the time from which they count as down, in seconds on the event loop's clock. This method does not
        check N: the caller must call it only if N = 1.
        """
        marked = {(t.arc, t.dead.id) for t in self.marks}
        self.marks = (*self.marks, *(Mark(arc, c, now) for c in others if (arc, c.id) not in marked))

    def learn_marks(self, arc: Arc, marks: Iterable[Mark]) -> None:
        """Adopt another vnode's marks, as far as they lie in an arc.

        Marks that name this vnode as down are left out. So are those beyond the number that a `Switch` can carry.
        """
        found = [mark._replace(arc=part) for mark in marks for part in _common(mark.arc, arc)]
        known = {(mark.arc, mark.dead.id) for mark in self.marks}
        new = [m for m in found if (m.arc, m.dead.id) not in known and m.dead.id != self.me.id]
        self.marks = (*self.marks, *new[: max(0, LIST_ENTRIES_MAX - len(self.marks))])

    def learn_only_copies(self, unreachable: Iterable[tuple[Contact, float]]) -> None:
        """Mark the parts of the arc for which down vnodes may hold the only copies.

        This method does not check N: the caller must call it only if N = 1. A down vnode inside the arc may hold the
        only copies of the records from the arc's start to its id. A vnode that comes back to its arc has no marks, and
        learns the down vnodes from its successor, which had marks for them.

        Args:
            unreachable: down vnodes, each with the time when it went down, in seconds on the event loop's clock. Vnodes
                outside the arc are ignored.
        """
        known = {mark.dead.id for mark in self.marks}
        for contact, since in unreachable:
            if self.start is not None and between(self.start, contact.id, self.me.id) and contact.id not in known:
                self.marks = (*self.marks, Mark(Arc(self.start, contact.id), contact, since))

    def fetched(self, mark: Mark) -> None:
        """Drop a mark: its owner is back, and this node has all records of that part."""
        self.marks = tuple(t for t in self.marks if t != mark)

    def owner_left(self, vnodes: Container[Point]) -> None:
        """Drop the marks of the owners with these ids, which left, or which an operator has forgotten."""
        if self.marks:
            self.marks = tuple(t for t in self.marks if t.dead.id not in vnodes)

    # -- views ----------------------------------------------------------------------------------

    def arcs(self) -> tuple[OwnedArc, ...]:
        """Return this vnode's arc, then the marked, giving and moved arcs, for status reports.

        If this vnode owns no arc, the result may still have moved arcs.
        """
        if self.start is None:
            found: list[OwnedArc] = []
        else:
            found = [OwnedArc(self.start, self.me.id, self.epoch, "owned", self.boundary)]
        found += [OwnedArc(t.arc.start, t.arc.end, self.epoch, "taken_over", t.dead) for t in self.marks]
        if self.giving is not None:
            found.append(OwnedArc(*self.giving.arc, self.giving.epoch, "giving", self.giving.to))
        found += [OwnedArc(*m.arc, m.epoch, "moved", m.to) for m in self.moved]
        return tuple(found)

    def check(self) -> list[str]:
        """Return the local invariants that do not hold, in words; empty if all hold."""
        wrong: list[str] = []
        arc = self.arc
        if arc is None and (self.giving or self.marks):
            wrong.append("marks without an arc")
        if arc is not None and self.giving is not None and self.giving.arc.start != arc.start:
            wrong.append("giving is not at the low end")
        if arc is not None:
            wrong += [f"mark {t.arc} outside {arc}" for t in self.marks if t.arc.end not in arc]
        return wrong

    # -- inside ---------------------------------------------------------------------------------

    def _gain(
        self,
        start: Point,
        boundary: Contact | None,
        how: Literal["created", "received", "taken_over", "resumed"],
        epoch: int,
        arc: Arc | None = None,
    ) -> list[Event]:
        gained = arc or Arc(start, self.me.id)
        self.start, self.boundary, self.epoch = start, boundary, epoch
        self.before = () if boundary is None else (boundary,)
        self.moved = tuple(m for m in self.moved if m.arc.end not in gained)
        assert not self.check(), self.check()
        return [events.ArcGained(self.me.id, gained, epoch, how)]

    def _let_go(self, lost: Giving) -> None:
        end = lost.arc.end
        self.sure(lost.arc)
        if end == self.me.id:
            self.start, self.boundary, self.before, self.marks = None, None, (), ()
        else:
            self.start, self.boundary = end, lost.to
            self.before = (lost.to, *self.before)[:MOVED_MAX]
            kept = []
            for mark in self.marks:
                if mark.arc.end not in lost.arc:  # the mark reaches above the new start: keep that part
                    start = end if end in mark.arc else mark.arc.start
                    kept.append(mark._replace(arc=Arc(start, mark.arc.end)))
            self.marks = tuple(kept)
        self.moved = (*self.moved, lost)[-MOVED_MAX:]
        assert not self.check(), self.check()


def overlap(one: Arc, other: Arc) -> bool:
    """Return whether two arcs have a point in common."""
    return one.end in other or other.end in one


def _common(one: Arc, other: Arc) -> list[Arc]:
    """Return the parts that two arcs have in common: at most two."""
    found = [one]
    for apart in _without(one, other):
        found = [part for arc in found for part in _without(arc, apart)]
    return found


def _without(arc: Arc, part: Arc) -> list[Arc]:
    """Return the parts of an arc that lie outside another arc."""
    if part.is_whole:
        return []
    if not overlap(arc, part):
        return [arc]
    begins, ends = between(arc.start, part.start, arc.end), between(arc.start, part.end, arc.end)
    if begins and ends and between(arc.start, part.end, part.start):
        return [Arc(part.end, part.start)]
    return [Arc(arc.start, part.start)] * begins + [Arc(part.end, arc.end)] * ends


def _distinct(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """Return the marks without repeats. Of several marks of one part for one owner, the latest stays.

    A vnode that returns has its own marks, and gets those of its heir, which may be equal. Otherwise the marks would
    grow with each absence, until one message could no longer carry them.
    """
    found: dict[tuple[Arc, Point], Mark] = {}
    for mark in marks:
        same = found.get((mark.arc, mark.dead.id))
        if same is None or same.since < mark.since:
            found[mark.arc, mark.dead.id] = mark
    return tuple(found.values())


def marks_within(marks: Iterable[Mark], arc: Arc) -> list[Mark]:
    """Return the marks in the low end of an arc, for its transfer.

    `arc` is the low end, which begins where the owner's arc begins. A mark that reaches beyond its end is cut there.
    """
    found: list[Mark] = []
    for mark in marks:
        if mark.arc.end in arc:
            found.append(mark)
        elif arc.end in mark.arc and arc.end != mark.arc.start:
            found.append(mark._replace(arc=Arc(mark.arc.start, arc.end)))
    return found

"""Which arcs a vnode answers for, and in which epoch. Nothing else decides who owns a key.

`ring/pointers.py` says who the neighbours are; a pointer change never moves ownership by itself. A vnode
answers for one contiguous arc (start, me]. Inside it, `taken` marks parts whose previous owner
is silent and waited for; `giving` is the part at its low end that is being switched to another
vnode; `moved` are arcs before `start` that were switched away and whose new owner is not yet the
predecessor. The epoch grows with every change, so that a repeated Switch is recognised.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Literal, NamedTuple

from chord import events
from chord.events import Event
from chord.ids import Arc, Point, between
from chord.wire.messages import Contact, OwnedArc

_NONE_NAMED: dict[Point, float] = {}  # never changed; one for all vnodes
MOVED_MAX = 16  # remembered moves; a lookup that knows only an older one finds its way by the pointers


class Taken(NamedTuple):
    """A part of the arc whose owner is silent, and waited for."""

    arc: Arc
    dead: Contact
    since: float


class Giving(NamedTuple):
    """A part of the arc that is being switched: from the Switch until its acknowledgement."""

    arc: Arc
    to: Contact
    epoch: int


class Verdict(NamedTuple):
    """What a vnode says about a point: yes, retry (being switched), moved to `peer`, or not mine.

    `taken` is set with yes: an absent key there is not proof of absence.
    """

    answer: Literal["owned", "giving", "moved", "foreign"]
    peer: Contact | None = None
    taken: Taken | None = None


_OWNED = Verdict("owned")


class Remembered(NamedTuple):
    """An arc that was held before a restart, or given up: where it began, at whom, and its marks."""

    start: Point | None = None
    boundary: Contact | None = None
    taken: tuple[Taken, ...] = ()


class Ownership:
    """The arc of one vnode. `start` is None while it answers for nothing; equal to its id, for the whole circle."""

    __slots__ = (
        "_listed_at",
        "_named",
        "before",
        "boundary",
        "doubtful",
        "epoch",
        "giving",
        "last",
        "me",
        "moved",
        "start",
        "taken",
    )

    def __init__(self, me: Contact) -> None:
        self.me = me
        self.start: Point | None = None
        self.boundary: Contact | None = None  # the vnode known to stand at `start`
        self.before: tuple[Contact, ...] = ()  # who was last seen to stand at and before `start`, nearest first
        self._listed_at: float | None = None  # when the predecessor was asked for its list
        self._named = _NONE_NAMED  # when those beyond its end were named last
        self.epoch = 0
        self.giving: Giving | None = None
        self.doubtful: tuple[Arc, ...] = ()  # where this vnode has not coordinated every write since it knew all
        self.taken: tuple[Taken, ...] = ()
        self.moved: tuple[Giving, ...] = ()
        self.last = Remembered()

    @property
    def arc(self) -> Arc | None:
        """The arc this vnode answers for, the part being given included."""
        return None if self.start is None else Arc(self.start, self.me.id)

    def verdict(self, point: int) -> Verdict:
        """Return what to say about a point."""
        if self.start is not None and point in Arc(self.start, self.me.id):
            if self.giving is not None and point in self.giving.arc:
                return Verdict("giving", self.giving.to)
            for taken in self.taken:
                if point in taken.arc:
                    return Verdict("owned", None, taken)
            return _OWNED
        for moved in reversed(self.moved):
            if point in moved.arc:
                return Verdict("moved", moved.to)
        return Verdict("foreign")

    def is_owner(self, point: int) -> bool:
        """Whether this vnode answers for a point right now."""
        return self.verdict(point).answer == "owned"

    # -- transitions ----------------------------------------------------------------------------

    def create(self) -> list[Event]:
        """Own the whole circle: the founder of a ring."""
        assert self.start is None
        return self._gain(self.me.id, self.me, "created", self.epoch + 1)

    def resume(self, start: Point, before: tuple[Contact, ...], epoch: int = 0) -> list[Event]:
        """Own (start, me] again after a restart that nobody noticed, with the remembered marks that lie in it.

        Args:
            before: who was last seen to stand at `start` and before it, nearest first; as much as is known.
        """
        assert self.start is None
        boundary = before[0] if before and before[0].id == start else None
        gained = self._gain(start, boundary, "resumed", max(self.epoch, epoch) + 1)
        self.before = before
        self.taken = self._recalled(Arc(start, self.me.id))
        self.doubt(Arc(start, self.me.id))
        assert not self.check(), self.check()
        return gained

    def receive(
        self, arc: Arc, epoch: int, boundary: Contact | None, taken: Iterable[Taken], before: Iterable[Contact] = ()
    ) -> list[Event]:
        """Own an arc that was switched to this vnode: its first (a join) or one right before its own (a leave).

        Args:
            boundary, before: who stands where the arc begins and before that, nearest first; as much as is known. If
                all of them die at once, each is waited for.

        Returns:
            No events if the arc does not fit; then nothing changed and the giver keeps it.
        """
        fits = arc.end == self.me.id if self.start is None else arc.end == self.start and self.me.id not in arc
        if not fits or self.giving is not None:
            return []
        marks = (*self._without_mine(taken, arc), *self._recalled(arc), *self.taken)
        gained = self._gain(arc.start, boundary, "received", max(self.epoch + 1, epoch), arc)
        if boundary is not None:
            self.before = self._backwards(boundary, before)
        self.taken = marks
        assert not self.check(), self.check()
        return gained

    def _without_mine(self, taken: Iterable[Taken], arc: Arc) -> Iterator[Taken]:
        """Yield the marks of an arc as they are now that I am back: of what I owned nothing is missing any more.

        Who took over from me may have marked more as mine than I ever owned, because it did not know who died before.
        """
        old = self.last.start
        for mark in taken:
            if mark.dead.id != self.me.id:
                yield mark
            elif old is not None and old in mark.arc and old in arc and old != self.me.id:
                yield mark._replace(arc=Arc(mark.arc.start, old), dead=self.last.boundary or mark.dead)

    def _recalled(self, arc: Arc) -> tuple[Taken, ...]:
        """Return the remembered marks that lie in an arc, once: whoever took it over meanwhile knew only of me."""
        found = tuple(t for t in self.last.taken if t.arc.end in arc and t.dead.id != self.me.id)
        self.last = self.last._replace(taken=tuple(t for t in self.last.taken if t not in found))
        return tuple(t._replace(arc=Arc(arc.start, t.arc.end)) if arc.start in t.arc else t for t in found)

    def begin_switch(self, end: Point, to: Contact) -> Giving:
        """From now on answer *retry* for (start, end]: it is about to be `to`'s."""
        assert self.start is not None, "nothing to give"
        assert self.giving is None, "one switch at a time"
        assert end in Arc(self.start, self.me.id), "not mine to give"
        self.epoch += 1
        self.giving = Giving(Arc(self.start, end), to, self.epoch)
        return self.giving

    def finish_switch(self) -> list[Event]:
        """The receiver acknowledged: the arc is its own. Answer *moved* until it is the predecessor."""
        giving = self.giving
        assert giving is not None
        self.giving = None
        self._let_go(giving)
        return [events.ArcLost(self.me.id, giving.arc, giving.epoch, "moved")]

    def reclaim(self) -> list[Event]:
        """The receiver died before it acknowledged: own the arc again, two epochs on."""
        giving = self.giving
        assert giving is not None
        self.giving = None
        self.epoch = giving.epoch + 1
        return [events.ArcGained(self.me.id, giving.arc, self.epoch, "reclaimed")]

    def take_over(self, predecessor: Contact, dead: Iterable[Contact], now: float) -> list[Event]:
        """The owner before `start` is dead and `predecessor` names this vnode as its head: the gap is mine.

        Each of the `dead` in the gap answered for the part that ends at it: that part is marked as its.

        Source: protocol of this project; compare Scatter (SOSP 2011), section 2, on the two-owner anomaly.
        """
        if self.start is None or self.giving is not None or between(self.start, predecessor.id, self.me.id):
            return []
        if predecessor.id == self.start:
            return []
        gap = Arc(predecessor.id, self.start)
        marks: list[Taken] = []
        low = predecessor.id
        for contact in sorted(dead, key=lambda c: (c.id < predecessor.id, c.id)):  # clockwise from the predecessor
            if contact.id in gap:
                marks.append(Taken(Arc(low, contact.id), contact, now))
                low = contact.id
        gained = self._gain(predecessor.id, predecessor, "taken_over", self.epoch + 1, gap)
        self.taken = (*marks, *self.taken)
        self.doubt(gap)
        assert not self.check(), self.check()
        return gained

    def learn_silent(self, silent: Iterable[tuple[Contact, float]]) -> None:
        """Others are known to be silent, and since when: those that stood in a marked part owned what ends at them.

        Who took over named all whom its predecessor list did, and that may have been too short. The owner that it named
        may have taken such a part over, so its own mark stays whole.
        """
        known = {mark.dead.id for mark in self.taken} | {self.me.id}
        for contact, since in silent:
            for at, mark in enumerate(self.taken):
                if contact.id in mark.arc and contact.id != mark.arc.end and contact.id not in known:
                    part = Taken(Arc(mark.arc.start, contact.id), contact, since)
                    self.taken = (*self.taken[:at], part, *self.taken[at:])
                    break

    def shrink(self, predecessor: Contact) -> list[Event]:
        """A member that joined elsewhere (healed split, untangled loop) stands inside my arc: that part is its own."""
        if self.start is None or self.giving is not None or not between(self.start, predecessor.id, self.me.id):
            return []
        self.epoch += 1
        lost = Giving(Arc(self.start, predecessor.id), predecessor, self.epoch)
        self._let_go(lost)
        return [events.ArcLost(self.me.id, lost.arc, self.epoch, "shrunk")]

    def renounce(self) -> list[Event]:
        """The giver had given this vnode up before it heard the acknowledgement: the arc is another's."""
        assert self.giving is None
        arc = self.arc
        assert arc is not None, "nothing to renounce"
        self.last = Remembered(self.start, self.boundary, self.taken)
        self.start, self.boundary, self.before, self.taken, self.doubtful = None, None, (), (), ()
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
        """The predecessor stands exactly where my arc begins: moves to it are common knowledge now.

        A list that a newcomer tells, or a vnode behind a newcomer, is short at first. So the vnodes beyond its end stay
        for a while.

        Args:
            now, keep_s: how long they stay, in seconds, after they were named last.
            keeps_all: the vnodes that the list passes over stay as well. Such a vnode may be on its way back to an arc
                that the predecessor took over, and have the only copies there.
            further: who stands before it, as far as it knows: N + 2 nodes with it. A key has N + 3 places at most: two
                who took over from that many, and do not know who else is silent, are not both among the key's places.
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
        """Return these vnodes as far as each stands before the last, and none of them behind me."""
        found = [nearest]
        for contact in further:
            if not between(self.me.id, contact.id, found[-1].id):
                break
            found.append(contact)
        return tuple(found)

    def _sorted_backwards(self, contacts: Iterable[Contact]) -> tuple[Contact, ...]:
        """Return these vnodes, the nearest before me first."""
        end = self.me.id
        return tuple(sorted(contacts, key=lambda c: (c.id < end, c.id), reverse=True))

    def doubt(self, arc: Arc) -> None:
        """Others coordinated writes of this part, and this vnode may have missed what they acknowledged."""
        self.sure(arc)
        self.doubtful = (arc, *self.doubtful)

    def sure(self, arc: Arc) -> None:
        """All that was acknowledged in this part is known here, or it is another's affair."""
        self.doubtful = tuple(left for doubtful in self.doubtful for left in _without(doubtful, arc))

    def is_doubtful(self, arc: Arc) -> bool:
        """Whether anything may have been acknowledged in some part of this arc that is not known here."""
        return any(overlap(doubtful, arc) for doubtful in self.doubtful)

    def expire(self, now: float, down_out_s: float) -> None:
        """Stop waiting for owners that have been down too long: other nodes have copies of their records."""
        if self.taken:
            self.taken = tuple(t for t in self.taken if now - t.since < down_out_s)

    def mark(self, arc: Arc, others: Iterable[Contact], now: float) -> None:
        """Each of these vnodes may have taken this part over while this node stood still, and have the only copies."""
        marked = {(t.arc, t.dead.id) for t in self.taken}
        self.taken = (*self.taken, *(Taken(arc, c, now) for c in others if (arc, c.id) not in marked))

    def learn_marks(self, arc: Arc, marks: Iterable[Taken]) -> None:
        """Take over the marks of another vnode that lie in an arc of mine: it waited for these owners there."""
        found = [mark._replace(arc=part) for mark in marks for part in _common(mark.arc, arc)]
        known = {(mark.arc, mark.dead.id) for mark in self.taken}
        self.taken = (*self.taken, *(m for m in found if (m.arc, m.dead.id) not in known and m.dead.id != self.me.id))

    def learn_only_copies(self, silent: Iterable[tuple[Contact, float]]) -> None:
        """Each of these silent vnodes that stood inside this arc has the only copies of a part that ends at it.

        A vnode that returns to its arc has no marks. The vnode behind it had them, and names the silent ones to it.
        """
        known = {mark.dead.id for mark in self.taken}
        for contact, since in silent:
            if self.start is not None and between(self.start, contact.id, self.me.id) and contact.id not in known:
                self.taken = (*self.taken, Taken(Arc(self.start, contact.id), contact, since))

    def fetched(self, mark: Taken) -> None:
        """Drop a mark, because all records that the returned owner had of the marked part are here."""
        self.taken = tuple(t for t in self.taken if t != mark)

    def owner_left(self, vnodes: Container[Point]) -> None:
        """Wait no longer for dead owners that have left, or that an operator has given up."""
        if self.taken:
            self.taken = tuple(t for t in self.taken if t.dead.id not in vnodes)

    # -- views ----------------------------------------------------------------------------------

    def arcs(self) -> tuple[OwnedArc, ...]:
        """Return every arc this vnode has a say in, its own first, for status and checkers."""
        if self.start is None:
            found: list[OwnedArc] = []
        else:
            found = [OwnedArc(self.start, self.me.id, self.epoch, "owned", self.boundary)]
        found += [OwnedArc(t.arc.start, t.arc.end, self.epoch, "taken_over", t.dead) for t in self.taken]
        if self.giving is not None:
            found.append(OwnedArc(*self.giving.arc, self.giving.epoch, "giving", self.giving.to))
        found += [OwnedArc(*m.arc, m.epoch, "moved", m.to) for m in self.moved]
        return tuple(found)

    def check(self) -> list[str]:
        """Return what is wrong with the state, nothing when all is well."""
        wrong: list[str] = []
        arc = self.arc
        if arc is None and (self.giving or self.taken):
            wrong.append("marks without an arc")
        if arc is not None and self.giving is not None and self.giving.arc.start != arc.start:
            wrong.append("giving is not at the low end")
        if arc is not None:
            wrong += [f"taken {t.arc} outside {arc}" for t in self.taken if t.arc.end not in arc]
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
            self.start, self.boundary, self.before, self.taken = None, None, (), ()
        else:
            self.start, self.boundary = end, lost.to
            self.before = (lost.to, *self.before)[:MOVED_MAX]
            kept = []
            for mark in self.taken:
                if mark.arc.end not in lost.arc:  # wholly above, or cut: keep the part above the new start
                    start = end if end in mark.arc else mark.arc.start
                    kept.append(mark._replace(arc=Arc(start, mark.arc.end)))
            self.taken = tuple(kept)
        self.moved = (*self.moved, lost)[-MOVED_MAX:]
        assert not self.check(), self.check()


def overlap(one: Arc, other: Arc) -> bool:
    """Whether two arcs have a point in common."""
    return one.end in other or other.end in one


def _common(one: Arc, other: Arc) -> list[Arc]:
    """Return the parts that two arcs have in common: at most two."""
    found = [one]
    for apart in _without(one, other):
        found = [part for arc in found for part in _without(arc, apart)]
    return found


def _without(arc: Arc, part: Arc) -> list[Arc]:
    """Return what is left of an arc without another."""
    if part.is_whole:
        return []
    if not overlap(arc, part):
        return [arc]
    begins, ends = between(arc.start, part.start, arc.end), between(arc.start, part.end, arc.end)
    if begins and ends and between(arc.start, part.end, part.start):
        return [Arc(part.end, part.start)]
    return [Arc(arc.start, part.start)] * begins + [Arc(part.end, arc.end)] * ends


def marks_within(taken: Iterable[Taken], arc: Arc) -> list[Taken]:
    """Return the marks, or the parts of them, that lie within an arc with the same start as the owner's."""
    found: list[Taken] = []
    for mark in taken:
        if mark.arc.end in arc:
            found.append(mark)
        elif arc.end in mark.arc and arc.end != mark.arc.start:
            found.append(mark._replace(arc=Arc(mark.arc.start, arc.end)))
    return found

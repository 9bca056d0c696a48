"""Preference lists: which nodes hold which records, including nodes that are down.

`ring/pointers.py` forgets a vnode within seconds after it goes down, but the records on that vnode still count. A down
vnode stays in the replica sets until one of these events:

- It is back.
- It has left the ring.
- An operator forgets it.
- It has been down for `down_out_s`.

Otherwise every restart would move records, and failures would lower W.

The marks of `ring/ownership.py` remember the down vnodes before this one: those with arcs that it took over. The
`PreferenceList` remembers the down vnodes behind this one. It is fed like the successor list. Beyond the head of the
list the head's view counts. Up to the head this vnode's own view counts.

Linearizable keys would need views that a majority of the previous view has agreed on. Such an agreement would belong in
this module.

Times are in seconds on the event loop's clock.

Source: DeCandia et al. 2007 (Dynamo), section 4.3 (preference lists over distinct nodes), 4.8.1 (explicit membership).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from chord.ids import Arc, Circle, Point
from chord.ring.ownership import Mark, Ownership
from chord.ring.pointers import RingState
from chord.wire.messages import LIST_ENTRIES_MAX, Contact

IN_SYNC_MAX = 64
RETIRING_MAX = 64


class Place(NamedTuple):
    """A node's place in a preference list, which goes clockwise from a key."""

    contact: Contact  # the node's first vnode behind the key
    is_waited_for: bool  # whether the vnode is down and still counts as a replica


class Forgotten(NamedTuple):
    """An operator's statement that the node at an address will never be back."""

    at: float  # when the operator said so, in seconds
    living: frozenset[Point]  # the vnodes of another node that lived at the address at that time


class ReplicaSet(NamedTuple):
    """The nodes that hold a key."""

    members: tuple[Place, ...]  # the replicas of the key, in preference order
    stand_ins: tuple[Place, ...]  # the nodes behind them, which stand in for members that are down
    retiring: tuple[Place, ...] = ()  # nodes that still hold the key and are about to leave

    @property
    def everyone(self) -> tuple[Place, ...]:
        """Every node that may hold the key: members, stand-ins, then leaving nodes."""
        return (*self.members, *self.stand_ins, *self.retiring)


class PreferenceList:
    """The knowledge of one vnode about down vnodes behind it, and about the arcs in which it is in sync.

    A vnode is *in sync* in an arc if a node that knows all acknowledged writes confirmed that the vnode holds what a
    replica must.

    Concurrency: every method is synchronous.
    """

    __slots__ = (
        "_behind",
        "_cached",
        "_circle",
        "_compared",
        "_forgotten",
        "_in_sync",
        "_known_since",
        "_me",
        "_outage",
        "_recalled",
        "_retiring",
        "_unreachable",
    )

    def __init__(self, me: Contact, circle: Circle) -> None:
        self._me = me
        self._circle = circle
        self._unreachable: dict[Point, tuple[Contact, float]] = {}  # and when it went down; not changed but replaced
        self._retiring: dict[str, float] = {}  # address to time; not changed but replaced: see `_cached`
        self._cached: tuple[tuple[object, ...], ReplicaSet] | None = None  # inputs, result
        self._forgotten: dict[str, Forgotten] = {}
        self._in_sync: dict[Point, Arc] = {}  # by the arc's end
        self._compared: dict[str, None] = {}  # owners that compared since the last standstill; the latest last
        self._recalled: dict[Point, Arc] = {}  # likewise; in sync before an absence
        self._behind: tuple[Contact, ...] = ()  # the vnodes behind this one
        self._known_since: tuple[float, ...] = ()  # since when each of them is known
        self._outage: tuple[float, float] | None = None  # when the latest outage began, and when a node was last down

    # -- learning -------------------------------------------------------------------------------

    def became_unreachable(self, contact: Contact, now: float) -> None:
        """Note that a vnode behind this one went down at the time `now`. It still counts as a replica.

        A vnode that is noted already keeps its earlier address and time. A forgotten vnode is ignored. `now` is
        in seconds on the event loop's clock.
        """
        if not self.is_forgotten(contact) and contact.id != self._me.id:
            self._unreachable = {contact.id: (contact, now), **self._unreachable}

    def adopt(
        self, successors: Sequence[Contact], unreachable: Iterable[tuple[Contact, float]], *, is_full: bool = False
    ) -> None:
        """Adopt the down vnodes that the head of the successor list knows.

        Beyond the head they replace this vnode's own knowledge. If both know a vnode, the later time counts. The caller
        has copied the head's successor list before.

        Args:
            successors: this vnode's successor list; its first entry is the head. Listed vnodes do not count as down.
            unreachable: the down vnodes that the head knows, each with the time when it went down, in seconds on the
                event loop's clock.
            is_full: whether the list spans r other nodes. If so, down vnodes beyond its end are ignored. Otherwise they
                count, also if the list is cut: without them, the ring would have fewer nodes, and a write a smaller W.
        """
        limit = self._distance(successors[0].id)
        last = self._distance(successors[-1].id) if is_full else self._circle.size
        kept = {point: down for point, down in self._unreachable.items() if self._distance(point) < limit}
        for contact, since in unreachable:
            is_near = contact.id != self._me.id and self._distance(contact.id) <= last
            if is_near and not self.is_forgotten(contact):
                old = self._unreachable.get(contact.id)
                kept[contact.id] = (contact, since if old is None else max(since, old[1]))
        for contact in successors:
            kept.pop(contact.id, None)
        self._replace(dict(sorted(kept.items(), key=lambda item: self._distance(item[0]))[:LIST_ENTRIES_MAX]))

    def note_neighbours(
        self, successors: Iterable[Contact], marks: Iterable[Mark], now: float, down_out_s: float, margin_s: float
    ) -> None:
        """Note since when each vnode behind this one is known, and the latest outage.

        During an outage, at least one vnode before or behind this one is down and still counts as a replica. `may_hold`
        uses both. An outage counts until `down_out_s` seconds after its end. By then the nodes that returned
        have brought records home.

        Args:
            successors: this vnode's successor list.
            marks: the parts of the arc that down owners had.
            now: the current time, in seconds on the event loop's clock.
            down_out_s: how long a down node keeps its place as a replica, in seconds.
            margin_s: how long a node can be down before others notice, in seconds.
        """
        behind = tuple(successors) + tuple([contact for contact, _ in self._unreachable.values()])
        if behind != self._behind:
            known = {contact.id: since for contact, since in zip(self._behind, self._known_since, strict=True)}
            self._behind, self._known_since = behind, tuple([known.get(contact.id, now) for contact in behind])
        unreachable = [since for _, since in self._unreachable.values()] + [mark.since for mark in marks]
        if self._outage is not None and now - self._outage[1] > down_out_s:
            self._outage = None
        if unreachable:
            outage_at = min(unreachable) - margin_s
            began = outage_at if self._outage is None else min(self._outage[0], outage_at)
            self._outage = max(began, now - 2 * down_out_s), now

    def may_hold(
        self, key: int, ring: RingState, own: Ownership, unreachable: Iterable[Contact], places: int, since: float
    ) -> tuple[Place, ...]:
        """Return the nodes beyond the replica set of a key that may hold it.

        A newcomer is a vnode that became known only lately. It moves an older node one place back. If the other part of
        a split ring does not know the newcomer, that older node may still take writes of the key there. So newcomers do
        not count towards the places of a key.

        Args:
            key: a point of the circle.
            ring: this vnode's pointers.
            own: this vnode's arc.
            unreachable: down nodes that may stand beyond the end of the successor list.
            places: the number of nodes that may hold a key, stand-ins included.
            since: a vnode that became known after this time, or after an outage began, is a newcomer. In seconds on the
                event loop's clock.
        """
        limit = since if self._outage is None else min(since, self._outage[0])
        found, older = list[Place](), 0
        behind = (Place(contact, True) for contact in unreachable) if ring.is_full else ()
        for place in chain(self.walk(key, ring, own), behind):
            if older == places:
                break
            is_met = any(place.contact.address == other.contact.address for other in found)
            if place.contact.address not in self._retiring and not is_met:
                found.append(place)
                known_since = self._since(place.contact.id)
                older += place.is_waited_for or known_since is None or known_since < limit
        return tuple(found[places:])

    def _since(self, point: Point) -> float | None:
        """Return since when a vnode behind this one is known, or None."""
        for contact, since in zip(self._behind, self._known_since, strict=True):
            if contact.id == point:
                return since
        return None

    def gone(self, vnodes: Container[Point]) -> None:
        """Drop the down vnodes with these ids, which have left the ring: they are no replicas any more."""
        self._replace({point: down for point, down in self._unreachable.items() if point not in vnodes})

    def forget(
        self, address: str, now: float, living: frozenset[Point] = frozenset(), *, forgotten_max: int = 256
    ) -> None:
        """Drop the down vnodes of a node that will not be back, as an operator says.

        While its address is remembered, other vnodes cannot report the node as a down replica again.

        Args:
            address: the address of the node.
            now: the current time, in seconds on the event loop's clock.
            living: the vnodes of another node that lives at the address now. They are not dropped.
            forgotten_max: how many addresses to remember. Beyond it the earliest is dropped.
        """
        there = {p for p, (contact, _) in self._unreachable.items() if contact.address == address}
        self.gone(there - living)
        if not living:
            self.stays(address)
        self._forgotten.pop(address, None)
        self._forgotten[address] = Forgotten(now, living)
        while len(self._forgotten) > forgotten_max:
            del self._forgotten[next(iter(self._forgotten))]

    def retires(self, address: str, now: float) -> None:
        """Note that the node at an address is about to leave: it still holds records, but is no member of replica sets.

        `now` is the current time, in seconds on the event loop's clock.
        """
        self.stays(address)
        self._retiring = dict([*self._retiring.items(), (address, now)][-RETIRING_MAX:])

    def is_back(self, address: str) -> None:
        """Note that the node at an address is up: it counts neither as leaving nor as forgotten.

        Its vnodes still count as down until `adopt` gets them in the successor list.
        """
        self.stays(address)
        self._forgotten.pop(address, None)

    def stays(self, address: str) -> None:
        """Note that the node at an address no longer counts as leaving, because it has left or stays."""
        if address in self._retiring:
            self._retiring = {other: since for other, since in self._retiring.items() if other != address}

    def expire(self, now: float, down_out_s: float, leave_s: float, *, is_waiting: bool = False) -> None:
        """Drop the knowledge of nodes that have been down or leaving for too long.

        This changes replica sets. A vnode that has been down for `down_out_s` seconds is no replica any more. A node
        counts as leaving for at most `leave_s` seconds. A node that was killed during its leave may come back, and its
        notice of that may get lost.

        Args:
            now: the current time, in seconds on the event loop's clock.
            down_out_s: how long a down vnode counts as a replica, in seconds.
            leave_s: how long a node counts as leaving, in seconds.
            is_waiting: whether this node waits for nodes that are down. If so, forgotten nodes stay remembered.
        """
        self._replace({point: down for point, down in self._unreachable.items() if now - down[1] < down_out_s})
        if any(now - since >= leave_s for since in self._retiring.values()):
            self._retiring = {node: since for node, since in self._retiring.items() if now - since < leave_s}
        if not is_waiting:
            forgotten = self._forgotten.items()
            self._forgotten = {address: it for address, it in forgotten if now - it.at < down_out_s}

    def note_in_sync(self, end: Point, arc: Arc) -> None:
        """Note that this vnode is in sync in an arc.

        The caller has checked that the vnode holds what a replica must. `end`, the end of the arc, names the entry. A
        later call with the same `end` replaces the entry, unless the earlier arc was longer.
        """
        self._add(self._in_sync, end, arc)

    def note_was_in_sync(self, end: Point, arc: Arc) -> None:
        """Note that this vnode was in sync in an arc before an absence.

        That alone is no reason to report a key there as "not found". `end` names the entry, as in `note_in_sync`.
        """
        self._add(self._recalled, end, arc)

    def was_away(self) -> None:
        """Note that this node was suspended, so others may have written in any arc.

        This vnode is no longer in sync in any arc: its arcs become those in which it was in sync before an absence. No
        owner counts as having compared.
        """
        for end, arc in self._in_sync.items():
            self.note_was_in_sync(end, arc)
        self._in_sync = {}
        self._compared = {}

    def compares(self, address: str) -> None:
        """Note that the node at an address compares its records with this vnode's; see `was_compared`."""
        self._compared.pop(address, None)
        self._compared[address] = None
        while len(self._compared) > IN_SYNC_MAX:
            del self._compared[next(iter(self._compared))]

    def was_compared(self, address: str) -> bool:
        """Return whether a node has compared its records with this vnode's since the last `was_away`.

        Without a `was_away`, every comparison since the start counts. Only such a node may declare this vnode in sync.
        """
        return address in self._compared

    def _add(self, marks: dict[Point, Arc], end: Point, arc: Arc) -> None:
        known = marks.pop(end, arc)
        length = self._circle.length
        is_longer = known.end == arc.end and length(known.start, arc.end) > length(arc.start, arc.end)
        marks[end] = known if is_longer else arc  # an arc that was in sync before still is
        while len(marks) > IN_SYNC_MAX:
            del marks[next(iter(marks))]

    def keep_in_sync(self, arcs: list[Arc]) -> None:
        """Drop the in-sync status outside the given arcs, which this vnode replicates.

        Outside them this vnode does not receive the writes, so it may miss some. The status from before an absence is
        dropped there, too.
        """
        self._in_sync, self._recalled = self._kept(self._in_sync, arcs), self._kept(self._recalled, arcs)

    def keep_in_sync_by_owner(self, gap: Arc, owners: Iterable[Point]) -> None:
        """In a gap of dead owners, keep only the in-sync status that each owner set.

        An arc in sync that ends in the gap is cut to the owner's part in which it ends. An arc that ends outside is cut
        at the end of the gap. The rest is older than the arc of another dead owner, which may have acknowledged writes
        since.

        Args:
            gap: the arc without an owner.
            owners: the ids of the dead owners. Each owned the part of the gap that ends at its id.
        """
        ends = sorted({gap.start, gap.end, *owners}, key=lambda point: self._circle.distance(gap.start, point))
        own_arcs = [Arc(start, end) for start, end in pairwise(ends)]
        self._in_sync = self._clipped(self._in_sync, gap, own_arcs)
        self._recalled = self._clipped(self._recalled, gap, own_arcs)

    def _clipped(self, marks: dict[Point, Arc], gap: Arc, own_arcs: list[Arc]) -> dict[Point, Arc]:
        rest = Arc(gap.end, gap.start)  # the circle outside the gap
        inside = self._kept({point: arc for point, arc in marks.items() if arc.end in gap}, own_arcs)
        outside = {point: arc for point, arc in marks.items() if arc.end not in gap}
        return {**self._kept(outside, [rest]), **inside}

    def _kept(self, marks: dict[Point, Arc], arcs: list[Arc]) -> dict[Point, Arc]:
        kept: dict[Point, Arc] = {}
        length = self._circle.length
        for end, arc in marks.items():
            reach = max((length(other.start, arc.end) for other in arcs if arc.end in other), default=0)
            if reach:
                is_inside = length(arc.start, arc.end) <= reach
                kept[end] = arc if is_inside else Arc(self._circle.point(arc.end - reach), arc.end)
        return kept

    # -- questions ------------------------------------------------------------------------------

    def unreachable(self) -> tuple[tuple[Contact, float], ...]:
        """Return the down vnodes behind this one, nearest first, each with the time when it went down.

        Times are in seconds on the event loop's clock.
        """
        return tuple(self._unreachable.values())

    def ever_in_sync(self) -> tuple[tuple[Point, Arc], ...]:
        """Return the arcs in which this vnode is in sync, or was before an absence.

        Each arc comes with its key, the `end` that `note_in_sync` got.
        """
        return (*self._recalled.items(), *self._in_sync.items())

    def is_forgotten(self, contact: Contact) -> bool:
        """Return whether an operator has said that a vnode will not be back."""
        forgotten = self._forgotten.get(contact.address)
        return forgotten is not None and contact.id not in forgotten.living

    def forgotten(self) -> int:
        """Return how many nodes that an operator has forgotten are remembered.

        Such a node is remembered for `down_out_s`, or longer while this node waits for nodes that are down.
        """
        return len(self._forgotten)

    def forgotten_since(self, at: float) -> int:
        """Return how many of the remembered nodes an operator has forgotten since a time.

        `at` is that time, in seconds on the event loop's clock.
        """
        return sum(forgotten.at >= at for forgotten in self._forgotten.values())

    def forgotten_addresses(self) -> tuple[tuple[str, tuple[Point, ...]], ...]:
        """Return the addresses of forgotten nodes, each with the vnodes that stay.

        These are the vnodes of another node that lived at the address when the operator forgot the former node.
        """
        return tuple((address, tuple(sorted(it.living))) for address, it in self._forgotten.items())

    def is_in_sync(self, point: int) -> bool:
        """Return whether this vnode is in sync in an arc that contains a point."""
        for arc in self._in_sync.values():  # noqa: SIM110  # every request asks, and a generator doubles the cost
            if point in arc:
                return True
        return False

    def is_arc_in_sync(self, arc: Arc) -> bool:
        """Return whether this vnode is in sync in all of an arc."""
        return self._is_covered(arc, list(self._in_sync.values()))

    def was_arc_in_sync(self, arc: Arc) -> bool:
        """Return whether this vnode is in sync in all of an arc, or was before an absence."""
        return self._is_covered(arc, [*self._in_sync.values(), *self._recalled.values()])

    def _is_covered(self, arc: Arc, marks: list[Arc]) -> bool:
        reached, ahead = arc.end, self._circle.length(arc.start, arc.end)
        while ahead > 0:
            parts = [mark for mark in marks if reached in mark]
            steps = [self._circle.length(part.start, reached) for part in parts]
            if not steps:
                return False
            step = max(steps)
            reached, ahead = self._circle.point(reached - step), ahead - step
        return True

    @property
    def retiring(self) -> tuple[str, ...]:
        """The addresses of the nodes that are about to leave."""
        return tuple(self._retiring)

    def walk(self, key: int, ring: RingState, own: Ownership) -> Iterator[Place]:
        """Yield the nodes clockwise from a key, each once, with its first vnode.

        The walk passes the down owners of parts of this vnode's arc, this vnode, and the vnodes behind it, down ones
        included. For a key before this vnode's arc the walk also passes the predecessors in between.
        """
        seen: dict[str, None] = {}
        for contact, is_waited_for in self._clockwise(key, ring, own):
            if contact.address not in seen:
                seen[contact.address] = None
                yield Place(contact, is_waited_for)

    def replica_set(self, key: int, ring: RingState, own: Ownership, replicas: int, stand_ins: int) -> ReplicaSet:
        """Return the replica set of a key: N nodes clockwise from the key, and stand-ins.

        Down nodes count. Otherwise the two halves of a split ring would keep moving on to other nodes. After the split
        has healed, an acknowledged write could then lie on nodes that no read asks.

        Args:
            key: a point of the circle.
            ring: this vnode's pointers.
            own: this vnode's arc.
            replicas: N.
            stand_ins: the number of stand-ins, the nodes behind the N members.
        """
        arc = own.arc
        if own.marks or arc is None or key not in arc:
            return self._replica_set(key, ring, own, replicas, stand_ins)
        source = (ring.successors, self._unreachable, self._retiring, own.start, replicas, stand_ins)
        cached = self._cached
        if cached is not None and cached[0] == source:
            return cached[1]
        found = self._replica_set(key, ring, own, replicas, stand_ins)
        behind = (*(contact.id for contact in ring.successors), *self._unreachable)
        if not any(point in arc for point in behind if point != self._me.id):
            self._cached = (source, found)  # without marks and other vnodes in the arc, all its keys have one set
        return found

    def _replica_set(self, key: int, ring: RingState, own: Ownership, replicas: int, stand_ins: int) -> ReplicaSet:
        places = list(self.walk(key, ring, own))
        staying = [place for place in places if place.contact.address not in self._retiring]
        if not staying:  # every node is about to leave
            staying = places
        last = replicas + stand_ins
        chosen = staying[:last]
        if replicas == 1 and chosen[0].contact != self._me:  # the only copy is down: this owner stands in
            chosen.append(Place(self._me, False))
        retiring = [place for place in places if place not in staying]
        return ReplicaSet(tuple(chosen[:replicas]), tuple(chosen[replicas:]), tuple(retiring[:last]))

    # -- inside ---------------------------------------------------------------------------------

    def _replace(self, unreachable: dict[Point, tuple[Contact, float]]) -> None:
        if unreachable != self._unreachable:
            self._unreachable = unreachable

    def _clockwise(self, key: int, ring: RingState, own: Ownership) -> Iterator[tuple[Contact, bool]]:
        to_me = self._circle.distance(key, self._me.id)
        before = {mark.dead.id: (mark.dead, True) for mark in own.marks if self._lies_before_me(key, mark.dead.id)}
        arc = own.arc
        if arc is None or key not in arc:
            for contact in ring.predecessors:
                if self._lies_before_me(key, contact.id):
                    before.setdefault(contact.id, (contact, False))
        distance = self._circle.distance
        yield from sorted(before.values(), key=lambda item: distance(key, item[0].id))
        yield self._me, False
        behind = {contact.id: (contact, False) for contact in ring.successors if contact.id != self._me.id}
        for contact, _ in self._unreachable.values():
            behind.setdefault(contact.id, (contact, True))
        for contact, is_waited_for in sorted(behind.values(), key=lambda item: self._distance(item[0].id)):
            if distance(key, contact.id) > to_me:  # otherwise the vnode lies between the key and this one
                yield contact, is_waited_for

    def _lies_before_me(self, key: int, point: int) -> bool:
        return self._circle.distance(key, point) < self._circle.distance(key, self._me.id)

    def _distance(self, point: int) -> int:
        return self._circle.length(self._me.id, point)

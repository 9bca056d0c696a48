"""Ring pointers: a vnode's predecessor and successor list.

Only the transitions in this module change them. Each is one atomic step of the corrected protocol (Zave 2017, section
III, with the 2018 model). It decides against the *current* state, applies the change, checks the invariants, and
returns the events. Callers ask peers first and then call exactly one transition. The state may have changed meanwhile,
so each transition tests its own precondition. If that no longer holds, it returns no events.

Lists never wrap. Entries are copied only while their clockwise distance from this vnode strictly grows. The list of a
lone vnode is the vnode itself, and that entry is never copied. (Zave's `butLast`, taken literally, makes duplicates in
every ring of at most r members.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chord import events
from chord.events import Event
from chord.ids import Circle, between
from chord.wire.messages import Contact

ENTRIES_PER_SUCCESSOR_MAX = 4  # several vnodes of one node may be adjacent


class RingState:
    """The pointers of one vnode.

    Attributes:
        me: this vnode.
        circle: the identifier circle.
        r: how many other nodes the successor list spans at most.
        reach: how many nodes the predecessor list spans at most: N + 1.
        predecessor: the closest vnode known to precede it. It is the vnode itself when alone, and None before the vnode
            has joined.
        successors: consecutive vnodes that follow it, spanning at most r other nodes; empty before it has joined.
        predecessors: consecutive vnodes that precede it, nearest first. This is a hint, outside the proof.
        observed: how often other vnodes read the pointers to adopt them (abort-if-observed, see `chord/stabilize.py`).
        busy_steps: number of running steps that discarded too many replies. `GetRing` answers `Busy` until they are
            done.
        is_isolated: whether the list has no other vnode left, and at least one of them went down instead of leaving.
        lost_touch: whether the head of the list went down since this vnode last copied a list. If so, that head may
            have known vnodes that this vnode does not know.
    """

    __slots__ = (
        "busy_steps",
        "circle",
        "is_isolated",
        "lost_touch",
        "me",
        "observed",
        "predecessor",
        "predecessors",
        "r",
        "reach",
        "successors",
    )

    def __init__(self, me: Contact, circle: Circle, successors: int, reach: int) -> None:
        self.me = me
        self.circle = circle
        self.r = successors
        self.reach = reach
        self.predecessor: Contact | None = None
        self.successors: tuple[Contact, ...] = ()
        self.predecessors: tuple[Contact, ...] = ()
        self.observed = 0
        self.busy_steps = 0
        self.is_isolated = False
        self.lost_touch = False

    @property
    def is_member(self) -> bool:
        """Whether this vnode has joined a ring."""
        return bool(self.successors)

    @property
    def successor(self) -> Contact:
        """The head of the successor list; the vnode must be a member."""
        return self.successors[0]

    @property
    def is_alone(self) -> bool:
        """Whether this vnode is its own successor."""
        return bool(self.successors) and self.successors[0].id == self.me.id

    @property
    def is_full(self) -> bool:
        """Whether the list spans r other nodes, so that more may stand behind them."""
        return len({contact.address for contact in self.successors} - {self.me.address}) >= self.r

    @property
    def is_cut(self) -> bool:
        """Whether the successor list may end before the ring does.

        The list is full, or has as many entries as it may hold.
        """
        return self.is_full or len(self.successors) >= ENTRIES_PER_SUCCESSOR_MAX * self.r

    # -- transitions ----------------------------------------------------------------------------

    def create(self) -> list[Event]:
        """Found a ring of one vnode."""
        assert not self.is_member
        self.successors, self.predecessor = (self.me,), self.me
        self._check()
        return [events.RingCreated(self.me.id)]

    def join(self, predecessor: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        """Join a ring: take the predecessor's successor list, if this vnode belongs before its head.

        Returns:
            No events if this vnode is not between the predecessor and the head. Then look up the predecessor again.

        Source: Zave 2017 (TSE), section III, JOIN.
        """
        assert not self.is_member
        theirs = tuple(its_successors)
        if not theirs or not between(predecessor.id, self.me.id, theirs[0].id):
            return []
        self.successors, self.predecessor = self._copied(theirs), predecessor
        self._check()
        return [events.RingJoined(self.me.id, predecessor, self.successor)]

    def resume(self, predecessor: Contact | None, successors: Iterable[Contact]) -> list[Event]:
        """Take up a place again after a restart, with pointers that may be old.

        If the list names no other vnode, this vnode counts as isolated, unless it is its own predecessor.
        """
        assert not self.is_member
        self.successors = self._copied(tuple(successors))
        self.predecessor = predecessor
        self.is_isolated = self.is_alone and predecessor != self.me
        self._check()
        return [events.RingResumed(self.me.id, predecessor, self.successor)]

    def adopt_list(self, head: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        """Copy the successor list of the head, which has just replied, behind the head.

        Returns:
            No events if `head` is no longer the head, or the list stays the same.

        Source: Zave 2017 (TSE), section III, STAB_SUCC.
        """
        if not self.is_member or self.successors[0].id != head.id:
            return []
        self.lost_touch = False
        copied = self._copied((head, *its_successors))
        if copied == self.successors:
            return []
        self.successors = copied
        self._check()
        return [events.ListCopied(self.me.id, head)]

    def adopt_successor(self, new: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        """Adopt a vnode between this one and its successor as the new head, with its successor list behind it.

        The vnode was just queried. If it is not between the two, return no events.

        Source: Zave 2017 (TSE), section III, STAB_PRED. Self-lookups use it, too.
        """
        if not self.is_member or not between(self.me.id, new.id, self.successor.id):
            return []
        old = self.successor
        self.successors = self._copied((new, *its_successors))
        self.is_isolated = self.lost_touch = False
        self._check()
        return [events.SuccessorAdopted(self.me.id, new, None if old.id == self.me.id else old)]

    def forget_head(self, dead: Contact, *, has_left: bool = False) -> list[Event]:
        """Drop the head of the successor list, because it did not reply or has left.

        The list is shorter until the next copy. If no other vnode is left in it, and a head went down since the last
        copy, this vnode is isolated. If all heads left the ring, this vnode is alone.

        Args:
            dead: the head. If another vnode is the head by now, nothing happens.
            has_left: whether the head left the ring, so it will not be back.

        Source: Zave 2017 (TSE), section III, STAB_SUCC without a reply.
        """
        if self.is_alone or not self.is_member or self.successors[0].id != dead.id:
            return []
        self.successors = self.successors[1:] or (self.me,)
        self.lost_touch = self.lost_touch or not has_left
        self._check()
        return [events.HeadForgotten(self.me.id, dead), *self._isolated()]

    def inherit(self, leaver: Contact, its_successors: Iterable[Contact]) -> list[Event]:
        """Replace the successor list by that of its head, which leaves the ring.

        So the leave costs no entry. A last `adopt_list` and `forget_head` would give the same list, without its last
        entry. If the leaver is not the head, nothing happens.
        """
        if not self.is_member or self.is_alone or self.successors[0] != leaver:
            return []
        inherited = self._copied(tuple(c for c in its_successors if c.id != leaver.id))
        if inherited == (self.me,):  # the leaver knew no other vnode: this vnode's entries still count
            inherited = self.successors[1:] or inherited
        self.successors = inherited
        self._check()
        return [events.HeadForgotten(self.me.id, leaver), *self._isolated()]

    def learn_predecessor(self, new: Contact) -> list[Event]:
        """Adopt a vnode as the predecessor, if it is the first one or a closer one. Otherwise do nothing.

        Source: Zave 2017 (TSE), section III, RECTIFY, first branch.
        """
        old = self.predecessor
        if new.id == self.me.id or (old is not None and not between(old.id, new.id, self.me.id)):
            return []
        return self._set_predecessor(new)

    def replace_predecessor(self, new: Contact, dead: Contact) -> list[Event]:
        """Replace a dead predecessor by another vnode.

        The caller has just pinged the dead vnode. If another vnode is the predecessor by now, do as `learn_predecessor`
        does.

        Source: Zave 2017 (TSE), section III, RECTIFY, second branch.
        """
        if self.predecessor is not None and self.predecessor.id == dead.id and new != dead:
            return self._set_predecessor(new)
        return self.learn_predecessor(new)

    def learn_predecessors(self, nearest: Contact, further: Iterable[Contact]) -> None:
        """Copy the predecessor's own predecessor list behind the predecessor.

        The list runs backwards and never wraps.

        Args:
            nearest: the vnode that sent the list. If it is no longer the predecessor, nothing happens.
            further: its predecessor list.
        """
        if self.predecessor is not None and nearest.id == self.predecessor.id:
            distance = self.circle.distance
            contacts = (nearest, *further)
            self.predecessors = self._leading(contacts, lambda c: distance(c.id, self.me.id), self.reach)

    def settle_alone(self) -> None:
        """Accept that the down neighbours will not be back: isolated becomes alone."""
        self.is_isolated = self.lost_touch = False

    def check(self) -> list[str]:
        """Return the names of the broken invariants of the successor list; empty if all hold.

        - "NoDuplicates": the list names a vnode twice.
        - "OrderedSuccessorList": the clockwise distances from this vnode do not grow.
        - "ListWraps": the list names this vnode itself besides others.
        """
        wrong: list[str] = []
        distances = [self.circle.distance(self.me.id, c.id) for c in self.successors]
        if len(set(distances)) != len(distances):
            wrong.append("NoDuplicates")
        if distances != sorted(distances):
            wrong.append("OrderedSuccessorList")
        if 0 in distances and len(distances) > 1:
            wrong.append("ListWraps")
        return wrong

    # -- inside ---------------------------------------------------------------------------------

    def _isolated(self) -> list[Event]:
        """Set `is_isolated` after the head was dropped, and return the event."""
        self.is_isolated = self.is_alone and self.lost_touch
        return [events.VnodeIsolated(self.me.id)] if self.is_isolated else []

    def _set_predecessor(self, new: Contact) -> list[Event]:
        old, self.predecessor = self.predecessor, new
        distance = self.circle.distance
        further = [c for c in self.predecessors if distance(c.id, self.me.id) > distance(new.id, self.me.id)]
        self.predecessors = (new, *further)  # until the new predecessor's own list arrives, which may be short
        return [events.PredecessorAdopted(self.me.id, new, old)]

    def _copied(self, entries: tuple[Contact, ...]) -> tuple[Contact, ...]:
        """Return the entries of a successor list to keep, or this vnode if none is left."""
        distance = self.circle.distance
        kept = self._leading(entries, lambda c: distance(self.me.id, c.id), self.r)
        return kept or (self.me,)

    def _leading(
        self, contacts: Iterable[Contact], distance_of: Callable[[Contact], int], nodes_max: int
    ) -> tuple[Contact, ...]:
        """Return the leading contacts with growing distances, on few enough nodes.

        They span at most `nodes_max` other nodes, with `ENTRIES_PER_SUCCESSOR_MAX` times as many entries at most.
        """
        kept: list[Contact] = []
        nodes: set[str] = set()
        last = 0
        for contact in contacts:
            distance = distance_of(contact)
            if distance <= last or len(nodes) >= nodes_max or len(kept) >= ENTRIES_PER_SUCCESSOR_MAX * nodes_max:
                break
            kept.append(contact)
            last = distance
            if contact.address != self.me.address:
                nodes.add(contact.address)
        return tuple(kept)

    def _check(self) -> None:
        wrong = self.check()
        assert not wrong, f"{wrong} in the list of {self.me.id}: {[c.id for c in self.successors]}"

"""The published protocol and ours as small models of atomic steps.

The published protocol combines SIGCOMM 2001, PODC 2002 and ToN 2003 as in Zave (CCR 2012): join, stabilize, notified,
reconcile, update, flush, fail. Ours drives the `RingState` of the package. A history is a list of steps. A step does
nothing if its condition does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from chord.ids import Circle, Point, between
from chord.ring.pointers import RingState
from chord.verify import invariants
from chord.verify.invariants import Member
from chord.wire.messages import Contact

CIRCLE = Circle(6)


class Entry(NamedTuple):
    """The pointers of one member."""

    predecessor: int | None
    successors: tuple[int, ...]


State: TypeAlias = Mapping[int, Entry]
Step: TypeAlias = tuple[str, int, int] | tuple[str, int]
"""The kind of a step, its vnode, and perhaps a second vnode."""


def ideal(ids: Iterable[int], r: int, *, is_padded: bool = False) -> dict[int, Entry]:
    """Return a ring with right pointers. Lists are short, or padded to r entries by going round."""
    order = sorted(ids)
    size = len(order)
    length = r if is_padded else max(1, min(r, size - 1))
    return {
        n: Entry(order[at - 1], tuple(order[(at + 1 + i) % size] for i in range(length))) for at, n in enumerate(order)
    }


def best(state: State, n: int) -> int | None:
    """Return the first living entry of a member's list."""
    return next((s for s in state[n].successors if s in state), None)


def may_fail(state: State, n: int) -> bool:
    """Whether a failure leaves every member a living successor, perhaps the member itself."""
    rest = {m: entry for m, entry in state.items() if m != n}
    return bool(rest) and all(best(rest, m) is not None for m in rest)


# -- as published -------------------------------------------------------------------------------


def published(state: State, step: Step, r: int = 2) -> dict[int, Entry]:
    """Carry out one step of the published protocol, atomically."""
    after = dict(state)
    what, n = step[0], step[1]
    if what == "join":
        p = step[2]  # type: ignore[misc]
        if n not in state and p in state and state[p].successors[0] in state and between(p, n, state[p].successors[0]):
            after[n] = Entry(None, state[p].successors[:1])  # one pointer
        return after
    me = state.get(n)
    if me is None:
        return after
    head = me.successors[0]
    if what == "fail":
        if may_fail(state, n):
            del after[n]
    elif what == "stabilize":
        x = state[head].predecessor if head in state else None
        if x is not None and between(n, x, head):
            after[n] = me._replace(successors=(x, *me.successors[1:]))  # without a question to x
    elif what == "notify":
        if head in state:
            p = state[head].predecessor
            if head != n and (p is None or between(p, n, head)):
                after[head] = state[head]._replace(predecessor=n)
    elif what == "reconcile":
        if head in state:
            after[n] = me._replace(successors=(head, *state[head].successors)[:r])
    elif what == "update":
        if head not in state and len(me.successors) > 1:
            after[n] = me._replace(successors=me.successors[1:])
    elif what == "flush" and me.predecessor is not None and me.predecessor not in state:
        after[n] = me._replace(predecessor=None)
    return after


def published_steps(state: State, ids: Iterable[int]) -> Iterator[Step]:
    """Yield every possible step of the published protocol."""
    for n in ids:
        if n not in state:
            for p in state:
                if between(p, n, state[p].successors[0]):
                    yield "join", n, p
        else:
            for what in ("stabilize", "notify", "reconcile", "update", "flush", "fail"):
                yield what, n


# -- ours ---------------------------------------------------------------------------------------


def at(point: int) -> Contact:
    """Return a contact at a point. Each node has one vnode."""
    return Contact(Point(point), f"n{point}:1")


def ring_state(n: int, entry: Entry | None, r: int) -> RingState:
    """Return the pointers of a member, or of a vnode that has not joined, as a `RingState`."""
    ring = RingState(at(n), CIRCLE, r, 2)
    if entry is not None:
        ring.successors = tuple(at(s) for s in entry.successors)
        ring.predecessor = None if entry.predecessor is None else at(entry.predecessor)
    return ring


def entry_of(ring: RingState) -> Entry:
    """Return the pointers as an entry."""
    return Entry(None if ring.predecessor is None else ring.predecessor.id, tuple(s.id for s in ring.successors))


def corrected(state: State, step: Step, r: int = 2) -> dict[int, Entry]:
    """Carry out one step of our protocol, atomically: one question and the transition that follows.

    Reconcile and update are STAB_SUCC, and stabilize is STAB_SUCC and STAB_PRED. Notify is RECTIFY at the successor.
    Flush does nothing, because a notification replaces a dead predecessor.
    """
    after = dict(state)
    what, n = step[0], step[1]
    if what == "join":
        p = step[2]  # type: ignore[misc]
        if n not in state and p in state:
            ring = ring_state(n, None, r)
            if ring.join(at(p), [at(s) for s in state[p].successors]):
                after[n] = entry_of(ring)
    elif n not in state or what == "flush":
        pass
    elif what == "fail":
        if may_fail(state, n):
            del after[n]
    elif what == "notify":
        head = state[n].successors[0]
        if head in state:
            after[head] = _rectified(state, head, n, r)
    else:
        ring = ring_state(n, state[n], r)
        head = ring.successor.id
        if head in state:
            ring.adopt_list(at(head), [at(s) for s in state[head].successors])
            x = state[head].predecessor
            if what == "stabilize" and x is not None and x in state and between(n, x, head):
                ring.adopt_successor(at(x), [at(s) for s in state[x].successors])
        else:
            ring.forget_head(at(head))
        after[n] = entry_of(ring)
    return after


def _rectified(state: State, n: int, p: int, r: int) -> Entry:
    ring = ring_state(n, state[n], r)
    old = ring.predecessor
    if not ring.learn_predecessor(at(p)) and old is not None and old.id not in state:
        ring.replace_predecessor(at(p), old)
    return entry_of(ring)


def corrected_steps(state: State, ids: Iterable[int]) -> Iterator[Step]:
    """Yield every possible step of our protocol."""
    for n in ids:
        if n not in state:
            for p in state:
                yield "join", n, p
        else:
            for what in ("stabilize", "reconcile", "notify", "fail"):
                yield what, n


# -- the seven properties of PODC 2002; the published protocol breaks each of them ------------------


def snapshot(state: State) -> dict[int, Member]:
    """Return a state in the form of the invariants."""
    return {n: Member(f"n{n}:1", entry.predecessor, entry.successors) for n, entry in state.items()}


def ring_members(state: State) -> set[int]:
    """Return the members that reach themselves by best successors."""
    found = set()
    for n in state:
        at = best(state, n)
        seen: set[int] = set()
        while at is not None and at != n and at not in seen:
            seen.add(at)
            at = best(state, at)
        if at == n:
            found.add(n)
    return found


def ordered_appendages(state: State) -> bool:
    """Whether each appendage leads to the ring clockwise, and skips no vnode of the appendage."""
    ring = ring_members(state)
    for n in state:
        b = best(state, n)
        if n in ring or b is None or b in ring:
            continue
        end: int | None = b
        for _ in state:
            if end is None or end in ring:
                break
            end = best(state, end)
        if end is not None and end != n and not between(n, b, end):
            return False
    return True


def ordered_merges(state: State) -> bool:
    """Whether every appendage meets the ring at the first ring member after it."""
    ring = ring_members(state)
    for n in state:
        b = best(state, n)
        if n not in ring and b in ring and any(between(n, m, b) for m in ring if m not in (n, b)):
            return False
    return True


def valid_successor_lists(state: State) -> bool:
    """Whether no member lists a vnode that the list of its best successor skips."""
    for n, entry in state.items():
        pairs = list(zip((n, *entry.successors), entry.successors, strict=False))
        for v in state:
            is_skipped = v != n and any(between(x, v, y) and v not in (x, y) for x, y in pairs)
            others = (before for before in state if before != n)
            if is_skipped and any(best(state, before) == n and v in state[before].successors for before in others):
                return False
    return True


PROPERTIES = {
    "AtLeastOneRing": lambda state: not invariants.at_least_one_ring(snapshot(state)),
    "AtMostOneRing": lambda state: not invariants.at_most_one_ring(snapshot(state)),
    "OrderedRing": lambda state: not invariants.ordered_ring(snapshot(state)),
    "ConnectedAppendages": lambda state: not (ring_members(state) and invariants.connected_appendages(snapshot(state))),
    "OrderedAppendages": ordered_appendages,
    "OrderedMerges": ordered_merges,
    "ValidSuccessorList": valid_successor_lists,
}


# The shortest history that breaks each property, found by search. It starts from the ideal ring of 0, 20 and 40 with
# lists of two. It has joins, and failures that leave every vnode a living successor; no vnode returns. The figures of
# Zave 2012 have other histories.
HISTORIES: dict[str, list[Step]] = {
    # 40 drops the dead 0 and has 20 left; 20 still names 0 as its predecessor, and 40 adopts that unasked.
    "AtLeastOneRing": [("fail", 0), ("update", 40), ("stabilize", 40)],
    "ConnectedAppendages": [("fail", 20), ("update", 0), ("join", 10, 0), ("stabilize", 10)],
    # 20 and 40 end up alone with themselves: lists that went round named their owner as a living successor.
    "AtMostOneRing": [
        ("fail", 0),
        ("join", 30, 20),
        ("notify", 30),
        ("fail", 30),
        ("update", 40),
        ("reconcile", 20),
        ("reconcile", 40),
        ("stabilize", 20),
        ("stabilize", 40),
    ],
    "OrderedRing": [
        ("fail", 0),
        ("join", 30, 20),
        ("notify", 30),
        ("update", 40),
        ("reconcile", 30),
        ("reconcile", 40),
        ("stabilize", 40),
        ("update", 40),
        ("stabilize", 40),
        ("join", 10, 40),
        ("notify", 10),
        ("stabilize", 40),
        ("reconcile", 20),
        ("fail", 40),
    ],
    "OrderedAppendages": [
        ("join", 10, 0),
        ("notify", 10),
        ("fail", 10),
        ("fail", 40),
        ("update", 20),
        ("reconcile", 0),
        ("join", 30, 20),
        ("reconcile", 30),
        ("stabilize", 0),
        ("stabilize", 30),
    ],
    "OrderedMerges": [("fail", 20), ("update", 0), ("join", 10, 0), ("reconcile", 10), ("stabilize", 10)],
    "ValidSuccessorList": [("join", 10, 0), ("notify", 10), ("stabilize", 0)],
}

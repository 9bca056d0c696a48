"""Every state that a few vnodes can reach by the rules of `RingState`, checked one by one.

One step asks one question and makes one transition, atomically. A vnode may be offered any living member at any time.
Predecessors only decide these offers, so they are not part of the state. Failures stay within the assumption.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TypeAlias

from chord.ids import between
from chord.ring.pointers import RingState
from chord.verify import invariants
from chord.verify.invariants import Member, Violation
from chord.wire.messages import Contact

from .original import CIRCLE, Step, at

Lists: TypeAlias = dict[int, tuple[int, ...]]
Key: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""The successor list of every member."""


contact = cache(at)


def snapshot(lists: Lists) -> dict[int, Member]:
    """Return the lists in the form of the invariants, without predecessors."""
    return {n: Member(f"n{n}:1", None, entries) for n, entries in lists.items()}


def steps(lists: Lists, ids: Iterable[int], r: int) -> Iterator[tuple[Step, Lists]]:
    """Yield every step that changes something, with the state after it."""
    for n in ids:
        if n not in lists:
            yield from _joins(lists, n, r)
            continue
        head = lists[n][0]
        ring = _state(lists, n, r)
        if head in lists:
            ring.adopt_list(contact(head), _contacts(lists[head]))
        else:
            ring.forget_head(contact(head))
        if _ids(ring) != lists[n]:
            yield ("stabilize", n), {**lists, n: _ids(ring)}
        for x in lists:
            ring = _state(lists, n, r)
            if ring.adopt_successor(contact(x), _contacts(lists[x])):
                yield ("adopt", n, x), {**lists, n: _ids(ring)}
        rest = {m: entries for m, entries in lists.items() if m != n}
        if _may_fail(lists, rest, n, r):
            yield ("fail", n), rest


def _joins(lists: Lists, n: int, r: int) -> Iterator[tuple[Step, Lists]]:
    for p in lists:
        ring = RingState(contact(n), CIRCLE, r, 2)
        if between(p, n, lists[p][0]) and ring.join(contact(p), _contacts(lists[p])):
            yield ("join", n, p), {**lists, n: _ids(ring)}


def _may_fail(lists: Lists, rest: Lists, n: int, r: int) -> bool:
    """No member loses its last living successor, and a principal fails only while more than r' + 1 are left."""
    living = snapshot(rest)
    if not rest or any(invariants.best(living, m) is None for m in rest):
        return False
    principals = invariants.principals(snapshot(lists))
    return n not in principals or len(principals) > min(r, len(lists) - 1) + 1


def _state(lists: Lists, n: int, r: int) -> RingState:
    ring = RingState(contact(n), CIRCLE, r, 2)
    ring.successors = tuple(_contacts(lists[n]))
    return ring


def _contacts(entries: Iterable[int]) -> list[Contact]:
    return [contact(entry) for entry in entries]


def _ids(ring: RingState) -> tuple[int, ...]:
    return tuple(int(entry.id) for entry in ring.successors)


def explore(start: Lists, ids: Iterable[int], r: int) -> tuple[int, list[Violation], list[Step]]:
    """Go through every reachable state.

    Returns:
        The number of states. If a state breaks an invariant, also the violations and the shortest way to it.
    """
    ids = tuple(ids)
    reached: dict[Key, tuple[Key, Step] | None] = {_key(start): None}
    frontier = [start]
    while frontier:
        following = []
        for lists in frontier:
            for step, after in steps(lists, ids, r):
                key = _key(after)
                if key in reached:
                    continue
                reached[key] = _key(lists), step
                wrong = invariants.violations(snapshot(after), r)
                if wrong:
                    return len(reached), wrong, _way(reached, key)
                following.append(after)
        frontier = following
    return len(reached), [], []


def _key(lists: Lists) -> Key:
    return tuple(sorted(lists.items()))


def _way(reached: dict[Key, tuple[Key, Step] | None], key: Key) -> list[Step]:
    way: list[Step] = []
    while (before := reached[key]) is not None:
        key, step = before
        way.append(step)
    return way[::-1]

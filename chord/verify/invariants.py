"""Correctness of a ring, as executable checks over a snapshot of its live members.

The checks are Zave's invariants (TSE 2017, section IV, with the 2018 model). They use r' = min(r, members - 1), the
largest number of other members that a list can hold. OneLiveSuccessor and SufficientPrincipals together are the
inductive invariant. The others follow from it, and show a fault more plainly. `waiting` measures how far the ring is
from Ideal, which is progress and not correctness. An id that a list names and the snapshot lacks is that of a dead
vnode.

Source: Zave 2012 (CCR), Zave 2017 (TSE).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise, takewhile
from typing import NamedTuple, TypeAlias

from chord.ids import Arc, Circle, Point, between

ROUNDS_ANY = 1 << 30
ENTRIES_PER_SUCCESSOR_MAX = 4


class Member(NamedTuple):
    """One live vnode of a snapshot.

    Attributes:
        address: the address of its node. A successor list counts distinct addresses.
        predecessor: the id of its predecessor; None if it knows none.
        successors: the ids of its successor list; only its own id if it knows no other vnode.
        rounds: number of stabilize rounds that the vnode has completed. The default is enough for every check.
    """

    address: str
    predecessor: int | None
    successors: tuple[int, ...]
    rounds: int = ROUNDS_ANY


Snapshot: TypeAlias = Mapping[int, Member]


class Violation(NamedTuple):
    """A failed check of a ring.

    Attributes:
        invariant: the name of the invariant, or of the condition that an Ideal ring meets.
        text: the failure in words.
        nodes: the ids of the vnodes concerned; empty for a gap that no vnode owns.
    """

    invariant: str
    text: str
    nodes: tuple[int, ...] = ()


# -- the invariant ------------------------------------------------------------------------------


def one_live_successor(ring: Snapshot) -> list[Violation]:
    """Return a violation for each member with no live entry in its successor list.

    An entry is live if it is the id of a member in the snapshot. A member without live entries has lost the ring.
    """
    return [
        Violation("OneLiveSuccessor", f"{_name(ring, n)} has no live successor", (n,))
        for n in sorted(ring)
        if best(ring, n) is None
    ]


def sufficient_principals(ring: Snapshot, r: int) -> list[Violation]:
    """Return a violation that names the skipped members if too few are principals.

    A principal is a member that no successor list skips; see `principals`. Let r be the number of other nodes that a
    list names, and r' the smaller of r and the number of other members. A ring needs r' + 1 principals. If fewer
    members have completed 3 (r' + 1) stabilize rounds, it needs only their number, because the others may not be known
    yet. A new entry takes r' rounds of other members to reach all lists, and intervals differ by a factor of up to
    three.
    """
    able = min(r, len(ring) - 1)
    settled = sum(member.rounds >= 3 * (able + 1) for member in ring.values())
    needed = min(able, settled - 1) + 1
    found = principals(ring)
    if len(found) >= needed:
        return []
    skipped = tuple(sorted(set(ring) - found))
    text = f"{len(found)} principals of {len(ring)} members, {needed} needed"
    return [Violation("SufficientPrincipals", text, skipped)]


def best(ring: Snapshot, n: int) -> int | None:
    """Return the first live entry of the successor list of member n; None without one.

    An entry is live if it is the id of a member in the snapshot.
    """
    return next((entry for entry in ring[n].successors if entry in ring), None)


def principals(ring: Snapshot) -> set[int]:
    """Return the ids of the members that no member's extended list skips.

    The extended list of n is n followed by its successor list. An adjacent pair (x, y) of it skips p if p lies strictly
    between x and y.
    """
    order = sorted(ring)
    rank = {n: position for position, n in enumerate(order)}
    skipped: set[int] = set()
    for n, member in ring.items():
        x = n
        for y in member.successors:
            at, to = rank.get(x), rank.get(y)
            if at is None or to is None or (at + 1) % len(order) != to:  # neighbours have no member between them
                skipped.update(_strictly_between(order, x, y))
            x = y
    return set(ring) - skipped


# -- implied, local: cheap enough for production -------------------------------------------------


def no_duplicates(ring: Snapshot) -> list[Violation]:
    """Return a violation for each member with a list that names a vnode twice.

    A member may name itself only as the single entry of its list.
    """
    return [
        Violation("NoDuplicates", f"{_name(ring, n)} lists a vnode twice", (n,))
        for n, member in sorted(ring.items())
        if member.successors != (n,) and len({n, *member.successors}) <= len(member.successors)
    ]


def ordered_successor_list(ring: Snapshot) -> list[Violation]:
    """Return a violation for each member with a successor list out of order.

    The clockwise distances from the member must not decrease along its list. Only the first wrong pair is reported.
    """
    found = []
    for n, member in sorted(ring.items()):
        if member.successors == (n,):
            continue
        for x, y in pairwise(member.successors):
            if x != y and not between(n, x, y):  # n, x, y in clockwise order
                text = f"{_name(ring, n)} lists {_name(ring, y)} after {_name(ring, x)}"
                found.append(Violation("OrderedSuccessorList", text, (n, x, y)))
                break
    return found


# -- implied, global ------------------------------------------------------------------------------


def at_least_one_ring(ring: Snapshot) -> list[Violation]:
    """Return a violation if no member reaches itself by best successors.

    A best successor is the first live entry of a successor list.
    """
    if not ring or _cycles(ring):
        return []
    return [Violation("AtLeastOneRing", "no member reaches itself by its successors", tuple(sorted(ring)))]


def at_most_one_ring(ring: Snapshot) -> list[Violation]:
    """Return a violation for each ring besides the largest: the members have split into several rings.

    A ring is a cycle of best successors, the first live entries of successor lists.
    """
    cycles = _cycles(ring)
    return [
        Violation(
            "AtMostOneRing",
            f"{_name(ring, cycle[0])} and {len(cycle) - 1} others are a ring of their own, apart from "
            f"{_name(ring, cycles[0][0])}'s",
            tuple(cycle),
        )
        for cycle in cycles[1:]
    ]


def ordered_ring(ring: Snapshot) -> list[Violation]:
    """Return a violation for each best successor that passes over a member of a ring.

    A best successor is the first live entry of a successor list, and a ring is a cycle of best successors. A ring with
    such a violation is loopy: its successors run around the circle more than once.
    """
    found = []
    for cycle in _cycles(ring):
        order = sorted(cycle)
        for n in cycle:
            b = best(ring, n)
            assert b is not None, "a member of a cycle has a successor"
            nearest = next(_from(order, n + 1), n)
            if nearest != b and between(n, nearest, b):
                text = f"{_name(ring, n)} goes on to {_name(ring, b)} and passes over {_name(ring, nearest)}"
                found.append(Violation("OrderedRing", text, (n, nearest, b)))
    return found


def connected_appendages(ring: Snapshot) -> list[Violation]:
    """Return a violation for each member from which the best successors lead to no ring.

    A best successor is the first live entry of a successor list. A ring is a cycle of best successors.
    """
    on_ring = {n for cycle in _cycles(ring) for n in cycle}
    found = []
    for n in sorted(ring):
        seen: set[int] = set()
        at: int | None = n
        while at is not None and at not in on_ring and at not in seen:
            seen.add(at)
            at = best(ring, at)
        if at is None or at not in on_ring:
            found.append(Violation("ConnectedAppendages", f"{_name(ring, n)} does not reach the ring", (n,)))
    return found


Check: TypeAlias = Callable[[Snapshot], list[Violation]]

LOCAL: tuple[Check, ...] = (one_live_successor, no_duplicates, ordered_successor_list)
GLOBAL: tuple[Check, ...] = (at_least_one_ring, at_most_one_ring, ordered_ring, connected_appendages)


def violations(ring: Snapshot, r: int) -> list[Violation]:
    """Return all violations of the eight invariants, in the order of the checks.

    The checks of each member's own list (`LOCAL`) come first. `sufficient_principals` follows, and then the checks of
    rings (`GLOBAL`). r is the number of other nodes that a successor list names.
    """
    found = [violation for check in LOCAL for violation in check(ring)]
    found += sufficient_principals(ring, r)
    found += [violation for check in GLOBAL for violation in check(ring)]
    return found


# -- progress ---------------------------------------------------------------------------------------


def waiting(ring: Snapshot, r: int) -> list[Violation]:
    """Return a violation for each wrong predecessor and successor list; none if Ideal.

    The exact list holds consecutive vnodes until it spans r other nodes, with at most 4 r entries. A lone member must
    be its own predecessor and successor.
    """
    order = sorted(ring)
    found = []
    for position, n in enumerate(order):
        member = ring[n]
        predecessor = order[position - 1]
        if member.predecessor != predecessor:
            has = "none" if member.predecessor is None else _name(ring, member.predecessor)
            text = f"{_name(ring, n)} has {has} as its predecessor, not {_name(ring, predecessor)}"
            found.append(Violation("ExactPredecessor", text, (n, predecessor)))
        exact = exact_successors(ring, order, position, r)
        if member.successors != exact:
            missing = tuple(entry for entry in exact if entry not in member.successors)
            extra = tuple(entry for entry in member.successors if entry not in exact)
            text = f"{_name(ring, n)} has a successor list of {len(member.successors)}, not the next {len(exact)}"
            if missing:
                text += f"; it misses {', '.join(_name(ring, entry) for entry in missing)}"
            if extra:
                text += f"; it holds {', '.join(_name(ring, entry) for entry in extra)} besides"
            found.append(Violation("ExactSuccessors", text, (n, *missing, *extra)))
    return found


def exact_successors(ring: Snapshot, order: list[int], position: int, r: int) -> tuple[int, ...]:
    """Return the successor list that a member has in an Ideal ring.

    It holds consecutive vnodes until it spans r other nodes, with at most 4 r entries. `order` has the ids of all
    members, sorted. `position` is the member's index in `order`.
    """
    n = order[position]
    entries: list[int] = []
    nodes: set[str] = set()
    for step in range(1, len(order)):
        entry = order[(position + step) % len(order)]
        entries.append(entry)
        if ring[entry].address != ring[n].address:
            nodes.add(ring[entry].address)
        if len(nodes) >= r or len(entries) >= ENTRIES_PER_SUCCESSOR_MAX * r:
            break
    return tuple(entries) or (n,)


def rank_error(ring: Snapshot) -> int:
    """Return how many members all successors and predecessors pass over, in total.

    The successor of a member is the first live entry of its list. A missing or dead pointer counts as many as the ring
    has members. Without joins and failures, the total never grows. It is 0 if all these pointers are exact.
    """
    order = sorted(ring)
    rank = {n: position for position, n in enumerate(order)}
    total = 0
    for n, member in ring.items():
        b = best(ring, n)
        total += len(order) if b is None else (rank[b] - rank[n] - 1) % len(order)
        p = member.predecessor
        total += len(order) if p is None or p not in rank else (rank[n] - rank[p] - 1) % len(order)
    return total


# -- ownership --------------------------------------------------------------------------------------


def ownership(owned: Mapping[Point, Iterable[Arc]], circle: Circle) -> list[Violation]:
    """Return a violation for each part of the circle without exactly one owner.

    Such a part is a gap or an overlap. The result is in the order of the points.

    Args:
        owned: the arcs of each vnode, by its id.
        circle: the circle of the ring.
    """
    pieces = sorted(
        (low, circle.size - 1 if high is None else high, vnode)
        for vnode, arcs in owned.items()
        for arc in arcs
        for low, high in arc.spans()
        if low <= (circle.size - 1 if high is None else high)
    )
    found = []
    covered, last_owner = -1, None
    for low, high, vnode in pieces:
        if low > covered + 1:
            found.append(_gap(circle, covered + 1, low - 1))
        elif low <= covered:
            text = f"two vnodes answer for {circle.hex(low)} to {circle.hex(min(high, covered))}"
            nodes = tuple(sorted({vnode} if last_owner is None else {vnode, last_owner}))
            found.append(Violation("OwnedOnce", text, nodes))
        if high > covered:
            covered, last_owner = high, vnode
    if covered < circle.size - 1:
        found.append(_gap(circle, covered + 1, circle.size - 1))
    return found


def _gap(circle: Circle, low: int, high: int) -> Violation:
    return Violation("OwnedOnce", f"no vnode answers for {circle.hex(low)} to {circle.hex(high)}")


# -- inside -----------------------------------------------------------------------------------------


def _from(order: list[int], start: int) -> Iterator[int]:
    """Yield the sorted ids from the first one at or after a point, once around."""
    first = bisect_left(order, start)
    for position in range(len(order)):
        yield order[(first + position) % len(order)]


def _strictly_between(order: list[int], x: int, y: int) -> Iterator[int]:
    return takewhile(lambda p: between(x, p, y), _from(order, x + 1))


def _cycles(ring: Snapshot) -> list[list[int]]:
    """Return the cycles of best successors, the largest first, then by smallest id.

    A best successor is the first live entry of a successor list.
    """
    found: list[list[int]] = []
    visited: dict[int, int] = {}
    for start in sorted(ring):
        path: list[int] = []
        at: int | None = start
        while at is not None and at not in visited:
            visited[at] = start
            path.append(at)
            at = best(ring, at)
        if at is not None and visited[at] == start:
            found.append(path[path.index(at) :])
    return sorted(found, key=lambda cycle: (-len(cycle), min(cycle)))


def _name(ring: Snapshot, n: int) -> str:
    number = str(n) if n < 1 << 20 else f"0x{n:x}"[:10] + "…"
    return f"{ring[n].address} ({number})" if n in ring else f"dead vnode {number}"

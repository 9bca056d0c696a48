"""Checks of the copies: right nodes, equal replicas, known to the owner.

The checks read the stores. `unequal` computes the replica set of each key from the ids alone. The others take the
replica set that the owner of the key sees.
"""

from __future__ import annotations

from collections.abc import Iterator

from chord.ids import Arc, Point
from chord.node import Node
from chord.store import versions
from chord.store.merkle import digest_of
from chord.testing.rings import TestRing
from chord.wire.messages import Record

WHOLE = Arc(Point(0), Point(0))


def records(ring: TestRing) -> dict[bytes, dict[str, Record]]:
    """Return every record of the living nodes, by key, then by address."""
    found: dict[bytes, dict[str, Record]] = {}
    for node in ring.nodes:
        for record in node._host.storage.scan(WHOLE):
            found.setdefault(record.key, {})[node.address] = record
    return found


def unequal(ring: TestRing, replicas: int) -> Iterator[str]:
    """Yield, in words, the keys with differing, missing or misplaced copies.

    Each line is an error once no node joins or leaves and no record is on its way. A key may yield two lines: the
    first for replicas that differ or lack the record, the second for misplaced copies. `replicas` is N.
    """
    points = [(point, vnode.me.address) for point, vnode in ring._vnodes().items()]
    for key, copies in records(ring).items():
        members = _members(points, ring[0]._host.circle.hash(key), replicas)
        digests = {address: digest_of(record) for address, record in copies.items()}
        if len({digests.get(address) for address in members}) != 1:
            held = ", ".join(f"{address} {digests.get(address, b'')[:3].hex() or 'nothing'}" for address in members)
            yield f"the replicas of {key!r} differ: {held}"
        if spare := [address for address in copies if address not in members]:
            yield f"{key!r} is on {', '.join(spare)}, and belongs on {', '.join(members)}"


def astray(ring: TestRing) -> Iterator[str]:
    """Yield, in words, the copies with a write that no living replica of the key has.

    The owner of the key names the replicas, with stand-ins and leaving nodes. A key without a living owner yields
    nothing.
    """
    for key, copies in records(ring).items():
        point = ring[0]._host.circle.hash(key)
        members = _seen_members(ring.nodes, point)
        known: dict[bytes, int] = {}
        for address in members:
            if address in copies:
                for actor, count in versions.context_of(copies[address]).items():
                    known[actor] = max(count, known.get(actor, 0))
        for address, record in copies.items():
            if members and any(entry.count > known.get(entry.actor, 0) for entry in record.clock):
                yield f"{address} has writes of {key!r} that {', '.join(members)} lack"


def unreadable(ring: TestRing, quorum: int) -> Iterator[str]:
    """Yield, in words, the records with too few reachable replicas for a quorum.

    The failure detector of the key's owner decides which are reachable. `quorum` is the number of replicas that a read
    needs. A ring of fewer nodes needs all of them.
    """
    for key in records(ring):
        point = ring[0]._host.circle.hash(key)
        for vnode in (vnode for node in ring.nodes for vnode in node._host.vnodes.values()):
            if vnode.ownership.is_owner(point):
                up = [place for place in vnode.replica_set(point).everyone if vnode.is_up(place)]
                if len(up) < min(quorum, len(ring)):
                    yield f"{vnode.me.address} owns {key!r}, and only {len(up)} nodes of its replica set answer"


def _members(points: list[tuple[Point, str]], key: Point, replicas: int) -> list[str]:
    """Return a key's replica set: the first `replicas` distinct nodes clockwise.

    `points` has all vnodes in ring order, each with the address of its node.
    """
    behind = [address for point, address in points if point >= key] + [a for point, a in points if point < key]
    return list(dict.fromkeys(behind))[:replicas]


def _seen_members(nodes: list[Node], key: Point) -> list[str]:
    living = [node.address for node in nodes]
    for node in nodes:
        for vnode in node._host.vnodes.values():
            if vnode.ownership.is_owner(key):
                members = [place.contact.address for place in vnode.replica_set(key).everyone]
                return [address for address in members if address in living]
    return []

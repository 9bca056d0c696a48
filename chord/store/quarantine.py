"""An operator's decisions about quarantined values: drop them, or merge them back.

A quarantined value is hidden, because no store can tell whether it was deleted (`reap_log.py`). Both decisions put its
dot, the name of its write, into the record's clock, as if a write had replaced it. A clock that knows the dot removes
the value from every quarantine that it merges with. A replica that was away therefore brings nothing back. A merge also
writes each value again, under a dot of the coordinating store. The new value stands beside the values of the record.

Source: this project.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from chord.errors import InvalidRequest
from chord.store import versions
from chord.wire.messages import ACTORS_HELD_MAX, ActorClock, Record, Version, wire_bytes

OP_ID_BYTES = 16


class Hidden(NamedTuple):
    """A version in quarantine, with its dot: `actor`, and the `number` of the write among the actor's writes."""

    actor: bytes
    number: int
    version: Version


class Decision(NamedTuple):
    """A record after an operator's decision about its quarantine.

    Attributes:
        record: the record after the decision.
        decided: the number of versions that left the quarantine by it.
    """

    record: Record
    decided: int


def hidden(record: Record) -> list[Hidden]:
    """Return the quarantined versions of a record, sorted by actor, and the oldest first for each actor."""
    return [
        Hidden(entry.actor, entry.count - place, entry.versions[place])
        for entry in record.quarantine
        for place in reversed(range(len(entry.versions)))
    ]


def count(record: Record) -> int:
    """Return the number of versions in a record's quarantine."""
    return sum(len(entry.versions) for entry in record.quarantine)


def context_of(record: Record) -> dict[bytes, int]:
    """Return a context that names all quarantined versions of a record, for `drop` or `merge`.

    It maps each actor in quarantine to the number of its last write.
    """
    return {entry.actor: entry.count for entry in record.quarantine}


def cut(record: Record, bytes_max: int) -> Record:
    """Return the part of a record's quarantine for which a reply has room.

    The result is a record with this part as its quarantine, and with an empty clock. The part begins with the first
    actor, and has all versions of each of its actors. After an operator has decided about these actors, a later reply
    can show the others.

    Args:
        record: the record; it is not changed.
        bytes_max: limit for the size of the part on the wire, in bytes. If the first actor alone exceeds it, the part
            has this actor only.
    """
    kept: list[ActorClock] = []
    size = 0
    for entry in record.quarantine:
        size += wire_bytes(Record(b"", (entry,)))
        if kept and size > bytes_max:
            break
        kept.append(entry)
    return Record(record.key, (), b"", tuple(kept))


def drop(record: Record, context: Mapping[bytes, int]) -> Decision:
    """Return the record without the quarantined versions that a context names.

    The record's clock then knows these versions as replaced. `context` maps each actor to the number of its last write
    to drop; its earlier writes are also dropped. If it names no quarantined version, the record is returned unchanged.

    Raises:
        InvalidRequest: definite; the clock would remember too many actors.
    """
    dead = {
        entry.actor: min(context[entry.actor], entry.count)
        for entry in record.quarantine
        if context.get(entry.actor, 0) > entry.count - len(entry.versions)
    }
    if not dead:
        return Decision(record, 0)
    decided = versions.discard(record, dead)
    if len(decided.clock) > ACTORS_HELD_MAX:
        raise InvalidRequest(
            f"{len(decided.clock)} stores have coordinated writes of this key; the limit is "
            f"{ACTORS_HELD_MAX}; decide about fewer values at a time, or delete the key first"
        )
    return Decision(decided, sum(1 for one in hidden(record) if one.number <= dead.get(one.actor, 0)))


def merge(
    record: Record,
    context: Mapping[bytes, int],
    minting: bytes,
    op_id: bytes,
    *,
    fits: Callable[[Record], bool],
    is_retry: bool = False,
) -> Decision:
    """Return the record with quarantined versions written again as new values.

    Each new value stands beside the others, and its old copy leaves the quarantine. Two kinds of versions leave the
    quarantine and are not written again. They are tombstones, which would delete nothing, and versions with operations
    that the record knows. Both count in `Decision.decided`.

    Args:
        record: the record.
        context: names the versions to merge: by actor, the number of the last write to merge, with all earlier ones.
        minting: the actor under which the coordinating store writes; see `versions.put`.
        op_id: the operation id of the operator's decision. Each new value gets an operation id derived from it.
        fits: returns whether a record with one more version is within the limits. If it is not, this version and later
            ones of its actor stay in quarantine.
        is_retry: whether an earlier attempt of the decision may have been carried out elsewhere.

    Raises:
        InvalidRequest: definite; the clock would remember too many actors.
    """
    after, total, full = record, 0, set[bytes]()
    for actor, number, version in hidden(record):
        if number > context.get(actor, 0) or actor in full:
            continue
        one = drop(after, {actor: number}).record
        if version.value is not None and not versions.is_done(after, version.op_id):
            one = write_anew(one, version, minting, op_id, is_retry=is_retry)
            if not fits(one):
                full.add(actor)
                continue
        after, total = one, total + 1
    return Decision(after, total)


def write_anew(record: Record, version: Version, minting: bytes, op_id: bytes, *, is_retry: bool) -> Record:
    """Return the record with a copy of a version, written as a new operation.

    The copy stands beside the record's values. It replaces tombstones, which would otherwise stand beside it for ever.
    It keeps the time of writing and the time to live.

    Args:
        record: the record.
        version: the version to copy.
        minting: the actor under which the coordinating store writes; see `versions.put`.
        op_id: the id of the new operation. The copy's operation id is derived from it and from the version's own. So
            another attempt, or another dot of the version, writes no second copy.
        is_retry: whether an earlier attempt may have been carried out elsewhere.

    Raises:
        InvalidRequest: definite; the clock would remember too many actors.
    """
    made = blake2b(op_id + version.op_id, digest_size=OP_ID_BYTES).digest()
    if versions.is_done(record, made):
        return record
    copy = Version(version.value, made, version.written_ms, version.expires_ms, is_retry)
    deletes = {
        entry.actor: entry.count
        for entry in record.clock
        if entry.versions and all(one.value is None for one in entry.versions)
    }
    return versions.put(record, record.key, deletes, minting, copy)

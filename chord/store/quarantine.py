"""What an operator decides about values in quarantine: they go, or they come back as new values.

A quarantined value is hidden, because no store vouches for it (`reap_log.py`). Both decisions put its dot into the
record's clock, as if a write had replaced it. A clock that knows the dot takes the value out of every quarantine that
the record is merged with, so a replica that was away brings nothing back. A merge also writes each value anew, under
a dot of the store that coordinates it; the new value stands beside what is there.

Source: this project's.
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
    """A version in quarantine, and its dot."""

    actor: bytes
    number: int
    version: Version


class Decided(NamedTuple):
    """A record after a decision, and how many of its quarantined versions were decided about."""

    record: Record
    decided: int


def hidden(record: Record) -> list[Hidden]:
    """Return the versions in quarantine, those of one actor in the order of their writes."""
    return [
        Hidden(entry.actor, entry.count - place, entry.versions[place])
        for entry in record.quarantine
        for place in reversed(range(len(entry.versions)))
    ]


def count(record: Record) -> int:
    """Return how many versions are in quarantine."""
    return sum(len(entry.versions) for entry in record.quarantine)


def context_of(record: Record) -> dict[bytes, int]:
    """Return the context that names all versions in quarantine, for a decision about them."""
    return {entry.actor: entry.count for entry in record.quarantine}


def cut(record: Record, bytes_max: int) -> Record:
    """Return the quarantine of a record without its clock, and of it as many actors as a reply may hold; one at least.

    What is left out is found once these are decided about.
    """
    kept: list[ActorClock] = []
    size = 0
    for entry in record.quarantine:
        size += wire_bytes(Record(b"", (entry,)))
        if kept and size > bytes_max:
            break
        kept.append(entry)
    return Record(record.key, (), b"", tuple(kept))


def drop(record: Record, context: Mapping[bytes, int]) -> Decided:
    """Return the record without the quarantined versions that a context names; its clock knows them as replaced.

    Raises:
        InvalidRequest: definite; the clock would remember too many actors.
    """
    dead = {
        entry.actor: min(context[entry.actor], entry.count)
        for entry in record.quarantine
        if context.get(entry.actor, 0) > entry.count - len(entry.versions)
    }
    if not dead:
        return Decided(record, 0)
    decided = versions.discard(record, dead)
    if len(decided.clock) > ACTORS_HELD_MAX:
        raise InvalidRequest(
            f"{len(decided.clock)} stores have coordinated writes of this key, and a record remembers "
            f"{ACTORS_HELD_MAX}: decide about fewer values at a time, or delete the key first"
        )
    return Decided(decided, sum(1 for one in hidden(record) if one.number <= dead.get(one.actor, 0)))


def merge(
    record: Record,
    context: Mapping[bytes, int],
    minting: bytes,
    op_id: bytes,
    *,
    fits: Callable[[Record], bool],
    is_retry: bool = False,
) -> Decided:
    """Return the record with quarantined versions written anew, each beside what is there, and out of the quarantine.

    A tombstone is not written anew: it would delete nothing. Neither is a version whose operation the record knows.

    Args:
        context: names the versions to bring back.
        minting: the actor of the coordinating store; as of `versions.put`.
        op_id: of the decision; each version gets an operation id made of it.
        fits: whether a record with one version more is within the limits. At the first version of an actor that is
            not, the later versions of this actor stay in quarantine.
        is_retry: an earlier attempt may have been carried out elsewhere.

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
    return Decided(after, total)


def write_anew(record: Record, version: Version, minting: bytes, op_id: bytes, *, is_retry: bool) -> Record:
    """Return the record with another copy of a version beside its values, as a new operation that is done once.

    It replaces deletes, which would otherwise stand beside it for ever. Its time of writing and its time to live stay
    as they were.

    Args:
        minting: the actor of the coordinating store; as of `versions.put`.
        op_id: of the decision. The copy's operation id is the same for each attempt, and for each dot of the version.
        is_retry: an earlier attempt may have been carried out elsewhere.

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

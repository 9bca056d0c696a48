"""Dotted version vector sets: how two versions of a record merge.

A record's clock maps each actor to (n, values). The number n counts the events seen from the actor, and the values are
those of its latest events, newest first. The value at position k carries the dot (actor, n - k). Older events are
known, but their values are overwritten.

A context is what a reader saw: it maps each actor to n. For clients it is opaque bytes. Plain version vectors keep a
sibling for each of many writes that use an old context through one server. This module keeps only values that are truly
concurrent.

A retried put may have two dots. They are one sibling. When a context covers one dot, the other shows nothing any more
(`dedup.py`).

A dot is never reused. An actor is a store's incarnation and a key epoch, and the store never returns a key epoch twice.
A node that has lost its clock of a key therefore mints under a new actor.

A record can hold actors in quarantine. Their values are old, and no store has vouched for them (`reap_log.py`). Readers
do not see them. They merge like the clock, and leave the quarantine when a merged clock decides about them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from chord.errors import InvalidRequest
from chord.store import dedup
from chord.wire.messages import (
    ACTORS_HELD_MAX,
    ACTORS_MAX,
    CONTEXT_BYTES_MAX,
    SIBLINGS_MAX,
    ActorClock,
    Record,
    Version,
)

ACTOR_BYTES = 16
INCARNATION_BYTES = 8  # an actor begins with the incarnation of its store
COUNT_MAX = 1 << 62


def actor(incarnation: bytes, key_epoch: int) -> bytes:
    """Return the actor of a store's incarnation, which has 8 bytes, and a key epoch of that store.

    Raises:
        ValueError: `incarnation` has another length.
    """
    if len(incarnation) != INCARNATION_BYTES:
        raise ValueError(f"an incarnation has {INCARNATION_BYTES} bytes")
    return incarnation + key_epoch.to_bytes(8, "big")


def is_lendable(actor: bytes) -> bool:
    """Return whether an actor may name a version that is sent before it is stored.

    Its key epoch is odd then. A crash makes such an actor useless (`early.py`), and keeps the others. So the key epoch
    decides for the actor's whole life.
    """
    return bool(actor[-1] & 1)


# -- the algebra --------------------------------------------------------------------------------


def discard(record: Record, context: Mapping[bytes, int]) -> Record:
    """Return the record without the values that a context covers.

    The clock of the result knows every write that the context covers. A context maps each actor to the number of its
    last write that a reader has seen.
    """
    clock = _in_order(_clock_without(record, context))
    return _decided(Record(record.key, clock, _replaced(clock, record), record.quarantine))


def _clock_without(record: Record, context: Mapping[bytes, int]) -> dict[bytes, ActorClock]:
    clock: dict[bytes, ActorClock] = {}
    for entry in record.clock:
        covered = context.get(entry.actor, 0)
        if covered > entry.count - len(entry.versions):
            values = entry.versions[: max(0, entry.count - covered)]
            entry = ActorClock(entry.actor, max(entry.count, covered), values)
        clock[entry.actor] = entry
    for who, covered in context.items():
        if who not in clock:
            clock[who] = ActorClock(who, covered, ())
    return clock


def _in_order(clock: Mapping[bytes, ActorClock]) -> tuple[ActorClock, ...]:
    return tuple(map(clock.__getitem__, sorted(clock)))


def put(
    record: Record | None,
    key: bytes,
    context: Mapping[bytes, int] | None,
    minting: bytes,
    version: Version,
    *,
    skipped: int = 0,
) -> Record:
    """Return the record after a write, which replaces the values that a reader saw.

    Args:
        record: the record now stored under the key, or None.
        key: the key.
        context: the context that the writer has read. Values that it covers are replaced. None covers everything in the
            record, {} covers nothing.
        minting: the actor that mints the dot of this write. The record must know all writes of this actor to the key,
            so that no two writes get one dot.
        version: the value, or a tombstone.
        skipped: the number of an earlier event of `minting` that the new version replaces, although the record may not
            know it. Only with a context of None. 0: there is no such event.

    Raises:
        InvalidRequest: definite. The context covers writes of `minting` that were never made. Or the write would add an
            actor beyond the limit: `ACTORS_MAX`, or twice as many for a delete, because deletes are the way out.
    """
    if record is None:
        record = Record(key, ())
    assert record.key == key, "a version of another key"
    known = context_of(record)
    if context is None:
        context = known
    count = known.get(minting, 0)
    if context.get(minting, 0) > count:
        raise InvalidRequest("the context belongs to another key or ring: read the key again")
    clock = _clock_without(record, context)
    values = clock[minting].versions if minting in clock else ()
    clock[minting] = ActorClock(minting, max(count, skipped) + 1, (version, *values))
    actors_max = ACTORS_MAX if version.value is not None else ACTORS_HELD_MAX
    if len(clock) > max(actors_max, len(record.clock)):
        raise InvalidRequest(
            f"{len(clock)} nodes have coordinated writes of this key; the limit is {ACTORS_MAX}; "
            "delete it, then write it again after its tombstone was reaped"
        )
    after = _in_order(clock)
    remembered = _replaced(after, record, by=version, claims=_unseen(known, context))
    return _decided(Record(key, after, remembered, record.quarantine))


def _unseen(known: Mapping[bytes, int], context: Mapping[bytes, int]) -> list[dedup.Dot]:
    """Return events that a write's context covers, but that its record does not know.

    The versions of these events are on other nodes. At most `CLAIMS_MAX` events are returned, for each actor the latest
    first. `known` is the context of the record.
    """
    unseen: list[dedup.Dot] = []
    for who, count in context.items():
        room = dedup.CLAIMS_MAX - len(unseen)
        for number in range(count, max(known.get(who, 0), count - room), -1):
            unseen.append(dedup.Dot(who, number))
    return unseen


def sync(a: Record, b: Record) -> Record:
    """Return the merge of two replicas' records of one key.

    The result knows the writes that either record knows, and holds the values that neither knows as replaced. The merge
    is commutative, associative and idempotent.
    """
    assert a.key == b.key, "records of two keys"
    if a == b:
        return a
    merged = _joined(a.clock, b.clock)
    remembered = _replaced(merged, a, b)
    if not a.quarantine and not b.quarantine:
        return Record(a.key, merged, remembered)
    return _decided(Record(a.key, merged, remembered, _joined(a.quarantine, b.quarantine)))


def _joined(a: tuple[ActorClock, ...], b: tuple[ActorClock, ...]) -> tuple[ActorClock, ...]:
    joined: dict[bytes, ActorClock] = {}
    for entry in (*a, *b):
        mine = joined.get(entry.actor)
        joined[entry.actor] = entry if mine is None else _sync_entry(mine, entry)
    return _in_order(joined)


def _decided(record: Record) -> Record:
    """Release or drop quarantined values if the record's clock decides about them.

    A clock that knows all events of an actor holds or has replaced its values. A clock that holds a live value of the
    actor shows that the actor was not reaped, so its other values join the clock. A value that the clock or the
    quarantine knows as replaced is replaced in both. Other values of an actor are dropped if the record knows all of
    their operations.
    """
    if not record.quarantine:
        return record
    known = {entry.actor: entry for entry in record.clock}
    freed: list[ActorClock] = []
    kept: list[ActorClock] = []
    for entry in record.quarantine:
        mine = known.get(entry.actor)
        if mine is not None and (mine.count >= entry.count or mine.versions):
            freed.append(entry)
        elif not all(is_done(record, version.op_id) for version in entry.versions):
            kept.append(entry if mine is None else _sync_entry(mine, entry))
    decided = Record(record.key, record.clock, record.replaced, tuple(kept))
    return sync(decided, Record(record.key, tuple(freed))) if freed else decided


def _sync_entry(a: ActorClock, b: ActorClock) -> ActorClock:
    if a.count < b.count:
        a, b = b, a
    # Each side knows that events up to count - len(versions) are overwritten. The later bound holds.
    overwritten = b.count - len(b.versions)
    if a.count - len(a.versions) >= overwritten:
        return a
    return ActorClock(a.actor, a.count, a.versions[: a.count - overwritten])


def _replaced(
    clock: Iterable[ActorClock], *of: Record, by: Version | None = None, claims: Sequence[dedup.Dot] = ()
) -> bytes:
    """Return the replaced operations to remember in a new record.

    They are the operations that the old records remember, and those with versions that the new clock no longer holds.

    Args:
        clock: the clock of the new record.
        *of: the old records.
        by: the version that replaced the old ones. None: another node replaced them, and a merged record may name the
            replacement.
        claims: dots that `by` replaced although no old record holds their versions.
    """
    floors: dict[bytes, int] = {}
    newest_ms = 0
    for entry in clock:
        floors[entry.actor] = entry.count - len(entry.versions)  # the last event without a value
        for version in entry.versions:
            newest_ms = max(newest_ms, version.written_ms)
    remembered: set[bytes] = set()
    replaced: list[dedup.Replaced] = []
    for record in of:
        remembered.add(record.replaced)
        for entry in record.clock:
            for place, version in enumerate(entry.versions):
                if entry.count - place <= floors[entry.actor]:
                    dot = dedup.Dot(entry.actor, entry.count - place)
                    replaced.append(dedup.Replaced(version, dot if by is None else by.op_id))
    if not replaced and not claims and not any(remembered):
        return b""
    return dedup.join(remembered, replaced, newest_ms, [dedup.DotClaim(dot, by) for dot in claims] if by else ())


# -- questions ----------------------------------------------------------------------------------


def bury(record: Record, dead: Mapping[bytes, int], tags: bytes = b"") -> Record | None:
    """Return a record without dead writes, as an entry of a reap log names them; None if nothing is left.

    Args:
        record: the record.
        dead: by actor, the number of its last dead write. An actor without a later write is forgotten.
        tags: the joined tags of dead operations (`dedup.tags`). An actor loses its values if all of them are of dead
            operations.
    """

    def living(entries: Iterable[ActorClock]) -> tuple[ActorClock, ...]:
        found = []
        for entry in entries:
            last = dead.get(entry.actor, 0)
            if entry.count > last:
                kept = entry.versions[: entry.count - last]
                found.append(entry if kept == entry.versions else ActorClock(entry.actor, entry.count, kept))
        return tuple(found)

    def unmarked(entries: tuple[ActorClock, ...]) -> tuple[ActorClock, ...]:
        return tuple(
            ActorClock(entry.actor, entry.count, ())
            if all(dedup.is_tagged(version.op_id, tags) for version in entry.versions)
            else entry
            for entry in entries
        )

    clock, quarantine = living(record.clock), living(record.quarantine)
    if tags:
        clock = unmarked(clock)
        quarantine = tuple(entry for entry in unmarked(quarantine) if entry.versions)
    if not clock and not quarantine:
        return None
    return Record(record.key, clock, record.replaced if clock else b"", quarantine)


def isolate(record: Record, actors: Iterable[bytes]) -> Record:
    """Return a record with the values of some actors moved to quarantine.

    The clock keeps no entry of these actors. An empty entry would say that their values were replaced.
    """
    undecided = frozenset(actors)
    moved = tuple(entry for entry in record.clock if entry.actor in undecided)
    kept = tuple(entry for entry in record.clock if entry.actor not in undecided)
    return Record(record.key, kept, record.replaced, _joined(record.quarantine, moved))


def narrow(entry: ActorClock, count: int, held: int) -> ActorClock:
    """Return an actor's entry in a clock without the values that another store knows as replaced.

    Args:
        entry: the entry.
        count: how many writes of the actor the other store's clock knows.
        held: of how many of these writes, the latest, the other store still holds the versions.
    """
    replaced = count - held
    return ActorClock(entry.actor, entry.count, entry.versions[: max(0, entry.count - replaced)])


def siblings(record: Record) -> list[Version]:
    """Return the concurrent versions, tombstones included.

    The order is that of the actors, and newest first for each actor. Copies with the same operation id count once. Late
    copies of replaced operations are left out, unless no other version is left.
    """
    if len(record.clock) == 1 and len(record.clock[0].versions) == 1:
        return list(record.clock[0].versions)  # the usual case
    found: dict[bytes, Version] = {}
    for entry in record.clock:
        for version in entry.versions:
            found.setdefault(version.op_id, version)
    if record.replaced:
        shown = [one for op_id, one in found.items() if not dedup.is_hidden(op_id, record.replaced)]
        if shown:  # if not, the list has forgotten which operation replaced which
            return shown
    return list(found.values())


def values(record: Record) -> list[bytes]:
    """Return the concurrent values without tombstones, in the order of `siblings`.

    Expired values are included, quarantined values are not. A deleted record has no values.
    """
    return [version.value for version in siblings(record) if version.value is not None]


def is_live(version: Version, now_ms: int) -> bool:
    """Return whether readers see a version: not a tombstone, and not expired.

    `now_ms` is the time by a wall clock, in ms since 1970.
    """
    return version.value is not None and not 0 < version.expires_ms <= now_ms


def cut(record: Record, bytes_max: int) -> Record:
    """Return as much of a record as a reply may hold: some actors with all their values.

    For the other actors, the clock of the result knows only the replaced writes. No coordinator lets siblings grow too
    many for a reply, but siblings from several coordinators may add up to more. The context of the result covers only
    the returned values. The reader resolves these, and finds the rest at the next read. The quarantine is left out.

    Args:
        record: the record.
        bytes_max: limit for the bytes of the values. `SIBLINGS_MAX` limits their number. The first actor with values
            keeps them, even beyond these limits.
    """
    if len(record.clock) <= 1:
        return Record(record.key, record.clock, record.replaced) if record.quarantine else record
    clock: list[ActorClock] = []
    size = count = 0
    for entry in record.clock:
        own = sum(len(version.value or b"") for version in entry.versions)
        is_too_much = size + own > bytes_max or count + len(entry.versions) > SIBLINGS_MAX
        if count and entry.versions and is_too_much:
            clock.append(ActorClock(entry.actor, entry.count - len(entry.versions), ()))
        else:
            clock.append(entry)
            size += own
            count += len(entry.versions)
    return Record(record.key, tuple(entry for entry in clock if entry.count), record.replaced)


def split(record: Record, bytes_max: int) -> list[Record]:
    """Cut a record into smaller records of the same key that together merge to it, each small enough to send.

    Each holds the values of as many actors as fit into `bytes_max` bytes. An actor with more bytes is alone in its
    record. No single coordinator lets a record outgrow a frame, but writes through several coordinators may add up to
    more. Actors merge one by one, so each smaller record can be sent by itself. Those with quarantined values come
    last.
    """
    if len(record.clock) <= 1 and not record.quarantine:
        return [record]  # the usual case
    parts = [Record(record.key, part, record.replaced) for part in _split(record.clock, bytes_max)]
    if not record.quarantine:
        return parts
    replaced = b"" if record.clock else record.replaced  # isolation may leave a record without a clock
    hidden = [Record(record.key, (), replaced, part) for part in _split(record.quarantine, bytes_max)]
    return [*parts, *hidden] if record.clock else hidden


def _split(entries: Iterable[ActorClock], bytes_max: int) -> list[tuple[ActorClock, ...]]:
    parts: list[list[ActorClock]] = [[]]
    size = 0
    for entry in entries:
        own = sum(len(version.value or b"") for version in entry.versions)
        if parts[-1] and size + own > bytes_max:
            parts.append([])
            size = 0
        parts[-1].append(entry)
        size += own
    return [tuple(part) for part in parts]


def is_done(record: Record, op_id: bytes) -> bool:
    """Return whether a record knows that an operation was carried out.

    Then the record holds the operation's version outside the quarantine, or remembers that the operation was replaced.
    """
    if dedup.names(op_id, record.replaced):
        return True
    for entry in record.clock:
        for version in entry.versions:
            if version.op_id == op_id:
                return True
    return False


def context_of(record: Record) -> dict[bytes, int]:
    """Return the context of a reader that has seen all values of the record outside the quarantine.

    It maps each actor to the number of its writes that the clock knows.
    """
    return {entry.actor: entry.count for entry in record.clock}


def count_of(record: Record, actor: bytes) -> int:
    """Return how many events of an actor a record's clock knows; 0 without an entry."""
    for entry in record.clock:
        if entry.actor == actor:
            return entry.count
    return 0


def context_after(record: Record, op_id: bytes) -> dict[bytes, int]:
    """Return the context of a writer that has seen only the version it wrote, with the operation id `op_id`.

    Empty if no version of the record has that id any more.

    A context covers the first writes of an actor. An unseen write therefore keeps all later writes of its actor out of
    the context, even the writer's own. An extra sibling is better than the loss of a value that no client has read.
    """
    context: dict[bytes, int] = {}
    for entry in record.clock:
        first_unseen = 0
        for place, version in enumerate(entry.versions, 1):
            if version.op_id != op_id:
                first_unseen = place
        if entry.count > first_unseen:
            context[entry.actor] = entry.count - first_unseen
    return context


def is_sound(record: Record) -> bool:
    """Return whether a record from another node is well-formed enough to be used.

    A node makes only this check when it merges or reads such a record. `check` finds more faults in the quarantine and
    in the replaced operations, but accepts numbers of writes of any size.
    """
    for entries in (record.clock, record.quarantine):
        before = b""
        for entry in entries:
            if entry.actor <= before or not max(1, len(entry.versions)) <= entry.count < COUNT_MAX:
                return False
            before = entry.actor
    return len(record.replaced) % dedup.ENTRY_BYTES == 0


def check(record: Record) -> list[str]:
    """Return a sentence for each fault in a record's clock, quarantine or replaced operations."""
    wrong = []
    for entries in (record.clock, record.quarantine):
        if any(a.actor >= b.actor for a, b in pairwise(entries)):
            wrong.append("actors are not in strictly ascending order")
        for entry in entries:
            if entry.count < 1 or len(entry.versions) > entry.count:
                wrong.append(f"{len(entry.versions)} values of {entry.count} events")
    if any(not entry.versions for entry in record.quarantine):
        wrong.append("an actor in quarantine has no value")
    if not dedup.is_whole(record.replaced):
        wrong.append("the list of replaced operations is malformed")
    return wrong


# -- contexts as bytes --------------------------------------------------------------------------


def encode_context(context: Mapping[bytes, int]) -> bytes:
    """Encode a context as bytes: by actor, the number of its last write that a reader has seen.

    Each actor is followed by its number, and the actors are in ascending order. A number has 7 bits in each byte, the
    low bits first. A context that covers nothing is empty.
    """
    out = bytearray()
    for who in sorted(context):
        out += who
        count = context[who]
        while count > 0x7F:
            out.append(count & 0x7F | 0x80)
            count >>= 7
        out.append(count)
    return bytes(out)


def decode_context(data: bytes) -> dict[bytes, int]:
    """Decode a context from the bytes of `encode_context`.

    Raises:
        InvalidRequest: definite; `encode_context` did not make these bytes.
    """
    if len(data) > CONTEXT_BYTES_MAX:
        raise InvalidRequest(f"a context has at most {CONTEXT_BYTES_MAX} bytes, not {len(data)}")
    context: dict[bytes, int] = {}
    position, last = 0, b""
    while position < len(data):
        who = data[position : position + ACTOR_BYTES]
        count, position = _read_count(data, position + ACTOR_BYTES)
        if len(who) < ACTOR_BYTES or who <= last or not 1 <= count < COUNT_MAX:
            raise _bad_context()
        context[who] = count
        last = who
    return context


def _read_count(data: bytes, position: int) -> tuple[int, int]:
    count = shift = 0
    for index in range(position, min(position + 9, len(data))):
        byte = data[index]
        count |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if byte == 0 and shift > 7:  # each number has only one encoding
                raise _bad_context()
            return count, index + 1
    raise _bad_context()


def _bad_context() -> InvalidRequest:
    return InvalidRequest("these bytes are not a context: give back what a get returned")

"""Messages about reaped records: dead records that a store has removed for good.

A store lists them in its reap logs, one for each of the 4,096 slices of the circle. The *maker* of a log entry is the
store that reaped the record. A *dot* names one write by its actor (a store and a key epoch) and a number.

Source: this project's; the rules are in `chord/store/reap_log.py`.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from chord.ids import Contact, Point
from chord.wire.messages.base import (
    ACTORS_HELD_MAX,
    HEADS_MAX,
    PAGE_RECORDS_MAX,
    REPLACED_BYTES_MAX,
    Count,
    Identity,
    Key,
    Reply,
    Request,
)

SLICES = 4096
SLICES_ASKED_MAX = 64
MAKERS_MAX = 4096
"""Largest number of stores in a message about one slice.

They made its log entries, or did the writes that its trimmed entries name.
"""
LOG_ENTRIES_MAX = 4096
"""Largest number of log entries of one maker, a store, in one message."""
SEEN_BYTES = 8

Slice: TypeAlias = Annotated[int, Meta(ge=0, lt=SLICES)]
Incarnation: TypeAlias = Annotated[bytes, Meta(min_length=8, max_length=8)]
Seen: TypeAlias = Annotated[bytes, Meta(max_length=SEEN_BYTES)]
"""A digest of the reap log entries that a store has applied to a slice, or empty."""
SeenOfEach: TypeAlias = Annotated[tuple[Seen, ...], Meta(max_length=PAGE_RECORDS_MAX)]
"""The `Seen` of the slice of each record of a page; an empty tuple if all of them are empty."""


class DeadActor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The writes of one actor to one record, all of them dead: those with the numbers 1 to `count`.

    Attributes:
        actor: the actor.
        count: the number of its last dead write.
    """

    actor: Identity
    count: Count


class LogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry of a reap log: one record that a store has reaped.

    Attributes:
        point: the first bytes of the record's point.
        dead: the writes of the record, by actor. All of them are dead.
        tags: the last eight bytes of the id of each replaced operation, joined, for retry deduplication.
    """

    point: Annotated[bytes, Meta(min_length=1, max_length=8)]
    dead: Annotated[tuple[DeadActor, ...], Meta(max_length=ACTORS_HELD_MAX)]
    tags: Annotated[bytes, Meta(max_length=REPLACED_BYTES_MAX)] = b""


class UpTo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A store, and a number that belongs to it. The field with the `UpTo` says which number.

    Attributes:
        store: the incarnation of the store.
        number: the number of a log entry that the store made; in `SliceLog.floors`, a key epoch of the store.
    """

    store: Incarnation
    number: Count


UpTos: TypeAlias = Annotated[tuple[UpTo, ...], Meta(max_length=MAKERS_MAX)]


class EntryRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive reap log entries of one maker.

    Attributes:
        maker: the incarnation of the store that reaped the records.
        first: the number of the first entry.
        entries: the entries.
    """

    maker: Incarnation
    first: Count
    entries: Annotated[tuple[LogEntry, ...], Meta(max_length=LOG_ENTRIES_MAX)]


class SliceLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reap log of one slice of the circle at one store.

    Attributes:
        slice: the number of the slice.
        seen: for each maker, the number of the last entry that the store has seen.
        trimmed: for each maker, the number of the last entry that the store has dropped to limit the size of the log.
        floors: for each store, the highest key epoch among the actors in trimmed entries.
        tags: the last eight bytes of the ids of the latest replaced operations in trimmed entries, joined.
        runs: those entries that the message contains.
    """

    slice: Slice
    seen: UpTos
    trimmed: UpTos
    floors: UpTos
    tags: Annotated[bytes, Meta(max_length=1024)]
    runs: Annotated[tuple[EntryRun, ...], Meta(max_length=MAKERS_MAX)]


class SliceSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A slice, and which entries of its reap log a store has applied.

    Attributes:
        slice: the number of the slice.
        seen: a digest of these entries. Stores with equal digests have applied the same entries.
    """

    slice: Slice
    seen: Seen


class GetSeenReply(Reply, frozen=True, tag=154):
    """Which reap log entries a store has applied in an arc.

    Attributes:
        slices: the slices to which it has applied any, in ascending order.
    """

    slices: Annotated[tuple[SliceSeen, ...], Meta(max_length=SLICES)]


class GetSeen(Request, frozen=True, tag=53):
    """Request for digests of the reap log entries that the called store has applied, by slice.

    Attributes:
        arc_start, arc_end: the arc. The reply covers every slice that it touches.
    """

    arc_start: Point
    arc_end: Point
    reply = GetSeenReply
    patient = True
    bulk = True
    purpose = "repair"


class AskLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One slice of a `GetLogs`.

    Attributes:
        slice: the number of the slice.
        seen: for each maker, the number of the last entry that the caller has seen.
    """

    slice: Slice
    seen: UpTos


class GetLogsReply(Reply, frozen=True, tag=155):
    """The reap logs of the first requested slices, as many as fit into a page.

    Attributes:
        slices: the logs. A log that is longer than a page has only its first entries.
    """

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]


class GetLogs(Request, frozen=True, tag=54):
    """Request for the reap log entries of some slices that the caller has not seen.

    Attributes:
        asks: the slices, each with the entries that the caller has seen.
    """

    asks: Annotated[tuple[AskLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    reply = GetLogsReply
    patient = True
    bulk = True
    purpose = "repair"


class StoreLogs(Request, frozen=True, tag=46):
    """New reap log entries of the sender, which has just reaped records.

    The called store applies an entry if it has seen all earlier entries of the same maker.

    Attributes:
        slices: the slices, each with its new entries.
    """

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    patient = True
    bulk = True
    purpose = "repair"


class FetchLogs(Request, frozen=True, tag=55):
    """Request to fetch from the caller the reap log entries for an arc that the called store has not seen.

    The called store answers when the entries are applied and durable.

    Attributes:
        arc_start, arc_end: the arc.
        asker: a vnode of the caller, from which the entries are fetched.
    """

    arc_start: Point
    arc_end: Point
    asker: Contact
    patient = True
    purpose = "repair"


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The question about one actor in a `Vouch`.

    Attributes:
        key: a key with old values that the caller holds.
        actor: the actor that wrote these values.
    """

    key: Key
    actor: Identity


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to a `Claim`: which writes of the actor the called store's record knows.

    Attributes:
        count: the number of writes of the actor that the record knows.
        held: how many of these writes, counted from the latest, still have a value or a tombstone in the record.
    """

    count: Count
    held: Count


class VouchReply(Reply, frozen=True, tag=156):
    """Reply to a `Vouch`.

    Attributes:
        trimmed: for each maker, the number of the last entry that was trimmed from the log by then.
        holdings: the answer to each claim, in the order of the claims.
    """

    trimmed: UpTos
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=HEADS_MAX)]


class Vouch(Request, frozen=True, tag=56):
    """Request to a store to vouch for old values that the caller holds.

    The caller lacks reap log entries that the called store has trimmed, so these values may have been deleted. The
    called store vouches for an actor's values if it knows all writes of the actor, or still holds a value of it.

    Attributes:
        slice: the number of the slice with the keys.
        claims: the keys, each with an actor of old values.
    """

    slice: Slice
    claims: Annotated[tuple[Claim, ...], Meta(max_length=HEADS_MAX)]
    reply = VouchReply
    patient = True
    bulk = True
    purpose = "repair"


class AreExpiredReply(Reply, frozen=True, tag=161):
    """Which records have expired at the called store.

    Attributes:
        each: whether the record has expired, for each key in the order of the request.
    """

    each: Annotated[tuple[bool, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class AreExpired(Request, frozen=True, tag=41):
    """Question whether the records of some keys have expired at the called store.

    A record has expired if it has had no live value for the grace period, by the clock of the called store. A key
    without a record, or with values in quarantine only, counts as expired.

    Attributes:
        keys: the keys.
    """

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = AreExpiredReply
    patient = True
    purpose = "repair"

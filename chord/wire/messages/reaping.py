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
    """The dead writes of one record by one actor: those numbered up to `count`.

    An actor is the name under which a store numbers its writes of a key.
    """

    actor: Identity
    count: Count


class LogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reap log entry of one record that a store has removed for good.

    Attributes:
        point: the first bytes of the record's point.
        dead: the writes of the record, all of them dead.
        tags: tags of operations that had been replaced, for retry deduplication; see `chord/store/dedup.py`.
    """

    point: Annotated[bytes, Meta(min_length=1, max_length=8)]
    dead: Annotated[tuple[DeadActor, ...], Meta(max_length=ACTORS_HELD_MAX)]
    tags: Annotated[bytes, Meta(max_length=REPLACED_BYTES_MAX)] = b""


class UpTo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A number for one store: that of a log entry which it made, or a key epoch.

    The field with the `UpTo` says which; key epochs are in `SliceLog.floors` only. A key epoch is a number in a store's
    actors. A store takes a new one if it may have lost its count for a key.
    """

    store: Incarnation
    number: Count


UpTos: TypeAlias = Annotated[tuple[UpTo, ...], Meta(max_length=MAKERS_MAX)]


class EntryRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive reap log entries of one maker, the store that wrote them.

    The first entry has the number `first`.
    """

    maker: Incarnation
    first: Count
    entries: Annotated[tuple[LogEntry, ...], Meta(max_length=LOG_ENTRIES_MAX)]


class SliceLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reap log of one slice of the circle at one store.

    Attributes:
        slice: the slice.
        seen: for each maker of entries, the last entry that the store has applied to its records.
        trimmed: for each maker, the last entry that the store has dropped from the log to limit its size.
        floors: for each store, the highest key epoch among the actors in trimmed entries.
        tags: tags of the latest replaced operations in trimmed entries; see `LogEntry`.
        runs: the entries that are sent.
    """

    slice: Slice
    seen: UpTos
    trimmed: UpTos
    floors: UpTos
    tags: Annotated[bytes, Meta(max_length=1024)]
    runs: Annotated[tuple[EntryRun, ...], Meta(max_length=MAKERS_MAX)]


class SliceSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A slice, and a digest of the reap log entries that a store has applied to it."""

    slice: Slice
    seen: Seen


class GetSeenReply(Reply, frozen=True, tag=154):
    """The slices of an arc to which the store has applied entries, in ascending order."""

    slices: Annotated[tuple[SliceSeen, ...], Meta(max_length=SLICES)]


class GetSeen(Request, frozen=True, tag=53):
    """Request for digests of the reap log entries that a store has applied, by slice.

    The slices are those that an arc touches.
    """

    arc_start: Point
    arc_end: Point
    reply = GetSeenReply
    patient = True
    bulk = True
    purpose = "repair"


class AskLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One slice of a `GetLogs`, and for each maker the last entry the caller has seen."""

    slice: Slice
    seen: UpTos


class GetLogsReply(Reply, frozen=True, tag=155):
    """The reap logs of the first requested slices, as many as a page holds.

    A log that is longer than a page is cut after its first entries.
    """

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]


class GetLogs(Request, frozen=True, tag=54):
    """Request for the reap log entries of some slices that the caller has not seen."""

    asks: Annotated[tuple[AskLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    reply = GetLogsReply
    patient = True
    bulk = True
    purpose = "repair"


class StoreLogs(Request, frozen=True, tag=46):
    """New reap log entries of the sender, which has just removed records for good.

    The called store applies an entry if it has seen all earlier entries of the same maker.
    """

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    patient = True
    bulk = True
    purpose = "repair"


class FetchLogs(Request, frozen=True, tag=55):
    """Request to fetch the reap log entries that the caller has for an arc.

    The called store fetches the entries that it has not seen from `asker`, a vnode of the caller. It answers when they
    are applied and durable.
    """

    arc_start: Point
    arc_end: Point
    asker: Contact
    patient = True
    purpose = "repair"


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key, and an actor that wrote values of the key which the caller holds."""

    key: Key
    actor: Identity


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The answer to a `Claim`: which writes of the actor a store's record knows.

    Attributes:
        count: number of writes of the actor that the record knows.
        held: how many of these writes, the latest ones, have a version (value or tombstone) in the record.
    """

    count: Count
    held: Count


class VouchReply(Reply, frozen=True, tag=156):
    """Reply to a `Vouch`.

    Attributes:
        trimmed: for each maker, the last entry that was trimmed from the log at that moment.
        holdings: the answer to each claim, in the order of the claims.
    """

    trimmed: UpTos
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=HEADS_MAX)]


class Vouch(Request, frozen=True, tag=56):
    """Request for what a store knows about old values that the caller holds.

    The caller lacks reap log entries that the called store has trimmed, so these values may have been deleted. The
    called store vouches for an actor's values if it knows all writes of the actor, or still holds a value of it.

    Attributes:
        slice: the slice of the keys.
        claims: the keys, each with an actor of old values.
    """

    slice: Slice
    claims: Annotated[tuple[Claim, ...], Meta(max_length=HEADS_MAX)]
    reply = VouchReply
    patient = True
    bulk = True
    purpose = "repair"


class AreExpiredReply(Reply, frozen=True, tag=161):
    """Reply to an `AreExpired`: the answer for each key, in the order of the keys."""

    each: Annotated[tuple[bool, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class AreExpired(Request, frozen=True, tag=41):
    """Question whether the records of some keys have expired at the called store.

    A record has expired if it has had no live value for the grace period, by the clock of the called store. A key
    without a record, or with values in quarantine only, counts as expired.
    """

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = AreExpiredReply
    patient = True
    purpose = "repair"

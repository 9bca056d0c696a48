"""Messages about reaped records: reap logs, and vouching for old values.

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
    SUPERSEDED_BYTES_MAX,
    Count,
    Identity,
    Key,
    Reply,
    Request,
)

SLICES = 4096
SLICES_ASKED_MAX = 64
MAKERS_MAX = 4096
"""Stores that made log entries of one slice, or minted dots that are in trimmed entries of it."""
LOG_ENTRIES_MAX = 4096
"""Largest number of entries of one maker in one message."""
SEEN_BYTES = 8

Slice: TypeAlias = Annotated[int, Meta(ge=0, lt=SLICES)]
Incarnation: TypeAlias = Annotated[bytes, Meta(min_length=8, max_length=8)]
Seen: TypeAlias = Annotated[bytes, Meta(max_length=SEEN_BYTES)]
"""A digest of the log entries that a store has applied to a slice; empty if it has applied no entry."""
SeenOfEach: TypeAlias = Annotated[tuple[Seen, ...], Meta(max_length=PAGE_RECORDS_MAX)]
"""The `Seen` of the slice of each record of a page; an empty tuple if all of them are empty."""


class DeadActor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An actor and its dead dots: all dots up to the number `count`."""

    actor: Identity
    count: Count


class LogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The log entry of one reaped record.

    Attributes:
        point: the first bytes of the record's point.
        dead: its dead dots.
        tags: tags of operations that had been replaced; see `chord/store/dedup.py`.
    """

    point: Annotated[bytes, Meta(min_length=1, max_length=8)]
    dead: Annotated[tuple[DeadActor, ...], Meta(max_length=ACTORS_HELD_MAX)]
    tags: Annotated[bytes, Meta(max_length=SUPERSEDED_BYTES_MAX)] = b""


class UpTo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A number for one store: that of its last log entry, or its highest key epoch."""

    store: Incarnation
    number: Count


UpTos: TypeAlias = Annotated[tuple[UpTo, ...], Meta(max_length=MAKERS_MAX)]


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive log entries of one maker; the first entry has the number `first`."""

    maker: Incarnation
    first: Count
    entries: Annotated[tuple[LogEntry, ...], Meta(max_length=LOG_ENTRIES_MAX)]


class SliceLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reap log of one slice at one store.

    Attributes:
        slice: the slice.
        seen: up to which entry of each maker the store has applied the log.
        trimmed: up to which entry of each maker the entries are gone from the log.
        floors: for each store, the highest key epoch among the actors in trimmed entries.
        tags: the latest operations that trimmed entries had replaced.
        runs: the entries that are sent.
    """

    slice: Slice
    seen: UpTos
    trimmed: UpTos
    floors: UpTos
    tags: Annotated[bytes, Meta(max_length=1024)]
    runs: Annotated[tuple[Run, ...], Meta(max_length=MAKERS_MAX)]


class SliceSeen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A slice, and the digest of the entries that a store has applied to it."""

    slice: Slice
    seen: Seen


class SeenIn(Reply, frozen=True, tag=154):
    """The slices of an arc with a nonempty reap log, in ascending order."""

    slices: Annotated[tuple[SliceSeen, ...], Meta(max_length=SLICES)]


class GetSeen(Request, frozen=True, tag=53):
    """Request for digests of the log entries that a store has applied in an arc."""

    arc_start: Point
    arc_end: Point
    reply = SeenIn
    patient = True
    bulk = True


class AskLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One slice of a `GetLogs`, and the entries that the caller has seen."""

    slice: Slice
    seen: UpTos


class Logs(Reply, frozen=True, tag=155):
    """The reap logs of the first requested slices, as many as a page holds.

    A log that is longer than a page is cut after its first entries.
    """

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]


class GetLogs(Request, frozen=True, tag=54):
    """Request for the log entries of some slices that the caller has not seen."""

    asks: Annotated[tuple[AskLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    reply = Logs
    patient = True
    bulk = True


class StoreLogs(Request, frozen=True, tag=46):
    """New log entries of the sender, which has just reaped records.

    The called store applies an entry if it has seen all earlier entries of the same maker.
    """

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    patient = True
    bulk = True


class Level(Request, frozen=True, tag=55):
    """Request to fetch the caller's log entries of an arc.

    The called store fetches the entries that it has not seen, and answers when they are applied and durable.
    """

    arc_start: Point
    arc_end: Point
    asker: Contact
    patient = True


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key, and an actor with values of that key at the caller."""

    key: Key
    actor: Identity


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The knowledge of a record about an actor.

    Attributes:
        count: number of events of the actor that the record knows.
        held: number of the latest of these events with a value in the record.
    """

    count: Count
    held: Count


class Vouched(Reply, frozen=True, tag=156):
    """Reply to a `Vouch`.

    Attributes:
        trimmed: up to which entry of each maker the log was trimmed at that moment.
        holdings: for each claim, the store's knowledge about the actor.
    """

    trimmed: UpTos
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=HEADS_MAX)]


class Vouch(Request, frozen=True, tag=56):
    """Request to vouch for old values, sent by a store that lacks trimmed log entries."""

    slice: Slice
    claims: Annotated[tuple[Claim, ...], Meta(max_length=HEADS_MAX)]
    reply = Vouched
    patient = True
    bulk = True


class Expired(Reply, frozen=True, tag=161):
    """Reply to an `AreExpired`: the answer for each key."""

    each: Annotated[tuple[bool, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class AreExpired(Request, frozen=True, tag=41):
    """Question whether the records of some keys have expired at the called store.

    A record has expired if it has had no live value for the grace period, by the clock of the called store. A key
    without a record, or with values in quarantine only, counts as expired.
    """

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = Expired
    patient = True

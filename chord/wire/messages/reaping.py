"""What stores say to one another about reaped records: their reap logs, and which old values are still vouched for.

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
"""Stores that ever reaped something of one slice, or minted what was trimmed of it."""
LOG_ENTRIES_MAX = 4096
"""Entries of one maker in one message."""
SEEN_BYTES = 8

Slice: TypeAlias = Annotated[int, Meta(ge=0, lt=SLICES)]
Incarnation: TypeAlias = Annotated[bytes, Meta(min_length=8, max_length=8)]
Seen: TypeAlias = Annotated[bytes, Meta(max_length=SEEN_BYTES)]
"""A digest of the log entries that a store has applied to a slice; empty if there are none."""
SeenOfEach: TypeAlias = Annotated[tuple[Seen, ...], Meta(max_length=PAGE_RECORDS_MAX)]
"""The `Seen` of each record of a page; no item at all if every one is empty."""


class DeadActor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Every dot of `actor` up to `count` is dead."""

    actor: Identity
    count: Count


class LogEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one reaped record leaves: the first bytes of its point, its dead dots, and tags of replaced operations."""

    point: Annotated[bytes, Meta(min_length=1, max_length=8)]
    dead: Annotated[tuple[DeadActor, ...], Meta(max_length=ACTORS_HELD_MAX)]
    tags: Annotated[bytes, Meta(max_length=SUPERSEDED_BYTES_MAX)] = b""


class UpTo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A number for one store: the last of its log entries, or the highest of its key epochs."""

    store: Incarnation
    number: Count


UpTos: TypeAlias = Annotated[tuple[UpTo, ...], Meta(max_length=MAKERS_MAX)]


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Consecutive log entries of one maker, the first of which has the number `first`."""

    maker: Incarnation
    first: Count
    entries: Annotated[tuple[LogEntry, ...], Meta(max_length=LOG_ENTRIES_MAX)]


class SliceLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reap log of one slice at one store: what it has seen and trimmed, its floors and tags, and some entries."""

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
    """The slices of an arc with a reap log that is not empty, in ascending order."""

    slices: Annotated[tuple[SliceSeen, ...], Meta(max_length=SLICES)]


class GetSeen(Request, frozen=True, tag=53):
    """Which log entries have you applied to the slices of this arc?"""

    arc_start: Point
    arc_end: Point
    reply = SeenIn
    patient = True
    bulk = True


class AskLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Ask for the log of a slice, without the entries that the asker has seen."""

    slice: Slice
    seen: UpTos


class Logs(Reply, frozen=True, tag=155):
    """The logs of the first of the asked slices, as many as a page holds. Of a long log: the first entries."""

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]


class GetLogs(Request, frozen=True, tag=54):
    """Send me what I have not seen of these slices."""

    asks: Annotated[tuple[AskLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    reply = Logs
    patient = True
    bulk = True


class StoreLogs(Request, frozen=True, tag=46):
    """I have just reaped this: apply the entries, if you have seen all before them."""

    slices: Annotated[tuple[SliceLog, ...], Meta(max_length=SLICES_ASKED_MAX)]
    patient = True
    bulk = True


class Level(Request, frozen=True, tag=55):
    """Fetch from me what you have not seen of the slices of this arc. Answered when that is applied and durable."""

    arc_start: Point
    arc_end: Point
    asker: Contact
    patient = True


class Claim(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key, and an actor of which the asker holds values of it."""

    key: Key
    actor: Identity


class Holding(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How many events of an actor a record knows, and of how many of the latest it holds the values."""

    count: Count
    held: Count


class Vouched(Reply, frozen=True, tag=156):
    """What is known here of each claimed actor, and what had been trimmed at that moment."""

    trimmed: UpTos
    holdings: Annotated[tuple[Holding, ...], Meta(max_length=HEADS_MAX)]


class Vouch(Request, frozen=True, tag=56):
    """I have not seen what you trimmed of this slice: what do you know of these actors?"""

    slice: Slice
    claims: Annotated[tuple[Claim, ...], Meta(max_length=HEADS_MAX)]
    reply = Vouched
    patient = True
    bulk = True


class Expired(Reply, frozen=True, tag=161):
    """Whether nothing lives of each asked record."""

    each: Annotated[tuple[bool, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class AreExpired(Request, frozen=True, tag=41):
    """Does nothing live of what you hold of these keys, and has nothing for the grace period, by your own clock?"""

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = Expired
    patient = True

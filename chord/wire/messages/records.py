"""Records and their versions; reading, writing and scanning them through their coordinator."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chord.config import FALLBACKS_MAX
from chord.ids import Contact, Point
from chord.wire.messages.base import (
    ACTORS_HELD_MAX,
    DIGEST_BYTES,
    LIST_ENTRIES_MAX,
    PAGE_RECORDS_MAX,
    REPLICAS_MAX,
    SIBLINGS_MAX,
    SUPERSEDED_BYTES_MAX,
    TTL_MS_MAX,
    Contacts,
    Context,
    Count,
    Finite,
    Identity,
    Key,
    Reply,
    Request,
    Text,
    Value,
)


class Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value of a record: what a put wrote (None deletes), its operation id, when (wall clock, ms), until when it
    lives (wall clock, ms; 0: for ever), and whether an earlier attempt of the put may have left another copy of it."""

    value: Value | None
    op_id: Identity
    written_ms: Annotated[int, Meta(ge=0, le=(1 << 62))]
    expires_ms: Annotated[int, Meta(ge=0, le=(1 << 62))] = 0
    is_retry: bool = False


class ActorClock(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`count` events seen from the actor; the values of the latest of them, newest first."""

    actor: Identity
    count: Count
    versions: Annotated[tuple[Version, ...], Meta(max_length=SIBLINGS_MAX)]


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and its dotted version vector set, actors in ascending order. See `chord/store/versions.py`.

    `superseded`: operations whose copies count for nothing when they turn up late; see `chord/store/dedup.py`.
    `quarantine`: actors whose values nothing vouches for, hidden from readers; see `chord/store/reap_log.py`.
    """

    key: Key
    clock: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_HELD_MAX)]
    superseded: Annotated[bytes, Meta(max_length=SUPERSEDED_BYTES_MAX)] = b""
    quarantine: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_HELD_MAX)] = ()


ENTRY_BYTES = 48  # of an actor, or of a version, around what it carries on the wire


def wire_bytes(record: Record) -> int:
    """Return about how many bytes a record takes on the wire: its key, its values, and the clock around them."""
    held = [version for entry in (*record.clock, *record.quarantine) for version in entry.versions]
    entries_bytes = ENTRY_BYTES * (len(record.clock) + len(record.quarantine) + len(held))
    return len(record.key) + len(record.superseded) + entries_bytes + sum(len(v.value or b"") for v in held)


Records: TypeAlias = Annotated[tuple[Record, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class ReplicaLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one replica had to do with a read or write: a line of its trace.

    `outcome`: ok, same, stale, absent, hinted (kept for another), or in words why not. `is_counted`: towards R or W.
    `version`: the first bytes of the digest of its clock, empty where it holds nothing.
    """

    contact: Contact
    outcome: Text
    is_counted: bool
    rtt_ms: Finite | None = None
    version: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""


REPLICA_LINES_MAX = 2 * (REPLICAS_MAX + FALLBACKS_MAX)  # so many are chosen, and as many may be about to leave
ReplicaLines: TypeAlias = Annotated[tuple[ReplicaLine, ...], Meta(max_length=REPLICA_LINES_MAX)]


class Values(Reply, frozen=True, tag=144):
    """The live values of a key (several where they are concurrent, none where it was deleted), and their context.

    `r` replicas answered of the `r_needed`; `replicas` tells of each. `quarantined`: how many versions of the key are
    in quarantine, and so not among the values. `left`: how many more live values there are, which had no room.
    """

    values: Annotated[tuple[Value, ...], Meta(max_length=SIBLINGS_MAX)]
    context: Context
    owner: Contact
    r: Count = 1
    r_needed: Count = 1
    replicas: ReplicaLines = ()
    written_ms: Annotated[tuple[Count, ...], Meta(max_length=SIBLINGS_MAX)] = ()  # of each value, wall clock
    quarantined: Count = 0
    left: Count = 0


Quorum: TypeAlias = Annotated[int, Meta(ge=0, le=REPLICAS_MAX)]


class Get(Request, frozen=True, tag=32):
    """Read a key from `r` replicas (0: a majority). To a vnode: coordinate, if that is yours to do; *node*: see to it.

    A coordinator asks the other replicas.
    """

    key: Key
    r: Quorum = 0
    reply = Values
    patient = True
    for_clients = True


class Written(Reply, frozen=True, tag=145):
    """The put is durable on `w` nodes of the `w_needed`. `beside`: how many other live values stand beside it.

    `quorum` is the ring's own write quorum, a majority of its N replicas; `w_needed` is less in a ring of fewer nodes.

    The context covers it and what it has replaced, as far as that can be without covering one of those: its writer has
    not seen them. `is_sloppy`: some of the nodes keep it for a replica that does not answer. `dead`: how many values of
    a merged record were left out, because they had been deleted or replaced since, or nothing vouches for them.
    `decided`: how many quarantined versions were decided about, or dead values of a merged record brought back;
    `quarantined`: how many of the key's versions are in quarantine afterwards.
    """

    context: Context
    owner: Contact
    w: Count = 1
    w_needed: Count = 1
    is_sloppy: bool = False
    replicas: ReplicaLines = ()
    beside: Count = 0
    quorum: Count = 0
    dead: Count = 0
    decided: Count = 0
    quarantined: Count = 0


class Put(Request, frozen=True, tag=33):
    """Write a key to `w` replicas (0: a majority); a value of None deletes.

    A context of None covers whatever a read quorum holds at that moment. An empty context is a blind put: it covers
    nothing and leaves a sibling where a value exists. `is_strict`: only replicas count, not those who stand in for one.
    `ttl_ms`: the value lives so long (0: for ever). `is_retry`: an earlier attempt may have been carried out somewhere.
    """

    key: Key
    value: Value | None
    op_id: Identity
    context: Context | None = None
    w: Quorum = 0
    is_strict: bool = False
    ttl_ms: Annotated[int, Meta(ge=0, le=TTL_MS_MAX)] = 0
    is_retry: bool = False
    reply = Written
    patient = True
    for_clients = True


class Quarantine(Reply, frozen=True, tag=157):
    """The quarantined versions of a key, by actor; `context` names them for a `DecideQuarantine`.

    `left`: how many more there are, which had no room. `r` replicas answered of the `r_needed`.
    """

    entries: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_HELD_MAX)]
    context: Context
    owner: Contact
    left: Count = 0
    r: Count = 1
    r_needed: Count = 1


class GetQuarantine(Request, frozen=True, tag=57):
    """Read what is in quarantine of a key from `r` replicas (0: a majority). Addressed like a Get."""

    key: Key
    r: Quorum = 0
    reply = Quarantine
    patient = True
    for_clients = True


class DecideQuarantine(Request, frozen=True, tag=58):
    """Decide about the quarantined versions of a key that the context names, on `w` replicas (0: a majority).

    They go; if `is_merge`, each is written anew beside what is there, as far as there is room. Addressed like a Put.
    """

    key: Key
    context: Context
    op_id: Identity
    is_merge: bool = False
    w: Quorum = 0
    is_retry: bool = False
    reply = Written
    patient = True
    for_clients = True


def as_retry(request: Request) -> Request:
    """Return a request as it is sent when an earlier attempt may have been carried out."""
    is_marked = isinstance(request, WRITES)
    return msgspec.structs.replace(request, is_retry=True) if is_marked else request


class Merge(Request, frozen=True, tag=42):
    """Merge a record as it is, from a backup, into `w` replicas (0: a majority). Addressed like a Put.

    `op_id`: of a restore that also writes anew what was deleted or replaced since; empty: that stays so.
    """

    record: Record
    w: Quorum = 0
    op_id: Annotated[bytes, Meta(max_length=16)] = b""
    is_retry: bool = False
    reply = Written
    patient = True
    for_clients = True


WRITES: Final = (Put, Merge, DecideQuarantine)
"""The requests that write a record: after a lost answer they may have been carried out."""


class ScanPage(Reply, frozen=True, tag=146):
    """Records in ring order. The scan is done up to `until` when `more_after` is None, else go on after that key.

    `silent`: nodes that are down, where so many are that they may hold what nobody who answers has. `damaged`, of the
    last page: where records of the arc are that are damaged, and not among `records`. `cut`: the keys of this page
    whose records hold more versions than the page shows, because together they exceed what one reply holds.
    """

    records: Records
    until: Point
    more_after: Key | None
    now_ms: Count = 0  # the owner's wall clock, by which values that live for a time are judged
    silent: Contacts = ()
    damaged: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    cut: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)] = ()


ScanOf: TypeAlias = Literal["live", "whole", "quarantine"]


class Scan(Request, frozen=True, tag=34):
    """Read records clockwise after a point (and, at a page's end, after `after_key`), up to the owner's id.

    `what`: the records without their quarantine (live), with it (whole), or the quarantine alone of those that have one
    (quarantine).
    """

    after: Point
    after_key: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_RECORDS_MAX)] = PAGE_RECORDS_MAX
    what: ScanOf = "live"
    reply = ScanPage
    patient = True
    for_clients = True
    bulk = True

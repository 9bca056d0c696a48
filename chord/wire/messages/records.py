"""Records and their versions, and the requests to read, write and scan them."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chord.config import STAND_INS_MAX
from chord.ids import Contact, Point
from chord.wire.messages.base import (
    ACTORS_HELD_MAX,
    DIGEST_BYTES,
    LIST_ENTRIES_MAX,
    PAGE_RECORDS_MAX,
    REPLACED_BYTES_MAX,
    REPLICAS_MAX,
    SIBLINGS_MAX,
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
    """One version of a record, as a put wrote it.

    Attributes:
        value: the value; None: a delete (tombstone).
        op_id: the operation id of the put.
        written_ms: when it was written, by the coordinator's wall clock, in ms since 1970.
        expires_ms: when it expires, by the same clock; 0: never.
        is_retry: whether an earlier attempt of the same put may have stored another copy of the version.
    """

    value: Value | None
    op_id: Identity
    written_ms: Annotated[int, Meta(ge=0, le=(1 << 62))]
    expires_ms: Annotated[int, Meta(ge=0, le=(1 << 62))] = 0
    is_retry: bool = False


class ActorClock(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The writes of one actor that a record knows.

    Attributes:
        actor: the actor.
        count: the number of its writes that the record knows: those numbered 1 to `count`.
        versions: the versions of its latest writes, the newest first. Versions of earlier writes were replaced.
    """

    actor: Identity
    count: Count
    versions: Annotated[tuple[Version, ...], Meta(max_length=SIBLINGS_MAX)]


class Record(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and its versions.

    Attributes:
        key: the key.
        clock: the writes that the record knows and their versions, by actor in ascending order; see
            `chord/store/versions.py`.
        replaced: the operations that were replaced, so that late copies of them are ignored; see
            `chord/store/dedup.py`.
        quarantine: actors with values for which no store vouches, hidden from readers; see `chord/store/reap_log.py`.
    """

    key: Key
    clock: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_HELD_MAX)]
    replaced: Annotated[bytes, Meta(max_length=REPLACED_BYTES_MAX)] = b""
    quarantine: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_HELD_MAX)] = ()


ENTRY_BYTES = 48  # overhead of an actor, or of a version, on the wire


def wire_bytes(record: Record) -> int:
    """Return the approximate size of a record in a message, in bytes."""
    held = [version for entry in (*record.clock, *record.quarantine) for version in entry.versions]
    entries_bytes = ENTRY_BYTES * (len(record.clock) + len(record.quarantine) + len(held))
    return len(record.key) + len(record.replaced) + entries_bytes + sum(len(v.value or b"") for v in held)


Records: TypeAlias = Annotated[tuple[Record, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class ReplicaLine(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The outcome of a read or a write at one replica.

    Attributes:
        contact: the replica.
        outcome: ok, stale, absent, unreachable (down), hinted (kept for another node), or the reason of a failure in
            words.
        is_counted: whether the replica counts towards R or W.
        rtt_ms: the time until its answer, in ms; None if it did not answer, and for the coordinator itself.
        version: the first bytes of the digest of the replica's copy; empty if it holds none.
    """

    contact: Contact
    outcome: Text
    is_counted: bool
    rtt_ms: Finite | None = None
    version: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""


REPLICA_LINES_MAX = 2 * (REPLICAS_MAX + STAND_INS_MAX)  # members and stand-ins, and as many that are about to leave
ReplicaLines: TypeAlias = Annotated[tuple[ReplicaLine, ...], Meta(max_length=REPLICA_LINES_MAX)]


Partners: TypeAlias = Annotated[tuple[Contact, ...], Meta(max_length=REPLICAS_MAX // 2)]
CopyId: TypeAlias = Annotated[bytes, Meta(max_length=2 * DIGEST_BYTES)]


class GetReply(Reply, frozen=True, tag=144):
    """The live values of a key.

    Attributes:
        values: the values; several if they are concurrent, none if the key was deleted, expired or never written.
        context: the context that covers the values.
        owner: the vnode that coordinated the read; None if the request does not ask for it.
        r: number of replicas that answered, the coordinator included.
        r_needed: number of replicas that had to answer.
        replicas: the outcome at each replica, if the request asks for it.
        written_ms: when each value was written, by the wall clock of its coordinator, in ms since 1970.
        quarantined: number of versions of the key in quarantine. They are not among the values.
        left: the number of further live values that did not fit into the reply.
        partners: the replicas that the owner asks first. Empty if the request names exactly these or sets `r`, or if
            the owner alone is enough.
        copy: if not empty, the owner read only its own copy, and this is the copy's `ReadDigestReply.copy`. The values
            are the result of a quorum read if each partner answers with the same digest.
        is_local: whether the node that the client asked has read only its own copy (`Get.any`), so that the values may
            be old. Then `owner` is the vnode with this copy.
    """

    values: Annotated[tuple[Value, ...], Meta(max_length=SIBLINGS_MAX)]
    context: Context
    owner: Contact | None = None
    r: Count = 1
    r_needed: Count = 1
    replicas: ReplicaLines = ()
    written_ms: Annotated[tuple[Count, ...], Meta(max_length=SIBLINGS_MAX)] = ()
    quarantined: Count = 0
    left: Count = 0
    partners: Partners = ()
    copy: CopyId = b""
    is_local: bool = False


Quorum: TypeAlias = Annotated[int, Meta(ge=0, le=REPLICAS_MAX)]


class Get(Request, frozen=True, tag=32):
    """*vnode or node* Request to read a key.

    A vnode coordinates the read, or refuses it if it is not the key's coordinator. A node forwards the request to the
    coordinator.

    Attributes:
        key: the key.
        r: the number of replicas to read from, the coordinator included; 0: a majority.
        partners: the ids of the replicas that the client asks itself, with `ReadDigest`. If they are the replicas that
            the owner would ask, the owner answers from its own copy alone. Otherwise it coordinates the read.
        with_owner: whether the reply names the owner. A client that addresses the owner's vnode knows it.
        with_replicas: whether the reply lists the outcome at each replica.
        any: whether any replica may answer. A node with a copy that is in sync and has a live value then reads this
            copy alone. Without such a copy it forwards the request, and the coordinator ignores this field.
    """

    key: Key
    r: Quorum = 0
    partners: Annotated[tuple[Point, ...], Meta(max_length=REPLICAS_MAX // 2)] = ()
    with_owner: bool = True
    with_replicas: bool = False
    any: bool = False
    reply = GetReply
    patient = True
    for_clients = True


class ReadDigestReply(Reply, frozen=True, tag=159):
    """The digest of a replica's copy of a record.

    Attributes:
        copy: a digest of the durable copy and of the reap log entries that the replica has applied; empty if it holds
            no copy.
    """

    copy: CopyId


class ReadDigest(Request, frozen=True, tag=60):
    """*vnode* Request for the digest of a replica's copy, for a quorum read that a client performs itself.

    The vnode refuses unless it is in sync, sees the owner as reachable, and coordinates no requests for the key.

    Attributes:
        key: the key.
        owner: the id of the vnode that the client asks at the same time, with `Get`.
    """

    key: Key
    owner: Point
    reply = ReadDigestReply
    patient = True  # the reader may give up early, so its deadline is no evidence of a death
    for_clients = True


class Written(Reply, frozen=True, tag=145):
    """Acknowledgement of a write.

    Attributes:
        context: the context that covers the write and the versions that it replaced, but no value that stands beside
            it. The writer has not seen such a value. So the context may not even cover the write itself.
        owner: the vnode that coordinated the write; None if the request does not ask for it.
        w: number of nodes on which the write is durable.
        w_needed: number of nodes on which it had to be; less than `quorum` in a ring of fewer nodes.
        is_sloppy: whether the write does not rely on replicas alone. Either some of these nodes are stand-ins, or the
            read before the write lacked a quorum of replicas in sync.
        replicas: the outcome at each replica, if the request asks for it.
        beside: the number of other live values of the key.
        quorum: the write quorum of the ring, a majority of N.
        dead: for a merged record, the number of values that were left out. They were deleted or replaced since the
            backup, or no store vouches for them.
        decided: the number of quarantined versions that were dropped or merged, or of dead values that were brought
            back.
        quarantined: number of versions of the key in quarantine after the write.
    """

    context: Context
    owner: Contact | None = None
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
    """*vnode or node* Request to write or delete a key. A node forwards it to the coordinator.

    Attributes:
        key: the key.
        value: the value; None: delete the key.
        op_id: the operation id, the same in every attempt.
        context: the context of the versions that the write replaces. None: all that a read quorum holds at that time.
            Empty: none (`no_context`), so that the write becomes a sibling of a value that exists.
        w: number of nodes on which the write must be durable; 0: a majority.
        strict: whether only replicas count towards `w`, not stand-ins.
        ttl_ms: the time to live of the value, in ms; 0: no limit.
        is_retry: whether an earlier attempt may have been carried out.
        with_owner, with_replicas: whether the reply names the owner, and the outcome at each replica.
    """

    key: Key
    value: Value | None
    op_id: Identity
    context: Context | None = None
    w: Quorum = 0
    strict: bool = False
    ttl_ms: Annotated[int, Meta(ge=0, le=TTL_MS_MAX)] = 0
    is_retry: bool = False
    with_owner: bool = True
    with_replicas: bool = False
    reply = Written
    patient = True
    for_clients = True


class GetQuarantineReply(Reply, frozen=True, tag=157):
    """The quarantined versions of a key.

    Attributes:
        entries: the versions, by actor.
        context: the context that names these versions for a `DecideQuarantine`.
        owner: the vnode that coordinated the read.
        left: the number of further versions that did not fit into the reply.
        r: number of replicas that answered.
        r_needed: number of replicas that had to answer.
    """

    entries: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_HELD_MAX)]
    context: Context
    owner: Contact
    left: Count = 0
    r: Count = 1
    r_needed: Count = 1


class GetQuarantine(Request, frozen=True, tag=57):
    """*vnode or node* Request to read the quarantine of a key. A node forwards it.

    Attributes:
        key: the key.
        r: number of replicas to read from, the coordinator included; 0: a majority.
    """

    key: Key
    r: Quorum = 0
    reply = GetQuarantineReply
    patient = True
    for_clients = True


class DecideQuarantine(Request, frozen=True, tag=58):
    """*vnode or node* Request to drop or merge quarantined versions of a key. A node forwards it.

    Attributes:
        key: the key.
        context: the context that names the versions.
        op_id: the operation id, the same in every attempt.
        merge: False: drop the versions. True: write each of them anew beside the live values, if it has room.
        w: number of nodes on which the decision must be durable; 0: a majority.
        is_retry: whether an earlier attempt may have been carried out.
    """

    key: Key
    context: Context
    op_id: Identity
    merge: bool = False
    w: Quorum = 0
    is_retry: bool = False
    reply = Written
    patient = True
    for_clients = True


def as_retry(request: Request) -> Request:
    """Return a write marked as a retry (`is_retry`); any other request is returned unchanged."""
    is_marked = isinstance(request, WRITES)
    return msgspec.structs.replace(request, is_retry=True) if is_marked else request


def without_owner(request: Request) -> Request:
    """Return the same request with `with_owner` False, if it has this field."""
    return msgspec.structs.replace(request, with_owner=False) if isinstance(request, (Get, Put)) else request


class Merge(Request, frozen=True, tag=42):
    """*vnode or node* Request to merge a record from a backup. A node forwards it.

    Attributes:
        record: the record as it was saved.
        w: number of nodes on which the record must be durable; 0: a majority.
        op_id: if not empty, values that were deleted or replaced since the backup are written anew, under this
            operation id. Empty: such values stay deleted or replaced.
        is_retry: whether an earlier attempt may have been carried out.
    """

    record: Record
    w: Quorum = 0
    op_id: Annotated[bytes, Meta(max_length=16)] = b""
    is_retry: bool = False
    reply = Written
    patient = True
    for_clients = True


WRITES: Final = (Put, Merge, DecideQuarantine)
"""The requests that write a record. If the reply is lost, they may have been carried out."""


class ScanReply(Reply, frozen=True, tag=146):
    """One page of a scan.

    Attributes:
        records: the records, in ring order.
        until: the end of the scanned arc: the id of the vnode that answered.
        more_after: None: the arc is done up to `until`. A key: the next page begins after that key.
        now_ms: the owner's wall clock, by which values expire, in ms since 1970.
        unreachable: the unreachable nodes, if these may hold an acknowledged write that the page lacks; otherwise
            empty.
        damaged: on the last page of an owner, the points of damaged records of the arc. They are not among `records`.
        cut: keys of this page with more versions than the page has, because one reply cannot hold them all.
    """

    records: Records
    until: Point
    more_after: Key | None
    now_ms: Count = 0
    unreachable: Contacts = ()
    damaged: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    cut: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)] = ()


ScanOf: TypeAlias = Literal["live", "whole", "quarantine"]


class Scan(Request, frozen=True, tag=34):
    """*vnode or node* Request for the next page of records after a point, clockwise.

    The owner of the first point behind `after` answers, with records up to its own id.

    Attributes:
        after: the point after which the records begin. It is the same for all pages of one owner.
        after_key: the last key of the page before; None for the first page of an owner.
        limit: the largest number of records in the reply.
        what: "live": records without their quarantine. "whole": records with it. "quarantine": only the quarantine, of
            the records that have one.
    """

    after: Point
    after_key: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_RECORDS_MAX)] = PAGE_RECORDS_MAX
    what: ScanOf = "live"
    reply = ScanReply
    patient = True
    for_clients = True
    bulk = True

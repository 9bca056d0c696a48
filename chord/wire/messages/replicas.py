"""Messages between replicas: copies, comparisons, and transfers of arcs."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from chord.ids import Contact, Point
from chord.wire.messages.base import (
    DIGEST_BYTES,
    HEADS_MAX,
    LIST_ENTRIES_MAX,
    PAGE_RECORDS_MAX,
    SUMS_MAX,
    Contacts,
    Count,
    Digest,
    Identity,
    Key,
    Reply,
    Request,
)
from chord.wire.messages.reaping import Seen, SeenOfEach
from chord.wire.messages.records import Record, Records
from chord.wire.messages.ring import MarkedArcs, UnreachableVnodes


class ReadCopyReply(Reply, frozen=True, tag=147):
    """A replica's copy of a record.

    Attributes:
        record: the record; None if the copy is the same as the caller's, or if the replica holds none.
        is_same: whether the copy is the same as the caller's.
        is_in_sync: whether the replica was found in sync in the key's arc, and has replicated the arc ever since.
        seen: a digest of the reap log entries that the replica has applied to the key's slice.
        is_damaged: whether the replica's copy is damaged. If so, `is_in_sync` is False.
    """

    record: Record | None
    is_same: bool = False
    is_in_sync: bool = True
    seen: Seen = b""
    is_damaged: bool = False


class ReadCopy(Request, frozen=True, tag=35):
    """Request for a replica's copy of a record.

    Attributes:
        key: the key.
        digest: the digest of the caller's own record; empty if it has none.
    """

    key: Key
    digest: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""
    reply = ReadCopyReply


class StoreCopies(Request, frozen=True, tag=36):
    """Request to merge records into the called store. The reply is sent when they are durable.

    The error `Behind` means that sender and receiver have applied different reap log entries to the slice of a record.

    Attributes:
        records: the records.
        as_hints: whether the records are hints for an unreachable node, to be kept until all replicas hold them.
        seen: for each record, a digest of the reap log entries that the sender has applied to the record's slice.
    """

    records: Records
    as_hints: bool = False
    seen: SeenOfEach = ()
    patient = True


class StoreCoveringReply(Reply, frozen=True, tag=164):
    """The answer to a `StoreCovering`.

    Attributes:
        is_stored: whether the replica has stored the record durably. If so, the other fields have their defaults.
        is_settled: whether the replica is in sync in the key's arc, and its copy is whole and fits one frame. If not,
            it has stored nothing, and its copy proves nothing.
        record: the replica's durable copy. It is None if the replica has stored the request's record, or is not
            settled.
    """

    is_stored: bool = False
    is_settled: bool = True
    record: Record | None = None


class StoreCovering(Request, frozen=True, tag=61):
    """Request to store a record only if it covers the replica's copy.

    The record covers the copy if a merge of the two equals the record. The coordinator has not stored the record yet.
    The answer comes when the record is durable, or says that the replica has stored nothing. The error `Behind` has
    the same meaning as for `StoreCopies`.

    Attributes:
        record: the record.
        seen: digest of the reap log entries that the sender has applied to the record's slice.
    """

    record: Record
    seen: Seen = b""
    reply = StoreCoveringReply
    patient = True


class GetSumsReply(Reply, frozen=True, tag=148):
    """The sums of record digests in parts of the Merkle tree (`store/merkle.py`).

    Attributes:
        sums: the sum of each requested part, in the order of the request.
        is_in_sync: whether this node was found in sync in the requested arc, and has replicated the arc ever since.
        seen: a digest of the reap log entries that this node has applied in the arc; empty except at level 0.
        was_in_sync: whether `is_in_sync` is true, or was before this node was away.
    """

    sums: Annotated[tuple[Digest, ...], Meta(max_length=SUMS_MAX)]
    is_in_sync: bool = False
    seen: Seen = b""
    was_in_sync: bool = False


class GetSums(Request, frozen=True, tag=37):
    """Request for the sums of record digests in parts of the Merkle tree, limited to an arc.

    Attributes:
        arc_start, arc_end: the arc. Only records in it count.
        level: the level of the tree: 0, 1 or 2, with 1, 64 or 4,096 parts of the circle.
        parts: the numbers of the parts at this level, from 0.
    """

    arc_start: Point
    arc_end: Point
    level: Annotated[int, Meta(ge=0, le=2)]
    parts: Annotated[tuple[Annotated[int, Meta(ge=0, le=4095)], ...], Meta(max_length=SUMS_MAX)]
    reply = GetSumsReply
    patient = True
    purpose = "repair"


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and a digest of its record. Different digests show that two copies differ.

    Attributes:
        key: the key.
        digest: the digest.
    """

    key: Key
    digest: Digest


class GetHeadsReply(Reply, frozen=True, tag=149):
    """A page of keys with the digests of their records.

    Attributes:
        heads: the keys and digests, in ring order.
        is_cut: whether the arc has more keys after the last one.
    """

    heads: Annotated[tuple[Head, ...], Meta(max_length=HEADS_MAX)]
    is_cut: bool


class GetHeads(Request, frozen=True, tag=38):
    """Request for a page of the keys in an arc, with the digests of their records.

    Attributes:
        arc_start, arc_end: the arc.
        after_key: the last key of the page before; None for the first page.
    """

    arc_start: Point
    arc_end: Point
    after_key: Key | None = None
    reply = GetHeadsReply
    patient = True
    bulk = True
    purpose = "repair"


class GetCopiesReply(Reply, frozen=True, tag=150):
    """The first requested records, as many as fit into one frame.

    Attributes:
        records: the records, in the order of the request. Records that the node does not hold are left out.
        asked: the number of requested keys, counted from the first, that this reply covers.
        seen: for each record, a digest of the reap log entries that the node has applied to the record's slice.
    """

    records: Records
    asked: Count
    seen: SeenOfEach = ()


class GetCopies(Request, frozen=True, tag=39):
    """Request for the called node's records of some keys.

    Attributes:
        keys: the keys.
    """

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = GetCopiesReply
    patient = True
    bulk = True
    purpose = "repair"


class InSync(Request, frozen=True, tag=40):
    """Notice of an arc's owner to a replica: it is in sync in that arc.

    The replica then holds every acknowledged write there.

    Attributes:
        arc_start, arc_end: the arc.
    """

    arc_start: Point
    arc_end: Point
    purpose = "repair"


# -- moving arcs --------------------------------------------------------------------------------


class JoinArc(Request, frozen=True, tag=48):
    """Request of a joining vnode to the owner of its id, for the part of the owner's arc up to that id.

    Attributes:
        joiner: the joining vnode.
        session: the id of the transfer, which the joiner chose.
    """

    joiner: Contact
    session: Identity
    purpose = "transfer"


class HandOver(Request, frozen=True, tag=49):
    """Request of a leaving vnode to another vnode, to accept the leaver's arc.

    Attributes:
        leaver: the leaving vnode.
        session: the id of the transfer, which the leaver chose.
    """

    leaver: Contact
    session: Identity
    purpose = "transfer"


class StorePage(Request, frozen=True, tag=50):
    """Request to merge records of an arc in transfer. The reply is sent when they are durable.

    The error `Behind` means that sender and receiver have applied different reap log entries to the slice of a record.

    Attributes:
        session: the id of the transfer.
        records: the records.
        seen: for each record, a digest of the reap log entries that the sender has applied to the record's slice.
    """

    session: Identity
    records: Records
    seen: SeenOfEach = ()
    patient = True
    bulk = True
    purpose = "transfer"


class Switch(Request, frozen=True, tag=51):
    """Notice that all records are copied: the called vnode now answers for the arc.

    A repeated `Switch` of the same session changes nothing.

    Attributes:
        session: the id of the transfer.
        arc_start, arc_end: the arc.
        epoch: the epoch in which the called vnode answers for the arc.
        boundary: the vnode at `arc_start`; None: unknown.
        before: the vnodes before the boundary, the nearest first, as far as the giver knows.
        marks: the parts of the arc with an unreachable former owner, which may hold the only copies there.
        unreachable: the unreachable vnodes that the giver counts as holders of replicas.
        is_in_sync: whether the giver holds every acknowledged write of the arc. If so, the receiver does now, too.
        passive: unreachable nodes that may come back with records, as far as the giver knows, for the passive list.
        left: vnodes that left for good.
        left_ms: for each of them, how long ago it had left at the latest, in ms. If it is shorter than `left`, the
            other ages are unknown, and any sight of those vnodes is newer.
    """

    session: Identity
    arc_start: Point
    arc_end: Point
    epoch: Count
    boundary: Contact | None = None
    before: Contacts = ()
    marks: MarkedArcs = ()
    unreachable: UnreachableVnodes = ()
    is_in_sync: bool = False
    passive: Contacts = ()
    left: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    left_ms: Annotated[tuple[Count, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    purpose = "transfer"


class Abandon(Request, frozen=True, tag=52):
    """Notice that a transfer ends without a `Switch`. A new transfer of the arc may begin.

    Attributes:
        session: the id of the transfer.
    """

    session: Identity
    purpose = "transfer"

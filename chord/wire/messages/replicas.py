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
        is_in_sync: whether the replica has been in sync in the key's arc, and has kept the arc since.
        seen: digest of the reap log entries that the replica has applied to the key's slice, one of 4,096 equal parts
            of the circle. The reap log (`chord/store/reap_log.py`) lists removed records.
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
    """Request to merge records. The answer comes when they are durable.

    The answer is the error `Behind` if sender and receiver have applied different reap log entries
    (`chord/store/reap_log.py`) to the slice of a record. Slices are 4,096 equal parts of the circle.

    Attributes:
        records: the records.
        as_hints: whether the records are hints for an unreachable node, to be kept until all replicas hold them.
        seen: for each record, the digest of the entries that the sender has applied to the record's slice.
    """

    records: Records
    as_hints: bool = False
    seen: SeenOfEach = ()
    patient = True


class GetSumsReply(Reply, frozen=True, tag=148):
    """Digest sums of parts of the circle (`store/merkle.py`).

    Attributes:
        sums: the sum of each requested part, in the order of the request.
        is_in_sync: whether this node has been in sync in the requested arc, and has kept the arc since.
        seen: one digest of the reap log entries (`chord/store/reap_log.py`) that this node has applied in the arc; only
            at level 0.
        was_in_sync: whether `is_in_sync` holds, or held before this node was away.
    """

    sums: Annotated[tuple[Digest, ...], Meta(max_length=SUMS_MAX)]
    is_in_sync: bool = False
    seen: Seen = b""
    was_in_sync: bool = False


class GetSums(Request, frozen=True, tag=37):
    """Request for the digest sums of the records in arc ∩ part, for each part.

    Attributes:
        arc_start, arc_end: the arc.
        level: 0, 1 or 2, which cuts the circle into 1, 64 or 4096 parts.
        parts: the numbers of the parts.
    """

    arc_start: Point
    arc_end: Point
    level: Annotated[int, Meta(ge=0, le=2)]
    parts: Annotated[tuple[Annotated[int, Meta(ge=0, le=4095)], ...], Meta(max_length=SUMS_MAX)]
    reply = GetSumsReply
    patient = True
    purpose = "repair"


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key, and the digest of its record, which shows whether two copies differ."""

    key: Key
    digest: Digest


class GetHeadsReply(Reply, frozen=True, tag=149):
    """A page of keys and digests in ring order.

    If `is_cut`, the arc has more keys after the last.
    """

    heads: Annotated[tuple[Head, ...], Meta(max_length=HEADS_MAX)]
    is_cut: bool


class GetHeads(Request, frozen=True, tag=38):
    """Request for a page of keys and digests of the records in an arc.

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
    """The first requested records, as many as fit one frame.

    Attributes:
        records: the records, in the order of the request. Records that the node does not hold are left out.
        asked: number of requested keys, from the first on, that this reply covers.
        seen: for each record, the digest of the reap log entries that the node has applied to the record's slice; see
            `ReadCopyReply`.
    """

    records: Records
    asked: Count
    seen: SeenOfEach = ()


class GetCopies(Request, frozen=True, tag=39):
    """Request for the records of some keys."""

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = GetCopiesReply
    patient = True
    bulk = True
    purpose = "repair"


class InSync(Request, frozen=True, tag=40):
    """Notice of an arc's owner that the called replica is in sync in that arc.

    The replica then holds every acknowledged write there.
    """

    arc_start: Point
    arc_end: Point
    purpose = "repair"


# -- moving arcs --------------------------------------------------------------------------------


class JoinArc(Request, frozen=True, tag=48):
    """Request of a joining vnode for the part of an arc up to its own id.

    The owner of the arc gets it.

    Attributes:
        joiner: the joining vnode.
        session: the id of the transfer, chosen by the joiner.
    """

    joiner: Contact
    session: Identity
    purpose = "transfer"


class HandOver(Request, frozen=True, tag=49):
    """Request of a leaving vnode to the called vnode, to accept the leaver's arc.

    Attributes:
        leaver: the leaving vnode.
        session: the id of the transfer, chosen by the leaver.
    """

    leaver: Contact
    session: Identity
    purpose = "transfer"


class StorePage(Request, frozen=True, tag=50):
    """Request to merge records of an arc in transfer, answered like `StoreCopies`."""

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
        boundary: the vnode known to stand at `arc_start`.
        before: the vnodes that stand before the boundary, nearest first, as far as the giver knows.
        marks: parts of the arc with an unreachable former owner, which may hold the only copies there.
        unreachable: down vnodes that the giver counts as holders of replicas.
        is_in_sync: whether the giver holds every acknowledged write of the arc. If so, the receiver does now, too.
        passive: unreachable nodes that may come back with records, as far as the giver knows.
        left: vnodes that left for good.
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
    purpose = "transfer"


class Abandon(Request, frozen=True, tag=52):
    """Notice that a transfer ends without a `Switch`; a new transfer may begin."""

    session: Identity
    purpose = "transfer"

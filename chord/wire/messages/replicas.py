"""What replicas say to one another: copies, comparisons of what they hold, and arcs that change hands."""

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
from chord.wire.messages.ring import Downs, TakenArcs


class Copy(Reply, frozen=True, tag=147):
    """A replica's copy of a record: the record, or that it is the `same` as the asker's, or (neither) none.

    `is_settled`: it was brought level with the others in the key's arc, and has kept it since. `seen`: of its slice.
    `is_damaged`: the replica's record is damaged; then the replica is not settled either.
    """

    record: Record | None
    is_same: bool = False
    is_settled: bool = True
    seen: Seen = b""
    is_damaged: bool = False


class ReadCopy(Request, frozen=True, tag=35):
    """What do you hold of this key? `digest`: of the asker's own record, empty where it has none."""

    key: Key
    digest: Annotated[bytes, Meta(max_length=DIGEST_BYTES)] = b""
    reply = Copy


class StoreCopies(Request, frozen=True, tag=36):
    """Merge these records; answered when they are durable, or `Behind` if another `seen` holds here for one of them.

    `is_hint`: for another that does not answer; keep them until all replicas hold them.
    """

    records: Records
    is_hint: bool = False
    seen: SeenOfEach = ()
    patient = True


class Sums(Reply, frozen=True, tag=148):
    """A digest sum for each asked part of the circle, in the order of the question (`store/merkle.py`).

    `is_settled`: this node was brought level with the others in the asked arc, and has kept it since. `was_settled`: it
    is, or was before it was away. `seen`: a digest of the log entries that it has applied to the slices of the arc.
    """

    sums: Annotated[tuple[Digest, ...], Meta(max_length=SUMS_MAX)]
    is_settled: bool = False
    seen: Seen = b""
    was_settled: bool = False


class GetSums(Request, frozen=True, tag=37):
    """The digest sums of your records in arc ∩ part, for each part: level 0, 1, 2 cut the circle in 1, 64, 4096."""

    arc_start: Point
    arc_end: Point
    level: Annotated[int, Meta(ge=0, le=2)]
    parts: Annotated[tuple[Annotated[int, Meta(ge=0, le=4095)], ...], Meta(max_length=SUMS_MAX)]
    reply = Sums
    patient = True


class Head(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key and the digest of its record's clock."""

    key: Key
    digest: Digest


class Heads(Reply, frozen=True, tag=149):
    """Keys and digests in ring order; more follow after the last where `is_cut`."""

    heads: Annotated[tuple[Head, ...], Meta(max_length=HEADS_MAX)]
    is_cut: bool


class GetHeads(Request, frozen=True, tag=38):
    """Which keys do you hold in this arc (behind `after_key`, at a page's end), in which version?"""

    arc_start: Point
    arc_end: Point
    after_key: Key | None = None
    reply = Heads
    patient = True
    bulk = True


class Copies(Reply, frozen=True, tag=150):
    """Records, as many of those asked for as fit one frame, in the order of the question; what is not held is left
    out. `asked`: how many of the keys this answers."""

    records: Records
    asked: Count
    seen: SeenOfEach = ()


class GetCopies(Request, frozen=True, tag=39):
    """Send me these records."""

    keys: Annotated[tuple[Key, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = Copies
    patient = True
    bulk = True


class Settled(Request, frozen=True, tag=40):
    """I answer for this arc, and you hold everything of it that was acknowledged so far."""

    arc_start: Point
    arc_end: Point


# -- moving arcs --------------------------------------------------------------------------------


class JoinArc(Request, frozen=True, tag=48):
    """I am joining at `joiner.id`: send me the part of your arc up to there, under this session of my choice."""

    joiner: Contact
    session: Identity


class HandOver(Request, frozen=True, tag=49):
    """I am leaving: accept my arc, which I will send under this session."""

    leaver: Contact
    session: Identity


class StorePage(Request, frozen=True, tag=50):
    """Merge these records of the arc that moves in this session. Answered as `StoreCopies` is."""

    session: Identity
    records: Records
    seen: SeenOfEach = ()
    patient = True
    bulk = True


class Switch(Request, frozen=True, tag=51):
    """All is copied: from now on you answer for this arc, in this epoch. Idempotent by epoch."""

    session: Identity
    arc_start: Point
    arc_end: Point
    epoch: Count
    boundary: Contact | None = None  # the vnode known to stand at arc_start
    before: Contacts = ()  # the vnodes that stand before it, nearest first, as far as the giver knows
    taken: TakenArcs = ()
    downs: Downs = ()  # vnodes behind the giver that are waited for
    is_settled: bool = False  # the giver holds everything of the arc that was acknowledged, and so do you now
    silent: Contacts = ()  # nodes that fell silent and may come back with records, as far as the giver knows
    left: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()  # vnodes that said goodbye for good


class Abandon(Request, frozen=True, tag=52):
    """This session ends without a switch; start another one."""

    session: Identity

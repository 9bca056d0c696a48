"""Messages that spread the membership list, and the entries of the list."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chord.ids import Address, Point
from chord.wire.messages.base import Reply, Request

MEMBERS_MAX = 4096
"""The largest number of nodes in a membership list."""

START_MAX = 1 << 40
COUNT_MAX = (1 << 32) - 1
"""The largest count of a member. A node that must go beyond it takes the next start; see `ring/members.py`."""

MEMBER_VNODES_MAX = 64
SLICE_BITS_MAX = 8  # 256 slices of about 16 entries each
SUM_BYTES = 8
FINGERPRINT_BYTES = 4
NEWS_MAX = 512

MemberState: TypeAlias = Literal["alive", "silent", "left"]
"""The state of a member: it takes part, it does not answer its ring neighbours, or it handed its arcs over."""

FEATURE_MEMBERS = 1
"""The bit of `Hello.features` of a node that keeps a membership list."""


class MemberEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node in a membership list.

    Attributes:
        address: the address of the node.
        start: numbers the runs of the node: the wall clock at its start, in seconds since 1970.
        count: the number of reports that the node contradicted since then. Only the node itself raises it.
        state: the state of the node.
        vnodes: the ids of its vnodes in ascending order; empty unless it is alive.
    """

    address: Address
    start: Annotated[int, Meta(ge=0, le=START_MAX)]
    count: Annotated[int, Meta(ge=0, le=COUNT_MAX)]
    state: MemberState
    vnodes: Annotated[tuple[Point, ...], Meta(max_length=MEMBER_VNODES_MAX)] = ()


MemberEntries: TypeAlias = Annotated[tuple[MemberEntry, ...], Meta(max_length=NEWS_MAX)]


class GossipReply(Reply, frozen=True, tag=182):
    """Reply to a `Gossip`.

    Attributes:
        known: a bit for each entry of the request, in its order, from the lowest bit of the first byte. The bit is set
            if the called node knew the entry, or a later one of the same node.
        entries: entries that the caller may lack: hot ones, later ones, and those that the caller wants.
    """

    known: Annotated[bytes, Meta(max_length=NEWS_MAX // 8)]
    entries: MemberEntries


class Gossip(Request, frozen=True, tag=21):
    """Exchange of entries of the membership list, sent to a node.

    Attributes:
        entries: the hot entries of the caller, or entries that the called node lacks.
        wanted: fingerprints of entries that the caller lacks, of four bytes each.
    """

    entries: MemberEntries = ()
    wanted: Annotated[bytes, Meta(max_length=FINGERPRINT_BYTES * NEWS_MAX)] = b""
    reply = GossipReply
    purpose = "upkeep"


class SliceFingerprints(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fingerprints of all entries in a slice of the circle, of four bytes each."""

    index: Annotated[int, Meta(ge=0, lt=1 << SLICE_BITS_MAX)]
    fingerprints: Annotated[bytes, Meta(max_length=FINGERPRINT_BYTES * MEMBERS_MAX * MEMBER_VNODES_MAX)]


class CompareMembersReply(Reply, frozen=True, tag=183):
    """The slices with other sums at the called node, with its fingerprints."""

    slices: Annotated[tuple[SliceFingerprints, ...], Meta(max_length=1 << SLICE_BITS_MAX)]


class CompareMembers(Request, frozen=True, tag=22):
    """Comparison of whole membership lists, sent to a node.

    Attributes:
        sums: the caller's sum of each slice of the circle, of eight bytes each. The number of slices is a power of two.
    """

    sums: Annotated[bytes, Meta(max_length=SUM_BYTES << SLICE_BITS_MAX)]
    reply = CompareMembersReply
    purpose = "upkeep"


class GetMembersReply(Reply, frozen=True, tag=184):
    """A page of the membership list of a node.

    Attributes:
        version: the sum of the whole list.
        entries: the living members of the page, in ring order.
        after: the point with which the next page begins; None after the last page.
    """

    version: Annotated[bytes, Meta(max_length=SUM_BYTES)]
    entries: Annotated[tuple[MemberEntry, ...], Meta(max_length=MEMBERS_MAX)]
    after: Point | None = None


class GetMembers(Request, frozen=True, tag=23):
    """Request to a node for its membership list, in pages of at most 64 KiB.

    Attributes:
        since: the version that the caller has. If the list still has it, the reply has no entries.
        after: the point with which the page begins.
    """

    since: Annotated[bytes, Meta(max_length=SUM_BYTES)] = b""
    after: Point = Point(0)
    reply = GetMembersReply
    purpose = "lookup"

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
        start: when the node started, by its wall clock, in seconds since 1970. A later run has a larger start.
        count: how often the node has contradicted a wrong report about itself since its start. Only the node itself
            raises it.
        state: "alive", "silent" (its ring neighbours get no answer from it) or "left".
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
        known: one bit for each entry of the request, in its order, from the lowest bit of the first byte. The bit is
            set if the called node knew this entry or a later one.
        entries: entries that the caller may lack: news, later entries than the caller's, and those in `Gossip.wanted`.
    """

    known: Annotated[bytes, Meta(max_length=NEWS_MAX // 8)]
    entries: MemberEntries


class Gossip(Request, frozen=True, tag=21):
    """Request to a node to exchange entries of the membership list.

    Attributes:
        entries: entries that are news, or that the called node lacks.
        wanted: the fingerprints of the entries that the caller lacks, of four bytes each.
    """

    entries: MemberEntries = ()
    wanted: Annotated[bytes, Meta(max_length=FINGERPRINT_BYTES * NEWS_MAX)] = b""
    reply = GossipReply
    purpose = "upkeep"


class SliceFingerprints(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The entries in one slice of a membership list, an equal part of the circle.

    Attributes:
        index: the number of the slice, from 0.
        fingerprints: the fingerprints of its entries, of four bytes each.
    """

    index: Annotated[int, Meta(ge=0, lt=1 << SLICE_BITS_MAX)]
    fingerprints: Annotated[bytes, Meta(max_length=FINGERPRINT_BYTES * MEMBERS_MAX * MEMBER_VNODES_MAX)]


class CompareMembersReply(Reply, frozen=True, tag=183):
    """The slices in which two membership lists differ.

    Attributes:
        slices: the slices, with the fingerprints of the called node's entries.
    """

    slices: Annotated[tuple[SliceFingerprints, ...], Meta(max_length=1 << SLICE_BITS_MAX)]


class CompareMembers(Request, frozen=True, tag=22):
    """Request to a node to compare two whole membership lists.

    Attributes:
        sums: for each slice of the caller's list, the sum of its entries' digests, of eight bytes each. The slices are
            equal parts of the circle, and their number is a power of two.
    """

    sums: Annotated[bytes, Meta(max_length=SUM_BYTES << SLICE_BITS_MAX)]
    reply = CompareMembersReply
    purpose = "upkeep"


class GetMembersReply(Reply, frozen=True, tag=184):
    """A page of the membership list of a node.

    Attributes:
        version: eight bytes that name the version of the whole list.
        entries: the living members of the page, in the order of the hashes of their addresses.
        after: the point with which the next page begins; None after the last page.
    """

    version: Annotated[bytes, Meta(max_length=SUM_BYTES)]
    entries: Annotated[tuple[MemberEntry, ...], Meta(max_length=MEMBERS_MAX)]
    after: Point | None = None


class GetMembers(Request, frozen=True, tag=23):
    """Request to a node for its membership list, in pages of at most 64 KiB.

    Attributes:
        since: the version that the caller has; empty: none. If the list still has this version, the reply has no
            entries.
        after: the point with which the page begins.
    """

    since: Annotated[bytes, Meta(max_length=SUM_BYTES)] = b""
    after: Point = Point(0)
    reply = GetMembersReply
    purpose = "lookup"

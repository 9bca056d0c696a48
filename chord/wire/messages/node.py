"""A node as it describes itself, and what its operator may tell it."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chord.ids import Address, Contact, PeerState, Point
from chord.wire.messages.base import (
    LIST_ENTRIES_MAX,
    Contacts,
    Count,
    Finite,
    Identity,
    Reply,
    Request,
    Text,
    VnodeState,
)


class OwnedArc(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An arc a vnode has a say in, and what it says."""

    start: Point
    end: Point
    epoch: Count
    state: Literal["owned", "giving", "taken_over", "moved"]
    peer: Contact | None = None


class FingerRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Finger entries `first` to `last` (inclusive) that point to one vnode."""

    first: Annotated[int, Meta(ge=0, le=160)]
    last: Annotated[int, Meta(ge=0, le=160)]
    contact: Contact


class VnodeInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Everything one vnode knows about its place."""

    contact: Contact
    state: VnodeState
    is_isolated: bool
    predecessor: Contact | None
    successors: Contacts
    predecessors: Contacts
    arcs: Annotated[tuple[OwnedArc, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    fingers: Annotated[tuple[FingerRun, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    keys: Count
    rounds: Count


class PeerInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a node thinks of a peer node."""

    address: Address
    state: PeerState
    rtt_ms: Finite | None
    since_ms: Count


class TransferInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An arc of records under way. `total` is known once the partners have compared; times in ms."""

    kind: Literal["join", "leave", "repair", "surplus"]
    arc_start: Point
    arc_end: Point
    peer: Contact
    done: Count
    total: Count | None
    bytes_sent: Count
    since_ms: Count


class ReplicaState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How well the arc of a vnode, or a part of it, is replicated.

    `members` in ring order; of them `silent` do not answer and `pending` are being brought level. `missing` are
    the silent nodes, members or not, without which no key here can be denied: none, if the others suffice. If
    `is_uncertain`, no key here can be denied yet, because too few of the members are in sync.
    """

    arc_start: Point
    arc_end: Point
    members: Contacts
    silent: Contacts
    pending: Contacts
    missing: Contacts = ()
    is_uncertain: bool = False


class Description(Reply, frozen=True, tag=176):
    """A node as it sees itself. `counters` are named totals since its start, in ascending order of name.

    `state` is that of the node, or "degraded" if it is ready and has `troubles`: why it does not serve all requests.
    """

    name: Text
    address: Address
    pid: Count
    version: Text
    preset: Text
    ring: Identity | None
    cluster: Text
    fingerprint: Text
    bits: Count
    successors: Count
    replicas: Count
    incarnation: Annotated[bytes, Meta(max_length=8)]
    state: Text
    uptime_ms: Count
    has_data_dir: bool
    keys: Count
    value_bytes: Count
    misplaced: Count
    vnodes: Annotated[tuple[VnodeInfo, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    peers: Annotated[tuple[PeerInfo, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    known: Contacts  # passive list and fingers: whom a crawl should visit too
    counters: Annotated[tuple[tuple[Text, Count], ...], Meta(max_length=LIST_ENTRIES_MAX)]
    timing: Annotated[tuple[tuple[Text, Finite], ...], Meta(max_length=64)] = ()
    hints: Count = 0  # records kept for others
    under_replicated: Count = 0  # keys of own arcs with a replica silent or pending
    sibling_keys: Count = 0
    clock_skew_ms: Count = 0  # the most by which a neighbour's wall clock differs
    transfers: Annotated[tuple[TransferInfo, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    sets: Annotated[tuple[ReplicaState, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    damaged: Count = 0  # records whose copy here is damaged, and has not been replaced
    troubles: Annotated[tuple[Text, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    quarantined: Count = 0  # versions in quarantine in own arcs
    wall_ms: Count = 0  # its wall clock as it answers, ms since 1970


class Describe(Request, frozen=True, tag=64):
    """*node* Describe yourself."""

    reply = Description


class Forget(Request, frozen=True, tag=66):
    """*node* Give up the node last seen at this address: an operator says that it will never be back.

    `living` are the vnodes of another node that lives there now, which is not given up.
    """

    address: Address
    living: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()


class Leave(Request, frozen=True, tag=65):
    """*node* Hand everything over, leave the ring and exit. Answered at once; the leaving goes on."""

"""Messages that maintain the ring, and messages of lookups."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chord.ids import Address, Contact, Point
from chord.wire.messages.base import (
    HOPS_MAX,
    LIST_ENTRIES_MAX,
    REPLICAS_MAX,
    Contacts,
    Count,
    Finite,
    Identity,
    Mode,
    Reply,
    Request,
    Route,
    Text,
)


class PingReply(Reply, frozen=True, tag=129):
    """Reply to a `Ping`: the vnode is alive.

    Attributes:
        state: the stage of the vnode's membership.
        is_owner: whether the vnode owns an arc.
        has_met_quorum: whether, since its node started, the vnode joined a running ring or saw a write quorum of
            replicas up at the same time. If not, the ring may have acknowledged no write since then.
    """

    state: Literal["joining", "resuming", "member", "leaving"] = "member"
    is_owner: bool = True
    has_met_quorum: bool = True


class Ping(Request, frozen=True, tag=1):
    """Request to a vnode or a node that only asks for a sign of life."""

    reply = PingReply
    purpose = "upkeep"


class UnreachableVnode(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An unreachable vnode that still counts as a holder of replicas.

    Attributes:
        contact: the vnode.
        since_ms: how long it has been unreachable, in ms.
        owned_ms: how long ago it was last seen to own an arc, in ms; see `MarkedArc`. None: unknown.
    """

    contact: Contact
    since_ms: Count
    owned_ms: Count | None = None


UnreachableVnodes: TypeAlias = Annotated[tuple[UnreachableVnode, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class MarkedArc(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A mark: a part of an arc with copies that may be only on a node that is down.

    A key that is absent in this part is not reported as "not found".

    Attributes:
        start, end: the part, as an arc.
        dead: the vnode that owned it.
        since_ms: how long ago that vnode was found dead, in ms.
        owned_ms: how long ago that vnode was last seen to own an arc, in ms. An older goodbye of it does not count.
            None: unknown.
    """

    start: Point
    end: Point
    dead: Contact
    since_ms: Count
    owned_ms: Count | None = None


MarkedArcs: TypeAlias = Annotated[tuple[MarkedArc, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class GetRingReply(Reply, frozen=True, tag=130):
    """The pointers of a member.

    Attributes:
        me: the member.
        predecessor: its predecessor; None: unknown.
        successors: its successor list.
        predecessors: the vnodes before it, the nearest first.
        owned_from: the start of the arc that the member owns; None if it owns none.
        unreachable: the unreachable vnodes that still count as holders of replicas. They owned arcs that the member
            took over, or they follow the member.
        now_ms: the wall clock of the node, in ms since 1970.
        marks: if the ring keeps one copy of each record, the parts of arcs with a down owner that the member waits for.
            They are in the member's arc, or in arcs that it had before a restart. Empty if the ring keeps more copies.
        is_waiting: whether the node waits for the return of an unreachable vnode; its passive list is not empty.
        passive: if the caller joins, the unreachable vnodes of the passive list, the latest `LIST_ENTRIES_MAX`.
    """

    me: Contact
    predecessor: Contact | None
    successors: Contacts
    predecessors: Contacts
    owned_from: Point | None = None
    unreachable: UnreachableVnodes = ()
    now_ms: Count = 0
    marks: MarkedArcs = ()
    is_waiting: bool = False
    passive: Contacts = ()


class GetRing(Request, frozen=True, tag=2):
    """Request for the pointers of a vnode.

    Attributes:
        adopt: whether the caller may adopt the pointers. If so, the called vnode discards a reply for which it waits,
            and asks again: abort-if-observed.
        joins: whether the caller joins directly behind the called vnode, and needs its successor list for that.
    """

    adopt: bool = True
    joins: bool = False
    reply = GetRingReply
    purpose = "upkeep"


class Notify(Request, frozen=True, tag=3):
    """Notice to a vnode that `peer` may be its predecessor.

    The reply is sent before the called vnode decides whether it is.

    Attributes:
        peer: the possible predecessor.
    """

    peer: Contact
    purpose = "upkeep"


class Offer(Request, frozen=True, tag=4):
    """Hint to a vnode that `peer` may be its successor.

    The called vnode asks the peer for its pointers, and adopts it if it is before the present successor.

    Attributes:
        peer: the possible successor.
    """

    peer: Contact
    purpose = "upkeep"


class PointersChanged(Request, frozen=True, tag=9):
    """Notice that the pointers or the arc of a neighbour have changed. The called vnode asks its neighbours soon."""

    purpose = "upkeep"


class GiveMarks(Request, frozen=True, tag=10):
    """Request to adopt marks, from a vnode that is about to give up its arc there. Only if N = 1.

    Attributes:
        marks: the marks. Those outside the called vnode's arc are ignored.
    """

    marks: MarkedArcs
    purpose = "upkeep"


class Parting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vnode that leaves.

    Attributes:
        vnode: the vnode.
        successors: its successor list, which a vnode adopts if it has `vnode` as its first successor.
    """

    vnode: Contact
    successors: Annotated[tuple[Contact, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class Departing(Request, frozen=True, tag=5):
    """Goodbye to a node: the sender leaves for good.

    The sender has handed all its arcs and records over.

    Attributes:
        address: the address of the sender.
        partings: the vnodes of the sender, with their successor lists.
    """

    address: Address
    partings: Annotated[tuple[Parting, ...], Meta(max_length=64)] = ()
    purpose = "upkeep"


class Retiring(Request, frozen=True, tag=7):
    """Notice to a node that the sender is about to leave.

    The called node drops the sender from replica sets, so that other nodes copy the sender's records.

    Attributes:
        address: the address of the sender.
    """

    address: Address
    purpose = "upkeep"


class Returned(Request, frozen=True, tag=8):
    """Notice to a node that the sender is a member now, new or after an absence.

    The called node discards its facts about the sender, such as that it was in sync.

    Attributes:
        address: the address of the sender.
    """

    address: Address
    purpose = "upkeep"


class Pausing(Request, frozen=True, tag=6):
    """Notice to a node that the sender stops for a while and keeps its records.

    The called node routes around the sender and waits for its return.

    Attributes:
        address: the address of the sender.
    """

    address: Address
    purpose = "upkeep"


# -- lookup -------------------------------------------------------------------------------------


class Via(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a lookup found a vnode of its path.

    Attributes:
        kind: the table that named the vnode. Fingers, successors and the predecessor are tables of the vnode asked
            before. "cache" (of owners) and "member" (the membership list) are tables of the node that performs the
            lookup. "start": the vnode of the first step.
        index: the number of the entry in that table, for a finger or a successor; otherwise 0.
    """

    kind: Literal["start", "finger", "successor", "cache", "predecessor", "member"]
    index: Annotated[int, Meta(ge=0, le=LIST_ENTRIES_MAX)] = 0


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vnode that a lookup may ask next.

    Attributes:
        contact: the vnode.
        via: how the lookup found it.
    """

    contact: Contact
    via: Via


class FindNextReply(Reply, frozen=True, tag=131):
    """Candidates for the next hop of a lookup.

    Attributes:
        final: whether the candidates are the key's successor and the vnodes after it, so that the lookup has found the
            owner.
        candidates: the vnodes to ask, the best first.
        spacing: the mean gap between vnodes in the called vnode's successor list, as a share of the circle; 1.0 if the
            vnode is alone.
    """

    final: bool
    candidates: Annotated[tuple[Candidate, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    spacing: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class FindNext(Request, frozen=True, tag=16):
    """Request to a vnode for the next hops of a lookup.

    Attributes:
        key: the point of the key.
        route: "classic": by fingers and the successor. "fast": stop as soon as the successor list reaches the key.
        tried: the ids of vnodes that this lookup has tried without success.
        successor_only: whether to use only the successor list.
    """

    key: Point
    route: Route = "classic"
    tried: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    successor_only: bool = False
    reply = FindNextReply
    purpose = "lookup"


class ConfirmReply(Reply, frozen=True, tag=132):
    """Confirmation that the called vnode owns a key, with the replica set.

    Attributes:
        owner: the called vnode. Its arc ends at its own id.
        arc_start: the start of its arc.
        epoch: the epoch of its arc.
        replicas: the members of the replica set, in ring order.
        unreachable: the members that are down.
        holders: the nodes that should hold the record now: the members that are up, and stand-ins for the others. If
            these are fewer than `needed`, nodes that are about to leave are added.
        needed: the number of nodes that must hold a record before another node may drop it.
    """

    owner: Contact
    arc_start: Point
    epoch: Count
    replicas: Contacts
    unreachable: Contacts = ()
    holders: Contacts = ()
    needed: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = 1


class Confirm(Request, frozen=True, tag=17):
    """Question whether the called vnode owns a key. If not, the answer is the error `NotOwner`.

    Attributes:
        key: the point of the key.
    """

    key: Point
    reply = ConfirmReply
    purpose = "lookup"


class HopTrace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One hop of a lookup: a vnode that was asked.

    Attributes:
        contact: the vnode that was asked.
        via: how it was found.
        remaining: the share of the circle from this vnode to the key, 0.0 to 1.0.
        rtt_ms: the round-trip time in ms; None for the start, and for a hop that did not answer.
        at_ms: when the hop answered or failed, in ms since the lookup began.
        outcome: "ok", or the reason in words why the hop was of no use.
        is_dead: whether the hop did not answer.
    """

    contact: Contact
    via: Via
    remaining: Finite
    rtt_ms: Finite | None
    at_ms: Finite
    outcome: Text = "ok"
    is_dead: bool = False


class Trace(Reply, frozen=True, tag=133):
    """A finished lookup: the hops to the key's predecessor, and the confirmed owner.

    Attributes:
        key: the point that was looked up.
        start: the vnode that made the first step.
        owner: the vnode that owns the key.
        owner_via: how the owner was found.
        owner_rtt_ms: the round-trip time of the owner's answer, in ms.
        replicas: the members of the key's replica set, in ring order.
        hops: the start, and each vnode that was asked, also those of earlier attempts that did not answer.
        mode: "iterative": one node asks every hop. "recursive": each hop asks the next. "successor": iterative, along
            successors only.
        route: "classic": fingers and successor lists. "fast": remembered owners, too. "full": first the membership
            list.
        path_length: the number of hops that answered, from the start to the key's predecessor.
        timeouts: number of calls that were not answered.
        calls: number of calls to other nodes.
        duration_ms: the time that the lookup took, in ms.
        nodes_estimate: an estimate of the number of vnodes in the ring, from the gaps in the successor lists on the
            way.
        arc_start: the start of the owner's arc.
        epoch: the epoch of that arc.
        unreachable: the replicas that do not answer the owner.
        holders: the nodes that should hold the record now; see `ConfirmReply`.
    """

    key: Point
    start: Contact
    owner: Contact
    owner_via: Via
    owner_rtt_ms: Finite
    replicas: Contacts
    hops: Annotated[tuple[HopTrace, ...], Meta(max_length=HOPS_MAX)]
    mode: Mode
    route: Route
    path_length: Count
    timeouts: Count
    calls: Count
    duration_ms: Finite
    nodes_estimate: Count
    arc_start: Point
    epoch: Count
    unreachable: Contacts = ()
    holders: Contacts = ()


class Lookup(Request, frozen=True, tag=18):
    """Request to a vnode or a node to look up a key and return the trace.

    The lookup starts at the called vnode, or at the first vnode of the called node that is a member.

    Attributes:
        key: the point of the key.
        mode, route: as in `Trace`.
    """

    key: Point
    mode: Mode = "iterative"
    route: Route = "classic"
    reply = Trace
    patient = True
    purpose = "lookup"


class FindNeighboursReply(Reply, frozen=True, tag=134):
    """The two adjacent vnodes around a point, on the called vnode's ring.

    Attributes:
        predecessor: the next vnode before the point.
        successor: the vnode after the predecessor: at the point or behind it.
        ring: the ring id of the called node; None if it has none. A joiner adopts it.
        has_left: whether the called node knows that the vnode at this point has left for good.
        left_ms: if so, how long ago it had left at the latest, in ms. None: unknown, and any sight of it is newer.
    """

    predecessor: Contact
    successor: Contact
    ring: Identity | None = None
    has_left: bool = False
    left_ms: Count | None = None


class FindNeighbours(Request, frozen=True, tag=19):
    """Request to a vnode or a node for the two adjacent vnodes around a point, as it sees the ring.

    Joins and self-lookups use it.

    Attributes:
        point: the point.
    """

    point: Point
    reply = FindNeighboursReply
    patient = True
    purpose = "upkeep"


class ForwardReply(Reply, frozen=True, tag=135):
    """The result of the rest of a recursive lookup, on its way back to the start.

    Attributes:
        hops: the hops after the called vnode.
        candidates: the key's successor and the vnodes after it.
        elapsed_ms: the time that the called vnode took, in ms. The caller subtracts it from its own round-trip time.
        spacing: the mean gap between vnodes on the way, as a share of the circle.
    """

    hops: Annotated[tuple[HopTrace, ...], Meta(max_length=HOPS_MAX)]
    candidates: Annotated[tuple[Candidate, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    elapsed_ms: Finite
    spacing: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class Forward(Request, frozen=True, tag=20):
    """Request to a vnode to continue a recursive lookup towards the key.

    Attributes:
        key: the point of the key.
        route: "classic" or "fast", as in `FindNext`.
        hops_left: number of further hops that are allowed.
    """

    key: Point
    route: Route
    hops_left: Annotated[int, Meta(ge=0, le=HOPS_MAX)]
    reply = ForwardReply
    patient = True
    purpose = "lookup"

"""Keeping the ring and finding one's way on it."""

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


class Pong(Reply, frozen=True, tag=129):
    """I am alive, and this vnode is mine. `is_owner`: it answers for an arc.

    `has_met_quorum`: since its node started it joined a running ring, or enough replicas of its arc for a write quorum
    were up at a time. If not, the ring may not have gone on without a node that was away.
    """

    state: Literal["joining", "resuming", "member", "leaving"] = "member"
    is_owner: bool = True
    has_met_quorum: bool = True


class Ping(Request, frozen=True, tag=1):
    """Are you alive?"""

    reply = Pong


class Down(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vnode that fell silent, holds replicas and is waited for; `since_ms`: how long ago."""

    contact: Contact
    since_ms: Count


Downs: TypeAlias = Annotated[tuple[Down, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class TakenArc(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Part of an arc whose only copy was on a node that is down: absent keys there are not "not found"."""

    start: Point
    end: Point
    dead: Contact
    since_ms: Count  # how long ago it was found dead, ms


TakenArcs: TypeAlias = Annotated[tuple[TakenArc, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class RingPointers(Reply, frozen=True, tag=130):
    """A member's pointers. `owned_from` is the start of the arc it answers for, None while it answers for none.

    `downs` are silent vnodes that still count as holders of replicas (`ring/preference_list.py`): those behind it, and
    the owners of the arcs that it took over. `now_ms` is the node's wall clock. With one copy of each record, `taken`
    are the parts of its arc, and of arcs that it had before a restart, with an owner that it waits for.
    """

    me: Contact
    predecessor: Contact | None
    successors: Contacts
    predecessors: Contacts
    owned_from: Point | None = None
    downs: Downs = ()
    now_ms: Count = 0
    taken: TakenArcs = ()


class GetRing(Request, frozen=True, tag=2):
    """Tell me your pointers; with `adopt`, I may adopt them, so the serving counts as observed."""

    adopt: bool = True
    reply = RingPointers


class Notify(Request, frozen=True, tag=3):
    """I might be your predecessor (NOTIFY, answered before the rectify step it starts)."""

    peer: Contact


class Offer(Request, frozen=True, tag=4):
    """Here is a vnode that might be your successor: query it, and adopt it if it lies before yours."""

    peer: Contact


class Parting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vnode that goes, and the successor list it leaves to whoever has it at the head of his own."""

    vnode: Contact
    successors: Annotated[tuple[Contact, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class Departing(Request, frozen=True, tag=5):
    """*node* I have handed everything over and am leaving: forget me."""

    address: Address
    partings: Annotated[tuple[Parting, ...], Meta(max_length=64)] = ()


class Retiring(Request, frozen=True, tag=7):
    """*node* I am about to leave: count me out of the replica sets, and let others copy what I hold."""

    address: Address


class Returned(Request, frozen=True, tag=8):
    """*node* I am a member, and was away or am new: nothing you knew of me counts any more."""

    address: Address


class Pausing(Request, frozen=True, tag=6):
    """*node* I stop for a while and keep my data: route around me, and wait for me."""

    address: Address


# -- lookup -------------------------------------------------------------------------------------


class Via(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How a hop was reached: entry `index` of the asked vnode's finger table or successor list."""

    kind: Literal["start", "finger", "successor", "cache", "predecessor"]
    index: Annotated[int, Meta(ge=0, le=LIST_ENTRIES_MAX)] = 0


class Candidate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A vnode worth asking next."""

    contact: Contact
    via: Via


class NextHops(Reply, frozen=True, tag=131):
    """Candidates, best first. When `final`, they are the key's successor and the vnodes after it."""

    final: bool
    candidates: Annotated[tuple[Candidate, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    spacing: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0  # mean gap in the asked list, as a share of the circle


class FindNext(Request, frozen=True, tag=16):
    """Who is closest before this key, as far as you know? `tried` are ids already found useless."""

    key: Point
    route: Route = "classic"
    tried: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    successor_only: bool = False
    reply = NextHops


class Confirmed(Reply, frozen=True, tag=132):
    """The key is mine: I answer for (`arc_start`, my id] in this epoch.

    `replicas` are the members of its replica set in ring order; those of them at `silent` do not answer now. `holders`
    are to hold it meanwhile: the members that answer, and as many others as stand in for the silent ones. Only if
    `needed` nodes hold a record may another node drop it. If fewer stay, nodes that are about to leave are holders too.
    """

    owner: Contact
    arc_start: Point
    epoch: Count
    replicas: Contacts
    silent: Contacts = ()
    holders: Contacts = ()
    needed: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = 1


class Confirm(Request, frozen=True, tag=17):
    """Do you answer for this key?"""

    key: Point
    reply = Confirmed


class HopTrace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a trace. Times in milliseconds; `remaining` is the share of the circle from here to the key."""

    contact: Contact
    via: Via
    remaining: Finite
    rtt_ms: Finite | None
    at_ms: Finite
    outcome: Text = "ok"  # ok, or the reason in words why the hop was of no use
    is_dead: bool = False


class Trace(Reply, frozen=True, tag=133):
    """A finished lookup: the hops from the start to the key's predecessor, and the confirmed owner.

    Of the `replicas` those at `silent` do not answer the owner. `hops` has a line for each dead hop of every attempt.
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
    silent: Contacts = ()


class Lookup(Request, frozen=True, tag=18):
    """Look this key up yourself and tell me how you got there. (To a vnode, or *node*: from its first vnode.)"""

    key: Point
    mode: Mode = "iterative"
    route: Route = "classic"
    reply = Trace
    patient = True


class NeighboursOf(Reply, frozen=True, tag=134):
    """`successor` follows `predecessor` on the asked vnode's ring, and the point lies between them."""

    predecessor: Contact
    successor: Contact
    ring: Identity | None = None  # the asked node's ring id: a joiner takes it from whom it chose to ask
    has_left: bool = False  # the asked node has heard the final goodbye of the vnode at this point


class FindNeighbours(Request, frozen=True, tag=19):
    """Between which two vnodes does this point lie, on the ring as you see it? (The self-lookup.)"""

    point: Point
    reply = NeighboursOf
    patient = True


class Forwarded(Reply, frozen=True, tag=135):
    """A recursive lookup coming home: hops after the asked vnode, then the candidates it ended at.

    `elapsed_ms` is the time the asked vnode spent downstream, so that its caller can tell its own round trip.
    """

    hops: Annotated[tuple[HopTrace, ...], Meta(max_length=HOPS_MAX)]
    candidates: Annotated[tuple[Candidate, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    elapsed_ms: Finite
    spacing: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class Forward(Request, frozen=True, tag=20):
    """Carry this lookup on towards the key, at most `hops_left` further."""

    key: Point
    route: Route
    hops_left: Annotated[int, Meta(ge=0, le=HOPS_MAX)]
    reply = Forwarded
    patient = True

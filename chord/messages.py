"""Every message on the wire, its bounds, and the reply each request expects.

Messages are frozen structs encoded as CBOR arrays `[tag, fields…]`. New fields go last and have
defaults; meanings never change. Requests are imperative; each names its reply in `reply`.

A request with `patient = True` waits for work elsewhere, so silence before the caller's own
deadline says nothing about the peer. One with `bulk = True` always travels on the bulk stream.
Requests are addressed to a vnode, or (marked *node*) to the node as a whole.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

import msgspec
from msgspec import Meta

from chord.ids import Point

KEY_BYTES_MAX = 1024
VALUE_BYTES_MAX = 1 << 20
CONTEXT_BYTES_MAX = 4096
ADDRESS_CHARS_MAX = 255
LIST_ENTRIES_MAX = 256
PAGE_RECORDS_MAX = 128
SIBLINGS_MAX = 64
ACTORS_MAX = 160  # nodes that ever coordinated a write of one key; a context naming all of them fits its bound
HOPS_MAX = 4096  # a successor-only walk records every hop

Address: TypeAlias = Annotated[str, Meta(min_length=1, max_length=ADDRESS_CHARS_MAX)]
Key: TypeAlias = Annotated[bytes, Meta(min_length=1, max_length=KEY_BYTES_MAX)]
Value: TypeAlias = Annotated[bytes, Meta(max_length=VALUE_BYTES_MAX)]
Context: TypeAlias = Annotated[bytes, Meta(max_length=CONTEXT_BYTES_MAX)]
Identity: TypeAlias = Annotated[bytes, Meta(min_length=16, max_length=16)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=(1 << 62))]
Text: TypeAlias = Annotated[str, Meta(max_length=1024)]

Mode: TypeAlias = Literal["iterative", "recursive", "successor"]
Route: TypeAlias = Literal["classic", "fast"]


class Contact(msgspec.Struct, frozen=True, array_like=True):
    """A vnode elsewhere: its point on the circle and the address of its node."""

    id: Point
    address: Address


Contacts: TypeAlias = Annotated[tuple[Contact, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class Message(msgspec.Struct, frozen=True, array_like=True):
    """Base of requests and replies."""


class Reply(Message, frozen=True):
    """Base of replies."""


class Done(Reply, frozen=True, tag=128):
    """The request was carried out; there is nothing else to say."""


class Request(Message, frozen=True):
    """Base of requests."""

    reply: ClassVar[type[Reply]] = Done
    patient: ClassVar[bool] = False
    bulk: ClassVar[bool] = False


# -- first frame --------------------------------------------------------------------------------


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """First frame both ways: who I am and what all nodes of my ring agree on.

    `ring` is None for a node that has not joined and for a client; `bits` is 0 for a client, who
    learns it from the answer. Vnode ids are raw bytes, because their width is not agreed yet.
    """

    version_min: Annotated[int, Meta(ge=1, le=1 << 16)]
    version_max: Annotated[int, Meta(ge=1, le=1 << 16)]
    role: Literal["node", "client"]
    stream: Literal["control", "bulk"]
    cluster: Annotated[str, Meta(max_length=64)] = ""
    bits: Annotated[int, Meta(ge=0, le=160)] = 0
    successors: Annotated[int, Meta(ge=0, le=64)] = 0
    replicas: Annotated[int, Meta(ge=0, le=16)] = 0
    ring: Identity | None = None
    address: Annotated[str, Meta(max_length=ADDRESS_CHARS_MAX)] = ""
    incarnation: Annotated[bytes, Meta(max_length=8)] = b""
    vnodes: Annotated[tuple[Annotated[bytes, Meta(max_length=20)], ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    features: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class ErrorReply(msgspec.Struct, frozen=True, array_like=True):
    """An error as it travels: its code of `chord.errors`, a sentence, and what it speaks of."""

    code: Annotated[int, Meta(ge=0, le=1 << 16)]
    message: Text
    peer: Contact | None = None
    after_ms: Count | None = None


# -- ring maintenance ---------------------------------------------------------------------------


class Pong(Reply, frozen=True, tag=129):
    """I am alive, and this vnode is mine. `is_owner`: it answers for an arc."""

    state: Literal["joining", "resuming", "member", "leaving"] = "member"
    is_owner: bool = True


class Ping(Request, frozen=True, tag=1):
    """Are you alive?"""

    reply = Pong


class RingPointers(Reply, frozen=True, tag=130):
    """A member's pointers. `owned_from` is the start of the arc it answers for, None while it answers for none."""

    me: Contact
    predecessor: Contact | None
    successors: Contacts
    predecessors: Contacts
    owned_from: Point | None = None


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


class Parting(msgspec.Struct, frozen=True, array_like=True):
    """A vnode that goes, and the successor list it leaves to whoever has it at the head of his own."""

    vnode: Contact
    successors: Annotated[tuple[Contact, ...], Meta(max_length=LIST_ENTRIES_MAX)]


class Departing(Request, frozen=True, tag=5):
    """*node* I have handed everything over and am leaving: forget me."""

    address: Address
    partings: Annotated[tuple[Parting, ...], Meta(max_length=64)] = ()


class Pausing(Request, frozen=True, tag=6):
    """*node* I stop for a while and keep my data: route around me, do not replace me."""

    address: Address


# -- lookup -------------------------------------------------------------------------------------


class Via(msgspec.Struct, frozen=True, array_like=True):
    """How a hop was reached: entry `index` of the asked vnode's finger table or successor list."""

    kind: Literal["start", "finger", "successor", "cache", "predecessor"]
    index: Annotated[int, Meta(ge=0, le=LIST_ENTRIES_MAX)] = 0


class Candidate(msgspec.Struct, frozen=True, array_like=True):
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
    """The key is mine: I answer for (`arc_start`, my id] in this epoch; `replicas` hold it."""

    owner: Contact
    arc_start: Point
    epoch: Count
    replicas: Contacts


class Confirm(Request, frozen=True, tag=17):
    """Do you answer for this key?"""

    key: Point
    reply = Confirmed


class HopTrace(msgspec.Struct, frozen=True, array_like=True):
    """One line of a trace. Times in milliseconds; `remaining` is the share of the circle from here to the key."""

    contact: Contact
    via: Via
    remaining: float
    rtt_ms: float | None
    at_ms: float
    outcome: Text = "ok"  # ok, or the reason in words why the hop was of no use
    is_dead: bool = False


class Trace(Reply, frozen=True, tag=133):
    """A finished lookup: the hops from the start to the key's predecessor, and the confirmed owner."""

    key: Point
    start: Contact
    owner: Contact
    owner_via: Via
    owner_rtt_ms: float
    replicas: Contacts
    hops: Annotated[tuple[HopTrace, ...], Meta(max_length=HOPS_MAX)]
    mode: Mode
    route: Route
    path_length: Count
    timeouts: Count
    calls: Count
    duration_ms: float
    nodes_estimate: Count
    arc_start: Point
    epoch: Count


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
    elapsed_ms: float
    spacing: Annotated[float, Meta(ge=0.0, le=1.0)] = 0.0


class Forward(Request, frozen=True, tag=20):
    """Carry this lookup on towards the key, at most `hops_left` further."""

    key: Point
    route: Route
    hops_left: Annotated[int, Meta(ge=0, le=HOPS_MAX)]
    reply = Forwarded
    patient = True


# -- records ------------------------------------------------------------------------------------


class Version(msgspec.Struct, frozen=True, array_like=True):
    """One value of a record: what a put wrote (None deletes), its operation id, and when (wall clock, ms)."""

    value: Value | None
    op_id: Identity
    written_ms: Annotated[int, Meta(ge=0, le=(1 << 62))]


class ActorClock(msgspec.Struct, frozen=True, array_like=True):
    """`count` events seen from the actor; the values of the latest of them, newest first."""

    actor: Identity
    count: Count
    versions: Annotated[tuple[Version, ...], Meta(max_length=SIBLINGS_MAX)]


class Record(msgspec.Struct, frozen=True, array_like=True):
    """A key and its dotted version vector set, actors in ascending order. See `chord/data/versions.py`."""

    key: Key
    clock: Annotated[tuple[ActorClock, ...], Meta(max_length=ACTORS_MAX)]


class Values(Reply, frozen=True, tag=144):
    """The live values of a key (several where they are concurrent, none where it was deleted), and their context."""

    values: Annotated[tuple[Value, ...], Meta(max_length=SIBLINGS_MAX)]
    context: Context
    owner: Contact


class Get(Request, frozen=True, tag=32):
    """Read a key. To a vnode: answer only if you own it; *node*: find the owner and ask it."""

    key: Key
    reply = Values


class Written(Reply, frozen=True, tag=145):
    """The put is stored; the context covers it, and whatever the owner held beside it at that moment."""

    context: Context
    owner: Contact


class Put(Request, frozen=True, tag=33):
    """Write a key; a value of None deletes. A context of None covers whatever the owner holds at that moment.

    An empty context is a blind put: it covers nothing and leaves a sibling where a value exists.
    """

    key: Key
    value: Value | None
    op_id: Identity
    context: Context | None = None
    reply = Written
    patient = True


class ScanPage(Reply, frozen=True, tag=146):
    """Records in ring order. The scan is done up to `until` when `more_after` is None, else go on after that key."""

    records: Annotated[tuple[Record, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    until: Point
    more_after: Key | None


class Scan(Request, frozen=True, tag=34):
    """Read records clockwise after a point (and, at a page's end, after `after_key`), up to the owner's id."""

    after: Point
    after_key: Key | None = None
    limit: Annotated[int, Meta(ge=1, le=PAGE_RECORDS_MAX)] = PAGE_RECORDS_MAX
    reply = ScanPage
    patient = True
    bulk = True


# -- moving arcs --------------------------------------------------------------------------------


class TakenArc(msgspec.Struct, frozen=True, array_like=True):
    """Part of an arc whose only copy was on a node that is down: absent keys there are not "not found"."""

    start: Point
    end: Point
    dead: Contact
    since_ms: Count  # how long ago it was found dead, ms


class Granted(Reply, frozen=True, tag=160):
    """The transfer session is open; the arc begins at `arc_start` for now."""

    arc_start: Point


class JoinArc(Request, frozen=True, tag=48):
    """I am joining at `joiner.id`: send me the part of your arc up to there, under this session of my choice."""

    joiner: Contact
    session: Identity
    reply = Granted


class HandOver(Request, frozen=True, tag=49):
    """I am leaving: accept my arc, which I will send under this session."""

    leaver: Contact
    session: Identity
    arc_start: Point
    reply = Granted


class PageStored(Reply, frozen=True, tag=161):
    """Which records of a page are stored here now, durably."""

    stored: Annotated[tuple[bool, ...], Meta(max_length=PAGE_RECORDS_MAX)]


class StorePage(Request, frozen=True, tag=50):
    """Merge these records: in a session whatever they are; without one only where you own the key."""

    session: Identity | None
    records: Annotated[tuple[Record, ...], Meta(max_length=PAGE_RECORDS_MAX)]
    reply = PageStored
    patient = True
    bulk = True


class Switch(Request, frozen=True, tag=51):
    """All is copied: from now on you answer for this arc, in this epoch. Idempotent by epoch."""

    session: Identity
    giver: Contact
    arc_start: Point
    arc_end: Point
    epoch: Count
    boundary: Contact | None = None  # the vnode known to stand at arc_start
    taken: Annotated[tuple[TakenArc, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()


class Abandon(Request, frozen=True, tag=52):
    """This session ends without a switch; start another one."""

    session: Identity


# -- operating a node ---------------------------------------------------------------------------


class OwnedArc(msgspec.Struct, frozen=True, array_like=True):
    """An arc a vnode has a say in, and what it says."""

    start: Point
    end: Point
    epoch: Count
    state: Literal["owned", "giving", "taken_over", "moved"]
    peer: Contact | None = None


class FingerRun(msgspec.Struct, frozen=True, array_like=True):
    """Finger entries `first` to `last` (inclusive) that point to one vnode."""

    first: Annotated[int, Meta(ge=0, le=160)]
    last: Annotated[int, Meta(ge=0, le=160)]
    contact: Contact


class VnodeInfo(msgspec.Struct, frozen=True, array_like=True):
    """Everything one vnode knows about its place."""

    contact: Contact
    state: Literal["joining", "resuming", "member", "leaving", "left"]
    is_isolated: bool
    predecessor: Contact | None
    successors: Contacts
    predecessors: Contacts
    arcs: Annotated[tuple[OwnedArc, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    fingers: Annotated[tuple[FingerRun, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    keys: Count
    rounds: Count


class PeerInfo(msgspec.Struct, frozen=True, array_like=True):
    """What a node thinks of a peer node."""

    address: Address
    state: Literal["alive", "suspect", "dead", "left", "paused"]
    rtt_ms: float | None
    since_ms: Count


class Description(Reply, frozen=True, tag=176):
    """A node as it sees itself. `counters` are named totals since its start, in ascending order of name."""

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
    timing: Annotated[tuple[tuple[Text, float], ...], Meta(max_length=64)] = ()


class Describe(Request, frozen=True, tag=64):
    """*node* Describe yourself."""

    reply = Description


class Leave(Request, frozen=True, tag=65):
    """*node* Hand everything over, leave the ring and exit. Answered at once; the leaving goes on."""


def _concrete(base: type[Message]) -> tuple[type[Message], ...]:
    return tuple(sorted(base.__subclasses__(), key=lambda c: int(c.__struct_config__.tag or 0)))


REQUESTS: tuple[type[Request], ...] = _concrete(Request)  # type: ignore[assignment]
REPLIES: tuple[type[Reply], ...] = _concrete(Reply)  # type: ignore[assignment]
REQUEST_BY_TAG: dict[int, type[Request]] = {int(c.__struct_config__.tag): c for c in REQUESTS}  # type: ignore[arg-type]
REPLY_BY_TAG: dict[int, type[Reply]] = {int(c.__struct_config__.tag): c for c in REPLIES}  # type: ignore[arg-type]

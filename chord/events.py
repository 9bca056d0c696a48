"""The events of a node: the closed set of observable changes, as frozen structs.

Protocol code writes no log lines. It emits one of these events, synchronously. The node puts each event in an envelope,
`Emitted`, and passes it to its `Observer`. Logs, metrics, the simulator's checkers and the tests read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from chord.ids import Arc, Contact, NodeState, PeerState, Point, StreamName


class Event(msgspec.Struct, frozen=True):
    """Base of all events: of each observable change of a node."""


class VnodeEvent(Event, frozen=True):
    """An event of one vnode."""

    vnode: Point


# -- pointers: one event per transition of chord/ring/pointers.py ---------------------------------------


class RingCreated(VnodeEvent, frozen=True):
    """A vnode founded a ring, and is its only member."""


class RingJoined(VnodeEvent, frozen=True):
    """The vnode joined a ring: it became a member, and took its predecessor's successor list."""

    predecessor: Contact
    successor: Contact


class RingResumed(VnodeEvent, frozen=True):
    """A restarted vnode is a member again, at the point that it had before.

    Its pointers are those from before the restart, so they may be old. `predecessor` is None if none is known.
    """

    predecessor: Contact | None
    successor: Contact


class SuccessorAdopted(VnodeEvent, frozen=True):
    """The vnode's successor list has a new head, `new`.

    `old` is the head before; None if the vnode was its own successor.
    """

    new: Contact
    old: Contact | None


class ListCopied(VnodeEvent, frozen=True):
    """The vnode copied the successor list of its head behind the head.

    This changed the vnode's own list. The head stays the same.
    """

    head: Contact


class HeadForgotten(VnodeEvent, frozen=True):
    """The head of the successor list was dropped, because it is dead or has left."""

    old: Contact


class PredecessorAdopted(VnodeEvent, frozen=True):
    """The vnode has a new predecessor; `old` is None if it had none before."""

    new: Contact
    old: Contact | None


class StepAborted(VnodeEvent, frozen=True):
    """A step discarded a reply, because the vnode's pointers were read meanwhile.

    Another vnode read them, and the step asks again. This is abort-if-observed, which makes a step atomic; see
    `chord/stabilize.py`. The step "adopt" asks a vnode that may become the successor.
    """

    step: Literal["stabilize", "rectify", "adopt"]


class StepFailed(VnodeEvent, frozen=True):
    """A step of a vnode ended in an expected error; the node tries again later.

    Attributes:
        step: the name of the step, such as "stabilize".
        error: the `word` of the error. For the step "save_identity", the message of the operating system.
    """

    step: str
    error: str


class StepDone(VnodeEvent, frozen=True):
    """A protocol step completed; `step` is its name, such as "stabilize"."""

    step: str


class FingerChanged(VnodeEvent, frozen=True):
    """The finger entries from `first` to `last`, inclusive, now point to `new`."""

    first: int
    last: int
    new: Contact


class SplitFound(VnodeEvent, frozen=True):
    """A self-lookup found other neighbours around this vnode's id.

    A self-lookup is a lookup of the vnode's own id that another node makes. Either two rings exist, or a loopy ring is
    being untangled.

    Attributes:
        asked: the vnode that made the lookup. If only the address of its node is known, this is `predecessor`.
        predecessor, successor: the neighbours that the lookup found.
    """

    asked: Contact
    predecessor: Contact
    successor: Contact


class VnodeIsolated(VnodeEvent, frozen=True):
    """The last neighbours of this vnode became unreachable.

    The vnode keeps trying the peers that it once knew. Until one answers, it does not know whether it is alone.
    """


# -- ownership: one event per transition of chord/ring/ownership.py ----------------------------------


class ArcGained(VnodeEvent, frozen=True):
    """The vnode now owns an arc, and answers for its keys.

    Attributes:
        arc: the gained arc; the vnode may own more.
        epoch: the epoch of the vnode's arc from now on.
        how: "created": it founded a ring. "received": the owner handed the arc over. "taken_over": the owners in the
            arc are dead. "resumed": it returned after a restart. "reclaimed": a handover failed.
    """

    arc: Arc
    epoch: int
    how: Literal["created", "received", "taken_over", "resumed", "reclaimed"]


class ArcLost(VnodeEvent, frozen=True):
    """The vnode no longer owns an arc.

    Attributes:
        arc: the lost part of the vnode's arc, or the whole.
        epoch: the epoch of the vnode's arc after the loss.
        how: "moved": a receiver acknowledged it. "shrunk": a member inside the arc owns it. "renounced": another vnode
            owns the whole arc.
    """

    arc: Arc
    epoch: int
    how: Literal["moved", "shrunk", "renounced"]


class TransferStarted(VnodeEvent, frozen=True):
    """The vnode began to hand an arc and its records over to another vnode.

    `reason` is "join" if `to` joins, and "leave" if this vnode leaves.
    """

    arc: Arc
    to: Contact
    reason: Literal["join", "leave"]


class TransferEnded(VnodeEvent, frozen=True):
    """A transfer from this vnode ended.

    Attributes:
        records: the number of records that were sent.
        outcome: "moved" if `to` owns the arc now, or "aborted" if this vnode still owns it.
    """

    arc: Arc
    to: Contact
    records: int
    outcome: str


class RecordsReceived(VnodeEvent, frozen=True):
    """The vnode has stored a page of `records` records of an arc that it receives."""

    records: int


class RecordUnmerged(Event, frozen=True):
    """A record from another node cannot be merged with the local one.

    Each node keeps its own record. `why` names the key and the reason.
    """

    why: str


class ValuesQuarantined(Event, frozen=True):
    """After an absence, this node hid `values` of its old values in quarantine.

    No other node could tell whether they had been deleted meanwhile. Readers do not see them.
    """

    values: int


class RecordsDropped(VnodeEvent, frozen=True):
    """This node dropped `records` records that it does not replicate.

    Every node that must hold them has proved that it does. `to` is their owner.
    """

    records: int
    to: Contact


class LookupDone(Event, frozen=True):
    """A lookup of this node found the owner of a point.

    A node emits this event only while a watcher samples it (`Sample`), and at most ten times per second.

    Attributes:
        key: the point.
        start: the vnode that made the first step.
        owner: the vnode that answers for the point.
        mode: iterative, recursive or successor.
        route: classic or fast.
        hops: the path length.
        timeouts: the number of calls without an answer.
        took_ms: the time that the lookup took, in ms.
    """

    key: Point
    start: Contact
    owner: Contact
    mode: str
    route: str
    hops: int
    timeouts: int
    took_ms: float


# -- peers and the node -------------------------------------------------------------------------


class PeerChanged(Event, frozen=True):
    """This node's failure detector changed its verdict on a peer.

    `state` is the new verdict: alive, suspect, dead, left or paused. `reason` says in words why it changed.
    """

    address: str
    state: PeerState
    reason: str


class ConnectionOpened(Event, frozen=True):
    """A stream to or from a peer completed its handshake.

    `address` is "" if the peer is a client. `dialled` says whether this node opened the stream.
    """

    address: str
    stream: StreamName
    dialled: bool


class ConnectionClosed(Event, frozen=True):
    """A stream that had completed its handshake ended; `reason` says in words why.

    `address` is that of the peer, or "" for a client.
    """

    address: str
    reason: str


DRAINED: Final = "drained"
"""The `reason` of a stream that was not needed any more."""


class ConnectionRefused(Event, frozen=True):
    """This node or its peer refused a stream before the handshake was complete.

    Reasons are another ring, a bad first frame and too many connections.

    Attributes:
        address: the peer that this node dialled. If the peer dialled, its host without a port, or "" for loopback.
        reason: why, in words.
    """

    address: str
    reason: str


class NodeStateChanged(Event, frozen=True):
    """The node moved to another state, such as "joining" or "ready"; `address` is its own address."""

    state: NodeState
    address: str


class HealthChanged(Event, frozen=True):
    """A part of the node, the subject, failed or recovered.

    `why` says what fails; it is empty after a recovery. While it is not empty, the node does not serve all requests;
    see `chord.ring.health.Health`.
    """

    subject: str
    why: str


class RecordsDamaged(Event, frozen=True):
    """The scrub, a regular check of the whole store, found `records` damaged records.

    Records that it had found damaged before are not counted again. A damaged record counts as missing. `address` is
    that of this node.
    """

    address: str
    records: int


class ClockSkewed(Event, frozen=True):
    """A neighbour's wall clock differs from this node's by `skew_ms`.

    The number is positive if the neighbour is ahead. The event occurs when the difference begins to exceed
    `chord.config.SKEW_REPORTED_MS`. Values with a time to live may expire early or late by the difference.
    """

    address: str
    skew_ms: int


class StoreBegun(Event, frozen=True):
    """A node that is not new begins with an empty store.

    The store has a new incarnation, the random bytes that name a store. `why` is "lost" if other nodes may have copies
    of the earlier records. It is "lost for good" if the ring keeps one copy of each record, or the node knew no other
    node.
    """

    why: Literal["lost", "lost for good"]


class HandlerFailed(Event, frozen=True):
    """The handler of a request raised an unexpected exception, which is an error of this program.

    A simulation that sees this event has failed. `where` is the class of the request.
    """

    where: str
    traceback: str


Emit: TypeAlias = Callable[[Event], None]
"""Callback with which a part of a node reports an event."""

_ROUTINE = (ClockSkewed, ConnectionOpened, ConnectionRefused, LookupDone, RecordUnmerged, StepAborted, StepDone)


def is_news(event: Event) -> bool:
    """Return whether an event shows a change in the ring, or a node that does not answer.

    Routine events return False, such as `StepDone`, `LookupDone` and a closed stream of a client.
    """
    if isinstance(event, ConnectionClosed):
        return event.address != "" and event.reason != DRAINED
    return not isinstance(event, _ROUTINE)


class Emitted(msgspec.Struct, frozen=True):
    """An event with its time, number and source node.

    Attributes:
        seq: the number of the event at its node, from 1. A `StepDone` has the number of the event before it.
        mono_ms: the time on the monotonic clock of the node, in ms.
        wall_ms: the time on the wall clock of the node, in ms since 1970.
        node: the advertised address of the node; "" if the node did not know it yet.
        event: the event.
    """

    seq: int
    mono_ms: int
    wall_ms: int
    node: str
    event: Event


Observer: TypeAlias = Callable[[Emitted], None]
"""Callback that gets every event of a node. It must not raise, and must return quickly."""


def ignore(event: Event | Emitted) -> None:
    """Do nothing with an event; the default observer."""

"""The events of a node: the closed set of observable changes, as frozen structs.

Protocol code writes no log lines. It emits one of these events, synchronously. Logs, metrics, the simulator's checkers
and the tests read them. An `observe` callable never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from chord.ids import Arc, Contact, NodeState, PeerState, Point, StreamName


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


class VnodeEvent(Event, frozen=True):
    """An event of one vnode."""

    vnode: Point


# -- pointers: one event per transition of chord/ring/pointers.py ---------------------------------------


class RingCreated(VnodeEvent, frozen=True):
    """A vnode founded a ring of one."""


class RingJoined(VnodeEvent, frozen=True):
    """JOIN: the vnode became a member, and took its predecessor's successor list."""

    predecessor: Contact
    successor: Contact


class RingResumed(VnodeEvent, frozen=True):
    """A restarted vnode is a member again, at the point that it had before."""

    predecessor: Contact | None
    successor: Contact


class SuccessorAdopted(VnodeEvent, frozen=True):
    """The successor list has a new head.

    `old` is the head before; None if the vnode was its own successor.
    """

    new: Contact
    old: Contact | None


class ListCopied(VnodeEvent, frozen=True):
    """The head's own successor list changed, and the vnode copied it behind the head."""

    head: Contact


class HeadForgotten(VnodeEvent, frozen=True):
    """The head of the successor list was dropped, because it is dead or has left."""

    old: Contact


class PredecessorAdopted(VnodeEvent, frozen=True):
    """The vnode has a new predecessor; `old` is None if it had none before."""

    new: Contact
    old: Contact | None


class StepAborted(VnodeEvent, frozen=True):
    """A step discarded a reply, because another vnode read the pointers meanwhile.

    This is abort-if-observed, which makes a step atomic; see `chord/stabilize.py`.
    """

    step: Literal["stabilize", "rectify", "adopt"]


class StepFailed(VnodeEvent, frozen=True):
    """A periodic step ended in an expected error and will run again."""

    step: str
    error: str


class StepDone(VnodeEvent, frozen=True):
    """One protocol step completed."""

    step: str


class FingerChanged(VnodeEvent, frozen=True):
    """Finger entries from `first` to `last` now point to `new`."""

    first: int
    last: int
    new: Contact


class SplitFound(VnodeEvent, frozen=True):
    """A self-lookup found other neighbours around this vnode's id.

    A self-lookup is a lookup of the vnode's own id that another node makes. Either two rings exist, or a loopy ring is
    being untangled.

    Attributes:
        asked: the vnode that made the lookup.
        predecessor, successor: the neighbours that it found.
    """

    asked: Contact
    predecessor: Contact
    successor: Contact


class VnodeIsolated(VnodeEvent, frozen=True):
    """Every neighbour of this vnode is gone; it keeps trying the peers it once knew."""


# -- ownership: one event per transition of chord/ring/ownership.py ----------------------------------


class ArcGained(VnodeEvent, frozen=True):
    """The vnode now owns an arc, and answers for its keys: `how` says why."""

    arc: Arc
    epoch: int
    how: Literal["created", "received", "taken_over", "resumed", "reclaimed"]


class ArcLost(VnodeEvent, frozen=True):
    """The vnode no longer owns an arc: `how` says why."""

    arc: Arc
    epoch: int
    how: Literal["moved", "shrunk", "renounced"]


class TransferStarted(VnodeEvent, frozen=True):
    """Records of an arc began to move to a peer."""

    arc: Arc
    to: Contact
    reason: Literal["join", "leave"]


class TransferEnded(VnodeEvent, frozen=True):
    """A transfer ended: `outcome` is "moved" or "aborted"."""

    arc: Arc
    to: Contact
    records: int
    outcome: str


class RecordsReceived(VnodeEvent, frozen=True):
    """Records of an arc in transfer have been stored."""

    records: int


class RecordUnmerged(Event, frozen=True):
    """A record from another node cannot be merged with the local one; both stay.

    `why` names the key and the reason.
    """

    why: str


class ValuesQuarantined(Event, frozen=True):
    """After an absence, this node put `values` old values in quarantine, out of sight.

    No other node could tell whether they had been deleted meanwhile.
    """

    values: int


class RecordsDropped(VnodeEvent, frozen=True):
    """Records that this node does not replicate were dropped.

    Every node that must hold them does. `to` is their owner.
    """

    records: int
    to: Contact


# -- peers and the node -------------------------------------------------------------------------


class PeerChanged(Event, frozen=True):
    """This node's failure detector changed its verdict on a peer."""

    address: str
    state: PeerState
    reason: str


class ConnectionOpened(Event, frozen=True):
    """A stream to or from a peer completed its handshake.

    `dialled` says whether this node opened the stream.
    """

    address: str
    stream: StreamName
    dialled: bool


class ConnectionClosed(Event, frozen=True):
    """A stream ended."""

    address: str
    reason: str


class ConnectionRefused(Event, frozen=True):
    """A stream was refused: another ring, a bad first frame, too many connections."""

    address: str
    reason: str


class NodeStateChanged(Event, frozen=True):
    """The node moved to another state."""

    state: NodeState
    address: str


class HealthChanged(Event, frozen=True):
    """A part of the node, the subject, failed or recovered.

    `why` says what fails; it is empty after a recovery. While it is not empty, the node does not serve all requests;
    see `chord.ring.health`.
    """

    subject: str
    why: str


class RecordsDamaged(Event, frozen=True):
    """The scrub, a regular check of the whole store, found `records` damaged records.

    They count as missing.
    """

    address: str
    records: int


class ClockSkewed(Event, frozen=True):
    """A neighbour's wall clock differs from this node's by `skew_ms`.

    Values with a time to live may expire early or late by that much.
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
    """ERROR: a handler or step raised an unexpected exception.

    A simulation that sees this event has failed.
    """

    where: str
    traceback: str


Observer: TypeAlias = Callable[[Event], None]
"""Callback that gets every event. It must not raise, and must return quickly."""


def ignore(event: Event) -> None:
    """Do nothing with an event; the default observer."""

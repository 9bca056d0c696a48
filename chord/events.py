"""The closed set of things worth observing, as frozen structs.

Protocol code has no log strings: it emits one of these, synchronously, and logs, metrics, the
simulator's checkers and the tests read them. An `observe` callable never raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from chord.ids import Arc, Contact, NodeState, PeerState, Point, StreamName


class Event(msgspec.Struct, frozen=True):
    """Base of all events."""


class VnodeEvent(Event, frozen=True):
    """Something that happened to one vnode."""

    vnode: Point


# -- pointers: one event per transition of chord/ring/pointers.py ---------------------------------------


class RingCreated(VnodeEvent, frozen=True):
    """A vnode founded a ring of one."""


class RingJoined(VnodeEvent, frozen=True):
    """JOIN: the vnode took its predecessor's whole list."""

    predecessor: Contact
    successor: Contact


class RingResumed(VnodeEvent, frozen=True):
    """A restarted vnode took up its stored or still-known place."""

    predecessor: Contact | None
    successor: Contact


class SuccessorAdopted(VnodeEvent, frozen=True):
    """A new head of the successor list."""

    new: Contact
    old: Contact | None


class ListCopied(VnodeEvent, frozen=True):
    """The list behind the head changed with the head's own."""

    head: Contact


class HeadForgotten(VnodeEvent, frozen=True):
    """A dead head of the successor list was dropped."""

    old: Contact


class PredecessorAdopted(VnodeEvent, frozen=True):
    """A new predecessor."""

    new: Contact
    old: Contact | None


class StepAborted(VnodeEvent, frozen=True):
    """Abort-if-observed: the state was served while a step waited for its answer, so the answer was discarded."""

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
    """A self-lookup was answered with somebody else's successor: two rings, or a loop that is being untangled."""

    asked: Contact
    predecessor: Contact
    successor: Contact


class VnodeIsolated(VnodeEvent, frozen=True):
    """Every neighbour of this vnode is gone; it keeps trying the peers it once knew."""


# -- ownership: one event per transition of chord/ring/ownership.py ----------------------------------


class ArcGained(VnodeEvent, frozen=True):
    """The vnode answers for an arc: `how` says why."""

    arc: Arc
    epoch: int
    how: Literal["created", "received", "taken_over", "resumed", "reclaimed"]


class ArcLost(VnodeEvent, frozen=True):
    """The vnode stopped answering for an arc: `how` says why."""

    arc: Arc
    epoch: int
    how: Literal["moved", "shrunk", "renounced"]


class TransferStarted(VnodeEvent, frozen=True):
    """Records of an arc began to move to a peer."""

    arc: Arc
    to: Contact
    reason: Literal["join", "leave"]


class TransferEnded(VnodeEvent, frozen=True):
    """A transfer ended: `outcome` is moved, aborted or a word for the error."""

    arc: Arc
    to: Contact
    records: int
    outcome: str


class RecordsReceived(VnodeEvent, frozen=True):
    """Records of an arc that is received are stored."""

    records: int


class RecordUnmerged(Event, frozen=True):
    """A record from elsewhere cannot be merged with what is held of its key: `why` names it. Both stay."""

    why: str


class ValuesQuarantined(Event, frozen=True):
    """After an absence this node put so many values in quarantine, as no other node vouches for them."""

    values: int


class RecordsDropped(VnodeEvent, frozen=True):
    """Records were let go of after their owner acknowledged them."""

    records: int
    to: Contact


# -- peers and the node -------------------------------------------------------------------------


class PeerChanged(Event, frozen=True):
    """What we think of a peer node changed."""

    address: str
    state: PeerState
    reason: str


class ConnectionOpened(Event, frozen=True):
    """A stream to or from a peer completed its handshake."""

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
    """The node moved to another stage of its life."""

    state: NodeState
    address: str


class HealthChanged(Event, frozen=True):
    """The node no longer serves all requests: `why`; or it does again, and `why` is empty. See `chord.ring.health`."""

    subject: str
    why: str


class RecordsDamaged(Event, frozen=True):
    """The scrub found so many damaged records in the store of this node; they count as missing."""

    address: str
    records: int


class ClockSkewed(Event, frozen=True):
    """The wall clock of a neighbour and our own differ by so many ms: values that live for a time may err by that."""

    address: str
    skew_ms: int


class StoreBegun(Event, frozen=True):
    """The node begins with an empty store under a new incarnation, though it is not new itself.

    `why`: lost, if other nodes may have copies of the records of last time. Lost for good, if the ring keeps one copy
    of each record, or the node knew no other node.
    """

    why: Literal["lost", "lost for good"]


class HandlerFailed(Event, frozen=True):
    """ERROR: a handler or step raised something it should not. A simulation that sees one has failed."""

    where: str
    traceback: str


Observer: TypeAlias = Callable[[Event], None]
"""Callback that gets every event. It must not raise, and must return quickly."""


def ignore(event: Event) -> None:
    """Observe nothing."""

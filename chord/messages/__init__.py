"""Every message on the wire, its bounds, and the reply each request expects.

Messages are frozen structs encoded as CBOR arrays `[tag, fields…]`. New fields go last and have
defaults; meanings never change. Requests are imperative; each names its reply in `reply`.

A request with `patient = True` waits for work elsewhere, so silence before the caller's own
deadline says nothing about the peer. One with `bulk = True` always travels on the bulk stream.
One with `for_clients = True` is asked by clients, or by nodes on their behalf.
Requests are addressed to a vnode, or (marked *node*) to the node as a whole.
"""

from __future__ import annotations

from chord.messages.base import ACTORS_HELD_MAX as ACTORS_HELD_MAX
from chord.messages.base import ACTORS_MAX as ACTORS_MAX
from chord.messages.base import ADDRESS_CHARS_MAX as ADDRESS_CHARS_MAX
from chord.messages.base import BATCH_BYTES_MAX as BATCH_BYTES_MAX
from chord.messages.base import BATCH_ITEMS_MAX as BATCH_ITEMS_MAX
from chord.messages.base import CONTEXT_BYTES_MAX as CONTEXT_BYTES_MAX
from chord.messages.base import DIGEST_BYTES as DIGEST_BYTES
from chord.messages.base import FALLBACKS_MAX as FALLBACKS_MAX
from chord.messages.base import HEADS_MAX as HEADS_MAX
from chord.messages.base import HOPS_MAX as HOPS_MAX
from chord.messages.base import KEY_BYTES_MAX as KEY_BYTES_MAX
from chord.messages.base import LIST_ENTRIES_MAX as LIST_ENTRIES_MAX
from chord.messages.base import PAGE_RECORDS_MAX as PAGE_RECORDS_MAX
from chord.messages.base import REPLICAS_MAX as REPLICAS_MAX
from chord.messages.base import SIBLINGS_MAX as SIBLINGS_MAX
from chord.messages.base import SUMS_MAX as SUMS_MAX
from chord.messages.base import SUPERSEDED_BYTES_MAX as SUPERSEDED_BYTES_MAX
from chord.messages.base import TTL_MS_MAX as TTL_MS_MAX
from chord.messages.base import VALUE_BYTES_MAX as VALUE_BYTES_MAX
from chord.messages.base import Address as Address
from chord.messages.base import Contact as Contact
from chord.messages.base import Contacts as Contacts
from chord.messages.base import Context as Context
from chord.messages.base import Count as Count
from chord.messages.base import Digest as Digest
from chord.messages.base import Done as Done
from chord.messages.base import ErrorReply as ErrorReply
from chord.messages.base import Hello as Hello
from chord.messages.base import Identity as Identity
from chord.messages.base import Key as Key
from chord.messages.base import Message as Message
from chord.messages.base import Mode as Mode
from chord.messages.base import NodeState as NodeState
from chord.messages.base import PeerState as PeerState
from chord.messages.base import Reply as Reply
from chord.messages.base import Request as Request
from chord.messages.base import Route as Route
from chord.messages.base import StreamName as StreamName
from chord.messages.base import Text as Text
from chord.messages.base import Value as Value
from chord.messages.base import VnodeState as VnodeState
from chord.messages.batches import CopiesRead as CopiesRead
from chord.messages.batches import GetMany as GetMany
from chord.messages.batches import Got as Got
from chord.messages.batches import GotMany as GotMany
from chord.messages.batches import PutMany as PutMany
from chord.messages.batches import ReadCopies as ReadCopies
from chord.messages.batches import Wrote as Wrote
from chord.messages.batches import WroteMany as WroteMany
from chord.messages.node import Describe as Describe
from chord.messages.node import Description as Description
from chord.messages.node import FingerRun as FingerRun
from chord.messages.node import Forget as Forget
from chord.messages.node import Leave as Leave
from chord.messages.node import OwnedArc as OwnedArc
from chord.messages.node import PeerInfo as PeerInfo
from chord.messages.node import ReplicaState as ReplicaState
from chord.messages.node import TransferInfo as TransferInfo
from chord.messages.node import VnodeInfo as VnodeInfo
from chord.messages.reaping import LOG_ENTRIES_MAX as LOG_ENTRIES_MAX
from chord.messages.reaping import MAKERS_MAX as MAKERS_MAX
from chord.messages.reaping import SLICES as SLICES
from chord.messages.reaping import SLICES_ASKED_MAX as SLICES_ASKED_MAX
from chord.messages.reaping import AreExpired as AreExpired
from chord.messages.reaping import AskLog as AskLog
from chord.messages.reaping import Claim as Claim
from chord.messages.reaping import DeadActor as DeadActor
from chord.messages.reaping import Expired as Expired
from chord.messages.reaping import GetLogs as GetLogs
from chord.messages.reaping import GetSeen as GetSeen
from chord.messages.reaping import Holding as Holding
from chord.messages.reaping import Level as Level
from chord.messages.reaping import LogEntry as LogEntry
from chord.messages.reaping import Logs as Logs
from chord.messages.reaping import Run as Run
from chord.messages.reaping import SeenIn as SeenIn
from chord.messages.reaping import SliceLog as SliceLog
from chord.messages.reaping import SliceSeen as SliceSeen
from chord.messages.reaping import StoreLogs as StoreLogs
from chord.messages.reaping import UpTo as UpTo
from chord.messages.reaping import Vouch as Vouch
from chord.messages.reaping import Vouched as Vouched
from chord.messages.records import WRITES as WRITES
from chord.messages.records import ActorClock as ActorClock
from chord.messages.records import DecideQuarantine as DecideQuarantine
from chord.messages.records import Get as Get
from chord.messages.records import GetQuarantine as GetQuarantine
from chord.messages.records import Merge as Merge
from chord.messages.records import Put as Put
from chord.messages.records import Quarantine as Quarantine
from chord.messages.records import Quorum as Quorum
from chord.messages.records import Record as Record
from chord.messages.records import ReplicaLine as ReplicaLine
from chord.messages.records import ReplicaLines as ReplicaLines
from chord.messages.records import Scan as Scan
from chord.messages.records import ScanOf as ScanOf
from chord.messages.records import ScanPage as ScanPage
from chord.messages.records import Values as Values
from chord.messages.records import Version as Version
from chord.messages.records import Written as Written
from chord.messages.records import as_retry as as_retry
from chord.messages.replicas import Abandon as Abandon
from chord.messages.replicas import Copies as Copies
from chord.messages.replicas import Copy as Copy
from chord.messages.replicas import GetCopies as GetCopies
from chord.messages.replicas import GetHeads as GetHeads
from chord.messages.replicas import GetSums as GetSums
from chord.messages.replicas import HandOver as HandOver
from chord.messages.replicas import Head as Head
from chord.messages.replicas import Heads as Heads
from chord.messages.replicas import JoinArc as JoinArc
from chord.messages.replicas import ReadCopy as ReadCopy
from chord.messages.replicas import Settled as Settled
from chord.messages.replicas import StoreCopies as StoreCopies
from chord.messages.replicas import StorePage as StorePage
from chord.messages.replicas import Sums as Sums
from chord.messages.replicas import Switch as Switch
from chord.messages.ring import Candidate as Candidate
from chord.messages.ring import Confirm as Confirm
from chord.messages.ring import Confirmed as Confirmed
from chord.messages.ring import Departing as Departing
from chord.messages.ring import Down as Down
from chord.messages.ring import Downs as Downs
from chord.messages.ring import FindNeighbours as FindNeighbours
from chord.messages.ring import FindNext as FindNext
from chord.messages.ring import Forward as Forward
from chord.messages.ring import Forwarded as Forwarded
from chord.messages.ring import GetRing as GetRing
from chord.messages.ring import HopTrace as HopTrace
from chord.messages.ring import Lookup as Lookup
from chord.messages.ring import NeighboursOf as NeighboursOf
from chord.messages.ring import NextHops as NextHops
from chord.messages.ring import Notify as Notify
from chord.messages.ring import Offer as Offer
from chord.messages.ring import Parting as Parting
from chord.messages.ring import Pausing as Pausing
from chord.messages.ring import Ping as Ping
from chord.messages.ring import Pong as Pong
from chord.messages.ring import Retiring as Retiring
from chord.messages.ring import Returned as Returned
from chord.messages.ring import RingPointers as RingPointers
from chord.messages.ring import TakenArc as TakenArc
from chord.messages.ring import Trace as Trace
from chord.messages.ring import Via as Via


def _concrete(base: type[Message]) -> tuple[type[Message], ...]:
    return tuple(sorted(base.__subclasses__(), key=lambda c: int(c.__struct_config__.tag or 0)))


REQUESTS: tuple[type[Request], ...] = _concrete(Request)  # type: ignore[assignment]
REPLIES: tuple[type[Reply], ...] = _concrete(Reply)  # type: ignore[assignment]
REQUEST_BY_TAG: dict[int, type[Request]] = {int(c.__struct_config__.tag): c for c in REQUESTS}  # type: ignore[arg-type]

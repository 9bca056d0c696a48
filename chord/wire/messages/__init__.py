"""Every message on the wire, its bounds, and the reply each request expects.

Messages are frozen structs, encoded as CBOR arrays `[tag, fields…]`. New fields go last and have defaults. The meaning
of a field never changes. A request names the type of its reply in `reply`; see `Request` for the other class variables.

The reply to a request `X` is `XReply`. Four replies have other names: `Done` and `Written` answer several requests, and
`Status` and `Trace` are values of the public API, too.

A request goes to a vnode, unless its docstring says that it goes to a node as a whole, or to either. Some docstrings
say so by *node* or *vnode or node* at their beginning.
"""

from __future__ import annotations

from chord.config import STAND_INS_MAX as STAND_INS_MAX
from chord.ids import ADDRESS_CHARS_MAX as ADDRESS_CHARS_MAX
from chord.ids import Address as Address
from chord.ids import Contact as Contact
from chord.ids import NodeState as NodeState
from chord.ids import PeerState as PeerState
from chord.ids import StreamName as StreamName
from chord.wire.messages.base import ACTORS_HELD_MAX as ACTORS_HELD_MAX
from chord.wire.messages.base import ACTORS_MAX as ACTORS_MAX
from chord.wire.messages.base import BATCH_BYTES_MAX as BATCH_BYTES_MAX
from chord.wire.messages.base import BATCH_ITEMS_MAX as BATCH_ITEMS_MAX
from chord.wire.messages.base import CONTEXT_BYTES_MAX as CONTEXT_BYTES_MAX
from chord.wire.messages.base import DIGEST_BYTES as DIGEST_BYTES
from chord.wire.messages.base import HEADS_MAX as HEADS_MAX
from chord.wire.messages.base import HOPS_MAX as HOPS_MAX
from chord.wire.messages.base import KEY_BYTES_MAX as KEY_BYTES_MAX
from chord.wire.messages.base import LIST_ENTRIES_MAX as LIST_ENTRIES_MAX
from chord.wire.messages.base import PAGE_RECORDS_MAX as PAGE_RECORDS_MAX
from chord.wire.messages.base import PURPOSES as PURPOSES
from chord.wire.messages.base import REPLACED_BYTES_MAX as REPLACED_BYTES_MAX
from chord.wire.messages.base import REPLICAS_MAX as REPLICAS_MAX
from chord.wire.messages.base import SIBLINGS_MAX as SIBLINGS_MAX
from chord.wire.messages.base import SUMS_MAX as SUMS_MAX
from chord.wire.messages.base import TEXT_CHARS_MAX as TEXT_CHARS_MAX
from chord.wire.messages.base import TTL_MS_MAX as TTL_MS_MAX
from chord.wire.messages.base import VALUE_BYTES_MAX as VALUE_BYTES_MAX
from chord.wire.messages.base import Contacts as Contacts
from chord.wire.messages.base import Context as Context
from chord.wire.messages.base import Count as Count
from chord.wire.messages.base import Digest as Digest
from chord.wire.messages.base import Done as Done
from chord.wire.messages.base import ErrorReply as ErrorReply
from chord.wire.messages.base import Hello as Hello
from chord.wire.messages.base import Identity as Identity
from chord.wire.messages.base import Key as Key
from chord.wire.messages.base import Message as Message
from chord.wire.messages.base import Mode as Mode
from chord.wire.messages.base import Purpose as Purpose
from chord.wire.messages.base import Reply as Reply
from chord.wire.messages.base import Request as Request
from chord.wire.messages.base import Route as Route
from chord.wire.messages.base import Text as Text
from chord.wire.messages.base import Value as Value
from chord.wire.messages.base import VnodeState as VnodeState
from chord.wire.messages.batches import GetMany as GetMany
from chord.wire.messages.batches import GetManyReply as GetManyReply
from chord.wire.messages.batches import Got as Got
from chord.wire.messages.batches import PutMany as PutMany
from chord.wire.messages.batches import PutManyReply as PutManyReply
from chord.wire.messages.batches import ReadCopies as ReadCopies
from chord.wire.messages.batches import ReadCopiesReply as ReadCopiesReply
from chord.wire.messages.batches import Wrote as Wrote
from chord.wire.messages.cuts import CutNote as CutNote
from chord.wire.messages.cuts import GetCutNotes as GetCutNotes
from chord.wire.messages.cuts import GetCutNotesReply as GetCutNotesReply
from chord.wire.messages.cuts import ScanCut as ScanCut
from chord.wire.messages.cuts import ScanCutReply as ScanCutReply
from chord.wire.messages.members import FEATURE_MEMBERS as FEATURE_MEMBERS
from chord.wire.messages.members import FINGERPRINT_BYTES as FINGERPRINT_BYTES
from chord.wire.messages.members import MEMBERS_MAX as MEMBERS_MAX
from chord.wire.messages.members import NEWS_MAX as NEWS_MAX
from chord.wire.messages.members import SLICE_BITS_MAX as SLICE_BITS_MAX
from chord.wire.messages.members import SUM_BYTES as SUM_BYTES
from chord.wire.messages.members import CompareMembers as CompareMembers
from chord.wire.messages.members import CompareMembersReply as CompareMembersReply
from chord.wire.messages.members import GetMembers as GetMembers
from chord.wire.messages.members import GetMembersReply as GetMembersReply
from chord.wire.messages.members import Gossip as Gossip
from chord.wire.messages.members import GossipReply as GossipReply
from chord.wire.messages.members import MemberEntry as MemberEntry
from chord.wire.messages.members import MemberState as MemberState
from chord.wire.messages.members import SliceFingerprints as SliceFingerprints
from chord.wire.messages.node import STATUS_PARTS as STATUS_PARTS
from chord.wire.messages.node import FingerRun as FingerRun
from chord.wire.messages.node import Forget as Forget
from chord.wire.messages.node import GetStatus as GetStatus
from chord.wire.messages.node import Leave as Leave
from chord.wire.messages.node import OwnedArc as OwnedArc
from chord.wire.messages.node import PeerInfo as PeerInfo
from chord.wire.messages.node import ReplicaState as ReplicaState
from chord.wire.messages.node import Status as Status
from chord.wire.messages.node import StatusPart as StatusPart
from chord.wire.messages.node import TransferInfo as TransferInfo
from chord.wire.messages.node import VnodeInfo as VnodeInfo
from chord.wire.messages.reaping import LOG_ENTRIES_MAX as LOG_ENTRIES_MAX
from chord.wire.messages.reaping import MAKERS_MAX as MAKERS_MAX
from chord.wire.messages.reaping import SLICES as SLICES
from chord.wire.messages.reaping import SLICES_ASKED_MAX as SLICES_ASKED_MAX
from chord.wire.messages.reaping import AreExpired as AreExpired
from chord.wire.messages.reaping import AreExpiredReply as AreExpiredReply
from chord.wire.messages.reaping import AskLog as AskLog
from chord.wire.messages.reaping import Claim as Claim
from chord.wire.messages.reaping import DeadActor as DeadActor
from chord.wire.messages.reaping import EntryRun as EntryRun
from chord.wire.messages.reaping import FetchLogs as FetchLogs
from chord.wire.messages.reaping import GetLogs as GetLogs
from chord.wire.messages.reaping import GetLogsReply as GetLogsReply
from chord.wire.messages.reaping import GetSeen as GetSeen
from chord.wire.messages.reaping import GetSeenReply as GetSeenReply
from chord.wire.messages.reaping import Holding as Holding
from chord.wire.messages.reaping import LogEntry as LogEntry
from chord.wire.messages.reaping import SliceLog as SliceLog
from chord.wire.messages.reaping import SliceSeen as SliceSeen
from chord.wire.messages.reaping import StoreLogs as StoreLogs
from chord.wire.messages.reaping import UpTo as UpTo
from chord.wire.messages.reaping import Vouch as Vouch
from chord.wire.messages.reaping import VouchReply as VouchReply
from chord.wire.messages.records import WRITES as WRITES
from chord.wire.messages.records import ActorClock as ActorClock
from chord.wire.messages.records import DecideQuarantine as DecideQuarantine
from chord.wire.messages.records import Get as Get
from chord.wire.messages.records import GetQuarantine as GetQuarantine
from chord.wire.messages.records import GetQuarantineReply as GetQuarantineReply
from chord.wire.messages.records import GetReply as GetReply
from chord.wire.messages.records import Merge as Merge
from chord.wire.messages.records import Put as Put
from chord.wire.messages.records import Quorum as Quorum
from chord.wire.messages.records import ReadDigest as ReadDigest
from chord.wire.messages.records import ReadDigestReply as ReadDigestReply
from chord.wire.messages.records import Record as Record
from chord.wire.messages.records import ReplicaLine as ReplicaLine
from chord.wire.messages.records import ReplicaLines as ReplicaLines
from chord.wire.messages.records import Scan as Scan
from chord.wire.messages.records import ScanOf as ScanOf
from chord.wire.messages.records import ScanReply as ScanReply
from chord.wire.messages.records import Version as Version
from chord.wire.messages.records import Written as Written
from chord.wire.messages.records import as_retry as as_retry
from chord.wire.messages.records import wire_bytes as wire_bytes
from chord.wire.messages.records import without_owner as without_owner
from chord.wire.messages.replicas import Abandon as Abandon
from chord.wire.messages.replicas import GetCopies as GetCopies
from chord.wire.messages.replicas import GetCopiesReply as GetCopiesReply
from chord.wire.messages.replicas import GetHeads as GetHeads
from chord.wire.messages.replicas import GetHeadsReply as GetHeadsReply
from chord.wire.messages.replicas import GetSums as GetSums
from chord.wire.messages.replicas import GetSumsReply as GetSumsReply
from chord.wire.messages.replicas import HandOver as HandOver
from chord.wire.messages.replicas import Head as Head
from chord.wire.messages.replicas import InSync as InSync
from chord.wire.messages.replicas import JoinArc as JoinArc
from chord.wire.messages.replicas import ReadCopy as ReadCopy
from chord.wire.messages.replicas import ReadCopyReply as ReadCopyReply
from chord.wire.messages.replicas import StoreCopies as StoreCopies
from chord.wire.messages.replicas import StoreCovering as StoreCovering
from chord.wire.messages.replicas import StoreCoveringReply as StoreCoveringReply
from chord.wire.messages.replicas import StorePage as StorePage
from chord.wire.messages.replicas import Switch as Switch
from chord.wire.messages.ring import Candidate as Candidate
from chord.wire.messages.ring import Confirm as Confirm
from chord.wire.messages.ring import ConfirmReply as ConfirmReply
from chord.wire.messages.ring import Departing as Departing
from chord.wire.messages.ring import FindNeighbours as FindNeighbours
from chord.wire.messages.ring import FindNeighboursReply as FindNeighboursReply
from chord.wire.messages.ring import FindNext as FindNext
from chord.wire.messages.ring import FindNextReply as FindNextReply
from chord.wire.messages.ring import Forward as Forward
from chord.wire.messages.ring import ForwardReply as ForwardReply
from chord.wire.messages.ring import GetRing as GetRing
from chord.wire.messages.ring import GetRingReply as GetRingReply
from chord.wire.messages.ring import GiveMarks as GiveMarks
from chord.wire.messages.ring import HopTrace as HopTrace
from chord.wire.messages.ring import Lookup as Lookup
from chord.wire.messages.ring import MarkedArc as MarkedArc
from chord.wire.messages.ring import Notify as Notify
from chord.wire.messages.ring import Offer as Offer
from chord.wire.messages.ring import Parting as Parting
from chord.wire.messages.ring import Pausing as Pausing
from chord.wire.messages.ring import Ping as Ping
from chord.wire.messages.ring import PingReply as PingReply
from chord.wire.messages.ring import PointersChanged as PointersChanged
from chord.wire.messages.ring import Retiring as Retiring
from chord.wire.messages.ring import Returned as Returned
from chord.wire.messages.ring import Trace as Trace
from chord.wire.messages.ring import UnreachableVnode as UnreachableVnode
from chord.wire.messages.ring import UnreachableVnodes as UnreachableVnodes
from chord.wire.messages.ring import Via as Via
from chord.wire.messages.watch import DENSITY_BINS_MAX as DENSITY_BINS_MAX
from chord.wire.messages.watch import HOT_KEYS_MAX as HOT_KEYS_MAX
from chord.wire.messages.watch import POLL_MS_MAX as POLL_MS_MAX
from chord.wire.messages.watch import SAMPLE_BINS as SAMPLE_BINS
from chord.wire.messages.watch import SAMPLE_S_MAX as SAMPLE_S_MAX
from chord.wire.messages.watch import Density as Density
from chord.wire.messages.watch import DensityReply as DensityReply
from chord.wire.messages.watch import Describe as Describe
from chord.wire.messages.watch import DescribeReply as DescribeReply
from chord.wire.messages.watch import EventInfo as EventInfo
from chord.wire.messages.watch import EventValue as EventValue
from chord.wire.messages.watch import GetEvents as GetEvents
from chord.wire.messages.watch import GetEventsReply as GetEventsReply
from chord.wire.messages.watch import GetMetrics as GetMetrics
from chord.wire.messages.watch import GetMetricsReply as GetMetricsReply
from chord.wire.messages.watch import HistogramInfo as HistogramInfo
from chord.wire.messages.watch import HotKey as HotKey
from chord.wire.messages.watch import MetricName as MetricName
from chord.wire.messages.watch import Sample as Sample
from chord.wire.messages.watch import SampleReply as SampleReply
from chord.wire.messages.watch import TrafficInfo as TrafficInfo
from chord.wire.messages.watch import WatchRequest as WatchRequest


def _concrete(*bases: type[Message]) -> tuple[type[Message], ...]:
    found = (c for base in bases for c in base.__subclasses__() if c not in bases)
    return tuple(sorted(found, key=lambda c: int(c.__struct_config__.tag or 0)))


REQUESTS: tuple[type[Request], ...] = _concrete(Request, WatchRequest)  # type: ignore[assignment]
REPLIES: tuple[type[Reply], ...] = _concrete(Reply)  # type: ignore[assignment]
REQUEST_BY_TAG: dict[int, type[Request]] = {int(c.__struct_config__.tag): c for c in REQUESTS}  # type: ignore[arg-type]

"""The status of a node, and the requests of its operator."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias, get_args

import msgspec
from msgspec import Meta

from chord.ids import Address, Contact, PeerState, Point
from chord.wire.messages.base import (
    LIST_ENTRIES_MAX,
    Contacts,
    Count,
    Finite,
    Identity,
    NodeName,
    Reply,
    Request,
    Text,
    VnodeState,
)


class OwnedArc(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An arc that a vnode owns, took over, gives away or has given away.

    Attributes:
        start, end: the arc.
        epoch: the epoch of the arc in which the vnode has this role.
        state: the role. "owned": it owns the arc. "taken_over": a part of the owned arc, from an unreachable vnode.
            "giving", "moved": a transfer is in progress or done.
        peer: "owned": the vnode at `start`. "giving" and "moved": the receiver. "taken_over": the unreachable former
            owner. None: unknown.
    """

    start: Point
    end: Point
    epoch: Count
    state: Literal["owned", "giving", "taken_over", "moved"]
    peer: Contact | None = None


class FingerRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run of fingers that point to the same vnode.

    Attributes:
        first, last: the numbers of the first and the last finger, both included.
        contact: the vnode.
    """

    first: Annotated[int, Meta(ge=0, le=160)]
    last: Annotated[int, Meta(ge=0, le=160)]
    contact: Contact


class VnodeInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of one vnode.

    Attributes:
        contact: the vnode.
        state: the stage of its membership in the ring.
        is_isolated: whether its last neighbours became unreachable, so that it does not know whether it is alone.
        predecessor: its predecessor; None: unknown.
        successors: its successor list.
        predecessors: the vnodes before it, the nearest first.
        arcs: the arc that it owns, followed by arcs that it took over, gives away or gave away.
        fingers: its finger table, as runs of equal fingers.
        keys: the number of records in its arc.
        rounds: the number of stabilize rounds that it has completed.
    """

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
    """The state of a peer node, as the failure detector sees it.

    Attributes:
        address: the address of the peer.
        state: alive, suspect, dead, left or paused. A paused peer announced that it serves nothing for a while; it
            keeps its place, because it has the only copy of its records.
        rtt_ms: the smoothed round-trip time in ms; None if none was measured.
        since_ms: how long the peer has been in this state, in ms.
        reason: why the peer is in this state, in words; "" if it is alive.
        misses: number of calls in a row that the peer did not answer.
        name: the name of the peer, from its last hello; "" if it is unknown.
    """

    address: Address
    state: PeerState
    rtt_ms: Finite | None
    since_ms: Count
    reason: Text = ""
    misses: Count = 0
    name: NodeName = ""


class TransferInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A transfer of an arc's records in progress.

    Attributes:
        kind: why the records move: a join, a leave, a repair between replicas, or a "surplus". Records of a surplus are
            misplaced: other nodes should hold them.
        arc_start, arc_end: the arc.
        peer: the receiver, or the partner of a repair. For a surplus, the owner of the records.
        done: the number of records that are dealt with so far.
        total: the number of records to deal with; None until both nodes have compared their records.
        bytes_sent: the bytes of the records that were moved so far; 0 for a surplus.
        since_ms: how long the transfer has been running, in ms.
    """

    kind: Literal["join", "leave", "repair", "surplus"]
    arc_start: Point
    arc_end: Point
    peer: Contact
    done: Count
    total: Count | None
    bytes_sent: Count
    since_ms: Count


class ReplicaState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of replication of a vnode's arc, or of a part of it.

    Attributes:
        arc_start, arc_end: the arc or part.
        members: the members of its replica set, in ring order.
        unreachable: the members that are down.
        pending: the members that are up and not in sync yet, so not known to hold every acknowledged write.
        missing: the unreachable nodes, members or not, without which this part cannot report a key as "not found".
            Empty if the other nodes suffice.
        is_uncertain: whether no key can be reported as "not found" yet, because too few of the members are in sync.
    """

    arc_start: Point
    arc_end: Point
    members: Contacts
    unreachable: Contacts
    pending: Contacts
    missing: Contacts = ()
    is_uncertain: bool = False


StatusPart: TypeAlias = Literal["vnodes", "fingers", "peers", "known", "counters", "timing", "transfers", "sets"]
"""A list in a status that a reader may leave out. "fingers" stands for those of all vnodes."""

STATUS_PARTS: tuple[StatusPart, ...] = get_args(StatusPart)


class Status(Reply, frozen=True, tag=176):
    """The state of a node.

    Attributes:
        name: the name of the node, for people.
        address: its advertised address.
        pid: the id of its process.
        version: its version of `chord`.
        preset: the preset of its periods and timeouts.
        ring: the ring id, sixteen random bytes; None until the node has joined.
        cluster: the name of the cluster. Rings of different clusters never mix.
        fingerprint: a digest of the ring constants. Nodes with different ones refuse each other.
        bits: the width of the circle.
        successors: r, the number of other nodes that a successor list names.
        replicas: N, the number of nodes that keep a copy of each record.
        incarnation: the incarnation of its store.
        state: the stage of the node, from "starting" to "stopped"; or "degraded" if it is ready and has `troubles`.
        uptime_ms: the time since the node started, in ms.
        has_data_dir: whether the node keeps its records on a disk.
        keys: number of records in its store.
        value_bytes: bytes of the values in its store.
        misplaced: number of records that this node has to bring to other nodes and then drops. Hints for nodes that are
            down are not counted.
        vnodes: the vnodes of the node.
        peers: the peers that it heard of most recently, in the order of their addresses.
        known: vnodes of other nodes that it knows: unreachable ones, fingers and list entries. A search for all nodes
            follows them, too.
        counters: totals since the start, as pairs of a name and a number, in ascending order of the names.
        timing: the periods and timeouts, as pairs of a name and seconds; see `Timing`.
        hints: the number of records that it keeps for unreachable nodes.
        under_replicated: number of keys in the node's arcs with a replica that is down or not in sync yet.
        sibling_keys: the number of records with more than one version.
        clock_skew_ms: the largest difference to the wall clock of a neighbour, in ms.
        transfers: transfers in progress.
        sets: the state of replication of each part of the node's arcs.
        damaged: number of damaged records in its store that have not been replaced.
        troubles: why the node does not serve all requests; empty if it does.
        quarantined: number of versions in quarantine in the node's arcs.
        wall_ms: the wall clock of the node as it answers, in ms since 1970.
        membership: whether the node keeps a membership list; "over" if the ring is too large for one.
        members: number of living nodes in that list, the node itself included.
        cut: the lists that had more entries than a message holds, 256. The status has only the first ones.
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
    known: Contacts
    counters: Annotated[tuple[tuple[Text, Count], ...], Meta(max_length=LIST_ENTRIES_MAX)]
    timing: Annotated[tuple[tuple[Text, Finite], ...], Meta(max_length=64)] = ()
    hints: Count = 0
    under_replicated: Count = 0
    sibling_keys: Count = 0
    clock_skew_ms: Count = 0
    transfers: Annotated[tuple[TransferInfo, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    sets: Annotated[tuple[ReplicaState, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    damaged: Count = 0
    troubles: Annotated[tuple[Text, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    quarantined: Count = 0
    wall_ms: Count = 0
    cut: Annotated[tuple[StatusPart, ...], Meta(max_length=len(STATUS_PARTS))] = ()
    membership: Literal["off", "on", "over"] = "off"
    members: Count = 0


class GetStatus(Request, frozen=True, tag=64):
    """Request to a node for its status."""

    reply = Status
    purpose = "watch"


class Forget(Request, frozen=True, tag=66):
    """Order of an operator to a node to forget another node for good.

    Attributes:
        address: the last address of the node to forget.
        living: the vnodes of another node that has this address now, and is not forgotten.
    """

    address: Address
    living: Annotated[tuple[Point, ...], Meta(max_length=LIST_ENTRIES_MAX)] = ()
    purpose = "upkeep"


class Leave(Request, frozen=True, tag=65):
    """Order to a node to hand its arcs and records over, leave the ring and exit.

    The node answers at once, before it has done so.
    """

    purpose = "upkeep"

"""The status that a node reports to others."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

import chord
from chord.ids import Arc, Circle, Point
from chord.node.services import VnodeServices
from chord.replication.handoff import Handoff
from chord.ring.context import NodeContext
from chord.wire.codec import codec_for
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    STATUS_PARTS,
    PeerInfo,
    ReplicaState,
    Status,
    StatusPart,
    TransferInfo,
    VnodeInfo,
)


class NodeFacts(NamedTuple):
    """The part of the status that only the `Node` itself knows.

    `started_at` is on Trio's clock. The numbers of bytes are totals since then.
    """

    name: str
    state: str
    ring_id: bytes | None
    started_at: float
    has_data_dir: bool
    bytes_sent: int
    bytes_received: int


def node_status(
    me: NodeFacts,
    host: NodeContext,
    parts: dict[Point, VnodeServices],
    handoff: Handoff,
    wanted: Collection[StatusPart] = STATUS_PARTS,
) -> Status:
    """Return a node's status, the answer to `GetStatus`.

    Lists that exceed a message are cut, and `Status.cut` names them. Lists that are not wanted are empty.
    """
    now = host.peers.now()
    constants = host.constants
    troubles = host.health.reasons()
    states = [state for p in parts.values() for state in p.repair.states()]
    vnodes = [_vnode(p, host) for p in parts.values()]
    if "fingers" not in wanted:
        vnodes = [msgspec.structs.replace(vnode, fingers=()) for vnode in vnodes]
    whole: dict[StatusPart, Sequence[Any]] = {
        "vnodes": vnodes,
        "peers": [*_peers(host, now)],
        "known": host.contacts(),
        "counters": sorted(_counters(me, host).items()),
        "transfers": [*_transfers(parts, handoff)],
        "sets": states,
    }
    lists = {name: tuple(entries[:LIST_ENTRIES_MAX]) for name, entries in whole.items() if name in wanted}
    timing = ((field, float(getattr(host.timing, field))) for field in host.timing.__struct_fields__)
    return Status(
        name=me.name,
        address=host.address,
        pid=os.getpid(),
        version=chord.__version__,
        preset=host.config.preset,
        ring=me.ring_id,
        cluster=constants.cluster,
        fingerprint=constants.fingerprint,
        bits=constants.bits,
        successors=constants.successors,
        replicas=constants.replicas,
        incarnation=host.storage.incarnation,
        state="degraded" if troubles and me.state == "ready" else me.state,
        uptime_ms=int(1000 * (now - me.started_at)),
        has_data_dir=me.has_data_dir,
        keys=len(host.storage),
        value_bytes=host.storage.value_bytes,
        misplaced=handoff.on_their_way(),
        vnodes=lists.get("vnodes", ()),
        peers=lists.get("peers", ()),
        known=lists.get("known", ()),
        counters=lists.get("counters", ()),
        timing=tuple(timing) if "timing" in wanted else (),
        hints=handoff.hints,
        under_replicated=_under_replicated(states, host),
        sibling_keys=host.storage.sibling_keys,
        clock_skew_ms=host.skew_ms,
        transfers=lists.get("transfers", ()),
        sets=lists.get("sets", ()),
        damaged=len(host.storage.damaged(Arc(Point(0), Point(0)))),
        troubles=tuple(why[:1024] for why in troubles)[:LIST_ENTRIES_MAX],
        quarantined=sum(_quarantined(p, host) for p in parts.values()),
        wall_ms=max(0, host.wall_now_ms()),
        membership="off" if host.members is None else "over" if host.members.is_given_up else "on",
        members=0 if host.members is None else host.members.alive,
        cut=tuple(name for name, entries in lists.items() if len(entries) < len(whole[name])),
    )


def version_of(status: Status) -> bytes:
    """Return a digest of the fields that concern a reader when they change; see `DescribeReply.version`."""
    replace = msgspec.structs.replace
    lasting = replace(
        status,
        uptime_ms=0,
        wall_ms=0,
        vnodes=tuple(replace(vnode, rounds=0) for vnode in status.vnodes),
        peers=tuple(replace(peer, rtt_ms=None, since_ms=0) for peer in status.peers),
        transfers=tuple(replace(transfer, since_ms=0) for transfer in status.transfers),
    )
    return hashlib.blake2b(codec_for(Circle(status.bits)).encode_reply(0, lasting), digest_size=8).digest()


def _peers(host: NodeContext, now: float) -> Iterator[PeerInfo]:
    names = host.hello_policy.names
    for peer in host.peers.failure_detector.peers(now):
        yield msgspec.structs.replace(peer, name=names.get(peer.address, ""))


def _counters(me: NodeFacts, host: NodeContext) -> dict[str, int]:
    always = ("keys_sent", "keys_received", "keys_brought_home", "gets", "puts", "forwarded")
    return {
        **dict.fromkeys(always, 0),
        **host.counters,
        **host.storage.counters,
        "calls_made": host.peers.calls_made,
        "bytes_sent": me.bytes_sent,
        "bytes_received": me.bytes_received,
    }


def _transfers(parts: dict[Point, VnodeServices], handoff: Handoff) -> Iterator[TransferInfo]:
    for p in parts.values():
        yield from p.transfers.transfers()
        if p.repair.transfer is not None:
            yield p.repair.transfer
    if handoff.transfer is not None:
        yield handoff.transfer


def _under_replicated(states: Iterable[ReplicaState], host: NodeContext) -> int:
    """Return the number of keys in the node's arcs with a replica down or not in sync."""
    if host.constants.replicas == 1:
        return 0
    return sum(
        host.storage.count(Arc(state.arc_start, state.arc_end))
        for state in states
        if state.unreachable or state.pending
    )


def _quarantined(parts: VnodeServices, host: NodeContext) -> int:
    """Return the number of versions in quarantine in a vnode's arc."""
    arc = parts.vnode.ownership.arc
    return 0 if arc is None else host.storage.count_quarantined(arc)


def _vnode(parts: VnodeServices, host: NodeContext) -> VnodeInfo:
    arc = parts.vnode.ownership.arc
    return parts.vnode.status(0 if arc is None else host.storage.count(arc))

"""The status that a node reports to others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import chord
from chord.ids import Arc, Point
from chord.node.services import VnodeServices
from chord.replication.handoff import Handoff
from chord.ring.context import NodeContext
from chord.wire.messages import LIST_ENTRIES_MAX, Status, TransferInfo, VnodeInfo


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


def node_status(me: NodeFacts, host: NodeContext, parts: dict[Point, VnodeServices], handoff: Handoff) -> Status:
    """Return a node's status, the answer to `GetStatus`.

    Lists that exceed a message are cut.
    """
    now = host.peers.now()
    constants = host.constants
    counters = {
        **host.counters,
        **host.storage.counters,
        "calls_made": host.peers.calls_made,
        "bytes_sent": me.bytes_sent,
        "bytes_received": me.bytes_received,
    }
    troubles = host.health.reasons()
    for name in ("keys_sent", "keys_received", "keys_brought_home", "gets", "puts", "forwarded"):
        counters.setdefault(name, 0)
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
        vnodes=tuple(_vnode(p, host) for p in parts.values())[:LIST_ENTRIES_MAX],
        peers=tuple(host.peers.failure_detector.peers(now))[:LIST_ENTRIES_MAX],
        known=host.contacts()[:LIST_ENTRIES_MAX],
        counters=tuple(sorted(counters.items()))[:LIST_ENTRIES_MAX],
        timing=tuple((field, float(getattr(host.timing, field))) for field in host.timing.__struct_fields__),
        hints=handoff.hints,
        under_replicated=sum(_under_replicated(p, host) for p in parts.values()),
        sibling_keys=host.storage.sibling_keys,
        clock_skew_ms=host.skew_ms,
        transfers=tuple(_transfers(parts, handoff))[:LIST_ENTRIES_MAX],
        sets=tuple(state for p in parts.values() for state in p.repair.states())[:LIST_ENTRIES_MAX],
        damaged=len(host.storage.damaged(Arc(Point(0), Point(0)))),
        troubles=tuple(why[:1024] for why in troubles)[:LIST_ENTRIES_MAX],
        quarantined=sum(_quarantined(p, host) for p in parts.values()),
        wall_ms=max(0, host.wall_now_ms()),
    )


def _transfers(parts: dict[Point, VnodeServices], handoff: Handoff) -> Iterator[TransferInfo]:
    for p in parts.values():
        yield from p.transfers.transfers()
        if p.repair.transfer is not None:
            yield p.repair.transfer
    if handoff.transfer is not None:
        yield handoff.transfer


def _under_replicated(parts: VnodeServices, host: NodeContext) -> int:
    """Return the number of keys in a vnode's arc with a replica down or not in sync."""
    if host.constants.replicas == 1:
        return 0
    return sum(
        host.storage.count(Arc(state.arc_start, state.arc_end))
        for state in parts.repair.states()
        if state.unreachable or state.pending
    )


def _quarantined(parts: VnodeServices, host: NodeContext) -> int:
    """Return the number of versions in quarantine in a vnode's arc."""
    arc = parts.vnode.ownership.arc
    return 0 if arc is None else host.storage.count_quarantined(arc)


def _vnode(parts: VnodeServices, host: NodeContext) -> VnodeInfo:
    arc = parts.vnode.ownership.arc
    return parts.vnode.status(0 if arc is None else host.storage.count(arc))

"""Statuses and traces of rings that never ran, for tests of views and checks."""

from __future__ import annotations

import hashlib

from chord.ids import Circle, Point
from chord.verify.invariants import Member, exact_successors
from chord.wire.messages import (
    Candidate,
    Contact,
    FingerRun,
    HopTrace,
    OwnedArc,
    PeerInfo,
    Status,
    Trace,
    Via,
    VnodeInfo,
)

WORKED_IDS = (10, 42, 80, 120, 160, 200, 230)
RING_ID = b"R" * 16

__all__ = ["WORKED_IDS", "Candidate", "contact", "statuses", "worked_trace"]


def contact(point: int, ports: dict[int, int] | None = None) -> Contact:
    """Return the vnode at a point; ports count up from 9000 in the order of the worked example."""
    port = ports[point] if ports is not None else 9000 + WORKED_IDS.index(point)
    return Contact(Point(point), f"127.0.0.1:{port}")


def statuses(
    ids: tuple[int, ...] = WORKED_IDS, *, bits: int = 8, successors: int = 8, addresses: dict[int, str] | None = None,
    keys: int = 3,
) -> list[Status]:
    """Return the statuses of the nodes of an Ideal ring, one vnode each."""
    circle = Circle(bits)
    order = sorted(ids)
    contacts = {
        p: Contact(Point(p), addresses[p] if addresses else f"127.0.0.1:{9000 + i}") for i, p in enumerate(order)
    }
    ring = {p: Member(contacts[p].address, None, ()) for p in order}
    nodes = []
    for i, p in enumerate(order):
        before = order[i - 1]
        lists = tuple(contacts[s] for s in exact_successors(ring, order, i, successors))
        runs: list[FingerRun] = []
        for k in range(bits):
            start = circle.point(p + (1 << k))
            target = contacts[next((q for q in order if q >= start), order[0])]
            if runs and runs[-1].contact == target:
                runs[-1] = FingerRun(runs[-1].first, k, target)
            else:
                runs.append(FingerRun(k, k, target))
        vnode = VnodeInfo(
            contact=contacts[p], state="member", is_isolated=False, predecessor=contacts[before], successors=lists,
            predecessors=(contacts[before],), arcs=(OwnedArc(Point(before), Point(p), 1, "owned", contacts[before]),),
            fingers=tuple(runs), keys=keys, rounds=1000,
        )
        nodes.append(Status(
            name=f"n{i}", address=contacts[p].address, pid=4000 + i, version="0.1.0", preset="local", ring=RING_ID,
            cluster="chord", fingerprint="f" * 16, bits=bits, successors=successors, replicas=1,
            incarnation=hashlib.blake2b(str(p).encode(), digest_size=8).digest(), state="ready", uptime_ms=1234,
            has_data_dir=False, keys=keys, value_bytes=10 * keys, misplaced=0, vnodes=(vnode,),
            peers=tuple(PeerInfo(c.address, "alive", 0.4, 0) for c in contacts.values() if c.id != p),
            known=tuple(c for c in contacts.values() if c.id != p), counters=(("calls_made", 7), ("keys_sent", 2)),
        ))
    return nodes


def worked_trace(addresses: dict[int, str] | None = None, *, dead: bool = False) -> Trace:
    """Return the lookup of 190 from 80: 80, 160, 200. With `dead`, 160 is dead and 120 is the detour."""

    def at(point: int) -> Contact:
        return Contact(Point(point), addresses[point]) if addresses else contact(point)

    hops = [HopTrace(at(80), Via("start"), 110 / 256, None, 0.0)]
    if dead:
        hops.append(HopTrace(at(160), Via("finger", 6), 30 / 256, None, 500.4, "no answer in 500 ms; suspect", True))
        hops.append(HopTrace(at(120), Via("finger", 5), 70 / 256, 0.38, 500.9))
    else:
        hops.append(HopTrace(at(160), Via("finger", 6), 30 / 256, 0.41, 0.5))
    return Trace(
        key=Point(190), start=at(80), owner=at(200), owner_via=Via("successor", 1 if dead else 0), owner_rtt_ms=0.36,
        replicas=(at(200),), hops=tuple(hops), mode="iterative", route="classic", path_length=1,
        timeouts=int(dead), calls=3, duration_ms=1.3, nodes_estimate=7, arc_start=Point(160), epoch=3,
    )

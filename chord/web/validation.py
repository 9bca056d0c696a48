"""What replies of nodes must satisfy beyond their types, before the dashboard computes with them.

Each function returns the fault of a reply in words, or "" if the reply is valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chord.ids import BITS_MAX, BITS_MIN, Point
from chord.observe.metrics import DURATION_BOUNDS_S, HOP_BOUNDS
from chord.wire.messages import PURPOSES, SAMPLE_BINS, EventInfo, GetMetricsReply, SampleReply, Status

NEEDED: Final = {
    "PeerChanged": ("address", "state", "reason"),
    "NodeStateChanged": ("state",),
    "PredecessorAdopted": ("new_id",),
}
"""The fields that an event needs as text if it changes the state of the ring."""


def status_fault(status: Status, bits: int | None) -> str:
    """Return why a node's status is invalid, in words; "" if it is valid.

    Args:
        status: the status.
        bits: the `--bits` of the ring that other nodes report; None if no other node answers.
    """
    if not BITS_MIN <= status.bits <= BITS_MAX:
        return f"bits is {status.bits}; {BITS_MIN} to {BITS_MAX} was expected"
    if bits is not None and status.bits != bits:
        return f"bits is {status.bits}; {bits} was expected, as other nodes report it"
    outside = next((point for point in _points(status) if point >> status.bits), None)
    return "" if outside is None else f"the point {outside} is not on a circle of {status.bits} bits"


def event_fault(event: EventInfo, bits: int | None) -> str:
    """Return why an event is invalid, in words; "" if it is valid.

    Args:
        event: the event, as a node sent it.
        bits: the `--bits` of the ring that other nodes report; None if it is not known.
    """
    fields = dict(event.fields)
    for name in NEEDED.get(event.kind, ()):
        value = fields.get(name)
        if not isinstance(value, str):
            return f"{event.kind} has no {name}"
        if name == "new_id" and not (value.isascii() and value.isdecimal() and len(value) < 50):
            return f"{event.kind} has the {name} {value[:20]!r}; a point was expected"
        if name == "new_id" and bits is not None and int(value) >> bits:
            return f"{event.kind} has the {name} {value}, which is not on a circle of {bits} bits"
    return ""


def metrics_fault(reply: GetMetricsReply) -> str:
    """Return why a node's reply with metrics is invalid, in words; "" if it is valid."""
    for one in reply.histograms:
        buckets = len(HOP_BOUNDS if one.name == "lookup_hops" else DURATION_BOUNDS_S) + 1
        if len(one.counts) != buckets:
            return f"{one.name} has {len(one.counts)} buckets; {buckets} were expected"
    if sorted(one.purpose for one in reply.traffic) != sorted(PURPOSES):
        return "the traffic does not have every class of requests once"
    return ""


def sample_fault(reply: SampleReply) -> str:
    """Return why a node's reply with request counts is invalid, in words; "" if it is valid."""
    if len(reply.bins) != SAMPLE_BINS:
        return f"the sample has {len(reply.bins)} bins; {SAMPLE_BINS} were expected"
    return ""


def _points(status: Status) -> Iterator[Point]:
    """Yield every point of a status that a page draws."""
    for vnode in status.vnodes:
        yield vnode.contact.id
        if vnode.predecessor is not None:
            yield vnode.predecessor.id
        yield from (contact.id for contact in vnode.successors)
        yield from (run.contact.id for run in vnode.fingers)
        for arc in vnode.arcs:
            yield from (arc.start, arc.end)
    for transfer in status.transfers:
        yield from (transfer.arc_start, transfer.arc_end)
    for part in status.sets:
        yield from (part.arc_start, part.arc_end)
        yield from (contact.id for contact in (*part.unreachable, *part.pending))

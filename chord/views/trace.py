"""Lookups, and what each replica did in an operation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from chord.ids import Circle, Contact
from chord.views.common import Json, key_json, vnode_json
from chord.wire.messages import HopTrace, ReplicaLine, Trace


def hop_json(circle: Circle, index: int, hop: HopTrace, names: Mapping[str, str]) -> Json:
    """Return one hop of a lookup; `index` counts all hops, dead ones too, from 0."""
    return {
        **vnode_json(circle, hop.contact, names),
        "hop": index,
        "via": {"kind": hop.via.kind, "index": hop.via.index},
        "remaining": round(hop.remaining, 6),
        "rtt_ms": None if hop.rtt_ms is None else round(hop.rtt_ms, 3),
        "outcome": hop.outcome,
    }


def lookup_json(circle: Circle, trace: Trace, names: Mapping[str, str], key: bytes | None) -> Json:
    """Return a finished lookup; `key` is None if a point was looked up.

    A replica counts as unreachable unless `answers` returns True.
    """
    return {
        **(key_json(key) if key is not None else {"key": None}),
        "id": str(int(trace.key)),
        "id_hex": circle.hex(trace.key),
        "from": vnode_json(circle, trace.start, names),
        "mode": trace.mode,
        "route": trace.route,
        "owner": vnode_json(circle, trace.owner, names),
        "replicas": [vnode_json(circle, c, names) for c in trace.replicas],
        "holders": [vnode_json(circle, c, names) for c in trace.holders],
        "unreachable": [c.address for c in trace.replicas if not answers(trace, c, names)],
        "hops": [hop_json(circle, i, hop, names) for i, hop in enumerate(trace.hops)],
        "path_length": trace.path_length,
        "timeouts": trace.timeouts,
        "duration_ms": round(trace.duration_ms, 3),
    }


def lookups_json(lookups: Sequence[Json]) -> Json:
    """Return the lookups of one key from several nodes."""
    return {"lookups": lookups}


def answers(trace: Trace, replica: Contact, names: Mapping[str, str]) -> bool:
    """Return whether a replica answers, both to the owner and to this command.

    `names` has the names of the nodes that answered this command, by address.
    """
    return replica not in trace.unreachable and replica.address in names


def replicas_json(
    circle: Circle, owner: Contact, lines: Iterable[ReplicaLine], duration_ms: float, names: Mapping[str, str]
) -> Json:
    """Return the trace of a read or a write: coordinator, replicas and duration.

    Args:
        circle: the circle of the ring.
        owner: the coordinator of the operation.
        lines: what each replica did.
        duration_ms: the time that the command waited, in ms.
        names: the names of nodes by address.
    """
    return {
        "coordinator": vnode_json(circle, owner, names),
        "replicas": [
            {
                **vnode_json(circle, line.contact, names),
                "outcome": line.outcome,
                "counted": line.is_counted,
                "rtt_ms": None if line.rtt_ms is None else round(line.rtt_ms, 3),
                "version": line.version.hex() or None,
            }
            for line in lines
        ],
        "duration_ms": round(duration_ms, 3),
    }

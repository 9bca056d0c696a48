"""Lookups, and what each replica did in an operation."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from chord.ids import Circle, Contact
from chord.views.common import Json, key_json, vnode_json
from chord.wire.messages import HopTrace, ReplicaLine, Trace


def hop_json(circle: Circle, index: int, hop: HopTrace, names: Mapping[str, str]) -> Json:
    """Return one hop of a lookup as JSON.

    Args:
        circle: the circle of the ring.
        index: the number of the hop, from 0. Hops at which no node answered count, too.
        hop: the hop.
        names: the names of nodes by address. A node that it lacks appears with its address.
    """
    return {
        **vnode_json(circle, hop.contact, names),
        "hop": index,
        "via": {"kind": hop.via.kind, "index": hop.via.index},
        "remaining": round(hop.remaining, 6),
        "rtt_ms": None if hop.rtt_ms is None else round(hop.rtt_ms, 3),
        "outcome": hop.outcome,
    }


def lookup_json(
    circle: Circle, trace: Trace, names: Mapping[str, str], key: bytes | None, silent: Collection[str] = ()
) -> Json:
    """Return a finished lookup as JSON.

    Args:
        circle: the circle of the ring.
        trace: the lookup.
        names: the names of nodes, by address. A replica at any other node is listed as unreachable.
        key: the key that was looked up; None: a point.
        silent: the addresses in `names` of the nodes that did not answer this command.
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
        "unreachable": [c.address for c in trace.replicas if not answers(trace, c, names, silent)],
        "hops": [hop_json(circle, i, hop, names) for i, hop in enumerate(trace.hops)],
        "path_length": trace.path_length,
        "timeouts": trace.timeouts,
        "duration_ms": round(trace.duration_ms, 3),
    }


def lookups_json(lookups: Sequence[Json]) -> Json:
    """Return the lookups of one key from several nodes as JSON; each is the result of `lookup_json`."""
    return {"lookups": lookups}


def answers(trace: Trace, replica: Contact, names: Mapping[str, str], silent: Collection[str] = ()) -> bool:
    """Return whether a replica answers, both to the key's owner and to this command.

    Args:
        trace: the lookup, with the replicas that the owner finds unreachable.
        replica: a vnode of the replica set.
        names: the names of nodes, by address.
        silent: the addresses in `names` of the nodes that did not answer this command.
    """
    return replica not in trace.unreachable and replica.address in names and replica.address not in silent


def replicas_json(
    circle: Circle, owner: Contact, lines: Iterable[ReplicaLine], duration_ms: float, names: Mapping[str, str]
) -> Json:
    """Return the outcome of a read or a write at each replica as JSON, with the coordinator and the duration.

    Args:
        circle: the circle of the ring.
        owner: the coordinator of the operation.
        lines: the outcome at each replica.
        duration_ms: how long the command waited for the operation, in ms.
        names: the names of nodes by address. A node that it lacks appears with its address.
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

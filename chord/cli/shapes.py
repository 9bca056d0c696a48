"""The JSON shapes of the command line, with one schema file each in `schemas/`.

Every id is a decimal string, with its hexadecimal form beside it under `…_hex`. A vnode is always {"id", "id_hex",
"node", "address"}.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from chord.client.results import Found, Stored
from chord.errors import ChordError
from chord.ids import Circle
from chord.wire.messages import Contact, HopTrace, ReplicaLine, Status, Trace, VnodeInfo

Json = dict[str, Any]


def names_of(nodes: Iterable[Status]) -> dict[str, str]:
    """Return the name of each node, by its address."""
    return {node.address: node.name for node in nodes}


def name_of(contact: Contact, names: Mapping[str, str]) -> str:
    """Return the name of a vnode's node, or its address if the name is unknown."""
    return names.get(contact.address, contact.address)


def vnode_json(circle: Circle, contact: Contact, names: Mapping[str, str]) -> Json:
    """Return a vnode."""
    return {
        "id": str(int(contact.id)),
        "id_hex": circle.hex(contact.id),
        "node": name_of(contact, names),
        "address": contact.address,
    }


def key_json(key: bytes) -> Json:
    """Return a key as text, or as base64 if it is not UTF-8."""
    return _text_or_b64("key", key)


def pair_json(key: bytes, value: bytes) -> Json:
    """Return a line of `load` and `scan`: a key and a value."""
    return {**_text_or_b64("key", key), **_text_or_b64("value", value)}


def value_json(value: bytes) -> Json:
    """Return a value as base64, and as text if it is UTF-8."""
    return {"b64": base64.b64encode(value).decode(), "text": _text(value)}


def context_json(context: bytes) -> str:
    """Return a context as base64 text, which `--context` takes."""
    return base64.b64encode(context).decode()


def get_json(key: bytes, found: Found | None, trace: Json | None = None, *, quarantined: int = 0) -> Json:
    """Return the result of a `get`; without `found`, the key has no value."""
    return {
        **key_json(key),
        "found": found is not None,
        "values": [value_json(v) for v in found.values] if found else [],
        "context": context_json(found.context) if found else None,
        "r": found.r if found else None,
        "r_needed": found.r_needed if found else None,
        "quarantined": quarantined,
        "left": found.left if found else 0,
        "trace": trace,
    }


def put_json(stored: Stored, owner: Json, trace: Json | None) -> Json:
    """Return the JSON object for an acknowledged write."""
    return {
        **key_json(stored.key),
        "owner": owner,
        "context": context_json(stored.context),
        "w": stored.w,
        "w_needed": stored.w_needed,
        "quorum": stored.quorum,
        "under_replicated": stored.is_under_replicated,
        "sloppy": stored.is_sloppy,
        "beside": stored.beside,
        "quarantined": stored.quarantined,
        "trace": trace,
    }


def replicas_json(
    circle: Circle, owner: Contact, lines: Iterable[ReplicaLine], duration_ms: float, names: Mapping[str, str]
) -> Json:
    """Return the trace of a read or a write: coordinator, replicas and duration."""
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


def error_json(error: ChordError) -> Json:
    """Return an error that is part of a larger answer."""
    return {"code": error.word, "message": error.message}


def hop_json(circle: Circle, index: int, hop: HopTrace, names: Mapping[str, str]) -> Json:
    """Return one hop of a lookup."""
    return {
        **vnode_json(circle, hop.contact, names),
        "hop": index,
        "via": {"kind": hop.via.kind, "index": hop.via.index},
        "remaining": round(hop.remaining, 6),
        "rtt_ms": None if hop.rtt_ms is None else round(hop.rtt_ms, 3),
        "outcome": hop.outcome,
    }


def lookup_json(circle: Circle, trace: Trace, names: Mapping[str, str], key: bytes | None) -> Json:
    """Return a finished lookup; `key` is null if a point was looked up."""
    return {
        **(key_json(key) if key is not None else {"key": None}),
        "id": str(int(trace.key)),
        "id_hex": circle.hex(trace.key),
        "from": vnode_json(circle, trace.start, names),
        "mode": trace.mode,
        "route": trace.route,
        "owner": vnode_json(circle, trace.owner, names),
        "replicas": [vnode_json(circle, c, names) for c in trace.replicas],
        "unreachable": [c.address for c in trace.replicas if not answers(trace, c, names)],
        "hops": [hop_json(circle, i, hop, names) for i, hop in enumerate(trace.hops)],
        "path_length": trace.path_length,
        "timeouts": trace.timeouts,
        "duration_ms": round(trace.duration_ms, 3),
    }


def answers(trace: Trace, replica: Contact, names: Mapping[str, str]) -> bool:
    """Return whether a replica answers, both to the owner and to this command."""
    return replica not in trace.unreachable and replica.address in names


def owned_share(circle: Circle, vnode: VnodeInfo) -> float:
    """Return the share of the circle, 0 to 1, that a vnode owns."""
    arcs = [a for a in vnode.arcs if a.state == "owned"]  # arcs in other states are parts of it
    return float(sum(circle.fraction(circle.length(a.start, a.end)) for a in arcs))


def ring_json(circle: Circle, nodes: Iterable[Status]) -> Json:
    """Return every vnode with its neighbours, in ring order."""
    known = list(nodes)
    names = names_of(known)
    vnodes = sorted((v for node in known for v in node.vnodes), key=lambda v: v.contact.id)
    return {
        "bits": circle.bits,
        "vnodes": [
            {
                **vnode_json(circle, v.contact, names),
                "predecessor": None if v.predecessor is None else str(int(v.predecessor.id)),
                "successors": [str(int(c.id)) for c in v.successors],
                "owned": round(owned_share(circle, v), 6),
            }
            for v in vnodes
        ],
    }


def fingers_json(circle: Circle, vnode: VnodeInfo, names: Mapping[str, str]) -> Json:
    """Return a finger table, with one object for each known entry."""
    fingers = []
    for run in vnode.fingers:
        for i in range(run.first, run.last + 1):
            start = circle.point(vnode.contact.id + (1 << i))
            fingers.append({
                **vnode_json(circle, run.contact, names),
                "i": i, "start": str(int(start)), "start_hex": circle.hex(start),
            })
    return {"vnode": vnode_json(circle, vnode.contact, names), "fingers": sorted(fingers, key=lambda f: int(f["i"]))}


def node_json(circle: Circle, node: Status, names: Mapping[str, str]) -> Json:
    """Return the status of a node."""
    return {
        "node": node.name,
        "address": node.address,
        "pid": node.pid,
        "state": node.state,
        "troubles": list(node.troubles),
        "version": node.version,
        "preset": node.preset,
        "uptime_s": round(node.uptime_ms / 1000, 3),
        "has_data_dir": node.has_data_dir,
        "keys": node.keys,
        "value_bytes": node.value_bytes,
        "misplaced": node.misplaced,
        "hints": node.hints,
        "under_replicated": node.under_replicated,
        "sibling_keys": node.sibling_keys,
        "damaged": node.damaged,
        "quarantined": node.quarantined,
        "clock_skew_s": node.clock_skew_ms / 1000,
        "owned": round(sum(owned_share(circle, v) for v in node.vnodes), 6),
        "isolated": any(v.is_isolated for v in node.vnodes),
        "vnodes": [vnode_json(circle, v.contact, names) for v in node.vnodes],
        "counters": dict(node.counters),
    }


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _text_or_b64(name: str, data: bytes) -> Json:
    text = _text(data)
    return {f"{name}_b64": base64.b64encode(data).decode()} if text is None else {name: text}

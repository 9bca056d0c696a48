"""Nodes: the status of all, ready lines, and results of commands on one node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from chord.errors import ChordError
from chord.ids import Circle
from chord.views.common import Json, arc_json, error_json, names_of, vnode_json
from chord.views.ring import count_keys, is_small, owned_share
from chord.wire.messages import PeerInfo, ReplicaState, Status


class ConfigSetting(NamedTuple):
    """One value of a node's configuration.

    Attributes:
        key: its key, such as "name" or "ring.bits".
        value: the value, as JSON has it.
        origin: "default", "preset", "file", "environment" or "option".
        source: the name of the preset, the file, the variable or the option that sets the value; None for a default.
    """

    key: str
    value: Any
    origin: str
    source: str | None


def config_json(settings: Iterable[ConfigSetting]) -> Json:
    """Return a node's configuration as JSON, every value with its origin.

    An id is a decimal string, because many JSON readers keep only 53 bits of a number.
    """
    return {"settings": [
        {**one._asdict(), "value": str(one.value) if one.key == "id" and one.value is not None else one.value}
        for one in settings
    ]}  # fmt: skip


def node_json(circle: Circle, node: Status, names: Mapping[str, str]) -> Json:
    """Return the status of a node as JSON.

    Args:
        circle: the circle of the ring.
        node: the status, as the node reports it.
        names: the names of nodes by address. A node that it lacks appears with its address.
    """
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
        "peers": [_peer_json(peer) for peer in node.peers],
        "sets": [set_json(circle, state, names) for state in node.sets],
        "membership": node.membership,
        "members": node.members,
        "cut": list(node.cut),
    }


def status_json(circle: Circle, nodes: list[Status], errors: Mapping[str, ChordError]) -> Json:
    """Return the status of every node as JSON, with sums for the ring.

    Args:
        circle: the circle of the ring.
        nodes: the status of each node that answered, at least one. The first one gives the constants of the ring.
        errors: for each known node that did not answer, its address and the error.
    """
    first, names = nodes[0], names_of(nodes)
    return {
        "ring": None if first.ring is None else first.ring.hex(),
        "cluster": first.cluster,
        "bits": first.bits,
        "successors": first.successors,
        "replicas": first.replicas,
        "small": is_small(nodes),
        "keys": count_keys(nodes),
        "hints": sum(node.hints for node in nodes),
        "under_replicated": sum(node.under_replicated for node in nodes),
        "sibling_keys": sum(node.sibling_keys for node in nodes),
        "damaged": sum(node.damaged for node in nodes),
        "quarantined": sum(node.quarantined for node in nodes),
        "nodes": [node_json(circle, node, names) for node in nodes],
        "unreachable": _errors(errors),
    }


def ready_json(name: str, address: str, pid: int, origin: str) -> Json:
    """Return the JSON line that a node process prints when the node is ready.

    Args:
        name, address, pid: the name, address and process id of the node.
        origin: "created", "joined" or "resumed": how the node entered the ring.
    """
    return {"ready": True, "name": name, "address": address, "pid": pid, "origin": origin}


def up_json(seconds: float, processes: Iterable[tuple[str, str, int]], dashboard: str | None = None) -> Json:
    """Return the JSON line that `chord up` prints when its ring is ready.

    Args:
        seconds: the time from the start of the command until a check found the ring Ideal, in seconds.
        processes: the name, address and process id of each node.
        dashboard: the URL of the dashboard; None without one.
    """
    nodes = [{"name": name, "address": address, "pid": pid} for name, address, pid in processes]
    return {"ready": True, "seconds": round(seconds, 3), "nodes": nodes, "dashboard": dashboard}


def dashboard_json(url: str) -> Json:
    """Return the JSON line that a dashboard prints when it is ready; `url` is the URL of its page."""
    return {"ready": True, "url": url}


def leave_json(node: Status, seconds: float) -> Json:
    """Return the result of a completed leave as JSON.

    Args:
        node: the status of the node before it left.
        seconds: the duration of the leave, in seconds.
    """
    return {"node": node.name, "address": node.address, "left": True, "seconds": round(seconds, 3)}


def signal_json(name: str, address: str, pid: int, signal: int) -> Json:
    """Return the result of sending a signal to a node's process as JSON.

    Args:
        name: the name of the node.
        address: its address.
        pid: its process id.
        signal: the number of the signal.
    """
    return {"node": name, "address": address, "pid": pid, "signal": signal}


def removal_json(address: str, reported: Iterable[str], errors: Mapping[str, ChordError]) -> Json:
    """Return the result of `chord forget` as JSON.

    Args:
        address: the forgotten node.
        reported: the addresses of the nodes that confirmed it.
        errors: the errors of all other nodes that were asked, by address.
    """
    return {"address": address, "reported": list(reported), "failed": _errors(errors)}


def bundle_json(file: str, size: int, parts: Iterable[str], failed: Iterable[str]) -> Json:
    """Return the result of writing a debug bundle, an archive with reports of the nodes, as JSON.

    Args:
        file: the path of the archive.
        size: its size in bytes.
        parts: the names of the files in it.
        failed: the names of those files that have only an error.
    """
    return {"file": file, "bytes": size, "parts": list(parts), "failed": list(failed)}


def version_json(version: str, protocol: int, python: str, *, is_compiled: bool) -> Json:
    """Return the versions of chord, of its wire protocol and of Python as JSON.

    `is_compiled` says whether modules of chord are compiled to machine code.
    """
    return {"version": version, "protocol": protocol, "python": python, "compiled": is_compiled}


def _peer_json(peer: PeerInfo) -> Json:
    return {
        "node": peer.name or peer.address,
        "address": peer.address,
        "state": peer.state,
        "since_s": round(peer.since_ms / 1000, 3),
        "reason": peer.reason or None,
        "misses": peer.misses,
        "rtt_ms": None if peer.rtt_ms is None else round(peer.rtt_ms, 3),
    }


def set_json(circle: Circle, state: ReplicaState, names: Mapping[str, str]) -> Json:
    """Return the replication of a part of a node's arcs as JSON.

    `names` has the names of nodes by address. A node that it lacks appears with its address.
    """
    lists = {
        "members": state.members,
        "unreachable": state.unreachable,
        "pending": state.pending,
        "missing": state.missing,
    }
    return {
        "arc": arc_json(circle, state.arc_start, state.arc_end),
        **{name: [vnode_json(circle, contact, names) for contact in contacts] for name, contacts in lists.items()},
        "uncertain": state.is_uncertain,
    }


def _errors(errors: Mapping[str, ChordError]) -> list[Json]:
    return [{"address": address, "error": error_json(error)} for address, error in errors.items()]

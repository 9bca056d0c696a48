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
    """One value of a node's configuration."""

    key: str  # its key, such as name or ring.bits
    value: Any  # the value, as JSON has it
    origin: str  # default, preset, file, environment or option
    source: str | None  # the preset, the file, the variable or the option that has the value; None: the default


def config_json(settings: Iterable[ConfigSetting]) -> Json:
    """Return a node's configuration as JSON, every value with its origin.

    An id is a decimal string, because many JSON readers keep only 53 bits of a number.
    """
    return {"settings": [
        {**one._asdict(), "value": str(one.value) if one.key == "id" and one.value is not None else one.value}
        for one in settings
    ]}  # fmt: skip


def node_json(circle: Circle, node: Status, names: Mapping[str, str]) -> Json:
    """Return the status of a node as JSON; `names` has the names of nodes by address."""
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
        "sets": [_set_json(circle, state, names) for state in node.sets],
        "membership": node.membership,
        "members": node.members,
        "cut": list(node.cut),
    }


def status_json(circle: Circle, nodes: list[Status], errors: Mapping[str, ChordError]) -> Json:
    """Return the status of the ring and of every node.

    Args:
        circle: the circle of the ring.
        nodes: the nodes that answered, at least one. The first one gives the constants of the ring.
        errors: the error of every other known node, by its address.
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
    """Return the ready line of a node; `origin` is created, joined or resumed."""
    return {"ready": True, "name": name, "address": address, "pid": pid, "origin": origin}


def up_json(seconds: float, processes: Iterable[tuple[str, str, int]], dashboard: str | None = None) -> Json:
    """Return the ready line of a ring of new processes.

    Args:
        seconds: the time from the start of the command until the ring was proven.
        processes: the name, address and process id of each node.
        dashboard: the address of the page of the dashboard; None without one.
    """
    nodes = [{"name": name, "address": address, "pid": pid} for name, address, pid in processes]
    return {"ready": True, "seconds": round(seconds, 3), "nodes": nodes, "dashboard": dashboard}


def dashboard_json(url: str) -> Json:
    """Return the ready line of a dashboard; `url` is the address of its page."""
    return {"ready": True, "url": url}


def leave_json(node: Status, seconds: float) -> Json:
    """Return a completed leave and its duration; `node` is its status beforehand."""
    return {"node": node.name, "address": node.address, "left": True, "seconds": round(seconds, 3)}


def signal_json(node: Status, signal: int) -> Json:
    """Return a signal that a node's process got."""
    return {"node": node.name, "address": node.address, "pid": node.pid, "signal": signal}


def removal_json(address: str, reported: Iterable[str], errors: Mapping[str, ChordError]) -> Json:
    """Return the result of `forget`.

    Args:
        address: the node that is given up.
        reported: the addresses of the nodes that have given it up.
        errors: the errors of all other nodes that were asked, by address.
    """
    return {"address": address, "reported": list(reported), "failed": _errors(errors)}


def bundle_json(file: str, size: int, parts: Iterable[str], failed: Iterable[str]) -> Json:
    """Return the result of writing a debug bundle.

    Args:
        file: the path of the archive.
        size: its number of bytes.
        parts: the names of its parts.
        failed: the names of the parts that have only an error.
    """
    return {"file": file, "bytes": size, "parts": list(parts), "failed": list(failed)}


def version_json(version: str, protocol: int, python: str, *, is_compiled: bool) -> Json:
    """Return the versions of the package, of its protocol and of Python, and whether the package is compiled."""
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


def _set_json(circle: Circle, state: ReplicaState, names: Mapping[str, str]) -> Json:
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

"""The ring as its nodes report it: vnodes, fingers and members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chord.ids import Circle
from chord.views.common import Json, arc_json, names_of, names_of_peers, vnode_json
from chord.wire.messages import Status, VnodeInfo


def owned_share(circle: Circle, vnode: VnodeInfo) -> float:
    """Return the share of the circle, 0 to 1, that a vnode owns."""
    arcs = [a for a in vnode.arcs if a.state == "owned"]  # arcs in other states are parts of it
    return float(sum(circle.fraction(circle.length(a.start, a.end)) for a in arcs))


def is_small(nodes: list[Status]) -> bool:
    """Return whether the ring has at most r + 1 nodes.

    Each node of such a ring knows all others, because successor lists span r other nodes.
    """
    return bool(nodes) and len(nodes) <= nodes[0].successors + 1


def count_keys(nodes: Iterable[Status]) -> int:
    """Return the number of keys in the arcs of these nodes. Copies of keys that others own do not count."""
    return sum(vnode.keys for node in nodes for vnode in node.vnodes)


def state_of(node: Status) -> str:
    """Return the state of a node, such as "ready", or "isolated" if any of its vnodes is isolated."""
    return "isolated" if any(v.is_isolated for v in node.vnodes) else node.state


def ring_json(circle: Circle, nodes: Iterable[Status]) -> Json:
    """Return the vnodes of all given nodes as JSON, with their neighbours and arcs, in ascending order of the ids."""
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
                "arcs": [
                    {
                        **arc_json(circle, arc.start, arc.end),
                        "epoch": arc.epoch,
                        "state": arc.state,
                        "peer": None if arc.peer is None else vnode_json(circle, arc.peer, names),
                    }
                    for arc in v.arcs
                ],
            }
            for v in vnodes
        ],
    }


def fingers_json(circle: Circle, vnode: VnodeInfo, names: Mapping[str, str]) -> Json:
    """Return the finger table of a vnode as JSON.

    Equal fingers get one object each. Fingers that the vnode does not know are left out. `names` has the names of nodes
    by address.
    """
    fingers = []
    for run in vnode.fingers:
        for i in range(run.first, run.last + 1):
            start = circle.point(vnode.contact.id + (1 << i))
            fingers.append({
                **vnode_json(circle, run.contact, names),
                "i": i, "start": str(int(start)), "start_hex": circle.hex(start),
            })
    return {"vnode": vnode_json(circle, vnode.contact, names), "fingers": sorted(fingers, key=lambda f: int(f["i"]))}


def members_json(circle: Circle, nodes: Iterable[Status], unreachable: Iterable[str], entry: Status) -> Json:
    """Return the nodes of the ring as JSON, and the known nodes that do not answer.

    Args:
        circle: the circle of the ring.
        nodes: the status of each node that answers.
        unreachable: the addresses of the known nodes that do not answer.
        entry: the status of the entry node. The states of unreachable nodes and all round-trip times are from its
            peers.
    """
    known = list(nodes)
    names, remembered = names_of(known), names_of_peers(known)
    opinions = {peer.address: peer for peer in entry.peers}
    members: list[Json] = []
    for node in known:
        peer = opinions.get(node.address)
        members.append({
            "node": node.name, "address": node.address, "state": state_of(node),
            "rtt_ms": None if peer is None or peer.rtt_ms is None else round(peer.rtt_ms, 3),
            "vnodes": [vnode_json(circle, v.contact, names) for v in node.vnodes],
        })
    for address in unreachable:
        peer = opinions.get(address)
        state = "unreachable" if peer is None or peer.state == "alive" else peer.state
        members.append({
            "node": remembered.get(address, address), "address": address, "state": state, "rtt_ms": None, "vnodes": []
        })
    return {"seen_from": entry.address, "members": members}

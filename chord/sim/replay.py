"""What happened in a life, as text: one line of fixed width per change of state, and one JSON object per event."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from chord import events
from chord.events import Event
from chord.messages import Contact
from chord.node import Node
from chord.sim.cluster import Cluster
from chord.sim.watch import POINTLESS, QUIET, name_of
from chord.vnode import Vnode

ARCS = (events.ArcGained, events.ArcLost)
LIST_WIDTH = 27

HEADING = f"{'time':>9}  {'node':<6} {'event':<24} {'predecessor':<11} {'list':<{LIST_WIDTH}} {'share':>7} {'keys':>5}"


def line(cluster: Cluster, event: Event) -> str | None:
    """Return the line of an event that changed a node's state, None for any other.

    It shows the node as it is after the event: its predecessor, its list, its share of the circle, its records.
    """
    if isinstance(event, events.NodeStateChanged):
        return _line(event.address.partition(":")[0], f"is {event.state}", None)
    is_change = not isinstance(event, (*QUIET, *POINTLESS)) or isinstance(event, ARCS)
    if not is_change or not isinstance(event, events.VnodeEvent):
        return None
    node, vnode = _find(cluster, event)
    return _line("?" if node is None else node.name, name_of(event), vnode)


def entry(cluster: Cluster, event: Event) -> dict[str, Any]:
    """Return any event as plain values for JSON: when, which node, what, and its fields. Ids are decimal strings."""
    node = _find(cluster, event)[0] if isinstance(event, events.VnodeEvent) else None
    fields = msgspec.to_builtins(event, enc_hook=str, builtin_types=())
    return {
        "t": round(trio.current_time(), 9),
        "node": node.name if node is not None else None,
        "event": type(event).__name__,
        **_decimal(fields),
    }


def _line(name: str, what: str, vnode: Vnode | None) -> str:
    predecessor, names, share, keys = "", "", "", ""
    if vnode is not None:
        ring, arc = vnode.ring, vnode.ownership.arc
        predecessor = "-" if ring.predecessor is None else _host(ring.predecessor)
        names = " ".join(_host(contact) for contact in ring.successors)
        if arc is not None:
            circle = vnode.host.circle
            share = f"{100 * circle.fraction(circle.distance(arc.start, arc.end) or circle.size):.2f} %"
            keys = str(vnode.host.storage.count(arc))
    if len(names) > LIST_WIDTH:
        names = names[: LIST_WIDTH - 1] + "…"
    return (
        f"{trio.current_time():9.4f}  {name:<6} {what:<24} {predecessor:<11} {names:<{LIST_WIDTH}} {share:>7} {keys:>5}"
    ).rstrip()


def _find(cluster: Cluster, event: events.VnodeEvent) -> tuple[Node | None, Vnode | None]:
    for node in cluster.nodes:
        vnode = node.host.vnodes.get(event.vnode)
        if vnode is not None:
            return node, vnode
    return None, None


def _host(contact: Contact) -> str:
    return contact.address.partition(":")[0]


def _decimal(value: Any) -> Any:
    """Return plain values with every number too large for other JSON readers as a decimal string."""
    if isinstance(value, dict):
        return {key: _decimal(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_decimal(inner) for inner in value]
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1 << 53:
        return str(value)
    return value

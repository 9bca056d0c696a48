"""A run as text: a line per change of state, and a JSON object per event."""

from __future__ import annotations

from collections.abc import Callable

import trio

from chord import events
from chord.events import Emitted
from chord.node import Node
from chord.ring.vnode import Vnode
from chord.sim.cluster import Cluster
from chord.sim.observer import POINTLESS, QUIET, name_of
from chord.views.common import Json
from chord.views.experiments import death_json, event_json

ARCS = (events.ArcGained, events.ArcLost)


class Replay:
    """Reports a run while it happens. Give it to `Run` as `on_event`.

    Args:
        log: callback for every event and every death of a node, as JSON.
        show: callback for a line per event that changed a node's state. The columns have fixed widths and are those of
            `HEADING`. They show the node after the event: predecessor, list, share of the circle and records.
    """

    def __init__(self, log: Callable[[Json], object], show: Callable[[str], object]) -> None:
        self._log = log
        self._show = show
        self._living: list[Node] = []

    def __call__(self, cluster: Cluster, emitted: Emitted) -> None:
        """Report an event, and before it each node that died since the last event."""
        if cluster.nodes != self._living:
            for dead in self._living:
                if dead not in cluster.nodes and dead.state not in ("left", "stopped"):
                    self._log(death_json(trio.current_time(), dead.name, dead.address))
                    self._show(_line(dead, "is dead", None))
            self._living = list(cluster.nodes)
        node, vnode = _whose(cluster, emitted)
        event, name = emitted.event, _host(emitted.node) if node is None else node.name
        self._log(event_json(trio.current_time(), name or None, event))
        if isinstance(event, events.NodeStateChanged):
            self._show(_line(node, f"is {event.state}", vnode))
        elif isinstance(event, ARCS) or not isinstance(event, (*QUIET, *POINTLESS)):
            self._show(_line(node, name_of(event), vnode))


def _line(node: Node | None, what: str, vnode: Vnode | None) -> str:
    shown = ("-",) * 4 if vnode is None else _pointers(vnode)
    return _row(f"{trio.current_time():.4f}", "-" if node is None else node.name, what, *shown)


def _row(time: str, node: str, what: str, predecessor: str, successors: str, share: str, keys: str) -> str:
    return (
        f"{time:>9}  {_cut(node, 6)} {_cut(what, 24)} {_cut(predecessor, 11)} {_cut(successors, 27)}"
        f" {share:>8} {keys:>5}"
    )


def _cut(text: str, width: int) -> str:
    return f"{text:<{width}}" if len(text) <= width else f"{text[: width - 1]}…"


HEADING = _row("time", "node", "event", "predecessor", "list", "share", "keys")
"""Heading of the columns of a line."""


def _pointers(vnode: Vnode) -> tuple[str, str, str, str]:
    ring, arc, circle = vnode.ring, vnode.ownership.arc, vnode.host.circle
    predecessor = "-" if ring.predecessor is None else _host(ring.predecessor.address)
    successors = " ".join(_host(contact.address) for contact in ring.successors) or "-"
    if arc is None:
        return predecessor, successors, "-", "-"
    share = circle.fraction(circle.length(arc.start, arc.end))
    return predecessor, successors, f"{100 * share:.2f} %", str(vnode.host.storage.count(arc))


def _whose(cluster: Cluster, emitted: Emitted) -> tuple[Node | None, Vnode | None]:
    """Return the living node that emitted an event, and the vnode that the event is about.

    Each is None if absent. The vnode of a change of state is the first of the node.
    """
    event = emitted.event
    for node in cluster.nodes:
        if node.address == emitted.node:
            vnodes = node._host.vnodes
            if isinstance(event, events.VnodeEvent):
                return node, vnodes.get(event.vnode)
            is_state = isinstance(event, events.NodeStateChanged)
            return node, next(iter(vnodes.values()), None) if is_state else None
    return None, None


def _host(address: str) -> str:
    return address.partition(":")[0]

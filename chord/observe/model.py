"""The state of a ring as a page draws it, and the changes between two states.

A state consists of JSON objects: one for each node, by address, and one for each vnode, by id. A change replaces whole
fields of these objects. Live rings, recordings and simulations use the same states and changes.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from chord.wire.messages import EventInfo, Status, StatusPart, TransferInfo, VnodeInfo

Fields: TypeAlias = dict[str, Any]
"""The fields of a node or a vnode. Points are decimal strings, because many JSON readers keep only 53 bits."""

PARTS: Final[tuple[StatusPart, ...]] = ("vnodes", "fingers", "peers", "known", "transfers", "sets")
"""The parts of a status that a model needs, and those that lead to further nodes."""

PRIVATE_FIELDS: Final = (("RecordUnmerged", "why"), ("HandlerFailed", "traceback"))
"""The fields of events that may name a key or a value. A recording has neither."""

_ABSENT: Final = object()


CLOCK_STEP_MS: Final = 2000
"""A node began at the time that it reported first, unless a later report differs by more, in ms."""


class RingShape(NamedTuple):
    """The constants of a ring.

    Attributes:
        bits: the width of the circle, `--bits`.
        successors: r, the number of other nodes that a successor list names.
        replicas: N, the number of copies of each record.
    """

    bits: int
    successors: int
    replicas: int

    @property
    def quorum(self) -> int:
        """W, the number of copies that a write waits for by default: a majority."""
        return self.replicas // 2 + 1


class RingChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The difference between two states of a ring. A keyframe is the difference from an empty state.

    Attributes:
        nodes: the fields of nodes that are new or have new values, by address.
        vnodes: the fields of vnodes that are new or have new values, by id in decimal.
        gone: the ids of vnodes and the addresses of nodes that the later state lacks.
    """

    nodes: dict[str, Fields] = {}
    vnodes: dict[str, Fields] = {}
    gone: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The number of nodes and vnodes that are new, changed or gone."""
        return len(self.nodes) + len(self.vnodes) + len(self.gone)


class RingModel:
    """The state of a ring: the JSON fields of every known node and vnode. The methods update it.

    A method replaces the fields of a node or vnode and never changes them in place, so a keyframe may share them.

    Attributes:
        nodes: the fields of each node, by address.
        vnodes: the fields of each vnode, by id in decimal.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Fields] = {}
        self.vnodes: dict[str, Fields] = {}

    def keyframe(self) -> RingChange:
        """Return the whole state, as the difference from an empty state."""
        return RingChange(dict(self.nodes), dict(self.vnodes))

    def apply(self, change: RingChange) -> None:
        """Update the state by a change."""
        for name in change.gone:
            self.nodes.pop(name, None)
            self.vnodes.pop(name, None)
        for address, fields in change.nodes.items():
            self.nodes[address] = {**self.nodes.get(address, {}), **fields}
        for point, fields in change.vnodes.items():
            self.vnodes[point] = {**self.vnodes.get(point, {}), **fields}

    def describe(self, status: Status) -> RingChange:
        """Update the state by the status of a node, and return what changed.

        The status must have the parts in `PARTS`.
        """
        address = status.address
        vnodes = {_id(vnode.contact.id): _vnode(vnode) for vnode in status.vnodes}
        before = self.nodes.get(address, {}).get("vnodes", ())
        gone = [p for p in before if p not in vnodes and self.vnodes.get(p, {}).get("node") == address]
        return self._carried_on(RingChange(
            _difference(self.nodes, {address: _node(status, list(vnodes), self.nodes.get(address, {}))}),
            _difference(self.vnodes, vnodes),
            tuple(gone),
        ))  # fmt: skip

    def lose(self, address: str, state: str) -> RingChange:
        """Update the state of a node that no longer reports, and return what changed.

        The fields of its vnodes stay as they were. An unknown node changes nothing.

        Args:
            address: the node.
            state: its new state, such as "unreachable".
        """
        if address not in self.nodes:
            return RingChange()
        return self._carried_on(RingChange(_difference(self.nodes, {address: {"state": state}})))

    def remove(self, address: str) -> RingChange:
        """Remove a node and its vnodes from the state, and return what changed. An unknown node changes nothing."""
        if address not in self.nodes:
            return RingChange()
        vnodes = [point for point in self.nodes[address]["vnodes"] if self.vnodes.get(point, {}).get("node") == address]
        return self._carried_on(RingChange(gone=(*vnodes, address)))

    def on_event(self, event: EventInfo) -> RingChange:
        """Update the state by an event of a node, and return what changed.

        An event can change the state of its node, the node's verdict on a peer, and a vnode's predecessor. Other events
        change nothing.
        """
        fields = dict(event.fields)
        node, vnode = self.nodes.get(event.node), None if event.vnode is None else _id(event.vnode)
        if event.kind == "PredecessorAdopted" and vnode in self.vnodes:
            adopted: Fields = {"predecessor": fields["new_id"]}
            return self._carried_on(RingChange(vnodes=_difference(self.vnodes, {vnode: adopted})))
        if node is None:
            return RingChange()
        if event.kind == "NodeStateChanged":
            return self.lose(event.node, str(fields["state"]))
        if event.kind != "PeerChanged":
            return RingChange()
        suspects = {peer: verdict for peer, verdict in node["suspects"].items() if peer != fields["address"]}
        if fields["state"] != "alive":
            since_ms = event.wall_ms
            suspects[fields["address"]] = {"state": fields["state"], "reason": fields["reason"], "since_ms": since_ms}
        known: Fields = {"suspects": dict(sorted(suspects.items()))}
        return self._carried_on(RingChange(_difference(self.nodes, {event.node: known})))

    def _carried_on(self, change: RingChange) -> RingChange:
        self.apply(change)
        return change


def event_fields(event: EventInfo) -> Fields:
    """Return an event as the JSON object that a recording's line has, without times.

    Fields that may quote a key or a value are left out.
    """
    shape: Fields = {"seq": event.seq, "node": event.node, "kind": event.kind}
    if event.vnode is not None:
        shape["vnode"] = _id(event.vnode)
    return {**shape, "fields": {k: v for k, v in event.fields if (event.kind, k) not in PRIVATE_FIELDS}}


def _difference(old: dict[str, Fields], new: dict[str, Fields]) -> dict[str, Fields]:
    found = {}
    for name, fields in new.items():
        known = old.get(name, {})
        changed = {field: value for field, value in fields.items() if known.get(field, _ABSENT) != value}
        if changed:
            found[name] = changed
    return found


def _node(status: Status, vnodes: list[str], before: Fields) -> Fields:
    began_ms = max(0, status.wall_ms - status.uptime_ms)
    known_ms = before.get("began_ms")
    return {
        "name": status.name,
        "state": status.state,
        "version": status.version,
        "preset": status.preset,
        "keys": status.keys,
        "value_bytes": status.value_bytes,
        "hints": status.hints,
        "under_replicated": status.under_replicated,
        "sibling_keys": status.sibling_keys,
        "misplaced": status.misplaced,
        "damaged": status.damaged,
        "quarantined": status.quarantined,
        "clock_skew_s": round(status.clock_skew_ms / 1000, 1),  # coarse, so that noise is no change
        "troubles": list(status.troubles),
        "vnodes": vnodes,
        "began_ms": began_ms if known_ms is None or abs(began_ms - known_ms) > CLOCK_STEP_MS else known_ms,
        "suspects": _suspects(status, before.get("suspects", {})),
        "transfers": [_transfer(transfer) for transfer in status.transfers],
        "incomplete": [
            {
                "start": _id(part.arc_start),
                "end": _id(part.arc_end),
                "unreachable": [_id(member.id) for member in part.unreachable],
                "pending": [_id(member.id) for member in part.pending],
            }
            for part in status.sets
            if part.unreachable or part.pending
        ],
        "cut": list(status.cut),
    }


def _suspects(status: Status, before: Fields) -> Fields:
    """Return the verdicts of a node on peers. The time of a verdict stays the same, although each report rounds it."""
    found = {}
    for peer in status.peers:
        if peer.state != "alive":
            known = before.get(peer.address, {})
            since_ms = max(0, status.wall_ms - peer.since_ms)
            if known.get("state") == peer.state:
                since_ms = known["since_ms"]
            found[peer.address] = {"state": peer.state, "reason": peer.reason, "since_ms": since_ms}
    return found


def _transfer(transfer: TransferInfo) -> Fields:
    return {
        "kind": transfer.kind,
        "start": _id(transfer.arc_start),
        "end": _id(transfer.arc_end),
        "peer": transfer.peer.address,
        "done": transfer.done,
        "total": transfer.total,
        "bytes_sent": transfer.bytes_sent,
    }


def _vnode(vnode: VnodeInfo) -> Fields:
    return {
        "node": vnode.contact.address,
        "state": vnode.state,
        "isolated": vnode.is_isolated,
        "predecessor": None if vnode.predecessor is None else _id(vnode.predecessor.id),
        "successors": [_id(contact.id) for contact in vnode.successors],
        "arcs": [
            {
                "start": _id(arc.start),
                "end": _id(arc.end),
                "epoch": arc.epoch,
                "state": arc.state,
                "peer": None if arc.peer is None else _id(arc.peer.id),
            }
            for arc in vnode.arcs
        ],
        "fingers": [[run.first, run.last, _id(run.contact.id)] for run in vnode.fingers],
        "keys": vnode.keys,
    }


def _id(point: int) -> str:
    return str(int(point))

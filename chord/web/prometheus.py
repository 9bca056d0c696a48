"""The metrics of a node for Prometheus.

Each scrape reads the counters of the node, so a node without scrapes pays nothing. All label values come from
closed sets: no key, peer, address or id is among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, get_args

from chord.ids import NodeState, PeerState
from chord.node import Node
from chord.node.probe import NodeMeasures, measure
from chord.observe.metrics import HOP_BOUNDS, Histogram, Meter, Meters
from chord.web.exposition import Family, counter, gauge, histogram
from chord.wire.messages import (
    PURPOSES,
    Get,
    GetMany,
    Lookup,
    Merge,
    Mode,
    Purpose,
    Put,
    PutMany,
    Request,
    Route,
    Scan,
    Status,
)

NODE_STATES: Final[tuple[str, ...]] = (*get_args(NodeState), "degraded")
PEER_STATES: Final[tuple[PeerState, ...]] = get_args(PeerState)
TRANSFER_KINDS: Final = ("join", "leave", "repair", "surplus")

OPERATIONS: Final[dict[type[Request], str]] = {
    Get: "get", Put: "put", GetMany: "get_many", PutMany: "put_many", Scan: "scan", Lookup: "lookup", Merge: "merge",
}  # fmt: skip
"""The label of each operation of a client. Other requests, except those of watchers, count as "other"."""

RECORDS_MOVED: Final = {
    "handed_over": "keys_sent",
    "received": "keys_received",
    "repair_pulled": "repair_keys_pulled",
    "repair_pushed": "repair_keys_pushed",
    "brought_home": "keys_brought_home",
}
"""By label, the counters of records that moved between nodes."""

COMPARISONS: Final = {
    "equal": "comparisons_equal",
    "repaired": "comparisons_repaired",
    "failed": "comparisons_failed",
}
"""By label, the counters of comparisons of an arc with a replica."""


def node_metrics(node: Node) -> Iterator[Family]:
    """Yield all Prometheus metrics of a node. It need not run yet."""
    measures = measure(node)
    yield from _state(measures)
    yield from _operations(measures.meters)
    yield from _lookups(measures)
    yield from _calls(measures.meters)
    yield from _ring(measures)
    yield from _records(measures.status)
    yield histogram("store_commit_seconds", "Duration of a transaction of the store.", {(): measures.commits})
    lag = "Delay with which the event loop began periodic steps."
    yield histogram("loop_lag_seconds", lag, {(): measures.loop_lag})
    skew_s = measures.status.clock_skew_ms / 1000
    yield gauge("clock_skew_seconds", "Largest recent difference to the wall clock of a neighbour.", skew_s)
    failures = {(): measures.handler_failures}
    yield counter("handler_failures", "Handlers of requests that raised an unexpected exception: bugs.", failures)


def _state(node: NodeMeasures) -> Iterator[Family]:
    status = node.status
    yield gauge("build_info", "Version of the program; the value is 1.", {(status.version,): 1}, ("version",))
    states = {(state,): int(state == status.state) for state in NODE_STATES}
    yield gauge("node_state", "1 for the state of the node, 0 for all others.", states, ("state",))
    yield gauge("vnodes", "Virtual nodes of this node.", node.vnodes)
    yield gauge("owned_ratio", "Share of the circle that this node owns, 0 to 1.", node.owned)
    yield gauge("uptime_seconds", "Time since the node began to take calls.", status.uptime_ms / 1000)
    yield gauge("store_records", "Records in the store.", status.keys)
    yield gauge("store_bytes", "Bytes of the values in the store.", status.value_bytes)
    yield gauge("sibling_records", "Records with concurrent values.", status.sibling_keys)
    yield gauge("hints", "Records that are kept for other nodes.", status.hints)
    short = "Records in the node's arcs with a replica that is down or not in sync."
    yield gauge("under_replicated_records", short, status.under_replicated)
    yield gauge("misplaced_records", "Records that this node has to bring to other nodes.", status.misplaced)


def _operations(meters: Meters) -> Iterator[Family]:
    served = {(op,): Histogram() for op in (*OPERATIONS.values(), "other")}
    for request, meter in meters.items():
        if request.purpose != "watch":
            served[_operation(request),].add(meter.served)
    ended: dict[tuple[str, ...], float] = {(*op, "ok"): sum(took.counts) for op, took in served.items()}
    for (request, word), count in meters.failed.items():
        if request.purpose != "watch":
            label = _operation(request), word
            ended[label] = ended.get(label, 0) + count
    text = "Requests of clients that this node answered; the outcome is ok, or the code of an error."
    yield counter("operations", text, ended, ("op", "outcome"))
    yield histogram("operation_duration_seconds", "Time that a request of a client took here.", served, ("op",))


def _operation(request: type[Request]) -> str:
    return OPERATIONS.get(request, "other")


def _lookups(node: NodeMeasures) -> Iterator[Family]:
    ended: dict[tuple[str, ...], float] = {(m, r, "ok"): 0 for m in get_args(Mode) for r in get_args(Route)}
    for label, count in node.lookups.items():
        ended[label] = count
    text = "Lookups and forwarded requests that ended."
    yield counter("lookups", text, ended, ("mode", "route", "outcome"))
    hops = {(route,): node.hops.get(route, Histogram(HOP_BOUNDS)) for route in get_args(Route)}
    yield histogram("lookup_hops", "Path length of a lookup.", hops, ("route",))
    timeouts = _count(node.status, "lookup_timeouts")
    yield counter("lookup_timeouts", "Calls of lookups that got no reply.", {(): timeouts})


def _calls(meters: Meters) -> Iterator[Family]:
    outcomes: dict[tuple[str, ...], float] = {}
    latency: dict[tuple[str, ...], Histogram] = {}
    for purpose in PURPOSES:
        latency[purpose,] = took = Histogram()
        for meter in _of_class(meters, purpose):
            took.add(meter.latency)
        outcomes[purpose, "ok"] = sum(took.counts)
    for (request, how), count in meters.unanswered.items():
        label = request.purpose, how
        outcomes[label] = outcomes.get(label, 0) + count
    yield counter("rpc_requests", "Calls of this node to other nodes that ended.", outcomes, ("class", "outcome"))
    text = "Time that this node waited for the reply of another node."
    yield histogram("rpc_duration_seconds", text, latency, ("class",))
    traffic = {part.purpose: part for part in meters.traffic()}
    received = {(purpose,): part.calls_received for purpose, part in traffic.items()}
    yield counter("rpc_received", "Calls that this node received.", received, ("class",))
    moved: dict[tuple[str, ...], float] = {}
    for purpose, part in traffic.items():
        moved[purpose, "sent"], moved[purpose, "received"] = part.bytes_sent, part.bytes_received
    text = "Bytes of the frames of requests and replies, without errors."
    yield counter("rpc_bytes", text, moved, ("class", "direction"))


def _of_class(meters: Meters, purpose: Purpose) -> Iterator[Meter]:
    return (meter for request, meter in meters.items() if request.purpose == purpose)


def _ring(node: NodeMeasures) -> Iterator[Family]:
    peers = {(state,): node.peers.get(state, 0) for state in PEER_STATES}
    yield gauge("peers", "Peers in each state, as this node sees them.", peers, ("state",))
    transitions = {(state,): node.transitions.get(state, 0) for state in PEER_STATES}
    yield counter("peer_transitions", "Changes of a peer's state, by the new state.", transitions, ("to",))
    yield counter("protocol_steps", "Runs of periodic steps.", node.steps, ("step", "outcome"))
    yield gauge("successor_list_length", "Entries of the shortest successor list.", node.successors)
    yield gauge("finger_nodes", "Other nodes in the finger tables.", node.finger_nodes)
    yield counter("split_found", "Signs of a second ring.", {(): _count(node.status, "SplitFound")})
    yield gauge("isolated", "Vnodes of this node without any living neighbour.", node.isolated)


def _records(status: Status) -> Iterator[Family]:
    active = {(kind,): 0 for kind in TRANSFER_KINDS}
    for transfer in status.transfers:
        active[transfer.kind,] += 1
    yield gauge("transfers_active", "Transfers of records that are in progress here.", active, ("kind",))
    moved = {(kind,): _count(status, name) for kind, name in RECORDS_MOVED.items()}
    yield counter("transfer_records", "Records that moved between this node and others.", moved, ("kind",))
    left = sum(max(0, one.total - one.done) for one in status.transfers if one.total is not None)
    yield gauge("transfer_remaining_records", "Records that the transfers in progress have still to move.", left)
    rounds = {(outcome,): _count(status, name) for outcome, name in COMPARISONS.items()}
    yield counter("anti_entropy_rounds", "Comparisons of an arc with a replica.", rounds, ("outcome",))
    repairs = _count(status, "read_repairs")
    yield counter("read_repairs", "Reads that repaired a replica.", {(): repairs})


def _count(status: Status, name: str) -> int:
    return dict(status.counters).get(name, 0)

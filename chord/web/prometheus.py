"""Prometheus metrics of a node, and of a ring as the aggregator sees it.

Collectors read the counters at each scrape, so a process without scrapes pays nothing. All label values come from
closed sets: no key, peer, address or id is among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeVar, get_args

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from chord.ids import NodeState, PeerState
from chord.node import Node
from chord.node.probe import NodeMeasures, measure
from chord.observe.metrics import HOP_BOUNDS, Histogram, Meter, Meters
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

Labels = TypeVar("Labels", bound=tuple[str, ...])
"""The label values of a sample."""


class RingFacts(NamedTuple):
    """A ring as a dashboard sees it.

    Attributes:
        nodes: the number of nodes that answer.
        holds: for each invariant, whether it holds; None if the answers do not tell.
        waiting: the number of parts of the ring that are not in their final state yet.
        age_s: the age of the oldest answer that is shown, in seconds.
        readers: the number of open pages.
        dropped: the number of pages that were disconnected because they did not keep up.
    """

    nodes: int
    holds: Mapping[str, bool | None]
    waiting: int
    age_s: float
    readers: int
    dropped: int


def node_registry(node: Node) -> CollectorRegistry:
    """Return a registry with the metrics of a node and of its process."""
    registry = CollectorRegistry()
    registry.register(_Collector(lambda: node_metrics(measure(node))))
    ProcessCollector(registry=registry)
    return registry


def ring_registry(facts: Callable[[], RingFacts]) -> CollectorRegistry:
    """Return a registry with the metrics of a dashboard and of its process; `facts` is called at each scrape."""
    registry = CollectorRegistry()
    registry.register(_Collector(lambda: ring_metrics(facts())))
    ProcessCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Return the metrics of a registry as text, and the media type.

    Args:
        registry: the registry.
        accept: the header `Accept` of the request. It may ask for OpenMetrics; the default is the text of Prometheus.
    """
    encode, media_type = choose_encoder(accept)
    return encode(registry), media_type


class _Collector(Collector):
    """Metrics that a function returns at each scrape."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()

    def describe(self) -> Iterable[Metric]:
        return ()


def node_metrics(node: NodeMeasures) -> Iterator[Metric]:
    """Yield the metrics of a node."""
    yield from _state(node)
    yield from _operations(node.meters)
    yield from _lookups(node)
    yield from _calls(node.meters)
    yield from _ring(node)
    yield from _records(node.status)
    yield _histogram("store_commit_seconds", "Duration of a transaction of the store.", {(): node.commits})
    yield _histogram("loop_lag_seconds", "Delay with which the event loop began periodic steps.", {(): node.loop_lag})
    skew_s = node.status.clock_skew_ms / 1000
    yield _gauge("clock_skew_seconds", "Largest recent difference to the wall clock of a neighbour.", skew_s)
    failures = {(): node.handler_failures}
    yield _counter("handler_failures", "Handlers of requests that raised an unexpected exception: bugs.", failures)


def _state(node: NodeMeasures) -> Iterator[Metric]:
    status = node.status
    yield _gauge("build_info", "Version of the program; the value is 1.", {(status.version,): 1.0}, ["version"])
    states = {(state,): float(state == status.state) for state in NODE_STATES}
    yield _gauge("node_state", "1 for the state of the node, 0 for all others.", states, ["state"])
    yield _gauge("vnodes", "Virtual nodes of this node.", node.vnodes)
    yield _gauge("owned_ratio", "Share of the circle that this node owns, 0 to 1.", node.owned)
    yield _gauge("uptime_seconds", "Time since the node began to take calls.", status.uptime_ms / 1000)
    yield _gauge("store_records", "Records in the store.", status.keys)
    yield _gauge("store_bytes", "Bytes of the values in the store.", status.value_bytes)
    yield _gauge("sibling_records", "Records with concurrent values.", status.sibling_keys)
    yield _gauge("hints", "Records that are kept for other nodes.", status.hints)
    short = "Records in the node's arcs with a replica that is down or not in sync."
    yield _gauge("under_replicated_records", short, status.under_replicated)
    yield _gauge("misplaced_records", "Records that this node has to bring to other nodes.", status.misplaced)


def _operations(meters: Meters) -> Iterator[Metric]:
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
    yield _counter("operations", text, ended, ["op", "outcome"])
    yield _histogram("operation_duration_seconds", "Time that a request of a client took here.", served, ["op"])


def _operation(request: type[Request]) -> str:
    return OPERATIONS.get(request, "other")


def _lookups(node: NodeMeasures) -> Iterator[Metric]:
    ended: dict[tuple[str, ...], float] = {(m, r, "ok"): 0 for m in get_args(Mode) for r in get_args(Route)}
    for label, count in node.lookups.items():
        ended[label] = count
    text = "Lookups and forwarded requests that ended."
    yield _counter("lookups", text, ended, ["mode", "route", "outcome"])
    hops = {(route,): node.hops.get(route, Histogram(HOP_BOUNDS)) for route in get_args(Route)}
    yield _histogram("lookup_hops", "Path length of a lookup.", hops, ["route"])
    timeouts = _count(node.status, "lookup_timeouts")
    yield _counter("lookup_timeouts", "Calls of lookups that got no reply.", {(): timeouts})


def _calls(meters: Meters) -> Iterator[Metric]:
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
    yield _counter("rpc_requests", "Calls of this node to other nodes that ended.", outcomes, ["class", "outcome"])
    text = "Time that this node waited for the reply of another node."
    yield _histogram("rpc_duration_seconds", text, latency, ["class"])
    traffic = {part.purpose: part for part in meters.traffic()}
    received = {(purpose,): float(part.calls_received) for purpose, part in traffic.items()}
    yield _counter("rpc_received", "Calls that this node received.", received, ["class"])
    moved: dict[tuple[str, ...], float] = {}
    for purpose, part in traffic.items():
        moved[purpose, "sent"], moved[purpose, "received"] = part.bytes_sent, part.bytes_received
    text = "Bytes of the frames of requests and replies, without errors."
    yield _counter("rpc_bytes", text, moved, ["class", "direction"])


def _of_class(meters: Meters, purpose: Purpose) -> Iterator[Meter]:
    return (meter for request, meter in meters.items() if request.purpose == purpose)


def _ring(node: NodeMeasures) -> Iterator[Metric]:
    peers = {(state,): float(node.peers.get(state, 0)) for state in PEER_STATES}
    yield _gauge("peers", "Peers in each state, as this node sees them.", peers, ["state"])
    transitions = {(state,): float(node.transitions.get(state, 0)) for state in PEER_STATES}
    yield _counter("peer_transitions", "Changes of a peer's state, by the new state.", transitions, ["to"])
    steps = {name: float(count) for name, count in node.steps.items()}
    yield _counter("protocol_steps", "Runs of periodic steps.", steps, ["step", "outcome"])
    yield _gauge("successor_list_length", "Entries of the shortest successor list.", node.successors)
    yield _gauge("finger_nodes", "Other nodes in the finger tables.", node.finger_nodes)
    yield _counter("split_found", "Signs of a second ring.", {(): _count(node.status, "SplitFound")})
    yield _gauge("isolated", "Vnodes of this node without any living neighbour.", node.isolated)


def _records(status: Status) -> Iterator[Metric]:
    active = {(kind,): 0.0 for kind in TRANSFER_KINDS}
    for transfer in status.transfers:
        active[transfer.kind,] += 1
    yield _gauge("transfers_active", "Transfers of records that are in progress here.", active, ["kind"])
    moved = {(kind,): _count(status, name) for kind, name in RECORDS_MOVED.items()}
    yield _counter("transfer_records", "Records that moved between this node and others.", moved, ["kind"])
    left = sum(max(0, one.total - one.done) for one in status.transfers if one.total is not None)
    yield _gauge("transfer_remaining_records", "Records that the transfers in progress have still to move.", left)
    rounds = {(outcome,): _count(status, name) for outcome, name in COMPARISONS.items()}
    yield _counter("anti_entropy_rounds", "Comparisons of an arc with a replica.", rounds, ["outcome"])
    repairs = _count(status, "read_repairs")
    yield _counter("read_repairs", "Reads that repaired a replica.", {(): repairs})


def ring_metrics(ring: RingFacts) -> Iterator[Metric]:
    """Yield the metrics that only a dashboard has."""
    yield _gauge("ring_nodes", "Nodes that answer the dashboard.", ring.nodes)
    holds = {(name,): float(value) for name, value in ring.holds.items() if value is not None}
    text = "1 if an invariant of the ring holds, 0 if not; absent if the answers do not tell."
    yield _gauge("ring_invariant_holds", text, holds, ["invariant"])
    yield _gauge("ring_waiting", "Parts of the ring that are not in their final state yet.", ring.waiting)
    yield _gauge("watch_age_seconds", "Age of the oldest answer that the dashboard shows.", ring.age_s)
    yield _gauge("watch_readers", "Open pages.", ring.readers)
    yield _counter("watch_readers_dropped", "Pages that did not keep up and were disconnected.", {(): ring.dropped})


# -- families -----------------------------------------------------------------------------------------


def _count(status: Status, name: str) -> float:
    return dict(status.counters).get(name, 0)


def _gauge(name: str, text: str, values: Mapping[Labels, float] | float, labels: Iterable[str] = ()) -> Metric:
    family = GaugeMetricFamily(f"chord_{name}", text, labels=list(labels))
    if not isinstance(values, Mapping):
        family.add_metric((), values)
        return family
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _counter(name: str, text: str, values: Mapping[Labels, float], labels: Iterable[str] = ()) -> Metric:
    family = CounterMetricFamily(f"chord_{name}", text, labels=list(labels))
    for label, value in values.items():
        family.add_metric(label, value)
    return family


def _histogram(
    name: str, text: str, values: Mapping[Labels, Histogram], labels: Iterable[str] = ()
) -> Metric:
    family = HistogramMetricFamily(f"chord_{name}", text, labels=list(labels))
    for label, histogram in values.items():
        if label and not histogram.counts:
            continue  # a scrape costs some 10 us for each line
        counts, total, buckets = histogram.counts, 0, []
        for number, bound in enumerate((*map(str, histogram.bounds), "+Inf")):
            total += counts[number] if number < len(counts) else 0
            buckets.append((bound, total))
        family.add_metric(label, buckets=buckets, sum_value=histogram.total)
    return family

"""What a probe reads of a running node: whether it is ready to serve, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from chord.ids import PeerState
from chord.node import Node
from chord.observe.metrics import Histogram, Meters
from chord.wire.messages import Mode, Route, Status

ConditionName: TypeAlias = Literal["state", "arc", "successor", "store"]


class Condition(NamedTuple):
    """A condition of readiness.

    Attributes:
        name: the name.
        holds: whether the node meets it.
        text: why or why not. The text never contains an address, a key or a path.
    """

    name: ConditionName
    holds: bool
    text: str


class NodeMeasures(NamedTuple):
    """The state and the totals of a node, as metrics need them.

    Attributes:
        status: the status, with counters and transfers.
        vnodes: the number of vnodes.
        owned: the share of the circle that the node owns, 0 to 1.
        successors: the number of entries of the shortest successor list; 0 before the node has joined.
        finger_nodes: the number of other nodes in the finger tables.
        isolated: the number of vnodes without any living neighbour.
        peers: the number of peers in each state.
        transitions: the number of changes of a peer's state, by the new state.
        steps: the number of runs of periodic steps, by name and outcome.
        lookups: the number of lookups, by mode, route and outcome.
        hops: the path lengths of lookups, by route.
        meters: the traffic of each type of request.
        loop_lag: how late the event loop began periodic steps, in seconds.
        commits: how long the transactions of the store took, in seconds.
        handler_failures: the number of handlers that raised an unexpected exception.
    """

    status: Status
    vnodes: int
    owned: float
    successors: int
    finger_nodes: int
    isolated: int
    peers: Mapping[PeerState, int]
    transitions: Mapping[PeerState, int]
    steps: Mapping[tuple[str, str], int]
    lookups: Mapping[tuple[Mode, Route, str], int]
    hops: Mapping[Route, Histogram]
    meters: Meters
    loop_lag: Histogram
    commits: Histogram
    handler_failures: int


def readiness(node: Node) -> tuple[Condition, ...]:
    """Return the conditions under which a node serves requests.

    They are about this node alone. A dead peer or a broken invariant of the ring violates none of them: otherwise one
    failure would take further nodes out of service.
    """
    host = node._host
    vnodes = [vnode for vnode in host.vnodes.values() if vnode.ring.is_member]
    owns = any(vnode.ownership.arc is not None for vnode in vnodes)
    storage = host.storage
    has_failed = storage.failed is not None and storage.failed.is_set()
    writes = not (has_failed or storage.refusal or host.is_stalled)
    return (
        Condition("state", node.state == "ready", node.state),
        Condition("arc", owns, "owns an arc" if owns else "owns no arc"),
        _successor(node),
        Condition("store", writes, "takes writes" if writes else "takes no writes"),
    )


def _successor(node: Node) -> Condition:
    """Return the condition that a successor lives.

    A node that knows no living node counts as alone. So the survivor of many deaths stays ready, also before it has
    dropped the dead nodes from its list.
    """
    host = node._host
    peers = host.peers
    members = [vnode.ring for vnode in host.vnodes.values() if vnode.ring.is_member]
    listed = {contact for ring in members for contact in ring.successors if contact.address != host.address}
    if any(not peers.is_dead(contact) for contact in listed):
        return Condition("successor", True, "has a live successor")
    if members and (not listed or all(peers.is_doubtful(contact) for contact in host.contacts())):
        return Condition("successor", True, "is alone")
    return Condition("successor", False, "has no live successor")


def measure(node: Node) -> NodeMeasures:
    """Return the metrics of a node. It need not run yet."""
    host = node._host
    vnodes = list(host.vnodes.values())
    lists = [len(vnode.ring.successors) for vnode in vnodes]
    arcs = [vnode.ownership.arc for vnode in vnodes]
    fingers = {contact.address for vnode in vnodes for contact in vnode.fingers.contacts()}
    return NodeMeasures(
        status=node._local_status(("counters", "transfers")),
        vnodes=len(vnodes),
        owned=sum(host.circle.fraction(host.circle.length(arc.start, arc.end)) for arc in arcs if arc is not None),
        successors=min(lists, default=0),
        finger_nodes=len(fingers - {host.address}),
        isolated=sum(vnode.ring.is_isolated for vnode in vnodes),
        peers=host.peers.failure_detector.states(),
        transitions=host.peers.transitions,
        steps=node._maintenance.timetable.runs,
        lookups=host.lookups,
        hops=host.hops,
        meters=node._calls.meters,
        loop_lag=host.loop_lag,
        commits=host.storage.commit_times,
        handler_failures=node._calls.stats.handler_failures,
    )

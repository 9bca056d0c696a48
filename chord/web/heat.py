"""The distribution of keys and requests on the circle."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from chord.ids import Arc, Circle, Point
from chord.observe.model import RingModel
from chord.wire.messages import SAMPLE_BINS, SampleReply

KEPT_S: Final = 60.0
"""The longest window of requests, in seconds."""


class HotRow(NamedTuple):
    """A key that clients request often.

    Attributes:
        key: the key.
        share: its estimated share of all requests, 0 to 1. It may be too large.
        error: the largest amount by which `share` may be too large, 0 to 1.
    """

    key: bytes
    share: float
    error: float


class RequestCounts(NamedTuple):
    """The requests of clients in a period, as samples of the nodes count them.

    Attributes:
        bins: the number of requests for keys in each of 256 equal parts of the circle.
        by_node: the number of requests that each node coordinated, by address.
        hot: up to 32 keys, the most frequent first.
    """

    bins: list[int]
    by_node: dict[str, int]
    hot: list[HotRow]


class RequestSamples:
    """The replies of all nodes to `Sample` in the last minute. Each has a node's running totals of requests."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, SampleReply]]] = {}

    def add(self, at_s: float, address: str, reply: SampleReply) -> None:
        """Add a node's reply to `Sample`.

        If its totals began anew, the node's earlier replies are dropped.

        Args:
            at_s: the time of the reply, in seconds.
            address: the node.
            reply: the totals.
        """
        kept = self._samples.setdefault(address, deque())
        if kept and reply.since_ms < kept[-1][1].since_ms:
            kept.clear()
        kept.append((at_s, reply))
        for vanished in [name for name, samples in self._samples.items() if samples[-1][0] < at_s - KEPT_S]:
            del self._samples[vanished]
        while kept[0][0] < at_s - KEPT_S:
            kept.popleft()

    def counts(self, now_s: float, window_s: float) -> RequestCounts:
        """Return the requests of the last `window_s` seconds before `now_s`.

        Each node counts from its first to its last reply in this time.
        """
        bins, by_node = [0] * SAMPLE_BINS, {}
        keys: Counter[bytes] = Counter()
        errors: Counter[bytes] = Counter()
        for address, kept in self._samples.items():
            within = [reply for at_s, reply in kept if at_s >= now_s - window_s]
            if not within:
                continue
            first, last = within[0], within[-1]
            gained = [a - b for a, b in zip(last.bins, first.bins, strict=True)]
            by_node[address] = sum(gained)
            bins = [a + b for a, b in zip(bins, gained, strict=True)]
            before = {one.key: one.count for one in first.hot}
            for one in last.hot:
                keys[one.key] += one.count - before.get(one.key, 0)
                errors[one.key] += one.error
        total = sum(bins)
        hot = [HotRow(key, count / total, min(1.0, errors[key] / total)) for key, count in keys.most_common() if count]
        return RequestCounts(bins, by_node, hot[:32] if total else [])


class ArcAt(NamedTuple):
    """An arc that a vnode owns.

    Attributes:
        address: the address of the vnode's node.
        arc: the arc.
    """

    address: str
    arc: Arc


def owned_arcs(model: RingModel) -> list[ArcAt]:
    """Return the arcs that vnodes own in a state, except those of unreachable nodes."""
    return [
        ArcAt(str(fields["node"]), Arc(Point(int(arc["start"])), Point(int(arc["end"]))))
        for fields in model.vnodes.values()
        if model.nodes.get(str(fields["node"]), {}).get("state") != "unreachable"
        for arc in fields.get("arcs", ())
        if arc["state"] == "owned"
    ]


def parts_of(circle: Circle, arc: Arc) -> int:
    """Return the number of equal parts into which to divide an arc before its keys are counted, 1 to 256.

    Each part is about half as long as one of the 256 bins of the circle.
    """
    share = float(circle.fraction(circle.length(arc.start, arc.end)))
    return max(1, min(256, round(2 * SAMPLE_BINS * share)))


def spread(circle: Circle, arc: Arc, counts: Iterable[int], bins: list[float]) -> None:
    """Add the key counts of an arc to the bins of the circle, in place.

    Args:
        circle: the circle of the ring.
        arc: the arc.
        counts: the number of keys in each equal part of the arc, clockwise. A part counts in the bin of its middle.
        bins: the number of keys in each equal part of the circle, to which this function adds.
    """
    found = list(counts)
    length = circle.length(arc.start, arc.end)
    for part, count in enumerate(found):
        middle = circle.point(arc.start + (2 * part + 1) * length // (2 * len(found)))
        bins[middle * len(bins) // circle.size] += count


def harmonic(n: int) -> float:
    """Return the harmonic number H_n: the expected largest of n random arcs, as a multiple of their mean."""
    return sum(1 / i for i in range(1, n + 1))

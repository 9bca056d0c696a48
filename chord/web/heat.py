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
        share: its share of all requests, 0 to 1.
        error: the largest possible error of the share.
    """

    key: bytes
    share: float
    error: float


class RequestCounts(NamedTuple):
    """The requests of a window.

    Attributes:
        bins: the number of requests in each of 256 equal parts of the circle.
        by_node: the number of requests that each node coordinated, by address.
        hot: the most frequent keys, the most frequent first.
    """

    bins: list[int]
    by_node: dict[str, int]
    hot: list[HotRow]


class RequestSamples:
    """The samples of all nodes in the last minute."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[tuple[float, SampleReply]]] = {}

    def add(self, at_s: float, address: str, reply: SampleReply) -> None:
        """Add a reply of a node. A node that begins to count anew has no earlier replies."""
        kept = self._samples.setdefault(address, deque())
        if kept and reply.since_ms < kept[-1][1].since_ms:
            kept.clear()
        kept.append((at_s, reply))
        for vanished in [name for name, samples in self._samples.items() if samples[-1][0] < at_s - KEPT_S]:
            del self._samples[vanished]
        while kept[0][0] < at_s - KEPT_S:
            kept.popleft()

    def counts(self, now_s: float, window_s: float) -> RequestCounts:
        """Return the requests between the first and the last sample of each node in a window."""
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
    """An arc that a vnode owns, with its node."""

    address: str
    arc: Arc


def owned_arcs(model: RingModel) -> list[ArcAt]:
    """Return the arcs of all vnodes of nodes that answer."""
    return [
        ArcAt(str(fields["node"]), Arc(Point(int(arc["start"])), Point(int(arc["end"]))))
        for fields in model.vnodes.values()
        if model.nodes.get(str(fields["node"]), {}).get("state") != "unreachable"
        for arc in fields.get("arcs", ())
        if arc["state"] == "owned"
    ]


def parts_of(circle: Circle, arc: Arc) -> int:
    """Return the number of parts in which to count an arc: parts of about half a bin."""
    share = float(circle.fraction(circle.length(arc.start, arc.end)))
    return max(1, min(256, round(2 * SAMPLE_BINS * share)))


def spread(circle: Circle, arc: Arc, counts: Iterable[int], bins: list[float]) -> None:
    """Add the counts of the equal parts of an arc to the bins of the circle, each to that of its middle."""
    found = list(counts)
    length = circle.length(arc.start, arc.end)
    for part, count in enumerate(found):
        middle = circle.point(arc.start + (2 * part + 1) * length // (2 * len(found)))
        bins[middle * len(bins) // circle.size] += count


def harmonic(n: int) -> float:
    """Return H_n, the mean of the largest of n random arcs, as a multiple of the mean arc."""
    return sum(1 / i for i in range(1, n + 1))

"""Metrics of a node: histograms with fixed buckets, and the traffic of each type of request."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

from chord.wire.messages import PURPOSES, HistogramInfo, MetricName, Request, TrafficInfo

DURATION_BOUNDS_S: Final = (
    *(0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""Upper bounds of the buckets of durations, in seconds: from 0.1 ms to 10 s, each about twice the one before."""

HOP_BOUNDS: Final = tuple(float(hops) for hops in range(17))
"""Upper bounds of the buckets of path lengths."""


class Histogram:
    """A histogram: how many values lie in each of several buckets with fixed bounds.

    Attributes:
        bounds: the upper bound of each bucket but the last, ascending. A value equal to a bound lies in its bucket.
        counts: the number of values in each bucket. Empty buckets at the end may be missing.
        total: the sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = DURATION_BOUNDS_S) -> None:
        self.bounds = bounds
        self.counts: list[int] = []
        self.total = 0.0

    def note(self, value: float) -> None:
        """Count one value, such as a duration in seconds."""
        self.total += value
        bucket = bisect_left(self.bounds, value)
        if bucket >= len(self.counts):
            self.counts += [0] * (bucket + 1 - len(self.counts))
        self.counts[bucket] += 1

    def add(self, other: Histogram) -> None:
        """Add the counts of another histogram, which must have the same bounds, to this one."""
        self.total += other.total
        self.counts += [0] * (len(other.counts) - len(self.counts))
        for bucket, count in enumerate(other.counts):
            self.counts[bucket] += count

    def info(self, name: MetricName, label: str = "") -> HistogramInfo:
        """Return the histogram in the form in which a node sends it, with a count for every bucket.

        Args:
            name: the name of the metric.
            label: the type or class of requests that it is limited to; "": none.
        """
        empty = [0] * (len(self.bounds) + 1 - len(self.counts))
        return HistogramInfo(name, label, (*self.counts, *empty), max(0.0, self.total))


class Meter:
    """The traffic of one type of request at a node.

    Attributes:
        calls_sent, calls_received: the number of requests of this type.
        bytes_sent, bytes_received: the bytes of their frames and of the frames of replies.
        latency: how long this node waited for the reply to each request that it sent, in seconds.
        served: how long each request of a client took at this node, in seconds.
    """

    __slots__ = ("bytes_received", "bytes_sent", "calls_received", "calls_sent", "latency", "served")

    def __init__(self) -> None:
        self.calls_sent = self.calls_received = self.bytes_sent = self.bytes_received = 0
        self.latency, self.served = Histogram(), Histogram()


CallOutcome: TypeAlias = Literal["error", "no_reply", "cancelled"]
"""How a call to another node ended without a reply of its type: with an error of that node, with none, or early."""


class Meters(dict[type[Request], Meter]):
    """The meters of a node, by type of request. Indexing with a new type makes its meter.

    Attributes:
        failed: the number of requests of clients that ended in an error, by type of request and word of the error.
        unanswered: the number of calls of this node without a regular reply, by type of request and outcome.
    """

    __slots__ = ("failed", "unanswered")

    def __init__(self) -> None:
        super().__init__()
        self.failed: Counter[tuple[type[Request], str]] = Counter()
        self.unanswered: Counter[tuple[type[Request], CallOutcome]] = Counter()

    def __missing__(self, request: type[Request]) -> Meter:
        meter = self[request] = Meter()
        return meter

    def traffic(self) -> tuple[TrafficInfo, ...]:
        """Return the number of requests and bytes in each class of requests, such as "client" or "lookup"."""
        found = []
        for purpose in PURPOSES:
            meters = [meter for request, meter in self.items() if request.purpose == purpose]
            found.append(TrafficInfo(
                purpose,
                sum(meter.calls_sent for meter in meters),
                sum(meter.calls_received for meter in meters),
                sum(meter.bytes_sent for meter in meters),
                sum(meter.bytes_received for meter in meters),
            ))
        return tuple(found)

    def histograms(self) -> Iterator[HistogramInfo]:
        """Yield the histograms "rpc" by class of requests, and "operation" by type of a client's request.

        "rpc" has the times that the node waited for replies, and "operation" the times that requests of clients took.
        """
        for purpose in PURPOSES:
            latency = Histogram()
            for request, meter in self.items():
                if request.purpose == purpose:
                    latency.add(meter.latency)
            yield latency.info("rpc", purpose)
        for request, meter in sorted(self.items(), key=lambda item: item[0].__name__):
            if meter.served.counts:
                yield meter.served.info("operation", request.__name__)

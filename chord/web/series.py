"""Metrics of the whole ring over the last minutes, from the totals that its nodes report."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from chord.observe.metrics import DURATION_BOUNDS_S
from chord.views.common import Json
from chord.wire.messages import PURPOSES, Density, Describe, GetEvents, GetMetrics, GetMetricsReply, GetStatus, Sample

KEPT_ROWS: Final = 900
"""The number of rows: 15 minutes of one per second."""


WATCHING: Final = tuple(kind.__name__ for kind in (Density, Describe, GetEvents, GetMetrics, GetStatus, Sample))
"""The requests of watchers, which do not count as operations: an idle ring is to look idle."""


class SeriesName(NamedTuple):
    """The name of a series: one metric of the ring over time.

    Attributes:
        name: the name of the metric, such as "lookups".
        label: a class of requests that the metric is limited to; "": none.
        unit: the unit of its values.
    """

    name: str
    label: str = ""
    unit: str = "1/s"


NAMES: Final = (
    SeriesName("operations"),
    SeriesName("operation_p50", unit="ms"),
    SeriesName("operation_p99", unit="ms"),
    SeriesName("lookups"),
    SeriesName("lookup_hops", unit="hops"),
    SeriesName("loop_lag_p99", unit="ms"),
    SeriesName("commit_p99", unit="ms"),
    *(SeriesName("rpc_calls", purpose) for purpose in PURPOSES),
    *(SeriesName("rpc_bytes", purpose, "B/s") for purpose in PURPOSES),
)
"""The series, in the order of the columns of a row."""


class MetricsRow(NamedTuple):
    """The metrics of the ring over one second.

    Attributes:
        at_ms: the time, in Unix ms.
        values: one value for each series, in the order of `NAMES`; None for a value that no node reported.
        nodes: the number of nodes that the values include.
        hops: the number of lookups that took 0 hops, 1 hop, and so on.
    """

    at_ms: int
    values: tuple[float | None, ...]
    nodes: int
    hops: tuple[int, ...] = ()


class MetricsSeries:
    """The metrics of the ring in the last 15 minutes.

    Attributes:
        rows: one row per second, the oldest first.
    """

    def __init__(self) -> None:
        self.rows: deque[MetricsRow] = deque(maxlen=KEPT_ROWS)
        self._before: dict[str, GetMetricsReply] = {}

    def add(self, at_ms: int, replies: Mapping[str, GetMetricsReply]) -> MetricsRow:
        """Add a row for the gains since the last call, and return it.

        A node counts from its second reply on. Its totals begin again when it restarts.

        Args:
            at_ms: the time, in Unix ms.
            replies: the totals of each node, by address.
        """
        gains = [
            _NodeGain(before, reply)
            for address, reply in replies.items()
            if (before := self._before.get(address)) is not None and reply.uptime_ms > before.uptime_ms
        ]
        self._before = dict(replies)
        hops = tuple(_sum(gain.counts.get("lookup_hops", []) for gain in gains))
        row = MetricsRow(at_ms, _values(gains), len(gains), hops)
        self.rows.append(row)
        return row


def series_json(rows: Iterable[MetricsRow]) -> Json:
    """Return rows as JSON with one list for each series: the field `series`, beside `times_ms`, `nodes` and `hops`."""
    found = list(rows)
    return {
        "times_ms": [row.at_ms for row in found],
        "nodes": [row.nodes for row in found],
        "hops": hops_of(found),
        "series": [
            {**name._asdict(), "values": [row.values[column] for row in found]} for column, name in enumerate(NAMES)
        ],
    }


def hops_of(rows: Iterable[MetricsRow]) -> list[int]:
    """Return the number of lookups that took 0 hops, 1 hop, and so on up to the longest path, summed over rows."""
    counts = _sum(row.hops for row in rows)
    while counts and not counts[-1]:
        counts.pop()
    return counts


class _NodeGain:
    """What the totals of a node gained between two replies."""

    def __init__(self, before: GetMetricsReply, after: GetMetricsReply) -> None:
        self.seconds = (after.uptime_ms - before.uptime_ms) / 1000
        self.counts: dict[str, list[int]] = {}
        self.totals: Counter[str] = Counter()
        old = {(one.name, one.label): one for one in before.histograms}
        for one in after.histograms:
            if one.name == "operation" and one.label in WATCHING:
                continue
            known = old.get((one.name, one.label))
            counts = [*one.counts] if known is None else [a - b for a, b in zip(one.counts, known.counts, strict=True)]
            self.counts[one.name] = _sum([self.counts.get(one.name, []), counts])
            self.totals[one.name] += one.total - (known.total if known else 0.0)  # type: ignore[assignment]
        earlier = {one.purpose: one for one in before.traffic}
        self.calls = {one.purpose: one.calls_sent - earlier[one.purpose].calls_sent for one in after.traffic}
        self.bytes = {one.purpose: one.bytes_sent - earlier[one.purpose].bytes_sent for one in after.traffic}


def _values(gains: list[_NodeGain]) -> tuple[float | None, ...]:
    if not gains:
        return (None,) * len(NAMES)

    def counts(name: str) -> list[int]:
        return _sum(gain.counts.get(name, []) for gain in gains)

    hops = counts("lookup_hops")
    found: list[float | None] = [
        _rate((sum(gain.counts.get("operation", ())), gain.seconds) for gain in gains),
        _in_ms(quantile(counts("operation"), 0.5)),
        _in_ms(quantile(counts("operation"), 0.99)),
        _rate((sum(gain.counts.get("lookup_hops", ())), gain.seconds) for gain in gains),
        round(sum(gain.totals["lookup_hops"] for gain in gains) / sum(hops), 3) if sum(hops) else None,
        _in_ms(quantile(counts("loop_lag"), 0.99)),
        _in_ms(quantile(counts("commit"), 0.99)),
    ]
    found += [_rate((gain.calls.get(purpose, 0), gain.seconds) for gain in gains) for purpose in PURPOSES]
    found += [_rate((gain.bytes.get(purpose, 0), gain.seconds) for gain in gains) for purpose in PURPOSES]
    return tuple(found)


def quantile(counts: list[int], share: float) -> float | None:
    """Return a quantile of durations in seconds; None if `counts` is empty or all zero.

    Inside a bucket, values are taken as evenly spread.

    Args:
        counts: the number of durations in each bucket. The bounds are `DURATION_BOUNDS_S`.
        share: the share of durations below the result, 0 to 1: 0.5 for the median.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    below = 0.0
    for bucket, count in enumerate(counts):
        if below + count >= wanted and count:
            if bucket == len(DURATION_BOUNDS_S):
                return DURATION_BOUNDS_S[-1]
            low = DURATION_BOUNDS_S[bucket - 1] if bucket else 0.0
            return low + (DURATION_BOUNDS_S[bucket] - low) * (wanted - below) / count
        below += count
    return DURATION_BOUNDS_S[-1]


def _sum(lists: Iterable[Sequence[int]]) -> list[int]:
    total: list[int] = []
    for one in lists:
        total += [0] * (len(one) - len(total))
        for i, count in enumerate(one):
            total[i] += count
    return total


def _rate(gained: Iterable[tuple[int, float]]) -> float:
    return round(sum(max(0, count) / seconds for count, seconds in gained), 3)


def _in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1000 * seconds, 3)

"""The tasks that ask all nodes for numbers: metrics once per second, and requests while a page is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf
from typing import Final, TypeVar

import trio

from chord.errors import ChordError
from chord.observe.model import RingModel
from chord.web.heat import RequestSamples, owned_arcs, parts_of, spread
from chord.web.hub import EventHub, message
from chord.web.series import NAMES, MetricsSeries, hops_of
from chord.web.source import LiveRing
from chord.web.validation import metrics_fault, sample_fault
from chord.wire.messages import SAMPLE_BINS, Density, GetMetrics, Sample, WatchRequest

METRICS_S: Final = 1.0
"""The time between two rows of metrics, in seconds."""

SAMPLE_S: Final = 3.0
"""The time between two samples of requests, in seconds."""

SAMPLED_S: Final = 10
"""The time that a node goes on to count after a sample, in seconds."""

NODES_MAX: Final = 64
"""The largest number of nodes that are asked for numbers. In a larger ring they are a sample."""

LATE_MS: Final = 3000
"""A node is late if its last answer is older, in ms: three polls."""

ANSWER_S: Final = 1.0

HOPS_ROWS: Final = 120
"""The number of rows, one per second, that the distribution of path lengths counts."""

T = TypeVar("T")


class RingMeter:
    """Collects metrics and request counts from the nodes of a living ring.

    Args:
        origin: the ring.
        hub: the event stream, which gets each row of metrics. Requests are counted only while it has readers.

    Attributes:
        series: the metrics of the last 15 minutes, one row per second.
        requests: the replies with request counts of the last minute.
    """

    def __init__(self, origin: LiveRing, hub: EventHub) -> None:
        self._origin = origin
        self._hub = hub
        self._watched_s = -inf
        self._density: tuple[float, list[float]] | None = None
        self.series = MetricsSeries()
        self.requests = RequestSamples()

    async def run(self) -> None:
        """Ask all nodes for metrics every second, and for request counts every 3 seconds, until cancelled.

        Concurrency: checkpoints.
        """
        due_s = sample_s = self._origin.now_s
        while True:
            due_s = max(due_s + METRICS_S, self._origin.now_s)
            await trio.sleep_until(due_s)
            nodes = self.nodes()
            replies = await self._ask_all(nodes, GetMetrics(), metrics_fault)
            row = self.series.add(self._origin.to_ms(self._origin.now_s), replies)
            if self._hub.readers:
                self._hub.send(self._message(row.values))
            if (self._hub.readers or due_s - self._watched_s < SAMPLED_S) and due_s >= sample_s:
                sample_s = due_s + SAMPLE_S
                for address, reply in (await self._ask_all(nodes, Sample(SAMPLED_S), sample_fault)).items():
                    self.requests.add(self._origin.now_s, address, reply)

    def nodes(self) -> list[str]:
        """Return the addresses of the nodes to ask: those that answer, at most `NODES_MAX`."""
        known = self._origin.aggregator.model.nodes
        living = [a for a, fields in known.items() if fields.get("state") not in ("unreachable", "dead", "left")]
        return living[:NODES_MAX]

    def watch(self) -> None:
        """Let the nodes count requests for the next 10 s, also if no page is open."""
        self._watched_s = self._origin.now_s

    async def density(self) -> list[float]:
        """Return the number of keys in each of 256 equal parts of the circle, at most 3 s old.

        Concurrency: checkpoints.
        """
        self.watch()
        now_s = self._origin.now_s
        if self._density is None or now_s - self._density[0] > SAMPLE_S:
            self._density = now_s, await self._counted(self._origin.aggregator.model)
        return self._density[1]

    async def _counted(self, model: RingModel) -> list[float]:
        client, bins = self._origin.client, [0.0] * SAMPLE_BINS
        if client is None:
            return bins
        circle = client.circle

        async def count(address: str, request: Density) -> None:
            try:
                with trio.fail_after(ANSWER_S):
                    reply = await client.watch(request, address)
            except (ChordError, trio.TooSlowError):
                return
            if reply.counts:
                spread(circle, arc, reply.counts, bins)

        asked = set(self.nodes())
        for address, arc in owned_arcs(model):
            if address in asked:
                await count(address, Density(arc.start, arc.end, parts_of(circle, arc)))
        return bins

    async def _ask_all(
        self, nodes: Iterable[str], request: WatchRequest[T], fault_of: Callable[[T], str]
    ) -> dict[str, T]:
        """Return the valid replies of the nodes that answer in time, by address."""
        client, found = self._origin.client, dict[str, T]()
        if client is None:
            return found

        async def ask(address: str) -> None:
            try:
                reply = await client.watch(request, address)
            except ChordError:
                return
            fault = fault_of(reply)
            if fault:
                self._origin.aggregator.on_fault(address, fault, self._origin.now_s)
            else:
                found[address] = reply

        with trio.move_on_after(ANSWER_S):
            async with trio.open_nursery() as nursery:
                for address in nodes:
                    nursery.start_soon(ask, address)
        return found

    def _message(self, values: tuple[float | None, ...]) -> bytes:
        state = self._origin.at()
        at_ms = state.moment.at_ms
        named = {f"{n.name}{{{n.label}}}" if n.label else n.name: v for n, v in zip(NAMES, values, strict=True)}
        late = {address: at_ms - seen for address, seen in state.seen_ms.items() if at_ms - seen > LATE_MS}
        hops = hops_of(list(self.series.rows)[-HOPS_ROWS:])
        return message("metrics", {**state.moment._asdict(), "late": late, "values": named, "hops": hops})

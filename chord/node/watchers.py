"""The requests of watchers, the clients that observe a node."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise
from typing import Final

import trio

from chord.errors import Overloaded
from chord.ids import Arc
from chord.net.calls import Answer, CallsService
from chord.net.handlers import handles
from chord.node.status import version_of
from chord.observe.event_log import event_info
from chord.observe.metrics import DURATION_BOUNDS_S, HOP_BOUNDS
from chord.observe.sampler import Sampler
from chord.ring.context import NodeContext
from chord.wire.messages import (
    HOT_KEYS_MAX,
    Density,
    DensityReply,
    Describe,
    DescribeReply,
    GetEvents,
    GetEventsReply,
    GetMetrics,
    GetMetricsReply,
    Sample,
    SampleReply,
    Status,
    StatusPart,
)

COUNTERS: Final[tuple[StatusPart, ...]] = ("counters",)


class Watchers:
    """Answers the watchers of one node.

    Args:
        host: the node context.
        calls: the calls layer of the node.
        status: returns the given parts of the node's status.

    Attributes:
        polls: the requests for events that wait.
    """

    __slots__ = ("_calls", "_host", "_is_closed", "_sample_until", "_status", "polls")

    def __init__(
        self, host: NodeContext, calls: CallsService, status: Callable[[Collection[StatusPart]], Status]
    ) -> None:
        self._host = host
        self._calls = calls
        self._status = status
        self.polls: dict[trio.Event, None] = {}
        self._is_closed = False
        self._sample_until = 0.0

    def close(self) -> None:
        """Answer the requests that wait, and let no further request wait."""
        self._is_closed = True
        for woken in self.polls:
            woken.set()

    @handles(Describe)
    def on_describe(self, request: Describe) -> DescribeReply:
        """Return parts of the node's status, or that they have not changed."""
        status = self._status(request.parts)
        version = version_of(status)
        return DescribeReply(version, status.wall_ms, None if version == request.unless_version else status)

    @handles(GetMetrics)
    def on_get_metrics(self, request: GetMetrics) -> GetMetricsReply:
        """Return the metrics of this node."""
        host, meters, status = self._host, self._calls.meters, self._status(COUNTERS)
        histograms = [
            *meters.histograms(),
            *(hops.info("lookup_hops", route) for route, hops in sorted(host.hops.items())),
            host.loop_lag.info("loop_lag"),
            host.storage.commit_times.info("commit"),
        ]
        return GetMetricsReply(
            status.wall_ms,
            status.uptime_ms,
            DURATION_BOUNDS_S,
            HOP_BOUNDS,
            tuple(histograms),
            meters.traffic(),
            status.counters,
        )

    @handles(Sample)
    def on_sample(self, request: Sample) -> SampleReply:
        """Return the sample of requests so far, and go on sampling."""
        host, now = self._host, self._host.peers.now()
        sampler = host.sampler or Sampler(host.circle, now)
        since_ms = int(1000 * (now - sampler.began))
        reply = SampleReply(
            max(0, host.wall_now_ms()), since_ms, tuple(sampler.bins), tuple(sampler.hot.top(HOT_KEYS_MAX))
        )
        host.sampler = Sampler(host.circle, now) if request.restart else sampler
        self._sample_until = max(self._sample_until, now + request.seconds)
        host.timers.set(self._end_sampling, self._sample_until)
        return reply

    def _end_sampling(self) -> None:
        self._host.sampler = None

    @handles(Density)
    async def on_density(self, request: Density) -> DensityReply:
        """Return the number of records in equal parts of an arc. Other tasks run between the parts."""
        circle, storage = self._host.circle, self._host.storage
        length = circle.length(request.arc_start, request.arc_end)
        edges = [circle.point(request.arc_start + length * i // request.bins) for i in range(request.bins + 1)]
        counts = []
        for start, end in pairwise(edges):
            is_empty = start == end and request.bins > 1  # the arc has fewer points than parts
            counts.append(0 if is_empty else storage.count(Arc(start, end)))
            await trio.lowlevel.checkpoint()
        return DensityReply(max(0, self._host.wall_now_ms()), tuple(counts))

    @handles(GetEvents)
    def on_get_events(self, request: GetEvents) -> Answer:
        """Return the events after a number, or wait for the next event."""
        return self._wait_for_events(request) if self._must_wait(request) else self._events(request)

    def _must_wait(self, request: GetEvents) -> bool:
        return request.after == self._host.events.latest and request.wait_ms > 0 and not self._is_closed

    async def _wait_for_events(self, request: GetEvents) -> GetEventsReply:
        """Wait for an event in a task.

        Raises:
            Overloaded: definite; too many requests wait for events already.
        """
        if not self._must_wait(request):  # news before the task began
            return self._events(request)
        if len(self.polls) >= self._host.limits.polls_max:
            raise Overloaded(f"{len(self.polls)} requests wait for events; ask again without waiting")
        woken = trio.Event()
        self.polls[woken] = None
        self._host.events.wait(woken.set)
        try:
            with trio.move_on_after(request.wait_ms / 1000):
                await woken.wait()
        finally:
            del self.polls[woken]
            self._host.events.stop_waiting(woken.set)
        return self._events(request)

    def _events(self, request: GetEvents) -> GetEventsReply:
        log = self._host.events
        emitted, dropped = log.after(request.after, request.events_max)
        return GetEventsReply(
            tuple(event_info(one) for one in emitted),
            log.latest,
            dropped,
            log.began_ms,
            int(1000 * self._host.peers.now()),
            max(0, self._host.wall_now_ms()),
        )

"""Requests of a watcher, a client that observes a node, and their replies."""

from __future__ import annotations

import sys
from typing import Annotated, Generic, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from chord.ids import ADDRESS_CHARS_MAX, Point
from chord.wire.messages.base import LIST_ENTRIES_MAX, PURPOSES, Count, Finite, Key, Purpose, Reply, Request, Text
from chord.wire.messages.node import STATUS_PARTS, Status, StatusPart

POLL_MS_MAX = 30_000
EVENT_FIELDS_MAX = 16
BUCKETS_MAX = 32
SAMPLE_BINS = 256
SAMPLE_S_MAX = 60
HOT_KEYS_MAX = 32
DENSITY_BINS_MAX = 256

EventValue: TypeAlias = bool | Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] | Finite | Text | None
"""A field of an event."""

StatusVersion: TypeAlias = Annotated[bytes, Meta(max_length=8)]

T = TypeVar("T")


class WatchRequest(Request, Generic[T], frozen=True):
    """Base class of the requests of watchers to a node; `T` is the type of the reply."""

    for_clients = True
    purpose = "watch"


class DescribeReply(Reply, frozen=True, tag=178):
    """The requested parts of a node's status, unless they are the same as before.

    Attributes:
        version: a digest of these parts, which changes with them. It leaves out times, ages, round-trip times and
            `VnodeInfo.rounds`.
        now_ms: the wall clock of the node at the time of the reply, in ms since 1970.
        status: the status; lists of parts that were not requested are empty. None if the version is the same as
            `Describe.unless_version`.
    """

    version: StatusVersion
    now_ms: Count
    status: Status | None


class Describe(WatchRequest[DescribeReply], frozen=True, tag=68):
    """Request to a node for parts of its status.

    Attributes:
        parts: the lists to return; default: all. "fingers" stands for the finger tables in "vnodes". All other fields
            of `Status` are always returned. With "counters" the version changes all the time.
        unless_version: the version of these parts that the reader has; empty: none. If it is still the same, the reply
            has no status.
    """

    parts: Annotated[tuple[StatusPart, ...], Meta(max_length=len(STATUS_PARTS))] = STATUS_PARTS
    unless_version: StatusVersion = b""
    reply = DescribeReply


MetricName: TypeAlias = Literal["operation", "lookup_hops", "rpc", "loop_lag", "commit"]


class HistogramInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The distribution of a metric since the start of the node.

    Attributes:
        name: the metric. "operation": how long a request of a client took at the node, in seconds. "lookup_hops": the
            path length of lookups. "rpc": how long the node waited for a reply of another node, in seconds. "loop_lag":
            how late the event loop began periodic steps, in seconds. "commit": how long a transaction of the store
            took, in seconds.
        label: the type of request of an "operation", the route of "lookup_hops", the class of requests of an "rpc";
            otherwise "".
        counts: the number of values in each bucket. The bounds are in `GetMetricsReply`; the last bucket has no upper
            bound.
        total: the sum of the values.
    """

    name: MetricName
    label: Text
    counts: Annotated[tuple[Count, ...], Meta(max_length=BUCKETS_MAX)]
    total: Annotated[float, Meta(ge=0.0, le=sys.float_info.max)]


class TrafficInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The traffic of a class of requests since the start of the node.

    Attributes:
        purpose: the class of requests. "client" also counts the copies that nodes send each other.
        calls_sent, calls_received: the number of requests.
        bytes_sent, bytes_received: the bytes of the frames of requests and replies, without errors.
    """

    purpose: Purpose
    calls_sent: Count
    calls_received: Count
    bytes_sent: Count
    bytes_received: Count


class GetMetricsReply(Reply, frozen=True, tag=179):
    """The metrics of a node.

    Attributes:
        now_ms: the wall clock of the node at the time of the reply, in ms since 1970.
        uptime_ms: the time since the node started, in ms.
        duration_bounds_s: the upper bounds of the buckets of durations, in seconds.
        hop_bounds: the upper bounds of the buckets of "lookup_hops", in hops.
        histograms: the distributions of durations and path lengths.
        traffic: the traffic of each class of requests.
        counters: totals since the start, as pairs of a name and a number, as in `Status`.
    """

    now_ms: Count
    uptime_ms: Count
    duration_bounds_s: Annotated[tuple[Finite, ...], Meta(max_length=BUCKETS_MAX)]
    hop_bounds: Annotated[tuple[Finite, ...], Meta(max_length=BUCKETS_MAX)]
    histograms: Annotated[tuple[HistogramInfo, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    traffic: Annotated[tuple[TrafficInfo, ...], Meta(max_length=len(PURPOSES))]
    counters: Annotated[tuple[tuple[Text, Count], ...], Meta(max_length=LIST_ENTRIES_MAX)]


class GetMetrics(WatchRequest[GetMetricsReply], frozen=True, tag=69):
    """Request to a node for its metrics."""

    reply = GetMetricsReply


class HotKey(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key that clients request often.

    Attributes:
        key: the key.
        count: the estimated number of requests. It may be too large, but never too small.
        error: the largest amount by which `count` may be too large.
    """

    key: Key
    count: Count
    error: Count


class SampleReply(Reply, frozen=True, tag=180):
    """The requests that a node has coordinated since its sampling began.

    Attributes:
        now_ms: the wall clock of the node at the time of the reply, in ms since 1970.
        since_ms: how long the node has been counting, in ms. It is 0 in the first reply.
        bins: the number of requests for keys in each of 256 equal parts of the circle.
        hot: the most frequent keys, the most frequent first.
    """

    now_ms: Count
    since_ms: Count
    bins: Annotated[tuple[Count, ...], Meta(max_length=SAMPLE_BINS)]
    hot: Annotated[tuple[HotKey, ...], Meta(max_length=HOT_KEYS_MAX)]


class Sample(WatchRequest[SampleReply], frozen=True, tag=70):
    """Request to a node to count the requests that it coordinates, and for the counts so far.

    A node that does not count begins. It stops after some time, so a watcher repeats the request.

    Attributes:
        seconds: the number of seconds, from now, after which the node stops counting, unless another request extends
            this.
        restart: whether to begin counting at 0 again after this reply; default: False.
    """

    seconds: Annotated[int, Meta(ge=1, le=SAMPLE_S_MAX)]
    restart: bool = False
    reply = SampleReply


class DensityReply(Reply, frozen=True, tag=181):
    """The number of records of a node in equal parts of an arc.

    Attributes:
        now_ms: the wall clock of the node at the time of the reply, in ms since 1970.
        counts: the number of records in each part, clockwise. The node need not own them.
    """

    now_ms: Count
    counts: Annotated[tuple[Count, ...], Meta(max_length=DENSITY_BINS_MAX)]


class Density(WatchRequest[DensityReply], frozen=True, tag=71):
    """Request to a node for the number of its records in parts of an arc.

    Attributes:
        arc_start, arc_end: the arc; if both are equal, the whole circle.
        bins: the number of equal parts.
    """

    arc_start: Point
    arc_end: Point
    bins: Annotated[int, Meta(ge=1, le=DENSITY_BINS_MAX)] = DENSITY_BINS_MAX
    reply = DensityReply


class EventInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An event of a node.

    Attributes:
        seq: the number of the event at its node, from 1.
        mono_ms: the time on the monotonic clock of the node, in ms.
        wall_ms: the time on the wall clock of the node, in ms since 1970.
        node: the advertised address of the node; "" if the node did not know it yet.
        vnode: the vnode that the event is about; None if it is about the node.
        kind: the class of the event in `chord.events`.
        fields: names and values of the other fields of that class. A contact `x` is given as `x_id` and `x_address`, an
            arc `x` as `x_start` and `x_end`. Points are decimal strings. Text is cut to 1,024 characters.
    """

    seq: Count
    mono_ms: Count
    wall_ms: Count
    node: Annotated[str, Meta(max_length=ADDRESS_CHARS_MAX)]
    vnode: Point | None
    kind: Text
    fields: Annotated[tuple[tuple[Text, EventValue], ...], Meta(max_length=EVENT_FIELDS_MAX)]


class GetEventsReply(Reply, frozen=True, tag=177):
    """The next events of a node.

    Attributes:
        events: the events, the oldest first; empty if there was none in time.
        latest: the number of the latest event of the node; 0 if there was none.
        dropped: the number of events after `GetEvents.after` that the node no longer keeps.
        began_ms: the wall clock at the time when the numbers of events began at 1, in ms since 1970. It changes when
            the node restarts.
        mono_ms: the monotonic clock of the node at the time of the reply, in ms.
        now_ms: the wall clock of the node at the time of the reply, in ms since 1970.
    """

    events: Annotated[tuple[EventInfo, ...], Meta(max_length=LIST_ENTRIES_MAX)]
    latest: Count
    dropped: Count
    began_ms: Count
    mono_ms: Count
    now_ms: Count


class GetEvents(WatchRequest[GetEventsReply], frozen=True, tag=67):
    """Request to a node for its events after a number: a long poll.

    Attributes:
        after: the number of the last event that the reader has. If it exceeds that of the latest event, the node has
            restarted, and returns all events that it keeps.
        wait_ms: how long the node waits for an event if it has none, in ms.
        events_max: the largest number of events to return.
    """

    after: Count = 0
    wait_ms: Annotated[int, Meta(ge=0, le=POLL_MS_MAX)] = 0
    events_max: Annotated[int, Meta(ge=1, le=LIST_ENTRIES_MAX)] = LIST_ENTRIES_MAX
    reply = GetEventsReply
    patient = True

"""Requests of a watcher, a client that observes a node, and their replies."""

from __future__ import annotations

from typing import Annotated, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from chord.ids import ADDRESS_CHARS_MAX, Point
from chord.wire.messages.base import LIST_ENTRIES_MAX, Count, Finite, Reply, Request, Text
from chord.wire.messages.node import STATUS_PARTS, Status, StatusPart

POLL_MS_MAX = 30_000
EVENT_FIELDS_MAX = 16

EventValue: TypeAlias = bool | Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)] | Finite | Text | None
"""A field of an event."""

StatusVersion: TypeAlias = Annotated[bytes, Meta(max_length=8)]

T = TypeVar("T")


class WatchRequest(Request, Generic[T], frozen=True):
    """Base class of the questions of a watcher, sent to a node; `T` is the type of the reply."""

    for_clients = True


class DescribeReply(Reply, frozen=True, tag=178):
    """The selected parts of a node's status, or the news that they are the same as before.

    Attributes:
        version: the version of these parts. It covers neither times nor ages, round-trip times and
            `VnodeInfo.rounds`.
        now_ms: the wall clock of the node as it answers, in ms since 1970.
        status: the status; the lists of parts that were not asked for are empty. None if the version is
            `Describe.unless_version`.
    """

    version: StatusVersion
    now_ms: Count
    status: Status | None


class Describe(WatchRequest[DescribeReply], frozen=True, tag=68):
    """Request to a node for parts of its status.

    Attributes:
        parts: the parts; default: all. Of the part "vnodes", "fingers" is a part of its own. All other fields of
            `Status` are always present. The version changes all the time if the part "counters" is included.
        unless_version: the version of these parts that the reader has. If it is still the same, the reply is short.
    """

    parts: Annotated[tuple[StatusPart, ...], Meta(max_length=len(STATUS_PARTS))] = STATUS_PARTS
    unless_version: StatusVersion = b""
    reply = DescribeReply


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
        events: the events, oldest first; empty if none came in time.
        latest: the number of the latest event of the node; 0 if there was none.
        dropped: the number of events after `GetEvents.after` that the node keeps no longer.
        began_ms: the wall clock when the numbers began at 1, in ms since 1970. It changes when the node restarts.
        mono_ms: the monotonic clock of the node as it answers, in ms.
        now_ms: the wall clock of the node as it answers, in ms since 1970.
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

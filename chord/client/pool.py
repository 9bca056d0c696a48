"""The connection pool of a blocking client: one or two streams to each node.

Only `chord.client.blocking` uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeAlias

from chord.client.session import Call, Outcome
from chord.client.sockets import Link
from chord.config import Limits
from chord.errors import ChordError, OtherRing, UseBulk
from chord.wire.messages import Contact, Merge, Request, StreamName, wire_bytes

LINKS_MAX = 256  # open connections kept: a crawl of a large ring must not exhaust the process's file descriptors
CLIENT_FRAME_SLACK = 256  # bytes around a value, at least: envelope, tag, key and operation id

Way: TypeAlias = tuple[str, StreamName]
"""An address, and the kind of stream to it."""


class Pool:
    """The open streams of one client.

    Args:
        limits: sizes of frames, and of requests that need the bulk stream.
        learn: callback that gets the address, circle width and ring id of each hello. It may raise `OtherRing`.
    """

    def __init__(self, limits: Limits, learn: Callable[[str, int, bytes | None], None]) -> None:
        self._limits = limits
        self._learn = learn
        self._links: dict[Way, Link] = {}

    def close(self) -> None:
        """Close all streams."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def ask(self, calls: Sequence[Call], deadline: float) -> tuple[Outcome, ...]:
        """Make calls at the same time. Returns one outcome for each, in order.

        Args:
            deadline: limit on the monotonic clock.
        """
        ways: list[Way] = [(call.address, self._stream_for(call.request)) for call in calls]
        outcomes = self._ask_over(calls, ways, deadline)
        again = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, UseBulk)]
        if again:
            on_bulk: list[Way] = [(calls[i].address, "bulk") for i in again]
            for i, outcome in zip(again, self._ask_over([calls[i] for i in again], on_bulk, deadline), strict=True):
                outcomes[i] = outcome
        return tuple(outcomes)

    def _stream_for(self, request: Request) -> StreamName:
        value = getattr(request, "value", None) or b""
        size = wire_bytes(request.record) if isinstance(request, Merge) else len(value)
        is_large = size + CLIENT_FRAME_SLACK > self._limits.bulk_from_bytes
        return "bulk" if request.bulk or is_large else "control"

    def _ask_over(self, calls: Sequence[Call], ways: Sequence[Way], deadline: float) -> list[Outcome]:
        """Open missing streams, send all requests, then wait for the replies."""
        outcomes: list[Outcome | None] = [None] * len(calls)
        failures = self.open(list(dict.fromkeys(ways)), deadline)
        sent: dict[Way, dict[int, int]] = {}
        for i, (call, way) in enumerate(zip(calls, ways, strict=True)):
            if way in failures:
                outcomes[i] = failures[way]
                continue
            try:
                vnode = call.to.id if isinstance(call.to, Contact) else None
                sent.setdefault(way, {})[self._links[way].send(call.request, vnode, deadline)] = i
            except ChordError as error:
                outcomes[i] = error
        for way, waiting in sent.items():
            for call_id, outcome in self._links[way].receive(set(waiting), deadline).items():
                outcomes[waiting[call_id]] = outcome
        assert all(outcome is not None for outcome in outcomes)
        return [outcome for outcome in outcomes if outcome is not None]

    def open(self, ways: Sequence[Way], deadline: float) -> dict[Way, ChordError]:
        """Open the streams that are missing, all at the same time. Returns the failures."""
        for way in list(self._links)[: max(0, len(self._links) + len(ways) - LINKS_MAX)]:
            if way not in ways:
                self._links.pop(way).close()
        opening: dict[Way, Link] = {}
        failures: dict[Way, ChordError] = {}
        for way in ways:
            if way not in self._links or not self._links[way].is_usable():
                opening[way] = Link(*way, self._limits)
        # A node that never sends its hello must leave time for requests to the others.
        by = deadline if len(ways) == 1 else (time.monotonic() + deadline) / 2
        for step in (Link.dial, lambda link: link.greet(by), lambda link: self._welcome(link, by)):
            for way, link in opening.items():
                if way not in failures:
                    try:
                        step(link)
                    except ChordError as error:
                        failures[way] = error
        for way, link in opening.items():
            if (old := self._links.pop(way, None)) is not None:
                old.close()
            if way not in failures:
                self._links[way] = link
        return failures

    def _welcome(self, link: Link, deadline: float) -> None:
        hello = link.hear_greeting(deadline)
        try:
            self._learn(link.address, hello.bits, hello.ring)
        except OtherRing:
            link.close()
            raise

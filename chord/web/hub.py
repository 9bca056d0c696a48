"""The stream of Server-Sent Events: one publisher, and a bounded queue for each reader.

The publisher merges all changes of a quarter of a second into one delta, and encodes each message once. It never waits:
a reader with a full queue is disconnected, and resumes with the number of its last message.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec
import trio

from chord.observe.model import RingChange
from chord.views.common import Json
from chord.views.dashboard import ring_check_json, shape_json
from chord.web.failures import HttpFailure
from chord.web.history import NumberedLine
from chord.web.phrases import event_json
from chord.web.source import LiveRing, PlayedRing, SeenState, StateOrigin

QUEUE_MAX: Final = 64
"""The largest number of messages that wait for a reader."""

CHECK_S: Final = 1.0
"""The least time between two checks, in seconds."""

CHECK_SHARE: Final = 30
"""The least time between two checks, as a multiple of the time that a check takes."""

PUBLISH_S: Final = 0.25
"""The time between two deltas, in seconds."""


class EventReader:
    """The queue of one reader of the event stream.

    Attributes:
        messages: the channel from which the reader's response takes encoded messages.
        scope: the cancel scope of that response. `put` cancels it if the queue is full.
    """

    def __init__(self) -> None:
        self._queue, self.messages = trio.open_memory_channel[bytes](QUEUE_MAX)
        self.scope = trio.CancelScope()

    def put(self, message: bytes) -> bool:
        """Append a message and return True. If the queue is full, cancel the response and return False."""
        try:
            self._queue.send_nowait(message)
        except trio.WouldBlock:
            self.scope.cancel()
            return False
        return True


class EventHub:
    """The event stream: sends each change and event of the ring to all readers, as Server-Sent Events.

    Args:
        origin: the ring. A recording does not change, so every reader gets only its first state.
        readers_max: the largest number of readers; None: no limit.
        may_write: whether the page may write keys, which the first message says.
        is_demo: whether the page may control processes, which the first message says.

    Attributes:
        readers: the connected readers.
        dropped: the number of readers that were disconnected because their queue was full.
    """

    def __init__(
        self, origin: StateOrigin, *, readers_max: int | None = None, may_write: bool = False, is_demo: bool = False
    ) -> None:
        self._origin = origin
        self._readers_max = readers_max
        self._may_do = {"write": may_write, "demo": is_demo}
        self._sent = origin.aggregator.history.latest if isinstance(origin, LiveRing) else 0
        self._shape = origin.shape
        self._checked_seq, self._check_due_s = self._sent, -inf
        self._checked: Json = {}
        self._opening = b"" if isinstance(origin, LiveRing) else self._first(None)
        self.readers: set[EventReader] = set()
        self.dropped = 0

    def join(self, last_id: int | None = None) -> EventReader:
        """Add a reader, and return its queue, which begins with the whole state or the messages since `last_id`.

        Args:
            last_id: the id of the last message that the reader has got; None: it has none. If the history no longer
                reaches back to it, the reader gets `reset` and the whole state.

        Raises:
            HttpFailure: 503: there are too many readers.
        """
        if self._readers_max is not None and len(self.readers) >= self._readers_max:
            hint = "Close a page of this dashboard, and try again"
            raise HttpFailure(503, "too_many_readers", f"{self._readers_max} readers are connected", hint)
        self.publish()
        reader = EventReader()
        reader.put(self._opening or self._first(last_id))
        self.readers.add(reader)
        return reader

    def leave(self, reader: EventReader) -> None:
        """Remove a reader. Nothing happens if it was removed before."""
        self.readers.discard(reader)

    async def run(self) -> None:
        """Call `publish` four times per second until cancelled.

        Concurrency: checkpoints.
        """
        while True:
            await trio.sleep(PUBLISH_S)
            self.publish()

    def publish(self) -> None:
        """Send all readers the changes and events since the last call.

        A message with the check of the ring follows if its result has changed.
        """
        if not isinstance(self._origin, LiveRing):
            return
        history = self._origin.aggregator.history
        if self.readers and self._origin.shape != self._shape:
            self.send(self._hello())
        self._shape = self._origin.shape
        if history.latest != self._sent:
            lines = history.since(self._sent) if self.readers else []
            self._sent = history.latest
            if lines:
                self.send(self._messages(self._origin, lines, self._sent))
        if self.readers and self._checked_seq != self._sent and self._origin.now_s >= self._check_due_s:
            began_s, self._checked_seq = self._origin.now_s, self._sent
            verdict = self._verdict()
            took_s = self._origin.now_s - began_s
            self._check_due_s = began_s + max(CHECK_S, CHECK_SHARE * took_s)  # it takes long in a large ring
            judged = {name: part for name, part in verdict.items() if name not in ("at_ms", "age_ms")}
            if judged != self._checked:
                self._checked = judged
                self.send(message("check", verdict))

    def send(self, message: bytes) -> None:
        """Append an encoded message to the queue of every reader. Readers with a full queue are removed."""
        for reader in [reader for reader in self.readers if not reader.put(message)]:
            self.readers.discard(reader)
            self.dropped += 1

    def _first(self, last_id: int | None) -> bytes:
        """Return the first message of a reader."""
        state, hello = self._state(), self._hello()
        if last_id is not None and isinstance(self._origin, LiveRing):
            missed = self._origin.aggregator.history.since(last_id)
            if missed is not None:
                return hello + self._messages(self._origin, missed, self._sent)
            hello += message("reset", {"at_ms": state.moment.at_ms})
        keyframe = state.model.keyframe()
        whole = {"seq": self._sent, "at_ms": state.moment.at_ms, "nodes": keyframe.nodes, "vnodes": keyframe.vnodes}
        whole["seen_ms"] = state.seen_ms
        return hello + message("state", whole, self._sent) + message("check", self._verdict())

    def _state(self) -> SeenState:
        """Return the latest state of a living ring, or the first state of a recording."""
        return self._origin.at(self._origin.span_ms[0] if isinstance(self._origin, PlayedRing) else None)

    def _verdict(self) -> Json:
        state = self._state()
        return ring_check_json(state.model, self._origin.shape, state.moment)

    def _hello(self) -> bytes:
        from_ms, to_ms = self._origin.span_ms
        return message("hello", {
            "ring": shape_json(self._origin.shape), "source": self._origin.kind,
            "at_ms": self._state().moment.at_ms, "from_ms": from_ms, "to_ms": to_ms, **self._may_do,
        })  # fmt: skip

    def _messages(self, origin: LiveRing, lines: list[NumberedLine], latest: int) -> bytes:
        """Return the lines as messages: one delta, and each event and fault. The last message has the number."""
        found: list[tuple[str, Json]] = []
        changes = [one.line.content for one in lines if isinstance(one.line.content, RingChange)]
        if changes:
            at_ms = origin.to_ms(max(one.line.at_s for one in lines if one.line.letter == "d"))
            found.append(("delta", {"seq": latest, "at_ms": at_ms, **msgspec.to_builtins(merged(changes))}))
        for one in lines:
            if isinstance(one.line.content, RingChange):
                continue
            at_ms = origin.to_ms(one.line.at_s)
            if one.line.letter == "e":
                shape = event_json(origin.aggregator.model, one.line.content, at_ms)
                found.append(("lookup" if shape["kind"] == "LookupDone" else "event", shape))
            elif one.line.letter == "f":
                found.append(("fault", {"at_ms": at_ms, **one.line.content}))
        last = len(found) - 1
        return b"".join(message(n, content, latest if i == last else None) for i, (n, content) in enumerate(found))


def message(name: str, content: Json, number: int | None = None) -> bytes:
    """Return one Server-Sent Event as bytes.

    Args:
        name: the name of the event, such as "delta".
        content: its data, sent as JSON.
        number: its id, which a reader sends back to resume after it; None: the event has no id.
    """
    head = f"event: {name}\n" if number is None else f"event: {name}\nid: {number}\n"
    return head.encode() + b"data: " + msgspec.json.encode(content) + b"\n\n"


def merged(changes: Iterable[RingChange]) -> RingChange:
    """Return a single change with the same effect as the given changes in order."""
    nodes: dict[str, Json] = {}
    vnodes: dict[str, Json] = {}
    gone: dict[str, None] = {}
    for change in changes:
        for name in change.gone:
            nodes.pop(name, None)
            vnodes.pop(name, None)
            gone[name] = None
        for fields, known in ((change.nodes, nodes), (change.vnodes, vnodes)):
            for name, content in fields.items():
                known[name] = {**known.get(name, {}), **content}
    return RingChange(nodes, vnodes, tuple(gone))

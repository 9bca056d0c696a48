"""The event log of a node: its latest events, numbered and with their times."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from chord.events import Emitted, Event, Observer, StepDone, VnodeEvent
from chord.ids import Arc, Contact, Point
from chord.wire.messages import TEXT_CHARS_MAX, EventInfo, EventValue


class EventLog:
    """Numbers the events of one node, passes them on to an observer, and keeps the latest.

    Args:
        events_max: the largest number of events to keep. `StepDone` is never kept.
        now: returns the monotonic clock, in seconds.
        wall_now_ms: returns the wall clock, in ms since 1970.
        observe: called with every event, also with those that are not kept.

    Attributes:
        address: the advertised address of the node; "" until the node knows it.
        began_ms: the wall clock when the log began, in ms since 1970.
        latest: the number of the latest kept event; 0 if there was none.
    """

    __slots__ = (
        "_events_max", "_kept", "_now", "_observe", "_waiting", "_wall_now_ms", "address", "began_ms", "latest",
    )  # fmt: skip

    def __init__(

        self, events_max: int, now: Callable[[], float], wall_now_ms: Callable[[], int], observe: Observer
    ) -> None:
        self.address = ""
        self.latest = 0
        self.began_ms = max(0, wall_now_ms())
        self._now = now
        self._wall_now_ms = wall_now_ms
        self._observe = observe
        self._events_max = events_max
        self._kept: dict[int, Emitted] = {}  # by number, the oldest first; an empty deque would take ten times as much
        self._waiting: dict[Callable[[], object], None] = {}

    def emit(self, event: Event) -> None:
        """Number an event, keep it, call the functions of `wait`, and pass it to the observer."""
        is_kept = type(event) is not StepDone
        if is_kept:
            self.latest += 1
        emitted = Emitted(self.latest, int(1000 * self._now()), self._wall_now_ms(), self.address, event)
        if is_kept:
            self._kept[self.latest] = emitted
            self._kept.pop(self.latest - self._events_max, None)
            for wake in self._waiting:
                wake()
        self._observe(emitted)

    def after(self, seq: int, events_max: int) -> tuple[list[Emitted], int]:
        """Return the events after a number, the oldest first, and how many of them the log no longer has.

        Args:
            seq: the number. One beyond the latest event comes from an earlier process, and counts as 0.
            events_max: the largest number of events to return.
        """
        if seq > self.latest:
            seq = 0
        first = self.latest - len(self._kept)  # the number before the oldest kept event
        begin = max(0, seq - first)
        end = min(begin + events_max, len(self._kept))
        return [self._kept[first + 1 + i] for i in range(begin, end)], max(0, first - seq)

    def wait(self, wake: Callable[[], object]) -> None:
        """Call `wake` after every further kept event, until `stop_waiting` is called with it."""
        self._waiting[wake] = None

    def stop_waiting(self, wake: Callable[[], object]) -> None:
        """Stop calling a function that was given to `wait`.

        Raises:
            KeyError: the function does not wait.
        """
        del self._waiting[wake]


def event_info(emitted: Emitted) -> EventInfo:
    """Return an event in the form in which a node sends it: with the name of its type, and fields of plain types.

    Long texts are cut to the bounds of the message.
    """
    event = emitted.event
    return EventInfo(
        emitted.seq,
        max(0, emitted.mono_ms),
        max(0, emitted.wall_ms),
        emitted.node,
        event.vnode if isinstance(event, VnodeEvent) else None,
        type(event).__name__,
        tuple(_fields(event)),
    )


def _fields(event: Event) -> Iterator[tuple[str, EventValue]]:
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if isinstance(value, Contact):
            yield f"{name}_id", str(int(value.id))
            yield f"{name}_address", value.address
        elif isinstance(value, Arc):
            yield f"{name}_start", str(int(value.start))
            yield f"{name}_end", str(int(value.end))
        elif isinstance(value, Point):
            if name != "vnode":
                yield name, str(int(value))
        elif isinstance(value, str):  # it may quote text of the operating system that UTF-8 cannot encode
            yield name, value.encode(errors="replace").decode()[:TEXT_CHARS_MAX]
        else:
            yield name, value

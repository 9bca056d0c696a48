"""A recording: the numbered events of one run, and which of them happened before which.

The recorder keeps its own vector time. So it judges clocks, cuts and barriers independently of the algorithm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

from chord.gallery.process import Name, Process, ProcessMessage

What: TypeAlias = Literal[
    "start", "ask", "send", "receive", "did", "timer", "move", "lost", "doubled", "crash", "restart"
]

_PLAIN = msgspec.json.Encoder(order="deterministic")


class RunEvent(msgspec.Struct, rename={"with_": "with"}, omit_defaults=True):
    """One event of a run.

    Attributes:
        n: its number, from 0.
        at: the virtual time in seconds; in a search, the number of the step.
        process: the process at which it happened.
        what: its kind, such as "send" or "receive". "did": the process noted that it did something (a `Did`).
        with_: the other process of a message; the name of an ask, of a timer, or of a `Did`.
        of: the number of the event that sent the message; None: this event receives, loses or doubles no message.
        message: the message, or the value of a `Did`; None: neither.
        state: the fields of the process afterwards, by name; None: the recording keeps no states.
    """

    n: int
    at: float
    process: Name
    what: What
    with_: str = ""
    of: int | None = None
    message: Any = None
    state: dict[str, Any] | None = None

    @property
    def words(self) -> str:
        """The event in words, such as "send a→b"."""
        ends = {"send": f" {self.process}→{self.with_}", "receive": f" {self.with_}→{self.process}"}
        return self.what + ends.get(self.what, f" of {self.process}")


class Recording:
    """The events of a run, in the order in which they happened.

    Attributes:
        names: the names of all processes.
        events: the events.
        stamps: for each event, how many events of each process had happened before it or are the event itself.
        has_states: whether `note_state` keeps states; laws of runs need them.
    """

    def __init__(self, names: tuple[Name, ...], *, has_states: bool = True) -> None:
        self.names = names
        self.has_states = has_states
        self.events: list[RunEvent] = []
        self.stamps: list[tuple[int, ...]] = []
        self._place = {name: place for place, name in enumerate(names)}
        self._last: list[tuple[int, ...]] = [(0,) * len(names) for _ in names]
        self._numbers: list[list[int]] = [[] for _ in names]  # the numbers of the events of each process

    def copy(self) -> Recording:
        """Return a recording with the same events, to which others can be added."""
        other = Recording(self.names, has_states=self.has_states)
        other.events, other.stamps, other._last = self.events[:], self.stamps[:], self._last[:]
        other._numbers = [numbers[:] for numbers in self._numbers]
        return other

    # -- writing ------------------------------------------------------------------------------------

    def add(self, at: float, process: Name, what: What, with_: str = "", message: Any = None, mark: int = 0) -> int:
        """Add an event, and return its mark: its number among the events of its process, from 1.

        Args:
            at: the virtual time, or the number of the step.
            process: the process at which it happens.
            what: its kind, such as "send", "receive" or "did".
            with_: the other process of a message; the name of an ask, of a timer, or of a `Did`.
            message: the message, or the value of a `Did`.
            mark: for an event with a message from `with_`, the mark of the event that sent it.
        """
        place = self._place[process]
        stamp = list(self._last[place])
        of = None
        if mark and what in ("receive", "lost", "doubled"):
            of = self._numbers[self._place[with_]][mark - 1]
            if what == "receive":
                stamp = [max(pair) for pair in zip(stamp, self.stamps[of], strict=True)]
        stamp[place] += 1
        self._last[place] = tuple(stamp)
        self._numbers[place].append(len(self.events))
        self.stamps.append(self._last[place])
        self.events.append(RunEvent(len(self.events), at, process, what, with_, of, message))
        return stamp[place]

    def note_state(self, process: Process) -> None:
        """Keep the fields of a process in its last event, unless the event has them already."""
        event = self.events[self._numbers[self._place[process.me]][-1]]
        if self.has_states and event.state is None:
            fields = process.__struct_fields__[2:]  # without `me` and `others`, which never change
            event.state = {name: msgspec.to_builtins(getattr(process, name)) for name in fields}

    # -- reading ------------------------------------------------------------------------------------

    def before(self, e: RunEvent, f: RunEvent) -> bool:
        """Return whether e happened before f. Takes O(1)."""
        place = self._place[e.process]
        return e.n != f.n and self.stamps[f.n][place] >= self.stamps[e.n][place]

    def of(self, what: str, with_: str = "") -> list[RunEvent]:
        """Return the events of a kind, such as "send". With `with_`, only those with this ask, timer, `Did` or peer."""
        return [event for event in self.events if event.what == what and (not with_ or event.with_ == with_)]

    def dids(self, what: str) -> list[RunEvent]:
        """Return the events that processes noted by `Did(what)`, in the order of the run."""
        return self.of("did", what)

    def messages(self) -> Counter[str]:
        """Return how many messages of each kind were sent, by the kind of `kind_of`."""
        return Counter(kind_of(event.message) for event in self.of("send"))

    def lines(self) -> Iterator[bytes]:
        """Yield each event as a line of JSON, without the line end."""
        for event in self.events:
            message = event.message
            plain = {"kind": kind_of(message), **_fields(message)} if isinstance(message, ProcessMessage) else message
            yield _PLAIN.encode(msgspec.structs.replace(event, message=plain))

    def histories(self) -> list[list[Any]]:
        """Return, for each process, its events in their order. The order between processes is left out.

        Two runs with equal histories differ only in the order of concurrent events. An event is a list: its kind, its
        `with_`, its message, and the vector time of the send, or False without a send.
        """
        rows: list[list[Any]] = []
        for numbers in self._numbers:
            events = [self.events[n] for n in numbers]
            rows.append([[e.what, e.with_, e.message, e.of is not None and self.stamps[e.of]] for e in events])
        return rows


def kind_of(message: ProcessMessage) -> str:
    """Return the kind of a message: the name of its class, in lower case."""
    return type(message).__name__.lower()


def words_of(message: Any) -> str:
    """Return a message as drawings show it: its kind and its fields. Return "" for None, and other values as text."""
    if not isinstance(message, ProcessMessage):
        return "" if message is None else _text(message)
    return " ".join([kind_of(message), *map(_text, _fields(message).values())])


def _fields(message: ProcessMessage) -> dict[str, Any]:
    return {name: msgspec.to_builtins(getattr(message, name)) for name in message.__struct_fields__}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return msgspec.json.encode(msgspec.to_builtins(value)).decode().replace('"', "")

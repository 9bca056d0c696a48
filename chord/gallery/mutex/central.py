"""Mutual exclusion by a coordinator (ticket 4): one process permits the entries, one after another."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import enter_after_exit, everybody_was_inside, one_inside
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send


class Request(ProcessMessage, frozen=True):
    """The sender wants to enter the critical section."""


class Ok(ProcessMessage, frozen=True):
    """The coordinator permits the entry."""


class Release(ProcessMessage, frozen=True):
    """The sender has left the critical section."""


class Coordinator(Process):
    """The process that permits the entries to the critical section, in the order of requests.

    It keeps the queue of waiting processes. The first in the queue has the permission.
    """

    queue: list[Name] = []

    def on_message(self, sender: Name, message: Request | Release) -> Effects:
        if isinstance(message, Request):
            self.queue.append(sender)
            if len(self.queue) == 1:
                yield Send(sender, Ok())
        else:
            self.queue = self.queue[1:]
            if self.queue:
                yield Send(self.queue[0], Ok())


class Client(Process):
    """A process that asks its coordinator for each entry to the critical section."""

    coordinator: Name = "a"
    left: int = 1
    is_waiting: bool = False
    is_inside: bool = False

    def asks(self) -> Sequence[str]:
        if self.is_inside:
            return ["exit"]
        return ["enter"] if self.left and not self.is_waiting else []

    def on_ask(self, ask: str) -> Effects:
        if ask == "enter":
            self.is_waiting = True
            yield Send(self.coordinator, Request())
        else:
            self.is_inside = False
            yield Did("exit")
            yield Send(self.coordinator, Release())

    def on_message(self, sender: Name, message: Ok) -> Effects:
        self.left, self.is_waiting, self.is_inside = self.left - 1, False, True
        yield Did("enter")


def one_coordinator(names: Sequence[Name]) -> Iterable[Process]:
    """Return the processes: the first name is the coordinator, the others are its clients."""
    yield Coordinator(names[0], tuple(names[1:]))
    for name in names[1:]:
        yield Client(name, tuple(other for other in names if other != name))


def two_coordinators(names: Sequence[Name]) -> Iterable[Process]:
    """Return two coordinators, a and b, and their clients. The last client asks b."""
    *others, last = one_coordinator(names)
    for process in others:
        yield Coordinator(process.me, process.others) if process.me == "b" else process
    yield Client(last.me, last.others, coordinator="b")


ENTRY = Entry(
    name="mutex-central",
    ticket=4,
    title="Mutual exclusion by a coordinator",
    make=one_coordinator,
    goal=everybody_was_inside,
    laws=(one_inside, enter_after_exit),
    small=(3, 4),
    histories=(3,),
    needs={
        "loss": Breaks(STUCK),
        "copies": Breaks("one inside", nodes=3),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(Cost("3", per="enter", formula=lambda n: 3),),
    bugs={
        "two-coordinators": Altered(
            two_coordinators, breaks="one inside", nodes=4, text="Two coordinators do not know of each other."
        )
    },
    bands=("is_inside",),
)

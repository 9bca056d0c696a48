"""Lamport's mutual exclusion (ticket 5): every process keeps the queue of all requests."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import enter_after_exit, everybody_was_inside, one_inside, smallest_ticket_first
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Request(ProcessMessage, frozen=True):
    """The sender wants to enter the critical section, with its ticket: the logical time of the request."""

    ticket: int


class Ok(ProcessMessage, frozen=True):
    """The sender has put the request of the receiver into its queue."""

    time: int


class Release(ProcessMessage, frozen=True):
    """The sender has left the critical section."""

    time: int


class LamportMutex(Process):
    """A process that enters when its own request is the first in its queue, and all others know that request."""

    left: int = 1
    clock: int = 0
    ticket: int = 0  # 0: wants nothing
    oks: int = 0
    queue: dict[Name, int] = {}  # the tickets of the others
    is_inside: bool = False

    def asks(self) -> Sequence[str]:
        if self.is_inside:
            return ["exit"]
        return ["enter"] if self.left and not self.ticket else []

    def on_ask(self, ask: str) -> Effects:
        self.clock += 1
        if ask == "enter":
            self.ticket, self.oks = self.clock, 0
            yield from self.all_others(Request(self.ticket))
            yield from self.enter_if_first()
        else:
            self.is_inside, self.ticket = False, 0
            yield Did("exit")
            yield from self.all_others(Release(self.clock))

    def on_message(self, sender: Name, message: Request | Ok | Release) -> Effects:
        time = message.ticket if isinstance(message, Request) else message.time
        self.clock = max(self.clock, time) + 1
        if isinstance(message, Request):
            self.queue[sender] = message.ticket
            yield Send(sender, Ok(self.clock))
        elif isinstance(message, Ok):
            self.oks += 1
        else:
            self.queue.pop(sender, None)
        yield from self.enter_if_first()

    def enter_if_first(self) -> Effects:
        """Enter if all others know the request, and none of theirs is before it. Names decide between equal tickets."""
        is_first = all((self.ticket, self.me) < (ticket, name) for name, ticket in self.queue.items())
        if self.ticket and not self.is_inside and is_first and self.is_known():
            self.left, self.is_inside = self.left - 1, True
            yield Did("enter", self.ticket)

    def is_known(self) -> bool:
        """Return whether all others have put the request of this process into their queues."""
        return self.oks == len(self.others)


class WithoutOks(LamportMutex):
    """A bug: the process does not wait until the others have its request."""

    def is_known(self) -> bool:
        return True


ENTRY = Entry(
    name="mutex-lamport",
    ticket=5,
    title="Mutual exclusion by Lamport",
    make=all_of(LamportMutex),
    goal=everybody_was_inside,
    laws=(one_inside, enter_after_exit, smallest_ticket_first),
    channels="fifo",
    needs={
        "order": Breaks("one inside"),
        "loss": Breaks(STUCK),
        "copies": Breaks(STUCK),
        "crash": Breaks(STUCK),
        "restart": Breaks("one inside"),
    },
    cost=(Cost("3n − 3", per="enter", formula=lambda n: 3 * n - 3),),
    bugs={
        "no-oks": Altered(
            all_of(WithoutOks), breaks="one inside", text="Without the ok, an earlier request may still be in transit."
        )
    },
    bands=("is_inside",),
)

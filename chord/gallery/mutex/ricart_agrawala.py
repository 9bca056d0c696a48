"""Ricart and Agrawala's mutual exclusion (ticket 6): an ok is the permission of one other process."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import enter_after_exit, everybody_was_inside, one_inside, smallest_ticket_first
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Request(ProcessMessage, frozen=True):
    """The sender wants to enter the critical section, with its ticket: the logical time of the request."""

    ticket: int


class Ok(ProcessMessage, frozen=True):
    """The sender permits the receiver to enter the critical section."""

    time: int


class RicartAgrawala(Process):
    """A process that answers a request at once, unless its own ticket is smaller or it is inside."""

    left: int = 1
    clock: int = 0
    ticket: int = 0  # 0: wants nothing
    oks: int = 0
    deferred: list[Name] = []
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
        else:
            self.is_inside, self.ticket = False, 0
            yield Did("exit")
            for name in self.deferred:
                yield Send(name, Ok(self.clock))
            self.deferred = []

    def on_message(self, sender: Name, message: Request | Ok) -> Effects:
        if isinstance(message, Request):
            self.clock = max(self.clock, message.ticket) + 1
            if self.ticket and self.is_before(message, sender):
                self.deferred.append(sender)
            else:
                yield Send(sender, Ok(self.clock))
        else:
            self.clock = max(self.clock, message.time) + 1
            self.oks += 1
            if self.oks == len(self.others):
                self.left, self.is_inside = self.left - 1, True
                yield Did("enter", self.ticket)

    def is_before(self, request: Request, sender: Name) -> bool:
        """Return whether this process enters before the sender of a request. Names decide between equal tickets."""
        return (self.ticket, self.me) < (request.ticket, sender)


class TicketWithoutName(RicartAgrawala):
    """A bug: with equal tickets, each process gives way to the other."""

    def is_before(self, request: Request, sender: Name) -> bool:
        return self.ticket < request.ticket


ENTRY = Entry(
    name="mutex-ricart-agrawala",
    ticket=6,
    title="Mutual exclusion by Ricart and Agrawala",
    make=all_of(RicartAgrawala),
    goal=everybody_was_inside,
    laws=(one_inside, enter_after_exit, smallest_ticket_first),
    needs={
        "loss": Breaks(STUCK),
        "copies": Breaks("one inside", nodes=3),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(Cost("2n − 2", per="enter", formula=lambda n: 2 * n - 2),),
    bugs={
        "ties": Altered(
            all_of(TicketWithoutName), breaks="one inside", text="Without names, equal tickets have no order."
        )
    },
    bands=("is_inside",),
)

"""Total order by Skeen (ticket 17): a message to some processes gets its final ticket after all of them answered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, total_order
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Request(ProcessMessage, frozen=True):
    """The sender wants to cast a message, with this preliminary ticket."""

    ticket: int


class Ok(ProcessMessage, frozen=True):
    """The sender has put the request of the receiver into its queue. `time` is its logical time."""

    time: int


class Cast(ProcessMessage, frozen=True):
    """The message, with its final ticket."""

    ticket: int


class Skeen(Process):
    """A process that delivers messages in the order of final tickets. Names of senders decide between equal ones."""

    left: int = 0  # messages that it may still cast
    receivers: list[Name] = []
    clock: int = 0
    ticket: int = 0  # the preliminary ticket of its own message
    oks: int = 0
    queue: dict[Name, int] = {}  # the preliminary or final ticket of each sender's message
    final: list[Name] = []  # the senders with messages that have their final tickets
    delivered: list[str] = []

    def asks(self) -> Sequence[str]:
        return ["cast"] if self.left else []

    def on_ask(self, ask: str) -> Effects:
        self.clock, self.left = self.clock + 1, self.left - 1
        self.ticket = self.clock
        for name in self.receivers:
            yield Did("receiver", name)
            yield Send(name, Request(self.ticket))

    def on_message(self, sender: Name, message: Request | Ok | Cast) -> Effects:
        time = message.time if isinstance(message, Ok) else message.ticket
        self.clock = max(self.clock, time) + 1
        if isinstance(message, Request):
            self.queue[sender] = message.ticket
            yield Send(sender, Ok(self.clock))
        elif isinstance(message, Ok):
            self.oks += 1
            if self.oks == len(self.receivers):
                ticket = self.final_ticket()
                for name in self.receivers:
                    yield Send(name, Cast(ticket))
        else:
            self.queue[sender] = message.ticket
            self.final.append(sender)
            yield from self.deliver()

    def final_ticket(self) -> int:
        """Return the logical time now. It is larger than the times in all oks."""
        return self.clock

    def deliver(self) -> Effects:
        """Deliver messages while the first in the queue has its final ticket."""
        while self.queue:
            first = min(self.queue, key=lambda name: (self.queue[name], name))
            if first not in self.final:
                break
            self.final.remove(first)
            del self.queue[first]
            self.delivered.append(first)
            yield Did("deliver", first)


def all_is_delivered(world: SmallWorld) -> bool:
    """Return whether all receivers have delivered all messages to their applications."""
    return not world.in_transit() and not any(process.asks() or process.queue for process in world.up())


class KeepsTicket(Skeen):
    """A bug: the final ticket is the preliminary one, not the largest."""

    def final_ticket(self) -> int:
        return self.ticket


def two_senders(kind: Callable[..., Process]) -> Make:
    """Return a function that makes processes of the class `kind`. The first two send to all others.

    In a world of six or more processes, the second does not send to the last.
    """

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for place, name in enumerate(names):
            others = tuple(other for other in names if other != name)
            receivers = list(names[2:] if place == 0 or len(names) < 6 else names[2:-1]) if place < 2 else []
            yield kind(name, others, left=int(place < 2), receivers=receivers)

    return make


ENTRY = Entry(
    name="order-skeen",
    ticket=17,
    title="Total order by Skeen",
    make=two_senders(Skeen),
    goal=all_is_delivered,
    laws=(total_order,),
    small=(4, 5),
    histories=(),
    sizes=(4, 8),
    needs={
        "loss": Breaks(STUCK, nodes=4),
        "copies": Breaks("total order", nodes=4),
        "crash": Breaks(STUCK, nodes=4),
        "restart": Breaks(STUCK, nodes=4),
    },
    cost=(Cost("3", per="receiver", formula=lambda n: 3),),
    bugs={
        "keeps-ticket": Altered(
            two_senders(KeepsTicket),
            breaks="total order",
            text="A later message with a smaller ticket may arrive after the delivery.",
            nodes=4,
        )
    },
)

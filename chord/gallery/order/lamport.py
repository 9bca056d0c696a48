"""Total order by Lamport (ticket 16): messages have tickets, as the requests of his mutual exclusion."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, total_order
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Request(ProcessMessage, frozen=True):
    """The sender wants to cast a message, with this ticket."""

    ticket: int


class Ok(ProcessMessage, frozen=True):
    """The sender has put the request of the receiver into its queue."""

    time: int


class Cast(ProcessMessage, frozen=True):
    """The message itself. The sender announced it by a request before."""

    time: int


class LamportOrder(Process):
    """A process that delivers messages in the order of their tickets. Names decide between equal tickets."""

    left: int = 1  # messages that it may still cast
    clock: int = 0
    queue: dict[Name, int] = {}  # the tickets of messages that it has not delivered, by sender
    arrived: list[Name] = []  # the senders in the queue with messages that are here
    oks: int = 0
    delivered: list[str] = []

    def asks(self) -> Sequence[str]:
        return ["cast"] if self.left else []

    def on_ask(self, ask: str) -> Effects:
        self.clock, self.left = self.clock + 1, self.left - 1
        self.queue[self.me] = self.clock
        yield Did("cast", self.clock)
        yield from self.all_others(Request(self.clock))
        yield from self.work_on_queue()

    def on_message(self, sender: Name, message: Request | Ok | Cast) -> Effects:
        time = message.ticket if isinstance(message, Request) else message.time
        self.clock = max(self.clock, time) + 1
        if isinstance(message, Request):
            self.queue[sender] = message.ticket
            yield Send(sender, Ok(self.clock))
        elif isinstance(message, Ok):
            self.oks += 1
        else:
            self.arrived.append(sender)
        yield from self.work_on_queue()

    def work_on_queue(self) -> Effects:
        """Send this process's own message if it may be sent now. Deliver all messages that are first in the queue."""
        if self.me in self.queue and self.me not in self.arrived and self.may_send():
            self.arrived.append(self.me)
            yield from self.all_others(Cast(self.clock))
        if self.queue and (first := self.first()) in self.arrived:
            self.arrived.remove(first)
            self.delivered.append(f"{first}{self.queue.pop(first)}")
            yield Did("deliver", self.delivered[-1])
            yield from self.work_on_queue()

    def first(self) -> Name:
        """Return the sender of the first request in the queue."""
        return min(self.queue, key=lambda name: (self.queue[name], name))

    def may_send(self) -> bool:
        """Return whether all others know the request of this process, and it is the first in the queue."""
        return self.oks == len(self.others) and self.first() == self.me


def all_is_delivered(world: SmallWorld) -> bool:
    """Return whether all processes have cast and delivered all messages."""
    return not world.in_transit() and not any(process.left or process.queue for process in world.up())


class WithoutOks(LamportOrder):
    """A bug: a process does not wait until the others have its request."""

    def may_send(self) -> bool:
        return self.first() == self.me


class SendsAtOnce(LamportOrder):
    """The printed form: a process sends as soon as it has all oks. It does not wait for earlier messages."""

    def may_send(self) -> bool:
        return self.oks == len(self.others)


def three_cast(kind: Callable[..., Process]) -> Make:
    """Return a function that makes processes of the class `kind`. The first three cast a message each."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for place, name in enumerate(names):
            yield kind(name, tuple(other for other in names if other != name), left=int(place < 3))

    return make


ENTRY = Entry(
    name="order-lamport",
    ticket=16,
    title="Total order by Lamport",
    make=three_cast(LamportOrder),
    goal=all_is_delivered,
    laws=(total_order,),
    histories=(),
    channels="fifo",
    needs={
        "order": Breaks("total order", nodes=3),
        "loss": Breaks(STUCK),
        "copies": Breaks(STUCK),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(Cost("3(n − 1)", per="cast", formula=lambda n: 3 * (n - 1)),),
    bugs={
        "no-oks": Altered(
            three_cast(WithoutOks), breaks="total order", text="Without the ok, an earlier request may be in transit."
        )
    },
    printed={
        "sends-at-once": Altered(
            three_cast(SendsAtOnce),
            breaks="total order",
            text="A receiver may not have the request of an earlier message, although the sender has it.",
            nodes=3,
        )
    },
)

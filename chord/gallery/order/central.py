"""Total order by a coordinator (ticket 16): it sends all messages on, in one order."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import Recording, SmallWorld, law_of_runs, total_order, value_of
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Cast(ProcessMessage, frozen=True):
    """The coordinator is to send this message to all processes."""

    text: str


class Ordered(ProcessMessage, frozen=True):
    """The next message in the common order."""

    text: str


class CentralOrder(Process):
    """A process that delivers what process a sends. Process a coordinates, and casts nothing itself."""

    casts: int = 0  # the messages that it has cast
    delivered: list[str] = []

    def asks(self) -> Sequence[str]:
        return ["cast"] if self.casts < 2 and self.me in ("b", "c") else []

    def on_ask(self, ask: str) -> Effects:
        self.casts += 1
        text = f"{self.me}{self.casts}"
        yield Did("cast", text)
        yield from self.cast(text)

    def cast(self, text: str) -> Effects:
        """Hand a message to the coordinator."""
        yield Send("a", Cast(text))

    def on_message(self, sender: Name, message: Cast | Ordered) -> Effects:
        if isinstance(message, Cast):
            yield from self.all_others(Ordered(message.text))
        yield from self.deliver(message.text)

    def deliver(self, text: str) -> Effects:
        """Deliver a message: append it to those that this process has delivered."""
        self.delivered.append(text)
        yield Did("deliver", text)


def all_is_delivered(world: SmallWorld) -> bool:
    """Return whether all processes have cast and delivered all messages."""
    casts = sum(process.casts for process in world.processes.values())
    return all(len(process.delivered) == casts and not process.asks() for process in world.up())


@law_of_runs("causal order", ticket=16)
def causal_order(run: Recording) -> str:
    """If one message is cast before another, no process delivers the other first."""
    casts = run.dids("cast")
    for one, other in ((e, f) for e in casts for f in casts if run.before(e, f)):
        for event in run.dids("deliver"):
            if event.message == other.message and one.message not in value_of(event, "delivered"):
                return f"{event.process} delivers {other.message} without {one.message}, which was cast before"
    return ""


class OwnFirst(CentralOrder):
    """A bug: a process delivers its own messages at once."""

    def cast(self, text: str) -> Effects:
        yield from self.deliver(text)
        yield from super().cast(text)

    def deliver(self, text: str) -> Effects:
        return super().deliver(text) if text not in self.delivered else ()


ENTRY = Entry(
    name="order-central",
    ticket=16,
    title="Total order by a coordinator",
    make=all_of(CentralOrder),
    goal=all_is_delivered,
    laws=(total_order, causal_order),
    channels="fifo",
    needs={
        "order": Breaks("total order"),
        "loss": Breaks(STUCK),
        "copies": Breaks("total order"),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(Cost("n", per="cast", formula=lambda n: n),),
    bugs={
        "own-first": Altered(
            all_of(OwnFirst), breaks="total order", text="Another message may be earlier in the common order.", nodes=3
        )
    },
)

"""Gossip (course notes on sharding): processes exchange all that they know, until all know all."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import Recording, SmallWorld, law_of_runs
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Exchange(ProcessMessage, frozen=True):
    """The rumours that the sender knows. It asks for those of the receiver."""

    known: list[Name]


class Answer(ProcessMessage, frozen=True):
    """The rumours that the sender knows."""

    known: list[Name]


class Gossip(Process):
    """A process that begins with a rumour of its own, and asks others until it knows all rumours.

    In a run on virtual time, the environment draws the process to ask.
    """

    stable = ("known",)
    known: list[Name] = []
    is_waiting: bool = False  # for an answer

    def asks(self) -> Sequence[str]:
        is_done = self.is_waiting or len(self.known) == len(self.others) + 1
        return [] if is_done else [f"ask {name}" for name in self.others]

    def on_start(self) -> Effects:
        yield from self.learn([self.me])

    def on_ask(self, ask: str) -> Effects:
        self.is_waiting = True
        yield Did("exchange")
        yield Send(ask.split()[1], Exchange(list(self.known)))

    def on_message(self, sender: Name, message: Exchange | Answer) -> Effects:
        yield from self.learn(message.known)
        if isinstance(message, Answer):
            self.is_waiting = False
        else:
            yield from self.answer(sender)

    def answer(self, name: Name) -> Effects:
        """Tell another process all rumours."""
        yield Send(name, Answer(list(self.known)))

    def learn(self, rumours: Sequence[Name]) -> Effects:
        """Add rumours to those that are known."""
        self.known = sorted({*self.known, *rumours})
        yield Did("know", list(self.known))


def all_know_all(world: SmallWorld) -> bool:
    """Return whether each process that is up knows the rumours of all of them."""
    names = {process.me for process in world.up()}
    return all(names <= {*process.known} for process in world.up())


@law_of_runs("rumours spread", ticket=0)
def rumours_spread(run: Recording) -> str:
    """At every event, a process knows exactly the rumours that began causally before the event."""
    for know in run.dids("know"):
        before = sorted(e.process for e in run.of("start") if run.before(e, know))
        if before != know.message:
            return f"{know.process} knows {', '.join(know.message)}, and could know {', '.join(before)}"
    return ""


class Silent(Gossip):
    """A bug: a process that knows all rumours does not answer any more."""

    def answer(self, name: Name) -> Effects:
        return super().answer(name) if self.asks() or self.is_waiting else ()


ENTRY = Entry(
    name="order-gossip",
    ticket=0,
    title="Gossip",
    make=all_of(Gossip),
    goal=all_know_all,
    laws=(rumours_spread,),
    tolerates=("copies",),
    needs={"crash": Breaks(STUCK, nodes=3), "loss": Breaks(STUCK), "restart": Breaks(STUCK, nodes=3)},
    cost=(
        Cost("2", per="exchange", formula=lambda n: 2),
        Cost("O(log n) rounds of 2n", per="run", formula=lambda n: 2 * n * (ceil(log2(n)) + 2), is_exact=False),
    ),
    bugs={"silent": Altered(all_of(Silent), breaks=STUCK, text="Others still wait for its rumours.")},
)

"""Direct-dependency clocks (ticket 3): vector clocks that send only the number of their own process."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import Altered, Breaks, Entry
from chord.gallery.laws import Recording, RunEvent, SmallWorld, law_of_runs, times_of, value_of
from chord.gallery.process import Effects, Name, Process, ProcessMessage, Send, all_of


class Letter(ProcessMessage, frozen=True):
    """A message with the number of events of its sender."""

    number: int


class DirectClock(Process):
    """A process that counts its own events, and knows the numbers of the processes that sent it a message."""

    left: int = 1
    time: dict[Name, int] = {}

    def asks(self) -> Sequence[str]:
        return [f"send to {name}" for name in self.others] if self.left else []

    def on_ask(self, ask: str) -> Effects:
        self.left -= 1
        self.tick()
        yield Send(ask.split()[-1], Letter(self.time[self.me]))

    def on_message(self, sender: Name, message: Letter) -> Effects:
        self.time[sender] = max(self.time.get(sender, 0), message.number)
        self.tick()
        return ()

    def tick(self) -> None:
        """Count an event of this process."""
        self.time[self.me] = self.time.get(self.me, 0) + 1


def all_sent(world: SmallWorld) -> bool:
    """Return whether every process sent all its letters, and all of them arrived."""
    return not world.in_transit() and not any(process.left for process in world.up())


def depends_directly(run: Recording, e: RunEvent, f: RunEvent) -> bool:
    """Return whether f depends on e without a third process.

    Either e is before f in one process, or a message was sent at e or later, and received at f or earlier.
    """
    if e.process == f.process:
        return e.n < f.n
    arrivals = [r for r in run.of("receive", e.process) if r.process == f.process and r.n <= f.n]
    return any(arrival.of is not None and arrival.of >= e.n for arrival in arrivals)


def events_of(run: Recording) -> list[RunEvent]:
    """Return the sends and the receives of a run."""
    return run.of("send") + run.of("receive")


@law_of_runs("own component reflects dependency", ticket=3)
def own_component(run: Recording) -> str:
    """An event f depends directly on e if and only if f knows the number of e in the process of e."""
    for e in events_of(run):
        for f in events_of(run):
            knows = value_of(f, "time").get(e.process, 0) >= value_of(e, "time")[e.process]
            if e.n != f.n and knows != depends_directly(run, e, f):
                return f"{f.words} {'knows' if knows else 'does not know'} the number of {e.words}: wrong"
    return ""


@law_of_runs("whole vectors reflect dependency", ticket=3)
def whole_vectors(run: Recording) -> str:
    """An event f depends directly on e if and only if the whole vector of e is less than that of f, as printed."""
    for e in events_of(run):
        for f in events_of(run):
            one, other = value_of(e, "time"), value_of(f, "time")
            is_less = one != other and all(one[name] <= other.get(name, 0) for name in one)
            if e.n != f.n and is_less != depends_directly(run, e, f):
                depends = "does not depend" if is_less else "depends"
                return f"{f.words} {depends} directly on {e.words}, but the times are {times_of(e, f)}"
    return ""


ENTRY = Entry(
    name="clocks-direct",
    ticket=3,
    title="Direct-dependency clocks",
    make=all_of(DirectClock),
    goal=all_sent,
    laws=(own_component,),
    tolerates=("loss", "copies", "crash"),
    histories=(2, 3),
    needs={"restart": Breaks("own component reflects dependency")},
    printed={
        "whole-vectors": Altered(
            all_of(DirectClock),
            breaks="whole vectors reflect dependency",
            nodes=3,
            laws=(whole_vectors,),
            text="The sender knows numbers of third processes that it does not send.",
        )
    },
)

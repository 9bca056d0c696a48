"""Lamport's logical clocks (ticket 1): a counter in each process that grows along happens-before."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import Altered, Breaks, Entry
from chord.gallery.laws import Recording, RunEvent, SmallWorld, law_of_runs, value_of
from chord.gallery.process import Effects, Name, Process, ProcessMessage, Send, all_of


class Letter(ProcessMessage, frozen=True):
    """A message with the time of its sender."""

    time: int


class LamportClock(Process):
    """A process that counts its events, and runs ahead of all messages that it received."""

    left: int = 2
    clock: int = 0

    def asks(self) -> Sequence[str]:
        return [f"send to {name}" for name in self.others] if self.left else []

    def on_ask(self, ask: str) -> Effects:
        self.left -= 1
        self.clock += 1  # the time before the send ends
        yield Send(ask.split()[-1], Letter(self.clock))

    def on_message(self, sender: Name, message: Letter) -> Effects:
        self.clock = max(self.clock, message.time) + 1
        return ()


def all_sent(world: SmallWorld) -> bool:
    """Return whether every process sent all its letters, and all of them arrived."""
    return not world.in_transit() and not any(process.left for process in world.up())


@law_of_runs("clocks grow", ticket=1)
def clocks_grow(run: Recording) -> str:
    """If an event e happens before an event f, then C(e) < C(f): its clock is smaller."""
    events = run.of("send") + run.of("receive")
    for f in events:
        for e in events:
            if run.before(e, f) and value_of(e, "clock") >= value_of(f, "clock"):
                clocks = f"{value_of(e, 'clock')} and {value_of(f, 'clock')}"
                return f"{e.words} happens before {f.words}, but the clocks are {clocks}"
    return ""


@law_of_runs("times differ", ticket=1)
def times_differ(run: Recording) -> str:
    """No two events have the same time."""
    times: dict[int, RunEvent] = {}
    for event in run.of("send") + run.of("receive"):
        other = times.setdefault(value_of(event, "clock"), event)
        if other is not event:
            return f"{other.words} and {event.words} have the time {value_of(event, 'clock')}"
    return ""


class IgnoresMessages(LamportClock):
    """A bug: the receiver does not take the maximum."""

    def on_message(self, sender: Name, message: Letter) -> Effects:
        self.clock += 1
        return ()


ENTRY = Entry(
    name="clocks-lamport",
    ticket=1,
    title="Lamport's logical clocks",
    make=all_of(LamportClock),
    goal=all_sent,
    laws=(clocks_grow,),
    small=(2,),
    tolerates=("loss", "copies", "crash"),
    needs={"restart": Breaks("clocks grow")},
    bugs={
        "no-maximum": Altered(
            all_of(IgnoresMessages), breaks="clocks grow", text="The receive must be later than the send."
        )
    },
    refuted=(times_differ,),
)

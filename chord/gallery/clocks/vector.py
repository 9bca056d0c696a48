"""Vector clocks (ticket 2): a counter for each process, so that times compare exactly as happens-before."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import Altered, Breaks, Entry
from chord.gallery.laws import Recording, RunEvent, SmallWorld, law_of_runs, times_of, value_of
from chord.gallery.process import Effects, Name, Process, ProcessMessage, Send, all_of


class Letter(ProcessMessage, frozen=True):
    """A message with the vector time of its sender."""

    time: dict[Name, int]


class VectorClock(Process):
    """A process that counts its own events, and knows how many events of the others happened before."""

    left: int = 1
    time: dict[Name, int] = {}

    def asks(self) -> Sequence[str]:
        return [f"send to {name}" for name in self.others] if self.left else []

    def on_ask(self, ask: str) -> Effects:
        self.left -= 1
        self.tick()
        yield Send(ask.split()[-1], Letter(dict(self.time)))

    def on_message(self, sender: Name, message: Letter) -> Effects:
        names = {*self.time, *message.time}
        self.time = {name: max(self.time.get(name, 0), message.time.get(name, 0)) for name in sorted(names)}
        self.after_receive()
        return ()

    def after_receive(self) -> None:
        """Count the receive, too: it is an event of this process."""
        self.tick()

    def tick(self) -> None:
        """Count an event of this process."""
        self.time[self.me] = self.time.get(self.me, 0) + 1


def all_sent(world: SmallWorld) -> bool:
    """Return whether every process sent all its letters, and all of them arrived."""
    return not world.in_transit() and not any(process.left for process in world.up())


def is_less(e: RunEvent, f: RunEvent) -> bool:
    """Return whether VC(e) < VC(f), for the vector times of two events: no component is larger, one is smaller."""
    one, other = value_of(e, "time"), value_of(f, "time")
    names = {*one, *other}
    return one != other and all(one.get(name, 0) <= other.get(name, 0) for name in names)


def events_of(run: Recording) -> list[RunEvent]:
    """Return the sends and the receives of a run."""
    return run.of("send") + run.of("receive")


@law_of_runs("times reflect happens-before", ticket=2)
def times_reflect(run: Recording) -> str:
    """An event e happens before f if and only if VC(e) < VC(f)."""
    events = events_of(run)
    for e in events:
        for f in events:
            if e.n != f.n and run.before(e, f) != is_less(e, f):
                happens = "happens" if run.before(e, f) else "does not happen"
                return f"{e.words} {happens} before {f.words}, but the times are {times_of(e, f)}"
    return ""


@law_of_runs("times differ", ticket=2)
def times_differ(run: Recording) -> str:
    """No two events have the same time."""
    seen: dict[str, RunEvent] = {}
    for event in events_of(run):
        other = seen.setdefault(str(sorted(value_of(event, "time").items())), event)
        if other is not event:
            return f"{other.words} and {event.words} have the same time"
    return ""


@law_of_runs("two components suffice", ticket=2)
def two_components(run: Recording) -> str:
    """It is enough to compare VC(e) and VC(f) in the components of the processes of e and f."""
    events = events_of(run)
    for e in events:
        for f in events:
            names = {e.process, f.process}
            one, other = ([value_of(event, "time").get(name, 0) for name in sorted(names)] for event in (e, f))
            is_smaller = one != other and all(a <= b for a, b in zip(one, other, strict=True))
            if e.n != f.n and run.before(e, f) != is_smaller:
                return f"the components of {' and '.join(sorted(names))} disagree for {e.words} and {f.words}"
    return ""


class NoTickAtReceive(VectorClock):
    """The printed form: a receive only takes the maximum, and has the time of the event before it."""

    def after_receive(self) -> None:
        pass


ENTRY = Entry(
    name="clocks-vector",
    ticket=2,
    title="Vector clocks",
    make=all_of(VectorClock),
    goal=all_sent,
    laws=(times_reflect, times_differ, two_components),
    tolerates=("loss", "copies", "crash"),
    histories=(2, 3),
    needs={"restart": Breaks("times reflect happens-before")},
    printed={
        "no-tick": Altered(
            all_of(NoTickAtReceive),
            breaks="times reflect happens-before",
            text="A receive without a tick has the time of another event.",
        )
    },
)

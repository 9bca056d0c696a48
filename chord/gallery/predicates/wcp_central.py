"""A weak conjunctive predicate, found by a coordinator (ticket 12).

It holds if, on some consistent cut, the local predicate of every process is true. It need not be stable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, alarm_is_right
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Note(ProcessMessage, frozen=True):
    """A message of the underlying computation, with the vector time of its send."""

    clock: dict[Name, int]


class Report(ProcessMessage, frozen=True):
    """The local predicate of the sender was true at this vector time."""

    clock: dict[Name, int]


class Watched(Process):
    """A process of the computation. Its local predicate is true from an event "true" until its next event."""

    left: int = 1  # notes that it may still send
    trues: int = 1  # how often its predicate may still become true
    clock: dict[Name, int] = {}

    def asks(self) -> Sequence[str]:
        notes = [f"note {name}" for name in self.others if name != "a" and self.left]
        return [*notes, *(["true"] if self.trues else [])]

    def on_ask(self, ask: str) -> Effects:
        self.tick()
        if ask == "true":
            self.trues -= 1
            yield Did("true", dict(self.clock))
            yield Send("a", Report(dict(self.clock)))
        else:
            self.left -= 1
            yield Send(ask.split()[1], Note(dict(self.clock)))

    def on_message(self, sender: Name, message: Note) -> Effects:
        for name, count in message.clock.items():
            self.clock[name] = max(count, self.clock.get(name, 0))
        self.tick()
        return ()

    def tick(self) -> None:
        """Count an event of this process."""
        self.clock[self.me] = self.clock.get(self.me, 0) + 1


class Coordinator(Process):
    """The process that looks for a consistent cut.

    A process is green while its candidate can be part of the cut. The coordinator needs a new one of each red process.
    """

    candidates: dict[Name, dict[Name, int]] = {}  # the candidate cut: a vector time of each process
    green: list[Name] = []  # the processes with a candidate that can be part of a consistent cut
    queues: dict[Name, list[dict[Name, int]]] = {}
    is_alarmed: bool = False

    def on_message(self, sender: Name, message: Report) -> Effects:
        self.queues.setdefault(sender, []).append(message.clock)
        while red := next((name for name, queue in self.queues.items() if queue and name not in self.green), ""):
            self.try_candidate(red, self.queues[red].pop(0))
        if len(self.green) == len(self.others) and not self.is_alarmed:
            self.is_alarmed = True
            yield Did("alarm")

    def try_candidate(self, name: Name, clock: dict[Name, int]) -> None:
        """Compare a new candidate of a process with the green ones. If one happened before another, it turns red."""
        self.candidates[name] = clock
        self.green = [other for other in self.green if clock.get(other, 0) < self.candidates[other][other]]
        if not self.is_too_early(name, clock):
            self.green = sorted([*self.green, name])

    def is_too_early(self, name: Name, clock: dict[Name, int]) -> bool:
        """Return whether a candidate happened before a green candidate of another process."""
        return any(self.candidates[other].get(name, 0) >= clock[name] for other in self.green)


def all_is_reported(world: SmallWorld) -> bool:
    """Return whether all processes are done, and no message is in transit."""
    return not world.in_transit() and not any(getattr(process, "trues", 0) for process in world.up())


class NewcomerIsGreen(Coordinator):
    """The printed form: after the comparison, the process with the new candidate turns green in any case."""

    def is_too_early(self, name: Name, clock: dict[Name, int]) -> bool:
        return False


def with_coordinator(kind: Callable[..., Coordinator]) -> Make:
    """Return a function that makes process a, a coordinator of the class `kind`, and the processes that it watches."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for name in names:
            others = tuple(other for other in names if other != name)
            yield kind(name, others) if name == "a" else Watched(name, others, trues=2 if name == "b" else 1)

    return make


ENTRY = Entry(
    name="predicates-wcp-central",
    ticket=12,
    title="A weak conjunctive predicate, with a coordinator",
    make=with_coordinator(Coordinator),
    goal=all_is_reported,
    laws=(alarm_is_right,),
    small=(3,),
    histories=(3,),
    sizes=(3, 8),
    channels="fifo",
    tolerates=("copies",),
    needs={fault: Breaks("alarm is right", nodes=3) for fault in ("order", "loss", "crash", "restart")},
    cost=(Cost("1", per="true", formula=lambda n: 1, kinds=("report",)),),
    printed={
        "newcomer-is-green": Altered(
            with_coordinator(NewcomerIsGreen),
            breaks="alarm is right",
            text="The newcomer itself may be the earlier of two comparable candidates.",
            nodes=3,
        )
    },
)

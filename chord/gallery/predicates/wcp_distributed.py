"""A weak conjunctive predicate, found by a coordinator of each process (ticket 13): a token carries the cut."""

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


class Token(ProcessMessage, frozen=True):
    """The candidate cut, and the processes with candidates that can be part of a consistent cut."""

    candidates: dict[Name, dict[Name, int]]
    green: list[Name]


class Watched(Process):
    """A process of the computation. Its local predicate is true from an event "true" until its next event."""

    coordinators: dict[Name, Name] = {}  # of each process with a predicate
    left: int = 1  # notes that it may still send
    trues: int = 1  # how often its predicate may still become true
    clock: dict[Name, int] = {}

    def asks(self) -> Sequence[str]:
        peers = [name for name in self.others if name not in self.coordinators.values()]
        return [*(f"note {name}" for name in peers if self.left), *(["true"] if self.trues else [])]

    def on_ask(self, ask: str) -> Effects:
        self.tick()
        if ask == "true":
            self.trues -= 1
            yield Did("true", dict(self.clock))
            yield Send(self.coordinators[self.me], Report(dict(self.clock)))
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


class OwnCoordinator(Process):
    """The coordinator of one process. It works on the candidate cut while it has the token."""

    coordinators: dict[Name, Name] = {}
    mine: Name = ""  # the process that it watches
    queue: list[dict[Name, int]] = []
    token: Token | None = None
    is_alarmed: bool = False

    def on_message(self, sender: Name, message: Report | Token) -> Effects:
        if isinstance(message, Report):
            self.queue.append(message.clock)
        else:
            self.token = message
        while self.token and self.mine not in self.token.green and self.queue:
            self.token = self.with_candidate(self.token, self.queue.pop(0))
        if self.token and self.mine in self.token.green and not self.is_alarmed:
            red = next((name for name in self.coordinators if name not in self.token.green), None)
            if red is None:
                self.is_alarmed = True
                yield Did("alarm")
            else:
                yield Send(self.coordinators[red], self.token)
                self.token = None

    def with_candidate(self, token: Token, clock: dict[Name, int]) -> Token:
        """Return the token with a new candidate. If a candidate happened before another, its process is not green."""
        green = [other for other in token.green if clock.get(other, 0) < token.candidates[other][other]]
        if not self.is_too_early(clock, [token.candidates[other] for other in green]):
            green = sorted([*green, self.mine])
        return Token({**token.candidates, self.mine: clock}, green)

    def is_too_early(self, clock: dict[Name, int], green: Sequence[dict[Name, int]]) -> bool:
        """Return whether a candidate happened before a green candidate of another process."""
        return any(other.get(self.mine, 0) >= clock[self.mine] for other in green)


def all_is_reported(world: SmallWorld) -> bool:
    """Return whether all processes are done, and no message is in transit."""
    return not world.in_transit() and not any(getattr(process, "trues", 0) for process in world.up())


class NewcomerIsGreen(OwnCoordinator):
    """The printed form: after the comparison, the process with the new candidate turns green in any case."""

    def is_too_early(self, clock: dict[Name, int], green: Sequence[dict[Name, int]]) -> bool:
        return False


def in_pairs(kind: Callable[..., OwnCoordinator]) -> Make:
    """Return a function that makes processes, and a coordinator of the class `kind` for each in the first half."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        owners = dict(zip(names[: len(names) // 2], names[len(names) // 2 :], strict=False))
        for name in names:
            others = tuple(other for other in names if other != name)
            mine = next((owner for owner, coordinator in owners.items() if coordinator == name), "")
            if mine:
                yield kind(name, others, owners, mine, token=Token({}, []) if mine == "a" else None)
            else:
                yield Watched(name, others, owners, left=int(name != "a"), trues=2 * (name in owners))

    return make


ENTRY = Entry(
    name="predicates-wcp-distributed",
    ticket=13,
    title="A weak conjunctive predicate, with a token",
    make=in_pairs(OwnCoordinator),
    goal=all_is_reported,
    laws=(alarm_is_right,),
    small=(4,),
    histories=(4,),
    sizes=(4, 8),
    channels="fifo",
    needs={fault: Breaks("alarm is right", nodes=4) for fault in ("order", "loss", "crash", "restart")},
    tolerates=("copies",),
    cost=(Cost("1", per="true", formula=lambda n: 1, kinds=("report",)),),
    printed={
        "newcomer-is-green": Altered(
            in_pairs(NewcomerIsGreen), breaks="alarm is right", text="The newcomer may be the earlier one.", nodes=4
        )
    },
)

"""Mutual exclusion by dining philosophers (ticket 7): a fork for each pair, and an order that never has a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, enter_after_exit, everybody_was_inside, law_of_worlds, one_inside
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Request(ProcessMessage, frozen=True):
    """The sender wants the fork that it shares with the receiver."""


class Fork(ProcessMessage, frozen=True):
    """The fork that sender and receiver share, washed."""


class Philosopher(Process):
    """A process that enters the critical section while it has the forks of all pairs that it belongs to."""

    left: int = 2
    forks: dict[Name, bool] = {}  # for each fork that it has, by the other process: whether it is dirty
    wanted: list[Name] = []  # the processes that wait for a fork from it
    is_hungry: bool = False
    is_inside: bool = False

    def asks(self) -> Sequence[str]:
        if self.is_inside:
            return ["exit"]
        return ["enter"] if self.left and not self.is_hungry else []

    def on_ask(self, ask: str) -> Effects:
        if ask == "enter":
            self.is_hungry = True
            for name in self.others:
                if name not in self.forks:
                    yield Send(name, Request())
            yield from self.enter_with_all_forks()
        else:
            self.is_inside = False
            yield Did("exit")
            self.forks = dict.fromkeys(self.forks, True)
            waiting, self.wanted = self.wanted, []
            for name in waiting:
                yield from self.give(name)

    def on_message(self, sender: Name, message: Request | Fork) -> Effects:
        if isinstance(message, Fork):
            self.forks[sender] = False
            yield from self.enter_with_all_forks()
        elif sender not in self.forks or self.is_inside or self.keeps(sender):
            self.wanted.append(sender)
        else:
            yield from self.give(sender)
            if self.is_hungry:
                yield Send(sender, Request())

    def keeps(self, name: Name) -> bool:
        """Return whether this process keeps the fork that it shares with another one: if it is hungry, a clean one."""
        return self.is_hungry and not self.forks[name]

    def give(self, name: Name) -> Effects:
        """Wash the fork that this process shares with another one, and send it there."""
        del self.forks[name]
        yield Send(name, Fork())

    def enter_with_all_forks(self) -> Effects:
        """Enter if no fork is missing."""
        if self.is_hungry and len(self.forks) == len(self.others):
            self.left, self.is_hungry, self.is_inside = self.left - 1, False, True
            yield Did("enter")


@law_of_worlds("forks acyclic", ticket=7)
def forks_acyclic(world: SmallWorld) -> str:
    """The graph of forks has no cycle: a clean fork points from its owner, a dirty one to its owner."""
    before: dict[Name, set[Name]] = {name: set() for name in world.processes}  # the processes that go first
    for process in world.processes.values():
        for other, is_dirty in process.forks.items():
            before[process.me if is_dirty else other].add(other if is_dirty else process.me)
    for channel, parcels in world.channels.items():
        sender, receiver = channel.split("→")
        if any(isinstance(parcel.message, Fork) for parcel in parcels):
            before[sender].add(receiver)
    while sources := [name for name, firsts in before.items() if not firsts & before.keys()]:
        for name in sources:
            del before[name]
    return f"{', '.join(before)} wait for each other" if before else ""


def made(kind: Callable[..., Process], has_cycle: bool = False) -> Make:
    """Return a function that makes philosophers of the class `kind`, with dirty forks.

    Each pair's fork is at the smaller name. With `has_cycle`, the fork of the first and the last is at the last.
    """

    def make(names: Sequence[Name]) -> Iterable[Process]:
        forks: dict[Name, dict[Name, bool]] = {name: {} for name in names}
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                is_turned = has_cycle and (one, other) == (names[0], names[-1])
                forks[other if is_turned else one][one if is_turned else other] = True
        for name in names:
            yield kind(name, tuple(other for other in names if other != name), forks=forks[name])

    return make


class KeepsDirtyForks(Philosopher):
    """A bug: a hungry process keeps dirty forks, too."""

    def keeps(self, name: Name) -> bool:
        return self.is_hungry


ENTRY = Entry(
    name="mutex-philosophers",
    ticket=7,
    title="Mutual exclusion by dining philosophers",
    make=made(Philosopher),
    goal=everybody_was_inside,
    laws=(one_inside, forks_acyclic, enter_after_exit),
    needs={
        "loss": Breaks(STUCK),
        "copies": Breaks("forks acyclic"),
        "crash": Breaks(STUCK),
        "restart": Breaks("forks acyclic"),
    },
    cost=(Cost("2n − 2", per="enter", formula=lambda n: 2 * n - 2, is_exact=False),),
    bugs={
        "keeps-dirty": Altered(
            made(KeepsDirtyForks), breaks=STUCK, nodes=3, text="Hungry processes wait for each other's dirty forks."
        ),
        "cycle": Altered(
            made(Philosopher, has_cycle=True), breaks="forks acyclic", nodes=3, text="A cycle at the start remains."
        ),
    },
    bands=("is_inside",),
)

"""Mutual exclusion by quorums (ticket 9): a process enters with the permission of all members of a quorum."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, isqrt, sqrt
from typing import TypeAlias

from msgspec import structs

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry, Fault
from chord.gallery.laws import SmallWorld, enter_after_exit, everybody_was_inside, law_of_worlds, one_inside
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Request(ProcessMessage, frozen=True):
    """The sender wants the receiver's permission to enter the critical section."""


class Ok(ProcessMessage, frozen=True):
    """The sender gives its permission."""


class Release(ProcessMessage, frozen=True):
    """The sender has left the critical section, and returns the permission of the receiver."""


class QuorumMember(Process):
    """A process that permits one entry at a time, and asks the members of its own quorum one after another."""

    quorum: tuple[Name, ...] = ()  # in ascending order; it may contain this process
    left: int = 1
    oks: int = 0
    is_waiting: bool = False
    is_inside: bool = False
    queue: list[Name] = []  # the first has the permission of this process

    def asks(self) -> Sequence[str]:
        if self.is_inside:
            return ["exit"]
        return ["enter"] if self.left and not self.is_waiting else []

    def on_ask(self, ask: str) -> Effects:
        if ask == "enter":
            self.is_waiting, self.oks = True, 0
            yield from self.ask_next()
        else:
            self.is_inside = False
            yield Did("exit")
            for name in self.quorum:
                yield Send(name, Release())

    def on_message(self, sender: Name, message: Request | Ok | Release) -> Effects:
        if isinstance(message, Request):
            self.queue.append(sender)
            if len(self.queue) == 1:
                yield Send(sender, Ok())
        elif isinstance(message, Release):
            self.queue = self.queue[1:]
            if self.queue:
                yield Send(self.queue[0], Ok())
        elif self.is_waiting:
            self.oks += 1
            if self.oks == len(self.quorum):
                self.left, self.is_waiting, self.is_inside = self.left - 1, False, True
                yield Did("enter")
            else:
                yield from self.ask_next()

    def ask_next(self) -> Effects:
        """Ask the next member of the quorum. The ascending order of all processes prevents cycles of waiting."""
        yield Send(self.quorum[self.oks], Request())


@law_of_worlds("quorums intersect", ticket=9)
def quorums_intersect(world: SmallWorld) -> str:
    """Any two quorums have a common member."""
    quorums = [set(process.quorum) for process in world.processes.values()]
    return "" if all(one & other for one in quorums for other in quorums) else "two quorums have no common member"


Choose: TypeAlias = Callable[[Sequence[Name], int], list[Name]]
"""Returns the quorum of the process at an index of the names."""


def first(names: Sequence[Name], place: int) -> list[Name]:
    """Return the same quorum for every process: only the first process. `place` is ignored."""
    return [names[0]]


def majority(names: Sequence[Name], place: int) -> list[Name]:
    """Return a quorum of more than half of the processes: those from index `place` on, in a circle."""
    return [names[(place + i) % len(names)] for i in range(len(names) // 2 + 1)]


def weighted(names: Sequence[Name], place: int) -> list[Name]:
    """Return a quorum of the process at index `place`, of more than half the weights: 2 for the first, 1 for others."""
    rest = [name for name in names[1:] if name != names[place]]
    return [names[0], *([names[place]] if place else []), *rest][: (len(names) + 1) // 2]


def walls(names: Sequence[Name], place: int) -> list[Name]:
    """Return a quorum in a square grid: the column of the process at index `place`, and one of each other column."""
    height = isqrt(len(names) - 1) + 1
    columns = [names[start : start + height] for start in range(0, len(names), height)]
    parts = [c if number == place // height else [c[place % len(c)]] for number, c in enumerate(columns)]
    return [name for part in parts for name in part]


def quorums(choose: Choose, kind: Callable[..., Process] = QuorumMember) -> Make:
    """Return a function that makes processes of the class `kind`, with the quorums that `choose` returns."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for place, name in enumerate(names):
            others = tuple(other for other in names if other != name)
            yield kind(name, others, quorum=tuple(sorted(choose(names, place))))

    return make


class AsksAllAtOnce(QuorumMember):
    """A bug: the process asks all members of its quorum at once."""

    def ask_next(self) -> Effects:
        return [Send(name, Request()) for name in self.quorum] if not self.oks else []


def entry_of(name: str, title: str, choose: Choose, cost: Cost, copies: str, restart: str) -> Entry:
    """Return the entry of one kind of quorums. `copies` and `restart` name the laws that these faults break."""
    needs: dict[Fault, Breaks] = {"loss": Breaks(STUCK), "copies": Breaks(copies, 3), "crash": Breaks(STUCK)}
    return Entry(
        name=name, ticket=9, title=f"Mutual exclusion by {title}", make=quorums(choose), goal=everybody_was_inside,
        laws=(one_inside, quorums_intersect, enter_after_exit), cost=(cost,), bands=("is_inside",),
        needs={**needs, "restart": Breaks(restart)},
    )  # fmt: skip


HALF = Cost("3(⌊n/2⌋ + 1)", per="enter", formula=lambda n: 3 * (n // 2 + 1))
WEIGHT = Cost("3⌊(n + 1)/2⌋", per="enter", formula=lambda n: 3 * ((n + 1) // 2))
GRID = Cost("3(2⌈√n⌉ − 1)", per="enter", formula=lambda n: 3 * (2 * ceil(sqrt(n)) - 1), is_exact=False)
DISJOINT = quorums(lambda names, place: [names[place]])
BUGS = {
    "all-at-once": Altered(quorums(majority, AsksAllAtOnce), breaks=STUCK, text="Two processes hold one each."),
    "disjoint": Altered(DISJOINT, breaks="quorums intersect", text="No member knows of both processes."),
}
ENTRY = structs.replace(entry_of("mutex-quorum", "a majority", majority, HALF, "one inside", STUCK), bugs=BUGS)
ONE = entry_of("mutex-quorum-one", "one member", first, Cost("3", "enter", lambda n: 3), "one inside", "one inside")
WEIGHTED = entry_of("mutex-quorum-weighted", "a weighted majority", weighted, WEIGHT, STUCK, "one inside")
WALLS = entry_of("mutex-quorum-walls", "crumbling walls", walls, GRID, STUCK, STUCK)

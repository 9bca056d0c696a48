"""Shortest paths as a diffusing computation (ticket 14), with Dijkstra and Scholten's termination."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, is_over, law_of_worlds, over_is_true
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Path(ProcessMessage, frozen=True):
    """There is a path from process a to the receiver, of this length."""

    length: int


class Ok(ProcessMessage, frozen=True):
    """The sender has received the path. `is_child`: it became a child of the receiver in the tree."""

    is_child: bool


class Left(ProcessMessage, frozen=True):
    """The sender has left the tree of active processes. It is no child of the receiver any more."""


class ShortestPaths(Process):
    """A process that is active while its neighbours do not know its newest path."""

    length: int | None = None  # of the shortest path from process a that it knows
    is_active: bool = False
    parent: Name = ""
    children: int = 0
    unconfirmed: int = 0  # messages without an ok
    is_over: bool = False  # at a: the computation has ended

    def asks(self) -> Sequence[str]:
        return ["tell"] if self.is_active else []

    def on_start(self) -> Effects:
        if self.me == "a":
            self.length, self.is_active = 0, True
        return ()

    def on_ask(self, ask: str) -> Effects:
        self.is_active = False
        for name in self.others:
            if edge(self.me, name):
                self.unconfirmed += 1
                yield Did("path")
                yield Send(name, Path((self.length or 0) + edge(self.me, name)))

    def on_message(self, sender: Name, message: Path | Ok | Left) -> Effects:
        if isinstance(message, Path):
            is_child = self.is_green()
            if is_child:
                self.parent = sender
                yield Did("join")
            if self.is_shorter(message.length):
                self.length, self.is_active = message.length, True
            yield Send(sender, Ok(is_child))
        elif isinstance(message, Ok):
            self.unconfirmed -= 1
            self.children += message.is_child
        else:
            self.children -= 1
        yield from self.leave_if_green()

    def is_shorter(self, length: int) -> bool:
        """Return whether this length is shorter than the known one."""
        return self.length is None or length < self.length

    def is_green(self) -> bool:
        """Return whether this process is outside the tree, or may leave it."""
        return not (self.is_active or self.children or self.unconfirmed)

    def leave_if_green(self) -> Effects:
        """Leave the tree if this process is green. If it is the root, the computation has ended."""
        if self.is_green() and self.parent:
            parent, self.parent = self.parent, ""
            yield Send(parent, Left())
        elif self.is_green() and self.me == "a" and not self.is_over:
            self.is_over = True
            yield Did("over")


def edge(one: Name, other: Name) -> int:
    """Return the length of the edge between two processes, or 0 without an edge.

    The path a, b, c has the length 2. The edge from a to c has the length 4.
    """
    steps = abs(ord(one) - ord(other))
    return steps**2 if steps <= 2 else 0


@law_of_worlds("paths are shortest", ticket=14)
def paths_are_shortest(world: SmallWorld) -> str:
    """If process a reports the end, each process has the length of its shortest path from a."""
    pairs = [(process, ord(process.me) - ord("a")) for process in world.processes.values()]
    wrong = [f"{p.me} has the length {p.length}, not {right}" for p, right in pairs if p.length != right]
    return f"over, but {', '.join(wrong)}" if is_over(world) and wrong else ""


class KeepsFirst(ShortestPaths):
    """A bug: a process keeps the first path that it hears of."""

    def is_shorter(self, length: int) -> bool:
        return self.length is None


ENTRY = Entry(
    name="termination-shortest-paths",
    ticket=14,
    title="Shortest paths, with detected termination",
    make=all_of(ShortestPaths),
    goal=is_over,
    laws=(over_is_true, paths_are_shortest),
    histories=(),
    needs={
        "loss": Breaks(STUCK),
        "copies": Breaks("over is true"),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(
        Cost("1", per="path", formula=lambda n: 1, kinds=("ok",)),
        Cost("1", per="join", formula=lambda n: 1, kinds=("left",)),
    ),
    bugs={
        "keeps-first": Altered(
            all_of(KeepsFirst), breaks="paths are shortest", text="The first path need not be the shortest.", nodes=3
        )
    },
    bands=("is_active",),
)

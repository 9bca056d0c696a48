"""Dijkstra and Scholten's termination (ticket 14): the active processes form a tree, which shrinks to its root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import is_over, over_is_true
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Work(ProcessMessage, frozen=True):
    """A message of the computation. It makes the receiver active."""


class Ok(ProcessMessage, frozen=True):
    """The sender has received the work. `is_child`: it became a child of the receiver in the tree."""

    is_child: bool


class Left(ProcessMessage, frozen=True):
    """The sender has left the tree of active processes. It is no child of the receiver any more."""


class Diffusing(Process):
    """A process that is red while it is active, has children, or waits for oks. Only process a begins active."""

    left: int = 1  # messages of the computation that it may still send
    is_active: bool = False
    parent: Name = ""
    children: int = 0
    unconfirmed: int = 0  # messages without an ok
    is_over: bool = False  # at a: the computation has ended

    def asks(self) -> Sequence[str]:
        return ["rest", *(f"work {name}" for name in self.others if self.left)] if self.is_active else []

    def on_ask(self, ask: str) -> Effects:
        if ask == "rest":
            self.is_active = False
            yield from self.leave_if_green()
        else:
            self.left -= 1
            self.unconfirmed += 1
            yield Did("work")
            yield Send(ask.split()[1], Work())

    def on_message(self, sender: Name, message: Work | Ok | Left) -> Effects:
        if isinstance(message, Work):
            is_child = self.is_green()
            if is_child:
                self.parent = sender
                yield Did("join")
            self.is_active = True
            yield Send(sender, Ok(is_child))
        elif isinstance(message, Ok):
            self.unconfirmed -= 1
            self.children += message.is_child
        else:
            self.children -= 1
        yield from self.leave_if_green()

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


class LeavesBeforeChildren(Diffusing):
    """A bug: a process leaves the tree although it has children."""

    def is_green(self) -> bool:
        return not (self.is_active or self.unconfirmed)


class IgnoresOks(Diffusing):
    """A bug: a process leaves the tree although messages of its own are in transit."""

    def is_green(self) -> bool:
        return not (self.is_active or self.children)


def from_first(kind: Callable[..., Diffusing]) -> Make:
    """Return a function that makes processes of the class `kind`. Only the first is active."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for name in names:
            yield kind(
                name,
                tuple(other for other in names if other != name),
                left=2 if name == "a" else 1,
                is_active=name == "a",
            )

    return make


ENTRY = Entry(
    name="termination-diffusing",
    ticket=14,
    title="Termination of a diffusing computation",
    make=from_first(Diffusing),
    goal=is_over,
    laws=(over_is_true,),
    histories=(),
    needs={
        "loss": Breaks(STUCK),
        "copies": Breaks("over is true"),
        "crash": Breaks(STUCK),
        "restart": Breaks("over is true"),
    },
    cost=(
        Cost("1", per="work", formula=lambda n: 1, kinds=("ok",)),
        Cost("1", per="join", formula=lambda n: 1, kinds=("left",)),
    ),
    bugs={
        "leaves-early": Altered(
            from_first(LeavesBeforeChildren), breaks="over is true", text="Its children may be active."
        ),
        "ignores-oks": Altered(
            from_first(IgnoresOks), breaks="over is true", text="A message in transit makes its receiver active."
        ),
    },
    bands=("is_active",),
)

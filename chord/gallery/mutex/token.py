"""Mutual exclusion by a token (ticket 8): it goes around a ring, and its owner may enter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, everybody_was_inside, law_of_worlds, one_inside
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Token(ProcessMessage, frozen=True):
    """The right to enter the critical section. There is one token in the ring."""


class TokenRing(Process):
    """A process that passes the token on at once, unless it wants to enter the critical section."""

    left: int = 1
    follower: Name = ""
    has_token: bool = False
    is_waiting: bool = False
    is_inside: bool = False

    def asks(self) -> Sequence[str]:
        if self.is_inside:
            return ["exit"]
        return ["enter"] if self.left and not self.is_waiting else []

    def on_start(self) -> Effects:
        if self.has_token:
            yield from self.pass_on()

    def on_ask(self, ask: str) -> Effects:
        if ask == "enter":
            self.is_waiting = True
        else:
            self.is_inside = False
            yield Did("exit")
            yield from self.pass_on()

    def on_message(self, sender: Name, message: Token) -> Effects:
        self.has_token = True
        if self.is_waiting:
            self.left, self.is_waiting, self.is_inside = self.left - 1, False, True
            yield Did("enter")
        else:
            yield from self.pass_on()

    def pass_on(self) -> Effects:
        """Send the token to the next process. A round begins at the first one."""
        self.has_token = False
        if self.me == "a":
            yield Did("round")
        yield Send(self.follower, Token())


@law_of_worlds("one token", ticket=8)
def one_token(world: SmallWorld) -> str:
    """There is exactly one token, at a process or in transit."""
    count = len(world.in_transit()) + sum(process.has_token for process in world.up())
    return f"there are {count} tokens" if count != 1 else ""


def ring(kind: Callable[..., Process], tokens: int = 1) -> Make:
    """Return a function that makes a ring of processes of the class `kind`. The first `tokens` have a token each."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for place, name in enumerate(names):
            others = tuple(other for other in names if other != name)
            yield kind(name, others, follower=names[(place + 1) % len(names)], has_token=place < tokens)

    return make


ENTRY = Entry(
    name="mutex-token",
    ticket=8,
    title="Mutual exclusion by a token",
    make=ring(TokenRing),
    goal=everybody_was_inside,
    laws=(one_inside, one_token),
    histories=(),
    ends_quietly=False,
    needs={fault: Breaks("one token") for fault in ("loss", "copies", "crash", "restart")},
    cost=(Cost("n", per="round", formula=lambda n: n, is_exact=False),),
    bugs={
        "two-tokens": Altered(ring(TokenRing, tokens=2), breaks="one token", text="Each token lets a process enter.")
    },
    bands=("is_inside",),
)

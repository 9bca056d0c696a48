"""A barrier by a token that goes twice around a ring (ticket 15): first it collects, then it releases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import all_have_passed, reach_before_pass
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send


class Token(ProcessMessage, frozen=True):
    """In round 1, all processes before the receiver have reached the barrier. In round 2, all processes have."""

    round: int


class TokenBarrier(Process):
    """A process that keeps the token until it has reached the barrier. Process a begins both rounds."""

    follower: Name = ""
    is_waiting: bool = False
    has_passed: bool = False
    has_token: bool = False

    def asks(self) -> Sequence[str]:
        return [] if self.is_waiting or self.has_passed else ["reach"]

    def on_ask(self, ask: str) -> Effects:
        self.is_waiting = True
        yield Did("reach")
        if self.me == "a":
            yield Send(self.follower, Token(1))
        else:
            yield from self.pass_on()

    def on_message(self, sender: Name, message: Token) -> Effects:
        if message.round == 1 and self.me != "a":
            self.has_token = True
            yield from self.pass_on()
        elif not self.has_passed:
            yield from self.go()
            yield Send(self.follower, Token(2))

    def pass_on(self) -> Effects:
        """Send the token of round 1 to the next process, if it is here and this process has reached the barrier."""
        if self.has_token and self.is_waiting:
            self.has_token = False
            yield Send(self.follower, Token(1))

    def go(self) -> Effects:
        """Pass the barrier, unless this process has passed it already."""
        if not self.has_passed:
            self.is_waiting, self.has_passed = False, True
            yield Did("pass")


class OneRound(TokenBarrier):
    """A bug: the token goes around once, and each process passes the barrier when it passes the token on."""

    def pass_on(self) -> Effects:
        had_token = self.has_token
        yield from super().pass_on()
        if had_token and not self.has_token:
            yield from self.go()


def ring(kind: Callable[..., Process]) -> Make:
    """Return a function that makes processes of the class `kind`, each with the next one as its follower."""

    def make(names: Sequence[Name]) -> Iterable[Process]:
        for place, name in enumerate(names):
            others = tuple(other for other in names if other != name)
            yield kind(name, others, follower=names[(place + 1) % len(names)])

    return make


ENTRY = Entry(
    name="barriers-token",
    ticket=15,
    title="A barrier by a token",
    make=ring(TokenBarrier),
    goal=all_have_passed,
    laws=(reach_before_pass,),
    histories=(2, 3),
    tolerates=("copies",),
    needs={"loss": Breaks(STUCK), "crash": Breaks(STUCK), "restart": Breaks(STUCK)},
    cost=(Cost("2n", per="run", formula=lambda n: 2 * n),),
    bugs={
        "one-round": Altered(
            ring(OneRound),
            breaks="reach before pass",
            text="In the first round, a process knows nothing of those after it.",
            nodes=3,
        )
    },
    bands=("is_waiting",),
)

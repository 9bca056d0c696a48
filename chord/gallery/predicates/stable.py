"""A stable predicate (ticket 12): once true, it stays true. One consistent cut can therefore report it."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, law_of_worlds
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Coin(ProcessMessage, frozen=True):
    """A message of the underlying computation: one coin."""


class Marker(ProcessMessage, frozen=True):
    """The sender has taken its part of the cut."""


class Report(ProcessMessage, frozen=True):
    """The coins in the sender's part of the cut."""

    coins: int


class StablePredicate(Process):
    """A process that pays or spends its coin. Process a cuts, and reports if no coin is left anywhere.

    A coin that is spent is gone, and no coin is made. So "no coin is left" is stable.
    """

    coins: int = 1
    left: int = 1  # payments that it may still make
    is_red: bool = False
    awaited: list[Name] | None = None  # the processes with markers that have not arrived
    saved: int = 0  # the coins in its part of the cut, with those in transit to it
    unreported: list[Name] | None = None  # at a: the processes with reports that have not arrived
    total: int = 0  # at a: the coins of all reports
    is_reported: bool = False

    def asks(self) -> Sequence[str]:
        cut = [] if self.is_red or self.me != "a" else ["cut"]
        pay = [f"pay {name}" for name in self.others] if self.left and self.coins else []
        return [*cut, *pay, *(["spend"] if self.coins else [])]

    def on_start(self) -> Effects:
        self.awaited, self.unreported = list(self.others), ["a", *self.others] if self.me == "a" else []
        return ()

    def on_ask(self, ask: str) -> Effects:
        if ask == "cut":
            yield from self.turn_red()
            return
        self.coins -= 1
        if ask != "spend":
            self.left -= 1
            yield Send(ask.split()[1], Coin())

    def on_message(self, sender: Name, message: Coin | Marker | Report) -> Effects:
        if isinstance(message, Coin):
            self.coins += 1
            if self.is_red and sender in (self.awaited or ()):
                self.saved += 1  # its sender was white: the coin was in transit
        elif isinstance(message, Marker):
            yield from self.turn_red()
            self.awaited = [name for name in self.awaited or () if name != sender]
            if not self.awaited:
                yield from self.hand_in()
        else:
            yield from self.add(sender, message.coins)

    def turn_red(self) -> Effects:
        """Save the state, and send the markers before any other message."""
        if not self.is_red:
            self.is_red, self.saved = True, self.coins
            yield Did("cut", self.coins)
            yield from self.all_others(Marker())

    def hand_in(self) -> Effects:
        """Report the coins in this process's part of the cut to process a."""
        if self.me == "a":
            yield from self.add("a", self.saved)
        else:
            yield Send("a", Report(self.saved))

    def add(self, name: Name, coins: int) -> Effects:
        """Add the coins of one process's part of the cut. After the last part, evaluate the predicate."""
        if name in (self.unreported or ()):
            self.unreported = [other for other in self.unreported or () if other != name]
            self.total += coins
            if not self.unreported and self.is_true(self.total):
                self.is_reported = True
                yield Did("report")

    def is_true(self, coins: int) -> bool:
        """Return whether the predicate holds for this number of coins in the whole system."""
        return coins == 0


def cut_is_evaluated(world: SmallWorld) -> bool:
    """Return whether process a has all parts of the cut."""
    return not world.processes["a"].unreported


@law_of_worlds("report is true", ticket=12)
def report_is_true(world: SmallWorld) -> str:
    """If process a reports the predicate, it is true from then on."""
    in_transit = sum(isinstance(message, Coin) for message in world.in_transit())
    coins = sum(process.coins for process in world.processes.values()) + in_transit
    first = world.processes["a"]
    return f"reported, but {coins} coins are left" if first.is_reported and not first.is_true(coins) else ""


class Unstable(StablePredicate):
    """A bug: the predicate "one coin is left" may become false again."""

    def is_true(self, coins: int) -> bool:
        return coins == 1


ENTRY = Entry(
    name="predicates-stable",
    ticket=12,
    title="A stable predicate on a consistent cut",
    make=all_of(StablePredicate),
    goal=cut_is_evaluated,
    laws=(report_is_true,),
    histories=(),
    channels="fifo",
    needs={
        "order": Breaks("report is true"),
        "loss": Breaks(STUCK),
        "copies": Breaks("report is true"),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(
        Cost("n(n − 1)", per="run", formula=lambda n: n * (n - 1), kinds=("marker",)),
        Cost("n − 1", per="run", formula=lambda n: n - 1, kinds=("report",)),
    ),
    bugs={"unstable": Altered(all_of(Unstable), breaks="report is true", text="The last coin may be spent later.")},
    bands=("is_red",),
)

"""A consistent cut in which receivers save the messages in transit (ticket 11)."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import Recording, SmallWorld, law_of_runs, law_of_worlds
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of

COINS = 3


class Coin(ProcessMessage, frozen=True):
    """A message of the underlying computation: one coin."""


class Marker(ProcessMessage, frozen=True):
    """The sender has taken its part of the cut."""


class ReceiverSnapshot(Process):
    """A process that saves its state, and then the coins of each other process until its marker arrives."""

    coins: int = COINS
    left: int = 1  # coins that it may still send
    is_red: bool = False
    awaited: list[Name] | None = None  # the processes with markers that have not arrived
    saved: int = 0
    arrived: dict[Name, int] = {}  # the coins that were in transit, by sender

    def asks(self) -> Sequence[str]:
        cut = [] if self.is_red or self.me != "a" else ["cut"]
        return [*cut, *(f"pay {name}" for name in self.others if self.left)]

    def on_start(self) -> Effects:
        self.awaited = list(self.others)
        return ()

    def on_ask(self, ask: str) -> Effects:
        if ask == "cut":
            yield from self.turn_red()
        else:
            self.left, self.coins = self.left - 1, self.coins - 1
            yield Send(ask.split()[1], Coin())

    def on_message(self, sender: Name, message: Coin | Marker) -> Effects:
        awaited = self.awaited or []
        if isinstance(message, Coin):
            self.coins += 1
            if self.is_red and self.is_open(sender):
                self.arrived[sender] = self.arrived.get(sender, 0) + 1
        else:
            self.awaited = [name for name in awaited if name != sender]
            yield from self.turn_red()

    def is_open(self, sender: Name) -> bool:
        """Return whether a coin from the sender was in transit at the cut: its marker has not arrived."""
        return sender in (self.awaited or ())

    def turn_red(self) -> Effects:
        """Save the state, and send the markers before any other message."""
        if not self.is_red:
            self.is_red, self.saved = True, self.coins
            yield Did("cut", self.coins)
            yield from self.all_others(Marker())


def cut_is_complete(world: SmallWorld) -> bool:
    """Return whether every process has the markers of all others."""
    return all(process.is_red and not process.awaited for process in world.up())


@law_of_runs("consistent cut", ticket=10)
def consistent_cut(run: Recording) -> str:
    """If the receive of a coin is in the cut, then its send is in the cut."""
    cuts = {event.process: event.n for event in run.dids("cut")}
    for receive in run.of("receive"):
        is_coin = isinstance(receive.message, Coin)
        if is_coin and receive.of is not None and {receive.process, receive.with_} <= cuts.keys():
            is_in = receive.n < cuts[receive.process]
            if is_in and receive.of > cuts[receive.with_]:
                return f"the cut has the receive of a coin at {receive.process}, but not its send at {receive.with_}"
    return ""


@law_of_worlds("money conserved", ticket=11)
def money_conserved(world: SmallWorld) -> str:
    """A complete cut has as many coins as the world, with the coins that receivers saved."""
    processes = list(world.processes.values())
    if not all(process.is_red and not process.awaited for process in processes):
        return ""
    saved = sum(process.saved + sum(process.arrived.values()) for process in processes)
    total = COINS * len(processes)
    return f"the cut has {saved} coins of {total}" if saved != total else ""


class SavesAll(ReceiverSnapshot):
    """A bug: a red process saves the coins that follow the marker, too."""

    def is_open(self, sender: Name) -> bool:
        return True


ENTRY = Entry(
    name="cuts-receiver",
    ticket=11,
    title="A consistent cut with messages saved by receivers",
    make=all_of(ReceiverSnapshot),
    goal=cut_is_complete,
    laws=(money_conserved, consistent_cut),
    channels="fifo",
    needs={
        "order": Breaks("money conserved"),
        "loss": Breaks("money conserved"),
        "copies": Breaks("money conserved"),
        "crash": Breaks(STUCK),
        "restart": Breaks("money conserved"),
    },
    cost=(Cost("n(n − 1)", per="run", formula=lambda n: n * (n - 1), kinds=("marker",)),),
    bugs={"saves-all": Altered(all_of(SavesAll), breaks="money conserved", text="The sender sent them after its cut.")},
    bands=("is_red",),
)

"""A consistent cut in which senders save the messages in transit (ticket 10)."""

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


class Ok(ProcessMessage, frozen=True):
    """A white process has received a coin."""


class SenderSnapshot(Process):
    """A process that keeps each coin that it sent while white, until the receiver confirms it."""

    coins: int = COINS
    left: int = 1  # coins that it may still send
    is_red: bool = False
    awaited: list[Name] | None = None  # the processes with markers that have not arrived
    saved: int = 0
    buffer: dict[Name, int] = {}  # the coins that are not confirmed, by receiver

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
            name = ask.split()[1]
            if not self.is_red:
                self.buffer[name] = self.buffer.get(name, 0) + 1
            yield Send(name, Coin())

    def on_message(self, sender: Name, message: Coin | Marker | Ok) -> Effects:
        if isinstance(message, Coin):
            self.coins += 1
            if not self.is_red:
                yield Did("white")
                yield Send(sender, Ok())
        elif isinstance(message, Ok):
            if not self.is_final():
                self.buffer[sender] = self.buffer.get(sender, 0) - 1
        else:
            self.awaited = [name for name in self.awaited or () if name != sender]
            yield from self.turn_red()

    def is_final(self) -> bool:
        """Return whether the buffer is final. An ok before the marker of its sender still counts."""
        return False

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


@law_of_worlds("money conserved", ticket=10)
def money_conserved(world: SmallWorld) -> str:
    """A complete cut has as many coins as the world, with the coins that senders kept."""
    processes = list(world.processes.values())
    if not all(process.is_red and not process.awaited for process in processes):
        return ""
    saved, kept = sum(p.saved for p in processes), sum(sum(p.buffer.values()) for p in processes)
    total = COINS * len(processes)
    counted = f"{saved + kept} coins of {total}: {saved} in states, and {kept} in buffers"
    return f"the cut has {counted}" if saved + kept != total else ""


class FinalWhenRed(SenderSnapshot):
    """The printed form: the buffer is final when its process turns red."""

    def is_final(self) -> bool:
        return self.is_red


ENTRY = Entry(
    name="cuts-sender",
    ticket=10,
    title="A consistent cut with messages saved by senders",
    make=all_of(SenderSnapshot),
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
    cost=(
        Cost("n(n − 1)", per="run", formula=lambda n: n * (n - 1), kinds=("marker",)),
        Cost("1", per="white", formula=lambda n: 1, kinds=("ok",)),
    ),
    printed={
        "final-when-red": Altered(
            all_of(FinalWhenRed), breaks="money conserved", text="An ok may be in transit when its receiver turns red."
        )
    },
    bands=("is_red",),
)

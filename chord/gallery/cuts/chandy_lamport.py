"""Chandy and Lamport's consistent cut (ticket 10): markers separate the messages before it from those after it."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import Recording, SmallWorld, law_of_runs
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Coin(ProcessMessage, frozen=True):
    """A message of the underlying computation: one coin."""


class Marker(ProcessMessage, frozen=True):
    """The sender has taken its part of the cut."""


class Snapshot(Process):
    """A process that is white at first. With the first marker it saves its state, and is red."""

    coins: int = 3
    left: int = 1  # coins that it may still send
    is_red: bool = False
    awaited: list[Name] | None = None  # the processes with markers that have not arrived

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
        if isinstance(message, Coin):
            self.coins += 1
        else:
            self.awaited = [name for name in self.awaited or () if name != sender]
            yield from self.turn_red()

    def turn_red(self) -> Effects:
        """Save the state, and send the markers before any other message."""
        if not self.is_red:
            self.is_red = True
            yield Did("cut", self.coins)
            yield from self.send_markers()

    def send_markers(self) -> Effects:
        """Send a marker to every other process."""
        return self.all_others(Marker())


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


class FirstMarkerOnly(Snapshot):
    """A bug: only the process that begins sends markers."""

    def send_markers(self) -> Effects:
        return self.all_others(Marker()) if self.me == "a" else ()


ENTRY = Entry(
    name="cuts-chandy-lamport",
    ticket=10,
    title="Chandy and Lamport's consistent cut",
    make=all_of(Snapshot),
    goal=cut_is_complete,
    laws=(consistent_cut,),
    channels="fifo",
    tolerates=("copies",),
    needs={
        "order": Breaks("consistent cut"),
        "loss": Breaks(STUCK),
        "crash": Breaks(STUCK),
        "restart": Breaks(STUCK),
    },
    cost=(Cost("n(n − 1)", per="run", formula=lambda n: n * (n - 1), kinds=("marker",)),),
    bugs={"first-marker-only": Altered(all_of(FirstMarkerOnly), breaks=STUCK, text="Each channel needs its marker.")},
    bands=("is_red",),
)

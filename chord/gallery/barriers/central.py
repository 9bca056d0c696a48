"""A barrier with a coordinator (ticket 15): it waits for all processes, and then releases them."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import all_have_passed, reach_before_pass
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Reached(ProcessMessage, frozen=True):
    """The sender has reached the barrier."""


class Go(ProcessMessage, frozen=True):
    """All processes have reached the barrier."""


class CentralBarrier(Process):
    """A process with a barrier. Process a coordinates, and takes part itself."""

    is_waiting: bool = False
    has_passed: bool = False
    reached: list[Name] = []  # at a: the processes that have reached the barrier

    def asks(self) -> Sequence[str]:
        return [] if self.is_waiting or self.has_passed else ["reach"]

    def on_ask(self, ask: str) -> Effects:
        self.is_waiting = True
        yield Did("reach")
        if self.me == "a":
            yield from self.count("a")
        else:
            yield Send("a", Reached())

    def on_message(self, sender: Name, message: Reached | Go) -> Effects:
        if isinstance(message, Reached):
            yield from self.count(sender)
        else:
            yield from self.go()

    def count(self, name: Name) -> Effects:
        """Note that a process has reached the barrier. Release all processes if it is the last."""
        self.reached = sorted({name, *self.reached})
        if self.is_complete():
            yield from self.all_others(Go())
            yield from self.go()

    def is_complete(self) -> bool:
        """Return whether all processes have reached the barrier."""
        return len(self.reached) == len(self.others) + 1

    def go(self) -> Effects:
        """Pass the barrier, unless this process has passed it already."""
        if not self.has_passed:
            self.is_waiting, self.has_passed = False, True
            yield Did("pass")


class OthersOnly(CentralBarrier):
    """A bug: the coordinator does not wait until it has reached the barrier itself."""

    def is_complete(self) -> bool:
        return len({*self.reached, "a"}) == len(self.others) + 1


ENTRY = Entry(
    name="barriers-central",
    ticket=15,
    title="A barrier with a coordinator",
    make=all_of(CentralBarrier),
    goal=all_have_passed,
    laws=(reach_before_pass,),
    small=(2, 3, 4),
    histories=(2, 3),
    tolerates=("copies",),
    needs={"loss": Breaks(STUCK), "crash": Breaks(STUCK), "restart": Breaks(STUCK)},
    cost=(Cost("2(n − 1)", per="run", formula=lambda n: 2 * (n - 1)),),
    bugs={
        "others-only": Altered(
            all_of(OthersOnly), breaks="reach before pass", text="The coordinator takes part in the barrier."
        )
    },
    bands=("is_waiting",),
)

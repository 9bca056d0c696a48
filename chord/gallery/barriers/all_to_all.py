"""A barrier without a coordinator (ticket 15): each process waits for a message of every other one."""

from __future__ import annotations

from collections.abc import Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import all_have_passed, reach_before_pass
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, all_of


class Reached(ProcessMessage, frozen=True):
    """The sender has reached the barrier."""


class MutualBarrier(Process):
    """A process that passes the barrier when it has reached it, and knows the same of all others."""

    is_waiting: bool = False
    has_passed: bool = False
    reached: list[Name] = []  # the other processes that have reached the barrier

    def asks(self) -> Sequence[str]:
        return [] if self.is_waiting or self.has_passed else ["reach"]

    def on_ask(self, ask: str) -> Effects:
        self.is_waiting = True
        yield Did("reach")
        yield from self.all_others(Reached())
        yield from self.go_if_complete()

    def on_message(self, sender: Name, message: Reached) -> Effects:
        self.reached = sorted({sender, *self.reached})
        yield from self.go_if_complete()

    def go_if_complete(self) -> Effects:
        """Pass the barrier if all processes have reached it."""
        if self.is_waiting and self.is_complete():
            self.is_waiting, self.has_passed = False, True
            yield Did("pass")

    def is_complete(self) -> bool:
        """Return whether all other processes have reached the barrier."""
        return len(self.reached) == len(self.others)


class OneMissing(MutualBarrier):
    """A bug: a process passes although one message of the others is missing."""

    def is_complete(self) -> bool:
        return len(self.reached) >= len(self.others) - 1


ENTRY = Entry(
    name="barriers-all-to-all",
    ticket=15,
    title="A barrier from each process to each other",
    make=all_of(MutualBarrier),
    goal=all_have_passed,
    laws=(reach_before_pass,),
    histories=(2, 3),
    tolerates=("copies",),
    needs={"loss": Breaks(STUCK), "crash": Breaks(STUCK), "restart": Breaks(STUCK)},
    cost=(Cost("n(n − 1)", per="run", formula=lambda n: n * (n - 1)),),
    bugs={
        "one-missing": Altered(
            all_of(OneMissing), breaks="reach before pass", text="The last may be far from the barrier.", nodes=3
        )
    },
    bands=("is_waiting",),
)

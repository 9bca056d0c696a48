"""Deadlocks found by one barrier (ticket 15): it proves that processes did not move between two moments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import Recording, SmallWorld, law_of_runs, law_of_worlds
from chord.gallery.process import Did, Effects, Name, Process, ProcessMessage, Send, all_of


class Request(ProcessMessage, frozen=True):
    """The sender waits for a grant of the receiver."""


class Grant(ProcessMessage, frozen=True):
    """The receiver need not wait any longer."""


class Reached(ProcessMessage, frozen=True):
    """The sender has reached the barrier. At that moment it waited for the process `waits_for`; "": for none."""

    waits_for: Name


class Passed(ProcessMessage, frozen=True):
    """The sender has passed the barrier. `is_unchanged`: since it reached the barrier, it has waited for the same."""

    is_unchanged: bool


class DeadlockDetector(Process):
    """A process that waits for at most one other. It grants requests while it does not wait itself."""

    left: int = 1  # requests that it may still send
    waits_for: Name = ""
    deferred: list[Name] = []
    has_reached: bool = False
    is_unchanged: bool = True  # since it reached the barrier
    waiting: dict[Name, Name] = {}  # what each process waited for when it reached the barrier
    unchanged: dict[Name, bool] = {}  # at a: of each process that has passed
    found: list[Name] | None = None  # at a: the deadlocked processes

    def asks(self) -> Sequence[str]:
        requests = [f"request {name}" for name in self.others] if self.left and not self.waits_for else []
        return [*requests, *(["check"] if self.me == "a" and not self.has_reached else [])]

    def on_ask(self, ask: str) -> Effects:
        if ask == "check":
            yield from self.reach()
            return
        self.left, self.waits_for, self.is_unchanged = self.left - 1, ask.split()[1], False
        yield Did("wait", self.waits_for)
        yield Send(self.waits_for, Request())

    def on_message(self, sender: Name, message: Request | Grant | Reached | Passed) -> Effects:
        if isinstance(message, Request) and self.waits_for:
            self.deferred.append(sender)
        elif isinstance(message, Request):
            yield Send(sender, Grant())
        elif isinstance(message, Grant):
            self.waits_for, self.is_unchanged = "", False
            yield Did("resume")
            deferred, self.deferred = self.deferred, []
            for name in deferred:
                yield Send(name, Grant())
        elif isinstance(message, Reached):
            yield from self.reach()
            self.waiting[sender] = message.waits_for
            if len(self.waiting) == len(self.others) + 1:  # this process passes the barrier: the interval ends
                is_first, sent = self.me == "a", Send("a", Passed(self.is_unchanged))
                yield from self.judge("a", self.is_unchanged) if is_first else [sent]
        else:
            yield from self.judge(sender, message.is_unchanged)

    def reach(self) -> Effects:
        """Reach the barrier, once. The state at this moment is the one to judge."""
        if not self.has_reached:
            self.has_reached, self.is_unchanged = True, True
            self.waiting[self.me] = self.waits_for
            yield Did("reach")
            yield from self.all_others(Reached(self.waits_for))

    def judge(self, name: Name, is_unchanged: bool) -> Effects:
        """Note whether a process is unchanged. After the last one, find the deadlocks among the unchanged processes."""
        self.unchanged[name] = is_unchanged
        if len(self.unchanged) == len(self.others) + 1:
            self.found = deadlocked({name: to for name, to in self.waiting.items() if self.unchanged[name]})
            yield Did("verdict", self.found)


def deadlocked(waits_for: Mapping[Name, Name]) -> list[Name]:
    """Return the processes that wait in a cycle, or for such a process. `waits_for` maps each to the one it awaits."""
    while free := [name for name, to in waits_for.items() if to not in waits_for]:
        waits_for = {name: to for name, to in waits_for.items() if name not in free}
    return sorted(waits_for)


@law_of_worlds("deadlock is real", ticket=15)
def deadlock_is_real(world: SmallWorld) -> str:
    """Each reported process waits, and no grant is on its way to it."""
    for name in world.processes["a"].found or ():
        to = world.processes[name].waits_for
        if not to or any(isinstance(parcel.message, Grant) for parcel in world.channels.get(f"{to}→{name}", ())):
            return f"{name} is reported, but not deadlocked"
    return ""


@law_of_runs("none is missed", ticket=15)
def none_is_missed(run: Recording) -> str:
    """Each process is reported that is deadlocked when it reaches the barrier."""
    waits_for = {}
    for wait in run.dids("wait"):
        is_in_time = any(e.process == wait.process and run.before(wait, e) for e in run.dids("reach"))
        if is_in_time and not any(e.process == wait.process and run.before(wait, e) for e in run.dids("resume")):
            waits_for[wait.process] = wait.message
    for verdict in run.dids("verdict"):
        if missed := [name for name in deadlocked(waits_for) if name not in verdict.message]:
            return f"{missed[0]} is not reported"
    return ""


class OneCut(DeadlockDetector):
    """A bug: only the states at the barrier count, although a process may have moved since."""

    def judge(self, name: Name, is_unchanged: bool) -> Effects:
        return super().judge(name, True)


ENTRY = Entry(
    name="barriers-deadlock",
    ticket=15,
    title="Deadlocks found by a barrier",
    make=all_of(DeadlockDetector),
    goal=lambda world: world.processes["a"].found is not None,
    laws=(deadlock_is_real, none_is_missed),
    small=(2,),
    channels="fifo",
    tolerates=("copies",),
    needs={
        "order": Breaks("deadlock is real"),
        "loss": Breaks(STUCK),
        "crash": Breaks(STUCK),
        "restart": Breaks("deadlock is real"),
    },
    cost=(Cost("n(n − 1)", per="run", formula=lambda n: n * (n - 1), kinds=("reached",)),),
    bugs={"one-cut": Altered(all_of(OneCut), breaks="deadlock is real", text="A grant may be on its way.")},
    bands=("waits_for",),
)

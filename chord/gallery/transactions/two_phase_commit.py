"""Two-phase commit (ticket 23): a coordinator collects votes, decides once, and tells all participants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from chord.gallery.entry import STUCK, Altered, Breaks, Cost, Entry
from chord.gallery.laws import SmallWorld, law_of_worlds
from chord.gallery.process import Did, Effects, Make, Name, Process, ProcessMessage, Send, Set, Unset, all_of

COMMIT, ABORT = "commit", "abort"


class Request(ProcessMessage, frozen=True):
    """The coordinator asks for a vote."""


class Vote(ProcessMessage, frozen=True):
    """A vote. With yes, the sender can commit, even after a crash."""

    is_yes: bool


class Decision(ProcessMessage, frozen=True):
    """The coordinator's message to the participants: it has decided to "commit" or to "abort" (`outcome`)."""

    outcome: str


class Coordinator(Process):
    """The process that decides: to commit if all participants vote yes in time, and to abort otherwise."""

    stable: ClassVar = ("left", "outcome")
    left: int = 1
    outcome: str = ""
    votes: dict[Name, bool] = {}
    is_waiting: bool = False

    def asks(self) -> Sequence[str]:
        return ["begin"] if self.left else []

    def on_start(self) -> Effects:
        if not self.left:  # this is a restart: the votes are gone
            yield from self.decide(self.outcome or ABORT)

    def on_ask(self, ask: str) -> Effects:
        self.left, self.is_waiting = self.left - 1, True
        yield from self.all_others(Request())
        yield Set("patience", 60, 60)

    def on_message(self, sender: Name, message: Vote) -> Effects:
        self.votes[sender] = message.is_yes
        if self.outcome:
            yield Send(sender, Decision(self.outcome))
        elif len(self.votes) == len(self.others):
            yield from self.decide(COMMIT if all(self.votes.values()) else ABORT)

    def on_timer(self, timer: str) -> Effects:
        yield from self.decide(ABORT)

    def decide(self, outcome: str) -> Effects:
        """Write the decision ("commit" or "abort") down, then send it to all participants."""
        self.outcome, self.is_waiting = outcome, False
        yield Unset("patience")
        yield Did(outcome)
        yield from self.all_others(Decision(outcome))


class Participant(Process):
    """A process that votes once. After a yes, only the coordinator decides."""

    stable: ClassVar[tuple[str, ...]] = ("vote", "outcome")
    vote: str = ""
    outcome: str = ""
    is_asked: bool = False
    is_waiting: bool = False

    def asks(self) -> Sequence[str]:
        return ["yes", "no"] if self.is_asked and not self.vote and not self.outcome else []

    def on_start(self) -> Effects:
        self.is_waiting = self.vote == "yes" and not self.outcome
        return [Send(self.others[0], Vote(True))] if self.is_waiting else []  # the answer is the decision

    def on_ask(self, ask: str) -> Effects:
        self.vote, self.is_waiting = ask, ask == "yes"
        yield Send(self.others[0], Vote(ask == "yes"))
        if ask == "no":
            self.outcome = ABORT
            yield Did(ABORT)

    def on_message(self, sender: Name, message: Request | Decision) -> Effects:
        if isinstance(message, Request):
            self.is_asked = True
        elif not self.outcome:
            self.outcome, self.is_waiting = message.outcome, False
            yield Did(self.outcome)


@law_of_worlds("one decision", ticket=23)
def one_decision(world: SmallWorld) -> str:
    """No process commits if another one aborts."""
    by = {process.outcome: process.me for process in world.processes.values()}
    return f"{by[COMMIT]} commits, {by[ABORT]} aborts" if {COMMIT, ABORT} <= by.keys() else ""


@law_of_worlds("commit needs every yes", ticket=23)
def commit_needs_every_yes(world: SmallWorld) -> str:
    """If a process has committed, then every participant has voted yes, and knows it."""
    has_committed = any(process.outcome == COMMIT for process in world.processes.values())
    missing = [process.me for process in list(world.processes.values())[1:] if process.vote != "yes"]
    return f"{missing[0]} knows of no yes" if missing and has_committed else ""


def nobody_waits(world: SmallWorld) -> bool:
    """The goal: no process that is up waits for votes or for the decision."""
    return not any(process.is_waiting or getattr(process, "left", 0) for process in world.up())


def commit(kind: Callable[[Name, tuple[Name, ...]], Process]) -> Make:
    """Return a function that makes a coordinator, and participants of the class `kind`."""
    return lambda names: [Coordinator(names[0], tuple(names[1:])), *list(all_of(kind)(names))[1:]]


class ForgetsVote(Participant):
    """A bug: the vote is not on disk."""

    stable: ClassVar[tuple[str, ...]] = ("outcome",)


class ChangesItsMind(Participant):
    """A bug: a participant that waits for the decision may abort alone."""

    def asks(self) -> Sequence[str]:
        return ["no"] if self.is_waiting else super().asks()


ENTRY = Entry(
    name="transactions-two-phase-commit", ticket=23, title="Two-phase commit", make=commit(Participant),
    goal=nobody_waits, laws=(one_decision, commit_needs_every_yes), tolerates=("copies", "restart"),
    needs={"loss": Breaks(STUCK), "crash": Breaks(STUCK)}, bands=("is_waiting",),
    cost=(Cost("3(n − 1)", per="run", formula=lambda n: 3 * (n - 1)),),
    bugs={
        "forgets-vote": Altered(commit(ForgetsVote), breaks="commit needs every yes", fault="restart",
                                text="A participant commits, although it has forgotten its promise."),
        "changes-its-mind": Altered(commit(ChangesItsMind), breaks="one decision",
                                    text="The coordinator may have decided to commit."),
    },
)  # fmt: skip

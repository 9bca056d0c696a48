"""Laws: sentences about an algorithm that a function checks, and the laws that several entries share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations, pairwise, permutations, product
from typing import Any

import msgspec

from chord.gallery.process import Name, Process
from chord.gallery.recording import Recording, RunEvent, kind_of, words_of
from chord.gallery.world import SmallWorld

__all__ = ["Law", "Name", "Recording", "RunEvent", "SmallWorld", "law_of_runs", "law_of_worlds", "value_of"]


class Law(msgspec.Struct, frozen=True):
    """A sentence about an algorithm, and the function that checks it.

    Attributes:
        name: a short name.
        ticket: the ticket of the exam notes that states it; 0: it is from the course notes on sharding.
        text: the sentence.
        breach: returns how the law is broken, in words, or "" if it holds. It gets a `SmallWorld` or a `Recording`.
        is_of_runs: whether the function gets the recording of a run; otherwise it gets every state.
    """

    name: str
    ticket: int
    text: str
    breach: Callable[[Any], str]
    is_of_runs: bool

    @property
    def source(self) -> str:
        """The source that states this law: "ticket 5" of the exam notes, for example, or "course notes"."""
        return f"ticket {self.ticket}" if self.ticket else "course notes"


def law_of_worlds(name: str, ticket: int) -> Callable[[Callable[[SmallWorld], str]], Law]:
    """Return a decorator that turns a function of a `SmallWorld` into a law.

    Its docstring is the sentence of the law. It returns how a state breaks the law, in words, or "" if the law holds.

    Args:
        name: the short name of the law.
        ticket: the ticket of the exam notes that states it; 0: the course notes on sharding.
    """
    return lambda breach: Law(name, ticket, _sentence_of(breach), breach, False)


def law_of_runs(name: str, ticket: int) -> Callable[[Callable[[Recording], str]], Law]:
    """Return a decorator that turns a function of a `Recording` into a law.

    Its docstring is the sentence of the law. It returns how a run breaks the law, in words, or "" if the law holds. The
    law may depend on the events of each process and on `before`, but not on the order of concurrent events.

    Args:
        name: the short name of the law.
        ticket: the ticket of the exam notes that states it; 0: the course notes on sharding.
    """
    return lambda breach: Law(name, ticket, _sentence_of(breach), breach, True)


def _sentence_of(breach: Callable[..., str]) -> str:
    assert breach.__doc__, f"{breach.__name__} has no docstring, which is the sentence of the law"
    return breach.__doc__.strip()


def value_of(event: RunEvent, field: str) -> Any:
    """Return the value that a field of the process had after an event, as plain data: lists in place of tuples."""
    assert event.state is not None
    return event.state[field]


def times_of(e: RunEvent, f: RunEvent) -> str:
    """Return the times of two events in words: the values of the field `time`."""
    return f"{words_of(value_of(e, 'time'))} and {words_of(value_of(f, 'time'))}"


# -- mutual exclusion -------------------------------------------------------------------------------
# A process that takes part notes Did("enter", ticket) and Did("exit"), and has the field `is_inside`.


def _members(world: SmallWorld) -> list[Process]:
    return [process for process in world.processes.values() if hasattr(process, "is_inside")]


@law_of_worlds("one inside", ticket=4)
def one_inside(world: SmallWorld) -> str:
    """At most one process is inside the critical section."""
    inside = [process.me for process in _members(world) if getattr(process, "is_inside")]  # noqa: B009
    return f"{' and '.join(inside)} are inside" if len(inside) > 1 else ""


@law_of_runs("enter after exit", ticket=4)
def enter_after_exit(run: Recording) -> str:
    """Each exit from the critical section happens before the next entry."""
    enters, exits = run.dids("enter"), run.dids("exit")
    stays = [(e, next((x for x in exits if x.process == e.process and x.n > e.n), None)) for e in enters]
    for place, (enter, exit_) in enumerate(stays):
        for other, other_exit in stays[:place]:
            follows = other_exit is not None and run.before(other_exit, enter)
            if not follows and not (exit_ is not None and run.before(exit_, other)):
                return f"no exit of {other.process} or {enter.process} happens before the entry of the other process"
    return ""


@law_of_runs("smallest ticket first", ticket=5)
def smallest_ticket_first(run: Recording) -> str:
    """Processes enter the critical section in the order of their tickets. Names decide between equal tickets."""
    enters = run.dids("enter")
    for place, enter in enumerate(enters):
        for other in enters[:place]:
            is_later = (enter.message, enter.process) > (other.message, other.process)
            if run.before(enter, other) == is_later and (run.before(other, enter) or run.before(enter, other)):
                return f"{enter.process} with {enter.message} and {other.process} with {other.message} in wrong order"
    return ""


def everybody_was_inside(world: SmallWorld) -> bool:
    """Return whether each process that is up has entered and left the critical section as often as it may. A goal."""
    return not any(getattr(process, "left", 0) or getattr(process, "is_inside", False) for process in world.up())


# -- predicates -------------------------------------------------------------------------------------
# A process with a local predicate notes Did("true"), and reports it at once by a message Report. It has the field
# `trues`. Coordinators note Did("alarm"), and may pass a message Token between them.


@law_of_runs("alarm is right", ticket=12)
def alarm_is_right(run: Recording) -> str:
    """While no token is in transit, there is an alarm if and only if the reports contain a consistent cut."""
    arrived = [*run.of("receive"), *run.of("lost")]
    settled = {event.of for event in arrived if kind_of(event.message) == "report"}
    trues = [event for event in run.dids("true") if event.n + 1 in settled]  # the report is the next event
    names = [event.process for event in run.of("start") if event.state and event.state.get("trues")]
    is_true = _is_one_of_each_concurrent(run, trues, names)
    tokens = [event for event in [*run.of("send"), *run.of("doubled")] if kind_of(event.message) == "token"]
    is_in_transit = len(tokens) > sum(kind_of(event.message) == "token" for event in arrived)
    if is_in_transit or bool(run.dids("alarm")) == is_true:
        return ""
    return "the predicate holds, but there is no alarm" if is_true else "false alarm: no cut has all predicates true"


def _is_one_of_each_concurrent(run: Recording, events: Sequence[RunEvent], names: Sequence[Name]) -> bool:
    """Return whether one of the events of each process is concurrent with all others: a consistent cut."""
    rows = [[event for event in events if event.process == name] for name in names]
    return any(not any(run.before(e, f) or run.before(f, e) for e, f in combinations(cut, 2)) for cut in product(*rows))


# -- termination ------------------------------------------------------------------------------------
# A process has the field `is_active`. Process a, the root, also has `is_over`.


@law_of_worlds("over is true", ticket=14)
def over_is_true(world: SmallWorld) -> str:
    """If process a reports the end, all processes are passive, and no message is in transit."""
    if not is_over(world):
        return ""
    active = [process.me for process in world.processes.values() if process.is_active]
    if active:
        return f"over, but {', '.join(active)} active"
    return "over, but a message is in transit" if world.in_transit() else ""


def is_over(world: SmallWorld) -> bool:
    """Return whether process a knows that the computation has ended. A goal."""
    return bool(world.processes["a"].is_over)


# -- barriers ---------------------------------------------------------------------------------------
# A process notes Did("reach") and Did("pass"), and has the field `has_passed`.


@law_of_runs("reach before pass", ticket=15)
def reach_before_pass(run: Recording) -> str:
    """Every process reaches the barrier before any process passes it."""
    for passed in run.dids("pass"):
        before = {event.process for event in run.dids("reach") if run.before(event, passed)}
        if missing := [name for name in run.names if name not in before]:
            return f"{passed.process} passes the barrier, but {missing[0]} has not reached it before"
    return ""


def all_have_passed(world: SmallWorld) -> bool:
    """Return whether all processes that are up have passed the barrier. A goal."""
    return all(process.has_passed for process in world.up())


# -- order ------------------------------------------------------------------------------------------
# A process has the field `delivered`: the names of the messages that it has delivered, in order.


@law_of_worlds("total order", ticket=16)
def total_order(world: SmallWorld) -> str:
    """No two processes deliver two messages in opposite order."""
    for one, other in combinations(world.processes.values(), 2):
        common = [message for message in one.delivered if message in other.delivered]
        if common != [message for message in other.delivered if message in common]:
            return f"{one.me} and {other.me} deliver {' and '.join(common)} in different order"
    return ""


# -- consensus --------------------------------------------------------------------------------------
# Each process has the field `decision`, "" before it decides, and `preferences`, the first one first.


@law_of_worlds("agreement", ticket=18)
def agreement(world: SmallWorld) -> str:
    """All decisions are the same."""
    decided = {process.decision for process in world.processes.values()} - {""}
    return "one process decides 0, another one 1" if len(decided) > 1 else ""


@law_of_worlds("validity", ticket=18)
def validity(world: SmallWorld) -> str:
    """Each decision is the first preference of some process."""
    first = ["", *(process.preferences[0] for process in world.processes.values())]
    odd = [process.me for process in world.processes.values() if process.decision not in first]
    return f"no process preferred the decision of {odd[0]}" if odd else ""


# -- replicated logs --------------------------------------------------------------------------------
# Each process has a `log`. An entry begins with its term. The first `committed` entries are committed. `term` and
# `role` are those of the process, and `led` has the terms in which it was the leader.


@law_of_worlds("election safety", ticket=24)
def election_safety(world: SmallWorld) -> str:
    """A term has at most one leader."""
    led = [(term, process.me) for process in world.processes.values() for term in process.led]
    twice = [f"{one[1]} and {two[1]} lead term {one[0]}" for one, two in permutations(led, 2) if one[0] == two[0]]
    return twice[0] if twice else ""


@law_of_runs("leader append-only", ticket=24)
def leader_append_only(run: Recording) -> str:
    """A leader only appends to its log."""
    for name in run.names:
        states = [e.state for e in run.events if e.process == name and e.state is not None]
        for old, new in pairwise(states):
            if old["role"] == new["role"] == "leader" and new["log"][: len(old["log"])] != old["log"]:
                return f"the leader {name} changes its log"
    return ""


@law_of_worlds("log matching", ticket=24)
def log_matching(world: SmallWorld) -> str:
    """If two logs have entries of the same term at the same index, then they are equal up to this index."""
    for one, two in permutations(world.processes.values(), 2):
        for place, (item, other) in enumerate(zip(one.log, two.log, strict=False)):
            if item[0] == other[0] and one.log[: place + 1] != two.log[: place + 1]:
                return f"the logs of {one.me} and {two.me} differ before entry {place + 1} of one term"
    return ""


@law_of_worlds("leader completeness", ticket=24)
def leader_completeness(world: SmallWorld) -> str:
    """A leader has every entry that was committed in its term or earlier."""
    for one, leader in permutations(world.processes.values(), 2):
        kept = one.log[: one.committed]
        if leader.role == "leader" and leader.term >= one.term and leader.log[: len(kept)] != kept:
            return f"the leader {leader.me} lacks an entry that {one.me} has committed"
    return ""


@law_of_worlds("state machine safety", ticket=24)
def state_machine_safety(world: SmallWorld) -> str:
    """All processes commit the same entries at the same indices of their logs."""
    for one, two in permutations(world.processes.values(), 2):
        both = min(one.committed, two.committed)
        if one.log[:both] != two.log[:both]:
            return f"{one.me} and {two.me} commit different entries"
    return ""


GUARANTEES = (election_safety, leader_append_only, log_matching, leader_completeness, state_machine_safety)
"""The five guarantees of Raft."""

"""Checks a history against a model, key by key, with every checker of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from chord.verify.history.acknowledged import check_acknowledged
from chord.verify.history.format import Name, Operation, shown
from chord.verify.history.graph import check_graph
from chord.verify.history.register import Finding, RegisterResult, RegisterVerdict, Step, seen
from chord.verify.history.search import STEPS_MAX, SearchOutcome, search, that_matter
from chord.verify.history.shrink import shrink

Model: TypeAlias = Literal["linearizable", "acknowledged"]


class HistoryReport(NamedTuple):
    """The report on a history, with the result of each checker for each key.

    Attributes:
        model: the model that the history was checked against.
        operations: number of operations.
        keys: number of keys.
        results: the results, in the order in which the keys first occur. Each key has two results under model
            "linearizable", of the checkers graph and search, and one under model "acknowledged".
    """

    model: Model
    operations: int
    keys: int
    results: tuple[RegisterResult, ...]

    @property
    def findings(self) -> list[Finding]:
        """Every violation, in the order in which the keys first occur in the history."""
        return [finding for result in self.results for finding in result.findings]

    @property
    def undecided(self) -> list[Name]:
        """The keys with an undecided or partial result from every checker."""
        good = {result.key for result in self.results if result.verdict in ("ok", "violation")}
        return list(dict.fromkeys(result.key for result in self.results if result.key not in good))

    @property
    def verdict(self) -> RegisterVerdict:
        """The overall verdict: violation, undecided or ok.

        Any violation decides it. Otherwise it is undecided if there is a key that no checker could decide.
        """
        return "violation" if self.findings else "undecided" if self.undecided else "ok"


def check(
    operations: Iterable[Operation],
    model: Model = "linearizable",
    steps_max: int = STEPS_MAX,
    on_progress: Callable[[int], None] = lambda done: None,
) -> HistoryReport:
    """Check a history, key by key, with every checker of a model.

    Args:
        operations: the history.
        model: "linearizable" runs the checkers graph and search on each key. "acknowledged" runs the checker for an
            eventually consistent store.
        steps_max: limit of states that the search visits for each key; beyond it, the search is undecided. Model
            acknowledged ignores it.
        on_progress: called after each key, with the number of operations checked so far.
    """
    keys: dict[Name, list[Operation]] = {}
    for operation in operations:
        keys.setdefault(operation.key, []).append(operation)
    results: list[RegisterResult] = []
    done = 0
    for key, of_key in keys.items():
        if model == "acknowledged":
            results.append(check_acknowledged(key, of_key))
        else:
            results.append(check_graph(key, of_key))
            results.append(check_search(key, of_key, steps_max))
        done += len(of_key)
        on_progress(done)
    return HistoryReport(model, done, len(keys), tuple(results))


def check_search(key: Name, operations: Sequence[Operation], steps_max: int = STEPS_MAX) -> RegisterResult:
    """Check one key: search for an order of its operations that explains every answer.

    If no order exists, the violation is reduced to a few operations. After `steps_max` states of the search the verdict
    is undecided.
    """
    outcome = search(operations, steps_max)
    findings: tuple[Finding, ...] = ()
    if outcome.verdict == "violation":
        budget = max(1000, 2 * outcome.steps)
        few = shrink(that_matter(operations), lambda some: search(some, budget).verdict == "violation")
        text = f"no order explains these {len(few)} operations" if len(few) > 1 else "nothing explains this operation"
        if outcome.placed:
            text += f" (the search got {len(outcome.placed)} of all {len(operations)} in order)"
        findings = (Finding("search", key, text, _tell(few, search(few, budget))),)
    return RegisterResult("search", key, len(operations), outcome.verdict, findings, outcome.steps)


def _tell(few: Sequence[Operation], outcome: SearchOutcome) -> tuple[Step, ...]:
    """Explain a failed search, operation by operation, in the order of their calls.

    Each operation comes with its place in the longest order that was found, or the reason why it cannot be the next
    one. The reason is empty if the search did not get as far as the operation.

    Args:
        few: the operations of the reduced violation.
        outcome: the outcome of the search of these operations.
    """
    places = {operation.line: place for place, operation in enumerate(outcome.placed, 1)}
    stuck = {operation.line for operation in outcome.stuck}
    steps = []
    for operation in sorted(few, key=lambda o: (o.start_s, o.line)):
        why = ""
        if operation.line in places:
            why = f"can be number {places[operation.line]}"
        elif operation.line in stuck:
            saw = seen(operation)
            there = "nothing" if outcome.state is None else shown(outcome.state)
            if len(saw) > 1:
                why = "cannot be anywhere: a register holds one value"
            elif saw and saw != (outcome.state,):
                why = f"cannot be next: {there} is there"
            else:
                why = f"cannot be next: it would replace {there}, which is yet to be seen"
        steps.append(Step(operation, why))
    return tuple(steps)

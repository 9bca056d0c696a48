"""What the checkers share: what an operation says about a register, and how a verdict is told."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from chord.verify.history.format import Name, Operation, State

Checker: TypeAlias = Literal["graph", "search", "acknowledged"]
Verdict: TypeAlias = Literal["ok", "violation", "partial", "undecided"]


class Step(NamedTuple):
    """An operation that takes part in a violation, and how: in a cycle, what leads to the next."""

    operation: Operation
    why: str


class Finding(NamedTuple):
    """A violation in words, and the operations that make it up."""

    checker: Checker
    key: Name
    text: str
    steps: tuple[Step, ...]


class Result(NamedTuple):
    """What a checker says of one key.

    Attributes:
        verdict: `partial`: nothing found, but some reads could not be looked at; `undecided`: the steps ran out.
        steps: how many states a search went through.
    """

    checker: Checker
    key: Name
    operations: int
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    steps: int = 0


def seen(operation: Operation) -> tuple[State, ...]:
    """Return what an operation found in the register, if it took effect: several are siblings, none is no reader."""
    if operation.kind == "get":
        return operation.found or (None,)
    return (operation.old,) if operation.kind == "cas" else ()

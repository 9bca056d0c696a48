"""Types that the checkers share, and the values that an operation saw."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from chord.verify.history.format import Name, Operation, State

Checker: TypeAlias = Literal["graph", "search", "acknowledged"]
RegisterVerdict: TypeAlias = Literal["ok", "violation", "partial", "undecided"]


class Step(NamedTuple):
    """An operation of a violation, and why it takes part.

    In a cycle, the reason is the edge to the next operation. The reason is empty if the text of the violation says
    enough.
    """

    operation: Operation
    why: str


class Finding(NamedTuple):
    """A violation at one key.

    Attributes:
        checker: the checker that found it.
        key: the key.
        text: the violation in words.
        steps: the operations that contradict each other, each with a reason.
    """

    checker: Checker
    key: Name
    text: str
    steps: tuple[Step, ...]


class RegisterResult(NamedTuple):
    """The result of one checker for one key.

    Attributes:
        checker: the checker: graph, search or acknowledged.
        key: the key.
        operations: number of operations of the key.
        verdict: ok, violation, partial or undecided. Partial means that no violation was found, but some reads could
            not be checked. Undecided means that the search reached its limit of states.
        findings: the violations.
        steps: number of states that the search visited; 0 for the other checkers.
    """

    checker: Checker
    key: Name
    operations: int
    verdict: RegisterVerdict
    findings: tuple[Finding, ...] = ()
    steps: int = 0


def seen(operation: Operation) -> tuple[State, ...]:
    """Return the values that an operation saw in the register, if it took effect.

    The status is not checked. A get saw the values that it returned, or None ("not found") if it returned none. A cas
    saw the value that it replaces. Other operations saw nothing.
    """
    if operation.kind == "get":
        return operation.found or (None,)
    return (operation.old,) if operation.kind == "cas" else ()

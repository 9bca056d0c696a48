"""Helpers for tests of early puts: hold, lose and count the calls of one node."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeAlias

from chord.errors import ChordError, DeadlineExceeded
from chord.node import Node
from chord.wire.messages import Contact, Reply, Request

Fate: TypeAlias = Literal["pass", "hold", "lose the answer"]


class HeldCall(NamedTuple):
    """A call that has not left its node yet."""

    to: Contact
    request: Request
    begin: Callable[[], None]


class Wire:
    """The calls that the coordinators of one node begin.

    Attributes:
        rule: decides the fate of each call; at first every call passes.
        sent: all requests so far, each with its target.
        held: the calls that wait for `release`.
    """

    def __init__(self) -> None:
        self.rule: Callable[[Contact, Request], Fate] = lambda to, request: "pass"
        self.sent: list[tuple[Contact, Request]] = []
        self.held: list[HeldCall] = []

    def count(self, of: type[Request]) -> int:
        """Return how many requests of a type were sent."""
        return sum(type(request) is of for _, request in self.sent)

    def release(self, of: type[Request], to: Contact | None = None) -> None:
        """Let the held calls of a type leave: all of them, or those to one vnode."""
        chosen = [one for one in self.held if type(one.request) is of and to in (None, one.to)]
        self.held = [one for one in self.held if one not in chosen]
        for one in chosen:
            one.begin()


@contextmanager
def wire_of(node: Node) -> Iterator[Wire]:
    """Put a `Wire` between a node and its network during the block."""
    wire, calls = Wire(), node._host.peers._calls
    begin: Any = calls.begin

    def watched(to: Contact, request: Request, callback: Any, *, deadline: float) -> None:
        wire.sent.append((to, request))
        fate = wire.rule(to, request)
        if fate == "hold":
            wire.held.append(HeldCall(to, request, lambda: begin(to, request, callback, deadline=deadline)))
        elif fate == "lose the answer":

            def lose(answer: Reply | ChordError) -> None:
                callback(DeadlineExceeded("the answer is lost"))

            begin(to, request, lose, deadline=deadline)
        else:
            begin(to, request, callback, deadline=deadline)

    calls.begin = watched  # type: ignore[method-assign]
    try:
        yield wire
    finally:
        calls.begin = begin  # type: ignore[method-assign]

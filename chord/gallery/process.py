"""A process of an algorithm: its fields are its state, and its handlers yield effects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import msgspec

Name: TypeAlias = str
"""The name of a process: a, b, c and so on."""


class ProcessMessage(msgspec.Struct, frozen=True, tag=True, array_like=True):
    """A message between processes. Each kind of message is a subclass with its own fields."""


class Send(msgspec.Struct, frozen=True):
    """The effect: send `message` to the process `to`."""

    to: Name
    message: ProcessMessage


class Set(msgspec.Struct, frozen=True):
    """The effect: start the timer with this name, or start it again.

    In a run on virtual time the timer fires after `low_s` to `high_s` seconds. In a search it may fire at any moment.
    """

    timer: str
    low_s: float = 1.0
    high_s: float = 2.0


class Unset(msgspec.Struct, frozen=True):
    """The effect: stop the timer with this name, if it is set."""

    timer: str


class Did(msgspec.Struct, frozen=True):
    """The effect: note an event for laws and drawings. It changes nothing.

    Attributes:
        what: the name of the event, such as "enter".
        value: plain data that belongs to it, such as the ticket; None: nothing.
    """

    what: str
    value: Any = None


Effect: TypeAlias = Send | Set | Unset | Did
Effects: TypeAlias = Iterable[Effect]


class Process(msgspec.Struct, array_like=True, tag=True):
    """A process. A subclass adds fields with defaults, and the handlers that it needs.

    A handler is a generator of effects, or returns (). It never waits, and uses no time and no randomness. The
    annotation of the argument `message` names all messages that the process receives, as a union.

    Attributes:
        me: the name of this process.
        others: the names of all other processes, in ascending order.
        stable: the names of the fields that survive a crash. All other fields return to their defaults.
    """

    stable: ClassVar[tuple[str, ...]] = ()
    me: Name
    others: tuple[Name, ...]

    def asks(self) -> Sequence[str]:
        """Return the inputs that the environment may give now, such as "enter". By default, return no input."""
        return ()

    def on_start(self) -> Effects:
        """Handle the start of this process, also its restart after a crash. Return the effects."""
        return ()

    def on_message(self, sender: Name, message: Any) -> Effects:
        """Handle a message that arrives from another process. Return the effects."""
        return ()

    def on_ask(self, ask: str) -> Effects:
        """Handle an input of the environment, which `asks` named. Return the effects."""
        return ()

    def on_timer(self, timer: str) -> Effects:
        """Handle a timer that fires. It is no longer set. Return the effects."""
        return ()

    def all_others(self, message: ProcessMessage) -> Effects:
        """Return the effects that send a message to every other process."""
        return [Send(name, message) for name in self.others]


class Machine(Process):
    """A process that reads the states of its neighbours, and sends no messages."""

    def rule(self, seen: Mapping[Name, Any]) -> Machine | None:
        """Return the machine after its next move, or None if no rule is enabled.

        `seen` has all machines by name. The result is a changed copy, by `msgspec.structs.replace`.
        """
        return None


Make: TypeAlias = Callable[[Sequence[Name]], Iterable[Process]]
"""Returns the processes of a world, for the names of all of them."""


def names_of(count: int) -> tuple[Name, ...]:
    """Return the names of the processes of a world: a, b, c and so on; after z, p26, p27 and so on."""
    return tuple(chr(ord("a") + i) if i < 26 else f"p{i}" for i in range(count))


def all_of(kind: Callable[[Name, tuple[Name, ...]], Process]) -> Make:
    """Return a function that makes one process of the class `kind` for each name."""
    return lambda names: [kind(me, tuple(name for name in names if name != me)) for me in names]

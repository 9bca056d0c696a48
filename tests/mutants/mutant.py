"""A planted bug: methods that the bug replaces, or edits of a few words of the package's source.

A replaced method outlives a change of the source behind it, so prefer `Swap`. An edit reaches the middle of a method.
Neither goes stale unseen: if the source no longer has the method or the words, it raises an error.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest import mock


class Stale(Exception):
    """The source no longer has the function of a bug, or the words of an edit exactly once."""


class Swap:
    """Another function in place of a method, or of a function of a module.

    Args:
        owner: the class or the module.
        name: the name of the function in it.
        make: returns the other function, given the original one.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self.owner, self._name, self._make = owner, name, make

    @property
    def replacement(self) -> tuple[object, ...]:
        """Return the function, and what takes its place."""
        return self.owner, self._name, self._make

    def check(self) -> None:
        """Require that the owner itself defines the function.

        Raises:
            Stale: it does not.
        """
        if not inspect.isfunction(vars(self.owner).get(self._name)):
            raise Stale(f"{self.owner.__name__} defines no function {self._name}")

    def plant(self, stack: ExitStack) -> None:
        """Put the other function in place until the stack closes.

        Raises:
            Stale: there is no such function.
        """
        self.check()
        original = vars(self.owner)[self._name]
        stack.enter_context(mock.patch.object(self.owner, self._name, self._make(original)))


class Edit:
    """A replacement in the body of one function.

    Args:
        function: a method, or a property.
        old: the text to replace, of one line or several, indented as if the function stood at the margin.
        new: the replacement.
    """

    def __init__(self, function: Callable[..., Any] | property, old: str, new: str) -> None:
        wrapped = function.fget if isinstance(function, property) else function
        assert wrapped is not None
        self._function = wrapped
        self._source = textwrap.dedent(inspect.getsource(wrapped))  # now: the file may change while we run
        self._old, self._new = old, new

    @property
    def place(self) -> str:
        """Return the module and the name of the function."""
        return f"{self._function.__module__}.{self._function.__qualname__}"

    @property
    def replacement(self) -> tuple[object, ...]:
        """Return the place, the old text and the new text."""
        return self.place, self._old, self._new

    @property
    def owner(self) -> Any:
        """Return the class or module of the function."""
        found: Any = sys.modules[self._function.__module__]
        for part in self._function.__qualname__.split(".")[:-1]:
            found = getattr(found, part)
        return found

    def check(self) -> None:
        """Require that the function has the text to replace exactly once.

        Raises:
            Stale: it does not.
        """
        count = self._source.count(self._old)
        if count != 1:
            raise Stale(f"{self.place} holds {count} times, not once: {self._old!r}")

    def plant(self, stack: ExitStack) -> None:
        """Replace the function by the edited one until the stack closes.

        Raises:
            Stale: the text to replace is missing, or occurs several times.
        """
        self.check()
        source = self._source.replace(self._old, self._new)
        code = compile(source, f"<mutant of {self.place}>", "exec", annotations.compiler_flag)
        made: dict[str, Any] = {}
        exec(code, self._function.__globals__, made)
        name = self._function.__name__
        for place in (self.owner, *sys.modules.values()):  # other modules may have imported the function
            if vars(place).get(name) is self._function or place is self.owner:
                stack.enter_context(mock.patch.object(place, name, made[name]))


class Mutant(NamedTuple):
    """One bug.

    Attributes:
        name: the mistake.
        harm: its consequence.
        edits: the edits and swaps that plant it.
        scenario: a function of a seed that raises an error if a check fails.
        seeds: the maximum number of seeds until the bug is caught.
        checkers: the checkers that may catch it, as names of `checker_of`.
    """

    name: str
    harm: str
    edits: tuple[Edit | Swap, ...]
    scenario: Callable[[int], None]
    seeds: int
    checkers: tuple[str, ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Plant the bug during the block."""
        with ExitStack() as stack:
            for edit in self.edits:
                edit.plant(stack)
            yield


ORACLE = (
    (r" denies b'", "oracle: denied"),
    (r" reads \(.*\) under ", "oracle: misread"),
    (r" in a scan, which is old", "oracle: misread"),
    (r" and did not replace ", "oracle: replaced"),
    (r" was acknowledged, and no version that may have replaced it is there", "oracle: misread"),
    (r" has replaced a version that is there again", "oracle: misread"),
    (r" was replaced, and is back", "oracle: misread"),
    (r" does not find b'", "oracle: lost"),
    (r" was acknowledged, and no store has it", "oracle: lost"),
    (r" read b'.*' from \d+ nodes, and ", "oracle: quorum"),
    (r"; its disk has lost ", "oracle: lost"),
    (r" acknowledged b'.*' (?:on \d+ nodes, and it is durable on|with W =) ", "oracle: acknowledged"),
    (r" drops .*, which is left on ", "oracle: dropped"),
    (r" a dot was minted twice", "oracle: dots"),
    (r" takes no write in the end", "oracle: refused"),
    (r" made a backup from [\d.]+ s on; the backup lacks ", "oracle: backup"),
    (r" in quarantine, and no reap log was trimmed", "oracle: quarantine"),
)
COPIES = (r"the replicas of b'.* differ", r"b'.* is on .*, and belongs on ", r" has writes of b'.* that .* lack")
LIVENESS = (r"not Ideal after", r"^TooSlowError", r"it took too long")


def checker_of(complaint: str) -> str:
    """Return the checker of a complaint: the name of an invariant, the oracle, the copies, or liveness."""
    first = complaint.partition("\n")[0]
    found = re.search(r"(?:^| at [\d.]+ s: )([A-Z][A-Za-z]+): ", first)
    if found is not None and not found[1].endswith("Error"):
        return found[1]
    for pattern, name in ORACLE:
        if re.search(pattern, first):
            return name
    if any(re.search(pattern, first) for pattern in COPIES):
        return "copies"
    if any(re.search(pattern, complaint) for pattern in LIVENESS):
        return "liveness"
    return f"none: {first[:60]}"

"""What a planted bug is: a few words of the package's own source replaced by wrong ones.

A bug written as an edit is read at a glance, and it cannot go stale unseen: where the source has
changed so that the words are gone, the edit says so instead of planting nothing.
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
    """The source is no longer what the edit was written for."""


class Edit:
    """A replacement in the body of one function.

    Args:
        function: a method, or a property.
        old: what stands there once, within one line or over several, indented as if the function stood at the margin.
        new: what is to stand there.
    """

    def __init__(self, function: Callable[..., Any] | property, old: str, new: str) -> None:
        wrapped = function.fget if isinstance(function, property) else function
        assert wrapped is not None
        self._function = wrapped
        self._source = textwrap.dedent(inspect.getsource(wrapped))  # now: the file may change while we run
        self._old, self._new = old, new

    @property
    def place(self) -> str:
        """Which function of which module."""
        return f"{self._function.__module__}.{self._function.__qualname__}"

    @property
    def replacement(self) -> tuple[str, str, str]:
        """The place, the words that go, and the words that come."""
        return self.place, self._old, self._new

    @property
    def owner(self) -> Any:
        """The class or module that holds the function."""
        found: Any = sys.modules[self._function.__module__]
        for part in self._function.__qualname__.split(".")[:-1]:
            found = getattr(found, part)
        return found

    def plant(self, stack: ExitStack) -> None:
        """Have the edited function in place of the function, for the life of the stack.

        Raises:
            Stale: the words to replace are not there, or there several times.
        """
        count = self._source.count(self._old)
        if count != 1:
            raise Stale(f"{self.place} holds {count} times, not once: {self._old!r}")
        source = self._source.replace(self._old, self._new)
        code = compile(source, f"<mutant of {self.place}>", "exec", annotations.compiler_flag)
        made: dict[str, Any] = {}
        exec(code, self._function.__globals__, made)
        name = self._function.__name__
        stack.enter_context(mock.patch.object(self.owner, name, made[name]))


class Mutant(NamedTuple):
    """One bug.

    Attributes:
        name: what is wrong.
        harm: what comes of it.
        edits: put it in.
        scenario: where it shows; a function of a seed that raises when it saw something.
        seeds: within so many it is caught.
        checkers: who may catch it, so that it is caught for the right reason; see `checker_of`.
    """

    name: str
    harm: str
    edits: tuple[Edit, ...]
    scenario: Callable[[int], None]
    seeds: int
    checkers: tuple[str, ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        """Have the bug for the length of the block."""
        with ExitStack() as stack:
            for edit in self.edits:
                edit.plant(stack)
            yield


LEDGER = (
    (r" denies b'", "ledger: denied"),
    (r" reads \(.*\) under ", "ledger: misread"),
    (r" in a scan, which is old", "ledger: misread"),
    (r" and did not replace ", "ledger: replaced"),
    (r" was acknowledged, and no version that may have replaced it is there", "ledger: misread"),
    (r" has replaced a version that is there again", "ledger: misread"),
    (r" was replaced, and is back", "ledger: misread"),
    (r" does not find b'", "ledger: lost"),
    (r" was acknowledged, and no store has it", "ledger: lost"),
    (r" read b'.*' from \d+ nodes, and ", "ledger: quorum"),
    (r"; its disk has lost ", "ledger: lost"),
    (r" acknowledged b'.*' (?:on \d+ nodes, and it is durable on|with W =) ", "ledger: acknowledged"),
    (r" drops .*, which is left on ", "ledger: dropped"),
    (r" a dot was minted twice", "ledger: dots"),
    (r" takes no write in the end", "ledger: refused"),
    (r" in quarantine, and no reap log was trimmed", "ledger: quarantine"),
)
COPIES = (r"the replicas of b'.* differ", r"b'.* is on .*, and belongs on ", r" has writes of b'.* that .* lack")
LIVENESS = (r"not Ideal after", r"^TooSlowError", r"it took too long")


def checker_of(complaint: str) -> str:
    """Return which checker a complaint comes from: an invariant by its name, the ledger, the copies, or liveness."""
    first = complaint.partition("\n")[0]
    found = re.search(r"(?:^| at [\d.]+ s: )([A-Z][A-Za-z]+): ", first)
    if found is not None and not found[1].endswith("Error"):
        return found[1]
    for pattern, name in LEDGER:
        if re.search(pattern, first):
            return name
    if any(re.search(pattern, first) for pattern in COPIES):
        return "copies"
    if any(re.search(pattern, complaint) for pattern in LIVENESS):
        return "liveness"
    return f"none: {first[:60]}"

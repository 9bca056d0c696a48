"""Health: why a node does not serve all requests.

A component that finds a problem reports it under a subject (`records`, `node.json`, `descriptors`, …), and clears it
when it is over. `status` and `check` show the reasons. A node with a reason does not report that it is ready.
"""

from __future__ import annotations

from collections.abc import Callable

from chord.events import Event, HealthChanged


class Health:
    """The health problems of one node.

    Args:
        tell: called with one event, in a list, when a reason appears, changes or goes.

    Concurrency: synchronous.
    """

    __slots__ = ("_reasons", "_sources", "_tell")

    def __init__(self, tell: Callable[[list[Event]], object]) -> None:
        self._tell = tell
        self._reasons: dict[str, str] = {}
        self._sources: dict[str, Callable[[], str]] = {}

    def report(self, subject: str, why: str) -> None:
        """Set or clear the problem of one subject, and emit an event if it changed.

        Args:
            subject: the part of the node with the problem. A later report on the subject replaces this one.
            why: a clause for people; "" clears the subject.
        """
        if self._reasons.get(subject, "") != why:
            self._reasons[subject] = why
            self._tell([HealthChanged(subject, why)])
        if not why:
            self._reasons.pop(subject, None)

    def clear(self, subject: str) -> None:
        """Clear a subject, because its problem is over."""
        self.report(subject, "")

    def watch(self, subject: str, why: Callable[[], str]) -> None:
        """Call a function for a subject's problem whenever the reasons are read.

        Args:
            subject: the part of the node.
            why: returns the problem, or "" if the subject has no problem.
        """
        self._sources[subject] = why

    def reasons(self) -> tuple[str, ...]:
        """Return why the node does not serve all requests; an empty tuple if it does.

        The reasons are in the order in which they appeared. The call asks the functions of `watch` first, and emits an
        event for each reason that has changed.
        """
        for subject, why in self._sources.items():
            self.report(subject, why())
        return tuple(self._reasons.values())

"""Why a node does not serve all that it is asked for, if it does not: the one place that knows.

Whatever finds a trouble reports it under a subject (`records`, `node.json`, `descriptors`, …) and clears it when it is
over. `status` and `check` tell of the reasons, and a node that has one does not say that it is ready.
"""

from __future__ import annotations

from collections.abc import Callable

from chord.events import Event, HealthChanged


class Health:
    """The troubles of one node.

    Args:
        tell: is told when a reason appears, changes or goes.

    Concurrency: synchronous.
    """

    __slots__ = ("_reasons", "_sources", "_tell")

    def __init__(self, tell: Callable[[list[Event]], object]) -> None:
        self._tell = tell
        self._reasons: dict[str, str] = {}
        self._sources: dict[str, Callable[[], str]] = {}

    def report(self, subject: str, why: str) -> None:
        """From now on the node does not serve all requests.

        Args:
            subject: what has the trouble; a later report on it takes the place of this one.
            why: a clause for people; "" as `clear`.
        """
        if self._reasons.get(subject, "") != why:
            self._reasons[subject] = why
            self._tell([HealthChanged(subject, why)])
        if not why:
            self._reasons.pop(subject, None)

    def clear(self, subject: str) -> None:
        """The trouble is over, if there was one."""
        self.report(subject, "")

    def watch(self, subject: str, why: Callable[[], str]) -> None:
        """Ask for the trouble of a subject whenever the reasons are looked at; "" means that there is none."""
        self._sources[subject] = why

    def reasons(self) -> tuple[str, ...]:
        """Return why the node does not serve all requests; nothing, if it does."""
        for subject, why in self._sources.items():
            self.report(subject, why())
        return tuple(self._reasons.values())

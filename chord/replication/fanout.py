"""Ask several nodes at once, and another one for each that fails or is late; stop waiting when enough answered.

Who is asked costs no task, and is listened to after the asker has enough: a replica that is slower than the quorum gets
its copy all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import trio

from chord.errors import ChordError, NotReady
from chord.ring.context import Host
from chord.ring.vnode import RETRY_MS
from chord.wire.messages import Contact

Told: TypeAlias = Callable[[ChordError | None], None]
"""Is told, once, that a node has answered (its answer is the asker's affair), or what went wrong."""

Ask: TypeAlias = Callable[[Contact, Told], None]


class Fan:
    """One question to many. Synchronous: whoever begins it is told when it is over.

    Args:
        ask: ask one node, under a deadline; may tell before it returns.
        spare: whom to ask besides, in this order: one for each that fails, and one whenever those who are waited for
            take longer than their own timeouts.

    Attributes:
        failures: who failed, and how.
        waiting: who has not answered yet.
    """

    def __init__(self, host: Host, ask: Ask, spare: Sequence[Contact]) -> None:
        self._host = host
        self._ask = ask
        self._spare = list(spare)
        self._is_enough: Callable[[], bool] = _never
        self._done: Told | None = None
        self._on_late = self._late
        self.failures: dict[Contact, ChordError] = {}
        self.waiting: dict[Contact, None] = {}

    def begin(self, is_enough: Callable[[], bool], first: Sequence[Contact], done: Told) -> None:
        """Ask the first, and the spare where needed, until enough is known or nobody is left to answer.

        Args:
            done: is told, once, that this is so, or `NotReady` where the node is ending; maybe before this returns.
                Whoever was asked is listened to all the same afterwards.
        """
        if self._host.is_ending:
            done(NotReady("the node is ending", after_ms=RETRY_MS))
            return
        for contact in first:
            self._start(contact)
        self._is_enough, self._done = is_enough, done
        self._look()

    def _look(self) -> None:
        if self._done is None:
            return
        if self._is_enough() or (not self.waiting and not self._one_more()):
            done, self._done = self._done, None
            self._host.timers.clear(self._on_late)
            done(None)
        elif self._done is not None and self.waiting:  # who was asked just now may have answered at once
            self._host.timers.set(self._on_late, trio.current_time() + self._late_s())

    def _late(self) -> None:
        self._one_more()
        self._look()

    def _late_s(self) -> float:
        timeout = self._host.peers.suspicion.timeout
        return max(timeout(contact.address) for contact in self.waiting)

    def _one_more(self) -> bool:
        if not self._spare or self._host.is_ending:
            return False
        self._start(self._spare.pop(0))
        return True

    def _start(self, contact: Contact) -> None:
        self.waiting[contact] = None
        self._ask(contact, partial(self._heard, contact))

    def _heard(self, contact: Contact, error: ChordError | None) -> None:
        self.waiting.pop(contact, None)
        if error is not None:
            self.failures[contact] = error
            self._one_more()
        self._look()


def _never() -> bool:
    return False

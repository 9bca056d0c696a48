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
from chord.host import Host
from chord.messages import Contact

Told: TypeAlias = Callable[[ChordError | None], None]
"""Is told, once, that a node has answered (its answer is the asker's affair), or what went wrong."""

Ask: TypeAlias = Callable[[Contact, Told], None]

RETRY_MS = 50


class Fan:
    """One question to many.

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
        self._news = trio.Event()
        self.failures: dict[Contact, ChordError] = {}
        self.waiting: dict[Contact, None] = {}

    async def until(self, is_enough: Callable[[], bool], first: Sequence[Contact]) -> None:
        """Ask the first, and the spare where needed, until enough is known or nobody is left to answer.

        Raises:
            NotReady: the node is ending.

        Concurrency: checkpoints unless enough is known already; cancelled, those who were asked are still listened to.
        """
        if self._host.is_ending:
            raise NotReady("the node is ending", after_ms=RETRY_MS)
        for contact in first:
            self._start(contact)
        while not is_enough():
            if not self.waiting and not self._one_more():
                return
            self._news = trio.Event()
            with trio.move_on_after(self._late_s()) as scope:
                await self._news.wait()
            if scope.cancelled_caught:
                self._one_more()

    def _late_s(self) -> float:
        timeout = self._host.peers.suspicion.timeout
        return max((timeout(contact.address) for contact in self.waiting), default=0.0)

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
        self._news.set()

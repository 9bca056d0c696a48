"""Scatter-gather with hedging: ask several nodes at once, and a spare for each that fails or is late.

The nodes cost no task. The fan-out still listens after enough nodes have answered, so a replica that is slower than the
quorum gets its copy as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, TypeAlias

import trio

from chord.errors import ChordError
from chord.net.calls import Sender
from chord.net.steps import Driver, Steps
from chord.replication.effects import ending
from chord.ring.context import Host
from chord.wire.messages import Contact

AskOne: TypeAlias = Callable[[Contact], Steps[None]]
"""Returns the steps that ask one node. A `ChordError` in them counts as the node's failure."""


class Fanout:
    """One question to several nodes.

    Args:
        ask_one: the steps for one node.
        spares: further nodes, in this order. The fan-out asks one for each node that fails, and one whenever the nodes
            it waits for take longer than their own timeouts.

    Attributes:
        failures: the error of each node that failed.
        waiting: the nodes that have not answered yet.
    """

    def __init__(self, host: Host, ask_one: AskOne, spares: Sequence[Contact] = ()) -> None:
        self._host = host
        self._ask_one = ask_one
        self._spares = list(spares)
        self._first: Sequence[Contact] = ()
        self._is_enough: Callable[[], bool] = bool
        self._driver: Driver[Any] | None = None
        self._sender: Sender | None = None
        self._on_late = self._late
        self.failures: dict[Contact, ChordError] = {}
        self.waiting: dict[Contact, None] = {}

    def ask(self, first: Sequence[Contact], until: Callable[[], bool]) -> Self:
        """Return the effect of asking nodes until enough is known, or until no node is left to answer.

        Raises `NotReady` in the steps if the node is ending.
        """
        self._first, self._is_enough = first, until
        return self

    def begin(self, driver: Driver[Any], /) -> None:
        """Ask the first nodes."""
        if self._host.is_ending:
            raise ending()
        self._sender = driver.sender
        for contact in self._first:
            self._start(contact)
        self._driver = driver
        self._look()

    def _look(self) -> None:
        driver = self._driver
        if driver is None:
            return
        if self._is_enough() or (not self.waiting and not self._start_spare()):
            self._driver = None
            self._host.timers.clear(self._on_late)
            driver.resume()
        elif self._driver is not None and self.waiting:  # the spare may have answered at once
            self._host.timers.set(self._on_late, trio.current_time() + self._late_s())

    def _late(self) -> None:
        self._start_spare()
        self._look()

    def _late_s(self) -> float:
        timeout = self._host.peers.suspicion.timeout
        return max([timeout(contact.address) for contact in self.waiting])

    def _start_spare(self) -> bool:
        if not self._spares or self._host.is_ending:
            return False
        self._start(self._spares.pop(0))
        return True

    def _start(self, contact: Contact) -> None:
        self.waiting[contact] = None
        Driver(self._ask_one(contact), self._sender).begin(partial(self._on_end, contact))

    def _on_end(self, contact: Contact, result: Exception | None) -> None:
        self.waiting.pop(contact, None)
        if isinstance(result, ChordError):
            self.failures[contact] = result
            self._start_spare()
        elif result is not None:
            raise result  # a bug in the steps
        self._look()

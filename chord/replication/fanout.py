"""Hedged fan-out: ask several nodes at once, and spares for failed or late nodes.

The fan-out needs no task for a node. It still handles answers after enough nodes have answered, so a replica that is
slower than the quorum gets its copy, too.
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
from chord.ring.context import NodeContext
from chord.wire.messages import Contact

HASTY_FACTOR = 2
"""A hasty question ends when no node has answered for this many times the longest timeout of the pending nodes.

A replica answers after a sync of its disk, which the timeouts of short calls do not include.
"""

AskOne: TypeAlias = Callable[[Contact], Steps[None]]
"""Returns the operation that asks one node, as steps (see `chord/net/steps.py`).

A `ChordError` in the steps counts as the node's failure.
"""


class Fanout:
    """A question to several nodes at once, with spares for failed or late nodes. `ask` puts it to the first nodes.

    Args:
        host: the node context.
        ask_one: returns the steps that ask one node and take its answer.
        spares: further nodes, in this order. The fan-out asks one for each node that fails. It also asks one whenever
            the pending nodes take longer than the longest of their timeouts.

    Attributes:
        failures: the error of each node that failed.
        waiting: the nodes that were asked and have neither answered nor failed yet.
    """

    def __init__(self, host: NodeContext, ask_one: AskOne, spares: Sequence[Contact] = ()) -> None:
        self._host = host
        self._ask_one = ask_one
        self._spares = list(spares)
        self._first: Sequence[Contact] = ()
        self._is_enough: Callable[[], bool] = bool
        self._is_hasty = False
        self._driver: Driver[Any] | None = None
        self._sender: Sender | None = None
        self._on_late = self._late
        self.failures: dict[Contact, ChordError] = {}
        self.waiting: dict[Contact, None] = {}

    def ask(self, first: Sequence[Contact], until: Callable[[], bool], *, is_hasty: bool = False) -> Self:
        """Return this object as the effect that asks nodes until enough have answered.

        The effect also ends, without an error, when no node is left that may answer. So the caller checks the answers
        itself. A second call asks further nodes, with the spares that are left. If this node is ending, `NotReady` is
        raised in the steps, at the `yield` of the effect.

        Args:
            first: the nodes to ask at once.
            until: returns whether the answers so far are enough.
            is_hasty: whether the effect also ends when the pending nodes are late (`HASTY_FACTOR`). They stay in
                `waiting`, and their answers are still handled. No spare is asked.
        """
        self._first, self._is_enough, self._is_hasty = first, until, is_hasty
        return self

    def add_spares(self, spares: Sequence[Contact]) -> None:
        """Add further spares, for the nodes that fail or are late from now on."""
        self._spares += spares

    def begin(self, driver: Driver[Any], /) -> None:
        """Ask the first nodes; resume the driver when enough have answered."""
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
            self._end(driver)
        elif (self._spares or self._is_hasty) and self._driver is not None and self.waiting:
            late_s, timeout = 0.0, self._host.peers.failure_detector.timeout
            for contact in self.waiting:
                late_s = max(late_s, timeout(contact.address))
            late_s *= HASTY_FACTOR if self._is_hasty else 1
            self._host.timers.set(self._on_late, trio.current_time() + late_s)

    def _end(self, driver: Driver[Any]) -> None:
        self._driver = None
        self._host.timers.clear(self._on_late)
        driver.resume()

    def _late(self) -> None:
        if self._is_hasty and self._driver is not None:
            self._end(self._driver)
            return
        self._start_spare()
        self._look()

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

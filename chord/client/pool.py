"""The connections of a blocking client: one or two streams to each node, for each thread that makes calls.

Only `chord.client.blocking` uses them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TypeAlias

from chord.client.routing import LINKS_MAX
from chord.client.session import ClientCall, Learn, Outcome
from chord.client.sockets import Link
from chord.config import Limits
from chord.errors import ChordError, OtherRing, Overloaded, UseBulk
from chord.wire.cuts import CutNumber
from chord.wire.messages import Contact, StreamName

POOLS_MAX = 8  # threads that make calls at once: a node takes 32 connections from one host (`connections_per_host_max`)

Way: TypeAlias = tuple[str, StreamName]
"""An address, and the kind of stream to it."""


class Pools:
    """The connections of a blocking client, for all threads that share it.

    Each thread borrows a `Pool` while it makes calls. The pool used last is lent first, so one thread keeps one pool.

    Args:
        limits: the sizes of frames.
        learn: called with the hello of each node.
        cuts: the number of the newest cut that the client knows.

    Concurrency: any number of threads may share one object.
    """

    def __init__(self, limits: Limits, learn: Learn, cuts: CutNumber) -> None:
        self._limits = limits
        self._learn = learn
        self._cuts = cuts
        self._lock = threading.RLock()  # a signal handler may use the client while this thread holds the lock
        self._returned = threading.Condition(self._lock)
        self._idle: list[Pool] = []
        self._lent = 0
        self._waiting = 0
        self._is_closed = False

    def ask(self, calls: Sequence[ClientCall], deadline: float) -> tuple[Outcome, ...]:
        """Make calls at the same time, and return the outcome of each, in order.

        If other threads use all pools until the deadline, every outcome is `Overloaded`.

        Args:
            calls: the calls.
            deadline: the time by which all calls end, in seconds on the monotonic clock.
        """
        pool = self._borrow(deadline)
        if pool is None:
            return tuple(Overloaded(f"{POOLS_MAX} threads use all connections of this client") for _ in calls)
        try:
            return pool.ask(calls, deadline)
        except BaseException:
            pool.close()  # an interrupt may have left half a frame on a stream
            raise
        finally:
            self._give_back(pool)

    def open(self, ways: Sequence[Way], deadline: float) -> dict[Way, ChordError]:
        """Open connections to several nodes at once, and return the error of each that failed.

        Args:
            ways: the connections: pairs of an address and a stream, "control" or "bulk".
            deadline: the time by which they must be open, in seconds on the monotonic clock.
        """
        pool = self._borrow(deadline)
        assert pool is not None  # the client is not shared before it is open
        try:
            return pool.open(ways, deadline)
        finally:
            self._give_back(pool)

    def close(self) -> None:
        """Close all connections. A pool that a thread has borrowed closes when the thread returns it."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for pool in idle:
            pool.close()

    def _borrow(self, deadline: float) -> Pool | None:
        """Return a pool for this thread alone; None if none gets free in time."""
        with self._lock:
            while self._lent >= POOLS_MAX:
                self._waiting += 1
                try:
                    if not self._returned.wait(max(0.0, deadline - time.monotonic())):
                        return None
                finally:
                    self._waiting -= 1
            self._lent += 1
            return self._idle.pop() if self._idle else Pool(self._limits, self._learn, self._cuts)

    def _give_back(self, pool: Pool) -> None:
        with self._lock:
            self._lent -= 1
            if self._is_closed:
                pool.close()
            else:
                self._idle.append(pool)
            if self._waiting:
                self._returned.notify()


class Pool:
    """The open connections of one thread.

    Args:
        limits: the sizes of frames.
        learn: called with the hello of each node.
        cuts: the number of the newest cut that the client knows.
    """

    def __init__(self, limits: Limits, learn: Learn, cuts: CutNumber) -> None:
        self._limits = limits
        self._learn = learn
        self._cuts = cuts
        self._links: dict[Way, Link] = {}

    def close(self) -> None:
        """Close all connections."""
        for link in self._links.values():
            link.close()
        self._links.clear()

    def ask(self, calls: Sequence[ClientCall], deadline: float) -> tuple[Outcome, ...]:
        """Make calls at the same time, and return the outcome of each, in order.

        Args:
            calls: the calls. The `within_s` of a call may end it earlier.
            deadline: the time by which all calls end, in seconds on the monotonic clock.
        """
        ways: list[Way] = [(call.address, "bulk" if call.request.bulk else "control") for call in calls]
        outcomes = self._ask_over(calls, ways, deadline)
        again = [i for i, outcome in enumerate(outcomes) if isinstance(outcome, UseBulk)]
        if again:
            on_bulk: list[Way] = [(calls[i].address, "bulk") for i in again]
            for i, outcome in zip(again, self._ask_over([calls[i] for i in again], on_bulk, deadline), strict=True):
                outcomes[i] = outcome
        return tuple(outcomes)

    def _ask_over(self, calls: Sequence[ClientCall], ways: Sequence[Way], deadline: float) -> list[Outcome]:
        """Open missing streams, send all requests, then wait for the replies.

        Calls with a limit of their own are sent last. A node that never sends its hello does not delay the others.
        """
        outcomes: list[Outcome | None] = [None] * len(calls)
        sent: dict[Way, set[int]] = {}
        until: dict[Way, float] = {}
        now = time.monotonic()
        at_once: dict[int, float] = {}  # by index of the call: its limit
        limited: dict[int, float] = {}
        for i, call in enumerate(calls):
            if call.within_s is None:
                at_once[i] = deadline
            else:
                limited[i] = min(deadline, now + call.within_s)
        for group in (at_once, limited):
            if not group:
                continue
            failures = self.open(list(dict.fromkeys(map(ways.__getitem__, group))), max(group.values()))
            for i, by in group.items():
                call, way = calls[i], ways[i]
                if way in failures:
                    outcomes[i] = failures[way]
                    continue
                try:
                    vnode = call.to.id if isinstance(call.to, Contact) else None
                    callback = partial(outcomes.__setitem__, i)
                    until[way] = max(by, until.get(way, by))
                    sent.setdefault(way, set()).add(self._links[way].send(call.request, vnode, by, callback))
                except ChordError as error:
                    outcomes[i] = error
        for way, call_ids in sent.items():
            self._links[way].wait(call_ids, until[way])
        assert None not in outcomes
        return [outcome for outcome in outcomes if outcome is not None]

    def open(self, ways: Sequence[Way], deadline: float) -> dict[Way, ChordError]:
        """Open those of several connections that are missing, all at once, and return the error of each that failed.

        If more than `LINKS_MAX` would be open, the oldest others are closed. With several connections, half of the time
        until the deadline is left for requests.

        Args:
            ways: the connections: pairs of an address and a stream, "control" or "bulk".
            deadline: the time limit, in seconds on the monotonic clock.
        """
        for way in list(self._links)[: max(0, len(self._links) + len(ways) - LINKS_MAX)]:
            if way not in ways:
                self._links.pop(way).close()
        opening: dict[Way, Link] = {}
        failures: dict[Way, ChordError] = {}
        for way in ways:
            if way not in self._links or not self._links[way].is_usable():
                opening[way] = Link(*way, self._limits, self._cuts)
        # A node that never sends its hello must leave time for requests to the others.
        by = deadline if len(ways) == 1 else (time.monotonic() + deadline) / 2
        for step in (Link.dial, lambda link: link.send_hello(by), lambda link: self._welcome(link, by)):
            for way, link in opening.items():
                if way not in failures:
                    try:
                        step(link)
                    except ChordError as error:
                        failures[way] = error
        for way, link in opening.items():
            if (old := self._links.pop(way, None)) is not None:
                old.close()
            if way not in failures:
                self._links[way] = link
        return failures

    def _welcome(self, link: Link, deadline: float) -> None:
        hello = link.receive_hello(deadline)
        try:
            self._learn(link.address, hello.bits, hello.ring, hello.features)
        except OtherRing:
            link.close()
            raise

"""The blocking client: plain sockets, no event loop, quick to import.

    with chord.connect("127.0.0.1:9000") as client:
        client.put("user:42", b"Ada")
        client.get("user:42").value

`Client` drives the operations of `chord.client.operations` over `chord.client.pool`. Threads may share a `Client`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from chord.client.blocking_api import ClientApi
from chord.client.operations import Operations
from chord.client.pool import Pools
from chord.client.routing import CLIENT_ARCS_MAX
from chord.client.session import TIMEOUT_S, ClientOperation, ClientSession, MakeCalls, Outcome, Timed
from chord.config import Limits
from chord.errors import DeadlineExceeded, InvalidRequest, PeerUnreachable
from chord.wire.cuts import CutNumber

HELLO_S = 0.25
"""A running node sends its hello within this time. If a shorter deadline passes, that says nothing about the node."""

T = TypeVar("T")


def connect(*addresses: str, timeout_s: float = TIMEOUT_S, limits: Limits | None = None) -> Client:
    """Connect to a ring through the first node that answers.

    Args:
        addresses: HOST:PORT of one or more nodes. If the node in use stops answering, the client turns to the next.
        timeout_s: time limit in seconds for connecting, and for every operation; default: 5.
        limits: size limits, if the ring uses other than the defaults.

    Returns:
        The client, as a context manager that closes the connections at its end.

    Raises:
        ConfigError, InvalidRequest: an address is not HOST:PORT, or no address was given.
        PeerUnreachable: none of the nodes answers.
        OtherRing: a node speaks another version of the protocol.
    """
    client = Client(addresses, timeout_s=timeout_s, limits=limits or Limits())
    try:
        client._drive(client._core.session.enter())
    except BaseException:
        client.close()
        raise
    return client


class Client(ClientApi):
    """A client of a ring for blocking programs. Created by `connect`.

    `timeout_s` limits the time of every operation: 5 seconds by default. It limits each operation, each batch of an
    operation on many keys, and each page of `scan` and `export`. If it passes, the operation raises the ring's last
    error, or `DeadlineExceeded` if there was none.

    The operations are those of `Api` (`chord.client.blocking_api`). `key in client` reads a key, and tells whether a
    value is stored under it.

    Attributes:
        timeout_s: time limit of every operation in seconds. It may be changed between operations.
        is_closed: whether the client is closed, by `close` or at the end of its `with` block. Then every operation
            raises `InvalidRequest`.

    Concurrency: any number of threads may share a `Client`. Up to eight make calls at the same time, each over
    connections of its own. Further threads wait for one of the eight, within their own time limit. An iterator that
    `scan`, `export` or `scan_quarantine` returned belongs to one thread at a time. If one thread closes the `Client`,
    operations that other threads have begun may still end, and their connections close then. A process that forks must
    connect anew in the child.
    """

    def __init__(self, addresses: Sequence[str], *, timeout_s: float, limits: Limits) -> None:
        self.timeout_s = timeout_s
        cuts = CutNumber(lock=threading.RLock())
        session = ClientSession(
            addresses,
            rng=random.SystemRandom(),
            arcs_max=CLIENT_ARCS_MAX,
            members_max=limits.members_max,
            cuts=cuts,
        )
        self._core = Operations(session)
        self._limits = limits
        self._pools = Pools(limits, self._learn, cuts)
        self.is_closed = False
        # Held while an operation advances, never during I/O or in code of the caller. A signal handler may use the
        # client while its thread holds this lock or that of `cuts`.
        self._lock = threading.RLock()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections. Repeated calls do nothing."""
        self.is_closed = True
        self._pools.close()

    def __contains__(self, key: str | bytes) -> bool:
        """Return whether a value is stored under a key: `key in client`.

        Raises:
            TooFewReplicas, OwnerDown, RecordDamaged: as for `get`.
        """
        return self.contains(key)

    def _drive(self, operation: ClientOperation[T]) -> T:
        if self.is_closed:
            raise InvalidRequest("this client is closed: its block has ended; connect again: chord.connect(...)")
        now = time.monotonic()
        timed = Timed(operation, now, now + self.timeout_s)
        outcomes: tuple[Outcome, ...] | None = None
        while True:
            with self._lock:
                effect = timed.next(time.monotonic(), outcomes)
            if effect is None:
                return timed.result
            if isinstance(effect, MakeCalls):
                outcomes = self._pools.ask(effect.calls, timed.limit(effect, time.monotonic()))
                if self.timeout_s < HELLO_S:
                    calls = zip(outcomes, effect.calls, strict=True)
                    outcomes = tuple(self._judged(outcome, call.address) for outcome, call in calls)
            else:
                time.sleep(effect.seconds)
                outcomes = None

    def _learn(self, address: str, bits: int, ring_id: bytes | None, features: int) -> None:
        with self._lock:
            self._core.session.learn(address, bits, ring_id, features)

    def _judged(self, outcome: Outcome, address: str) -> Outcome:
        """Return an outcome, or `DeadlineExceeded` if the hello of a node came too late.

        `timeout_s` is shorter than `HELLO_S`, so a late hello does not mean that the node is unreachable.
        """
        if isinstance(outcome, PeerUnreachable) and outcome.is_late:
            return DeadlineExceeded(f"no answer from {address} within {self.timeout_s:g} s")
        return outcome

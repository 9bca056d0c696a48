"""Partition-aware routing: a client's cache of owners.

A cached owner is only a hint. A node forwards a request that it does not own, and the reply names the owner. A client
may not reach every address that nodes have for each other. After a failure it avoids that address for 32 requests, and
for twice as many after each further failure, up to 4096.
"""

from __future__ import annotations

from collections.abc import Container

from chord.errors import NO_REPLY, ChordError, OtherRing
from chord.ids import Circle
from chord.ring.owner_cache import OwnerCache
from chord.wire.batch import key_of
from chord.wire.messages import (
    DecideQuarantine,
    Get,
    GetQuarantine,
    GetQuarantineReply,
    GetReply,
    Merge,
    Put,
    Reply,
    Request,
    Written,
)

CLIENT_ARCS_MAX = 256
"""Number of arcs with a remembered owner. A client keeps a connection to each owner that it asks, until it has been
idle."""

LINKS_MAX = 256
"""Number of open connections kept. A crawl of a large ring must not exhaust the process's file descriptors."""

LEFT_ALONE_FIRST, LEFT_ALONE_MAX = 32, 4096
"""Number of requests that avoid an address after its first failure, and the most after repeated failures."""


class OwnerRouting:
    """The owner cache of a client.

    Args:
        arcs_max: number of arcs with a remembered owner; 0: none.
    """

    def __init__(self, arcs_max: int) -> None:
        self._max = arcs_max
        self._arcs: OwnerCache | None = None
        self._asked = 0
        self._left_alone: dict[str, tuple[int, int]] = {}  # by address: until which request, next span

    def to(self, circle: Circle | None, request: Request) -> str | None:
        """Return the address of the probable owner of a request's key, or None."""
        key = _key_of(request)
        if self._arcs is None or circle is None or key is None:
            return None
        self._asked += 1
        owner = self._arcs.find(circle.hash(key))
        if owner is None or self._asked < self._left_alone.get(owner.address, (0, 0))[0]:
            return None
        return owner.address

    def another(self, known: Container[str]) -> str | None:
        """Return the address of a remembered owner that is not in `known`, or None."""
        addresses = () if self._arcs is None else self._arcs.addresses()
        return next((address for address in addresses if address not in known), None)

    def learn(
        self, circle: Circle | None, request: Request, cached_owner: str | None, outcome: Reply | ChordError
    ) -> None:
        """Take note of the outcome of a request.

        Args:
            cached_owner: the cached owner that the request was sent to, if any.
        """
        key = _key_of(request)
        if not self._max or circle is None or key is None:
            return
        if self._arcs is None:
            self._arcs = OwnerCache(circle, self._max)
        if isinstance(outcome, (GetQuarantineReply, GetReply, Written)):
            self._arcs.learn(circle.hash(key), outcome.owner)
            if cached_owner is not None:
                self._left_alone.pop(cached_owner, None)
        elif cached_owner is not None and isinstance(outcome, (*NO_REPLY, OtherRing)):
            self._arcs.forget(cached_owner)
            _, wait = self._left_alone.pop(cached_owner, (0, LEFT_ALONE_FIRST))
            self._left_alone[cached_owner] = self._asked + wait, min(2 * wait, LEFT_ALONE_MAX)
            while len(self._left_alone) > self._max:
                del self._left_alone[next(iter(self._left_alone))]


def _key_of(request: Request) -> bytes | None:
    if isinstance(request, (GetQuarantine, DecideQuarantine)):
        return request.key
    return key_of(request) if isinstance(request, (Get, Put, Merge)) else None

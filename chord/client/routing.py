"""Straight to the owner: what a client remembers of the ring, and whom it does not reach.

An address heard from others is a hint and no more: a node passes on what is not for it, and its answer tells whose it
is. A client may not reach every address that nodes have for each other: one that fails is left alone for a while,
counted in requests, longer each time.
"""

from __future__ import annotations

from collections.abc import Container

from chord.errors import SILENCE, ChordError, OtherRing
from chord.ids import Circle
from chord.ring.owner_cache import ArcCache
from chord.wire.batch import key_of
from chord.wire.messages import (
    DecideQuarantine,
    Get,
    GetQuarantine,
    Merge,
    Put,
    Quarantine,
    Reply,
    Request,
    Values,
    Written,
)

CLIENT_ARCS_MAX = 256
"""A client keeps a connection to each owner that it asks; they end when nothing uses them."""

LEFT_ALONE_FIRST, LEFT_ALONE_MAX = 32, 4096
"""So many requests go another way after a first failure, and at most."""


class ShortCuts:
    """Who answered for which arc.

    Args:
        arcs_max: so many arcs are remembered; 0: none.
    """

    def __init__(self, arcs_max: int) -> None:
        self._max = arcs_max
        self._arcs: ArcCache | None = None
        self._asked = 0
        self._left_alone: dict[str, tuple[int, int]] = {}  # by address: until which request, and how many the next time

    def to(self, circle: Circle | None, request: Request) -> str | None:
        """Return the address of who probably answers for a request, or None."""
        key = _key_of(request)
        if self._arcs is None or circle is None or key is None:
            return None
        self._asked += 1
        owner = self._arcs.find(circle.hash(key))
        if owner is None or self._asked < self._left_alone.get(owner.address, (0, 0))[0]:
            return None
        return owner.address

    def another(self, known: Container[str]) -> str | None:
        """Return the address of a node that has answered for a key, and is none of these; None: there is no such."""
        addresses = () if self._arcs is None else self._arcs.addresses()
        return next((address for address in addresses if address not in known), None)

    def learn(
        self, circle: Circle | None, request: Request, short_cut: str | None, outcome: Reply | ChordError
    ) -> None:
        """Take note of what came of a request, and of the short cut it took, if any."""
        key = _key_of(request)
        if not self._max or circle is None or key is None:
            return
        if self._arcs is None:
            self._arcs = ArcCache(circle, self._max)
        if isinstance(outcome, (Quarantine, Values, Written)):
            self._arcs.learn(circle.hash(key), outcome.owner)
            if short_cut is not None:
                self._left_alone.pop(short_cut, None)
        elif short_cut is not None and isinstance(outcome, (*SILENCE, OtherRing)):
            self._arcs.forget(short_cut)
            _, wait = self._left_alone.pop(short_cut, (0, LEFT_ALONE_FIRST))
            self._left_alone[short_cut] = self._asked + wait, min(2 * wait, LEFT_ALONE_MAX)
            while len(self._left_alone) > self._max:
                del self._left_alone[next(iter(self._left_alone))]


def _key_of(request: Request) -> bytes | None:
    if isinstance(request, (GetQuarantine, DecideQuarantine)):
        return request.key
    return key_of(request) if isinstance(request, (Get, Put, Merge)) else None

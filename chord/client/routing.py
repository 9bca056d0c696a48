"""Partition-aware routing: a client's cache of owners.

If the client has the membership list of the ring, the list guesses the owners that the cache lacks. A cached or guessed
owner is only a hint. A node forwards a request that it does not own, and the reply names the owner. A client may not
reach every address that nodes have for each other. After a failure it avoids that address for 32 requests, and for
twice as many after each further failure, up to 4096.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Final

from chord.errors import NO_REPLY, ChordError, NotOwner, OtherRing, UnknownVnode
from chord.ids import Circle
from chord.ring.owner_cache import OwnerCache
from chord.wire.messages import (
    MEMBERS_MAX,
    Contact,
    DecideQuarantine,
    Get,
    GetQuarantine,
    GetQuarantineReply,
    GetReply,
    MemberEntry,
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

FIRST_MISSES: Final = 2
"""Misses before a client reads the membership list for the first time."""

MISSES: Final = 32
MISSES_PER_MEMBER: Final = 1 / 8
"""Misses before the client reads the list again: the larger of the two numbers."""

MISSES_AFTER_FAILURE: Final = 4096
"""Misses before the next attempt after a node did not give its list."""


class OwnerRouting:
    """The owner cache of a client, with the partners of each owner and the membership list.

    Args:
        arcs_max: the largest number of arcs with a remembered owner; 0: none are remembered.
        members_max: the largest number of nodes in the membership list.

    Attributes:
        members: the membership list.
    """

    def __init__(self, arcs_max: int, members_max: int = MEMBERS_MAX) -> None:
        self._max = arcs_max
        self.members = MemberList(members_max)
        self._arcs: OwnerCache | None = None
        self._asked = 0
        # Until which request, and the next span; by an owner's address, or by an owner with partners that fail.
        self._left_alone: dict[str | Contact, tuple[int, int]] = {}
        self._partners: dict[Contact, tuple[Contact, ...]] = {}  # by owner

    def to(self, circle: Circle | None, request: Request) -> Contact | None:
        """Count a request, and return the vnode that probably owns its key; None: ask the entry node.

        The result is None if no owner is known, or if its address is avoided after a failure. These count as a miss for
        the membership list. It is also None if the request has no key, or if any replica may answer.
        """
        key = _key_of(request)
        if key is None:
            return None
        self._asked += 1
        if isinstance(request, Get) and request.any:
            return None
        owner = self._owner(circle, key)
        if owner is None:
            self.members.miss()
        return owner

    def quorum_of(
        self, circle: Circle | None, key: bytes, *, is_counted: bool
    ) -> tuple[Contact | None, tuple[Contact, ...]]:
        """Return the probable owner of a key, and the partners that the owner asks in a quorum read.

        The owner is None if none is remembered, or if its address is avoided after a failure. The partners are empty if
        they are not known, or if they are avoided after a failure. If there are any, this counts a request.

        Args:
            circle: the circle of the ring; None if it is not known yet.
            key: the key.
            is_counted: whether to count a request without partners, too. A client counts it in `to`, which a node never
                calls.
        """
        owner = self._owner(circle, key)
        partners = () if owner is None or self._is_left_alone(owner) else self._partners.get(owner, ())
        self._asked += bool(partners) or is_counted
        return owner, partners

    def note_partners(self, owner: Contact, *, have_answered: bool) -> None:
        """Note whether all partners of an owner answered in the latest quorum read.

        If not, this owner coordinates reads itself for 32 requests, and for twice as many after each further failure.
        """
        if have_answered:
            self._left_alone.pop(owner, None)
        else:
            self._leave_alone(owner)

    def _owner(self, circle: Circle | None, key: bytes) -> Contact | None:
        if self._arcs is None or circle is None:
            return None
        point = circle.hash(key)
        owner = self._arcs.find(point) or self.members.guess(point)
        return None if owner is None or self._is_left_alone(owner.address) else owner

    def _is_left_alone(self, node: str | Contact) -> bool:
        return self._asked < self._left_alone.get(node, (0, 0))[0]

    def _leave_alone(self, node: str | Contact) -> None:
        if self._is_left_alone(node):
            return  # requests under way at the same time fail for the same reason
        _, wait = self._left_alone.pop(node, (0, LEFT_ALONE_FIRST))
        self._left_alone[node] = self._asked + wait, min(2 * wait, LEFT_ALONE_MAX)
        while len(self._left_alone) > self._max:
            del self._left_alone[next(iter(self._left_alone))]

    def another(self, known: Container[str]) -> str | None:
        """Return the address of a remembered owner that is not in `known`; None if all are."""
        addresses = () if self._arcs is None else self._arcs.addresses()
        return next((address for address in addresses if address not in known), None)

    def learn(
        self, circle: Circle | None, request: Request, cached_owner: Contact | str | None, outcome: Reply | ChordError
    ) -> None:
        """Update the cache by the outcome of a request.

        This remembers the owner and the partners that a reply names. If `cached_owner` did not reply, or belongs to
        another ring, it is forgotten and avoided. If it does not own the key any more, it is only forgotten.

        Args:
            circle: the circle of the ring; None if it is not known yet.
            request: the request. If it has no key, nothing is noted.
            cached_owner: the cached owner to which the request was sent, or its address; None: the request was sent to
                another node.
            outcome: the reply or the error.
        """
        key = _key_of(request)
        if not self._max or circle is None or key is None or (isinstance(outcome, GetReply) and outcome.is_local):
            return
        if self._arcs is None:
            self._arcs = OwnerCache(circle, self._max)
        address = cached_owner.address if isinstance(cached_owner, Contact) else cached_owner
        if isinstance(outcome, (GetQuarantineReply, GetReply, Written)):
            if outcome.owner is not None:
                self._arcs.learn(circle.hash(key), outcome.owner)
                if cached_owner is not None:
                    self.members.miss()
            owner = outcome.owner or cached_owner
            if isinstance(outcome, GetReply) and outcome.partners and isinstance(owner, Contact):
                self._partners.pop(owner, None)
                self._partners[owner] = outcome.partners
                while len(self._partners) > self._max:
                    del self._partners[next(iter(self._partners))]
            if address is not None:
                self._left_alone.pop(address, None)
        elif address is not None and isinstance(outcome, (*NO_REPLY, OtherRing)):
            self._arcs.forget(address)
            self._leave_alone(address)
            self.members.miss()
        elif address is not None and isinstance(outcome, (NotOwner, UnknownVnode)):
            self._arcs.forget(address)
            self.members.miss()


class MemberList:
    """A copy of the membership list of a node, as a hint for the owners of keys.

    A node of a ring with gossip gives its list away in pages (`GetMembers`). A client reads the list when it misses an
    owner for the second time, so that a program with a single request does not. It reads the list again after 32
    misses, or an eighth as many as there are members.

    Source: DeCandia et al. 2007 (Dynamo), section 6.4, on client-driven coordination.

    Args:
        size_max: the largest number of members. Of a larger ring, no list is kept.

    Attributes:
        addresses: the addresses of the members that are alive.
        is_offered: whether a node has said in its hello that it keeps a list.
        version: the bytes that name the version of the list; empty if none is kept.
    """

    def __init__(self, size_max: int) -> None:
        self._max = size_max
        self._vnodes: list[Contact] = []  # sorted by id
        self._misses_left = FIRST_MISSES
        self.addresses: tuple[str, ...] = ()
        self.is_offered = False
        self.version = b""

    def guess(self, point: int) -> Contact | None:
        """Return the vnode that probably owns a point; None if there is no list."""
        vnodes = self._vnodes
        return vnodes[bisect_left(vnodes, point, key=_id_of) % len(vnodes)] if vnodes else None

    def miss(self) -> None:
        """Count a request for which the cache did not know the owner, or named a wrong one."""
        self._misses_left -= 1

    @property
    def is_due(self) -> bool:
        """Whether an operation should read the list now, because enough owners were not known."""
        return self.is_offered and self._misses_left <= 0

    def begin(self) -> None:
        """Note that an operation reads the list now, so that `is_due` is False for other operations."""
        self._misses_left = max(MISSES, int(len(self.addresses) * MISSES_PER_MEMBER))

    def fail(self) -> None:
        """Note that a node did not send its list. The next attempt follows after some more misses."""
        self._misses_left = MISSES_AFTER_FAILURE

    def replace(self, entries: Iterable[MemberEntry], version: bytes) -> None:
        """Replace the list by that of a node. If it has over `size_max` living members, no list is kept.

        Args:
            entries: the members; those that are not alive are left out.
            version: the bytes that name the version of the list.
        """
        living = {entry.address: entry.vnodes for entry in entries if entry.state == "alive"}
        if len(living) > self._max:
            self._vnodes, self.addresses, self.version = [], (), b""
            self.fail()
            return
        vnodes = (Contact(point, address) for address, points in living.items() for point in points)
        self._vnodes = sorted(vnodes, key=_id_of)
        self.addresses, self.version = tuple(living), version
        self.begin()


def _key_of(request: Request) -> bytes | None:
    if isinstance(request, Merge):
        return request.record.key
    return request.key if isinstance(request, (Get, Put, GetQuarantine, DecideQuarantine)) else None


def _id_of(vnode: Contact) -> int:
    return vnode.id

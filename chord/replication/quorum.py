"""Quorums: which replicas a key has, how many of them must answer, and whether enough can."""

from __future__ import annotations

from typing import NamedTuple

from chord.errors import InvalidRequest, TooFewReplicas
from chord.ids import Point
from chord.ring.ownership import OwnerVerdict
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.wire.messages import Contact


class KeyTarget(NamedTuple):
    """A key that a coordinator reads or writes, with the facts about it at the beginning of the operation.

    Attributes:
        key: the key.
        point: the point of the key on the circle.
        verdict: whether the coordinator owns the key, and the mark that covers it, if any.
        replicas: its replica set.
        me: the vnode with which this node is in the replica set.
    """

    key: bytes
    point: Point
    verdict: OwnerVerdict
    replicas: ReplicaSet
    me: Contact


class Quorums:
    """Decides which nodes must answer a read or store a write of a key that one vnode coordinates."""

    __slots__ = ("_host", "_latest", "_majority", "_vnode")

    def __init__(self, vnode: Vnode) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._majority = vnode.host.constants.quorum
        self._latest: tuple[ReplicaSet | None, Contact | None] = (None, None)  # a cache: most keys share one set

    def target(self, key: bytes) -> KeyTarget:
        """Return a key with its point, its replica set and the reason why this vnode coordinates it.

        Raises:
            NotOwner, Busy: see `Vnode.require_coordinator`.
            TooFewReplicas: definite; every node that may hold the key is unreachable.
        """
        point = self._host.circle.hash(key)
        verdict = self._vnode.require_coordinator(point)
        if self._host.sampler is not None:
            self._host.sampler.note(key, point)
        replicas = self._vnode.replica_set(point)
        me = self.here(replicas)
        if me is None:  # too many nodes between the point and this node are unreachable
            raise TooFewReplicas("every node that may hold the key is unreachable", after_ms=RETRY_MS)
        return KeyTarget(key, point, verdict, replicas, me)

    def needed_to_write(self, asked: int, replicas: ReplicaSet) -> int:
        """Return W: how many nodes must store a write before it is acknowledged.

        Args:
            asked: the requested number. 0: a majority of N, or all nodes if the ring has fewer nodes than that. Dead
                nodes that may come back still count.
            replicas: the replica set.

        Raises:
            InvalidRequest: definite; the requested number exceeds N.
            TooFewReplicas: definite; the replica set has fewer members than W now.
        """
        needed = asked or self._vnode.write_quorum(replicas)
        if not asked and needed > len(replicas.members):
            unreachable = ", ".join(self._host.peers.passive.addresses())
            raise TooFewReplicas(
                f"a write needs {needed} nodes, and {len(replicas.members)} are available; "
                f"{unreachable} may come back. "
                "To write to fewer, give w, or give up nodes that will not come back: chord forget",
                after_ms=RETRY_MS,
            )
        return self.needed(needed, replicas)

    def needed(self, asked: int, replicas: ReplicaSet) -> int:
        """Return how many replicas must answer a read (R) or store a write (W).

        Args:
            asked: the requested number. 0: a majority of N, or all members if the replica set has fewer than that now.
            replicas: the replica set.

        Raises:
            InvalidRequest: definite; the requested number exceeds N.
            TooFewReplicas: definite; the replica set has fewer members than requested.
        """
        constants = self._host.constants
        if asked > constants.replicas:
            raise InvalidRequest(f"the ring keeps {constants.replicas} replicas of a record, not {asked}")
        if asked > len(replicas.members):
            raise TooFewReplicas(f"there are {len(replicas.members)} nodes, not {asked}", after_ms=RETRY_MS)
        return asked or min(self._majority, len(replicas.members))

    def here(self, replicas: ReplicaSet) -> Contact | None:
        """Return the vnode with which this node is in a replica set; None if it is not in the set.

        A node is in the set once, so the result may be a vnode of this node other than the coordinator.
        """
        if replicas is not self._latest[0]:
            address = self._host.address
            own = next((place.contact for place in replicas.everyone if place.contact.address == address), None)
            self._latest = replicas, own
        return self._latest[1]

    def require_reachable(self, replicas: ReplicaSet, needed: int, strict: bool) -> None:
        """Refuse a write that cannot succeed, before any node stores it.

        Args:
            replicas: the replica set.
            needed: the number of nodes that must have the write, this node included.
            strict: whether only members count, and no stand-ins.

        Raises:
            TooFewReplicas: definite; too few nodes are reachable.
        """
        up = len(self._vnode.reachable(replicas.members))
        if up < needed and not strict:
            up += len(self._vnode.reachable(replicas.stand_ins))
        if up < needed:
            raise TooFewReplicas(f"{up} of {needed} nodes that the write needs are reachable", after_ms=RETRY_MS)

"""Quorums: how many replicas of a key must answer, and whether enough can."""

from __future__ import annotations

from chord.errors import InvalidRequest, TooFewReplicas
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.wire.messages import Contact


class Quorums:
    """The quorums of one vnode's keys."""

    def __init__(self, vnode: Vnode) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._latest: tuple[ReplicaSet | None, Contact | None] = (None, None)  # a cache: most keys share one set

    def needed_to_write(self, asked: int, replicas: ReplicaSet) -> int:
        """Return W: the requested number, or a majority that dead nodes do not lower.

        Args:
            asked: the requested number; 0: a majority.
            replicas: the replica set.

        Raises:
            InvalidRequest: definite; the ring keeps fewer replicas.
            TooFewReplicas: definite; the replica set has fewer members now.
        """
        needed = asked or self._vnode.write_quorum(replicas)
        if not asked and needed > len(replicas.members):
            silent = ", ".join(self._host.peers.passive.addresses())
            raise TooFewReplicas(
                f"a write needs {needed} nodes, and {len(replicas.members)} are available; {silent} may come back. "
                "To write to fewer, give w, or give up nodes that will not come back: chord forget",
                after_ms=RETRY_MS,
            )
        return self.needed(needed, replicas)

    def needed(self, asked: int, replicas: ReplicaSet) -> int:
        """Return R or W: the requested number, or a majority of at most all members.

        Args:
            asked: the requested number; 0: a majority.
            replicas: the replica set.

        Raises:
            InvalidRequest: definite; the ring keeps fewer replicas.
            TooFewReplicas: definite; the replica set has fewer members now.
        """
        constants = self._host.constants
        if asked > constants.replicas:
            raise InvalidRequest(f"the ring keeps {constants.replicas} replicas of a record, not {asked}")
        if asked > len(replicas.members):
            raise TooFewReplicas(f"there are {len(replicas.members)} nodes, not {asked}", after_ms=RETRY_MS)
        return asked or min(constants.quorum, len(replicas.members))

    def holders(self, point: int) -> ReplicaSet:
        """Return the replica set of the key at a point.

        Raises:
            TooFewReplicas: definite; this node is not in the set, because too many nodes ahead of it are unreachable.
        """
        replicas = self._vnode.replica_set(point)
        if self._own(replicas) is None:
            raise TooFewReplicas("every node that may hold the key is unreachable", after_ms=RETRY_MS)
        return replicas

    def here(self, replicas: ReplicaSet) -> Contact:
        """Return the vnode of this node in a replica set.

        It may be another vnode than the coordinator.
        """
        return self._own(replicas) or self._vnode.me

    def _own(self, replicas: ReplicaSet) -> Contact | None:
        if replicas is not self._latest[0]:
            address = self._host.address
            own = next((place.contact for place in replicas.everyone if place.contact.address == address), None)
            self._latest = replicas, own
        return self._latest[1]

    def require_reachable(self, replicas: ReplicaSet, needed: int, is_strict: bool) -> None:
        """Refuse a write that cannot succeed, before any node stores it.

        Args:
            replicas: the replica set.
            needed: the number of nodes that must have the write.
            is_strict: whether only members count.

        Raises:
            TooFewReplicas: definite; too few nodes are reachable.
        """
        places = replicas.members if is_strict else (*replicas.members, *replicas.fallbacks)
        up = sum(map(self._vnode.is_up, places))
        if up < needed:
            raise TooFewReplicas(f"{up} of {needed} nodes that the write needs are reachable", after_ms=RETRY_MS)

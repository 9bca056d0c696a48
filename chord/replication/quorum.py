"""How many replicas of a key have to take part, who may hold it, and whether that can come about at all."""

from __future__ import annotations

from chord.errors import InvalidRequest, TooFewReplicas
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.wire.messages import Contact


class Quorum:
    """The quorums of one vnode's keys."""

    def __init__(self, vnode: Vnode) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._latest: tuple[ReplicaSet | None, Contact | None] = (None, None)  # most keys of an arc have the same

    def needed_to_write(self, asked: int, who: ReplicaSet) -> int:
        """Return W: what was asked for, or a majority. It does not become less because nodes die.

        Raises:
            InvalidRequest: definite; more than the ring keeps.
            TooFewReplicas: definite; more than there are now.
        """
        needed = asked or self._vnode.write_quorum(who)
        if not asked and needed > len(who.members):
            silent = ", ".join(self._host.peers.passive.addresses())
            raise TooFewReplicas(
                f"a write needs {needed} nodes, and {len(who.members)} of them answer; {silent} may come back. "
                "To write to fewer, name w, or forget the nodes that will not come back: chord forget",
                after_ms=RETRY_MS,
            )
        return self.needed(needed, who)

    def needed(self, asked: int, who: ReplicaSet) -> int:
        """Return R, or W as asked for: that, or a majority; never more than there are members.

        Raises:
            InvalidRequest: definite; more than the ring keeps.
            TooFewReplicas: definite; more than there are now.
        """
        constants = self._host.constants
        if asked > constants.replicas:
            raise InvalidRequest(f"the ring keeps {constants.replicas} replicas of a record, not {asked}")
        if asked > len(who.members):
            raise TooFewReplicas(f"there are {len(who.members)} nodes, not {asked}", after_ms=RETRY_MS)
        return asked or min(constants.quorum, len(who.members))

    def holders(self, point: int) -> ReplicaSet:
        """Return who may hold a key.

        Raises:
            TooFewReplicas: definite; this vnode is none of them, because it stands behind too many that are silent.
        """
        who = self._vnode.replica_set(point)
        if self._own(who) is None:
            raise TooFewReplicas("every node that may hold the key is silent", after_ms=RETRY_MS)
        return who

    def here(self, who: ReplicaSet) -> Contact:
        """Return this node as it stands in the set: maybe by another of its vnodes than the one that coordinates."""
        return self._own(who) or self._vnode.me

    def _own(self, who: ReplicaSet) -> Contact | None:
        if who is not self._latest[0]:
            address = self._host.address
            own = next((place.contact for place in who.everyone if place.contact.address == address), None)
            self._latest = who, own
        return self._latest[1]

    def require_reachable(self, who: ReplicaSet, needed: int, is_strict: bool) -> None:
        """Refuse a write that cannot succeed before anything of it is stored.

        Raises:
            TooFewReplicas: definite.
        """
        places = who.members if is_strict else (*who.members, *who.fallbacks)
        up = sum(1 for place in places if self._vnode.is_up(place))
        if up < needed:
            raise TooFewReplicas(f"{up} of {needed} nodes answer that can take the write", after_ms=RETRY_MS)

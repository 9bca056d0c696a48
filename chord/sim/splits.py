"""The splits of a simulated network, until their parts have merged.

A split records the part of each host. The network may split a second time before the rings have merged. Each split is
judged by itself.
"""

from __future__ import annotations

from collections.abc import Collection

import trio

from chord.testing.rings import TestRing


class Split:
    """One split of the network, recorded when its partition has just begun.

    Attributes:
        began: virtual second of its start.
        before: the hosts with a node that was a member of the ring at that time. If the ring was not Ideal then, its
            parts may not know each other. Only members that are in `settled` count in that case.

    Args:
        ring: the ring, with the partition.
        settled: the machines of the ring when it was last known to be calm, without those that lost their disk since.
    """

    def __init__(self, ring: TestRing, settled: Collection[str]) -> None:
        self._ring = ring
        self.began = trio.current_time()
        members = (node for node in ring.nodes if any(p.vnode.ring.is_member for p in node._parts.values()))
        names = frozenset(node.name for node in members)
        self.before = names.intersection(settled) if ring.waiting() else names
        self._islands = dict(ring.network._faults.islands)
        self._parts: dict[str, int] = {}
        self.note()

    def note(self) -> None:
        """Assign new hosts to parts.

        A host is new until one of its vnodes has an arc or a successor list. So a node that is still joining when the
        partition ends may be in any part. While the partition lasts, a host is in the part of the hosts that it
        reaches. Later, a new host is in the part of the first entry of its successor lists with a known part. A node
        that joins receives its arc before it has pointers. It is in the part of the giver, which still hands the arc
        over at that moment. Without such an entry or giver, the next call tries again.
        """
        is_split = self._ring.network._faults.islands == self._islands
        new = [node for node in self._ring.nodes if node.name not in self._parts]
        names = {node.address: node.name for node in self._ring.nodes} if new else {}
        for node in new:
            vnodes = node._host.vnodes.values()
            listed = [names.get(c.address) for vnode in vnodes for c in vnode.ring.successors]
            owned = {vnode.id for vnode in vnodes if vnode.ownership.start is not None}
            known = [self._parts[name] for name in (*listed, *self._givers(owned)) if name in self._parts]
            if is_split and (listed or owned):
                self._parts[node.name] = self.part_of(node.name)
            elif known and not is_split:
                self._parts[node.name] = known[0]

    def _givers(self, ids: Collection[int]) -> list[str]:
        """Return the hosts that are giving an arc to a vnode with one of these ids."""
        every = [(node.name, vnode.ownership) for node in self._ring.nodes for vnode in node._host.vnodes.values()]
        return [name for name, owned in every if owned.giving is not None and owned.giving.to.id in ids]

    def part_of(self, host: str) -> int:
        """Return the number of a host's part.

        For a host that `note` has not assigned, the result is the part of the hosts that it reached during the
        partition. -1 is the part of all hosts that the partition does not name.
        """
        return self._parts.get(host, self._islands.get(host, -1))

    def hides(self, host: str, other: str) -> bool:
        """Return whether the split may keep a host from knowing another host.

        The other host is in another part, and is not in `before`.
        """
        return self.part_of(other) != self.part_of(host) and other not in self.before

    def is_moving(self, hosts: Collection[str], point: int) -> bool:
        """Return whether a record is still on its way to the replicas of its key.

        Merged parts are an Ideal ring before their records have moved. The run waits for that before it forgets the
        split (`chord.sim.copies.astray`). The owner decides which nodes are the replicas, as it does for that wait. A
        node with the record may not know yet that it is none. The result is false if a node that an owner asks had the
        record. It is also false without hosts, because the record is lost.

        Args:
            hosts: the living hosts that had the record when a read began.
            point: the point of its key.
        """
        holders = {node.address for node in self._ring.nodes if node.name in hosts}
        owners = [owner for node in self._ring.nodes if (owner := node._host.owner_of(point)) is not None]
        asked = {place.contact.address for owner in owners for place in owner.replica_set(point).everyone}
        return bool(holders and owners) and holders.isdisjoint(asked | {owner.me.address for owner in owners})

"""A vnode with everything that works for it: protocol steps, transfers, reads and writes, repair."""

from __future__ import annotations

from chord.membership.join import Membership
from chord.membership.rejoin import Resumption
from chord.replication.anti_entropy import Repair
from chord.replication.coordinator import Coordinator
from chord.replication.gc import Reaper
from chord.replication.records import Records
from chord.replication.sync import Exchange
from chord.replication.transfer import Mover
from chord.ring.lookup import Lookups
from chord.ring.merge import SelfLookup
from chord.ring.takeover import Bounds
from chord.ring.vnode import Vnode
from chord.stabilize import Stabilizer


class Parts:
    """A vnode with everything that works for it."""

    def __init__(self, vnode: Vnode, lookups: Lookups, records: Records, exchange: Exchange) -> None:
        self.vnode = vnode
        self.records = records  # the node's, of all its vnodes
        self.repair = Repair(vnode, exchange)
        self.reaper = Reaper(vnode, self.repair, exchange.catch_up)
        self.coordinator = Coordinator(vnode, records, self.repair, exchange.catch_up)
        self.mover = Mover(vnode, records, exchange)
        self.stabilizer = Stabilizer(vnode, lookups)
        self.bounds = Bounds(vnode, self.stabilizer)
        self.self_lookup = SelfLookup(vnode, self.stabilizer)
        self.membership = Membership(vnode, self.mover)
        self.resumption = Resumption(vnode, self.membership)

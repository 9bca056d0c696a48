"""A vnode with everything that works for it: protocol steps, transfers, reads and writes, repair."""

from __future__ import annotations

from chord.bounds import Bounds
from chord.data.exchange import Exchange
from chord.data.reap import Reaper
from chord.data.records import Records
from chord.data.repair import Repair
from chord.data.replicate import Coordinator
from chord.data.transfer import Mover
from chord.lookup import Lookups
from chord.membership import Membership
from chord.resume import Resumption
from chord.self_lookup import SelfLookup
from chord.stabilize import Stabilizer
from chord.vnode import Vnode


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

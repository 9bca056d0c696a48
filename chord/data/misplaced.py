"""Records outside every arc this node answers for: offer them to their owner, drop them on its acknowledgement.

They are left behind when an arc shrinks without a transfer (a healed split, an untangled loop, a
vnode that came back), or when a transfer broke off. Nothing is dropped that the owner has not stored.
"""

from __future__ import annotations

from chord import events
from chord.data.records import Records
from chord.data.storage import Batch
from chord.host import Host
from chord.ids import Arc, Circle
from chord.lookup import Lookups
from chord.messages import PAGE_RECORDS_MAX, Confirm, Confirmed, Contact, PageStored, Record, StorePage


def gaps(circle: Circle, arcs: list[Arc]) -> list[Arc]:
    """Return the parts of the circle outside all given arcs, in clockwise order; all of it where none are given."""
    if not arcs:
        top = circle.point(circle.size - 1)
        return [Arc(top, top)]
    if any(arc.is_whole for arc in arcs):
        return []
    found = []
    for arc in sorted(arcs):
        following = min((circle.distance(arc.end, other.start), other.start) for other in arcs)
        is_covered = any(arc.end in other and arc.end != other.end for other in arcs)
        if following[0] > 0 and not is_covered:
            found.append(Arc(arc.end, following[1]))
    return found


class Misplaced:
    """Finds the misplaced records of a node and brings them home."""

    def __init__(self, host: Host, lookups: Lookups) -> None:
        self._host = host
        self._lookups = lookups

    def arcs(self) -> list[Arc]:
        """Return the arcs in which this node keeps records it does not answer for."""
        owned = [v.ownership.arc for v in self._host.vnodes.values()]
        return gaps(self._host.circle, [arc for arc in owned if arc is not None])

    def count(self) -> int:
        """Return how many records are misplaced."""
        return sum(self._host.storage.count(arc) for arc in self.arcs())

    async def bring_home(self, records: Records, start: Contact) -> int:
        """Offer every misplaced record to its owner, page by page, and drop what is acknowledged.

        Args:
            records: any of the node's, to read pages with.
            start: the vnode whose view of the ring the lookups use.
        Returns:
            How many records were brought home.
        Raises:
            ChordError: an owner could not be found or refused; what was not acknowledged is still here.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        total = 0
        while True:
            page = self._next_page(records)
            if not page or self._host.is_receiving():  # records of an arc being received are on their way, not lost
                return total
            key = self._host.circle.hash(page[0].key)
            confirmed, _, _, _ = await self._lookups.deliver(Confirm(key), Confirmed, key, start)
            if confirmed.owner.address == self._host.address:
                return total  # the arc came back to this node meanwhile
            arc = Arc(confirmed.arc_start, confirmed.owner.id)
            batch = tuple(r for r in page if self._host.circle.hash(r.key) in arc)
            reply = await self._host.peers.call(confirmed.owner, StorePage(None, batch), PageStored)
            if self._host.is_receiving():
                return total  # the owner may be handing the arc to this very node: its copy may be the next to go
            stored = [r for r, ok in zip(batch, reply.stored, strict=True) if ok and self._is_to_drop(r)]
            await self._host.storage.commit(Batch(removals=[r.key for r in stored]))
            self._host.counters["keys_brought_home"] += len(stored)
            self._host.tell([events.RecordsDropped(start.id, len(stored), confirmed.owner)])
            total += len(stored)
            if not stored:
                return total

    def _is_to_drop(self, record: Record) -> bool:
        """Only what is still the very record that was acknowledged, and still another's, goes."""
        is_mine = self._host.owner_of(self._host.circle.hash(record.key)) is not None
        return not is_mine and self._host.storage.get(record.key) == record

    def _next_page(self, records: Records) -> tuple[Record, ...]:
        for arc in self.arcs():
            page, _ = records.page(arc, None, PAGE_RECORDS_MAX)
            if page:
                return page
        return ()

"""Scans: the records of one vnode's arc, page by page, from the vnode's own store."""

from __future__ import annotations

from chord.errors import Busy, WritesRefused
from chord.ids import Arc
from chord.net.handlers import handles
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.records import Records, cut_as, is_cut
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store.storage import Batch
from chord.wire.messages import LIST_ENTRIES_MAX, Scan, ScanReply


class Scanner:
    """Answers scans of one vnode's arc, with records of this node's store.

    Args:
        vnode: the vnode.
        records: reads the store.
        repair: knows which replicas are in sync, and which unreachable nodes may hold more.
    """

    __slots__ = ("_host", "_records", "_repair", "_vnode")

    def __init__(self, vnode: Vnode, records: Records, repair: AntiEntropy) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._repair = repair

    @handles(Scan)
    async def on_scan(self, request: Scan) -> ScanReply:
        """Return the next page of the records between the request's point and this vnode's id, clockwise.

        The page shows the records as this node holds them. If unreachable replicas may hold more, the page names them.

        Raises:
            NotOwner, Busy, OwnerDown: see `Vnode.require_owner`.
            Busy: definite; the records of the arc are not in sync, or the disk took back changes that were read.
        """
        host, vnode = self._host, self._vnode
        vnode.require_owner(host.circle.point(request.after + 1))
        unreachable = self._repair.unreachable()
        if not unreachable and not self._repair.is_complete():
            raise Busy("the records of this arc are being brought in sync", after_ms=RETRY_MS)
        arc = Arc(request.after, vnode.id)
        records, has_more = self._records.page(arc, request.after_key, request.limit, request.what)
        page = tuple(cut_as(record, request.what, host.limits.record_bytes_max) for record in records)
        try:
            await host.storage.commit(Batch())
        except WritesRefused:
            raise Busy("the disk is full and took back changes that were read", after_ms=RETRY_MS) from None
        damaged = () if has_more else tuple(host.storage.damaged(arc))
        last = page[-1].key if has_more else None
        cut = tuple(whole.key for whole, shown in zip(records, page, strict=True) if is_cut(whole, shown, request.what))
        now_ms = host.wall_now_ms()
        return ScanReply(page, vnode.id, last, now_ms, unreachable, damaged[:LIST_ENTRIES_MAX], cut)

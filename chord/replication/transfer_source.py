"""The giver's side of a transfer: snapshot, later writes (deltas) and `Switch`.

The giver repeats each message until one of three things happens. The receiver acknowledges it, the receiver is dead, or
the lease runs out without progress.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

import trio

from chord.errors import NO_REPLY, Behind, ChordError, DefiniteError, RemoteFailure
from chord.ids import Arc
from chord.net.goodbyes import age_ms
from chord.replication.records import Records
from chord.replication.replica import in_frames
from chord.replication.sync import ReplicaSync
from chord.ring import ages
from chord.ring.context import PAGE_RECORDS_SERVING
from chord.ring.ownership import Giving, marks_within
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store.identity import StateSaver
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    Contact,
    Done,
    Record,
    StorePage,
    Switch,
    wire_bytes,
)

STRETCH_RECORDS = 1024  # records that are compared before any of them is sent
SeenEntries: TypeAlias = Mapping[bytes, bytes]
"""By key, the digest of applied log entries when the record was read (`ReapLog.seen`). Empty digests are left out."""

PAGES_AT_ONCE = 2  # pages on their way to a receiver


class TransferFailed(Exception):
    """The transfer of an arc ended before the receiver acknowledged the `Switch`; the giver owns the arc."""


class Outbound:
    """A transfer of an arc that this vnode gives.

    Attributes:
        session: the id of the transfer.
        to: the receiver.
        arc: the arc, as it was when the transfer began. If the vnode's arc changes, the transfer fails.
        reason: "join" or "leave".
        dirty: the keys written since the transfer began and not sent since then, in the order of the first such write.
        progress: when the receiver last acknowledged a page, on Trio's clock; before the first page, `began`.
        began: when the transfer began, on Trio's clock.
        records: number of records that the receiver acknowledged.
        total: number of records in the arc when the snapshot began; 0 until then.
        done: number of records that the receiver acknowledged or already had. Records sent twice count twice.
        bytes: size of the acknowledged records.
        is_unsure: whether a `Switch` was sent and no reply came, so that the receiver may own the arc.
    """

    def __init__(self, session: bytes, to: Contact, arc: Arc, reason: Literal["join", "leave"], now: float) -> None:
        self.session = session
        self.to = to
        self.arc = arc
        self.reason = reason
        self.dirty: dict[bytes, None] = {}
        self.progress = now
        self.began = now
        self.records = 0
        self.total = self.done = self.bytes = 0
        self.is_unsure = False


class TransferSender:
    """Sends the messages of a transfer for the vnode that gives an arc.

    Every coroutine raises `TransferFailed` if the receiver does not take a message.

    Args:
        vnode: the vnode that gives the arc.
        records: reads the records of this node's store.
        replica_sync: compares records with the receiver.
        saver: persists the state of this node in `node.json`.
    """

    def __init__(self, vnode: Vnode, records: Records, replica_sync: ReplicaSync, saver: StateSaver) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._own = vnode.ownership
        self._records = records
        self._saver = saver
        self._replica_sync = replica_sync

    async def snapshot(self, outbound: Outbound, arc: Arc) -> None:
        """Send the records of an arc that the receiver lacks, and nearly all of those that are written meanwhile.

        A receiver that was away for a moment already holds most of the records. At the end, about one page of new
        writes may be left in `outbound.dirty`, or more if writes come as fast as they leave.
        """
        storage = self._host.storage
        for piece in list(storage.digests.pieces(arc, 1, storage.heads)):  # also a piece without records
            if self._host.reap_log.slices_in(piece.arc):
                await self.sync_logs(outbound, piece.arc)
                await self._send(outbound, (), {})  # an empty page renews the lease
        outbound.total = storage.count(arc)
        for stretch in list(storage.digests.stretches(arc, STRETCH_RECORDS, storage.heads)):
            if await self._is_equal(outbound, stretch):
                outbound.done += storage.count(stretch)
                continue
            await self._send_stretch(outbound, stretch)
        await self._catch_up_with_writers(outbound)

    async def _catch_up_with_writers(self, outbound: Outbound) -> None:
        """Send the records written meanwhile, until at most one page is left.

        This also ends if writes come as fast as they leave. Then only the switch can end the transfer, because the arc
        takes no writes during the switch.

        Source: Clark et al. 2005, "Live Migration of Virtual Machines", section 3.2: rounds of pre-copy, then a stop.
        """
        due = math.inf
        while PAGE_RECORDS_SERVING < len(outbound.dirty) <= due / 2:
            due = len(outbound.dirty)
            until = outbound.done + due
            while outbound.done < until and len(outbound.dirty) > PAGE_RECORDS_SERVING:
                await self.deltas(outbound)

    async def _send_stretch(self, outbound: Outbound, stretch: Arc) -> None:
        """Send the records of a part of the arc, page by page.

        If this node serves no client, it prepares the next page while the receiver stores one.
        """
        pages = self._pages(stretch)
        failed: list[TransferFailed] = []

        async def work(is_spare: bool) -> None:
            try:
                for page, seen in pages:
                    await self._send_durable(outbound, page, seen)
                    if is_spare and self._host.is_serving():
                        return
            except TransferFailed as error:
                failed.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for number in range(PAGES_AT_ONCE):
                nursery.start_soon(work, number > 0)
        if failed:
            raise failed[0]

    def _pages(self, stretch: Arc) -> Iterator[tuple[tuple[Record, ...], SeenEntries]]:
        """Yield pages of records, with digests of the reap-log entries applied to them."""
        after: bytes | None = None
        is_cut = True
        while is_cut:
            page, is_cut = self._records.page(stretch, after, self._host.page_records)
            if page:
                after = page[-1].key
                yield page, self._seen(page)

    async def _is_equal(self, outbound: Outbound, stretch: Arc) -> bool:
        """Compare a part with the receiver's records; if they are equal, renew the lease.

        An empty page renews the receiver's lease on the transfer, because no other page will.

        Returns:
            Whether both nodes hold the same records of the part; False if the comparison fails.
        """
        try:
            is_equal = await self._replica_sync.is_equal(outbound.to, stretch)
        except ChordError:
            return False  # the pages will show whether the receiver is up
        if is_equal:
            await self._send(outbound, (), {})
        return is_equal

    async def deltas(self, outbound: Outbound) -> None:
        """Send one page of the records with keys in `outbound.dirty`, in its order, and remove these keys.

        A key without a record is also removed.
        """
        at_most = self._host.page_records
        keys = list(outbound.dirty)[:at_most]
        found = [(key, self._host.storage.get(key)) for key in keys]
        page, _ = self._records.pack((record for _, record in found if record is not None), at_most)
        packed = {record.key for record in page}
        for key, record in found:
            if record is None or key in packed:
                del outbound.dirty[key]
        if page:
            await self._send_durable(outbound, page, self._seen(page))

    def _seen(self, page: tuple[Record, ...]) -> SeenEntries:
        each = self._host.reap_log.seen_of_each(page)
        return {record.key: seen for record, seen in zip(page, each, strict=False)}

    async def _send_durable(self, outbound: Outbound, page: tuple[Record, ...], seen: SeenEntries) -> None:
        await self._send(outbound, await self._durable(outbound, page), seen)

    async def _durable(self, outbound: Outbound, page: tuple[Record, ...]) -> tuple[Record, ...]:
        """Wait until the records of a page are durable, and return those that are.

        If another node knew a dot (the name of a write) that a crash takes back, this node would use the dot twice. If
        the disk refuses a change, the record as it was before is sent later, with the deltas.

        Raises:
            TransferFailed: the disk failed, and this node stops.
        """
        storage = self._host.storage
        early = [record for record in page if not storage.is_durable(record.key)]
        if not early:
            return page
        try:
            await self._records.until_durable()
        except RemoteFailure as error:
            raise TransferFailed(error.message) from error
        refused = [record.key for record in early if not self._records.holds(record)]
        outbound.dirty.update(dict.fromkeys(refused))
        return tuple(record for record in page if record.key not in refused)

    async def _send(self, outbound: Outbound, page: tuple[Record, ...], seen: SeenEntries) -> None:
        """Send one page until it is stored, the receiver is dead, or the lease runs out.

        If the reap logs differ, they are synced. The records are then sent later, with the deltas, as they are by then.
        """
        each = tuple(seen.get(record.key, b"") for record in page) if seen else ()
        since = trio.current_time()
        while True:
            try:
                with trio.fail_after(self._host.timing.timeout_cap_s):
                    for records, of_each in in_frames(self._host, page, each):
                        request = StorePage(outbound.session, records, of_each)
                        await self._host.peers.call(outbound.to, request, Done)
            except Behind as error:
                self._give_up_if_hopeless(outbound, error)
                outbound.dirty.update(dict.fromkeys(record.key for record in page))
                await self._has_synced_logs(outbound, outbound.arc)
                return
            except (*NO_REPLY, trio.TooSlowError) as error:
                self._give_up_if_hopeless(outbound, error)
                await trio.sleep(self._host.jitter(RETRY_MS / 1000))
                continue
            except ChordError as error:
                if error.is_retryable:
                    self._give_up_if_hopeless(outbound, error)
                    await trio.sleep(self._host.jitter(RETRY_MS / 1000))
                    continue
                raise TransferFailed(error.message) from error
            outbound.progress = trio.current_time()
            outbound.records += len(page)
            outbound.done += len(page)
            outbound.bytes += sum(wire_bytes(record) for record in page)
            self._host.counters["keys_sent"] += len(page)
            await self._host.give_way(since)
            return

    async def sync_logs(self, outbound: Outbound, arc: Arc) -> None:
        """Sync the reap logs of an arc's slices with the receiver, and retry until that succeeds.

        If the arc has no record, no page would show that the logs differ.
        """
        while self._host.reap_log.slices_in(arc):
            if await self._has_synced_logs(outbound, arc):
                return

    async def _has_synced_logs(self, outbound: Outbound, arc: Arc) -> bool:
        """Try once to sync the reap logs, and wait after a failure.

        Returns:
            Whether the logs are in sync.
        """
        try:
            await self._replica_sync.log_sync.sync(outbound.to, arc)
        except ChordError as error:
            self._give_up_if_hopeless(outbound, error)
            await trio.sleep(self._host.jitter(RETRY_MS / 1000))
            return False
        return True

    def _give_up_if_hopeless(self, outbound: Outbound, error: Exception) -> None:
        is_late = trio.current_time() - outbound.progress > self._host.timing.lease_s
        if is_late or self._host.peers.is_dead(outbound.to):
            raise TransferFailed(f"{outbound.to.address} does not take the records") from error

    async def require_saved(self, outbound: Outbound) -> None:
        """Persist the state of this node before the arc stops taking calls, if the transfer fails without that.

        If an earlier attempt found the disk full or hung, this one then ends here.

        Raises:
            TransferFailed: `node.json` cannot be written.
        """
        if self._must_save(outbound) and not await self._is_saved():
            raise TransferFailed("node.json cannot be written")

    async def switch(self, outbound: Outbound, giving: Giving) -> None:
        """Send the `Switch` for the arc in `giving`, and repeat it until the receiver acknowledges it.

        A repeated `Switch` of the same session changes nothing. First the giver persists that the arc may belong to
        another vnode, because after a restart it must not own the arc as before. If N = 1, it would then deny records
        that the receiver holds. If its file names no living node, it would not find the receiver again. In these two
        cases the transfer fails if the giver cannot persist its state. Otherwise it goes on.

        Raises:
            TransferFailed: the receiver refuses the `Switch` or is dead, or the giver cannot persist its state.
        """
        if not await self._is_saved() and self._must_save(outbound):
            raise TransferFailed("node.json cannot be written")
        is_in_sync = self._vnode.vouches_for(giving.arc)
        while True:
            try:
                await self._host.peers.call(outbound.to, self._switch_of(outbound, giving, is_in_sync), Done)
                return
            except ChordError as error:
                is_definite = isinstance(error, DefiniteError)
                outbound.is_unsure = outbound.is_unsure or not is_definite
                if isinstance(error, NO_REPLY):
                    if self._host.peers.is_dead(outbound.to):
                        raise TransferFailed("the receiver died before it acknowledged") from error
                elif is_definite and not error.is_retryable:
                    raise TransferFailed(error.message) from error
                else:
                    self._give_up_if_hopeless(outbound, error)
            await trio.sleep(self._host.jitter(RETRY_MS / 1000))

    def _must_save(self, outbound: Outbound) -> bool:
        """Return whether the transfer fails if this node cannot persist its state.

        With N = 1 it does. Otherwise it does if a node joins that this node would not find again after a restart. Then
        `node.json` names neither the joiner nor another node that counts as alive.
        """
        if self._host.constants.replicas == 1:
            return True
        if outbound.reason == "leave" or outbound.to.address == self._host.address:
            return False
        named, peers = set(self._saver.known), self._host.peers
        listed = named.intersection(contact.address for contact in self._host.contacts())
        listed.difference_update(contact.address for contact in peers.passive.remembered())
        return outbound.to.address not in named and all(peers.failure_detector.is_dead(one) for one in listed)

    async def _is_saved(self) -> bool:
        """Persist the state of this node, and return whether that succeeded.

        During the `Switch` the arc takes no reads and writes, so a hung disk counts as a full one. The receiver's lease
        must not run out either.
        """
        with trio.move_on_after(self._host.timing.lease_s / 2):
            return await self._saver.save()
        return False

    def _switch_of(self, outbound: Outbound, giving: Giving, is_in_sync: bool) -> Switch:
        """Return the `Switch` with the ages of this moment."""
        peers, now = self._host.peers, self._host.peers.now()
        down = [(m.dead, m.since) for m in self._own.marks if m.dead.id not in giving.arc]  # behind the receiver
        passive = [c for c in peers.passive.remembered() if c.id != outbound.to.id]
        left = list(peers.goodbyes.latest().items())[-LIST_ENTRIES_MAX:]
        return Switch(
            session=outbound.session,
            arc_start=giving.arc.start,
            arc_end=giving.arc.end,
            epoch=giving.epoch,
            boundary=self._own.boundary,
            before=self._own.before[1 : LIST_ENTRIES_MAX + 1],
            marks=ages.marks_to_others(marks_within(self._own.marks, giving.arc), peers),
            unreachable=(*ages.down_to_others(down, peers), *self._vnode.unreachable())[:LIST_ENTRIES_MAX],
            is_in_sync=is_in_sync,
            passive=tuple(passive)[-LIST_ENTRIES_MAX:],
            left=tuple(vnode for vnode, _ in left),
            left_ms=tuple(age_ms(now, at) for _, at in left),
        )

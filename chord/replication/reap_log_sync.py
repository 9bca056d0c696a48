"""Sync of the reap logs of two stores.

A reap log names the records that garbage collection removed in one of the 4,096 slices of the circle
(`store/reap_log.py`). After a sync, each store can merge the other's records. Each side takes the log entries that only
the other has. If the other has already dropped (*trimmed*) such entries, the side first asks the other to vouch for its
old values, slice by slice.

Equal logs cost no call here, because each comparison of records also compares a digest of the logs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

import trio

from chord.errors import Busy, DeadlineExceeded, WritesRefused
from chord.events import ValuesQuarantined
from chord.ids import Arc
from chord.net.calls import Answer
from chord.net.handlers import handles
from chord.replication.effects import when_durable
from chord.ring.context import NodeContext
from chord.ring.vnode import RETRY_MS
from chord.store import quarantine
from chord.store.reap_log import ReapLog
from chord.store.storage import Batch
from chord.wire.messages import (
    HEADS_MAX,
    SLICES_ASKED_MAX,
    AskLog,
    Claim,
    Contact,
    Done,
    FetchLogs,
    GetLogs,
    GetLogsReply,
    GetSeen,
    GetSeenReply,
    Holding,
    Reply,
    Request,
    SliceLog,
    StoreLogs,
    UpTo,
    Vouch,
    VouchReply,
)

PASSES_MAX: Final = 8
"""Largest number of pages of one slice's log that a sync fetches."""
NUMBERS_MAX: Final = 4096
"""Largest number of stores in a request about the logs of several slices, counted once for each slice and list.

These stores then take a fifth of `frame_items_max`. A request about one slice may name `MAKERS_MAX` in each list.
"""

R = TypeVar("R", bound=Reply)


class ReapLogSync:
    """Syncs the reap logs of one store with other stores, and answers their requests.

    A reap log names the records that were removed in one slice of the circle, see `store/reap_log.py`.

    Args:
        host: the node context.
        log: the reap logs of this node's store.
    """

    def __init__(self, host: NodeContext, log: ReapLog) -> None:
        self._host = host
        self._log = log
        self._under_way: dict[tuple[str, int], trio.Event] = {}

    # -- asking ---------------------------------------------------------------------------------

    async def sync(self, partner: Contact, arc: Arc) -> None:
        """Sync the reap logs of all slices that overlap an arc with a partner, in both directions.

        Raises:
            ChordError: the partner is unreachable or refuses. The entries applied until then are durable.
            WritesRefused: the disk here takes no writes. The partner has fetched the entries that it lacked.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        try:
            theirs = await self._pull(partner, arc)
        except WritesRefused:
            await self._push(partner, arc)  # a full disk here must not keep the partner behind
            raise
        if any(self._log.seen(part) != theirs.get(part, b"") for part in self._log.slices_in(arc)):
            await self._push(partner, arc)
            self._host.counters["logs_synced"] += 1

    async def _push(self, partner: Contact, arc: Arc) -> None:
        """Ask a partner to fetch the log entries of an arc that its store has not applied."""
        await self._call(partner, FetchLogs(arc.start, arc.end, next(iter(self._host.vnodes.values())).me), Done)

    async def sync_slice(self, partner: Contact, key: bytes) -> None:
        """Sync the reap log of a key's slice (1/4,096 of the circle) with a partner.

        Concurrent calls for the same slice and partner share one sync. If it fails, only the first call gets the error,
        and the others return.

        Raises:
            ChordError: the partner is unreachable or refuses, or the disk here takes no writes.
        """
        part = self._log.slice_of(key)
        name = (partner.address, part)
        if (under_way := self._under_way.get(name)) is not None:
            await under_way.wait()
            return
        ended = self._under_way[name] = trio.Event()
        try:
            await self.sync(partner, self._host.storage.digests.arc_of(part))
        finally:
            del self._under_way[name]
            ended.set()

    async def tell(self, partner: Contact, logs: list[SliceLog]) -> None:
        """Send another replica log entries of this store, such as those of records that were just reaped.

        Raises:
            ChordError: the partner does not take them, or does not answer within `timeout_cap_s`.
        """
        while logs:
            count = fitting([len(log.seen) + len(log.trimmed) + len(log.floors) for log in logs])
            await self._call(partner, StoreLogs(tuple(logs[:count])), Done)
            logs = logs[count:]

    async def log_of(self, partner: Contact, key: bytes) -> SliceLog:
        """Fetch a partner's reap log of the slice in which a key lies.

        The result has the entries that this store lacks. They are not applied.

        Raises:
            ChordError: the partner is unreachable, or sends no log of the slice.
        """
        part = self._log.slice_of(key)
        logs = await self._call(partner, GetLogs((AskLog(part, _up_tos(self._log.state(part).seen)),)), GetLogsReply)
        if [log.slice for log in logs.slices] != [part]:
            raise Busy(f"{partner.address} did not send the requested reap log", after_ms=RETRY_MS)
        return logs.slices[0]

    async def has_seen(self, partner: Contact, part: int) -> bool:
        """Return whether a partner has applied the same entries of a slice's log as this store.

        Args:
            partner: the vnode to ask.
            part: the number of the slice, 0 to 4,095.

        Raises:
            ChordError: the partner is unreachable or refuses.
        """
        arc = self._host.storage.digests.arc_of(part)
        reply = await self._call(partner, GetSeen(arc.start, arc.end), GetSeenReply)
        return {one.slice: one.seen for one in reply.slices}.get(part, b"") == self._log.seen(part)

    async def _pull(self, partner: Contact, arc: Arc) -> dict[int, bytes]:
        """Fetch and apply the reap-log entries of an arc that this store lacks.

        Returns:
            For each slice with a log, the digest of the entries that the partner has applied.
        """
        reply = await self._call(partner, GetSeen(arc.start, arc.end), GetSeenReply)
        theirs = {one.slice: one.seen for one in reply.slices}
        wanted = [part for part, seen in theirs.items() if seen != self._log.seen(part)]
        while wanted:
            asks = [AskLog(part, _up_tos(self._log.state(part).seen)) for part in wanted[:SLICES_ASKED_MAX]]
            asks = asks[: fitting([len(ask.seen) for ask in asks])]
            logs = await self._call(partner, GetLogs(tuple(asks)), GetLogsReply)
            if not logs.slices or [log.slice for log in logs.slices] != wanted[: len(logs.slices)]:
                raise Busy(f"{partner.address} did not send the requested reap logs", after_ms=RETRY_MS)
            wanted = wanted[len(logs.slices) :]
            for log in logs.slices:
                await self._take(partner, log)
        return theirs

    async def _take(self, partner: Contact, log: SliceLog) -> None:
        """Apply a partner's log of one slice; fetch the rest if it comes in pages.

        Raises:
            Busy: definite; the logs still differ after `PASSES_MAX` pages.
        """
        for _ in range(PASSES_MAX):
            if self._log.is_in_reach(log):
                await self._host.storage.commit(self._log.absorb(log))
            else:
                await self._catch_up(partner, log)
            mine = self._log.state(log.slice).seen
            if all(mine.get(up_to.store, 0) >= up_to.number for up_to in log.seen):
                return
            ask = AskLog(log.slice, _up_tos(mine))
            reply = await self._call(partner, GetLogs((ask,)), GetLogsReply)
            if not reply.slices:
                break
            log = reply.slices[0]
        raise Busy(f"the log of slice {log.slice} is not in sync with {partner.address} yet", after_ms=RETRY_MS)

    async def _catch_up(self, partner: Contact, log: SliceLog) -> None:
        """Apply a partner's log that lacks entries, because the partner trimmed them.

        The missing entries may have named values that this store still holds. The partner vouches for the values of an
        actor (a store that coordinated writes) in two cases. It knows all writes of the actor, or still holds a value
        of it. Other values go into quarantine: readers do not see them.

        Args:
            partner: the vnode to ask.
            log: the partner's log of one slice.

        Raises:
            Busy: definite; the partner has trimmed further entries meanwhile, and nothing was applied.
        """
        known: dict[Claim, Holding] = {}
        while claims := self._log.claims(log, known)[:HEADS_MAX]:
            reply = await self._call(partner, Vouch(log.slice, tuple(claims)), VouchReply)
            if reply.trimmed != log.trimmed or len(reply.holdings) != len(claims):
                raise Busy(f"{partner.address} has trimmed its log of slice {log.slice} meanwhile", after_ms=RETRY_MS)
            known.update(zip(claims, reply.holdings, strict=True))
        self._host.counters["slices_caught_up"] += 1
        batch = self._log.catch_up(log, known)
        if hidden := sum(quarantine.count(record) - self._hidden_of(record.key) for record in batch.puts):
            self._host.tell([ValuesQuarantined(hidden)])
        await self._host.storage.commit(batch)

    def _hidden_of(self, key: bytes) -> int:
        record = self._host.storage.get(key)
        return 0 if record is None else quarantine.count(record)

    async def _call(self, partner: Contact, request: Request, expect: type[R]) -> R:
        timeout_s = self._host.timing.timeout_cap_s
        try:
            with trio.fail_after(timeout_s):
                return await self._host.peers.call(partner, request, expect)
        except trio.TooSlowError:
            raise DeadlineExceeded(f"no answer from {partner.address} within {timeout_s:g} s") from None

    # -- answering ------------------------------------------------------------------------------

    @handles(GetSeen)
    def on_get_seen(self, request: GetSeen) -> Answer:
        """Return the digest of the applied log entries of each slice that overlaps an arc and has any here."""
        return self._when_durable(GetSeenReply(self._log.seen_in(Arc(request.arc_start, request.arc_end))))

    @handles(GetLogs)
    def on_get_logs(self, request: GetLogs) -> Answer:
        """Return the reap logs of the first requested slices, as many as fit a page.

        At least one log is returned, with as many of its entries as fit.
        """
        found: list[SliceLog] = []
        left = self._host.limits.page_bytes
        for ask in request.asks:
            log, size = self._log.log_after(ask.slice, {one.store: one.number for one in ask.seen}, left)
            if found and size > left:
                break
            found.append(log)
            left -= size
        return self._when_durable(GetLogsReply(tuple(found)))

    @handles(StoreLogs)
    def on_store_logs(self, request: StoreLogs) -> Answer:
        """Apply log entries of records that another store has just reaped.

        If this store lacks earlier entries, the new ones are not applied. The next sync of the logs fetches all.
        """
        for log in request.slices:
            self._host.storage.stage(self._log.absorb(log))
        return self._when_durable(Done())

    @handles(FetchLogs)
    async def on_fetch_logs(self, request: FetchLogs) -> Done:
        """Fetch from the caller's store the log entries of an arc that this store lacks."""
        await self._pull(request.asker, Arc(request.arc_start, request.arc_end))
        return Done()

    @handles(Vouch)
    def on_vouch(self, request: Vouch) -> Answer:
        """Return for each requested key and actor how many of the actor's writes this store knows, and holds.

        The caller uses the numbers to keep or hide its own old values. The reply also says which log entries of the
        slice this store has trimmed. All of this is read at the same time.
        """
        trimmed = _up_tos(self._log.state(request.slice).trimmed)
        return self._when_durable(VouchReply(trimmed, self._log.vouch(request.claims)))

    def _when_durable(self, reply: Reply) -> Answer:
        """Delay a reply until all visible changes of the store are durable.

        Otherwise a crash could undo the log entries that the reply reports.
        """
        return reply if self._host.storage.stage(Batch()) else when_durable(self._host.storage, reply)


def fitting(sizes: Sequence[int]) -> int:
    """Return how many of the first slices fit one request: at most `SLICES_ASKED_MAX`, and at least one.

    `sizes` has for each slice the number of stores that the request names. Together they are at most `NUMBERS_MAX`, if
    more than one slice fits.
    """
    total = 0
    for count, size in enumerate(sizes[:SLICES_ASKED_MAX]):
        total += size
        if count and total > NUMBERS_MAX:
            return count
    return min(len(sizes), SLICES_ASKED_MAX)


def _up_tos(numbers: dict[bytes, int]) -> tuple[UpTo, ...]:
    return tuple(UpTo(store, number) for store, number in numbers.items())



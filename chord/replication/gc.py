"""Garbage collection: remove tombstones and expired values (*reap* them).

Reaping removes a record, and names its dots (the names of its writes) in an entry of the reap log
(`store/reap_log.py`). The owner need not prove that all replicas have the delete. A store that was away finds in the
log which of its values are dead. So clocks may decide the time.

A record is *ripe* under two conditions. By its owner's clock, its values were deleted or had expired before the grace
period. This owner has also held it unchanged for `HELD_MAX_S`, or a shorter grace period, of its own running time.
Within that time a client may still retry a put that a tombstone replaced.

An expired value may still be live by another clock. So all replicas must answer that it has expired by their own
clocks, and that the grace period is over.

The owner also reaps single actors of records with many coordinators (`prune.py`). It trims its log (drops the oldest
entries) when all replicas have applied the entries and no node is unreachable. Other stores then drop the same entries.
On its own, a store trims only a log that exceeds `reap_log_entries_max`.

Source: this project's; see `store/reap_log.py`.
"""

from __future__ import annotations

from typing import Final

import trio

from chord.errors import Busy, ChordError, InvalidRequest
from chord.ids import Arc, Point
from chord.net.handlers import handles
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.prune import Emptied
from chord.replication.reap_log_sync import ReapLogSync
from chord.ring.context import NodeContext
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store import versions
from chord.store.merkle import digest_of
from chord.store.reap_log_state import Grave
from chord.wire.messages import PAGE_RECORDS_MAX, AreExpired, AreExpiredReply, Contact, Record, SliceLog

HELD_MAX_S: Final = 600.0
HELD_RECORDS_MAX: Final = 65_536
LOOK_AT: Final = 1024  # records of one part that one step looks at


class Held:
    """Remembers for how long an owner has held its dead records unchanged.

    It has room for `HELD_RECORDS_MAX` records. Further records are reaped later.
    """

    __slots__ = ("_before", "_since")

    def __init__(self) -> None:
        self._since: dict[bytes, tuple[bytes, float]] = {}
        self._before: dict[bytes, tuple[bytes, float]] = {}

    def since(self, key: bytes, digest: bytes, now: float) -> float:
        """Return since when the owner has held a record unchanged; remember it if there is room.

        Args:
            key: the record's key.
            digest: the record's present digest. If no digest or another one is remembered, the result is `now`.
            now: the current time, in seconds on Trio's clock, like the result.
        """
        held = self._since.get(key) or self._before.get(key)
        if held is None or held[0] != digest:
            held = (digest, now)
        if len(self._since) < HELD_RECORDS_MAX:
            self._since[key] = held
        return held[1]

    def forget(self, key: bytes) -> None:
        """Forget a record that is reaped.

        If another replica brings the record back, its time starts anew. So the owner and that replica can first sync
        their reap logs.
        """
        self._since.pop(key, None)
        self._before.pop(key, None)

    def next_round(self) -> None:
        """Begin the next round over the arc.

        Forget the records for which `since` was not called in the round that ends now.
        """
        self._before, self._since = self._since, {}


class GarbageCollector:
    """Reaps dead records of one vnode's arc, and trims the reap logs of its slices.

    Args:
        vnode: the vnode.
        repair: knows which replicas of the arc are in sync.
        log_sync: exchanges log entries with the other replicas.
    """

    __slots__ = ("_after", "_emptied", "_held", "_host", "_log_sync", "_repair", "_vnode")

    def __init__(self, vnode: Vnode, repair: AntiEntropy, log_sync: ReapLogSync) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._repair = repair
        self._log_sync = log_sync
        self._after: dict[Point, bytes] = {}  # how far each part has been looked at, by its end
        self._held = Held()
        self._emptied = Emptied(vnode.host.timing.grace_s)

    @handles(AreExpired)
    def on_are_expired(self, request: AreExpired) -> AreExpiredReply:
        """Return for each requested key whether it has had no live value for the grace period, `grace_s`.

        This node's wall clock decides. A key without a record, or with quarantined values only, counts as expired.
        """
        before_ms = before_grace_ms(self._host)
        records = [self._host.storage.get(key) for key in request.keys]
        are_expired = (record is None or not record.clock or is_ripe(record, before_ms) for record in records)
        return AreExpiredReply(tuple(are_expired))

    async def reap(self) -> None:
        """Run one step of garbage collection, over the next records of each part.

        The step removes (reaps) ripe records and names them in the reap logs. It also trims long reap logs. A part is a
        stretch of the arc with one replica set.

        Concurrency: checkpoints; a cancellation loses nothing, and the next step continues.
        """
        parts = self._repair.parts()
        for arc, replicas in parts:
            others = [place.contact for place in replicas.members if place.contact.address != self._host.address]
            deleted, expired, crowded = self._ripe(arc)
            if expired:
                expired = await self._expired_everywhere(expired, replicas)
            await self._bury([*deleted, *expired], crowded, others)
            await self._trim(arc, replicas, others)
        ends = {arc.end for arc, _ in parts}
        self._after = {end: key for end, key in self._after.items() if end in ends}
        if not self._after:
            self._held.next_round()

    # -- ripe records ---------------------------------------------------------------------------

    def _ripe(self, arc: Arc) -> tuple[list[Record], list[Record], list[Grave]]:
        """Look at the next records of a part of the arc; return those to reap.

        At most `LOOK_AT` records are looked at, and the next call continues behind them.

        Returns:
            The ripe records with tombstones only, the ripe records with expired values, and other records, each with
            the actors to remove from its clock.
        """
        now, before_ms = trio.current_time(), before_grace_ms(self._host)
        held_until = now - min(self._host.timing.grace_s, HELD_MAX_S)
        after = self._after.pop(arc.end, None)
        after = after if after is not None and self._host.circle.hash(after) in arc else None
        deleted: list[Record] = []
        expired: list[Record] = []
        crowded: list[Grave] = []
        for seen, record in enumerate(self._host.storage.scan(arc, after=after), 1):
            if is_ripe(record, before_ms):
                if self._held.since(record.key, digest_of(record), now) <= held_until:
                    (deleted if not versions.values(record) else expired).append(record)
            elif old := self._emptied.ripe(record, now, before_ms):
                counts = versions.context_of(record)
                crowded.append(Grave(record, {actor: counts[actor] for actor in old}))
            if seen == LOOK_AT:
                self._after[arc.end] = record.key
                break
        return deleted, expired, crowded

    async def _expired_everywhere(self, records: list[Record], replicas: ReplicaSet) -> list[Record]:
        """Return the records that have expired by the clocks of the whole replica set.

        Stand-ins and leaving nodes are also asked. If one node does not answer, return no record.
        """
        try:
            for place in replicas.everyone:
                if place.contact.address != self._host.address:
                    for begin in range(0, len(records), PAGE_RECORDS_MAX):
                        page = records[begin : begin + PAGE_RECORDS_MAX]
                        each = await self._ask(place.contact, AreExpired(tuple(record.key for record in page)))
                        live = {record.key for record, is_expired in zip(page, each, strict=False) if not is_expired}
                        records = [record for record in records if record.key not in live]
        except ChordError:
            self._host.counters["reaps_broken_off"] += 1
            return []
        return records

    async def _ask(self, contact: Contact, request: AreExpired) -> tuple[bool, ...]:
        with trio.move_on_after(self._host.timing.timeout_cap_s):
            each = (await self._host.peers.call(contact, request, AreExpiredReply)).each
            if len(each) == len(request.keys):
                return each
        raise Busy(f"{contact.address} does not answer", after_ms=RETRY_MS)

    # -- reaping --------------------------------------------------------------------------------

    async def _bury(self, records: list[Record], crowded: list[Grave], others: list[Contact]) -> None:
        """Reap records, durably, and send the log entries to the other replicas.

        A record that has changed since it was read is left alone.

        Args:
            records: the records to remove.
            crowded: records that stay, and lose entries of their clocks.
            others: the other replicas.

        Raises:
            ChordError: see `Storage.commit`. A replica that cannot be reached raises nothing.
        """
        storage = self._host.storage
        graves = [Grave(record, versions.context_of(record)) for record in records]
        graves = [grave for grave in (*graves, *crowded) if storage.get(grave.record.key) == grave.record]
        if graves:
            await self._bury_at_once(graves, {grave.record.key for grave in crowded}, others)

    async def _bury_at_once(self, graves: list[Grave], crowded: set[bytes], others: list[Contact]) -> None:
        """Reap records in one transaction; see `_bury`.

        If the log of one slice names too many stores already (`MAKERS_MAX`), the records are reaped one at a time.
        Those of the full slice stay.
        """
        storage, log = self._host.storage, self._host.reap_log
        parts = sorted({log.slice_of(grave.record.key) for grave in graves})
        before = {part: log.state(part) for part in parts}
        try:
            batch = log.bury(graves)
        except InvalidRequest:
            if len(graves) == 1:
                self._host.counters["reaps_broken_off"] += 1
            else:
                for grave in graves:
                    await self._bury_at_once([grave], crowded, others)
            return
        await storage.commit(batch)
        for grave in graves:
            self._held.forget(grave.record.key)
        pruned = sum(grave.record.key in crowded for grave in graves)
        self._host.counters["keys_reaped"] += len(graves) - pruned
        self._host.counters["keys_pruned"] += pruned
        await self._tell(others, [log.news(part, state, graves) for part, state in before.items()])

    async def _tell(self, others: list[Contact], logs: list[SliceLog]) -> None:
        for contact in others:
            try:
                await self._log_sync.tell(contact, logs)
            except ChordError:
                self._host.counters["reaps_unheard"] += 1  # the next comparison brings the entries

    async def _trim(self, arc: Arc, replicas: ReplicaSet, others: list[Contact]) -> None:
        """Shorten the long reap logs of a part that all replicas have applied.

        A log is long if it has more than `reap_log_entries` entries, and is cut to half of that number. This method
        checks the conditions itself. If `_is_whole` is False, it trims nothing. It asks each node in `others` about
        each long log, and leaves a log that one of them has not applied as this store has. After a cut it informs the
        others, so that they drop the same entries. If a call fails, the remaining logs wait for the next step.

        Args:
            arc: a part of this vnode's arc.
            replicas: the replica set of the part.
            others: the members of `replicas` on other nodes.
        """
        log, keep = self._host.reap_log, self._host.limits.reap_log_entries
        long = [part for part in log.slices_in(arc) if log.state(part).entries > keep]
        if not long or not self._is_whole(arc, replicas):
            return
        try:
            for part in long:
                seen = log.seen(part)
                if all([await self._log_sync.has_seen(contact, part) for contact in others]) and log.seen(part) == seen:
                    await self._host.storage.commit(log.trim(part, keep // 2))
                    await self._tell(others, [log.run_of(part, log.next_number(part))])
        except ChordError:
            self._host.counters["trims_broken_off"] += 1

    def _is_whole(self, arc: Arc, replicas: ReplicaSet) -> bool:
        """Return whether no node is known to be down, and all members are in sync.

        Stand-ins and leaving nodes of the replica set need only be up. If this vnode is isolated, the result is False.

        Args:
            arc: a part of this vnode's arc.
            replicas: the replica set of the part.
        """
        host = self._host
        if self._vnode.ring.is_isolated or any(host.peers.passive.contacts()):
            return False
        if self._vnode.preference_list.unreachable() or any(vnode.ownership.marks for vnode in host.vnodes.values()):
            return False
        members = [place.contact for place in replicas.members]
        are_in_sync = self._repair.in_sync_among(members, arc.end) == members
        return are_in_sync and all(self._vnode.is_up(place) for place in replicas.everyone)


def before_grace_ms(host: NodeContext) -> int:
    """Return when the grace period that ends now began, by this node's wall clock.

    The unit is ms since 1970.
    """
    return host.wall_now_ms() - int(1000 * host.timing.grace_s)


def is_ripe(record: Record, before_ms: int) -> bool:
    """Return whether all values of a record were deleted or had expired before a moment.

    A record with an empty clock, so with quarantined values only, is not ripe.

    Args:
        record: the record.
        before_ms: the moment, in ms since 1970 on the wall clock.
    """
    return bool(record.clock) and all(
        (version.written_ms if version.value is None else version.expires_ms or before_ms) < before_ms
        for version in versions.siblings(record)
    )

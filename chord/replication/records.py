"""The records in a node's own store: new versions, merges, pages.

The coordinator reads and writes the copies of other replicas. This module makes changes of the own store, by version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from chord.config import SKEW_REFUSED_MS
from chord.errors import ClocksDiffer, InvalidRequest, VersionConflict, WritesRefused
from chord.events import RecordUnmerged
from chord.ids import Arc
from chord.replication import restore
from chord.ring.context import NodeContext
from chord.store import quarantine, versions
from chord.store.dedup import Dot
from chord.store.early import UndecidedPuts
from chord.store.storage import Batch, bytes_of_values
from chord.wire.messages import (
    ACTORS_HELD_MAX,
    ActorClock,
    DecideQuarantine,
    Merge,
    Put,
    Record,
    ScanOf,
    Version,
    wire_bytes,
)


class Remarks(NamedTuple):
    """Facts for the `Written` reply to a write that the written record does not show.

    Attributes:
        dead: number of values of a merged backup's record that were left out, because they were deleted or replaced.
        decided: number of quarantined versions that were decided about, or of left-out values that were brought back.
    """

    dead: int = 0
    decided: int = 0


EARLY_ACTORS_MAX = 31
"""The most actors in the clock of a record that an early put sends.

A crash gives up the actor of such a put, so the next write adds an actor. From 32 actors on, a new actor is never lent,
and survives crashes. So crashes alone never fill a clock.
"""


class EarlyPut(NamedTuple):
    """A version that is sent before it is stored.

    Attributes:
        old: this node's copy, which the version covers; None without a copy.
        record: the record with the version.
        dot: the dot of the version.
        seen: digest of the reap-log entries that this node had applied when the version was made.
        waiting: the callbacks of the writes that wait until this put is decided.
    """

    old: Record | None
    record: Record
    dot: Dot
    seen: bytes
    waiting: list[Callable[[], object]]


class Records:
    """Reads and changes the records in a node's own store.

    Attributes:
        undecided: the keys with an early put under way; see `chord/replication/conditional.py`.
    """

    __slots__ = ("_host", "undecided")

    def __init__(self, host: NodeContext) -> None:
        self._host = host
        self.undecided = UndecidedPuts()

    async def until_durable(self) -> None:
        """Wait until each visible change is durable, or the disk refused and undid it.

        Raises:
            RemoteFailure: indefinite; the disk failed, and this node stops.
        """
        with suppress(WritesRefused):
            await self._host.storage.commit(Batch())

    def holds(self, record: Record) -> bool:
        """Return whether this node's copy includes everything in a record.

        It does if a merge with the record would not change the copy. Without a copy, the result is False.
        """
        mine = self._host.storage.get(record.key)
        return mine is not None and versions.sync(mine, record) == mine

    def to_put(
        self, request: Put, seen: Record | None, sent: Dot | None = None
    ) -> tuple[Record, Batch, Remarks]:
        """Return the record after a put, and the change that stores it.

        The caller must stage the change at once. If the record already knows the operation id, no version is added.

        Args:
            request: the put. A context of None covers all versions in this node's copy and in `seen`.
            seen: the merge of the copies that other replicas sent; None if none was read or found.
            sent: the dot of an earlier version of this put, which other nodes may have stored; otherwise None. The new
                version replaces it, under the same actor. The context must be None.

        Returns:
            The record with the new version, the change that stores it, and remarks for the reply.

        Raises:
            InvalidRequest: definite; the context cannot be decoded, is not of this key, or claims more than
                `context_ahead_max` unknown writes. Or the record would name too many coordinators.
            VersionConflict: definite; the record would hold too many concurrent versions, or too large ones.
            WritesRefused: definite; the disk takes no writes.
        """
        old = self._merged(request.key, seen)
        is_known = sent is not None and old is not None and versions.count_of(old, sent.actor) >= sent.number
        if old is not None and (is_known or versions.is_done(old, request.op_id)):
            return old, self.to_merge([old]), Remarks()  # the first attempt may be visible and not durable yet
        new, actor = self._put_on(old, request, sent)
        self.note_write(request.key)  # before the wait: a transfer may end meanwhile, and must have taken it
        return new, Batch(puts=(new,), minted={request.key: actor}), Remarks()

    def _put_on(self, old: Record | None, request: Put, sent: Dot | None) -> tuple[Record, bytes]:
        """Return the record after a put, and the actor of the new version; see `to_put`.

        `old` is this node's copy, merged with the copies of others; None without copies.
        """
        context = None if request.context is None else versions.decode_context(request.context)
        if context:
            self._check_context(old, context)
        now = self._host.wall_now_ms()
        expires = now + request.ttl_ms if request.ttl_ms else 0
        actor, skipped = (self._actor(request.key, old), 0) if sent is None else sent
        version = Version(request.value, request.op_id, now, expires, request.is_retry)
        new = versions.put(old, request.key, context, actor, version, skipped=skipped)
        if not self._fits(new):
            raise VersionConflict(
                f"the key holds {sum(len(entry.versions) for entry in new.clock) - 1} concurrent versions; "
                "read it and put with the context that covers them"
            )
        return new, actor

    def to_restore(self, request: Merge, seen: Record | None) -> tuple[Record, Batch, Remarks]:
        """Return a key's record after the merge of a backup's record, and the change.

        The change stores the result. The caller must stage it at once.

        Args:
            request: the record of the backup. With an operation id, values deleted or replaced since the backup are
                written again. With an empty id, they are only counted in `Remarks.dead`.
            seen: the merge of the copies that other replicas sent; None if none was read or found.

        Returns:
            The record, the change that stores it, and remarks for the reply.

        Raises:
            InvalidRequest: definite; the backup's record is not valid, or the merge would name too many coordinators.
            WritesRefused: definite; the disk takes no writes.
        """
        saved, now_ms = request.record, self._host.wall_now_ms()
        old, live = self._merged(saved.key, seen), self._host.reap_log.restored(saved)
        merged = (old or Record(saved.key, ())) if live is None else self._synced(old, live)
        lost = restore.missing(saved, merged, now_ms)
        if not request.op_id or not lost:
            return merged, self.to_merge([merged]), Remarks(dead=len(lost))
        actor = self._actor(saved.key, old)
        new, count = restore.bring_back(
            merged, lost, actor, request.op_id, fits=self._fits, is_retry=request.is_retry
        )
        self.note_write(saved.key)
        minted = {saved.key: actor} if count else None
        return new, Batch(puts=(new,), minted=minted), Remarks(dead=len(lost) - count, decided=count)

    def to_decide(self, request: DecideQuarantine, seen: Record | None) -> tuple[Record, Batch, Remarks]:
        """Return a key's record after an operator's decision about its quarantined values.

        These values are hidden from readers, because no store vouches for them. The decision drops them or writes them
        again. A decision that was carried out before changes nothing. The caller must stage the change at once.

        Args:
            request: the decision.
            seen: the merge of the copies that other replicas sent; None if none was read or found.

        Returns:
            The record, the change that stores it, and remarks for the reply.

        Raises:
            InvalidRequest: definite; the context cannot be decoded, or the record would name too many coordinators.
            VersionConflict: definite; no value has room beside the live values of the key.
            WritesRefused: definite; the disk takes no writes.
        """
        old = self._merged(request.key, seen) or Record(request.key, ())
        context = versions.decode_context(request.context)
        if not request.merge:
            new, decided = quarantine.drop(old, context)
        else:
            actor = self._actor(request.key, old)
            new, decided = quarantine.merge(
                old, context, actor, request.op_id, fits=self._fits, is_retry=request.is_retry
            )
            if not decided and any(one.number <= context.get(one.actor, 0) for one in quarantine.hidden(old)):
                raise VersionConflict(
                    f"the key holds {sum(len(entry.versions) for entry in old.clock)} versions, and has no room for "
                    "another; read it and put with the context that covers them, then decide again"
                )
        if not decided:
            return old, self.to_merge([old]), Remarks()  # an earlier attempt may be visible and not durable yet
        self.note_write(request.key)
        minted = {request.key: actor} if request.merge else None
        return new, Batch(puts=(new,), minted=minted), Remarks(decided=decided)

    def to_merge(self, records: Iterable[Record], unmerged: list[InvalidRequest] | None = None) -> Batch:
        """Return the change that merges records of other nodes by version.

        The change has only the records that are new or changed. The caller must stage it at once.

        Args:
            records: the records.
            unmerged: receives the error of each record that cannot be merged. The change has the other records. If
                None, the first such error is raised.

        Raises:
            InvalidRequest: definite; only if `unmerged` is None: a record is not valid, or the merge would name too
                many coordinators.
        """
        changed: dict[bytes, Record] = {}
        for record in records:
            old = changed.get(record.key) or self._host.storage.get(record.key)
            try:
                new = self._synced(old, record)
            except InvalidRequest as error:
                if unmerged is None:
                    raise
                unmerged.append(error)
                self._host.counters["records_unmerged"] += 1
                self._host.tell([RecordUnmerged(f"{record.key!r}: {error.message}")])
                continue
            if new != old and (new.clock or new.quarantine):  # a record that was reaped on its way is empty
                changed[record.key] = new
        for key in changed:
            self.note_write(key)
        return Batch(puts=changed.values())

    async def merge(self, records: Sequence[Record], seen: Sequence[bytes]) -> int:
        """Merge records of other nodes by version, durably.

        A record that cannot be merged is left out; see `stage`.

        Args:
            records: the records.
            seen: for each record, the digest of the reap-log entries that the sender's store had applied.

        Returns:
            The number of records that were new or changed.

        Raises:
            Behind, WritesRefused, Overloaded: see `stage`.
            RemoteFailure: see `Storage.commit`.
        """
        changed, is_durable = self.stage(records, seen, must_all=False)
        if not is_durable:
            await self._host.storage.commit(Batch())
        return changed

    def stage(self, records: Sequence[Record], seen: Sequence[bytes], *, must_all: bool = True) -> tuple[int, bool]:
        """Merge records of other nodes by version, so that they are visible now.

        A record that cannot be merged is counted, and reported to the observer.

        Args:
            records: the records.
            seen: for each record, the digest of the reap-log entries that the sender's store had applied
                (`ReapLog.seen_of_each`). A missing digest counts as empty.
            must_all: whether to merge none if a record cannot be merged. Needed if the sender takes the answer as proof
                that all of the records are here. Otherwise the other records are merged.

        Returns:
            The number of records that were new or changed, and whether all visible changes are already durable. If not,
            even an unchanged record may not be durable.

        Raises:
            Behind: definite; the reap logs differ, and nothing was merged.
            InvalidRequest: definite; with `must_all`, a record cannot be merged, and nothing was.
            WritesRefused, Overloaded: definite; nothing was merged.
        """
        self._host.reap_log.require_same_entries(records, seen)
        unmerged: list[InvalidRequest] = []
        batch = self.to_merge(records, unmerged)
        if unmerged and must_all:
            raise unmerged[0]
        is_durable = self._host.storage.stage(batch)
        return len(batch.puts), is_durable

    def stage_if_covering(self, mine: Record | None, record: Record, seen: bytes) -> tuple[bool, bool]:
        """Store another node's record if it covers this node's copy: if a merge of the two equals it.

        Args:
            mine: this node's copy; None without one.
            record: the record.
            seen: see `stage`.

        Returns:
            Whether the record covers the copy, and whether all visible changes are durable already.

        Raises:
            Behind, InvalidRequest, WritesRefused, Overloaded: see `stage`.
        """
        self._host.reap_log.require_same_entries((record,), (seen,) if seen else ())
        if self._synced(mine, record) != record:
            return False, self._host.storage.stage(Batch())
        if mine == record:
            return True, self._host.storage.stage(Batch())
        self.note_write(record.key)
        return True, self._host.storage.stage(Batch(puts=(record,)))

    # -- early puts -----------------------------------------------------------------------------

    def begin_early(self, request: Put) -> EarlyPut | None:
        """Make a version that covers this node's copy, and lend its actor, so that it can be sent; do not store it.

        Returns:
            None if the put must be stored first. The version builds on this node's copy and on its reap log, so both
            must be durable. The record must fit one frame, and have few actors and no quarantine. No other early put
            of the key may be undecided.

        Raises:
            ChordError: definite; see `to_put`.
        """
        storage, log, key = self._host.storage, self._host.reap_log, request.key
        if key in self.undecided.keys or not (storage.is_durable(key) and storage.can_lend(key)):
            return None
        seen = log.seen_of(key)
        if not storage.is_instant and seen and log.durably_seen_of(key) != seen:
            return None
        old = storage.get(key)
        if old is not None and (old.quarantine or versions.is_done(old, request.op_id)):
            return None
        record, actor = self._put_on(old, request, None)
        number = versions.count_of(record, actor)
        if not versions.is_lendable(actor) or len(record.clock) > EARLY_ACTORS_MAX or number >= versions.COUNT_MAX - 1:
            return None
        if len(record.clock) > 1 and len(versions.split(record, self._host.limits.record_bytes_max)) > 1:
            return None
        storage.lend_actor(key, record)
        return EarlyPut(old, record, Dot(actor, number), seen, self.undecided.begin(key))

    def end_early(self, early: EarlyPut, *, is_given_up: bool) -> None:
        """Note that an early put is decided, and let the waiting writes go on; a second call does nothing.

        Args:
            early: the put.
            is_given_up: whether the store must mint no more under the actor. Otherwise the store has it back.
        """
        key = early.record.key
        if self.undecided.keys.get(key) is early.waiting:  # otherwise another put of the key may be undecided by now
            try:
                if is_given_up:
                    self._host.storage.give_up_actor(key)
            finally:
                self.undecided.end(key)

    def new_actor(self, *, is_lendable: bool = True) -> bytes:
        """Return a new actor: a name for this store under which it has made no write yet.

        The name has the store's incarnation and a new key epoch, see `store/versions.py`.

        Args:
            is_lendable: whether the actor may be lent to early puts. Then a crash gives it up.

        Raises:
            WritesRefused: definite; see `Storage.next_key_epoch`.
        """
        storage = self._host.storage
        while True:
            actor = versions.actor(storage.incarnation, storage.next_key_epoch())
            if versions.is_lendable(actor) == is_lendable:
                return actor

    def note_write(self, key: bytes) -> None:
        """Note that a key is about to change, so that a transfer under way sends it again."""
        point = self._host.circle.hash(key)
        for note in self._host.on_write:
            note(point, key)

    def page(
        self, arc: Arc, after: bytes | None, limit: int, what: ScanOf = "live"
    ) -> tuple[tuple[Record, ...], bool]:
        """Return a page of an arc's records, clockwise, and whether more follow.

        Args:
            arc: the arc.
            after: the last key of the page before; None for the first page.
            limit: the largest number of records.
            what: "quarantine": only records with quarantined versions; otherwise all records.
        """
        storage = self._host.storage
        scan = storage.quarantined if what == "quarantine" else storage.scan
        return self.pack(scan(arc, after=after), limit)

    def pack(self, records: Iterable[Record], limit: int) -> tuple[tuple[Record, ...], bool]:
        """Return the first records, at most `limit` and `page_bytes` bytes, and whether any are left; see `pack`."""
        return pack(records, limit, self._host.limits.page_bytes)

    def check(self, request: Put) -> None:
        """Refuse a put beyond the limits, or with a time to live that clocks cannot keep.

        Raises:
            InvalidRequest: definite; the key is empty, or the key or the value exceeds its limit.
            ClocksDiffer: definite; the put has a time to live, and a neighbour's clock differs by more than
                `SKEW_REFUSED_MS` from this node's.
        """
        limits = self._host.limits
        if not 1 <= len(request.key) <= limits.key_bytes_max:
            raise InvalidRequest(f"a key has 1 to {limits.key_bytes_max} bytes, not {len(request.key)}")
        if request.value is not None and len(request.value) > limits.value_bytes_max:
            raise InvalidRequest(f"a value has at most {limits.value_bytes_max} bytes, not {len(request.value)}")
        if request.ttl_ms and self._host.skew_ms > SKEW_REFUSED_MS:
            skew_s, other = self._host.skew_ms / 1000, self._host.far_clock()
            clocks = f"the clocks of the coordinator, {self._host.address}, and {other}"
            most = f"a time to live needs clocks that differ by at most {SKEW_REFUSED_MS // 1000} s"
            raise ClocksDiffer(f"{clocks} differ by {skew_s:.0f} s; {most}")

    # -- inside ---------------------------------------------------------------------------------

    def _merged(self, key: bytes, seen: Record | None) -> Record | None:
        mine = self._host.storage.get(key)
        return versions.sync(mine, seen) if mine is not None and seen is not None else mine or seen

    def _synced(self, old: Record | None, record: Record) -> Record:
        """Return the merge of this node's record, None without one, and another node's.

        Raises:
            InvalidRequest: definite; `record` is not valid, or the merge would name too many coordinators.
        """
        if not versions.is_sound(record):
            wrong = versions.check(record) or ["a count is beyond what fits a context"]
            raise InvalidRequest(f"not a record: {wrong[0]}")
        new = record if old is None else versions.sync(old, record)
        if new != old and len(new.clock) > ACTORS_HELD_MAX:
            raise InvalidRequest(f"{len(new.clock)} nodes have coordinated writes of {record.key!r}")
        return new

    def _actor(self, key: bytes, old: Record | None) -> bytes:
        """Return the actor (a name for this store) for this store's next write of a key.

        If this store has written the key and held the record ever since, the actor stays the same. A record that was
        given away and came back may be older than the last write here. So a new actor with a new key epoch begins,
        because a dot must never be used twice. A new one also begins if the actor's count is at its limit. That can
        happen, because a context may claim too much.

        Args:
            key: the key.
            old: this node's copy, merged with the copies that other replicas sent; None without copies.

        Raises:
            WritesRefused: definite; see `new_actor`.
        """
        actor = self._host.storage.minted(key)
        for entry in old.clock if old is not None else ():
            if entry.actor == actor and entry.count >= versions.COUNT_MAX - 1:
                actor = None
        return actor or self.new_actor(is_lendable=old is None or len(old.clock) <= EARLY_ACTORS_MAX)

    def _check_context(self, old: Record | None, context: Mapping[bytes, int]) -> None:
        """Refuse a context that claims far more writes than are known.

        The limit is `context_ahead_max` unknown writes of one actor. No read can have returned such a context.

        Args:
            old: the known record of the key; None without one.
            context: by actor, the number of the last write that the client has read.

        Raises:
            InvalidRequest: definite; the context claims too much.
        """
        known = {} if old is None else versions.context_of(old)
        ahead_max = self._host.limits.context_ahead_max
        if any(count - known.get(actor, 0) > ahead_max for actor, count in context.items()):
            raise InvalidRequest(
                f"the context claims more than {ahead_max} writes that no replica knows of: read the key again"
            )

    def _fits(self, record: Record) -> bool:
        """Return whether a record's concurrent versions are within the limits.

        A single version always is.
        """
        limits = self._host.limits
        siblings = 0
        for entry in record.clock:
            siblings += len(entry.versions)
        return siblings <= 1 or (siblings <= limits.siblings_max and bytes_of_values(record) <= limits.record_bytes_max)


def pack(records: Iterable[Record], limit: int, bytes_max: int) -> tuple[tuple[Record, ...], bool]:
    """Return the first records as one page, and whether any are left.

    A page has at most `limit` records of together `bytes_max` bytes. A record that alone exceeds `bytes_max` is a page
    by itself.
    """
    found: list[Record] = []
    size = 0
    for record in records:
        size += wire_bytes(record)
        if found and (len(found) >= limit or size > bytes_max):
            return tuple(found), True
        found.append(record)
    return tuple(found), False


def cut_as(record: Record, what: ScanOf, bytes_max: int) -> Record:
    """Return the part of a record that a scan shows, cut to fit a reply.

    A scan of whole records leaves out a quarantine that has no room beside the values.

    Args:
        record: the record.
        what: "live": without its quarantine; "whole": with it; "quarantine": only the quarantine.
        bytes_max: the largest size of the part, in bytes. The versions of one actor are shown even if they exceed it.
    """
    if what == "live" or (what == "whole" and not record.quarantine):
        return versions.cut(record, bytes_max)
    hidden = quarantine.cut(record, bytes_max)
    if what == "quarantine":
        return hidden
    shown = versions.cut(record, bytes_max)
    has_room = not shown.clock or wire_bytes(shown) + wire_bytes(hidden) <= bytes_max
    return Record(record.key, shown.clock, shown.replaced, hidden.quarantine if has_room else ())


def is_cut(record: Record, shown: Record, what: ScanOf) -> bool:
    """Return whether a record has versions that a scan asked for and does not show.

    Args:
        record: the record.
        shown: the result of `cut_as` for `what`.
        what: what the scan asked for, as in `cut_as`.
    """
    lacks_values = what != "quarantine" and _versions(shown.clock) < _versions(record.clock)
    lacks_hidden = what != "live" and _versions(shown.quarantine) < _versions(record.quarantine)
    return lacks_values or lacks_hidden


def _versions(entries: Iterable[ActorClock]) -> int:
    return sum(len(entry.versions) for entry in entries)

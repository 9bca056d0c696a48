"""The replica side: answers about this node's copies, and storage of copies.

A node reports a record to another node only when the record is durable, because that node may drop its own copy
afterwards. The requests come from `replication/sync.py` and from coordinators.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from chord.errors import Leaving, Overloaded
from chord.ids import Arc
from chord.net.calls import Answer
from chord.net.handlers import handles
from chord.replication.effects import when_durable
from chord.ring.context import NodeContext
from chord.ring.vnode import RETRY_MS
from chord.store import versions
from chord.store.merkle import SLICE_LEVEL
from chord.store.storage import Batch
from chord.wire.batch import Room
from chord.wire.messages import (
    DIGEST_BYTES,
    HEADS_MAX,
    Done,
    GetCopies,
    GetCopiesReply,
    GetHeads,
    GetHeadsReply,
    GetSums,
    GetSumsReply,
    Head,
    ReadCopies,
    ReadCopiesReply,
    ReadCopy,
    ReadCopyReply,
    Record,
    Reply,
    StoreCopies,
    StoreCovering,
    StoreCoveringReply,
    wire_bytes,
)

MergeRecords: TypeAlias = Callable[[Sequence[Record], Sequence[bytes]], Awaitable[int]]
"""Merges records by version, durably, and returns how many were new or changed (`Records.merge`).

The second argument has, for each record, the digest of the reap-log entries that the sender's store had applied.
"""

Stage: TypeAlias = Callable[[Sequence[Record], Sequence[bytes]], tuple[int, bool]]
"""Merges records by version; returns how many changed, and whether all visible changes are durable (`Records.stage`).

The second argument has, for each record, the digest of the reap-log entries that the sender's store had applied.
"""


StageIfCovering: TypeAlias = Callable[[Record | None, Record, bytes], tuple[bool, bool]]
"""Stores a record if it covers this node's copy; see `Records.stage_if_covering`."""


async def read_copies(host: NodeContext, keys: Sequence[bytes], *, must_fit: bool = False) -> GetCopiesReply:
    """Return the records of the first keys, as many as fit a page, once durable.

    The reply says for how many keys it answers. A key without a record takes no room. The first record has room even if
    it is larger than a page.

    Args:
        host: the node context.
        keys: the keys of the records.
        must_fit: whether a record that fits no frame is replaced by one of its parts, chosen at random.

    Raises:
        ChordError: a record is not durable yet; see `Storage.commit`.

    Concurrency: checkpoints if a record is not durable yet.
    """
    records: list[Record] = []
    size = asked = 0
    for key in keys[: host.page_records]:
        record = host.storage.get(key)
        if record is not None:
            size += wire_bytes(record)
            if records and size > host.limits.page_bytes:
                break
            is_part = must_fit and size > host.limits.record_bytes_max
            records.append(host.rng.choice(parts_of(host, record)) if is_part else record)
        asked += 1
    seen = host.reap_log.seen_of_each(records)  # of the same moment as the records
    if not all(host.storage.is_durable(record.key) for record in records):
        await host.storage.commit(Batch())
    return GetCopiesReply(tuple(records), asked, seen)


def parts_of(host: NodeContext, record: Record) -> list[Record]:
    """Return a record in parts that fit one frame each, nearly always one part."""
    return versions.split(record, host.limits.record_bytes_max)


def in_frames(
    host: NodeContext, page: tuple[Record, ...], seen: tuple[bytes, ...]
) -> list[tuple[tuple[Record, ...], tuple[bytes, ...]]]:
    """Divide a page of records, and their digests, into frames.

    Only a page of one record may need several frames, each with a part of the record.

    Args:
        host: the node context.
        page: the records.
        seen: for each record, the digest of the reap-log entries applied when the record was read. Empty if all are
            empty.
    """
    return [(page, seen)] if len(page) != 1 else [((part,), seen) for part in parts_of(host, page[0])]


class Replica:
    """Answers requests for this node's copies, and stores copies.

    Args:
        host: the node context.
        stage: merges received records.
        stage_if_covering: stores a received record that covers this node's copy.
        compared: called with an arc when another node compares the arc with this node, by slices or by records. It is
            also called with the point of each received record, as an arc.
        hints: returns the number of hints that this node keeps for other nodes.
    """

    def __init__(
        self,
        host: NodeContext,
        stage: Stage,
        stage_if_covering: StageIfCovering,
        compared: Callable[[Arc], None] = lambda arc: None,
        hints: Callable[[], int] = lambda: 0,
    ) -> None:
        self._host = host
        self._stage = stage
        self._stage_if_covering = stage_if_covering
        self._compared = compared
        self._hints = hints

    def on_get_sums(self, request: GetSums) -> Answer:
        """Return the digest sum of an arc's records in each requested part of one level of the Merkle tree.

        The reply also says whether a vnode of this node is in sync in the arc, or was before an absence. For level 0,
        it also has one digest of the reap logs of the arc's slices.
        """
        storage, arc = self._host.storage, Arc(request.arc_start, request.arc_end)
        if request.level == SLICE_LEVEL:  # handoff begins at this level, anti-entropy at the top
            self._compared(arc)
        sums = tuple(storage.digests.sum(arc, request.level, part, storage.heads) for part in request.parts)
        is_in_sync = any(vnode.preference_list.is_arc_in_sync(arc) for vnode in self._host.vnodes.values())
        seen = self._host.reap_log.digest_in(arc) if request.level == 0 else b""
        was_in_sync = any(vnode.preference_list.was_arc_in_sync(arc) for vnode in self._host.vnodes.values())
        return self._when_durable(GetSumsReply(sums, is_in_sync, seen, was_in_sync))

    @handles(GetHeads)
    def on_get_heads(self, request: GetHeads) -> Answer:
        """Return the next page of the keys in an arc, clockwise, each with its digest.

        The page begins after `after_key`, and has at least one key unless none is left.
        """
        storage = self._host.storage
        self._compared(Arc(request.arc_start, request.arc_end))
        found: list[Head] = []
        size, is_cut = 0, False
        for key, digest in storage.heads(Arc(request.arc_start, request.arc_end), after=request.after_key):
            size += len(key) + DIGEST_BYTES
            is_cut = len(found) == HEADS_MAX or (bool(found) and size > self._host.limits.page_bytes)
            if is_cut:
                break
            found.append(Head(key, digest))
        return self._when_durable(GetHeadsReply(tuple(found), is_cut))

    @handles(GetCopies)
    async def on_get_copies(self, request: GetCopies) -> GetCopiesReply:
        """Return the first of the requested records, as many as fit a page.

        A record that fits no frame is replaced by one of its parts, chosen at random.
        """
        return await read_copies(self._host, request.keys, must_fit=True)

    @handles(ReadCopies)
    def on_read_copies(self, request: ReadCopies) -> ReadCopiesReply:
        """Return this node's copies of several keys.

        A copy that has no room in the answer is None. The first copy always has room.
        """
        room = Room()
        copies = [self.on_read_copy(ask) for ask in request.asks]
        return ReadCopiesReply(
            tuple(copy if copy.record is None or room.takes(wire_bytes(copy.record)) else None for copy in copies)
        )

    @handles(ReadCopy)
    def on_read_copy(self, request: ReadCopy) -> ReadCopyReply:
        """Return this node's durable copy of a key.

        If the caller holds the same copy, the answer says so and leaves the record out.
        """
        host, key = self._host, request.key
        digest = host.storage.durable_digest(key)  # before `is_damaged`: only a read finds the damage
        is_damaged = host.storage.is_damaged(key)
        is_in_sync = not is_damaged and any(vnode.is_in_sync(host.circle.hash(key)) for vnode in host.vnodes.values())
        seen = host.reap_log.durably_seen_of(key)
        if digest and digest == request.digest:
            return ReadCopyReply(None, True, is_in_sync, seen, is_damaged)
        return ReadCopyReply(host.storage.durable(key), False, is_in_sync, seen, is_damaged)

    @handles(StoreCopies)
    def on_store_copies(self, request: StoreCopies) -> Answer:
        """Merge records, and answer when they are durable.

        Raises:
            Leaving: definite; this node has handed everything over.
            Overloaded: definite; the records are hints, and this node already keeps `hints_max`.
            Behind, InvalidRequest, WritesRefused, Overloaded: see `Records.stage`.
        """
        if self._host.is_leaving and self._host.is_ending:  # not before the handover ends: another leaver may need it
            raise Leaving("this node is leaving", after_ms=RETRY_MS)
        if request.as_hints and self._hints() >= self._host.limits.hints_max:
            raise Overloaded("this node keeps the largest allowed number of hints", after_ms=RETRY_MS)
        _, is_durable = self._stage(request.records, request.seen)
        if request.as_hints:
            self._host.news()  # hints must go home
        for record in request.records:
            point = self._host.circle.hash(record.key)
            self._compared(Arc(self._host.circle.point(point - 1), point))
        return Done() if is_durable else when_durable(self._host.storage, Done())

    @handles(StoreCovering)
    def on_store_covering(self, request: StoreCovering) -> Answer:
        """Store a record only if it covers this node's copy, and if this node is in sync; answer when it is durable.

        The coordinator counts this node's copy as the other half of a read quorum. So the answer has the copy if the
        record does not cover it.

        Raises:
            Leaving: definite; this node has handed everything over.
            Behind, InvalidRequest, WritesRefused, Overloaded: see `Records.stage`.
        """
        host, record = self._host, request.record
        if host.is_leaving and host.is_ending:
            raise Leaving("this node is leaving", after_ms=RETRY_MS)
        point = host.circle.hash(record.key)
        for vnode in host.vnodes.values():
            if vnode.is_in_sync(point):
                break
        else:
            return StoreCoveringReply(is_settled=False)
        mine = host.storage.get(record.key)  # before `is_damaged`: only a read finds the damage
        if mine is None and host.storage.is_damaged(record.key):
            return StoreCoveringReply(is_settled=False)
        is_stored, is_durable = self._stage_if_covering(mine, record, request.seen)
        if is_stored:
            self._compared(Arc(host.circle.point(point - 1), point))
            reply = StoreCoveringReply(is_stored=True)
        else:
            is_whole = mine is not None and len(parts_of(host, mine)) == 1
            reply = StoreCoveringReply(is_settled=is_whole, record=mine if is_whole else None)
        return reply if is_durable else when_durable(host.storage, reply)

    def _when_durable(self, reply: Reply) -> Answer:
        """Delay a reply until all visible changes of the store are durable.

        Otherwise a crash could undo the records that the reply reports.
        """
        return reply if self._host.storage.stage(Batch()) else when_durable(self._host.storage, reply)

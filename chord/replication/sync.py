"""Replica sync: compare an arc with a partner top-down, and send the differences.

Both nodes keep a Merkle tree of sums (`store/merkle.py`). They compare one sum for the whole arc. If it differs, they
compare the sums of the groups, and then the sums of the slices in the groups that differ. In a slice that differs, they
compare key and digest of each record. They exchange the records that differ, and both nodes merge them by version. An
arc with few records is listed at once.

If nothing differs, a sync is one call. An interrupted sync loses nothing, and the next one finds fewer differences.

Source: DeCandia et al. 2007 (Dynamo), section 4.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
import trio

from chord.errors import Behind, Busy, DeadlineExceeded, InvalidRequest, MalformedMessage
from chord.ids import Arc
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.replica import MergeRecords, in_frames, read_copies
from chord.ring.context import NodeContext
from chord.store.merkle import SLICE_LEVEL, Piece, digest_of, joined
from chord.wire.messages import (
    PAGE_RECORDS_MAX,
    SUMS_MAX,
    Contact,
    Done,
    GetCopies,
    GetCopiesReply,
    GetHeads,
    GetHeadsReply,
    GetSums,
    GetSumsReply,
    Record,
    Reply,
    Request,
    StoreCopies,
    wire_bytes,
)

PASSES_MAX: Final = 3
LOG_SYNCS_MAX: Final = 3  # syncs of the reap logs for one page: other nodes may go on reaping
LISTED_MAX: Final = PAGE_RECORDS_MAX  # an arc with at most this many records is listed without further sums
FEW_MAX: Final = 4  # at most this many records of a slice are sent without asking for the partner's list
BURST_S: Final = 0.25

R = TypeVar("R", bound=Reply)


class TokenBucket:
    """Limits the average rate of work, in units per second.

    A burst may take the work of `BURST_S` seconds at once. A larger amount is a debt, and the caller waits until it is
    paid.

    Args:
        rate_s: the rate, in units per second.
    """

    __slots__ = ("_at", "_rate_s", "_tokens")

    def __init__(self, rate_s: float) -> None:
        self._rate_s = rate_s
        self._tokens = 0.0
        self._at = -math.inf

    def take(self, amount: float, now: float) -> float:
        """Count an amount of work, in units, and return how long to wait before more work, in seconds.

        `now` is the current time, in seconds on the same clock in all calls.
        """
        full = self._rate_s * BURST_S
        self._tokens = min(full, self._tokens + (now - self._at) * self._rate_s) - amount
        self._at = now
        return max(0.0, -self._tokens / self._rate_s)


class SyncOutcome(msgspec.Struct):
    """The progress of a sync, and its result.

    Attributes:
        share: share of the arc that has been compared, 0.0 to 1.0.
        pulled: number of fetched records that were new here or changed the record here.
        pushed: number of records that the partner acknowledged.
        bytes: size of the records moved in both directions.
        is_equal: whether both nodes hold the same records of the arc. If clients write to the arc all the time, this
            may stay False. Even then, after a sync in both directions, each node has every record that one of them held
            at the beginning.
        is_in_sync: whether the partner was in sync in the arc when the sync began, as it said.
        was_in_sync: whether the partner was in sync then, or had been so before it was away.
    """

    share: float = 0.0
    pulled: int = 0
    pushed: int = 0
    bytes: int = 0
    is_equal: bool = False
    is_in_sync: bool = False
    was_in_sync: bool = False


SyncProgress: TypeAlias = Callable[[SyncOutcome], None]


class ReplicaSync:
    """Syncs arcs with partners, at a limited rate for the whole node.

    Args:
        host: the node context.
        merge: merges fetched records.
        log_sync: syncs the reap logs first, if they differ.
    """

    __slots__ = ("bucket", "host", "log_sync", "merge")

    def __init__(self, host: NodeContext, merge: MergeRecords, log_sync: ReapLogSync) -> None:
        self.host = host
        self.merge = merge
        self.log_sync = log_sync
        self.bucket = TokenBucket(host.limits.repair_bytes_s)

    async def with_partner(
        self, partner: Contact, arc: Arc, *, push: bool = True, pull: bool = True, progress: SyncProgress | None = None
    ) -> SyncOutcome:
        """Sync an arc with a partner, until both hold the same records.

        A write makes the two nodes differ for a moment. So the comparison is repeated, up to `PASSES_MAX` times.

        Args:
            partner: the vnode to sync with.
            arc: the arc.
            push: whether to send the records that the partner lacks.
            pull: whether to fetch the records that this node lacks. A sync in one direction makes one pass.
            progress: called with the outcome so far, after every page; None: not called.

        Raises:
            ChordError: the partner is unreachable, or refuses. The records merged until then are durable on both sides.
                If the partner cannot merge a record, all other records are in sync.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        outcome = SyncOutcome()
        walk = _Walk(self, partner, arc, outcome, push, pull, progress)
        for number in range(PASSES_MAX if push and pull else 1):
            outcome.is_equal = await walk.is_equal()
            if number == 0:
                outcome.is_in_sync, outcome.was_in_sync = walk.is_in_sync, walk.was_in_sync
            if outcome.is_equal:
                break
            moved = outcome.pulled + outcome.pushed
            await walk.descend(arc, 0)
            if push and pull and outcome.pulled + outcome.pushed == moved:  # the difference has gone meanwhile
                outcome.is_equal = True
                break
        else:
            outcome.is_equal = await walk.is_equal()
        if walk.refusal is not None:
            raise walk.refusal
        outcome.share = 1.0
        return outcome

    async def pull(self, partner: Contact, arc: Arc, *, only_in_sync: bool = False) -> bool:
        """Fetch a partner's records of an arc.

        Args:
            partner: the vnode to fetch from.
            arc: the arc.
            only_in_sync: whether to fetch nothing if the partner is not in sync.

        Returns:
            Whether the partner is in sync: whether it holds every acknowledged write of the arc.

        Raises:
            ChordError: the partner is unreachable, or refuses. The records merged until then are durable here.
        """
        walk = _Walk(self, partner, arc, SyncOutcome(), push=False, pull=True)
        if not await walk.is_equal() and (walk.is_in_sync or not only_in_sync):
            await walk.descend(arc, 0)
        return walk.is_in_sync

    async def is_equal(self, partner: Contact, arc: Arc) -> bool:
        """Return whether this node and a partner now hold the same records of an arc; sync differing reap logs first.

        No record is moved.

        Raises:
            ChordError: the partner is unreachable, or refuses.
        """
        return await _Walk(self, partner, arc, SyncOutcome(), push=False, pull=False).is_equal()

    async def prove(self, partner: Contact, arc: Arc) -> dict[bytes, bytes]:
        """Send a partner the records that it lacks; return all records that it now holds.

        The returned digests are proof: the partner holds each record in the state that has this digest. If a record
        changes meanwhile, its old digest is returned, or none.

        Args:
            partner: the vnode to sync with.
            arc: a small arc (`Digests.stretches`).

        Returns:
            The digest of each record, by key.

        Raises:
            ChordError: the partner is unreachable, or refuses.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        walk = _Walk(self, partner, arc, SyncOutcome(), push=True, pull=False)
        walk.proven = {}
        await walk.prove()
        return walk.proven


class _Walk:
    """One sync of an arc with one partner, from the root of the Merkle tree down."""

    def __init__(
        self,
        replica_sync: ReplicaSync,
        partner: Contact,
        arc: Arc,
        outcome: SyncOutcome,
        push: bool,
        pull: bool,
        progress: SyncProgress | None = None,
    ) -> None:
        self._replica_sync = replica_sync
        self._host = replica_sync.host
        self._storage = replica_sync.host.storage
        self._partner = partner
        self._arc = arc
        self._outcome = outcome
        self._push = push
        self._pull = pull
        self._progress = progress
        self.is_in_sync = self.was_in_sync = False  # from the latest reply of the partner
        self._seen = b""  # likewise: the digest of its reap logs
        self.refusal: InvalidRequest | None = None  # of a record that the partner cannot merge; it has the others
        self.proven: dict[bytes, bytes] | None = None  # None if not wanted: it may grow to the whole arc

    # -- from the top down ----------------------------------------------------------------------

    async def is_equal(self) -> bool:
        """Sync differing reap logs; return whether both nodes have the same digest sum.

        The sum is that of the records in the arc. After a sync of the logs, the sums are compared again.
        """
        found = not await self._differing(self._arc, 0, [Piece(0, self._arc, 0)])
        if self._seen != self._host.reap_log.digest_in(self._arc):
            await self._replica_sync.log_sync.sync(self._partner, self._arc)
            found = not await self._differing(self._arc, 0, [Piece(0, self._arc, 0)])
        return found

    async def descend(self, arc: Arc, level: int) -> None:
        """Find the differing parts of an arc, and sync them.

        Args:
            arc: the arc.
            level: the level of the tree on which the arc was compared.
        """
        digests, heads = self._storage.digests, self._storage.heads
        if level == SLICE_LEVEL or digests.count(arc, heads) <= LISTED_MAX:
            await self._list(arc)
            return
        pieces = list(digests.pieces(arc, level + 1, heads))
        differing = await self._differing(arc, level + 1, pieces)
        for piece, _ in joined(pieces, LISTED_MAX, lambda piece: piece.part in differing):
            await self.descend(piece, level + 1)

    async def prove(self) -> None:
        """Find out which records of the arc the partner holds, and send it the others.

        The held records go to `proven`. Only slices (leaves of the Merkle tree) with records here are compared. If a
        differing slice has few records here, they are sent at once.
        """
        digests, heads = self._storage.digests, self._storage.heads
        pieces = list(digests.held(self._arc, heads))
        differing = await self._differing(self._arc, SLICE_LEVEL, pieces)
        few: list[bytes] = []
        for piece in pieces:
            if piece.part not in differing:
                continue
            if piece.records <= FEW_MAX:
                few += [key for key, _ in heads(piece.arc)]
            else:
                await self._list(piece.arc)
        await self._send(few)

    async def _differing(self, arc: Arc, level: int, pieces: list[Piece]) -> set[int]:
        """Compare digest sums with the partner; return the numbers of differing parts.

        The records of equal parts are noted in `proven`, as held by the partner.

        Args:
            arc: the arc.
            level: the level of the Merkle tree; it cuts the circle into 1, 64 or 4,096 parts.
            pieces: the intersections of the arc with parts of this level.
        """
        digests, heads = self._storage.digests, self._storage.heads
        by_part: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_part.setdefault(piece.part, []).append(piece)
        parts = tuple(by_part)
        found: set[int] = set()
        for begin in range(0, len(parts), SUMS_MAX):
            asked = parts[begin : begin + SUMS_MAX]
            reply = await self._call(GetSums(arc.start, arc.end, level, asked), GetSumsReply)
            if level == 0:
                self.is_in_sync, self.was_in_sync, self._seen = reply.is_in_sync, reply.was_in_sync, reply.seen
            if len(reply.sums) != len(asked):
                raise MalformedMessage(f"{self._partner.address} answered {len(reply.sums)} of {len(asked)} sums")
            for part, theirs in zip(asked, reply.sums, strict=True):
                if digests.sum(arc, level, part, heads) != theirs:
                    found.add(part)
                elif self.proven is not None:
                    for piece in by_part[part]:
                        self.proven.update(heads(piece.arc))
        return found

    # -- record by record -----------------------------------------------------------------------

    async def _list(self, arc: Arc) -> None:
        """Compare an arc record by record, with one page of the partner's list at a time."""
        after: bytes | None = None
        is_cut = True
        while is_cut:
            reply = await self._call(GetHeads(arc.start, arc.end, after), GetHeadsReply)
            self._check(reply, arc, after)
            is_cut = reply.is_cut
            until = reply.heads[-1].key if is_cut else None
            theirs = {head.key: head.digest for head in reply.heads}
            await self._sync_heads(theirs, dict(self._ours(arc, after, until)))
            after = until
            self._report(arc.end if until is None else self._host.circle.hash(until))

    def _check(self, reply: GetHeadsReply, arc: Arc, after: bytes | None) -> None:
        """Check a page of the partner's list of an arc; `after` is the last key before it.

        For the first page, `after` is None.

        Raises:
            MalformedMessage: the page has keys outside the arc or out of order, or it is empty and not the last. Such
                pages might never end.
        """
        last = None if after is None else self._place(arc, after)
        for head in reply.heads:
            place = self._place(arc, head.key)
            if self._host.circle.hash(head.key) not in arc or (last is not None and place <= last):
                raise MalformedMessage(f"{self._partner.address} listed records out of order or outside the arc")
            last = place
        if reply.is_cut and not reply.heads:
            raise MalformedMessage(f"{self._partner.address} sent an empty page that is not the last")

    def _ours(self, arc: Arc, after: bytes | None, until: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last = None if until is None else self._place(arc, until)
        for key, digest in self._storage.heads(arc, after=after):
            if last is not None and self._place(arc, key) > last:
                return
            yield key, digest

    def _place(self, arc: Arc, key: bytes) -> tuple[int, bytes]:
        """Return a sort key that orders keys clockwise from the start of an arc."""
        circle = self._host.circle
        return circle.distance(arc.start + 1, circle.hash(key)), key

    async def _sync_heads(self, theirs: dict[bytes, bytes], ours: dict[bytes, bytes]) -> None:
        differing = [key for key, digest in ours.items() if theirs.get(key) != digest]
        if self.proven is not None:
            self.proven.update((key, digest) for key, digest in ours.items() if theirs.get(key) == digest)
        fetched: dict[bytes, bytes] = {}
        if self._pull:
            lacking = [key for key in theirs if key not in ours]
            fetched = await self._fetch([*(key for key in differing if key in theirs), *lacking])
        if self._push:  # after the merge, so that the partner gets the merged records, once
            await self._send([key for key in differing if self._digest(key) != fetched.get(key)])

    def _digest(self, key: bytes) -> bytes | None:
        record = self._storage.get(key)
        return None if record is None else digest_of(record)

    async def _fetch(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """Fetch records and merge them; return each digest at the partner, by key."""
        fetched: dict[bytes, bytes] = {}
        log_syncs = 0
        while keys:
            since = trio.current_time()
            page = keys[: self._host.page_records]
            reply = await self._call(GetCopies(tuple(page)), GetCopiesReply)
            if not 1 <= reply.asked <= len(page) or not {r.key for r in reply.records} <= set(page):
                raise MalformedMessage(f"{self._partner.address} sent records that were not requested")
            try:
                changed = await self._replica_sync.merge(reply.records, reply.seen)
            except Behind as error:
                log_syncs = await self._sync_logs(log_syncs, error)
                continue
            keys = keys[reply.asked :]
            fetched.update((record.key, digest_of(record)) for record in reply.records)
            self._outcome.pulled += changed
            self._host.counters["copies_pulled"] += changed
            await self._pace(reply.records, since)
        return fetched

    async def _send(self, keys: list[bytes]) -> None:
        """Send records to the partner, page by page.

        A sent record is noted in `proven`, as held by the partner, even if it changes here meanwhile.
        """
        log_syncs = 0
        while keys:
            since = trio.current_time()
            page = await read_copies(self._host, keys)
            try:
                sent = await self._send_page(page) if page.records else ()
            except Behind as error:
                log_syncs = await self._sync_logs(log_syncs, error)
                continue
            keys = keys[page.asked :]
            if not sent:  # the records were dropped meanwhile, or refused
                continue
            if self.proven is not None:
                self.proven.update((record.key, digest_of(record)) for record in sent)
            self._outcome.pushed += len(sent)
            self._host.counters["copies_pushed"] += len(sent)
            await self._pace(sent, since)

    async def _send_page(self, page: GetCopiesReply) -> Sequence[Record]:
        """Send a page; if the partner refuses it, send one record after the other.

        The partner merges no record of a frame that it refuses.

        Returns:
            The records that the partner has now.
        """
        try:
            for records, seen in in_frames(self._host, page.records, page.seen):
                await self._call(StoreCopies(records, seen=seen), Done)
        except InvalidRequest as error:
            self.refusal = error
            if len(page.records) == 1:
                return ()
        else:
            return page.records
        sent: list[Record] = []
        for place, record in enumerate(page.records):
            try:
                await self._call(StoreCopies((record,), seen=page.seen[place : place + 1]), Done)
            except InvalidRequest as error:
                self.refusal = error
            else:
                sent.append(record)
        return sent

    # -- inside ---------------------------------------------------------------------------------

    async def _sync_logs(self, log_syncs: int, error: Behind) -> int:
        """Sync the reap logs, after one side refused records because the logs differ.

        A node has reaped records since the comparison.

        Args:
            log_syncs: how many times the logs were synced for this page.
            error: the partner's or this store's refusal.

        Returns:
            `log_syncs`, plus one.

        Raises:
            Busy: definite; the logs were already synced `LOG_SYNCS_MAX` times.
        """
        if log_syncs == LOG_SYNCS_MAX:
            raise Busy(f"{self._partner.address} and this node keep reaping records: {error.message}")
        await self._replica_sync.log_sync.sync(self._partner, self._arc)
        return log_syncs + 1

    async def _call(self, request: Request, expect: type[R]) -> R:
        """Call the partner, and wait at most `timeout_cap_s` seconds for its reply.

        Without a deadline, a partner that hangs would delay the sync with all others.
        """
        timeout_s = self._host.timing.timeout_cap_s
        try:
            with trio.fail_after(timeout_s):
                return await self._host.peers.call(self._partner, request, expect)
        except trio.TooSlowError:
            raise DeadlineExceeded(f"no answer from {self._partner.address} within {timeout_s:g} s") from None

    async def _pace(self, records: Sequence[Record], since: float) -> None:
        size = sum(wire_bytes(record) for record in records)
        self._outcome.bytes += size
        self._report()
        wait_s = self._replica_sync.bucket.take(size, trio.current_time())
        await self._host.give_way(since)
        if wait_s > 0:
            await trio.sleep(wait_s)

    def _report(self, until: int | None = None) -> None:
        """Report the progress of the sync to the caller.

        Args:
            until: the arc has been compared up to this point; None: no further than before.
        """
        if until is not None:
            circle, start = self._host.circle, self._arc.start
            length = circle.distance(start, self._arc.end) or circle.size
            walked = circle.distance(start, until) or length
            self._outcome.share = max(self._outcome.share, circle.fraction(walked) / circle.fraction(length))
        if self._progress is not None:
            self._progress(self._outcome)

"""Bring two replicas level: compare an arc with one partner from the top down, then send only what differs.

One sum for the arc; where it differs, one for each of its groups; where those differ, their slices; where those
differ, key and digest of each record; and then the records, merged by version on both sides. Few records are listed
at once. Equal and idle, that is one call. Broken off anywhere, nothing is lost, and the next time finds less to do.

Source: Dynamo (SOSP 2007), section 4.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, TypeVar

import msgspec
import trio

from chord.errors import Behind, Busy, DeadlineExceeded, InvalidRequest, MalformedMessage
from chord.ids import Arc
from chord.replication.catch_up import CatchUp
from chord.replication.replica import Merge, in_frames, read_copies
from chord.ring.context import Host
from chord.store.merkle import SLICE_LEVEL, Piece, digest_of, joined
from chord.wire.messages import (
    PAGE_RECORDS_MAX,
    SUMS_MAX,
    Contact,
    Copies,
    Done,
    GetCopies,
    GetHeads,
    GetSums,
    Heads,
    Record,
    Reply,
    Request,
    StoreCopies,
    Sums,
    wire_bytes,
)

PASSES_MAX: Final = 3
LEVELLED_MAX: Final = 3  # so often are the reap logs levelled for one page; others may go on reaping
LISTED_MAX: Final = PAGE_RECORDS_MAX  # so many records are listed without narrowing down where they differ
FEW_MAX: Final = 4  # so many of a slice are sent unasked, rather than asking what the partner holds there
BURST_S: Final = 0.25

R = TypeVar("R", bound=Reply)


class TokenBucket:
    """Paces work: so much a second on average, a quarter of that at once. What is taken beyond it is a debt."""

    def __init__(self, rate_s: float) -> None:
        self._rate_s = rate_s
        self._tokens = 0.0
        self._at = -math.inf

    def take(self, amount: float, now: float) -> float:
        """Take an amount, and return how long to wait until it is paid for."""
        full = self._rate_s * BURST_S
        self._tokens = min(full, self._tokens + (now - self._at) * self._rate_s) - amount
        self._at = now
        return max(0.0, -self._tokens / self._rate_s)


class Outcome(msgspec.Struct):
    """How far an exchange is, and how it ended.

    Attributes:
        share: how much of the arc has been compared, 0.0 to 1.0.
        pulled: records that were new here, or newer.
        pushed: records the partner acknowledged.
        bytes: of the records moved, both ways.
        is_equal: both hold the same of the arc. Not so where others write to it all the time; but every record that
            one of them held when the exchange began is at both when it has returned, if it was of both ways.
        is_settled: the partner said, when it began, that it had been brought level before.
        was_settled: it said that it is settled, or was before it was away.
    """

    share: float = 0.0
    pulled: int = 0
    pushed: int = 0
    bytes: int = 0
    is_equal: bool = False
    is_settled: bool = False
    was_settled: bool = False


Progress: TypeAlias = Callable[[Outcome], None]


class Exchange:
    """Compares arcs with partners and brings both sides level, paced by one bucket for the whole node.

    Args:
        catch_up: levels the reap logs first, if they differ.
    """

    def __init__(self, host: Host, merge: Merge, catch_up: CatchUp) -> None:
        self.host = host
        self.merge = merge
        self.catch_up = catch_up
        self.bucket = TokenBucket(host.limits.repair_bytes_s)

    async def with_partner(
        self, partner: Contact, arc: Arc, *, push: bool = True, pull: bool = True, progress: Progress | None = None
    ) -> Outcome:
        """Compare an arc with a partner until both hold the same of it.

        What is written meanwhile makes a difference for a moment, so it is compared again, a few times at most.

        Args:
            push, pull: send what the partner lacks; fetch what is lacking here. One way only, it is compared once.
            progress: told of the outcome so far, after every page.

        Raises:
            ChordError: the partner is silent, or refuses. What was merged until then is durable on both sides. If it
                cannot merge a record, all others are level.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        outcome = Outcome()
        walk = _Walk(self, partner, arc, outcome, push, pull, progress)
        for number in range(PASSES_MAX if push and pull else 1):
            outcome.is_equal = await walk.is_equal()
            if number == 0:
                outcome.is_settled, outcome.was_settled = walk.is_settled, walk.was_settled
            if outcome.is_equal:
                break
            moved = outcome.pulled + outcome.pushed
            await walk.descend(arc, 0)
            if push and pull and outcome.pulled + outcome.pushed == moved:  # what differed was on its way
                outcome.is_equal = True
                break
        else:
            outcome.is_equal = await walk.is_equal()
        if walk.refusal is not None:
            raise walk.refusal
        outcome.share = 1.0
        return outcome

    async def pull(self, partner: Contact, arc: Arc, *, only_settled: bool = False) -> bool:
        """Fetch a partner's records of an arc; return whether the partner is settled in the arc.

        Args:
            only_settled: fetch nothing if the partner is not settled.

        Raises what `with_partner` does.
        """
        walk = _Walk(self, partner, arc, Outcome(), push=False, pull=True)
        if not await walk.is_equal() and (walk.is_settled or not only_settled):
            await walk.descend(arc, 0)
        return walk.is_settled

    async def is_equal(self, partner: Contact, arc: Arc) -> bool:
        """Return whether a partner holds the same of an arc as is held here, now. Raises what `with_partner` does."""
        return await _Walk(self, partner, arc, Outcome(), push=False, pull=False).is_equal()

    async def prove(self, partner: Contact, arc: Arc) -> dict[bytes, bytes]:
        """Bring a partner level with what is held here of an arc, and return key and digest of what it holds for sure.

        A record may be dropped here, for all this partner cares, while its digest is still the returned one. One that
        changes meanwhile is returned as it was, or not at all. The arc must be small (`Digests.stretches`).

        Raises:
            ChordError: as `with_partner`.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        walk = _Walk(self, partner, arc, Outcome(), push=True, pull=False)
        walk.proven = {}
        await walk.prove()
        return walk.proven


class _Walk:
    """One exchange of an arc with one partner."""

    def __init__(
        self,
        exchange: Exchange,
        partner: Contact,
        arc: Arc,
        outcome: Outcome,
        push: bool,
        pull: bool,
        progress: Progress | None = None,
    ) -> None:
        self._exchange = exchange
        self._host = exchange.host
        self._storage = exchange.host.storage
        self._partner = partner
        self._arc = arc
        self._outcome = outcome
        self._push = push
        self._pull = pull
        self._progress = progress
        self.is_settled = self.was_settled = False  # as the partner said last
        self._seen = b""  # likewise
        self.refusal: InvalidRequest | None = None  # of a record that the partner cannot merge; it has the others
        self.proven: dict[bytes, bytes] | None = None  # kept only where asked for: it may be all there is

    # -- from the top down ----------------------------------------------------------------------

    async def is_equal(self) -> bool:
        """Compare the sums of the whole arc, once the reap logs of its slices are level."""
        found = not await self._differing(self._arc, 0, [Piece(0, self._arc, 0)])
        if self._seen != self._host.reap_log.digest_in(self._arc):
            await self._exchange.catch_up.level(self._partner, self._arc)
            found = not await self._differing(self._arc, 0, [Piece(0, self._arc, 0)])
        return found

    async def descend(self, arc: Arc, level: int) -> None:
        """Narrow down where an arc differs and bring that level. Level: of the parts it has been compared by."""
        digests, heads = self._storage.digests, self._storage.heads
        if level == SLICE_LEVEL or digests.count(arc, heads) <= LISTED_MAX:
            await self._list(arc)
            return
        pieces = list(digests.pieces(arc, level + 1, heads))
        differing = await self._differing(arc, level + 1, pieces)
        for piece, _ in joined(pieces, LISTED_MAX, lambda piece: piece.part in differing):
            await self.descend(piece, level + 1)

    async def prove(self) -> None:
        """Slices in which nothing is held here do not matter; where only little is, it is sent rather than compared."""
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
        """Return the parts in which pieces of the arc differ now. Of the others, all records are proven."""
        digests, heads = self._storage.digests, self._storage.heads
        by_part: dict[int, list[Piece]] = {}
        for piece in pieces:
            by_part.setdefault(piece.part, []).append(piece)
        parts = tuple(by_part)
        found: set[int] = set()
        for begin in range(0, len(parts), SUMS_MAX):
            asked = parts[begin : begin + SUMS_MAX]
            reply = await self._call(GetSums(arc.start, arc.end, level, asked), Sums)
            if level == 0:
                self.is_settled, self.was_settled, self._seen = reply.is_settled, reply.was_settled, reply.seen
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
        """Compare an arc record by record, a page of the partner's list at a time."""
        after: bytes | None = None
        is_cut = True
        while is_cut:
            reply = await self._call(GetHeads(arc.start, arc.end, after), Heads)
            self._check(reply, arc, after)
            is_cut = reply.is_cut
            until = reply.heads[-1].key if is_cut else None
            theirs = {head.key: head.digest for head in reply.heads}
            await self._bring_level(theirs, dict(self._ours(arc, after, until)))
            after = until
            self._report(arc.end if until is None else self._host.circle.hash(until))

    def _check(self, reply: Heads, arc: Arc, after: bytes | None) -> None:
        """A partner that lists what was not asked for, or the same again and again, is not listened to."""
        last = None if after is None else self._place(arc, after)
        for head in reply.heads:
            place = self._place(arc, head.key)
            if self._host.circle.hash(head.key) not in arc or (last is not None and place <= last):
                raise MalformedMessage(f"{self._partner.address} lists records out of order")
            last = place
        if reply.is_cut and not reply.heads:
            raise MalformedMessage(f"{self._partner.address} lists nothing, and says that more follows")

    def _ours(self, arc: Arc, after: bytes | None, until: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        last = None if until is None else self._place(arc, until)
        for key, digest in self._storage.heads(arc, after=after):
            if last is not None and self._place(arc, key) > last:
                return
            yield key, digest

    def _place(self, arc: Arc, key: bytes) -> tuple[int, bytes]:
        """Return what orders keys clockwise from the start of an arc."""
        circle = self._host.circle
        return circle.distance(arc.start + 1, circle.hash(key)), key

    async def _bring_level(self, theirs: dict[bytes, bytes], ours: dict[bytes, bytes]) -> None:
        differing = [key for key, digest in ours.items() if theirs.get(key) != digest]
        if self.proven is not None:
            self.proven.update((key, digest) for key, digest in ours.items() if theirs.get(key) == digest)
        fetched: dict[bytes, bytes] = {}
        if self._pull:
            lacking = [key for key in theirs if key not in ours]
            fetched = await self._fetch([*(key for key in differing if key in theirs), *lacking])
        if self._push:  # after the merge, so that they get what both know together, once
            await self._send([key for key in differing if self._digest(key) != fetched.get(key)])

    def _digest(self, key: bytes) -> bytes | None:
        record = self._storage.get(key)
        return None if record is None else digest_of(record)

    async def _fetch(self, keys: list[bytes]) -> dict[bytes, bytes]:
        """Fetch records and merge them. Returns the digests of what the partner had."""
        fetched: dict[bytes, bytes] = {}
        levelled = 0
        while keys:
            since = trio.current_time()
            page = keys[: self._host.page_records]
            reply = await self._call(GetCopies(tuple(page)), Copies)
            if not 1 <= reply.asked <= len(page) or not {r.key for r in reply.records} <= set(page):
                raise MalformedMessage(f"{self._partner.address} sends records that were not asked for")
            try:
                changed = await self._exchange.merge(reply.records, reply.seen)
            except Behind as error:
                levelled = await self._level(levelled, error)
                continue
            keys = keys[reply.asked :]
            fetched.update((record.key, digest_of(record)) for record in reply.records)
            self._outcome.pulled += changed
            self._host.counters["copies_pulled"] += changed
            await self._pace(reply.records, since)
        return fetched

    async def _send(self, keys: list[bytes]) -> None:
        """Send records, page by page; proven is what was sent, whatever becomes of it here."""
        levelled = 0
        while keys:
            since = trio.current_time()
            page = await read_copies(self._host, keys)
            try:
                sent = await self._send_page(page) if page.records else ()
            except Behind as error:
                levelled = await self._level(levelled, error)
                continue
            keys = keys[page.asked :]
            if not sent:  # dropped meanwhile, or refused
                continue
            if self.proven is not None:
                self.proven.update((record.key, digest_of(record)) for record in sent)
            self._outcome.pushed += len(sent)
            self._host.counters["copies_pushed"] += len(sent)
            await self._pace(sent, since)

    async def _send_page(self, page: Copies) -> Sequence[Record]:
        """Send a page; if the partner refuses it, one record after the other. Returns what the partner has now."""
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

    async def _level(self, levelled: int, error: Behind) -> int:
        """Level the logs: something was reaped on either side since the comparison. Returns how often this was done."""
        if levelled == LEVELLED_MAX:
            raise Busy(f"{self._partner.address} and this node go on reaping: {error.message}")
        await self._exchange.catch_up.level(self._partner, self._arc)
        return levelled + 1

    async def _call(self, request: Request, expect: type[R]) -> R:
        """Call the partner. Its patience is bounded: else one that hangs would hold up the repair of all others."""
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
        wait_s = self._exchange.bucket.take(size, trio.current_time())
        await self._host.give_way(since)
        if wait_s > 0:
            await trio.sleep(wait_s)

    def _report(self, until: int | None = None) -> None:
        """Tell how far it is; `until`: everything up to that point has been compared."""
        if until is not None:
            circle, start = self._host.circle, self._arc.start
            length = circle.distance(start, self._arc.end) or circle.size
            walked = circle.distance(start, until) or length
            self._outcome.share = max(self._outcome.share, circle.fraction(walked) / circle.fraction(length))
        if self._progress is not None:
            self._progress(self._outcome)

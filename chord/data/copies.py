"""The copies a node holds, as its partners ask about them: sums, lists, records; and taking theirs.

Whatever is said of a record to others is said when it is durable: the partner may drop its own copy because of it.
`data/exchange.py` is the side that asks.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeAlias

import trio

from chord.calls import Answer
from chord.data import versions
from chord.data.digest import digest_of
from chord.data.storage import Batch
from chord.host import Host
from chord.ids import Arc
from chord.messages import (
    BATCH_BYTES_MAX,
    DIGEST_BYTES,
    HEADS_MAX,
    Copies,
    CopiesRead,
    Copy,
    Done,
    GetCopies,
    GetHeads,
    GetSums,
    Head,
    Heads,
    ReadCopies,
    ReadCopy,
    Record,
    Reply,
    StoreCopies,
    Sums,
)

REAPED_S: Final = 600.0
REAPED_MAX: Final = 1 << 16

Merge: TypeAlias = Callable[[Sequence[Record]], Awaitable[int]]
"""Merges records by version, durably, and returns how many were new or changed (`Records.merge`)."""

Stage: TypeAlias = Callable[[Iterable[Record]], tuple[int, bool]]
"""Merges records by version at once, and returns how many changed and whether all is durable (`Records.stage`)."""


class Reaped:
    """Tombstones dropped here a short while ago. That another has not dropped its copy yet is no difference.

    Too many, and the oldest are forgotten: then they may come back, and are reaped again.
    """

    def __init__(self) -> None:
        self._until: dict[tuple[bytes, bytes], float] = {}

    def add(self, key: bytes, digest: bytes, now: float) -> None:
        """Remember a tombstone and the digest of its clock."""
        self._until.pop((key, digest), None)
        self._until[key, digest] = now + REAPED_S
        while len(self._until) > REAPED_MAX or next(iter(self._until.values())) <= now:
            del self._until[next(iter(self._until))]

    def __bool__(self) -> bool:
        return bool(self._until)

    def covers(self, key: bytes, digest: bytes, now: float) -> bool:
        """Whether that very tombstone was dropped here."""
        return now < self._until.get((key, digest), -math.inf)


async def read_copies(host: Host, keys: Sequence[bytes], *, must_fit: bool = False) -> Copies:
    """Return the first of these records, durable: as many as make a page, and one at least.

    Args:
        must_fit: of a record that no frame holds return a part, another one each time.

    Concurrency: checkpoints where something is not durable yet.
    """
    records: list[Record] = []
    size = asked = 0
    for key in keys[: host.page_records]:
        record = host.storage.get(key)
        if record is not None:
            size += versions.wire_bytes(record)
            if records and size > host.limits.page_bytes:
                break
            is_part = must_fit and size > host.limits.record_bytes_max
            records.append(host.rng.choice(parts_of(host, record)) if is_part else record)
        asked += 1
    if not all(host.storage.is_durable(record.key) for record in records):
        await host.storage.commit(Batch())
    return Copies(tuple(records), asked)


def parts_of(host: Host, record: Record) -> list[Record]:
    """Return a record in parts that fit a frame each: nearly always one."""
    return versions.split(record, host.limits.record_bytes_max)


def in_frames(host: Host, page: tuple[Record, ...]) -> list[tuple[Record, ...]]:
    """Return a page as it is; one large record, which is a page alone, in parts that fit a frame each."""
    return [page] if len(page) != 1 else [(part,) for part in parts_of(host, page[0])]


class Replica:
    """What a node answers when a partner compares an arc with it."""

    def __init__(self, host: Host, stage: Stage, reaped: Reaped) -> None:
        self._host = host
        self._stage = stage
        self.reaped = reaped

    def on_get_sums(self, request: GetSums) -> Answer:
        """Return the sum of each asked part within the arc."""
        storage, arc = self._host.storage, Arc(request.arc_start, request.arc_end)
        sums = tuple(storage.digests.sum(arc, request.level, part, storage.heads) for part in request.parts)
        is_settled = any(vnode.view.is_settled_in(arc) for vnode in self._host.vnodes.values())
        return self._when_durable(Sums(sums, is_settled))

    def on_get_heads(self, request: GetHeads) -> Answer:
        """Return a page of what is held in the arc."""
        storage = self._host.storage
        found: list[Head] = []
        size, is_cut = 0, False
        for key, digest in storage.heads(Arc(request.arc_start, request.arc_end), after=request.after_key):
            size += len(key) + DIGEST_BYTES
            is_cut = len(found) == HEADS_MAX or (bool(found) and size > self._host.limits.page_bytes)
            if is_cut:
                break
            found.append(Head(key, digest))
        return self._when_durable(Heads(tuple(found), is_cut))

    async def on_get_copies(self, request: GetCopies) -> Copies:
        """Return the first of the asked records."""
        return await read_copies(self._host, request.keys, must_fit=True)

    def on_read_copies(self, request: ReadCopies) -> CopiesRead:
        """Return what is held of several keys; None for those that have no room in the answer. The first always has."""
        copies: list[Copy | None] = []
        size = 0
        for ask in request.asks:
            copy: Copy | None = self.on_read_copy(ask)
            if copy is not None and copy.record is not None:
                more = versions.wire_bytes(copy.record)
                if size and size + more > BATCH_BYTES_MAX:
                    copy = None
                else:
                    size += more
            copies.append(copy)
        return CopiesRead(tuple(copies))

    def on_read_copy(self, request: ReadCopy) -> Copy:
        """Return what is held of a key for good; only that it is the same where the asker holds the same."""
        host = self._host
        point = host.circle.hash(request.key)
        record = host.storage.durable(request.key)
        is_settled = not host.storage.is_damaged(request.key)
        is_settled = is_settled and any(vnode.is_settled(point) for vnode in host.vnodes.values())
        if record is not None and digest_of(record) == request.digest:
            return Copy(None, True, is_settled)
        return Copy(record, False, is_settled)

    def on_store_copies(self, request: StoreCopies) -> Answer:
        """Merge records, and answer when they are durable. A tombstone dropped here a while ago stays dropped."""
        now = trio.current_time()
        self._stage(record for record in request.records if not self._is_reaped(record, now))
        return self._when_durable(Done())

    def _when_durable(self, reply: Reply) -> Answer:
        """Answer at once where everything visible is durable: nobody is told what a crash could take back."""
        return reply if self._host.storage.stage(Batch()) else self._wait(reply)

    async def _wait(self, reply: Reply) -> Reply:
        await self._host.storage.commit(Batch())
        return reply

    def _is_reaped(self, record: Record, now: float) -> bool:
        if not self.reaped:
            return False
        return self.reaped.covers(record.key, digest_of(record), now) and self._host.storage.get(record.key) is None

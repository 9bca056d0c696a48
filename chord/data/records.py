"""Reading and writing the records of the arc a vnode answers for.

One replica for now: the owner coordinates every put. What it promises: an absent key is "not
found" only where the arc is complete; where the previous owner died with the only copy, the
answer names it (`OwnerDown`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from chord.data import versions
from chord.data.storage import Batch, record_bytes
from chord.errors import InvalidRequest, OwnerDown, VersionConflict
from chord.ids import Arc, Point
from chord.messages import Get, Put, Record, Scan, ScanPage, Values, Version, Written
from chord.vnode import Vnode


class Records:
    """The records of one vnode's arc, in its node's storage.

    Attributes:
        on_write: called with every key that changes, just before it does, so that a running transfer sends it again.
    """

    def __init__(self, vnode: Vnode) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self.on_write: Callable[[Point, bytes], None] = lambda point, key: None

    def get(self, request: Get) -> Values:
        """Answer a read.

        Raises:
            NotOwner, Busy: see `Vnode.require_owner`.
            OwnerDown: definite; the key is absent here, and its only copy may be on a dead node.
        """
        point = self._host.circle.hash(request.key)
        verdict = self._vnode.require_owner(point)
        record = self._host.storage.get(request.key)
        self._host.counters["gets"] += 1
        if record is None:
            if verdict.taken is not None:
                dead, since = verdict.taken.dead, verdict.taken.since
                raise OwnerDown(
                    f"the only copy of that arc is on {dead.address}, which is down",
                    peer=dead,
                    after_ms=int(1000 * (trio.current_time() - since)),
                )
            return Values((), versions.encode_context({}), self._vnode.me)
        context = versions.encode_context(versions.context_of(record))
        return Values(tuple(versions.values(record)), context, self._vnode.me)

    async def put(self, request: Put) -> Written:
        """Store a new version and answer when it is durable. The same operation id twice writes once.

        Raises:
            InvalidRequest: definite; key or value over the limits, or a context that is none.
            VersionConflict: definite; too many concurrent versions, put with a context that covers them.
            NotOwner, Busy: see `Vnode.require_owner`.
        """
        point = self._host.circle.hash(request.key)
        self._vnode.require_owner(point)
        self._check_size(request)
        old = self._host.storage.get(request.key)
        if old is None or versions.find_op(old, request.op_id) is None:
            context = None if request.context is None else versions.decode_context(request.context)
            version = Version(request.value, request.op_id, self._host.wall_now_ms())
            actor = self._actor(request.key)
            new = versions.put(old, request.key, context, actor, version)
            self._check_record(new)
            self.on_write(point, request.key)  # before the wait: a transfer may end meanwhile, and must have taken it
            await self._host.storage.commit(Batch(puts=(new,), minted={request.key: actor}))
            self._host.counters["puts"] += 1
            old = new
        else:
            await self._host.storage.commit(Batch())  # the first attempt may be visible and not durable yet
        return Written(versions.encode_context(versions.context_of(old)), self._vnode.me)

    def scan(self, request: Scan) -> ScanPage:
        """Return the next page of my arc's records clockwise after a point.

        Raises:
            NotOwner, Busy: the point right after `after` is not in my arc.
        """
        circle = self._host.circle
        self._vnode.require_owner(circle.point(request.after + 1))
        arc = Arc(request.after, self._vnode.id)
        page, is_cut = self.page(arc, request.after_key, request.limit)
        return ScanPage(page, self._vnode.id, page[-1].key if is_cut else None)

    def page(self, arc: Arc, after: bytes | None, limit: int) -> tuple[tuple[Record, ...], bool]:
        """Return up to `limit` records or about `page_bytes` of an arc, and whether more follow."""
        return self.pack(self._host.storage.scan(arc, after=after), limit)

    def pack(self, records: Iterable[Record], limit: int) -> tuple[tuple[Record, ...], bool]:
        """Return the first records that make one page, and whether any are left. A large one is a page alone."""
        found: list[Record] = []
        size = 0
        for record in records:
            size += record_bytes(record) + len(record.key)
            if found and (len(found) >= limit or size > self._host.limits.page_bytes):
                return tuple(found), True
            found.append(record)
        return tuple(found), False

    async def merge(self, records: Iterable[Record]) -> int:
        """Merge records from elsewhere by version, durably. Returns how many were new or changed."""
        changed: list[Record] = []
        for record in records:
            old = self._host.storage.get(record.key)
            new = record if old is None else versions.sync(old, record)
            if new != old:
                changed.append(new)
        for record in changed:
            self.on_write(self._host.circle.hash(record.key), record.key)
        await self._host.storage.commit(Batch(puts=changed))  # what was here before may not be durable yet either
        return len(changed)

    # -- inside ---------------------------------------------------------------------------------

    def _actor(self, key: bytes) -> bytes:
        """Return the actor that mints the next dot: the one this store minted under and has held since, or a new one.

        A dot is never reused: a record that was given away and came back, by whatever way, may be older than the
        last dot minted here, so a new key epoch begins.
        """
        storage = self._host.storage
        return storage.minted(key) or versions.actor(storage.incarnation, storage.next_key_epoch())

    def _check_size(self, request: Put) -> None:
        limits = self._host.limits
        if not 1 <= len(request.key) <= limits.key_bytes_max:
            raise InvalidRequest(f"a key has 1 to {limits.key_bytes_max} bytes, not {len(request.key)}")
        if request.value is not None and len(request.value) > limits.value_bytes_max:
            raise InvalidRequest(f"a value has at most {limits.value_bytes_max} bytes, not {len(request.value)}")

    def _check_record(self, record: Record) -> None:
        limits = self._host.limits
        siblings = sum(len(entry.versions) for entry in record.clock)
        if siblings > limits.siblings_max or (siblings > 1 and record_bytes(record) > limits.record_bytes_max):
            raise VersionConflict(
                f"the key holds {siblings - 1} concurrent versions; read it and put with the context that covers them"
            )

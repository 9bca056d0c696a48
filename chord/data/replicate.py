"""Quorum reads and writes: what the coordinator of a key does.

The owner of a key's arc coordinates; while it is silent, the next replica stands in. A write is durable here before
it is sent to anyone, then on W nodes before it is acknowledged; who keeps it for a replica that does not answer holds
it like any record, and brings it home later (`data/misplaced.py`).

Where the store is durable at once nothing here needs a task: a coordinator waits for nothing but the answers of others,
and is told them (`Calls.begin`). A task for each, an event and a scope cost as much as all the rest of a put.

Source: DeCandia et al. 2007 (Dynamo), sections 4.3 to 4.6; dotted version vectors, Preguica et al. 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import trio

from chord.calls import Later
from chord.data import versions
from chord.data.gather import Asker
from chord.data.quorum import Quorum
from chord.data.quorum_reads import QuorumReads
from chord.data.reading import Reading
from chord.data.records import Records
from chord.data.repair import Repair
from chord.data.storage import Batch
from chord.data.writing import Writing, ended
from chord.errors import ChordError, InvalidRequest, NotReady, WritesRefused
from chord.messages import Merge, Put, Record
from chord.vnode import RETRY_MS, Vnode

Make: TypeAlias = Callable[[], tuple[Record, Batch]]
"""Returns a record as it is to be, and the change that stores it, which must follow at once."""


class Coordinator:
    """Coordinates reads and writes of one vnode's keys.

    Args:
        repair: knows which replicas hold everything, and is told of those that do not take a write.

    Attributes:
        get: reads a key; see `QuorumReads.get`.
    """

    def __init__(self, vnode: Vnode, records: Records, repair: Repair) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._repair = repair
        self._quorum = Quorum(vnode)
        self._reads = QuorumReads(vnode, records, self._quorum, repair)
        self.get = self._reads.get

    def put(self, request: Put, over: Asker | None = None) -> Later:
        """Write a key: here, durably, then on the other replicas.

        Once it is stored here it is seen through, though the caller give up meanwhile: what is stored in one place and
        sent to nobody would turn up when nobody expects it any more.

        Args:
            over: asks the other replicas; default: each of them at once, for this key alone.
        Returns:
            An answer that comes to `Written`, or to one of these errors:
                InvalidRequest, VersionConflict, WritesRefused: definite; see `Records.to_put`.
                NotOwner, Busy: see `Vnode.require_coordinator`.
                TooFewReplicas: definite; there are too few to write to.
                QuorumFailed: indefinite; too few of them have acknowledged.
        """
        return Later(partial(self._put, request, over or self._host.peers))

    def _put(self, request: Put, over: Asker, later: Later) -> None:
        point = self._host.circle.hash(request.key)
        self._vnode.require_coordinator(point)
        self._records.check(request)
        who = self._quorum.holders(point)
        needed = self._quorum.needed(request.w, who)
        self._quorum.require_reachable(who, needed, request.is_strict)
        reading = Reading(request.key, over)

        def write() -> None:
            if later.is_wanted:
                self._write(lambda: self._records.to_put(request, reading.record), request, needed, over, later)

        def have_read() -> None:
            self._vnode.require_coordinator(point)  # it may have changed meanwhile
            write()

        if len(who.members) == 1 or not self._must_read(request):
            write()
        else:
            self._reads.read(reading, who, point, self._quorum.needed(0, who), later, have_read)

    def merge(self, request: Merge, over: Asker | None = None) -> Later:
        """Merge a record as it is into the replicas. Comes to what `put` does."""
        return Later(partial(self._merge, request, over or self._host.peers))

    def _merge(self, request: Merge, over: Asker, later: Later) -> None:
        point = self._host.circle.hash(request.record.key)
        self._vnode.require_coordinator(point)
        who = self._quorum.holders(point)
        needed = self._quorum.needed(request.w, who)
        self._quorum.require_reachable(who, needed, is_strict=False)
        if wrong := versions.check(request.record):
            raise InvalidRequest(f"not a record: {wrong[0]}")

        def merged() -> tuple[Record, Batch]:
            batch = self._records.to_merge([request.record])
            return batch.puts[0] if batch.puts else self._host.storage.get(request.record.key) or request.record, batch

        self._write(merged, request, needed, over, later)

    def _write(self, make: Make, request: Put | Merge, needed: int, over: Asker, later: Later) -> None:
        """Make a change durable here, then let others have the record."""
        if self._host.is_ending:
            raise NotReady("the node is ending", after_ms=RETRY_MS)
        if self._host.storage.is_instant:
            record, batch = make()
            self._host.storage.stage(batch)
            self._spread(record, request, needed, over, later)
        else:
            self._host.start_task(self._write_durably, make, request, needed, over, later)

    async def _write_durably(self, make: Make, request: Put | Merge, needed: int, over: Asker, later: Later) -> None:
        try:
            point = self._host.circle.hash(request.record.key if isinstance(request, Merge) else request.key)
            self._vnode.require_coordinator(point)  # a switch may have begun since, and would not take this along
            record, batch = make()
            await self._host.storage.commit(batch)
        except WritesRefused as error:
            later.end(WritesRefused(f"{self._host.address}: {error.message}"))
        except ChordError as error:
            later.end(error)
        except trio.Cancelled:
            later.end(ended())
            raise
        else:
            later.go_on(self._spread, record, request, needed, over, later)

    def _spread(self, record: Record, request: Put | Merge, needed: int, over: Asker, later: Later) -> None:
        """Send a record that is durable here to the others, until as many as are needed have it."""
        who = self._vnode.replica_set(self._host.circle.hash(record.key))  # it may have changed meanwhile
        op_id, is_strict = None, False
        if isinstance(request, Put):
            op_id, is_strict = request.op_id, request.is_strict
            self._host.counters["puts"] += 1
        if not request.w:
            needed = max(needed, min(self._host.constants.quorum, len(who.members)))
        me = self._quorum.here(who)
        writing = Writing(self._vnode, me, who, record, self._repair, over, op_id=op_id, is_strict=is_strict)
        writing.begin(needed, later.end)

    def _must_read(self, request: Put) -> bool:
        """Whether a write depends on what others hold: on what it covers, or on whether it was done already."""
        if request.context is None or request.is_retry:
            return True
        mine = self._host.storage.get(request.key)
        known = {} if mine is None else versions.context_of(mine)
        covered = versions.decode_context(request.context)
        return any(known.get(actor, 0) < count for actor, count in covered.items())

"""Quorum reads and writes: what the coordinator of a key does.

The owner of a key's arc coordinates; while it is silent, the next replica stands in. A write is durable here before
it is sent to anyone, then on W nodes before it is acknowledged; who keeps it for a replica that does not answer holds
it like any record, and brings it home later (`replication/handoff.py`).

Where the store is durable at once nothing here needs a task: a coordinator waits for nothing but the answers of others,
and is told them (`Calls.begin`). A task for each, an event and a scope cost as much as all the rest of a put.

Source: DeCandia et al. 2007 (Dynamo), sections 4.3 to 4.6; dotted version vectors, Preguica et al. 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
import trio

from chord.errors import Busy, ChordError, InvalidRequest, NotReady, QuorumFailed, WritesRefused
from chord.net.calls import Later
from chord.replication.anti_entropy import Repair
from chord.replication.catch_up import CatchUp
from chord.replication.coalesce import Asker
from chord.replication.quorum import Quorum
from chord.replication.read import QuorumReads
from chord.replication.records import Records, Remarks
from chord.replication.write import Writing, ended
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import DecideQuarantine, Merge, Put, Record, Written

Make: TypeAlias = Callable[[], tuple[Record, Batch, Remarks]]
"""Returns a record as it is to be, the change that stores it, which must follow at once, and what the answer says."""

Write: TypeAlias = Put | Merge | DecideQuarantine


NO_REMARKS: Final = Remarks()


class Coordinator:
    """Coordinates reads and writes of one vnode's keys.

    Args:
        repair: knows which replicas hold everything, and is told of those that do not take a write.
        catch_up: levels the reap logs of replicas that have seen other entries.

    Attributes:
        get: reads a key; see `QuorumReads.get`.
        get_quarantine: reads what is in quarantine of a key; see `QuorumReads.get_quarantine`.
    """

    def __init__(self, vnode: Vnode, records: Records, repair: Repair, catch_up: CatchUp) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._repair = repair
        self._quorum = Quorum(vnode)
        self._catch_up = catch_up
        self._reads = QuorumReads(vnode, records, self._quorum, repair, catch_up)
        self.get = self._reads.get
        self.get_quarantine = self._reads.get_quarantine

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
        self._vnode.require_coordinator(self._host.circle.hash(request.key))
        self._records.check(request)

        def make(seen: Record | None) -> tuple[Record, Batch, Remarks]:
            return *self._records.to_put(request, seen), Remarks()

        self._begin(request, request.key, make, over, later, must_read=self._must_read(request))

    def decide(self, request: DecideQuarantine) -> Later:
        """Carry out a decision about the quarantine of a key. Comes to what `put` does."""
        return Later(partial(self._decide, request))

    def _decide(self, request: DecideQuarantine, later: Later) -> None:
        def make(seen: Record | None) -> tuple[Record, Batch, Remarks]:
            return self._records.to_decide(request, seen)

        self._begin(request, request.key, make, self._host.peers, later, must_read=True)

    def merge(self, request: Merge, over: Asker | None = None) -> Later:
        """Merge a record as it is into the replicas. Comes to what `put` does."""
        return Later(partial(self._merge, request, over or self._host.peers))

    def _merge(self, request: Merge, over: Asker, later: Later) -> None:
        if wrong := versions.check(request.record):
            raise InvalidRequest(f"not a record: {wrong[0]}")

        def make(seen: Record | None) -> tuple[Record, Batch, Remarks]:
            return self._records.to_restore(request, seen)

        point = self._host.circle.hash(request.record.key)
        must_read = bool(request.op_id) or not self._vnode.is_settled(point)
        self._begin(request, request.record.key, make, over, later, must_read=must_read)

    def _begin(
        self,
        request: Write,
        key: bytes,
        make: Callable[[Record | None], tuple[Record, Batch, Remarks]],
        over: Asker,
        later: Later,
        *,
        must_read: bool,
    ) -> None:
        """Ask a read quorum what it holds, if that must be known, and then write.

        Args:
            make: as `Make`, of what the others hold.
        """
        point = self._host.circle.hash(key)
        self._vnode.require_coordinator(point)
        is_strict = isinstance(request, Put) and request.is_strict
        who = self._quorum.holders(point)
        needed = self._quorum.needed_to_write(request.w, who)
        self._quorum.require_reachable(who, needed, is_strict)
        reading = self._reads.begin(key, over)

        def made(*, is_sloppy: bool) -> tuple[Record, Batch, Remarks]:
            if reading.record is not None and reading.seen != self._host.reap_log.seen_of(key):
                raise Busy("records were reaped while the key was read", after_ms=RETRY_MS)
            record, batch, remarks = make(reading.record)
            return record, batch, remarks._replace(is_sloppy=is_sloppy)

        def write(*, is_sloppy: bool = False) -> None:
            if later.is_wanted:
                self._write(partial(made, is_sloppy=is_sloppy), request, needed, over, later)

        def have_read() -> None:
            verdict = self._vnode.require_coordinator(point)  # it may have changed meanwhile
            if self._reads.is_sure(reading, who):
                write()
            elif self._vnode.is_settled(point) and not is_strict:
                write(is_sloppy=True)  # what silent replicas hold may stay beside it
            else:  # replicas that are not in sync may lack what was acknowledged
                self._reads.ask_everyone(reading, who, verdict, later, write, until_found=False)

        if len(who.members) == 1 or not must_read:
            write()
        else:
            self._reads.read(reading, who, point, self._quorum.needed(0, who), later, have_read)

    def _write(self, make: Make, request: Write, needed: int, over: Asker, later: Later) -> None:
        """Make a change durable here, then let others have the record."""
        if self._host.is_ending:
            raise NotReady("the node is ending", after_ms=RETRY_MS)
        if self._host.storage.is_instant:
            record, batch, remarks = make()
            self._host.storage.stage(batch)
            self._spread(record, self._host.reap_log.seen_of(record.key), request, needed, over, later, remarks)
        else:
            self._host.start_task(self._write_durably, make, request, needed, over, later)

    async def _write_durably(self, make: Make, request: Write, needed: int, over: Asker, later: Later) -> None:
        try:
            point = self._host.circle.hash(request.record.key if isinstance(request, Merge) else request.key)
            self._vnode.require_coordinator(point)  # a switch may have begun since, and would not take this along
            record, batch, remarks = make()
            seen = self._host.reap_log.seen_of(record.key)
            await self._host.storage.commit(batch)
        except WritesRefused as error:
            later.end(WritesRefused(f"{self._host.address}: {error.message}"))
        except ChordError as error:
            later.end(error)
        except trio.Cancelled:
            later.end(ended())
            raise
        else:
            later.go_on(self._spread, record, seen, request, needed, over, later, remarks)

    def _spread(
        self,
        record: Record,
        seen: bytes,
        request: Write,
        needed: int,
        over: Asker,
        later: Later,
        remarks: Remarks,
    ) -> None:
        """Send a record that is durable here to the others, until as many as are needed have it.

        Args:
            seen: of the reap log, when the record was made.
            remarks: what else the answer says.
        """
        who = self._vnode.replica_set(self._host.circle.hash(record.key))  # it may have changed meanwhile
        op_id, is_strict = None, False
        if isinstance(request, Put):
            op_id, is_strict = request.op_id, request.is_strict
            self._host.counters["puts"] += 1
        if not request.w:
            needed = max(needed, min(self._host.constants.quorum, len(who.members)))
        me = self._quorum.here(who)
        if not (record.clock or record.quarantine):  # all of a merged record was dead, and nothing is to be stored
            later.end(_remarked(Written(context=b"", owner=self._vnode.me, w=0, w_needed=0), remarks))
            return
        writing = Writing(
            self._vnode, me, who, record, seen, self._repair, self._catch_up, over, op_id=op_id, is_strict=is_strict
        )
        writing.begin(needed, lambda outcome: later.end(_remarked(outcome, remarks)))

    def _must_read(self, request: Put) -> bool:
        """Whether a write depends on what others hold: on what it covers, or on whether it was done already."""
        if request.context is None or request.is_retry:
            return True
        mine = self._host.storage.get(request.key)
        known = {} if mine is None else versions.context_of(mine)
        covered = versions.decode_context(request.context)
        return any(known.get(actor, 0) < count for actor, count in covered.items())


def _remarked(outcome: Written | QuorumFailed, remarks: Remarks) -> Written | QuorumFailed:
    if remarks == NO_REMARKS or not isinstance(outcome, Written):
        return outcome
    is_sloppy = outcome.is_sloppy or remarks.is_sloppy
    return msgspec.structs.replace(outcome, dead=remarks.dead, decided=remarks.decided, is_sloppy=is_sloppy)

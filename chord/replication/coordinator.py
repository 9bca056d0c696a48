"""Quorum reads and writes: what the coordinator of a key does.

The owner of a key's arc coordinates. While the owner is unreachable, the next replica stands in. A write is durable
here before it is sent to any other node, and on W nodes before it is acknowledged. A node that keeps it for an
unreachable replica holds it like any record, and delivers it later (`replication/handoff.py`).

Each operation is steps (`chord/net/steps.py`): a generator that needs no task.

Source: DeCandia et al. 2007 (Dynamo), sections 4.3 to 4.6; dotted version vectors, Preguica et al. 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import msgspec

from chord.errors import Busy, InvalidRequest, WritesRefused
from chord.net.handlers import handles
from chord.net.steps import IF_WANTED, Steps
from chord.replication.anti_entropy import Repair
from chord.replication.catch_up import CatchUp
from chord.replication.effects import Commit, ending
from chord.replication.quorum import Quorum
from chord.replication.read import QuorumReads, Target
from chord.replication.records import Records, Remarks
from chord.replication.write import Writing
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import DecideQuarantine, Merge, Put, Record, Written

Change: TypeAlias = Callable[[Record | None], tuple[Record, Batch, Remarks]]
"""Takes what other replicas hold of a key. Returns the new record, the batch that stores it, and remarks for the reply.

The batch must be staged at once: it may carry a new dot.
"""

Write: TypeAlias = Put | Merge | DecideQuarantine


class Coordinator:
    """Coordinates reads and writes of one vnode's keys.

    Args:
        repair: knows which replicas are in sync, and notes those that miss a write.
        catch_up: brings the reap logs of replicas in sync.

    Attributes:
        reads: coordinates the reads.
    """

    def __init__(self, vnode: Vnode, records: Records, repair: Repair, catch_up: CatchUp) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._repair = repair
        self._quorum = Quorum(vnode)
        self._catch_up = catch_up
        self.reads = QuorumReads(vnode, records, self._quorum, repair, catch_up)

    @handles(Put)
    def put(self, request: Put) -> Steps[Written]:
        """Write a key: here, durably, then on the other replicas.

        Once it is stored here, it is sent to the other replicas even if the caller gives up. A version that is stored
        on one node only would surprise later readers.

        Raises:
            InvalidRequest, VersionConflict, WritesRefused: definite; see `Records.to_put`.
            NotOwner, Busy: see `Vnode.require_coordinator`.
            TooFewReplicas: definite; too few nodes can take the write.
            QuorumFailed: indefinite; too few nodes acknowledged it.
        """
        target = self.reads.target(request.key)
        self._records.check(request)
        change = partial(self._records.to_put, request)
        return (yield from self._write(request, target, change, must_read=self._must_read(request)))

    @handles(DecideQuarantine)
    def decide(self, request: DecideQuarantine) -> Steps[Written]:
        """Carry out a decision about the quarantine of a key. Raises what `put` raises."""
        target = self.reads.target(request.key)
        change = partial(self._records.to_decide, request)
        return (yield from self._write(request, target, change, must_read=True))

    @handles(Merge)
    def merge(self, request: Merge) -> Steps[Written]:
        """Merge a record as it is into the replicas. Raises what `put` raises."""
        if wrong := versions.check(request.record):
            raise InvalidRequest(f"not a record: {wrong[0]}")
        target = self.reads.target(request.record.key)
        must_read = bool(request.op_id) or not self._vnode.is_settled(target.point)
        change = partial(self._records.to_restore, request)
        return (yield from self._write(request, target, change, must_read=must_read))

    def _write(self, request: Write, target: Target, change: Change, *, must_read: bool) -> Steps[Written]:
        is_strict = isinstance(request, Put) and request.is_strict
        needed = self._quorum.needed_to_write(request.w, target.replicas)
        self._quorum.require_reachable(target.replicas, needed, is_strict)
        held, is_sloppy = None, False
        if must_read and len(target.replicas.members) > 1:
            held, is_sloppy = yield from self._read_first(target, is_strict)
        yield IF_WANTED
        if self._host.is_ending:
            raise ending()
        record, batch, remarks = change(held)
        seen = self._host.reap_log.seen_of(record.key)  # of the moment when the record was made
        try:
            yield Commit(self._host.storage, batch)  # durable here before any other node learns the new dot
        except WritesRefused as error:
            raise WritesRefused(f"{self._host.address}: {error.message}") from None
        written = yield from self._replicate(request, record, seen, needed)
        is_sloppy = is_sloppy or written.is_sloppy
        return msgspec.structs.replace(written, dead=remarks.dead, decided=remarks.decided, is_sloppy=is_sloppy)

    def _read_first(self, target: Target, is_strict: bool) -> Steps[tuple[Record | None, bool]]:
        """Return what a read quorum holds of a key, and whether the write is sloppy for lack of a sure answer."""
        is_sloppy = False
        reading = yield from self.reads.read(target, self._quorum.needed(0, target.replicas))
        target = target._replace(verdict=self._vnode.require_coordinator(target.point))  # may have changed meanwhile
        if not self.reads.is_sure(reading, target.replicas):
            if self._vnode.is_settled(target.point) and not is_strict:
                is_sloppy = True  # versions on unreachable replicas may stay beside the new one
            else:  # replicas that are not in sync may lack an acknowledged write
                yield from self.reads.ask_everyone(reading, target, until_found=False)
        if reading.record is not None and reading.seen != self._host.reap_log.seen_of(target.key):
            raise Busy("records were reaped while the key was read", after_ms=RETRY_MS)
        return reading.record, is_sloppy

    def _replicate(self, request: Write, record: Record, seen: bytes, needed: int) -> Steps[Written]:
        """Send a record that is durable here to the other replicas, until enough nodes have it."""
        replicas = self._vnode.replica_set(self._host.circle.hash(record.key))  # may have changed meanwhile
        op_id, is_strict = None, False
        if isinstance(request, Put):
            op_id, is_strict = request.op_id, request.is_strict
            self._host.counters["puts"] += 1
        if not request.w:
            needed = max(needed, min(self._host.constants.quorum, len(replicas.members)))
        if not (record.clock or record.quarantine):  # all of a merged record was dead, and nothing is to be stored
            return Written(context=b"", owner=self._vnode.me, w=0, w_needed=0)
        me = self._quorum.here(replicas)
        writing = Writing(
            self._vnode, me, replicas, record, seen, self._repair, self._catch_up, op_id=op_id, is_strict=is_strict
        )
        return (yield from writing.send(needed))

    def _must_read(self, request: Put) -> bool:
        """Whether a write depends on other replicas: on the versions it covers, or on an earlier attempt."""
        if request.context is None or request.is_retry:
            return True
        mine = self._host.storage.get(request.key)
        known = {} if mine is None else versions.context_of(mine)
        covered = versions.decode_context(request.context)
        return any(known.get(actor, 0) < count for actor, count in covered.items())

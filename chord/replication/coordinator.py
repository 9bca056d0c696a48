"""The coordinator of a key: quorum writes. `read.py` has the quorum reads.

The owner of a key's arc coordinates. While the owner is unreachable, the next replica coordinates in its place. A write
is durable here before it is sent to another node, and on W nodes before it is acknowledged. Early puts are sent before
that, under rules of their own (`replication/conditional.py`). A stand-in keeps a write for an unreachable replica like
any other record, and hands it over later (`replication/handoff.py`).

Each operation is written as steps (`chord/net/steps.py`), so it needs no task.

Source: DeCandia et al. 2007 (Dynamo), sections 4.3 to 4.6; dotted version vectors, Preguica et al. 2010.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import msgspec
import trio

from chord.errors import Busy, ChordError, IndefiniteError, InvalidRequest, QuorumFailed, WritesRefused
from chord.net.handlers import handles
from chord.net.steps import IF_WANTED, Steps
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.conditional import ConditionalCopies, UntilDecided
from chord.replication.effects import Commit, Durable, ending
from chord.replication.quorum import KeyTarget, Quorums
from chord.replication.read import QuorumReads
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.records import EarlyPut, Records, Remarks
from chord.replication.write import ReplicatedWrite
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.wire.messages import DecideQuarantine, Merge, Put, Record, StoreCoveringReply, Written

EARLY_PAUSE_MIN_S: Final = 1.0
EARLY_PAUSE_MAX_S: Final = 600.0
"""The wait before the next early put after two with unknown outcomes in a row. It doubles with each further one.

Each of them adds an actor to a record. If the disks of the replicas are slow for long, all of them would.
"""

RecordChange: TypeAlias = Callable[[Record | None], tuple[Record, Batch, Remarks]]
"""Makes a new record from the merge of the copies that were read; None if none was read or found.

It returns the record, the batch of changes that stores the record, and remarks for the reply. The batch may carry a new
dot (the unique name of a write). So the coordinator must stage the batch at once.
"""

Write: TypeAlias = Put | Merge | DecideQuarantine


class Coordinator:
    """Coordinates reads and writes of one vnode's keys.

    Args:
        vnode: the vnode.
        records: makes the changes of this node's store.
        repair: knows which replicas are in sync, and notes the replicas that miss a write.
        log_sync: syncs the reap logs with replicas.

    Attributes:
        reads: coordinates the reads.
    """

    __slots__ = (
        "_early_unknown", "_host", "_log_sync", "_no_early_before", "_quorum", "_records", "_repair", "_vnode", "reads"
    )  # fmt: skip

    def __init__(self, vnode: Vnode, records: Records, repair: AntiEntropy, log_sync: ReapLogSync) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._repair = repair
        self._quorum = Quorums(vnode)
        self._log_sync = log_sync
        self._early_unknown = 0  # early puts with unknown outcomes in a row
        self._no_early_before = 0.0
        self.reads = QuorumReads(vnode, records, self._quorum, repair, log_sync)

    @handles(Put)
    def put(self, request: Put) -> Steps[Written]:
        """Write a key: durably on this node, and on the other replicas.

        A put without a context needs one round if `_is_early` holds, and otherwise reads first. A put with a context
        usually needs no read.

        A version that is durable here is sent to the other replicas even if the caller gives up. A version on one node
        only would surprise later readers.

        Raises:
            InvalidRequest, VersionConflict, WritesRefused: definite; see `Records.to_put`.
            ClocksDiffer: definite; see `Records.check`.
            NotOwner, Busy: definite; this vnode does not coordinate the key, or the key's arc is changing hands.
            TooFewReplicas: definite; too few nodes can take the write.
            OwnerDown, RecordDamaged, Busy: definite; unread copies may hold versions that the write should replace.
            Overloaded: definite; too many bytes wait for the disk.
            RemoteFailure: indefinite; the disk failed, see `Storage.commit`.
            QuorumFailed: indefinite; too few nodes acknowledged it.
        """
        target = self._quorum.target(request.key)
        self._records.check(request)
        return self._put_early(request, target) if self._is_early(request, target) else self._put(request, target)

    def put_in_batch(self, request: Put) -> Steps[Written]:
        """Write one key of a batch; as `put`, but never as an early put.

        A read before the write costs little here, because the reads of all items share frames.
        """
        target = self._quorum.target(request.key)
        self._records.check(request)
        return self._put(request, target)

    def _put(self, request: Put, target: KeyTarget) -> Steps[Written]:
        change = partial(self._records.to_put, request)
        return self._write(request, target, change, must_read=self._must_read(request))

    @handles(DecideQuarantine)
    def decide(self, request: DecideQuarantine) -> Steps[Written]:
        """Carry out an operator's decision about the quarantined values of a key.

        These are old values that readers do not see, because no store vouches for them (`chord/store/quarantine.py`).

        Raises:
            ChordError: see `put` and `Records.to_decide`.
        """
        target = self._quorum.target(request.key)
        change = partial(self._records.to_decide, request)
        return self._write(request, target, change, must_read=True)

    @handles(Merge)
    def merge(self, request: Merge) -> Steps[Written]:
        """Merge a record of a backup into the replicas of its key.

        Raises:
            ChordError: see `put` and `Records.to_restore`.
        """
        if wrong := versions.check(request.record):
            raise InvalidRequest(f"not a record: {wrong[0]}")
        target = self._quorum.target(request.record.key)
        must_read = bool(request.op_id) or not self._vnode.is_in_sync(target.point)
        change = partial(self._records.to_restore, request)
        return self._write(request, target, change, must_read=must_read)

    def _write(self, request: Write, target: KeyTarget, change: RecordChange, *, must_read: bool) -> Steps[Written]:
        strict = isinstance(request, Put) and request.strict
        needed = self._quorum.needed_to_write(request.w, target.replicas)
        self._quorum.require_reachable(target.replicas, needed, strict)
        held, is_sloppy = None, False
        if must_read and len(target.replicas.members) > 1:
            held, is_sloppy = yield from self._read_first(target, strict)
        if target.key in self._records.undecided.keys:  # now, and not before the read
            yield from self._until_decided(target)
        yield IF_WANTED
        if self._host.is_ending:
            raise ending()
        record, batch, remarks = change(held)
        seen = self._host.reap_log.seen_of(record.key)  # of the moment when the record was made
        try:
            yield Commit(self._host.storage, batch)  # durable here before any other node learns the new dot
        except WritesRefused as error:
            raise WritesRefused(f"{self._host.address}: {error.message}") from None
        self._host.counters["puts"] += isinstance(request, Put)
        if not (record.clock or record.quarantine):  # nothing of a merged record was live, so there is no copy to send
            return Written(b"", self._vnode.me, 0, 0, is_sloppy, dead=remarks.dead, decided=remarks.decided)
        written = yield from self._replicate(request, target, record, seen, needed)
        is_sloppy = is_sloppy or written.is_sloppy
        return msgspec.structs.replace(written, dead=remarks.dead, decided=remarks.decided, is_sloppy=is_sloppy)

    # -- early puts -----------------------------------------------------------------------------

    def _is_early(self, request: Put, target: KeyTarget) -> bool:
        """Return whether a put may be sent before it is stored here; see `replication/conditional.py`.

        This vnode must own the key and be in sync, so that its copy counts for a read quorum of two. Some other member
        must be reachable and in sync, as far as this vnode knows. After unknown outcomes there is a pause.
        """
        if request.context is not None or request.is_retry or self._host.is_ending:
            return False
        if self._no_early_before and trio.current_time() < self._no_early_before:
            return False
        replicas, point, vnode = target.replicas, target.point, self._vnode
        if self._quorum.needed(0, replicas) != 2 or not vnode.is_in_sync(point) or not vnode.ownership.is_owner(point):
            return False
        members = vnode.reachable(replicas.members)
        return target.me in members and len(self._repair.in_sync_among(members, point)) > 1

    def _put_early(self, request: Put, target: KeyTarget) -> Steps[Written]:
        """Write a key in one round if its record permits that; see `replication/conditional.py`."""
        host, key = self._host, target.key
        needed = self._quorum.needed_to_write(request.w, target.replicas)
        self._quorum.require_reachable(target.replicas, needed, request.strict)
        early = self._records.begin_early(request)
        if early is None:
            return (yield from self._put(request, target))
        copies = ConditionalCopies(early.record, early.seen)
        writing = self._replicated(request, target.replicas, early.record, early.seen)
        try:
            yield writing.try_members(copies)
            copies.is_in_doubt |= writing.is_awaited
            self._require_decidable(target, early, copies)
            if copies.reply is None or not copies.reply.is_stored:
                return (yield from self._replace_early(request, target, needed, early, copies.reply))
            host.counters["early_stored"] += 1
            mine = host.storage.get(key)
            merged = early.record if mine is None or mine == early.old else versions.sync(mine, early.record)
            self._records.note_write(key)
            is_durable = host.storage.stage(Batch(puts=(merged,), minted={key: early.dot.actor}))
            self._records.end_early(early, is_given_up=False)
            if not is_durable:
                yield Durable(host.storage)
            host.counters["puts"] += 1
            if not request.w:
                needed = max(needed, self._quorum.needed(0, self._vnode.replica_set(target.point)))
            return (yield from writing.send(needed))
        except ChordError as error:
            self._records.end_early(early, is_given_up=True)
            if isinstance(error, IndefiniteError):
                raise
            raise QuorumFailed(f"not known to be stored: {error.message:.400}") from None

    def _require_decidable(self, target: KeyTarget, early: EarlyPut, copies: ConditionalCopies) -> None:
        """Refuse to go on with an early put if its outcome is unknown, or if this node has changed meanwhile.

        Raises:
            ChordError: the outcome is unknown, even if the error is a definite one.
        """
        if self._host.is_ending:
            raise ending()
        if copies.reply is None and copies.is_in_doubt:
            self._host.counters["early_undecided"] += 1
            if self._early_unknown:
                doublings = min(self._early_unknown - 1, 10)
                pause_s = min(EARLY_PAUSE_MIN_S * 2**doublings, EARLY_PAUSE_MAX_S)
                self._no_early_before = trio.current_time() + pause_s
            self._early_unknown += 1
            raise QuorumFailed("no other replica answered in time")
        if self._early_unknown:
            self._early_unknown, self._no_early_before = 0, 0.0
        self._vnode.require_coordinator(target.point)
        if self._host.reap_log.seen_of(target.key) != early.seen:
            raise Busy("records were reaped while the write was sent", after_ms=RETRY_MS)

    def _replace_early(
        self, request: Put, target: KeyTarget, needed: int, early: EarlyPut, reply: StoreCoveringReply | None
    ) -> Steps[Written]:
        """Replace the version of an early put, which does not cover a read quorum, by a second version.

        If the read quorum knows the put, no second version is made, and the actor is given up.

        Args:
            request: the put.
            target: the key.
            needed: see `_replicate`.
            early: the first version. Any member may have stored it.
            reply: the reply with the copy of another member; None if every member refused. Then a quorum is read.

        Raises:
            ChordError: the outcome is unknown, even if the error is a definite one.
        """
        host, is_sloppy, held = self._host, False, None if reply is None else reply.record
        host.counters["early_refused" if reply is None else "early_differs"] += 1
        if reply is None:
            held, is_sloppy = yield from self._read_first(target, request.strict)
            if host.is_ending:
                raise ending()
        record, batch, _ = self._records.to_put(request, held, early.dot)
        seen = host.reap_log.seen_of(target.key)
        is_durable = host.storage.stage(batch)
        self._records.end_early(early, is_given_up=not batch.minted)
        if not is_durable:
            yield Durable(host.storage)
        host.counters["puts"] += 1
        written = yield from self._replicate(request, target, record, seen, needed)
        return msgspec.structs.replace(written, is_sloppy=is_sloppy or written.is_sloppy)

    def _until_decided(self, target: KeyTarget) -> Steps[None]:
        """Wait until no early put of a key is undecided, just before a version of the key is made.

        A version that was made earlier would not cover the early put.

        Raises:
            Busy: definite; records of the key's slice were reaped meanwhile.
            ChordError: definite; this vnode no longer coordinates the key, see `Vnode.require_coordinator`.
        """
        undecided, key = self._records.undecided, target.key
        seen = self._host.reap_log.seen_of(key)
        while key in undecided.keys:
            yield UntilDecided(undecided, key)
        self._vnode.require_coordinator(target.point)
        if self._host.reap_log.seen_of(key) != seen:
            raise Busy("records were reaped while the write waited", after_ms=RETRY_MS)

    # -- reading and replicating ----------------------------------------------------------------

    def _read_first(self, target: KeyTarget, strict: bool) -> Steps[tuple[Record | None, bool]]:
        """Read the versions that a write replaces from a read quorum.

        If fewer answers than a read quorum are from replicas in sync, unreachable replicas may hold versions that the
        write cannot replace. Then the write counts as sloppy if it is not strict, and this vnode is in sync. Otherwise
        all nodes that may hold the key are asked.

        Returns:
            The merge of all copies, this node's included, or None without copies; and whether the write is sloppy.

        Raises:
            ChordError: see `QuorumReads.read` and `QuorumReads.ask_everyone`.
            Busy: definite; records of the key's slice were reaped during the read.
        """
        is_sloppy, needed = False, self._quorum.needed(0, target.replicas)
        reading = yield from self.reads.read(target, needed)
        target = target._replace(verdict=self._vnode.require_coordinator(target.point))  # may have changed meanwhile
        if not reading.has(needed):
            if self._vnode.is_in_sync(target.point) and not strict:
                is_sloppy = True  # versions on unreachable replicas may stay beside the new one
            else:  # replicas that are not in sync may lack an acknowledged write
                yield from self.reads.ask_everyone(reading, target, until_found=False)  # ends only if still the owner
        if reading.record is not None and reading.seen != self._host.reap_log.seen_of(target.key):
            raise Busy("records were reaped while the key was read", after_ms=RETRY_MS)
        return reading.record, is_sloppy

    def _replicate(self, request: Write, target: KeyTarget, record: Record, seen: bytes, needed: int) -> Steps[Written]:
        """Send a record that is durable here to the other replicas, until enough have it.

        Args:
            request: the write.
            target: the key.
            record: the record.
            seen: digest of the reap-log entries that this store had applied when the record was made.
            needed: the number of nodes that must have the record, this node included. If the request leaves W open, a
                replica set that has grown raises this number.

        Raises:
            QuorumFailed: see `ReplicatedWrite.send`.
        """
        replicas = self._vnode.replica_set(target.point)  # may have changed meanwhile
        if not request.w:
            needed = max(needed, self._quorum.needed(0, replicas))
        return self._replicated(request, replicas, record, seen).send(needed)

    def _replicated(self, request: Write, replicas: ReplicaSet, record: Record, seen: bytes) -> ReplicatedWrite:
        me, put = self._quorum.here(replicas) or self._vnode.me, request if isinstance(request, Put) else None
        return ReplicatedWrite(self._vnode, me, replicas, record, seen, self._repair, self._log_sync, put=put)

    def _must_read(self, request: Put) -> bool:
        """Return whether the coordinator must read other replicas before a put.

        It must if the put's context (the versions that its client has read) covers versions that this node does not
        know. It must if an earlier attempt may have stored the put. It also must if `context` is None: then the put
        replaces all versions that a read quorum holds.
        """
        if request.context is None or request.is_retry:
            return True
        mine = self._host.storage.get(request.key)
        known = {} if mine is None else versions.context_of(mine)
        covered = versions.decode_context(request.context)
        return any(known.get(actor, 0) < count for actor, count in covered.items())

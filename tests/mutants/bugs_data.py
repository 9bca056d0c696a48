"""Mistakes about replicas, quorums and versions."""

from __future__ import annotations

from collections.abc import Callable

from chord.membership.rejoin import Rejoin
from chord.replication.coordinator import Coordinator
from chord.replication.handoff import Handoff
from chord.replication.read import QuorumReads, Reading
from chord.replication.records import Records
from chord.replication.transfer_source import TransferSender
from chord.replication.write import ReplicatedWrite
from chord.ring.vnode import Vnode
from chord.store import versions
from chord.store.database import StoreSummary
from chord.store.reap_log import ReapLog
from chord.store.sqlite import SqliteStorage
from chord.wire.messages import Put

from . import scenes_data as scenes
from .mutant import Edit, Mutant, Swap


def _reading_for_contexts_alone(must_read: Callable[..., bool]) -> Callable[..., bool]:
    def reading(self: Coordinator, request: Put) -> bool:
        return request.context is not None and not request.is_retry and must_read(self, request)

    return reading


MUTANTS = (
    Mutant(
        "one node counted twice",
        "a write is acknowledged although one node has it",
        (
            Edit(ReplicatedWrite.send, "& self._counted) >= needed", "& self._counted) + 1 >= needed"),
            Edit(ReplicatedWrite._written, "w = len(", "w = 1 + len("),
        ),
        scenes.joins_leaves_and_crashes,
        4,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "a sent write counts as stored",
        "a write is acknowledged while it is on its way",
        (
            Edit(
                ReplicatedWrite._store,
                "sent = trio.current_time()",
                "sent = trio.current_time()\n    self.stored[contact] = None",
            ),
        ),
        scenes.joins_leaves_and_crashes,
        4,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "plain version vector",
        "of two concurrent writes through one node one is gone",
        (Edit(versions.put, "(version, *values)", "(version,)"),),
        scenes.replicated,
        4,
        ("oracle: misread",),
    ),
    Mutant(
        "a put reads nothing first",
        "writes of others while the coordinator was away stand beside the value of the put",
        (Swap(Coordinator, "_must_read", _reading_for_contexts_alone),),
        scenes.owner_writes_what_it_missed,
        4,
        ("oracle: replaced",),
    ),
    Mutant(
        "a put during an alarm reads nothing first",
        "the same mistake as *a put reads nothing first*, in a ring that is whole before the alarm is over",
        (Swap(Coordinator, "_must_read", _reading_for_contexts_alone),),
        scenes.owner_writes_what_it_missed_during_an_alarm,
        16,
        ("oracle: replaced",),
    ),
    Mutant(
        "one actor for all key epochs",
        "a node that gave a key away and coordinates it again mints its dots again",
        (Swap(Records, "new_actor", lambda new: lambda self, **_: versions.actor(self._host.storage.incarnation, 0)),),
        scenes.bad_record,
        4,
        ("oracle: dots", "oracle: misread", "oracle: lost"),
    ),
    Mutant(
        "a put after a bad record",
        "a dot of the damaged record is minted again",
        (
            Edit(
                SqliteStorage.minted,
                "row = self._rows.row(self._rows.place(key))",
                "row = self._rows.row(place := self._rows.place(key)) or self._file.row(place)",
            ),
        ),
        scenes.bad_record,
        4,
        ("oracle: dots", "oracle: misread", "oracle: lost"),
    ),
    Mutant(
        "a copy overwrites the record",
        "repair writes one answer instead of the merge",
        (Swap(Records, "_synced", lambda synced: lambda self, old, record: synced(self, None, record)),),
        scenes.joins_leaves_and_crashes,
        8,
        ("oracle: lost", "oracle: misread", "oracle: dots", "copies"),
    ),
    Mutant(
        "denied without a question",
        "the new coordinator of a key missed a write of it, and denies the key",
        (Edit(QuorumReads._get, "if not self._live(reading.record):", "if False:"),),
        scenes.owner_missed_writes,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "denied by a stand-in",
        "a replica that coordinates for the owner does not know all unreachable nodes, and denies a key",
        (
            Edit(
                Vnode._stands_in_for,
                """!= own.start:
        return False
    before: list[Place] = []
    for place in self.replica_set(key).members:
        if place.contact == self.me:
            return bool(before)""",
                """== key:
        return False
    before: list[Place] = []
    for place in self.replica_set(key).members:
        if place.contact == self.me:
            return True""",
            ),
            Edit(
                QuorumReads._require_deniable,
                "if not self._vnode.ownership.is_owner(self._host.circle.hash(reading.key)):",
                "if False:",
            ),
            Edit(Reading.add, "if not is_in_sync:", "if False:"),
        ),
        scenes.replicas_die_in_a_row,
        4,
        ("oracle: denied",),
    ),
    Mutant(
        "coordinated before it is a member",
        "a returned owner writes to no other node, because it knows none yet",
        (
            Swap(Vnode, "_require_view", lambda require: lambda self: None),
            Swap(Rejoin, "_remember", lambda remember: lambda self, successors, states: set()),  # or W stays right
        ),
        scenes.owner_is_back,
        4,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "hint dropped before the member has the record",
        "one replica has it, and the others are believed to",
        (Edit(Handoff._hand_to, "for contact in confirmed.holders:", "for contact in confirmed.holders[:1]:"),),
        scenes.joins_leaves_and_crashes,
        24,
        ("oracle: dropped", "copies"),
    ),
    Mutant(
        "dropped after too few confirmations",
        "records that all replicas but one had are gone when that one is gone",
        (Swap(Handoff, "_is_lone", lambda is_lone: lambda self, confirmed: not confirmed.holders),),
        scenes.leave_with_one_reachable_replica,
        4,
        ("oracle: dropped",),
    ),
    Mutant(
        "sums without tombstones",
        "a replica that missed a delete counts as equal",
        (
            Edit(
                StoreSummary.change,
                "if old is not None or new is not None:",
                "if new is None or new.value_bytes:",
            ),
        ),
        scenes.deletes_are_missed,
        4,
        ("copies", "liveness"),
    ),
    Mutant(
        "too few reported as a failure",
        "a client gets the answer that nothing happened, although the write happened",
        (
            Edit(
                ReplicatedWrite._written, 'QuorumFailed(f"stored on', '__import__("chord").errors.NotReady(f"stored on'
            ),
        ),
        scenes.too_few_answer,
        8,
        ("oracle: misread",),
    ),
    Mutant(
        "merged without a check of the reap logs",
        "a replica that was away brings back a deleted value",
        (
            Edit(ReapLog.require_same_entries, "if not seen and not self._known():", "if True:"),
            Edit(ReapLog.digest_in, "if not found:", "if True:"),
        ),
        scenes.deleted_while_away,
        4,
        ("oracle: dropped", "oracle: misread"),
    ),
    Mutant(
        "trimmed entries counted as seen",
        "a replica that was away for longer than the log reaches brings back a deleted value",
        (
            Edit(ReapLog.claims, "if entry.versions and not", "if False and not"),
            Edit(ReapLog.catch_up, "if decided is not record:", "if False:"),
        ),
        scenes.deleted_while_away_and_trimmed,
        4,
        ("oracle: dropped", "oracle: misread"),
    ),
    Mutant(
        "deleted values back in scans",
        "the same mistake as *trimmed entries counted as seen*: a scan that says it is complete shows deleted values",
        (
            Edit(ReapLog.claims, "if entry.versions and not", "if False and not"),
            Edit(ReapLog.catch_up, "if decided is not record:", "if False:"),
        ),
        scenes.deleted_while_away_and_scanned,
        4,
        ("oracle: misread",),
    ),
    Mutant(
        "joiner without log for an empty arc",
        "a node that gets an arc without records does not get its reap log, and a deleted value is back",
        (
            Edit(TransferSender.sync_logs, "while self._host.reap_log.slices_in(arc):", "while False:"),
            Swap(Handoff, "is_done", lambda is_done: lambda self: not self.count()),
        ),
        scenes.reaped_and_handed_over,
        8,
        ("oracle: dropped", "oracle: misread"),
    ),
)

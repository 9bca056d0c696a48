"""Mistakes that passed while each key had one writer, or while an excuse was too wide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from chord.ids import Arc, Point
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.coordinator import Coordinator
from chord.replication.quorum import Quorums
from chord.replication.read import QuorumReads, Reading
from chord.replication.records import Records
from chord.ring.ownership import Ownership
from chord.ring.takeover import Takeover
from chord.ring.vnode import Vnode
from chord.store import reap_log, versions
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import EPOCH_AT
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch
from chord.wire.messages import Record

from . import scenes_data as scenes
from .mutant import Edit, Mutant, Swap


def _emptied(open_: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def emptied(self: SqliteStorage) -> None:
        await open_(self)
        gone = [record.key for record in self.scan(Arc(Point(0), Point(0)))]
        await self.commit(Batch(removals=gone))

    return emptied


def _without_quarantine(isolate: Callable[..., Record]) -> Callable[..., Record]:
    def without(record: Record, actors: Iterable[bytes]) -> Record:
        return msgspec.structs.replace(isolate(record, actors), quarantine=record.quarantine)

    return without


def _above_a_known_floor(is_above: Callable[..., bool]) -> Callable[..., bool]:
    def above(actor: bytes, floors: Mapping[bytes, int]) -> bool:
        return actor[:EPOCH_AT] in floors and is_above(actor, floors)

    return above


MUTANTS = (
    Mutant(
        "record made before a wait",
        "of two writes at the same moment one is lost, and both have one dot",
        (
            Edit(
                Coordinator._write,
                "yield Commit(self._host.storage, batch)",
                "yield Commit(self._host.storage, Batch()); yield Commit(self._host.storage, batch)",
            ),
        ),
        scenes.shared_keys,
        40,
        ("oracle: dots", "oracle: misread", "oracle: lost", "oracle: acknowledged"),
    ),
    Mutant(
        "get answered from one copy",
        "a read of R copies rests on one",
        (Edit(QuorumReads.begin_get, "self._quorum.needed(request.r, target.replicas)", "1"),),
        scenes.shared_keys,
        40,
        ("oracle: quorum",),
    ),
    Mutant(
        "default writes refused",
        "a write that names no W is refused, whatever the state of the ring",
        (Edit(Quorums.needed_to_write, "needed > len(replicas.members)", "needed > 0"),),
        scenes.power_cuts,
        40,
        ("oracle: refused",),
    ),
    Mutant(
        "get answered by the coordinator alone",
        "a read says that R copies had to answer, and rests on one",
        (Edit(QuorumReads._get, "self.read(target, needed)", "self.read(target, 1)"),),
        scenes.shared_keys,
        40,
        ("oracle: quorum",),
    ),
    Mutant(
        "put acknowledged by one",
        "a write that asks for W copies is acknowledged with one",
        (Swap(Quorums, "needed_to_write", lambda needed: lambda self, asked, replicas: 1),),
        scenes.shared_keys,
        40,
        ("oracle: acknowledged",),
    ),
    Mutant(
        "reader believes its own copy",
        "a read returns the copy of its coordinator, whatever the others answer",
        (
            Edit(
                Reading.add,
                "record if self.record is None else versions.sync(self.record, record)",
                "self.record or record",
            ),
        ),
        scenes.owner_reads_what_it_missed,
        8,
        ("oracle: misread",),
    ),
    Mutant(
        "store emptied at a restart",
        "with one lost disk a write is gone that several disks had",
        (Swap(SqliteStorage, "open", _emptied),),
        scenes.one_disk_is_lost,
        40,
        ("oracle: lost", "oracle: dropped"),
    ),
    Mutant(
        "denied after down_out_s",
        "keys are denied when all their replicas are down for longer than `down_out_s`; a scenario of these deaths",
        (Edit(AntiEntropy._is_given_up, "if any(self._host.peers.passive.contacts()):", "if False:"),),
        scenes.away_for_long,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "denied without the unreachable replicas",
        "a node denies a key that unreachable nodes may hold",
        (Swap(QuorumReads, "_require_deniable", lambda require: lambda self, *read: None),),
        scenes.power_cuts,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "unreachable nodes given up in a long absence",
        "the same mistake as *denied after down_out_s*, in drawn runs with splits: a part of a long split, "
        "or living nodes without the replicas, deny keys",
        (Edit(AntiEntropy._is_given_up, "if any(self._host.peers.passive.contacts()):", "if False:"),),
        scenes.absences,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "undecided values dropped",
        "a value that no node vouches for is gone, instead of in quarantine",
        (Swap(versions, "isolate", _without_quarantine),),
        scenes.absences_and_trims,
        40,
        ("oracle: lost", "oracle: misread", "oracle: dropped", "oracle: denied"),
    ),
    Mutant(
        "quarantine without a trimmed log",
        "a returned node hides values that only it has, although the reap logs of the others are whole",
        (
            Swap(ReapLog, "is_in_reach", lambda is_in_reach: lambda self, log: False),
            Swap(reap_log, "_is_above", _above_a_known_floor),
        ),
        scenes.absences,
        40,
        ("oracle: quarantine",),
    ),
    Mutant(
        "only copy given up",
        "keys of the dead owner of the only copy are denied when it is down for longer than `down_out_s`",
        (Edit(Takeover._wait_no_longer, "if self._host.constants.replicas > 1", "if True"),),
        scenes.only_copies_are_away,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "returned owner not asked",
        "keys of the owner of the only copy are denied when it is back and has not brought the copy home yet",
        (Edit(AntiEntropy._fetch_arc, "await self._replica_sync.pull(owner, mark.arc)", "pass"),),
        scenes.owners_of_only_copies_are_back,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "only copies in a part taken over forgotten",
        "keys that a dead owner wrote in a part of an earlier dead owner are denied when the earlier one is back",
        (Edit(Ownership.take_over, "low if had_only_copies else contact.id", "contact.id"),),
        scenes.owners_of_only_copies_died_in_turn,
        8,
        ("oracle: denied",),
    ),
    Mutant(
        "scan without the dead owner of the only copies",
        "a scan says that it is complete, and lacks all records of a dead node",
        (Swap(AntiEntropy, "unreachable", lambda unreachable: lambda self: ()),),
        scenes.only_copies_are_away,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "denied without a question, after an alarm",
        "the same mistake as *denied without a question*, in a ring that is whole again after an alarm",
        (Edit(QuorumReads._get, "if not self._live(reading.record):", "if False:"),),
        scenes.after_an_alarm,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "values expire too early",
        "a value is gone before its time to live is over",
        (Swap(versions, "is_live", lambda is_live: lambda version, now_ms: is_live(version, now_ms + 1000)),),
        scenes.values_that_expire,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "expired values are shown",
        "a value is read although its time to live is over",
        (Swap(versions, "is_live", lambda is_live: lambda version, now_ms: is_live(version, now_ms - 1000)),),
        scenes.values_that_expire,
        40,
        ("oracle: misread",),
    ),
    Mutant(
        "scan leaves out a record",
        "a scan that says that it is complete lacks a record",
        (Edit(Records.page, "scan(arc, after=after)", "list(scan(arc, after=after))[1:]"),),
        scenes.all_is_scanned,
        40,
        ("oracle: denied",),
    ),
    Mutant(
        "scan shows replaced values",
        "a scan that says that it is complete shows the first values that it ever saw",
        (
            Edit(
                Records.page,
                "self.pack(scan(arc, after=after), limit)",
                "self.pack([vars(self._host).setdefault(one.key, one) for one in scan(arc, after=after)], limit)",
            ),
        ),
        scenes.all_is_scanned,
        40,
        ("oracle: misread", "oracle: denied"),  # the first record may be a tombstone
    ),
    Mutant(
        "W shrinks when nodes die",
        "a write is acknowledged by fewer nodes than a quorum because the others are dead",
        (Edit(Vnode.nodes_known, "self.host.nodes_known()", "set[str]()"),),
        scenes.two_of_three_are_dead,
        40,
        ("oracle: acknowledged",),
    ),
)

"""Quorum reads: ask R replicas, merge their copies by version, repair stale ones.

*Not found* is never a guess. An acknowledged write is on a write quorum of the nodes that may hold the key
(`Vnode.may_hold`). So the coordinator denies an absent key only under two conditions:

- Fewer than a write quorum of these nodes are unreachable, or new and not in sync yet.
- All other nodes have answered that they hold nothing.

Repairs run in the background, and never mint dots.

Source: DeCandia et al. 2007 (Dynamo), sections 4.5 and 4.7; Demers et al. 1987 on repairs.
"""

from __future__ import annotations

from functools import partial

import trio

from chord.errors import Behind, Busy, ChordError, MalformedMessage, OwnerDown, RecordDamaged, TooFewReplicas
from chord.ids import Arc, Point
from chord.net.handlers import handles
from chord.net.steps import Steps
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.effects import Ask, InTask
from chord.replication.fanout import Fanout
from chord.replication.quorum import KeyTarget, Quorums
from chord.replication.reap_log_sync import ReapLogSync
from chord.replication.records import Records
from chord.replication.replica import parts_of
from chord.ring.ownership import OwnerVerdict
from chord.ring.preference_list import Place, ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store import quarantine, versions
from chord.store.merkle import VERSION_BYTES, digest_of
from chord.wire.messages import (
    Contact,
    Done,
    Get,
    GetQuarantine,
    GetQuarantineReply,
    GetReply,
    ReadCopy,
    ReadCopyReply,
    ReadDigest,
    ReadDigestReply,
    Record,
    ReplicaLine,
    SliceLog,
    StoreCopies,
    Version,
)


class Reading:
    """One read of a key: the answers of its *holders*, the nodes that may have a copy.

    Args:
        key: the key.
        seen: digest of the reap-log entries that the reader has durably applied to the key's slice. A copy from a store
            that has applied other entries does not count.

    Attributes:
        record: the merge of all copies; None if no holder has one.
        copies: the copy of each holder that answered, the reader's own copy first; None for a holder without a copy.
        out_of_sync: the holders that answered and are not in sync.
        damaged: the holders with a damaged copy. They are also in `out_of_sync`.
        behind: the holders that have applied other entries of the reap log. Their answers do not count.
        logs: the logs of holders that the reader applies in memory only, because its disk takes no writes.
        rtt_ms: the round-trip time to each other holder that answered, in ms.
    """

    def __init__(self, key: bytes, seen: bytes = b"") -> None:
        self.key = key
        self.seen = seen
        self.behind: dict[Contact, None] = {}
        self.logs: list[SliceLog] = []
        self.record: Record | None = None
        self.copies: dict[Contact, Record | None] = {}
        self.out_of_sync: dict[Contact, None] = {}
        self.damaged: dict[Contact, None] = {}
        self.rtt_ms: dict[Contact, float] = {}
        self._digests: dict[int, tuple[Record, bytes]] = {}  # by identity: most copies are the same object

    def takes(self, record: Record) -> bool:
        """Return whether a record may be added: it is sound, and has this read's key."""
        return record.key == self.key and versions.is_sound(record)

    def add(
        self,
        contact: Contact,
        record: Record | None,
        is_in_sync: bool,
        *,
        is_damaged: bool = False,
        digest: bytes = b"",
    ) -> None:
        """Add the answer of one holder, and merge its copy, `record`, into the attribute `record`.

        The flags say whether the holder is in sync, and whether its copy is damaged. `digest` is the digest of the
        copy, or empty if the caller does not know it.
        """
        self.copies[contact] = record
        if record is not None and digest:
            self._digests[id(record)] = record, digest
        self.behind.pop(contact, None)
        if is_damaged:
            self.damaged[contact] = None
        if not is_in_sync:
            self.out_of_sync[contact] = None
        if record is not None:
            self.record = record if self.record is None else versions.sync(self.record, record)

    def has(self, needed: int) -> bool:
        """Return whether at least `needed` replicas in sync have answered."""
        return len(self.copies) - len(self.out_of_sync) >= needed

    def read_ahead(self, log: SliceLog, record: Record | None, seen: bytes) -> list[Contact]:
        """Discard other nodes' answers, as if the reader had applied one more reap log.

        The disk of the reader takes no writes, so the log is applied to this reading only.

        Args:
            log: the log of another holder.
            record: the reader's copy after the log; None if nothing is left of it.
            seen: the reader's digest of applied entries after the log.

        Returns:
            The nodes that must answer again, because they answered under the old log.
        """
        me, *dropped = self.copies
        self.copies, self.record = {me: record}, record
        self.out_of_sync = {contact: None for contact in self.out_of_sync if contact == me}
        self.behind.update(dict.fromkeys(dropped))
        self.seen = seen
        self.logs.append(log)
        return dropped

    @property
    def is_ahead(self) -> bool:
        """Whether `seen` includes logs that the reader's store has not applied."""
        return bool(self.logs)

    @property
    def own(self) -> Record | None:
        """The reader's own copy; None if it has none."""
        return next(iter(self.copies.values()), None)

    def stale(self, contacts: list[Contact]) -> list[Contact]:
        """Return those of some nodes that answered without a copy, or with a copy other than the merge."""
        best = self.digest(self.record)
        return [contact for contact in contacts if self.digest(self.copies.get(contact, self.record)) != best]

    def line(self, place: Place, is_member: bool) -> ReplicaLine:
        """Return how one node took part in this read; `is_member` says whether it is a member of the replica set."""
        contact = place.contact
        if contact not in self.copies:
            return ReplicaLine(contact, "unreachable", False)
        mine = self.digest(self.copies[contact])
        outcome = "ok" if mine == self.digest(self.record) and mine else "stale" if mine else "absent"
        return ReplicaLine(contact, outcome, is_member, self.rtt_ms.get(contact), mine[:VERSION_BYTES])

    def copy_id(self, digest: bytes) -> bytes:
        """Return bytes that only equal copies at nodes with equal reap-log entries share, for a comparison by clients.

        `digest` is the digest of the copy. Without a copy, `digest` and the result are empty.
        """
        return digest + self.seen if digest else b""

    def digest(self, record: Record | None) -> bytes:
        """Return the digest of a copy; empty if `record` is None (there is no copy)."""
        if record is None:
            return b""
        if id(record) not in self._digests:
            self._digests[id(record)] = record, digest_of(record)
        return self._digests[id(record)][1]


class QuorumReads:
    """Coordinates the reads of one vnode's keys.

    Args:
        vnode: the vnode.
        records: merges repaired records into this node's store.
        quorum: decides how many replicas must answer.
        repair: knows which replicas are in sync.
        log_sync: syncs the reap logs with replicas that have applied other entries.
    """

    def __init__(
        self, vnode: Vnode, records: Records, quorum: Quorums, repair: AntiEntropy, log_sync: ReapLogSync
    ) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._quorum = quorum
        self._repair = repair
        self._log_sync = log_sync
        self._repairing: dict[bytes, None] = {}

    @handles(Get)
    def get(self, request: Get) -> GetReply | Steps[GetReply]:
        """Read a key from R replicas; return the reply, or the steps that return it. See `begin_get`."""
        return self.begin_get(request, is_in_batch=False)

    def begin_get(self, request: Get, *, is_in_batch: bool) -> GetReply | Steps[GetReply]:
        """Read a key from R replicas.

        Return the answer at once if this node's copy is in sync and has a live value, and no other node need be asked.
        That is so if R is 1, or if the client asks the partners itself. Otherwise return the steps of a read.

        Args:
            request: the request.
            is_in_batch: whether it is an item of a batch. Then the reply names no partners, because a client asks the
                owner itself for the items of a batch.

        Raises:
            NotOwner, Busy: see `Vnode.require_coordinator`.
            InvalidRequest: definite; R exceeds N.
            TooFewReplicas: definite; fewer than R replicas exist or answer.
            OwnerDown, RecordDamaged, Busy: definite; no live value was found, and other nodes may hold one.
        """
        target = self._quorum.target(request.key)
        needed = self._quorum.needed(request.r, target.replicas)
        is_half = bool(request.partners) and self._is_with(request, target, needed)
        if is_half or needed == 1:
            own = self._read_own(target.key, target.point, target.me)
            if own is not None:
                return self._answer(request, own, target.replicas, needed, is_half=is_half)
        return self._get(request, target, needed, is_in_batch=is_in_batch)

    def _get(self, request: Get, target: KeyTarget, needed: int, *, is_in_batch: bool) -> Steps[GetReply]:
        reading = yield from self.read(target, needed)
        if not self._live(reading.record):
            yield from self.ask_everyone(reading, target, until_found=True)
        self._repair_soon(reading, target.replicas)
        partners = () if is_in_batch else self._unknown_partners(request, target, needed)
        return self._answer(request, reading, target.replicas, needed, partners)

    def get_local(self, request: Get) -> GetReply | None:
        """Read a key from this node's copy alone, also if this vnode is not its coordinator; see `Get.any`.

        The result is None if the copy is not in sync, or has no live value. So no key is denied.
        """
        own = self._read_own(request.key, self._host.circle.hash(request.key), self._vnode.me)
        return None if own is None else self._answer(request, own, ReplicaSet((), ()), 1, is_local=True)

    def _read_own(self, key: bytes, point: Point, me: Contact) -> Reading | None:
        """Return a read of this node's copy alone; None if it is not in sync, or not live."""
        if not self._is_in_sync(point, key):
            return None
        record = self._host.storage.durable(key)
        if not self._live(record):
            return None
        reading = self.begin(key)
        reading.add(me, record, is_in_sync=True)
        return reading

    def _is_with(self, request: Get, target: KeyTarget, needed: int) -> bool:
        """Return whether the client asks exactly the replicas that this owner would ask.

        Replica sets have no epochs, and only the owner knows the whole set. So only the owner can say which copies are
        a read quorum. A vnode that stands in for the owner cannot, and the result is False.
        """
        if needed != 1 + len(request.partners) or not self._vnode.ownership.is_owner(target.point):
            return False
        return request.partners == tuple(partner.id for partner in self.partners(target, needed))

    def partners(self, target: KeyTarget, needed: int) -> tuple[Contact, ...]:
        """Return the `needed` - 1 other replicas that an owner asks in a read.

        The result is empty if too few reachable members are known to be in sync.
        """
        others = self._vnode.reachable(target.replicas.members, but=target.me)
        found = self._repair.in_sync_among(others, target.point)[: needed - 1]
        return tuple(found) if len(found) == needed - 1 else ()

    def _others(self, target: KeyTarget) -> list[Contact]:
        """Return the other reachable nodes of a replica set, in the order of asking.

        Members in sync come first, then other members, then stand-ins.
        """
        members = self._vnode.reachable(target.replicas.members, but=target.me)
        first = self._repair.in_sync_among(members, target.point)
        late = [] if len(first) == len(members) else [contact for contact in members if contact not in first]
        return [*first, *late, *self._vnode.reachable(target.replicas.stand_ins, but=target.me)]

    @handles(ReadDigest)
    def read_digest(self, request: ReadDigest) -> ReadDigestReply:
        """Return the `copy_id` of this replica's copy, for a quorum read that a client performs itself.

        Raises:
            Busy: definite; the client must let the owner coordinate. This replica is not in sync, or coordinates
                requests for the key, or does not count the owner among its reachable predecessors.
        """
        point, ring = self._host.circle.hash(request.key), self._vnode.ring
        owner = next((contact for contact in ring.predecessors if contact.id == request.owner), None)
        verdicts = {one.ownership.verdict(point).answer for one in self._host.vnodes.values()}
        if owner is None or verdicts & {"owned", "giving"} or self._host.peers.is_doubtful(owner):
            raise Busy("this node is no replica beside that owner", after_ms=RETRY_MS)
        if not self._is_in_sync(point, request.key):
            raise Busy("this node is not in sync yet", after_ms=RETRY_MS)
        reading = self.begin(request.key)
        return ReadDigestReply(reading.copy_id(self._host.storage.durable_digest(request.key)))

    @handles(GetQuarantine)
    def get_quarantine(self, request: GetQuarantine) -> Steps[GetQuarantineReply]:
        """Read the quarantine of a key from R replicas.

        An empty quarantine is as certain as an absent key in `get`. The reply has as many versions as fit, and counts
        the others.

        Raises:
            NotOwner, Busy, InvalidRequest, TooFewReplicas: see `get`.
            OwnerDown, RecordDamaged, Busy: definite; the answers have no quarantine, and a node that may hold one is
                missing.
        """
        target = self._quorum.target(request.key)
        needed = self._quorum.needed(request.r, target.replicas)
        reading = yield from self.read(target, needed)
        if reading.record is None or not reading.record.quarantine:
            yield from self.ask_everyone(reading, target, until_found=False)
        self._repair_soon(reading, target.replicas)
        return self._hidden(reading, needed)

    def _hidden(self, reading: Reading, needed: int) -> GetQuarantineReply:
        record = reading.record or Record(reading.key, ())
        shown = quarantine.cut(record, self._host.limits.record_bytes_max)
        return GetQuarantineReply(
            shown.quarantine,
            versions.encode_context(quarantine.context_of(shown)),
            self._vnode.me,
            left=quarantine.count(record) - quarantine.count(shown),
            r=len(reading.copies),
            r_needed=needed,
        )

    def begin(self, key: bytes) -> Reading:
        """Return a new read, for which no node has been asked yet."""
        return Reading(key, self._host.reap_log.durably_seen_of(key))

    def read(self, target: KeyTarget, needed: int) -> Steps[Reading]:
        """Ask nodes until enough replicas in sync have answered, or no node is left.

        Members in sync come first, then other members, then stand-ins, then unreachable members.

        Args:
            target: the key.
            needed: the number of replicas that must answer, in sync or not, this one included.

        Raises:
            TooFewReplicas: definite; fewer answered.
            NotReady: definite; this node is ending.
        """
        replicas, point, key = target.replicas, target.point, target.key
        reading = self.begin(key)
        own = self._host.storage.durable(key)  # before `is_damaged`: only a read finds the damage
        is_damaged = self._host.storage.is_damaged(key)
        is_in_sync = not is_damaged and self._vnode.is_in_sync(point)
        digest = self._host.storage.durable_digest(key)
        reading.add(target.me, own, is_in_sync, is_damaged=is_damaged, digest=digest)
        others = self._others(target)
        first = max(0, needed - len(reading.copies))
        fanout = Fanout(self._host, partial(self._ask, reading), others[first:])

        is_enough = partial(reading.has, needed)
        yield fanout.ask(others[:first], is_enough)
        if not is_enough() and len(replicas.members) > 1:
            # Too few replicas in sync have answered. A member that counts as unreachable may be back.
            unreachable = [place.contact for place in replicas.members if not self._vnode.is_up(place)]
            yield fanout.ask(unreachable, is_enough)
        if len(reading.copies) < needed:
            raise TooFewReplicas(f"{len(reading.copies)} of {needed} replicas answered", after_ms=RETRY_MS)
        return reading

    def ask_everyone(self, reading: Reading, target: KeyTarget, *, until_found: bool) -> Steps[None]:
        """Ask every node that may hold the key, before this node denies further versions.

        Nodes that count as down, and nodes that have answered, are not asked.

        Args:
            reading: the read so far; receives the answers.
            target: the key.
            until_found: whether a live value is enough. Then it ends the asking, and no error is raised.

        Raises:
            OwnerDown, RecordDamaged, Busy: definite; nodes that are unreachable, damaged or not in sync may hold more.
        """
        replicas = target.replicas
        places = self._vnode.may_hold(target.point, replicas)
        asked = reading.copies.keys() | {place.contact for place in places if place.is_waited_for}
        fanout = Fanout(self._host, partial(self._ask, reading))
        rest = [place.contact for place in places if place.contact not in asked]
        yield fanout.ask(rest, until=lambda: until_found and bool(self._live(reading.record)))
        own = reading.own if reading.is_ahead else self._host.storage.durable(reading.key)  # may have come meanwhile
        reading.add(target.me, own, is_in_sync=True)
        if not (until_found and self._live(reading.record)):
            self._require_deniable(reading, replicas, places, target.verdict)

    def _require_deniable(
        self, reading: Reading, replicas: ReplicaSet, places: tuple[Place, ...], verdict: OwnerVerdict
    ) -> None:
        """Refuse to deny a key that may exist.

        Args:
            reading: the finished read.
            replicas: the replica set.
            places: the nodes that were asked or are unreachable; see `Vnode.may_hold`.
            verdict: why this vnode coordinates the key.

        Raises:
            OwnerDown: definite; too many nodes are unreachable.
            RecordDamaged: definite; all nodes that may hold the key answered, and damage hides too many copies.
            Busy: definite; too many nodes are new, on their way back or ahead in the reap log, or this vnode is.
        """
        if self._vnode.ring.is_isolated and self._host.constants.replicas > 1:
            raise Busy("this node has lost all others, and does not know their records", after_ms=RETRY_MS)
        if not reading.is_ahead and self._host.reap_log.durably_seen_of(reading.key) != reading.seen:
            raise Busy("records were reaped while the key was read", after_ms=RETRY_MS)
        if not self._vnode.ownership.is_owner(self._host.circle.hash(reading.key)):
            raise Busy("a stand-in for the owner does not know all unreachable nodes", after_ms=RETRY_MS)
        members = [place.contact for place in replicas.members]
        point = self._host.circle.hash(reading.key)
        unreachable, empty = [place.contact for place in places if place.contact not in reading.copies], 0
        at_point = Arc(self._host.circle.point(point - 1), point)
        if self._vnode.ownership.is_doubtful(at_point):
            known = {contact.address for contact in unreachable}
            gone = [contact for contact in self._host.peers.passive.nodes() if contact.address not in known]
            empty = self._vnode.nodes_known(replicas) - len(members)  # places of the replica set without a member
            unreachable, empty = [*unreachable, *gone[:empty]], max(0, empty - len(gone))
        out_of_sync = [contact for contact in reading.out_of_sync if contact in members]
        missing, needed = len(unreachable) + len(out_of_sync), self._vnode.write_quorum(replicas)
        if missing + empty < needed:
            return
        if missing < needed:
            raise Busy("nodes that may hold the key are not among its replicas yet", after_ms=RETRY_MS)
        behind = [c for c in unreachable if c in reading.behind]
        unreachable = [c for c in unreachable if c not in reading.behind]
        is_passing = 0 < len(unreachable) < needed - empty and self._vnode.vouches_for(at_point) and not reading.damaged
        unreachable = unreachable or ([] if behind else list(self._vnode.waits_for_at(point)))
        down = [] if is_passing else [c for c in unreachable if not self._host.peers.is_on_its_way(c)]
        names = ", ".join(dict.fromkeys(c.address for c in down or behind or out_of_sync or unreachable))
        if not unreachable and not behind and all(contact in reading.damaged for contact in out_of_sync):
            raise RecordDamaged(f"a damaged record at {names} may be of this key, and no other node has a copy")
        if down:
            since = None if verdict.mark is None else int(1000 * (trio.current_time() - verdict.mark.since))
            raise OwnerDown(f"no answer from {names}, which may hold the key", peer=down[0], after_ms=since)
        raise Busy(f"not in sync yet: {names}", after_ms=RETRY_MS)

    def _ask(self, reading: Reading, contact: Contact) -> Steps[None]:
        """Ask one node for its copy, and add it to the reading.

        If its store has applied other entries of the reap log, sync the logs and ask once more. If that does not help,
        raise `Behind`.
        """
        if (yield from self._take_copy(reading, contact)):
            return
        can_take = yield InTask(self._host, self._sync_log, reading, contact)
        if not (can_take and (yield from self._take_copy(reading, contact))):
            reading.behind[contact] = None
            raise Behind(f"{contact.address} has applied other entries of the reap log than this node")

    def _take_copy(self, reading: Reading, contact: Contact) -> Steps[bool]:
        """Ask one node, and add its copy.

        Returns:
            False if its store has applied other entries of the reap log. Then the copy is not added.
        """
        mine, sent = reading.own, trio.current_time()
        request = ReadCopy(reading.key, reading.digest(mine))
        deadline = sent + self._host.timing.timeout_cap_s
        answer: ReadCopyReply = yield Ask(self._host.peers, contact, request, deadline)
        if answer.record is not None and not reading.takes(answer.record):
            raise MalformedMessage(f"{contact.address} answered with the record of another key, or none at all")
        if answer.seen != reading.seen and not answer.is_same:
            return False
        reading.rtt_ms[contact] = 1000 * (trio.current_time() - sent)
        record = mine if answer.is_same else answer.record
        reading.add(contact, record, answer.is_in_sync, is_damaged=answer.is_damaged)
        if not (answer.is_in_sync or answer.is_damaged):
            self._repair.lost_sync(contact, self._host.circle.hash(reading.key))
        return True

    def _answer(
        self, request: Get, reading: Reading, replicas: ReplicaSet, needed: int, partners: tuple[Contact, ...] = (),
        *, is_half: bool = False, is_local: bool = False,
    ) -> GetReply:
        self._host.counters["gets"] += 1
        record = reading.record or Record(reading.key, ())
        shown = versions.cut(record, self._host.limits.record_bytes_max)
        live = self._live(record)
        shown_live = live if shown is record else self._live(shown)
        return GetReply(
            values=tuple([version.value for version in shown_live if version.value is not None]),
            context=versions.encode_context(versions.context_of(shown)),
            owner=self._vnode.me if request.with_owner else None,
            r=len(reading.copies),
            r_needed=needed,
            replicas=self._lines(reading, replicas) if request.with_replicas else (),
            written_ms=tuple([version.written_ms for version in shown_live]),
            quarantined=quarantine.count(record) if record.quarantine else 0,
            left=len(live) - len(shown_live),
            partners=partners,
            copy=reading.copy_id(self._host.storage.durable_digest(reading.key)) if is_half else b"",
            is_local=is_local,
        )

    def _unknown_partners(self, request: Get, target: KeyTarget, needed: int) -> tuple[Contact, ...]:
        """Return the partners that the client should name in its next quorum read.

        The result is empty if the client chose R or already named them, or if one replica is enough.
        """
        if request.r or needed == 1:
            return ()
        found = self.partners(target, needed)
        return () if request.partners == tuple(partner.id for partner in found) else found

    @staticmethod
    def _lines(reading: Reading, replicas: ReplicaSet) -> tuple[ReplicaLine, ...]:
        members = [place.contact for place in replicas.members]
        taking_part = [place for place in replicas.everyone if place.is_waited_for or place.contact in reading.copies]
        return tuple(reading.line(place, place.contact in members) for place in taking_part)

    async def _sync_log(self, reading: Reading, contact: Contact) -> bool:
        """Sync the reap logs with a replica, and return whether its copy would count now.

        The copy does not count if this node's store lacked entries. Then the client has to read again.
        """
        try:
            with trio.fail_after(self._host.timing.timeout_cap_s):
                await self._log_sync.sync_slice(contact, reading.key)
        except (ChordError, trio.TooSlowError):
            self._host.counters["logs_not_synced"] += 1  # the next read, or anti-entropy, tries again
            return await self._read_ahead(reading, contact)
        return self._host.reap_log.durably_seen_of(reading.key) == reading.seen

    async def _read_ahead(self, reading: Reading, contact: Contact) -> bool:
        """Read as if this store had applied a replica's log, if this disk takes no writes.

        If it takes writes, do nothing. If replicas have applied different entries, send each the logs of the others.

        Returns:
            Whether the replica's copy would count now.
        """
        try:
            if self._host.storage.refusal:
                with trio.fail_after(self._host.timing.timeout_cap_s):
                    await self._log_sync.tell(contact, reading.logs)
                    log = await self._log_sync.log_of(contact, reading.key)
                    record, seen = self._host.reap_log.as_if_absorbed(reading.key, [*reading.logs, log])
                    if seen != reading.seen:
                        for other in reading.read_ahead(log, record, seen):
                            await self._log_sync.tell(other, [log])
        except (ChordError, trio.TooSlowError):
            return False
        return reading.is_ahead

    # -- read repair ----------------------------------------------------------------------------

    def _repair_soon(self, reading: Reading, replicas: ReplicaSet) -> None:
        """Send the merge to members that answered with another copy, in the background.

        While an earlier repair of the key runs, do nothing.
        """
        record = reading.record
        if record is None or record.key in self._repairing or self._host.is_ending:
            return
        stale = reading.stale([place.contact for place in replicas.members])
        if stale:
            self._repairing[record.key] = None
            self._host.tasks.start(self._push_to_stale, record, reading.seen, stale)

    async def _push_to_stale(self, record: Record, seen: bytes, stale: list[Contact]) -> None:
        of_it = (seen,) if seen else ()
        try:
            for contact in stale:
                with trio.move_on_after(self._host.timing.timeout_cap_s):
                    if contact.address == self._host.address:
                        await self._records.merge([record], of_it)
                    else:
                        for part in parts_of(self._host, record):
                            await self._host.peers.call(contact, StoreCopies((part,), seen=of_it), Done)
                    self._host.counters["read_repairs"] += 1
        except ChordError:
            self._host.counters["read_repairs_failed"] += 1  # anti-entropy repairs the rest
        finally:
            self._repairing.pop(record.key, None)

    # -- inside ---------------------------------------------------------------------------------

    def _is_in_sync(self, point: int, key: bytes) -> bool:
        """Return whether this node is in sync at a point, and its copy is not damaged."""
        return self._vnode.is_in_sync(point) and not self._host.storage.is_damaged(key)

    def _live(self, record: Record | None) -> list[Version]:
        """Return the versions of a record that readers see; none without a record."""
        if record is None:
            return []
        now_ms = self._host.wall_now_ms()
        return [version for version in versions.siblings(record) if versions.is_live(version, now_ms)]

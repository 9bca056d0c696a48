"""Quorum reads and writes: what the coordinator of a key does.

The owner of a key's arc coordinates; while it is silent, the next replica stands in. A write is durable here before
it is sent to anyone, then on W nodes before it is acknowledged; who keeps it for a replica that does not answer holds
it like any record, and brings it home later (`data/misplaced.py`). A read asks R replicas, merges by version, and
repairs the stale ones behind the reader's back; repairs never mint dots.

*Not found* is an answer, never a guess. A write was acknowledged by a write quorum of the nodes that may hold the key
(`ReplicaSet.everyone`), so an absent key is denied only where fewer than a write quorum of them are silent, or new and
not brought level yet, and all others have said that they hold nothing.

Source: DeCandia et al. 2007 (Dynamo), sections 4.3 to 4.6; dotted version vectors, Preguica et al. 2010.
"""

from __future__ import annotations

import trio

from chord.calls import Answer
from chord.data import versions
from chord.data.copies import parts_of
from chord.data.digest import digest_of
from chord.data.fan import Fan, Told
from chord.data.gather import Asker
from chord.data.reading import Reading
from chord.data.records import Records
from chord.data.repair import Repair
from chord.data.view import ReplicaSet
from chord.data.writing import Writing
from chord.errors import (
    Busy,
    ChordError,
    InvalidRequest,
    MalformedMessage,
    NotReady,
    OwnerDown,
    QuorumFailed,
    TooFewReplicas,
)
from chord.messages import (
    Contact,
    Copy,
    Done,
    Get,
    Merge,
    Put,
    ReadCopy,
    Record,
    StoreCopies,
    Values,
    Version,
    Written,
)
from chord.ownership import Verdict
from chord.vnode import RETRY_MS, Vnode


class Coordinator:
    """Coordinates reads and writes of one vnode's keys.

    Args:
        repair: knows which replicas hold everything, and is told of those that do not take a write.
    """

    def __init__(self, vnode: Vnode, records: Records, repair: Repair) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._levels = repair
        self._repairing: dict[bytes, None] = {}

    # -- reads ----------------------------------------------------------------------------------

    def get(self, request: Get, over: Asker | None = None) -> Answer:
        """Read a key from R replicas; where this one is enough, and has the record, there is nothing to wait for.

        Args:
            over: asks the other replicas; default: each of them at once, for this key alone.
        Raises:
            NotOwner, Busy: see `Vnode.require_coordinator`.
            TooFewReplicas: definite; fewer replicas than asked for answer.
            OwnerDown: definite; the key is absent here, and may be held by nodes that are down.
        """
        point = self._host.circle.hash(request.key)
        verdict = self._vnode.require_coordinator(point)
        who = self._holders(point)
        needed = self._needed(request.r, who)
        reading = Reading(request.key, over or self._host.peers)
        if needed == 1 and self._is_settled(point, request.key) and self._host.storage.is_durable(request.key):
            record = self._host.storage.get(request.key)
            if self._live(record):
                reading.add(self._here(who), record, is_settled=True)
                self._host.counters["gets"] += 1
                return self._answer(reading, who, needed)
        return self._get(reading, who, verdict, point, needed)

    async def _get(self, reading: Reading, who: ReplicaSet, verdict: Verdict, point: int, needed: int) -> Values:
        await self._read(reading, who, point, needed)
        self._host.counters["gets"] += 1
        if not self._live(reading.record):
            await self._ask_everyone(reading, who, verdict)
        self._repair_soon(reading, who)
        return self._answer(reading, who, needed)

    async def _read(self, reading: Reading, who: ReplicaSet, point: int, needed: int) -> None:
        """Ask until so many have answered: the members, level ones first, then those who stand in for silent ones.

        Raises:
            TooFewReplicas: definite; they did not.
        """
        me = self._here(who)
        record = await self._records.read(reading.key)
        reading.add(me, record, self._is_settled(point, reading.key))
        others = [place for place in who.members if place.contact != me and self._vnode.is_up(place)]
        others.sort(key=lambda place: not self._levels.is_level(point, place.contact.address))
        others += [place for place in who.fallbacks if place.contact != me and self._vnode.is_up(place)]
        first = max(0, needed - len(reading.copies))
        fan = self._fan(reading, [place.contact for place in others[first:]])

        def is_enough() -> bool:
            return len(reading.copies) - len(reading.unsettled) >= needed

        await fan.until(is_enough, [place.contact for place in others[:first]])
        if not is_enough() and len(who.members) > 1:  # new ones and stand-ins are second best: the silent may be back
            await fan.until(is_enough, [place.contact for place in who.members if not self._vnode.is_up(place)])
        if len(reading.copies) < needed:
            raise TooFewReplicas(f"{len(reading.copies)} of {needed} replicas answered", after_ms=RETRY_MS)

    async def _ask_everyone(self, reading: Reading, who: ReplicaSet, verdict: Verdict) -> None:
        """Nothing is known of the key: ask everyone who may hold it, before it is denied.

        Raises:
            OwnerDown: definite; too many of them are silent for a denial.
            Busy: definite; this vnode has lost the others.
        """
        asked = [place.contact for place in who.everyone if place.contact not in reading.copies]
        silent = [place.contact for place in who.everyone if place.is_waited_for]
        fan = self._fan(reading, [])
        first = [contact for contact in asked if contact not in silent]
        await fan.until(lambda: bool(self._live(reading.record)), first)
        if self._live(reading.record):
            return
        if self._vnode.ring.is_isolated and self._host.constants.replicas > 1:
            raise Busy("this node has lost the others, and cannot know what they hold", after_ms=RETRY_MS)
        if not self._vnode.ownership.is_owner(self._host.circle.hash(reading.key)):
            raise Busy("who stands in for the owner does not know what else is silent", after_ms=RETRY_MS)
        members = [place.contact for place in who.members]
        silent = [place.contact for place in who.everyone if place.contact not in reading.copies]
        unsettled = [contact for contact in reading.unsettled if contact in members]
        if len(silent) + len(unsettled) < min(self._host.constants.quorum, len(members)):
            return
        names = ", ".join(contact.address for contact in silent or unsettled)
        if silent:
            since = None if verdict.taken is None else int(1000 * (trio.current_time() - verdict.taken.since))
            raise OwnerDown(f"what {names} may hold is not known here, and it is down", peer=silent[0], after_ms=since)
        raise Busy(f"{names} is being brought level", after_ms=RETRY_MS)

    def _fan(self, reading: Reading, spare: list[Contact]) -> Fan:
        def ask(contact: Contact, told: Told) -> None:
            mine = reading.own
            sent = trio.current_time()

            def heard(answer: Copy | ChordError) -> None:
                if isinstance(answer, ChordError):
                    told(answer)
                    return
                if answer.record is not None and answer.record.key != reading.key:
                    told(MalformedMessage(f"{contact.address} answered with the record of another key"))
                    return
                reading.rtt_ms[contact] = 1000 * (trio.current_time() - sent)
                reading.add(contact, mine if answer.is_same else answer.record, answer.is_settled)
                told(None)

            request = ReadCopy(reading.key, b"" if mine is None else digest_of(mine))
            reading.over.begin(contact, request, Copy, heard, deadline=sent + self._host.timing.timeout_cap_s)

        return Fan(self._host, ask, spare)

    def _answer(self, reading: Reading, who: ReplicaSet, needed: int) -> Values:
        record = reading.record
        members = [place.contact for place in who.members]
        lines = tuple(reading.line(place, place.contact in members) for place in who.everyone)
        shown = versions.cut(record, self._host.limits.record_bytes_max) if record is not None else None
        context = versions.encode_context({} if shown is None else versions.context_of(shown))
        told = [version for version in ([] if shown is None else versions.siblings(shown)) if self._is_live(version)]
        return Values(
            values=tuple(version.value for version in told if version.value is not None),
            context=context,
            owner=self._vnode.me,
            r=len(reading.copies),
            r_needed=needed,
            replicas=tuple(line for line in lines if line.outcome != "not asked"),
            written_ms=tuple(version.written_ms for version in told),
        )

    # -- writes ---------------------------------------------------------------------------------

    async def put(self, request: Put, over: Asker | None = None) -> Written:
        """Write a key: here, durably, then on the other replicas.

        Args:
            over: asks the other replicas; default: each of them at once, for this key alone.
        Raises:
            InvalidRequest, VersionConflict, WritesRefused: definite; see `Records.put`.
            NotOwner, Busy: see `Vnode.require_coordinator`.
            TooFewReplicas: definite; there are too few to write to.
            QuorumFailed: indefinite; too few of them have acknowledged.
        """
        point = self._host.circle.hash(request.key)
        self._vnode.require_coordinator(point)
        self._records.check(request)
        who = self._holders(point)
        needed = self._needed(request.w, who)
        self._require_reachable(who, needed, request.is_strict)
        seen = None
        if len(who.members) > 1 and self._must_read(request):
            reading = Reading(request.key, over or self._host.peers)
            await self._read(reading, who, point, self._needed(0, who))
            seen = reading.record
            self._vnode.require_coordinator(point)
        self._require_going_on()
        await self._end_if_given_up()
        return await self._see_through(request, seen, needed, over or self._host.peers)

    @staticmethod
    async def _end_if_given_up() -> None:
        """Be cancelled, if the caller's time is over: a process that was stopped meanwhile has not noticed yet."""
        await trio.lowlevel.checkpoint()

    async def _see_through(self, request: Put, seen: Record | None, needed: int, over: Asker) -> Written:
        """Store a write here and send it to the others, to the end, though the caller give up meanwhile.

        What is stored in one place and sent to nobody would turn up when nobody expects it any more.
        """
        outcome: list[Written | ChordError] = []
        has_ended = trio.Event()

        async def write() -> None:
            try:
                record = await self._records.put(request, seen)
                who = self._vnode.replica_set(self._host.circle.hash(request.key))  # it may have changed meanwhile
                least = needed if request.w else min(self._host.constants.quorum, len(who.members))
                outcome.append(await self._spread(record, who, max(needed, least), over, is_strict=request.is_strict))
            except ChordError as error:
                outcome.append(error)
            finally:
                has_ended.set()

        self._host.start_task(write)
        await has_ended.wait()
        if not outcome:
            raise QuorumFailed("the node ended before others had stored the write")
        if isinstance(outcome[0], ChordError):
            raise outcome[0]
        return outcome[0]

    async def merge(self, request: Merge, over: Asker | None = None) -> Written:
        """Merge a record as it is into the replicas. Raises what `put` does."""
        point = self._host.circle.hash(request.record.key)
        self._vnode.require_coordinator(point)
        who = self._holders(point)
        needed = self._needed(request.w, who)
        self._require_reachable(who, needed, is_strict=False)
        if wrong := versions.check(request.record):
            raise InvalidRequest(f"not a record: {wrong[0]}")
        self._require_going_on()
        await self._records.merge([request.record])
        record = await self._records.read(request.record.key) or request.record  # or it has been brought home meanwhile
        who = self._vnode.replica_set(point)
        return await self._spread(record, who, needed, over or self._host.peers, is_strict=False)

    async def _spread(
        self, record: Record, who: ReplicaSet, needed: int, over: Asker, *, is_strict: bool
    ) -> Written:
        """Send a record that is durable here to the others, and wait for as many as are needed."""
        writing = Writing(self._vnode, self._here(who), who, record, self._levels, over, is_strict=is_strict)
        return await writing.until(needed)

    # -- read repair ----------------------------------------------------------------------------

    def _repair_soon(self, reading: Reading, who: ReplicaSet) -> None:
        """Bring the stale members that answered level, in the background; once at a time for a key."""
        record = reading.record
        if record is None or record.key in self._repairing or self._host.is_ending:
            return
        stale = reading.stale([place.contact for place in who.members])
        if stale:
            self._repairing[record.key] = None
            self._host.start_task(self._repair, record, stale)

    async def _repair(self, record: Record, stale: list[Contact]) -> None:
        try:
            for contact in stale:
                with trio.move_on_after(self._host.timing.timeout_cap_s):
                    if contact.address == self._host.address:
                        await self._records.merge([record])
                    else:
                        for part in parts_of(self._host, record):
                            await self._host.peers.call(contact, StoreCopies((part,)), Done)
                    self._host.counters["read_repairs"] += 1
        except ChordError:
            self._host.counters["read_repairs_failed"] += 1  # anti-entropy will see to it
        finally:
            self._repairing.pop(record.key, None)

    # -- inside ---------------------------------------------------------------------------------

    def _must_read(self, request: Put) -> bool:
        """Whether a write depends on what others hold: on what it covers, or on whether it was done already."""
        if request.context is None or request.is_retry:
            return True
        mine = self._host.storage.get(request.key)
        known = {} if mine is None else versions.context_of(mine)
        covered = versions.decode_context(request.context)
        return any(known.get(actor, 0) < count for actor, count in covered.items())

    def _needed(self, asked: int, who: ReplicaSet) -> int:
        """Return R or W: what was asked for, or a majority; never more than there are members.

        Raises:
            InvalidRequest: definite; more than the ring keeps.
            TooFewReplicas: definite; more than there are now.
        """
        constants = self._host.constants
        if asked > constants.replicas:
            raise InvalidRequest(f"the ring keeps {constants.replicas} replicas of a record, not {asked}")
        if asked > len(who.members):
            raise TooFewReplicas(f"there are {len(who.members)} nodes, not {asked}", after_ms=RETRY_MS)
        return asked or min(constants.quorum, len(who.members))

    def _require_going_on(self) -> None:
        """Refuse a write that could be sent to nobody else.

        Raises:
            NotReady: definite; the node is ending.
        """
        if self._host.is_ending:
            raise NotReady("the node is ending", after_ms=RETRY_MS)

    def _holders(self, point: int) -> ReplicaSet:
        """Return who may hold a key.

        Raises:
            TooFewReplicas: definite; this vnode is none of them, because it stands behind too many that are silent.
        """
        who = self._vnode.replica_set(point)
        if all(place.contact.address != self._host.address for place in who.everyone):
            raise TooFewReplicas("every node that may hold the key is silent", after_ms=RETRY_MS)
        return who

    def _here(self, who: ReplicaSet) -> Contact:
        """Return this node as it stands in the set: maybe by another of its vnodes than the one that coordinates."""
        own = [place.contact for place in who.everyone if place.contact.address == self._host.address]
        return own[0] if own else self._vnode.me

    def _require_reachable(self, who: ReplicaSet, needed: int, is_strict: bool) -> None:
        """Refuse a write that cannot succeed before anything of it is stored.

        Raises:
            TooFewReplicas: definite.
        """
        places = who.members if is_strict else (*who.members, *who.fallbacks)
        up = sum(1 for place in places if self._vnode.is_up(place))
        if up < needed:
            raise TooFewReplicas(f"{up} of {needed} nodes answer that can take the write", after_ms=RETRY_MS)

    def _is_settled(self, point: int, key: bytes) -> bool:
        """Whether what is held of a key here is all that there was to be held."""
        return self._vnode.is_settled(point) and not self._host.storage.is_damaged(key)

    def _live(self, record: Record | None) -> bool:
        return record is not None and any(self._is_live(version) for version in versions.siblings(record))

    def _is_live(self, version: Version) -> bool:
        return versions.is_live(version, self._host.wall_now_ms())

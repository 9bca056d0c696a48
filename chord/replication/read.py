"""Quorum reads: ask R replicas, merge by version, and repair the stale ones behind the reader's back.

*Not found* is an answer, never a guess. A write was acknowledged by a write quorum of the nodes that may hold the key
(`Vnode.may_hold`), so an absent key is denied only where fewer than a write quorum of them are silent, or new and
not brought level yet, and all others have said that they hold nothing. Repairs never mint dots.

Source: DeCandia et al. 2007 (Dynamo), sections 4.5 and 4.7; Demers et al. 1987 on repairs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import trio

from chord.errors import Behind, Busy, ChordError, MalformedMessage, NotReady, OwnerDown, RecordDamaged, TooFewReplicas
from chord.ids import Arc
from chord.net.calls import Answer, Later
from chord.replication.anti_entropy import Repair
from chord.replication.catch_up import CatchUp
from chord.replication.coalesce import Asker
from chord.replication.fanout import Fan, Told
from chord.replication.quorum import Quorum
from chord.replication.reading import Reading
from chord.replication.records import Records
from chord.replication.replica import parts_of
from chord.ring.ownership import Verdict
from chord.ring.preference_list import Place, ReplicaSet
from chord.ring.vnode import RETRY_MS, Vnode
from chord.store import quarantine, versions
from chord.wire.messages import (
    Contact,
    Copy,
    Done,
    Get,
    GetQuarantine,
    Quarantine,
    ReadCopy,
    Record,
    StoreCopies,
    Values,
    Version,
)

IfBehind: TypeAlias = Callable[[Reading, Contact, Told], None]
"""What to do about a holder whose store has seen other entries of the reap log."""


class QuorumReads:
    """Reads of one vnode's keys.

    Args:
        repair: knows which replicas hold everything.
        catch_up: levels the reap logs of replicas that have seen other entries.
    """

    def __init__(self, vnode: Vnode, records: Records, quorum: Quorum, repair: Repair, catch_up: CatchUp) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._records = records
        self._quorum = quorum
        self._repair = repair
        self._catch_up = catch_up
        self._repairing: dict[bytes, None] = {}

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
        who = self._quorum.holders(point)
        needed = self._quorum.needed(request.r, who)
        reading = self.begin(request.key, over)
        if needed == 1 and self._is_settled(point, request.key):
            record = self._host.storage.durable(request.key)
            if self._live(record):
                reading.add(self._quorum.here(who), record, is_settled=True)
                return self._answer(reading, who, needed)

        def begin(later: Later) -> None:
            def answer() -> None:
                self._repair_soon(reading, who)
                later.end(self._answer(reading, who, needed))

            def have_read() -> None:
                if self._live(reading.record):
                    answer()
                else:
                    self.ask_everyone(reading, who, verdict, later, answer, until_found=True)

            self.read(reading, who, point, needed, later, have_read)

        return Later(begin)

    def get_quarantine(self, request: GetQuarantine) -> Answer:
        """Read what is in quarantine of a key from R replicas; that nothing is there is as sure as of `get`.

        Raises:
            NotOwner, Busy: see `Vnode.require_coordinator`.
            TooFewReplicas: definite; fewer replicas than asked for answer.
            OwnerDown: definite; nothing is in quarantine here, and nodes that are down may hold more.
        """
        point = self._host.circle.hash(request.key)
        verdict = self._vnode.require_coordinator(point)
        who = self._quorum.holders(point)
        needed = self._quorum.needed(request.r, who)
        reading = self.begin(request.key, None)

        def begin(later: Later) -> None:
            def answer() -> None:
                self._repair_soon(reading, who)
                later.end(self._hidden(reading, needed))

            def have_read() -> None:
                if reading.record is not None and reading.record.quarantine:
                    answer()
                else:
                    self.ask_everyone(reading, who, verdict, later, answer, until_found=False)

            self.read(reading, who, point, needed, later, have_read)

        return Later(begin)

    def _hidden(self, reading: Reading, needed: int) -> Quarantine:
        record = reading.record or Record(reading.key, ())
        shown = quarantine.cut(record, self._host.limits.record_bytes_max)
        return Quarantine(
            shown.quarantine,
            versions.encode_context(quarantine.context_of(shown)),
            self._vnode.me,
            left=quarantine.count(record) - quarantine.count(shown),
            r=len(reading.copies),
            r_needed=needed,
        )

    def begin(self, key: bytes, over: Asker | None) -> Reading:
        """Return a read of which nothing has been asked yet."""
        return Reading(key, over or self._host.peers, self._host.reap_log.durably_seen_of(key))

    def read(
        self,
        reading: Reading,
        who: ReplicaSet,
        point: int,
        needed: int,
        later: Later,
        then: Callable[[], None],
    ) -> None:
        """Ask until so many have answered: the members, level ones first, then those who stand in for silent ones.

        Args:
            later: comes to `TooFewReplicas`, which is definite, where they do not.
            then: what is to be done when they have.
        """
        me = self._quorum.here(who)
        own = self._host.storage.durable(reading.key)  # before `is_damaged`: only a read finds the damage
        is_damaged = self._host.storage.is_damaged(reading.key)
        reading.add(me, own, self._is_settled(point, reading.key), is_damaged=is_damaged)
        others = [place for place in who.members if place.contact != me and self._vnode.is_up(place)]
        others.sort(key=lambda place: not self._repair.is_level(point, place.contact.address))
        others += [place for place in who.fallbacks if place.contact != me and self._vnode.is_up(place)]
        first = max(0, needed - len(reading.copies))
        fan = self._fan(reading, [place.contact for place in others[first:]])

        def is_enough() -> bool:
            return len(reading.copies) - len(reading.unsettled) >= needed

        def asked(error: ChordError | None) -> None:
            if error is None and not is_enough() and len(who.members) > 1:
                # new ones and stand-ins are second best: the silent may be back
                silent = [place.contact for place in who.members if not self._vnode.is_up(place)]
                fan.begin(is_enough, silent, asked_all)
            else:
                asked_all(error)

        def asked_all(error: ChordError | None) -> None:
            if error is None and len(reading.copies) < needed:
                error = TooFewReplicas(f"{len(reading.copies)} of {needed} replicas answered", after_ms=RETRY_MS)
            if error is None:
                later.go_on(then)
            else:
                later.end(error)

        fan.begin(is_enough, [place.contact for place in others[:first]], asked)

    def is_sure(self, reading: Reading, who: ReplicaSet) -> bool:
        """Return whether a read quorum of replicas has answered that are in sync."""
        return len(reading.copies) - len(reading.unsettled) >= self._quorum.needed(0, who)

    def ask_everyone(
        self,
        reading: Reading,
        who: ReplicaSet,
        verdict: Verdict,
        later: Later,
        then: Callable[[], None],
        *,
        until_found: bool,
    ) -> None:
        """Ask every node that may hold the key, before it is denied that they hold more.

        Args:
            later: comes to an error if it must not be denied.
            then: what is to be done when it may be denied.
            until_found: or when a value was found.
        """
        places = self._vnode.may_hold(self._host.circle.hash(reading.key), who)

        def asked(error: ChordError | None) -> None:
            if error is not None:
                raise error
            own = self._host.storage.durable(reading.key)  # meanwhile another may have brought it, and let go of it
            own = reading.own if reading.is_ahead else own
            reading.add(self._quorum.here(who), own, is_settled=True)
            if not (until_found and self._live(reading.record)):
                self._require_deniable(reading, who, places, verdict)
            then()

        asked_already = reading.copies.keys() | {place.contact for place in places if place.is_waited_for}
        first = [place.contact for place in places if place.contact not in asked_already]
        fan = self._fan(reading, [])
        fan.begin(lambda: until_found and self._live(reading.record), first, lambda error: later.go_on(asked, error))

    def _require_deniable(
        self, reading: Reading, who: ReplicaSet, places: tuple[Place, ...], verdict: Verdict
    ) -> None:
        """Refuse to deny a key that may be there.

        Args:
            places: the nodes that were asked, or are silent; see `Vnode.may_hold`.

        Raises:
            OwnerDown: definite; too many are silent for a denial.
            RecordDamaged: definite; all nodes that may hold the key have answered, and a write quorum of the copies is
                damaged.
            Busy: definite; this vnode is isolated, or only stands in for the owner, or its reap log changed meanwhile;
                or too many nodes are new, behind with the reap log, or on their way back.
        """
        if self._vnode.ring.is_isolated and self._host.constants.replicas > 1:
            raise Busy("this node has lost the others, and cannot know what they hold", after_ms=RETRY_MS)
        if not reading.is_ahead and self._host.reap_log.durably_seen_of(reading.key) != reading.seen:
            raise Busy("records were reaped while the key was read", after_ms=RETRY_MS)
        if not self._vnode.ownership.is_owner(self._host.circle.hash(reading.key)):
            raise Busy("who stands in for the owner does not know what else is silent", after_ms=RETRY_MS)
        members = [place.contact for place in who.members]
        point = self._host.circle.hash(reading.key)
        silent, empty = [place.contact for place in places if place.contact not in reading.copies], 0
        if self._vnode.ownership.is_doubtful(Arc(self._host.circle.point(point - 1), point)):
            known = {contact.address for contact in silent}
            gone = [contact for contact in self._host.peers.passive.nodes() if contact.address not in known]
            empty = self._vnode.nodes_known(who) - len(members)  # places
            silent, empty = [*silent, *gone[:empty]], max(0, empty - len(gone))
        unsettled = [contact for contact in reading.unsettled if contact in members]
        missing, needed = len(silent) + len(unsettled), self._vnode.write_quorum(who)
        if missing + empty < needed:
            return
        if missing < needed:
            raise Busy("nodes that may hold the key are not among its replicas yet", after_ms=RETRY_MS)
        behind, silent = [c for c in silent if c in reading.behind], [c for c in silent if c not in reading.behind]
        silent = silent or ([] if behind else list(self._vnode.waits_for))
        down = [contact for contact in silent if not self._host.peers.is_on_its_way(contact)]
        names = ", ".join(dict.fromkeys(contact.address for contact in down or silent or behind or unsettled))
        if not silent and not behind and all(contact in reading.damaged for contact in unsettled):
            raise RecordDamaged(f"a damaged record at {names} may be of this key, and no other node has a copy")
        if down:
            since = None if verdict.taken is None else int(1000 * (trio.current_time() - verdict.taken.since))
            raise OwnerDown(f"no answer from {names}, which may hold the key", peer=down[0], after_ms=since)
        raise Busy(f"{names} is being brought level", after_ms=RETRY_MS)

    def _fan(self, reading: Reading, spare: list[Contact]) -> Fan:
        return Fan(self._host, partial(self._ask, reading, self._level_soon), spare)

    def _ask(self, reading: Reading, behind: IfBehind, contact: Contact, told: Told) -> None:
        """Ask one holder."""
        mine = reading.own
        sent = trio.current_time()

        def heard(answer: Copy | ChordError) -> None:
            if isinstance(answer, ChordError):
                told(answer)
            elif answer.record is not None and not reading.takes(answer.record):
                told(MalformedMessage(f"{contact.address} answered with the record of another key, or none at all"))
            elif answer.seen != reading.seen and not answer.is_same:
                behind(reading, contact, told)
            else:
                reading.rtt_ms[contact] = 1000 * (trio.current_time() - sent)
                record = mine if answer.is_same else answer.record
                reading.add(contact, record, answer.is_settled, is_damaged=answer.is_damaged)
                told(None)

        request = ReadCopy(reading.key, reading.digest(mine))
        reading.over.begin(contact, request, Copy, heard, deadline=sent + self._host.timing.timeout_cap_s)

    def _answer(self, reading: Reading, who: ReplicaSet, needed: int) -> Values:
        self._host.counters["gets"] += 1
        record = reading.record
        members = [place.contact for place in who.members]
        taking_part = [place for place in who.everyone if place.is_waited_for or place.contact in reading.copies]
        shown = versions.cut(record, self._host.limits.record_bytes_max) if record is not None else None
        context = versions.encode_context({} if shown is None else versions.context_of(shown))
        told = [version for version in ([] if shown is None else versions.siblings(shown)) if self._is_live(version)]
        live = 0 if record is None else sum(map(self._is_live, versions.siblings(record)))
        return Values(
            values=tuple(version.value for version in told if version.value is not None),
            context=context,
            owner=self._vnode.me,
            r=len(reading.copies),
            r_needed=needed,
            replicas=tuple(reading.line(place, place.contact in members) for place in taking_part),
            written_ms=tuple(version.written_ms for version in told),
            quarantined=quarantine.count(record) if record is not None and record.quarantine else 0,
            left=live - len(told),
        )

    def _level_soon(self, reading: Reading, contact: Contact, told: Told) -> None:
        if self._host.is_ending:
            told(_ending())
        else:
            self._host.start_task(self._ask_level, reading, contact, told)

    async def _ask_level(self, reading: Reading, contact: Contact, told: Told) -> None:
        """Level the reap log with a holder, and ask it again. If this store was behind, the read has to begin again."""
        try:
            with trio.fail_after(self._host.timing.timeout_cap_s):
                await self._catch_up.level_slice(contact, reading.key)
        except (ChordError, trio.TooSlowError):
            self._host.counters["logs_unlevelled"] += 1  # the next read, or anti-entropy, tries again
            await self._ask_ahead(reading, contact, told)
        except trio.Cancelled:
            told(_ending())
            raise
        else:
            if self._host.reap_log.durably_seen_of(reading.key) == reading.seen:
                self._ask(reading, _give_up, contact, told)
            else:
                _give_up(reading, contact, told)

    async def _ask_ahead(self, reading: Reading, contact: Contact, told: Told) -> None:
        """Read as if this store had applied a holder's log, although its disk takes no writes.

        If holders have seen different entries, send each holder the logs of the others.
        """
        try:
            if self._host.storage.refusal:
                with trio.fail_after(self._host.timing.timeout_cap_s):
                    await self._catch_up.tell(contact, reading.logs)
                    log = await self._catch_up.log_of(contact, reading.key)
                    record, seen = self._host.reap_log.as_if_absorbed(reading.key, [*reading.logs, log])
                    if seen != reading.seen:
                        for other in reading.read_ahead(log, record, seen):
                            await self._catch_up.tell(other, [log])
        except (ChordError, trio.TooSlowError):
            _give_up(reading, contact, told)
        except trio.Cancelled:
            told(_ending())
            raise
        else:
            if reading.is_ahead:
                self._ask(reading, _give_up, contact, told)
            else:
                _give_up(reading, contact, told)

    # -- read repair ----------------------------------------------------------------------------

    def _repair_soon(self, reading: Reading, who: ReplicaSet) -> None:
        """Bring the stale members that answered level, in the background; once at a time for a key."""
        record = reading.record
        if record is None or record.key in self._repairing or self._host.is_ending:
            return
        stale = reading.stale([place.contact for place in who.members])
        if stale:
            self._repairing[record.key] = None
            self._host.start_task(self._push_to_stale, record, reading.seen, stale)

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
            self._host.counters["read_repairs_failed"] += 1  # anti-entropy will see to it
        finally:
            self._repairing.pop(record.key, None)

    # -- inside ---------------------------------------------------------------------------------

    def _is_settled(self, point: int, key: bytes) -> bool:
        """Whether what is held of a key here is all that there was to be held."""
        return self._vnode.is_settled(point) and not self._host.storage.is_damaged(key)

    def _live(self, record: Record | None) -> bool:
        return record is not None and any(self._is_live(version) for version in versions.siblings(record))

    def _is_live(self, version: Version) -> bool:
        return versions.is_live(version, self._host.wall_now_ms())


def _give_up(reading: Reading, contact: Contact, told: Told) -> None:
    reading.behind[contact] = None
    told(Behind(f"{contact.address} has reaped what this node has not, or this node more"))


def _ending() -> NotReady:
    return NotReady("the node is ending", after_ms=RETRY_MS)

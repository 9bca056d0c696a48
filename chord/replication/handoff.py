"""Records that others are to keep: bring them home, drop them on proof.

They are hints, kept for a replica that did not answer; copies of an arc that others keep now, after a join; all that a
leaving node holds; what is left of a healed split or of a transfer that broke off. One mechanism for all: ask the owner
who is to hold them, bring every one of these level, and drop what all of them are proven to hold, if it is still the
same here. While a replica is silent, who stands in for it is one of them: so a hint stays until its home is back, or
another has taken its place.

What lies outside every arc this node keeps replicas of is *misplaced* for certain. Which arcs these are, a node reads
off its predecessors; but a silent one is in nobody's list and a member all the same, and only owners know of it. So
they are asked now and then, too, whether what this node takes for its own copies are not hints. Those are brought to
the members that answer, and stay here.
"""

from __future__ import annotations

import trio

from chord import events
from chord.errors import ChordError, LookupFailed
from chord.ids import Arc, Circle, Point
from chord.replication.sync import Exchange
from chord.ring.context import Host
from chord.ring.lookup import Lookups
from chord.ring.ownership import overlap
from chord.store.storage import Batch
from chord.wire.messages import Confirm, Confirmed, Contact, TransferInfo

PART_RECORDS = 128  # so many are brought home at a time


def gaps(circle: Circle, arcs: list[Arc]) -> list[Arc]:
    """Return the parts of the circle outside all given arcs, in clockwise order; all of it where none are given."""
    if not arcs:
        top = circle.point(circle.size - 1)
        return [Arc(top, top)]
    if any(arc.is_whole for arc in arcs):
        return []
    found = []
    for arc in sorted(arcs):
        following = min((circle.distance(arc.end, other.start), other.start) for other in arcs)
        is_covered = any(arc.end in other and arc.end != other.end for other in arcs)
        if following[0] > 0 and not is_covered:
            found.append(Arc(arc.end, following[1]))
    return list(dict.fromkeys(found))


def lies_in(circle: Circle, part: Arc, arc: Arc) -> bool:
    """Whether all of a part of the circle lies in an arc."""
    length = circle.distance(part.start, part.end) or circle.size
    return arc.is_whole or (part.end in arc and length <= circle.distance(arc.start, part.end))


class Misplaced:
    """Finds the misplaced records and the hints of a node, and brings them home.

    Attributes:
        hints: how many records are kept for a replica that does not answer, as of the last round.
        transfer: what is being brought home now, None while nothing is.
    """

    def __init__(self, host: Host, lookups: Lookups, exchange: Exchange) -> None:
        self._host = host
        self._lookups = lookups
        self._exchange = exchange
        self.hints = 0
        self._misplaced_hints = 0  # those that lie outside of all this node takes for its to keep
        self._logs_home: dict[Arc, bytes] = {}  # by misplaced arc: the reap log that its replicas saw
        self._at_stake: dict[Arc, bool] = {}  # by part about to be dropped: whether another node compared it since
        self._mine: dict[Point, tuple[Arc, float]] = {}  # parts it is a member of, as their owners said; and until when
        self.transfer: TransferInfo | None = None

    def arcs(self) -> list[Arc]:
        """Return the arcs in which this node keeps records that are not its to keep."""
        return gaps(self._host.circle, self._replicated())

    def count(self) -> int:
        """Return how many records are misplaced."""
        return sum(self._host.storage.count(arc) for arc in self.arcs()) if len(self._host.storage) else 0

    def on_their_way(self) -> int:
        """Return how many records are misplaced and wait for nobody."""
        return max(0, self.count() - self._misplaced_hints)

    def is_done(self) -> bool:
        """Whether this node has no misplaced record, and others have seen its misplaced reap logs."""
        return not self.count() and all(self._is_log_home(arc) for arc in self.arcs())

    async def bring_home(self, start: Contact) -> int:
        """Bring every misplaced record home, part by part, and drop what all its replicas hold. Bring hints to members.

        Bring misplaced reap logs home likewise, and keep them.

        Args:
            start: the vnode whose view of the ring the lookups use.

        Returns:
            How many were dropped.
        Concurrency: checkpoints; cancellation loses nothing.
        """
        dropped, self._misplaced_hints = await self._bring_arcs_home(self.arcs(), start)
        also_dropped, hints = await self._bring_arcs_home(await self._not_mine(start), start)
        self.hints = self._misplaced_hints + hints
        await self._bring_logs_home(start)
        return dropped + also_dropped

    async def _bring_arcs_home(self, arcs: list[Arc], start: Contact) -> tuple[int, int]:
        """Go through arcs stretch by stretch. Returns how many records were dropped, and how many are hints."""
        storage = self._host.storage
        began = trio.current_time()
        done = dropped = hints = 0
        stretches = [s for arc in arcs for s in storage.digests.stretches(arc, PART_RECORDS, storage.heads)]
        total = sum(storage.count(stretch) for stretch in stretches)
        try:
            for stretch in stretches:
                since = trio.current_time()
                past_ms = int(1000 * (since - began))
                self.transfer = TransferInfo("surplus", *stretch, start, done, total, 0, past_ms)
                done += storage.count(stretch)
                try:
                    gone, kept = await self._bring_part_home(stretch, start)
                except ChordError as error:  # an owner cannot be found, or a holder refuses: another time
                    self._host.tell([events.StepFailed(start.id, "bring_home", error.word)])
                    continue
                await self._host.give_way(since)
                dropped += gone
                hints += kept
        finally:
            self.transfer = None
        return dropped, hints

    # -- reap logs ------------------------------------------------------------------------------

    def _is_log_home(self, arc: Arc) -> bool:
        return self._host.reap_log.digest_in(arc) == self._logs_home.get(arc, b"")

    async def _bring_logs_home(self, start: Contact) -> None:
        """Level the reap log of every misplaced arc with its replicas, even if the arc has no record.

        The next round brings later changes home.
        """
        log, arcs = self._host.reap_log, self.arcs()
        self._logs_home = {arc: seen for arc, seen in self._logs_home.items() if arc in arcs}
        for arc in arcs:
            seen = log.digest_in(arc)
            if seen == self._logs_home.get(arc, b""):
                continue
            if await self._bring_log_home(arc, start):
                self._logs_home[arc] = seen

    async def _bring_log_home(self, arc: Arc, start: Contact) -> bool:
        """Level the log of an arc with all replicas, owner by owner; return whether enough others have it now.

        They are too few if this node is itself a replica or a holder, or if they are no write quorum. An owner that is
        not found, or a replica that refuses, does not keep the others from it.
        """
        digests = self._host.storage.digests
        is_enough = True
        rest: Arc | None = arc
        while rest is not None:
            first = digests.first_in(rest, self._host.reap_log.slices_in(rest))
            if first is None:
                break
            try:
                confirmed = await self._ask_owner(first, start)
            except ChordError as error:
                self._host.tell([events.StepFailed(start.id, "bring_home", error.word)])
                is_enough, last = False, self._host.circle.point(digests.slice_of(first)[2])
                rest = None if rest.end in Arc(self._host.circle.point(first - 1), last) else Arc(last, rest.end)
                continue
            part, rest = self._cut(rest, first, confirmed)
            if self._is_among((*confirmed.replicas, *confirmed.holders)) or self._is_lone(confirmed):
                is_enough = False
            for contact in self._share_with(confirmed):
                try:
                    await self._exchange.catch_up.level(contact, part)
                except ChordError as error:
                    self._host.tell([events.StepFailed(start.id, "bring_home", error.word)])
                    is_enough = False
        return is_enough

    # -- replica sets ---------------------------------------------------------------------------

    async def _not_mine(self, start: Contact) -> list[Arc]:
        """Return where this node seems to keep replicas and is no member, as the owners say who know of the silent."""
        found = []
        for arc in self._unsure():
            rest: Arc | None = arc
            while rest is not None:
                first = next(self._host.storage.heads(rest), None)
                if first is None:
                    break
                point = self._host.circle.hash(first[0])
                try:
                    confirmed = await self._ask_owner(point, start)
                except ChordError as error:
                    self._host.tell([events.StepFailed(start.id, "bring_home", error.word)])
                    break  # another time
                part, rest = self._cut(rest, point, confirmed)
                if self._is_among(confirmed.replicas):
                    until = trio.current_time() + self._host.jitter(self._host.timing.anti_entropy_s)
                    self._mine[part.end] = (part, until)
                else:
                    found.append(part)
        return found

    def _unsure(self) -> list[Arc]:
        """Return where this node seems to keep replicas, and no owner has said so lately."""
        circle, now = self._host.circle, trio.current_time()
        kept = self._replicated()
        self._mine = {
            end: (part, until)
            for end, (part, until) in self._mine.items()
            if now < until and any(lies_in(circle, part, arc) for arc in kept)
        }
        own = [vnode.ownership.arc for vnode in self._host.vnodes.values()]
        sure = [*(arc for arc in own if arc is not None), *(part for part, _ in self._mine.values())]
        return gaps(circle, [*sure, *gaps(circle, kept)])

    def _replicated(self) -> list[Arc]:
        return [arc for vnode in self._host.vnodes.values() for arc in vnode.replicated()]

    async def _ask_owner(self, point: Point, start: Contact) -> Confirmed:
        """Ask who is to hold a point, and no longer than for the others' sake: they are to have their turn."""
        try:
            with trio.fail_after(self._host.timing.timeout_cap_s):
                return (await self._lookups.deliver(Confirm(point), Confirmed, point, start))[0]
        except trio.TooSlowError:
            raise LookupFailed("its owner is not found now") from None

    def _cut(self, rest: Arc, point: Point, confirmed: Confirmed) -> tuple[Arc, Arc | None]:
        """Cut off what the same members hold as a point: up to the next vnode that is, or was, and is waited for."""
        circle, owner = self._host.circle, confirmed.owner.id
        ahead = [contact.id for contact in confirmed.replicas if contact.id in Arc(circle.point(point - 1), owner)]
        end = min((circle.distance(point, other), other) for other in (*ahead, owner))[1]
        is_last = rest.end in Arc(circle.point(point - 1), end)
        part = Arc(circle.point(point - 1), rest.end if is_last else end)
        return part, None if is_last or end == rest.end else Arc(end, rest.end)

    async def _bring_part_home(self, stretch: Arc, start: Contact) -> tuple[int, int]:
        """Go through a stretch owner by owner. Returns how many records were dropped, and how many are hints."""
        circle, storage = self._host.circle, self._host.storage
        dropped = hints = 0
        rest: Arc | None = stretch
        while rest is not None:
            first = next(storage.heads(rest), None)
            if first is None or self._host.is_receiving():  # an arc being received is on its way, not lost
                break
            point = circle.hash(first[0])
            confirmed = await self._ask_owner(point, start)
            part, rest = self._cut(rest, point, confirmed)
            if self._is_among(confirmed.replicas):
                continue
            if self._is_lone(confirmed) or self._is_among(confirmed.holders):
                hints += storage.count(part)
                await self._share(confirmed, part)
            else:
                dropped += await self._hand_to(confirmed, part, start)
        return dropped, hints

    def _is_among(self, contacts: tuple[Contact, ...]) -> bool:
        """Whether one of these is a vnode of this node. A silent vnode of another node may have had its address."""
        return any(contact.id in self._host.vnodes for contact in contacts)

    def _is_lone(self, confirmed: Confirmed) -> bool:
        """Whether fewer nodes than a write quorum would hold a part.

        In a small ring there are no more. How many there are this node and the owner may each know better: the owner
        may have lost the others for a moment, and silent nodes count as long as they may come back.
        """
        known = {contact.address for contact in confirmed.replicas} | self._host.nodes_known()
        retiring = {address for vnode in self._host.vnodes.values() for address in vnode.view.retiring}
        staying = len(known - retiring - {self._host.address})
        quorum = max(confirmed.needed, min(self._host.constants.quorum, staying))
        return len(confirmed.holders) < quorum

    async def _share(self, confirmed: Confirmed, part: Arc) -> None:
        """Hints wait here for those who are silent. Who answers may lack them too, and gets them now.

        The members, those that stand in for silent ones, and the owner, who is neither where many before it are silent.
        """
        for contact in self._share_with(confirmed):
            await self._exchange.prove(contact, part)

    def _share_with(self, confirmed: Confirmed) -> list[Contact]:
        everyone = dict.fromkeys((*confirmed.replicas, *confirmed.holders, confirmed.owner))
        return [c for c in everyone if c not in confirmed.silent and c.address != self._host.address]

    def compared(self, arc: Arc) -> None:
        """Another node compares an arc with this one, and may count on the copies here from now on."""
        for part in self._at_stake:
            if overlap(part, arc):
                self._at_stake[part] = True

    async def _hand_to(self, confirmed: Confirmed, part: Arc, start: Contact) -> int:
        """Bring the holders of a part level, and drop what all of them hold.

        Nothing goes if another node has compared the part with this one meanwhile. It may be about to drop its own
        copies, and count on these: its owner is another one by now, or was another one.
        Nothing goes either while node.json cannot be written: after a restart, this node would believe that it holds
        what it keeps by the old file.
        """
        storage = self._host.storage
        proven: dict[bytes, bytes] = dict(storage.heads(part))
        self._at_stake.setdefault(part, False)
        try:
            for contact in confirmed.holders:
                held = await self._exchange.prove(contact, part)
                proven = {key: digest for key, digest in proven.items() if held.get(key) == digest}
            is_saved = not proven or await self._host.save()
        finally:
            is_compared = self._at_stake.pop(part, True)
        if is_compared or self._host.is_receiving() or not is_saved:
            return 0  # the owner may be handing the arc to this very node: its copy may be the next to go
        now = dict(storage.heads(part))
        keys = [key for key, digest in proven.items() if now.get(key) == digest and self._is_to_drop(key)]
        await storage.commit(Batch(removals=keys))
        if keys:
            self._host.counters["keys_brought_home"] += len(keys)
            self._host.tell([events.RecordsDropped(start.id, len(keys), confirmed.owner)])
        return len(keys)

    def _is_to_drop(self, key: bytes) -> bool:
        """Only what is still outside of all this node keeps goes."""
        point: Point = self._host.circle.hash(key)
        return not any(point in arc for arc in self._replicated())

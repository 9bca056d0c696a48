"""Keep the replicas of an arc level: its owner compares it with each of them, and tells them when they hold it all.

Once a period with each; at once with who has come new into the set, or is back. The parts with the fewest level copies
go first. What one replica was lacking, another may lack too: so a round goes on until nobody had anything new.

Source: DeCandia et al. 2007 (Dynamo), section 4.7 (anti-entropy); who drives it, and *settled*, are this project's.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import trio

from chord import events
from chord.errors import ChordError, NotOwner
from chord.ids import Arc, Point
from chord.replication.sync import Exchange, Outcome
from chord.ring.ownership import Taken
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import Vnode
from chord.wire.messages import (
    Confirm,
    Confirmed,
    Contact,
    Done,
    FindNeighbours,
    GetRing,
    NeighboursOf,
    ReplicaState,
    RingPointers,
    Settled,
    TransferInfo,
)

ROUNDS_MAX = 3


class Level(NamedTuple):
    """A replica holds what this vnode holds of a part. When to compare again; whether it knows that it is settled."""

    until: float
    is_settled: bool


class Repair:
    """Anti-entropy for the arc of one vnode.

    Attributes:
        transfer: what is being moved now, None while nothing is.
    """

    def __init__(self, vnode: Vnode, exchange: Exchange) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._exchange = exchange
        self.transfer: TransferInfo | None = None
        self._level: dict[Arc, dict[str, Level]] = {}  # by part and node
        self._length = 0  # of the vnode's arc, when it was last looked at
        self._grown_at = -math.inf

    # -- questions ------------------------------------------------------------------------------

    def parts(self) -> list[tuple[Arc, ReplicaSet]]:
        """Return the arc cut where the replica set changes, from its start, and the sets."""
        return [(arc, self._vnode.replica_set(arc.end)) for arc in self._arcs()]

    def _arcs(self) -> list[Arc]:
        own = self._vnode.ownership
        if own.start is None:
            return []
        if not own.taken:
            return [Arc(own.start, self._vnode.id)]
        ends = [mark.arc.end for mark in own.taken] + [self._vnode.id]
        distance = self._host.circle.distance
        start: Point = own.start
        ends.sort(key=lambda end: distance(start, end) or self._host.circle.size)
        found = []
        for end in dict.fromkeys(ends):
            found.append(Arc(start, end))
            start = end
        return found

    def is_level(self, point: int, address: str) -> bool:
        """Whether a replica is known to hold everything of the part a point lies in."""
        if address == self._host.address:
            return True
        for arc in self._arcs():
            if point in arc:
                level = self._level_in(arc).get(address)
                if level is not None and level.is_settled:
                    return True
        return False

    def is_complete(self) -> bool:
        """Whether this vnode holds all that was acknowledged in its arc, as far as those who answer know.

        A replica that takes no records, because its disk is full, does not count against that for ever: what it alone
        may hold was acknowledged by too few.
        """
        if self._host.constants.replicas == 1:
            return True
        parts = self.parts()
        return all(self._vnode.view.is_settled_in(arc) and self._unproven(arc, who) is None for arc, who in parts)

    def silent(self) -> tuple[Contact, ...]:
        """Return who does not answer and may hold what nobody who answers has: where so many do not; else nobody."""
        if self._host.constants.replicas == 1:
            return tuple(dict.fromkeys(mark.dead for mark in self._vnode.ownership.taken))
        found: dict[Contact, None] = {}
        for arc, who in self.parts():
            places = self._vnode.may_hold(arc.end, who)
            down = [place.contact for place in places if not self._vnode.is_up(place)]
            if len(down) >= self._vnode.write_quorum(who):
                found.update(dict.fromkeys(down))
        return tuple(found) or self._vnode.waits_for

    def states(self) -> tuple[ReplicaState, ...]:
        """Return how well each part is replicated."""
        found = []
        for arc, who in self.parts():
            level = self._level_in(arc)
            members = tuple(place.contact for place in who.members)
            silent = tuple(place.contact for place in who.members if not self._vnode.is_up(place))
            pending = tuple(
                contact
                for contact in members
                if contact not in silent and contact.address not in level and contact.address != self._host.address
            )
            missing = self._unproven(arc, who)
            is_uncertain = missing == ()
            found.append(ReplicaState(arc.start, arc.end, members, silent, pending, missing or (), is_uncertain))
        return tuple(found)

    def _unproven(self, arc: Arc, who: ReplicaSet) -> tuple[Contact, ...] | None:
        """Return the silent nodes of an arc if an absent key cannot be denied there, and None if it can.

        This mirrors `QuorumReads._require_deniable`, with what the owner knows without asking.
        """
        places = self._vnode.may_hold(arc.end, who)
        silent, empty = [place.contact for place in places if not self._vnode.is_up(place)], 0
        if self._vnode.ownership.is_doubtful(arc):
            known = {contact.address for contact in silent}
            gone = [contact for contact in self._host.peers.passive.nodes() if contact.address not in known]
            empty = self._vnode.nodes_known(who) - len(who.members)
            silent, empty = [*silent, *gone[:empty]], max(0, empty - len(gone))
        level = self._level_in(arc)
        settled = {address for address, state in level.items() if state.is_settled}
        if self._vnode.view.is_settled_in(arc):
            settled.add(self._host.address)
        up = [place.contact for place in who.members if self._vnode.is_up(place)]
        unsettled = [contact for contact in up if contact.address not in settled]
        is_enough = len(silent) + len(unsettled) + empty < self._vnode.write_quorum(who)
        return None if is_enough else tuple(silent)

    def fell_behind(self, address: str) -> None:
        """A node was away or did not take a write: it is level no more."""
        for level in self._level.values():
            level.pop(address, None)

    def stood_still(self) -> None:
        """Note that this node stood still: in any arc, other nodes may have written in its stead.

        Only a comparison settles this node again, as after a restart. If each record has one copy, every vnode behind
        this one may have taken its arc over and be the only one with what was written meanwhile.
        """
        self._level.clear()
        self._grown_at = trio.current_time()  # others may have owned this arc meanwhile
        self._vnode.view.was_away()
        own = self._vnode.ownership
        if (arc := own.arc) is None:
            return
        if self._host.constants.replicas > 1:
            own.doubt(arc)
        else:
            self._vnode.mark_only_copies(self._vnode.ring.successors)

    # -- the periodic step ----------------------------------------------------------------------

    async def repair(self) -> None:
        """Compare every part with the replicas that are due.

        Concurrency: checkpoints; cancellation loses nothing, and what is level stays so.
        """
        self._vnode.note_quorum()
        self._note_growth()
        parts = self.parts()
        self._level = {arc: self._level_in(arc) for arc, _ in parts}
        self._vnode.is_stuck &= not all(self._vnode.view.is_settled_in(arc) for arc, _ in parts)
        for arc, who in sorted(parts, key=lambda part: len(self._level[part[0]])):
            up = [p.contact for p in who.members if p.contact.address != self._host.address and self._vnode.is_up(p)]
            level = self._level.get(arc)
            if level is None:
                return  # this node stood still: earlier comparisons count no more
            for address in [a for a in level if all(contact.address != a for contact in up)]:
                del level[address]  # when it is back, it is compared again
            now = trio.current_time()
            due = [c for c in up if c.address not in level or level[c.address].until <= now]
            if not self._vnode.view.is_settled_in(arc):
                due = up
            if due or not up:
                await self._bring_level(arc, level, due, up)

    async def fetch_marked(self) -> None:
        """Fetch the only copies that returned owners have of the arcs marked as theirs; then drop the marks.

        A returned owner also brings these copies home. Until all of them are here, no absent key may be denied.

        Concurrency: checkpoints; cancellation loses nothing, and the marks stay.
        """
        peers = self._host.peers
        for mark in self._vnode.ownership.taken:
            if mark.dead.id in peers.passive or peers.is_known_to_have_left(mark.dead):
                continue
            try:
                await self._fetch_arc(mark)
            except ChordError as error:
                self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])

    async def _fetch_arc(self, mark: Taken) -> None:
        """Fetch what the owner of one marked arc holds of it, if the ring has that owner and it does not own the arc.

        An owner that the ring does not have is waited for again: it may have died a second time.
        """
        found = await self._host.peers.call(self._host.address, FindNeighbours(mark.dead.id), NeighboursOf)
        owner = found.successor
        if owner.id != mark.dead.id:
            self._host.peers.passive.add(mark.dead, trio.current_time())
            return
        if owner.address != self._host.address:
            try:
                await self._host.peers.call(owner, Confirm(mark.arc.end), Confirmed)
            except NotOwner:
                await self._exchange.pull(owner, mark.arc)
                await self._learn_marks_of(owner, mark)
            else:
                return  # it still takes writes there: one of the two arcs is about to shrink
        self._vnode.ownership.fetched(mark)

    async def _learn_marks_of(self, owner: Contact, mark: Taken) -> None:
        """Learn from a returned owner for which owners it waited in a marked part."""
        reply = await self._host.peers.call(owner, GetRing(adopt=False), RingPointers)
        own, now = self._vnode.ownership, trio.current_time()
        if mark in own.taken:  # else the part is another's by now
            waits = (Taken(Arc(t.start, t.end), t.dead, now - t.since_ms / 1000) for t in reply.taken)
            own.learn_marks(mark.arc, waits)

    def _note_growth(self) -> None:
        """Note since when nobody else has been the owner of any of this arc."""
        arc = self._vnode.ownership.arc
        length = 0 if arc is None else self._host.circle.distance(arc.start, arc.end) or self._host.circle.size
        if length > self._length:
            self._grown_at = trio.current_time()
        self._length = length

    async def _bring_level(self, arc: Arc, level: dict[str, Level], due: list[Contact], up: list[Contact]) -> None:
        equal: dict[Contact, bool] = {}  # and whether it was settled before
        recalled: dict[Contact, bool] = {}  # or was before it was away
        known = {contact for contact in up if contact.address in level and level[contact.address].is_settled}
        elsewhere = 0
        if not self._may_vouch(arc, len(known)):
            elsewhere = await self._pull_from_fallbacks(arc)
        to_ask = due
        for _ in range(ROUNDS_MAX):
            pulled = 0
            for contact in to_ask:
                try:
                    outcome = await self._exchange_with(contact, arc)
                except ChordError as error:
                    self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
                    equal.pop(contact, None)
                    recalled.pop(contact, None)
                    continue
                pulled += outcome.pulled
                self._host.counters["repair_keys_pulled"] += outcome.pulled
                self._host.counters["repair_keys_pushed"] += outcome.pushed
                equal[contact] = outcome.is_settled or equal.get(contact, False)
                recalled[contact] = outcome.was_settled or recalled.get(contact, False)
            if not pulled:
                break
            to_ask = up  # what one of them had is news to the others
        if not self._counts(arc, level):
            return
        settled = len(known | {contact for contact, was_settled in equal.items() if was_settled})
        is_compared = len(equal) == len(up)
        vouches = self._may_vouch(arc, settled + elsewhere) or (is_compared and self._is_given_up())
        if not vouches and is_compared and self._are_back(arc, sum(recalled.values()), len(up)):
            vouches = await self._pull_from_behind(arc) and self._counts(arc, level)
        if vouches:
            self._vnode.view.settled(arc.end, arc)
            self._vnode.ownership.sure(arc)
        self._vnode.is_stuck |= is_compared and not self._vnode.view.is_settled_in(arc)
        for contact, was_settled in equal.items():
            if self._counts(arc, level):
                await self._settle(contact, arc, level, was_settled, vouches)

    def _may_vouch(self, arc: Arc, others: int) -> bool:
        """Whether this vnode knows all that was acknowledged: it did, or so many do that none may hold alone what was.

        These must be settled themselves, this vnode too if it is to count: two who are new know nothing, however often
        they compare it. And who took over may have missed what the others were acknowledged for.
        """
        if self._vnode.vouches_for(arc):
            return True
        who = self._vnode.replica_set(arc.end)
        if not all(self._vnode.is_up(place) for place in who.everyone):
            return False  # what this vnode has lost may have been kept by it and by a silent one
        return self._are_enough(others + self._vnode.view.is_settled_in(arc), who)

    def _are_enough(self, settled: int, who: ReplicaSet) -> bool:
        """Whether the nodes that are not settled, forgotten ones included, are fewer than a write quorum."""
        nodes = min(self._host.constants.replicas, self._vnode.nodes_known(who) + self._vnode.view.forgotten())
        return settled > nodes - self._vnode.write_quorum(who)

    def _are_back(self, arc: Arc, others: int, up: int) -> bool:
        """Return whether each acknowledged write must be at one of the nodes that came back after all had stopped.

        The members that were not settled before must be fewer than a write quorum. The nodes that are silent,
        forgotten, or back without their records must be fewer, too, because a write may be at stand-ins. Thus a ring of
        three with one dead node goes on when the other two have compared.

        Args:
            others: the number of other members that were settled before they stopped.
            up: the number of other members that were compared.
        """
        who = self._vnode.replica_set(arc.end)
        silent = {place.contact.address for place in who.everyone if not self._vnode.is_up(place)}
        silent.update(contact.address for contact in self._host.peers.passive.nodes())
        settled = others + self._vnode.view.was_settled_in(arc)
        lost = up + 1 - settled + len(silent) + self._vnode.view.forgotten()
        return self._are_enough(settled, who) and lost < self._vnode.write_quorum(who)

    def _is_given_up(self) -> bool:
        """Return whether no silent node is known that may hold more, and none was for as long as one is waited for.

        If an operator has forgotten a write quorum of nodes since this vnode took its arc over, there is no need to
        wait: the operator gave up the records that only these nodes held.
        """
        if any(self._host.peers.passive.contacts()):
            return False
        is_over = trio.current_time() - self._grown_at >= self._host.timing.down_out_s
        return is_over or self._vnode.view.forgotten_since(self._grown_at) >= self._host.constants.quorum

    async def _pull_from_fallbacks(self, arc: Arc) -> int:
        """Fetch what settled nodes behind the members hold of an arc; return how many of these nodes there are."""
        found = 0
        for place in self._vnode.replica_set(arc.end).fallbacks:
            if place.contact.address != self._host.address and self._vnode.is_up(place):
                try:
                    found += await self._exchange.pull(place.contact, arc, only_settled=True)
                except ChordError as error:
                    self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
        return found

    async def _pull_from_behind(self, arc: Arc) -> bool:
        """Fetch from the next N nodes behind the members of an arc. One may have owned it while the members were away.

        The lists of the members may be as old as their absence. So each node names the nodes that follow it.

        Returns:
            Whether all of these nodes answered, and none of them still owns a part of the arc.
        """
        me, distance = self._vnode.me, self._host.circle.distance
        who = self._vnode.replica_set(arc.end)
        members = {place.contact.address for place in who.members} | {me.address}
        places = {c.id: c for c in (*self._vnode.ring.successors, *(place.contact for place in who.everyone))}
        silent = {place.contact.id for place in who.everyone if not self._vnode.is_up(place)}  # these count as lost
        passed, asked = {me.id, *silent}, set[str]()
        try:
            while len(asked) < self._host.constants.replicas and (ahead := places.keys() - passed):
                contact = places[min(ahead, key=lambda point: distance(me.id, point))]
                passed.add(contact.id)
                pointers = await self._host.peers.call(contact, GetRing(adopt=False), RingPointers)
                places.update(
                    {c.id: c for c in pointers.successors if distance(me.id, c.id) > distance(me.id, contact.id)}
                )
                if pointers.owned_from is not None and arc.end in Arc(pointers.owned_from, contact.id):
                    return False  # it acknowledges writes until it hears that this vnode is back
                if contact.address not in members:
                    await self._exchange.pull(contact, arc)
                    asked.add(contact.address)
        except ChordError as error:
            self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
            return False
        return True

    async def _exchange_with(self, contact: Contact, arc: Arc) -> Outcome:
        began = trio.current_time()

        def note(outcome: Outcome) -> None:
            moved = outcome.pulled + outcome.pushed
            total = round(moved / outcome.share) if outcome.share else None
            past_ms = int(1000 * (trio.current_time() - began))
            self.transfer = TransferInfo("repair", arc.start, arc.end, contact, moved, total, outcome.bytes, past_ms)

        try:
            return await self._exchange.with_partner(contact, arc, progress=note)
        finally:
            self.transfer = None

    async def _settle(
        self, contact: Contact, arc: Arc, level: dict[str, Level], was_settled: bool, vouches: bool
    ) -> None:
        """A replica holds everything of a part: count it for R, and tell it, unless that is in doubt here too."""
        until = trio.current_time() + self._host.jitter(self._host.timing.anti_entropy_s)
        if vouches:
            try:
                await self._host.peers.call(contact, Settled(arc.start, arc.end), Done)
            except ChordError as error:
                self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
                return
        elif not was_settled:
            until = -math.inf  # and again, until somebody knows
        level[contact.address] = Level(until, was_settled or vouches)
        self._host.tell([events.StepDone(self._vnode.id, "repair")])

    def _level_in(self, arc: Arc) -> dict[str, Level]:
        """Return who is level in a part: whoever was, where it has shrunk; nobody, where it has grown."""
        distance, size = self._host.circle.distance, self._host.circle.size
        length = distance(arc.start, arc.end) or size
        for known, level in self._level.items():
            if arc.end in known and (distance(known.start, arc.end) or size) >= length:
                return level if known == arc else dict(level)
        return {}

    def _counts(self, arc: Arc, level: dict[str, Level]) -> bool:
        """Whether the part is unchanged since the round began, and this node has not stood still."""
        return self._level.get(arc) is level and self._is_mine(arc)

    def _is_mine(self, arc: Arc) -> bool:
        return arc in self._arcs()

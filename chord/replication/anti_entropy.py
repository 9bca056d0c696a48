"""Anti-entropy: the owner of an arc keeps the replicas of its records in sync.

A *part* of the arc is a stretch in which all keys have the same replica set. Once a period, the owner compares each
part with each of its replicas. It compares at once with a replica that is new or back. The parts with the fewest
compared replicas go first. A record that one replica had may be missing at the others, so a round is repeated until no
replica had a new one. Then the owner tells the replicas that they are in sync (`InSync`): they hold every acknowledged
write.

Source: DeCandia et al. 2007 (Dynamo), section 4.7 (anti-entropy). The role of the owner, and the message `InSync`, are
this project's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import trio

from chord import events
from chord.errors import ChordError, NotOwner
from chord.ids import Arc, Point, between
from chord.replication.sync import ReplicaSync, SyncOutcome
from chord.ring import ages
from chord.ring.ownership import Mark
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import Vnode
from chord.wire.messages import (
    Confirm,
    ConfirmReply,
    Contact,
    Done,
    FindNeighbours,
    FindNeighboursReply,
    GetRing,
    GetRingReply,
    InSync,
    ReplicaState,
    TransferInfo,
)

ROUNDS_MAX = 3


class SyncState(NamedTuple):
    """What the owner of an arc knows about a replica, after a comparison of one part.

    Attributes:
        until: when to compare again, on Trio's clock; minus infinity: at once.
        is_in_sync: whether the replica is in sync (it holds every acknowledged write of the part), and has heard so.
    """

    until: float
    is_in_sync: bool


class AntiEntropy:
    """Anti-entropy for the arc of one vnode.

    Args:
        vnode: the vnode.
        replica_sync: compares records with a replica, and exchanges those that differ.

    Attributes:
        transfer: the progress of the comparison that runs now, for status reports; None if none runs.
    """

    def __init__(self, vnode: Vnode, replica_sync: ReplicaSync) -> None:
        self._vnode = vnode
        self._host = vnode.host
        self._replica_sync = replica_sync
        self.transfer: TransferInfo | None = None
        self._states: dict[Arc, dict[str, SyncState]] = {}  # by part and address
        self._length = 0  # of the vnode's arc, in the last round
        self._grown_at = -math.inf

    # -- questions ------------------------------------------------------------------------------

    def parts(self) -> list[tuple[Arc, ReplicaSet]]:
        """Return the parts of the arc, clockwise, each with its replica set.

        All keys of a part have the same replica set. The result is empty if this vnode owns no arc.
        """
        return [(arc, self._vnode.replica_set(arc.end)) for arc in self._arcs()]

    def _arcs(self) -> list[Arc]:
        own = self._vnode.ownership
        if own.start is None:
            return []
        if not own.marks:
            return [Arc(own.start, own.me.id)]
        ends = [mark.arc.end for mark in own.marks] + [self._vnode.id]
        distance = self._host.circle.distance
        start: Point = own.start
        ends.sort(key=lambda end: distance(start, end) or self._host.circle.size)
        found = []
        for end in dict.fromkeys(ends):
            found.append(Arc(start, end))
            start = end
        return found

    def in_sync_among(self, contacts: Iterable[Contact], point: int) -> list[Contact]:
        """Return those of some replicas that this owner knows to be in sync at a point of its arc.

        A replica in sync holds every acknowledged write of the part of the arc that contains the point. A vnode of this
        node always counts. If the point is outside the owner's arc, no other replica counts.
        """
        states: Mapping[str, SyncState] = {}
        for arc in self._arcs():
            if point in arc:
                states = self._states_in(arc)
        found: list[Contact] = []
        for contact in contacts:
            state = states.get(contact.address)
            if contact.address == self._host.address or (state is not None and state.is_in_sync):
                found.append(contact)
        return found

    def is_complete(self) -> bool:
        """Return whether this vnode holds all acknowledged writes of its arc.

        This vnode must be in sync in each part of its arc. The nodes that are unreachable or not in sync must be fewer
        than a write quorum: fewer nodes alone cannot have acknowledged a write. One replica with a full disk therefore
        does not keep the result False for ever. If N = 1 (one copy of each record), the result is always True, and
        `unreachable` names the nodes that may hold more.
        """
        if self._host.constants.replicas == 1:
            return True
        is_in_sync = self._vnode.preference_list.is_arc_in_sync
        return all(is_in_sync(arc) and self._unproven(arc, replicas) is None for arc, replicas in self.parts())

    def unreachable(self) -> tuple[Contact, ...]:
        """Return the unreachable nodes that may hold acknowledged writes missing here.

        A part has such nodes if a write quorum of the nodes that may hold its records is unreachable. If no part has
        any, the result is `Vnode.waits_for`: the down vnodes that alone can tell which writes the arc lacks, usually
        none. If N = 1, the nodes are the down former owners of parts that this vnode took over.
        """
        if self._host.constants.replicas == 1:
            return tuple(dict.fromkeys(mark.dead for mark in self._vnode.ownership.marks))
        found: dict[Contact, None] = {}
        for arc, replicas in self.parts():
            places = self._vnode.may_hold(arc.end, replicas)
            down = [place.contact for place in places if not self._vnode.is_up(place)]
            if len(down) >= self._vnode.write_quorum(replicas):
                found.update(dict.fromkeys(down))
        return tuple(found) or self._vnode.waits_for

    def is_calm(self) -> bool:
        """Return whether all reachable replicas have been compared and are in sync, and so is this vnode."""
        for arc, replicas in self.parts():
            states = self._states_in(arc)
            others = [place for place in replicas.members if place.contact.address != self._host.address]
            in_sync = [place for place in others if (s := states.get(place.contact.address)) and s.is_in_sync]
            if len(in_sync) < len(others) or not self._vnode.is_in_sync(arc.end):
                return False
        return True

    def states(self) -> tuple[ReplicaState, ...]:
        """Return the replicas of each part of the arc, for status reports, with those that are down or not compared."""
        found = []
        for arc, replicas in self.parts():
            states = self._states_in(arc)
            members = tuple(place.contact for place in replicas.members)
            unreachable = tuple(place.contact for place in replicas.members if not self._vnode.is_up(place))
            pending = tuple(
                contact
                for contact in members
                if contact not in unreachable and contact.address not in {self._host.address, *states}
            )
            missing = self._unproven(arc, replicas)
            is_uncertain = missing == ()
            found.append(ReplicaState(arc.start, arc.end, members, unreachable, pending, missing or (), is_uncertain))
        return tuple(found)

    def _unproven(self, arc: Arc, replicas: ReplicaSet) -> tuple[Contact, ...] | None:
        """Return the unreachable nodes that keep this vnode from denying keys of a part.

        To deny a key is to answer that it does not exist. The rule is that of `QuorumReads._require_deniable`, but no
        other node is asked.

        Returns:
            None if keys there can be denied. Empty if all known nodes are up, but too few of them are in sync.
        """
        places = self._vnode.may_hold(arc.end, replicas)
        unreachable, empty = [place.contact for place in places if not self._vnode.is_up(place)], 0
        if self._vnode.ownership.is_doubtful(arc):
            known = {contact.address for contact in unreachable}
            gone = [contact for contact in self._host.peers.passive.nodes() if contact.address not in known]
            empty = self._vnode.nodes_known(replicas) - len(replicas.members)
            unreachable, empty = [*unreachable, *gone[:empty]], max(0, empty - len(gone))
        states = self._states_in(arc)
        in_sync = {address for address, state in states.items() if state.is_in_sync}
        if self._vnode.preference_list.is_arc_in_sync(arc):
            in_sync.add(self._host.address)
        up = [place.contact for place in replicas.members if self._vnode.is_up(place)]
        out_of_sync = [contact for contact in up if contact.address not in in_sync]
        is_enough = len(unreachable) + len(out_of_sync) + empty < self._vnode.write_quorum(replicas)
        return None if is_enough else tuple(unreachable)

    def fell_behind(self, address: str) -> None:
        """Stop counting the node at an address as in sync in any part, because it was away or missed a write."""
        for states in self._states.values():
            states.pop(address, None)
        self._host.news()

    def lost_sync(self, replica: Contact, point: int) -> None:
        """Compare soon with a replica that says that it is not in sync at a point of this owner's arc.

        A replica stops counting itself as in sync when it loses its place for a while. This owner may not notice that.
        """
        if self.in_sync_among((replica,), point) and replica.address != self._host.address:
            self.fell_behind(replica.address)

    def stood_still(self) -> None:
        """Stop counting this node as in sync, because its process was suspended.

        Other nodes may have written in any arc meanwhile. Only a comparison puts this node in sync again, as after a
        restart. If N = 1, each vnode behind this one may have taken its arc over, and may hold the only copies of
        records written meanwhile.
        """
        self._states.clear()
        self._grown_at = trio.current_time()  # others may have owned this arc meanwhile
        self._vnode.preference_list.was_away()
        own = self._vnode.ownership
        if (arc := own.arc) is None:
            return
        if self._host.constants.replicas > 1:
            own.doubt(arc)
        else:
            self._vnode.mark_only_copies(self._vnode.ring.successors)

    # -- the periodic step ----------------------------------------------------------------------

    async def repair(self) -> None:
        """Run one round of anti-entropy: compare each part with the replicas that are due.

        A replica is due when it is new or back, and about `anti_entropy_s` seconds after its last comparison. If this
        vnode is not in sync in a part, all reachable replicas of the part are due.

        Concurrency: checkpoints; cancellation loses nothing, and finished comparisons count.
        """
        self._vnode.note_quorum()
        self._note_growth()
        parts = self.parts()
        self._states = {arc: self._states_in(arc) for arc, _ in parts}
        self._vnode.is_stuck &= not all(self._vnode.preference_list.is_arc_in_sync(arc) for arc, _ in parts)
        for arc, replicas in sorted(parts, key=lambda part: len(self._states[part[0]])):
            others = [place for place in replicas.members if place.contact.address != self._host.address]
            up = [place.contact for place in others if self._vnode.is_up(place)]
            states = self._states.get(arc)
            if states is None:
                return  # this node stood still, so earlier comparisons no longer count
            for address in [a for a in states if all(contact.address != a for contact in up)]:
                del states[address]  # unreachable, or not a member: it is compared when it is back
            now = trio.current_time()
            due = [c for c in up if c.address not in states or states[c.address].until <= now]
            if not self._vnode.preference_list.is_arc_in_sync(arc):
                due = up
            if due or not up:
                await self._sync_part(arc, states, due, up)

    async def fetch_marked(self) -> None:
        """Fetch records from returned owners of parts that this vnode took over.

        A *mark* names such a part and its former owner. That node may have the only copies of records, and it also
        sends them to this vnode itself. Until all of them are here, this vnode may not deny a key of the part. Then the
        mark is dropped.

        Concurrency: checkpoints; cancellation loses nothing, and the marks stay.
        """
        peers = self._host.peers
        for mark in self._vnode.ownership.marks:
            if mark.dead.id in peers.passive or peers.is_known_to_have_left(mark.dead):
                continue
            try:
                await self._fetch_arc(mark)
            except ChordError as error:
                self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])

    async def _fetch_arc(self, mark: Mark) -> None:
        """Fetch the records of a part from its former owner, and drop the mark.

        If the former owner is not in the ring, it may have died again, so this vnode waits for its return. If the
        former owner owns the part again, nothing is fetched, and the mark stays.

        Args:
            mark: the part that this vnode took over, and its former owner.

        Raises:
            ChordError: a call failed, and the mark stays.
        """
        found = await self._host.peers.call(self._host.address, FindNeighbours(mark.dead.id), FindNeighboursReply)
        owner = found.successor
        if owner.id != mark.dead.id:
            self._host.peers.passive.add(mark.dead, trio.current_time())
            return
        if owner.address != self._host.address:
            try:
                await self._host.peers.call(owner, Confirm(mark.arc.end), ConfirmReply)
            except NotOwner:
                await self._replica_sync.pull(owner, mark.arc)
                await self._learn_marks_of(owner, mark)
            else:
                return  # the owner takes writes there: one of the two arcs is about to shrink
        self._vnode.ownership.fetched(mark)

    async def _learn_marks_of(self, owner: Contact, mark: Mark) -> None:
        """Adopt the marks that a former owner has in the part that was taken over from it.

        Each of these marks names another down node that may hold records of the part.

        Args:
            owner: the former owner, which is back.
            mark: the part, as this vnode marked it.
        """
        asked_at = trio.current_time()
        reply = await self._host.peers.call(owner, GetRing(adopt=False), GetRingReply)
        own = self._vnode.ownership
        if mark in own.marks:  # otherwise another vnode owns the part by now
            own.learn_marks(mark.arc, ages.marks_from_others(reply.marks, self._host.peers, asked_at))

    def _note_growth(self) -> None:
        """Note when the arc last grew: before, another vnode owned the new part."""
        arc = self._vnode.ownership.arc
        length = 0 if arc is None else self._host.circle.distance(arc.start, arc.end) or self._host.circle.size
        if length > self._length:
            self._grown_at = trio.current_time()
        self._length = length

    async def _sync_part(self, arc: Arc, states: dict[str, SyncState], due: list[Contact], up: list[Contact]) -> None:
        equal: dict[Contact, bool] = {}  # compared replicas: whether each was in sync before
        recalled: dict[Contact, bool] = {}  # likewise: whether it was in sync before, or before it was away
        known = {contact for contact in up if contact.address in states and states[contact.address].is_in_sync}
        elsewhere = 0
        if not self._may_vouch(arc, len(known)):
            elsewhere = await self._pull_from_stand_ins(arc)
        to_ask = due
        for _ in range(ROUNDS_MAX):
            pulled = 0
            for contact in to_ask:
                try:
                    outcome = await self._exchange_with(contact, arc)
                except ChordError as error:
                    self._host.counters["comparisons_failed"] += 1
                    self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
                    equal.pop(contact, None)
                    recalled.pop(contact, None)
                    continue
                pulled += outcome.pulled
                self._host.counters["repair_keys_pulled"] += outcome.pulled
                self._host.counters["repair_keys_pushed"] += outcome.pushed
                differs = outcome.pulled + outcome.pushed > 0
                self._host.counters["comparisons_repaired" if differs else "comparisons_equal"] += 1
                if differs:
                    self._host.news()
                equal[contact] = outcome.is_in_sync or equal.get(contact, False)
                recalled[contact] = outcome.was_in_sync or recalled.get(contact, False)
            if not pulled:
                break
            to_ask = up  # the others may lack a record that one of them had
        if not self._counts(arc, states):
            return
        in_sync = len(known | {contact for contact, was_in_sync in equal.items() if was_in_sync})
        is_compared = len(equal) == len(up)
        vouches = self._may_vouch(arc, in_sync + elsewhere) or (is_compared and self._is_given_up())
        if not vouches and is_compared:
            are_back = self._are_back(arc, sum(recalled.values()), len(up))
            if are_back or self._are_all_up(arc):
                vouches = await self._pull_from_behind(arc, is_gap_allowed=are_back) and self._counts(arc, states)
        if vouches:
            self._vnode.preference_list.note_in_sync(arc.end, arc)
            self._vnode.ownership.sure(arc)
        self._vnode.is_stuck |= is_compared and not self._vnode.preference_list.is_arc_in_sync(arc)
        for contact, was_in_sync in equal.items():
            if self._counts(arc, states):
                await self._note_equal(contact, arc, states, was_in_sync, vouches)

    def _may_vouch(self, arc: Arc, others: int) -> bool:
        """Return whether this vnode knows every acknowledged write of a part.

        That is so if `Vnode.vouches_for` says so. Otherwise every node of the replica set must be up. The nodes that
        are not in sync must also be fewer than a write quorum. This vnode counts as in sync only if it already is. Two
        new nodes know nothing, however often they compare. A vnode that took over may have missed writes that others
        acknowledged.

        Args:
            arc: the part.
            others: the number of other nodes in sync with which this vnode has compared.
        """
        if self._vnode.vouches_for(arc):
            return True
        replicas = self._vnode.replica_set(arc.end)
        if not all(self._vnode.is_up(place) for place in replicas.everyone):
            return False  # only an unreachable node may hold a write that this vnode stored and then lost
        return self._are_enough(others + self._vnode.preference_list.is_arc_in_sync(arc), replicas)

    def _are_enough(self, in_sync: int, replicas: ReplicaSet) -> bool:
        """Return whether the nodes that are not in sync are fewer than a write quorum.

        Nodes that an operator has forgotten (`chord forget`) count as not in sync.

        Args:
            in_sync: the number of nodes in sync, this one included if it is.
            replicas: the replica set.
        """
        known = self._vnode.nodes_known(replicas) + self._vnode.preference_list.forgotten()
        nodes = min(self._host.constants.replicas, known)
        return in_sync > nodes - self._vnode.write_quorum(replicas)

    def _are_back(self, arc: Arc, others: int, up: int) -> bool:
        """Return whether the members that came back hold a part's acknowledged writes.

        This is for a ring in which all nodes had stopped, so no node is in sync. Two numbers must each be smaller than
        a write quorum. The first is that of members that were not in sync before the stop. The second is that of nodes
        that are unreachable, forgotten, or back without having been in sync, because stand-ins may hold a write. So a
        ring of three with one dead node goes on when the other two have compared.

        Args:
            arc: the part.
            others: the number of other members that were in sync before they stopped.
            up: the number of other members that were compared.
        """
        replicas = self._vnode.replica_set(arc.end)
        unreachable = {place.contact.address for place in replicas.everyone if not self._vnode.is_up(place)}
        unreachable.update(contact.address for contact in self._host.peers.passive.nodes())
        in_sync = others + self._vnode.preference_list.was_arc_in_sync(arc)
        lost = up + 1 - in_sync + len(unreachable) + self._vnode.preference_list.forgotten()
        return self._are_enough(in_sync, replicas) and lost < self._vnode.write_quorum(replicas)

    def _are_all_up(self, arc: Arc) -> bool:
        """Return whether this vnode knows no unreachable node, and forgotten nodes are fewer than a write quorum.

        This is for a ring that stopped before its replicas were in sync, for instance in the second of its foundation.
        No member can tell then what the others have acknowledged. If the nodes behind this vnode know no unreachable
        node either, each of them can be asked for its records.

        Args:
            arc: the part.
        """
        replicas = self._vnode.replica_set(arc.end)
        if any(self._host.peers.passive.contacts()) or not all(self._vnode.is_up(p) for p in replicas.everyone):
            return False
        return self._vnode.preference_list.forgotten() < self._vnode.write_quorum(replicas)

    def _is_given_up(self) -> bool:
        """Return whether no unreachable node is expected to bring further records.

        The result is True if no unreachable node is known, and the arc has not grown for `down_out_s` seconds. If an
        operator has forgotten a write quorum of nodes since the arc grew, there is no wait. The operator gave up the
        records that only these nodes held.
        """
        if any(self._host.peers.passive.contacts()):
            return False
        is_over = trio.current_time() - self._grown_at >= self._host.timing.down_out_s
        return is_over or self._vnode.preference_list.forgotten_since(self._grown_at) >= self._host.constants.quorum

    async def _pull_from_stand_ins(self, arc: Arc) -> int:
        """Fetch the records of a part from the stand-ins that are in sync there.

        Stand-ins are the nodes behind the replicas, which keep writes for unreachable replicas.

        Returns:
            The number of stand-ins in sync.
        """
        found = 0
        for place in self._vnode.replica_set(arc.end).stand_ins:
            if place.contact.address != self._host.address and self._vnode.is_up(place):
                try:
                    found += await self._replica_sync.pull(place.contact, arc, only_in_sync=True)
                except ChordError as error:
                    self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
        return found

    async def _pull_from_behind(self, arc: Arc, *, is_gap_allowed: bool = True) -> bool:
        """Fetch the records of a part from the next N + r nodes behind its replicas, if any.

        One of these nodes may have owned the part while the replicas were away. Further neighbours may have been away
        with the replicas, and others may have joined meanwhile. So each node is asked for its own list and predecessor.

        Args:
            arc: the part.
            is_gap_allowed: whether nodes may be missing. If not, each node's arc must begin at the node before it. The
                vnodes before this one are asked, too, and no asked node may wait for an unreachable one.

        Returns:
            Whether all asked nodes answered as required, and none of them still owns the end of the part.
        """
        me, distance = self._vnode.me, self._host.circle.distance
        replicas = self._vnode.replica_set(arc.end)
        members = {place.contact.address for place in replicas.members} | {me.address}
        places = {c.id: c for c in (*self._vnode.ring.successors, *(place.contact for place in replicas.everyone))}
        unreachable = {place.contact.id for place in replicas.everyone if not self._vnode.is_up(place)}  # lost
        passed, asked, last = {me.id, *unreachable}, set[str](), me.id
        count = self._host.constants.replicas + self._host.constants.successors
        try:
            for before_me in () if is_gap_allowed else self._vnode.ring.predecessors:  # they know dead former owners
                if (await self._host.peers.call(before_me, GetRing(adopt=False), GetRingReply)).is_waiting:
                    return False
            while len(asked) < count and (ahead := places.keys() - passed):
                contact = places[min(ahead, key=lambda point: distance(me.id, point))]
                pointers = await self._host.peers.call(contact, GetRing(adopt=False), GetRingReply)
                before = pointers.predecessor
                if before is not None and before.id not in places and between(last, before.id, contact.id):
                    places[before.id] = before  # it joined meanwhile, and no list that this vnode has seen names it
                    continue
                if not is_gap_allowed and (pointers.is_waiting or pointers.owned_from != last):
                    return False
                passed.add(contact.id)
                last = contact.id
                places.update(
                    {c.id: c for c in pointers.successors if distance(me.id, c.id) > distance(me.id, contact.id)}
                )
                if pointers.owned_from is not None and arc.end in Arc(pointers.owned_from, contact.id):
                    return False  # this node acknowledges writes until it hears that our vnode is back
                if contact.address not in members:
                    await self._replica_sync.pull(contact, arc)
                    asked.add(contact.address)
        except ChordError as error:
            self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
            return False
        return True

    async def _exchange_with(self, contact: Contact, arc: Arc) -> SyncOutcome:
        began = trio.current_time()

        def note(outcome: SyncOutcome) -> None:
            moved = outcome.pulled + outcome.pushed
            total = round(moved / outcome.share) if outcome.share else None
            past_ms = int(1000 * (trio.current_time() - began))
            self.transfer = TransferInfo("repair", arc.start, arc.end, contact, moved, total, outcome.bytes, past_ms)

        try:
            return await self._replica_sync.with_partner(contact, arc, progress=note)
        finally:
            self.transfer = None

    async def _note_equal(
        self, contact: Contact, arc: Arc, states: dict[str, SyncState], was_in_sync: bool, vouches: bool
    ) -> None:
        """Note that a replica now holds the same records of a part as this vnode.

        If this vnode vouches for the part (it knows every acknowledged write there), it informs the replica that the
        replica is in sync. If this message fails, nothing is noted. If this vnode does not vouch, the two nodes compare
        again in the next round, unless the replica was in sync.

        Args:
            contact: the replica.
            arc: the part.
            states: receives the new state of the replica, by address.
            was_in_sync: whether the replica was in sync before the comparison.
            vouches: whether this vnode vouches for the part.
        """
        until = trio.current_time() + self._host.jitter(self._host.timing.anti_entropy_s)
        if vouches:
            try:
                await self._host.peers.call(contact, InSync(arc.start, arc.end), Done)
            except ChordError as error:
                self._host.tell([events.StepFailed(self._vnode.id, "repair", error.word)])
                return
        elif not was_in_sync:
            until = -math.inf  # compare again until a node vouches for the part
        states[contact.address] = SyncState(until, was_in_sync or vouches)
        self._host.tell([events.StepDone(self._vnode.id, "repair")])

    def _states_in(self, arc: Arc) -> dict[str, SyncState]:
        """Return the states of the replicas compared in a part, by address.

        If the part has shrunk, earlier comparisons still count. If it has grown, none counts.
        """
        distance, size = self._host.circle.distance, self._host.circle.size
        if arc in self._states:
            return self._states[arc]
        length = distance(arc.start, arc.end) or size
        for known, states in self._states.items():
            if arc.end in known and (distance(known.start, arc.end) or size) >= length:
                return dict(states)
        return {}

    def _counts(self, arc: Arc, states: dict[str, SyncState]) -> bool:
        """Return whether the comparisons of a part in this round are still valid.

        They are if the part is unchanged since the round began, and this node's process was not suspended meanwhile.

        Args:
            arc: the part.
            states: the states of the part's replicas, as `repair` took them at the beginning of the round.
        """
        return self._states.get(arc) is states and self._is_mine(arc)

    def _is_mine(self, arc: Arc) -> bool:
        return arc in self._arcs()

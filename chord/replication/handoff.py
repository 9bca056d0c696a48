"""Handoff: bring records to nodes that must keep them, then drop them on proof.

A node may hold records that other nodes must keep:

- hints, which it keeps for an unreachable replica,
- copies of an arc that other nodes replicate since a join,
- all its records, if it leaves,
- the leftovers of a healed split, or of a transfer that failed.

One mechanism moves all of them. The node asks the owner which nodes must hold the records, and syncs the records with
each of them. It drops a record if all of them have proved to hold it, and if the record is still the same here. While a
replica is unreachable, its stand-in is one of these nodes. So a hint stays there until the replica is back, or another
node has taken its place.

Records outside the arcs that a node replicates are certainly *misplaced*. The node derives these arcs from its
predecessors. An unreachable predecessor is missing there, but it is still a replica, and only owners know about it. So
the node also asks the owners from time to time whether its own copies are hints. It brings such hints to the reachable
replicas, and keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import trio

from chord import events
from chord.errors import ChordError, LookupFailed
from chord.ids import Arc, Circle, Point
from chord.replication.sync import ReplicaSync
from chord.ring.context import NodeContext
from chord.ring.lookup import Lookups
from chord.ring.ownership import overlap
from chord.store.identity import StateSaver
from chord.store.storage import Batch
from chord.wire.messages import Confirm, ConfirmReply, Contact, TransferInfo

PART_RECORDS = 128  # records that are brought home in one step


def gaps(circle: Circle, arcs: list[Arc]) -> list[Arc]:
    """Return the parts of the circle outside all given arcs, in clockwise order.

    Without arcs, that is the whole circle.
    """
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
    """Return whether one arc, `part`, lies completely in another arc, `arc`."""
    length = circle.distance(part.start, part.end) or circle.size
    return arc.is_whole or (part.end in arc and length <= circle.distance(arc.start, part.end))


class Handoff:
    """Moves the misplaced records and the hints of a node to their replicas.

    A record is misplaced if this node does not replicate its arc. A hint is a record that this node keeps for an
    unreachable replica.

    Args:
        host: the node context.
        lookups: finds the owners of records.
        replica_sync: sends records to a replica, and proves that it holds them.
        saver: persists the state of this node in `node.json`.
        is_receiving: returns whether a vnode of this node is receiving an arc. Meanwhile no record is dropped.

    Attributes:
        hints: number of records kept for unreachable replicas, as counted in the last round; 0 before the first.
        transfer: the progress of the round that runs now, for status reports; None if none runs.
    """

    def __init__(
        self,
        host: NodeContext,
        lookups: Lookups,
        replica_sync: ReplicaSync,
        saver: StateSaver,
        is_receiving: Callable[[], bool],
    ) -> None:
        self._host = host
        self._lookups = lookups
        self._replica_sync = replica_sync
        self._saver = saver
        self._is_receiving = is_receiving
        self.hints = 0
        self._misplaced_hints = 0  # hints outside the arcs that this node seems to replicate
        self._logs_home: dict[Arc, bytes] = {}  # by misplaced arc: the digest of the reap logs that its replicas have
        self._at_stake: dict[Arc, bool] = {}  # by part about to be dropped: whether another node compared it since
        self._mine: dict[Point, tuple[Arc, float]] = {}  # by end: parts that an owner confirmed, and until when
        self.transfer: TransferInfo | None = None

    def arcs(self) -> list[Arc]:
        """Return the arcs that this node does not replicate, as far as it knows: together the rest of the circle."""
        return gaps(self._host.circle, self._replicated())

    def count(self) -> int:
        """Return the number of misplaced records: this node does not replicate their arcs."""
        return sum(self._host.storage.count(arc) for arc in self.arcs()) if len(self._host.storage) else 0

    def on_their_way(self) -> int:
        """Return the number of misplaced records that are not hints.

        The hints among them were counted in the last round; before the first round, no record counts as a hint.
        """
        return max(0, self.count() - self._misplaced_hints)

    def is_done(self) -> bool:
        """Return whether this node has handed off all misplaced records and reap logs.

        A misplaced reap log is handed off when the replicas of its arc have the same entries.
        """
        return not self.count() and all(self._is_log_home(arc) for arc in self.arcs())

    async def bring_home(self, start: Contact) -> int:
        """Run one round of handoff: bring all misplaced records to their replicas.

        A record is dropped here when all nodes that must keep it have proved to hold it. Hints go to the reachable
        replicas, and also stay here. Reap logs of misplaced arcs also go to the replicas, and stay here.

        Args:
            start: the vnode at which lookups start.

        Returns:
            The number of dropped records.

        Concurrency: checkpoints; cancellation loses nothing.
        """
        dropped, self._misplaced_hints = await self._bring_arcs_home(self.arcs(), start)
        also_dropped, hints = await self._bring_arcs_home(await self._not_mine(start), start)
        self.hints = self._misplaced_hints + hints
        await self._bring_logs_home(start)
        return dropped + also_dropped

    async def _bring_arcs_home(self, arcs: list[Arc], start: Contact) -> tuple[int, int]:
        """Bring the records of some arcs to their replicas, some `PART_RECORDS` at a time.

        Args:
            arcs: the arcs.
            start: the vnode at which lookups start.

        Returns:
            The number of dropped records, and the number of hints.
        """
        storage = self._host.storage
        began = trio.current_time()
        done = dropped = hints = 0
        stretches = [s for arc in arcs for s in storage.digests.stretches(arc, PART_RECORDS, storage.heads)]
        total = sum(storage.count(stretch) for stretch in stretches)
        try:
            for stretch in stretches:
                since = trio.current_time()
                past_ms = int(1000 * (since - began))
                report = partial(_surplus, stretch, done, total, past_ms)
                done += storage.count(stretch)
                try:
                    gone, kept = await self._bring_part_home(stretch, start, report)
                except ChordError as error:  # no owner is found, or a node refuses: the next round tries again
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
        """Sync the reap log of every misplaced arc with the replicas of the arc.

        An arc without records may also have a log. Log entries that arrive later go with the next round.
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
        """Sync the reap log of an arc with all replicas, owner by owner.

        If an owner is not found or a replica refuses, the others still get the log.

        Returns:
            Whether a write quorum of other nodes has the log now. If this node is itself among the nodes that must hold
            the records, the result is False.
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
                    await self._replica_sync.log_sync.sync(contact, part)
                except ChordError as error:
                    self._host.tell([events.StepFailed(start.id, "bring_home", error.word)])
                    is_enough = False
        return is_enough

    # -- replica sets ---------------------------------------------------------------------------

    async def _not_mine(self, start: Contact) -> list[Arc]:
        """Ask the owners, and return the arcs that this node only seems to replicate.

        This node derives its arcs from its reachable predecessors. Only the owners know which unreachable nodes are
        also replicas. An arc with an owner that does not answer is left out until the next round.
        """
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
                    break  # the next round asks again
                part, rest = self._cut(rest, point, confirmed)
                if self._is_among(confirmed.replicas):
                    until = trio.current_time() + self._host.jitter(self._host.timing.anti_entropy_s)
                    self._mine[part.end] = (part, until)
                else:
                    found.append(part)
        return found

    def _unsure(self) -> list[Arc]:
        """Return the arcs that this node seems to replicate, without confirmed ones.

        A confirmation by the owner of an arc counts for about `anti_entropy_s` seconds. The arcs that this node owns
        need none.
        """
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

    async def _ask_owner(self, point: Point, start: Contact) -> ConfirmReply:
        """Ask the owner of a point which nodes must hold the records there.

        The deadline keeps one owner from delaying the records of all others.

        Raises:
            LookupFailed: the owner did not answer in time.
            ChordError: see `Lookups.deliver`.
        """
        try:
            with trio.fail_after(self._host.timing.timeout_cap_s):
                return (await self._lookups.deliver(Confirm(point), ConfirmReply, point, start))[0]
        except trio.TooSlowError:
            raise LookupFailed("the owner was not found in time") from None

    def _cut(self, rest: Arc, point: Point, confirmed: ConfirmReply) -> tuple[Arc, Arc | None]:
        """Split off the first part of an arc that has one replica set.

        The part begins at the point. It ends at the next vnode that is in the ring, or that the ring waits for.

        Args:
            rest: the arc.
            point: the point of the first record in the arc.
            confirmed: the reply of the point's owner.

        Returns:
            The part, and the rest of the arc or None.
        """
        circle, owner = self._host.circle, confirmed.owner.id
        ahead = [contact.id for contact in confirmed.replicas if contact.id in Arc(circle.point(point - 1), owner)]
        end = min((circle.distance(point, other), other) for other in (*ahead, owner))[1]
        is_last = rest.end in Arc(circle.point(point - 1), end)
        part = Arc(circle.point(point - 1), rest.end if is_last else end)
        return part, None if is_last or end == rest.end else Arc(end, rest.end)

    async def _bring_part_home(
        self, stretch: Arc, start: Contact, report: Callable[[Contact], TransferInfo]
    ) -> tuple[int, int]:
        """Bring the records of a small arc to their replicas, owner by owner.

        `report` returns the progress for a status report, for an owner that takes records.

        Returns:
            The number of dropped records, and the number of hints.
        """
        circle, storage = self._host.circle, self._host.storage
        dropped = hints = 0
        rest: Arc | None = stretch
        while rest is not None:
            first = next(storage.heads(rest), None)
            if first is None or self._is_receiving():  # an arc being received is on its way, not lost
                break
            point = circle.hash(first[0])
            confirmed = await self._ask_owner(point, start)
            self.transfer = report(confirmed.owner)
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
        """Return whether one of the contacts is a vnode of this node.

        Ids are compared, because an unreachable vnode of another node may have had this node's address.
        """
        return any(contact.id in self._host.vnodes for contact in contacts)

    def _is_lone(self, confirmed: ConfirmReply) -> bool:
        """Return whether too few other nodes would hold a part if this node dropped it.

        Too few are fewer than a write quorum. If the ring has fewer other nodes, all of them are enough. This node and
        the owner each count the nodes of the ring, also unreachable ones. The larger number decides, because the owner
        may have lost other nodes for a moment.

        Args:
            confirmed: the owner's reply, with the nodes that would hold the part.
        """
        known = {contact.address for contact in confirmed.replicas} | self._host.nodes_known()
        retiring = {address for vnode in self._host.vnodes.values() for address in vnode.preference_list.retiring}
        staying = len(known - retiring - {self._host.address})
        quorum = max(confirmed.needed, min(self._host.constants.quorum, staying))
        return len(confirmed.holders) < quorum

    async def _share(self, confirmed: ConfirmReply, part: Arc) -> None:
        """Send the hints of a part to the reachable nodes that must hold them.

        The hints stay here for the unreachable replicas. The owner gets them even if it is neither a replica nor a
        stand-in, because many nodes before it are unreachable.
        """
        for contact in self._share_with(confirmed):
            await self._replica_sync.prove(contact, part)

    def _share_with(self, confirmed: ConfirmReply) -> list[Contact]:
        everyone = dict.fromkeys((*confirmed.replicas, *confirmed.holders, confirmed.owner))
        return [c for c in everyone if c not in confirmed.unreachable and c.address != self._host.address]

    def compared(self, arc: Arc) -> None:
        """Note that another node compares an arc with this node.

        That node may rely on the copies here from now on. So a handoff under way drops no records of the arc.
        """
        for part in self._at_stake:
            if overlap(part, arc):
                self._at_stake[part] = True

    async def _hand_to(self, confirmed: ConfirmReply, part: Arc, start: Contact) -> int:
        """Send a part to the nodes that must hold it, and drop the records that all have.

        No record is dropped if another node has compared the part with this node meanwhile. The owner may have changed,
        and that node may be about to drop its own copies because of the copies here.

        No record is dropped either while node.json cannot be written. After a restart, this node would rely on the old
        file, and believe that it still holds the records.

        Args:
            confirmed: the owner's reply, with the nodes that must hold the part.
            part: the part.
            start: a vnode of this node, for events.

        Returns:
            The number of dropped records.
        """
        storage = self._host.storage
        proven: dict[bytes, bytes] = dict(storage.heads(part))
        self._at_stake.setdefault(part, False)
        try:
            for contact in confirmed.holders:
                held = await self._replica_sync.prove(contact, part)
                proven = {key: digest for key, digest in proven.items() if held.get(key) == digest}
            is_saved = not proven or await self._saver.save()
        finally:
            is_compared = self._at_stake.pop(part, True)
        if is_compared or self._is_receiving() or not is_saved:
            return 0  # the owner may hand the arc to this node, and drop its own copy next
        now = dict(storage.heads(part))
        keys = [key for key, digest in proven.items() if now.get(key) == digest and self._is_to_drop(key)]
        await storage.commit(Batch(removals=keys))
        if keys:
            self._host.counters["keys_brought_home"] += len(keys)
            self._host.tell([events.RecordsDropped(start.id, len(keys), confirmed.owner)])
        return len(keys)

    def _is_to_drop(self, key: bytes) -> bool:
        """Return whether a key is still outside every arc that this node replicates."""
        point: Point = self._host.circle.hash(key)
        return not any(point in arc for arc in self._replicated())


def _surplus(stretch: Arc, done: int, total: int, since_ms: int, owner: Contact) -> TransferInfo:
    return TransferInfo("surplus", stretch.start, stretch.end, owner, done, total, 0, since_ms)

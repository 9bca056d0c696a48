"""One vnode: its pointers, fingers and arc, and its replies from local state.

Everything here is synchronous. The coroutines that keep the state up to date are in `stabilize`, `membership` and
`replication/transfer`.
"""

from __future__ import annotations

from collections.abc import Iterable

from chord.errors import Busy, Leaving, NotOwner, NotReady, OwnerDown
from chord.finger import FingerTable
from chord.ids import Arc, Point, between
from chord.net.calls import Caller
from chord.net.handlers import handles
from chord.ring import ages
from chord.ring.context import NodeContext
from chord.ring.ownership import Mark, Ownership, OwnerVerdict
from chord.ring.pointers import RingState
from chord.ring.preference_list import Place, PreferenceList, ReplicaSet
from chord.wire.messages import (
    LIST_ENTRIES_MAX,
    Candidate,
    Confirm,
    ConfirmReply,
    Contact,
    Done,
    FindNext,
    FindNextReply,
    GetRing,
    GetRingReply,
    GiveMarks,
    MarkedArc,
    UnreachableVnode,
    Via,
    VnodeInfo,
    VnodeState,
)

CANDIDATES_MAX = 8  # alternatives in one reply: enough to step over several dead hops without asking again
RETRY_MS = 50
NEWCOMER_ROUNDS = 10
"""A vnode counts as a newcomer for this many stabilize rounds.

Other nodes notice only after a while that a node is down.
"""


class Vnode:
    """One point that a node holds on the circle: a full Chord member.

    Attributes:
        me: this vnode's id and address.
        host: the context that all vnodes of the node share.
        ring: the predecessor and the successor list.
        fingers: the finger table.
        ownership: the arc that this vnode answers for.
        preference_list: down vnodes behind this one, and the arcs in which this vnode is in sync.
        state: the stage of its membership: "joining", "resuming", "member" or "leaving"; "left" after its own goodbye.
        rounds: completed stabilize rounds.
        isolated_since: when a round first found every neighbour unreachable, on Trio's clock; None while there are
            neighbours.
        eager_looks: how many self-lookups must still change nothing before they become rare. Until then every round
            makes one.
        has_met_quorum: whether the ring may have acknowledged writes since the node of this vnode started. It is
            false only after a restart that found no member, or only members that were away, too. `note_quorum` sets it
            again.
        answered: addresses that replied after a restart of this vnode, when none of them was a member yet.
        is_stuck: whether this arc was compared with all live replicas, and only down nodes can tell which writes it
            lacks.
    """

    def __init__(self, me: Contact, host: NodeContext) -> None:
        self.me = me
        self.host = host
        self._quorum, self._stand_ins = host.constants.quorum, host.constants.stand_ins
        self.ring = RingState(me, host.circle, host.constants.successors, host.constants.replicas + 1)
        self.fingers = FingerTable(host.circle, me.id)
        self.ownership = Ownership(me)
        self.preference_list = PreferenceList(me, host.circle)
        self.state: VnodeState = "joining"
        self.rounds = 0
        self.isolated_since: float | None = None
        self.eager_looks = 0
        self.has_met_quorum = True
        self.answered: tuple[str, ...] = ()
        self.is_stuck = False

    @property
    def id(self) -> Point:
        """This vnode's point."""
        return self.me.id

    # -- answers --------------------------------------------------------------------------------

    @handles(GetRing, takes_caller=True)
    def on_get_ring(self, request: GetRing, caller: Caller) -> GetRingReply:
        """Return the predecessor, the lists and the arc of this vnode.

        Pointers that the caller may adopt count as observed (abort-if-observed, `chord/stabilize.py`).

        Args:
            request: `adopt` says whether the caller may adopt the pointers, `joins` whether it joins behind this vnode.
            caller: its predecessor may adopt the list even while this vnode leaves and brings its records home. The
                replica sets before this vnode depend on that list. So may a caller that joins, because this vnode may
                wait for it to take records. At its goodbye, this vnode no longer answers a joiner.

        Raises:
            Busy: the caller wants to adopt the pointers, and a step that discarded too many replies must finish first.
            Leaving: the arc is handed over, and the caller is not the predecessor and does not join behind this vnode.
            NotReady: this vnode is not a member yet.
        """
        ring = self.ring
        if not ring.is_member:
            raise NotReady(f"vnode {self.host.circle.hex(self.id)} has not joined yet", after_ms=RETRY_MS)
        if request.adopt:
            is_before = ring.predecessor is not None and ring.predecessor.address == caller.address
            is_gone = self.state == "leaving" and self.ownership.start is None
            if is_gone and not is_before and (self.host.is_ending or not request.joins):
                raise Leaving("this vnode is leaving and cannot be a new successor", after_ms=RETRY_MS)
            if ring.busy_steps:
                raise Busy("a protocol step is being completed", after_ms=RETRY_MS)
            ring.observed += 1
        start = self.ownership.start
        return GetRingReply(
            me=self.me,
            predecessor=ring.predecessor,
            successors=ring.successors,
            predecessors=ring.predecessors,
            owned_from=start,
            unreachable=(*self._marked(), *self.unreachable())[:LIST_ENTRIES_MAX],
            now_ms=max(0, self.host.wall_now_ms()),
            marks=self._marks_for_others(),
            is_waiting=len(self.host.peers.passive) > 0,
            passive=self.host.peers.passive.remembered()[-LIST_ENTRIES_MAX:] if request.joins else (),
        )

    @handles(FindNext)
    def on_find_next(self, request: FindNext) -> FindNextReply:
        """Return one step of a lookup: the key's successor, or closer vnodes before the key.

        The reply is final if the key's successor is this vnode's successor, or, on the fast route, any entry of the
        successor list. Otherwise the reply holds the closest known vnodes before the key, with alternatives for dead
        hops.

        Raises:
            NotReady: this vnode is not a member yet.

        Source: Stoica et al. 2003, Fig. 5 (find_successor, closest_preceding_node).
        """
        ring = self.ring
        if not ring.is_member:
            raise NotReady("not a member yet", after_ms=RETRY_MS)
        key, tried = request.key, frozenset(request.tried)
        # Step over a head that is known dead, or that the caller found useless: the list exists for that.
        entries = [
            Candidate(contact, Via("successor", index))
            for index, contact in enumerate(ring.successors)
            if contact.id not in tried and not self.host.peers.is_dead(contact)
        ]
        is_near_enough = request.route == "fast" and not request.successor_only
        last_max = max(CANDIDATES_MAX, ring.r)  # the caller cannot get more of them from another vnode
        before = self.id
        for index, entry in enumerate(entries if is_near_enough else entries[:1]):
            if key in Arc(before, entry.contact.id):
                return FindNextReply(True, tuple(entries[index : index + last_max]), self.spacing)
            before = entry.contact.id
        if request.successor_only:
            return FindNextReply(False, tuple(entries[:CANDIDATES_MAX]), self.spacing)
        return FindNextReply(False, self._alive_first(self._preceding(key), tried), self.spacing)

    @handles(GiveMarks)
    def on_give_marks(self, request: GiveMarks) -> Done:
        """Adopt the marks of another vnode in this vnode's arc, if N = 1.

        That vnode took this vnode for dead, and is about to give up its arc there.
        """
        arc, peers = self.ownership.arc, self.host.peers
        if arc is not None and self.host.constants.replicas == 1:
            self.ownership.learn_marks(arc, ages.marks_from_others(request.marks, peers, peers.sent_before()))
        return Done()

    @handles(Confirm)
    def on_confirm(self, request: Confirm) -> ConfirmReply:
        """Confirm that this vnode answers for a key, and return the key's replica set.

        Raises:
            Busy: the key's arc has no owner at the moment, or N > 1, and this vnode is not a member yet. Retry.
            NotOwner: another vnode answers for the key; `peer`, if set, is closer to the owner.
            OwnerDown: the owner paused and keeps the only copy.
        """
        self._require_view()
        self.require_owner(request.key)
        start = self.ownership.start
        assert start is not None
        replicas = self.replica_set(request.key)
        needed = self._needed_to_drop(replicas)
        up = [place.contact for place in (*replicas.members, *replicas.stand_ins) if self.is_up(place)]
        holders = up[: self.host.constants.replicas]
        leaving = self._leavers()[: max(0, needed - len(holders))]
        return ConfirmReply(
            owner=self.me,
            arc_start=start,
            epoch=self.ownership.epoch,
            replicas=tuple(place.contact for place in replicas.members),
            unreachable=tuple(place.contact for place in replicas.members if not self.is_up(place)),
            holders=(*holders, *leaving),
            needed=needed,
        )

    def unreachable(self) -> tuple[UnreachableVnode, ...]:
        """Return the down vnodes behind this one, which still count as replicas.

        The result is in the form that other nodes receive.
        """
        return ages.down_to_others(self.preference_list.unreachable(), self.host.peers)

    def _marked(self) -> tuple[UnreachableVnode, ...]:
        """Return the down owners of the arcs that this vnode took over, for other nodes.

        They stand between this vnode and its predecessor.
        """
        peers, marks = self.host.peers, self.ownership.marks
        down = [(mark.dead, mark.since) for mark in marks if mark.dead.id in peers.passive]  # the others are up
        return ages.down_to_others(down, peers)

    def _marks_for_others(self) -> tuple[MarkedArc, ...]:
        """If N = 1, return the parts with only copies on down owners, for other nodes.

        The result includes parts of arcs from before a restart, and parts that this vnode gave up. A vnode that has
        taken such a part over may not know the owners there. If N > 1, the result is empty.
        """
        if self.host.constants.replicas > 1:
            return ()
        own, now = self.ownership, self.host.peers.now()
        moved = (Mark(given.arc, given.to, now) for given in own.moved)  # the receiver may be in no list yet
        marks = (*own.marks, *moved, *own.last.marks)
        return ages.marks_to_others(marks[:LIST_ENTRIES_MAX], self.host.peers)

    @property
    def waits_for(self) -> tuple[Contact, ...]:
        """The down vnodes that alone can tell which writes this arc lacks.

        The result is empty unless `is_stuck`. Vnodes that seem to be on their way back are left out.
        """
        peers = self.host.peers
        return tuple(c for c in peers.passive.contacts() if not peers.is_on_its_way(c)) if self.is_stuck else ()

    def waits_for_at(self, point: int) -> tuple[Contact, ...]:
        """Return the vnodes that may hold the only copy of a key, if they are in no replica set.

        If N = 1, these are the former owners of marked parts. The others are `waits_for`.
        """
        if self.host.constants.replicas > 1:
            return self.waits_for
        return tuple(mark.dead for mark in self.ownership.marks if point in mark.arc)

    def mark_only_copies(self, others: Iterable[Contact]) -> None:
        """If N = 1, mark the whole arc for vnodes that may hold the only copies there.

        Each of these vnodes may have owned the arc meanwhile. If N > 1, or if this vnode owns no arc, nothing happens:
        the caller need not check. Vnodes of this node are skipped.
        """
        own = self.ownership
        if self.host.constants.replicas == 1 and own.arc is not None:
            elsewhere = [contact for contact in others if contact.address != self.host.address]
            own.mark(own.arc, elsewhere, self.host.peers.now())

    def replica_set(self, key: int) -> ReplicaSet:
        """Return the replica set, as known here, of a key that this vnode may coordinate."""
        replicas = self.host.constants.replicas
        return self.preference_list.replica_set(key, self.ring, self.ownership, replicas, self._stand_ins)

    def may_hold(self, key: int, replicas: ReplicaSet) -> tuple[Place, ...]:
        """Return every node that may hold a key.

        These are the nodes of the replica set, and nodes that have just lost their place in it to newcomers.
        """
        constants, peers = self.host.constants, self.host.peers
        if constants.replicas == 1:
            return replicas.everyone
        since = peers.now() - self.host.timing.rounds_s(NEWCOMER_ROUNDS)
        places = constants.replicas + constants.stand_ins
        more = self.preference_list.may_hold(key, self.ring, self.ownership, peers.passive.nodes(), places, since)
        known = {place.contact.address for place in replicas.everyone}
        return (*replicas.everyone, *(place for place in more if place.contact.address not in known))

    def learn_passive(self, contacts: Iterable[Contact]) -> None:
        """Put unreachable vnodes that another node waits for on the passive list, to be probed.

        They may hold acknowledged writes of this vnode's arc, and they count towards W in a small ring.
        """
        peers, ring = self.host.peers, self.ring
        listed = {contact.id for contact in (*ring.successors, *ring.predecessors)} | self.host.vnodes.keys()
        for contact in contacts:
            is_gone = self.preference_list.is_forgotten(contact) or peers.is_known_to_have_left(contact)
            is_known = contact.id in listed or contact.id in peers.passive  # maybe at a newer address
            if not (is_known or is_gone):
                peers.passive.add(contact, peers.now())

    def note_neighbours(self) -> None:
        """Note which vnodes behind this one are new, and which are down. `may_hold` uses that."""
        now, timing = self.host.peers.now(), self.host.timing
        margin_s = timing.rounds_s(NEWCOMER_ROUNDS)
        marks, down_out_s = self.ownership.marks, timing.down_out_s
        self.preference_list.note_neighbours(self.ring.successors, marks, now, down_out_s, margin_s)

    @property
    def is_calm(self) -> bool:
        """Whether this vnode is a member, has neighbours or is alone, and waits for no other vnode.

        Only then may its node ask less often.
        """
        ring, own, waits = self.ring, self.ownership, self.preference_list
        is_member = self.state == "member" and ring.predecessor is not None and not ring.is_isolated
        is_searching = self.eager_looks > 0 or own.giving is not None
        return is_member and not (is_searching or own.marks or waits.unreachable() or waits.retiring)

    def outlook(self) -> tuple[object, object]:
        """Return the parts of this vnode's pointers that its predecessor, and its successor, learn from it.

        The caller compares each of the two with its earlier value, to see whether the neighbour has news to learn.
        """
        ring, own = self.ring, self.ownership
        marked = tuple(mark.dead.id for mark in own.marks)
        down = tuple(contact.id for contact, _ in self.preference_list.unreachable())
        return (ring.successors, marked, down), (ring.predecessors, own.start)

    def listed(self) -> tuple[Contact, ...]:
        """Return every vnode in the predecessor and successor lists of this vnode."""
        ring = self.ring
        predecessor = () if ring.predecessor is None else (ring.predecessor,)
        return (*ring.predecessors, *predecessor, *ring.successors)

    def nodes_known(self, replicas: ReplicaSet) -> int:
        """Return how many replicas a key has if all known nodes are up: at most N.

        All nodes that this node knows count, except leaving ones. The successor list alone is too short if this node
        has just joined, or if two rings merge.
        """
        if len(replicas.members) >= self.host.constants.replicas:
            return self.host.constants.replicas
        known = self.host.nodes_known().difference(self.preference_list.retiring)
        known.update(place.contact.address for place in replicas.members)
        return min(self.host.constants.replicas, len(known))

    def write_quorum(self, replicas: ReplicaSet) -> int:
        """Return the default W of a write: a majority of N, or fewer in a small ring.

        A ring of fewer nodes than that majority needs all of them. Deaths do not lower this number.
        """
        return min(self._quorum, self.nodes_known(replicas))

    def _needed_to_drop(self, replicas: ReplicaSet) -> int:
        """Return how many nodes must hold a record before another node may drop its copy.

        The number is a majority of N, or all nodes of a ring that has fewer. If the successor list is full, it is a
        majority of N: nodes behind the list move up when nodes in the list have left.
        """
        known = self.host.constants.replicas if self.ring.is_full else self.nodes_known(replicas)
        return min(self.host.constants.quorum, known)

    def _leavers(self) -> list[Contact]:
        """Return a vnode of each leaving node in the successor list, sorted by address.

        Nodes that do not count as alive are left out. All owners use the same order. Otherwise leavers would wait for
        each other in a circle. The result is the same for all keys, even for a key with a listed vnode between it and
        this vnode.
        """
        leaving = [c for c in self.ring.successors if c.address in self.preference_list.retiring]
        up = {c.address: c for c in leaving if not self.host.peers.is_doubtful(c)}
        return [up[address] for address in sorted(up)]

    def note_quorum(self) -> None:
        """Set `has_met_quorum` if enough members of this vnode's replica set are up.

        Enough is a majority of N. The replica set is that of the key at this vnode's own point. This method never
        clears it.
        """
        if not self.has_met_quorum and self.ring.is_member:
            up = sum(self.is_up(place) for place in self.replica_set(self.id).members)
            self.has_met_quorum = up >= self.host.constants.quorum

    def is_up(self, place: Place) -> bool:
        """Return whether a replica is reachable, as far as this node knows."""
        return not place.is_waited_for and not self.host.peers.is_doubtful(place.contact)

    def reachable(self, places: Iterable[Place], but: Contact | None = None) -> list[Contact]:
        """Return the vnodes of the reachable replicas among these, except `but`; see `is_up`."""
        address, state = self.host.address, self.host.peers.failure_detector.state
        found: list[Contact] = []
        for place in places:
            contact = place.contact
            if contact == but:
                continue
            if not place.is_waited_for and (contact.address == address or state(contact.address) == "alive"):
                found.append(contact)
        return found

    def replicated(self) -> list[Arc]:
        """Return the arcs that this vnode replicates.

        These are its own arc and those of the N - 1 nodes before it.
        """
        own, replicas = self.ownership.arc, self.host.constants.replicas
        found = [] if own is None else [own]
        if self.state != "member" or not self.ring.is_member or replicas == 1:
            return found
        nodes: dict[str, None] = {}
        for contact in self.ring.predecessors:
            if contact.address != self.me.address:
                nodes[contact.address] = None
            if len(nodes) == replicas:
                return [*found, Arc(contact.id, self.id)]
        return [Arc(self.id, self.id)]  # the ring is small, or the nodes are not known yet: keep all of it

    def is_in_sync(self, key: int) -> bool:
        """Return whether this vnode holds what a replica of a key must.

        The vnode is then *in sync* there: it was brought up to date and has been a replica since. If N = 1, the result
        is whether this vnode owns the key and no mark covers the key.
        """
        if self.host.constants.replicas == 1:
            verdict = self.ownership.verdict(key)
            return verdict.answer == "owned" and verdict.mark is None
        return self.preference_list.is_in_sync(key)

    def vouches_for(self, arc: Arc) -> bool:
        """Return whether this vnode knows all that was acknowledged in an arc.

        A replica that holds the same records then knows all of it, too. A vnode that took over from another may be
        in sync and still lack writes that other coordinators acknowledged.
        """
        return self.preference_list.is_arc_in_sync(arc) and not self.ownership.is_doubtful(arc)

    def require_coordinator(self, key: int) -> OwnerVerdict:
        """Return the verdict on a key that this vnode coordinates, or raise an error.

        The key is in this vnode's own arc or in that of a down owner.

        Raises:
            Busy: the key's arc has no owner at the moment, or N > 1, and this vnode is not a member yet. Retry.
            NotOwner: another vnode coordinates the key; `peer`, if set, is closer to the owner.
            OwnerDown: the owner paused and keeps the only copy.
        """
        if not self.ring.is_member:
            self._require_view()
        verdict = self.ownership.verdict(key)
        if verdict.answer == "owned":
            return verdict
        if verdict.answer == "foreign" and self.host.constants.replicas > 1 and self._stands_in_for(key):
            return OwnerVerdict("owned")
        return self.require_owner(key)

    def require_owner(self, key: int) -> OwnerVerdict:
        """Return the verdict on a key that this vnode answers for.

        Raises:
            Busy: the key's arc is changing hands, or its dead owner, `peer` if known, is not replaced yet. Retry.
            NotOwner: another vnode answers for the key; `peer`, if set, is closer to the owner.
            OwnerDown: the owner paused and keeps the only copy.
        """
        verdict = self.ownership.verdict(key)
        if verdict.answer == "owned":
            return verdict
        if verdict.answer == "moved":
            raise NotOwner("moved to another vnode", peer=verdict.peer)
        if verdict.answer == "giving" or not self.ring.is_member:
            raise Busy("the arc is changing hands", after_ms=RETRY_MS)
        predecessor = self.ring.predecessor
        if predecessor is None or predecessor.id == self.id:
            raise Busy("the arc has no owner yet", after_ms=RETRY_MS)
        own, peers = self.ownership.arc, self.host.peers
        heir = self.ownership.verdict(self.id).peer
        if own is None and heir is not None:  # having given all away, it does not help with others either
            raise NotOwner("left to another vnode", peer=heir)
        # Vnodes inside this arc are leaving and own nothing. The first vnode outside bounds the keys before the arc.
        outside = [c for c in (predecessor, *self.ring.predecessors[1:]) if own is None or c.id not in own]
        predecessor = outside[0] if outside else predecessor
        if between(predecessor.id, key, self.id) or key == self.id:
            raise Busy("the arc has no owner yet", peer=self.ownership.former_owner(key), after_ms=RETRY_MS)
        before = outside[1].id if len(outside) > 1 else None
        is_its_key = before is None or key in Arc(before, predecessor.id)
        if is_its_key and peers.failure_detector.state(predecessor.address) == "paused":
            since = peers.failure_detector.since(predecessor.address)
            raise OwnerDown(
                f"the owner {predecessor.address} has paused",
                peer=predecessor,
                after_ms=int(1000 * max(0.0, peers.now() - since)),
            )
        if peers.is_dead(predecessor):
            peer = predecessor if is_its_key else None
            raise Busy("the predecessor is dead and not yet replaced", peer=peer, after_ms=RETRY_MS)
        raise NotOwner("another vnode's arc", peer=predecessor)

    def status(self, keys: int) -> VnodeInfo:
        """Return the pointers, fingers and arcs of this vnode for a status report.

        `keys` is the number of records in its arc.
        """
        ring = self.ring
        return VnodeInfo(
            contact=self.me,
            state=self.state,
            is_isolated=ring.is_isolated,
            predecessor=ring.predecessor,
            successors=ring.successors,
            predecessors=ring.predecessors,
            arcs=self.ownership.arcs(),
            fingers=tuple(self.fingers.runs()),
            keys=keys,
            rounds=self.rounds,
        )

    @property
    def spacing(self) -> float:
        """Mean gap between vnodes in the successor list, as a share of the circle.

        The value is 1.0 if this vnode is alone, or not a member yet.
        """
        ring = self.ring
        if not ring.is_member or ring.is_alone:
            return 1.0
        return ring.circle.fraction(ring.circle.distance(self.id, ring.successors[-1].id)) / len(ring.successors)

    # -- inside ---------------------------------------------------------------------------------

    def _require_view(self) -> None:
        """Require that this vnode knows the replica sets.

        An owner that is not a member yet does not know them.

        Raises:
            Busy: N > 1, and this vnode is not a member yet. The caller retries.
        """
        if self.host.constants.replicas > 1 and not self.ring.is_member:
            raise Busy("the replicas are not known here yet", after_ms=RETRY_MS)

    def _stands_in_for(self, key: int) -> bool:
        """Return whether this vnode coordinates a foreign key for its down owner.

        This vnode must be a replica of the key. At least one replica must stand between the key and this vnode, and all
        such replicas must be down.

        If the nearest predecessor is not at the start of this vnode's arc, living replicas may stand between them. This
        vnode does not know them before it has taken the gap over, so it stands in for no key.
        """
        own = self.ownership.arc
        if self.state != "member" or own is None:
            return False
        reach = [contact.id for contact in self.ring.predecessors]
        if not reach or (key not in Arc(reach[-1], self.id)):
            return False
        if next((point for point in reach if point not in own), own.start) != own.start:
            return False
        before: list[Place] = []
        for place in self.replica_set(key).members:
            if place.contact == self.me:
                return bool(before)  # if false, the owner is unknown here and may be any vnode
            if self.is_up(place):
                return False
            before.append(place)
        return False

    def _preceding(self, key: int) -> list[Candidate]:
        """Return fingers and list entries in the open arc (me, key), closest first."""
        found: dict[Point, Candidate] = {}
        for contact, index in self.fingers.closest_preceding(key):
            found[contact.id] = Candidate(contact, Via("finger", index))
            if len(found) >= CANDIDATES_MAX:
                break
        for index, contact in enumerate(self.ring.successors):
            if contact.id not in found and between(self.id, contact.id, key):
                found[contact.id] = Candidate(contact, Via("successor", index))
        distance = self.ring.circle.distance
        return sorted(found.values(), key=lambda c: distance(c.contact.id, key))

    def _alive_first(self, candidates: list[Candidate], tried: frozenset[int]) -> tuple[Candidate, ...]:
        """Return the candidates that are neither tried nor dead, doubtful ones last.

        Only this node's own failure detector decides, and not the report of another node.
        """
        peers = self.host.peers
        fresh = [c for c in candidates if c.contact.id not in tried and not peers.is_dead(c.contact)]
        doubtful = [c for c in fresh if peers.is_doubtful(c.contact)]
        if doubtful:
            fresh = [c for c in fresh if not peers.is_doubtful(c.contact)] + doubtful
        return tuple(fresh[:CANDIDATES_MAX])


def member_of(host: NodeContext) -> Vnode:
    """Return the first of a node's vnodes that is a member of the ring.

    Raises:
        NotReady: definite; no vnode of the node is a member.
    """
    for vnode in host.vnodes.values():
        if vnode.ring.is_member and vnode.state != "left":
            return vnode
    raise NotReady("the node is not in the ring", after_ms=RETRY_MS)

"""What the ring is held to: each answer is compared with what the stores have, the moment it arrives.

An acknowledged write is durable on as many nodes as the answer says, and some store has it until enough disks are lost.
A reader gets what was written and nothing else; it gets an old value only while the replica set changes, and never "not
found" for a value that is there. In the end every node reads the same. The excuses, and the planted bugs that show how
little they excuse, are in docs/explanation/correctness.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import trio

from chord.client.results import Found, Stored
from chord.config import RingConstants
from chord.node import Node
from chord.ring.vnode import Vnode
from chord.sim.losses import Losses
from chord.sim.splits import Split
from chord.sim.story import Covers, Op, Story, covers
from chord.store import versions
from chord.testing.rings import MemoryRing
from chord.wire.messages import Contact

ANSWERED = ("ok", "stale", "absent")
"""What a line of a read says of a replica that told what it holds."""


class Before(NamedTuple):
    """What a read is held to, as things stood when it began.

    Attributes:
        clock: of the story.
        required: the values that may not be denied.
        hosts: the machines on which each acknowledged operation was durable, and open to reads.
        asked: how many nodes the client wants to answer; None: a quorum.
        wanted: on how many nodes the read has to rest, as long as nothing changes.
        number: of the disturbances so far.
        at: the virtual second.
        owners: the machines that answer for the key, if a split lasts.
    """

    clock: int
    required: list[Op]
    hosts: dict[Op, set[str]]
    asked: int | None
    wanted: int
    number: int | None
    at: float
    owners: frozenset[str]


class WriteQuorum(NamedTuple):
    """On how many nodes a write has to be if its client says nothing, as things stand.

    Attributes:
        of_ring: a quorum, or all nodes of the ring, the dead included.
        seen: a quorum, or as many members as the key's owner sees.
        number: of the disturbances so far.
    """

    of_ring: int
    seen: int
    number: int | None


class BeforeScan(NamedTuple):
    """What a scan is held to, as things stood when it began.

    Attributes:
        calm: see `Oracle.calm`; None: the rest of this is empty.
        gone: by key, what acknowledged writes had replaced for certain.
        required: by key, the values that may not be missing.
        at: the virtual second.
    """

    calm: int | None
    gone: dict[bytes, Covers]
    required: dict[bytes, list[Op]]
    at: float


class Oracle:
    """Judges the answers of one ring.

    Attributes:
        complain: told, in words, what must not be.
        is_lenient: something happened beyond the failure assumption, and the ring has not healed since: where it is not
            whole, what was written elsewhere may be denied or old.
        disturbances: how often a pointer, a node, an arc or a peer's state has changed; None if nobody tells. Between
            two moments of the same number the replica sets are the same.
        departed: the machines whose node left and that have none now, the earliest first.
    """

    def __init__(
        self,
        ring: MemoryRing,
        constants: RingConstants,
        counts: Counter[str],
        complain: Callable[[str], None],
    ) -> None:
        self._ring = ring
        self._constants = constants
        self._counts = counts
        self.complain = complain
        self.is_lenient = False
        self._splits: list[Split] = []  # whose parts are not one ring again
        self.disturbances: int | None = None
        self._calm: tuple[int | None, bool] = (None, False)  # at that number: was the ring Ideal?
        self._members: set[str] = set()  # whom the ring consists of, as of when it was Ideal last
        self.departed: dict[str, None] = {}
        self.stories: dict[bytes, Story] = {}
        self.losses = Losses(ring, constants, self.stories, counts, self._complained)
        self.truth = self.losses.truth

    def _complained(self, text: str) -> None:
        self.complain(text)

    # -- the state of the ring ------------------------------------------------------------------

    def disturb(self) -> None:
        """A pointer, a node, an arc or a peer's state has changed."""
        self.disturbances = (self.disturbances or 0) + 1
        for split in self._splits:
            split.note()

    def calm(self) -> int | None:
        """Return the number of disturbances, if the ring is as it is to be; else None."""
        now = self.disturbances
        if now is None or self._is_disturbed():
            return None
        if self._calm[0] != now:
            is_ready = all(node.state == "ready" for node in self._ring.nodes)
            self._calm = now, is_ready and not self._ring.waiting()
            if self._calm[1]:
                self.losses.fresh.clear()
                self._members = {node.name for node in self._ring.nodes}.union(self._members & self._may_return())
        return now if self._calm[1] else None

    def _is_disturbed(self) -> bool:
        """Whether a link is disturbed or a process is stopped."""
        return self._ring.network.faults.any or bool(getattr(self._ring, "stopped", None))

    def split(self) -> None:
        """Note that the network is partitioned now, and which hosts are in which part.

        Other disturbances of links are no partition: a value that they keep from a reader may not be denied.
        """
        self._splits.append(Split(self._ring))

    def merged(self) -> None:
        """Note that the parts are one Ideal ring again, so that each part knows the writes of the others."""
        self._splits.clear()
        for story in self.stories.values():
            for op in story.ops:
                op.split = None

    def left(self, node: Node) -> None:
        """A node has left: the ring counts it no more, also if it joins again later."""
        self.losses.left(node)
        self._members.discard(node.name)
        self.departed[node.name] = None

    def is_whole(self, story: Story) -> bool:
        """Whether the ring is Ideal, no link is disturbed, and a quorum of the key's members has what is required."""
        if self._is_disturbed() or self._ring.waiting():
            return False
        return all(self.losses.is_in_place(story, op) for op in story.required())

    def write_quorum(self, story: Story) -> WriteQuorum:
        """Return on how many nodes a write has to be if its client says nothing: a quorum, or all nodes there are.

        A node is one of the ring from when it is ready in an Ideal ring until it has left, is forgotten, or has lost
        its disk. Deaths do not count: W does not shrink by them.
        """
        of_ring = min(self._constants.quorum, max(1, len(self._members & self._may_return())))
        return WriteQuorum(of_ring, self._wanted(story), self.disturbances)

    def _may_return(self) -> set[str]:
        """Return the machines whose nodes are ready, dead, or on their way back with their records."""
        found = {node.name for node in self._ring.nodes if node.state == "ready"}.union(self.truth.dead())
        on_their_way = {node.name for node in self._ring.nodes if node.state in ("joining", "resuming")}
        return found | {host for host in on_their_way - self.losses.fresh if self.truth.has_disk(host)}

    def _wanted(self, story: Story) -> int:
        """Return the number of nodes on which a read without R rests: a quorum, or fewer if the owner has fewer.

        In a calm ring the owner has as many members as there are nodes, but for one that has just been started.
        """
        if self.calm() is not None:
            return min(self._constants.quorum, sum(node.state == "ready" for node in self._ring.nodes))
        every = [vnode for node in self._ring.nodes for vnode in node.host.vnodes.values()]
        seen = [self._members_seen(vnode, story) for vnode in every if vnode.ownership.is_owner(story.point)]
        return min([self._constants.quorum, *seen])

    def _wanted_of(self, owner: Contact, story: Story, wanted: int) -> int:
        """Return what was wanted of a read, or as much of it as its coordinator has members to ask."""
        vnode = self._ring.vnodes().get(owner.id)
        if vnode is None or self.calm() is not None:
            return wanted
        return min(wanted, self._members_seen(vnode, story))

    @staticmethod
    def _members_seen(vnode: Vnode, story: Story) -> int:
        return len(vnode.replica_set(story.point).members)

    # -- writes ---------------------------------------------------------------------------------

    def acknowledged(
        self, node: Node, story: Story, op: Op, stored: Stored, client: str, asked: int | None, quorum: WriteQuorum
    ) -> None:
        """Hold an acknowledgement against the stores: the write must be durable on as many nodes as it says.

        Or have been: a node that leaves needs only leave a quorum, however many the client had asked for.

        Args:
            asked: W as the client asked for it.
            quorum: `write_quorum` when the write began.
        """
        for copy in self.truth.copies(story.key):  # a dot that is not durable yet may be minted again after a crash
            if copy.durable is not None:
                story.saw(copy.durable, copy.host)
        op.w, op.is_strict = stored.w_needed, not stored.is_sloppy
        op.quorum = min(quorum.of_ring, self.write_quorum(story).of_ring)
        if asked is not None:  # a client may name fewer than a quorum of all nodes, those that leave included
            going = sum(other.state == "leaving" for other in self._ring.nodes)
            op.quorum = min(self._constants.quorum, max(op.quorum, len(self._may_return())) + going)
        merged = self.truth.merged(story.key)
        host = next((n.name for n in self._ring.nodes if n.address == stored.owner.address), "")
        op.is_contested = self._constants.replicas == 1 and self._is_torn(story)
        op.split = (trio.current_time(), host or node.name) if self._splits else None
        if wrong := story.acknowledged(op, stored.context, client, host):
            self.complain(f"{node.name} was told that {op} of {story.key!r} is done, and {wrong}")
        self.losses.acknowledged(story.key)
        hosts = self.losses.hosts(story, op)
        if len(hosts | op.dropped) + op.vanished < stored.w:
            told = f"{node.name} was told that {story.key!r} is stored on {stored.w} nodes"
            self.complain(f"{told}, and it is durable on {len(hosts)}")
        elif merged is None or not op.is_in(merged):
            self.losses.lose(story, op)
        wanted = asked or op.quorum
        if asked is None and quorum.number == self.disturbances and self._is_bound(story):
            wanted = max(wanted, self._wanted_of(stored.owner, story, quorum.seen))
        if stored.w_needed < wanted:
            self.complain(f"{node.name} was told that {story.key!r} is stored, by {stored.w_needed} of {wanted} nodes")

    def hold_to_what_it_read(self, node: Node, story: Story, op: Op, in_reach: dict[Op, set[Node]]) -> None:
        """Hold an acknowledgement against what its coordinator must have found on nodes that lived all the while."""
        now_s, quorum = trio.current_time(), self._constants.quorum
        left = story.left_beside(op, self.truth.merged(story.key), quorum, now_s) if in_reach else []
        now = self.losses.in_reach(story, is_dead_out=True) if left else {}
        for old in left:
            if in_reach.get(old, set()) & now.get(old, set()) and self._is_bound(story):
                self.complain(f"{node.name} was told that {op} of {story.key!r} is done, and beside it stands {old}")
                break

    def _is_bound(self, story: Story) -> bool:
        """Whether nothing excuses a ring that does not know what was written."""
        return not self.is_lenient or self.is_whole(story)

    # -- reads ----------------------------------------------------------------------------------

    def before(self, story: Story, r: int | None) -> Before:
        """Return what a read that begins now is held to."""
        required = story.must_be_found(trio.current_time())
        return Before(
            story.clock,
            required,
            self.losses.readable_of(story),
            r,
            r or self._wanted(story),
            self.disturbances,
            trio.current_time(),
            self._owners(story) if self._splits else frozenset(),
        )

    def _owners(self, story: Story) -> frozenset[str]:
        return frozenset(node.name for node in self._ring.nodes if node.host.owner_of(story.point) is not None)

    def found(self, node: Node, story: Story, reply: Found, before: Before) -> None:
        """Hold what was read against what was written. What nobody wrote may never be read, whatever has happened."""
        values, read = reply.values, f"{node.name} reads {reply.values!r} under {story.key!r}"
        if not all(story.was_written(value) for value in values):
            self.complain(f"{read}, and not all of it was ever written")
        if any(story.expiry(value)[1] < before.at for value in values):
            self.complain(f"{read}, and not all of it lives that long")
        if hidden := story.hidden(reply.context, values, before.clock):
            self.complain(f"{read}, and its context covers {hidden}, which is not there")
        told, wanted = f"{node.name} was told of {story.key!r} by", before.asked
        if wanted is None and before.number == self.disturbances and self._is_bound(story):
            wanted = self._wanted_of(reply.owner, story, before.wanted)
        if reply.r_needed < (wanted or 1):
            self.complain(f"{told} {reply.r_needed} nodes, and {wanted} had to answer")
        if reply.r < reply.r_needed:
            self.complain(f"{told} {reply.r} nodes, and {reply.r_needed} had to do so")
        if old := self._missed(story, reply, before):
            self.complain(f"{read}, which is old: {old}")
        self._counts["read stale"] += set(values) != set(self.values(story))

    def _missed(self, story: Story, reply: Found, before: Before) -> str:
        """Return what a read should have known, and why, in words; nothing, if it knew all it should."""
        context, calm = versions.decode_context(reply.context), self.calm()
        told = {line.contact.address for line in reply.replicas if line.is_counted and line.outcome in ANSWERED}
        names = {node.name for node in self._ring.nodes if node.address in told}
        is_judged = False
        for op, hosts in before.hosts.items():
            if op.is_lost or op not in story.ops:
                continue
            is_promised = op.is_strict and op.w + before.wanted > self._constants.replicas
            is_promised = is_promised and op.calm is not None and op.calm == calm
            is_judged = is_judged or is_promised
            if any(covers(context, dot) for dot in op.dots) or self.losses.is_hidden(story, op):
                continue
            now = self.losses.readable(story, op)
            now = {host for host in now if story.dropped_at.get(host, -1.0) < before.at}
            if hosts & names & now:
                return f"{op} was on a replica that answered"
            if now and is_promised:
                return f"{op} was acknowledged by {op.w}, {before.wanted} had to answer, and nothing has changed since"
        self._counts["read judged by its quorum"] += 1
        self._counts["read judged in a calm ring"] += is_judged
        return ""

    def denied(self, node: Node, story: Story, before: Before) -> None:
        """Compare "not found" with the acknowledged values, whatever is dead, stopped, cut off or changing.

        A node that cannot know the records of others says so, and denies nothing.
        """
        now = trio.current_time()
        required = [op for op in before.required if self._is_there(story, op, now)]
        if self._constants.replicas == 1:
            is_torn = self._is_torn(story)
            certain = [op for op in required if not (is_torn or op.is_contested or op.is_out)]
            self._counts["denied, one copy and two rings"] += len(certain) < len(required)
            required = certain
        if must := [op for op in required if not self._is_beyond(node, story, op, before)]:
            held = ", ".join(f"{c.host}{'' if c.is_living else ' (dead)'}" for c in self.truth.copies(story.key))
            what = ", ".join(map(str, must))
            self.complain(f"{node.name} denies {story.key!r}, which was acknowledged: {what}; held by {held}")
        elif required:
            self._counts["denied in a long split"] += 1
        elif self.losses.is_missed(story.key):
            self.complain(f"{node.name} denies {story.key!r}, which was acknowledged and lost")

    def _is_torn(self, story: Story) -> bool:
        """Whether nodes of several rings answer for a key: by its successors, one of them does not lead to another."""
        still = {*self._ring.network.faults.frozen, *getattr(self._ring, "stopped", ())}
        running = [node for node in self._ring.nodes if node.name not in still]
        members = [parts.vnode for node in running for parts in node.parts.values() if parts.vnode.ring.is_member]
        vnodes = {vnode.id: vnode for vnode in members}
        owners = [vnode for vnode in members if vnode.ownership.is_owner(story.point)]
        for owner in owners if len(owners) > 1 else ():
            met, at = {owner.id}, owner
            while at.ring.successor.id in vnodes and at.ring.successor.id not in met:
                at = vnodes[at.ring.successor.id]
                met.add(at.id)
            if not met.issuperset(other.id for other in owners):
                return True
        return False

    def _is_there(self, story: Story, op: Op, now: float) -> bool:
        """Whether a read must still find an operation that it had to find when it began."""
        if self._constants.replicas == 1 and not op.is_strict and self.is_lenient:
            return False
        if self.losses.is_hidden(story, op):
            return False
        return op in story.ops and not op.is_lost and now < op.expires[0] and not story.may_be_deleted(op, now)

    def _is_beyond(self, node: Node, story: Story, op: Op, before: Before) -> bool:
        """Whether the other part of a partition wrote a value, and the partition has outlasted `down_out_s`.

        It need not have, if nodes that joined the other part meanwhile have the value, and fewer than W others: the
        reader's part does not know the nodes that joined there, and waits for too few of the others.
        While it lasts, no node that the reader's node reaches may have the value. Afterwards the parts must still be
        two rings. An owner of the key was in the other part during the read, and no living node of that part that this
        owner asks had the value when the read began.
        """
        if op.split is None:
            return False
        written_s, writer = op.split
        during = [split for split in self._splits if split.began <= written_s]
        return any(self._is_beyond_split(split, node, story, split.part_of(writer), op, before) for split in during)

    def _is_beyond_split(self, split: Split, node: Node, story: Story, part: int, op: Op, before: Before) -> bool:
        network = self._ring.network
        holders = before.hosts.get(op, set())
        hosts, known = holders.difference(self.truth.dead()), holders & split.before
        has_too_few = known != holders and len(known) < self._constants.quorum
        if trio.current_time() - split.began < node.host.timing.down_out_s and not has_too_few:
            return False
        if not network.faults.any:
            owners = before.owners | self._owners(story)
            is_owned_apart = any(split.part_of(owner) != part for owner in owners)
            asked = self._places(split, story, part)
            is_moved = any(split.part_of(host) != part and host in asked for host in hosts)
            return bool(self._ring.waiting()) and is_owned_apart and not is_moved
        ways = [{network.passage(node.name, host), network.passage(host, node.name)} for host in hosts]
        return split.part_of(node.name) != part and {"open"} not in ways

    def _places(self, split: Split, story: Story, part: int) -> set[str]:
        """Return the hosts that may hold a key by the view of its owners in other parts than this one."""
        names = {node.address: node.name for node in self._ring.nodes}
        found: set[str] = set()
        for node in self._ring.nodes:
            owner = node.host.owner_of(story.point)
            if owner is not None and split.part_of(node.name) != part:
                everyone = owner.replica_set(story.point).everyone
                found.update(names[p.contact.address] for p in everyone if p.contact.address in names)
        return found

    def before_scan(self) -> BeforeScan:
        """Return what a scan that begins now is held to.

        A scan reads what the owners hold. An owner that was away is sent what was written meanwhile; until then it
        lacks what other living nodes have. What only the dead have, a scan that says it is complete may not lack.
        """
        now, calm = trio.current_time(), self.calm()
        gone: dict[bytes, Covers] = {}
        required: dict[bytes, list[Op]] = {}
        for key, story in self.stories.items() if calm is not None else ():
            moving = [op for op in story.required() if self._is_moving(story, op)]
            self._counts["scan misses what is on its way to its owner"] += bool(moving)
            if ops := [op for op in story.must_be_found(now) if op not in moving]:
                required[key] = ops
            far = [op for op in story.ops if op.is_ok and op.w < op.quorum and not self._is_among_the_living(story, op)]
            self._counts["scan cannot know a write below the quorum"] += bool(far)
            if not moving and not far:
                gone[key] = story.gone()
        return BeforeScan(calm, gone, required, now)

    def _is_among_the_living(self, story: Story, op: Op) -> bool:
        return any(copy.is_living and op.is_open_in(copy.record) for copy in self.truth.copies(story.key))

    def _is_moving(self, story: Story, op: Op) -> bool:
        """Whether a living node has a write, and the owner of its key has not."""
        owners = self._owners(story)
        hosts = {copy.host for copy in self.truth.copies(story.key) if copy.is_living and op.is_open_in(copy.durable)}
        return bool(hosts) and not owners & hosts

    def scanned(self, node: Node, found: dict[bytes, tuple[bytes, ...]], before: BeforeScan) -> None:
        """Hold a scan that says it is complete against what was written.

        It may show only what was written. If the ring was calm meanwhile, it shows every value that was acknowledged
        before it began, or what replaced that value, and nothing that was replaced for certain before it began.
        """
        for key, values in found.items():
            read, story = f"{node.name} reads {values!r} under {key!r} in a scan", self.stories.get(key)
            if story is None or not all(story.was_written(value) for value in values):
                self.complain(f"{read}, and not all of it was ever written")
            elif any(story.expiry(value)[1] < before.at for value in values):
                self.complain(f"{read}, and not all of it lives that long")
        if before.calm is None or before.calm != self.calm():
            return
        self._counts["scan judged"] += 1
        for key, values in found.items():
            if key in before.gone and (old := self.stories[key].shown_again(values, before.gone[key])):
                self.complain(f"{node.name} reads {old} under {key!r} in a scan, which is old")
        for key, ops in before.required.items():
            if missed := self._missed_in_scan(self.stories[key], ops, found.get(key, ())):
                self.complain(f"{node.name} denies {key!r} in a scan, which was acknowledged: {missed}")

    def _missed_in_scan(self, story: Story, required: list[Op], values: tuple[bytes, ...]) -> Op | None:
        """Return an operation that a scan does not show, nor what has replaced it."""
        now = trio.current_time()
        for op in required:
            if self._is_there(story, op, now) and not story.is_shown(op, values):
                return op
        return None

    # -- the end --------------------------------------------------------------------------------

    def found_in_the_end(self, node: Node, story: Story, values: tuple[bytes, ...], before: Before) -> None:
        """Nobody moves any more: what is there must be found, and nothing else."""
        there, now = self.values(story, at=before.at), trio.current_time()
        surely = [value for value in there if story.expiry(value)[0] > now]
        if not set(surely) <= set(values) <= set(there):
            self.complain(f"{node.name} reads {values!r} under {story.key!r}, there is {there!r}")

    def silent_in_the_end(self, node: Node, story: Story, outcome: str) -> None:
        """Nobody moves any more: what is there must be found."""
        now, there = trio.current_time(), self.values(story, only_living=outcome != "not found")
        if any(story.expiry(value)[0] > now for value in there):
            self.complain(f"{node.name} does not find {story.key!r}, of which somebody has {there!r}: {outcome}")

    def values(self, story: Story, *, only_living: bool = False, at: float | None = None) -> list[bytes]:
        """Return the values of a key that have not expired (by then), of all stores together."""
        record = self.truth.merged(story.key, only_living=only_living)
        since = trio.current_time() if at is None else at
        found = [] if record is None else versions.values(record)
        return [value for value in found if story.expiry(value)[1] >= since]

    def check_disks(self) -> None:
        """Hold every disk against what its node's store says is durable."""
        for node in self._ring.nodes:
            for key in self.truth.not_on_disk(node, self.stories):
                self.complain(f"{node.name} runs; its disk has lost {key!r}, which was durable")

    def check(self) -> None:
        """Hold all there is against all that was told."""
        for key, story in self.stories.items():
            self.losses.reap(story)
            for text in story.wrong(self.truth.merged(key), trio.current_time()):
                self.complain(f"{key!r}: {text}")

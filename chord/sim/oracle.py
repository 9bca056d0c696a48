"""The oracle: compares each answer with the stores the moment the answer arrives.

An acknowledged write is durable on as many nodes as the answer says. Some store has the write until enough disks are
lost. A read returns only written values. A read returns an old value only while the replica set changes, and never "not
found" for a value that is there. At the end of a run every node reads the same. docs/explanation/correctness.md lists
the excuses, and the planted bugs that show how little each one excuses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import trio

from chord.client.results import Found, Stored
from chord.config import RingConstants
from chord.node import Node
from chord.ring.vnode import Vnode
from chord.sim.inventory import FoundCopy
from chord.sim.key_model import Covers, KeyModel, Op, covers
from chord.sim.loss_accounting import LossAccounting
from chord.sim.splits import Split
from chord.store import versions
from chord.testing.rings import TestRing
from chord.wire.messages import Contact

ANSWERED = ("ok", "stale", "absent")
"""Outcomes in the replica lines of a read that mean the replica reported its copy."""


class Before(NamedTuple):
    """State at the start of a read, against which the oracle judges the answer.

    Attributes:
        clock: value of `KeyModel.clock`, the number of starts and acknowledgements of the key's operations.
        required: the values for which "not found" is an error.
        hosts: for each acknowledged operation, the machines with a durable copy that reads may show.
        asked: R as the client named it; None: a quorum.
        wanted: number of nodes that must answer the read if nothing changes meanwhile.
        number: value of `Oracle.disturbances` when the read began.
        at: the virtual time, in seconds.
        owners: during a split, the machines that answer for the key; otherwise empty.
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
    """The number of nodes that a write needs if its client names no W.

    Attributes:
        of_ring: a quorum, or all nodes of the ring if these are fewer; dead nodes count.
        seen: a quorum, or all members that the key's owner sees if these are fewer.
        number: value of `Oracle.disturbances` when the write began.
    """

    of_ring: int
    seen: int
    number: int | None


class BeforeScan(NamedTuple):
    """State at the start of a scan, against which the oracle judges the result.

    Attributes:
        calm: number of disturbances if the ring is calm. None: it is not calm, and `gone` and `required` are empty.
        gone: by key, the events that acknowledged writes had replaced for certain. A key is absent if its owner may
            lack an acknowledged write of it.
        required: by key, the values that the scan may not lack.
        at: the virtual time, in seconds.
    """

    calm: int | None
    gone: dict[bytes, Covers]
    required: dict[bytes, list[Op]]
    at: float


class Oracle:
    """The judge of the answers of one ring.

    Attributes:
        complain: callback for each error found, in words.
        is_lenient: whether an event broke the failure assumption and the ring has not healed since. Until then the
            oracle excuses some old values and small quorums.
        disturbances: number of calls of `disturb`, each for a change of a pointer, a node, an arc or the state of a
            peer. None before the first call. The replica sets stay the same while this number does.
        departed: machines that had a node leave and run no node now, earliest departure first.
    """

    def __init__(
        self,
        ring: TestRing,
        constants: RingConstants,
        counts: Counter[str],
        complain: Callable[[str], None],
    ) -> None:
        self._ring = ring
        self._constants = constants
        self._counts = counts
        self.complain = complain
        self.is_lenient = False
        self.disturbances: int | None = None
        self._calm: tuple[int | None, bool] = (None, False)  # disturbances, and whether the ring was calm then
        self._members: set[str] = set()  # machines of the ring when it was last calm
        self.departed: dict[str, None] = {}
        self.models: dict[bytes, KeyModel] = {}
        self.accounting = LossAccounting(ring, constants, self.models, counts, self._complained)
        self.inventory, self._splits = self.accounting.inventory, self.accounting.splits

    def _complained(self, text: str) -> None:
        self.complain(text)

    # -- the state of the ring ------------------------------------------------------------------

    def disturb(self) -> None:
        """Record that a pointer, a node, an arc or the state of a peer changed."""
        self.disturbances = (self.disturbances or 0) + 1
        for split in self._splits:
            split.note()

    def calm(self) -> int | None:
        """Return the number of disturbances if the ring is calm; otherwise None.

        A calm ring is Ideal, all its nodes are in state `ready`, no link is disturbed and no process is stopped. Before
        the first `disturb` the result is None, too. Each new calm state updates the members that `write_quorum` counts.
        """
        now = self.disturbances
        if now is None or self._is_disturbed():
            return None
        if self._calm[0] != now:
            is_ready = all(node.state == "ready" for node in self._ring.nodes)
            self._calm = now, is_ready and not self._ring.waiting()
            if self._calm[1]:
                self.accounting.fresh.clear()
                self._members = {node.name for node in self._ring.nodes}.union(self._members & self._may_return())
        return now if self._calm[1] else None

    def _is_disturbed(self) -> bool:
        """Return whether a link is disturbed or a process is stopped."""
        return self._ring.network._faults.any or bool(getattr(self._ring, "stopped", None))

    def split(self) -> None:
        """Record that the network is partitioned now, and which host is in which part.

        Other disturbances of links are no partition: they do not excuse "not found".
        """
        self._splits.append(Split(self._ring, self._members - self.accounting.fresh))

    def merged(self) -> None:
        """Record that the parts of every split are one ring, which knows all writes."""
        self._splits.clear()
        for model in self.models.values():
            for op in model.ops:
                op.split = None

    def left(self, node: Node) -> None:
        """Record that a node left.

        It no longer counts as a member of the ring. Its machine is in `departed` until a node joins there.
        """
        self.accounting.left(node)
        self._members.discard(node.name)
        self.departed[node.name] = None

    def is_whole(self, model: KeyModel) -> bool:
        """Return whether the ring is Ideal, and a quorum has each required write of a key.

        No link may be disturbed, and no process stopped. `KeyModel.required` names the required writes.
        """
        if self._is_disturbed() or self._ring.waiting():
            return False
        return all(self.accounting.is_in_place(model, op) for op in model.required())

    def write_quorum(self, model: KeyModel) -> WriteQuorum:
        """Return the numbers of nodes that a write needs now if its client names no W.

        For `of_ring`, a node counts as soon as it is ready in a calm ring. It counts until it leaves, an operator
        forgets it, or it loses its disk. A dead node still counts, so W does not shrink when nodes die.
        """
        of_ring = min(self._constants.quorum, max(1, len(self._members & self._may_return())))
        return WriteQuorum(of_ring, self._wanted(model), self.disturbances)

    def _may_return(self) -> set[str]:
        """Return the machines with a node that is ready, dead, or returning with records."""
        found = {node.name for node in self._ring.nodes if node.state == "ready"}.union(self.inventory.dead())
        on_their_way = {node.name for node in self._ring.nodes if node.state in ("joining", "resuming")}
        return found | {host for host in on_their_way - self.accounting.fresh if self.inventory.has_disk(host)}

    def _wanted(self, model: KeyModel) -> int:
        """Return the number of nodes that must answer a read without R.

        The number is a quorum, or all members that the owner sees if these are fewer. In a calm ring the owner sees
        every ready node. A node that has just started is not ready yet.
        """
        if self.calm() is not None:
            return min(self._constants.quorum, sum(node.state == "ready" for node in self._ring.nodes))
        every = [vnode for node in self._ring.nodes for vnode in node._host.vnodes.values()]
        seen = [self._members_seen(vnode, model) for vnode in every if vnode.ownership.is_owner(model.point)]
        return min([self._constants.quorum, *seen])

    def _wanted_of(self, owner: Contact, model: KeyModel, wanted: int) -> int:
        """Return `wanted`, or the number of members that `owner` sees, if smaller.

        In a calm ring, or if no running vnode has this id, the result is `wanted`.
        """
        vnode = self._ring._vnodes().get(owner.id)
        if vnode is None or self.calm() is not None:
            return wanted
        return min(wanted, self._members_seen(vnode, model))

    @staticmethod
    def _members_seen(vnode: Vnode, model: KeyModel) -> int:
        return len(vnode.replica_set(model.point).members)

    # -- writes ---------------------------------------------------------------------------------

    def acknowledged(
        self, node: Node, model: KeyModel, op: Op, stored: Stored, client: str, asked: int | None, quorum: WriteQuorum
    ) -> None:
        """Judge an acknowledgement: the write must be durable on as many nodes as it says.

        Copies that were durable and are gone count too, if lost disks or leaving nodes explain their loss. A leaving
        node leaves only a quorum behind, even if the client asked for a larger W.

        Args:
            node: the entry node.
            model: the model of the key.
            op: the write.
            stored: the answer.
            client: the name of the client.
            asked: W as the client named it; None: a quorum.
            quorum: the result of `write_quorum` at the start of the write.
        """
        for copy in self.inventory.copies(model.key):  # a crash may free a dot that is not durable
            if copy.durable is not None:
                model.saw(copy.durable, copy.host)
        op.w, op.is_strict = stored.w_needed, not stored.is_sloppy
        op.quorum = min(quorum.of_ring, self.write_quorum(model).of_ring)
        if asked is not None:  # a client may name a W below a quorum of all nodes, leaving nodes included
            going = sum(other.state == "leaving" for other in self._ring.nodes)
            op.quorum = min(self._constants.quorum, max(op.quorum, len(self._may_return())) + going)
        merged = self.inventory.merged(model.key)
        host = next((n.name for n in self._ring.nodes if n.address == stored.owner.address), "")
        op.is_alarmed = self.is_lenient
        op.is_contested = self._constants.replicas == 1 and self._is_torn(model)
        op.split = (trio.current_time(), host or node.name) if self._splits else None
        if wrong := model.acknowledged(op, stored.context, client, host, trio.current_time()):
            self.complain(f"{node.name} acknowledged {op} of {model.key!r}, and {wrong}")
        self.accounting.acknowledged(model.key)
        hosts = self.accounting.hosts(model, op)
        if len(hosts | op.dropped) + op.vanished < stored.w:
            reported = f"{node.name} acknowledged {model.key!r} on {stored.w} nodes"
            self.complain(f"{reported}, and it is durable on {len(hosts)}")
        elif merged is None or not op.is_in(merged):
            self.accounting.lose(model, op)
        wanted = asked or op.quorum
        if asked is None and quorum.number == self.disturbances and self._is_bound(model):
            wanted = max(wanted, self._wanted_of(stored.owner, model, quorum.seen))
        if stored.w_needed < wanted:
            self.complain(f"{node.name} acknowledged {model.key!r} with W = {stored.w_needed} of {wanted} needed")

    def to_be_found(self, model: KeyModel) -> dict[Op, set[Node]]:
        """Return the nodes on which a put that begins now can find each operation that it must replace.

        While the oracle is lenient, a put need not replace a write that a quorum of the living members lacks. A node
        that was away may have the write and not be a member any more. The coordinator does not ask such a node. The
        same holds for a write that was acknowledged during an alarm, until a quorum of the members has had it after the
        alarm. It may be on nodes of another ring that have handed it to one member only.
        """
        self._end_alarm(model)
        found = self.accounting.in_reach(model)
        may_miss = [op for op in found if self.is_lenient or op.is_alarmed]
        for op in may_miss:
            if not self.accounting.is_in_place(model, op):
                del found[op]
        return found

    def _end_alarm(self, model: KeyModel) -> None:
        """Note which writes of an alarm a quorum of the members has now, after the alarm."""
        for op in model.ops:
            if op.is_alarmed and not self.is_lenient and self.accounting.is_in_place(model, op):
                op.is_alarmed = False

    def hold_to_what_it_read(self, node: Node, model: KeyModel, op: Op, in_reach: dict[Op, set[Node]]) -> None:
        """Judge a put by the values that its coordinator must have found and replaced.

        The coordinator must find an old value if one node had it in reach both before and after the put.

        Args:
            node: the entry node.
            model: the model of the key.
            op: the acknowledged write; only a plain put is judged.
            in_reach: the result of `to_be_found` at the start of the write.
        """
        now_s, quorum = trio.current_time(), self._constants.quorum
        left = model.left_beside(op, self.inventory.merged(model.key), quorum, now_s) if in_reach else []
        now = self.accounting.in_reach(model, is_dead_out=True) if left else {}
        for old in left:
            if in_reach.get(old, set()) & now.get(old, set()) and self._is_bound(model):
                self.complain(f"{node.name} acknowledged {op} of {model.key!r} and did not replace {old}")
                break

    def _is_bound(self, model: KeyModel) -> bool:
        """Return whether a missed write is an error.

        The ring must be whole, or no event has broken the failure assumption since it last healed.
        """
        return not self.is_lenient or self.is_whole(model)

    # -- reads ----------------------------------------------------------------------------------

    def before(self, model: KeyModel, r: int | None) -> Before:
        """Return the state against which to judge a read that begins now.

        `r` is R as the client named it; None: a quorum.
        """
        self._end_alarm(model)
        required = model.must_be_found(trio.current_time())
        return Before(
            model.clock,
            required,
            self.accounting.readable_of(model),
            r,
            r or self._wanted(model),
            self.disturbances,
            trio.current_time(),
            self._owners(model) if self._splits else frozenset(),
        )

    def _owners(self, model: KeyModel) -> frozenset[str]:
        return frozenset(node.name for node in self._ring.nodes if node._host.owner_of(model.point) is not None)

    def found(self, node: Node, model: KeyModel, reply: Found, before: Before) -> None:
        """Judge the values of a read. A value that no client wrote is always an error.

        Other errors are expired values, too few answers, and writes that the read should have known. The read must also
        show each older value that its context covers, unless the context also covers a replacement.
        """
        values, read = reply.values, f"{node.name} reads {reply.values!r} under {model.key!r}"
        if not all(model.was_written(value) for value in values):
            self.complain(f"{read}, and not all of it was ever written")
        if any(model.expiry(value)[1] < before.at for value in values):
            self.complain(f"{read}, and not all of it lives that long")
        if hidden := model.hidden(reply.context, values, before.clock):
            self.complain(f"{read}, and its context covers {hidden}, which is not there")
        reported, wanted = f"{node.name} read {model.key!r} from", before.asked
        if wanted is None and before.number == self.disturbances and self._is_bound(model):
            wanted = self._wanted_of(reply.owner, model, before.wanted)
        if reply.r_needed < (wanted or 1):
            self.complain(f"{reported} {reply.r_needed} nodes, and {wanted} had to answer")
        if reply.r < reply.r_needed:
            self.complain(f"{reported} {reply.r} nodes, and says that {reply.r_needed} had to answer")
        if old := self._missed(model, reply, before):
            self.complain(f"{read}, which is old: {old}")
        self._counts["read stale"] += set(values) != set(self.values(model))

    def _missed(self, model: KeyModel, reply: Found, before: Before) -> str:
        """Return which write a read should have known and why, in words; "" if none."""
        context, calm = versions.decode_context(reply.context), self.calm()
        reported = {line.contact.address for line in reply.replicas if line.is_counted and line.outcome in ANSWERED}
        names = {node.name for node in self._ring.nodes if node.address in reported}
        is_judged = False
        for op, hosts in before.hosts.items():
            if op.is_lost or op not in model.ops:
                continue
            is_promised = op.is_strict and op.w + before.wanted > self._constants.replicas
            is_promised = is_promised and op.calm is not None and op.calm == calm
            is_judged = is_judged or is_promised
            if any(covers(context, dot) for dot in op.dots) or self.accounting.is_hidden(model, op):
                continue
            now = self.accounting.readable(model, op)
            now = {host for host in now if model.dropped_at.get(host, -1.0) < before.at}
            if hosts & names & now:
                return f"{op} was on a replica that answered"
            if now and is_promised:
                return f"{op} was acknowledged by {op.w}, {before.wanted} had to answer, and nothing has changed since"
        self._counts["read judged by its quorum"] += 1
        self._counts["read judged in a calm ring"] += is_judged
        return ""

    def denied(self, node: Node, model: KeyModel, before: Before) -> None:
        """Judge "not found": an error if a value that was required before is still there.

        Dead, stopped or unreachable nodes are no excuse. A node that may lack the records of others must answer with an
        error instead of "not found". A partition longer than `down_out_s` excuses it. With N = 1, several rings that
        answer for the key excuse it, and so does a lost copy.
        """
        now = trio.current_time()
        required = [op for op in before.required if self._is_there(model, op, now, before.at)]
        if self._constants.replicas == 1:
            is_torn = self._is_torn(model)
            certain = [op for op in required if not (is_torn or op.is_contested or op.is_out)]
            self._counts["denied, one copy and two rings"] += len(certain) < len(required)
            required = certain
        if must := [op for op in required if not self._is_beyond(node, model, op, before)]:
            held = ", ".join(f"{c.host}{'' if c.is_living else ' (dead)'}" for c in self.inventory.copies(model.key))
            what = ", ".join(map(str, must))
            self.complain(f"{node.name} denies {model.key!r}, which was acknowledged: {what}; held by {held}")
        elif required:
            self._counts["denied in a long split"] += 1
        elif self.accounting.is_missed(model.key):
            self.complain(f"{node.name} denies {model.key!r}, which was acknowledged and lost")

    def _is_torn(self, model: KeyModel) -> bool:
        """Return whether nodes of several rings answer for a key.

        The rings are several if the successors of one owner do not lead to another owner.
        """
        still = {*self._ring.network._faults.frozen, *getattr(self._ring, "stopped", ())}
        running = [node for node in self._ring.nodes if node.name not in still]
        members = [parts.vnode for node in running for parts in node._parts.values() if parts.vnode.ring.is_member]
        vnodes = {vnode.id: vnode for vnode in members}
        owners = [vnode for vnode in members if vnode.ownership.is_owner(model.point)]
        for owner in owners if len(owners) > 1 else ():
            met, at = {owner.id}, owner
            while at.ring.successor.id in vnodes and at.ring.successor.id not in met:
                at = vnodes[at.ring.successor.id]
                met.add(at.id)
            if not met.issuperset(other.id for other in owners):
                return True
        return False

    def _is_there(self, model: KeyModel, op: Op, now: float, since: float) -> bool:
        """Return whether a read must still find an operation that it had to find at its start, `since`."""
        if self._constants.replicas == 1 and not op.is_strict and self.is_lenient:
            return False
        if self.accounting.is_hidden(model, op) or self.accounting.is_with_joiners(model, op):
            return False
        return op in model.ops and not op.is_lost and now < op.expires[0] and not model.may_be_deleted(op, now, since)

    def _is_beyond(self, node: Node, model: KeyModel, op: Op, before: Before) -> bool:
        """Return whether a partition excuses "not found" for a value of another part.

        The partition must have outlasted `down_out_s`. It need not have if fewer than a write quorum of the nodes in
        `Split.before` have the value, and other nodes have it. These others joined during the partition, or so shortly
        before it that the parts do not know each other. The reader's part waits for none of them.

        While a link is disturbed, the reader's node must be outside the writer's part and reach no living node with the
        value. Afterwards three conditions must hold. The ring is not Ideal yet, or see `Split.is_moving`. An owner of
        the key was outside the writer's part during the read. No living node outside the writer's part that such an
        owner asks had the value when the read began.
        """
        if op.split is None:
            return False
        written_s, writer = op.split
        during = [split for split in self._splits if split.began <= written_s]
        return any(self._is_beyond_split(split, node, model, split.part_of(writer), op, before) for split in during)

    def _is_beyond_split(self, split: Split, node: Node, model: KeyModel, part: int, op: Op, before: Before) -> bool:
        network = self._ring.network
        holders = before.hosts.get(op, set())
        hosts, known = holders.difference(self.inventory.dead()), holders & split.before
        has_too_few = known != holders and len(known) < self._constants.quorum
        if trio.current_time() - split.began < node._host.timing.down_out_s and not has_too_few:
            return False
        if not network._faults.any:
            owners = before.owners | self._owners(model)
            is_apart = any(split.part_of(owner) != part for owner in owners)
            asked = self._places(split, model, part)
            is_here = any(split.part_of(host) != part and host in asked for host in hosts)
            return (bool(self._ring.waiting()) or split.is_moving(hosts, model.point)) and is_apart and not is_here
        ways = [{network._passage(node.name, host), network._passage(host, node.name)} for host in hosts]
        return split.part_of(node.name) != part and {"open"} not in ways

    def _places(self, split: Split, model: KeyModel, part: int) -> set[str]:
        """Return the hosts that may hold a key, as its owners outside `part` see them."""
        names = {node.address: node.name for node in self._ring.nodes}
        found: set[str] = set()
        for node in self._ring.nodes:
            owner = node._host.owner_of(model.point)
            if owner is not None and split.part_of(node.name) != part:
                everyone = owner.replica_set(model.point).everyone
                found.update(names[p.contact.address] for p in everyone if p.contact.address in names)
        return found

    def before_scan(self) -> BeforeScan:
        """Return the state against which to judge a scan that begins now.

        A scan reads the copies of the owners. An owner that was away receives the missed writes later. Until then it
        lacks writes that other living nodes have, or have reaped. A scan that calls itself complete may not lack a
        write that only dead nodes have.
        """
        now, calm = trio.current_time(), self.calm()
        gone: dict[bytes, Covers] = {}
        required: dict[bytes, list[Op]] = {}
        for key, model in self.models.items() if calm is not None else ():
            copies = list(self.inventory.copies(key))
            moving = self._moving(model, copies)
            self._counts["scan misses what is on its way to its owner"] += bool(moving)
            if ops := [op for op in model.must_be_found(now) if op not in moving]:
                required[key] = ops
            weak = [op for op in model.ops if op.is_ok and op.w < op.quorum]
            far = [op for op in weak if not any(copy.is_living and op.is_open_in(copy.record) for copy in copies)]
            self._counts["scan cannot know a write below the quorum"] += bool(far)
            is_behind = self.accounting.is_behind(model)
            self._counts["scan precedes reap-log entries on their way to its owner"] += is_behind
            if not (moving or far or is_behind):
                gone[key] = model.gone()
        return BeforeScan(calm, gone, required, now)

    def _moving(self, model: KeyModel, copies: Sequence[FoundCopy]) -> list[Op]:
        """Return the required operations that a living node has and the owner of their key lacks."""
        required = model.required()
        owners = self._owners(model) if required else frozenset()
        hosts = ({copy.host for copy in copies if copy.is_living and op.is_open_in(copy.durable)} for op in required)
        return [op for op, having in zip(required, hosts, strict=True) if having and not owners & having]

    def scanned(self, node: Node, found: dict[bytes, tuple[bytes, ...]], before: BeforeScan) -> None:
        """Judge a scan that calls itself complete.

        The scan may show only written values. The other checks need a ring that was calm during the whole scan. The
        scan must then show every value acknowledged before it began, or a replacement. It may show no value that was
        replaced for certain before it began.
        """
        for key, values in found.items():
            model, wrong = self.models.get(key), ""
            if model is None or not all(model.was_written(value) for value in values):
                wrong = "was ever written"
            elif any(model.expiry(value)[1] < before.at for value in values):
                wrong = "lives that long"
            if wrong:
                self.complain(f"{node.name} reads {values!r} under {key!r} in a scan, and not all of it {wrong}")
        if before.calm is None or before.calm != self.calm():
            return
        self._counts["scan judged"] += 1
        for key, values in found.items():
            if key in before.gone and (old := self.models[key].shown_again(values, before.gone[key])):
                self.complain(f"{node.name} reads {old} under {key!r} in a scan, which is old")
        for key in before.required:
            if missed := self._missed_in_scan(key, found.get(key, ()), before):
                self.complain(f"{node.name} denies {key!r} in a scan, which was acknowledged: {missed}")

    def _missed_in_scan(self, key: bytes, values: tuple[bytes, ...], before: BeforeScan) -> Op | None:
        """Return an operation if a scan shows neither its value nor a replacement that it may have read."""
        model, since = self.models[key], before.at if key in before.gone else 0.0
        for op in before.required[key]:
            if not model.is_shown(op, values, since) and self._is_there(model, op, trio.current_time(), since):
                return op
        return None

    # -- the end --------------------------------------------------------------------------------

    def found_in_the_end(self, node: Node, model: KeyModel, values: tuple[bytes, ...], before: Before) -> None:
        """Judge the values of a final read: they must be exactly those of all stores.

        Values that may have expired may be missing. No node joins or leaves any more. `before` is the result of the
        method `before` at the start of the read.
        """
        there, now = self.values(model, at=before.at), trio.current_time()
        surely = [value for value in there if model.expiry(value)[0] > now]
        if not set(surely) <= set(values) <= set(there):
            self.complain(f"{node.name} reads {values!r} under {model.key!r}, there is {there!r}")

    def silent_in_the_end(self, node: Node, model: KeyModel, outcome: str) -> None:
        """Judge a final read without values: no store may have an unexpired value.

        `outcome` is "not found", or the word of the error. With an error, only the stores of living nodes count.
        """
        now, there = trio.current_time(), self.values(model, only_living=outcome != "not found")
        if any(model.expiry(value)[0] > now for value in there):
            self.complain(f"{node.name} does not find {model.key!r}, and a store has {there!r}: {outcome}")

    def values(self, model: KeyModel, *, only_living: bool = False, at: float | None = None) -> list[bytes]:
        """Return the unexpired values of a key, merged over all stores.

        Args:
            only_living: leave out the copies of dead nodes.
            at: the virtual second at which a value must be unexpired; default: now.
        """
        record = self.inventory.merged(model.key, only_living=only_living)
        since = trio.current_time() if at is None else at
        found = [] if record is None else versions.values(record)
        return [value for value in found if model.expiry(value)[1] >= since]

    def check_disks(self) -> None:
        """Complain about records that a running store calls durable and its disk lacks."""
        for node in self._ring.nodes:
            for key in self.inventory.not_on_disk(node, self.models):
                self.complain(f"{node.name} runs; its disk has lost {key!r}, which was durable")

    def check(self) -> None:
        """Complain about each key with merged copies that contradict acknowledged writes.

        Writes that stores have reaped are noted first, and do not count.
        """
        for key, model in self.models.items():
            self.accounting.reap(model)
            for text in model.wrong(self.inventory.merged(key), trio.current_time()):
                self.complain(f"{key!r}: {text}")

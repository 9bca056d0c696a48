"""Loss accounting: puts, drops and lost disks, and which of them lost a write.

The accounting follows copies of records, from events of stores and disks. The oracle judges answers to clients by it.

An acknowledged write is on W disks. The ring may lose the write only if W of its copies were lost before all members of
its replica set held it again. Any other disappearance of the last copy is a fault of the ring. No node may drop a copy
if fewer than a write quorum of copies would remain. Lost copies count as remaining.

With one copy of each record, a death takes its keys out of reach. The ring may then answer *owner down*, but not "not
found". After the key was lost with its disk, "not found" is right once the machine has a node again. It is also right
once an operator named the machine as gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import trio

from chord.config import RingConstants
from chord.ids import Arc, Point
from chord.node import Node
from chord.sim.inventory import Inventory
from chord.sim.key_model import KeyModel, Op, covers, dots_in
from chord.sim.splits import Split
from chord.store import versions
from chord.store.reap_log_state import decode_state, state_name
from chord.testing.rings import TestRing
from chord.wire.messages import ActorClock, Record

WHOLE = Arc(Point(0), Point(0))
DAY_S = 86_400.0
LOST = "acknowledged and lost"


class LossAccounting:
    """The accounting of one ring's copies.

    Args:
        ring: the ring.
        constants: the constants of the ring.
        models: the model of each key that was written.
        counts: receives the numbers of lost and reaped writes.
        complain: callback for each error found, in words.

    Attributes:
        inventory: the inventory of copies.
        lost: the keys that lost an acknowledged write and have had no acknowledged write since.
        absences_s: for each return of a dead node, how long it was dead, in virtual seconds.
        fresh: machines with a disk emptied since the ring was last calm; a node that starts there is a new node.
        is_trimming: whether reap logs are short enough to be trimmed. Only then may a value be in quarantine.
        splits: the splits of the network before their parts have merged.
        is_disk_lost: whether a disk was lost, or a node without a disk died. Other nodes may wait for its records.
    """

    def __init__(
        self,
        ring: TestRing,
        constants: RingConstants,
        models: dict[bytes, KeyModel],
        counts: Counter[str],
        complain: Callable[[str], None],
    ) -> None:
        self._ring = ring
        self._constants = constants
        self._models = models
        self._counts = counts
        self._complain = complain
        self._missed: dict[bytes, set[str]] = {}  # with one copy: lost keys, and the machines they were lost with
        self.inventory = Inventory(ring)
        self.lost: set[bytes] = set()
        self.absences_s: list[float] = []
        self.fresh: set[str] = set()
        self.splits: list[Split] = []
        self.is_trimming = False
        self.is_disk_lost = False
        self._died_s: dict[str, float] = {}

    # -- questions ------------------------------------------------------------------------------

    def is_missed(self, key: bytes) -> bool:
        """Return whether a write of a key was lost with a machine that is not back.

        The ring must then know that the machine is missing, and answer with an error instead of "not found". With N
        greater than 1 the result is always False.
        """
        return key in self._missed

    def holders(self, model: KeyModel, op: Op, *, but: str = "") -> int:
        """Return the number of machines, except `but`, with a durable copy of an operation.

        Copies of a version that replaced the operation count, too.
        """
        return len(self.hosts(model, op) - {but})

    def hosts(self, model: KeyModel, op: Op) -> set[str]:
        """Return the machines on which an operation or its replacement is durable.

        The nodes of these machines may be living or dead. Copies in quarantine count, too.
        """
        return {copy.host for copy in self.inventory.copies(model.key) if op.is_in(copy.durable)}

    def readable(self, model: KeyModel, op: Op) -> set[str]:
        """Return the machines on which an operation is durable and not in quarantine.

        Copies of a version that replaced the operation count, too.
        """
        return {copy.host for copy in self.inventory.copies(model.key) if op.is_open_in(copy.durable)}

    def readable_of(self, model: KeyModel) -> dict[Op, set[str]]:
        """Return `readable` of each acknowledged operation of a key."""
        copies = list(self.inventory.copies(model.key))
        return {op: {copy.host for copy in copies if op.is_open_in(copy.durable)} for op in model.required()}

    def is_hidden(self, model: KeyModel, op: Op) -> bool:
        """Return whether quarantine excuses a read that does not show an operation.

        Two conditions must hold. At least one copy has the operation only in quarantine. Fewer than `Op.quorum` copies
        have it, or its replacement, durably and outside of quarantine. Copies of living and dead nodes count. Without
        `is_trimming` the result is always False.
        """
        copies = list(self.inventory.copies(model.key)) if self.is_trimming else []
        is_isolated = any(op.is_in(copy.record) and not op.is_open_in(copy.record) for copy in copies)
        return is_isolated and sum(op.is_open_in(copy.durable) for copy in copies) < op.quorum

    def is_with_joiners(self, model: KeyModel, op: Op) -> bool:
        """Return whether only joiners without an arc have an operation, and lost disks would excuse its loss.

        Such a joiner has received records of a transfer that did not end. The giver has died since, and no member knows
        of the copy.
        """
        joiners = {
            node.name
            for node in self._ring.nodes
            if node.state == "joining" and all(v.ownership.start is None for v in node._host.vnodes.values())
        }
        hosts = self.hosts(model, op)
        return bool(hosts) and hosts <= joiners and not self._is_few(op)

    def is_behind(self, model: KeyModel) -> bool:
        """Return whether an owner of a key has not applied the reap-log entries that name its replaced versions.

        Other living nodes have applied these entries. While the owner was away, they replaced the versions and reaped
        the replacements. So only their reap logs still know of these. The durable state of the owner counts, because a
        full disk may take back a change that is visible.
        """
        gone = model.gone()
        for node in self._ring.nodes if gone else ():
            record = node._host.storage.durable(model.key) if self.inventory.is_living(node) else None
            if record is None or node._host.owner_of(model.point) is None:
                continue
            old = {op_id for dot, op_id in dots_in(record).items() if covers(gone, dot)}
            old.intersection_update(version.op_id for version in versions.siblings(record))
            if old and old <= self._buried_elsewhere(node, record):
                return True
        return False

    def members(self, model: KeyModel) -> list[Node]:
        """Return the first N living nodes clockwise from a key, computed from ids alone."""
        vnodes = self._ring._vnodes()
        places = [vnodes[point] for point in (*(p for p in vnodes if p >= model.point), *vnodes)]
        by_address = {node.address: node for node in self._ring.nodes if self.inventory.is_living(node)}
        found = [by_address[v.me.address] for v in places if v.me.address in by_address]
        return list(dict.fromkeys(found))[: self._constants.replicas]

    def is_in_place(self, model: KeyModel, op: Op) -> bool:
        """Return whether a quorum of a key's living members has an operation durably."""
        members = [node.name for node in self.members(model)]
        return len(self.hosts(model, op).intersection(members)) >= min(self._constants.quorum, len(members))

    def in_reach(self, model: KeyModel, *, is_dead_out: bool = False) -> dict[Op, set[Node]]:
        """Return the nodes on which a put can find each required operation of a key.

        The operations are those of `KeyModel.required`. The nodes are living and in state `ready`, and have the
        operation or its replacement outside of quarantine. An operation without such a node is not in the result: no
        put can find it, so a put need not replace it. That occurs if all nodes with the write are dead, leaving or
        returning. Then other nodes keep the key, and a put among them replaces only the versions that they know.

        With N = 1 a put reads no other node. So a former owner is left out while the owner's marks name it as down.

        Args:
            model: the model of the key.
            is_dead_out: leave out a node if its record shows the operation and the reap log of any living node names
                the operation as dead. No node would accept it again.
        """
        found: dict[Op, set[Node]] = {}
        marked = self._marked_at(model.point) if self._constants.replicas == 1 else set()
        for node in self._ring.nodes:
            if node.state == "ready" and self.inventory.is_living(node) and not marked & node._host.vnodes.keys():
                record = node._host.storage.get(model.key)
                dead = self._buried(record) if record is not None and is_dead_out else set()
                for op in model.required():
                    if op.is_open_in(record) and op.op_id not in dead:
                        found.setdefault(op, set()).add(node)
        return found

    def _marked_at(self, point: int) -> set[Point]:
        """Return the vnodes that a living owner of a point has marked as down there."""
        owners = [owner for node in self._ring.nodes if (owner := node._host.owner_of(point)) is not None]
        return {mark.dead.id for owner in owners for mark in owner.ownership.marks if point in mark.arc}

    # -- events ---------------------------------------------------------------------------------

    def acknowledged(self, key: bytes) -> None:
        """Note an acknowledged write of a key: earlier losses no longer count."""
        self.lost.discard(key)
        self._missed.pop(key, None)

    def saw(self, host: str, record: Record, is_own: bool) -> None:
        """Record that a store took a record, and complain if the record cannot be right.

        Errors are a dot of two operations, a version that no store minted, and values in quarantine although no reap
        log was trimmed. `is_own` says whether this store has just minted the newest version.
        """
        model = self._models.get(record.key)
        if model is None:
            return
        if wrong := model.saw(record, host, is_own=is_own, now=trio.current_time()):
            self._complain(f"{host} has {record.key!r}, and {wrong}")
        if (op := model.unminted(record)) is not None:
            self._complain(f"{host} has {record.key!r}, and {op} has a version that no store minted")
        if record.quarantine and not self.is_trimming:
            self._complain(f"{host} has values of {record.key!r} in quarantine, and no reap log was trimmed")
        for op in model.ops:
            if op.vanished and self.holders(model, op) >= min(self._constants.replicas, len(self._ring)):
                op.vanished = 0

    def lent(self, record: Record) -> None:
        """Record that a coordinator is about to send an early put; `record` has its version."""
        model = self._models.get(record.key)
        if model is not None:
            model.sent_early(record, trio.current_time())

    def dropped(self, host: str, record: Record) -> None:
        """Record that the store of machine `host` removes a record, and complain if too few copies remain.

        Each required operation that the record knows needs a number of durable copies on other machines. The number is
        a write quorum, or the number of other ready nodes that stay if these are fewer, but at least 1. Nodes that a
        split may hide (`Split.hides`) do not count. Copies on dead nodes and copies that were lost (`Op.vanished`)
        count as remaining. If only lost ones remain, the operation is lost.

        No copy need remain if the record holds only tombstones and values that may have expired, and does not have the
        operation in quarantine. The same holds for a later copy of such an operation if a reap log names it as dead.
        """
        model = self._models.get(record.key)
        if model is None:
            return
        model.dropped_at[host] = trio.current_time()
        self.inventory.drops(host, record.key)
        is_leaving = all(node._host.is_leaving for node in self._ring.nodes if node.name == host)
        for op in model.every() if is_leaving else ():
            if op.is_in(record):
                op.dropped.add(host)
        needed = min(self._constants.quorum, max(1, self._staying(host)))
        for op in model.required():
            if not op.is_in(record):
                continue
            left = self.holders(model, op, but=host)
            # an unacknowledged delete may have replaced a value
            is_over = op.is_open_in(record) and self._is_over(model, record)
            if is_over:
                op.is_buried = True
                model.bury(record)
            is_dead = op.is_buried and self._is_dead(model, record)
            if is_over or is_dead:
                is_replaced = op.op_id not in {version.op_id for version in versions.siblings(record)}
                op.tombstone = record if is_replaced or not left else None  # other stores may forget a replaced value
            elif left + op.vanished < needed:
                self._complain(f"{host} drops {op} of {record.key!r}, which is left on {left} nodes")
            elif not left:
                self.lose(model, op, host)

    def _staying(self, host: str) -> int:
        """Return the number of other ready nodes that stay, except those that a split may hide from a host."""
        staying = {n.name for n in self._ring.nodes if n.state == "ready" and not n._host.is_leaving} - {host}
        return sum(not any(split.hides(host, other) for split in self.splits) for other in staying)

    def reap(self, model: KeyModel) -> None:
        """Note the operations that no store has any more because stores reaped them.

        `KeyModel.reaped` names the consequences. An operation counts only when every store and disk has dropped it,
        because a disk may refuse to drop the last tombstone. The record of the key may remain, if stores reaped only a
        part of it.
        """
        for op in model.required():
            copies = self.inventory.copies(model.key) if op.is_buried else ()
            if not op.is_buried or any(op.is_in(copy.record) or op.is_in(copy.durable) for copy in copies):
                continue
            counts = {actor: max(c for a, c in op.dots if a == actor) for actor, _ in op.dots}
            known = Record(model.key, tuple(ActorClock(actor, count, ()) for actor, count in counts.items()))
            if op.tombstone is not None or self._is_dead(model, known):
                self._counts["reaped"] += not op.is_reaped
                op.is_reaped = True
                model.reaped(op, op.tombstone or known)

    @staticmethod
    def _is_over(model: KeyModel, record: Record) -> bool:
        """Return whether a record holds only tombstones and values that may have expired."""
        now = trio.current_time()
        return all(model.expiry(value)[0] <= now for value in versions.values(record))

    def _is_dead(self, model: KeyModel, record: Record) -> bool:
        """Return whether the reap log of at least one living node rejects all of a record.

        A trimmed log names nothing any more. If reap logs are trimmed, `KeyModel.is_buried` is enough.
        """
        is_rejected = any(left is None for _, left in self._restored(record))
        return is_rejected or (self.is_trimming and model.is_buried(record))

    def _buried(self, record: Record) -> set[bytes]:
        """Return the ids of operations that a record shows and a reap log calls dead.

        The reap log of any living node is enough.
        """
        return {op_id for _, rejected in self._rejected(record) for op_id in rejected}

    def _buried_elsewhere(self, owner: Node, record: Record) -> set[bytes]:
        """Return the ids of operations that an owner's durable record shows and only reap logs of others call dead.

        Each of these logs must be ahead of the owner's: it has an entry that the owner has not applied durably.
        """
        storage, part = owner._host.storage, owner._host.reap_log.slice_of(record.key)
        note = storage.durable_note(state_name(part))
        applied = {} if note is None else decode_state(note).seen
        found, known = set[bytes](), set[bytes]()
        for node, rejected in self._rejected(record):
            seen = node._host.reap_log.state(part).seen
            if node is not owner and any(number > applied.get(maker, 0) for maker, number in seen.items()):
                found |= rejected
            elif node is owner and storage.get(record.key) == record:  # otherwise it applies further entries now
                known = rejected
        return found - known

    def _rejected(self, record: Record) -> Iterator[tuple[Node, set[bytes]]]:
        """Yield each living node, with the ids of operations that a record shows and the node's reap log calls dead."""
        shown = {version.op_id for version in versions.siblings(record)}
        for node, left in self._restored(record):
            yield node, shown.difference(() if left is None else (one.op_id for one in versions.siblings(left)))

    def _restored(self, record: Record) -> Iterator[tuple[Node, Record | None]]:
        """Yield each living node, with the part of a record that its reap log accepts.

        None: the reap log accepts nothing. A node in state `starting` is left out. It has not opened its store, and a
        question to its reap log would make it cache an empty log.
        """
        living = (node for node in self._ring.nodes if self.inventory.is_living(node) and node.state != "starting")
        return ((node, node._host.reap_log.restored(record)) for node in living)

    def left(self, node: Node) -> None:
        """Record that a node left, and judge each record that it still had as a drop."""
        for record in node._host.storage.scan(WHOLE):
            self.dropped(node.name, record)

    def bury(self, node: Node) -> None:
        """Record that a node is about to die: copies that it kept only in memory are lost."""
        self._died_s.setdefault(node.name, trio.current_time())
        self.is_disk_lost |= not self.inventory.has_disk(node.name)
        vanished = self.inventory.dies(node, self._models.__contains__)
        self._reckon(() if vanished is None else vanished.scan(WHOLE), node.name)

    def autopsy(self, node: Node) -> None:
        """Check that the disk of a dead node has every record that was durable.

        Then forget the versions that only the dead node knew and its disk lacks.
        """
        for key in self.inventory.autopsy(node):
            self._complain(f"{node.name} is dead; its disk has lost {key!r}, which was durable")
        for key, model in self._models.items() if self.inventory.has_disk(node.name) else ():
            model.crashed(node.name, [copy.record for copy in self.inventory.copies(key)])

    def bring_back(self, node: Node) -> None:
        """Record that a node that died is back."""
        self.inventory.comes_back(node.name)
        self._is_known(node.name)
        if (died_s := self._died_s.pop(node.name, None)) is not None:
            self.absences_s.append(trio.current_time() - died_s)

    def wipe(self, host: str, how: str = LOST) -> None:
        """Record that a dead node's disk is about to be emptied.

        The machine gets a new node, or an operator names the old one as gone.

        Args:
            host: the machine.
            how: name of the counter for the lost writes.
        """
        self._died_s.pop(host, None)
        self.fresh.add(host)
        self.is_disk_lost = True
        vanished = self.inventory.is_wiped(host)
        self._reckon(() if vanished is None else vanished.scan(WHOLE), host, how)
        self._is_known(host)

    def damage(self, host: str, key: bytes) -> None:
        """Record damage to a copy of a record on a dead node's disk."""
        record = self.inventory.is_damaged(host, key)
        self._reckon(() if record is None else (record,), host)

    def _reckon(self, vanished: Iterable[Record], host: str, how: str = LOST) -> None:
        """Account for copies of a machine that are gone for good, and for lost writes.

        `how` is the name of the counter for the lost writes.
        """
        for model, record in self._known(vanished):
            model.dropped_at[host] = trio.current_time()
            for op in model.every():
                op.vanished += op.is_in(record)
                op.is_out |= op.is_in(record)
            merged = self.inventory.merged(model.key)
            for op in model.required():
                if op.value is None and not self._is_few(op) and self._is_gone(op, merged):
                    self.lose(model, op, host, how)  # not reaped: the disks had its last copies
            self.reap(model)
            for op in model.required():
                if self._is_gone(op, merged) and not (self._is_few(op) and trio.current_time() >= op.expires[1]):
                    self.lose(model, op, host, how)  # otherwise the value may have been reaped before, as expired

    @staticmethod
    def _is_gone(op: Op, merged: Record | None) -> bool:
        """Return whether no store has an operation, given all copies, merged.

        A delete is gone only if a value that it replaced is back. A reaped delete still replaces its value through the
        reap logs.
        """
        return not op.is_in(merged) and not op.is_reaped and (op.value is not None or op.replaces(merged))

    def _is_known(self, host: str) -> None:
        """Record that the node of a machine is back, or the machine is named as gone.

        From then on "not found" is right for keys that were lost with this machine and no other.
        """
        for hosts in self._missed.values():
            hosts.discard(host)
        self._missed = {key: hosts for key, hosts in self._missed.items() if hosts}

    def _is_few(self, op: Op) -> bool:
        """Return whether too few copies of an operation were lost to excuse its loss.

        Too few is fewer than the smaller of its W and a quorum.
        """
        return op.vanished < min(op.w, self._constants.quorum)

    def _known(self, records: Iterable[Record]) -> Iterator[tuple[KeyModel, Record]]:
        for record in records:
            model = self._models.get(record.key)
            if model is not None:
                yield model, record

    def lose(self, model: KeyModel, op: Op, host: str | None = None, how: str = LOST) -> None:
        """Record that no store has an acknowledged operation any more.

        Complain if fewer of its copies were lost than the smaller of its W and a quorum. With or without a complaint,
        the operation is no longer required.

        Args:
            model: the model of the key.
            op: the operation.
            host: the machine with the last copy; None: unknown.
            how: name of the counter for the lost write.
        """
        if self._is_few(op):
            gone = f"though only {op.vanished} of its copies were lost, not {min(op.w, self._constants.quorum)}"
            self._complain(f"{model.key!r}: {op} was acknowledged, and no store has it, {gone}")
        model.lost(op)
        self.lost.add(model.key)
        if host is not None and self._constants.replicas == 1:
            self._missed.setdefault(model.key, set()).add(host)
        self._counts[how] += 1
        self._counts[f"{how}, of a quorum"] += op.w >= self._constants.quorum

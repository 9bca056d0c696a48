"""What happens to copies: put, dropped, gone with their nodes; what is lost by that, and who is to blame.

An acknowledged write is on W disks. It may be lost only if W of its copies were lost before all members of its replica
set held it again. Everything else that makes the last copy disappear is a fault of the ring. No node drops what fewer
than a write quorum would have left, the lost copies counted.

With one copy of each record a death takes its keys out of reach. Then *owner down* is an answer and "not found" is not.
A key that was lost with its disk may be denied once the node of that machine is back, or an operator named it as gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import trio

from chord.config import RingConstants
from chord.ids import Arc, Point
from chord.node import Node
from chord.sim.story import Op, Story
from chord.sim.truth import Truth
from chord.store import versions
from chord.testing.rings import MemoryRing
from chord.wire.messages import ActorClock, Record

WHOLE = Arc(Point(0), Point(0))
DAY_S = 86_400.0
LOST = "acknowledged and lost"


class Losses:
    """The fate of one ring's copies.

    Args:
        stories: of every key that was written.
        counts, complain: of the oracle.

    Attributes:
        truth: who has what.
        lost: the keys of which something acknowledged was lost, and nothing was acknowledged since.
        absences_s: how long each node was dead that came back.
        fresh: the machines whose disk was emptied since the ring was Ideal; a node that starts there is a new node.
        is_trimming: whether reap logs are short enough to be trimmed. Only then may a value be in quarantine.
        is_disk_lost: whether a disk was lost, or a node without a disk has died. Others may wait for its records.
    """

    def __init__(
        self,
        ring: MemoryRing,
        constants: RingConstants,
        stories: dict[bytes, Story],
        counts: Counter[str],
        complain: Callable[[str], None],
    ) -> None:
        self._ring = ring
        self._constants = constants
        self._stories = stories
        self._counts = counts
        self._complain = complain
        self._missed: dict[bytes, set[str]] = {}  # with one copy: what was lost, and with which machines
        self.truth = Truth(ring)
        self.lost: set[bytes] = set()
        self.absences_s: list[float] = []
        self.fresh: set[str] = set()
        self.is_trimming = False
        self.is_disk_lost = False
        self._died_s: dict[str, float] = {}

    # -- questions ------------------------------------------------------------------------------

    def is_missed(self, key: bytes) -> bool:
        """Whether something of a key was lost with a machine whose node is not back: the ring must know that it is."""
        return key in self._missed

    def holders(self, story: Story, op: Op, *, but: str = "") -> int:
        """Return on how many nodes an operation, or what has replaced it, is durable."""
        return len(self.hosts(story, op) - {but})

    def hosts(self, story: Story, op: Op) -> set[str]:
        """Return the machines on which an operation, or what has replaced it, is durable."""
        return {copy.host for copy in self.truth.copies(story.key) if op.is_in(copy.durable)}

    def readable(self, story: Story, op: Op) -> set[str]:
        """Return the machines whose copies show an operation, or its replacement, to a read."""
        return {copy.host for copy in self.truth.copies(story.key) if op.is_open_in(copy.durable)}

    def readable_of(self, story: Story) -> dict[Op, set[str]]:
        """Return the machines whose copies show each acknowledged operation, or its replacement, to a read."""
        copies = list(self.truth.copies(story.key))
        return {op: {copy.host for copy in copies if op.is_open_in(copy.durable)} for op in story.required()}

    def is_hidden(self, story: Story, op: Op) -> bool:
        """Whether an operation is in quarantine, and fewer nodes than a quorum show it to a read."""
        copies = list(self.truth.copies(story.key)) if self.is_trimming else []
        is_isolated = any(op.is_in(copy.record) and not op.is_open_in(copy.record) for copy in copies)
        return is_isolated and sum(op.is_open_in(copy.durable) for copy in copies) < op.quorum

    def members(self, story: Story) -> list[Node]:
        """Return the living nodes that keep a key, by their ids alone."""
        vnodes = self._ring.vnodes()
        places = [vnodes[point] for point in (*(p for p in vnodes if p >= story.point), *vnodes)]
        by_address = {node.address: node for node in self._ring.nodes if self.truth.is_living(node)}
        found = [by_address[v.me.address] for v in places if v.me.address in by_address]
        return list(dict.fromkeys(found))[: self._constants.replicas]

    def is_in_place(self, story: Story, op: Op) -> bool:
        """Whether a write quorum of the nodes that keep a key have an operation durably."""
        members = [node.name for node in self.members(story)]
        return len(self.hosts(story, op).intersection(members)) >= min(self._constants.quorum, len(members))

    def in_reach(self, story: Story, *, is_dead_out: bool = False) -> dict[Op, set[Node]]:
        """Return what is required of a key, and which nodes in their places have it: what no other has is not read.

        A quorum of those who keep a key meets every other as long as they are the same. When all who had a write are
        dead, or are about to leave or to come back, others keep the key, and a put among them replaces what they know.

        Args:
            is_dead_out: leave out what a living node's reap log names of a copy: no node takes it up again.
        """
        found: dict[Op, set[Node]] = {}
        for node in self._ring.nodes:
            if node.state == "ready" and self.truth.is_living(node):
                record = node.host.storage.get(story.key)
                dead = self._buried(record) if record is not None and is_dead_out else set()
                for op in story.required():
                    if op.is_open_in(record) and op.op_id not in dead:
                        found.setdefault(op, set()).add(node)
        return found

    # -- what happens ---------------------------------------------------------------------------

    def acknowledged(self, key: bytes) -> None:
        """A key was written once more: what was lost of it before does not count."""
        self.lost.discard(key)
        self._missed.pop(key, None)

    def saw(self, host: str, record: Record, is_own: bool) -> None:
        """A record was put in a store."""
        story = self._stories.get(record.key)
        if story is None:
            return
        if wrong := story.saw(record, host, is_own=is_own, now=trio.current_time()):
            self._complain(f"{host} has {record.key!r}, of which {wrong}")
        if (op := story.unminted(record)) is not None:
            self._complain(f"{host} has {record.key!r}, of which {op} has a version that no store minted")
        if record.quarantine and not self.is_trimming:
            self._complain(f"{host} has values of {record.key!r} in quarantine, and no reap log was trimmed")
        for op in story.ops:
            if op.vanished and self.holders(story, op) >= min(self._constants.replicas, len(self._ring)):
                op.vanished = 0

    def dropped(self, host: str, record: Record) -> None:
        """A store is about to remove a record: enough others must have what it knows."""
        story = self._stories.get(record.key)
        if story is None:
            return
        story.dropped_at[host] = trio.current_time()
        self.truth.drops(host, record.key)
        is_leaving = all(node.host.is_leaving for node in self._ring.nodes if node.name == host)
        for op in story.every() if is_leaving else ():
            if op.is_in(record):
                op.dropped.add(host)
        staying = sum(1 for n in self._ring.nodes if n.name != host and n.state == "ready" and not n.host.is_leaving)
        needed = min(self._constants.quorum, max(1, staying))
        for op in story.required():
            if not op.is_in(record):
                continue
            left = self.holders(story, op, but=host)
            is_over = self._is_over(story, record)  # a delete that nobody answered may have replaced a value
            if is_over:
                op.is_buried = True
                story.bury(record)
            is_dead = op.is_buried and (self._is_dead(record) or (self.is_trimming and story.is_buried(record)))
            if is_over or is_dead:
                is_replaced = op.op_id not in {version.op_id for version in versions.siblings(record)}
                op.tombstone = record if is_replaced or not left else None  # other stores may forget a replaced value
            elif left + op.vanished < needed:
                self._complain(f"{host} drops {op} of {record.key!r}, which is left on {left} nodes")
            elif not left:
                self.lose(story, op, host)

    def reap(self, story: Story) -> None:
        """Note which operations no store has any more: from now on no read may show them, or what they replaced.

        A disk may refuse to drop the last tombstone. A store may also forget a part of a record, and keep the record.
        """
        for op in story.required():
            copies = self.truth.copies(story.key) if op.is_buried else ()
            if not op.is_buried or any(op.is_in(copy.record) or op.is_in(copy.durable) for copy in copies):
                continue
            counts = {actor: max(c for a, c in op.dots if a == actor) for actor, _ in op.dots}
            known = Record(story.key, tuple(ActorClock(actor, count, ()) for actor, count in counts.items()))
            if op.tombstone is not None or self._is_dead(known):
                self._counts["reaped"] += not op.is_reaped
                op.is_reaped = True
                story.reaped(op, op.tombstone or known)

    @staticmethod
    def _is_over(story: Story, record: Record) -> bool:
        """Whether a record holds tombstones and values that may have expired, and nothing else."""
        now = trio.current_time()
        return all(story.expiry(value)[0] <= now for value in versions.values(record))

    def _is_dead(self, record: Record) -> bool:
        """Whether the reap log of a living node names everything that a record knows: that node takes none of it."""
        return None in self._restored(record)

    def _buried(self, record: Record) -> set[bytes]:
        """Return the operations that a record shows, and that the reap log of a living node names."""
        shown = {version.op_id for version in versions.siblings(record)}
        left = [{version.op_id for version in versions.siblings(one)} if one else () for one in self._restored(record)]
        return {op_id for op_id in shown if any(op_id not in ids for ids in left)}

    def _restored(self, record: Record) -> Iterator[Record | None]:
        """Yield what the reap log of each living node leaves of a record.

        A node that starts has not opened its store. Its log would remember that there are no entries.
        """
        living = (node for node in self._ring.nodes if self.truth.is_living(node) and node.state != "starting")
        return (node.host.reap_log.restored(record) for node in living)

    def left(self, node: Node) -> None:
        """A node has left: what it kept to the end is dropped now."""
        for record in node.host.storage.scan(WHOLE):
            self.dropped(node.name, record)

    def bury(self, node: Node) -> None:
        """A node is about to die: what it alone keeps in memory is lost."""
        self._died_s.setdefault(node.name, trio.current_time())
        self.is_disk_lost |= not self.truth.has_disk(node.name)
        vanished = self.truth.dies(node, self._stories.__contains__)
        self._reckon(() if vanished is None else vanished.scan(WHOLE), node.name)

    def autopsy(self, node: Node) -> None:
        """A node is dead: what it had made durable must be on its disk."""
        for key in self.truth.autopsy(node):
            self._complain(f"{node.name} is dead; its disk has lost {key!r}, which was durable")
        for key, story in self._stories.items() if self.truth.has_disk(node.name) else ():
            story.crashed(node.name, [copy.record for copy in self.truth.copies(key)])

    def bring_back(self, node: Node) -> None:
        """A node that died is back."""
        self.truth.comes_back(node.name)
        self._is_known(node.name)
        if (died_s := self._died_s.pop(node.name, None)) is not None:
            self.absences_s.append(trio.current_time() - died_s)

    def wipe(self, host: str, how: str = LOST) -> None:
        """A dead node's disk is about to be emptied. Its machine gets a new node, or an operator names it as gone."""
        self._died_s.pop(host, None)
        self.fresh.add(host)
        self.is_disk_lost = True
        vanished = self.truth.is_wiped(host)
        self._reckon(() if vanished is None else vanished.scan(WHOLE), host, how)
        self._is_known(host)

    def damage(self, host: str, key: bytes) -> None:
        """A record on a dead node's disk is damaged."""
        record = self.truth.is_damaged(host, key)
        self._reckon(() if record is None else (record,), host)

    def _reckon(self, vanished: Iterable[Record], host: str, how: str = LOST) -> None:
        """These copies of a machine are gone for good."""
        for story, record in self._known(vanished):
            story.dropped_at[host] = trio.current_time()
            for op in story.every():
                op.vanished += op.is_in(record)
                op.is_out |= op.is_in(record)
            self.reap(story)
            merged = self.truth.merged(story.key)
            for op in story.required():
                is_gone = not op.is_in(merged) and (op.value is not None or op.replaces(merged))
                is_gone = is_gone and not op.is_reaped  # of a delete: the reap logs go on replacing the value
                if is_gone and not (self._is_few(op) and trio.current_time() >= op.expires[1]):
                    self.lose(story, op, host, how)  # an expired value may have been reaped before

    def _is_known(self, host: str) -> None:
        """From now on nodes may deny what was lost with this machine, and nothing else."""
        for hosts in self._missed.values():
            hosts.discard(host)
        self._missed = {key: hosts for key, hosts in self._missed.items() if hosts}

    def _is_few(self, op: Op) -> bool:
        """Whether too few copies of an operation were lost to lose the operation."""
        return op.vanished < min(op.w, self._constants.quorum)

    def _known(self, records: Iterable[Record]) -> Iterator[tuple[Story, Record]]:
        for record in records:
            story = self._stories.get(record.key)
            if story is not None:
                yield story, record

    def lose(self, story: Story, op: Op, host: str | None = None, how: str = LOST) -> None:
        """Note that nobody has what was acknowledged any more; that takes the loss of as many disks as a quorum has.

        Args:
            host: the machine whose copy was the last, if it is known.
        """
        if self._is_few(op):
            gone = f"though only {op.vanished} of its copies were lost, not {min(op.w, self._constants.quorum)}"
            self._complain(f"{story.key!r}: {op} was acknowledged, and nobody has it, {gone}")
        story.lost(op)
        self.lost.add(story.key)
        if host is not None and self._constants.replicas == 1:
            self._missed.setdefault(story.key, set()).add(host)
        self._counts[how] += 1
        self._counts[f"{how}, of a quorum"] += op.w >= self._constants.quorum

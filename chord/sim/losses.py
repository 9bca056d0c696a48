"""What happens to copies: put, dropped, gone with their nodes; what is lost by that, and who is to blame.

An acknowledged write is known to somebody until the last node that had it is gone with what it stood on: then it is
*lost*, which is counted, and everything about it is excused. No node drops what fewer than a write quorum would have
left.

With one copy of each record a death takes its keys out of reach. Then *owner down* is an answer and "not found" is not,
unless a node has been restarted since: it may have lost the key itself, or have known whose death tore the gap.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import takewhile

import trio

from chord.config import RingConstants
from chord.data import versions
from chord.data.storage import Storage
from chord.ids import Arc, Point
from chord.messages import Record
from chord.node import Node
from chord.sim.story import Op, Story, dots_in, knows
from chord.sim.truth import Truth
from chord.testing.rings import MemoryRing

WHOLE = Arc(Point(0), Point(0))
DAY_S = 86_400.0
GONE_S = 120.0
"""Who is dead for so long after nobody waits for it never comes back."""
DROPS_MAX = 10_000
"""So many drops are remembered; a client that still waits for an acknowledgement began after all older ones."""
PROOF_S = 30.0
"""Between the proof that others hold a record and the drop. Copies that vanish meanwhile are nobody's fault."""


class Losses:
    """The fate of one ring's copies.

    Args:
        stories: of every key that was written.
        counts, complain: of the ledger.
        down_out_s: of the ring: what is on no other disk than of nodes that are down for longer may be denied.
        grace_s: of the ring: who was down for longer begins with an empty store.

    Attributes:
        truth: who has what.
        lost: the keys of which something acknowledged was lost, and nothing was acknowledged since.
    """

    def __init__(
        self,
        ring: MemoryRing,
        constants: RingConstants,
        stories: dict[bytes, Story],
        counts: Counter[str],
        complain: Callable[[str], None],
        down_out_s: float,
        grace_s: float = DAY_S,
    ) -> None:
        self._ring = ring
        self._constants = constants
        self._stories = stories
        self._counts = counts
        self._complain = complain
        self._down_out_s = down_out_s
        self._away_s = min(down_out_s + GONE_S, grace_s)
        self._deniable: set[bytes] = set()
        self._away: set[bytes] = set()  # the only copy of a record is on the disk of a node that died
        self._drops: deque[tuple[float, bytes]] = deque(maxlen=DROPS_MAX)  # when, and of which key
        self.truth = Truth(ring)
        self.lost: set[bytes] = set()

    # -- questions ------------------------------------------------------------------------------

    def may_deny(self, key: bytes) -> bool:
        """Whether "not found" is excused, since somebody is back who cannot know any more."""
        return key in self._deniable

    def holders(self, story: Story, op: Op, *, but: str = "") -> int:
        """Return on how many nodes an operation, or what has replaced it, is durable."""
        copies = self.truth.copies(story.key)
        return len({copy.host for copy in copies if copy.host != but and op.is_in(copy.durable)})

    def dropped_since(self, at: float, key: bytes) -> int:
        """Return how many copies of a record were dropped since then by nodes that leave.

        They need leave no more than a quorum; who stays and drops a copy leaves as many as there are to be.
        """
        recent = takewhile(lambda drop: drop[0] >= at, reversed(self._drops))  # there are thousands, of all times
        return sum(1 for _, dropped in recent if dropped == key)

    def in_reach(self, story: Story) -> dict[Op, set[Node]]:
        """Return what is required of a key, and which nodes in their places have it: what no other has is not read.

        A quorum of those who keep a key meets every other as long as they are the same. When all who had a write are
        dead, or are about to leave or to come back, others keep the key, and a put among them replaces what they know.
        """
        found: dict[Op, set[Node]] = {}
        for node in self._ring.nodes:
            if node.state == "ready" and self.truth.is_living(node):
                record = node.host.storage.get(story.key)
                for op in story.required():
                    if op.is_in(record):
                        found.setdefault(op, set()).add(node)
        return found

    def is_away(self, story: Story, required: list[Op]) -> bool:
        """Whether only nodes have it that nobody waits for any more: by then it counts as lost to the ring."""
        holders = [copy for copy in self.truth.copies(story.key) if any(op.is_in(copy.record) for op in required)]
        if any(copy.is_living for copy in holders):
            return False
        given_up = trio.current_time() - self._down_out_s
        return bool(holders) and all(self.truth.dead_since(copy.host) < given_up for copy in holders)

    # -- what happens ---------------------------------------------------------------------------

    def acknowledged(self, key: bytes) -> None:
        """A key was written once more: what was lost of it before does not count."""
        for keys in (self.lost, self._away, self._deniable):
            keys.discard(key)

    def saw(self, host: str, record: Record, is_own: bool) -> None:
        """A record was put in a store."""
        story = self._stories.get(record.key)
        if story is not None and (wrong := story.saw(record, is_shared=not is_own)):
            self._complain(f"{host} has {record.key!r}, of which {wrong}")

    def dropped(self, host: str, record: Record) -> None:
        """A store is about to remove a record: enough others must have what it knows."""
        story = self._stories.get(record.key)
        if story is None:
            return
        if all(node.host.is_leaving for node in self._ring.nodes if node.name == host):
            self._drops.append((trio.current_time(), record.key))
        needed = min(self._constants.quorum, max(1, len(self._ring) - 1))
        excused = self.truth.vanished_since(trio.current_time() - PROOF_S, story.key)
        for op in story.required():
            if not op.is_in(record):
                continue
            left = self.holders(story, op, but=host)
            if not versions.values(record):  # a value may be among what a delete has replaced that nobody answered
                if not left:
                    self._judge_reaping(host, story, op, record)
            elif left + excused < needed:
                self._complain(f"{host} drops {op} of {record.key!r}, which is left on {left} nodes")
            elif not left:
                self.lose(story, op)

    def left(self, node: Node) -> None:
        """A node has left: what it kept to the end is dropped now."""
        for record in node.host.storage.scan(WHOLE):
            self.dropped(node.name, record)

    def _judge_reaping(self, host: str, story: Story, op: Op, record: Record) -> None:
        """The last tombstone may go when nobody has what it deletes, but who was away so long that it is emptied."""
        self._counts["reaped"] += 1
        story.reaped(op)
        given_up = trio.current_time() - self._ring[0].config.timing.grace_s
        for copy in self.truth.copies(story.key):
            is_over = not copy.is_living and self.truth.dead_since(copy.host) < given_up
            if copy.host != host and not is_over and any(knows(record, dot) for dot in dots_in(copy.record)):
                text = f"which is left on 0 nodes, and {copy.host} has what it deletes"
                self._complain(f"{host} drops {op} of {story.key!r}, {text}")

    def bury(self, node: Node) -> None:
        """A node is about to die: what it alone keeps in memory is lost."""
        if self._constants.replicas == 1:
            self._away.update(record.key for record in node.host.storage.scan(WHOLE) if record.key in self._stories)
        self._reckon(self.truth.dies(node, self._stories.__contains__), "acknowledged and lost")
        self.let_go()

    def let_go(self) -> None:
        """Who is dead for so long that it will not be back, or begins with an empty store if it is, has nothing."""
        for gone in self.truth.gone(trio.current_time() - self._away_s):
            self._reckon(gone, "acknowledged and away for ever")
            self.revive()

    def autopsy(self, node: Node) -> None:
        """A node is dead: what it had made durable must be on its disk."""
        for key in self.truth.autopsy(node):
            self._complain(f"{node.name} is dead; its disk has lost {key!r}, which was durable")

    def bring_back(self, node: Node) -> None:
        """A node that died is back."""
        self.truth.comes_back(node.name)

    def wipe(self, host: str) -> None:
        """A dead node's disk is about to be emptied."""
        self._reckon(self.truth.is_wiped(host), "acknowledged and lost")

    def revive(self) -> None:
        """A node that died is back: what is lost may be denied.

        It may have lost it itself, with its memory; or it was told whose death tore the gap, and no longer knows.
        """
        self._deniable |= self.lost | self._away

    def damage(self, host: str, key: bytes) -> None:
        """A record on a dead node's disk is damaged."""
        self.truth.is_damaged(host, key)
        self._reckon_key(key, "acknowledged and lost")

    def _reckon(self, vanished: Storage | None, how: str) -> None:
        for record in () if vanished is None else vanished.scan(WHOLE):
            self._reckon_key(record.key, how)

    def _reckon_key(self, key: bytes, how: str) -> None:
        story = self._stories.get(key)
        if story is not None:
            merged = self.truth.merged(key)
            for op in story.required():
                if not op.is_in(merged) and (op.value is not None or op.replaces(merged)):
                    self.lose(story, op, how)

    def lose(self, story: Story, op: Op, how: str = "acknowledged and lost") -> None:
        """Note that nobody has what was acknowledged any more, and nobody is to blame."""
        op.is_lost = story.has_lost = True
        self.lost.add(story.key)
        self._counts[how] += 1
        self._counts[f"{how}, of a quorum"] += op.w >= self._constants.quorum

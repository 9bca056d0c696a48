"""Clients that write and read all the time and remember what was acknowledged to them.

There is one replica for now, so a key whose only holder dies is lost, and the ledger writes that
down at the moment of the death. Everything else must be read back as it was written, whatever
moves meanwhile; and no key that was ever acknowledged may be denied ("not found"), lost or not,
unless the node that lost it is back and says so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import trio

from chord.data import versions
from chord.errors import ChordError, NotFound
from chord.node import Node
from chord.testing.rings import MemoryRing

KEYS_PER_CLIENT = 20
PATIENCE_S = 4.0


class Ledger:
    """What clients of one ring were told.

    Attributes:
        counts: operations by kind and outcome.
        complain: told, in words, what must not be.
    """

    def __init__(self, ring: MemoryRing, rng: random.Random, complain: Callable[[str], None]) -> None:
        self._ring = ring
        self._rng = rng
        self.complain = complain
        self.counts: Counter[str] = Counter()
        self._acknowledged: dict[bytes, bytes] = {}
        self._possible: dict[bytes, set[bytes]] = {}  # also these may be read: nobody said what became of them
        self._lost: set[bytes] = set()  # the only copy died with its node
        self._deniable: set[bytes] = set()  # and that node is back, with an empty memory
        self._number = 0
        self._old: list[bytes] = []

    @property
    def keys(self) -> int:
        """How many keys were acknowledged and not lost."""
        return len(self._acknowledged.keys() - self._lost)

    async def clients(self, count: int, pause_s: float, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """So many clients write and read, each keys of its own, until the scope given to the starter is cancelled."""
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(self._client, f"client{number}", pause_s)
            task_status.started(nursery.cancel_scope)

    async def fill(self, count: int) -> None:
        """Write so many keys, a few at a time."""
        names = iter([f"old-{number}".encode() for number in range(count)])

        async def write() -> None:
            for name in names:
                await self._write(self._rng.choice(self._ring.nodes), name)

        async with trio.open_nursery() as nursery:
            for _ in range(16):
                nursery.start_soon(write)
        self._old = list(self._acknowledged)

    async def _client(self, name: str, pause_s: float) -> None:
        while True:
            await trio.sleep(self._rng.uniform(0, 2 * pause_s))
            ready = [node for node in self._ring.nodes if node.state == "ready"]
            if not ready:
                continue
            node = self._rng.choice(ready)
            key = f"{name}-{self._rng.randrange(KEYS_PER_CLIENT)}".encode()
            if self._old and self._rng.random() < 0.5:
                await self.read(node, self._rng.choice(self._old))
            elif key not in self._acknowledged or self._rng.random() < 0.4:
                await self._write(node, key)
            else:
                await self.read(node, key)

    async def _write(self, node: Node, key: bytes) -> None:
        self._number += 1
        value = b"%d" % self._number
        possible = self._possible.setdefault(key, set())
        possible.add(value)
        outcome = "unknown"
        try:
            with trio.move_on_after(PATIENCE_S):
                await node.put(key, value)
                outcome = "ok"
        except ChordError as error:
            outcome = error.word
        self.counts[f"put {outcome}"] += 1
        if outcome == "ok":
            self._acknowledged[key] = value
            possible.discard(value)  # but an unknown write of before may still arrive, and then it replaces this one
            if self._keepers(key, value, "owned", "giving") or node not in self._ring.nodes:
                self._lost.discard(key)
                self._deniable.discard(key)
            else:
                self._lost.add(key)  # its owner died before the answer was back

    async def read(self, node: Node, key: bytes, *, is_final: bool = False) -> None:
        """Read a key that was acknowledged, and compare. In the end (`is_final`) what was not lost must be there."""
        was_lost = key in self._lost
        outcome = "unknown"
        try:
            with trio.move_on_after(PATIENCE_S):
                found = await node.get(key)
                outcome = "ok"
                self._judge(node, key, found.values, was_lost or key in self._lost)
        except NotFound:
            outcome = "not found"
            if key not in self._deniable and node in self._ring.nodes:
                self.complain(f"{node.name} denies {key!r}, which was acknowledged{' and lost' * was_lost}")
        except ChordError as error:
            outcome = error.word
        self.counts[f"get {outcome}"] += 1
        if is_final and outcome != "ok" and not was_lost:
            self.complain(f"{node.name} does not find {key!r}, of which somebody living has a copy: {outcome}")

    def _judge(self, node: Node, key: bytes, values: tuple[bytes, ...], is_lost: bool) -> None:
        expected = self._acknowledged[key]
        if is_lost or expected in values or self._possible[key].intersection(values):
            return
        self.complain(f"{node.name} reads {values!r} under {key!r}, written was {expected!r}")

    # -- deaths ---------------------------------------------------------------------------------

    def _keepers(self, key: bytes, value: bytes, *answers: str) -> list[Node]:
        """Return who has a value and says this of its key."""
        found = []
        for node in self._ring.nodes:
            record = node.host.storage.get(key)
            if record is not None and value in versions.values(record):
                point = node.host.circle.hash(key)
                if any(v.ownership.verdict(point).answer in answers for v in node.host.vnodes.values()):
                    found.append(node)
        return found

    def bury(self, node: Node) -> None:
        """A node is about to die: what it alone keeps is lost.

        In the middle of a hand-over the giver still keeps all, until the receiver owns the arc: then its
        acknowledgement may be on the way, and the giver forgets on it even if the receiver is dead by then.
        """
        for key, value in self._acknowledged.items():
            keepers = self._keepers(key, value, "owned") or self._keepers(key, value, "giving")
            if keepers == [node]:
                self._lost.add(key)

    def revive(self, node: Node) -> None:
        """A node that died is back with an empty memory: it may deny what it lost."""
        self._deniable |= self._lost

    # -- the end --------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Read everything once more from everywhere: nobody moves, so every read has a definite outcome."""
        for key in list(self._acknowledged):
            await self.read(self._rng.choice(self._ring.nodes), key, is_final=True)

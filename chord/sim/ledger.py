"""Clients that write and read all the time and remember what was acknowledged to them.

There is one replica for now, so a key whose only holder dies is out of reach, and the ledger writes
that down at the moment of the death: lost for good where the holder kept it in memory, away until
the holder is back where it has a disk. Everything else must be read back as it was written, whatever
moves meanwhile; and no key that was ever acknowledged may be denied ("not found"), lost or not.
Once a node has been restarted, what was lost until then may be denied: it may have lost it itself, or
have been the one that knew whose death tore the gap.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import trio

from chord.data import versions
from chord.errors import ChordError, DefiniteError, NotFound
from chord.history.recorder import Recorder
from chord.node import Node
from chord.testing.rings import MemoryRing

KEYS_PER_CLIENT = 20
PATIENCE_S = 4.0


class Ledger:
    """What clients of one ring were told.

    Attributes:
        counts: operations by kind and outcome.
        complain: told, in words, what must not be.
        is_lenient: a partition lasts, or has just healed: what was written on the other side may be denied or old.
    """

    def __init__(
        self,
        ring: MemoryRing,
        rng: random.Random,
        complain: Callable[[str], None],
        recorder: Recorder | None = None,
    ) -> None:
        self._ring = ring
        self._rng = rng
        self._recorder = recorder
        self.complain = complain
        self.is_lenient = False
        self.counts: Counter[str] = Counter()
        self._acknowledged: dict[bytes, bytes] = {}
        self._possible: dict[bytes, set[bytes]] = {}  # also these may be read: nobody said what became of them
        self._written: dict[bytes, set[bytes]] = {}  # all that was not certainly refused
        self._lost: set[bytes] = set()  # the only copy died with its node
        self._deniable: set[bytes] = set()  # and that node is back, with an empty memory
        self._returning: set[bytes] = set()  # back on their node, and perhaps not yet where they belong
        self._left_behind: dict[str, dict[bytes, bytes]] = {}  # what a dead node had, by its host
        self._deaths = 0
        self._number = 0
        self._old: list[bytes] = []

    @property
    def keys(self) -> int:
        """How many keys were acknowledged and not lost."""
        return len(self._acknowledged.keys() - self._lost)

    @property
    def lost(self) -> int:
        """How many keys were acknowledged and died with their only holder."""
        return len(self._lost)

    # -- clients --------------------------------------------------------------------------------

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
                await self._write(self._rng.choice(self._ring.nodes), name, "filler")

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
                await self.read(node, self._rng.choice(self._old), name)
            elif key not in self._acknowledged or self._rng.random() < 0.4:
                await self._write(node, key, name)
            else:
                await self.read(node, key, name)

    async def _write(self, node: Node, key: bytes, client: str) -> None:
        self._number += 1
        value = b"%d" % self._number
        possible = self._possible.setdefault(key, set())
        possible.add(value)
        self._written.setdefault(key, set()).add(value)
        deaths = self._deaths
        call = self._recorder.put(client, key.decode(), value.decode()) if self._recorder else None
        outcome, failed = "unknown", False
        try:
            with trio.move_on_after(PATIENCE_S):
                await node.put(key, value)
                outcome = "ok"
        except ChordError as error:
            outcome, failed = error.word, isinstance(error, DefiniteError)
        if node not in self._ring.nodes:  # its client heard nothing any more, whatever this object says
            outcome, failed = "unknown", False
        self.counts[f"put {outcome}"] += 1
        if call is not None:
            (call.ok if outcome == "ok" else call.fail if failed else call.unknown)()
        if failed:  # nothing happened, and nothing ever will
            possible.discard(value)
            self._written[key].discard(value)
        if outcome != "ok":
            return
        self._acknowledged[key] = value
        self._returning.discard(key)
        possible.discard(value)  # but an unknown write of before may still arrive, and then it replaces this one
        if self._keepers(key, "owned", "giving"):
            self._lost.discard(key)
            self._deniable.discard(key)
        else:
            self._lost.add(key)  # its owner died before the answer was back
            if deaths == self._deaths and not self.is_lenient:
                self.complain(f"{node.name} was told that {key!r} is stored, and nobody has it")

    async def read(self, node: Node, key: bytes, client: str = "reader", *, is_final: bool = False) -> None:
        """Read a key that was acknowledged, and compare. In the end (`is_final`) what was not lost must be there."""
        was_lost = key in self._lost or key in self._returning
        call = self._recorder.get(client, key.decode()) if self._recorder else None
        outcome = "unknown"
        values: tuple[bytes, ...] = ()
        try:
            with trio.move_on_after(PATIENCE_S):
                values = (await node.get(key)).values
                outcome = "ok"
                self._judge(node, key, values, was_lost or key in self._lost)
        except NotFound:
            outcome = "not found"
            if key not in self._deniable and node in self._ring.nodes and not self.is_lenient:
                self.complain(f"{node.name} denies {key!r}, which was acknowledged{' and lost' * was_lost}")
        except ChordError as error:
            outcome = error.word
        self.counts[f"get {outcome}"] += 1
        if call is not None and outcome in ("ok", "not found"):
            call.ok(*(value.decode() for value in values))
        elif call is not None:
            call.fail()  # a read that got no answer says nothing
        if is_final and outcome != "ok" and not was_lost:
            self.complain(f"{node.name} does not find {key!r}, of which somebody living has a copy: {outcome}")

    def _judge(self, node: Node, key: bytes, values: tuple[bytes, ...], is_lost: bool) -> None:
        """Hold what was read against what was written. What nobody wrote may never be read, whatever has happened."""
        expected = self._acknowledged[key]
        if node not in self._ring.nodes:  # it is dead, and its client heard nothing any more
            return
        if not self._written[key].issuperset(values):
            self.complain(f"{node.name} reads {values!r} under {key!r}, and not all of it was ever written")
        if is_lost or self.is_lenient or expected in values or self._possible[key].intersection(values):
            return
        self.complain(f"{node.name} reads {values!r} under {key!r}, written was {expected!r}")

    # -- deaths ---------------------------------------------------------------------------------

    def _keepers(self, key: bytes, *answers: str) -> list[Node]:
        """Return who has what a key should hold, and says this of the key."""
        point = self._ring[0].host.circle.hash(key) if len(self._ring) else 0
        return [
            node
            for node in self._holders(key)
            if any(v.ownership.verdict(point).answer in answers for v in node.host.vnodes.values())
        ]

    def _holders(self, key: bytes) -> list[Node]:
        return [node for node in self._ring.nodes if self._has(node, key)]

    def _has(self, node: Node, key: bytes) -> bool:
        """Whether a node has what was acknowledged, or a later write that nobody heard of again and replaced it."""
        expected = {self._acknowledged.get(key), *self._possible[key]}
        return not expected.isdisjoint(self._values(node, key))

    @staticmethod
    def _values(node: Node, key: bytes) -> tuple[bytes, ...]:
        record = node.host.storage.get(key)
        return () if record is None else tuple(versions.values(record))

    def bury(self, node: Node) -> None:
        """A node is about to die: what it alone keeps is lost.

        In the middle of a hand-over the giver still keeps all, until the receiver owns the arc: then its
        acknowledgement may be on the way, and the giver forgets on it even if the receiver is dead by then. While the
        ring heals, records are on their way to their owners, and any copy may have been the last.
        """
        self._deaths += 1
        left = self._left_behind[node.name] = {}
        for key, value in self._acknowledged.items():
            if not self._has(node, key):
                continue
            if value in self._values(node, key):
                left[key] = value
            keepers = self._keepers(key, "owned") or self._keepers(key, "giving")
            if self.is_lenient or self._holders(key) == [node] or keepers == [node]:
                self._lost.add(key)

    def bring_back(self, node: Node, *, has_disk: bool) -> None:
        """A node that died is back with what its disk had: what it alone kept is not lost after all.

        And what it had acknowledged is there, whatever happened to the rest.
        """
        for key, value in self._left_behind.pop(node.name, {}).items() if has_disk else ():
            if value not in self._values(node, key):
                self.complain(f"{node.name} is back; its disk has lost {value!r} of {key!r}, which was acknowledged")
        back = {key for key in self._lost if self._has(node, key)}
        self._lost -= back
        self._returning |= back

    def revive(self) -> None:
        """A node that died is back: what is still lost may be denied.

        It may have lost it itself, with its memory; or it was told whose death tore the gap, and no longer knows.
        """
        self._deniable |= self._lost

    # -- the end --------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Read everything once more from everywhere: nobody moves, so every read has a definite outcome."""
        self._returning.clear()
        for key in list(self._acknowledged):
            await self.read(self._rng.choice(self._ring.nodes), key, is_final=True)

"""Clients that write and read all the time, and hand every answer to the oracle.

Each client has keys of its own. If the plan says so, all clients also write a few shared keys at the same time.
A write replaces what a quorum holds, or what its client has read (a context), or nothing (a blind put).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from chord.client.results import Found, Stored
from chord.config import RingConstants
from chord.errors import ChordError, DefiniteError, NotFound
from chord.node import Node
from chord.sim.habits import Habits
from chord.sim.oracle import Before, Oracle, WriteQuorum
from chord.sim.plan import DRAWS, READS
from chord.sim.story import Kind, Op, Story
from chord.store.storage import Batch
from chord.testing.rings import MemoryRing
from chord.verify.history.recorder import Call, Recorder
from chord.wire.messages import Put, Written

KEYS_PER_CLIENT = 20
SHARED_NAME = "shared-"
SHARED_KEYS = 4
"""So few keys are written by all clients, where keys are shared."""
WRITES_PER_KEY = 300
"""Then another key takes its place. A record remembers every coordinator it ever had, and thousands of nodes come and
go in a long life: no key that people use is written through all of that, without a pause."""
PATIENCE_S = 4.0
AT_ONCE = 16
READS_MAX = 4000
RESTS, REST_S = 3, 0.1
"""So often the last reads wait for all disks, and then so long for what they let go on."""
DELETES = 0.25
BLIND = 0.42
WITH_CONTEXT = 0.2
UNUSUAL = 0.2
"""So many of the requests name their own R or W, and half as many of the writes are strict."""


class Attempt(NamedTuple):
    """A write under way.

    Attributes:
        asked: on how many nodes its client wants it to be; None: a quorum.
        quorum: of the ring when it began (see `Oracle.write_quorum`).
        in_reach: see `Losses.in_reach`, when it began.
        call: its line of the history, if one is written.
    """

    story: Story
    op: Op
    request: Put
    client: str
    asked: int | None
    quorum: WriteQuorum
    in_reach: dict[Op, set[Node]]
    call: Call | None


class Ledger:
    """The clients of one ring.

    Args:
        reads: how many in one of what clients do with a key that was written before are reads.
        draws: how many keys a client looks at to find one that is another coordinator's since it was written.
        shared: which share of the operations of a client is on keys that all clients write.
        habits: what clients do beside, out of `HABITS`.

    Attributes:
        counts: operations by kind and outcome, and what else is worth counting.
        oracle: judges the answers.
        losses: what happens to copies; to be told of it.
        truth: who has what.
        slower: clients wait this many times as long between two operations.
    """

    def __init__(
        self,
        ring: MemoryRing,
        rng: random.Random,
        complain: Callable[[str], None],
        recorder: Recorder | None = None,
        *,
        constants: RingConstants | None = None,
        keys_per_client: int = KEYS_PER_CLIENT,
        reads: float = READS,
        draws: int = DRAWS,
        shared: float = 0.0,
        habits: tuple[str, ...] = (),
    ) -> None:
        self._ring = ring
        self._rng = rng
        self._recorder = recorder
        self._constants = constants or ring[0].host.constants
        self._keys_per_client = keys_per_client
        self._reads = reads
        self._draws = draws
        self._shared = shared
        self.counts: Counter[str] = Counter()
        self.oracle = Oracle(ring, self._constants, self.counts, complain)
        self.stories, self.losses, self.truth = self.oracle.stories, self.oracle.losses, self.oracle.truth
        self._habits = Habits(habits, rng, self.counts)
        self.slower = 1.0
        self._old: list[bytes] = []
        self._followed: Counter[str] = Counter()  # how many keys have followed the first of a name
        self._open: Counter[bytes] = Counter()  # how many writes of a key are under way

    @property
    def is_lenient(self) -> bool:
        """See `Oracle.is_lenient`."""
        return self.oracle.is_lenient

    @is_lenient.setter
    def is_lenient(self, is_lenient: bool) -> None:
        self.oracle.is_lenient = is_lenient

    @property
    def keys(self) -> int:
        """How many keys have something acknowledged that was not lost."""
        return sum(1 for story in self.stories.values() if story.required())

    @property
    def writes(self) -> int:
        """How many writes have been acknowledged."""
        return self.counts["put ok"]

    @property
    def lost(self) -> int:
        """How many keys have lost something that was acknowledged, ever."""
        return len(self.losses.lost)

    # -- clients --------------------------------------------------------------------------------

    async def clients(self, count: int, pause_s: float, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Let clients write and read until the scope given to the starter is cancelled."""
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(self._client, f"client{number}", pause_s)
            task_status.started(nursery.cancel_scope)

    async def fill(self, count: int) -> None:
        """Write this many keys, a few at a time."""
        names = iter([f"old-{number}".encode() for number in range(count)])

        async def write() -> None:
            for name in names:
                await self.write(self._rng.choice(self._ring.nodes), name, "filler", "put")

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(write)
        self._old = [key for key, story in self.stories.items() if story.required()]

    async def _client(self, name: str, pause_s: float) -> None:
        rng = self._rng
        while True:
            await trio.sleep(rng.uniform(0, 2 * pause_s) * self.slower)
            ready = [node for node in self._ring.nodes if node.state == "ready" and self._is_served(node)]
            if not ready:
                continue
            node = rng.choice(ready)
            key = self._a_key(name)
            if self._habits.follows("scan"):
                await self.scan(node)
            if self._old and rng.random() < 0.5:
                await self.read(node, rng.choice(self._old), name)
            elif key in self.stories and rng.random() >= 1 - self._reads:
                await self.read(node, key, name, r=self._unusual())
            else:
                is_delete = key in self.stories and rng.random() < DELETES
                kinds: tuple[Kind, ...] = ("put", "with context", "blind")
                weights = (1 - BLIND - WITH_CONTEXT, WITH_CONTEXT, 0.0 if is_delete else BLIND)
                (kind,) = rng.choices(kinds, weights)
                strict = rng.random() < UNUSUAL / 2
                await self.write(node, key, name, kind, is_delete=is_delete, w=self._unusual(), strict=strict)

    def _is_served(self, node: Node) -> bool:
        """Whether clients talk to a node: not while its process is stopped, and not to a copy of another."""
        return node.name not in getattr(self._ring, "stopped", ()) and self.truth.is_living(node)

    def _a_key(self, name: str) -> bytes:
        """Draw a key, and rather one that is another coordinator's now than when it was written last."""
        if self._shared and self._rng.random() < self._shared:
            return self._current(f"{SHARED_NAME}{self._rng.randrange(SHARED_KEYS)}")
        keys = [self._current(f"{name}-{self._rng.randrange(self._keys_per_client)}") for _ in range(self._draws)]
        for key in keys:
            story = self.stories.get(key)
            if story is not None and story.owner and not self._is_owner(story.owner, story.point):
                return key
        return keys[0]

    def _current(self, name: str) -> bytes:
        key = f"{name}.{self._followed[name]}" if name in self._followed else name
        story = self.stories.get(key.encode())
        if story is not None and story.issued >= WRITES_PER_KEY:
            self._followed[name] += 1
            key = f"{name}.{self._followed[name]}"
        return key.encode()

    def _unusual(self) -> int | None:
        wish = self._rng.randint(1, self._constants.replicas)
        return wish if self._rng.random() < UNUSUAL else None

    # -- writes ---------------------------------------------------------------------------------

    async def write(
        self,
        node: Node,
        key: bytes,
        client: str,
        kind: Kind,
        *,
        is_delete: bool = False,
        w: int | None = None,
        strict: bool = False,
    ) -> None:
        """Write a key, maybe with others in one batch, and have the oracle judge what comes of it."""
        attempts = [self._begin(node, key, client, kind, is_delete=is_delete, w=w, strict=strict)]
        for number, name in enumerate(self._habits.companions(key, self._names(client)), 1):
            other = self._current(name)
            attempts.append(self._begin(node, other, client, kind, w=w, strict=strict, recorded=f"{client}+{number}"))
        outcomes: list[Stored | ChordError | None] = [None] * len(attempts)
        try:
            with trio.move_on_after(PATIENCE_S):
                outcomes = await self._send(node, [attempt.request for attempt in attempts])
        except ChordError as error:
            outcomes = [error] * len(attempts)
        if node not in self._ring.nodes:  # its client heard nothing any more, whatever this object says
            outcomes = [None] * len(attempts)
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            self._end(node, attempt, outcome)

    @staticmethod
    async def _send(node: Node, requests: list[Put]) -> list[Stored | ChordError | None]:
        """Write, alone or in a batch. Returns the outcome of each request."""
        if len(requests) == 1:
            return [await node.drive(node.core.write(requests[0]))]
        found: list[Stored | ChordError | None] = []
        for request, outcome in zip(requests, await node.drive(node.core.request_all(requests)), strict=True):
            if isinstance(outcome, Written):
                told = outcome.context, outcome.owner, outcome.w, outcome.w_needed, outcome.is_sloppy, outcome.replicas
                found.append(Stored(request.key, *told))
            else:
                assert isinstance(outcome, ChordError)
                found.append(outcome)
        return found

    def _begin(
        self,
        node: Node,
        key: bytes,
        client: str,
        kind: Kind,
        *,
        is_delete: bool = False,
        w: int | None = None,
        strict: bool = False,
        recorded: str = "",
    ) -> Attempt:
        """Return a write that is about to be sent. `recorded`: its client in the history."""
        story = self.stories.get(key)
        if story is None:
            story = self.stories[key] = Story(key, node.host.circle.hash(key))
        if kind == "with context" and not story.contexts.get(client):
            kind = "put"
        in_reach = self.losses.in_reach(story)
        ttl_s = None if is_delete else self._habits.ttl_s()
        op = story.begin(kind, client=client, is_delete=is_delete, padding=self._habits.padding())
        op.calm = self.oracle.calm()
        story.lives(op, ttl_s, trio.current_time())
        context = story.contexts[client] if kind == "with context" else None
        is_blind = kind == "blind"
        request = node.core.to_put(key, op.value, context=context, blind=is_blind, w=w, strict=strict, ttl_s=ttl_s)
        story.sent(op, request.op_id)
        self._open[key] += 1
        self.counts["writes of one key at the same time"] += self._open[key] == 2
        call = self._begin_write(recorded or client, op, key)
        return Attempt(story, op, request, client, w, self.oracle.write_quorum(story), in_reach, call)

    def _end(self, node: Node, attempt: Attempt, outcome: Stored | ChordError | None) -> None:
        """Have the oracle judge what came of a write; None: its client has heard nothing."""
        story, op, call = attempt.story, attempt.op, attempt.call
        self._open[story.key] -= 1
        is_refused = isinstance(outcome, DefiniteError)
        self.counts[f"put {_word(outcome)}"] += 1
        if call is not None:
            (call.ok if isinstance(outcome, Stored) else call.fail if is_refused else call.unknown)()
        if isinstance(outcome, Stored):
            self.oracle.acknowledged(node, story, op, outcome, attempt.client, attempt.asked, attempt.quorum)
            self.oracle.hold_to_what_it_read(node, story, op, attempt.in_reach)
            self._count_write(story, op, outcome)
        elif is_refused:
            story.refused(op)

    def _names(self, client: str) -> list[str]:
        """Return the names of a client's own keys."""
        return [f"{client}-{number}" for number in range(self._keys_per_client)]

    def _begin_write(self, client: str, op: Op, key: bytes) -> Call | None:
        if self._recorder is None:
            return None
        if op.value is None:
            return self._recorder.delete(client, key.decode())
        return self._recorder.put(client, key.decode(), op.value.decode())

    def _count_write(self, story: Story, op: Op, stored: Stored) -> None:
        if story.key.startswith(SHARED_NAME.encode()):  # written so often that few have changed hands meanwhile
            self.counts["acknowledged beside the shares"] += 1
            how = "with a context" if op.kind == "with context" else "without one"
            self.counts[f"acknowledged beside others {how}"] += 1
            return
        is_elsewhere = story.owner not in ("", stored.owner.address)
        is_fallback = stored.is_sloppy or any(line.outcome == "hinted" for line in stored.replicas)
        is_stand_in = not self._is_owner(stored.owner.address, story.point)
        self.counts[f"acknowledged {op.kind}"] += 1
        self.counts["acknowledged delete"] += op.value is None
        self.counts["acknowledged through a fallback"] += is_fallback or is_stand_in
        self.counts["acknowledged elsewhere than before"] += is_elsewhere
        self.counts["acknowledged sloppily"] += stored.is_sloppy
        story.owner = stored.owner.address

    def _is_owner(self, address: str, point: int) -> bool:
        for node in self._ring.nodes:
            if node.address == address:
                return any(vnode.ownership.is_owner(point) for vnode in node.host.vnodes.values())
        return False

    # -- reads ----------------------------------------------------------------------------------

    async def read(
        self, node: Node, key: bytes, client: str = "reader", *, r: int | None = None, is_final: bool = False
    ) -> None:
        """Read a key that was written, maybe with others in one batch, and have the oracle judge it.

        In the end (`is_final`) all there is is found.
        """
        names = [] if is_final else self._habits.companions(key, self._names(client))
        keys = [key, *(other for name in names if (other := self._current(name)) in self.stories)]
        before = [self.oracle.before(self.stories[one], r) for one in keys]
        calls: list[Call | None] = [None] * len(keys)
        if self._recorder is not None:
            calls = [self._recorder.get(f"{client}+{at}" if at else client, k.decode()) for at, k in enumerate(keys)]
        replies: list[Found | ChordError | None] = [None] * len(keys)
        try:
            with trio.move_on_after(PATIENCE_S):
                if len(keys) == 1:
                    replies = [await node.drive(node.core.get(key, r))]
                else:
                    replies = list(await node.drive(node.core.get_all(keys, r)))
        except ChordError as error:
            replies = [error] * len(keys)
        is_heard = node in self._ring.nodes  # who asks a dead node hears nothing, whatever this object says
        for one, held_to, call, reply in zip(keys, before, calls, replies, strict=True):
            if isinstance(reply, Found) and client != "reader":
                self.stories[one].contexts[client] = reply.context
            self._have_read(node, self.stories[one], reply, held_to, call, is_heard=is_heard, is_final=is_final)

    def _have_read(
        self,
        node: Node,
        story: Story,
        reply: Found | ChordError | None,
        before: Before,
        call: Call | None,
        *,
        is_heard: bool,
        is_final: bool,
    ) -> None:
        """Have the oracle judge what came of a read; None: its client has heard nothing."""
        word = _word(reply)
        self.counts[f"get {word}"] += 1
        values = reply.values if isinstance(reply, Found) else ()
        if call is not None and (isinstance(reply, Found | NotFound)):
            call.ok(*(value.decode() for value in values))
        elif call is not None:
            call.fail()  # a read that got no answer says nothing
        if not is_heard:
            return
        if isinstance(reply, Found):
            self.oracle.found(node, story, reply, before)
        elif isinstance(reply, NotFound):
            self.oracle.denied(node, story, before)
        if is_final and isinstance(reply, Found):
            self.oracle.found_in_the_end(node, story, values, before)
        elif is_final:
            self.oracle.silent_in_the_end(node, story, word)

    async def scan(self, node: Node) -> None:
        """Read all keys, and have the oracle judge what is there."""
        before, found, word = self.oracle.before_scan(), {}, "unknown"
        try:
            with trio.move_on_after(PATIENCE_S):
                async for key, values in node.scan():
                    found[key] = values
                word = "complete"
        except ChordError as error:
            word = error.word
        self.counts[f"scan {word}"] += 1
        if word == "complete" and node in self._ring.nodes:
            self.oracle.scanned(node, found, before)

    # -- the end --------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Read everything once more, from everywhere: nobody moves, so every read has a definite outcome.

        Where that is too much, each key is read from one node.
        """
        self.oracle.check()
        nodes, count = list(self._ring.nodes), len(self._ring)
        for _ in range(RESTS):  # what is on its way to a disk is not told yet, nor to the next after that
            for node in nodes:
                with suppress(ChordError):
                    await node.host.storage.commit(Batch())
            await trio.sleep(REST_S)
        self.oracle.check_disks()
        if count * len(self.stories) > READS_MAX:
            count = 1
        reads = iter([(node, key) for key in self.stories for node in self._rng.sample(nodes, count)])

        async def read() -> None:
            for node, key in reads:
                await self.read(node, key, is_final=True)

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(read)

    async def write_in_the_end(self, within_s: float) -> None:
        """Write through every node, unless a lost disk or a dead node excuses a refusal.

        A node that could not write node.json may wait for a node that has left. An operator forgets that one.
        """
        if self.losses.is_disk_lost or self.truth.dead():
            return
        until = trio.current_time() + within_s
        for node in list(self._ring.nodes):
            acknowledged = self.writes
            await self._forget_departed(node)
            while self.writes == acknowledged:
                await self.write(node, f"end-{node.name}".encode(), "end", "put")
                if trio.current_time() > until:
                    self.oracle.complain(f"{node.name} takes no write in the end, and no disk was lost")
                    return
                await trio.sleep(REST_S)


    async def _forget_departed(self, node: Node) -> None:
        disk = getattr(self._ring, "disk", None)
        if disk is None or not self.truth.has_disk(node.name) or not disk(node.name).unwritten_identities:
            return
        living = {other.address for other in self._ring.nodes}
        for contact in node.host.peers.passive.nodes():
            if contact.address not in living:
                self.counts["departed node forgotten"] += 1
                with suppress(ChordError):
                    await node.forget(contact.address)


def _word(outcome: Stored | Found | ChordError | None) -> str:
    """Return what a client was told, in a word."""
    if isinstance(outcome, NotFound):
        return "not found"
    return "unknown" if outcome is None else outcome.word if isinstance(outcome, ChordError) else "ok"

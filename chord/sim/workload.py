"""The workload: clients that read and write, and let the oracle judge each answer.

Each client has keys of its own. If the plan says so, all clients also write a few shared keys at the same time. A write
replaces the values of a quorum, the values that its client has read (a context), or nothing (no context).
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import trio

from chord.client import requests
from chord.client.results import Found, Stored
from chord.config import RingConstants
from chord.errors import ChordError, DefiniteError, NotFound
from chord.node import Node
from chord.sim.backups import WORKER
from chord.sim.habits import Habits
from chord.sim.key_model import KeyModel, Op, OpKind
from chord.sim.oracle import Before, Oracle, WriteQuorum
from chord.sim.plan import DRAWS, READS
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.verify.history.recorder import RecordedCall, Recorder
from chord.wire.messages import Put

KEYS_PER_CLIENT = 20  # beside the shared ones
SHARED_NAME = "shared-"
SHARED_KEYS = 4
"""Number of keys that all clients write, if the plan has shared keys."""
WRITES_PER_KEY = 300
"""Number of writes after which another key takes the place of a key.

A record remembers every coordinator it ever had, and thousands of nodes come and go in a long run. No real key is
written through all of that without a pause.
"""
PATIENCE_S = 4.0
HASTE_S = 0.1
"""Seconds after which a hasty client gives up. They are enough for a write that needs no retry."""
AT_ONCE = 16
READS_MAX = 4000
RESTS, REST_S = 3, 0.1
"""Number of waits for all disks before the last reads, and seconds after each."""
DELETES = 0.25
BLIND = 0.42
WITH_CONTEXT = 0.2
UNUSUAL = 0.2
"""Fraction of requests that name their own R or W; half as many writes are strict."""


class Attempt(NamedTuple):
    """A write in flight.

    Attributes:
        model: the model of its key.
        op: the write in the model.
        request: the request to the entry node.
        client: the name of the client.
        asked: W as the client named it; None: a quorum.
        quorum: result of `Oracle.write_quorum` when the write began.
        in_reach: result of `Oracle.to_be_found` when the write began.
        call: its entry in the history; None: no history is written.
    """

    model: KeyModel
    op: Op
    request: Put
    client: str
    asked: int | None
    quorum: WriteQuorum
    in_reach: dict[Op, set[Node]]
    call: RecordedCall | None


class Workload:
    """The clients of one ring.

    Args:
        ring: the ring.
        rng: draws the operations and the pauses.
        complain: callback for each error found, in words.
        recorder: writes the history of the operations; None: no history.
        constants: of the ring; default: those of its first node.
        reads: fraction of operations on existing keys that are reads, 0.0 to 1.0.
        draws: number of keys that a client tries in search of a key with another owner than the last coordinator.
        shared: fraction of each client's operations that use the shared keys, 0.0 to 1.0.
        habits: the habits of the clients: "batch", "large", "ttl" or "scan".

    Attributes:
        counts: operations by kind and outcome, and other totals.
        oracle: the judge of the answers.
        models: the model of each key that was written.
        accounting: the accounting of lost copies.
        inventory: the inventory of copies.
        slower: factor by which clients lengthen the pause between two operations.
        hasty: fraction of the writes with a client that gives up after `HASTE_S`, and retries nothing.
    """

    def __init__(
        self,
        ring: TestRing,
        rng: random.Random,
        complain: Callable[[str], None],
        recorder: Recorder | None = None,
        *,
        constants: RingConstants | None = None,
        reads: float = READS,
        draws: int = DRAWS,
        shared: float = 0.0,
        habits: tuple[str, ...] = (),
    ) -> None:
        self._ring = ring
        self._rng = rng
        self._recorder = recorder
        self._constants = constants or ring[0]._host.constants
        self._reads = reads
        self._draws = draws
        self._shared = shared
        self.counts: Counter[str] = Counter()
        self.oracle = Oracle(ring, self._constants, self.counts, complain)
        self.models, self.accounting, self.inventory = self.oracle.models, self.oracle.accounting, self.oracle.inventory
        self._habits = Habits(habits, rng, self.counts)
        self.slower = 1.0
        self.hasty = 0.0
        self._old: list[bytes] = []
        self._followed: Counter[str] = Counter()  # by name: number of keys that took the place of the first
        self._open: Counter[bytes] = Counter()  # by key: number of writes in flight

    @property
    def keys(self) -> int:
        """Number of keys with an acknowledged write that was not lost."""
        return sum(1 for model in self.models.values() if model.required())

    @property
    def writes(self) -> int:
        """Number of acknowledged writes."""
        return self.counts["put ok"]

    @property
    def lost(self) -> int:
        """Number of keys that lost an acknowledged write and have had none since."""
        return len(self.accounting.lost)

    # -- clients --------------------------------------------------------------------------------

    async def clients(self, count: int, pause_s: float, *, task_status: trio.TaskStatus[trio.CancelScope]) -> None:
        """Let clients read and write until the scope that `task_status` gets is cancelled.

        Args:
            count: number of clients.
            pause_s: mean seconds of each client between two operations.
        """
        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(self._client, f"client{number}", pause_s)
            task_status.started(nursery.cancel_scope)

    async def fill(self, count: int) -> None:
        """Write this many new keys, a few at a time.

        From then on, half of the operations of the clients are reads of these keys.
        """
        names = iter([f"old-{number}".encode() for number in range(count)])

        async def write() -> None:
            for name in names:
                await self.write(self._rng.choice(self._ring.nodes), name, "filler", "put")

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(write)
        self._old = [key for key, model in self.models.items() if model.required()]

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
            elif key in self.models and rng.random() >= 1 - self._reads:
                await self.read(node, key, name, r=self._unusual())
            else:
                is_delete = key in self.models and rng.random() < DELETES
                kinds: tuple[OpKind, ...] = ("put", "with context", "no context")
                weights = (1 - BLIND - WITH_CONTEXT, WITH_CONTEXT, 0.0 if is_delete else BLIND)
                (kind,) = rng.choices(kinds, weights)
                strict = rng.random() < UNUSUAL / 2
                await self.write(node, key, name, kind, is_delete=is_delete, w=self._unusual(), strict=strict)

    def _is_served(self, node: Node) -> bool:
        """Return whether clients use a node: it lives, is not stopped and is no clone."""
        return node.name not in getattr(self._ring, "stopped", ()) and self.inventory.is_living(node)

    def _a_key(self, name: str) -> bytes:
        """Draw a key; prefer a key with another owner than at its last write."""
        if self._shared and self._rng.random() < self._shared:
            return self._current(f"{SHARED_NAME}{self._rng.randrange(SHARED_KEYS)}")
        keys = [self._current(f"{name}-{self._rng.randrange(KEYS_PER_CLIENT)}") for _ in range(self._draws)]
        for key in keys:
            model = self.models.get(key)
            if model is not None and model.owner and not self._is_owner(model.owner, model.point):
                return key
        return keys[0]

    def _current(self, name: str) -> bytes:
        key = f"{name}.{self._followed[name]}" if name in self._followed else name
        model = self.models.get(key.encode())
        if model is not None and model.issued >= WRITES_PER_KEY:
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
        kind: OpKind,
        *,
        is_delete: bool = False,
        w: int | None = None,
        strict: bool = False,
    ) -> None:
        """Write a key, sometimes with others in one batch, and let the oracle judge it.

        Args:
            node: the entry node.
            key: the key.
            client: the name of the client.
            kind: how the write replaces earlier versions: "put", "with context" or "no context"; see `Op`.
            is_delete: whether the first write, that of `key`, is a delete.
            w: W as the client names it; None: a quorum.
            strict: whether only members of the replica set count towards W.
        """
        attempts = [self._begin(node, key, client, kind, is_delete=is_delete, w=w, strict=strict)]
        for number, name in enumerate(self._companions(key, client), 1):
            other = self._current(name)
            attempts.append(self._begin(node, other, client, kind, w=w, strict=strict, recorded=f"{client}+{number}"))
        outcomes: list[Stored | ChordError | None] = [None] * len(attempts)
        try:
            with trio.move_on_after(self._patience_s()):
                outcomes = list(await requests.write(node, [attempt.request for attempt in attempts]))
        except ChordError as error:
            outcomes = [error] * len(attempts)
        if node not in self._ring.nodes:  # a killed node cannot have answered its client
            outcomes = [None] * len(attempts)
        for attempt, outcome in zip(attempts, outcomes, strict=True):
            self._end(node, attempt, outcome)

    def _patience_s(self) -> float:
        """Draw how long the client of a write waits and retries."""
        return HASTE_S if self.hasty and self._rng.random() < self.hasty else PATIENCE_S

    def _begin(
        self,
        node: Node,
        key: bytes,
        client: str,
        kind: OpKind,
        *,
        is_delete: bool = False,
        w: int | None = None,
        strict: bool = False,
        recorded: str = "",
    ) -> Attempt:
        """Return a write that is about to be sent.

        `recorded` names its client in the history; default: `client`.
        """
        model = self.models.get(key)
        if model is None:
            model = self.models[key] = KeyModel(key, node._host.circle.hash(key))
        if kind == "with context" and not model.contexts.get(client):
            kind = "put"
        in_reach = self.oracle.to_be_found(model)
        ttl_s = None if is_delete else self._habits.ttl_s()
        op = model.begin(kind, client=client, is_delete=is_delete, padding=self._habits.padding())
        op.calm = self.oracle.calm()
        model.lives(op, ttl_s, trio.current_time())
        context = model.contexts[client] if kind == "with context" else None
        is_without_context = kind == "no context"
        request = requests.put_request(
            node, key, op.value, context=context, no_context=is_without_context, w=w, sloppy=not strict, ttl_s=ttl_s,
            replicas=True,
        )  # fmt: skip
        model.sent(op, request.op_id)
        self._open[key] += 1
        self.counts["writes of one key at the same time"] += self._open[key] == 2
        call = self._begin_write(recorded or client, op, key)
        return Attempt(model, op, request, client, w, self.oracle.write_quorum(model), in_reach, call)

    def _end(self, node: Node, attempt: Attempt, outcome: Stored | ChordError | None) -> None:
        """Let the oracle judge the outcome of a write; None: the client got no answer."""
        model, op, call = attempt.model, attempt.op, attempt.call
        self._open[model.key] -= 1
        is_refused = isinstance(outcome, DefiniteError)
        self.counts[f"put {_word(outcome)}"] += 1
        if call is not None:
            (call.ok if isinstance(outcome, Stored) else call.fail if is_refused else call.unknown)()
        if isinstance(outcome, Stored):
            self.oracle.acknowledged(node, model, op, outcome, attempt.client, attempt.asked, attempt.quorum)
            self.oracle.hold_to_what_it_read(node, model, op, attempt.in_reach)
            self._count_write(model, op, outcome)
        elif is_refused:
            model.refused(op)

    def _companions(self, key: bytes, client: str) -> list[str]:
        """Draw the names of further keys for a batch with `key`.

        A key that follows another one of its name, after many writes, ends with a dot and a number.
        """
        name, _, _ = key.decode().partition(".")
        return self._habits.companions(name, [f"{client}-{number}" for number in range(KEYS_PER_CLIENT)])

    def _begin_write(self, client: str, op: Op, key: bytes) -> RecordedCall | None:
        if self._recorder is None:
            return None
        if op.value is None:
            return self._recorder.delete(client, key.decode())
        return self._recorder.put(client, key.decode(), op.value.decode())

    def _count_write(self, model: KeyModel, op: Op, stored: Stored) -> None:
        if model.key.startswith(SHARED_NAME.encode()):  # too frequent for many ownership changes in between
            self.counts["acknowledged beside the shares"] += 1
            how = "with a context" if op.kind == "with context" else "without one"
            self.counts[f"acknowledged beside others {how}"] += 1
            return
        is_elsewhere = model.owner not in ("", stored.owner.address)
        is_fallback = stored.is_sloppy or any(line.outcome == "hinted" for line in stored.replicas)
        is_stand_in = not self._is_owner(stored.owner.address, model.point)
        self.counts[f"acknowledged {op.kind}"] += 1
        self.counts["acknowledged delete"] += op.value is None
        self.counts["acknowledged through a stand-in"] += is_fallback or is_stand_in
        self.counts["acknowledged elsewhere than before"] += is_elsewhere
        self.counts["acknowledged sloppily"] += stored.is_sloppy
        model.owner = stored.owner.address

    def _is_owner(self, address: str, point: int) -> bool:
        for node in self._ring.nodes:
            if node.address == address:
                return any(vnode.ownership.is_owner(point) for vnode in node._host.vnodes.values())
        return False

    # -- reads ----------------------------------------------------------------------------------

    async def read(
        self, node: Node, key: bytes, client: str = "reader", *, r: int | None = None, is_final: bool = False
    ) -> None:
        """Read a key, sometimes with others in one batch, and let the oracle judge it.

        Args:
            node: the entry node.
            key: a key that this workload has written, acknowledged or not.
            client: the client that reads, and keeps the context for its next write; "reader" keeps none.
            r: R as the client names it; None: a quorum.
            is_final: whether no node joins or leaves any more, so that the read must find every value.
        """
        names = [] if is_final else self._companions(key, client)
        keys = [key, *(other for name in names if (other := self._current(name)) in self.models)]
        before = [self.oracle.before(self.models[one], r) for one in keys]
        calls: list[RecordedCall | None] = [None] * len(keys)
        if self._recorder is not None:
            calls = [self._recorder.get(f"{client}+{at}" if at else client, k.decode()) for at, k in enumerate(keys)]
        replies: list[Found | ChordError | None] = [None] * len(keys)
        try:
            with trio.move_on_after(PATIENCE_S):
                replies = list(await requests.read(node, keys, r))
        except ChordError as error:
            replies = [error] * len(keys)
        is_answered = node in self._ring.nodes  # a killed node cannot have answered its client
        for one, held_to, call, reply in zip(keys, before, calls, replies, strict=True):
            if isinstance(reply, Found) and client != "reader":
                self.models[one].contexts[client] = reply.context
            self._have_read(node, self.models[one], reply, held_to, call, is_answered=is_answered, is_final=is_final)

    def _have_read(
        self,
        node: Node,
        model: KeyModel,
        reply: Found | ChordError | None,
        before: Before,
        call: RecordedCall | None,
        *,
        is_answered: bool,
        is_final: bool,
    ) -> None:
        """Let the oracle judge the outcome of a read; None: the client got no answer.

        Args:
            call: the entry in the history; None: no history is written.
            is_answered: whether the node still runs, so that its client got the answer.
            is_final: as for `read`.
        """
        word = _word(reply)
        self.counts[f"get {word}"] += 1
        values = reply.values if isinstance(reply, Found) else ()
        if call is not None and (isinstance(reply, Found | NotFound)):
            call.ok(*(value.decode() for value in values))
        elif call is not None:
            call.fail()  # a read without an answer constrains nothing
        if not is_answered:
            return
        if isinstance(reply, Found):
            self.oracle.found(node, model, reply, before)
        elif isinstance(reply, NotFound):
            self.oracle.denied(node, model, before)
        if is_final and isinstance(reply, Found):
            self.oracle.found_in_the_end(node, model, values, before)
        elif is_final:
            self.oracle.silent_in_the_end(node, model, word)

    async def scan(self, node: Node) -> None:
        """Read all keys in one scan through an entry node, and let the oracle judge the result."""
        before, found, word = self.oracle.before_scan(), {}, "unknown"
        try:
            with trio.move_on_after(PATIENCE_S):
                async for key, values in node.scan():
                    if not key.startswith(WORKER.encode()):  # `Backups` checks these keys
                        found[key] = values
                word = "complete"
        except ChordError as error:
            word = error.word
        self.counts[f"scan {word}"] += 1
        if word == "complete" and node in self._ring.nodes:
            self.oracle.scanned(node, found, before)

    # -- the end --------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Check all stores and disks, then read every key once more from every node.

        No node joins or leaves any more, so every read has a definite outcome. If there would be more than 4,000 reads,
        read each key from one node only.
        """
        self.oracle.check()
        nodes, count = list(self._ring.nodes), len(self._ring)
        for _ in range(RESTS):  # a store passes a write on only after its disk has it
            for node in nodes:
                with suppress(ChordError):
                    await node._host.storage.commit(Batch())
            await trio.sleep(REST_S)
        self.oracle.check_disks()
        if count * len(self.models) > READS_MAX:
            count = 1
        reads = iter([(node, key) for key in self.models for node in self._rng.sample(nodes, count)])

        async def read() -> None:
            for node, key in reads:
                await self.read(node, key, is_final=True)

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(read)

    async def write_in_the_end(self, within_s: float) -> None:
        """Write one key through every node. Do nothing if a disk was lost or a node is dead.

        A node that could not write node.json may wait for a node that has left. The workload then acts as an operator:
        it lets the node forget the node that has left.

        Args:
            within_s: virtual seconds within which all nodes must take a write.
        """
        if self.accounting.is_disk_lost or self.inventory.dead():
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
        if disk is None or not self.inventory.has_disk(node.name) or not disk(node.name).unwritten_identities:
            return
        living = {other.address for other in self._ring.nodes}
        for contact in node._host.peers.passive.nodes():
            if contact.address not in living:
                self.counts["departed node forgotten"] += 1
                with suppress(ChordError):
                    await node.remove_node(contact.address)


def _word(outcome: Stored | Found | ChordError | None) -> str:
    """Return the outcome as the client sees it, in one word."""
    if isinstance(outcome, NotFound):
        return "not found"
    return "unknown" if outcome is None else outcome.word if isinstance(outcome, ChordError) else "ok"

"""Clients that write and read all the time and remember what was acknowledged to them; and what they hold the ring to.

An acknowledged write is durable on as many nodes as the answer says, and known to somebody until it is lost
(`losses.py`). Whoever reads is given what was written, never anything else; an old value perhaps, as long as nodes come
and go; and never "not found" where a value is. In the end everybody reads the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import trio

from chord.config import RingConstants
from chord.data import versions
from chord.data.storage import Batch
from chord.errors import ChordError, DefiniteError, NotFound
from chord.history.recorder import Call, Recorder
from chord.node import Node
from chord.sim.losses import DAY_S, Losses
from chord.sim.plan import DRAWS, READS
from chord.sim.story import Kind, Op, Story
from chord.testing.rings import MemoryRing
from chord.values import Stored

KEYS_PER_CLIENT = 20
WRITES_PER_KEY = 300
"""Of one client; then another key takes its place. A record remembers every coordinator it ever had, and thousands of
nodes come and go in a long life: no key that people use is written through all of that, without a pause."""
PATIENCE_S = 4.0
AT_ONCE = 16
KNOWN_S = 5.0
READS_MAX = 4000
RESTS, REST_S = 3, 0.1
"""So often the last reads wait for all disks, and then so long for what they let go on."""
DELETES = 0.25
BLIND = 0.42
WITH_CONTEXT = 0.2
UNUSUAL = 0.2
"""So many of the requests name their own R or W, and half as many of the writes are strict."""


class Ledger:
    """What clients of one ring were told.

    Args:
        down_out_s, grace_s: of the ring, see `Losses`.
        reads: how many in one of what clients do with a key that was written before are reads.
        draws: how many keys a client looks at to find one that is another coordinator's since it was written.

    Attributes:
        counts: operations by kind and outcome, and what else is worth counting.
        complain: told, in words, what must not be.
        is_lenient: a partition lasts, or has just healed: what was written on the other side may be denied or old.
        losses: what happens to copies; to be told of it.
        truth: who has what.
    """

    def __init__(
        self,
        ring: MemoryRing,
        rng: random.Random,
        complain: Callable[[str], None],
        recorder: Recorder | None = None,
        *,
        constants: RingConstants | None = None,
        down_out_s: float = 600.0,
        grace_s: float = DAY_S,
        keys_per_client: int = KEYS_PER_CLIENT,
        reads: float = READS,
        draws: int = DRAWS,
    ) -> None:
        self._ring = ring
        self._rng = rng
        self._recorder = recorder
        self._constants = constants or ring[0].host.constants
        self._keys_per_client = keys_per_client
        self._reads = reads
        self._draws = draws
        self.complain = complain
        self.is_lenient = False
        self.counts: Counter[str] = Counter()
        self.stories: dict[bytes, Story] = {}
        self.losses = Losses(ring, self._constants, self.stories, self.counts, complain, down_out_s, grace_s)
        self.truth = self.losses.truth
        self._old: list[bytes] = []
        self._followed: Counter[str] = Counter()  # how many keys have followed the first of a name
        self._quorum = self._constants.quorum

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
                await self.write(self._rng.choice(self._ring.nodes), name, "filler", "put")

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(write)
        self._old = [key for key, story in self.stories.items() if story.required()]

    async def _client(self, name: str, pause_s: float) -> None:
        rng = self._rng
        while True:
            await trio.sleep(rng.uniform(0, 2 * pause_s))
            ready = [node for node in self._ring.nodes if node.state == "ready"]
            if not ready:
                continue
            node = rng.choice(ready)
            key = self._a_key(name)
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

    def _a_key(self, name: str) -> bytes:
        """Draw a key, and rather one that is another coordinator's now than when it was written last."""
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
        """Write a key of which this is the only writer, and remember what came of it."""
        story = self.stories.get(key)
        if story is None:
            story = self.stories[key] = Story(key, node.host.circle.hash(key))
        if kind == "with context" and not story.context:
            kind = "put"
        began, in_reach = trio.current_time(), self.losses.in_reach(story)
        wanted = min(w or self._quorum, self._settled_nodes())
        op = story.begin(kind, is_delete=is_delete)
        context = story.context if kind == "with context" else None
        request = node.core.to_put(key, op.value, context=context, blind=kind == "blind", w=w, strict=strict)
        op.op_id = request.op_id
        call = self._begin_write(client, op, key)
        outcome, is_refused = "unknown", False
        stored: Stored | None = None
        try:
            with trio.move_on_after(PATIENCE_S):
                stored = await node.drive(node.core.write(request))
                outcome = "ok"
        except ChordError as error:
            outcome, is_refused = error.word, isinstance(error, DefiniteError)
        if node not in self._ring.nodes:  # its client heard nothing any more, whatever this object says
            outcome, is_refused, stored = "unknown", False, None
        self.counts[f"put {outcome}"] += 1
        if call is not None:
            (call.ok if stored else call.fail if is_refused else call.unknown)()
        if stored is not None:
            self._acknowledged(node, story, op, stored, began)
            self._hold_to_what_it_read(node, story, op, in_reach)
            if stored.w_needed < wanted and not self.is_lenient:
                self.complain(f"{node.name} was told that {key!r} is stored, by {stored.w_needed} of {wanted} nodes")
        elif is_refused:
            story.refused(op)
        else:
            story.unknown(op, trio.current_time())

    def _settled_nodes(self) -> int:
        """Return how many members there are that all others have had the time to hear of."""
        since = trio.current_time() - KNOWN_S
        return sum(1 for node in self._ring.nodes if node.state == "ready" and node.started_at < since)

    def _begin_write(self, client: str, op: Op, key: bytes) -> Call | None:
        if self._recorder is None:
            return None
        if op.value is None:
            return self._recorder.delete(client, key.decode())
        return self._recorder.put(client, key.decode(), op.value.decode())

    def _acknowledged(self, node: Node, story: Story, op: Op, stored: Stored, began: float) -> None:
        """Hold an acknowledgement against the stores: it must be durable on so many of them.

        Or have been: a node that leaves needs only leave a quorum, however many the client had asked for.
        """
        for copy in self.truth.copies(story.key):
            story.saw(copy.record, is_shared=False)
        op.w, op.is_strict = stored.w_needed, not stored.is_sloppy
        merged = self.truth.merged(story.key)
        story.acknowledged(op, stored.context, trio.current_time())
        self.losses.acknowledged(story.key)
        self._count_write(story, op, stored)
        durable = self.losses.holders(story, op)
        gone = self.truth.vanished_since(began, story.key) + self.losses.dropped_since(began, story.key)
        if durable + gone < stored.w:
            self.complain(
                f"{node.name} was told that {story.key!r} is stored on {stored.w} nodes, and it is durable on {durable}"
            )
        elif merged is None or not op.is_in(merged):
            self.losses.lose(story, op)

    def _hold_to_what_it_read(self, node: Node, story: Story, op: Op, in_reach: dict[Op, set[Node]]) -> None:
        """Hold an acknowledgement against what its coordinator must have found on those who lived all the while."""
        left = story.left_beside(op, self.truth.merged(story.key), self._quorum) if in_reach else []
        now = self.losses.in_reach(story) if left else {}
        for old in left:
            if in_reach.get(old, set()) & now.get(old, set()) and not self.is_lenient:
                self.complain(f"{node.name} was told that {op} of {story.key!r} is done, and beside it stands {old}")
                break

    def _count_write(self, story: Story, op: Op, stored: Stored) -> None:
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
        """Read a key that was written, and compare. In the end (`is_final`) what is there must be found."""
        story = self.stories[key]
        required = story.must_be_found(trio.current_time(), self._quorum)
        call = self._recorder.get(client, key.decode()) if self._recorder else None
        outcome = "unknown"
        found: tuple[bytes, ...] = ()
        try:
            with trio.move_on_after(PATIENCE_S):
                reply = await node.get(key, r=r)
                found, outcome = reply.values, "ok"
                if client != "reader":
                    story.context = reply.context
        except NotFound:
            outcome = "not found"
        except ChordError as error:
            outcome = error.word
        is_heard = node in self._ring.nodes  # who asks a dead node hears nothing, whatever this object says
        self.counts[f"get {outcome}"] += 1
        if call is not None and outcome in ("ok", "not found"):
            call.ok(*(value.decode() for value in found))
        elif call is not None:
            call.fail()  # a read that got no answer says nothing
        if is_heard and outcome == "ok":
            self._judge(node, story, found, is_final)
        elif is_heard and outcome == "not found":
            self._judge_denial(node, story, required)
        if is_final and is_heard and outcome != "ok":
            self._judge_silence(node, story, outcome)

    def _judge(self, node: Node, story: Story, found: tuple[bytes, ...], is_final: bool) -> None:
        """Hold what was read against what was written. What nobody wrote may never be read, whatever has happened."""
        strange = [value for value in found if not story.was_written(value)]
        if strange:
            self.complain(f"{node.name} reads {found!r} under {story.key!r}, and not all of it was ever written")
        there = self._values(story)
        self.counts["read stale"] += set(found) != set(there)
        if is_final and set(found) != set(there):
            self.complain(f"{node.name} reads {found!r} under {story.key!r}, there is {there!r}")

    def _judge_denial(self, node: Node, story: Story, required: list[Op]) -> None:
        required = [op for op in required if op in story.ops and not op.is_lost]
        if self.is_lenient or self.losses.may_deny(story.key):
            return
        if required and self.losses.is_away(story, required):
            self.counts["denied, away for too long"] += 1
        elif required:
            held = ", ".join(f"{c.host}{'' if c.is_living else ' (dead)'}" for c in self.truth.copies(story.key))
            what = ", ".join(map(str, required))
            self.complain(f"{node.name} denies {story.key!r}, which was acknowledged: {what}; held by {held}")
        elif story.key in self.losses.lost and self._constants.replicas == 1:
            self.complain(f"{node.name} denies {story.key!r}, which was acknowledged and lost")

    def _judge_silence(self, node: Node, story: Story, outcome: str) -> None:
        there = self._values(story)
        if there:
            self.complain(f"{node.name} does not find {story.key!r}, of which somebody living has {there!r}: {outcome}")

    def _values(self, story: Story) -> list[bytes]:
        record = self.truth.merged(story.key, only_living=True)
        return [] if record is None else versions.values(record)

    # -- the end --------------------------------------------------------------------------------

    def check(self) -> None:
        """Hold all there is against all that was told."""
        self.losses.let_go()
        for key, story in self.stories.items():
            for text in story.wrong(self.truth.merged(key), trio.current_time()):
                self.complain(f"{key!r}: {text}")

    async def settle(self) -> None:
        """Read everything once more, from everywhere: nobody moves, so every read has a definite outcome.

        Where that is too much, each key is read from one node.
        """
        self.check()
        nodes, count = list(self._ring.nodes), len(self._ring)
        for _ in range(RESTS):  # what is on its way to a disk is not told yet, nor to the next after that
            for node in nodes:
                with suppress(ChordError):
                    await node.host.storage.commit(Batch())
            await trio.sleep(REST_S)
        if count * len(self.stories) > READS_MAX:
            count = 1
        reads = iter([(node, key) for key in self.stories for node in self._rng.sample(nodes, count)])

        async def read() -> None:
            for node, key in reads:
                await self.read(node, key, is_final=True)

        async with trio.open_nursery() as nursery:
            for _ in range(AT_ONCE):
                nursery.start_soon(read)

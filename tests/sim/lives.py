"""A driver for a store on a simulated disk, through puts, batches, removals, crashes, failed syncs and full disks.

It holds the store to this: what is found after an opening is the state after some number of batches, at least as
many as were acknowledged; and no dot that anybody could see ever names two values.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

import trio

from chord.data import versions
from chord.data.storage import Batch
from chord.errors import RemoteFailure, WritesRefused
from chord.ids import Arc, Circle, Point
from chord.messages import ActorClock, Record, Version
from chord.sim.disk import Disk, Mount
from chord.sim.durable import DiskStorage
from chord.testing import run

CIRCLE = Circle(160)
WHOLE = Arc(Point(0), Point(0))
KEYS = [b"key-%d" % number for number in range(4)]

State = dict[bytes, Record]


def record(key: bytes, value: bytes = b"v") -> Record:
    return Record(key, (ActorClock(bytes(16), 1, (Version(value, bytes(16), 0),)),))


def state_of(store: DiskStorage) -> State:
    return {found.key: found for found in store.scan(WHOLE)}


class Made(NamedTuple):
    """What the driver runs: a kind of store, and how it sees the disk."""

    store: type[DiskStorage] = DiskStorage
    mount: type[Mount] = Mount


Step = tuple[str, int]

ACTIONS = (
    *6 * ("put",),
    *6 * ("large",),
    *6 * ("wait",),
    *3 * ("room",),
    *2 * ("batch", "crash"),
    "kill",
    "fail",
    "full",
)


class Driver:
    """Runs a store through its lives.

    Attributes:
        wrong: what was found wrong, in words.
        states: what the store must hold after each batch; the first is what may not be lost any more.
        acknowledged: index of the last state that may not be lost.
        counts: how much happened.
    """

    def __init__(self, seed: int, made: Made) -> None:
        self.wrong: list[str] = []
        self.states: list[State] = [{}]
        self.acknowledged = 0
        self.counts = {"acknowledged": 0, "refused": 0, "in doubt": 0, "compactions": 0, "cut": 0}
        self._rng = random.Random(seed)
        self._made = made
        self._disk = Disk(random.Random(seed), sync_delay=lambda rng: rng.choice((0.0, 0.2, 0.6)))
        self._dots: dict[tuple[bytes, int], bytes] = {}
        self._actors: dict[bytes, None] = {}
        self._batches = 0
        self._store = self._open()

    async def run(self, steps: list[Step]) -> None:
        """Do the steps, then cut the power and look a last time."""
        remaining = iter([*steps, ("crash", 0)])
        for action, number in remaining:
            async with trio.open_nursery() as nursery:
                while action not in ("crash", "kill"):
                    await self._do(action, number, nursery)
                    self._look()
                    action, number = next(remaining)
                (self._disk.crash if action == "crash" else self._disk.kill)()
                nursery.cancel_scope.cancel()
            self.wrong += self._disk.check()
            self._store = self._open()

    async def _do(self, action: str, number: int, nursery: trio.Nursery) -> None:
        if action == "wait":
            await trio.sleep(number * 0.1)
        elif action == "fail":
            self._disk.fail_next_sync()
        elif action == "full":
            self._disk.capacity_bytes = self._disk.used_bytes + number
        elif action == "room":
            self._disk.capacity_bytes = math.inf
        else:
            patience = self._rng.choice((0.2, 0.7, math.inf, math.inf))
            if action == "batch":
                nursery.start_soon(self._batch, patience)
            else:
                nursery.start_soon(self._put, KEYS[number % len(KEYS)], 30_000 if action == "large" else 9, patience)
            await trio.lowlevel.checkpoint()

    def _open(self) -> DiskStorage:
        """Begin a life, and see what the one before has left."""
        disk, made = self._disk, self._made
        disk.mount = lambda: made.mount(disk, disk._generation)  # type: ignore[method-assign]
        try:
            store = made.store(CIRCLE, disk, self._rng)
        except Exception as error:
            self.wrong.append(f"cannot be opened: {type(error).__name__}")
            disk = self._disk = Disk(self._rng)
            store = made.store(CIRCLE, disk, self._rng)
            self.states, self.acknowledged = [{}], 0
        found = state_of(store)
        self.counts["cut"] += store.cut_bytes > 0
        if found not in self.states[self.acknowledged :]:
            what = "less than was acknowledged" if found in self.states else "the state after no number of batches"
            self.wrong.append(f"found: {what}")
            self.states, self.acknowledged = [found], 0
        if store._durable:
            self.states, self.acknowledged = [found], 0
        else:  # it could only be read: the next crash may still take what none has taken so far
            del self.states[len(self.states) - self.states[::-1].index(found) :]
        return store

    def _look(self) -> None:
        if state_of(self._store) != self.states[-1]:
            self.wrong.append("visible: something else than was committed")
            self.states.append(state_of(self._store))

    async def _put(self, key: bytes, size: int, patience: float) -> None:
        """What the coordinator of a put does: read, merge, commit."""
        store, old = self._store, self._store.get(key)
        actor = store.minted(key)
        if actor is None:
            try:
                epoch = store.next_key_epoch()
            except WritesRefused:
                self.counts["refused"] += 1
                return
            actor = versions.actor(store.incarnation, epoch)
            if actor in self._actors:
                self.wrong.append("a key epoch twice")
            self._actors[actor] = None
        op_id = self._rng.randbytes(16)
        new = versions.put(old, key, None, actor, Version(self._rng.randbytes(size), op_id, 0))
        dot = actor, next(entry.count for entry in new.clock if entry.actor == actor)
        if self._dots.get(dot, op_id) != op_id:
            self.wrong.append("a dot of two values")
        if await self._commit(Batch([new], minted={key: actor}), patience):  # else nobody else has been shown it
            self._dots[dot] = op_id

    async def _batch(self, patience: float) -> None:
        """Store some records of others, and remove one."""
        self._batches += 1
        puts = [record(b"%d/%d" % (self._batches, part), self._rng.randbytes(400)) for part in range(3)]
        await self._commit(Batch(puts, removals=[self._rng.choice(KEYS)]), patience)

    async def _commit(self, batch: Batch, patience: float) -> bool:
        """Commit, and hold the store to what comes of it. Returns whether it was acknowledged."""
        states, index = self.states, len(self.states)
        states.append({**states[-1], **{one.key: one for one in batch.puts}})
        for key in batch.removals:
            states[-1].pop(key, None)
        compactions = self._store.compactions
        try:
            with trio.move_on_after(patience) as scope:
                await self._store.commit(batch)
        except WritesRefused:
            if len(states) == index + 1:
                states.pop()
            else:
                self.wrong.append("refused, and not at once")
            self.counts["refused"] += 1
            return False
        except RemoteFailure:
            self.counts["in doubt"] += 1
            return False
        if not scope.cancelled_caught:
            self.acknowledged = max(self.acknowledged, index)
            self.counts["acknowledged"] += 1
            self.counts["compactions"] += self._store.compactions - compactions
        return not scope.cancelled_caught


def some_steps(seed: int) -> list[Step]:
    rng = random.Random(f"steps/{seed}")
    return [(rng.choice(ACTIONS), rng.randrange(12)) for _ in range(60)]


RIGHT = Made()


def drive(steps: list[Step], seed: int, made: Made = RIGHT) -> Driver:
    driver = Driver(seed, made)
    run(driver.run, steps, seed=seed)
    return driver

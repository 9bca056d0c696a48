"""Scenes of early puts, which a coordinator sends before it stores them.

Each scene holds back or loses single calls. A complaint begins with `EarlyPuts`.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from chord import testing
from chord.errors import ChordError, IndefiniteError, QuorumFailed, WritesRefused
from chord.ids import Circle
from chord.node import Node
from chord.store import versions
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import ActorClock, Contact, ReadCopy, Record, Request, StoreCopies, StoreCovering, Version
from tests.support.early import Fate, Wire, wire_of
from tests.support.quorum import KEY, clockwise, read, record_at, ring_in_sync, stop_repair, until, write
from tests.support.rings import only

OTHER = ActorClock(b"another store 01", 1, (Version(b"other", b"o" * 16, 1),))
"""A value that another coordinator has written."""


class Stage(NamedTuple):
    """The owner of `KEY`, its two other replicas, and the calls of the owner."""

    ring: TestRing
    owner: Node
    first: Node
    second: Node
    wire: Wire


@asynccontextmanager
async def stage(seed: int) -> AsyncIterator[Stage]:
    """Run a ring of four nodes in sync, without repair. `KEY` has the value "1"."""
    async with ring_in_sync(4, seed) as ring:
        await write(ring[0], KEY, b"1", w=3)
        stop_repair(*ring.nodes)
        owner, first, second, _ = clockwise(ring, KEY)
        with wire_of(owner) as wire:
            yield Stage(ring, owner, first, second, wire)


def play(seed: int, scene: Callable[[Stage], Awaitable[None]]) -> None:
    """Play a scene on its stage."""

    async def main() -> None:
        async with stage(seed) as ready:
            await scene(ready)

    testing.run(main, seed=seed)


def require(is_so: object, complaint: str) -> None:
    """Complain unless a condition holds."""
    if not is_so:
        raise AssertionError(f"EarlyPuts: {complaint}")


def add_other(*nodes: Node) -> None:
    """Let nodes hold the value of another coordinator beside their own."""
    for node in nodes:
        node._host.storage.apply(Batch([versions.sync(record_at(node, KEY), Record(KEY, (OTHER,)))]))  # type: ignore[attr-defined]


async def outcome_of(write: Awaitable[object]) -> object:
    """Return the reply or the error of a write."""
    try:
        return await write
    except ChordError as error:
        return error


def hold(*kinds: type[Request], to: Node | None = None) -> Callable[[Contact, Request], Fate]:
    """Return the rule that holds requests of some types, all of them or those to one node."""
    return lambda contact, request: (
        "hold" if isinstance(request, kinds) and (to is None or contact.address == to.address) else "pass"
    )


def members_hold_more(seed: int) -> None:
    """Both other members hold an acknowledged value that the owner lacks. The put must replace it."""

    async def scene(at: Stage) -> None:
        add_other(at.first, at.second)
        await write(at.owner, KEY, b"2")
        require(at.wire.count(ReadCopy) == 0, "the put was not sent early")
        await trio.sleep(0.1)
        for node in (at.owner, at.first, at.second):
            record = record_at(node, KEY)
            require(OTHER.actor in versions.context_of(record), f"{node.name} does not know the other value")
            require(versions.values(record) == [b"2"], f"{node.name} has {versions.values(record)}")

    play(seed, scene)


def first_reply_is_not_in_sync(seed: int) -> None:
    """A member that is not in sync replies first. Only the other member holds an acknowledged value."""

    async def scene(at: Stage) -> None:
        add_other(at.second)
        only(at.first).preference_list._in_sync.clear()
        at.wire.rule = hold(StoreCovering, to=at.second)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, at.owner, KEY, b"2")
            await trio.sleep(0.05)
            at.wire.release(StoreCovering)
        await trio.sleep(0.1)
        require(versions.values(record_at(at.owner, KEY)) == [b"2"], "the owner shows another value")
        require(OTHER.actor in versions.context_of(record_at(at.owner, KEY)), "the owner does not know the other value")

    play(seed, scene)


def one_member_has_only_the_first_version(seed: int) -> None:
    """One member stores the first version. The reply of the other one decides that a second version is needed."""

    async def scene(at: Stage) -> None:
        add_other(at.first)
        at.wire.rule = lambda to, request: (
            "hold" if to.address == at.second.address and isinstance(request, StoreCopies)
            else "lose the answer" if to.address == at.second.address and isinstance(request, StoreCovering)
            else "pass"
        )  # fmt: skip
        ended = trio.Event()

        async def client() -> None:
            await write(at.owner, KEY, b"2", w=3, strict=True)
            ended.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client)
            await until(lambda: at.wire.held)
            await trio.sleep(0.1)
            require(not ended.is_set(), "a copy of the first version counts for W")
            at.wire.release(StoreCopies)

    play(seed, scene)


def no_reply_arrives(seed: int) -> None:
    """Both members store a version, and both replies are lost. Then the owner writes another value beside it."""

    async def scene(at: Stage) -> None:
        at.wire.rule = lambda to, request: "lose the answer" if isinstance(request, StoreCovering) else "pass"
        first = await outcome_of(write(at.owner, KEY, b"2"))
        require(isinstance(first, QuorumFailed), f"the outcome is {first!r}")
        await write(at.owner, KEY, b"3", context=b"", w=3)
        shown = sorted((await read(at.owner, KEY, r=3)).values)
        require(shown == [b"1", b"2", b"3"] or shown == [b"2", b"3"], f"a read shows {shown}")

    play(seed, scene)


def another_put_comes_in_between(seed: int) -> None:
    """A put has read, and is about to make its version, while an early put is undecided."""

    async def scene(at: Stage) -> None:
        at.wire.rule = hold(ReadCopy, StoreCovering)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(outcome_of, write(at.owner, KEY, b"3", is_retry=True))
            await until(lambda: at.wire.held)
            nursery.start_soon(outcome_of, write(at.owner, KEY, b"2"))
            await until(lambda: at.wire.count(StoreCovering) == 2)
            at.wire.rule = hold()
            at.wire.release(ReadCopy)
            await trio.sleep(0.05)
            require(versions.values(record_at(at.owner, KEY)) == [b"1"], "a put did not wait for the early put")
            at.wire.release(StoreCovering)
        await trio.sleep(0.1)
        for node in (at.owner, at.first, at.second):
            record = record_at(node, KEY)
            require(versions.values(record) == [b"3"], f"{node.name} has {versions.values(record)}")
            require(len(record.clock) == 1, f"{node.name} knows {len(record.clock)} actors")

    play(seed, scene)


def owner_cannot_store_what_it_sent(seed: int) -> None:
    """The members have stored the version. Then the owner's disk refuses it."""

    async def scene(at: Stage) -> None:
        storage = at.owner._host.storage
        stage_batch = storage.stage

        def refuse(batch: Batch) -> bool:
            if batch.minted:
                raise WritesRefused("the disk is full")
            return stage_batch(batch)

        storage.stage = refuse  # type: ignore[method-assign]
        outcome = await outcome_of(write(at.owner, KEY, b"2"))
        require(versions.values(record_at(at.first, KEY)) == [b"2"], "the put was not sent early")
        require(isinstance(outcome, IndefiniteError), f"the outcome is {outcome!r}, and a member has the value")

    play(seed, scene)


# -- disks ----------------------------------------------------------------------------------------

CIRCLE = Circle(32)
LENDABLE = b"store 01" + (7).to_bytes(8, "big")


def record(number: int) -> Record:
    """Return the record of `KEY` after as many writes under `LENDABLE`."""
    return Record(KEY, (ActorClock(LENDABLE, number, (Version(b"%d" % number, bytes(15) + b"%d" % number, number),)),))


class Disks:
    """The directory of a store, and copies of it as a crash would leave it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.errors: list[Exception] = []

    def _before_commit(self) -> None:
        if self.errors:
            raise self.errors.pop()

    def fill(self) -> None:
        """Let the disk refuse the next transaction, because it is full."""
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        self.errors.append(error)

    def store(self) -> SqliteStorage:
        """Return the store, not opened yet."""
        return SqliteStorage(CIRCLE, os.path.join(self._directory, "data"), b"store 01", self._before_commit)

    def after_a_crash(self) -> SqliteStorage:
        """Return a store on a copy of the files, which the store has not closed."""
        copied = os.path.join(self._directory, "copy")
        shutil.copytree(os.path.join(self._directory, "data"), copied)
        return SqliteStorage(CIRCLE, copied, b"store 01")


def on_disk(scene: Callable[[Disks], Awaitable[None]]) -> None:
    """Play a scene with a store on a real disk."""
    with tempfile.TemporaryDirectory() as directory:
        trio.run(scene, Disks(directory))


async def lending(store: SqliteStorage) -> None:
    """Store one write, and make the store ready to lend its actor."""
    store._commits.key_epoch = 7
    await store.commit(Batch([record(1)], minted={KEY: LENDABLE}))
    while not store.can_lend(KEY):
        await store.commit(Batch())


def power_fails_after_an_early_send(seed: int) -> None:
    """The power fails after a version was sent. The store must not mint under its actor again."""

    async def scene(disks: Disks) -> None:
        store = disks.store()
        await store.open()
        await lending(store)
        store.lend_actor(KEY, record(2))
        again = disks.after_a_crash()
        await again.open()
        require(again.minted(KEY) is None, "an actor that was lent is used after a crash")
        await again.close()
        await store.close()

    on_disk(scene)


def disk_refuses_what_was_sent(seed: int) -> None:
    """The disk refuses the version that was sent early. The record is again as it was before."""

    async def scene(disks: Disks) -> None:
        store = disks.store()
        await store.open()
        await lending(store)
        store.lend_actor(KEY, record(2))
        disks.fill()
        store.stage(Batch([record(2)], minted={KEY: LENDABLE}))
        require(store.minted(KEY) == LENDABLE, "the store does not have the actor back")
        try:
            await store.commit(Batch())
        except WritesRefused:
            require(store.minted(KEY) is None, "an actor that was lent is used after a refused transaction")
        else:
            raise AssertionError("the disk took the version")
        await store.close()

    on_disk(scene)


def power_fails_before_the_mark(seed: int) -> None:
    """The store is ready to lend an actor. If the power fails then, the mark must be on the disk."""

    async def scene(disks: Disks) -> None:
        store = disks.store()
        await store.open()
        store._commits.key_epoch = 7
        await store.commit(Batch([record(1)], minted={KEY: LENDABLE}))
        for _ in range(3):
            if store.can_lend(KEY):
                again = disks.after_a_crash()
                await again.open()
                require(again.minted(KEY) is None, "an actor was lent before the mark was durable")
                await again.close()
                break
            await store.commit(Batch())
        await store.close()

    on_disk(scene)

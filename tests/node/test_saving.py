"""Saves of the persisted state: a disk that hangs or refuses blocks no other work, and is reported."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest
import trio

from chord.config import PRESETS, NodeConfig
from chord.errors import ConfigError
from chord.events import Emitted, HealthChanged
from chord.node import Node
from chord.store.identity import FileIdentity, Kept, MemoryIdentity
from tests.support.identities import KEPT, changed
from tests.support.real_rings import HANG_S
from tests.support.rings import lone_world, virtual

TIMING = msgspec.structs.replace(PRESETS["local"], period_growth_max=1.0)  # to count rounds


class Faulty(MemoryIdentity):
    """An identity on a disk that hangs until `is_free` is set, and refuses while `error` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = trio.Event()
        self.is_free.set()
        self.error: int | None = None
        self.waiting = self.waiting_max = 0

    async def save(self, kept: Kept) -> None:
        if self.error is not None:
            raise OSError(self.error, os.strerror(self.error))
        self.waiting += 1
        self.waiting_max = max(self.waiting, self.waiting_max)
        try:
            await self.is_free.wait()
        finally:
            self.waiting -= 1
        await super().save(kept)


class Scene:
    """A node on virtual time, and its health events."""

    def __init__(self) -> None:
        self.identity = Faulty()
        self.events: list[HealthChanged] = []
        config = NodeConfig(listen="n0:1", timing=TIMING)
        self.node = Node(config, lone_world(config, self.identity, self._observe))

    def _observe(self, emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, HealthChanged) and event.why:
            self.events.append(event)

    @property
    def rounds(self) -> int:
        return sum(vnode.rounds for vnode in self.node._host.vnodes.values())

    def change(self) -> None:
        """Change the state that the node must save."""
        for vnode in self.node._host.vnodes.values():
            vnode.ownership.epoch += 1


@virtual
async def test_hung_save_does_not_block_stabilize_or_the_stop() -> None:
    scene = Scene()
    async with trio.open_nursery() as nursery:
        await nursery.start(scene.node.run)
        await scene.node.ready()
        scene.identity.is_free = trio.Event()
        scene.change()
        before = scene.rounds
        await trio.sleep(40)
        assert scene.rounds - before >= 0.9 * 40 / TIMING.stabilize_s
        assert scene.identity.waiting_max == 1
        with trio.fail_after(2 * TIMING.leave_s):
            await scene.node.stop()


@pytest.mark.slow
@virtual
async def test_identity_unsaved_for_unsaved_s_is_reported_once() -> None:
    scene = Scene()
    async with trio.open_nursery() as nursery:
        await nursery.start(scene.node.run)
        await scene.node.ready()
        for time in range(1, 3):
            scene.identity.error = errno.ENOSPC
            await trio.sleep(TIMING.unsaved_s - 1)
            assert len(scene.events) == time - 1
            assert scene.node._saver.trouble() == ""
            await trio.sleep(3)
            assert len(scene.events) == time
            await trio.sleep(TIMING.unsaved_s)
            assert len(scene.events) == time, "once"
            assert "node.json could not be written for 12" in scene.node._saver.trouble()
            assert "no space left on device" in scene.events[-1].why
            scene.identity.error = None
            await trio.sleep(3)
            assert scene.node._saver.trouble() == ""
        scene.identity.is_free = trio.Event()
        scene.change()
        await trio.sleep(TIMING.unsaved_s + 3)
        assert "it takes too long" in scene.events[-1].why, "the reason of a hung disk"
        nursery.cancel_scope.cancel()


class HungFile(FileIdentity):
    """An identity on a disk that hangs during a write."""

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.begun = trio.Event()
        self.is_free = threading.Event()
        self.writing: list[bytes] = []

    def _replace(self, content: bytes) -> None:
        self.writing.append(content)
        trio.from_thread.run_sync(self.begun.set)
        assert self.is_free.wait(HANG_S)
        super()._replace(content)


def test_hung_identity_file_takes_one_thread_for_all_saves(tmp_path: Path) -> None:
    async def main() -> None:
        store = HungFile(str(tmp_path))
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(store.save, changed(address=f"n{number}:1"))
            await store.begun.wait()
            nursery.cancel_scope.cancel()
        for number in range(10):
            with trio.move_on_after(0.001):
                await store.save(changed(address=f"m{number}:1"))
        assert len(store.writing) == 1, "only one thread hangs"
        store.is_free.set()
        await store.save(KEPT)
        assert store.load() == KEPT
        assert len(store.writing) == 2
        store.close()

    trio.run(main)


def test_hung_write_keeps_the_directory_locked_until_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        store = HungFile(str(tmp_path))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(store.save, KEPT)
            await store.begun.wait()
            nursery.cancel_scope.cancel()
        store.close()
        with pytest.raises(ConfigError, match="another node is running"):
            FileIdentity(str(tmp_path))
        store.is_free.set()
        while True:  # until the thread releases the lock
            try:
                again = FileIdentity(str(tmp_path))
                break
            except ConfigError:
                await trio.sleep(0.001)
        assert again.load() == KEPT
        await store.save(changed(address="late:1"))
        assert again.load() == KEPT, "a closed store writes nothing"
        again.close()

    trio.run(main)

"""The identity of a node: one suite for all its stores, then cases of files and simulated disks."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from chord.config import PRESETS, NodeConfig
from chord.errors import ChordError, ConfigError
from chord.events import Emitted, StepFailed
from chord.ids import Point
from chord.node import Node
from chord.node.restart import require_same_on_disk
from chord.sim.disk import Disk, Mount
from chord.sim.stores import DiskIdentity
from chord.store import identity
from chord.store.identity import FILE_NAME, FileIdentity, IdentityStore, Kept, MemoryIdentity, encode_kept
from chord.testing import run
from chord.wire.messages import Contact
from tests.support.identities import KEPT, VNODE, changed
from tests.support.rings import lone_world, virtual


class Place:
    """A place for an identity; a starting node calls `open`."""

    def __init__(self, form: str, directory: Path) -> None:
        self._directory = directory
        self._disk = Disk(random.Random(1))
        self._memory = MemoryIdentity()
        self.open: Callable[[], IdentityStore] = {
            "file": lambda: FileIdentity(str(directory / "data")),
            "disk": lambda: DiskIdentity(self._disk),
            "memory": lambda: self._memory,
        }[form]
        self.form = form

    def run(self, fn: Callable[[], Any]) -> None:
        """Run without virtual time, which does not wait for the thread that writes the file."""
        runner: Callable[..., Any] = trio.run if self.form == "file" else run
        runner(fn)

    def read(self) -> bytes:
        """Return the content of the file."""
        if self.form != "disk":
            return (self._directory / "data" / FILE_NAME).read_bytes()
        assert self._disk.identity is not None
        return self._disk.identity

    def write(self, content: bytes) -> None:
        """Replace the content of the file."""
        if self.form == "disk":
            self._disk.identity = content
        else:
            (self._directory / "data" / FILE_NAME).write_bytes(content)


@pytest.fixture(params=["file", "disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


@pytest.fixture(params=["file", "disk"])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(request.param, tmp_path)


def keep(place: Place, *kept: Kept) -> None:
    store = place.open()

    async def main() -> None:
        for one in kept:
            await store.save(one)

    place.run(main)
    store.close()


# -- every store -----------------------------------------------------------------------------------------


def test_load_at_the_first_start_finds_nothing(place: Place) -> None:
    store = place.open()
    assert store.load() is None
    store.close()


def test_saved_identity_is_loaded_after_a_restart(place: Place) -> None:
    keep(place, KEPT)
    store = place.open()
    assert store.load() == KEPT
    store.close()


def test_last_saved_identity_is_loaded(place: Place) -> None:
    keep(place, KEPT, changed(has_left=True), changed(has_left=True), changed(address="m:1"), KEPT)
    store = place.open()
    assert store.load() == KEPT
    store.close()


def test_concurrent_saves_leave_one_whole_identity(place: Place) -> None:
    store = place.open()
    ones = [changed(address=f"n{number}:1") for number in range(8)]

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for one in ones:
                nursery.start_soon(store.save, one)

    place.run(main)
    assert store.load() in ones
    store.close()


def test_cancelled_save_leaves_the_old_or_the_new_identity(place: Place) -> None:
    keep(place, KEPT)
    store = place.open()
    new = changed(address="m:1")

    async def main() -> None:
        with trio.move_on_after(0.0001):
            await store.save(new)
        assert store.load() in (KEPT, new)
        await store.save(new)
        assert store.load() == new

    place.run(main)
    store.close()


# -- stores that last ------------------------------------------------------------------------------------


def test_second_node_at_one_identity_is_refused(lasting: Place) -> None:
    first = lasting.open()
    with pytest.raises(ConfigError, match="another node is running"):
        lasting.open()
    first.close()
    lasting.open().close()


def test_second_close_leaves_descriptors_of_others_open(tmp_path: Path) -> None:
    store = FileIdentity(str(tmp_path))
    store.close()
    other = os.open(tmp_path, os.O_RDONLY)  # gets the number of the descriptor that was closed
    store.close()
    os.close(other)


def test_damaged_identity_is_refused_and_not_overwritten(lasting: Place) -> None:
    keep(lasting, KEPT)
    whole = lasting.read()
    damaged = [
        b"",
        bytes(len(whole)),
        whole[:-1],
        whole[: len(whole) // 2],
        whole[:9] + bytes(9) + whole[18:],
        whole.replace(b'"id": "7"', b'"id": 7'),
        whole.replace(b'"id": "7"', b'"id": "seven"'),
        b"[]",
        b"\xff",
    ]
    for content in damaged:
        lasting.write(content)
        store = lasting.open()
        with pytest.raises(ConfigError, match="damaged"):
            store.load()
        store.close()
        assert lasting.read() == content


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"bits": 161}, "bits is 161, not 3 to 160"),
        ({"bits": 8}, f"id {2**159} is not on a circle of 8 bits"),
        ({"ring": "zz"}, "ring is 'zz', not 32 hexadecimal digits"),
        ({"incarnation": "0g" * 8}, "incarnation is '0g0g0g0g0g0g0g0g', not 16 hexadecimal digits"),
        ({"vnodes": ()}, "it has no vnode"),
        ({"vnodes": (VNODE, VNODE)}, "two of its vnodes have one id"),
        ({"passive": (Contact(Point(2**160), "d:1"),)}, f"id {2**160} is not on a circle of 160 bits"),
        *(
            ({"vnodes": (msgspec.structs.replace(VNODE, **{name: value}),)}, f"id {2**160} is not on a circle")
            for name, value in (
                ("id", Point(2**160)),
                ("owned_from", Point(2**160)),
                ("predecessor", Contact(Point(2**160), "a:1")),
                ("marks", ((Point(1), Point(2), Point(2**160), "d:1"),)),
            )
        ),
    ],
)
def test_identity_with_inconsistent_fields_is_damaged(lasting: Place, fields: dict[str, Any], why: str) -> None:
    keep(lasting, changed(**fields))
    store = lasting.open()
    with pytest.raises(ConfigError, match=f"damaged \\({re.escape(why)}.*; put a copy of it back"):
        store.load()
    store.close()


def test_identity_beyond_its_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "FILE_BYTES_MAX", 1 << 20)
    store = FileIdentity(str(tmp_path))
    (tmp_path / FILE_NAME).symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=r"node\.json has more than 1 MiB.*; put a copy of it back"):
        store.load()
    with pytest.raises(ConfigError, match=r"node\.json has more than 1 MiB"):
        require_same_on_disk(NodeConfig(data_dir=str(tmp_path)))
    store.close()


@pytest.mark.parametrize("content", [encode_kept(msgspec.structs.replace(KEPT, version=2)), b'{"version": 2}'])
def test_identity_of_another_format_is_refused(lasting: Place, content: bytes) -> None:
    """The fields of another format may be other ones."""
    keep(lasting, KEPT)
    lasting.write(content)
    store = lasting.open()
    with pytest.raises(ConfigError, match="format 2; expected 1; use the version that wrote it"):
        store.load()
    store.close()


ADDED = ("left_ms", "owned_ms")  # the first files of this format lack them


@pytest.mark.parametrize("name", [name for name in Kept.__struct_fields__ if name not in ADDED])
def test_identity_without_one_of_its_fields_is_damaged(lasting: Place, name: str) -> None:
    keep(lasting, KEPT)
    fields = msgspec.json.decode(lasting.read())
    del fields[name]
    lasting.write(msgspec.json.encode(fields))
    store = lasting.open()
    with pytest.raises(ConfigError, match=f"damaged .*missing required field `{name}`"):
        store.load()
    store.close()


def test_identity_without_the_times_of_goodbyes_is_read(lasting: Place) -> None:
    keep(lasting, msgspec.structs.replace(KEPT, left_ms=(1,), owned_ms=((Point(1), 2),)))
    fields = msgspec.json.decode(lasting.read())
    for name in ADDED:
        del fields[name]
    lasting.write(msgspec.json.encode(fields))
    store = lasting.open()
    kept = store.load()
    assert kept is not None
    assert (kept.left_ms, kept.owned_ms) == ((), ())
    store.close()


def test_identity_file_is_indented_json(lasting: Place) -> None:
    keep(lasting, KEPT)
    assert b'\n  "address": "n:1"' in lasting.read()


# -- simulated disks -------------------------------------------------------------------------------------


async def lost_in_crashes(seeds: int = 50) -> list[str]:
    """Save, cut the power at any time, and return each load that is neither the old nor the new identity."""
    wrong = []
    for seed in range(seeds):
        rng = random.Random(seed)
        disk = Disk(rng, sync_delay=lambda rng: 1.0)
        acknowledged: Kept | None = None
        for life in range(6):
            store = DiskIdentity(disk)
            try:
                found = store.load()
            except ConfigError as error:
                wrong.append(f"seed {seed}: {error}")
                break
            if found != acknowledged:
                wrong.append(f"seed {seed}: {found} instead of {acknowledged}")
                break
            on_its_way = changed(address=f"n{seed}:{life}")
            with trio.move_on_after(rng.choice((0.5, 1.5, 2.5))) as scope:
                await store.save(on_its_way)
            disk.crash()
            assert disk.check() == []
            if not scope.cancelled_caught or look(disk) == on_its_way:
                acknowledged = on_its_way
    return wrong


def look(disk: Disk) -> Kept | None:
    store = DiskIdentity(disk)
    try:
        return store.load()
    except ConfigError:
        return None
    finally:
        store.close()


@virtual
async def test_saved_identity_survives_a_crash_at_any_time() -> None:
    assert await lost_in_crashes() == []


def test_planted_identity_durable_before_its_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug: the file counts as durable once it has its name."""

    async def replace(self: Disk, mount: Mount, content: bytes) -> None:
        self._unsynced_identity.append(self.identity)
        self.identity = content
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Disk, "replace_identity", replace)

    @virtual
    async def main() -> None:
        assert any("instead of" in line for line in await lost_in_crashes())

    main()


@virtual
async def test_failed_save_is_an_os_error_and_the_next_one_succeeds() -> None:
    for code, is_full in ((errno.EIO, False), (errno.ENOSPC, True)):
        for seed in range(20):
            disk = Disk(random.Random(seed))
            store = DiskIdentity(disk)
            await store.save(KEPT)
            new = changed(address="m:1")
            if is_full:
                disk.capacity_bytes = disk.used_bytes
            else:
                disk.fail_next_sync(code)
            with pytest.raises(OSError) as caught:
                await store.save(new)
            assert caught.value.errno == code
            disk.capacity_bytes = 1 << 20
            await store.save(new)
            disk.crash()
            assert DiskIdentity(disk).load() == new


def test_save_of_the_old_identity_after_a_failure_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the directory is not synced after a rename, the new file is visible but may not last."""
    fsync = os.fsync
    results = iter([None, None, None, OSError(errno.EIO, "no"), None, None])  # for each save: the file, the directory

    def sometimes(descriptor: int) -> None:
        if (error := next(results)) is not None:
            raise error
        fsync(descriptor)

    async def main() -> None:
        await store.save(KEPT)
        with pytest.raises(OSError):
            await store.save(changed(address="m:1"))
        assert store.load() == changed(address="m:1")
        await store.save(KEPT)
        assert store.load() == KEPT

    store = FileIdentity(str(tmp_path))
    monkeypatch.setattr(os, "fsync", sometimes)
    trio.run(main)
    store.close()


@virtual
async def test_save_of_the_old_identity_on_disk_after_a_failure_lasts() -> None:
    disk = Disk(random.Random(1), sync_delay=lambda rng: 1.0)
    store = DiskIdentity(disk)
    await store.save(KEPT)

    async def fail_the_directory() -> None:
        await trio.sleep(1.5)
        disk.fail_next_sync()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fail_the_directory)
        with pytest.raises(OSError):
            await store.save(changed(address="m:1"))
    assert store.load() == changed(address="m:1"), "renamed, but maybe not durable"
    await store.save(KEPT)
    assert store.load() == KEPT


@virtual
async def test_identity_of_a_dead_node_writes_and_unlocks_nothing() -> None:
    disk = Disk(random.Random(1))
    old = DiskIdentity(disk)
    await old.save(KEPT)
    disk.crash()
    new = DiskIdentity(disk)
    with pytest.raises(OSError):
        await old.save(changed(address="m:1"))
    old.close()
    with pytest.raises(ConfigError, match="another node is running"):
        DiskIdentity(disk)
    assert new.load() == KEPT


# -- nodes that cannot save ------------------------------------------------------------------------------


async def unsaved(code: int) -> tuple[Node, list[StepFailed], list[BaseException]]:
    """Run a node with a file that fails; return the node, the reported failures and its final errors."""
    reported: list[StepFailed] = []
    ended: list[BaseException] = []

    def observe(emitted: Emitted) -> None:
        event = emitted.event
        if isinstance(event, StepFailed):
            reported.append(event)

    class Unwritable(MemoryIdentity):
        is_gone = False

        async def save(self, kept: Kept) -> None:
            if self.is_gone:
                raise OSError(code, os.strerror(code))
            await super().save(kept)

    identity = Unwritable()
    config = NodeConfig(listen="n0:1", timing=PRESETS["local"])
    node = Node(config, lone_world(config, identity, observe))

    async def live(task_status: trio.TaskStatus[str]) -> None:
        try:
            await node.run(task_status=task_status)
        except ChordError as error:
            ended.append(error)

    async with trio.open_nursery() as nursery:
        await nursery.start(lambda task_status: live(task_status))
        await node.ready()
        identity.is_gone = True
        await trio.sleep(5)
        nursery.cancel_scope.cancel()
    return node, reported, ended


@virtual
async def test_node_with_a_removed_directory_reports_it_and_stops() -> None:
    node, reported, ended = await unsaved(errno.ENOENT)
    assert node.state == "stopped"
    assert {(event.step, event.error) for event in reported} == {("save_identity", os.strerror(errno.ENOENT))}
    assert [str(error) for error in ended] == ["the data directory of n0:1 is gone; the node stopped"]


@virtual
async def test_node_with_a_full_disk_reports_it_and_continues() -> None:
    node, reported, ended = await unsaved(errno.ENOSPC)
    assert node.state == "ready"
    assert len(reported) > 1
    assert not ended


def test_save_to_a_removed_directory_raises_file_not_found(tmp_path: Path) -> None:
    store = FileIdentity(str(tmp_path / "data"))

    async def main() -> None:
        await store.save(KEPT)
        shutil.rmtree(tmp_path / "data")
        with pytest.raises(FileNotFoundError):
            await store.save(changed(address="m:1"))

    trio.run(main)
    store.close()

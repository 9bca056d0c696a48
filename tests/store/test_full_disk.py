"""When a store says that it takes writes again after its disk was full."""

from __future__ import annotations

import errno
import io
import os
import random
import resource
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from chord.config import Limits
from chord.errors import ConfigError, WritesRefused
from chord.ids import Circle
from chord.sim.disk import Disk
from chord.sim.stores import SimulatedFile, SimulatedStorage
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import StoreFile
from chord.store.storage import Batch
from tests.support.rings import virtual

CIRCLE = Circle(160)
SMALL = Batch(notes={b"small": b"1"})
ROOM = 10_000
PUT = Batch(notes={b"large": bytes(ROOM)})


class Gate:
    """Fails a commit like a full disk while `is_full` is set."""

    is_full = False

    def __call__(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let no file of this process grow beyond a size, as a quota does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_file_has_room_up_to_the_last_byte(tmp_path: Path) -> None:
    file = StoreFile(CIRCLE, str(tmp_path), lambda: None)
    with files_of_at_most(1 << 20):
        assert file.has_room(1 << 20)
        assert not file.has_room((1 << 20) + 1)
    assert list(tmp_path.iterdir()) == [], "the file that proves it has no name"


def room_if(directory: Path, at_opening: int, at_writing: int) -> bool:
    """Return the answer about the room if the test's file fails with these error numbers; 0: it does not fail."""

    def fail(number: int) -> None:
        if number:
            raise OSError(number, os.strerror(number))

    def open_file(**given: object) -> AbstractContextManager[object]:
        fail(at_opening)
        return nullcontext(SimpleNamespace(write=lambda chunk: fail(at_writing)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", open_file)
        return StoreFile(CIRCLE, str(directory), lambda: None).has_room(1)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EROFS, errno.EACCES])
def test_disk_that_takes_no_new_file_may_have_room(tmp_path: Path, number: int) -> None:
    assert room_if(tmp_path, number, 0), "SQLite needs no new file"


@pytest.mark.parametrize(
    ("number", "has_room"),
    [(0, True), (errno.ENOSPC, False), (errno.EDQUOT, False), (errno.EFBIG, False), (errno.EIO, True)],
)
def test_error_without_room_alone_says_there_is_none(tmp_path: Path, number: int, has_room: bool) -> None:
    assert room_if(tmp_path, 0, number) is has_room


def test_directory_that_is_gone_says_nothing_of_the_room(tmp_path: Path) -> None:
    assert StoreFile(CIRCLE, str(tmp_path / "gone"), lambda: None).has_room(1)


async def test_store_recovers_once_free_bytes_min_fit(tmp_path: Path) -> None:
    gate, room = Gate(), 4 << 20
    store = SqliteStorage(CIRCLE, str(tmp_path), b"incarnat", gate, free_bytes_min=room)
    await store.open()
    await store.commit(SMALL)
    gate.is_full = True
    with pytest.raises(WritesRefused):
        await store.commit(PUT)
    gate.is_full = False
    with files_of_at_most(room - 1):
        await store.try_again()
        assert store.refusal == "No space left on device", "a small note fits; a large put may not"
    with files_of_at_most(room):
        await store.try_again()
    assert store.refusal == ""
    await store.close()


def test_bytes_that_test_the_room_cannot_be_compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[bytes] = []
    file = SimpleNamespace(write=chunks.append)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: nullcontext(file))
    assert StoreFile(CIRCLE, str(tmp_path), lambda: None).has_room((1 << 20) + 1)
    assert [len(chunk) for chunk in chunks] == [1 << 16] * 16 + [1], "a large limit takes little memory"
    assert len(zlib.compress(b"".join(chunks))) > 1 << 20


async def refused(directory: Path, gate: Gate) -> SqliteStorage:
    """Return an open store that has just refused a write. Its disk takes writes again."""
    store = SqliteStorage(CIRCLE, str(directory), b"incarnat", gate)
    await store.open()
    gate.is_full = True
    with pytest.raises(WritesRefused):
        await store.commit(SMALL)
    gate.is_full = False
    return store


async def test_put_after_a_refusal_does_not_test_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, tested = await refused(tmp_path, Gate()), []

    def has_room(self: StoreFile, size: int) -> bool:
        tested.append(store.busy_since)
        return True

    monkeypatch.setattr(StoreFile, "has_room", has_room)
    await store.commit(SMALL)
    assert (tested, store.refusal) == ([], "No space left on device")
    await store.try_again()
    assert (tested, store.refusal) == ([None], ""), "the disk watch does not count the time of the test"
    await store.close()


async def test_refusal_during_the_test_of_the_room_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate()
    store = await refused(tmp_path, gate)

    def has_room(self: StoreFile, size: int) -> bool:
        gate.is_full = True
        with pytest.raises(WritesRefused):
            trio.from_thread.run(store.commit, SMALL)
        return True

    monkeypatch.setattr(StoreFile, "has_room", has_room)
    await store.try_again()
    assert store.refusal == "No space left on device"
    await store.close()


def test_disk_with_less_free_space_is_not_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, made = StoreFile(CIRCLE, str(tmp_path), lambda: None), []
    monkeypatch.setattr(os, "statvfs", lambda at: SimpleNamespace(f_bavail=2, f_bfree=9, f_frsize=4096, f_bsize=9999))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **given: made.append(given) or io.BytesIO())
    assert not file.has_room(8193)
    assert made == []
    assert file.has_room(8192)
    assert len(made) == 1


async def refusals_of_a_nearly_full_disk() -> list[str]:
    """Fill a simulated disk, make room byte by byte at the limit, and return the refusals after small writes."""
    disk, seen = Disk(random.Random(1)), []
    store = SimulatedStorage(CIRCLE, disk, b"incarnat", free_bytes_min=ROOM)
    await store.open()
    await store.commit(SMALL)
    disk.fill()
    with pytest.raises(WritesRefused):
        await store.commit(PUT)
    for room in (1000, ROOM - 1, ROOM):
        disk.fill(room)
        await store.try_again()
        seen.append(store.refusal)
    return seen


FULL = "database or disk is full"


@virtual
async def test_simulated_store_recovers_at_the_same_limit() -> None:
    assert await refusals_of_a_nearly_full_disk() == [FULL, FULL, ""]


@virtual
async def test_planted_recovery_by_a_small_write_is_caught() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedFile, "has_room", lambda self, size: True)
        assert await refusals_of_a_nearly_full_disk() == ["", "", ""]


def test_free_bytes_min_is_at_most_64_mib() -> None:
    assert Limits(free_bytes_min=64 << 20).free_bytes_min == 64 << 20
    with pytest.raises(ConfigError, match="free_bytes_min must be at most 64 MiB, not 67108865"):
        Limits(free_bytes_min=(64 << 20) + 1)


def test_free_bytes_min_is_at_least_one() -> None:
    assert Limits(free_bytes_min=1).free_bytes_min == 1
    with pytest.raises(ConfigError, match="free_bytes_min must be positive, not 0"):
        Limits(free_bytes_min=0)

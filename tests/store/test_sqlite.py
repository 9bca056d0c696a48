"""Records in SQLite: acknowledged writes last, and errors of the disk are noticed.

A planted bug for each check shows that the check can fail.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from chord.config import Limits
from chord.errors import ChordError, ConfigError, Overloaded, RemoteFailure, WritesRefused
from chord.ids import Arc, Circle, Point
from chord.store import database
from chord.store.database import row_of
from chord.store.group_commit import Group, GroupCommit, bytes_of
from chord.store.merkle import SLICE_LEVEL
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import FILE_NAME, StoreFile
from chord.store.sqlite_rows import SCRUB_ROW_BYTES
from chord.store.storage import SCRUB_NOTE, Batch, MemoryStorage
from chord.wire.messages import ActorClock, Record, Version
from tests.support.real_rings import HANG_S

ROOT = Path(__file__).parents[2]
CIRCLE = Circle(160)
WHOLE = Arc(Point(0), Point(0))
LARGE = bytes(5000)  # a read checks its clock, the opening does not


def record(key: bytes, value: bytes = b"value") -> Record:
    return Record(key, (ActorClock(bytes(16), 1, (Version(value, bytes(16), 1),)),))


class Gate:
    """A gate before each transaction's commit, which can hold it up or let it fail."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []
        self._open = threading.Event()
        self._open.set()

    def __call__(self) -> None:
        assert self._open.wait(HANG_S)
        if self.errors:
            raise self.errors.pop(0)

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


@asynccontextmanager
async def opened(
    path: Path, gate: Callable[[], None] = lambda: None, kind: type[SqliteStorage] = SqliteStorage
) -> AsyncIterator[SqliteStorage]:
    store = kind(CIRCLE, str(path), os.urandom(8), gate)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def one_under_way(store: SqliteStorage, gate: Gate) -> AsyncIterator[trio.Nursery]:
    """Hold up a transaction at a closed gate; commits in the block wait behind it."""
    gate.close()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, Batch([record(b"first")]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        yield nursery


def keys(store: SqliteStorage) -> list[bytes]:
    return sorted(found.key for found in store.scan(WHOLE))


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def summed(store: SqliteStorage | MemoryStorage) -> bytes:
    return store.digests.sum(WHOLE, 0, 0, store.heads)


def summed_of(*records: Record) -> bytes:
    model = MemoryStorage(CIRCLE, bytes(8))
    model.apply(Batch(records))
    return summed(model)


def slices(store: SqliteStorage | MemoryStorage, circle: Circle = CIRCLE) -> list[bytes]:
    """Return the sum of each slice with records, as nodes compare them."""
    parts = {store.digests.part_of(circle.hash(key), SLICE_LEVEL) for key, _ in store.heads(WHOLE)}
    return [store.digests.sum(WHOLE, SLICE_LEVEL, part, store.heads) for part in sorted(parts)]


def assert_holds(store: SqliteStorage, *records: Record) -> None:
    """Check that a store holds exactly these records, through each way to read it."""
    model = MemoryStorage(CIRCLE, bytes(8))
    model.apply(Batch(records))
    assert list(store.scan(WHOLE)) == list(model.scan(WHOLE))
    assert list(store.heads(WHOLE)) == list(model.heads(WHOLE))
    assert (len(store), store.count(WHOLE), summed(store)) == (len(model), len(model), summed(model))
    assert slices(store) == slices(model)
    assert (store.value_bytes, store.sibling_keys) == (model.value_bytes, model.sibling_keys)
    assert all(store.get(one.key) == one for one in records)


# -- durability ------------------------------------------------------------------------------------------


async def test_store_is_equal_after_it_was_reopened(tmp_path: Path) -> None:
    actor = b"sixteen byte act"
    two = Record(b"two", (ActorClock(bytes(16), 2, (Version(b"1", bytes(16), 1), Version(None, bytes(16), 2))),))
    async with opened(tmp_path) as store:
        name = store.incarnation
        await store.commit(Batch([record(b"a"), record(b"gone"), two, record(b"large", LARGE)], minted={b"a": actor}))
        await store.commit(Batch(removals=[b"gone"]))
    async with opened(tmp_path) as store:
        assert store.incarnation == name
        assert_holds(store, record(b"a"), two, record(b"large", LARGE))
        assert (store.minted(b"a"), store.minted(b"two")) == (actor, None)
        assert files(tmp_path) == [FILE_NAME, f"{FILE_NAME}-shm", f"{FILE_NAME}-wal"]
    assert files(tmp_path) == [FILE_NAME], "an orderly close merges the log into the file"


@pytest.mark.parametrize("bits", [3, 8, 12, 13, 160])
async def test_opening_sums_up_each_slice(tmp_path: Path, bits: int) -> None:
    """The planted bug counts all rows into the first slice, so only the total is right."""
    circle = Circle(bits)
    model = MemoryStorage(circle, bytes(8))
    batch = Batch([record(b"%d" % number, b"%d" % number) for number in range(200)])
    model.apply(batch)
    for _ in range(2):
        store = SqliteStorage(circle, str(tmp_path), os.urandom(8))
        await store.open()
        if not len(store):
            await store.commit(batch)
        assert (len(store), summed(store), slices(store, circle)) == (200, summed(model), slices(model, circle))
        await store.close()
    assert len(set(slices(model, circle))) == len(slices(model, circle)) > 7


async def test_opening_finds_damage_in_a_small_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a", b"precious"), record(b"b")]))
    damage(tmp_path / FILE_NAME, b"precious", b"Precious")
    async with opened(tmp_path) as store:
        assert (store.bad_records, len(store), summed(store)) == (1, 1, summed_of(record(b"b"))), "without a read"


async def test_key_epochs_continue_after_a_restart(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        async with opened(tmp_path) as store:
            for number in range(3):
                seen.append(store.next_key_epoch())
                await store.commit(Batch([record(b"%d" % number)]))
    assert seen == sorted(set(seen))


async def test_new_store_makes_its_directory_and_has_a_new_name(tmp_path: Path) -> None:
    names = set()
    for part in ("a", "b"):
        async with opened(tmp_path / part / "deep") as store:
            names.add(store.incarnation)
    assert len(names) == 2


CHILD = """
import os, sys, time, trio
sys.path[:0] = [{root!r}]
from tests.store.test_sqlite import *

async def main():
    kind = {{"SqliteStorage": SqliteStorage, "AcksAtOnce": AcksAtOnce, "CountsEpochsInMemory": CountsEpochsInMemory}}
    pause_s = float(sys.argv[3])
    store = kind[sys.argv[2]](CIRCLE, sys.argv[1], os.urandom(8), lambda: time.sleep(pause_s))
    await store.open()
    number = 0

    async def writer(name):
        nonlocal number
        while True:
            number += 1
            key, epoch = b"%d-%d-%d" % (os.getpid(), name, number), store.next_key_epoch()
            await store.commit(Batch([record(key, b"v" + key)]))
            os.write(1, b"%s %d\\n" % (key, epoch))

    async with trio.open_nursery() as nursery:
        for name in range(8):
            nursery.start_soon(writer, name)

trio.run(main)
"""


class AcksAtOnce(SqliteStorage):
    """The bug: a change is acknowledged when it is visible."""

    async def commit(self, batch: Batch) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(super().commit, batch)
            await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()


class CountsEpochsInMemory(SqliteStorage):
    """The bug: a key epoch is not durable with the batch that used it."""

    async def open(self) -> None:
        await super().open()
        self._commits.key_epoch = 0


def lives_and_deaths(
    directory: Path, kind: str, lives: int = 3, pause_s: float = 0.002
) -> tuple[set[bytes], list[int], list[bytes]]:
    """Write in a child process and kill it, several times.

    Returns the acknowledged keys, the acknowledged epochs, and the stored keys.

    Args:
        pause_s: before each transaction is committed, so that the kill comes in the middle of one.
    """
    acknowledged: set[bytes] = set()
    epochs: list[int] = []
    program = CHILD.format(root=str(ROOT))
    for _ in range(lives):
        command = [sys.executable, "-c", program, str(directory), kind, str(pause_s)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            lines = [child.stdout.readline() for _ in range(60)]
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.read().splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):
                key, epoch = line.split()
                acknowledged.add(key)
                epochs.append(int(epoch))

    async def look() -> list[bytes]:
        async with opened(directory) as store:
            return keys(store)

    return acknowledged, epochs, trio.run(look)


@pytest.mark.slow
def test_acknowledged_keys_and_epochs_survive_a_kill(tmp_path: Path) -> None:
    acknowledged, epochs, found = lives_and_deaths(tmp_path, "SqliteStorage")
    assert len(acknowledged) >= 180
    assert acknowledged <= set(found)
    assert len(set(epochs)) == len(epochs)


@pytest.mark.slow
def test_planted_acknowledgement_before_the_commit_is_caught(tmp_path: Path) -> None:
    acknowledged, _, found = lives_and_deaths(tmp_path, "AcksAtOnce", pause_s=0.2)
    assert not acknowledged <= set(found)


@pytest.mark.slow
def test_planted_epochs_only_in_memory_are_caught(tmp_path: Path) -> None:
    _, epochs, _ = lives_and_deaths(tmp_path, "CountsEpochsInMemory")
    assert len(set(epochs)) < len(epochs)


# -- one transaction for many ----------------------------------------------------------------------------


async def test_commits_during_a_transaction_share_the_next_one(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        async with one_under_way(store, gate) as nursery:
            for number in range(100):
                nursery.start_soon(store.commit, Batch([record(b"%d" % number)]))
            nursery.start_soon(store.commit, Batch())
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert store._commits.transactions == 0
            assert store.get(b"7") == record(b"7"), "visible before it is durable"
            assert not store.is_durable(b"7")
            assert not store.is_durable(b"first")
            assert store.is_durable(b"never there")
            assert store.durable(b"7") is None, "no read returns it before it is durable"
            gate.open()
        assert (store._commits.transactions, store._commits.rows_written) == (2, 101)
        await store.commit(Batch())
        assert store._commits.transactions == 2, "no commit is pending"
        assert store.durable(b"7") == record(b"7")


async def test_callers_that_take_turns_share_transactions(tmp_path: Path) -> None:
    """A transaction takes all waiting commits. A caller that it wakes waits for the next one, or the second next."""

    class Turns(Gate):
        """A gate that holds up each transaction until all other tasks wait."""

        def __init__(self) -> None:
            super().__init__()
            self.is_held = False

        def __call__(self) -> None:
            self.close()
            self.is_held = True
            super().__call__()

    async def caller(name: int) -> None:
        for number in range(20):
            await store.commit(Batch([record(b"%d-%d" % (name, number))]))
        done.append(name)

    gate, done = Turns(), list[int]()
    async with opened(tmp_path, gate) as store, trio.open_nursery() as nursery:
        for name in range(32):
            nursery.start_soon(caller, name)
        while len(done) < 32:
            await trio.testing.wait_all_tasks_blocked(0.001)
            if gate.is_held:
                gate.is_held = False
                gate.open()
    assert store._commits.rows_written == 640
    assert store._commits.transactions <= 2 * 20 + 1


async def test_cancelled_commits_are_still_written(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        gate.close()
        for key in (b"a", b"b"):
            with trio.move_on_after(0.01):
                await store.commit(Batch([record(key)]))
        gate.open()
        await store.commit(Batch())
        assert store.is_durable(b"b")
    async with opened(tmp_path) as store:
        assert keys(store) == [b"a", b"b"]


async def test_closing_waits_for_commits_that_began(tmp_path: Path) -> None:
    gate = Gate()
    async with trio.open_nursery() as nursery:
        async with opened(tmp_path, gate) as store:
            gate.close()
            for key in (b"a", b"b"):
                nursery.start_soon(store.commit, Batch([record(key)]))
                await trio.testing.wait_all_tasks_blocked(0.01)
            gate.open()
            with trio.CancelScope() as scope:
                scope.cancel()  # a cancelled node closes its store, too
                await store.close()
        await store.close()
    async with opened(tmp_path) as store:
        assert keys(store) == [b"a", b"b"]


async def test_closing_on_a_hung_disk_begins_no_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have opened the file meanwhile, and counted its records."""
    monkeypatch.setattr("chord.store.sqlite.CLOSE_S", 0.0)
    gate = Gate()
    store = SqliteStorage(CIRCLE, str(tmp_path), bytes(8), gate)
    await store.open()
    async with one_under_way(store, gate):
        store.stage(Batch([record(b"second")]))
        await store.close()
        gate.open()
    with pytest.raises(WritesRefused, match="closed before the disk answered"):
        store.stage(Batch([record(b"third")]))
    async with opened(tmp_path) as again:
        assert keys(again) == [b"first"]


@pytest.mark.slow
def test_open_store_does_not_keep_the_program_alive(tmp_path: Path) -> None:
    program = f"""
import os, sys, time, trio
sys.path[:0] = [{str(ROOT)!r}]
from tests.store.test_sqlite import *
async def main():
    store = SqliteStorage(CIRCLE, sys.argv[1], bytes(8), lambda: time.sleep(0.2))
    await store.open()
    await store.commit(Batch([record(b"a")]))
    with trio.move_on_after(0.05):
        await store.commit(Batch([record(b"b")]))
trio.run(main)
time.sleep(0.4)
"""
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path)]
    ended = subprocess.run(command, timeout=HANG_S, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


# -- a full disk -----------------------------------------------------------------------------------------


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


async def fill_up_and_look(store: SqliteStorage, gate: Gate) -> list[str]:
    """Refuse a transaction that later ones build on; return the errors of the final state."""
    before = record(b"a", b"durable")
    await store.commit(Batch([before, record(b"c")]))
    sums = summed(store)
    refused = 0

    async def commit(batch: Batch) -> None:
        nonlocal refused
        with pytest.raises(WritesRefused, match="no writes are taken: No space left"):
            await store.commit(batch)
        refused += 1

    gate.close()
    gate.errors.append(full())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit, Batch([record(b"a", b"refused"), record(b"b")], removals=[b"c"]))
        await trio.testing.wait_all_tasks_blocked(0.01)
        nursery.start_soon(commit, Batch([record(b"a", b"refused, and merged with more")]))
        nursery.start_soon(commit, Batch())
        await trio.testing.wait_all_tasks_blocked(0.01)
        assert store.get(b"a") == record(b"a", b"refused, and merged with more")
        gate.open()
    assert refused == 3
    wrong = []
    if (store.get(b"a"), store.get(b"b"), store.get(b"c")) != (before, None, record(b"c")):
        wrong.append("a refused change is still visible")
    if (summed(store), len(store), store.value_bytes) != (sums, 2, 12):
        wrong.append("a refused change is still in the sums")
    if not all(map(store.is_durable, (b"a", b"b", b"c"))):
        wrong.append("a refused change is still pending")
    assert not store.failed.is_set()
    await store.commit(Batch([record(b"d")]))
    if [store.get(key) for key in (b"a", b"b", b"c", b"d")] != [before, None, record(b"c"), record(b"d")]:
        wrong.append("later commits are wrong")
    return wrong


async def test_refused_transaction_is_undone_with_its_successors(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        assert await fill_up_and_look(store, gate) == []
    async with opened(tmp_path) as store:
        assert_holds(store, record(b"a", b"durable"), record(b"c"), record(b"d"))


class ForgetsTheTotals(SqliteStorage):
    """The bug: a refusal leaves the sums as they are."""

    def _take_back(self) -> None:
        self._rows.changes.clear()


class KeepsTheFollowing(GroupCommit):
    """The bug: only the refused transaction is undone, and the queued commits are written."""

    def _end(self, group: Group, error: ChordError) -> None:
        following = self.following.rows
        super()._end(group, error)
        self.following.rows = following
        self._write_next()


class KeepsTheQueue(SqliteStorage):
    """The storage with `KeepsTheFollowing`."""

    async def open(self) -> None:
        self._commits.__class__ = KeepsTheFollowing
        await super().open()

    def _take_back(self) -> None:
        super()._take_back()
        self._rows._recent.clear()

    def _settle(self, group: Group) -> None:
        self._rows.changes.clear()
        self._rows._recent.clear()


@pytest.mark.parametrize(
    ("kind", "sign"),
    [(ForgetsTheTotals, "a refused change is still in the sums"), (KeepsTheQueue, "later commits are wrong")],
)
async def test_planted_partial_undo_of_a_refusal_is_caught(
    tmp_path: Path, kind: type[SqliteStorage], sign: str
) -> None:
    gate = Gate()
    async with opened(tmp_path, gate, kind) as store:
        assert sign in await fill_up_and_look(store, gate)


async def test_database_at_its_quota_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a")]))
        writer = store._file._writer
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages + 2}")
        for _ in range(2):
            with pytest.raises(WritesRefused, match="full"):
                await store.commit(Batch([record(b"b", bytes(100_000))]))
        assert_holds(store, record(b"a"))
        await store.commit(Batch([record(b"small")]))
        writer.execute("PRAGMA max_page_count = 10000")
        await store.commit(Batch([record(b"b", bytes(100_000))]))
        assert_holds(store, record(b"a"), record(b"small"), record(b"b", bytes(100_000)))


ON_A_SMALL_FILE_SYSTEM = """
import sys, trio
sys.path[:0] = [{root!r}]
from tests.store.test_sqlite import *

async def main():
    async with opened(Path(sys.argv[1])) as store:
        acknowledged, refused = [], 0
        for number in range(100):
            one = record(b"%d" % number, os.urandom(60_000))
            try:
                await store.commit(Batch([one]))
                acknowledged.append(one)
            except WritesRefused:
                refused += 1
        assert refused > 10 and len(acknowledged) > 10, (refused, len(acknowledged))
        assert_holds(store, *acknowledged)
        os.unlink(sys.argv[1] + "/ballast")
        await store.commit(Batch([record(b"again", os.urandom(60_000))]))
        acknowledged.append(store.get(b"again"))
    async with opened(Path(sys.argv[1])) as store:
        assert_holds(store, *acknowledged)
    print("all is well")

trio.run(main)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_writes_to_a_full_file_system_are_refused(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o size=4m chord "$1" && head -c 1000000 /dev/zero >"$1/ballast" && exec "$2" -c "$3" "$1"'
    program = ON_A_SMALL_FILE_SYSTEM.format(root=str(ROOT))
    shell = ["sh", "-c", script, "sh", str(tmp_path), sys.executable, program]
    ended = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", *shell], capture_output=True, text=True, check=False
    )
    if "mount" in ended.stderr or "unshare" in ended.stderr:
        pytest.skip("this machine allows no mounts")
    assert ended.stdout == "all is well\n", ended.stderr


# -- too many staged bytes -------------------------------------------------------------------------------


async def test_staged_bytes_beyond_the_limit_are_refused(tmp_path: Path) -> None:
    gate = Gate()
    store = SqliteStorage(CIRCLE, str(tmp_path), os.urandom(8), gate, staged_bytes_max=10_000)
    await store.open()
    async with one_under_way(store, gate):
        staged = store.staged_bytes
        fixed = bytes_of({store._rows.place(b"b"): row_of(bytes(20), record(b"b", bytes(300)), None)}, {}) - 300
        room = record(b"b", bytes(10_000 - staged - fixed))
        store.stage(Batch([room]))
        assert store.staged_bytes == 10_000
        before = summed(store)
        for batch in (Batch([record(b"c")]), Batch(removals=[b"a"]), Batch(notes={b"n": b""})):
            with pytest.raises(Overloaded) as caught:
                store.stage(batch)
            assert caught.value.message.startswith("10000 bytes of writes wait for the disk; the limit is 10000")
            assert caught.value.after_ms > 0
            with pytest.raises(Overloaded):
                await store.commit(batch)
        assert (store.get(b"b"), store.get(b"c"), store.note(b"n"), summed(store)) == (room, None, None, before)
        gate.open()
    await store.commit(Batch())
    assert store.staged_bytes == 0
    await store.commit(Batch([record(b"c")]))
    assert_holds(store, record(b"first"), room, record(b"c"))
    await store.close()


async def test_key_staged_repeatedly_counts_once(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store, one_under_way(store, gate):
        sizes = []
        for number in range(3):
            store.stage(Batch([record(b"a", bytes(number))], notes={b"n": bytes(number)}))
            sizes.append(store.staged_bytes)
        assert (sizes[1] - sizes[0], sizes[2] - sizes[1]) == (2, 2)
        gate.open()


async def test_single_batch_beyond_the_limit_is_written(tmp_path: Path) -> None:
    store = SqliteStorage(CIRCLE, str(tmp_path), os.urandom(8), staged_bytes_max=10_000)
    await store.open()
    await store.commit(Batch([record(b"a", bytes(20_000))]))
    assert_holds(store, record(b"a", bytes(20_000)))
    await store.close()


def test_staged_bytes_max_is_at_least_two_bulk_frames() -> None:
    least = 2 * Limits().frame_bulk_bytes_max
    assert Limits(staged_bytes_max=least).staged_bytes_max == least
    with pytest.raises(ConfigError, match=f"staged_bytes_max must be at least two bulk frames, {least} bytes"):
        Limits(staged_bytes_max=least - 1)


# -- a disk that fails -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fsync", "write", "sqlite"])
async def test_failed_sync_leaves_commits_in_doubt_and_ends_the_store(tmp_path: Path, kind: str) -> None:
    gate = Gate()
    errors: dict[str, BaseException] = {
        "fsync": OSError(errno.EIO, "Input/output error"),
        "write": OSError(errno.EFBIG, "File too large"),
        "sqlite": sqlite3.OperationalError("disk I/O error"),
    }
    async with opened(tmp_path, gate) as store:
        await store.commit(Batch([record(b"safe")]))
        gate.close()
        gate.errors.append(errors[kind])
        in_doubt = 0

        async def commit(*records: Record) -> None:
            nonlocal in_doubt
            with pytest.raises(RemoteFailure, match="not known to be durable"):
                await store.commit(Batch(records))
            in_doubt += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, record(b"a"))
            await trio.testing.wait_all_tasks_blocked(0.01)
            nursery.start_soon(commit, record(b"b"))
            nursery.start_soon(commit)
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert not store.failed.is_set()
            gate.open()
        assert in_doubt == 3
        assert store.failed.is_set()
        with pytest.raises(WritesRefused, match="since the disk failed"):
            await store.commit(Batch([record(b"c")]))
        with pytest.raises(WritesRefused, match="since the disk failed"):
            store.next_key_epoch()
        assert store.get(b"safe") == record(b"safe"), "durable records can be read"
        assert not store.is_durable(b"a")
        with pytest.raises(RemoteFailure):
            await store.commit(Batch())  # a reader must not return the record
    async with opened(tmp_path) as store:
        assert b"safe" in keys(store)


class FailsAtCommit:
    """A connection with a COMMIT that reports an error, whether or not it took effect."""

    def __init__(self, connection: sqlite3.Connection, code: int, *, is_done: bool) -> None:
        self._connection = connection
        self._code = code
        self._is_done = is_done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def execute(self, statement: str, *args: Any) -> Any:
        if statement != "COMMIT":
            return self._connection.execute(statement, *args)
        if self._is_done:
            self._connection.execute(statement)
        error = sqlite3.OperationalError("at COMMIT")
        error.sqlite_errorcode = self._code
        raise error


class FailsAtCheckpoint(FailsAtCommit):
    """A connection with a checkpoint that reports an error."""

    def execute(self, statement: str, *args: Any) -> Any:
        if "wal_checkpoint" in statement:
            return super().execute("COMMIT")
        return self._connection.execute(statement, *args)


@pytest.mark.parametrize(("code", "passes"), [(sqlite3.SQLITE_FULL, True), (sqlite3.SQLITE_IOERR, False)])
async def test_opening_ignores_only_the_error_of_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, passes: bool
) -> None:
    """After another error the log may have unsynced changes, which the store must not serve."""
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a")]))
    connect = StoreFile._connect
    monkeypatch.setattr(StoreFile, "_connect", lambda self: FailsAtCheckpoint(connect(self), code, is_done=False))
    if passes:
        async with opened(tmp_path) as store:
            assert_holds(store, record(b"a"))
    else:
        with pytest.raises(ConfigError, match=f"cannot open .*{FILE_NAME}: at COMMIT"):
            async with opened(tmp_path):
                pass


@pytest.mark.parametrize("code", [sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR])
async def test_out_of_memory_or_read_only_at_commit_is_in_doubt(tmp_path: Path, code: int) -> None:
    """SQLite may report either error after the transaction is in the log. The next opening then finds it."""
    async with opened(tmp_path) as store:
        store._file._writer = FailsAtCommit(store._file._writer, code, is_done=True)
        with pytest.raises(RemoteFailure, match="not known to be durable"):
            await store.commit(Batch([record(b"a")]))
        assert store.failed.is_set()
    async with opened(tmp_path) as store:
        assert_holds(store, record(b"a"))


async def test_full_disk_at_commit_is_a_refusal(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        whole = store._file._writer
        store._file._writer = FailsAtCommit(whole, sqlite3.SQLITE_FULL, is_done=False)
        with pytest.raises(WritesRefused):
            await store.commit(Batch([record(b"a")]))
        store._file._writer = whole
        assert not store.failed.is_set()
        await store.commit(Batch([record(b"b")]))
        assert_holds(store, record(b"b"))


@pytest.mark.parametrize("code", [sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY])
async def test_out_of_memory_before_commit_is_a_refusal(tmp_path: Path, code: int) -> None:
    gate = Gate()
    error = sqlite3.OperationalError("before COMMIT")
    error.sqlite_errorcode = code
    async with opened(tmp_path, gate) as store:
        gate.errors.append(error)
        with pytest.raises(WritesRefused):
            await store.commit(Batch([record(b"a")]))
        await store.commit(Batch([record(b"b")]))
        assert_holds(store, record(b"b"))


WITH_A_LIMIT = """
import resource, signal, sys, trio
sys.path[:0] = [{root!r}]
from tests.store.test_sqlite import *

async def main():
    async with opened(Path(sys.argv[1])) as store:
        await store.commit(Batch([record(b"a")]))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            await store.commit(Batch([record(b"b", bytes(200_000))]))
        except RemoteFailure as error:
            print(store.failed.is_set(), error.message)

trio.run(main)
"""


def test_write_beyond_the_file_size_limit_is_in_doubt(tmp_path: Path) -> None:
    program = WITH_A_LIMIT.format(root=str(ROOT))
    command = [sys.executable, "-c", program, str(tmp_path)]
    ended = subprocess.run(command, timeout=HANG_S, capture_output=True, text=True, check=False)
    assert ended.stdout == "True not known to be durable: disk I/O error\n", ended.stderr


# -- damage ----------------------------------------------------------------------------------------------


def damage(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert content.count(old) == 1, content.count(old)
    path.write_bytes(content.replace(old, new))


@pytest.mark.parametrize("size", [20, 5000], ids=["small", "large"])
async def test_damaged_record_is_missing_until_it_is_written_again(tmp_path: Path, size: int) -> None:
    value = (b"precious" * size)[:size]
    async with opened(tmp_path) as store:
        batch = [record(b"a", value), record(b"b")]
        await store.commit(Batch(batch, minted={b"a": b"sixteen byte act"}))
    tail = value[-16:]
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[content.rindex(tail)] ^= 4
    path.write_bytes(content)
    async with opened(tmp_path) as store:
        assert store.get(b"a") is None
        assert store.bad_records == 1
        assert store.minted(b"a") is None
        assert_holds(store, record(b"b"))
        await store.commit(Batch([record(b"a", b"from a replica")]))
        assert_holds(store, record(b"a", b"from a replica"), record(b"b"))
        assert store.minted(b"a") is None
    async with opened(tmp_path) as store:
        assert_holds(store, record(b"a", b"from a replica"), record(b"b"))
        assert store.bad_records == 0


def hiding(key: bytes, value: bytes = b"value") -> Record:
    """Return a record with its only value in quarantine."""
    return Record(key, (), b"", record(key, value).clock)


@pytest.mark.parametrize("value", [b"value", LARGE], ids=["small", "large"])
async def test_quarantine_is_loaded_at_the_next_opening(tmp_path: Path, value: bytes) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([hiding(b"a", value), record(b"b", value)]))
        assert store.count_quarantined(WHOLE) == 1
    async with opened(tmp_path) as store:
        assert list(store.quarantined(WHOLE)) == [hiding(b"a", value)]
        assert store.count_quarantined(WHOLE) == 1
        await store.commit(Batch([record(b"a", value)]))
        assert store.count_quarantined(WHOLE) == 0
    async with opened(tmp_path) as store:
        assert list(store.quarantined(WHOLE)) == []


async def test_refused_change_of_a_quarantine_is_undone(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        await store.commit(Batch([hiding(b"a"), record(b"b")]))
        full = sqlite3.OperationalError("database or disk is full")
        full.sqlite_errorcode = sqlite3.SQLITE_FULL
        gate.errors.append(full)
        with pytest.raises(WritesRefused):
            await store.commit(Batch([record(b"a"), hiding(b"b")]))
        assert list(store.quarantined(WHOLE)) == [hiding(b"a")]
        assert store.count_quarantined(WHOLE) == 1


@pytest.mark.parametrize("size", [20, 5000], ids=["small", "large"])
async def test_damaged_quarantine_is_missing(tmp_path: Path, size: int) -> None:
    value = (b"precious" * size)[:size]
    async with opened(tmp_path) as store:
        await store.commit(Batch([hiding(b"a", value)]))
    path = tmp_path / FILE_NAME
    content = bytearray(path.read_bytes())
    content[content.rindex(value[-16:])] ^= 4
    path.write_bytes(content)
    async with opened(tmp_path) as store:
        assert list(store.quarantined(WHOLE)) == []
        assert (store.count_quarantined(WHOLE), store.bad_records) == (0, 1)


async def test_scan_put_and_removal_find_damage(tmp_path: Path) -> None:
    for look in ("scan", "put", "remove"):
        path = tmp_path / look
        async with opened(path) as store:
            await store.commit(Batch([record(b"a", b"precious" + LARGE), record(b"b")], minted={b"a": b"actor"}))
        damage(path / FILE_NAME, b"precious", b"Precious")
        async with opened(path) as store:
            if look == "scan":
                assert keys(store) == [b"b"]
            elif look == "put":
                await store.commit(Batch([record(b"a", b"new")]))
                assert store.minted(b"a") is None
                assert store.get(b"a") == record(b"a", b"new")
            else:
                await store.commit(Batch(removals=[b"a"]))
            assert store.bad_records == 1
            await store.commit(Batch(removals=[b"a"]))
            assert_holds(store, record(b"b"))
        async with opened(path) as store:
            assert_holds(store, record(b"b"))
            assert store.bad_records == 0


async def test_damaged_record_stays_missing_after_a_refused_put(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a", b"precious")]))
    damage(tmp_path / FILE_NAME, b"precious", b"Precious")
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        gate.errors.append(full())
        with pytest.raises(WritesRefused):
            await store.commit(Batch([record(b"a")]))
        assert store.get(b"a") is None
        assert_holds(store)
        assert store.bad_records == 1, "once"


COLUMNS: list[tuple[str, object]] = [
    ("versions", b"\0"),
    ("versions", None),
    ("versions", 1.5),
    ("value_bytes", b"x"),
    ("value_bytes", 1 << 62),
    ("value_bytes", -1),
    ("digest", None),
    ("digest", 5),
    ("digest", b"xx"),
    ("digest", bytes(16)),
    ("checksum", None),
    ("clock", 7),
    ("clock", None),
    ("minted", 3),
    ("point", bytes(20)),
    ("key", 3),
    ("key", b"k3"),
]
TOUCHES: dict[str, Callable[[SqliteStorage], object]] = {
    "get": lambda store: store.get(b"k1"),
    "durable": lambda store: store.durable(b"k1"),
    "minted": lambda store: store.minted(b"k1"),
    "scan": lambda store: list(store.scan(WHOLE)),
    "heads": lambda store: list(store.heads(WHOLE)),
}


def set_column(path: Path, column: str, value: object) -> None:
    connection = sqlite3.connect(path / FILE_NAME)
    connection.execute(f"UPDATE records SET {column} = ? WHERE key = ?", (value, b"k1"))
    connection.commit()
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
@pytest.mark.parametrize("touch", TOUCHES)
@pytest.mark.parametrize(("column", "value"), COLUMNS)
async def test_damaged_column_of_any_type_counts_once(
    tmp_path: Path, column: str, value: object, touch: str, is_open: bool
) -> None:
    """The damage counts once in all totals, whichever access finds it. A put replaces the record."""
    others = [record(b"k0", LARGE), record(b"k2", LARGE)]
    async with opened(tmp_path) as store:
        await store.commit(Batch([*others, record(b"k1", LARGE)], minted={b"k1": b"actor"}))
        if is_open:
            store._rows._recent.clear()  # the store would answer from the row that it has just written
            set_column(tmp_path, column, value)
            await damaged_once(store, touch, others)
    if not is_open:
        set_column(tmp_path, column, value)
        async with opened(tmp_path) as store:
            await damaged_once(store, touch, others)


async def damaged_once(store: SqliteStorage, touch: str, others: list[Record]) -> None:
    for _ in range(3):
        TOUCHES[touch](store)
        assert store.get(b"k1") is None
        assert list(store.scan(WHOLE)) == list(MemoryStorage.scan(model_of(others), WHOLE))
        assert (store.bad_records, len(store), store.count(WHOLE)) == (1, 2, 2)
        assert (summed(store), slices(store)) == (summed_of(*others), slices(model_of(others)))
    assert store.value_bytes >= 0
    await store.commit(Batch([record(b"k1", b"new")]))
    assert store.get(b"k1") == record(b"k1", b"new")
    assert len(store) == 3
    assert summed(store) == summed_of(*others, record(b"k1", b"new"))


# -- the scrub --------------------------------------------------------------------------------------------


def scrub(store: SqliteStorage, bytes_max: int = 1 << 20) -> int:
    """Scrub one round; return the number of steps."""
    for step in range(1, 1000):
        if store.scrub(bytes_max)[1]:
            return step
    raise AssertionError("the scrub does not end")


@pytest.mark.parametrize(("column", "value"), [*COLUMNS, ("point", 3)])
async def test_scrub_finds_damage_in_unread_records(tmp_path: Path, column: str, value: object) -> None:
    others = [record(b"k0", LARGE), record(b"k2", LARGE)]
    async with opened(tmp_path) as store:
        await store.commit(Batch([*others, record(b"k1", LARGE)]))
        scrub(store)
        assert store.bad_records == 0
        set_column(tmp_path, column, value)
        scrub(store)
        assert (store.bad_records, len(store), summed(store)) == (1, 2, summed_of(*others))
        scrub(store)
        assert (store.bad_records, len(store), summed(store)) == (1, 2, summed_of(*others))
        assert store.counters["scrub_rounds"] == 3


async def test_scrub_reads_every_record_in_steps_of_bytes_max(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"%d" % number, bytes(1000)) for number in range(50)]))
        assert store.scrub_bytes == 50 * (1000 + SCRUB_ROW_BYTES)
        assert scrub(store, store.scrub_bytes // 10) == 11
        assert store.counters["scrub_rows"] == 50
        assert scrub(store, 1) == 51, "at least one record in each step"


async def test_scrub_continues_behind_its_note_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"%d" % number) for number in range(20)]))
        for _ in range(15):
            store.scrub(1)
        await store.commit(Batch(notes={SCRUB_NOTE: store.scrubbed}))
    async with opened(tmp_path) as store:
        scrub(store)
        assert store.counters["scrub_rows"] == 5
        assert store.scrubbed is None


async def test_scrub_skips_a_record_that_is_being_changed(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        await store.commit(Batch([record(b"k1", LARGE)]))
        set_column(tmp_path, "digest", None)
        async with one_under_way(store, gate):
            store.stage(Batch([record(b"k1", b"new")]))
            scrub(store)
            assert store.get(b"k1") == record(b"k1", b"new")
            gate.open()
        scrub(store)
        assert_holds(store, record(b"k1", b"new"), record(b"first"))


def model_of(records: list[Record]) -> MemoryStorage:
    model = MemoryStorage(CIRCLE, bytes(8))
    model.apply(Batch(records))
    return model


def test_checksum_covers_every_bit_of_a_row() -> None:
    for minted in (None, b"sixteen byte act"):
        row = database.row_of(bytes(20), record(b"key"), minted)
        assert row.is_whole
        for name in row._fields:
            value = getattr(row, name)
            if isinstance(value, bytes):
                for bit in range(8 * len(value)):
                    flipped = (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")
                    assert not row._replace(**{name: flipped}).is_whole
                assert not row._replace(**{name: value[1:]}).is_whole
            assert not row._replace(**{name: 77}).is_whole
            assert not row._replace(**{name: b"another"}).is_whole
    assert not row._replace(minted=None).is_whole


async def test_planted_store_without_checksums_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "checksum", lambda *columns: bytes(8))
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a", b"precious")]))
    damage(tmp_path / FILE_NAME, b"precious", b"Precious")
    async with opened(tmp_path) as store:
        assert store.get(b"a") == record(b"a", b"Precious")


@pytest.mark.slow
async def test_flipped_bit_of_the_file_is_refused_or_loses_its_record(tmp_path: Path) -> None:
    """The store returns no wrong record and raises no unexpected error."""
    records = {b"%d" % number: record(b"%d" % number, b"x" * 40 * number) for number in range(12)}
    async with opened(tmp_path / "whole") as store:
        await store.commit(Batch(records.values()))
    whole = (tmp_path / "whole" / FILE_NAME).read_bytes()
    outcomes = {"refused": 0, "missing": 0, "unreadable": 0, "unharmed": 0}
    for number in range(150):
        path = tmp_path / str(number)
        path.mkdir()
        content = bytearray(whole)
        content[number * 7919 % len(whole)] ^= 1 << number % 8
        (path / FILE_NAME).write_bytes(content)
        try:
            async with opened(path) as store:
                found = {one.key: one for one in store.scan(WHOLE)}
                assert all(records.get(key) == one for key, one in found.items())
                assert all(store.get(key) in (None, one) for key, one in records.items())
                outcomes["missing" if store.bad_records or len(found) < 12 else "unharmed"] += 1
        except ConfigError:
            outcomes["refused"] += 1
        except RemoteFailure:
            assert store.failed.is_set()
            outcomes["unreadable"] += 1
    assert outcomes["refused"]
    assert outcomes["missing"]
    assert outcomes["unharmed"], "some bits are in unused space"


# -- refused files ---------------------------------------------------------------------------------------


async def assert_refused(path: Path, words: str, circle: Circle = CIRCLE) -> None:
    content = (path / FILE_NAME).read_bytes()
    store = SqliteStorage(circle, str(path), bytes(8))
    with pytest.raises(ConfigError, match=words) as caught:
        await store.open()
    assert str(path / FILE_NAME) in caught.value.message
    assert "move it away to start with an empty store" in caught.value.message
    assert (path / FILE_NAME).read_bytes() == content, "the file stays as it is"


def edit(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path / FILE_NAME)
    connection.execute(statement)
    connection.commit()
    connection.close()


async def test_file_of_another_circle_format_or_program_is_refused(
    tmp_path: Path,
) -> None:
    for name in ("circle", "format 1", "format 3", "program", "header"):
        async with opened(tmp_path / name) as store:
            await store.commit(Batch([record(b"a")]))
    for number in (1, 3):
        edit(tmp_path / f"format {number}", f"PRAGMA user_version = {number}")
    edit(tmp_path / "program", "PRAGMA application_id = 7")
    edit(tmp_path / "header", "UPDATE store SET key_epoch = 7")
    await assert_refused(tmp_path / "circle", "a ring of 160 bits, not 8", Circle(8))
    for number in (1, 3):
        await assert_refused(tmp_path / f"format {number}", f"format {number}; expected 2")
    await assert_refused(tmp_path / "program", "is not a store of records")
    await assert_refused(tmp_path / "header", "is damaged")
    for name, content in (("text", b"not a database " * 100), ("short", b"text")):
        (tmp_path / name).mkdir()
        (tmp_path / name / FILE_NAME).write_bytes(content)
        await assert_refused(tmp_path / name, "damaged, or no store")


async def test_error_of_an_unusable_directory_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match="Not a directory"):
        await SqliteStorage(CIRCLE, str(tmp_path / "file" / "d"), bytes(8)).open()
    (tmp_path / "d" / FILE_NAME).mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot open"):
        await SqliteStorage(CIRCLE, str(tmp_path / "d"), bytes(8)).open()


async def test_interrupted_creation_starts_again(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"")
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a")]))
    again = tmp_path / "again"
    again.mkdir()
    connection = sqlite3.connect(again / FILE_NAME)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    async with opened(again) as store:
        assert len(store) == 0


async def test_whole_row_without_a_valid_record_is_damaged(tmp_path: Path) -> None:
    """No present code writes such a row, but a change of the rules for records might."""
    beyond = Version(b"v", bytes(16), 1, expires_ms=(1 << 62) + 1)
    async with opened(tmp_path) as store:
        await store.commit(Batch([Record(b"bad", (ActorClock(bytes(16), 1, (beyond,)),)), record(b"good")]))
    for reads in (lambda: store.get(b"bad"), lambda: store.durable(b"bad"), lambda: list(store.scan(WHOLE))[1:]):
        async with opened(tmp_path) as store:
            for _ in range(2):
                assert not reads()
            assert store.bad_records == 1, "once"
            assert store.is_damaged(b"bad")
            assert_holds(store, record(b"good"))
            await store.commit(Batch([record(b"bad")]))
            assert_holds(store, record(b"bad"), record(b"good"))
            await store.commit(Batch([Record(b"bad", (ActorClock(bytes(16), 1, (beyond,)),))]))


async def test_write_to_a_locked_file_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a")]))
        store._file._writer.execute("PRAGMA busy_timeout = 1")
        other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(WritesRefused, match="locked"):
            await store.commit(Batch([record(b"b")]))
        other.execute("ROLLBACK")
        other.close()
        await store.commit(Batch([record(b"b")]))
        assert_holds(store, record(b"a"), record(b"b"))


# -- notes ------------------------------------------------------------------------------------------------


async def test_note_is_stored_with_the_records_of_its_batch(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a")], notes={b"kept": b"1", b"gone": b"2", b"": b""}))
        await store.commit(Batch(notes={b"gone": None, b"kept": b"3"}))
    async with opened(tmp_path) as store:
        assert_holds(store, record(b"a"))
        assert store.notes() == {b"kept": b"3", b"": b""}
        assert store.damaged_notes == frozenset()


async def test_note_in_a_pending_commit_is_visible_but_not_durable(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        await store.commit(Batch(notes={b"n": b"old"}))
        async with one_under_way(store, gate) as nursery:
            assert store.stage(Batch(notes={b"n": b"new"})) is False
            nursery.start_soon(store.commit, Batch(notes={b"n": b"newer", b"m": b"1"}))
            await trio.testing.wait_all_tasks_blocked(0.01)
            assert (store.note(b"n"), store.durable_note(b"n")) == (b"newer", b"old")
            assert (store.note(b"m"), store.durable_note(b"m")) == (b"1", None)
            gate.open()
        assert store.stage(Batch()) is True
        assert (store.durable_note(b"n"), store.durable_note(b"m")) == (b"newer", b"1")


async def refuse_notes(store: SqliteStorage, gate: Gate) -> dict[bytes, bytes]:
    """Refuse a batch of records and notes, and a batch of notes that builds on it; return the notes left."""
    await store.commit(Batch([record(b"a")], notes={b"n": b"old"}))
    gate.close()
    gate.errors.append(full())
    async with trio.open_nursery() as nursery:
        for batch in (Batch([record(b"b")], notes={b"n": b"new", b"m": b"1"}), Batch(notes={b"m": None, b"o": b"2"})):
            nursery.start_soon(expect_refusal, store, batch)
            await trio.testing.wait_all_tasks_blocked(0.01)
        assert dict(store.notes()) == {b"n": b"new", b"o": b"2"}
        gate.open()
    return dict(store.notes())


async def expect_refusal(store: SqliteStorage, batch: Batch) -> None:
    with pytest.raises(WritesRefused):
        await store.commit(batch)


async def test_refused_batch_undoes_its_notes(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        assert await refuse_notes(store, gate) == {b"n": b"old"}
        await store.commit(Batch(notes={b"p": b"3"}))
    async with opened(tmp_path) as store:
        assert store.notes() == {b"n": b"old", b"p": b"3"}
        assert_holds(store, record(b"a"))


class KeepsTheNotes(SqliteStorage):
    """The bug: a refusal undoes only the records."""

    def _take_back(self) -> None:
        self._rows.take_back()


async def test_planted_notes_that_survive_a_refusal_are_found(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate, KeepsTheNotes) as store:
        assert await refuse_notes(store, gate) != {b"n": b"old"}


@pytest.mark.parametrize("statement", ["name = x'6e6f'", "value = 'text'", "value = x'00'", "checksum = 7"])
async def test_damaged_note_is_missing_and_named(tmp_path: Path, statement: str) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch(notes={b"n": b"1", b"other": b"2"}))
    edit(tmp_path, f"UPDATE notes SET {statement} WHERE name = x'6e'")
    async with opened(tmp_path) as store:
        assert store.notes() == {b"other": b"2"}
        assert store.damaged_notes == {b"no" if "6e6f" in statement else b"n"}


# -- pragmas and rows ------------------------------------------------------------------------------------


async def test_every_transaction_is_synced(tmp_path: Path) -> None:
    """The pragmas of the file ask for a sync of every transaction."""
    async with opened(tmp_path) as store:
        for connection in (store._file._writer, store._file._reader):
            asked: dict[str, Any] = {}
            for pragma in ("journal_mode", "synchronous", "fullfsync", "checkpoint_fullfsync"):
                asked[pragma] = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
            assert asked == {"journal_mode": (b"wal",), "synchronous": 2, "fullfsync": 1, "checkpoint_fullfsync": 1}
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store._file._reader.execute("DELETE FROM records")


async def test_key_written_twice_in_one_group_is_one_row(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        async with one_under_way(store, gate) as nursery:
            for number in range(5):
                nursery.start_soon(store.commit, Batch([record(b"a", b"%d" % number)]))
                await trio.testing.wait_all_tasks_blocked(0.01)
            gate.open()
        assert (store._commits.transactions, store._commits.rows_written) == (2, 2)
        assert store.get(b"a") == record(b"a", b"4")

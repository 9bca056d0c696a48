"""The simulated disk of a node: durability, losses in a crash, and each fault of a disk.

`tests/twin` compares the twin with real SQLite.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Awaitable, Callable

import pytest
import trio

from chord.errors import ConfigError, RemoteFailure, WritesRefused
from chord.ids import Arc, Circle, Point
from chord.sim.disk import Disk
from chord.sim.stores import DiskIdentity, SimulatedStorage, left_on
from chord.store.database import StoredRow
from chord.store.storage import Batch
from chord.wire.messages import ActorClock, Record, Version
from tests.support.rings import virtual

CIRCLE = Circle(160)
WHOLE = Arc(Point(0), Point(0))


def record(key: bytes, value: bytes = b"value") -> Record:
    return Record(key, (ActorClock(bytes(16), 1, (Version(value, bytes(16), 1),)),))


def slow(seed: int = 1) -> Disk:
    """Return a disk with syncs of one second."""
    return Disk(random.Random(seed), sync_delay=lambda rng: 1.0)


async def opened(disk: Disk) -> SimulatedStorage:
    store = SimulatedStorage(CIRCLE, disk, b"12345678")
    await store.open()
    return store


def keys(store: SimulatedStorage) -> list[bytes]:
    return sorted(found.key for found in store.scan(WHOLE))


async def refused(commit: Callable[[], Awaitable[object]]) -> None:
    with pytest.raises(WritesRefused, match="database or disk is full"):
        await commit()


# -- durability -------------------------------------------------------------------------------------------


@virtual
async def test_commit_takes_one_sync_and_survives_a_crash() -> None:
    disk = slow()
    store = await opened(disk)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, Batch([record(b"a")], notes={b"n": b"1"}))
        await trio.sleep(0.5)
        assert (store.get(b"a"), store.is_durable(b"a"), store.busy_since) == (record(b"a"), False, began)
    assert trio.current_time() == began + 1.0
    disk.crash()
    store = await opened(disk)
    assert (keys(store), store.note(b"n")) == ([b"a"], b"1")
    assert disk.check() == []


@virtual
async def test_transaction_cut_by_a_crash_is_whole_or_absent() -> None:
    found: dict[tuple[bytes, ...], int] = {}
    for seed in range(60):
        disk = slow(seed)
        store = await opened(disk)
        with trio.move_on_after(0.5):
            await store.commit(Batch([record(b"a"), record(b"b")], notes={b"n": b"1"}))
        disk.crash()
        again = await opened(disk)
        left = (*keys(again), *again.notes())
        found[left] = found.get(left, 0) + 1
        assert disk.check() == []
    assert found.keys() == {(), (b"a", b"b", b"n")}
    assert min(found.values()) > 5


@virtual
async def test_transaction_cut_by_a_kill_may_be_lost_in_a_power_cut() -> None:
    lost = 0
    for seed in range(60):
        disk = slow(seed)
        store = await opened(disk)
        with trio.move_on_after(0.5):
            await store.commit(Batch([record(b"a")]))
        disk.kill()
        is_readable = left_on(disk, CIRCLE).get(b"a") is not None  # type: ignore[union-attr]
        disk.crash()
        lost += is_readable and not keys(await opened(disk))
    assert lost > 5


@virtual
async def test_records_read_by_an_opening_survive_a_power_cut() -> None:
    for seed in range(60):
        disk = slow(seed)
        store = await opened(disk)
        disk.fail_next_sync()
        with pytest.raises(RemoteFailure, match="not known to be durable: disk I/O error"):
            await store.commit(Batch([record(b"a")]))
        assert store.failed.is_set()
        with pytest.raises(WritesRefused, match="since the disk failed"):
            await store.commit(Batch([record(b"b")]))
        disk.kill()
        found = keys(await opened(disk))
        disk.crash()
        assert keys(await opened(disk)) == found


@virtual
async def test_dead_process_writes_nothing_and_its_commits_end() -> None:
    disk = slow()
    old = await opened(disk)
    await old.commit(Batch([record(b"a")]))
    disk.crash()
    new = await opened(disk)
    with pytest.raises(RemoteFailure, match="has ended"):
        await old.commit(Batch([record(b"b")]))
    await new.commit(Batch([record(b"c")]))
    assert keys(await opened(disk)) == [b"a", b"c"]
    with trio.fail_after(2):
        await old.close()


@virtual
async def test_store_keeps_its_incarnation_and_repeats_no_epoch() -> None:
    disk, seen = slow(), []
    for _ in range(4):
        store = await opened(disk)
        assert store.incarnation == b"12345678"
        seen.append(store.next_key_epoch())
        await store.commit(Batch([record(b"%d" % len(seen))]))
        disk.crash()
    assert seen == sorted(set(seen))


# -- faults -----------------------------------------------------------------------------------------------


@virtual
async def test_full_disk_rolls_back_the_change_and_later_ones() -> None:
    disk = slow()
    store = await opened(disk)
    await store.commit(Batch([record(b"a")]))
    disk.fill()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(refused, lambda: store.commit(Batch([record(b"a", b"2"), record(b"b")])))
        await trio.sleep(0.5)
        nursery.start_soon(refused, lambda: store.commit(Batch([record(b"a", b"3")], removals=[b"b"])))
        await trio.sleep(0.1)
        assert (store.get(b"a"), store.get(b"b")) == (record(b"a", b"3"), None)
    assert (store.get(b"a"), store.get(b"b")) == (record(b"a"), None)
    assert all(map(store.is_durable, (b"a", b"b")))
    await refused(lambda: store.commit(Batch(removals=[b"a"])))
    disk.crash()
    store = await opened(disk)
    assert keys(store) == [b"a"], "a store on a full disk opens"
    disk.free()
    await store.commit(Batch([record(b"b")]))
    assert keys(store) == [b"a", b"b"]


@virtual
async def test_full_disk_has_no_room_for_a_new_store_or_identity() -> None:
    disk = slow()
    disk.fill()
    with pytest.raises(ConfigError, match="database or disk is full"):
        await opened(disk)


@virtual
async def test_nearly_full_disk_takes_writes_until_it_is_full() -> None:
    disk = slow()
    store = await opened(disk)
    disk.fill(1000)
    await store.commit(Batch([record(b"a")]))
    await refused(lambda: store.commit(Batch([record(b"b", bytes(1000))])))


@virtual
async def test_hung_disk_ends_no_sync_until_it_resumes() -> None:
    disk = slow()
    store = await opened(disk)
    disk.hang()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, Batch([record(b"a")]))
        await trio.sleep(100)
        assert (store.get(b"a"), store.is_durable(b"a")) == (record(b"a"), False)
        assert store.busy_since == trio.current_time() - 100
        disk.resume()
    assert store.is_durable(b"a")
    assert store.busy_since is None


@virtual
async def test_process_killed_on_a_hung_disk_closes() -> None:
    disk = slow()
    store = await opened(disk)
    disk.hang()
    store.stage(Batch([record(b"a")]))
    await trio.sleep(2)
    disk.kill()
    with trio.fail_after(1):
        await store.close()


@virtual
async def test_opening_during_a_transaction_is_refused() -> None:
    """SQLite says that the database is locked, because the opening must count all records."""
    disk = slow()
    store = await opened(disk)
    disk.hang()
    store.stage(Batch([record(b"a")]))
    await trio.sleep(2)
    await store.close()
    disk.resume()
    with pytest.raises(ConfigError, match="database is locked"):
        disk.open(CIRCLE.bits, bytes(8))
    await trio.sleep(2)
    store = await opened(disk)
    assert (keys(store), store.count(WHOLE)) == ([b"a"], 1)


@virtual
async def test_closed_store_on_a_hung_disk_begins_no_transaction() -> None:
    disk = slow()
    store = await opened(disk)
    disk.hang()
    store.stage(Batch([record(b"a")]))
    await trio.sleep(2)
    store.stage(Batch([record(b"b")]))
    await store.close()
    disk.resume()
    await trio.sleep(10)
    assert keys(await opened(disk)) == [b"a"]


@virtual
async def test_slow_disk_takes_longer_for_each_sync() -> None:
    disk = slow()
    store = await opened(disk)
    disk.slow(30)
    began = trio.current_time()
    await store.commit(Batch([record(b"a")]))
    assert trio.current_time() - began == 31
    disk.slow(0)
    await store.commit(Batch([record(b"b")]))
    assert trio.current_time() - began == 32


@virtual
async def test_failing_disk_fails_until_it_is_repaired() -> None:
    disk = slow()
    store = await opened(disk)
    await store.commit(Batch([record(b"a")]))
    disk.fail(reads=True)
    with pytest.raises(RemoteFailure):
        await store.commit(Batch([record(b"b")]))
    with pytest.raises(RemoteFailure, match="cannot be read"):
        list(store.scan(WHOLE))
    disk.kill()
    with pytest.raises(ConfigError, match="cannot open the records: Input/output error"):
        await opened(disk)
    disk.mend()
    assert b"a" in keys(await opened(disk))


@virtual
async def test_bit_flip_in_any_column_loses_only_that_record() -> None:
    for size in (10, 5000):
        for seed in range(120):
            disk = slow(seed)
            store = await opened(disk)
            await store.commit(Batch([record(b"%d" % n, bytes(size)) for n in range(3)], minted={b"1": b"actor"}))
            disk.crash()
            disk.flip(b"1", column=StoredRow._fields[seed % len(StoredRow._fields)])
            assert disk.check() == []
            store = await opened(disk)
            assert keys(store) == [b"0", b"2"]
            assert store.get(b"1") is None
            assert (store.bad_records, len(store)) == (1, 2)


@virtual
async def test_damaged_record_and_damaged_header_are_detected() -> None:
    disk = slow()
    store = await opened(disk)
    await store.commit(Batch([record(b"a"), record(b"b")]))
    disk.crash()
    disk.damage(b"a")
    store = await opened(disk)
    assert (keys(store), store.is_damaged(b"a"), store.is_damaged(b"b")) == ([b"b"], True, False)
    left = left_on(disk, CIRCLE)
    assert left is not None
    assert (len(left), left.is_damaged(b"a")) == (1, True)
    assert disk.image is not None
    disk.image.is_damaged = True
    with pytest.raises(ConfigError, match="damaged"):
        await opened(disk)
    with pytest.raises(KeyError):
        disk.flip(b"never there")


@virtual
async def test_clone_has_the_same_records_and_is_independent() -> None:
    disk = slow()
    store = await opened(disk)
    await store.commit(Batch([record(b"a")], notes={b"n": b"1"}))
    disk.hang()
    other = await opened(disk.clone(random.Random(2)))
    assert (keys(other), other.notes(), other.incarnation) == ([b"a"], {b"n": b"1"}, store.incarnation)
    await other.commit(Batch(removals=[b"a"]))
    assert keys(store) == [b"a"]


@virtual
async def test_wiped_disk_holds_nothing() -> None:
    disk = slow()
    store = await opened(disk)
    await store.commit(Batch([record(b"a")]))
    disk.crash()
    disk.identity = b"{}"
    disk.wipe()
    assert (disk.used_bytes, left_on(disk, CIRCLE), DiskIdentity(disk).load()) == (0, None, None)
    assert keys(await opened(disk)) == []


@virtual
async def test_records_of_another_ring_are_refused() -> None:
    disk = slow()
    await opened(disk)
    with pytest.raises(ConfigError, match="a ring of 160 bits, not 8"):
        await SimulatedStorage(Circle(8), disk, b"12345678").open()


# -- the identity -----------------------------------------------------------------------------------------


@virtual
async def test_identity_is_refused_or_hangs_while_records_are_written() -> None:
    disk = slow()
    store, mount = await opened(disk), disk.mount()
    disk.refuse_identity()
    with pytest.raises(OSError) as caught:
        await disk.replace_identity(mount, b"one")
    assert caught.value.errno == errno.ENOSPC
    disk.accept_identity()
    disk.hang_identity()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(disk.replace_identity, mount, b"two")
        await store.commit(Batch([record(b"a")]))
        await trio.sleep(60)
        assert disk.identity is None
        disk.accept_identity()
    assert disk.identity == b"two"

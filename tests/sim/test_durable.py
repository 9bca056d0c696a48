"""Records on a simulated disk: what was acknowledged survives every crash, and each way to get that wrong is caught."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from lives import ACTIONS, CIRCLE, Made, Step, drive, record, some_steps, state_of
from worlds import virtual

from chord.data.storage import Batch
from chord.errors import ConfigError, RemoteFailure, WritesRefused
from chord.ids import Circle
from chord.sim import record_log
from chord.sim.disk import Disk, Mount
from chord.sim.durable import COMPACT_FROM_BYTES, DiskStorage
from chord.sim.record_log import LOG_NAME
from chord.testing import run


def slow(seed: int = 1, **options: float) -> Disk:
    """A disk whose syncs take a second."""
    return Disk(random.Random(seed), sync_delay=lambda rng: 1.0, **options)


def open_store(disk: Disk) -> DiskStorage:
    return DiskStorage(CIRCLE, disk, random.Random(1))


# -- the property, and each way to lose it ---------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 11)), max_size=60), st.integers(0, 10_000))
def test_what_was_acknowledged_survives_and_nothing_by_halves(steps: list[Step], seed: int) -> None:
    assert drive(steps, seed).wrong == []


@pytest.mark.slow
def test_many_random_lives_and_all_of_it_happens() -> None:
    totals: dict[str, int] = {}
    for seed in range(150):
        driver = drive(some_steps(seed), seed)
        assert driver.wrong == [], f"seed {seed}"
        for name, count in driver.counts.items():
            totals[name] = totals.get(name, 0) + count
    assert min(totals.values()) > 20, totals


class AcksBeforeSync(DiskStorage):
    async def _make_durable(self, upto: int) -> None:
        await trio.lowlevel.checkpoint()


class TrustsTheSecondSync(DiskStorage):
    async def _sync(self) -> None:
        try:
            await super()._sync()
        except RemoteFailure:
            self._failure = None
            await super()._sync()


class ForgetsTheFailure(DiskStorage):
    async def _sync(self) -> None:
        try:
            await super()._sync()
        finally:
            self._failure = None


class AppliesBeforeThereIsRoom(DiskStorage):
    def _write(self, batch: Batch) -> None:
        self._index.apply(batch)
        super()._write(batch)


class CountsEpochsInMemory(DiskStorage):
    def next_key_epoch(self) -> int:
        return self._index.next_key_epoch()


class MintsOn(DiskStorage):
    """It remembers under which actor it minted a key that it no longer holds."""

    def minted(self, key: bytes) -> bytes | None:
        remembered: dict[bytes, bytes] = self.__dict__.setdefault("remembered", {})
        found = super().minted(key)
        if found is not None:
            remembered[key] = found
        return remembered.get(key)


class ForgetsTheDirectory(Mount):
    async def sync_directory(self) -> None:
        await trio.lowlevel.checkpoint()

    def sync_directory_now(self) -> None:
        pass


class RenamesFirst(Mount):
    async def sync(self, name: str) -> None:
        if name == LOG_NAME:
            await super().sync(name)

    def sync_now(self, name: str) -> None:
        pass


class CompactsWithoutTheTail(Mount):
    def append(self, name: str, data: bytes) -> None:
        if name == LOG_NAME:
            super().append(name, data)


SEEDS_MAX = 100


@pytest.mark.parametrize(
    ("made", "sign"),
    [
        (Made(AcksBeforeSync), "found: less than was acknowledged"),
        (Made(TrustsTheSecondSync), "found: less than was acknowledged"),
        (Made(ForgetsTheFailure), "found: less than was acknowledged"),
        (Made(AppliesBeforeThereIsRoom), "visible: something else than was committed"),
        (Made(CountsEpochsInMemory), "a key epoch twice"),
        (Made(MintsOn), "a dot of two values"),
        (Made(mount=ForgetsTheDirectory), "found: less than was acknowledged"),
        (Made(mount=RenamesFirst), "cannot be opened: ConfigError"),
        pytest.param(Made(mount=CompactsWithoutTheTail), "found: ", marks=pytest.mark.slow),
    ],
    ids=lambda value: (
        getattr(value, "store", None) and next(c.__name__ for c in value if c not in (DiskStorage, Mount))
    ),
)
def test_planted_bugs_are_caught(made: Made, sign: str) -> None:
    assert any(line.startswith(sign) for seed in range(SEEDS_MAX) for line in drive(some_steps(seed), seed, made).wrong)


@pytest.mark.slow
def test_planted_a_replay_that_ignores_checksums_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_log, "checksum", lambda data: bytes(16))
    found = [line for seed in range(SEEDS_MAX) for line in drive(some_steps(seed), seed).wrong]
    assert "found: the state after no number of batches" in found


# -- one at a time ---------------------------------------------------------------------------------------


@virtual
async def test_a_commit_is_visible_at_once_and_returns_when_it_is_durable() -> None:
    disk = slow()
    store = open_store(disk)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, Batch([record(b"a")]))
        await trio.sleep(0.5)
        assert store.get(b"a") == record(b"a")
        assert trio.current_time() == 0.5
    assert trio.current_time() == 1.0
    disk.crash()
    assert state_of(open_store(disk)) == {b"a": record(b"a")}


@virtual
async def test_commits_that_wait_share_a_sync() -> None:
    disk = slow()
    store = open_store(disk)
    before = disk.syncs
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, Batch([record(b"first")]))
        await trio.sleep(0.5)
        for number in range(100):
            nursery.start_soon(store.commit, Batch([record(b"%d" % number)]))
    assert trio.current_time() == 2.0, "one for the first, one for all who came while it ran"
    assert disk.syncs - before == 2
    await store.commit(Batch())
    assert trio.current_time() == 2.0, "nothing is left to wait for"


@virtual
async def test_an_empty_batch_waits_for_what_others_began() -> None:
    store = open_store(slow())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.commit, Batch([record(b"a")]))
        await trio.sleep(0.5)
        await store.commit(Batch())
        assert trio.current_time() >= 1.0


@virtual
async def test_a_cancelled_leader_leaves_the_sync_to_the_next() -> None:
    disk = slow()
    store = open_store(disk)

    async def impatient() -> None:
        with trio.move_on_after(0.5):
            await store.commit(Batch([record(b"a")]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(impatient)
        await trio.sleep(0.1)
        nursery.start_soon(store.commit, Batch([record(b"b")]))
    assert trio.current_time() == 1.5
    disk.crash()
    assert sorted(state_of(open_store(disk))) == [b"a", b"b"]


@virtual
async def test_after_a_failed_sync_who_waited_is_in_doubt_later_writes_are_refused_and_reads_go_on() -> None:
    disk = slow()
    store = open_store(disk)
    await store.commit(Batch([record(b"safe")]))
    disk.fail_next_sync()
    errors = []

    async def commit(key: bytes) -> None:
        with pytest.raises(RemoteFailure, match="not known to be durable: Input/output error") as caught:
            await store.commit(Batch([record(key)]))
        errors.append(caught.value)

    async with trio.open_nursery() as nursery:
        for key in (b"a", b"b", b"c"):
            nursery.start_soon(commit, key)
    assert len({id(error) for error in errors}) == 3
    with pytest.raises(WritesRefused, match="since a sync failed"):
        await store.commit(Batch([record(b"d")]))
    with pytest.raises(RemoteFailure):
        await store.commit(Batch())
    assert sorted(state_of(store)) == [b"a", b"b", b"c", b"safe"]
    disk.kill()  # and started again on what the system still shows: it is written anew
    again = open_store(disk)
    assert sorted(state_of(again)) == [b"a", b"b", b"c", b"safe"]
    disk.crash()
    assert sorted(state_of(open_store(disk))) == [b"a", b"b", b"c", b"safe"]


@virtual
async def test_a_full_disk_refuses_and_changes_nothing_and_goes_on_when_there_is_room() -> None:
    disk = slow()
    store = open_store(disk)
    await store.commit(Batch([record(b"a")]))
    disk.capacity_bytes = disk.used_bytes + 10
    for batch in (Batch([record(b"b")]), Batch(removals=[b"a"])):
        with pytest.raises(WritesRefused, match="No space left"):
            await store.commit(batch)
    assert state_of(store) == {b"a": record(b"a")}
    disk.capacity_bytes = 1 << 20
    await store.commit(Batch([record(b"b")]))
    assert sorted(state_of(store)) == [b"a", b"b"]


@virtual
async def test_a_store_opened_on_a_full_disk_is_read_and_written_when_there_is_room() -> None:
    disk = slow()
    store = open_store(disk)
    await store.commit(Batch([record(b"a")]))
    epoch = store.next_key_epoch()
    disk.crash()
    disk.capacity_bytes = disk.used_bytes
    store = open_store(disk)
    assert state_of(store) == {b"a": record(b"a")}
    for refused in (lambda: store.commit(Batch([record(b"b")])), lambda: in_task(store.next_key_epoch)):
        with pytest.raises(WritesRefused, match="No space left"):
            await refused()
    with pytest.raises(RemoteFailure):
        await store.commit(Batch())
    disk.capacity_bytes = 1 << 20
    assert store.next_key_epoch() > epoch
    await store.commit(Batch([record(b"b")]))
    assert sorted(state_of(store)) == [b"a", b"b"]


async def in_task(fn: Callable[[], object]) -> None:
    fn()


@virtual
async def test_the_store_of_a_dead_process_refuses_everything_and_disturbs_nothing() -> None:
    disk = slow()
    old = open_store(disk)
    await old.commit(Batch([record(b"a")]))
    disk.crash()
    new = open_store(disk)
    with pytest.raises(WritesRefused, match="has ended"):
        await old.commit(Batch([record(b"b")]))
    await new.commit(Batch([record(b"c")]))
    disk.crash()
    assert sorted(state_of(open_store(disk))) == [b"a", b"c"]


@virtual
async def test_a_commit_under_way_in_a_crash_never_returns_as_if_all_were_well() -> None:
    disk = slow()
    store = open_store(disk)

    async def commit() -> None:
        with pytest.raises(RemoteFailure, match="has ended"):
            await store.commit(Batch([record(b"a")]))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        await trio.sleep(0.5)
        disk.crash()


@virtual
async def test_the_incarnation_is_the_stores_and_not_the_processs() -> None:
    disk = slow()
    name = open_store(disk).incarnation
    for _ in range(3):
        disk.crash()  # at once: it was durable before anybody could ask
        store = open_store(disk)
        assert store.incarnation == name
    assert DiskStorage(CIRCLE, slow(), random.Random(2)).incarnation != name


# -- the log ---------------------------------------------------------------------------------------------


async def filled(disk: Disk, count: int = 10) -> DiskStorage:
    store = open_store(disk)
    for number in range(count):
        await store.commit(Batch([record(b"%d" % number, b"x" * 100)]))
    return store


@virtual
async def test_a_large_log_is_written_anew_and_commits_go_on_meanwhile() -> None:
    disk = slow()
    store = await filled(disk)
    large = [record(b"large", b"%d" % number + bytes(30_000)) for number in range(20)]
    acknowledged: list[int] = []

    async def commit(number: int) -> None:
        await store.commit(Batch([large[number]]))
        acknowledged.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(commit, number)
            await trio.sleep(0.7)
    assert sorted(acknowledged) == list(range(20))
    assert store.compactions >= 3
    assert disk.used_bytes < 4 * COMPACT_FROM_BYTES
    disk.crash()
    found = state_of(open_store(disk))
    assert found.pop(b"large") == large[19]
    assert len(found) == 10


class ForgetsTheNameWhenCancelled(DiskStorage):
    """Planted: whoever renames is the one who syncs the directory; the next takes that for done."""

    async def _compact(self) -> None:
        await super()._compact()
        self._is_name_durable = True
        await self._files.sync_directory()


@pytest.mark.parametrize(("kind", "is_lost"), [(DiskStorage, False), (ForgetsTheNameWhenCancelled, True)])
def test_whoever_is_cancelled_while_the_log_is_written_anew(kind: type[DiskStorage], is_lost: bool) -> None:
    async def main() -> None:
        lost = 0
        for patience in (0.5, 1.5, 2.5, 3.5):
            for seed in range(12):
                disk = slow(seed)
                store = kind(CIRCLE, disk, random.Random(1))
                with trio.move_on_after(patience):
                    await store.commit(Batch([record(b"a", bytes(COMPACT_FROM_BYTES))]))
                await store.commit(Batch([record(b"b")]))
                disk.crash()
                lost += sorted(state_of(open_store(disk))) != [b"a", b"b"]
        assert bool(lost) == is_lost

    run(main)


@virtual
async def test_no_room_for_a_second_log_is_no_reason_to_refuse() -> None:
    disk = slow()
    store = open_store(disk)
    disk.capacity_bytes = 4 * COMPACT_FROM_BYTES
    for number in range(3):
        await store.commit(Batch([record(b"%d" % number, bytes(COMPACT_FROM_BYTES))]))
    assert sorted(state_of(store)) == [b"0", b"1", b"2"]
    assert disk.used_bytes < 3.1 * COMPACT_FROM_BYTES, "and nothing is left of the attempt"
    disk.crash()
    assert sorted(state_of(open_store(disk))) == [b"0", b"1", b"2"]


@virtual
async def test_what_a_crash_tore_is_cut_off_and_counted() -> None:
    cut = 0
    for seed in range(40):
        disk = slow(seed)
        store = await filled(disk, 2)
        with trio.move_on_after(0.5):
            await store.commit(Batch([record(b"torn", bytes(2000))]))
        disk.crash()
        store = open_store(disk)
        assert sorted(state_of(store)) in ([b"0", b"1"], [b"0", b"1", b"torn"])
        assert store.cut_bytes == 0 or b"torn" not in state_of(store)
        cut += store.cut_bytes > 0
        await store.commit(Batch([record(b"next")]))
        disk.crash()
        store = open_store(disk)
        assert store.get(b"next") is not None, "it does not stand behind the torn one"
        assert store.cut_bytes == 0
    assert cut > 5


@virtual
async def test_damage_is_refused_where_no_crash_reaches_and_cut_off_elsewhere() -> None:
    refused = 0
    for seed in range(60):
        disk = slow(seed)
        await filled(disk)
        disk.crash()
        open_store(disk)  # now all ten are in the part that was durable before it had its name
        disk.damage(LOG_NAME)
        with pytest.raises(ConfigError, match="damaged"):
            open_store(disk)
        refused += 1
    assert refused == 60
    whole = Disk(random.Random(1), sync_delay=lambda rng: 0.0)
    await filled(whole)
    for seed in range(60):
        whole.damage(LOG_NAME, random.Random(seed))
        try:
            store = open_store(whole)
        except ConfigError:
            refused += 1
        else:
            assert len(store) < 10
            assert store.cut_bytes > 0
        whole = Disk(random.Random(1), sync_delay=lambda rng: 0.0)
        await filled(whole)
    assert 60 < refused < 120, "some bits are the header's"


@virtual
async def test_a_log_of_another_circle_or_format_is_refused() -> None:
    disk = slow()
    await filled(disk)
    with pytest.raises(ConfigError, match="a ring of 160 bits, not 8"):
        DiskStorage(Circle(8), disk, random.Random(1))
    files = disk.mount()
    files.write(LOG_NAME, record_log.pack(record_log.Header(2, 160, b"12345678", 1, 0)))
    with pytest.raises(ConfigError, match="format 2, this version reads 1"):
        open_store(disk)
    files.write(LOG_NAME, b"")
    with pytest.raises(ConfigError, match="damaged"):
        open_store(disk)

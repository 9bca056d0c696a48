"""The simulated disk: what is written is seen, what is synced survives, and of the rest anything may be left."""

from __future__ import annotations

import errno
import random
from collections import Counter
from collections.abc import Callable

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from worlds import virtual

from chord.sim.disk import Disk, Mount
from chord.sim.files import SECTOR_BYTES
from chord.testing import run


def make(seed: int = 1, **options: float) -> tuple[Disk, Mount]:
    disk = Disk(random.Random(seed), **options)  # type: ignore[arg-type]
    return disk, disk.mount()


def after_a_crash(disk: Disk, name: str, seed: int | None = None) -> bytes | None:
    disk.crash(None if seed is None else random.Random(seed))
    assert disk.check() == []
    try:
        return disk.mount().read(name)
    except FileNotFoundError:
        return None


def outcomes(prepare: Callable[[Mount], None], name: str, count: int = 300) -> Counter[bytes | None]:
    """What is left of a file after the power went, over many lots."""
    found: Counter[bytes | None] = Counter()
    for seed in range(count):
        disk, files = make(seed)
        prepare(files)
        found[after_a_crash(disk, name)] += 1
    return found


def settled(files: Mount, name: str, data: bytes) -> None:
    files.write(name, data)
    files.sync_now(name)
    files.sync_directory_now()


# -- written and durable -------------------------------------------------------------------------------


@virtual
async def test_what_is_written_is_read_at_once() -> None:
    _, files = make()
    files.write("a", b"one")
    files.append("a", b" two")
    assert files.read("a") == b"one two"
    assert files.size("a") == 7
    files.write("a", b"new")
    files.rename("a", "b")
    assert files.read("b") == b"new"
    for missing in ("a", "c"):
        with pytest.raises(FileNotFoundError):
            files.read(missing)
    files.remove("b")
    for attempt in (lambda: files.read("b"), lambda: files.append("b", b""), lambda: files.rename("b", "c")):
        with pytest.raises(FileNotFoundError):
            attempt()


@virtual
async def test_what_is_synced_survives_every_crash() -> None:
    for seed in range(100):
        disk, files = make(seed)
        files.write("a", b"x" * 2000)
        await files.sync("a")
        await files.sync_directory()
        files.append("a", b"not safe")
        found = after_a_crash(disk, "a")
        assert found is not None
        assert found.startswith(b"x" * 2000)


@virtual
async def test_a_sync_takes_its_time_and_covers_what_was_written_before_it_began() -> None:
    disk = Disk(random.Random(1), sync_delay=lambda rng: 0.5)
    files = disk.mount()
    settled(files, "a", b"")
    files.append("a", b"before")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.sync, "a")
        await trio.sleep(0.2)
        files.append("a", b" meanwhile")
    assert trio.current_time() == pytest.approx(0.5)
    assert files.read("a") == b"before meanwhile"
    found = {after_a_crash(disk_of(b"before", b" meanwhile"), "a", seed) for seed in range(100)}
    assert {b"before", b"before meanwhile"} < found
    assert all(one is not None and one.startswith(b"before") for one in found)


def disk_of(durable: bytes, written: bytes) -> Disk:
    disk, files = make()
    settled(files, "a", durable)
    files.append("a", written)
    return disk


@virtual
async def test_a_cancelled_sync_makes_nothing_durable() -> None:
    disk = Disk(random.Random(1), sync_delay=lambda rng: 0.5)
    files = disk.mount()
    settled(files, "a", b"")
    files.append("a", b"x")
    with trio.move_on_after(0.2):
        await files.sync("a")
    assert disk.syncs == 2
    assert disk.directory.written["a"].durable == b""


def test_unsynced_appends_survive_vanish_or_are_torn_and_a_gap_is_zeros() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", b"|")
        files.append("a", b"first")
        files.append("a", b"second")

    found = outcomes(prepare, "a")
    for expected in (b"|", b"|first", b"|firstsecond", b"|\0\0\0\0\0second", b"|fir", b"|fi\0\0\0second", b"|firstse"):
        assert found[expected], expected
    assert None not in found


def test_a_long_write_loses_any_of_its_sectors() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", bytes(100))
        files.append("a", b"x" * (3 * SECTOR_BYTES))

    found = outcomes(prepare, "a")
    gap = bytes(100) + b"x" * (SECTOR_BYTES - 100) + bytes(SECTOR_BYTES) + b"x" * (SECTOR_BYTES + 100)
    assert found[gap], "the second sector alone is missing"
    assert found[bytes(100) + b"x" * (3 * SECTOR_BYTES)]


def test_a_file_written_anew_over_the_old_may_be_old_new_empty_or_a_mixture() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", b"old content")
        files.write("a", b"new")

    found = outcomes(prepare, "a")
    for expected in (b"old content", b"new", b"", b"new content"):
        assert found[expected], expected


def test_a_new_name_may_be_missing_though_its_file_was_synced() -> None:
    def prepare(files: Mount) -> None:
        files.write("a", b"x")
        files.sync_now("a")

    assert set(outcomes(prepare, "a")) == {None, b"x"}


def test_a_rename_may_not_have_happened_before_the_directory_is_synced() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", b"old")
        settled(files, "a.new", b"new")
        files.rename("a.new", "a")

    def prepare_safely(files: Mount) -> None:
        prepare(files)
        files.sync_directory_now()

    assert set(outcomes(prepare, "a")) == {b"old", b"new"}
    assert set(outcomes(prepare_safely, "a")) == {b"new"}


def test_a_rename_may_outlive_what_was_written_to_the_file() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", b"old")
        files.write("a.new", b"new")
        files.rename("a.new", "a")
        files.sync_directory_now()

    found = outcomes(prepare, "a")
    assert found[b""], "the well-known empty file"
    assert found[b"new"]
    assert not found[b"old"]


def test_a_removal_may_not_have_happened() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", b"x")
        files.remove("a")

    assert set(outcomes(prepare, "a")) == {None, b"x"}


# -- faults --------------------------------------------------------------------------------------------


@virtual
async def test_after_a_failed_sync_no_later_one_makes_up_for_it() -> None:
    kept: Counter[bytes | None] = Counter()
    for seed in range(100):
        disk, files = make(seed)
        settled(files, "a", b"|")
        files.append("a", b"doubt")
        disk.fail_next_sync()
        with pytest.raises(OSError) as caught:
            await files.sync("a")
        assert caught.value.errno == errno.EIO
        await files.sync("a")  # succeeds, and has nothing to do
        assert files.read("a") == b"|doubt", "the pages are still in memory"
        files.append("a", b"!")
        await files.sync("a")
        kept[after_a_crash(disk, "a")] += 1
        assert (disk.syncs, disk.failed_syncs) == (4, 1)
    assert kept[b"|\0\0\0\0\0!"]
    assert kept[b"|doubt!"]
    assert all(found is not None and len(found) == 7 for found in kept)


@virtual
async def test_a_failed_sync_of_the_directory_leaves_names_in_doubt() -> None:
    kept = set()
    for seed in range(50):
        disk, files = make(seed)
        files.write("a", b"x")
        files.sync_now("a")
        disk.fail_next_sync(errno.ENOSPC)
        with pytest.raises(OSError):
            await files.sync_directory()
        await files.sync_directory()
        assert files.read("a") == b"x"
        kept.add(after_a_crash(disk, "a"))
    assert kept == {None, b"x"}


def test_a_full_disk_takes_nothing_and_what_is_there_stays() -> None:
    disk, files = make(capacity_bytes=10)
    files.write("a", b"12345")
    files.append("a", b"67890")
    for attempt in (
        lambda: files.append("a", b"1"),
        lambda: files.write("b", b"1"),
        lambda: files.write("a", bytes(11)),
    ):
        with pytest.raises(OSError) as caught:
            attempt()
        assert caught.value.errno == errno.ENOSPC
    assert files.read("a") == b"1234567890"
    files.write("a", b"1234567")  # instead of what was there
    files.write("b", b"123")
    assert (disk.used_bytes, disk.bytes_written) == (10, 20)
    files.remove("b")
    disk.capacity_bytes = 8
    files.append("a", b"8")


@virtual
async def test_a_frozen_disk_holds_syncs_up_and_nothing_else() -> None:
    disk, files = make()
    files.write("a", b"x")
    disk.freeze()
    with trio.move_on_after(60) as scope:
        await files.sync("a")
    assert scope.cancelled_caught
    files.append("a", b"y")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(files.sync, "a")
        await trio.sleep(60)
        assert disk.syncs == 0
        disk.unfreeze()
    assert disk.syncs == 1
    assert disk.directory.written["a"].durable == b"xy"


@virtual
async def test_the_tasks_of_a_dead_process_change_nothing_any_more() -> None:
    for is_power_lost in (False, True):
        disk, files = make()
        settled(files, "a", b"x")
        failed = []

        async def sync(files: Mount = files, failed: list[int | None] = failed) -> None:
            with pytest.raises(OSError) as caught:
                await files.sync("a")
            failed.append(caught.value.errno)

        disk.freeze()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sync)
            await trio.sleep(1)
            (disk.crash if is_power_lost else disk.kill)()
        attempts: list[Callable[[], object]] = [
            lambda files=files: files.read("a"),
            lambda files=files: files.write("b", b""),
            lambda files=files: files.append("a", b"z"),
            lambda files=files: files.rename("a", "b"),
            lambda files=files: files.remove("a"),
            lambda files=files: files.sync_now("a"),
            lambda files=files: files.sync_directory_now(),
            lambda files=files: files.lock("a"),
        ]
        for attempt in attempts:
            with pytest.raises(OSError) as caught:
                attempt()
            assert caught.value.errno == errno.ESHUTDOWN
        assert failed == [errno.ESHUTDOWN]
        assert disk.mount().read("a") == b"x"


def test_a_killed_process_leaves_what_it_wrote_to_the_machine_and_a_crash_may_still_take_it() -> None:
    found = set()
    for seed in range(50):
        disk, files = make(seed)
        settled(files, "a", b"|")
        files.append("a", b"x")
        disk.kill()
        assert disk.mount().read("a") == b"|x"
        found.add(after_a_crash(disk, "a"))
    assert found == {b"|", b"|x"}


def test_a_lock_is_one_processs_until_it_lets_go_or_ends() -> None:
    disk, first = make()
    second = disk.mount()
    assert first.lock("a")
    assert first.lock("a")
    assert not second.lock("a")
    assert second.lock("b")
    first.unlock()
    assert second.lock("a")
    disk.kill()
    second.unlock()
    third = disk.mount()
    assert third.lock("a")
    second.unlock()
    assert not disk.mount().lock("a"), "the dead hold nothing and free nothing"


def test_damage_turns_one_bit_of_what_is_durable() -> None:
    disk, files = make()
    settled(files, "a", bytes(100))
    files.append("a", b"z")
    disk.damage("a")
    assert sum(byte.bit_count() for byte in files.read("a")[:100]) == 1
    assert disk.check() == []


# -- any history -----------------------------------------------------------------------------------------


def test_the_same_seed_loses_the_same() -> None:
    def prepare(files: Mount) -> None:
        settled(files, "a", b"|")
        for number in range(20):
            files.append("a", b"%d" % number)

    assert outcomes(prepare, "a", 30) == outcomes(prepare, "a", 30)
    assert len(outcomes(prepare, "a", 30)) > 5


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["write", "append", "append", "rename", "remove", "sync", "sync", "names", "fail", "crash", "kill"]
        ),
        st.sampled_from("abc"),
        st.binary(min_size=1, max_size=20),
    ),
    max_size=40,
)


TWO_NAMES = ["fail a", "sync a", "sync a", "rename a", "rename c", "crash a", "write a"]
"""A rename that is lost, and one of a file to its own name: it must not come back under both."""


@given(STEPS, st.integers(0, 1000))
@example([("write", "a", b"xy"), *((*step.split(), b"x") for step in TWO_NAMES)], 0)  # type: ignore[list-item]
def test_the_books_agree_whatever_happens_and_synced_files_with_synced_names_survive(
    steps: list[tuple[str, str, bytes]], seed: int
) -> None:
    async def main() -> None:
        disk, files = make(seed)
        model: dict[str, bytes] = {}  # what a reader sees
        for action, name, data in steps:
            is_there = name in model
            if action in ("write", "append") and (is_there or action == "write"):
                (files.append if action == "append" else files.write)(name, data)
                model[name] = model[name] + data if action == "append" else data
            elif action == "rename" and is_there:
                files.rename(name, "c")
                model["c"] = model.pop(name)
            elif action == "remove" and is_there:
                files.remove(name)
                del model[name]
            elif action == "sync" and is_there:
                await files.sync(name)
            elif action == "names":
                await files.sync_directory()
            elif action == "fail":
                disk.fail_next_sync()
                with pytest.raises(OSError):
                    await files.sync_directory()
            elif action in ("crash", "kill"):
                (disk.crash if action == "crash" else disk.kill)()
                with pytest.raises(OSError):
                    files.read("a")
                files = disk.mount()
                if action == "crash":
                    model = {name: files.read(name) for name in disk.directory.written}
            assert disk.check() == []
            assert {name: files.read(name) for name in sorted(disk.directory.written)} == dict(sorted(model.items()))
        for name in model:
            await files.sync(name)
        await files.sync_directory()
        is_in_doubt = disk.directory.is_suspect
        disk.crash()
        if not is_in_doubt:
            assert {name: disk.mount().read(name) for name in sorted(disk.directory.written)} == dict(
                sorted(model.items())
            )

    run(main)


def test_books_that_do_not_agree_are_found() -> None:
    disk, files = make()
    settled(files, "a", b"x")
    files.append("a", b"y")
    disk.directory.written["a"].written += b"z"
    assert disk.check() == ["a: what is written is not what will be durable"]
    disk.directory.written["b"] = disk.directory.written.pop("a")
    assert disk.check()[0] == "the names are not those that will be durable"

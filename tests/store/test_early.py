"""Lent actors: a store on disk keeps some of them, and gives up the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from chord.errors import WritesRefused
from chord.ids import Circle
from chord.store import versions
from chord.store.early import EARLY_NOTE, MARK, LentActors, UndecidedPuts
from chord.store.sqlite import SqliteStorage
from chord.store.storage import Batch, MemoryStorage
from tests.mutants.scenes_early import LENDABLE, Disks, lending, record
from tests.support.quorum import KEY

KEPT = b"store 01" + (8).to_bytes(8, "big")


async def reopened(disks: Disks) -> SqliteStorage:
    store = disks.store()
    await store.open()
    return store


async def test_first_actor_is_lent_once_the_mark_is_durable(tmp_path: Path) -> None:
    store = await reopened(Disks(str(tmp_path)))
    await store.commit(Batch([record(1)], minted={KEY: LENDABLE}))
    assert not store.can_lend(KEY)
    assert store.durable_note(EARLY_NOTE) is None
    await store.commit(Batch())
    assert store.can_lend(KEY)
    assert store.durable_note(EARLY_NOTE) == MARK
    await store.close()


async def test_orderly_close_keeps_the_actor(tmp_path: Path) -> None:
    disks = Disks(str(tmp_path))
    store = await reopened(disks)
    await lending(store)
    store.lend_actor(KEY, record(2))
    assert store.minted(KEY) is None
    assert not store.can_lend(KEY)
    await store.commit(Batch([record(2)], minted={KEY: LENDABLE}))
    assert store.minted(KEY) == LENDABLE
    await store.close()
    store = await reopened(disks)
    assert (store.minted(KEY), store.note(EARLY_NOTE)) == (LENDABLE, None)
    await store.close()


async def test_close_with_an_undecided_put_gives_actors_up(tmp_path: Path) -> None:
    disks = Disks(str(tmp_path))
    store = await reopened(disks)
    await lending(store)
    store.lend_actor(KEY, record(2))
    await store.close()
    store = await reopened(disks)
    assert store.minted(KEY) is None
    assert not store.can_lend(KEY)
    await store.close()


async def test_crash_keeps_an_actor_that_is_never_lent(tmp_path: Path) -> None:
    disks = Disks(str(tmp_path))
    store = await reopened(disks)
    await lending(store)
    store._commits.key_epoch = 8
    await store.commit(Batch([record(2)], minted={KEY: KEPT}))
    assert not store.can_lend(KEY)
    again = disks.after_a_crash()
    await again.open()
    assert again.minted(KEY) == KEPT
    await again.close()
    await store.close()


async def test_actor_made_after_a_crash_is_used(tmp_path: Path) -> None:
    disks = Disks(str(tmp_path))
    store = await reopened(disks)
    await lending(store)
    again = disks.after_a_crash()
    await again.open()
    assert again.next_key_epoch() == 8
    later = versions.actor(b"store 01", 9)
    assert again.next_key_epoch() == 9
    await again.commit(Batch([record(1)], minted={KEY: later}))
    assert again.minted(KEY) == later
    assert again.can_lend(KEY), "the mark of before the crash is still there"
    await again.close()
    await store.close()


async def test_actors_given_up_stay_so_after_an_orderly_close(tmp_path: Path) -> None:
    disks = Disks(str(tmp_path))
    store = await reopened(disks)
    await lending(store)
    disks.fill()
    with pytest.raises(WritesRefused):
        await store.commit(Batch([record(2)]))
    assert store.minted(KEY) is None
    await store.close()
    store = await reopened(disks)
    assert store.note(EARLY_NOTE) == (7).to_bytes(8, "big")
    assert store.minted(KEY) is None
    await store.close()


async def test_actor_given_up_alone_leaves_the_row(tmp_path: Path) -> None:
    disks = Disks(str(tmp_path))
    store = await reopened(disks)
    await lending(store)
    store.lend_actor(KEY, record(2))
    store.give_up_actor(KEY)
    assert store.minted(KEY) is None
    assert store.get(KEY) == record(1)
    await store.close()
    store = await reopened(disks)
    assert (store.minted(KEY), store.get(KEY)) == (None, record(1))
    assert store.note(EARLY_NOTE) is None, "the close was orderly"
    await store.close()


async def test_failed_disk_gives_all_actors_up(tmp_path: Path) -> None:
    store = await reopened(Disks(str(tmp_path)))
    await lending(store)
    store.lend_actor(KEY, record(2))
    store._commits.fail("gone")
    store.give_up_actor(KEY)
    assert store.minted(KEY) is None
    assert not store.can_lend(KEY)
    await store.close()


def test_damaged_mark_counts_as_a_mark() -> None:
    assert LentActors(None, True, 7).given_up == 7
    assert LentActors(MARK, False, 7).given_up == 7
    assert LentActors((5).to_bytes(8, "big"), False, 7).given_up == 5
    assert LentActors(None, False, 7).given_up == 0


def test_store_in_memory_forgets_a_lent_actor() -> None:
    store = MemoryStorage(Circle(32), b"store 01")
    store.apply(Batch([record(1)], minted={KEY: LENDABLE}))
    assert store.can_lend(KEY)
    store.lend_actor(KEY, record(2))
    assert store.minted(KEY) is None
    store.apply(Batch([record(2)], minted={KEY: LENDABLE}))
    assert store.minted(KEY) == LENDABLE


def test_waiting_writes_are_called_once() -> None:
    undecided, called = UndecidedPuts(), list[int]()
    undecided.begin(KEY)
    undecided.wait(KEY, lambda: called.append(1))
    undecided.wait(KEY, lambda: called.append(2))
    undecided.end(KEY)
    undecided.end(KEY)
    assert called == [1, 2]
    assert KEY not in undecided.keys

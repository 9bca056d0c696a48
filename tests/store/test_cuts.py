"""The cut of a store: the durable records of one moment, and its number after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from chord.errors import WritesRefused
from chord.ids import Circle
from chord.store.cuts import StoreCut
from chord.store.storage import Batch, MemoryStorage
from tests.store.test_sqlite import Gate, assert_holds, one_under_way, opened, record


def keys(cut: StoreCut, after: bytes | None = None) -> list[bytes]:
    return [found.key for found in cut.scan(after)]


async def test_cut_of_a_database_ignores_later_changes(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a"), record(b"b"), record(b"c")], notes={b"s1": b"old"}))
        cut = store.cut(7)
        await store.commit(Batch([record(b"d"), record(b"a", b"new")], removals=[b"b"], notes={b"s1": b"new"}))
        order = [found.key for found in store.cut(8).scan(None)]
        assert sorted(order) == [b"a", b"c", b"d"]
        with pytest.raises(Exception, match="closed"):
            keys(cut)  # one cut at a time
    async with opened(tmp_path) as store:
        assert store.cut_number == 7, "no transaction followed the second cut"
        cut = store.cut(9)
        every = keys(cut)
        await store.commit(Batch(removals=[b"a", b"c", b"d"]))
        assert [keys(cut), *(keys(cut, after=key) for key in every)] == [every, *(every[n:] for n in (1, 2, 3))]
        assert dict(cut.notes())[b"s1"] == b"new"
        assert_holds(store)


async def test_cut_of_a_database_has_no_staged_change(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        await store.commit(Batch([record(b"acknowledged")]))
        async with one_under_way(store, gate):
            store.stage(Batch([record(b"second")]))
            cut = store.cut(5)
            assert keys(cut) == [b"acknowledged"]
            gate.open()
            await store.commit(Batch())
            assert keys(cut) == [b"acknowledged"]
    async with opened(tmp_path) as store:
        assert store.cut_number == 5, "the transaction after the cut has the number"


async def test_number_is_written_again_after_a_refused_transaction(tmp_path: Path) -> None:
    """A full disk takes the changes back, and the number must not be lost with them."""
    is_full = False

    def disk() -> None:
        if is_full:
            raise OSError(28, "no room")

    async with opened(tmp_path, disk) as store:
        store.cut(3)
        is_full = True
        with pytest.raises(WritesRefused):
            await store.commit(Batch([record(b"a")]))
        is_full = False
        await store.commit(Batch([record(b"b")]))
        assert store._commits.cut_note == {}
    async with opened(tmp_path) as store:
        assert store.cut_number == 3


async def test_number_of_a_cut_during_a_transaction_stays_pending(tmp_path: Path) -> None:
    gate = Gate()
    async with opened(tmp_path, gate) as store:
        store.cut(3)
        async with one_under_way(store, gate):
            store.cut(4)
            gate.open()
            await store.commit(Batch())
        assert store._commits.cut_note != {}, "the transaction wrote the earlier number"
        await store.commit(Batch([record(b"next")]))
    async with opened(tmp_path) as store:
        assert store.cut_number == 4


async def test_noted_number_is_durable_without_a_cut(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a")]))
        cut = store.cut(3)
        store.note_cut_number(4)
        await store.commit(Batch([record(b"b")]))
        assert keys(cut) == [b"a"]
    async with opened(tmp_path) as store:
        assert store.cut_number == 4


async def test_damaged_record_is_counted_and_left_out(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(b"a"), record(b"b")]))
        store._file._writer.execute("UPDATE records SET clock = x'80' WHERE key = ?", (b"a",))  # type: ignore[attr-defined]
        cut = store.cut(1)
        assert keys(cut) == [b"b"]
        assert keys(cut) == [b"b"]
        assert cut.damaged == 1


def test_cut_in_memory_ignores_later_changes() -> None:
    store = MemoryStorage(Circle(8), bytes(8))
    store.apply(Batch([record(b"a"), record(b"b"), record(b"c")], notes={b"s1": b"old"}))
    cut = store.cut(7)
    every = keys(cut)
    store.apply(Batch([record(b"d")], removals=[b"b"], notes={b"s1": None}))
    assert sorted(every) == [b"a", b"b", b"c"]
    assert [keys(cut), keys(cut, after=every[1])] == [every, every[2:]]
    assert dict(cut.notes()) == {b"s1": b"old"}
    cut.close()
    assert keys(cut) == []



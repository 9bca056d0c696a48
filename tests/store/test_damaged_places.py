"""Damage that hides the key of a record: no node denies a possible key until a new record replaces it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
import trio

import chord
from chord.config import PRESETS, RingConstants
from chord.errors import NotFound, RecordDamaged, WritesRefused
from chord.ids import Arc, Circle, Point
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.store.sqlite import SqliteStorage
from chord.store.sqlite_file import FILE_NAME
from chord.store.storage import Batch
from tests.store.test_sqlite import CIRCLE, LARGE, WHOLE, damage, full, keys, opened, record
from tests.support.node_on_disk import node_on
from tests.support.rings import grown, put, virtual

KEY, WRONG, OTHER, ABSENT = b"precious", b"Precious", b"other", b"absent"


async def stored(path: Path, *names: bytes, value: bytes = b"value", circle: Circle = CIRCLE) -> None:
    store = SqliteStorage(circle, str(path), b"incarnat")
    await store.open()
    await store.commit(Batch([record(name, value) for name in names]))
    await store.close()


def change(path: Path, column: str, value: object, key: bytes = KEY) -> None:
    with sqlite3.connect(path / FILE_NAME) as file:
        file.execute(f"UPDATE records SET {column} = ? WHERE key = ?", (value, key))
    file.close()


def turned(key: bytes, byte: int, bit: int) -> bytes:
    """Return the point of a key with one bit changed."""
    point = bytearray(CIRCLE.hash(key).to_bytes(20, "big"))
    point[byte] ^= 1 << bit
    return bytes(point)


def rows_in(path: Path) -> int:
    with sqlite3.connect(path / FILE_NAME) as file:
        (count,) = file.execute("SELECT count(*) FROM records").fetchone()
    file.close()
    return int(count)


async def doubted(path: Path, *names: bytes) -> list[bytes]:
    """Return which of these keys a damaged record may have."""
    async with opened(path) as store:
        return [name for name in names if store.is_damaged(name)]


# -- possible keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"value", LARGE], ids=["small", "large"])
async def test_record_with_a_damaged_key_may_have_any_key_at_its_point(tmp_path: Path, value: bytes) -> None:
    await stored(tmp_path, KEY, OTHER, value=value)
    damage(tmp_path / FILE_NAME, KEY, WRONG)
    assert await doubted(tmp_path, KEY, WRONG, OTHER, ABSENT) == [KEY, WRONG]
    async with opened(tmp_path) as store:
        assert (keys(store), store.get(KEY)) == ([OTHER], None)
        assert store.damaged(WHOLE) == [CIRCLE.hash(KEY)]
        for name in (KEY, WRONG):
            point = CIRCLE.hash(name)
            assert store.damaged(Arc(CIRCLE.point(point - 1), point)) == [point]


@pytest.mark.parametrize("value", [b"value", LARGE], ids=["small", "large"])
async def test_record_with_a_damaged_point_may_have_its_key(tmp_path: Path, value: bytes) -> None:
    await stored(tmp_path, KEY, OTHER, value=value)
    change(tmp_path, "point", turned(KEY, 19, 0))
    assert await doubted(tmp_path, KEY, OTHER, ABSENT) == [KEY]


@pytest.mark.parametrize("point", [3, "text", b"short", bytes(21)], ids=["number", "text", "short", "long"])
async def test_record_without_a_point_may_have_any_key(tmp_path: Path, point: Any) -> None:
    await stored(tmp_path, KEY, OTHER)
    change(tmp_path, "point", point)
    assert await doubted(tmp_path, KEY, OTHER, ABSENT) == [KEY, ABSENT]
    arc = Arc(Point(5), Point(9))
    async with opened(tmp_path) as store:
        assert (store.damaged(arc), len(store.damaged(WHOLE))) == ([Point(9)], 1)


async def test_record_out_of_order_may_hide_any_key(tmp_path: Path) -> None:
    """SQLite uses binary search in a page, so a row in the wrong place hides other rows."""
    names = sorted((b"key-%d" % number for number in range(40)), key=CIRCLE.hash)
    await stored(tmp_path, *names)
    whole = names[20]
    damage(tmp_path / FILE_NAME, CIRCLE.hash(whole).to_bytes(20, "big"), turned(whole, 0, 7))
    async with opened(tmp_path) as store:
        missed = [name for name in names if store.get(name) is None]
        assert len(missed) > 1, "a search misses rows that are not damaged, too"
        assert all(store.is_damaged(name) for name in (*missed, ABSENT))
        assert not any(store.is_damaged(name) for name in names if name not in missed)
        await store.commit(Batch([record(whole)]))
        assert store.is_damaged(ABSENT), "the row still hides the others"
    assert await doubted(tmp_path, ABSENT) == [ABSENT]


async def test_key_that_changed_its_type_is_damaged(tmp_path: Path) -> None:
    """A scan still returns the key, but a search does not find it."""
    await stored(tmp_path, KEY, OTHER)
    change(tmp_path, "key", KEY.decode())
    assert await doubted(tmp_path, KEY, OTHER, ABSENT) == [KEY]
    async with opened(tmp_path) as store:
        assert keys(store) == [OTHER]


# -- replacement --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "value"), [("key", WRONG), ("point", turned(KEY, 19, 0))], ids=["damaged key", "damaged point"]
)
async def test_damaged_record_ends_when_its_key_is_stored_again(tmp_path: Path, column: str, value: bytes) -> None:
    await stored(tmp_path, KEY, OTHER)
    change(tmp_path, column, value)
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(WRONG), record(OTHER, b"new")]))
        assert store.is_damaged(KEY), "these are other keys"
        await store.commit(Batch([record(KEY)]))
        assert (store.damaged(WHOLE), store.is_damaged(KEY), len(store)) == ([], False, 3)
    async with opened(tmp_path) as store:
        assert (store.bad_records, keys(store)) == (0, sorted([KEY, WRONG, OTHER]))
    assert rows_in(tmp_path) == 3


async def test_damaged_record_returns_if_its_replacement_is_refused(tmp_path: Path) -> None:
    await stored(tmp_path, KEY)
    damage(tmp_path / FILE_NAME, KEY, WRONG)
    errors: list[BaseException] = [full()]

    def gate() -> None:
        if errors:
            raise errors.pop()

    async with opened(tmp_path, gate) as store:
        with pytest.raises(WritesRefused):
            await store.commit(Batch([record(KEY)]))
        assert (store.is_damaged(KEY), len(store.damaged(WHOLE))) == (True, 1)
        await store.commit(Batch([record(KEY)]))
        assert store.damaged(WHOLE) == []


async def test_damage_found_after_its_replacement_is_ignored(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.commit(Batch([record(KEY, LARGE), record(OTHER)]))
        change(tmp_path, "key", WRONG)
        await store.commit(Batch([record(KEY, LARGE)]))
        while not store.scrub(1)[1]:
            pass
        assert (store.bad_records, store.damaged(WHOLE), store.is_damaged(WRONG)) == (1, [], False)
        await store.commit(Batch([record(OTHER, b"new")]))
        assert sorted(keys(store)) == sorted([KEY, OTHER])
    assert rows_in(tmp_path) == 2


async def test_keys_at_one_point_of_a_small_circle_are_distinguished(tmp_path: Path) -> None:
    circle = Circle(8)
    names = [b"key-%d" % number for number in range(1000)]
    one, two = [name for name in names if circle.hash(name) == circle.hash(names[0])][:2]
    await stored(tmp_path, one, circle=circle)
    change(tmp_path, "key", b"KEY-0", one)
    store = SqliteStorage(circle, str(tmp_path), b"incarnat")
    await store.open()
    await store.commit(Batch([record(two)]))
    assert store.is_damaged(one), "its point does not say which key it has"
    await store.commit(Batch([record(one)]))
    assert store.damaged(WHOLE) == []
    await store.close()


# -- nodes --------------------------------------------------------------------------------------------------------


async def test_node_alone_denies_no_key_that_a_damaged_record_may_have(tmp_path: Path) -> None:
    async with node_on(tmp_path) as node:
        await node.put(KEY, "value")
        await node.put(OTHER, "value")
    damage(tmp_path / FILE_NAME, KEY, WRONG)
    async with node_on(tmp_path) as node:
        with pytest.raises(RecordDamaged, match=r"a damaged record at 127.* may be of this key, and no other node"):
            await node.get(KEY)
        with pytest.raises(NotFound):
            await node.get(ABSENT)
        assert node._local_status().damaged == 1
        await node.put(KEY, "again")
        assert (await node.get(KEY)).value == b"again"
        assert node._local_status().damaged == 0
    async with node_on(tmp_path) as node:
        assert (node._local_status().damaged, (await node.get(KEY)).value) == (0, b"again")


async def damaged_on(machines: Cluster, *hosts: str) -> None:
    """Kill these hosts' nodes, damage the key of a record on their disks, and start them again."""
    for node in [node for node in machines if node.name in hosts]:
        await machines.kill(node)
    for host in hosts:
        machines.disk(host).flip(KEY, column="key")
    for host in hosts:
        await machines.start(join=(), name=host)
    for node in machines:
        await node.ready()


async def read(node: chord.Node, key: bytes) -> bytes | None:
    return (await node.get(key)).value


@virtual
async def test_record_with_a_damaged_key_on_one_node_is_repaired() -> None:
    async with cluster(seed=5, ring=RingConstants(), timing=PRESETS["local"], sync_delay=flash) as machines:
        first = await grown(machines, 3)
        await put(first, KEY, b"value")
        await trio.sleep(5)
        await damaged_on(machines, "n1")
        for node in machines:
            assert await read(node, KEY) == b"value"
        await trio.sleep(10)
        assert [node._local_status().damaged for node in machines] == [0, 0, 0]
        with pytest.raises(NotFound):
            await first.get(ABSENT)


@virtual
async def test_key_with_damaged_records_everywhere_is_not_denied() -> None:
    async with cluster(seed=5, ring=RingConstants(), timing=PRESETS["local"], sync_delay=flash) as machines:
        await put(await grown(machines, 3), KEY, b"value")
        await trio.sleep(5)
        await damaged_on(machines, "n0", "n1", "n2")
        await trio.sleep(10)
        for node in machines:
            with pytest.raises(RecordDamaged):
                await node.get(KEY)
            with pytest.raises(NotFound):
                await node.get(ABSENT)
        await put(machines[0], KEY, b"again")
        await trio.sleep(5)
        assert [node._local_status().damaged for node in machines] == [0, 0, 0]
        assert await read(machines[1], KEY) == b"again"

"""What a node finds of its life before: a store that is too old is set aside, once."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from chord import earlier
from chord.config import NodeConfig, Timing
from chord.data.sqlite import SqliteStorage
from chord.data.sqlite_file import ASIDE, FILE_NAME
from chord.data.storage import Batch
from chord.events import StoreBegun
from chord.identity import IDENTITY_VERSION, Kept
from chord.ids import Arc, Circle, Point
from chord.messages import ActorClock, Record, Version

CIRCLE = Circle(160)
WHOLE = Arc(Point(0), Point(0))
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
GRACE_MS = int(1000 * Timing().grace_s)


def record(key: bytes) -> Record:
    return Record(key, (ActorClock(bytes(16), 1, (Version(b"v", bytes(16), 1),)),))


class Start:
    """A start of a node on a directory, as far as its ring was found running."""

    def __init__(self, directory: Path, kept: Kept) -> None:
        self.kept = kept
        self.storage = SqliteStorage(CIRCLE, str(directory), b"12345678")
        self.told: list[object] = []

    async def give_up(self) -> bool:
        """Open the store and set it aside if it is too old; then the process is killed."""
        await self.storage.open()
        host: Any = SimpleNamespace(
            storage=self.storage, timing=NodeConfig().timing, wall_now_ms=lambda: NOW_MS, rng=random.Random(1),
            greeter=SimpleNamespace(introduce=lambda *_: None), address="h:1", vnodes={}, tell=self.told.extend,
        )  # fmt: skip

        async def keep(kept: Kept) -> None:
            self.kept = kept

        is_aside = await earlier.give_up_if_outdated(self.kept, host, keep, is_first=True)
        self.keys = sorted(one.key for one in self.storage.scan(WHOLE))
        return is_aside


async def keys_in(directory: Path, name: str) -> list[bytes]:
    """Return the keys in a file that is a store's."""
    other = directory / "looked into"
    other.mkdir()
    (other / FILE_NAME).write_bytes((directory / name).read_bytes())
    store = SqliteStorage(CIRCLE, str(other), b"87654321")
    await store.open()
    keys = sorted(one.key for one in store.scan(WHOLE))
    await store.close()
    return keys


async def filled(directory: Path, age_ms: int) -> Kept:
    """Fill a store, and return what was kept with it."""
    store = SqliteStorage(CIRCLE, str(directory), b"incarnat")
    await store.open()
    await store.commit(Batch([record(b"a"), record(b"b")]))
    await store.close()
    return Kept(
        version=IDENTITY_VERSION, bits=160, ring="00" * 16, address="h:1", vnodes=(), known=("x:1",),
        incarnation=b"incarnat".hex(), alive_ms=NOW_MS - age_ms,
    )  # fmt: skip


@pytest.mark.parametrize(("age_ms", "is_aside"), [(GRACE_MS, False), (GRACE_MS + 1, True)])
async def test_a_store_is_set_aside_beyond_the_grace_period(tmp_path: Path, age_ms: int, is_aside: bool) -> None:
    start = Start(tmp_path, await filled(tmp_path, age_ms))
    assert await start.give_up() == is_aside
    assert start.keys == ([] if is_aside else [b"a", b"b"])
    assert start.told == ([StoreBegun("away")] if is_aside else [])
    await start.storage.close()


async def test_a_start_that_is_broken_off_does_not_cost_what_was_set_aside(tmp_path: Path) -> None:
    first = Start(tmp_path, await filled(tmp_path, 2 * DAY_MS))
    assert await first.give_up()
    await first.storage.commit(Batch([record(b"of this life")]))
    await first.storage.close()
    second = Start(tmp_path, first.kept)
    assert not await second.give_up(), "what has come since is of this life"
    assert second.keys == [b"of this life"]
    await second.storage.close()
    assert await keys_in(tmp_path, FILE_NAME + ASIDE) == [b"a", b"b"]


async def test_killed_before_it_could_write_that_down_it_sets_no_empty_store_aside(tmp_path: Path) -> None:
    kept = await filled(tmp_path, 2 * DAY_MS)
    for _ in range(3):
        start = Start(tmp_path, msgspec.structs.replace(kept))
        assert await start.give_up()
        assert start.keys == []
        await start.storage.close()
    assert await keys_in(tmp_path, FILE_NAME + ASIDE) == [b"a", b"b"]

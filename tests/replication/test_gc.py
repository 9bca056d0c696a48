"""Garbage collection: old tombstones are reaped, and no returning store brings back a deleted value."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, Limits, RingConstants
from chord.errors import Busy, ChordError, NotFound, WritesRefused
from chord.node import Node
from chord.replication import gc
from chord.replication.gc import GarbageCollector, Held, is_ripe
from chord.replication.read import QuorumReads, Reading
from chord.replication.reap_log_sync import ReapLogSync
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.sim.messages import MessageNetwork
from chord.store import reap_log, versions
from chord.store.reap_log import ReapLog
from chord.store.reap_log_state import Grave
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import (
    MAKERS_MAX,
    ActorClock,
    AreExpired,
    Contact,
    DeadActor,
    EntryRun,
    Forget,
    LogEntry,
    Record,
    SliceLog,
    Version,
)
from chord.wire.messages.base import Done
from tests.models.absence import keys_in_slices
from tests.support.quorum import keep_disks, until, until_in_sync
from tests.support.rings import get, grown, misplaced, only, owner, patiently, put, replicas, virtual

GRACE_S = 5.0
TIMING = msgspec.structs.replace(
    PRESETS["local"], grace_s=GRACE_S, anti_entropy_s=1.0, reprobe_first_s=2.0, reprobe_max_s=8.0
)
LAST = Limits(reap_log_entries=1, reap_log_entries_max=1)
NOTHING = Limits(reap_log_entries=0, reap_log_entries_max=0)
LONG = Limits(reap_log_entries=100_000, reap_log_entries_max=100_000)
MANY = 20
"""More writes than a record remembers as replaced, so no tag of an operation decides about the first one."""


def holders(ring: TestRing, key: bytes) -> list[str]:
    return [node.name for node in ring.nodes if node._host.storage.get(key) is not None]


def hidden(record: Record | None) -> list[bytes]:
    """Return the values of a record that are in quarantine."""
    found = [] if record is None else [version.value for entry in record.quarantine for version in entry.versions]
    return [value for value in found if value is not None]


def hidden_at(ring: TestRing, key: bytes) -> list[str]:
    """Return which nodes hold values of a key in quarantine."""
    return [node.name for node in ring.nodes if hidden(node._host.storage.get(key))]


def named(ring: TestRing, name: str) -> Node:
    return next(node for node in ring.nodes if node.name == name)


async def visible(node: Node, key: bytes) -> tuple[bytes, ...]:
    """Return the values that a reader sees, none if the key is not found."""
    try:
        return await get(node, key)
    except NotFound:
        return ()


# -- reaping ----------------------------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_tombstone_older_than_grace_leaves_every_replica() -> None:
    async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
        await put(ring[0], b"k", b"v")
        await put(ring[1], b"k", None)
        await trio.sleep(GRACE_S - 1)
        assert sorted(holders(ring, b"k")) == sorted(replicas(ring, b"k"))
        await trio.sleep(10)
        assert holders(ring, b"k") == []
        assert sum(node._host.counters["keys_reaped"] for node in ring.nodes) == 1
        with pytest.raises(NotFound):
            await ring[2].get("k")
        await put(ring[3], b"k", b"again")
        assert await get(ring[4], b"k") == (b"again",)
        await trio.sleep(5)
        assert misplaced(ring) == []


@pytest.mark.slow
@virtual
async def test_expired_value_is_reaped_after_grace() -> None:
    async with testing.open_ring(6, seed=2, timing=TIMING) as ring:
        await ring[0].put("k", "v", ttl_s=2)
        assert (await ring[1].get("k")).value == b"v"
        await trio.sleep(3)
        with pytest.raises(NotFound):
            await ring[1].get("k")
        assert holders(ring, b"k") != []
        await trio.sleep(12)
        assert holders(ring, b"k") == []


@pytest.mark.slow
@virtual
async def test_tombstone_beside_living_sibling_stays() -> None:
    async with testing.open_ring(6, seed=3, timing=TIMING) as ring:
        await put(ring[0], b"k", b"v", context=b"")
        await put(ring[0], b"k", None, context=b"")
        await trio.sleep(GRACE_S + 10)
        assert await get(ring[1], b"k") == (b"v",)


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_expired_value_is_kept_while_one_clock_is_behind(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By that clock the value still lives. The planted owner trusts its own clock."""
    if is_planted:

        async def believe(self: GarbageCollector, records: list[Record], members: object) -> list[Record]:
            return records

        monkeypatch.setattr(GarbageCollector, "_expired_everywhere", believe)

    async def main() -> None:
        async with testing.open_ring(6, seed=2, timing=TIMING) as ring:
            await ring[0].put("k", "v", ttl_s=2)
            late = named(ring, replicas(ring, b"k")[1])._host
            late.wall_now_ms = lambda: int(1000 * trio.current_time()) - 60_000
            await trio.sleep(20)
            assert (holders(ring, b"k") == []) is is_planted
            late.wall_now_ms = lambda: int(1000 * trio.current_time())
            await trio.sleep(5)
            assert holders(ring, b"k") == []

    testing.run(main, seed=2)


@pytest.mark.slow
@virtual
async def test_expired_value_is_kept_while_a_member_is_unreachable() -> None:
    async with testing.open_ring(6, seed=2, timing=TIMING) as ring:
        await ring[0].put("k", "v", ttl_s=2)
        away = replicas(ring, b"k")[1]
        await trio.sleep(2)
        ring.network.freeze(away)
        await trio.sleep(20)
        others = [name for name in holders(ring, b"k") if name != away]
        assert others != []
        ring.network.unfreeze(away)
        await trio.sleep(20)
        assert holders(ring, b"k") == []


def test_record_is_ripe_once_everything_in_it_ended() -> None:
    def record(*versions: Version) -> Record:
        return Record(b"k", (ActorClock(bytes(16), len(versions), versions),))

    gone = Version(None, bytes(16), 1_000)
    expired = Version(b"v", b"1" * 16, 0, 1_000)
    living = Version(b"v", b"2" * 16, 0)
    assert is_ripe(record(gone), 1_001)
    assert not is_ripe(record(gone), 1_000)
    assert is_ripe(record(expired), 1_001)
    assert not is_ripe(record(expired), 1_000)
    assert not is_ripe(record(gone, living), 10_000)
    assert is_ripe(record(gone, expired), 1_001)
    hidden = (ActorClock(bytes(16), 1, (living,)),)
    assert not is_ripe(Record(b"k", (), b"", hidden), 10_000), "the reaper leaves values in quarantine alone"


@pytest.mark.slow
@virtual
async def test_owner_of_several_parts_reaps_in_each_of_them() -> None:
    """An owner with a taken-over arc looks at two parts. It must keep the times of both."""
    async with testing.open_ring(6, seed=9, timing=TIMING) as ring:
        keys = [b"key-%d" % number for number in range(30)]
        for key in keys:
            await put(ring[0], key, b"v")
        await ring.kill(owner(ring, keys[0]))
        await trio.sleep(3)
        for key in keys:
            await patiently(lambda key=key: put(ring.nodes[0], key, None))  # type: ignore[misc]
        await trio.sleep(2 * GRACE_S + 6)
        assert [key for key in keys if holders(ring, key)] == []


def test_held_times_an_unchanged_record_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "HELD_RECORDS_MAX", 2)
    held = Held()
    assert held.since(b"a", b"1", 10.0) == 10.0
    assert held.since(b"a", b"1", 20.0) == 10.0
    assert held.since(b"a", b"2", 30.0) == 30.0, "it has changed"
    held.next_round()
    assert held.since(b"a", b"2", 40.0) == 30.0
    held.next_round()
    held.next_round()
    assert held.since(b"a", b"2", 50.0) == 50.0, "the record was not seen for a round"
    held.since(b"b", b"1", 50.0)
    assert held.since(b"c", b"1", 50.0) == 50.0
    assert held.since(b"c", b"1", 60.0) == 60.0, "there is no room for a third"


@virtual
async def test_are_expired_is_false_only_for_living_keys() -> None:
    async with testing.open_ring(1, seed=1, timing=TIMING) as ring:
        await put(ring[0], b"living", b"v")
        await put(ring[0], b"gone", None)
        (parts,) = ring[0]._parts.values()
        asked = AreExpired((b"living", b"gone", b"unheard of"))
        assert parts.reaper.on_are_expired(asked).each == (False, False, True)
        await trio.sleep(GRACE_S + 0.5)
        assert parts.reaper.on_are_expired(asked).each == (False, True, True)


# -- nodes that were away -------------------------------------------------------------------------------

SLICE_KEYS = keys_in_slices(1, 12)
KEY, OTHER = SLICE_KEYS[:2]


@pytest.mark.slow
@virtual
async def test_reap_log_without_any_room_ends_a_delete_with_one_entry() -> None:
    """The owner tells the replicas an entry that its own log trims at once. So no replica sends the tombstone back."""
    async with testing.open_ring(6, seed=5, timing=TIMING, limits=NOTHING) as ring:
        for key in (KEY, OTHER):
            await put(ring[0], key, b"v")
            await put(ring[1], key, None)
        await trio.sleep(GRACE_S + 60)
        assert [holders(ring, key) for key in (KEY, OTHER)] == [[], []]
        assert ring.totals()["keys_reaped"] == 2
        assert ring.totals()["slices_caught_up"] == 0


@virtual
async def test_slice_with_a_full_reap_log_stops_no_other() -> None:
    """A false member has filled the log of one slice with invented makers."""
    elsewhere = next(key for key in keys_in_slices(2, 12) if key not in SLICE_KEYS)
    async with testing.open_ring(1, seed=1, timing=TIMING, limits=LONG) as ring:
        host = ring[0]._host
        part = host.reap_log.slice_of(KEY)
        entry = LogEntry(b"\x00" * 8, (DeadActor(bytes(16), 1),))
        runs = tuple(EntryRun(b"x%07d" % number, 1, (entry,)) for number in range(MAKERS_MAX))
        host.storage.stage(host.reap_log.absorb(SliceLog(part, (), (), (), b"", runs)))
        for key in (KEY, OTHER, elsewhere):
            await put(ring[0], key, None)
        await trio.sleep(2 * GRACE_S + 6)
        assert [bool(holders(ring, key)) for key in (KEY, OTHER, elsewhere)] == [True, True, False]
        assert ring.totals()["keys_reaped"] == 1
        assert len(host.reap_log.state(part).seen) == MAKERS_MAX


@pytest.mark.slow
@virtual
async def test_tombstone_at_a_replica_behind_a_trim_is_reaped() -> None:
    async with testing.open_ring(6, seed=6, timing=TIMING, limits=NOTHING) as ring:
        await put(ring[0], KEY, b"v")
        await put(ring[1], KEY, None)
        await trio.sleep(2)
        away = replicas(ring, KEY)[1]
        ring.network.freeze(away)
        await trio.sleep(GRACE_S + 8)
        ring.network.unfreeze(away)
        await trio.sleep(60)
        assert holders(ring, KEY) == []
        reaped = ring.totals()["keys_reaped"]
        await trio.sleep(60)
        assert ring.totals()["keys_reaped"] == reaped, "the tombstone is reaped for good"


async def away_while_reaped(ring: TestRing, writes: int = 0) -> str:
    """Freeze a replica of a value, delete the value and wait for the reaping; return the replica's name.

    Then the same happens to another key of the slice, so a log of one entry loses the entry of the first key.

    Args:
        writes: made before the delete; the frozen replica misses them as well.
    """
    for key in (KEY, OTHER):
        await put(ring[0], key, b"v")
    await trio.sleep(2)
    away = replicas(ring, KEY)[1]
    ring.network.freeze(away)
    await trio.sleep(2)  # the others notice it, so no copy is on its way to it when it is back
    node = next(node for node in ring.nodes if node.name != away)
    for number in range(writes):
        await patiently(lambda number=number: put(node, KEY, b"%d" % number))  # type: ignore[misc]
    for key in (KEY, OTHER):
        await patiently(lambda key=key: put(node, key, None))  # type: ignore[misc]
        await trio.sleep(GRACE_S + 8)
        still = [name for name in replicas(ring, key) if name != away and name in holders(ring, key)]
        assert still == [], "the others must reap it without the frozen replica"
    return away


def merges_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: stores merge records of stores with other reap logs."""
    patch.setattr(ReapLog, "digest_in", lambda self, arc: b"")
    patch.setattr(ReapLog, "require_same_entries", lambda self, records, seen: None)
    patch.setattr(ReapLog, "durably_seen_of", lambda self, key: b"")


def raises_no_floor(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: a trim forgets the actors of its entries."""
    trim_to = reap_log._Work.trim_to

    def trim(self: Any, part: int, keep: int) -> None:
        floors = dict(self.slice(part).floors)
        trim_to(self, part, keep)
        self.slice(part).floors = floors

    patch.setattr(reap_log._Work, "trim_to", trim)


def waits_for_unreachable(patch: pytest.MonkeyPatch) -> None:
    """Plant a bug: the reaper waits while a node is unreachable."""
    bury = GarbageCollector._bury

    async def wait(self: GarbageCollector, records: list[Record], crowded: Any, others: Any) -> None:
        if not any(self._host.peers.passive.contacts()):
            await bury(self, records, crowded, others)

    patch.setattr(GarbageCollector, "_bury", wait)


class Ended(NamedTuple):
    """The state after a node's return: visible values, values in quarantine, number of slices that caught up."""

    seen: tuple[bytes, ...]
    hidden: list[bytes]
    caught_up: int


def back_after_reaping(limits: Limits, writes: int, before_return: Callable[[], None] = lambda: None) -> Ended:
    async def main() -> Ended:
        async with testing.open_ring(6, seed=4, timing=TIMING, limits=limits) as ring:
            away = await away_while_reaped(ring, writes)
            before_return()
            ring.network.unfreeze(away)
            await trio.sleep(30)
            seen = await visible(ring[0], KEY)
            assert [await visible(node, KEY) for node in ring.nodes] == [seen] * 6
            held = [named(ring, name)._host.storage.get(KEY) for name in replicas(ring, KEY)]
            assert held == [held[0]] * 3, "the quarantine is replicated, too"
            return Ended(seen, hidden(held[0]), ring.totals()["slices_caught_up"])

    return testing.run(main, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "writes", "is_hidden"),
    [(Limits(), 0, False), (Limits(), MANY, False), (LAST, 0, False), (LAST, MANY, True)],
)
def test_node_cut_off_while_tombstone_is_reaped_undoes_nothing(limits: Limits, writes: int, is_hidden: bool) -> None:
    """An entry or an operation's tag decides about the old value. Without both the value is in quarantine."""
    ended = back_after_reaping(limits, writes)
    assert ended.seen == ()
    assert ended.hidden == ([b"v"] if is_hidden else [])
    assert bool(ended.caught_up) == (limits is LAST)


@pytest.mark.slow
def test_reap_log_without_any_room_brings_nothing_back() -> None:
    async def main() -> None:
        async with testing.open_ring(6, seed=4, timing=TIMING, limits=NOTHING) as ring:
            for key in SLICE_KEYS:
                await put(ring[0], key, b"v")
            await trio.sleep(2)
            away = replicas(ring, KEY)[1]
            ring.network.freeze(away)
            node = next(node for node in ring.nodes if node.name != away)
            for key in SLICE_KEYS[:6]:
                await patiently(lambda key=key: put(node, key, None))  # type: ignore[misc]
            await trio.sleep(GRACE_S + 8)
            assert ring.totals()["keys_reaped"] >= 6
            ring.network.unfreeze(away)
            await trio.sleep(30)
            for number, key in enumerate(SLICE_KEYS):
                assert await visible(named(ring, away), key) == (() if number < 6 else (b"v",))
            assert {node._host.reap_log.state(node._host.reap_log.slice_of(KEY)).entries for node in ring.nodes} == {0}

    testing.run(main, seed=4)


@pytest.mark.slow
def test_planted_merge_without_synced_logs_undoes_a_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    assert back_after_reaping(Limits(), 0, lambda: merges_from_anywhere(monkeypatch)).seen == (b"v",)


@pytest.mark.slow
def test_planted_trim_without_floor_undoes_a_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    raises_no_floor(monkeypatch)
    assert back_after_reaping(LAST, MANY).seen == (b"v",)


@pytest.mark.slow
def test_planted_reaping_that_waits_for_down_nodes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_for_unreachable(monkeypatch)
    with pytest.raises(AssertionError, match="without the frozen replica"):
        back_after_reaping(Limits(), 0)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [Limits(), NOTHING])
def test_returned_store_catches_up_and_denies_nothing(limits: Limits) -> None:
    """A node returns with its disk after many grace periods. It drops deleted keys and gets the new values."""

    async def main() -> None:
        async with testing.open_ring(6, seed=6, timing=TIMING, limits=limits) as ring:
            keep_disks(ring)
            keys = [b"key-%d" % number for number in range(60)]
            for key in keys:
                await put(ring[0], key, b"old")
            await trio.sleep(3)
            away = named(ring, replicas(ring, keys[0])[1])
            await ring.kill(away)
            node = ring[0]
            for key in keys[::3]:
                await patiently(lambda key=key: put(node, key, None))  # type: ignore[misc]
            for key in keys[1::3]:
                await patiently(lambda key=key: put(node, key, b"new"))  # type: ignore[misc]
            await trio.sleep(10 * GRACE_S)
            assert ring.totals()["keys_reaped"] >= 10, "the keys of the stopped node may remain"
            back = await ring.start(name=away.name)
            await back.ready()
            await trio.sleep(60)
            await ring.converged()
            for number, key in enumerate(keys):
                expected = ((), (b"new",), (b"old",))[number % 3]
                for node in (back, ring[0]):
                    assert await visible(node, key) == expected
            assert misplaced(ring) == []
            assert [key for key in keys if hidden_at(ring, key)] == [], "a tag or a clock decides about all of them"
            assert bool(ring.totals()["slices_caught_up"]) == (limits is NOTHING)

    testing.run(main, seed=6)


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_entry_reaches_members_that_missed_the_push(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anti-entropy brings the entry. With the planted bug it does not compare logs."""

    async def lose(self: ReapLogSync, partner: object, logs: object) -> None:
        raise Busy("lost on its way")

    async def nothing(self: ReapLogSync, partner: object, arc: object) -> None:
        """Sync no logs."""

    monkeypatch.setattr(ReapLogSync, "tell", lose)
    if is_planted:
        monkeypatch.setattr(ReapLogSync, "sync", nothing)

    async def main() -> None:
        async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
            await put(ring[0], b"k", b"v")
            await put(ring[1], b"k", None)
            await trio.sleep(GRACE_S + 10)
            assert ring.totals()["reaps_unheard"] > 0
            assert (holders(ring, b"k") == []) is not is_planted
            log = owner(ring, b"k")._host.reap_log
            seen = {named(ring, name)._host.reap_log.seen_of(b"k") for name in replicas(ring, b"k")}
            assert (seen == {log.seen_of(b"k")}) is not is_planted

    testing.run(main, seed=1)


async def give_up(self: QuorumReads, reading: Reading, contact: Contact) -> bool:
    """Planted: a replica with another log counts as unreachable."""
    return False


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_read_of_a_reaped_key_syncs_the_logs_of_stand_ins(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader asks all possible holders before a denial. Nodes without a record of the slice have no log of it.

    With the planted bug a holder with another log counts as unreachable.
    """
    if is_planted:
        monkeypatch.setattr(QuorumReads, "_sync_log", give_up)

    async def main() -> bool:
        async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
            await put(ring[0], b"k", b"v")
            await put(ring[1], b"k", None)
            await trio.sleep(GRACE_S + 10)
            assert holders(ring, b"k") == []
            with suppress(Busy):
                return await get(owner(ring, b"k"), b"k") != ()
            return True

    assert testing.run(main, seed=1) is is_planted


# -- how long a log is -----------------------------------------------------------------------------------

SHORT = Limits(reap_log_entries=4, reap_log_entries_max=8)


def entries_at(ring: TestRing) -> dict[str, int]:
    """Return how long the log of the slice of these keys is at its members."""
    part = ring[0]._host.reap_log.slice_of(SLICE_KEYS[0])
    members = [named(ring, name) for name in replicas(ring, SLICE_KEYS[0]) if name in {n.name for n in ring.nodes}]
    return {node.name: node._host.reap_log.state(part).entries for node in members}


async def deleted(ring: TestRing, keys: list[bytes], node: Node) -> None:
    for key in keys:
        await patiently(lambda key=key: put(node, key, None))  # type: ignore[misc]
    await trio.sleep(GRACE_S + 8)


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_trimming_waits_for_unreachable_nodes_up_to_the_limit(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_planted:
        monkeypatch.setattr(GarbageCollector, "_is_whole", lambda self, arc, members: True)

    async def main() -> None:
        async with testing.open_ring(6, seed=4, timing=TIMING, limits=SHORT) as ring:
            keys = SLICE_KEYS
            for key in keys:
                await put(ring[0], key, b"v")
            await trio.sleep(3)
            away = next(name for name in (n.name for n in ring.nodes) if name not in replicas(ring, keys[0]))
            ring.network.freeze(away)  # not a member: it holds no record, but the others cannot know that
            asker = named(ring, replicas(ring, keys[0])[0])
            await deleted(ring, keys[:8], asker)
            if is_planted:
                assert set(entries_at(ring).values()) == {SHORT.reap_log_entries // 2}
                return
            assert set(entries_at(ring).values()) == {8}, "a node is unreachable, and the log still fits the hard limit"
            assert {node._host.reap_log.forced_trims for node in ring.nodes} == {0}
            await deleted(ring, keys[8:9], asker)
            assert set(entries_at(ring).values()) == {SHORT.reap_log_entries}
            assert asker._host.reap_log.forced_trims > 0, "it is counted"
            ring.network.unfreeze(away)
            await deleted(ring, keys[9:], asker)
            await trio.sleep(20)
            assert max(entries_at(ring).values()) <= SHORT.reap_log_entries

    testing.run(main, seed=4)


@pytest.mark.slow
@virtual
async def test_trimming_continues_once_a_down_node_is_forgotten() -> None:
    async with testing.open_ring(6, seed=4, timing=TIMING, limits=SHORT) as ring:
        keys = SLICE_KEYS
        for key in keys:
            await put(ring[0], key, b"v")
        await trio.sleep(3)
        away = next(node for node in ring.nodes if node.name not in replicas(ring, keys[0]))
        await ring.kill(away, silently=True)
        asker = named(ring, replicas(ring, keys[0])[0])
        await deleted(ring, keys[:8], asker)
        assert set(entries_at(ring).values()) == {8}
        for node in ring.nodes:
            await node._host.peers.call(node.address, Forget(away.address), Done)
        await until(lambda: set(entries_at(ring).values()) == {SHORT.reap_log_entries // 2})
        assert {node._host.reap_log.forced_trims for node in ring.nodes} == {0}


@pytest.mark.slow
@virtual
async def test_forgotten_node_that_returns_brings_back_nothing() -> None:
    """The node was suspended when the operator gave it up, so it does not know that."""
    async with testing.open_ring(6, seed=4, timing=TIMING) as ring:
        await put(ring[0], KEY, b"v")
        await trio.sleep(3)
        away = replicas(ring, KEY)[1]
        others = [node for node in ring.nodes if node.name != away]
        ring.network.freeze(away)
        await trio.sleep(5)
        for node in others:
            await node._host.peers.call(node.address, Forget(named(ring, away).address), Done)
        await patiently(lambda: put(others[0], KEY, None), within_s=10)
        await trio.sleep(GRACE_S + 10)
        assert holders(ring, KEY) == [away]
        ring.network.unfreeze(away)
        await trio.sleep(30)
        await ring.converged()
        assert holders(ring, KEY) == []
        for node in ring.nodes:
            assert await visible(node, KEY) == ()


# -- quarantine --------------------------------------------------------------------------------------------


async def with_hidden_value(ring: TestRing) -> None:
    """Bring all replicas of a key to hold its old value in quarantine."""
    away = await away_while_reaped(ring, MANY)
    ring.network.unfreeze(away)
    await until(lambda: sorted(hidden_at(ring, KEY)) == sorted(replicas(ring, KEY)))
    assert named(ring, away)._host.counters["ValuesQuarantined"] == 1, "the returned node reports the value"


@pytest.mark.slow
@virtual
async def test_quarantined_value_is_freed_by_a_live_copy() -> None:
    """A live value of its actor shows that the actor was not reaped."""
    async with testing.open_ring(6, seed=4, timing=TIMING, limits=LAST) as ring:
        await with_hidden_value(ring)
        node = owner(ring, KEY)
        record = node._host.storage.get(KEY)
        assert record is not None
        live = Record(KEY, record.quarantine)
        await next(iter(node._parts.values())).records.merge([live], node._host.reap_log.seen_of_each([live]))
        await until(lambda: hidden_at(ring, KEY) == [])
        assert [await visible(node, KEY) for node in ring.nodes] == [(b"v",)] * 6


@pytest.mark.slow
@virtual
async def test_key_with_quarantined_value_can_be_written_and_deleted() -> None:
    async with testing.open_ring(6, seed=4, timing=TIMING, limits=LAST) as ring:
        await with_hidden_value(ring)
        await put(ring[1], KEY, b"new")
        assert [await visible(node, KEY) for node in ring.nodes] == [(b"new",)] * 6
        await trio.sleep(5)
        assert sorted(hidden_at(ring, KEY)) == sorted(replicas(ring, KEY))
        await put(ring[2], KEY, None)
        await trio.sleep(GRACE_S + 10)
        assert [await visible(node, KEY) for node in ring.nodes] == [()] * 6
        assert sorted(hidden_at(ring, KEY)) == sorted(replicas(ring, KEY)), "only an operator removes it"
        held = owner(ring, KEY)._host.storage.get(KEY)
        assert held is not None
        assert held.clock == (), "the tombstone beside it is reaped like any other"


@pytest.mark.slow
@virtual
async def test_quarantine_outlives_its_first_holder() -> None:
    """All replicas have the quarantine of the returned store, so it survives a lost disk."""
    async with testing.open_ring(6, seed=4, timing=TIMING, limits=LAST) as ring:
        await with_hidden_value(ring)
        first = named(ring, replicas(ring, KEY)[1])
        await ring.restart(first)
        await ring.converged()
        await until(lambda: sorted(hidden_at(ring, KEY)) == sorted(replicas(ring, KEY)))
        assert await visible(ring[0], KEY) == ()


# -- a full disk --------------------------------------------------------------------------------------

OLD, NEW = b"old", b"new"


@asynccontextmanager
async def owner_of_one_slice(count: int) -> AsyncIterator[tuple[Cluster, Node, list[bytes]]]:
    """Have five nodes on disks; yield the machines, the third node, and written keys of one of its slices."""
    constants = RingConstants(replicas=3, successors=4)
    network = MessageNetwork(1)
    async with cluster(seed=3, ring=constants, timing=TIMING, network=network, sync_delay=flash) as machines:
        first = await grown(machines, 5)
        node = machines[2]
        many = (b"key-%d" % number for number in range(80_000))
        keys = same_slice((key for key in many if owner(machines, key) is node), node, count)
        for key in keys:
            await put(first, key, OLD)
        await until_in_sync(machines)
        yield machines, node, keys


def same_slice(keys: Iterable[bytes], node: Node, count: int) -> list[bytes]:
    """Return the first `count` keys that share a slice."""
    slices: dict[int, list[bytes]] = {}
    for key in keys:
        found = slices.setdefault(node._host.reap_log.slice_of(key), [])
        found.append(key)
        if len(found) == count:
            return found
    raise AssertionError(f"no slice has {count} of the keys")


async def read_with_a_full_disk() -> list[tuple[bytes, ...] | str]:
    """Reap a key and overwrite another while their owner is cut off, and let the owner return with a full disk.

    Both keys lie in one slice. Return the owner's answers for them, the reaped key first.
    """
    async with owner_of_one_slice(2) as (machines, node, (deleted, kept)):
        network, first = machines.network, machines[0]
        network.freeze(node.name)
        await trio.sleep(4)
        await persistently(lambda: first.delete(deleted))
        await persistently(lambda: put(first, kept, NEW))
        others = [other for other in machines.nodes if other is not node]
        await until(lambda: not any(other._host.storage.get(deleted) for other in others), 60)
        machines.disk(node.name).fill()
        network.unfreeze(node.name)
        await trio.sleep(10)
        assert node._host.storage.get(deleted) is not None, "its disk takes no log entry"
        assert node._host.storage.refusal
        return [await answer_of(node, key) for key in (deleted, kept)]


async def read_while_each_replica_has_reaped_another_key() -> list[tuple[bytes, ...] | str]:
    """Give each replica a log entry that the others lack, and fill the owner's disk; return the owner's answers.

    One replica each reaps the first three keys, the owner the first of them. No replica reaps the last key.
    """
    async with owner_of_one_slice(4) as (machines, node, keys):
        members = [place.contact.address for place in only(node).replica_set(node._host.circle.hash(keys[0])).members]
        nodes = [next(other for other in machines.nodes if other.address == address) for address in members]
        for other, key in zip(nodes, keys, strict=False):
            record = other._host.storage.get(key)
            assert record is not None
            await other._host.storage.commit(other._host.reap_log.bury([Grave(record, versions.context_of(record))]))
        machines.disk(node.name).fill()
        with pytest.raises(WritesRefused):
            await node._host.storage.commit(Batch([Record(keys[3], ())]))
        await trio.sleep(10)
        for key in keys:
            await answer_of(node, key)  # the first read may only sync the replicas' logs
        return [await answer_of(node, key) for key in keys]


async def persistently(operation: Callable[[], Awaitable[object]]) -> None:
    """Try again until it succeeds."""
    with trio.fail_after(30):
        while True:
            try:
                await operation()
                return
            except ChordError:
                await trio.sleep(0.1)


async def answer_of(node: Node, key: bytes) -> tuple[bytes, ...] | str:
    """Return the values that a node finds, or the word of its error."""
    try:
        return await get(node, key)
    except ChordError as error:
        return error.word


@pytest.mark.slow
def test_owner_with_a_full_disk_and_an_old_log_answers() -> None:
    assert testing.run(read_with_a_full_disk, seed=1) == [(), (NEW,)]


@pytest.mark.slow
def test_owner_with_a_full_disk_answers_across_different_reaps() -> None:
    assert testing.run(read_while_each_replica_has_reaped_another_key, seed=1) == [(), (), (), (OLD,)]


@pytest.mark.slow
def test_planted_logs_read_ahead_but_not_sent_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def keep(self: ReapLogSync, partner: Contact, logs: list[SliceLog]) -> None:
        return

    monkeypatch.setattr(ReapLogSync, "tell", keep)
    assert "busy" in testing.run(read_while_each_replica_has_reaped_another_key, seed=1)


@pytest.mark.slow
def test_planted_full_disk_without_reading_ahead_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QuorumReads, "_read_ahead", give_up)
    answers = testing.run(read_with_a_full_disk, seed=1)
    assert answers in (["too_few_replicas", "too_few_replicas"], [(OLD,), (OLD,)]), "the latter with a stand-in"


@pytest.mark.slow
def test_planted_log_read_ahead_but_not_applied_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    read_ahead = Reading.read_ahead

    def as_it_was(self: Reading, log: SliceLog, record: Record | None, seen: bytes) -> list[Contact]:
        return read_ahead(self, log, self.own, seen)

    monkeypatch.setattr(Reading, "read_ahead", as_it_was)
    assert testing.run(read_with_a_full_disk, seed=1)[0] == (OLD,)

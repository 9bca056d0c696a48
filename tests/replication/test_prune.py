"""Pruning: records forget old actors, no old copy returns, and no dot is minted twice."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS
from chord.errors import Behind
from chord.node import Node
from chord.replication import prune
from chord.replication.prune import PRUNE_FROM, Emptied
from chord.store import versions
from chord.store.merkle import digest_of
from chord.store.reap_log import _Work
from chord.store.reap_log_state import Grave
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import ActorClock, Record, Version
from tests.support.rings import get, only, owner, put, replicas, virtual

KEY = b"k"
GRACE_S = 5.0
TIMING = msgspec.structs.replace(PRESETS["local"], grace_s=GRACE_S, anti_entropy_s=1.0, reprobe_first_s=2.0)
ACTORS = tuple(sorted(versions.actor(b"stranger", number) for number in range(PRUNE_FROM + 8)))
LATELY_MS = 1 << 45  # in the future, so never older than the grace time
OLD = Version(b"old", b"1" * 16, 1)


def crowded(written_ms: int = LATELY_MS) -> Record:
    """Return a record of all `ACTORS` with one value left."""
    new = Version(b"new", b"2" * 16, written_ms)
    return Record(KEY, tuple(ActorClock(actor, 1, (new,) if actor == ACTORS[0] else ()) for actor in ACTORS))


def holders(ring: TestRing) -> list[Node]:
    return [node for node in ring.nodes if node._host.storage.get(KEY) is not None]


def lengths(ring: TestRing) -> set[int]:
    """Return the numbers of actors in the copies."""
    return {len(record.clock) for node in ring.nodes if (record := node._host.storage.get(KEY)) is not None}


def place(ring: TestRing, record: Record, **minted: dict[bytes, bytes]) -> None:
    for node in ring.nodes:
        if node.name in replicas(ring, KEY):
            node._host.storage.apply(Batch(puts=(record,), **minted))


@pytest.mark.slow
@virtual
async def test_actors_empty_for_the_grace_time_are_pruned_everywhere() -> None:
    async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
        await trio.sleep(5)
        place(ring, crowded())
        await trio.sleep(GRACE_S - 1)
        assert lengths(ring) == {len(ACTORS)}
        await trio.sleep(10)
        assert lengths(ring) == {1}
        assert {node.name for node in holders(ring)} == set(replicas(ring, KEY))
        assert len({digest_of(node._host.storage.get(KEY)) for node in holders(ring)}) == 1  # type: ignore[arg-type]
        assert await get(ring[0], KEY) == (b"new",)
        await put(ring[1], KEY, b"newer")
        assert await get(ring[2], KEY) == (b"newer",)


@pytest.mark.slow
@virtual
async def test_actor_replaced_by_an_old_value_is_pruned_early() -> None:
    async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
        await trio.sleep(5)
        now_ms = ring[0]._host.wall_now_ms()
        place(ring, crowded(now_ms - int(1000 * GRACE_S) + 1500))
        await trio.sleep(1)
        assert lengths(ring) == {len(ACTORS)}
        await trio.sleep(3)
        assert lengths(ring) == {1}


@pytest.mark.slow
@virtual
async def test_context_from_before_the_pruning_covers_what_it_saw() -> None:
    async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
        await trio.sleep(5)
        place(ring, crowded())
        seen = await ring[0].get("k")
        await trio.sleep(GRACE_S + 9)
        assert lengths(ring) == {1}
        await ring[0].put("k", "settled", context=seen.context)
        assert (await ring[1].get("k")).values == (b"settled",)


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_store_that_pruned_its_own_actor_mints_under_a_new_one(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's last dot of the key is pruned, and must not be minted again."""
    if is_planted:

        def replace(self: _Work, old: Record, new: Record | None, gone: object) -> None:
            self._records[old.key] = new

        monkeypatch.setattr(_Work, "replace", replace)

    async def main() -> None:
        async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
            await trio.sleep(5)
            first = owner(ring, KEY)
            mine = versions.actor(first._host.storage.incarnation, first._host.storage.next_key_epoch())
            clock = (*crowded().clock, ActorClock(mine, 1, ()))
            place(ring, Record(KEY, tuple(sorted(clock, key=lambda entry: entry.actor))))
            first._host.storage.apply(Batch(puts=(first._host.storage.get(KEY),), minted={KEY: mine}))  # type: ignore[arg-type]
            await trio.sleep(GRACE_S + 9)
            assert lengths(ring) == {1}
            await put(ring[1], KEY, b"newer", context=b"")
            (minted,) = [e for e in first._host.storage.get(KEY).clock if e.actor != ACTORS[0]]  # type: ignore[union-attr]
            assert ((minted.actor, minted.count) == (mine, 1)) is is_planted

    testing.run(main, seed=1)


def keep_log(node: Node) -> None:
    """Leave the reap log as it is."""


def trim_log(node: Node) -> None:
    log = node._host.reap_log
    node._host.storage.apply(log.trim(log.slice_of(KEY), 0))


def lose_log(node: Node) -> None:
    """The planted bug: actors are pruned without an entry in a reap log."""
    node._host.storage.apply(Batch(notes=dict.fromkeys(node._host.storage.notes())))
    node._host.reap_log._slices = None


def old_copy_after_pruning(change: Callable[[Node], None]) -> tuple[tuple[bytes, ...], list[Record | None]]:
    """Freeze a replica with an old value while the others prune its actor; return the final values and copies.

    Args:
        change: is applied at each other node before the replica returns.
    """

    async def main() -> tuple[tuple[bytes, ...], list[Record | None]]:
        async with testing.open_ring(6, seed=4, timing=TIMING) as ring:
            await trio.sleep(5)
            place(ring, crowded())
            away = next(node for node in ring.nodes if node.name == replicas(ring, KEY)[1])
            ring.network.freeze(away.name)
            old = Record(KEY, (ActorClock(ACTORS[1], 1, (OLD,)),))
            away._host.storage.apply(Batch(removals=[KEY]))
            away._host.storage.apply(Batch(puts=(old,)))
            await trio.sleep(GRACE_S + 10)
            pruned = [node._host.storage.get(KEY) for node in holders(ring) if node is not away]
            assert {len(record.clock) for record in pruned if record is not None} == {1}, "pruned without it"
            for node in ring.nodes:
                if node is not away:
                    change(node)
            ring.network.unfreeze(away.name)
            await trio.sleep(30)
            held = [node._host.storage.get(KEY) for node in ring.nodes if node.name in replicas(ring, KEY)]
            return (await ring[0].get("k")).values, held

    return testing.run(main, seed=4)


@pytest.mark.slow
@pytest.mark.parametrize("change", [keep_log, trim_log])
def test_old_copy_of_pruned_actor_does_not_return(change: Callable[[Node], None]) -> None:
    values, held = old_copy_after_pruning(change)
    assert values == (b"new",)
    assert held == [held[0]] * 3
    assert held[0] is not None
    hidden = [version for entry in held[0].quarantine for version in entry.versions]
    assert hidden == ([] if change is keep_log else [OLD]), "the log decides, if it still has the entry"


@pytest.mark.slow
def test_planted_pruning_without_an_entry_is_caught() -> None:
    values, _ = old_copy_after_pruning(lose_log)
    assert sorted(values) == [b"new", b"old"]


@pytest.mark.slow
@virtual
async def test_copy_from_before_the_pruning_is_refused() -> None:
    """The copy's store has not seen the entry, so the copy would bring all actors back."""
    async with testing.open_ring(6, seed=1, timing=TIMING) as ring:
        await trio.sleep(5)
        place(ring, crowded())
        await trio.sleep(GRACE_S + 9)
        assert lengths(ring) == {1}
        node = owner(ring, KEY)
        with pytest.raises(Behind):
            await node._parts[only(node).id].records.merge([crowded()], ())
        assert lengths(ring) == {1}


def test_ripe_excludes_actors_that_changed_meanwhile() -> None:
    emptied = Emptied(10.0)
    before = crowded()
    assert emptied.ripe(before, 0.0, 0) == ()
    assert emptied.ripe(before, 9.9, 0) == ()
    clock = {entry.actor: entry for entry in before.clock}
    clock[ACTORS[5]] = ActorClock(ACTORS[5], 2, ())  # written through once more, and replaced
    clock[ACTORS[6]] = ActorClock(ACTORS[6], 2, (msgspec.structs.replace(OLD, written_ms=LATELY_MS),))
    after = Record(KEY, tuple(clock[actor] for actor in ACTORS))
    ripe = emptied.ripe(after, 10.0, 0)
    assert set(ACTORS) - set(ripe) == {ACTORS[0], ACTORS[5], ACTORS[6]}
    assert emptied.ripe(after, 11.0, 0) == ripe, "the actors stay ripe until they are pruned"
    counts = versions.context_of(after)
    left = versions.bury(after, {actor: counts[actor] for actor in ripe})
    assert left is not None
    assert {entry.actor for entry in left.clock} == {ACTORS[0], ACTORS[5], ACTORS[6]}
    others = Record(KEY, tuple(ActorClock(actor, entry.count + 5, entry.versions) for actor, entry in clock.items()))
    assert emptied.ripe(others, 12.0, 0) == ()
    assert emptied.ripe(others, 21.9, 0) == (), "the time starts again for changed entries"
    assert len(emptied.ripe(others, 22.0, 0)) == len(ACTORS) - 2


def test_ripe_of_a_record_with_few_actors_is_empty() -> None:
    emptied = Emptied(10.0)
    few = Record(KEY, crowded().clock[:PRUNE_FROM])
    assert emptied.ripe(few, 0.0, 0) == emptied.ripe(few, 20.0, 0) == ()


def test_ripe_without_room_for_all_records_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "WATCHED_MAX", 8)
    emptied = Emptied(10.0)
    clocks = {b"%d" % number: crowded().clock for number in range(12)}
    pruned: list[int] = []
    for second in range(0, 60, 5):
        for key in clocks:
            if emptied.ripe(Record(key, clocks[key]), float(second), 0):
                clocks[key] = clocks[key][:1]
        pruned.append(sum(len(clock) == 1 for clock in clocks.values()))
    assert pruned[:6] == [0, 0, 8, 8, 12, 12] or pruned[:7] == [0, 0, 8, 8, 8, 12, 12]


def test_ripe_drops_absent_records_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "WATCHED_MAX", 8)
    emptied = Emptied(10.0)
    for number in range(8):
        assert emptied.ripe(Record(b"gone %d" % number, crowded().clock), 0.0, 0) == ()
    for second in (20.0, 32.0, 42.0):
        found = emptied.ripe(crowded(), second, 0)
    assert len(found) == len(ACTORS) - 1


@virtual
async def test_bury_of_a_record_that_changed_meanwhile_is_left_out() -> None:
    """A write may arrive between the check of a record and its burial. It must survive."""
    async with testing.open_ring(3, seed=1, timing=TIMING) as ring:
        await trio.sleep(5)
        place(ring, crowded())
        node = owner(ring, KEY)
        reaper = node._parts[only(node).id].reaper
        before = crowded()
        grave = Grave(before, dict.fromkeys(ACTORS[1:], 1))
        await put(node, KEY, b"newer", context=b"")
        await reaper._bury([], [grave], [])
        assert len(node._host.storage.get(KEY).clock) == len(ACTORS) + 1  # type: ignore[union-attr]
        now = node._host.storage.get(KEY)
        assert now is not None
        await reaper._bury([], [Grave(now, grave.dead)], [])
        assert len(node._host.storage.get(KEY).clock) == 2  # type: ignore[union-attr]

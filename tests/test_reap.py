"""Tombstones go on proof, and never too early: a delete must not be undone by whoever was away with the old value."""

from __future__ import annotations

import msgspec
import pytest
import trio
from quorums import until
from worlds import get, misplaced, patiently, put, replicas, virtual

from chord import testing
from chord.config import PRESETS
from chord.data import reap
from chord.data.reap import Reaper, is_ripe, knows_of_silent
from chord.data.storage import Batch
from chord.errors import ChordError, NotFound
from chord.host import Host
from chord.messages import ActorClock, Forget, Ping, Pong, Reap, Record, Version
from chord.messages.base import Done
from chord.node import Node
from chord.resume import Resumption
from chord.testing.rings import MemoryRing

GRACE_S = 5.0
TIMING = msgspec.structs.replace(
    PRESETS["local"], grace_s=GRACE_S, anti_entropy_s=1.0, reprobe_first_s=2.0, reprobe_max_s=8.0
)


def holders(ring: MemoryRing, key: bytes) -> list[str]:
    return [node.name for node in ring.nodes if node.host.storage.get(key) is not None]


def named(ring: MemoryRing, name: str) -> Node:
    return next(node for node in ring.nodes if node.name == name)


@pytest.mark.slow
@virtual
async def test_a_tombstone_goes_from_all_replicas_when_it_is_old_enough_and_no_sooner() -> None:
    async with testing.ring(6, seed=1, timing=TIMING) as ring:
        await put(ring[0], b"k", b"v")
        await put(ring[1], b"k", None)
        await trio.sleep(GRACE_S - 1)
        assert sorted(holders(ring, b"k")) == sorted(replicas(ring, b"k"))
        await trio.sleep(10)
        assert holders(ring, b"k") == []
        assert sum(node.host.counters["keys_reaped"] for node in ring.nodes) == 1
        with pytest.raises(NotFound):
            await ring[2].get("k")
        await put(ring[3], b"k", b"again")
        assert await get(ring[4], b"k") == (b"again",)
        await trio.sleep(5)
        assert misplaced(ring) == []


@pytest.mark.slow
@virtual
async def test_values_that_lived_for_a_time_go_likewise() -> None:
    async with testing.ring(6, seed=2, timing=TIMING) as ring:
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
async def test_a_key_with_a_living_sibling_stays() -> None:
    async with testing.ring(6, seed=3, timing=TIMING) as ring:
        await put(ring[0], b"k", b"v", context=b"")
        await put(ring[0], b"k", None, context=b"")
        await trio.sleep(GRACE_S + 10)
        assert await get(ring[1], b"k") == (b"v",)


async def deleted_while_one_is_frozen(ring: MemoryRing) -> str:
    """Freeze a replica that holds a value, delete the value, let the grace period pass; return who it was."""
    await put(ring[0], b"k", b"v")
    await trio.sleep(2)
    away = replicas(ring, b"k")[1]
    ring.network.freeze(away)
    others = [node for node in ring.nodes if node.name != away]
    await patiently(lambda: put(others[0], b"k", None))
    await trio.sleep(GRACE_S + 10)
    return away


@pytest.mark.slow
@virtual
async def test_while_a_node_is_silent_nothing_is_forgotten_and_when_it_is_back_it_is() -> None:
    async with testing.ring(6, seed=4, timing=TIMING) as ring:
        away = await deleted_while_one_is_frozen(ring)
        assert len(holders(ring, b"k")) >= 3
        ring.network.unfreeze(away)
        await trio.sleep(30)
        assert holders(ring, b"k") == []
        with pytest.raises(NotFound):
            await named(ring, away).get("k")


@pytest.mark.slow
@virtual
async def test_an_operator_may_say_that_it_will_never_be_back() -> None:
    async with testing.ring(6, seed=5, timing=TIMING) as ring:
        away = named(ring, await deleted_while_one_is_frozen(ring))
        await ring.kill(away)
        await trio.sleep(5)
        assert holders(ring, b"k") != []
        for node in ring.nodes:
            await node.host.peers.call(node.address, Forget(away.address), Done)
        await trio.sleep(20)
        assert holders(ring, b"k") == []


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_planted_forgetting_while_somebody_is_away_undoes_the_delete(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a write quorum has deleted, and forgotten, comes back with the one who was away."""
    if is_planted:
        monkeypatch.setattr(reap, "knows_of_silent", lambda host: False)

        def is_whole(self: Reaper, arc: object, who: object) -> bool:
            return True

        async def reap_at_w(self: Reaper, heads: list[object], who: object) -> None:
            up = [place.contact for place in who.everyone if self._vnode.is_up(place)]  # type: ignore[attr-defined]
            for contact in up:
                await self._ask(contact, Reap(tuple(heads), "drop"))  # type: ignore[arg-type]

        monkeypatch.setattr(Reaper, "_is_whole", is_whole)
        monkeypatch.setattr(Reaper, "_reap", reap_at_w)

    async def main() -> bool:
        async with testing.ring(6, seed=4, timing=TIMING) as ring:
            away = await deleted_while_one_is_frozen(ring)
            ring.network.unfreeze(away)
            await trio.sleep(30)
            try:
                return bool((await ring[0].get("k")).values)
            except ChordError:
                return False

    assert testing.run(main, seed=4) == is_planted


@pytest.mark.slow
@virtual
async def test_what_is_left_over_where_nobody_knew_of_goes_too() -> None:
    """A replica holds a reaped tombstone still, its owner or another. All are equal again long before `REAPED_S`."""
    async with testing.ring(6, seed=6, timing=TIMING) as ring:
        await put(ring[0], b"k", b"v")
        await put(ring[1], b"k", None)
        tombstone = next(r for node in ring.nodes if (r := node.host.storage.get(b"k")) is not None)
        await trio.sleep(GRACE_S + 10)
        assert holders(ring, b"k") == []
        for name in replicas(ring, b"k"):
            named(ring, name).host.storage.apply(Batch(puts=(tombstone,)))
            await trio.sleep(12)
            assert holders(ring, b"k") == [], name


def test_ripe_is_what_has_ended_long_enough_ago() -> None:
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


# -- who is coming back -----------------------------------------------------------------------------


def only_doubtful(host: Host) -> bool:
    """Planted for `knows_of_silent`: who is heard of again is there."""
    return any(host.peers.is_doubtful(contact) for contact in host.peers.passive.contacts())


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_who_answers_and_has_no_place_yet_counts_as_silent(is_planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It holds what it held, and nobody compares it; that it is heard of is no proof of anything."""
    resume = Resumption.resume
    is_silent = only_doubtful if is_planted else knows_of_silent

    async def main() -> None:
        async with testing.ring(6, seed=8, timing=TIMING) as ring:
            away = ring[2]
            await ring.kill(away)
            await until(lambda: missing(ring, away))
            witness = missing(ring, away)[0]
            monkeypatch.setattr(Resumption, "resume", never)
            again = await ring.start(join=(), name=away.name)
            await again.host.peers.call(witness.address, Ping(), Pong)
            assert not witness.host.peers.is_doubtful(away.contact)
            assert is_silent(witness.host) is not is_planted
            await trio.sleep(TIMING.reprobe_max_s)
            assert is_silent(witness.host) is not is_planted
            monkeypatch.setattr(Resumption, "resume", resume)
            await (await ring.restart(again)).ready()
            await until(lambda: not knows_of_silent(witness.host), within_s=3 * TIMING.reprobe_max_s)

    testing.run(main, seed=8)


def missing(ring: MemoryRing, away: Node) -> list[Node]:
    """Return who remembers a node as silent."""
    return [node for node in ring.nodes if away.contact in node.host.peers.passive.contacts()]


async def never(resumption: Resumption, *args: object) -> None:
    await trio.sleep_forever()

"""With N = 1, the mark of a dead owner outlives an older goodbye of that owner."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, RingConstants
from chord.errors import NotFound, OwnerDown
from chord.ids import Point
from chord.net.goodbyes import Goodbyes, WallTimes
from chord.net.peers import Peers
from chord.ring import ages
from chord.ring.merge import RingMerge
from chord.sim.cluster import cluster
from chord.sim.disk import flash
from chord.wire.messages import Contact
from tests.support.quorum import clockwise, keep_disks, key_at, timing, until
from tests.support.rings import grown, in_order, only

VALUE = b"acknowledged"


async def ask_no_node(self: RingMerge) -> None:
    """Ask no vnode whether it is back: the return was too short."""


async def heir_leaves_to_a_node_that_missed_a_return() -> None:
    """An owner leaves, joins again, takes a write and dies. Then its heir leaves."""
    async with testing.open_ring(6, seed=3, replicas=1, timing=timing()) as ring:
        keep_disks(ring)
        key = key_at(ring, "n2")
        owner, heir, last, other, *_ = clockwise(ring, key)
        await owner.leave()
        await ring.converged()
        assert last._host.peers.is_known_to_have_left(only(owner).me)
        await trio.sleep(5)  # a return within the time of a message looks older than it is
        owner = await ring.start(name=owner.name, join=[other])
        await owner.ready()
        await owner.put(key, VALUE)
        await ring.kill(owner)
        await until(lambda: only(heir).ownership.marks)
        await heir.leave()
        await ring.converged()
        await trio.sleep(5)
        with pytest.raises(OwnerDown):
            await other.get(key)
        back = await ring.start(name=owner.name)
        await back.ready()
        await ring.converged()
        assert (await other.get(key)).values == (VALUE,)


def test_mark_outlives_an_older_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingMerge, "_ask_whether_back", ask_no_node)
    testing.run(heir_leaves_to_a_node_that_missed_a_return, seed=1)


def test_planted_sight_that_is_not_handed_on_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RingMerge, "_ask_whether_back", ask_no_node)
    monkeypatch.setattr(ages, "_owned_ms", lambda contact, peers: None)
    with pytest.raises(NotFound):
        testing.run(heir_leaves_to_a_node_that_missed_a_return, seed=1)


WITHOUT_WAITING = msgspec.structs.replace(PRESETS["local"], down_out_s=5.0)


async def waited_for_after_restarts(replicas: int, restarts: int) -> bool:
    """A vnode leaves while a node is cut off. Some of the others restart. Is the vnode still waited for in the end?"""
    constants = RingConstants(replicas=replicas)
    async with cluster(seed=2, sync_delay=flash, timing=WITHOUT_WAITING, ring=constants) as machines:
        await grown(machines, 5)
        await trio.sleep(5)
        _, leaver, cut_off, *_ = in_order(machines)
        left = only(leaver).me
        others = [node for node in machines.nodes if node not in (leaver, cut_off)]
        machines.network.partition([cut_off.name], reset=True)
        await trio.sleep(3)
        with trio.fail_after(60):
            await leaver.leave()
        for node in others[:restarts]:
            await trio.sleep(3)
            await machines.kill(node)
            await (await machines.start(name=node.name)).ready()
        machines.network.heal()
        await trio.sleep(90)
        return left.id in cut_off._host.peers.passive


@pytest.mark.slow
@pytest.mark.parametrize(("replicas", "restarts"), [(1, 0), (1, 3), (3, 2)])
def test_goodbye_counts_at_a_node_that_was_cut_off(replicas: int, restarts: int) -> None:
    assert not testing.run(waited_for_after_restarts, replicas, restarts, seed=1)


@pytest.mark.slow
def test_planted_goodbye_without_its_time_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def to_keep(self: Goodbyes, vnodes: Iterable[Point], wall_now_ms: int, now: float) -> tuple[WallTimes, WallTimes]:
        return tuple((vnode, 0) for vnode in self.latest()), ()

    monkeypatch.setattr(Goodbyes, "to_keep", to_keep)
    assert testing.run(waited_for_after_restarts, 1, 3, seed=1)


@pytest.mark.slow
def test_planted_sight_that_is_not_dated_back_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(contact: Contact, owned_ms: int | None, peers: Peers, sent_at: float) -> None:
        if owned_ms is not None:
            peers.goodbyes.owned(contact.id, peers.now() - (owned_ms - 1) / 1000)

    monkeypatch.setattr(ages, "_note_owner", note)
    assert testing.run(waited_for_after_restarts, 1, 0, seed=1)


def test_goodbye_of_unknown_age_is_older_than_any_sight() -> None:
    """Nodes of an earlier version send no ages."""

    async def main() -> None:
        async with testing.open_ring(2, seed=1) as ring:
            await trio.sleep(1)
            node = ring[0]
            transfers, peers = next(iter(node._parts.values())).transfers, node._host.peers
            seen, unseen = Contact(Point(1), "seen:1"), Contact(Point(2), "unseen:1")
            peers.took_its_place(seen, trio.current_time(), is_owner=True)
            transfers._learn_left([(seen.id, None), (unseen.id, None)])
            assert (peers.is_known_to_have_left(seen), peers.is_known_to_have_left(unseen)) == (False, True)
            await trio.sleep(1)
            transfers._learn_left([(seen.id, 0)])
            assert peers.is_known_to_have_left(seen)

    testing.run(main, seed=1)


def test_copy_of_a_goodbye_is_not_younger_than_the_goodbye() -> None:
    async def main() -> None:
        async with testing.open_ring(1, seed=1) as ring:
            peers, at = ring[0]._host.peers, trio.current_time()
            cap_s = ring[0]._host.timing.timeout_cap_s
            peers.learn_left(Point(1), at)
            peers.learn_left(Point(1), at + cap_s)
            assert peers.goodbyes.said_at(Point(1)) == at
            peers.learn_left(Point(1), at + 2 * cap_s)
            assert peers.goodbyes.said_at(Point(1)) == at + 2 * cap_s

    testing.run(main, seed=1)

"""Denials: a node answers *not found* only after it asked all nodes that may hold the key."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import pytest
import trio

from chord import testing
from chord.cli.check import judge
from chord.errors import Busy, ChordError, OwnerDown, QuorumFailed, TooFewReplicas
from chord.ids import Arc
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.replica import Replica
from chord.ring.ownership import Ownership
from chord.ring.vnode import Vnode
from chord.store.storage import Batch, MemoryStorage
from chord.testing.rings import TestRing
from chord.wire.messages import (
    ActorClock,
    Contact,
    Done,
    Forget,
    Get,
    GetReply,
    ReadCopy,
    ReadCopyReply,
    Record,
    Version,
)
from tests.support.quorum import (
    KEY,
    back,
    clockwise,
    holding,
    key_at,
    read,
    ring_in_sync,
    stop_repair,
    timing,
    until_in_sync,
    until_none_misplaced,
    write,
)
from tests.support.rings import in_order, only, virtual

ABSENT = b"never written"


async def ask_owner(ring: TestRing, key: bytes) -> GetReply:
    """Read at the first living node of a key, once."""
    owner = clockwise(ring, key)[0]
    return await owner._host.peers.call(only(owner).me, Get(key), GetReply)


async def never_denied(ring: TestRing, key: bytes, value: bytes, for_s: float, step_s: float = 0.05) -> int:
    """Ask every living node for a key repeatedly; return the number of answers with the value.

    An answer may be the value or an error, but no denial.
    """
    answers = 0
    ends = trio.current_time() + for_s
    while trio.current_time() < ends:
        for node in list(ring.nodes):
            for vnode in node._host.vnodes.values():
                try:
                    with trio.move_on_after(0.5):
                        found = await node._host.peers.call(vnode.me, Get(key), GetReply)
                        assert value in found.values, (node.name, trio.current_time(), found)
                        answers += 1
                except ChordError:
                    pass
        await trio.sleep(step_s)
    return answers


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "frozen"])
@pytest.mark.parametrize(("unreachable", "is_denied"), [(0, True), (1, True), (2, False)])
def test_key_is_denied_with_at_most_one_unreachable_replica(how: str, unreachable: int, is_denied: bool) -> None:
    async def main() -> None:
        async with ring_in_sync(8, unreachable) as ring:
            _, *others = clockwise(ring, ABSENT)
            gone = others[:unreachable]
            for node in gone:
                if how == "killed":
                    await ring.kill(node)
                else:
                    ring.network.freeze(node.name)
            for _ in range(30):  # before, during and after the detection of the failures
                if is_denied:
                    with trio.fail_after(4):
                        assert (await ask_owner(ring, ABSENT)).values == ()
                else:
                    with pytest.raises(OwnerDown):
                        await ask_owner(ring, ABSENT)
                await trio.sleep(0.1)

    testing.run(main, seed=f"{how}{unreachable}")


@virtual
async def test_owner_denies_no_key_in_an_arc_that_contains_others() -> None:
    """All nodes were suspended together. Each takes all others for dead and owns the whole circle for a moment."""
    async with testing.open_ring(4, seed=3, replicas=2) as ring:
        await until_in_sync(ring)
        await write(ring[0], KEY, b"v")
        node = clockwise(ring, KEY)[-1]
        vnode = only(node)
        assert node._host.storage.get(KEY) is None
        vnode.preference_list.was_away()
        vnode.ownership.start = vnode.id
        vnode.ownership.doubt(Arc(vnode.id, vnode.id))
        assert [place.contact for place in vnode.replica_set(node._host.circle.hash(KEY)).members] == [vnode.me]
        with pytest.raises(Busy, match="not among its replicas yet"):
            await node._host.peers.call(vnode.me, Get(KEY), GetReply)


@pytest.mark.slow
@pytest.mark.parametrize("apart_s", [0.0, 3.0])
@pytest.mark.parametrize("killed", [1, 2, 3])
def test_check_after_neighbours_died_reports_undeniable_keys(killed: int, apart_s: float) -> None:
    """If neighbours die one after the other, a replica may be in sync in a part of an arc that only it knows."""

    async def main() -> None:
        async with ring_in_sync(8, seed=killed) as ring:
            circle = only(ring[0]).host.circle
            for node in in_order(ring)[2 : 2 + killed]:
                await ring.kill(node)
                await trio.sleep(apart_s)
            await trio.sleep(10)
            nodes = [node._local_status() for node in ring.nodes]
            parts = [part for node in nodes for part in node.sets if part.missing]
            for number in range(200):
                key = b"absent-%d" % number
                may_fail = any(circle.hash(key) in Arc(part.arc_start, part.arc_end) for part in parts)
                try:
                    await ask_owner(ring, key)
                except OwnerDown:
                    assert may_fail, key
                else:
                    assert not may_fail or apart_s, key
            verdict = judge(nodes, [])
            assert (verdict.unavailable > 0) == bool(parts) == (killed > 1)
            assert set(verdict.absent) == {contact.address for part in parts for contact in part.missing}

    testing.run(main, seed=f"{killed}{apart_s}")


@pytest.mark.slow
@pytest.mark.parametrize("positions", [(0, 1), (0, 2), (0, 3), (2, 3), (3, 4)])
def test_key_is_not_denied_with_two_unreachable_holders(positions: tuple[int, int]) -> None:
    """Any two of the first six nodes may hold an acknowledged write that no other node has."""

    async def main() -> None:
        async with testing.open_ring(9, seed=sum(positions)) as ring:
            await until_in_sync(ring)
            places = clockwise(ring, ABSENT)
            for position in positions:
                await ring.kill(places[position])
            asked = next(node for node in places if node in ring.nodes)
            for _ in range(40):
                try:
                    reply = await asked._host.peers.call(only(asked).me, Get(ABSENT), GetReply)
                except ChordError:
                    pass
                else:
                    raise AssertionError(f"denied at {trio.current_time()}: {reply}")
                await trio.sleep(0.1)

    testing.run(main, seed=repr(positions))


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_small_ring_denies_a_key_that_was_never_written(nodes: int) -> None:
    async def main() -> None:
        async with testing.open_ring(nodes, seed=nodes) as ring:
            for node in ring.nodes:
                with trio.fail_after(10):
                    assert (await read(node, ABSENT)).values == ()

    testing.run(main, seed=nodes)


@virtual
async def test_survivor_of_two_denies_nothing_before_down_out() -> None:
    async with ring_in_sync(2, 1, down_out_s=20.0) as ring:
        survivor, gone = ring.nodes
        await ring.kill(gone)
        for _ in range(100):
            with pytest.raises((Busy, OwnerDown, TooFewReplicas)):
                await survivor._host.peers.call(only(survivor).me, Get(ABSENT), GetReply)
            await trio.sleep(0.15)
        await trio.sleep(30)
        assert (await read(survivor, ABSENT)).values == (), "the dead node has left the lists after `down_out_s`"


@virtual
async def test_survivor_of_two_that_restarts_denies_after_down_out() -> None:
    async with ring_in_sync(2, 2, keeps_disks=True, down_out_s=20.0) as ring:
        await write(ring[0], b"k", b"v")
        survivor, gone = ring.nodes
        await ring.kill(gone)
        await ring.kill(survivor)
        again = await ring.start(join=(), name=survivor.name)
        await again.ready()
        await trio.sleep(60)
        with trio.fail_after(5):
            assert (await read(again, b"k")).values == (b"v",)
        with trio.fail_after(5):
            assert (await read(again, ABSENT)).values == ()


# -- rings that grow --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.01, 0.05, 0.3, 1.0])
def test_key_is_not_denied_if_the_founder_dies_in_a_growing_ring(after_s: float) -> None:
    """Writes with w = 1 from before the first join are never denied. A replica in sync has them."""

    async def main() -> None:
        async with testing.open_ring(1, seed="grow") as ring:
            founder = ring[0]
            for number in range(20):
                await write(founder, b"k-%d" % number, b"v")
            second = await ring.start()
            await second.ready()
            third = await ring.start()
            await third.ready()
            await trio.sleep(after_s)
            await ring.kill(founder)
            answers = 0
            for number in range(20):
                answers += await never_denied(ring, b"k-%d" % number, b"v", for_s=0.5)
            assert answers or after_s < 0.3, "the replicas were in sync in time, but no node answered"

    testing.run(main, seed=int(1000 * after_s))


@pytest.mark.parametrize("after_s", [0.0, 0.01, 0.1])
def test_key_is_not_denied_if_the_founder_dies_during_a_join(after_s: float) -> None:
    async def main() -> None:
        async with testing.open_ring(1, seed="two") as ring:
            founder = ring[0]
            keys = [b"k-%d" % number for number in range(20)]
            for key in keys:
                await write(founder, key, b"v")
            second = await ring.start()
            await second.ready()
            await trio.sleep(after_s)
            await ring.kill(founder)
            for key in keys:
                await never_denied(ring, key, b"v", for_s=0.3)

    testing.run(main, seed=int(1000 * after_s))


async def join_between(ring: TestRing, before: Node, after: Node, count: int) -> list[Node]:
    """Let `count` nodes join at once between two others."""
    low, high = only(before).id, only(after).id
    gap = (high - low) % (1 << 160)
    made = [await ring.start(id=(low + gap * (i + 1) // (count + 1)) % (1 << 160), join=[before]) for i in range(count)]
    for node in made:
        await node.ready()
    return made


@pytest.mark.slow
@pytest.mark.parametrize("joiners", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", range(2))
def test_new_owners_deny_no_existing_key(joiners: int, seed: int) -> None:
    """Nodes join in front of a key's replicas, and a replica dies before they are in sync."""

    async def main() -> None:
        async with ring_in_sync(5, seed) as ring:
            keys = [key_at(ring, "n2", number) for number in range(8)]
            for key in keys:
                await write(ring[0], key, b"v")
            places = clockwise(ring, keys[0])
            before, owner, second = places[-1], places[0], places[1]
            await join_between(ring, before, owner, joiners)
            await ring.kill(second if seed else owner)
            for key in keys:
                await never_denied(ring, key, b"v", for_s=0.2)
            await ring.converged()
            for key in keys:
                with trio.fail_after(10):
                    assert (await read(ring[0], key)).values == (b"v",)

    testing.run(main, seed=f"{joiners}{seed}")


async def no_replica_in_sync_is_left() -> None:
    """Two replicas have a write and are down. New nodes join before them and compare only with each other."""
    async with testing.open_ring(7, seed=75) as ring:
        await until_in_sync(ring)
        order = sorted(ring.nodes, key=lambda node: only(node).id)
        before, first, second, third = order[1:5]
        point = ring[0]._host.circle.hash
        low, gap = only(before).id, (only(first).id - only(before).id) // 5
        key = next(key for i in range(10000) if low < point(key := b"key-%d" % i) < low + gap)
        await write(ring[0], key, b"v")
        for node in (first, second):
            await ring.kill(node)
        third._host.storage.apply(Batch(removals=(key,)))  # the quorum was the other two
        await join_between(ring, before, first, 4)
        assert await never_denied(ring, key, b"v", for_s=3.0) == 0


@pytest.mark.slow
def test_joiners_in_sync_only_with_joiners_deny_nothing() -> None:
    testing.run(no_replica_in_sync_is_left, seed=75)


def test_planted_joiners_that_vouch_for_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AntiEntropy, "_may_vouch", lambda self, arc, others: True)
    monkeypatch.setattr(Vnode, "vouches_for", lambda self, arc: self.preference_list.is_arc_in_sync(arc))
    monkeypatch.setattr(Vnode, "may_hold", lambda self, key, replicas: replicas.everyone)  # the second check
    with pytest.raises(AssertionError, match="GetReply"):
        testing.run(no_replica_in_sync_is_left, seed=75)


async def three_holders_gone() -> None:
    """The writes of dead holders count as lost only when an operator forgets these nodes, never with time."""
    async with testing.open_ring(7, seed=76, timing=timing(down_out_s=15.0)) as ring:
        await until_in_sync(ring)
        gone = clockwise(ring, ABSENT)[:3]
        for node in gone:
            await ring.kill(node)
        for wait_s in (8, 15, 60):
            await trio.sleep(wait_s)
            with pytest.raises((Busy, OwnerDown)):
                await ask_owner(ring, ABSENT)
        for number, dead in enumerate(gone):
            for node in ring.nodes:
                await node._host.peers.call(node.address, Forget(dead.address), Done)
            if number < 2:
                await trio.sleep(10)
                with pytest.raises((Busy, OwnerDown)):
                    await ask_owner(ring, ABSENT)
        await trio.sleep(20)
        with trio.fail_after(5):
            assert (await ask_owner(ring, ABSENT)).values == ()


async def three_holders_forgotten_at_once() -> None:
    async with testing.open_ring(7, seed=76) as ring:
        await until_in_sync(ring)
        gone = clockwise(ring, ABSENT)[:3]
        for node in gone:
            await ring.kill(node)
        await trio.sleep(8)
        with pytest.raises((Busy, OwnerDown)):
            await ask_owner(ring, ABSENT)
        for dead in gone:
            await ring[0].remove_node(dead.address)
        with trio.fail_after(15):
            while True:
                with suppress(Busy, OwnerDown):
                    assert (await ask_owner(ring, ABSENT)).values == ()
                    break
                await trio.sleep(0.5)


def test_key_is_denied_soon_after_all_its_holders_are_forgotten() -> None:
    testing.run(three_holders_forgotten_at_once, seed=76)


@pytest.mark.slow
def test_key_is_not_denied_before_its_holders_are_forgotten() -> None:
    testing.run(three_holders_gone, seed=76)


@pytest.mark.slow
def test_planted_giving_up_nodes_with_time_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def is_given_up(self: AntiEntropy) -> bool:
        return trio.current_time() - self._grown_at >= self._host.timing.down_out_s

    monkeypatch.setattr(AntiEntropy, "_is_given_up", is_given_up)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        testing.run(three_holders_gone, seed=76)


@virtual
async def test_leave_of_an_owner_denies_no_key() -> None:
    async with ring_in_sync(6, 3) as ring:
        keys = [key_at(ring, "n2", number) for number in range(10)]
        for key in keys:
            await write(ring[0], key, b"v")
        leaver = clockwise(ring, keys[0])[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(leaver.leave)
            for key in keys:
                await never_denied(ring, key, b"v", for_s=0.2, step_s=0.01)
        await until_none_misplaced(ring)


@pytest.mark.slow
@pytest.mark.parametrize(
    "split",
    [(3, 3), (2, 4), *(pytest.param(split, marks=pytest.mark.thorough) for split in ((4, 8), (2, 10)))],
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_key_written_in_a_split_is_not_denied_after_it(split: tuple[int, int], is_cut: bool) -> None:
    testing.run(written_in_a_split, split, is_cut, 4.0, seed=repr(split))


@pytest.mark.slow
@pytest.mark.parametrize("split", [(2, 4), (2, 5)])
@pytest.mark.parametrize("old_s", [0.0, 0.1])
def test_key_written_in_a_split_of_a_new_ring_is_not_denied(
    split: tuple[int, int], old_s: float
) -> None:
    """A takeover must not depend on predecessor lists that grow by one hop a round."""
    testing.run(written_in_a_split, split, True, old_s, seed=repr(split))


@pytest.mark.slow
def test_planted_marks_without_later_knowledge_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(*seeds: int) -> None:
        for seed in dict.fromkeys(seeds):
            testing.run(written_in_a_split, (4, 8), True, 0.0, 4, 5, 1.0, seed=seed)

    play(9)
    monkeypatch.setattr(Ownership, "learn_unreachable", lambda self, unreachable: None)
    monkeypatch.setattr(Vnode, "may_hold", lambda self, key, replicas: replicas.everyone)  # the second check
    with pytest.raises(AssertionError, match=r"'n\d+', .*values=\(\)"):
        play(9, *range(48))  # the seed that catches it comes first: a seed takes four seconds


@pytest.mark.slow
def test_small_side_of_a_split_writes_only_to_asked_nodes() -> None:
    """Up to three stand-ins follow three unreachable members. Two nodes may stand in only if they know of five."""
    testing.run(written_in_a_split, (2, 16), True, 4.0, 5, 0, seed=repr((2, 16)))


@pytest.mark.slow
def test_planted_short_list_of_unreachable_nodes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Ownership.learn_boundary

    def learn_four(own: Ownership, predecessor: Contact, further: Iterable[Contact], *_: object, **__: object) -> None:
        whole(own, predecessor, tuple(further)[:3])

    monkeypatch.setattr(Ownership, "learn_boundary", learn_four)
    with pytest.raises(AssertionError, match="GetReply"):  # with growing periods the passive list makes up for it
        testing.run(written_in_a_split, (2, 16), True, 4.0, 5, 0, 1.0, seed=repr((2, 16)))


async def written_in_a_split(
    split: tuple[int, int],
    is_cut: bool,
    old_s: float,
    successors: int = 4,
    acknowledged_min: int = 5,
    growth_max: float = 8.0,
) -> None:
    times = timing(period_growth_max=growth_max)
    async with testing.open_ring(sum(split), seed=sum(split), successors=successors, timing=times) as ring:
        await until_in_sync(ring)
        await trio.sleep(old_s)
        keys = [b"k-%d" % number for number in range(12)]
        order = clockwise(ring, keys[0])
        one, two = order[: split[0]], order[split[0] :]
        ring.network.partition([n.name for n in one], [n.name for n in two], reset=is_cut)
        await trio.sleep(8)
        acknowledged = {}
        for number, key in enumerate(keys):
            side = one if number % 2 else two
            with trio.move_on_after(3), suppress(TooFewReplicas, QuorumFailed):
                await write(side[0], key, b"v", context=b"")
                acknowledged[key] = True
        ring.network.heal()
        for key in acknowledged:
            assert len(holding(ring, key)) >= 2
        ends = trio.current_time() + 8
        while trio.current_time() < ends:
            for key in acknowledged:
                await never_denied(ring, key, b"v", for_s=0.01)
        await ring.converged(200)
        for key in acknowledged:
            with trio.fail_after(10):
                assert (await read(ring[0], key)).values == (b"v",)
        assert len(acknowledged) >= acknowledged_min


async def denied_behind_a_joiner() -> None:
    """Cut off the last two places of a key, which write it. Then a node joins right behind the owner."""
    async with testing.open_ring(10, seed=5, successors=8) as ring:
        await until_in_sync(ring)
        await trio.sleep(4)
        owner, *_, fifth, sixth = clockwise(ring, KEY)[:6]
        split = [fifth, sixth]
        ring.network.partition([node.name for node in split], reset=True)
        joiner = only(owner).id + 1
        await (await ring.start(join=[owner], id=joiner)).ready()
        with trio.fail_after(20):
            while True:
                with suppress(ChordError):
                    await write(split[0], KEY, b"v", context=b"")
                    break
        assert holding(ring, KEY) == [node.name for node in split]
        reader = next(node for node in ring.nodes if only(node).ownership.is_owner(owner._host.circle.hash(KEY)))
        for _ in range(40):
            with suppress(Busy, OwnerDown):
                found = await only(owner).host.peers.call(only(owner).me, Get(KEY), GetReply)
                assert found.values == (b"v",), f"{reader.name} denied the key"
            await trio.sleep(0.05)
        ring.network.heal()
        await never_denied(ring, KEY, b"v", for_s=8)
        assert (await read(owner, KEY)).values == (b"v",)


@pytest.mark.slow
def test_denial_in_a_split_counts_no_joiner_as_a_place() -> None:
    testing.run(denied_behind_a_joiner, seed=5)


@pytest.mark.slow
def test_planted_joiner_that_counts_as_a_place_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vnode, "may_hold", lambda self, key, replicas: replicas.everyone)
    with pytest.raises(AssertionError, match=r"denied|Values"):
        testing.run(denied_behind_a_joiner, seed=5)


@pytest.mark.slow
@virtual
async def test_leaver_killed_before_its_end_is_a_replica_again() -> None:
    """The node was killed while it left, and is back with all its records."""
    async with ring_in_sync(6, 9, keeps_disks=True, leave_s=2.0) as ring:
        key = key_at(ring, "n2")
        await write(ring[0], key, b"v", w=3)
        leaver = clockwise(ring, key)[1]
        leaver._begin_leave()
        with trio.fail_after(2):
            while not any(leaver.address in only(n).preference_list.retiring for n in ring.nodes):
                await trio.sleep(0.0002)
        await ring.kill(leaver)
        again = await back(ring, leaver.name)
        await ring.converged()
        await trio.sleep(60)
        owner = clockwise(ring, key)[0]
        members = [place.contact.address for place in only(owner).replica_set(owner._host.circle.hash(key)).members]
        assert again.address in members


@virtual
async def test_forgotten_node_that_returned_is_waited_for_again() -> None:
    async with ring_in_sync(8, 10) as ring:
        owner, second, *_ = clockwise(ring, ABSENT)
        await ring.kill(second)
        for node in ring.nodes:
            await node._host.peers.call(node.address, Forget(second.address), Done)
        again = await ring.start(name=second.name)
        await again.ready()
        await ring.converged()
        await trio.sleep(3)
        await ring.kill(again)
        await ring.converged()
        places = only(owner).replica_set(owner._host.circle.hash(ABSENT)).everyone
        assert [p.is_waited_for for p in places if p.contact.address == again.address] == [True]


@virtual
async def test_stop_repair_leaves_a_record_missing() -> None:
    """The helper `stop_repair` works: a replica that lacks a record continues to lack it."""
    async with testing.open_ring(4, seed=5, timing=timing(anti_entropy_s=0.5)) as ring:
        await write(ring[0], b"k", b"v", w=3)
        stop_repair(*ring.nodes)
        second = clockwise(ring, b"k")[1]
        second._host.storage.apply(Batch(removals=(b"k",)))
        await read(ring[0], b"k", r=3)  # without `stop_repair` the read would repair the replica
        await trio.sleep(10)
        assert second.name not in holding(ring, b"k")


@virtual
async def test_copy_that_arrives_during_a_read_is_not_denied() -> None:
    """A stand-in may bring home and drop the only copy while a read is in progress."""
    async with ring_in_sync(3, 1) as ring:
        owner = clockwise(ring, KEY)[0]
        storage = owner._host.storage
        assert isinstance(storage, MemoryStorage)
        record = Record(KEY, (ActorClock(b"a" * 16, 1, (Version(b"v", b"o" * 16, 1),)),))
        original = Replica.on_read_copy

        def bring_it(self: Replica, request: ReadCopy) -> ReadCopyReply:
            answer = original(self, request)
            storage.apply(Batch([record]))
            return answer

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Replica, "on_read_copy", bring_it)
            assert (await read(owner, KEY)).values == (b"v",)

"""Read repair and anti-entropy restore copies: after lost disks, joins, leaves and forgotten nodes."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from chord import testing
from chord.errors import ChordError, NotOwner, WritesRefused
from chord.events import Emitted
from chord.ids import Arc, Point, between
from chord.net.calls import Caller
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.sync import SyncOutcome
from chord.ring.ownership import OwnerVerdict
from chord.ring.vnode import Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import (
    Contact,
    Done,
    Forget,
    Get,
    GetReply,
    GetRing,
    GetRingReply,
    ReadCopy,
    ReadCopyReply,
    Version,
)
from tests.support.quorum import (
    KEY,
    back,
    clockwise,
    durable_by_commit,
    holding,
    key_at,
    read,
    record_at,
    ring_in_sync,
    timing,
    until,
    until_in_sync,
    until_none_misplaced,
    write,
)
from tests.support.rings import misplaced, only, virtual


async def fill(ring: TestRing, count: int) -> list[bytes]:
    keys = [b"k-%d" % number for number in range(count)]
    for number, key in enumerate(keys):
        await write(ring[number % len(ring)], key, b"v")
    return keys


# -- reads that repair ------------------------------------------------------------------------------


@virtual
async def test_read_repair_updates_a_stale_replica_without_a_new_dot() -> None:
    async with ring_in_sync(5, 7, anti_entropy_s=10_000.0) as ring:
        await write(ring[0], KEY, b"1", w=3)
        first, second, third, *_ = clockwise(ring, KEY)
        old = record_at(second, KEY)
        await write(ring[0], KEY, b"2", w=3)
        new = record_at(first, KEY)
        for stale in (second, first):
            stale._host.storage.apply(Batch(puts=(old,)))
            puts = ring.totals()["puts"]
            assert (await read(third, KEY, r=3)).values == (b"2",)
            await until(lambda node=stale: record_at(node, KEY).clock == new.clock, within_s=1)  # type: ignore[misc]
            assert ring.totals()["puts"] == puts
        assert all(record_at(node, KEY).clock == new.clock for node in (first, second, third))


@virtual
async def test_read_repair_merges_concurrent_versions() -> None:
    async with ring_in_sync(5, 8, anti_entropy_s=10_000.0) as ring:
        first, second, third, *_ = clockwise(ring, KEY)
        await write(ring[0], KEY, b"1", w=3)
        alone = record_at(first, KEY)
        await write(ring[0], KEY, b"2", w=3, context=b"")
        both = record_at(first, KEY)
        actor = versions.actor(second._host.storage.incarnation, second._host.storage.next_key_epoch())
        version = versions.siblings(both)[0]
        other = versions.put(alone, KEY, {}, actor, type(version)(b"3", b"x" * 16, version.written_ms, 0))
        second._host.storage.apply(Batch(puts=(other,)))
        expected = versions.sync(both, other)
        assert sorted((await read(third, KEY, r=3)).values) == [b"1", b"2", b"3"]
        await until(lambda: all(record_at(n, KEY).clock == expected.clock for n in (first, second, third)), within_s=1)


@virtual
async def test_anti_entropy_merges_concurrent_versions_of_replicas() -> None:
    async with ring_in_sync(5, 31, anti_entropy_s=0.5) as ring:
        first, second, third, *_ = clockwise(ring, KEY)
        await write(ring[0], KEY, b"1", w=3)
        both = record_at(first, KEY)
        for node, value in ((first, b"2"), (second, b"3"), (third, b"4")):
            storage = node._host.storage
            actor = versions.actor(storage.incarnation, storage.next_key_epoch())
            one = versions.put(record_at(node, KEY), KEY, {}, actor, Version(value, value * 16, 0, 0))
            both = versions.sync(both, one)
            storage.apply(Batch(puts=(one,)))
        await until(lambda: all(record_at(n, KEY).clock == both.clock for n in (first, second, third)), within_s=10)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_read_waits_for_r_replicas(r: int) -> None:
    async def main() -> None:
        async with ring_in_sync(6, r) as ring:
            await write(ring[0], KEY, b"v", w=3)
            found = await read(ring[1], KEY, r=r)
            assert (found.values, found.r_needed) == ((b"v",), r)
            assert r <= found.r <= 3
            assert sum(line.outcome == "ok" for line in found.replicas) == found.r

    testing.run(main, seed=r)


@virtual
async def test_read_with_a_slow_replica_is_hedged() -> None:
    async with ring_in_sync(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, second, third, *_ = clockwise(ring, KEY)
        ring.network.block(second.name, owner.name)
        began = trio.current_time()
        found = await owner._host.peers.call(only(owner).me, Get(KEY, with_replicas=True), GetReply)
        assert found.values == (b"v",)
        assert trio.current_time() - began < 0.2, "the reader asked the third replica, too"
        assert third.address in {line.contact.address for line in found.replicas if line.outcome == "ok"}


# -- members come and go ----------------------------------------------------------------------------


class Watch:
    """Observer that fails after an event if a key has fewer live copies than promised."""

    def __init__(self, at_least: int) -> None:
        self.at_least = at_least
        self.ring: TestRing | None = None
        self.keys: list[bytes] = []
        self.seen: Counter[int] = Counter()

    def __call__(self, emitted: Emitted) -> None:
        event = emitted.event
        if self.ring is None:
            return
        held: Counter[bytes] = Counter()
        for node in self.ring.nodes:
            for key in self.keys:
                held[key] += node._host.storage.get(key) is not None
        low = min(held.values())
        self.seen[low] += 1
        assert low >= self.at_least, (event, [key for key in held if held[key] == low])


@pytest.mark.slow
@virtual
async def test_copies_never_fall_below_n_during_joins_and_leaves() -> None:
    watch = Watch(at_least=3)
    async with testing.open_ring(5, seed=10, observe=watch) as ring:
        watch.keys = await fill(ring, 40)
        await until_none_misplaced(ring)
        await until_in_sync(ring)
        watch.ring = ring
        founders = list(ring.nodes)
        for _ in range(5):
            node = await ring.start()
            await node.ready()
            await ring.converged()
        await until_none_misplaced(ring)
        for node in founders:
            await node.leave()
            await ring.converged()
        await until_none_misplaced(ring)
        assert {node.state for node in founders} == {"left"}
        for key in watch.keys:
            assert len(holding(ring, key)) == 3
        assert watch.seen


def no_answer_after_the_handover(vnode: Vnode, request: GetRing, caller: Caller) -> GetRingReply:
    """Planted: a leaver's predecessor cannot refresh its list while the leaver brings its records home."""
    return ON_GET_RING(vnode, request, Caller(""))


ON_GET_RING = Vnode.on_get_ring


def all_but_one_leave(seed: int, nodes: int = 6) -> list[str]:
    """Let all nodes but one leave at once; return their final states. No key may be lost."""
    states: list[str] = []

    async def main() -> None:
        async with testing.open_ring(nodes, seed=11) as ring:
            keys = await fill(ring, 40)
            await until_in_sync(ring)
            first, *others = ring.nodes
            async with trio.open_nursery() as nursery:
                for node in others:
                    nursery.start_soon(node.leave)
            states.extend(node.state for node in others)
            if set(states) != {"left"}:
                return
            await ring.converged()
            for key in keys:
                with trio.fail_after(5):
                    assert (await read(first, key)).values == (b"v",)

    testing.run(main, seed=seed)
    return states


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "nodes"), [(0, 6), (1, 6), (2, 6), (3, 6), (2, 12), (3, 14)])
def test_leave_of_all_nodes_but_one_loses_no_key(seed: int, nodes: int) -> None:
    assert all_but_one_leave(seed, nodes) == ["left"] * (nodes - 1)


async def ask_during_leave() -> None:
    """Ask a leaver without an arc for keys anywhere on the circle. It must name its heir for each key."""
    async with testing.open_ring(5, seed=11) as ring:
        leaver, other = ring[2], ring[3]
        vnode = only(leaver)
        heir = next(contact for contact in vnode.ring.successors)
        await leaver._parts[vnode.id].membership.leave()
        assert vnode.ownership.start is None
        for key in (vnode.id, heir.id, only(other).id, leaver._host.circle.point(vnode.id + 1)):
            with pytest.raises(NotOwner) as caught:
                vnode.require_owner(key)
            assert caught.value.peer == heir


@virtual
async def test_leaver_without_arc_redirects_every_key_to_its_heir() -> None:
    await ask_during_leave()


def test_planted_redirect_to_the_predecessor_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two leavers could name each other as the owner for ever."""
    require_owner = Vnode.require_owner

    def to_the_predecessor(vnode: Vnode, key: int) -> OwnerVerdict:
        try:
            return require_owner(vnode, key)
        except NotOwner as error:
            before = vnode.ring.predecessor
            if "left to another" in error.message and before and not between(before.id, key, vnode.id):
                raise NotOwner("planted", peer=before) from None
            raise

    monkeypatch.setattr(Vnode, "require_owner", to_the_predecessor)
    with pytest.raises(AssertionError):
        testing.run(ask_during_leave)


@pytest.mark.slow
def test_planted_leavers_that_wait_for_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vnode, "on_get_ring", no_answer_after_the_handover)
    assert any("stopped" in all_but_one_leave(seed) for seed in range(8))


@pytest.mark.slow
@virtual
async def test_nodes_that_lose_their_disks_in_turn_lose_no_key() -> None:
    """Each disk is lost only after the copies of the previous one are restored."""
    async with testing.open_ring(6, seed=12) as ring:
        keys = await fill(ring, 40)
        await until_in_sync(ring)
        for name in [node.name for node in ring.nodes]:
            await ring.kill(next(node for node in ring.nodes if node.name == name))
            await trio.sleep(0.2)
            await back(ring, name)
            await ring.converged()
            await until_none_misplaced(ring, within_s=10)
        for key in keys:
            assert (await read(ring[0], key)).values == (b"v",)


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_copies_of_a_forgotten_node_are_replaced_at_once(position: int) -> None:
    async def main() -> None:
        async with ring_in_sync(8, position) as ring:
            keys = [key_at(ring, "n4", number) for number in range(10)]
            for key in keys:
                await write(ring[0], key, b"v", w=3)
            gone = clockwise(ring, keys[0])[position]
            await ring.kill(gone)
            await ring.converged()
            await trio.sleep(5)
            assert misplaced(ring), "the ring waits for the dead node"
            for node in ring.nodes:
                await node._host.peers.call(node.address, Forget(gone.address), Done)
            await until_none_misplaced(ring, within_s=5)

    testing.run(main, seed=position)


@virtual
async def test_node_forgotten_before_it_is_suspected_is_replaced() -> None:
    async with ring_in_sync(8, 20) as ring:
        keys = await fill(ring, 20)
        await ring.kill(ring[3])
        for node in ring.nodes:
            await node._host.peers.call(node.address, Forget("n3:1"), Done)
        await ring.converged()
        await until_none_misplaced(ring, within_s=8)
        assert keys


# -- in sync -----------------------------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_replicas_learn_of_every_part_of_a_taken_over_arc() -> None:
    """The owner of a taken-over arc answers for several parts. A message about one part must keep the others."""
    async with ring_in_sync(8, 21, anti_entropy_s=2.0) as ring:
        keys = [key_at(ring, "n4", number) for number in range(3)]
        dead, taker, second, third, *_ = clockwise(ring, keys[0])
        await ring.kill(dead)
        await ring.converged()
        await trio.sleep(10)
        points = [only(taker).ownership.marks[0].arc.end, only(taker).id]
        for _ in range(50):
            assert [only(second).preference_list.is_in_sync(point) for point in points] == [True, True]
            await trio.sleep(0.2)
        assert only(third).preference_list.is_in_sync(only(taker).id)


@pytest.mark.slow
@virtual
async def test_replica_stays_in_sync_in_the_half_of_an_arc_it_keeps() -> None:
    """A joiner cuts an arc in two. The arc's third replica then no longer holds the lower part."""
    async with ring_in_sync(6, 22, anti_entropy_s=10_000.0) as ring:
        key = key_at(ring, "n2")
        places = clockwise(ring, key)
        owner, third = places[0], places[2]
        before = only(places[-1]).id
        middle = (before + ((only(owner).id - before) % (1 << 160)) // 2) % (1 << 160)
        assert only(third).preference_list.is_in_sync(middle)
        joiner = await ring.start(id=middle)
        await joiner.ready()
        await ring.converged()
        await trio.sleep(5)
        low = (middle - 1) % (1 << 160)
        assert low not in only(third).replicated()[-1] or third.name in ("",)
        assert not only(third).preference_list.is_in_sync(low)
        assert only(third).preference_list.is_in_sync(only(owner).id)


@virtual
async def test_copy_says_if_the_replica_is_in_sync() -> None:
    async with ring_in_sync(6, 23) as ring:
        owner, second, *_ = clockwise(ring, KEY)
        copy = await owner._host.peers.call(only(second).me, ReadCopy(KEY), ReadCopyReply)
        assert copy.is_in_sync
        again = await ring.restart(second)
        with trio.fail_after(5):
            while True:
                try:
                    copy = await owner._host.peers.call(only(again).me, ReadCopy(KEY), ReadCopyReply)
                    break
                except ChordError:
                    await trio.sleep(0.001)
        assert not copy.is_in_sync, "the restarted node has an empty store"
        await until(lambda: only(again).preference_list.is_in_sync(owner._host.circle.hash(KEY)), within_s=5)


# -- what a replica has missed ------------------------------------------------------------------------


RARELY = timing(anti_entropy_s=10_000.0)


def repair_of(node: Node) -> AntiEntropy:
    (parts,) = node._parts.values()
    return parts.repair


async def has_caught_up(replica: Node, value: bytes, within_s: float) -> bool:
    """Return whether a replica gets this value in time, without a read."""
    with trio.move_on_after(within_s):
        await until(lambda: versions.values(record_at(replica, KEY)) == [value], within_s=2 * within_s)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_replica_that_refused_a_write_is_compared_at_once(is_planted: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(5, seed=3, timing=RARELY) as ring:
            await until_in_sync(ring)
            owner, _, third, *_ = clockwise(ring, KEY)
            await write(owner, KEY, b"1", w=3)
            stage, storage = third._host.storage.stage, third._host.storage

            def refuse(batch: Batch) -> bool:
                storage.stage = stage  # type: ignore[method-assign]
                raise WritesRefused("the disk is full")

            storage.stage = refuse  # type: ignore[method-assign]
            if is_planted:
                repair_of(owner).fell_behind = lambda address: None  # type: ignore[method-assign]
            await write(owner, KEY, b"2", strict=True)
            assert await has_caught_up(third, b"2", within_s=10) is not is_planted

    testing.run(main, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_owner_after_a_standstill_compares_with_its_replicas(is_planted: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(5, seed=3, timing=RARELY) as ring:
            await until_in_sync(ring)
            owner, second, third, *_ = clockwise(ring, KEY)
            await write(owner, KEY, b"1", w=3)
            actor = versions.actor(second._host.storage.incarnation, second._host.storage.next_key_epoch())
            newer = versions.put(record_at(second, KEY), KEY, None, actor, Version(b"2", b"2" * 16, 0))
            for node in (second, third):
                node._host.storage.apply(Batch(puts=(newer,)))
            if not is_planted:
                repair_of(owner).stood_still()
            assert await has_caught_up(owner, b"2", within_s=10) is not is_planted

    testing.run(main, seed=3)


@pytest.mark.parametrize("is_planted", [False, True])
def test_comparison_across_a_standstill_puts_no_replica_in_sync(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes of other nodes may be missing. The planted bug counts the comparison from before the standstill."""
    if is_planted:
        monkeypatch.setattr(AntiEntropy, "_counts", lambda self, arc, states: True)

    async def main() -> bool:
        async with ring_in_sync(4, 3, anti_entropy_s=10_000.0) as ring:
            vnode = only(ring[0])
            repair = ring[0]._parts[vnode.id].repair
            compare = repair._exchange_with
            repair.stood_still()

            async def stand_still_afterwards(contact: Contact, arc: Arc) -> SyncOutcome:
                outcome = await compare(contact, arc)
                repair.stood_still()
                return outcome

            repair._exchange_with = stand_still_afterwards  # type: ignore[method-assign]
            await repair.repair()
            assert vnode.ownership.arc is not None
            return vnode.preference_list.is_arc_in_sync(vnode.ownership.arc)

    assert testing.run(main, seed=3) is is_planted


@virtual
async def test_stored_write_is_replicated_though_its_caller_gives_up() -> None:
    async with testing.open_ring(5, seed=3, timing=RARELY) as ring:
        await until_in_sync(ring)
        owner, second, third, *_ = clockwise(ring, KEY)
        await write(owner, KEY, b"1", w=3)
        commit, storage = owner._host.storage.commit, owner._host.storage

        async def slow(batch: Batch) -> None:
            storage.commit = commit  # type: ignore[method-assign]
            await trio.sleep(0.2)
            await commit(batch)

        storage.commit = slow  # type: ignore[method-assign]
        durable_by_commit(storage)
        with trio.move_on_after(0.1), pytest.raises(ChordError):
            await write(second, KEY, b"2", context=b"")
        for node in (second, third):
            await until(lambda node=node: len(versions.values(record_at(node, KEY))) == 2, within_s=2)  # type: ignore[misc]


@virtual
async def test_missing_nodes_of_several_vnodes_are_named_once() -> None:
    async with testing.open_ring(1, seed=1) as ring:
        vnode = only(ring[0])
        assert vnode.ownership.arc is not None
        vnode.ownership.doubt(vnode.ownership.arc)
        for number, address in enumerate(("dead:1", "dead:1", "gone:1")):
            ring[0]._host.peers.passive.add(Contact(Point(number), address), 0.0)
        (state,) = ring[0]._parts[vnode.id].repair.states()
        assert [contact.address for contact in state.missing] == ["dead:1", "gone:1"]

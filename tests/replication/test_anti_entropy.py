"""Copies come back by themselves: read repair, joins and leaves, nodes that are forgotten."""

from __future__ import annotations

from collections import Counter

import pytest
import trio

from chord import testing
from chord.errors import ChordError, NotOwner, WritesRefused
from chord.events import Event
from chord.ids import Arc, Point, between
from chord.net.calls import Caller
from chord.node import Node
from chord.replication.anti_entropy import AntiEntropy
from chord.replication.sync import SyncOutcome
from chord.ring.ownership import OwnerVerdict
from chord.ring.vnode import Vnode
from chord.store import versions
from chord.store.storage import Batch
from chord.testing.rings import MemoryRing
from chord.wire.messages import Contact, Copy, Done, Forget, Get, GetRing, ReadCopy, RingPointers, Values, Version
from tests.support.quorum import (
    KEY,
    back,
    clockwise,
    durable_by_commit,
    holding,
    key_at,
    read,
    record_at,
    settled,
    settled_ring,
    timing,
    until,
    until_level,
    write,
)
from tests.support.rings import misplaced, only, virtual


async def fill(ring: MemoryRing, count: int) -> list[bytes]:
    keys = [b"k-%d" % number for number in range(count)]
    for number, key in enumerate(keys):
        await write(ring[number % len(ring)], key, b"v")
    return keys


# -- reads that repair ------------------------------------------------------------------------------


@virtual
async def test_a_read_brings_a_stale_replica_level_and_mints_nothing() -> None:
    async with settled_ring(5, 7, anti_entropy_s=10_000.0) as ring:
        await write(ring[0], KEY, b"1", w=3)
        first, second, third, *_ = clockwise(ring, KEY)
        old = record_at(second, KEY)
        await write(ring[0], KEY, b"2", w=3)
        new = record_at(first, KEY)
        for stale in (second, first):
            stale.host.storage.apply(Batch(puts=(old,)))
            puts = ring.totals()["puts"]
            assert (await read(third, KEY, r=3)).values == (b"2",)
            await until(lambda node=stale: record_at(node, KEY).clock == new.clock, within_s=1)  # type: ignore[misc]
            assert ring.totals()["puts"] == puts
        assert all(record_at(node, KEY).clock == new.clock for node in (first, second, third))


@virtual
async def test_a_read_repair_merges_what_both_know() -> None:
    async with settled_ring(5, 8, anti_entropy_s=10_000.0) as ring:
        first, second, third, *_ = clockwise(ring, KEY)
        await write(ring[0], KEY, b"1", w=3)
        alone = record_at(first, KEY)
        await write(ring[0], KEY, b"2", w=3, context=b"")
        both = record_at(first, KEY)
        actor = versions.actor(second.host.storage.incarnation, second.host.storage.next_key_epoch())
        version = versions.siblings(both)[0]
        other = versions.put(alone, KEY, {}, actor, type(version)(b"3", b"x" * 16, version.written_ms, 0))
        second.host.storage.apply(Batch(puts=(other,)))
        expected = versions.sync(both, other)
        assert sorted((await read(third, KEY, r=3)).values) == [b"1", b"2", b"3"]
        await until(lambda: all(record_at(n, KEY).clock == expected.clock for n in (first, second, third)), within_s=1)


@virtual
async def test_two_replicas_that_differ_both_get_what_both_have() -> None:
    async with settled_ring(5, 31, anti_entropy_s=0.5) as ring:
        first, second, third, *_ = clockwise(ring, KEY)
        await write(ring[0], KEY, b"1", w=3)
        both = record_at(first, KEY)
        for node, value in ((first, b"2"), (second, b"3"), (third, b"4")):
            storage = node.host.storage
            actor = versions.actor(storage.incarnation, storage.next_key_epoch())
            one = versions.put(record_at(node, KEY), KEY, {}, actor, Version(value, value * 16, 0, 0))
            both = versions.sync(both, one)
            storage.apply(Batch(puts=(one,)))
        await until(lambda: all(record_at(n, KEY).clock == both.clock for n in (first, second, third)), within_s=10)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_a_read_asks_so_many(r: int) -> None:
    async def main() -> None:
        async with settled_ring(6, r) as ring:
            await write(ring[0], KEY, b"v", w=3)
            found = await read(ring[1], KEY, r=r)
            assert (found.values, found.r_needed) == ((b"v",), r)
            assert r <= found.r <= 3
            assert sum(line.outcome == "ok" for line in found.replicas) == found.r

    testing.run(main, seed=r)


@virtual
async def test_a_slow_replica_is_hedged() -> None:
    async with settled_ring(6, 9) as ring:
        await write(ring[0], KEY, b"v", w=3)
        owner, second, third, *_ = clockwise(ring, KEY)
        ring.network.block(second.name, owner.name)
        began = trio.current_time()
        found = await owner.host.peers.call(only(owner).me, Get(KEY), Values)
        assert found.values == (b"v",)
        assert trio.current_time() - began < 0.2, "the third was asked besides"
        assert third.address in {line.contact.address for line in found.replicas if line.outcome == "ok"}


# -- members come and go ----------------------------------------------------------------------------


class Watch:
    """Looks after every event whether any key has fewer live copies than were promised."""

    def __init__(self, at_least: int) -> None:
        self.at_least = at_least
        self.ring: MemoryRing | None = None
        self.keys: list[bytes] = []
        self.seen: Counter[int] = Counter()

    def __call__(self, event: Event) -> None:
        if self.ring is None:
            return
        held: Counter[bytes] = Counter()
        for node in self.ring.nodes:
            for key in self.keys:
                held[key] += node.host.storage.get(key) is not None
        low = min(held.values())
        self.seen[low] += 1
        assert low >= self.at_least, (event, [key for key in held if held[key] == low])


@pytest.mark.slow
@virtual
async def test_no_join_and_no_leave_costs_a_copy() -> None:
    watch = Watch(at_least=3)
    async with testing.ring(5, seed=10, observe=watch) as ring:
        watch.keys = await fill(ring, 40)
        await until_level(ring)
        await settled(ring)
        watch.ring = ring
        founders = list(ring.nodes)
        for _ in range(5):
            node = await ring.start()
            await node.ready()
            await ring.converged()
        await until_level(ring)
        for node in founders:
            await node.leave()
            await ring.converged()
        await until_level(ring)
        assert {node.state for node in founders} == {"left"}
        for key in watch.keys:
            assert len(holding(ring, key)) == 3
        assert watch.seen


def who_has_handed_over_is_silent(vnode: Vnode, request: GetRing, caller: Caller) -> RingPointers:
    """Planted: a leaver's predecessor cannot refresh its list while the leaver brings its records home."""
    return ON_GET_RING(vnode, request, Caller(""))


ON_GET_RING = Vnode.on_get_ring


def all_but_one_leave(seed: int, nodes: int = 6) -> list[str]:
    """Let all but one leave at once; return how each of them ended. No key may be lost."""
    states: list[str] = []

    async def main() -> None:
        async with testing.ring(nodes, seed=11) as ring:
            keys = await fill(ring, 40)
            await settled(ring)
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
def test_all_but_one_leave_at_once_and_no_key_is_lost(seed: int, nodes: int) -> None:
    assert all_but_one_leave(seed, nodes) == ["left"] * (nodes - 1)


async def asked_while_it_leaves() -> None:
    """Ask a leaver that has given its arc away, wherever the key lies: it names who has it, and nobody else."""
    async with testing.ring(5, seed=11) as ring:
        leaver, other = ring[2], ring[3]
        vnode = only(leaver)
        heir = next(contact for contact in vnode.ring.successors)
        await leaver.parts[vnode.id].membership.leave()
        assert vnode.ownership.start is None
        for key in (vnode.id, heir.id, only(other).id, leaver.host.circle.point(vnode.id + 1)):
            with pytest.raises(NotOwner) as caught:
                vnode.require_owner(key)
            assert caught.value.peer == heir


@virtual
async def test_who_has_left_all_to_another_names_it_for_every_key() -> None:
    await asked_while_it_leaves()


def test_planted_who_names_the_one_before_it_sends_keys_round_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leaver names the one before it for what lies there, and so may that one."""
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
        testing.run(asked_while_it_leaves)


@pytest.mark.slow
def test_leavers_that_wait_for_each_other_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vnode, "on_get_ring", who_has_handed_over_is_silent)
    assert any("stopped" in all_but_one_leave(seed) for seed in range(8))


@pytest.mark.slow
@virtual
async def test_every_node_is_killed_in_turn_and_comes_back_empty() -> None:
    """One disk is lost at a time, and the copies are there again before the next."""
    async with testing.ring(6, seed=12) as ring:
        keys = await fill(ring, 40)
        await settled(ring)
        for name in [node.name for node in ring.nodes]:
            await ring.kill(next(node for node in ring.nodes if node.name == name))
            await trio.sleep(0.2)
            await back(ring, name)
            await ring.converged()
            await until_level(ring, within_s=10)
        for key in keys:
            assert (await read(ring[0], key)).values == (b"v",)


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_node_is_forgotten_and_its_copies_are_replaced_at_once(position: int) -> None:
    async def main() -> None:
        async with settled_ring(8, position) as ring:
            keys = [key_at(ring, "n4", number) for number in range(10)]
            for key in keys:
                await write(ring[0], key, b"v", w=3)
            gone = clockwise(ring, keys[0])[position]
            await ring.kill(gone)
            await ring.converged()
            await trio.sleep(5)
            assert misplaced(ring), "they are waited for"
            for node in ring.nodes:
                await node.host.peers.call(node.address, Forget(gone.address), Done)
            await until_level(ring, within_s=5)

    testing.run(main, seed=position)


@virtual
async def test_a_node_that_is_forgotten_before_it_is_missed_is_not_waited_for() -> None:
    async with settled_ring(8, 20) as ring:
        keys = await fill(ring, 20)
        await ring.kill(ring[3])
        for node in ring.nodes:
            await node.host.peers.call(node.address, Forget("n3:1"), Done)
        await ring.converged()
        await until_level(ring, within_s=8)
        assert keys


# -- settled ----------------------------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_replicas_are_told_of_every_part_of_an_arc() -> None:
    """Whoever took an arc over answers for several parts. A replica that hears of one does not forget the others."""
    async with settled_ring(8, 21, anti_entropy_s=2.0) as ring:
        keys = [key_at(ring, "n4", number) for number in range(3)]
        dead, taker, second, third, *_ = clockwise(ring, keys[0])
        await ring.kill(dead)
        await ring.converged()
        await trio.sleep(10)
        points = [only(taker).ownership.taken[0].arc.end, only(taker).id]
        for _ in range(50):
            assert [only(second).view.is_settled(point) for point in points] == [True, True]
            await trio.sleep(0.2)
        assert only(third).view.is_settled(only(taker).id)


@pytest.mark.slow
@virtual
async def test_who_was_settled_in_an_arc_and_keeps_half_of_it_is_settled_in_that_half() -> None:
    """The third replica of an arc that a joiner cuts in two holds the lower part no more, and hears of it no more."""
    async with settled_ring(6, 22, anti_entropy_s=10_000.0) as ring:
        key = key_at(ring, "n2")
        places = clockwise(ring, key)
        owner, third = places[0], places[2]
        before = only(places[-1]).id
        middle = (before + ((only(owner).id - before) % (1 << 160)) // 2) % (1 << 160)
        assert only(third).view.is_settled(middle)
        joiner = await ring.start(id=middle)
        await joiner.ready()
        await ring.converged()
        await trio.sleep(5)
        low = (middle - 1) % (1 << 160)
        assert low not in only(third).replicated()[-1] or third.name in ("",)
        assert not only(third).view.is_settled(low)
        assert only(third).view.is_settled(only(owner).id)


@virtual
async def test_a_replica_answers_whether_it_was_brought_level() -> None:
    async with settled_ring(6, 23) as ring:
        owner, second, *_ = clockwise(ring, KEY)
        copy = await owner.host.peers.call(only(second).me, ReadCopy(KEY), Copy)
        assert copy.is_settled
        again = await ring.restart(second)
        with trio.fail_after(5):
            while True:
                try:
                    copy = await owner.host.peers.call(only(again).me, ReadCopy(KEY), Copy)
                    break
                except ChordError:
                    await trio.sleep(0.001)
        assert not copy.is_settled, "empty, and new"
        await until(lambda: only(again).view.is_settled(owner.host.circle.hash(KEY)), within_s=5)


# -- what a replica has missed ------------------------------------------------------------------------


RARELY = timing(anti_entropy_s=10_000.0)


def repair_of(node: Node) -> AntiEntropy:
    (parts,) = node.parts.values()
    return parts.repair


async def has_caught_up(replica: Node, value: bytes, within_s: float) -> bool:
    """Whether a replica comes to hold this value by itself."""
    with trio.move_on_after(within_s):
        await until(lambda: versions.values(record_at(replica, KEY)) == [value], within_s=2 * within_s)
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_who_did_not_take_a_write_is_compared_at_once(is_planted: bool) -> None:
    async def main() -> None:
        async with testing.ring(5, seed=3, timing=RARELY) as ring:
            await settled(ring)
            owner, _, third, *_ = clockwise(ring, KEY)
            await write(owner, KEY, b"1", w=3)
            stage, storage = third.host.storage.stage, third.host.storage

            def refuse(batch: Batch) -> bool:
                storage.stage = stage  # type: ignore[method-assign]
                raise WritesRefused("the disk is full")

            storage.stage = refuse  # type: ignore[method-assign]
            if is_planted:
                repair_of(owner).fell_behind = lambda address: None  # type: ignore[method-assign]
            await write(owner, KEY, b"2", is_strict=True)
            assert await has_caught_up(third, b"2", within_s=10) is not is_planted

    testing.run(main, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_who_stood_still_compares_with_all_who_may_have_stood_in(is_planted: bool) -> None:
    async def main() -> None:
        async with testing.ring(5, seed=3, timing=RARELY) as ring:
            await settled(ring)
            owner, second, third, *_ = clockwise(ring, KEY)
            await write(owner, KEY, b"1", w=3)
            actor = versions.actor(second.host.storage.incarnation, second.host.storage.next_key_epoch())
            newer = versions.put(record_at(second, KEY), KEY, None, actor, Version(b"2", b"2" * 16, 0))
            for node in (second, third):
                node.host.storage.apply(Batch(puts=(newer,)))
            if not is_planted:
                repair_of(owner).stood_still()
            assert await has_caught_up(owner, b"2", within_s=10) is not is_planted

    testing.run(main, seed=3)


@pytest.mark.parametrize("is_planted", [False, True])
def test_comparison_during_which_the_node_stood_still_settles_nothing(
    is_planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes of other nodes may be missing. The planted bug counts the comparison from before the standstill."""
    if is_planted:
        monkeypatch.setattr(AntiEntropy, "_counts", lambda self, arc, level: True)

    async def main() -> bool:
        async with settled_ring(4, 3, anti_entropy_s=10_000.0) as ring:
            vnode = only(ring[0])
            repair = ring[0].parts[vnode.id].repair
            compare = repair._exchange_with
            repair.stood_still()

            async def stand_still_afterwards(contact: Contact, arc: Arc) -> SyncOutcome:
                outcome = await compare(contact, arc)
                repair.stood_still()
                return outcome

            repair._exchange_with = stand_still_afterwards  # type: ignore[method-assign]
            await repair.repair()
            assert vnode.ownership.arc is not None
            return vnode.view.is_settled_in(vnode.ownership.arc)

    assert testing.run(main, seed=3) is is_planted


@virtual
async def test_a_write_that_is_stored_here_is_sent_on_though_its_caller_gives_up() -> None:
    async with testing.ring(5, seed=3, timing=RARELY) as ring:
        await settled(ring)
        owner, second, third, *_ = clockwise(ring, KEY)
        await write(owner, KEY, b"1", w=3)
        commit, storage = owner.host.storage.commit, owner.host.storage

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
    async with testing.ring(1, seed=1) as ring:
        vnode = only(ring[0])
        assert vnode.ownership.arc is not None
        vnode.ownership.doubt(vnode.ownership.arc)
        for number, address in enumerate(("dead:1", "dead:1", "gone:1")):
            ring[0].host.peers.passive.add(Contact(Point(number), address), 0.0)
        (state,) = ring[0].parts[vnode.id].repair.states()
        assert [contact.address for contact in state.missing] == ["dead:1", "gone:1"]

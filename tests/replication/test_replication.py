"""Quorum writes and reads: where copies are at the acknowledgement, what is refused, who stands in for whom."""

from __future__ import annotations

import pytest
import trio

from chord import testing
from chord.cli.failures import explain
from chord.errors import (
    ChordError,
    InvalidRequest,
    NotReady,
    QuorumFailed,
    TooFewReplicas,
    VersionConflict,
    WritesRefused,
)
from chord.ids import Point
from chord.net.calls import Callback
from chord.replication.replica import Replica
from chord.store import versions
from chord.testing.rings import MemoryRing
from chord.wire.messages import Contact, Done, Get, Merge, Put, Request, StoreCopies, Written
from tests.support.quorum import (
    KEY,
    clockwise,
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
from tests.support.rings import only, virtual

# -- writes -----------------------------------------------------------------------------------------


def point(ring: MemoryRing, key: bytes) -> Point:
    return ring[0].host.circle.hash(key)


@virtual
async def test_a_put_is_on_two_nodes_when_it_is_acknowledged_and_on_three_soon() -> None:
    async with testing.ring(6, seed=1) as ring:
        for number in range(20):
            key = b"k-%d" % number
            written = await write(ring[number % 6], key, b"v")
            here = [node.name for node in clockwise(ring, key)]
            held = holding(ring, key)
            assert written.w >= written.w_needed == 2
            assert len(held) >= 2
            assert held[0] == here[0], "the coordinator's own first"
            assert not written.is_sloppy
            await trio.sleep(0.01)
            assert holding(ring, key) == here[:3], "and nowhere else"


@pytest.mark.parametrize(("w", "at_least"), [(1, 1), (2, 2), (3, 3)])
def test_the_writer_says_how_many(w: int, at_least: int) -> None:
    async def main() -> None:
        async with testing.ring(5, seed=w) as ring:
            written = await write(ring[0], KEY, b"v", w=w)
            assert (written.w_needed, written.w >= w) == (w, True)
            assert len(holding(ring, KEY)) >= at_least
            oks = [line for line in written.replicas if line.outcome == "ok"]
            assert len(oks) == written.w
            await trio.sleep(0.01)
            assert len(holding(ring, KEY)) == 3

    testing.run(main, seed=w)


@virtual
async def test_more_replicas_than_the_ring_keeps_or_has_are_refused_and_nothing_is_written() -> None:
    async with testing.ring(2, seed=1) as ring:
        with pytest.raises(InvalidRequest):
            await write(ring[0], KEY, b"v", w=4)
        with pytest.raises(InvalidRequest):
            await read(ring[0], KEY, r=4)
        owner = clockwise(ring, KEY)[0]
        with pytest.raises(TooFewReplicas):
            await owner.host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, w=3), Written)
        for node in ring.nodes:  # whoever is asked tells what stands in the way, and not that time was up
            for request in (Put(KEY, b"v", b"o" * 16, w=3), Get(KEY, 3)):
                with pytest.raises(TooFewReplicas, match="there are 2 nodes, not 3"), trio.fail_after(2):
                    await node.host.peers.call(node.address, request, request.reply)
        await trio.sleep(1)
        assert holding(ring, KEY) == []


@virtual
async def test_a_write_for_which_too_few_answer_leaves_nothing_anywhere() -> None:
    async with testing.ring(3, seed=2) as ring:
        owner, *others = clockwise(ring, KEY)
        for node in others:
            ring.network.freeze(node.name)
        await until(lambda: all(owner.host.peers.is_doubtful(only(node).me) for node in others))
        for fields in ({}, {"is_strict": True}, {"context": b""}):
            with pytest.raises(ChordError) as caught:
                await owner.host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, **fields), Written)
            assert caught.value.is_retryable
        for node in others:
            ring.network.unfreeze(node.name)
        await trio.sleep(5)
        assert holding(ring, KEY) == []


@virtual
async def test_joiner_writes_to_no_fewer_nodes_because_others_died_before() -> None:
    """It gets to know of the silent nodes with its arc: else it would be told that the ring has no more than two."""
    async with testing.ring(4, seed=2, replicas=5, successors=4, timing=timing(down_out_s=2.0)) as ring:
        first, *others = ring.nodes
        for node in others:
            await ring.kill(node)
        await trio.sleep(10)
        joiner = await ring.start(join=[first])
        await joiner.ready()
        await trio.sleep(1)
        for node in (first, joiner):
            key = next(key for key in (b"%d" % n for n in range(99)) if only(node).ownership.is_owner(point(ring, key)))
            with pytest.raises(TooFewReplicas, match="a write needs 3 nodes, and 2 are available"):
                await node.host.peers.call(only(node).me, Put(key, b"v", b"o" * 16), Written)


@virtual
async def test_node_that_answers_again_is_waited_for_until_it_is_listed() -> None:
    """In between it is neither a member nor silent, and a write would need one node less."""
    async with testing.ring(3, seed=2) as ring:
        node, back, _ = ring.nodes
        vnode, contact = only(node), only(back).me
        node.host.peers.passive.add(contact, 0.0)
        listed = vnode.ring.successors
        vnode.ring.successors = tuple(other for other in listed if other != contact)
        await node.parts[vnode.id].self_lookup.ask(contact)
        assert list(node.host.peers.passive.contacts()) == [contact]
        assert vnode.nodes_known(vnode.replica_set(vnode.id)) == 3
        vnode.ring.successors = listed
        await node.parts[vnode.id].self_lookup.ask(contact)
        assert list(node.host.peers.passive.contacts()) == []


def test_put_that_the_disks_of_others_refuse_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Replica, request: StoreCopies) -> Done:
        raise WritesRefused("n7: no writes are taken: No space left on device")

    async def main() -> None:
        async with settled_ring(3, 3) as ring:
            owner, *_ = clockwise(ring, KEY)
            monkeypatch.setattr(Replica, "on_store_copies", refuse)
            said = "stored on 1 of 2 nodes; refused by n.:1, n.:1: n7: no writes are taken: No space left on device"
            with pytest.raises(QuorumFailed, match=said) as caught:
                await owner.host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, b""), Written)
            assert "refuse writes: chord status" in explain(caught.value, owner.address).hint

    testing.run(main, seed=1)


@virtual
async def test_a_quorum_that_fails_after_the_own_dot_is_no_definite_answer() -> None:
    """The coordinator cannot know yet that the others are gone: its own copy is durable and may be read one day."""
    async with settled_ring(3, 3) as ring:
        owner, *others = clockwise(ring, KEY)
        for node in others:
            ring.network.freeze(node.name)
        with pytest.raises(QuorumFailed):
            await owner.host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, b""), Written)
        assert holding(ring, KEY) == [owner.name]
        for node in others:
            ring.network.unfreeze(node.name)
        await until_level(ring)
        assert len(holding(ring, KEY)) == 3


@virtual
async def test_strict_counts_only_replicas_and_sloppy_says_that_it_was() -> None:
    async with settled_ring(7, 4) as ring:
        owner, second, third, *_ = clockwise(ring, KEY)
        for node in (second, third):
            await ring.kill(node)
        await until(lambda: all(owner.host.peers.is_doubtful(only(node).me) for node in (second, third)))
        with pytest.raises(TooFewReplicas):
            await owner.host.peers.call(only(owner).me, Put(KEY, b"strict", b"o" * 16, b"", is_strict=True), Written)
        assert holding(ring, KEY) == []
        written = await write(ring[0], KEY, b"sloppy")
        assert (written.w >= 2, written.is_sloppy) == (True, True)
        outcomes = {line.contact.address: line.outcome for line in written.replicas}
        assert outcomes[owner.address] == "ok"
        stored = [node.name for node in ring.nodes if outcomes.get(node.address) in ("ok", "hinted")]
        assert len(stored) >= 2
        assert set(stored) <= set(holding(ring, KEY))
        assert "hinted" in outcomes.values()


@virtual
async def test_strict_and_all_there_is_strict() -> None:
    async with testing.ring(4, seed=5) as ring:
        written = await write(ring[0], KEY, b"v", is_strict=True, w=3)
        assert (written.w, written.is_sloppy) == (3, False)


@virtual
async def test_a_node_that_ends_never_says_nothing_happened_when_something_did() -> None:
    """Ending, a coordinator asks nobody any more: then it must not write either, or say that it may have."""
    async with settled_ring(4, 6) as ring:
        owner = clockwise(ring, KEY)[0]
        owner.host.is_ending = True
        for context in (None, b""):
            try:
                await owner.host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, context), Written)
            except NotReady:
                assert owner.host.storage.get(KEY) is None, "a definite answer, and the write is there"
            except QuorumFailed:
                pass
        owner.host.is_ending = False


@virtual
async def test_a_merge_is_spread_like_a_put() -> None:
    async with testing.ring(5, seed=7) as ring:
        await write(ring[0], KEY, b"v")
        record = record_at(clockwise(ring, KEY)[0], KEY)
        other = b"other key"
        copy = type(record)(other, record.clock)
        written = await ring[1].host.peers.call(ring[1].address, Merge(copy), Written)
        assert written.w >= 2
        await trio.sleep(0.01)
        assert holding(ring, other) == [node.name for node in clockwise(ring, other)[:3]]


# -- versions through the ring ----------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_two_clients_that_alternate_leave_at_most_two_siblings() -> None:
    async with testing.ring(4, seed=12) as ring:
        contexts = [b"", b""]
        for number in range(1000):
            before = (await read(ring[0], KEY)).context  # so that each context lacks one write: the other client's
            await write(ring[0], KEY, b"%d" % number, context=contexts[number % 2])
            contexts[(number + 1) % 2] = before
            assert len(versions.siblings(record_at(clockwise(ring, KEY)[0], KEY))) <= 2


@virtual
async def test_who_goes_on_from_a_write_replaces_nothing_that_was_not_read() -> None:
    async with testing.ring(4, seed=12) as ring:
        await write(ring[0], KEY, b"empty")
        seen = (await read(ring[0], KEY)).context
        await write(ring[1], KEY, b"milk", context=seen)
        mine = await write(ring[0], KEY, b"bread", context=seen)
        assert mine.beside == 1
        for value in (b"bread, jam", b"bread, jam, tea"):
            mine = await write(ring[0], KEY, value, context=mine.context)
        found = await read(ring[2], KEY)
        assert b"milk" in found.values
        assert found.values[0] == b"bread, jam, tea"
        assert (await write(ring[0], KEY, b"all", context=found.context)).beside == 0
        assert (await read(ring[2], KEY)).values == (b"all",)
        await write(ring[1], KEY, None)
        assert (await write(ring[2], KEY, b"blind", context=b"")).beside == 0, "a tombstone is no value"
        alone = await write(ring[0], KEY, b"all, and more")
        await write(ring[3], KEY, b"the same writer goes on", context=alone.context)
        assert (await read(ring[2], KEY)).values == (b"the same writer goes on",)


@virtual
async def test_sixty_four_blind_writes_are_kept_and_the_next_must_cover_them() -> None:
    async with testing.ring(4, seed=13) as ring:
        for number in range(64):
            await write(ring[number % 4], KEY, b"%d" % number, context=b"")
        with pytest.raises(VersionConflict):
            await write(ring[0], KEY, b"one too many", context=b"")
        found = await read(ring[1], KEY)
        assert sorted(found.values) == sorted(b"%d" % number for number in range(64))
        await write(ring[2], KEY, b"all of them", context=found.context)
        assert (await read(ring[3], KEY)).values == (b"all of them",)


@virtual
async def test_what_was_deleted_is_absent_and_stays_so() -> None:
    async with testing.ring(5, seed=14) as ring:
        await write(ring[0], KEY, b"v")
        await write(ring[1], KEY, None)
        for node in ring.nodes:
            assert (await read(node, KEY)).values == ()
        await ring.kill(clockwise(ring, KEY)[0])
        await ring.converged()
        for node in ring.nodes:
            with trio.fail_after(5):
                assert (await read(node, KEY)).values == ()


@virtual
async def test_a_time_to_live_ends_by_the_coordinators_clock_and_repair_does_not_prolong_it() -> None:
    async with testing.ring(5, seed=15, timing=timing(anti_entropy_s=1.0)) as ring:
        await write(ring[0], KEY, b"short", ttl_ms=3000)
        began = trio.current_time()
        assert (await read(ring[1], KEY)).values == (b"short",)
        await ring.kill(clockwise(ring, KEY)[1])
        await trio.sleep_until(began + 2.5)
        assert (await read(ring[0], KEY)).values == (b"short",)
        joiner = await ring.start()
        await joiner.ready()
        await trio.sleep_until(began + 3.1)
        for _ in range(10):
            with trio.fail_after(5):
                assert (await read(ring[0], KEY)).values == ()
            await trio.sleep(0.5)


@virtual
async def test_an_operation_that_is_tried_again_writes_once() -> None:
    async with testing.ring(6, seed=16) as ring:
        key = key_at(ring, "n3")
        await settled(ring)
        op_id = b"o" * 16
        await write(ring[0], key, b"v", op_id=op_id, context=b"")
        before = record_at(clockwise(ring, key)[0], key)
        await write(ring[1], key, b"v", op_id=op_id, context=b"")
        assert record_at(clockwise(ring, key)[0], key).clock == before.clock, "no second dot"
        ring.network.freeze("n3")
        with trio.fail_after(4):
            await write(ring[0], key, b"v", op_id=op_id, context=b"")
        with trio.fail_after(4):
            assert (await read(ring[0], key)).values == (b"v",)
        ring.network.unfreeze("n3")
        await ring.converged()
        with trio.fail_after(4):
            assert (await read(ring[0], key)).values == (b"v",)


@virtual
async def test_an_operation_through_two_coordinators_that_know_nothing_of_each_other_is_one_value() -> None:
    async with testing.ring(6, seed=17) as ring:
        key = key_at(ring, "n3")
        await settled(ring)
        owner = clockwise(ring, key)[0]
        original = owner.host.peers._calls.begin

        def copies_are_lost(to: Contact | str, request: Request, told: Callback, *, deadline: float) -> None:
            if not isinstance(request, StoreCopies):
                original(to, request, told, deadline=deadline)

        owner.host.peers._calls.begin = copies_are_lost  # type: ignore[method-assign]
        put = Put(key, b"v", b"o" * 16, b"")
        with trio.move_on_after(0.2):
            await owner.host.peers.call(only(owner).me, put, Written)
        assert holding(ring, key) == [owner.name]
        ring.network.freeze("n3")
        with trio.fail_after(4):
            await write(ring[0], key, b"v", op_id=put.op_id, context=b"")
        ring.network.unfreeze("n3")
        owner.host.peers._calls.begin = original  # type: ignore[method-assign]
        await ring.converged()
        await until_level(ring)
        assert len(record_at(owner, key).clock) == 2, "two dots"
        assert (await read(ring[0], key)).values == (b"v",), "and one value"

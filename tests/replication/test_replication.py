"""Quorum reads and writes: copies at the acknowledgement, refused requests, stand-ins."""

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
from chord.testing.rings import TestRing
from chord.wire.messages import Contact, Done, Get, Merge, Put, Request, StoreCopies, Written
from tests.support.quorum import (
    KEY,
    clockwise,
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
from tests.support.rings import only, virtual

# -- writes -----------------------------------------------------------------------------------------


def point(ring: TestRing, key: bytes) -> Point:
    return ring[0]._host.circle.hash(key)


@virtual
async def test_acknowledged_put_is_on_two_nodes_and_soon_on_three() -> None:
    async with testing.open_ring(6, seed=1) as ring:
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
            assert holding(ring, key) == here[:3], "no other node has a copy"


@pytest.mark.parametrize(("w", "at_least"), [(1, 1), (2, 2), (3, 3)])
def test_put_waits_for_w_replicas(w: int, at_least: int) -> None:
    async def main() -> None:
        async with testing.open_ring(5, seed=w) as ring:
            written = await write(ring[0], KEY, b"v", w=w)
            assert (written.w_needed, written.w >= w) == (w, True)
            assert len(holding(ring, KEY)) >= at_least
            oks = [line for line in written.replicas if line.outcome == "ok"]
            assert len(oks) == written.w
            await trio.sleep(0.01)
            assert len(holding(ring, KEY)) == 3

    testing.run(main, seed=w)


@virtual
async def test_quorum_above_the_number_of_nodes_is_refused() -> None:
    async with testing.open_ring(2, seed=1) as ring:
        with pytest.raises(InvalidRequest):
            await write(ring[0], KEY, b"v", w=4)
        with pytest.raises(InvalidRequest):
            await read(ring[0], KEY, r=4)
        owner = clockwise(ring, KEY)[0]
        with pytest.raises(TooFewReplicas):
            await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, w=3), Written)
        for node in ring.nodes:  # each node names the reason at once, not a timeout
            for request in (Put(KEY, b"v", b"o" * 16, w=3), Get(KEY, 3)):
                with pytest.raises(TooFewReplicas, match="there are 2 nodes, not 3"), trio.fail_after(2):
                    await node._host.peers.call(node.address, request, request.reply)
        await trio.sleep(1)
        assert holding(ring, KEY) == []


@virtual
async def test_write_with_too_few_reachable_nodes_stores_nothing() -> None:
    async with testing.open_ring(3, seed=2) as ring:
        owner, *others = clockwise(ring, KEY)
        for node in others:
            ring.network.freeze(node.name)
        await until(lambda: all(owner._host.peers.is_doubtful(only(node).me) for node in others))
        for fields in ({}, {"strict": True}, {"context": b""}):
            with pytest.raises(ChordError) as caught:
                await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, **fields), Written)
            assert caught.value.is_retryable
        for node in others:
            ring.network.unfreeze(node.name)
        await trio.sleep(5)
        assert holding(ring, KEY) == []


@virtual
async def test_write_quorum_of_a_joiner_counts_nodes_that_died() -> None:
    """The joiner learns of the dead nodes with its arc. Otherwise it would count only two nodes."""
    async with testing.open_ring(4, seed=2, replicas=5, successors=4, timing=timing(down_out_s=2.0)) as ring:
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
                await node._host.peers.call(only(node).me, Put(key, b"v", b"o" * 16), Written)


@virtual
async def test_returned_node_counts_as_known_until_it_is_listed() -> None:
    """Otherwise the node would be neither a member nor unreachable, and a write would need one node less."""
    async with testing.open_ring(3, seed=2) as ring:
        node, back, _ = ring.nodes
        vnode, contact = only(node), only(back).me
        node._host.peers.passive.add(contact, 0.0)
        listed = vnode.ring.successors
        vnode.ring.successors = tuple(other for other in listed if other != contact)
        await node._parts[vnode.id].ring_merge.ask(contact)
        assert list(node._host.peers.passive.contacts()) == [contact]
        assert vnode.nodes_known(vnode.replica_set(vnode.id)) == 3
        vnode.ring.successors = listed
        await node._parts[vnode.id].ring_merge.ask(contact)
        assert list(node._host.peers.passive.contacts()) == []


def test_put_refused_by_the_disks_of_replicas_names_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Replica, request: StoreCopies) -> Done:
        raise WritesRefused("n7: no writes are taken: No space left on device")

    async def main() -> None:
        async with ring_in_sync(3, 3) as ring:
            owner, *_ = clockwise(ring, KEY)
            monkeypatch.setattr(Replica, "on_store_copies", refuse)
            said = "stored on 1 of 2 nodes; refused by n.:1, n.:1: n7: no writes are taken: No space left on device"
            with pytest.raises(QuorumFailed, match=said) as caught:
                await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, b""), Written)
            assert "refuse writes: chord status" in explain(caught.value, owner.address).hint

    testing.run(main, seed=1)


@virtual
async def test_put_that_fails_after_its_own_commit_is_indefinite() -> None:
    """The coordinator's copy is durable, so a later read may return it."""
    async with ring_in_sync(3, 3) as ring:
        owner, *others = clockwise(ring, KEY)
        for node in others:
            ring.network.freeze(node.name)
        with pytest.raises(QuorumFailed):
            await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, b""), Written)
        assert holding(ring, KEY) == [owner.name]
        for node in others:
            ring.network.unfreeze(node.name)
        await until_none_misplaced(ring)
        assert len(holding(ring, KEY)) == 3


@virtual
async def test_strict_write_counts_only_members_unlike_a_sloppy_one() -> None:
    async with ring_in_sync(7, 4) as ring:
        owner, second, third, *_ = clockwise(ring, KEY)
        for node in (second, third):
            await ring.kill(node)
        await until(lambda: all(owner._host.peers.is_doubtful(only(node).me) for node in (second, third)))
        with pytest.raises(TooFewReplicas):
            await owner._host.peers.call(only(owner).me, Put(KEY, b"strict", b"o" * 16, b"", strict=True), Written)
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
async def test_strict_write_with_all_members_is_not_sloppy() -> None:
    async with testing.open_ring(4, seed=5) as ring:
        written = await write(ring[0], KEY, b"v", strict=True, w=3)
        assert (written.w, written.is_sloppy) == (3, False)


@virtual
async def test_ending_node_that_refuses_a_write_has_not_stored_it() -> None:
    """An ending coordinator asks no replica. So it must not write, or its error must be indefinite."""
    async with ring_in_sync(4, 6) as ring:
        owner = clockwise(ring, KEY)[0]
        owner._host.is_ending = True
        for context in (None, b""):
            try:
                await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"o" * 16, context), Written)
            except NotReady:
                assert owner._host.storage.get(KEY) is None, "the error is definite, but the write is stored"
            except QuorumFailed:
                pass
        owner._host.is_ending = False


@virtual
async def test_merge_is_replicated_like_a_put() -> None:
    async with testing.open_ring(5, seed=7) as ring:
        await write(ring[0], KEY, b"v")
        record = record_at(clockwise(ring, KEY)[0], KEY)
        other = b"other key"
        copy = type(record)(other, record.clock)
        written = await ring[1]._host.peers.call(ring[1].address, Merge(copy), Written)
        assert written.w >= 2
        await trio.sleep(0.01)
        assert holding(ring, other) == [node.name for node in clockwise(ring, other)[:3]]


# -- versions through the ring ----------------------------------------------------------------------


@pytest.mark.slow
@virtual
async def test_two_clients_that_alternate_leave_at_most_two_siblings() -> None:
    async with testing.open_ring(4, seed=12) as ring:
        contexts = [b"", b""]
        for number in range(1000):
            before = (await read(ring[0], KEY)).context  # each context lacks the other client's last write
            await write(ring[0], KEY, b"%d" % number, context=contexts[number % 2])
            contexts[(number + 1) % 2] = before
            assert len(versions.siblings(record_at(clockwise(ring, KEY)[0], KEY))) <= 2


@virtual
async def test_context_of_a_write_covers_no_unread_sibling() -> None:
    async with testing.open_ring(4, seed=12) as ring:
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
        assert (await write(ring[2], KEY, b"no context", context=b"")).beside == 0, "a tombstone is no value"
        alone = await write(ring[0], KEY, b"all, and more")
        await write(ring[3], KEY, b"the same writer goes on", context=alone.context)
        assert (await read(ring[2], KEY)).values == (b"the same writer goes on",)


@virtual
async def test_writes_beyond_64_siblings_are_refused() -> None:
    async with testing.open_ring(4, seed=13) as ring:
        for number in range(64):
            await write(ring[number % 4], KEY, b"%d" % number, context=b"")
        with pytest.raises(VersionConflict):
            await write(ring[0], KEY, b"one too many", context=b"")
        found = await read(ring[1], KEY)
        assert sorted(found.values) == sorted(b"%d" % number for number in range(64))
        await write(ring[2], KEY, b"all of them", context=found.context)
        assert (await read(ring[3], KEY)).values == (b"all of them",)


@virtual
async def test_deleted_key_stays_absent() -> None:
    async with testing.open_ring(5, seed=14) as ring:
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
async def test_ttl_is_not_prolonged_by_repair() -> None:
    async with testing.open_ring(5, seed=15, timing=timing(anti_entropy_s=1.0)) as ring:
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
async def test_retried_operation_writes_once() -> None:
    async with testing.open_ring(6, seed=16) as ring:
        key = key_at(ring, "n3")
        await until_in_sync(ring)
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
async def test_operation_through_two_coordinators_is_one_value() -> None:
    async with testing.open_ring(6, seed=17) as ring:
        key = key_at(ring, "n3")
        await until_in_sync(ring)
        owner = clockwise(ring, key)[0]
        original = owner._host.peers._calls.begin

        def copies_are_lost(to: Contact | str, request: Request, callback: Callback, *, deadline: float) -> None:
            if not isinstance(request, StoreCopies):
                original(to, request, callback, deadline=deadline)

        owner._host.peers._calls.begin = copies_are_lost  # type: ignore[method-assign]
        put = Put(key, b"v", b"o" * 16, b"")
        with trio.move_on_after(0.2):
            await owner._host.peers.call(only(owner).me, put, Written)
        assert holding(ring, key) == [owner.name]
        ring.network.freeze("n3")
        with trio.fail_after(4):
            await write(ring[0], key, b"v", op_id=put.op_id, context=b"")
        ring.network.unfreeze("n3")
        owner._host.peers._calls.begin = original  # type: ignore[method-assign]
        await ring.converged()
        await until_none_misplaced(ring)
        assert len(record_at(owner, key).clock) == 2, "two dots"
        assert (await read(ring[0], key)).values == (b"v",), "and one value"

"""The coordinator: the owner, or the next member while the owner is unreachable."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import pytest
import trio

from chord import testing
from chord.errors import Busy, ChordError, ClocksDiffer, IndefiniteError, NotOwner, PeerLost, WritesRefused
from chord.net.calls import Callback
from chord.net.steps import Driver, Steps
from chord.node import Node
from chord.replication.coordinator import Coordinator
from chord.replication.read import Reading
from chord.store import versions
from chord.store.storage import Batch, MemoryStorage
from chord.testing.rings import TestRing
from chord.wire.messages import Contact, Put, Reply, Request, Written
from tests.mutants.mutant import Edit
from tests.support.quorum import (
    KEY,
    SlowDisk,
    back,
    clockwise,
    durable_by_commit,
    holding,
    keep_disks,
    key_at,
    read,
    record_at,
    ring_in_sync,
    stop_repair,
    timing,
    until,
    until_in_sync,
    until_none_misplaced,
    write,
)
from tests.support.rings import only, patiently, replicas, virtual

# -- the owner is unreachable -----------------------------------------------------------------------

DOWN_OUT_S = 20.0
OTHER_ENDS = ("vanished", "frozen", "stopped")


@pytest.mark.parametrize("how", ["killed", *(pytest.param(how, marks=pytest.mark.slow) for how in OTHER_ENDS)])
def test_reads_and_writes_succeed_without_the_owner(how: str) -> None:
    async def main() -> None:
        async with ring_in_sync(7, how, keeps_disks=True) as ring:
            key = key_at(ring, "n3")
            await write(ring[0], key, b"before")
            await trio.sleep(0.1)
            owner, asked = clockwise(ring, key)[0], ring[0]
            if how == "frozen":
                ring.network.freeze("n3")
            elif how == "stopped":
                await owner.stop()
            else:
                await ring.kill(owner, silently=how == "vanished")
            began = trio.current_time()
            with trio.fail_after(3):
                assert (await read(asked, key)).values == (b"before",)
            assert trio.current_time() - began < 2, "dead after three missed calls, then one retry"
            with trio.fail_after(3):
                written = await write(asked, key, b"meanwhile")
            assert written.owner != only(owner).me
            assert written.w >= 2
            assert trio.current_time() - began < 3
            await trio.sleep(5)
            if how == "frozen":
                ring.network.unfreeze("n3")
            else:
                owner = await back(ring, "n3")
            for _ in range(50):
                with trio.fail_after(5):
                    assert (await read(asked, key)).values == (b"meanwhile",), "only the last value is left"
                await trio.sleep(0.05)
            await ring.converged()
            await until_none_misplaced(ring)
            assert versions.values(record_at(owner, key)) == [b"meanwhile"]

    testing.run(main, seed=how)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["frozen", "stopped"])
@pytest.mark.parametrize("seed", range(6))
def test_returned_owner_creates_no_sibling_of_a_missed_write(how: str, seed: int) -> None:
    async def main() -> None:
        async with ring_in_sync(6, seed, keeps_disks=True) as ring:
            key = key_at(ring, "n3")
            await write(ring[0], key, b"1")
            owner, second, *_ = clockwise(ring, key)
            if how == "frozen":
                ring.network.freeze("n3")
            else:
                await owner.stop()
            await patiently(lambda: second._host.peers.call(only(second).me, Put(key, b"2", b"2" * 16), Written))
            await trio.sleep(1.0)
            if how == "frozen":
                ring.network.unfreeze("n3")
            else:
                owner = await ring.start(name="n3")
            with trio.fail_after(4):
                await write(ring[0], key, b"3")
            for _ in range(20):
                with trio.fail_after(5):
                    assert (await read(ring[0], key)).values == (b"3",)
                await trio.sleep(0.1)

    testing.run(main, seed=seed)


def test_late_duplicate_does_not_undo_a_later_write() -> None:
    """A frozen owner receives a write late. Another node has executed the retry and a later write meanwhile."""

    async def main() -> None:
        async with ring_in_sync(6, 0) as ring:
            key = key_at(ring, "n3")
            await write(ring[0], key, b"1")
            ring.network.freeze("n3")
            with trio.fail_after(4):
                await write(ring[0], key, b"2")
            await trio.sleep(1.0)
            ring.network.unfreeze("n3")
            with trio.fail_after(4):
                await write(ring[0], key, b"3")
            for _ in range(20):
                with trio.fail_after(5):
                    assert b"3" in (await read(ring[0], key)).values
                await trio.sleep(0.1)

    testing.run(main, seed=0)


async def done_twice(ring: testing.TestRing, value: bytes | None) -> tuple[bytes, ...]:
    """Execute a write twice, replace it, and return the final values.

    The owner is frozen after it has stored the write, before it sends a copy. Another coordinator executes the write
    again, and a client replaces its value. Then the owner continues.
    """
    key = key_at(ring, "n3")
    first = await write(ring[0], key, b"1")
    owner = clockwise(ring, key)[0]
    owner._host.on_write.append(lambda point, written: ring.network.freeze("n3"))
    with trio.fail_after(4):  # with a context, because the owner stores it first
        await write(ring[0], key, b"2", context=first.context)
    owner._host.on_write.pop()
    assert b"2" in versions.values(record_at(owner, key)), "the first attempt was stored"
    seen = await read(ring[0], key)
    with trio.fail_after(4):
        await write(ring[0], key, value, context=seen.context)
    await trio.sleep(1.0)
    ring.network.unfreeze("n3")
    await trio.sleep(5.0)
    await ring.converged()
    await until_none_misplaced(ring)
    return tuple(sorted((await read(ring[0], key)).values))


@pytest.mark.slow
@pytest.mark.parametrize("value", [b"3", None])
def test_write_executed_twice_is_replaced_as_one_value(value: bytes | None) -> None:
    async def main() -> None:
        async with testing.open_ring(6, seed=0) as ring:
            await until_in_sync(ring)
            assert await done_twice(ring, value) == (() if value is None else (value,))

    testing.run(main, seed=0)


@pytest.mark.slow
@virtual
async def test_planted_no_retry_deduplication_brings_a_value_back() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "_replaced", lambda *_, **__: b"")
        async with testing.open_ring(6, seed=0) as ring:
            await until_in_sync(ring)
            assert await done_twice(ring, b"3") == (b"2", b"3")


@virtual
async def test_replica_that_was_never_in_sync_does_not_count_for_r() -> None:
    """The owner missed a write, and one of two replicas lost it with its disk. The third replica still has it."""
    async with testing.open_ring(6, seed=11) as ring:
        disks = keep_disks(ring)
        await until_in_sync(ring)
        key = key_at(ring, "n3")
        await write(ring[0], key, b"old", w=3)
        owner, second, third, *_ = clockwise(ring, key)
        stop_repair(*ring.nodes)
        await ring.kill(owner)
        with trio.fail_after(4):
            await write(third, key, b"new", w=2, strict=True)
        await until(lambda: len([n for n in (second, third) if versions.values(record_at(n, key)) == [b"new"]]) == 2)
        await ring.kill(second)
        del disks[second.name]
        wiped = await ring.start(name=second.name)
        await wiped.ready()
        stop_repair(wiped)
        returned = await ring.start(name="n3")
        stop_repair(returned)
        await returned.ready()
        stop_repair(returned)
        for _ in range(10):
            with trio.fail_after(5):
                assert (await read(third, key)).values == (b"new",)
            await trio.sleep(0.1)


async def outcome_of_put(node: Node, key: bytes) -> str:
    """Put through a node once; return "stored", the word of the error, or "no answer"."""
    try:
        with trio.move_on_after(2):
            await write(node, key, b"new")
            return "stored"
    except ChordError as error:
        return error.word
    return "unreachable"


async def put_through_new_replicas(ring: TestRing) -> tuple[bytes, list[str]]:
    """Let new nodes replace a value while the two replicas that have it are down.

    Returns the key, and the outcome of a put through each new node.
    """
    disks = keep_disks(ring)
    await until_in_sync(ring)
    order = sorted(ring.nodes, key=lambda node: only(node).id)
    before, first, second, third = order[1:5]
    circle = ring[0]._host.circle
    low, gap = only(before).id, circle.distance(only(before).id, only(first).id) // 5
    points = (circle.distance(low, circle.hash(b"key-%d" % i)) for i in range(10_000))
    key = next(b"key-%d" % i for i, distance in enumerate(points) if distance < gap)
    await write(ring[0], key, b"old", w=3)
    for node in (first, second):
        await ring.kill(node)
    third._host.storage.apply(Batch(removals=(key,)))  # the quorum was the other two
    joined = [await ring.start(id=circle.point(low + gap * (place + 1)), join=[before]) for place in range(4)]
    for node in joined:
        await node.ready()
    outcomes = [await outcome_of_put(node, key) for node in joined]
    for node in (first, second):
        assert disks[node.name].get(key) is not None
        await (await ring.start(name=node.name)).ready()
    return key, outcomes


@pytest.mark.slow
@virtual
async def test_put_to_new_replicas_is_refused_until_the_old_return() -> None:
    """The put must replace a value that none of the first replicas to answer has."""
    async with testing.open_ring(7, seed=75, timing=timing(down_out_s=DOWN_OUT_S)) as ring:
        key, outcomes = await put_through_new_replicas(ring)
        assert outcomes
        assert "stored" not in outcomes
        with trio.fail_after(2 * DOWN_OUT_S):
            while await outcome_of_put(ring[0], key) != "stored":
                await trio.sleep(0.1)
        assert (await read(ring[0], key)).values == (b"new",)


@virtual
async def test_planted_read_quorum_of_new_replicas_keeps_old_value() -> None:
    with ExitStack() as stack:
        Edit(Coordinator._read_first, "if not reading.has(needed):", "if False:").plant(stack)
        async with testing.open_ring(7, seed=75, timing=timing(down_out_s=DOWN_OUT_S)) as ring:
            key, outcomes = await put_through_new_replicas(ring)
            assert "stored" in outcomes
            await until(lambda: len(versions.values(record_at(clockwise(ring, key)[0], key))) > 1)


# -- one coordinator, and durable writes ------------------------------------------------------------


@virtual
async def test_replica_refuses_to_coordinate_while_the_owner_answers() -> None:
    async with ring_in_sync(6, 19) as ring:
        _, *others = clockwise(ring, KEY)
        for node in others:
            with pytest.raises(NotOwner):
                await node._host.peers.call(only(node).me, Put(KEY, b"v", b"o" * 16, b""), Written)
        assert holding(ring, KEY) == []


@virtual
async def test_node_before_its_takeover_stands_in_for_no_key() -> None:
    """A node waits for a dead node. Then a farther node calls itself its predecessor, as after a partition."""
    async with ring_in_sync(9, 20, down_out_s=600.0) as ring:
        owner, _, _, before, dead, heir, *_ = clockwise(ring, KEY)
        await ring.kill(dead)
        own = only(heir).ownership
        await until(lambda: [mark.dead for mark in own.marks] == [only(dead).me])
        predecessor = clockwise(ring, KEY)[-1]
        only(heir).ring.replace_predecessor(only(predecessor).me, only(before).me)
        with pytest.raises((Busy, NotOwner)):
            await heir._host.peers.call(only(heir).me, Put(KEY, b"v", b"o" * 16, b""), Written)
        assert holding(ring, KEY) == []
        assert only(owner).ownership.is_owner(ring[0]._host.circle.hash(KEY))


@pytest.mark.slow
@pytest.mark.parametrize("vnodes", [2, 5])
def test_copies_are_on_different_nodes_with_many_vnodes(vnodes: int) -> None:
    async def main() -> None:
        async with testing.open_ring(4, seed=vnodes, vnodes=vnodes) as ring:
            await until_in_sync(ring)
            for number in range(30):
                key = b"k-%d" % number
                written = await write(ring[number % 4], key, b"v")
                assert len({line.contact.address for line in written.replicas if line.outcome == "ok"}) == written.w
                await trio.sleep(0.01)
                assert [n.name for n in ring.nodes if n._host.storage.get(key)] == sorted(replicas(ring, key))

    testing.run(main, seed=vnodes)


@virtual
async def test_write_is_sent_to_replicas_only_once_it_is_durable() -> None:
    async with testing.open_ring(3, seed=20, wait=True) as ring:
        disks: dict[str, MemoryStorage] = keep_disks(ring)
        await until_in_sync(ring)
        name = clockwise(ring, KEY)[0].name
        await ring.kill(clockwise(ring, KEY)[0])
        slow = disks[name] = SlowDisk(ring[0]._host.circle, b"slowdisk")
        owner = await back(ring, name)
        await ring.converged()
        await until_in_sync(ring)
        done = trio.Event()

        async def client() -> None:
            await write(owner, KEY, b"v", w=1, context=b"")
            assert slow.is_durable(KEY), "a crash would undo the acknowledged write"
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(client)
            while not done.is_set():
                assert holding(ring, KEY) in ([], [name]) or slow.is_durable(KEY), "copied before it is durable"
                await trio.sleep(0.001)


@virtual
async def test_read_does_not_wait_for_writes_of_others() -> None:
    """A read returns the durable value at once. Otherwise a key under continuous writes could not be read."""
    async with testing.open_ring(3, seed=20, wait=True) as ring:
        disks: dict[str, MemoryStorage] = keep_disks(ring)
        await until_in_sync(ring)
        for place in range(3):
            name = clockwise(ring, KEY)[0].name if place == 0 else f"n{place}"
            await ring.kill(next(node for node in ring.nodes if node.name == name))
            disks[name] = SlowDisk(ring[0]._host.circle, b"slow%04d" % place)
            await back(ring, name)
            await ring.converged()
            await until_in_sync(ring)
        await write(ring[0], KEY, b"first")
        async with trio.open_nursery() as nursery:

            async def writer(number: int) -> None:
                while True:
                    await write(ring[number % 3], KEY, b"%d" % number, context=b"")
                    await write(ring[number % 3], KEY, b"settled")

            for number in range(8):
                nursery.start_soon(writer, number)
            await trio.sleep(1)
            for r in (1, 2, 3):
                began = trio.current_time()
                assert (await read(ring[r % 3], KEY, r=r)).values
                assert trio.current_time() - began < 0.05, "less than one sync"
            nursery.cancel_scope.cancel()


@virtual
async def test_forwarded_write_with_a_lost_answer_is_indefinite() -> None:
    """The owner stores the write, and stops before its answer arrives. A definite error would be wrong."""
    async with testing.open_ring(5, seed=18, replicas=1) as ring:
        keep_disks(ring)
        key = key_at(ring, "n3")
        owner, asked = clockwise(ring, key)[0], ring[0]
        original = asked._host.peers._calls.begin

        def answer_is_lost(to: Contact | str, request: Request, callback: Callback, *, deadline: float) -> None:
            async def stop_first() -> None:
                await owner.stop()
                callback(PeerLost("gone"))

            def lose_answer(answer: Reply | ChordError) -> None:
                if isinstance(request, Put) and isinstance(answer, Written):
                    nursery.start_soon(stop_first)
                else:
                    callback(answer)

            original(to, request, lose_answer, deadline=deadline)

        asked._host.peers._calls.begin = answer_is_lost  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            with pytest.raises((IndefiniteError, trio.TooSlowError)), trio.fail_after(5):
                await write(asked, key, b"v")
        assert owner._host.storage.get(key) is not None


@virtual
async def test_put_with_a_ttl_is_refused_while_clocks_differ() -> None:
    async with ring_in_sync(3, 1) as ring:
        owner, second, *_ = clockwise(ring, KEY)
        owner._host.note_clock(second.address, owner._host.wall_now_ms() + 61_000)
        with pytest.raises(ClocksDiffer, match=f"{owner.address}, and {second.address} differ by 61 s"):
            await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"1" * 16, ttl_ms=1000), Written)
        await write(owner, KEY, b"v")
        assert (await read(second, KEY)).values == (b"v",), "a value without a time to live needs no clock"


@pytest.mark.parametrize("is_planted", [False, True])
def test_write_suspended_past_its_deadline_is_not_stored(is_planted: bool) -> None:
    """The process is suspended between the read and the write of an operation."""

    async def main() -> None:
        async with ring_in_sync(3, 1) as ring:
            owner = clockwise(ring, KEY)[0]
            (parts,) = owner._parts.values()
            reads = parts.reads
            whole = reads.read

            def stopped(*args: Any) -> Steps[Reading]:
                reading = yield from whole(*args)
                clock = trio.lowlevel.current_clock()
                assert isinstance(clock, testing.VirtualClock)
                clock._now += 10.0
                return reading

            reads.read = stopped  # type: ignore[method-assign]
            with suppress(ChordError), trio.move_on_after(2):
                await owner._host.peers.call(only(owner).me, Put(KEY, b"v", b"1" * 16, is_retry=True), Written)
            await trio.sleep(3)
            assert (owner._host.storage.get(KEY) is not None) is is_planted

    with pytest.MonkeyPatch.context() as patch:
        if is_planted:
            patch.setattr(Driver, "is_wanted", True)  # the bug: no step checks the caller's deadline
        testing.run(main, seed=1)


@virtual
async def test_read_during_a_refused_write_returns_the_durable_value() -> None:
    """The disk refuses a write that is already visible. A read must return the previous value."""
    async with ring_in_sync(3, 1) as ring:
        owner = clockwise(ring, KEY)[0]
        await write(owner, KEY, b"1", w=3)
        storage, pending = owner._host.storage, [0]
        assert isinstance(storage, MemoryStorage)
        old = record_at(owner, KEY)

        async def refuse(batch: Batch) -> None:
            pending[0] += 1
            storage.apply(batch)
            await trio.sleep(0.05)
            storage.apply(Batch(puts=(old,)))
            pending[0] -= 1
            raise WritesRefused("the disk is full")

        storage.commit = refuse  # type: ignore[method-assign]
        durable_by_commit(storage)
        storage.is_durable = lambda key: not pending[0]  # type: ignore[method-assign]
        storage.durable = lambda key: old if pending[0] else storage.get(key)  # type: ignore[method-assign]

        async def refused() -> None:
            with pytest.raises(WritesRefused):
                await owner._host.peers.call(only(owner).me, Put(KEY, b"2", b"2" * 16, is_retry=True), Written)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(refused)
            await trio.sleep(0.02)
            assert versions.values(record_at(owner, KEY)) == [b"2"], "visible, and not durable"
            assert (await read(owner, KEY, r=1)).values == (b"1",)


# -- W ------------------------------------------------------------------------------------------------


@virtual
async def test_write_quorum_of_a_joiner_counts_its_predecessor() -> None:
    async with testing.open_ring(3, seed=1, replicas=5) as ring:
        vnode = only(ring[0])
        vnode.ring.successors = vnode.ring.successors[:1]  # the vnode has not copied the list of its new head yet
        replica_set = vnode.replica_set(vnode.id)
        assert len(replica_set.members) == 2
        assert vnode.nodes_known(replica_set) == 3
        assert vnode.write_quorum(replica_set) == 3
        vnode.preference_list.retires(vnode.ring.predecessors[0].address, trio.current_time())
        assert vnode.write_quorum(replica_set) == 2

"""Transfers of arcs: records during joins, leaves and takeovers."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from unittest.mock import AsyncMock

import msgspec
import pytest
import trio

from chord import events, testing
from chord.config import PRESETS, Limits
from chord.errors import Busy, ChordError, ConfigError, InvalidRequest, NotFound, NotOwner, OwnerDown, RemoteFailure
from chord.events import Emitted
from chord.ids import Arc, Circle, Point
from chord.net.calls import Caller
from chord.net.steps import Driver
from chord.node import Node
from chord.replication.records import Records
from chord.replication.transfer_source import Outbound, SeenEntries, TransferSender
from chord.ring.context import PAGE_RECORDS_SERVING
from chord.ring.ownership import Giving, Ownership
from chord.store.identity import Kept
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import Confirm, Contact, Departing, Done, Pausing, Put, Record, Switch
from tests.support.quorum import SlowDisk, keep_disks, until
from tests.support.rings import get, in_order, keys_of, misplaced, only, owner, patiently, put, seeds, virtual

CIRCLE = Circle(160)


async def fill(ring: TestRing, count: int) -> dict[bytes, bytes]:
    stored = {}
    for number in range(count):
        key, value, node = b"key-%d" % number, b"value-%d" % number, ring[number % len(ring)]
        await patiently(lambda n=node, k=key, v=value: put(n, k, v))  # type: ignore[misc]
        stored[key] = value
    return stored


async def all_there(ring: TestRing, stored: dict[bytes, bytes]) -> None:
    for number, (key, value) in enumerate(stored.items()):
        found = await patiently(lambda k=key, i=number: get(ring[i % len(ring)], k))  # type: ignore[misc]
        assert found == (value,), key
    await until_none_misplaced(ring)


async def until_none_misplaced(ring: TestRing) -> None:
    """Wait until exactly the replicas of each record hold it."""
    with trio.move_on_after(30):
        while misplaced(ring):
            await trio.sleep(0.25)
    assert misplaced(ring) == []


@pytest.mark.parametrize("is_planted", [False, True])
def test_transfer_sends_only_durable_records(is_planted: bool) -> None:
    """Otherwise the giver may lose a dot in a crash that others know, and mint it a second time."""
    early: list[bytes] = []
    send = TransferSender._send

    async def check(sender: TransferSender, outbound: Outbound, page: tuple[Record, ...], seen: SeenEntries) -> None:
        disk = sender._host.storage
        if isinstance(disk, SlowDisk):
            early.extend(record.key for record in page if disk.durable(record.key) != record)
        await send(sender, outbound, page, seen)

    async def as_it_is(sender: TransferSender, outbound: Outbound, page: tuple[Record, ...]) -> tuple[Record, ...]:
        return page

    async def main() -> None:
        async with testing.open_ring(1, seed=2) as ring:
            disks = keep_disks(ring)
            await ring.kill(ring[0])
            disks["n0"] = SlowDisk(CIRCLE, b"slowdisk")
            giver = await ring.start(name="n0")
            await giver.ready()
            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(put, giver, b"key-%d" % number, b"v")
                await trio.sleep(0.01)
                await (await ring.start(join=[giver])).ready()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransferSender, "_send", check)
        if is_planted:
            patch.setattr(TransferSender, "_durable", as_it_is)
        testing.run(main, seed=2)
    assert bool(early) is is_planted


@pytest.mark.slow
@pytest.mark.parametrize("is_planted", [False, True])
def test_transfer_ends_under_continuous_writes(is_planted: bool) -> None:
    ended: list[bool] = []

    async def until_little_is_left(sender: TransferSender, outbound: Outbound) -> None:
        while len(outbound.dirty) > PAGE_RECORDS_SERVING:
            await sender.deltas(outbound)

    async def keep_writing(node: Node, number: int) -> None:
        for count_ in count():
            with suppress(ChordError):
                await put(node, b"key-%d" % number, b"%04d" % count_)
            await trio.sleep(0.1)

    async def main() -> None:
        limits = Limits(page_bytes=256)
        async with testing.open_ring(1, seed=3, replicas=1, limits=limits) as ring, trio.open_nursery() as nursery:
            for number in range(100):
                nursery.start_soon(keep_writing, ring[0], number)
            await trio.sleep(1)
            joiner = await ring.start(join=[ring[0]])
            with trio.move_on_after(10):
                await joiner.ready()
            ended.append(joiner.state == "ready")
            nursery.cancel_scope.cancel()

    with pytest.MonkeyPatch.context() as patch:
        if is_planted:
            patch.setattr(TransferSender, "_catch_up_with_writers", until_little_is_left)
        testing.run(main, seed=3)
    assert ended == [not is_planted]


@virtual
async def test_join_moves_only_the_keys_of_its_arc() -> None:
    async with testing.open_ring(8, seed=1, replicas=1) as ring:
        stored = await fill(ring, 200)
        before = {node.name: dict(node._host.counters) for node in ring.nodes}
        joiner = await ring.start()
        await joiner.ready()
        await ring.converged()
        mine = sum(1 for key in stored if owner(ring, key) is joiner)
        assert joiner._host.counters["keys_received"] == mine == len(joiner._host.storage)
        sent = {n.name: n._host.counters["keys_sent"] - before[n.name].get("keys_sent", 0) for n in ring.nodes[:-1]}
        assert sorted(sent.values(), reverse=True)[:2] == [mine, 0], "only one node moved keys"
        await all_there(ring, stored)


@virtual
async def test_joiner_at_an_unreachable_address_gets_no_arc() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        joiner = await ring.start(advertise="elsewhere:1")
        await trio.sleep(20)
        assert only(joiner).ownership.start is None
        assert joiner.state == "joining"
        snapshot = {node: only(node).ownership.arc for node in ring.nodes[:-1]}
        assert all(arc is not None for arc in snapshot.values())
        assert not any("elsewhere:1" in [c.address for c in only(node).ring.successors] for node in snapshot)


@virtual
async def test_joiner_at_the_address_of_a_member_is_refused() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        await fill(ring, 50)
        other = ring[1]
        ring.expected += (ConfigError,)
        joiner = await ring.start(advertise=other.address)
        with pytest.raises(ConfigError, match=f"cannot advertise {other.address}: another node answers there"):
            await joiner.ready()
        await joiner.closed.wait()
        assert only(joiner).ownership.start is None
        await ring.converged()


@virtual
async def test_joiner_at_the_address_of_another_listener_is_refused() -> None:
    async with testing.open_ring(3, seed=1) as ring:
        await ring.start(listen="n8:1", name="n8", advertise="elsewhere:1")
        ring.expected += (ConfigError,)
        joiner = await ring.start(advertise="n8:1")
        with pytest.raises(ConfigError, match="cannot advertise n8:1: elsewhere:1 answers there"):
            await joiner.ready()


@virtual
async def test_leaver_hands_over_all_records() -> None:
    async with testing.open_ring(8, seed=2) as ring:
        stored = await fill(ring, 200)
        leaver = ring[3]
        await leaver.leave()
        assert len(leaver._host.storage) == 0
        await ring.converged()
        await all_there(ring, stored)


async def churn(ring: TestRing, order: list[str], positions: list[int]) -> None:
    """Let nodes join and leave at once at these positions of the ring."""
    nodes = in_order(ring)
    async with trio.open_nursery() as nursery:
        for event, position in zip(order, positions, strict=True):
            if event == "leave":
                nursery.start_soon(nodes[position].leave)
            else:
                after, before = only(nodes[position - 1]).id, only(nodes[position]).id
                gap = (before - after) % (1 << 160)
                share = 3 + positions.index(position) + order.index(event)
                point = (after + gap // share) % (1 << 160)
                node = await ring.start(id=point, join=[nodes[0]])
                nursery.start_soon(node.ready)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("order", "positions"),
    [
        (["leave", "leave"], [3, 4]),
        (["leave", "leave", "leave"], [7, 0, 1]),
        (["join", "leave"], [4, 4]),
        (["join", "leave"], [5, 4]),
        (["leave", "join", "leave"], [3, 4, 4]),
    ],
    ids=["two-leaves", "three-leaves-across-zero", "join-before-leave", "join-behind-leave", "join-between-leaves"],
)
@pytest.mark.parametrize("seed", seeds(3))
def test_joins_and_leaves_of_neighbours_at_once_lose_no_key(order: list[str], positions: list[int], seed: int) -> None:
    async def main() -> None:
        async with testing.open_ring(8, seed=seed) as ring:
            stored = await fill(ring, 100)
            await churn(ring, order, positions)
            await ring.converged()
            await all_there(ring, stored)

    testing.run(main, seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4))
def test_two_adjacent_joins_at_once_lose_no_key(seed: int) -> None:
    async def main() -> None:
        async with testing.open_ring(4, bits=16, ids=[1000, 20000, 40000, 60000], seed=seed) as ring:
            stored = await fill(ring, 200)
            pair = [await ring.start(id=30000 + i, join=[ring[0]]) for i in range(2)]
            for node in pair:
                await node.ready()
            await ring.converged()
            await all_there(ring, stored)

    testing.run(main, seed=seed)


@pytest.mark.slow
@virtual
async def test_operations_succeed_during_joins_and_leaves() -> None:
    """4 join and 3 leave: no stored key is "not found", no operation waits 2 s, every key ends on its owner."""
    async with testing.open_ring(12, seed=5) as ring:
        stop = trio.Event()
        slowest = 0.0
        done: Counter[str] = Counter()
        stored: dict[bytes, bytes] = {}

        async def client(number: int) -> None:
            nonlocal slowest
            rng = random.Random(number)
            while not stop.is_set():
                key = b"c%d-%d" % (number, rng.randrange(40))
                node = rng.choice([n for n in ring.nodes if n.state == "ready"])
                began = trio.current_time()
                if key not in stored or rng.random() < 0.5:
                    value = rng.randbytes(8)
                    await patiently(lambda n=node, k=key, v=value: put(n, k, v))  # type: ignore[misc]
                    stored[key] = value
                    done["put"] += 1
                else:
                    assert await patiently(lambda n=node, k=key: get(n, k)) == (stored[key],)  # type: ignore[misc]
                    done["get"] += 1
                slowest = max(slowest, trio.current_time() - began)
                await trio.sleep(rng.uniform(0, 0.02))

        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(client, number)
            await trio.sleep(1)
            for _ in range(4):
                await ring.start()
                await trio.sleep(0.3)
            for node in [n for n in ring.nodes if n.state == "ready"][2:5]:
                node._end("leave")
                await trio.sleep(0.3)
            await ring.converged()
            stop.set()
        assert min(done.values()) > 100
        assert slowest < 2
        await ring.converged()
        await all_there(ring, stored)


@pytest.mark.slow
@virtual
async def test_keys_of_a_dead_owner_are_not_denied() -> None:
    timing = msgspec.structs.replace(PRESETS["local"], down_out_s=20.0)
    async with testing.open_ring(8, seed=6, timing=timing, replicas=1) as ring:
        victim = ring[3]
        keys = keys_of(ring, victim, 3)
        await put(ring[0], keys[0], b"x")
        others = {node.name: keys_of(ring, node, 1)[0] for node in ring.nodes if node is not victim}
        for key in others.values():
            await put(ring[0], key, b"y")
        await ring.kill(victim)
        for key in others.values():
            assert await patiently(lambda k=key: get(ring[0], k)) == (b"y",)  # type: ignore[misc]
        await ring.converged()
        for key in keys[:2]:
            with pytest.raises(OwnerDown) as caught:
                await get(ring[0], key)
            assert caught.value.peer is not None
            assert caught.value.peer.address == victim.address
        await put(ring[0], keys[0], b"new")
        assert await get(ring[1], keys[0]) == (b"new",)
        await trio.sleep(21)
        with pytest.raises(OwnerDown):  # it has the only copy
            await get(ring[0], keys[1])
        await ring[0].remove_node(victim.address)
        assert await get(ring[0], keys[1]) == ()


@virtual
async def test_mark_of_a_dead_owner_moves_with_the_arc() -> None:
    async with testing.open_ring(6, seed=7, replicas=1) as ring:
        victim = ring[2]
        keys = keys_of(ring, victim, 1)
        await ring.kill(victim)
        await ring.converged()
        await owner(ring, keys[0]).leave()
        await ring.converged()
        with pytest.raises(OwnerDown):
            await get(ring[0], keys[0])


@virtual
async def test_mark_of_a_dead_owner_ends_when_it_returns() -> None:
    async with testing.open_ring(6, seed=8) as ring:
        victim = ring[2]
        keys = keys_of(ring, victim, 1)
        await ring.kill(victim)
        await ring.converged()
        again = await ring.start(join=(), name=victim.config.name)
        await again.ready()
        await ring.converged()
        assert await get(ring[0], keys[0]) == (), "the owner is back with an empty store"


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["joiner", "giver"])
@pytest.mark.parametrize("seed", seeds(4))
def test_crash_during_a_transfer_loses_nothing(victim: str, seed: int) -> None:
    async def main() -> None:
        started = trio.Event()

        def watch(emitted: Emitted) -> None:
            event = emitted.event
            if isinstance(event, events.TransferStarted) and event.to.address == "joiner:1":
                started.set()

        ids = [5000, 20000, 33000, 47000, 60000]
        async with testing.open_ring(5, bits=16, ids=ids, seed=seed, observe=watch) as ring:
            stored = await fill(ring, 300)
            giver = next(n for n in ring.nodes if only(n).id == 47000)
            joiner = await ring.start(id=44000, name="joiner", join=[ring[0]])
            await started.wait()
            await trio.sleep(0.0015 * seed)
            await ring.kill(joiner if victim == "joiner" else giver)
            if victim == "giver":
                await joiner.ready()
            await ring.converged()
            for key, value in stored.items():
                assert await patiently(lambda k=key: get(ring[0], k)) == (value,)  # type: ignore[misc]

    testing.run(main, seed=seed)


@virtual
async def test_switch_with_a_lost_acknowledgement_is_repeated() -> None:
    async with testing.open_ring(3, bits=16, ids=[10000, 30000, 50000], seed=9) as ring:
        stored = await fill(ring, 100)
        node = await ring.start(id=40000, join=[ring[0]])
        parts = next(iter(node._parts.values()))
        original, seen = parts.transfers.on_switch, []

        def lose_the_first(request: Switch) -> object:
            seen.append(request.epoch)
            answer = original(request)
            if len(seen) == 1:
                ring.network.cut("n2", "n3")
                ring.network.unblock("n2", "n3")
                ring.network.unblock("n3", "n2")
            return answer

        parts.transfers.on_switch = lose_the_first  # type: ignore[method-assign,assignment]
        await node.ready()
        await ring.converged()
        assert len(seen) >= 2
        assert len(set(seen)) == 1
        await all_there(ring, stored)


@virtual
async def test_put_begun_before_a_switch_is_not_stored_after_it() -> None:
    """The switch begins while the coordinator reads from the other replica. It must not store the write afterwards."""
    original = Ownership.begin_switch
    outcomes: list[object] = []
    keys: list[bytes] = []
    async with testing.open_ring(2, seed=1, replicas=2) as ring:
        giver = ring[0]
        await ring.converged()

        def put_and_switch(self: Ownership, end: Point, to: Contact) -> Giving:
            if self is only(giver).ownership and self.start is not None and not keys:
                arc = Arc(self.start, end)
                keys.append(next(key for key in (b"k%d" % i for i in count()) if giver._host.circle.hash(key) in arc))
                answer = giver._host.peers._handler(None, Put(keys[0], b"v", b"o" * 16), Caller(""))
                assert isinstance(answer, Generator)
                Driver(answer).begin(outcomes.append, trio.current_time() + 5)
            return original(self, end, to)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Ownership, "begin_switch", put_and_switch)
            joiner = await ring.start(join=[giver], id=Point(only(giver).id - 1))
            await joiner.ready()
        await ring.converged()
        assert keys
        assert isinstance(outcomes[0], (Busy, NotOwner)), "the error must be definite and retryable"
        with pytest.raises(NotFound):
            await ring[1].get(keys[0])
        await ring[1].put(keys[0], b"v")
        assert (await joiner.get(keys[0])).value == b"v"



@pytest.mark.slow
@virtual
async def test_two_rings_written_on_both_sides_heal_with_nothing_lost() -> None:
    async with testing.open_ring(10, seed=10) as ring:
        half = {f"n{i}" for i in range(5)}
        ring.network.partition(half, reset=True)
        await trio.sleep(20)
        stored = {}
        for number in range(60):
            side = [n for n in ring.nodes if (n.name in half) == (number % 2 == 0)]
            key = b"split-%d" % number
            await patiently(lambda s=side, k=key: put(s[0], k, b"v"))  # type: ignore[misc]
            stored[key] = b"v"
        ring.network.heal()
        await ring.converged(within_s=120)
        await trio.sleep(5)
        await all_there(ring, stored)


@virtual
async def test_same_operation_through_each_node_writes_once() -> None:
    from chord.wire.messages import Put, Written

    async with testing.open_ring(3, seed=11) as ring:
        request = Put(b"k", b"v", b"0123456789abcdef", b"")
        for node in ring.nodes:
            await node._host.peers.call(node.address, request, Written)
        assert await get(ring[0], b"k") == (b"v",)


@virtual
async def test_context_replaces_the_siblings_of_puts_without_a_context() -> None:
    async with testing.open_ring(3, seed=12) as ring:
        await put(ring[0], b"k", b"1", context=b"")
        await put(ring[1], b"k", b"2", context=b"")
        both = await ring[2].get(b"k")
        assert sorted(both.values) == [b"1", b"2"]
        await put(ring[0], b"k", b"3", context=both.context)
        assert await get(ring[2], b"k") == (b"3",)
        await put(ring[0], b"k", None)
        assert await get(ring[2], b"k") == ()


@virtual
async def test_transfer_moves_large_values() -> None:
    async with testing.open_ring(2, seed=13) as ring:
        big = bytes(1 << 20)
        for number in range(4):
            await put(ring[0], b"big-%d" % number, big)
        joiner = await ring.start()
        await joiner.ready()
        await ring[0].leave()
        await ring.converged()
        for number in range(4):
            assert await get(joiner, b"big-%d" % number) == (big,)


def test_owner_down_is_not_retryable() -> None:
    assert not OwnerDown.is_retryable
    assert issubclass(OwnerDown, ChordError)


@virtual
async def test_dot_is_not_reused_after_an_arc_is_handed_over() -> None:
    """Otherwise the merge would discard an acknowledged write as already seen."""
    async with testing.open_ring(1, seed=14) as ring:
        parts = next(iter(ring[0]._parts.values()))
        storage = ring[0]._host.storage
        await put(ring[0], b"k", b"1")
        old = storage.get(b"k")
        await put(ring[0], b"k", b"2")
        newer = storage.get(b"k")
        assert old is not None
        assert newer is not None
        await storage.commit(Batch(removals=[b"k"]))  # the arc is handed over
        await parts.records.merge([old], ())  # an old copy returns
        await put(ring[0], b"k", b"3")
        await parts.records.merge([newer], ())
        assert b"3" in await get(ring[0], b"k")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(3))
def test_node_with_adjacent_vnodes_can_leave(seed: int) -> None:
    """The last vnode of a row leaves first. Transfers skip vnodes without an arc."""

    async def main() -> None:
        async with testing.open_ring(3, seed=seed, vnodes=4) as ring:
            stored = await fill(ring, 150)
            began = trio.current_time()
            await ring[1].leave()
            assert trio.current_time() - began < 3
            await ring.converged()
            for key, value in stored.items():
                assert await get(ring[0], key) == (value,)

    testing.run(main, seed=seed)


@virtual
async def test_leaver_killed_before_its_handover_counts_as_dead() -> None:
    """Otherwise its lost keys would be denied. Only nodes that end without a goodbye are marked as dead."""
    async with testing.open_ring(4, seed=15, replicas=1) as ring:
        nodes = in_order(ring)
        leaver, heir = nodes[1], nodes[2]
        keys = keys_of(ring, leaver, 2)
        await put(ring[0], keys[0], b"x")
        ring.network.cut(str(leaver.config.name), str(heir.config.name))
        with trio.move_on_after(0.2):
            await leaver.leave()  # its heir is unreachable, so the leave cannot finish
        await ring.kill(leaver)
        await ring.converged()
        with pytest.raises(OwnerDown):
            await get(nodes[0], keys[0])


@pytest.mark.slow
@virtual
async def test_records_being_received_are_not_brought_home() -> None:
    """The heir holds copies of an interrupted handover. It must not give them back when the leaver tries again."""
    async with testing.open_ring(6, seed=16) as ring:
        stored = await fill(ring, 300)
        nodes = in_order(ring)
        leaver, heir = nodes[1], nodes[2]
        parts = next(iter(heir._parts.values()))
        arc = only(leaver).ownership.arc
        assert arc is not None
        copies = list(leaver._host.storage.scan(arc))
        await parts.records.merge(copies, ())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(heir._maintenance.bring_home)
            await trio.sleep(0.003)
            nursery.start_soon(leaver.leave)
        await ring.converged()
        await all_there(ring, stored)


@virtual
async def test_only_copies_move_once_the_receiver_has_saved_the_arc() -> None:
    """Otherwise a receiver that restarts would not know that it owns the only copies."""
    async with testing.open_ring(4, seed=15, replicas=1) as ring:
        leaver, heir = in_order(ring)[1:3]
        start, saved = only(leaver).ownership.start, []
        identity = ring._identity(heir.name)
        save = identity.save

        async def note(kept: Kept) -> None:
            saved.append((only(heir).ownership.start, only(leaver).ownership.start))
            await save(kept)

        identity.save = note  # type: ignore[method-assign]
        await leaver.leave()
        assert (start, start) in saved


@contextmanager
def full_disk(ring: TestRing, node: Node) -> Iterator[None]:
    """Let a node's state not be written for the length of the block."""
    identity = ring._identity(node.name)
    save = identity.save

    async def refuse(kept: Kept) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    identity.save = refuse  # type: ignore[method-assign]
    yield
    identity.save = save  # type: ignore[method-assign]


@virtual
async def test_only_copies_stay_while_the_giver_cannot_save() -> None:
    """Otherwise a giver that restarts would own the arc again, with old records."""
    async with testing.open_ring(4, seed=15, replicas=1) as ring:
        leaver = in_order(ring)[1]
        owned = only(leaver).ownership.start
        async with trio.open_nursery() as nursery:
            with full_disk(ring, leaver):
                nursery.start_soon(leaver.leave)
                await trio.sleep(2)
                assert only(leaver).ownership.start == owned
        assert only(leaver).ownership.start is None


@pytest.mark.slow
@virtual
async def test_switch_of_only_copies_waits_for_the_receivers_disk() -> None:
    """Otherwise a receiver that restarts would not know that it owns the only copies."""
    async with testing.open_ring(4, seed=15, replicas=1) as ring:
        leaver, heir = in_order(ring)[1:3]
        owned = only(leaver).ownership.start
        async with trio.open_nursery() as nursery:
            with full_disk(ring, heir):
                nursery.start_soon(leaver.leave)
                await trio.sleep(2)
                assert only(heir).ownership.start == owned
                assert only(leaver).ownership.start == owned, "no Switch was acknowledged"
        assert only(leaver).ownership.start is None


@pytest.mark.slow
@virtual
async def test_copies_of_a_lost_arc_are_dropped_after_node_json() -> None:
    """Otherwise a restarted node would take the dropped records of the old file for present."""
    async with testing.open_ring(4, seed=15, replicas=2) as ring:
        await fill(ring, 100)
        holder = ring[1]
        had = len(holder._host.storage)
        with full_disk(ring, holder):
            for _ in range(4):
                await (await ring.start(join=[ring[0]])).ready()
            await trio.sleep(10)
            assert len(holder._host.storage) >= had
        await until(lambda: len(holder._host.storage) < had)


@virtual
async def test_drop_while_another_node_counts_on_the_copy_is_put_off() -> None:
    """Two nodes hold a record, and each learned from an owner that the other is a member."""
    async with testing.open_ring(6, seed=16, replicas=2) as ring:
        nodes = in_order(ring)
        (key,) = keys_of(ring, nodes[1], 1)
        await put(nodes[1], key, b"x")
        holder, first, second = nodes[1], nodes[4], nodes[5]
        record = holder._host.storage.get(key)
        assert record is not None
        confirmed = only(holder).on_confirm(Confirm(CIRCLE.hash(key)))
        for node, other in ((first, second), (second, first)):
            await next(iter(node._parts.values())).records.merge([record], ())
            both = (holder.contact, other.contact)
            answer = msgspec.structs.replace(confirmed, replicas=both, holders=both, unreachable=(), needed=2)
            node._handoff._ask_owner = AsyncMock(return_value=answer)  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            for node in (first, second):
                nursery.start_soon(node._handoff.bring_home, node.contact)
        assert [node for node in (first, second) if node._host.storage.get(key) is not None]


@pytest.mark.slow
@virtual
async def test_two_dead_neighbours_are_each_named_for_their_keys() -> None:
    async with testing.open_ring(8, seed=17, replicas=1) as ring:
        first, second = in_order(ring)[3:5]
        keys = {node.address: keys_of(ring, node, 1)[0] for node in (first, second)}
        await trio.sleep(2)  # the predecessor lists are known
        await ring.kill(first)
        await ring.kill(second)
        await ring.converged()
        for address, key in keys.items():
            with pytest.raises(OwnerDown) as caught:
                await get(ring[0], key)
            assert caught.value.peer is not None
            assert caught.value.peer.address == address
        again = await ring.start(join=(), name=second.config.name)
        await again.ready()
        await ring.converged()
        with pytest.raises(OwnerDown):
            await get(ring[0], keys[first.address])
        assert await get(ring[0], keys[second.address]) == ()


@virtual
async def test_marks_survive_a_restart_of_the_new_owner() -> None:
    async with testing.open_ring(6, seed=18) as ring:
        dead, taker = in_order(ring)[2:4]
        (key,) = keys_of(ring, dead, 1)
        await ring.kill(dead)
        await ring.converged()
        await trio.sleep(1)
        again = await ring.restart(taker)
        await again.ready()
        await ring.converged()
        with pytest.raises(OwnerDown):
            await get(ring[0], key)


@pytest.mark.slow
@virtual
async def test_restarted_node_rejoins_past_two_unreachable_nodes() -> None:
    """The node asks all known nodes at once, and one member is enough to rejoin."""
    async with testing.open_ring(9, seed=19) as ring:
        nodes = in_order(ring)
        node, following = nodes[2], nodes[4:6]  # the node between takes the arc over
        (key,) = keys_of(ring, node, 1)
        await trio.sleep(1)
        await ring.kill(node)
        await ring.converged()
        await put(ring[0], key, b"new")
        for unreachable in following:
            await ring.kill(unreachable, silently=True)
        again = await ring.start(join=(), name=node.config.name)
        await again.ready()
        assert not only(again).ring.is_isolated
        assert await patiently(lambda: get(again, key), within_s=5) == (b"new",)


@virtual
async def test_goodbye_for_another_node_is_refused() -> None:
    async with testing.open_ring(4, seed=20) as ring:
        for liar in (Departing(ring[2].address), Pausing(ring[2].address)):
            with pytest.raises(InvalidRequest):
                await ring[1]._host.peers.call(ring[0].address, liar, Done)
        assert ring[0]._host.peers.failure_detector.state(ring[2].address) == "alive"


@virtual
async def test_arc_behind_a_leaver_without_arc_stays_with_its_owner() -> None:
    """A returned vnode still believes that it owns the arc. The leaver before it does not send the bounds."""
    async with testing.open_ring(6, seed=1) as ring:
        first, leaver, late = (only(node) for node in in_order(ring)[1:4])
        stale = first.ownership.start
        leaver.host.tell(leaver.ownership.renounce())
        leaver.state = "leaving"
        late.ownership.start = stale
        with trio.fail_after(10):
            while late.ownership.start != first.id:
                await trio.sleep(0.1)
        assert first.ownership.start == stale


@virtual
async def test_disk_that_fails_ends_a_transfer_and_not_the_node() -> None:
    """A join goes on, because the giver tries again."""
    failed: list[bool] = []

    async def fail_once(records: Records) -> None:
        if not failed:
            failed.append(True)
            raise RemoteFailure("not known to be durable: disk I/O error")

    async with testing.open_ring(2) as ring:
        stored = await fill(ring, 20)
        with pytest.MonkeyPatch.context() as patch:
            for node in ring.nodes:
                patch.setattr(node._host.storage, "is_durable", lambda key: False)
            patch.setattr(Records, "until_durable", fail_once)
            await ring.start()
            await ring.converged()
        assert failed
        await all_there(ring, stored)

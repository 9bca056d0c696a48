"""Batches: one frame for each owner and each replica, and the same outcomes as single operations."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest
import trio

from chord import BatchResult, testing
from chord.errors import (
    ChordError,
    IndefiniteError,
    InvalidRequest,
    NotOwner,
    Overloaded,
    RemoteFailure,
    VersionConflict,
)
from chord.node import Node
from chord.replication.batch import LOOKUPS_AT_ONCE, _Part
from chord.store.storage import Batch
from chord.testing.network import MemoryNetwork
from chord.testing.rings import TestRing
from chord.wire.batch import unpack
from chord.wire.messages import (
    BATCH_ITEMS_MAX,
    Confirm,
    Get,
    GetMany,
    GetManyReply,
    GetReply,
    Merge,
    Put,
    PutMany,
    PutManyReply,
    ReadCopies,
    ReadCopy,
    StoreCopies,
    StoreCovering,
    Written,
)
from tests.support.batches import KEYS, counted, put, read_many, warm_ring, write_many
from tests.support.quorum import holding, read, record_at, until
from tests.support.rings import only, owner, seeds, virtual

# -- frames -------------------------------------------------------------------------------------------


@virtual
async def test_batch_takes_one_frame_per_owner_and_replica() -> None:
    async with warm_ring(6, 1) as ring:
        with counted(ring.nodes) as frames:
            outcomes = await write_many(ring[0], *(put(ring[0], key) for key in KEYS))
            await trio.sleep(0.1)
        assert all(isinstance(one, Written) and one.w >= one.w_needed == 2 for one in outcomes)
        assert frames.most(PutMany, Put) == frames.most(ReadCopies, ReadCopy) == frames.most(StoreCopies) == 1
        count_of = Counter(owner(ring, key).name for key in KEYS)
        owners = set(count_of)
        assert frames.of(PutMany, Put) == len(owners - {ring[0].name}) >= 4, "one for each other owner"
        alone = [name for name in owners if count_of[name] == 1 and name != ring[0].name]
        reading = len(owners) - len(alone)
        assert frames.of(StoreCovering) == 2 * len(alone), "a single put takes one round"
        assert frames.of(ReadCopies, ReadCopy) == reading, "each other coordinator asks one other for what there is"
        assert frames.of(StoreCopies) == 2 * reading, "and sends to two"
        assert all(len(holding(ring, key)) == 3 for key in KEYS)
        with counted(ring.nodes) as frames:
            found = await read_many(ring[0], *KEYS)
        assert [one.values for one in found] == [(b"v",)] * len(KEYS)
        assert frames.most(GetMany, Get) == frames.most(ReadCopies, ReadCopy) == 1
        assert frames.of(GetMany, Get) + 1 == frames.of(ReadCopies, ReadCopy) == len(owners)


@virtual
async def test_batch_looks_up_each_owner_once() -> None:
    async with testing.open_ring(6, seed=2) as ring:
        asker = ring[0]
        before = asker._host.peers.calls_made
        keys = [b"cold-%d" % number for number in range(BATCH_ITEMS_MAX)]
        with counted([asker]) as frames:
            outcomes = await read_many(asker, *keys)
        assert [type(one) for one in outcomes] == [GetReply] * BATCH_ITEMS_MAX
        assert frames.most(GetMany, Get) == 1
        assert frames.of(GetMany, Get) - len({owner(ring, key).name for key in keys} - {asker.name}) in (0, 1), "a hint"
        assert frames.of(Confirm) <= 5 * LOOKUPS_AT_ONCE
        assert asker._host.peers.calls_made - before < BATCH_ITEMS_MAX


@virtual
async def test_batch_with_a_stale_owner_cache_takes_one_more_frame() -> None:
    async with warm_ring(6, 16) as ring:
        asker = ring[0]
        for other in ring.nodes[1:]:  # the asker's cache names one node as the owner of everything behind the asker
            asker._lookups.arcs.forget(other.address)
        liar = only(ring[3])
        asker._lookups.arcs.learn(only(asker).id + 1, liar.me)
        with counted([asker]) as frames:
            outcomes = await write_many(asker, *(put(asker, key) for key in KEYS))
        assert [type(one) for one in outcomes] == [Written] * len(KEYS)
        assert frames.of(PutMany, Put) <= 5 + 1


@pytest.mark.slow
@virtual
async def test_batch_works_with_one_replica_and_with_many_vnodes() -> None:
    for replicas, vnodes in ((1, 1), (3, 4)):
        async with testing.open_ring(5, seed=3, replicas=replicas, vnodes=vnodes) as ring:
            assert not (await ring[1].put_many((key, key) for key in KEYS)).errors
            found = await ring[2].get_many(KEYS)
            assert {key: one.value for key, one in found.ok.items()} == {key: key for key in KEYS}


# -- the same outcomes as single operations -----------------------------------------------------------


def summary(outcome: GetReply | Written | ChordError) -> object:
    """Return the part of an outcome that must be equal in both rings."""
    if isinstance(outcome, GetReply):
        return sorted(outcome.values), outcome.r_needed
    return outcome.w_needed if isinstance(outcome, Written) else type(outcome)


async def alone(node: Node, request: Get | Put) -> GetReply | Written | ChordError:
    try:
        return await node._host.peers.call(node.address, request, GetReply if isinstance(request, Get) else Written)
    except ChordError as error:
        return error


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(20))
def test_batches_have_the_outcomes_of_single_operations(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        keys = KEYS[: rng.randrange(2, 30)]
        one_by_one, in_batches = (testing.open_ring(5, seed=how) for how in ("one by one", "in batches"))
        async with one_by_one as single, in_batches as batched:
            contexts: list[dict[bytes, bytes]] = [{}, {}]
            for step in range(12):
                entry = rng.randrange(5)
                some = [rng.choice(keys)] if rng.random() < 0.2 else rng.sample(keys, rng.randrange(1, len(keys) + 1))
                kinds = ["put", "no context", "seen", "delete", "w=4"]
                plans = [(key, rng.choice(kinds), b"%d" % step) for key in some]

                def writes(ring: TestRing, known: dict[bytes, bytes], plans: Any = plans) -> list[Put]:
                    made = []
                    for key, how, value in plans:
                        context = {"no context": b"", "seen": known.get(key)}.get(how)
                        w = 4 if how == "w=4" else 0
                        made.append(put(ring[0], key, None if how == "delete" else value, context=context, w=w))
                    return made

                one = [await alone(single[entry], request) for request in writes(single, contexts[0])]
                many = await write_many(batched[entry], *writes(batched, contexts[1]))
                assert [summary(a) for a in one] == [summary(b) for b in many], step
                r = rng.randrange(0, 5)
                one = [await alone(single[entry], Get(key, r)) for key in keys]
                many = await read_many(batched[entry], *keys, r=r)
                assert [summary(a) for a in one] == [summary(b) for b in many], step
                for found, known in ((one, contexts[0]), (many, contexts[1])):
                    known.update({k: v.context for k, v in zip(keys, found, strict=True) if isinstance(v, GetReply)})

    testing.run(main, seed=seed)


@virtual
async def test_batch_with_a_bad_item_executes_the_others() -> None:
    async with warm_ring(5, 4) as ring:
        node = ring[0]
        many = [put(node, b"many", b"%d" % number, context=b"") for number in range(65)]
        siblings = await write_many(node, *many)
        assert [type(one) for one in siblings].count(VersionConflict) == 1, "64 concurrent values and no more"
        stranger = put(node, b"with a stranger's context", context=b"no context")
        one, two = put(node, KEYS[0]), put(node, KEYS[1])
        items = [one, put(node, b"w", w=4), stranger, put(node, b"many", context=b""), two]
        outcomes = await write_many(node, *items)
        expected = [Written, InvalidRequest, InvalidRequest, VersionConflict, Written]
        assert [type(one) for one in outcomes] == expected
        assert await write_many(node) == []
        await write_many(node, put(node, KEYS[1], None))
        found = await read_many(node, KEYS[0], b"none", KEYS[1], b"many")
        assert [len(one.values) for one in found] == [1, 0, 0, 64]
        shown = await node.get_many([KEYS[0].decode(), b"none", KEYS[1]])
        assert [type(shown[key]).__name__ for key in (KEYS[0].decode(), b"none", KEYS[1])] == [
            "Found", "NotFound", "NotFound",
        ]  # fmt: skip


@virtual
async def test_batch_with_keys_of_another_owner_executes_the_rest() -> None:
    async with warm_ring(5, 5) as ring:
        one = owner(ring, KEYS[0])
        other = next(key for key in KEYS if owner(ring, key) is not one and one.name not in holding_names(ring, key))
        asker = next(node for node in ring.nodes if node is not one)
        batch = PutMany((put(asker, other), put(asker, KEYS[0])))
        answer = await asker._host.peers.call(only(one).me, batch, PutManyReply)
        assert [type(outcome) for outcome in unpack(batch, answer)] == [NotOwner, Written]
        reads = GetMany((Get(KEYS[0]), Get(other)))
        answer = await asker._host.peers.call(only(one).me, reads, GetManyReply)
        assert [type(outcome) for outcome in unpack(reads, answer)] == [GetReply, NotOwner]


def holding_names(ring: TestRing, key: bytes) -> list[str]:
    """Return the names of the members of a key."""
    vnode = only(owner(ring, key))
    addresses = [place.contact.address for place in vnode.replica_set(vnode.host.circle.hash(key)).members]
    return [node.name for node in ring.nodes if node.address in addresses]


@virtual
async def test_two_writes_of_one_key_in_one_batch_are_concurrent() -> None:
    async with warm_ring(5, 6) as ring:
        node = ring[0]
        same = put(node, KEYS[1], b"once")
        outcomes = await write_many(
            node, put(node, KEYS[0], b"a", context=b""), put(node, KEYS[0], b"b", context=b""), same, same
        )
        assert [type(one) for one in outcomes] == [Written] * 4
        assert sorted((await read(node, KEYS[0])).values) == [b"a", b"b"]
        assert (await read(node, KEYS[1])).values == (b"once",)
        (both,) = record_at(owner(ring, KEYS[0]), KEYS[0]).clock
        assert both.count == 2, "each dot is minted once"
        assert record_at(owner(ring, KEYS[1]), KEYS[1]).clock[0].count == 1


@virtual
async def test_batch_sent_again_is_executed_once() -> None:
    async with warm_ring(5, 7) as ring:
        items = [put(ring[0], key, context=b"") for key in KEYS]
        for node in (ring[0], ring[3], ring[0]):
            assert all(isinstance(one, Written) for one in await write_many(node, *items))
        found = await read_many(ring[1], *KEYS)
        assert [one.values for one in found] == [(b"v",)] * len(KEYS)


@virtual
async def test_records_are_merged_in_batches() -> None:
    async with warm_ring(5, 8) as ring, testing.open_ring(3, seed="other") as other:
        assert not (await ring[0].put_many((key, key) for key in KEYS)).errors
        records = [record async for record in ring[0].export()]
        outcomes = await write_many(other[1], *map(Merge, records))
        assert [type(one) for one in outcomes] == [Written] * len(KEYS)
        found = await other[2].get_many(KEYS)
        assert list(found.ok) == KEYS


# -- faults -------------------------------------------------------------------------------------------


@virtual
async def test_items_for_a_dead_owner_go_to_the_next_one() -> None:
    async with warm_ring(6, 9) as ring:
        victim = ring[3]
        assert any(owner(ring, key) is victim for key in KEYS)
        await ring.kill(victim)
        with trio.fail_after(30):
            outcomes = await write_many(ring[0], *(put(ring[0], key) for key in KEYS))
        assert [type(one) for one in outcomes] == [Written] * len(KEYS)


@pytest.mark.parametrize("seed", seeds(10))
def test_batch_survives_the_death_of_an_owner(seed: int) -> None:
    """Every key has its value once, and no write fails."""

    async def main() -> None:
        async with warm_ring(7, seed) as ring:
            victim = ring[1 + seed % 6]
            results: list[BatchResult[Any, Any]] = []

            async def load() -> None:
                with trio.fail_after(20):
                    results.append(await ring[0].put_many((key, key) for key in KEYS * 3))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(load)
                await trio.sleep(0.0005 * (1 + seed % 7))
                await ring.kill(victim, silently=bool(seed % 2))
            assert [len(result.errors) for result in results] == [0]
            with trio.fail_after(30):
                found = await ring[0].get_many(KEYS)
            values = [one if isinstance(one, ChordError) else one.values for one in found.values()]
            assert values == [(key,) for key in KEYS]

    testing.run(main, seed=seed)


@virtual
async def test_batch_item_without_a_quorum_fails_alone() -> None:
    network = MemoryNetwork(10)
    async with warm_ring(6, 10, network=network) as ring:
        coordinator = ring[0]
        items = [put(coordinator, key, w=3, strict=True) for key in KEYS if owner(ring, key) is coordinator]
        sets = [holding_names(ring, item.key) for item in items]
        here = [items[0], *(item for item in items[1:])]
        lost = sets[0][-1] if sets[0][-1] != coordinator.name else sets[0][0]
        assert len(here) > 1

        refused = here[0].key
        one = next(node for node in ring.nodes if node.name == lost)
        stage = one._host.storage.stage

        def full_for_one(batch: Any) -> bool:
            if any(record.key == refused for record in batch.puts):
                raise InvalidRequest("not this one")
            return stage(batch)

        one._host.storage.stage = full_for_one  # type: ignore[method-assign]
        outcomes = await write_many(coordinator, *here)
        assert isinstance(outcomes[0], IndefiniteError), "the record is stored here and on one other node"
        assert [type(one) for one in outcomes[1:]] == [Written] * (len(here) - 1)
        assert all(one.w == 3 for one in outcomes[1:])


@pytest.mark.parametrize("within_s", [0.2, 1.0])
def test_batch_item_past_its_deadline_fails_alone(within_s: float) -> None:
    """W is three and one replica does not answer. Only the keys of this replica may fail."""

    async def main() -> None:
        network = MemoryNetwork(11)
        async with warm_ring(6, 11, network=network) as ring:
            frozen = ring[4]
            network.freeze(frozen.name)
            asked = [put(ring[0], key, w=3, strict=True) for key in KEYS]
            hit = [frozen.name in holding_names(ring, key) for key in KEYS]
            with trio.fail_after(within_s):
                outcomes = await write_many(ring[0], *asked)
            assert all(isinstance(one, Written) for one, is_hit in zip(outcomes, hit, strict=True) if not is_hit)
            assert all(isinstance(one, IndefiniteError) for one, is_hit in zip(outcomes, hit, strict=True) if is_hit)
            assert {True, False} == set(hit)

    testing.run(main, seed=11)


@virtual
async def test_batch_writes_complete_though_the_caller_gives_up() -> None:
    async with warm_ring(5, 12) as ring:
        mine = [key for key in KEYS if owner(ring, key) is ring[0]]
        items = [put(ring[0], key) for key in mine]
        with trio.move_on_after(60) as scope:

            def give_up(point: int, key: bytes) -> None:
                if key == mine[-1]:
                    scope.cancel()

            ring[0]._host.on_write.append(give_up)
            await write_many(ring[0], *items)
        assert scope.cancelled_caught
        await until(lambda: all(len(holding(ring, key)) in (0, 3) for key in mine), 5)
        assert len(holding(ring, mine[-1])) == 3


@virtual
async def test_store_copies_refused_for_one_record_is_split() -> None:
    async with warm_ring(5, 13) as ring:
        for node in ring.nodes:
            handler: Any = node._host.peers._handler

            def picky(vnode: Any, request: Any, caller: Any, handler: Any = handler) -> Any:
                if isinstance(request, StoreCopies) and len(request.records) > 1:
                    raise InvalidRequest("one of them is none")
                return handler(vnode, request, caller)

            node._host.peers.serve(picky)
        outcomes = await write_many(ring[0], *(put(ring[0], key) for key in KEYS))
        assert [type(one) for one in outcomes] == [Written] * len(KEYS)
        await trio.sleep(0.02)
        assert all(len(holding(ring, key)) == 3 for key in KEYS)


@virtual
async def test_forwarded_frame_refused_for_one_item_is_divided() -> None:
    async with warm_ring(4, 18) as ring:
        asker, other = ring[0], ring[2]
        mine = [key for key in KEYS if owner(ring, key) is other]
        bad = mine[1]
        handler: Any = other._host.peers._handler
        sizes: list[int] = []

        def picky(vnode: Any, request: Any, caller: Any) -> Any:
            writes = request.writes if isinstance(request, PutMany) else (request,)
            sizes.extend([len(writes)] * isinstance(request, PutMany))
            if any(isinstance(write, Put) and write.key == bad for write in writes):
                raise InvalidRequest("one of them is none")
            return handler(vnode, request, caller)

        other._host.peers.serve(picky)
        outcomes = await write_many(asker, *(put(asker, key) for key in KEYS))
        assert {key: type(one) for key, one in zip(KEYS, outcomes, strict=True) if not isinstance(one, Written)} == {
            bad: InvalidRequest
        }
        assert sizes[0] == len(mine)
        assert len(sizes) <= 2 * len(mine).bit_length(), "and not one frame for each item"


@pytest.mark.slow
@virtual
async def test_batch_items_beyond_calls_max_are_refused() -> None:
    async with warm_ring(4, 17) as ring:
        one = ring[1]
        limits = msgspec.structs.replace(one._host.limits, calls_max=len(KEYS))
        one._host.limits = limits
        outcomes: list[Any] = []

        async def load(keys: list[bytes]) -> None:
            try:
                outcomes.append(len(await write_many(one, *(put(one, key) for key in keys))))
            except ChordError as error:
                outcomes.append(type(error))

        await load([*KEYS, b"one more"])
        assert outcomes.pop() == len(KEYS) + 1, "a batch above the limit runs alone; otherwise it could never run"
        for second in (1, 2):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(load, KEYS[:-1])
                nursery.start_soon(load, KEYS[:second])
        assert sorted(outcomes[:2]) == [1, len(KEYS) - 1], "at the edge"
        assert outcomes[2] is Overloaded, "two batches exceed the limit together, so one of them is refused"
        assert outcomes[3] in (2, len(KEYS) - 1)
        more = [(b"more-%d" % number, b"v") for number in range(200)]
        with trio.fail_after(20):  # `put_many` retries after Overloaded
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(load_all, one, more)


async def load_all(node: Node, pairs: list[tuple[bytes, bytes]]) -> None:
    assert not (await node.put_many(pairs, in_flight=40)).errors


# -- many bytes ---------------------------------------------------------------------------------------


@virtual
async def test_batch_of_large_values_is_split_into_frames() -> None:
    async with warm_ring(4, 14) as ring:
        values = {key: bytes([number]) * (number * 9000) for number, key in enumerate(KEYS[:40])}
        values[b"large"] = b"x" * (1 << 20)
        with trio.fail_after(60):
            assert not (await ring[0].put_many(values.items())).errors
            found = await ring[1].get_many(values)
        assert {key: one.value for key, one in found.ok.items()} == values


@virtual
async def test_read_copies_without_room_for_a_copy_is_asked_again() -> None:
    """The owner has no records. The copies of the other replicas do not fit into one reply."""
    async with warm_ring(4, 15) as ring:
        values = {key: b"%02d" % number * 20000 for number, key in enumerate(KEYS[:40])}
        with trio.fail_after(60):
            assert not (await ring[0].put_many(values.items(), w=3)).errors
            for key in values:
                owner(ring, key)._host.storage.stage(Batch(removals=[key]))
            with counted(ring.nodes) as frames:
                found = await ring[0].get_many(values)
        assert {key: one.value for key, one in found.ok.items()} == values
        assert frames.of(ReadCopy) > 0


@pytest.mark.parametrize("in_flight", [0, -1, 4097, True, 1.5])
def test_in_flight_outside_1_to_4096_is_refused(in_flight: Any) -> None:
    async def main() -> None:
        async with testing.open_ring(1, seed=1) as ring:
            with pytest.raises(InvalidRequest, match="1 to 4096"):
                await ring[0].put_many([("a", "b")], in_flight=in_flight)
            with pytest.raises(InvalidRequest, match="1 to 4096"):
                await ring[0].get_many(["a"], in_flight=in_flight)
            for edge in (1, 4096):
                assert not (await ring[0].put_many([("a", "b"), ("c", "d")], in_flight=edge)).errors
                assert set(await ring[0].get_many(["a", "c", "a"], in_flight=edge)) == {"a", "c"}

    testing.run(main, seed=1)


def test_batch_item_without_an_outcome_is_indefinite() -> None:
    (late,) = _Part([Get(b"k")]).outcomes()
    assert isinstance(late, IndefiniteError)
    assert not isinstance(late, RemoteFailure), "a client would retry a RemoteFailure only once"


@pytest.mark.parametrize("passes", range(6))
def test_batch_ends_when_its_coordinator_stops(passes: int) -> None:
    """The requests to the replicas may be sent or still queued. The caller must not wait for its deadline."""

    async def main() -> None:
        async with testing.open_ring(4, seed=3) as ring:
            node = ring[0]
            keys = [key for key in (b"key-%d" % n for n in range(400)) if owner(ring, key) is node][:4]
            batch = PutMany(tuple(put(node, key, context=b"") for key in keys))
            ended = trio.Event()

            async def ask() -> None:
                with suppress(ChordError):
                    await node._host.peers.call(only(node).me, batch, PutManyReply)
                ended.set()

            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask)
                for _ in range(passes):
                    await trio.lowlevel.checkpoint()
                nursery.start_soon(node.stop)
                with trio.fail_after(2):
                    await ended.wait()
                nursery.cancel_scope.cancel()

    testing.run(main, seed=1)

"""The reap log of an arc survives when the arc moves and when nodes leave, even if the arc has no record."""

from __future__ import annotations

import pytest
import trio

from chord import testing
from chord.errors import Busy, LookupFailed
from chord.ids import Arc, Point
from chord.node import Node
from chord.store import versions
from chord.store.reap_log_state import Grave
from chord.testing.rings import TestRing
from chord.wire.messages import ConfirmReply, Contact, Version
from tests.support.quorum import clockwise, ring_in_sync, stop_repair, timing, until, write
from tests.support.rings import only, virtual

KEY = b"reaped"
LEAVE_S = 3.0


def reap_alone(node: Node, key: bytes = KEY) -> bytes:
    """Reap a key on one node only; return what that node has seen of the key's slice."""
    storage, log = node._host.storage, node._host.reap_log
    actor = versions.actor(storage.incarnation, storage.next_key_epoch())
    record = versions.put(None, key, None, actor, Version(None, b"1" * 16, 0))
    storage.apply(log.bury([Grave(record, versions.context_of(record))]))
    return log.seen_of(key)


def seen_by(nodes: list[Node]) -> list[bytes]:
    """Return what each node has seen of the slice of `KEY`."""
    return [node._host.reap_log.seen_of(KEY) for node in nodes]


async def joiner_right_behind_key(ring: TestRing) -> Node:
    """Let a node join and take over the first half of the arc from `KEY` to its owner, without comparisons."""
    owner = only(clockwise(ring, KEY)[0])
    point = owner.host.circle.hash(KEY)
    gap = owner.host.circle.distance(point, owner.id)
    joiner = await ring.start(id=int(owner.host.circle.point(point + gap // 2)))
    stop_repair(joiner)
    await joiner.ready()
    return joiner


@virtual
async def test_joiner_that_gets_an_empty_arc_gets_its_reap_log() -> None:
    async with ring_in_sync(5, 1) as ring:
        stop_repair(*ring.nodes)
        seen = reap_alone(clockwise(ring, KEY)[0])
        joiner = await joiner_right_behind_key(ring)
        assert clockwise(ring, KEY)[0] is joiner
        assert seen_by([joiner]) == [seen]


@virtual
async def test_entry_made_during_a_transfer_goes_with_its_switch() -> None:
    async with ring_in_sync(5, 1) as ring:
        stop_repair(*ring.nodes)
        owner = clockwise(ring, KEY)[0]
        sender = owner._parts[only(owner).id].transfers._sender
        snapshot, seen = sender.snapshot, list[bytes]()

        async def and_reap(*args: object) -> None:
            await snapshot(*args)  # type: ignore[arg-type]
            seen.append(reap_alone(owner))

        sender.snapshot = and_reap  # type: ignore[method-assign]
        joiner = await joiner_right_behind_key(ring)
        assert seen_by([joiner]) == seen


@virtual
async def test_reap_known_only_to_a_leaver_reaches_the_replicas() -> None:
    async with ring_in_sync(7, 2) as ring:
        *replicas, _, leaver = [*clockwise(ring, KEY)[:3], *clockwise(ring, KEY)[-2:]]
        seen = reap_alone(leaver)
        await leaver.leave()
        assert leaver.state == "left"
        assert seen_by(replicas) == [seen] * 3


@virtual
async def test_heir_of_an_empty_arc_gets_the_reap_log_of_the_leaver() -> None:
    async with ring_in_sync(5, 3) as ring:
        owner, successor, *_ = clockwise(ring, KEY)
        stop_repair(*ring.nodes)
        seen = reap_alone(owner)
        owner._begin_leave()
        await until(lambda: only(owner).ownership.start is None, within_s=LEAVE_S)
        assert seen_by([successor]) == [seen]


@virtual
async def test_reap_known_only_outside_the_replicas_reaches_them() -> None:
    """After a split has healed, the half that reaped may not be among the replicas any more."""
    async with ring_in_sync(7, 4) as ring:
        seen = reap_alone(clockwise(ring, KEY)[-1])
        await until(lambda: seen_by(clockwise(ring, KEY)[:3]) == [seen] * 3, within_s=10)


@pytest.mark.parametrize("failing", ["owner", "replica"])
def test_reap_log_comes_home_though_another_slice_fails(failing: str) -> None:
    """The log of another slice fails first: its owner is not found, or one replica refuses."""

    async def main() -> None:
        async with ring_in_sync(7, 4) as ring:
            keeper = clockwise(ring, KEY)[-1]
            circle, slice_of = keeper._host.circle, keeper._host.storage.digests.slice_of
            (gap,) = keeper._handoff.arcs()
            keys = [b"key-%d" % number for number in range(200)]
            inside = [key for key in keys if circle.hash(key) in gap]
            first, *_, last = sorted(inside, key=lambda key: circle.distance(gap.start, circle.hash(key)))
            ask_owner, level = keeper._handoff._ask_owner, keeper._shared.replica_sync.log_sync.sync

            async def fail_to_ask(point: Point, start: Contact) -> ConfirmReply:
                if failing == "owner" and slice_of(point)[0] == slice_of(circle.hash(first))[0]:
                    raise LookupFailed("the owner was not found in time")
                return await ask_owner(point, start)

            async def refuse(partner: Contact, arc: Arc) -> None:
                if failing == "replica" and partner.address == clockwise(ring, first)[0].address:
                    raise Busy("not now", after_ms=1)
                await level(partner, arc)

            keeper._handoff._ask_owner = fail_to_ask  # type: ignore[method-assign]
            keeper._shared.replica_sync.log_sync.sync = refuse  # type: ignore[method-assign]
            seen = {key: reap_alone(keeper, key) for key in (first, last)}
            key = last if failing == "owner" else first
            other = clockwise(ring, key)[1]
            await until(lambda: other._host.reap_log.seen_of(key) == seen[key], within_s=10)
            assert not keeper._handoff.is_done()

    testing.run(main, seed=1)


@virtual
async def test_lone_replica_that_missed_a_reap_drops_the_record() -> None:
    """With N = 1 nodes compare nothing. So only the stand-in can bring the log to an owner that was stopped."""
    async with testing.open_ring(5, seed=6, timing=timing(), replicas=1) as ring:
        await trio.sleep(5)
        await write(ring[0], KEY, b"v")
        owner, *_, stand_in = clockwise(ring, KEY)
        record = owner._host.storage.get(KEY)
        assert record is not None
        log = stand_in._host.reap_log
        stand_in._host.storage.apply(log.bury([Grave(record, versions.context_of(record))]))
        await until(lambda: owner._host.storage.get(KEY) is None, within_s=10)
        assert seen_by([owner]) == seen_by([stand_in])


@pytest.mark.parametrize("is_known_to_the_other", [False, True])
def test_leaver_stops_if_too_few_would_know_what_it_reaped(is_known_to_the_other: bool) -> None:
    """One of three nodes is silent, and may return with the reaped value. One remaining node is no quorum."""

    async def main() -> None:
        async with testing.open_ring(3, seed=5, timing=timing(leave_s=LEAVE_S)) as ring:
            await trio.sleep(5)
            leaver, other, silent = ring.nodes
            await ring.kill(silent)
            await until(lambda: only(other).preference_list.unreachable() or only(other).ownership.marks)
            reap_alone(leaver)
            if is_known_to_the_other:
                await leaver._shared.replica_sync.log_sync.sync(only(other).me, only(leaver).replicated()[-1])
            await leaver.leave()
            assert leaver.state == "stopped"

    testing.run(main, seed=5)

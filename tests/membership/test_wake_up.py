"""Processes that wake up after more than `down_out_s`, with their old state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from unittest import mock

import pytest
import trio

from chord import testing
from chord.config import RingConstants
from chord.errors import ChordError
from chord.ids import Arc
from chord.node import Node, maintenance
from chord.node.maintenance import Upkeep
from chord.node.periodic import Periodic
from chord.replication.anti_entropy import AntiEntropy
from chord.ring.ownership import Ownership
from chord.ring.preference_list import PreferenceList
from chord.sim.cluster import Cluster, cluster
from chord.sim.disk import flash
from chord.sim.messages import MessageNetwork
from chord.sim.plan import draw
from chord.sim.swarm import Broken, run_one
from chord.testing.network import uniform
from chord.testing.rings import TestRing
from chord.wire.messages import Done, Get, GetReply, InSync, Put
from tests.support.quorum import clockwise, key_at, only, read, ring_in_sync, timing, until, write
from tests.support.rings import grown, patiently, virtual

KEY = b"written while it was stopped"
DOWN_OUT_S = 5.0
LONG_DOWN_OUT_S = 15.0
"""With 5 s the planted repair too early finds the others busy, and denies nothing."""
WOKEN_SEEDS = (0, 3, 5, 6, 7)
"""With most seeds the planted bug denies the write. The result depends on the detection of the owner's death."""
WOKEN_SET_SEEDS = (71, 94, 112, 184)
"""Four seeds with which the planted bugs let a woken replica set deny acknowledged writes."""


@contextmanager
def stopped(ring: TestRing, node: Node, late: float) -> Iterator[None]:
    """Suspend a node for the length of the block: no message passes, and no step begins.

    Afterwards each step begins after the share `late` of its period. The node notices nothing by itself.
    """
    timetable, due = node._maintenance.timetable, list[Periodic]()

    async def hold(periodic: Periodic) -> None:
        due.append(periodic)

    perform, timetable._perform = timetable._perform, hold  # type: ignore[method-assign]
    ring.network.freeze(node.name)
    yield
    ring.network.unfreeze(node.name)
    timetable._perform, timetable._ran_at = perform, trio.current_time()  # type: ignore[method-assign]
    for periodic in due:
        timetable.put(periodic, trio.current_time() + late * periodic.period_s)


async def denials_of_a_woken_owner(late: float, growth_max: float) -> list[str]:
    """Stop the owner of a key until six nodes joined before it; wake it and ask it for their write."""
    said: list[str] = []
    async with ring_in_sync(8, 5, down_out_s=LONG_DOWN_OUT_S, period_growth_max=growth_max) as ring:
        owner = clockwise(ring, KEY)[0]
        vnode, circle = only(owner), owner._host.circle
        point = circle.hash(KEY)
        gap = circle.distance(point, vnode.id)
        with stopped(ring, owner, late):
            await trio.sleep(2 * LONG_DOWN_OUT_S)
            owner._maintenance.woke()  # its process wakes before its network does
            for number in range(1, 7):
                join = [node for node in ring.nodes if node is not owner][:3]
                node = await ring.start(join=join, id=int(circle.point(point + gap * number // 8)))
                await node.ready()
            await trio.sleep(LONG_DOWN_OUT_S)
            asker = next(node for node in ring.nodes if node is not owner)
            await write(asker, KEY, b"v")
            assert owner._host.storage.get(KEY) is None
            assert vnode.ownership.is_owner(point), "the owner still counts itself as the owner"
        for _ in range(100):
            try:
                deadline = trio.current_time() + 0.2
                found = await asker._host.peers._calls.call(vnode.me, Get(KEY), deadline=deadline)
                assert isinstance(found, GetReply)
                said.append(found.values[0].decode() if found.values else "denied")
            except ChordError as error:
                said.append(error.word)
            await trio.sleep(0.02)
        await trio.sleep(10)
        assert (await read(owner, KEY)).values == (b"v",)
        assert only(owner).is_in_sync(only(owner).id), "the owner is in sync in its own arc again"
    return said


@pytest.mark.slow
@virtual
async def test_woken_owner_denies_no_key_that_others_hold() -> None:
    for late in (0.0, 1.0):
        for growth_max in (1.0, 8.0):
            assert "denied" not in await denials_of_a_woken_owner(late, growth_max), (late, growth_max)


@pytest.mark.slow
@virtual
async def test_planted_woken_owner_that_repairs_too_early_is_caught() -> None:
    async def repair(self: Upkeep) -> None:
        await self._parts.repair.repair()

    with mock.patch.object(Upkeep, "_repair", repair):
        for growth_max in (1.0, 8.0):
            assert "denied" in await denials_of_a_woken_owner(0.0, growth_max), growth_max


def answers_of_woken_replicas(seed: int, *, has_old_message: bool = False) -> Counter[str]:
    """Stop a replica for longer than `down_out_s`, and another one briefly. Both miss a write, and both wake.

    At the same moment the owner dies. The fourth node holds the write and lives, so no node may deny it.

    Args:
        has_old_message: each wakes with an old message of the owner in its socket that puts it in sync.
    """
    said: Counter[str] = Counter()

    async def ask(nodes: list[Node], key: bytes) -> None:
        for _ in range(100):
            for node in nodes:
                try:
                    with trio.fail_after(1):
                        said["found" if (await read(node, key)).values else "denied"] += 1
                except (ChordError, trio.TooSlowError) as error:
                    said[type(error).__name__] += 1
            await trio.sleep(0.02)

    async def scene(machines: Cluster) -> None:
        key = key_at(machines, "n2")
        owner, replica, other, fourth, *_ = clockwise(machines, key)
        arc = only(owner).ownership.arc
        assert arc is not None
        for stopped, pause_s in ((replica, 3 * DOWN_OUT_S), (other, 1.5)):
            machines.stop(stopped)
            with suppress(ChordError, trio.TooSlowError), trio.fail_after(2 if has_old_message else 0):
                await owner._host.peers.call(only(stopped).me, InSync(arc.start, arc.end), Done)
            await trio.sleep(pause_s)
        await patiently(lambda: write(owner, key, b"v"), within_s=4)
        assert fourth._host.storage.get(key) is not None
        machines.wake(replica.name)
        machines.wake(other.name)
        await machines.kill(owner)
        await ask([replica, other, fourth], key)
        assert said["found"], "in the end it is there"

    async def main() -> None:
        ring = RingConstants(successors=2, replicas=3)
        async with cluster(seed=seed, sync_delay=flash, timing=timing(down_out_s=DOWN_OUT_S), ring=ring) as machines:
            await grown(machines, 5)
            await trio.sleep(10)
            await scene(machines)

    testing.run(main, seed=seed)
    return said


@pytest.mark.slow
@pytest.mark.parametrize("seed", WOKEN_SEEDS)
def test_woken_replica_denies_no_key_in_arcs_of_others(seed: int) -> None:
    assert not answers_of_woken_replicas(seed)["denied"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", WOKEN_SEEDS)
def test_woken_replica_ignores_an_old_message_of_its_owner(seed: int) -> None:
    assert not answers_of_woken_replicas(seed, has_old_message=True)["denied"]


@pytest.mark.slow
def test_planted_replica_that_trusts_an_old_message_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreferenceList, "was_compared", lambda view, address: True)
    assert any(answers_of_woken_replicas(seed, has_old_message=True)["denied"] for seed in WOKEN_SEEDS)


@pytest.mark.slow
def test_planted_woken_replica_that_stays_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PreferenceList, "was_away", lambda view: None)
    assert any(answers_of_woken_replicas(seed)["denied"] for seed in WOKEN_SEEDS)


def answers_of_the_only_copy(seed: int) -> Counter[str]:
    """With N = 1, stop an owner until another node has taken over its arc and stored a write; wake it."""
    said: Counter[str] = Counter()

    async def main() -> None:
        ring = RingConstants(successors=2, replicas=1)
        async with cluster(seed=seed, sync_delay=flash, timing=timing(down_out_s=DOWN_OUT_S), ring=ring) as machines:
            first = await machines.start(join=())
            await first.ready()
            for _ in range(3):
                await (await machines.start(join=[first])).ready()
            await machines.converged()
            await trio.sleep(10)
            key = key_at(machines, "n2")
            owner = clockwise(machines, key)[0]
            machines.stop(owner)
            await trio.sleep(DOWN_OUT_S)
            await patiently(lambda: write(first, key, b"v"), within_s=4)
            machines.wake(owner.name)
            for _ in range(200):
                try:
                    with trio.fail_after(1):
                        said["found" if (await read(owner, key)).values else "denied"] += 1
                except (ChordError, trio.TooSlowError) as error:
                    said[type(error).__name__] += 1
                await trio.sleep(0.02)

    testing.run(main, seed=seed)
    return said


@pytest.mark.slow
def test_woken_owner_of_the_only_copies_denies_no_key() -> None:
    for seed in WOKEN_SEEDS:
        said = answers_of_the_only_copy(seed)
        assert said["found"], "in the end it is there"
        assert not said["denied"]


@pytest.mark.slow
def test_planted_woken_owner_that_fetches_no_copies_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Ownership, "mark", lambda own, arc, others, now: None)
    assert any(answers_of_the_only_copy(seed)["denied"] for seed in WOKEN_SEEDS)


def denials_of_woken_replica_set(seed: int) -> list[bytes]:
    """Stop all replicas of an arc until others have taken their places; wake them and ask for the others' writes.

    The others keep writing until they notice the return of the replicas. Successor lists end with the replicas.
    """
    written: dict[bytes, None] = {}
    denied: list[bytes] = []

    async def ask(owner: Node, key: bytes) -> None:
        with suppress(ChordError):
            found = await owner._host.peers._calls.call(only(owner).me, Get(key), deadline=trio.current_time() + 0.5)
            assert isinstance(found, GetReply)
            if not found.values:
                denied.append(key)

    async def keep_writing(machines: Cluster, heir: Node, owner: Node) -> None:
        for number in count():
            key = key_at(machines, owner.name, number)
            with suppress(ChordError):
                await heir._host.peers._calls.call(
                    only(heir).me,
                    Put(key, b"v", heir._host.rng.randbytes(16), context=b""),
                    deadline=trio.current_time() + 0.5,
                )
                written[key] = None
            await trio.sleep(0.05)

    async def scene(machines: Cluster) -> None:
        arc_of = machines.nodes[2]
        *stopped, heir = clockwise(machines, key_at(machines, arc_of.name))[:4]
        for node in stopped:
            machines.stop(node)
        await trio.sleep(3 * DOWN_OUT_S)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_writing, machines, heir, arc_of)
            await until(lambda: len(written) >= 5)
            for node in stopped:
                machines.wake(node.name)
            for _ in range(100):
                for key in list(written):
                    nursery.start_soon(ask, stopped[0], key)
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
        await machines.converged(within_s=60)
        for key in written:
            assert (await patiently(lambda key=key: read(stopped[0], key), within_s=60)).values == (b"v",)

    async def main() -> None:
        network = MessageNetwork(seed, delay=uniform(0.01, 0.02))
        constants, times = RingConstants(successors=2, replicas=3), timing(down_out_s=DOWN_OUT_S, reprobe_max_s=2.0)
        async with cluster(seed=seed, network=network, sync_delay=flash, timing=times, ring=constants) as machines:
            await grown(machines, 6)
            await trio.sleep(10)
            await scene(machines)

    testing.run(main, seed=seed)
    return denied


@pytest.mark.slow
@pytest.mark.parametrize("seed", WOKEN_SET_SEEDS)
def test_woken_replica_set_denies_no_key_that_others_hold(seed: int) -> None:
    assert not denials_of_woken_replica_set(seed)


@pytest.mark.slow
def test_planted_replica_set_that_asks_no_heir_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pull_from_behind(self: AntiEntropy, arc: Arc, **how: bool) -> bool:
        return True

    monkeypatch.setattr(maintenance, "MEETING_ROUNDS", 0)  # it hides this bug
    monkeypatch.setattr(AntiEntropy, "_pull_from_behind", pull_from_behind)
    assert any(denials_of_woken_replica_set(seed) for seed in WOKEN_SET_SEEDS)


@pytest.mark.slow
def test_planted_standstill_that_counts_as_waiting_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_still = AntiEntropy.stood_still

    def keep_time(self: AntiEntropy) -> None:
        grown_at = self._grown_at
        stood_still(self)
        self._grown_at = grown_at

    monkeypatch.setattr(maintenance, "MEETING_ROUNDS", 0)  # it hides this bug
    monkeypatch.setattr(AntiEntropy, "stood_still", keep_time)
    assert any(denials_of_woken_replica_set(seed) for seed in WOKEN_SET_SEEDS)


@pytest.mark.thorough
@pytest.mark.parametrize("rounds", [maintenance.MEETING_ROUNDS, 0])
def test_many_woken_neighbours_first_meet_the_others(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    """Seven neighbours know nothing of the two nodes that went on. Without the pause, they deny a key of those."""
    monkeypatch.setattr(maintenance, "MEETING_ROUNDS", rounds)
    assert isinstance(run_one(draw(1104254)), Broken) == (rounds == 0)


@virtual
async def test_woken_owner_does_not_vouch_while_an_heir_owns_its_arc() -> None:
    """Only the node before the heir knows the heir. The lists of the owner and its replicas are older."""
    async with ring_in_sync(6, 9) as ring:
        owner, second, third, fourth, heir, sixth = clockwise(ring, KEY)
        repair = owner._parts[only(owner).id].repair
        arc, own = only(owner).ownership.arc, only(heir).ownership
        assert arc is not None
        for node in ring.nodes:  # no step may repair meanwhile what this test breaks
            node._maintenance.timetable._is_paused = lambda: True
        only(owner).ring.successors = (only(second).me, only(third).me)
        only(third).ring.successors = (only(fourth).me, only(sixth).me)
        assert await repair._pull_from_behind(arc)
        start, own.start = own.start, arc.start  # the heir took over, and does not know of the owner's return
        assert not await repair._pull_from_behind(arc)
        own.start = start
        assert await repair._pull_from_behind(arc)


@virtual
async def test_woken_owner_finds_an_heir_that_no_successor_list_names() -> None:
    """The heir joined while its neighbours were stopped, too. Only the node behind it knows it, as its predecessor."""
    async with ring_in_sync(9, 9) as ring:
        owner, second, third, fourth, fifth, sixth, heir, last, _ = clockwise(ring, KEY)
        repair = owner._parts[only(owner).id].repair
        arc, own = only(owner).ownership.arc, only(heir).ownership
        assert arc is not None
        for node in ring.nodes:  # no step may repair meanwhile what this test breaks
            node._maintenance.timetable._is_paused = lambda: True
        for node, *lists in (
            (owner, second, third), (second, third, fourth), (third, fourth, fifth), (fourth, fifth, sixth),
            (fifth, sixth, last), (sixth, last, owner)
        ):  # fmt: skip
            only(node).ring.successors = tuple(only(other).me for other in lists)
        assert await repair._pull_from_behind(arc)
        own.start = arc.start
        assert not await repair._pull_from_behind(arc)


def unsynced_arcs(ring: TestRing, node: Node) -> int:
    """Return the number of arcs that a node replicates without being in sync."""
    owners = [only(other).id for other in ring.nodes if node.name in replicas_at(ring, only(other).id)]
    return sum(not only(node).is_in_sync(owner) for owner in owners)


def replicas_at(ring: TestRing, point: int) -> list[str]:
    """Return the names of the first three nodes clockwise from a point."""
    nodes = sorted(ring.nodes, key=lambda node: node._host.circle.distance(point, only(node).id))
    return [node.name for node in nodes[:3]]


@pytest.mark.slow
@pytest.mark.parametrize("says_back", [True, False])
def test_woken_node_is_in_sync_again_after_a_comparison(says_back: bool) -> None:
    """The node announces its return, so owners sync with it at once, not after an anti-entropy period."""

    async def main() -> None:
        async with ring_in_sync(6, 7, anti_entropy_s=10_000.0) as ring:
            await trio.sleep(5)
            node = ring.nodes[2]
            assert unsynced_arcs(ring, node) == 0
            if not says_back:
                node._shutdown.say_back = mock.AsyncMock()  # type: ignore[method-assign]
            node._maintenance.woke()
            assert unsynced_arcs(ring, node) == 3
            assert all(only(node).preference_list.was_arc_in_sync(arc) for arc in only(node).replicated())
            with trio.move_on_after(5):
                await until(lambda: unsynced_arcs(ring, node) == 0)
            assert (unsynced_arcs(ring, node) == 0) is says_back

    testing.run(main, seed=7)


@virtual
async def test_nodes_that_all_woke_up_get_in_sync_again() -> None:
    async with ring_in_sync(6, 8, anti_entropy_s=10_000.0) as ring:
        for node in ring.nodes:
            node._maintenance.woke()
        assert all(unsynced_arcs(ring, node) == 3 for node in ring.nodes)
        await until(lambda: not any(unsynced_arcs(ring, node) for node in ring.nodes), within_s=5)


async def answers_for_absent_keys(node: Node) -> Counter[str]:
    """Ask a node once for each of twenty absent keys."""
    said: Counter[str] = Counter()
    for number in range(20):
        try:
            with trio.fail_after(3):
                said["found" if (await read(node, b"absent %d" % number)).values else "denied"] += 1
        except (ChordError, trio.TooSlowError) as error:
            said[type(error).__name__] += 1
    return said


@pytest.mark.slow
@pytest.mark.parametrize("does_restart", [False, True])
@pytest.mark.parametrize(("away", "dead"), [((0,), 1), ((2,), 1), ((0, 1), 2)])
def test_ring_of_three_with_one_dead_denies_once_two_returned(
    away: tuple[int, ...], dead: int, does_restart: bool
) -> None:
    """Each acknowledged write is on two nodes, so any two nodes know all writes together."""

    async def main() -> None:
        ring = RingConstants(successors=2, replicas=3)
        async with cluster(sync_delay=flash, timing=timing(), ring=ring) as machines:
            await grown(machines, 3)
            await trio.sleep(10)
            nodes = list(machines.nodes)
            await machines.kill(nodes[dead])
            await trio.sleep(8)
            for index in away:
                if does_restart:
                    await machines.kill(nodes[index])
                else:
                    machines.stop(nodes[index])
            await trio.sleep(15)
            for index in away:
                if does_restart:
                    await machines.start(name=nodes[index].name, join=())
                else:
                    machines.wake(nodes[index].name)
            await trio.sleep(10)
            for node in machines.nodes:
                if node is not nodes[dead]:
                    assert await answers_for_absent_keys(node) == {"denied": 20}

    testing.run(main, seed=0)

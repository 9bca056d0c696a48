"""The excuses of the oracle: lost disks that explain a loss, and copies that leaving nodes drop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec
import pytest
import trio

from chord import testing
from chord.config import PRESETS, Limits, RingConstants
from chord.events import ArcGained, Emitted, Observer
from chord.sim.cluster import cluster
from chord.sim.copies import unreadable
from chord.sim.disk import flash
from chord.sim.key_model import KeyModel, Op
from chord.sim.loss_accounting import LossAccounting
from chord.sim.oracle import Oracle
from chord.store import versions
from chord.store.reap_log_state import Grave
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.wire.messages import ActorClock, Record, Version
from tests.support.quorum import clockwise
from tests.support.rings import only

KEY = b"k"
IDEAL = ("moving", "stood in", "one ring")
FIXED = msgspec.structs.replace(PRESETS["local"], period_growth_max=1)


Made = tuple[KeyModel, Op, Record]


def written(ring: TestRing, *, is_ok: bool = True) -> Made:
    """Return a model with one put that was acknowledged, and the record that the put made."""
    actor = ring[0]._host.storage.incarnation + bytes(8)
    model = KeyModel(KEY, ring[0]._host.circle.hash(KEY))
    put = model.begin("put")
    model.sent(put, b"1" * 16)
    record = Record(KEY, (ActorClock(actor, 1, (Version(put.value, put.op_id, 1),)),))
    model.saw(record, ring[0].name, is_own=True)
    if is_ok:
        put.w = 2
        model.acknowledged(put, versions.encode_context({actor: 1}), "client", ring[0].name)
    return model, put, record


def accounting_of(ring: TestRing, model: KeyModel, complain: Callable[[str], None]) -> LossAccounting:
    return LossAccounting(ring, ring[0]._host.constants, {KEY: model}, Counter(), complain)


def test_record_is_dead_if_dropped_tombstones_covered_it() -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, _, record = written(ring)
            assert not model.is_buried(record)
            model.bury(Record(KEY, (ActorClock(bytes(16), 9, ()),)))
            assert not model.is_buried(record), "the tombstone has another actor"
            model.bury(Record(KEY, (ActorClock(record.clock[0].actor, 1, ()),)))
            assert model.is_buried(record)
            newer = Record(KEY, (*record.clock, ActorClock(bytes(16), 10, ())))
            assert not model.is_buried(newer), "the record knows one more event"

    testing.run(main)


def test_record_lost_by_a_disk_counts_as_dropped_in_a_read() -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, _, record = written(ring)
            accounting = accounting_of(ring, model, lambda text: None)
            accounting._reckon([record], "n1")
            assert model.dropped_at == {"n1": trio.current_time()}

    testing.run(main)


@pytest.mark.parametrize("is_leaving", [False, True])
def test_copy_counts_as_dropped_only_if_its_node_leaves(is_leaving: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, put, record = written(ring, is_ok=False)
            accounting = accounting_of(ring, model, pytest.fail)
            ring[0]._host.is_leaving = is_leaving
            accounting.dropped(ring[0].name, record)
            accounting.dropped(ring[0].name, Record(b"another", ()))
            assert put.dropped == ({ring[0].name} if is_leaving else set())
            ring[0]._host.is_leaving = False

    testing.run(main)


@pytest.mark.parametrize(("disks", "complaints"), [(1, 1), (2, 0)])
def test_write_counts_as_lost_only_with_every_disk_that_had_it(disks: int, complaints: int) -> None:
    """In the first case the second copy disappears without a lost disk, and nothing excuses that."""

    async def main() -> None:
        async with testing.open_ring(4, seed=1) as ring:
            reported: list[str] = []
            model, put, record = written(ring)
            accounting = accounting_of(ring, model, reported.append)
            for node in list(ring.nodes)[:2]:
                node._host.storage.apply(Batch(puts=(record,)))
            if disks == 1:
                ring[1]._host.storage.apply(Batch(removals=(KEY,)))
            for node in list(ring.nodes)[:disks]:
                accounting.bury(node)
            assert put.is_lost
            assert len(reported) == complaints
            assert all("no store has it, though only 1 of its copies were lost, not 2" in text for text in reported)

    testing.run(main)


def test_lost_disks_count_until_all_members_have_the_write() -> None:
    async def main() -> None:
        async with testing.open_ring(4, seed=1) as ring:
            model, put, record = written(ring)
            accounting = accounting_of(ring, model, pytest.fail)
            for node in ring.nodes:
                node._host.storage.apply(Batch(puts=(record,)))
            accounting.bury(ring[0])
            assert put.vanished == 1
            accounting.saw(ring[1].name, record, False)
            assert put.vanished == 0

    testing.run(main)


@pytest.mark.parametrize("is_wiped", [False, True])
def test_only_copy_may_be_denied_only_if_its_disk_is_lost(is_wiped: bool) -> None:
    """The return of another node excuses nothing."""

    async def main() -> None:
        async with cluster(seed=1, ring=RingConstants(replicas=1), sync_delay=flash) as machines:
            await (await machines.start(join=())).ready()
            for _ in range(2):
                await (await machines.start()).ready()
            complaints: list[str] = []
            oracle = Oracle(machines, machines[0]._host.constants, Counter(), complaints.append)
            model, _, record = written(machines)
            oracle.models[KEY] = model
            keeper, other, asked = machines.nodes
            await keeper._host.storage.commit(Batch(puts=(record,)))
            for node in (keeper, other):
                oracle.accounting.bury(node)
                await machines.kill(node)
                oracle.accounting.autopsy(node)
            before = oracle.before(model, None)
            if is_wiped:
                oracle.accounting.wipe(keeper.name)
            oracle.accounting.bring_back(other)
            oracle.denied(asked, model, before)
            assert len(complaints) == (not is_wiped)

    testing.run(main)


@pytest.mark.parametrize("is_same", [False, True])
def test_lost_only_copy_may_be_denied_after_its_machine_returns(is_same: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1, replicas=1) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, put, record = written(ring)
            put.w = 1
            oracle.models[KEY] = model
            keeper, other, asked = ring.nodes
            keeper._host.storage.apply(Batch(puts=(record,)))
            before = oracle.before(model, None)
            for node in (keeper, other):
                oracle.accounting.bury(node)
            oracle.accounting.bring_back(keeper if is_same else other)
            oracle.denied(asked, model, before)
            assert put.is_lost
            assert len(complaints) == (not is_same)

    testing.run(main)


@pytest.mark.parametrize("what", ["apart", "moving", "stood in", "same part", "copied", "short", "one ring", "merged"])
def test_healed_partition_excuses_only_values_of_the_other_part(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key's owner is in one part. Another part wrote the value, and no living node has brought it over.

    If the ring is Ideal already, the owner must ask none of the nodes with the value.
    """

    async def main() -> None:
        async with testing.open_ring(8, seed=1, replicas=2) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, put, record = written(ring)
            oracle.models[KEY] = model
            await ring.converged()
            owner, replica, stand_in, *_, second, far = clockwise(ring, KEY)
            writer = {"one ring": replica, "stood in": stand_in}.get(what, far)
            third = far if what == "one ring" else replica
            asked = [place.contact.address for place in only(owner).replica_set(model.point).everyone]
            assert [node.address in asked for node in (replica, stand_in, second, far)] == [True, True, False, False]
            ring.network._faults.islands = {owner.name: 0, third.name: 0}
            oracle.split()
            ring.network._faults.islands = {}
            put.split = trio.current_time(), owner.name if what == "same part" else writer.name
            for node in (writer, second, *([third] if what == "copied" else [])):
                node._host.storage.apply(Batch(puts=(record,)))
            if what == "merged":
                oracle.merged()
            down_out_s = ring[0]._host.timing.down_out_s
            for split in oracle._splits:
                split.began -= (0.5 if what == "short" else 2) * down_out_s
            monkeypatch.setattr(ring, "waiting", lambda: [] if what in IDEAL else ["two rings"])
            oracle.denied(owner, model, oracle.before(model, None))
            assert len(complaints) == (what not in ("apart", "moving"))
            for split in oracle._splits:
                assert split.is_moving([far.name], model.point)
                assert not split.is_moving([far.name, owner.name], model.point), "its owner has it"
                assert not split.is_moving([], model.point), "no node has it: lost"

    testing.run(main)


@pytest.mark.parametrize("what", ["apart", "same part", "reached"])
def test_partition_excuses_only_values_beyond_the_reader(what: str) -> None:
    async def main() -> None:
        async with testing.open_ring(4, seed=1, replicas=2) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, put, record = written(ring)
            oracle.models[KEY] = model
            writer, second, reader, third = ring.nodes
            ring.network.partition([writer.name, second.name])
            oracle.split()
            oracle._splits[0].began -= 2 * reader._host.timing.down_out_s
            put.split = trio.current_time(), reader.name if what == "same part" else writer.name
            for node in (writer, second, *([third] if what == "reached" else [])):
                node._host.storage.apply(Batch(puts=(record,)))
            oracle.denied(reader, model, oracle.before(model, None))
            assert len(complaints) == (what != "apart")
            ring.network.heal()

    testing.run(main)


@pytest.mark.parametrize("what", ["never calm", "wiped", "one settled", "settled", "Ideal"])
def test_short_partition_excuses_only_values_on_new_nodes(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The partition begins before the ring has settled, or in an Ideal ring. Two nodes of one part have the value."""

    async def main() -> None:
        async with testing.open_ring(4, seed=1, replicas=2) as ring:
            await ring.converged()
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, put, record = written(ring)
            oracle.models[KEY] = model
            writer, second, reader, _ = ring.nodes
            if what not in ("never calm", "Ideal"):
                oracle.disturb()
                assert oracle.calm() is not None
                oracle.disturb()
            if what == "one settled":
                oracle._members.remove(second.name)
            if what == "wiped":
                oracle.accounting.fresh.add(second.name)
            ring.network.partition([writer.name, second.name])
            with monkeypatch.context() as patched:
                patched.setattr(ring, "waiting", lambda: [] if what == "Ideal" else ["a node knows too few"])
                oracle.split()
            put.split = trio.current_time(), writer.name
            for node in (writer, second):
                node._host.storage.apply(Batch(puts=(record,)))
            oracle.denied(reader, model, oracle.before(model, None))
            assert len(complaints) == (what in ("settled", "Ideal"))
            ring.network.heal()

    testing.run(main)


@pytest.mark.parametrize("what", ["writer's part", "reader's part", "copied"])
def test_joiner_is_in_the_part_that_gave_its_arc(what: str) -> None:
    """A node starts right before a long partition ends, and receives an arc. It has no pointers when a read ends."""
    observers: list[Observer] = []

    def observe(emitted: Emitted) -> None:
        for observer in observers:
            observer(emitted)

    async def main() -> None:
        async with testing.open_ring(8, seed=1, replicas=2, observe=observe) as ring:
            await ring.converged()
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, put, record = written(ring)
            oracle.models[KEY] = model
            row = clockwise(ring, KEY)
            giver = row[0]
            part, rest = (row[1::2], row[::2]) if what == "reader's part" else (row[::2], row[1::2])
            ring.network.partition([node.name for node in part])
            oracle.split()
            oracle._splits[0].began -= 2 * ring[0]._host.timing.down_out_s
            while oracle._owners(model) != {part[0].name, rest[0].name}:
                await trio.sleep(0.1)
            put.split = trio.current_time(), part[0].name
            for node in (*part[:2], *([giver] if what == "reader's part" else rest[:1] if what == "copied" else [])):
                node._host.storage.apply(Batch(puts=(record,)))
            joiner = await ring.start(id=model.point, join=[giver])
            oracle.disturb()
            judged = trio.Event()

            def judge(emitted: Emitted) -> None:
                if isinstance(emitted.event, ArcGained) and emitted.node == joiner.address:
                    oracle.disturb()
                    assert joiner._host.owner_of(model.point) is not None
                    assert not only(joiner).ring.successors
                    assert oracle._splits[0].part_of(joiner.name) == oracle._splits[0].part_of(giver.name)
                    oracle.denied(rest[-1], model, oracle.before(model, None))
                    judged.set()

            observers.append(judge)
            ring.network.heal()
            await judged.wait()
            assert len(complaints) == (what != "writer's part")

    testing.run(main)


@pytest.mark.parametrize("what", ["beyond", "same part", "merged", "too few", "known"])
def test_drop_in_a_part_needs_no_node_that_joined_beyond(what: str) -> None:
    """Two of three nodes in a part leave. Beyond the partition are an old node and a new one; W is 3."""

    async def main() -> None:
        async with testing.open_ring(5, seed=1, replicas=4) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, _, record = written(ring)
            oracle.models[KEY] = model
            dropper, leaver, stays, _, new = ring.nodes
            part = [dropper, leaver, stays, *([new] if what == "same part" else [])]
            ring.network.partition([node.name for node in part])
            oracle.split()
            if what != "known":
                oracle._splits[0].before -= {new.name}
            if what == "merged":
                oracle.merged()
            for node in (dropper, leaver):
                node._host.is_leaving = True
            for node in (stays, *([] if what == "too few" else [leaver])):
                node._host.storage.apply(Batch(puts=(record,)))
            oracle.accounting.dropped(dropper.name, record)
            left = 1 if what == "too few" else 2
            expected = f"{dropper.name} drops put 1 of b'k', which is left on {left} nodes"
            assert complaints == ([] if what == "beyond" else [expected])
            for node in (dropper, leaver):
                node._host.is_leaving = False
            ring.network.heal()

    testing.run(main)


@pytest.mark.parametrize("is_held", [False, True])
def test_scan_may_miss_only_later_writes_of_the_owner(is_held: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            oracle.disturb()
            model, _, record = written(ring)
            oracle.models[KEY] = model
            owner = next(node for node in ring.nodes if node._host.owner_of(model.point) is not None)
            others = [node for node in ring.nodes if node is not owner]
            for node in [*others, owner] if is_held else others:
                node._host.storage.apply(Batch(puts=(record,)))
            began = oracle.before_scan()
            owner._host.storage.apply(Batch(puts=(record,)))
            oracle.scanned(owner, {}, began)
            assert len(complaints) == is_held

    testing.run(main)


@pytest.mark.parametrize("is_held", [False, True])
def test_scan_may_show_old_values_only_if_the_owner_has_no_new(is_held: bool) -> None:
    """Two nodes that have just woken up may both coordinate. A write of one reaches the other as a hint."""

    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            oracle.disturb()
            model, old, record = written(ring)
            oracle.models[KEY] = model
            actor, new = record.clock[0].actor, model.begin("put")
            model.sent(new, b"2" * 16)
            newer = Record(KEY, (ActorClock(actor, 2, (Version(new.value, new.op_id, 2),)),))
            model.saw(newer, ring[0].name, is_own=True)
            new.w = 2
            model.acknowledged(new, versions.encode_context({actor: 2}), "client", ring[0].name)
            owner = next(node for node in ring.nodes if node._host.owner_of(model.point) is not None)
            for node in ring.nodes:
                node._host.storage.apply(Batch(puts=(newer if is_held or node is not owner else record,)))
            assert old.value is not None
            oracle.scanned(owner, {KEY: (old.value,)}, oracle.before_scan())
            assert any(f"reads {old}" in text for text in complaints) == is_held

    testing.run(main)


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_unanswered_delete_may_be_reaped_with_what_it_replaced(is_elsewhere: bool) -> None:
    """The client got no reply. The deleted value counts as deleted, and also as present if a copy is left."""

    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            host = ring[0]._host
            complaints: list[str] = []
            model, put, value = written(ring)
            actor = value.clock[0].actor
            accounting = accounting_of(ring, model, complaints.append)
            delete = model.begin("put", is_delete=True)
            model.sent(delete, b"2" * 16)
            tombstone = Record(KEY, (ActorClock(actor, 2, (Version(None, delete.op_id, 2),)),))
            model.saw(tombstone, ring[0].name, is_own=True)
            host.storage.apply(Batch(puts=(tombstone,)))
            if is_elsewhere:
                ring[1]._host.storage.apply(Batch(puts=(value,)))
            accounting.dropped(ring[0].name, tombstone)
            accounting.reap(model)
            assert model.required() == [put], "the disk may refuse it"
            host.storage.apply(Batch(removals=(KEY,)))
            accounting.reap(model)
            assert complaints == []
            assert model.required() == [put] * is_elsewhere
            assert model.wrong(accounting.inventory.merged(KEY), 200.0) == []
            assert model.wrong(value, 200.0) == ([] if is_elsewhere else ["put 1 was replaced, and is back"])

    testing.run(main)


@pytest.mark.parametrize("is_deleted", [True, False])
def test_deleted_value_may_vanish_from_a_copy_that_stays(is_deleted: bool) -> None:
    """All logs trim each entry at once. One store drops the value by the entry, and another one while it catches up.

    The second copy remains, because the value had replaced a value of another actor. Without a delete, the same change
    loses the value.
    """

    async def main() -> None:
        limits = Limits(reap_log_entries=0, reap_log_entries_max=0)
        async with testing.open_ring(3, seed=1, timing=FIXED, limits=limits) as ring:
            reaper, dropper, late = (node._host for node in ring.nodes)
            model, _, only_value = written(ring)
            actor = only_value.clock[0].actor
            older = ActorClock(late.storage.incarnation + bytes(8), 1, ())
            value = Record(KEY, tuple(sorted((older, *only_value.clock), key=lambda entry: entry.actor)))
            accounting = accounting_of(ring, model, pytest.fail)
            accounting.is_trimming = True
            dropper.storage.apply(Batch(puts=(only_value,)))
            late.storage.apply(Batch(puts=(value,)))
            if is_deleted:
                delete = model.begin("put", is_delete=True)
                model.sent(delete, b"2" * 16)
                tombstone = versions.put(only_value, KEY, None, actor, Version(None, delete.op_id, 2))
                model.saw(tombstone, ring[0].name, is_own=True)
                reaper.storage.apply(Batch(puts=(tombstone,)))
                accounting.dropped(ring[0].name, tombstone)
                before = reaper.reap_log.state(reaper.reap_log.slice_of(KEY))
                graves = [Grave(tombstone, versions.context_of(tombstone))]
                reaper.storage.apply(reaper.reap_log.bury(graves))
                accounting.dropped(ring[1].name, only_value)
                news = reaper.reap_log.news(reaper.reap_log.slice_of(KEY), before, graves)
                dropper.storage.apply(dropper.reap_log.absorb(news))
                assert dropper.storage.get(KEY) is None
                log, _ = reaper.reap_log.log_after(reaper.reap_log.slice_of(KEY), {})
                assert not late.reap_log.is_in_reach(log)
                late.storage.apply(late.reap_log.catch_up(log, {}))
            else:
                dropper.storage.apply(Batch(removals=(KEY,)))
                late.storage.apply(Batch(puts=(Record(KEY, (older,)),)))
            assert late.storage.get(KEY) == Record(KEY, (older,))
            accounting.reap(model)
            wrong = model.wrong(accounting.inventory.merged(KEY), 200.0)
            assert wrong == ([] if is_deleted else ["put 1 was acknowledged, and no store has it"])

    testing.run(main)


@pytest.mark.parametrize(
    ("is_reaped", "is_in_log", "complaints"), [(True, True, 0), (True, False, 1), (False, True, 1)]
)
def test_old_copy_may_be_dropped_only_if_reaped_and_logged(is_reaped: bool, is_in_log: bool, complaints: int) -> None:
    """A store that missed the delete learns from the reap log that the value is dead, and drops it.

    If no other store dropped the tombstone before, the log names a value without a delete. Without the entry, the
    store drops its copy for another reason.
    """

    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            reported: list[str] = []
            model, _, value = written(ring)
            accounting = accounting_of(ring, model, reported.append)
            delete = model.begin("put", is_delete=True)
            model.sent(delete, b"2" * 16)
            tombstone = Record(KEY, (ActorClock(value.clock[0].actor, 2, (Version(None, delete.op_id, 2),)),))
            model.saw(tombstone, ring[0].name, is_own=True)
            ring[1]._host.storage.apply(Batch(puts=(tombstone,)))
            if is_reaped:
                accounting.dropped(ring[0].name, tombstone)
            if is_in_log:
                log = ring[2]._host.reap_log
                ring[2]._host.storage.apply(log.bury([Grave(tombstone, versions.context_of(tombstone))]))
            accounting.dropped(ring[2].name, value)
            assert len(reported) == complaints
            assert all("drops put 1 of b'k', which is left on 1 nodes" in text for text in reported)

    testing.run(main)


@pytest.mark.parametrize("leaves", [(), (1,)])
@pytest.mark.parametrize("dies", [(), (0,), (0, 1)])
def test_put_must_replace_the_versions_of_ready_nodes_only(dies: tuple[int, ...], leaves: tuple[int, ...]) -> None:
    async def main() -> None:
        async with testing.open_ring(4, seed=1) as ring:
            model, put, value = written(ring)
            accounting = accounting_of(ring, model, pytest.fail)
            for at in (0, 1):
                ring[at]._host.storage.apply(Batch(puts=(value,)))
            for at in dies:
                accounting.inventory.dies(ring[at], lambda _: False)
            for at in leaves:
                ring[at].state = "leaving"
            living = {ring[at] for at in (0, 1) if at not in (*dies, *leaves)}
            assert accounting.in_reach(model) == ({put: living} if living else {})

    testing.run(main)


@pytest.mark.parametrize(("is_lenient", "is_alarmed"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("is_owner", [False, True])
def test_put_may_miss_a_returned_copy_only_in_an_alarm(is_owner: bool, is_lenient: bool, is_alarmed: bool) -> None:
    """A node that was away hands its copy to the owner between the put's version and its acknowledgement."""

    async def main() -> None:
        async with testing.open_ring(3, seed=1, replicas=1) as ring:
            complaints: list[str] = []
            oracle = Oracle(ring, ring[0]._host.constants, Counter(), complaints.append)
            model, old, record = written(ring)
            oracle.models[KEY] = model
            owner = next(node for node in ring.nodes if node._host.owner_of(model.point) is not None)
            holder = next(node for node in ring.nodes if (node is owner) == is_owner)
            holder._host.storage.apply(Batch(puts=(record,)))
            oracle.is_lenient, old.is_alarmed = is_lenient, is_alarmed
            to_be_found = oracle.to_be_found(model)
            actor, new = owner._host.storage.incarnation + bytes(7) + b"1", model.begin("put")
            model.sent(new, b"2" * 16)
            own = Record(KEY, (ActorClock(actor, 1, (Version(new.value, new.op_id, 2),)),))
            model.saw(own, owner.name, is_own=True)
            owner._host.storage.apply(Batch(puts=(versions.sync(record, own),)))
            old.w = new.w = 1
            old.is_strict = new.is_strict = True
            model.acknowledged(new, versions.encode_context({actor: 1}), "client", owner.name)
            assert oracle.is_whole(model)
            oracle.hold_to_what_it_read(owner, model, new, to_be_found)
            assert len(complaints) == (is_owner or not (is_lenient or is_alarmed))
            assert old.is_alarmed == (is_alarmed and not is_owner), "a quorum has had it after the alarm"
            assert all("acknowledged put 2 of b'k' and did not replace put 1" in text for text in complaints)

    testing.run(main)


def test_run_waits_for_owners_that_await_every_replica() -> None:
    async def main() -> None:
        async with testing.open_ring(6, seed=2) as ring:
            ring[0]._host.storage.apply(Batch(puts=(Record(KEY, ()),)))
            assert list(unreadable(ring, 2)) == []
            (owner,) = [n for n in ring.nodes if only(n).ownership.is_owner(n._host.circle.hash(KEY))]
            only(owner).is_up = lambda place: place.contact == owner.contact  # type: ignore[method-assign]
            (text,) = unreadable(ring, 2)
            assert text == f"{owner.address} owns b'k', and only 1 nodes of its replica set answer"
            assert list(unreadable(ring, 1)) == []

    testing.run(main)


@pytest.mark.parametrize(("now", "is_left"), [(9.0, True), (10.0, False)])
def test_put_need_not_replace_expired_values(now: float, is_left: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, old, record = written(ring)
            old.is_strict, old.expires = True, (10.0, 11.0)
            put = model.begin("put")
            put.is_strict = True
            assert model.left_beside(put, record, 2, now) == [old] * is_left

    testing.run(main)


def quarantined(record: Record) -> Record:
    return Record(record.key, (), b"", record.clock)


@pytest.mark.parametrize(("is_trimming", "complaints"), [(False, 1), (True, 0)])
def test_quarantine_without_a_trimmed_log_is_a_fault(is_trimming: bool, complaints: int) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            reported: list[str] = []
            model, _, record = written(ring)
            accounting = accounting_of(ring, model, reported.append)
            accounting.is_trimming = is_trimming
            accounting.saw(ring[1].name, quarantined(record), False)
            assert len(reported) == complaints, reported

    testing.run(main)


@pytest.mark.parametrize("has_tombstone", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_last_quarantined_copy_may_be_dropped_only_if_deleted(is_deleted: bool, has_tombstone: bool) -> None:
    """A tombstone beside the quarantine proves nothing, because it may belong to another value."""

    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            reported: list[str] = []
            model, put, record = written(ring)
            accounting = accounting_of(ring, model, reported.append)
            accounting.is_trimming = True
            other = ActorClock(ring[1]._host.storage.incarnation + bytes(8), 1, (Version(None, b"2" * 16, 2),))
            if is_deleted:
                replaced = ActorClock(record.clock[0].actor, 1, ())
                accounting.dropped(ring[1].name, Record(KEY, (replaced, other)))
            accounting.dropped(ring[0].name, Record(KEY, (other,) * has_tombstone, b"", record.clock))
            assert reported == ([] if is_deleted else [f"n0 drops {put} of b'k', which is left on 0 nodes"])

    testing.run(main)


@pytest.mark.parametrize(("shown", "is_hidden"), [(1, True), (2, False)])
def test_quarantined_value_is_hidden_unless_a_quorum_shows_it(shown: int, is_hidden: bool) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, put, record = written(ring)
            put.quorum = 2
            accounting = accounting_of(ring, model, pytest.fail)
            accounting.is_trimming = True
            for number, node in enumerate(ring.nodes):
                copy = record if number < shown else quarantined(record)
                node._host.storage.apply(Batch(puts=(copy,)))
            assert accounting.is_hidden(model, put) == is_hidden
            assert accounting.readable(model, put) == {node.name for node in list(ring.nodes)[:shown]}
            assert accounting.holders(model, put) == 3

    testing.run(main)


@pytest.mark.parametrize("is_marked", [True, False])
def test_put_with_one_copy_finds_no_value_of_a_marked_owner(is_marked: bool) -> None:
    """The former owner is back, and the owner does not know that yet."""

    async def main() -> None:
        async with testing.open_ring(3, seed=1, replicas=1) as ring:
            model, put, record = written(ring)
            owner = next(node for node in ring.nodes if node._host.owner_of(model.point) is not None)
            former = next(node for node in ring.nodes if node is not owner)
            former._host.storage.apply(Batch(puts=(record,)))
            own = only(owner).ownership
            if is_marked:
                assert own.arc is not None
                own.mark(own.arc, [only(former).me], trio.current_time())
            assert accounting_of(ring, model, pytest.fail).in_reach(model) == ({} if is_marked else {put: {former}})

    testing.run(main)


@pytest.mark.parametrize(("disks", "is_lost"), [(2, True), (1, False)])
def test_delete_is_lost_with_its_disks_though_a_store_dropped_it(disks: int, is_lost: bool) -> None:
    """A dropped tombstone was reaped, or moved to another store. If reap logs are trimmed, only the disks decide."""

    async def main() -> None:
        async with testing.open_ring(4, seed=1) as ring:
            model, put, record = written(ring)
            delete = model.begin("put", is_delete=True)
            model.sent(delete, b"2" * 16)
            actor = record.clock[0].actor
            tombstone = Record(KEY, (ActorClock(actor, 2, (Version(None, delete.op_id, 2),)),))
            model.saw(tombstone, ring[0].name, is_own=True)
            delete.w = 2
            model.acknowledged(delete, versions.encode_context({actor: 2}), "client", ring[0].name)
            assert put not in model.required()
            accounting = accounting_of(ring, model, pytest.fail)
            accounting.is_trimming = True
            for node in list(ring.nodes)[:3]:
                node._host.storage.apply(Batch(puts=(tombstone,)))
            ring[3]._host.storage.apply(Batch(puts=(record,)))
            for node in list(ring.nodes)[disks:3]:
                accounting.dropped(node.name, tombstone)
                node._host.storage.apply(Batch(removals=(KEY,)))
            for node in list(ring.nodes)[:disks]:
                accounting.bury(node)
            assert (delete.is_lost, delete.is_reaped) == (is_lost, not is_lost)

    testing.run(main)


@pytest.mark.parametrize(
    ("disks", "owns", "is_excused"), [(2, False, True), (1, False, False), (2, True, False), (0, False, False)]
)
def test_copy_of_a_joiner_need_not_be_found_if_w_disks_are_lost(disks: int, owns: bool, is_excused: bool) -> None:
    """With one lost disk, the other member has dropped its copy. With none, it still has it."""

    async def main() -> None:
        async with testing.open_ring(4, seed=1) as ring:
            model, put, record = written(ring)
            accounting = accounting_of(ring, model, pytest.fail)
            first, second = list(ring.nodes)[:2]
            ring.network.partition(["n4"])
            joiner = await ring.start(join=[first])
            await trio.sleep(1)
            assert joiner.state == "joining"
            for node in (first, second, joiner):
                node._host.storage.apply(Batch(puts=(record,)))
            if owns:
                only(joiner).ownership.start = only(joiner).id
            if disks == 1:
                second._host.storage.apply(Batch(removals=(KEY,)))
            for node in (first, second)[:disks]:
                accounting.bury(node)
            assert accounting.is_with_joiners(model, put) == is_excused
            only(joiner).ownership.start = None

    testing.run(main)


@pytest.mark.parametrize(("is_own", "complaints"), [(True, 0), (False, 1)])
def test_version_that_no_store_minted_is_a_fault(is_own: bool, complaints: int) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            reported: list[str] = []
            model = KeyModel(KEY, ring[0]._host.circle.hash(KEY))
            put = model.begin("put")
            model.sent(put, b"1" * 16)
            record = Record(KEY, (ActorClock(bytes(16), 1, (Version(put.value, put.op_id, 1),)),))
            accounting_of(ring, model, reported.append).saw(ring[0].name, record, is_own)
            assert len(reported) == complaints, reported

    testing.run(main)


@pytest.mark.parametrize(("known", "dots"), [(2, 1), (0, 0)])
def test_crash_takes_back_no_dot_with_a_later_one_elsewhere(known: int, dots: int) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, put, record = written(ring, is_ok=False)
            actor = record.clock[0].actor
            model.crashed(ring[0].name, [Record(KEY, (ActorClock(actor, known, ()),))])
            assert len(put.dots) == dots

    testing.run(main)


@pytest.mark.parametrize(("reaped", "dots"), [(1, 1), (0, 0)])
def test_crash_takes_back_no_dot_that_its_store_reaped(reaped: int, dots: int) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            story, put, record = written(ring, is_ok=False)
            story.bury(Record(KEY, (ActorClock(record.clock[0].actor, reaped, ()),)))
            story.crashed(ring[0].name, [])
            assert len(put.dots) == dots

    testing.run(main)


@pytest.mark.parametrize(("seen_at", "dots"), [(0, 0), (1, 1)])
def test_crash_takes_back_a_dot_that_only_its_store_merged(seen_at: int, dots: int) -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, put, record = written(ring, is_ok=False)
            assert model.saw(record, ring[seen_at].name) == ""
            model.crashed(ring[0].name, [])
            assert len(put.dots) == dots

    testing.run(main)


def test_copy_in_flight_keeps_its_history_after_a_crash() -> None:
    async def main() -> None:
        async with testing.open_ring(3, seed=1) as ring:
            model, put, record = written(ring, is_ok=False)
            accounting = accounting_of(ring, model, pytest.fail)
            model.crashed(ring[0].name, [])
            assert put.dots == {}
            accounting.saw(ring[1].name, record, False)
            assert [mint.covers is None for mint in put.dots.values()] == [False]

    testing.run(main)

"""Short runs with every fault, and the complaints of oracle and watch about planted faults."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from unittest import mock

import msgspec
import pytest
import trio

from chord import testing
from chord.client.results import Stored
from chord.events import Emitted, NodeStateChanged, PeerChanged, RingCreated, StepDone, TransferEnded
from chord.ids import Arc, Point
from chord.node import Node
from chord.ring.preference_list import ReplicaSet
from chord.ring.vnode import Vnode
from chord.sim.key_model import KeyModel
from chord.sim.messages import MessageNetwork
from chord.sim.observer import EVERY_STEP_MAX, Violated, Watch, name_of
from chord.sim.plan import FAULTS, Fidelity, Plan, draw
from chord.sim.run import Run, RunFailure
from chord.sim.workload import Workload
from chord.store import versions
from chord.store.storage import Batch
from chord.testing.rings import TestRing
from chord.verify.history.format import read
from chord.verify.invariants import Member, Snapshot, exact_successors
from chord.wire.messages import ActorClock, Contact, Record, Version
from tests.support.rings import only, virtual

# -- runs -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "fidelity"),
    [
        (1, "messages"),
        (3, "frames"),
        pytest.param(2, "messages", marks=pytest.mark.thorough),
    ],
)
def test_short_run_with_every_fault_holds(seed: int, fidelity: Fidelity) -> None:
    plan = draw(seed, nodes=8, successors=2, fidelity=fidelity, faults=tuple(FAULTS), membership=12, steps=1500)
    report = Run(plan).run()
    assert report.seed == seed
    assert report.steps >= 1500
    assert report.membership >= 12
    assert report.checks > 50
    assert report.counts["client put ok"] > 10
    assert report.keys > 0
    assert 0 < report.settled_s < 60
    assert len(report.digest) == 32


@pytest.mark.slow
@pytest.mark.parametrize("reads", [pytest.param(0.1, marks=pytest.mark.thorough), 0.8])
def test_clients_read_with_the_given_share(reads: float) -> None:
    few = draw(3, nodes=6, successors=2, faults=(), fidelity="messages", clients=8, client_pause_s=0.05, shared=0.0)
    plan = msgspec.structs.replace(few, until_s=8.0)
    reported: list[Counter[str]] = []
    run = Run(
        msgspec.structs.replace(plan, reads=reads), on_progress=lambda *_: reported.append(run._workload.counts.copy())
    )
    run.run()
    read = reported[-1]["get ok"] + reported[-1]["get not found"]  # before the last read of all keys
    written = reported[-1]["put ok"] - len(run._workload.models)  # without the first write of each key
    assert abs(read / (read + written) - reads) < 0.1


@pytest.mark.slow
def test_listener_gets_every_event_and_changes_nothing() -> None:
    plan = draw(8, nodes=6, successors=2, faults=("crash",), fidelity="messages", until_s=3.0)  # nothing is broken off
    reported: list[Emitted] = []
    history: list[bytes] = []
    report = Run(plan, on_event=lambda cluster, event: reported.append(event), write_history=history.append).run()
    assert isinstance(reported[0].event, RingCreated)
    assert report == Run(plan).run()
    operations = list(read(history))
    asked = ("client put ", "client get ")
    assert len(operations) == sum(count for name, count in report.counts.items() if name.startswith(asked))
    assert report.virtual_s > 3.0


def test_run_without_end_is_a_failure_of_liveness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "virtual_s_max", 3.0)
    plan = draw(5, nodes=6, successors=2, faults=(), fidelity="messages", membership=10**6)
    with pytest.raises(RunFailure, match="seed 5: it took too long") as caught:
        Run(plan).run()
    assert caught.value.kind == "liveness"


# -- the oracle -----------------------------------------------------------------------------------

KEYS = 12


class Judged:
    """A ring of five, a workload that has written a few keys, and the complaints of the oracle."""

    def __init__(self, ring: TestRing, workload: Workload, complaints: list[str]) -> None:
        self.ring, self.workload, self.complaints = ring, workload, complaints

    def owner(self, key: bytes) -> Node:
        """Return the owner of a key."""
        point = self.ring[0]._host.circle.hash(key)
        return next(node for node in self.ring.nodes if only(node).ownership.is_owner(point))

    def holders(self, key: bytes) -> list[Node]:
        """Return the nodes with a copy of a record."""
        return [node for node in self.ring.nodes if node._host.storage.get(key) is not None]


def ledger_test(test: Callable[[Judged], Awaitable[None]]) -> Callable[[], None]:
    async def wrapper() -> None:
        async with testing.open_ring(5, seed=3, successors=4, network=MessageNetwork(3)) as ring:
            complaints: list[str] = []
            workload = Workload(ring, random.Random(3), complaints.append)
            await workload.fill(KEYS)
            await trio.sleep(1)
            assert (workload.keys, workload.lost, workload.counts["put ok"]) == (KEYS, 0, KEYS)
            await test(Judged(ring, workload, complaints))

    wrapper.__name__ = test.__name__
    return virtual(wrapper)


@ledger_test
async def test_oracle_accepts_reads_of_the_written_values(judged: Judged) -> None:
    await judged.workload.settle()
    assert judged.workload.counts["get ok"] == KEYS * 5
    assert judged.complaints == []


@ledger_test
async def test_batch_with_a_followed_key_has_no_key_twice(judged: Judged) -> None:
    workload = Workload(judged.ring, random.Random(3), judged.complaints.append, habits=("batch",))
    drawn = [workload._companions(b"client0-3.1", "client0") for _ in range(200)]
    assert any("client0-4" in names for names in drawn)
    assert all("client0-3" not in names for names in drawn)


@ledger_test
async def test_oracle_reports_a_record_that_is_gone_everywhere(judged: Judged) -> None:
    for node in judged.holders(b"old-5"):
        await node._host.storage.commit(Batch([], removals=[b"old-5"]))
    await judged.workload.settle()
    assert any("denies b'old-5', which was acknowledged: put 1" in line for line in judged.complaints)
    assert any("b'old-5': put 1 was acknowledged, and no store has it" in line for line in judged.complaints)
    assert all("old-5" in line for line in judged.complaints)


@ledger_test
async def test_oracle_reports_a_drop_with_too_few_copies_left(judged: Judged) -> None:
    first, second, _ = judged.holders(b"old-5")
    record = first._host.storage.get(b"old-5")
    assert record is not None
    judged.workload.accounting.dropped(first.name, record)
    assert judged.complaints == []
    await second._host.storage.commit(Batch([], removals=[b"old-5"]))
    judged.workload.accounting.dropped(first.name, record)
    (complaint,) = judged.complaints
    assert complaint == f"{first.name} drops put 1 of b'old-5', which is left on 1 nodes"


@ledger_test
async def test_oracle_reports_a_value_that_no_client_wrote(judged: Judged) -> None:
    await judged.ring[0].put(b"old-5", b"other/77")
    judged.workload.oracle.is_lenient = True
    await judged.workload.read(judged.ring[1], b"old-5")
    complaint, hidden = judged.complaints
    assert "its context covers put 1, which is not there" in hidden
    assert "reads (b'other/77',) under b'old-5', and not all of it was ever written" in complaint


@ledger_test
async def test_oracle_reports_a_replaced_value_that_returns(judged: Judged) -> None:
    old = judged.owner(b"old-5")._host.storage.get(b"old-5")
    assert old is not None
    await judged.workload.write(judged.ring[0], b"old-5", "client", "put", is_delete=True)
    await trio.sleep(1)
    for node in judged.holders(b"old-5"):
        await node._host.storage.commit(Batch([old]))
    await judged.workload.settle()
    assert any("b'old-5': delete 2 has replaced a version that is there again" in line for line in judged.complaints)


@ledger_test
async def test_oracle_reports_an_acknowledgement_by_too_few(judged: Judged) -> None:
    model = judged.workload.models[b"old-5"]
    for node in judged.holders(b"old-5")[1:]:
        await node._host.storage.commit(Batch([], removals=[b"old-5"]))
    stored = Stored(b"old-5", model.contexts["filler"], judged.owner(b"old-5").contact, 2, 2, False, ())
    oracle = judged.workload.oracle
    oracle.acknowledged(judged.ring[0], model, model.ops[0], stored, "filler", None, oracle.write_quorum(model))
    (complaint,) = judged.complaints
    assert "acknowledged b'old-5' on 2 nodes, and it is durable on 1" in complaint


@ledger_test
async def test_oracle_reports_a_dot_with_two_values(judged: Judged) -> None:
    record = judged.owner(b"old-5")._host.storage.get(b"old-5")
    assert record is not None
    (entry,) = record.clock
    other = msgspec.structs.replace(entry, versions=(Version(b"other", bytes(16), 0),))
    judged.workload.accounting.saw("n0", record, False)
    judged.workload.accounting.saw("n1", msgspec.structs.replace(record, clock=(other,)), False)
    (complaint,) = [line for line in judged.complaints if "no store minted" not in line]  # this ring does not tell
    assert complaint.startswith("n1 has b'old-5', and a dot was minted twice")


@pytest.mark.parametrize("value", [b"", b"old-5", b"old-5/", b"old-5/x", b"old-5/-1", b"old-5/2", b"old-6/1"])
def test_value_of_another_form_counts_as_never_written(value: bytes) -> None:
    model = KeyModel(b"old-5", 0)
    written = model.begin("put").value
    assert written is not None
    assert model.was_written(written)
    assert not model.was_written(value)


def _with_another_value(record: Record) -> Record:
    """Return a record in which the same dot names another write."""
    (entry,) = record.clock
    return msgspec.structs.replace(
        record, clock=(msgspec.structs.replace(entry, versions=(Version(b"old-5/1", b"2" * 16, 0),)),)
    )


@pytest.mark.parametrize("by", ["n0", "n1"])
@pytest.mark.parametrize("is_told", [False, True])
def test_oracle_reports_a_reused_dot_only_if_others_rely_on_it(is_told: bool, by: str) -> None:
    """A crash takes back dots that are not durable. Then either store may answer a second try."""
    first = Record(b"old-5", (ActorClock(bytes(16), 1, (Version(b"old-5/1", b"1" * 16, 0),)),))
    model = KeyModel(b"old-5", 0)
    for op_id in (b"1" * 16, b"2" * 16):
        model.sent(model.begin("put"), op_id)
    one, two = model.ops
    assert model.saw(first, "n0", is_own=True) == ""
    (entry,) = first.clock
    again = msgspec.structs.replace(first, clock=(msgspec.structs.replace(entry, actor=b"1" * 16),))
    assert model.saw(again, "n1", is_own=True) == ""
    assert model.acknowledged(one, versions.encode_context({b"1" * 16: 1}), "client", by) == ""
    if is_told:
        assert model.saw(first, "n2") == ""
    assert model.saw(_with_another_value(first), "n0", is_own=True) == ""
    wrong = model.acknowledged(two, versions.encode_context({bytes(16): 1}), "client", "n0")
    assert ("a dot was minted twice" in wrong) == is_told


@pytest.mark.parametrize("is_dropped", [True, False])
def test_read_may_hide_a_value_only_if_its_replacement_is_covered_or_dropped(is_dropped: bool) -> None:
    """A record may survive the reaping of the value that replaced all of its values."""
    old, new, other = b"1" * 16, b"2" * 16, b"3" * 16
    model = KeyModel(b"old-5", 0)
    value = model.begin("no context")
    model.sent(value, old)
    model.saw(Record(b"old-5", (ActorClock(old, 1, (Version(b"old-5/1", old, 0),)),)), "n0", is_own=True)
    assert model.acknowledged(value, versions.encode_context({old: 1}), "client", "n0") == ""
    replacement = model.begin("with context", client="client")
    model.sent(replacement, new)
    late = Record(b"old-5", (ActorClock(old, 1, ()), ActorClock(new, 1, (Version(b"old-5/2", new, 0),))))
    model.saw(late, "n0", is_own=True)
    seen, after = versions.encode_context({old: 1, other: 1}), model.clock
    assert model.hidden(seen, [b"old-5/1"], after) is None
    assert model.hidden(seen, [], after) is value
    assert model.hidden(versions.encode_context({old: 1, new: 1}), [], after) is None
    model.bury(late if is_dropped else Record(b"old-5", (ActorClock(old, 1, ()),)))
    assert (model.hidden(seen, [], after) is None) is is_dropped


@ledger_test
async def test_oracle_excuses_a_reused_dot_that_is_not_durable(judged: Judged) -> None:
    """The oracle looks at the copies when a write is acknowledged. One store has minted a dot that is on no disk."""
    model = judged.workload.models[b"old-5"]
    copies = list(judged.workload.inventory.copies(b"old-5"))
    stored = Stored(b"old-5", model.contexts["filler"], judged.owner(b"old-5").contact, 3, 3, False, ())
    fresh = copies[0]._replace(host="n9", record=_with_another_value(copies[0].record), durable=None)
    judged.workload.inventory.copies = lambda key: iter([fresh, *copies])  # type: ignore[method-assign]
    quorum = judged.workload.oracle.write_quorum(model)
    judged.workload.oracle.acknowledged(judged.ring[0], model, model.ops[0], stored, "filler", 2, quorum)
    assert judged.complaints == []
    judged.workload.inventory.copies = lambda key: iter([fresh._replace(durable=fresh.record), *copies])  # type: ignore[method-assign]
    judged.workload.oracle.acknowledged(judged.ring[0], model, model.ops[0], stored, "filler", 2, quorum)
    assert "a dot was minted twice" in judged.complaints[0]


@ledger_test
async def test_oracle_demands_a_read_quorum_in_a_calm_ring(judged: Judged) -> None:
    """An owner that sees one replica of three excuses its own small R, but only if the ring has changed."""
    whole, oracle, model = Vnode.replica_set, judged.workload.oracle, judged.workload.models[b"old-5"]

    def of_one(vnode: Vnode, key: int) -> ReplicaSet:
        who = whole(vnode, key)
        return who._replace(members=who.members[:1])

    with mock.patch.object(Vnode, "replica_set", of_one):
        assert oracle.before(model, None).wanted == 1
        oracle.disturb()
        assert oracle.calm() is not None
        assert oracle.before(model, None).wanted == 2
        await judged.workload.read(judged.owner(b"old-5"), b"old-5")
    (complaint,) = judged.complaints
    assert "from 1 nodes, and 2 had to answer" in complaint


@ledger_test
async def test_oracle_counts_a_value_lost_with_its_last_holder(judged: Judged) -> None:
    for node in judged.holders(b"old-5"):
        judged.workload.accounting.bury(node)
    assert judged.workload.lost > 0
    assert judged.workload.keys + judged.workload.lost == KEYS
    assert judged.complaints == []


# -- the watch ------------------------------------------------------------------------------------


def ideal(ids: Iterable[int], r: int = 2) -> dict[int, Member]:
    order = sorted(ids)
    bare = {point: Member(f"n{point}:1", order[at - 1], (), rounds=100) for at, point in enumerate(order)}
    return {
        point: bare[point]._replace(successors=exact_successors(bare, order, at, r)) for at, point in enumerate(order)
    }


class Shown:
    """A ring as a watch sees it: pointers set by hand."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.members = dict(snapshot)
        self.nodes: list[Node] = []
        self.complaints = 0

    def complain(self) -> None:
        self.complaints += 1

    def __len__(self) -> int:
        return len(self.members)

    def snapshot(self) -> Snapshot:
        return dict(self.members)

    def set(self, point: int, **changes: Any) -> None:
        self.members[point] = self.members[point]._replace(**changes)


def watching(test: Callable[[Watch, Shown], None]) -> Callable[[], None]:
    async def wrapper() -> None:
        shown = Shown(ideal(range(10, 90, 10)))
        watch = Watch("here", 2, on_broken=shown.complain)
        with watch.over(cast(TestRing, shown)):
            watch.check()
            assert (watch.checks, watch.broken) == (1, None)
            test(watch, shown)

    wrapper.__name__ = test.__name__
    return virtual(wrapper)


@watching
def test_watch_reports_a_wrong_list_with_the_events_before(watch: Watch, shown: Shown) -> None:
    watch(Emitted(0, 0, 0, "n10:1", StepDone(Point(10), "stabilize")))
    shown.set(10, successors=(30, 20))
    watch.check()
    assert shown.complaints == 1
    text = str(watch.broken)
    assert text.startswith("here at 0.0000 s: OrderedSuccessorList: n10:1 ")
    assert "\nafter\n" in text
    assert "StepDone(vnode=10, step='stabilize')" in text
    with pytest.raises(Violated, match="OrderedSuccessorList"):
        watch.raise_if_broken()


@watching
def test_watch_checks_only_changed_vnodes_again(watch: Watch, shown: Shown) -> None:
    for _ in range(5):
        watch.check()
    assert watch.checks == 1
    shown.set(10, rounds=101)
    watch.check()
    assert watch.checks == 2


@watching
def test_watch_reports_a_step_that_skips_a_living_vnode(watch: Watch, shown: Shown) -> None:
    shown.set(10, successors=(30, 40))
    watch.check()
    assert "PrincipalsPersist: n20:1 is alive and a list skips it now" in str(watch.broken)


@watching
def test_watch_checks_order_beyond_the_failure_assumption(watch: Watch, shown: Shown) -> None:
    watch.go_outside()
    shown.set(10, successors=(30, 40), predecessor=None)
    watch.check()
    assert watch.broken is None
    shown.set(10, successors=(30, 30))
    watch.check()
    assert "NoDuplicates" in str(watch.broken)


@watching
def test_watch_reports_a_growing_rank_error_in_a_calm_ring(watch: Watch, shown: Shown) -> None:
    watch.calm_down()
    shown.set(10, predecessor=70)
    watch.check()
    assert "Progress: the rank error grew from 0 to " in str(watch.broken)


@virtual
async def test_watch_checks_a_large_ring_at_intervals() -> None:
    shown, watch = Shown(ideal(range(EVERY_STEP_MAX + 10))), Watch("here", 2)
    with watch.over(cast(TestRing, shown)):
        for rounds in range(100):
            shown.set(0, rounds=rounds)
            watch.check()
    assert watch.checks == 10


def test_event_names_include_the_distinguishing_field() -> None:
    here = Contact(Point(1), "n1:1")
    assert name_of(PeerChanged("n1:1", "dead", "no answer")) == "PeerChanged dead"
    assert name_of(TransferEnded(Point(1), Arc(Point(1), Point(2)), here, 3, "moved")) == "TransferEnded moved"
    assert name_of(NodeStateChanged("ready", "n1:1")) == "NodeStateChanged"
    assert name_of(RingCreated(Point(1))) == "RingCreated"

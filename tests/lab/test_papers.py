"""The published experiments at toy size: they agree with theory, and planted faults miss their bars."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from functools import partial
from itertools import pairwise

import msgspec
import pytest
import trio

from chord import testing
from chord.config import RingConstants
from chord.gallery.index import entry_of
from chord.ids import Circle, Point, vnode_id
from chord.lab.harness.experiment import Result
from chord.lab.papers import (
    churn,
    failures,
    healing,
    leaders,
    load_balance,
    local_reads,
    membership,
    missed_updates,
    path_length,
    sessions,
)
from chord.lab.papers.world import fixed_periods, rightful_owner, still_ring
from chord.net.peers import PassiveList
from chord.ring.vnode import Vnode
from chord.sim.messages import MessageNetwork
from chord.testing import MemoryNetwork
from chord.wire.messages import Confirm, ConfirmReply, Contact, FindNext, FindNextReply, Ping, PingReply

pytestmark = pytest.mark.slow

LAN = fixed_periods("lan")


# -- path length --------------------------------------------------------------------------------------


def test_path_with_fingers_alone_is_half_of_log_n() -> None:
    cell = path_length.measure(path_length.PathSetting(64, 1, rings=8, lookups=400, seed=1))
    due = path_length.formula(64, 1)
    assert sum(map(sum, cell.groups)) == 400
    assert due == pytest.approx(3 - 0.13)
    assert cell.summary.mean == pytest.approx(due, abs=4 * cell.summary.error)
    assert len(cell.shares) - 1 <= math.log2(64) + 3, "with high probability no path is longer than log N"


def test_successor_list_saves_the_last_hops() -> None:
    alone, listed = (path_length.measure(path_length.PathSetting(128, r, 4, 300, seed=2)).summary for r in (1, 8))
    assert alone.mean - listed.mean > 0.3


# -- load balance -------------------------------------------------------------------------------------


def test_gaps_are_exponential_and_vnodes_level_them() -> None:
    one, twenty = (
        load_balance.measure(load_balance.LoadSetting(vnodes, 1000, 100_000, False, seed=1)) for vnodes in (1, 20)
    )
    assert one.spread.low < 0.1
    assert one.spread.high == pytest.approx(math.log(100), rel=0.15)
    assert 0.4 < twenty.spread.low < 1 < twenty.spread.high < 2
    assert one.spread.deviation == pytest.approx(1, rel=0.15)
    assert one.histogram[0] > one.histogram[20] > one.histogram[60]


def test_real_nodes_own_the_points_of_their_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    setting = load_balance.LoadSetting(1, 40, 4_000, True, seed=1)
    assert load_balance.measure(setting).disagreements == 0

    def other_points(circle: Circle, address: str, index: int) -> int:
        return vnode_id(circle, address, index + 1)

    monkeypatch.setattr(load_balance, "vnode_id", other_points)
    assert load_balance.measure(setting).disagreements > 30


# -- simultaneous failures ----------------------------------------------------------------------------


def test_ring_without_failures_has_no_timeouts() -> None:
    cell = failures.measure(failures.FailuresSetting(0.0, 0, nodes=128, lookups=100, seed=1))
    assert cell.timeouts == cell.on_route == ((100,),)
    assert cell.wrong == cell.unanswered == 0


def test_half_of_the_nodes_dead_costs_one_timeout_per_hop() -> None:
    """Of m nodes on a path, a share p is dead: m p timeouts and m (1 - p) hops, with the owner."""
    cells = [failures.measure(failures.FailuresSetting(0.5, ring, nodes=128, lookups=100, seed=1)) for ring in range(4)]
    (found,) = failures.outcomes(cells)
    assert (found.rings, found.lookups) == (4, 400)
    assert found.timeouts.mean == pytest.approx(found.path.mean + 1, rel=0.25)
    assert found.timeouts.mean - found.on_route.mean == pytest.approx(1, rel=0.4)
    assert found.wrong == found.unanswered == 0


def skipping(self: Vnode, request: FindNext) -> FindNextReply:
    """Name the owner's successor instead of the owner."""
    step = FIND_NEXT(self, request)
    return FindNextReply(True, step.candidates[1:], step.spacing) if step.final else step


FIND_NEXT, CONFIRM = Vnode.on_find_next, Vnode.on_confirm


def test_planted_wrong_owner_misses_the_bar_of_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vnode, "on_find_next", skipping)
    cell = failures.measure(failures.FailuresSetting(0.1, 0, nodes=64, lookups=40, seed=1))
    assert cell.wrong > 30
    (table,) = failures.tables(Result("quick", 1, (cell,)))
    assert table.passed is False


def test_lookup_passes_as_many_dead_as_a_list_holds() -> None:
    """Nineteen nodes in a row are dead, more than one answer once named."""

    async def main() -> None:
        async with still_ring(60, 20, "in a row") as ring:
            order = sorted(ring.nodes, key=lambda node: node.contact.id)
            for node in order[10:29]:
                await ring.kill(node, silently=True)
            key, start = order[10].contact.id, order[40]
            with trio.fail_after(60):
                deliver = start._lookups.deliver
                _, path, via, _ = await deliver(Ping(), PingReply, key, start.contact, "iterative", "classic")
            assert next(c.contact for c in path.candidates if c.via == via) == order[29].contact
            assert path.restarts == 0
            assert path.timeouts >= 19

    testing.run(main)


# -- churn --------------------------------------------------------------------------------------------

BUSY = churn.ChurnSetting(2.0, nodes=50, lookups=150, lookups_per_s=2.0, warm_up_s=60.0, seed=3)


def test_lookups_during_joins_and_leaves_are_right() -> None:
    cell = churn.measure(BUSY)
    assert cell.joins >= 5
    assert cell.leaves >= 5
    assert cell.failures == 0
    assert len(cell.paths) + cell.abandoned == BUSY.lookups
    assert churn.measure(BUSY) == cell, "the seed determines the result"


def claiming(self: Vnode, request: Confirm) -> ConfirmReply:
    """Answer for any key."""
    return CONFIRM(self, Confirm(self.id))


def test_planted_wrong_owner_misses_the_bar_of_churn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vnode, "on_find_next", skipping)
    monkeypatch.setattr(Vnode, "on_confirm", claiming)
    cell = churn.measure(BUSY)
    assert cell.wrong > 100
    published = replace(cell, setting=BUSY._replace(rate=0.4))
    (table,) = churn.tables(Result("quick", 1, (published,)))
    assert table.passed is False


# -- sessions -----------------------------------------------------------------------------------------


def test_crashes_cost_answers_and_cause_no_wrong_ones() -> None:
    cell = sessions.measure(sessions.SessionsSetting("lan", 1.4, nodes=32, seconds=40.0, lookups=300, seed=1))
    assert cell.deaths >= 5
    assert cell.wrong == 0
    assert cell.success >= 0.95
    assert cell.lookups >= 290


def test_estimated_bytes_equal_those_of_real_frames() -> None:
    """Measure one idle ring twice: estimated at message level, and counted on streams."""

    async def main(network: MessageNetwork | MemoryNetwork) -> float:
        async with testing.open_ring(8, seed=1, timing=LAN, network=network) as ring:
            before = spent(network)
            await trio.sleep(60.0)
            assert len(ring) == 8
            return spent(network) - before

    weigher = sessions.Weigher(RingConstants().circle)

    def spent(network: MessageNetwork | MemoryNetwork) -> float:
        return network.bytes_delivered if isinstance(network, MemoryNetwork) else weigher.bytes

    weighed = testing.run(main, MessageNetwork(1, weigh=weigher))
    counted = testing.run(main, MemoryNetwork(1))
    assert weighed == pytest.approx(counted, rel=0.1)


# -- healing ------------------------------------------------------------------------------------------

NO_SELF_LOOKUP = msgspec.structs.replace(LAN, self_lookup_rounds=1_000_000)


def test_loopy_ring_heals_only_by_self_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    healed = healing.measure(healing.HealingSetting("loop", 9, LAN, "lan", seed=1))
    assert healed.rounds is not None
    assert 1 < healed.rounds <= 10
    monkeypatch.setattr(healing, "GIVE_UP_ROUNDS", 60)
    assert healing.measure(healing.HealingSetting("loop", 9, NO_SELF_LOOKUP, "none", seed=1)).rounds is None


def test_split_ring_merges_and_keeps_the_writes_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = healing.measure(healing.HealingSetting("split", 6, LAN, "lan", seed=1))
    assert cell.rounds is not None
    assert cell.rounds <= 30
    assert cell.acknowledged == 6 * 2 * healing.KEYS_PER_NODE * 3, "before the split, on one side, on both sides"
    assert cell.lost == 0
    monkeypatch.setattr(healing, "GIVE_UP_ROUNDS", 60)
    parted = healing.measure(healing.HealingSetting("split", 6, NO_SELF_LOOKUP, "none", seed=1))
    assert parted.rounds is None
    assert parted.lost > 0, "on two rings some keys are out of reach, so the check can fail"


def test_passive_list_spreads_its_probes() -> None:
    """An hour after fifty vnodes became unreachable together, one is probed every half a minute or so."""
    silent, rng = PassiveList(LAN, 128), random.Random(1)
    for number in range(50):
        silent.add(Contact(Point(number), f"n{number}:1"), 0.0)
    asked = [now for now in range(0, 7200) if silent.due(float(now), rng) is not None and now > 3600]
    gaps = [later - earlier for earlier, later in pairwise([3600, *asked, 7200])]
    assert 100 < len(asked) < 250
    assert max(gaps) < 180


# -- the rightful owner -------------------------------------------------------------------------------


def test_rightful_owner_is_the_next_living_vnode() -> None:
    async def main() -> None:
        async with still_ring(16, 4, "truth") as ring:
            order = sorted(ring.nodes, key=lambda node: node.contact.id)
            first, second = order[0].contact.id, order[1].contact.id
            assert rightful_owner(ring, first) == first
            assert rightful_owner(ring, type(first)(first + 1)) == second
            assert rightful_owner(ring, type(first)(order[-1].contact.id + 1)) == first
            await ring.kill(order[1])
            assert rightful_owner(ring, type(first)(first + 1)) == order[2].contact.id

    testing.run(main)


# -- missed updates -----------------------------------------------------------------------------------


def test_missed_update_stays_missed_without_anti_entropy() -> None:
    on, off = (missed_updates.measure(setting) for setting in missed_updates.plan("quick", 1))
    assert on.behind == (20, 0, 0, 0)
    assert off.behind == (20, 20, 20, 20)
    assert (off.after_puts, off.after_reads) == (15, 10), "only a write or a read of the key repairs it"
    assert missed_updates.tables(Result("quick", 1, (on, off)))[0].passed


def test_planted_idle_anti_entropy_misses_the_bar() -> None:
    settings = [setting._replace(looks_s=(0.0, 600.0)) for setting in missed_updates.plan("quick", 1)]
    on, off = map(missed_updates.measure, settings)
    assert missed_updates.is_met(on)
    assert not missed_updates.is_met(replace(off, setting=on.setting))
    assert not missed_updates.is_met(replace(on, setting=off.setting))


# -- leaders and followers ----------------------------------------------------------------------------


def shards(lag_s: float) -> leaders.LagOutcome:
    """Return the reads of the shards of scale quick with one mean lag."""
    cells = tuple(map(leaders.measure, [one for one in leaders.plan("quick", 1) if one.lag_s == lag_s]))
    (found,) = leaders.outcomes(Result("quick", 1, cells))
    return found


def test_old_reads_of_followers_follow_the_law() -> None:
    found = shards(0.05)
    assert found.old >= leaders.ENOUGH
    assert found.old == pytest.approx(found.due, rel=leaders.WITHIN)
    assert leaders.FOUND * found.old <= found.anomalies <= found.old
    assert found.false_anomalies == 0
    assert 0 < found.not_own < found.anomalies
    assert leaders.tables(Result("quick", 1, found.cells))[0].passed


def test_synchronous_followers_give_no_old_read() -> None:
    found = shards(0.0)
    assert found.reads > 10_000
    assert found.old == found.anomalies == found.not_own == 0
    assert leaders.is_met(found)


def test_planted_follower_that_applies_on_arrival_misses_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of(leaders.ENTRY)
    broken = msgspec.structs.replace(entry, make=entry.bugs["on-arrival"].make)
    monkeypatch.setattr(leaders, "entry_of", lambda name: broken)
    found = shards(0.05)
    assert found.old > 1.2 * found.due
    assert not leaders.is_met(found)


def test_planted_graph_that_counts_fresh_reads_misses_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaders, "anomalies", lambda operations, order: [o for o in operations if not o.is_write])
    found = shards(0.005)
    assert found.false_anomalies == found.reads - found.old
    assert not leaders.is_met(found)


# -- local reads --------------------------------------------------------------------------------------


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay messages by 20 ms on average, so that many local reads are old."""
    network = partial(MessageNetwork, delay=testing.exponential(0.02))
    monkeypatch.setattr(local_reads, "MessageNetwork", network)


@pytest.mark.usefixtures("far")
def test_local_reads_are_old_only_just_after_a_write() -> None:
    cell = local_reads.measure(local_reads.LocalSetting(False, 200, 1))
    assert all(local_reads.is_met(cell, way) for way in local_reads.WAYS)
    assert cell.old["local", 0.0] > 0
    assert 0.2 < cell.is_local["local"] / sum(cell.reads["local", s] for s in local_reads.AFTER_S.values()) < 0.8
    assert cell.is_local["R = 1"] == cell.errors == 0
    late = cell.old | {("R = 1", local_reads.TIMING.anti_entropy_s): 1}
    assert not local_reads.is_met(replace(cell, old=late), "R = 1")


@pytest.mark.usefixtures("far")
def test_planted_local_reads_in_place_of_quorums_miss_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(local_reads.WAYS, "R = 2", {"local": True})
    cell = local_reads.measure(local_reads.LocalSetting(False, 200, 1))
    assert not local_reads.is_met(cell, "R = 2")


# -- full membership ----------------------------------------------------------------------------------


def test_full_membership_needs_one_call_and_the_bytes_of_the_law() -> None:
    lists, none, costs = (
        membership.measure(membership.MembershipSetting(part, 12, grows, 1, session_min, has_lists, seconds, lookups))
        for part, grows, session_min, has_lists, seconds, lookups in (
            ("calls", True, None, True, 20.0, 60),
            ("calls", True, None, False, 20.0, 60),
            ("bytes", False, 2.0, True, 60.0, 0),
        )
    )  # fmt: skip
    line = membership.MembershipLine(lists, none)
    full, classic, warm = map(line.mean, ("full", "classic", "fast, warm"))
    assert full is not None
    assert classic is not None
    assert warm is not None
    assert max(full, warm) <= 1 < classic
    assert membership.is_met(line) is None
    assert membership.is_met(membership.MembershipLine(replace(lists, wrong=1), none)) is False
    large = lists.setting._replace(nodes=1000)
    assert membership.is_met(membership.MembershipLine(replace(lists, setting=large), none))
    assert not membership.is_met(membership.MembershipLine(replace(lists, setting=large, calls={"full": (1, 2)}), none))
    assert costs.changes > 0
    assert membership.has_bytes_of_law(replace(costs, setting=costs.setting._replace(nodes=1000)))
    twice = {kind: 2 * size for kind, size in costs.bytes_s.items()}
    assert membership.has_bytes_of_law(replace(costs, bytes_s=twice)) is False


def test_entry_spreads_as_the_model_says_unless_nodes_never_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    settings = [membership.MembershipSetting(part, 12, False, 1) for part in ("model", "rounds")]
    model, real = map(membership.measure, settings)
    (row,) = membership.tables(Result("quick", 1, (model, real)))[2].rows
    assert row.passed
    monkeypatch.setattr("chord.membership.gossip.PARTNERS", 9)
    (row,) = membership.tables(Result("quick", 1, (model, membership.measure(settings[1]))))[2].rows
    assert row.passed is False


# -- the bars, at length ------------------------------------------------------------------------------


@pytest.mark.thorough
def test_table_two_of_the_paper_is_reproduced() -> None:
    """Every row is within two standard errors of its bar: 4 rings of 1,000 nodes, 500 lookups each, per share."""
    result = failures.experiment().run("standard", seed=1)
    (table,) = failures.tables(result)
    assert table.passed, [row for row in table.rows if not row.passed]
    assert sum(cell.wrong + cell.unanswered for cell in result.cells if not cell.setting.is_model) == 0

"""Lookups while nodes join and leave (ToN 2003, Table III).

About a thousand nodes have successor lists of 20. Joins, voluntary leaves and lookups are Poisson processes. Each node
stabilizes every U[15, 45] s and refreshes one finger as often. Packets take an exponential time of 50 ms on average.
After 500 ms without an answer, a node counts as gone. Timeouts happen although no node fails, because a finger may
point to a node that has left.

A lookup fails if it names no node, or another one than the key's successor at that moment. That successor is read from
the state of the live nodes (`rightful_owner`) and not asked of any node. It may change while the answer is on its way.
The published simulator looked at one instant. Here, the successor at the start of the lookup is accepted as well, and
the lookups that needed this are counted.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import trio

from chord import testing
from chord.config import Timing
from chord.errors import ChordError
from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table
from chord.lab.harness.plot import MEASURED, PUBLISHED, dress, headline
from chord.lab.harness.statistics import Summary, per_10_000, poisson_upper, summarize
from chord.lab.papers.world import draw_point, members, placed_ring, rightful_owner
from chord.sim.cluster import Cluster
from chord.sim.messages import MessageNetwork
from chord.testing.network import exponential
from chord.wire.messages import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUCCESSORS = 20
PACKET_S = 0.05
PATIENCE_S = 30.0

TIMING = Timing(
    stabilize_s=30.0,
    finger_s=30.0,
    period_growth_max=1.0,
    timeout_floor_s=0.5,
    timeout_stranger_s=0.5,
    dead_misses=1,
)
"""Timing of the paper, with fixed periods: a node that does not answer within 500 ms is gone."""


class PublishedChurn(NamedTuple):
    """A column of the published table: the results at one rate of churn.

    Attributes:
        path: mean path length in hops.
        timeouts: mean number of timeouts per lookup.
        failures: number of failed lookups per 10,000.
    """

    path: float
    timeouts: float
    failures: int  # of 10,000


PUBLISHED_BY_RATE = {
    0.05: PublishedChurn(3.90, 0.05, 0),
    0.10: PublishedChurn(3.83, 0.11, 0),
    0.15: PublishedChurn(3.84, 0.16, 2),
    0.20: PublishedChurn(3.81, 0.23, 5),
    0.25: PublishedChurn(3.83, 0.30, 6),
    0.30: PublishedChurn(3.91, 0.34, 8),
    0.35: PublishedChurn(3.94, 0.42, 16),
    0.40: PublishedChurn(4.06, 0.46, 15),
}


class ChurnSetting(NamedTuple):
    """One rate of churn, and the ring and lookups that it is measured with.

    Attributes:
        rate: joins per second, and also leaves per second, in a ring of 1000 nodes. A smaller ring has fewer in
            proportion.
        nodes: number of nodes at the beginning.
        lookups: number of lookups.
        lookups_per_s: mean number of lookups that begin per second.
        warm_up_s: seconds of churn before the first lookup.
        seed: the source of all random choices.
    """

    rate: float
    nodes: int
    lookups: int
    lookups_per_s: float
    warm_up_s: float
    seed: int

    def __str__(self) -> str:
        return f"{self.rate:g} per second, {self.lookups:,} lookups"


@dataclass(frozen=True)
class ChurnCell:
    """The outcomes of the lookups at one rate of churn.

    Attributes:
        paths: path length of each answered lookup, in hops.
        timeouts: number of timeouts of each answered lookup.
        refusals: number of contacts with nodes that answered only that they have left.
        wrong: lookups answered with a node that was the key's successor neither when the lookup began nor when it
            ended.
        unanswered: lookups with an error, or without an answer within 30 seconds.
        overtaken: lookups with an answer that was right when the lookup began, but no longer when it ended.
        abandoned: lookups from a node that left the ring meanwhile; they do not count.
        joins: nodes that began to join.
        leaves: nodes that began to leave.
        population: nodes in the ring at the end.
    """

    setting: ChurnSetting
    paths: tuple[int, ...]
    timeouts: tuple[int, ...]
    refusals: int
    wrong: int
    unanswered: int
    overtaken: int
    abandoned: int
    joins: int
    leaves: int
    population: int

    @property
    def published(self) -> PublishedChurn:
        """The paper's values at the same rate of churn."""
        return PUBLISHED_BY_RATE[self.setting.rate]

    @property
    def path(self) -> Summary:
        """Mean, standard error and percentiles of the path lengths."""
        return summarize([self.paths])

    @property
    def timeout(self) -> Summary:
        """Mean, standard error and percentiles of the timeouts per lookup."""
        return summarize([self.timeouts])

    @property
    def failures(self) -> int:
        """Number of lookups that failed: wrong or unanswered."""
        return self.wrong + self.unanswered

    @property
    def lookups(self) -> int:
        """Number of lookups that count: all but the abandoned ones."""
        return len(self.paths) + self.unanswered

    @property
    def failures_per_10_000(self) -> float:
        """Number of lookups that failed, per 10,000."""
        return per_10_000(self.failures, self.lookups)


def plan(scale: Scale, seed: int) -> list[ChurnSetting]:
    """Return a setting for each published rate of joins and leaves.

    At quick scale there are fewer rates, on a smaller ring with the same churn per node.
    """
    if scale == "quick":
        return [ChurnSetting(rate, 250, 400, 2.0, 60.0, seed) for rate in (0.05, 0.20, 0.40)]
    lookups, per_s, warm_up_s = (1_500, 4.0, 300.0) if scale == "standard" else (10_000, 1.0, 900.0)
    return [ChurnSetting(rate, 1000, lookups, per_s, warm_up_s, seed) for rate in PUBLISHED_BY_RATE]


def measure(setting: ChurnSetting) -> ChurnCell:
    """Measure random lookups while nodes join and leave."""
    seed = f"churn/{setting.seed}/{setting.rate}"
    churn = _Churn(setting, random.Random(seed))

    async def main() -> None:
        network = MessageNetwork(seed, delay=exponential(PACKET_S))
        async with placed_ring(setting.nodes, SUCCESSORS, TIMING, seed, network) as ring:
            await churn.run(ring)

    testing.run(main, seed=seed)
    return churn.cell()


class _Churn:
    """The joins, leaves and lookups on one ring, and the counts of their outcomes.

    All three are Poisson processes.
    """

    def __init__(self, setting: ChurnSetting, rng: random.Random) -> None:
        self._setting = setting
        self._rng = rng
        self._traces: list[Trace] = []
        self._counts = Counter(
            wrong=0, unanswered=0, overtaken=0, abandoned=0, joins=0, leaves=0, population=0
        )  # as in `ChurnCell`

    async def run(self, ring: Cluster) -> None:
        setting = self._setting
        rate = setting.rate * setting.nodes / 1000

        async def join() -> None:
            self._counts["joins"] += 1
            await ring.start()

        async def leave() -> None:
            self._counts["leaves"] += 1
            await self._rng.choice(members(ring.nodes)).leave()

        async with trio.open_nursery() as churning:
            churning.start_soon(self._poisson, rate, join)
            churning.start_soon(self._poisson, rate, leave)
            await trio.sleep(setting.warm_up_s)
            async with trio.open_nursery() as looking:
                for _ in range(setting.lookups):
                    await trio.sleep(self._rng.expovariate(setting.lookups_per_s))
                    looking.start_soon(self._look_up, ring)
            self._counts["population"] = len(members(ring.nodes))
            churning.cancel_scope.cancel()

    async def _poisson(self, rate: float, happen: Callable[[], Awaitable[None]]) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep(self._rng.expovariate(rate))
                nursery.start_soon(happen)

    async def _look_up(self, ring: Cluster) -> None:
        node, key = self._rng.choice(members(ring.nodes)), draw_point(self._rng)
        before, trace = rightful_owner(ring, key), None
        try:
            with trio.move_on_after(PATIENCE_S):
                trace = await node._lookups.find(key, node.contact)
        except ChordError:
            pass  # an error counts as no answer
        after = rightful_owner(ring, key)
        if node.state != "ready":
            self._counts["abandoned"] += 1
        elif trace is None:
            self._counts["unanswered"] += 1
        else:
            self._traces.append(trace)
            self._counts["wrong"] += trace.owner.id not in (before, after)
            self._counts["overtaken"] += trace.owner.id == before != after

    def cell(self) -> ChurnCell:
        hops = [hop for trace in self._traces for hop in trace.hops]
        return ChurnCell(
            self._setting,
            paths=tuple(trace.path_length for trace in self._traces),
            timeouts=tuple(trace.timeouts for trace in self._traces),
            refusals=sum(hop.outcome != "ok" and not hop.is_dead for hop in hops),
            **self._counts,
        )


# -- what comes of it ---------------------------------------------------------------------------------


FIELDS: tuple[Field[ChurnCell], ...] = (
    Field("joins, leaves /s", ".2f", lambda cell: cell.setting.rate),
    Field("mean path", ".2f", lambda cell: cell.path.mean),
    Field("± s.e.", ".2f", lambda cell: cell.path.error),
    Field("published", ".2f", lambda cell: cell.published.path),
    Field("mean timeouts", ".3f", lambda cell: cell.timeout.mean),
    Field("± s.e.", ".3f", lambda cell: cell.timeout.error),
    Field("published", ".2f", lambda cell: cell.published.timeouts),
    Field("has left", ".3f", lambda cell: cell.refusals / max(1, len(cell.paths))),
    Field("failures /10,000", ".1f", lambda cell: cell.failures_per_10_000),
    Field("95 % below", ".1f", lambda cell: per_10_000(1, cell.lookups) * poisson_upper(cell.failures)),
    Field("published", "", lambda cell: cell.published.failures),
    Field("wrong", "", lambda cell: cell.wrong),
    Field("unanswered", "", lambda cell: cell.unanswered),
    Field("overtaken", "", lambda cell: cell.overtaken),
    Field("lookups", ",", lambda cell: cell.lookups),
    Field("nodes", "", lambda cell: cell.population),
)


def is_met(cell: ChurnCell) -> bool:
    """Whether lookups failed at most as often as in the published run."""
    return cell.failures_per_10_000 <= cell.published.failures


def tables(result: Result[ChurnCell]) -> list[Table]:
    """Return a table of the measured values beside those of the paper's Table III."""
    notes: tuple[str, ...] = (
        "'Has left': contacts with nodes that still answer that they have left; in the paper these time out as well.",
        "'95 % below': with 95 % confidence the true failure rate is below this (rule of three without failures).",
        "'Overtaken': right when the lookup began, replaced before the answer was back; not a failure.",
    )
    if any(cell.setting.nodes != 1000 for cell in result.cells):
        notes += ("A smaller ring, with as many joins and leaves per node. The published path is for 1,000 nodes.",)
    bar = "failures per 10,000 at or below the published figure"
    return [Table.of("churn", "Lookups while nodes join and leave", FIELDS, result.cells, is_met, bar, notes)]


def draw(result: Result[ChurnCell], figure: Figure) -> None:
    """Plot path length, timeouts and failures against the rate of churn."""
    cells = result.cells
    rates = [cell.setting.rate for cell in cells]
    published = [cell.published for cell in cells]
    failed, lookups = sum(cell.failures for cell in cells), sum(cell.lookups for cell in cells)
    headline(
        figure,
        f"{failed or 'None'} of {lookups:,} lookups failed at up to {rates[-1]:g} joins and leaves per second; "
        f"in the published run up to {max(p.failures for p in published)} of 10,000 did",
    )
    left, middle, right = figure.subplots(1, 3)
    x = "joins and leaves per second, each"
    left.errorbar(rates, [c.path.mean for c in cells], yerr=[2 * c.path.error for c in cells], **MEASURED)
    left.plot(rates, [p.path for p in published], **PUBLISHED)
    dress(left, x, "mean path length (hops)")
    middle.errorbar(rates, [c.timeout.mean for c in cells], yerr=[2 * c.timeout.error for c in cells], **MEASURED)
    middle.plot(rates, [p.timeouts for p in published], **PUBLISHED)
    dress(middle, x, "mean timeouts of a lookup")
    right.plot(rates, [cell.failures_per_10_000 for cell in cells], **MEASURED)
    right.plot(rates, [p.failures for p in published], **PUBLISHED)
    dress(right, x, "failed lookups per 10,000")


EXPERIMENT = Experiment(
    name="churn",
    title="Lookups while nodes join and leave",
    source="Stoica et al. 2003 (ToN), Table III: about 1,000 nodes, r = 20, stabilization every 30 s on average",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"churn": draw},
    command="sim paper churn",
)

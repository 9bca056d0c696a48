"""Churn by crashes, and its cost in maintenance traffic.

Every node lives for an exponential time with a median of 1.4 minutes to 3 hours. It then crashes silently, and a new
node joins at once. Random members look up random keys like clients: route `fast`, with the client's default deadline of
five seconds.

A lookup succeeds if it names the live node that owns the key. A lookup that names another node is *wrong*, which must
never happen. A lookup without an answer in time is an error, which is allowed.

Bytes are those of the frames on the wire, for all messages of all nodes. The overhead of TCP and IP is not counted. The
number of messages is reported too, so that it can be estimated.

Source: Rhea et al. 2004, "Handling Churn in a DHT".
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import trio

from chord import testing
from chord.client.session import TIMEOUT_S
from chord.config import RingConstants
from chord.errors import ChordError
from chord.ids import Circle, Point
from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, headline
from chord.lab.harness.statistics import percentile, poisson_upper
from chord.lab.papers.world import draw_point, fixed_periods, members, placed_ring, rightful_owner
from chord.sim.cluster import Cluster
from chord.sim.messages import MessageNetwork
from chord.wire.codec import Codec
from chord.wire.messages import Reply, Request

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SUCCESSORS = 16  # the manual's advice for more than about 250 nodes
WEIGHED_SHARE = 1 / 8  # fraction of messages that are encoded: a sufficient sample that does not slow the run
BUDGET_MS = 1000
WARM_UP_ROUNDS = 20

MEDIANS_MIN = (180.0, 60.0, 47.0, 10.0, 3.0, 1.4)

SUCCESS_BY_MEDIAN = {180.0: 0.999, 60.0: 0.999, 47.0: 0.999, 10.0: 0.99, 3.0: None, 1.4: 0.95}
"""Promised success rate, by the median session in minutes; None without a promise."""

WAN_MIN = 10.0  # with shorter sessions, rounds of 15 s cannot keep up

PUBLISHED_BY_MEDIAN = {47.0: "≥ 99.9%"}

BAMBOO_BYTES_S, MIT_CHORD_BYTES_S = 750, 2400  # published upper bounds per node, at 1,000 nodes


class SessionsSetting(NamedTuple):
    """A median session time (time from join to crash), and a preset of timing.

    Attributes:
        preset: the name of the preset of timing.
        median_min: the median session time in minutes.
        nodes: number of nodes.
        seconds: mean time from the end of the warm-up to the start of the last lookup, in virtual seconds.
        lookups: number of lookups in this time.
        seed: the source of all random choices.
    """

    preset: str
    median_min: float
    nodes: int
    seconds: float
    lookups: int
    seed: int

    def __str__(self) -> str:
        return f"median {self.median_min:g} min, {self.preset}, {self.nodes:,} nodes"


@dataclass(frozen=True)
class SessionsCell:
    """The outcomes of the lookups, and the traffic of the ring.

    Attributes:
        took_ms: latencies of the successful lookups in milliseconds, ascending.
        wrong: lookups that named a node that owned the key neither when the lookup began nor when it ended.
        errors: lookups without an answer in time.
        deaths: nodes that crashed while lookups were made.
        bytes_s: mean bytes per second that a node sent, lookups included.
        messages_s: mean messages per second that a node sent, lookups included.
    """

    setting: SessionsSetting
    took_ms: tuple[float, ...]
    wrong: int
    errors: int
    deaths: int
    bytes_s: float
    messages_s: float

    @property
    def lookups(self) -> int:
        """Number of lookups that count: those from nodes that stayed alive."""
        return len(self.took_ms) + self.wrong + self.errors

    @property
    def promised(self) -> float | None:
        """The success rate that this project promises; None without a promise.

        There are promises only under preset `lan`.
        """
        return SUCCESS_BY_MEDIAN[self.setting.median_min] if self.setting.preset == "lan" else None

    @property
    def success(self) -> float:
        """Share of the counted lookups that named the key's owner in time."""
        return len(self.took_ms) / max(1, self.lookups)


def plan(scale: Scale, seed: int) -> list[SessionsSetting]:
    """Return a setting for each median session time under each preset.

    Rings under `wan` run for longer.
    """
    if scale == "quick":
        return [SessionsSetting("lan", median, 64, 60.0, 600, seed) for median in (60.0, 10.0, 1.4)]
    nodes, seconds, lookups = (250, 120.0, 3_000) if scale == "standard" else (1000, 300.0, 10_000)
    wan = [SessionsSetting("wan", median, nodes, 3 * seconds, lookups, seed) for median in MEDIANS_MIN]
    return wan + [SessionsSetting("lan", median, nodes, seconds, lookups, seed) for median in MEDIANS_MIN]


class Weigher:
    """A counter of the bytes that messages would take as frames on the wire.

    Only a random sample of messages is encoded. A regular sample would be biased, because calls and replies alternate.

    Attributes:
        messages: number of messages so far.
        bytes: estimated bytes of all messages so far.
    """

    def __init__(self, circle: Circle) -> None:
        self._codec = Codec(circle)
        self._rng = random.Random("weigher")
        self.messages = 0
        self.bytes = 0

    def __call__(self, what: Request | Reply | ChordError) -> int:
        """Count a message; return the bytes that it adds to the estimate.

        A message outside the sample adds 0. A sampled one stands for the others, and adds more than its size.
        """
        self.messages += 1
        if self._rng.random() >= WEIGHED_SHARE:
            return 0
        weight = round(len(self._frame(what)) / WEIGHED_SHARE)
        self.bytes += weight
        return weight

    def _frame(self, what: Request | Reply | ChordError) -> bytes:
        call_id = self.messages
        if isinstance(what, Request):
            return self._codec.encode_call(call_id, Point(0), BUDGET_MS, what, call_id)
        if isinstance(what, Reply):
            return self._codec.encode_reply(call_id, what)
        return self._codec.encode_error(call_id, what)


def measure(setting: SessionsSetting) -> SessionsCell:
    """Measure random lookups, and the traffic, while nodes crash and join."""
    seed = f"sessions/{setting.seed}/{setting.preset}/{setting.median_min}"
    successors = min(SUCCESSORS, setting.nodes // 4)
    weigher = Weigher(RingConstants().circle)
    churn = _Sessions(setting, random.Random(seed), weigher)

    async def main() -> None:
        network = MessageNetwork(seed, weigh=weigher)
        async with placed_ring(setting.nodes, successors, fixed_periods(setting.preset), seed, network) as ring:
            await churn.run(ring)

    testing.run(main, seed=seed)
    return churn.cell()


class _Sessions:
    """The crashes, joins and lookups on one ring, and the counts of their outcomes."""

    def __init__(self, setting: SessionsSetting, rng: random.Random, weigher: Weigher) -> None:
        self._setting = setting
        self._rng = rng
        self._weigher = weigher
        self._took_ms: list[float] = []
        self._wrong = self._errors = self._deaths = 0
        self._seconds = 0.0

    async def run(self, ring: Cluster) -> None:
        setting = self._setting
        warm_up_s = WARM_UP_ROUNDS * fixed_periods(setting.preset).stabilize_s
        lookups_per_s = setting.lookups / setting.seconds
        async with trio.open_nursery() as churning:
            churning.start_soon(self._let_die, ring)
            await trio.sleep(warm_up_s)
            began = trio.current_time()
            self._deaths = self._weigher.messages = self._weigher.bytes = 0
            async with trio.open_nursery() as looking:
                for _ in range(setting.lookups):
                    await trio.sleep(self._rng.expovariate(lookups_per_s))
                    looking.start_soon(self._look_up, ring)
            self._seconds = trio.current_time() - began
            churning.cancel_scope.cancel()

    async def _let_die(self, ring: Cluster) -> None:
        """Crash random nodes forever, and start a new node for each.

        With exponential lifetimes, every live node is equally likely to be the next to crash, regardless of its age.
        """
        deaths_per_s = self._setting.nodes * math.log(2) / (60 * self._setting.median_min)
        while True:
            await trio.sleep(self._rng.expovariate(deaths_per_s))
            self._deaths += 1
            await ring.kill(self._rng.choice(ring.nodes), silently=True)
            await ring.start()

    async def _look_up(self, ring: Cluster) -> None:
        node, key = self._rng.choice(members(ring.nodes)), draw_point(self._rng)
        before, began, trace = rightful_owner(ring, key), trio.current_time(), None
        try:
            with trio.move_on_after(TIMEOUT_S):
                trace = await node._lookups.find(key, node.contact, route="fast", is_remembered=False)
        except ChordError:
            pass  # an error is not a wrong answer
        if node not in ring.nodes:
            return  # the asking node crashed, so no client would get the answer
        if trace is None:
            self._errors += 1
        elif trace.owner.id in (before, rightful_owner(ring, key)):
            self._took_ms.append(1000 * (trio.current_time() - began))
        else:
            self._wrong += 1

    def cell(self) -> SessionsCell:
        node_seconds = self._setting.nodes * self._seconds
        return SessionsCell(
            self._setting,
            tuple(sorted(self._took_ms)),
            self._wrong,
            self._errors,
            self._deaths,
            self._weigher.bytes / node_seconds,
            self._weigher.messages / node_seconds,
        )


# -- what comes of it ---------------------------------------------------------------------------------


FIELDS: tuple[Field[SessionsCell], ...] = (
    Field("preset", "", lambda cell: cell.setting.preset),
    Field("median session, min", "g", lambda cell: cell.setting.median_min),
    Field("success", ".3%", lambda cell: cell.success),
    Field("promised", ".1%", lambda cell: cell.promised),
    Field("published", "", lambda cell: PUBLISHED_BY_MEDIAN.get(cell.setting.median_min)),
    Field("wrong", "", lambda cell: cell.wrong),
    Field("errors", "", lambda cell: cell.errors),
    Field("errors: 95 % below", ".2%", lambda cell: poisson_upper(cell.errors) / max(1, cell.lookups)),
    Field("median ms", ".1f", lambda cell: percentile(cell.took_ms, 0.5) if cell.took_ms else None),
    Field("99th ms", ".0f", lambda cell: percentile(cell.took_ms, 0.99) if cell.took_ms else None),
    Field("bytes/s per node", ",.0f", lambda cell: cell.bytes_s),
    Field("Bamboo below", "", lambda cell: BAMBOO_BYTES_S),
    Field("MIT Chord below", ",", lambda cell: MIT_CHORD_BYTES_S),
    Field("messages/s per node", ".1f", lambda cell: cell.messages_s),
    Field("deaths", ",", lambda cell: cell.deaths),
    Field("lookups", ",", lambda cell: cell.lookups),
    Field("nodes", ",", lambda cell: cell.setting.nodes),
)


def is_met(cell: SessionsCell) -> bool | None:
    """Whether no lookup was wrong and the success rate is at least the promised one.

    Without a promise, any rate will do. The result is None under presets other than `lan` if the median session is
    shorter than ten minutes.
    """
    if cell.setting.preset != "lan" and cell.setting.median_min < WAN_MIN:
        return None
    return cell.wrong == 0 and cell.success >= (cell.promised or 0)


def tables(result: Result[SessionsCell]) -> list[Table]:
    """Return a table of the success of lookups and the traffic, by median session time."""
    notes = (
        "Published are the bytes of maintenance at 1,000 nodes, and the consistency of both Bamboo and MIT Chord.",
        "The promise is for preset lan. Under wan, rounds take 15 s. An arc then has no owner for half a minute after "
        "a crash, longer than a client waits. The shortest sessions end before anything is repaired.",
    )
    bar = f"preset lan: success as promised; no wrong answer (under wan only from {WAN_MIN:g} minutes on)"
    return [Table.of("sessions", "Churn by crashes", FIELDS, result.cells, is_met, bar, notes)]


def draw(result: Result[SessionsCell], figure: Figure) -> None:
    """Plot the success of lookups and the traffic against the median session time."""
    wrong, lookups = sum(cell.wrong for cell in result.cells), sum(cell.lookups for cell in result.cells)
    lan = [cell for cell in result.cells if cell.setting.preset == "lan"]
    worst = min(lan, key=lambda cell: cell.setting.median_min)
    headline(
        figure,
        f"{wrong or 'None'} of {lookups:,} answers was wrong; with sessions of {worst.setting.median_min:g} minutes "
        f"{worst.success:.1%} of the lookups succeed (preset lan)",
    )
    left, right = figure.subplots(1, 2)
    for preset, colour, marker in (("lan", BLUE, "o"), ("wan", GREEN, "s")):
        cells = sorted((c for c in result.cells if c.setting.preset == preset), key=lambda c: c.setting.median_min)
        if cells:
            x = [cell.setting.median_min for cell in cells]
            success = [100 * cell.success for cell in cells]
            look: dict[str, Any] = {"color": colour, "marker": marker, "label": f"measured, preset {preset}"}
            left.plot(x, success, **look)
            right.plot(x, [cell.bytes_s for cell in cells], **look)
    promised = {median: share for median, share in SUCCESS_BY_MEDIAN.items() if share is not None}
    left.plot(list(promised), [100 * s for s in promised.values()], "D", color=ORANGE, label="promised, preset lan")
    right.axhline(MIT_CHORD_BYTES_S, color=PURPLE, linestyle="--", label="MIT Chord, published: below")
    right.axhline(BAMBOO_BYTES_S, color=GREY, linestyle=":", label="Bamboo, published: below")
    for axes, y in ((left, "lookups that succeed (%)"), (right, "bytes/s sent per node")):
        axes.set_xscale("log")
        ticks = [1.4, 3, 10, 60, 180]
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        dress(axes, "median session (minutes)", y, is_from_zero=axes is right)


EXPERIMENT = Experiment(
    name="sessions",
    title="Churn by crashes",
    source="Rhea et al. 2004 (Bamboo): 1,000 nodes, median sessions from 1.4 minutes to 3 hours",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"sessions": draw},
    command="sim paper sessions",
)

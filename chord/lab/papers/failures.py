"""Simultaneous failures: a share of all nodes dies at once (ToN 2003, Table II).

A thousand nodes have successor lists of 20. The nodes die silently, and nothing is repaired. The published run stops
stabilization before the failures and leaves dead fingers in the tables. There, "the failed nodes are detected only when
they fail to respond during the lookup". Lookups share no knowledge.

Path length counts the live nodes asked from the start to the key's predecessor. Timeouts are "the number of failed
nodes encountered by the lookup operation". A lookup is right if it names the first live node at or after the key.

The real node would not confirm an owner here, because without repair no node takes over an arc. The lookup therefore
delivers a `Ping` to the key's successor, over the same route and the same list.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import trio

from chord import testing
from chord.ids import Point
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Summary, Table, is_near, summarize
from chord.lab.harness.plot import GREEN, MEASURED, PUBLISHED, dress, headline
from chord.lab.harness.published import FAILURES, FAILURES_LIST, FAILURES_NODES, PATH_WITHIN, TIMEOUTS_WITHIN
from chord.lab.papers.world import again, draw_point, still_ring, successor
from chord.node import Node
from chord.wire.messages import Ping, Pong

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PATIENCE_S = 600.0  # reached only if the whole list of a key is dead: probability 0.5 to the power of 20

ON_ROUTE = {"color": GREEN, "marker": "^", "linestyle": ":", "label": "measured, without the last step"}


class Setting(NamedTuple):
    """One ring, and the share of its nodes that fails."""

    share: float
    ring: int
    nodes: int
    lookups: int
    seed: int

    def __str__(self) -> str:
        return f"{self.share:.0%} of {self.nodes:,} nodes, ring {self.ring}"


@dataclass(frozen=True)
class Cell:
    """The cost and the answers of the lookups on one ring.

    Attributes:
        setting: the ring.
        paths: path lengths.
        timeouts: contacts with dead nodes, including those at the last step, from predecessor to owner.
        last_timeouts: contacts with dead nodes at the last step.
        wrong: lookups that named another owner than the live successor.
        unanswered: lookups that named no owner.
    """

    setting: Setting
    paths: tuple[int, ...]
    timeouts: tuple[int, ...]
    last_timeouts: tuple[int, ...]
    wrong: int
    unanswered: int


def plan(scale: Scale, seed: int) -> list[Setting]:
    """Return several rings for each share.

    Which nodes of a ring happen to fail moves its mean timeouts by several percent.
    """
    rings, lookups = {"quick": (1, 200), "standard": (4, 500), "full": (40, 250)}[scale]
    return [
        Setting(share, ring, nodes=FAILURES_NODES, lookups=lookups, seed=seed)
        for share in FAILURES
        for ring in range(rings)
    ]


def measure(setting: Setting) -> Cell:
    """Let the share fail, and look up random keys from random survivors."""
    seed = f"failures/{setting.seed}/{setting.share}/{setting.ring}"
    rng = random.Random(seed)
    found: list[tuple[int, int, int, bool]] = []
    unanswered = 0

    async def main() -> None:
        nonlocal unanswered
        async with still_ring(setting.nodes, FAILURES_LIST, seed) as ring:
            for node in rng.sample(ring.nodes, round(setting.share * setting.nodes)):
                await ring.kill(node, is_silent=True)
            living = list(ring.vnodes())
            for _ in range(setting.lookups):
                key, start = draw_point(rng), rng.choice(ring.nodes)
                with trio.move_on_after(PATIENCE_S) as scope:
                    path_length, timeouts, last, owner = await _look_up(start, key)
                    found.append((path_length, timeouts, last, owner == successor(living, key)))
                unanswered += scope.cancelled_caught

    testing.run(main, seed=seed)
    return Cell(
        setting,
        paths=tuple(each[0] for each in found),
        timeouts=tuple(each[1] for each in found),
        last_timeouts=tuple(each[2] for each in found),
        wrong=sum(not each[3] for each in found),
        unanswered=unanswered,
    )


async def _look_up(start: Node, key: int) -> tuple[int, int, int, int]:
    """Return path length, timeouts, those at the last step, and the reached node's id."""
    route = start.lookups.deliver(Ping(), Pong, Point(key), start.contact, "iterative", "classic")
    _, path, via, _ = await route
    ways = [candidate.via for candidate in path.candidates]
    last = ways.index(via)
    return path.path_length, path.timeouts, last, path.candidates[last].contact.id


# -- what comes of it ---------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The results of all rings with the same share of failures."""

    share: float
    path: Summary
    timeouts: Summary
    route_timeouts: Summary
    wrong: int
    unanswered: int
    lookups: int


def outcomes(cells: Sequence[Cell]) -> list[Outcome]:
    """Return the results by share."""
    found = []
    for share in sorted({cell.setting.share for cell in cells}):
        rings = [cell for cell in cells if cell.setting.share == share]
        on_route = [[t - last for t, last in zip(c.timeouts, c.last_timeouts, strict=True)] for c in rings]
        outcome = Outcome(
            share,
            path=summarize([cell.paths for cell in rings]),
            timeouts=summarize([cell.timeouts for cell in rings]),
            route_timeouts=summarize(on_route),
            wrong=sum(cell.wrong for cell in rings),
            unanswered=sum(cell.unanswered for cell in rings),
            lookups=sum(cell.setting.lookups for cell in rings),
        )
        found.append(outcome)
    return found


def tables(result: Result[Cell]) -> list[Table]:
    """Return the measured Table II beside the published one."""
    columns = (
        Column("failed", ".0%"),
        Column("mean path", ".2f"),
        Column("± s.e.", ".2f"),
        Column("published", ".2f"),
        Column("differs by", "+.1%"),
        Column("mean timeouts", ".2f"),
        Column("± s.e.", ".2f"),
        Column("published", ".2f"),
        Column("differs by", "+.1%"),
        Column("on the route", ".2f"),
        Column("99th path", ".0f"),
        Column("wrong owners"),
        Column("unanswered"),
        Column("lookups", ","),
    )
    rows = tuple(_row(outcome, result.scale) for outcome in outcomes(result.cells))
    notes = (
        "Timeouts are all contacts with dead nodes; 'on the route' leaves out the last step, from the key's "
        "predecessor along its list to the owner.",
        "The standard error is taken between rings, because lookups on one ring are correlated.",
    )
    bar = "mean path within 5 %, mean timeouts within 20 % of the published, no wrong owner, every lookup answered"
    return [Table("failures", "Simultaneous failures", columns, rows, bar, notes)]


def _row(outcome: Outcome, scale: Scale) -> Row:
    published = FAILURES[outcome.share]
    path, timeouts = outcome.path, outcome.timeouts
    passed = (
        is_near(path, published.path, PATH_WITHIN, scale)
        and is_near(timeouts, published.timeouts, TIMEOUTS_WITHIN, scale)
        and outcome.wrong == outcome.unanswered == 0
    )
    values = (
        outcome.share,
        path.mean,
        path.error,
        published.path,
        path.mean / published.path - 1,
        timeouts.mean,
        timeouts.error,
        published.timeouts,
        timeouts.mean / published.timeouts - 1 if published.timeouts else None,
        outcome.route_timeouts.mean,
        path.high,
        outcome.wrong,
        outcome.unanswered,
        outcome.lookups,
    )
    return Row(values, passed)


def draw(result: Result[Cell], figure: Figure) -> None:
    """Draw path length and timeouts against the share that failed."""
    found = outcomes(result.cells)
    shares = [outcome.share for outcome in found]
    published = [FAILURES[share] for share in shares]
    lost, lookups = sum(o.wrong + o.unanswered for o in found), sum(o.lookups for o in found)
    headline(
        figure,
        f"With {found[-1].share:.0%} of the nodes dead at once a lookup takes "
        f"{found[-1].path.mean - found[0].path.mean:.1f} hops more; "
        + (f"{lost} of {lookups:,} lookups miss the owner" if lost else f"all {lookups:,} lookups find the owner"),
    )
    left, right = figure.subplots(1, 2)
    left.errorbar(shares, [o.path.mean for o in found], yerr=[2 * o.path.error for o in found], **MEASURED)
    left.plot(shares, [p.path for p in published], **PUBLISHED)
    dress(left, "share of nodes that failed", "mean path length (hops)")
    right.errorbar(shares, [o.timeouts.mean for o in found], yerr=[2 * o.timeouts.error for o in found], **MEASURED)
    right.plot(shares, [o.route_timeouts.mean for o in found], **ON_ROUTE)
    right.plot(shares, [p.timeouts for p in published], **PUBLISHED)
    dress(right, "share of nodes that failed", "mean timeouts of a lookup")


EXPERIMENT = Experiment(
    name="failures",
    title="Simultaneous failures",
    source="Stoica et al. 2003 (ToN), Table II: 1,000 nodes, r = 20, no stabilization after the failures",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"failures": draw},
    again=again("failures"),
)

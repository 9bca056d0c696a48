"""Path length of lookups against the number of nodes.

The rings have 2^3 to 2^12 nodes and do not change. Random nodes look up random keys. With fingers only (a list of one),
the mean is ½ log2 N - 0.13. Half of the bits of the distance are ones, and the last hops fall away because the circle
is sparse. A list of r replaces the last ½ log2 r hops, and one hop leads from it to the key's predecessor. The mean is
then ½ log2 N - ½ log2 r + 1.

Source: Stoica et al. 2001 (SIGCOMM), Fig. 10; 2003 (ToN), sections IV-D and VI-D.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chord import testing
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Summary, Table, summarize
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, PURPLE, dress, headline
from chord.lab.papers.world import again, draw_point, still_ring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LISTS = (1, 8, 20)
COLOURS = {1: BLUE, 8: GREEN, 20: PURPLE}
NODES_PER_ENTRY_MIN = 50  # the formula assumes that the list is a small part of the ring
WITHIN = 0.05

PUBLISHED_MODE, PUBLISHED_SHARE = 6, 0.24  # of the distribution at 2^12 nodes, fingers only


class Setting(NamedTuple):
    """Rings of one kind; the smaller the rings, the more of them share the lookups."""

    nodes: int
    successors: int
    rings: int
    lookups: int
    seed: int

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, lists of {self.successors}"


@dataclass(frozen=True)
class Cell:
    """The path lengths of the lookups.

    Attributes:
        setting: the rings and lookups.
        counts: number of lookups with each path length, by length.
    """

    setting: Setting
    counts: tuple[int, ...]

    @property
    def summary(self) -> Summary:
        """The path lengths in four numbers."""
        return summarize([[length for length, count in enumerate(self.counts) for _ in range(count)]])

    @property
    def mode(self) -> int:
        """The most frequent path length."""
        return self.counts.index(max(self.counts))

    @property
    def formula(self) -> float | None:
        """The mean path length in the papers; None if their formula does not apply."""
        nodes, r = self.setting.nodes, self.setting.successors
        if nodes < NODES_PER_ENTRY_MIN * r:
            return None
        return math.log2(nodes) / 2 - 0.13 if r == 1 else math.log2(nodes) / 2 - math.log2(r) / 2 + 1


def plan(scale: Scale, seed: int) -> list[Setting]:
    """Return rings of every power of two, with each length of list."""
    powers = {"quick": (3, 6, 8, 10), "standard": tuple(range(3, 13)), "full": tuple(range(3, 13))}[scale]
    lookups = {"quick": 500, "standard": 2_000, "full": 10_000}[scale]
    return [Setting(1 << power, r, max(1, 2048 >> power), lookups, seed) for power in powers for r in LISTS]


def measure(setting: Setting) -> Cell:
    """Look up random keys from random nodes."""
    counts: Counter[int] = Counter()

    async def main(seed: str, lookups: int) -> None:
        rng = random.Random(seed)
        async with still_ring(setting.nodes, setting.successors, seed) as ring:
            for _ in range(lookups):
                node = rng.choice(ring.nodes)
                counts[(await node.lookups.find(draw_point(rng), node.contact)).path_length] += 1

    for number in range(setting.rings):
        seed = f"path_length/{setting.seed}/{setting.nodes}/{setting.successors}/{number}"
        lookups = setting.lookups // setting.rings + (number < setting.lookups % setting.rings)
        testing.run(main, seed, lookups, seed=seed)
    return Cell(setting, tuple(counts[length] for length in range(max(counts) + 1)))


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[Cell]) -> list[Table]:
    """Return the means beside the formulas, and one distribution.

    The distribution is that on the largest ring with fingers only.
    """
    columns = (
        Column("nodes", ","),
        Column("list r"),
        Column("mean path", ".2f"),
        Column("± s.e.", ".3f"),
        Column("formula", ".2f"),
        Column("differs by", "+.1%"),
        Column("1st", ".0f"),
        Column("99th", ".0f"),
        Column("lookups", ","),
    )
    notes = (
        f"The formulas are for lists that are a small part of the ring: N ≥ {NODES_PER_ENTRY_MIN} r.",
        "A node that owns the key itself answers at once, with a path of 0 hops.",
    )
    means = Table(
        "path_length",
        "Path length against the number of nodes",
        columns,
        tuple(_row(cell) for cell in result.cells),
        f"mean path within {WITHIN:.0%} of the formula",
        notes,
    )
    return [means, _distribution(largest(result))]


def _row(cell: Cell) -> Row:
    found, formula = cell.summary, cell.formula
    differs = None if formula is None else found.mean / formula - 1
    shape = cell.setting
    values = (
        shape.nodes,
        shape.successors,
        found.mean,
        found.error,
        formula,
        differs,
        found.low,
        found.high,
        shape.lookups,
    )
    return Row(values, None if differs is None else abs(differs) <= WITHIN + 2 * found.error / found.mean)


def largest(result: Result[Cell]) -> Cell:
    """Return the largest ring with fingers only, which has a published distribution."""
    return max((cell for cell in result.cells if cell.setting.successors == 1), key=lambda cell: cell.setting.nodes)


def _distribution(cell: Cell) -> Table:
    columns = (Column("path length"), Column("share of lookups", ".3f"), Column("published", ".2f"))
    is_published = cell.setting.nodes == 1 << 12
    rows = tuple(
        Row(
            (length, count / cell.setting.lookups, PUBLISHED_SHARE if length == PUBLISHED_MODE else None),
            (cell.mode == length if is_published else None) if length == PUBLISHED_MODE else None,
        )
        for length, count in enumerate(cell.counts)
    )
    title = f"Distribution of path lengths, {cell.setting.nodes:,} nodes, fingers only"
    notes = () if is_published else ("Published for 4,096 nodes.",)
    return Table("path_distribution", title, columns, rows, "the most frequent length is 6", notes)


def draw(result: Result[Cell], figure: Figure) -> None:
    """Draw the means with their formulas, and the distribution."""
    most = largest(result)
    headline(
        figure,
        f"A lookup among {most.setting.nodes:,} nodes takes {most.summary.mean:.2f} hops by fingers alone, "
        f"half of log2 N = {math.log2(most.setting.nodes):g}; a successor list saves the last ones",
    )
    left, right = figure.subplots(1, 2)
    for r in LISTS:
        cells = [cell for cell in result.cells if cell.setting.successors == r]
        nodes = [cell.setting.nodes for cell in cells]
        name = "fingers only" if r == 1 else f"list of {r}"
        left.plot(nodes, [cell.summary.mean for cell in cells], color=COLOURS[r], marker="o", label=f"measured, {name}")
        known = [(cell.setting.nodes, cell.formula) for cell in cells if cell.formula is not None]
        if known:
            x, y = zip(*known, strict=True)
            left.plot(x, y, color=COLOURS[r], linestyle="--", linewidth=1, label=f"formula, {name}")
    left.set_xscale("log", base=2)
    dress(left, "nodes", "mean path length (hops)")
    shares = [count / most.setting.lookups for count in most.counts]
    right.bar(range(len(shares)), shares, color=BLUE, label=f"measured, {most.setting.nodes:,} nodes")
    right.plot([PUBLISHED_MODE], [PUBLISHED_SHARE], "D", color=ORANGE, label="published mode, 4,096 nodes")
    dress(right, "path length (hops)", "share of lookups")


EXPERIMENT = Experiment(
    name="path_length",
    title="Path length against the number of nodes",
    source="Stoica et al. 2001 (SIGCOMM), Fig. 10; 2003 (ToN), sections IV-D, VI-C and VI-D",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"path_length": draw},
    again=again("path_length"),
)

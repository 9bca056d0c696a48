"""Ways to find a key's owner: hops and latency against state and upkeep.

The extremes are those of the course notes "分片 (Sharding)". One is a table that all clients ask. On the other, a ring,
each node knows only its successor. Chord lies between them. A hop takes 50 ms, so twenty hops take a second, as in the
notes.

Hops are counted up to the owner. That is one more than the path length of the papers, which ends at the key's
predecessor.

When a node joins or leaves, each routing table entry that names it must change. With sessions of an hour, 2 N / 3600
nodes join or leave per second. Each of them concerns as many entries as a node has. A node therefore learns of 2 *
entries / 3600 changes per second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.lab.bigring import BigRing
from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, headline
from chord.lab.theory import mean_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, LOOKUPS, SAMPLE = 1_000_000, 100_000, 1_000
LIST = 20
HOP_S, SESSION_S = 0.050, 3600.0
WITHIN = 0.05


class Variant(NamedTuple):
    """A way to route: its fingers, its successor list, and its colour in the plot.

    Attributes:
        digit_bits: fingers are of base 2**digit_bits; 0: no fingers.
        successors: length of the successor list, in nodes; 0: none.
        colour: the colour of its curve.
    """

    digit_bits: int
    successors: int
    colour: str


VARIANTS: dict[str, Variant] = {
    "central directory": Variant(0, 0, ORANGE),
    "successor only": Variant(0, 1, GREY),
    "fingers": Variant(1, 1, BLUE),
    f"fingers + list of {LIST}": Variant(1, LIST, BLUE),
    "base-4 fingers": Variant(2, 1, GREEN),
    "base-16 fingers": Variant(4, 1, GREEN),
    "full membership": Variant(0, 0, PURPLE),
}


class RoutesSetting(NamedTuple):
    """A way to route on a ring of `nodes` nodes, and the number of lookups. `variant` is its name in `VARIANTS`."""

    variant: str
    nodes: int
    lookups: int
    seed: int

    def __str__(self) -> str:
        return f"{self.variant}, {self.nodes:,} nodes"


@dataclass(frozen=True)
class RoutesCell:
    """The cost of one way to route.

    Attributes:
        mean: mean hops to the owner.
        high: 99th percentile of the hops.
        entries: mean number of routing entries at a node; 1, the directory, if there is one.
        central: number of entries in the central directory; 0 if there is no directory.
    """

    setting: RoutesSetting
    mean: float
    high: int
    entries: float
    central: int

    @property
    def changes_s(self) -> float:
        """Membership changes per second that a node learns of.

        With a central directory, it is the number that the directory learns of.
        """
        return 2 * (self.setting.nodes if self.central else self.entries) / SESSION_S


def plan(nodes: int, scale: Scale, seed: int) -> list[RoutesSetting]:
    """Return one setting for each way to route, on a ring of `nodes` nodes."""
    lookups = LOOKUPS // 20 if scale == "quick" else LOOKUPS
    return [RoutesSetting(variant, nodes, lookups, seed) for variant in VARIANTS]


def measure(setting: RoutesSetting) -> RoutesCell:
    """Measure the hops of random lookups, and the routing entries of some nodes."""
    nodes = setting.nodes
    if setting.variant == "central directory":
        return RoutesCell(setting, 2.0, 2, 1.0, nodes)  # one hop to the directory, one to the owner
    if setting.variant == "full membership":
        return RoutesCell(setting, 1.0, 1, float(nodes - 1), 0)
    variant = VARIANTS[setting.variant]
    rng = np.random.default_rng([setting.seed, nodes])
    ring = BigRing.draw(nodes, rng)
    starts, keys = ring.draw_lookups(setting.lookups, rng)
    some = rng.integers(0, nodes, SAMPLE, dtype=np.intp)
    if variant.digit_bits:
        hops = ring.look_up(starts, keys, digit_bits=variant.digit_bits, successors=variant.successors).hops
        entries = float(ring.entries(some, digit_bits=variant.digit_bits, successors=variant.successors).mean())
    else:
        hops, entries = ring.walk(starts, keys), 1.0
    to_owner = hops + (ring.successor(keys) != starts)  # no hop if the start owns the key
    return RoutesCell(setting, float(to_owner.mean()), int(np.quantile(to_owner, 0.99)), entries, 0)


# -- what comes of it ---------------------------------------------------------------------------------


def expected(variant: str, nodes: int) -> float | None:
    """Return the mean hops to the owner by formula; None if none holds at this size.

    Args:
        variant: name of the way to route, as in `VARIANTS`.
        nodes: size of the ring.
    """
    digit_bits, successors, _ = VARIANTS[variant]
    if variant == "central directory":
        return 2.0
    if variant == "full membership":
        return 1.0
    if variant == "successor only":
        return nodes / 2
    if successors > 1:
        return math.log2(nodes) / 2 - math.log2(successors) / 2 + 2 if nodes >= 50 * successors else None
    return mean_path(nodes, digit_bits) + 1


FIELDS: tuple[Field[RoutesCell], ...] = (
    Field("way", "", lambda cell: cell.setting.variant),
    Field("hops to the owner", ",.2f", lambda cell: cell.mean),
    Field("formula", ",.2f", lambda cell: expected(cell.setting.variant, cell.setting.nodes)),
    Field("99th", ",d", lambda cell: cell.high),
    Field("latency at 50 ms a hop (s)", ",.2f", lambda cell: cell.mean * HOP_S),
    Field("entries at a node", ",.1f", lambda cell: cell.entries),
    Field("entries in one place", ",d", lambda cell: cell.central or None),
    Field("changes a node hears of, a second", ",.3f", lambda cell: 0.0 if cell.central else cell.changes_s),
    Field("one place hears of, a second", ",.1f", lambda cell: cell.changes_s if cell.central else None),
)


def is_met(cell: RoutesCell) -> bool | None:
    """Whether the measured mean hops are within 5 % of the formula.

    The result is None if there is no formula, or if the ring has fewer than 1,024 nodes.
    """
    formula = expected(cell.setting.variant, cell.setting.nodes)
    return None if formula is None or cell.setting.nodes < 1024 else abs(cell.mean / formula - 1) <= WITHIN


def tables(result: Result[RoutesCell]) -> list[Table]:
    """Return a table of the ways to route: hops, latency, state and upkeep of each."""
    nodes = result.cells[0].setting.nodes
    notes = (
        f"{nodes:,} nodes, sessions of an hour. The course notes “分片 (Sharding)” say 20 hops and one second. That is "
        "the maximum, log2 of a million; the mean is half of it.",
        "Formulas, plus one hop to the owner: ½ log2 N - 0.138. With a list of r: ½ log2 N - ½ log2 r + 1. "
        "In base b: (1 - 1/b) log_b N plus a constant with a similar derivation.",
    )
    bar = f"hops within {WITHIN:.0%} of the formula"
    return [Table.of("routes", "Hops against state, way by way", FIELDS, result.cells, is_met, bar, notes)]


def draw(result: Result[RoutesCell], figure: Figure) -> None:
    """Plot the latency of each way to route against its routing entries."""
    cells = {cell.setting.variant: cell for cell in result.cells}
    nodes = result.cells[0].setting.nodes
    fingers, wide = cells["fingers"], cells["base-16 fingers"]
    headline(
        figure,
        f"Among {nodes:,} nodes, {fingers.entries:.0f} entries find a key in {fingers.mean * HOP_S:.2f} s and "
        f"{wide.entries:.0f} in {wide.mean * HOP_S:.2f} s. All entries find it in {HOP_S:g} s, "
        f"at {nodes / wide.entries:,.0f} times the upkeep of those {wide.entries:.0f}",
    )
    axes = figure.subplots()
    right = (12, -3, "left")
    offsets = dict.fromkeys(cells, right)
    offsets |= {"fingers": (-12, -3, "right"), f"fingers + list of {LIST}": (4, 12, "left")}
    offsets |= {"full membership": (-12, -3, "right"), "base-4 fingers": (-2, -20, "center")}
    offsets |= {"central directory": (10, -16, "left")}
    for name, cell in cells.items():
        axes.plot(cell.entries, cell.mean * HOP_S, "o", markersize=9, color=VARIANTS[name].colour)
        dx, dy, side = offsets[name]
        note = f"{name} ({cell.central:,} entries in one place)" if cell.central else name
        axes.annotate(note, (cell.entries, cell.mean * HOP_S), xytext=(dx, dy), textcoords="offset points", ha=side)
    axes.set_xscale("log")
    axes.set_yscale("log")
    dress(
        axes,
        "entries at each node, to be kept up to date",
        "mean time to the owner at 50 ms a hop (s)",
        is_from_zero=False,
    )
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.margins(x=0.08)


def experiment(nodes: int = NODES) -> Experiment[RoutesSetting, RoutesCell]:
    """Return the experiment that compares ways to route among `nodes` nodes."""
    return Experiment(
        name="routes",
        title="Ways to find a key's owner",
        source="course notes “分片 (Sharding)”: one table or a successor each, and 20 hops that take a second",
        plan=partial(plan, nodes),
        measure=measure,
        tables=tables,
        pictures={"routes": draw},
        command=f"lab ring --nodes {nodes}",
    )

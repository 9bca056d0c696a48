"""The spread of keys over nodes, and the effect of virtual nodes.

There are 10^4 nodes and 10^6 keys, and each node has 1 to 20 points on the circle. The load of a node is its number of
keys over the mean. Only the hash decides the load, so nothing is simulated: the points are those of real nodes
(`vnode_id`), and keys are hashed like real keys. A smaller ring of real nodes checks that nothing but the hash matters.
The number of keys that each real node *owns* must equal the counted one.

The model has random points instead, and no keys: the load of a node is its share of the circle. A node with one point
owns the gap before it, which is exponential. One node in a hundred has ln 100 = 4.6 times the mean or more. The largest
of N nodes has about ln N + 0.58 times the mean. With v points, a node's share is a sum of v such gaps.

Source: Stoica et al. 2001 (SIGCOMM), Figs. 8 and 9; 2003 (ToN), section VI-B.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from chord import testing
from chord.ids import Circle, Point, vnode_id
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table, all_passed
from chord.lab.harness.plot import BLUE, GREEN, GREY, MEASURED, ORANGE, PURPLE, dress, headline
from chord.lab.harness.statistics import Counts, Spread, counted, spread_of
from chord.lab.papers.world import MAKERS, STILL, has_model
from chord.sim.cluster import cluster
from chord.sim.messages import MessageNetwork
from chord.testing.rings import PORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CIRCLE = Circle(160)
NODES, KEYS = 10_000, 1_000_000
VNODES, MODEL_VNODES = (1, 2, 5, 10, 20), (1, 5, 20)
POINTS_MAX = 5_000_000
COLOURS = {1: BLUE, 2: GREY, 5: GREEN, 10: PURPLE, 20: ORANGE}
BINS, BIN = 120, 0.05  # of loads over the mean
WITHIN = 0.10


class PublishedLoad(NamedTuple):
    """The paper's loads for one number of vnodes, over the mean load.

    Attributes:
        low: 1st percentile; None if not published.
        high: 99th percentile.
        most: the largest load; None if not published.
    """

    low: float | None
    high: float | None
    most: float | None = None


PUBLISHED_BY_RING = {
    (1, KEYS): PublishedLoad(0.0, 4.8),
    (20, KEYS): PublishedLoad(0.5, 1.6),
    (1, KEYS // 2): PublishedLoad(None, 4.6, 9.1),
}


class LoadSetting(NamedTuple):
    """A ring of `nodes` nodes, and the number of keys on it.

    Attributes:
        vnodes: points per node.
        keys: number of keys; 0: the model, with shares of the circle.
        is_real: whether real nodes are asked as well for the keys that they own.
    """

    vnodes: int
    nodes: int
    keys: int
    is_real: bool
    seed: int

    @property
    def is_model(self) -> bool:
        """Whether the model is measured: shares of the circle instead of keys."""
        return not self.keys

    def __str__(self) -> str:
        what = f"{self.keys:,} keys" if self.keys else "shares of the circle"
        return f"{self.nodes:,} nodes with {self.vnodes} vnodes, {what}"


@dataclass(frozen=True)
class LoadCell:
    """How evenly the keys, or shares of the circle, are spread over the nodes.

    Attributes:
        spread: the statistics of the loads.
        histogram: number of nodes by load over the mean, in bins of width `BIN` from 0 on. Loads beyond `BINS` bins are
            left out.
        disagreements: number of real nodes that own another number of keys than the hash gives them; 0 if no real nodes
            are asked.
    """

    setting: LoadSetting
    spread: Spread
    histogram: Counts
    disagreements: int = 0


def plan(nodes: int | None, scale: Scale, seed: int) -> list[LoadSetting]:
    """Return the rings to measure.

    Args:
        nodes: None: the published rings, a smaller ring of real nodes, and models of the published size if NumPy is
            installed. A number: only models, with this number of nodes. Models with several vnodes have fewer nodes if
            there would be more than 5 million points.
    """
    if nodes is not None:
        return [LoadSetting(v, nodes if v == 1 else min(nodes, POINTS_MAX // v), 0, False, seed) for v in MODEL_VNODES]
    nodes, keys = (NODES // 5, KEYS // 10) if scale == "quick" else (NODES, KEYS)
    models = [LoadSetting(v, nodes, 0, False, seed) for v in VNODES if has_model()]
    hashed = [
        LoadSetting(1, nodes, keys // 2, False, seed),
        *(LoadSetting(v, nodes, keys, False, seed) for v in VNODES),
    ]
    return [*models, LoadSetting(1, 200, 20_000, True, seed), *hashed]


def measure(setting: LoadSetting) -> LoadCell:
    """Measure the load of every node: its keys, or in the model its share."""
    if setting.is_model:
        return _measure_model(setting)
    keys = [CIRCLE.hash(b"%d/%d" % (setting.seed, number)) for number in range(setting.keys)]
    owner_of = {
        vnode_id(CIRCLE, f"n{node}:{PORT}", index): node
        for node in range(setting.nodes)
        for index in range(setting.vnodes)
    }
    points = sorted(owner_of)
    counts = Counter(owner_of[points[bisect_left(points, key) % len(points)]] for key in keys)
    loads = [counts[node] for node in range(setting.nodes)]
    disagreements = 0
    if setting.is_real:
        disagreements = sum(a != b for a, b in zip(loads, _owned(setting, keys), strict=True))
    width = BIN * setting.keys / setting.nodes
    return LoadCell(setting, spread_of(loads), counted(int(load / width) for load in loads)[:BINS], disagreements)


def _owned(setting: LoadSetting, keys: list[Point]) -> list[int]:
    """Return for each real node how many of the keys lie in the arc that it owns."""
    found: list[int] = []
    ordered = sorted(keys)

    async def main() -> None:
        async with cluster(seed=setting.seed, timing=STILL, network=MessageNetwork(setting.seed)) as ring:
            for node in await ring.place(setting.nodes):
                (vnode,) = node._host.vnodes.values()
                found.append(sum(vnode.ownership.is_owner(key) for key in ordered))

    testing.run(main, seed=setting.seed)
    return found


def _measure_model(setting: LoadSetting) -> LoadCell:
    import numpy as np

    from chord.lab.bigring import BigRing
    from chord.lab.numbers import spread

    rng = np.random.default_rng([setting.seed, setting.nodes, setting.vnodes])
    gaps = BigRing.draw(setting.nodes * setting.vnodes, rng).shares()
    if setting.vnodes > 1:  # the assignment of gaps to nodes is as random as the points
        rng.shuffle(gaps)
    shares = gaps.reshape(setting.nodes, setting.vnodes).sum(axis=1) * setting.nodes
    return LoadCell(setting, spread(shares), tuple(np.bincount((shares / BIN).astype(np.intp))[:BINS].tolist()))


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[LoadCell]) -> list[Table]:
    """Return a table of the measured spread of the loads beside the paper's values."""
    columns = [
        Column("vnodes"), Column("nodes", ","), Column("keys", ","),
        Column("published: 1st / mean", ".1f"), Column("published: 99th / mean", ".1f"),
        Column("published: most / mean", ".1f"),
    ]  # fmt: skip
    for maker in MAKERS:
        columns += [
            Column(f"{maker}: 1st / mean", ".2f"), Column(f"{maker}: 99th / mean", ".2f"),
            Column(f"{maker}: most / mean", ".1f"), Column(f"{maker}: std / mean", ".3f"),
        ]  # fmt: skip
    columns += [Column("law of the std", ".3f"), Column("law of the most", ".1f"), Column("real nodes that disagree")]
    models = {cell.setting[:2]: cell for cell in result.cells if cell.setting.is_model}
    rows = [_row(cell, models.get(cell.setting[:2])) for cell in result.cells if not cell.setting.is_model]
    rows = rows or [_row(None, model) for model in models.values()]
    notes = (
        "Loads by the hash of real nodes and keys, and shares of the circle by the model.",
        "The most loaded node is one draw of an extreme value, so it has no bar. Its mean is H(N) at one point a node.",
        "The gaps of the circle are exponential. With one point a node, the 99th percentile is ln 100 = 4.6.",
    )
    bar = (
        f"percentiles within {WITHIN:.0%} of the mean load of the published ones; std of the model within "
        f"{WITHIN:.0%} of the law; no real node disagrees"
    )
    return [Table("load_balance", "Keys per node", tuple(columns), tuple(rows), bar, notes).without_empty_columns()]


def _row(real: LoadCell | None, model: LoadCell | None) -> Row:
    (vnodes, nodes, keys, is_real, _) = (real or model).setting  # type: ignore[union-attr]
    said = PUBLISHED_BY_RING.get((vnodes, keys or KEYS)) if nodes == NODES or not keys else None
    spreads = [cell.spread if cell else None for cell in (real, model)]
    found = [value for s in spreads for value in ((s.low, s.high, s.most, s.deviation) if s else [None] * 4)]
    laws = _laws(vnodes, nodes) if model else (None, None)
    disagree = real.disagreements if real and is_real else None
    verdicts = [is_met(cell) for cell in (real, model) if cell]
    values = (vnodes, nodes, keys or None, *(said or PublishedLoad(None, None)), *found, *laws, disagree)
    return Row(values, all_passed(verdicts))


def _laws(vnodes: int, nodes: int) -> tuple[float, float | None]:
    """Return the std and the largest of the loads by formula, over the mean load.

    The largest load is None for more than one vnode per node, because there is no formula.
    """
    from chord.lab.theory import harmonic, share_deviation

    return share_deviation(nodes, vnodes), harmonic(nodes) if vnodes == 1 else None


def is_met(cell: LoadCell) -> bool | None:
    """Whether the measured loads are within 10 % of the published ones and of the formulas.

    Real nodes must own exactly the counted keys. The result is None if there is nothing to compare with.
    """
    (vnodes, nodes, keys, is_real, _), found = cell.setting, cell.spread
    if is_real:
        return cell.disagreements == 0
    if cell.setting.is_model:
        if nodes < 1000:
            return None
        said = PUBLISHED_BY_RING.get((vnodes, KEYS))
        by_chance = 3 * 10 / math.sqrt(nodes)  # three standard errors of an exponential's 99th percentile
        passed = abs(found.deviation / _laws(vnodes, nodes)[0] - 1) <= WITHIN
    else:
        said = PUBLISHED_BY_RING.get((vnodes, keys)) if nodes == NODES else None
        if said is None:
            return None
        by_chance, passed = 0.0, True
    due = [(found.low, said.low, 0.0), (found.high, said.high, by_chance)] if said else []
    return passed and all(y is None or abs(x - y) <= max(WITHIN, WITHIN * y) + chance for x, y, chance in due)


def draw(result: Result[LoadCell], figure: Figure) -> None:
    """Plot the percentiles of the loads against the vnodes, and their density."""
    cells = [cell for cell in result.cells if not cell.setting.is_real]
    shown = [cell for cell in cells if cell.setting.keys == max(cell.setting.keys for cell in cells)]
    one, many = shown[0], shown[-1]
    headline(
        figure,
        f"Of {one.setting.nodes:,} nodes, one in a hundred has {one.spread.high:.1f} times its fair share or more; "
        f"with {many.setting.vnodes} vnodes {many.spread.high:.1f} times",
    )
    left, right = figure.subplots(1, 2)
    vnodes = [cell.setting.vnodes for cell in shown]
    left.fill_between(vnodes, [c.spread.low for c in shown], [c.spread.high for c in shown], color="#0072B233")
    name = f"{MAKERS[one.setting.is_model]}, 1st and 99th percentile"
    left.plot(vnodes, [c.spread.high for c in shown], **(MEASURED | {"label": name}))
    left.plot(vnodes, [c.spread.low for c in shown], **(MEASURED | {"label": None}))
    left.axhline(1, color=GREY, linewidth=1, label="mean")
    said = [(v, y) for (v, n), p in PUBLISHED_BY_RING.items() if n == KEYS for y in p if y is not None]
    left.plot([v for v, _ in said], [y for _, y in said], "D", color=ORANGE, label="published")
    left.set_xticks(vnodes)
    dress(left, "vnodes of a node", "load of a node / mean")
    for cell in [c for c in cells if c.setting.is_model] or shown:
        v, nodes = cell.setting.vnodes, cell.setting.nodes
        if v not in MODEL_VNODES:
            continue
        x = [BIN * (at + 0.5) for at in range(len(cell.histogram))]
        label = f"{v} vnode{'s' * (v > 1)}: 99 % up to {cell.spread.high:.1f}"
        right.plot(x, [n / nodes / BIN for n in cell.histogram], color=COLOURS[v], linewidth=3, label=label)
        law = [math.exp(v * math.log(v) + (v - 1) * math.log(y) - v * y - math.lgamma(v)) for y in x]
        right.plot(x, law, color="black", linewidth=1, linestyle=":", label="law: gamma" if v == 20 else None)
        right.axvline(cell.spread.high, color=COLOURS[v], linewidth=1.5, linestyle="--")
    right.set_xlim(0, BINS * BIN)
    dress(right, "load of a node / mean", "density of nodes")


def experiment(nodes: int | None = None) -> Experiment[LoadSetting, LoadCell]:
    """Return the experiment on the spread of keys.

    Args:
        nodes: None: the published rings, and models of the same size if NumPy is installed. A number: only the model is
            measured, on rings of about this number of nodes.
    """
    return Experiment(
        name="load_balance",
        title="Keys per node, and virtual nodes",
        source="Stoica et al. 2001 (SIGCOMM), Figs. 8 and 9; 2003 (ToN), section VI-B: 10,000 nodes, 10^6 keys",
        plan=partial(plan, nodes),
        measure=measure,
        tables=tables,
        pictures={"load_balance": draw},
        command="sim paper load_balance" if nodes is None else f"lab ring --nodes {nodes}",
    )

"""Path length of lookups against the number of nodes.

The rings do not change. Random nodes look up random keys. The real node runs on rings of 2^3 to 2^12 nodes, and the
model (`chord.lab.bigring`) on rings of any size. With fingers only (a successor list of one), the mean is ½ log2 N -
0.13. Half of the bits of the distance are ones, and the last hops fall away because the circle is sparse. A list of r
replaces the last ½ log2 r hops, and one hop leads from it to the key's predecessor. The mean is then ½ log2 N - ½ log2
r + 1.

The papers say ½ log2 N. `theory.finger_use` derives the difference: a lookup takes a finger exactly if its bit of the
remaining distance is set. Bits that are wide against the gaps between nodes are set half of the time. Bits about as
wide as a gap are set less often. Earlier hops overshot their starts by a gap each, and may have met the predecessor
already. Narrower bits are set sometimes. The missing and the added parts sum up to -0.138.

Source: Stoica et al. 2001 (SIGCOMM), Fig. 10; 2003 (ToN), sections IV-D and VI-D.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from chord import testing
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table, Value, all_passed
from chord.lab.harness.plot import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, headline
from chord.lab.harness.statistics import Counts, Summary, counted, summarize_counts
from chord.lab.papers.world import MAKERS, draw_point, has_model, pairs, still_ring

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LISTS: tuple[int, ...] = (1, 8, 20)
COLOURS = {1: BLUE, 8: GREEN, 20: PURPLE}
NODES_PER_ENTRY_MIN = 50  # the formula assumes that the list is a small part of the ring
WITHIN = 0.05

CONSTANT = -0.13  # of the mean, with fingers only
MODEL_WITHIN, MODEL_NODES_MIN = 0.05, 1 << 10
MODEL_SIGMAS = 4.0  # of slack at quick scale
MODEL_LOOKUPS = 100_000
POWER_MIN, POWER_MAX = 3, 12
RINGS_LOG2, MODEL_RINGS_LOG2 = 11, 14  # there are enough rings of each size for about 2**11 nodes in total

PUBLISHED_NODES, PUBLISHED_MODE, PUBLISHED_SHARE = 1 << 12, 6, 0.24  # of a distribution with fingers only


class PathSetting(NamedTuple):
    """Rings of one size and list length, and the lookups on these rings.

    Attributes:
        nodes: number of nodes of a ring.
        successors: length of the successor lists; 1: lookups use fingers only.
        rings: number of rings.
        lookups: number of lookups, on all rings together.
        seed: the source of all random choices.
        is_model: whether the model makes the lookups, not the real node.
    """

    nodes: int
    successors: int
    rings: int
    lookups: int
    seed: int
    is_model: bool = False

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes, lists of {self.successors}" + ", model" * self.is_model


@dataclass(frozen=True)
class PathCell:
    """The path lengths of the lookups, and the use of fingers in the model.

    Attributes:
        groups: a histogram per ring: entry i counts the lookups with i hops.
        used: for the model, entry i counts the hops over fingers that start 2**i points away.
    """

    setting: PathSetting
    groups: tuple[Counts, ...]
    used: Counts = ()

    @property
    def summary(self) -> Summary:
        """Mean, standard error and percentiles of the path lengths."""
        return summarize_counts(self.groups)

    @property
    def shares(self) -> list[float]:
        """Share of the lookups with each path length: entry i is for i hops."""
        total = [0] * max(map(len, self.groups))
        for group in self.groups:
            for length, count in enumerate(group):
                total[length] += count
        return [count / self.setting.lookups for count in total]

    @property
    def mode(self) -> int:
        """The most frequent path length."""
        return self.shares.index(max(self.shares))


def formula(nodes: int, successors: int) -> float | None:
    """Return the mean path length in hops by formula; None for fewer than 50 nodes per entry of the successor list.

    With fingers only it is ½ log2 N - 0.13. With a list of r it is ½ log2 N - ½ log2 r + 1.

    Args:
        nodes: N.
        successors: r; 1: fingers only.
    """
    if nodes < NODES_PER_ENTRY_MIN * successors:
        return None
    half = math.log2(nodes) / 2
    return half + CONSTANT if successors == 1 else half - math.log2(successors) / 2 + 1


def plan(nodes: int | None, scale: Scale, seed: int) -> list[PathSetting]:
    """Return rings of many sizes, most of them powers of two.

    Args:
        nodes: None: rings of real nodes with each length of list, and models of the same rings if NumPy is installed. A
            number: only models with fingers only. They have this number of nodes, and powers of two up to about it.
    """
    real: list[PathSetting] = []
    if nodes is None:
        powers = (3, 6, 8, 10) if scale == "quick" else tuple(range(POWER_MIN, POWER_MAX + 1))
        sizes, lists = [1 << power for power in powers], LISTS
        lookups = {"quick": 500, "standard": 2_000, "full": 10_000}[scale]
        real = [PathSetting(n, r, max(1, (1 << RINGS_LOG2) // n), lookups, seed) for n in sizes for r in lists]
    else:
        most = max(POWER_MIN, round(math.log2(nodes)))
        sizes, lists = sorted({1 << power for power in range(POWER_MIN, most + 1)} | {nodes}), (1,)
    looked = MODEL_LOOKUPS // 20 if scale == "quick" else MODEL_LOOKUPS
    models = [
        PathSetting(n, r, max(1, (1 << MODEL_RINGS_LOG2) // n), looked, seed, is_model=True)
        for n in sizes
        for r in lists
    ]
    return models + real if nodes is not None or has_model() else real


def measure(setting: PathSetting) -> PathCell:
    """Measure the path lengths of random lookups."""
    share, more = divmod(setting.lookups, setting.rings)
    lookups = [share + (number < more) for number in range(setting.rings)]
    if setting.is_model:
        return _measure_model(setting, lookups)
    groups: list[Counts] = []

    async def main(seed: str, lookups: int) -> None:
        rng = random.Random(seed)
        found: list[int] = []
        async with still_ring(setting.nodes, setting.successors, seed) as ring:
            for _ in range(lookups):
                node = rng.choice(ring.nodes)
                found.append((await node._lookups.find(draw_point(rng), node.contact)).path_length)
        groups.append(counted(found))

    for number, count in enumerate(lookups):
        seed = f"path_length/{setting.seed}/{setting.nodes}/{setting.successors}/{number}"
        testing.run(main, seed, count, seed=seed)
    return PathCell(setting, tuple(groups))


def _measure_model(setting: PathSetting, lookups: list[int]) -> PathCell:
    import numpy as np

    from chord.lab.bigring import BITS, BigRing

    groups, used = [], np.zeros(BITS, np.int64)
    for number, count in enumerate(lookups):
        rng = np.random.default_rng([setting.seed, setting.nodes, number])
        ring = BigRing.draw(setting.nodes, rng)
        found = ring.look_up(*ring.draw_lookups(count, rng), successors=setting.successors)
        groups.append(tuple(np.bincount(found.hops).tolist()))
        used += found.used
    return PathCell(setting, tuple(groups), tuple(used.tolist()))


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[PathCell]) -> list[Table]:
    """Return tables of the means, of the use of fingers, and of a distribution.

    The last two are for fingers only, on the largest ring with a power of two of nodes. On such a ring, the mean gap is
    a power of two, so each finger spans a power of two of gaps.
    """
    alone = [cell for cell in result.cells if cell.setting.successors == 1 and cell.setting.nodes.bit_count() == 1]
    size = max(cell.setting.nodes for cell in alone)
    most = [cell for cell in alone if cell.setting.nodes == size]
    use = [_use(cell) for cell in most if cell.setting.is_model]
    return [_means(result), *use, _distribution(*pairs(most, lambda setting: size)[size])]


def _means(result: Result[PathCell]) -> Table:
    columns = [Column("nodes", ","), Column("list r"), Column("formula", ".2f")]
    for maker in MAKERS:
        columns += [
            Column(f"{maker}: mean", ".3f"), Column(f"{maker}: ± s.e.", ".3f"), Column(f"{maker}: differs by", "+.3f"),
            Column(f"{maker}: most frequent"), Column(f"{maker}: 1st", ".0f"), Column(f"{maker}: 99th", ".0f"),
            Column(f"{maker}: lookups", ","),
        ]  # fmt: skip
    rows = []
    for (nodes, successors), cells in pairs(result.cells, lambda s: (s.nodes, s.successors)).items():
        said = formula(nodes, successors)
        values: list[Value] = [nodes, successors, said]
        for cell in cells:
            if cell is None:
                values += [None] * 7
                continue
            mean, error, low, high = cell.summary
            differs = None if said is None else mean - said
            values += [mean, error, differs, cell.mode, low, high, cell.setting.lookups]
        rows.append(Row(tuple(values), all_passed(is_met(cell, result.scale) for cell in cells if cell)))
    bar = (
        f"real node within {WITHIN:.0%} of the formula; model with fingers only within {MODEL_WITHIN:g} hops from "
        f"{MODEL_NODES_MIN:,} nodes on. The published mode is {PUBLISHED_MODE} at {PUBLISHED_NODES:,} nodes"
    )
    if result.scale == "quick":
        bar += f". {MODEL_SIGMAS:g} standard errors of the model are allowed in addition"
    notes = (
        "Path length: nodes that forward, from the start to the key's predecessor; one hop more leads to the owner. "
        "A node that owns the key itself answers at once, with a path of 0 hops.",
        "The formula is ½ log2 N - 0.13 with fingers only, and ½ log2 N - ½ log2 r + 1 with a list. It holds if the "
        f"list is a small part of the ring: N ≥ {NODES_PER_ENTRY_MIN} r.",
    )
    title = "Path length against the number of nodes"
    return Table("path_length", title, tuple(columns), tuple(rows), bar, notes).without_empty_columns()


def is_met(cell: PathCell, scale: Scale) -> bool | None:
    """Whether the mean path length is close to the formula.

    The real node may be off by 5 % and two standard errors, and the model by 0.05 hops. At 2^12 nodes with fingers
    only, the most frequent length must be the published one, 6 hops. The result is None if the criterion does not apply
    to the measurement.
    """
    nodes, successors = cell.setting.nodes, cell.setting.successors
    said, (mean, error, _, _) = formula(nodes, successors), cell.summary
    if said is None or (cell.setting.is_model and (successors > 1 or nodes < MODEL_NODES_MIN)):
        return None
    if cell.setting.is_model:
        allowed = MODEL_WITHIN + (MODEL_SIGMAS * error if scale == "quick" else 0.0)
    else:
        allowed = WITHIN * said + 2 * error
    passed = abs(mean - said) <= allowed
    return passed and (successors > 1 or nodes != PUBLISHED_NODES or _may_be_mode(cell, scale))


def _may_be_mode(cell: PathCell, scale: Scale) -> bool:
    """Whether the published most frequent length is the most frequent one here, too.

    At quick scale there are few lookups, so a difference that may be chance is allowed.
    """
    counts = [share * cell.setting.lookups for share in cell.shares]
    seen, most = counts[PUBLISHED_MODE], max(counts)
    return seen == most or (scale == "quick" and most - seen <= MODEL_SIGMAS * math.sqrt(most + seen))


def _units(cell: PathCell) -> dict[int, float]:
    """Return the number of uses of each finger, over the number of lookups.

    A finger is named by the log2 of the distance to its start, in mean gaps between nodes. Only the fingers from -8 to
    8 are in the result.
    """
    gap = len(cell.used) - (cell.setting.nodes.bit_length() - 1)
    shares = {level - gap: count / cell.setting.lookups for level, count in enumerate(cell.used)}
    return {unit: share for unit, share in shares.items() if -8 <= unit <= 8}


def _use(cell: PathCell) -> Table:
    from chord.lab.theory import finger_use, path_constant

    columns = (
        Column("finger starts at (mean gaps)"), Column("taken by", ".4f"), Column("derived", ".4f"),
        Column("½ or 0", ".1f"), Column("adds to the constant", "+.4f"),
    )  # fmt: skip
    derived, rows = finger_use(), []
    for unit, share in reversed(_units(cell).items()):
        plain = 0.5 if unit >= 0 else 0.0
        rows.append(Row((f"2^{unit}", share, derived[unit], plain, derived[unit] - plain)))
    notes = (
        f"{cell.setting.nodes:,} nodes, by the model. Over all fingers the last column adds up to "
        f"{path_constant():.3f}, the difference from ½ log2 N.",
    )
    return Table("finger_use", "Which fingers lookups take", columns, tuple(rows), notes=notes)


def _distribution(*cells: PathCell | None) -> Table:
    found = [cell.shares if cell else [] for cell in cells]
    nodes = next(cell.setting.nodes for cell in cells if cell)
    columns = [Column("path length"), *(Column(f"{maker}: share of lookups", ".4f") for maker in MAKERS)]
    rows = []
    for length in range(max(map(len, found))):
        shares = [each[length] if length < len(each) else None for each in found]
        is_published = (nodes, length) == (PUBLISHED_NODES, PUBLISHED_MODE)
        rows.append(Row((length, *shares, PUBLISHED_SHARE if is_published else None)))
    title = f"Distribution of path lengths, {nodes:,} nodes, fingers only"
    table = Table("path_distribution", title, (*columns, Column("published", ".2f")), tuple(rows))
    return table.without_empty_columns()


# -- pictures -----------------------------------------------------------------------------------------


def draw(result: Result[PathCell], figure: Figure) -> None:
    """Plot the means with their formulas, and the distribution with fingers only."""
    by_list = {r: [cell for cell in result.cells if cell.setting.successors == r] for r in LISTS}
    nodes = max(cell.setting.nodes for cell in by_list[1])
    most = [cell for cell in by_list[1] if cell.setting.nodes == nodes]
    mean = most[-1].summary.mean  # of the real node, if there is one
    headline(
        figure,
        f"A lookup among {nodes:,} nodes takes {mean:.2f} hops by fingers alone, "
        f"½ log2 N − {math.log2(nodes) / 2 - mean:.2f}; doubling a ring costs half a hop"
        + "; a successor list saves the last ones"
        * bool(by_list[LISTS[-1]]),
    )
    left, right = figure.subplots(1, 2)
    for r, cells in by_list.items():
        name = "fingers only" if r == 1 else f"list of {r}"
        for is_model, look in ((True, "-"), (False, "o")):
            own = [cell for cell in cells if cell.setting.is_model == is_model]
            if own:
                x, means = [cell.setting.nodes for cell in own], [cell.summary for cell in own]
                left.plot(x, [m.mean for m in means], look, color=COLOURS[r], label=f"{MAKERS[is_model]}, {name}")
                if r == 1 and own[-1] is cells[-1]:
                    left.fill_between(x, [m.low for m in means], [m.high for m in means], color="#0072B226")
        sizes = sorted({cell.setting.nodes for cell in cells})
        known = [(size, said) for size in sizes if (said := formula(size, r)) is not None]
        if known:
            label = "formulas" if r == 1 else None
            left.plot(*zip(*known, strict=True), color=ORANGE, linestyle="--", linewidth=1, label=label)
    left.set_xscale("log", base=2)
    dress(left, "nodes", "path length (hops): mean; 98 of 100 lookups")
    for cell in most:
        maker, shares = MAKERS[cell.setting.is_model], cell.shares
        if cell is most[-1]:
            right.bar(range(len(shares)), shares, color=BLUE, label=maker)
        else:
            right.plot(range(len(shares)), shares, "_", color=GREY, markersize=14, label=maker)
    right.axvline(mean, color=ORANGE, linestyle="--", label=f"mean {mean:.2f}")
    if nodes == PUBLISHED_NODES:
        right.plot([PUBLISHED_MODE], [PUBLISHED_SHARE], "D", color=ORANGE, label="published mode")
    dress(right, f"path length (hops), {nodes:,} nodes", "share of lookups")


def draw_use(result: Result[PathCell], figure: Figure) -> None:
    """Plot the use of each finger, which explains a mean below half of the bits."""
    from chord.lab.theory import finger_use, path_constant

    models = [c for c in result.cells if c.used and c.setting.successors == 1 and c.setting.nodes.bit_count() == 1]
    cell = max(models, key=lambda cell: cell.setting.nodes)
    derived, found = finger_use(), _units(cell)
    units = list(found)
    headline(
        figure,
        f"Why ½ log2 N − {-path_constant():.2f}: fingers about as long as a gap are taken less than half of the time, "
        "shorter ones sometimes",
    )
    axes = figure.subplots()
    edges, plain = [-8.5, *[unit + 0.5 for unit in units]], [0.0, *[0.5 if unit >= 0 else 0.0 for unit in units]]
    axes.step(edges, plain, where="pre",
              color=GREY, linestyle="--", label="½ log2 N: half of the fingers longer than a gap")  # fmt: skip
    axes.bar(units, list(found.values()), color=BLUE, label=f"measured, {cell.setting.nodes:,} nodes")
    axes.plot(units, [derived[unit] for unit in units], "D", color=ORANGE, markersize=5, label="derived")
    axes.set_xticks(units, [f"$2^{{{unit}}}$" for unit in units])
    dress(axes, "start of the finger, in mean gaps between nodes", "share of lookups that take it")


def experiment(nodes: int | None = None) -> Experiment[PathSetting, PathCell]:
    """Return the experiment on path length.

    Args:
        nodes: None: rings of up to 2^12 nodes, with real nodes, and with the model if NumPy is installed. A number:
            only the model is measured, on rings of this number of nodes and of powers of two up to about it.
    """
    is_used = nodes is not None or has_model()
    return Experiment(
        name="path_length",
        title="Path length against the number of nodes",
        source="Stoica et al. 2001 (SIGCOMM), Fig. 10; 2003 (ToN), sections IV-D, VI-C and VI-D",
        plan=partial(plan, nodes),
        measure=measure,
        tables=tables,
        pictures={"path_length": draw, **({"finger_use": draw_use} if is_used else {})},
        command="sim paper path_length" if nodes is None else f"lab ring --nodes {nodes}",
    )

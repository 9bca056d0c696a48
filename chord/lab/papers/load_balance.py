"""The spread of keys over nodes, and the effect of virtual nodes.

There are 10^4 nodes and 10^6 keys, and each node has 1 to 20 points on the circle. The load of a node is its number of
keys over the mean. Only the hash decides the load, so nothing is simulated: the points are those of real nodes
(`vnode_id`), and keys are hashed like real keys.

A smaller ring of real nodes checks that nothing but the hash matters. The number of keys that each real node *owns*
must equal the counted one.

Source: Stoica et al. 2001 (SIGCOMM), Figs. 8 and 9; 2003 (ToN), section VI-B.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chord import testing
from chord.ids import Circle, Point, vnode_id
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table, percentile
from chord.lab.harness.plot import GREY, MEASURED, ORANGE, dress, headline
from chord.lab.papers.world import STILL, again
from chord.sim.cluster import cluster
from chord.sim.messages import MessageNetwork
from chord.testing.rings import PORT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CIRCLE = Circle(160)
VNODES = (1, 2, 5, 10, 20)
WITHIN = 0.10


class Published(NamedTuple):
    """Published loads for one number of vnodes, over the mean; None if not published.

    Attributes:
        low: 1st percentile.
        high: 99th percentile.
        most: the largest load.
    """

    low: float | None
    high: float | None
    most: float | None = None


PUBLISHED_BY_RING = {
    (1, 1_000_000): Published(0.0, 4.8),
    (20, 1_000_000): Published(0.5, 1.6),
    (1, 500_000): Published(None, 4.6, 9.1),
}


class Setting(NamedTuple):
    """A number of keys on a number of nodes.

    Attributes:
        vnodes: points per node.
        nodes: number of nodes.
        keys: number of keys.
        is_real: whether real nodes are asked as well.
        seed: seed of the keys.
    """

    vnodes: int
    nodes: int
    keys: int
    is_real: bool
    seed: int

    def __str__(self) -> str:
        return f"{self.nodes:,} nodes with {self.vnodes} vnodes, {self.keys:,} keys"


@dataclass(frozen=True)
class Cell:
    """The number of keys of each node.

    Attributes:
        setting: the ring and its keys.
        loads: number of keys per node, ascending.
        disagreements: number of real nodes that own another number of keys than the hash gives them.
    """

    setting: Setting
    loads: tuple[int, ...]
    disagreements: int = 0


def plan(scale: Scale, seed: int) -> list[Setting]:
    """Return the published rings, and a smaller one of real nodes."""
    nodes, keys = (2_000, 100_000) if scale == "quick" else (10_000, 1_000_000)
    real = Setting(1, 200, 20_000, True, seed)
    return [real, Setting(1, nodes, keys // 2, False, seed), *(Setting(v, nodes, keys, False, seed) for v in VNODES)]


def measure(setting: Setting) -> Cell:
    """Count the keys of every node."""
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
    return Cell(setting, tuple(sorted(loads)), disagreements)


def _owned(setting: Setting, keys: list[Point]) -> list[int]:
    """Return how many of the keys each real node owns, by its own `Ownership`."""
    found: list[int] = []
    ordered = sorted(keys)

    async def main() -> None:
        async with cluster(seed=setting.seed, timing=STILL, network=MessageNetwork(setting.seed)) as ring:
            for node in await ring.place(setting.nodes):
                (vnode,) = node.host.vnodes.values()
                found.append(sum(vnode.ownership.is_owner(key) for key in ordered))

    testing.run(main, seed=setting.seed)
    return found


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[Cell]) -> list[Table]:
    """Return the measured spread of the loads beside the published one."""
    columns = (
        Column("vnodes"),
        Column("nodes", ","),
        Column("keys", ","),
        Column("1st / mean", ".2f"),
        Column("published", ".1f"),
        Column("99th / mean", ".2f"),
        Column("published", ".1f"),
        Column("most / mean", ".1f"),
        Column("published", ".1f"),
        Column("real nodes that disagree"),
    )
    notes = (
        "The most loaded node is one draw of an extreme value, so it has no bar.",
        "The gaps of the circle are exponential. With one point a node, the 99th percentile is ln 100 = 4.6.",
    )
    bar = f"percentiles within {WITHIN:.0%} of the mean load of the published ones; no real node disagrees"
    return [Table("load_balance", "Keys per node", columns, tuple(_row(cell) for cell in result.cells), bar, notes)]


def spread(cell: Cell) -> tuple[float, float, float]:
    """Return the 1st percentile, the 99th and the largest load, over the mean."""
    mean = sum(cell.loads) / len(cell.loads)
    return percentile(cell.loads, 0.01) / mean, percentile(cell.loads, 0.99) / mean, cell.loads[-1] / mean


def _row(cell: Cell) -> Row:
    vnodes, nodes, keys, is_real, _ = cell.setting
    published = PUBLISHED_BY_RING.get((vnodes, keys)) if nodes == 10_000 else None
    low, high, most = spread(cell)
    passed: bool | None = cell.disagreements == 0 if is_real else None
    if published is not None:
        pairs = ((low, published.low), (high, published.high))
        passed = all(said is None or abs(ours - said) <= max(WITHIN, WITHIN * said) for ours, said in pairs)
    said = published or Published(None, None)
    disagree = cell.disagreements if is_real else None
    return Row((vnodes, nodes, keys, low, said.low, high, said.high, most, said.most, disagree), passed)


def draw(result: Result[Cell], figure: Figure) -> None:
    """Draw the percentiles against the number of vnodes."""
    keys = max(cell.setting.keys for cell in result.cells)
    cells = [cell for cell in result.cells if cell.setting.keys == keys and not cell.setting.is_real]
    found = {cell.setting.vnodes: spread(cell) for cell in cells}
    headline(
        figure,
        f"With {max(found)} vnodes the fullest hundredth of the nodes holds {found[max(found)][1]:.1f} times the mean "
        f"or more instead of {found[min(found)][1]:.1f} times",
    )
    axes = figure.subplots()
    vnodes = sorted(found)
    axes.fill_between(vnodes, [found[v][0] for v in vnodes], [found[v][1] for v in vnodes], color="#0072B233")
    axes.plot(vnodes, [found[v][1] for v in vnodes], **(MEASURED | {"label": "measured, 1st and 99th percentile"}))
    axes.plot(vnodes, [found[v][0] for v in vnodes], **(MEASURED | {"label": None}))
    axes.axhline(1, color=GREY, linewidth=1, label="mean")
    said = [(v, y) for (v, n), p in PUBLISHED_BY_RING.items() if n == 1_000_000 for y in p if y is not None]
    axes.plot([v for v, _ in said], [y for _, y in said], "D", color=ORANGE, label="published")
    axes.set_xticks(vnodes)
    dress(axes, "vnodes of a node", "keys of a node / mean")


EXPERIMENT = Experiment(
    name="load_balance",
    title="Keys per node, and virtual nodes",
    source="Stoica et al. 2001 (SIGCOMM), Figs. 8 and 9; 2003 (ToN), section VI-B",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"load_balance": draw},
    again=again("load_balance"),
)

"""Reproduce the figures of Golubtsov 2024, which compares five sharding schemes.

The article is "Алгоритмы шардинга (разделения) данных". It grows each scheme from 20 shards to 21. Its table has seven
rows, because the ring has three: 1, 100 and 1000 points per node. A row has the share of keys that keep their shard,
the standard deviation of keys per shard on 21 shards, and a time. Kept shares hardly depend on chance. If each key
picks its shard independently, the deviation is binomial: sqrt(m p (1 - p)) with m keys and p = 1/21. `table` sets the
printed figures beside measured ones; it is a part of `compare`. The times are in a table of `speed`.

Both figures of a ring result from the article's node names. With other names, the same ring has another kept share and
another deviation. The experiment `draws` draws the names some hundred times with the same keys. Each printed figure
should lie inside the central 99 % of the draws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.lab.experiments.common import build, moved, node_names
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, ORANGE, headline
from chord.lab.hashing import random_hashes
from chord.lab.numbers import central, sigmas_of_chi_square
from chord.lab.schemes import SCHEMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chord.lab.experiments import compare

NODES, THEN, KEYS = 20, 21, 1_000_000
KEPT_WITHIN = 0.003
ERRORS_MAX = 3.0


class Said(NamedTuple):
    """A row of Golubtsov's published table.

    Attributes:
        kept: share of the keys that keep their shard.
        std: standard deviation of keys per shard.
        is_binomial: whether each key picks its shard independently.
        time_s: time of the article's run with this scheme, in seconds.
    """

    kept: float
    std: float
    is_binomial: bool
    time_s: float


SAID = {
    "mod": Said(0.0477, 156.67, True, 0.19),
    "jump": Said(0.9524, 237.10, True, 0.32),
    "fibonacci": Said(0.0480, 222.53, True, 0.80),
    "ring": Said(0.9371, 39_882.89, False, 2.15),
    "ring-100": Said(0.9468, 6_105.93, False, 2.47),
    "ring-1000": Said(0.9525, 1_227.54, False, 2.81),
    "rendezvous": Said(0.9528, 218.09, True, 29.55),
}


def is_as_there(setting: compare.ComparisonSetting) -> bool:
    """Whether a setting repeats a row of Golubtsov's table: a million keys on 20 nodes, then 21, and its scheme."""
    keys = setting.keys
    same = (setting.nodes, setting.then, setting.weights) == (NODES, THEN, ())
    return same and keys.given is None and keys.total == KEYS and setting.scheme in SAID


def binomial_std(keys: int, nodes: int) -> float:
    """Return the standard deviation of keys per node, in keys, if each key picks a node at random."""
    return math.sqrt(keys / nodes * (1 - 1 / nodes))


def errors_off(std: float) -> float:
    """Return the distance of a standard deviation from the binomial one, in standard errors.

    Both are of a million keys on 21 nodes. The standard error of a standard deviation among m nodes is 1 / sqrt(2 (m -
    1)) of it: 16 % for 21 nodes.

    Args:
        std: standard deviation of keys per node, in keys.
    """
    return (std / binomial_std(KEYS, THEN) - 1) * math.sqrt(2 * (THEN - 1))


def by_chance(rows: int) -> float:
    """Return the probability that at least one of `rows` rows fails only by chance.

    A row fails if its standard deviation is more than 3 standard errors off the binomial one, although every key picked
    its node at random.
    """
    freedom = THEN - 1
    ends = (1 + sign * ERRORS_MAX / math.sqrt(2 * freedom) for sign in (-1, 1))
    low, high = (sigmas_of_chi_square(freedom * end**2, freedom) for end in ends)
    beyond = (math.erfc(-low / math.sqrt(2)) + math.erfc(high / math.sqrt(2))) / 2
    return float(1 - (1 - beyond) ** rows)


def table(cells: list[compare.ComparisonCell]) -> Table:
    """Return a table of the measured figures of the schemes beside Golubtsov's published ones.

    The caller passes only cells with a setting that repeats a row of the article, by `is_as_there`.
    """
    columns = (
        Column("scheme"), Column("kept", ".2%"), Column("published", ".2%"), Column("differs by", "+.2%"),
        Column("std", ",.0f"), Column("published", ",.0f"), Column("binomial std", ",.0f"),
        Column("standard errors off", "+.2f"),
    )  # fmt: skip
    rows, beyond = [], []
    for cell in sorted(cells, key=lambda cell: list(SAID).index(cell.setting.scheme)):
        said, kept = SAID[cell.setting.scheme], cell.grown.kept if cell.grown else math.nan
        std = cell.grown_loads.std if cell.grown_loads else math.nan
        errors = errors_off(std)
        passed = abs(kept - said.kept) <= KEPT_WITHIN and abs(errors) <= ERRORS_MAX
        tail = (binomial_std(KEYS, THEN), errors) if said.is_binomial else (None, None)
        values = (cell.setting.scheme, kept, said.kept, kept - said.kept, std, said.std, *tail)
        rows.append(Row(values, passed if said.is_binomial else None))
        if said.is_binomial and not abs(errors) <= ERRORS_MAX:
            beyond.append(f"{cell.setting.scheme} ({errors:+.2f})")
    judged = sum(row.passed is not None for row in rows)
    bar = (
        "kept share within 0.3 percentage points of the published one, and the std of each row within "
        f"{ERRORS_MAX:g} standard errors of the binomial one"
    )
    notes = [
        "20 nodes, then 21; the std is that of keys per node on 21. The figures of a ring depend on the names of its "
        "nodes. The experiment draws has their distribution."
    ]
    if judged:
        share = by_chance(judged)
        notes.append(
            f"With {judged} such row{'s' * (judged != 1)}, chance alone takes one or more beyond {ERRORS_MAX:g} for "
            f"{share:.1%} of all seeds, one in {1 / share:.0f}."
        )
    if beyond:
        notes.append(
            f"Beyond it here: {', '.join(beyond)}. That is chance if another --seed is within; a broken scheme is "
            "beyond it for every seed."
        )
    return Table("golubtsov", "Golubtsov's table", columns, tuple(rows), bar, tuple(notes))


# -- rings drawn again and again ---------------------------------------------------------------------

RINGS = ("ring", "ring-100", "ring-1000")
DRAWS, BATCH = 400, 25
CENTRAL = 0.99


class GolubtsovSetting(NamedTuple):
    """A batch of draws: the same ring scheme with other node names in each draw.

    Attributes:
        scheme: the name of the ring scheme.
        first: number of the batch's first draw.
        draws: number of draws in the batch.
        keys: number of keys.
        seed: the source of all random choices.
    """

    scheme: str
    first: int
    draws: int
    keys: int
    seed: int

    def __str__(self) -> str:
        return f"{self.scheme}, draws {self.first} to {self.first + self.draws - 1}"


@dataclass(frozen=True)
class GolubtsovCell:
    """The results of a batch of draws, an entry per draw.

    Attributes:
        kept: share of keys that stayed when the 21st node was added.
        stds: standard deviation of keys per node on 21 nodes, in keys.
    """

    setting: GolubtsovSetting
    kept: tuple[float, ...]
    stds: tuple[float, ...]


def plan(scale: Scale, seed: int) -> list[GolubtsovSetting]:
    """Return the batches of draws of each ring scheme."""
    draws, keys = (25, 20_000) if scale == "quick" else (DRAWS, KEYS)
    rings = [scheme for scheme in RINGS if scheme in SCHEMES]
    return [
        GolubtsovSetting(ring, first, min(BATCH, draws), keys, seed)
        for ring in rings
        for first in range(0, draws, BATCH)
    ]


def measure(setting: GolubtsovSetting) -> GolubtsovCell:
    """Grow a ring from 20 nodes to 21 for each draw of node names, and measure it."""
    # Sorted for speed: neighbouring hashes are looked up one after the other. The order does not change the result.
    hashes = np.sort(random_hashes(np.random.default_rng(setting.seed), setting.keys))
    kept, stds = [], []
    for draw in range(setting.first, setting.first + setting.draws):
        names = node_names(THEN, setting.seed * 100_000 + draw)
        placement = build(setting.scheme, names[:NODES])
        before = placement.place_many(hashes)
        placement.add(names[-1])
        after = placement.place_many(hashes)
        kept.append(moved(before, after, np.arange(NODES))[0])
        stds.append(float(np.bincount(after, minlength=THEN).std()))
    return GolubtsovCell(setting, tuple(kept), tuple(stds))


# -- the draws: what comes of it ----------------------------------------------------------------------


def gathered(result: Result[GolubtsovCell]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the results of all draws, by ring scheme: two lists of numbers.

    Each list has an entry per draw. The first has the share of the keys that stayed on their node when the 21st node
    was added. The second has the standard deviation of keys per node on the 21 nodes.
    """
    found: dict[str, tuple[list[float], list[float]]] = {}
    for cell in result.cells:
        kept, stds = found.setdefault(cell.setting.scheme, ([], []))
        kept += cell.kept
        stds += cell.stds
    return found


def tables(result: Result[GolubtsovCell]) -> list[Table]:
    """Return the range of each figure over all draws, beside the published one."""
    columns = (
        Column("ring"), Column("of"), Column("draws"), Column("mean", ",.4g"), Column("std of draws", ",.3g"),
        Column("central 99 % from", ",.4g"), Column("to", ",.4g"), Column("published", ",.6g"),
        Column("draws below it", ".0%"),
    )  # fmt: skip
    is_as_there = result.cells[0].setting.keys == KEYS
    rows = []
    for ring, (kept, stds) in gathered(result).items():
        for what, values, said in (
            ("kept share, %", [100 * share for share in kept], 100 * SAID[ring].kept),
            ("std of keys per node", stds, SAID[ring].std),
        ):
            low, high = central(values, CENTRAL)
            below = sum(value < said for value in values) / len(values)
            line = (ring, what, len(values), float(np.mean(values)), float(np.std(values)), low, high)
            # With fewer keys the spread differs, so the published figures cannot be judged.
            rows.append(Row((*line, said, below), low <= said <= high) if is_as_there else Row((*line, None, None)))
    bar = "the printed figure lies inside the central 99 % of the draws"
    notes = (f"{result.cells[0].setting.keys:,} keys on {NODES} and then {THEN} nodes; each draw has new node names.",)
    return [Table("draws", "Golubtsov's rings among draws of node names", columns, tuple(rows), bar, notes)]


def draw(result: Result[GolubtsovCell], figure: Figure) -> None:
    """Plot the distribution of each figure over the draws, with the published value."""
    found = gathered(result)
    verdicts = [row.passed for row in tables(result)[0].rows if row.passed is not None]
    draws = len(next(iter(found.values()))[0])
    finding = f"The names of its nodes decide how many keys a ring keeps: {draws} draws"
    if verdicts:
        finding = (
            f"{'All' if all(verdicts) else sum(verdicts)} of the {len(verdicts)} figures published for rings are "
            f"ordinary: inside the central 99 % of {draws} draws of node names"
        )
    headline(figure, finding)
    is_as_there = result.cells[0].setting.keys == KEYS
    grid = figure.subplots(2, len(found), squeeze=False)
    for column, (ring, (kept, stds)) in enumerate(found.items()):
        for row, (values, said, label) in enumerate(
            (
                ([100 * share for share in kept], 100 * SAID[ring].kept, "keys that stay (%)"),
                ([std / 1000 for std in stds], SAID[ring].std / 1000, "std of keys per node (thousands)"),
            )
        ):
            axes = grid[row][column]
            axes.hist(values, bins=24, color=BLUE, alpha=0.75)
            axes.axvspan(*central(values, CENTRAL), color="#0072B21A", zorder=0)
            axes.set_xlabel(label)
            axes.set_yticks([])
            axes.set_ylim(top=1.25 * axes.get_ylim()[1])
            for side in ("top", "right", "left"):
                axes.spines[side].set_visible(False)
            if row == 0:
                axes.set_title(f"{ring}: {len(values)} draws", fontsize=10)
            if row and not is_as_there:
                continue  # with fewer keys the spread differs
            axes.axvline(said, color=ORANGE, linewidth=2)
            is_right = said > float(np.mean(axes.get_xlim()))
            axes.annotate(
                f"published: {said:.4g}", (said, 0.9), xycoords=("data", "axes fraction"), color=ORANGE, fontsize=9,
                xytext=(-5 if is_right else 5, 0), textcoords="offset points",
                ha="right" if is_right else "left",
            )  # fmt: skip


EXPERIMENT = Experiment(
    name="draws",
    title="Golubtsov's rings, drawn again and again",
    source="Golubtsov 2024, «Алгоритмы шардинга (разделения) данных»: rings of 1, 100 and 1000 points a node",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"draws": draw},
    command="lab vnodes",
)

"""The ring figures of Golubtsov 2024, compared with draws of node names.

Golubtsov's table has one number for each ring, which results from the article's node names. With other names, the same
ring has another kept share and another spread. This experiment draws the names some hundred times with the same keys.
Each printed figure should lie inside the central 99 % of the draws.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.lab.experiments.common import again, build, moved, node_names
from chord.lab.experiments.fourth_text import KEYS, NODES, SAID, THEN
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, ORANGE, headline
from chord.lab.hashing import random_hashes
from chord.lab.numbers import central
from chord.lab.schemes import SCHEMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RINGS = ("ring", "ring-100", "ring-1000")
DRAWS, BATCH = 400, 25
CENTRAL = 0.99


class Setting(NamedTuple):
    """Some draws of one ring.

    Attributes:
        scheme: name of the ring.
        first: number of the first draw.
        draws: number of draws.
        keys: number of keys.
        seed: seed of keys and names.
    """

    scheme: str
    first: int
    draws: int
    keys: int
    seed: int

    def __str__(self) -> str:
        return f"{self.scheme}, draws {self.first} to {self.first + self.draws - 1}"


@dataclass(frozen=True)
class Cell:
    """The results of the draws.

    Attributes:
        setting: the draws.
        kept: share of keys that stayed from 20 to 21 nodes, in each draw.
        stds: std of keys per node on 21 nodes, in each draw.
    """

    setting: Setting
    kept: tuple[float, ...]
    stds: tuple[float, ...]


def plan(scale: Scale, seed: int) -> list[Setting]:
    """Return the draws in batches."""
    draws, keys = (25, 20_000) if scale == "quick" else (DRAWS, KEYS)
    rings = [scheme for scheme in RINGS if scheme in SCHEMES]
    return [Setting(ring, first, min(BATCH, draws), keys, seed) for ring in rings for first in range(0, draws, BATCH)]


def measure(setting: Setting) -> Cell:
    """Draw node names, place the keys on 20 nodes, add a node, place them again."""
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
    return Cell(setting, tuple(kept), tuple(stds))


# -- what comes of it ---------------------------------------------------------------------------------


def gathered(result: Result[Cell]) -> dict[str, tuple[list[float], list[float]]]:
    """Return the kept shares and the stds of all draws, by ring."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for cell in result.cells:
        kept, stds = found.setdefault(cell.setting.scheme, ([], []))
        kept += cell.kept
        stds += cell.stds
    return found


def tables(result: Result[Cell]) -> list[Table]:
    """Return the range of the draws beside the printed figures."""
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


def draw(result: Result[Cell], figure: Figure) -> None:
    """Draw the distributions, with the printed figures in them."""
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


def experiment() -> Experiment[Setting, Cell]:
    """Return the experiment on draws of node names."""
    return Experiment(
        name="draws",
        title="Golubtsov's rings, drawn again and again",
        source="Golubtsov 2024, «Алгоритмы шардинга (разделения) данных»: rings of 1, 100 and 1000 points a node",
        plan=plan,
        measure=measure,
        tables=tables,
        pictures={"draws": draw},
        again=again("vnodes"),
    )

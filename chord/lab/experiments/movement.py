"""The cost of growth: nodes are added one by one, and all moved keys are counted.

From n to n + 1 nodes, a scheme that only fills the new node moves 1 / (n + 1) of the keys. A scheme that places keys
anew by the number of nodes moves n / (n + 1). From m nodes to n, the first kind moves H(n) - H(m) times the whole data,
with H the harmonic numbers. That is the logarithm of the growth. The second kind moves nearly the whole data for each
added node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.lab.experiments.common import Factory, build, grow, node_names, room
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, PURPLE, dress, headline
from chord.lab.hashing import random_hashes
from chord.lab.schemes import SCHEMES
from chord.lab.theory import harmonic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST, LAST, KEYS = 4, 64, 50_000
SHOWN = {"mod": ORANGE, "mod-factor": PURPLE, "ring-100": GREEN, "jump": BLUE}


class MovementSetting(NamedTuple):
    """A scheme that grows from `first` nodes to `last`, one node at a time."""

    scheme: str
    first: int
    last: int
    keys: int
    seed: int
    factory: Factory

    def __str__(self) -> str:
        return self.scheme


@dataclass(frozen=True)
class MovementCell:
    """The keys that one scheme moved while it grew.

    Attributes:
        nodes: number of nodes at first and after each step; only the first if the scheme cannot grow.
        moved: share of the keys that each step moved; one entry per step.
        between_old: number of keys that moved between two nodes that stayed, in all steps.
        is_consistent: whether the scheme claims that it never moves such a key.
    """

    setting: MovementSetting
    nodes: tuple[int, ...]
    moved: tuple[float, ...]
    between_old: int
    is_consistent: bool

    @property
    def copies(self) -> float:
        """The moved data of all steps, as a multiple of the whole data."""
        return sum(self.moved)


def plan(scale: Scale, seed: int) -> list[MovementSetting]:
    """Return one setting for each scheme: the growth to measure."""
    keys, last = (2_000, 8) if scale == "quick" else (KEYS, LAST)
    return [MovementSetting(scheme, FIRST, last, keys, seed, factory) for scheme, factory in SCHEMES.items()]


def measure(setting: MovementSetting) -> MovementCell:
    """Grow a scheme, and count the keys that each step moves.

    A scheme that cannot grow by one node grows in its own steps.
    """
    names = node_names(setting.first, setting.seed)
    placement = build(setting.factory, names, **room(setting.scheme, setting.last))
    hashes = random_hashes(np.random.default_rng(setting.seed), setting.keys)
    nodes, shares, between = [setting.first], [], 0
    while nodes[-1] < setting.last:
        step = grow(placement, hashes, nodes[-1] + 1, setting.seed)
        if step is None:
            break
        nodes.append(step.now)
        shares.append(1 - step.kept)
        between += step.between_old
    return MovementCell(setting, tuple(nodes), tuple(shares), between, placement.is_consistent)


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[MovementCell]) -> list[Table]:
    """Return the data that each scheme moved while it grew."""
    first, last = result.cells[0].setting.first, result.cells[0].setting.last
    ideal = harmonic(last) - harmonic(first)
    columns = (
        Column("scheme"), Column("steps", "d"), Column("data moved, times all of it", ".2f"),
        Column("over an even scheme's", ".2f"),
        Column("largest step", ".1%"), Column("between old nodes, times all of it", ".2f"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        keys = cell.setting.keys
        if not cell.moved:
            rows.append(Row((cell.setting.scheme, 0, None, None, None, None)))
            continue
        passed = cell.between_old == 0 if cell.is_consistent else None
        between = cell.between_old / keys
        values = (cell.setting.scheme, len(cell.moved), cell.copies, cell.copies / ideal, max(cell.moved), between)
        rows.append(Row(values, passed))
    notes = (
        f"From {first} nodes to {last}, {result.cells[0].setting.keys:,} keys. Node by node, a scheme that stays even "
        f"moves at least H({last}) - H({first}) = {ideal:.2f} times the data; an uneven one may move less.",
        "Doubling moves half of the data at each step.",
    )
    bar = "a scheme that claims to be consistent moves no key between nodes that stay"
    return [Table("movement", "What growing costs", columns, tuple(rows), bar, notes)]


def draw(result: Result[MovementCell], figure: Figure) -> None:
    """Plot the data moved so far against the nodes, for a few schemes of each kind."""
    cells = {cell.setting.scheme: cell for cell in result.cells if cell.setting.scheme in SHOWN and cell.moved}
    first, last = result.cells[0].setting.first, result.cells[0].setting.last
    high = max(cells.values(), key=lambda cell: cell.copies)
    even = cells.get("jump", min(cells.values(), key=lambda cell: cell.copies))
    headline(
        figure,
        f"From {first} to {last} nodes, one by one, {even.setting.scheme} moves all data {even.copies:.1f} times, the "
        f"logarithm of the growth; {high.setting.scheme} moves it {high.copies:.0f} times",
    )
    axes = figure.subplots()
    least = range(first, last + 1)
    axes.plot(least, [max(harmonic(n) - harmonic(first), 1e-9) for n in least], color="black", linestyle="--",
              linewidth=1, zorder=5, label=f"even at every n: H(n) - H({first})")  # fmt: skip
    for scheme, colour in SHOWN.items():
        if scheme in cells:
            copies = np.concatenate([[0.0], np.cumsum(cells[scheme].moved)])
            nodes = cells[scheme].nodes
            is_steps = len(nodes) < 10
            axes.plot(nodes[(is_steps and 0) or 1 :], copies[(is_steps and 0) or 1 :], color=colour,
                      marker="o" if is_steps else None, drawstyle="steps-post" if is_steps else "default",
                      label=f"{scheme}: {copies[-1]:.1f}")  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(0.15, 150)
    axes.set_yticks([0.2, 0.5, 1, 2, 5, 10, 20, 50], ["0.2", "0.5", "1", "2", "5", "10", "20", "50"])
    axes.locator_params(axis="x", integer=True)
    dress(axes, "nodes", "data moved since the beginning, times all of it", is_from_zero=False)


EXPERIMENT = Experiment(
    name="movement",
    title="What growing costs",
    source="Golubtsov 2024: 20 to 21 nodes by the remainder moves about 95 %; Karger et al. 1997 for the least",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"movement": draw},
    command="lab movement",
)

"""Dynamo's three partition strategies: efficiency against membership.

As in the paper, there are 30 nodes and 3 copies. The tokens of strategies 1 and 2 and the partitions of strategy 3 are
chosen to make the membership of all three about equally large. Strategy 2 has ten partitions per token, because the
paper wants many more partitions than tokens. Each layout is drawn many times.

Source: DeCandia et al. 2007 (SOSP), section 6.2 and Fig. 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, get_args

import numpy as np

from chord.lab.experiments.common import again
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, dress, headline
from chord.lab.numbers import mean_error
from chord.lab.partitions import (
    NODE_BYTES,
    STRATEGIES,
    TOKEN_BYTES,
    Partitions,
    Strategy,
    by_equal_parts,
    by_shared_parts,
    by_token,
    efficiency,
    metadata_bytes,
    shares,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, COPIES, DRAWS = 30, 3, 100
BUDGETS = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
PARTS_PER_TOKEN = 10
LOOKS: dict[Strategy, tuple[str, str]] = {1: (BLUE, "o"), 2: (ORANGE, "s"), 3: (GREEN, "^")}


class Setting(NamedTuple):
    """A strategy and its layout: tokens per node, and equal partitions."""

    strategy: Strategy
    tokens: int
    parts: int
    nodes: int
    draws: int
    seed: int

    def __str__(self) -> str:
        return f"strategy {self.strategy}, {self.tokens} tokens, {self.parts} partitions"

    @property
    def size(self) -> int:
        """Membership kept at each node, in bytes."""
        return metadata_bytes(self.strategy, self.nodes, self.tokens, self.parts)


@dataclass(frozen=True)
class Cell:
    """The efficiency of each layout: mean load over the largest.

    Attributes:
        setting: the strategy and its layout.
        efficiencies: efficiency of each drawn layout.
        by_token: efficiency of strategy 1 with the same number of tokens, at any size of membership. Measured for
            strategy 2 only, otherwise empty.
    """

    setting: Setting
    efficiencies: tuple[float, ...]
    by_token: tuple[float, ...] = ()


def laid_out(strategy: Strategy, nodes: int, budget: int) -> tuple[int, int]:
    """Return the tokens per node and the equal partitions that fit a budget.

    The budget is the size of the membership, in bytes.
    """
    if strategy == 3:
        parts = max(1, budget // NODE_BYTES // nodes) * nodes
        return parts // nodes, parts
    each = TOKEN_BYTES + NODE_BYTES + (PARTS_PER_TOKEN * NODE_BYTES if strategy == 2 else 0)
    tokens = max(1, budget // each // nodes)
    return tokens, PARTS_PER_TOKEN * nodes * tokens if strategy == 2 else 0


def plan(scale: Scale, seed: int) -> list[Setting]:
    """Return every strategy at every size of membership."""
    draws = 20 if scale == "quick" else DRAWS
    every: tuple[Strategy, ...] = get_args(Strategy)
    return [Setting(s, *laid_out(s, NODES, budget), NODES, draws, seed) for budget in BUDGETS for s in every]


def measure(setting: Setting) -> Cell:
    """Draw layouts, and compute the efficiency of each."""
    rng = np.random.default_rng([setting.seed, setting.strategy, setting.parts, setting.tokens])
    found = [efficiency(shares(_draw(setting, rng), setting.nodes, COPIES)) for _ in range(setting.draws)]
    if setting.strategy != 2:
        return Cell(setting, tuple(found))
    plain = [by_token(setting.nodes, setting.tokens, rng) for _ in range(setting.draws)]
    return Cell(setting, tuple(found), tuple(efficiency(shares(each, setting.nodes, COPIES)) for each in plain))


def _draw(setting: Setting, rng: np.random.Generator) -> Partitions:
    if setting.strategy == 1:
        return by_token(setting.nodes, setting.tokens, rng)
    if setting.strategy == 2:
        return by_equal_parts(setting.nodes, setting.tokens, setting.parts, rng)
    return by_shared_parts(setting.nodes, setting.parts, rng)


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[Cell]) -> list[Table]:
    """Return the efficiencies, side by side at about the same size."""
    columns = (
        Column("strategy"), Column("what"), Column("tokens per node"), Column("equal partitions", ","),
        Column("membership (bytes)", ","), Column("efficiency", ".3f"), Column("± s.e.", ".3f"),
        Column("worst layout", ".3f"), Column("strategy 1 with as many tokens", ".3f"),
    )  # fmt: skip
    ranked = _in_order(result)
    rows = []
    for cell in result.cells:
        shape, (mean, error) = cell.setting, mean_error(cell.efficiencies)
        parts = shape.parts or None
        values = (shape.strategy, STRATEGIES[shape.strategy], shape.tokens, parts, shape.size, mean, error)
        plain = float(np.mean(cell.by_token)) if cell.by_token else None
        rows.append(Row((*values, min(cell.efficiencies), plain), ranked[shape]))
    notes = (
        f"{NODES} nodes, {COPIES} copies, {result.cells[0].setting.draws} layouts each. A token takes {TOKEN_BYTES} "
        f"bytes and a node's number {NODE_BYTES}; Fig. 8 of the paper has no units.",
        "With equally many tokens, strategies 1 and 2 are alike. At a given size strategy 2 is the least even, as it "
        "has a third of the tokens. It also keeps the owners of its partitions.",
        "Efficiency counts copies. Even if all nodes have equally many partitions, chance deals out the copies.",
    )
    bar = "at every size strategy 3 is the most even and 2 the least, as published"
    return [Table("strategies", "Dynamo's partition strategies", columns, tuple(rows), bar, notes)]


def _in_order(result: Result[Cell]) -> dict[Setting, bool]:
    """Return for each setting whether the three of its size are in published order."""
    found: dict[Setting, bool] = {}
    cells = list(result.cells)
    for at in range(0, len(cells), 3):
        three = cells[at : at + 3]
        first, second, third = (float(np.mean(cell.efficiencies)) for cell in three)
        found |= {cell.setting: third > first > second for cell in three}
    return found


def draw(result: Result[Cell], figure: Figure) -> None:
    """Draw efficiency against the size of the membership."""
    by_strategy = {s: [cell for cell in result.cells if cell.setting.strategy == s] for s in LOOKS}
    third = by_strategy[3][0]
    enough = next((c for c in by_strategy[1] if np.mean(c.efficiencies) >= np.mean(third.efficiencies)), None)
    times = (
        f"more than {by_strategy[1][-1].setting.size // third.setting.size}"
        if enough is None
        else (f"{enough.setting.size // third.setting.size}")
    )
    headline(
        figure,
        f"Equal partitions shared out evenly (strategy 3) reach {np.mean(third.efficiencies):.0%} with "
        f"{third.setting.size:,} bytes of membership; random tokens need {times} times as much",
    )
    axes = figure.subplots()
    for s, cells in by_strategy.items():
        colour, marker = LOOKS[s]
        sizes = [cell.setting.size for cell in cells]
        low, high = zip(*(np.quantile(cell.efficiencies, [0.05, 0.95]) for cell in cells), strict=True)
        axes.fill_between(sizes, low, high, color=colour + "26")
        axes.plot(sizes, [float(np.mean(cell.efficiencies)) for cell in cells], color=colour, marker=marker,
                  label=f"{s}: {STRATEGIES[s]}")  # fmt: skip
    axes.set_xscale("log")
    axes.set_xticks(list(BUDGETS), [f"{budget // 1000} kB" for budget in BUDGETS])
    axes.minorticks_off()
    axes.set_ylim(0, 1.02)
    dress(axes, "membership kept at each node", "efficiency: mean load / largest load", is_from_zero=False)
    axes.set_ylim(0, 1.02)
    axes.legend(frameon=False, fontsize=9, loc="lower right", title="mean; band: nine of ten layouts", title_fontsize=9)


def experiment() -> Experiment[Setting, Cell]:
    """Return the experiment on partition strategies."""
    return Experiment(
        name="strategies",
        title="Dynamo's partition strategies",
        source="DeCandia et al. 2007 (SOSP), section 6.2 and Fig. 8: 30 nodes, 3 copies",
        plan=plan,
        measure=measure,
        tables=tables,
        pictures={"strategies": draw},
        again=again("strategies"),
    )

"""Dynamo's three partition strategies: evenness against the size of metadata.

- Strategy 1: T random tokens per node. Each partition ends at a token and begins at the one before.
- Strategy 2: T random tokens per node, Q equal partitions. Each belongs to the first token at or after its end.
- Strategy 3: Q/S tokens per node, Q equal partitions, shared out among the S nodes in equal numbers.

The first N distinct nodes clockwise from a partition's end store it. A node's load is the share of the circle that it
stores, with each of the N copies counted. *Efficiency* is the mean load over the largest load.

*Membership* is the state about the others that every node keeps. It consists of tokens in strategy 1, of tokens and
partition owners in strategy 2, and of partition owners in strategy 3.

As in the paper, there are 30 nodes and 3 copies. The tokens of strategies 1 and 2 and the partitions of strategy 3 are
chosen to make the membership of all three about equally large. Strategy 2 has ten partitions per token, because the
paper wants many more partitions than tokens. Each layout is drawn many times.

Source: DeCandia et al. 2007 (SOSP), section 6.2 and Fig. 8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, ORANGE, dress, headline
from chord.lab.numbers import mean_error

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Strategy: TypeAlias = Literal[1, 2, 3]

STRATEGIES: dict[Strategy, str] = {
    1: "random tokens, partition by token value",
    2: "random tokens, equal partitions",
    3: "Q/S tokens, equal partitions",
}
TOKEN_BYTES, NODE_BYTES = 16, 4  # a point on Dynamo's 128-bit circle; a node's number
NODES, COPIES, DRAWS = 30, 3, 100
BUDGETS = (2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000)
PARTS_PER_TOKEN = 10
LOOKS: dict[Strategy, tuple[str, str]] = {1: (BLUE, "o"), 2: (ORANGE, "s"), 3: (GREEN, "^")}


# -- the strategies ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Partitions:
    """A layout: the partitions of the circle, and the nodes that store each of them.

    Attributes:
        sizes: share of the circle of each partition, shape (P,); the sum is 1.
        walk: node number at each successive point of the circle, clockwise, shape (M,). The points are tokens, or in
            strategy 3 partitions.
        first: index into `walk` of each partition's first node, shape (P,). Its further nodes follow there.
    """

    sizes: NDArray[np.float64]
    walk: NDArray[np.intp]
    first: NDArray[np.intp]


def by_token(nodes: int, tokens: int, rng: np.random.Generator) -> Partitions:
    """Return a random layout by strategy 1: each token ends a partition.

    Args:
        nodes: number of nodes.
        tokens: number of random tokens per node.
        rng: draws the tokens.
    """
    at, owners = _draw_tokens(nodes, tokens, rng)
    sizes = np.diff(at, prepend=at[-1] - 1.0)
    return Partitions(sizes, owners, np.arange(len(at)))


def by_equal_parts(nodes: int, tokens: int, parts: int, rng: np.random.Generator) -> Partitions:
    """Return a random layout by strategy 2: equal partitions, assigned by tokens.

    Args:
        nodes: number of nodes.
        tokens: number of random tokens per node.
        parts: number of partitions.
        rng: draws the tokens.
    """
    at, owners = _draw_tokens(nodes, tokens, rng)
    ends = np.arange(1, parts + 1) / parts
    return Partitions(np.full(parts, 1 / parts), owners, np.searchsorted(at, ends) % len(at))


def by_shared_parts(nodes: int, parts: int, rng: np.random.Generator) -> Partitions:
    """Return a random layout by strategy 3: equal partitions, in equal numbers.

    The numbers of partitions of any two nodes differ by at most one.

    Args:
        nodes: number of nodes.
        parts: number of partitions.
        rng: draws the owners of the partitions.

    Raises:
        ValueError: there are fewer partitions than nodes, so that some nodes would have none.
    """
    if parts < nodes:
        raise ValueError(f"{parts} partitions are too few for {nodes} nodes")
    owners = rng.permutation(np.arange(parts) % nodes)
    return Partitions(np.full(parts, 1 / parts), owners, np.arange(parts))


def _draw_tokens(nodes: int, tokens: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    at = rng.random(nodes * tokens)
    order = np.argsort(at)
    return at[order], order // tokens


def shares(found: Partitions, nodes: int, copies: int) -> NDArray[np.float64]:
    """Return the share of the circle that each node stores; shape (nodes,).

    All copies are counted, so the sum is the number of copies. The first `copies` distinct nodes clockwise from a
    partition's end store it. If there are fewer nodes, all of them do.

    Args:
        found: the layout.
        nodes: number of nodes.
        copies: number of nodes that store each partition.
    """
    copies = min(copies, nodes)
    total = len(found.walk)
    stored = np.full((len(found.first), copies), -1, np.intp)
    have = np.zeros(len(found.first), np.intp)
    at = found.first.copy()
    open_ = np.arange(len(at))
    while open_.size:
        owner = found.walk[at[open_] % total]
        new = (stored[open_] != owner[:, None]).all(axis=1)
        stored[open_[new], have[open_[new]]] = owner[new]
        have[open_] += new
        at[open_] += 1
        open_ = open_[have[open_] < copies]
    weights = np.repeat(found.sizes, copies)
    return np.asarray(np.bincount(stored.ravel(), weights=weights, minlength=nodes), np.float64)


def efficiency(loads: NDArray[np.float64]) -> float:
    """Return the evenness of the nodes' loads: the mean load over the largest.

    The result is 1 if all loads are equal.
    """
    return float(loads.mean() / loads.max())


def metadata_bytes(strategy: Strategy, nodes: int, tokens: int, parts: int) -> int:
    """Return the size of the membership state that each node keeps, in bytes.

    Strategy 1 keeps each token with its node. Strategy 2 also keeps the owner of each partition, so that a node need
    not walk to find it. Strategy 3 keeps the owner of each partition only, because the partition's number gives its
    position.

    Args:
        strategy: 1, 2 or 3.
        nodes: number of nodes.
        tokens: tokens per node; strategy 3 ignores them.
        parts: number of equal partitions; strategy 1 ignores it.
    """
    by_tokens, by_parts = nodes * tokens * (TOKEN_BYTES + NODE_BYTES), parts * NODE_BYTES
    return {1: by_tokens, 2: by_tokens + by_parts, 3: by_parts}[strategy]


# -- the experiment ----------------------------------------------------------------------------------


class StrategySetting(NamedTuple):
    """A strategy, and the size of its layout, which is drawn several times.

    Attributes:
        tokens: tokens per node.
        parts: number of equal partitions; 0 for strategy 1.
        draws: number of random layouts.
    """

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
        """The membership state that each node keeps, in bytes."""
        return metadata_bytes(self.strategy, self.nodes, self.tokens, self.parts)


@dataclass(frozen=True)
class StrategyCell:
    """The evenness of each random layout: the mean load over the largest.

    Attributes:
        efficiencies: the result for each layout; 1 if all loads are equal.
        by_token: the results for strategy 1 with as many tokens, but any size of membership state. Empty unless the
            strategy is 2.
    """

    setting: StrategySetting
    efficiencies: tuple[float, ...]
    by_token: tuple[float, ...] = ()


def laid_out(strategy: Strategy, nodes: int, budget: int) -> tuple[int, int]:
    """Return the sizes of the largest layout with a membership state of at most `budget` bytes.

    The layout is that of `nodes` nodes. A node has at least one token, even if the state then exceeds the budget.

    Returns:
        the tokens per node, and the number of equal partitions; 0 for strategy 1.
    """
    if strategy == 3:
        parts = max(1, budget // NODE_BYTES // nodes) * nodes
        return parts // nodes, parts
    each = TOKEN_BYTES + NODE_BYTES + (PARTS_PER_TOKEN * NODE_BYTES if strategy == 2 else 0)
    tokens = max(1, budget // each // nodes)
    return tokens, PARTS_PER_TOKEN * nodes * tokens if strategy == 2 else 0


def plan(scale: Scale, seed: int) -> list[StrategySetting]:
    """Return one setting for each strategy and size of the membership state."""
    draws = 20 if scale == "quick" else DRAWS
    every: tuple[Strategy, ...] = get_args(Strategy)
    return [StrategySetting(s, *laid_out(s, NODES, budget), NODES, draws, seed) for budget in BUDGETS for s in every]


def measure(setting: StrategySetting) -> StrategyCell:
    """Measure the evenness of random layouts by one strategy."""
    rng = np.random.default_rng([setting.seed, setting.strategy, setting.parts, setting.tokens])
    found = [efficiency(shares(_draw(setting, rng), setting.nodes, COPIES)) for _ in range(setting.draws)]
    if setting.strategy != 2:
        return StrategyCell(setting, tuple(found))
    plain = [by_token(setting.nodes, setting.tokens, rng) for _ in range(setting.draws)]
    return StrategyCell(setting, tuple(found), tuple(efficiency(shares(each, setting.nodes, COPIES)) for each in plain))


def _draw(setting: StrategySetting, rng: np.random.Generator) -> Partitions:
    if setting.strategy == 1:
        return by_token(setting.nodes, setting.tokens, rng)
    if setting.strategy == 2:
        return by_equal_parts(setting.nodes, setting.tokens, setting.parts, rng)
    return by_shared_parts(setting.nodes, setting.parts, rng)


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[StrategyCell]) -> list[Table]:
    """Return the evenness of each strategy, at about equal sizes of its metadata."""
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


def _in_order(result: Result[StrategyCell]) -> dict[StrategySetting, bool]:
    """Return whether the strategies rank as published, for each size of metadata.

    The published order of evenness is 3, 1, 2. The three settings of one size get the same answer.
    """
    found: dict[StrategySetting, bool] = {}
    cells = list(result.cells)
    for at in range(0, len(cells), 3):
        three = cells[at : at + 3]
        first, second, third = (float(np.mean(cell.efficiencies)) for cell in three)
        found |= {cell.setting: third > first > second for cell in three}
    return found


def draw(result: Result[StrategyCell], figure: Figure) -> None:
    """Plot the evenness of each strategy against the size of its metadata."""
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


EXPERIMENT = Experiment(
    name="strategies",
    title="Dynamo's partition strategies",
    source="DeCandia et al. 2007 (SOSP), section 6.2 and Fig. 8: 30 nodes, 3 copies",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"strategies": draw},
    command="lab strategies",
)

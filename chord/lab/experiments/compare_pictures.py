"""The plots of the comparison: evenness, and movement when a node is added."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from chord.lab.experiments.common import chance_deviation
from chord.lab.harness.experiment import Result
from chord.lab.harness.plot import BLUE, GREY, ORANGE, dress, headline, make_room

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chord.lab.experiments.compare import Cell, Setting

CLOSE = 1.5
"""Factor up to which a std counts as even as chance allows.

The std of 20 nodes has a standard error of 16 % of its mean, and three of them are allowed.
"""


def of_most_keys(result: Result[Cell]) -> Setting:
    """Return the setting of a scheme that got all keys, not a sample of them."""
    return max((cell.setting for cell in result.cells), key=lambda setting: setting.keys.total)


def _name(cell: Cell, all_keys: int) -> str:
    """Return the scheme's name, and the number of keys if it got a sample."""
    total = cell.setting.keys.total
    return cell.setting.scheme + f" ({total:,} keys)" * (total < all_keys)


def draw_evenness(result: Result[Cell], figure: Figure) -> None:
    """Draw the deviation of every scheme, from even to uneven."""
    cells = sorted(result.cells, key=lambda cell: cell.loads.deviation)
    setting = of_most_keys(result)
    chance = chance_deviation(setting.keys, setting.nodes)
    has_law = not setting.weights  # the law holds for nodes of equal weight
    close = sum(cell.loads.deviation <= CLOSE * chance_deviation(cell.setting.keys, cell.nodes) for cell in cells)
    best, worst = cells[0], cells[-1]
    first = f"{close} of {len(cells)} schemes are as even as chance allows"
    if not has_law:
        first = f"The std of {best.setting.scheme} is {best.loads.deviation:.1%} of the mean"
    headline(figure, f"{first}; {worst.setting.scheme} is off by {worst.loads.deviation:.0%} of the mean")
    make_room(figure, len(cells))
    axes = figure.subplots()
    places = range(len(cells))
    lowest = min(cell.loads.deviation for cell in cells)
    floor = 10 ** math.floor(math.log10(max(lowest, 1e-6)))
    axes.hlines(places, floor, [max(cell.loads.deviation, floor) for cell in cells], color="#BBBBBB", linewidth=1)
    axes.plot([max(cell.loads.deviation, floor) for cell in cells], places, "o", color=BLUE)
    if has_law:
        axes.axvline(max(chance, floor), color=ORANGE, linestyle="--", label="keys that pick a node by chance")
        axes.axvspan(floor, max(CLOSE * chance, floor), color="#E69F0018", label=f"up to {CLOSE:g} times that")
    axes.set_yticks(places, [_name(cell, setting.keys.total) for cell in cells])
    axes.set_xscale("log")
    axes.set_ylim(-0.8, len(cells) - 0.2)
    axes.set_xticks([tick * 10.0**power for power in range(-6, 2) for tick in (1, 2, 5) if tick * 10.0**power >= floor])
    axes.set_xlim(floor, 1.5 * max(cells[-1].loads.deviation, chance, 2 * floor))
    axes.minorticks_off()
    dress(
        axes,
        f"std of {'keys per node, relative to weights' if setting.weights else 'keys per node'} / mean, "
        f"{setting.keys.total:,} keys on {setting.nodes} nodes",
        "",
        is_from_zero=False,
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    if has_law:
        axes.legend(frameon=False, fontsize=9, loc="lower right")


def draw_stability(result: Result[Cell], figure: Figure) -> None:
    """Draw the keys that move when a node is added, by destination."""
    cells = [
        cell for cell in result.cells if cell.grown is not None and cell.grown.was < cell.grown.now <= cell.setting.then
    ]
    if not cells:
        headline(figure, f"No scheme here grows from {result.cells[0].setting.nodes} nodes to the requested number")
        return
    keys, then = of_most_keys(result).keys.total, cells[0].setting.then
    needless = [cell.setting.scheme for cell in cells if cell.grown and cell.grown.between_old]
    others = len(cells) - len(needless)
    shuffle = f"{', '.join(needless)} shuffle{'s' * (len(needless) == 1)} keys between old nodes"
    only = f"{others} scheme{'s' * (others != 1)} move{'s' * (others == 1)} the newcomer's share only"
    parts = [shuffle] * bool(needless) + [only] * bool(others)
    headline(figure, f"From {cells[0].setting.nodes} nodes to {then}, " + "; ".join(parts))
    make_room(figure, len(cells))
    axes = figure.subplots()
    cells = sorted(cells, key=lambda cell: -cell.grown.kept if cell.grown else 0)
    places = range(len(cells))
    between = [cell.grown.between_old / cell.setting.keys.total if cell.grown else 0 for cell in cells]
    to_new = [1 - cell.grown.kept - share if cell.grown else 0 for cell, share in zip(cells, between, strict=True)]
    axes.barh(places, to_new, color=BLUE, label="to the new node")
    axes.barh(places, between, left=to_new, color=ORANGE, label="between old nodes")
    ideal = 1 - cells[0].grown.ideal if cells[0].grown else 0
    axes.axvline(ideal, color=GREY, linestyle="--", label="ideal: the new node's fair share")
    axes.set_yticks(places, [_name(cell, keys) for cell in cells])
    axes.set_ylim(-0.8, len(cells) - 0.2)
    drawn = {cell.setting.scheme for cell in cells}
    others_too = [cell.setting.scheme for cell in result.cells if cell.setting.scheme not in drawn]
    left_out = f" (not drawn, with other steps of growth or none: {', '.join(others_too)})" * bool(others_too)
    dress(axes, f"share of keys that move{left_out}", "", is_from_zero=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(frameon=False, fontsize=9, loc="center right")

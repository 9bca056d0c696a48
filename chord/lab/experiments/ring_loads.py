"""Shares of the circle on a ring too large to run, with one or several vnodes.

A node with one point owns the gap before it, which is exponential. One node in a hundred has ln 100 = 4.6 times the
mean or more. The largest of N nodes has about ln N + 0.58 times the mean. With v points, a node's share is a sum of v
such gaps.

Source: Stoica et al. 2001 (SIGCOMM), Figs. 8 and 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.lab.bigring import BigRing
from chord.lab.experiments.common import again
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREEN, GREY, ORANGE, dress, headline
from chord.lab.numbers import Spread, spread
from chord.lab.theory import harmonic, share_deviation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

VNODES = (1, 5, 20)
COLOURS = {1: BLUE, 5: GREEN, 20: ORANGE}
BINS = np.linspace(0, 6, 121)
POINTS_MAX = 5_000_000

PUBLISHED = {1: (0.0, 4.8), 20: (0.5, 1.6)}
WITHIN = 0.10


class Setting(NamedTuple):
    """A ring of `nodes` nodes with `vnodes` points each."""

    vnodes: int
    nodes: int
    seed: int

    def __str__(self) -> str:
        return f"shares of {self.nodes:,} nodes with {self.vnodes} vnodes"


@dataclass(frozen=True)
class Cell:
    """The spread of the shares.

    Attributes:
        setting: the ring.
        spread: spread of the shares, with a mean of 1.
        histogram: number of nodes in each of `BINS`, in multiples of the mean share.
    """

    setting: Setting
    spread: Spread
    histogram: tuple[int, ...]


def plan(nodes: int, scale: Scale, seed: int) -> list[Setting]:
    """Return the ring with each number of vnodes.

    It has fewer nodes if there would be too many points to sort in a short time.
    """
    return [Setting(vnodes, nodes if vnodes == 1 else min(nodes, POINTS_MAX // vnodes), seed) for vnodes in VNODES]


def measure(setting: Setting) -> Cell:
    """Draw the points, and add up the share of each node."""
    rng = np.random.default_rng([setting.seed, setting.nodes, setting.vnodes])
    gaps = BigRing.draw(setting.nodes * setting.vnodes, rng).shares()
    if setting.vnodes > 1:  # the assignment of gaps to nodes is as random as the points
        rng.shuffle(gaps)
    shares = gaps.reshape(setting.nodes, setting.vnodes).sum(axis=1) * setting.nodes
    return Cell(setting, spread(shares), tuple(np.histogram(shares, BINS)[0].tolist()))


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[Cell]) -> list[Table]:
    """Return the measured spread of the shares beside the published one."""
    columns = (
        Column("vnodes"), Column("nodes", ","), Column("std / mean", ".3f"), Column("law", ".3f"),
        Column("1st / mean", ".2f"),
        Column("published", ".1f"), Column("99th / mean", ".2f"), Column("published", ".1f"),
        Column("most / mean", ".1f"),
        Column("law", ".1f"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        vnodes, nodes, _ = cell.setting
        found, law = cell.spread, share_deviation(nodes, vnodes)
        low, high = PUBLISHED.get(vnodes, (None, None))
        passed = abs(found.deviation / law - 1) <= WITHIN if nodes >= 1000 else None
        if high is not None and low is not None and nodes >= 1000:
            by_chance = 3 * 10 / math.sqrt(nodes)  # three standard errors of an exponential's 99th percentile
            passed = passed and abs(found.high - high) <= WITHIN * high + by_chance and abs(found.low - low) <= WITHIN
        most = harmonic(nodes) if vnodes == 1 else None
        rows.append(
            Row((vnodes, nodes, found.deviation, law, found.low, low, found.high, high, found.most, most), passed)
        )
    bar = f"std within {WITHIN:.0%} of the law, percentiles of the published (10,000 nodes) and chance"
    notes = ("The largest share is one draw of an extreme value, with mean H(N) at one point a node. It has no bar.",)
    return [Table("ring_loads", "Shares of the circle", columns, tuple(rows), bar, notes)]


def draw(result: Result[Cell], figure: Figure) -> None:
    """Draw the distribution of shares for each number of vnodes."""
    first, last = result.cells[0], result.cells[-1]
    headline(
        figure,
        f"Of {first.setting.nodes:,} nodes one in a hundred has {first.spread.high:.1f} times its fair share or more; "
        f"with {last.setting.vnodes} vnodes {last.spread.high:.1f} times",
    )
    axes = figure.subplots()
    middle = (BINS[1:] + BINS[:-1]) / 2
    for number, cell in enumerate(result.cells):
        density = np.array(cell.histogram) / cell.setting.nodes / (BINS[1] - BINS[0])
        vnodes = cell.setting.vnodes
        axes.plot(
            middle, density, color=COLOURS[vnodes], linewidth=3, label=f"measured, {vnodes} vnode{'s' * (vnodes > 1)}"
        )
        law = np.exp(vnodes * math.log(vnodes) + (vnodes - 1) * np.log(middle) - vnodes * middle - math.lgamma(vnodes))
        axes.plot(middle, law, color="black", linewidth=1, linestyle=":", label="law: gamma" if cell is last else None)
        axes.axvline(cell.spread.high, color=COLOURS[vnodes], linewidth=1.5, linestyle="--")
        axes.annotate(
            f" 99 % up to {cell.spread.high:.1f}", (cell.spread.high, 0.94 - 0.07 * number),
            xycoords=("data", "axes fraction"), color=COLOURS[vnodes],
        )  # fmt: skip
    axes.axvline(1, color=GREY, linewidth=1, linestyle=":")
    axes.set_xlim(0, BINS[-1])
    dress(axes, "share of the circle / mean", "density of nodes")


def experiment(nodes: int = 1_000_000) -> Experiment[Setting, Cell]:
    """Return the experiment on a ring of `nodes` nodes."""
    return Experiment(
        name="ring_loads",
        title="Shares of a ring too large to run",
        source="Stoica et al. 2001 (SIGCOMM), Figs. 8 and 9, and 2003 (ToN), section VI-B: 10,000 nodes, 10^6 keys",
        plan=partial(plan, nodes),
        measure=measure,
        tables=tables,
        pictures={"ring_loads": draw},
        again=again(f"ring --nodes {nodes}"),
    )

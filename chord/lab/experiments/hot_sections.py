"""The effect of moving hot sections to cold nodes, under skewed requests.

Hashing schemes are even in keys, not in requests: the node with the most popular key has its load. A section is a fixed
part of the hash space. Sections with a central map can rebalance, because the map, not a hash, decides on which node a
section lives. The k-th most popular key is requested in proportion to 1 / k^s (Zipf); at s = 0 all keys are equally
popular. No map can cool a single section that is hotter than a node's due load. Such a section can at best be alone on
a node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chord.lab.experiments.common import Factory, build, node_names
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREY, ORANGE, dress, headline
from chord.lab.hashing import random_hashes, zipf_requests
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.sections import SECTIONS, TOLERANCE, Sections

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, KEYS, REQUESTS, DRAWS = 20, 100_000, 200_000, 5
EXPONENTS = (0.0, 0.5, 0.8, 0.9, 1.0, 1.2)
FEW_SECTIONS = 256
SHOWN = 0.9


class HotSectionsSetting(NamedTuple):
    """Requests under Zipf's law with this exponent, for keys in fixed sections.

    Attributes:
        exponent: the exponent s: the k-th most popular key is requested in proportion to 1 / k^s.
        sections: number of sections.
        keys: number of keys.
        requests: number of requests per draw.
        draws: number of times that the requests are drawn.
        seed: the source of all random choices.
        factory: the function that builds the scheme with sections.
    """

    exponent: float
    sections: int
    keys: int
    requests: int
    draws: int
    seed: int
    factory: Factory

    def __str__(self) -> str:
        return f"Zipf {self.exponent:g}, {self.sections:,} sections"


@dataclass(frozen=True)
class HotSectionsCell:
    """The effect of moving hot sections; each field has an entry per draw.

    Loads are requests over the mean load of a node.

    Attributes:
        before: the most loaded node's load before any move.
        after: the most loaded node's load after the moves that these requests caused.
        later: the most loaded node's load after these moves, under new requests with the same distribution.
        by_jump: the most loaded node's load if jump consistent hash places the keys.
        hottest: the load of the hottest section.
        sections: number of sections that moved.
        keys: share of all keys that moved.
    """

    setting: HotSectionsSetting
    before: tuple[float, ...]
    after: tuple[float, ...]
    later: tuple[float, ...]
    by_jump: tuple[float, ...]
    hottest: tuple[float, ...]
    sections: tuple[int, ...]
    keys: tuple[float, ...]


def plan(scale: Scale, seed: int) -> list[HotSectionsSetting]:
    """Return one setting for each Zipf exponent, with few sections and with many."""
    keys, requests, draws = (10_000, 50_000, 2) if scale == "quick" else (KEYS, REQUESTS, DRAWS)
    return [
        HotSectionsSetting(exponent, sections, keys, requests, draws, seed, SCHEMES["sections"])
        for sections in (SECTIONS, FEW_SECTIONS)
        for exponent in EXPONENTS
    ]


def measure(setting: HotSectionsSetting) -> HotSectionsCell:
    """Measure the most loaded node before and after hot sections are moved."""
    found = []
    for draw in range(setting.draws):
        rng = np.random.default_rng([setting.seed, draw, round(10 * setting.exponent)])
        hashes = random_hashes(rng, setting.keys)
        names = node_names(NODES, setting.seed * 1000 + draw)
        placement = build(setting.factory, names, sections=setting.sections)
        assert isinstance(placement, Sections)
        requests, others = (
            hashes[zipf_requests(rng, setting.keys, setting.requests, setting.exponent)] for _ in range(2)
        )
        before = _peak(placement.place_many(requests))
        loads = np.bincount((requests % np.uint64(setting.sections)).astype(np.intp), minlength=setting.sections)
        was = placement.place_many(hashes)
        moves = placement.move_hot(loads.astype(np.float64))
        found.append(
            (
                before,
                _peak(placement.place_many(requests)),
                _peak(placement.place_many(others)),
                _peak(build("jump", names).place_many(requests)),
                float(loads.max()) * NODES / setting.requests,
                len({move.section for move in moves}),
                float((placement.place_many(hashes) != was).mean()),
            )
        )
    before_, after, later, by_jump, hottest, sections, keys = zip(*found, strict=True)
    return HotSectionsCell(setting, before_, after, later, by_jump, hottest, sections, keys)


def _peak(places: NDArray[np.intp]) -> float:
    """Return the load of the most loaded node over the mean load.

    Args:
        places: node number of each request.
    """
    return float(np.bincount(places, minlength=NODES).max()) * NODES / len(places)


# -- what comes of it ---------------------------------------------------------------------------------


def is_met(cell: HotSectionsCell) -> bool:
    """Whether moving sections evened out the load in every draw.

    In each draw, the most loaded node may have at most 1.05 times the mean load, or the load of the hottest section. A
    section of mean load is allowed in addition.
    """
    one = NODES / cell.setting.sections
    pairs = zip(cell.after, cell.hottest, strict=True)
    return all(after <= max(TOLERANCE, hottest) + one for after, hottest in pairs)


def tables(result: Result[HotSectionsCell]) -> list[Table]:
    """Return the load of the most loaded node before and after the moves.

    There is a row for each skew and number of sections.
    """
    columns = (
        Column("Zipf", ".1f"), Column("sections", ","), Column("fullest by jump", ".2f"), Column("before", ".2f"),
        Column("after", ".2f"), Column("on other requests", ".2f"), Column("hottest section", ".2f"),
        Column("sections moved", ".0f"), Column("keys moved", ".2%"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        means = (
            float(np.mean(each))
            for each in (cell.by_jump, cell.before, cell.after, cell.later, cell.hottest, cell.sections, cell.keys)
        )
        rows.append(Row((cell.setting.exponent, cell.setting.sections, *means), is_met(cell)))
    shape = result.cells[0].setting
    notes = (
        f"Requests of the fullest of {NODES} nodes over the mean, before and after hot sections are moved. Means of "
        f"{shape.draws} draws: {shape.requests:,} requests for {shape.keys:,} keys, the k-th as often as 1 / k^Zipf. "
        f"Sections are moved until no node has {TOLERANCE:g} times the mean, or no move helps.",
        "Moving a section that is hotter than the mean does not cool it. Its key can only be split or cached.",
    )
    bar = (
        f"the fullest node ends within {TOLERANCE:g} times the mean or with the load of the hottest section, plus one "
        "section of mean load"
    )
    return [Table("hot_sections", "Hot sections moved", columns, tuple(rows), bar, notes)]


def draw(result: Result[HotSectionsCell], figure: Figure) -> None:
    """Plot the load of the most loaded node against the skew, before and after hot sections have moved.

    The plot has only the results with many sections.
    """
    cells = [cell for cell in result.cells if cell.setting.sections == SECTIONS]
    one = next(cell for cell in cells if cell.setting.exponent == SHOWN)
    headline(
        figure,
        f"At Zipf {SHOWN:g}, moving {np.mean(one.keys):.1%} of the keys takes the fullest of {NODES} "
        f"nodes from {np.mean(one.before):.2f} to {np.mean(one.after):.2f} times the mean. No map cools one key",
    )
    axes = figure.subplots()
    x = [cell.setting.exponent for cell in cells]
    axes.plot(x, [float(np.mean(c.before)) for c in cells], "s-", color=ORANGE, label="before")
    axes.plot(x, [float(np.mean(c.after)) for c in cells], "o-", color=BLUE, label="hot sections moved")
    axes.plot(x, [float(np.mean(c.hottest)) for c in cells], color=GREY, linestyle="--",
              label="the hottest section alone")  # fmt: skip
    dress(
        axes,
        "skew s: the k-th most popular key is asked for as often as 1 / k^s",
        f"fullest node's requests / mean, {SECTIONS:,} sections",
    )


EXPERIMENT = Experiment(
    name="hot_sections",
    title="Hot sections moved",
    source="Kokorin, «Шардирование»: a central map can move a hot section to another node; no figures",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={"hot_sections": draw},
    command="lab movement",
)

"""All schemes on the same keys: evenness, stability, other properties.

With the keys and nodes of Golubtsov 2024, the tables begin with the one of that article.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.lab.experiments import golubtsov
from chord.lab.experiments.common import (
    Factory,
    KeyMove,
    Keys,
    build,
    chance_deviation,
    fitting,
    grow,
    made_keys,
    node_names,
    room,
    sampled,
    shrink,
    skew,
)
from chord.lab.experiments.golubtsov import KEYS, NODES, THEN
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, GREY, ORANGE, dress, headline, make_room
from chord.lab.harness.statistics import Spread
from chord.lab.numbers import spread
from chord.lab.placement import UnsupportedChange, require_ratio
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.sections import SECTIONS, Sections

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COPIES, COPY_KEYS = 3, 10_000
FEW_KEYS = 100
"""Keys per node below which chance dominates: a tenth of the mean or more."""
SECTIONS_PER_NODE = 10
"""Sections per node below which one more section is over a tenth of the load."""
STEPS_MAX = 1_000_000_000
"""Largest number of keys times nodes for schemes that ask every node in a lookup.

Above it, only a sample of the keys is placed. The limit corresponds to about ten seconds of work.
"""
ASKED_MAX = 64
"""Number of nodes up to which a lookup that asks every node is advised."""
CLOSE = 1.5
"""Factor up to which a std counts as even as chance allows.

The std of 20 nodes has a standard error of 16 % of its mean, and three of them are allowed.
"""


class ComparisonSetting(NamedTuple):
    """One scheme, its keys, and its numbers of nodes before and after growing.

    Attributes:
        scheme: its name.
        keys: the keys to place.
        nodes: number of nodes at first.
        then: number of nodes after growing.
        weights: weights by node number; empty if all are equal.
        seed: decides the names of the nodes.
        factory: the function that builds the scheme.
    """

    scheme: str
    keys: Keys
    nodes: int
    then: int
    weights: tuple[float, ...]
    seed: int
    factory: Factory

    def __str__(self) -> str:
        return self.scheme


@dataclass(frozen=True)
class ComparisonCell:
    """The measurement of one scheme.

    Attributes:
        nodes: number of nodes at first. It is fewer than requested if the scheme only doubles.
        loads: evenness of the keys per node at first, relative to the nodes' weights.
        grown_loads: the same after growing; None if the scheme cannot grow.
        grown: keys moved by growing; None if the scheme cannot grow.
        shrunk: keys moved by removing a node; None if the scheme cannot shrink.
        is_weighted: whether weights were requested, and the scheme placed the keys by them.
        heavy: largest relative difference of a node from its due share if every second node weighs two. None if the
            scheme has no weights.
        met: share of the first 10,000 keys with two of their three copies on one node; None for fewer than three nodes.
        state_bytes: memory that a lookup needs, before growing.
        removes: the nodes that can be removed. "any": each single one. "the last": only the node with the highest
            number. "by half": only half of the nodes at once. "none": no node.
        is_consistent: whether the scheme claims that a change moves no key between two nodes that stay.
    """

    setting: ComparisonSetting
    nodes: int
    loads: Spread
    grown_loads: Spread | None
    grown: KeyMove | None
    shrunk: KeyMove | None
    is_weighted: bool
    heavy: float | None
    met: float | None
    state_bytes: int
    removes: str
    is_consistent: bool


def plan(
    keys: Keys, schemes: tuple[str, ...], nodes: int, then: int, weights: tuple[float, ...], scale: Scale, seed: int
) -> list[ComparisonSetting]:
    """Return the measurement to make for each scheme, which grows from `nodes` nodes to `then`.

    At quick scale there are fewer keys. A scheme that asks every node in each lookup gets a sample of the keys.
    `weights` has one weight per node; empty: all equal. The seed decides generated keys and the names of nodes.
    """
    if scale == "quick":
        keys = keys if keys.given is not None else made_keys(max(min(keys.total, 1000), keys.total // 50), seed)
    few = sampled(keys, max(1, STEPS_MAX // then))
    return [
        ComparisonSetting(scheme, few if asks_all(factory) else keys, nodes, then, weights, seed, factory)
        for scheme, factory in ((scheme, SCHEMES[scheme]) for scheme in schemes)
    ]


def deals_sections(factory: Factory) -> bool:
    """Whether a scheme assigns whole sections of the hash space, not single keys."""
    return isinstance(build(factory, ["any"]), Sections)


def asks_all(factory: Factory) -> bool:
    """Whether the cost of a lookup grows in proportion to the number of nodes."""
    return build(factory, ["any"]).lookup_cost == "O(n)"


def measure(setting: ComparisonSetting) -> ComparisonCell:
    """Place the keys by one scheme, and measure the fields of `ComparisonCell`.

    Growth and removal start from the same nodes: each changes a placement of its own. A scheme that does not support
    weights is built without the requested ones, but its evenness is still relative to them.
    """
    nodes = fitting(setting.factory, setting.nodes)
    names = node_names(nodes, setting.seed)
    weights = dict(zip(names, setting.weights, strict=False)) if setting.weights else None
    is_weighted = weights is not None
    options = room(setting.scheme, max(setting.then, 2 * nodes))
    try:
        placement = build(setting.factory, names, weights, **options)
    except UnsupportedChange:
        placement, is_weighted = build(setting.factory, names, **options), False
    hashes = setting.keys.hashes(placement.hasher)
    # A scheme without weights is compared with the requested weights, too.
    given = np.array(setting.weights[:nodes]) if setting.weights else np.ones(nodes)
    loads = spread(np.bincount(placement.place_many(hashes), minlength=nodes), given)
    copies = placement.replicas_many(hashes[:COPY_KEYS], COPIES)
    distinct = np.sort(copies, axis=1)
    met = float((distinct[:, 1:] == distinct[:, :-1]).any(axis=1).mean()) if nodes >= COPIES else None
    state_bytes = placement.state_bytes
    shrunk = shrink(build(setting.factory, names, weights if is_weighted else None), hashes)
    grown, grown_loads = grow(placement, hashes, setting.then, setting.seed), None
    if grown is not None:
        now = np.bincount(placement.place_many(hashes), minlength=grown.now)
        grown_loads = spread(now, np.append(given, np.ones(grown.now - nodes)))
    return ComparisonCell(
        setting, nodes, loads, grown_loads, grown, shrunk, is_weighted,
        heavy=_with_weights(setting, names) if placement.has_weights else None,
        met=met,
        state_bytes=state_bytes,
        removes=removes(shrunk, placement.can_remove),
        is_consistent=placement.is_consistent,
    )  # fmt: skip


def removes(shrunk: KeyMove | None, can_remove: bool) -> str:
    """Return which nodes a scheme can remove, in words.

    - "none": `shrunk` is None.
    - "by half": `shrunk` removed several nodes at once.
    - "any" or "the last": it removed one node; "any" if `can_remove`.

    Args:
        shrunk: the movement when nodes were removed; None if the scheme can remove none.
        can_remove: whether the scheme claims that each single node can be removed.
    """
    if shrunk is None:
        return "none"
    if shrunk.was - shrunk.now > 1:
        return "by half"
    return "any" if can_remove else "the last"


def _with_weights(setting: ComparisonSetting, names: list[str]) -> float:
    weights = {name: 1.0 + number % 2 for number, name in enumerate(names)}
    placement = build(setting.factory, names, weights)
    loads = np.bincount(placement.place_many(setting.keys.hashes(placement.hasher)), minlength=len(names))
    shares = loads / loads.sum() / (np.array(list(weights.values())) / sum(weights.values()))
    return float(np.abs(shares - 1).max())


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[ComparisonCell]) -> list[Table]:
    """Return the tables of the comparison: evenness, movement and other properties.

    If some schemes were measured under the conditions of Golubtsov's article, a table with the article's figures comes
    first.
    """
    found = [cell for cell in result.cells if golubtsov.is_as_there(cell.setting)]
    return [*([golubtsov.table(found)] if found else []), _evenness(result), _stability(result), _abilities(result)]


def of_most_keys(result: Result[ComparisonCell]) -> ComparisonSetting:
    """Return the setting with the most keys; of several with as many, the first.

    Its scheme placed all keys. Other schemes may have placed only a sample.
    """
    return max((cell.setting for cell in result.cells), key=lambda setting: setting.keys.total)


def _evenness(result: Result[ComparisonCell]) -> Table:
    setting = of_most_keys(result)
    are_few = setting.keys.total < FEW_KEYS * setting.nodes
    count = ",.2f" if are_few else ",.0f"
    columns = (
        Column("scheme"), Column("nodes"), Column("keys per node", count), Column("std", count),
        Column("std / mean", ".2%"), Column("1st / mean", ".3f"), Column("99th / mean", ".3f"),
        Column("most / mean", ".3f"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        s = cell.loads
        rows.append(Row((cell.setting.scheme, cell.nodes, s.mean, s.std, s.deviation, s.low, s.high, s.most)))
    is_taste = result.scale == "quick" and setting.keys.given is None
    by_chance = chance_deviation(setting.keys, setting.nodes) * setting.keys.total / setting.nodes
    notes = [f"Keys that pick their nodes independently have a std of {by_chance:{count}}."]
    if are_few:
        notes.append(f"Fewer than {FEW_KEYS} keys a node: most differences between schemes are chance.")
    if setting.keys.given is not None:
        different, share, _ = skew(setting.keys)
        notes.append(f"Of the {setting.keys.total:,} keys {different:,} are different; one is {share:.1%} of all.")
    if is_taste:
        notes.append("Quick scale makes a fiftieth of the requested keys, or a thousand if that is more.")
    for size in sorted({cell.setting.keys.total for cell in result.cells} - {setting.keys.total}):
        names = ", ".join(cell.setting.scheme for cell in result.cells if cell.setting.keys.total == size)
        by_chance = chance_deviation(sampled(setting.keys, size), setting.nodes)
        notes.append(
            f"A sample of {size:,} keys, because each lookup asks every node: {names}. By chance, a sample of this "
            f"size has a std of {by_chance:.2%} of the mean."
        )
    coarse = [cell.setting.scheme for cell in result.cells if deals_sections(cell.setting.factory)]
    if coarse and SECTIONS_PER_NODE * setting.nodes > SECTIONS:
        notes.append(f"{setting.nodes:,} nodes share {SECTIONS:,} sections, too few to be even: {', '.join(coarse)}.")
    if setting.weights:
        plain = [cell.setting.scheme for cell in result.cells if not cell.is_weighted]
        notes.append("Loads are relative to the weights. New nodes weigh the mean.")
        if plain:
            notes.append(f"Without support for weights, but compared with them: {', '.join(plain)}.")
    return Table("evenness", "How even: keys per node", columns, tuple(rows), notes=tuple(notes))


def _stability(result: Result[ComparisonCell]) -> Table:
    columns = (
        Column("scheme"), Column("grows"), Column("kept", ".2%"), Column("moved beyond the ideal", "+.2%"),
        Column("between old nodes", ",d"), Column("shrinks"), Column("kept", ".2%"),
        Column("moved beyond the ideal", "+.2%"), Column("between old nodes", ",d"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        moves = (cell.grown, cell.shrunk)
        values: list[str | int | float | None] = [cell.setting.scheme]
        for move in moves:
            if move is None:
                values += ["no", None, None, None]
            else:
                values += [f"{move.was} → {move.now}", move.kept, move.ideal - move.kept, move.between_old]
        changes = [move for move in moves if move is not None]
        passed = all(move.between_old == 0 for move in changes) if cell.is_consistent and changes else None
        rows.append(Row(tuple(values), passed))
    bar = "a scheme that claims to be consistent moves no key between nodes that stay"
    note = "Ideal: only the new node's fair share moves, or the share of the node that goes."
    return Table("stability", "How stable: keys that move when nodes come and go", columns, tuple(rows), bar, (note,))


def _abilities(result: Result[ComparisonCell]) -> Table:
    columns = (
        Column("scheme"), Column("state (bytes)", ",d"), Column("lookup"), Column("memory"),
        Column("weights: worst node off by", ".1%"),
        Column("nodes that can go"), Column("placed by"), Column("two of 3 copies on one node", ".1%"),
        Column("in full"), Column("published in"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        kind = build(cell.setting.factory, ["any"])
        by = "name" if kind.has_names else "number"
        values = (
            cell.setting.scheme, cell.state_bytes, kind.lookup_cost, kind.memory_cost, cell.heavy, cell.removes, by,
            cell.met, kind.title, kind.source,
        )  # fmt: skip
        rows.append(Row(values))
    asked = min(COPY_KEYS, of_most_keys(result).keys.total)
    notes = (
        "Nodes may have any names in all schemes. If keys are placed by number, a table maps numbers to names, and a "
        "new node can take over a number.",
        f"Weights: every second node weighs two. Copies: {COPIES} of each of {asked:,} keys.",
        "State is the memory that a lookup needs: packed tables and points, without the nodes' names and addresses.",
    )
    return Table("abilities", "Other properties: memory, weights, names", columns, tuple(rows), notes=notes)


def advice(result: Result[ComparisonCell]) -> str:
    """Return one sentence that advises on a scheme for these keys and nodes.

    A scheme is eligible if it can grow and lose any node, moves no key between nodes that stay, and supports the
    weights. A scheme that asks every node in a lookup is eligible for at most 64 nodes. Of the schemes that are as
    even as chance allows, the sentence names the one with the least memory. If none is, it names the most even scheme.
    If one key has more requests than a node's fair share, it advises to split or cache that key instead.
    """
    setting = of_most_keys(result)
    _, share, _ = skew(setting.keys)
    if share * setting.nodes > 1 and setting.nodes > 1:
        return (
            f"Split or cache the most frequent key: it has {share:.1%} of the requests, and the fair share of a node "
            f"is {1 / setting.nodes:.1%}."
        )
    eligible = [cell for cell in result.cells if _is_eligible(cell)]
    if not eligible:
        return "If nodes come and go, compare rendezvous and ring-100: these schemes move more keys or lose no node."
    even = [cell for cell in eligible if _is_even(cell)]
    chosen = min(eligible, key=lambda cell: cell.loads.deviation)
    if even:
        chosen = min(even, key=lambda cell: cell.state_bytes)
    grown = chosen.grown
    assert grown is not None
    return (
        f"For these {setting.keys.total:,} keys use {chosen.setting.scheme}: its fullest node has "
        f"{chosen.loads.most:.2f} times the mean, and growth moves {1 - grown.kept:.1%} of them (ideal: "
        f"{1 - grown.ideal:.1%})."
    )


def _is_eligible(cell: ComparisonCell) -> bool:
    moves = (cell.grown, cell.shrunk)
    if any(move is None or move.between_old for move in moves) or cell.removes != "any":
        return False
    heeds = cell.is_weighted or len({*cell.setting.weights}) <= 1
    return heeds and (cell.nodes <= ASKED_MAX or not asks_all(cell.setting.factory))


def _is_even(cell: ComparisonCell) -> bool:
    return cell.loads.deviation <= CLOSE * chance_deviation(cell.setting.keys, cell.nodes)


# -- pictures -----------------------------------------------------------------------------------------


def _name(cell: ComparisonCell, all_keys: int) -> str:
    """Return a scheme's label: its name, and the number of keys if it got a sample.

    Args:
        all_keys: the number of keys without sampling.
    """
    total = cell.setting.keys.total
    return cell.setting.scheme + f" ({total:,} keys)" * (total < all_keys)


def draw_evenness(result: Result[ComparisonCell], figure: Figure) -> None:
    """Plot the standard deviation of keys per node for each scheme, most even first."""
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


def draw_stability(result: Result[ComparisonCell], figure: Figure) -> None:
    """Plot the keys that each scheme moves when nodes are added.

    The plot separates moves to the new nodes from moves between old ones. A scheme that cannot grow, or only beyond the
    requested number of nodes, is named in the axis label and not drawn.
    """
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


def experiment(
    keys: Keys | None = None,
    schemes: tuple[str, ...] = (),
    nodes: int = NODES,
    then: int = THEN,
    weights: tuple[float, ...] = (),
    seed: int = 1,
) -> Experiment[ComparisonSetting, ComparisonCell]:
    """Return the experiment that compares these schemes on these keys.

    Args:
        keys: the keys; None: a million generated ones.
        schemes: names of the schemes; empty: all.
        nodes: number of nodes at first.
        then: number of nodes after growing.
        weights: one weight per node, in the order of their numbers; empty: all equal. Only proportions matter, because
            schemes get the weights over their mean. New nodes weigh the mean.
        seed: seed of the keys that are generated if `keys` is None.

    Raises:
        ValueError: the largest weight is more than 1,000 times the smallest.
    """
    keys = keys or made_keys(KEYS, seed)
    options = ["--keys", keys.label, "--nodes", str(nodes), "--then", str(then)]
    options += ["--schemes", ",".join(schemes)] * bool(schemes)
    if weights:
        require_ratio(weights)
        options += ["--weights", ",".join(map(repr, weights))]
        weights = tuple(weight * len(weights) / math.fsum(weights) for weight in weights)
    return Experiment(
        name="compare",
        title="Every scheme on the same keys",
        source="Golubtsov 2024; Karger et al. 1997, Thaler and Ravishankar 1996, Lamping and Veach 2014",
        plan=partial(plan, keys, schemes or tuple(SCHEMES), nodes, then, weights),
        measure=measure,
        tables=tables,
        pictures={"evenness": draw_evenness, "stability": draw_stability},
        command=f"lab compare {shlex.join(options)}",
        advice=advice,
    )

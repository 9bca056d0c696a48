"""All schemes on the same keys: how even, how stable, what else they can; the fourth text's table first.

That table: 10^6 keys on 20 shards and then on 21, the share of keys that keep their shard, and the standard deviation
of keys per shard, of 21. Kept shares are sharp. Where each key picks its shard for itself the deviation is binomial,
sqrt(m p (1 - p)) with p = 1/21; on a ring it hangs on the names of the nodes, and `draws` has the distribution.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chord.experiments.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.experiments.plot import BLUE, GREY, ORANGE, dress, headline, make_room
from chord.lab.experiments.common import (
    Keys,
    Move,
    again,
    build,
    fitting,
    grow,
    made_keys,
    node_names,
    room,
    shrink,
    skew,
)
from chord.lab.numbers import Spread, spread
from chord.lab.placement import UnsupportedChange
from chord.lab.schemes import SCHEMES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NODES, THEN, KEYS = 20, 21, 1_000_000
COPIES, COPY_KEYS = 3, 10_000

KEPT_WITHIN = 0.003
ERRORS_WITHIN = 3.0


class Said(NamedTuple):
    """A line of the fourth text's table; `is_binomial`: each key picks its shard for itself."""

    kept: float
    std: float
    is_binomial: bool


SAID = {
    "mod": Said(0.0477, 156.67, True),
    "jump": Said(0.9524, 237.10, True),
    "fibonacci": Said(0.0480, 222.53, True),
    "ring": Said(0.9371, 39_882.89, False),
    "ring-100": Said(0.9468, 6_105.93, False),
    "ring-1000": Said(0.9525, 1_227.54, False),
    "rendezvous": Said(0.9528, 218.09, True),
}


class Setting(NamedTuple):
    """One scheme, the keys, the nodes and how many there are to be then; weights of the nodes, by number."""

    scheme: str
    keys: Keys
    nodes: int
    then: int
    weights: tuple[float, ...]
    seed: int

    def __str__(self) -> str:
        return self.scheme


@dataclass(frozen=True)
class Cell:
    """What one scheme did.

    Attributes:
        nodes: how many there were at first: fewer than asked for where a scheme only doubles.
        loads: keys per node at first, over what the weights ask for.
        grown_loads: keys per node when it has grown; None where it cannot.
        is_weighted: whether it was built with the weights.
        heavy: how far the worst node is from its share where every second node weighs two; None: it has no weights.
        met: share of keys of which two copies of three are on one node.
    """

    setting: Setting
    nodes: int
    loads: Spread
    grown_loads: Spread | None
    grown: Move | None
    shrunk: Move | None
    is_weighted: bool
    heavy: float | None
    met: float
    state_bytes: int
    removes: str
    is_consistent: bool


def plan(
    keys: Keys, schemes: tuple[str, ...], nodes: int, then: int, weights: tuple[float, ...], scale: Scale, seed: int
) -> list[Setting]:
    """Return a setting for each scheme."""
    if scale == "quick":
        keys = keys if keys.given is not None else made_keys(max(min(keys.total, 1000), keys.total // 50), seed)
    return [Setting(scheme, keys, nodes, then, weights, seed) for scheme in schemes]


def measure(setting: Setting) -> Cell:
    """Place the keys, let nodes in, let one go, ask for copies."""
    nodes = fitting(setting.scheme, setting.nodes)
    names = node_names(nodes, setting.seed)
    weights = dict(zip(names, setting.weights, strict=False)) if setting.weights else None
    is_weighted = weights is not None
    options = room(setting.scheme, max(setting.then, 2 * nodes))
    try:
        placement = build(setting.scheme, names, weights, **options)
    except UnsupportedChange:
        placement, is_weighted = build(setting.scheme, names, **options), False
    hashes = setting.keys.hashes(placement.hasher)
    given = np.array(list(placement.weights.values()))
    loads = spread(np.bincount(placement.place_many(hashes), minlength=nodes), given)
    copies = placement.replicas_many(hashes[:COPY_KEYS], COPIES)
    distinct = np.sort(copies, axis=1)
    met = float((distinct[:, 1:] == distinct[:, :-1]).any(axis=1).mean())
    state_bytes = placement.state_bytes
    shrunk = shrink(build(setting.scheme, names, weights if is_weighted else None), hashes)
    grown, grown_loads = grow(placement, hashes, setting.then, setting.seed), None
    if grown is not None:
        now = np.bincount(placement.place_many(hashes), minlength=grown.now)
        grown_loads = spread(now, np.array(list(placement.weights.values())))
    return Cell(
        setting, nodes, loads, grown_loads, grown, shrunk, is_weighted,
        heavy=_with_weights(setting, names) if placement.has_weights else None,
        met=met,
        state_bytes=state_bytes,
        removes=removes(shrunk, placement.can_remove),
        is_consistent=placement.is_consistent,
    )  # fmt: skip


def removes(shrunk: Move | None, can_remove: bool) -> str:
    """Return in a word which nodes can go."""
    if shrunk is None:
        return "none"
    if shrunk.was - shrunk.now > 1:
        return "by half"
    return "any" if can_remove else "the last"


def _with_weights(setting: Setting, names: list[str]) -> float:
    weights = {name: 1.0 + number % 2 for number, name in enumerate(names)}
    placement = build(setting.scheme, names, weights)
    loads = np.bincount(placement.place_many(setting.keys.hashes(placement.hasher)), minlength=len(names))
    shares = loads / loads.sum() / (np.array(list(weights.values())) / sum(weights.values()))
    return float(np.abs(shares - 1).max())


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[Cell]) -> list[Table]:
    """Return the fourth text's table where it was measured as there, then evenness, movement, abilities."""
    found = [cell for cell in result.cells if _is_as_in_the_text(cell.setting)]
    return [*([_fourth_text(found)] if found else []), _evenness(result), _stability(result), _abilities(result)]


def _is_as_in_the_text(setting: Setting) -> bool:
    keys = setting.keys
    same = (setting.nodes, setting.then, setting.weights) == (NODES, THEN, ())
    return same and keys.given is None and keys.total == KEYS and setting.scheme in SAID


def binomial_std(keys: int, nodes: int) -> float:
    """Return the standard deviation of keys per node where each key picks one of the nodes by chance."""
    return math.sqrt(keys / nodes * (1 - 1 / nodes))


def _fourth_text(cells: list[Cell]) -> Table:
    columns = (
        Column("scheme"), Column("kept", ".2%"), Column("the text", ".2%"), Column("differs by", "+.2%"),
        Column("std", ",.0f"), Column("the text", ",.0f"), Column("binomial std", ",.0f"),
        Column("standard errors", "+.1f"),
    )  # fmt: skip
    rows = []
    for cell in sorted(cells, key=lambda cell: list(SAID).index(cell.setting.scheme)):
        said, kept = SAID[cell.setting.scheme], cell.grown.kept if cell.grown else math.nan
        std = cell.grown_loads.std if cell.grown_loads else math.nan
        ought = binomial_std(KEYS, THEN)
        errors = (std - ought) / (ought / math.sqrt(2 * (THEN - 1)))
        passed = abs(kept - said.kept) <= KEPT_WITHIN and abs(errors) <= ERRORS_WITHIN
        tail = (ought, errors) if said.is_binomial else (None, None)
        values = (cell.setting.scheme, kept, said.kept, kept - said.kept, std, said.std, *tail)
        rows.append(Row(values, passed if said.is_binomial else None))
    bar = "kept share within 0.3 percentage points of the text's, std within 3 standard errors of the binomial one"
    notes = (
        "Of 20 nodes and then 21; the std is that of keys per node on 21. Rings hang on the names of the nodes: "
        "the experiment draws has the distribution.",
    )
    return Table("fourth_text", "The fourth text's table", columns, tuple(rows), bar, notes)


def _evenness(result: Result[Cell]) -> Table:
    columns = (
        Column("scheme"), Column("nodes"), Column("keys per node", ",.0f"), Column("std", ",.0f"),
        Column("std / mean", ".2%"), Column("1st / mean", ".3f"), Column("99th / mean", ".3f"),
        Column("most / mean", ".3f"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        s = cell.loads
        rows.append(Row((cell.setting.scheme, cell.nodes, s.mean, s.std, s.deviation, s.low, s.high, s.most)))
    setting = result.cells[0].setting
    by_chance = binomial_std(setting.keys.total, setting.nodes)
    notes = [
        f"Keys that each pick a node for themselves have a std of {by_chance:,.0f}."
    ]
    if setting.keys.given is not None:
        different, share = skew(setting.keys)
        notes[0] = f"Keys that each pick a node for themselves have a std of {by_chance:,.0f} if all are different."
        notes.append(f"Of the {setting.keys.total:,} keys {different:,} are different; one is {share:.1%} of all.")
    if setting.weights:
        plain = [cell.setting.scheme for cell in result.cells if not cell.is_weighted]
        notes.append("Loads are over what the weights ask for.")
        if plain:
            notes.append(f"Without weights, as they have none: {', '.join(plain)}.")
    return Table("evenness", "How even: keys per node", columns, tuple(rows), notes=tuple(notes))


def _stability(result: Result[Cell]) -> Table:
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
    note = "Ideal: only the new node's fair share moves, or that of the node that goes."
    return Table("stability", "How stable: keys that move when nodes come and go", columns, tuple(rows), bar, (note,))


def _abilities(result: Result[Cell]) -> Table:
    columns = (
        Column("scheme"), Column("state (bytes)", ",d"), Column("look-up"), Column("memory"),
        Column("weights: worst node off by", ".1%"),
        Column("nodes that can go"), Column("names"), Column("two of 3 copies on one node", ".1%"),
    )  # fmt: skip
    rows = []
    for cell in result.cells:
        kind = build(cell.setting.scheme, ["any"])
        names = "any" if kind.has_names else "numbers"
        values = (
            cell.setting.scheme, cell.state_bytes, kind.lookup_cost, kind.memory_cost, cell.heavy, cell.removes, names,
            cell.met,
        )  # fmt: skip
        rows.append(Row(values))
    notes = (
        f"Weights: every second node weighs two. Copies: {COPIES} of each of {COPY_KEYS:,} keys.",
        "State is what a look-up needs: tables and points packed, without the nodes' names and addresses.",
    )
    return Table("abilities", "What else: memory, weights, names, copies", columns, tuple(rows), notes=notes)


# -- pictures -----------------------------------------------------------------------------------------


def draw_evenness(result: Result[Cell], figure: Figure) -> None:
    """Draw the deviation of every scheme, from even to uneven."""
    cells = sorted(result.cells, key=lambda cell: cell.loads.deviation)
    setting = cells[0].setting
    chance = binomial_std(setting.keys.total, setting.nodes) * setting.nodes / setting.keys.total
    close = sum(cell.loads.deviation <= 1.5 * chance for cell in cells)
    worst = max(result.cells, key=lambda cell: cell.loads.deviation)
    headline(
        figure,
        f"{close} of {len(cells)} schemes are as even as chance allows; {worst.setting.scheme} is off by "
        f"{worst.loads.deviation:.0%} of the mean",
    )
    make_room(figure, len(cells))
    axes = figure.subplots()
    places = range(len(cells))
    lowest = min(cell.loads.deviation for cell in cells)
    floor = 10 ** math.floor(math.log10(max(lowest, 1e-6)))
    axes.hlines(places, floor, [max(cell.loads.deviation, floor) for cell in cells], color="#BBBBBB", linewidth=1)
    axes.plot([max(cell.loads.deviation, floor) for cell in cells], places, "o", color=BLUE)
    axes.axvline(max(chance, floor), color=ORANGE, linestyle="--", label="keys that pick a node by chance")
    axes.set_yticks(places, [cell.setting.scheme for cell in cells])
    axes.set_xscale("log")
    axes.set_ylim(-0.8, len(cells) - 0.2)
    axes.set_xticks([tick * 10.0**power for power in range(-6, 2) for tick in (1, 2, 5) if tick * 10.0**power >= floor])
    axes.set_xlim(floor, 1.5 * max(cells[-1].loads.deviation, chance, 2 * floor))
    axes.minorticks_off()
    dress(
        axes,
        f"std of keys per node / mean, {setting.keys.total:,} keys on {setting.nodes} nodes",
        "",
        is_from_zero=False,
    )
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g}%")
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def draw_stability(result: Result[Cell], figure: Figure) -> None:
    """Draw what moves when a node comes: to the newcomer, and between old nodes."""
    cells = [
        cell for cell in result.cells if cell.grown is not None and cell.grown.was < cell.grown.now <= cell.setting.then
    ]
    if not cells:
        headline(figure, f"None of these schemes grows from {result.cells[0].setting.nodes} nodes by so few")
        return
    keys, then = cells[0].setting.keys.total, cells[0].setting.then
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
    between = [cell.grown.between_old / keys if cell.grown else 0 for cell in cells]
    to_new = [1 - cell.grown.kept - share if cell.grown else 0 for cell, share in zip(cells, between, strict=True)]
    axes.barh(places, to_new, color=BLUE, label="to the new node")
    axes.barh(places, between, left=to_new, color=ORANGE, label="between old nodes")
    ideal = 1 - cells[0].grown.ideal if cells[0].grown else 0
    axes.axvline(ideal, color=GREY, linestyle="--", label="ideal: the new node's fair share")
    axes.set_yticks(places, [cell.setting.scheme for cell in cells])
    axes.set_ylim(-0.8, len(cells) - 0.2)
    dress(axes, "share of keys that move", "", is_from_zero=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.legend(frameon=False, fontsize=9, loc="center right")


def experiment(
    keys: Keys | None = None,
    schemes: tuple[str, ...] = (),
    nodes: int = NODES,
    then: int = THEN,
    weights: tuple[float, ...] = (),
    seed: int = 1,
) -> Experiment[Setting, Cell]:
    """Return the comparison of these schemes on these keys.

    Args:
        keys: none: a million made ones.
        schemes: none: all.
        then: how many nodes there are to be after growing.
        weights: of the nodes, as many as there are; none: all the same.
        seed: of made keys.
    """
    keys = keys or made_keys(KEYS, seed)
    options = [f"--keys {keys.label} --nodes {nodes} --then {then}"]
    options += [f"--schemes {','.join(schemes)}"] * bool(schemes)
    options += [f"--weights {','.join(f'{weight:g}' for weight in weights)}"] * bool(weights)
    return Experiment(
        name="compare",
        title="Every scheme on the same keys",
        source="the fourth text's table; Karger et al. 1997, Thaler and Ravishankar 1996, Lamping and Veach 2014",
        plan=partial(plan, keys, schemes or tuple(SCHEMES), nodes, then, weights),
        measure=measure,
        tables=tables,
        pictures={"evenness": draw_evenness, "stability": draw_stability},
        again=again(f"compare {' '.join(options)}"),
    )

"""All schemes on the same keys: evenness, stability, other properties.

With the same keys and nodes as in Golubtsov 2024, the tables begin with the one of that article.
"""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from chord.lab.experiments import fourth_text
from chord.lab.experiments.common import (
    Factory,
    Keys,
    Move,
    again,
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
from chord.lab.experiments.compare_pictures import draw_evenness, draw_stability, of_most_keys
from chord.lab.experiments.fourth_text import KEYS, NODES, THEN
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.numbers import Spread, spread
from chord.lab.placement import UnsupportedChange, require_ratio
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.sections import SECTIONS, Sections

COPIES, COPY_KEYS = 3, 10_000
FEW_KEYS = 100
"""Keys per node below which chance dominates: a tenth of the mean or more."""
SECTIONS_PER_NODE = 10
"""Sections per node below which one more section is over a tenth of the load."""
STEPS_MAX = 1_000_000_000
"""Largest number of keys times nodes for schemes that ask every node in a look-up.

Above it, only a sample of the keys is placed. The limit corresponds to about ten seconds of work.
"""


class Setting(NamedTuple):
    """One scheme, the keys, and the numbers of nodes before and after growing.

    Attributes:
        scheme: its name.
        keys: the keys.
        nodes: number of nodes at first.
        then: number of nodes after growing.
        weights: weights by node number; empty if all are equal.
        seed: seed of the node names.
        factory: builds the scheme.
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
class Cell:
    """The results of one scheme.

    Attributes:
        setting: the scheme and its keys.
        nodes: number of nodes at first; fewer than requested if the scheme only doubles.
        loads: keys per node at first, relative to the weights.
        grown_loads: keys per node after growing; None if the scheme cannot grow.
        grown: effect of growing; None if the scheme cannot grow.
        shrunk: effect of removing a node; None if the scheme cannot shrink.
        is_weighted: whether the scheme was built with the weights.
        heavy: largest relative difference of a node from its share if every second node weighs two; None if the scheme
            has no weights.
        met: share of keys with two of three copies on one node; None for fewer than three nodes.
        state_bytes: memory that a look-up needs, in bytes.
        removes: which nodes can go, in a word.
        is_consistent: whether the scheme claims to be consistent.
    """

    setting: Setting
    nodes: int
    loads: Spread
    grown_loads: Spread | None
    grown: Move | None
    shrunk: Move | None
    is_weighted: bool
    heavy: float | None
    met: float | None
    state_bytes: int
    removes: str
    is_consistent: bool


def plan(
    keys: Keys, schemes: tuple[str, ...], nodes: int, then: int, weights: tuple[float, ...], scale: Scale, seed: int
) -> list[Setting]:
    """Return a setting for each scheme."""
    if scale == "quick":
        keys = keys if keys.given is not None else made_keys(max(min(keys.total, 1000), keys.total // 50), seed)
    few = sampled(keys, max(1, STEPS_MAX // then))
    return [
        Setting(scheme, few if asks_all(factory) else keys, nodes, then, weights, seed, factory)
        for scheme, factory in ((scheme, SCHEMES[scheme]) for scheme in schemes)
    ]


def deals_sections(factory: Factory) -> bool:
    """Whether a scheme deals out whole sections."""
    return isinstance(build(factory, ["any"]), Sections)


def asks_all(factory: Factory) -> bool:
    """Whether a look-up takes a number of steps proportional to the nodes."""
    return build(factory, ["any"]).lookup_cost == "O(n)"


def measure(setting: Setting) -> Cell:
    """Place the keys, add nodes, remove one, and place copies."""
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
    placement = build(setting.factory, names, weights)
    loads = np.bincount(placement.place_many(setting.keys.hashes(placement.hasher)), minlength=len(names))
    shares = loads / loads.sum() / (np.array(list(weights.values())) / sum(weights.values()))
    return float(np.abs(shares - 1).max())


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[Cell]) -> list[Table]:
    """Return evenness, movement and other properties.

    If Golubtsov's table was measured under its conditions, it comes first.
    """
    found = [cell for cell in result.cells if fourth_text.is_as_there(cell.setting)]
    return [*([fourth_text.table(found)] if found else []), _evenness(result), _stability(result), _abilities(result)]


def _evenness(result: Result[Cell]) -> Table:
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
            f"A sample of {size:,} keys, because each look-up asks every node: {names}. By chance, a sample of this "
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
    note = "Ideal: only the new node's fair share moves, or the share of the node that goes."
    return Table("stability", "How stable: keys that move when nodes come and go", columns, tuple(rows), bar, (note,))


def _abilities(result: Result[Cell]) -> Table:
    columns = (
        Column("scheme"), Column("state (bytes)", ",d"), Column("look-up"), Column("memory"),
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
        "State is the memory that a look-up needs: packed tables and points, without the nodes' names and addresses.",
    )
    return Table("abilities", "Other properties: memory, weights, names", columns, tuple(rows), notes=notes)


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
        keys: the keys; None: a million generated ones.
        schemes: names of the schemes; empty: all.
        nodes: number of nodes at first.
        then: number of nodes after growing.
        weights: one weight per node; empty: all equal. Only proportions matter, because schemes get the weights over
            their mean. New nodes weigh the mean.
        seed: seed of generated keys.

    Raises:
        ValueError: weights are too far apart.
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
        again=again(f"compare {shlex.join(options)}"),
    )

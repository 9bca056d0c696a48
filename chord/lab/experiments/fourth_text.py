"""The table of Golubtsov 2024: 10^6 keys on 20 shards, then on 21.

The article is "Алгоритмы шардинга (разделения) данных". Its table has the share of keys that keep their shard, and the
standard deviation of keys per shard, on 21 shards. Kept shares are sharp. If each key picks its shard independently,
the deviation is binomial: sqrt(m p (1 - p)) with p = 1/21. On a ring the deviation depends on the names of the nodes,
and `draws` has its distribution.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from chord.lab.harness.experiment import Column, Row, Table
from chord.lab.numbers import sigmas_of_chi_square

if TYPE_CHECKING:
    from chord.lab.experiments.compare import Cell, Setting

NODES, THEN, KEYS = 20, 21, 1_000_000
KEPT_WITHIN = 0.003
ERRORS_MAX = 3.0


class Said(NamedTuple):
    """A row of Golubtsov's table.

    Attributes:
        kept: share of the keys that keep their shard.
        std: standard deviation of keys per shard.
        is_binomial: whether each key picks its shard independently.
    """

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


def is_as_there(setting: Setting) -> bool:
    """Whether a scheme is in Golubtsov's table and was measured under its conditions."""
    keys = setting.keys
    same = (setting.nodes, setting.then, setting.weights) == (NODES, THEN, ())
    return same and keys.given is None and keys.total == KEYS and setting.scheme in SAID


def binomial_std(keys: int, nodes: int) -> float:
    """Return the std of keys per node if each key picks a node by chance."""
    return math.sqrt(keys / nodes * (1 - 1 / nodes))


def errors_off(std: float) -> float:
    """Return how many standard errors a std of keys per node is off the binomial one.

    The standard error of the std of m nodes is 1 / sqrt(2 (m - 1)) of it: 16 % for 21 nodes.
    """
    return (std / binomial_std(KEYS, THEN) - 1) * math.sqrt(2 * (THEN - 1))


def by_chance(rows: int) -> float:
    """Return the probability that chance alone takes a row beyond its bar.

    Every key picks its node by chance. The probability is that of at least one of `rows` rows.
    """
    freedom = THEN - 1
    ends = (1 + sign * ERRORS_MAX / math.sqrt(2 * freedom) for sign in (-1, 1))
    low, high = (sigmas_of_chi_square(freedom * end**2, freedom) for end in ends)
    beyond = (math.erfc(-low / math.sqrt(2)) + math.erfc(high / math.sqrt(2))) / 2
    return float(1 - (1 - beyond) ** rows)


def table(cells: list[Cell]) -> Table:
    """Return the measured table beside the published one."""
    columns = (
        Column("scheme"), Column("kept", ".2%"), Column("published", ".2%"), Column("differs by", "+.2%"),
        Column("std", ",.0f"), Column("published", ",.0f"), Column("binomial std", ",.0f"),
        Column("standard errors off", "+.2f"),
    )  # fmt: skip
    rows, beyond = [], []
    for cell in sorted(cells, key=lambda cell: list(SAID).index(cell.setting.scheme)):
        said, kept = SAID[cell.setting.scheme], cell.grown.kept if cell.grown else math.nan
        std = cell.grown_loads.std if cell.grown_loads else math.nan
        errors = errors_off(std)
        passed = abs(kept - said.kept) <= KEPT_WITHIN and abs(errors) <= ERRORS_MAX
        tail = (binomial_std(KEYS, THEN), errors) if said.is_binomial else (None, None)
        values = (cell.setting.scheme, kept, said.kept, kept - said.kept, std, said.std, *tail)
        rows.append(Row(values, passed if said.is_binomial else None))
        if said.is_binomial and not abs(errors) <= ERRORS_MAX:
            beyond.append(f"{cell.setting.scheme} ({errors:+.2f})")
    judged = sum(row.passed is not None for row in rows)
    bar = (
        "kept share within 0.3 percentage points of the published one, and the std of each row within "
        f"{ERRORS_MAX:g} standard errors of the binomial one"
    )
    notes = [
        "20 nodes, then 21; the std is that of keys per node on 21. The figures of a ring depend on the names of its "
        "nodes. The experiment draws has their distribution."
    ]
    if judged:
        share = by_chance(judged)
        notes.append(
            f"With {judged} such row{'s' * (judged != 1)}, chance alone takes one or more beyond {ERRORS_MAX:g} for "
            f"{share:.1%} of all seeds, one in {1 / share:.0f}."
        )
    if beyond:
        notes.append(
            f"Beyond it here: {', '.join(beyond)}. That is chance if another --seed is within; a broken scheme is "
            "beyond it for every seed."
        )
    return Table("fourth_text", "Golubtsov's table", columns, tuple(rows), bar, tuple(notes))

"""The number of fixed sections: evenness, room for growth, and the size of the map.

Ticket 19 of the exam notes "Распределенные системы" gives two bounds. One server must be able to hold the map, so there
are not too many sections. There are orders of magnitude more sections than servers, so that servers can be added and
loads can be evened out. Kokorin's slides "Шардирование" add that with too few sections a new server gets none.

With S sections on n nodes, a node has at most ceil(S / n) sections. So the fullest one has ceil(S / n) n / S times the
mean, which is at most 1 + n / S.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from chord.lab.experiments.common import Factory, build, node_names
from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.sections import Sections

NODES, THEN = 20, 21
COUNTS = (10, 20, 30, 50, 110, 500, 2_000, 4_096, 20_000)


class CountSetting(NamedTuple):
    """A number of sections, laid out on 20 nodes and then on 21."""

    sections: int
    seed: int
    factory: Factory

    def __str__(self) -> str:
        return f"{self.sections:,} sections"


@dataclass(frozen=True)
class CountCell:
    """The layout of a map of sections on 21 nodes, after the 21st was added.

    Attributes:
        most: number of sections of the node with the most.
        without: number of nodes without a section.
        moved: number of sections that moved when the node was added.
        newcomer: number of sections of the added node.
        map_bytes: bytes of the map.
    """

    setting: CountSetting
    most: int
    without: int
    moved: int
    newcomer: int
    map_bytes: int

    @property
    def fullest(self) -> float:
        """The number of sections of the node with the most, over the mean."""
        return self.most * THEN / self.setting.sections


def plan(scale: Scale, seed: int) -> list[CountSetting]:
    """Return one setting for each number of sections."""
    return [CountSetting(sections, seed, SCHEMES["sections"]) for sections in COUNTS]


def measure(setting: CountSetting) -> CountCell:
    """Lay the sections out on 20 nodes, add a node, and measure the map."""
    names = node_names(THEN, setting.seed)
    placement = build(setting.factory, names[:-1], sections=setting.sections)
    assert isinstance(placement, Sections)
    before = placement.owners()
    placement.add(names[-1])
    after = placement.owners()
    counts = [after.count(name) for name in names]
    moved = sum(old != new for old, new in zip(before, after, strict=True))
    return CountCell(setting, max(counts), counts.count(0), moved, counts[-1], placement.state_bytes)


def is_met(cell: CountCell) -> bool:
    """Whether the map is as even as whole sections allow, and sections moved only to the added node."""
    sections = cell.setting.sections
    is_even = cell.most == -(-sections // THEN) and cell.without == max(0, THEN - sections)
    return is_even and cell.moved == cell.newcomer and abs(cell.newcomer - sections / THEN) < 1


def tables(result: Result[CountCell]) -> list[Table]:
    """Return evenness, growth and size of the map, by the number of sections."""
    fields: list[Field[CountCell]] = [
        Field("sections", ",", lambda cell: cell.setting.sections),
        Field("per node", ",.1f", lambda cell: cell.setting.sections / THEN),
        Field("fullest / mean", ".3f", lambda cell: cell.fullest),
        Field("nodes without one", "", lambda cell: cell.without),
        Field("newcomer's sections", ",", lambda cell: cell.newcomer),
        Field("of its due share", ".0%", lambda cell: cell.newcomer * THEN / cell.setting.sections),
        Field("map (bytes)", ",", lambda cell: cell.map_bytes),
    ]
    notes = (
        f"{THEN} nodes, after the last of them was added. Each section can be on one node, so more nodes get none.",
        "From 100 sections per node on, the fullest node is within 1 % of the mean: ceil(S / n) n / S.",
    )
    bar = "no node has more than ceil(S / n) sections; only the newcomer gets sections, its due share up to rounding"
    return [Table.of("section_counts", "How many sections", fields, result.cells, is_met, bar, notes)]


EXPERIMENT = Experiment(
    name="section_counts",
    title="How many sections",
    source="exam notes «Распределенные системы», ticket 19; Kokorin, «Шардирование»: rules without figures",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={},
    command="lab movement",
)

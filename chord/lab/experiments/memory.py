"""The memory that a lookup needs among thousands of servers.

An article on consistent hashing says that a ring with vnodes takes megabytes for thousands of servers. A point of the
lab's ring takes 12 bytes: 8 for its place and 4 for its server's number. So v points on each of n servers take 12 n v
bytes. Names and addresses of the servers are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from chord.lab.experiments.common import build, node_names
from chord.lab.harness.experiment import Experiment, Field, Result, Scale, Table

SCHEMES_SHOWN = ("jump", "rendezvous", "ring", "multi-probe", "ring-100", "ring-1000", "maglev")
POINT_BYTES = 12
POINTS = {"ring": 1, "ring-100": 100, "ring-1000": 1000}
"""Points per server of the rings."""
MEGABYTE = 1_000_000


class MemorySetting(NamedTuple):
    """A scheme, and its number of servers."""

    scheme: str
    servers: int
    seed: int

    def __str__(self) -> str:
        return f"{self.scheme}, {self.servers:,} servers"


@dataclass(frozen=True)
class MemoryCell:
    """The bytes of state that a lookup needs, under one setting."""

    setting: MemorySetting
    state_bytes: int


def plan(scale: Scale, seed: int) -> list[MemorySetting]:
    """Return each scheme with 1,000 servers; except at quick scale also with 5,000."""
    sizes = (1000,) if scale == "quick" else (1000, 5000)
    return [MemorySetting(scheme, servers, seed) for servers in sizes for scheme in SCHEMES_SHOWN]


def measure(setting: MemorySetting) -> MemoryCell:
    """Build a scheme, and measure its state."""
    return MemoryCell(setting, build(setting.scheme, node_names(setting.servers, setting.seed)).state_bytes)


def is_met(cell: MemoryCell) -> bool | None:
    """Whether a ring takes 12 bytes per point, and at least a megabyte with 100 vnodes; None for other schemes."""
    points = POINTS.get(cell.setting.scheme)
    if points is None:
        return None
    is_law = cell.state_bytes == POINT_BYTES * points * cell.setting.servers
    return is_law and (points == 1 or cell.state_bytes >= MEGABYTE)


def tables(result: Result[MemoryCell]) -> list[Table]:
    """Return a table of the memory of each scheme at each number of servers."""
    fields: list[Field[MemoryCell]] = [
        Field("scheme", "", lambda cell: cell.setting.scheme),
        Field("servers", ",", lambda cell: cell.setting.servers),
        Field("state (MB)", ",.3f", lambda cell: cell.state_bytes / MEGABYTE),
        Field("bytes per server", ",.1f", lambda cell: cell.state_bytes / cell.setting.servers),
    ]
    notes = ("State is the memory that a lookup needs: packed tables and points, without the servers' names.",)
    bar = f"a ring takes {POINT_BYTES} bytes per point, and with 100 vnodes or more at least a megabyte"
    return [Table.of("memory", "Memory among thousands of servers", fields, result.cells, is_met, bar, notes)]


EXPERIMENT = Experiment(
    name="memory",
    title="Memory among thousands of servers",
    source="an anonymous article on consistent hashing: megabytes for thousands of servers with vnodes",
    plan=plan,
    measure=measure,
    tables=tables,
    pictures={},
    command="lab vnodes",
)

"""The central directory: one table, in one place, that everybody asks.

One hop and no state at all with whoever asks; all of it, and all the traffic of asking, in one place. Every change is a
new configuration with the next number, and old ones stay readable: a node that was away learns what it missed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.schemes.sections import TOLERANCE, Move, Sections


class Directory(Sections):
    """Fixed sections behind one server: join, leave, move and query, with numbered configurations.

    Source: the fifth source text's shardmaster, one end of the scale whose other end is the successor pointer.
    """

    scheme = "directory"
    title = "central directory"
    source = "folklore"
    lookup_cost = "O(1), 1 hop"
    memory_cost = "O(S), in one place"

    def _build(self) -> None:
        super()._build()
        self._configurations = [self.owners()]

    @property
    def version(self) -> int:
        """The number of the current configuration; the first is 0."""
        return len(self._configurations) - 1

    def query(self, version: int = -1) -> tuple[str, ...]:
        """Return the node of every section as of a configuration; -1: the current one.

        Raises: IndexError: there is no such configuration.
        """
        if not -1 <= version <= self.version:
            raise IndexError(f"the last configuration is {self.version}, there is no {version}")
        return self._configurations[version]

    def add(self, node: str, weight: float = 1.0) -> None:
        """Join: sections go to the newcomer, in a new configuration."""
        super().add(node, weight)
        self._configurations.append(self.owners())

    def grow(self, nodes: Sequence[str]) -> None:
        """Several join, in one new configuration.

        Raises: as `add`; then nobody has come.
        """
        super().grow(nodes)
        self._configurations.append(self.owners())

    def remove(self, node: str) -> None:
        """Leave: the leaver's sections go to the others, in a new configuration."""
        super().remove(node)
        self._configurations.append(self.owners())

    def replace(self, old: str, new: str) -> None:
        """A newcomer takes over all sections of a node, in a new configuration."""
        super().replace(old, new)
        self._configurations.append(self.owners())

    def move(self, section: int, node: str) -> None:
        """Move one section, in a new configuration."""
        super().move(section, node)
        self._configurations.append(self.owners())

    def move_hot(self, loads: NDArray[np.float64], tolerance: float = TOLERANCE) -> list[Move]:
        """Move hot sections to cold nodes, all in one new configuration."""
        moves = super().move_hot(loads, tolerance)
        if moves:
            self._configurations.append(self.owners())
        return moves

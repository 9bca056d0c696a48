"""The central directory: one table in one place that all clients ask.

A look-up takes one hop, and clients keep no state. All state and all look-up traffic are in one place. Every change
makes a new configuration with the next number. Old ones stay readable, so a node that was away can catch up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chord.lab.schemes.sections import TOLERANCE, SectionMove, Sections


class Directory(Sections):
    """Fixed sections behind one server: join, leave, move and query.

    Source: the course notes "分片 (Sharding)", in which the shardmaster is the centralized extreme and the successor
    pointer the other.
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
        """Number of the current configuration; the first is 0."""
        return len(self._configurations) - 1

    def query(self, version: int = -1) -> tuple[str, ...]:
        """Return the node of each section in a configuration.

        Args:
            version: number of the configuration; -1 is the current one.

        Raises:
            IndexError: there is no such configuration.
        """
        if not -1 <= version <= self.version:
            raise IndexError(f"the last configuration is {self.version}; there is no configuration {version}")
        return self._configurations[version]

    def add(self, node: str, weight: float = 1.0) -> None:
        """Add a node and give it sections, in a new configuration."""
        super().add(node, weight)
        self._configurations.append(self.owners())

    def grow(self, nodes: Sequence[str]) -> None:
        """Add several nodes, all or none, in one new configuration.

        Raises:
            ValueError: as for `add`.
            UnsupportedChange: as for `add`.
        """
        super().grow(nodes)
        self._configurations.append(self.owners())

    def remove(self, node: str) -> None:
        """Remove a node and give its sections to the others, in a new configuration."""
        super().remove(node)
        self._configurations.append(self.owners())

    def replace(self, old: str, new: str) -> None:
        """Give all sections of a node to a new one, in a new configuration."""
        super().replace(old, new)
        self._configurations.append(self.owners())

    def move(self, section: int, node: str) -> None:
        """Move one section to a node, in a new configuration."""
        super().move(section, node)
        self._configurations.append(self.owners())

    def move_hot(self, loads: NDArray[np.float64], tolerance: float = TOLERANCE) -> list[SectionMove]:
        """Move hot sections to cold nodes, all in one new configuration."""
        moves = super().move_hot(loads, tolerance)
        if moves:
            self._configurations.append(self.owners())
        return moves

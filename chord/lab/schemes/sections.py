"""Fixed sections: many more sections than nodes, and a central map to nodes.

A section is the set of hashes with the same remainder hash % S. A key's section never changes, so a change of the nodes
moves whole sections. A new node takes sections from the nodes furthest above their due share, and a leaving node gives
its sections to those furthest below. The map can also be edited, so that hot sections move to cold nodes. With too few
sections, some nodes get none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Unpack

import numpy as np
from numpy.typing import NDArray

from chord.lab.hashing import Hashes
from chord.lab.placement import Common, Numbers, Placement, compact, first_distinct

SECTIONS = 4096
TOLERANCE = 1.05


class SectionMove(NamedTuple):
    """The move of one section from one node to another."""

    section: int
    old: str
    new: str


class Sections(Placement):
    """A map of S fixed sections of the hashes to nodes, in proportion to weights.

    Each node has its due number of sections, up to rounding.

    Args:
        sections: S, several hundred per node, so that one section more or less matters little.

    Raises:
        ValueError: `sections` is less than 1; see also `Placement`.

    Source: Kokorin, "Шардирование"; the exam notes "Распределенные системы", ticket 19; DeCandia et al. 2007 (Dynamo),
    section 6.2, strategy 3.
    """

    scheme = "sections"
    title = "fixed sections"
    source = "DeCandia et al. 2007"
    lookup_cost = "O(1)"
    memory_cost = "O(S)"
    has_names = False
    has_weights = True

    def __init__(self, nodes: Sequence[str], *, sections: int = SECTIONS, **common: Unpack[Common]) -> None:
        if sections < 1:
            raise ValueError("a map needs at least one section")
        self.sections = sections
        super().__init__(nodes, **common)

    def _build(self) -> None:
        self._owners = np.zeros(self.sections, dtype=np.int32)
        due, have = self._due(), np.zeros(len(self._nodes))
        for section in range(self.sections):  # in turns, so that neighbouring sections are on different nodes
            number = int(np.argmax((due - have) / due))
            self._owners[section] = number
            have[number] += 1

    # -- placing --------------------------------------------------------------------------------

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 4 per section, for its node's number."""
        return int(self._owners.nbytes)

    def shares(self) -> NDArray[np.float64]:
        """Return for each node its share of the sections, and therefore of the hashes."""
        return np.bincount(self._owners, minlength=len(self._nodes)) / self.sections

    def locate(self, point: int) -> int:
        """Return the number of the node that has a hash's section."""
        return int(self._owners[point % self.sections])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node that has its section."""
        return self._owners[self._sections_of(hashes)].astype(np.intp)

    def locate_replicas(self, point: int, count: int) -> list[int]:
        """Return the first `count` distinct node numbers from a hash's section on.

        If fewer nodes have a section, all of these are returned.
        """
        owners = (int(self._owners[(point + step) % self.sections]) for step in range(self.sections))
        return first_distinct(owners, count)

    def replicas_many(self, hashes: Hashes, count: int) -> Numbers:
        """Return for each hash the first `count` distinct node numbers from its section.

        The shape is (k, count), or (k, number of nodes with a section) if these are fewer.
        """
        self._check_copies(count)
        count = min(count, len(set(self._owners.tolist())))
        lists = np.array([self.locate_replicas(section, count) for section in range(self.sections)], dtype=np.intp)
        return lists[self._sections_of(hashes)]

    # -- moving sections ------------------------------------------------------------------------

    def owners(self) -> tuple[str, ...]:
        """Return the map: for each section, the name of its node."""
        return tuple(self._nodes[number] for number in self._owners.tolist())

    def move(self, section: int, node: str) -> None:
        """Assign one section to a node, in the map.

        Raises:
            KeyError: there is no such node.
            IndexError: there is no such section.
        """
        if not 0 <= section < self.sections:
            raise IndexError(f"the {self.sections} sections are numbered from 0; there is no section {section}")
        self._owners[section] = self._number(node)

    def move_hot(self, loads: NDArray[np.float64], tolerance: float = TOLERANCE) -> list[SectionMove]:
        """Even out loads: move hot sections from the hottest node to the coldest.

        A section or node is hot if its load is high. Each step moves the hottest section that leaves the cold node
        cooler than the hot node was. The method stops when no node has more than `tolerance` times its due load, or
        when no section is left to move. A section that is hotter than a node's due load can be moved, but not cooled.

        Args:
            loads: load of each section in any unit, such as requests per second; shape (sections,).
            tolerance: allowed load of a node over its due load by weight, at least 1.

        Returns:
            the moves, in order; the map already has them.

        Raises:
            ValueError: `loads` has another shape, or `tolerance` is below 1.
        """
        if loads.shape != (self.sections,) or tolerance < 1:
            raise ValueError(f"pass one load for each of the {self.sections} sections, and a tolerance of 1 or more")
        weights = np.array(self._weights)
        moves: list[SectionMove] = []
        while True:
            heat = np.bincount(self._owners, weights=loads, minlength=len(weights))
            hot, cold = int(np.argmax(heat / weights)), int(np.argmin(heat / weights))
            if heat[hot] / weights[hot] <= tolerance * heat.sum() / weights.sum():
                return moves
            own = np.flatnonzero(self._owners == hot)
            helps = own[(heat[cold] + loads[own]) / weights[cold] < heat[hot] / weights[hot]]
            helps = helps[loads[helps] > 0]
            if not len(helps):
                return moves
            section = int(helps[np.argmax(loads[helps])])
            self._owners[section] = cold
            moves.append(SectionMove(section, self._nodes[hot], self._nodes[cold]))

    # -- changes --------------------------------------------------------------------------------

    def _add(self, node: str, weight: float) -> None:
        due = self._due(weight)
        have = np.bincount(self._owners, minlength=len(due)).astype(np.float64)
        for _ in range(round(due[-1])):
            giver = int(np.argmax(have[:-1] - due[:-1]))
            self._owners[np.flatnonzero(self._owners == giver)[-1]] = len(self._nodes)
            have[giver] -= 1

    def _remove(self, number: int) -> None:
        due = self._due()
        due *= self.sections / (self.sections - due[number])
        have = np.bincount(self._owners, minlength=len(due)).astype(np.float64)
        due[number] = -np.inf
        for section in np.flatnonzero(self._owners == number):
            heir = int(np.argmax(due - have))
            self._owners[section] = heir
            have[heir] += 1
        compact(self._owners, number)

    def _due(self, *newcomers: float) -> NDArray[np.float64]:
        """Return the exact number of sections that each node should have.

        Args:
            newcomers: weights of nodes to add, which come last in the result.
        """
        weights = np.array([*self._weights, *newcomers])
        return np.asarray(self.sections * weights / weights.sum())

    def _sections_of(self, hashes: Hashes) -> Numbers:
        return (hashes % np.uint64(self.sections)).astype(np.intp)


class TwoLevelSections(Sections):
    """Fixed sections with a map in `parts` parts: find the part, then the node.

    A map of a million sections does not have to be in one place. Map servers hold its parts, and a small top-level map
    says which server has which part. No server holds more than one part.

    Args:
        sections: number of sections, a multiple of `parts`.
        parts: number of parts of the map, each on its own map server.

    Raises:
        ValueError: `parts` is less than 1 or does not divide `sections`; see also `Sections`.

    Source: Kokorin, "Шардирование", multi-level sharding; Chang et al. 2006 (Bigtable), section 5.1: three levels.
    """

    scheme = "sections-2"
    title = "sections, two levels"
    source = "Chang et al. 2006"
    lookup_cost = "O(1), 2 lookups"
    memory_cost = "O(√S)"

    def __init__(
        self, nodes: Sequence[str], *, sections: int = SECTIONS, parts: int = 64, **common: Unpack[Common]
    ) -> None:
        if parts < 1 or sections % parts:
            raise ValueError(f"{sections} sections cannot be cut into {parts} equal parts")
        self.parts = parts
        super().__init__(nodes, sections=sections, **common)

    @property
    def state_bytes(self) -> int:
        """Bytes that a lookup needs: 8 per part, and 4 per section of a single part.

        They are for each part's server, and for the node of each section in the part that is read.
        """
        return 8 * self.parts + 4 * (self.sections // self.parts)

    def part_of(self, section: int) -> int:
        """Return the index of the part of the map that has a section. This is the first of the two lookups."""
        return section // (self.sections // self.parts)

    def locate(self, point: int) -> int:
        """Return the number of the node that has a hash's section.

        The node is read from the section's part of the map.
        """
        section = point % self.sections
        part = self._owners.reshape(self.parts, -1)[self.part_of(section)]
        return int(part[section % len(part)])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return for each hash the number of the node that has its section.

        The nodes are read from the sections' parts of the map.
        """
        part, entry = np.divmod(self._sections_of(hashes), self.sections // self.parts)
        return self._owners.reshape(self.parts, -1)[part, entry].astype(np.intp)


class Directory(Sections):
    """A central directory: fixed sections in one table that all clients ask.

    It supports join, leave, move and query. A lookup takes one hop, and clients keep no state. All state and all
    lookup traffic are in one place. Every change makes a new version of the map, called a configuration in the course
    notes. Old versions stay readable, so a node that was away can learn all changes. The methods raise the errors of
    `Sections`, and then make no new version.

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
        """Number of the current version of the map; the first is 0."""
        return len(self._configurations) - 1

    def query(self, version: int = -1) -> tuple[str, ...]:
        """Return a version of the map: for each section, the name of its node.

        Args:
            version: number of the version; -1 is the current one.

        Raises:
            IndexError: there is no such version.
        """
        if not -1 <= version <= self.version:
            raise IndexError(f"the last configuration is {self.version}; there is no configuration {version}")
        return self._configurations[version]

    def add(self, node: str, weight: float = 1.0) -> None:
        """Add a node and give it sections, in a new version of the map."""
        super().add(node, weight)
        self._configurations.append(self.owners())

    def grow(self, nodes: Sequence[str]) -> None:
        """Add several nodes, or none if an error is raised, in one new version of the map.

        Raises:
            ValueError: as for `add`.
            UnsupportedChange: as for `add`.
        """
        super().grow(nodes)
        self._configurations.append(self.owners())

    def remove(self, node: str) -> None:
        """Remove a node and give its sections to the others, in a new version of the map."""
        super().remove(node)
        self._configurations.append(self.owners())

    def replace(self, old: str, new: str) -> None:
        """Give all sections of a node to a new node, in a new version of the map."""
        super().replace(old, new)
        self._configurations.append(self.owners())

    def move(self, section: int, node: str) -> None:
        """Move one section to a node, in a new version of the map."""
        super().move(section, node)
        self._configurations.append(self.owners())

    def move_hot(self, loads: NDArray[np.float64], tolerance: float = TOLERANCE) -> list[SectionMove]:
        """Move hot sections to cold nodes, all in one new version of the map.

        If no section moves, there is no new version.
        """
        moves = super().move_hot(loads, tolerance)
        if moves:
            self._configurations.append(self.owners())
        return moves

"""Multi-level sections: the map of the sections is sharded itself.

A map of a million sections does not have to be in one place. Map servers hold its parts, and a small top-level map says
which server has which part. A look-up takes two steps, and no server holds more than one part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from chord.lab.hashing import Hashes
from chord.lab.placement import Common, Numbers
from chord.lab.schemes.sections import SECTIONS, Sections


class TwoLevelSections(Sections):
    """Sections in a map of `parts` parts: look up the part, then the node.

    Args:
        sections: number of sections, a multiple of `parts`.
        parts: number of parts of the map, each on its own map server.

    Source: Kokorin, "Шардирование", multi-level sharding; Chang et al. 2006 (Bigtable), section 5.1: three levels.
    """

    scheme = "sections-2"
    title = "sections, two levels"
    source = "Chang et al. 2006"
    lookup_cost = "O(1), 2 look-ups"
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
        """Eight bytes per part for its server, and four per section of the one part read."""
        return 8 * self.parts + 4 * (self.sections // self.parts)

    def part_of(self, section: int) -> int:
        """Return the part of the map that contains a section: the first look-up."""
        return section // (self.sections // self.parts)

    def locate(self, point: int) -> int:
        """Return the node of a hash's section, read from the section's part of the map."""
        section = point % self.sections
        part = self._owners.reshape(self.parts, -1)[self.part_of(section)]
        return int(part[section % len(part)])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the hashes' sections, read from their parts of the map."""
        part, entry = np.divmod(self._sections_of(hashes), self.sections // self.parts)
        return self._owners.reshape(self.parts, -1)[part, entry].astype(np.intp)

"""Multi-level sections: the map of the sections is sharded itself.

A map of a million sections need not lie in one place: its parts lie on map servers, and a small map on top says which
part is where. Two look-ups instead of one, and nobody holds more than a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from chord.lab.hashing import XXH3, Hasher, Hashes
from chord.lab.placement import Numbers
from chord.lab.schemes.sections import SECTIONS, Sections


class TwoLevelSections(Sections):
    """Sections in a map of `parts` parts: first which part has the section, then which node.

    Args:
        sections: how many; a multiple of `parts`.
        parts: of the map, one map server each.
    Source: the first source text, multi-level sharding; Chang et al. 2006 (Bigtable), section 5.1: three levels.
    """

    scheme = "sections-2"
    title = "sections, two levels"
    source = "Chang et al. 2006"
    lookup_cost = "O(1), 2 look-ups"
    memory_cost = "O(√S)"

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        weights: Mapping[str, float] | None = None,
        hasher: Hasher = XXH3,
        sections: int = SECTIONS,
        parts: int = 64,
    ) -> None:
        if parts < 1 or sections % parts:
            raise ValueError(f"{sections} sections cannot be cut into {parts} equal parts")
        self.parts = parts
        super().__init__(nodes, weights=weights, hasher=hasher, sections=sections)

    @property
    def state_bytes(self) -> int:
        """Eight bytes for where a part of the map lies, and four for each section of the one part that is read."""
        return 8 * self.parts + 4 * (self.sections // self.parts)

    def part_of(self, section: int) -> int:
        """Return which part of the map knows a section: the first look-up."""
        return section // (self.sections // self.parts)

    def locate(self, point: int) -> int:
        """Return the node of a hash's section, by way of its part of the map."""
        section = point % self.sections
        part = self._owners.reshape(self.parts, -1)[self.part_of(section)]
        return int(part[section % len(part)])

    def place_many(self, hashes: Hashes) -> Numbers:
        """Return the nodes of the hashes' sections, by way of their parts of the map."""
        part, entry = np.divmod(self._sections_of(hashes), self.sections // self.parts)
        return self._owners.reshape(self.parts, -1)[part, entry].astype(np.intp)

"""The keys that a change moved, and their destinations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chord.lab.hashing import Hashes
from chord.lab.placement import Placement


@dataclass(frozen=True)
class Snapshot:
    """The owners of hashes at one moment."""

    nodes: frozenset[str]
    owners: tuple[str, ...]


def snapshot(placement: Placement, hashes: Hashes) -> Snapshot:
    names = np.array(placement.nodes, dtype=object)
    return Snapshot(frozenset(placement.nodes), tuple(names[placement.place_many(hashes)]))


def moved(before: Snapshot, after: Snapshot) -> int:
    return sum(old != new for old, new in zip(before.owners, after.owners, strict=True))


def moved_between_old_nodes(before: Snapshot, after: Snapshot) -> int:
    """Return the number of keys that moved between old nodes: 0 for a consistent scheme."""
    return sum(
        old != new and old in after.nodes and new in before.nodes
        for old, new in zip(before.owners, after.owners, strict=True)
    )

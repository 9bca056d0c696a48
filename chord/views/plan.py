"""The estimated effects of a join or a leave on the load of each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from chord.views.common import Json


class Load(NamedTuple):
    """The load of one node.

    Attributes:
        owned: the share of the circle that it owns, 0 to 1.
        keys: the number of keys that it has a copy of.
        bytes: the size of these copies, in bytes.
    """

    owned: float = 0.0
    keys: float = 0.0
    bytes: float = 0.0

    def plus(self, stretch: Load, owned: float) -> Load:
        """Return this load with the keys and bytes of a part of the circle added.

        Args:
            stretch: the load of that part. Its `owned` is ignored.
            owned: the share of the circle, 0 to 1, that is added to `owned`; 0 if the node only keeps a copy.
        """
        return Load(self.owned + owned, self.keys + stretch.keys, self.bytes + stretch.bytes)


class PlannedChange(NamedTuple):
    """The effect of a planned join or leave on one node. All numbers are estimates.

    Attributes:
        address: the address of the node.
        before: its load now.
        after: its load afterwards.
        gets: the number of keys that it must receive, because it has no copy of them now.
        drops: the number of keys that it drops.
    """

    address: str
    before: Load = Load()
    after: Load = Load()
    gets: float = 0.0
    drops: float = 0.0


def plan_json(what: str, replicas: int, changes: Iterable[PlannedChange], names: Mapping[str, str]) -> Json:
    """Return the effects of a planned join or leave as JSON.

    Args:
        what: the plan in words, such as "n3 leaves".
        replicas: the N of the ring.
        changes: the effect on each node.
        names: the names of nodes by address. A node that it lacks appears with its address.
    """
    return {
        "plan": what,
        "estimated": True,
        "replicas": replicas,
        "nodes": [_change(change, names) for change in changes],
    }


def _change(change: PlannedChange, names: Mapping[str, str]) -> Json:
    def load(side: Load) -> Json:
        return {"owned": round(side.owned, 6), "keys": round(side.keys), "bytes": round(side.bytes)}

    return {
        "node": names.get(change.address, change.address),
        "address": change.address,
        "before": load(change.before),
        "after": load(change.after),
        "gets": round(change.gets),
        "drops": round(change.drops),
    }

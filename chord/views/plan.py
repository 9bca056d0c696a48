"""The estimated effects of a join or a leave on the load of each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from chord.views.common import Json


class Load(NamedTuple):
    """The load of one node."""

    owned: float = 0.0  # the share of the circle that it owns, 0 to 1
    keys: float = 0.0  # the number of keys that it keeps a copy of
    bytes: float = 0.0  # the size of these copies

    def plus(self, stretch: Load, owned: float) -> Load:
        """Return this load plus the keys and bytes of a stretch, a part of the circle.

        `owned` is the share of the circle, 0 to 1, that this load gets in addition; 0 if the node only keeps a copy.
        `stretch.owned` is ignored.
        """
        return Load(self.owned + owned, self.keys + stretch.keys, self.bytes + stretch.bytes)


class PlannedChange(NamedTuple):
    """The effect of a plan on one node."""

    address: str  # the node
    before: Load = Load()  # its load now
    after: Load = Load()  # its load afterwards
    gets: float = 0.0  # the number of keys it must receive, because it has no copy of them now
    drops: float = 0.0  # the number of keys it drops


def plan_json(what: str, replicas: int, changes: Iterable[PlannedChange], names: Mapping[str, str]) -> Json:
    """Return the change of each node under a plan.

    Args:
        what: the plan in words, such as "n3 leaves".
        replicas: the N of the ring.
        changes: the changes.
        names: the names of nodes by address. For any other node, the address is shown.
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

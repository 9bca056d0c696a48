"""The verdict on a ring: is it correct, and is it complete?"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from chord.verify.invariants import Violation
from chord.views.common import Json, named_address


class CheckVerdict(NamedTuple):
    """The result of `chord check`.

    Attributes:
        nodes, vnodes: the numbers of nodes and of vnodes that are members of the ring.
        is_small: whether the ring has at most r + 1 nodes, so that each node knows all others.
        violations: the broken invariants.
        waiting: the differences to an Ideal ring that the ring still has to repair.
        labels: the text that stands for each vnode in the output, by its id.
        unreachable: the addresses of known nodes that do not answer. The ring lacks their copies.
        under_replicated: the number of records with a copy on a node that is unreachable or not in sync.
        damaged: pairs of a node's name and its number of damaged copies that are not replaced yet.
        troubles: pairs of the name of a node that does not serve all requests, and the reason.
        unavailable: the share of the circle in which a get may fail, 0 to 1.
        absent: the addresses of the unreachable nodes that may hold keys there.
        reported: pairs of an address in `unreachable` and the reason, if one is known.
        quarantined: the number of values that are in quarantine.
        clocks: warnings about wall clocks that differ, in words.
        names: the names of nodes by address, as their peers remember them.
    """

    nodes: int
    vnodes: int
    is_small: bool
    violations: list[Violation]
    waiting: list[Violation]
    labels: dict[int, str]
    unreachable: tuple[str, ...] = ()
    under_replicated: int = 0
    damaged: tuple[tuple[str, int], ...] = ()
    troubles: tuple[tuple[str, str], ...] = ()
    unavailable: float = 0.0
    absent: tuple[str, ...] = ()
    reported: tuple[tuple[str, str], ...] = ()
    quarantined: int = 0
    clocks: tuple[str, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def is_ideal(self) -> bool:
        """Whether no invariant is broken and the ring has nothing left to repair."""
        return not self.violations and not self.waiting

    @property
    def serves(self) -> bool:
        """Whether every node serves all requests, no copy is damaged, and no get may fail."""
        return not (self.damaged or self.troubles or self.unavailable)

    def node_at(self, address: str) -> str:
        """Return the text that stands for the node at an address: its address, after its name if that is known."""
        return named_address(address, self.names)

    def holds(self, *, only_invariants: bool) -> bool:
        """Return whether `chord check` passes: its exit code is then 0, otherwise 8.

        No invariant may be broken. Unless `only_invariants`, `is_ideal` and `serves` must be true, too.
        """
        return not self.violations and (only_invariants or (self.is_ideal and self.serves))


def verdict_json(verdict: CheckVerdict, *, only_invariants: bool = False) -> Json:
    """Return the result of `chord check` as JSON. Its field `ok` is `verdict.holds(only_invariants=…)`."""

    def listed(found: list[Violation]) -> list[Json]:
        return [
            {"invariant": v.invariant, "text": v.text, "nodes": [verdict.labels.get(n, str(n)) for n in v.nodes]}
            for v in found
        ]

    return {
        "ideal": verdict.is_ideal,
        "small": verdict.is_small,
        "violations": listed(verdict.violations),
        "waiting": listed(verdict.waiting),
        "unreachable": list(verdict.unreachable),
        "under_replicated": verdict.under_replicated,
        "ok": verdict.holds(only_invariants=only_invariants),
        "damaged": [{"node": node, "records": count} for node, count in verdict.damaged],
        "unavailable": {"share": round(verdict.unavailable, 6), "nodes": list(verdict.absent)},
        "troubles": [{"node": node, "why": why} for node, why in verdict.troubles],
        "quarantined": verdict.quarantined,
        "clocks": list(verdict.clocks),
    }

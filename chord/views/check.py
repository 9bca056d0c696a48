"""The verdict on a ring: is it correct, and is it complete?"""

from __future__ import annotations

from typing import NamedTuple

from chord.verify.invariants import Violation
from chord.views.common import Json


class CheckVerdict(NamedTuple):
    """The result of a check."""

    nodes: int  # the number of member nodes
    vnodes: int
    is_small: bool  # whether each node knows all others
    violations: list[Violation]
    waiting: list[Violation]  # the parts of the ring that are not in their final state yet
    labels: dict[int, str]  # the name to print for each vnode, by its id
    unreachable: tuple[str, ...] = ()  # known nodes that do not answer; the ring lacks their copies
    under_replicated: int = 0  # records with a copy on a node that is unreachable or not in sync
    damaged: tuple[tuple[str, int], ...] = ()  # nodes with damaged copies that are not replaced yet, and their number
    troubles: tuple[tuple[str, str], ...] = ()  # nodes that do not serve all requests, and why
    unavailable: float = 0.0  # the share of the circle in which a get may fail
    absent: tuple[str, ...] = ()  # the unreachable nodes that may hold keys there
    reported: tuple[tuple[str, str], ...] = ()  # the nodes in `unreachable` for which a reason is known, and the reason
    quarantined: int = 0  # values that are hidden from readers until an operator decides about them
    clocks: tuple[str, ...] = ()  # warnings about clocks that differ

    @property
    def is_ideal(self) -> bool:
        """Whether no invariant is broken and every part is in its final state."""
        return not self.violations and not self.waiting

    @property
    def serves(self) -> bool:
        """Whether all nodes serve all requests, no copy is damaged, and no get may fail."""
        return not (self.damaged or self.troubles or self.unavailable)

    def holds(self, *, only_invariants: bool) -> bool:
        """Return whether the check passes: the exit code is 0 if it does, otherwise 8.

        No invariant may be broken. Unless `only_invariants`, `is_ideal` and `serves` must hold, too.
        """
        return not self.violations and (only_invariants or (self.is_ideal and self.serves))


def verdict_json(verdict: CheckVerdict, *, only_invariants: bool = False) -> Json:
    """Return a verdict as JSON; `only_invariants` changes only its `ok`."""

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

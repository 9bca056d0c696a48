"""Prometheus metrics of a ring, as the dashboard sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import NamedTuple

from chord.views.dashboard import ring_check_json
from chord.views.top import GONE
from chord.web.exposition import Family, counter, gauge
from chord.web.source import LiveRing


class RingFacts(NamedTuple):
    """The numbers about a ring and its dashboard that the Prometheus metrics show.

    Attributes:
        nodes: the number of nodes that answer.
        holds: by the name of each invariant, whether it holds; None if that cannot be known from the answers.
        waiting: the number of differences to an Ideal ring that the ring still has to repair.
        age_s: the age of the oldest status among those shown, in seconds; infinity before the first answer.
        readers: the number of open pages.
        dropped: the number of pages that were disconnected since the start because they did not keep up.
    """

    nodes: int
    holds: Mapping[str, bool | None]
    waiting: int
    age_s: float
    readers: int
    dropped: int


def ring_facts(ring: LiveRing, readers: int, dropped: int) -> RingFacts:
    """Return the current numbers about a living ring.

    Args:
        ring: the ring.
        readers: the number of open pages.
        dropped: the number of pages that were disconnected because they did not keep up.
    """
    state = ring.at()
    check = ring_check_json(state.model, ring.shape, state.moment)
    holds = {invariant["name"]: invariant["holds"] for invariant in check["invariants"]}
    nodes = sum(fields.get("state") not in GONE for fields in state.model.nodes.values())
    age_ms = state.moment.age_ms
    return RingFacts(nodes, holds, len(check["waiting"]), inf if age_ms is None else age_ms / 1000, readers, dropped)


def ring_metrics(ring: RingFacts) -> Iterator[Family]:
    """Yield the Prometheus metrics about the ring as a whole, which no single node has."""
    yield gauge("ring_nodes", "Nodes that answer the dashboard.", ring.nodes)
    holds = {(name,): float(value) for name, value in ring.holds.items() if value is not None}
    text = "1 if an invariant of the ring holds, 0 if not; absent if the answers do not tell."
    yield gauge("ring_invariant_holds", text, holds, ("invariant",))
    yield gauge("ring_waiting", "Parts of the ring that are not in their final state yet.", ring.waiting)
    yield gauge("watch_age_seconds", "Age of the oldest answer that the dashboard shows.", ring.age_s)
    yield gauge("watch_readers", "Open pages.", ring.readers)
    yield counter("watch_readers_dropped", "Pages that did not keep up and were disconnected.", {(): ring.dropped})

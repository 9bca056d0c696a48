"""Mistakes of the dashboard."""

from __future__ import annotations

from chord.views import dashboard
from chord.web.aggregator import Aggregator
from chord.web.hub import EventHub

from . import scenes_web as scenes
from .mutant import Edit, Mutant

MUTANTS = (
    Mutant(
        "delta lost",
        "a page goes on with a state that the ring never had",
        (Edit(EventHub._messages, "merged(changes)", "changes[-1]"),),
        scenes.dashboard_sees_a_death,
        2,
        ("PlayedState",),
    ),
    Mutant(
        "stale state shown as live",
        "a page shows a dead node with the age of a living one",
        (Edit(Aggregator._on_miss, "node.misses += 1\n", "node.misses += 1\n    node.described_s = now_s\n"),),
        scenes.dashboard_sees_a_death,
        2,
        ("TrueAge",),
    ),
    Mutant(
        "last vnode not counted",
        "the parts of a large ring lack a vnode",
        (Edit(dashboard._bins, 'part["vnodes"] += 1', 'part["vnodes"] += point != points[-1]'),),
        scenes.large_ring_is_counted,
        2,
        ("WholeParts",),
    ),
)

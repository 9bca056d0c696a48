"""The plan that a seed draws, and the changes by given values."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from chord.config import Limits
from chord.errors import ConfigError
from chord.sim.plan import FAULTS, THEMES, Plan, draw

SEEDS = range(400)


def test_plan_of_a_seed_never_changes() -> None:
    """Regression tests and reports contain seeds."""
    assert draw(3) == Plan(
        seed=3,
        nodes=12,
        nodes_max=16,
        successors=4,
        replicas=3,
        fidelity="messages",
        faults=("crash", "row", "meddle", "oneway", "blackout", "jitter", "wipe", "full", "skew", "return"),
        delay_s=(0.002, 0.03),
        quantum_s=0.0001,
        pause_s=0.05,
        clients=6,
        client_pause_s=0.05,
        down_out_s=20.0,
        anti_entropy_s=10.0,
        shared=0.5,
        reap_log=0,
    )


def test_every_value_is_drawn_sometimes_and_none_always() -> None:
    everyone = [draw(seed) for seed in SEEDS]
    plans = [draw(seed, theme="mixed") for seed in SEEDS]
    themed = [plan for plan in everyone if plan.theme != "mixed"]
    assert {plan.theme for plan in everyone} == set(THEMES)
    assert {plan.nodes for plan in themed} == {1, 2, 3, 4, 5, 6, 7}
    assert {plan.replicas for plan in themed} == {1, 2, 3, 4, 5}
    assert {plan.vnodes for plan in themed} == {1, 2, 3}
    for fault in FAULTS:
        share = sum(fault in plan.faults for plan in plans) / len(plans)
        assert 0.4 < share < 0.6, fault
    fields = "successors replicas down_out_s anti_entropy_s fidelity delay_s quantum_s pause_s clients client_pause_s"
    for field in fields.split():
        assert len({getattr(plan, field) for plan in plans}) > 1, field
    assert {plan.successors for plan in plans} == {2, 3, 4, 5}
    assert {plan.replicas for plan in plans} == {1, 2, 3}
    assert {plan.reap_log for plan in plans} == {None, 0, 4}
    assert {plan.limits.reap_log_entries_max for plan in plans} == {Limits().reap_log_entries_max, 0, 8}
    assert any(plan.nodes >= 20 for plan in plans)
    assert all(plan.nodes >= plan.successors + 4 and plan.nodes_max > plan.nodes for plan in plans)


WISHES: list[tuple[dict[str, Any], set[str]]] = [
    ({"nodes": 12}, {"nodes", "nodes_max"}),
    ({"successors": 2}, {"successors"}),
    ({"successors": 6}, {"successors", "nodes", "nodes_max"}),
    ({"replicas": 2}, {"replicas"}),
    ({"fidelity": "frames"}, {"fidelity"}),
    ({"writes": 100}, {"writes"}),
    ({"reads": 0.1}, {"reads"}),
    ({"shared": 0.0}, {"shared", "clients", "client_pause_s"}),
    ({"shared": 0.25}, {"shared", "clients", "client_pause_s"}),
    ({"clients": 9}, {"clients"}),
    ({"faults": ()}, {"faults", "delay_s", "habits"}),
    ({"faults": ("jitter",)}, {"faults", "delay_s", "habits"}),
    ({"faults": ("crash", "loss")}, {"faults", "delay_s", "habits"}),
    ({"replicas": 6}, {"replicas", "successors", "nodes", "nodes_max"}),
    ({"membership": 5}, {"membership"}),
    ({"steps": 7}, {"steps"}),
    ({"until_s": 1.5}, {"until_s"}),
]


@pytest.mark.parametrize(("wish", "may_change"), WISHES, ids=lambda one: str(one) if isinstance(one, dict) else "")
def test_given_value_changes_only_dependent_fields(wish: dict[str, Any], may_change: set[str]) -> None:
    for seed in SEEDS[:100]:
        bare, plan = draw(seed, theme="mixed"), draw(seed, theme="mixed", **wish)
        assert {name: getattr(plan, name) for name in wish} == wish
        changed = {name for name in Plan.__struct_fields__ if getattr(plan, name) != getattr(bare, name)}
        assert changed <= may_change, seed


@pytest.mark.parametrize(
    ("wish", "complaint"),
    [
        ({"theme": "plague"}, 'unknown theme "plague": expected mixed, absence, '),
        ({"faults": ("crash", "gremlins")}, 'unknown fault "gremlins": expected adjacent, crash, '),
        ({"nodes": 6, "successors": 4, "theme": "mixed"}, "too few nodes: 6; lists of 4 successors need at least 7"),
        ({"nodes": 17, "replicas": 16, "theme": "mixed"}, "too few nodes: 17; 16 replicas need at least 18"),
        ({"successors": 4, "replicas": 6}, "invalid number of successors: 4; 6 replicas need at least 5"),
    ],
)
def test_contradictory_values_are_refused(wish: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        draw(0, **wish)


def test_derived_values_follow_from_the_plan() -> None:
    calm = draw(1, faults=(), nodes=10, successors=3)
    assert calm.is_atomic
    assert not draw(1, faults=("loss",)).is_atomic
    jumpy = next(plan for seed in SEEDS if (plan := draw(seed, faults=("jitter",))).delay_s[0] < 0.005)
    assert jumpy.delay_s[1] == 15 * jumpy.delay_s[0]
    assert not jumpy.is_atomic
    assert calm.nodes_min == 6
    assert calm.draws < draw(1, writes=1).draws
    assert msgspec.structs.replace(calm, nodes=30).nodes_min == 15


def test_time_limit_grows_with_the_work() -> None:
    assert draw(1).virtual_s_max == 900.0
    assert draw(1, membership=60).virtual_s_max == 1800.0
    assert draw(1, steps=20_000).virtual_s_max == 9000.0
    assert draw(1, until_s=1000.0).virtual_s_max == 1900.0

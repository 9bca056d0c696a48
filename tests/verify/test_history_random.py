"""Random histories: those of a register pass, and both checkers agree with brute force."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chord.verify.history.acknowledged import check_acknowledged
from chord.verify.history.check import check, check_search
from chord.verify.history.format import Operation
from chord.verify.history.graph import check_graph
from tests.support.histories import anything, is_explained, registers, spoil

SEEDS = st.integers(0, 1 << 32)
DICE = st.randoms(use_true_random=False)


def holds_against_brute_force(operations: list[Operation]) -> None:
    """Fail if a checker disagrees with the trial of all orders."""
    true = "ok" if is_explained(operations) else "violation"
    searched = check_search("k", operations)
    assert searched.verdict == true
    assert check_graph("k", operations).verdict in (true, "partial")
    for finding in searched.findings:
        assert not is_explained([step.operation for step in finding.steps]), "the named operations are a violation"


@pytest.mark.slow
@given(dice=DICE, operations=st.integers(1, 6))
@settings(max_examples=300)
def test_checkers_agree_with_brute_force(dice: random.Random, operations: int) -> None:
    holds_against_brute_force(anything(dice, operations))


@pytest.mark.slow
@given(dice=DICE, operations=st.integers(1, 6), unknown=st.sampled_from([0.0, 0.4]), values=st.sampled_from([None, 2]))
@settings(max_examples=200)
def test_checkers_agree_with_brute_force_on_nearly_valid(
    dice: random.Random, operations: int, unknown: float, values: int | None
) -> None:
    holds_against_brute_force(spoil(dice, registers(dice, operations, unknown=unknown, values=values)))


@given(
    seed=SEEDS, operations=st.integers(1, 300), clients=st.integers(1, 8), unknown=st.sampled_from([0.0, 0.1, 0.4]),
    dels=st.booleans(), values=st.sampled_from([None, None, 5]), keys=st.integers(1, 3),
)
@settings(max_examples=150)
def test_history_of_a_register_passes(
    seed: int, operations: int, clients: int, unknown: float, dels: bool, values: int | None, keys: int
) -> None:
    recorded = registers(random.Random(seed), operations, clients, keys, unknown=unknown, dels=dels, values=values)
    report = check(recorded)
    assert report.findings == []
    assert report.verdict == "ok"
    assert check(recorded, "acknowledged").verdict == "ok", "a linearizable history satisfies the weaker model, too"


@pytest.mark.slow
@given(seed=SEEDS, operations=st.integers(2, 200), clients=st.integers(1, 8), cas=st.booleans(), unknown=st.booleans())
@settings(max_examples=150)
def test_graph_and_search_agree_on_distinct_values(
    seed: int, operations: int, clients: int, cas: bool, unknown: bool
) -> None:
    dice = random.Random(seed)
    recorded = registers(dice, operations, clients, dels=False, cas=cas, unknown=0.2 * unknown)
    graph, searched = check(spoil(dice, recorded)).results
    assert graph.verdict == searched.verdict
    assert graph.verdict != "partial"


@given(seed=SEEDS)
@settings(max_examples=50)
def test_violation_of_acknowledged_is_one_of_linearizable(seed: int) -> None:
    dice = random.Random(seed)
    recorded = spoil(dice, registers(dice, 60, unknown=0.1))
    if check_acknowledged("k", [o for o in recorded if o.key == 0]).findings:
        assert check(recorded).findings


@pytest.mark.slow
def test_spoiled_histories_are_mostly_violations() -> None:
    """Most spoiled histories must be violations. Otherwise the agreement above would prove nothing."""
    found = 0
    for seed in range(100):
        dice = random.Random(seed)
        found += check(spoil(dice, registers(dice, 100, dels=False))).verdict == "violation"
    assert found in range(60, 100)

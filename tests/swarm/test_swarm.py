"""Many random lives of a ring of 32, with r = 4, and the bugs that they and their small siblings must catch."""

from __future__ import annotations

import pytest

from .many import MEMBERSHIP_MIN, NEVER_ZERO, SEEDS, STEPS_MIN, run_many
from .planted import PLANTS, Plant
from .schedule import Schedule
from .watch import Violated

FAST = [plant for plant in PLANTS if not plant.is_slow]
SLOW = [plant for plant in PLANTS if plant.is_slow]
SCENARIOS = {plant.scenario.__name__: plant.scenario for plant in PLANTS}


def name(plant: Plant) -> str:
    return plant.name


# -- the swarm ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 4], ids=["with deaths", "polite"])
def test_a_few_seeds(seed: int) -> None:
    """Joins, leaves, crashes and restarts: after every step the invariants hold, and clients are told the truth."""
    report = Schedule(seed, nodes=20, membership=15, steps=600).run()
    assert report.steps >= 600
    assert report.membership >= 15


def test_a_seed_is_the_same_every_time() -> None:
    first, second = (Schedule(7, nodes=10, membership=4, steps=100).run() for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_two_hundred_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    """200 seeds of at least 2,000 protocol steps and 30 membership events: nothing breaks, and nothing went untaken."""

    def say(line: str) -> None:
        with capsys.disabled():
            print(line, flush=True)

    outcome = run_many(range(SEEDS), say)
    say(outcome.table())
    assert outcome.failures == {}
    assert len(outcome.reports) == SEEDS
    assert all(report.steps >= STEPS_MIN and report.membership >= MEMBERSHIP_MIN for report in outcome.reports)
    assert [name for name in NEVER_ZERO if not outcome.counts[name]] == []


# -- planted bugs ---------------------------------------------------------------------------------


def first_complaint(plant: Plant) -> str:
    for seed in range(plant.seeds):
        try:
            plant.scenario(seed)
        except AssertionError as caught:  # Violated and NotConverged are assertions
            return str(caught)
    pytest.fail(f"{plant.name!r} was not caught within {plant.seeds} seeds")


@pytest.mark.parametrize("plant", [*FAST, *(pytest.param(p, marks=pytest.mark.slow) for p in SLOW)], ids=name)
def test_a_planted_bug_is_caught(plant: Plant) -> None:
    with plant.planted():
        complaint = first_complaint(plant)
    assert any(sign in complaint for sign in plant.sign.split("|")), complaint


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_without_a_bug_a_scenario_is_silent(scenario: str) -> None:
    SCENARIOS[scenario](0)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_without_a_bug_a_scenario_is_silent_on_every_seed(scenario: str) -> None:
    for seed in range(max(plant.seeds for plant in PLANTS if plant.scenario.__name__ == scenario)):
        SCENARIOS[scenario](seed)


def test_a_complaint_says_what_when_and_after_what() -> None:
    plant = next(plant for plant in PLANTS if plant.name == "list wraps")
    pattern = r"seed 0 at 0\.\d+ s: NoDuplicates: n\d:1 .* lists a vnode twice\nafter\n  0\."
    with plant.planted(), pytest.raises(Violated, match=pattern):
        plant.scenario(0)

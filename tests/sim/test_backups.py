"""Consistent backups of simulated rings: short runs under faults, and the option of a run."""

from __future__ import annotations

import msgspec
import pytest

from chord.cli.sim import WISHES, _replay
from chord.sim.plan import FAULTS, LOSING, draw
from tests.sim.short_backups import short_run


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_backups_under_faults_keep_the_law(seed: int) -> None:
    assert short_run(seed)["backup complete"] > 0


def test_option_for_backups_changes_only_what_it_must() -> None:
    for seed in range(20):
        without, plan = draw(seed), draw(seed, backups=True)
        assert (plan.backups, plan.fidelity, set(plan.faults) & set(LOSING)) == (True, "messages", set())
        kept = {"backups": False, "fidelity": without.fidelity, "faults": without.faults}
        assert msgspec.structs.replace(plan, **kept) == without
    assert set(LOSING) < set(FAULTS)


def test_replay_names_the_option_for_backups() -> None:
    wishes = dict.fromkeys(WISHES) | {"backups": True, "nodes": 7}
    assert _replay(4, wishes) == "chord sim replay 4 --nodes 7 --backups"

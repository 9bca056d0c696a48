"""The comparison with other systems measures real rings of chord: processes and clients."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import chord
from benchmarks.others.system import System, here
from benchmarks.others.systems import SYSTEMS
from benchmarks.others.turns import Effort, Outcome, measure_side_by_side

pytestmark = pytest.mark.slow

OURS = [system for system in SYSTEMS if system.client == "chord_ring"]


@pytest.mark.parametrize("system", OURS, ids=lambda system: system.name)
def test_ring_of_three_is_measured(system: System, tmp_path: Path) -> None:
    outcome = Outcome()
    effort = Effort(ops=40, seconds=60.0, rounds=1, deadline_s=60.0, until=time.monotonic() + 1e6)
    homes = {system.name: here(chord.__version__)}
    measure_side_by_side([(system, 3)], homes, tmp_path, effort, outcome, lambda _: None)
    assert outcome.left_out == {}
    assert [one.key[2:] for one in outcome.measured] == [("put", 1), ("get", 1), ("put", 32), ("get", 32)]
    for one in outcome.measured:
        assert (one.errors, len(one.latencies_s), one.why) == (0, 40, ())
        assert one.hops is not None
        assert one.hops < 1, "a client that knows three arcs asks the owners directly"
        assert one.rss_mb_per_node > 10
    on_disk = list((tmp_path / f"{system.name}-3").glob("*/*"))
    assert bool(on_disk) == (system.name == "chord-sqlite")

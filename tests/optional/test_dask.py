"""A sweep of the lab on Dask's local cluster, as an example of another executor.

Dask is in no extra of this package: `pip install distributed` installs it. If it is missing, tests/conftest.py leaves
this file out, and the test run says so.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client, LocalCluster

from chord.lab.experiments import of_strategies
from chord.lab.harness.report import run_all
from chord.lab.papers import path_length

# Dask's own clean-up leaves sockets and loops to the collector; that is none of this package's business.
pytestmark = pytest.mark.filterwarnings("default")


def test_sweep_on_a_dask_cluster_measures_the_same(tmp_path: Path) -> None:
    experiments = [*of_strategies(), path_length.experiment(64)]
    run_all(experiments, "quick", 1, tmp_path / "here")
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,  # type: ignore[no-untyped-call]
        Client(cluster) as client,  # type: ignore[no-untyped-call]
        client.get_executor() as executor,  # type: ignore[no-untyped-call]
    ):
        seen: list[tuple[int, int]] = []
        run_all(
            experiments, "quick", 1, tmp_path / "cluster", executor, lambda label, done, of: seen.append((done, of))
        )
    assert seen == sorted(seen)  # repeated each second without progress, and several at once
    assert seen[-1][0] == seen[-1][1]
    for path in (tmp_path / "here").iterdir():
        assert (tmp_path / "cluster" / path.name).read_bytes() == path.read_bytes(), path.name

"""The figures of the papers on Chord: the real node on virtual time, and a model beside it.

Each module is one experiment, and its tables put measured values beside published ones. Three figures also have a model
(NumPy), which is the second column of the same table: `path_length`, `load_balance` and `failures`. Their function
`experiment` takes a number of nodes for rings that only the model can measure. `world` has the parts that they share.
"""

from __future__ import annotations

from typing import Any

from chord.lab.harness.experiment import Experiment
from chord.lab.papers import churn, failures, healing, load_balance, path_length, sessions

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    experiment.name: experiment
    for experiment in (
        path_length.experiment(),
        load_balance.experiment(),
        failures.experiment(),
        churn.EXPERIMENT,
        sessions.EXPERIMENT,
        healing.EXPERIMENT,
    )
}
"""The experiments of `chord sim paper`, by name."""

"""The figures of the papers on Chord, measured with real nodes and with a model.

A real node is the node's own code, run on virtual time. Each module is one experiment, and its tables put measured
values beside published ones. Four figures also have a NumPy model, and its values are another column of the same
table: `path_length`, `load_balance`, `failures` and `membership`. The function `experiment` of the first three takes a
number of nodes for rings that only the model can measure. `missed_updates`, `local_reads` and `membership` show claims
of course notes that have no figures. `leaders` runs an entry of the gallery in place of nodes. `world` has the parts
that they share.
"""

from __future__ import annotations

from typing import Any

from chord.lab.harness.experiment import Experiment
from chord.lab.papers import (
    churn,
    failures,
    healing,
    leaders,
    load_balance,
    local_reads,
    membership,
    missed_updates,
    path_length,
    sessions,
)

EXPERIMENTS: dict[str, Experiment[Any, Any]] = {
    experiment.name: experiment
    for experiment in (
        path_length.experiment(),
        load_balance.experiment(),
        failures.experiment(),
        churn.EXPERIMENT,
        sessions.EXPERIMENT,
        healing.EXPERIMENT,
        missed_updates.EXPERIMENT,
        leaders.EXPERIMENT,
        local_reads.EXPERIMENT,
        membership.EXPERIMENT,
    )
}
"""The experiments of `chord sim paper`, by name."""

"""The lab's experiments, grouped by the command that runs them.

- compare: every scheme on the same keys (`compare`), and their speed (`speed`).
- vnodes: the effect of vnodes (`vnodes`), rings with random node names (`golubtsov`), probes and bounded loads
  (`bounds`), and memory among thousands of servers (`memory`).
- movement: the cost of growth (`movement`), the effect of moving hot sections (`hot_sections`), and the number of
  sections (`section_counts`).
- jump: the lemma, the cost and the evenness of jump consistent hash.
- strategies: Dynamo's three partition strategies.
- ring: ways to route (`routes`), three figures of the papers (`chord.lab.papers`), and equal ids (`birthdays`), on
  rings too large to run.

Each module is one experiment in the sense of `chord.lab.harness`, except `common`, which has the shared parts of the
experiments on schemes.
"""

from __future__ import annotations

from typing import Any

from chord.lab.experiments import (
    birthdays,
    bounds,
    compare,
    golubtsov,
    hot_sections,
    jump,
    memory,
    movement,
    routes,
    section_counts,
    speed,
    strategies,
    vnodes,
)
from chord.lab.experiments.common import Keys
from chord.lab.harness.experiment import Experiment
from chord.lab.papers import failures, load_balance, path_length

AnyExperiment = Experiment[Any, Any]


def of_compare(
    keys: Keys | None = None,
    schemes: tuple[str, ...] = (),
    nodes: int = golubtsov.NODES,
    then: int = golubtsov.THEN,
    weights: tuple[float, ...] = (),
    seed: int = 1,
) -> list[AnyExperiment]:
    """Return two experiments: one compares the schemes, the other times them.

    Only `schemes` has an effect on the timing.

    Args:
        keys: the keys to place; None: a million generated ones.
        schemes: names of the schemes; empty: all.
        nodes: number of nodes at first.
        then: number of nodes after growing.
        weights: one weight per node, in the order of their numbers; empty: all equal.
        seed: seed of the keys that are generated if `keys` is None.
    """
    return [compare.experiment(keys, schemes, nodes, then, weights, seed), speed.experiment(schemes)]


def of_vnodes(nodes: int = vnodes.NODES) -> list[AnyExperiment]:
    """Return the experiments on vnodes, on draws of node names, on bounds and on memory.

    `nodes` is the size of the rings in the first experiment. The others have fixed sizes.
    """
    return [vnodes.experiment(nodes), golubtsov.EXPERIMENT, bounds.EXPERIMENT, memory.EXPERIMENT]


def of_movement() -> list[AnyExperiment]:
    """Return the experiments on the movement of keys: growth, moves of hot sections, and the number of sections."""
    return [movement.EXPERIMENT, hot_sections.EXPERIMENT, section_counts.EXPERIMENT]


def of_jump() -> list[AnyExperiment]:
    """Return the experiment on jump consistent hash."""
    return [jump.EXPERIMENT]


def of_strategies() -> list[AnyExperiment]:
    """Return the experiment on Dynamo's partition strategies."""
    return [strategies.EXPERIMENT]


def of_ring(nodes: int = routes.NODES) -> list[AnyExperiment]:
    """Return the experiments on routing, loads and equal ids, on rings of about `nodes` nodes.

    Each experiment says which other sizes it measures besides.
    """
    each = (path_length.experiment, routes.experiment, failures.experiment, load_balance.experiment)
    return [*(experiment(nodes) for experiment in each), birthdays.experiment(nodes)]


def of_all(seed: int = 1) -> list[AnyExperiment]:
    """Return all experiments with their default options.

    `seed` decides the generated keys of the comparison.
    """
    return [*of_compare(seed=seed), *of_movement(), *of_vnodes(), *of_jump(), *of_strategies(), *of_ring()]

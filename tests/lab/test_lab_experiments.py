"""The lab's experiments at small size: bars, planted bugs, and equal files for equal seeds."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from chord.lab import bigring
from chord.lab.bigring import BigRing
from chord.lab.experiments import (
    bounds,
    compare,
    golubtsov,
    hot_sections,
    jump,
    movement,
    of_all,
    routes,
    speed,
    strategies,
    vnodes,
)
from chord.lab.experiments.common import Keys, fitting, given_keys, grow, made_keys
from chord.lab.harness.experiment import Experiment, Result, Table
from chord.lab.harness.report import run_all
from chord.lab.hashing import PREFIX, XXH3, Hashes
from chord.lab.papers import failures, load_balance, path_length
from chord.lab.placement import Numbers
from chord.lab.report import write_page
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.jump import Jump
from chord.lab.schemes.multi_probe import MultiProbe
from chord.lab.schemes.numbered import Mod
from chord.lab.schemes.rendezvous import Rendezvous
from chord.lab.schemes.ring import RingScheme
from chord.lab.schemes.ring_bounded import BoundedRing
from chord.lab.schemes.sections import SectionMove, Sections
from chord.sim.pool import processes

pytestmark = pytest.mark.slow

FEW = ("mod", "jump", "fibonacci", "ring-100", "rendezvous", "mod-factor", "extendible", "static")


def tables(experiment: Experiment[Any, Any], seed: int = 1) -> dict[str, Table]:
    """Run an experiment at small size, and return its tables by name."""
    return {table.name: table for table in experiment.tables(experiment.run("quick", seed))}


def values(table: Table, heading: str) -> dict[Any, Any]:
    """Return the first column of this heading, by the first column of all."""
    at = [column.heading for column in table.columns].index(heading)
    return {row.values[0]: row.values[at] for row in table.rows}


# -- bars, and bugs that miss them --------------------------------------------------------------------


@pytest.mark.parametrize(
    "experiment",
    [compare.experiment(schemes=FEW), movement.EXPERIMENT, hot_sections.EXPERIMENT, vnodes.experiment(),
     jump.EXPERIMENT, strategies.EXPERIMENT, bounds.EXPERIMENT, golubtsov.EXPERIMENT,
     path_length.experiment(4096), routes.experiment(4096), failures.experiment(4096), load_balance.experiment(4096)],
    ids=lambda experiment: experiment.name,
)  # fmt: skip
def test_experiment_at_small_size_meets_its_bars(experiment: Experiment[Any, Any]) -> None:
    for table in tables(experiment).values():
        assert table.passed is not False, [table.texts(row) for row in table.rows if row.passed is False]
        assert len(set(table.headings)) == len(table.columns), "columns have unique names"


class LeakyJump(Jump):
    """A planted bug: one key in twenty has new random numbers for every number of buckets."""

    def place_many(self, hashes: Hashes) -> Numbers:
        found = super().place_many(hashes)
        return np.where(hashes % np.uint64(20) == 0, hashes % np.uint64(len(self._nodes)), found).astype(np.intp)


class LopsidedJump(Jump):
    """A planted bug: one key in twenty always goes to bucket 0."""

    def place_many(self, hashes: Hashes) -> Numbers:
        return np.where(hashes % np.uint64(20) == 0, 0, super().place_many(hashes)).astype(np.intp)


class HonestMod(Mod):
    """A planted bug: a scheme that says it is consistent, and is not."""

    is_consistent = True


class OnePoint(RingScheme):
    """A planted bug: vnodes without effect."""

    def points_of(self, node: str, weight: float = 1.0) -> Hashes:
        return super().points_of(node, weight)[:1]


class TwoProbes(MultiProbe):
    """A planted bug: the number of probes is ignored."""

    def place_many(self, hashes: Hashes) -> Numbers:
        return MultiProbe(self.nodes, probes=2).place_many(hashes)


class Idle(Sections):
    """A planted bug: hot sections are left where they are."""

    def move_hot(self, loads: NDArray[np.float64], tolerance: float = 1.05) -> list[SectionMove]:
        return []


class Backwards(Sections):
    """A planted bug: cold sections are taken for hot ones."""

    def move_hot(self, loads: NDArray[np.float64], tolerance: float = 1.05) -> list[SectionMove]:
        return super().move_hot(loads.max() - loads, tolerance)


class Boundless(BoundedRing):
    """A planted bug: the last keys find room anywhere."""

    def place_many(self, hashes: Hashes) -> Numbers:
        found = super().place_many(hashes).copy()
        found[: len(found) // 10] = 0
        return found


@pytest.mark.parametrize(
    ("experiment", "scheme", "bug", "table"),
    [
        (compare.experiment(schemes=("mod",)), "mod", HonestMod, "stability"),
        (compare.experiment(schemes=("jump",)), "jump", LeakyJump, "stability"),
        (movement.EXPERIMENT, "mod", HonestMod, "movement"),
        (jump.EXPERIMENT, "jump", LeakyJump, "jump_same"),
        (jump.EXPERIMENT, "jump", LeakyJump, "jump_visits"),
        (jump.EXPERIMENT, "jump", LopsidedJump, "jump_buckets"),
        (bounds.EXPERIMENT, "multi-probe", TwoProbes, "multi_probe"),
        (bounds.EXPERIMENT, "ring-bounded", Boundless, "bounded_loads"),
        (hot_sections.EXPERIMENT, "sections", Idle, "hot_sections"),
        (hot_sections.EXPERIMENT, "sections", Backwards, "hot_sections"),
    ],
)
def test_broken_scheme_misses_the_bar(
    monkeypatch: pytest.MonkeyPatch, experiment: Experiment[Any, Any], scheme: str, bug: Callable[..., Any], table: str
) -> None:
    assert tables(experiment)[table].passed is not False
    monkeypatch.setitem(SCHEMES, scheme, bug)
    assert tables(experiment)[table].passed is False


def test_vnodes_without_effect_miss_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vnodes, "RingScheme", OnePoint)
    found = tables(vnodes.experiment())
    assert [found[name].passed for name in ("vnodes", "vnodes_slope", "heirs")] == [False, False, False]


def test_evenly_placed_tokens_miss_the_bar_of_strategy_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def even(nodes: int, tokens: int, rng: np.random.Generator) -> strategies.Partitions:
        return strategies.by_shared_parts(nodes, nodes * tokens * 10, rng)

    monkeypatch.setattr(strategies, "by_token", even)
    assert tables(strategies.EXPERIMENT)["strategies"].passed is False


def test_ring_without_its_long_fingers_misses_the_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    right = BigRing.closest_finger

    def short(ring: BigRing, here: Any, goal: Any, digit_bits: int = 1) -> Any:
        there, level = right(ring, here, goal, digit_bits)
        nearer = ring.successor(ring.ids[here] + (np.uint64(1) << np.minimum(level, 60).astype(np.uint64)))
        return np.where(level > 60, nearer, there), level

    monkeypatch.setattr(BigRing, "closest_finger", short)
    assert tables(path_length.experiment(4096))["path_length"].passed is False
    assert tables(routes.experiment(4096))["routes"].passed is False
    assert tables(failures.experiment(4096))["failures"].passed is False


def test_lookup_that_accepts_a_dead_owner_misses_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    right = bigring.look_up_past_the_dead

    def hasty(ring: BigRing, is_dead: Any, starts: Any, keys: Any, *, successors: int) -> bigring.Detours:
        found = right(ring, is_dead, starts, keys, successors=successors)
        return bigring.Detours(found.hops, found.timeouts, found.last_timeouts, ring.successor(keys))

    monkeypatch.setattr(bigring, "look_up_past_the_dead", hasty)
    assert tables(failures.experiment(4096))["failures"].passed is False


# -- published figures --------------------------------------------------------------------------------


def test_golubtsovs_table_is_reproduced() -> None:
    experiment = compare.experiment(schemes=tuple(name for name, said in golubtsov.SAID.items() if said.is_binomial))
    found = {table.name: table for table in experiment.tables(experiment.run("standard", 1))}["golubtsov"]
    assert found.passed is True
    assert [row.values[0] for row in found.rows] == ["mod", "jump", "fibonacci", "rendezvous"]
    said = {"mod": 0.0477, "jump": 0.9524, "fibonacci": 0.0480, "rendezvous": 0.9528}
    assert values(found, "kept") == pytest.approx(said, abs=0.003)


def test_scheme_that_keeps_a_little_less_misses_golubtsovs_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "jump", LeakyJump)
    experiment = compare.experiment(schemes=("jump",))
    found = {table.name: table for table in experiment.tables(experiment.run("standard", 1))}["golubtsov"]
    assert found.passed is False


def cell(ring: str, kept: list[float], stds: list[float]) -> golubtsov.GolubtsovCell:
    return golubtsov.GolubtsovCell(
        golubtsov.GolubtsovSetting(ring, 0, len(kept), golubtsov.KEYS, 1), tuple(kept), tuple(stds)
    )


def test_published_figure_outside_of_the_draws_misses_the_bar() -> None:
    said = golubtsov.SAID["ring-100"]
    around = [said.kept + 0.001 * step for step in range(-5, 6)]
    spread = [said.std + 100 * step for step in range(-5, 6)]
    for kept, stds, verdicts in (
        (around, spread, [True, True]),
        ([share + 0.02 for share in around], spread, [False, True]),
        (around, [std / 2 for std in spread], [True, False]),
    ):
        (table,) = golubtsov.tables(Result("standard", 1, (cell("ring-100", kept, stds),)))
        assert [row.passed for row in table.rows] == verdicts


def test_moving_hot_sections_helps_until_one_key_is_too_hot() -> None:
    found = {row.values[:2]: dict(zip(table.headings, row.values, strict=True)) for table in
             tables(hot_sections.EXPERIMENT).values() for row in table.rows}  # fmt: skip
    mild, wild = found[0.8, 4096], found[1.2, 4096]
    assert mild["before"] > 1.5
    assert mild["after"] <= 1.055
    assert mild["after"] - 0.01 <= mild["on other requests"] < 1.15, "moves learnt on one day help on the next"
    assert 0 < mild["keys moved"] < 0.05
    assert wild["after"] == pytest.approx(wild["hottest section"]), "the hot key is alone on its node"
    assert wild["before"] > wild["after"] > 3
    assert found[0.0, 4096]["after"] <= found[0.0, 4096]["before"] < 1.15, "equal keys load all nodes equally"
    few = found[0.8, 256]
    assert few["sections moved"] < mild["sections moved"]
    assert few["keys moved"] > mild["keys moved"], "larger sections move more keys"


# -- keys from a file ---------------------------------------------------------------------------------


def test_repeated_keys_count_each_time() -> None:
    keys = given_keys("mine.txt", b"hot\n" * 600 + b"\n".join(b"cold-%d" % n for n in range(400)) + b"\n\n")
    assert keys.total == 1000
    found = tables(compare.experiment(keys, ("rendezvous", "ring-bounded"), 4, 5))
    assert values(found["evenness"], "most / mean")["rendezvous"] > 2.4, "600 of 1000 on one node of 4"
    assert values(found["evenness"], "most / mean")["ring-bounded"] == pytest.approx(1.25, abs=0.01)
    assert "golubtsov" not in found


def test_several_nodes_can_join_at_once() -> None:
    found = tables(compare.experiment(made_keys(50 * 2000, 1), ("anchor", "dx", "jump", "ring-100"), 4, 15))
    assert values(found["stability"], "grows") == dict.fromkeys(("anchor", "dx", "jump", "ring-100"), "4 → 15")
    assert found["stability"].passed


def test_scheme_without_room_for_all_takes_some() -> None:
    placement = SCHEMES["anchor"](["a", "b", "c", "d"], capacity=6)
    move = grow(placement, made_keys(2000, 1).hashes(XXH3), 10, 1)
    assert move is not None
    assert (move.was, move.now, move.between_old) == (4, 6, 0)
    assert move.kept == pytest.approx(move.ideal, abs=0.05)
    assert grow(placement, made_keys(2000, 1).hashes(XXH3), 10, 1) is None


def test_file_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match=r"mine\.txt has no keys"):
        given_keys("mine.txt", b"\n\n")


def test_made_keys_suit_the_scheme() -> None:
    keys = made_keys(1000, 3)
    assert len(np.unique(keys.hashes(XXH3))) == 1000
    initials = {bytes([int(number) >> 56]) for number in keys.hashes(PREFIX)}
    assert len(initials) > 15, "a scheme by first letters gets surnames"
    assert made_keys(1000, 4).list() != keys.list()
    assert (fitting("extendible", 20), fitting("jump", 20)) == (16, 20)


def test_loads_are_compared_with_weights() -> None:
    found = tables(compare.experiment(made_keys(50 * 20_000, 1), ("rendezvous-weighted", "mod"), 4, 5, (1, 1, 2, 4)))
    deviations = values(found["evenness"], "std / mean")
    assert deviations["rendezvous-weighted"] < 0.05
    assert deviations["mod"] > 0.4, "a scheme without weights is compared with the weights, and loses"
    notes = " ".join(found["evenness"].notes)
    assert "Without support for weights, but compared with them: mod" in notes


@pytest.mark.parametrize("nodes", [1, *(pytest.param(nodes, marks=pytest.mark.thorough) for nodes in (2, 3))])
def test_every_scheme_is_measured_on_the_fewest_nodes(nodes: int, tmp_path: Path) -> None:
    experiment = compare.experiment(made_keys(50 * 300, 1), nodes=nodes, then=nodes + 1)
    (report,) = run_all([experiment], "quick", 1, tmp_path)
    assert len(report.tables[0].rows) == len(SCHEMES)


# -- files --------------------------------------------------------------------------------------------


def small() -> list[Experiment[Any, Any]]:
    return [compare.experiment(made_keys(50_000, 1), ("mod", "ring-100"), 4, 5), path_length.experiment(16)]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_same_seed_gives_the_same_files_in_any_executor(tmp_path: Path) -> None:
    run_all(small(), "quick", 1, tmp_path / "here")
    with ThreadPoolExecutor(3) as pool:
        run_all(small(), "quick", 1, tmp_path / "threads", pool)
    with processes(2) as pool:
        run_all(small(), "quick", 1, tmp_path / "processes", pool)
    here = files(tmp_path / "here")
    assert {"evenness.csv", "compare.json", "compare.md", "finger_use.svg", "path_length.png"} <= set(here)
    assert "golubtsov.csv" not in here, "Golubtsov's table needs its keys and nodes"
    assert files(tmp_path / "threads") == here
    assert files(tmp_path / "processes") == here
    run_all([path_length.experiment(16)], "quick", 2, tmp_path / "other")
    assert files(tmp_path / "other")["path_length.csv"] != here["path_length.csv"]


class Remembering(ThreadPoolExecutor):
    """An executor that records its tasks."""

    def __init__(self) -> None:
        super().__init__(1)
        self.names: list[str] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.names.append(fn.__module__)
        return super().submit(fn, *args, **kwargs)


def test_timed_experiments_run_alone_and_last(tmp_path: Path) -> None:
    seen: list[str] = []
    with Remembering() as pool:
        experiments = [speed.experiment(("mod", "ring")), movement.EXPERIMENT]
        reports = run_all(experiments, "quick", 1, tmp_path, pool, lambda label, done, of: seen.append(label))
    assert set(pool.names) == {"chord.lab.experiments.movement"}
    assert list(dict.fromkeys(label.partition(":")[0] for label in seen)) == ["movement", "speed"]
    timed = {label for label in seen if label.startswith("speed")}
    assert timed == {"speed: (hashing alone)", "speed: mod", "speed: ring"}
    assert reports[0].passed is None, "at small size no time has a bar"


def test_page_has_findings_tables_and_conditions(tmp_path: Path) -> None:
    reports = run_all(small(), "quick", 5, tmp_path)
    page = write_page(reports, 5, "lab all --seed 5", tmp_path).read_text()
    assert page.startswith("# Sharding schemes side by side\n\n`chord lab all --seed 5`, seed 5. ")
    for word in ("numpy 2", "Python 3.", "chord 0.", "b = 1", "0.5 %", "*Course notes*", "0.0000001 %",
                 "[path_length.md](path_length.md)"):  # fmt: skip
        assert word in page
    for report in reports:
        for picture in report.pictures:
            assert f"![{picture.finding}]({picture.svg.name})" in page
    measured = json.loads((tmp_path / "path_length.json").read_text())
    with (tmp_path / "path_length.csv").open() as file:
        rows = list(csv.reader(file))
    assert rows[0][:3] == ["nodes", "list r", "model: mean"], "these rings are too small for the formula"
    assert [float(row[2]) for row in rows[1:]] == [row["values"][2] for row in measured["tables"][0]["rows"]]


def test_missed_bar_is_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "mod", HonestMod)
    reports = run_all([movement.EXPERIMENT], "quick", 1, tmp_path)
    assert "**A bar is missed: What growing costs.**" in write_page(reports, 1, "lab movement", tmp_path).read_text()


def test_experiments_tables_and_pictures_have_unique_names() -> None:
    experiments = of_all()
    assert len({experiment.name for experiment in experiments}) == len(experiments) == 16
    pictures = [name for experiment in experiments for name in experiment.pictures]
    assert len(set(pictures)) == len(pictures)


def test_keys_with_equal_fields_are_equal() -> None:
    assert Keys("10", 10, 1) == made_keys(10, 1)
    assert Rendezvous(["a"]).place(b"x") == "a"

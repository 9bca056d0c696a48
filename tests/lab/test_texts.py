"""The claims of the source texts: times in their order, slips, and tables that only a text asks for."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from chord.lab.experiments import birthdays, bounds, golubtsov, memory, section_counts, speed
from chord.lab.experiments.common import node_names
from chord.lab.harness.experiment import Result
from chord.lab.hashing import Hashes, mix, random_hashes
from chord.lab.placement import Numbers
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.ring import RingScheme
from chord.lab.schemes.ring_bounded import BoundedRing
from chord.lab.schemes.sections import Sections
from chord.lab.theory import collision_chance, harmonic
from tests.lab.references import bounded, clockwise, points

# -- Golubtsov's times --------------------------------------------------------------------------------


def timed(scheme: str, one_s: float, many_s: float, each_s: float) -> speed.SpeedCell:
    setting = speed.SpeedSetting(scheme, speed.KEYS, speed.KEYS_ON_MANY, 1)
    return speed.SpeedCell(setting, (one_s, many_s), (each_s, each_s), 0.0, None)


def test_order_of_times_stands_beside_golubtsovs() -> None:
    """In these times, jump takes 700 ns a bucket in Python, and comes before the rings in NumPy."""
    cells = [timed(name, 1e-9 * at, 1e-9 * at, 1e-9 * at) for at, name in enumerate(golubtsov.SAID, 100)]
    jump = 700e-9 * harmonic(20), 700e-9 * harmonic(1000)
    cells = [timed("jump", *jump, cell.each_s[0]) if cell.setting.scheme == "jump" else cell for cell in cells]
    _, table = speed.tables(Result("quick", 1, tuple(cells)))
    rows = {row.values[0]: row.values for row in table.rows}
    assert list(rows) == list(golubtsov.SAID)
    assert [rows["jump"][at] for at in (2, 4, 6)] == [2, 7, 2]
    assert [rows["rendezvous"][at] for at in (1, 2, 4)] == [29.55, 7, 6]
    assert "a visit takes 700 ns" in table.notes[1]


def test_order_of_times_needs_every_scheme_of_the_article() -> None:
    cells = [timed(name, 1e-9, 1e-9, 1e-9) for name in list(golubtsov.SAID)[1:]]
    assert [table.name for table in speed.tables(Result("quick", 1, tuple(cells)))] == ["speed"]


# -- slips of the texts -------------------------------------------------------------------------------


def test_jumping_key_goes_to_bucket_n() -> None:
    """Not to n + 1, as Kokorin's slides say: buckets count from 0."""
    points = range(1, 1 << 40, (1 << 40) // 500)
    few, more = (SCHEMES["jump"]([str(name) for name in range(count)]) for count in (7, 8))
    jumps = [more.locate(point) for point in points if more.locate(point) != few.locate(point)]
    assert set(jumps) == {7}


def test_key_at_a_point_belongs_to_that_point() -> None:
    """Golubtsov's strict comparison would give it to the next one."""
    ring = SCHEMES["ring"](["a", "b", "c"])
    assert isinstance(ring, RingScheme)
    for name in ring.nodes:
        ((_, end),) = ring.arcs(name)
        assert ring.nodes[ring.locate(end)] == name
        assert ring.nodes[ring.locate(end + 1)] != name


# -- bounded loads with keys that arrive and depart ---------------------------------------------------

FEW = bounds.BoundsSetting("ring-bounded", 1.25, 10, 200, 1, 7)


def test_moves_of_changing_keys_equal_those_of_a_walk_key_by_key() -> None:
    """Ten arrivals, placed by the reference that walks from node to node."""
    changes = bounds.change_keys(FEW)
    nodes, rng = node_names(10, 7000), np.random.default_rng(7)
    hashes = random_hashes(rng, 200 + bounds.CHANGES).tolist()
    weights = dict.fromkeys(nodes, 1.0)
    for at in range(240, 250):
        before, after = (bounded(nodes, weights, 1, 1.25, hashes[: at + more]) for more in (0, 1))
        assert changes.arrivals[at - 200] == sum(a != b for a, b in zip(before, after[:-1], strict=True))
    assert len(changes.arrivals) == len(changes.departures) == bounds.CHANGES
    assert max(changes.arrivals) > 10, "the capacity changed for all nodes"


def test_walk_of_a_key_passes_the_nodes_without_room() -> None:
    nodes = node_names(12, 1)
    ring, hashes = BoundedRing(nodes, capacity=1.1), random_hashes(np.random.default_rng(1), 100)
    placed, walks = ring.place_many(hashes), ring.walks(hashes)
    assert walks.max() > 3
    cap = ring.room(100)[0]
    for at, (point, walk) in enumerate(zip(hashes.tolist(), walks.tolist(), strict=True)):
        way = [node for _, node in clockwise(point, points(nodes, dict.fromkeys(nodes, 1.0), 1))]
        loads = np.bincount(placed[:at], minlength=12)
        assert way[walk] == nodes[placed[at]]
        assert all(loads[nodes.index(node)] == cap for node in way[:walk])


class Restless(BoundedRing):
    """Planted: each change of the number of keys moves most of them."""

    def place_many(self, hashes: Hashes) -> Numbers:
        return super().place_many(mix(hashes, len(hashes)))


def test_planted_restless_keys_miss_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    def passed() -> bool | None:
        setting = FEW._replace(value=2.0)
        spread = bounds.spread(np.ones(10))
        cell = bounds.BoundsCell(setting, (spread,), spread, (0.0,), 1.0, bounds.change_keys(setting))
        return bounds.tables(Result("quick", 1, (probed, cell)))[2].passed

    probed = bounds.measure(bounds.BoundsSetting("multi-probe", 2.0, 10, 200, 2, 1))
    assert passed()
    monkeypatch.setitem(SCHEMES, "ring-bounded", Restless)
    assert passed() is False


# -- equal ids, memory, sections ----------------------------------------------------------------------


@pytest.mark.parametrize(("points", "drawn"), [(365, 23), (256, 7), (10, 10), (3, 4), (5, 1)])
def test_chance_of_a_collision_is_that_of_the_product(points: int, drawn: int) -> None:
    apart = Fraction(1)
    for before in range(drawn):
        apart *= Fraction(points - before, points)
    assert collision_chance(points, drawn) == pytest.approx(float(1 - apart))


def test_birthdays_meet_the_bar_and_false_ones_miss_it() -> None:
    experiment = birthdays.experiment(100)
    result = experiment.run("quick", 1)
    (table,) = experiment.tables(result)
    assert table.passed
    assert table.notes[0].startswith(f"On {birthdays.bits_for(100)} bits, 100 ids")
    assert collision_chance(365, 22) < 0.5 < result.cells[0].chance
    doubled = birthdays.BirthdayCell(result.cells[1].setting, 2 * result.cells[1].collided)
    assert birthdays.is_met(doubled) is False


def test_bits_for_a_million_nodes_keep_collisions_rare() -> None:
    bits = birthdays.bits_for(1_000_000)
    assert collision_chance(1 << bits, 1_000_000) < birthdays.RARE < collision_chance(1 << (bits - 1), 1_000_000)


def test_ring_of_a_thousand_servers_takes_a_megabyte() -> None:
    settings = [memory.MemorySetting(scheme, 1000, 1) for scheme in ("jump", "ring", "ring-100")]
    cells = [memory.measure(setting) for setting in settings]
    assert [cell.state_bytes for cell in cells] == [8, 12_000, 1_200_000]
    assert memory.tables(Result("quick", 1, tuple(cells)))[0].passed
    ring = SCHEMES["ring-100"](node_names(10, 1))
    assert isinstance(ring, RingScheme)
    assert ring.state_bytes == ring._points.nbytes + ring._owners.nbytes
    assert memory.is_met(memory.MemoryCell(settings[2], 1_200_012)) is False


class Greedy(Sections):
    """Planted: a new node takes one section more than its share."""

    def _add(self, node: str, weight: float) -> None:
        super()._add(node, weight)
        self._owners[int(np.flatnonzero(self._owners != len(self._nodes))[0])] = len(self._nodes)


def test_sections_are_even_up_to_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(section_counts, "COUNTS", (10, 20, 30, 110))
    experiment = section_counts.EXPERIMENT
    (table,) = experiment.tables(experiment.run("quick", 1))
    assert table.passed
    assert [row.values[3] for row in table.rows[:3]] == [11, 1, 0], "nodes without a section"
    monkeypatch.setitem(SCHEMES, "sections", Greedy)
    assert experiment.tables(experiment.run("quick", 1))[0].passed is False

"""The claims of the source texts: times in their order, slips, and tables that only a text asks for."""

from __future__ import annotations

from chord.lab.experiments import golubtsov, speed
from chord.lab.harness.experiment import Result
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.ring import RingScheme
from chord.lab.theory import harmonic

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

"""The speed of lookups, placing a million keys, building, and adding a node.

The figures depend on the machine and on Python, and differ from run to run, unlike all other results of the lab.
Compare rows with each other, not with papers. A lookup includes hashing the key. Placing many keys starts from hashes,
and hashing has a row of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from chord.lab.experiments.common import build, fitting, made_keys, node_names
from chord.lab.experiments.golubtsov import SAID
from chord.lab.harness.experiment import Column, Experiment, Result, Row, Scale, Table
from chord.lab.harness.plot import BLUE, ORANGE, dress, headline, make_room
from chord.lab.hashing import XXH3
from chord.lab.placement import UnsupportedChange
from chord.lab.schemes import SCHEMES
from chord.lab.theory import harmonic

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW, MANY = 20, 1000
KEYS, KEYS_ON_MANY, ASKED = 1_000_000, 100_000, 500
MILLION_S_MAX = 1.0
FLATTENED = ("ring-tree",)
"""Schemes that place many keys by another data structure than their own."""
WITH_BAR = ("mod", "jump", "ring", "ring-100")
HASHING = "(hashing alone)"


class SpeedSetting(NamedTuple):
    """A scheme to time, with the numbers of keys that it places at once.

    Attributes:
        scheme: its name; "(hashing alone)" to time only the hash of a key.
        keys: number of keys on few nodes (20).
        keys_on_many: number of keys on many nodes (1,000).
        seed: decides the keys and the names of the nodes.
    """

    scheme: str
    keys: int
    keys_on_many: int
    seed: int

    def __str__(self) -> str:
        return self.scheme


@dataclass(frozen=True)
class SpeedCell:
    """Times of one scheme in seconds, each the best of several runs.

    Attributes:
        one_s: one lookup, on few nodes (20) and on many (1,000).
        each_s: time per key if many hashes are placed at once, on few nodes and on many.
        build_s: building the scheme on many nodes; 0 for hashing alone.
        add_s: adding a node to many; None for hashing alone, and if the scheme cannot do that.
    """

    setting: SpeedSetting
    one_s: tuple[float, float]
    each_s: tuple[float, float]
    build_s: float
    add_s: float | None


def plan(schemes: tuple[str, ...], scale: Scale, seed: int) -> list[SpeedSetting]:
    """Return a setting for hashing alone, and one for each of these schemes; empty `schemes`: for all schemes."""
    keys, on_many = (10_000, 2_000) if scale == "quick" else (KEYS, KEYS_ON_MANY)
    return [SpeedSetting(scheme, keys, on_many, seed) for scheme in (HASHING, *(schemes or SCHEMES))]


def measure(setting: SpeedSetting) -> SpeedCell:
    """Time the operations of a scheme on few nodes and on many.

    A scheme that only doubles has 16 and 512 nodes. Nothing else should run on the machine meanwhile.
    """
    keys = made_keys(setting.keys, setting.seed)
    asked = keys.list()[:ASKED]
    if setting.scheme == HASHING:
        one = fastest_s(lambda: [XXH3.one(key) for key in asked], 5) / len(asked)
        each = fastest_s(lambda: XXH3.many(keys.list()), 2) / setting.keys
        return SpeedCell(setting, (one, one), (each, each), 0.0, None)
    one_s, each_s, build_s, add_s = [], [], 0.0, None
    for nodes, count in ((FEW, setting.keys), (MANY, setting.keys_on_many)):
        names = node_names(fitting(setting.scheme, nodes), setting.seed)
        build_s = fastest_s(partial(build, setting.scheme, names), 2)
        placement = build(setting.scheme, names)
        hashes = keys.hashes(placement.hasher)[:count]
        place = placement.place
        one_s.append(fastest_s(lambda place=place: [place(key) for key in asked], 3) / len(asked))  # type: ignore[misc]
        each_s.append(fastest_s(partial(placement.place_many, hashes), 2) / count)
        newcomers = iter(node_names(3, setting.seed, nodes))
        try:
            add_s = fastest_s(lambda p=placement, new=newcomers: p.add(next(new)), 3)  # type: ignore[misc]
        except UnsupportedChange:
            add_s = None
    return SpeedCell(setting, (one_s[0], one_s[1]), (each_s[0], each_s[1]), build_s, add_s)


def fastest_s(work: Callable[[], object], times: int) -> float:
    """Return the time of the fastest of `times` calls of `work`, in seconds.

    Other processes disturb the fastest call least.
    """
    best = float("inf")
    for _ in range(times):
        began = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - began)
    return best


# -- what comes of it ---------------------------------------------------------------------------------


def tables(result: Result[SpeedCell]) -> list[Table]:
    """Return the table of all times, in readable units.

    If every scheme of Golubtsov's article was timed, a table with the article's times and their order comes next.
    """
    columns = (
        Column("scheme"), Column(f"lookup, {FEW} nodes (ns)", ",.0f"),
        Column(f"lookup, {MANY:,} nodes (ns)", ",.0f"),
        Column(f"placed hash, {FEW} nodes (ns)", ",.1f"), Column(f"placed hash, {MANY:,} nodes (ns)", ",.1f"),
        Column(f"a million keys, {FEW} nodes (s)", ".3f"), Column(f"build, {MANY} nodes (ms)", ",.2f"),
        Column(f"let one in, {MANY} nodes (µs)", ",.0f"),
    )  # fmt: skip
    hashing = next((c.each_s[0] for c in result.cells if c.setting.scheme == HASHING), 0.0)
    rows = []
    for cell in result.cells:
        scheme = cell.setting.scheme
        million = 1e6 * (cell.each_s[0] + (hashing if scheme != HASHING else 0.0))
        add = None if cell.add_s is None else 1e6 * cell.add_s
        each = [1e9 * s for s in cell.each_s] if scheme not in FLATTENED else [None, None]
        times = (*(1e9 * s for s in cell.one_s), *each, million if all(each) else None, 1e3 * cell.build_s, add)
        is_full = cell.setting.keys == KEYS
        rows.append(Row((scheme, *times), million <= MILLION_S_MAX if scheme in WITH_BAR and is_full else None))
    notes = ["Times of this machine and run. A lookup hashes the key; a million keys are hashed and placed."]
    measured = {cell.setting.scheme for cell in result.cells}
    if measured & set(FLATTENED):
        notes.append(
            "ring has its points in a sorted array, ring-tree in a search tree; compare the times of adding a node. "
            "ring-tree reads its tree out into an array to place many keys, so it has no time of its own for that."
        )
    if "extendible" in measured:
        notes.append("extendible has 16 and 512 nodes, because it can only double.")
    bar = f"a million keys in {MILLION_S_MAX:g} s"
    speeds = Table("speed", "How fast", columns, tuple(rows), bar, tuple(notes))
    return [speeds, _order(result)] if measured >= set(SAID) else [speeds]


def _order(result: Result[SpeedCell]) -> Table:
    """Return Golubtsov's times beside measured ones, each with its place in the order."""
    cells = {cell.setting.scheme: cell for cell in result.cells}
    columns = (
        Column("scheme"), Column("published (s)", ".2f"), Column("place"), Column(f"lookup, {FEW} nodes (ns)", ",.0f"),
        Column("place"), Column(f"placed hash, {FEW} nodes (ns)", ",.1f"), Column("place"),
    )  # fmt: skip
    times = (
        {scheme: said.time_s for scheme, said in SAID.items()},
        {scheme: 1e9 * cells[scheme].one_s[0] for scheme in SAID},
        {scheme: 1e9 * cells[scheme].each_s[0] for scheme in SAID},
    )
    places = [{scheme: place for place, scheme in enumerate(sorted(t, key=t.__getitem__), 1)} for t in times]
    rows = tuple(
        Row((scheme, *(value for t, p in zip(times, places, strict=True) for value in (t[scheme], p[scheme]))))
        for scheme in SAID
    )
    one, many = cells["jump"].one_s
    visit_ns = 1e9 * (many - one) / (harmonic(MANY) - harmonic(FEW))
    notes = (
        f"Jump's lookup takes {one / cells['ring-1000'].one_s[0]:.1f} times as long as that of ring-1000; in the "
        f"article, {SAID['jump'].time_s / SAID['ring-1000'].time_s:.1f} times.",
        f"Jump's loop runs in the interpreter. It visits {harmonic(FEW):.1f} buckets among {FEW} nodes and "
        f"{harmonic(MANY):.1f} among {MANY:,}, so a visit takes {visit_ns:,.0f} ns. A ring's binary search is one call "
        "of compiled code. A placed hash is computed by NumPy, so its loop is compiled, too.",
        "The article does not say what its times include, or on which machine.",
    )
    return Table("order", "Golubtsov's times, and their order", columns, rows, notes=notes)


def draw(result: Result[SpeedCell], figure: Figure) -> None:
    """Plot the times of one lookup and of one placed hash for each scheme."""
    cells = sorted((c for c in result.cells if c.setting.scheme != HASHING), key=lambda cell: cell.one_s[1])
    quick = sum(cell.one_s[1] < 5e-6 for cell in cells)
    slow = cells[-1]
    headline(
        figure,
        f"Among {MANY} nodes {quick} of {len(cells)} schemes find a key's node within 5 µs; "
        f"{slow.setting.scheme} takes {1e6 * slow.one_s[1]:,.0f}",
    )
    make_room(figure, len(cells))
    axes = figure.subplots()
    places = range(len(cells))
    one, each = [1e6 * cell.one_s[1] for cell in cells], [1e6 * cell.each_s[1] for cell in cells]
    axes.hlines(places, each, one, color="#BBBBBB", linewidth=1)
    own = [at for at, cell in enumerate(cells) if cell.setting.scheme not in FLATTENED]
    axes.plot([each[at] for at in own], own, "s", color=ORANGE, markersize=5, label="placed with many others (NumPy)")
    axes.plot(one, places, "o", color=BLUE, label="one lookup (Python)")
    axes.set_yticks(places, [cell.setting.scheme for cell in cells])
    axes.set_ylim(-0.8, len(cells) - 0.2)
    axes.set_xscale("log")
    dress(axes, f"time for a key among {MANY} nodes (µs)", "", is_from_zero=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.legend(frameon=False, fontsize=9, loc="lower right")


def experiment(schemes: tuple[str, ...] = ()) -> Experiment[SpeedSetting, SpeedCell]:
    """Return the experiment that times these schemes; empty: all schemes."""
    options = f" --schemes {','.join(schemes)}" * bool(schemes)
    return Experiment(
        name="speed",
        title="How fast",
        source="Golubtsov 2024, on another machine; see the table of the order",
        plan=partial(plan, schemes),
        measure=measure,
        tables=tables,
        pictures={"speed": draw},
        command=f"lab compare{options}",
        is_timed=True,
    )

"""The picture of the comparison: rates and 99th percentiles by ring size.

It has only the results with many operations in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from benchmarks.others.table import MANY, Row
from chord.lab.harness.plot import BLUE, GREEN, GREY, ORANGE, PURPLE, dress, headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLES: Final = {
    "chord": (BLUE, "o", "-"),
    "chord-sqlite": (BLUE, "s", ":"),
    "kademlia": (ORANGE, "D", "--"),
    "libp2p": (PURPLE, "^", "--"),
    "opendht": (GREEN, "v", "--"),
}
REFERENCES: Final = {"redis": ":", "etcd": "-."}


def finding(rows: Sequence[Row], ours: str, peers: Sequence[str]) -> str:
    """Return the picture's headline: our rates over those of each other system.

    Args:
        rows: the figures of all systems.
        ours: the name of our system.
        peers: the names of the systems to compare with.
    """
    parts = []
    for peer in peers:
        ratios = {}
        for op in ("put", "get"):
            rate = {(row.system, row.nodes): row.ops_per_s for row in rows if row.op == op and row.concurrency == MANY}
            sizes = [nodes for name, nodes in rate if name == ours and (peer, nodes) in rate]
            ratios[op] = [rate[ours, nodes] / max(rate[peer, nodes], 1e-9) for nodes in sizes]
        if ratios["put"] and ratios["get"]:
            parts.append(f"{span(ratios['put'])} × the puts and {span(ratios['get'])} × the gets of {peer}")
    if not parts:
        return "Nothing to compare with was measured"
    return f"With {MANY} operations in flight, {ours} does " + "; ".join(parts)


def span(ratios: Sequence[float]) -> str:
    """Return the range of some ratios as text, or one number if both ends are equal."""
    ends = (f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}" for ratio in (min(ratios), max(ratios)))
    return "–".join(dict.fromkeys(ends))


def draw(figure: Figure, rows: Sequence[Row], ours: str, peers: Sequence[str]) -> None:
    """Plot the rates and the 99th percentiles of puts and of gets, in four panels.

    Args:
        rows: the figures of all systems.
        ours: the name of our system.
        peers: the names of the systems in the headline.
    """
    figure.set_figheight(8.0)
    panels = figure.subplots(2, 2, sharex=True)
    for column, op in enumerate(("put", "get")):
        _panel(panels[0][column], rows, op, "ops_per_s", f"{op}s per second")
        _panel(panels[1][column], rows, op, "p99_ms", f"99th percentile of a {op}, ms")
    for axes in panels[0]:
        axes.set_xlabel("")
    handles, labels = panels[0][0].get_legend_handles_labels()
    for axes in panels.flat:
        legend = axes.get_legend()
        if legend is not None:  # one legend for all panels
            legend.remove()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    headline(figure, finding(rows, ours, peers))


def _panel(axes: Axes, rows: Sequence[Row], op: str, quantity: str, label: str) -> None:
    drawn = [row for row in rows if row.op == op and row.concurrency == MANY]
    mine = [row for row in drawn if getattr(row, quantity) > 0]  # a rate of 0 has no place on this axis
    sizes = sorted({row.nodes for row in mine if row.system in STYLES})
    for system in dict.fromkeys(row.system for row in mine):
        points = sorted((row.nodes, getattr(row, quantity)) for row in mine if row.system == system)
        if system in STYLES:
            colour, marker, line = STYLES[system]
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle=line, label=system)
        else:  # a reference has its own number of nodes: a rule across all sizes
            nodes, value = points[0]
            name = f"{system}, {nodes} node{'s' if nodes > 1 else ''}"
            axes.axhline(value, color=GREY, linewidth=1, linestyle=REFERENCES.get(system, "-"), label=name)
    dress(axes, "nodes, one process each", label, is_from_zero=False)
    if not sizes:  # nothing to draw, and no scale for it
        return
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [str(size) for size in sizes])

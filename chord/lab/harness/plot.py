"""How the plots look: one palette that the colour-blind can read, one way to label, one way to save.

Matplotlib is imported only to save; the experiments draw on a figure they are given. It comes with
the `lab` extra.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from chord.lab.harness.files import whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design" (2008): told apart with every common kind of colour vision.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"

MEASURED: Final[dict[str, Any]] = {"color": BLUE, "marker": "o", "label": "measured"}
PUBLISHED: Final[dict[str, Any]] = {"color": ORANGE, "marker": "D", "linestyle": "--", "label": "published"}

WIDTH_INCHES, HEIGHT_INCHES = 10.0, 4.8
TITLE_CHARS = 88

INSTALL = "no plot: matplotlib is not installed; in a checkout of chord, `pip install '.[lab]'` brings it"


class NoMatplotlib(Exception):
    """Matplotlib is not installed."""


def headline(figure: Figure, finding: str) -> None:
    """Write what the plot shows above it."""
    figure.suptitle("\n".join(textwrap.wrap(finding, TITLE_CHARS)), fontsize=13, x=0.01, ha="left")


def make_room(figure: Figure, rows: int) -> None:
    """Make a figure high enough for so many lines of text beside its axis."""
    figure.set_figheight(max(HEIGHT_INCHES, 1.5 + 0.21 * rows))


def dress(axes: Axes, x: str, y: str, *, is_from_zero: bool = True) -> None:
    """Label the axes, show light rules, and a legend where several things are drawn."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.margins(y=0.1)
    if is_from_zero:
        axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > 1:
        order = sorted(range(len(labels)), key=lambda at: not labels[at].startswith("measured"))
        axes.legend([handles[at] for at in order], [labels[at] for at in order], frameon=False, fontsize=9)


def save(draw: Callable[[Figure], None], stem: Path) -> tuple[list[Path], str]:
    """Draw, and write STEM.svg and STEM.png; the same picture gives the same bytes.

    Returns: the files, and what the picture says above itself.
    Raises:
        NoMatplotlib: see `INSTALL`.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoMatplotlib(INSTALL) from error
    with matplotlib.rc_context({"svg.hashsalt": "chord", "font.size": 10}):
        figure = Figure(figsize=(WIDTH_INCHES, HEIGHT_INCHES), layout="constrained")
        draw(figure)
        paths = [stem.with_suffix(".svg"), stem.with_suffix(".png")]
        with whole(paths[0]) as svg, whole(paths[1]) as png:
            figure.savefig(svg, metadata={"Date": None})
            figure.savefig(png, dpi=120)
    return paths, " ".join(figure.get_suptitle().split())

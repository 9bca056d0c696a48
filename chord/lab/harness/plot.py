"""The look of the plots: a palette for the colour-blind, labels, and saving.

Matplotlib comes with the `lab` extra. Only `save` imports it: the experiments receive a figure to draw on.
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

# Okabe and Ito, "Color Universal Design" (2008): distinct under every common kind of colour vision.
BLUE, ORANGE, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"

MEASURED: Final[dict[str, Any]] = {"color": BLUE, "marker": "o", "label": "measured"}
PUBLISHED: Final[dict[str, Any]] = {"color": ORANGE, "marker": "D", "linestyle": "--", "label": "published"}

WIDTH_INCHES, HEIGHT_INCHES = 10.0, 4.8
TITLE_CHARS = 88

INSTALL = "no plot: matplotlib is not installed; in a checkout of chord, install it with `pip install '.[lab]'`"


class NoMatplotlib(Exception):
    """Matplotlib is not installed."""


def headline(figure: Figure, finding: str) -> None:
    """Write the finding of a plot, one sentence, above it as its title."""
    figure.suptitle("\n".join(textwrap.wrap(finding, TITLE_CHARS)), fontsize=13, x=0.01, ha="left")


def make_room(figure: Figure, rows: int) -> None:
    """Make a figure high enough for `rows` labels beside its vertical axis."""
    figure.set_figheight(max(HEIGHT_INCHES, 1.5 + 0.21 * rows))


def dress(axes: Axes, x: str, y: str, *, is_from_zero: bool = True) -> None:
    """Finish a plot: axis labels, a light grid, and a legend if it has several series.

    Args:
        x: label of the horizontal axis.
        y: label of the vertical axis.
        is_from_zero: whether the vertical axis begins at 0.
    """
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
    """Draw a plot, and write it to STEM.svg and STEM.png.

    The same plot gives the same bytes.

    Args:
        draw: draws the plot on an empty figure, with a headline.
        stem: the path of the files without their suffixes.

    Returns:
        the two files, and the headline of the plot.

    Raises:
        NoMatplotlib: Matplotlib is not installed; the message says how to install it.
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

"""Places for the labels of a drawing: no label covers another one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

WIDTH: Final = 1080
HEIGHT: Final = 800
CENTRE: Final = (WIDTH / 2, HEIGHT / 2 + 16)
LINE: Final = 18.0
"""The height of a label, in pixels."""
CHARACTER: Final = 7.4
"""The width that a label reserves for a character, in pixels; no usual character of 12.5 px is wider on average."""
MARGIN: Final = 24.0
TOP: Final = 48.0  # of the highest label; the title is above


class SvgBox(NamedTuple):
    """A rectangle in a drawing.

    Attributes:
        left, top, right, bottom: its sides, in pixels from the left and from the top.
    """

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: SvgBox) -> bool:
        """Return whether two rectangles overlap."""
        is_beside = self.right <= other.left or other.right <= self.left
        return not (is_beside or self.bottom <= other.top or other.bottom <= self.top)


class SvgLabel(NamedTuple):
    """The place of a text beside the ring.

    Attributes:
        x: the end of the text that is next to the ring, in pixels from the left.
        y: the middle of the line, in pixels from the top.
        is_left: whether the text is left of the ring, so that it ends at x. Otherwise it begins there.
    """

    x: float
    y: float
    is_left: bool

    def box(self, width: float) -> SvgBox:
        """Return the rectangle that a text of this width, in pixels, covers."""
        left = self.x - width if self.is_left else self.x
        return SvgBox(left, self.y - LINE / 2, left + width, self.y + LINE / 2)

    @property
    def room(self) -> float:
        """The largest width of the text, in pixels, up to the border of the drawing."""
        return (self.x if self.is_left else WIDTH - self.x) - MARGIN / 2


def at(fraction: float, radius: float) -> tuple[float, float]:
    """Return the place (x, y) of a point in the drawing, in pixels.

    Args:
        fraction: the point, as a fraction of the circle, 0 to 1, clockwise from the top.
        radius: its distance from the centre, in pixels.
    """
    angle = 2 * math.pi * fraction
    return CENTRE[0] + radius * math.sin(angle), CENTRE[1] - radius * math.cos(angle)


def around(fractions: Sequence[float], radius: float) -> list[SvgLabel]:
    """Return a place beside the ring for the label of each point, in the same order. No label covers another one.

    Args:
        fractions: the points, as fractions of the circle, 0 to 1.
        radius: the smallest distance of a label from the centre, in pixels.
    """
    found: dict[int, SvgLabel] = {}
    for is_left in (False, True):
        side = [i for i, fraction in enumerate(fractions) if (fraction % 1 > 0.5) == is_left]
        side.sort(key=lambda i: at(fractions[i], radius)[1])
        heights = spread([at(fractions[i], radius)[1] for i in side], LINE, TOP, HEIGHT - MARGIN)
        for i, y in zip(side, heights, strict=True):
            away = max(4.0, math.sqrt(max(0.0, radius**2 - (y - CENTRE[1]) ** 2)))
            found[i] = SvgLabel(CENTRE[0] - away if is_left else CENTRE[0] + away, y, is_left)
    return [found[i] for i in range(len(fractions))]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Move numbers apart, as little as possible, until neighbours differ by at least `gap`, and return them.

    Args:
        wanted: the numbers, ascending.
        gap: the smallest difference. If there is too little room, it is smaller.
        low, high: the bounds of all results.
    """
    if len(wanted) > 1:
        gap = min(gap, (high - low) / (len(wanted) - 1))
    groups: list[tuple[float, int]] = []  # the mean of a group's first place, and its size
    for number, place in enumerate(wanted):
        groups.append((min(max(place, low), high) - number * gap, 1))
        while len(groups) > 1 and groups[-2][0] > groups[-1][0]:
            (a, m), (b, n) = groups[-2:]
            groups[-2:] = [((a * m + b * n) / (m + n), m + n)]
    starts = [start for start, size in groups for _ in range(size)]
    last = high - gap * (len(wanted) - 1)
    return [min(max(start, low), last) + number * gap for number, start in enumerate(starts)]


def free_place(places: Iterable[tuple[float, float]], width: float, taken: Sequence[SvgBox]) -> SvgBox:
    """Return a rectangle for a text at the first of `places` where it covers none of `taken`.

    If no place is free, the rectangle is above or below the centre of the drawing.

    Args:
        places: points for the middle of the text, the best first, in pixels.
        width: the width of the text, in pixels.
        taken: the rectangles of other texts.
    """
    size = (width / 2, LINE / 2 + 1)
    further = ((CENTRE[0], CENTRE[1] + sign * step * LINE) for step in range(HEIGHT) for sign in (1, -1))
    for x, y in (*places, *further):
        box = SvgBox(x - size[0], y - size[1], x + size[0], y + size[1])
        if not any(box.meets(other) for other in taken):
            return box
    raise AssertionError("the last places are outside of the drawing, and free")

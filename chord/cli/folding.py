"""Tables that are wider than the terminal: headings in several lines, and columns in several blocks, one below another.

Cells are never cut. A pipe gets no folded table, but one line a row.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

GAP = 2
"""Blanks between columns."""
HEAD_LINES_WIDTH = 10
"""How narrow a heading may be folded: narrower, and it is a tower of words."""
KEYS_MAX = 3


class Block(NamedTuple):
    """Columns that are printed side by side: their numbers, and their headings, which may have several lines."""

    columns: list[int]
    headings: list[str]


def fold(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[Block]:
    """Return how a table is printed in so many characters.

    As it is where there is room; else with headings in several lines; and where that is too wide too, in blocks, each
    beginning with the columns that tell the rows apart. A column that is wider than the terminal is a block of its own.

    Args:
        rows: shape (rows, columns).
        width: of the terminal, in characters.
    """
    cells = [max((len(row[at]) for row in rows), default=0) for at in range(len(headings))]
    if _total([max(len(heading), cell) for heading, cell in zip(headings, cells, strict=True)]) <= width:
        return [Block(list(range(len(headings))), list(headings))]
    folded = [_folded(heading, cell) for heading, cell in zip(headings, cells, strict=True)]
    widths = [
        max(cell, *map(len, heading.splitlines()), 0) for heading, cell in zip(folded, cells, strict=True)
    ]
    keys = list(range(_keys(rows)))
    blocks = [list(keys)]
    for at in range(len(keys), len(headings)):
        if _total([widths[each] for each in (*blocks[-1], at)]) > width and len(blocks[-1]) > len(keys):
            blocks.append(list(keys))
        blocks[-1].append(at)
    return [Block(block, [folded[at] for at in block]) for block in blocks]


def _folded(heading: str, cell: int) -> str:
    """Return a heading in lines no wider than its cells or its longest word need, the last lines full."""
    narrow = max(cell, HEAD_LINES_WIDTH, *map(len, heading.split()), 1)
    return "\n".join(textwrap.wrap(heading, narrow, break_long_words=False, break_on_hyphens=False))


def _keys(rows: Sequence[Sequence[str]]) -> int:
    """Return how many columns it takes to tell the rows apart; where three do not, the first has to do."""
    for count in range(1, KEYS_MAX + 1):
        if len({tuple(row[:count]) for row in rows}) == len(rows) and all(len(row) > count for row in rows):
            return count
    return 1


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)

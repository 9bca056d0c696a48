"""Tables that are wider than the terminal.

Their headings take several lines, and their columns are split into blocks, one below another. Cells are never cut.
Tab-separated output is not folded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import NamedTuple

GAP = 2
"""Spaces between columns."""
HEAD_LINES_WIDTH = 10
"""The smallest width of a folded heading, in characters. A narrower one would be hard to read."""
KEYS_MAX = 3


class Block(NamedTuple):
    """Columns that are printed side by side."""

    columns: list[int]  # their numbers
    headings: list[str]  # their headings, each of one or more lines


def fold(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[Block]:
    """Return the blocks in which to print a table.

    A table that fits is one block. Otherwise the headings are folded into several lines. A table that is still too wide
    is split into blocks, and each block begins with the columns that identify the rows. A column that is wider than the
    terminal has a block of its own.
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
    """Return a heading in lines, as narrow as its column and its longest word allow.

    `cell` is the width of the widest cell in the column, in characters.
    """
    narrow = max(cell, HEAD_LINES_WIDTH, *map(len, heading.split()), 1)
    return "\n".join(textwrap.wrap(heading, narrow, break_long_words=False, break_on_hyphens=False))


def _keys(rows: Sequence[Sequence[str]]) -> int:
    """Return how many leading columns identify a row: 1 to 3, or 1 if 3 do not."""
    for count in range(1, KEYS_MAX + 1):
        if len({tuple(row[:count]) for row in rows}) == len(rows) and all(len(row) > count for row in rows):
            return count
    return 1


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)

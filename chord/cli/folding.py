"""Tables that are wider than the terminal.

Bars become shorter, headings take several lines, and columns that other commands show are left out. Then cells take
several lines, and columns are split into blocks, one below another. No text is cut. Tab-separated output is not folded.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

GAP = 2
"""Spaces between columns."""
HEAD_LINES_WIDTH = 10
"""The width below which only a table without another way to fit folds its headings, in characters."""
KEYS_MAX = 3
WRAPPED_MIN = 12  # characters; a narrower text would be hard to read
_SPACE = re.compile(r"(?<!\d) | (?![A-Za-zµ%/]+[,;]?(?: |$))")  # not the one between a number and its unit


class Block(NamedTuple):
    """Some columns of a table, printed side by side.

    Attributes:
        columns: the index of each column in the table.
        headings: the heading of each column, of one or more lines.
        rows: the cells of each row, each of one or more lines.
    """

    columns: list[int]
    headings: list[str]
    rows: list[list[str]]


class Wide(NamedTuple):
    """A table that may be wider than the terminal.

    Attributes:
        headings: the headings of all columns.
        rows_at: returns the cells, with bars scaled by the given factor: 1, 0.5 or 0.
        bars: the headings of the columns that have only bars.
        spare: the headings of the columns that a narrow terminal does not need. The first is left out first.
    """

    headings: Sequence[str]
    rows_at: Callable[[float], Sequence[Sequence[str]]]
    bars: Collection[str] = ()
    spare: Sequence[str] = ()


def fold(table: Wide, width: int) -> list[Block]:
    """Return the blocks of columns in which to print a table, one below another, none wider than `width` characters."""
    narrowest = Block([], [], [])
    for narrowest in _versions(table):
        if _total(_widths(narrowest)) <= width:
            return [narrowest]
    wrapped = _wrapped(narrowest, width)
    return [wrapped] if _total(_widths(wrapped)) <= width else list(_split(narrowest, width))


def _versions(table: Wide) -> Iterator[Block]:
    """Yield ever narrower versions of a table."""
    rows = table.rows_at(1.0)
    spare = [table.headings.index(heading) for heading in table.spare]
    for at, heading in enumerate(table.headings):
        if heading == "address" and at and all(row[at] == row[at - 1] for row in rows):
            spare.insert(0, at)  # the nodes have no names but their addresses
    bars = [at for at, heading in enumerate(table.headings) if heading in table.bars]
    for gone in range(len(spare) + 1):
        for scale, head_width in ((1.0, 0), (0.5, 0), (1.0, HEAD_LINES_WIDTH), (0.5, HEAD_LINES_WIDTH), (0.5, 1)):
            yield _version(table, set(spare[:gone]), scale, head_width)
    yield _version(table, {*spare, *bars}, 0.0, 1)


def _version(table: Wide, left_out: set[int], scale: float, head_width: int) -> Block:
    """Return a table as one block.

    `head_width` is the least width of a heading of several lines; with 0 each has one line.
    """
    columns = [at for at in range(len(table.headings)) if at not in left_out]
    rows = [[row[at] for at in columns] for row in table.rows_at(scale)]
    headings = [table.headings[at] for at in columns]
    if head_width:
        headings = [
            _folded(heading, max([head_width, *(line_width(row[at]) for row in rows)]))
            for at, heading in enumerate(headings)
        ]
    return Block(columns, headings, rows)


def _folded(heading: str, width: int) -> str:
    """Return a heading in lines, as narrow as `width` and its longest word allow."""
    narrow = max(width, *map(len, re.findall(r"[^\s-]+-?", heading)), 1)
    return "\n".join(textwrap.wrap(heading, narrow, break_long_words=False))


def _wrapped(block: Block, width: int) -> Block:
    """Return a block with its widest cells in several lines, split at spaces."""
    widths = _widths(block)
    for at in sorted(range(len(widths)), key=lambda at: -widths[at]):
        cells = [row[at] for row in block.rows]
        longest = max((line_width(word) for text in cells for word in _SPACE.split(text)), default=0)
        least = max(WRAPPED_MIN, longest, line_width(block.headings[at]))
        widths[at] = min(widths[at], max(least, widths[at] - max(0, _total(widths) - width)))
    return _limited(block, widths)


def _split(block: Block, width: int) -> Iterator[Block]:
    """Yield blocks with a part of the columns each.

    Each block begins with the columns that identify the rows. A text that is still too wide takes several lines.
    """
    keys = list(range(_keys(block.rows)))
    room = max(1, (width // 2 - GAP * (len(keys) - 1)) // len(keys))
    limits = [min(at_most, room if at in keys else width) for at, at_most in enumerate(_widths(block))]
    room = max(1, width - _total([limits[at] for at in keys]) - GAP)
    limits = [limit if at in keys else min(limit, room) for at, limit in enumerate(limits)]
    part = list(keys)
    for at in range(len(keys), len(block.columns)):
        if _total([limits[each] for each in (*part, at)]) > width and len(part) > len(keys):
            yield _limited(_part(block, part), [limits[each] for each in part])
            part = list(keys)
        part.append(at)
    yield _limited(_part(block, part), [limits[each] for each in part])


def _part(block: Block, chosen: Sequence[int]) -> Block:
    rows = [[row[at] for at in chosen] for row in block.rows]
    return Block([block.columns[at] for at in chosen], [block.headings[at] for at in chosen], rows)


def _limited(block: Block, widths: Sequence[int]) -> Block:
    """Return a block with headings and cells in lines of at most these widths."""
    headings = [wrap(heading, width) for heading, width in zip(block.headings, widths, strict=True)]
    rows = [[wrap(text, width) for text, width in zip(row, widths, strict=True)] for row in block.rows]
    return Block(block.columns, headings, rows)


def wrap(text: str, width: int) -> str:
    """Break a text into lines of at most `width` columns of a terminal.

    Lines end at spaces, but a number and its unit stay together. A word that is longer than a line is split.
    """
    if line_width(text) <= width:
        return text
    lines: list[str] = []
    for word in _SPACE.split(text.replace("\n", " ")):
        if lines and line_width(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
            continue
        rest = word
        while line_width(rest) > width:
            cut = next((at for at in range(width, 1, -1) if line_width(rest[:at]) <= width), 1)
            lines.append(rest[:cut])
            rest = rest[cut:]
        lines.append(rest)
    return "\n".join(lines)


def _keys(rows: Sequence[Sequence[str]]) -> int:
    """Return how many leading columns identify a row: 1 to 3, or 1 if 3 do not."""
    for count in range(1, KEYS_MAX + 1):
        if len({tuple(row[:count]) for row in rows}) == len(rows) and all(len(row) > count for row in rows):
            return count
    return 1


def line_width(text: str) -> int:
    """Return the width of the longest line of a text, in columns of a terminal. A wide character takes two."""
    if text.isascii() and "\n" not in text:
        return len(text)
    from rich.cells import cell_len  # a wide character takes two columns

    return max(map(cell_len, text.split("\n")))


def _widths(block: Block) -> list[int]:
    return [max(line_width(text) for text in column) for column in zip(block.headings, *block.rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)

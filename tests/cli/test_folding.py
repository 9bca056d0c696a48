"""Folding of tables wider than the terminal: no long line, no cut cell, and row names in every block."""

from __future__ import annotations

import pytest

from chord.cli.folding import HEAD_LINES_WIDTH, Block, fold
from chord.cli.output import Out

HEADINGS = ["scheme", "std", "moved beyond the ideal", "between old nodes", "met"]
ROWS = [["mod", "11", "+90.29%", "1,811", "-"], ["rendezvous-tree", "12", "-1.16%", "0", "yes"]]
WHOLE = 15 + 2 + 3 + 2 + 22 + 2 + 17 + 2 + 3


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Out:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    return Out()


def test_table_with_room_is_not_folded() -> None:
    assert fold(HEADINGS, ROWS, WHOLE) == [Block([0, 1, 2, 3, 4], HEADINGS)]


def test_headings_are_folded_before_columns_are_split() -> None:
    (block,) = fold(HEADINGS, ROWS, WHOLE - 1)
    assert block == Block([0, 1, 2, 3, 4], ["scheme", "std", "moved\nbeyond the\nideal", "between\nold nodes", "met"])


def test_blocks_are_at_most_as_wide_as_the_terminal() -> None:
    narrow = 15 + 2 + 3 + 2 + HEAD_LINES_WIDTH + 2 + 9 + 2 + 3
    assert [block.columns for block in fold(HEADINGS, ROWS, narrow)] == [[0, 1, 2, 3, 4]]
    assert [block.columns for block in fold(HEADINGS, ROWS, narrow - 1)] == [[0, 1, 2, 3], [0, 4]]


def test_columns_that_identify_rows_are_in_every_block() -> None:
    rows = [["1000", f"{share}0%", "3.84", "0.00"] for share in range(6)]
    headings = ["nodes", "failed", "mean path", "mean timeouts"]
    assert [block.columns for block in fold(headings, rows, 24)] == [[0, 1, 2], [0, 1, 3]]
    alike = [["1", "1", "1", "1", "9"]] * 2
    assert [block.columns[0] for block in fold(["a", "b", "c", "d", "e"], alike, 5)] == [0] * 4, "all columns are equal"


def test_column_wider_than_the_terminal_has_its_own_block() -> None:
    blocks = fold(["scheme", "published in", "met"], [["mod", "x" * 100, "yes"], ["jump", "y", "yes"]], 80)
    assert [block.columns for block in blocks] == [[0, 1], [0, 2]]
    assert fold(["scheme", "published in"], [], 5)[0].columns == [0, 1], "a table without rows has headings"


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_folded_table_fits_the_terminal_and_keeps_every_cell(
    out: Out, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out.table(HEADINGS, ROWS, is_folded=True)
    shown = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= width
    words = shown.split()
    assert {cell for row in ROWS for cell in row} <= {*words}
    assert {word for heading in HEADINGS for word in heading.split()} <= {*words}


def test_table_in_a_pipe_has_one_line_for_each_row(
    out: Out, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    out.as_table = False
    out.table(HEADINGS, ROWS, is_folded=True)
    assert capsys.readouterr().out.splitlines() == ["\t".join(row) for row in (HEADINGS, *ROWS)]


def test_table_in_a_file_has_no_width(out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert out.width >= 80

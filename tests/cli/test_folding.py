"""Folding of tables wider than the terminal: no long line, no cut text, and row names in every block."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from chord.cli import folding
from chord.cli.folding import HEAD_LINES_WIDTH, Block, Wide, wrap
from chord.cli.output import BAR_WIDTH, Out, bar, scaled, width_of

HEADINGS = ["scheme", "std", "moved beyond the ideal", "between old nodes", "met"]
ROWS = [["mod", "11", "+90.29%", "1,811", "-"], ["rendezvous-tree", "12", "-1.16%", "0", "yes"]]
WHOLE = 15 + 2 + 3 + 2 + 22 + 2 + 17 + 2 + 3
COLUMNS = ["node", "address", "path", "load"]


def fold(
    headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, spare: Sequence[str] = ()
) -> list[Block]:
    def rows_at(scale: float) -> list[list[str]]:
        return [[scaled(text, scale) for text in row] for row in rows]

    return folding.fold(Wide(headings, rows_at, ["load"], spare), width)


@pytest.fixture
def out(monkeypatch: pytest.MonkeyPatch) -> Out:
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    return Out()


def test_table_with_room_is_not_folded() -> None:
    assert fold(HEADINGS, ROWS, WHOLE) == [Block([0, 1, 2, 3, 4], HEADINGS, ROWS)]


def test_headings_are_folded_before_columns_are_split() -> None:
    (block,) = fold(HEADINGS, ROWS, WHOLE - 1)
    assert block.columns == [0, 1, 2, 3, 4]
    assert block.headings == ["scheme", "std", "moved\nbeyond the\nideal", "between\nold nodes", "met"]


def test_blocks_are_at_most_as_wide_as_the_terminal() -> None:
    narrow = 15 + 2 + 3 + 2 + HEAD_LINES_WIDTH + 2 + 9 + 2 + 3
    assert [block.columns for block in fold(HEADINGS, ROWS, narrow)] == [[0, 1, 2, 3, 4]]
    (block,) = fold(HEADINGS, ROWS, narrow - 1)
    assert block.headings[2:4] == ["moved\nbeyond\nthe\nideal", "between\nold\nnodes"]
    assert [block.columns for block in fold(HEADINGS, ROWS, 30)] == [[0, 1, 2], [0, 3, 4]]


def test_columns_that_identify_rows_are_in_every_block() -> None:
    rows = [["1000", f"{share}0%", "3.84", "0.00"] for share in range(6)]
    headings = ["nodes", "failed", "mean path", "mean timeouts"]
    assert [block.columns for block in fold(headings, rows, 24)] == [[0, 1, 2], [0, 1, 3]]
    alike = [["1", "1", "1", "1", "9"]] * 2
    assert [block.columns[0] for block in fold(["a", "b", "c", "d", "e"], alike, 5)] == [0] * 4, "all columns are equal"


def test_word_wider_than_the_terminal_takes_several_lines() -> None:
    blocks = fold(["scheme", "published in", "met"], [["mod", "x" * 100, "yes"], ["jump", "y", "yes"]], 80)
    assert [block.columns for block in blocks] == [[0, 1], [0, 2]]
    assert blocks[0].rows[0] == ["mod", "x" * 72 + "\n" + "x" * 28]
    assert fold(["scheme", "published in"], [], 5)[0].columns == [0, 1], "a table without rows has headings"


def test_narrow_table_has_short_bars_then_fewer_columns() -> None:
    rows = [["n1", "127.0.0.1:9001", "n1 n2 n3 n4 n5", bar(1.0)], ["n2", "127.0.0.1:9002", "n2", bar(0.25)]]
    found = {}
    for width in (58, 48, 42, 32, 20, 18):
        (found[width],) = fold(COLUMNS, rows, width, ["address"])
    assert [row[3] for row in found[58].rows] == ["█" * 20, "█████"]
    assert [row[3] for row in found[48].rows] == ["█" * 10, "██▌"]
    assert [row[2] for row in found[42].rows] == ["█" * 20, "█████"], "there is room for the whole bar again"
    assert [row[2] for row in found[32].rows] == ["█" * 10, "██▌"]
    assert found[20].columns == [0, 2], "last, the bar is left out"
    assert found[18].rows == [["n1", "n1 n2 n3 n4\nn5"], ["n2", "n2"]]


def test_address_that_is_the_name_is_left_out_first() -> None:
    rows = [[f"storage-{i}.example.internal:9000"] * 2 + ["n1", ""] for i in range(3)]
    (block,) = fold(COLUMNS, rows, 60)
    assert block.columns == [0, 2, 3]
    named = [["n0", *row[1:]] for row in rows]
    assert fold(COLUMNS, named, 60)[0].columns == [0, 1, 2, 3]


@pytest.mark.parametrize(("text", "lines"), [
    ("3 min 20 s", ["3 min", "20 s"]),
    ("10/s, 3.4 KiB/s", ["10/s,", "3.4 KiB/s"]),
    ("no answer in 500 ms; suspect", ["no answer", "in", "500 ms;", "suspect"]),
    ("storage-1.example", ["storage-1", ".example"]),
])  # fmt: skip
def test_number_and_its_unit_stay_together(text: str, lines: list[str]) -> None:
    assert wrap(text, 9).split("\n") == lines


@given(st.text(st.sampled_from("ab1 %日"), max_size=40), st.integers(2, 20))
def test_wrapped_text_is_narrow_and_complete(text: str, width: int) -> None:
    lines = wrap(text, width).split("\n")
    assert max(map(cell_len, lines)) <= width
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(
    st.lists(st.tuples(*[st.text(st.sampled_from("ab1 ,:"), max_size=30)] * 3, st.floats(0, 1).map(bar)), max_size=4),
    st.integers(16, 80),
)
def test_folded_table_is_never_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    blocks = fold(COLUMNS, rows, width)
    shown = set()
    for block in blocks:
        widths = [max(len(line) for text in column for line in text.split("\n"))
                  for column in zip(block.headings, *block.rows, strict=True)]
        assert sum(widths) + folding.GAP * (len(widths) - 1) <= width
        shown |= {(at, number, text.replace("\n", "").replace(" ", "")) for number, row in enumerate(block.rows)
                  for at, text in zip(block.columns, row, strict=True)}
    given_ = {(at, number, text.replace(" ", "")) for number, row in enumerate(rows) for at, text in enumerate(row)}
    assert {at for at, _, _ in given_ - shown} <= {3} | ({1} if all(row[0] == row[1] for row in rows) else set())


def test_scaled_bar_keeps_its_share() -> None:
    assert scaled(bar(1.0), 0.5) == "█" * (BAR_WIDTH // 2)
    assert (scaled(bar(0.5), 0.0), scaled("45.0 %", 0.0), scaled("", 0.5)) == ("", "45.0 %", "")
    assert scaled(bar(1 / 160), 0.5) == "", "half an eighth is rounded to an even number"


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_folded_table_fits_the_terminal_and_keeps_every_cell(
    out: Out, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    out.table(HEADINGS, ROWS)
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
    out.table(HEADINGS, ROWS)
    assert capsys.readouterr().out.splitlines() == ["\t".join(row) for row in (HEADINGS, *ROWS)]


def test_table_in_a_file_has_no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width_of(sys.stdout) >= 80

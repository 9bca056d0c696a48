"""The page on the source texts: every row has a command, and every command exists, unless it is marked."""

from __future__ import annotations

import re

import click
import pytest

from chord.lab.papers import EXPERIMENTS
from chord.lab.report import DIFFERENCES
from chord.lab.schemes import SCHEMES
from tests.project.test_readme import INLINE, NOT_BUILT, commands, parse
from tests.support.real_rings import ROOT

PAGE = ROOT / "docs" / "explanation" / "sources.md"
TEXT = PAGE.read_text(encoding="utf-8")
MARK = "not built yet"
TEXTS = {"Kokorin", *(f"ticket {number}" for number in range(1, 27)), "article", "Golubtsov", "course notes"}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading, without its head."""
    section = TEXT.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


ROWS = rows("Everything that the texts contain")


def require_command(line: str) -> None:
    """Raise an error if a command of the table does not exist; the names in it count, too."""
    for program, *args in commands(line):
        if program == "python":
            assert (ROOT / args[0]).exists(), line
            continue
        assert program == "chord", line
        parse(args)
        if "--schemes" in args:
            assert set(args[args.index("--schemes") + 1].split(",")) <= set(SCHEMES), line
        if args[:2] == ["sim", "paper"]:
            assert set(args[2:]) <= set(EXPERIMENTS), line


def built_commands() -> list[str]:
    """Return each command without the mark, of both tables."""
    cells = [row[-1] for row in (*ROWS, *rows("Statements that differ from the measurements"))]
    found = INLINE.findall(NOT_BUILT.sub("", "\n".join(cells)))
    return list(dict.fromkeys(line for line in found if line.startswith(("chord ", "python "))))


@pytest.mark.parametrize("line", built_commands())
def test_command_without_the_mark_exists(line: str) -> None:
    require_command(line)


@pytest.mark.parametrize("line", ["chord gallery walk x", "chord lab compare --schemes mud", "chord sim paper chrun"])
def test_planted_command_that_does_not_exist_is_caught(line: str) -> None:
    with pytest.raises((click.UsageError, AssertionError)):
        require_command(line)


def test_every_row_has_a_command_or_is_a_remark() -> None:
    for row in ROWS:
        assert len(row) == 3, row
        assert row[2] == "–" or re.search("`(chord|python) ", row[2]), row


def test_every_text_and_ticket_has_a_row() -> None:
    assert {row[0] for row in ROWS} == TEXTS


def test_mark_stands_only_behind_commands() -> None:
    without_commands = NOT_BUILT.sub("", TEXT).split("## Everything")[1]
    assert MARK not in without_commands


def test_statements_of_the_labs_report_are_on_the_page() -> None:
    listed = rows("Statements that differ from the measurements")
    assert listed[: len(DIFFERENCES)] == [list(row) for row in DIFFERENCES]

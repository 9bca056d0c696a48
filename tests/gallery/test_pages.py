"""The pages of the gallery: each command with a text below it prints exactly this text.

After a change of the drawings, write the texts: python -m tests.gallery.test_pages
"""

from __future__ import annotations

import io
import re
import shlex
from contextlib import redirect_stdout
from fnmatch import fnmatch
from pathlib import Path

import pytest

from chord import cli
from chord.gallery.explore import ONE_OF
from chord.gallery.index import ENTRIES, every_entry
from tests.gallery.test_errors_page import BEGIN, END

PAGES = sorted((Path(__file__).parents[2] / "docs" / "gallery").glob("*.md"))
SHOWN = re.compile(r"^```sh\nchord (gallery [^\n]+)\n```\n\n```text\n(.*?)```\n", re.MULTILINE | re.DOTALL)
REPLAY = re.compile(r"^replay: .*\n", re.MULTILINE)
FAMILIES = {module.partition(".")[0] for module in ENTRIES.values()}
EXIT_CODES = {0, 8}
"""The algorithm holds, or a search found a run that breaks it."""


def parts_of(page: Path) -> list[str]:
    """Return the parts of a page; every second one is a printed form, which `test_errors_page` checks."""
    return re.split(f"({re.escape(BEGIN)}.*?{re.escape(END)})", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def texts_of(page: Path) -> list[tuple[str, str]]:
    """Return each command of a page with the text below it."""
    return [found for part in parts_of(page)[::2] for found in SHOWN.findall(part)]


def output_of(command: str) -> str:
    """Return the output of a command of the gallery."""
    with redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")) as out:
        code = cli.run(shlex.split(command))
    assert code in EXIT_CODES, (command, code)
    out.seek(0)
    return out.read()


def is_output(text: str, output: str) -> bool:
    """Return whether a text is the output of a command. It may lack the replay."""
    return text in (output, REPLAY.sub("", output))


ALL = [pytest.param(command, text, id=command) for page in PAGES for command, text in texts_of(page)]


@pytest.mark.parametrize(("command", "text"), ALL)
def test_text_below_a_command_is_its_output(command: str, text: str) -> None:
    output = output_of(command)
    assert is_output(text, output), f"{__doc__}\n{output}"


def test_each_family_page_shows_a_run() -> None:
    assert {page.stem for page in PAGES} >= FAMILIES
    assert [page.stem for page in PAGES if page.stem in FAMILIES and not texts_of(page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_text_of_a_page_is_below_a_command(page: Path) -> None:
    assert sum(part.count("```text\n") for part in parts_of(page)[::2]) == len(texts_of(page))


def test_planted_text_without_a_command_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nchord gallery list\n```\n\nIt prints:\n\n```text\nstale\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError):
        test_each_text_of_a_page_is_below_a_command(page)


@pytest.mark.parametrize("stale", ["● entre", "after 52 states", "b: enter 2"])
def test_planted_stale_text_is_caught(stale: str) -> None:
    output = output_of("gallery prove mutex-lamport --nodes 2 --channels any")
    right = {"● entre": "● enter", "after 52 states": "after 51 states", "b: enter 2": "b: enter 1"}[stale]
    assert is_output(REPLAY.sub("", output), output)
    assert right in output
    assert not is_output(output.replace(right, stale), output)


def wrong_rows(page: str) -> list[str]:
    """Return the entries that the table of assumptions on a page lacks, has twice, or describes wrongly."""
    rows = re.findall(r"^\| (`[^|]+) ((?:\| [+−] ){5})\|$", page, re.MULTILINE)
    marks = [(name, signs.replace("|", "").split()) for names, signs in rows for name in re.findall(r"`(.*?)`", names)]
    return [
        entry.name
        for entry in every_entry()
        if [signs for name, signs in marks if fnmatch(entry.name, name)]
        != [["−" if fault in entry.needs else "+" for fault in ONE_OF]]
    ]


def test_table_of_assumptions_is_that_of_the_entries() -> None:
    assert wrong_rows((PAGES[0].parent / "index.md").read_text(encoding="utf-8")) == []


def test_planted_wrong_sign_of_an_assumption_is_found() -> None:
    page = (PAGES[0].parent / "index.md").read_text(encoding="utf-8")
    right, wrong = "| `order-gossip` | + | − |", "| `order-gossip` | − | − |"
    assert right in page
    assert wrong_rows(page.replace(right, wrong)) == ["order-gossip"]


def with_output(shown: re.Match[str]) -> str:
    """Return a command with its output as the text below it."""
    output = output_of(shown[1])
    text = output if "replay: " in shown[2] else REPLAY.sub("", output)
    return shown[0].replace(f"text\n{shown[2]}", f"text\n{text}")


if __name__ == "__main__":
    for path in PAGES:
        parts = parts_of(path)
        parts[::2] = [SHOWN.sub(with_output, part) for part in parts[::2]]
        path.write_text("".join(parts), encoding="utf-8")

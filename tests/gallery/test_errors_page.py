"""The page of errors in the text: each printed form is on it, with the shortest run that breaks the form.

After a new printed form, write the page: python -m tests.gallery.test_errors_page
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chord.gallery.explore import prove, replay, start_of, systems_of
from chord.gallery.index import entry_of, every_entry
from chord.gallery.layout import diagram_of
from chord.gallery.text import draw_text

PAGE = Path(__file__).parents[2] / "docs" / "gallery" / "errors.md"
BEGIN, END = "<!-- printed forms: python -m tests.gallery.test_errors_page -->\n", "<!-- end of printed forms -->\n"
PRINTED = [(entry.name, form, altered) for entry in every_entry() for form, altered in entry.printed.items()]
SLOW_NODES = 3
"""Searches of as many processes are slow."""


def heading_of(name: str, form: str) -> str:
    entry = entry_of(name)
    return f"## Ticket {entry.ticket}: {entry.printed[form].text.rstrip('.')}\n"


def section_of(name: str, form: str) -> str:
    """Return the section about one printed form."""
    entry = entry_of(name)
    altered = entry.printed[form]
    found = prove(entry, altered.nodes, variant=altered)
    systems = systems_of(entry, altered.nodes, altered)
    drawn = draw_text(diagram_of(replay(systems[found.first], found.path), entry.bands)) if found.path else ""
    if found.law is not None:
        result = f"The law *{found.law.name}* is broken: {found.why}."
    else:
        result = f"The result of the search is *{found.found}*."
    steps = f"The shortest run has {len(found.path)} steps." if found.path else "It needs no step."
    start = f"The state at the start: {start_of(systems[found.first])}.\n" if len(systems) > 1 else ""
    lines = [heading_of(name, form), f"{result} {steps}\n", *([start] if start else []), "```sh"]
    lines += [f"chord gallery prove {name} --nodes {altered.nodes} --as {form}", "```\n"]
    return "\n".join([*lines, *(["```text", drawn, "```\n"] if drawn else [])])


def printed_part() -> str:
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(name, form, marks=[pytest.mark.slow] if altered.nodes >= SLOW_NODES else [])
        for name, form, altered in PRINTED
    ],
)
def test_page_has_the_shortest_run_of_each_printed_form(name: str, form: str) -> None:
    assert section_of(name, form) in printed_part(), __doc__


def test_page_has_one_section_for_each_printed_form() -> None:
    headings = [heading_of(name, form) for name, form, _ in PRINTED]
    assert re.findall(r"^## .*\n", printed_part(), re.MULTILINE) == headings, __doc__


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    made = "\n".join(section_of(name, form) for name, form, _ in PRINTED)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}", encoding="utf-8")

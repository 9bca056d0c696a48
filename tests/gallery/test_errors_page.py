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
from chord.gallery.svg import draw_svg
from chord.gallery.text import draw_text

PAGE = Path(__file__).parents[2] / "docs" / "gallery" / "errors.md"
BEGIN, END = "<!-- printed forms: python -m tests.gallery.test_errors_page -->\n", "<!-- end of printed forms -->\n"
PRINTED = [(entry.name, form, altered) for entry in every_entry() for form, altered in entry.printed.items()]
IMAGES = PAGE.parents[1] / "images"
PICTURED = ("cuts-sender", "predicates-wcp-distributed")
"""The entries with a picture: a message arrives long after its send, or the text is too wide."""
COLUMNS_MAX = 120
"""The widest drawing as text."""
READING = {
    "clocks-vector": "A *letter* is a message that carries the time of its sender. Here the send and the receive have "
    "the same time.",
    "clocks-direct": "The time of the send is not below that of the receive. c does not know the number of a, because "
    "b sends only its own. For an event, only the number of its own process counts: see "
    "[clocks](clocks.md#direct-dependency-clocks).",
    "cuts-sender": "The ok leaves b in step 2, before b turns red. It arrives in step 5, after a has turned red. So "
    "the coin is in the state of b and in the buffer of a: 2 + 4 + 1 = 7. The buffer is final only when the marker of "
    "b arrives, because each ok that b sent before comes before it. `b: white` says that b was white when it got the "
    "coin, and so sends an ok.",
    "predicates-wcp-central": "A *note* is a message of the computation. In step 6, c is green and the report of b "
    "arrives. Through the note, {b:1} happened before {b:2,c:2}, so b must stay red. The predicate of b is true at its "
    "event 1 only. If it were also true after the note, b would have to report again, and an alarm would be right.",
    "predicates-wcp-distributed": "c watches a, and d watches b. In step 1, the predicate of b becomes true at {b:1}, "
    "and d gets this report in step 2. The note that b sends in step 3 reaches a in step 4. In step 5, the predicate "
    "of a becomes true at {b:2,a:2}. In step 6, c gets this report, and turns a green. In step 7, the token reaches "
    "d, which turns b green and gives the alarm. The token has the candidate cut and the green processes: "
    "`{a:{b:2,a:2}} [a]` is the candidate {b:2,a:2} of a, and a is green. The candidate {b:1} of b happened before "
    "it, through the note. So d must not turn b green.",
    "order-lamport": "`a1` is the message of a with ticket 1, and `b3` that of b with ticket 3. The number of an "
    "event `cast` is its ticket. The number in an arrow `cast` is the clock of its sender. In step 8, b has all oks "
    "and sends its message. b knows the earlier request of a. c does not know it before step 11.",
    "stabilizing-token-ring": "Each machine compares 0 with 0. The first machine must have the privilege if both "
    "numbers are equal.",
}
"""For each entry with a printed form, how to read its run."""
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
    diagram = diagram_of(replay(systems[found.first], found.path), entry.bands)
    drawn = draw_text(diagram) if found.path else ""
    is_wide = max(map(len, drawn.splitlines()), default=0) > COLUMNS_MAX
    assert not is_wide or name in PICTURED
    if found.law is not None:
        result = f"The law *{found.law.name}* is broken: {found.why}."
    else:
        result = f"The result of the search is *{found.found}*."
    steps = f"The shortest run has {len(found.path)} steps." if found.path else "It needs no step."
    start = f"The state at the start: {start_of(systems[found.first])}.\n" if len(systems) > 1 else ""
    lines = [heading_of(name, form), f"{result} {steps}\n", *([start] if start else []), "```sh"]
    lines += [f"chord gallery prove {name} --nodes {altered.nodes} --as {form}", "```\n"]
    lines += [f"![{altered.text}](../images/{picture_of(name).name})\n"] if name in PICTURED else []
    lines += ["```text", drawn, "```\n"] if drawn and not is_wide else []
    return "\n".join([*lines, f"{READING[name]}\n"])


def picture_of(name: str) -> Path:
    """Return the file with the picture of a printed form."""
    return IMAGES / f"gallery-{name}.svg"


def svg_of(name: str) -> str:
    """Return the picture of the shortest run that breaks the only printed form of an entry."""
    entry = entry_of(name)
    (form,) = entry.printed.values()
    found = prove(entry, form.nodes, variant=form)
    run = replay(systems_of(entry, form.nodes, form)[found.first], found.path)
    return draw_svg(diagram_of(run, entry.bands), entry.title_with(form))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", PICTURED)
def test_picture_is_the_drawing_of_the_run(name: str) -> None:
    assert picture_of(name).read_text(encoding="utf-8") == svg_of(name), __doc__


if __name__ == "__main__":
    for pictured in PICTURED:
        picture_of(pictured).write_text(svg_of(pictured), encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    made = "\n".join(section_of(name, form) for name, form, _ in PRINTED)
    PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}", encoding="utf-8")

"""Every entry of the gallery: a search proves it, and finds each need, each bug and each printed form.

A new entry needs no test here: its description says what the searches must find.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chord.gallery
from chord.gallery.claims import claims_of, sizes_counted
from chord.gallery.entry import Entry, Fault
from chord.gallery.explore import ONE_OF, prove, replay, systems_of
from chord.gallery.index import ENTRIES, entry_of, every_entry
from chord.gallery.layout import LABEL_HEIGHT, Arrow, diagram_of
from chord.gallery.svg import draw_svg
from chord.gallery.text import draw_text
from chord.gallery.timed import Conditions, run_timed

NAMES = list(ENTRIES)
FAMILIES = sorted({module.partition(".")[0] for module in ENTRIES.values()})
GOLDEN = Path(__file__).with_name("golden")
SEEDS, SEEDS_OF_ONE_SIZE = 20, 50


CLAIMS = [
    (c.entry.name, c.text)
    for e in every_entry()
    for c in claims_of(e)
    if c.nodes == 2 and c.fault not in e.tolerates  # the others are slow: tests/cli/test_gallery.py
]
REFUTED = [(e.name, law.name) for e in every_entry() for law in e.refuted]
SIZES = [(e.name, n) for e in every_entry() for n in sizes_counted(e)]


def drawing_of(family: str) -> str:
    """Return the drawing of a run of the first entry of a family."""
    entry = next(e for e in every_entry() if ENTRIES[e.name].startswith(f"{family}."))
    run = run_timed(entry, max(3, entry.sizes[0]), Conditions(seed=1))
    return draw_text(diagram_of(run.recording, entry.bands)) + "\n"


# -- the index --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_entry_has_the_name_of_its_row(name: str) -> None:
    assert entry_of(name).name == name == re.sub(r"[.:_]", "-", ENTRIES[name]).lower()


def test_index_has_every_module_in_order_of_tickets() -> None:
    root = Path(chord.gallery.__file__).parent
    found = {".".join(path.relative_to(root).with_suffix("").parts) for path in root.glob("*/[!_]*.py")}
    entries = {module.partition(":")[0] for module in ENTRIES.values()}
    assert found - {f"{module}_algorithm" for module in entries} == entries
    tickets = [entry.ticket for entry in every_entry() if entry.ticket]  # 0: from other notes, at any place
    assert tickets == sorted(tickets)


@pytest.mark.parametrize("name", NAMES)
def test_entry_says_what_each_fault_does(name: str) -> None:
    entry = entry_of(name)
    faults: set[Fault] = set(ONE_OF) - ({"order"} if entry.channels == "any" else set())
    assert {*entry.needs, *entry.tolerates} == faults
    assert not set(entry.needs) & set(entry.tolerates)


# -- the searches -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "text"), CLAIMS)
def test_search_shows_claim(name: str, text: str) -> None:
    (claim,) = (claim for claim in claims_of(entry_of(name)) if claim.text == text)
    found = claim.search()
    assert found.found == claim.expected, found
    if claim.expected == "holds":
        return
    system = systems_of(claim.entry, claim.nodes, claim.variant, claim.order, found.faults)[found.first]
    diagram = diagram_of(replay(system, found.path), claim.entry.bands)
    print(f"{name} {text}: {found.found}: {found.why}\n{draw_text(diagram)}")
    assert len(diagram.rows) >= len(found.path)


@pytest.mark.parametrize(("name", "law_name"), REFUTED)
def test_search_refutes_plausible_law(name: str, law_name: str) -> None:
    entry = entry_of(name)
    (law,) = (law for law in entry.refuted if law.name == law_name)
    assert prove(entry, entry.small[0], laws=[law]).found == law_name


# -- runs on virtual time ---------------------------------------------------------------------------


def check_run(entry: Entry, nodes: int, seed: int) -> None:
    run = run_timed(entry, nodes, Conditions(seed=seed))
    assert run.is_goal, (nodes, seed, run.seconds)
    assert run.breaches == {}, (nodes, seed)
    for cost in entry.cost:
        assert cost.holds(run.recording), (nodes, seed, cost.text, cost.counted(run.recording))


@pytest.mark.parametrize("name", NAMES)
def test_few_timed_runs_hold(name: str) -> None:
    entry = entry_of(name)
    for seed in range(3):
        check_run(entry, entry.sizes[0], seed)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "nodes"), SIZES)
def test_timed_runs_hold_at_every_size(name: str, nodes: int) -> None:
    entry = entry_of(name)
    for seed in range(SEEDS_OF_ONE_SIZE if nodes == entry.sizes[0] else SEEDS):
        check_run(entry, nodes, seed)


@pytest.mark.parametrize("family", FAMILIES)
def test_drawing_of_family_equals_golden_file(family: str) -> None:
    golden = GOLDEN / f"{family}.txt"
    hint = f"{golden} is missing; write it: python -m tests.gallery.test_entries"
    assert golden.exists(), hint
    assert golden.read_text(encoding="utf-8") == drawing_of(family)


@pytest.mark.parametrize("name", NAMES)
def test_labels_of_drawing_do_not_overlap(name: str) -> None:
    entry = entry_of(name)
    boxes = diagram_of(run_timed(entry, entry.sizes[0], Conditions()).recording, entry.bands).boxes()
    for place, one in enumerate(boxes):
        for other in boxes[:place]:
            is_beside = one.x + one.width <= other.x or other.x + other.width <= one.x
            assert is_beside or one.y + one.height <= other.y or other.y + other.height <= one.y, (one, other)


@pytest.mark.parametrize("name", NAMES)
def test_message_of_drawing_does_not_cross_own_label(name: str) -> None:
    entry = entry_of(name)
    diagram = diagram_of(run_timed(entry, entry.sizes[0], Conditions()).recording, entry.bands)
    boxes = {box.y: box for box in reversed(diagram.boxes())}  # the label of a row comes before its notes
    tops = [diagram.y_of(row) - LABEL_HEIGHT + 2 for row in range(len(diagram.rows))]
    for arrow in diagram.arrows:
        box = boxes[tops[arrow.to_row]]
        ends = sorted((diagram.x_of(arrow.from_lane), diagram.x_of(arrow.to_lane)))
        assert box.x > ends[1] or box.x + box.width < ends[0], (arrow, box)


def test_message_in_transit_is_drawn_without_a_tip() -> None:
    entry = entry_of("order-lamport")
    form = entry.printed["sends-at-once"]
    found = prove(entry, form.nodes, variant=form)
    diagram = diagram_of(replay(systems_of(entry, form.nodes, form)[0], found.path))
    assert diagram.pending == ("a→b cast 9",)
    assert diagram.open == (Arrow(11, 0, len(diagram.rows), 1, False),)
    lines = [line for line in draw_svg(diagram, "").splitlines() if 'class="message open"' in line]
    assert len(lines) == 1
    assert "marker-end" not in lines[0]


def test_title_of_a_drawing_names_its_wrong_form() -> None:
    entry = entry_of("mutex-lamport")
    assert entry.title_with(None) == "Mutual exclusion by Lamport"
    assert entry.title_with(entry.bugs["no-oks"]) == "Mutual exclusion by Lamport (bug no-oks)"
    entry = entry_of("cuts-sender")
    assert entry.title_with(entry.printed["final-when-red"]).endswith(" by senders (as printed, wrong)")


def test_message_to_itself_is_drawn_on_one_lane() -> None:
    entry = entry_of("mutex-quorum-one")
    run = run_timed(entry, 2, Conditions())
    drawn = draw_text(diagram_of(run.recording)).splitlines()
    own = [e for e in run.recording.of("receive") if e.process == e.with_]
    assert own
    assert len([line for line in drawn if "↺" in line]) == len(own)


if __name__ == "__main__":
    for missing in FAMILIES:
        if not (GOLDEN / f"{missing}.txt").exists():
            (GOLDEN / f"{missing}.txt").write_text(drawing_of(missing), encoding="utf-8")

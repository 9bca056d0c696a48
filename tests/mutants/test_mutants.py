"""The right checker catches every planted bug in time, and no scenario fails without a bug."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from chord.ring.pointers import RingState
from chord.sim.observer import Violated

from . import run
from .mutant import Edit, Mutant, Stale, checker_of
from .run import MUTANTS, Catch, hunt, hunt_by_name
from .scenes_data import only_copies_are_away
from .scenes_pointers import small_ring

pytestmark = pytest.mark.slow

CORRECTNESS = Path(__file__).parents[2] / "docs" / "explanation" / "correctness.md"

MANY_SEEDS = 32  # a hunt with more seeds takes minutes

SEEDS: dict[Callable[[int], None], int] = {}
for _one in MUTANTS:
    SEEDS[_one.scenario] = max(SEEDS.get(_one.scenario, 0), _one.seeds)

HARMLESS = Mutant(
    "nothing", "none", (Edit(RingState.check, "return wrong", "return wrong"),), small_ring, 2, ("Progress",)
)


def name(of: Mutant | Callable[[int], None]) -> str:
    return of.name if isinstance(of, Mutant) else of.__name__


def marks(mutant: Mutant) -> list[pytest.MarkDecorator]:
    return [pytest.mark.thorough] if mutant.seeds >= MANY_SEEDS else []


class Row(NamedTuple):
    """A planted bug in the documentation: its checker, and the seeds needed and allowed."""

    checker: str
    needed: int
    allowed: int


@cache
def documented() -> dict[str, Row]:
    """Return the documented rows by the name of the bug."""
    section = CORRECTNESS.read_text(encoding="utf-8").partition("## Planted bugs")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return {bug: Row(checker, *map(int, seeds.split(" of "))) for bug, _, checker, seeds in rows[2:]}


ALL = [pytest.param(one, marks=marks(one)) for one in MUTANTS]


@pytest.mark.parametrize("mutant", ALL, ids=name)
def test_planted_bug_is_caught(mutant: Mutant) -> None:
    # The seed that the documentation names comes first: most of a hunt goes through seeds without a catch.
    row = documented().get(mutant.name)
    assert hunt(mutant, row.needed - 1 if row else 0).problem == ""


@pytest.mark.thorough
@pytest.mark.parametrize("scenario", SEEDS, ids=name)
def test_scenario_without_a_bug_passes_every_seed(scenario: Callable[[int], None]) -> None:
    for seed in range(SEEDS[scenario]):
        scenario(seed)


def test_names_of_planted_bugs_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def repeated(mutants: Sequence[Mutant]) -> list[str]:
    """Return the bugs that plant what an earlier one plants, in the same scene."""
    found: dict[object, str] = {}
    said = []
    for mutant in mutants:
        what = (tuple(edit.replacement for edit in mutant.edits), mutant.scenario)
        if found.setdefault(what, mutant.name) != mutant.name:
            said.append(f"{mutant.name} repeats {found[what]}")
    return said


def test_planted_bugs_of_one_scenario_differ() -> None:
    assert repeated(MUTANTS) == []
    again, elsewhere = HARMLESS._replace(name="again"), HARMLESS._replace(scenario=only_copies_are_away)
    assert repeated((HARMLESS, again, elsewhere)) == ["again repeats nothing"]


def test_planted_bugs_with_the_same_edit_refer_to_each_other() -> None:
    """A scenario for one bug shows it fast. A drawn run shows that the simulator reaches the situation."""
    reported = {mutant.name: mutant.harm for mutant in MUTANTS}
    by_edits: dict[object, list[str]] = {}
    for mutant in MUTANTS:
        by_edits.setdefault(tuple(edit.replacement for edit in mutant.edits), []).append(mutant.name)
    for names in by_edits.values():
        assert sum("the same mistake as *" in reported[name] for name in names) == len(names) - 1, names


def test_documentation_lists_every_bug_and_its_checker() -> None:
    """`make mutants` prints the table for the page."""
    listed = documented()
    assert listed.keys() == {mutant.name for mutant in MUTANTS}
    for mutant in MUTANTS:
        assert listed[mutant.name].checker in mutant.checkers, mutant.name
        assert 1 <= listed[mutant.name].needed <= listed[mutant.name].allowed == mutant.seeds, mutant.name


def test_documented_excuses_of_the_oracle_name_planted_bugs() -> None:
    section = CORRECTNESS.read_text(encoding="utf-8").partition("## What the oracle excuses")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    named = [bug for *_, bugs in rows[2:] for bug in re.split(", (?!after)", bugs)]
    assert len(named) > 10
    assert set(named) <= {mutant.name for mutant in MUTANTS if mutant.seeds <= 40}


# -- the hunt itself ------------------------------------------------------------------------------


def test_bug_without_a_complaint_is_a_problem() -> None:
    catch = hunt(HARMLESS)
    assert catch.checker is None
    assert catch.needed == catch.allowed == 2
    assert catch.problem == "nobody complained within 2 seeds"


def test_bug_caught_by_the_wrong_checker_is_a_problem() -> None:
    wraps = next(mutant for mutant in MUTANTS if mutant.name == "list wraps")
    assert "Progress should have" in hunt(wraps._replace(checkers=("Progress",))).problem


def test_scenario_that_fails_without_the_bug_is_a_problem() -> None:
    def always(seed: int) -> None:
        raise Violated(f"seed {seed} at 1.0 s: Progress: so it is")

    assert "without the bug as well" in hunt(HARMLESS._replace(scenario=always)).problem


def test_bug_that_stops_the_clock_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(seed: int) -> None:
        while True:
            pass

    monkeypatch.setattr(run, "MUTANTS", (HARMLESS._replace(scenario=spin),))
    monkeypatch.setattr(run, "CPU_S_MAX", 1)
    assert hunt_by_name("nothing").problem == "no end after 1 s of processor time"


def test_complaint_has_its_time_and_the_events_before() -> None:
    wraps = next(mutant for mutant in MUTANTS if mutant.name == "list wraps")
    pattern = r"seed 0 at 0\.\d+ s: NoDuplicates: n\d:1 .* lists a vnode twice\nafter\n *0\."
    with wraps.planted(), pytest.raises(Violated, match=pattern):
        wraps.scenario(0)


@pytest.mark.parametrize(
    ("complaint", "checker"),
    [
        ("seed 3 at 0.0083 s: PrincipalsPersist: n1:1 is alive\nafter\n  0.1  X", "PrincipalsPersist"),
        ("seed 3 at 0.0083 s: n3 denies b'old-16', which was acknowledged and lost", "oracle: denied"),
        ("seed 3 at 0.0083 s: n3 reads (b'1',) under b'old-16', written was b'2'", "oracle: misread"),
        ("seed 3 at 0.0083 s: n3 does not find b'old-16', and a store has", "oracle: lost"),
        ("not Ideal after 20.0 s. n3 is joining\n  ExactSuccessors: n1:1 has 3", "liveness"),
        ("seed 3: not Ideal after 20.0 s. \n  OwnedOnce: no vnode answers for 1 to 2", "liveness"),
        ("TooSlowError: ", "liveness"),
        ("TypeError: what is this", "none: TypeError: what is this"),
    ],
)
def test_complaint_names_its_checker(complaint: str, checker: str) -> None:
    assert checker_of(complaint) == checker


# -- edits ----------------------------------------------------------------------------------------


def test_edit_lasts_for_its_block() -> None:
    before = RingState.join
    one = next(mutant for mutant in MUTANTS if mutant.name == "join does not look again")
    with one.planted():
        assert RingState.join is not before
    assert RingState.join is before


def test_edit_of_a_property_is_a_property() -> None:
    lease = next(mutant for mutant in MUTANTS if mutant.name == "lease never runs out")
    with lease.planted():
        assert isinstance(vars(lease.edits[0].owner)["inbound"], property)


@pytest.mark.parametrize(("words", "times"), [("no such words", 0), ("wrong.append", 3)])
def test_stale_edit_is_an_error(words: str, times: int) -> None:
    stale = HARMLESS._replace(edits=(Edit(RingState.check, words, ""),))
    with pytest.raises(Stale, match=f"chord.ring.pointers.RingState.check holds {times} times, not once: '{words}'"):
        stale.planted().__enter__()


# -- the command ----------------------------------------------------------------------------------


def test_command_prints_a_table_and_fails_on_an_uncaught_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    caught = Catch("a bug", "harm", "Progress", 2, 4, 0.51)
    missed = Catch("another", "more harm", None, 4, 4, 1.0, "nobody complained within 4 seeds")
    monkeypatch.setattr(run, "hunt_all", lambda mutants, say: [caught, missed])
    assert run.main([]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "bug      what it breaks  caught by  seeds   s",
        "-------  --------------  ---------  ------  ---",
        "a bug    harm            Progress   2 of 4  0.5",
        "another  more harm       nobody     4 of 4  1.0",
    ]
    assert "1 of 2 bugs were caught" in err
    assert "another: nobody complained within 4 seeds" in err
    monkeypatch.setattr(run, "hunt_all", lambda mutants, say: [caught])
    assert run.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["checker"] == "Progress"


def test_command_hunts_on_all_cores(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["list wraps", "join takes one pointer"]) == 0
    out, err = capsys.readouterr()
    assert [line.split("  ")[0] for line in out.splitlines()[2:]] == ["join takes one pointer", "list wraps"]
    assert "2 of 2 bugs were caught" in err

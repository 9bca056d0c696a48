"""`chord gallery`: the output, files and exit codes of its commands, and their errors."""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import msgspec
import pytest

from chord import cli
from chord.gallery import explore, index
from chord.gallery.claims import claims_of
from chord.gallery.entry import Breaks, Cost
from chord.gallery.index import ENTRIES, entry_of
from tests.support.schemas import check_shape


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Gallery = Callable[..., Ended]


@pytest.fixture
def gallery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gallery:
    """Run `chord gallery …` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(line: str) -> Ended:
        capsys.readouterr()
        words = ["gallery", *shlex.split(line)]
        monkeypatch.setattr(sys, "argv", ["chord", *words])
        return Ended(cli.run(words), *capsys.readouterr())

    return run


SHORTEST_RUN = """\
broken after 51 states: one inside (ticket 4). The shortest run:
       a                b
   1   ● enter          │
   2   │                ● enter
   3   ◀── request 1 ───┤
   4   ├───── ok 2 ─────▶                  b: enter 1; overtakes request 1
   5   ├── request 1 ───▶
   6   ◀───── ok 4 ─────┤                  a: enter 1
a and b are inside
"""


@pytest.mark.parametrize(
    ("line", "shape"),
    [
        ("list", "gallery-list"),
        ("run mutex-lamport --nodes 2", "gallery-run"),
        ("prove mutex-lamport --nodes 2", "gallery-proof"),
        ("prove mutex-lamport --nodes 2 --channels any", "gallery-proof"),
        ("prove mutex-token --all", "gallery-proof"),
        ("needs mutex-lamport", "gallery-needs"),
        ("step mutex-lamport --take 0", "gallery-step"),
    ],
)
def test_json_has_its_schema(gallery: Gallery, line: str, shape: str) -> None:
    check_shape(shape, json.loads(gallery(f"{line} --json").out))


def test_list_has_every_algorithm(gallery: Gallery) -> None:
    lines = gallery("list").out.splitlines()
    assert [line.split("\t")[1] for line in lines[1:]] == list(ENTRIES)
    listed = json.loads(gallery("list --json").out)["entries"]
    assert [entry["name"] for entry in listed] == list(ENTRIES)


def test_prove_draws_the_shortest_run_and_its_replay(gallery: Gallery) -> None:
    ended = gallery("prove mutex-lamport --nodes 2 --channels any --draw run.svg")
    assert ended.code == 8
    assert ended.out.startswith(SHORTEST_RUN)
    ElementTree.fromstring(Path("run.svg").read_text(encoding="utf-8"))
    replay = ended.out.splitlines()[-1].removeprefix("replay: chord gallery ")
    replayed = gallery(replay)
    assert replayed.code == 0
    assert replayed.out.startswith(SHORTEST_RUN.partition("\n")[2].rpartition("a and b")[0])


@pytest.mark.parametrize("wishes", ["--bug ties", "--nodes 2 --crash 1 --restart 1", "--nodes 2 --loss 1"])
def test_prove_prints_a_replay_of_every_broken_run(gallery: Gallery, wishes: str) -> None:
    found = json.loads(gallery(f"prove mutex-ricart-agrawala {wishes} --json").out)["results"][0]
    assert found["result"] in ("broken", "stuck")
    replayed = json.loads(gallery(found["replay"].removeprefix("chord gallery ") + " --json").out)
    strip = [{key: value for key, value in event.items() if key != "at"} for event in found["events"]]
    assert [{key: value for key, value in event.items() if key != "at"} for event in replayed["events"]] == strip


def test_prove_of_what_holds_counts_states(gallery: Gallery) -> None:
    ended = gallery("prove mutex-lamport --nodes 2")
    assert (ended.code, ended.out) == (0, "mutex-lamport holds for n = 2: 65 states\n")


@pytest.mark.slow
@pytest.mark.parametrize("name", ENTRIES)
def test_prove_all_shows_every_claim(gallery: Gallery, name: str) -> None:
    ended = gallery(f"prove {name} --all")
    assert ended.code == 0, ended.out
    entry = entry_of(name)
    claims = len(list(claims_of(entry))) + len(entry.cost)
    assert ended.out.endswith(f"{claims} of {claims} claims shown\n")
    broken = sum(claim.expected != "holds" for claim in claims_of(entry))
    assert ended.out.count("\nreplay: ") == broken, "each run that breaks it is printed"


def test_prove_all_reports_what_is_not_as_claimed(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = entry_of("mutex-token")
    wrong = msgspec.structs.replace(
        entry, needs={**entry.needs, "loss": Breaks("no cycle")}, cost=(Cost("2n", "run", lambda n: 2 * n),)
    )
    monkeypatch.setattr(index, "entry_of", lambda name: wrong)
    ended = gallery("prove mutex-token --all")
    assert ended.code == 8
    assert "NOT AS CLAIMED: expected no cycle, found" in ended.out
    assert "mutex-token costs 2n messages per run: NOT AS CLAIMED: counted" in ended.out


def test_search_with_too_many_states_proves_nothing(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explore.Search.__init__, "__kwdefaults__", {
        "is_inevitable": False, "states_max": 10, "watch": None,
    })  # fmt: skip
    ended = gallery("prove mutex-lamport --nodes 2")
    assert ended.code == 5
    assert "Nothing is proved" in ended.out


def test_run_prints_diagram_counts_and_laws(gallery: Gallery) -> None:
    ended = gallery("run mutex-lamport --nodes 3 --seed 7 --draw run.svg --history run.jsonl")
    assert ended.code == 0, ended.err
    assert "yes  3n − 3 messages per enter: 18 sent, 18 expected" in ended.out
    assert "yes  one inside (ticket 4): At most one process is inside" in ended.out
    events = [json.loads(line) for line in Path("run.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sum(event["what"] == "send" for event in events) == 18
    assert [event["n"] for event in events] == list(range(len(events)))
    found = json.loads(gallery("run mutex-lamport --nodes 3 --seed 7 --json").out)
    assert (found["goal"], found["broken"], found["events"]) == (True, {}, events)


@pytest.mark.slow
def test_run_that_breaks_a_law_exits_with_8(gallery: Gallery) -> None:
    lines = [gallery(f"run mutex-lamport --nodes 2 --channels any --seed {seed}") for seed in range(40)]
    broken = [ended.out for ended in lines if ended.code == 8]
    assert any(" NO  one inside (ticket 4): a and b are inside" in out for out in broken)
    assert all("replay: chord gallery run mutex-lamport" in out for out in broken)


def test_run_takes_delays_and_faults(gallery: Gallery) -> None:
    faults = "--double 0.5 --loss 0.5 --crash a@0.01-0.02 --crash b@0.01 --partition 'a,b|c@0-0.01'"
    ended = gallery(f"run clocks-lamport --nodes 3 --delay uniform:1ms-2ms {faults}")
    assert ended.code in (0, 8), ended.err
    assert "crash" in ended.out
    assert "✗" in ended.out


def test_step_reads_steps_from_stdin(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("0\n7\nundo\nquit\n"))
    ended = gallery("step mutex-lamport --nodes 2")
    assert ended.code == 0
    assert ended.out.count("  0  a: ask enter") == 2
    assert ended.err == "there is no step '7'. Name a number from 0 to 1\n"


def test_needs_names_what_each_fault_breaks(gallery: Gallery) -> None:
    ended = gallery("needs mutex-lamport --json")
    found = {need["fault"]: need["law"] or need["result"] for need in json.loads(ended.out)["needs"]}
    assert found["order"] == "one inside"
    assert found["loss"] == "stuck"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("run mutex-lamprot", "there is no algorithm 'mutex-lamprot'. Did you mean mutex-lamport?"),
        ("run mutex-lamport --nodes 99", "mutex-lamport cannot run with 99 processes. Name 2 to 8 processes"),
        ("run mutex-lamport --bug tie", "there is no bug 'tie' of mutex-lamport. There are: no-oks"),
        (
            "run mutex-lamport --as printed",
            "there is no printed form 'printed' of mutex-lamport. mutex-lamport has none",
        ),
        ("run mutex-lamport --bug no-oks --as printed", "--bug and --as exclude each other. Name one of them"),
        ("run mutex-lamport --delay exp:0ms", "'exp:0ms' is not a delay. For example: --delay 50ms"),
        ("run mutex-lamport --crash a", "'a' is not a crash. For example: --crash b@1.5-3"),
        ("run mutex-lamport --crash z@1", "there is no process 'z'. There are: a, b, c"),
        ("run mutex-lamport --partition a@1", "'a@1' is not a partition. For example: --partition a,b|c@1-4"),
        ("run mutex-lamport --draw /nowhere/x.svg", "cannot write /nowhere/x.svg"),
        ("prove", "expected the name of an algorithm, or --all. See: chord gallery list"),
        ("prove --all --bug x", "--all takes no size, variant, fault or drawing. Leave out one of them"),
        ("step mutex-lamport --take 9", "there is no step '9'. Name a number from 0 to 1"),
    ],
)
def test_wrong_usage_exits_with_2(gallery: Gallery, line: str, message: str) -> None:
    ended = gallery(line)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {message}"), ended.err

"""`chord lab`: the output, files and exit codes of its commands, and their errors."""

from __future__ import annotations

import csv
import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from chord import cli
from chord.cli.lab import lab_command
from chord.lab.hashing import Hashes
from chord.lab.placement import Numbers
from chord.lab.schemes import SCHEMES
from chord.lab.schemes.jump import Jump
from tests.support.real_rings import HANG_S, ROOT
from tests.support.schemas import check_shape

pytestmark = pytest.mark.slow

QUICK = ("--scale", "quick", "--jobs", "1")


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Lab = Callable[..., Ended]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    """Run `chord lab …` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Ended:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["chord", "lab", *args])
        code = cli.run(["lab", *args])
        return Ended(code, *capsys.readouterr())

    return run


def test_compare_prints_tables_and_writes_files(lab: Lab) -> None:
    ended = lab("compare", "--schemes", "mod,jump", "--keys", "500000", "--nodes", "4", "--then", "6", *QUICK)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0] == "How even: keys per node"
    assert [line.split("\t")[0] for line in lines[1:4]] == ["scheme", "mod", "jump"]
    assert "page: out/lab/report-compare.md" in ended.err
    assert lines[-1].startswith("If nodes come and go, compare rendezvous and ring-100:")
    assert lines[-1] in Path("out/lab/compare.md").read_text()
    with Path("out/lab/stability.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["grows"] for row in rows] == ["4 → 6", "4 → 6"]
    between = [int(row["grows: between old nodes"]) for row in rows]
    assert between[0] == pytest.approx(10_000 / 3, rel=0.1)
    assert between[1] == 0
    page = Path("out/lab/compare.md").read_text()
    assert "chord lab compare --keys 500000 --nodes 4 --then 6 --schemes mod,jump --seed 1 --scale quick" in page
    assert Path("out/lab/report-compare.md").read_text().count("![") == 3


def test_columns_have_unique_names_in_every_output(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = ("--schemes", "mod,jump", "--keys", "50000", *QUICK)
    piped = lab("compare", *wishes).out.splitlines()
    heads = next(line for line in piped if line.startswith("scheme\tgrows")).split("\t")
    assert heads[:3] == ["scheme", "grows", "grows: kept"]
    assert heads[-2:] == ["shrinks: between old nodes", "met"]
    table = json.loads(lab("compare", *wishes, "--json").out)["experiments"][0]["tables"][1]
    with Path("out/lab/stability.csv").open() as file:
        assert next(csv.reader(file)) == [*table["columns"], "passed"] == [*heads[:-1], "passed"]
    page = Path("out/lab/compare.md").read_text()
    assert "| " + " | ".join(heads) + " |" in page
    monkeypatch.setenv("CHORD_OUTPUT", "table")
    monkeypatch.setenv("COLUMNS", "80")
    shown = lab("compare", *wishes).out.splitlines()
    assert max(map(len, shown)) <= 80
    assert len(shown) > len(piped)


def test_compare_takes_skewed_keys_from_a_file(lab: Lab) -> None:
    Path("keys.txt").write_bytes(b"hot\n" * 900 + b"\n".join(b"user:%d" % n for n in range(99)) + b"\n\xff\xfe\n")
    ended = lab("compare", "--keys", "keys.txt", "--schemes", "rendezvous", "--nodes", "5", "--json", *QUICK)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    check_shape("lab", found)
    evenness = found["experiments"][0]["tables"][0]
    assert evenness["name"] == "evenness"
    measured = dict(zip(evenness["columns"], evenness["rows"][0]["values"], strict=True))
    assert (measured["keys per node"], measured["nodes"]) == (200, 5)
    assert measured["most / mean"] >= 4.5
    assert "Of the 1,000 keys 101 are different; one is 90.0% of all." in evenness["notes"]
    assert found["experiments"][0]["notes"][-1] == (
        "Split or cache the most frequent key: it has 90.0% of the requests, and the fair share of a node is 20.0%."
    )


def test_weights_apply_to_schemes_that_support_them(lab: Lab) -> None:
    wishes = ("--schemes", "rendezvous-weighted,mod", "--nodes", "3", "--weights", "1,1,2")
    ended = lab("compare", "--keys", "500000", *wishes, *QUICK)
    assert ended.code == 0, ended.err
    assert "Without support for weights, but compared with them: mod." in ended.out


@pytest.mark.parametrize("schemes", ["mod-factor,extendible,static", "static", "jump"])
def test_compare_takes_schemes_that_cannot_grow_by_one(lab: Lab, schemes: str) -> None:
    ended = lab("compare", "--keys", "50000", "--schemes", schemes, "--nodes", "4", *QUICK)
    assert ended.code == 0, ended.err
    assert Path("out/lab/stability.svg").exists()


def test_report_has_the_command_that_repeats_it(lab: Lab) -> None:
    Path("my keys.txt").write_bytes(b"\n".join(b"user:%d" % n for n in range(500)))
    weights = "1234567.5,2000000"
    wishes = ("--keys", "my keys.txt", "--schemes", "rendezvous-weighted,ring-100", "--nodes", "2")
    ended = lab("compare", *wishes, "--weights", weights, *QUICK)
    assert ended.code == 0, ended.err
    page = Path("out/lab/compare.md").read_text()
    line = next(line for line in page.splitlines() if "chord lab compare" in line)
    words = shlex.split(line[line.index("chord lab compare") :].split("`")[0])
    assert words[words.index("--keys") + 1] == "my keys.txt"
    assert words[words.index("--weights") + 1] == "1234567.5,2000000.0"


@pytest.mark.thorough
def test_weights_in_any_spelling_are_proportions(lab: Lab) -> None:
    """A ring is included: it has a number of points for each unit of weight."""

    def measured(weights: str) -> Any:
        wishes = ("--schemes", "ring-100,chord,rendezvous-weighted", "--nodes", "3", "--keys", "50000", "--json")
        ended = lab("compare", *wishes, "--weights", weights, *QUICK)
        assert ended.code == 0, ended.err
        return [table["rows"] for table in json.loads(ended.out)["experiments"][0]["tables"]]

    assert measured("1,1,2") == measured("0.01,0.01,0.02") == measured("5e7,5e7,1e8")
    assert measured("1,1,2") != measured("1,2,1")


def test_folder_in_place_of_a_report_file_is_named(lab: Lab) -> None:
    Path("there/movement.csv").mkdir(parents=True)
    ended = lab("movement", "--out", "there", *QUICK)
    assert ended.code == 2
    assert "error: cannot write there/movement.csv (is a directory)" in ended.err


class Leaky(Jump):
    """A planted bug: one key in twenty is placed by the number of nodes."""

    def place_many(self, hashes: Hashes) -> Numbers:
        found = super().place_many(hashes)
        return np.where(hashes % np.uint64(20) == 0, hashes % np.uint64(len(self._nodes)), found).astype(np.intp)


def test_missed_bar_is_exit_8(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEMES, "jump", Leaky)
    from chord.sim import pool

    class Here:
        """An executor in this process, which has the planted bug."""

        def __enter__(self) -> None:
            return None

        def __exit__(self, *_: Any) -> None:
            return None

    monkeypatch.setattr(pool, "processes", lambda jobs: Here())
    ended = lab("compare", "--keys", "100000", "--schemes", "jump", *QUICK)
    assert ended.code == 8
    assert "\tNO" in ended.out


@pytest.mark.parametrize("command", ["jump", "strategies", "movement"])
def test_experiment_command_writes_its_report(lab: Lab, command: str) -> None:
    ended = lab(command, "--json", "--seed", "3", "--out", "here", *QUICK)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    check_shape("lab", found)
    assert (found["seed"], found["scale"], found["experiments"][0]["name"]) == (3, "quick", command)
    assert all(Path(file).exists() for experiment in found["experiments"] for file in experiment["files"])
    assert Path(f"here/report-{command}.md").exists()
    assert not Path("here/report.md").exists(), "only `lab all` writes that page"


@pytest.mark.thorough
def test_ring_and_vnodes_commands_take_a_size(lab: Lab) -> None:
    found = json.loads(lab("ring", "--nodes", "100", "--json", *QUICK).out)
    check_shape("lab", found)
    names = [experiment["name"] for experiment in found["experiments"]]
    assert names == ["path_length", "routes", "failures", "load_balance", "birthdays"]
    assert [row["values"][0] for row in found["experiments"][0]["tables"][0]["rows"]] == [8, 16, 32, 64, 100, 128]
    ended = lab("vnodes", "--nodes", "10", *QUICK)
    assert "16 rings of 10 nodes" in ended.out


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (("compare", "--schemes", "mod,magic"), "there is no scheme 'magic'", "There are: static, mod, mod-factor, "),
        (("compare", "--schemes", ","), "--schemes is empty", "There are: static"),
        (("compare", "--nodes", "5", "--then", "5"), "--then 5 is not more than --nodes 5", "Name more nodes"),
        (("compare", "--nodes", "0"), "0 is not in the range", "chord lab compare --help"),
        (("compare", "--keys", "0"), "0 keys cannot be made", "Ask for 1 to 10,000,000"),
        (("compare", "--keys", "nothing.txt"), "cannot read nothing.txt (no such file or directory)", "key per line"),
        (("compare", "--keys", "empty.txt"), "empty.txt has no keys", "one key per line"),
        (("compare", "--nodes", "3", "--weights", "1,2"), "there are 2 weights for 3 nodes", "--weights 1,1,2"),
        (("compare", "--nodes", "2", "--weights", "1,x"), "'1,x' is not a list of numbers", "--weights 1,1,2"),
        (("compare", "--nodes", "2", "--weights", "1,0"), "a weight must be more than 0", "--weights 1,1,2"),
        (("compare", "--nodes", "2", "--weights", "1,1e308"), "weights from 1 to 1e+308", "--weights 1,1,2"),
        (("compare", "--nodes", "2", "--weights", "1e-300,1e300"), "the largest may be 1,000 times", "--weights 1,1,2"),
        (("compare", "--keys", "9" * 5000), "99999999… (5,000 digits) keys cannot be made", "Ask for 1 to 10,000,000"),
        (("compare", "--keys", ""), "--keys is empty", "one key per line"),
        (("ring", "--nodes", "7"), "7 is not in the range", "chord lab ring --help"),
        (("jump", "--out", "empty.txt/x"), "cannot write empty.txt/x", "Name a place that can be written"),
        (("jump", "--out", ""), "expected a folder's name", "chord lab jump --help"),
        (("folklore",), "No such command 'folklore'", "chord lab --help"),
    ],
)
def test_invalid_argument_is_exit_2_with_a_hint(lab: Lab, args: tuple[str, ...], message: str, hint: str) -> None:
    Path("empty.txt").write_bytes(b"\n\n")
    ended = lab(*args)
    assert (ended.code, ended.out) == (2, "")
    assert message in ended.err
    assert hint in ended.err
    assert ended.err.count("\n") == 1
    as_json = lab(*args, "--json")
    check_shape("error", json.loads(as_json.err))


@pytest.mark.parametrize("name", ["numpy", "matplotlib", "xxhash"])
def test_lab_without_its_extra_says_how_to_install_it(lab: Lab, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    right = importlib.util.find_spec
    monkeypatch.setattr("chord.cli.lab.find_spec", lambda wanted: None if wanted == name else right(wanted))
    ended = lab("jump")
    assert (ended.code, ended.out) == (2, "")
    hint = "In a checkout of chord: make venv, or pip install '.[lab]'"
    assert ended.err == f"error: the lab needs {name}, not installed here. {hint}\n"


@pytest.mark.parametrize("args", [["--help"], ["lab", "--help"], ["lab", "compare", "--help"], ["version"]])
def test_help_does_not_load_numpy_or_the_lab(args: list[str]) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); from chord import cli; code = cli.run({args!r}); "
        "sys.exit(code or ('numpy' in sys.modules) or ('chord.lab' in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], timeout=HANG_S, check=True, capture_output=True)


def test_every_lab_command_has_a_help_text() -> None:
    for command in lab_command.commands.values():
        assert command.help
        assert command.short_help

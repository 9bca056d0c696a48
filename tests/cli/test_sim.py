"""`chord sim run`, `replay` and `paper`: output, files, exit codes, and the replay of a failure."""

from __future__ import annotations

import itertools
import json
import math
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import trio

from chord import cli
from chord.cli.sim import FAULTS_HELP, WISHES, paper_command, replay_command
from chord.lab.harness.experiment import Column, Row, Table
from chord.lab.papers import EXPERIMENTS, path_length
from chord.observe.chordlog import read as read_chordlog
from chord.replication.transfer import Transfers
from chord.ring.pointers import RingState
from chord.ring.vnode import Vnode
from chord.sim import run as run_module
from chord.sim import swarm
from chord.sim.plan import FAULTS, Plan
from chord.sim.run import RunReport
from chord.stabilize import Stabilizer
from chord.wire.messages import GetRing, GetRingReply
from tests.support.real_rings import CHORD, environment, interruptible
from tests.support.schemas import check_shape

pytestmark = pytest.mark.slow

SMALL = ("--nodes", "5", "--successors", "2", "--faults", "none", "--fidelity", "messages", "--until", "1")
ENDED_WITHIN_S = 600.0


class Ended(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


Sim = Callable[..., Ended]


@pytest.fixture
def sim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Sim:
    """Run `chord sim …` in this process, in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> Ended:
        capsys.readouterr()
        code = cli.run(["sim", *args])
        return Ended(code, *capsys.readouterr())

    return run


def lists_wrap(state: RingState, entries: tuple[Any, ...]) -> tuple[Any, ...]:
    """A planted bug: successor lists continue past their owner."""
    return entries[: state.r]


async def no_stabilize(stabilizer: Stabilizer) -> None:
    """A planted bug: no node learns of joins and leaves."""


def no_answer(transfers: Transfers, request: object) -> None:
    """A planted bug: a handler raises, in the middle of a delivery."""
    raise ZeroDivisionError("planted")


async def endless_step(stabilizer: Stabilizer) -> None:
    """A planted bug: a step that never ends and never waits for time to pass."""
    while True:
        await trio.lowlevel.checkpoint()


# -- run ------------------------------------------------------------------------------------------


def test_run_prints_the_drawn_faults_and_the_paths_taken(sim: Sim) -> None:
    size = ("--nodes", "6", "--successors", "2")
    wishes = ("run", "--seeds", "0-2", "--jobs", "1", "--theme", "mixed", *size, "--until", "1")
    ended = sim(*wishes, "--counts")
    assert (ended.code, ended.err) == (0, "")
    summary, situations, faults, taken = (part.splitlines() for part in ended.out.split("\n\n"))
    assert sim(*wishes).out.split("\n\n") == ["\n".join(summary), "\n".join(situations) + "\n"]
    assert situations[0] == "situation\ttimes"
    assert "theme mixed\t3" in situations
    assert faults[0] == "fault\tseeds\tmeaning"
    assert [line.split("\t")[0] for line in faults[1:]] == list(FAULTS)
    assert any(0 < int(line.split("\t")[1]) <= 3 for line in faults[1:])
    assert taken[0] == "taken\ttimes"
    assert "ArcGained created\t3" in taken
    assert re.fullmatch(r"3 seeds, \d of them over frames: all passed", summary[0])
    assert re.fullmatch(
        r"[\d,]+ protocol steps, \d+ times a node joined or left, [\d,]+ checks of all invariants, [\d,]+ deliveries",
        summary[1],
    )
    assert "were lost with the last node that had them" in summary[-3]
    assert "writes were acknowledged: " in summary[-2]
    assert re.fullmatch(r"\d+ % of the runs had an absence longer than every period", summary[-1])


def test_long_run_of_one_seed_reports_progress(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chord.cli.sim.LINES_EVERY_S", math.inf)
    monkeypatch.setattr("chord.cli.sim.PROGRESS_WRITES", 20)
    calm = ("--nodes", "6", "--successors", "2", "--faults", "none", "--membership", "0", "--steps", "0")
    ended = sim("run", "--seeds", "0", *calm, "--writes", "300", "--clients", "8", "--client-pause", "0.1")
    pattern = re.compile(r"(\d+) writes were acknowledged, \d+ times a node joined or left, all held")
    progress = [pattern.fullmatch(line) for line in ended.err.splitlines()]
    writes = [int(match[1]) for match in progress if match]
    assert len(writes) == len(progress) >= 2, ended.err
    assert all(after - before >= 20 for before, after in itertools.pairwise([0, *writes]))


def test_run_in_two_processes_prints_the_same_json(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chord.cli.sim.LINES_EVERY_S", math.inf)
    ended = sim("run", "--seeds", "0-2", *SMALL, "--jobs", "1", "--json")
    assert (ended.code, ended.err) == (0, "")
    found = json.loads(ended.out)
    check_shape("sim-run", found)
    assert (found["seeds"], found["failures"], found["never_taken"]) == (3, [], [])
    assert list(found["digests"]) == ["0", "1", "2"]
    assert len(set(found["digests"].values())) == 3
    assert sim("run", "--seeds", "0-2", *SMALL, "--jobs", "2", "--json") == ended


def test_run_takes_one_seed(sim: Sim) -> None:
    assert list(json.loads(sim("run", "--seeds", "5", *SMALL, "--json").out)["digests"]) == ["5"]


@pytest.mark.parametrize(
    ("owner", "name", "bug", "kind", "code", "sign"),
    [
        (RingState, "_copied", lists_wrap, "correctness", 8, r"NoDuplicates: n\d:1 "),
        (Stabilizer, "stabilize", no_stabilize, "liveness", 5, r"not Ideal after 10\.0 s"),
        (Transfers, "on_join_arc", no_answer, "crash", 1, r"ZeroDivisionError: planted\nTraceback "),
    ],
    ids=["correctness", "liveness", "crash"],
)
def test_failing_run_prints_the_command_that_replays_it(
    sim: Sim, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, bug: Any, kind: str, code: int, sign: str
) -> None:
    monkeypatch.setattr(run_module, "HEALED_WITHIN_S", 10.0)
    run = ("run", "--seeds", "2-3", *SMALL, "--client-pause", "0.4", "--pause", "0.1", "--jobs", "1")
    with mock.patch.object(owner, name, bug), mock.patch.object(RingState, "_check", return_value=None):
        ended, as_json = sim(*run), sim(*run, "--json")
        last = ended.out.splitlines()[-1]
        again = sim(*shlex.split(last)[2:])
    assert ended.code == as_json.code == again.code == code
    assert last == (
        "chord sim replay 2 --nodes 5 --successors 2 --faults none --fidelity messages "
        "--client-pause 0.4 --pause 0.1 --until 1.0"
    )
    assert "2 seeds, 0 of them over frames: 2 FAILED" in ended.out
    found = json.loads(as_json.out)
    check_shape("sim-run", found)
    assert [failure["seed"] for failure in found["failures"]] == [2, 3]
    first = found["failures"][0]
    assert (first["kind"], first["replay"]) == (kind, last)
    assert re.search(sign, first["text"])
    complaint = f"{kind}: {first['text']}\n"
    assert complaint in ended.out
    assert complaint in again.err, "the replay fails in the same way, at the same moment, after the same events"
    assert ended.err.splitlines()[0] == complaint.splitlines()[0], "a failure is reported at once"
    assert "ignored" not in ended.err + again.err, "no task is left suspended"


def test_seed_without_progress_of_virtual_time_is_given_up(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "STILL_S_MAX", 0.2)
    with mock.patch.object(Stabilizer, "stabilize", endless_step):
        ended = sim("run", "--seeds", "0", *SMALL)
    assert ended.code == 5
    assert "liveness: seed 0: Spinning: virtual time stands still at " in ended.out
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_run_of_many_seeds_must_take_every_path(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swarm, "SEEDS_FOR_ALL", 3)
    monkeypatch.setattr(swarm, "run_one", lambda plan, on_progress: RunReport(plan.seed))
    ended = sim("run", "--seeds", "0-2", "--jobs", "1")
    assert ended.code == 8
    assert ended.out.splitlines()[-1] == f"never taken: {', '.join(swarm.NEVER_ZERO)}"
    assert json.loads(sim("run", "--seeds", "0-2", "--jobs", "1", "--json").out)["never_taken"] == [*swarm.NEVER_ZERO]
    assert sim("run", "--seeds", "0-1", "--jobs", "1").code == 0, "too few seeds for every path"
    assert sim("run", "--seeds", "0-2", "--jobs", "1", "--faults", "all").code == 0, "the faults are not drawn"


@pytest.mark.thorough
def test_shares_of_writes_are_checked_on_request(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    wishes = ("--seeds", "1", *SMALL[:-2], "--clients", "4", "--client-pause", "0.01", "--until", "5")
    assert sim("run", *wishes).code == 0
    ended = sim("run", *wishes, "--shares")
    assert ended.code == 8
    assert ended.out.splitlines()[-1].startswith("never taken: ")
    assert "through a stand-in (" in ended.out.splitlines()[-1]
    monkeypatch.setattr(swarm, "SHARES_MIN", {"no context": 0.2, "delete": 0.1})
    assert sim("run", *wishes, "--shares").code == 0


def test_failing_seeds_are_all_named_and_a_few_shown(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(plan: Plan, on_progress: object) -> swarm.Broken:
        return swarm.Broken(plan, "crash" if plan.seed else "liveness", f"seed {plan.seed}: planted\nand more")

    monkeypatch.setattr(swarm, "run_one", fail)
    ended = sim("run", "--seeds", "0-7", "--jobs", "1")
    assert ended.code == 1, "a crash decides the exit code before a late ring"
    assert ended.out.count("and more") == 5
    assert "\nand 3 more: 5, 6, 7\n" in ended.out
    assert ended.out.splitlines()[-1] == "chord sim replay 0"
    assert len(ended.err.splitlines()) == 8


@pytest.mark.parametrize(
    ("args", "what", "way_out"),
    [
        (("run", "--seeds", "9-3"), "there are no seeds in 9-3", "--seeds 0-99"),
        (("run", "--seeds", "-3"), "'-3' is not a seed or a range of seeds", "--seeds 0-99"),
        (("run", "--seeds", "1-2-3"), "'1-2-3' is not a seed", "--seeds 0-99"),
        (("run", "--faults", "crash,gremlins"), 'unknown fault "gremlins": expected adjacent, crash', "--help"),
        (("run", "--nodes", "0"), "0 is not in the range", "--help"),
        (("run", "--nodes", "5", "--successors", "4"), "too few nodes: 5; lists of 4 successors", "more --nodes"),
        (("run", "--until", "0"), "0 is not in the range", "--help"),
        (("run", "--fidelity", "smoke"), "'smoke' is not one of 'messages', 'frames'", "--help"),
        (("run", "--jobs", "0"), "0 is not in the range", "--help"),
        (("replay",), "Missing argument 'SEED'", "--help"),
        (("replay", "x"), "'x' is not a valid integer", "--help"),
        (("paper", "folklore"), "there is no experiment 'folklore'", "There are: path_length"),
        ((), "Missing command", "--help"),
    ],
)
def test_invalid_argument_is_exit_2_with_a_next_step(sim: Sim, args: tuple[str, ...], what: str, way_out: str) -> None:
    ended = sim(*args)
    assert (ended.code, ended.out) == (2, "")
    assert what in ended.err
    assert way_out in ended.err


def test_error_as_json_has_its_schema(sim: Sim) -> None:
    error = json.loads(sim("run", "--faults", "gremlins", "--json").err)
    check_shape("error", error)
    assert error["error"]["code"] == "config"


# -- replay ---------------------------------------------------------------------------------------

SEED = "2"
FAULTY = ("--faults", "crash,restart", "--nodes", "7", "--successors", "2", "--fidelity", "messages", "--until", "1")
COLUMNS = {"time": 9, "node": 6, "event": 24, "predecessor": 11, "list": 27, "share": 8, "keys": 5}


def test_replay_prints_aligned_lines_and_logs_all_events(sim: Sim, tmp_path: Path) -> None:
    ended = sim("replay", SEED, *FAULTY, "--log", str(tmp_path / "new" / "log"))
    assert ended.code == 0
    heading, *lines = ended.out.splitlines()
    assert heading.split() == list(COLUMNS)
    assert {len(line) for line in (heading, *lines)} == {len(heading)}
    pattern = (
        r" *\d+\.\d{4}  n\d+ +([A-Z]\w+( \w+)?|is \w+) +(n\d+|-) +(n\d+( n\d+)*( n?…|…)?|-) +(\d+\.\d\d %|-) +(\d+|-)"
    )
    assert all(re.fullmatch(pattern, line) for line in lines)
    entries = [json.loads(line) for line in (tmp_path / "new" / "log").read_text().splitlines()]
    for entry in entries:
        check_shape("sim-event", entry)
    times = [entry["t"] for entry in entries]
    assert times == sorted(times)
    shown = [(line[:9].strip(), line[11:17].strip()) for line in lines]
    logged = {(f"{entry['t']:.4f}", entry["node"]) for entry in entries}
    assert logged.issuperset(shown)
    assert (entries[0]["event"], entries[0]["node"]) == ("RingCreated", "n0"), "the first event is at the start"
    dead = [entry["node"] for entry in entries if entry["event"] == "Died"]
    assert dead, "a killed node emits no event, and the simulator logs its death"
    assert [line[11:17].strip() for line in lines if "is dead" in line] == dead
    assert f"seed {SEED}: 7 nodes, r = 2, N = 3, messages, " in ended.err
    assert f"events: {tmp_path / 'new' / 'log'}\n" in ended.err


def test_replay_repeats_the_run(sim: Sim) -> None:
    digest = json.loads(sim("run", "--seeds", SEED, *FAULTY, "--json").out)["digests"][SEED]
    first, again = sim("replay", SEED, *FAULTY), sim("replay", SEED, *FAULTY)
    assert f"\ndigest {digest}\n" in first.err
    assert first == again
    assert Path(f"out/sim/seed-{SEED}.jsonl").exists()


def test_replay_as_json_is_the_event_log(sim: Sim) -> None:
    ended = sim("replay", "1", *SMALL, "--json", "--log", "log")
    assert ended.code == 0
    assert ended.out == Path("log").read_text()


def test_history_of_a_ring_without_faults_is_acceptable(sim: Sim, capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--nodes", "5", "--successors", "2", "--fidelity", "messages")
    ended = sim("replay", "3", *size, "--faults", "none", "--until", "12", "--history", "history")
    assert ended.code == 0
    assert "; history: history\n" in ended.err
    assert cli.run(["check-history", "history", "--model", "acknowledged", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["keys"] > 10
    lines = Path("history").read_text().splitlines()
    answered = next(i for i, line in enumerate(lines) if '"f":"get"' in line and '"v":' in line)
    spoiled = re.sub(r'"v":"[^"]+"', '"v":"nobody wrote this"', lines[answered])
    Path("spoiled").write_text("\n".join([*lines[:answered], spoiled, *lines[answered + 1 :]]))
    assert cli.run(["check-history", "spoiled", "--model", "acknowledged"]) == 8


def test_recording_of_a_replay_reads_back(sim: Sim) -> None:
    ended = sim("replay", SEED, *FAULTY, "--until", "10", "--chordlog", "run.chordlog.gz")
    assert ended.code == 0
    assert "; recording: run.chordlog.gz\n" in ended.err
    with open("run.chordlog.gz", "rb") as file:
        found = read_chordlog(file)
    assert found.header.command.startswith(f"chord sim replay {SEED} --nodes 7 ")
    assert (found.header.source, found.header.successors, found.outcome) == ("simulation", 2, "passed")
    letters = {line.letter for line in found.lines()}
    assert letters == {"k", "d", "e", "f", "o", "c"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is always full")
@pytest.mark.parametrize(
    ("option", "path", "why"),
    [
        ("--log", "taken/log", "file exists"),
        ("--log", "/dev/full", "no space left on device"),
        ("--history", "taken/history", "file exists"),
        ("--chordlog", "taken/run.chordlog", "file exists"),
        ("--chordlog", "/dev/full", "no space left on device"),
        ("--history", "/dev/full", "no space left on device"),
    ],
)
def test_file_that_cannot_be_written_is_exit_2(sim: Sim, option: str, path: str, why: str) -> None:
    Path("taken").write_text("")
    ended = sim("replay", "0", *SMALL, option, path)
    assert ended.code == 2
    assert f"error: cannot write {path} ({why}). Name a place that can be written" in ended.err


# -- processes ------------------------------------------------------------------------------------


def test_replay_into_a_closed_pipe_completes_the_log(tmp_path: Path) -> None:
    replay = [*CHORD, "sim", "replay", SEED, *FAULTY, "--until", "2", "--log", "log"]
    command = f"{shlex.join(replay)} | head -n 2"
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path,
        env=environment(),
    )  # fmt: skip
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 2)
    assert len(ended.stderr.splitlines()) == 1, "stderr has only the plan"
    ends = json.loads((tmp_path / "log").read_text().splitlines()[-1])
    assert ends["t"] > 2, "the log is complete"


@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_interrupted_run_leaves_no_process(tmp_path: Path, number: int, code: int) -> None:
    """The run shows its progress, because its stderr is a terminal."""
    ours, theirs = pty.openpty()
    command = [*CHORD, "sim", "run", "--seeds", "0-9999", *SMALL, "--jobs", "2"]
    with interruptible():
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, cwd=tmp_path, env=environment())
    os.close(theirs)
    try:
        seen = read_terminal(ours, until=b"/10000")
        assert b"/10000" in seen
        workers = children(process.pid)
        assert len(workers) >= 2
        process.send_signal(number)
        out, _ = process.communicate(timeout=ENDED_WITHIN_S)
        seen += read_terminal(ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert process.returncode == code
    assert b"Traceback" not in seen
    if number != signal.SIGKILL:
        finished = re.search(rb"ended early: (\d+) of 10,000 seeds were finished", seen)
        assert finished is not None
        assert out.startswith(finished[1] + b" seed") or (finished[1], out) == (b"0", b"")
    deadline = time.monotonic() + ENDED_WITHIN_S
    while any(is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "the workers outlive their parent"
        time.sleep(0.05)


def read_terminal(descriptor: int, until: bytes | None = None) -> bytes:
    """Read a terminal until some words have appeared, its writers are gone, or the time is up."""
    seen, deadline = b"", time.monotonic() + ENDED_WITHIN_S
    while until is None or until not in seen:
        is_readable, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        part = b""
        with suppress(OSError):  # a terminal without writers
            part = os.read(descriptor, 1000) if is_readable else b""
        if not part:
            break
        seen += part
    return seen


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    return False


def test_interrupted_run_prints_the_finished_seeds(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt_the_second(plan: Plan, **how: Any) -> RunReport | swarm.Broken:
        if plan.seed == 1:
            signal.raise_signal(signal.SIGINT)
        return run_one(plan, **how)

    run_one = swarm.run_one
    monkeypatch.setattr(swarm, "run_one", interrupt_the_second)
    with interruptible():
        ended = sim("run", "--seeds", "0-2", "--jobs", "1", *SMALL)
        assert (ended.code, ended.out.splitlines()[0].split(":")[0]) == (130, "1 seed, 0 of them over frames")
        assert "ended early: 1 of 3 seeds were finished" in ended.err
        as_json = sim("run", "--seeds", "0-2", "--jobs", "1", "--json", *SMALL)
    result = json.loads(as_json.out)
    assert (as_json.code, result["seeds"], result["asked"]) == (130, 1, 3)
    check_shape("sim-run", result)


def test_interrupted_replay_is_exit_130(sim: Sim) -> None:
    answer = Vnode.on_get_ring

    def interrupted(vnode: Vnode, request: GetRing, asker: str) -> GetRingReply:
        signal.raise_signal(signal.SIGINT)
        return answer(vnode, request, asker)

    with interruptible(), mock.patch.object(Vnode, "on_get_ring", interrupted):
        ended = sim("run", "--seeds", "0", *SMALL)
        assert (ended.code, ended.out) == (130, "")
        assert "ended early: 0 of 1 seeds were finished" in ended.err
        assert sim("replay", "0", *SMALL).code == 130


@pytest.mark.parametrize("command", ["", "run", "replay", "paper"])
def test_help_does_not_load_the_simulator(command: str) -> None:
    args = ["sim", *command.split(), "--help"]
    loaded = "bool({'trio', 'chord.sim'}.intersection(sys.modules))"
    code = f"import sys; from chord.cli import run; run({args}); sys.exit({loaded})"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment())


def test_help_names_every_fault_and_experiment() -> None:
    listed = re.search(r"Faults: ([\w,\s]+)\.", FAULTS_HELP)
    assert listed is not None
    assert re.split(r",\s+", listed[1]) == list(FAULTS)
    listed = re.search(r"EXPERIMENTS are ([\w,\s]+);", paper_command.help or "")
    assert listed is not None
    assert re.split(r",\s+|\s+and\s+", listed[1]) == list(EXPERIMENTS)
    options = [parameter.name for parameter in replay_command.params]
    assert [name for name in options if name in WISHES] == list(WISHES)


# -- paper ----------------------------------------------------------------------------------------

TINY = [
    path_length.PathSetting(nodes, r, 1, 20, seed=1, is_model=is_model)
    for is_model in (True, False)
    for nodes in (8, 16)
    for r in path_length.LISTS
]


def test_paper_command_writes_its_report(sim: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EXPERIMENTS, "path_length", replace(EXPERIMENTS["path_length"], plan=lambda scale, seed: TINY))
    ended = sim("paper", "path_length", "path_length", "--scale", "quick", "--out", "papers", "--jobs", "1", "--json")
    found = json.loads(ended.out)
    check_shape("sim-paper", found)
    (experiment,) = found["experiments"]
    assert ended.code == (8 if experiment["passed"] is False else 0)
    assert (found["scale"], found["seed"], experiment["name"]) == ("quick", 1, "path_length")
    assert "papers/path_length.md" in experiment["files"]
    assert all(Path(file).exists() for file in experiment["files"])
    assert len(experiment["tables"][0]["rows"]) == len(TINY) // 2


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (None, 0), (False, 8)])
def test_missed_bar_is_exit_8(sim: Sim, monkeypatch: pytest.MonkeyPatch, passed: bool | None, code: int) -> None:
    rows = (Row(("a", 1.26, None), passed), Row(("b", float("inf"), 2), None if passed is None else True))
    table = Table("t", "T", (Column("what"), Column("measured", ".1f"), Column("published")), rows, "b", ("a note",))
    fake = replace(EXPERIMENTS["path_length"], plan=lambda scale, seed: [], tables=lambda result: [table])
    monkeypatch.setitem(EXPERIMENTS, "path_length", replace(fake, pictures={"t": lambda result, figure: None}))
    ended = sim("paper", "path_length", "--jobs", "1")
    word = {True: "\tyes", False: "\tNO", None: ""}
    assert ended.code == code
    assert ended.out.splitlines()[:3] == [
        "T",
        "what\tmeasured\tpublished" + "\tmet" * (passed is not None),
        f"a\t1.3\t–{word[passed]}",
    ]
    assert "path_length: out/sim/t.csv" in ended.err
    found = json.loads(sim("paper", "path_length", "--jobs", "1", "--json").out)
    check_shape("sim-paper", found)
    assert found["experiments"][0]["tables"][0]["rows"][1]["values"] == ["b", None, 2], "JSON has no infinity"


def test_output_folder_is_checked_before_the_measurement(sim: Sim) -> None:
    Path("taken").write_text("")
    ended = sim("paper", "--out", "taken/papers")
    assert (ended.code, ended.out) == (2, "")
    assert "error: cannot write taken/papers (not a directory). Name a place that can be written" in ended.err

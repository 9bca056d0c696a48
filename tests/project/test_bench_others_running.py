"""The comparison with other systems: the start, pause, measurement and end of processes, and installation."""


from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.others import __main__ as command
from benchmarks.others import install, processes, turns
from benchmarks.others.processes import Group, SystemFailed
from benchmarks.others.system import Home, System
from benchmarks.others.systems import NAMES, SYSTEMS
from benchmarks.others.turns import Effort, Measured, Outcome, measure_side_by_side

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "support" / "fake_system.py"


# -- processes and turns ------------------------------------------------------------------------------


@dataclass(frozen=True)
class FakeHome(Home):
    """The place of a fake system."""

    def program(self, module: str, *arguments: str) -> list[str]:
        return [self.python, str(FAKE), *arguments]


HOME = FakeHome(sys.executable, None, "1")
EFFORT = Effort(ops=30, seconds=60.0, rounds=2, deadline_s=60.0, until=time.monotonic() + 1e6)


@pytest.fixture(autouse=True)
def no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SETTLE_WINDOW_S", 0.02)
    monkeypatch.setattr(turns, "SETTLE_S_MAX", 0.1)


def fake(name: str, fault: str) -> System:
    def start(group: Group, home: Home, nodes: int) -> list[str]:
        where = group.directory / "store"
        where.mkdir()
        started = [group.node(home.program("fake", "node", str(where), fault)) for _ in range(nodes)]
        for process in started:
            process.read(0.1 if fault == "silent" else 60)
        return [str(where), fault]

    return System(name, "the file is there", "none", start, "fake")


def measured_side_by_side(tmp_path: Path, *systems: System, **effort: Any) -> tuple[Outcome, list[str]]:
    outcome, said = Outcome(), list[str]()
    homes: dict[str, Home] = {system.name: HOME for system in systems}
    plan = [(system, 2) for system in systems]
    measure_side_by_side(plan, homes, tmp_path, replace(EFFORT, **effort), outcome, said.append)
    return outcome, said


def test_correct_and_faulty_systems_are_measured_in_turn(tmp_path: Path) -> None:
    systems = [fake(fault, fault) for fault in ("none", "loses", "confuses", "refuses", "ends", "silent")]
    outcome, said = measured_side_by_side(tmp_path, *systems)
    by_key: dict[tuple[str, int, str, int], list[Measured]] = {}
    for found in outcome.measured:
        by_key.setdefault(found.key, []).append(found)
    alive = ("none", "loses", "confuses", "refuses")
    expected = {(name, 2, op, many) for name in alive for op in ("put", "get") for many in (1, 32)}
    assert set(by_key) == expected
    errors = {(name, op): [m.errors for m in by_key[name, 2, op, 1]] for name, _, op, _ in expected}
    assert errors["none", "put"] == errors["none", "get"] == errors["loses", "put"] == [0, 0]
    assert errors["loses", "get"] == [10, 10]
    assert errors["confuses", "get"] == errors["refuses", "put"] == [30, 30]
    assert errors["refuses", "get"] == [0, 0], "gets read acknowledged keys only"
    assert {m.ops_per_s for m in by_key["refuses", 2, "put", 32]} == {0.0}, "failed operations are not in the rate"
    assert all(m.rss_mb_per_node > 1 and m.cpu_us_per_op >= 0 for m in outcome.measured)
    assert {m.hops for m in outcome.measured} == {None}
    assert set(outcome.left_out) == {("ends", 2), ("silent", 2)}
    assert "ended with 3" in outcome.left_out["ends", 2]
    assert "says nothing" in outcome.left_out["silent", 2]
    assert any("LEFT OUT" in line for line in said)
    assert any("failed: OSError: no" in line for line in said)


def test_turns_are_interleaved_and_each_system_is_first_once(tmp_path: Path) -> None:
    outcome, _ = measured_side_by_side(tmp_path, fake("a", "none"), fake("b", "none"), rounds=2, ops=1)
    order = list(dict.fromkeys((i // 4, m.key[0]) for i, m in enumerate(outcome.measured)))
    assert [name for _, name in order] == ["a", "b", "b", "a"]


def test_turn_begins_when_the_ring_is_idle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring is idle if it uses as little CPU as before its pause, with a margin. A busy ring gets its turn late."""
    shares: list[float] = []
    monkeypatch.setattr(turns.Ring, "_share_of_a_core", lambda ring: shares.pop(0))
    monkeypatch.setattr(turns, "SETTLE_S_MAX", 0.08)
    for number, given in enumerate(([0.2, 0.41, 0.39, 9.0], [0.0, 0.05, 9.0], [0.0, 1.0, 1.0, 1.0, 1.0, 9.0])):
        shares[:] = given
        outcome, _ = measured_side_by_side(tmp_path / str(number), fake("a", "none"), rounds=1, ops=1)
        assert shares == [9.0]
        assert len(outcome.measured) == 4


def test_system_is_left_out_after_the_deadline(tmp_path: Path) -> None:
    outcome, _ = measured_side_by_side(tmp_path, fake("a", "none"), until=time.monotonic())
    assert outcome.measured == []
    assert outcome.left_out == {("a", 2): "the time was up before it started"}


def test_ring_that_does_not_fit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "FREE_BYTES_MIN", processes.available_bytes() * 2)
    outcome, _ = measured_side_by_side(tmp_path, fake("a", "none"))
    assert outcome.measured == []
    assert "does not fit" in outcome.left_out["a", 2]


def test_system_that_is_left_out_ends_at_once(tmp_path: Path) -> None:
    with Group("g", tmp_path) as group:
        pid = group.node(sleeper()).pid
        group.end()
        assert not is_alive(pid)
        assert group.nodes == []


def sleeper() -> list[str]:
    """Return a program that ignores the end of its input and SIGHUP, which orphans of a killed runner get."""
    deaf = "import signal, time; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    return [sys.executable, "-c", f"{deaf}; print('{{}}', flush=True); time.sleep(600)"]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_group_ends_with_its_block_paused_or_not(tmp_path: Path) -> None:
    for is_paused in (False, True):
        pids: list[int] = []

        def life(is_paused: bool = is_paused, pids: list[int] = pids) -> None:
            with Group("g", tmp_path) as group:
                pids += [group.node(sleeper()).pid, group.client(sleeper()).pid]
                if is_paused:
                    group.pause()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            life()
        assert len(pids) == 2
        assert not any(is_alive(pid) for pid in pids)


def test_group_ends_when_the_runner_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from benchmarks.others.processes import Group\n"
        f"with Group('g', Path({str(tmp_path)!r})) as group:\n"
        f"    process = group.client({sleeper()!r}); group.pause(); print(process.pid, flush=True); time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        pid = int(runner.stdout.readline())
        assert is_alive(pid)
        runner.send_signal(signal.SIGKILL)
    for _ in range(10_000):
        if not is_alive(pid):
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    pytest.fail("a node outlived the runner")


def test_process_that_ends_reports_its_reason(tmp_path: Path) -> None:
    with Group("g", tmp_path) as group:
        process = group.node([sys.executable, "-c", "import sys; sys.exit('the reason')"])
        with pytest.raises(SystemFailed, match="ended with 1: the reason"):
            process.read(60)
        with pytest.raises(SystemFailed, match="ended with 1"):
            group.resume()


def test_cpu_and_memory_are_those_of_the_process() -> None:
    before = processes.cpu_s_of(os.getpid())
    while time.process_time() < before + 0.1:
        sum(range(1000))
    assert abs(processes.cpu_s_of(os.getpid()) - time.process_time()) < 0.05
    assert 5e6 < processes.rss_bytes_of(os.getpid()) < 5e9
    for look in (processes.cpu_s_of, processes.rss_bytes_of):
        with pytest.raises(SystemFailed, match="has ended"):
            look(2**22 + 1)  # no process has a number above the kernel's limit


# -- installing and asking ----------------------------------------------------------------------------


def test_system_that_cannot_be_installed_is_skipped(tmp_path: Path) -> None:
    def refuse(system: System, base: Path) -> Home:
        if system.name == "etcd":
            raise install.CannotInstall("apt-get: no such thing")
        return HOME

    outcome, said = Outcome(), list[str]()
    homes = turns.install_all(SYSTEMS, refuse, tmp_path, outcome, said.append)
    assert set(homes) == set(NAMES) - {"etcd"}
    assert outcome.left_out == {("etcd", 0): "cannot be installed here: apt-get: no such thing"}
    assert any("etcd: SKIPPED" in line for line in said)


def test_failed_or_missing_command_is_the_reason() -> None:
    with pytest.raises(install.CannotInstall, match="exit 1: the reason"):
        install.run([sys.executable, "-c", "import sys; sys.exit('the reason')"])
    with pytest.raises(install.CannotInstall, match="no-such-program"):
        install.run(["no-such-program"])


def test_environment_is_made_once(tmp_path: Path) -> None:
    """An environment with the same packages is reused. Other versions replace it."""
    system = next(system for system in SYSTEMS if system.name == "opendht")
    venv = tmp_path / "opendht" / "venv"
    venv.mkdir(parents=True)
    (venv / "installed").write_text("\n".join(system.pip))
    home = install.install(system, tmp_path)
    assert (home.python, home.version) == (str(venv / "bin" / "python"), "4.4.2")
    assert not (venv / "bin").exists()


def test_every_package_has_an_exact_version() -> None:
    assert all("==" in package for system in SYSTEMS for package in system.pip)


@pytest.mark.parametrize(
    ("flags", "words"),
    [(["--systems", "chord,voldemort"], "voldemort"), (["--nodes", "2"], "at least 3"), (["--nodes", "x"], "numbers"),
     (["--ops", "0"], "above 0"), (["--rounds", "-1"], "above 0"), (["--seconds", "0"], "above 0")],
)  # fmt: skip
def test_invalid_argument_is_refused(
    flags: list[str], words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["others", *flags])
    with pytest.raises(SystemExit) as ended:
        command.arguments()
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_references_run_beside_the_smallest_rings() -> None:
    plan = command.plan_of(SYSTEMS, (8, 64))
    assert [{(s.name, n) for s, n in group if s.sizes} for group in plan] == [{("redis", 1), ("etcd", 3)}, set()]
    assert [{n for s, n in group if not s.sizes} for group in plan] == [{8}, {64}]


def test_ring_benchmark_varies_one_parameter_at_a_time() -> None:
    from benchmarks import ring

    plan = ring.plan_of(list(ring.PARTS))
    assert len({(system.name, nodes) for system, nodes in plan}) == len(plan) == 10
    base = plan[0][0]
    for system, nodes in plan[1:]:
        differs = [nodes != ring.BASE_NODES, system.client_arguments != base.client_arguments,
                   system.value_bytes != base.value_bytes, system.start != base.start]  # fmt: skip
        assert sum(differs) == 1, system.name
    assert ring.plan_of(["values"])[1][0].value_bytes == 1000


def test_page_names_the_setup_of_each_system() -> None:
    page = " ".join((ROOT / "docs" / "how-to" / "benchmarks.md").read_text().split())
    for system in SYSTEMS:
        assert system.acknowledged_by in page, system.name
        assert all(package in page for package in system.pip[:1]), system.name

"""Long commands that end early, by Ctrl-C or SIGTERM: no traceback, no partial file, no process left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from chord.cli import serve, up
from chord.cli.bench_run import Bench
from chord.cli.failures import Terminated, end_of_peer, orderly_end
from chord.cli.output import Out
from chord.client.blocking import Client
from chord.config import NodeConfig
from chord.lab.harness.files import whole, write_whole
from tests.support.cli import CannedRing, Run
from tests.support.ports import UNUSED, Ports
from tests.support.real_rings import CHORD, HANG_S, environment, interruptible, is_alive

WAIT_S = 600.0
"""A guard against hanging, not a bar."""

LONG = (("lab", "vnodes"), ("sim", "paper", "churn", "--scale", "full"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("command", LONG, ids=lambda words: words[0])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("is_group", [False, True])
def test_terminated_run_leaves_no_process_and_no_partial_file(
    tmp_path: Path, command: tuple[str, ...], number: int, code: int, is_group: bool
) -> None:
    words = [*CHORD, *command, "--jobs", "2", "--out", "out"]
    with interruptible():
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path, env=environment(),
            start_new_session=True,
        )  # fmt: skip
    try:
        workers = working(process)
        (os.killpg if is_group else os.kill)(process.pid, number)
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, out, err.strip()) == (code, b"", b"")  # to a Ctrl-C Click answers with a new line
    deadline = time.monotonic() + WAIT_S
    while any(is_alive(worker) for worker in workers):
        assert time.monotonic() < deadline, "the workers outlive their parent"
        time.sleep(0.05)
    assert list((tmp_path / "out").iterdir()) == []


def working(process: subprocess.Popen[bytes]) -> list[int]:
    """Wait until two workers run, which ignore SIGINT, and return all children."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        if sum(map(ignores_ctrl_c, children)) >= 3:  # and the tracker
            return children
        time.sleep(0.05)
    raise AssertionError("no workers have come")


def ignores_ctrl_c(pid: int) -> bool:
    ignored = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored.split()[1], 16) & 1 << (signal.SIGINT - 1))


def test_sigterm_ends_a_block_once_and_restores_its_handler() -> None:
    before = signal.getsignal(signal.SIGTERM)

    def end_twice() -> None:
        with orderly_end():
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                signal.raise_signal(signal.SIGTERM)  # a second one does not disturb the end

    with pytest.raises(Terminated):
        end_twice()
    assert signal.getsignal(signal.SIGTERM) == before
    ran: list[bool] = []

    def elsewhere() -> None:
        with orderly_end():
            ran.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert ran == [True], "no other thread can have signals"


def test_file_is_replaced_whole_or_left_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"

    def write_half(error: type[BaseException]) -> None:
        with whole(path) as part:
            part.write_text("half")
            raise error

    for number, error in enumerate((KeyboardInterrupt, Terminated, OSError)):
        if number:
            write_whole(path, "old\n")
        with pytest.raises(error):
            write_half(error)
        assert [each.name for each in tmp_path.iterdir()] == ["table.csv"] * bool(number)
    assert path.read_text() == "old\n"
    with whole(path) as part:
        part.write_text("new")
        assert path.read_text() == "old\n"
    assert path.read_text() == "new"


def test_error_names_the_file_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "table.csv").mkdir()
    for path in (tmp_path / "table.csv", tmp_path / "nowhere" / "table.csv"):
        with pytest.raises(OSError, match=r"table\.csv") as caught:
            write_whole(path, "text")
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]


# -- up, load, bench: output after Ctrl-C ----------------------------------------------------------------------


AT_A_BAD_MOMENT = """
import gc, os, signal, sys, types
from chord.__main__ import main
from chord.cli import up

class Killing:  # Python drops an exception of a destructor, and one in an import lock
    def __del__(self):
        os.kill(os.getpid(), signal.{name})

up.gc = types.SimpleNamespace(collect=gc.collect, freeze=Killing)
sys.argv = ["chord", "up", "-n", "2", "--base-port", "{port}"]
main()
"""


@pytest.mark.parametrize(("name", "code", "word"), [("SIGTERM", 143, "terminated"), ("SIGINT", 130, "interrupted")])
def test_up_with_a_signal_in_a_destructor_ends_before_ready(name: str, code: int, word: str, ports: Ports) -> None:
    script = AT_A_BAD_MOMENT.format(name=name, port=ports.row(2))
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False, timeout=HANG_S
    )
    said = f"{word} before the ring was ready: 0 of 2 peers were in it; all are stopped\n"
    assert (ended.returncode, ended.stderr, ended.stdout) == (code, said, "")


INTERRUPTED_WHILE_LOADING = """
import os, runpy, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
sys.argv = ["chord", "version"]
runpy.run_module("chord", run_name="__main__", alter_sys=True)
"""


def test_interrupt_while_modules_load_prints_no_traceback() -> None:
    command = [sys.executable, "-c", INTERRUPTED_WHILE_LOADING]
    with interruptible():
        ended = subprocess.run(
            command, env=environment(), capture_output=True, text=True, check=False, timeout=HANG_S,
        )
    assert (ended.returncode, ended.stderr, ended.stdout) == (-signal.SIGINT, "", "")


class Ending:
    """An `up` without processes that gets a signal before or after its ring is ready."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, is_ready: bool, number: int, **config: Any) -> None:
        family = up._Family
        configs = [NodeConfig(listen=f"127.0.0.1:{port}", name=f"n{port}", **config) for port in (1, 2)]

        def come(*_: object) -> None:
            signal.raise_signal(number)

        monkeypatch.setattr(family, "_fork", lambda self, config: self._ready.add(config.name))
        monkeypatch.setattr(family, "_await_ready", lambda self, count: None)
        monkeypatch.setattr(family, "_await_proof", (lambda self: None) if is_ready else come)
        monkeypatch.setattr(family, "_announce", lambda self: setattr(self, "_is_announced", True) or come())
        monkeypatch.setattr(up, "STOP_S", 0.0)
        before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell script starts a command that ends with &
        try:
            self.code = family(Out(), configs, 0.0, has_founder=False, leaves=False).run()
        finally:
            gc.unfreeze()
            for each, handler in before.items():
                signal.signal(each, handler)


@pytest.mark.parametrize(
    ("is_ready", "number", "code", "said"),
    [
        (False, signal.SIGINT, 130, "interrupted before the ring was ready: 2 of 2 peers were in it; all are stopped"),
        (False, signal.SIGTERM, 143, "terminated before the ring was ready: 2 of 2 peers were in it; all are stopped"),
        (True, signal.SIGINT, 130, "interrupted; the peers are stopped; their records were in memory and are gone"),
        (True, signal.SIGTERM, 0, "terminated; the peers are stopped; their records were in memory and are gone"),
    ],
)
def test_up_reports_its_end_even_if_a_script_ignores_sigint(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    is_ready: bool,
    number: int,
    code: int,
    said: str,
) -> None:
    assert Ending(monkeypatch, is_ready=is_ready, number=number).code == code
    assert capsys.readouterr().err.strip() == said


def test_up_says_that_records_are_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Ending(monkeypatch, is_ready=True, number=signal.SIGINT, data_dir="d")
    assert "starts them again with their records" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["load", "restore"])
def test_interrupted_load_or_restore_counts_the_stored_keys(
    run: Run, canned: CannedRing, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    source, name = tmp_path / "source", "put_many"
    source.write_text("a\nb\nc\nd\n")
    if command == "restore":
        canned.scanned.keys = [b"a", b"b", b"c", b"d"]
        assert run("backup", str(source)).code == 0
        name = "import_many"
    write, calls = getattr(Client, name), []

    def interrupted(self: Client, items: Any, **options: Any) -> Any:
        calls.append(items)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return write(self, items, **options)

    monkeypatch.setattr(Client, name, interrupted)
    done = "stored" if command == "load" else "merged"
    ended = run(command, str(source), "--in-flight", "3")
    assert (ended.code, ended.out.startswith(f"{done} 3 of 4")) == (130, True)
    assert ended.err == f"interrupted: 3 keys are {done}; 1 more may be\n"
    calls.clear()
    ended = run(command, str(source), "--in-flight", "3", "--json")
    assert (ended.code, ended.json(command)["complete"]) == (130, False)


def test_interrupted_bench_gives_no_verdict(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fill(self: Bench, client: object, timeout_s: float) -> None:
        self.interrupt()

    async def clean_up(self: Bench, client: object, timeout_s: float) -> None:
        return

    monkeypatch.setattr(Bench, "_fill", fill)
    monkeypatch.setattr(Bench, "_clean_up", clean_up)
    ended = run("bench")
    assert (ended.code, ended.out, "PASS" in ended.err) == (130, "", False)
    assert "interrupted; 0 of 10 lines were measured in part, no verdict" in ended.err
    ended = run("bench", "--json")
    shape = ended.json("bench")
    assert (ended.code, shape["verdict"], shape["rows"], shape["interrupted"]) == (130, None, [], True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_node_ended_before_it_is_ready_reports_no_success(
    number: int, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "PATIENCE_S", 0.05)
    say = serve._say

    def said(text: str) -> None:
        say(text)
        if "is not in the ring yet" in text:
            signal.raise_signal(number)

    monkeypatch.setattr(serve, "_say", said)
    config = NodeConfig(join=(UNUSED,), name="n1", preset="local")
    assert serve.serve(config, lambda node, how: None) == code
    assert "n1 stops, and was not in the ring yet" in capsys.readouterr().err


def test_up_interrupted_before_any_peer_reports_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(up, "_choose_ports", interrupted)
    ended = run("up", "-n", "1")
    assert (ended.code, ended.err.strip()) == (130, "interrupted before any peer was started")


def test_up_handles_sigint_before_it_loads_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    from chord import cli

    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def look(args: object) -> int:
        seen.append(signal.getsignal(signal.SIGINT))
        return 0

    monkeypatch.setattr(cli, "run", look)
    try:
        for command in ("up", "get"):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            monkeypatch.setattr(sys, "argv", ["chord", command])
            with pytest.raises(SystemExit):
                cli.main()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.default_int_handler, signal.SIG_IGN]


# -- output that cannot be written -----------------------------------------------------------------------------------


def written_to(name: str) -> int:
    """Return a descriptor that refuses writes: of a full disk, or of a pipe without a reader."""
    if name == "full":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def ended_with(descriptor: int, stream: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command with this descriptor for stdout or stderr."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: descriptor}
    try:
        return subprocess.run([*CHORD, *words], **streams, env=environment(), text=True, check=False, timeout=HANG_S)
    finally:
        os.close(descriptor)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize(("name", "why"), [("full", "no space left on device"), ("pipe", "broken pipe")])
@pytest.mark.parametrize("words", [("node", "--listen"), ("up", "-n", "1", "--base-port")])
def test_service_that_cannot_write_its_line_is_exit_2(
    ports: Ports, name: str, why: str, words: tuple[str, ...]
) -> None:
    place = ports.address() if words[0] == "node" else str(ports.one())
    ended = ended_with(written_to(name), "stdout", *words, place, "--preset", "local")
    said = f"error: cannot write the output ({why}). Keep the reader of stdout open, or redirect stdout to /dev/null\n"
    assert (ended.returncode, ended.stderr) == (2, said)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("name", ["full", "pipe"])
@pytest.mark.parametrize(("words", "code"), [(("gett",), 2), (("get", "k", "--json", "--node", UNUSED), 4)])
def test_failure_with_a_closed_stderr_keeps_its_exit_code(name: str, words: tuple[str, ...], code: int) -> None:
    assert ended_with(written_to(name), "stderr", *words).returncode == code


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("get", "--help")])
def test_help_without_a_reader_ends_quietly(words: tuple[str, ...]) -> None:
    ended = ended_with(written_to("pipe"), "stdout", *words)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize(
    ("code", "command", "words"),
    [
        (0, "", "has left"),
        (0, "chord node", "has stopped. To start it again: chord node"),
        (143, "", "has stopped before it was in the ring"),
        (-signal.SIGTERM, "", "has stopped before it was in the ring"),
        (-signal.SIGKILL, "", "died (signal 9); it is not restarted"),
        (1, "chord node", "died (exit 1). To start it again: chord node"),
    ],
)
def test_end_of_a_peer_is_told_apart_in_words(code: int, command: str, words: str) -> None:
    assert end_of_peer(code, command) == words

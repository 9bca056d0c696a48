"""How long commands end early: by Ctrl-C or SIGTERM, alone or with their whole group, without noise or half a file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from live import CHORD, environment, interruptible, is_alive

from chord.cli.failures import Terminated, orderly_end
from chord.experiments.files import whole, write_whole

WAIT_S = 600.0
"""A guard against hanging, and no bar."""

LONG = (("lab", "vnodes"), ("sim", "paper", "churn", "--scale", "full"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("command", LONG, ids=lambda words: words[0])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("is_group", [False, True])
def test_a_run_that_is_ended_ends_in_order(
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
        assert time.monotonic() < deadline, "they outlive who waits for them"
        time.sleep(0.05)
    assert list((tmp_path / "out").iterdir()) == []


def working(process: subprocess.Popen[bytes]) -> list[int]:
    """Wait until two workers are at it, as they ignore SIGINT, and return all children."""
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


def test_sigterm_ends_a_block_once_and_is_as_it_was_afterwards() -> None:
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


def test_a_file_is_there_whole_or_as_it_was(tmp_path: Path) -> None:
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


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "table.csv").mkdir()
    for path in (tmp_path / "table.csv", tmp_path / "nowhere" / "table.csv"):
        with pytest.raises(OSError, match=r"table\.csv") as caught:
            write_whole(path, "text")
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)
    assert [each.name for each in tmp_path.iterdir()] == ["table.csv"]
